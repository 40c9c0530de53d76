//! Commands about datapath, flows, upcalls and learned addresses.

use super::{Answer, Wait, order_rounds};
use crate::control::daemon::Daemon;
use crate::control::instances::Instance;
use crate::control::switch::Switch;
use dpif::text::{FlowFormat, NumbersOnly, PortNames, format_flow};
use dpif::{Datapath, DpifOp, FlowRecord, OpResult, PmdId};
use flow::{DpPort, OfPort};
use ofproto::view::BridgeView;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use sync::{Ordering, lock};

/// Flows of one dump request.
const DUMP_FLOWS: usize = 512;

/// Names of the datapath's ports.
pub(super) struct Names(BTreeMap<DpPort, String>);

impl Names {
    pub(super) fn of(instance: &Instance) -> Names {
        Names(instance.datapath.ports().into_iter().map(|p| (p.number, p.name)).collect())
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
        PmdId::Main => "the main thread:".to_string(),
        PmdId::Core(n) => format!("pmd on cpu core: {n}"),
    }
}

/// The datapath of a name given on the command line, or the only one.
pub(super) fn datapath<'a>(switch: &'a Switch, name: Option<&String>) -> Result<&'a Instance, String> {
    switch.instances().named(name.map(String::as_str))
}

/// All flows of one thread.
pub(crate) fn flows_of(instance: &Instance, pmd: PmdId) -> Result<Vec<FlowRecord>, String> {
    let (mut all, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        let dump = DpifOp::FlowDump { cursor: from, max_flows: DUMP_FLOWS };
        match instance.ask(pmd, vec![dump])?.pop() {
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
    let instance = datapath(switch, rest.first().copied())?;
    let names = Names::of(instance);
    let format =
        FlowFormat { verbose, names: if with_names { &names } else { &NumbersOnly }, extra_info: None };
    let now_ms = sys::clock::monotonic_ms();
    let mut out = String::new();
    for pmd in instance.datapath.pmds() {
        let flows = flows_of(instance, pmd)?;
        if !flows.is_empty() {
            let _ = writeln!(out, "flow-dump from {}", thread_name(pmd));
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
    let (instance, bridge) = bridge(switch, name)?;
    let view = instance.backer.view();
    let names = Names::of(instance);
    let format = FlowFormat { verbose, names: if verbose { &names } else { &NumbersOnly }, extra_info: None };
    let now_ms = sys::clock::monotonic_ms();
    let mut out = String::new();
    for pmd in instance.datapath.pmds() {
        for f in flows_of(instance, pmd)? {
            if view.dp_ports.get(&f.key.in_port()).is_some_and(|(b, _)| *b == bridge.id) {
                out += &(format_flow(&f, now_ms, &format) + "\n");
            }
        }
    }
    Ok(out)
}

pub(super) fn del_flows(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let flush = || {
        let instance = datapath(switch, args.first())?;
        for pmd in instance.datapath.pmds() {
            instance.ask(pmd, vec![DpifOp::FlowFlush])?;
        }
        Ok(String::new())
    };
    Answer::Now(flush())
}

pub(super) fn dpctl_show(daemon: &mut Daemon, args: &[String]) -> Answer {
    let instances = daemon.switch.instances();
    match args.iter().find(|a| !a.starts_with('-')) {
        Some(name) => instances.named(Some(name)).map(show_ports).into(),
        None => instances.iter().map(show_ports).collect::<String>().into(),
    }
}

fn show_ports(instance: &Instance) -> String {
    let (hit, missed, lost, flows) = totals(instance);
    let name = instance.name();
    let mut out = format!("{name}:\n  lookups: hit:{hit} missed:{missed} lost:{lost}\n  flows: {flows}\n");
    for port in instance.datapath.ports() {
        let _ = write!(out, "  port {}: {}", port.number, port.name);
        match port.type_name.as_str() {
            "system" => out.push('\n'),
            other => {
                let _ = writeln!(out, " ({other})");
            }
        }
    }
    out
}

/// Hits, misses, lost upcalls and flows of all threads.
fn totals(instance: &Instance) -> (u64, u64, u64, u64) {
    let stats = instance.pmd_stats();
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
    switch.instances().iter().map(|i| show_bridges(switch, i)).collect::<String>().into()
}

fn show_bridges(switch: &Switch, instance: &Instance) -> String {
    let (hit, missed, ..) = totals(instance);
    let mut out = format!("{}: hit:{hit} missed:{missed}\n", instance.name());
    let types: BTreeMap<_, _> =
        instance.datapath.ports().into_iter().map(|p| (p.number, p.type_name)).collect();
    let view = instance.backer.view();
    let mut bridges: Vec<_> = view.bridges.values().collect();
    bridges.sort_by(|a, b| a.name.cmp(&b.name));
    for b in bridges {
        let _ = writeln!(out, "  {}:", b.name);
        let mut ports: Vec<_> = b.ports.ports.values().collect();
        ports.sort_by(|a, b| a.name.cmp(&b.name));
        for p in ports {
            let dp_port = p.dp_port.map_or("none".to_string(), |n| n.to_string());
            let of_port = if p.of_port == OfPort::LOCAL { 65534 } else { p.of_port.0 };
            let type_name = p.dp_port.and_then(|n| types.get(&n)).unwrap_or(&p.type_name);
            let options = patch_peer(switch, &p.name).map_or(String::new(), |peer| format!(": peer={peer}"));
            let _ = writeln!(out, "    {} {of_port}/{dp_port}: ({type_name}{options})", p.name);
        }
    }
    out
}

/// The configured peer of a patch port.
fn patch_peer<'a>(switch: &'a Switch, name: &str) -> Option<&'a str> {
    let bridges = &switch.planner().desired().bridges;
    let mut interfaces = bridges.values().flat_map(|b| b.ports.values()).flat_map(|p| &p.interfaces);
    interfaces.find(|i| i.name == name)?.patch_peer()
}

/// `-pmd N` and a datapath name: which threads, of which datapaths.
fn pmd_filter<'a>(switch: &'a Switch, args: &[String]) -> Result<(Vec<&'a Instance>, Option<u16>), String> {
    let (mut filter, mut instances) = (None, switch.instances().iter().collect());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "-pmd" {
            let n = args.next().and_then(|n| n.parse().ok());
            filter = Some(n.ok_or("-pmd needs the number of a core")?);
        } else {
            instances = vec![datapath(switch, Some(arg))?];
        }
    }
    Ok((instances, filter))
}

