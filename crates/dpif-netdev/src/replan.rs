//! Threads and their queues, made what the configuration wants them to be while packets flow.
//!
//! Threads start with the first port that needs one. Of a change, threads come first, then queues move, then threads end: at no time is a queue without somebody to poll it for longer than its
//! move takes, and its frames wait in the queue meanwhile. A port that comes or goes moves nobody else's queues; settings,
//! `pmd-rxq-rebalance` and automatic load balance share all queues out anew.

use super::inbox::{Control, Handover, RunAs, ThreadLoad};
use super::plan::QueueId;
use super::plan::assign::{Assignment, Note, Policy, Queue, Thread as Place, assign};
use super::plan::balance::{Balancer, Busy, dry_run};
use super::plan::load::{INTERVAL_US, INTERVALS};
use super::ports::{self, Opened, Ports};
use super::queues::Rx;
use super::threads::Running;
use super::{UserspaceDatapath, numbered};
use datapath::PmdTuning;
use dpif::Numa;
use dpif::PerfLog;
use dpif::{DpifError, PmdStats, PortOptions, PortStats};
use dpif::{QueueInfo, RxqAffinity, RxqAssign, ThreadInfo, ThreadPlan};
use flow::DpPort;
use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use sync::lock;

/// Cores of a datapath of dummies, whose threads are bound to none.
const DUMMY_CORES: u16 = 64;

/// What the control thread knows of ports and threads.
#[derive(Default)]
pub(super) struct State {
    pub(super) ports: Ports,
    /// By core.
    pub(super) running: BTreeMap<u16, Running>,
    pub(super) plan: ThreadPlan,
    pub(super) placed: Assignment,
    pub(super) balancer: Balancer,
    /// What threads counted that have ended.
    pub(super) ended: PmdStats,
    /// What ports counted that were removed.
    pub(super) removed: PortStats,
    pub(super) perf_log: PerfLog,
}

/// Which queues may move.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those that nobody polls yet, and those that may not stay where they are.
    New,
    /// All.
    All,
}

impl UserspaceDatapath {
    /// Makes the forwarding threads what is wanted and shares the queues out among them. Returns when every thread runs so.
    ///
    /// # Errors
    /// A thread cannot be started: those that ran before go on as before.
    pub(crate) fn configure(&self, plan: &ThreadPlan) -> Result<(), DpifError> {
        let s = &mut *lock(&self.state);
        if s.plan == *plan {
            return Ok(());
        }
        if s.plan.balance != plan.balance && plan.balance.enabled {
            let b = plan.balance;
            log::info!(
                target: "dpif_netdev",
                "automatic load balance: interval {} min, load threshold {} %, improvement threshold {} %",
                b.interval_min, b.load_threshold_percent, b.improvement_threshold_percent
            );
        }
        if s.running.is_empty() {
            s.plan = plan.clone();
            return Ok(());
        }
        if s.plan == (ThreadPlan { perf_metrics: s.plan.perf_metrics, ..plan.clone() }) {
            s.plan.perf_metrics = plan.perf_metrics;
            self.run_as(s, None);
            return Ok(());
        }
        self.run_threads(s, plan)
    }

    /// Starts the first threads, for the first port that needs one.
    pub(super) fn first_threads(&self, s: &mut State) -> Result<(), DpifError> {
        let plan = s.plan.clone();
        if s.running.is_empty() { self.run_threads(s, &plan) } else { Ok(()) }
    }

    fn run_threads(&self, s: &mut State, plan: &ThreadPlan) -> Result<(), DpifError> {
        let (cores, bound) = self.cores(plan);
        let new: Vec<u16> = cores.iter().copied().filter(|core| !s.running.contains_key(core)).collect();
        let mut started = Vec::new();
        for core in new {
            match self.start_thread(s, core) {
                Ok(running) => started.push(running),
                Err(e) => {
                    started.into_iter().for_each(|running| drop(running.stop()));
                    return Err(e);
                }
            }
        }
        s.running.extend(started.into_iter().map(|running| (running.thread.core, running)));
        let gone: Vec<u16> = s.running.keys().copied().filter(|core| !cores.contains(core)).collect();
        (s.plan, s.balancer) = (plan.clone(), Balancer::default());
        self.run_as(s, Some(bound));
        self.publish(s, &[]);
        self.place(s, Scope::All, Vec::new(), &gone);
        self.publish(s, &gone);
        for core in gone {
            self.end_thread(s, core);
        }
        let mut by_node: BTreeMap<Numa, usize> = BTreeMap::new();
        s.running.values().for_each(|r| *by_node.entry(r.numa).or_default() += 1);
        for (node, threads) in by_node {
            log::info!(target: "dpif_netdev", "There are {threads} pmd threads on numa node {}", node.0);
        }
        Ok(())
    }

