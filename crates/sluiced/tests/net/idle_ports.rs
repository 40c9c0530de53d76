//! Ports without traffic cost little memory and a descriptor each; those with much traffic get more, and give it back.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use testkit::{
    Cmd, Daemon, Iperf3Options, Netns, iperf3_client, iperf3_server, require_netns, require_programs,
};
use testkit::{Topology, wait_for};

use crate::helpers::{LIMIT, descriptors, descriptors_now, on_kernel, switch, vsctl};

/// Memory of the daemon alone, in KiB: anonymous, and of mapped rings. Its program is shared with others.
fn memory_kib(daemon: &Daemon) -> u64 {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", daemon.pid())).unwrap();
    let rollup = read("smaps_rollup");
    let line = rollup.lines().find(|line| line.starts_with("Pss_Anon:")).unwrap();
    let own: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    own + read("maps").lines().filter(|line| line.contains("socket:[")).map(mapped_kib).sum::<u64>()
}

/// Length of a mapping, by its line (proc(5)).
fn mapped_kib(line: &str) -> u64 {
    let (from, to) = line.split_whitespace().next().and_then(|range| range.split_once('-')).unwrap();
    let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
    (to - from) >> 10
}

/// Packet sockets in the namespace.
fn packet_sockets(netns: &Netns) -> usize {
    netns.run("cat", &["/proc/net/packet"]).unwrap().stdout.lines().count() - 1
}

/// Makes pairs of devices; `p<n>` are to become ports. Without addresses, which the kernel would announce.
fn make_devices(netns: &Netns, count: usize) {
    netns.run("sysctl", &["-qw", "net.ipv6.conf.default.disable_ipv6=1"]).unwrap();
    let mut lines = String::new();
    for n in 0..count {
        let _ = writeln!(lines, "link add p{n} up type veth peer name q{n}");
        let _ = writeln!(lines, "link set q{n} up");
    }
    let ip = Cmd::new("ip").netns(netns).args(["-batch", "-"]).input(lines).limit(Duration::from_secs(120));
    ip.run().unwrap();
}

/// One transaction for all ports; the time until they work.
fn for_all(daemon: &Daemon, command: &str, count: usize) -> Duration {
    let words = (0..count).flat_map(|n| [" --".to_string(), command.to_string(), format!("p{n}")]);
    let words: Vec<String> =
        words.flat_map(|words| words.split_whitespace().map(str::to_string).collect::<Vec<_>>()).collect();
    let begin = Instant::now();
    daemon.tool("ovs-vsctl").args(&words[1..]).limit(Duration::from_secs(300)).run().unwrap();
    begin.elapsed()
}

/// Adds ports to a switch and removes them; checks their memory and descriptors.
fn ports_cost_little(count: usize) {
    let net = Topology::new(0).unwrap();
    make_devices(&net.switch, count);
    let daemon = crate::helpers::start(&net.switch);
    vsctl(&daemon, "add-br br0");
    // The bridge's own port starts threads.
    let (memory, files) = (memory_kib(&daemon), descriptors(&daemon));
    let added = for_all(&daemon, "add-port br0", count);
    let more = descriptors(&daemon) - files;
    assert!(more <= count + 8, "{more} descriptors for {count} ports");
    assert_eq!(packet_sockets(&net.switch), count);
    // Memory of the transaction itself is given back a little later.
    let per_port = || memory_kib(&daemon).saturating_sub(memory) / count as u64;
    wait_for(Duration::from_secs(60), "little memory for each port", || per_port() <= PORT_KIB)
        .unwrap_or_else(|e| {
            panic!("{e}: {} KiB for each of {count} ports", per_port());
        });
    println!("{count} ports: {} KiB each, {more} descriptors, added in {added:?}", per_port());
    let removed = for_all(&daemon, "del-port", count);
    println!("removed in {removed:?}");
    assert_eq!(packet_sockets(&net.switch), 0);
    // The connection of the tool ends a little later; the sets of idle queues stay.
    wait_for(LIMIT, "as few descriptors as before", || descriptors_now(&daemon) <= files + 8).unwrap();
}

/// Permitted memory of a port; a third of it is its rows in the database. A ring has 2,048.
const PORT_KIB: u64 = 64;

#[test]
fn idle_ports_cost_little() {
    require_netns!();
    require_programs!("ovs-vsctl", "sysctl");
    if on_kernel() {
        return;
    }
    ports_cost_little(300);
}

#[test]
#[ignore = "2,000 ports take half a minute; the long check has it"]
fn two_thousand_idle_ports_cost_little() {
    require_netns!();
    require_programs!("ovs-vsctl", "sysctl");
    ports_cost_little(2000);
}

/// Sends datagrams of 100 bytes from the first host to the second one.
fn flood(net: &Topology, seconds: u32) {
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    let _server = iperf3_server(&two.netns, 5201).unwrap();
    let options = Iperf3Options {
        time_s: seconds,
        udp_bps: Some(40_000_000),
        more: vec!["-l".into(), "100".into()],
        ..Iperf3Options::default()
    };
    iperf3_client(&one.netns, two.ipv4.into(), &options).unwrap();
}

#[test]
fn a_port_with_much_traffic_gets_a_ring() {
    require_netns!();
    require_programs!("ovs-vsctl", "iperf3");
    if on_kernel() {
        return;
    }
    let (net, _daemon) = switch(2);
    assert_eq!(packet_sockets(&net.switch), 2);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&net, 5));
        wait_for(LIMIT, "a ring", || packet_sockets(&net.switch) > 2).unwrap();
    });
}

#[test]
#[ignore = "a ring is given back after ten seconds; the long check has it"]
fn a_port_without_traffic_gives_its_ring_back() {
    require_netns!();
    require_programs!("ovs-vsctl", "iperf3", "ping");
    let (net, daemon) = switch(2);
    let [one, two] = &net.hosts[..] else { panic!("two hosts") };
    testkit::reachable(&one.netns, two.ipv4.into(), LIMIT).unwrap();
    let before = memory_kib(&daemon);
    flood(&net, 3);
    let most = memory_kib(&daemon);
    assert!(most >= before + 1024, "a ring has 2 MB: {before}, then {most} KiB");
    wait_for(Duration::from_secs(60), "the ring is given back", || memory_kib(&daemon) + 1024 < most)
        .unwrap();
    crate::helpers::ping_all(&one.netns, two.ipv4.into(), 3);
}
