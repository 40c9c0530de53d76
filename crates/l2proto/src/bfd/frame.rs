//! The frame around a control packet (RFC 5881 §4): Ethernet, IPv4, UDP, and back to the payload.

use super::message::{MESSAGE_BYTES, Message};
use flow::FlowKey;
use flow::MacAddr;
use flow::extract::{Layout, Metadata, extract};
use packet::checksum::checksum;
use packet::headers::{ETH_HEADER_BYTES, ETH_TYPE_IP, IPPROTO_UDP, IPV4_HEADER_BYTES, UDP_HEADER_BYTES};

/// UDP destination port of control packets (RFC 5881 §4).
pub const UDP_PORT: u16 = 3784;
/// UDP source ports of sessions (RFC 5881 §4).
pub const UDP_SOURCE_PORTS: std::ops::RangeInclusive<u16> = 49152..=65535;
/// Ethernet destination of sessions without a configured one.
pub const DEFAULT_DST_MAC: MacAddr = MacAddr([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]);
/// IPv4 source of sessions without a configured one: 169.254.1.1.
pub const DEFAULT_SRC_IP: u32 = 0xa9fe_0101;
/// IPv4 destination of sessions without a configured one: 169.254.1.0.
pub const DEFAULT_DST_IP: u32 = 0xa9fe_0100;
/// Time to live of sent packets, and the only one accepted (RFC 5881 §5).
pub(super) const TIME_TO_LIVE: u8 = 255;
/// Type of service: internetwork control.
const TYPE_OF_SERVICE: u8 = 0xc0;

/// Bytes of a frame.
pub const FRAME_BYTES: usize = ETH_HEADER_BYTES + IPV4_HEADER_BYTES + UDP_HEADER_BYTES + MESSAGE_BYTES;
/// VLAN tags that [`udp_payload`] skips at most.
const VLAN_TAGS_MAX: u8 = 2;

/// Addresses of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Ethernet source.
    pub src_mac: MacAddr,
    /// Ethernet destination.
    pub dst_mac: MacAddr,
    /// IPv4 source.
    pub src_ip: u32,
    /// IPv4 destination.
    pub dst_ip: u32,
    /// UDP source port.
    pub src_port: u16,
}

/// The whole frame of `message`. As in OVS the UDP checksum is 0: none.
pub fn build(addresses: &Addresses, message: &Message) -> [u8; FRAME_BYTES] {
    const L3: usize = ETH_HEADER_BYTES;
    const L4: usize = L3 + IPV4_HEADER_BYTES;
    const L7: usize = L4 + UDP_HEADER_BYTES;
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&addresses.dst_mac.0);
    frame[6..12].copy_from_slice(&addresses.src_mac.0);
    frame[12..L3].copy_from_slice(&ETH_TYPE_IP.to_be_bytes());
    frame[L3] = 0x45;
    frame[L3 + 1] = TYPE_OF_SERVICE;
    frame[L3 + 2..L3 + 4].copy_from_slice(&((FRAME_BYTES - L3) as u16).to_be_bytes());
    frame[L3 + 8] = TIME_TO_LIVE;
    frame[L3 + 9] = IPPROTO_UDP;
    frame[L3 + 12..L3 + 16].copy_from_slice(&addresses.src_ip.to_be_bytes());
    frame[L3 + 16..L4].copy_from_slice(&addresses.dst_ip.to_be_bytes());
    let sum = checksum(&frame[L3..L4]);
    frame[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
    frame[L4..L4 + 2].copy_from_slice(&addresses.src_port.to_be_bytes());
    frame[L4 + 2..L4 + 4].copy_from_slice(&UDP_PORT.to_be_bytes());
    frame[L4 + 4..L4 + 6].copy_from_slice(&((FRAME_BYTES - L4) as u16).to_be_bytes());
    frame[L7..].copy_from_slice(&message.to_bytes());
    frame
}

/// The UDP payload of a frame that is IPv4 and UDP; `None` without a whole UDP header. As in OVS, up to the end of the
/// frame: the length of the UDP header is not compared.
pub fn udp_payload(frame: &[u8]) -> Option<&[u8]> {
    let mut key = FlowKey::default();
    let layout = extract(frame, &Metadata::default(), VLAN_TAGS_MAX, &mut key);
    let is_udp = key.base.dl_type == ETH_TYPE_IP && key.base.nw_proto == IPPROTO_UDP;
    if !is_udp || layout.l4 == Layout::NONE {
        return None;
    }
    frame.get(usize::from(layout.l4) + UDP_HEADER_BYTES..)
}
