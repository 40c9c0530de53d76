//! Tests of the helpers. Expectations are the answers of Debian's OVS 3.1 to the same messages, by the port from which
//! it then accepts a data connection and by the rewritten packet; `EPRT` and 229 over IPv4, new in OVS 3.4, follow its
//! source.

use super::ftp::{Address, ControlPayload, DataPort, rewrite, scan};
use super::*;
use packet::checksum::{checksum, fold, pseudo, sum};
use packet::{Offload, Packet};
use proptest::prelude::*;
use std::net::IpAddr;

const CLIENT: &str = "10.0.0.1";
const TRANSLATED: &str = "99.111.222.133";

/// A frame of TCP with the right checksums, then padding.
fn frame(v6: bool, payload: &[u8], padding: usize) -> Vec<u8> {
    let mut f = vec![0x50, 0x54, 0, 0, 0, 2, 0x50, 0x54, 0, 0, 0, 1];
    let bytes = 20 + payload.len();
    if v6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend((bytes as u16).to_be_bytes());
        f.extend([6, 64]);
        for last in [1, 2] {
            f.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
    } else {
        f.extend([0x08, 0, 0x45, 0]);
        f.extend((bytes as u16 + 20).to_be_bytes());
        f.extend([0, 7, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = checksum(&f[14..]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let l4 = f.len();
    f.extend([0x9c, 0x40, 0, 21, 0, 0, 3, 0xe9, 0, 0, 0x13, 0x89, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
    f.extend(payload);
    let sum = !total(&f, v6, f.len());
    f[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
    f.resize(f.len() + padding, 0);
    f
}

fn l4(v6: bool) -> usize {
    if v6 { 54 } else { 34 }
}

/// Sum of the segment up to `end` and its pseudo-header: 0xffff if the checksum is right.
fn total(f: &[u8], v6: bool, end: usize) -> u16 {
    let (src, dst) = if v6 { f[22..54].split_at(16) } else { f[26..34].split_at(4) };
    fold(sum(&f[l4(v6)..end], pseudo(src, dst, 6, end - l4(v6))))
}

fn word(message: &ControlPayload) -> String {
    match message {
        ControlPayload::Other => "other".into(),
        ControlPayload::Invalid => "invalid".into(),
        ControlPayload::Data(DataPort { mode, port, address }) => {
            let address = address.as_ref().map(|a| format!(" {} {:?}", a.ip, a.span));
            format!("{mode:?} {port}{}", address.unwrap_or_default())
        }
    }
}

#[track_caller]
fn check(v6: bool, rows: &[(&str, &str)]) {
    for (payload, expect) in rows {
        assert_eq!(word(&scan(payload.as_bytes(), v6)), *expect, "{payload:?}");
    }
}

#[test]
fn messages_over_ipv4() {
    let long = |n: usize| format!("PORT {}10,0,0,1,4,5\r\n", "x".repeat(n));
    check(
        false,
        &[
            ("PORT 10,0,0,1,4,5\r\n", "Active 1029 10.0.0.1 5..13"),
            ("port 10,0,0,1,4,5\r\n", "Active 1029 10.0.0.1 5..13"),
            ("Port   10,0,0,1,4,5\r\n", "Active 1029 10.0.0.1 7..15"),
            ("PORT10,0,0,1,4,5\r\n", "invalid"),
            ("PORTX 10,0,0,1,4,5\r\n", "Active 1029 10.0.0.1 6..14"),
            ("PORT x10,0,0,1,4,5\r\n", "Active 1029 10.0.0.1 6..14"),
            ("PORT 10, 0,0,1,4,5\r\n", "invalid"),
            ("PORT 10,0,0,1,4,5", "invalid"),
            ("PORT 10,0,0,1,4,5x", "Active 1029 10.0.0.1 5..13"),
            ("PORT 10,0,0,1,4,123", "Active 1036 10.0.0.1 5..13"),
            ("PORT 10,0,0,1,256,5\r\n", "invalid"),
            ("PORT 10,0,0,1,4,256\r\n", "invalid"),
            ("PORT 10,0,0,1,0004,5\r\n", "Active 1029 10.0.0.1 5..13"),
            ("PORT 10,0,0,1,00004,5\r\n", "invalid"),
            ("PORT 10,0,0,1,4,00005\r\n", "Active 1029 10.0.0.1 5..13"),
            ("PORT 10,0,0,1,4,99999999999999999999\r\n", "invalid"),
            ("PORT 10,0,0,1,0,0\r\n", "Active 0 10.0.0.1 5..13"),
            ("PORT 255,255,255,255,255,255\r\n", "Active 65535 255.255.255.255 5..20"),
            ("PORT 256,0,0,1,4,5\r\n", "invalid"),
            ("PORT 010,0,0,1,4,5\r\n", "invalid"),
            ("PORT 10.0.0.1,4,5\r\n", "invalid"),
            ("PORT 10,0.0,1,4,5\r\n", "invalid"),
            ("PORT 10,0,0,1,4 5\r\n", "Active 1029 10.0.0.1 5..13"),
            ("PORT 10,0,0,1,4,,5\r\n", "invalid"),
            ("PORT 10,0,0,1\r\n", "invalid"),
            ("PORT 10,0,0,1,4\r\n", "invalid"),
            ("PORT 1,0,0,0,0,1,4,5\r\n", "Active 1 1.0.0.0 5..12"),
            ("PORT 10,0,0,1,4,5,6,7\r\n", "Active 1029 10.0.0.1 5..13"),
            ("PORT 10,0,0,1,4,5 \r\n", "Active 1029 10.0.0.1 5..13"),
            ("USER x\r\nPORT 10,0,0,1,4,5\r\n", "other"),
            ("PORT 10,0,0,1,4,5\r\nPORT 10,0,0,1,4,6\r\n", "Active 1029 10.0.0.1 5..13"),
            (" PORT 10,0,0,1,4,5\r\n", "other"),
            ("PORT\t10,0,0,1,4,5\r\n", "invalid"),
            ("PORT  \r\n", "invalid"),
            ("PORT 10,0,0,1,4,5\0\r\n", "Active 1029 10.0.0.1 5..13"),
            ("PORT \0 10,0,0,1,4,5\r\n", "invalid"),
            ("PORT \u{e9}10,0,0,1,4,5\r\n", "Active 1029 10.0.0.1 7..15"),
            (&long(121), "invalid"),
            (&long(109), "Active 1029 10.0.0.1 114..122"),
            ("", "other"),
            ("P", "other"),
            ("POR", "other"),
            ("PORT", "other"),
            ("PORTS", "invalid"),
            ("227 Entering Passive Mode (10,0,0,2,4,5)\r\n", "Passive 1029 10.0.0.2 27..35"),
            ("227 10,0,0,2,4,5\r\n", "Passive 1029 10.0.0.2 4..12"),
            ("227(10,0,0,2,4,5)\r\n", "invalid"),
            ("227-foo 10,0,0,2,4,5\r\n", "Passive 1029 10.0.0.2 8..16"),
            ("2270 10,0,0,2,4,5\r\n", "Passive 1029 10.0.0.2 5..13"),
            ("227 Mode 5 (10,0,0,2,4,5)\r\n", "invalid"),
            ("228 Long Passive Mode\r\n", "other"),
            ("230 Logged in\r\n", "other"),
        ],
    );
}

#[test]
fn extended_messages_over_ipv4() {
    check(
        false,
        &[
            ("EPRT |1|10.0.0.1|1029|\r\n", "Active 1029 10.0.0.1 8..16"),
            ("eprt |1|10.0.0.1|1029|\r\n", "Active 1029 10.0.0.1 8..16"),
            ("EPRT !1!10.0.0.1!65535!\r\n", "Active 65535 10.0.0.1 8..16"),
            ("EPRT|1|10.0.0.1|1029|\r\n", "invalid"),
            ("EPRT |2|10.0.0.1|1029|\r\n", "invalid"),
            ("EPRT |11|10.0.0.1|1029|\r\n", "invalid"),
            ("EPRT |1|10.0.0|1029|\r\n", "invalid"),
            ("EPRT |1|10.0.0.1|65536|\r\n", "invalid"),
            ("EPRT |1|10.0.0.1||\r\n", "invalid"),
            ("EPRT |1|10.0.0.1\r\n", "invalid"),
            ("EPRT |1|\r\n", "invalid"),
            ("EPRT \r\n", "invalid"),
            ("229 Entering Extended Passive Mode (|||1029|)\r\n", "Passive 1029"),
            ("229 (|||65536|)\r\n", "invalid"),
            ("229 Entering\r\n", "invalid"),
            ("229(|||1029|)\r\n", "invalid"),
        ],
    );
}

#[test]
fn messages_over_ipv6() {
    check(
        true,
        &[
            ("EPRT |2|fd00::1|1029|\r\n", "Active 1029 fd00::1 8..15"),
            ("eprt |2|fd00::1|1029|\r\n", "Active 1029 fd00::1 8..15"),
            ("EPRT|2|fd00::1|1029|\r\n", "Active 1029 fd00::1 7..14"),
            ("EPRT |1|fd00::1|1029|\r\n", "invalid"),
            ("EPRT |2|FD00:0:0::1|1029|\r\n", "Active 1029 fd00::1 8..19"),
            ("EPRT !2!fd00::1!1029!\r\n", "Active 1029 fd00::1 8..15"),
            ("EPRT |2|fd00::1!1029x\r\n", "Active 1029 fd00::1 8..15"),
            ("EPRT |22|fd00::1|1029|\r\n", "invalid"),
            ("EPRT |2|fd00::1|65536|\r\n", "invalid"),
            ("EPRT |2|fd00::1|0|\r\n", "Active 0 fd00::1 8..15"),
            ("EPRT |2|fd00::1||\r\n", "invalid"),
            ("EPRT |2|fd00::1|x1029|\r\n", "invalid"),
            ("EPRT |2|fd00::1|001029|\r\n", "Active 1029 fd00::1 8..15"),
            ("EPRT |2|fd00::1|0001029|\r\n", "Active 102 fd00::1 8..15"),
            ("EPRT |2|fd00::1|1029", "Active 102 fd00::1 8..15"),
            ("EPRT |2|fd00::0.0.0.1|1029|\r\n", "Active 1029 fd00::1 8..21"),
            ("EPRT 2 fd00::1 1029\r\n", "Active 1029 fd00::1 7..14"),
            ("PORT 10,0,0,1,4,5\r\n", "other"),
            ("EPRT |2", "invalid"),
            ("EPRT |2|", "invalid"),
            ("EPRT", "other"),
            ("EPRT |2|fd00::1", "invalid"),
            ("229 Entering Extended Passive Mode (|||1029|)\r\n", "Passive 1029"),
            ("229 extended passive mode (|||1029|)\r\n", "Passive 1029"),
            ("foo EXTENDED PASSIVE (|||1029|)\r\n", "Passive 1029"),
            ("229 OK (|||1029|)\r\n", "other"),
            ("229 Extended Passive |||1029|\r\n", "invalid"),
            ("229 Extended Passive 5 (|||1029|)\r\n", "Passive 1029"),
            ("229 Extended Passive (|||102901|)\r\n", "invalid"),
            ("229 Extended Passive (|||001029|)\r\n", "Passive 1029"),
            ("229 Extended Passive (|||99999|)\r\n", "invalid"),
            ("229 Extended Passive (abc77)\r\n", "Passive 77"),
            ("229 Extended Passive (", "invalid"),
            ("229 Extended Passive (|||0|)", "Passive 0"),
        ],
    );
}

#[test]
fn an_address_of_a_third_host_is_refused() {
    let addresses: [IpAddr; 2] = [CLIENT.parse().unwrap(), TRANSLATED.parse().unwrap()];
    for (payload, expect) in [
        ("PORT 10,0,0,1,4,5\r\n", true),
        ("PORT 99,111,222,133,4,5\r\n", true),
        ("PORT 10,0,0,9,4,5\r\n", false),
        ("229 Mode (|||1029|)\r\n", true),
    ] {
        let ControlPayload::Data(data) = scan(payload.as_bytes(), false) else { panic!("{payload}") };
        assert_eq!(data.is_of(addresses), expect, "{payload}");
    }
}

/// Rewrites the address of a message; the new payload, after examining everything else.
fn rewritten(payload: &str, v6: bool, new: &str, padding: usize) -> String {
    let ControlPayload::Data(DataPort { address: Some(old), .. }) = scan(payload.as_bytes(), v6) else {
        panic!("{payload}")
    };
    let mut packet = Packet::from_slice(&frame(v6, payload.as_bytes(), padding));
    let before = packet.data().to_vec();
    let segment = Segment::new(&packet, 14, l4(v6), v6).unwrap();
    let growth = rewrite(&mut packet, &segment, &old, new.parse().unwrap()).unwrap();
    let after = Segment::new(&packet, 14, l4(v6), v6).unwrap();
    let f = packet.data();
    assert_eq!(f.len() as i32, before.len() as i32 + growth);
    assert_eq!(after.payload().len() as i32, payload.len() as i32 + growth);
    assert_eq!(f.len() - after.payload().end, padding);
    assert!(v6 || checksum(&f[14..34]) == 0, "header checksum of {payload}");
    assert_eq!(total(f, v6, after.payload().end), 0xffff, "checksum of {payload}");
    // All but lengths and checksums stays.
    assert_eq!((&f[..16], &f[26..l4(v6) + 16]), (&before[..16], &before[26..l4(v6) + 16]));
    String::from_utf8(f[after.payload()].to_vec()).unwrap()
}

#[test]
fn addresses_are_rewritten() {
    let v6 = "fd00::ac10:aa01";
    for (payload, new, padding, expect) in [
        ("PORT 10,0,0,1,4,5\r\n", TRANSLATED, 0, "PORT 99,111,222,133,4,5\r\n"),
        ("PORT 10,0,0,1,4,5\r\n", "1.1.1.1", 0, "PORT 1,1,1,1,4,5\r\n"),
        ("PORT 10,0,0,1,4,5\r\n", "10.0.0.1", 0, "PORT 10,0,0,1,4,5\r\n"),
        ("PORT 10,0,0,1,4,5\r\n", TRANSLATED, 9, "PORT 99,111,222,133,4,5\r\n"),
        (
            "PORT 10,0,0,1,4,5\r\nPORT 10,0,0,1,4,6\r\n",
            TRANSLATED,
            0,
            "PORT 99,111,222,133,4,5\r\nPORT 10,0,0,1,4,6\r\n",
        ),
        ("227 Mode (10,0,0,2,4,5).\r\n", "1.2.3.4", 3, "227 Mode (1,2,3,4,4,5).\r\n"),
        ("EPRT |1|10.0.0.1|1029|\r\n", TRANSLATED, 0, "EPRT |1|99.111.222.133|1029|\r\n"),
        ("EPRT |2|fd00::1|1029|\r\n", v6, 0, "EPRT |2|fd00::ac10:aa01|1029|\r\n"),
        ("EPRT |2|fd00:0:0:0::0.0.0.1|1029|\r\n", "::1", 0, "EPRT |2|::1|1029|\r\n"),
    ] {
        assert_eq!(rewritten(payload, payload.contains("|2|"), new, padding), expect, "{payload}");
    }
}

#[test]
fn a_checksum_left_to_a_device_stays_so_and_a_wrong_one_wrong() {
    let payload = b"PORT 10,0,0,1,4,5\r\n";
    let ControlPayload::Data(DataPort { address: Some(old), .. }) = scan(payload, false) else { panic!() };
    let new: IpAddr = TRANSLATED.parse().unwrap();
    let partial = Offload { needs_csum: true, csum_start: 34, csum_offset: 16, ..Offload::NONE };
    let mut packet = Packet::from_slice(&frame(false, payload, 5));
    let pseudo_sum = |bytes| fold(pseudo(&[10, 0, 0, 1], &[10, 0, 0, 2], 6, bytes));
    packet.data_mut()[50..52].copy_from_slice(&pseudo_sum(39).to_be_bytes());
    packet.offload = partial;
    let segment = Segment::new(&packet, 14, 34, false).unwrap();
    assert_eq!(rewrite(&mut packet, &segment, &old, new), Some(6));
    adjust(&mut packet, 34, Number::Sequence, 1000);
    assert_eq!(packet.offload, partial);
    assert_eq!(packet.data()[50..52], pseudo_sum(45).to_be_bytes());
    assert_eq!(packet.data()[38..42], 2001u32.to_be_bytes());

    let mut packet = Packet::from_slice(&frame(false, payload, 0));
    packet.data_mut()[51] ^= 0x40;
    let wrong = total(packet.data(), false, packet.len());
    assert_ne!(wrong, 0xffff);
    let segment = Segment::new(&packet, 14, 34, false).unwrap();
    assert_eq!(rewrite(&mut packet, &segment, &old, new), Some(6));
    assert_eq!(total(packet.data(), false, packet.len()), wrong);
    adjust(&mut packet, 34, Number::Acknowledgement, -6);
    assert_eq!(total(packet.data(), false, packet.len()), wrong);
}

#[test]
fn numbers_are_adjusted_modulo_2_to_the_32() {
    for (number, at, old, by, expect) in [
        (Number::Sequence, 4, 1026, 6, 1032),
        (Number::Acknowledgement, 8, 1026, -6, 1020),
        (Number::Sequence, 4, u32::MAX, 6, 5),
        (Number::Acknowledgement, 8, 3, -6, u32::MAX - 2),
        (Number::Sequence, 4, 1000, 0, 1000),
    ] {
        for v6 in [false, true] {
            let mut f = frame(v6, b"LIST\r\n", 0);
            let at = l4(v6) + at;
            f[at..at + 4].copy_from_slice(&u32::to_be_bytes(old));
            let mut packet = Packet::from_slice(&f);
            let before = total(&f, v6, f.len());
            adjust(&mut packet, l4(v6), number, by);
            assert_eq!(packet.data()[at..at + 4], u32::to_be_bytes(expect));
            assert_eq!(total(packet.data(), v6, f.len()), before, "{number:?} {by}");
        }
    }
    // Too short: nothing happens.
    let mut packet = Packet::from_slice(&frame(false, b"", 0)[..48]);
    let before = packet.data().to_vec();
    adjust(&mut packet, 34, Number::Sequence, 5);
    assert_eq!(packet.data(), before);
}

#[test]
fn segments_with_contradicting_lengths_are_none() {
    let good = frame(false, b"PORT 10,0,0,1,4,5\r\n", 4);
    let with = |at: usize, value: u8| {
        let mut f = good.clone();
        f[at] = value;
        Segment::new(&Packet::from_slice(&f), 14, 34, false)
    };
    assert!(with(0, 0x50).is_some_and(|s| s.payload() == (54..73)));
    for (name, at, value) in [
        ("longer than the frame", 17, 64),
        ("shorter than the header", 17, 39),
        ("no length", 17, 0),
        ("data offset below the header", 46, 0x40),
        ("data offset beyond the end", 46, 0xf0),
    ] {
        assert_eq!(with(at, value), None, "{name}");
    }
    assert_eq!(Segment::new(&Packet::from_slice(&good[..46]), 14, 34, false), None);
    assert_eq!(Segment::new(&Packet::from_slice(&good), 14, 20, false), None);
    // A segment of another packet, or an address outside: refused.
    let mut packet = Packet::from_slice(&good);
    let segment = Segment::new(&packet, 14, 34, false).unwrap();
    let new = CLIENT.parse().unwrap();
    let backwards = std::ops::Range { start: 12, end: 5 };
    for span in [12..30, backwards, 0..usize::MAX] {
        let address = Address { ip: new, span, commas: true };
        assert_eq!(rewrite(&mut packet, &segment, &address, new), None);
    }
    packet.set_len(60);
    assert_eq!(rewrite(&mut packet, &segment, &Address { ip: new, span: 5..13, commas: true }, new), None);
    assert_eq!(packet.data(), &good[..60]);
}

#[test]
fn a_length_field_without_room_refuses_the_growth() {
    let mut payload = b"PORT 10,0,0,1,4,5\r\n".to_vec();
    payload.resize(65535 - 40 - 5, b'x');
    let ControlPayload::Data(DataPort { address: Some(old), .. }) = scan(&payload, false) else { panic!() };
    let mut packet = Packet::from_slice(&frame(false, &payload, 0));
    let before = packet.data().to_vec();
    let segment = Segment::new(&packet, 14, 34, false).unwrap();
    assert_eq!(rewrite(&mut packet, &segment, &old, TRANSLATED.parse().unwrap()), None);
    assert_eq!(packet.data(), before);
    assert_eq!(rewrite(&mut packet, &segment, &old, "10.0.0.123".parse().unwrap()), Some(2));
}

#[test]
fn control_packets_by_port() {
    use Helper::{Ftp, Tftp};
    for (proto, ports, named, expect) in [
        (6, [40000, 21], None, Some(Ftp)),
        (6, [21, 40000], None, Some(Ftp)),
        (6, [40000, 2121], None, None),
        (6, [40000, 2121], Some(Ftp), Some(Ftp)),
        (6, [2121, 40000], Some(Ftp), Some(Ftp)),
        (6, [40000, 2121], Some(Tftp), None),
        (17, [40000, 69], None, Some(Tftp)),
        (17, [69, 40000], None, None),
        (17, [40000, 6969], Some(Tftp), Some(Tftp)),
        (17, [40000, 21], None, None),
        (132, [40000, 21], Some(Ftp), None),
    ] {
        assert_eq!(Helper::of_packet(proto, ports, named), expect, "{proto} {ports:?} {named:?}");
        assert!(named.is_some() || expect.is_none() || Helper::has_port(ports[0], ports[1]));
    }
    for (name, helper) in [("ftp", Some(Ftp)), ("tftp", Some(Tftp)), ("sip", None), ("", None)] {
        assert_eq!(Helper::named(name), helper);
        assert_eq!(helper.map(Helper::name), helper.map(|_| name));
    }
}

proptest! {
    /// Any addresses in any message: the message with the new address, read again, has it.
    #[test]
    fn any_address(old: [u8; 4], new: [u8; 4], old6: [u16; 8], new6: [u16; 8], port: u16, prefix in "[ -/:-~]{0,40}", active: bool) {
        let commas = |a: [u8; 4]| a.map(|b| b.to_string()).join(",");
        let start = if active { "PORT" } else { "227" };
        let message = |a| format!("{start}{prefix} {},{},{}\r\n", commas(a), port >> 8, port & 0xff);
        prop_assert_eq!(rewritten(&message(old), false, &IpAddr::from(new).to_string(), 0), message(new));
        let ControlPayload::Data(data) = scan(message(new).as_bytes(), false) else {
            return Err(TestCaseError::fail(message(new)));
        };
        prop_assert_eq!((data.port, data.address.map(|a| a.ip)), (port, Some(new.into())));
        let message = |a: [u16; 8]| format!("EPRT |2|{}|{port}|\r\n", IpAddr::from(a));
        prop_assert_eq!(rewritten(&message(old6), true, &IpAddr::from(new6).to_string(), 2), message(new6));
    }
}
