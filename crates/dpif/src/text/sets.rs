//! Headers common to keys and set actions: printing and parsing of their fields.

use super::TextError;
use super::options;
use super::token::Item;
use super::values::{TUNNEL_FLAGS, flags, ipv4, ipv6, mac, masked};
use super::write::{self, Base, Fields};
use crate::actions::{ArpSet, EthSet, Ipv4Set, Ipv6Set, Masked, NdExtSet, NdSet, PortsSet};
use flow::{Erspan, Nsh, OuterHeaders, Tunnel, tunnel_flags};

pub(crate) fn put_eth(f: &mut Fields, m: &Masked<EthSet>) {
    f.mac("src", m.value.src, m.mask.src);
    f.mac("dst", m.value.dst, m.mask.dst);
}

/// Fields of an IPv4 header; only keys have `proto` and `frag`.
pub(crate) fn put_ipv4(f: &mut Fields, m: &Masked<Ipv4Set>, proto: Option<(u8, u8)>) {
    f.ipv4("src", m.value.src, m.mask.src);
    f.ipv4("dst", m.value.dst, m.mask.dst);
    if let Some((value, mask)) = proto {
        f.number("proto", value.into(), mask.into(), 0xff, Base::Dec);
    }
    f.number("tos", m.value.tos.into(), m.mask.tos.into(), 0xff, Base::Hex);
    f.number("ttl", m.value.ttl.into(), m.mask.ttl.into(), 0xff, Base::Dec);
}

pub(crate) fn put_ipv6(f: &mut Fields, m: &Masked<Ipv6Set>, proto: Option<(u8, u8)>) {
    f.ipv6("src", m.value.src, m.mask.src);
    f.ipv6("dst", m.value.dst, m.mask.dst);
    let label = m.mask.label & 0xf_ffff;
    f.number("label", (m.value.label & 0xf_ffff).into(), label.into(), 0xf_ffff, Base::Hex);
    if let Some((value, mask)) = proto {
        f.number("proto", value.into(), mask.into(), 0xff, Base::Dec);
    }
    f.number("tclass", m.value.tclass.into(), m.mask.tclass.into(), 0xff, Base::Hex);
    f.number("hlimit", m.value.hlimit.into(), m.mask.hlimit.into(), 0xff, Base::Dec);
}

pub(crate) fn put_arp(f: &mut Fields, m: &Masked<ArpSet>, op_full: u16) {
    f.ipv4("sip", m.value.spa, m.mask.spa);
    f.ipv4("tip", m.value.tpa, m.mask.tpa);
    f.number("op", m.value.op.into(), m.mask.op.into(), op_full.into(), Base::Dec);
    f.mac("sha", m.value.sha, m.mask.sha);
    f.mac("tha", m.value.tha, m.mask.tha);
}

pub(crate) fn put_nd(f: &mut Fields, m: &Masked<NdSet>) {
    f.ipv6("target", m.value.target, m.mask.target);
    f.mac("sll", m.value.sll, m.mask.sll);
    f.mac("tll", m.value.tll, m.mask.tll);
}

/// As in OVS, except that it prints reserved bytes that are not matched, as 0, and no mask of them.
pub(crate) fn put_nd_ext(f: &mut Fields, m: &Masked<NdExtSet>) {
    f.number("nd_reserved", m.value.reserved.into(), m.mask.reserved.into(), u32::MAX.into(), Base::Hex);
    let (value, mask) = (m.value.options_type, m.mask.options_type & 0xff);
    f.number("nd_options_type", value.into(), mask.into(), 0xff, Base::Dec);
}

/// Two numbers, named `src` and `dst` or `type` and `code`.
pub(crate) fn put_ports(f: &mut Fields, m: &Masked<PortsSet>, names: [&str; 2], full: u16) {
    f.number(names[0], m.value.src.into(), (m.mask.src & full).into(), full.into(), Base::Dec);
    f.number(names[1], m.value.dst.into(), (m.mask.dst & full).into(), full.into(), Base::Dec);
}

