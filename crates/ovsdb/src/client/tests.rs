use serde_json::json;

use super::*;
use crate::db::Database;
use crate::schema::open_vswitch;
use crate::server::{Server, ServerLimits, SessionId, Time};
use crate::value::{Datum, SeededUuids};

fn server(schema: Arc<DatabaseSchema>) -> Server {
    let mut server = Server::new(Box::new(SeededUuids::new(5)), ServerLimits::default());
    server.add_database(Database::new(schema), true).unwrap();
    server
}

/// Moves bytes both ways until both are silent.
fn pump(server: &mut Server, session: SessionId, client: &mut Client) {
    loop {
        let up = client.take_output();
        server.session_input(session, &up, Time::default());
        server.log_synced(server.log_seq());
        let down = server.session_output(session);
        if up.is_empty() && down.is_empty() {
            return;
        }
        client.input(&down).unwrap();
    }
}

fn connected(server: &mut Server, config: ClientConfig) -> (SessionId, Client) {
    let (session, mut client) = (server.session_open().unwrap(), Client::new(config));
    pump(server, session, &mut client);
    assert_eq!(client.state(), ClientState::Ready);
    (session, client)
}

fn add_bridge(txn: &mut TxnBuilder, root: Option<Uuid>, name: &str) -> RowHandle {
    let interface = txn.insert("Interface", [("name", name.into()), ("type", "internal".into())]);
    let port = txn.insert("Port", [("name", ColumnValue::from(name)), ("interfaces", interface.into())]);
    let bridge =
        txn.insert("Bridge", [("name", ColumnValue::from(name)), ("ports", ColumnValue::refs([port]))]);
    match root {
        Some(root) => txn.mutate("Open_vSwitch", root, "bridges", "insert", bridge),
        None => {
            txn.insert("Open_vSwitch", [("bridges", ColumnValue::from(bridge))]);
        }
    }
    bridge
}

fn only_outcome(client: &mut Client) -> TxnOutcome {
    let mut outcomes = client.take_outcomes();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0).1
}

fn kinds(client: &mut Client) -> Vec<(String, ChangeKind)> {
    client.take_changes().iter().map(|change| (change.table.to_string(), change.kind)).collect()
}

#[test]
fn replica_follows_transactions() {
    let mut server = server(open_vswitch());
    let (session, mut client) = connected(&mut server, ClientConfig::all(open_vswitch()));
    let mut txn = TxnBuilder::new();
    let handle = add_bridge(&mut txn, None, "br0");
    txn.comment("add br0");
    client.transact(txn).unwrap();
    pump(&mut server, session, &mut client);
    let bridge = only_outcome(&mut client).uuid(handle).unwrap();
    assert_eq!(kinds(&mut client).len(), 4);
    let row = client.replica().row("Bridge", bridge).unwrap();
    assert_eq!((row.str("name"), row.opt_str("fail_mode"), row.bool("stp_enable")), ("br0", None, false));
    let port = client.replica().row("Port", row.uuid_set("ports")[0]).unwrap();
    assert_eq!(
        client.replica().row("Interface", port.opt_uuid("interfaces").unwrap()).unwrap().str("type"),
        "internal"
    );

    let mut txn = TxnBuilder::new();
    txn.update(
        "Bridge",
        bridge,
        [("fail_mode", "secure".into()), ("external_ids", Datum::map([("a", "b"), ("c", "d")]).into())],
    );
    txn.mutate("Bridge", bridge, "external_ids", "delete", Datum::set(["a"]));
    txn.mutate("Bridge", bridge, "flood_vlans", "insert", Datum::set([4, 5]));
    client.transact(txn).unwrap();
    pump(&mut server, session, &mut client);
    assert!(matches!(only_outcome(&mut client), TxnOutcome::Success { .. }));
    let changes = client.take_changes();
    assert_eq!(
        (changes.len(), changes[0].kind, changes[0].old().unwrap().opt_str("fail_mode")),
        (1, ChangeKind::Modified, None)
    );
    let row = client.replica().row("Bridge", bridge).unwrap();
    assert_eq!(
        (row.opt_str("fail_mode"), row.map_str("external_ids", "c"), row.map_str("external_ids", "a")),
        (Some("secure"), Some("d"), None)
    );
    assert_eq!(row.int_set("flood_vlans"), [4, 5]);
    assert_eq!(row.str("no_such_column"), "");
}

