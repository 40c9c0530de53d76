//! Commands about the daemon itself.

use super::{
    Command, Form, Json, Optional, Parsed, Reply, Rows, Several, TypedReply, Wait, Word, available,
    available_in_database, command, unknown,
};
use crate::config::{COMPATIBLE, Exit};
use crate::control_plane::{ControlPlane, HandoverState};
use crate::status;
use crate::unixctl::Format;
use ofproto::tables::Tables;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::path::PathBuf;
use sync::Ordering;
use vlog::vlog;

/// The commands of this module.
pub(super) const ROWS: Rows = &[
    &command(
        "bridge/reconnect",
        Optional(Word("bridge")),
        "drop the OpenFlow connections of all bridges or one and connect anew",
        reconnect,
    ),
    &command(
        "coverage/read-counter",
        Word("counter"),
        "print the total of a coverage counter",
        coverage_read,
    ),
    &command("coverage/show", (), "show the coverage counters above zero with their rates", coverage_show),
    &command("dpctl/list-commands", (), "list the commands about datapaths", list_datapath_commands),
    &command(
        "exit",
        Optional(Parsed("--cleanup", cleanup)),
        "stop the switch; --cleanup also removes its ports and datapaths",
        exit,
    ),
    &command("list-commands", (), "list the commands with their arguments", list_commands),
    &command("memory/show", (), "count the objects that take most memory", memory_show),
    &command("ofproto/list", (), "list the bridges", ofproto_list),
    &command("ovsdb-server/compact", Optional(Word("db")), "compact the database file", compact),
    &command(
        "sluice/handover",
        Optional(Word("program")),
        "start a new process, from a program or the same one, and hand the switch over to it",
        handover,
    ),
    &command(
        "sluice/help",
        Optional(Word("command")),
        "show the arguments and purpose of all commands or one",
        help,
    ),
    &command("sluice/status", (), "report the running switch as one JSON object", status),
    &command(
        "sluice/version",
        (),
        "print the version of the running program, as --version does",
        own_version,
    ),
    &command("version", (), "print the OVS version of this interface", version),
];

/// The commands that the switch and its database server share.
pub(super) const COMMON_ROWS: Rows = &[
    &command(
        "set-options",
        Form("[--format text|json]", 2, 2, format),
        "set the reply format of this connection",
        set_options,
    ),
    &command("vlog/close", (), "close the log file", vlog_close),
    &command(
        "vlog/disable-rate-limit",
        Several("[module]...", 0, 64),
        "log all messages of modules, without a rate limit",
        vlog_unlimited,
    ),
    &command(
        "vlog/enable-rate-limit",
        Several("[module]...", 0, 64),
        "limit the message rate of modules",
        vlog_limited,
    ),
    &command("vlog/list", (), "list the log modules with their levels", vlog_list),
    &command("vlog/list-pattern", (), "list the message formats of the log destinations", vlog_patterns),
    &command("vlog/reopen", (), "reopen the log file, after its rotation", vlog_reopen),
    &command(
        "vlog/set",
        Several("{spec | PATTERN:destination:pattern}", 0, 64),
        "set the levels of log modules, or a message format",
        vlog_set,
    ),
];

/// The option of `exit`.
fn cleanup(text: &str) -> Result<(), String> {
    match text {
        "--cleanup" => Ok(()),
        other => Err(format!("exit: unknown option {other}; use --cleanup or none")),
    }
}

fn exit(plane: &mut ControlPlane, cleanup: Option<()>) -> Reply {
    plane.exit = Some(Exit { cleanup: cleanup.is_some(), handed_over: false });
    Reply::Later(Wait::Exit)
}

fn handover(plane: &mut ControlPlane, program: Option<&str>) -> Reply {
    if !matches!(plane.handover, HandoverState::None) {
        return Reply::Error("another handover is under way".to_string());
    }
    plane.handover = HandoverState::Wanted(program.map(PathBuf::from));
    Reply::Later(Wait::Handover)
}

fn own_version(_: &mut ControlPlane, (): ()) -> Reply {
    format!("sluiced {}\n", env!("CARGO_PKG_VERSION")).into()
}

fn version(_: &mut ControlPlane, (): ()) -> Reply {
    format!("{COMPATIBLE}\n").into()
}

/// Commands in order of their names, as OVS lists them.
pub(super) struct CommandList(pub(super) Vec<&'static dyn Command>);

impl TypedReply for CommandList {
    fn text(&self) -> String {
        let mut out = "The available commands are:\n".to_string();
        for c in &self.0 {
            let _ = writeln!(out, "  {:<23} {}", c.name(), c.usage());
        }
        out
    }

    /// An object of arguments by command.
    fn json(&self) -> Json<'_> {
        let pairs = self.0.iter().map(|c| (c.name().to_string(), Value::from(c.usage())));
        Json::Whole(pairs.collect::<Map<_, _>>().into())
    }
}

fn list_commands(plane: &mut ControlPlane, (): ()) -> Reply {
    Reply::Value(Box::new(CommandList(available(plane))))
}

pub(super) fn list_database_commands(_: &mut ControlPlane, (): ()) -> Reply {
    Reply::Value(Box::new(CommandList(available_in_database())))
}

/// The commands about datapaths, as the tool for datapaths lists them.
fn list_datapath_commands(plane: &mut ControlPlane, (): ()) -> Reply {
    let mut list = CommandList(available(plane));
    list.0.retain(|c| c.name().starts_with("dpctl/"));
    list.text().into()
}

