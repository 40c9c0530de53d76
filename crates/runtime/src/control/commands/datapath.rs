//! Commands about datapath, flows, upcalls and learned addresses.

use super::{Answer, Wait};
use crate::control::daemon::Daemon;
use crate::control::switch::Switch;
use dpif::text::{FlowFormat, NumbersOnly, PortNames, format_flow};
use dpif::{Datapath, DpifOp, FlowRecord, OpResult, PmdId};
use flow::{DpPort, OfPort};
use ofproto::ports::BridgeId;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use sync::{Ordering, lock};

/// Flows of one dump request.
const DUMP_FLOWS: usize = 512;

/// Names of the datapath's ports.
pub(super) struct Names(BTreeMap<DpPort, String>);

impl Names {
    pub(super) fn of(switch: &Switch) -> Names {
        Names(switch.datapath().ports().into_iter().map(|p| (p.number, p.name)).collect())
    }
}

impl PortNames for Names {
    fn name(&self, port: DpPort) -> Option<String> {
        self.0.get(&port).cloned()
    }

    fn number(&self, name: &str) -> Option<DpPort> {
        self.0.iter().find(|(_, n)| *n == name).map(|(p, _)| *p)
    }
}

fn thread_name(pmd: PmdId) -> String {
    match pmd {
        PmdId::Main => "the main thread".to_string(),
        PmdId::Core(n) => format!("pmd on cpu core: {n}"),
    }
}

/// Whether a name given on the command line is that of the datapath.
pub(super) fn check_datapath(switch: &Switch, name: Option<&String>) -> Result<(), String> {
    let own = switch.datapath().name();
    match name {
        Some(n) if n != own && own.split_once('@').is_none_or(|(_, short)| n != short) => {
            Err(format!("{n}: no such datapath; the one here is {own}"))
        }
        _ => Ok(()),
    }
}

/// All flows of one thread.
pub(crate) fn flows_of(switch: &Switch, pmd: PmdId) -> Result<Vec<FlowRecord>, String> {
    let (mut all, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        let dump = DpifOp::FlowDump { cursor: from, max_flows: DUMP_FLOWS };
        match switch.ask(pmd, vec![dump])?.pop() {
            Some(OpResult::Dump(flows, next)) => {
                all.extend(flows);
                cursor = next;
            }
            Some(OpResult::Failed(e)) => return Err(e.to_string()),
            _ => cursor = None,
        }
    }
    Ok(all)
}

pub(super) fn dump_flows(daemon: &mut Daemon, args: &[String]) -> Answer {
    dump_all(&daemon.switch, args).into()
}

fn dump_all(switch: &Switch, args: &[String]) -> Result<String, String> {
    let verbose = args.iter().any(|a| a == "-m" || a == "--more");
    let with_names = verbose || args.iter().any(|a| a == "--names");
    let rest: Vec<_> = args.iter().filter(|a| !a.starts_with('-')).collect();
    if let Some(other) = args
        .iter()
        .find(|a| a.starts_with('-') && !["-m", "--more", "--names", "--no-names"].contains(&a.as_str()))
    {
        return Err(format!("unknown option {other}"));
    }
    if rest.len() > 1 {
        return Err("filters are not supported by this build; name the datapath alone or nothing".to_string());
    }
    check_datapath(switch, rest.first().copied())?;
    let names = Names::of(switch);
    let format =
        FlowFormat { verbose, names: if with_names { &names } else { &NumbersOnly }, extra_info: None };
    let now_ms = sys::clock::monotonic_ms();
    let mut out = String::new();
    for pmd in switch.datapath().pmds() {
        let flows = flows_of(switch, pmd)?;
        if !flows.is_empty() {
            let _ = writeln!(out, "flow-dump from {}:", thread_name(pmd));
        }
        flows.iter().for_each(|f| out += &(format_flow(f, now_ms, &format) + "\n"));
    }
    Ok(out)
}

pub(super) fn bridge_flows(daemon: &mut Daemon, args: &[String]) -> Answer {
    one_bridge_flows(&daemon.switch, args).into()
}

fn one_bridge_flows(switch: &Switch, args: &[String]) -> Result<String, String> {
    let verbose = args.iter().any(|a| a == "-m");
    let name = args.iter().find(|a| !a.starts_with('-')).ok_or("name a bridge")?;
    let (bridge, _) = bridge(switch, name)?;
    let view = switch.backer().view();
    let names = Names::of(switch);
    let format = FlowFormat { verbose, names: if verbose { &names } else { &NumbersOnly }, extra_info: None };
    let now_ms = sys::clock::monotonic_ms();
    let mut out = String::new();
    for pmd in switch.datapath().pmds() {
        for f in flows_of(switch, pmd)? {
            if view.dp_ports.get(&f.key.in_port()).is_some_and(|(b, _)| *b == bridge) {
                out += &(format_flow(&f, now_ms, &format) + "\n");
            }
        }
    }
    Ok(out)
}

