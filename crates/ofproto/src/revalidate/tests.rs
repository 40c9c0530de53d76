//! Tests of the revalidator against a datapath that is a list of flows.

use super::*;
use crate::upcall::tests::{add_rule, backer_with, counted, miss_of};
use crate::upcall::{handle, put_done};
use dpif::actions::{DropAction, Output};
use dpif::{Capabilities, DpAction, FlowRecord, MeterConfig, PortInfo, PortSpec, PortStats};
use flow::text::NoPortNames;
use flow::{DpPort, PackedFlow, TableId};
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use sync::{Mutex, lock};

mod at_once;
mod cover;
mod fin_timeout;
mod shares;

const CORE: PmdId = PmdId::Core(0);

/// Flows, and batches not executed yet.
#[derive(Default)]
struct Flows {
    flows: Mutex<Vec<FlowRecord>>,
    waiting: Mutex<Vec<OpBatch>>,
    purged: Mutex<Vec<FlowRecord>>,
    refuse_modify: bool,
}

impl Flows {
    fn one(&self, op: DpifOp) -> OpResult {
        let mut flows = lock(&self.flows);
        match op {
            DpifOp::FlowCounters { since_ms, .. } => {
                let since = flows.iter().filter(|f| f.stats.used_ms >= since_ms);
                OpResult::Counters(since.map(|f| (f.ufid, f.stats)).collect(), None)
            }
            DpifOp::FlowGet(ufid) => match flows.iter().find(|f| f.ufid == ufid) {
                Some(f) => OpResult::Flow(Box::new(f.clone())),
                None => OpResult::Failed(DpifError::NotFound("flow")),
            },
            DpifOp::FlowPut(p) if p.mode == PutMode::Create => {
                let (ufid, key, mask, actions) = (p.ufid, p.key, p.mask, p.actions);
                flows.push(FlowRecord {
                    ufid,
                    key,
                    mask,
                    actions,
                    stats: FlowStats::default(),
                    offloaded: dpif::Offloaded::No,
                });
                OpResult::Done
            }
            DpifOp::FlowPut(p) => match flows.iter_mut().find(|f| f.ufid == p.ufid && !self.refuse_modify) {
                Some(f) => {
                    f.actions = p.actions;
                    OpResult::Done
                }
                None => OpResult::Failed(DpifError::NotFound("flow")),
            },
            DpifOp::FlowDel(ufid) => match flows.iter().position(|f| f.ufid == ufid) {
                Some(at) => OpResult::Flow(Box::new(flows.remove(at))),
                None => OpResult::Failed(DpifError::NotFound("flow")),
            },
            _ => OpResult::Done,
        }
    }

    /// Executes waiting batches.
    fn work(&self) {
        for OpBatch { pmd, ops, tag, reply } in std::mem::take(&mut *lock(&self.waiting)) {
            let results = ops.into_iter().map(|op| self.one(op)).collect();
            reply.inspect(|r| r.done(pmd, tag, results));
        }
    }

    fn count(&self, packets: u64, used_ms: u64) {
        for f in lock(&self.flows).iter_mut() {
            (f.stats.packets, f.stats.used_ms) = (packets, used_ms);
        }
    }

    fn masks(&self) -> Vec<flow::KeyMask> {
        lock(&self.flows).iter().map(|f| f.mask).collect()
    }

    fn actions(&self) -> Vec<Vec<DpAction>> {
        lock(&self.flows).iter().map(|f| f.actions.to_vec()).collect()
    }
}

