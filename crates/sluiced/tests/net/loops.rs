//! Cables that close a loop between bridges with STP enabled.

use testkit::{Topology, require_netns, require_programs, wait_for};

use crate::helpers::{BROADCAST, Frame, LIMIT, appctl, seen, send, start, vsctl, watch};

/// Address of the sender of the n-th frame.
fn sender(n: u8) -> String {
    format!("02:00:00:00:00:{n:02x}")
}

#[test]
fn two_cables_between_stp_bridges_cause_no_storm() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump");
    let net = Topology::new(2).unwrap();
    let daemon = start(&net.switch);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    for (a, b) in [("c1a", "c1b"), ("c2a", "c2b")] {
        net.switch.ip(&format!("link add {a} type veth peer name {b}")).unwrap();
        net.switch.up(a).unwrap();
        net.switch.up(b).unwrap();
    }
    // The hosts' ports have STP disabled, so their packets reach both cables.
    let edge = "other_config:stp-enable=false";
    vsctl(
        &daemon,
        &format!(
            "add-br br0 -- set Bridge br0 stp_enable=true -- add-port br0 {} -- set Port {} {edge} \
             -- add-br br1 -- set Bridge br1 stp_enable=true -- add-port br1 {} -- set Port {} {edge}",
            one.port, one.port, two.port, two.port
        ),
    );
    vsctl(&daemon, "add-port br0 c1a -- add-port br0 c2a -- add-port br1 c1b -- add-port br1 c2b");
    for bridge in ["br0", "br1"] {
        let status = vsctl(&daemon, &format!("get Bridge {bridge} status:notice"));
        assert!(status.contains("spanning tree") && status.contains("nothing is forwarded"), "{status}");
    }
    let story = appctl(&daemon, "ofproto/trace br0 in_port=c1a,dl_dst=ff:ff:ff:ff:ff:ff");
    assert!(story.contains("STP not in forwarding state, skipping output\n"), "{story}");
    let capture = watch(&two.netns, &two.dev);
    let came = |n: u8| seen(&capture.lines()).iter().filter(|(from, _)| *from == sender(n)).count();
    // One copy per cable; the following frames reveal a loop.
    for n in 1..=3 {
        send(one, &[Frame { to: BROADCAST, from: &sender(n), vlan: None }]);
        wait_for(LIMIT, "a copy by each cable", || came(n) >= 2).unwrap();
    }
    assert_eq!([1, 2, 3].map(came), [2, 2, 2], "copies");
    // With STP, the host's port does not forward to the cables.
    vsctl(&daemon, &format!("clear Port {} other_config", one.port));
    send(one, &[Frame { to: BROADCAST, from: &sender(4), vlan: None }]);
    // Without a loop and without STP all frames are forwarded again.
    vsctl(&daemon, "del-port br1 c2b -- set Bridge br0 stp_enable=false -- set Bridge br1 stp_enable=false");
    assert!(!vsctl(&daemon, "--if-exists get Bridge br0 status:notice").contains("spanning tree"));
    send(one, &[Frame { to: BROADCAST, from: &sender(5), vlan: None }]);
    wait_for(LIMIT, "a copy by the cable that is left", || came(5) >= 1).unwrap();
    send(one, &[Frame { to: BROADCAST, from: &sender(6), vlan: None }]);
    wait_for(LIMIT, "a copy by the cable that is left", || came(6) >= 1).unwrap();
    assert_eq!([4, 5, 6].map(came), [0, 1, 1], "copies");
}
