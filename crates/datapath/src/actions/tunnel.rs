//! Tunnels: outer headers pushed onto packets, and removed from them.
//!
//! - A push completes the inner checksum and adds lengths, checksums, a UDP source port by the hash of the packet, and
//!   GRE sequence numbers. The packet then comes from the device of the route, without other metadata.
//! - A large segment stays whole behind outer UDP: its offload metadata concern the frame inside, and the port that sends
//!   it cuts it. It is cut before other headers, a second tunnel, or beyond the length of an IP
//!   packet.
//! - A pop verifies lengths and checksums of the outer headers. Offload metadata of a frame that a device left
//!   unfinished describe either the inner packet, which keeps them, or the outer one. A large segment of outer UDP becomes
//!   one of inner TCP if its datagrams are the segments of such a one, else it is cut.
//! - All packets of a large segment have the same key until their headers are parsed again.

use super::encap::{ETHERNET, packet_type};
use super::{Executor, Misfit, sums};
use crate::burst::HeaderCtx;
use crate::shared::DpShared;
use dpif::actions::TnlPush;
use dpif::actions::tnl_header::{self as th, Encap, TnlHeader, UDP_CSUM_COMPUTED, UDP_ENCAP_BYTES};
use dpif::{DropReason, TunnelKind, TunnelPort};
use flow::{DpPort, FlowKey, Tunnel, TunnelOptions, flow_hash, shape, tunnel_flags};
use packet::{GsoKind, Offload, Packet, PacketBatch, PacketPool, checksum, headers as h};
use std::ops::Range;

/// Group policy of a VXLAN header: its flags, and its id.
const GBP_FLAGS: u32 = 0x0048_0000;
const GBP_ID: u32 = 0xffff;
/// Options of a Geneve header, in words.
const GENEVE_LEN: u8 = 0x3f;
/// Version and options of a Geneve header.
const GENEVE_VERSION: u8 = 0xc0;
const GENEVE_OAM: u8 = 0x80;

/// A tunnel port with its options.
#[derive(Clone, Copy)]
pub(super) struct PoppedPort {
    port: DpPort,
    options: TunnelPort,
}

/// Metadata of a packet behind its outer headers, and where it begins.
struct Popped {
    tunnel: Tunnel,
    /// Place of the options.
    options: Range<usize>,
    at: usize,
}

impl Executor {
    /// Pushes outer headers. Of a large segment, the packet becomes the last one, and `earlier` gets the others.
    pub(super) fn push_tunnel(
        &mut self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        push: &TnlPush,
        earlier: &mut Vec<Packet>,
    ) -> Result<(), Misfit> {
        headers.refresh(packet);
        if packet_type(headers) != ETHERNET {
            return Err(Misfit);
        }
        let hash = flow_hash::five_tuple(headers.key, 0);
        if packet.offload.is_gso() && stays_whole(packet, &push.header) {
            encapsulate_whole(packet, &push.header, hash, &self.shared)?;
        } else {
            if packet.offload.is_gso() {
                self.cut(packet, earlier)?;
            }
            for part in earlier.iter_mut().chain([&mut *packet]) {
                encapsulate(part, &push.header, hash, &self.shared)?;
            }
        }
        headers.key.clear();
        headers.key.base.in_port = push.out_port.0;
        *headers.dirty = true;
        Ok(())
    }

    /// A tunnel port.
    pub(super) fn tunnel(&self, port: DpPort) -> Option<PoppedPort> {
        let options = *self.shared.tunnels.load().get(&port)?;
        Some(PoppedPort { port, options })
    }

    /// Removes the outer headers of a packet for a tunnel port; results as of a push.
    pub(super) fn pop_tunnel(
        &mut self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        tunnel: Option<&PoppedPort>,
        earlier: &mut Vec<Packet>,
    ) -> Result<(), Misfit> {
        let PoppedPort { port, options: of_port } = tunnel.ok_or(Misfit)?;
        headers.refresh(packet);
        let (l3, l4) = (headers.layout.l3.into(), headers.layout.l4.into());
        let popped = popped(packet.data(), headers.key, l3, l4, of_port)?;
        let options = match packet.data().get(popped.options.clone()) {
            Some([]) | None => None,
            Some(options) => Some(TunnelOptions::from_bytes(options).ok_or(Misfit)?),
        };
        let o = packet.offload;
        let is_inner = o.needs_csum && usize::from(o.csum_start) >= popped.at;
        if is_inner {
            packet.strip(popped.at);
        } else if !o.is_gso() || !self.join(packet, headers.key, l3, l4, popped.at)? {
            if o.is_gso() {
                self.cut(packet, earlier)?;
                self.drop_others(packet, earlier, l4 + h::UDP_HEADER_BYTES..popped.at, headers.key);
            }
            for part in earlier.iter_mut().chain([&mut *packet]) {
                verify(part, headers.key, l3, l4)?;
                part.offload = Offload::NONE;
                part.strip(popped.at);
            }
        }
        let key = &mut *headers.key;
        key.clear();
        (key.tunnel, key.base.shape) = (popped.tunnel, shape::TUNNEL);
        if let Some(options) = options {
            key.options = options;
            key.set_shape();
        }
        key.base.in_port = port.0;
        *headers.dirty = true;
        Ok(())
    }

