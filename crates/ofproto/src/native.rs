//! Tunnels in user space: routes, neighbours and local addresses, as translations use them.
//!
//! A translation asks [`RouteCache`] for the next hop of a destination. The cache keeps what translations asked for, so
//! that a change of routes affects only flows whose next hop changed. Without a neighbour's address, a translation
//! drops, and its packets request an ARP or neighbour solicitation ([`Solicit`]).

use crate::changes::Change;
use crate::ids::BridgeId;
use flow::{MacAddr, OfPort};
use packet::headers as h;
use routing::{Hop, Listeners, Neighbours, NoRoute, Query, Routes};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use sync::Mutex;

/// Maximum routes that translations remember. Beyond it, they forget all, and all flows are checked.
const ROUTES_ASKED_MAX: usize = 65_536;

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
