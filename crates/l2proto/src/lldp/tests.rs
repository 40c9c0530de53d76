//! Tests of frames and sessions.

use super::*;
use crate::protocol::*;
use flow::{Flow, MacAddr, Mask};
use std::collections::BTreeMap;

/// The frame of OVS 3.5 for interface `p3` with system `sw1`, described as `my desc`, and services 1000 and 16777215.
const FRAME: &str = "0180c200000eaa55aa55000f88cc020704aa55aa55000f04030570330602 00780a03737731\
    0c076d7920646573630e0400040004fe3200040d0b\
    000000000000000000000000000000000000000000000000000000000000000038000000aa55aa55000f00000000\
    fe2e00040d0c0000000000000000000000000000000000000000000000000000000000000000000a0003e80fffffffff0000";

const MAC: MacAddr = MacAddr([0xaa, 0x55, 0xaa, 0x55, 0, 0x0f]);

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: String = hex.chars().filter(|c| *c != ' ').collect();
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap()).collect()
}

const SERVICES: [Mapping; 2] = [Mapping { isid: 1000, vlan: 10 }, Mapping { isid: 0xff_ffff, vlan: 4095 }];

/// Rows of an interface and its bridge.
#[derive(Default)]
struct Row {
    enable: Option<&'static str>,
    name: &'static str,
    description: String,
    mappings: BTreeMap<i64, i64>,
}

