//! Fuzz targets: each takes any bytes, must not panic, and asserts its postconditions.
//!
//! They run under a coverage-guided fuzzer, and on the files of `corpus/` in an ordinary test. Add each crash
//! as a file there.

use serde_json::Value;

use crate::client::{Client, ClientConfig};
use crate::db::Database;
use crate::jsonrpc::{Framer, FramerLimits, RpcMessage};
use crate::log::{load, snapshot};
use crate::schema::{DatabaseSchema, open_vswitch};
use crate::server::{Server, ServerLimits, Time};
use crate::value::SeededUuids;

/// A client's stream: framing must not depend on the split of the bytes, and server and client must survive
/// them.
pub fn fuzz_jsonrpc(bytes: &[u8]) {
    let limits = FramerLimits { bytes: 1 << 16, depth: 30, nodes: 1 << 12 };
    let whole = texts(limits, bytes.chunks(bytes.len().max(1)));
    assert_eq!(whole, texts(limits, bytes.chunks(1)), "the cut of the stream changed what was read");
    for text in &whole {
        if let Ok(message) = RpcMessage::from_json(text.clone()) {
            assert_eq!(RpcMessage::from_json(message.clone().into_json()), Ok(message));
        }
    }
    let mut server = small_server();
    if let Ok(session) = server.session_open() {
        server.session_input(session, bytes, Time::default());
        server.session_output(session);
        server.session_close(session);
    }
    // A rejected stream is expected here; the client only has to survive.
    let _refused = Client::new(ClientConfig::all(open_vswitch())).input(bytes).is_err();
}

/// A server's stream to a client with data: the replica must survive it, and the client must report
/// rejection.
pub fn fuzz_client(bytes: &[u8]) {
    let mut server = small_server();
    let Ok(session) = server.session_open() else { return };
    let mut client = Client::new(ClientConfig::all(open_vswitch()));
    let operation = r#"{"op":"insert","table":"Bridge","row":{"name":"b"},"uuid-name":"b"}"#;
    let root = r#"{"op":"insert","table":"Open_vSwitch","row":{"bridges":["named-uuid","b"]}}"#;
    let request = format!(r#"{{"id":1,"method":"transact","params":["Open_vSwitch",{operation},{root}]}}"#);
    server.session_input(session, request.as_bytes(), Time::default());
    server.log_synced(server.log_seq());
    server.session_output(session);
    loop {
        let up = client.take_output();
        server.session_input(session, &up, Time::default());
        server.log_synced(server.log_seq());
        let down = server.session_output(session);
        if up.is_empty() && down.is_empty() {
            break;
        }
        assert!(client.input(&down).is_ok());
    }
    let before = client.replica().rows("Bridge").count();
    assert_eq!(before, 1);
    let refused = client.input(bytes).is_err();
    for row in client.replica().rows("Bridge") {
        // Reading must work after any input.
        row.str("name");
        row.uuid_set("ports");
    }
    client.take_changes();
    if refused {
        client.reset();
        assert!(!client.take_output().is_empty(), "after a refusal it asks anew");
    }
}

fn texts<'a>(limits: FramerLimits, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Value> {
    let mut framer = Framer::new(limits);
    let mut texts = Vec::new();
    for chunk in chunks {
        framer.feed(chunk);
        while let Ok(Some(text)) = framer.next_text() {
            texts.push(text);
        }
    }
    texts
}

fn small_server() -> Server {
    let limits = ServerLimits { backlog_bytes: 1 << 20, ..ServerLimits::default() };
    let mut server = Server::new(Box::new(SeededUuids::new(1)), limits);
    // Only a duplicate name is rejected.
    let added = server.add_database(Database::new(open_vswitch()), true);
    assert!(added.is_ok());
    server
}

/// A database file: accepted contents must survive writing and reading.
pub fn fuzz_log(bytes: &[u8]) {
    let Ok(loaded) = load(bytes, &mut SeededUuids::new(1)) else { return };
    assert!(loaded.good_len <= bytes.len());
    let file = snapshot(&loaded.db, "", 0);
    match load(&file, &mut SeededUuids::new(1)) {
        Ok(again) => assert_eq!(snapshot(&again.db, "", 0), file),
        Err(error) => panic!("our own snapshot is refused: {error}"),
    }
}

/// Lines of `transact` parameters for one database: each is followed by a check of the whole database, and
/// the log of all of them must restore equal contents.
pub fn fuzz_transact(bytes: &[u8]) {
    let mut server = small_server();
    let Ok(session) = server.session_open() else { return };
    let mut file = server.database("Open_vSwitch").map(crate::log::schema_record).unwrap_or_default();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(Value::Array(operations)) = serde_json::from_slice::<Value>(line) else { continue };
        let params = std::iter::once(Value::from("Open_vSwitch")).chain(operations).collect();
        let request = RpcMessage::Request { id: Value::from(1), method: "transact".into(), params };
        server.session_input(session, &request.encode(), Time::default());
        for record in server.take_log() {
            file.extend(record.bytes);
        }
        server.log_synced(server.log_seq());
        server.session_output(session);
    }
    let Some(db) = server.database("Open_vSwitch") else { return };
    let mut fresh = db.clone();
    assert_eq!(fresh.rebuild(), Ok(()), "the database breaks its schema");
    match load(&file, &mut SeededUuids::new(1)) {
        Ok(loaded) => {
            assert_eq!(snapshot(&loaded.db, "", 0), snapshot(db, "", 0), "the log tells another story")
        }
        Err(error) => panic!("our own log is refused: {error}"),
    }
}

/// A schema: an accepted one must survive printing.
pub fn fuzz_schema(bytes: &[u8]) {
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else { return };
    if let Ok(schema) = DatabaseSchema::from_json(&json) {
        assert_eq!(DatabaseSchema::from_json(&schema.to_json()), Ok(schema));
    }
}
