use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::db::{Context, Outcome, transact};
use crate::schema::open_vswitch;
use crate::value::SeededUuids;

fn run(db: &mut Database, uuids: &mut SeededUuids, operations: Value) -> crate::db::Commit {
    let context = Context { uuids, owns_lock: &|_| false, elapsed_ms: 0, read_only: false };
    match transact(db, operations.as_array().unwrap(), context) {
        Outcome::Done { commit: Some(commit), .. } => commit,
        other => panic!("{operations}: {other:?}"),
    }
}

/// A file of several transactions, and the end offset of each.
fn sample() -> (Database, Vec<u8>, Vec<usize>) {
    let (mut db, mut uuids) = (Database::new(open_vswitch()), SeededUuids::new(3));
    let mut bytes = schema_record(&db);
    let mut ends = vec![bytes.len()];
    let select_all = |op: &str| json!({"op": op, "table": "Open_vSwitch", "where": []});
    let mut mutate = select_all("mutate");
    mutate["mutations"] =
        json!([["external_ids", "insert", ["map", [["k", "line\nbreak \" é"], ["l", "x"]]]]]);
    let mut update = select_all("update");
    update["row"] = json!({"external_ids": ["map", [["k", "other"]]], "statistics": ["map", [["cpu", "1"]]], "ovs_version": "3"});
    let transactions = [
        json!([{"op": "insert", "table": "Open_vSwitch", "row": {"bridges": ["named-uuid", "b"]}}, {"op": "comment", "comment": "one"},
               {"op": "insert", "table": "Bridge", "uuid-name": "b", "row": {"name": "br0", "netflow": ["named-uuid", "n"]}},
               {"op": "insert", "table": "NetFlow", "uuid-name": "n", "row": {}}]),
        json!([mutate]),
        json!([update]),
        json!([{"op": "update", "table": "NetFlow", "where": [], "row": {"targets": ["set", ["a", "b"]]}}]),
        json!([{"op": "update", "table": "NetFlow", "where": [], "row": {"targets": ["set", ["b", "c"]], "engine_id": 4}}]),
        json!([{"op": "update", "table": "Bridge", "where": [], "row": {"netflow": ["set", []], "flood_vlans": ["set", [1, 2]]}}]),
    ];
    for operations in transactions {
        let commit = run(&mut db, &mut uuids, operations);
        bytes.extend(commit_record(&db, &commit.delta, &commit.comment, 1_700_000_000_000).unwrap());
        ends.push(bytes.len());
    }
    (db, bytes, ends)
}

fn assert_persistent_equal(a: &Database, b: &Database) {
    let strip = |db: &Database| snapshot(db, "", 0);
    assert_eq!(String::from_utf8(strip(a)).unwrap(), String::from_utf8(strip(b)).unwrap());
}

#[test]
fn written_files_load_equally() {
    let (db, bytes, _) = sample();
    let loaded = load(&bytes, &mut SeededUuids::new(9)).unwrap();
    assert_eq!((loaded.good_len, loaded.damage, loaded.transactions), (bytes.len(), None, 6));
    assert_persistent_equal(&loaded.db, &db);
    let again = load(&snapshot(&db, "compacted", 5), &mut SeededUuids::new(9)).unwrap();
    assert_persistent_equal(&again.db, &db);
}

#[test]
fn a_file_cut_anywhere_gives_the_transactions_before_the_cut() {
    let (_, bytes, ends) = sample();
    for cut in 0..bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        match load(&bytes[..cut], &mut SeededUuids::new(9)) {
            Err(error) => assert_eq!(whole, 0, "cut at {cut}: {error}"),
            Ok(loaded) => {
                assert_eq!(loaded.transactions + 1, whole, "cut at {cut}");
                assert_eq!(loaded.good_len, ends[whole - 1]);
                let damage = loaded.damage.map(|damage| (damage.offset, damage.more_follows));
                assert_eq!(damage, (cut != ends[whole - 1]).then_some((ends[whole - 1], false)));
            }
        }
    }
}

#[test]
fn damage_in_the_middle_is_not_a_torn_end() {
    let (_, mut bytes, ends) = sample();
    bytes[ends[1] + 70] ^= 1;
    let loaded = load(&bytes, &mut SeededUuids::new(9)).unwrap();
    let damage = loaded.damage.unwrap();
    assert_eq!((loaded.good_len, damage.offset, damage.more_follows), (ends[1], ends[1], true));
}

#[test]
fn other_files_are_refused() {
    let error = |bytes: &[u8]| load(bytes, &mut SeededUuids::new(9)).unwrap_err().to_string();
    for (bytes, expected) in [
        (&b""[..], "empty"),
        (b"\x7fELF", "not an OVSDB"),
        (b"OVSDB CLUSTER 3 0123456789012345678901234567890123456789\n{}\n", "clustered"),
        (b"OVSDB JSON 3 x\n{}\n", "checksum"),
        (b"OVSDB JSON 99999999999999999999 x\n{}\n", "length"),
    ] {
        assert!(error(bytes).contains(expected), "{}", error(bytes));
    }
    let mut bytes = schema_record(&Database::new(open_vswitch()));
    bytes.extend(encode_record(&json!({"Nope": {}})));
    assert!(error(&bytes).contains("no table Nope"));
}

#[test]
fn ephemeral_columns_alone_make_no_record() {
    let (mut db, _, _) = sample();
    let commit = run(
        &mut db,
        &mut SeededUuids::new(8),
        json!([{"op": "update", "table": "Bridge", "where": [], "row": {"datapath_id": "ff"}}]),
    );
    assert!(!commit.delta.is_empty());
    assert_eq!(commit_record(&db, &commit.delta, "", 0), None);
}

#[test]
fn a_default_that_is_not_empty_is_never_written_as_a_difference() {
    let (_, bytes, ends) = sample();
    let record = |ix: usize| String::from_utf8_lossy(&bytes[ends[ix - 1]..ends[ix]]).into_owned();
    assert!(record(4).contains(r#""targets":["set",["a","b"]]"#) && !record(4).contains("_is_diff"));
    assert!(record(5).contains(r#""targets":["set",["a","c"]]"#) && record(5).contains("_is_diff"));
}

#[test]
fn a_difference_larger_than_its_column_is_never_written() {
    let schema = json!({"name": "d", "tables": {"t": {"columns": {"s": {"type": {"key": "integer", "min": 0, "max": 2}}}}}});
    let schema = crate::schema::DatabaseSchema::from_json(&schema).unwrap();
    let (mut db, mut uuids) = (Database::new(schema.into()), SeededUuids::new(1));
    run(&mut db, &mut uuids, json!([{"op": "insert", "table": "t", "row": {"s": ["set", [1, 2]]}}]));
    let commit = run(
        &mut db,
        &mut uuids,
        json!([{"op": "update", "table": "t", "where": [], "row": {"s": ["set", [3, 4]]}}]),
    );
    let record = String::from_utf8(commit_record(&db, &commit.delta, "", 0).unwrap()).unwrap();
    assert!(record.contains(r#"["set",[3,4]]"#) && !record.contains("_is_diff"), "{record}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut file = b"OVSDB JSON ".to_vec();
        file.extend(&bytes);
        let _ = load(&file, &mut SeededUuids::new(1));
    }
}
