//! Executes `ct`: tracks packets, and translates their addresses and ports.
//!
//! A group runs in passes: first all keys are read and their buckets fetched, then their records, then each packet is
//! tracked, in order of arrival.

use super::{Executor, Misfit, set, sums};
use crate::burst::{Arrays, HeaderCtx, LaneMask};
use conntrack::{Key, Lookup, PacketInfo, Request, Translation};
use dpif::{Ipv4Set, Ipv6Set, Masked, PortsSet};
use flow::DpPort;
use packet::headers as h;
use packet::{BATCH_MAX_PACKETS, Packet, checksum};
use std::net::IpAddr;

/// From this number of connections on, their records are worth fetching ahead.
const PREFETCH_CONNECTIONS: u32 = 4096;

impl Executor {
    /// Tracks one packet; a misfit is to be dropped. `may_grow`: helpers may change its length.
    pub(crate) fn track(
        &self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        rx_port: DpPort,
        request: &Request,
        may_grow: bool,
    ) -> Result<(), Misfit> {
        headers.refresh(packet);
        let info = PacketInfo::read(packet, headers.key, *headers.layout, request.zone);
        let lookup =
            info.as_ref().map(|info| self.shared.tracker().look_ahead(&info.key)).unwrap_or_default();
        self.track_read(packet, headers, rx_port, request, info.as_ref().map(|i| (i, lookup)), may_grow)
    }

    fn track_read(
        &self,
        packet: &mut Packet,
        headers: &mut HeaderCtx<'_>,
        rx_port: DpPort,
        request: &Request,
        info: Option<(&PacketInfo, Lookup)>,
        may_grow: bool,
    ) -> Result<(), Misfit> {
        if let Some((info, _)) = info
            && let Some(helper) = info.control(request.helper)
        {
            return self.track_control(packet, headers, rx_port, request, info, helper, may_grow);
        }
        let tracker = self.shared.tracker();
        let (port, now_ms) = (rx_port.0, self.now_us / 1000);
        let translation = match info {
            Some((info, lookup)) => tracker.track_looked_up(info, lookup, request, headers.key, port, now_ms),
            None => tracker.track(None, request, headers.key, port, now_ms),
        };
        apply(packet, headers, translation)
    }

    /// Tracks the packets of `lanes`, except for fragments; returns those, and misfits.
    pub(crate) fn track_group(
        &self,
        arrays: &mut Arrays,
        lanes: LaneMask,
        request: &Request,
    ) -> (LaneMask, LaneMask) {
        let tracker = self.shared.tracker();
        let mut infos: [Option<PacketInfo>; BATCH_MAX_PACKETS] = [const { None }; BATCH_MAX_PACKETS];
        let mut lookups = [Lookup::default(); BATCH_MAX_PACKETS];
        let mut fragments = LaneMask::NONE;
        for lane in lanes {
            let (packet, mut headers) = arrays.packet_and_headers(lane, self.vlan_limit);
            headers.refresh(packet);
            if headers.key.base.nw_frag != 0 {
                fragments.add(LaneMask::one(lane));
                continue;
            }
            let info = PacketInfo::read(packet, headers.key, *headers.layout, request.zone);
            if let Some(info) = &info {
                lookups[lane] = tracker.look_ahead(&info.key);
            }
            infos[lane] = info;
        }
        if tracker.connections() > PREFETCH_CONNECTIONS {
            for lane in lanes {
                if let Some(info) = &infos[lane] {
                    tracker.look_further(&mut lookups[lane], &info.key);
                }
            }
        }
        let mut misfits = LaneMask::NONE;
        for lane in lanes.without(fragments) {
            let rx_port = arrays.origins[lane].rx_port;
            let (packet, mut headers) = arrays.packet_and_headers(lane, self.vlan_limit);
            let info = infos[lane].as_ref().map(|info| (info, lookups[lane]));
            if self.track_read(packet, &mut headers, rx_port, request, info, true).is_err() {
                misfits.add(LaneMask::one(lane));
            }
        }
        (fragments, misfits)
    }
}

/// Translates a packet.
pub(super) fn apply(
    packet: &mut Packet,
    headers: &mut HeaderCtx<'_>,
    translation: Option<Translation>,
) -> Result<(), Misfit> {
    match translation {
        None => Ok(()),
        Some(Translation::Tuple(to)) => translate(packet, headers, &to),
        Some(Translation::Error { src, dst, inner }) => {
            set_addresses(packet, headers, src, dst)?;
            translate_cited(packet, headers, &inner)
        }
    }
}

/// Gives a packet the addresses and ports of a tuple.
fn translate(packet: &mut Packet, headers: &mut HeaderCtx<'_>, to: &Key) -> Result<(), Misfit> {
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
) -> Result<(), Misfit> {
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
fn translate_cited(packet: &mut Packet, headers: &HeaderCtx<'_>, to: &Key) -> Result<(), Misfit> {
    let message = usize::from(headers.layout.l4);
    let l3 = message + h::ICMP_HEADER_BYTES;
    let [src, dst] = to.addresses();
    let frame = packet.data();
    let l4 = l3 + conntrack::cited_transport(to, frame.get(l3..).ok_or(Misfit)?).ok_or(Misfit)?;
    let before = frame.get(message..).ok_or(Misfit)?.to_vec();
    let frame = packet.data_mut();
    let old_addresses = cited_addresses(frame, l3, src.is_ipv6()).to_vec();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let header = frame.get_mut(l3..l3 + h::IPV4_HEADER_BYTES).ok_or(Misfit)?;
            let old: [u8; 8] = h::array(header, 12).ok_or(Misfit)?;
            header[12..16].copy_from_slice(&src.octets());
            header[16..20].copy_from_slice(&dst.octets());
            let sum = u16::from_be_bytes([header[10], header[11]]);
            let sum = checksum::update_bytes(sum, &old, &header[12..20]);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let header = frame.get_mut(l3..l3 + h::IPV6_HEADER_BYTES).ok_or(Misfit)?;
            header[8..24].copy_from_slice(&src.octets());
            header[24..40].copy_from_slice(&dst.octets());
        }
        _ => return Err(Misfit),
    }
    let rest = to.rest();
    if matches!(rest.proto, h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_SCTP) {
        let ports = frame.get_mut(l4..l4 + 4).ok_or(Misfit)?;
        let old_ports: [u8; 4] = h::array(ports, 0).ok_or(Misfit)?;
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
