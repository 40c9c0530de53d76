//! Megaflows outlive a daemon that is killed: the next one forwards by them while it restores the rules, unless rules or settings
//! have changed.

use crate::helpers::{LIMIT, appctl, require_userspace, vsctl, wait_log};
use crate::kept::{Lab, drain, reach, receive, send, wait_stopped};
use std::net::UdpSocket;
use std::path::PathBuf;
use testkit::{Cmd, Daemon, Signal, require_netns, require_programs, wait_for};

/// Datagrams sent while nobody receives: fewer than a socket without a ring holds.
const WAITING: u32 = 300;
/// Rules beside those that forward.
const OTHERS: u32 = 3000;

fn ofctl(daemon: &Daemon, args: &[&str]) -> String {
    daemon.ovs("ovs-ofctl", args).unwrap().stdout
}

fn flows_file(lab: &Lab) -> PathBuf {
    lab.run.join("ovs-vswitchd.flows")
}

/// Packets of the rules with that text in their line; none while the bridge has no socket.
fn packets(daemon: &Daemon, text: &str) -> u64 {
    let Ok(all) = daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]) else { return 0 };
    let of = |line: &str| line.split("n_packets=").nth(1)?.split(',').next()?.parse::<u64>().ok();
    all.stdout.lines().filter(|line| line.contains(text)).filter_map(of).sum()
}

/// Waits until the restored state of the last process is proved, and flows of this one are kept that forward datagrams.
fn wait_kept(lab: &Lab, daemon: &Daemon, (sender, receiver): &(UdpSocket, UdpSocket)) {
    let mark = lab.run.join("ovs-vswitchd.state.mark");
    wait_for(LIMIT, "proof of the restored state", || !mark.exists()).unwrap();
    let file = flows_file(lab);
    wait_for(LIMIT, "kept flows", || {
        reach(sender, receiver);
        let forward =
            appctl(daemon, "dpctl/dump-flows").lines().filter(|l| l.contains("eth_type(0x0800)")).count();
        let lines = std::fs::read(&file).unwrap_or_default();
        let kept = String::from_utf8_lossy(&lines).lines().filter(|l| l.starts_with("actions\t")).count();
        forward > 0 && kept > 0
    })
    .unwrap();
}

/// Sends datagrams to a stopped daemon, and kills it.
fn kill_with_waiting(mut daemon: Daemon, sender: &UdpSocket) {
    daemon.signal(Signal::STOP).unwrap();
    wait_stopped(daemon.pid());
    send(sender, 0..WAITING);
    daemon.crash().unwrap();
}

fn add_rules(daemon: &Daemon) {
    let others = (0..OTHERS).map(|n| format!("priority=10,udp,tp_dst={},actions=drop\n", 20_000 + n));
    let rules: String = others
        .chain(["priority=100,in_port=1,actions=2\n".into(), "priority=100,in_port=2,actions=1\n".into()])
        .collect();
    Cmd::new("ovs-ofctl").args(["add-flows", &management(daemon), "-"]).input(rules).run().unwrap();
}

/// Changes a row of the database while no process runs.
fn change(lab: &Lab, table: &str, name: &str, columns: &str) {
    let change = format!(
        r#"["Open_vSwitch",{{"op":"update","table":"{table}","where":[["name","==","{name}"]],"row":{{{columns}}}}}]"#
    );
    let database = lab.run.join("conf.db").display().to_string();
    Cmd::new("ovsdb-tool").args(["transact", &database, &change]).run().unwrap();
}

fn management(daemon: &Daemon) -> String {
    format!("unix:{}", daemon.rundir().join("br0.mgmt").display())
}

