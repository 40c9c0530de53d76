//! The tunnel port of a tunnelled packet.
//!
//! A datapath has one port for each kind of tunnel and UDP port, shared by all tunnels of that kind. Outer headers
//! distinguish them: key, remote and local address.

use crate::ids::BridgeId;
use crate::ports::Port;
use crate::tunnel::{Endpoint, PacketTypes, TunnelMatch};
use flow::{FlowKey, OfPort, shape};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// The tunnel ports of all bridges of a datapath.
#[derive(Clone, Debug, Default)]
pub struct TunnelPorts(Arc<BTreeMap<TunnelMatch, (BridgeId, OfPort)>>);

impl TunnelPorts {
    /// Whether both are one value.
    pub fn is_same(&self, other: &TunnelPorts) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces those of a bridge.
    pub fn set<'a>(&mut self, bridge: BridgeId, ports: impl Iterator<Item = &'a Arc<Port>>) {
        let mut matches = BTreeMap::clone(&self.0);
        matches.retain(|_, (owner, _)| *owner != bridge);
        for port in ports {
            if let (Some(config), Some(dp_port)) = (&port.tunnel, port.dp_port) {
                matches.entry(TunnelMatch::of(dp_port, config)).or_insert((bridge, port.of_port));
            }
        }
        // Most bridges have none: keep the shared map.
        if matches != *self.0 {
            self.0 = Arc::new(matches);
        }
    }

    /// The tunnel port of a packet with outer headers: an exact key before any key, then an exact remote address,
    /// then an exact local one, then one of its packet type alone.
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
        let types = PacketTypes::receiving(if key.has(shape::ARP) { key.arp.packet_type } else { 0 });
        for id in [Some(t.id), None] {
            for remote in [Some(remote), None] {
                for local in [Endpoint::Address(local), Endpoint::Any, Endpoint::Flow] {
                    for packet_types in types {
                        let wanted =
                            TunnelMatch { dp_port: key.in_port(), key: id, remote, local, packet_types };
                        if let Some(found) = self.0.get(&wanted) {
                            return Some(*found);
                        }
                    }
                }
            }
        }
        None
    }
}
