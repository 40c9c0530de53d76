//! Tests of the log of tables, of the memory in use, of conditional monitors, and of `convert`.

use super::*;

#[test]
fn changes_of_logged_tables_are_kept_as_lines() {
    let mut bench = Bench::new(ServerLimits::default());
    let s = bench.open();
    bench.result(s, "transact", insert_root(1));
    assert!(bench.server.take_logged().is_empty());
    assert_eq!(bench.server.log_table("foo", "Bridge", true), Err("no such database"));
    assert_eq!(bench.server.log_table("Open_vSwitch", "foo", true), Err("no such table"));
    for table in ["Open_vSwitch", "QoS"] {
        bench.server.log_table("Open_vSwitch", table, true).unwrap();
    }
    let (_, tables) = bench.server.tables().next().unwrap();
    let on: Vec<&str> = tables.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    assert_eq!((tables.len(), on), (19, vec!["Open_vSwitch", "QoS"]));
    // The values as ovsdb-server 3.5 writes them; the order of its columns depends on the machine.
    let qos = json!({"op": "insert", "table": "QoS", "row": {"type": "linux-htb", "other_config": ["map", [["max-rate", "5"]]]}});
    let queue = json!({"op": "insert", "table": "Queue", "row": {}});
    bench.result(s, "transact", json!(["Open_vSwitch", qos, queue]));
    let ids = json!({"external_ids": ["map", [["a", "b c"]]], "ovs_version": "3.5", "datapath_types": ["set", ["netdev", "system"]]});
    bench.result(s, "transact", set_root(ids));
    let delete = json!({"op": "delete", "table": "QoS", "where": []});
    bench.result(s, "transact", json!(["Open_vSwitch", delete]));
    let lines: Vec<String> = bench.server.take_logged().iter().map(|line| line.to_string()).collect();
    let cut = |line: &str| line.split(',').filter(|p| !p.starts_with('_')).collect::<Vec<_>>().join(",");
    assert_eq!(lines.len(), 3, "{lines:?}");
    let qos = "external_ids:{},other_config:{max-rate=\"5\"},queues:{},type:linux-htb";
    assert_eq!(cut(&lines[0]), format!("table:QoS,op:inserted,{qos}"));
    for part in [
        "table:Open_vSwitch,op:updated,_uuid:",
        ",_version:",
        ",external_ids:{a=\"b c\"},",
        ",ovs_version:\"3.5\",",
        ",next_cfg:1,",
        ",bridges:[],",
        ",datapath_types:[netdev, system],",
        ",dpdk_initialized:false,",
    ] {
        assert!(lines[1].contains(part), "{part} in {}", lines[1]);
    }
    assert_eq!(cut(&lines[2]), format!("table:QoS,op:deleted,{qos}"));
    bench.server.log_table("Open_vSwitch", "QoS", false).unwrap();
    let added = json!({"op": "insert", "table": "QoS", "row": {"type": "a"}});
    bench.result(s, "transact", json!(["Open_vSwitch", added]));
    assert!(bench.server.take_logged().is_empty());
}

#[test]
fn memory_in_use_is_counted_as_by_ovsdb_server() {
    let mut bench = Bench::new(ServerLimits::default());
    // Figures of ovsdb-server 3.5 with one row of defaults, and a name and version of the switch's own software.
    let empty = bench.server.memory_use();
    assert_eq!((empty.atoms, empty.cells, empty.weak_refs), (14, 20, 0));
    let s = bench.open();
    let row = json!({"external_ids": ["map", [["a", "b"]]], "iface_types": ["set", ["tap", "vxlan"]]});
    bench.result(
        s,
        "transact",
        json!(["Open_vSwitch", {"op": "insert", "table": "Open_vSwitch", "row": row}]),
    );
    let used = bench.server.memory_use();
    // Its UUIDs, a pair, two types, two numbers, one truth value.
    assert_eq!((used.atoms - empty.atoms, used.cells - empty.cells), (2 + 2 + 2 + 3, 19));
    bench.result(s, "monitor", json!(["Open_vSwitch", 1, {"Open_vSwitch": {}}]));
    let wait = json!({"op": "wait", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"], "until": "==",
        "rows": [{"next_cfg": 9}]});
    bench.ask(s, "transact", json!(["Open_vSwitch", wait]));
    let used = bench.server.memory_use();
    assert_eq!((used.sessions, used.monitors, used.triggers, used.backlog), (1, 1, 1, 0));
}

