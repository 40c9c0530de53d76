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

/// A fake bridge is a port of its parent: its interface is in the VLAN, with an address of the VLAN's ports, and so is each
/// port added to it.
#[test]
fn fake_bridges_are_in_their_vlan() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump", "ping", "ip");
    let (net, daemon) = vlans();
    let [_, _, c, d] = net.ports()[..] else { panic!("four ports") };
    vsctl(&daemon, "add-br fb10 br0 10");
    net.switch.add_addr("fb10", "10.10.10.10/24").unwrap();
    net.switch.up("fb10").unwrap();
    let host = &net.hosts[0];
    host.netns.add_addr(&host.dev, "10.10.10.1/24").unwrap();
    ping_all(&host.netns, "10.10.10.10".parse().unwrap(), 3);
    let other = &net.hosts[2];
    other.netns.add_addr(&other.dev, "10.10.10.3/24").unwrap();
    unreachable(&other.netns, "10.10.10.10".parse().unwrap());
    // A port of the fake bridge gets its VLAN, and loses it with the port.
    vsctl(&daemon, &format!("del-port {c} -- add-port fb10 {c}"));
    assert_eq!(vsctl(&daemon, &format!("get Port {c} tag -- port-to-br {c}")), "10\nfb10");
    ping_all(&other.netns, "10.10.10.10".parse().unwrap(), 3);
    let mac = |dev: &str| {
        let line = net.switch.ip(&format!("-o link show {dev}")).unwrap();
        line.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_string()
    };
    vsctl(&daemon, "set Port fb10 mac=\"00:00:00:00:10:10\"");
    assert_eq!(mac("fb10"), "00:00:00:00:10:10");
    vsctl(&daemon, "del-br fb10");
    assert_eq!(vsctl(&daemon, "list-ports br0").lines().filter(|port| *port == c).count(), 0);
    assert!(vsctl(&daemon, "list-ports br0").contains(d));
}
