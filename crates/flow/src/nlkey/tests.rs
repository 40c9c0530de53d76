use super::*;
use crate::extract::{Metadata, extract};

/// The attributes of a frame's key behind the metadata: `type=content`, those inside another one behind its number.
fn check(frame: &str, expected: &[&str]) {
    let digits: Vec<u8> = frame.bytes().filter(|b| *b != b' ').collect();
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect();
    let mut key = FlowKey::default();
    extract(&bytes, &Metadata { in_port: 7, ..Metadata::default() }, 2, &mut key);
    let mut found = Vec::new();
    read(&key_attributes(&key), "", &mut found);
    let port = 7u32.to_ne_bytes().map(|b| format!("{b:02x}")).concat();
    let metadata =
        ["2=00000000", "15=00000000", "22=00000000", "23=0000", "24=00000000", "20=00000000", "19=00000000"];
    assert_eq!(found[..7], metadata, "{frame}");
    assert_eq!(found[7], format!("3={port}"), "{frame}");
    assert_eq!(found[8], "4=020000000002020000000001", "{frame}");
    assert_eq!(found[9..], *expected, "{frame}");
}

fn read(mut bytes: &[u8], before: &str, out: &mut Vec<String>) {
    while let [a, b, c, d, ..] = *bytes {
        let (len, kind) = (u16::from_ne_bytes([a, b]) as usize, u16::from_ne_bytes([c, d]));
        let content = &bytes[4..len];
        let name = format!("{before}{}", kind & 0xff);
        if kind & attr::NESTED != 0 {
            read(content, &format!("{name}."), out);
        } else {
            let hex: String = content.iter().map(|b| format!("{b:02x}")).collect();
            out.push(format!("{name}={hex}"));
        }
        bytes = &bytes[len.next_multiple_of(4)..];
    }
    assert!(bytes.is_empty());
}

const ETH: &str = "020000000001 020000000002";
const IP: &str = "45000030 00010000 40";

#[test]
fn keys_have_the_attributes_that_the_kernel_gives_them() {
    let addresses = "0000 0a000001 0a000002";
    let v4 = "7=0a0000010a000002";
    let pad = "00".repeat(20);
    check(
        &format!("{ETH} 0800 {IP}11{addresses} 03e80035001c0000 {pad}"),
        &["6=0800", &format!("{v4}11004000"), "10=03e80035"],
    );
    check(
        &format!("{ETH} 0800 {IP}06{addresses} 03e80050 00000001 00000000 50020100 00000000 {pad}"),
        &["6=0800", &format!("{v4}06004000"), "9=03e80050", "18=0002"],
    );
    check(
        &format!("{ETH} 0800 {IP}01{addresses} 0800f7ff00000000 {pad}"),
        &["6=0800", &format!("{v4}01004000"), "11=0800"],
    );
    // A later fragment has no ports.
    check(
        &format!("{ETH} 0800 45000030 00010010 4011{addresses} 03e80035001c0000 {pad}"),
        &["6=0800", &format!("{v4}11004002")],
    );
    check(
        &format!("{ETH} 8100 2064 0800 {IP}11{addresses} 03e80035001c0000 {pad}"),
        &["6=8100", "5=3064", "1.6=0800", &format!("1.{v4}11004000"), "1.10=03e80035"],
    );
    check(
        &format!("{ETH} 0806 0001080006040001 020000000002 0a000001 000000000000 0a000002 {pad}"),
        &["6=0806", "13=0a0000010a00000200010200000000020000000000000000"],
    );
    let (src, dst) = ("fd".repeat(16), "fe".repeat(16));
    check(
        &format!("{ETH} 86dd 60000000 0018 3aff {src} {dst} 8700000000000000 {src} {pad}"),
        &[
            "6=86dd",
            &format!("8={src}{dst}000000003a00ff00"),
            "12=8700",
            &format!("14={src}{}", "00".repeat(12)),
        ],
    );
    check(&format!("{ETH} 8847 000641ff {pad}"), &["6=8847", "21=000641ff"]);
    check(&format!("{ETH} 88b5 {pad}"), &["6=88b5"]);
    // A length, not a type.
    check(&format!("{ETH} 0010 {pad}"), &[]);
}
