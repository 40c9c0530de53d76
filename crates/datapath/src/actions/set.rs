//! Set actions: rewrites masked fields of one header, and updates the checksums that cover them.
//!
//! Offsets come from the packet's [`Layout`]; a header absent from the key is a misfit. Rewriting changes no
//! structure, so the layout stays valid. The key follows each rewrite; after rewrites of ICMPv6, whose type
//! determines its fields, and of NSH the headers are dirty.

use super::sums::{self, Field};
use super::{ActionMismatch, encap, mpls};
use crate::burst::HeaderCtx;
use dpif::{ArpSet, EthSet, Ipv4Set, Ipv6Set, Masked, NdExtSet, NdSet, PortsSet, SetAction};
use flow::extract::Layout;
use flow::{nw_frag, shape};
use packet::Packet;
use packet::headers as h;

/// Rewrites the packet and its key, or metadata in the key.
pub(super) fn apply(
    set: &SetAction,
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
) -> Result<(), ActionMismatch> {
    match set {
        SetAction::Eth(m) => eth(packet, view, EthChange::new(m))?,
        SetAction::Ipv4(m) => ipv4(packet, view, m)?,
        SetAction::Ipv6(m) => ipv6(packet, view, m)?,
        SetAction::Tcp(m) => ports(packet, view, m, h::IPPROTO_TCP)?,
        SetAction::Udp(m) => ports(packet, view, m, h::IPPROTO_UDP)?,
        SetAction::Sctp(m) => ports(packet, view, m, h::IPPROTO_SCTP)?,
        SetAction::Icmp(m) => icmp(packet, view, m, h::ETH_TYPE_IP, h::IPPROTO_ICMP)?,
        SetAction::Icmpv6(m) => icmp(packet, view, m, h::ETH_TYPE_IPV6, h::IPPROTO_ICMPV6)?,
        SetAction::Arp(m) => arp(packet, view, m)?,
        SetAction::Nd(m) => nd(packet, view, m)?,
        SetAction::NdExt(m) => nd_ext(packet, view, m)?,
        SetAction::SkbMark(m) => {
            view.key.base.pkt_mark = view.key.base.pkt_mark & !m.mask | m.value & m.mask;
        }
        SetAction::SkbPriority(priority) => {
            view.key.arp.skb_priority = *priority;
            // No device has more queues.
            packet.set_queue(u16::try_from(*priority).unwrap_or(0));
            if *priority != 0 {
                view.key.base.shape |= shape::ARP;
            } else if view.key.has(shape::ARP) {
                // The next extraction decides whether the block is still needed.
                *view.dirty = true;
            }
        }
        SetAction::Mpls(m) => mpls::set(packet, view, m)?,
        SetAction::Nsh(m) => encap::set_nsh(packet, view, m)?,
        // No port here encapsulates packets.
        SetAction::Tunnel(_) => return Err(ActionMismatch),
    }
    Ok(())
}

#[inline(always)]
fn bytes<const N: usize>(packet: &Packet, at: usize) -> Result<[u8; N], ActionMismatch> {
    h::array(packet.data(), at).ok_or(ActionMismatch)
}

/// Writes `value` under `mask` at `at`; returns the bytes before and after.
#[inline(always)]
fn write<const N: usize>(
    packet: &mut Packet,
    at: usize,
    value: [u8; N],
    mask: [u8; N],
) -> Result<([u8; N], [u8; N]), ActionMismatch> {
    let old: [u8; N] = bytes(packet, at)?;
    let new: [u8; N] = std::array::from_fn(|i| old[i] & !mask[i] | value[i] & mask[i]);
    packet.data_mut()[at..at + N].copy_from_slice(&new);
    Ok((old, new))
}

fn offset(at: u16) -> Result<usize, ActionMismatch> {
    if at == Layout::NONE { Err(ActionMismatch) } else { Ok(at.into()) }
}

/// New addresses of an Ethernet header, destination and source, as words of the processor's byte order: the first eight bytes,
/// and the last four.
#[derive(Clone, Copy)]
pub(super) struct EthChange {
    /// Bits that stay.
    keep: (u64, u32),
    set: (u64, u32),
}

