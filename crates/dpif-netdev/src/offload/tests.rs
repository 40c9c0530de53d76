//! Tests of flow offload, with a device that executes flows itself.

mod cores;
mod model;
mod switch;

use super::rules::{RULES_MAX, USERS_MAX};
use super::*;
use dpif::actions::Output;
use dpif::{Offloaded, OpResult, PutMode};
use flow::Ufid;
use std::collections::BTreeMap;

/// A rule of a device.
struct Held {
    key: FlowKey,
    mask: KeyMask,
    actions: Vec<DpAction>,
    stats: FlowStats,
}

#[derive(Default)]
pub(super) struct NicState {
    held: BTreeMap<RuleId, Held>,
    /// Refuse puts.
    refuses: bool,
    /// Only mark packets.
    partial: bool,
}

/// A device that takes the packets of its rules away and counts them.
#[derive(Clone, Default)]
pub(super) struct Nic(Arc<Mutex<NicState>>);

impl Nic {
    /// A packet from the wire; `false` if no rule takes it.
    fn receive(&self, key: &FlowKey, bytes: u64, now_ms: u64) -> bool {
        let state = &mut *lock(&self.0);
        let Some(rule) = state.held.values_mut().find(|r| r.key.matches(&r.mask, key)) else { return false };
        rule.stats.packets += 1;
        rule.stats.bytes += bytes;
        rule.stats.used_ms = now_ms;
        rule.stats.tcp_flags |= 2;
        !state.partial
    }

    fn set_refuses(&self, refuses: bool) {
        lock(&self.0).refuses = refuses;
    }

    /// The actions of its rules.
    fn actions(&self) -> Vec<Vec<DpAction>> {
        lock(&self.0).held.values().map(|rule| rule.actions.clone()).collect()
    }

    fn boxed(&self) -> Box<dyn FlowOffload> {
        Box::new(self.clone())
    }
}

impl FlowOffload for Nic {
    fn name(&self) -> &'static str {
        "test"
    }

    fn put(&mut self, rule: &OffloadRule<'_>) -> Option<Accepted> {
        let state = &mut *lock(&self.0);
        if state.refuses {
            return None;
        }
        let stats = state.held.get(&rule.id).map_or(FlowStats::default(), |held| held.stats);
        let held = Held { key: *rule.key, mask: *rule.mask, actions: rule.actions.to_vec(), stats };
        state.held.insert(rule.id, held);
        Some(if state.partial { Accepted::Marks } else { Accepted::Executes(OffloadLayer::Dpdk) })
    }

    fn del(&mut self, id: RuleId) -> Option<FlowStats> {
        lock(&self.0).held.remove(&id).map(|held| held.stats)
    }

    fn stats(&mut self, id: RuleId) -> Option<FlowStats> {
        lock(&self.0).held.get(&id).map(|held| held.stats)
    }

    fn inserted(&self) -> u64 {
        lock(&self.0).held.len() as u64
    }
}

const PORT: DpPort = DpPort(1);
const CORES: [PmdId; 2] = [PmdId::Core(0), PmdId::Core(1)];

/// The key of flow `n` from a port.
fn key(port: DpPort, n: u32) -> FlowKey {
    let mut key = FlowKey::default();
    (key.base.in_port, key.base.dl_type, key.base.nw_src) = (port.0, 0x0800, n);
    key
}

/// Input port, recirculation id, EtherType, shape and source.
fn mask() -> KeyMask {
    let mut mask = FlowKey::default();
    (mask.base.in_port, mask.base.recirc_id, mask.base.nw_src) = (u32::MAX, u32::MAX, u32::MAX);
    (mask.base.dl_type, mask.base.shape) = (u16::MAX, u16::MAX);
    mask
}

fn output(port: u32) -> Arc<[DpAction]> {
    vec![DpAction::from(Output(DpPort(port)))].into()
}

fn flow(port: DpPort, n: u32, ufid: u128) -> FlowPut {
    FlowPut { ufid: Ufid(ufid), key: key(port, n), mask: mask(), actions: output(2), mode: PutMode::Create }
}

fn record(put: &FlowPut, stats: FlowStats) -> FlowRecord {
    let FlowPut { ufid, key, mask, actions, .. } = put.clone();
    FlowRecord { ufid, key, mask, actions, stats, offloaded: Offloaded::No }
}

/// Lets the rules process one operation, and returns its result.
fn complete(rules: &mut Rules, pmd: PmdId, kind: Kind, result: OpResult) -> OpResult {
    let mut answer = Answer { pmd, tag: 0, kinds: vec![kind], results: vec![result], reply: None };
    rules.complete(&mut answer);
    answer.results.pop().unwrap()
}

