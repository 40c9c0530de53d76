//! VLAN isolation of `NORMAL`: while settings change at random, no frame leaves by a port outside of its VLAN.
//!
//! The checker ([`Settings`]) knows IEEE 802.1Q and the columns of the database. It shares no code with translation.

use crate::rng::Rng;
use crate::rules;
use crate::world::fuzz_ports;
use dpif::actions::{Output, PopVlan, PushVlan};
use dpif::{DpAction, FlowStats};
use flow::text::{NoPortNames, parse_exact_flow};
use flow::{DpPort, MacAddr};
use ofproto::backer::Backer;
use ofproto::ports::{BridgeId, Bundle, BundleId, PriorityTags, VlanMode, VlanSet};
use ofproto::xlate::{Request, Start, XlateCache, translate};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const PORTS: u32 = 5;
/// VLANs of frames and settings; 0: none.
const VLANS: [u16; 4] = [0, 5, 6, 7];
/// Addresses of hosts; 0 as a destination is the broadcast address.
const HOSTS: u64 = 6;

/// The VLAN settings of a port.
#[derive(Clone, Debug)]
struct Settings {
    mode: VlanMode,
    tag: u16,
    trunks: Option<BTreeSet<u16>>,
    protected: bool,
}

impl Settings {
    fn random(rng: &mut Rng) -> Settings {
        let modes = [VlanMode::Access, VlanMode::Trunk, VlanMode::NativeTagged, VlanMode::NativeUntagged];
        let mode = *rng.pick(&modes);
        let some = VLANS.into_iter().filter(|_| rng.one_in(2)).collect::<BTreeSet<_>>();
        Settings {
            mode,
            tag: if mode == VlanMode::Trunk { 0 } else { *rng.pick(&VLANS) },
            trunks: (mode != VlanMode::Access && !some.is_empty()).then_some(some),
            protected: rng.one_in(4),
        }
    }

    fn is_native(&self) -> bool {
        matches!(self.mode, VlanMode::NativeTagged | VlanMode::NativeUntagged)
    }

    /// Whether frames of the VLAN may leave by the port.
    fn carries(&self, vlan: u16) -> bool {
        let has_native = self.is_native() && self.tag != 0;
        match self.mode {
            VlanMode::Access => vlan == self.tag,
            _ if has_native && vlan == self.tag => true,
            _ if has_native && vlan == 0 => false,
            _ => self.trunks.as_ref().is_none_or(|trunks| trunks.contains(&vlan)),
        }
    }

    /// The VLAN of an arriving frame with that tag (0: none); `None`: the port refuses it.
    fn admits(&self, vid: u16) -> Option<u16> {
        match (self.mode, vid) {
            (VlanMode::Access, 0) => Some(self.tag),
            (VlanMode::Access, _) => None,
            (_, 0) if self.is_native() => Some(self.tag),
            _ => self.carries(vid).then_some(vid),
        }
    }

    /// The tag of a frame of that VLAN on the wire (0: none).
    fn tags(&self, vlan: u16) -> u16 {
        let bare = self.mode == VlanMode::Access || self.mode == VlanMode::NativeUntagged && vlan == self.tag;
        if bare { 0 } else { vlan }
    }

    fn bundle(&self, port: u32) -> Bundle {
        Bundle {
            id: BundleId(port),
            name: format!("p{port}"),
            members: vec![flow::OfPort(port)],
            vlan_mode: self.mode,
            tag: self.tag,
            trunks: self.trunks.as_ref().map(|trunks| VlanSet::new(trunks.iter().copied())),
            priority_tags: PriorityTags::Never,
            protected: self.protected,
            floodable: true,
            bond: None,
        }
    }
}

/// A bridge and its checker's knowledge.
struct Isolation {
    backer: Backer,
    bridge: BridgeId,
    rng: Rng,
    ports: BTreeMap<u32, Settings>,
    /// Effects of former translations, which come late.
    late: Vec<XlateCache>,
    now_ms: u64,
    /// Frames that followed a learned address.
    unicasts: u64,
}

impl Isolation {
    fn new(seed: u64) -> Isolation {
        let backer = Backer::new(seed);
        let bridge = backer.add_bridge("br0");
        backer.change_bridge(bridge, |b| b.tables.insert(Arc::new(rules::fallback(0))));
        let (rng, ports, late) = (Rng::new(seed), BTreeMap::new(), Vec::new());
        Isolation { backer, bridge, rng, ports, late, now_ms: 0, unicasts: 0 }
    }

