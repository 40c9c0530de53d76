//! `check_pkt_larger`. Expectations are those of `ofproto/trace` of OVS 3.1, unless a comment tells otherwise.

use super::*;

const IP: &str = "in_port=1,ip,dl_src=02:00:00:00:00:01";
const C: &str = "check_pkt_larger(100)->NXM_NX_REG0[0]";

#[test]
fn the_rest_of_the_list_is_executed_in_both_cases() {
    for (rules, actions) in [
        ("C", "check_pkt_len(size=100,gt(drop),le(drop))"),
        ("C,resubmit(,1)", "check_pkt_len(size=100,gt(2),le(3))"),
        ("C,resubmit(,1),4", "check_pkt_len(size=100,gt(2,4),le(3,4))"),
        ("4,C,goto_table:1", "4,check_pkt_len(size=100,gt(2),le(3))"),
        (
            "C,check_pkt_larger(200)->NXM_NX_REG0[1],output:NXM_NX_REG0[]",
            "check_pkt_len(size=100,gt(check_pkt_len(size=200,gt(3),le(drop))),le(check_pkt_len(size=200,gt(2),le(drop))))",
        ),
        // Changes before it are made first, those behind it in each case.
        (
            "mod_dl_src:00:00:00:00:00:09,C,2,mod_dl_src:00:00:00:00:00:08,3",
            "eth(src=00:00:00:00:00:09),check_pkt_len(size=100,gt(2,eth(src=00:00:00:00:00:08),3),le(2,eth(src=00:00:00:00:00:08),3))",
        ),
        // Later actions of the caller see the packet as before.
        (
            "resubmit(,2),output:NXM_NX_REG1[],mod_dl_src:00:00:00:00:00:07,2",
            "check_pkt_len(size=100,gt(2),le(2)),4,eth(src=00:00:00:00:00:07),2",
        ),
        (
            "resubmit(,3),mod_dl_src:00:00:00:00:00:07,2",
            "check_pkt_len(size=100,gt(eth(src=00:00:00:00:00:05),3),le(eth(src=00:00:00:00:00:05),3)),eth(src=00:00:00:00:00:07),2",
        ),
        ("clone(C,2),3", "check_pkt_len(size=100,gt(2),le(2)),3"),
        ("C,2,exit,3", "check_pkt_len(size=100,gt(2),le(2))"),
        ("output(port=2,max_len=100),C,3", "trunc(100),2,check_pkt_len(size=100,gt(3),le(3))"),
        // Each case freezes alone; the caller ends.
        ("resubmit(,4),3", "check_pkt_len(size=100,gt(recirc(1)),le(recirc(2)))"),
        (
            "C,set_field:00:00:00:00:00:09->eth_src,2,write_actions(output:3)",
            "check_pkt_len(size=100,gt(eth(src=00:00:00:00:00:09),2,3),le(eth(src=00:00:00:00:00:09),2,3))",
        ),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rules = format!(
            "actions={rules}
            table=1,reg0=1/1,actions=2
            table=1,reg0=0/1,actions=3
            table=2,actions=load:4->reg1[],C,output:2,load:3->reg1[]
            table=3,actions=C,mod_dl_src:00:00:00:00:00:05,3
            table=4,actions=C,debug_recirc,2"
        );
        rig.rules(a, &rules.replace("C,", &format!("{C},")).replace("=C\n", &format!("={C}\n")))
            .acts(IP, actions);
    }
}

/// OVS 3.1 executes the rest with the stack that longer packets leave, and the action set for other packets behind
/// `check_pkt_len`, so longer packets leave twice.
#[test]
fn both_cases_begin_with_the_same_stack_and_action_set() {
    for (rules, actions) in [
        (
            "push:NXM_NX_REG2[],C,pop:NXM_NX_REG1[],output:NXM_NX_REG1[]",
            "check_pkt_len(size=100,gt(3),le(3))",
        ),
        ("write_actions(output:2),goto_table:9", "check_pkt_len(size=100,gt(3,2),le(3,2))"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        let rules =
            format!("actions=load:3->reg2[],resubmit(,5)\n table=5,actions={rules}\n table=9,actions=C,3");
        rig.rules(a, &rules.replace("C,", &format!("{C},"))).acts(IP, actions);
    }
}

#[test]
fn the_trace_shows_both_cases() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig
        .rules(a, &format!("actions={C},resubmit(,1)\n table=1,reg0=1,actions=2\n table=1,reg0=0,actions=3"));
    rig.check(IP, "check_pkt_len(size=100,gt(2),le(3))", "recirc_id=0,eth,ip,in_port=1,nw_frag=no");
    let expected = [
        " 0. priority 32768",
        "    check_pkt_larger(100)->NXM_NX_REG0[0]",
        "    resubmit(,1)",
        "     1. reg0=0x1, priority 32768",
        "            output:2",
        "    resubmit(,1)",
        " 1. reg0=0, priority 32768",
        "    output:3",
    ];
    assert_eq!(stories::story(&rig, IP, false), expected);
}

/// OVS 3.1 has no bound: each of them doubles the work.
#[test]
fn cases_nest_to_a_bound() {
    let nested = |n: usize| format!("actions={}2", format!("{C},").repeat(n));
    for (n, error) in
        [(6, None), (7, Some(XlateDrop::RecursionTooDeep)), (500, Some(XlateDrop::RecursionTooDeep))]
    {
        let rig = Rig::new();
        let a = rig.a;
        let t = rig.rules(a, &nested(n)).translate(&Rig::flow(IP), false);
        assert_eq!(t.error, error, "{n}");
    }
}

#[test]
fn a_bit_of_the_packet_is_examined_and_written() {
    let rig = Rig::new();
    let a = rig.a;
    // OVS 3.1 examines nothing and writes `set(ipv4())`.
    rig.rules(a, "ip,actions=check_pkt_larger(100)->NXM_OF_IP_SRC[0],2").check(
        "in_port=1,udp,nw_src=10.0.0.2",
        "check_pkt_len(size=100,gt(ipv4(src=0.0.0.1/0.0.0.1),2),le(2))",
        "recirc_id=0,eth,ip,in_port=1,nw_src=0.0.0.0/0.0.0.1,nw_frag=no",
    );
}