fn read(rules: &mut Rules, pmd: PmdId, put: &FlowPut, own: FlowStats) -> FlowRecord {
    match complete(rules, pmd, Kind::Read, OpResult::Flow(Box::new(record(put, own)))) {
        OpResult::Flow(flow) => *flow,
        other => panic!("{other:?}"),
    }
}

fn delete(rules: &mut Rules, pmd: PmdId, put: &FlowPut, own: FlowStats) -> FlowStats {
    match complete(rules, pmd, Kind::Delete, OpResult::Flow(Box::new(record(put, own)))) {
        OpResult::Flow(flow) => flow.stats,
        other => panic!("{other:?}"),
    }
}

fn counted(packets: u64, bytes: u64, used_ms: u64) -> FlowStats {
    FlowStats { packets, bytes, used_ms, tcp_flags: if packets > 0 { 2 } else { 0 } }
}

fn rig() -> (Rules, Nic) {
    let (mut rules, nic) = (Rules::default(), Nic::default());
    rules.port_add(PORT, nic.boxed());
    (rules, nic)
}

#[test]
fn cores_share_a_rule_and_each_packet_counts_once() {
    let (mut rules, nic) = rig();
    let flows = [flow(PORT, 7, 1), flow(PORT, 7, 2)];
    rules.put(CORES[0], &flows[0], 5);
    assert!(nic.receive(&flows[0].key, 100, 10));
    rules.put(CORES[1], &flows[1], 5);
    assert_eq!((rules.counts(), nic.inserted()), ((1, 2), 1));
    assert!(nic.receive(&flows[0].key, 100, 20) && !nic.receive(&key(PORT, 8), 100, 20));
    let own = FlowStats { packets: 3, bytes: 30, used_ms: 5, tcp_flags: 1 };
    let first = read(&mut rules, CORES[0], &flows[0], own);
    assert_eq!(first.stats, FlowStats { packets: 5, bytes: 230, used_ms: 20, tcp_flags: 3 });
    assert_eq!(first.offloaded, Offloaded::Full(OffloadLayer::Dpdk));
    // The other one is in use too, so that it does not idle out.
    let second = read(&mut rules, CORES[1], &flows[1], FlowStats::default());
    assert_eq!(second.stats, FlowStats { used_ms: 20, ..FlowStats::default() });
    // The counters of the first one end with it; the second one goes on.
    nic.receive(&flows[0].key, 100, 30);
    assert_eq!(delete(&mut rules, CORES[0], &flows[0], own).packets, 6);
    nic.receive(&flows[0].key, 100, 40);
    assert_eq!(read(&mut rules, CORES[1], &flows[1], FlowStats::default()).stats, counted(1, 100, 40));
    nic.receive(&flows[0].key, 100, 50);
    assert_eq!(delete(&mut rules, CORES[1], &flows[1], FlowStats::default()).packets, 2);
    assert_eq!((rules.counts(), nic.inserted()), ((0, 0), 0));
    rules.check();
}

#[test]
fn a_device_may_refuse_each_flow_and_each_change() {
    let (mut rules, nic) = rig();
    let put = flow(PORT, 7, 1);
    nic.set_refuses(true);
    rules.put(CORES[0], &put, 5);
    assert_eq!((rules.counts(), rules.stats().refused), ((0, 0), 1));
    let own = counted(4, 40, 9);
    let shown = read(&mut rules, CORES[0], &put, own);
    assert_eq!((shown.stats, shown.offloaded), (own, Offloaded::No));
    assert_eq!(delete(&mut rules, CORES[0], &put, own), own);
    // Another port has no device.
    rules.put(CORES[0], &flow(DpPort(2), 7, 1), 5);
    assert_eq!((rules.counts(), rules.stats().refused), ((0, 0), 2));
    nic.set_refuses(false);
    rules.put(CORES[0], &put, 5);
    let modify = |to| Kind::Modify(put.ufid, output(to));
    complete(&mut rules, CORES[0], modify(3), OpResult::Done);
    assert_eq!(nic.actions(), [output(3).to_vec()]);
    nic.receive(&put.key, 60, 70);
    // A refused change leaves no rule with old actions; what it counted stays.
    nic.set_refuses(true);
    complete(&mut rules, CORES[0], modify(4), OpResult::Done);
    assert_eq!((nic.actions().len(), rules.stats().refused), (0, 3));
    let shown = read(&mut rules, CORES[0], &put, FlowStats::default());
    assert_eq!((shown.stats, shown.offloaded), (counted(1, 60, 70), Offloaded::No));
    assert_eq!(delete(&mut rules, CORES[0], &put, FlowStats::default()), counted(1, 60, 70));
    assert_eq!(rules.counts(), (0, 0));
    // A change that the core refused is none.
    let failed = OpResult::Failed(dpif::DpifError::NotFound("flow"));
    complete(&mut rules, CORES[0], modify(5), failed);
    assert_eq!(rules.stats().refused, 3);
}

