//! Commands about the daemon itself.

use super::{Answer, Format, Wait, available, listed, listed_json};
use crate::coverage;
use crate::daemon::{COMPATIBLE, Daemon, Exit};
use serde_json::Value;
use sync::Ordering;
use vlog::vlog;

pub(super) fn exit(daemon: &mut Daemon, args: &[String]) -> Answer {
    let cleanup = match args.first().map(String::as_str) {
        None => false,
        Some("--cleanup") => true,
        Some(other) => {
            return Answer::Now(Err(format!("exit: unknown option {other}; use --cleanup or none")));
        }
    };
    daemon.exit(Exit { cleanup });
    Answer::Later(Wait::Exit)
}

pub(super) fn version(_: &mut Daemon, _: &[String]) -> Answer {
    format!("{COMPATIBLE}\n").into()
}

pub(super) fn list_commands(daemon: &mut Daemon, _: &[String]) -> Answer {
    listed(available(daemon).into_iter()).into()
}

/// The commands about datapaths, as the tool for datapaths lists them.
pub(super) fn list_datapath_commands(daemon: &mut Daemon, _: &[String]) -> Answer {
    listed(available(daemon).into_iter().filter(|c| c.name.starts_with("dpctl/"))).into()
}

pub(super) fn list_commands_json(daemon: &mut Daemon, _: &[String]) -> Result<Value, String> {
    Ok(listed_json(available(daemon).into_iter()))
}

/// `--format text|json`, for the further commands of the client.
pub(super) fn set_options(_: &mut Daemon, args: &[String]) -> Answer {
    let mut format = Format::Text;
    for pair in args.chunks(2) {
        format = match pair {
            [option] => return Answer::Now(Err(format!("option requires an argument -- {option}"))),
            [option, value] if option == "--format" => match value.as_str() {
                "text" => Format::Text,
                "json" => Format::Json,
                _ => return Answer::Now(Err(format!("option {option} has invalid value {value}"))),
            },
            _ => return Answer::Now(Err(format!("invalid option {}", pair[0]))),
        };
    }
    Answer::Format(format)
}

pub(super) fn vlog_set(_: &mut Daemon, args: &[String]) -> Answer {
    if args.is_empty() {
        return vlog().set("any:any:dbg").map(|()| String::new()).into();
    }
    args.iter().try_for_each(|spec| vlog().set(spec)).map(|()| String::new()).into()
}

pub(super) fn vlog_list(_: &mut Daemon, _: &[String]) -> Answer {
    vlog().list().into()
}

pub(super) fn vlog_close(_: &mut Daemon, _: &[String]) -> Answer {
    vlog().close();
    String::new().into()
}

pub(super) fn vlog_patterns(_: &mut Daemon, _: &[String]) -> Answer {
    vlog().list_patterns().into()
}

pub(super) fn vlog_reopen(_: &mut Daemon, _: &[String]) -> Answer {
    vlog().reopen().map(|()| String::new()).into()
}

pub(super) fn vlog_limited(_: &mut Daemon, args: &[String]) -> Answer {
    vlog().set_rate_limit(args, true).map(|()| String::new()).into()
}

pub(super) fn vlog_unlimited(_: &mut Daemon, args: &[String]) -> Answer {
    vlog().set_rate_limit(args, false).map(|()| String::new()).into()
}

pub(super) fn ofproto_list(daemon: &mut Daemon, _: &[String]) -> Answer {
    let bridges = daemon.switch.instances().bridges();
    bridges.iter().map(|(_, b)| format!("{}\n", b.name)).collect::<String>().into()
}

pub(super) fn reconnect(daemon: &mut Daemon, args: &[String]) -> Answer {
    let name = args.first().map(String::as_str);
    if name.is_some_and(|n| daemon.switch.instances().bridge(n).is_none()) {
        return Answer::Now(Err("Unknown bridge".to_string()));
    }
    daemon.switch.reconnect(name, &mut daemon.reactor);
    String::new().into()
}

pub(super) fn memory_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    memory_counts(daemon).into()
}

/// The text of `memory/show`.
pub(crate) fn memory_counts(daemon: &Daemon) -> String {
    let instances = daemon.switch.instances();
    let bridges = instances.bridges();
    let ports: usize = bridges.iter().map(|(_, b)| b.ports.ports.len()).sum();
    let rules: usize = bridges.iter().map(|(_, b)| b.tables.iter().count()).sum();
    let keys: u64 = instances.iter().map(|i| i.backer.ukeys.len()).sum();
    let revalidators: usize = instances.iter().map(|i| i.revalidator().threads.load(Ordering::Relaxed)).sum();
    let handlers: usize = instances.iter().map(|i| i.handlers()).sum();
    let cells = daemon.db.client_ref().replica().cells();
    memory_items(&[
        ("handlers", handlers),
        ("idl-cells-Open_vSwitch", cells),
        ("ofconns", daemon.switch.openflow().links()),
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

pub(super) fn compact(daemon: &mut Daemon, args: &[String]) -> Answer {
    if args.first().is_some_and(|name| name != "Open_vSwitch") {
        return Answer::Now(Err("no database by that name".to_string()));
    }
    match daemon.db.compact() {
        Ok(outcome) => Answer::Later(Wait::Compacted(outcome)),
        Err(e) => Answer::Now(Err(e)),
    }
}

pub(super) fn coverage_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.coverage.show(&coverage::totals(daemon)).into()
}

pub(super) fn coverage_read(daemon: &mut Daemon, args: &[String]) -> Answer {
    match coverage::totals(daemon).iter().find(|(name, _)| *name == args[0]) {
        Some((_, n)) => format!("{n}\n").into(),
        None => Answer::Now(Err("No such counter".to_string())),
    }
}

pub(super) fn status(daemon: &mut Daemon, _: &[String]) -> Answer {
    let uptime_ms = sys::clock::monotonic_ms() - daemon.started_ms;
    daemon.switch.status(uptime_ms).to_string().into()
}
