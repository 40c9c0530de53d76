//! Messages by their bytes.

use super::*;

/// The message with its checksum, which the bytes lack.
fn sealed(src: IpAddr, dst: IpAddr, mut payload: Vec<u8>) -> Vec<u8> {
    let pseudo = match (src, dst) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            checksum::pseudo(&src.octets(), &dst.octets(), IPPROTO_ICMPV6, payload.len())
        }
        _ => 0,
    };
    let sum = !checksum::fold(checksum::sum(&payload, pseudo));
    payload[2..4].copy_from_slice(&sum.to_be_bytes());
    payload
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The message as text: its protocol, then each group with a sign.
fn shown(src: &str, dst: &str, hex: &str) -> String {
    let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
    let text = |record: &Record| {
        let sign = if record.joins { '+' } else { '-' };
        format!(" {sign}{}", record.group.to_canonical())
    };
    match parse(src, dst, &sealed(src, dst, bytes(hex))) {
        Ok(Message::Query) => "query".to_string(),
        Ok(Message::Single { protocol, record }) => format!("{protocol}{}", text(&record)),
        Ok(Message::Report { protocol, records }) => {
            format!("{protocol}{}", records.iter().map(text).collect::<String>())
        }
        Err(fault) => format!("{fault:?}"),
    }
}

#[test]
fn messages_of_igmp() {
    for (hex, expected) in [
        ("1164 0000 00000000", "query"),
        ("1200 0000 ef010101", "IGMPv1 +239.1.1.1"),
        ("1600 0000 ef010101", "IGMPv2 +239.1.1.1"),
        ("1700 0000 ef010101", "IGMPv2 -239.1.1.1"),
        ("1300 0000 ef010101", "Type"),
        ("1600 0000 ef0101", "Short"),
        ("2200 0000 0000 0001 04000000 ef010101", "IGMPv3 +239.1.1.1"),
        // A change to including: with a source, and without.
        ("2200 0000 0000 0002 03000001 ef010101 0a000001 03000000 ef010102", "IGMPv3 +239.1.1.1 -239.1.1.2"),
        ("2200 0000 0000 0002 01000000 ef010101 02000000 ef010102", "IGMPv3 -239.1.1.1 +239.1.1.2"),
        // Auxiliary data, and an unknown type.
        ("2200 0000 0000 0002 04010000 ef010101 aabbccdd 04000000 ef010102", "IGMPv3 +239.1.1.1 +239.1.1.2"),
        ("2200 0000 0000 0002 07000000 ef010101 06000000 ef010102", "IGMPv3 +239.1.1.2"),
        // More records and more sources than bytes.
        ("2200 0000 0000 0009 04000000 ef010101 0400", "IGMPv3 +239.1.1.1"),
        ("2200 0000 0000 0002 0400ffff ef010101 04000000 ef010102", "IGMPv3 +239.1.1.1"),
    ] {
        assert_eq!(shown("10.0.0.1", "224.0.0.22", hex), expected, "{hex}");
    }
}

#[test]
fn messages_of_mld() {
    let (group, other) = ("ff050000 00000000 00000000 00000005", "ff050000 00000000 00000000 00000006");
    for (hex, expected) in [
        (format!("8200 0000 00000000 {group}"), "query"),
        (format!("8300 0000 00000000 {group}"), "MLDv1 +ff05::5"),
        (format!("8400 0000 00000000 {group}"), "MLDv1 -ff05::5"),
        ("8300 0000 00000000 ff05".to_string(), "Short"),
        (format!("8f00 0000 0000 0002 04000000 {group} 03000000 {other}"), "MLDv2 +ff05::5 -ff05::6"),
        (format!("8f00 0000 0000 0002 06000001 {group} {other} 02000000 {other}"), "MLDv2 +ff05::5 +ff05::6"),
        (format!("8700 0000 00000000 {group}"), "Type"),
    ] {
        assert_eq!(shown("fe80::1", "ff02::16", &hex), expected, "{hex}");
    }
}

#[test]
fn a_wrong_checksum_is_a_fault() {
    let (src, dst): (IpAddr, IpAddr) = ("fe80::1".parse().unwrap(), "ff02::16".parse().unwrap());
    let good = sealed(src, dst, bytes("8f00 0000 0000 0000"));
    assert!(parse(src, dst, &good).is_ok());
    // The addresses count.
    assert_eq!(parse("fe80::2".parse().unwrap(), dst, &good), Err(Fault::Checksum));
    let (src, dst): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "239.1.1.1".parse().unwrap());
    let mut bad = sealed(src, dst, bytes("1600 0000 ef010101"));
    bad[7] ^= 1;
    assert_eq!(parse(src, dst, &bad), Err(Fault::Checksum));
}

#[test]
fn corpus_of_membership() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/membership"),
        crate::fuzz::membership,
    );
}
