//! Outer headers as attributes (`OVS_TUNNEL_KEY_ATTR_*`): within keys and masks, and within the `set` action.

use super::Fitness;
use crate::nlattr::{AttrError, AttrWriter, Attrs};
use crate::options::TunnelOptions;
use crate::tunnel::{Erspan, OuterHeaders, Tunnel, tunnel_flags as flag};

/// Attribute types.
mod attr {
    pub(super) const ID: u16 = 0;
    pub(super) const IPV4_SRC: u16 = 1;
    pub(super) const IPV4_DST: u16 = 2;
    pub(super) const TOS: u16 = 3;
    pub(super) const TTL: u16 = 4;
    pub(super) const DONT_FRAGMENT: u16 = 5;
    pub(super) const CSUM: u16 = 6;
    pub(super) const OAM: u16 = 7;
    pub(super) const GENEVE_OPTS: u16 = 8;
    pub(super) const TP_SRC: u16 = 9;
    pub(super) const TP_DST: u16 = 10;
    pub(super) const VXLAN_OPTIONS: u16 = 11;
    pub(super) const IPV6_SRC: u16 = 12;
    pub(super) const IPV6_DST: u16 = 13;
    pub(super) const PAD: u16 = 14;
    /// Within VXLAN_OPTIONS: the id in the low 16 bits, flags above.
    pub(super) const VXLAN_GBP: u16 = 1;
}

/// Flags with a separate attribute each.
const FLAGS: [(u16, u16); 3] =
    [(attr::DONT_FRAGMENT, flag::DF), (attr::CSUM, flag::CSUM), (attr::OAM, flag::OAM)];

/// Writes outer headers: zeros are omitted, except the time to live, which the kernel requires.
pub fn write_tunnel(out: &mut AttrWriter, outer: &OuterHeaders) {
    write_fixed(out, &outer.tunnel);
    if !outer.options.is_empty() {
        out.put(attr::GENEVE_OPTS, outer.options.as_bytes());
    }
}

/// Writes the mask of such outer headers. Empty options match packets without any; beside a group policy the kernel
/// accepts none.
pub(super) fn write_tunnel_mask(out: &mut AttrWriter, of: &OuterHeaders, mask: &OuterHeaders) {
    write_fixed(out, &mask.tunnel);
    if !of.options.is_empty() || !has_policy(&of.tunnel) {
        out.put(attr::GENEVE_OPTS, mask.options.mask_bytes(&of.options));
    }
}

fn write_fixed(out: &mut AttrWriter, t: &Tunnel) {
    if t.flags & flag::KEY != 0 || t.id != 0 {
        out.put(attr::ID, &t.id.to_be_bytes());
    }
    for (kind, address) in [(attr::IPV4_SRC, t.src), (attr::IPV4_DST, t.dst)] {
        if address != 0 {
            out.be32(kind, address);
        }
    }
    for (kind, address) in [(attr::IPV6_SRC, t.ipv6_src), (attr::IPV6_DST, t.ipv6_dst)] {
        if address != [0; 16] {
            out.put(kind, &address);
        }
    }
    if t.tos != 0 {
        out.u8(attr::TOS, t.tos);
    }
    out.u8(attr::TTL, t.ttl);
    for (kind, bit) in FLAGS {
        if t.flags & bit != 0 {
            out.flag(kind);
        }
    }
    for (kind, port) in [(attr::TP_SRC, t.tp_src), (attr::TP_DST, t.tp_dst)] {
        if port != 0 {
            out.be16(kind, port);
        }
    }
    if has_policy(t) {
        let gbp = u32::from(t.gbp_flags) << 16 | u32::from(t.gbp_id);
        out.nested(attr::VXLAN_OPTIONS, |out| out.u32(attr::VXLAN_GBP, gbp));
    }
}

/// Parses outer headers with their fitness: options of ERSPAN are lost.
///
/// # Errors
/// An attribute has a wrong size for its type, or an invalid value.
pub fn parse_tunnel(attrs: Attrs<'_>) -> Result<(OuterHeaders, Fitness), AttrError> {
    parse(attrs, TunnelOptions::from_bytes)
}

/// Parses the mask of outer headers.
///
/// # Errors
/// An attribute has a wrong size for its type, or an invalid value.
pub(super) fn parse_tunnel_mask(attrs: Attrs<'_>) -> Result<(OuterHeaders, Fitness), AttrError> {
    parse(attrs, TunnelOptions::from_mask_bytes)
}

fn parse(
    attrs: Attrs<'_>,
    options_of: impl Fn(&[u8]) -> Option<TunnelOptions>,
) -> Result<(OuterHeaders, Fitness), AttrError> {
    let mut options = TunnelOptions::default();
    let (mut t, mut fitness) = (Tunnel::default(), Fitness::Perfect);
    for a in attrs {
        match a.kind {
            attr::ID => (t.id, t.flags) = (u64::from_be_bytes(a.array()?), t.flags | flag::KEY),
            attr::IPV4_SRC => t.src = a.be32()?,
            attr::IPV4_DST => t.dst = a.be32()?,
            attr::IPV6_SRC => t.ipv6_src = a.array()?,
            attr::IPV6_DST => t.ipv6_dst = a.array()?,
            attr::TOS => t.tos = a.u8()?,
            attr::TTL => t.ttl = a.u8()?,
            attr::TP_SRC => t.tp_src = a.be16()?,
            attr::TP_DST => t.tp_dst = a.be16()?,
            attr::VXLAN_OPTIONS => {
                let gbp = a.nested()?.get(attr::VXLAN_GBP).map_or(Ok(0), |a| a.u32())?;
                t.gbp_id = gbp as u16;
                t.gbp_flags = u8::try_from(gbp >> 16).map_err(|_| AttrError::Value(a.kind))?;
            }
            attr::GENEVE_OPTS => options = options_of(a.content).ok_or(AttrError::Value(a.kind))?,
            attr::PAD => {}
            kind => match FLAGS.iter().find(|(known, _)| *known == kind) {
                Some((_, bit)) => t.flags |= bit,
                None if a.content.iter().any(|b| *b != 0) => fitness = Fitness::TooMuch,
                None => {}
            },
        }
    }
    Ok((OuterHeaders { tunnel: t, options }, fitness))
}

/// Whether the kernel's key of such a packet has a group policy.
fn has_policy(key: &Tunnel) -> bool {
    key.gbp_id != 0 || key.gbp_flags != 0
}

/// Whether the kernel's keys can express the mask: a group policy only for packets with one.
pub(super) fn tunnel_mask_fits(key: &Tunnel, mask: &Tunnel) -> bool {
    has_policy(key) || !has_policy(mask)
}

/// The mask that the kernel will hold for such a tunnel.
pub(super) fn kernel_tunnel_mask(key: &Tunnel, mask: &Tunnel) -> Tunnel {
    let mut out = *mask;
    if !has_policy(key) {
        (out.gbp_id, out.gbp_flags) = (0, 0);
    }
    if key.dst != 0 {
        (out.ipv6_src, out.ipv6_dst) = ([0; 16], [0; 16]);
    } else {
        (out.src, out.dst) = (0, 0);
    }
    // No packet of the kernel has these.
    (out.gtpu_flags, out.gtpu_msgtype) = (0, 0);
    out.set_erspan(&Erspan::default());
    out.flags &= flag::ALL;
    if out.id != 0 {
        // A match on the key includes its presence.
        out.flags |= flag::KEY;
    }
    out
}
