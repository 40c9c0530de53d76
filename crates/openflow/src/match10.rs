//! The fixed match structure of OpenFlow 1.0 (§5.2.3 "Flow Match Structures"), both ways.
//!
//! Decoding normalises like OVS: a field without its matched prerequisites becomes a wildcard. Encoding drops
//! what the structure cannot represent; [`fits`] detects that.

use flow::fields::FieldId;
use flow::{Match, OfPort, VlanTag};
use ofp_wire::nxm::exists;
use ofp_wire::{Reader, Res, Writer};

const IN_PORT: u32 = 1;
const DL_VLAN: u32 = 1 << 1;
const DL_SRC: u32 = 1 << 2;
const DL_DST: u32 = 1 << 3;
const DL_TYPE: u32 = 1 << 4;
const NW_PROTO: u32 = 1 << 5;
const TP_SRC: u32 = 1 << 6;
const TP_DST: u32 = 1 << 7;
const NW_SRC_SHIFT: u32 = 8;
const NW_DST_SHIFT: u32 = 14;
const DL_VLAN_PCP: u32 = 1 << 20;
const NW_TOS: u32 = 1 << 21;
/// All wildcard bits.
const WILDCARDS: u32 = (1 << 22) - 1;
/// `dl_vlan` that matches packets without a tag.
pub(crate) const VLAN_NONE: u16 = 0xffff;

/// Whether the next match has no wildcard (`OFPFW_ALL`).
pub(crate) fn is_exact(r: &Reader<'_>) -> Res<bool> {
    Ok(r.clone().u32()? & WILDCARDS == 0)
}

pub(crate) fn read(r: &mut Reader<'_>) -> Res<Box<Match>> {
    let wild = r.u32()?;
    let on = |bit: u32| wild & bit == 0;
    let in_port = r.u16()?;
    let (dl_src, dl_dst) = (r.uint(6)?, r.uint(6)?);
    let (dl_vlan, dl_vlan_pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (dl_type, nw_tos, nw_proto) = (r.u16()?, r.u8()?, r.u8()?);
    r.skip(2)?;
    let (nw_src, nw_dst) = (r.u32()?, r.u32()?);
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);

    let mut m = Box::<Match>::default();
    let mut put = |yes: bool, field: FieldId, value: u128, mask: u128| {
        if yes && mask != 0 && exists(field, &m) {
            m.set_masked(field, value, mask);
        }
    };
    put(on(IN_PORT), FieldId::InPortOxm, OfPort::from_of10(in_port).0.into(), u32::MAX.into());
    put(on(DL_SRC), FieldId::EthSrc, dl_src, FieldId::EthSrc.full_mask());
    put(on(DL_DST), FieldId::EthDst, dl_dst, FieldId::EthDst.full_mask());
    let (tci, tci_mask) = vlan(on(DL_VLAN), dl_vlan, on(DL_VLAN_PCP), dl_vlan_pcp);
    put(true, FieldId::VlanTci, tci.into(), tci_mask.into());
    put(on(DL_TYPE), FieldId::EthType, dl_type.into(), 0xffff);
    put(on(NW_TOS), FieldId::NwTos, (nw_tos & 0xfc).into(), 0xfc);
    put(on(NW_PROTO), FieldId::NwProto, nw_proto.into(), 0xff);
    put(on(NW_PROTO), FieldId::ArpOp, nw_proto.into(), 0xff);
    let (src_mask, dst_mask) = (prefix(wild >> NW_SRC_SHIFT), prefix(wild >> NW_DST_SHIFT));
    for (src, dst) in [(FieldId::IpSrc, FieldId::IpDst), (FieldId::ArpSpa, FieldId::ArpTpa)] {
        put(true, src, nw_src.into(), src_mask.into());
        put(true, dst, nw_dst.into(), dst_mask.into());
    }
    for (src, dst) in L4_FIELDS {
        put(on(TP_SRC), src, tp_src.into(), src.full_mask());
        put(on(TP_DST), dst, tp_dst.into(), dst.full_mask());
    }
    if is_icmp(&m) {
        // A type or code above 8 bits keeps all 16, and so matches no packet, as in OVS.
        let halves = [(TP_SRC, FieldId::TcpSrc, tp_src), (TP_DST, FieldId::TcpDst, tp_dst)];
        for (_, field, value) in halves.into_iter().filter(|(bit, _, value)| on(*bit) && *value > 0xff) {
            m.set_masked(field, value.into(), field.full_mask());
        }
    }
    Ok(m)
}

pub(crate) fn is_icmp(m: &Match) -> bool {
    exists(FieldId::IcmpType, m) || exists(FieldId::Icmpv6Type, m)
}

