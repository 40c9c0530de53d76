//! Rules made by `learn`.

use super::*;

impl Rig {
    /// Actions of the only rule in table 1 of bridge `a`.
    fn learned_actions(&self) -> String {
        let view = self.backer.view();
        let tables = &view.bridge(self.a).expect("made by the rig").tables;
        let rules = tables.within(TableId(1), &flow::Match::catchall());
        let [rule] = &rules[..] else { panic!("one rule is learned") };
        ofp_actions::text::format_actions(&rule.actions, &NoPortNames)
    }
}

#[test]
fn learned_rules_are_there_at_once() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "actions=learn(table=1,idle_timeout=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)
         table=1,priority=0 actions=4",
    );
    rig.acts(TCP, "4");
    rig.acts("in_port=3,arp,dl_src=02:00:00:00:00:02,dl_dst=02:00:00:00:00:01", "1");
    let view = rig.backer.view();
    let bridge = view.bridge(a).expect("made by the rig");
    assert_eq!(bridge.tables.rule_count(TableId(1)), 3);
    // Without effects nothing is learned.
    rig.translate(&Rig::flow("in_port=2,arp,dl_src=02:00:00:00:00:77"), false);
    assert_eq!(rig.backer.view().bridge(a).map(|b| b.tables.rule_count(TableId(1))), Some(3));
}

#[test]
fn learning_again_begins_the_hard_timeout_anew_and_a_passed_idle_timeout() {
    for timeouts in ["idle_timeout=4", "hard_timeout=9", "idle_timeout=4,hard_timeout=9"] {
        let rig = Rig::new();
        let a = rig.a;
        let actions = format!("learn(table=1,{timeouts},output:NXM_OF_IN_PORT[])");
        let rig = rig.rules(a, &format!("actions={actions}"));
        let t = rig.translate(&Rig::flow(TCP), true);
        let times = || {
            let view = rig.backer.view();
            let tables = &view.bridge(a).expect("made by the rig").tables;
            let rules = tables.within(TableId(1), &flow::Match::catchall());
            let [r] = &rules[..] else { panic!("one rule is learned") };
            (r.created_ms, r.renewed_ms(), r.stats.used_ms(), r.stats.counts())
        };
        assert_eq!(times(), (1000, 1000, 1000, (0, 0)));
        let epoch = rig.backer.epoch();
        t.cache.replay(&seen(3, 180, 4999), &mut rig.backer.effect_host());
        assert_eq!(times(), (1000, 4999, 1000, (0, 0)), "{timeouts}");
        t.cache.replay(&seen(1, 60, 4000), &mut rig.backer.effect_host());
        assert_eq!(times(), (1000, 4999, 1000, (0, 0)), "{timeouts}");
        // A packet behind the idle timeout learns the rule before its removal.
        t.cache.replay(&seen(1, 60, 5000), &mut rig.backer.effect_host());
        let used_ms = if timeouts.contains("idle") { 5000 } else { 1000 };
        assert_eq!(times(), (1000, 5000, used_ms, (0, 0)), "{timeouts}");
        // No packet is treated differently because of it.
        assert_eq!(rig.backer.epoch(), epoch);
    }
}

#[test]
fn learned_outputs_are_ports_of_16_bits() {
    for (value, source, expected) in [
        ("3", "NXM_NX_REG0[]", "3"),
        ("0xfff8", "NXM_NX_REG0[]", "1"),
        ("0xfffffff8", "NXM_NX_REG0[]", "drop"),
        ("0x10003", "NXM_NX_REG0[]", "drop"),
        ("0x10003", "NXM_NX_REG0[0..15]", "3"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let actions = format!("load:{value}->NXM_NX_REG0[],learn(table=1,output:{source}),resubmit(,1)");
        let rig = rig.rules(a, &format!("actions={actions}"));
        // A translation reads the tables of its start.
        rig.translate(&Rig::flow(TCP), true);
        rig.acts(TCP, expected);
    }
}

/// As OVS 3.5 learns from packet-outs with each of these values in a register, and from each of these input ports.
#[test]
fn learned_outputs_are_only_ports_that_a_flow_mod_may_name() {
    for (value, expected) in [
        (0, "output:0"),
        (0xfeff, "output:65279"),
        (0xff00, "drop"),
        (0xfff0, "drop"),
        (0xfff7, "drop"),
        (0xfff8, "IN_PORT"),
        (0xfff9, "drop"),
        (0xfffa, "drop"),
        (0xfffb, "FLOOD"),
        (0xfffc, "ALL"),
        (0xfffd, "drop"),
        (0xfffe, "LOCAL"),
        (0xffff, "drop"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let load = format!("load:{value}->NXM_NX_REG0[]");
        let rig = rig.rules(a, &format!("actions={load},learn(table=1,output:NXM_NX_REG0[])"));
        rig.translate(&Rig::flow(TCP), true);
        assert_eq!(rig.learned_actions(), expected, "{value:#x}");
    }
    for (port, expected) in [
        (OfPort::NONE, "drop"),
        (OfPort::CONTROLLER, "drop"),
        (OfPort::LOCAL, "LOCAL"),
        (OfPort(2), "output:2"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rig = rig.rules(a, "actions=learn(table=1,output:NXM_OF_IN_PORT[])");
        rig.translate(&Flow { in_port: port.0, ..Rig::flow(TCP) }, true);
        assert_eq!(rig.learned_actions(), expected, "{port}");
    }
}

#[test]
fn the_limit_of_learned_rules_is_reported_in_a_register() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "actions=learn(table=1,limit=1,result_dst=reg0[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:1->NXM_NX_REG1[]),resubmit(,2)
         table=2,reg0=1 actions=2
         table=2,reg0=0 actions=3",
    );
    rig.acts(TCP, "2");
    rig.acts("in_port=1,arp,dl_src=02:00:00:00:00:05", "3");
    rig.acts(TCP, "2");
}
