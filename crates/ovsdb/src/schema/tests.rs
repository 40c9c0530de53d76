use serde_json::{Value, json};

use super::*;

const SYSTEM_SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Additions of version 8.8.0 over 8.3.1.
fn additions(schema: &mut Value) {
    let optional = |least: i64, greatest: i64| json!({"type": {"min": 0, "key": {"type": "integer", "minInteger": least, "maxInteger": greatest}}});
    let mut add = |table: &str, column: &str, json: Value| schema["tables"][table]["columns"][column] = json;
    add("Mirror", "filter", json!({"type": {"key": "string", "min": 0}}));
    add("IPFIX", "stats_interval", optional(1, 3600));
    add("IPFIX", "template_interval", optional(1, 3600));
    add("Flow_Sample_Collector_Set", "local_group_id", optional(0, 4294967295));
    add("Datapath", "ct_zone_default_limit", optional(0, 4294967295));
    add("CT_Zone", "limit", optional(0, 4294967295));
    add("Flow_Table", "prefixes", json!({"type": {"key": "string", "min": 0, "max": 4}}));
}

#[test]
fn open_vswitch_is_the_installed_schema_and_the_known_additions() {
    let Ok(text) = std::fs::read_to_string(SYSTEM_SCHEMA) else {
        println!("skipped: {SYSTEM_SCHEMA} is not installed");
        return;
    };
    let mut json: Value = serde_json::from_str(&text).unwrap();
    if json["version"] != "8.3.1" {
        println!("skipped: the installed schema has version {}", json["version"]);
        return;
    }
    additions(&mut json);
    json["version"] = json!(OPEN_VSWITCH_VERSION);
    json["cksum"] = json!("2823623553 27869");
    let expected = DatabaseSchema::from_json(&json).unwrap();
    let ours = open_vswitch();
    for (a, b) in ours.tables.iter().zip(&expected.tables) {
        assert_eq!(a, b);
    }
    assert_eq!(*ours, expected);
}

#[test]
fn built_in_schemas_survive_json() {
    for schema in [open_vswitch(), server()] {
        assert_eq!(DatabaseSchema::from_json(&schema.to_json()).unwrap(), *schema);
    }
    assert_eq!(open_vswitch().tables.len(), 19);
    assert!(server().all_root && server().tables[0].is_root);
}

#[test]
fn printed_types_leave_defaults_out() {
    let bridge = &open_vswitch().to_json()["tables"]["Bridge"]["columns"];
    assert_eq!(bridge["name"].to_string(), r#"{"mutable":false,"type":"string"}"#);
    assert_eq!(bridge["datapath_id"].to_string(), r#"{"ephemeral":true,"type":{"key":"string","min":0}}"#);
    assert_eq!(
        bridge["fail_mode"].to_string(),
        r#"{"type":{"key":{"enum":["set",["secure","standalone"]],"type":"string"},"min":0}}"#
    );
}

#[test]
fn wrong_schemas_are_refused_with_their_place() {
    let column = |ty: Value| json!({"name": "d", "tables": {"t": {"columns": {"c": {"type": ty}}}}});
    let cases = [
        (json!([]), "top"),
        (json!({"name": "d"}), "top"),
        (json!({"name": "d", "version": "1", "tables": {}}), "version"),
        (json!({"name": "d", "tables": {"_t": {"columns": {}}}}), "_t"),
        (json!({"name": "d", "tables": {"t": {"columns": {"_c": {"type": "string"}}}}}), "t._c"),
        (json!({"name": "d", "tables": {"t": {"columns": {}, "indexes": [["x"]]}}}), "t.indexes"),
        (json!({"name": "d", "tables": {"t": {"columns": {}, "maxRows": 0}}}), "t"),
        (column(json!("text")), "t.c"),
        (column(json!({"key": "string", "min": 2})), "t.c"),
        (column(json!({"key": "string", "max": 0})), "t.c"),
        (column(json!({"key": {"type": "string", "minInteger": 1}})), "t.c"),
        (column(json!({"key": {"type": "integer", "minInteger": 2, "maxInteger": 1}})), "t.c"),
        (column(json!({"key": {"type": "uuid", "refTable": "u"}})), "t.c"),
        (column(json!({"key": {"type": "uuid", "refType": "weak"}})), "t.c"),
        (column(json!({"key": {"type": "string", "enum": ["set", [1]]}})), "t.c"),
    ];
    for (json, place) in cases {
        assert_eq!(DatabaseSchema::from_json(&json).unwrap_err().place, place, "{json}");
    }
}

#[test]
fn constraints() {
    let schema = open_vswitch();
    let check = |table: &str, column: &str, atom: Atom| {
        schema.table(table).unwrap().column(column).unwrap().ty.check_constraints(&Datum::atom(atom)).is_ok()
    };
    assert!(check("Port", "tag", Atom::Integer(4095)));
    assert!(!check("Port", "tag", Atom::Integer(4096)));
    assert!(check("Bridge", "fail_mode", Atom::string("secure")));
    assert!(!check("Bridge", "fail_mode", Atom::string("x")));
    assert!(check("Interface", "mtu_request", Atom::Integer(i64::MAX)));
    assert!(!check("Interface", "mtu_request", Atom::Integer(0)));
}
