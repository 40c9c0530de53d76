//! Statistics of OpenFlow 1.5 (OXS), field by field, and the numbers of errors, beside `ovs-ofctl`.

use testkit::{Cmd, require_programs};

use crate::server::sluice;

/// Output of both tools.
fn both(args: &[&str]) -> [String; 2] {
    let ours = sluice().arg("ofctl").args(args).output().unwrap();
    let theirs = Cmd::new("ovs-ofctl").args(args).output().unwrap();
    [ours.stdout, theirs.stdout]
}

/// A field: class, number, bytes in hexadecimal digits.
type Field = (u16, u8, &'static str);

const DURATION: Field = (0x8002, 0, "000000050ee6b280");
const IDLE_TIME: Field = (0x8002, 1, "0000000300000001");
const FLOW_COUNT: Field = (0x8002, 3, "00000009");
const PACKET_COUNT: Field = (0x8002, 4, "000000000000000b");
const BYTE_COUNT: Field = (0x8002, 5, "0000000000000514");

/// Statistics with their padding.
fn statistics(fields: &[Field]) -> String {
    let field = |(class, number, value): &Field| {
        format!("{class:04x}{:02x}{:02x}{value}", number << 1, value.len() / 2)
    };
    let body: String = fields.iter().map(field).collect();
    let len = 4 + body.len() / 2;
    format!("0000{len:04x}{body}{}", "00".repeat(len.next_multiple_of(8) - len))
}

fn message(ty: u8, body: &str) -> String {
    format!("06{ty:02x}{:04x}00000007{body}", 8 + body.len() / 2)
}

/// A rule, sums, and a removed rule with these statistics, in OpenFlow 1.5.
fn messages(fields: &[Field]) -> [String; 3] {
    let (statistics, no_match) = (statistics(fields), "0001000400000000");
    let rule = format!("000003000007000a0014000000040000000000000055{no_match}{statistics}");
    let rule = format!("{:04x}{rule}", 2 + rule.len() / 2);
    [
        message(19, &format!("0001000000000000{rule}")),
        message(19, &format!("0002000000000000{statistics}")),
        message(11, &format!("03000007000a00140000000000000055{no_match}{statistics}")),
    ]
}

#[test]
fn each_statistic_is_read_by_its_name() {
    require_programs!("ovs-ofctl");
    let all = [DURATION, IDLE_TIME, FLOW_COUNT, PACKET_COUNT, BYTE_COUNT];
    // An unknown time prints as numbers of all ones there.
    let plain = |text: &str| text.replace("4294967295.4294967295s", "0s");
    for (fields, words) in [
        (
            &all[..],
            ["duration=5.250s", "idle_age=3", "n_packets=11", "n_bytes=1300", "flow_count=9"].as_slice(),
        ),
        (&[DURATION], &["duration=5.250s, table=3, n_packets=?, n_bytes=?", "duration5.250s"]),
        (&[IDLE_TIME], &["idle_age=3"]),
        (&[FLOW_COUNT], &["flow_count=9"]),
        (&[PACKET_COUNT], &["n_packets=11, n_bytes=?", "packet_count=11", "pkts11"]),
        (&[BYTE_COUNT], &["n_packets=?, n_bytes=1300", "byte_count=1300", "bytes1300"]),
        (
            &[BYTE_COUNT, PACKET_COUNT, FLOW_COUNT, IDLE_TIME, DURATION],
            &["duration=5.250s", "packet_count=11"],
        ),
        (&[], &["n_packets=?"]),
        // The last of several counts.
        (&[PACKET_COUNT, (0x8002, 4, "000000000000000c")], &["n_packets=12"]),
        // Other lengths, numbers and classes are passed over.
        (&[(0x8002, 0, "00000005"), BYTE_COUNT], &["n_bytes=1300"]),
        (&[(0x8002, 3, "0000000000000009"), BYTE_COUNT], &["flow_count=4294967295"]),
        (&[(0x8002, 4, ""), BYTE_COUNT], &["n_packets=?, n_bytes=1300"]),
        (&[(0x8002, 9, "0000000000000001"), BYTE_COUNT], &["n_packets=?, n_bytes=1300"]),
        (&[(0x8001, 4, "0000000000000001"), BYTE_COUNT], &["n_packets=?, n_bytes=1300"]),
        (&[(0xffff, 4, "4f4e46000000000000000001"), BYTE_COUNT], &["n_packets=?, n_bytes=1300"]),
    ] {
        let mut shown = String::new();
        for message in messages(fields) {
            let [ours, theirs] = both(&["ofp-print", &message]);
            assert_eq!(plain(&ours), plain(&theirs), "{fields:?} {message}");
            assert!(!ours.contains("decode error"), "{ours}");
            shown += &ours;
        }
        for word in words {
            assert!(shown.contains(word), "{fields:?}: {word} in {shown}");
        }
    }
    // An experimenter's field has its number.
    let [ours, theirs] = both(&["ofp-print", &messages(&[(0xffff, 4, "0000")])[2]]);
    assert!(ours == theirs && ours.contains("OFPBMC_BAD_LEN"), "{ours}\n{theirs}");
}

#[test]
fn errors_have_the_numbers_of_ovs_ofctl() {
    require_programs!("ovs-ofctl");
    let mut compared = 0;
    for kind in openflow::ErrorKind::ALL {
        let [ours, theirs] = both(&["print-error", kind.name()]);
        // OVS 3.1 knows no later ones; in OpenFlow 1.3 it has no error for a bundle of another version.
        if theirs.is_empty() || kind.name() == "OFPBFC_BAD_VERSION" {
            continue;
        }
        assert_eq!(ours, theirs, "{}", kind.name());
        compared += 1;
    }
    assert!(compared > 150, "{compared}");
}
