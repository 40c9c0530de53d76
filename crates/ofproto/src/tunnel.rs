//! Tunnel ports: which of them a packet came in by, and what its outer headers become on the way out.
//!
//! A datapath has one port for each kind of tunnel and UDP port, which all tunnels of that kind share. What tells them
//! apart are the outer headers: key, remote and local address. A port may leave each of these to the rules (`flow`).

use crate::ports::{BridgeId, Port};
use flow::{DpPort, Flow, FlowKey, Mask, OfPort, Tunnel, shape, tunnel_flags};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

pub use dpif::TunnelKind;

/// Two bits of the type of service that tell of congestion (RFC 3168).
const ECN_MASK: u8 = 3;
const ECN_CE: u8 = 3;
const ECN_ECT_0: u8 = 2;
/// Time to live of outer headers unless a port says another.
pub const TUNNEL_TTL: u8 = 64;

/// An address of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Endpoint {
    /// That one.
    Address(IpAddr),
    /// Not configured: received by any, sent as routing has it.
    Any,
    /// The rules say.
    Flow,
}

/// A tunnel key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TunnelKey {
    /// Packets have none, or 0.
    None,
    /// That one.
    Value(u64),
    /// The rules say.
    Flow,
}

/// A tunnel port as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelConfig {
    /// How packets are wrapped.
    pub kind: TunnelKind,
    /// The other end.
    pub remote: Endpoint,
    /// This end.
    pub local: Endpoint,
    /// Key of packets that come in.
    pub in_key: TunnelKey,
    /// Key of packets sent.
    pub out_key: TunnelKey,
    /// Type of service of outer headers; `None`: that of the packet inside.
    pub tos: Option<u8>,
    /// Time to live of outer headers; `None`: that of the packet inside.
    pub ttl: Option<u8>,
    /// Outer packets must not be fragmented.
    pub dont_fragment: bool,
    /// Outer headers have a checksum.
    pub csum: bool,
    /// UDP port; 0 for what does not run over UDP.
    pub dst_port: u16,
    /// VXLAN group policies.
    pub gbp: bool,
    /// Packet mark of outer packets, for routing.
    pub egress_pkt_mark: Option<u32>,
}

impl TunnelConfig {
    /// Name of the device that all such tunnels of the machine share, as stock switches name it.
    pub fn device(&self) -> String {
        match self.kind {
            TunnelKind::Vxlan => format!("vxlan_sys_{}", self.dst_port),
            TunnelKind::Geneve => format!("genev_sys_{}", self.dst_port),
            TunnelKind::Gre => "gre_sys".to_string(),
        }
    }

    /// What of it is not as usual, as options of the database, by name.
    pub fn options(&self) -> BTreeMap<&'static str, String> {
        let mut all = BTreeMap::new();
        let mut endpoint = |name, e: Endpoint| match e {
            Endpoint::Address(a) => drop(all.insert(name, a.to_string())),
            Endpoint::Flow => drop(all.insert(name, "flow".to_string())),
            Endpoint::Any => {}
        };
        endpoint("remote_ip", self.remote);
        endpoint("local_ip", self.local);
        let mut key = |name, key: TunnelKey| match key {
            TunnelKey::Value(id) => drop(all.insert(name, id.to_string())),
            TunnelKey::Flow => drop(all.insert(name, "flow".to_string())),
            TunnelKey::None => {}
        };
        if self.in_key == self.out_key {
            key("key", self.in_key);
        } else {
            key("in_key", self.in_key);
            key("out_key", self.out_key);
        }
        match self.tos {
            None => drop(all.insert("tos", "inherit".to_string())),
            Some(0) => {}
            Some(tos) => drop(all.insert("tos", format!("{tos:#x}"))),
        }
        match self.ttl {
            None => drop(all.insert("ttl", "inherit".to_string())),
            Some(TUNNEL_TTL) => {}
            Some(ttl) => drop(all.insert("ttl", ttl.to_string())),
        }
        if self.kind.usual_port().is_some_and(|port| port != self.dst_port) {
            all.insert("dst_port", self.dst_port.to_string());
        }
        let switches = [
            ("csum", self.csum, "true"),
            ("exts", self.gbp, "gbp"),
            ("df_default", !self.dont_fragment, "false"),
        ];
        all.extend(
            switches.into_iter().filter(|(_, is, _)| *is).map(|(name, _, value)| (name, value.to_string())),
        );
        all.extend(self.egress_pkt_mark.map(|mark| ("egress_pkt_mark", mark.to_string())));
        all
    }

    /// Whether a packet that one receives may be the other's, with nothing to tell which.
    pub fn collides(&self, other: &TunnelConfig) -> bool {
        self.kind == other.kind
            && self.dst_port == other.dst_port
            && Place::of(DpPort(0), self) == Place::of(DpPort(0), other)
    }

    /// The outer headers of a packet like `flow` that this port sends; what they depend on is added to the mask. `None`: the
    /// rules should have said where to, and did not.
    pub fn wrap(&self, flow: &Flow, wc: &mut Mask) -> Option<Tunnel> {
        let set = flow.tunnel();
        let mut t =
            Tunnel { ttl: self.ttl.unwrap_or(TUNNEL_TTL), tos: self.tos.unwrap_or(0), ..Tunnel::default() };
        match self.remote {
            Endpoint::Address(IpAddr::V4(a)) => t.dst = a.into(),
            Endpoint::Address(IpAddr::V6(a)) => t.ipv6_dst = a.octets(),
            Endpoint::Any | Endpoint::Flow => (t.dst, t.ipv6_dst) = (set.dst, set.ipv6_dst),
        }
        if !t.is_some() {
            return None;
        }
        let is_v4 = t.dst != 0;
        match self.local {
            Endpoint::Address(IpAddr::V4(a)) => t.src = a.into(),
            Endpoint::Address(IpAddr::V6(a)) => t.ipv6_src = a.octets(),
            Endpoint::Any => {}
            Endpoint::Flow if is_v4 => t.src = set.src,
            Endpoint::Flow => t.ipv6_src = set.ipv6_src,
        }
        if is_v4 {
            t.ipv6_dst = [0; 16];
        }
        match self.out_key {
            TunnelKey::None => {}
            TunnelKey::Value(id) => (t.id, t.flags) = (id, tunnel_flags::KEY),
            TunnelKey::Flow => (t.id, t.flags) = (set.id, tunnel_flags::KEY),
        }
        t.flags |= set.flags & tunnel_flags::OAM;
        t.flags |= if self.dont_fragment { tunnel_flags::DF } else { 0 };
        t.flags |= if self.csum { tunnel_flags::CSUM } else { 0 };
        if flow.is_ip() {
            if self.ttl.is_none() {
                wc.0.nw_ttl = u8::MAX;
                t.ttl = flow.nw_ttl;
            }
            if self.tos.is_none() {
                wc.0.nw_tos = u8::MAX;
                t.tos = flow.nw_tos & !ECN_MASK;
            }
            // RFC 3168 §9.1.1, the full-functionality option: congestion met inside is not told outside.
            wc.0.nw_tos |= ECN_MASK;
            t.tos |= match flow.nw_tos & ECN_MASK {
                ECN_CE => ECN_ECT_0,
                ecn => ecn,
            };
        }
        t.tp_dst = self.dst_port;
        if self.gbp {
            (t.gbp_id, t.gbp_flags) = (set.gbp_id, set.gbp_flags);
        }
        Some(t)
    }
}

