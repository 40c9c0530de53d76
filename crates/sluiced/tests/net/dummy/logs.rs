//! Debug lines of the log.

use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, vsctl};
use testkit::{require_netns, require_programs, wait_for};

/// The lines that operators look for, as OVS 3.5 logs them after the same commands.
#[test]
fn messages_and_flow_operations_are_logged_on_demand() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.ofctl(&["add-flow", "br0", "priority=1,actions=drop"]);
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1111)"));
    assert!(!lab.daemon.log().contains("|DBG|"), "{}", lab.daemon.log());
    lab.appctl("vlog/set vconn:file:dbg dpif:file:dbg dpif_netdev:file:dbg rconn:file:dbg unixctl:file:dbg");
    lab.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "priority=5,tcp,tp_dst=80,actions=dec_ttl,2"]);
    lab.ofctl(&["add-flow", "br0", "table=1,priority=5,cookie=0x12,tcp,actions=2"]);
    lab.ofctl(&["-O", "OpenFlow13", "add-group", "br0", "group_id=1,type=all,bucket=output:2"]);
    lab.daemon.tool("ovs-ofctl").args(["add-flow", "br0", "table=2,actions=group:7"]).output().unwrap();
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    lab.appctl("vlog/set ofproto_dpif_xlate:file:dbg ct_dpif:file:dbg bridge:file:dbg");
    vsctl(&lab.daemon, "add-port br0 p9 -- set Interface p9 type=dummy");
    vsctl(&lab.daemon, "del-port p9");
    lab.appctl("dpctl/flush-conntrack zone=5");
    vsctl(&lab.daemon, "set Bridge br0 other_config:mac-aging-time=100");
    vsctl(
        &lab.daemon,
        "set Open_vSwitch . other_config:n-handler-threads=1 other_config:n-revalidator-threads=3",
    );
    lab.ofctl(&["add-flow", "br0", "priority=5,dl_type=0x1237,actions=normal"]);
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1237)"));
    lab.ofctl(&["packet-out", "br0", "in_port=1,packet=50540000000750540000000512340000,actions=2"]);
    lab.appctl("dpctl/dump-flows");
    lab.appctl("dpctl/add-flow in_port(1),eth(),eth_type(0x1236) 2");
    lab.appctl("dpctl/mod-flow in_port(1),eth(),eth_type(0x1236) 1");
    lab.appctl("revalidator/purge");
    lab.appctl(
        "vlog/set vconn:file:info dpif:file:info dpif_netdev:file:info rconn:file:info unixctl:file:info",
    );
    let log = lab.daemon.log();
    for part in [
        "|vconn|DBG|unix#",
        ": sent (Success): OFPT_HELLO (OF1.5) (xid=0x1):\n version bitmap: 0x01, 0x02, 0x03, 0x04, 0x05, 0x06",
        ": received: OFPT_HELLO (OF1.3) (xid=0x1):\n version bitmap: 0x04",
        ": negotiated OpenFlow version 0x04 (we support version 0x06 and earlier, peer supports version 0x04)",
        ": ADD priority=5,tcp,tp_dst=80 actions=dec_ttl,output:2",
        ": ADD table:1 priority=5,tcp cookie:0x12 actions=output:2",
        ": sent (Success): OFPT_BARRIER_REPLY (OF1.3) (xid=",
        ":\n ADD group_id=1,type=all,bucket=actions=output:2",
        ": OFPBAC_BAD_OUT_GROUP\nOFPT_FLOW_MOD (xid=0x",
        ": ADD table:2 actions=group:7",
        "|connmgr|INFO|br0<->unix#",
        ": sending OFPBAC_BAD_OUT_GROUP error reply to OFPT_FLOW_MOD message",
        "|dpif_netdev|DBG|ovs-dummy: miss upcall:\nrecirc_id(0),dp_hash(0),skb_priority(0),in_port(1),skb_mark(0),\
         ct_state(0),ct_zone(0),ct_mark(0),ct_label(0),packet_type(ns=0,id=0),eth(src=50:54:00:00:00:05,\
         dst=50:54:00:00:00:07),eth_type(0x1234)\nvlan_tci=0x0000,dl_src=50:54:00:00:00:05,dl_dst=50:54:00:00:00:07,\
         dl_type=0x1234\n",
        "|dpif_netdev|DBG|flow_add: ufid:",
        " recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x1234), actions:drop\n",
        "|dpif_netdev|DBG|flow match: recirc_id=0,eth,",
        "|dpif_netdev|DBG|flow_mod: ufid:",
        " recirc_id(0),in_port(1),eth(),eth_type(0x1236), old_actions:2, actions:1\n",
        "|dpif|DBG|dummy@ovs-dummy: put[create] ufid:",
        "|dpif|DBG|dummy@ovs-dummy: added p9 as port 9\n",
        "|dpif|DBG|dummy@ovs-dummy: port_del(9)\n",
        "|ct_dpif(command)|DBG|dummy@ovs-dummy: ct_flush: zone 5\n",
        "|ofproto_dpif_upcall|INFO|Starting 4 threads\n",
        "|bridge|DBG|bridge br0 tables 0-254: Prefix lookup with: ip_dst,ip_src,ipv6_dst,ipv6_src.\n",
        "|dpif|DBG|dummy@ovs-dummy: execute 2 on packet vlan_tci=0x0000,dl_src=50:54:00:00:00:05,\
         dl_dst=50:54:00:00:00:07,dl_type=0x1234\n",
        "|dpif|DBG|dummy@ovs-dummy: flow_dump ufid:",
        "|dpif|DBG|dummy@ovs-dummy: dumped all flows\n",
        "|ofproto_dpif_xlate|DBG|bridge br0: learned that 50:54:00:00:00:05 is on port p1 in VLAN 0\n",
        ": connected\n",
        ": entering ACTIVE\n",
        ": connection closed by peer\n",
        ": entering DISCONNECTED\n",
        "|unixctl|DBG|received request dpctl/dump-flows[], id=0\n",
        "|unixctl|DBG|replying with success, id=0: \"\"\"\"\n",
        "|DBG|dummy@ovs-dummy: flow_del ufid:",
    ] {
        assert!(log.contains(part), "{part} in\n{log}");
    }
    let before = lab.daemon.log().len();
    lab.ofctl(&["dump-flows", "br0"]);
    assert_eq!(lab.daemon.log().len(), before);
}

