//! Datapaths and ports made by command, without bridges. Expected answers are those of Open vSwitch 3.1.

use super::commands::refused;
use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, appctl, spec, vsctl};
use testkit::{Topology, reachable, require_netns, require_programs};

/// The ports of a datapath, as `dpctl/show` lists them.
fn ports(lab: &Lab, name: &str) -> Vec<String> {
    let shown = lab.appctl(&format!("dpctl/show {name}"));
    shown.lines().filter_map(|l| l.trim().strip_prefix("port ")).map(String::from).collect()
}

#[test]
fn datapaths_and_ports_are_made_by_command() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.appctl("dpctl/add-dp dummy@d1");
    refused(&lab, "dpctl/add-dp dummy@d1", "add_dp (File exists)");
    refused(&lab, "dpctl/add-dp dummy@a/b", "a/b: the name is not one that a device can have");
    assert_eq!(lab.appctl("dpctl/dump-dps"), "dummy@d1\ndummy@ovs-dummy\n");
    refused(&lab, "dpctl/dump-flows", "multiple datapaths, specify one");
    lab.appctl("dpctl/add-if dummy@d1 q1,type=dummy");
    refused(&lab, "dpctl/add-if dummy@d1 q1,type=dummy", "adding q1 to dummy@d1 failed (File exists)");
    // Each interface succeeds or fails by itself.
    refused(
        &lab,
        "dpctl/add-if dummy@d1 q2,type=dummy,port_no=7 q3,type=foo q4,type=dummy q5,type=dummy,port_no=7",
        "adding q5 to dummy@d1 failed (Device or resource busy)",
    );
    refused(&lab, "dpctl/add-if dummy@d1 q3,type=foo", "(Address family not supported by protocol)");
    refused(&lab, "dpctl/add-if dummy@d1 q6,type=patch,peer=q1", "a patch is no port of a datapath");
    let listed = ["0: d1 (dummy-internal)", "1: q1 (dummy)", "4: q4 (dummy)", "7: q2 (dummy)"];
    assert_eq!(ports(&lab, "d1"), listed);
    refused(&lab, "dpctl/set-if dummy@d1 q2,port_no=9", "q2: can't change port number from 7 to 9");
    lab.appctl("dpctl/set-if dummy@d1 q2,type=dummy,port_no=7");
    let sent = lab.daemon.rundir().join("sent.pcap");
    lab.appctl(&format!("dpctl/set-if dummy@d1 q2,tx_pcap={}", sent.display()));
    refused(&lab, "dpctl/set-if dummy@d1 q2,n_rxq=x", "n_rxq");
    assert_eq!(ports(&lab, "d1"), listed);

    // Packets follow flows added by command; others are dropped, and get no flow.
    let frame = "eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:06),eth_type(0x1234)";
    lab.receive("q1", &format!("in_port(1),{frame}"));
    assert_eq!(lab.appctl("dpctl/dump-flows dummy@d1"), "");
    lab.appctl("dpctl/add-flow dummy@d1 in_port(1),eth(),eth_type(0x1234) 7");
    (0..3).for_each(|_| lab.receive("q1", &format!("in_port(1),{frame}")));
    let flows = lab.appctl("dpctl/dump-flows dummy@d1");
    assert!(flows.contains("packets:3") && flows.contains("actions:7"), "{flows}");
    let shown = lab.appctl("dpctl/show -s dummy@d1");
    assert!(shown.split("port 7: q2").nth(1).unwrap().contains("TX packets:3"), "{shown}");
    // A file has a header of 24 bytes; a record 16 beside its packet.
    assert!(std::fs::metadata(&sent).unwrap().len() > 24 + 3 * 16, "the option of set-if is in force");
    // The revalidator leaves them alone.
    lab.appctl("time/warp 60000 1000");
    assert_eq!(lab.appctl("dpctl/dump-flows dummy@d1").lines().count(), flows.lines().count());

    // The names of dummies are unique, as those of devices are.
    vsctl(&lab.daemon, "add-port br0 q2 -- set Interface q2 type=dummy");
    let error = vsctl(&lab.daemon, "get Interface q2 error");
    assert_eq!(error, "\"could not open network device q2 (File exists)\"");
    refused(&lab, "dpctl/del-if dummy@d1 q1 nope", "no port named nope");
    refused(&lab, "dpctl/del-if dummy@d1 d1", "deleting port d1 from dummy@d1 failed (Invalid argument)");
    assert_eq!(ports(&lab, "d1"), ["0: d1 (dummy-internal)", "4: q4 (dummy)", "7: q2 (dummy)"]);
    refused(&lab, "dpctl/del-dp dummy@ovs-dummy", "ends with the last bridge of its type");
    lab.appctl("dpctl/del-dp dummy@d1");
    assert_eq!(lab.appctl("dpctl/dump-dps"), "dummy@ovs-dummy\n");
    // Its names are free, also those of a datapath that ended with its last bridge.
    lab.appctl("dpctl/add-dp dummy@d1");
    lab.appctl("dpctl/add-if dummy@d1 q4,type=dummy");
    lab.appctl("dpctl/del-dp dummy@d1");
    vsctl(&lab.daemon, "del-br br0");
    assert_eq!(lab.appctl("dpctl/dump-dps"), "");
    vsctl(
        &lab.daemon,
        "add-br br1 -- set bridge br1 datapath_type=dummy -- add-port br1 p1 -- set Interface p1 type=dummy",
    );
    assert_eq!(lab.appctl("dpctl/dump-dps"), "dummy@ovs-dummy\n");
    assert_eq!(ports(&lab, "ovs-dummy").len(), 3);
}

