//! [`SimDatapath`]: forwarding cores with inboxes behind [`dpif::Datapath`], like the threads of
//! `dpif-netdev`, but driven by the schedule. Every call of a core is compared with the plain core.

mod held;

use crate::fragments::{Arrived, MIN_BYTES};
use crate::frames::{BUNDLE_MAC, Mark, checksums_valid, without_checksums};
use crate::model::{Effects, Env, PlainCore, PlainMeter, PlainMeters, UpcallSeen};
use crate::report::{Broken, Invariant, Violations};
use crate::rng::Rng;
use crate::tracking::{LONGEST_MS, PlainTracking};
use crate::upcall_queues::UpcallQueues;
use conntrack::Tracker;
use datapath::{DpShared, Pmd, PmdConfig, PmdIo, PmdTuning, TxReport};
use dpif::{
    Capabilities, CtCapabilities, CtCounts, Datapath, DpifError, DpifOp, DropReason, MeterConfig, MeterStats,
    OpBatch, OpResult, PmdId, PortInfo, PortSpec, PortStats, PutMode, ReplySink, Ticket, Upcall, UpcallSink,
};
use flow::{DpPort, Ufid};
pub(crate) use held::FragmentsLeft;
use packet::{Packet, PacketBatch, PacketPool};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use sync::{Mutex, MutexGuard, lock};

type Reply = (Arc<dyn ReplySink>, u64, Vec<OpResult>);

/// Sizes of a datapath.
#[derive(Clone, Debug)]
pub(crate) struct DpConfig {
    pub(crate) cores: u16,
    pub(crate) handlers: usize,
    pub(crate) inbox_batches: usize,
    pub(crate) misses_per_port: usize,
    pub(crate) actions_per_port: usize,
    pub(crate) flow_limit_hard: usize,
    pub(crate) cache_entries: usize,
    pub(crate) parked_per_ticket: usize,
    pub(crate) parked: usize,
    pub(crate) check_order: bool,
    /// Maximum number of connections, if packets are tracked.
    pub(crate) connections: Option<u32>,
    /// Maximum number of held fragments, if datagrams are reassembled.
    pub(crate) fragments: Option<u32>,
    pub(crate) broken: Option<Broken>,
}

pub(crate) struct Core {
    pub(crate) pmd: Pmd,
    pub(crate) plain: PlainCore,
    inbox: VecDeque<OpBatch>,
    /// Operations that must not be lost, and that the inbox had no room for.
    control: VecDeque<OpBatch>,
    replies: VecDeque<Reply>,
    /// The flow that each packet hit so far is known.
    comparable: bool,
}

/// I/O for operations that send nothing.
struct NoIo;

impl UpcallSink for NoIo {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        Err(upcall)
    }
}

impl PmdIo for NoIo {
    fn transmit(&mut self, _: DpPort, _: &mut PacketBatch, _: &mut PacketPool) -> TxReport {
        TxReport::default()
    }
}

/// Totals for the conservation check.
#[derive(Default, Debug)]
pub(crate) struct Totals {
    pub(crate) offered: u64,
    pub(crate) sent: u64,
    pub(crate) executes: u64,
    pub(crate) flows_put: u64,
    /// Flows deleted after their port.
    pub(crate) flows_ended: u64,
    pub(crate) inbox_full: u64,
}

pub(crate) struct Inner {
    pub(crate) cores: Vec<Core>,
    pub(crate) upcall_queues: UpcallQueues,
    pub(crate) ports: BTreeMap<DpPort, String>,
    pub(crate) violations: Violations,
    pub(crate) totals: Totals,
    pub(crate) now_us: u64,
    meters: PlainMeters,
    pub(crate) tracking: PlainTracking,
    config: DpConfig,
    rng: Rng,
    /// Number of the last frame of a stream sent to a port.
    last_number: HashMap<(u64, DpPort), u64>,
    pub(crate) arrived: Arrived,
    pub(crate) fragments_left: FragmentsLeft,
}

/// See the module.
pub(crate) struct SimDatapath {
    inner: Mutex<Inner>,
    shared: Arc<DpShared>,
}

/// A core's environment during a call, and the record of its actions.
struct Io<'a> {
    upcall_queues: &'a mut UpcallQueues,
    violations: &'a mut Violations,
    rng: &'a mut Rng,
    broken: Option<Broken>,
    sent: Vec<(DpPort, Vec<u8>)>,
    taken: Vec<bool>,
    upcalls: Vec<UpcallSeen>,
    accepted: VecDeque<(bool, Option<Ticket>)>,
}

