mod commands;

use serde_json::{Value, json};

use super::*;
use crate::log::{load, schema_record};
use crate::schema::open_vswitch;
use crate::value::SeededUuids;

struct Bench {
    server: Server,
    /// The contents of the disk.
    file: Vec<u8>,
    now: Time,
}

impl Bench {
    fn new(limits: ServerLimits) -> Self {
        let db = Database::new(open_vswitch());
        let file = schema_record(&db);
        let mut server = Server::new(Box::new(SeededUuids::new(5)), limits);
        server.add_database(db, true).unwrap();
        Bench { server, file, now: Time { mono_ms: 1000, wall_ms: 1_700_000_000_000 } }
    }

    fn open(&mut self) -> SessionId {
        self.server.session_open().unwrap()
    }

    fn sync(&mut self) {
        for record in self.server.take_log() {
            self.file.extend(&record.bytes);
        }
        self.server.log_synced(self.server.log_seq());
    }

    fn send(&mut self, session: SessionId, id: i64, method: &str, params: Value) {
        let request = json!({"id": id, "method": method, "params": params});
        self.server.session_input(session, request.to_string().as_bytes(), self.now);
    }

    fn received(&mut self, session: SessionId) -> Vec<Value> {
        let bytes = self.server.session_output(session);
        serde_json::Deserializer::from_slice(&bytes).into_iter().collect::<Result<_, _>>().unwrap()
    }

    /// All output after a request, once the log is synced.
    fn ask(&mut self, session: SessionId, method: &str, params: Value) -> Vec<Value> {
        self.send(session, 7, method, params);
        self.sync();
        self.received(session)
    }

    fn result(&mut self, session: SessionId, method: &str, params: Value) -> Value {
        let mut messages = self.ask(session, method, params);
        let reply = messages.pop().unwrap();
        assert_eq!(reply["error"], Value::Null, "{reply}");
        reply["result"].clone()
    }

    fn error(&mut self, session: SessionId, method: &str, params: Value) -> String {
        let error = self.ask(session, method, params).pop().unwrap()["error"].clone();
        error.as_str().or(error["error"].as_str()).unwrap().to_string()
    }
}

fn insert_root(next_cfg: i64) -> Value {
    json!(["Open_vSwitch", {"op": "insert", "table": "Open_vSwitch", "row": {"next_cfg": next_cfg}}])
}

fn set_root(row: Value) -> Value {
    json!(["Open_vSwitch", {"op": "update", "table": "Open_vSwitch", "where": [], "row": row}])
}

#[test]
fn plain_methods_and_their_errors() {
    let mut bench = Bench::new(ServerLimits::default());
    let s = bench.open();
    assert_eq!(bench.result(s, "list_dbs", json!([])), json!(["Open_vSwitch", "_Server"]));
    assert_eq!(bench.result(s, "echo", json!([1, "x"])), json!([1, "x"]));
    assert_eq!(bench.result(s, "get_schema", json!(["Open_vSwitch"])), open_vswitch().to_json());
    assert_eq!(bench.result(s, "set_db_change_aware", json!([true])), json!({}));
    assert_eq!(bench.result(s, "get_server_id", json!([])).as_str().unwrap().len(), 36);
    let rows = bench.result(s, "transact", json!(["_Server", {"op": "select", "table": "Database", "where": [], "columns": ["name", "model", "leader"]}]));
    assert_eq!(rows[0]["rows"].as_array().unwrap().len(), 2);
    for (method, params, error) in [
        ("nope", json!([]), "unknown method"),
        ("get_schema", json!(["x"]), "unknown database"),
        ("get_schema", json!([]), "syntax error"),
        ("transact", json!([]), "syntax error"),
        ("transact", json!(["x"]), "unknown database"),
        ("set_db_change_aware", json!([1]), "syntax error"),
        ("monitor", json!(["Open_vSwitch", 1]), "syntax error"),
        ("monitor", json!(["x", 1, {}]), "unknown database"),
        ("monitor", json!(["Open_vSwitch", 1, {"Nope": {}}]), "syntax error"),
        ("monitor", json!(["Open_vSwitch", 1, {"Bridge": {"columns": ["nope"]}}]), "syntax error"),
        (
            "monitor",
            json!(["Open_vSwitch", 1, {"Bridge": [{"columns": ["name"]}, {"columns": ["name"]}]}]),
            "syntax error",
        ),
        ("monitor", json!(["Open_vSwitch", 1, {"Bridge": {"select": {"bogus": true}}}]), "syntax error"),
        ("monitor_cond_since", json!(["Open_vSwitch", 1, {}]), "syntax error"),
        ("monitor_cond_change", json!([1, 2, {}]), "syntax error"),
        ("monitor_cancel", json!([1]), "unknown monitor"),
        ("unlock", json!(["a"]), "syntax error"),
        ("lock", json!(["9"]), "syntax error"),
    ] {
        assert_eq!(bench.error(s, method, params.clone()), error, "{method} {params}");
    }
    let refused =
        bench.result(s, "transact", json!(["_Server", {"op": "delete", "table": "Database", "where": []}]));
    assert_eq!(refused[0]["error"], "not allowed");
}

