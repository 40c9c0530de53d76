//! Placement of receive queues on forwarding threads while packets flow.
//!
//! A queue moves by message: the old thread gives it back, the new one takes it. A queue is without a thread only
//! during its move, and its frames wait in the queue meanwhile. Adding or removing a port moves no queues of others;
//! settings, `pmd-rxq-rebalance` and automatic load balance place all queues anew.

use super::announce::{self, Placed};
use super::cores::Cores;
use super::inbox::{Control, Handover, ThreadLoad};
use super::plan::QueueId;
use super::plan::assign::{Assignment, Note, Policy, Queue, Thread as Place, assign};
use super::plan::balance::{Balancer, Busy, dry_run};
use super::plan::load::{INTERVAL_US, INTERVALS};
use super::ports::{OpenPort, Ports};
use super::queues::Rx;
use super::threads::Running;
use dpif::{InlineHandler, Numa, RxqAssign, ThreadPlan};
use flow::DpPort;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::sync_channel;

/// Set of movable queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// Unpolled queues, and those that may not stay where they are.
    New,
    /// All.
    All,
}

/// Threads and ports of a placement.
pub(super) struct Fleet<'a> {
    pub(super) cores: &'a Cores,
    /// By core.
    pub(super) running: &'a BTreeMap<u16, Running>,
    pub(super) ports: &'a Ports,
    pub(super) plan: &'a ThreadPlan,
    /// Receives flows that move with their queues.
    pub(super) inline: &'a dyn InlineHandler,
}