    /// Makes one large inner segment of a large segment of outer UDP, if possible.
    fn join(
        &mut self,
        packet: &mut Packet,
        key: &FlowKey,
        l3: usize,
        l4: usize,
        at: usize,
    ) -> Result<bool, Misfit> {
        if packet.offload.gso != GsoKind::UdpL4 {
            return Ok(false);
        }
        verify(packet, key, l3, l4)?;
        Ok(packet::join(packet, l4, at))
    }

    /// Drops the datagrams of a large segment whose tunnel header, in that place, differs from the first one's: they may
    /// belong to another network.
    fn drop_others(
        &mut self,
        packet: &mut Packet,
        earlier: &mut Vec<Packet>,
        header: Range<usize>,
        key: &FlowKey,
    ) {
        let Some(first) = earlier.first().map(|p| p.data()[header.clone()].to_vec()) else { return };
        let rx_port = DpPort(key.base.in_port);
        let is_other = |p: &mut Packet| p.data().get(header.clone()) != Some(&first[..]);
        for other in earlier.extract_if(.., is_other) {
            self.ports.drop_packet(other, DropReason::TunnelPop, rx_port);
        }
        if is_other(packet)
            && let Some(last) = earlier.pop()
        {
            let other = std::mem::replace(packet, last);
            self.ports.drop_packet(other, DropReason::TunnelPop, rx_port);
        }
    }

    /// Cuts a large segment: the packet becomes the last of its segments.
    fn cut(&mut self, packet: &mut Packet, earlier: &mut Vec<Packet>) -> Result<(), Misfit> {
        let pool: &mut PacketPool = &mut self.ports.pool;
        let mut segments = PacketBatch::new();
        packet::segment(packet, pool, &mut segments).map_err(|_| Misfit)?;
        earlier.extend(segments.drain());
        let last = earlier.pop().ok_or(Misfit)?;
        pool.free(std::mem::replace(packet, last));
        self.ports.ledger.copied += earlier.len() as u64;
        Ok(())
    }
}

/// Whether a large segment gets these headers as a whole: ports can cut it, and its length fits.
fn stays_whole(packet: &Packet, header: &TnlHeader) -> bool {
    let is_udp = match &header.fields().encap {
        Encap::Vxlan { .. } | Encap::Geneve { .. } => true,
        Encap::Gre { .. } => false,
    };
    let ip_bytes = header.bytes().len() - h::ETH_HEADER_BYTES + packet.len();
    is_udp && ip_bytes <= u16::MAX.into() && packet::can_be_tunneled(packet)
}

/// Prepends the headers, and completes them for the packet.
fn encapsulate(packet: &mut Packet, header: &TnlHeader, hash: u32, shared: &DpShared) -> Result<(), Misfit> {
    sums::complete(packet);
    packet.offload = Offload::NONE;
    prepend(packet, header, hash, shared, false)
}

/// The same for a large segment, which the port cuts. The outer checksum is not computed before, but nobody need doubt it.
#[inline(never)]
fn encapsulate_whole(
    packet: &mut Packet,
    header: &TnlHeader,
    hash: u32,
    shared: &DpShared,
) -> Result<(), Misfit> {
    packet.offload.csum_valid = true;
    prepend(packet, header, hash, shared, true)
}

