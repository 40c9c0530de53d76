//! Helpers process the flows of their shards as the leader does its own.

use super::*;
use crate::upcall::tests::add_by_flow_mod;
use dpif::actions::DropAction;

const FLOWS: u128 = 300;

fn with_helpers(rules: &str) -> (Rig, Vec<Arc<Helper>>) {
    let mut rig = Rig::new(rules);
    rig.install_many(FLOWS);
    let helpers: Vec<_> = (0..2).map(|_| Arc::new(Helper::new(Box::new(|| {})))).collect();
    rig.revalidator.set_helpers(helpers.clone());
    (rig, helpers)
}

/// Rounds in which the helpers work after the leader; returns the number of their shares.
fn settle(rig: &mut Rig, helpers: &[Arc<Helper>]) -> usize {
    let mut shares = 0;
    for _ in 0..20 {
        rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
        rig.dp.work();
        rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
        let done = helpers.iter().filter(|h| h.work(&rig.backer, rig.now_ms)).count();
        shares += done;
    }
    shares
}

#[test]
fn a_round_waits_for_its_helpers_and_counts_each_flow_once() {
    let (mut rig, helpers) = with_helpers("actions=2");
    rig.dp.count(5, 1100);
    rig.now_ms += 600;
    rig.revalidator.request_round();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    let rounds = rig.revalidator.stats.rounds;
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    // The leader has counted its own flows.
    let counted_now = counted(&rig.backer, rig.bridge);
    assert!(counted_now > FLOWS as u64 && counted_now < 6 * FLOWS as u64, "{counted_now}");
    assert!(!rig.revalidator.is_idle() && rig.revalidator.stats.rounds == rounds);
    assert!(settle(&mut rig, &helpers) >= 2);
    assert_eq!(counted(&rig.backer, rig.bridge), 6 * FLOWS as u64);
    assert!(rig.revalidator.is_idle() && rig.revalidator.stats.rounds > rounds);
    let lens = rig.backer.ukeys.lens(3);
    assert!(lens.iter().sum::<usize>() == FLOWS as usize && lens.iter().all(|n| *n > 50), "{lens:?}");
}

#[test]
fn a_change_reaches_the_flows_of_all_threads() {
    let (mut rig, helpers) = with_helpers("actions=2");
    rig.rule("actions=drop");
    settle(&mut rig, &helpers);
    assert!(
        rig.dp.actions().iter().all(|actions| *actions == [DpAction::Drop(DropAction(dpif::XlateDrop::Ok))])
    );
    assert!(rig.revalidator.is_settled(&rig.backer));
    // Other bits: all are deleted, and their last counters are not lost.
    rig.dp.count(2, 1200);
    rig.rule("priority=40000,dl_dst=02:00:00:00:00:09 actions=2");
    settle(&mut rig, &helpers);
    assert!(rig.dp.actions().is_empty() && rig.backer.ukeys.is_empty());
    assert_eq!(counted(&rig.backer, rig.bridge), 2 * FLOWS as u64);
}

#[test]
fn a_share_that_comes_late_changes_no_flow_that_is_gone_or_newer() {
    let (mut rig, helpers) = with_helpers("actions=2");
    rig.rule("actions=drop");
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    rig.dp.work();
    rig.revalidator.poll(&rig.backer, &rig.dp, rig.now_ms);
    // The helpers have their shares. Some flows end with their thread meanwhile, and the rules change again.
    let gone: Vec<_> = lock(&rig.dp.flows).drain(..100).collect();
    lock(&rig.dp.purged).extend(gone);
    rig.rule("actions=2,2");
    settle(&mut rig, &helpers);
    rig.later(600);
    settle(&mut rig, &helpers);
    let left = rig.dp.actions();
    let twice = [out(2), out(2)].concat();
    assert!(
        left.len() == FLOWS as usize - 100 && left.iter().all(|actions| *actions == twice),
        "{:?}",
        left[0]
    );
    assert_eq!(rig.backer.ukeys.len(), FLOWS as u64 - 100);
}

#[test]
fn a_flow_is_compared_with_all_changes_up_to_now() {
    let mut rig = Rig::new("priority=1 actions=2");
    rig.install(0x88cc, 1);
    rig.settle();
    let mut latest = Latest::new(&rig.backer);
    let mut look = || {
        let of_flow = |k: &mut Ukey| (latest.outdates(k), k.epoch);
        rig.backer.ukeys.with(Ufid(1), CORE, of_flow).expect("the flow")
    };
    let made = rig.backer.epoch();
    assert_eq!(look(), (None, made));
    add_by_flow_mod(&rig.backer, rig.bridge, "table=7,priority=1 actions=drop");
    assert_eq!(look(), (None, made + 1), "it looked up another table");
    // One that affects it came between two that do not.
    add_by_flow_mod(&rig.backer, rig.bridge, "priority=2,in_port=1 actions=drop");
    add_by_flow_mod(&rig.backer, rig.bridge, "table=7,priority=2 actions=drop");
    assert_eq!(look(), (Some(made + 3), made + 1));
    add_by_flow_mod(&rig.backer, rig.bridge, "table=7,priority=3 actions=drop");
    assert_eq!(look(), (Some(made + 4), made + 1), "the log is read again");
    add_by_flow_mod(&rig.backer, rig.bridge, "table=7,priority=4 actions=drop");
    let as_read = |k: &mut Ukey| latest.outdates_as_read(k);
    assert_eq!(rig.backer.ukeys.with(Ufid(1), CORE, as_read), Some(Some(made + 4)), "and not without need");
}
