//! The whole switch: datapath, slow path, controller and traffic, and the schedule that picks the next actor.

mod at_once;
mod control;
mod ports;

pub(crate) use ports::{add_port, fuzz_ports};

use crate::dp::{DpConfig, SimDatapath};
use crate::fragments::Cut;
use crate::frames::{HOSTS, Mark, compose, compose_text, mac, random_announcement, random_key};
use crate::report::{Broken, Invariant, Report};
use crate::rng::Rng;
use crate::rules::{self, METERS, Profile};
use dpif::{
    CtRefusal, Datapath, DpifOp, DropReason, Execute, FlowStats, MeterBand, MeterConfig, OpBatch, OpResult,
    PmdId, PutMode, Upcall, UpcallKind, UserCookie,
};
use flow::extract::Metadata;
use flow::{DpPort, OfPort, TableId, Ufid};
use ofp_actions::{Action, Output};
use ofproto::backer::Backer;
use ofproto::events::RemovedReason;
use ofproto::ports::{BridgeId, PortConfigBits, PortCounters};
use ofproto::revalidate::{Helper, Replies, ReplyQueue, Revalidator};
use ofproto::rule::Rule;
use ofproto::upcall;
use ofproto::xlate::{Request, Start, translate};
use packet::Packet;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sync::Ordering;

/// Physical ports of the first bridge.
const FIRST_PORTS: u32 = 4;
/// Physical ports of both bridges.
const ALL_PORTS: u32 = 6;
/// OpenFlow number of the patch port of each bridge.
const PATCH: OfPort = OfPort(7);

struct HandlerState {
    stalled_until: u64,
    replies: Arc<Replies>,
    sink: Arc<dyn dpif::ReplySink>,
    puts: HashMap<u64, Vec<(usize, Ufid)>>,
    next_tag: u64,
}

/// Counts for the checks, beside the datapath's own.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) answered: u64,
    pub(crate) to_controllers: u64,
    pub(crate) packet_ins: u64,
    pub(crate) packet_outs: u64,
    pub(crate) table_outs: u64,
    pub(crate) first_pass_misses: u64,
    pub(crate) flow_limit_reached: u64,
}

/// Parameters of a run, drawn from its seed.
struct Scenario {
    dp: DpConfig,
    ordered: bool,
    port_changes: bool,
    link_changes: bool,
    flood: Option<DpPort>,
    flow_limit: u64,
    mac_limit: usize,
    mac_idle_s: u32,
    stalls: bool,
    max_idle_ms: u64,
    handlers: usize,
}

/// See the module.
pub(crate) struct World {
    pub(crate) dp: Arc<SimDatapath>,
    pub(crate) backer: Backer,
    pub(crate) revalidator: Revalidator,
    /// Its further threads.
    helpers: Vec<Arc<Helper>>,
    pub(crate) rng: Rng,
    pub(crate) counts: Counts,
    pub(crate) report: Report,
    scenario: Scenario,
    handlers: Vec<HandlerState>,
    bridges: [BridgeId; 2],
    patches: [Arc<PortCounters>; 2],
    vlan_modes: [u8; ALL_PORTS as usize],
    port_configs: [PortConfigBits; ALL_PORTS as usize],
    /// For each core, the step until which it ignores its messages; likewise the revalidator.
    stalled_cores: Vec<u64>,
    revalidator_stalled_until: u64,
    up: BTreeMap<DpPort, OfPort>,
    profile: Profile,
    broken: Option<Broken>,
    next_number: u64,
    version: u8,
    half_bundle: Option<Rule>,
    /// Fragments under way to the switch.
    cut: Cut,
    now_us: u64,
    next_second_us: u64,
    seen_epoch: u64,
    changed_us: u64,
    step: u64,
}

