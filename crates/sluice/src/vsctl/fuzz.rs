//! Fuzz targets of `sluice vsctl`: values of columns, and command lines on a database.

use ovsdb::client::{Client, ClientConfig};
use ovsdb::db::Database;
use ovsdb::jsonrpc::RpcMessage;
use ovsdb::schema::{ColumnType, open_vswitch};
use ovsdb::server::{Server, ServerLimits, Time};
use ovsdb::value::{SeededUuids, Uuid};
use serde_json::Value;

use super::options::{Request, parse};
use super::table::TableStyle;
use super::text::{Style, datum_from_text, datum_text};
use super::{Output, Tried, attempt, one_line};
use crate::fuzz::{text, words};

/// A value of each type of the schema's columns: printed it reads as the same.
pub fn vsctl_values(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let mut types: Vec<&ColumnType> = Vec::new();
    let schema = open_vswitch();
    for column in schema.tables.iter().flat_map(|table| &table.columns) {
        if !types.contains(&&column.ty) {
            types.push(&column.ty);
        }
    }
    for ty in types {
        let read = |text: &str| datum_from_text(text, ty, &mut |_, _| Uuid::ZERO);
        let Ok(datum) = read(text) else { continue };
        let printed = datum_text(&datum, ty, Style::Quoted);
        assert_eq!(read(&printed).as_ref(), Ok(&datum), "{text:?}: {printed:?}");
        let _bare = datum_text(&datum, ty, Style::Bare);
    }
}

/// A server with a small database, and a client that has read it.
fn served() -> (Server, Client, ovsdb::server::SessionId) {
    let mut server = Server::new(Box::new(SeededUuids::new(7)), ServerLimits::default());
    server.add_database(Database::new(open_vswitch()), true).expect("its name is new");
    let session = server.session_open().expect("the first session");
    let operations = concat!(
        r#"[{"op":"insert","table":"Interface","row":{"name":"p1","options":["map",[["a","b"]]]},"uuid-name":"i"},"#,
        r#"{"op":"insert","table":"Port","row":{"name":"p1","tag":5,"interfaces":["named-uuid","i"]},"uuid-name":"p"},"#,
        r#"{"op":"insert","table":"Bridge","row":{"name":"br0","ports":["named-uuid","p"]},"uuid-name":"b"},"#,
        r#"{"op":"insert","table":"Open_vSwitch","row":{"bridges":["named-uuid","b"]}}]"#
    );
    transact(&mut server, session, serde_json::from_str(operations).expect("JSON"));
    let mut client = Client::new(ClientConfig::all(open_vswitch()));
    loop {
        let up = client.take_output();
        server.session_input(session, &up, Time::default());
        server.log_synced(server.log_seq());
        let down = server.session_output(session);
        if up.is_empty() && down.is_empty() {
            return (server, client, session);
        }
        assert!(client.input(&down).is_ok());
    }
}

/// The reply to a transaction, as text.
fn transact(server: &mut Server, session: ovsdb::server::SessionId, operations: Vec<Value>) -> String {
    let params = std::iter::once(Value::from("Open_vSwitch")).chain(operations).collect();
    let request = RpcMessage::Request { id: Value::from(1), method: "transact".into(), params };
    server.session_input(session, &request.encode(), Time::default());
    server.take_log();
    server.log_synced(server.log_seq());
    String::from_utf8_lossy(&server.session_output(session)).into_owned()
}

/// Command lines, one a line, each on a database with a bridge: a transaction that comes of it is one that the server
/// understands.
pub fn vsctl_commands(bytes: &[u8]) {
    // No argument of a process has a zero byte.
    let Some(text) = text(bytes).filter(|text| !text.contains('\0')) else { return };
    let mut on: Option<(Server, Client, ovsdb::server::SessionId)> = None;
    for line in text.lines() {
        let Ok(Request::Run(options, commands)) = parse(&words(line)) else { continue };
        let (server, client, session) = on.get_or_insert_with(served);
        let Ok(Tried::Done(done)) = attempt(client.replica(), line, &options, &commands) else { continue };
        for output in &done.outputs {
            match output {
                Output::Table(table) => drop(table.print(&TableStyle::default(), true)),
                Output::Text(text) => drop(one_line(text)),
                Output::Created(_) => {}
            }
        }
        let Some(plan) = done.plan else { continue };
        let reply = transact(server, *session, plan.operations);
        // Constraints of the database may refuse it; it is always well-formed.
        for fault in ["syntax error", "unknown database", "not allowed"] {
            assert!(!reply.contains(fault), "{line:?}: {reply}");
        }
    }
}
