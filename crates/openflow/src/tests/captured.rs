//! Messages captured between stock tools and a stock switch (OVS 3.1), in `corpus/captured.txt`.
//!
//! A line is: outcome, direction and command, hexadecimal bytes. Outcome `same`: encoding yields the same
//! bytes; `equal`: an equal message in another encoding; otherwise the name of the expected error.

use super::hex;
use crate::{Options, decode_with, encode_with, fuzz};

const CAPTURED: &str = include_str!("../../corpus/captured.txt");
const OPTIONS: Options = Options { table_id_in_command: true, ..Options::DEFAULT };

fn captured() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>)> {
    CAPTURED.lines().map(|line| {
        let mut parts = line.splitn(2, " | ");
        let outcome = parts.next().expect("an outcome");
        let (label, bytes) = parts.next().and_then(|l| l.rsplit_once(" | ")).expect("label and bytes");
        (outcome, label, hex(bytes))
    })
}

fn outcome(bytes: &[u8]) -> String {
    let (version, xid, message) = match decode_with(bytes, &OPTIONS) {
        Ok(decoded) => decoded,
        Err(e) => return e.kind.to_string(),
    };
    let again = encode_with(&message, version, xid, &OPTIONS).expect("what decodes encodes");
    let back = decode_with(&again, &OPTIONS).expect("what was encoded decodes").2;
    match (again == bytes, back == message) {
        (true, true) => "same".into(),
        (false, true) => "equal".into(),
        _ => format!("differs: {message:?}\n{back:?}"),
    }
}

#[test]
fn captured_messages_decode_and_encode_to_the_same_bytes() {
    let mut same = 0;
    for (expected, label, bytes) in captured() {
        assert_eq!(outcome(&bytes), expected, "{label}");
        same += usize::from(expected == "same");
    }
    assert!(same > 650, "only {same} messages are the same: has the corpus been cut?");
}

#[test]
fn damaged_messages_never_break_the_codec() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for (_, _, bytes) in captured().filter(|(_, _, b)| b.len() < 3000) {
        for _ in 0..40 {
            let mut damaged = bytes.clone();
            for _ in 0..=random(3) {
                let at = random(damaged.len());
                damaged[at] = if random(2) == 0 { damaged[at] ^ 1 << random(8) } else { random(256) as u8 };
            }
            if random(4) == 0 {
                damaged.truncate(8 + random(damaged.len() - 7));
                let len = (damaged.len() as u16).to_be_bytes();
                damaged[2..4].copy_from_slice(&len);
            }
            damaged[0] = bytes[0];
            fuzz::decode_message(&damaged);
            ofp_actions::fuzz::read_actions(&damaged[8..]);
        }
    }
}

#[test]
fn fuzz_targets_hold_on_the_corpus() {
    for (_, _, bytes) in captured() {
        fuzz::decode_message(&bytes);
        fuzz::session(&bytes);
        // Matches and actions begin at different offsets: try all aligned ones.
        for at in (0..bytes.len().min(200)).step_by(4) {
            fuzz::roundtrip_match(&bytes[at..]);
            ofp_actions::fuzz::read_actions(&bytes[at..]);
        }
    }
}

/// Regression inputs: matches or actions, tried as both.
#[test]
fn named_cases_stay_fixed() {
    for line in include_str!("../../corpus/cases.txt").lines() {
        let (_, bytes) = line.split_once(" | ").expect("name and bytes");
        let body = hex(bytes);
        fuzz::roundtrip_match(&body);
        ofp_actions::fuzz::read_actions(&body);
        let flow_mod = |head: &str, body: &[u8]| {
            let mut m = hex(head);
            m.extend(body);
            m.resize(m.len().next_multiple_of(8), 0);
            let len = (m.len() as u16).to_be_bytes();
            m[2..4].copy_from_slice(&len);
            m
        };
        let len = body.len();
        let nxm =
            "01040000 00000001 00002320 0000000d 0000000000000000 0000 0000 0000 8000 ffffffff ffff 0000";
        fuzz::decode_message(&flow_mod(&format!("{nxm} {len:04x} 000000000000"), &body));
        fuzz::decode_message(&flow_mod(&format!("{nxm} 0000 000000000000"), &body));
    }
}

/// Answers of OVS 3.1 to a flow-mod that matches one field after others, for every field and many others, as
/// recorded. A line names the entries (`set`), or a field with the sets after which it was accepted, is
/// inconsistent, or is repeated. After all others it lacks a prerequisite.
#[test]
fn fields_have_the_prerequisites_of_ovs() {
    let lines: Vec<Vec<&str>> = include_str!("../../corpus/prerequisites.txt")
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let sets: Vec<(&str, Vec<u8>)> =
        lines.iter().filter(|l| l[0] == "set").map(|l| (l[1], hex(l[2]))).collect();
    let (mut asked, mut differences) = (0, Vec::new());
    for line in lines.iter().filter(|l| l[0] == "field") {
        for (name, entries) in &sets {
            let among = |n: usize| line[n] == "all" || line[n].split(',').any(|s| s == *name);
            let expected = match (among(5), among(3), among(4)) {
                (true, ..) => "OFPBMC_DUP_FIELD",
                (_, true, _) => "ok",
                (.., true) => "OFPBAC_MATCH_INCONSISTENT",
                _ => "OFPBMC_BAD_PREREQ",
            };
            let mut oxm = entries.clone();
            oxm.extend(hex(line[2]));
            let mut m = hex(
                "040e0000 00000001 0000000000000000 0000000000000000 00 00 0000 0000 0001 ffffffff ffffffff ffffffff 0000 0000 0001",
            );
            m.extend((oxm.len() as u16 + 4).to_be_bytes());
            m.extend(&oxm);
            m.resize(48 + (oxm.len() + 4).next_multiple_of(8), 0);
            let len = (m.len() as u16).to_be_bytes();
            m[2..4].copy_from_slice(&len);
            let got = decode_with(&m, &Options::DEFAULT).map_or_else(|e| e.kind.to_string(), |_| "ok".into());
            if got != expected {
                differences.push(format!("{} behind {name}: {got}, not {expected}", line[1]));
            }
            asked += 1;
        }
    }
    assert_eq!(differences, Vec::<String>::new());
    assert!(asked > 2000, "only {asked} were asked: has the recording been cut?");
}
