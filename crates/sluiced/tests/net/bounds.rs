//! Completeness of events; clients cannot lock out others.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use testkit::{Cmd, Daemon, Netns, TempDir, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, PYTHON, appctl, descriptors, descriptors_now, start, vsctl, wait_log};

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
    assert!((&local).read(&mut [0; 10]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock));
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

/// A stream socket of a client.
trait Socket: Read + Write {
    /// Later writes do not wait.
    fn hurry(&self);
}

impl Socket for UnixStream {
    fn hurry(&self) {
        self.set_nonblocking(true).unwrap();
    }
}

impl Socket for TcpStream {
    fn hurry(&self) {
        self.set_nonblocking(true).unwrap();
    }
}

/// Bytes that a client queues: nearly all that a local socket holds.
const QUEUED_BYTES: usize = 190_000;
/// Processor time of a daemon that works no longer for clients that are gone, in seconds: far less than one that does.
const GONE_SECONDS: u64 = 20;

/// Sends a beginning, and a request again and again as far as the socket takes it.
fn queue(socket: &mut dyn Socket, head: &[u8], request: &[u8]) {
    socket.write_all(head).unwrap();
    socket.hurry();
    for _ in 0..QUEUED_BYTES / request.len() {
        // The part of a request at the end of a full socket is of no concern.
        if !socket.write(request).is_ok_and(|sent| sent == request.len()) {
            return;
        }
    }
}

/// Processor time so far, in seconds.
fn processor_seconds(daemon: &Daemon) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // User and system time, in the ticks of proc(5).
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>() / 100
}

/// Clients that come by `connect`, queue requests and leave: the daemon has as many descriptors as before, soon and for
/// little work, and `serves` a good client meanwhile.
fn gone(
    daemon: &Daemon,
    connect: &dyn Fn() -> Box<dyn Socket>,
    head: &[u8],
    request: &[u8],
    serves: &dyn Fn(),
) {
    let (before, seconds) = (descriptors(daemon), processor_seconds(daemon));
    for _ in 0..128 {
        queue(&mut *connect(), head, request);
    }
    serves();
    // A local command may come and go.
    wait_for(LIMIT, "the end of all of them", || descriptors_now(daemon) <= before + 2).unwrap();
    let seconds = processor_seconds(daemon) - seconds;
    assert!(seconds < GONE_SECONDS, "{seconds} s");
}

/// OpenFlow 1.3: OFPT_HELLO.
const HELLO: [u8; 8] = [4, 0, 0, 8, 0, 0, 0, 1];

/// OpenFlow 1.3: a request for all rules.
fn flow_stats() -> Vec<u8> {
    let mut bytes = vec![4, 18, 0, 56, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0];
    bytes.extend([0xff; 8]);
    bytes.extend([0; 20]);
    bytes.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    bytes
}

/// OpenFlow 1.3: adds a rule of this priority that drops all packets.
fn add_rule(priority: u8) -> Vec<u8> {
    let mut bytes = vec![4, 14, 0, 56, 0, 0, 0, 3];
    bytes.extend([0; 22]);
    bytes.extend([0, priority]);
    bytes.extend([0xff; 12]);
    bytes.extend([0; 4]);
    bytes.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    bytes
}

/// A bridge of many rules, also at the port 6653 of its network namespace; and a database server at 6640.
fn with_rules(netns: &Netns) -> Daemon {
    netns.run("ip", &["link", "set", "lo", "up"]).unwrap();
    let daemon = start(netns);
    vsctl(&daemon, "add-br br0 -- set-controller br0 ptcp:6653:127.0.0.1 -- set bridge br0 fail_mode=secure");
    vsctl(&daemon, "set-manager ptcp:6640:127.0.0.1");
    let mut rules = String::new();
    for n in 0..3000 {
        let _ = writeln!(rules, "ip,nw_dst=10.0.{}.{},actions=drop", n >> 8, n & 255);
    }
    daemon.tool("ovs-ofctl").args(["add-flows", "br0", "-"]).input(rules.as_str()).run().unwrap();
    daemon
}

fn local(daemon: &Daemon, name: &str) -> impl Fn() -> Box<dyn Socket> + use<> {
    let path = daemon.rundir().join(name);
    move || Box::new(UnixStream::connect(&path).unwrap())
}

fn remote(netns: &Netns, port: u16) -> impl Fn() -> Box<dyn Socket> + use<'_> {
    move || {
        let connect = || TcpStream::connect(("127.0.0.1", port)).unwrap();
        Box::new(netns.enter(connect).unwrap())
    }
}

