//! [`PmdPool`]: starts, stops and configures the forwarding threads of a datapath while packets flow, and holds its ports.
//!
//! Threads start with the first port that needs one. A change first starts new threads, then moves queues, then ends
//! threads. Control threads call, under one lock; forwarding threads never take it.

use super::announce;
use super::bulk::Bulk;
use super::cores::Cores;
use super::inbox::{Control, RunAs, TxSide};
use super::inheritance::Inheritance;
use super::main_core::MainCore;
use super::offload::Candidate;
use super::perf;
use super::plan::QueueId;
use super::ports::{self, OpenPort, Ports};
use super::queues::Rx;
use super::replan::{Fleet, Placement, Scope};
use super::threads::{PmdFactory, Running};
use super::{UserspaceConfig, numbered};
use crate::ablation::Optimisation;
use datapath::PmdTuning;
use dpif::{
    DpifError, DpifOp, FlowOffloads, InlineHandler, Iterations, Numa, OffloadStats, OpBatch, OptionChange,
    PerfLog, PerfQuery, PmdId, PmdStats, PmdThreads, PortOptions, PortSpec, PortStats, QueueInfo,
    RxqAffinity, ThreadInfo, ThreadPlan,
};
use flow::DpPort;
use netdev::OpenedPort;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use sync::{Mutex, lock};
use sys::confine::Kind;

/// Cores of a dummy datapath, whose threads are not bound.
const DUMMY_CORES: u16 = 64;

/// Ports and threads of the control thread.
#[derive(Default)]
pub(super) struct State {
    pub(super) ports: Ports,
    /// By core.
    pub(super) running: BTreeMap<u16, Running>,
    pub(super) plan: ThreadPlan,
    pub(super) placement: Placement,
    /// Counters of ended threads.
    pub(super) ended: PmdStats,
    /// Counters of removed ports.
    pub(super) removed: PortStats,
    perf_log: PerfLog,
    /// Receive queues that no thread polls, while another process receives.
    pub(super) held: Option<Vec<Rx>>,
}

/// See the module documentation.
pub(super) struct PmdPool {
    pub(super) cores: Cores,
    pub(super) factory: PmdFactory,
    pub(super) bulk: Bulk,
    inline: Arc<dyn InlineHandler>,
    /// Whether it is a dummy datapath.
    pub(super) dummy: bool,
    /// Ports of the process that it succeeds.
    pub(super) inheritance: Inheritance,
    pub(super) state: Mutex<State>,
}

impl PmdPool {
    /// Without ports and threads.
    pub(super) fn new(
        main: MainCore,
        factory: PmdFactory,
        inline: Arc<dyn InlineHandler>,
        config: &UserspaceConfig,
    ) -> PmdPool {
        announce::settings(None, &config.threads);
        PmdPool {
            cores: Cores::new(main),
            factory,
            bulk: Bulk::default(),
            inline,
            dummy: config.dummy,
            state: Mutex::new(State {
                plan: config.threads.clone(),
                held: config.inheritance.holds_queues().then(Vec::new),
                ..State::default()
            }),
            inheritance: config.inheritance.clone(),
        }
    }

    /// Opens the device of a port.
    pub(super) fn open(&self, spec: &PortSpec) -> Result<OpenedPort, DpifError> {
        if let Some(opened) = self.bulk.prepared(spec) {
            return Ok(opened);
        }
        let opened = ports::open(spec, &self.factory.ablation, &self.inheritance)?;
        Ok(OpenedPort { inline: opened.inline || !self.has_threads(), ..opened })
    }

    /// Offloads the flows of a port, if enabled and its device can.
    pub(super) fn offload_port(&self, port: &OpenPort) {
        let shared = &self.factory.shared;
        let candidate = Candidate { info: &port.info, dummy: port.dummy.as_ref(), shared };
        self.factory.offloads.port_add(&candidate);
    }

