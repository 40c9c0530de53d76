//! Multicast groups and routers go on: members need not report again.

use super::*;
use crate::mcast::{GROUP, QUERY, join, join6, lab, received, send_frame, stream, wait_for_groups};

#[test]
fn members_of_multicast_groups_and_routers_pass() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, daemon) = lab();
    let [sender, v2, v3, v6, router] = &net.hosts[..] else { panic!("five hosts") };
    send_frame(router, QUERY);
    let members = (join(v2), join(v3), join6(v6));
    wait_for_groups(&daemon, "the members and the router", |shown| {
        shown.matches("239.1.1.1").count() == 2 && shown.contains("ff05::15") && shown.contains("querier")
    });
    // Without their ages and protocols: the kernels of the hosts answer the query meanwhile, by its version.
    let shown = || {
        let text = appctl(&daemon, "mdb/show br0");
        let entry = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [port, vlan, _, group, _] => format!("{port} {vlan} {group}"),
            _ => panic!("{text}"),
        };
        text.lines().map(entry).collect::<Vec<_>>()
    };
    let before = shown();
    let mut successors: Vec<Successor> = Vec::new();
    let (lost, disordered, gap_us) = with_stream_to((&sender.netns, &v3.netns), GROUP.into(), 1, |_| {
        for _ in 0..2 {
            let pid = successors.last().map_or(daemon.pid(), |last| last.pid);
            successors.push(hand_over(&daemon, pid));
        }
    });
    println!("two handovers at 1,000 packets/s to a group: longest gap {gap_us} us");
    assert_eq!((lost, disordered), (0, 0), "lost, disordered");
    // The kernels of the hosts may have joined further groups.
    let after = shown();
    assert!(before.iter().all(|entry| after.contains(entry)), "{before:?} {after:?}");
    stream(sender, &["after"]);
    for socket in [&members.0, &members.1, &members.2] {
        assert_eq!(received(socket), "after");
    }
}
