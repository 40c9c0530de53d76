//! Flows to bytes: [`compose`] builds a frame that [`crate::extract`] parses into the same flow.
//!
//! A flow without an Ethernet header (its packet type has an EtherType) yields the packet from its first header on.
//! Builds only headers of a frame: tunnels, registers and other metadata are left out. Lengths and checksums
//! are valid (the Internet checksum, CRC32c for SCTP). If a flow contradicts itself, the outer header wins,
//! and inner ones that do not fit are left out. Any flow yields a frame; nothing here panics.
//!
//! Callers: code that needs a packet for a flow (`ofproto/trace -generate`, packets injected as text). Not
//! built: IPv4 options, IPv6 extension headers other than the fragment header, the payload after MPLS labels and after a network service header, context headers of metadata type 2.
//!
//! Formats: IEEE 802.3, 802.1Q; RFC 826, 791, 8200, 9293, 768, 9260, 792, 4443, 4861, 3032, 3376, 8300.

use crate::extract::MAX_MPLS_LABELS;
use crate::types::OfPort;
use crate::{Flow, FlowKey, VlanTag, nw_frag};
use packet::checksum::{checksum, fold, pseudo, sum};
use packet::headers as h;

/// Default payload bytes.
pub const DEFAULT_L7_BYTES: usize = 64;
/// Maximum frame length, so that every length fits its header field.
pub const MAX_FRAME_BYTES: usize = 65535;
/// Minimum length for [`compose_sized`]: the shortest Ethernet frame without its check sequence.
pub const MIN_SIZED_BYTES: usize = 60;

/// Offset of a later fragment in units of 8 bytes: any non-zero value.
const LATER_OFFSET: u16 = 100;
/// RFC 9293 §3.1: flags that open or end a connection; such segments carry no payload here.
const TCP_FIN_SYN_RST: u16 = 0x007;
/// IPv4's "more fragments".
const IPV4_MF: u16 = 0x2000;

/// The payload of a transport header. Only TCP (without SYN, FIN or RST), UDP and ICMP echo have one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload<'a> {
    /// That many bytes 0, 1, 2 and so on.
    Counted(usize),
    /// The given bytes.
    Bytes(&'a [u8]),
}

impl Default for Payload<'_> {
    fn default() -> Self {
        Payload::Counted(DEFAULT_L7_BYTES)
    }
}

/// Whether the packet is of neighbour discovery.
fn is_nd(flow: &Flow) -> bool {
    [h::ND_NEIGHBOR_SOLICIT, h::ND_NEIGHBOR_ADVERT].map(u16::from).contains(&flow.tp_src) && flow.tp_dst == 0
}

/// A total length that the frame of a flow cannot have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SizeError {
    /// Below the minimum of any frame.
    #[error("too small packet len")]
    BelowMinimum,
    /// Below the length of the flow's headers.
    #[error("the flow's headers need {0} bytes")]
    BelowHeaders(usize),
    /// Above the maximum of any packet.
    #[error("packet len above {MAX_FRAME_BYTES}")]
    AboveMaximum,
}

/// Builds a frame of `flow` with that payload.
pub fn compose(flow: &Flow, payload: Payload<'_>) -> Vec<u8> {
    let mut frame = Frame::headers(flow);
    frame.payload(flow, payload);
    frame.finish(flow)
}

/// Builds a frame of `flow` of exactly `bytes` bytes: zeros after the headers, part of the IP packet if
/// present.
///
/// # Errors
/// Lengths below [`MIN_SIZED_BYTES`], below the length of the headers, above [`MAX_FRAME_BYTES`].
pub fn compose_sized(flow: &Flow, bytes: usize) -> Result<Vec<u8>, SizeError> {
    let mut frame = Frame::headers(flow);
    match bytes {
        0..MIN_SIZED_BYTES => return Err(SizeError::BelowMinimum),
        _ if bytes > MAX_FRAME_BYTES => return Err(SizeError::AboveMaximum),
        _ if bytes < frame.bytes.len() => return Err(SizeError::BelowHeaders(frame.bytes.len())),
        _ => frame.bytes.resize(bytes, 0),
    }
    Ok(frame.finish(flow))
}

/// Builds the frame of a datapath flow, as injected by its text: of `len` bytes in all, or with the default
/// payload.
///
/// # Errors
/// See [`compose_sized`].
pub fn frame_of_key(key: &FlowKey, len: Option<usize>) -> Result<Vec<u8>, SizeError> {
    let flow = key.to_flow(OfPort::NONE);
    match len {
        Some(bytes) => compose_sized(&flow, bytes),
        None => Ok(compose(&flow, Payload::default())),
    }
}

/// A frame under construction.
struct Frame {
    bytes: Vec<u8>,
    /// Offset of the layer-3 header.
    l3: usize,
    /// Offset of the transport header, if present.
    l4: Option<usize>,
}

