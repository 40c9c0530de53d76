//! Mirrors with real traffic, `ovs-tcpdump` and `sluice tcpdump`.

use crate::cli::{program, sluice};
use crate::helpers::{LIMIT, start, vsctl};
use testkit::{Capture, Daemon, Topology, require_netns, require_programs, skip, wait_for};

/// A switch with hosts on a bridge.
fn network(hosts: usize) -> (Topology, Daemon) {
    let net = Topology::new(hosts).unwrap();
    let daemon = start(&net.switch);
    vsctl(&daemon, "add-br br0");
    net.ports().iter().for_each(|port| drop(vsctl(&daemon, &format!("add-port br0 {port}"))));
    (net, daemon)
}

/// Sends pings from the first host to the second until a program ends.
fn ping_until(net: &Topology, what: &str, mut done: impl FnMut() -> bool) {
    let (from, to) = (&net.hosts[0].netns, net.hosts[1].ipv4.to_string());
    wait_for(LIMIT, what, || {
        let _lost = from.run("ping", &["-c", "1", "-W", "1", &to]);
        done()
    })
    .unwrap();
}

#[test]
fn a_mirror_sends_copies_to_its_port_alone() {
    require_netns!();
    require_programs!("ovs-vsctl", "tcpdump", "ping");
    let (net, daemon) = network(3);
    let [one, _, three] = net.ports()[..] else { panic!("three ports") };
    let capture = Capture::start(&net.hosts[2].netns, &net.hosts[2].dev, "icmp", &[]).unwrap();
    let mirror = format!(
        "-- --id=@p get Port {one} -- --id=@o get Port {three} -- --id=@m create Mirror name=m0 \
         select_src_port=@p select_dst_port=@p output_port=@o -- set Bridge br0 mirrors=@m"
    );
    vsctl(&daemon, &mirror);
    ping_until(&net, "both directions at the third host", || {
        ["ICMP echo request", "ICMP echo reply"]
            .iter()
            .all(|text| capture.lines().iter().any(|line| line.contains(text)))
    });
    // The third host reaches nobody.
    let to = net.hosts[0].ipv4.to_string();
    assert!(net.hosts[2].netns.run("ping", &["-c", "1", "-W", "1", &to]).is_err());
    vsctl(&daemon, "clear Bridge br0 mirrors");
    net.hosts[2].netns.run("ping", &["-c", "1", "-W", "5", &to]).unwrap();
}

/// Nothing of a capture is left in the database.
fn is_clean(daemon: &Daemon) -> bool {
    let ports = vsctl(daemon, "list-ports br0");
    let mirrors = vsctl(daemon, "--bare --columns=name list Mirror");
    !ports.lines().any(|port| port.starts_with("slcap") || port.starts_with("mi")) && mirrors.is_empty()
}

#[test]
fn sluice_tcpdump_shows_writes_and_leaves_nothing() {
    require_netns!();
    require_programs!(program().as_str(), "tcpdump", "ovs-vsctl", "ping");
    let (net, daemon) = network(2);
    let port = net.ports()[0];
    let file = daemon.rundir().join("capture.pcap");
    let file = file.to_str().unwrap();
    let mut shows = daemon
        .tool(&program())
        .args(["tcpdump", port, "icmp", "-c", "2", "--direction", "in"])
        .spawn()
        .unwrap();
    ping_until(&net, "the end of the capture", || shows.status().is_some());
    let shown = shows.wait(LIMIT).unwrap().stdout;
    assert_eq!(shown.lines().filter(|line| line.contains("ICMP echo request")).count(), 2, "{shown}");
    assert!(!shown.contains("echo reply"), "{shown}");
    wait_for(LIMIT, "a clean database", || is_clean(&daemon)).unwrap();
    let mut writes =
        daemon.tool(&program()).args(["tcpdump", port, "-w", file, "-c", "2", "-s", "60"]).spawn().unwrap();
    ping_until(&net, "the file", || writes.status().is_some());
    let written = std::fs::read(file).unwrap();
    assert!(
        written.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]) && written.len() > 24 + 2 * 16,
        "{}",
        written.len()
    );
    // The guard acts for a capture that is killed.
    let mut killed = daemon.tool(&program()).args(["tcpdump", port]).spawn().unwrap();
    wait_for(LIMIT, "the capture", || vsctl(&daemon, "list-ports br0").contains("slcap")).unwrap();
    killed.signal(testkit::Signal::KILL).unwrap();
    wait_for(LIMIT, "a clean database", || is_clean(&daemon)).unwrap();
    let refused = daemon.tool(&program()).args(["tcpdump", port, "foo=1"]).output().unwrap();
    assert!(refused.stderr.contains("filter is invalid: foo=1: unknown field foo"), "{}", refused.stderr);
    wait_for(LIMIT, "a clean database", || is_clean(&daemon)).unwrap();
    assert!(sluice(&daemon, &["vsctl", "show"]).contains(port));
}

#[test]
fn ovs_tcpdump_works() {
    require_netns!();
    require_programs!("tcpdump", "ovs-vsctl", "ping");
    if !std::path::Path::new("/usr/bin/ovs-tcpdump").exists() {
        skip("ovs_tcpdump_works", "not installed: ovs-tcpdump");
        return;
    }
    let (net, daemon) = network(2);
    let db = daemon.rundir().db();
    let mut capture = daemon
        .tool("ovs-tcpdump")
        .args(["--db-sock", &db, "-i", net.ports()[0], "-n", "-c", "3", "icmp"])
        .spawn()
        .unwrap();
    ping_until(&net, "the end of the capture", || capture.status().is_some());
    let out = capture.wait(LIMIT).unwrap();
    assert!(out.stdout.contains("ICMP echo request"), "{}\n{}", out.stdout, out.stderr);
    wait_for(LIMIT, "a clean database", || is_clean(&daemon)).unwrap();
}
