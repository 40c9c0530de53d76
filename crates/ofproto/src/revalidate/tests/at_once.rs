//! Few affected flows change at once, without a round.

use super::*;
use crate::upcall::tests::add_by_flow_mod;

fn drops() -> Vec<DpAction> {
    vec![DpAction::Drop(DropAction(dpif::XlateDrop::Ok))]
}

impl Rig {
    /// A rig whose revalidator receives the answers to changes made at once.
    fn answering(rules: &str) -> Rig {
        let rig = Rig::new(rules);
        rig.revalidator.answers(&rig.backer);
        rig
    }

    fn change(&self, few: Few) -> bool {
        change_at_once(&self.backer, &self.dp, few, self.now_ms)
    }

    fn flow_mod_then_change(&self, line: &str) -> bool {
        add_by_flow_mod(&self.backer, self.bridge, line);
        self.change(Few::FOR_OTHERS)
    }

    /// A rig whose only flow, of an old rule, is translated before a change and not yet installed; the operations that
    /// install it.
    fn changed_before_a_put() -> (Rig, Vec<DpifOp>) {
        let mut rig = Rig::answering("priority=1 actions=2");
        rig.settle();
        let ops = handle(&rig.backer, vec![miss_of(0x88cc, 1)], rig.now_ms).remove(&CORE).unwrap_or_default();
        assert!(rig.flow_mod_then_change("priority=2,in_port=1 actions=drop"));
        (rig, ops)
    }

    /// Packets of the rule of that priority in table 0.
    fn packets_of(&self, priority: i32) -> u64 {
        let view = self.backer.view();
        let tables = &view.bridge(self.bridge).expect("a bridge").tables;
        let rules = tables.within(TableId(0), &flow::Match::catchall());
        rules.iter().filter(|r| r.priority == priority).map(|r| r.stats.counts().0).sum()
    }
}