impl UpcallSink for Io<'_> {
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>> {
        self.upcalls.push(UpcallSeen {
            kind: upcall.kind,
            key: upcall.key,
            frame: without_checksums(upcall.packet.data()),
            rx_port: upcall.rx_port,
            has_ticket: upcall.ticket.is_some(),
        });
        let ticket = upcall.ticket;
        let result = self.upcall_queues.push(upcall, self.violations);
        self.accepted.push_back((result.is_ok(), ticket));
        result
    }
}

impl PmdIo for Io<'_> {
    fn transmit(&mut self, port: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        let mut packets: Vec<Packet> = batch.drain().collect();
        if self.broken == Some(Broken::Reordered) && packets.len() > 1 {
            packets.reverse();
        }
        for packet in packets {
            let mut frame = packet.data().to_vec();
            if self.broken == Some(Broken::CorruptFrame) && self.rng.one_in(50) {
                frame[3] ^= 1;
            }
            let refused = self.rng.one_in(200);
            if refused {
                report.dropped[DropReason::TxFailed as usize] += 1;
            } else {
                report.sent_packets += 1;
                report.sent_bytes += frame.len() as u64;
            }
            self.taken.push(!refused);
            self.sent.push((port, frame));
            pool.free(packet);
        }
        report
    }
}

/// Groups frames by port, in order.
fn by_port(sent: &[(DpPort, Vec<u8>)]) -> BTreeMap<DpPort, Vec<Vec<u8>>> {
    let mut out: BTreeMap<DpPort, Vec<Vec<u8>>> = BTreeMap::new();
    for (port, frame) in sent {
        out.entry(*port).or_default().push(without_checksums(frame));
    }
    out
}