/// Outer headers. Without a mask, as in an action, zero fields are omitted, except the time to live.
pub(crate) fn put_tunnel(f: &mut Fields, outer: &OuterHeaders, outer_mask: Option<&OuterHeaders>) {
    let (t, mask) = (&outer.tunnel, outer_mask.map(|m| &m.tunnel));
    let all = Tunnel {
        id: u64::MAX,
        src: u32::MAX,
        dst: u32::MAX,
        ipv6_src: [0xff; 16],
        ipv6_dst: [0xff; 16],
        flags: u16::MAX,
        tos: u8::MAX,
        ttl: u8::MAX,
        tp_src: u16::MAX,
        tp_dst: u16::MAX,
        gbp_id: u16::MAX,
        gbp_flags: u8::MAX,
        gtpu_flags: u8::MAX,
        gtpu_msgtype: u8::MAX,
        erspan_ver_idx: [u8::MAX; 3],
    };
    let m = mask.unwrap_or(&all);
    if mask.is_some() || t.flags & tunnel_flags::KEY != 0 {
        f.number("tun_id", t.id, m.id, u64::MAX, Base::Hex);
    }
    // Attributes that are zero are not part of a tunnel key, except the time to live.
    if t.src != 0 {
        f.ipv4("src", t.src, m.src);
    }
    if t.dst != 0 {
        f.ipv4("dst", t.dst, m.dst);
    }
    if t.ipv6_src != [0; 16] {
        f.ipv6("ipv6_src", t.ipv6_src, m.ipv6_src);
    }
    if t.ipv6_dst != [0; 16] {
        f.ipv6("ipv6_dst", t.ipv6_dst, m.ipv6_dst);
    }
    if t.tos != 0 {
        f.number("tos", t.tos.into(), m.tos.into(), 0xff, Base::Hex);
    }
    f.number("ttl", t.ttl.into(), m.ttl.into(), 0xff, Base::Dec);
    if t.tp_src != 0 {
        f.number("tp_src", t.tp_src.into(), m.tp_src.into(), 0xffff, Base::Dec);
    }
    if t.tp_dst != 0 {
        f.number("tp_dst", t.tp_dst.into(), m.tp_dst.into(), 0xffff, Base::Dec);
    }
    let has_policy = t.gbp_id != 0 || t.gbp_flags != 0;
    if if mask.is_some() { m.gbp_id != 0 || m.gbp_flags != 0 } else { has_policy } {
        let mut gbp = Fields::new(false);
        gbp.number("id", t.gbp_id.into(), m.gbp_id.into(), 0xffff, Base::Dec);
        gbp.number("flags", t.gbp_flags.into(), m.gbp_flags.into(), 0xff, Base::Hex);
        f.raw(&format!("vxlan({})", gbp.finish("gbp")));
    }
    if !outer.options.is_empty() {
        f.raw(&options::format(&outer.options, outer_mask.map(|m| &m.options)));
    }
    put_erspan(f, &t.erspan(), &m.erspan());
    if t.gtpu_flags != 0 || t.gtpu_msgtype != 0 {
        let mut gtpu = Fields::new(f.verbose);
        gtpu.number("flags", t.gtpu_flags.into(), m.gtpu_flags.into(), 0xff, Base::Hex);
        gtpu.number("msgtype", t.gtpu_msgtype.into(), m.gtpu_msgtype.into(), 0xff, Base::Dec);
        f.raw(&gtpu.finish("gtpu"));
    }
    if m.flags & tunnel_flags::ALL != 0 {
        let names = write::flags(t.flags.into(), m.flags.into(), &TUNNEL_FLAGS, tunnel_flags::ALL.into());
        f.raw(&format!("flags({names})"));
    }
}

/// An ERSPAN header. As in OVS, version 1 has its index even if that is not matched.
fn put_erspan(f: &mut Fields, e: &Erspan, m: &Erspan) {
    if e.ver == 0 {
        return;
    }
    let mut fields = Fields::new(f.verbose);
    fields.number("ver", e.ver.into(), m.ver.into(), 0xf, Base::Dec);
    if e.ver == 1 {
        fields.verbose = true;
        fields.number("idx", e.idx.into(), m.idx.into(), 0xf_ffff, Base::Hex);
    } else {
        fields.number("dir", e.dir.into(), m.dir.into(), 1, Base::Dec);
        fields.number("hwid", e.hwid.into(), m.hwid.into(), 0x3f, Base::Hex);
    }
    f.raw(&fields.finish("erspan"));
}

