//! Actions on the usual packets of a group, as kernels ([`simd`]): set actions, and the outer headers of VXLAN and Geneve
//! over IPv4.
//!
//! A push or pop here leaves all packets alone that need more: a checksum, segmentation, other headers, a misfit. The
//! functions in `tunnel` execute those, and are the oracle.

use super::tunnel::PoppedPort;
use super::{ActionMismatch, encap};
use crate::burst::{Arrays, HeaderCtx, LaneMask};
use dpif::actions::TnlPush;
use dpif::actions::tnl_header::{Encap, TnlHeader, UDP_ENCAP_BYTES, VXLAN_HAS_VNI};
use dpif::{EgressPorts, TunnelKind};
use flow::extract::Metadata;
use flow::template::Common;
use flow::{Tunnel, flow_hash, shape, tunnel_flags};
use packet::{Offload, Packet, checksum, headers as h};
use simd::{Kernel, Lanes};

/// Outer headers: Ethernet, IPv4, UDP, VXLAN or Geneve without options.
const OUTER_BYTES: usize = h::ETH_HEADER_BYTES + h::IPV4_HEADER_BYTES + h::UDP_HEADER_BYTES + UDP_ENCAP_BYTES;
/// The first word of a VXLAN header, without its VNI.
const VXLAN_REST: u64 = 0xffff_ffff_0000_00ff;

/// Changes the packets of `lanes`; returns those that the change does not fit.
pub(super) struct Rewrites<'a, F> {
    pub(super) arrays: &'a mut Arrays,
    pub(super) lanes: LaneMask,
    pub(super) vlan_limit: u8,
    pub(super) change: F,
}

impl<F: Fn(&mut Packet, &mut HeaderCtx<'_>) -> Result<(), ActionMismatch>> Kernel for Rewrites<'_, F> {
    type Output = LaneMask;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> LaneMask {
        let Rewrites { arrays, lanes, vlan_limit, change } = self;
        let mut misfits = LaneMask::NONE;
        for lane in lanes {
            let (packet, mut headers) = arrays.packet_and_headers(lane, vlan_limit);
            if change(packet, &mut headers).is_err() {
                misfits.add(LaneMask::one(lane));
            }
        }
        misfits
    }
}

/// Pushes headers onto the usual packets of `lanes`; returns those.
pub(super) struct Pushes<'a> {
    pub(super) arrays: &'a mut Arrays,
    pub(super) lanes: LaneMask,
    pub(super) vlan_limit: u8,
    pub(super) push: &'a TnlPush,
    pub(super) egress_ports: EgressPorts,
}

impl Kernel for Pushes<'_> {
    type Output = LaneMask;

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) -> LaneMask {
        let Pushes { arrays, lanes, vlan_limit, push, egress_ports } = self;
        let mut done = LaneMask::NONE;
        let Some((outer, has_port)) = usual_outer(&push.header) else { return done };
        for lane in lanes {
            let (packet, mut headers) = arrays.packet_and_headers(lane, vlan_limit);
            let is_usual = !packet.offload.needs_csum
                && !packet.offload.is_gso()
                && packet.len() <= usize::from(u16::MAX) - OUTER_BYTES
                && encap::packet_type(&headers) == encap::ETHERNET;
            if !is_usual {
                continue;
            }
            headers.refresh(packet);
            let port = match has_port {
                true => None,
                false => Some(egress_ports.of_hash(flow_hash::five_tuple(headers.key, 0))),
            };
            push_outer(packet, outer, port);
            headers.key.clear();
            headers.key.base.in_port = push.out_port.0;
            *headers.dirty = true;
            done.add(LaneMask::one(lane));
        }
        done
    }
}

/// The outer headers, if they are the usual ones, and whether they have a source port.
#[inline(always)]
fn usual_outer(header: &TnlHeader) -> Option<(&[u8; OUTER_BYTES], bool)> {
    let has_port = match &header.fields().encap {
        Encap::Vxlan { udp, flags, .. } if *flags == VXLAN_HAS_VNI && udp.csum == 0 => udp.src != 0,
        Encap::Geneve { udp, .. } if udp.csum == 0 => udp.src != 0,
        Encap::Vxlan { .. }
        | Encap::Geneve { .. }
        | Encap::Gre { .. }
        | Encap::Erspan { .. }
        | Encap::Gtpu { .. }
        | Encap::Srv6 { .. } => return None,
    };
    let outer = header.bytes().try_into().ok()?;
    (!header.is_v6() && header.l4() == h::ETH_HEADER_BYTES + h::IPV4_HEADER_BYTES)
        .then_some((outer, has_port))
}