impl Inner {
    /// Runs a call on a core and on its plain twin, and compares the results.
    fn run_both<R>(
        &mut self,
        core: usize,
        real: impl FnOnce(&mut Pmd, u64, &mut dyn PmdIo) -> R,
        plain: impl FnOnce(&mut PlainCore, &R, &mut Env<'_>),
    ) -> R {
        let Inner { cores, upcall_queues, violations, rng, .. } = self;
        let mut io = Io {
            upcall_queues,
            violations,
            rng,
            broken: self.config.broken,
            sent: Vec::new(),
            taken: Vec::new(),
            upcalls: Vec::new(),
            accepted: VecDeque::new(),
        };
        let now_us = self.now_us;
        let result = real(&mut cores[core].pmd, now_us, &mut io);
        cores[core].pmd.flush_output(&mut io);
        let Io { sent, taken, upcalls, accepted, .. } = io;
        let Core { pmd, plain: twin, comparable, .. } = &mut self.cores[core];
        let mut counted = |ufid| match &pmd.apply(vec![DpifOp::FlowGet(ufid)], now_us, &mut NoIo)[..] {
            [OpResult::Flow(r)] => r.stats.packets,
            _ => 0,
        };
        let mut env = Env {
            now_us,
            meters: &mut self.meters,
            tracking: &mut self.tracking,
            accepted,
            effects: Effects::default(),
            counted: &mut counted,
            ambiguous: false,
        };
        plain(twin, &result, &mut env);
        env.tracking.differs |= env.ambiguous | env.tracking.reassembly.is_ambiguous;
        *comparable &= !env.ambiguous && !env.tracking.differs;
        let (comparable, expected) = (*comparable, env.effects);
        if comparable {
            self.compare(core, &expected, &sent, &upcalls);
        }
        self.sink(&sent, &taken);
        self.check_core(core);
        result
    }

    fn compare(
        &mut self,
        core: usize,
        expected: &Effects,
        sent: &[(DpPort, Vec<u8>)],
        upcalls: &[UpcallSeen],
    ) {
        if expected.upcalls != upcalls {
            let differs = expected.upcalls.iter().zip(upcalls).position(|(a, b)| a != b);
            let at = differs.unwrap_or(expected.upcalls.len().min(upcalls.len()));
            self.violations.add(Invariant::Oracle, || {
                let (a, b) = (expected.upcalls.get(at), upcalls.get(at));
                format!("core {core}: upcall {at}: expected {a:?}, got {b:?}")
            });
        }
        let (plainly, really) = (by_port(&expected.sent), by_port(sent));
        if plainly != really {
            self.violations.add(Invariant::Oracle, || {
                let ports = plainly.keys().chain(really.keys());
                let differs = |p: &&DpPort| plainly.get(p) != really.get(p);
                let port = ports.into_iter().find(differs).copied().unwrap_or_default();
                let (a, b) = (plainly.get(&port), really.get(&port));
                let (a, b) = (a.map_or(&[][..], |a| a), b.map_or(&[][..], |b| b));
                let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()));
                let (n, m, a, b) = (a.len(), b.len(), a.get(at), b.get(at));
                format!(
                    "core {core} port {}: {n} frames expected, {m} sent; {at}: {a:02x?}\n{b:02x?}",
                    port.0
                )
            });
        }
    }

    /// Checks sent frames: marks, checksums and order.
    fn sink(&mut self, sent: &[(DpPort, Vec<u8>)], taken: &[bool]) {
        for ((port, frame), _) in sent.iter().zip(taken).filter(|(_, taken)| **taken) {
            self.totals.sent += 1;
            if self.config.fragments.is_some()
                && let Some(fault) = self.arrived.take(*port, frame)
            {
                self.violations.add(Invariant::Oracle, || {
                    format!("a fragment out of port {} {fault}: {frame:x?}", port.0)
                });
            }
            let Some(mark) = Mark::read(frame) else { continue };
            if mark.checksums_ok && !checksums_valid(frame) {
                self.violations
                    .add(Invariant::Oracle, || format!("wrong checksum out of port {}: {frame:x?}", port.0));
            }
            if frame[6] == BUNDLE_MAC && frame[0] == BUNDLE_MAC && frame[5] != frame[11] {
                let (a, b) = (frame[5], frame[11]);
                self.violations
                    .add(Invariant::Bundle, || format!("a packet saw version {a} and version {b}"));
            }
            let last = self.last_number.entry((mark.stream, *port)).or_default();
            if mark.number < *last && self.config.check_order {
                let (number, last) = (mark.number, *last);
                self.violations.add(Invariant::Order, || {
                    format!("stream {:x}: {number} left port {} after {last}", mark.stream, port.0)
                });
            }
            *last = mark.number.max(*last);
        }
    }

    fn check_core(&mut self, core: usize) {
        let c = &self.cores[core];
        let ledger = c.pmd.ledger();
        let flows = c.pmd.stats().flows;
        // Flows of a removed port are deleted later; no packet hits them.
        let (known, plain) = (flows - c.pmd.ending_flows(), c.plain.flows.len() as u64);
        if !ledger.balances() || ledger.queued != 0 {
            self.violations.add(Invariant::Conservation, || format!("core {core}: {ledger:?}"));
        }
        if known != plain && c.comparable {
            self.violations
                .add(Invariant::Oracle, || format!("core {core}: {known} flows, {plain} expected"));
        }
        if flows > self.config.flow_limit_hard as u64 || ledger.parked > c.plain.parked_max as u64 {
            self.violations.add(Invariant::Bounds, || format!("core {core}: {flows} flows, {ledger:?}"));
        }
    }

    /// Receives a burst on a port.
    pub(crate) fn receive(&mut self, core: usize, port: DpPort, mut frames: Vec<Vec<u8>>) {
        self.totals.offered += frames.len() as u64;
        if self.config.broken == Some(Broken::LostPacket) && self.rng.one_in(20) {
            frames.pop();
        }
        let mut batch: PacketBatch = frames.iter().map(|f| Packet::from_slice(f)).collect();
        self.run_both(
            core,
            |pmd, now_us, io| pmd.process_batch(port, &mut batch, now_us, io),
            |plain, (), env| plain.process(port, frames, env),
        );
    }

    /// Executes one batch of operations from a core's inbox; `false`: it was empty.
    pub(crate) fn work(&mut self, core: usize) -> bool {
        if self.rng.one_in(4) {
            self.upkeep(core);
        }
        let c = &mut self.cores[core];
        // Checks the control lane now and then, as a thread does.
        let first = if !c.control.is_empty() && self.rng.one_in(3) { c.control.pop_front() } else { None };
        let Some(batch) = first.or_else(|| c.inbox.pop_front()).or_else(|| c.control.pop_front()) else {
            return false;
        };
        self.apply(core, batch);
        true
    }

    fn apply(&mut self, core: usize, batch: OpBatch) {
        let OpBatch { ops, tag, reply, .. } = batch;
        let mut results = Vec::new();
        for op in ops {
            results.push(self.apply_one(core, op));
        }
        if let Some(reply) = reply {
            self.cores[core].replies.push_back((reply, tag, results));
        }
    }

    fn apply_one(&mut self, core: usize, mut op: DpifOp) -> OpResult {
        let mut put = None;
        let mut execute = None;
        let mut deleted = None;
        match &mut op {
            DpifOp::FlowPut(p) => {
                if self.config.broken == Some(Broken::WideMask) && p.mode == PutMode::Create {
                    (p.mask.base.nw_src, p.mask.base.dl_src, p.mask.base.dl_dst) = (0, [0; 6], [0; 6]);
                }
                put = Some((**p).clone());
            }
            DpifOp::Execute(e) => {
                self.totals.executes += 1;
                execute = Some((e.packet.data().to_vec(), e.key, e.actions.clone(), e.ticket));
            }
            DpifOp::FlowDel(ufid) => deleted = Some(*ufid),
            DpifOp::FlowFlush => self.cores[core].plain.flows.clear(),
            _ => {}
        }
        if deleted.is_some() && self.config.broken == Some(Broken::ForgottenDelete) {
            return OpResult::Failed(DpifError::NotFound("flow"));
        }
        let results = self.run_both(
            core,
            |pmd, now_us, io| pmd.apply(vec![op], now_us, io),
            |plain, results: &Vec<OpResult>, env| {
                let done = !matches!(results[..], [OpResult::Failed(_)]);
                match (&put, execute) {
                    (Some(put), _) if done => plain.put(put),
                    (_, Some((frame, key, actions, ticket))) => {
                        plain.execute(frame, &key, &actions, ticket, env);
                    }
                    _ => {}
                }
                if let (Some(ufid), true) = (deleted, done) {
                    plain.flows.retain(|f| f.ufid != ufid);
                }
            },
        );
        self.check_put(core, put.as_ref(), &results);
        results.into_iter().next().unwrap_or(OpResult::Done)
    }

    /// Checks that a put is refused exactly if its packet hits a flow already.
    fn check_put(&mut self, core: usize, put: Option<&dpif::FlowPut>, results: &[OpResult]) {
        let Some(put) = put.filter(|p| p.mode == PutMode::Create) else { return };
        let plain = &self.cores[core].plain;
        let hit = plain.lookup(&put.key).map(|at| plain.flows[at].ufid);
        match results {
            [OpResult::Done] => self.totals.flows_put += 1,
            [OpResult::Failed(DpifError::Exists(_))] if hit.is_some() => {}
            [OpResult::Failed(DpifError::Full(_))] => {}
            [OpResult::Failed(DpifError::Busy(_))] if self.cores[core].pmd.is_ending(put.key.in_port()) => {}
            other => self
                .violations
                .add(Invariant::Oracle, || format!("put {}: {other:?}, hits {hit:?}", put.ufid)),
        }
    }

    /// Advances a core by a second.
    pub(crate) fn tick(&mut self, core: usize) {
        self.run_both(core, |pmd, now_us, _| pmd.tick(now_us), |plain, (), env| plain.tick(env.now_us));
    }

    /// One slice of a core's waiting work.
    pub(crate) fn upkeep(&mut self, core: usize) {
        let gone = self.run_both(core, |pmd, _, _| pmd.upkeep(), |_, _, _| {});
        let ended = gone.unwrap_or_default();
        let c = &self.cores[core];
        if ended.iter().any(|flow| c.plain.flows.iter().any(|f| f.ufid == flow.ufid)) {
            self.violations.add(Invariant::Oracle, || format!("core {core}: a flow ended without its port"));
        }
        self.totals.flows_ended += ended.len() as u64;
    }

    fn port_remove(&mut self, core: usize, port: DpPort) {
        self.run_both(core, |pmd, _, io| pmd.port_remove(port, io), |plain, _, _| plain.port_remove(port));
    }

    /// The oldest answer of a core, for delivery without the lock.
    pub(crate) fn reply(&mut self, core: usize) -> Option<Reply> {
        self.cores[core].replies.pop_front()
    }

    /// Whether no message is in flight.
    pub(crate) fn is_quiet(&self) -> bool {
        let idle = |c: &Core| c.inbox.is_empty() && c.control.is_empty() && c.replies.is_empty();
        self.cores.iter().all(idle) && self.upcall_queues.waiting() == 0
    }

    /// Executes waiting in inboxes.
    pub(crate) fn executes_waiting(&self) -> u64 {
        let batches = self.cores.iter().flat_map(|c| c.inbox.iter().chain(&c.control));
        batches.flat_map(|b| &b.ops).filter(|op| matches!(op, DpifOp::Execute(_))).count() as u64
    }

    /// Compares every flow's counters with those of the plain core.
    pub(crate) fn check_counters(&mut self) {
        let comparable: Vec<usize> = (0..self.cores.len()).filter(|n| self.cores[*n].comparable).collect();
        for core in comparable {
            let flows: Vec<(Ufid, u64)> =
                self.cores[core].plain.flows.iter().map(|f| (f.ufid, f.packets)).collect();
            for (ufid, packets) in flows {
                let now_us = self.now_us;
                let got = self.run_both(
                    core,
                    |pmd, _, io| pmd.apply(vec![DpifOp::FlowGet(ufid)], now_us, io),
                    |_, _, _| {},
                );
                match &got[..] {
                    [OpResult::Flow(r)] if r.stats.packets == packets => {}
                    other => self.violations.add(Invariant::Oracle, || {
                        format!("core {core}: flow {ufid} counted {other:?}, expected {packets} packets")
                    }),
                }
            }
        }
    }
}

