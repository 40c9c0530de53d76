//! [`PacketInfo`]: all that the tracker needs from a packet, read from its parsed key and its bytes.
//!
//! A packet that this refuses is invalid (`+inv`): fragments, bad checksums, ports 0, ICMP messages that belong to no
//! connection. A checksum that a device completes or has verified is not computed here.

use crate::alg::Helper;
use crate::key::{Key, Rest, V6_WORDS, Words, answer_of, is_icmp};
use crate::tcp;
use flow::extract::Layout;
use flow::{FlowKey, shape};
use packet::headers as h;
use packet::{Packet, checksum};
use std::net::{IpAddr, Ipv6Addr};

/// Fields of a transport protocol beside the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// A segment of TCP.
    Tcp(tcp::Segment),
    /// A message of ICMP: whether it may begin a connection.
    Icmp {
        /// A request.
        begins: bool,
    },
    /// Any other.
    Other,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketInfo {
    /// Tuple and zone; with an ICMP error, the reverse of the packet that caused it.
    pub key: Key,
    /// An ICMP error about the connection of `key`.
    pub is_error: bool,
    /// Transport.
    pub transport: Transport,
}

/// The value before any packet.
impl Default for PacketInfo {
    #[inline(always)]
    fn default() -> PacketInfo {
        PacketInfo { key: Key::MIN, is_error: false, transport: Transport::Other }
    }
}

impl PacketInfo {
    /// The helper for which it is a control packet; `named`: the helper of its `ct` action.
    #[inline(always)]
    pub fn control(&self, named: Option<Helper>) -> Option<Helper> {
        let Rest { src, dst, proto, .. } = self.key.rest();
        if named.is_none() && !Helper::has_port(src, dst) || self.is_error {
            return None;
        }
        Helper::of_packet(proto, [src, dst], named)
    }

    /// Reads a packet whose headers are at `layout`. `None`: it is invalid.
    pub fn read(packet: &Packet, key: &FlowKey, layout: Layout, zone: u16) -> Option<PacketInfo> {
        let mut info = PacketInfo::default();
        info.fill(packet, key, layout, zone).map(|()| info)
    }

    /// As [`PacketInfo::read`], in place: a copy of fields just written stalls the processor.
    #[inline(always)]
    pub fn fill(&mut self, packet: &Packet, key: &FlowKey, layout: Layout, zone: u16) -> Option<()> {
        let b = &key.base;
        if b.nw_frag != 0 || layout.l3 == Layout::NONE || layout.l4 == Layout::NONE {
            return None;
        }
        let (l3, l4) = (usize::from(layout.l3), usize::from(layout.l4));
        let rest = Rest { src: b.tp_src, dst: b.tp_dst, zone, proto: b.nw_proto };
        let body = ip_body(packet.data(), b.dl_type, l3, l4)?;
        match b.dl_type {
            h::ETH_TYPE_IP => {
                let header = packet.data().get(l3..l4)?;
                let is_right = match header.first_chunk()? {
                    plain if header.len() == plain.len() => checksum::ipv4_header_is_right(plain),
                    _ => checksum::checksum(header) == 0,
                };
                if !is_right {
                    return None;
                }
                let words = [u64::from(b.nw_src) << 32 | u64::from(b.nw_dst), rest.pack()];
                let halves = |addr: u32| u64::from(addr >> 16) + u64::from(addr & 0xffff);
                let addresses = halves(b.nw_src) + halves(b.nw_dst);
                let pseudo = addresses + u64::from(rest.proto) + body.len() as u64;
                self.fill_words(packet, words, l4, body, pseudo)
            }
            h::ETH_TYPE_IPV6 if key.has(shape::IPV6) => {
                let (src, dst) = (key.ipv6.src, key.ipv6.dst);
                let words = v6_words(src, dst, rest);
                let pseudo = checksum::pseudo(&src, &dst, rest.proto, body.len());
                self.fill_words(packet, words, l4, body, pseudo)
            }
            _ => None,
        }
    }