fn scenario(rng: &mut Rng, broken: Option<Broken>) -> Scenario {
    let small = rng.one_in(3);
    let ordered = rng.one_in(2) || broken == Some(Broken::Reordered);
    let flow_limit = match small && !ordered {
        true => rng.range(4, 40),
        false => *rng.pick(&[400, 5000]),
    };
    let handlers = rng.range(1, 2) as usize;
    let dp = DpConfig {
        cores: rng.range(1, 3) as u16,
        handlers,
        inbox_batches: if small { 4 } else { 64 },
        misses_per_port: if small { 12 } else { 128 },
        actions_per_port: if small { 8 } else { 64 },
        flow_limit_hard: if small && !ordered { 30 } else { 10_000 },
        cache_entries: *rng.pick(&[0, 256, 4096]),
        parked_per_ticket: if small { 3 } else { 16 },
        parked: if small { 12 } else { 256 },
        check_order: ordered,
        connections: None,
        fragments: None,
        broken,
    };
    Scenario {
        dp,
        ordered,
        port_changes: rng.one_in(3),
        link_changes: rng.one_in(3),
        flood: rng.one_in(2).then(|| DpPort(rng.range(1, ALL_PORTS.into()) as u32)),
        flow_limit,
        mac_limit: *rng.pick(&[4, 8192, 8192]),
        mac_idle_s: *rng.pick(&[15, 60, 300]),
        stalls: rng.one_in(2),
        max_idle_ms: *rng.pick(&[500, 3000, 10_000]),
        handlers,
    }
}

fn reply_sink() -> (Arc<Replies>, Arc<dyn dpif::ReplySink>) {
    let replies = Arc::new(Replies::default());
    (replies.clone(), Arc::new(ReplyQueue::new(replies, || {})))
}

impl World {
    pub(crate) fn new(seed: u64, broken: Option<Broken>) -> World {
        let mut rng = Rng::new(seed);
        let mut scenario = scenario(&mut rng, broken);
        // The first packet of a connection takes another way than the next ones, which may overtake it.
        let wanted = broken.is_none() || broken == Some(Broken::ForgottenConnections);
        if wanted && !scenario.ordered && rng.one_in(2) {
            scenario.dp.connections = Some(*rng.pick(&[12, 1000]));
            scenario.dp.fragments = (seed % 5 < 2).then(|| *rng.pick(&[12, 200]));
        }
        let mut backer = Backer::new(seed);
        backer.rewrite = Some(Box::new(datapath::rewrite));
        if broken == Some(Broken::NoShares) {
            backer.limits.kept_for_ports_percent.store(0, Ordering::Relaxed);
        }
        let unlimited = broken == Some(Broken::NoFlowLimit);
        let flow_limit = if unlimited { u64::MAX } else { scenario.flow_limit };
        backer.limits.set_flow_limit(flow_limit);
        backer.limits.max_idle_ms.store(scenario.max_idle_ms, Ordering::Relaxed);
        let bridges = [backer.add_bridge("first"), backer.add_bridge("second")];
        let (replies, sink) = reply_sink();
        let handler = |_| {
            let (replies, sink) = reply_sink();
            HandlerState { stalled_until: 0, replies, sink, puts: HashMap::new(), next_tag: 0 }
        };
        let mut world = World {
            dp: Arc::new(SimDatapath::new(scenario.dp.clone(), seed)),
            revalidator: Revalidator::new(replies, sink),
            helpers: (0..seed % 3).map(|_| Arc::new(Helper::new(Box::new(|| {})))).collect(),
            counts: Counts::default(),
            report: Report { seed, ..Report::default() },
            handlers: (0..scenario.handlers).map(handler).collect(),
            bridges,
            patches: [Arc::default(), Arc::default()],
            vlan_modes: std::array::from_fn(|_| rng.below(9) as u8),
            port_configs: Default::default(),
            stalled_cores: vec![0; 1 + usize::from(scenario.dp.cores)],
            revalidator_stalled_until: 0,
            up: BTreeMap::new(),
            profile: Profile {
                ordered: scenario.ordered,
                tracks: scenario.dp.connections.is_some(),
                helps: scenario.dp.connections.is_some() && seed.is_multiple_of(3),
                ports: PATCH.0,
            },
            broken,
            next_number: 1,
            version: 1,
            half_bundle: None,
            cut: Cut::default(),
            now_us: 1_000_000,
            next_second_us: 1_000_000,
            seen_epoch: 0,
            changed_us: 0,
            step: 0,
            scenario,
            backer,
            rng,
        };
        for n in 1..=ALL_PORTS {
            world.port_up(DpPort(n));
        }
        for bridge in world.backer.view().bridges.values() {
            let limit = if broken == Some(Broken::NoMacLimit) { 8192 } else { world.scenario.mac_limit };
            sync::lock(&bridge.macs).configure(world.scenario.mac_idle_s, limit);
        }
        for id in 1..=METERS {
            let bands = vec![MeterBand { rate: 50 * id, burst: 20 }];
            // The ids are in range, so it cannot fail.
            let _ = world.dp.meter_set(id, &MeterConfig { per_packet: id == 1, bands });
            world.bridges.iter().for_each(|b| world.backer.set_meter(*b, id, Some(id)));
        }
        world.initial_rules();
        world.revalidator.set_helpers(world.helpers.clone());
        world.allow_changes_at_once(seed);
        world
    }