fn erspan(item: &Item<'_>) -> Result<Masked<Erspan>, TextError> {
    let mut both = Masked::<Erspan>::default();
    let (e, m) = (&mut both.value, &mut both.mask);
    for field in item.args()? {
        match field.name {
            "ver" => (e.ver, m.ver) = masked(field.value()?, 0xf).map(|(v, m)| (v as u8, m as u8))?,
            "idx" => {
                (e.idx, m.idx) = masked(field.value()?, 0xf_ffff).map(|(v, m)| (v as u32, m as u32))?;
            }
            "dir" => (e.dir, m.dir) = masked(field.value()?, 1).map(|(v, m)| (v as u8, m as u8))?,
            "hwid" => (e.hwid, m.hwid) = masked(field.value()?, 0x3f).map(|(v, m)| (v as u8, m as u8))?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    if m.ver == 0 && e.ver == 0 {
        // Brief text omits a version that is not matched. Version 1 has its index.
        e.ver = if item.args()?.iter().any(|field| field.name == "idx") { 1 } else { 2 };
    }
    Ok(both)
}

/// Outer headers, and the mask of named bits.
pub(crate) fn tunnel(item: &Item<'_>) -> Result<Masked<OuterHeaders>, TextError> {
    let mut both = Masked::<OuterHeaders>::default();
    let (t, m) = (&mut both.value.tunnel, &mut both.mask.tunnel);
    for field in item.args()? {
        match field.name {
            "tun_id" => {
                (t.id, m.id) = masked(field.value()?, u64::MAX)?;
                // Naming a key implies its presence.
                t.flags |= tunnel_flags::KEY;
            }
            "src" => (t.src, m.src) = ipv4(field.value()?)?,
            "dst" => (t.dst, m.dst) = ipv4(field.value()?)?,
            "ipv6_src" => (t.ipv6_src, m.ipv6_src) = ipv6(field.value()?)?,
            "ipv6_dst" => (t.ipv6_dst, m.ipv6_dst) = ipv6(field.value()?)?,
            "tos" => (t.tos, m.tos) = byte(field)?,
            "ttl" => (t.ttl, m.ttl) = byte(field)?,
            "tp_src" => (t.tp_src, m.tp_src) = word(field, 0xffff)?,
            "tp_dst" => (t.tp_dst, m.tp_dst) = word(field, 0xffff)?,
            "vxlan" => {
                for gbp in field.args()?.iter().map(Item::args) {
                    for part in gbp? {
                        match part.name {
                            "id" => (t.gbp_id, m.gbp_id) = word(part, 0xffff)?,
                            "flags" => (t.gbp_flags, m.gbp_flags) = byte(part)?,
                            _ => return Err(part.unknown("gbp")),
                        }
                    }
                }
            }
            "geneve" => {
                (both.value.options, both.mask.options) = options::parse(field)?;
            }
            "erspan" => {
                let Masked { value, mask } = erspan(field)?;
                t.set_erspan(&value);
                m.set_erspan(&mask);
            }
            "gtpu" => {
                for part in field.args()? {
                    match part.name {
                        "flags" => (t.gtpu_flags, m.gtpu_flags) = byte(part)?,
                        "msgtype" => (t.gtpu_msgtype, m.gtpu_msgtype) = byte(part)?,
                        _ => return Err(part.unknown("gtpu")),
                    }
                }
            }
            "flags" => {
                let set = if field.args()?.is_empty() { "" } else { field.word()? };
                let (value, mask) = flags(set, &TUNNEL_FLAGS, tunnel_flags::ALL.into())?;
                (t.flags, m.flags) = (t.flags | value as u16, m.flags | mask as u16);
            }
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(both)
}

pub(crate) fn eth(item: &Item<'_>) -> Result<Masked<EthSet>, TextError> {
    let mut m = Masked::<EthSet>::default();
    for field in item.args()? {
        match field.name {
            "src" => (m.value.src, m.mask.src) = mac(field.value()?)?,
            "dst" => (m.value.dst, m.mask.dst) = mac(field.value()?)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

fn byte(field: &Item<'_>) -> Result<(u8, u8), TextError> {
    masked(field.value()?, 0xff).map(|(v, m)| (v as u8, m as u8))
}

fn word(field: &Item<'_>, full: u16) -> Result<(u16, u16), TextError> {
    masked(field.value()?, full.into()).map(|(v, m)| (v as u16, m as u16))
}

/// Position of a field in an MPLS label stack entry (RFC 3032): its shift, and all its bits.
pub(crate) fn mpls_part(name: &str) -> Option<(u32, u32)> {
    match name {
        "label" => Some((12, 0xf_ffff)),
        "tc" => Some((9, 7)),
        "bos" => Some((8, 1)),
        "ttl" => Some((0, 0xff)),
        _ => None,
    }
}

/// One entry of an MPLS label stack.
pub(crate) fn mpls(item: &Item<'_>) -> Result<Masked<u32>, TextError> {
    let mut m = Masked::<u32>::default();
    for field in item.args()? {
        let (shift, full) = mpls_part(field.name).ok_or_else(|| field.unknown(item.name))?;
        let (value, mask) = masked(field.value()?, full.into())?;
        m.value |= (value as u32) << shift;
        m.mask |= (mask as u32) << shift;
    }
    Ok(m)
}

/// The matched or written fields of a network service header. As in OVS, masks have all their digits.
pub(crate) fn nsh_text(value: &Nsh, mask: &Nsh) -> String {
    let mut out = Vec::new();
    let byte = |name: &str, value: u8, mask: u8| match mask {
        0 => None,
        u8::MAX => Some(format!("{name}={value}")),
        _ => Some(format!("{name}=0x{value:02x}/0x{mask:02x}")),
    };
    let word = |name: String, value: u32, mask: u32| match mask {
        0 => None,
        u32::MAX => Some(format!("{name}={value:#x}")),
        _ => Some(format!("{name}={value:#x}/0x{mask:08x}")),
    };
    out.extend(byte("flags", value.flags, mask.flags));
    out.extend(byte("ttl", value.ttl, mask.ttl));
    out.extend(byte("mdtype", value.mdtype, mask.mdtype));
    out.extend(byte("np", value.np, mask.np));
    let spi_mask = mask.path >> 8;
    let spi_mask = if spi_mask == 0xff_ffff { u32::MAX } else { spi_mask };
    out.extend(word("spi".into(), value.path >> 8, spi_mask));
    out.extend(byte("si", value.path as u8, mask.path as u8));
    let contexts = value.context.iter().zip(mask.context).enumerate();
    out.extend(contexts.filter_map(|(i, (value, mask))| word(format!("c{}", i + 1), *value, mask)));
    out.join(",")
}

/// A network service header.
pub(crate) fn nsh(item: &Item<'_>, more: More<'_>) -> Result<Masked<Nsh>, TextError> {
    let mut m = Masked::<Nsh>::default();
    let number =
        |field: &Item<'_>, full: u64| masked(field.value()?, full).map(|(v, m)| (v as u32, m as u32));
    for field in item.args()? {
        let (v, w) = (&mut m.value, &mut m.mask);
        let contexts = ["c1", "c2", "c3", "c4"];
        match field.name {
            "flags" => (v.flags, w.flags) = small(number(field, 3)?, 3),
            "ttl" => (v.ttl, w.ttl) = small(number(field, 0x3f)?, 0x3f),
            "mdtype" => (v.mdtype, w.mdtype) = small(number(field, 0xff)?, 0xff),
            "np" => (v.np, w.np) = small(number(field, 0xff)?, 0xff),
            "spi" => {
                let (spi, mask) = number(field, 0xff_ffff)?;
                (v.path, w.path) = (v.path & 0xff | spi << 8, w.path & 0xff | mask << 8);
            }
            "si" => {
                let (si, mask) = number(field, 0xff)?;
                (v.path, w.path) = (v.path & !0xff | si, w.path & !0xff | mask);
            }
            name => match contexts.iter().position(|context| *context == name) {
                Some(i) => (v.context[i], w.context[i]) = number(field, u32::MAX.into())?,
                None if more(field)? => {}
                None => return Err(field.unknown(item.name)),
            },
        }
    }
    Ok(m)
}

/// A field of less than eight bits: its whole mask has eight.
fn small((value, mask): (u32, u32), full: u32) -> (u8, u8) {
    (value as u8, if mask == full { u8::MAX } else { mask as u8 })
}

/// Bytes after `0x`; `0` for none.
pub(crate) fn hex_bytes(text: &str) -> Result<Vec<u8>, TextError> {
    let bad = || TextError(format!("{text:?} is not 0x and pairs of hexadecimal digits"));
    if text == "0" {
        return Ok(Vec::new());
    }
    let digits =
        text.strip_prefix("0x").filter(|d| d.len().is_multiple_of(2) && d.is_ascii()).ok_or_else(bad)?;
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    pairs.collect::<Result<_, _>>().map_err(|_| bad())
}

/// Parses `field` if only keys have it; returns whether it was one.
pub(crate) type More<'m> = &'m mut dyn FnMut(&Item<'_>) -> Result<bool, TextError>;

/// The [`More`] of set actions.
pub(crate) fn nothing_more(_: &Item<'_>) -> Result<bool, TextError> {
    Ok(false)
}

pub(crate) fn ipv4_header(item: &Item<'_>, more: More<'_>) -> Result<Masked<Ipv4Set>, TextError> {
    let mut m = Masked::<Ipv4Set>::default();
    for field in item.args()? {
        match field.name {
            "src" => (m.value.src, m.mask.src) = ipv4(field.value()?)?,
            "dst" => (m.value.dst, m.mask.dst) = ipv4(field.value()?)?,
            "tos" => (m.value.tos, m.mask.tos) = byte(field)?,
            "ttl" => (m.value.ttl, m.mask.ttl) = byte(field)?,
            _ if more(field)? => {}
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(crate) fn ipv6_header(item: &Item<'_>, more: More<'_>) -> Result<Masked<Ipv6Set>, TextError> {
    let mut m = Masked::<Ipv6Set>::default();
    for field in item.args()? {
        match field.name {
            "src" => (m.value.src, m.mask.src) = ipv6(field.value()?)?,
            "dst" => (m.value.dst, m.mask.dst) = ipv6(field.value()?)?,
            "label" => {
                let (value, mask) = masked(field.value()?, 0xf_ffff)?;
                (m.value.label, m.mask.label) = (value as u32, mask as u32);
            }
            "tclass" => (m.value.tclass, m.mask.tclass) = byte(field)?,
            "hlimit" => (m.value.hlimit, m.mask.hlimit) = byte(field)?,
            _ if more(field)? => {}
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(crate) fn arp(item: &Item<'_>) -> Result<Masked<ArpSet>, TextError> {
    let mut m = Masked::<ArpSet>::default();
    for field in item.args()? {
        match field.name {
            "sip" => (m.value.spa, m.mask.spa) = ipv4(field.value()?)?,
            "tip" => (m.value.tpa, m.mask.tpa) = ipv4(field.value()?)?,
            "op" => (m.value.op, m.mask.op) = word(field, 0xffff)?,
            "sha" => (m.value.sha, m.mask.sha) = mac(field.value()?)?,
            "tha" => (m.value.tha, m.mask.tha) = mac(field.value()?)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(crate) fn nd(item: &Item<'_>) -> Result<Masked<NdSet>, TextError> {
    let mut m = Masked::<NdSet>::default();
    for field in item.args()? {
        match field.name {
            "target" => (m.value.target, m.mask.target) = ipv6(field.value()?)?,
            "sll" => (m.value.sll, m.mask.sll) = mac(field.value()?)?,
            "tll" => (m.value.tll, m.mask.tll) = mac(field.value()?)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(crate) fn nd_ext(item: &Item<'_>) -> Result<Masked<NdExtSet>, TextError> {
    let mut m = Masked::<NdExtSet>::default();
    for field in item.args()? {
        match field.name {
            "nd_reserved" => {
                let (value, mask) = masked(field.value()?, u32::MAX.into())?;
                (m.value.reserved, m.mask.reserved) = (value as u32, mask as u32);
            }
            "nd_options_type" => (m.value.options_type, m.mask.options_type) = word(field, 0xff)?,
            _ => return Err(field.unknown(item.name)),
        }
    }
    Ok(m)
}

pub(crate) fn ports(item: &Item<'_>, names: [&str; 2], full: u16) -> Result<Masked<PortsSet>, TextError> {
    let mut m = Masked::<PortsSet>::default();
    for field in item.args()? {
        if field.name == names[0] {
            (m.value.src, m.mask.src) = word(field, full)?;
        } else if field.name == names[1] {
            (m.value.dst, m.mask.dst) = word(field, full)?;
        } else {
            return Err(field.unknown(item.name));
        }
    }
    Ok(m)
}