pub(crate) const L4_FIELDS: [(FieldId, FieldId); 5] = [
    (FieldId::TcpSrc, FieldId::TcpDst),
    (FieldId::UdpSrc, FieldId::UdpDst),
    (FieldId::SctpSrc, FieldId::SctpDst),
    (FieldId::IcmpType, FieldId::IcmpCode),
    (FieldId::Icmpv6Type, FieldId::Icmpv6Code),
];

/// The mask for a six-bit count of wildcarded low bits.
fn prefix(wild_bits: u32) -> u32 {
    u32::MAX.checked_shl(wild_bits & 63).unwrap_or(0)
}

/// TCI and mask of the VLAN part; `_on`: the part is matched.
fn vlan(vid_on: bool, vid: u16, pcp_on: bool, pcp: u8) -> (u16, u16) {
    let pcp_bits = (u16::from(pcp) & 7) << 13;
    match (vid_on, pcp_on) {
        (false, false) => (0, 0),
        (true, _) if vid == VLAN_NONE => (0, 0xffff),
        (true, true) => (vid & 0xfff | pcp_bits | VlanTag::PRESENT, 0xffff),
        (true, false) => (vid & 0xfff | VlanTag::PRESENT, 0x1fff),
        (false, true) => (pcp_bits | VlanTag::PRESENT, 0xf000),
    }
}

pub(crate) fn put(w: &mut Writer, m: &Match) {
    let (f, mask) = (m.flow(), &m.mask().0);
    let exact = |field: FieldId| m.get(field).1 == field.full_mask();
    let mut wild = 0;
    let mut need = |yes: bool, bit: u32| {
        if !yes {
            wild |= bit;
        }
    };
    need(mask.in_port == u32::MAX, IN_PORT);
    need(exact(FieldId::EthSrc), DL_SRC);
    need(exact(FieldId::EthDst), DL_DST);
    need(mask.dl_type == 0xffff, DL_TYPE);
    need(mask.nw_tos & 0xfc == 0xfc, NW_TOS);
    need(mask.nw_proto == 0xff, NW_PROTO);
    let l4_mask = if is_icmp(m) { 0xff } else { 0xffff };
    need(mask.tp_src & l4_mask == l4_mask, TP_SRC);
    need(mask.tp_dst & l4_mask == l4_mask, TP_DST);
    let (dl_vlan, pcp) = put_vlan(f.vlans[0].tci, mask.vlans[0].tci, &mut need);
    wild |= (32 - mask.nw_src.leading_ones()) << NW_SRC_SHIFT;
    wild |= (32 - mask.nw_dst.leading_ones()) << NW_DST_SHIFT;
    w.u32(wild);
    w.u16(if mask.in_port == 0 { 0 } else { f.in_port().to_of10().unwrap_or(0) });
    w.bytes(&f.dl_src);
    w.bytes(&f.dl_dst);
    w.u16(dl_vlan);
    w.u8(pcp);
    w.u8(0);
    w.u16(f.dl_type);
    w.u8(f.nw_tos & 0xfc);
    w.u8(f.nw_proto);
    w.zeros(2);
    w.u32(f.nw_src);
    w.u32(f.nw_dst);
    w.u16(f.tp_src);
    w.u16(f.tp_dst);
}

fn put_vlan(tci: u16, mask: u16, need: &mut impl FnMut(bool, u32)) -> (u16, u8) {
    let pcp = (tci >> 13) as u8;
    if mask == 0 {
        need(false, DL_VLAN | DL_VLAN_PCP);
        return (0, 0);
    }
    if mask & VlanTag::PRESENT != 0 && tci & VlanTag::PRESENT == 0 {
        return (VLAN_NONE, 0);
    }
    need(mask & 0xfff == 0xfff, DL_VLAN);
    need(mask & 0xe000 == 0xe000, DL_VLAN_PCP);
    (if mask & 0xfff == 0xfff { tci & 0xfff } else { 0 }, if mask & 0xe000 == 0xe000 { pcp } else { 0 })
}

/// Whether the structure can represent the whole match.
pub fn fits(m: &Match) -> bool {
    let mut w = Writer::new(ofp_wire::Version::V10);
    put(&mut w, m);
    let port_ok = m.mask().0.in_port == 0 || m.flow().in_port().to_of10().is_some();
    // An implied field is implied again.
    let implied = |mut m: Match| {
        m.imply_packet_type();
        m
    };
    port_ok && read(&mut Reader::new(&w.buf, w.version)).is_ok_and(|back| implied(*back) == implied(*m))
}
