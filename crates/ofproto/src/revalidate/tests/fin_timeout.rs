//! `fin_timeout` by packets of a megaflow: their TCP flags come with its counters.

use super::*;

const RULE: &str = "idle_timeout=60,hard_timeout=70 actions=fin_timeout(idle_timeout=5,hard_timeout=6),2";

/// Timeouts of the only rule.
fn timeouts(rig: &Rig) -> (u16, u16) {
    let view = rig.backer.view();
    let tables = &view.bridge(rig.bridge).expect("the rig made it").tables;
    let rules = tables.within(TableId(0), &flow::Match::catchall());
    let [rule] = &rules[..] else { panic!("there is one rule") };
    (rule.timeouts.idle_s(), rule.timeouts.hard_s())
}

/// Number of packets so far, with the union of their flags.
fn count(rig: &Rig, packets: u64, tcp_flags: u16) {
    for f in lock(&rig.dp.flows).iter_mut() {
        f.stats = FlowStats { packets, bytes: 60 * packets, used_ms: rig.now_ms, tcp_flags };
    }
}

#[test]
fn flags_of_a_megaflow_shorten_timeouts_when_it_has_packets() {
    let mut rig = Rig::new(RULE);
    rig.install(0x88cc, 1);
    count(&rig, 1, 2);
    rig.later(600);
    assert_eq!(timeouts(&rig), (60, 70));
    count(&rig, 2, 3);
    rig.later(600);
    assert_eq!(timeouts(&rig), (5, 6));
    // Packets before a new rule in its place do not shorten its timeouts; the next packet reports all flags.
    rig.rule(RULE);
    rig.later(600);
    assert_eq!(timeouts(&rig), (60, 70));
    count(&rig, 3, 3);
    rig.later(600);
    assert_eq!(timeouts(&rig), (5, 6));
}

#[test]
fn flags_count_for_the_rules_of_now() {
    let mut rig = Rig::new(RULE);
    rig.install(0x88cc, 1);
    count(&rig, 1, 4);
    rig.rule("idle_timeout=60,hard_timeout=70 actions=2");
    rig.later(600);
    assert_eq!(timeouts(&rig), (60, 70));
    rig.rule(RULE);
    count(&rig, 2, 4);
    rig.later(600);
    assert_eq!(timeouts(&rig), (5, 6));
}

#[test]
fn last_flags_of_a_deleted_flow_are_not_lost() {
    let mut rig = Rig::new(RULE);
    rig.install(0x88cc, 1);
    let flow = lock(&rig.dp.flows).pop().expect("it was installed");
    let stats = FlowStats { packets: 1, bytes: 60, used_ms: rig.now_ms, tcp_flags: 1 };
    // Its translation is outdated when the datapath reports it.
    rig.backer.bump_epoch();
    lock(&rig.dp.purged).push(FlowRecord { stats, ..flow });
    rig.settle();
    assert_eq!(timeouts(&rig), (5, 6));
}

#[test]
fn slow_flows_that_go_unchecked_shorten_timeouts() {
    let mut rig = Rig::new(RULE);
    rig.install(0x88cc, 1);
    count(&rig, 1, 0x10);
    rig.later(600);
    long_round(&mut rig, 300);
    long_round(&mut rig, 300);
    rig.now_ms += 1000;
    count(&rig, 2, 0x11);
    rig.backer.bump_epoch();
    rig.settle();
    assert!(rig.dp.actions().is_empty());
    assert_eq!(timeouts(&rig), (5, 6));
}