impl SimDatapath {
    pub(crate) fn new(config: DpConfig, seed: u64) -> SimDatapath {
        let shared = Arc::new(DpShared::new(seed));
        for v6 in [false, true] {
            shared.set_reassembly(v6, config.fragments.is_some());
            shared.set_min_fragment_bytes(v6, MIN_BYTES).expect("not below the least value");
        }
        if let Some(max) = config.fragments {
            shared.set_max_fragments(max).expect("not above the greatest value");
        }
        let mut tracking = PlainTracking::new(seed);
        if let Some(max) = config.connections {
            shared.tracker().set_max_connections(max);
            tracking.tracker().set_max_connections(max);
        }
        // A group tracks its packets before others that arrived in between.
        let group = if config.connections.is_some() { seed.is_multiple_of(4) } else { seed & 32 == 0 };
        tracking.differs = group && config.connections.is_some();
        tracking.reassembly.max = config.fragments.map(|max| max as usize);
        tracking.reassembly.min_bytes = MIN_BYTES as usize;
        tracking.shared = Some(shared.clone());
        let core = |id: PmdId| {
            let pmd_config = PmdConfig {
                flow_limit_hard: config.flow_limit_hard,
                cache_entries_max: config.cache_entries,
                parked_per_ticket_max: config.parked_per_ticket,
                parked_max: config.parked,
                // Results depend on none of these.
                vector: seed & 1 == 0,
                template: seed & 2 == 0,
                tuning: PmdTuning {
                    cache_insert_inv_prob: (seed >> 2 & 3) as u32,
                    rank: seed & 16 == 0,
                    group,
                    ..PmdTuning::default()
                },
                ..PmdConfig::new(id, seed)
            };
            let plain = PlainCore::new(&pmd_config);
            Core {
                pmd: Pmd::new(pmd_config, shared.clone()),
                plain,
                inbox: VecDeque::new(),
                control: VecDeque::new(),
                replies: VecDeque::new(),
                comparable: true,
            }
        };
        let ids = std::iter::once(PmdId::Main).chain((0..config.cores).map(PmdId::Core));
        let inner = Inner {
            cores: ids.map(core).collect(),
            upcall_queues: UpcallQueues::new(
                config.handlers,
                config.misses_per_port,
                config.actions_per_port,
                config.broken,
            ),
            ports: BTreeMap::new(),
            violations: Violations::default(),
            totals: Totals::default(),
            now_us: 1_000_000,
            meters: PlainMeters::new(),
            tracking,
            config,
            rng: Rng::new(seed ^ 0xd9),
            last_number: HashMap::new(),
            arrived: Arrived::default(),
            fragments_left: FragmentsLeft::default(),
        };
        SimDatapath { inner: Mutex::new(inner), shared }
    }