pub(super) fn del_flows(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let flush = || {
        check_datapath(switch, args.first())?;
        for pmd in switch.datapath().pmds() {
            switch.ask(pmd, vec![DpifOp::FlowFlush])?;
        }
        Ok(String::new())
    };
    Answer::Now(flush())
}

pub(super) fn dpctl_show(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    if let Err(e) = check_datapath(switch, args.iter().find(|a| !a.starts_with('-'))) {
        return Answer::Now(Err(e));
    }
    let (hit, missed, lost, flows) = totals(switch);
    let mut out = format!(
        "{}:\n  lookups: hit:{hit} missed:{missed} lost:{lost}\n  flows: {flows}\n",
        switch.datapath().name()
    );
    for port in switch.datapath().ports() {
        let _ = write!(out, "  port {}: {}", port.number, port.name);
        match port.type_name.as_str() {
            "system" => out.push('\n'),
            other => {
                let _ = writeln!(out, " ({other})");
            }
        }
    }
    out.into()
}

/// Hits, misses, lost upcalls and flows of all threads.
fn totals(switch: &Switch) -> (u64, u64, u64, u64) {
    let stats = switch.pmd_stats();
    let sum = |f: fn(&dpif::PmdStats) -> u64| stats.iter().map(|(_, s)| f(s)).sum::<u64>();
    (
        sum(|s| s.cache_hits + s.megaflow_hits),
        sum(|s| s.upcalls + s.lost()),
        sum(|s| s.lost()),
        sum(|s| s.flows),
    )
}

pub(super) fn dpif_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    let switch = &daemon.switch;
    let (hit, missed, ..) = totals(switch);
    let mut out = format!("{}: hit:{hit} missed:{missed}\n", switch.datapath().name());
    let view = switch.backer().view();
    let mut bridges: Vec<_> = view.bridges.values().collect();
    bridges.sort_by(|a, b| a.name.cmp(&b.name));
    for b in bridges {
        let _ = writeln!(out, "  {}:", b.name);
        let mut ports: Vec<_> = b.ports.ports.values().collect();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        for p in ports {
            let dp_port = p.dp_port.map_or("none".to_string(), |n| n.to_string());
            let of_port = if p.of_port == OfPort::LOCAL { 65534 } else { p.of_port.0 };
            let type_name = if p.type_name.is_empty() { "system" } else { &p.type_name };
            let options = patch_peer(switch, &p.name).map_or(String::new(), |peer| format!(": peer={peer}"));
            let _ = writeln!(out, "    {} {of_port}/{dp_port}: ({type_name}{options})", p.name);
        }
    }
    out.into()
}

/// The configured peer of a patch port.
fn patch_peer<'a>(switch: &'a Switch, name: &str) -> Option<&'a str> {
    let bridges = &switch.planner().desired().bridges;
    let mut interfaces = bridges.values().flat_map(|b| b.ports.values()).flat_map(|p| &p.interfaces);
    interfaces.find(|i| i.name == name)?.patch_peer()
}

/// `-pmd N` and a datapath name.
fn pmd_filter(switch: &Switch, args: &[String]) -> Result<Option<u16>, String> {
    let mut filter = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "-pmd" {
            let n = args.next().and_then(|n| n.parse().ok());
            filter = Some(n.ok_or("-pmd needs the number of a core")?);
        } else {
            check_datapath(switch, Some(arg))?;
        }
    }
    Ok(filter)
}

pub(super) fn pmd_stats_show(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let filter = match pmd_filter(switch, args) {
        Ok(filter) => filter,
        Err(e) => return Answer::Now(Err(e)),
    };
    let mut out = String::new();
    for (pmd, s) in switch.pmd_stats() {
        match pmd {
            PmdId::Core(n) if filter.is_none_or(|f| f == n) => {
                let _ = writeln!(out, "pmd thread numa_id 0 core_id {n}:");
            }
            PmdId::Main if filter.is_none() => out += "main thread:\n",
            _ => continue,
        }
        pmd_stats(&mut out, &s);
    }
    out.into()
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// The figures of one thread. The flow cache takes the place of the exact-match and signature caches of stock switches and
/// stands as `smc hits`.
fn pmd_stats(out: &mut String, s: &dpif::PmdStats) {
    let passes = if s.received == 0 { 0.0 } else { ratio(s.received + s.recirculated, s.received) };
    let rows = [
        ("packets received", s.received.to_string()),
        ("packet recirculations", s.recirculated.to_string()),
        ("avg. datapath passes per packet", format!("{passes:.2}")),
        ("phwol hits", "0".to_string()),
        ("mfex opt hits", "0".to_string()),
        ("simple match hits", "0".to_string()),
        ("emc hits", "0".to_string()),
        ("smc hits", s.cache_hits.to_string()),
        ("megaflow hits", s.megaflow_hits.to_string()),
        (
            "avg. subtable lookups per megaflow hit",
            format!("{:.2}", ratio(s.subtable_lookups, s.megaflow_hits)),
        ),
        ("miss with success upcall", s.upcalls.to_string()),
        ("miss with failed upcall", s.upcalls_lost.to_string()),
        ("avg. packets per output batch", format!("{:.2}", ratio(s.sent_packets, s.sent_batches))),
    ];
    for (name, value) in rows {
        let _ = writeln!(out, "  {name}: {value}");
    }
}

pub(super) fn pmd_stats_clear(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let clear = || {
        let filter = pmd_filter(switch, args)?;
        for pmd in switch.datapath().pmds() {
            if filter.is_none_or(|f| pmd == PmdId::Core(f)) {
                switch.ask(pmd, vec![DpifOp::ClearStats])?;
            }
        }
        Ok(String::new())
    };
    Answer::Now(clear())
}

pub(super) fn upcall_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    let switch = &daemon.switch;
    let s = switch.revalidator_stats();
    let backer = switch.backer();
    let keys = backer.ukeys.len();
    let limit = backer.limits.flow_limit.load(Ordering::Relaxed);
    format!(
        "{}:\n  flows         : (current {}) (avg {}) (max {}) (limit {limit})\n  dump duration : {}ms\n  ufid enabled : true\n\n  0: (keys {keys})\n",
        switch.datapath().name(),
        s.flows,
        s.average_flows,
        s.max_flows,
        s.dump_duration_ms
    )
    .into()
}

