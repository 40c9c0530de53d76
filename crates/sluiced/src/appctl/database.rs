//! The control socket of the embedded database server, with the name of the stock one (`ovs-appctl -t
//! ovsdb-server`).

use super::{Command, Reply, command, general};
use crate::control_plane::ControlPlane;
use crate::db::MANAGERS;

/// The commands of this module.
pub(super) const ROWS: &[Command] = &[
    command(
        "coverage/read-counter",
        "COUNTER",
        1..=1,
        "print the total of a coverage counter",
        general::coverage_read,
    ),
    command(
        "coverage/show",
        "",
        0..=0,
        "show the coverage counters above zero with their rates",
        general::coverage_show,
    ),
    command("exit", "", 0..=0, "refuse to stop: the switch runs this server", exit),
    command(
        "list-commands",
        "",
        0..=0,
        "list the commands with their arguments",
        general::list_database_commands,
    ),
    command("memory/show", "", 0..=0, "count the objects of the server that take most memory", show_memory),
    command(
        "ovsdb-server/add-db",
        "DB",
        1..=1,
        "refuse another database: the switch serves one",
        other_databases,
    ),
    command("ovsdb-server/add-remote", "REMOTE", 1..=1, "serve the database at a further target", add_remote),
    command("ovsdb-server/compact", "", 0..=1, "compact the database file", general::compact),
    command(
        "ovsdb-server/connect-active-ovsdb-server",
        "",
        0..=0,
        "refuse replication: no active server is set",
        connect_active,
    ),
    command(
        "ovsdb-server/disable-monitor-cond",
        "",
        0..=0,
        "offer no conditional monitors from now on",
        withdraw_conditions,
    ),
    command(
        "ovsdb-server/disconnect-active-ovsdb-server",
        "",
        0..=0,
        "do nothing: the server follows no other one",
        nothing_of_active,
    ),
    command(
        "ovsdb-server/get-active-ovsdb-server",
        "",
        0..=0,
        "print the followed server: none",
        nothing_of_active,
    ),
    command(
        "ovsdb-server/get-db-storage-status",
        "DB",
        1..=1,
        "show the state of the database file",
        storage_status,
    ),
    command(
        "ovsdb-server/get-sync-exclude-tables",
        "",
        0..=0,
        "list the tables without replication: none",
        nothing_of_active,
    ),
    command("ovsdb-server/list-dbs", "", 0..=0, "list the databases", list_databases),
    command("ovsdb-server/list-remotes", "", 0..=0, "list the targets of this server", list_remotes),
    command(
        "ovsdb-server/memory-trim-on-compaction",
        "on|off",
        1..=1,
        "accept on: freed memory always returns to the system",
        trim_memory,
    ),
    command(
        "ovsdb-server/perf-counters-clear",
        "",
        0..=0,
        "do nothing: there are no performance counters",
        clear_perf_counters,
    ),
    command(
        "ovsdb-server/perf-counters-show",
        "",
        0..=0,
        "report that there are no performance counters",
        show_perf_counters,
    ),
    command("ovsdb-server/reconnect", "", 0..=0, "drop the connections of all clients", reconnect),
    command(
        "ovsdb-server/reload",
        "",
        0..=0,
        "refuse to reload: the server has no configuration file",
        reload,
    ),
    command(
        "ovsdb-server/remove-db",
        "DB",
        1..=1,
        "refuse another database: the switch serves one",
        other_databases,
    ),
    command(
        "ovsdb-server/remove-remote",
        "REMOTE",
        1..=1,
        "stop serving the database at a target",
        remove_remote,
    ),
    command(
        "ovsdb-server/set-active-ovsdb-server",
        "REMOTE",
        1..=1,
        "refuse replication: the database is always active",
        replicate,
    ),
    command(
        "ovsdb-server/set-active-ovsdb-server-probe-interval",
        "MS",
        1..=1,
        "refuse replication: the database is always active",
        probe_active,
    ),
    command(
        "ovsdb-server/set-relay-source-probe-interval",
        "MS",
        1..=1,
        "refuse relay mode: the database is always active",
        probe_active,
    ),
    command(
        "ovsdb-server/set-sync-exclude-tables",
        "DB:TABLE[,DB:TABLE]...",
        1..=1,
        "refuse replication: the database is always active",
        replicate,
    ),
    command("ovsdb-server/sync-status", "", 0..=0, "print the replication state: always active", sync_status),
    command(
        "ovsdb-server/tlog-list",
        "",
        0..=0,
        "list the tables whose transactions are logged",
        list_logged,
    ),
    command(
        "ovsdb-server/tlog-set",
        "DB:TABLE on|off",
        2..=2,
        "log the transactions of a table, or stop that",
        log_table,
    ),
    command("version", "", 0..=0, "print the OVS version of this interface", version),
];

/// Interface version for tools.
const VERSION: &str = "ovsdb-server (Open vSwitch) 3.5.4\n";
/// The served database.
const NAME: &str = "Open_vSwitch";

fn exit(_: &mut ControlPlane, _: &[String]) -> Reply {
    Reply::Error("the switch itself serves the database: `ovs-appctl exit` ends both".to_string())
}

fn version(_: &mut ControlPlane, _: &[String]) -> Reply {
    VERSION.to_string().into()
}

