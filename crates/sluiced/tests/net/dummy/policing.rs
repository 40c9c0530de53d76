//! Policing of what a port receives, and queues of ports without a device of the kernel.

use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, vsctl};
use testkit::{require_netns, require_programs, wait_for};

/// The contents of a frame.
const FRAME: &str =
    "eth_type(0x0800),ipv4(src=1.0.0.1,dst=1.0.0.2,proto=1,tos=0,ttl=64,frag=no),icmp(type=8,code=0)";

#[test]
fn ports_are_policed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let send = |frames: u32| {
        let frame = format!("netdev-dummy/receive p1 in_port(1),{FROM_5_TO_7},{FRAME} --len 100");
        (0..frames).for_each(|_| drop(lab.appctl(&frame)));
    };
    let received = || lab.ofctl(&["dump-ports", "br0", "1"]);
    let dropped = || lab.appctl("coverage/read-counter datapath_drop_rx_policed");
    let wait = |packets: u32, lost: u32| {
        let counted =
            || received().contains(&format!("rx pkts={packets},")) && dropped().trim() == lost.to_string();
        let ok = wait_for(LIMIT, "frames that pass", counted);
        ok.unwrap_or_else(|e| panic!("{e}: {} {}", received(), dropped()));
    };
    // Ten frames at once, ten a second.
    vsctl(&lab.daemon, "set Interface p1 ingress_policing_rate=8 ingress_policing_burst=8");
    send(15);
    wait(10, 5);
    lab.appctl("time/warp 500");
    send(8);
    wait(15, 8);
    vsctl(&lab.daemon, "set Interface p1 ingress_policing_rate=0");
    send(9);
    wait(24, 8);
}

/// As OVS: a dummy has one queue, without counters, and no discipline.
#[test]
fn a_dummy_has_one_queue() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let stats =
        "OFPST_QUEUE reply (xid=0x2): 1 queues\n  port 1 queue 0: bytes=?, pkts=?, errors=?, duration=?\n";
    assert_eq!(lab.ofctl(&["--no-names", "queue-stats", "br0", "1"]), stats);
    let config = "OFPT_QUEUE_GET_CONFIG_REPLY (xid=0x2): port=1\nqueue 0:\n";
    assert_eq!(lab.ofctl(&["--no-names", "queue-get-config", "br0", "1"]), config);
    // The DSCP of a queue reaches packets, whatever the device.
    vsctl(
        &lab.daemon,
        "set Port p2 qos=@q -- --id=@q create QoS type=linux-htb queues:1=@a queues:7=@b \
         -- --id=@a create Queue dscp=10 -- --id=@b create Queue dscp=20",
    );
    assert_eq!(lab.appctl("qos/show p2"), "QoS not configured on p2\n");
    for (flow, actions, expected) in [
        ("tcp,nw_tos=4", "set_queue:1,output:2", "set(ipv4(tos=0x28/0xfc)),set(skb_priority(0x1)),2"),
        (
            "tcp,nw_tos=4",
            "set_queue:1,output:2,pop_queue,output:2",
            "set(ipv4(tos=0x28/0xfc)),set(skb_priority(0x1)),2,set(ipv4(tos=0x4/0xfc)),set(skb_priority(0)),2",
        ),
        ("tcp,nw_tos=4", "set_queue:5,output:2", "set(skb_priority(0x5)),2"),
        ("tcp,nw_tos=4", "enqueue:2:7", "set(ipv4(tos=0x50/0xfc)),set(skb_priority(0x7)),2"),
        ("tcp6,nw_tos=4", "set_queue:7,output:2", "set(ipv6(tclass=0x50/0xfc)),set(skb_priority(0x7)),2"),
        ("arp", "set_queue:7,output:2", "set(skb_priority(0x7)),2"),
    ] {
        let trace = lab.appctl(&format!("ofproto/trace-packet-out br0 in_port=1,{flow} {actions}"));
        let found = trace.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
        assert_eq!(found, Some(expected), "{flow} {actions}: {trace}");
    }
}

#[test]
fn what_a_port_sends_is_policed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let send = |frames: u32| {
        let frame = format!("netdev-dummy/receive p1 in_port(1),{FROM_5_TO_7},{FRAME} --len 114");
        (0..frames).for_each(|_| drop(lab.appctl(&frame)));
    };
    let dropped = || lab.appctl("coverage/read-counter datapath_drop_tx_policed");
    let sent = || lab.ofctl(&["dump-ports", "br0", "2"]);
    let wait = |packets: u32, lost: u32| {
        let counted =
            || sent().contains(&format!("tx pkts={packets},")) && dropped().trim() == lost.to_string();
        wait_for(LIMIT, "frames that pass", counted)
            .unwrap_or_else(|e| panic!("{e}: {} {}", sent(), dropped()));
    };
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=output:2"]);
    // Ten frames at once, ten a second; a header of Ethernet costs nothing.
    vsctl(
        &lab.daemon,
        "set Port p2 qos=@q -- --id=@q create QoS type=egress-policer other_config:cir=1000 other_config:cbs=1000",
    );
    assert_eq!(lab.appctl("qos/show p2"), "QoS: p2 egress-policer\ncir: 1000\ncbs: 1000\n");
    send(15);
    wait(10, 5);
    lab.appctl("time/warp 500");
    send(8);
    wait(15, 8);

    // A queue with three frames, and the port's excess for the others.
    vsctl(
        &lab.daemon,
        "set Port p2 qos=@q -- --id=@q create QoS type=trtcm-policer other_config:cir=1 other_config:cbs=300 \
         other_config:eir=1 other_config:ebs=200 queues:7=@a \
         -- --id=@a create Queue other_config:cir=1 other_config:cbs=300",
    );
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=set_queue:7,output:2"]);
    send(6);
    wait(18, 11);
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=output:2"]);
    send(6);
    wait(20, 15);
    let port = "cir: 1\neir: 1\nebs: 200\ncbs: 300\n";
    let shown = format!(
        "QoS: p2 trtcm-policer\n{port}\nDefault:\n  {}  tx_packets: 5\n  tx_bytes: 500\n  tx_errors: 1\n\
         \nQueue 7:\n  cir: 1\n  eir: 0\n  ebs: 0\n  cbs: 300\n  tx_packets: 3\n  tx_bytes: 300\n  tx_errors: 3\n",
        port.trim().replace('\n', "\n  ") + "\n"
    );
    assert_eq!(lab.appctl("qos/show p2"), shown);
    let stats = lab.ofctl(&["--no-names", "queue-stats", "br0", "2"]);
    assert!(stats.contains("  port 2 queue 7: bytes=300, pkts=3, errors=3, duration="), "{stats}");

    // Settings that no rate has.
    let error = |line: &str| {
        vsctl(&lab.daemon, line);
        vsctl(&lab.daemon, "get Interface p2 error")
    };
    let why = error("set QoS p2 other_config={cir=5}");
    assert!(why.contains("cannot set QoS trtcm-policer: cir needs cbs, the bytes of a burst"), "{why}");
    send(4);
    wait(24, 15);
    let why = error("set QoS p2 type=egress-policer other_config={cbs=5}");
    assert!(why.contains("cannot set QoS egress-policer: cir must not be 0"), "{why}");
    assert_eq!(error("clear Port p2 qos").trim(), "[]");
    assert_eq!(lab.appctl("qos/show p2"), "QoS not configured on p2\n");
}
