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

use super::encap::{self, ETHERNET, ETHERTYPES, packet_type};
use super::{ActionMismatch, Executor, apply, sums};
use crate::burst::HeaderCtx;
use crate::shared::{DpShared, Sequence};
use dpif::actions::tnl_header::{self as th, Encap, TnlHeader, UDP_CSUM_COMPUTED, UDP_ENCAP_BYTES};
use dpif::actions::{Rewrite, TnlPush};
use dpif::{DropReason, TunnelKind, TunnelPort};
use flow::{DpPort, Erspan, FlowKey, Tunnel, TunnelOptions, flow_hash, shape, tunnel_flags};
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
/// GTP-U: version, and its difference from GTP'.
const GTPU_VERSION: u8 = 0xf0;
/// GTP-U: a sequence number, an N-PDU number or extensions follow.
const GTPU_OPTIONAL: u8 = 7;
/// GTP-U: extensions follow.
const GTPU_EXTENDED: u8 = 4;

/// A tunnel port with its options.
#[derive(Clone, Copy)]
pub(super) struct PoppedPort {
    pub(super) port: DpPort,
    pub(super) options: TunnelPort,
}

/// Metadata of a packet behind its outer headers, and where it begins.
struct Popped {
    tunnel: Tunnel,
    /// Place of the options.
    options: Range<usize>,
    at: usize,
    packet_type: u32,
}

impl Executor {
    /// Pushes outer headers. A large segment becomes several packets: `earlier` gets all but the last one.
    pub(super) fn push_tunnel(
        &mut self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        push: &TnlPush,
        earlier: &mut Vec<Packet>,
    ) -> Result<(), ActionMismatch> {
        headers.refresh(packet);
        let inner = packet_type(headers);
        if !push.header.fields().encap.carries(inner) {
            return Err(ActionMismatch);
        }
        let hash = flow_hash::five_tuple(headers.key, 0);
        if packet.offload.is_gso() && inner == ETHERNET && stays_whole(packet, &push.header) {
            encapsulate_whole(packet, &push.header, hash, &self.shared, self.now_us)?;
        } else {
            if packet.offload.is_gso() {
                self.cut_behind(packet, inner, earlier)?;
            }
            for part in earlier.iter_mut().chain([&mut *packet]) {
                encapsulate(part, &push.header, hash, &self.shared, self.now_us)?;
            }
        }
        headers.key.clear();
        headers.key.base.in_port = push.out_port.0;
        *headers.dirty = true;
        Ok(())
    }

    /// Pushes headers behind which no port cuts a large segment: it is cut before. `earlier` as of a tunnel.
    pub(super) fn push_headers(
        &mut self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        rewrite: Rewrite<'_>,
        earlier: &mut Vec<Packet>,
    ) -> Result<(), ActionMismatch> {
        let inner = packet_type(headers);
        if packet.offload.is_gso() && !encap::stays_whole(rewrite, inner) {
            self.cut_behind(packet, inner, earlier)?;
        }
        for part in earlier {
            apply(rewrite, part, headers)?;
            encap::becomes(headers, inner);
        }
        apply(rewrite, packet, headers)
    }

    /// Cuts a large segment of any packet type: software cuts frames, so other packets get an Ethernet header meanwhile.
    fn cut_behind(
        &mut self,
        packet: &mut Packet,
        packet_type: u32,
        earlier: &mut Vec<Packet>,
    ) -> Result<(), ActionMismatch> {
        if packet_type == ETHERNET {
            return self.cut(packet, earlier);
        }
        let mut header = [0; h::ETH_HEADER_BYTES];
        header[h::ETH_HEADER_BYTES - 2..].copy_from_slice(&(packet_type as u16).to_be_bytes());
        packet.prepend(&header);
        self.cut(packet, earlier)?;
        earlier.iter_mut().chain([packet]).for_each(|part| part.strip(h::ETH_HEADER_BYTES));
        Ok(())
    }

