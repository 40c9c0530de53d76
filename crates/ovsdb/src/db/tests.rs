use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::{DatabaseSchema, open_vswitch};
use crate::value::{SeededUuids, UuidSource};

struct Bench {
    db: Database,
    uuids: SeededUuids,
}

impl Bench {
    fn new(schema: Arc<DatabaseSchema>) -> Self {
        Bench { db: Database::new(schema), uuids: SeededUuids::new(1) }
    }

    fn open_vswitch() -> Self {
        let mut bench = Bench::new(open_vswitch());
        bench.ok(json!([
            {"op": "insert", "table": "Open_vSwitch", "row": {"bridges": ["named-uuid", "b"]}},
            {"op": "insert", "table": "Bridge", "uuid-name": "b", "row": {"name": "br0", "ports": ["named-uuid", "p"]}},
            {"op": "insert", "table": "Port", "uuid-name": "p", "row": {"name": "br0", "interfaces": ["named-uuid", "i"]}},
            {"op": "insert", "table": "Interface", "uuid-name": "i", "row": {"name": "br0", "type": "internal"}},
        ]));
        bench
    }

    fn run(&mut self, operations: &Value, elapsed_ms: u64) -> Outcome {
        let owns_lock = |name: &str| name == "mine";
        let context = Context { uuids: &mut self.uuids, owns_lock: &owns_lock, elapsed_ms, read_only: false };
        transact(&mut self.db, operations.as_array().unwrap(), context)
    }

    /// Runs a transaction that ends now, and checks the derived state.
    fn done(&mut self, operations: Value) -> (Vec<Value>, Option<Delta>) {
        let before = self.db.clone();
        let Outcome::Done { results, commit } = self.run(&operations, 0) else {
            panic!("waits: {operations}")
        };
        let mut fresh = self.db.clone();
        fresh.rebuild().unwrap();
        assert_same(&fresh, &self.db);
        match commit {
            None => assert_same(&before, &self.db),
            Some(commit) => {
                let mut reverted = self.db.clone();
                reverted.revert(&commit.delta);
                assert_same(&before, &reverted);
                return (results, Some(commit.delta));
            }
        }
        (results, None)
    }

    fn ok(&mut self, operations: Value) -> Vec<Value> {
        let (results, delta) = self.done(operations);
        assert!(delta.is_some(), "{results:?}");
        results
    }

    /// The error that the last non-null result is.
    fn error(&mut self, operations: Value) -> String {
        let (results, delta) = self.done(operations.clone());
        assert!(delta.is_none(), "{operations} succeeded");
        let last = results.iter().rev().find(|result| !result.is_null()).unwrap();
        last["error"].as_str().unwrap().to_string()
    }

    fn count(&self, table: &str) -> usize {
        self.db.row_count(self.db.schema().table_ix(table).unwrap())
    }
}

fn assert_same(a: &Database, b: &Database) {
    for (a, b) in a.tables.iter().zip(&b.tables) {
        assert_eq!(a.rows, b.rows);
        assert_eq!(a.indexes, b.indexes);
        assert_eq!(a.strong, b.strong);
        assert_eq!(a.weak, b.weak);
    }
}

