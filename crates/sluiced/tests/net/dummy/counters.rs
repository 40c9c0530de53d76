//! Coverage counters of rare events.

use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, vsctl};
use testkit::{require_netns, require_programs, wait_for};

fn count(lab: &Lab, name: &str) -> u64 {
    lab.appctl(&format!("coverage/read-counter {name}")).trim().parse().unwrap()
}

/// As in OVS 3.5: a new port counts, and each change of its ability to send.
#[test]
fn ports_that_are_set_up_and_down_are_counted() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let toggled = || count(&lab, "rev_port_toggled");
    let reaches = |n: u64| wait_for(LIMIT, "the count of toggled ports", || toggled() == n).unwrap();
    let before = toggled();
    assert!(before >= 4, "{before} for four ports");
    vsctl(&lab.daemon, "add-port br0 p9 -- set Interface p9 type=dummy");
    reaches(before + 1);
    lab.ofctl(&["mod-port", "br0", "p9", "down"]);
    reaches(before + 2);
    lab.ofctl(&["mod-port", "br0", "p9", "up"]);
    reaches(before + 3);
    // An event of translation alone is none of the port.
    lab.ofctl(&["add-flow", "br0", "priority=5,actions=drop"]);
    assert_eq!(toggled(), before + 3);
}

/// OVS 3.5 counts a flow that another program deleted.
#[test]
fn flows_deleted_behind_the_switch_are_counted() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let lost = || count(&lab, "revalidate_missing_dp_flow");
    assert_eq!((lost(), count(&lab, "ipf_l3csum_err"), count(&lab, "rconn_overflow")), (0, 0, 0));
    lab.receive("p1", &format!("in_port(1),{FROM_5_TO_7},eth_type(0x1234)"));
    lab.appctl("dpctl/del-flows");
    lab.appctl("time/warp 60000 500");
    assert_eq!(lost(), 1);
}