impl Frame {
    /// Builds all headers, lengths and checksums still 0.
    fn headers(flow: &Flow) -> Frame {
        let mut bytes = Vec::with_capacity(160);
        if flow.packet_type != 0 {
            return Frame { l3: 0, bytes, l4: None }.with_payload(flow);
        }
        bytes.extend(flow.dl_dst);
        bytes.extend(flow.dl_src);
        for tag in flow.vlans.iter().take_while(|tag| tag.is_present()) {
            let tpid = if tag.tpid == h::ETH_TYPE_VLAN_8021AD { tag.tpid } else { h::ETH_TYPE_VLAN };
            bytes.extend(tpid.to_be_bytes());
            bytes.extend((tag.tci & !VlanTag::PRESENT).to_be_bytes());
        }
        bytes.extend(flow.dl_type.to_be_bytes());
        Frame { l3: bytes.len(), bytes, l4: None }.with_payload(flow)
    }

    /// Appends the header of the EtherType and those within.
    fn with_payload(mut self, flow: &Flow) -> Frame {
        match flow.dl_type {
            h::ETH_TYPE_IP => self.ipv4(flow),
            h::ETH_TYPE_IPV6 => self.ipv6(flow),
            h::ETH_TYPE_ARP | h::ETH_TYPE_RARP => self.arp(flow),
            h::ETH_TYPE_MPLS | h::ETH_TYPE_MPLS_MCAST => self.mpls(flow),
            h::ETH_TYPE_NSH => self.nsh(flow),
            _ => {}
        }
        self
    }

    fn nsh(&mut self, flow: &Flow) {
        let has_context = flow.nsh_mdtype == h::NSH_MD_TYPE1;
        let bytes = if has_context { h::NSH_MD1_BYTES } else { h::NSH_BASE_BYTES };
        self.bytes.extend(flow.nsh().header(bytes));
        if has_context {
            self.bytes.extend(flow.nsh().contexts());
        }
    }

    fn ipv4(&mut self, flow: &Flow) {
        let frag = match flow.nw_frag & nw_frag::MASK {
            0 => 0,
            nw_frag::ANY => IPV4_MF,
            _ => IPV4_MF | LATER_OFFSET,
        };
        let f = &mut self.bytes;
        f.extend([0x45, flow.nw_tos, 0, 0, 0, 0]);
        f.extend(frag.to_be_bytes());
        f.extend([flow.nw_ttl, flow.nw_proto, 0, 0]);
        f.extend(flow.nw_src.to_be_bytes());
        f.extend(flow.nw_dst.to_be_bytes());
        self.transport(flow);
    }

    fn ipv6(&mut self, flow: &Flow) {
        let first = 6 << 28 | u32::from(flow.nw_tos) << 20 | flow.ipv6_label & 0xf_ffff;
        let frag = match flow.nw_frag & nw_frag::MASK {
            0 => None,
            nw_frag::ANY => Some(1),
            _ => Some(LATER_OFFSET << 3 | 1),
        };
        let f = &mut self.bytes;
        f.extend(first.to_be_bytes());
        f.extend([0, 0, if frag.is_some() { h::IPPROTO_FRAGMENT } else { flow.nw_proto }, flow.nw_ttl]);
        f.extend(flow.ipv6_src);
        f.extend(flow.ipv6_dst);
        if let Some(offset) = frag {
            f.extend([flow.nw_proto, 0]);
            f.extend(u16::to_be_bytes(offset));
            f.extend([0; 4]);
        }
        self.transport(flow);
    }

    fn arp(&mut self, flow: &Flow) {
        let f = &mut self.bytes;
        f.extend([0, 1, 8, 0, 6, 4, 0, flow.nw_proto]);
        f.extend(flow.arp_sha);
        f.extend(flow.nw_src.to_be_bytes());
        f.extend(flow.arp_tha);
        f.extend(flow.nw_dst.to_be_bytes());
    }

    fn mpls(&mut self, flow: &Flow) {
        for lse in &flow.mpls_lse[..MAX_MPLS_LABELS] {
            self.bytes.extend(lse.to_be_bytes());
            if lse & 0x100 != 0 {
                break;
            }
        }
    }

    fn transport(&mut self, flow: &Flow) {
        if flow.nw_frag & nw_frag::LATER != 0 {
            return;
        }
        let v4 = flow.dl_type == h::ETH_TYPE_IP;
        let at = self.bytes.len();
        let f = &mut self.bytes;
        let (src, dst) = (flow.tp_src.to_be_bytes(), flow.tp_dst.to_be_bytes());
        let ports = [src[0], src[1], dst[0], dst[1]];
        // ICMP types and codes have 8 bits.
        let icmp = [src[1], dst[1], 0, 0];
        match flow.nw_proto {
            h::IPPROTO_TCP => {
                let flags = (0x5000 | flow.tcp_flags & 0xfff).to_be_bytes();
                f.extend(ports);
                f.extend([0; 8]);
                f.extend(flags);
                f.extend([0; 6]);
            }
            h::IPPROTO_UDP => {
                f.extend(ports);
                f.extend([0; 4]);
            }
            h::IPPROTO_SCTP => {
                f.extend(ports);
                f.extend([0; 8]);
            }
            h::IPPROTO_ICMP if v4 => {
                f.extend(icmp);
                f.extend([0; 4]);
            }
            h::IPPROTO_IGMP if v4 => {
                f.extend(icmp);
                f.extend(flow.igmp_group.to_be_bytes());
            }
            h::IPPROTO_ICMPV6 if !v4 => {
                f.extend(icmp);
                f.extend(if is_nd(flow) { flow.igmp_group } else { 0 }.to_be_bytes());
                self.neighbour(flow);
            }
            _ => return,
        }
        self.l4 = Some(at);
    }

