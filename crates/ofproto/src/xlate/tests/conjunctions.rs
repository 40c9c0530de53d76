//! Conjunctive matches. Expectations are those of `ofproto/trace` of OVS 3.1, traces those of 3.5.

use super::stories::story;
use super::*;

const RULES: &str = "conj_id=1,actions=4
    priority=10,tcp,nw_src=10.0.0.1,actions=conjunction(1,1/2)
    priority=10,tcp,nw_src=10.0.0.2,actions=conjunction(1,1/2),conjunction(2,1/3)
    priority=10,tcp,tp_dst=80,actions=conjunction(1,2/2),note:11,conjunction(2,2/3)
    priority=10,ip,nw_dst=10.1.0.0/16,actions=conjunction(2,3/3)
    conj_id=2,tcp,actions=2
    priority=9,tcp,actions=3
    priority=20,tcp,tp_src=7,actions=conjunction(3,1/2)
    priority=20,tcp,nw_ttl=9,actions=conjunction(3,2/2)";

fn rig(more: &str) -> Rig {
    let rig = Rig::new();
    let a = rig.a;
    rig.rules(a, RULES).rules(a, more)
}

fn packet(src: u8, dst: &str, tp_src: u16, tp_dst: u16, ttl: u8) -> String {
    format!("in_port=1,tcp,nw_src=10.0.0.{src},nw_dst={dst},tp_src={tp_src},tp_dst={tp_dst},nw_ttl={ttl}")
}

#[test]
fn clauses_of_one_id_and_priority_make_a_match() {
    let head = "recirc_id=0,eth,tcp,in_port=1";
    let rig1 = rig("");
    for (of, expected, megaflow) in [
        (
            (1, "10.2.0.1", 1, 80, 64),
            "4",
            "nw_src=10.0.0.1,nw_dst=10.2.0.0/15,nw_ttl=64,nw_frag=no,tp_src=0x0/0xfffc,tp_dst=80",
        ),
        (
            (2, "10.1.0.1", 1, 80, 64),
            "4",
            "nw_src=10.0.0.2,nw_dst=10.1.0.0/16,nw_ttl=64,nw_frag=no,tp_src=0x0/0xfffc,tp_dst=80",
        ),
        (
            (3, "10.1.0.1", 1, 80, 64),
            "3",
            "nw_src=10.0.0.3,nw_dst=10.1.0.0/16,nw_ttl=64,nw_frag=no,tp_src=0x0/0xfffc,tp_dst=80",
        ),
        (
            (1, "10.1.0.1", 1, 81, 64),
            "3",
            "nw_src=10.0.0.1,nw_dst=10.1.0.0/16,nw_ttl=64,nw_frag=no,tp_src=0x0/0xfffc,tp_dst=81",
        ),
        // The conjunction of the highest priority leads to whatever rule matches with its id.
        (
            (1, "10.1.0.1", 7, 80, 9),
            "3",
            "nw_src=10.0.0.1,nw_dst=10.1.0.0/16,nw_ttl=9,nw_frag=no,tp_src=7,tp_dst=80",
        ),
        (
            (1, "10.1.0.1", 7, 80, 8),
            "4",
            "nw_src=10.0.0.1,nw_dst=10.1.0.0/16,nw_ttl=8,nw_frag=no,tp_src=7,tp_dst=80",
        ),
    ] {
        let (src, dst, tp_src, tp_dst, ttl) = of;
        rig1.check(&packet(src, dst, tp_src, tp_dst, ttl), expected, &format!("{head},{megaflow}"));
    }
}

#[test]
fn the_id_is_for_one_lookup() {
    let rig = rig("priority=30,conj_id=3,actions=resubmit(,7)
        table=7,conj_id=3,actions=2
        table=7,priority=3,actions=move:NXM_NX_CONJ_ID[]->NXM_NX_REG0[],output:NXM_NX_REG0[],3");
    rig.acts(&packet(1, "10.1.0.1", 7, 80, 9), "3");
    let view = rig.backer.view();
    let counts: Vec<u64> = view.bridge(rig.a).unwrap().tables.iter().map(|r| r.stats.counts().0).collect();
    assert!(counts.iter().all(|n| *n == 0));
}

/// Without a rule for its id, and without another rule, a complete conjunction is passed over.
#[test]
fn a_conjunction_without_a_rule_is_passed_over() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "priority=20,tcp,actions=conjunction(3,1/2)
         priority=20,tcp,tp_dst=80,actions=conjunction(3,2/2)
         priority=10,tcp,actions=conjunction(1,1/2)
         priority=10,tcp,tp_dst=80,actions=conjunction(1,2/2)
         priority=1,conj_id=1,actions=4",
    );
    rig.acts(TCP, "4");
    rig.acts(&TCP.replace("tp_dst=80", "tp_dst=81"), "drop");
}

