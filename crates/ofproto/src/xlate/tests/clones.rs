//! `clone` actions. Expectations are those of `ofproto/trace` of OVS 3.1.

use super::*;

const IP: &str = "in_port=1,tcp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02,nw_ttl=64";

#[test]
fn changes_end_with_the_clone() {
    for (rules, actions) in [
        ("actions=clone(2)", "2"),
        ("actions=clone(2),3", "2,3"),
        ("actions=clone(drop)", "drop"),
        (
            "actions=clone(mod_dl_dst:00:00:00:00:00:05,2),3",
            "eth(dst=00:00:00:00:00:05),2,eth(dst=02:00:00:00:00:02),3",
        ),
        (
            "actions=clone(mod_dl_dst:00:00:00:00:00:05,2,mod_dl_dst:00:00:00:00:00:06,3)",
            "eth(dst=00:00:00:00:00:05),2,eth(dst=00:00:00:00:00:06),3",
        ),
        ("actions=clone(push_vlan:0x8100,2),3", "push_vlan(0x8100,vid=0,pcp=0),2,pop_vlan,3"),
        ("actions=clone(set_queue:3,2),3", "priority(0x3),2,priority(0x0),3"),
        ("actions=clone(clone(2),3),4", "2,3,4"),
        ("actions=clone(set_field:5->reg0,2),output:NXM_NX_REG0[]", "2"),
        // The value pushed within is gone.
        ("actions=clone(push:NXM_NX_REG0[]),pop:NXM_NX_REG1[],3", "3"),
        // `exit` and a freeze end the whole translation.
        ("actions=clone(exit),3", "drop"),
        ("actions=clone(2,exit,3),4", "2"),
        ("actions=clone(debug_recirc,2),3", "recirc(1)"),
        // The action set is executed within.
        ("actions=clone(resubmit(,1)),2\n table=1,actions=write_actions(output:3)", "3,2"),
        ("actions=clone(conjunction(1,1/2)),3", "3"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        rig.rules(a, rules).acts(IP, actions);
    }
}

#[test]
fn only_irreversible_actions_need_a_clone_of_the_datapath() {
    for (rules, actions) in [
        ("actions=clone(output(port=2,max_len=60)),3", "clone(trunc(60),2),3"),
        ("actions=3,clone(output(port=2,max_len=60))", "3,trunc(60),2"),
        // Only the list of the action itself counts.
        ("actions=clone(resubmit(,1)),3\n table=1,actions=meter:1,2", "meter(0),2,3"),
    ] {
        let rig = Rig::new();
        let a = rig.a;
        rig.backer.set_meter(a, 1, Some(0));
        rig.rules(a, rules).acts(IP, actions);
    }
}

#[test]
fn clones_around_lookups_nest_to_a_bound() {
    let rig = Rig::new();
    let a = rig.a;
    let mut rules = String::new();
    for table in 0..60 {
        let deep = "clone(".repeat(50) + &format!("resubmit(,{})", table + 1) + &")".repeat(50);
        rules += &format!("table={table},actions={deep}\n");
    }
    let t = rig.rules(a, &rules).acts(IP, "drop:RecursionTooDeep");
    assert!(t.fault.is_some());
}