/// Prepends the headers with lengths, the checksum of the IPv4 header and a source port, if it is chosen here.
#[inline(always)]
fn push_outer(packet: &mut Packet, outer: &[u8; OUTER_BYTES], port: Option<u16>) {
    const L3: usize = h::ETH_HEADER_BYTES;
    const L4: usize = L3 + h::IPV4_HEADER_BYTES;
    let total = (packet.len() + OUTER_BYTES - L3) as u16;
    let mut outer = *outer;
    outer[L3 + 2..L3 + 4].copy_from_slice(&total.to_be_bytes());
    let of_zero = u16::from_be_bytes([outer[L3 + 10], outer[L3 + 11]]);
    let sum = !checksum::fold(u64::from(!of_zero) + u64::from(u16::MAX) + u64::from(total));
    outer[L3 + 10..L3 + 12].copy_from_slice(&sum.to_be_bytes());
    if let Some(port) = port {
        outer[L4..L4 + 2].copy_from_slice(&port.to_be_bytes());
    }
    outer[L4 + 4..L4 + 6].copy_from_slice(&(total - h::IPV4_HEADER_BYTES as u16).to_be_bytes());
    packet.offload = Offload::NONE;
    packet.prepend(&outer);
}

/// Pops the outer headers of the usual packets of `lanes`, and parses what was inside; returns those packets.
pub(super) struct Pops<'a> {
    pub(super) arrays: &'a mut Arrays,
    pub(super) lanes: LaneMask,
    pub(super) vlan_limit: u8,
    pub(super) port: &'a PoppedPort,
    /// Parses common packets by the template.
    pub(super) template: bool,
}

impl Kernel for Pops<'_> {
    type Output = LaneMask;

    #[inline(always)]
    fn run<L: Lanes>(self, level: L) -> LaneMask {
        let Pops { arrays, lanes, vlan_limit, port, template } = self;
        let mut done = LaneMask::NONE;
        if port.options.kind != TunnelKind::Vxlan {
            return done;
        }
        let md = Metadata { in_port: port.port.0, ..Metadata::default() };
        let common = Common::new(&md, vlan_limit);
        for lane in lanes {
            let (packet, headers) = arrays.packet_and_headers(lane, vlan_limit);
            let Some((tunnel, at)) = usual_tunnel(packet, &headers) else { continue };
            packet.offload = Offload::NONE;
            packet.strip(at);
            let HeaderCtx { key, layout, dirty, .. } = headers;
            // Not in a closure, which would be compiled for the baseline.
            let parsed = match packet.head() {
                Some(head) if template => common.extract(head, packet.len(), key, level),
                Some(_) | None => None,
            };
            match parsed {
                Some(parsed) => {
                    #[cfg(test)]
                    crate::tests::parses::count(1);
                    *layout = parsed;
                }
                None => {
                    key.clear();
                    key.base.in_port = md.in_port;
                    *dirty = true;
                }
            }
            key.tunnel = tunnel;
            key.base.shape |= shape::TUNNEL;
            done.add(LaneMask::one(lane));
        }
        done
    }
}

/// The metadata of a usual packet's outer headers, and where the frame inside begins.
#[inline(always)]
fn usual_tunnel(packet: &Packet, headers: &HeaderCtx<'_>) -> Option<(Tunnel, usize)> {
    let (b, o) = (&headers.key.base, &packet.offload);
    let (l3, l4) = (usize::from(headers.layout.l3), usize::from(headers.layout.l4));
    let is_usual = !*headers.dirty
        && b.shape == 0
        && b.dl_type == h::ETH_TYPE_IP
        && b.nw_proto == h::IPPROTO_UDP
        && b.nw_frag == 0
        && !o.needs_csum
        && !o.is_gso();
    if !is_usual || l4 != l3 + h::IPV4_HEADER_BYTES {
        return None;
    }
    let outer: &[u8; OUTER_BYTES - h::ETH_HEADER_BYTES] = packet.data().get(l3..)?.first_chunk()?;
    let (ip, udp) = outer.split_first_chunk::<{ h::IPV4_HEADER_BYTES }>()?;
    let (udp, vxlan) = udp.split_first_chunk::<{ h::UDP_HEADER_BYTES }>()?;
    let vxlan = u64::from_be_bytes(*vxlan.first_chunk()?);
    let at = l3 + outer.len();
    let end = l3 + usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let fits = vxlan & VXLAN_REST == u64::from(VXLAN_HAS_VNI) << 32
        && udp[6..] == [0, 0]
        && end <= packet.len()
        && end >= at + h::ETH_HEADER_BYTES
        && checksum::ipv4_header_is_right(ip);
    let tunnel = Tunnel {
        id: vxlan >> 8 & 0xff_ffff,
        src: b.nw_src,
        dst: b.nw_dst,
        tos: b.nw_tos,
        ttl: b.nw_ttl,
        tp_src: b.tp_src,
        tp_dst: b.tp_dst,
        flags: tunnel_flags::KEY,
        ..Tunnel::default()
    };
    fits.then_some((tunnel, at))
}