pub(super) fn pmd_stats_show(daemon: &mut Daemon, args: &[String]) -> Answer {
    let (instances, filter) = match pmd_filter(&daemon.switch, args) {
        Ok(found) => found,
        Err(e) => return Answer::Now(Err(e)),
    };
    let mut out = String::new();
    for (pmd, s) in instances.iter().flat_map(|i| i.pmd_stats()) {
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
    super::threads::cycles(out, s);
}

pub(super) fn pmd_stats_clear(daemon: &mut Daemon, args: &[String]) -> Answer {
    let switch = &daemon.switch;
    let clear = || {
        let (instances, filter) = pmd_filter(switch, args)?;
        for instance in instances {
            for pmd in instance.datapath.pmds() {
                if filter.is_none_or(|f| pmd == PmdId::Core(f)) {
                    instance.ask(pmd, vec![DpifOp::ClearStats])?;
                }
            }
        }
        Ok(String::new())
    };
    Answer::Now(clear())
}

pub(super) fn upcall_show(daemon: &mut Daemon, _: &[String]) -> Answer {
    let mut out = String::new();
    for instance in daemon.switch.instances().iter() {
        let s = instance.revalidator_stats();
        let keys = instance.backer.ukeys.len();
        let limit = instance.backer.limits.flow_limit.load(Ordering::Relaxed);
        let _ = writeln!(
            out,
            "{}:\n  flows         : (current {}) (avg {}) (max {}) (limit {limit})\n  dump duration : {}ms\n  ufid enabled : true\n\n  0: (keys {keys})",
            instance.name(),
            s.flows,
            s.average_flows,
            s.max_flows,
            s.dump_duration_ms
        );
    }
    out.into()
}

pub(super) fn revalidator_wait(daemon: &mut Daemon, _: &[String]) -> Answer {
    Answer::Later(Wait::Rounds(order_rounds(&daemon.switch)))
}

pub(super) fn revalidator_pause(daemon: &mut Daemon, _: &[String]) -> Answer {
    daemon.switch.instances().iter().for_each(|i| i.revalidator().paused.store(true, Ordering::Release));
    String::new().into()
}

pub(super) fn revalidator_resume(daemon: &mut Daemon, _: &[String]) -> Answer {
    for instance in daemon.switch.instances().iter() {
        instance.revalidator().paused.store(false, Ordering::Release);
        instance.wake_revalidator();
    }
    String::new().into()
}

/// Deletes all flows by way of the revalidator, which keeps what they have counted.
pub(super) fn revalidator_purge(daemon: &mut Daemon, _: &[String]) -> Answer {
    let switch = &daemon.switch;
    for instance in switch.instances().iter() {
        instance.backer.limits.purge_until_ms.store(sys::clock::monotonic_ms(), Ordering::Relaxed);
    }
    Answer::Later(Wait::Rounds(order_rounds(switch)))
}

fn bridge<'a>(switch: &'a Switch, name: &str) -> Result<(&'a Instance, Arc<BridgeView>), String> {
    switch.instances().bridge(name).ok_or_else(|| format!("no such bridge \"{name}\""))
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
    let instances = daemon.switch.instances();
    let bridges = match args.first() {
        None => instances.bridges(),
        Some(name) => match instances.bridge(name) {
            Some(found) => vec![found],
            None => return Answer::Now(Err("no such bridge".to_string())),
        },
    };
    for (instance, b) in bridges {
        lock(&b.macs).flush(None);
        instance.backer.bump_epoch();
    }
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