    /// A tunnel port.
    pub(super) fn tunnel(&self, port: DpPort) -> Option<PoppedPort> {
        let options = *self.shared.tunnels.load().get(&port)?;
        Some(PoppedPort { port, options })
    }

    /// Tunnels of GRE and of ERSPAN have one IP protocol: the protocol of the GRE header tells them apart.
    #[inline]
    fn of_protocol(&self, popped: &PoppedPort, frame: &[u8], key: &FlowKey, l4: usize) -> PoppedPort {
        let kind = popped.options.kind;
        if !kind.is_gre() && !kind.is_erspan() || key.base.nw_proto != th::IPPROTO_GRE {
            return *popped;
        }
        let Some(proto) = h::be16(frame, l4 + 2) else { return *popped };
        if is_erspan(proto) == kind.is_erspan() {
            return *popped;
        }
        let mut kinds = match is_erspan(proto) {
            true => [TunnelKind::Erspan, TunnelKind::Ip6erspan],
            false => [TunnelKind::Gre, TunnelKind::Ip6gre],
        };
        if key.base.dl_type == h::ETH_TYPE_IPV6 {
            kinds.reverse();
        }
        let all = self.shared.tunnels.load();
        let found = kinds.iter().find_map(|kind| all.iter().find(|(_, options)| options.kind == *kind));
        found.map_or(*popped, |(port, options)| PoppedPort { port: *port, options: *options })
    }

