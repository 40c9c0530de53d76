//! Rules that track connections, on the userspace datapath with real traffic.

use testkit::{require_netns, require_programs, wait_for};

use crate::ct_lab::{self, FIREWALL, Kind, Lab};
use crate::helpers::{LIMIT, appctl};

#[test]
fn one_side_begins_connections_and_marks_belong_to_them() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    ct_lab::one_side_begins_connections_and_marks_belong_to_them(Kind::Userspace);
}

#[test]
fn a_zone_comes_from_a_field_and_clearing_forgets() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    ct_lab::a_zone_comes_from_a_field_and_clearing_forgets(Kind::Userspace);
}

#[test]
fn sources_and_destinations_are_translated() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    ct_lab::sources_and_destinations_are_translated(Kind::Userspace);
}

/// Pings that the hosts fragment are tracked as whole datagrams, and arrive.
#[test]
fn fragments_are_tracked_as_datagrams() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::new(Kind::Userspace, FIREWALL);
    let target = lab.address(1).to_string();
    wait_for(LIMIT, "a large ping to arrive", || {
        lab.net.hosts[0].netns.run("ping", &["-c1", "-W1", "-s4000", &target]).is_ok()
    })
    .unwrap();
    let tracked = lab.connections();
    assert!(tracked.contains("icmp,orig=") && tracked.contains("zone=5"), "{tracked}");
    let status = appctl(&lab.daemon, "dpctl/ipf-get-status");
    let completed = status.lines().find_map(|l| l.trim().strip_prefix("v4 frags completed: ")).unwrap();
    // Three fragments of each of a request and its reply.
    assert!(completed.parse::<u32>().unwrap() >= 6, "{status}");
    // Without reassembly they are invalid, and the rules drop them.
    appctl(&lab.daemon, "dpctl/ipf-set-disabled v4");
    let lost = lab.net.hosts[0].netns.run("ping", &["-c1", "-W1", "-s4000", &target]);
    assert!(lost.is_err(), "{}", lab.state());
}
