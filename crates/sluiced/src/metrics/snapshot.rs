//! [`Snapshot`]: the facts of the main loop with those that the thread of the metrics reads itself.

use super::Costs;
use super::facts::{BridgeFacts, DatapathHandle, InterfaceFacts, MainFacts};
use crate::control_plane::counters::of_datapaths;
use crate::facts::Source;
use crate::instances::{pmd_stats, totals_with};
use crate::upcall_times::{self, Stage, Times};
use dpif::{CtStatistics, Iterations, LookupMasks, PmdId, PmdStats, PortStats, ThreadInfo};
use flow::DpPort;
use httpd::Counts;
use std::collections::HashMap;
use std::path::PathBuf;
use sync::Ordering;
use vlog::vlog;
use vswitch::status::Counters;

/// Zones of connections with most connections, as many with most created and with most refused ones.
const ZONES: usize = 20;
/// Intervals of 5 seconds over which shares of queues are measured: a minute, as `pmd-rxq-show` has it.
const INTERVALS: usize = 12;

/// A datapath.
pub(super) struct DatapathFacts {
    /// `netdev@ovs-netdev`.
    pub(super) full_name: String,
    /// Sum of its threads, ended ones included.
    pub(super) sum: PmdStats,
    pub(super) threads: Vec<ThreadFacts>,
    pub(super) masks: Option<LookupMasks>,
    pub(super) connections: Option<CtStatistics>,
    pub(super) installed: u64,
    pub(super) flow_limit: u64,
    pub(super) dump_ms: u64,
}

impl DatapathFacts {
    /// Its type, and its name.
    pub(super) fn names(&self) -> [&str; 2] {
        let (kind, name) = self.full_name.split_once('@').unwrap_or(("", &self.full_name));
        [kind, name]
    }

    /// Masks visited, if the datapath counts them.
    pub(super) fn masks_visited(&self) -> u64 {
        self.masks.map_or(self.sum.subtable_lookups, |masks| masks.visited)
    }

    /// Packets looked up.
    pub(super) fn lookups(&self) -> u64 {
        self.masks.map_or_else(|| self.sum.passes(), |masks| masks.packets)
    }
}

/// A forwarding thread.
pub(super) struct ThreadFacts {
    pub(super) info: ThreadInfo,
    pub(super) stats: PmdStats,
    pub(super) iterations: Iterations,
}

