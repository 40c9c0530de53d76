//! The backer as the host of translations, and of replayed effects.

use super::Backer;
use super::count;
use super::learn::{has_room, is_same};
use crate::cache::{EffectHost, LearnedFlow};
use crate::ids::{BridgeId, BundleId};
use crate::mac_table::MacTable;
use crate::mcast::Told;
use crate::native::{NativeTunnels, Solicit};
use crate::recirc::FrozenState;
use crate::view::{BridgeView, View};
use crate::xlate::{Learning, Snooped, XlateHost};
use dpif::Capabilities;
use flow::extract::{Layout, MAX_VLANS, Metadata, extract};
use flow::{FlowKey, MacAddr, OfPort, RecircId};
use l2proto::membership::{self, Fault};
use packet::headers::{ETH_TYPE_IP, ETH_TYPE_IPV6, IPV6_HEADER_BYTES};
use routing::{Hop, NoRoute, Query, RETRANS_DEFAULT_MS};
use std::net::IpAddr;
use std::sync::Arc;
use sync::{Mutex, lock};

impl Backer {
    /// The host of a translation; with `effects` it adds learned rules.
    pub fn xlate_host(&self, effects: bool, now_ms: u64) -> BackerHost<'_> {
        count(&self.revisions.translations);
        BackerHost { backer: self, effects, now_ms, packet: None }
    }

    /// Bridge and OpenFlow input port of a packet with this key. A recirculated packet without a known input port has
    /// those of its frozen state.
    pub fn receiver<'v>(&self, view: &'v View, key: &FlowKey) -> Option<(&'v Arc<BridgeView>, OfPort)> {
        if let Some(found) = view.receiver(key) {
            return Some(found);
        }
        let state = self.recirc_state(RecircId(key.base.recirc_id))?;
        Some((view.bridge(state.bridge)?, state.packet.ingress))
    }

    /// The host of replayed effects.
    pub fn effect_host(&self) -> impl EffectHost + '_ {
        BackerEffects { backer: self }
    }
}

struct BackerEffects<'a> {
    backer: &'a Backer,
}

impl EffectHost for BackerEffects<'_> {
    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow, used_ms: u64) {
        self.backer.learn_rule(bridge, learned, used_ms);
    }

    fn learned(&mut self, macs: &Arc<Mutex<MacTable>>, mac: MacAddr, bundle: BundleId, vlan: u16) {
        self.backer.macs_changed();
        let Some(observer) = self.backer.observer.filter(|observer| observer.follows_learning()) else {
            return;
        };
        let view = self.backer.view();
        let bridge = view.bridges.values().find(|bridge| Arc::ptr_eq(&bridge.macs, macs));
        if let Some(bridge) = bridge
            && let Some(port) = bridge.ports.bundles.get(&bundle)
        {
            observer.learned(&bridge.name, mac, &port.name, vlan);
        }
    }

    fn neighbour_changed(&mut self, bridge: BridgeId, ip: IpAddr) {
        self.backer.neighbour_changed(bridge, Some(ip));
    }

    fn solicit(&mut self, solicit: &Solicit, used_ms: u64) {
        let view = self.backer.view();
        let every_ms =
            view.native.as_ref().map_or(RETRANS_DEFAULT_MS, |native| lock(&native.neighbours).retrans_ms());
        lock(&self.backer.solicited).request(solicit, every_ms, used_ms);
    }
}

/// The backer as the host of a translation.
pub struct BackerHost<'a> {
    backer: &'a Backer,
    effects: bool,
    now_ms: u64,
    /// The bytes of the packet, if one is translated.
    packet: Option<&'a [u8]>,
}

