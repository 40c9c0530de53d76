//! Hosts behind one switch: IPv4 and IPv6, TCP with and without offloads, UDP, learning and flooding.

use std::net::IpAddr;

use testkit::{
    Capture, Iperf3Options, Pings, TopologyOptions, iperf3_client, iperf3_server, pace, require_netns,
    require_programs, wait_for,
};

use crate::helpers::{
    BROADCAST, Frame, LIMIT, answered, appctl, ping_all, pings, seen, send, start, switch, unreachable,
    vsctl, watch,
};

#[test]
fn hosts_reach_each_other_without_duplicates() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping", "tcpdump");
    let (net, _daemon) = switch(3);
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    let capture = Capture::start(&two.netns, &two.dev, "icmp[icmptype]=icmp-echo", &[]).unwrap();
    ping_all(&one.netns, two.ipv4.into(), 10);
    ping_all(&two.netns, three.ipv4.into(), 10);
    ping_all(&three.netns, one.ipv4.into(), 10);
    ping_all(&one.netns, three.ipv6.into(), 10);
    ping_all(&three.netns, two.ipv6.into(), 10);
    // Each request of the first host arrives once, including those of the reachability check.
    let lines = capture.stop().unwrap();
    let mut requests: Vec<&String> = lines.iter().filter(|l| l.contains("10.0.0.1 >")).collect();
    let all = requests.len();
    requests.sort();
    requests.dedup();
    assert!(all >= 10 && requests.len() == all, "{lines:#?}");
}

/// Runs TCP in both directions between two hosts; returns whether segments longer than the MTU arrived.
fn tcp(offloads: [bool; 2]) -> [bool; 2] {
    let (net, daemon) = switch(2);
    let mut large = [false; 2];
    for (host, on) in net.hosts.iter().zip(offloads) {
        if !on {
            host.netns.set_offloads(&host.dev, false).unwrap();
            net.switch.set_offloads(&host.port, false).unwrap();
        }
    }
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    for (n, (from, to)) in [(one, two), (two, one)].into_iter().enumerate() {
        let server = iperf3_server(&to.netns, 5201).unwrap();
        let capture =
            Capture::start(&to.netns, &to.dev, "tcp dst port 5201 and greater 2000", &["-c", "20"]).unwrap();
        for address in [IpAddr::from(to.ipv4), to.ipv6.into()] {
            let report = iperf3_client(&from.netns, address, &Iperf3Options::default()).unwrap();
            let least = 20e6 / pace(LIMIT).div_duration_f64(LIMIT);
            assert!(report.received_bps > least, "{address}: {} bit/s", report.received_bps);
        }
        drop(server);
        large[n] = !capture.lines().is_empty();
    }
    assert!(!daemon.log().contains("|WARN|"), "{}", daemon.log());
    large
}

#[test]
fn tcp_with_offloads_crosses_uncut() {
    require_netns!();
    require_programs!("ovs-vsctl", "iperf3", "tcpdump");
    assert_eq!(tcp([true, true]), [true, true], "large segments were cut");
}

#[test]
fn tcp_without_offloads_passes() {
    require_netns!();
    require_programs!("ovs-vsctl", "iperf3", "tcpdump", "ethtool");
    assert_eq!(tcp([false, false]), [false, false], "no large segment was sent");
}

#[test]
fn tcp_passes_when_one_side_has_no_offloads() {
    require_netns!();
    require_programs!("ovs-vsctl", "iperf3", "tcpdump", "ethtool");
    tcp([true, false]);
}

#[test]
fn udp_passes() {
    require_netns!();
    require_programs!("ovs-vsctl", "iperf3");
    let (net, _daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let _server = iperf3_server(&two.netns, 5201).unwrap();
    for address in [IpAddr::from(two.ipv4), two.ipv6.into()] {
        // Slow enough for the rings of ports to hold what arrives while a loaded machine runs others.
        let options = Iperf3Options {
            udp_bps: Some(2_000_000),
            more: vec!["-l".into(), "1200".into()],
            ..Iperf3Options::default()
        };
        let report = iperf3_client(&one.netns, address, &options).unwrap();
        assert!(report.received_bps > 0.0 && report.lost_percent < 1.0, "{report:?}");
    }
}

#[test]
fn jumbo_frames_pass() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let net =
        testkit::Topology::with(TopologyOptions { mtu_bytes: 9000, ..TopologyOptions::new(2) }).unwrap();
    let daemon = start(&net.switch);
    vsctl(
        &daemon,
        &format!("add-br br0 -- add-port br0 {} -- add-port br0 {}", net.ports()[0], net.ports()[1]),
    );
    let to = net.hosts[1].ipv4;
    testkit::reachable(&net.hosts[0].netns, to.into(), LIMIT).unwrap();
    let to = to.to_string();
    answered(Pings::start(&net.hosts[0].netns, &["-M", "do", "-s", "8900", "-i", "0.05", &to]).unwrap(), 3);
}