    /// Whether separate threads poll ports.
    fn has_threads(&self) -> bool {
        self.factory.ablation.has(Optimisation::Threads)
    }

    pub(super) fn fleet<'a>(
        &'a self,
        running: &'a BTreeMap<u16, Running>,
        ports: &'a Ports,
        plan: &'a ThreadPlan,
    ) -> Fleet<'a> {
        Fleet { cores: &self.cores, running, ports, plan, inline: &*self.inline }
    }

    /// Places queues on the threads ([`Placement::place`]).
    pub(super) fn place(&self, s: &mut State, scope: Scope, new: Vec<Rx>, without: &[u16]) {
        let State { ports, running, plan, placement, held, .. } = s;
        let new = match held {
            Some(held) => {
                held.extend(new);
                Vec::new()
            }
            None => new,
        };
        placement.place(&self.fleet(running, ports, plan), scope, new, without);
    }

    /// Automatic load balance, about once a second.
    pub(super) fn balance(&self) {
        let State { ports, running, plan, placement, .. } = &mut *lock(&self.state);
        placement.balance(&self.fleet(running, ports, plan));
    }

    /// Counters of a port over all threads and the main core.
    pub(super) fn port_stats(&self, s: &State, port: DpPort) -> Option<PortStats> {
        let mut sum = s.ports.get(port)?.retired();
        sum.add(&self.cores.main.port_stats(port));
        let threads = s.running.values().map(|r| &r.thread);
        let counted = self.cores.ask(threads, |reply| Control::PortStats(port, reply));
        counted.iter().for_each(|stats| sum.add(stats));
        Some(sum)
    }

    /// Counters of all ports in order of their numbers, over all threads and the main core, with one request per thread.
    pub(super) fn all_port_stats(&self, s: &State) -> Vec<(DpPort, PortStats)> {
        let mut all: Vec<_> = s.ports.iter().map(|p| (p.info.number, p.retired())).collect();
        let threads = s.running.values().map(|r| &r.thread);
        let counted = self.cores.ask(threads, Control::AllPortStats).into_iter().flatten();
        for (port, stats) in counted.chain(self.cores.main.all_port_stats()) {
            // Threads have only existing ports.
            if let Ok(at) = all.binary_search_by_key(&port, |(port, _)| *port) {
                all[at].1.add(&stats);
            }
        }
        all
    }

    /// Starts the first threads, for the first port that needs one.
    pub(super) fn first_threads(&self, s: &mut State) -> Result<(), DpifError> {
        let plan = s.plan.clone();
        if s.running.is_empty() { self.run_threads(s, &plan) } else { Ok(()) }
    }

    fn run_threads(&self, s: &mut State, plan: &ThreadPlan) -> Result<(), DpifError> {
        netdev::start_ring_threads(|| sys::confine::enter(Kind::Rings, &[]));
        let (cores, bound) = self.wanted_cores(plan);
        let new: Vec<u16> = cores.iter().copied().filter(|core| !s.running.contains_key(core)).collect();
        let mut others = !new.is_empty();
        let mut started = Vec::new();
        for core in new {
            match self.start_thread(s, plan, core) {
                Ok(running) => started.push(running),
                Err(e) => {
                    started.into_iter().for_each(|running| drop(running.stop()));
                    return Err(e);
                }
            }
        }
        s.running.extend(started.into_iter().map(|running| (running.thread.core, running)));
        let gone: Vec<u16> = s.running.keys().copied().filter(|core| !cores.contains(core)).collect();
        others |= !gone.is_empty();
        s.plan = plan.clone();
        s.placement.restart_balance();
        self.run_as(s, Some(bound));
        self.publish(s, &[]);
        self.place(s, Scope::All, Vec::new(), &gone);
        self.publish(s, &gone);
        for core in gone {
            self.end_thread(s, core);
        }
        let mut by_node: BTreeMap<Numa, usize> = BTreeMap::new();
        s.running.values().for_each(|r| *by_node.entry(r.numa).or_default() += 1);
        for (node, threads) in by_node.into_iter().filter(|_| others) {
            log::info!(target: "dpif_netdev", "There are {threads} pmd threads on numa node {}", node.0);
        }
        Ok(())
    }

    /// The existing cores among those wanted, and whether to bind threads to them.
    fn wanted_cores(&self, plan: &ThreadPlan) -> (Vec<u16>, bool) {
        let Some(wanted) = &plan.cores else { return (vec![0], false) };
        let online = u16::try_from(sys::thread::online_cpus()).unwrap_or(u16::MAX);
        let pretended = self.factory.dummy_numa.len() as u16;
        let most = match (pretended, self.dummy) {
            (0, true) => DUMMY_CORES,
            (0, false) => online,
            (n, _) => n,
        };
        let (there, missing): (Vec<u16>, Vec<u16>) = wanted.iter().partition(|core| **core < most);
        if !missing.is_empty() {
            log::warn!(target: "dpif_netdev", "pmd-cpu-mask names cores that are not online: {missing:?}");
        }
        if there.is_empty() {
            log::warn!(target: "dpif_netdev", "no core of pmd-cpu-mask is online: one forwarding thread runs without affinity");
            return (vec![0], false);
        }
        (there, !self.dummy && pretended == 0)
    }

    fn start_thread(&self, s: &State, plan: &ThreadPlan, core: u16) -> Result<Running, DpifError> {
        let running = self.factory.start(core).map_err(|e| {
            DpifError::Device(format!("cannot start the forwarding thread of core {core}: {e}"))
        })?;
        let (done, answers) = sync_channel(s.ports.iter().count());
        for port in s.ports.iter() {
            match TxSide::open(&port.device, &port.upcalls, &port.egress) {
                Ok(side) => self
                    .cores
                    .request(&running.thread, Control::PortAdd(port.info.number, side, done.clone())),
                // Its device is removed; the port follows.
                Err(e) => {
                    log::warn!(target: "dpif_netdev", "core {core} cannot send to {}: {e}", port.info.name)
                }
            }
        }
        drop(done);
        answers.iter().for_each(drop);
        announce::max_sleep(self.factory.numa(core), core, plan.sleep.of(core));
        log::info!(target: "dpif_netdev", "PMD thread on numa_id: {}, core id: {core:2} created.", self.factory.numa(core).0);
        Ok(running)
    }

    /// Sends settings to all threads, and binds them anew if that may change.
    fn run_as(&self, s: &mut State, bound: Option<bool>) {
        let (done, answers) = sync_channel(s.running.len());
        for (core, running) in &mut s.running {
            let cpus = match bound.filter(|bound| *bound != running.bound) {
                None => None,
                Some(true) => Some(vec![usize::from(*core)]),
                Some(false) => Some(self.factory.all_cpus.clone()),
            };
            running.bound = bound.unwrap_or(running.bound);
            let cache = s.plan.cache;
            let wanted = PmdTuning::from_settings(cache.emc_insert_inv_prob, cache.smc_enable);
            let tuning = self.factory.ablation.tuning(wanted);
            let run = RunAs {
                cpus,
                sleep_max_us: s.plan.sleep.of(*core),
                fast_wakeup: s.plan.fast_wakeup,
                flush_us: s.plan.flush_us,
                tuning,
                perf_metrics: s.plan.perf_metrics,
                perf_log: s.perf_log,
            };
            self.cores.request(&running.thread, Control::Run(run, done.clone()));
        }
        drop(done);
        answers.iter().for_each(drop);
    }

    /// Publishes the threads to the senders of operations.
    fn publish(&self, s: &State, without: &[u16]) {
        let shown = s.running.iter().filter(|(core, _)| !without.contains(core));
        self.cores.publish(shown.map(|(_, running)| running.thread.clone()).collect());
    }

    fn end_thread(&self, s: &mut State, core: u16) {
        let Some(running) = s.running.remove(&core) else { return };
        let (final_stats, unanswered) = running.stop();
        s.ended.add(&final_stats.stats);
        for (port, stats) in &final_stats.ports {
            if let Some(open) = s.ports.get_mut(*port) {
                open.retired.get_or_insert_default().add(stats);
            }
        }
        self.bulk.close_all(final_stats.parts, Vec::new());
        unanswered.into_iter().for_each(|batch| self.cores.without_thread(batch));
        log::info!(target: "dpif_netdev", "PMD thread on numa_id: {}, core id: {core:2} destroyed.", self.factory.numa(core).0);
    }

    /// Reopens the receive queues of a port. The port itself stays.
    pub(super) fn reopen(&self, s: &mut State, port: DpPort) -> Result<Vec<Rx>, DpifError> {
        let State { ports, running, plan, placement, .. } = s;
        let fleet = self.fleet(running, ports, plan);
        let mut taken = placement.take_port(&fleet, port);
        taken.extend(self.cores.main.take(port));
        taken.extend(s.held.iter_mut().flat_map(|held| held.extract_if(.., |rx| rx.port == port)));
        let open = s.ports.get_mut(port).ok_or(DpifError::NotFound("port"))?;
        let retired = open.retired.get_or_insert_default();
        taken.iter().for_each(|rx| rx.add_losses(retired));
        open.queues = 0;
        // Close the old ones first: the socket group does not accept more.
        drop(taken);
        let OpenedPort { mut device, .. } = self.open(&open.spec)?;
        let queues = numbered(port, std::mem::take(&mut device.rx), &open.policer);
        open.device = device;
        if open.inline {
            self.cores.main.give(queues)?;
            return Ok(Vec::new());
        }
        open.queues = queues.len() as u16;
        Ok(queues)
    }
}