impl<'a> BackerHost<'a> {
    /// Has translations read messages of this packet, the one that is translated.
    pub fn with_packet(self, packet: &'a [u8]) -> BackerHost<'a> {
        BackerHost { packet: Some(packet), ..self }
    }
}

/// The payload of an IP packet in a frame, without the bytes behind the packet's length. Fragments have none.
fn ip_payload(frame: &[u8]) -> Option<&[u8]> {
    let mut key = FlowKey::default();
    let layout = extract(frame, &Metadata::default(), MAX_VLANS, &mut key);
    let (l3, l4) = (usize::from(layout.l3), usize::from(layout.l4));
    if layout.l4 == Layout::NONE || key.base.nw_frag != 0 {
        return None;
    }
    let word = |at: usize| frame.get(at..)?.first_chunk().map(|b| usize::from(u16::from_be_bytes(*b)));
    let end = match key.base.dl_type {
        ETH_TYPE_IP => l3 + word(l3 + 2)?,
        ETH_TYPE_IPV6 => l3 + IPV6_HEADER_BYTES + word(l3 + 4)?,
        _ => return None,
    };
    frame.get(l4..end.min(frame.len()))
}

impl XlateHost for BackerHost<'_> {
    fn route(&mut self, _native: &NativeTunnels, query: &Query) -> Result<Hop, NoRoute> {
        let mut asked = lock(&self.backer.routes_asked);
        let view = self.backer.view();
        let native = view.native.as_ref().ok_or(NoRoute::Missing)?;
        let (hop, had_room) = asked.ask(query, &native.routes);
        if !had_room {
            self.backer.bump_epoch();
        }
        hop
    }

    fn neighbour_seen(&mut self, native: &NativeTunnels, bridge: BridgeId, ip: IpAddr, mac: MacAddr) {
        let view = self.backer.view();
        let Some(bridge) = view.bridge(bridge) else { return };
        if lock(&native.neighbours).learn(self.now_ms, &bridge.name, ip, mac) {
            self.backer.neighbour_changed(bridge.id, Some(ip));
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn capabilities(&self) -> Capabilities {
        self.backer.features()
    }

    fn recirc_hold(&mut self, state: FrozenState) -> Option<RecircId> {
        lock(&self.backer.recirc).hold_state(state)
    }

    fn recirc_state(&mut self, id: RecircId) -> Option<Arc<FrozenState>> {
        self.backer.recirc_state(id)
    }

    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow) -> Learning {
        if self.effects {
            return match self.backer.learn_rule(bridge, learned, self.now_ms) {
                true => Learning::Done,
                false => Learning::Refused,
            };
        }
        let view = self.backer.view();
        let Some(b) = view.bridge(bridge) else { return Learning::Refused };
        let matching = b.tables.pack(learned.table, &learned.matching);
        let there = b.tables.find_exactly(learned.table, &matching, learned.priority.into());
        match has_room(&b.tables, &matching, learned) {
            true if there.is_some_and(|rule| is_same(rule, learned)) => Learning::Done,
            true => Learning::Possible,
            false => Learning::Refused,
        }
    }

    fn snoop(&mut self, snooped: &Snooped<'_>) -> Option<String> {
        let payload = ip_payload(self.packet.filter(|_| self.effects)?)?;
        let Snooped { table, bridge, vlan, bundle, port, src, dst } = *snooped;
        let place = format!("port {port} in VLAN {vlan}");
        let message = match membership::parse(src, dst, payload) {
            Ok(message) => message,
            Err(Fault::Checksum) => {
                let protocol = if dst.is_ipv4() { "IGMP" } else { "MLD" };
                return Some(format!("multicast snooping received bad {protocol} checksum on {place}"));
            }
            Err(Fault::Short | Fault::Type) => return None,
        };
        let mut changes = Vec::new();
        let from_router = !src.is_unspecified();
        let told = lock(table).apply(&message, (vlan, bundle), from_router, self.now_ms, &mut changes);
        self.backer.mcast_changed(bridge, &changes);
        Some(match told? {
            Told::Learned(group) => {
                format!("multicast snooping learned that {} is on {place}", group.to_canonical())
            }
            Told::Left(group) => format!("multicast snooping leaving {} is on {place}", group.to_canonical()),
            Told::Router if src.is_ipv4() => format!("multicast snooping query from {src} is on {place}"),
            Told::Router => format!("multicast snooping query on {place}"),
            Told::Processed(count) => format!("multicast snooping processed {count} addresses on {place}"),
        })
    }

    fn has_effects(&self) -> bool {
        self.effects
    }
}