impl EthChange {
    pub(super) fn new(m: &Masked<EthSet>) -> EthChange {
        let (mask, value) = (eth_words(&m.mask), eth_words(&m.value));
        EthChange { keep: (!mask.0, !mask.1), set: (value.0 & mask.0, value.1 & mask.1) }
    }
}

fn eth_words(EthSet { src, dst }: &EthSet) -> (u64, u32) {
    let [a, b, c, d, e, f] = *dst;
    let [g, h, i, j, k, l] = *src;
    (u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u32::from_ne_bytes([i, j, k, l]))
}

/// Rewrites the addresses of the Ethernet header.
#[inline(always)]
pub(super) fn eth(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    change: EthChange,
) -> Result<(), ActionMismatch> {
    if packet.len() < h::ETH_HEADER_BYTES || encap::packet_type(view) != 0 {
        return Err(ActionMismatch);
    }
    let (first, rest) = packet.data_mut().split_first_chunk_mut::<8>().ok_or(ActionMismatch)?;
    let last = rest.first_chunk_mut::<4>().ok_or(ActionMismatch)?;
    let new = (
        u64::from_ne_bytes(*first) & change.keep.0 | change.set.0,
        u32::from_ne_bytes(*last) & change.keep.1 | change.set.1,
    );
    (*first, *last) = (new.0.to_ne_bytes(), new.1.to_ne_bytes());
    let ([a, b, c, d, e, f, g, h], [i, j, k, l]) = (*first, *last);
    (view.key.base.dl_dst, view.key.base.dl_src) = ([a, b, c, d, e, f], [g, h, i, j, k, l]);
    Ok(())
}

/// The transport checksum that covers the pseudo-header, if the packet has one.
fn transport_sum(view: &HeaderCtx<'_>) -> Option<Field> {
    let l4 = offset(view.layout.l4).ok()?;
    match view.key.base.nw_proto {
        h::IPPROTO_TCP => Some(Field { at: l4 + 16, zero_is_none: false }),
        h::IPPROTO_UDP => Some(Field { at: l4 + 6, zero_is_none: true }),
        h::IPPROTO_ICMPV6 if view.key.base.dl_type == h::ETH_TYPE_IPV6 => {
            Some(Field { at: l4 + 2, zero_is_none: false })
        }
        _ => None,
    }
}

/// Rewrites the IPv4 header.
#[inline(always)]
pub(super) fn ipv4(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    m: &Masked<Ipv4Set>,
) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    if view.key.base.dl_type != h::ETH_TYPE_IP {
        return Err(ActionMismatch);
    }
    let l3 = offset(view.layout.l3)?;
    let is_partial = sums::is_partial(packet, l3 + 10);
    let header =
        packet.data_mut().get_mut(l3..).and_then(<[u8]>::first_chunk_mut::<{ h::IPV4_HEADER_BYTES }>);
    let header = header.ok_or(ActionMismatch)?;
    // Reads and writes the header once each: a processor stalls on reading bytes just written in parts.
    let before = *header;
    let mut after = before;
    let b = &mut view.key.base;
    b.nw_tos = before[1] & !m.mask.tos | m.value.tos & m.mask.tos;
    b.nw_ttl = before[8] & !m.mask.ttl | m.value.ttl & m.mask.ttl;
    let old = [12, 16].map(|at| [before[at], before[at + 1], before[at + 2], before[at + 3]]);
    b.nw_src = u32::from_be_bytes(old[0]) & !m.mask.src | m.value.src & m.mask.src;
    b.nw_dst = u32::from_be_bytes(old[1]) & !m.mask.dst | m.value.dst & m.mask.dst;
    let new = [b.nw_src.to_be_bytes(), b.nw_dst.to_be_bytes()];
    (after[1], after[8]) = (b.nw_tos, b.nw_ttl);
    after[12..16].copy_from_slice(&new[0]);
    after[16..20].copy_from_slice(&new[1]);
    if !is_partial {
        let csum = u16::from_be_bytes([before[10], before[11]]);
        let csum = packet::checksum::update_bytes(csum, &before, &after);
        after[10..12].copy_from_slice(&csum.to_be_bytes());
    }
    *header = after;
    if old != new
        && let Some(field) = transport_sum(view)
    {
        sums::addresses_changed(packet, field, [(&old[0], &new[0]), (&old[1], &new[1])]);
    }
    Ok(())
}