#[test]
fn outcomes() {
    let mut server = server(open_vswitch());
    let (session, mut client) = connected(
        &mut server,
        ClientConfig { lock: Some("ovs_vswitchd".into()), ..ClientConfig::all(open_vswitch()) },
    );
    assert_eq!(client.lock_state(), LockState::Held);
    let mut txn = TxnBuilder::new();
    let root = txn.insert("Open_vSwitch", [("next_cfg", 4.into())]);
    client.transact(txn).unwrap();
    pump(&mut server, session, &mut client);
    let root = only_outcome(&mut client).uuid(root).unwrap();
    let mut run = |client: &mut Client, build: &dyn Fn(&mut TxnBuilder)| {
        let mut txn = TxnBuilder::new();
        build(&mut txn);
        client.transact(txn).unwrap();
        pump(&mut server, session, client);
        only_outcome(client)
    };
    let stale = run(&mut client, &|txn| txn.verify("Open_vSwitch", root, [("next_cfg", Datum::from(3))]));
    assert_eq!(stale, TxnOutcome::TryAgain);
    let fresh = run(&mut client, &|txn| {
        txn.verify("Open_vSwitch", root, [("next_cfg", Datum::from(4))]);
        txn.assert_lock("ovs_vswitchd");
        txn.durable();
    });
    assert!(matches!(fresh, TxnOutcome::Success { .. }));
    assert_eq!(run(&mut client, &|txn| txn.assert_lock("other")), TxnOutcome::NotLocked);
    let wrong = run(&mut client, &|txn| {
        txn.insert("Open_vSwitch", [] as [(&str, ColumnValue); 0]);
    });
    assert!(matches!(wrong, TxnOutcome::Error(text) if text.starts_with("constraint violation")));
    client.transact(TxnBuilder::new()).unwrap();
    client.reset();
    assert_eq!(only_outcome(&mut client), TxnOutcome::Lost);
}

#[test]
fn the_lock_moves_between_clients() {
    let mut server = server(open_vswitch());
    let config = ClientConfig { lock: Some("L".into()), ..ClientConfig::all(open_vswitch()) };
    let (first, a) = connected(&mut server, config.clone());
    let (second, mut b) = connected(&mut server, config);
    assert_eq!((a.lock_state(), b.lock_state()), (LockState::Held, LockState::Waiting));
    server.session_close(first);
    pump(&mut server, second, &mut b);
    assert_eq!(b.lock_state(), LockState::Held);
}

#[test]
fn reconnection_keeps_the_replica_and_reports_the_difference() {
    let mut server = server(open_vswitch());
    let (session, mut client) = connected(&mut server, ClientConfig::all(open_vswitch()));
    let (other, mut writer) = connected(&mut server, ClientConfig::all(open_vswitch()));
    let mut txn = TxnBuilder::new();
    add_bridge(&mut txn, None, "br0");
    writer.transact(txn).unwrap();
    pump(&mut server, other, &mut writer);
    pump(&mut server, session, &mut client);
    client.take_changes();

    server.session_close(session);
    client.reset();
    assert_eq!(client.replica().row_count("Bridge"), 1, "readable while away");
    let root = writer.replica().rows("Open_vSwitch").next().unwrap().uuid();
    let mut txn = TxnBuilder::new();
    add_bridge(&mut txn, Some(root), "br1");
    txn.update("Interface", writer.replica().rows("Interface").next().unwrap().uuid(), [("type", "".into())]);
    writer.transact(txn).unwrap();
    pump(&mut server, other, &mut writer);
    let again = server.session_open().unwrap();
    pump(&mut server, again, &mut client);
    let mut kinds = kinds(&mut client);
    kinds.sort_by_key(|(table, kind)| (table.clone(), *kind as u8));
    let expected = [
        ("Bridge", ChangeKind::Inserted),
        ("Interface", ChangeKind::Inserted),
        ("Interface", ChangeKind::Modified),
        ("Open_vSwitch", ChangeKind::Modified),
        ("Port", ChangeKind::Inserted),
    ];
    assert_eq!(kinds, expected.map(|(table, kind)| (table.to_string(), kind)));
}