#[test]
fn the_datapath_follows_before_the_revalidator_runs() {
    let mut rig = Rig::answering("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    let rounds = rig.revalidator.rounds();
    assert!(rig.flow_mod_then_change("priority=2,in_port=1 actions=drop"));
    rig.dp.work();
    assert_eq!(rig.dp.actions(), [drops()]);
    rig.settle();
    assert_eq!((rig.revalidator.rounds(), rig.dp.actions()), (rounds, vec![drops()]), "no round follows");
    assert!(rig.revalidator.is_settled(&rig.backer));
}

#[test]
fn packets_up_to_the_change_count_for_the_old_rules() {
    // Also if the actions stay, and if two changes follow each other.
    for (lines, expected) in [
        (&["priority=2,in_port=1 actions=drop"][..], [6, 4, 0]),
        (&["priority=2,in_port=1 actions=2"], [6, 4, 0]),
        (&["priority=2,in_port=1 actions=drop", "priority=3,in_port=1 actions=in_port"], [6, 0, 4]),
    ] {
        let mut rig = Rig::answering("priority=1 actions=2");
        rig.install(0x88cc, 1);
        rig.settle();
        rig.dp.count(5, rig.now_ms);
        assert!(lines.iter().all(|line| rig.flow_mod_then_change(line)), "{lines:?}");
        rig.dp.work();
        rig.settle();
        rig.dp.count(9, rig.now_ms);
        rig.later(600);
        assert_eq!([1, 2, 3].map(|priority| rig.packets_of(priority)), expected, "{lines:?}");
        assert!(rig.backer.ukeys.with(Ufid(1), CORE, |k| k.before.is_none()).expect("the flow"));
    }
}

#[test]
fn a_round_that_reads_counters_meanwhile_credits_the_old_rules() {
    let mut rig = Rig::answering("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    // A round reads the counters before the change, and processes them after it.
    rig.dp.count(5, rig.now_ms);
    rig.revalidator.request_round();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    assert!(rig.flow_mod_then_change("priority=2,in_port=1 actions=drop"));
    rig.settle();
    assert_eq!((rig.packets_of(1), rig.packets_of(2)), (6, 0));
}

#[test]
fn older_counters_that_come_later_count_nothing() {
    let mut rig = Rig::answering("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    rig.dp.count(5, rig.now_ms);
    rig.revalidator.request_round();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    // The answer of a round waits, while the flow is read once more.
    let late = rig.revalidator.replies.pop().expect("the counters");
    rig.dp.count(9, rig.now_ms);
    assert!(rig.flow_mod_then_change("priority=2,in_port=1 actions=drop"));
    rig.dp.work();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.revalidator.replies.push(late);
    rig.settle();
    rig.later(600);
    assert_eq!((rig.packets_of(1), rig.packets_of(2)), (10, 0));
}

#[test]
fn a_flow_that_needs_another_mask_ends_and_is_counted() {
    let mut rig = Rig::answering("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    rig.dp.count(5, rig.now_ms);
    assert!(rig.flow_mod_then_change("priority=2,dl_dst=02:00:00:00:00:09 actions=drop"));
    rig.dp.work();
    assert!(rig.dp.actions().is_empty());
    rig.settle();
    assert_eq!((rig.packets_of(1), rig.packets_of(2), rig.backer.ukeys.len()), (6, 0, 0));
}

#[test]
fn a_change_that_the_datapath_refuses_ends_the_flow() {
    let mut rig = Rig::answering("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    rig.dp.refuse_modify = true;
    assert!(rig.flow_mod_then_change("priority=2,in_port=1 actions=drop"));
    rig.dp.work();
    rig.settle();
    assert!(rig.dp.actions().is_empty() && rig.backer.ukeys.is_empty());
}

#[test]
fn much_work_and_held_flows_are_left_to_the_revalidator() {
    let mut rig = Rig::new("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    assert!(!rig.flow_mod_then_change("priority=2,in_port=1 actions=drop"), "nobody receives the answers");
    rig.revalidator.answers(&rig.backer);
    rig.backer.barrier.paused.store(true, Ordering::Release);
    assert!(!rig.change(Few::FOR_OTHERS), "the revalidator is paused");
    rig.backer.barrier.paused.store(false, Ordering::Release);
    assert!(rig.change(Few::FOR_OTHERS));
    let others = u128::from(Few::FOR_OTHERS.flows);
    (2..2 + others).for_each(|n| rig.install(0x88cc, n));
    rig.settle();
    assert!(!rig.flow_mod_then_change("table=7 actions=drop"), "too many flows to test");
    rig.settle();
    assert!(rig.revalidator.is_settled(&rig.backer));
    assert!(!rig.flow_mod_then_change("priority=3,in_port=1 actions=in_port"));
    let limits = Few { flows: u64::MAX, affected: 3, waits: true };
    assert!(!rig.change(limits), "too many to translate");
    assert!(lock(&rig.dp.waiting).is_empty());
    rig.settle();
    let actions = rig.dp.actions();
    assert!(actions.len() == others as usize + 1 && actions.iter().all(|a| *a == out(1)));
}

#[test]
fn a_flow_whose_put_is_under_way_is_changed_after_it() {
    let (mut rig, ops) = Rig::changed_before_a_put();
    rig.dp.work();
    for op in ops {
        rig.dp.one(op);
    }
    assert_eq!(rig.dp.actions(), [out(2)]);
    assert!(put_done(&rig.backer, CORE, Ufid(1), true), "it is to be checked");
    rig.settle();
    assert_eq!(rig.dp.actions(), [drops()]);
    assert!(rig.revalidator.is_settled(&rig.backer));
}

#[test]
fn a_lost_check_of_a_new_flow_is_made_up_by_a_round() {
    let (mut rig, ops) = Rig::changed_before_a_put();
    ops.into_iter().for_each(|op| drop(rig.dp.one(op)));
    while rig.backer.stale.push((Ufid(99), CORE)).is_ok() {}
    put_done(&rig.backer, CORE, Ufid(1), true);
    rig.settle();
    assert_eq!(rig.dp.actions(), [drops()]);
}

#[test]
fn a_barrier_waits_for_changes_made_at_once() {
    let mut rig = Rig::answering("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    assert!(rig.flow_mod_then_change("priority=2,in_port=1 actions=drop"));
    let epoch = rig.backer.epoch();
    assert!(!rig.backer.covers(epoch));
    rig.backer.barrier.want(epoch);
    for _ in 0..3 {
        rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    }
    assert!(rig.backer.barrier.covered() < epoch, "the change is under way");
    rig.settle();
    assert!(rig.backer.barrier.covered() >= epoch && rig.dp.actions() == [drops()]);
}