fn control_socket(daemon: &Daemon) -> String {
    format!("ovs-vswitchd.{}.ctl", daemon.pid())
}

const DATABASE_REQUEST: &[u8] = br#"{"id":1,"method":"get_schema","params":["Open_vSwitch"]}"#;
const COMMAND: &[u8] = br#"{"id":1,"method":"ofproto/trace","params":["br0","in_port=1,ip"]}"#;

#[test]
fn clients_that_are_gone_cost_nothing_any_more() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl");
    let netns = Netns::new("sw").unwrap();
    let daemon = with_rules(&netns);
    let rule_of = |priority: u8| {
        let rules = daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
        rules.contains(&format!("priority={priority} actions=drop"))
    };
    let bridge: [&dyn Fn() -> Box<dyn Socket>; 2] = [&local(&daemon, "br0.mgmt"), &remote(&netns, 6653)];
    for (n, connect) in bridge.into_iter().enumerate() {
        gone(&daemon, connect, &HELLO, &flow_stats(), &|| assert!(!rule_of(1)));
        // Changes among the requests of one that is gone are executed.
        let priority = 10 + n as u8;
        let mut last = connect();
        last.write_all(&[&HELLO[..], &flow_stats().repeat(20), &add_rule(priority)].concat()).unwrap();
        drop(last);
        wait_for(LIMIT, "the rule", || rule_of(priority)).unwrap();
    }
    let database: [&dyn Fn() -> Box<dyn Socket>; 2] = [&local(&daemon, "db.sock"), &remote(&netns, 6640)];
    for connect in database {
        gone(&daemon, connect, b"", DATABASE_REQUEST, &|| assert_eq!(vsctl(&daemon, "list-br"), "br0"));
    }
    let version = || assert!(appctl(&daemon, "version").starts_with("ovs-vswitchd"));
    gone(&daemon, &local(&daemon, &control_socket(&daemon)), b"", COMMAND, &version);
}

#[test]
fn connections_without_progress_end_for_new_ones() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "ovs-ofctl", "prlimit");
    let netns = Netns::new("sw").unwrap();
    let daemon = with_rules(&netns);
    Cmd::new("prlimit").args(["--pid", &std::process::id().to_string(), "--nofile=4096:"]).run().unwrap();
    let evicted = || {
        let text = appctl(&daemon, "coverage/read-counter connection_evicted");
        text.trim().parse::<u64>().unwrap()
    };
    // One that uses its connection stays.
    let monitor = ["-vvconn:console:dbg", "monitor", "br0", "watch:!initial"];
    let monitor = daemon.tool("ovs-ofctl").args(monitor).spawn().unwrap();
    wait_for(LIMIT, "the monitor", || monitor.stderr().contains("received: OFPT_BARRIER_REPLY")).unwrap();
    let rules = || drop(daemon.ovs("ovs-ofctl", &["dump-aggregate", "br0"]).unwrap());
    let root = || assert_eq!(vsctl(&daemon, "list-br"), "br0");
    let version = || drop(appctl(&daemon, "version"));
    let (bridge, database) = (local(&daemon, "br0.mgmt"), local(&daemon, "db.sock"));
    let control = local(&daemon, &control_socket(&daemon));
    type Case<'a> = (&'a dyn Fn() -> Box<dyn Socket>, usize, Option<(&'a [u8], &'a [u8])>, &'a dyn Fn());
    let stats = flow_stats();
    let cases: [Case<'_>; 5] = [
        (&bridge, 140, Some((&HELLO, &stats)), &rules),
        (&bridge, 140, None, &rules),
        (&database, 1040, None, &root),
        (&control, 70, Some((b"", COMMAND)), &version),
        (&control, 70, None, &version),
    ];
    for (n, (connect, count, requests, serves)) in cases.into_iter().enumerate() {
        let before = evicted();
        let held: Vec<Box<dyn Socket>> = (0..count)
            .map(|_| {
                let mut socket = connect();
                if let Some((head, request)) = requests {
                    queue(&mut *socket, head, request);
                }
                socket
            })
            .collect();
        for _ in 0..3 {
            serves();
        }
        assert!(evicted() >= before + 6, "case {n}");
        drop(held);
    }
    daemon.tool("ovs-ofctl").args(["add-flow", "br0", "udp,actions=drop"]).run().unwrap();
    wait_for(LIMIT, "the change", || monitor.stderr().contains("cookie=0 udp"))
        .unwrap_or_else(|why| panic!("{why}\n{}", monitor.stderr()));
}