#[test]
fn the_next_process_forwards_by_the_flows_of_the_last_one_and_adopts_them() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "sh");
    require_userspace!("flows of the kernel's datapath stay there");
    let (lab, daemon) = Lab::new();
    let sockets = lab.sockets();
    add_rules(&daemon);
    // A crash, and another one of the process that began with kept flows.
    let mut daemon = daemon;
    for _ in 0..2 {
        wait_kept(&lab, &daemon, &sockets);
        drain(&sockets.1);
        let begins = daemon.log().len();
        kill_with_waiting(daemon, &sockets.0);
        daemon = lab.spec().start().unwrap();
        let numbers = receive(&sockets.1, WAITING as usize);
        assert!(numbers.iter().copied().eq(0..WAITING), "{} of {WAITING}", numbers.len());
        // Frames may arrive before.
        let served = "flows are restored; upcalls are served";
        wait_for(LIMIT, "restored rules", || daemon.log()[begins..].contains(served)).unwrap();
        let log = daemon.log()[begins..].to_string();
        let [forward, restored, served] = ["of the last process forward", "br0: restored 3003 rules", served]
            .map(|text| log.find(text).unwrap_or_else(|| panic!("no `{text}`:\n{log}")));
        assert!(forward < restored && restored < served, "{log}");
        // They count for their rules; counters of the rules begin with those of the file.
        wait_for(LIMIT, "packets of the rule", || packets(&daemon, "in_port=1") >= WAITING.into()).unwrap();
        assert!(!log.contains("panicked"));
    }
    // They follow the rules from now on.
    ofctl(&daemon, &["add-flow", "br0", "priority=200,in_port=1,udp,actions=drop"]);
    let (sender, receiver) = &sockets;
    wait_for(LIMIT, "the new rule", || {
        send(sender, 0..10);
        packets(&daemon, "priority=200") > 0
    })
    .unwrap();
    drain(receiver);
    send(sender, 0..10);
    let seen = packets(&daemon, "priority=200");
    wait_for(LIMIT, "drops", || packets(&daemon, "priority=200") >= seen + 10).unwrap();
    assert!(receiver.recv(&mut [0; 8]).is_err());
    // A planned end leaves no flows.
    daemon.stop().unwrap();
    assert!(!flows_file(&lab).exists());
}

#[test]
fn flows_of_rules_that_have_changed_do_not_forward() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "sh");
    require_userspace!("flows of the kernel's datapath stay there");
    let (lab, daemon) = Lab::new();
    let sockets = lab.sockets();
    add_rules(&daemon);
    wait_kept(&lab, &daemon, &sockets);
    drain(&sockets.1);
    ofctl(&daemon, &["add-flow", "br0", "priority=200,in_port=1,udp,actions=drop"]);
    let state = lab.run.join("ovs-vswitchd.state");
    let has_rule = || std::fs::read_to_string(&state).unwrap_or_default().contains("rule\t0\t200\t");
    wait_for(LIMIT, "the rule in the file of state", has_rule).unwrap();
    kill_with_waiting(daemon, &sockets.0);
    let daemon = lab.spec().start().unwrap();
    wait_for(LIMIT, "drops", || packets(&daemon, "priority=200") >= WAITING.into()).unwrap();
    assert!(sockets.1.recv(&mut [0; 8]).is_err());
}

#[test]
fn flows_of_settings_that_have_changed_do_not_forward() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovsdb-tool", "sh");
    require_userspace!("flows of the kernel's datapath stay there");
    let (lab, daemon) = Lab::new();
    let sockets = lab.sockets();
    wait_kept(&lab, &daemon, &sockets);
    drain(&sockets.1);
    kill_with_waiting(daemon, &sockets.0);
    // While no process runs, a port moves to another VLAN.
    let port = lab.net.ports()[1].to_string();
    change(&lab, "Port", &port, r#""tag":9"#);
    let daemon = lab.spec().start().unwrap();
    wait_log(&daemon, "the flows of the last process are of other settings");
    wait_for(LIMIT, "the frames", || packets(&daemon, "actions=NORMAL") >= WAITING.into()).unwrap();
    assert!(sockets.1.recv(&mut [0; 8]).is_err());
    vsctl(&daemon, &format!("clear port {port} tag"));
    reach(&sockets.0, &sockets.1);
}

#[test]
fn flows_of_ports_with_another_number_do_not_forward() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovsdb-tool", "sh");
    require_userspace!("flows of the kernel's datapath stay there");
    let (lab, daemon) = Lab::new();
    let sockets = lab.sockets();
    add_rules(&daemon);
    ofctl(&daemon, &["add-flow", "br0", "priority=1,in_port=17,actions=drop"]);
    wait_kept(&lab, &daemon, &sockets);
    drain(&sockets.1);
    kill_with_waiting(daemon, &sockets.0);
    change(&lab, "Interface", lab.net.ports()[0], r#""ofport":17"#);
    let daemon = lab.spec().start().unwrap();
    wait_for(LIMIT, "the frames", || packets(&daemon, "in_port=17") >= WAITING.into()).unwrap();
    assert!(sockets.1.recv(&mut [0; 8]).is_err());
    assert!(daemon.log().contains("0 flows of "));
}
