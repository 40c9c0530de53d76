use super::lines;
use super::reader::{SavedBridge, read};
use connmgr::Dated;
use flow::TlvTable;

/// The bridges of a file with that text.
fn bridges(text: &str) -> std::io::Result<std::collections::BTreeMap<String, SavedBridge>> {
    read(text.as_bytes(), "boot")
}

const HEAD: &str = "sluice-state\t1\tboot\n";

#[test]
fn later_lines_replace_earlier_ones() {
    let rule =
        |actions: &str| format!("rule\t0\t7\tip\t1\t2\t3\t4\t5\tcookie=0x9,send_flow_rem\t{actions}\n");
    let text = format!(
        "{HEAD}bridge\tbr0\n{}group\t1\tgroup_id=1,type=all,bucket=bucket_id:0,actions=output:1\nwhole\nbridge\tbr0\n{}-group\t1\n\
         meter\t2\tmeter=2,kbps,bands=type=drop,rate=5\nbridge\tbr1\n{}-table\t0\nnew-kind\tx\n",
        rule("drop"),
        rule("NORMAL"),
        rule("drop")
    );
    let found = bridges(&text).unwrap();
    let (state, faults) = found["br0"].parse();
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!((state.rules.len(), state.groups.len(), state.meters.len()), (1, 0, 1));
    let rule = &state.rules[0];
    assert_eq!(ofp_actions::text::format_actions(&rule.added.actions, &TlvTable::EMPTY), "NORMAL");
    assert_eq!(
        (rule.added.priority, rule.added.new_cookie, rule.past.packets, rule.past.bytes),
        (7, 9, 4, 5)
    );
    assert!(found["br1"].parse().0.rules.is_empty());
}

#[test]
fn a_line_cut_short_is_left_out() {
    let whole =
        format!("{HEAD}bridge\tbr0\nwhole\nbridge\tbr0\nmeter\t1\tmeter=1,kbps,bands=type=drop,rate=5\n");
    for cut in whole.len() - 20..whole.len() {
        assert!(bridges(&whole[..cut]).unwrap().get("br0").is_none_or(|b| b.parse().0.meters.is_empty()));
    }
    assert_eq!(bridges(&whole).unwrap()["br0"].parse().0.meters.len(), 1);
}

#[test]
fn a_file_that_cannot_be_trusted_is_refused() {
    for (text, why) in [
        ("", "the file is empty"),
        ("hello\n", "not a file of state"),
        ("sluice-state\t9\tboot\n", "unknown version 9"),
        ("sluice-state\t1\tboot\nbridge\tbr0\n", "the file is not whole"),
        ("sluice-state\t1\tboot\nrule\t0\n", "line 2: no bridge"),
        ("sluice-state\t1\tboot\nbridge\tbr0\nrule\tx\n", "line 3: bad rule"),
        ("sluice-state\t1\tboot\nbridge\tbr0\ntlv\t70\t1\t1\t4\n", "line 3: bad tlv"),
        ("sluice-state\t1\tboot\nbridge\tbr0\nmac\t0\tnone\t1\tp1\n", "line 3: bad mac"),
    ] {
        assert_eq!(bridges(text).unwrap_err().to_string(), why, "{text:?}");
    }
    // An earlier start of the machine.
    assert!(bridges("sluice-state\t1\tother\nbridge\tbr0\nwhole\n").unwrap().is_empty());
}

#[test]
fn text_that_does_not_parse_leaves_the_rest() {
    let text = format!(
        "{HEAD}bridge\tbr0\nrule\t0\t7\tip\t1\t2\t3\t4\t5\tcookie=0x9\tfly\n\
         rule\t0\t8\tip\t1\t2\t3\t4\t5\tcookie=0x9\tdrop\nwhole\n"
    );
    let (state, faults) = bridges(&text).unwrap()["br0"].parse();
    assert_eq!((state.rules.len(), faults.len()), (1, 1));
    assert!(faults[0].contains("fly"), "{faults:?}");
}

#[test]
fn meters_come_back_as_they_were() {
    use openflow::msg::meter::{Band, BandType, CONTROLLER, Meter, flags};
    let meter = |id, flags, burst_size| Meter {
        id,
        flags,
        bands: vec![
            Band { ty: BandType::Drop, rate: 9, burst_size },
            Band { ty: BandType::Drop, rate: 4, burst_size },
        ],
    };
    for meter in [meter(3, flags::PKTPS | flags::STATS, 0), meter(CONTROLLER, flags::KBPS | flags::BURST, 7)]
    {
        let mut text = format!("{HEAD}bridge\tbr0\n");
        lines::meter(&mut text, &meter, 77);
        text += "whole\n";
        let meters = bridges(&text).unwrap().remove("br0").unwrap().only_meters().parse().0.meters;
        assert_eq!(meters, [Dated { what: meter, created_ms: Some(77) }]);
    }
}

/// The time belongs to the last meter or group of the number; files of earlier versions have none.
#[test]
fn meters_and_groups_have_the_times_of_their_creation() {
    let meter = |id| format!("meter\t{id}\tmeter={id},kbps,bands=type=drop,rate=5\n");
    let group = |id| format!("group\t{id}\tgroup_id={id},type=all,bucket=bucket_id:0,actions=output:1\n");
    let text = format!(
        "{HEAD}bridge\tbr0\n{}meter-since\t1\t5\n{}{}meter-since\t3\t6\n-meter\t3\n{}{}group-since\t1\t7\n{}whole\n\
         bridge\tbr0\n{}meter-since\t2\t8\n",
        meter(1),
        meter(2),
        meter(3),
        meter(3),
        group(1),
        group(2),
        meter(2)
    );
    let (state, faults) = bridges(&text).unwrap()["br0"].parse();
    assert!(faults.is_empty(), "{faults:?}");
    let meters = state.meters.iter().map(|m| (m.what.id, m.created_ms));
    assert_eq!(meters.collect::<Vec<_>>(), [(1, Some(5)), (2, Some(8)), (3, None)]);
    let groups = state.groups.iter().map(|g| (g.what.id, g.created_ms));
    assert_eq!(groups.collect::<Vec<_>>(), [(1, Some(7)), (2, None)]);
    assert!(bridges(&text.replace("meter-since\t1\t5", "meter-since\t1\tx")).is_err());
}
