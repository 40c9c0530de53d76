//! Debug lines of the log.

use super::{FROM_5_TO_7, Lab};
use crate::helpers::LIMIT;
use testkit::{require_netns, require_programs, wait_for};

/// The lines that operators look for, as OVS 3.1 logs them after the same commands.
#[test]
fn messages_and_flow_operations_are_logged_on_demand() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=1,actions=drop"]);
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1111)"));
    assert!(!lab.daemon.log().contains("|DBG|"), "{}", lab.daemon.log());
    lab.appctl("vlog/set vconn:file:dbg dpif:file:dbg");
    lab.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "priority=5,tcp,tp_dst=80,actions=dec_ttl,2"]);
    lab.ofctl(&["add-flow", "br0", "table=1,priority=5,cookie=0x12,tcp,actions=2"]);
    lab.ofctl(&["-O", "OpenFlow13", "add-group", "br0", "group_id=1,type=all,bucket=output:2"]);
    lab.daemon.tool("ovs-ofctl").args(["add-flow", "br0", "table=2,actions=group:7"]).output().unwrap();
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    lab.appctl("revalidator/purge");
    lab.appctl("vlog/set vconn:file:info dpif:file:info");
    let log = lab.daemon.log();
    for part in [
        "|vconn|DBG|unix#",
        ": sent (Success): OFPT_HELLO (OF1.5) (xid=0x1):\\n version bitmap: 0x01, 0x02, 0x03, 0x04, 0x05, 0x06",
        ": received: OFPT_HELLO (OF1.3) (xid=0x1):\\n version bitmap: 0x04",
        ": negotiated OpenFlow version 0x04 (we support version 0x06 and earlier, peer supports version 0x04)",
        ": ADD priority=5,tcp,tp_dst=80 actions=dec_ttl,output:2",
        ": ADD table:1 priority=5,tcp cookie:0x12 actions=output:2",
        ": sent (Success): OFPT_BARRIER_REPLY (OF1.3) (xid=",
        ":\\n ADD group_id=1,type=all,bucket=actions=output:2",
        ": OFPBAC_BAD_OUT_GROUP\\nOFPT_FLOW_MOD (xid=0x",
        ": ADD table:2 actions=group:7",
        "|connmgr|INFO|br0<->unix#",
        ": sending OFPBAC_BAD_OUT_GROUP error reply to OFPT_FLOW_MOD message",
        "|dpif|DBG|dummy@ovs-dummy: miss upcall:\\n",
        "|dpif|DBG|dummy@ovs-dummy: put[create] ufid:",
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x1234), actions:drop",
        "|DBG|dummy@ovs-dummy: flow_del ufid:",
    ] {
        assert!(log.contains(part), "{part} in\n{log}");
    }
    let before = lab.daemon.log().len();
    lab.ofctl(&["dump-flows", "br0"]);
    assert_eq!(lab.daemon.log().len(), before);
}

/// The lines of OVS 3.1 about the same commands.
#[test]
fn flow_mods_are_logged_at_the_end_of_their_connections() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new();
    let parts = "flow add priority=9,actions=drop\nflow add priority=10,actions=drop\n\
                 flow delete_strict priority=9\nflow modify actions=2\n";
    let bundle = lab.daemon.rundir().join("bundle");
    std::fs::write(&bundle, parts).unwrap();
    let mut reported = 0;
    for (command, total, expected) in [
        (&["add-flow", "br0", "priority=77,actions=learn(table=3,priority=3)"][..], 1, "1 adds"),
        (&["mod-flows", "br0", "priority=99,actions=drop"], 1, "1 modifications"),
        (&["add-flow", "br0", "actions=group:7"], 0, ""),
        (&["dump-flows", "br0"], 0, ""),
        (&["-O", "OpenFlow13", "del-flows", "br0"], 1, "1 deletes"),
        (
            &["-O", "OpenFlow14", "bundle", "br0", bundle.to_str().unwrap()],
            4,
            "2 adds, 1 deletes, 1 modifications",
        ),
    ] {
        let before = lab.daemon.log().len();
        let done = lab.daemon.tool("ovs-ofctl").args(command).output().unwrap();
        if total > 0 {
            assert!(done.status.success(), "{command:?}: {done:?}");
            let text = format!(": {total} flow_mods in the last 0 s ({expected})");
            wait_for(LIMIT, &text, || {
                let log = lab.daemon.log();
                log[before..]
                    .lines()
                    .any(|line| line.contains("|connmgr|INFO|br0<->unix#") && line.ends_with(&text))
            })
            .unwrap();
            reported += 1;
        }
    }
    assert_eq!(lab.daemon.log().matches("flow_mods").count(), reported);
}
