//! Flow-mods of OpenFlow 1.0: semantics of their fixed match and flags.

use super::hex;
use crate::msg::flow_mod::FlowMod;
use crate::{ErrorKind, Message, OfError, decode};
use flow::fields::FieldId;

/// The reply to a flow-mod: a match of Ethernet type, protocol and ports, then command, timeouts, priority
/// and flags.
fn flow_mod(
    wildcards: u32,
    (ty, proto): (u16, u8),
    ports: [u16; 2],
    [command, idle, hard, flags]: [u16; 4],
) -> Result<FlowMod, ErrorKind> {
    let mut m = hex("010e004800000001");
    m.extend(wildcards.to_be_bytes());
    m.extend(hex("0001 020000000001 020000000002 ffff 00 00"));
    m.extend(ty.to_be_bytes());
    m.extend([0, proto, 0, 0]);
    m.extend(hex("0a000001 0a000002"));
    m.extend(ports.map(u16::to_be_bytes).as_flattened());
    m.extend(hex("0000000000000005"));
    m.extend([command, idle, hard, 1000].map(u16::to_be_bytes).as_flattened());
    m.extend(hex("ffffffff ffff"));
    m.extend(flags.to_be_bytes());
    match decode(&m) {
        Ok((_, _, Message::FlowMod(fm))) => Ok(fm),
        Err(OfError { kind, .. }) => Err(kind),
        other => panic!("{other:?}"),
    }
}

const TCP: (u16, u8) = (0x0800, 6);
const ADD: [u16; 4] = [0; 4];

#[test]
fn a_match_without_wildcards_has_the_highest_priority() {
    let rows = [
        (0, TCP, ADD, u16::MAX),
        (0, (0x0806, 1), ADD, u16::MAX),
        (0, (0x86dd, 6), ADD, u16::MAX),
        // Bits that OpenFlow 1.0 does not define are no wildcards.
        (0xffc0_0000, TCP, ADD, u16::MAX),
        (0, TCP, [4, 0, 0, 0], u16::MAX),
        (1 << 21, TCP, ADD, 1000),
        (1 << 20, TCP, ADD, 1000),
        (1 << 8, TCP, ADD, 1000),
        (0xc0, TCP, ADD, 1000),
    ];
    for (wildcards, of, rest, priority) in rows {
        let fm = flow_mod(wildcards, of, [1, 2], rest).unwrap();
        assert_eq!(fm.priority, priority, "{wildcards:#x} {of:?} {rest:?}");
    }
}

#[test]
fn an_icmp_type_or_code_beyond_8_bits_matches_nothing() {
    let on = 0x003f_ffff & !(0x10 | 0x20 | 0x40 | 0x80);
    for (of, ty) in [((0x0800, 1), FieldId::IcmpType), ((0x86dd, 58), FieldId::Icmpv6Type)] {
        let m = flow_mod(on, of, [8, 0], ADD).unwrap().matching.unpack();
        assert_eq!((m.get(ty), m.flow().tp_src, m.mask().0.tp_src), ((8, 0xff), 8, 0xff));
        let m = flow_mod(on, of, [264, 0x1ff], ADD).unwrap().matching.unpack();
        assert_eq!((m.flow().tp_src, m.mask().0.tp_src), (264, 0xffff));
        assert_eq!((m.flow().tp_dst, m.mask().0.tp_dst), (0x1ff, 0xffff));
    }
}

#[test]
fn there_are_no_emergency_rules() {
    let rows = [
        ([0, 0, 0, 4], ErrorKind::FmfcTableFull),
        ([0, 5, 0, 4], ErrorKind::FmfcBadEmergTimeout),
        ([0, 0, 5, 4], ErrorKind::FmfcBadEmergTimeout),
        ([3, 0, 0, 6], ErrorKind::FmfcTableFull),
        ([3, 3, 0, 4], ErrorKind::FmfcBadEmergTimeout),
        ([99, 0, 0, 4], ErrorKind::FmfcBadCommand),
        ([0, 0, 0, 8], ErrorKind::FmfcBadFlags),
    ];
    for (rest, kind) in rows {
        assert_eq!(flow_mod(0x003f_ffff, TCP, [1, 2], rest), Err(kind), "{rest:?}");
    }
}
