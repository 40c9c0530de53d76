//! Flow offload of dummies (`other_config:hw-offload`), compared with the stock switch 3.1: marks without counters.

use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, appctl_output, vsctl, wait_log};
use testkit::{require_netns, require_programs, wait_for};

fn phwol_hits(lab: &Lab) -> Vec<u64> {
    let stats = lab.appctl("dpif-netdev/pmd-stats-show");
    stats.lines().filter_map(|l| l.trim().strip_prefix("phwol hits: ")?.parse().ok()).collect()
}

#[test]
fn dummies_mark_packets_once_offload_is_enabled() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::empty();
    vsctl(
        &lab.daemon,
        "add-br br0 -- set Bridge br0 datapath_type=dummy -- add-port br0 p1 -- set Interface p1 type=dummy \
         -- add-port br0 p2 -- set Interface p2 type=dummy-pmd",
    );
    let frame = |n: u32| format!("in_port(1),{FROM_5_TO_7},eth_type(0x123{n})");
    let refused = appctl_output(&lab.daemon, "dpctl/offload-stats-show");
    assert!(
        refused.stderr.contains("retrieving offload statistics (Invalid argument)"),
        "{}",
        refused.stderr
    );
    lab.receive("p1", &frame(1));
    // Takes effect at once, for new flows.
    vsctl(&lab.daemon, "set Open_vSwitch . other_config:hw-offload=true");
    for line in
        ["netdev: Flow API Enabled", "p1: Assigned flow API 'dummy'.", "p2: Assigned flow API 'dummy'."]
    {
        wait_log(&lab.daemon, line);
    }
    lab.receive("p1", &frame(1));
    assert_eq!(phwol_hits(&lab), [0, 0]);
    // The main thread is listed last.
    for (port, at) in [("p1", 1), ("p2", 0)] {
        wait_for(LIMIT, "marks", || {
            lab.receive(port, &frame(2));
            phwol_hits(&lab)[at] > 0
        })
        .unwrap();
    }
    // A dummy has no counters: its flows are not shown as offloaded, nor counted.
    let flows = lab.appctl("dpctl/dump-flows -m");
    assert!(flows.contains(", dp:ovs, actions:") && !flows.contains("offloaded"), "{flows}");
    assert_eq!(lab.appctl("dpctl/dump-flows type=offloaded,partially-offloaded,tc,dpdk"), "");
    let stats = lab.appctl("dpctl/offload-stats-show dummy@ovs-dummy");
    assert!(
        stats.starts_with("HW Offload stats:\n     Total                 Enqueued offloads:      0\n"),
        "{stats}"
    );
    assert!(stats.contains("     [  0]                 Inserted offloads:      0\n"), "{stats}");
    let unknown = appctl_output(&lab.daemon, "dpctl/offload-stats-show nope");
    assert!(!unknown.status.success());
    // Offload stays enabled until the process exits, also for new ports.
    vsctl(
        &lab.daemon,
        "set Open_vSwitch . other_config:hw-offload=false -- add-port br0 p3 -- set Interface p3 type=dummy",
    );
    wait_log(&lab.daemon, "p3: Assigned flow API 'dummy'.");
    vsctl(&lab.daemon, "del-port br0 p1 -- del-port br0 p2");
    assert!(lab.appctl("dpctl/offload-stats-show").starts_with("HW Offload stats:"));
}
