//! Recirculated packets reach the rules, whatever their input port. All pass in OVS 3.5, too.

use super::Lab;
use crate::helpers::vsctl;
use testkit::{require_netns, require_programs};

const MAC: &str = "aa:55:aa:55:00:00";
/// Addresses of an Ethernet frame.
const ETH: &str = "50540000000a505400000009";
const IP: &str =
    "4500003000000000401166bb0a0000020a00000100080009001c00000000000000000000000000000000000000000000";
/// An MPLS label, the last one.
const LABEL: &str = "00064140";
/// Outer headers: Ethernet, IPv4, GRE without a key.
const OUTER_MPLS: &str = "aa55aa550000aabbcc00000208004500004c00000000402f666f0a0900020a09000100008847";
const OUTER_IP: &str = "aa55aa550000aabbcc00000208004500004800000000402f66730a0900020a09000100000800";

/// Bridge `br0` has patch port 20 and tunnel ports 4 (`legacy_l3`) and 5; its port 8 gets packets of table 5. Bridge `br1`
/// has the tunnel of frames with the same addresses as port 4.
fn lab() -> Lab {
    let lab = Lab::empty();
    let gre = "type=gre options:remote_ip=10.9.0.2";
    vsctl(
        &lab.daemon,
        &format!(
            "add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure \
             -- add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1 \
             -- add-port br0 p8 -- set Interface p8 type=dummy ofport_request=8 \
             -- add-port br0 bare -- set Interface bare {gre} options:packet_type=legacy_l3 ofport_request=4 \
             -- add-port br0 vx -- set Interface vx type=vxlan options:remote_ip=10.9.0.2 options:key=7 ofport_request=5 \
             -- add-port br0 pa -- set Interface pa type=patch options:peer=pb ofport_request=20 \
             -- add-br br1 -- set Bridge br1 datapath_type=dummy fail_mode=secure \
             -- add-port br1 pb -- set Interface pb type=patch options:peer=pa \
             -- add-port br1 p9 -- set Interface p9 type=dummy ofport_request=9 \
             -- add-port br1 frames -- set Interface frames {gre} \
             -- add-br under -- set Bridge under datapath_type=dummy fail_mode=secure other_config:hwaddr={MAC} \
             -- add-port under e1 -- set Interface e1 type=dummy ofport_request=1"
        ),
    );
    lab.appctl("netdev-dummy/ip4addr under 10.9.0.1/24");
    lab.ofctl(&["add-flow", "under", "in_port=1,actions=LOCAL"]);
    lab.ofctl(&[
        "-OOpenFlow15",
        "add-group",
        "br0",
        "group_id=1,type=select,selection_method=dp_hash,bucket=actions=8",
    ]);
    for rule in [
        "table=5,ip,nw_dst=10.0.0.1,actions=8",
        "mpls,actions=pop_mpls:0x800,resubmit(,5)",
        "ip,actions=ct(table=5)",
    ] {
        lab.ofctl(&["add-flow", "br0", rule]);
    }
    lab.ofctl(&["add-flow", "br1", "in_port=9,actions=output:pb"]);
    lab
}

/// Packets that port 8 sent.
fn sent(lab: &Lab) -> u64 {
    let ports = lab.ofctl(&["dump-ports", "br0", "8"]);
    ports.split("tx pkts=").nth(1).unwrap().split(',').next().unwrap().parse().unwrap()
}

#[test]
fn packets_of_every_input_port_pass() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    let mut expected = 0;
    let ip = [(
        "0800",
        IP,
        4,
        "ct(table=5),ct(commit,table=5),group:1,clone(push_mpls:0x8847,pop_mpls:0x800,resubmit(,5))",
    )];
    let mpls = format!("{LABEL}{IP}");
    let all = ip.into_iter().chain([("8847", mpls.as_str(), 1, "pop_mpls:0x800,resubmit(,5)")]);
    for (ethertype, payload, copies, actions) in all {
        for port in ["1", "4", "5", "20", "LOCAL", "CONTROLLER", "NONE", "ANY"] {
            let packet = format!("in_port={port},packet={ETH}{ethertype}{payload},actions={actions}");
            lab.ofctl(&["-OOpenFlow15", "packet-out", "br0", &packet]);
            expected += copies;
            assert_eq!(sent(&lab), expected, "{port} {actions}");
        }
    }
    for (port, frame) in [
        ("p1", format!("{ETH}8847{mpls}")),
        ("p1", format!("{ETH}0800{IP}")),
        ("p9", format!("{ETH}8847{mpls}")),
        ("p9", format!("{ETH}0800{IP}")),
        ("e1", format!("{OUTER_MPLS}{mpls}")),
        ("e1", format!("{OUTER_IP}{IP}")),
    ] {
        // The first one by the slow path, the second one by flows.
        for _ in 0..2 {
            lab.receive(port, &frame);
            expected += 1;
            assert_eq!(sent(&lab), expected, "{port} {frame}");
        }
    }
}

/// As in OVS, the states of a trace end with it.
#[test]
fn each_trace_numbers_its_states() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = lab();
    for id in 1..=3 {
        let trace = lab.appctl("ofproto/trace br0 in_port=1,ip,nw_dst=10.0.0.1");
        assert!(trace.contains(&format!("Datapath actions: ct,recirc({id:#x})")), "{trace}");
    }
    // A line of a dump is a key.
    lab.receive("p1", &format!("{ETH}0800{IP}"));
    let flows = lab.appctl("dpctl/dump-flows -m --no-names");
    let line = flows.lines().find(|line| line.contains("recirc_id(0)")).unwrap();
    assert!(line.starts_with("ufid:"), "{line}");
    let trace = lab.daemon.ovs("ovs-appctl", &["ofproto/trace", line]).unwrap().stdout;
    assert!(trace.contains("resume conntrack"), "{trace}");
}