impl Datapath for Flows {
    fn name(&self) -> &str {
        "test@flows"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities { max_vlan_headers: 1, ..Capabilities::ENOUGH }
    }
    fn port_add(&self, _: &PortSpec) -> Result<DpPort, DpifError> {
        Err(DpifError::NotFound("port"))
    }
    fn port_del(&self, _: DpPort) -> Result<(), DpifError> {
        Err(DpifError::NotFound("port"))
    }
    fn ports(&self) -> Vec<PortInfo> {
        Vec::new()
    }
    fn port_stats(&self, _: DpPort) -> Result<PortStats, DpifError> {
        Err(DpifError::NotFound("port"))
    }
    fn pmds(&self) -> Vec<PmdId> {
        vec![CORE]
    }
    fn operate(&self, batch: OpBatch) {
        lock(&self.waiting).push(batch);
    }
    fn next_purged(&self) -> Option<(PmdId, FlowRecord)> {
        lock(&self.purged).pop().map(|flow| (CORE, flow))
    }
    fn meter_set(&self, _: u32, _: &MeterConfig) -> Result<(), DpifError> {
        Ok(())
    }
    fn meter_stats(&self, _: u32) -> Result<dpif::MeterStats, DpifError> {
        Err(DpifError::NotFound("meter"))
    }

    fn meter_del(&self, _: u32) -> Result<(), DpifError> {
        Ok(())
    }
}

struct Rig {
    backer: Backer,
    bridge: crate::ids::BridgeId,
    dp: Flows,
    revalidator: Revalidator,
    now_ms: u64,
}

impl Rig {
    fn new(rules: &str) -> Rig {
        let (backer, bridge) = backer_with(rules);
        let replies = Arc::new(Replies::default());
        let sink = Arc::new(ReplyQueue::new(replies.clone(), || {}));
        Rig {
            backer,
            bridge,
            dp: Flows::default(),
            revalidator: Revalidator::new(replies, sink),
            now_ms: 1000,
        }
    }

    /// A flow for frames of that EtherType.
    fn install(&mut self, eth_type: u16, ufid: u128) {
        for op in
            handle(&self.backer, vec![miss_of(eth_type, ufid)], self.now_ms).remove(&CORE).unwrap_or_default()
        {
            self.dp.one(op);
        }
        put_done(&self.backer, CORE, Ufid(ufid), true);
    }

    /// A number of flows, all installed in the datapath.
    fn install_many(&mut self, flows: u128) {
        (0..flows).for_each(|n| self.install(0x88cc, n));
        self.settle();
    }

    /// Rounds until no work is left.
    fn settle(&mut self) {
        for _ in 0..20 {
            self.revalidator.poll(&self.backer, &self.dp, self.now_ms);
            self.dp.work();
        }
    }

    fn later(&mut self, ms: u64) {
        self.now_ms += ms;
        self.settle();
    }

    /// Rounds that read all flows.
    fn full_rounds(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.revalidator.request_round();
            self.later(600);
        }
    }

    fn rule(&self, line: &str) {
        add_rule(&self.backer, self.bridge, line);
    }
}

fn out(port: u32) -> Vec<DpAction> {
    vec![DpAction::Output(Output(DpPort(port)))]
}

#[test]
fn statistics_go_to_the_rules_once() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.dp.count(5, 1100);
    rig.later(600);
    rig.later(600);
    assert_eq!(counted(&rig.backer, rig.bridge), 6);
    rig.dp.count(7, rig.now_ms + 100);
    rig.later(600);
    assert_eq!(counted(&rig.backer, rig.bridge), 8);
}

#[test]
fn a_flow_that_ends_with_its_thread_is_counted_to_the_end() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.dp.count(5, 1100);
    rig.settle();
    // Its thread ends before its deletion is executed: the reply reports no such flow.
    rig.now_ms += 20_000;
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.count(9, 1200);
    let gone = std::mem::take(&mut *lock(&rig.dp.flows));
    assert_eq!(gone.len(), 1);
    lock(&rig.dp.purged).extend(gone);
    rig.settle();
    assert_eq!(counted(&rig.backer, rig.bridge), 10);
    assert!(rig.backer.ukeys.is_empty());
}