#[test]
fn monitors_of_all_three_kinds() {
    let mut bench = Bench::new(ServerLimits::default());
    let s = bench.open();
    let request = json!({"Open_vSwitch": [{"columns": ["next_cfg", "external_ids"]}]});
    assert_eq!(bench.result(s, "monitor", json!(["Open_vSwitch", "m1", request])), json!({}));
    assert_eq!(bench.result(s, "monitor_cond", json!(["Open_vSwitch", "m2", request])), json!({}));
    let since = bench.result(s, "monitor_cond_since", json!(["Open_vSwitch", "m3", request, "0"]));
    assert_eq!((&since[0], &since[2]), (&json!(false), &json!({})));
    assert_eq!(bench.error(s, "monitor", json!(["Open_vSwitch", "m1", request])), "syntax error");

    let messages = bench.ask(s, "transact", insert_root(1));
    let uuid = messages[3]["result"][0]["uuid"][1].as_str().unwrap().to_string();
    assert_eq!(
        messages[0]["params"],
        json!(["m1", {"Open_vSwitch": {&uuid: {"new": {"next_cfg": 1, "external_ids": ["map", []]}}}}])
    );
    assert_eq!(messages[1]["params"], json!(["m2", {"Open_vSwitch": {&uuid: {"insert": {"next_cfg": 1}}}}]));
    assert_eq!(messages[2]["method"], "update3");
    assert_eq!(messages[2]["params"][2], messages[1]["params"][1]);

    let messages = bench.ask(
        s,
        "transact",
        set_root(json!({"external_ids": ["map", [["a", "b"], ["c", "d"]]], "cur_cfg": 4})),
    );
    assert_eq!(
        messages[0]["params"][1]["Open_vSwitch"][&uuid],
        json!({"old": {"external_ids": ["map", []]}, "new": {"next_cfg": 1, "external_ids": ["map", [["a", "b"], ["c", "d"]]]}})
    );
    assert_eq!(
        messages[1]["params"][1]["Open_vSwitch"][&uuid],
        json!({"modify": {"external_ids": ["map", [["a", "b"], ["c", "d"]]]}})
    );
    let messages = bench.ask(s, "transact", set_root(json!({"external_ids": ["map", [["a", "x"]]]})));
    assert_eq!(
        messages[1]["params"][1]["Open_vSwitch"][&uuid],
        json!({"modify": {"external_ids": ["map", [["a", "x"], ["c", "d"]]]}})
    );
    assert_eq!(
        bench.ask(s, "transact", set_root(json!({"cur_cfg": 5}))).len(),
        1,
        "no monitored column changed"
    );
    assert_eq!(bench.result(s, "monitor_cancel", json!(["m1"])), json!({}));
    let messages = bench.ask(
        s,
        "transact",
        json!(["Open_vSwitch", {"op": "delete", "table": "Open_vSwitch", "where": []}]),
    );
    assert_eq!(messages[0]["params"][1]["Open_vSwitch"][&uuid], json!({"delete": null}));
}