impl FlowOffloads for PmdPool {
    fn enable(&self) {
        let s = lock(&self.state);
        self.factory.offloads.enable();
        s.ports.iter().for_each(|port| self.offload_port(port));
    }

    fn stats(&self) -> Option<OffloadStats> {
        self.factory.offloads.stats()
    }
}

impl PmdThreads for PmdPool {
    fn configure(&self, plan: &ThreadPlan) -> Result<(), DpifError> {
        let s = &mut *lock(&self.state);
        if s.plan == *plan {
            return Ok(());
        }
        announce::settings(Some(&s.plan), plan);
        for core in s.running.keys().filter(|core| s.plan.sleep.of(**core) != plan.sleep.of(**core)) {
            announce::max_sleep(self.factory.numa(*core), *core, plan.sleep.of(*core));
        }
        if s.running.is_empty() {
            s.plan = plan.clone();
            return Ok(());
        }
        let ThreadPlan { perf_metrics, flush_us, .. } = s.plan;
        if s.plan == (ThreadPlan { perf_metrics, flush_us, ..plan.clone() }) {
            (s.plan.perf_metrics, s.plan.flush_us) = (plan.perf_metrics, plan.flush_us);
            self.run_as(s, None);
            return Ok(());
        }
        self.run_threads(s, plan)
    }