#[test]
fn a_flow_put_with_other_actions_changes_the_shared_rule() {
    let (mut rules, nic) = rig();
    rules.put(CORES[0], &flow(PORT, 7, 1), 5);
    rules.put(CORES[1], &FlowPut { actions: output(9), ..flow(PORT, 7, 2) }, 5);
    assert_eq!((rules.counts(), nic.actions()), ((1, 2), vec![output(9).to_vec()]));
    // A name that is in use is refused.
    rules.put(CORES[0], &flow(PORT, 8, 1), 5);
    assert_eq!((rules.counts(), rules.stats().refused), ((1, 2), 1));
}

#[test]
fn a_removed_port_leaves_the_counters_of_its_rules() {
    let (mut rules, nic) = rig();
    let put = flow(PORT, 7, 1);
    rules.put(CORES[0], &put, 5);
    nic.receive(&put.key, 60, 70);
    rules.port_del(PORT);
    assert_eq!((nic.inserted(), rules.counts()), (0, (0, 1)));
    let mut ended = record(&put, FlowStats::default());
    rules.end(CORES[0], &mut ended);
    assert_eq!((ended.stats, rules.counts()), (counted(1, 60, 70), (0, 0)));
}

#[test]
fn a_flush_removes_the_flows_of_its_core_only() {
    let (mut rules, nic) = rig();
    rules.put(CORES[0], &flow(PORT, 7, 1), 5);
    rules.put(CORES[0], &flow(PORT, 8, 2), 6);
    rules.put(CORES[1], &flow(PORT, 8, 3), 6);
    complete(&mut rules, CORES[0], Kind::Flush, OpResult::Done);
    assert_eq!((rules.counts(), nic.inserted()), ((1, 1), 1));
    rules.clear();
    assert_eq!((rules.counts(), nic.inserted()), ((0, 1), 0));
    rules.check();
}

#[test]
fn counters_include_flows_that_only_the_device_used() {
    let (mut rules, nic) = rig();
    for n in 0..3 {
        rules.put(CORES[0], &flow(PORT, n, n.into()), 5);
    }
    nic.receive(&key(PORT, 1), 60, 500);
    let own = |n: u128, used_ms| (Ufid(n), FlowStats { used_ms, ..FlowStats::default() });
    let all = vec![own(0, 100), own(1, 100), own(2, 450)];
    let result = complete(&mut rules, CORES[0], Kind::Counters(400), OpResult::Counters(all, None));
    let OpResult::Counters(flows, None) = result else { panic!("{result:?}") };
    assert_eq!(flows, [(Ufid(1), counted(1, 60, 500)), own(2, 450)]);
}

#[test]
fn a_device_that_marks_is_a_partial_offload() {
    let (mut rules, nic) = rig();
    lock(&nic.0).partial = true;
    let put = flow(PORT, 7, 1);
    rules.put(CORES[0], &put, 5);
    assert_eq!(read(&mut rules, CORES[0], &put, FlowStats::default()).offloaded, Offloaded::Partial);
}

#[test]
fn rules_and_users_are_bounded() {
    let (mut rules, nic) = rig();
    for n in 0..=RULES_MAX as u32 {
        rules.put(CORES[0], &flow(PORT, n, n.into()), 5);
    }
    assert_eq!((nic.inserted(), rules.stats().refused), (RULES_MAX as u64, 1));
    for n in 0..=(USERS_MAX - RULES_MAX) as u32 {
        rules.put(CORES[1], &flow(PORT, n % RULES_MAX as u32, n.into()), 5);
    }
    assert_eq!((rules.counts(), rules.stats().refused), ((RULES_MAX, USERS_MAX), 2));
    rules.check();
}

#[test]
fn latencies_are_averaged() {
    let mut latency = latency::Latency::default();
    assert_eq!(latency.shown(), dpif::OffloadLatency::default());
    [10, 20].into_iter().for_each(|us| latency.add(us));
    let shown = latency.shown();
    assert_eq!(
        (shown.mean_us, shown.deviation_us, shown.recent_us, shown.recent_deviation_us),
        (15, 7, 10, 1)
    );
    (0..10_000).for_each(|_| latency.add(1000));
    let shown = latency.shown();
    assert!(shown.mean_us > 990 && shown.mean_us < 1000 && shown.recent_us >= 999, "{shown:?}");
}