#[test]
fn a_flow_that_ends_after_a_dump_was_answered_is_counted_once() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.dp.count(5, 1100);
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    // Both the reply that shows it and its end are in flight.
    let gone = std::mem::take(&mut *lock(&rig.dp.flows));
    lock(&rig.dp.purged).extend(gone);
    rig.settle();
    assert_eq!(counted(&rig.backer, rig.bridge), 6);
    assert!(rig.backer.ukeys.is_empty());
}

#[test]
fn a_flow_that_no_dump_showed_is_counted_when_it_ends() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    let mut flow = lock(&rig.dp.flows)[0].clone();
    // The name given by a thread that takes it over.
    (flow.ufid, flow.stats.packets) = (Ufid(77), 4);
    lock(&rig.dp.purged).push(flow);
    rig.settle();
    assert_eq!(counted(&rig.backer, rig.bridge), 5);
    assert_eq!(rig.backer.ukeys.len(), 1);
}

#[test]
fn flows_are_kept_changed_or_deleted_as_the_rules_say() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    assert!(rig.revalidator.is_settled(&rig.backer));
    // Other rules for other packets: keep. The same bits and other actions: modify. Other bits: delete.
    rig.rule("table=7 actions=drop");
    rig.settle();
    assert_eq!(rig.dp.actions(), [out(2)]);
    rig.rule("actions=drop");
    rig.settle();
    assert_eq!(rig.dp.actions(), [vec![DpAction::Drop(DropAction(dpif::XlateDrop::Ok))]]);
    rig.rule("priority=40000,dl_dst=02:00:00:00:00:09 actions=2");
    rig.settle();
    assert!(rig.dp.actions().is_empty() && rig.backer.ukeys.is_empty());
}

#[test]
fn a_flow_stays_while_its_mask_covers_the_examined_bits() {
    let mut rig = Rig::new("priority=40000,dl_dst=02:00:00:00:00:09 actions=3\n actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    let mask = rig.dp.masks();
    let drop = vec![DpAction::Drop(DropAction(dpif::XlateDrop::Ok))];
    let end = |rig: &Rig, line: &str| {
        let m = parse_flow_mod(line, FlowModCommand::Add, &NoPortNames).expect(line);
        let end = |b: &mut crate::view::BridgeView| {
            b.tables.remove(TableId(0), &m.rule_match.into(), m.priority.into())
        };
        rig.backer.change_bridge(rig.bridge, end).flatten().expect(line);
    };
    // Fewer examined bits: no change, also with different actions.
    end(&rig, "priority=40000,dl_dst=02:00:00:00:00:09 actions=3");
    rig.settle();
    assert_eq!((rig.dp.actions(), rig.dp.masks()), (vec![out(2)], mask.clone()));
    rig.rule("actions=drop");
    rig.settle();
    assert_eq!((rig.dp.actions(), rig.dp.masks()), (vec![drop.clone()], mask.clone()));
    // The same bits again.
    rig.rule("priority=40000,dl_dst=02:00:00:00:00:09 actions=2");
    rig.settle();
    assert_eq!((rig.dp.actions(), rig.dp.masks()), (vec![drop], mask));
    // Additional bits.
    rig.rule("priority=40001,dl_src=02:00:00:00:00:08 actions=2");
    rig.settle();
    assert!(rig.dp.actions().is_empty() && rig.backer.ukeys.is_empty());
}

#[test]
fn a_change_that_fails_ends_the_flow() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.dp.refuse_modify = true;
    rig.rule("actions=drop");
    rig.settle();
    assert!(rig.dp.actions().is_empty() && rig.backer.ukeys.is_empty());
}