/// Lines of the daemon about itself, as OVS 3.5 logs them in the same places.
#[test]
fn the_daemon_logs_its_own_work_on_demand() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let log = lab.daemon.log();
    for part in [
        "|ovs_numa|INFO|Discovered ",
        " CPU cores\n",
        "|dpif_netdev_extract|INFO|Default MFEX Extract implementation is scalar.\n",
        "|dpif_netdev_impl|INFO|Default DPIF implementation is dpif_scalar.\n",
    ] {
        assert!(log.contains(part), "{part} in\n{log}");
    }
    lab.appctl("vlog/set any:file:dbg");
    let malformed = "50540000000750540000000508004500";
    lab.ofctl(&["packet-out", "br0", &format!("in_port=1,packet={malformed},actions=2")]);
    lab.appctl("dpctl/show");
    vsctl(&lab.daemon, "add-br br7 -- set bridge br7 datapath_type=netdev");
    lab.ofctl(&["add-flow", "br0", "priority=5,udp,actions=ct(commit),2"]);
    let datagram = "ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x0800),{datagram}"));
    lab.appctl("time/stop");
    for _ in 0..30 {
        lab.appctl("time/warp 5000 1000");
    }
    let has = |part: &str| lab.daemon.log().contains(part);
    for part in [
        "|poll_loop|DBG|wakeup due to [POLLIN] on socket ",
        " (control socket)",
        "-ms timeout",
        "|jsonrpc|DBG|unix#",
        ": received request, method=\"dpctl/show\", params=[], id=0\n",
        ": send reply, result=\"dummy@ovs-dummy:\\n  lookups:",
        ": received request, method=\"transact\", params=[\"Open_vSwitch\",",
        "|flow|DBG|invalid packet for ipv4_sanity_check: port 1, size 16\n",
        "|dpif|DBG|dummy@ovs-dummy: get_stats success\n",
        "|dpif|DBG|dummy@ovs-dummy: port_dump_start success\n",
        "|dpif|DBG|dummy@ovs-dummy: port 1 is device p1\n",
        "|dpif|DBG|dummy@ovs-dummy: dumped all ports\n",
        "|dpif_netdev_extract|DBG|Miniflow Extract implementation 'study' is available.\n",
        "|memory|INFO|",
        " kB peak resident set size after ",
        "|memory|INFO|handlers:",
        "|conntrack(ct_clean)|DBG|conntrack cleaned 1 entries out of 1 entries in ",
    ] {
        wait_for(LIMIT, part, || has(part)).unwrap();
    }
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

/// The version at the start, and each deleted interface with its port; as OVS 3.5.
#[test]
fn the_start_and_deleted_interfaces_are_logged() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let lab = Lab::new();
    assert!(
        lab.daemon.log().contains("|bridge|INFO|ovs-vswitchd (Open vSwitch) 3.5."),
        "{}",
        lab.daemon.log()
    );
    // As OVS, without a warning.
    vsctl(
        &lab.daemon,
        "set Bridge br0 other_config:datapath-id=xyz other_config:mac-aging-time=3 -- set Interface p1 \
         bfd:enable=true bfd:mult=0",
    );
    assert!(!lab.daemon.log().contains("|WARN|"), "{}", lab.daemon.log());
    vsctl(&lab.daemon, "del-port p1");
    vsctl(
        &lab.daemon,
        "add-br br7 -- set bridge br7 datapath_type=dummy -- add-port br7 q1 -- set interface q1 type=dummy",
    );
    vsctl(&lab.daemon, "del-br br7");
    let log = lab.daemon.log();
    for (line, times) in [
        ("bridge br0: deleted interface p1 on port 1\n", 1),
        ("bridge br7: deleted interface br7 on port 65534\n", 1),
        ("bridge br7: deleted interface q1 on port 1\n", 1),
        ("deleted interface", 3),
    ] {
        assert_eq!(log.matches(line).count(), times, "{line} in\n{log}");
    }
    // A system's error has its text alone.
    vsctl(&lab.daemon, "--no-wait set-manager tcp:127.0.0.1:1");
    let row = || vsctl(&lab.daemon, "get Manager tcp:127.0.0.1:1 status");
    wait_for(LIMIT, "the row", || row().contains("last_error=\"Connection refused\"")).unwrap();
    wait_for(LIMIT, "the log", || lab.daemon.log().contains("Connection refused")).unwrap();
    assert!(!lab.daemon.log().contains("os error"), "{}", lab.daemon.log());
}