#[test]
fn errors_have_the_names_that_clients_compare() {
    let mut bench = Bench::open_vswitch();
    let insert = |table: &str, row: Value| json!([{"op": "insert", "table": table, "row": row}]);
    let update = |table: &str, row: Value| json!([{"op": "update", "table": table, "where": [], "row": row}]);
    let mutate = |table: &str, mutation: Value| json!([{"op": "mutate", "table": table, "where": [], "mutations": [mutation]}]);
    let select = |clause: Value| json!([{"op": "select", "table": "Bridge", "where": [clause]}]);
    let cases = [
        (json!([{"op": "bogus"}]), "syntax error"),
        (json!([5]), "syntax error"),
        (json!([{"x": 1}]), "syntax error"),
        (insert("Nope", json!({})), "syntax error"),
        (insert("Bridge", json!({"nope": 1})), "unknown column"),
        (insert("Queue", json!({"dscp": 64})), "constraint violation"),
        (insert("Queue", json!({"dscp": "a"})), "syntax error"),
        (insert("Queue", json!({"dscp": ["set", [1, 2]]})), "syntax error"),
        (insert("Queue", json!({"external_ids": ["map", [["a", "b"], ["a", "c"]]]})), "ovsdb error"),
        (insert("Open_vSwitch", json!({})), "constraint violation"),
        (
            insert("QoS", json!({"queues": ["map", [[1, ["named-uuid", "q"]]]]})),
            "referential integrity violation",
        ),
        (update("Bridge", json!({"name": "x"})), "constraint violation"),
        (
            update("Bridge", json!({"_uuid": ["uuid", "00000000-0000-0000-0000-000000000001"]})),
            "constraint violation",
        ),
        (update("Bridge", json!({"fail_mode": "x"})), "constraint violation"),
        (mutate("Open_vSwitch", json!(["next_cfg", "/=", 0])), "domain error"),
        (mutate("Open_vSwitch", json!(["next_cfg", "-=", i64::MIN])), "range error"),
        (mutate("Open_vSwitch", json!(["next_cfg", "x=", 0])), "unknown mutator"),
        (mutate("Open_vSwitch", json!(["ovs_version", "+=", 0])), "syntax error"),
        (mutate("Open_vSwitch", json!(["_version", "insert", 0])), "constraint violation"),
        (mutate("Bridge", json!(["name", "insert", "a"])), "constraint violation"),
        (mutate("Port", json!(["interfaces", "delete", ["set", []]])), ""),
        (select(json!(["name", "<", "br0"])), "syntax error"),
        (select(json!(["name", "===", "br0"])), "unknown function"),
        (select(json!(["nope", "==", "br0"])), "unknown column"),
        (select(json!(["name", "br0"])), "syntax error"),
        (json!([{"op": "abort"}, {"op": "comment", "comment": "a"}]), "aborted"),
        (json!([{"op": "assert", "lock": "other"}]), "not owner"),
        (json!([{"op": "commit"}]), "syntax error"),
        (json!([{"op": "delete", "table": "Bridge"}]), "syntax error"),
        (json!([{"op": "delete", "table": "Interface", "where": []}]), "referential integrity violation"),
        (
            json!([{"op": "select", "table": "Bridge", "where": [], "columns": ["name", "name"]}]),
            "syntax error",
        ),
        (json!([{"op": "select", "table": "Bridge", "where": [], "extra": 1}]), "syntax error"),
        (
            json!([{"op": "wait", "table": "Bridge", "where": [], "columns": ["name"], "until": "!=", "rows": [{"name": "br0"}], "timeout": 0}]),
            "timed out",
        ),
    ];
    for (operations, error) in cases {
        if error.is_empty() {
            bench.ok(operations);
        } else {
            assert_eq!(bench.error(operations.clone()), error, "{operations}");
        }
    }
}

#[test]
fn failed_operation_is_followed_by_nulls_and_failed_commit_by_an_error() {
    let mut bench = Bench::open_vswitch();
    let (results, _) = bench
        .done(json!([{"op": "comment", "comment": "a"}, {"op": "abort"}, {"op": "comment", "comment": "a"}]));
    assert_eq!(results[0], json!({}));
    assert_eq!(results[1]["error"], "aborted");
    assert_eq!(results[2], Value::Null);
    let (results, _) = bench.done(json!([{"op": "delete", "table": "Port", "where": []}]));
    assert_eq!(results[0], json!({"count": 1}));
    assert_eq!(results[1]["error"], "referential integrity violation");
}

#[test]
fn unreferenced_rows_are_collected_through_levels() {
    let mut bench = Bench::open_vswitch();
    bench.ok(json!([{"op": "insert", "table": "Bridge", "row": {"name": "lonely"}}]));
    assert_eq!(bench.count("Bridge"), 1);
    bench
        .ok(json!([{"op": "update", "table": "Open_vSwitch", "where": [], "row": {"bridges": ["set", []]}}]));
    for table in ["Bridge", "Port", "Interface"] {
        assert_eq!(bench.count(table), 0, "{table}");
    }
}