impl Fleet<'_> {
    fn take(&self, takes: BTreeMap<u16, Vec<QueueId>>) -> Handover {
        let (reply, answers) = sync_channel(takes.len());
        for (core, ids) in takes {
            if let Some(running) = self.running.get(&core) {
                self.cores.request(&running.thread, Control::Take(ids, reply.clone()));
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

    /// Cycles of the threads, by core.
    pub(super) fn loads(&self) -> BTreeMap<u16, ThreadLoad> {
        let asked = self.running.iter().map(|(core, running)| {
            let load = self.cores.ask(std::iter::once(&running.thread), Control::Load).pop();
            load.map(|load| (*core, load))
        });
        asked.flatten().collect()
    }
}

/// Current thread of each receive queue.
#[derive(Default)]
pub(super) struct Placement {
    placed: Assignment,
    balancer: Balancer,
}

impl Placement {
    /// Places queues on the threads, except those of the cores `without`; `new` are unpolled queues.
    pub(super) fn place(&mut self, fleet: &Fleet<'_>, scope: Scope, new: Vec<Rx>, without: &[u16]) {
        let threads: Vec<Place> = fleet
            .running
            .iter()
            .filter(|(core, _)| !without.contains(core))
            .map(|(_, running)| running.place())
            .collect();
        let by_load = match fleet.plan.assign {
            RxqAssign::RoundRobin => false,
            RxqAssign::Cycles => scope == Scope::All,
            RxqAssign::Group => true,
        };
        let loads = if by_load { fleet.loads() } else { BTreeMap::new() };
        let kept = if scope == Scope::New { self.placed.core.clone() } else { BTreeMap::new() };
        let after =
            assign(&threads, &queues(fleet.ports, &queue_loads(&loads)), &kept, Policy::of(fleet.plan));
        self.log_notes(fleet, &after);
        let placed = |(id, core): (&QueueId, &u16)| {
            (scope == Scope::All || self.placed.core.get(id) != Some(core)).then_some((*id, *core))
        };
        log_placement(fleet, after.core.iter().filter_map(placed), &loads);
        self.move_queues(fleet, &after, new);
        self.placed = after;
    }

    /// Moves queues from their current to their new threads.
    fn move_queues(&self, fleet: &Fleet<'_>, after: &Assignment, new: Vec<Rx>) {
        let mut takes: BTreeMap<u16, Vec<QueueId>> = BTreeMap::new();
        for (id, core) in &self.placed.core {
            if after.core.get(id) != Some(core) {
                takes.entry(*core).or_default().push(*id);
            }
        }
        let mut taken = fleet.take(takes);
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
            if let Some(running) = fleet.running.get(&core) {
                fleet.cores.request(&running.thread, Control::Give(give, done.clone()));
            }
        }
        drop(done);
        answers.iter().for_each(drop);
        if !taken.flows.is_empty() {
            fleet.inline.flows_moved();
        }
    }

    /// Threads of the receive queues of a port.
    pub(super) fn cores_of(&self, port: DpPort) -> BTreeSet<u16> {
        self.placed.core.iter().filter(|(id, _)| id.port == port).map(|(_, core)| *core).collect()
    }

    /// Gives receive queues that no thread polls to their threads.
    pub(super) fn resume(&mut self, fleet: &Fleet<'_>, queues: Vec<Rx>) {
        let placed = std::mem::take(&mut self.placed);
        self.move_queues(fleet, &placed, queues);
        self.placed = placed;
    }

    /// Automatic load balance, about once a second.
    pub(super) fn balance(&mut self, fleet: &Fleet<'_>) {
        let now_us = sys::clock::machine_us();
        let interval = (now_us / INTERVAL_US).saturating_sub(1);
        if !fleet.plan.balance.enabled || !self.balancer.wants(interval) {
            return;
        }
        let loads = fleet.loads();
        let busy: Vec<Busy> = loads
            .iter()
            .map(|(core, load)| {
                let (busy, total) = (load.busy.in_interval(interval), load.total.in_interval(interval));
                Busy { core: *core, percent: busy as f64 * 100.0 / total.max(1) as f64 }
            })
            .collect();
        let set = fleet.plan.balance;
        if !self.balancer.observe(interval, now_us, &busy, &set) {
            return;
        }
        let threads: Vec<Place> = fleet.running.values().map(Running::place).collect();
        let queues = queues(fleet.ports, &queue_loads(&loads));
        log::debug!(target: "dpif_netdev", "PMD auto load balance performing dry run.");
        let Some(tried) = dry_run(&threads, &queues, &self.placed, Policy::of(fleet.plan)) else { return };
        let (gain, wanted) = (tried.improvement_percent(), f64::from(set.improvement_threshold_percent));
        log::debug!(
            target: "dpif_netdev",
            "Numa node 0. Current variance {:.0} Estimated variance {:.0}. Variance improvement {gain:.0}%.",
            tried.current, tried.estimate
        );
        let met = if gain >= wanted { "met" } else { "not met" };
        log::debug!(target: "dpif_netdev", "PMD load variance improvement threshold {wanted:.0}% is {met}.");
        if gain >= wanted {
            log::info!(
                target: "dpif_netdev",
                "PMD auto load balance dry run. Requesting datapath reconfigure."
            );
            self.place(fleet, Scope::All, Vec::new(), &[]);
        }
    }

    /// Restart the measurement for the next balance: the threads have changed.
    pub(super) fn restart_balance(&mut self) {
        self.balancer = Balancer::default();
    }

    /// Takes the queues of a port from the threads.
    pub(super) fn take_port(&mut self, fleet: &Fleet<'_>, port: DpPort) -> Vec<Rx> {
        let mut takes: BTreeMap<u16, Vec<QueueId>> = BTreeMap::new();
        for (id, core) in self.placed.core.iter().filter(|(id, _)| id.port == port) {
            takes.entry(*core).or_default().push(*id);
        }
        self.forget(port);
        fleet.take(takes).queues
    }

    /// Forgets the queues of a port.
    pub(super) fn forget(&mut self, port: DpPort) {
        self.placed.core.retain(|id, _| id.port != port);
    }

    /// Pinned queues isolate their threads from others.
    pub(super) fn isolates(&self) -> bool {
        !self.placed.isolated.is_empty()
    }

    /// Whether the thread of a core polls pinned queues only.
    pub(super) fn is_isolated(&self, core: u16) -> bool {
        self.placed.isolated.contains(&core)
    }

    /// The queues that the thread of a core polls.
    pub(super) fn queues_of(&self, core: u16) -> impl Iterator<Item = QueueId> + '_ {
        self.placed.core.iter().filter(move |(_, at)| **at == core).map(|(id, _)| *id)
    }

    /// Logs new warnings for the operator.
    fn log_notes(&self, fleet: &Fleet<'_>, after: &Assignment) {
        let name = |id: &QueueId| fleet.ports.get(id.port).map_or("?", |p| &p.info.name);
        for note in after.notes.difference(&self.placed.notes) {
            match note {
                Note::NoThread(id, core) => log::warn!(
                    target: "dpif_netdev",
                    "Core {core:2} cannot be pinned with port '{}' rx queue {}. Use pmd-cpu-mask to enable a pmd on core \
                     {core}. An alternative core will be assigned.",
                    name(id), id.queue
                ),
                Note::AllIsolated(id) => log::warn!(
                    target: "dpif_netdev",
                    "every thread is isolated by pinned queues: port '{}' rx queue {} is polled by one of them all the same",
                    name(id), id.queue
                ),
            }
        }
    }
}

/// Logs these placed queues for the operator.
fn log_placement(
    fleet: &Fleet<'_>,
    queues: impl Iterator<Item = (QueueId, u16)>,
    loads: &BTreeMap<u16, ThreadLoad>,
) {
    let cycles: BTreeMap<QueueId, u64> = loads
        .values()
        .flat_map(|load| load.queues.iter().map(|(id, h)| (*id, h.total(load.now_us))))
        .collect();
    let placed = queues.filter_map(|(id, core)| {
        let port = fleet.ports.get(id.port)?;
        Some(Placed {
            id,
            port: &port.info.name,
            core,
            numa: fleet.running.get(&core).map_or(Numa::default(), |r| r.numa),
            is_pinned: port.affinity.get(&id.queue) == Some(&core),
            cycles: cycles.get(&id).copied().unwrap_or_default(),
        })
    });
    announce::placement(fleet.plan.assign, &placed.collect::<Vec<_>>());
}

/// Cost of each queue in the last minute, in percent of its thread.
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
    let of = |port: &OpenPort| {
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