impl Columns for Row {
    fn column(&self, table: Table, name: &str) -> Option<LinkValue> {
        match (table, name) {
            (Table::Interface, "lldp") => {
                let pairs = self.enable.map(|value| ("enable".to_string(), value.to_string()));
                Some(LinkValue::Map(pairs.into_iter().collect()))
            }
            (Table::AutoAttach, "system_name") => Some(LinkValue::Text(self.name.to_string())),
            (Table::AutoAttach, "system_description") => Some(LinkValue::Text(self.description.clone())),
            (Table::AutoAttach, "mappings") => Some(LinkValue::Numbers(self.mappings.clone())),
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

struct Nothing;

impl Environment for Nothing {
    fn rx_packets(&mut self, _: SessionId) -> u64 {
        0
    }

    fn random(&mut self, below: u32) -> u32 {
        below - 1
    }
}

/// A TLV.
fn tlv(kind: u16, value: &[u8]) -> Vec<u8> {
    [&(kind << 9 | value.len() as u16).to_be_bytes(), value].concat()
}

/// A TLV of auto-attach, with an empty digest.
fn attach(subtype: u8, value: &[u8]) -> Vec<u8> {
    tlv(127, &[&[0, 4, 0x0d, subtype], &[0; 32][..], value].concat())
}

/// A frame of system `chassis` with this port, time to live and further TLVs.
fn frame(chassis: u8, port: &str, ttl_s: u16, more: &[&[u8]]) -> Vec<u8> {
    let mut frame = [&DST_MAC.0[..], &[2, 0, 0, 0, 0, chassis, 0x88, 0xcc]].concat();
    frame.extend(tlv(1, &[4, 2, 0, 0, 0, 0, chassis]));
    frame.extend(tlv(2, &[&[5], port.as_bytes()].concat()));
    frame.extend(tlv(3, &ttl_s.to_be_bytes()));
    more.iter().for_each(|tlv| frame.extend_from_slice(tlv));
    frame.extend([0, 0]);
    frame
}

/// An element whose system ends with this byte.
fn element(last: u8) -> Vec<u8> {
    attach(11, &[0x08, 0x80, 0, 0, 2, 0, 0, 0, 0, last, 0x20, 0, 0, 0])
}

/// A session of interface `p3`.
struct Bed {
    sessions: Sessions,
    id: SessionId,
    now_ms: u64,
    sent: Vec<Vec<u8>>,
    lines: Vec<String>,
}

impl Bed {
    fn new(row: &Row) -> Bed {
        let mut sessions = Sessions::default();
        let (config, _) = Sessions::parse(row);
        let id = sessions.configure(&port("p3"), &config.unwrap(), 1000, &mut Nothing);
        // The lines of its services.
        let _ = sessions.take_report();
        Bed { sessions, id, now_ms: 1000, sent: Vec::new(), lines: Vec::new() }
    }

    fn run(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while let Some(at) = self.sessions.next_wakeup().filter(|at| *at <= until_ms) {
            let mut out = Vec::new();
            self.sessions.tick(at.max(self.now_ms), 9, &mut Nothing, &mut out);
            self.sent.extend(out.into_iter().map(|(_, sent)| sent.frame.to_vec()));
        }
        self.now_ms = until_ms;
    }

    fn receive(&mut self, frame: &[u8]) {
        let received = Received { ttl: 0, payload: Some(frame) };
        assert_eq!(self.sessions.input(self.id, received, self.now_ms, &mut Nothing), Ok(()));
        while let Some(report) = self.sessions.take_report() {
            self.lines.extend(report.lines.into_iter().map(|line| line.text));
        }
    }

    fn command(&mut self, name: &str) -> String {
        let row = Sessions::COMMANDS.iter().find(|row| row.name == format!("autoattach/{name}")).unwrap();
        (row.run)(&mut self.sessions, &["nobr".to_string()], self.now_ms).unwrap()
    }

    /// A counter of `autoattach/statistics`.
    fn count(&mut self, name: &str) -> u32 {
        let text = self.command("statistics");
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name} cnt: "))).unwrap();
        line.parse().unwrap()
    }
}

fn port(name: &str) -> LinkPort {
    LinkPort {
        interface: name.to_string(),
        port: name.to_string(),
        bridge: "br0".to_string(),
        of_port: flow::OfPort(3),
        mac: MAC,
        bridge_mac: MAC,
        is_up: true,
        speed_mbps: 0,
        is_full_duplex: true,
    }
}

fn attached() -> Row {
    let mappings = BTreeMap::from([(1000, 10), (0xff_ffff, 4095)]);
    Row { enable: Some("true"), name: "sw1", description: "my desc".to_string(), mappings }
}

#[test]
fn frames_are_those_of_ovs() {
    let expected = bytes_of(FRAME);
    let mut bed = Bed::new(&attached());
    bed.run(4999);
    assert_eq!(bed.sent.len(), 0, "the first one leaves after an interval");
    bed.run(10_001);
    assert_eq!(bed.sent, [&expected[..], &expected, &expected]);
    // A later service comes behind the others, a removed one is gone.
    let mut row = attached();
    row.mappings = BTreeMap::from([(2000, 20), (0xff_ffff, 4095)]);
    let config = Sessions::parse(&row).0.unwrap();
    bed.sessions.configure(&port("p3"), &config, bed.now_ms, &mut Nothing);
    bed.run(5000);
    let (kept, last) = expected.split_at(expected.len() - 12);
    assert_eq!(bed.sent[3], [kept, &last[5..10], &[0, 20, 0, 7, 0xd0, 0, 0]].concat());
    let parsed = parse(&expected).unwrap();
    assert_eq!(parsed.assignments.iter().map(|one| one.mapping).collect::<Vec<_>>(), SERVICES);
    assert_eq!((parsed.ttl_s, parsed.element.map(|one| (one.kind, one.mac))), (120, Some((14, MAC))));
}

/// The port carries the VLANs of its services. They stay without auto-attach, as in OVS.
#[test]
fn services_change_the_vlans_of_the_port() {
    let mut bed = Bed::new(&Row { mappings: BTreeMap::new(), ..attached() });
    let mut changes = |mappings: Option<&[(i64, i64)]>| {
        let row = Row { mappings: mappings.unwrap_or_default().iter().copied().collect(), ..attached() };
        let mut config = Sessions::parse(&row).0.unwrap();
        config.mappings = config.mappings.filter(|_| mappings.is_some());
        let id = bed.sessions.configure(&port("p3"), &config, bed.now_ms, &mut Nothing);
        let report = bed.sessions.take_report().filter(|report| report.id == id);
        let trunks = report.map(|report| report.trunks).unwrap_or_default();
        trunks.into_iter().map(|change| (change.vlan, change.is_added)).collect::<Vec<_>>()
    };
    assert_eq!(changes(Some(&[(1000, 10), (0xff_ffff, 4095)])), [(10, true), (4095, true)]);
    assert_eq!(changes(Some(&[(1000, 10), (1001, 10)])), [(4095, false), (10, true)]);
    assert_eq!(changes(Some(&[(1001, 10)])), [], "another service has the VLAN");
    assert_eq!(changes(None), []);
    assert_eq!(changes(Some(&[(1001, 11)])), [(10, false), (11, true)]);
}

/// Long texts and many services still make a frame whose TLVs have the right lengths.
#[test]
fn frames_are_bounded() {
    let text = "ü".repeat(400);
    let services: Vec<Mapping> = (0..500).map(|isid| Mapping { isid, vlan: 1 }).collect();
    let local = Local { mac: MAC, port: &text, name: &text, description: &text, mappings: &services };
    let frame = build(&local);
    let parsed = parse(&frame).unwrap();
    assert_eq!(parsed.assignments.len(), MAPPINGS_MAX);
    assert_eq!((parsed.port.len(), parsed.description.unwrap().len()), (255, 254));
    let mut row = attached();
    row.description = text;
    row.mappings = (0..500).map(|isid| (isid, 1)).collect();
    let (config, ignored) = Sessions::parse(&row);
    assert_eq!((config.unwrap().mappings.map(|all| all.len()), ignored.len()), (Some(MAPPINGS_MAX), 2));
}

#[test]
fn settings_enable_a_session() {
    let enabled = |enable| Sessions::parse(&Row { enable, ..Row::default() });
    assert_eq!(enabled(None), (None, Vec::new()));
    assert_eq!(enabled(Some("false")), (None, Vec::new()));
    assert_eq!((enabled(Some("on")).0, enabled(Some("on")).1.len()), (None, 1));
    let (config, ignored) = enabled(Some("TRUE"));
    let config = config.unwrap();
    assert!(config.description.starts_with("sluice ") && config.name.is_empty() && ignored.is_empty());
}

/// Times and texts of OVS 3.5 after the same frames.
#[test]
fn neighbours_are_shown_as_in_ovs() {
    let mut bed = Bed::new(&attached());
    assert_eq!(bed.command("status"), "LLDP: p3\n");
    assert_eq!(
        bed.command("show-isid"),
        "LLDP: p3\nI-SID    VLAN Source      Status  \n-------- ---- ----------- --------\n\
         1000     10   Switch      Pending    \n16777215 4095 Switch      Pending    \n"
    );
    let described = tlv(6, b"Core switch");
    let assigned = attach(12, &[0x30, 10, 0, 0x03, 0xe8, 0x20, 20, 0, 0x07, 0xd0]);
    bed.receive(&frame(9, "1/1", 120, &[&described, &element(0xaa), &assigned]));
    let shown = "\tAuto Attach Primary Server Id: 02:00:00:00:00:09\n\
                 \tAuto Attach Primary Server Descr: Core switch\n\
                 \tAuto Attach Primary Server System Id: 02:00:00:00:00:aa:01:00:00:00:00:00\n";
    assert_eq!(bed.command("status"), format!("LLDP: p3\n{shown}"));
    assert!(bed.command("show-isid").contains("\n1000     10   Switch      Reject (Generic)\n16777215"));
    bed.receive(&frame(8, "1/1", 120, &[]));
    assert_eq!(bed.command("status").lines().count(), 4, "a neighbour without an element is not shown");
    let odd = attach(11, &[0x0a, 0xbc, 0x12, 0, 2, 0, 0, 0, 0, 0xaa, 0xa2, 0xa5, 0x11, 0x22]);
    bed.receive(&frame(7, "1/1", 120, &[&odd]));
    let shown = bed.command("status");
    assert!(shown.ends_with(
        "Descr: <None>\n\tAuto Attach Primary Server System Id: 02:00:00:00:00:aa:05:00:a5:02:11:22\n"
    ));
    let mut lines = bed.lines.iter();
    assert_eq!(lines.next().unwrap(), "Element type: 2, vlan tagging 0, auto prov mode 1, Mgmt vlan: 0");
    assert_eq!(lines.next().unwrap(), "System mac: 02:00:00:00:00:aa");
    let rest: Vec<&String> = lines.filter(|line| !line.starts_with("System")).collect();
    let expected = [
        "h_rport: isid=1000, vlan=10, status=3",
        "Setting status for ISID=1000 to 3",
        "h_rport: isid=2000, vlan=20, status=2",
        "Couldn't find mapping for I-SID=2000",
        "Element type: 2, vlan tagging 1, auto prov mode 1, Mgmt vlan: C12",
    ];
    assert_eq!(rest, expected);
}

/// Frames and the log line of OVS 3.5; an empty one if it takes the frame.
#[test]
fn bad_frames_are_discarded_as_in_ovs() {
    let with = |more: &[u8]| frame(9, "1", 120, &[more]);
    let good = with(&[]);
    let cut = |bytes: usize| good[..good.len() - bytes].to_vec();
    let mut other_address = good.clone();
    other_address[5] = 0;
    let mut bad_id = good.clone();
    bad_id[16] = 8;
    let tagged = [&good[..12], &[0x81, 0, 0, 5], &good[12..]].concat();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (tagged, ""),
        (with(&tlv(4, b"")), ""),
        (with(&tlv(8, &[&[0][..], &[0; 20]].concat())), ""),
        (with(&[&attach(11, &[0; 14])[..], &[0, 0, 7]].concat()), ""),
        (with(&tlv(127, &[0, 4, 0x0d, 11])), "ELEMENT TLV too short received on p3"),
        (with(&attach(12, &[0; 4])), "malformed vlan-isid mappings tlv received"),
        (with(&tlv(127, &[0, 4, 0x0d, 12])), "ISID_VLAN_ASGNS TLV too short received on p3"),
        (with(&tlv(1, &[4, 1])), "first TLV should be a chassis ID on p3, not 1"),
        (with(&tlv(3, &[4, 1])), "third TLV should be a TTL on p3, not 3"),
        (with(&tlv(7, &[0; 3])), "System capabilities TLV too short received on p3"),
        (with(&tlv(8, &[0; 3])), "Management address TLV too short received on p3"),
        (with(&tlv(8, &[200; 221])), "too large management address on p3"),
        (with(&tlv(127, &[0; 3])), "Organisational TLV too short received on p3"),
        (with(&tlv(127, b"abcd")), "unknown org tlv [61:62:63] received on p3"),
        (with(&tlv(9, b"1")), "unknown tlv (9) received on p3"),
        (with(&[0xff, 0xff, 0]), "frame too short for tlv received on p3"),
        (with(&[0, 1, 0xaa]), "lldp end received with size not null on p3"),
        (cut(1), "tlv header too short received on p3"),
        (cut(2), "some mandatory tlv are missing for frame received on p3"),
        (frame(9, "", 1, &[]), "Port/Chassis Id TLV too short received on p3"),
        (frame(9, &"9".repeat(300), 1, &[]), "Port/Chassis Id TLV too large received on p3"),
        (other_address, "frame not targeted at LLDP multicast address received on p3"),
        (bad_id, "unknown subtype for tlv id received on p3"),
        (good[..17].to_vec(), ""),
        (Vec::new(), ""),
    ];
    for (i, (frame, expected)) in cases.into_iter().enumerate() {
        let mut bed = Bed::new(&attached());
        bed.receive(&frame);
        bed.lines.retain(|line| !line.starts_with("Element type") && !line.starts_with("System mac"));
        assert_eq!(bed.lines.concat(), expected, "case {i}");
        assert_eq!(bed.count("rx"), 1);
        let is_discarded = !expected.is_empty() && !expected.contains("unknown org");
        assert_eq!(bed.count("rx discarded"), u32::from(is_discarded), "case {i}");
    }
}

#[test]
fn neighbours_age_out_and_are_bounded() {
    let mut bed = Bed::new(&attached());
    bed.receive(&frame(9, "1", 10, &[&element(1)]));
    bed.run(9000);
    bed.receive(&frame(9, "1", 10, &[&element(1)]));
    bed.run(9000);
    assert_eq!(bed.command("status").lines().count(), 4, "the same frame extends its time");
    bed.run(1000);
    assert_eq!((bed.command("status"), bed.count("ageout")), ("LLDP: p3\n".to_string(), 1));
    bed.receive(&frame(9, "1", 10, &[&element(1)]));
    bed.receive(&frame(9, "1", 0, &[&element(1)]));
    assert_eq!((bed.count("insert"), bed.count("delete")), (2, 1));
    for n in 0..1000 {
        bed.receive(&frame(9, &n.to_string(), 65_535, &[&element(1), &tlv(127, &[0, 0x80, 0xc2, 1])]));
    }
    let kept = NEIGHBOURS_MAX as u32;
    assert_eq!((bed.count("insert"), bed.count("drop")), (2 + kept, 1000 - kept));
    assert_eq!(bed.command("status").lines().count(), 1 + 3 * NEIGHBOURS_MAX);
    assert!(bed.lines.len() < 40, "a flood writes few lines: {}", bed.lines.len());
    // A known one still changes.
    bed.receive(&frame(9, "3", 65_535, &[&element(2)]));
    assert!(bed.command("status").contains("00:02:01:00"));
    bed.run(65_536_000);
    assert_eq!(bed.count("ageout"), 1 + kept);
}

#[test]
fn every_frame_of_its_type_is_claimed() {
    for (dl_type, expected) in [(ETH_TYPE_LLDP, true), (0x0800, false)] {
        let (flow, mut mask) = (Flow { dl_type, ..Flow::default() }, Mask::none());
        assert_eq!(Sessions::claims(&Claim, &flow, &mut mask), expected);
        assert_eq!((mask.0.dl_type, mask.0.dl_dst), (u16::MAX, [0; 6]));
    }
}

#[test]
fn corpus_of_lldp_frames() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/lldp_frames"),
        crate::fuzz::lldp_frames,
    );
}