#[test]
fn a_change_that_comes_behind_a_newer_one_does_not_stay() {
    let mut rig = Rig::new("actions=2");
    rig.settle();
    // The first change: of a flow checked separately, as its translation was outdated.
    let ops = handle(&rig.backer, vec![miss_of(0x88cc, 1)], rig.now_ms).remove(&CORE).unwrap_or_default();
    rig.rule("actions=drop");
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    for op in ops {
        rig.dp.one(op);
    }
    put_done(&rig.backer, CORE, Ufid(1), true);
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    let first = lock(&rig.dp.waiting).pop().expect("the first change");
    assert!(matches!(&first.ops[..], [DpifOp::FlowPut(p)] if *p.actions != out(2)));
    // The second one, of the active round, does not wait behind it in the full inbox.
    rig.rule("actions=2");
    rig.dp.work();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    assert!(matches!(&lock(&rig.dp.waiting)[0].ops[..], [DpifOp::FlowPut(p)] if *p.actions == out(2)));
    rig.dp.work();
    lock(&rig.dp.waiting).push(first);
    rig.dp.work();
    assert_eq!(rig.dp.actions(), [vec![DpAction::Drop(DropAction(dpif::XlateDrop::Ok))]]);
    rig.settle();
    assert_eq!(rig.dp.actions(), [out(2)]);
    assert!(rig.revalidator.is_settled(&rig.backer));
}

#[test]
fn last_counters_of_a_deleted_flow_are_not_lost() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    rig.dp.count(3, rig.now_ms);
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms + 20_000);
    rig.dp.work();
    // Dumped with 3 packets and found idle; two more arrive before the delete.
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms + 20_000);
    rig.dp.count(5, rig.now_ms);
    rig.dp.work();
    rig.later(20_000);
    assert_eq!((rig.dp.actions().len(), counted(&rig.backer, rig.bridge)), (0, 6));
}

#[test]
fn idle_flows_go_and_sooner_above_the_limit() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.install(0x88cd, 2);
    rig.later(9000);
    assert_eq!(rig.dp.actions().len(), 2);
    rig.backer.limits.set_flow_limit(1);
    rig.later(600);
    assert_eq!(rig.dp.actions().len(), 1);
    rig.later(600);
    assert!(rig.dp.actions().is_empty() && rig.backer.ukeys.is_empty());
}

#[test]
fn a_flow_of_unknown_origin_is_adopted_with_its_counters_or_deleted() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    put_done(&rig.backer, CORE, Ufid(1), false);
    rig.dp.count(4, rig.now_ms);
    rig.later(600);
    assert_eq!((rig.dp.actions(), rig.backer.ukeys.len()), (vec![out(2)], 1));
    assert_eq!(rig.revalidator.foreign_flows.load(Ordering::Relaxed), 1);
    assert_eq!(counted(&rig.backer, rig.bridge), 1 + 4);
    // Wider than the examined bits.
    lock(&rig.dp.flows)[0].mask.base.dl_type = 0;
    rig.backer.ukeys.with(Ufid(1), CORE, |k| {
        let mut mask = k.flow.mask();
        mask.base.dl_type = 0;
        k.flow = PackedFlow::new(&k.flow.key(), &mask);
    });
    rig.backer.bump_epoch();
    rig.settle();
    assert!(rig.dp.actions().is_empty());
}

#[test]
fn a_flow_is_missed_only_by_dumps_that_began_after_it_was_made() {
    let mut rig = Rig::new("actions=2");
    rig.full_rounds(4);
    // A slow round: the flow is installed after its dump.
    rig.now_ms += 600;
    rig.revalidator.request_round();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    rig.install(0x88cc, 1);
    rig.now_ms += 3000;
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    assert_eq!(rig.backer.ukeys.len(), 1);
    // Deleted from outside: after some dumps it is forgotten.
    lock(&rig.dp.flows).clear();
    rig.full_rounds(2);
    assert_eq!(rig.backer.ukeys.len(), 1);
    rig.full_rounds(3);
    assert!(rig.backer.ukeys.is_empty());
}

