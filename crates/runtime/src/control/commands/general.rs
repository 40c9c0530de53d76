//! Commands about the daemon itself.

use super::{Answer, COMMANDS};
use crate::control::daemon::{Daemon, Exit};
use crate::vlog::vlog;
use std::fmt::Write as _;

/// Version of the interface, as tools ask for it.
const VERSION: &str = "ovs-vswitchd (Open vSwitch) 3.5.4\n";

pub(super) fn exit(daemon: &mut Daemon, args: &[String]) -> Answer {
    let cleanup = match args.first().map(String::as_str) {
        None => false,
        Some("--cleanup") => true,
        Some(other) => {
            return Answer::Now(Err(format!("exit: unknown option {other}; use --cleanup or none")));
        }
    };
    daemon.exit(Exit { cleanup });
    String::new().into()
}

pub(super) fn version(_: &mut Daemon, _: &[String]) -> Answer {
    VERSION.to_string().into()
}

pub(super) fn list_commands(_: &mut Daemon, _: &[String]) -> Answer {
    let mut out = String::from("The available commands are:\n");
    for c in COMMANDS {
        let _ = writeln!(out, "  {:<23} {}", c.name, c.usage);
    }
    out.into()
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

pub(super) fn vlog_reopen(_: &mut Daemon, _: &[String]) -> Answer {
    vlog().reopen().map(|()| String::new()).into()
}

pub(super) fn vlog_limited(_: &mut Daemon, _: &[String]) -> Answer {
    vlog().set_rate_limit(true);
    String::new().into()
}

pub(super) fn vlog_unlimited(_: &mut Daemon, _: &[String]) -> Answer {
    vlog().set_rate_limit(false);
    String::new().into()
}

pub(super) fn ofproto_list(daemon: &mut Daemon, _: &[String]) -> Answer {
    let view = daemon.switch.backer().view();
    let mut names: Vec<_> = view.bridges.values().map(|b| b.name.to_string()).collect();
    names.sort();
    names.iter().map(|n| format!("{n}\n")).collect::<String>().into()
}

pub(super) fn memory_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    let backer = daemon.switch.backer();
    let view = backer.view();
    let ports: usize = view.bridges.values().map(|b| b.ports.ports.len()).sum();
    let rules: usize = view.bridges.values().map(|b| b.tables.iter().count()).sum();
    format!("ports:{ports} revalidators:1 rules:{rules} udpif keys:{}\n", backer.ukeys.len()).into()
}

pub(super) fn compact(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.db.compact().map(|()| String::new()).into()
}

/// Counters by the names that stock switches have for the same events.
fn counters(daemon: &Daemon) -> Vec<(&'static str, u64)> {
    let stats = daemon.switch.pmd_stats();
    let sum = |f: fn(&dpif::PmdStats) -> u64| stats.iter().map(|(_, s)| f(s)).sum::<u64>();
    vec![
        ("datapath_drop_upcall_error", sum(|s| s.drops[dpif::DropReason::UpcallError as usize])),
        ("dpif_flow_put", daemon.switch.revalidator_stats().flows),
        ("flow_extract", sum(|s| s.received + s.recirculated)),
        ("packet_in_overflow", daemon.switch.packet_ins_lost()),
    ]
}

pub(super) fn coverage_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    let mut out = String::from("Event coverage, totals since start:\n");
    for (name, n) in counters(daemon) {
        let _ = writeln!(out, "{name:<30} total: {n}");
    }
    out.into()
}

pub(super) fn coverage_read(daemon: &mut Daemon, args: &[String]) -> Answer {
    let all = counters(daemon);
    match all.iter().find(|(name, _)| *name == args[0]) {
        Some((_, n)) => format!("{n}\n").into(),
        None => Answer::Now(Err("No such counter".to_string())),
    }
}

pub(super) fn status(daemon: &mut Daemon, _: &[String]) -> Answer {
    let uptime_ms = sys::clock::monotonic_ms() - daemon.started_ms;
    daemon.switch.status(uptime_ms).to_string().into()
}
