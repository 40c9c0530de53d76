//! The match structures of OpenFlow 1.1 and later: the fixed one of 1.1 (§A.2.3), or OXM.
//!
//! OVS reads either in all of these versions, and writes the fixed one in 1.1 where the receiver may know no other.
//! Decoding a fixed match normalises like OVS: a field without its matched prerequisites becomes a wildcard.

use crate::match10::{L4_FIELDS, VLAN_NONE, is_icmp};
use flow::fields::FieldId;
use flow::{Match, VlanTag};
use ofp_wire::nxm::{self, Unknown, exists};
use ofp_wire::{ErrorKind, Reader, Res, Version, Writer};

/// Bytes of the fixed structure.
const BYTES: u16 = 88;

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_VLAN_PCP: u32 = 1 << 2;
const DL_TYPE: u32 = 1 << 3;
const NW_TOS: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const MPLS_LABEL: u32 = 1 << 8;
const MPLS_TC: u32 = 1 << 9;
/// All wildcard bits.
const WILDCARDS: u32 = (1 << 10) - 1;
const ETH_TYPE_IP: u16 = 0x0800;
const IPPROTO_ICMP: u8 = 1;
/// `dl_vlan` that matches packets with any tag.
const VLAN_ANY: u16 = 0xfffe;

/// Reads either structure.
pub(crate) fn read(r: &mut Reader<'_>, unknown: Unknown) -> Res<Box<Match>> {
    let mut m = Box::default();
    read_to(r, unknown, &mut m)?;
    Ok(m)
}

/// As [`read`], into `m`, which matches all packets before.
pub(crate) fn read_to(r: &mut Reader<'_>, unknown: Unknown, m: &mut Match) -> Res<()> {
    let mut head = Reader::new(r.peek(), r.version).or(ErrorKind::BmcBadLen);
    if head.u16()? != 0 {
        return nxm::read_oxm_match_to(r, unknown, m);
    }
    if head.u16()? != BYTES {
        return Err(ErrorKind::BmcBadLen);
    }
    let mut fixed = r.sub(BYTES.into()).map_err(|_| ErrorKind::BmcBadLen)?;
    fixed.skip(4)?;
    read_fixed(&mut fixed, m)
}

/// Reads the fixed structure, whatever its type and length say.
pub(crate) fn read_body(r: &mut Reader<'_>) -> Res<Box<Match>> {
    let mut m = Box::default();
    r.skip(4)?;
    read_fixed(r, &mut m)?;
    Ok(m)
}

/// Value and mask of a field whose mask has ones for wildcards.
fn masked(r: &mut Reader<'_>, bytes: usize) -> Res<(u128, u128)> {
    let (value, wild) = (r.uint(bytes)?, r.uint(bytes)?);
    let mask = !wild & (u128::MAX >> (128 - 8 * bytes));
    Ok((value & mask, mask))
}

fn read_fixed(r: &mut Reader<'_>, m: &mut Match) -> Res<()> {
    let (in_port, wild) = (r.u32()?, r.u32()?);
    let on = |bit: u32| wild & bit == 0;
    let (dl_src, dl_dst) = (masked(r, 6)?, masked(r, 6)?);
    let (dl_vlan, dl_vlan_pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (dl_type, nw_tos, nw_proto) = (r.u16()?, r.u8()?, r.u8()?);
    let (nw_src, nw_dst) = (masked(r, 4)?, masked(r, 4)?);
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);
    let (mpls_label, mpls_tc) = (r.u32()?, r.u8()?);
    r.skip(3)?;
    let metadata = masked(r, 8)?;

    let mut put = |yes: bool, field: FieldId, (value, mask): (u128, u128)| {
        if yes && mask != 0 && exists(field, m) {
            m.set_masked(field, value, mask);
        }
    };
    if on(IN_PORT) && !nxm::port_number_ok(in_port) {
        return Err(ErrorKind::BmcBadValue);
    }
    put(on(IN_PORT), FieldId::InPortOxm, (in_port.into(), u32::MAX.into()));
    put(true, FieldId::EthSrc, dl_src);
    put(true, FieldId::EthDst, dl_dst);
    let (tci, tci_mask) = vlan(on(DL_VLAN), dl_vlan, on(DL_VLAN_PCP), dl_vlan_pcp)?;
    put(true, FieldId::VlanTci, (tci.into(), tci_mask.into()));
    put(on(DL_TYPE), FieldId::EthType, (dl_type.into(), 0xffff));
    let is_ipv4 = on(DL_TYPE) && dl_type == ETH_TYPE_IP;
    if is_ipv4 && on(NW_TOS) {
        if nw_tos & !0xfc != 0 {
            return Err(ErrorKind::BmcBadValue);
        }
        put(true, FieldId::NwTos, (nw_tos.into(), 0xfc));
    }
    put(is_ipv4 && on(NW_PROTO), FieldId::NwProto, (nw_proto.into(), 0xff));
    put(on(NW_PROTO), FieldId::ArpOp, (nw_proto.into(), 0xff));
    for (src, dst) in [(FieldId::IpSrc, FieldId::IpDst), (FieldId::ArpSpa, FieldId::ArpTpa)] {
        put(true, src, nw_src);
        put(true, dst, nw_dst);
    }
    let icmp = is_ipv4 && on(NW_PROTO) && nw_proto == IPPROTO_ICMP;
    if icmp && (on(TP_SRC) && tp_src > 0xff || on(TP_DST) && tp_dst > 0xff) {
        return Err(ErrorKind::BmcBadField);
    }
    for (src, dst) in L4_FIELDS {
        put(on(TP_SRC), src, (tp_src.into(), src.full_mask()));
        put(on(TP_DST), dst, (tp_dst.into(), dst.full_mask()));
    }
    put(on(MPLS_LABEL), FieldId::MplsLabel, ((mpls_label & 0xf_ffff).into(), 0xf_ffff));
    put(on(MPLS_TC), FieldId::MplsTc, ((mpls_tc & 7).into(), 7));
    put(true, FieldId::Metadata, metadata);
    Ok(())
}