/// A port of a bridge's datapath without an interface: its packets match no bridge, and it stays.
#[test]
fn a_bridges_datapath_takes_ports_by_command() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    lab.appctl("dpctl/add-if dummy@ovs-dummy q9,type=dummy");
    lab.receive("q9", "in_port(9),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:06),eth_type(0x1234)");
    assert!(ports(&lab, "ovs-dummy").contains(&"9: q9 (dummy)".to_string()));
    lab.appctl("dpctl/del-if dummy@ovs-dummy q9");
    assert!(!ports(&lab, "ovs-dummy").contains(&"9: q9 (dummy)".to_string()));
    // The port of an interface is gone until the database changes, as in OVS.
    let has_p1 = || (lab.appctl("dpif/show").contains("p1 "), lab.ofctl(&["show", "br0"]).contains("(p1)"));
    lab.appctl("dpctl/del-if dummy@ovs-dummy p1");
    assert_eq!(has_p1(), (false, false));
    vsctl(&lab.daemon, "set Bridge br0 external-ids:a=b");
    assert_eq!(has_p1(), (true, true));
}

/// Bridges have the only datapath of their type.
#[test]
fn the_first_bridge_of_a_type_removes_other_datapaths_of_it() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::empty();
    lab.appctl("dpctl/add-dp dummy@d1");
    vsctl(&lab.daemon, "add-br br0 -- set Bridge br0 datapath_type=dummy");
    assert_eq!(lab.appctl("dpctl/dump-dps"), "dummy@ovs-dummy\n");
    assert!(lab.daemon.log().contains("dummy@d1: removed, since bridges of its type begin"));
}

/// A userspace datapath with devices of two hosts, and one flow for each direction.
#[test]
fn hosts_reach_each_other_through_flows_added_by_command() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ping");
    let net = Topology::new(2).unwrap();
    let daemon = spec(&net.switch).start().unwrap();
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    appctl(&daemon, &format!("dpctl/add-dp netdev@sep {} {}", one.port, two.port));
    // Its local port is a device, as in stock switches.
    net.switch.ip("link show dev sep").unwrap();
    for (from, to) in [(1, 2), (2, 1)] {
        for kind in ["eth_type(0x0806)", "eth_type(0x0800),ipv4()"] {
            appctl(&daemon, &format!("dpctl/add-flow netdev@sep in_port({from}),eth(),{kind} {to}"));
        }
    }
    reachable(&one.netns, two.ipv4.into(), LIMIT).unwrap();
    appctl(&daemon, "dpctl/del-dp netdev@sep");
    assert!(net.switch.ip("link show dev sep").is_err());
}

/// As in OVS 3.5: the own port of a datapath may have the name of an internal port, and of no other.
#[test]
fn a_datapath_may_have_the_name_of_a_bridge() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let lab = Lab::new();
    vsctl(&lab.daemon, "add-port br0 p6 -- set Interface p6 type=internal");
    refused(&lab, "dpctl/add-dp dummy@p1", "File exists");
    for name in ["br0", "p6", "later"] {
        lab.appctl(&format!("dpctl/add-dp dummy@{name}"));
        assert_eq!(ports(&lab, &format!("dummy@{name}")), [format!("0: {name} (dummy-internal)")]);
    }
    vsctl(&lab.daemon, "add-port br0 later -- set Interface later type=internal");
    let own = ports(&lab, "dummy@ovs-dummy");
    assert!(own.iter().any(|port| port.ends_with(": later (dummy-internal)")), "{own:?}");
    // Commands mean the bridge's ports, also once the datapath is gone.
    for removed in ["", "br0"] {
        if !removed.is_empty() {
            lab.appctl(&format!("dpctl/del-dp dummy@{removed}"));
        }
        lab.receive("br0", &format!("in_port(100),{FROM_5_TO_7},eth_type(0x1234)"));
    }
    // Counters of the rule go on, once those of the flow are read.
    lab.appctl("time/warp 1000 500");
    assert_eq!(lab.n_packets("actions=NORMAL"), 2);
}