/// `[COMMAND]`
fn help(plane: &mut ControlPlane, command: Option<&str>) -> Reply {
    let mut commands = available(plane);
    if let Some(name) = command {
        commands.retain(|c| c.name() == name);
        if commands.is_empty() {
            return Reply::Error(unknown(name));
        }
    }
    commands.iter().map(|c| help_text(*c)).collect::<String>().into()
}

/// A command with its arguments, and a line of help.
fn help_text(c: &dyn Command) -> String {
    let usage = c.usage();
    let separator = if usage.is_empty() { "" } else { " " };
    format!("{}{separator}{usage}\n    {}\n", c.name(), c.help())
}

/// `--format text|json`, for the further commands of the client.
fn set_options(_: &mut ControlPlane, format: Format) -> Reply {
    Reply::Format(format)
}

fn format(words: &[String]) -> Result<Format, String> {
    match words {
        [option, value] if option == "--format" => match value.as_str() {
            "text" => Ok(Format::Text),
            "json" => Ok(Format::Json),
            _ => Err(format!("option {option} has invalid value {value}")),
        },
        _ => Err(format!("invalid option {}", words.first().map_or("", String::as_str))),
    }
}

fn vlog_set(_: &mut ControlPlane, specs: Vec<&str>) -> Reply {
    if specs.is_empty() {
        return vlog().set("any:any:dbg").map(|()| String::new()).into();
    }
    specs.iter().try_for_each(|spec| vlog().set(spec)).map(|()| String::new()).into()
}

fn vlog_list(_: &mut ControlPlane, (): ()) -> Reply {
    vlog().list().into()
}

fn vlog_close(_: &mut ControlPlane, (): ()) -> Reply {
    vlog().close();
    String::new().into()
}

fn vlog_patterns(_: &mut ControlPlane, (): ()) -> Reply {
    vlog().list_patterns().into()
}

fn vlog_reopen(_: &mut ControlPlane, (): ()) -> Reply {
    vlog().reopen().map(|()| String::new()).into()
}

fn vlog_limited(_: &mut ControlPlane, modules: Vec<&str>) -> Reply {
    vlog().set_rate_limit(&modules, true).map(|()| String::new()).into()
}

fn vlog_unlimited(_: &mut ControlPlane, modules: Vec<&str>) -> Reply {
    vlog().set_rate_limit(&modules, false).map(|()| String::new()).into()
}

fn ofproto_list(plane: &mut ControlPlane, (): ()) -> Reply {
    let bridges = plane.switch.instances().bridges();
    bridges.iter().map(|(_, b)| format!("{}\n", b.name)).collect::<String>().into()
}

fn reconnect(plane: &mut ControlPlane, bridge: Option<&str>) -> Reply {
    if bridge.is_some_and(|name| plane.switch.instances().bridge(name).is_none()) {
        return Reply::Error("Unknown bridge".to_string());
    }
    plane.switch.reconnect(bridge, &mut plane.reactor);
    String::new().into()
}

fn memory_show(plane: &mut ControlPlane, (): ()) -> Reply {
    memory_counts(plane).into()
}

/// The text of `memory/show`.
pub(crate) fn memory_counts(plane: &ControlPlane) -> String {
    let instances = plane.switch.instances();
    let bridges = instances.bridges();
    let ports: usize = bridges.iter().map(|(_, b)| b.ports.ports.len()).sum();
    let rules: usize =
        bridges.iter().map(|(_, b)| Tables::ids().map(|id| b.tables.rule_count(id)).sum::<usize>()).sum();
    let keys: u64 = instances.iter().map(|i| i.backer.ukeys.len()).sum();
    let revalidators: usize = instances.iter().map(|i| i.revalidator().threads.load(Ordering::Relaxed)).sum();
    let handlers: usize = instances.iter().map(|i| i.handlers()).sum();
    let cells = plane.db.client_ref().replica().cells();
    memory_items(&[
        ("handlers", handlers),
        ("idl-cells-Open_vSwitch", cells),
        ("ofconns", plane.switch.openflow().links()),
        ("ports", ports),
        ("revalidators", revalidators),
        ("rules", rules),
        ("udpif keys", keys as usize),
    ])
}

/// Counts of what takes memory; those without any are left out.
pub(super) fn memory_items(items: &[(&str, usize)]) -> String {
    let shown = items.iter().filter(|(_, n)| *n > 0);
    let words: Vec<String> = shown.map(|(name, n)| format!("{name}:{n}")).collect();
    format!("{}\n", words.join(" "))
}

pub(super) fn compact(plane: &mut ControlPlane, db: Option<&str>) -> Reply {
    if db.is_some_and(|name| name != "Open_vSwitch") {
        return Reply::Error("no database by that name".to_string());
    }
    match plane.db.compact() {
        Ok(outcome) => Reply::Later(Wait::Compacted(outcome)),
        Err(e) => Reply::Error(e),
    }
}

pub(super) fn coverage_show(plane: &mut ControlPlane, (): ()) -> Reply {
    plane.coverage.show(&plane.counters()).into()
}

pub(super) fn coverage_read(plane: &mut ControlPlane, counter: &str) -> Reply {
    match plane.counters().iter().find(|(name, _)| *name == counter) {
        Some((_, n)) => format!("{n}\n").into(),
        None => Reply::Error("No such counter".to_string()),
    }
}

fn status(plane: &mut ControlPlane, (): ()) -> Reply {
    let uptime_ms = sys::clock::monotonic_ms() - plane.started_ms;
    status::report(&plane.switch, plane.loop_times.so_far(), uptime_ms).to_string().into()
}