    fn configure(&mut self) {
        let port = self.rng.range(1, PORTS.into()) as u32;
        match self.rng.one_in(8) {
            true => drop(self.ports.remove(&port)),
            false => drop(self.ports.insert(port, Settings::random(&mut self.rng))),
        }
        let mut table = fuzz_ports(PORTS);
        table.ports.retain(|number, _| self.ports.contains_key(&number.0));
        table.bundles = self.ports.iter().map(|(n, s)| (BundleId(*n), Arc::new(s.bundle(*n)))).collect();
        self.backer.set_ports(self.bridge, table);
    }

    fn add_static(&mut self) {
        let port = BundleId(self.rng.range(1, PORTS.into()) as u32);
        let (vlan, host) = (*self.rng.pick(&VLANS), self.rng.range(1, HOSTS));
        if self.ports.contains_key(&port.0) {
            let view = self.backer.view();
            let bridge = view.bridge(self.bridge).expect("the bridge of the test");
            sync::lock(&bridge.macs).add_static(vlan, host_address(host), port);
        }
    }

    fn replay(&mut self, cache: &XlateCache) {
        let seen = FlowStats { packets: 1, bytes: 64, used_ms: self.now_ms, tcp_flags: 0 };
        cache.replay(&seen, &mut self.backer.effect_host());
    }

    fn frame(&mut self) {
        let from = self.rng.range(1, PORTS.into()) as u32;
        let vid = *self.rng.pick(&VLANS);
        let (src, dst) = (self.rng.range(1, HOSTS), self.rng.below(HOSTS + 1));
        let Some(input) = self.ports.get(&from).cloned() else { return };
        let tag = if vid == 0 { String::new() } else { format!(",dl_vlan={vid}") };
        let to = if dst == 0 { MacAddr::BROADCAST } else { host_address(dst) };
        let text = format!("in_port={from},dl_src={},dl_dst={to}{tag},dl_type=0x1234", host_address(src));
        let flow = parse_exact_flow(&text, &NoPortNames).expect("a flow");
        let view = self.backer.view();
        let request =
            Request { view: &view, bridge: self.bridge, flow: &flow, start: Start::Tables, trace: false };
        let t = translate(&request, &mut self.backer.xlate_host(true, self.now_ms));
        let sent = outputs(&t.actions, vid);
        let what = format!("{text} by {input:?}: {:?} of {:?}", t.actions, self.ports);
        let allowed: BTreeMap<u32, u16> = match input.admits(vid) {
            None => BTreeMap::new(),
            Some(vlan) => {
                let leaves = |(port, s): (&u32, &Settings)| {
                    let may = *port != from && s.carries(vlan) && !(s.protected && input.protected);
                    may.then(|| (*port, s.tags(vlan)))
                };
                self.ports.iter().filter_map(leaves).collect()
            }
        };
        assert!(sent.iter().all(|(port, vid)| allowed.get(port) == Some(vid)), "{what}");
        assert!(dst != 0 || sent.len() == allowed.len(), "not flooded: {what}");
        self.unicasts += u64::from(sent.len() == 1 && allowed.len() > 1);
        self.replay(&t.cache);
        self.late.push(t.cache);
    }

    fn step(&mut self) {
        self.now_ms += 1;
        match self.rng.below(20) {
            0 | 1 => self.configure(),
            2 => self.add_static(),
            3 if !self.late.is_empty() => {
                let which = self.rng.below(self.late.len() as u64) as usize;
                let cache = self.late.swap_remove(which);
                self.replay(&cache);
            }
            _ => self.frame(),
        }
    }
}

fn host_address(host: u64) -> MacAddr {
    MacAddr::from_u64(0x02_00_00_00_00_00 | host)
}

/// The ports that a frame with that tag leaves by, and its tags there.
fn outputs(actions: &[DpAction], vid: u16) -> Vec<(u32, u16)> {
    let mut tags = Vec::from_iter((vid != 0).then_some(vid));
    let mut sent = Vec::new();
    for action in actions {
        match action {
            DpAction::PushVlan(PushVlan { tci, .. }) => tags.push(tci & 0xfff),
            DpAction::PopVlan(PopVlan) => assert!(tags.pop().is_some(), "{actions:?}"),
            DpAction::Output(Output(DpPort(port))) => {
                assert!(tags.len() < 2, "{actions:?}");
                sent.push((*port, tags.last().copied().unwrap_or(0)));
            }
            DpAction::Drop(_) => {}
            other => panic!("{other:?}"),
        }
    }
    sent
}

#[test]
fn no_frame_leaves_its_vlan() {
    let seeds = if testkit::long() { 2000 } else { 60 };
    let mut unicasts = 0;
    for seed in 0..seeds {
        let mut isolation = Isolation::new(seed);
        (0..2 * PORTS).for_each(|_| isolation.configure());
        (0..1000).for_each(|_| isolation.step());
        unicasts += isolation.unicasts;
    }
    assert!(unicasts > 10 * seeds, "{unicasts} frames followed a learned address");
}
