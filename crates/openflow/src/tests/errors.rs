//! Errors: numbers by version, and the error for each bad message.

use super::hex;
use crate::{ErrorKind, Message, Version, WireError, decode, encode};

#[test]
fn errors_have_the_numbers_of_each_version() {
    let std = |ty, code| Some(WireError { vendor: 0, ty, code });
    let nx = |ty, code| Some(WireError { vendor: 0x2320, ty, code });
    let onf = |ty| Some(WireError { vendor: 0x4f4e_4600, ty, code: 0 });
    let rows = [
        (ErrorKind::FmfcOverlap, std(3, 1), std(5, 3)),
        (ErrorKind::BmcDupField, nx(1, 261), std(4, 10)),
        (ErrorKind::BacBadOutGroup, nx(2, 9), std(2, 9)),
        (ErrorKind::BfcMsgFailed, None, onf(2313)),
        (ErrorKind::BicDupInst, None, onf(2600)),
        (ErrorKind::NxfmfcInvalidTlvField, nx(1, 536), nx(37, 0)),
        (ErrorKind::NxttmfcInvalidTlvDel, nx(1, 537), nx(38, 0)),
        (ErrorKind::PmfcBadHwAddr, std(4, 1), std(7, 1)),
    ];
    for (kind, v10, v13) in rows {
        assert_eq!(kind.wire(Version::V10), v10, "{kind}");
        assert_eq!(kind.wire(Version::V13), v13, "{kind}");
    }
}

#[test]
fn every_error_survives_the_wire_or_is_said_to_be_unencodable() {
    for version in (1..=6).map(Version) {
        for kind in ErrorKind::ALL.iter().copied() {
            let body = crate::ErrorBody { error: crate::ErrorCode::Known(kind), data: vec![1, 2, 3] };
            let bytes = encode(&Message::Error(body), version, 7).unwrap();
            let (_, xid, Message::Error(back)) = decode(&bytes).unwrap() else { panic!("not an error") };
            assert_eq!((xid, &back.data[..]), (7, &[1u8, 2, 3][..]));
            let crate::ErrorCode::Known(got) = back.error else {
                panic!("{kind} is not recognised in {version}")
            };
            let expected = kind.wire(version).or(ErrorKind::NxbrcUnencodableError.wire(version));
            assert_eq!(got.wire(version), expected, "{kind} in {version}");
        }
    }
}

/// A flow mod of OpenFlow 1.3 with these match fields (without structure) and instructions.
fn flow_mod13(oxm: &str, instructions: &str) -> Vec<u8> {
    let oxm = hex(oxm);
    let mut m = hex("040e000000000009");
    m.extend(hex("00000000000000000000000000000000"));
    m.extend(hex("0000000000008000ffffffffffffffffffffffff00000000"));
    m.extend([0, 1]);
    m.extend(((oxm.len() + 4) as u16).to_be_bytes());
    m.extend(&oxm);
    let pad = (oxm.len() + 4).next_multiple_of(8) - (oxm.len() + 4);
    m.extend(vec![0; pad]);
    m.extend(hex(instructions));
    let len = (m.len() as u16).to_be_bytes();
    m[2..4].copy_from_slice(&len);
    m
}