#[test]
fn conversion_to_the_own_schema_is_seen_by_clients_and_others_are_refused() {
    let mut bench = Bench::new(ServerLimits::default());
    let owner = bench.server.session_open_from(Origin::Owner).unwrap();
    let (aware, unaware, asks) = (bench.open(), bench.open(), bench.open());
    bench.result(asks, "transact", insert_root(1));
    bench.result(aware, "set_db_change_aware", json!([true]));
    let watch = json!(["Open_vSwitch", "ovs", {"Open_vSwitch": {"columns": ["next_cfg"]}}]);
    for session in [owner, aware, unaware] {
        bench.result(session, "monitor", watch.clone());
    }
    bench.result(aware, "monitor", json!(["_Server", "srv", {"Database": {"columns": ["name"]}}]));
    bench.result(aware, "lock", json!(["mine"]));
    let own = open_vswitch().to_json();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut schema = own.clone();
        change(&mut schema);
        json!(["Open_vSwitch", schema])
    };
    for (params, expected) in [
        (json!([]), "syntax error"),
        (json!([3, {}]), "syntax error"),
        (json!(["Open_vSwitch"]), "syntax error"),
        (json!(["Open_vSwitch", own, 3]), "syntax error"),
        (json!(["Open_vSwitch", 3]), "syntax error"),
        (json!(["Open_vSwitch", {}]), "syntax error"),
        (json!(["foo", own]), "unknown database"),
        (json!(["_Server", own]), "not allowed"),
        (with(&|s| s["name"] = json!("Other")), "invalid parameters"),
        (
            with(&|s| s["tables"]["Open_vSwitch"]["columns"]["next_cfg"]["type"] = json!("string")),
            "constraint violation",
        ),
        (with(&|s| s["version"] = json!("8.9.0")), "not allowed"),
        (
            with(&|s| s["tables"]["New"] = json!({"columns": {"a": {"type": "string"}}, "isRoot": true})),
            "not allowed",
        ),
    ] {
        assert_eq!(bench.error(asks, "convert", params.clone()), expected, "{params}");
    }
    assert!(bench.server.closing_sessions().is_empty() && bench.received(aware).is_empty());
    let plain = with(&|s| s["cksum"] = Value::Null);
    assert_eq!(bench.error(asks, "convert", plain), "syntax error");
    assert_eq!(bench.result(asks, "convert", json!(["Open_vSwitch", own])), json!({}));
    // As with ovsdb-server 3.5: the reply comes before the end, and an aware client keeps its lock.
    let ended: Vec<SessionId> = bench.server.closing_sessions().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ended, [unaware, asks]);
    let canceled = json!({"id": null, "method": "monitor_canceled", "params": ["ovs"]});
    assert_eq!(bench.received(aware), std::slice::from_ref(&canceled));
    bench.result(aware, "monitor", watch.clone());
    bench.result(aware, "transact", set_root(json!({"next_cfg": 2})));
    assert_eq!(bench.received(owner).len(), 1, "the owner's monitor stays");
    let messages = bench.ask(aware, "convert", json!(["Open_vSwitch", own]));
    assert_eq!((messages.len(), &messages[0]), (2, &canceled));
}

#[test]
fn conditional_monitors_can_be_withdrawn() {
    let mut bench = Bench::new(ServerLimits::default());
    bench.server.offer_conditional_monitors(false);
    let s = bench.open();
    let watch = json!(["Open_vSwitch", 1, {"Bridge": [{"columns": ["name"]}]}]);
    assert_eq!(bench.error(s, "monitor_cond", watch.clone()), "unknown method");
    let since = json!(["Open_vSwitch", 1, {"Bridge": [{"columns": ["name"]}]}, Uuid::ZERO.to_string()]);
    assert_eq!(bench.error(s, "monitor_cond_since", since), "unknown method");
    bench.result(s, "monitor", watch);
}
