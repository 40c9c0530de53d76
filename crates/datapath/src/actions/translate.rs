//! Translates packets: gives them the addresses and ports of a tuple.
//!
//! Common packets are rewritten in one step: TCP and UDP in whole datagrams, without a checksum left to a device. The set
//! actions rewrite all others, with the same result: they are the oracle.

use super::{ActionMismatch, set, sums};
use crate::burst::HeaderCtx;
use conntrack::{Key, Translation};
use dpif::{Ipv4Set, Ipv6Set, Masked, PortsSet};
use packet::headers as h;
use packet::{Packet, checksum};
use std::net::IpAddr;

/// Translates a packet. The translation is read in place: a copy of what was just written stalls the processor.
#[inline(always)]
pub(super) fn translate(
    packet: &mut Packet,
    headers: &mut HeaderCtx<'_>,
    translation: &Option<Translation>,
) -> Result<(), ActionMismatch> {
    match translation {
        None => Ok(()),
        Some(Translation::Tuple(to)) => {
            headers.refresh(packet);
            if rewrite_common(packet, headers, to).is_some() { Ok(()) } else { rewrite(packet, headers, to) }
        }
        Some(Translation::Error { src, dst, inner }) => {
            set_addresses(packet, headers, *src, *dst)?;
            translate_cited(packet, headers, inner)
        }
    }
}

