//! VLANs: access ports, trunks and native VLANs, with frames tagged by hand.

use testkit::{Capture, Daemon, Topology, require_netns, require_programs};

use crate::helpers::{BROADCAST, Frame, LIMIT, ping_all, seen, send, switch, unreachable, vsctl, watch};

/// The sender and tag of a frame, and the expected receivers and tags.
type Case<'a> = (usize, Option<u16>, &'a [(usize, Option<u16>)]);

/// Sends a frame for each case and compares the frames received by every host.
fn check(net: &Topology, cases: &[Case<'_>]) {
    let captures: Vec<Capture> = net.hosts.iter().map(|h| watch(&h.netns, &h.dev)).collect();
    let mut wanted: Vec<Vec<(String, Option<u16>)>> = vec![Vec::new(); net.hosts.len()];
    for (n, (from, vlan, seen_by)) in cases.iter().enumerate() {
        let mac = format!("02:aa:00:00:01:{n:02x}");
        send(&net.hosts[*from], &[Frame { to: BROADCAST, from: &mac, vlan: *vlan }]);
        for (host, vlan) in *seen_by {
            wanted[*host].push((mac.clone(), *vlan));
            captures[*host].wait_for(&format!("{mac} >"), LIMIT).unwrap_or_else(|why| {
                panic!("case {n} {:?} did not reach host {host}: {why:#}", (from, vlan))
            });
        }
    }
    let got: Vec<_> = captures.into_iter().map(|c| seen(&c.stop().unwrap())).collect();
    assert_eq!(got, wanted);
}

/// Two hosts in VLAN 10, one in VLAN 20, and one on a trunk.
fn vlans() -> (Topology, Daemon) {
    let (net, daemon) = switch(4);
    let [a, b, c, _] = net.ports()[..] else { panic!("four ports") };
    vsctl(&daemon, &format!("set Port {a} tag=10 -- set Port {b} tag=10 -- set Port {c} tag=20"));
    (net, daemon)
}

#[test]
fn access_ports_separate_and_trunks_carry_tags() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump", "ping");
    let (net, daemon) = vlans();
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv6.into(), 3);
    unreachable(&net.hosts[0].netns, net.hosts[2].ipv4.into());
    check(
        &net,
        &[
            (0, None, &[(1, None), (3, Some(10))]),
            (2, None, &[(3, Some(20))]),
            // An access port drops tagged frames.
            (0, Some(20), &[]),
            (3, Some(10), &[(0, None), (1, None)]),
            (3, Some(20), &[(2, None)]),
            (3, Some(30), &[]),
            (3, None, &[]),
            (1, None, &[(0, None), (3, Some(10))]),
        ],
    );
    let trunk = net.ports()[3];
    vsctl(&daemon, &format!("set Port {trunk} trunks=20,30"));
    check(
        &net,
        &[
            (0, None, &[(1, None)]),
            (3, Some(10), &[]),
            (3, Some(20), &[(2, None)]),
            (2, None, &[(3, Some(20))]),
        ],
    );
    vsctl(&daemon, &format!("clear Port {trunk} trunks -- set Port {} tag=20", net.ports()[0]));
    check(&net, &[(0, None, &[(2, None), (3, Some(20))]), (1, None, &[(3, Some(10))])]);
    ping_all(&net.hosts[0].netns, net.hosts[2].ipv4.into(), 3);
}

#[test]
fn native_vlans() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump");
    let (net, daemon) = vlans();
    let trunk = net.ports()[3];
    vsctl(&daemon, &format!("set Port {trunk} vlan_mode=native-untagged tag=20"));
    check(
        &net,
        &[
            (3, None, &[(2, None)]),
            (3, Some(20), &[(2, None)]),
            (2, None, &[(3, None)]),
            (0, None, &[(1, None), (3, Some(10))]),
            (3, Some(10), &[(0, None), (1, None)]),
        ],
    );
    vsctl(&daemon, &format!("set Port {trunk} vlan_mode=native-tagged"));
    check(
        &net,
        &[
            (3, None, &[(2, None)]),
            (3, Some(20), &[(2, None)]),
            (2, None, &[(3, Some(20))]),
            (0, None, &[(1, None), (3, Some(10))]),
        ],
    );
}