    /// The cores that are wanted and exist, and whether threads are bound to them.
    fn cores(&self, plan: &ThreadPlan) -> (Vec<u16>, bool) {
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
            log::warn!(target: "dpif_netdev", "pmd-cpu-mask names cores that are not there: {missing:?}");
        }
        if there.is_empty() {
            log::warn!(target: "dpif_netdev", "no core of pmd-cpu-mask is there: one thread forwards, bound to no core");
            return (vec![0], false);
        }
        (there, !self.dummy && pretended == 0)
    }

    fn start_thread(&self, s: &State, core: u16) -> Result<Running, DpifError> {
        let running = self.factory.start(core).map_err(|e| {
            DpifError::Device(format!("cannot start the forwarding thread of core {core}: {e}"))
        })?;
        let (done, answers) = sync_channel(s.ports.iter().count());
        for port in s.ports.iter() {
            match UserspaceDatapath::tx_side(&port.device, &port.upcalls) {
                Ok(side) => {
                    self.request(&running.thread, Control::PortAdd(port.info.number, side, done.clone()))
                }
                // Its device is gone; the port will follow.
                Err(e) => {
                    log::warn!(target: "dpif_netdev", "core {core} cannot send to {}: {e}", port.info.name)
                }
            }
        }
        drop(done);
        answers.iter().for_each(drop);
        log::info!(target: "dpif_netdev", "PMD thread on numa_id: {}, core id: {core:2} created.", self.factory.numa(core).0);
        Ok(running)
    }

    /// Tells all threads how to run, and whether they are bound to their cores if that may change.
    pub(super) fn run_as(&self, s: &mut State, bound: Option<bool>) {
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
                tuning,
                perf_metrics: s.plan.perf_metrics,
                perf_log: s.perf_log,
            };
            self.request(&running.thread, Control::Run(run, done.clone()));
        }
        drop(done);
        answers.iter().for_each(drop);
    }

    /// Makes the threads known to those who send operations.
    fn publish(&self, s: &State, without: &[u16]) {
        let shown = s.running.iter().filter(|(core, _)| !without.contains(core));
        self.threads.store(shown.map(|(_, running)| running.thread.clone()).collect::<Vec<_>>().into());
    }

    fn end_thread(&self, s: &mut State, core: u16) {
        let Some(running) = s.running.remove(&core) else { return };
        let (final_stats, unanswered) = running.stop();
        s.ended.add(&final_stats.stats);
        for (port, stats) in &final_stats.ports {
            if let Some(open) = s.ports.get_mut(*port) {
                open.retired.add(stats);
            }
        }
        self.close_all(final_stats.parts, Vec::new());
        unanswered.into_iter().for_each(|batch| self.without_thread(batch));
        log::info!(target: "dpif_netdev", "PMD thread on numa_id: {}, core id: {core:2} destroyed.", self.factory.numa(core).0);
    }

    /// Shares queues out; `new` are those that nobody has polled yet.
    pub(super) fn replan(&self, s: &mut State, scope: Scope, new: Vec<Rx>) {
        self.place(s, scope, new, &[]);
    }

    /// Shares queues out among the threads, without those of some cores.
    fn place(&self, s: &mut State, scope: Scope, new: Vec<Rx>, without: &[u16]) {
        let threads: Vec<Place> =
            s.running.iter().filter(|(core, _)| !without.contains(core)).map(|(_, r)| r.place()).collect();
        let by_load = match s.plan.assign {
            RxqAssign::RoundRobin => false,
            RxqAssign::Cycles => scope == Scope::All,
            RxqAssign::Group => true,
        };
        let loads = if by_load { queue_loads(&self.loads(s)) } else { BTreeMap::new() };
        let kept = if scope == Scope::New { s.placed.core.clone() } else { BTreeMap::new() };
        let after = assign(&threads, &queues(&s.ports, &loads), &kept, Policy::of(&s.plan));
        tell(s, &after);
        self.move_queues(s, &after, new);
        s.placed = after;
    }

    /// Takes queues from where they are and gives them to where they are to be.
    fn move_queues(&self, s: &State, after: &Assignment, new: Vec<Rx>) {
        let mut takes: BTreeMap<u16, Vec<QueueId>> = BTreeMap::new();
        for (id, core) in &s.placed.core {
            if after.core.get(id) != Some(core) {
                takes.entry(*core).or_default().push(*id);
            }
        }
        let mut taken = self.take(s, takes);
        taken.queues.extend(new);
        let mut gives: BTreeMap<u16, Handover> = BTreeMap::new();
        for rx in taken.queues {
            if let Some(core) = after.core.get(&rx.id()) {
                gives.entry(*core).or_default().queues.push(rx);
            }
        }
        for flow in &taken.flows {
            let gets = |give: &&mut Handover| give.queues.iter().any(|rx| rx.port == flow.key.in_port());
            gives.values_mut().filter(gets).for_each(|give| give.flows.push(flow.clone()));
        }
        let (done, answers) = sync_channel(gives.len());
        for (core, give) in gives {
            if let Some(running) = s.running.get(&core) {
                self.request(&running.thread, Control::Give(give, done.clone()));
            }
        }
        drop(done);
        answers.iter().for_each(drop);
        if !taken.flows.is_empty() {
            self.inline.flows_moved();
        }
    }

    fn take(&self, s: &State, takes: BTreeMap<u16, Vec<QueueId>>) -> Handover {
        let (reply, answers) = sync_channel(takes.len());
        for (core, ids) in takes {
            if let Some(running) = s.running.get(&core) {
                self.request(&running.thread, Control::Take(ids, reply.clone()));
            }
        }
        drop(reply);
        let mut all = Handover::default();
        for part in answers {
            all.queues.extend(part.queues);
            all.flows.extend(part.flows);
        }
        all
    }

    /// What the threads spent their time on, by core.
    fn loads(&self, s: &State) -> BTreeMap<u16, ThreadLoad> {
        let asked = s.running.iter().map(|(core, running)| {
            let load = self.ask(std::iter::once(&running.thread), Control::Load).pop();
            load.map(|load| (*core, load))
        });
        asked.flatten().collect()
    }

    /// Shares all queues out anew, by what they cost now.
    pub(crate) fn rebalance(&self) {
        let s = &mut *lock(&self.state);
        self.replan(s, Scope::All, Vec::new());
    }

    /// Automatic load balance, about once a second.
    pub(super) fn balance(&self) {
        let s = &mut *lock(&self.state);
        let now_us = sys::clock::machine_us();
        let interval = (now_us / INTERVAL_US).saturating_sub(1);
        if !s.plan.balance.enabled || !s.balancer.wants(interval) {
            return;
        }
        let loads = self.loads(s);
        let busy: Vec<Busy> = loads
            .iter()
            .map(|(core, load)| {
                let (busy, total) = (load.busy.in_interval(interval), load.total.in_interval(interval));
                Busy { core: *core, percent: busy as f64 * 100.0 / total.max(1) as f64 }
            })
            .collect();
        let set = s.plan.balance;
        if !s.balancer.observe(interval, now_us, &busy, &set) {
            return;
        }
        let threads: Vec<Place> = s.running.values().map(Running::place).collect();
        let queues = queues(&s.ports, &queue_loads(&loads));
        let Some(tried) = dry_run(&threads, &queues, &s.placed, Policy::of(&s.plan)) else { return };
        let (gain, wanted) = (tried.improvement_percent(), f64::from(set.improvement_threshold_percent));
        log::info!(
            target: "dpif_netdev",
            "automatic load balance: variance of loads {:.0}, {:.0} after a dry run ({gain:.0} % less, {wanted:.0} % are needed)",
            tried.current, tried.estimate
        );
        if gain >= wanted {
            self.replan(s, Scope::All, Vec::new());
        }
    }

    /// Applies options of a port that concern its receive queues: their number, and the cores that they are pinned to.
    ///
    /// # Errors
    /// The device cannot be opened anew with that many queues; it receives nothing then.
    pub(crate) fn port_rx_update(
        &self,
        port: DpPort,
        options: &PortOptions,
        affinity: &RxqAffinity,
    ) -> Result<(), DpifError> {
        let s = &mut *lock(&self.state);
        let open = s.ports.get_mut(port).ok_or(DpifError::NotFound("port"))?;
        let resize = match (&open.spec.options, options) {
            (PortOptions::System(is), PortOptions::System(wanted)) => is.n_rxq != wanted.n_rxq,
            _ => false,
        };
        if !resize && open.affinity == *affinity {
            return Ok(());
        }
        open.affinity.clone_from(affinity);
        open.spec.options = options.clone();
        let new = if resize { self.reopen(s, port)? } else { Vec::new() };
        self.replan(s, Scope::All, new);
        Ok(())
    }

    /// Closes the receive queues of a port and opens them anew. The port itself stays.
    fn reopen(&self, s: &mut State, port: DpPort) -> Result<Vec<Rx>, DpifError> {
        let mut takes: BTreeMap<u16, Vec<QueueId>> = BTreeMap::new();
        for (id, core) in s.placed.core.iter().filter(|(id, _)| id.port == port) {
            takes.entry(*core).or_default().push(*id);
        }
        let mut taken = self.take(s, takes);
        taken.queues.extend(self.main.take(port));
        s.placed.core.retain(|id, _| id.port != port);
        let open = s.ports.get_mut(port).ok_or(DpifError::NotFound("port"))?;
        taken.queues.iter().for_each(|rx| rx.add_losses(&mut open.retired));
        open.queues = 0;
        // The old ones first: a group of sockets takes no others.
        drop(taken);
        let Opened { mut device, .. } = self.open(&open.spec)?;
        let queues = numbered(port, std::mem::take(&mut device.rx));
        open.device = device;
        if open.inline {
            self.main.give(queues)?;
            return Ok(Vec::new());
        }
        open.queues = queues.len() as u16;
        Ok(queues)
    }

    /// The threads with what they polled and did in the last `intervals` intervals of 5 s.
    pub(crate) fn thread_infos(&self, intervals: usize) -> Vec<ThreadInfo> {
        let s = &*lock(&self.state);
        let loads = self.loads(s);
        let shown = s.running.keys().map(|core| {
            let load = loads.get(core);
            let total = load.map_or(0.0, |l| l.total.rate(l.now_us, intervals));
            let share = |rate: f64| (total > 0.0).then_some(rate / total);
            let queues = s.placed.core.iter().filter(|(_, at)| *at == core).map(|(id, _)| {
                let history = load.and_then(|l| Some((l, l.queues.iter().find(|(q, _)| q == id)?.1)));
                QueueInfo {
                    port: s.ports.get(id.port).map(|p| p.info.name.clone()).unwrap_or_default(),
                    queue: id.queue,
                    usage: history.and_then(|(l, history)| share(history.rate(l.now_us, intervals))),
                }
            });
            ThreadInfo {
                core: *core,
                numa: self.factory.numa(*core),
                isolated: s.placed.isolated.contains(core),
                sleep_max_us: s.plan.sleep.of(*core),
                queues: queues.collect(),
                busy: load.and_then(|l| share(l.busy.rate(l.now_us, intervals))),
            }
        });
        shown.collect()
    }

    /// The queues of a datapath whose ports the main loop polls, as no thread does; `None` where there are threads.
    pub(crate) fn main_queues(&self) -> Option<Vec<QueueInfo>> {
        if self.has_threads() {
            return None;
        }
        let s = &*lock(&self.state);
        let name = |id: &QueueId| s.ports.get(id.port).map(|p| p.info.name.clone()).unwrap_or_default();
        let queues = self.main.queues();
        Some(queues.iter().map(|id| QueueInfo { port: name(id), queue: id.queue, usage: None }).collect())
    }
}

