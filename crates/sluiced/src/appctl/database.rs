//! The control socket of the embedded database server, with the name of the stock one (`ovs-appctl -t
//! ovsdb-server`).

use super::{Optional, Parsed, Reply, Rows, Unlisted, Word, command, general};
use crate::control_plane::ControlPlane;
use crate::db::MANAGERS;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "coverage/read-counter",
        Word("COUNTER"),
        "print the total of a coverage counter",
        general::coverage_read,
    ),
    &command(
        "coverage/show",
        (),
        "show the coverage counters above zero with their rates",
        general::coverage_show,
    ),
    &command("exit", (), "refuse to stop: the switch runs this server", exit),
    &command("list-commands", (), "list the commands with their arguments", general::list_database_commands),
    &command("memory/show", (), "count the objects of the server that take most memory", show_memory),
    &command(
        "ovsdb-server/add-db",
        Word("DB"),
        "refuse another database: the switch serves one",
        other_databases,
    ),
    &command("ovsdb-server/add-remote", Word("REMOTE"), "serve the database at a further target", add_remote),
    &command(
        "ovsdb-server/compact",
        Unlisted(Optional(Word("db"))),
        "compact the database file",
        general::compact,
    ),
    &command(
        "ovsdb-server/connect-active-ovsdb-server",
        (),
        "refuse replication: no active server is set",
        connect_active,
    ),
    &command(
        "ovsdb-server/disable-monitor-cond",
        (),
        "offer no conditional monitors from now on",
        withdraw_conditions,
    ),
    &command(
        "ovsdb-server/disconnect-active-ovsdb-server",
        (),
        "do nothing: the server follows no other one",
        nothing_of_active,
    ),
    &command(
        "ovsdb-server/get-active-ovsdb-server",
        (),
        "print the followed server: none",
        nothing_of_active,
    ),
    &command(
        "ovsdb-server/get-db-storage-status",
        Word("DB"),
        "show the state of the database file",
        storage_status,
    ),
    &command(
        "ovsdb-server/get-sync-exclude-tables",
        (),
        "list the tables without replication: none",
        nothing_of_active,
    ),
    &command("ovsdb-server/list-dbs", (), "list the databases", list_databases),
    &command("ovsdb-server/list-remotes", (), "list the targets of this server", list_remotes),
    &command(
        "ovsdb-server/memory-trim-on-compaction",
        Parsed("on|off", trims),
        "accept on: freed memory always returns to the system",
        trim_memory,
    ),
    &command(
        "ovsdb-server/perf-counters-clear",
        (),
        "do nothing: there are no performance counters",
        clear_perf_counters,
    ),
    &command(
        "ovsdb-server/perf-counters-show",
        (),
        "report that there are no performance counters",
        show_perf_counters,
    ),
    &command("ovsdb-server/reconnect", (), "drop the connections of all clients", reconnect),
    &command("ovsdb-server/reload", (), "refuse to reload: the server has no configuration file", reload),
    &command(
        "ovsdb-server/remove-db",
        Word("DB"),
        "refuse another database: the switch serves one",
        other_databases,
    ),
    &command(
        "ovsdb-server/remove-remote",
        Word("REMOTE"),
        "stop serving the database at a target",
        remove_remote,
    ),
    &command(
        "ovsdb-server/set-active-ovsdb-server",
        Word("REMOTE"),
        "refuse replication: the database is always active",
        replicate,
    ),
    &command(
        "ovsdb-server/set-active-ovsdb-server-probe-interval",
        Parsed("MS", interval),
        "refuse replication: the database is always active",
        probe_active,
    ),
    &command(
        "ovsdb-server/set-relay-source-probe-interval",
        Parsed("MS", interval),
        "refuse relay mode: the database is always active",
        probe_active,
    ),
    &command(
        "ovsdb-server/set-sync-exclude-tables",
        Word("DB:TABLE[,DB:TABLE]..."),
        "refuse replication: the database is always active",
        replicate,
    ),
    &command("ovsdb-server/sync-status", (), "print the replication state: always active", sync_status),
    &command("ovsdb-server/tlog-list", (), "list the tables whose transactions are logged", list_logged),
    &command(
        "ovsdb-server/tlog-set",
        (Parsed("DB:TABLE", table), Parsed("on|off", on_or_off)),
        "log the transactions of a table, or stop that",
        log_table,
    ),
    &command("version", (), "print the OVS version of this interface", version),
];

/// Interface version for tools.
const VERSION: &str = "ovsdb-server (Open vSwitch) 3.5.4\n";
/// The served database.
const NAME: &str = "Open_vSwitch";

fn exit(_: &mut ControlPlane, (): ()) -> Reply {
    Reply::Error("the switch itself serves the database: `ovs-appctl exit` ends both".to_string())
}

fn version(_: &mut ControlPlane, (): ()) -> Reply {
    VERSION.to_string().into()
}

/// Counters of the processor are read by no command here, as on machines that refuse them to the stock server.
fn show_perf_counters(_: &mut ControlPlane, (): ()) -> Reply {
    "performance counter is not supported on this platform\n".to_string().into()
}

fn clear_perf_counters(_: &mut ControlPlane, (): ()) -> Reply {
    String::new().into()
}