    /// `pseudo`: the sum of the pseudo-header.
    #[inline(always)]
    fn fill_words<W: Words>(
        &mut self,
        packet: &Packet,
        mut words: W,
        l4: usize,
        body: &[u8],
        pseudo: u64,
    ) -> Option<()> {
        let rest = words.rest();
        let has_ports = rest.src != 0 && rest.dst != 0;
        let sum_is_right =
            |from| is_trusted(packet, l4) || checksum::fold(checksum::sum(body, from)) == 0xffff;
        let is_right = match rest.proto {
            h::IPPROTO_TCP => {
                self.transport = Transport::Tcp(tcp_segment(body)?);
                has_ports && sum_is_right(pseudo)
            }
            h::IPPROTO_UDP => {
                let header: [u8; h::UDP_HEADER_BYTES] = h::array(body, 0)?;
                let bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
                let has_sum = W::IS_V6 || header[6..] != [0, 0];
                self.transport = Transport::Other;
                has_ports
                    && (h::UDP_HEADER_BYTES..=body.len()).contains(&bytes)
                    && (!has_sum || sum_is_right(pseudo))
            }
            h::IPPROTO_SCTP => {
                self.transport = Transport::Other;
                body.len() >= h::SCTP_HEADER_BYTES
                    && has_ports
                    && (is_trusted(packet, l4) || sctp_sum_is_right(body))
            }
            proto if is_icmp(proto, W::IS_V6) => {
                *self = icmp(words, body)?;
                return sum_is_right(if W::IS_V6 { pseudo } else { 0 }).then_some(());
            }
            _ => {
                words.set_rest(Rest { src: 0, dst: 0, ..rest });
                self.transport = Transport::Other;
                true
            }
        };
        (self.key, self.is_error) = (words.key(), false);
        is_right.then_some(())
    }
}

#[inline(always)]
fn v6_words(src: [u8; 16], dst: [u8; 16], rest: Rest) -> [u64; V6_WORDS] {
    let mut words = [0; V6_WORDS];
    words.set_src(IpAddr::V6(Ipv6Addr::from(src)));
    words.set_dst(IpAddr::V6(Ipv6Addr::from(dst)));
    words.set_rest(rest);
    words
}

/// The transport header and payload: from `l4` to the end of the IP packet, without padding behind it.
#[inline(always)]
fn ip_body(frame: &[u8], dl_type: u16, l3: usize, l4: usize) -> Option<&[u8]> {
    let end = match dl_type {
        h::ETH_TYPE_IP => l3 + usize::from(h::be16(frame, l3 + 2)?),
        _ => match usize::from(h::be16(frame, l3 + 4)?) {
            // A jumbogram, or a large segment.
            0 => frame.len(),
            bytes => l3 + h::IPV6_HEADER_BYTES + bytes,
        },
    };
    frame.get(l4..end.min(frame.len()))
}

/// Whether the checksum of the transport header needs no computation.
#[inline(always)]
fn is_trusted(packet: &Packet, l4: usize) -> bool {
    let o = &packet.offload;
    o.csum_valid || o.needs_csum && usize::from(o.csum_start) == l4
}

fn sctp_sum_is_right(body: &[u8]) -> bool {
    let sent = [body[8], body[9], body[10], body[11]];
    let mut crc = packet::Crc32c::new();
    crc.add(&body[..8]);
    crc.add(&[0; 4]);
    crc.add(&body[12..]);
    crc.value().to_le_bytes() == sent
}

fn tcp_segment(body: &[u8]) -> Option<tcp::Segment> {
    let header = body.get(..h::TCP_HEADER_BYTES)?;
    let bytes = usize::from(header[12] >> 4) * 4;
    let options = body.get(h::TCP_HEADER_BYTES..bytes)?;
    let flags = header[13];
    let scale = if flags & tcp::flag::SYN != 0 { window_scale(options) } else { None };
    Some(tcp::Segment {
        flags,
        seq: h::be32(header, 4)?,
        ack: h::be32(header, 8)?,
        window: h::be16(header, 14)?,
        bytes: (body.len() - bytes) as u32,
        scale,
    })
}

/// The window scale option (RFC 7323 §2.2).
fn window_scale(mut options: &[u8]) -> Option<u8> {
    loop {
        options = match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => rest,
            [3, 3, scale, ..] => return Some(*scale),
            [_, bytes, ..] => options.get(usize::from(*bytes).max(2)..)?,
            [_] => return None,
        };
    }
}