#[test]
fn bad_requests_get_the_error_that_the_standard_names() {
    let apply = |action: &str| {
        let len = 8 + hex(action).len();
        flow_mod13("", &format!("0004{len:04x}00000000{action}"))
    };
    let write = |action: &str| {
        let len = 8 + hex(action).len();
        flow_mod13("", &format!("0003{len:04x}00000000{action}"))
    };
    let rows: Vec<(&str, Vec<u8>, ErrorKind)> = vec![
        ("type", hex("0163000800000001"), ErrorKind::BrcBadType),
        ("version", hex("0905000800000001"), ErrorKind::BrcBadVersion),
        ("length of a type", hex("0105000c0000000100000000"), ErrorKind::BrcBadLen),
        ("multipart type", hex("041200100000000177770000 00000000"), ErrorKind::BrcBadStat),
        ("experimenter", hex("04040010000000010000123400000001"), ErrorKind::BrcBadExperimenter),
        ("Nicira subtype", hex("0404001000000001000023200000ffff"), ErrorKind::BrcBadExpType),
        ("role", hex("0418001800000001000000090000000000000000 00000000"), ErrorKind::RrfcBadRole),
        ("unknown field", flow_mod13("8000fe0100", ""), ErrorKind::BmcBadField),
        ("prerequisite", flow_mod13("80001a020050", ""), ErrorKind::BmcBadPrereq),
        ("duplicate", flow_mod13("80000a02080080000a020800", ""), ErrorKind::BmcDupField),
        ("wildcards", flow_mod13("8000090c010203040506000000000000", ""), ErrorKind::BmcBadWildcards),
        ("mask of an unmaskable field", flow_mod13("80000b0408000f00", ""), ErrorKind::BmcBadMask),
        ("port value", flow_mod13("8000000400010000", ""), ErrorKind::BmcBadValue),
        ("match cut short", flow_mod13("80000a0408", ""), ErrorKind::BmcBadLen),
        ("instruction", flow_mod13("", "0009000800000000"), ErrorKind::BicUnknownInst),
        ("instruction length", flow_mod13("", "0001001000000000 0000000000000000"), ErrorKind::BicBadLen),
        ("instruction twice", flow_mod13("", "00010008010000000001000802000000"), ErrorKind::BicDupInst),
        ("instruction experimenter", flow_mod13("", "ffff000800002320"), ErrorKind::BicBadExperimenter),
        ("action", apply("0063000800000000"), ErrorKind::BacBadType),
        ("action length", apply("0017001000000000 0000000000000000"), ErrorKind::BacBadLen),
        ("action experimenter", apply("ffff001000001234 0000000000000000"), ErrorKind::BacBadExperimenter),
        ("output port", apply("00000010 0001000000000000 00000000"), ErrorKind::BacBadOutPort),
        ("push of no tag", apply("0011000812340000"), ErrorKind::BacBadArgument),
        ("set of unknown field", apply("001900108000fe0100000000 00000000"), ErrorKind::BacBadSetType),
        ("set with mask", apply("001900108000170801020304ffffffff"), ErrorKind::BacBadSetMask),
        // OpenFlow forbids it.
        ("set of the input port", apply("0019001080000004 0000000500000000"), ErrorKind::BacBadSetArgument),
        (
            "set of a VLAN without a tag",
            apply("0019001080000c02 0005000000000000"),
            ErrorKind::BacBadSetArgument,
        ),
        (
            "set of VLAN 0 without a tag",
            apply("0019001080000c02 0000000000000000"),
            ErrorKind::BacBadSetArgument,
        ),
        ("actions beyond a packet-out of 1.0", hex("010d001000000001ffffffff00010008"), ErrorKind::BrcBadLen),
        (
            "actions beyond a packet-out",
            hex("040d001800000001ffffffff000000010010000000000000"),
            ErrorKind::BrcBadLen,
        ),
        (
            "odd actions of a packet-out",
            hex("040d001800000001ffffffff000000010004000000000000"),
            ErrorKind::BrcBadLen,
        ),
        (
            "stack in an action set",
            write("ffff001800002320001b00000001000400200000 00000000"),
            ErrorKind::BacBadType,
        ),
        ("set to bad value", apply("0019001080000e01 0800000000000000"), ErrorKind::BacBadSetArgument),
    ];
    for (what, bytes, expected) in rows {
        let got = decode(&bytes).expect_err(what);
        assert_eq!(got.kind, expected, "{what}");
        assert_eq!(got.data, bytes, "{what}");
    }
}

#[test]
fn flow_mod_without_the_table_extension_refuses_a_table_in_the_command() {
    let mut m = hex(
        "010e004800000006003820ff000000000000000000000000000000000000000000000000000000000000000000000000",
    );
    m.extend(hex("0000000000000000010000000000800 0ffffffffffff0000"));
    assert_eq!(m.len(), 72);
    assert_eq!(decode(&m).unwrap_err().kind, ErrorKind::FmfcBadCommand);
    m[56] = 0;
    let (.., Message::FlowMod(fm)) = decode(&m).unwrap() else { panic!("not a flow mod") };
    assert_eq!(fm.table, flow::TableId::ALL);
}