#[test]
fn weak_references_go_with_their_row() {
    let mut bench = Bench::open_vswitch();
    bench.ok(json!([
        {"op": "insert", "table": "Port", "uuid-name": "p2", "row": {"name": "p2", "interfaces": ["named-uuid", "i2"]}},
        {"op": "insert", "table": "Interface", "uuid-name": "i2", "row": {"name": "p2"}},
        {"op": "insert", "table": "Mirror", "uuid-name": "m", "row": {"name": "m", "output_port": ["named-uuid", "p2"], "select_src_port": ["named-uuid", "p2"], "select_dst_port": ["named-uuid", "nowhere"]}},
        {"op": "mutate", "table": "Bridge", "where": [], "mutations": [["ports", "insert", ["named-uuid", "p2"]], ["mirrors", "insert", ["named-uuid", "m"]]]},
    ]));
    let columns = json!(["output_port", "select_src_port", "select_dst_port"]);
    let select = json!([{"op": "select", "table": "Mirror", "where": [], "columns": columns}]);
    let row = bench.ok(select.clone())[0]["rows"][0].clone();
    assert_eq!(row["output_port"], row["select_src_port"]);
    assert_eq!(row["select_dst_port"], json!(["set", []]), "a reference to a row that never was");
    let uuid = row["output_port"].clone();
    bench.ok(
        json!([{"op": "mutate", "table": "Bridge", "where": [], "mutations": [["ports", "delete", uuid]]}]),
    );
    assert_eq!(bench.ok(select)[0]["rows"][0]["output_port"], json!(["set", []]));
}

#[test]
fn weak_reference_that_must_stay_keeps_its_row_from_deletion() {
    let schema = json!({"name": "d", "tables": {
        "a": {"columns": {"n": {"type": "integer"}}, "isRoot": true},
        "b": {"columns": {"to": {"type": {"key": {"type": "uuid", "refTable": "a", "refType": "weak"}}, "mutable": false}}, "isRoot": true}}});
    let mut bench = Bench::new(Arc::new(DatabaseSchema::from_json(&schema).unwrap()));
    bench.ok(json!([
        {"op": "insert", "table": "a", "uuid-name": "x", "row": {}},
        {"op": "insert", "table": "b", "row": {"to": ["named-uuid", "x"]}}]));
    assert_eq!(bench.error(json!([{"op": "delete", "table": "a", "where": []}])), "constraint violation");
    bench.ok(
        json!([{"op": "delete", "table": "a", "where": []}, {"op": "delete", "table": "b", "where": []}]),
    );
}

#[test]
fn unique_indexes_hold_at_commit_and_names_may_be_swapped() {
    let schema =
        json!({"name": "d", "tables": {"t": {"columns": {"k": {"type": "integer"}}, "indexes": [["k"]]}}});
    let mut bench = Bench::new(Arc::new(DatabaseSchema::from_json(&schema).unwrap()));
    let insert = |k: i64| json!({"op": "insert", "table": "t", "row": {"k": k}});
    bench.ok(json!([insert(1), insert(2)]));
    assert_eq!(bench.error(json!([insert(2)])), "constraint violation");
    assert_eq!(bench.error(json!([insert(3), insert(3)])), "constraint violation");
    let set = |from: i64, to: i64| json!({"op": "update", "table": "t", "where": [["k", "==", from]], "row": {"k": to}});
    let results = bench.ok(json!([set(1, 9), set(2, 1), set(9, 2), set(2, 2)]));
    assert_eq!(results[2], json!({"count": 1}));
    assert_eq!(
        bench.ok(json!([{"op": "delete", "table": "t", "where": [["k", "==", 1]]}, insert(1)]))[0],
        json!({"count": 1})
    );
}

