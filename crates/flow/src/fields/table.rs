//! The rows of the field registry, in the order of OVS: metadata, Ethernet, VLAN, MPLS, IP, ARP, layer 4, ND, NSH.
//! Table features and selection methods of groups have their fields in this order.

use super::{FieldDef, FieldFormat as F, FieldPosition, OxmId, Prereq as P};
use crate::flow::Flow;
use std::mem::offset_of;

macro_rules! fields {
    ($($id:ident: $name:literal $alias:expr, $wire:literal B $bits:literal bit, $mask:literal, $fmt:ident, $pre:ident,
       $write:literal, nxm $nxm:expr, oxm $oxm:expr, $place:expr;)*) => {
        /// A match field; its row is [`FieldId::def`].
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum FieldId {
            $(#[doc = concat!("`", $name, "`.")] $id,)*
        }

        /// All fields in the registry's order.
        pub const ALL_FIELDS: &[FieldId] = &[$(FieldId::$id,)*];

        pub(super) static DEFS: [FieldDef; ALL_FIELDS.len()] = [$(FieldDef {
            name: $name,
            alias: $alias,
            wire_bytes: $wire,
            bits: $bits,
            maskable: $mask,
            format: F::$fmt,
            prereq: P::$pre,
            writable: $write,
            nxm: $nxm,
            oxm: $oxm,
            place: $place,
        },)*];
    };
}

const fn id(class: u16, field: u8) -> Option<OxmId> {
    Some(OxmId { class, field })
}

const fn oxm(class: u16, field: u8, since_version: u8) -> Option<(OxmId, u8)> {
    Some((OxmId { class, field }, since_version))
}

/// Class of Ericsson's fields (`ERICOXM_OF_*`).
const ERICSSON: u16 = 0x1000;

fields! {
    DpHash: "dp_hash" None, 4 B 32 bit, true, Hex, None,
        false, nxm id(1, 35), oxm None, FieldPosition::Int { offset: offset_of!(Flow, dp_hash), size: 4, shift: 0 };
    RecircId: "recirc_id" None, 4 B 32 bit, false, Decimal, None,
        false, nxm id(1, 36), oxm None, FieldPosition::Int { offset: offset_of!(Flow, recirc_id), size: 4, shift: 0 };
    PacketType: "packet_type" None, 4 B 32 bit, false, PacketType, None,
        false, nxm None, oxm oxm(0x8000, 44, 6), FieldPosition::Int { offset: offset_of!(Flow, packet_type), size: 4, shift: 0 };
    ConjId: "conj_id" None, 4 B 32 bit, false, Decimal, None,
        false, nxm id(1, 37), oxm None, FieldPosition::Int { offset: offset_of!(Flow, conj_id), size: 4, shift: 0 };
    TunId: "tun_id" Some("tunnel_id"), 8 B 64 bit, true, Hex, None,
        true, nxm id(1, 16), oxm oxm(0x8000, 38, 4), FieldPosition::Int { offset: offset_of!(Flow, tun_id), size: 8, shift: 0 };
    TunSrc: "tun_src" None, 4 B 32 bit, true, Ipv4, None,
        true, nxm id(1, 31), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_src), size: 4, shift: 0 };
    TunDst: "tun_dst" None, 4 B 32 bit, true, Ipv4, None,
        true, nxm id(1, 32), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_dst), size: 4, shift: 0 };
    TunIpv6Src: "tun_ipv6_src" None, 16 B 128 bit, true, Ipv6, None,
        true, nxm id(1, 109), oxm None, FieldPosition::Bytes { offset: offset_of!(Flow, tun_ipv6_src), size: 16 };
    TunIpv6Dst: "tun_ipv6_dst" None, 16 B 128 bit, true, Ipv6, None,
        true, nxm id(1, 110), oxm None, FieldPosition::Bytes { offset: offset_of!(Flow, tun_ipv6_dst), size: 16 };
    TunFlags: "tun_flags" None, 2 B 1 bit, true, TunnelFlags, None,
        true, nxm id(1, 104), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_flags), size: 2, shift: 0 };
    TunTtl: "tun_ttl" None, 1 B 8 bit, false, Decimal, None,
        true, nxm None, oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_ttl), size: 1, shift: 0 };
    TunTos: "tun_tos" None, 1 B 8 bit, false, Decimal, None,
        true, nxm None, oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_tos), size: 1, shift: 0 };
    TunGbpId: "tun_gbp_id" None, 2 B 16 bit, true, Decimal, None,
        true, nxm id(1, 38), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_gbp_id), size: 2, shift: 0 };
    TunGbpFlags: "tun_gbp_flags" None, 1 B 8 bit, true, Hex, None,
        true, nxm id(1, 39), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_gbp_flags), size: 1, shift: 0 };
    TunErspanIdx: "tun_erspan_idx" None, 4 B 20 bit, true, Hex, None,
        true, nxm id(0xffff, 11), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_erspan_idx), size: 4, shift: 0 };
    TunErspanVer: "tun_erspan_ver" None, 1 B 4 bit, true, Decimal, None,
        true, nxm id(0xffff, 12), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_erspan_ver), size: 1, shift: 0 };
    TunErspanDir: "tun_erspan_dir" None, 1 B 1 bit, true, Decimal, None,
        true, nxm id(0xffff, 13), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_erspan_dir), size: 1, shift: 0 };
    TunErspanHwid: "tun_erspan_hwid" None, 1 B 6 bit, true, Hex, None,
        true, nxm id(0xffff, 14), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_erspan_hwid), size: 1, shift: 0 };
    TunGtpuFlags: "tun_gtpu_flags" None, 1 B 8 bit, true, Hex, None,
        false, nxm id(0xffff, 15), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_gtpu_flags), size: 1, shift: 0 };
    TunGtpuMsgtype: "tun_gtpu_msgtype" None, 1 B 8 bit, true, Decimal, None,
        false, nxm id(0xffff, 16), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tun_gtpu_msgtype), size: 1, shift: 0 };
    TunMetadata0: "tun_metadata0" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 40), oxm None, FieldPosition::Mapped;
    TunMetadata1: "tun_metadata1" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 41), oxm None, FieldPosition::Mapped;
    TunMetadata2: "tun_metadata2" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 42), oxm None, FieldPosition::Mapped;
    TunMetadata3: "tun_metadata3" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 43), oxm None, FieldPosition::Mapped;
    TunMetadata4: "tun_metadata4" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 44), oxm None, FieldPosition::Mapped;
    TunMetadata5: "tun_metadata5" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 45), oxm None, FieldPosition::Mapped;
    TunMetadata6: "tun_metadata6" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 46), oxm None, FieldPosition::Mapped;
    TunMetadata7: "tun_metadata7" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 47), oxm None, FieldPosition::Mapped;
    TunMetadata8: "tun_metadata8" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 48), oxm None, FieldPosition::Mapped;
    TunMetadata9: "tun_metadata9" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 49), oxm None, FieldPosition::Mapped;
    TunMetadata10: "tun_metadata10" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 50), oxm None, FieldPosition::Mapped;
    TunMetadata11: "tun_metadata11" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 51), oxm None, FieldPosition::Mapped;
    TunMetadata12: "tun_metadata12" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 52), oxm None, FieldPosition::Mapped;
    TunMetadata13: "tun_metadata13" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 53), oxm None, FieldPosition::Mapped;
    TunMetadata14: "tun_metadata14" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 54), oxm None, FieldPosition::Mapped;
    TunMetadata15: "tun_metadata15" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 55), oxm None, FieldPosition::Mapped;
    TunMetadata16: "tun_metadata16" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 56), oxm None, FieldPosition::Mapped;
    TunMetadata17: "tun_metadata17" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 57), oxm None, FieldPosition::Mapped;
    TunMetadata18: "tun_metadata18" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 58), oxm None, FieldPosition::Mapped;
    TunMetadata19: "tun_metadata19" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 59), oxm None, FieldPosition::Mapped;
    TunMetadata20: "tun_metadata20" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 60), oxm None, FieldPosition::Mapped;
    TunMetadata21: "tun_metadata21" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 61), oxm None, FieldPosition::Mapped;
    TunMetadata22: "tun_metadata22" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 62), oxm None, FieldPosition::Mapped;
    TunMetadata23: "tun_metadata23" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 63), oxm None, FieldPosition::Mapped;
    TunMetadata24: "tun_metadata24" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 64), oxm None, FieldPosition::Mapped;
    TunMetadata25: "tun_metadata25" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 65), oxm None, FieldPosition::Mapped;
    TunMetadata26: "tun_metadata26" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 66), oxm None, FieldPosition::Mapped;
    TunMetadata27: "tun_metadata27" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 67), oxm None, FieldPosition::Mapped;
    TunMetadata28: "tun_metadata28" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 68), oxm None, FieldPosition::Mapped;
    TunMetadata29: "tun_metadata29" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 69), oxm None, FieldPosition::Mapped;
    TunMetadata30: "tun_metadata30" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 70), oxm None, FieldPosition::Mapped;
    TunMetadata31: "tun_metadata31" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 71), oxm None, FieldPosition::Mapped;
    TunMetadata32: "tun_metadata32" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 72), oxm None, FieldPosition::Mapped;
    TunMetadata33: "tun_metadata33" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 73), oxm None, FieldPosition::Mapped;
    TunMetadata34: "tun_metadata34" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 74), oxm None, FieldPosition::Mapped;
    TunMetadata35: "tun_metadata35" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 75), oxm None, FieldPosition::Mapped;
    TunMetadata36: "tun_metadata36" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 76), oxm None, FieldPosition::Mapped;
    TunMetadata37: "tun_metadata37" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 77), oxm None, FieldPosition::Mapped;
    TunMetadata38: "tun_metadata38" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 78), oxm None, FieldPosition::Mapped;
    TunMetadata39: "tun_metadata39" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 79), oxm None, FieldPosition::Mapped;
    TunMetadata40: "tun_metadata40" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 80), oxm None, FieldPosition::Mapped;
    TunMetadata41: "tun_metadata41" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 81), oxm None, FieldPosition::Mapped;
    TunMetadata42: "tun_metadata42" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 82), oxm None, FieldPosition::Mapped;
    TunMetadata43: "tun_metadata43" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 83), oxm None, FieldPosition::Mapped;
    TunMetadata44: "tun_metadata44" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 84), oxm None, FieldPosition::Mapped;
    TunMetadata45: "tun_metadata45" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 85), oxm None, FieldPosition::Mapped;
    TunMetadata46: "tun_metadata46" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 86), oxm None, FieldPosition::Mapped;
    TunMetadata47: "tun_metadata47" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 87), oxm None, FieldPosition::Mapped;
    TunMetadata48: "tun_metadata48" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 88), oxm None, FieldPosition::Mapped;
    TunMetadata49: "tun_metadata49" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 89), oxm None, FieldPosition::Mapped;
    TunMetadata50: "tun_metadata50" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 90), oxm None, FieldPosition::Mapped;
    TunMetadata51: "tun_metadata51" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 91), oxm None, FieldPosition::Mapped;
    TunMetadata52: "tun_metadata52" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 92), oxm None, FieldPosition::Mapped;
    TunMetadata53: "tun_metadata53" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 93), oxm None, FieldPosition::Mapped;
    TunMetadata54: "tun_metadata54" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 94), oxm None, FieldPosition::Mapped;
    TunMetadata55: "tun_metadata55" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 95), oxm None, FieldPosition::Mapped;
    TunMetadata56: "tun_metadata56" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 96), oxm None, FieldPosition::Mapped;
    TunMetadata57: "tun_metadata57" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 97), oxm None, FieldPosition::Mapped;
    TunMetadata58: "tun_metadata58" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 98), oxm None, FieldPosition::Mapped;
    TunMetadata59: "tun_metadata59" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 99), oxm None, FieldPosition::Mapped;
    TunMetadata60: "tun_metadata60" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 100), oxm None, FieldPosition::Mapped;
    TunMetadata61: "tun_metadata61" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 101), oxm None, FieldPosition::Mapped;
    TunMetadata62: "tun_metadata62" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 102), oxm None, FieldPosition::Mapped;
    TunMetadata63: "tun_metadata63" None, 124 B 992 bit, true, Hex, None,
        true, nxm id(1, 103), oxm None, FieldPosition::Mapped;
    Metadata: "metadata" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8000, 2, 3), FieldPosition::Int { offset: offset_of!(Flow, metadata), size: 8, shift: 0 };
    InPort: "in_port" None, 2 B 16 bit, false, OfPort16, None,
        true, nxm id(0, 0), oxm None, FieldPosition::Port16 { offset: super::OFFSET_IN_PORT };
    InPortOxm: "in_port_oxm" None, 4 B 32 bit, false, OfPort32, None,
        true, nxm None, oxm oxm(0x8000, 0, 3), FieldPosition::Int { offset: offset_of!(Flow, in_port), size: 4, shift: 0 };
    ActsetOutput: "actset_output" None, 4 B 32 bit, false, OfPort32, None,
        false, nxm None, oxm oxm(0x8000, 43, 6), FieldPosition::Int { offset: offset_of!(Flow, actset_output), size: 4, shift: 0 };
    SkbPriority: "skb_priority" None, 4 B 32 bit, false, Hex, None,
        false, nxm None, oxm None, FieldPosition::Int { offset: offset_of!(Flow, skb_priority), size: 4, shift: 0 };
    PktMark: "pkt_mark" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 33), oxm None, FieldPosition::Int { offset: offset_of!(Flow, pkt_mark), size: 4, shift: 0 };
    CtState: "ct_state" None, 4 B 32 bit, true, CtState, None,
        false, nxm id(1, 105), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_state), size: 4, shift: 0 };
    CtZone: "ct_zone" None, 2 B 16 bit, false, Hex, None,
        false, nxm id(1, 106), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_zone), size: 2, shift: 0 };
    CtMark: "ct_mark" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 107), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_mark), size: 4, shift: 0 };
    CtLabel: "ct_label" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(1, 108), oxm None, FieldPosition::Bytes { offset: offset_of!(Flow, ct_label), size: 16 };
    CtNwProto: "ct_nw_proto" None, 1 B 8 bit, false, Decimal, Connection,
        false, nxm id(1, 119), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_nw_proto), size: 1, shift: 0 };
    CtNwSrc: "ct_nw_src" None, 4 B 32 bit, true, Ipv4, Connection,
        false, nxm id(1, 120), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_nw_src), size: 4, shift: 0 };
    CtNwDst: "ct_nw_dst" None, 4 B 32 bit, true, Ipv4, Connection,
        false, nxm id(1, 121), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_nw_dst), size: 4, shift: 0 };
    CtIpv6Src: "ct_ipv6_src" None, 16 B 128 bit, true, Ipv6, Connection,
        false, nxm id(1, 122), oxm None, FieldPosition::Bytes { offset: offset_of!(Flow, ct_ipv6_src), size: 16 };
    CtIpv6Dst: "ct_ipv6_dst" None, 16 B 128 bit, true, Ipv6, Connection,
        false, nxm id(1, 123), oxm None, FieldPosition::Bytes { offset: offset_of!(Flow, ct_ipv6_dst), size: 16 };
    CtTpSrc: "ct_tp_src" None, 2 B 16 bit, true, Decimal, Connection,
        false, nxm id(1, 124), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_tp_src), size: 2, shift: 0 };
    CtTpDst: "ct_tp_dst" None, 2 B 16 bit, true, Decimal, Connection,
        false, nxm id(1, 125), oxm None, FieldPosition::Int { offset: offset_of!(Flow, ct_tp_dst), size: 2, shift: 0 };
    Reg0: "reg0" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 0), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs), size: 4, shift: 0 };
    Reg1: "reg1" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 1), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 4, size: 4, shift: 0 };
    Reg2: "reg2" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 2), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 8, size: 4, shift: 0 };
    Reg3: "reg3" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 3), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 12, size: 4, shift: 0 };
    Reg4: "reg4" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 4), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 16, size: 4, shift: 0 };
    Reg5: "reg5" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 5), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 20, size: 4, shift: 0 };
    Reg6: "reg6" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 6), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 24, size: 4, shift: 0 };
    Reg7: "reg7" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 7), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 28, size: 4, shift: 0 };
    Reg8: "reg8" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 8), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 32, size: 4, shift: 0 };
    Reg9: "reg9" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 9), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 36, size: 4, shift: 0 };
    Reg10: "reg10" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 10), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 40, size: 4, shift: 0 };
    Reg11: "reg11" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 11), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 44, size: 4, shift: 0 };
    Reg12: "reg12" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 12), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 48, size: 4, shift: 0 };
    Reg13: "reg13" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 13), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 52, size: 4, shift: 0 };
    Reg14: "reg14" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 14), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 56, size: 4, shift: 0 };
    Reg15: "reg15" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(1, 15), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 60, size: 4, shift: 0 };
    Reg16: "reg16" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 17), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 64, size: 4, shift: 0 };
    Reg17: "reg17" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 18), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 68, size: 4, shift: 0 };
    Reg18: "reg18" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 19), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 72, size: 4, shift: 0 };
    Reg19: "reg19" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 20), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 76, size: 4, shift: 0 };
    Reg20: "reg20" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 21), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 80, size: 4, shift: 0 };
    Reg21: "reg21" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 22), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 84, size: 4, shift: 0 };
    Reg22: "reg22" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 23), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 88, size: 4, shift: 0 };
    Reg23: "reg23" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 24), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 92, size: 4, shift: 0 };
    Reg24: "reg24" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 25), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 96, size: 4, shift: 0 };
    Reg25: "reg25" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 26), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 100, size: 4, shift: 0 };
    Reg26: "reg26" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 27), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 104, size: 4, shift: 0 };
    Reg27: "reg27" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 28), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 108, size: 4, shift: 0 };
    Reg28: "reg28" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 29), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 112, size: 4, shift: 0 };
    Reg29: "reg29" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 30), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 116, size: 4, shift: 0 };
    Reg30: "reg30" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 31), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 120, size: 4, shift: 0 };
    Reg31: "reg31" None, 4 B 32 bit, true, Hex, None,
        true, nxm id(0xffff, 32), oxm None, FieldPosition::Int { offset: offset_of!(Flow, regs) + 124, size: 4, shift: 0 };
    Xreg0: "xreg0" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 0, 4), FieldPosition::Regs { first: 0, count: 2 };
    Xreg1: "xreg1" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 1, 4), FieldPosition::Regs { first: 2, count: 2 };
    Xreg2: "xreg2" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 2, 4), FieldPosition::Regs { first: 4, count: 2 };
    Xreg3: "xreg3" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 3, 4), FieldPosition::Regs { first: 6, count: 2 };
    Xreg4: "xreg4" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 4, 4), FieldPosition::Regs { first: 8, count: 2 };
    Xreg5: "xreg5" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 5, 4), FieldPosition::Regs { first: 10, count: 2 };
    Xreg6: "xreg6" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 6, 4), FieldPosition::Regs { first: 12, count: 2 };
    Xreg7: "xreg7" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 7, 4), FieldPosition::Regs { first: 14, count: 2 };
    Xreg8: "xreg8" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 8, 4), FieldPosition::Regs { first: 16, count: 2 };
    Xreg9: "xreg9" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 9, 4), FieldPosition::Regs { first: 18, count: 2 };
    Xreg10: "xreg10" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 10, 4), FieldPosition::Regs { first: 20, count: 2 };
    Xreg11: "xreg11" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 11, 4), FieldPosition::Regs { first: 22, count: 2 };
    Xreg12: "xreg12" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 12, 4), FieldPosition::Regs { first: 24, count: 2 };
    Xreg13: "xreg13" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 13, 4), FieldPosition::Regs { first: 26, count: 2 };
    Xreg14: "xreg14" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 14, 4), FieldPosition::Regs { first: 28, count: 2 };
    Xreg15: "xreg15" None, 8 B 64 bit, true, Hex, None,
        true, nxm None, oxm oxm(0x8001, 15, 4), FieldPosition::Regs { first: 30, count: 2 };
    Xxreg0: "xxreg0" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(1, 111), oxm None, FieldPosition::Regs { first: 0, count: 4 };
    Xxreg1: "xxreg1" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(1, 112), oxm None, FieldPosition::Regs { first: 4, count: 4 };
    Xxreg2: "xxreg2" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(1, 113), oxm None, FieldPosition::Regs { first: 8, count: 4 };
    Xxreg3: "xxreg3" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(1, 114), oxm None, FieldPosition::Regs { first: 12, count: 4 };
    Xxreg4: "xxreg4" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(0xffff, 33), oxm None, FieldPosition::Regs { first: 16, count: 4 };
    Xxreg5: "xxreg5" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(0xffff, 34), oxm None, FieldPosition::Regs { first: 20, count: 4 };
    Xxreg6: "xxreg6" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(0xffff, 35), oxm None, FieldPosition::Regs { first: 24, count: 4 };
    Xxreg7: "xxreg7" None, 16 B 128 bit, true, Hex, None,
        true, nxm id(0xffff, 36), oxm None, FieldPosition::Regs { first: 28, count: 4 };
    EthSrc: "eth_src" Some("dl_src"), 6 B 48 bit, true, Ethernet, Ethernet,
        true, nxm id(0, 2), oxm oxm(0x8000, 4, 3), FieldPosition::Bytes { offset: offset_of!(Flow, dl_src), size: 6 };
    EthDst: "eth_dst" Some("dl_dst"), 6 B 48 bit, true, Ethernet, Ethernet,
        true, nxm id(0, 1), oxm oxm(0x8000, 3, 3), FieldPosition::Bytes { offset: offset_of!(Flow, dl_dst), size: 6 };
    EthType: "eth_type" Some("dl_type"), 2 B 16 bit, false, Hex, Ethernet,
        false, nxm id(0, 3), oxm oxm(0x8000, 5, 3), FieldPosition::Int { offset: offset_of!(Flow, dl_type), size: 2, shift: 0 };
    VlanTci: "vlan_tci" None, 2 B 16 bit, true, Hex, Ethernet,
        true, nxm id(0, 4), oxm None, FieldPosition::Int { offset: offset_of!(Flow, vlans) + 2, size: 2, shift: 0 };
    DlVlan: "dl_vlan" None, 2 B 12 bit, false, Decimal, Ethernet,
        true, nxm None, oxm None, FieldPosition::VlanPresent { shift: 0 };
    VlanVid: "vlan_vid" None, 2 B 13 bit, true, Decimal, Ethernet,
        true, nxm None, oxm oxm(0x8000, 6, 3), FieldPosition::Int { offset: offset_of!(Flow, vlans) + 2, size: 2, shift: 0 };
    DlVlanPcp: "dl_vlan_pcp" None, 1 B 3 bit, false, Decimal, Ethernet,
        true, nxm None, oxm None, FieldPosition::VlanPresent { shift: 13 };
    VlanPcp: "vlan_pcp" None, 1 B 3 bit, false, Decimal, Vlan,
        true, nxm None, oxm oxm(0x8000, 7, 3), FieldPosition::Int { offset: offset_of!(Flow, vlans) + 2, size: 2, shift: 13 };
    MplsLabel: "mpls_label" None, 4 B 20 bit, false, Decimal, Mpls,
        true, nxm None, oxm oxm(0x8000, 34, 3), FieldPosition::Int { offset: offset_of!(Flow, mpls_lse), size: 4, shift: 12 };
    MplsTc: "mpls_tc" None, 1 B 3 bit, false, Decimal, Mpls,
        true, nxm None, oxm oxm(0x8000, 35, 3), FieldPosition::Int { offset: offset_of!(Flow, mpls_lse), size: 4, shift: 9 };
    MplsBos: "mpls_bos" None, 1 B 1 bit, false, Decimal, Mpls,
        false, nxm None, oxm oxm(0x8000, 36, 4), FieldPosition::Int { offset: offset_of!(Flow, mpls_lse), size: 4, shift: 8 };
    MplsTtl: "mpls_ttl" None, 1 B 8 bit, false, Decimal, Mpls,
        true, nxm id(1, 30), oxm None, FieldPosition::Int { offset: offset_of!(Flow, mpls_lse), size: 4, shift: 0 };
    IpSrc: "ip_src" Some("nw_src"), 4 B 32 bit, true, Ipv4, Ipv4,
        true, nxm id(0, 7), oxm oxm(0x8000, 11, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_src), size: 4, shift: 0 };
    IpDst: "ip_dst" Some("nw_dst"), 4 B 32 bit, true, Ipv4, Ipv4,
        true, nxm id(0, 8), oxm oxm(0x8000, 12, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_dst), size: 4, shift: 0 };
    Ipv6Src: "ipv6_src" None, 16 B 128 bit, true, Ipv6, Ipv6,
        true, nxm id(1, 19), oxm oxm(0x8000, 26, 3), FieldPosition::Bytes { offset: offset_of!(Flow, ipv6_src), size: 16 };
    Ipv6Dst: "ipv6_dst" None, 16 B 128 bit, true, Ipv6, Ipv6,
        true, nxm id(1, 20), oxm oxm(0x8000, 27, 3), FieldPosition::Bytes { offset: offset_of!(Flow, ipv6_dst), size: 16 };
    Ipv6Label: "ipv6_label" None, 4 B 20 bit, true, Hex, Ipv6,
        true, nxm id(1, 27), oxm oxm(0x8000, 28, 3), FieldPosition::Int { offset: offset_of!(Flow, ipv6_label), size: 4, shift: 0 };
    NwProto: "nw_proto" Some("ip_proto"), 1 B 8 bit, false, Decimal, Ip,
        false, nxm id(0, 6), oxm oxm(0x8000, 10, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_proto), size: 1, shift: 0 };
    NwTos: "nw_tos" None, 1 B 8 bit, false, Decimal, Ip,
        true, nxm id(0, 5), oxm None, FieldPosition::Tos;
    IpDscp: "ip_dscp" None, 1 B 6 bit, false, Decimal, Ip,
        true, nxm None, oxm oxm(0x8000, 8, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_tos), size: 1, shift: 2 };
    NwEcn: "nw_ecn" Some("ip_ecn"), 1 B 2 bit, false, Decimal, Ip,
        true, nxm id(1, 28), oxm oxm(0x8000, 9, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_tos), size: 1, shift: 0 };
    NwTtl: "nw_ttl" None, 1 B 8 bit, false, Decimal, Ip,
        true, nxm id(1, 29), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nw_ttl), size: 1, shift: 0 };
    IpFrag: "ip_frag" Some("nw_frag"), 1 B 2 bit, true, Frag, Ip,
        false, nxm id(1, 26), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nw_frag), size: 1, shift: 0 };
    ArpOp: "arp_op" None, 2 B 8 bit, false, Decimal, Arp,
        true, nxm id(0, 15), oxm oxm(0x8000, 21, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_proto), size: 1, shift: 0 };
    ArpSpa: "arp_spa" None, 4 B 32 bit, true, Ipv4, Arp,
        true, nxm id(0, 16), oxm oxm(0x8000, 22, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_src), size: 4, shift: 0 };
    ArpTpa: "arp_tpa" None, 4 B 32 bit, true, Ipv4, Arp,
        true, nxm id(0, 17), oxm oxm(0x8000, 23, 3), FieldPosition::Int { offset: offset_of!(Flow, nw_dst), size: 4, shift: 0 };
    ArpSha: "arp_sha" None, 6 B 48 bit, true, Ethernet, Arp,
        true, nxm id(1, 17), oxm oxm(0x8000, 24, 3), FieldPosition::Bytes { offset: offset_of!(Flow, arp_sha), size: 6 };
    ArpTha: "arp_tha" None, 6 B 48 bit, true, Ethernet, Arp,
        true, nxm id(1, 18), oxm oxm(0x8000, 25, 3), FieldPosition::Bytes { offset: offset_of!(Flow, arp_tha), size: 6 };
    TcpSrc: "tcp_src" None, 2 B 16 bit, true, Decimal, Tcp,
        true, nxm id(0, 9), oxm oxm(0x8000, 13, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_src), size: 2, shift: 0 };
    TcpDst: "tcp_dst" None, 2 B 16 bit, true, Decimal, Tcp,
        true, nxm id(0, 10), oxm oxm(0x8000, 14, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_dst), size: 2, shift: 0 };
    TcpFlags: "tcp_flags" None, 2 B 12 bit, true, TcpFlags, Tcp,
        false, nxm id(1, 34), oxm oxm(0x8000, 42, 6), FieldPosition::Int { offset: offset_of!(Flow, tcp_flags), size: 2, shift: 0 };
    UdpSrc: "udp_src" None, 2 B 16 bit, true, Decimal, Udp,
        true, nxm id(0, 11), oxm oxm(0x8000, 15, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_src), size: 2, shift: 0 };
    UdpDst: "udp_dst" None, 2 B 16 bit, true, Decimal, Udp,
        true, nxm id(0, 12), oxm oxm(0x8000, 16, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_dst), size: 2, shift: 0 };
    SctpSrc: "sctp_src" None, 2 B 16 bit, true, Decimal, Sctp,
        true, nxm None, oxm oxm(0x8000, 17, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_src), size: 2, shift: 0 };
    SctpDst: "sctp_dst" None, 2 B 16 bit, true, Decimal, Sctp,
        true, nxm None, oxm oxm(0x8000, 18, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_dst), size: 2, shift: 0 };
    IcmpType: "icmp_type" None, 1 B 8 bit, false, Decimal, Icmp4,
        true, nxm id(0, 13), oxm oxm(0x8000, 19, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_src), size: 2, shift: 0 };
    IcmpCode: "icmp_code" None, 1 B 8 bit, false, Decimal, Icmp4,
        true, nxm id(0, 14), oxm oxm(0x8000, 20, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_dst), size: 2, shift: 0 };
    Icmpv6Type: "icmpv6_type" None, 1 B 8 bit, false, Decimal, Icmp6,
        true, nxm id(1, 21), oxm oxm(0x8000, 29, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_src), size: 2, shift: 0 };
    Icmpv6Code: "icmpv6_code" None, 1 B 8 bit, false, Decimal, Icmp6,
        true, nxm id(1, 22), oxm oxm(0x8000, 30, 3), FieldPosition::Int { offset: offset_of!(Flow, tp_dst), size: 2, shift: 0 };
    NdTarget: "nd_target" None, 16 B 128 bit, true, Ipv6, Nd,
        true, nxm id(1, 23), oxm oxm(0x8000, 31, 3), FieldPosition::Bytes { offset: offset_of!(Flow, nd_target), size: 16 };
    NdSll: "nd_sll" None, 6 B 48 bit, true, Ethernet, NdSolicit,
        true, nxm id(1, 24), oxm oxm(0x8000, 32, 3), FieldPosition::Bytes { offset: offset_of!(Flow, arp_sha), size: 6 };
    NdTll: "nd_tll" None, 6 B 48 bit, true, Ethernet, NdAdvert,
        true, nxm id(1, 25), oxm oxm(0x8000, 33, 3), FieldPosition::Bytes { offset: offset_of!(Flow, arp_tha), size: 6 };
    NdReserved: "nd_reserved" None, 4 B 32 bit, false, Decimal, Nd,
        true, nxm id(ERICSSON, 1), oxm None, FieldPosition::Int { offset: offset_of!(Flow, igmp_group), size: 4, shift: 0 };
    NdOptionsType: "nd_options_type" None, 1 B 8 bit, false, Decimal, Nd,
        true, nxm id(ERICSSON, 2), oxm None, FieldPosition::Int { offset: offset_of!(Flow, tcp_flags), size: 2, shift: 0 };
    NshFlags: "nsh_flags" None, 1 B 8 bit, true, Decimal, Nsh,
        true, nxm id(0xffff, 1), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_flags), size: 1, shift: 0 };
    NshMdtype: "nsh_mdtype" None, 1 B 8 bit, false, Decimal, Nsh,
        false, nxm id(0xffff, 2), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_mdtype), size: 1, shift: 0 };
    NshNp: "nsh_np" None, 1 B 8 bit, false, Decimal, Nsh,
        false, nxm id(0xffff, 3), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_np), size: 1, shift: 0 };
    NshSpi: "nsh_spi" Some("nsp"), 4 B 24 bit, false, Hex, Nsh,
        true, nxm id(0xffff, 4), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_path), size: 4, shift: 8 };
    NshSi: "nsh_si" Some("nsi"), 1 B 8 bit, false, Decimal, Nsh,
        true, nxm id(0xffff, 5), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_path), size: 4, shift: 0 };
    NshC1: "nsh_c1" Some("nshc1"), 4 B 32 bit, true, Hex, Nsh,
        true, nxm id(0xffff, 6), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_context), size: 4, shift: 0 };
    NshC2: "nsh_c2" Some("nshc2"), 4 B 32 bit, true, Hex, Nsh,
        true, nxm id(0xffff, 7), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_context) + 4, size: 4, shift: 0 };
    NshC3: "nsh_c3" Some("nshc3"), 4 B 32 bit, true, Hex, Nsh,
        true, nxm id(0xffff, 8), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_context) + 8, size: 4, shift: 0 };
    NshC4: "nsh_c4" Some("nshc4"), 4 B 32 bit, true, Hex, Nsh,
        true, nxm id(0xffff, 9), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_context) + 12, size: 4, shift: 0 };
    NshTtl: "nsh_ttl" None, 1 B 8 bit, false, Decimal, Nsh,
        true, nxm id(0xffff, 10), oxm None, FieldPosition::Int { offset: offset_of!(Flow, nsh_ttl), size: 1, shift: 0 };
}