/// What each queue cost in the last minute, in percent of its thread.
fn queue_loads(loads: &BTreeMap<u16, ThreadLoad>) -> BTreeMap<QueueId, f64> {
    let of = |l: &ThreadLoad| {
        let total = l.total.rate(l.now_us, INTERVALS);
        let percent = |rate: f64| if total > 0.0 { rate * 100.0 / total } else { 0.0 };
        l.queues.iter().map(|(id, h)| (*id, percent(h.rate(l.now_us, INTERVALS)))).collect::<Vec<_>>()
    };
    loads.values().flat_map(of).collect()
}

/// The queues that threads poll.
fn queues(ports: &Ports, loads: &BTreeMap<QueueId, f64>) -> Vec<Queue> {
    let of = |port: &ports::OpenPort| {
        let queue = |queue: u16| {
            let id = QueueId { port: port.info.number, queue };
            Queue {
                id,
                numa: port.dummy.as_ref().map_or(Numa::default(), |d| Numa(d.numa_id() as u16)),
                load: loads.get(&id).copied().unwrap_or(0.0),
                pinned: port.affinity.get(&queue).copied(),
            }
        };
        (0..port.queues).map(queue).collect::<Vec<_>>()
    };
    ports.iter().flat_map(of).collect()
}

/// Tells the operator what changes.
fn tell(s: &State, after: &Assignment) {
    let name = |id: &QueueId| s.ports.get(id.port).map_or("?", |p| &p.info.name);
    for note in after.notes.difference(&s.placed.notes) {
        match note {
            Note::NoThread(id, core) => log::warn!(
                target: "dpif_netdev",
                "port '{}' rx queue {} is pinned to core {core}, which has no thread (pmd-cpu-mask): another one polls it",
                name(id), id.queue
            ),
            Note::AllIsolated(id) => log::warn!(
                target: "dpif_netdev",
                "every thread is isolated by pinned queues: port '{}' rx queue {} is polled by one of them all the same",
                name(id), id.queue
            ),
        }
    }
    for (id, core) in &after.core {
        if s.placed.core.get(id) != Some(core) {
            let pinned = s.ports.get(id.port).is_some_and(|p| p.affinity.get(&id.queue) == Some(core));
            let how = if pinned { "is pinned with" } else { "assigned" };
            log::info!(
                target: "dpif_netdev",
                "Core {core:2} on numa node {} {how} port '{}' rx queue {}",
                s.running.get(core).map_or(0, |r| r.numa.0), name(id), id.queue
            );
        }
    }
}