#[test]
fn a_flood_reaches_every_other_port_once_and_not_its_own() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump");
    let (net, _daemon) = switch(3);
    let captures: Vec<Capture> = net.hosts.iter().map(|h| watch(&h.netns, &h.dev)).collect();
    let unknown = "02:aa:00:00:00:99";
    for to in [BROADCAST, unknown, "01:00:5e:01:02:03"] {
        send(&net.hosts[0], &[Frame { to, from: "02:aa:00:00:00:01", vlan: None }]);
    }
    // A reflected frame would have arrived before this one.
    send(&net.hosts[1], &[Frame { to: BROADCAST, from: "02:aa:00:00:00:02", vlan: None }]);
    captures[0].wait_for("02:aa:00:00:00:02 >", LIMIT).unwrap();
    for capture in &captures[1..] {
        capture.wait_for(&format!("> {}", "01:00:5e:01:02:03"), LIMIT).unwrap();
    }
    captures[2].wait_for("02:aa:00:00:00:02 >", LIMIT).unwrap();
    let from = |lines: &[String], mac: &str| seen(lines).iter().filter(|(m, _)| m == mac).count();
    let counts: Vec<[usize; 2]> = captures
        .into_iter()
        .map(|c| c.stop().unwrap())
        .map(|l| [from(&l, "02:aa:00:00:00:01"), from(&l, "02:aa:00:00:00:02")])
        .collect();
    assert_eq!(counts, [[0, 1], [3, 0], [3, 1]]);
}

#[test]
fn a_moved_address_is_relearned() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "tcpdump");
    let (net, daemon) = switch(3);
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    let mover = "02:aa:00:00:00:77";
    let announce = Frame { to: BROADCAST, from: mover, vlan: None };
    let call = Frame { to: mover, from: "02:aa:00:00:00:02", vlan: None };
    let learned_at = |port: &str| {
        let number = vsctl(&daemon, &format!("get Interface {port} ofport"));
        let table = appctl(&daemon, "fdb/show br0");
        let line = table.lines().find(|l| l.contains(mover)).unwrap_or_default().to_string();
        line.split_whitespace().next().is_some_and(|p| p == number)
    };
    for (here, elsewhere) in [(one, three), (three, one), (one, three)] {
        send(here, &[announce]);
        wait_for(LIMIT, "the address to be learned", || learned_at(&here.port)).unwrap();
        appctl(&daemon, "revalidator/wait");
        let captures = [watch(&here.netns, &here.dev), watch(&elsewhere.netns, &elsewhere.dev)];
        send(two, &[call]);
        captures[0].wait_for(&format!("> {mover}"), LIMIT).unwrap();
        let [at, not_at] = captures.map(|c| seen(&c.stop().unwrap()).len());
        assert_eq!((at, not_at), (1, 0));
    }
}

#[test]
fn ports_are_added_and_removed_under_traffic() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(3);
    let [one, two, three] = &net.hosts[..] else { panic!("three hosts") };
    ping_all(&one.netns, two.ipv4.into(), 2);
    ping_all(&one.netns, three.ipv4.into(), 2);
    let dead = three.netns.spawn("ping", &["-n", "-q", "-i", "0.005", &one.ipv4.to_string()]).unwrap();
    let alive = pings(&one.netns, "0.005", two.ipv4.into());
    for _ in 0..3 {
        vsctl(&daemon, &format!("del-port {}", three.port));
        unreachable(&one.netns, three.ipv4.into());
        vsctl(&daemon, &format!("add-port br0 {}", three.port));
        ping_all(&one.netns, three.ipv4.into(), 2);
    }
    answered(alive, 400);
    drop(dead);
}

#[test]
fn a_deleted_bridge_stops_forwarding_and_can_be_recreated() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    ping_all(&one.netns, two.ipv4.into(), 2);
    vsctl(&daemon, "del-br br0");
    unreachable(&one.netns, two.ipv4.into());
    assert!(net.switch.ip("link show dev br0").is_err(), "the bridge's device stays behind");
    vsctl(&daemon, &format!("add-br br1 -- add-port br1 {} -- add-port br1 {}", one.port, two.port));
    ping_all(&one.netns, two.ipv4.into(), 2);
}

#[test]
fn fragments_pass() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, _daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    for to in [IpAddr::from(two.ipv4), two.ipv6.into()] {
        testkit::reachable(&one.netns, to, LIMIT).unwrap();
        let to = to.to_string();
        answered(Pings::start(&one.netns, &["-s", "7000", "-i", "0.05", &to]).unwrap(), 5);
    }
}

#[test]
fn a_secure_bridge_forwards_nothing_without_flows() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let net = testkit::Topology::new(2).unwrap();
    let daemon = start(&net.switch);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let ports = format!("add-port br0 {} -- add-port br0 {}", one.port, two.port);
    vsctl(&daemon, &format!("add-br br0 -- set Bridge br0 fail_mode=secure -- {ports}"));
    unreachable(&one.netns, two.ipv4.into());
    vsctl(&daemon, "set-fail-mode br0 standalone");
    ping_all(&one.netns, two.ipv4.into(), 3);
    vsctl(&daemon, "set-fail-mode br0 secure");
    unreachable(&one.netns, two.ipv4.into());
    vsctl(&daemon, "del-fail-mode br0");
    ping_all(&one.netns, two.ipv4.into(), 3);
}

#[test]
fn a_bridge_replaced_in_one_transaction_works_at_once() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let ports = format!("add-port br0 {} -- add-port br0 {}", two.port, one.port);
    for _ in 0..3 {
        vsctl(&daemon, &format!("del-br br0 -- add-br br0 -- {ports}"));
        ping_all(&one.netns, two.ipv4.into(), 3);
        assert!(net.switch.ip("link show dev br0").is_ok());
    }
    // The ports move to another bridge in one transaction.
    vsctl(&daemon, "add-br br1");
    let moved = ports.replace("add-port br0", "add-port br1");
    vsctl(&daemon, &format!("del-port {} -- del-port {} -- {moved}", one.port, two.port));
    ping_all(&one.netns, two.ipv4.into(), 3);
    assert_eq!(vsctl(&daemon, &format!("port-to-br {}", one.port)), "br1");
}