/// A message of ICMP or ICMPv6; `body` is its bytes.
fn icmp<W: Words>(mut words: W, body: &[u8]) -> Option<PacketInfo> {
    let [kind, code] = h::array(body, 0)?;
    let rest = words.rest();
    if answer_of(kind, W::IS_V6).is_some() {
        if code != 0 {
            return None;
        }
        words.set_rest(Rest { src: h::be16(body, 4)?, dst: u16::from(kind) << 8, ..rest });
        let begins = if W::IS_V6 { kind == 128 } else { matches!(kind, 8 | 13 | 15) };
        return Some(PacketInfo { key: words.key(), is_error: false, transport: Transport::Icmp { begins } });
    }
    let is_error = if W::IS_V6 { (1..=4).contains(&kind) } else { matches!(kind, 3 | 4 | 5 | 11 | 12) };
    let inner = Some(body.get(h::ICMP_HEADER_BYTES..)?).filter(|_| is_error)?;
    let (inner, _) = inner_key(words, inner)?;
    // The connection's packets of this direction are the reverse of the one that the error cites.
    Some(PacketInfo { key: inner.reversed().key(), is_error: true, transport: Transport::Other })
}

/// The key of the packet that an ICMP error cites, and the place of its transport header. The cited packet must have
/// been sent by the destination of the error, `outer`. A first fragment has its transport header, so it has a key: as in
/// Linux, and unlike in the userspace tracker of OVS, an error about it is related.
pub(crate) fn inner_key<W: Words>(outer: W, inner: &[u8]) -> Option<(W, usize)> {
    let mut words = outer;
    let zone = outer.rest().zone;
    let (proto, l4) = if W::IS_V6 {
        let (src, dst): ([u8; 16], [u8; 16]) = (h::array(inner, 8)?, h::array(inner, 24)?);
        words.set_src(Ipv6Addr::from(src).into());
        words.set_dst(Ipv6Addr::from(dst).into());
        v6_transport(inner)?
    } else {
        let (version, bytes) = (inner.first()? >> 4, usize::from(inner.first()? & 15) * 4);
        let is_later_fragment = h::be16(inner, 6)? & 0x1fff != 0;
        if version != 4 || bytes < h::IPV4_HEADER_BYTES || inner.len() < bytes || is_later_fragment {
            return None;
        }
        let (src, dst): ([u8; 4], [u8; 4]) = (h::array(inner, 12)?, h::array(inner, 16)?);
        words.set_src(IpAddr::from(src));
        words.set_dst(IpAddr::from(dst));
        (inner[9], bytes)
    };
    if words.addresses()[0] != outer.addresses()[1] {
        return None;
    }
    let body = inner.get(l4..)?;
    let rest = match proto {
        h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_SCTP => {
            // The first eight bytes are cited at least (RFC 792).
            body.get(..8)?;
            let (src, dst) = (h::be16(body, 0)?, h::be16(body, 2)?);
            Some(Rest { src, dst, zone, proto }).filter(|_| src != 0 && dst != 0)?
        }
        proto if is_icmp(proto, W::IS_V6) => {
            let [kind, code] = h::array(body, 0)?;
            answer_of(kind, W::IS_V6).filter(|_| code == 0)?;
            Rest { src: h::be16(body, 4)?, dst: u16::from(kind) << 8, zone, proto }
        }
        proto => Rest { src: 0, dst: 0, zone, proto },
    };
    words.set_rest(rest);
    Some((words, l4))
}

/// Place of the transport header in a packet that an ICMP error cites, of the family of `key`.
pub fn cited_transport(key: &Key, cited: &[u8]) -> Option<usize> {
    match key {
        Key::V4(_) => Some(usize::from(cited.first()? & 15) * 4),
        Key::V6(_) => v6_transport(cited).map(|(_, at)| at),
    }
}

/// Protocol and place of the transport header of an IPv6 packet that is no later fragment.
fn v6_transport(packet: &[u8]) -> Option<(u8, usize)> {
    let (mut next, mut at) = (*packet.get(6)?, h::IPV6_HEADER_BYTES);
    for _ in 0..flow::extract::MAX_IPV6_EXT_HEADERS {
        if !h::is_ipv6_extension(next) {
            return Some((next, at));
        }
        if next == h::IPPROTO_FRAGMENT && h::be16(packet, at + 2)? & 0xfff8 != 0 {
            return None;
        }
        (next, at) = h::ipv6_next_header(packet, at, next)?;
    }
    None
}

#[cfg(test)]
mod tests;