    /// Compares the trackers, if packets were tracked.
    pub(crate) fn check_tracking(&self) {
        let inner = &mut *self.inner();
        self.check_fragments(inner);
        if let Some(tracker) = self.shared.tracker_in_use() {
            inner.tracking.check(tracker, inner.now_us / 1000, &mut inner.violations);
        }
    }

    /// Checks that no connection and no fragment is left after the longest timeout.
    pub(crate) fn check_expiry(&self) {
        let inner = &mut *self.inner();
        self.expire_fragments(inner, inner.now_us / 1000 + LONGEST_MS, usize::MAX);
        self.check_fragments(inner);
        let left = self.shared.fragment_status().held;
        if left != 0 {
            inner.violations.add(Invariant::Bounds, || format!("{left} fragments are left over"));
        }
        if let Some(tracker) = self.shared.tracker_in_use() {
            let end_ms = inner.now_us / 1000 + LONGEST_MS;
            inner.tracking.check_end(tracker, end_ms, &mut inner.violations);
        }
    }

    /// Ends expired connections, as the thread of the tracker does.
    pub(crate) fn expire_connections(&self) {
        let inner = &mut *self.inner();
        self.expire_fragments(inner, inner.now_us / 1000, 64);
        if let Some(tracker) = self.shared.tracker_in_use() {
            if inner.config.broken == Some(Broken::ForgottenConnections) {
                tracker.flush(inner.now_us / 1000, |_| true);
            }
            inner.tracking.expire(tracker, inner.now_us / 1000);
        }
    }