/// A port.
pub(super) struct PortFacts {
    pub(super) interface: InterfaceFacts,
    /// Counters by their names in `Interface.statistics`.
    pub(super) counters: Counters,
    /// Nonzero drops by reason.
    pub(super) drops: Vec<(&'static str, u64)>,
    /// Upcalls in its queue.
    pub(super) waiting: u64,
}

/// See the module documentation.
pub(super) struct Snapshot {
    pub(super) main: MainFacts,
    pub(super) datapaths: Vec<DatapathFacts>,
    /// Rules of each bridge, hidden ones left out.
    pub(super) flows: Vec<u64>,
    pub(super) ports: Vec<PortFacts>,
    /// All coverage counters, in order of their names.
    pub(super) coverage: Vec<(&'static str, u64)>,
    /// Counts of `memory/show`, by name.
    pub(super) memory: Vec<(&'static str, u64)>,
    pub(super) times: [Times; 3],
    /// Sizes of the database's file and of the log.
    pub(super) files: [Option<(PathBuf, u64)>; 2],
    pub(super) logged: [(&'static str, u64); 4],
    pub(super) scrapes: u64,
    pub(super) last_us: u64,
    /// Connections of the server: made room for others, timed out; requests refused.
    pub(super) server: [(&'static str, u64); 3],
}

fn datapath(handle: &DatapathHandle) -> DatapathFacts {
    let provider = &*handle.datapath;
    let stats = pmd_stats(provider);
    let (infos, iterations) = match provider.pmd_threads() {
        Some(threads) => (threads.threads(INTERVALS), threads.iterations()),
        None => Default::default(),
    };
    let thread = |info: ThreadInfo| ThreadFacts {
        stats: stats
            .iter()
            .find(|(id, _)| *id == PmdId::Core(info.core))
            .map(|(_, s)| *s)
            .unwrap_or_default(),
        iterations: iterations
            .iter()
            .find(|(core, _)| *core == info.core)
            .map(|(_, n)| *n)
            .unwrap_or_default(),
        info,
    };
    DatapathFacts {
        full_name: provider.name().to_string(),
        sum: totals_with(provider, &stats),
        threads: infos.into_iter().map(thread).collect(),
        masks: provider.lookup_masks(),
        connections: provider.connections().and_then(|tracked| tracked.statistics(ZONES)),
        installed: handle.backer.ukeys.len(),
        flow_limit: handle.backer.limits.flow_limit.load(Ordering::Relaxed),
        dump_ms: handle.rounds.dump_duration_ms,
    }
}

/// Rules of a bridge: visible, and all.
fn rules(handle: &DatapathHandle, bridge: &BridgeFacts) -> [u64; 2] {
    let view = handle.backer.view();
    let Some(bridge) = view.bridge(bridge.id) else { return [0, 0] };
    bridge.tables.iter().fold([0, 0], |[visible, all], rule| {
        let shown = u64::from(rule.priority <= i32::from(u16::MAX));
        [visible + shown, all + 1]
    })
}

/// Counters of the ports, asked for once a datapath.
fn ports(main: &mut MainFacts) -> (Vec<PortFacts>, PortStats) {
    let mut totals = PortStats::default();
    let mut all: Vec<HashMap<DpPort, PortStats>> = Vec::new();
    for handle in &main.datapaths {
        totals.add(&handle.datapath.port_totals());
        all.push(handle.datapath.all_port_stats().into_iter().collect());
    }
    let interfaces = std::mem::take(&mut main.interfaces);
    let of_interface = |interface: InterfaceFacts| {
        let bridge = &main.bridges[interface.bridge];
        let handle = main.datapaths.get(bridge.datapath)?;
        let view = handle.backer.view();
        let port = view.bridge(bridge.id).and_then(|b| b.ports.port(interface.of_port));
        let counted_here = port.filter(|port| port.is_counted_here()).map(|port| &*port.counters);
        let stats = interface.dp_port.and_then(|number| all.get(bridge.datapath)?.get(&number));
        let dummy = main.dummies.get(&interface.name);
        Some(PortFacts {
            counters: Source::of(counted_here, stats, dummy.as_ref())
                .map(|s| s.counters())
                .unwrap_or_default(),
            drops: stats.map(PortStats::drops_by_name).unwrap_or_default(),
            waiting: interface.dp_port.map_or(0, |number| handle.datapath.upcalls_waiting(number)),
            interface,
        })
    };
    (interfaces.into_iter().filter_map(of_interface).collect(), totals)
}

fn with_size(path: Option<PathBuf>) -> Option<(PathBuf, u64)> {
    let path = path?;
    let bytes = std::fs::metadata(&path).ok()?.len();
    Some((path, bytes))
}

/// Completes the facts of the main loop.
pub(super) fn complete(mut main: MainFacts, counts: &Counts, costs: &Costs) -> Snapshot {
    let (ports, totals) = ports(&mut main);
    let datapaths: Vec<DatapathFacts> = main.datapaths.iter().map(datapath).collect();
    let mut sum = PmdStats::default();
    datapaths.iter().for_each(|datapath| sum.add(&datapath.sum));
    let mut coverage = std::mem::take(&mut main.counters);
    coverage.extend(of_datapaths(&sum, &totals));
    coverage.sort_unstable();
    let rules: Vec<[u64; 2]> = main.bridges.iter().map(|b| rules(&main.datapaths[b.datapath], b)).collect();
    let handles = || main.datapaths.iter();
    let memory = vec![
        ("handlers", handles().map(|handle| handle.handlers as u64).sum()),
        ("idl-cells-Open_vSwitch", main.cells as u64),
        ("ofconns", main.connections as u64),
        ("ports", ports.len() as u64),
        ("revalidators", handles().map(|handle| handle.revalidators as u64).sum()),
        ("rules", rules.iter().map(|[_, all]| all).sum()),
        ("udpif keys", datapaths.iter().map(|datapath| datapath.installed).sum()),
    ];
    let count = |n: &std::sync::atomic::AtomicU64| n.load(std::sync::atomic::Ordering::Relaxed);
    Snapshot {
        flows: rules.iter().map(|[visible, _]| *visible).collect(),
        datapaths,
        ports,
        coverage,
        memory,
        times: Stage::ALL.map(upcall_times::read),
        files: [with_size(main.database.clone()), with_size(vlog().file())],
        logged: vlog().logged(),
        scrapes: costs.scrapes.load(Ordering::Relaxed),
        last_us: costs.last_us.load(Ordering::Relaxed),
        server: [
            ("evicted", count(&counts.evicted)),
            ("timed_out", count(&counts.timed_out)),
            ("refused", count(&counts.refused)),
        ],
        main,
    }
}
