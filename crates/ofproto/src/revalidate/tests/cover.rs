//! Epochs are covered once no packet can follow replaced rules.

use super::*;
use crate::barrier::DatapathBarrier;
use crate::upcall::tests::add_by_flow_mod;
use sync::AtomicBool;

impl Rig {
    /// Adds a rule as a flow-mod does.
    fn flow_mod(&self, line: &str) {
        add_by_flow_mod(&self.backer, self.bridge, line);
    }

    /// Waits for the present epoch as a connection does; returns it.
    fn want(&self) -> u64 {
        let epoch = self.backer.epoch();
        assert!(!self.backer.covers(epoch), "flows are affected");
        self.backer.barrier.want(epoch);
        epoch
    }

    fn covers(&self) -> bool {
        self.backer.covers(self.backer.epoch())
    }

    fn poll(&mut self) {
        self.revalidator.poll(&self.backer, &self.dp, self.now_ms);
    }

    fn barrier(&self) -> &DatapathBarrier {
        &self.backer.barrier
    }

    /// Covers the present epoch.
    fn want_covered(&mut self) {
        let epoch = self.backer.epoch();
        if !self.backer.covers(epoch) {
            self.backer.barrier.want(epoch);
            self.settle();
        }
        assert!(self.covers());
    }
}

fn drops() -> Vec<DpAction> {
    vec![DpAction::Drop(DropAction(dpif::XlateDrop::Ok))]
}

#[test]
fn changes_that_affect_no_flow_are_covered_at_once() {
    let rig = Rig::new("priority=1 actions=2");
    rig.flow_mod("priority=2 actions=drop");
    assert!(rig.covers(), "no flows");
    let mut rig = Rig::new("priority=1 actions=2");
    rig.install_many(100);
    rig.want_covered();
    for line in ["priority=2,in_port=2 actions=drop", "table=7,priority=1 actions=drop"] {
        rig.flow_mod(line);
        assert_eq!((rig.covers(), rig.barrier().wanted()), (true, None), "{line}");
    }
}

#[test]
fn an_affected_flow_is_covered_once_the_datapath_has_its_actions() {
    let mut rig = Rig::new("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.want_covered();
    rig.flow_mod("priority=2,in_port=1 actions=drop");
    let epoch = rig.want();
    rig.poll();
    rig.poll();
    assert!(rig.barrier().covered() < epoch && rig.dp.actions() == [out(2)]);
    rig.settle();
    assert!(rig.barrier().covered() >= epoch && rig.dp.actions() == [drops()]);
    assert_eq!(rig.barrier().wanted(), None);
}

#[test]
fn a_put_under_way_is_waited_for() {
    let mut rig = Rig::new("priority=1 actions=2");
    rig.settle();
    let ops = handle(&rig.backer, vec![miss_of(0x88cc, 1)], rig.now_ms).remove(&CORE).unwrap_or_default();
    rig.flow_mod("priority=2,in_port=1 actions=drop");
    let epoch = rig.want();
    rig.settle();
    assert!(rig.barrier().covered() < epoch);
    for op in ops {
        rig.dp.one(op);
    }
    rig.settle();
    assert!(rig.barrier().covered() < epoch && rig.dp.actions() == [out(2)]);
    put_done(&rig.backer, CORE, Ufid(1), true);
    rig.poll();
    rig.poll();
    assert!(rig.barrier().covered() < epoch && rig.dp.actions() == [out(2)], "its change is under way");
    rig.settle();
    assert!(rig.barrier().covered() >= epoch && rig.dp.actions() == [drops()]);
}

#[test]
fn a_translation_under_way_is_waited_for() {
    let mut rig = Rig::new("priority=1 actions=2");
    rig.want_covered();
    let batch = rig.backer.begin_translations();
    rig.flow_mod("priority=2 actions=drop");
    let later = rig.backer.begin_translations();
    let epoch = later.epoch;
    assert_eq!((rig.covers(), batch.epoch + 1), (false, epoch));
    rig.barrier().want(epoch);
    for _ in 0..3 {
        rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
        rig.dp.work();
    }
    assert!(rig.barrier().covered() < epoch);
    drop(batch);
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    assert!(rig.barrier().covered() >= epoch, "translations of the new epoch are not waited for");
}

#[test]
fn an_older_change_that_is_executed_last_is_waited_for() {
    let mut rig = Rig::new("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.want_covered();
    rig.flow_mod("priority=2,in_port=1 actions=drop");
    while lock(&rig.dp.waiting).iter().all(|b| !matches!(b.ops[..], [DpifOp::FlowPut(_)])) {
        rig.dp.work();
        rig.poll();
    }
    let is_change = |b: &OpBatch| matches!(b.ops[..], [DpifOp::FlowPut(_)]);
    let older: Vec<_> = lock(&rig.dp.waiting).extract_if(.., |b| is_change(b)).collect();
    rig.flow_mod("priority=3,in_port=1 actions=in_port");
    let epoch = rig.want();
    rig.settle();
    assert!(rig.barrier().covered() < epoch, "the older change is under way");
    lock(&rig.dp.waiting).extend(older);
    rig.dp.work();
    assert_eq!(rig.dp.actions(), [drops()], "it came last");
    rig.poll();
    assert!(rig.barrier().covered() < epoch);
    rig.settle();
    assert!(rig.barrier().covered() >= epoch && rig.dp.actions() == [out(1)]);
}

#[test]
fn many_flows_are_searched_in_slices_and_unaffected_ones_not_translated() {
    const FLOWS: u128 = 10_000;
    let mut rig = Rig::new("priority=1 actions=resubmit(,1)\n table=1,priority=1 actions=2");
    rig.install_many(FLOWS);
    rig.flow_mod("priority=2,in_port=2 actions=drop");
    let epoch = rig.want();
    rig.poll();
    assert!(rig.barrier().covered() >= epoch, "no flow is affected");
    assert_eq!(rig.dp.actions(), vec![out(2); FLOWS as usize]);
    rig.flow_mod("table=1,priority=2 actions=drop");
    let epoch = rig.want();
    let mut polls = 0;
    while rig.barrier().covered() < epoch && polls < 100 {
        rig.poll();
        rig.dp.work();
        polls += 1;
    }
    assert!((10..100).contains(&polls), "{polls} slices");
    assert_eq!(rig.dp.actions(), vec![drops(); FLOWS as usize]);
}

#[test]
fn nothing_waits_while_revalidation_is_held() {
    let held: [fn(&DatapathBarrier) -> &AtomicBool; 2] = [|b| &b.paused, |b| &b.resting];
    for held in held {
        let mut rig = Rig::new("priority=1 actions=2");
        rig.install(0x88cc, 1);
        rig.want_covered();
        rig.flow_mod("priority=2 actions=drop");
        assert!(!rig.covers());
        held(&rig.backer.barrier).store(true, Ordering::Release);
        assert!(rig.covers());
        held(&rig.backer.barrier).store(false, Ordering::Release);
        assert!(!rig.covers(), "the datapath has not changed");
    }
}