/// New type of service and time to live of an IPv4 header, as words of the processor's byte order: its first four bytes, and
/// the four of time to live, protocol and checksum.
#[derive(Clone, Copy)]
pub(super) struct Ipv4Change {
    /// Bits that stay.
    keep: [u32; 2],
    set: [u32; 2],
}

impl Ipv4Change {
    /// `None`: the action changes addresses too.
    pub(super) fn new(m: &Masked<Ipv4Set>) -> Option<Ipv4Change> {
        let words = |s: &Ipv4Set| [[0, s.tos, 0, 0], [s.ttl, 0, 0, 0]].map(u32::from_ne_bytes);
        let (mask, value) = (words(&m.mask), words(&m.value));
        let change = Ipv4Change { keep: mask.map(|word| !word), set: [0, 1].map(|n| value[n] & mask[n]) };
        (m.mask.src == 0 && m.mask.dst == 0).then_some(change)
    }
}

/// Rewrites type of service and time to live of the IPv4 header. [`ipv4`] is its oracle.
#[inline(always)]
pub(super) fn ipv4_rest(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    change: Ipv4Change,
) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    if view.key.base.dl_type != h::ETH_TYPE_IP {
        return Err(ActionMismatch);
    }
    let l3 = offset(view.layout.l3)?;
    let is_partial = sums::is_partial(packet, l3 + 10);
    let header =
        packet.data_mut().get_mut(l3..).and_then(<[u8]>::first_chunk_mut::<{ h::IPV4_HEADER_BYTES }>);
    let [a, b, c, d, _, _, _, _, e, f, g, h, ..] = header.ok_or(ActionMismatch)?;
    let old = [[*a, *b, *c, *d], [*e, *f, *g, *h]].map(u32::from_ne_bytes);
    let new = [0, 1].map(|n| old[n] & change.keep[n] | change.set[n]);
    // The sum of words in any byte order has the same bytes.
    let changed = (0..2).map(|n| u64::from(!old[n]) + u64::from(new[n])).sum::<u64>();
    let csum = u16::from_ne_bytes([*g, *h]);
    let csum = if is_partial { csum } else { !packet::checksum::fold(u64::from(!csum) + changed) };
    [*a, *b, *c, *d] = new[0].to_ne_bytes();
    [*e, *f, _, _] = new[1].to_ne_bytes();
    [*g, *h] = csum.to_ne_bytes();
    (view.key.base.nw_tos, view.key.base.nw_ttl) = (*b, *e);
    Ok(())
}

pub(super) fn ipv6(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    m: &Masked<Ipv6Set>,
) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    if view.key.base.dl_type != h::ETH_TYPE_IPV6 {
        return Err(ActionMismatch);
    }
    let l3 = offset(view.layout.l3)?;
    let word = |v: &Ipv6Set| (u32::from(v.tclass) << 20 | v.label & 0xf_ffff).to_be_bytes();
    let first = u32::from_be_bytes(write(packet, l3, word(&m.value), word(&m.mask))?.1);
    let [hlimit] = write(packet, l3 + 7, [m.value.hlimit], [m.mask.hlimit])?.1;
    let routed = routes_on(packet.data(), l3);
    let src = write(packet, l3 + 8, m.value.src, m.mask.src)?;
    let dst = write(packet, l3 + 24, m.value.dst, m.mask.dst)?;
    (view.key.ipv6.src, view.key.ipv6.dst) = (src.1, dst.1);
    // Without a protocol the extension headers could not be parsed, and only the addresses are known.
    if view.key.base.nw_proto != 0 {
        view.key.base.nw_tos = (first >> 20) as u8;
        view.key.base.nw_ttl = hlimit;
        view.key.ipv6.label = first & 0xf_ffff;
    }
    if let Some(field) = transport_sum(view) {
        // In a routed packet the sum covers another destination.
        let dst = if routed { (&dst.0, &dst.0) } else { (&dst.0, &dst.1) };
        sums::addresses_changed(packet, field, [(&src.0, &src.1), dst]);
    }
    Ok(())
}