    /// Appends target and options of a neighbour discovery message.
    fn neighbour(&mut self, flow: &Flow) {
        if !is_nd(flow) {
            return;
        }
        self.bytes.extend(flow.nd_target);
        let mut options =
            [(h::ND_OPT_SOURCE_LINKADDR, flow.arp_sha), (h::ND_OPT_TARGET_LINKADDR, flow.arp_tha)];
        let first = |kind: u8| flow.tcp_flags == u16::from(kind);
        if first(h::ND_OPT_TARGET_LINKADDR) {
            options.reverse();
        }
        for (kind, address) in options.into_iter().filter(|(kind, to)| *to != [0; 6] || first(*kind)) {
            self.bytes.extend([kind, 1]);
            self.bytes.extend(address);
        }
    }

    fn payload(&mut self, flow: &Flow, payload: Payload<'_>) {
        let echo = match flow.nw_proto {
            h::IPPROTO_ICMP => matches!(flow.tp_src, 0 | 8) && flow.tp_dst == 0,
            h::IPPROTO_ICMPV6 => matches!(flow.tp_src, 128 | 129) && flow.tp_dst == 0,
            _ => false,
        };
        let carries = match flow.nw_proto {
            h::IPPROTO_TCP => flow.tcp_flags & TCP_FIN_SYN_RST == 0,
            h::IPPROTO_UDP => true,
            _ => echo,
        };
        if self.l4.is_none() || !carries {
            return;
        }
        let room = MAX_FRAME_BYTES.saturating_sub(self.bytes.len());
        match payload {
            Payload::Counted(n) => self.bytes.extend((0..n.min(room)).map(|i| i as u8)),
            Payload::Bytes(bytes) => self.bytes.extend(&bytes[..bytes.len().min(room)]),
        }
    }

    /// Fills in lengths and checksums.
    fn finish(mut self, flow: &Flow) -> Vec<u8> {
        let all = self.bytes.len();
        let l3_bytes = all - self.l3;
        if flow.packet_type == 0 && flow.dl_type == h::FLOW_DL_TYPE_NONE {
            // Any 802.3 length will do; no LLC header with an EtherType follows.
            let length = all.min(usize::from(h::FLOW_DL_TYPE_NONE));
            self.put16(self.l3 - 2, length as u16);
        }
        match flow.dl_type {
            h::ETH_TYPE_IP => {
                self.put16(self.l3 + 2, l3_bytes as u16);
                let csum = checksum(&self.bytes[self.l3..self.l3 + h::IPV4_HEADER_BYTES]);
                self.put16(self.l3 + 10, csum);
            }
            h::ETH_TYPE_IPV6 => self.put16(self.l3 + 4, (l3_bytes - h::IPV6_HEADER_BYTES) as u16),
            _ => {}
        }
        if let Some(at) = self.l4 {
            self.finish_transport(flow, at);
        }
        self.bytes
    }

    fn finish_transport(&mut self, flow: &Flow, at: usize) {
        let l4_bytes = self.bytes.len() - at;
        let pseudo = match flow.dl_type {
            h::ETH_TYPE_IP => {
                pseudo(&flow.nw_src.to_be_bytes(), &flow.nw_dst.to_be_bytes(), flow.nw_proto, l4_bytes)
            }
            _ => pseudo(&flow.ipv6_src, &flow.ipv6_dst, flow.nw_proto, l4_bytes),
        };
        let sum_from = |start: u64, frame: &Frame| !fold(sum(&frame.bytes[at..], start));
        match flow.nw_proto {
            h::IPPROTO_TCP => self.put16(at + 16, sum_from(pseudo, self)),
            h::IPPROTO_UDP => {
                self.put16(at + 4, l4_bytes as u16);
                let csum = sum_from(pseudo, self);
                // 0 would mean no checksum.
                self.put16(at + 6, if csum == 0 { u16::MAX } else { csum });
            }
            h::IPPROTO_SCTP => {
                let crc = packet::crc32c(&self.bytes[at..]);
                self.bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
            }
            h::IPPROTO_ICMPV6 => self.put16(at + 2, sum_from(pseudo, self)),
            _ => self.put16(at + 2, sum_from(0, self)),
        }
    }

    fn put16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
