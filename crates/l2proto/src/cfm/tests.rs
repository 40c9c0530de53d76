//! Tests of messages, settings and claims.

mod session;
mod simulation;

use super::*;
use crate::protocol::*;
use flow::{Flow, MacAddr, Mask};
use std::collections::BTreeMap;

/// The first frame of OVS 3.5 with `cfm_mpid=1`.
const PLAIN: &str = "0180c2000030aa55aa5500108902000104460000000100010403 6f7673 02036f7673";
/// Its first frame with `cfm_mpid=123456789`, `cfm_extended`, `cfm_interval=300`, `cfm_opstate=down`, VLAN 7, priority 5.
const EXTENDED: &str = "012320000030aa55aa55000e8100a00789020001004600000001fe3104036f767302036f7673";

/// Bytes of digits, filled with zeros.
fn bytes_of(hex: &str, length: usize) -> Vec<u8> {
    let digits: String = hex.chars().filter(|c| *c != ' ').collect();
    let mut bytes: Vec<u8> =
        (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect();
    bytes.resize(length, 0);
    bytes
}

/// Rows of an interface.
struct Row {
    mpid: Option<i64>,
    other_config: BTreeMap<String, String>,
}

impl Columns for Row {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        match (table, name) {
            (Table::Interface, "cfm_mpid") => self.mpid.map(LinkValue::Integer),
            (Table::Interface, "other_config") => Some(LinkValue::Map(self.other_config.clone())),
            _ => None,
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn members(&self) -> usize {
        1
    }
}

fn parse(mpid: i64, pairs: &[(&str, &str)]) -> (Option<Config>, Vec<IgnoredSetting>) {
    let other_config = pairs.iter().map(|(key, value)| (format!("cfm_{key}"), value.to_string())).collect();
    Config::parse(&Row { mpid: Some(mpid), other_config })
}

fn config(mpid: i64, pairs: &[(&str, &str)]) -> Config {
    let (config, ignored) = parse(mpid, pairs);
    assert_eq!(ignored, []);
    config.unwrap()
}

fn port(name: &str, mac: MacAddr) -> LinkPort {
    LinkPort {
        interface: name.to_string(),
        port: name.to_string(),
        bridge: "br0".to_string(),
        of_port: flow::OfPort(1),
        mac,
        bridge_mac: mac,
        is_up: true,
        speed_mbps: 0,
        is_full_duplex: true,
    }
}

/// Random numbers that are all the largest; a counter of a device.
#[derive(Default)]
struct Fixed {
    rx_packets: u64,
}

impl Environment for Fixed {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        self.rx_packets
    }

    fn random(&mut self, below: u32) -> u32 {
        below - 1
    }
}

#[test]
fn frames_are_those_of_ovs() {
    let settings =
        [("extended", "true"), ("interval", "300"), ("opstate", "down"), ("ccm_vlan", "7"), ("ccm_pcp", "5")];
    let mut extended = bytes_of(EXTENDED, 93);
    extended[76..78].copy_from_slice(&[0x01, 0x2c]);
    extended[78..86].copy_from_slice(&123_456_789_u64.to_be_bytes());
    extended[86] = 1;
    let cases = [
        (config(1, &[]), [0xaa, 0x55, 0xaa, 0x55, 0, 0x10], bytes_of(PLAIN, 89)),
        (config(123_456_789, &settings), [0xaa, 0x55, 0xaa, 0x55, 0, 0x0e], extended),
    ];
    for (config, mac, expected) in cases {
        let (mut sessions, mut out) = (Sessions::default(), Vec::new());
        sessions.configure(&port("p1", MacAddr(mac)), &config, 1, &mut Fixed::default());
        assert!(!sessions.tick(1, 9, &mut Fixed::default(), &mut out));
        assert_eq!(out.len(), 1);
        assert_eq!(*out[0].1.frame, *expected);
        assert!(!out[0].1.oam && out[0].1.header_bytes == expected.len() - MESSAGE_BYTES);
        let parsed = parse_frame(&out[0].1.frame).unwrap();
        assert_eq!((parsed.src_mac, parsed.message.unwrap().seq), (MacAddr(mac), 1));
    }
}

/// Settings; interval, its code, whether something is ignored. The results are those of OVS 3.5.
#[test]
fn intervals_are_those_of_ovs() {
    let cases: &[(&[(&str, &str)], u32, u8, bool)] = &[
        (&[], 1000, 4, false),
        (&[("interval", "-5")], 1000, 4, true),
        (&[("interval", "0")], 1000, 4, true),
        (&[("interval", "1x")], 1000, 4, true),
        (&[("interval", "1")], 3, 1, false),
        (&[("interval", "5")], 3, 1, false),
        (&[("interval", "9999")], 1000, 4, false),
        (&[("interval", "70000")], 60_000, 6, false),
        (&[("interval", "600001")], 600_000, 7, false),
        (&[("interval", "5"), ("extended", "true")], 5, 0, false),
        (&[("interval", "10"), ("extended", "true")], 10, 2, false),
        (&[("interval", "70000"), ("extended", "true")], 65_535, 0, false),
        (&[("interval", "200"), ("extended", "true"), ("demand", "true")], 200, 0, false),
    ];
    for (pairs, ms, code, is_ignored) in cases {
        let (config, ignored) = parse(5, pairs);
        let config = config.unwrap();
        assert_eq!(
            (config.interval_ms, config.interval, !ignored.is_empty()),
            (*ms, *code, *is_ignored),
            "{pairs:?}"
        );
    }
}

/// The results are those of OVS 3.5.
#[test]
fn settings_are_read_as_ovs_reads_them() {
    let base = Config::new(5);
    let cases: Vec<(&str, &str, Config, bool)> = vec![
        ("ccm_vlan", "random", Config { vlan: Vlan::Random, ..base.clone() }, false),
        ("ccm_vlan", "RANDOM", Config { vlan: Vlan::Random, ..base.clone() }, false),
        ("ccm_vlan", "7", Config { vlan: Vlan::Fixed(7), ..base.clone() }, false),
        ("ccm_vlan", "4096", base.clone(), true),
        ("ccm_vlan", "65535", base.clone(), true),
        ("ccm_vlan", "abc", base.clone(), true),
        ("ccm_pcp", "9", Config { pcp: 1, ..base.clone() }, true),
        ("ccm_pcp", "7", Config { pcp: 7, ..base.clone() }, false),
        ("ccm_pcp", "x", base.clone(), true),
        ("opstate", "UP", base.clone(), false),
        ("opstate", "down", Config { is_up: false, ..base.clone() }, false),
        ("opstate", "bogus", Config { is_up: false, ..base.clone() }, true),
        ("extended", "TRUE", Config { is_extended: true, ..base.clone() }, false),
        ("extended", "1", base.clone(), true),
        ("demand", "true", base.clone(), true),
        ("bogus", "1", base.clone(), false),
    ];
    for (key, value, expected, is_ignored) in cases {
        let (config, ignored) = parse(5, &[(key, value)]);
        assert_eq!((config, !ignored.is_empty()), (Some(expected), is_ignored), "{key}={value}: {ignored:?}");
        assert!(ignored.iter().all(|one| one.place == format!("other_config:cfm_{key}")));
    }
    for (mpid, is_extended, valid) in [
        (0, true, false),
        (1, false, true),
        (8191, false, true),
        (8192, false, false),
        (8192, true, true),
        (-1, true, true),
    ] {
        let flag = if is_extended { "true" } else { "false" };
        let (config, ignored) = parse(mpid, &[("extended", flag)]);
        assert_eq!((config.is_some(), ignored.is_empty()), (valid, valid), "{mpid}");
    }
    assert_eq!(Config::parse(&Row { mpid: None, other_config: BTreeMap::new() }), (None, Vec::new()));
}

#[test]
fn claims_are_those_of_ovs() {
    let cases = [
        (false, ETH_TYPE_CFM, DST_MAC, true),
        (false, ETH_TYPE_CFM, DST_MAC_EXTENDED, false),
        (true, ETH_TYPE_CFM, DST_MAC_EXTENDED, true),
        (true, ETH_TYPE_CFM, DST_MAC, false),
        (false, 0x0800, DST_MAC, false),
    ];
    for (is_extended, dl_type, dst, expected) in cases {
        let flow = Flow { dl_type, dl_dst: dst.0, ..Flow::default() };
        let mut mask = Mask::none();
        assert_eq!(Sessions::claims(&Claim { is_extended }, &flow, &mut mask), expected);
        assert_eq!((mask.0.dl_dst, mask.0.dl_type), ([0xff; 6], u16::MAX));
    }
}

/// Changes of a good frame, and its parse.
#[test]
fn bad_frames_are_refused() {
    let good = bytes_of(PLAIN, 89);
    let message = parse_frame(&good).unwrap().message;
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        parse_frame(&frame)
    };
    assert_eq!(with(15, 3), Err(Refusal::Opcode(3)));
    for at in [24, 40, 71] {
        assert_eq!(with(at, 0xff).map(|frame| frame.message), Ok(None), "{at}");
    }
    assert_eq!(with(72, 0xff).map(|frame| frame.message.is_some()), Ok(true));
    for length in 0..88 {
        assert_eq!(parse_frame(&good[..length]), Err(Refusal::Short));
    }
    assert_eq!(parse_frame(&good[..88]).map(|frame| frame.message), Ok(message));
    let tagged = |tags: &[u8]| [&good[..12], tags, &good[12..]].concat();
    for tags in [&[0x81, 0, 0, 5][..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]] {
        assert_eq!(parse_frame(&tagged(tags)).map(|frame| frame.message), Ok(message));
    }
}

#[test]
fn corpus_of_cfm_frames() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/cfm_frames"),
        crate::fuzz::cfm_frames,
    );
}
