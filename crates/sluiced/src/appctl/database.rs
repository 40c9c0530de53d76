//! The control socket of the embedded database server, with the name of the stock one (`ovs-appctl -t
//! ovsdb-server`).

use super::table::COMMON_COMMANDS;
use super::{Answer, Command, command, general, listed, listed_json};
use crate::daemon::Daemon;
use crate::db::MANAGERS;

/// Interface version for tools.
const VERSION: &str = "ovsdb-server (Open vSwitch) 3.5.4\n";
/// The served database.
const NAME: &str = "Open_vSwitch";

/// Its own commands, in order of their names.
const OWN_COMMANDS: &[Command] = &[
    command("coverage/read-counter", "COUNTER", 1, 1, general::coverage_read),
    command("coverage/show", "", 0, 0, general::coverage_show),
    command("exit", "", 0, 0, exit),
    command("list-commands", "", 0, 0, list_commands).or_json(|_, _| Ok(listed_json(available()))),
    command("memory/show", "", 0, 0, show_memory),
    command("ovsdb-server/add-db", "DB", 1, 1, other_databases),
    command("ovsdb-server/add-remote", "REMOTE", 1, 1, add_remote),
    command("ovsdb-server/compact", "", 0, 1, general::compact),
    command("ovsdb-server/connect-active-ovsdb-server", "", 0, 0, connect_active),
    command("ovsdb-server/disable-monitor-cond", "", 0, 0, withdraw_conditions),
    command("ovsdb-server/disconnect-active-ovsdb-server", "", 0, 0, nothing_of_active),
    command("ovsdb-server/get-active-ovsdb-server", "", 0, 0, nothing_of_active),
    command("ovsdb-server/get-db-storage-status", "DB", 1, 1, storage_status),
    command("ovsdb-server/get-sync-exclude-tables", "", 0, 0, nothing_of_active),
    command("ovsdb-server/list-dbs", "", 0, 0, list_databases),
    command("ovsdb-server/list-remotes", "", 0, 0, list_remotes),
    command("ovsdb-server/memory-trim-on-compaction", "on|off", 1, 1, trim_memory),
    command("ovsdb-server/perf-counters-clear", "", 0, 0, clear_perf_counters),
    command("ovsdb-server/perf-counters-show", "", 0, 0, show_perf_counters),
    command("ovsdb-server/reconnect", "", 0, 0, reconnect),
    command("ovsdb-server/reload", "", 0, 0, reload),
    command("ovsdb-server/remove-db", "DB", 1, 1, other_databases),
    command("ovsdb-server/remove-remote", "REMOTE", 1, 1, remove_remote),
    command("ovsdb-server/set-active-ovsdb-server", "REMOTE", 1, 1, replicate),
    command("ovsdb-server/set-active-ovsdb-server-probe-interval", "MS", 1, 1, probe_active),
    command("ovsdb-server/set-relay-source-probe-interval", "MS", 1, 1, probe_active),
    command("ovsdb-server/set-sync-exclude-tables", "DB:TABLE[,DB:TABLE]...", 1, 1, replicate),
    command("ovsdb-server/sync-status", "", 0, 0, sync_status),
    command("ovsdb-server/tlog-list", "", 0, 0, list_logged),
    command("ovsdb-server/tlog-set", "DB:TABLE on|off", 2, 2, log_table),
    command("version", "", 0, 0, version),
];

/// All of them, in order of their names.
pub(super) fn available() -> impl Iterator<Item = &'static Command> {
    OWN_COMMANDS.iter().chain(COMMON_COMMANDS)
}

fn exit(_: &mut Daemon, _: &[String]) -> Answer {
    Answer::Now(Err("the switch itself serves the database: `ovs-appctl exit` ends both".to_string()))
}

fn list_commands(_: &mut Daemon, _: &[String]) -> Answer {
    listed(available()).into()
}

fn version(_: &mut Daemon, _: &[String]) -> Answer {
    VERSION.to_string().into()
}

/// Counters of the processor are read by no command here, as on machines that refuse them to the stock server.
fn show_perf_counters(_: &mut Daemon, _: &[String]) -> Answer {
    "performance counter is not supported on this platform\n".to_string().into()
}

fn clear_perf_counters(_: &mut Daemon, _: &[String]) -> Answer {
    String::new().into()
}

fn list_databases(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.db.names().iter().map(|name| format!("{name}\n")).collect::<String>().into()
}

fn list_remotes(daemon: &mut Daemon, _: &[String]) -> Answer {
    let mut all = daemon.db.remotes();
    all.push(MANAGERS);
    all.sort_unstable();
    all.iter().map(|target| format!("{target}\n")).collect::<String>().into()
}