    fn threads(&self, intervals: usize) -> Vec<ThreadInfo> {
        let s = &*lock(&self.state);
        let loads = self.fleet(&s.running, &s.ports, &s.plan).loads();
        let shown = s.running.keys().map(|core| {
            let load = loads.get(core);
            let total = load.map_or(0.0, |l| l.total.rate(l.now_us, intervals));
            let share = |rate: f64| (total > 0.0).then_some(rate / total);
            let queues = s.placement.queues_of(*core).map(|id| {
                let history = load.and_then(|l| Some((l, l.queues.iter().find(|(q, _)| *q == id)?.1)));
                QueueInfo {
                    port: s.ports.get(id.port).map(|p| p.info.name.clone()).unwrap_or_default(),
                    queue: id.queue,
                    usage: history.and_then(|(l, history)| share(history.rate(l.now_us, intervals))),
                }
            });
            ThreadInfo {
                core: *core,
                numa: self.factory.numa(*core),
                isolated: s.placement.is_isolated(*core),
                sleep_max_us: s.plan.sleep.of(*core),
                queues: queues.collect(),
                busy: load.and_then(|l| share(l.busy.rate(l.now_us, intervals))),
            }
        });
        shown.collect()
    }

    fn main_queues(&self) -> Option<Vec<QueueInfo>> {
        if self.has_threads() {
            return None;
        }
        let s = &*lock(&self.state);
        let name = |id: &QueueId| s.ports.get(id.port).map(|p| p.info.name.clone()).unwrap_or_default();
        let queues = self.cores.main.queues();
        Some(queues.iter().map(|id| QueueInfo { port: name(id), queue: id.queue, usage: None }).collect())
    }