#[test]
fn conditions_hide_and_reveal_rows() {
    let mut bench = Bench::new(ServerLimits::default());
    let s = bench.open();
    let root = bench.result(s, "transact", insert_root(1))[0]["uuid"][1].as_str().unwrap().to_string();
    let request = json!({"Open_vSwitch": [{"columns": ["cur_cfg"], "where": [["next_cfg", ">", 5]]}]});
    assert_eq!(bench.result(s, "monitor_cond", json!(["Open_vSwitch", 1, request])), json!({}));
    assert_eq!(bench.ask(s, "transact", set_root(json!({"cur_cfg": 2}))).len(), 1);
    let messages = bench.ask(s, "transact", set_root(json!({"next_cfg": 6})));
    assert_eq!(messages[0]["params"], json!([1, {"Open_vSwitch": {&root: {"insert": {"cur_cfg": 2}}}}]));
    let messages = bench.ask(s, "transact", set_root(json!({"next_cfg": 5})));
    assert_eq!(messages[0]["params"], json!([1, {"Open_vSwitch": {&root: {"delete": null}}}]));
    let messages = bench.ask(s, "monitor_cond_change", json!([1, 2, {"Open_vSwitch": [{"where": [true]}]}]));
    assert_eq!(messages[0]["params"], json!([2, {"Open_vSwitch": {&root: {"insert": {"cur_cfg": 2}}}}]));
    assert_eq!(messages[1]["result"], json!({}));
    let messages = bench.ask(s, "monitor_cond_change", json!([2, 2, {"Open_vSwitch": [{"where": [false]}]}]));
    assert_eq!(messages[0]["params"], json!([2, {"Open_vSwitch": {&root: {"delete": null}}}]));
    assert_eq!(
        bench.ask(s, "monitor_cond_change", json!([2, 2, {"Open_vSwitch": [{"where": [false]}]}])).len(),
        1
    );
}

#[test]
fn locks_pass_from_session_to_session() {
    let mut bench = Bench::new(ServerLimits::default());
    let (a, b, c) = (bench.open(), bench.open(), bench.open());
    assert_eq!(bench.result(a, "lock", json!(["L"])), json!({"locked": true}));
    assert_eq!(bench.result(b, "lock", json!(["L"])), json!({"locked": false}));
    assert_eq!(bench.error(a, "lock", json!(["L"])), "syntax error");
    let assert_lock = json!(["Open_vSwitch", {"op": "assert", "lock": "L"}]);
    assert_eq!(bench.result(a, "transact", assert_lock.clone()), json!([{}]));
    assert_eq!(bench.result(b, "transact", assert_lock)[0]["error"], "not owner");
    assert_eq!(bench.result(c, "steal", json!(["L"])), json!({"locked": true}));
    assert_eq!(bench.received(a)[0], json!({"id": null, "method": "stolen", "params": ["L"]}));
    assert_eq!(bench.result(c, "unlock", json!(["L"])), json!({}));
    assert_eq!(bench.received(a)[0]["method"], "locked", "the victim is next");
    bench.server.session_close(a);
    assert_eq!(bench.received(b)[0], json!({"id": null, "method": "locked", "params": ["L"]}));
}

