//! Requests that change tables by table features (OpenFlow 1.3 on).

use super::*;
use ofproto::tables::TableSettings;
use openflow::msg::control::{ControllerRole, Role};
use openflow::msg::features::{TableFeatures, TableFeaturesCommand as C};
use openflow::{ErrorBody, Multi};
use std::collections::BTreeMap;

const VERSIONS: [Version; 3] = [Version::V13, Version::V14, Version::V15];

/// A change of a request that describes all tables as they are, and its outcome.
type Edit = (&'static str, fn(&mut Vec<TableFeatures>), Result<(), ErrorKind>);

/// Answers of OVS 3.1: names change, all else may only be repeated.
const EDITS: [Edit; 14] = [
    ("the same", |_| {}, Ok(())),
    ("a name", |t| t[0].name = "acl".into(), Ok(())),
    ("a long name", |t| t[2].name = "a".repeat(40), Ok(())),
    ("another configuration", |t| (t[2].config, t[2].metadata_match) = (3, 5), Ok(())),
    ("fewer instructions", |t| t[2].rules.instructions.truncate(2), Ok(())),
    ("no features of misses", |t| t[2].miss = None, Ok(())),
    ("more instructions", |t| t[2].rules.instructions.push(77), Err(ErrorKind::TffcEperm)),
    ("an earlier table", |t| t[2].rules.next_tables.push(TableId(1)), Err(ErrorKind::TffcEperm)),
    ("fewer rules", |t| t[2].max_entries = 5, Err(ErrorKind::TffcEperm)),
    ("more rules", |t| t[2].max_entries = u32::MAX, Err(ErrorKind::TffcEperm)),
    ("one table only", |t| t.truncate(1), Err(ErrorKind::TffcEperm)),
    ("a hidden table", |t| t[2].table = TableId::INTERNAL, Err(ErrorKind::TffcEperm)),
    ("all tables", |t| t[2].table = TableId::ALL, Err(ErrorKind::TffcBadTable)),
    ("a table twice", |t| t[2].table = TableId(1), Err(ErrorKind::NxtffcDupTable)),
];
/// The error `OFPTFFC_BAD_FEATURES` is of OpenFlow 1.5.
const EDITS_13: [Edit; 1] =
    [("no properties", |t| t[2].has_properties = false, Err(ErrorKind::NxbrcUnencodableError))];
const EDITS_15: [Edit; 4] = [
    ("no properties", |t| t.iter_mut().for_each(|t| t.has_properties = false), Ok(())),
    ("one to modify", |t| *t = vec![TableFeatures { command: C::Modify, ..t[7].clone() }], Ok(())),
    ("enabled", |t| t.iter_mut().for_each(|t| t.command = C::Enable), Err(ErrorKind::TffcEperm)),
    ("disabled", |t| t.iter_mut().for_each(|t| t.command = C::Disable), Err(ErrorKind::TffcEperm)),
];

/// The tables after a request with these entries, or its only error.
fn ask(s: &mut Switch, c: &mut Client, entries: Vec<TableFeatures>) -> Result<Vec<TableFeatures>, ErrorKind> {
    let mut tables = Vec::new();
    for m in c.ask(s, &Message::TableFeaturesRequest(Multi::all(entries))) {
        match m {
            Message::TableFeaturesReply(m) => tables.extend(m.entries),
            Message::Error(ErrorBody { error: ErrorCode::Known(kind), .. }) => {
                assert_eq!(tables, [], "one error and nothing else");
                return Err(kind);
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(tables)
}

#[test]
fn tables_are_named_by_table_features_and_keep_all_else() {
    for version in VERSIONS {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let original = ask(&mut s, &mut c, Vec::new()).unwrap();
        let own = if version >= Version::V15 { &EDITS_15[..] } else { &EDITS_13 };
        for (what, edit, expected) in EDITS.iter().chain(own) {
            let mut asked = original.clone();
            edit(&mut asked);
            let (first, name) = (asked[0].table, asked[0].name.clone());
            let got = ask(&mut s, &mut c, asked);
            assert_eq!(got.as_ref().map(|_| ()), expected.as_ref().map(|_| ()), "{what}, {version}");
            if let Ok(got) = got {
                let of_first = &got[usize::from(first.0)];
                assert_eq!((got.len(), &of_first.name), (254, &name), "{what}, {version}");
            }
        }
        let mut slave = s.controller(version);
        let role = Role { format: Format::Standard, role: ControllerRole::Slave, generation_id: 1 };
        slave.one(&mut s, &Message::RoleRequest(role));
        let request = Message::TableFeaturesRequest(Multi::all(original[..1].to_vec()));
        assert_eq!(slave.refused(&mut s, &request), ErrorKind::BrcIsSlave);
    }
}

/// As in OVS: a name of the database stays, and ends with its row; the name a controller gave before is lost.
#[test]
fn names_of_the_database_precede_those_of_controllers() {
    for version in VERSIONS {
        let mut s = Switch::new();
        let mut c = s.service(version);
        let original = ask(&mut s, &mut c, Vec::new()).unwrap();
        let named = |name: &str| TableSettings { name: name.into(), ..TableSettings::default() };
        let set = |s: &Switch, by_table: BTreeMap<u8, TableSettings>| {
            s.backer.change_bridge(s.bridge, |b| b.tables.set_settings(&by_table));
        };
        let mut rename = |s: &mut Switch, names: [&str; 2]| {
            let mut asked = original.clone();
            asked.iter_mut().zip(names).for_each(|(t, name)| t.name = name.to_string());
            let got = ask(s, &mut c, asked)?;
            Ok([0, 1].map(|n| got[n].name.clone()))
        };
        assert_eq!(rename(&mut s, ["", "own"]), Ok(["", "own"].map(String::from)));
        set(&s, [(1, named("db"))].into());
        assert_eq!(rename(&mut s, ["a", "other"]), Err(ErrorKind::TffcEperm));
        assert_eq!(rename(&mut s, ["a", "db"]), Ok(["a", "db"].map(String::from)));
        set(&s, BTreeMap::new());
        let view = s.backer.view();
        let tables = &view.bridge(s.bridge).unwrap().tables;
        assert_eq!([0, 1].map(|n| tables.name(TableId(n))), ["a", ""]);
    }
}

/// A part that does not come is given up; a part with a fault ends its request, with one error.
#[test]
fn parts_of_a_request_for_tables_are_awaited_for_a_second() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V15);
    let entry = |table: u8, name: &str| TableFeatures {
        table: TableId(table),
        command: C::Modify,
        name: name.to_string(),
        max_entries: ofproto::tables::TABLE_MAX_RULES,
        ..TableFeatures::default()
    };
    let part = |xid: u32, entries: Vec<TableFeatures>, more: bool| {
        let m = Multi { more, ..Multi::all(entries) };
        encode(&Message::TableFeaturesRequest(m), Version::V15, xid).unwrap()
    };
    let mut send = |s: &mut Switch, bytes: &[u8]| {
        c.received.clear();
        s.run();
        c.send_bytes(s, bytes);
        let told = |(xid, m): &(u32, Message)| match m {
            Message::Error(e) => format!("{xid} {}", e.error),
            Message::TableFeaturesReply(m) if m.more => String::new(),
            Message::TableFeaturesReply(_) => format!("{xid} done"),
            other => panic!("{other:?}"),
        };
        c.received.iter().map(told).filter(|text| !text.is_empty()).collect::<Vec<_>>()
    };
    // Two requests at once, each in its own order.
    let mixed = [part(1, vec![entry(1, "a")], true), part(2, vec![entry(2, "b")], true)].concat();
    assert_eq!(send(&mut s, &mixed), [""; 0]);
    assert_eq!(send(&mut s, &part(2, vec![entry(3, "c")], false)), ["2 done"]);
    assert_eq!(send(&mut s, &part(1, Vec::new(), false)), ["1 done"]);
    // A fault of the contents, and one of the message.
    let twice = [part(3, vec![entry(1, "x"), entry(1, "y")], true), part(3, vec![entry(9, "z")], false)];
    assert_eq!(send(&mut s, &twice.concat()), ["3 NXTFFC_DUP_TABLE"]);
    let bad = [part(4, vec![entry(255, "x")], true), part(4, vec![entry(9, "z")], false)];
    assert_eq!(send(&mut s, &bad.concat()), ["4 OFPTFFC_BAD_TABLE"]);
    let many: Vec<u8> = (10..16).flat_map(|xid| part(xid, Vec::new(), true)).collect();
    let full = |xid| format!("{xid} OFPBRC_MULTIPART_BUFFER_OVERFLOW");
    assert_eq!(send(&mut s, &many), [full(14), full(15)]);
    s.now_ms += 999;
    assert_eq!(send(&mut s, &[]), [""; 0]);
    s.now_ms += 1;
    let over = |xid| format!("{xid} OFPBRC_MULTIPART_REQUEST_TIMEOUT");
    assert_eq!(send(&mut s, &[]), [10, 11, 12, 13].map(over));
    let view = s.backer.view();
    let tables = &view.bridge(s.bridge).unwrap().tables;
    assert_eq!([1, 2, 3, 9].map(|n| tables.name(TableId(n))), ["a", "b", "c", ""]);
}

/// The table without registers that OVS has only since 3.7: those are in each list of fields.
fn without_later_registers(mut table: TableFeatures) -> TableFeatures {
    use flow::fields::FieldId;
    let numbers =
        |class: &'static str, first: u8, last: u8| (first..=last).map(move |n| format!("{class}{n}"));
    let later: Vec<String> =
        numbers("reg", 16, 31).chain(numbers("xreg", 8, 15)).chain(numbers("xxreg", 4, 7)).collect();
    let is_later = |field: &FieldId| later.iter().any(|name| name == field.def().name);
    let strip = |fields: &mut Vec<FieldId>| {
        assert_eq!(fields.extract_if(.., |field| is_later(field)).count(), later.len());
    };
    strip(&mut table.wildcards);
    for rules in [&mut table.rules].into_iter().chain(&mut table.miss) {
        strip(&mut rules.write_set_fields);
        strip(&mut rules.apply_set_fields);
    }
    assert_eq!(table.matches.extract_if(.., |m| is_later(&m.field)).count(), later.len());
    table
}

/// Version, kind and bytes of the last table in replies of OVS 3.5, whose bridge has no rules.
const LAST_TABLE: &str = include_str!("last_table_35.txt");

#[test]
fn tables_are_described_in_the_bytes_of_ovs() {
    for line in LAST_TABLE.lines() {
        let (version, rest) = line.split_once(' ').unwrap();
        let (kind, expected) = rest.split_once(' ').unwrap();
        let version = Version(version.parse().unwrap());
        let mut s = Switch::new();
        let mut c = s.service(version);
        let reply = match kind {
            "stats" => match c.ask(&mut s, &Message::TableStatsRequest).pop() {
                Some(Message::TableStatsReply(m)) => {
                    Message::TableStatsReply(Multi::all(m.entries.last().cloned().into_iter().collect()))
                }
                other => panic!("{other:?}"),
            },
            _ => {
                let last = ask(&mut s, &mut c, Vec::new()).unwrap().pop().map(without_later_registers);
                Message::TableFeaturesReply(Multi::all(last.into_iter().collect()))
            }
        };
        let bytes = encode(&reply, version, 0).unwrap();
        let head = if version == Version::V10 { 12 } else { 16 };
        let got: String = bytes[head..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(got, expected, "{kind}, {version}");
    }
}
