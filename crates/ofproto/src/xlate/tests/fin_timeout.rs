//! `fin_timeout`: its examined bits, and the packets that shorten a rule's timeouts.

use super::*;

const SYN: u16 = 2;
const FIN: u16 = 1;
const RST: u16 = 4;

/// Timeouts of the only rule of a table.
fn timeouts(rig: &Rig, table: u8) -> (u16, u16) {
    let view = rig.backer.view();
    let tables = &view.bridge(rig.a).expect("made by the rig").tables;
    let rules = tables.within(TableId(table), &flow::Match::catchall());
    let [r] = &rules[..] else { panic!("one rule is in table {table}") };
    (r.timeouts.idle_s(), r.timeouts.hard_s())
}

fn one_packet(tcp_flags: u16) -> FlowStats {
    FlowStats { packets: 1, bytes: 60, used_ms: 2000, tcp_flags }
}

#[test]
fn timeouts_only_shrink_and_by_ends_of_connections_alone() {
    // Timeouts of the rule, arguments of the action, flags, timeouts afterwards: as the stock switch has them.
    let rows = [
        ("idle_timeout=60,hard_timeout=70", "idle_timeout=5,hard_timeout=6", FIN, (5, 6)),
        ("idle_timeout=60,hard_timeout=70", "idle_timeout=5,hard_timeout=6", RST, (5, 6)),
        ("idle_timeout=60,hard_timeout=70", "idle_timeout=5,hard_timeout=6", SYN | 0x18, (60, 70)),
        ("", "idle_timeout=5,hard_timeout=6", FIN, (5, 6)),
        ("idle_timeout=20,hard_timeout=30", "idle_timeout=50,hard_timeout=60", FIN, (20, 30)),
        ("idle_timeout=60,hard_timeout=70", "hard_timeout=6", FIN | RST, (60, 6)),
        ("idle_timeout=60,hard_timeout=70", "", FIN, (60, 70)),
    ];
    for (of_rule, of_action, flags, expected) in rows {
        let rig = Rig::new();
        let a = rig.a;
        let rig = rig.rules(a, &format!("{of_rule} actions=fin_timeout({of_action}),2"));
        let t = rig.check("in_port=1,tcp", "2", "recirc_id=0,eth,tcp,in_port=1,nw_frag=no");
        t.cache.replay(&one_packet(flags), &mut rig.backer.effect_host());
        assert_eq!(timeouts(&rig, 0), expected, "{of_rule} {of_action} {flags}");
    }
}

#[test]
fn the_mask_has_the_protocol_of_every_packet() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "actions=fin_timeout(idle_timeout=5),2");
    rig.check("in_port=1,udp", "2", "recirc_id=0,eth,udp,in_port=1,nw_frag=no");
    rig.check("in_port=1,icmp6", "2", "recirc_id=0,eth,icmp6,in_port=1,nw_frag=no");
    rig.check("in_port=1,arp", "2", "recirc_id=0,eth,arp,in_port=1,arp_op=0");
}

#[test]
fn each_rule_has_its_own_and_packet_outs_have_none() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "idle_timeout=60 actions=resubmit(,1),fin_timeout(idle_timeout=30),2
         table=1,idle_timeout=61 actions=resubmit(,2),resubmit(,3)
         table=2,idle_timeout=62 actions=fin_timeout(idle_timeout=3)
         table=3,idle_timeout=63 actions=fin_timeout(idle_timeout=4)",
    );
    let t = rig.acts("in_port=1,tcp", "2");
    t.cache.replay(&one_packet(FIN), &mut rig.backer.effect_host());
    assert_eq!([0, 1, 2, 3].map(|t| timeouts(&rig, t).0), [30, 61, 3, 4]);
    let (view, flow) = (rig.backer.view(), Rig::flow("in_port=1,tcp"));
    let actions =
        [ofp_actions::Action::FinTimeout(ofp_actions::FinTimeout { idle_timeout_s: 1, hard_timeout_s: 1 })];
    let start = Start::Actions(&actions);
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start, trace: false };
    let t = translate(&request, &mut rig.backer.xlate_host(true, 1000));
    assert!(t.cache.effects().is_empty());
}

#[test]
fn learned_rules_begin_with_it_and_keep_what_it_left_them() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "in_port=1 actions=learn(table=1,idle_timeout=60,hard_timeout=70,fin_idle_timeout=25,fin_hard_timeout=26,output:NXM_OF_IN_PORT[])
         in_port=2 actions=resubmit(,1)",
    );
    let learner = rig.translate(&Rig::flow("in_port=1,tcp"), true);
    {
        let view = rig.backer.view();
        let rules =
            view.bridge(a).expect("made by the rig").tables.within(TableId(1), &flow::Match::catchall());
        let actions = ofp_actions::text::format_actions(&rules[0].actions, &NoPortNames);
        assert_eq!(actions, "fin_timeout(idle_timeout=25,hard_timeout=26),output:1");
    }
    let back = rig.translate(&Rig::flow("in_port=2,tcp"), true);
    back.cache.replay(&one_packet(SYN), &mut rig.backer.effect_host());
    assert_eq!(timeouts(&rig, 1), (60, 70));
    back.cache.replay(&one_packet(FIN), &mut rig.backer.effect_host());
    assert_eq!(timeouts(&rig, 1), (25, 26));
    // Learning again, by packets of the megaflow and by a new one, restarts its age and leaves its timeouts.
    learner.cache.replay(&FlowStats { used_ms: 9000, ..one_packet(SYN) }, &mut rig.backer.effect_host());
    assert_eq!(timeouts(&rig, 1), (25, 26));
    rig.translate(&Rig::flow("in_port=1,tcp"), true);
    assert_eq!(timeouts(&rig, 1), (25, 26));
    // The resulting version shares them with the one known to the megaflow.
    let view = rig.backer.view();
    let rules = view.bridge(a).expect("made by the rig").tables.within(TableId(1), &flow::Match::catchall());
    assert_eq!(rules[0].renewed_ms(), 9000);
    let Some(XlateEffect::FinTimeout { timeouts, .. }) =
        back.cache.effects().iter().find(|e| matches!(e, XlateEffect::FinTimeout { .. }))
    else {
        panic!("the megaflow shortens them")
    };
    assert!(matches!(&rules[0].timeouts, RuleTimeouts::Shrinking(shared) if Arc::ptr_eq(timeouts, shared)));
}

#[test]
fn a_rule_without_timeouts_ends_by_them() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(a, "actions=fin_timeout(idle_timeout=5),2");
    let count = || rig.backer.view().bridge(a).map(|b| b.tables.rule_count(TableId(0)));
    rig.backer.dump_completed(100_000);
    rig.backer.expire(100_000);
    assert_eq!(count(), Some(1));
    let t = rig.acts("in_port=1,tcp", "2");
    t.cache.replay(&FlowStats { used_ms: 100_000, ..one_packet(FIN) }, &mut rig.backer.effect_host());
    rig.backer.dump_completed(104_999);
    rig.backer.expire(104_999);
    assert_eq!(count(), Some(1));
    rig.backer.dump_completed(105_000);
    rig.backer.expire(105_000);
    assert_eq!(count(), Some(0));
}