fn add_remote(daemon: &mut Daemon, args: &[String]) -> Answer {
    if args[0] == MANAGERS {
        return String::new().into();
    }
    let added = daemon.db.add_remote(&args[0], &mut daemon.reactor);
    added.map(|()| String::new()).map_err(|e| format!("{e:#}")).into()
}

fn remove_remote(daemon: &mut Daemon, args: &[String]) -> Answer {
    let target = args[0].as_str();
    if daemon.db.remove_remote(target, &daemon.reactor) {
        return String::new().into();
    }
    let is_kept = target == MANAGERS || daemon.db.remotes().contains(&target);
    let why = if is_kept { "this remote is served as long as the switch runs" } else { "no such remote" };
    Answer::Now(Err(why.to_string()))
}

fn storage_status(daemon: &mut Daemon, args: &[String]) -> Answer {
    match daemon.db.names().contains(&args[0].as_str()) {
        true => "status: ok\n".to_string().into(),
        false => Answer::Now(Err("Failed to find the database.".to_string())),
    }
}

fn sync_status(_: &mut Daemon, _: &[String]) -> Answer {
    "state: active\n".to_string().into()
}

/// The server follows no other one: there is no connection to end, and no name or table to list.
fn nothing_of_active(_: &mut Daemon, _: &[String]) -> Answer {
    String::new().into()
}

fn connect_active(_: &mut Daemon, _: &[String]) -> Answer {
    Answer::Now(Err("no active server is set".to_string()))
}

fn replicate(_: &mut Daemon, args: &[String]) -> Answer {
    let what = &args[0];
    Answer::Now(Err(format!(
        "{what}: the switch's database is always active; run ovsdb-server for copies of databases"
    )))
}

fn probe_active(daemon: &mut Daemon, args: &[String]) -> Answer {
    match args[0].parse::<i32>() {
        Ok(_) => replicate(daemon, args),
        Err(_) => Answer::Now(Err(format!("{}: the probe interval is not an integer", args[0]))),
    }
}

fn reload(_: &mut Daemon, _: &[String]) -> Answer {
    Answer::Now(Err("the database server of the switch has no configuration file".to_string()))
}

/// Freed memory always returns to the system, with or without a compaction.
fn trim_memory(_: &mut Daemon, args: &[String]) -> Answer {
    match args[0].as_str() {
        "on" => String::new().into(),
        "off" => {
            Answer::Now(Err("the switch returns freed memory once a second, and cannot keep it".to_string()))
        }
        other => Answer::Now(Err(format!("{other}: invalid argument; use on or off"))),
    }
}

fn withdraw_conditions(daemon: &mut Daemon, args: &[String]) -> Answer {
    if let Some(server) = daemon.db.server() {
        server.offer_conditional_monitors(false);
    }
    reconnect(daemon, args)
}

fn list_logged(daemon: &mut Daemon, _: &[String]) -> Answer {
    let mut out = format!("{:<15} {:<27} logging\n", "database", "table");
    out += &format!("{:<15} {:<27} -------\n", "--------", "-----");
    let Some(server) = daemon.db.server() else { return out.into() };
    for (database, tables) in server.tables() {
        out += &format!("{database:<16} \n");
        for (table, on) in tables {
            out += &format!("{:<15} {table:<27} {}\n", "", if on { "ON" } else { "OFF" });
        }
    }
    out.into()
}

fn log_table(daemon: &mut Daemon, args: &[String]) -> Answer {
    let Some((database, table)) = args[0].split_once(':').filter(|(d, t)| !d.is_empty() && !t.is_empty())
    else {
        return Answer::Now(Err("invalid DB:TABLE argument".to_string()));
    };
    let on = match args[1].to_ascii_lowercase().as_str() {
        "on" => true,
        "off" => false,
        _ => return Answer::Now(Err("invalid command argument".to_string())),
    };
    let Some(server) = daemon.db.server() else { return Answer::Now(Err("no such database".to_string())) };
    server.log_table(database, table, on).map(|()| String::new()).map_err(str::to_string).into()
}

fn show_memory(daemon: &mut Daemon, _: &[String]) -> Answer {
    let used = daemon.db.server().map(|server| server.memory_use()).unwrap_or_default();
    let head = [("atoms", used.atoms), ("backlog", used.backlog), ("cells", used.cells)];
    let tail = [("sessions", used.sessions), ("triggers", used.triggers)];
    // ovsdb-server has these two even without any.
    let fixed = format!("monitors:{} n-weak-refs:{}", used.monitors, used.weak_refs);
    format!("{} {fixed} {}", general::memory_items(&head).trim_end(), general::memory_items(&tail)).into()
}

fn reconnect(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.db.reconnect_clients(&daemon.reactor);
    String::new().into()
}

fn other_databases(_: &mut Daemon, args: &[String]) -> Answer {
    let name = &args[0];
    Answer::Now(Err(format!("{name}: the switch serves {NAME} alone; run ovsdb-server for other databases")))
}