    /// Counters of the tracker, if packets were tracked.
    pub(crate) fn tracker_counts(&self) -> Option<CtCounts> {
        self.shared.tracker_in_use().map(Tracker::counts)
    }

    /// The state, for the schedule and the checks.
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Datapath for SimDatapath {
    fn name(&self) -> &str {
        "sim@ovs-sim"
    }

    fn capabilities(&self) -> Capabilities {
        let ct = CtCapabilities::ALL;
        Capabilities { max_vlan_headers: crate::model::VLAN_LIMIT, ct, ..Capabilities::ENOUGH }
    }

    fn port_add(&self, spec: &PortSpec) -> Result<DpPort, DpifError> {
        let mut inner = self.inner();
        let port = spec.number.ok_or(DpifError::NotFound("port number"))?;
        inner.upcall_queues.port_add(port);
        inner.ports.insert(port, spec.name.clone());
        for core in &mut inner.cores {
            core.pmd.port_add(port)?;
            core.plain.ports.insert(port);
        }
        Ok(port)
    }

    fn port_del(&self, port: DpPort) -> Result<(), DpifError> {
        let mut inner = self.inner();
        inner.ports.remove(&port).ok_or(DpifError::NotFound("port"))?;
        for core in 0..inner.cores.len() {
            inner.port_remove(core, port);
        }
        inner.upcall_queues.port_del(port);
        Ok(())
    }

    fn ports(&self) -> Vec<PortInfo> {
        let info = |(number, name): (&DpPort, &String)| PortInfo {
            number: *number,
            name: name.clone(),
            type_name: "sim".to_string(),
        };
        self.inner().ports.iter().map(info).collect()
    }

    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError> {
        let inner = self.inner();
        let counters = inner.cores.iter().filter_map(|c| c.pmd.port_counters(port));
        let mut sum: Option<PortStats> = None;
        for c in counters {
            let s = sum.get_or_insert_with(PortStats::default);
            s.rx_packets += c.rx_packets;
            s.tx_packets += c.tx_packets;
        }
        sum.ok_or(DpifError::NotFound("port"))
    }

    fn pmds(&self) -> Vec<PmdId> {
        self.inner().cores.iter().map(|c| c.pmd.id()).collect()
    }

    fn operate(&self, batch: OpBatch) {
        let inner = &mut *self.inner();
        let full = |ops: &[DpifOp]| -> Vec<OpResult> {
            ops.iter().map(|_| OpResult::Failed(DpifError::Full("the inbox of the core"))).collect()
        };
        let max = inner.config.inbox_batches;
        let Some(at) = inner.cores.iter().position(|c| c.pmd.id() == batch.pmd) else { return };
        let core = &mut inner.cores[at];
        if core.inbox.len() < max {
            core.inbox.push_back(batch);
        } else if batch.ops.iter().all(|op| matches!(op, DpifOp::FlowPut(_))) {
            inner.totals.inbox_full += 1;
            if let Some(reply) = &batch.reply {
                core.replies.push_back((reply.clone(), batch.tag, full(&batch.ops)));
            }
        } else {
            core.control.push_back(batch);
            inner.totals.inbox_full += 1;
        }
    }

    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError> {
        self.inner().meters.insert(id, PlainMeter::new(config));
        self.shared.meter_set(id, config)
    }

    fn meter_del(&self, id: u32) -> Result<(), DpifError> {
        self.inner().meters.remove(&id);
        self.shared.meter_del(id)
    }

    fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError> {
        self.shared.meter_stats(id)
    }
}