fn list_databases(plane: &mut ControlPlane, (): ()) -> Reply {
    plane.db.names().iter().map(|name| format!("{name}\n")).collect::<String>().into()
}

fn list_remotes(plane: &mut ControlPlane, (): ()) -> Reply {
    let mut all = plane.db.remotes();
    all.push(MANAGERS);
    all.sort_unstable();
    all.iter().map(|target| format!("{target}\n")).collect::<String>().into()
}

fn add_remote(plane: &mut ControlPlane, remote: &str) -> Reply {
    if remote == MANAGERS {
        return String::new().into();
    }
    let added = plane.db.add_remote(remote, &mut plane.reactor);
    added.map(|()| String::new()).map_err(|e| format!("{e:#}")).into()
}

fn remove_remote(plane: &mut ControlPlane, target: &str) -> Reply {
    if plane.db.remove_remote(target, &plane.reactor) {
        return String::new().into();
    }
    let is_kept = target == MANAGERS || plane.db.remotes().contains(&target);
    let why = if is_kept { "this remote is served as long as the switch runs" } else { "no such remote" };
    Reply::Error(why.to_string())
}

fn storage_status(plane: &mut ControlPlane, db: &str) -> Reply {
    match plane.db.names().contains(&db) {
        true => "status: ok\n".to_string().into(),
        false => Reply::Error("Failed to find the database.".to_string()),
    }
}

fn sync_status(_: &mut ControlPlane, (): ()) -> Reply {
    "state: active\n".to_string().into()
}

/// The server follows no other one: there is no connection to end, and no name or table to list.
fn nothing_of_active(_: &mut ControlPlane, (): ()) -> Reply {
    String::new().into()
}

fn connect_active(_: &mut ControlPlane, (): ()) -> Reply {
    Reply::Error("no active server is set".to_string())
}

fn replicate(_: &mut ControlPlane, what: &str) -> Reply {
    Reply::Error(format!(
        "{what}: the switch's database is always active; run ovsdb-server for copies of databases"
    ))
}

/// A number of milliseconds, as text for the refusal.
fn interval(text: &str) -> Result<String, String> {
    match text.parse::<i32>() {
        Ok(_) => Ok(text.to_string()),
        Err(_) => Err(format!("{text}: the probe interval is not an integer")),
    }
}

fn probe_active(plane: &mut ControlPlane, ms: String) -> Reply {
    replicate(plane, &ms)
}

fn reload(_: &mut ControlPlane, (): ()) -> Reply {
    Reply::Error("the database server of the switch has no configuration file".to_string())
}

/// Freed memory always returns to the system, with or without a compaction.
fn trim_memory(_: &mut ControlPlane, trims: bool) -> Reply {
    match trims {
        true => String::new().into(),
        false => {
            Reply::Error("the switch returns freed memory once a second, and cannot keep it".to_string())
        }
    }
}

fn trims(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(format!("{other}: invalid argument; use on or off")),
    }
}

fn withdraw_conditions(plane: &mut ControlPlane, (): ()) -> Reply {
    if let Some(server) = plane.db.server() {
        server.offer_conditional_monitors(false);
    }
    reconnect(plane, ())
}

fn list_logged(plane: &mut ControlPlane, (): ()) -> Reply {
    let mut out = format!("{:<15} {:<27} logging\n", "database", "table");
    out += &format!("{:<15} {:<27} -------\n", "--------", "-----");
    let Some(server) = plane.db.server() else { return out.into() };
    for (database, tables) in server.tables() {
        out += &format!("{database:<16} \n");
        for (table, on) in tables {
            out += &format!("{:<15} {table:<27} {}\n", "", if on { "ON" } else { "OFF" });
        }
    }
    out.into()
}

/// A table, after the name of its database.
fn table(text: &str) -> Result<(String, String), String> {
    let names = text.split_once(':').filter(|(database, table)| !database.is_empty() && !table.is_empty());
    let (database, table) = names.ok_or("invalid DB:TABLE argument")?;
    Ok((database.to_string(), table.to_string()))
}

/// In upper or lower case.
fn on_or_off(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("invalid command argument".to_string()),
    }
}

fn log_table(plane: &mut ControlPlane, ((database, table), on): ((String, String), bool)) -> Reply {
    let Some(server) = plane.db.server() else { return Reply::Error("no such database".to_string()) };
    server.log_table(&database, &table, on).map(|()| String::new()).map_err(str::to_string).into()
}

fn show_memory(plane: &mut ControlPlane, (): ()) -> Reply {
    let used = plane.db.server().map(|server| server.memory_use()).unwrap_or_default();
    let head = [("atoms", used.atoms), ("backlog", used.backlog), ("cells", used.cells)];
    let tail = [("sessions", used.sessions), ("triggers", used.triggers)];
    // ovsdb-server has these two even without any.
    let fixed = format!("monitors:{} n-weak-refs:{}", used.monitors, used.weak_refs);
    format!("{} {fixed} {}", general::memory_items(&head).trim_end(), general::memory_items(&tail)).into()
}

fn reconnect(plane: &mut ControlPlane, (): ()) -> Reply {
    plane.db.reconnect_clients(&plane.reactor);
    String::new().into()
}

fn other_databases(_: &mut ControlPlane, db: &str) -> Reply {
    Reply::Error(format!("{db}: the switch serves {NAME} alone; run ovsdb-server for other databases"))
}