/// Counters of the processor are read by no command here, as on machines that refuse them to the stock server.
fn show_perf_counters(_: &mut ControlPlane, _: &[String]) -> Reply {
    "performance counter is not supported on this platform\n".to_string().into()
}

fn clear_perf_counters(_: &mut ControlPlane, _: &[String]) -> Reply {
    String::new().into()
}

fn list_databases(plane: &mut ControlPlane, _: &[String]) -> Reply {
    plane.db.names().iter().map(|name| format!("{name}\n")).collect::<String>().into()
}

fn list_remotes(plane: &mut ControlPlane, _: &[String]) -> Reply {
    let mut all = plane.db.remotes();
    all.push(MANAGERS);
    all.sort_unstable();
    all.iter().map(|target| format!("{target}\n")).collect::<String>().into()
}

fn add_remote(plane: &mut ControlPlane, args: &[String]) -> Reply {
    if args[0] == MANAGERS {
        return String::new().into();
    }
    let added = plane.db.add_remote(&args[0], &mut plane.reactor);
    added.map(|()| String::new()).map_err(|e| format!("{e:#}")).into()
}

fn remove_remote(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let target = args[0].as_str();
    if plane.db.remove_remote(target, &plane.reactor) {
        return String::new().into();
    }
    let is_kept = target == MANAGERS || plane.db.remotes().contains(&target);
    let why = if is_kept { "this remote is served as long as the switch runs" } else { "no such remote" };
    Reply::Error(why.to_string())
}

fn storage_status(plane: &mut ControlPlane, args: &[String]) -> Reply {
    match plane.db.names().contains(&args[0].as_str()) {
        true => "status: ok\n".to_string().into(),
        false => Reply::Error("Failed to find the database.".to_string()),
    }
}

fn sync_status(_: &mut ControlPlane, _: &[String]) -> Reply {
    "state: active\n".to_string().into()
}

/// The server follows no other one: there is no connection to end, and no name or table to list.
fn nothing_of_active(_: &mut ControlPlane, _: &[String]) -> Reply {
    String::new().into()
}

fn connect_active(_: &mut ControlPlane, _: &[String]) -> Reply {
    Reply::Error("no active server is set".to_string())
}

fn replicate(_: &mut ControlPlane, args: &[String]) -> Reply {
    let what = &args[0];
    Reply::Error(format!(
        "{what}: the switch's database is always active; run ovsdb-server for copies of databases"
    ))
}

fn probe_active(plane: &mut ControlPlane, args: &[String]) -> Reply {
    match args[0].parse::<i32>() {
        Ok(_) => replicate(plane, args),
        Err(_) => Reply::Error(format!("{}: the probe interval is not an integer", args[0])),
    }
}

fn reload(_: &mut ControlPlane, _: &[String]) -> Reply {
    Reply::Error("the database server of the switch has no configuration file".to_string())
}

/// Freed memory always returns to the system, with or without a compaction.
fn trim_memory(_: &mut ControlPlane, args: &[String]) -> Reply {
    match args[0].as_str() {
        "on" => String::new().into(),
        "off" => {
            Reply::Error("the switch returns freed memory once a second, and cannot keep it".to_string())
        }
        other => Reply::Error(format!("{other}: invalid argument; use on or off")),
    }
}

fn withdraw_conditions(plane: &mut ControlPlane, args: &[String]) -> Reply {
    if let Some(server) = plane.db.server() {
        server.offer_conditional_monitors(false);
    }
    reconnect(plane, args)
}

fn list_logged(plane: &mut ControlPlane, _: &[String]) -> Reply {
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

fn log_table(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let Some((database, table)) = args[0].split_once(':').filter(|(d, t)| !d.is_empty() && !t.is_empty())
    else {
        return Reply::Error("invalid DB:TABLE argument".to_string());
    };
    let on = match args[1].to_ascii_lowercase().as_str() {
        "on" => true,
        "off" => false,
        _ => return Reply::Error("invalid command argument".to_string()),
    };
    let Some(server) = plane.db.server() else { return Reply::Error("no such database".to_string()) };
    server.log_table(database, table, on).map(|()| String::new()).map_err(str::to_string).into()
}

fn show_memory(plane: &mut ControlPlane, _: &[String]) -> Reply {
    let used = plane.db.server().map(|server| server.memory_use()).unwrap_or_default();
    let head = [("atoms", used.atoms), ("backlog", used.backlog), ("cells", used.cells)];
    let tail = [("sessions", used.sessions), ("triggers", used.triggers)];
    // ovsdb-server has these two even without any.
    let fixed = format!("monitors:{} n-weak-refs:{}", used.monitors, used.weak_refs);
    format!("{} {fixed} {}", general::memory_items(&head).trim_end(), general::memory_items(&tail)).into()
}

fn reconnect(plane: &mut ControlPlane, _: &[String]) -> Reply {
    plane.db.reconnect_clients(&plane.reactor);
    String::new().into()
}

fn other_databases(_: &mut ControlPlane, args: &[String]) -> Reply {
    let name = &args[0];
    Reply::Error(format!("{name}: the switch serves {NAME} alone; run ovsdb-server for other databases"))
}
