//! VLAN isolation of `NORMAL`: while settings change at random, no frame leaves by a port outside of its VLAN.
//!
//! The checker ([`Settings`]) knows IEEE 802.1Q and the columns of the database. It shares no code with translation.

use crate::rng::Rng;
use crate::rules;
use crate::world::fuzz_ports;
use dpif::actions::{Output, PopVlan, PushVlan};
use dpif::{DpAction, FlowStats};
use flow::text::{NoPortNames, parse_exact_flow};
use flow::{DpPort, MacAddr, VlanTag};
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
    /// Customers' VLANs of a tunnel.
    customers: Option<BTreeSet<u16>>,
    protected: bool,
}

/// VLAN numbers of a frame's tags, outermost first.
type Tags = Vec<u16>;

impl Settings {
    fn random(rng: &mut Rng) -> Settings {
        let modes = [
            VlanMode::Access,
            VlanMode::Trunk,
            VlanMode::NativeTagged,
            VlanMode::NativeUntagged,
            VlanMode::Dot1qTunnel,
        ];
        let mode = *rng.pick(&modes);
        let mut some = || {
            let some = VLANS.into_iter().filter(|_| rng.one_in(2)).collect::<BTreeSet<_>>();
            (!some.is_empty()).then_some(some)
        };
        let (trunks, customers) = (some(), some());
        Settings {
            mode,
            tag: if mode == VlanMode::Trunk { 0 } else { *rng.pick(&VLANS) },
            trunks: trunks.filter(|_| mode != VlanMode::Access),
            customers,
            protected: rng.one_in(4),
        }
    }

    fn is_native(&self) -> bool {
        matches!(self.mode, VlanMode::NativeTagged | VlanMode::NativeUntagged)
    }

    fn is_for_customer(&self, vlan: u16) -> bool {
        self.customers.as_ref().is_none_or(|customers| customers.contains(&vlan))
    }

    /// Whether frames of the VLAN may leave by the port.
    fn carries(&self, vlan: u16) -> bool {
        let has_native = self.is_native() && self.tag != 0;
        match self.mode {
            VlanMode::Access | VlanMode::Dot1qTunnel => vlan == self.tag,
            _ if has_native && vlan == self.tag => true,
            _ if has_native && vlan == 0 => false,
            _ => self.trunks.as_ref().is_none_or(|trunks| trunks.contains(&vlan)),
        }
    }

    /// Whether frames of these tags within the bridge are flooded to the port.
    fn is_flooded(&self, tags: &Tags) -> bool {
        let [outer, inner] = [0, 1].map(|n| tags.get(n).copied().unwrap_or(0));
        let holds_inner = match self.mode {
            VlanMode::Access => inner == 0,
            VlanMode::Dot1qTunnel => self.is_for_customer(inner),
            _ => true,
        };
        self.carries(outer) && holds_inner
    }

    /// The tags within the bridge of an arriving frame with those tags; `None`: the port refuses it.
    fn admits(&self, tags: &Tags) -> Option<Tags> {
        let vid = tags.first().copied().unwrap_or(0);
        let tagged = |vlan| if vlan == 0 { Vec::new() } else { vec![vlan] };
        match (self.mode, vid) {
            // Two tags are kept.
            (VlanMode::Dot1qTunnel, _) if self.is_for_customer(vid) => {
                Some([self.tag].into_iter().chain(tags.first().copied()).collect())
            }
            (VlanMode::Dot1qTunnel, _) => None,
            (VlanMode::Access, 0) => Some(tagged(self.tag)),
            (VlanMode::Access, _) => None,
            (_, 0) if self.is_native() => Some(tagged(self.tag)),
            _ => self.carries(vid).then(|| tags.clone()),
        }
    }

    /// The tags on the wire of a frame with those within the bridge.
    fn sent(&self, tags: &Tags) -> Tags {
        let vlan = tags.first().copied().unwrap_or(0);
        let on_wire = match self.mode {
            VlanMode::Access => &[],
            VlanMode::NativeUntagged if vlan == self.tag => tags.get(1..).unwrap_or_default(),
            VlanMode::Dot1qTunnel => tags.get(1..).unwrap_or_default(),
            _ => &tags[..],
        };
        // A tag of VLAN 0 without a priority is none.
        on_wire.iter().copied().filter(|vlan| *vlan != 0).collect()
    }

    fn bundle(&self, port: u32) -> Bundle {
        let set =
            |vlans: &Option<BTreeSet<u16>>| vlans.as_ref().map(|vlans| VlanSet::new(vlans.iter().copied()));
        Bundle {
            id: BundleId(port),
            name: format!("p{port}"),
            members: vec![flow::OfPort(port)],
            vlan_mode: self.mode,
            tag: self.tag,
            trunks: set(&self.trunks),
            cvlans: set(&self.customers),
            qinq_tpid: 0x88a8,
            mcast_flood: false,
            mcast_flood_reports: false,
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
        let mut tags = vec![*self.rng.pick(&VLANS)];
        if tags[0] != 0 && self.rng.one_in(4) {
            tags.push(*self.rng.pick(&VLANS[1..]));
        }
        tags.retain(|vid| *vid != 0);
        let (src, dst) = (self.rng.range(1, HOSTS), self.rng.below(HOSTS + 1));
        let Some(input) = self.ports.get(&from).cloned() else { return };
        let to = if dst == 0 { MacAddr::BROADCAST } else { host_address(dst) };
        let text = format!("in_port={from},dl_src={},dl_dst={to},dl_type=0x1234", host_address(src));
        let mut flow = parse_exact_flow(&text, &NoPortNames).expect("a flow");
        for (tag, vid) in flow.vlans.iter_mut().zip(&tags) {
            *tag = VlanTag { tpid: 0x8100, tci: vid | VlanTag::PRESENT };
        }
        let view = self.backer.view();
        let request =
            Request { view: &view, bridge: self.bridge, flow: &flow, start: Start::Tables, trace: false };
        let t = translate(&request, &mut self.backer.xlate_host(true, self.now_ms));
        let sent = outputs(&t.actions, &tags);
        let what = format!("{text} {tags:?} by {input:?}: {:?} of {:?}", t.actions, self.ports);
        let (mut allowed, mut flooded) = (BTreeMap::new(), 0);
        if let Some(within) = input.admits(&tags) {
            let vlan = within.first().copied().unwrap_or(0);
            for (port, s) in &self.ports {
                if *port != from && s.carries(vlan) && !(s.protected && input.protected) {
                    allowed.insert(*port, s.sent(&within));
                    flooded += usize::from(s.is_flooded(&within));
                }
            }
        }
        assert!(sent.iter().all(|(port, tags)| allowed.get(port) == Some(tags)), "{what}");
        assert!(dst != 0 || sent.len() == flooded, "not flooded: {what}");
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

/// The ports that a frame with those tags leaves by, and its tags there.
fn outputs(actions: &[DpAction], tags: &Tags) -> Vec<(u32, Tags)> {
    let mut tags = tags.clone();
    let mut sent = Vec::new();
    for action in actions {
        match action {
            DpAction::PushVlan(PushVlan { tci, .. }) => tags.insert(0, tci & 0xfff),
            DpAction::PopVlan(PopVlan) => {
                assert!(!tags.is_empty(), "{actions:?}");
                tags.remove(0);
            }
            DpAction::Output(Output(DpPort(port))) => sent.push((*port, tags.clone())),
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