    /// Removes the outer headers of a packet for a tunnel port; results as of a push.
    pub(super) fn pop_tunnel(
        &mut self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        tunnel: Option<&PoppedPort>,
        earlier: &mut Vec<Packet>,
    ) -> Result<(), ActionMismatch> {
        headers.refresh(packet);
        let (l3, l4) = (headers.layout.l3.into(), headers.layout.l4.into());
        let tunnel = self.of_protocol(tunnel.ok_or(ActionMismatch)?, packet.data(), headers.key, l4);
        let PoppedPort { port, options: of_port } = &tunnel;
        let popped = popped(packet.data(), headers.key, l3, l4, of_port)?;
        let options = match packet.data().get(popped.options.clone()) {
            Some([]) | None => None,
            Some(options) => Some(TunnelOptions::from_bytes(options).ok_or(ActionMismatch)?),
        };
        let o = packet.offload;
        let is_inner = o.needs_csum && usize::from(o.csum_start) >= popped.at;
        if is_inner {
            packet.strip(popped.at);
        } else if !o.is_gso() || !self.join(packet, headers.key, l3, l4, &popped)? {
            if o.is_gso() {
                self.cut(packet, earlier)?;
                self.drop_others(packet, earlier, l4 + h::UDP_HEADER_BYTES..popped.at, headers.key);
            }
            for part in earlier.iter_mut().chain([&mut *packet]) {
                let end = verify(part, headers.key, l3, l4)?;
                if end < popped.at + least(popped.packet_type) {
                    return Err(ActionMismatch);
                }
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
        if popped.packet_type != ETHERNET {
            encap::becomes(headers, popped.packet_type);
        }
        Ok(())
    }

    /// Makes one large inner segment of a large segment of outer UDP, if possible.
    fn join(
        &mut self,
        packet: &mut Packet,
        key: &FlowKey,
        l3: usize,
        l4: usize,
        popped: &Popped,
    ) -> Result<bool, ActionMismatch> {
        if packet.offload.gso != GsoKind::UdpL4 || popped.packet_type != ETHERNET {
            return Ok(false);
        }
        let end = verify(packet, key, l3, l4)?;
        packet.set_len(end);
        Ok(packet::join(packet, l4, popped.at))
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
    fn cut(&mut self, packet: &mut Packet, earlier: &mut Vec<Packet>) -> Result<(), ActionMismatch> {
        let pool: &mut PacketPool = &mut self.ports.pool;
        let mut segments = PacketBatch::new();
        packet::segment(packet, pool, &mut segments).map_err(|_| ActionMismatch)?;
        earlier.extend(segments.drain());
        let last = earlier.pop().ok_or(ActionMismatch)?;
        pool.free(std::mem::replace(packet, last));
        self.ports.ledger.copied += earlier.len() as u64;
        Ok(())
    }
}

/// Whether a large segment gets these headers as a whole: ports can cut it, and its length fits.
fn stays_whole(packet: &Packet, header: &TnlHeader) -> bool {
    let is_udp = match &header.fields().encap {
        Encap::Vxlan { .. } | Encap::Geneve { .. } => true,
        Encap::Gre { .. } | Encap::Erspan { .. } | Encap::Gtpu { .. } | Encap::Srv6 { .. } => false,
    };
    let ip_bytes = header.bytes().len() - h::ETH_HEADER_BYTES + packet.len();
    is_udp && ip_bytes <= u16::MAX.into() && packet::can_be_tunneled(packet)
}

/// Prepends the headers, and completes them for the packet.
fn encapsulate(
    packet: &mut Packet,
    header: &TnlHeader,
    hash: u32,
    shared: &DpShared,
    now_us: u64,
) -> Result<(), ActionMismatch> {
    sums::complete(packet);
    packet.offload = Offload::NONE;
    prepend(packet, header, hash, shared, now_us, false)
}

/// Encapsulates a large segment, which the port cuts: it computes the outer checksum, so that one counts as verified.
#[inline(never)]
fn encapsulate_whole(
    packet: &mut Packet,
    header: &TnlHeader,
    hash: u32,
    shared: &DpShared,
    now_us: u64,
) -> Result<(), ActionMismatch> {
    packet.offload.csum_valid = true;
    prepend(packet, header, hash, shared, now_us, true)
}

#[inline(always)]
fn prepend(
    packet: &mut Packet,
    header: &TnlHeader,
    hash: u32,
    shared: &DpShared,
    now_us: u64,
    is_whole: bool,
) -> Result<(), ActionMismatch> {
    let (bytes, l4) = (header.bytes(), header.l4());
    packet.prepend(bytes);
    let frame = packet.data_mut();
    let (l3, end) = (h::ETH_HEADER_BYTES, frame.len());
    let mut put = |at: usize, value: u16| frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
    if header.is_v6() {
        put(l3 + 4, u16::try_from(end - l4).map_err(|_| ActionMismatch)?);
    } else {
        let total = u16::try_from(end - l3).map_err(|_| ActionMismatch)?;
        put(l3 + 2, total);
        let of_zero = u16::from_be_bytes([bytes[l3 + 10], bytes[l3 + 11]]);
        put(l3 + 10, checksum::update16(of_zero, 0, total));
    }
    match &header.fields().encap {
        Encap::Vxlan { udp, .. } | Encap::Geneve { udp, .. } | Encap::Gtpu { udp, .. } => {
            let is_gtpu = matches!(header.fields().encap, Encap::Gtpu { .. });
            if is_gtpu {
                let payload = end - l4 - h::UDP_HEADER_BYTES - UDP_ENCAP_BYTES;
                put(l4 + h::UDP_HEADER_BYTES + 2, payload as u16);
            }
            if udp.src == 0 {
                put(l4, shared.egress_ports().of_hash(hash));
            }
            put(l4 + 4, (end - l4) as u16);
            if udp.csum == UDP_CSUM_COMPUTED && is_whole {
                // The sum of the pseudo-header alone, which is not 0: each segment has a checksum.
                let sum = checksum::fold(pseudo(frame, header.is_v6(), end - l4));
                frame[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
            } else if udp.csum == UDP_CSUM_COMPUTED || is_gtpu {
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
                let number = shared.next_sequence(Sequence::of_gre(header.is_v6()));
                frame[at..at + 4].copy_from_slice(&number.to_be_bytes());
            }
            if *csum {
                let sum = checksum::checksum(&frame[l4..]);
                frame[l4 + 4..l4 + 6].copy_from_slice(&sum.to_be_bytes());
            }
        }
        Encap::Srv6 { .. } => {
            // The push checked that an IP packet is inside.
            let is_v6 = frame.get(bytes.len()).is_some_and(|first| first >> 4 == 6);
            frame[l4] = if is_v6 { th::IPPROTO_IPV6 } else { th::IPPROTO_IPIP };
        }
        Encap::Erspan { erspan, .. } => {
            let number = shared.next_sequence(Sequence::of_erspan(header.is_v6()));
            frame[l4 + 4..l4 + 8].copy_from_slice(&number.to_be_bytes());
            if erspan.ver != 1 {
                let at = l4 + th::ERSPAN_GRE_BYTES + 4;
                let hundreds_us = (shared.wall_us(now_us) / 100) as u32;
                frame[at..at + 4].copy_from_slice(&hundreds_us.to_be_bytes());
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

/// Verifies lengths and checksums of the outer headers of a frame. Returns the end of its IP packet: as in OVS, bytes
/// behind that stay.
fn verify(packet: &Packet, key: &FlowKey, l3: usize, l4: usize) -> Result<usize, ActionMismatch> {
    let o = packet.offload;
    let is_v6 = key.base.dl_type == h::ETH_TYPE_IPV6;
    let frame = packet.data();
    let length = h::be16(frame, l3 + if is_v6 { 4 } else { 2 }).ok_or(ActionMismatch)?;
    let end = l3 + usize::from(length) + if is_v6 { h::IPV6_HEADER_BYTES } else { 0 };
    if end > frame.len() || end < l4 {
        return Err(ActionMismatch);
    }
    let sum = |data: &[u8], from: u64| checksum::fold(checksum::sum(data, from));
    if !is_v6 && sum(&frame[l3..l4], 0) != u16::MAX {
        return Err(ActionMismatch);
    }
    let done_by_device = o.needs_csum || o.csum_valid;
    if key.base.nw_proto == h::IPPROTO_UDP
        && !done_by_device
        && h::be16(frame, l4 + 6).ok_or(ActionMismatch)? != 0
    {
        let pseudo = if is_v6 {
            checksum::pseudo(&key.ipv6.src, &key.ipv6.dst, h::IPPROTO_UDP, end - l4)
        } else {
            let (src, dst) = (key.base.nw_src.to_be_bytes(), key.base.nw_dst.to_be_bytes());
            checksum::pseudo(&src, &dst, h::IPPROTO_UDP, end - l4)
        };
        if sum(&frame[l4..end], pseudo) != u16::MAX {
            return Err(ActionMismatch);
        }
    }
    // The kernel leaves that of GRE to the device too.
    let is_left = o.needs_csum && usize::from(o.csum_start) == l4;
    if key.base.nw_proto == th::IPPROTO_GRE
        && !is_left
        && h::be16(frame, l4).ok_or(ActionMismatch)? & th::GRE_HAS_CSUM != 0
        && sum(&frame[l4..end], 0) != u16::MAX
    {
        return Err(ActionMismatch);
    }
    Ok(end)
}

/// Minimum bytes of a packet of that type.
fn least(packet_type: u32) -> usize {
    if packet_type == ETHERNET { h::ETH_HEADER_BYTES } else { 1 }
}

/// Reads the outer headers.
#[inline]
fn popped(
    frame: &[u8],
    key: &FlowKey,
    l3: usize,
    l4: usize,
    port: &TunnelPort,
) -> Result<Popped, ActionMismatch> {
    let b = &key.base;
    if b.nw_frag != 0 || l3 >= l4 || l4 >= frame.len() {
        return Err(ActionMismatch);
    }
    let mut tunnel = Tunnel { tos: b.nw_tos, ttl: b.nw_ttl, ..Tunnel::default() };
    match b.dl_type {
        h::ETH_TYPE_IP => (tunnel.src, tunnel.dst) = (b.nw_src, b.nw_dst),
        h::ETH_TYPE_IPV6 if key.has(shape::IPV6) => {
            (tunnel.ipv6_src, tunnel.ipv6_dst) = (key.ipv6.src, key.ipv6.dst);
        }
        _ => return Err(ActionMismatch),
    }
    let mut options = 0..0;
    let proto = match port.kind {
        TunnelKind::Gre | TunnelKind::Ip6gre | TunnelKind::Erspan | TunnelKind::Ip6erspan => th::IPPROTO_GRE,
        TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu => h::IPPROTO_UDP,
        TunnelKind::Srv6 if b.nw_proto == th::IPPROTO_IPIP => th::IPPROTO_IPIP,
        TunnelKind::Srv6 => th::IPPROTO_IPV6,
    };
    if b.nw_proto != proto {
        return Err(ActionMismatch);
    }
    let (at, packet_type) = match port.kind {
        TunnelKind::Gre | TunnelKind::Ip6gre => {
            let (proto, at) = gre(frame, l4, &mut tunnel)?;
            match proto {
                h::ETH_TYPE_TEB => (at, ETHERNET),
                proto if proto < h::ETH_TYPE_MIN || is_erspan(proto) => return Err(ActionMismatch),
                proto => (at, ETHERTYPES | u32::from(proto)),
            }
        }
        TunnelKind::Erspan | TunnelKind::Ip6erspan => (erspan(frame, l4, &mut tunnel)?, ETHERNET),
        TunnelKind::Srv6 => (l4, srv6(frame, l3, l4, proto)?),
        TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu => {
            (tunnel.tp_src, tunnel.tp_dst) = (b.tp_src, b.tp_dst);
            if h::be16(frame, l4 + 6).ok_or(ActionMismatch)? != 0 {
                tunnel.flags |= tunnel_flags::CSUM;
            }
            let header = h::array(frame, l4 + h::UDP_HEADER_BYTES).ok_or(ActionMismatch)?;
            let at = l4 + h::UDP_HEADER_BYTES + UDP_ENCAP_BYTES;
            match port.kind {
                TunnelKind::Vxlan => (at, vxlan(header, port, &mut tunnel)?),
                TunnelKind::Gtpu => gtpu(frame, header, at, &mut tunnel)?,
                TunnelKind::Geneve
                | TunnelKind::Gre
                | TunnelKind::Ip6gre
                | TunnelKind::Erspan
                | TunnelKind::Ip6erspan
                | TunnelKind::Srv6 => {
                    let bytes = geneve(header, &mut tunnel)?;
                    options = at..at + bytes;
                    (at + bytes, ETHERNET)
                }
            }
        }
    };
    if frame.len() < at + least(packet_type) {
        return Err(ActionMismatch);
    }
    Ok(Popped { tunnel, options, at, packet_type })
}

/// Returns the packet type of the payload. As in OVS, a header with a next protocol is one of any VXLAN port.
fn vxlan(
    header: [u8; UDP_ENCAP_BYTES],
    port: &TunnelPort,
    tunnel: &mut Tunnel,
) -> Result<u32, ActionMismatch> {
    let [a, b, c, d, e, f, g, reserved] = header;
    let flags = u32::from_be_bytes([a, b, c, d]);
    if flags & th::VXLAN_HAS_GPE != 0 {
        // Neither another version nor a message of the tunnel's control.
        if flags & !0xff != th::VXLAN_HAS_VNI | th::VXLAN_HAS_GPE || reserved != 0 {
            return Err(ActionMismatch);
        }
        tunnel.id = u32::from_be_bytes([0, e, f, g]).into();
        tunnel.flags |= tunnel_flags::KEY;
        return th::gpe_packet_type(d).ok_or(ActionMismatch);
    }
    let allowed = match port.gbp {
        true => th::VXLAN_HAS_VNI | th::VXLAN_HAS_GBP | GBP_FLAGS | GBP_ID,
        false => th::VXLAN_HAS_VNI,
    };
    if flags & th::VXLAN_HAS_VNI == 0 || flags & !allowed != 0 || reserved != 0 {
        return Err(ActionMismatch);
    }
    if flags & th::VXLAN_HAS_GBP != 0 {
        tunnel.gbp_id = (flags & GBP_ID) as u16;
        tunnel.gbp_flags = ((flags & GBP_FLAGS) >> 16) as u8;
    }
    tunnel.id = u32::from_be_bytes([0, e, f, g]).into();
    tunnel.flags |= tunnel_flags::KEY;
    Ok(ETHERNET)
}

/// Returns offset and type of the packet inside: of a message without one, the whole frame. `at` is behind the mandatory
/// part of the header.
fn gtpu(
    frame: &[u8],
    header: [u8; UDP_ENCAP_BYTES],
    at: usize,
    tunnel: &mut Tunnel,
) -> Result<(usize, u32), ActionMismatch> {
    let [flags, msgtype, length @ .., a, b, c, d] = header;
    let end = at + usize::from(u16::from_be_bytes(length));
    if flags & GTPU_VERSION != th::GTPU_FLAGS || end > frame.len() {
        return Err(ActionMismatch);
    }
    (tunnel.gtpu_flags, tunnel.gtpu_msgtype) = (flags, msgtype);
    if msgtype != th::GTPU_GPDU {
        return Ok((0, ETHERNET));
    }
    tunnel.id = u32::from_be_bytes([a, b, c, d]).into();
    tunnel.flags |= tunnel_flags::KEY;
    let mut at = at;
    if flags & GTPU_OPTIONAL != 0 {
        let mut next = *frame.get(at + 3).ok_or(ActionMismatch)?;
        at += 4;
        // Each extension has its length in words first, and the type of the next one last.
        while flags & GTPU_EXTENDED != 0 && next != 0 {
            let bytes = usize::from(*frame.get(at).ok_or(ActionMismatch)?) * 4;
            at += bytes;
            if bytes == 0 || at > end {
                return Err(ActionMismatch);
            }
            next = frame[at - 1];
        }
    }
    match frame.get(at).filter(|_| at < end).map(|first| first >> 4) {
        Some(4) => Ok((at, ETHERTYPES | u32::from(h::ETH_TYPE_IP))),
        Some(6) => Ok((at, ETHERTYPES | u32::from(h::ETH_TYPE_IPV6))),
        Some(_) | None => Err(ActionMismatch),
    }
}

/// Returns the bytes of its options.
fn geneve(header: [u8; UDP_ENCAP_BYTES], tunnel: &mut Tunnel) -> Result<usize, ActionMismatch> {
    let [first, flags, proto @ .., e, f, g, _] = header;
    if first & GENEVE_VERSION != 0 || u16::from_be_bytes(proto) != h::ETH_TYPE_TEB {
        return Err(ActionMismatch);
    }
    if flags & GENEVE_OAM != 0 {
        tunnel.flags |= tunnel_flags::OAM;
    }
    tunnel.id = u32::from_be_bytes([0, e, f, g]).into();
    tunnel.flags |= tunnel_flags::KEY;
    Ok(usize::from(first & GENEVE_LEN) * 4)
}

/// Returns protocol and offset of the payload.
fn gre(frame: &[u8], l4: usize, tunnel: &mut Tunnel) -> Result<(u16, usize), ActionMismatch> {
    let flags = h::be16(frame, l4).ok_or(ActionMismatch)?;
    let proto = h::be16(frame, l4 + 2).ok_or(ActionMismatch)?;
    let known = th::GRE_HAS_CSUM | th::GRE_HAS_KEY | th::GRE_HAS_SEQ;
    if flags & !known != 0 {
        return Err(ActionMismatch);
    }
    let mut at = l4 + 4;
    if flags & th::GRE_HAS_CSUM != 0 {
        tunnel.flags |= tunnel_flags::CSUM;
        at += 4;
    }
    if flags & th::GRE_HAS_KEY != 0 {
        tunnel.id = h::be32(frame, at).ok_or(ActionMismatch)?.into();
        tunnel.flags |= tunnel_flags::KEY;
        at += 4;
    }
    if flags & th::GRE_HAS_SEQ != 0 {
        at += 4;
    }
    Ok((proto, at))
}

/// Returns the offset of the frame inside. As in the kernel and in OVS, the header's version counts, not the protocol.
fn erspan(frame: &[u8], l4: usize, tunnel: &mut Tunnel) -> Result<usize, ActionMismatch> {
    let (proto, at) = gre(frame, l4, tunnel)?;
    let has_number = h::be16(frame, l4).is_some_and(|flags| flags & th::GRE_HAS_SEQ != 0);
    if !is_erspan(proto) || !has_number {
        return Err(ActionMismatch);
    }
    let first = h::be32(frame, at).ok_or(ActionMismatch)?;
    let mut erspan = Erspan { ver: (first >> 28) as u8, ..Erspan::default() };
    tunnel.id = u64::from(first as u16 & th::ERSPAN_SESSION);
    tunnel.flags = tunnel.flags & !tunnel_flags::CSUM | tunnel_flags::KEY;
    let bytes = match erspan.ver {
        1 => {
            erspan.idx = h::be32(frame, at + 4).ok_or(ActionMismatch)? & Erspan::ALL.idx;
            th::ERSPAN1_BYTES
        }
        2 => {
            let last = h::be16(frame, at + 10).ok_or(ActionMismatch)?;
            (erspan.hwid, erspan.dir) = ((last >> 4) as u8 & Erspan::ALL.hwid, (last >> 3) as u8 & 1);
            // A subheader of the platform may follow.
            th::ERSPAN2_BYTES + if last & 1 != 0 { th::ERSPAN2_PLATFORM_BYTES } else { 0 }
        }
        _ => return Err(ActionMismatch),
    };
    tunnel.set_erspan(&erspan);
    Ok(at + bytes)
}

/// Returns the type of the packet inside. It has arrived: no segment is left.
fn srv6(frame: &[u8], l3: usize, l4: usize, proto: u8) -> Result<u32, ActionMismatch> {
    let routing = l3 + h::IPV6_HEADER_BYTES;
    if h::be16(frame, l3).is_none_or(|first| first >> 12 != 6) {
        return Err(ActionMismatch);
    }
    if l4 > routing {
        // Only a routing header may be between, whose fourth byte counts the segments left.
        let [next, words, kind, left] = h::array(frame, routing).ok_or(ActionMismatch)?;
        let is_whole = next == proto && routing + (usize::from(words) + 1) * 8 == l4;
        if frame.get(l3 + 6) != Some(&h::IPPROTO_ROUTING)
            || !is_whole
            || kind != th::SRV6_ROUTING_TYPE
            || left != 0
        {
            return Err(ActionMismatch);
        }
    }
    let (version, ethertype) =
        if proto == th::IPPROTO_IPIP { (4, h::ETH_TYPE_IP) } else { (6, h::ETH_TYPE_IPV6) };
    match frame.get(l4).map(|first| first >> 4) {
        Some(found) if found == version => Ok(ETHERTYPES | u32::from(ethertype)),
        Some(_) | None => Err(ActionMismatch),
    }
}

fn is_erspan(proto: u16) -> bool {
    matches!(proto, th::ETH_TYPE_ERSPAN1 | th::ETH_TYPE_ERSPAN2)
}