    /// Maximum number of flows that the slow path may install.
    pub(crate) fn flow_limit(&self) -> u64 {
        self.scenario.flow_limit
    }

    /// Maximum number of addresses that a bridge may learn.
    pub(crate) fn mac_limit(&self) -> usize {
        self.scenario.mac_limit
    }

    /// Ignores violations of other invariants.
    pub(crate) fn watch_only(&self, invariant: Invariant) {
        self.dp.inner().violations.only = Some(invariant);
    }

    fn initial_rules(&mut self) {
        let now_ms = self.now_ms();
        for bridge in self.bridges {
            self.backer.change_bridge(bridge, |b| {
                for rule in rules::bundle_rules(1, now_ms) {
                    b.tables.insert(Arc::new(rule));
                }
                b.tables.insert(Arc::new(rules::bundle_entry(now_ms)));
                b.tables.insert(Arc::new(rules::fallback(now_ms)));
                if self.profile.tracks {
                    for rule in rules::tracking_rules(&mut self.rng, &self.profile, now_ms) {
                        b.tables.insert(Arc::new(rule));
                    }
                }
            });
        }
        for _ in 0..self.rng.below(25) {
            self.flow_mod();
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    pub(crate) fn violation(&mut self, invariant: Invariant, detail: impl FnOnce() -> String) {
        self.dp.inner().violations.add(invariant, detail);
    }

    /// Milliseconds of undisturbed time without a change of any translation.
    pub(crate) fn settled_for_ms(&self) -> u64 {
        if self.seen_epoch == self.backer.epoch() { (self.now_us - self.changed_us) / 1000 } else { 0 }
    }

    /// Runs for `steps` steps or `virtual_ms` of time, whichever takes longer, then settles.
    pub(crate) fn run(mut self, steps: u64, virtual_ms: u64) -> Report {
        let until_us = self.now_us + virtual_ms * 1000;
        while (self.step < steps || self.now_us < until_us) && self.dp.inner().violations.list.is_empty() {
            self.run_traffic(self.step + 300);
            self.settle();
        }
        if self.dp.inner().violations.list.is_empty() {
            self.shut_down();
        }
        self.sum_up();
        self.report
    }

    fn sum_up(&mut self) {
        let view = self.backer.view();
        let meter_drops =
            |id| -> u64 { self.dp.meter_stats(id).map_or(0, |s| s.bands.iter().map(|b| b.packets).sum()) };
        let metered = (1..=METERS).map(meter_drops).sum();
        let mut inner = self.dp.inner();
        let r = &mut self.report;
        r.violations = std::mem::take(&mut inner.violations.list);
        (r.received, r.sent) = (inner.totals.offered, inner.totals.sent);
        (r.flows_put, r.upcalls) = (inner.totals.flows_put, inner.upcall_queues.taken);
        r.elapsed_ms = self.now_us / 1000 - 1000;
        let w = &mut r.coverage;
        for bridge in view.bridges.values() {
            let macs = sync::lock(&bridge.macs).stats;
            (w.macs_aged, w.macs_evicted) = (w.macs_aged + macs.expired, w.macs_evicted + macs.evicted);
            w.macs_moved += macs.moved;
        }
        w.metered = metered;
        (w.packet_ins, w.packet_outs) = (self.counts.packet_ins, self.counts.packet_outs);
        w.flows_ended = inner.totals.flows_ended;
        (w.upcalls_refused, w.inbox_full) = (inner.upcall_queues.refused, inner.totals.inbox_full);
        let overflow = DropReason::ParkedOverflow as usize;
        w.parked_overflow = inner.cores.iter().map(|c| c.pmd.stats().drops[overflow]).sum();
        w.cores = self.scenario.dp.cores.into();
        w.flow_limit_reached = self.counts.flow_limit_reached;
        let (tracked, outcomes) = (self.dp.tracker_counts().unwrap_or_default(), inner.tracking.outcomes);
        (w.connections, w.connections_ended) = (tracked.created, tracked.ended);
        w.connections_compared = if inner.tracking.differs { 0 } else { tracked.created };
        let refused = |why: CtRefusal| tracked.refused[why as usize];
        w.connections_full = refused(CtRefusal::Full) + refused(CtRefusal::PortShare);
        w.no_tuple = refused(CtRefusal::NatExhausted);
        (w.established, w.tracked_replies) = (outcomes.established, outcomes.replies);
        let held = inner.fragments_left;
        (w.datagrams, w.fragments_late) = (inner.arrived.complete, held.late);
        (w.fragments_completed, w.fragments_refused) = (held.completed, held.refused);
        w.fragments_compared = if inner.tracking.differs { 0 } else { held.completed };
        (w.expected, w.related) = (outcomes.expected, outcomes.related);
        (w.translated, w.translated_back) = (outcomes.translated, outcomes.translated_back);
    }

    /// Runs traffic, changes and all threads.
    fn run_traffic(&mut self, until: u64) {
        while self.step < until && self.dp.inner().violations.list.is_empty() {
            match self.rng.below(24) {
                0..=5 => self.traffic(),
                6 => self.control(),
                7 if self.rng.one_in(20) => self.jump(),
                7 if self.scenario.stalls && self.rng.one_in(8) => self.stall(),
                7 => self.packet_out(),
                8 => self.check_megaflow(),
                _ => self.run_thread(),
            }
            if self.rng.one_in(40) {
                self.check_staleness();
                self.check_conservation();
                self.check_table_bounds();
                self.dp.check_tracking();
            }
            let more = if self.rng.one_in(3) { self.rng.below(4000) } else { 0 };
            self.advance(more);
        }
    }

    /// Runs without packets and changes: then flows follow the tables and counters are complete.
    fn settle(&mut self) {
        self.finish_bundle();
        for _ in 0..4000 {
            self.run_thread();
            let more = self.rng.below(8000);
            self.advance(more);
            if !self.dp.inner().violations.list.is_empty() {
                return;
            }
            if self.settled_for_ms() > 2000 && self.dp.inner().is_quiet() && self.revalidator.is_idle() {
                break;
            }
        }
        if !self.check_staleness() {
            return;
        }
        for _ in 0..10 {
            self.check_megaflow();
        }
        self.check_conservation();
        self.dp.inner().check_counters();
        let all_received = !self.scenario.port_changes && !self.scenario.link_changes;
        if all_received && self.dp.inner().is_quiet() && self.wait_for_round() {
            self.check_statistics();
        }
    }

    /// Waits for a whole round of revalidation that starts now, because a stalled revalidator looks idle,
    /// too. `false`: it took too long.
    fn wait_for_round(&mut self) -> bool {
        let begun = self.revalidator.rounds();
        for _ in 0..4000 {
            if self.revalidator.stats.rounds > begun && self.dp.inner().is_quiet() {
                return true;
            }
            self.run_thread();
            let more = self.rng.below(8000);
            self.advance(more);
        }
        false
    }

    fn shut_down(&mut self) {
        self.finish_bundle();
        let until_us = self.now_us + (self.scenario.max_idle_ms + 8000) * 1000;
        while self.now_us < until_us {
            self.run_thread();
            let more = self.rng.below(12_000);
            self.advance(more);
        }
        self.check_conservation();
        self.check_leaks();
        self.dp.check_expiry();
    }

    fn advance(&mut self, more_us: u64) {
        self.now_us += more_us;
        self.step += 1;
        let second = self.now_us >= self.next_second_us;
        {
            let mut inner = self.dp.inner();
            (inner.now_us, inner.violations.step) = (self.now_us, self.step);
            for core in 0..inner.cores.len() {
                if second {
                    inner.tick(core);
                }
            }
        }
        if second {
            self.next_second_us = self.now_us + 1_000_000;
            self.backer.expire(self.now_ms());
            self.dp.expire_connections();
        }
        if self.seen_epoch != self.backer.epoch() || self.any_stalled() {
            (self.seen_epoch, self.changed_us) = (self.backer.epoch(), self.now_us);
        }
        self.check_bounds();
    }

    /// Stalls one of the threads, as if the scheduler did not run it.
    fn stall(&mut self) {
        self.report.coverage.stalls += 1;
        let until = self.step + self.rng.range(20, 250);
        match self.rng.below(3) {
            0 => {
                let n = self.rng.below(self.handlers.len() as u64) as usize;
                self.handlers[n].stalled_until = until;
            }
            1 => {
                let n = self.rng.below(self.stalled_cores.len() as u64) as usize;
                self.stalled_cores[n] = until;
            }
            _ => self.revalidator_stalled_until = until,
        }
    }

    fn any_stalled(&self) -> bool {
        let until = self.handlers.iter().map(|h| h.stalled_until).chain(self.stalled_cores.iter().copied());
        until.chain([self.revalidator_stalled_until]).any(|until| self.step < until)
    }

    fn jump(&mut self) {
        self.report.coverage.jumps += 1;
        let seconds = self.rng.range(1, 30);
        self.now_us += seconds * 1_000_000;
        // No thread ran meanwhile.
        self.changed_us = self.now_us;
    }

    /// Runs a step of one of the threads.
    fn run_thread(&mut self) {
        match self.rng.below(10) {
            0..=2 => self.handler(),
            3..=5 => {
                let core = self.rng.below(1 + u64::from(self.scenario.dp.cores)) as usize;
                for _ in 0..self.rng.range(1, 6) {
                    if self.step >= self.stalled_cores[core] {
                        self.dp.inner().work(core);
                    }
                }
            }
            6..=7 => {
                let core = self.rng.below(1 + u64::from(self.scenario.dp.cores)) as usize;
                for _ in 0..self.rng.range(1, 4) {
                    let reply = self.dp.inner().reply(core);
                    let Some((sink, tag, results)) = reply else { break };
                    let pmd = self.dp.pmds()[core];
                    sink.done(pmd, tag, results);
                }
            }
            8 if self.step < self.revalidator_stalled_until => {}
            8 if self.broken != Some(Broken::NoRevalidation) => {
                let now_ms = self.now_ms();
                self.revalidator.poll(&self.backer, &*self.dp, now_ms);
                for helper in &self.helpers {
                    for _ in 0..self.rng.below(4) {
                        helper.work(&self.backer, now_ms);
                    }
                }
            }
            8 => {}
            _ => {
                self.change_at_once();
                self.counts.packet_ins += self.backer.route_packet_ins(usize::MAX, drop) as u64;
                for bridge in self.backer.view().bridges.keys() {
                    while let Some(removed) = self.backer.events.take_removed(*bridge) {
                        match removed.reason {
                            RemovedReason::Idle => self.report.coverage.rules_idle += 1,
                            RemovedReason::Hard => self.report.coverage.rules_hard += 1,
                            _ => {}
                        }
                    }
                }
            }
        }
    }

    fn handler(&mut self) {
        let n = self.rng.below(self.handlers.len() as u64) as usize;
        let h = &mut self.handlers[n];
        if self.step < h.stalled_until {
            return;
        }
        while let Some((pmd, tag, results)) = h.replies.pop() {
            for (i, ufid) in h.puts.remove(&tag).unwrap_or_default() {
                let installed = results.get(i).is_some_and(|r| !matches!(r, OpResult::Failed(_)));
                upcall::put_done(&self.backer, pmd, ufid, installed);
            }
        }
        let mut upcalls = {
            let inner = &mut *self.dp.inner();
            inner.upcall_queues.take(n, &mut inner.violations)
        };
        if self.broken == Some(Broken::LostUpcall) && self.rng.one_in(10) {
            upcalls.pop();
        }
        self.count_upcalls(&upcalls);
        let before = self.flows_by_port(&upcalls);
        let ops = upcall::handle(&self.backer, upcalls, self.now_ms());
        self.check_shares(&before, &ops);
        for (pmd, ops) in ops {
            self.counts.answered += ops.iter().filter(|op| matches!(op, DpifOp::Execute(_))).count() as u64;
            self.operate(n, pmd, ops);
        }
    }

    fn count_upcalls(&mut self, upcalls: &[Box<Upcall>]) {
        for upcall in upcalls {
            match upcall.kind {
                UpcallKind::Miss if upcall.key.base.recirc_id == 0 => {
                    self.counts.first_pass_misses += 1;
                    if self.broken == Some(Broken::CountedTwice) {
                        let view = self.backer.view();
                        let table = view.bridge(self.bridges[0]).and_then(|b| b.tables.table(TableId(0)));
                        table.inspect(|t| t.counters.credit(true, 1));
                    }
                }
                UpcallKind::Miss => self.report.coverage.recirculated += 1,
                UpcallKind::Action(UserCookie::Controller(_)) => self.counts.to_controllers += 1,
                UpcallKind::Action(UserCookie::SlowPath { .. }) => self.report.coverage.slow += 1,
                // Its bridges have no exporters.
                UpcallKind::Action(
                    UserCookie::Sflow(_) | UserCookie::Ipfix(_) | UserCookie::FlowSample(_),
                ) => {}
            }
        }
    }

    /// Sends operations of a handler and records expected replies.
    fn operate(&mut self, handler: usize, pmd: PmdId, ops: Vec<DpifOp>) {
        let created = |op: &DpifOp| match op {
            DpifOp::FlowPut(p) if p.mode == PutMode::Create => Some(p.ufid),
            _ => None,
        };
        let puts: Vec<_> = ops.iter().enumerate().filter_map(|(i, op)| Some((i, created(op)?))).collect();
        let h = &mut self.handlers[handler];
        let reply = (!puts.is_empty()).then(|| h.sink.clone());
        let tag = h.next_tag;
        if reply.is_some() {
            h.puts.insert(tag, puts);
            h.next_tag += 1;
        }
        self.dp.operate(OpBatch { pmd, ops, tag, reply });
    }

    fn traffic(&mut self) {
        let ports: Vec<DpPort> = self.up.keys().copied().collect();
        if ports.is_empty() {
            return;
        }
        let flood = self.scenario.flood.filter(|p| self.up.contains_key(p) && self.rng.one_in(2));
        let port = flood.unwrap_or(*self.rng.pick(&ports));
        let count = if flood.is_some() { self.rng.range(20, 60) } else { self.rng.range(1, 12) };
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for _ in 0..count {
            let again = !frames.is_empty() && flood.is_none() && self.rng.one_in(3);
            let frame = match again {
                true => {
                    let mut frame = self.rng.pick(&frames).clone();
                    self.renumber(&mut frame);
                    frame
                }
                false => self.frame(port, flood.is_some()),
            };
            frames.push(frame);
        }
        if self.scenario.dp.fragments.is_some() {
            if self.rng.one_in(3) {
                self.cut.begin(&mut self.rng, port);
            }
            frames.extend(self.cut.take(&mut self.rng, port));
        }
        let core = 1 + port.0 as usize % usize::from(self.scenario.dp.cores);
        self.dp.inner().receive(core, port, frames);
    }

    /// Sets the next number in a copy of a frame.
    fn renumber(&mut self, frame: &mut [u8]) {
        if Mark::read(frame).is_some() {
            let at = frame.len() - 8;
            frame[at..].copy_from_slice(&self.next_number.to_be_bytes());
            // The checksum covers the number.
            crate::frames::recompute_checksums(frame, [true; 2]);
            self.next_number += 1;
        }
    }

    fn frame(&mut self, port: DpPort, wide: bool) -> Vec<u8> {
        let (mut key, text) = match self.profile.helps && self.rng.one_in(5) {
            true => random_announcement(&mut self.rng),
            false => (random_key(&mut self.rng, wide), String::new()),
        };
        if self.rng.one_in(4) {
            // Most hosts keep their port; some move.
            key.base.dl_src = mac((u64::from(port.0) + self.rng.below(2)) % HOSTS);
        }
        key.base.in_port = port.0;
        let stream = stream_of(&key);
        let mark = Mark { checksums_ok: true, stream, number: self.next_number };
        self.next_number += 1;
        let mut frame = compose_text(&key, text.as_bytes(), mark);
        match self.rng.below(40) {
            0 => frame.truncate(self.rng.below(frame.len() as u64) as usize),
            1 => {
                for byte in frame.iter_mut().skip(12) {
                    *byte = self.rng.number() as u8;
                }
            }
            2 => {
                let end = frame.len() - crate::frames::MARK_BYTES;
                let at = self.rng.below(end as u64) as usize;
                frame[at] ^= 1 << self.rng.below(8);
                frame[end..].fill(0);
            }
            _ => {}
        }
        frame
    }

    fn packet_out(&mut self) {
        let bridge = *self.rng.pick(&self.bridges);
        let key = random_key(&mut self.rng, false);
        let mark = Mark { checksums_ok: true, stream: u64::MAX, number: 0 };
        let mut frame = compose(&key, mark);
        let end = frame.len() - crate::frames::MARK_BYTES;
        frame[end] = 0;
        let md = Metadata { in_port: u32::MAX, ..Metadata::default() };
        let key = crate::frames::key_of(&frame, &md, crate::model::VLAN_LIMIT);
        let port = *self.rng.pick(&[OfPort(1), OfPort(2), OfPort::FLOOD, OfPort::TABLE]);
        let actions = [Action::Output(Output { port, max_len_bytes: 0 })];
        let view = self.backer.view();
        let flow = key.to_flow(OfPort::CONTROLLER);
        let request =
            Request { view: &view, bridge, flow: &flow, start: Start::Actions(&actions), trace: false };
        let now_ms = self.now_ms();
        let t = translate(&request, &mut self.backer.xlate_host(true, now_ms));
        let bytes = frame.len() as u64;
        let seen = FlowStats { packets: 1, bytes, used_ms: now_ms, tcp_flags: flow.flags_of_tcp() };
        t.cache.replay(&seen, &mut self.backer.effect_host());
        self.backer.ukeys.defer_release(&t.recircs);
        self.counts.packet_outs += 1;
        self.counts.table_outs += u64::from(port == OfPort::TABLE);
        let execute = Execute {
            packet: Packet::from_slice(&frame),
            key,
            actions: t.actions.into(),
            ticket: None,
            upcall: 0,
            went_on: false,
        };
        let ops = vec![DpifOp::Execute(Box::new(execute))];
        self.dp.operate(OpBatch { pmd: PmdId::Main, ops, tag: 0, reply: None });
    }
}

/// Identifies all frames of one port and one key. The key is not final: its shape is not set yet.
fn stream_of(key: &flow::FlowKey) -> u64 {
    use std::hash::{Hash, Hasher};
    let mut hasher = std::hash::DefaultHasher::new();
    (0..flow::FlowKey::BLOCKS).for_each(|i| key.block(i).hash(&mut hasher));
    hasher.finish()
}