    fn numa(&self, core: u16) -> Numa {
        self.factory.numa(core)
    }

    fn sleep_max_default_us(&self) -> u64 {
        lock(&self.state).plan.sleep.default_us
    }

    fn rebalance(&self) {
        self.place(&mut lock(&self.state), Scope::All, Vec::new(), &[]);
    }

    fn port_rx_update(
        &self,
        port: DpPort,
        options: &PortOptions,
        affinity: &RxqAffinity,
    ) -> Result<(), DpifError> {
        let s = &mut *lock(&self.state);
        let open = s.ports.get_mut(port).ok_or(DpifError::NotFound("port"))?;
        let resize = open.spec.options.change(options) == OptionChange::ReopenQueues;
        if !resize && open.affinity == *affinity {
            return Ok(());
        }
        open.affinity.clone_from(affinity);
        open.spec.options = options.clone();
        let new = if resize { self.reopen(s, port)? } else { Vec::new() };
        self.place(s, Scope::All, new, &[]);
        Ok(())
    }

    fn perf_text(&self, query: &PerfQuery) -> String {
        let lengths = [query.iterations, query.milliseconds].map(|n| n.min(PerfLog::HISTORY_LEN));
        let s = lock(&self.state);
        let wanted = s.running.iter().filter(|(core, _)| query.core.is_none_or(|asked| asked == **core));
        let texts = wanted.filter_map(|(core, running)| {
            let thread = std::iter::once(&running.thread);
            let shown = self.cores.ask(thread, |reply| Control::Perf(lengths, reply)).pop()?;
            let head = format!("pmd thread numa_id {} core_id {core}:\n", running.numa.0);
            Some(perf::show(&shown, &query.time, &head, query.histograms))
        });
        texts.collect()
    }

    fn iterations(&self) -> Vec<(u16, Iterations)> {
        let s = lock(&self.state);
        let of_thread = |(core, running): (&u16, &Running)| {
            let thread = std::iter::once(&running.thread);
            let shown = self.cores.ask(thread, |reply| Control::Perf([0, 0], reply)).pop()?;
            Some((*core, shown.iterations()))
        };
        s.running.iter().filter_map(of_thread).collect()
    }

    fn set_perf_log(&self, log: PerfLog) {
        let s = &mut *lock(&self.state);
        s.perf_log = log;
        self.run_as(s, None);
    }

    fn clear_stats(&self, core: Option<u16>) {
        let s = &mut *lock(&self.state);
        let wanted = s.running.iter().filter(|(n, _)| core.is_none_or(|core| core == **n));
        self.cores.ask(wanted.map(|(_, running)| &running.thread), Control::Clear);
        if core.is_none() {
            s.ended = s.ended.cleared();
            let ops = vec![DpifOp::ClearStats];
            self.cores.main.operate(OpBatch { pmd: PmdId::Main, ops, tag: 0, reply: None });
        }
    }
}
