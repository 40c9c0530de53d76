//! VLANs, protected ports and static addresses, by commands. Answers are those of OVS 3.5, except where said.

use super::Lab;
use super::commands::refused;
use crate::helpers::vsctl;
use testkit::{require_netns, require_programs};

/// The addresses of a bridge: port, VLAN and address.
fn known(lab: &Lab, bridge: &str) -> Vec<String> {
    let shown = lab.appctl(&format!("fdb/show {bridge}"));
    let words = |line: &str| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
    shown.lines().skip(1).map(words).collect()
}

/// The datapath actions of a frame of that input port.
fn actions(lab: &Lab, flow: &str) -> String {
    let trace = lab.appctl(&format!("ofproto/trace br0 {flow}"));
    let last = trace.lines().find_map(|line| line.strip_prefix("Datapath actions: "));
    last.unwrap_or_else(|| panic!("{trace}")).to_string()
}

#[test]
fn a_host_is_not_reached_in_the_former_vlan_of_its_port() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    vsctl(&lab.daemon, "set Port p1 tag=20");
    lab.appctl("fdb/add br0 p1 20 50:54:00:00:00:06");
    let frame = "in_port(1),eth(src=50:54:00:00:00:05,dst=ff:ff:ff:ff:ff:ff),eth_type(0x1234)";
    lab.receive("p1", frame);
    assert_eq!(known(&lab, "br0"), ["1 20 50:54:00:00:00:06", "1 20 50:54:00:00:00:05"]);
    vsctl(&lab.daemon, "set Port p1 tag=30 -- set Port p2 tag=20");
    assert!(known(&lab, "br0").is_empty());
    for host in ["05", "06"] {
        let flow = format!("in_port=2,dl_src=50:54:00:00:00:09,dl_dst=50:54:00:00:00:{host}");
        assert_eq!(actions(&lab, &flow), "push_vlan(vid=20,pcp=0),100");
    }
}

/// OVS adds the address, and sends packets of the VLAN to the port.
#[test]
fn a_static_address_needs_a_port_of_its_vlan() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    refused(&lab, "fdb/add br0 p7 20 50:54:00:00:00:05", "port p7 of br0 does not carry VLAN 20");
    lab.appctl("fdb/add br0 p7 10 50:54:00:00:00:05");
    assert_eq!(known(&lab, "br0").len(), 1);
}

#[test]
fn rules_send_nothing_from_a_protected_port_to_another() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    vsctl(&lab.daemon, "set Port p1 protected=true -- set Port p2 protected=true");
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=output:2"]);
    let flow = "in_port=1,dl_src=50:54:00:00:00:09,dl_dst=50:54:00:00:00:05";
    assert_eq!(actions(&lab, flow), "drop");
    vsctl(&lab.daemon, "set Port p2 protected=false");
    assert_eq!(actions(&lab, flow), "2");
}