#[test]
fn rounds_without_a_change_read_only_used_flows() {
    let mut rig = Rig::new("actions=2");
    rig.install(0x88cc, 1);
    rig.install(0x88cd, 2);
    rig.settle();
    // Requests of the next rounds, and the number of flows in the replies.
    let mut asked = Vec::new();
    for n in 0..2 * FULL_EVERY {
        rig.now_ms += 600;
        lock(&rig.dp.flows)[0].stats = FlowStats { packets: n, used_ms: rig.now_ms, ..FlowStats::default() };
        rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
        let told = match lock(&rig.dp.waiting)[0].ops[..] {
            [DpifOp::FlowCounters { since_ms, .. }] => {
                lock(&rig.dp.flows).iter().filter(|f| f.stats.used_ms >= since_ms).count()
            }
            ref other => panic!("{other:?}"),
        };
        asked.push(told);
        rig.settle();
    }
    assert_eq!(asked.iter().filter(|told| **told == 2).count(), 2, "{asked:?}");
    assert!(asked.iter().all(|told| *told == 1 || *told == 2), "{asked:?}");
    // The one without packets is deleted after its timeout; the other remains with its counters.
    assert_eq!(rig.backer.ukeys.len(), 2);
    rig.settle();
    rig.now_ms += 600;
    lock(&rig.dp.flows)[0].stats.used_ms = rig.now_ms;
    rig.settle();
    assert_eq!(rig.dp.actions().len(), 1);
    assert_eq!(counted(&rig.backer, rig.bridge), 2 + 2 * FULL_EVERY - 1);
}

#[test]
fn the_flow_limit_follows_round_durations_smoothly() {
    let limits = Rig::new("actions=2").backer.limits;
    let now = || limits.flow_limit.load(Ordering::Relaxed);
    limits.set_flow_limit(200_000);
    assert!(limits.adapt(1200).is_lt());
    assert_eq!(now(), 166_666);
    // Regardless of the duration: lowered by at most a quarter per round.
    assert!(limits.adapt(60_000).is_lt());
    assert_eq!(now(), 125_000);
    assert!(limits.adapt(700).is_eq());
    assert_eq!(now(), 125_000);
    assert!(limits.adapt(100).is_gt());
    assert_eq!(now(), 140_625);
    assert!((0..100).map(|_| limits.adapt(100)).any(|o| o.is_eq()));
    assert_eq!(now(), 200_000);
    assert!((0..100).map(|_| limits.adapt(60_000)).any(|o| o.is_eq()));
    assert_eq!(now(), 1000);
    // The same setting again has no effect; a different one applies at once.
    limits.set_flow_limit(200_000);
    assert_eq!(now(), 1000);
    limits.set_flow_limit(500);
    limits.adapt(60_000);
    assert_eq!(now(), 500);
}

/// A round over all flows with this duration.
fn long_round(rig: &mut Rig, ms: u64) {
    rig.revalidator.request_round();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.later(ms);
}

/// `min-revalidate-pps`.
#[test]
fn slow_flows_go_unchecked_while_rounds_are_long() {
    // Packet rate, round duration, setting: whether the flow stays.
    for (pps, round_ms, least_pps, stays) in
        [(4, 300, 5, false), (6, 300, 5, true), (4, 200, 5, true), (0, 300, 0, true), (9, 300, 10, false)]
    {
        let mut rig = Rig::new("actions=2");
        rig.backer.limits.min_revalidate_pps.store(least_pps, Ordering::Relaxed);
        rig.install(0x88cc, 1);
        rig.dp.count(5, rig.now_ms);
        long_round(&mut rig, round_ms);
        // Nothing has changed: it stays in any case.
        long_round(&mut rig, round_ms);
        assert_eq!(rig.dp.actions(), [out(2)]);
        let last_ms = rig.now_ms;
        rig.dp.count(6, last_ms);
        long_round(&mut rig, round_ms);
        rig.now_ms = last_ms + 1000;
        rig.dp.count(6 + pps, rig.now_ms);
        rig.rule("table=7 actions=drop");
        rig.settle();
        assert_eq!(rig.dp.actions().len(), usize::from(stays), "{pps} {round_ms} {least_pps}");
        // Its last counters are not lost.
        assert_eq!(counted(&rig.backer, rig.bridge), 1 + 6 + pps);
    }
    // A flow seen for the first time is checked.
    let mut rig = Rig::new("actions=2");
    long_round(&mut rig, 400);
    rig.install(0x88cc, 1);
    rig.rule("actions=drop");
    rig.settle();
    assert_eq!(rig.dp.actions(), [vec![DpAction::Drop(DropAction(dpif::XlateDrop::Ok))]]);
}

