//! Neighbours in packets: ARP replies, gratuitous ARP, and neighbour advertisements with a link-layer address.

use flow::{Flow, MacAddr, Mask};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const ETH_TYPE_IPV6: u16 = 0x86dd;
const IP_PROTO_ICMPV6: u8 = 58;
const ARP_REPLY: u8 = 2;
/// ICMPv6 type (RFC 4861 §4.4).
const NEIGHBOUR_ADVERTISEMENT: u16 = 136;

/// A neighbour that a packet announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Snooped {
    /// Its IP address.
    pub ip: IpAddr,
    /// Its Ethernet address.
    pub mac: MacAddr,
}

/// The neighbour that a packet announces. Adds to `mask` the bits that determine it, as OVS does; the EtherType is always
/// examined, and not added.
pub fn snoop(flow: &Flow, mask: &mut Mask) -> Option<Snooped> {
    match flow.is_arp() {
        true => snoop_arp(flow, mask),
        false => snoop_advertisement(flow, mask),
    }
}

fn snoop_arp(flow: &Flow, mask: &mut Mask) -> Option<Snooped> {
    (mask.0.nw_src, mask.0.nw_dst) = (u32::MAX, u32::MAX);
    if flow.nw_src != flow.nw_dst {
        mask.0.nw_proto = u8::MAX;
        if flow.nw_proto != ARP_REPLY {
            return None;
        }
    }
    mask.0.arp_sha = [u8::MAX; 6];
    let mac = MacAddr(flow.arp_sha);
    (!mac.is_zero()).then(|| Snooped { ip: Ipv4Addr::from(flow.nw_src).into(), mac })
}

fn snoop_advertisement(flow: &Flow, mask: &mut Mask) -> Option<Snooped> {
    if flow.dl_type != ETH_TYPE_IPV6 {
        return None;
    }
    mask.0.nw_proto = u8::MAX;
    if flow.nw_proto != IP_PROTO_ICMPV6 {
        return None;
    }
    mask.0.tp_dst = u16::MAX;
    if flow.tp_dst != 0 {
        return None;
    }
    mask.0.tp_src = u16::MAX;
    if flow.tp_src != NEIGHBOUR_ADVERTISEMENT {
        return None;
    }
    mask.0.arp_tha = [u8::MAX; 6];
    let mac = MacAddr(flow.arp_tha);
    if mac.is_zero() {
        return None;
    }
    (mask.0.ipv6_src, mask.0.ipv6_dst, mask.0.nd_target) = ([u8::MAX; 16], [u8::MAX; 16], [u8::MAX; 16]);
    Some(Snooped { ip: IpAddr::from(Ipv6Addr::from(flow.nd_target)).to_canonical(), mac })
}
