//! Tunnels in user space: routes, neighbours and local addresses, as translations use them.
//!
//! A translation asks [`RouteCache`] for the next hop of a destination. The cache keeps what translations asked for, so
//! that a change of routes affects only flows whose next hop changed. Without a neighbour's address, a translation
//! drops, and its packets request an ARP or neighbour solicitation ([`Solicit`]), at most one a second for a neighbour.
//! The packet of such a miss waits for the answer (`held`).

pub(crate) mod held;

use crate::changes::Change;
use crate::ids::BridgeId;
use crate::ports::Port;
use crate::view::View;
use flow::{MacAddr, OfPort};
use held::HeldPackets;
use packet::headers as h;
use routing::{Hop, Listeners, Neighbours, NoRoute, Query, Routes};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use sync::Mutex;

/// Maximum routes that translations remember. Beyond it, they forget all, and all flows are checked.
const ROUTES_ASKED_MAX: usize = 65_536;
/// Maximum neighbours that are asked for at a time.
const SOLICITED_MAX: usize = 4096;

/// State of tunnels in user space.
#[derive(Clone)]
pub struct NativeTunnels {
    /// Routes.
    pub routes: Routes,
    /// Local addresses and tunnel ports.
    pub listeners: Listeners,
    /// Neighbours by bridge.
    pub neighbours: Arc<Mutex<Neighbours>>,
}

/// The device of a route: a port of a bridge.
#[derive(Clone, Debug)]
pub struct OutDevice {
    /// Its bridge.
    pub bridge: BridgeId,
    /// The name of that.
    pub bridge_name: Arc<str>,
    /// The port.
    pub port: Arc<Port>,
    /// Its Ethernet address.
    pub mac: MacAddr,
}

/// A request for a neighbour's Ethernet address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Solicit {
    /// The bridge of the device.
    pub bridge: BridgeId,
    /// The device.
    pub port: OfPort,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Source address.
    pub source: IpAddr,
    /// The neighbour.
    pub target: IpAddr,
}

impl View {
    /// The port of a device of that name: a bridge's own port, or else the first port of that name.
    pub(crate) fn device(&self, name: &str) -> Option<OutDevice> {
        let own = self.bridge_by_name(name).and_then(|b| Some((b, b.ports.port(OfPort::LOCAL)?)));
        let named = || self.bridges.values().find_map(|b| Some((b, b.ports.by_name(name)?)));
        let (bridge, port) = own.or_else(named)?;
        // Follows the device; that of the port follows the configuration.
        let listening = self.native.as_ref().and_then(|native| native.listeners.device(name));
        Some(OutDevice {
            bridge: bridge.id,
            bridge_name: bridge.name.clone(),
            port: port.clone(),
            mac: listening.map_or(port.mac, |device| device.mac),
        })
    }
}

/// Next hops that translations asked for.
#[derive(Default)]
pub(crate) struct RouteCache(HashMap<Query, Result<Hop, NoRoute>>);

impl RouteCache {
    /// The next hop. `false` in the second place: too many were known, so all flows are to be checked.
    pub(crate) fn ask(&mut self, query: &Query, routes: &Routes) -> (Result<Hop, NoRoute>, bool) {
        if let Some(hop) = self.0.get(query) {
            return (hop.clone(), true);
        }
        let has_room = self.0.len() < ROUTES_ASKED_MAX;
        if !has_room {
            self.0.clear();
        }
        let hop = routes.lookup(query);
        self.0.insert(*query, hop.clone());
        (hop, has_room)
    }

    /// Follows changed routes; returns the changes of next hops.
    pub(crate) fn follow(&mut self, routes: &Routes, changes: &[routing::Change]) -> Vec<Change> {
        let mut changed = Vec::new();
        for (query, hop) in &mut self.0 {
            if !changes.iter().any(|change| change.may_affect(query)) {
                continue;
            }
            let now = routes.lookup(query);
            if now != *hop {
                *hop = now;
                changed.push(Change::Route(*query));
            }
        }
        changed
    }
}

/// Neighbours asked for, and requests to be sent.
#[derive(Default)]
pub(crate) struct Solicited {
    asked_ms: HashMap<(BridgeId, IpAddr), u64>,
    waiting: Vec<Solicit>,
    /// Packets that wait for answers.
    pub(crate) held: HeldPackets,
}

impl Solicited {
    /// Requests a neighbour, unless that was done less than `every_ms` ago, or too many others were requested.
    pub(crate) fn request(&mut self, solicit: &Solicit, every_ms: u64, now_ms: u64) {
        if self.asked_ms.len() >= SOLICITED_MAX {
            self.asked_ms.retain(|_, asked_ms| now_ms < *asked_ms + every_ms);
        }
        let key = (solicit.bridge, solicit.target);
        let is_due = self.asked_ms.get(&key).is_none_or(|asked_ms| now_ms >= *asked_ms + every_ms);
        if is_due && self.asked_ms.len() < SOLICITED_MAX {
            self.asked_ms.insert(key, now_ms);
            self.waiting.push(solicit.clone());
        }
    }

    /// The requests to be sent.
    pub(crate) fn take(&mut self) -> Vec<Solicit> {
        std::mem::take(&mut self.waiting)
    }

    /// A neighbour answered, or its entry ended: the next request goes out at once, and packets wait no longer.
    pub(crate) fn answered(&mut self, bridge: BridgeId, target: IpAddr) {
        self.asked_ms.remove(&(bridge, target));
        self.held.answer(bridge, target);
    }
}

impl Solicit {
    /// The frame: an ARP request (RFC 826) or a neighbour solicitation (RFC 4861 §4.3).
    pub fn frame(&self) -> Vec<u8> {
        match (self.source, self.target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let mut out = [[0xff; 6], self.mac.0].concat();
                out.extend(h::ETH_TYPE_ARP.to_be_bytes());
                out.extend([0, 1, 8, 0, 6, 4, 0, 1]);
                out.extend(self.mac.0);
                out.extend(source.octets());
                out.extend([0; 6]);
                out.extend(target.octets());
                out
            }
            (source, target) => {
                let six = |ip: IpAddr| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                self.solicitation(six(source), six(target))
            }
        }
    }

    fn solicitation(&self, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
        const BODY_BYTES: u16 = 32;
        let [.., x, y, z] = target.octets();
        let group = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, x, y, z]);
        let mut body = vec![h::ND_NEIGHBOR_SOLICIT, 0, 0, 0, 0, 0, 0, 0];
        body.extend(target.octets());
        body.extend([h::ND_OPT_SOURCE_LINKADDR, 1]);
        body.extend(self.mac.0);
        let (src, dst) = (source.octets(), group.octets());
        let pseudo = packet::checksum::pseudo(&src, &dst, h::IPPROTO_ICMPV6, body.len());
        let sum = !packet::checksum::fold(packet::checksum::sum(&body, pseudo));
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut out = vec![0x33, 0x33, 0xff, x, y, z];
        out.extend(self.mac.0);
        out.extend(h::ETH_TYPE_IPV6.to_be_bytes());
        out.extend([0x60, 0, 0, 0]);
        out.extend(BODY_BYTES.to_be_bytes());
        out.extend([h::IPPROTO_ICMPV6, u8::MAX]);
        out.extend(src);
        out.extend(dst);
        out.extend(body);
        out
    }
}