#[test]
fn the_patience_with_idle_flows_ends_gently() {
    let limits = Rig::new("actions=2").backer.limits;
    limits.set_flow_limit(1000);
    let idle = [0, 800, 900, 1000, 5000].map(|flows| limits.idle_ms(flows));
    assert_eq!(idle, [10_000, 10_000, 5050, 100, 100]);
}

#[test]
fn frozen_states_live_as_long_as_their_flows() {
    let mut rig = Rig::new("actions=debug_recirc,2");
    rig.install(0x88cc, 1);
    rig.later(600);
    rig.later(600);
    assert_eq!(rig.backer.recirc_count(), 1);
    rig.rule("actions=2");
    rig.settle();
    assert_eq!(rig.dp.actions(), [out(2)]);
    (0..3).for_each(|_| rig.later(600));
    assert_eq!(rig.backer.recirc_count(), 0);
}

#[test]
fn a_flow_of_an_old_epoch_is_checked_once_installed() {
    let mut rig = Rig::new("actions=2");
    rig.settle();
    // Translated and in flight while the rules change and the round for that passes.
    let ops = handle(&rig.backer, vec![miss_of(0x88cc, 1)], rig.now_ms).remove(&CORE).unwrap_or_default();
    rig.rule("actions=drop");
    rig.settle();
    assert!(rig.revalidator.is_settled(&rig.backer));
    let rounds = rig.revalidator.rounds();
    for op in ops {
        rig.dp.one(op);
    }
    assert!(put_done(&rig.backer, CORE, Ufid(1), true));
    assert_eq!(rig.dp.actions(), [out(2)]);
    rig.settle();
    assert_eq!(rig.dp.actions(), [vec![DpAction::Drop(DropAction(dpif::XlateDrop::Ok))]]);
    assert_eq!(rig.revalidator.rounds(), rounds, "one flow is no reason to look at all");
    // A current flow is left alone, and one with a different mask is deleted.
    rig.install(0x88cd, 2);
    assert!(!put_done(&rig.backer, CORE, Ufid(2), true));
    let ops = handle(&rig.backer, vec![miss_of(0x88ce, 3)], rig.now_ms).remove(&CORE).unwrap_or_default();
    rig.rule("priority=40000,dl_dst=02:00:00:00:00:09 actions=2");
    rig.settle();
    for op in ops {
        rig.dp.one(op);
    }
    put_done(&rig.backer, CORE, Ufid(3), true);
    rig.settle();
    assert!(rig.dp.actions().is_empty() && rig.backer.ukeys.is_empty());
    // Too many at once: all are checked.
    for n in 10..5000 {
        rig.backer.queue_stale(Ufid(n), CORE);
    }
    rig.settle();
    assert!(rig.revalidator.rounds() > rounds + 1);
}

/// Separate messages and replies would make thousands of them, with outdated flows behind them.
#[test]
fn flows_that_came_too_late_are_changed_and_deleted_together() {
    const FLOWS: usize = 600;
    let mut rig = Rig::new("actions=2");
    rig.settle();
    let misses = (0..FLOWS as u128).map(|n| miss_of(0x88cc, n)).collect();
    let ops = handle(&rig.backer, misses, rig.now_ms).remove(&CORE).unwrap_or_default();
    rig.rule("actions=drop");
    // The round that covers the change sees none of them.
    rig.settle();
    ops.into_iter().for_each(|op| drop(rig.dp.one(op)));
    for n in 0..FLOWS as u128 {
        put_done(&rig.backer, CORE, Ufid(n), true);
    }
    rig.dp.refuse_modify = true;
    for (what, left) in [("changes", FLOWS), ("deletes", 0)] {
        rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
        let batches: Vec<usize> = lock(&rig.dp.waiting).iter().map(|b| b.ops.len()).collect();
        assert_eq!(batches, [DUMP_FLOWS, DUMP_FLOWS, FLOWS - 2 * DUMP_FLOWS], "{what}");
        rig.dp.work();
        assert_eq!(rig.dp.actions().len(), left, "{what}");
    }
    rig.settle();
    assert!(rig.backer.ukeys.is_empty());
}

