//! ARP replies (RFC 826) for a device's own address.

use std::net::Ipv4Addr;

use packet::headers::{
    ARP_ETH_BYTES, ETH_HEADER_BYTES, ETH_TYPE_ARP, ETH_TYPE_IP, ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD,
    VLAN_TAG_BYTES, array, be16,
};

const REQUEST: u16 = 1;
const REPLY: u16 = 2;
const HARDWARE_ETHERNET: u16 = 1;
const REPLY_BYTES: usize = ETH_HEADER_BYTES + ARP_ETH_BYTES;

/// The reply of the station with address `mac` and `ip` to `frame`, if it is an ARP request for that address.
/// Skips VLAN tags of the request; the reply has none.
pub(super) fn answer(frame: &[u8], mac: [u8; 6], ip: Ipv4Addr) -> Option<[u8; REPLY_BYTES]> {
    let mut at = ETH_HEADER_BYTES - 2;
    let mut eth_type = be16(frame, at)?;
    while eth_type == ETH_TYPE_VLAN || eth_type == ETH_TYPE_VLAN_8021AD {
        at += VLAN_TAG_BYTES;
        eth_type = be16(frame, at)?;
    }
    let arp: [u8; ARP_ETH_BYTES] = array(frame, at + 2)?;
    let is_request = eth_type == ETH_TYPE_ARP
        && be16(&arp, 0)? == HARDWARE_ETHERNET
        && be16(&arp, 2)? == ETH_TYPE_IP
        && (arp[4], arp[5]) == (6, 4)
        && be16(&arp, 6)? == REQUEST
        && arp[24..28] == ip.octets();
    if !is_request {
        return None;
    }
    let mut reply = [0; REPLY_BYTES];
    reply[..6].copy_from_slice(&frame[6..12]);
    reply[6..12].copy_from_slice(&mac);
    reply[12..14].copy_from_slice(&ETH_TYPE_ARP.to_be_bytes());
    reply[14..20].copy_from_slice(&arp[..6]);
    reply[20..22].copy_from_slice(&REPLY.to_be_bytes());
    reply[22..28].copy_from_slice(&mac);
    reply[28..32].copy_from_slice(&ip.octets());
    reply[32..38].copy_from_slice(&frame[6..12]);
    reply[38..42].copy_from_slice(&arp[14..18]);
    Some(reply)
}