#[test]
fn mutators() {
    let mut bench = Bench::open_vswitch();
    let cases = [
        ("flood_vlans", json!([["insert", ["set", [4, 5]]], ["+=", 1]]), json!(["set", [5, 6]])),
        (
            "flood_vlans",
            json!([["insert", 7], ["delete", ["set", [5, 6]]], ["*=", 2], ["%=", 10], ["-=", 1], ["/=", 3]]),
            json!(1),
        ),
        (
            "external_ids",
            json!([["insert", ["map", [["a", "b"]]]], ["insert", ["map", [["a", "c"], ["d", "e"]]]]]),
            json!(["map", [["a", "b"], ["d", "e"]]]),
        ),
        (
            "external_ids",
            json!([["delete", ["map", [["a", "z"], ["d", "e"]]]]]),
            json!(["map", [["a", "b"]]]),
        ),
        ("external_ids", json!([["delete", ["set", ["a", "q"]]]]), json!(["map", []])),
    ];
    for (column, mutations, expected) in cases {
        let mutations: Vec<Value> =
            mutations.as_array().unwrap().iter().map(|m| json!([column, m[0], m[1]])).collect();
        let results = bench.ok(json!([
            {"op": "mutate", "table": "Bridge", "where": [], "mutations": mutations},
            {"op": "select", "table": "Bridge", "where": [], "columns": [column]}]));
        assert_eq!(results[1]["rows"][0][column], expected);
    }
    let two_equal = json!([{"op": "mutate", "table": "Bridge", "where": [], "mutations": [["flood_vlans", "insert", ["set", [4, 5]]], ["flood_vlans", "/=", 2]]}]);
    assert_eq!(bench.error(two_equal), "constraint violation");
    let last = json!([{"op": "mutate", "table": "Port", "where": [], "mutations": [["tag", "insert", 1], ["tag", "insert", 2]]}]);
    assert_eq!(bench.error(last), "constraint violation");
}

#[test]
fn waits_say_how_long() {
    let mut bench = Bench::open_vswitch();
    let wait = |timeout: Value| {
        let mut op = json!({"op": "wait", "table": "Bridge", "where": [], "columns": ["name"], "until": "==", "rows": []});
        if !timeout.is_null() {
            op["timeout"] = timeout;
        }
        json!([{"op": "insert", "table": "Queue", "row": {}}, op])
    };
    for (timeout, elapsed, expected) in [(json!(50), 49, Some(50)), (Value::Null, 1 << 40, None)] {
        let Outcome::Waiting { timeout_ms } = bench.run(&wait(timeout), elapsed) else { panic!() };
        assert_eq!(timeout_ms, expected);
        assert_eq!(bench.count("Queue"), 0, "a transaction that waits has no effect");
    }
    let Outcome::Done { results, .. } = bench.run(&wait(json!(50)), 50) else { panic!() };
    assert_eq!(results[1]["error"], "timed out");
    bench.ok(json!([{"op": "wait", "table": "Bridge", "where": [["name", "==", "br0"]], "columns": ["name", "fail_mode"], "until": "==", "rows": [{"name": "br0"}]}]));
}

#[test]
fn explicit_uuids_and_forward_names() {
    let mut bench = Bench::open_vswitch();
    let uuid = "00000000-0000-0000-0000-000000000009";
    let insert = json!({"op": "insert", "table": "Queue", "uuid": uuid, "uuid-name": "q", "row": {}});
    let results = bench.ok(json!([{"op": "insert", "table": "QoS", "row": {"queues": ["map", [[1, ["named-uuid", "q"]]]]}}, insert]));
    assert_eq!(results[1], json!({"uuid": ["uuid", uuid]}));
    assert_eq!(bench.error(json!([insert])), "duplicate uuid");
    assert_eq!(bench.error(json!([{"op": "delete", "table": "QoS", "where": []}, {"op": "delete", "table": "Queue", "where": []}, insert])), "duplicate uuid");
    let twice = json!({"op": "insert", "table": "Queue", "uuid-name": "a", "row": {}});
    assert_eq!(bench.error(json!([twice, twice])), "duplicate uuid-name");
}

