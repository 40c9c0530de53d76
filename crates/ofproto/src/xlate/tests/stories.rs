//! Output of `ofproto/trace`.

use super::*;

/// The trace of a translation of `packet`, line by line after the name of the bridge.
pub(super) fn story(rig: &Rig, packet: &str, effects: bool) -> Vec<String> {
    let (view, flow) = (rig.backer.view(), Rig::flow(packet));
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace: true };
    let t = translate(&request, &mut rig.backer.xlate_host(effects, 1000));
    render_trace(&t.trace, false).lines().skip(3).map(str::to_string).collect()
}

#[test]
fn traces_show_executed_and_skipped_actions() {
    let rig = Rig::new();
    let a = rig.a;
    let rig = rig.rules(
        a,
        "priority=9,tcp actions=learn(table=1,cookie=5,idle_timeout=6,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),1
         priority=9,udp actions=pop:NXM_NX_REG0[],output:55,resubmit(,0)
         priority=9,icmp actions=debug_recirc,2
         priority=0 actions=normal",
    );
    let learn = "    learn(table=1,idle_timeout=6,cookie=0x5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    let head = " 0. tcp, priority 9";
    let rest = ["    output:1", "     >> skipping output to input port"];
    let lines = story(&rig, TCP, false);
    assert_eq!(lines[..3], [head, learn, "     >> suppressing side effects, so learn action ignored"]);
    assert_eq!(lines[3..], rest);
    let lines = story(&rig, TCP, true);
    let learned = "     -> table=1 dl_dst=02:00:00:00:00:01 priority=32768 cookie=0x5 idle=6 actions=drop";
    assert_eq!(lines[..3], [head, learn, learned]);
    let lines = story(&rig, "in_port=1,udp", false);
    assert_eq!(lines[2], "     >>>> stack underflow <<<<");
    assert_eq!(lines[4], "     >> Nonexistent output port");
    assert_eq!(lines.last().unwrap(), "     >>>> over max translation depth 64 <<<<");
    let arp = "in_port=1,arp,dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff";
    let flood = "     -> no learned MAC for destination, flooding".to_string();
    assert_eq!(story(&rig, arp, false)[2], flood);
    let lines = story(&rig, arp, true);
    assert_eq!(lines[2], "     -> learned that 02:00:00:00:00:01 is on port p1 in VLAN 0");
    assert_eq!(lines[3], flood);
    let t = rig.translate(&Rig::flow("in_port=1,icmp"), false);
    let resumed = story(&rig, &format!("recirc_id={},in_port=1,icmp", t.recircs[0].0), false);
    let expect = [
        "    thaw",
        "            Resuming from table 0",
        "        Restoring actions: output:2",
        "    output:2",
    ];
    assert_eq!(resumed, expect);
    assert_eq!(
        story(&rig, "recirc_id=255,in_port=1,icmp", false),
        ["     >>>> Recirculation context not found for ID ff <<<<"]
    );
}

/// As in OVS: the result of `learn` needs a packet, and a pause leaves the changes made before it.
#[test]
fn traces_tell_the_result_of_learning_and_the_changes_before_a_pause() {
    let rig = Rig::new();
    let a = rig.a;
    let learn = "learn(table=1,limit=1,result_dst=NXM_NX_REG0[0],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])";
    let rig = rig.rules(
        a,
        &format!(
            "priority=9,tcp actions={learn},1
             priority=9,icmp actions=mod_dl_src:00:00:00:00:00:99,controller(pause),2"
        ),
    );
    let other = &TCP.replace("dl_src=02:00:00:00:00:01", "dl_src=02:00:00:00:00:05");
    assert_ne!(other, TCP);
    let ignored = "     >> suppressing side effects, so learn action ignored";
    for (packet, effects, expected) in [
        (TCP, false, &[ignored][..]),
        (TCP, true, &["     -> NXM_NX_REG0[0] is now 0x1"]),
        (other, false, &[ignored]),
        (other, true, &["     -> NXM_NX_REG0[0] is now 0", "     -> Limit exceeded, learn failed"]),
    ] {
        let lines = story(&rig, packet, effects);
        let told = &lines[if effects { 3 } else { 2 }..];
        assert_eq!(told[..expected.len()], *expected, "{lines:#?}");
        assert_eq!(told[expected.len()], "    output:1");
    }
    let (view, flow) = (rig.backer.view(), Rig::flow("in_port=1,icmp"));
    let request = Request { view: &view, bridge: rig.a, flow: &flow, start: Start::Tables, trace: true };
    let t = translate(&request, &mut rig.backer.xlate_host(false, 1000));
    assert_eq!(show(&t.actions), "eth(src=00:00:00:00:00:99)");
}