#[test]
fn deletes_of_many_flows_come_a_little_at_a_time() {
    let mut rig = Rig::new("actions=2");
    rig.install_many(1000);
    rig.backer.limits.purge.store(true, Ordering::Release);
    rig.revalidator.request_round();
    let mut turns = 0;
    rig.now_ms += 1000;
    while !rig.backer.ukeys.is_empty() {
        rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
        let batches: Vec<usize> = lock(&rig.dp.waiting).iter().map(|b| b.ops.len()).collect();
        assert!(
            batches.len() as u64 <= DELETES_UNDER_WAY && batches.iter().all(|n| *n <= DELETE_FLOWS),
            "{batches:?}"
        );
        rig.dp.work();
        turns += 1;
        assert!(turns < 100, "{} are left", rig.backer.ukeys.len());
    }
    // The round lasts until the last reply.
    assert!(rig.revalidator.is_idle() && rig.dp.actions().is_empty());
}

#[test]
fn walks_over_many_flows_are_done_in_parts() {
    let mut rig = Rig::new("actions=2");
    rig.install_many(6000);
    // Idle ones are found a few thousand at a time, while the first deletes are in flight.
    rig.now_ms += 20_000;
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    let (mut found, mut parts) = (0, 0);
    loop {
        let goes_on = rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms) == rig.now_ms;
        let to_delete: usize = rig.revalidator.to_delete.iter().map(|(_, names)| names.len()).sum();
        let under_way: usize = lock(&rig.dp.waiting).iter().map(|b| b.ops.len()).sum();
        parts += 1;
        assert!(
            (1..3000).contains(&(to_delete + under_way - found)),
            "part {parts}: {to_delete} {under_way}"
        );
        found = to_delete + under_way;
        if !goes_on {
            break;
        }
    }
    assert_eq!((found, parts), (6000, 3));
    while !rig.backer.ukeys.is_empty() {
        rig.settle();
    }
    // Lost flows are deleted after enough dumps without them.
    rig.install_many(6000);
    lock(&rig.dp.flows).clear();
    let mut most_at_once = 0;
    while !rig.backer.ukeys.is_empty() {
        (rig.revalidator.full_next, rig.now_ms) = (true, rig.now_ms + 600);
        for _ in 0..20 {
            let before = rig.backer.ukeys.len();
            rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
            rig.dp.work();
            most_at_once = most_at_once.max(before - rig.backer.ukeys.len());
        }
    }
    assert!((2000..3000).contains(&most_at_once), "{most_at_once}");
}

/// Flows leave that could learn below a limit: their next packets do.
#[test]
fn packets_learn_rules_below_a_limit_again() {
    let mut rig = Rig::new("actions=learn(table=1,limit=3,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_TYPE[]),2");
    let learned = |rig: &Rig| {
        let view = rig.backer.view();
        view.bridge(rig.bridge).expect("made by the rig").tables.rule_count(TableId(1))
    };
    (1..=4).for_each(|n| rig.install(0x8800 + n, n.into()));
    rig.settle();
    assert_eq!(learned(&rig), 3);
    rig.backer.change_tables(rig.bridge, |t| t.clear(TableId(1)));
    rig.settle();
    assert_eq!((learned(&rig), rig.backer.ukeys.len()), (0, 0));
    (1..=4).for_each(|n| rig.install(0x8800 + n, n.into()));
    rig.settle();
    assert_eq!((learned(&rig), rig.backer.ukeys.len()), (3, 4));
}