fn wait_for(next_cfg: i64, timeout: Option<i64>) -> Value {
    let mut wait = json!({"op": "wait", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"], "until": "==", "rows": [{"next_cfg": next_cfg}]});
    if let Some(timeout) = timeout {
        wait["timeout"] = json!(timeout);
    }
    json!(["Open_vSwitch", wait, {"op": "update", "table": "Open_vSwitch", "where": [], "row": {"next_cfg": next_cfg + 1}}])
}

#[test]
fn waits_are_retried_expire_and_are_cancelled() {
    let mut bench = Bench::new(ServerLimits::default());
    let (a, b) = (bench.open(), bench.open());
    bench.result(a, "transact", insert_root(1));
    bench.send(b, 1, "transact", wait_for(3, None));
    bench.send(b, 2, "transact", wait_for(2, Some(500)));
    bench.send(b, 3, "transact", wait_for(9, Some(200)));
    bench.send(b, 4, "transact", wait_for(9, None));
    assert_eq!(bench.received(b), Vec::<Value>::new());
    bench.result(a, "transact", set_root(json!({"next_cfg": 2})));
    let ids: Vec<Value> = bench.received(b).into_iter().map(|reply| reply["id"].clone()).collect();
    assert_eq!(ids, [json!(2), json!(1)], "one lets the other go on");
    assert_eq!(bench.server.next_deadline_ms(), Some(1200));
    bench.now.mono_ms = 1199;
    bench.server.tick(bench.now);
    assert_eq!(bench.received(b), Vec::<Value>::new());
    bench.now.mono_ms = 1200;
    bench.server.tick(bench.now);
    let reply = bench.received(b).remove(0);
    assert_eq!(
        (&reply["id"], &reply["result"][0]["error"], &reply["result"][1]),
        (&json!(3), &json!("timed out"), &Value::Null)
    );
    bench.server.session_input(b, br#"{"id":null,"method":"cancel","params":[4]}"#, bench.now);
    assert_eq!(bench.received(b)[0], json!({"id": 4, "result": null, "error": "canceled"}));
}

#[test]
fn no_output_of_a_commit_leaves_before_it_is_synced() {
    let mut bench = Bench::new(ServerLimits::default());
    let (a, b) = (bench.open(), bench.open());
    bench.result(b, "monitor", json!(["Open_vSwitch", 1, {"Open_vSwitch": {"columns": ["next_cfg"]}}]));
    bench.send(a, 1, "transact", insert_root(1));
    bench.send(
        b,
        2,
        "transact",
        json!(["Open_vSwitch", {"op": "select", "table": "Open_vSwitch", "where": []}]),
    );
    assert!(bench.received(a).is_empty() && bench.received(b).is_empty());
    assert!(bench.server.sessions_with_output().is_empty());
    bench.sync();
    assert_eq!(bench.server.sessions_with_output(), [a, b]);
    assert_eq!((bench.received(a).len(), bench.received(b).len()), (1, 2));
    let read = load(&bench.file, &mut SeededUuids::new(1)).unwrap();
    assert_eq!(read.transactions, 1);
}

#[test]
fn a_failed_write_reverts_commits() {
    let mut bench = Bench::new(ServerLimits::default());
    let (a, b, c) = (bench.open(), bench.open(), bench.open());
    bench.result(a, "transact", insert_root(1));
    bench.result(b, "monitor", json!(["Open_vSwitch", 1, {"Open_vSwitch": {"columns": ["next_cfg"]}}]));
    bench.send(a, 1, "transact", set_root(json!({"next_cfg": 2})));
    bench.send(a, 2, "transact", set_root(json!({"statistics": ["map", [["a", "b"]]]})));
    bench.send(a, 3, "transact", set_root(json!({"next_cfg": 3})));
    bench.send(c, 4, "monitor", json!(["Open_vSwitch", 1, {"Open_vSwitch": {"columns": ["next_cfg"]}}]));
    bench.server.log_failed("no space left on device");
    for reply in bench.received(a) {
        assert_eq!(reply["result"][0], Value::Null);
        assert_eq!(reply["result"][1]["error"], "I/O error", "{reply}");
    }
    assert_eq!(bench.received(b), Vec::<Value>::new(), "the monitor never heard of it");
    assert!(bench.server.session_closing(b).is_none());
    assert!(bench.server.session_closing(c).unwrap().contains("no space left"));
    let select = json!(["Open_vSwitch", {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg", "statistics"]}]);
    assert_eq!(
        bench.result(b, "transact", select)[0]["rows"],
        json!([{"next_cfg": 1, "statistics": ["map", []]}])
    );
    bench.result(a, "transact", set_root(json!({"next_cfg": 4})));
    assert_eq!(bench.received(b)[0]["params"][1]["Open_vSwitch"].as_object().unwrap().len(), 1);
}

#[test]
fn bad_sessions_end_alone() {
    let limits = ServerLimits { backlog_bytes: 400, sessions: 3, ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let (lazy, rude, good) = (bench.open(), bench.open(), bench.open());
    assert_eq!(bench.server.session_open(), Err(ServerError::TooManySessions(3)));
    for id in 0..10 {
        bench.send(lazy, id, "echo", json!(["x".repeat(50)]));
    }
    assert!(bench.server.session_closing(lazy).unwrap().contains("does not read"));
    let mut rude = rude;
    for (bytes, reason) in
        [(&b"[1]"[..], "not an object"), (b"x", "0x78"), (b"{\"id\":1,\"method\":\"echo\"}", "params")]
    {
        bench.server.session_input(rude, bytes, bench.now);
        assert!(bench.server.session_closing(rude).unwrap().contains(reason), "{reason}");
        bench.server.session_close(rude);
        rude = bench.open();
    }
    assert_eq!(bench.result(good, "echo", json!([1])), json!([1]));
    assert_eq!(bench.server.closing_sessions().len(), 1);
}

#[test]
fn half_sent_messages_of_all_sessions_are_bounded() {
    let limits = ServerLimits { total_input_bytes: 4000, ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let (big, small) = (bench.open(), bench.open());
    bench.server.session_input(small, &[b'['; 100], bench.now);
    bench.server.session_input(big, format!("[\"{}", "x".repeat(3500)).as_bytes(), bench.now);
    assert!(bench.server.closing_sessions().is_empty());
    bench.server.session_input(small, &[b'['; 10], bench.now);
    assert!(bench.server.closing_sessions().is_empty());
    let third = bench.open();
    bench.server.session_input(third, format!("[\"{}", "x".repeat(1000)).as_bytes(), bench.now);
    assert!(bench.server.session_closing(big).unwrap().contains("this one has 3502 bytes"));
    assert!(bench.server.session_closing(small).is_none() && bench.server.session_closing(third).is_none());
    assert_eq!(bench.server.counters().cut_off, 1);
    bench.server.session_close(big);
    let other = bench.open();
    bench.server.session_probe(other);
    assert_eq!(bench.received(other), [json!({"id": "echo", "method": "echo", "params": []})]);
    bench.server.session_input(other, br#"{"id":"echo","result":[],"error":null}"#, bench.now);
    assert!(bench.server.session_closing(other).is_none());
}

#[test]
fn unread_output_of_all_sessions_is_bounded() {
    let limits = ServerLimits { total_output_bytes: 20_000, ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let writer = bench.open();
    bench.result(writer, "transact", insert_root(1));
    let readers: Vec<SessionId> = (0..10).map(|_| bench.open()).collect();
    for reader in &readers {
        for n in 0..3 {
            let watch = json!({"Open_vSwitch": {"columns": ["external_ids"]}});
            bench.result(*reader, "monitor", json!(["Open_vSwitch", n, watch]));
        }
    }
    // Readers continue, others are ended at the bound, whichever session commits.
    for n in 0..20 {
        let ids = json!({"external_ids": ["map", [["a", format!("{n:0>200}")]]]});
        bench.result(writer, "transact", set_root(ids));
        assert_eq!(bench.received(readers[0]).len(), 3);
        let held = bench.server.held.output.load(Ordering::Relaxed);
        assert!(held <= 20_000, "{held} bytes");
    }
    let cut = bench.server.counters().cut_off;
    assert!((1..10).contains(&cut), "{cut}");
    assert!(bench.server.session_closing(readers[0]).is_none());
    assert_eq!(bench.server.closing_sessions().len() as u64, cut);
    readers.iter().for_each(|reader| bench.server.session_close(*reader));
    bench.server.session_close(writer);
    assert_eq!(bench.server.held.output.load(Ordering::Relaxed), 0);
    assert_eq!(bench.server.held.input.load(Ordering::Relaxed), 0);
}

#[test]
fn a_message_above_the_total_bound_is_never_encoded() {
    let limits = ServerLimits { total_output_bytes: 20_000, ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let (little, much, asks) = (bench.open(), bench.open(), bench.open());
    bench.send(little, 1, "echo", json!(["x".repeat(2_000)]));
    bench.send(much, 1, "echo", json!(["x".repeat(12_000)]));
    // It fits once the session that holds most is closed.
    bench.send(asks, 1, "echo", json!(["x".repeat(9_000)]));
    assert!(bench.server.session_closing(much).is_some_and(|why| why.contains("unread output")));
    assert_eq!(bench.received(asks).len(), 1);
    // It would not fit alone: the requester holds most.
    bench.send(asks, 2, "echo", json!(["x".repeat(30_000)]));
    assert!(bench.server.session_closing(asks).is_some());
    assert_eq!((bench.received(little).len(), bench.server.counters().cut_off), (1, 2));
    assert_eq!(bench.server.held.output.load(Ordering::Relaxed), 0);
    // Only the length of a too long message is known.
    let message = || RpcMessage::Reply { id: json!(1), result: json!(["é\n".repeat(1000)]) };
    let long = message().encode();
    assert_eq!(message().encode_within(long.len()).unwrap(), long);
    let refused = message().encode_within(long.len() - 1).unwrap_err();
    assert_eq!((refused.bytes, refused.encode()), (long.len(), long));
}

#[test]
fn replies_pause_for_a_session_that_does_not_read() {
    let mut bench = Bench::new(ServerLimits::default());
    let s = bench.open();
    for id in 0..5 {
        bench.send(s, id, "echo", json!(["x".repeat(400_000)]));
    }
    // Unread output is full, and the rest waits in place.
    assert!(!bench.server.session_wants_input(s) && !bench.server.has_work());
    assert_eq!(bench.received(s).len(), 3);
    assert!(bench.server.has_work());
    bench.server.work(bench.now);
    assert_eq!(bench.received(s).len(), 2);
    assert!(bench.server.session_wants_input(s) && !bench.server.has_work());
    // Its output can be had in pieces.
    bench.send(s, 9, "echo", json!(["0123456789"]));
    let pieces: Vec<Vec<u8>> = std::iter::repeat_with(|| bench.server.session_output_some(s, 10))
        .take_while(|p| !p.is_empty())
        .collect();
    assert!(pieces.len() > 3 && pieces.iter().rev().skip(1).all(|p| p.len() == 10));
    assert!(String::from_utf8(pieces.concat()).unwrap().contains("0123456789"));
}

#[test]
fn sessions_take_turns() {
    let limits = ServerLimits { per_turn: (2, 16), ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let (many, one) = (bench.open(), bench.open());
    bench.server.session_input(
        many,
        br#"{"id":1,"method":"echo","params":[]}"#.repeat(5).as_slice(),
        bench.now,
    );
    assert_eq!((bench.received(many).len(), bench.server.has_work()), (2, true));
    assert_eq!(bench.result(one, "echo", json!([1])), json!([1]));
    for left in [2, 1] {
        bench.server.work(bench.now);
        assert_eq!(bench.received(many).len(), left);
    }
    bench.server.work(bench.now);
    assert!(!bench.server.has_work() && bench.server.session_wants_input(many));
}

#[test]
fn total_monitors_and_sessions_are_bounded_with_reserves() {
    let limits = ServerLimits { monitors: 5, sessions: 4, remote_sessions: 2, ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let (greedy, modest) = (bench.open(), bench.open());
    let watch = |n: usize| json!(["Open_vSwitch", n, {"Open_vSwitch": {"columns": ["next_cfg"]}}]);
    (0..5).for_each(|n| assert_eq!(bench.result(greedy, "monitor", watch(n)), json!({})));
    assert_eq!(bench.error(greedy, "monitor", watch(5)), "resources exhausted");
    // Each session gets the monitors that an IDL needs.
    (0..2).for_each(|n| assert_eq!(bench.result(modest, "monitor", watch(n)), json!({})));
    assert_eq!(bench.error(modest, "monitor", watch(2)), "resources exhausted");
    assert_eq!(bench.server.counters().monitors_refused, 2);
    bench.server.session_close(modest);
    for (origin, opens) in
        [(Origin::Remote, true), (Origin::Remote, true), (Origin::Remote, false), (Origin::Local, true)]
    {
        assert_eq!(bench.server.session_open_from(origin).is_ok(), opens, "{origin:?}");
    }
}

#[test]
fn waits_cost_commits_of_other_tables_nothing_and_are_bounded() {
    let limits = ServerLimits { waits: 40, per_turn: (64, 8), ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let writer = bench.open();
    bench.result(writer, "transact", insert_root(1));
    let waiter = bench.open();
    (0..40).for_each(|id| bench.send(waiter, id, "transact", wait_for(100 + id, None)));
    bench.send(waiter, 40, "transact", wait_for(7, None));
    assert_eq!(bench.received(waiter)[0]["error"]["error"], "resources exhausted");
    assert_eq!(bench.server.counters().waits_refused, 1);
    let insert = json!(["Open_vSwitch", {"op": "insert", "table": "SSL", "row":
        {"private_key": "a", "certificate": "b", "ca_cert": "c"}}]);
    bench.result(writer, "transact", insert);
    assert_eq!(bench.server.counters().waits_run, 0, "nothing that they look at has changed");
    bench.result(writer, "transact", set_root(json!({"next_cfg": 2})));
    assert_eq!(bench.server.counters().waits_run, 8, "the others have their turn");
    for runs in [16, 24, 32, 40] {
        assert!(bench.server.has_work());
        bench.server.work(bench.now);
        assert_eq!(bench.server.counters().waits_run, runs);
    }
    assert!(!bench.server.has_work());
}

#[test]
fn a_removed_database_is_announced() {
    let mut bench = Bench::new(ServerLimits::default());
    let (aware, plain) = (bench.open(), bench.open());
    bench.result(aware, "set_db_change_aware", json!([true]));
    bench.result(aware, "monitor_cond", json!(["_Server", "s", {"Database": [{"columns": ["name"]}]}]));
    bench.result(aware, "monitor_cond", json!(["Open_vSwitch", "o", {"Bridge": [{"columns": ["name"]}]}]));
    bench.send(aware, 9, "transact", wait_for(1, None));
    let db = bench.server.remove_database("Open_vSwitch").unwrap();
    let messages = bench.received(aware);
    assert_eq!(messages[0], json!({"id": null, "method": "monitor_canceled", "params": ["o"]}));
    assert_eq!(messages[1]["error"], "canceled");
    assert_eq!(messages[2]["method"], "update2");
    assert!(bench.server.session_closing(plain).is_some() && bench.server.session_closing(aware).is_none());
    bench.server.add_database(db, true).unwrap();
    assert_eq!(bench.received(aware)[0]["method"], "update2");
}

#[test]
fn output_per_turn_is_bounded_and_idle_readers_cost_commits_nothing() {
    let limits = ServerLimits { output_per_turn: 10_000, ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let writer = bench.open();
    bench.result(writer, "transact", insert_root(1));
    // Replies of all sessions together are limited per turn; each session is limited too.
    let askers: Vec<SessionId> = (0..20).map(|_| bench.open()).collect();
    bench.server.work(bench.now);
    for asker in &askers {
        bench.send(*asker, 1, "echo", json!(["x".repeat(3000)]));
    }
    let mut answered = bench.server.sessions_with_output().len();
    let mut turns = 0;
    assert!((3..=4).contains(&answered), "{answered}");
    while bench.server.has_work() {
        bench.server.work(bench.now);
        let now = bench.server.sessions_with_output().len();
        assert!(now - answered <= 4, "{answered} -> {now}");
        (answered, turns) = (now, turns + 1);
    }
    assert!(answered == 20 && turns >= 4, "{answered} in {turns} turns");
    askers.iter().for_each(|asker| bench.server.session_close(*asker));
    // Two monitoring sessions: one reads, one exceeds its unread output.
    let (reader, lazy) = (bench.open(), bench.open());
    let watch = json!({"Open_vSwitch": {"columns": ["external_ids", "next_cfg"]}});
    for session in [reader, lazy] {
        bench.server.work(bench.now);
        bench.result(session, "monitor", json!(["Open_vSwitch", 1, watch]));
    }
    bench.send(lazy, 1, "echo", json!(["x".repeat(2 << 20)]));
    let held = bench.server.held.output.load(Ordering::Relaxed);
    for n in 0..50 {
        bench.server.work(bench.now);
        let ids = json!({"external_ids": ["map", [["a", format!("{n:0>500}")]]]});
        bench.result(writer, "transact", set_root(ids));
        assert_eq!(bench.received(reader).len(), 1);
    }
    assert_eq!(
        bench.server.held.output.load(Ordering::Relaxed),
        held,
        "nothing was made for who does not read"
    );
    // It gets all updates, in order, once it reads, before the reply to its next request.
    assert_eq!(bench.received(lazy).len(), 1);
    bench.send(lazy, 2, "echo", json!([]));
    let mut told = Vec::new();
    while bench.server.has_work() {
        bench.server.work(bench.now);
        told.extend(bench.received(lazy));
    }
    told.extend(bench.received(lazy));
    assert_eq!((told.len(), &told[50]["id"]), (51, &json!(2)));
    for (n, update) in told[..50].iter().enumerate() {
        assert!(update.to_string().contains(&format!("{n:0>500}")), "{n}: {update}");
    }
}

#[test]
fn of_a_departed_clients_input_only_transactions_run() {
    let limits = ServerLimits { per_turn: (1, 16), ..ServerLimits::default() };
    let mut bench = Bench::new(limits);
    let (gone, other) = (bench.open(), bench.open());
    bench.result(other, "transact", insert_root(1));
    let watch = json!(["Open_vSwitch", 1, {"Open_vSwitch": {}}]);
    let all: String = [
        json!({"id": 0, "method": "echo", "params": []}),
        json!({"id": 1, "method": "monitor", "params": watch}),
        json!({"id": 2, "method": "transact", "params": set_root(json!({"next_cfg": 7}))}),
    ]
    .map(|request| request.to_string())
    .concat();
    bench.server.session_input(gone, all.as_bytes(), bench.now);
    bench.server.session_transact_only(gone);
    while bench.server.has_work() {
        bench.server.work(bench.now);
        assert!(bench.server.sessions[&gone].monitors.is_empty());
        assert_eq!(bench.server.sessions[&gone].output_bytes(), 0);
    }
    let select = json!(["Open_vSwitch", {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]}]);
    assert_eq!(bench.result(other, "transact", select), json!([{"rows": [{"next_cfg": 7}]}]));
    assert!(!bench.server.session_has_requests(gone));
}