#[test]
fn arguments_have_as_many_members_as_their_operator_takes() {
    let mut bench = Bench::open_vswitch();
    let two = json!(["set", ["b", "c"]]);
    let (optional, one) = (
        "set must have 0 to 1 members but 2 are present",
        "set must have exactly one member but 2 are present",
    );
    let twice = json!(["set", ["b", "b"]]);
    let none = json!(["set", []]);
    let no_member = "set must have exactly one member but 0 are present";
    let mismatch = r#"Type mismatch: "<" operator may not be applied to column "#;
    let large = "5000 is not in the valid range 0 to 4095 (inclusive)";
    let pair = json!(["map", [["a", "b"], ["c", "d"]]]);
    for (clause, expected) in [
        (json!(["mac", "==", two]), optional),
        (json!(["mac", "!=", two]), optional),
        (json!(["mac", "includes", two]), optional),
        (json!(["mac", "excludes", two]), ""),
        (json!(["mac", "excludes", twice]), "set contains duplicate"),
        (json!(["name", "excludes", two]), one),
        (json!(["name", "includes", none]), no_member),
        (json!(["tag", "excludes", ["set", [1, 2, 3]]]), ""),
        (json!(["tag", "excludes", ["set", [5000, 1]]]), large),
        (json!(["tag", ">=", ["set", [1, 2]]]), one),
        (json!(["tag", "<", none]), no_member),
        (json!(["trunks", "==", ["set", [5000, 1]]]), large),
        (json!(["interfaces", "==", none]), "set must have 1 to 4294967295 members but 0 are present"),
        (json!(["interfaces", "includes", none]), ""),
        (json!(["lacp", "==", "x"]), "x is not one of the allowed values ([active, off, passive])"),
        (json!(["external_ids", "excludes", pair]), ""),
        (json!(["external_ids", "==", ["map", [["a", "b"], ["a", "c"]]]]), "map contains duplicate key"),
        (
            json!(["external_ids", "<", pair]),
            &format!("{mismatch}external_ids of type map of (string, string) pairs."),
        ),
        (json!(["mac", "<", "b"]), &format!("{mismatch}mac of type set of up to 1 strings.")),
        (json!(["interfaces", "<", none]), &format!("{mismatch}interfaces of type set of 1 or more uuids.")),
        (json!(["name", "<", "b"]), &format!("{mismatch}name of type string.")),
        (json!(["name", "near", "b"]), "No function named near."),
        (json!(["nme", "==", "b"]), "No column nme in table Port."),
        (json!(["name"]), "Parse error in condition."),
    ] {
        let (results, _) = bench.done(json!([{"op": "select", "table": "Port", "where": [clause]}]));
        assert_eq!(results[0]["details"].as_str().unwrap_or_default(), expected, "{clause}");
    }
    for (mutation, expected) in [
        (json!(["mac", "insert", two]), optional),
        (json!(["mac", "delete", two]), ""),
        (
            json!(["mac", "+=", 1]),
            r#"Type mismatch: "+=" operator may not be applied to column mac of type set of up to 1 strings."#,
        ),
        (json!(["name", "insert", "a"]), "Cannot mutate immutable column name in table Port."),
        (json!(["mac", "double", "a"]), "No mutator named double."),
        (json!("x"), "Parse error in mutation."),
    ] {
        let (results, _) =
            bench.done(json!([{"op": "mutate", "table": "Port", "where": [], "mutations": [mutation]}]));
        assert_eq!(results[0]["details"].as_str().unwrap_or_default(), expected, "{mutation}");
    }
}

#[test]
fn nothing_changed_is_an_empty_delta_and_keeps_the_version() {
    let mut bench = Bench::open_vswitch();
    let (_, delta) = bench.done(json!([
        {"op": "update", "table": "Bridge", "where": [], "row": {"fail_mode": "secure"}},
        {"op": "update", "table": "Bridge", "where": [], "row": {"fail_mode": ["set", []]}}]));
    assert!(delta.unwrap().is_empty());
}