/// Rewrites a common packet; `None`, without effect, for another one.
#[inline(always)]
fn rewrite_common(packet: &mut Packet, headers: &mut HeaderCtx<'_>, to: &Key) -> Option<()> {
    let (l3, l4) = (usize::from(headers.layout.l3), usize::from(headers.layout.l4));
    let b = &mut headers.key.base;
    let (sum_at, zero_is_none) = match b.nw_proto {
        h::IPPROTO_TCP => (16, false),
        h::IPPROTO_UDP => (6, true),
        _ => return None,
    };
    let rest = to.rest();
    if b.nw_frag != 0 || b.nw_proto != rest.proto || packet.offload.needs_csum {
        return None;
    }
    let frame = packet.data_mut();
    // Fails without a transport header, whose offset lies behind any frame.
    frame.get(l4..=l4 + sum_at + 1)?;
    let ports = u32::from(rest.src) << 16 | u32::from(rest.dst);
    let mut change = delta(h::be32(frame, l4)?.into(), ports.into());
    match *to {
        Key::V4([to, _]) => {
            let header = frame.get_mut(l3..)?.first_chunk_mut::<{ h::IPV4_HEADER_BYTES }>()?;
            let from = u64::from_be_bytes(h::array(header, 12)?);
            if b.dl_type != h::ETH_TYPE_IP {
                return None;
            }
            let addresses = delta(from, to);
            let sum = u16::from_be_bytes([header[10], header[11]]);
            header[10..12].copy_from_slice(&(!checksum::fold(u64::from(!sum) + addresses)).to_be_bytes());
            header[12..].copy_from_slice(&to.to_be_bytes());
            change += addresses;
            (b.nw_src, b.nw_dst) = ((to >> 32) as u32, to as u32);
        }
        Key::V6([a, b, c, d, _]) => {
            let header = frame.get_mut(l3..)?.first_chunk_mut::<{ h::IPV6_HEADER_BYTES }>()?;
            // Behind extension headers the sum may cover another destination.
            if headers.key.base.dl_type != h::ETH_TYPE_IPV6 || header[6] != rest.proto {
                return None;
            }
            for (field, word) in header[8..].chunks_exact_mut(8).zip([a, b, c, d]) {
                let from = u64::from_be_bytes(h::array(field, 0)?);
                change += delta(from, word);
                field.copy_from_slice(&word.to_be_bytes());
            }
            headers.key.ipv6.src = h::array(header, 8)?;
            headers.key.ipv6.dst = h::array(header, 24)?;
        }
    }
    let transport = frame.get_mut(l4..)?;
    transport[..4].copy_from_slice(&ports.to_be_bytes());
    let sum = u16::from_be_bytes([transport[sum_at], transport[sum_at + 1]]);
    if !(zero_is_none && sum == 0) {
        let sum = !checksum::fold(u64::from(!sum) + change);
        let sum = if zero_is_none && sum == 0 { 0xffff } else { sum };
        transport[sum_at..sum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let b = &mut headers.key.base;
    (b.tp_src, b.tp_dst) = (rest.src, rest.dst);
    Some(())
}

/// The change of a sum whose covered words change (RFC 1624); not folded.
#[inline(always)]
fn delta(old: u64, new: u64) -> u64 {
    let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
    halves(!old) + halves(new)
}

/// Rewrites a packet by set actions.
fn rewrite(packet: &mut Packet, headers: &mut HeaderCtx<'_>, to: &Key) -> Result<(), ActionMismatch> {
    let [src, dst] = to.addresses();
    set_addresses(packet, headers, Some(src), Some(dst))?;
    let rest = to.rest();
    if !matches!(rest.proto, h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_SCTP) {
        return Ok(());
    }
    let ports = Masked {
        value: PortsSet { src: rest.src, dst: rest.dst },
        mask: PortsSet { src: u16::MAX, dst: u16::MAX },
    };
    set::ports(packet, headers, &ports, rest.proto)
}

fn set_addresses(
    packet: &mut Packet,
    headers: &mut HeaderCtx<'_>,
    src: Option<IpAddr>,
    dst: Option<IpAddr>,
) -> Result<(), ActionMismatch> {
    let is_v6 = src.or(dst).is_some_and(|addr| addr.is_ipv6());
    if is_v6 {
        let mut set = Masked { value: Ipv6Set::default(), mask: Ipv6Set::default() };
        if let Some(IpAddr::V6(addr)) = src {
            (set.value.src, set.mask.src) = (addr.octets(), [0xff; 16]);
        }
        if let Some(IpAddr::V6(addr)) = dst {
            (set.value.dst, set.mask.dst) = (addr.octets(), [0xff; 16]);
        }
        return set::ipv6(packet, headers, &set);
    }
    let mut set = Masked { value: Ipv4Set::default(), mask: Ipv4Set::default() };
    if let Some(IpAddr::V4(addr)) = src {
        (set.value.src, set.mask.src) = (addr.into(), u32::MAX);
    }
    if let Some(IpAddr::V4(addr)) = dst {
        (set.value.dst, set.mask.dst) = (addr.into(), u32::MAX);
    }
    set::ipv4(packet, headers, &set)
}

/// Gives the packet that an ICMP error cites the addresses and ports of a tuple. The checksums of its IPv4 header, of its
/// transport header, if it is there, and of the message follow.
fn translate_cited(packet: &mut Packet, headers: &HeaderCtx<'_>, to: &Key) -> Result<(), ActionMismatch> {
    let message = usize::from(headers.layout.l4);
    let l3 = message + h::ICMP_HEADER_BYTES;
    let [src, dst] = to.addresses();
    let frame = packet.data();
    let l4 =
        l3 + conntrack::cited_transport(to, frame.get(l3..).ok_or(ActionMismatch)?).ok_or(ActionMismatch)?;
    let before = frame.get(message..).ok_or(ActionMismatch)?.to_vec();
    let frame = packet.data_mut();
    let old_addresses = cited_addresses(frame, l3, src.is_ipv6()).to_vec();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = frame.get_mut(l3..l3 + h::IPV4_HEADER_BYTES).ok_or(ActionMismatch)?;
            let old: [u8; 8] = h::array(header, 12).ok_or(ActionMismatch)?;
            header[12..16].copy_from_slice(&src.octets());
            header[16..20].copy_from_slice(&dst.octets());
            let sum = u16::from_be_bytes([header[10], header[11]]);
            let sum = checksum::update_bytes(sum, &old, &header[12..20]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = frame.get_mut(l3..l3 + h::IPV6_HEADER_BYTES).ok_or(ActionMismatch)?;
            header[8..24].copy_from_slice(&src.octets());
            header[24..40].copy_from_slice(&dst.octets());
        }
        _ => return Err(ActionMismatch),
    }
    let rest = to.rest();
    if matches!(rest.proto, h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_SCTP) {
        let ports = frame.get_mut(l4..l4 + 4).ok_or(ActionMismatch)?;
        let old_ports: [u8; 4] = h::array(ports, 0).ok_or(ActionMismatch)?;
        ports[..2].copy_from_slice(&rest.src.to_be_bytes());
        ports[2..].copy_from_slice(&rest.dst.to_be_bytes());
        let new_ports = [rest.src.to_be_bytes(), rest.dst.to_be_bytes()].concat();
        let at = match rest.proto {
            h::IPPROTO_TCP => Some(l4 + 16),
            h::IPPROTO_UDP => Some(l4 + 6).filter(|at| h::be16(frame, *at) != Some(0)),
            // The checksum of SCTP covers bytes that are missing.
            _ => None,
        };
        if let Some((at, sum)) = at.and_then(|at| Some((at, h::be16(frame, at)?))) {
            let sum = checksum::update_bytes(sum, &old_addresses, cited_addresses(frame, l3, src.is_ipv6()));
            let sum = checksum::update_bytes(sum, &old_ports, &new_ports);
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }
    let even = |bytes: &[u8]| bytes[..bytes.len() & !1].to_vec();
    let after = even(&frame[message..]);
    // Its type determines the fields of an ICMP checksum; both families have it at the same place.
    let field = sums::Field { at: message + 2, zero_is_none: false };
    sums::body_changed(packet, field, &even(&before), &after);
    Ok(())
}

/// The addresses of an IP header; none if it is cut off.
fn cited_addresses(frame: &[u8], l3: usize, is_v6: bool) -> &[u8] {
    let range = if is_v6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
    frame.get(range).unwrap_or(&[])
}

#[cfg(test)]
mod tests;
