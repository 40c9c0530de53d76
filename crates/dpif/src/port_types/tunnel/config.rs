//! [`TunnelConfig`]: a tunnel port as configured. A port may leave key and addresses to the rules (`flow`).

use super::kinds::{KindOptions, PacketTypes};
use super::{TunnelKind, TunnelPort};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Default TTL of outer headers.
pub const TUNNEL_TTL: u8 = 64;

/// An address of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Endpoint {
    /// This address.
    Address(IpAddr),
    /// Not configured: receives from any, routing decides on output.
    Any,
    /// Set by rules (`flow`).
    Flow,
}

/// A tunnel key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TunnelKey {
    /// No key, or 0.
    None,
    /// This key.
    Value(u64),
    /// Set by rules (`flow`).
    Flow,
}

/// A tunnel port as configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelConfig {
    /// Encapsulation.
    pub kind: TunnelKind,
    /// Remote address.
    pub remote: Endpoint,
    /// Local address.
    pub local: Endpoint,
    /// Key of received packets.
    pub in_key: TunnelKey,
    /// Key of sent packets.
    pub out_key: TunnelKey,
    /// Type of service of outer headers; `None`: copied from the inner packet.
    pub tos: Option<u8>,
    /// TTL of outer headers; `None`: copied from the inner packet.
    pub ttl: Option<u8>,
    /// Don't-fragment bit of outer packets.
    pub dont_fragment: bool,
    /// Outer headers have a checksum.
    pub csum: bool,
    /// Packets have sequence numbers (GRE, on the userspace datapath).
    pub seq: bool,
    /// UDP port; 0 for tunnels without UDP.
    pub dst_port: u16,
    /// VXLAN group policy.
    pub gbp: bool,
    /// Packet mark of outer packets, for routing.
    pub egress_pkt_mark: Option<u32>,
    /// Options that only some kinds have.
    pub of_kind: KindOptions,
}

impl TunnelConfig {
    /// Name of the device shared by all such tunnels of the machine, as in stock switches.
    pub fn device(&self) -> String {
        match self.kind {
            TunnelKind::Vxlan => format!("vxlan_sys_{}", self.dst_port),
            TunnelKind::Geneve => format!("genev_sys_{}", self.dst_port),
            TunnelKind::Gre => "gre_sys".to_string(),
            TunnelKind::Ip6gre => "ip6gre_sys".to_string(),
            TunnelKind::Gtpu => format!("gtpu_sys_{}", self.dst_port),
            TunnelKind::Srv6 => "srv6_sys".to_string(),
            TunnelKind::Erspan => "erspan_sys".to_string(),
            TunnelKind::Ip6erspan => "ip6erspan_sys".to_string(),
        }
    }

    /// Its options that concern the datapath.
    pub fn port(&self) -> TunnelPort {
        let l3 = self.of_kind.gpe || self.of_kind.packet_types != PacketTypes::Frames;
        TunnelPort { kind: self.kind, dst_port: self.dst_port, gbp: self.gbp, l3 }
    }

    /// Its options that differ from the defaults, as in the database, by name; as in OVS without `exts`.
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
            ("seq", self.seq, "true"),
            ("df_default", !self.dont_fragment, "false"),
        ];
        all.extend(
            switches.into_iter().filter(|(_, is, _)| *is).map(|(name, _, value)| (name, value.to_string())),
        );
        self.of_kind.add_to(self.kind, &mut all);
        all.extend(self.egress_pkt_mark.map(|mark| ("egress_pkt_mark", mark.to_string())));
        all
    }
}