/// With the id of a complete conjunction, OVS 3.5 passes hard rules below a clause of the same match.
#[test]
fn a_clause_hides_rules_of_its_match_once_a_conjunction_is_complete() {
    for (more, of_tcp, of_other_port) in [
        ("", "2", "2"),
        ("priority=0,actions=3", "3", "2"),
        ("priority=5,conj_id=3,actions=4", "4", "2"),
        ("priority=11,ip,nw_src=10.0.0.1,actions=4\npriority=0,actions=3", "4", "4"),
        ("priority=30,tcp,actions=conjunction(9,1/2)\npriority=0,actions=3", "3", "2"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rig = rig.rules(
            a,
            "priority=20,tcp,actions=conjunction(3,1/2)
             priority=20,tcp,tp_dst=80,actions=conjunction(3,2/2)
             priority=10,tcp,actions=2",
        );
        let rig = rig.rules(a, more);
        rig.acts(TCP, of_tcp);
        rig.acts(&TCP.replace("tp_dst=80", "tp_dst=81"), of_other_port);
    }
}

#[test]
fn traces_name_the_clauses() {
    let expected = " 0. conj_id=1, priority 32768
     -> conj. priority=10,tcp,nw_src=10.0.0.1
     -> conj. priority=10,tcp,tp_dst=80
    output:4";
    let mut lines = story(&rig(""), &packet(1, "10.2.0.1", 1, 80, 64), false);
    lines[1..3].sort();
    assert_eq!(lines.join("\n"), expected);
}

#[test]
fn traces_name_the_ports_of_clauses() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "conj_id=1,actions=4
         in_port=1,tcp,actions=conjunction(1,1/2)
         in_port=1,tcp,tp_dst=80,actions=conjunction(1,2/2)",
    );
    let (view, flow) = (rig.backer.view(), Rig::flow(TCP));
    let request = Request { view: &view, bridge: a, flow: &flow, start: Start::Tables, trace: true };
    let t = translate(&request, &mut rig.backer.xlate_host(false, 1000));
    for (with_names, clause) in
        [(false, "-> conj. tcp,in_port=1,tp_dst=80\n"), (true, "-> conj. tcp,in_port=p1,tp_dst=80\n")]
    {
        let text = render_trace(&t.trace, with_names);
        assert!(text.contains(clause), "{text}");
    }
}

/// One dimension of thousands of rules: a lookup sees few of them, and masks stay narrow.
#[test]
fn large_conjunctions_are_looked_up_by_their_fields() {
    let rig = Rig::new();
    let a = rig.a;
    let count = if testkit::long() { 33_000 } else { 2_000 };
    let mut text = String::from("conj_id=7,actions=4\n");
    for n in 0..count {
        let (hi, lo) = (n / 250, n % 250 + 1);
        text += &format!("priority=10,tcp,nw_src=10.1.{hi}.{lo},actions=conjunction(7,1/3)\n");
        text += &format!("priority=10,tcp,nw_dst=10.2.{hi}.{lo},actions=conjunction(7,2/3)\n");
        text += &format!("priority=10,tcp,tp_dst={n},actions=conjunction(7,3/3)\n");
    }
    let rig = rig.rules(a, &text);
    let of = |dst: u32, port: u32| {
        format!("in_port=1,tcp,nw_src=10.1.2.3,nw_dst=10.{dst}.3.4,nw_ttl=64,tp_src=1,tp_dst={port}")
    };
    let megaflow = "recirc_id=0,eth,tcp,in_port=1,nw_src=10.1.2.3,nw_dst=10.2.3.4,nw_frag=no,tp_dst=1500";
    rig.check(&of(2, 1500), "4", megaflow);
    rig.acts(&of(3, 1500), "drop");
    rig.acts(&of(2, count + 5), "drop");
}