pub(super) fn revalidator_wait(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.switch.wake_revalidator();
    // One round may have begun before what the caller waits for; the next one has not.
    Answer::Later(Wait::Rounds(daemon.switch.revalidator().rounds.load(Ordering::Acquire) + 1))
}

pub(super) fn revalidator_pause(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.switch.revalidator().paused.store(true, Ordering::Release);
    String::new().into()
}

pub(super) fn revalidator_resume(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.switch.revalidator().paused.store(false, Ordering::Release);
    daemon.switch.wake_revalidator();
    String::new().into()
}

/// Deletes all flows by way of the revalidator, which keeps what they have counted.
pub(super) fn revalidator_purge(daemon: &mut Daemon, args: &[String]) -> Answer {
    let limits = &daemon.switch.backer().limits;
    limits.purge_until_ms.store(sys::clock::monotonic_ms(), Ordering::Relaxed);
    revalidator_wait(daemon, args)
}

fn bridge(
    switch: &Switch,
    name: &str,
) -> Result<(BridgeId, std::sync::Arc<ofproto::view::BridgeView>), String> {
    let view = switch.backer().view();
    view.bridge_by_name(name).map(|b| (b.id, b.clone())).ok_or_else(|| format!("no such bridge \"{name}\""))
}

pub(super) fn fdb_show(daemon: &mut Daemon, args: &[String]) -> Answer {
    let (_, b) = match bridge(&daemon.switch, &args[0]) {
        Ok(b) => b,
        Err(_) => return Answer::Now(Err("no such bridge".to_string())),
    };
    let now_ms = sys::clock::monotonic_ms();
    let mut out = String::from(" port  VLAN  MAC                Age\n");
    for e in lock(&b.macs).entries() {
        let port = b.ports.bundles.get(&e.bundle).and_then(|bundle| bundle.members.first());
        let port = match port {
            Some(p) if *p == OfPort::LOCAL => "LOCAL".to_string(),
            Some(p) => p.to_string(),
            None => "?".to_string(),
        };
        let age =
            e.seen_ms.map_or("static".to_string(), |seen| (now_ms.saturating_sub(seen) / 1000).to_string());
        let _ = writeln!(out, "{port:>5}  {:>4}  {}  {age:>3}", e.vlan, e.mac);
    }
    out.into()
}

pub(super) fn fdb_flush(daemon: &mut Daemon, args: &[String]) -> Answer {
    let backer = daemon.switch.backer();
    let view = backer.view();
    if let Some(name) = args.first()
        && view.bridge_by_name(name).is_none()
    {
        return Answer::Now(Err("no such bridge".to_string()));
    }
    for b in view.bridges.values().filter(|b| args.first().is_none_or(|n| **n == *b.name)) {
        lock(&b.macs).flush(None);
    }
    backer.bump_epoch();
    "table successfully flushed\n".to_string().into()
}

pub(super) fn fdb_stats(daemon: &mut Daemon, args: &[String]) -> Answer {
    let Ok((_, b)) = bridge(&daemon.switch, &args[0]) else {
        return Answer::Now(Err("no such bridge".to_string()));
    };
    let macs = lock(&b.macs);
    let fixed = macs.entries().iter().filter(|e| e.seen_ms.is_none()).count();
    let s = macs.stats;
    format!(
        "Statistics for bridge \"{}\":\n  Current/maximum MAC entries in the table: {}/{}\n  Current static MAC entries in the table : {fixed}\n  Total number of learned MAC entries     : {}\n  Total number of expired MAC entries     : {}\n  Total number of evicted MAC entries     : {}\n  Total number of port moved MAC entries  : {}\n",
        b.name,
        macs.len(),
        macs.max_entries(),
        s.learned,
        s.expired,
        s.evicted,
        s.moved
    )
    .into()
}