#[inline(always)]
fn prepend(
    packet: &mut Packet,
    header: &TnlHeader,
    hash: u32,
    shared: &DpShared,
    is_whole: bool,
) -> Result<(), Misfit> {
    let (bytes, l4) = (header.bytes(), header.l4());
    packet.prepend(bytes);
    let frame = packet.data_mut();
    let (l3, end) = (h::ETH_HEADER_BYTES, frame.len());
    let mut put = |at: usize, value: u16| frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    if header.is_v6() {
        put(l3 + 4, u16::try_from(end - l4).map_err(|_| Misfit)?);
    } else {
        let total = u16::try_from(end - l3).map_err(|_| Misfit)?;
        put(l3 + 2, total);
        let of_zero = u16::from_be_bytes([bytes[l3 + 10], bytes[l3 + 11]]);
        put(l3 + 10, checksum::update16(of_zero, 0, total));
    }
    match &header.fields().encap {
        Encap::Vxlan { udp, .. } | Encap::Geneve { udp, .. } => {
            if udp.src == 0 {
                put(l4, shared.egress_ports().of_hash(hash));
            }
            put(l4 + 4, (end - l4) as u16);
            if udp.csum == UDP_CSUM_COMPUTED && is_whole {
                // Of the pseudo-header alone, which is not 0: each segment has a checksum.
                let sum = checksum::fold(pseudo(frame, header.is_v6(), end - l4));
                frame[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
            } else if udp.csum == UDP_CSUM_COMPUTED {
                put(l4 + 6, 0);
                let sum = checksum::sum(&frame[l4..], pseudo(frame, header.is_v6(), end - l4));
                let sum = match !checksum::fold(sum) {
                    0 => u16::MAX,
                    sum => sum,
                };
                frame[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Encap::Gre { csum, key, seq, .. } => {
            if *seq {
                let at = l4 + 4 + if *csum { 4 } else { 0 } + if key.is_some() { 4 } else { 0 };
                let number = shared.next_tunnel_sequence(header.is_v6());
                frame[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            if *csum {
                let sum = checksum::checksum(&frame[l4..]);
                frame[l4 + 4..l4 + 6].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
    Ok(())
}

/// Sum of the pseudo-header of outer UDP.
fn pseudo(frame: &[u8], is_v6: bool, l4_bytes: usize) -> u64 {
    let (at, len) = if is_v6 { (h::ETH_HEADER_BYTES + 8, 16) } else { (h::ETH_HEADER_BYTES + 12, 4) };
    let (src, dst) = frame[at..at + 2 * len].split_at(len);
    checksum::pseudo(src, dst, h::IPPROTO_UDP, l4_bytes)
}

/// Verifies the checksums of the outer headers of a frame, and trims it to its IP packet.
fn verify(packet: &mut Packet, key: &FlowKey, l3: usize, l4: usize) -> Result<(), Misfit> {
    let o = packet.offload;
    let is_v6 = key.base.dl_type == h::ETH_TYPE_IPV6;
    let frame = packet.data();
    let length = h::be16(frame, l3 + if is_v6 { 4 } else { 2 }).ok_or(Misfit)?;
    let end = l3 + usize::from(length) + if is_v6 { h::IPV6_HEADER_BYTES } else { 0 };
    if end > frame.len() || end < l4 {
        return Err(Misfit);
    }
    let sum = |data: &[u8], from: u64| checksum::fold(checksum::sum(data, from));
    if !is_v6 && sum(&frame[l3..l4], 0) != u16::MAX {
        return Err(Misfit);
    }
    let done_by_device = o.needs_csum || o.csum_valid;
    if key.base.nw_proto == h::IPPROTO_UDP && !done_by_device && h::be16(frame, l4 + 6).ok_or(Misfit)? != 0 {
        let pseudo = if is_v6 {
            checksum::pseudo(&key.ipv6.src, &key.ipv6.dst, h::IPPROTO_UDP, end - l4)
        } else {
            let (src, dst) = (key.base.nw_src.to_be_bytes(), key.base.nw_dst.to_be_bytes());
            checksum::pseudo(&src, &dst, h::IPPROTO_UDP, end - l4)
        };
        if sum(&frame[l4..end], pseudo) != u16::MAX {
            return Err(Misfit);
        }
    }
    if key.base.nw_proto == th::IPPROTO_GRE
        && h::be16(frame, l4).ok_or(Misfit)? & th::GRE_HAS_CSUM != 0
        && sum(&frame[l4..end], 0) != u16::MAX
    {
        return Err(Misfit);
    }
    packet.set_len(end);
    Ok(())
}

/// Reads the outer headers.
#[inline]
fn popped(frame: &[u8], key: &FlowKey, l3: usize, l4: usize, port: &TunnelPort) -> Result<Popped, Misfit> {
    let b = &key.base;
    if b.nw_frag != 0 || l3 >= l4 || l4 >= frame.len() {
        return Err(Misfit);
    }
    let mut tunnel = Tunnel { tos: b.nw_tos, ttl: b.nw_ttl, ..Tunnel::default() };
    match b.dl_type {
        h::ETH_TYPE_IP => (tunnel.src, tunnel.dst) = (b.nw_src, b.nw_dst),
        h::ETH_TYPE_IPV6 if key.has(shape::IPV6) => {
            (tunnel.ipv6_src, tunnel.ipv6_dst) = (key.ipv6.src, key.ipv6.dst);
        }
        _ => return Err(Misfit),
    }
    let mut options = 0..0;
    let proto = if port.kind.is_gre() { th::IPPROTO_GRE } else { h::IPPROTO_UDP };
    if b.nw_proto != proto {
        return Err(Misfit);
    }
    let at = match port.kind {
        TunnelKind::Gre | TunnelKind::Ip6gre => gre(frame, l4, &mut tunnel)?,
        TunnelKind::Vxlan | TunnelKind::Geneve => {
            (tunnel.tp_src, tunnel.tp_dst) = (b.tp_src, b.tp_dst);
            if h::be16(frame, l4 + 6).ok_or(Misfit)? != 0 {
                tunnel.flags |= tunnel_flags::CSUM;
            }
            let header = h::array(frame, l4 + h::UDP_HEADER_BYTES).ok_or(Misfit)?;
            let at = l4 + h::UDP_HEADER_BYTES + UDP_ENCAP_BYTES;
            match port.kind {
                TunnelKind::Vxlan => vxlan(header, port, &mut tunnel).map(|()| at)?,
                TunnelKind::Geneve | TunnelKind::Gre | TunnelKind::Ip6gre => {
                    let bytes = geneve(header, &mut tunnel)?;
                    options = at..at + bytes;
                    at + bytes
                }
            }
        }
    };
    if frame.len() < at + h::ETH_HEADER_BYTES {
        return Err(Misfit);
    }
    Ok(Popped { tunnel, options, at })
}

fn vxlan(header: [u8; UDP_ENCAP_BYTES], port: &TunnelPort, tunnel: &mut Tunnel) -> Result<(), Misfit> {
    let [a, b, c, d, e, f, g, reserved] = header;
    let flags = u32::from_be_bytes([a, b, c, d]);
    let allowed = match port.gbp {
        true => th::VXLAN_HAS_VNI | th::VXLAN_HAS_GBP | GBP_FLAGS | GBP_ID,
        false => th::VXLAN_HAS_VNI,
    };
    if flags & th::VXLAN_HAS_VNI == 0 || flags & !allowed != 0 || reserved != 0 {
        return Err(Misfit);
    }
    if flags & th::VXLAN_HAS_GBP != 0 {
        tunnel.gbp_id = (flags & GBP_ID) as u16;
        tunnel.gbp_flags = ((flags & GBP_FLAGS) >> 16) as u8;
    }
    tunnel.id = u32::from_be_bytes([0, e, f, g]).into();
    tunnel.flags |= tunnel_flags::KEY;
    Ok(())
}

/// Returns the bytes of its options.
fn geneve(header: [u8; UDP_ENCAP_BYTES], tunnel: &mut Tunnel) -> Result<usize, Misfit> {
    let [first, flags, proto @ .., e, f, g, _] = header;
    if first & GENEVE_VERSION != 0 || u16::from_be_bytes(proto) != h::ETH_TYPE_TEB {
        return Err(Misfit);
    }
    if flags & GENEVE_OAM != 0 {
        tunnel.flags |= tunnel_flags::OAM;
    }
    tunnel.id = u32::from_be_bytes([0, e, f, g]).into();
    tunnel.flags |= tunnel_flags::KEY;
    Ok(usize::from(first & GENEVE_LEN) * 4)
}

/// Returns the offset of the frame inside.
fn gre(frame: &[u8], l4: usize, tunnel: &mut Tunnel) -> Result<usize, Misfit> {
    let flags = h::be16(frame, l4).ok_or(Misfit)?;
    let known = th::GRE_HAS_CSUM | th::GRE_HAS_KEY | th::GRE_HAS_SEQ;
    if flags & !known != 0 || h::be16(frame, l4 + 2) != Some(h::ETH_TYPE_TEB) {
        return Err(Misfit);
    }
    let mut at = l4 + 4;
    if flags & th::GRE_HAS_CSUM != 0 {
        tunnel.flags |= tunnel_flags::CSUM;
        at += 4;
    }
    if flags & th::GRE_HAS_KEY != 0 {
        tunnel.id = h::be32(frame, at).ok_or(Misfit)?.into();
        tunnel.flags |= tunnel_flags::KEY;
        at += 4;
    }
    if flags & th::GRE_HAS_SEQ != 0 {
        at += 4;
    }
    Ok(at)
}