/// TCI and mask of the VLAN part; `_on`: the part is matched.
fn vlan(vid_on: bool, vid: u16, pcp_on: bool, pcp: u8) -> Res<(u16, u16)> {
    if !vid_on {
        return Ok((0, 0));
    }
    let (tci, mask) = match vid {
        VLAN_NONE => return Ok((0, 0xffff)),
        VLAN_ANY => (VlanTag::PRESENT, VlanTag::PRESENT),
        0..=0xfff => (vid | VlanTag::PRESENT, VlanTag::VID | VlanTag::PRESENT),
        _ => return Err(ErrorKind::BmcBadValue),
    };
    match (pcp_on, pcp) {
        (false, _) => Ok((tci, mask)),
        (true, 0..=7) => Ok((tci | u16::from(pcp) << 13, mask | VlanTag::PCP)),
        (true, _) => Err(ErrorKind::BmcBadValue),
    }
}

/// Writes a match: in OpenFlow 1.1 the fixed structure, which drops what it cannot represent, later OXM.
pub(crate) fn put(w: &mut Writer, m: &Match) {
    if w.version != Version::V11 {
        return nxm::put_oxm_match(w, m);
    }
    put_fixed(w, m);
}

/// Writes the fixed structure if it represents the whole match, else OXM.
pub(crate) fn put_whole(w: &mut Writer, m: &Match) {
    if w.version == Version::V11 && fits(m) { put_fixed(w, m) } else { nxm::put_oxm_match(w, m) }
}

/// Whether the fixed structure represents the whole match.
fn fits(m: &Match) -> bool {
    let mut w = Writer::new(Version::V11);
    put_fixed(&mut w, m);
    read(&mut Reader::new(&w.buf, w.version), Unknown::Refuse).is_ok_and(|back| *back == *m)
}

fn put_masked(w: &mut Writer, m: &Match, field: FieldId, bytes: usize) {
    let (value, mask) = m.get(field);
    w.uint(value & mask, bytes);
    w.uint(!mask, bytes);
}

fn put_fixed(w: &mut Writer, m: &Match) {
    let (f, mask) = (m.flow(), &m.mask().0);
    let mut wild = 0;
    let mut need = |yes: bool, bit: u32| {
        if !yes {
            wild |= bit;
        }
    };
    let l4_mask = if is_icmp(m) { 0xff } else { 0xffff };
    need(mask.in_port == u32::MAX, IN_PORT);
    need(mask.dl_type == 0xffff, DL_TYPE);
    need(mask.nw_tos & 0xfc == 0xfc, NW_TOS);
    need(mask.nw_proto == 0xff, NW_PROTO);
    need(mask.tp_src & l4_mask == l4_mask, TP_SRC);
    need(mask.tp_dst & l4_mask == l4_mask, TP_DST);
    need(m.get(FieldId::MplsLabel).1 == 0xf_ffff, MPLS_LABEL);
    need(m.get(FieldId::MplsTc).1 == 7, MPLS_TC);
    let (tci, tci_mask) = (f.vlans[0].tci, mask.vlans[0].tci);
    let vid = match tci_mask & (VlanTag::VID | VlanTag::PRESENT) {
        0 => None,
        _ if tci_mask & VlanTag::PRESENT != 0 && tci & VlanTag::PRESENT == 0 => Some(VLAN_NONE),
        bits if bits & VlanTag::VID == VlanTag::VID => Some(tci & VlanTag::VID),
        _ => Some(VLAN_ANY),
    };
    let has_pcp = tci_mask & VlanTag::PCP == VlanTag::PCP && vid.is_some_and(|v| v != VLAN_NONE);
    need(vid.is_some(), DL_VLAN);
    need(has_pcp, DL_VLAN_PCP);
    w.u16(0);
    w.u16(BYTES);
    w.u32(if wild & IN_PORT == 0 { f.in_port().0 } else { 0 });
    w.u32(wild & WILDCARDS);
    put_masked(w, m, FieldId::EthSrc, 6);
    put_masked(w, m, FieldId::EthDst, 6);
    w.u16(vid.unwrap_or(0));
    w.u8(if has_pcp { (tci >> 13) as u8 } else { 0 });
    w.u8(0);
    w.u16(f.dl_type);
    w.u8(f.nw_tos & 0xfc);
    w.u8(f.nw_proto);
    put_masked(w, m, FieldId::IpSrc, 4);
    put_masked(w, m, FieldId::IpDst, 4);
    w.u16(f.tp_src);
    w.u16(f.tp_dst);
    w.u32(m.get(FieldId::MplsLabel).0 as u32);
    w.u8(m.get(FieldId::MplsTc).0 as u8);
    w.zeros(3);
    put_masked(w, m, FieldId::Metadata, 8);
}