/// Whether a routing header with segments left follows: then the checksum covers the final destination, not the one in
/// the IPv6 header (RFC 8200 §8.1).
fn routes_on(frame: &[u8], l3: usize) -> bool {
    let Some(mut next) = frame.get(l3 + 6).copied() else { return false };
    let mut at = l3 + h::IPV6_HEADER_BYTES;
    for _ in 0..flow::extract::MAX_IPV6_EXT_HEADERS {
        if next == h::IPPROTO_ROUTING && frame.get(at + 3).is_some_and(|segments| *segments > 0) {
            return true;
        }
        match h::ipv6_next_header(frame, at, next).filter(|_| h::is_ipv6_extension(next)) {
            Some(behind) => (next, at) = behind,
            None => return false,
        }
    }
    false
}

fn is_ip(view: &HeaderCtx<'_>) -> bool {
    matches!(view.key.base.dl_type, h::ETH_TYPE_IP | h::ETH_TYPE_IPV6)
}

/// Rewrites the ports of a transport header.
#[inline(always)]
pub(super) fn ports(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    m: &Masked<PortsSet>,
    proto: u8,
) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    let b = view.key.base;
    if !is_ip(view) || b.nw_proto != proto {
        return Err(ActionMismatch);
    }
    if b.nw_frag & nw_frag::LATER != 0 {
        return Ok(());
    }
    let l4 = offset(view.layout.l4)?;
    if proto == h::IPPROTO_SCTP && b.nw_frag != 0 {
        // The checksum covers the whole packet.
        return Err(ActionMismatch);
    }
    let word = |p: &PortsSet| (u32::from(p.src) << 16 | u32::from(p.dst)).to_be_bytes();
    let (old, new) = write(packet, l4, word(&m.value), word(&m.mask))?;
    view.key.base.tp_src = u16::from_be_bytes([new[0], new[1]]);
    view.key.base.tp_dst = u16::from_be_bytes([new[2], new[3]]);
    match transport_sum(view) {
        Some(field) => sums::body_changed(packet, field, &old, &new),
        None => {
            let end = ip_end(packet.data(), view);
            sums::sctp_ports_changed(packet, l4, end, old, new);
        }
    }
    Ok(())
}

/// End of the IP packet in the frame: padding follows.
fn ip_end(frame: &[u8], view: &HeaderCtx<'_>) -> usize {
    let l3 = usize::from(view.layout.l3);
    let (at, before) =
        if view.key.base.dl_type == h::ETH_TYPE_IP { (l3 + 2, 0) } else { (l3 + 4, h::IPV6_HEADER_BYTES) };
    match h::be16(frame, at) {
        Some(bytes) if bytes != 0 => (l3 + before + usize::from(bytes)).min(frame.len()),
        _ => frame.len(),
    }
}

fn icmp(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    m: &Masked<PortsSet>,
    dl_type: u16,
    proto: u8,
) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    let b = &view.key.base;
    if b.dl_type != dl_type || b.nw_proto != proto {
        return Err(ActionMismatch);
    }
    if b.nw_frag & nw_frag::LATER != 0 {
        return Ok(());
    }
    let l4 = offset(view.layout.l4)?;
    let word = |p: &PortsSet| [p.src as u8, p.dst as u8];
    let (old, new) = write(packet, l4, word(&m.value), word(&m.mask))?;
    view.key.base.tp_src = new[0].into();
    view.key.base.tp_dst = new[1].into();
    *view.dirty |= dl_type == h::ETH_TYPE_IPV6;
    sums::body_changed(packet, Field { at: l4 + 2, zero_is_none: false }, &old, &new);
    Ok(())
}

