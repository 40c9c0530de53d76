//! Ports of bridges that commands change: their number in the datapath, and their options. Answers are those of OVS 3.1.

use super::commands::refused;
use super::{FROM_5_TO_7, Lab};
use crate::helpers::vsctl;
use testkit::{require_netns, require_programs};

/// Lines of `dpif/show` about ports.
fn ports(lab: &Lab) -> Vec<String> {
    lab.appctl("dpif/show").lines().skip(2).map(|line| line.trim().to_string()).collect()
}

#[test]
fn dummies_get_other_numbers() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    for (line, why) in [
        ("nope p1 9", "unknown datapath or not a dummy"),
        ("ovs-dummy nope 9", "unknown port"),
        ("ovs-dummy p1 2", "port number already in use"),
        ("ovs-dummy p1 0", "bad port number"),
        ("ovs-dummy p1 x", "bad port number"),
        ("ovs-dummy p1 4294967295", "bad port number"),
        ("ovs-dummy p1", "requires at least 3 arguments"),
        ("ovs-dummy ovs-dummy 9", "keeps its number"),
    ] {
        refused(&lab, &format!("dpif-dummy/change-port-number {line}"), why);
    }
    lab.appctl("netdev-dummy/ip4addr p1 10.0.0.1/24");
    lab.ofctl(&["add-flow", "br0", "table=1,priority=7,in_port=1,actions=2"]);
    lab.ofctl(&["add-flow", "br0", "table=0,in_port=1,actions=resubmit(,1)"]);
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    assert!(lab.appctl("dpctl/dump-flows").contains("in_port(1)"));

    assert_eq!(lab.appctl("dpif-dummy/change-port-number ovs-dummy p1 55"), "");
    lab.appctl("dpif-dummy/change-port-number ovs-dummy br0 54");
    let shown = ports(&lab);
    for line in ["br0 65534/54: (dummy-internal)", "p1 1/55: (dummy)", "p2 2/2: (dummy)", "p7 3/7: (dummy)"] {
        assert!(shown.iter().any(|known| known == line), "{line} in {shown:?}");
    }
    let listed = lab.appctl("dpctl/show");
    assert!(listed.contains("port 55: p1") && !listed.contains("port 1: "), "{listed}");
    // Its OpenFlow number, rules and their counters stay; flows of the old number have ended.
    assert!(!lab.appctl("dpctl/dump-flows").contains("in_port(1)"));
    assert_eq!(lab.n_packets("priority=7"), 1);
    lab.receive("p1", &format!("in_port(55),{FROM_5_TO_7},eth_type(0x1234)"));
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(flows.contains("in_port(55)") && flows.contains("actions:2"), "{flows}");
    // Packets to it leave by the new number.
    lab.ofctl(&["add-flow", "br0", "table=0,in_port=2,actions=1,LOCAL"]);
    lab.receive("p2", &format!("in_port(2),{FROM_5_TO_7},eth_type(0x1235)"));
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(flows.contains("actions:55,54"), "{flows}");
    assert_eq!(vsctl(&lab.daemon, "get interface p1 error"), "[]");
    // Back again, and beside a further port.
    lab.appctl("dpif-dummy/change-port-number ovs-dummy p1 1");
    vsctl(&lab.daemon, "add-port br0 p3 -- set interface p3 type=dummy");
    let shown = ports(&lab);
    assert!(shown.iter().any(|line| line == "p1 1/1: (dummy)"), "{shown:?}");
    assert!(shown.iter().any(|line| line.starts_with("p3 ")), "{shown:?}");
    // A port made by command.
    lab.appctl("dpctl/add-if dummy@ovs-dummy q9,type=dummy,n_rxq=2");
    lab.appctl("dpif-dummy/change-port-number ovs-dummy q9 99");
    let listed = lab.appctl("dpctl/show");
    assert!(listed.contains("port 99: q9 (dummy") && !listed.contains("port 9: "), "{listed}");
}

#[test]
fn options_set_by_command_last_until_the_interface_changes() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let (first, second) = (lab.daemon.rundir().join("first.pcap"), lab.daemon.rundir().join("second.pcap"));
    for (line, why) in [
        ("p1,type=system", "p1: can't change type from dummy to system"),
        ("p1,port_no=10", "p1: can't change port number from 1 to 10"),
        ("p1,port_no=10,type=internal", "p1: can't change port number from 1 to 10"),
        ("p1,n_rxq=x", "n_rxq"),
    ] {
        refused(&lab, &format!("dpctl/set-if dummy@ovs-dummy {line}"), why);
    }
    for line in ["p1", "p1,type=dummy", "p1,port_no=1", "p1,type=dummy,port_no=1"] {
        assert_eq!(lab.appctl(&format!("dpctl/set-if dummy@ovs-dummy {line}")), "");
    }
    lab.appctl("netdev-dummy/set-admin-state p2 up");
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=2"]);
    let send = || lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    send();
    lab.appctl(&format!("dpctl/set-if dummy@ovs-dummy p2,tx_pcap={}", first.display()));
    send();
    // A file has a header of 24 bytes, and a record beside each packet.
    let bytes = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
    assert!(bytes(&first) > 24, "the option is in force");
    assert!(ports(&lab).iter().any(|line| line == "p2 2/2: (dummy)"), "the number stays");
    assert_eq!(vsctl(&lab.daemon, "get interface p2 options"), "{}");
    // Another one beside it, then the database.
    lab.appctl(&format!("dpctl/set-if dummy@ovs-dummy p2,tx_pcap={},n_rxq=2", second.display()));
    let before = bytes(&first);
    send();
    assert!(bytes(&second) > 24 && bytes(&first) == before);
    vsctl(&lab.daemon, "set interface p2 options:ifindex=77");
    let before = bytes(&second);
    send();
    assert_eq!(bytes(&second), before, "the options of the row apply again");
    // Counters of the rule go on, once those of the flow are read.
    lab.appctl("time/warp 1000 500");
    assert_eq!(lab.n_packets("in_port=1"), 4);
}