#[test]
fn an_older_server_lacks_columns_that_read_as_defaults() {
    let mut json = open_vswitch().to_json();
    let tables = json["tables"].as_object_mut().unwrap();
    tables["Mirror"]["columns"].as_object_mut().unwrap().remove("filter");
    tables["Open_vSwitch"]["columns"]["next_cfg"] = json!({"type": "string"});
    let mut server = server(Arc::new(DatabaseSchema::from_json(&json).unwrap()));
    let config = ClientConfig {
        schema: open_vswitch(),
        tables: vec![
            ("Mirror".into(), None),
            ("Nope".into(), None),
            ("Open_vSwitch".into(), Some(vec!["next_cfg".into(), "cur_cfg".into()])),
        ],
        lock: None,
    };
    let (session, mut client) = connected(&mut server, config);
    assert_eq!(client.missing(), ["Mirror.filter", "Nope", "Open_vSwitch.next_cfg"]);
    let mut txn = TxnBuilder::new();
    txn.insert("Open_vSwitch", [("cur_cfg", 3.into()), ("next_cfg", "x".into())]);
    client.transact(txn).unwrap();
    pump(&mut server, session, &mut client);
    let row = client.replica().rows("Open_vSwitch").next().unwrap();
    assert_eq!((row.int("cur_cfg"), row.int("next_cfg")), (3, 0));
}

/// Plays a server with only the older methods.
#[test]
fn falls_back_to_older_monitors() {
    let uuid = "00000000-0000-0000-0000-000000000001";
    for refused in 0..3 {
        let mut client = Client::new(ClientConfig::all(open_vswitch()));
        let mut answered = Vec::new();
        for step in 0..2 + refused {
            let request: Value = serde_json::from_slice(&client.take_output()).unwrap();
            let method = request["method"].as_str().unwrap().to_string();
            let row = json!({"next_cfg": 1});
            let reply = match (method.as_str(), step <= refused) {
                ("get_schema", _) => {
                    json!({"id": request["id"], "error": null, "result": open_vswitch().to_json()})
                }
                (_, true) => json!({"id": request["id"], "error": "unknown method"}),
                ("monitor", _) => {
                    json!({"id": request["id"], "error": null, "result": {"Open_vSwitch": {uuid: {"new": row}}}})
                }
                ("monitor_cond", _) => {
                    json!({"id": request["id"], "error": null, "result": {"Open_vSwitch": {uuid: {"initial": row}}}})
                }
                _ => {
                    json!({"id": request["id"], "error": null, "result": [false, uuid, {"Open_vSwitch": {uuid: {"initial": row}}}]})
                }
            };
            answered.push(method);
            client.input(reply.to_string().as_bytes()).unwrap();
        }
        assert_eq!(client.state(), ClientState::Ready, "{answered:?}");
        assert_eq!(client.replica().rows("Open_vSwitch").next().unwrap().int("next_cfg"), 1);
        let update = match refused {
            0 => {
                json!({"id": null, "method": "update3", "params": [0, uuid, {"Open_vSwitch": {uuid: {"modify": {"next_cfg": 2}}}}]})
            }
            1 => {
                json!({"id": null, "method": "update2", "params": [0, {"Open_vSwitch": {uuid: {"modify": {"next_cfg": 2}}}}]})
            }
            _ => {
                json!({"id": null, "method": "update", "params": [0, {"Open_vSwitch": {uuid: {"old": {"next_cfg": 1}, "new": {"next_cfg": 2}}}}]})
            }
        };
        client.input(update.to_string().as_bytes()).unwrap();
        assert_eq!(client.replica().rows("Open_vSwitch").next().unwrap().int("next_cfg"), 2);
    }
}

#[test]
fn invalid_server_messages_are_an_error() {
    for text in [
        "x",
        "[]",
        r#"{"id":99,"result":1,"error":null}"#,
        r#"{"id":1,"result":{},"error":null}"#,
        r#"{"id":1,"error":"unknown database"}"#,
        r#"{"id":null,"method":"update","params":[1,{"Nope":{}}]}"#,
        r#"{"id":null,"method":"update2","params":[1,[]]}"#,
        r#"{"id":null,"method":"monitor_canceled","params":[1]}"#,
    ] {
        let mut client = Client::new(ClientConfig::all(open_vswitch()));
        assert!(client.input(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn echo_goes_both_ways() {
    let mut server = server(open_vswitch());
    let (session, mut client) = connected(&mut server, ClientConfig::all(open_vswitch()));
    client.send_echo();
    assert!(client.echo_pending());
    pump(&mut server, session, &mut client);
    assert!(!client.echo_pending());
    client.input(br#"{"id":"echo","method":"echo","params":[]}"#).unwrap();
    assert_eq!(client.take_output(), br#"{"id":"echo","result":[],"error":null}"#);
}