fn arp(packet: &mut Packet, view: &mut HeaderCtx<'_>, m: &Masked<ArpSet>) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    if !matches!(view.key.base.dl_type, h::ETH_TYPE_ARP | h::ETH_TYPE_RARP) {
        return Err(ActionMismatch);
    }
    let l3 = offset(view.layout.l3)?;
    let head: [u8; h::ARP_ETH_BYTES] = bytes(packet, l3)?;
    if head[..6] != [0, 1, 0x08, 0, 6, 4] {
        return Err(ActionMismatch);
    }
    let op = write(packet, l3 + 6, m.value.op.to_be_bytes(), m.mask.op.to_be_bytes())?.1;
    view.key.arp.arp_sha = write(packet, l3 + 8, m.value.sha, m.mask.sha)?.1;
    let spa = write(packet, l3 + 14, m.value.spa.to_be_bytes(), m.mask.spa.to_be_bytes())?.1;
    view.key.arp.arp_tha = write(packet, l3 + 18, m.value.tha, m.mask.tha)?.1;
    let tpa = write(packet, l3 + 24, m.value.tpa.to_be_bytes(), m.mask.tpa.to_be_bytes())?.1;
    // The key has only opcodes of one byte.
    view.key.base.nw_proto = if op[0] == 0 { op[1] } else { 0 };
    view.key.base.nw_src = u32::from_be_bytes(spa);
    view.key.base.nw_dst = u32::from_be_bytes(tpa);
    Ok(())
}

/// Offset of the ICMPv6 header of a neighbour discovery message, and the end of the packet.
fn neighbour_message(packet: &Packet, view: &mut HeaderCtx<'_>) -> Result<(usize, usize), ActionMismatch> {
    view.refresh(packet);
    let b = &view.key.base;
    if b.dl_type != h::ETH_TYPE_IPV6 || b.nw_proto != h::IPPROTO_ICMPV6 {
        return Err(ActionMismatch);
    }
    let l4 = offset(view.layout.l4)?;
    let [kind]: [u8; 1] = bytes(packet, l4)?;
    if !matches!(kind, h::ND_NEIGHBOR_SOLICIT | h::ND_NEIGHBOR_ADVERT) {
        return Err(ActionMismatch);
    }
    Ok((l4, ip_end(packet.data(), view)))
}

/// Rewrites the reserved bytes, and the type of the first option if there is one, whatever it is.
fn nd_ext(packet: &mut Packet, view: &mut HeaderCtx<'_>, m: &Masked<NdExtSet>) -> Result<(), ActionMismatch> {
    let (l4, end) = neighbour_message(packet, view)?;
    let field = Field { at: l4 + 2, zero_is_none: false };
    if l4 + 8 > end {
        return Err(ActionMismatch);
    }
    *view.dirty = true;
    let (old, new) = write(packet, l4 + 4, m.value.reserved.to_be_bytes(), m.mask.reserved.to_be_bytes())?;
    sums::body_changed(packet, field, &old, &new);
    if l4 + 26 <= end {
        // With the length behind it: the checksum is of words.
        let of_type = |n: u16| [n as u8, 0];
        let (old, new) = write(packet, l4 + 24, of_type(m.value.options_type), of_type(m.mask.options_type))?;
        sums::body_changed(packet, field, &old, &new);
    }
    Ok(())
}

fn nd(packet: &mut Packet, view: &mut HeaderCtx<'_>, m: &Masked<NdSet>) -> Result<(), ActionMismatch> {
    let (l4, end) = neighbour_message(packet, view)?;
    let field = Field { at: l4 + 2, zero_is_none: false };
    if l4 + 24 > end {
        return Err(ActionMismatch);
    }
    *view.dirty = true;
    let (old, new) = write(packet, l4 + 8, m.value.target, m.mask.target)?;
    sums::body_changed(packet, field, &old, &new);
    let mut at = l4 + 24;
    while at + 8 <= end {
        let [kind, len]: [u8; 2] = bytes(packet, at)?;
        let option_bytes = usize::from(len) * 8;
        if option_bytes == 0 || at + option_bytes > end {
            break;
        }
        let change = match (kind, len) {
            (h::ND_OPT_SOURCE_LINKADDR, 1) => Some((m.value.sll, m.mask.sll)),
            (h::ND_OPT_TARGET_LINKADDR, 1) => Some((m.value.tll, m.mask.tll)),
            _ => None,
        };
        if let Some((value, mask)) = change {
            let (old, new) = write(packet, at + 2, value, mask)?;
            sums::body_changed(packet, field, &old, &new);
        }
        at += option_bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
