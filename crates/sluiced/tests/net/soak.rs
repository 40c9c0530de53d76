//! A longer run: traffic between two untouched ports, while others are added and removed and rules change.

use std::time::{Duration, Instant};

use testkit::{Daemon, Iperf3Options, iperf3_client, iperf3_server, require_netns, require_programs};

use crate::helpers::{LIMIT, switch, vsctl};

/// Resident memory in KiB (proc(5)).
fn resident_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Permitted memory growth after the first part of a run, in KiB.
const GROWTH_MAX_KIB: u64 = 8 << 10;

/// Rate of the TCP connection beside the pings: low enough that no queue ever fills.
const TCP_BPS: u32 = 20_000_000;

/// A round of flow changes: flows are added, modified and deleted, one by one and as a bundle. Flows of the unchanged
/// ports stay the same, though each change revalidates all megaflows.
fn change_rules(daemon: &Daemon, round: u64) {
    let ofctl = |args: &[&str]| daemon.ovs("ovs-ofctl", args).unwrap();
    let port = 1000 + round % 500;
    ofctl(&["add-flow", "br0", &format!("priority=10,tcp,tp_dst={port},actions=drop")]);
    ofctl(&["add-flow", "br0", &format!("table=1,priority={port},actions=output:1")]);
    ofctl(&["mod-flows", "br0", &format!("tcp,tp_dst={port},actions=resubmit(,1)")]);
    ofctl(&["-O", "OpenFlow13", "del-flows", "br0", "table=1"]);
    if round.is_multiple_of(5) {
        ofctl(&["--strict", "del-flows", "br0", &format!("priority=10,tcp,tp_dst={port}")]);
    }
    if round.is_multiple_of(7) {
        let file = daemon.rundir().join("flows");
        std::fs::write(&file, "priority=0,actions=NORMAL\npriority=9,udp,tp_dst=9,actions=drop\n").unwrap();
        ofctl(&["-O", "OpenFlow13", "--bundle", "replace-flows", "br0", &file.to_string_lossy()]);
    }
}

#[test]
fn unchanged_ports_lose_nothing_while_others_change() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ping", "iperf3");
    let run = Duration::from_secs(if testkit::long() { 600 } else { 15 });
    let (net, daemon) = switch(4);
    let [one, two, three, four] = &net.hosts[..] else { panic!("four hosts") };
    testkit::reachable(&one.netns, two.ipv4.into(), run).unwrap();
    let count = (run.as_millis() / 5).to_string();
    let pings = one.netns.cmd("ping").args(["-n", "-q", "-i", "0.004", "-W", "2", "-c", &count]);
    let pings = pings.arg(two.ipv4.to_string()).spawn().unwrap();
    let _server = iperf3_server(&two.netns, 5201).unwrap();
    let tcp = Iperf3Options {
        time_s: run.as_secs() as u32,
        more: vec!["-b".into(), TCP_BPS.to_string()],
        ..Iperf3Options::default()
    };
    let start = Instant::now();
    let (mut settled_kib, mut rounds) = (0, 0);
    let tcp = std::thread::scope(|scope| {
        let tcp = scope.spawn(|| iperf3_client(&one.netns, two.ipv4.into(), &tcp));
        while start.elapsed() < run {
            let round = Instant::now();
            let port = three.port.as_str();
            vsctl(
                &daemon,
                &format!("del-port {port} -- add-port br0 soak -- set Interface soak type=internal"),
            );
            change_rules(&daemon, rounds);
            vsctl(&daemon, &format!("add-port br0 {port} -- del-port soak"));
            testkit::reachable(&three.netns, four.ipv4.into(), LIMIT).unwrap();
            rounds += 1;
            if settled_kib == 0 && start.elapsed() > run / 2 {
                settled_kib = resident_kib(&daemon);
            }
            std::thread::sleep(Duration::from_secs(1).saturating_sub(round.elapsed()));
        }
        tcp.join().unwrap().unwrap()
    });
    let end_kib = resident_kib(&daemon);
    let out = pings.wait(run + Duration::from_secs(30)).unwrap();
    let all = format!("{count} packets transmitted, {count} received, 0% packet loss");
    assert!(out.stdout.contains(&all), "{}", out.stdout);
    // The transfer kept its rate throughout.
    assert!(tcp.received_bps > 0.95 * f64::from(TCP_BPS), "{} of {TCP_BPS} bit/s", tcp.received_bps);
    assert!(rounds >= run.as_secs() / 4, "only {rounds} rounds");
    assert!(end_kib <= settled_kib + GROWTH_MAX_KIB, "memory grew from {settled_kib} to {end_kib} KiB");
    // A delayed thread may cause a retransmission; a loss would be counted.
    let shown = daemon.ovs("ovs-appctl", &["dpctl/show"]).unwrap().stdout;
    assert!(shown.contains("lost:0\n"), "{shown}");
    for host in [one, two] {
        let statistics = vsctl(&daemon, &format!("get interface {} statistics", host.port));
        for counter in ["rx_dropped", "tx_dropped", "rx_errors", "tx_errors"] {
            assert!(statistics.contains(&format!("{counter}=0")), "{}: {statistics}", host.port);
        }
    }
    println!("{rounds} rounds, {settled_kib} to {end_kib} KiB, {} retransmits", tcp.retransmits);
}
