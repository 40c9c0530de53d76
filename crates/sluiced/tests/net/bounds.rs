//! Completeness of events; clients cannot lock out others.

use std::fmt::Write as _;
use std::os::unix::net::UnixStream;

use testkit::{Cmd, Netns, TempDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, PYTHON, appctl, start, vsctl, wait_log};

/// Connects to addresses, optionally sends an OpenFlow hello, and waits until all connections are closed.
const IDLE: &str = "\
import socket, sys
conns = []
for port in sys.argv[1:]:
    s = socket.create_connection(('127.0.0.1', int(port)))
    if port == '6653':
        s.send(bytes([1, 0, 0, 8, 0, 0, 0, 1]))
    conns.append(s)
print('connected', flush=True)
for s in conns:
    while s.recv(4096):
        pass
print('all closed', flush=True)
";

#[test]
fn controllers_get_all_flow_removed_messages() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl");
    let netns = Netns::new("sw").unwrap();
    let daemon = start(&netns);
    vsctl(&daemon, "add-br br0 -- set bridge br0 fail_mode=secure");
    let mut rules = String::new();
    for n in 0..20_000 {
        let _ = writeln!(rules, "send_flow_rem,ip,nw_dst=10.0.{}.{},actions=drop", n >> 8, n & 255);
    }
    daemon.tool("ovs-ofctl").args(["add-flows", "br0", "-"]).input(rules.as_str()).run().unwrap();
    let monitor = daemon.tool("ovs-ofctl").args(["monitor", "br0", "65535"]).spawn().unwrap();
    let reported = || monitor.stderr().matches("OFPT_FLOW_REMOVED").count();
    // The first event shows that the monitor listens.
    let first = || {
        daemon.tool("ovs-ofctl").args(["add-flow", "br0", "send_flow_rem,arp,actions=drop"]).run().unwrap();
        daemon.tool("ovs-ofctl").args(["del-flows", "br0", "arp"]).run().unwrap();
        reported() > 0
    };
    wait_for(LIMIT, "the monitor to listen", first).unwrap();
    let before = reported();
    daemon.tool("ovs-ofctl").args(["del-flows", "br0"]).run().unwrap();
    wait_for(LIMIT, "all flow-removed messages", || reported() >= before + 20_000).unwrap();
    assert_eq!(appctl(&daemon, "coverage/read-counter ofconn_event_dropped"), "0\n");
}

#[test]
fn a_client_is_served_once_descriptors_are_free() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "prlimit");
    let netns = Netns::new("sw").unwrap();
    let daemon = start(&netns);
    let pid = daemon.pid().to_string();
    let socket = daemon.rundir().join("db.sock");
    vsctl(&daemon, "show");
    let limit = |soft: usize| {
        Cmd::new("prlimit").args(["--pid", &pid, &format!("--nofile={soft}:")]).run().unwrap();
    };
    // More clients than descriptors, regardless of other files that the daemon opens or closes.
    limit(64);
    let holders: Vec<UnixStream> = (0..80).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    wait_log(&daemon, "cannot accept a connection");
    let waiting =
        daemon.tool("ovs-vsctl").args(["--no-wait", "get", "Open_vSwitch", ".", "_uuid"]).spawn().unwrap();
    drop(holders);
    wait_for(LIMIT, "the waiting client's answer", || waiting.stdout().len() > 30).unwrap();
    limit(1024);
    assert!(!appctl(&daemon, "coverage/read-counter accept_failed").starts_with("0\n"));
}

#[test]
fn idle_clients_of_the_network_are_probed_and_dropped() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let netns = Netns::new("sw").unwrap();
    netns.run("ip", &["link", "set", "lo", "up"]).unwrap();
    let daemon = start(&netns);
    vsctl(
        &daemon,
        "add-br br0 -- set-controller br0 ptcp:6653:127.0.0.1 -- set controller br0 inactivity_probe=1000",
    );
    vsctl(&daemon, "set-manager ptcp:6640:127.0.0.1 -- set manager . inactivity_probe=1000");
    let local = UnixStream::connect(daemon.rundir().join("db.sock")).unwrap();
    let idle = netns.cmd(PYTHON).args(["-c", IDLE, "6653", "6640"]).spawn().unwrap();
    wait_for(LIMIT, "both to be dropped", || idle.stdout().contains("all closed")).unwrap();
    wait_log(&daemon, "|rconn|ERR|br0<->tcp:127.0.0.1:");
    wait_log(&daemon, "|reconnect|ERR|tcp:127.0.0.1:");
    let log = daemon.log();
    let reported = log.matches("no response to inactivity probe after 1 seconds, disconnecting").count();
    assert_eq!(reported, 2, "{log}");
    // A local client is not probed.
    local.set_nonblocking(true).unwrap();
    assert!(
        std::io::Read::read(&mut &local, &mut [0; 10])
            .is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    );
}

#[test]
fn sockets_of_controllers_are_the_bridges_own() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let netns = Netns::new("sw").unwrap();
    let daemon = start(&netns);
    let elsewhere = TempDir::new("punix").unwrap();
    vsctl(&daemon, "add-br br0");
    let run = daemon.rundir().join("").display().to_string();
    let run = run.trim_end_matches('/');
    for (path, permitted) in [
        (format!("{}/x.sock", elsewhere.path().display()), false),
        (format!("{run}/other.sock"), false),
        (format!("{run}/br0.d/../../x.sock"), false),
        (format!("{run}/br0.controller"), true),
    ] {
        vsctl(&daemon, &format!("set-controller br0 punix:{path}"));
        let listens = || std::path::Path::new(&path).exists();
        if permitted {
            wait_for(LIMIT, "the socket", listens).unwrap();
            continue;
        }
        wait_log(
            &daemon,
            &format!("|bridge|ERR|bridge br0: Not adding Unix domain socket controller \"punix:{path}\""),
        );
        let reported = || vsctl(&daemon, "get controller br0 status:last_error").contains("not permitted");
        wait_for(LIMIT, "the error in the row", reported).unwrap();
        assert!(!listens(), "{path}");
    }
}
