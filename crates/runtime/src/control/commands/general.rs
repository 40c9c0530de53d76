//! Commands about the daemon itself.

use super::{Answer, available, listed};
use crate::control::daemon::{Daemon, Exit};
use crate::vlog::vlog;
use dpif::{DropReason, PmdStats, PortStats, XlateDrop};
use ofproto::mac_table::MacStats;
use std::fmt::Write as _;
use sync::{Ordering, lock};

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

pub(super) fn list_commands(daemon: &mut Daemon, _: &[String]) -> Answer {
    listed(available(daemon).into_iter()).into()
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
    let instances = daemon.switch.instances();
    let bridges = instances.bridges();
    let ports: usize = bridges.iter().map(|(_, b)| b.ports.ports.len()).sum();
    let rules: usize = bridges.iter().map(|(_, b)| b.tables.iter().count()).sum();
    let keys: u64 = instances.iter().map(|i| i.backer.ukeys.len()).sum();
    let revalidators = instances.iter().count();
    format!("ports:{ports} revalidators:{revalidators} rules:{rules} udpif keys:{keys}\n").into()
}

pub(super) fn compact(daemon: &mut Daemon, args: &[String]) -> Answer {
    if args.first().is_some_and(|name| name != "Open_vSwitch") {
        return Answer::Now(Err("no database by that name".to_string()));
    }
    daemon.db.compact().map(|()| String::new()).into()
}

/// Counters by the names that stock switches have for the same events.
fn counters(daemon: &Daemon) -> Vec<(&'static str, u64)> {
    let instances = || daemon.switch.instances().iter();
    let mut sum = PmdStats::default();
    instances().for_each(|i| sum.add(&i.totals()));
    let mut ports = PortStats::default();
    instances().for_each(|i| ports.add(&i.port_totals()));
    let bridges = daemon.switch.instances().bridges();
    let macs = |f: fn(&MacStats) -> u64| bridges.iter().map(|(_, b)| f(&lock(&b.macs).stats)).sum();
    let ended: u64 = instances().map(|i| i.datapath.ended_with_port()).sum();
    sum.drops[DropReason::PortRemoved as usize] += ended;
    let inside = DropReason::ALL.into_iter().filter_map(|r| Some((r.counter()?, sum.drops[r as usize])));
    let wanted = XlateDrop::ALL.into_iter().map(|d| (d.counter(), sum.xlate_drops[d as usize]));
    let mut all: Vec<_> = inside.chain(wanted).collect();
    let told = daemon.switch.connections();
    let (sockets, database) = (daemon.reactor.counts, daemon.db.counters());
    all.extend([
        ("accept_failed", sockets.accept_failed),
        ("connection_refused", sockets.refused),
        ("connection_probe_failed", sockets.probes_failed),
        ("db_session_cut_off", database.cut_off),
        ("db_monitor_refused", database.monitors_refused),
        ("db_wait_refused", database.waits_refused),
        ("unixctl_cut_off", daemon.commands_cut_off()),
        ("flow_removed_paused", instances().map(|i| i.backer.removed.times_full()).sum()),
        ("ofconn_event_dropped", told.events_dropped),
        ("ofconn_packet_in_dropped", told.packet_ins_dropped),
        ("datapath_drop_rx_malformed", ports.rx_malformed),
        ("datapath_drop_rx_ring_full", ports.rx_dropped),
        ("datapath_drop_rx_truncated", ports.rx_truncated),
        ("flow_extract", sum.received + sum.recirculated),
        ("mac_learning_evicted", macs(|s| s.evicted)),
        ("mac_learning_expired", macs(|s| s.expired)),
        ("mac_learning_learned", macs(|s| s.learned)),
        ("mac_learning_moved", macs(|s| s.moved)),
        ("netdev_received", sum.received),
        ("netdev_sent", sum.sent_packets),
        ("packet_in_overflow", instances().map(|i| i.backer.packet_ins_lost.load(Ordering::Relaxed)).sum()),
    ]);
    all.sort_unstable();
    all
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