/// What packets of a tunnel port have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Place {
    dp_port: DpPort,
    /// `None`: any, as the rules tell them apart.
    key: Option<u64>,
    /// `None`: any.
    remote: Option<IpAddr>,
    local: Endpoint,
}

impl Place {
    fn of(dp_port: DpPort, config: &TunnelConfig) -> Place {
        Place {
            dp_port,
            key: match config.in_key {
                TunnelKey::None => Some(0),
                TunnelKey::Value(id) => Some(id),
                TunnelKey::Flow => None,
            },
            remote: match config.remote {
                Endpoint::Address(a) => Some(a),
                Endpoint::Any | Endpoint::Flow => None,
            },
            local: config.local,
        }
    }
}

/// The tunnel ports of all bridges of a datapath.
#[derive(Clone, Debug, Default)]
pub struct TunnelPorts(Arc<BTreeMap<Place, (BridgeId, OfPort)>>);

impl TunnelPorts {
    /// Replaces those of a bridge.
    pub fn set<'a>(&mut self, bridge: BridgeId, ports: impl Iterator<Item = &'a Arc<Port>>) {
        let mut places = BTreeMap::clone(&self.0);
        places.retain(|_, (owner, _)| *owner != bridge);
        for port in ports {
            if let (Some(config), Some(dp_port)) = (&port.tunnel, port.dp_port) {
                places.entry(Place::of(dp_port, config)).or_insert((bridge, port.of_port));
            }
        }
        // Most bridges have none: the map that all share stays.
        if places != *self.0 {
            self.0 = Arc::new(places);
        }
    }

    /// The port that a packet with outer headers came in by: one for its key before one for any, then one for its sender, then
    /// one for the address that it was sent to.
    pub(crate) fn receiver(&self, key: &FlowKey) -> Option<(BridgeId, OfPort)> {
        if self.0.is_empty() || !key.has(shape::TUNNEL) {
            return None;
        }
        let t = key.tunnel;
        let (remote, local) = if t.dst != 0 {
            (IpAddr::V4(t.src.into()), IpAddr::V4(t.dst.into()))
        } else {
            (IpAddr::V6(Ipv6Addr::from(t.ipv6_src)), IpAddr::V6(Ipv6Addr::from(t.ipv6_dst)))
        };
        for id in [Some(t.id), None] {
            for remote in [Some(remote), None] {
                for local in [Endpoint::Address(local), Endpoint::Any, Endpoint::Flow] {
                    let place = Place { dp_port: key.in_port(), key: id, remote, local };
                    if let Some(found) = self.0.get(&place) {
                        return Some(*found);
                    }
                }
            }
        }
        None
    }
}

/// The mask of what is looked at of any packet that came out of a tunnel: what tells tunnel ports apart, and how the packet was
/// treated on its way. Time to live and UDP ports are not among it.
pub(crate) fn look_at(flow: &Flow, wc: &mut Mask) {
    let t = flow.tunnel();
    if !t.is_some() {
        return;
    }
    let m = &mut wc.0;
    m.tun_id = u64::MAX;
    if t.dst != 0 {
        (m.tun_src, m.tun_dst) = (u32::MAX, u32::MAX);
    } else {
        (m.tun_ipv6_src, m.tun_ipv6_dst) = ([0xff; 16], [0xff; 16]);
    }
    m.tun_flags = tunnel_flags::DF | tunnel_flags::CSUM | tunnel_flags::KEY;
    m.tun_tos = u8::MAX;
}

#[cfg(test)]
mod tests;
