//! A longer run: traffic between two ports that nobody touches, while others come and go.

use std::time::{Duration, Instant};

use testkit::{Daemon, require_netns, require_programs};

use crate::helpers::{switch, vsctl};

/// Resident memory in KiB (proc(5)).
fn resident_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Memory that a run may end with above what it had after its first part, in KiB.
const GROWTH_MAX_KIB: u64 = 8 << 10;

#[test]
fn untouched_ports_lose_nothing_while_others_come_and_go() {
    require_netns!();
    require_programs!("ovs-vsctl", "ping");
    let run = Duration::from_secs(if testkit::long() { 600 } else { 15 });
    let (net, daemon) = switch(4);
    let [one, two, three, four] = &net.hosts[..] else { panic!("four hosts") };
    testkit::reachable(&one.netns, two.ipv4.into(), run).unwrap();
    let count = (run.as_millis() / 5).to_string();
    let pings = one.netns.cmd("ping").args(["-n", "-q", "-i", "0.004", "-W", "2", "-c", &count]);
    let pings = pings.arg(two.ipv4.to_string()).spawn().unwrap();
    let start = Instant::now();
    let mut settled_kib = 0;
    let mut rounds = 0;
    while start.elapsed() < run {
        let round = Instant::now();
        vsctl(
            &daemon,
            &format!("del-port {} -- add-port br0 soak -- set Interface soak type=internal", three.port),
        );
        vsctl(&daemon, &format!("add-port br0 {} -- del-port soak", three.port));
        testkit::reachable(&three.netns, four.ipv4.into(), Duration::from_secs(5)).unwrap();
        rounds += 1;
        if settled_kib == 0 && start.elapsed() > run / 2 {
            settled_kib = resident_kib(&daemon);
        }
        std::thread::sleep(Duration::from_secs(1).saturating_sub(round.elapsed()));
    }
    let end_kib = resident_kib(&daemon);
    let out = pings.wait(run + Duration::from_secs(30)).unwrap();
    let all = format!("{count} packets transmitted, {count} received, 0% packet loss");
    assert!(out.stdout.contains(&all), "{}", out.stdout);
    assert!(rounds >= run.as_secs() / 4, "only {rounds} rounds");
    assert!(end_kib <= settled_kib + GROWTH_MAX_KIB, "memory grew from {settled_kib} to {end_kib} KiB");
}