#[test]
fn conversion_keeps_common_columns() {
    let bench = Bench::open_vswitch();
    let mut json = bench.db.schema().to_json();
    json["tables"]["Interface"]["columns"].as_object_mut().unwrap().remove("type");
    json["tables"]["Interface"]["columns"]["extra"] = json!({"type": "integer"});
    let older = Arc::new(DatabaseSchema::from_json(&json).unwrap());
    let converted = bench.db.convert(older).unwrap();
    assert_eq!(bench.db.schema().absent_from(converted.schema()), ["column Interface:type"]);
    assert_eq!(converted.schema().absent_from(bench.db.schema()), ["column Interface:extra"]);
    assert_eq!(converted.row_count(converted.schema().table_ix("Interface").unwrap()), 1);
    let mut without_ports = json.clone();
    without_ports["tables"]["Bridge"]["columns"].as_object_mut().unwrap().remove("ports");
    let converted = bench.db.convert(Arc::new(DatabaseSchema::from_json(&without_ports).unwrap())).unwrap();
    for (table, rows) in [("Bridge", 1), ("Port", 0), ("Interface", 0)] {
        assert_eq!(converted.row_count(converted.schema().table_ix(table).unwrap()), rows, "{table}");
    }
    json["tables"]["Interface"]["columns"]["name"] =
        json!({"type": {"key": {"type": "string", "maxLength": 1}}});
    assert!(bench.db.convert(Arc::new(DatabaseSchema::from_json(&json).unwrap())).is_err());
}

fn any_operation() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")];
    let target = (0u8..4).prop_map(|n| json!(["uuid", format!("00000000-0000-0000-0000-00000000000{n}")]));
    let set = proptest::collection::btree_set(0u8..4, 0..4).prop_map(|set| {
        let uuids: Vec<Value> =
            set.iter().map(|n| json!(["uuid", format!("00000000-0000-0000-0000-00000000000{n}")])).collect();
        json!(["set", uuids])
    });
    let table = prop_oneof![Just("root"), Just("leaf")];
    let op = prop_oneof![Just("insert"), Just("update"), Just("mutate"), Just("delete")];
    (op, table, name, target, set.clone(), set).prop_map(|(op, table, name, target, strong, weak)| {
        let row = json!({"name": name, "strong": strong, "weak": weak});
        match op {
            "insert" => json!({"op": op, "table": table, "uuid": target[1], "row": row}),
            "update" => json!({"op": op, "table": table, "where": [["_uuid", "==", target]], "row": row}),
            "mutate" => json!({"op": op, "table": table, "where": [["name", "==", name]], "mutations": [["strong", "insert", strong], ["weak", "delete", weak]]}),
            _ => json!({"op": op, "table": table, "where": [["_uuid", "==", target]]}),
        }
    })
}

proptest! {
    /// After any transactions the derived state equals one built from scratch, a failed one has no effect,
    /// and each commit can be reverted (all checked in `done`).
    #[test]
    fn bookkeeping_never_drifts(transactions in proptest::collection::vec(proptest::collection::vec(any_operation(), 1..5), 1..12)) {
        let strong = json!({"type": {"key": {"type": "uuid", "refTable": "leaf"}, "min": 0, "max": "unlimited"}});
        let weak = json!({"type": {"key": {"type": "uuid", "refTable": "leaf", "refType": "weak"}, "min": 0, "max": "unlimited"}});
        let columns = json!({"name": {"type": "string"}, "strong": strong, "weak": weak});
        let schema = json!({"name": "d", "tables": {
            "root": {"columns": columns, "isRoot": true, "indexes": [["name"]]},
            "leaf": {"columns": columns}}});
        let mut bench = Bench::new(Arc::new(DatabaseSchema::from_json(&schema).unwrap()));
        for operations in transactions {
            bench.done(Value::Array(operations));
        }
    }
}

#[test]
fn seeded_uuids_differ() {
    let mut source = SeededUuids::new(0);
    assert_ne!(source.next_uuid(), source.next_uuid());
}
