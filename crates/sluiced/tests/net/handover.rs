//! A switch is handed over to a new process while packets flow: none is lost, and state travels whole.

mod clients;
mod multicast;
mod tunnels;

use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{Cmd, Daemon, Netns, Topology, patience, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, require_userspace, spec, switch, vsctl, wait_log, wait_until};

/// The process that succeeded a daemon, in its run directory. Dropped, it ends.
struct Successor {
    pid: u32,
}

impl Successor {
    fn of(daemon: &Daemon, before: u32) -> Successor {
        let file = daemon.rundir().join("ovs-vswitchd.pid");
        let mut pid = before;
        wait_for(LIMIT, "the pid file of the new process", || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            pid = text.trim().parse().unwrap_or(before);
            pid != before
        })
        .unwrap();
        Successor { pid }
    }

    fn lives(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let kill = |signal: &str| Cmd::new("kill").args([signal, &self.pid.to_string()]).output();
        let _ = kill("-TERM");
        if wait_for(LIMIT, "the end of the new process", || !self.lives()).is_err() {
            let _ = kill("-KILL");
        }
    }
}

/// Hands a daemon over; returns its successor.
fn hand_over(daemon: &Daemon, before: u32) -> Successor {
    appctl(daemon, "sluice/handover");
    let successor = Successor::of(daemon, before);
    let socket = daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", successor.pid));
    wait_for(LIMIT, "the control socket", || testkit::listens(&socket)).unwrap();
    successor
}

/// Datagrams with numbers from one host to another, until told to end.
#[derive(Default)]
struct Stream {
    ends: AtomicBool,
    /// Whether all are sent.
    has_ended: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    /// Datagrams that came twice or out of order.
    disordered: AtomicU64,
    /// Longest time between two datagrams.
    gap_us: AtomicU64,
}

const PORT: u16 = 7777;
/// How long the last datagrams are waited for.
const STRAGGLERS: Duration = Duration::from_secs(5);

impl Stream {
    /// Sends at that rate, in groups of a millisecond.
    fn send(&self, from: &Netns, to: IpAddr, per_ms: u64) {
        let _ended = Raise(&self.has_ended);
        from.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((to, PORT)).unwrap();
            let mut next = Instant::now();
            while !self.ends.load(Ordering::Relaxed) {
                for _ in 0..per_ms {
                    let n = self.sent.fetch_add(1, Ordering::Relaxed);
                    socket.send(&n.to_be_bytes()).unwrap();
                }
                next += Duration::from_millis(1);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        })
        .unwrap();
    }

    /// Receives until all is here after the end, or nothing came for a long time.
    fn receive(&self, socket: &UdpSocket) {
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (mut next, mut last) = (0, Instant::now());
        let mut bytes = [0; 64];
        loop {
            let Ok(8) = socket.recv(&mut bytes) else {
                let is_last = || self.sent.load(Ordering::Relaxed) == self.received.load(Ordering::Relaxed);
                let is_over = || is_last() || last.elapsed() > patience(STRAGGLERS);
                if self.has_ended.load(Ordering::Acquire) && is_over() {
                    return;
                }
                continue;
            };
            let n = u64::from_be_bytes(bytes[..8].try_into().unwrap());
            if self.received.fetch_add(1, Ordering::Relaxed) > 0 {
                self.gap_us.fetch_max(last.elapsed().as_micros() as u64, Ordering::Relaxed);
            }
            self.disordered.fetch_add(u64::from(n < next), Ordering::Relaxed);
            (next, last) = (n + 1, Instant::now());
        }
    }
}

/// Raises a flag at the end, also of a thread that fails.
struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs `during` while datagrams flow from the first host to the second; returns lost, disordered ones and the longest gap.
fn with_stream(net: &Topology, per_ms: u64, during: impl FnOnce(&Stream)) -> (u64, u64, u64) {
    let [from, to] = [&net.hosts[0], &net.hosts[1]];
    with_stream_to((&from.netns, &to.netns), to.ipv4.into(), per_ms, during)
}

/// As [`with_stream`], between these namespaces, to this address.
fn with_stream_to(
    (from, to): (&Netns, &Netns),
    address: IpAddr,
    per_ms: u64,
    during: impl FnOnce(&Stream),
) -> (u64, u64, u64) {
    let stream = Stream::default();
    let socket = to.enter(|| testkit::patient_receiver(PORT)).unwrap().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.receive(&socket));
        scope.spawn(|| stream.send(from, address, per_ms));
        let _ends = Raise(&stream.ends);
        let before = || stream.received.load(Ordering::Relaxed);
        wait_for(LIMIT, "datagrams", || before() > 100 * per_ms).unwrap();
        stream.gap_us.store(0, Ordering::Relaxed);
        during(&stream);
        let so_far = before();
        wait_for(LIMIT, "further datagrams", || before() > so_far + 100 * per_ms).unwrap();
    });
    let [sent, received] = [&stream.sent, &stream.received].map(|n| n.load(Ordering::Relaxed));
    (sent - received, stream.disordered.load(Ordering::Relaxed), stream.gap_us.load(Ordering::Relaxed))
}

#[test]
fn no_packet_is_lost_when_the_switch_is_handed_over_again_and_again() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, daemon) = switch(2);
    testkit::reachable(&net.hosts[0].netns, net.hosts[1].ipv4.into(), LIMIT).unwrap();
    let mut successors: Vec<Successor> = Vec::new();
    let (lost, disordered, gap_us) = with_stream(&net, 2, |_| {
        for _ in 0..3 {
            let before = successors.last().map_or(daemon.pid(), |last| last.pid);
            successors.push(hand_over(&daemon, before));
        }
    });
    println!("three handovers at 2,000 packets/s: longest gap {gap_us} us");
    assert_eq!((lost, disordered), (0, 0), "lost, disordered");
    wait_log(&daemon, "|handover|INFO|");
}

#[test]
#[ignore = "needs both processors for a rate; the long check has it"]
fn no_packet_is_lost_at_full_rate_in_two_hundred_handovers() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, daemon) = switch(2);
    let rules: String =
        (0..10_000).map(|n| format!("priority=9,udp,tp_dst={n},nw_src=11.0.0.1,actions=drop\n")).collect();
    let file = daemon.rundir().join("rules");
    std::fs::write(&file, rules).unwrap();
    daemon.ovs("ovs-ofctl", &["add-flows", "br0", &file.to_string_lossy()]).unwrap();
    testkit::reachable(&net.hosts[0].netns, net.hosts[1].ipv4.into(), LIMIT).unwrap();
    let rate: u64 = std::env::var("SLUICE_HANDOVER_PER_MS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let count: usize = std::env::var("SLUICE_HANDOVERS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let mut last: Option<Successor> = None;
    let mut gaps = Vec::new();
    let (lost, disordered, _) = with_stream(&net, rate, |stream| {
        for _ in 0..count {
            stream.gap_us.store(0, Ordering::Relaxed);
            let next = hand_over(&daemon, last.as_ref().map_or(daemon.pid(), |last| last.pid));
            gaps.push(stream.gap_us.load(Ordering::Relaxed));
            last = Some(next);
        }
    });
    gaps.sort_unstable();
    println!(
        "{count} handovers at {rate},000 packets/s: longest gap of each: median {} us, longest {} us",
        gaps[count / 2],
        gaps[count - 1]
    );
    assert_eq!((lost, disordered), (0, 0), "lost, disordered");
}

/// A program in the place of a successor: passes messages between the running process and the true successor. It stops after
/// a number of them, perhaps in the middle of one, and the true one is killed with it; or each process takes the other one for
/// a later version, with lines and fields that it does not know, or for an earlier one, without the parts that may be missing.
const RELAY: &str = r#"#!/usr/bin/env python3
import os, select, socket, subprocess, sys
limit, cut, version = open(os.path.join(os.environ["OVS_RUNDIR"], "relay")).read().split()
limit, cut = int(limit), int(cut)
OLDER_LACKS = ("session", "bridge", "tunnels", "route", "neighbour", "meter", "groups", "group", "group-gone")
def of_version(text):
    if version == "same" or text.startswith(b"connections\t"):
        return text
    lines = text.decode().splitlines()
    if version == "earlier":
        lines = [line for line in lines if line.split("\t")[0] not in OLDER_LACKS]
    else:
        lines = ["later\t1"] + [line + "\tmore" for line in lines]
    return "".join(line + "\n" for line in lines).encode()
old = socket.socket(fileno=os.dup(0))
new, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
end.setblocking(False)
program = "PROGRAM"
ends = ["setpriv", "--pdeathsig", "KILL"] if version == "same" else []
child = subprocess.Popen(ends + [program] + sys.argv[1:], stdin=end,
                         env=dict(os.environ, SLUICED_SUCCEEDS=str(os.getpid())))
end.close()
os.close(0)
count = 0
while True:
    ready, _, _ = select.select([old, new], [], [])
    for source in ready:
        text, fds, _, _ = socket.recv_fds(source, 1 << 16, 64)
        if not text:
            sys.exit(0)
        count += 1
        target = new if source is old else old
        if count > limit:
            if cut:
                socket.send_fds(target, [text[:len(text) // 2]], fds)
            child.kill()
            child.wait()
            open(os.path.join(os.environ["OVS_RUNDIR"], "relayed"), "w").write(str(limit))
            sys.exit(1)
        text = of_version(text)
        if text:
            socket.send_fds(target, [text], fds)
        for fd in fds:
            os.close(fd)
"#;

/// Makes the relay of a daemon; returns its path.
fn relay(daemon: &Daemon) -> String {
    let relay = daemon.rundir().join("relay.py");
    std::fs::write(&relay, RELAY.replace("PROGRAM", env!("CARGO_BIN_EXE_sluiced"))).unwrap();
    Cmd::new("chmod").arg("+x").arg(&relay).run().unwrap();
    relay.to_string_lossy().into_owned()
}

#[test]
fn later_and_earlier_versions_take_over() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "python3", "setpriv");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, daemon) = switch(2);
    let relay = relay(&daemon);
    testkit::reachable(&net.hosts[0].netns, net.hosts[1].ipv4.into(), LIMIT).unwrap();
    vsctl(&daemon, "set-controller br0 ptcp:6653:127.0.0.1");
    let rule = "table=9,priority=7,udp,tp_dst=9,actions=drop";
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", rule]).unwrap();
    for (command, what) in [
        ("add-group", "group_id=1,type=all,bucket=actions=drop"),
        ("add-meter", "meter=1,kbps,bands=type=drop,rate=9"),
    ] {
        daemon.ovs("ovs-ofctl", &["-O", "OpenFlow13", command, "br0", what]).unwrap();
    }
    let created = Instant::now();
    let mut successors: Vec<Successor> = Vec::new();
    let (lost, disordered, gap_us) = with_stream(&net, 2, |_| {
        for version in ["later", "earlier", "later"] {
            std::fs::write(daemon.rundir().join("relay"), format!("1000000 0 {version}")).unwrap();
            let before = successors.last().map_or(daemon.pid(), |last| last.pid);
            appctl(&daemon, &format!("sluice/handover {relay}"));
            successors.push(Successor::of(&daemon, before));
            let dump = || daemon.ovs("ovs-ofctl", &["dump-flows", "br0", "table=9"]);
            wait_for(LIMIT, "the new process", || dump().is_ok_and(|out| out.stdout.contains("tp_dst=9")))
                .unwrap();
            assert!(appctl(&daemon, "fdb/show br0").contains(&net.hosts[1].mac), "{version}");
        }
    });
    println!("three handovers between versions: longest gap {gap_us} us");
    let least_s = created.elapsed().as_secs_f64() - 0.01;
    let ages = crate::restore::ages_s(&daemon);
    assert!(ages.iter().all(|age| *age >= least_s), "{ages:?} after {least_s} s");
    assert_eq!((lost, disordered), (0, 0), "lost, disordered");
    assert!(daemon.log().contains("a line of another version is skipped"), "{}", daemon.log());
}

#[test]
fn a_handover_that_fails_at_any_message_leaves_the_switch_as_it_was() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "python3", "setpriv");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, mut daemon) = switch(2);
    let relay = relay(&daemon);
    testkit::reachable(&net.hosts[0].netns, net.hosts[1].ipv4.into(), LIMIT).unwrap();
    let rules = appctl(&daemon, "fdb/show br0");
    let (lost, disordered, gap_us) = with_stream(&net, 2, |_| {
        // A program that ends, or is none.
        for (program, why) in [("/bin/false", "the new process"), ("/none", "cannot be started")] {
            let out = daemon.tool("ovs-appctl").args(["sluice/handover", program]).output().unwrap();
            assert!(!out.status.success() && out.stderr.contains(why), "{out:?}");
        }
        // Each message to the change, whole or cut; the last one, `forwarding`, is a case of its own.
        for (limit, cut) in (0..8).flat_map(|limit| [(limit, 0), (limit, 1)]) {
            std::fs::write(daemon.rundir().join("relay"), format!("{limit} {cut} same")).unwrap();
            let out = daemon.tool("ovs-appctl").args(["sluice/handover", &relay]).output().unwrap();
            assert!(
                !out.status.success() && out.stderr.contains("the new process"),
                "{limit} {cut}: {out:?}"
            );
            let passed = std::fs::read_to_string(daemon.rundir().join("relayed")).unwrap();
            assert_eq!(passed, limit.to_string(), "messages that were relayed");
        }
    });
    println!("eighteen failed handovers: longest gap {gap_us} us");
    assert_eq!((lost, disordered), (0, 0), "lost, disordered");
    assert_eq!(daemon.status(), None);
    let after = appctl(&daemon, "fdb/show br0");
    assert_eq!(after.lines().count(), rules.lines().count(), "{after}");
    // The configuration goes on, and so does the state.
    vsctl(&daemon, "add-port br0 p9 -- set Interface p9 type=internal");
    daemon.ovs("ovs-ofctl", &["add-flow", "br0", "priority=7,udp,tp_dst=9,actions=drop"]).unwrap();
    let successor = hand_over(&daemon, daemon.pid());
    let dump = daemon.ovs("ovs-ofctl", &["dump-flows", "br0"]).unwrap().stdout;
    assert!(dump.contains("tp_dst=9"), "{dump}");
    drop(successor);
}

/// Rules, groups, meters and mappings with their counters, as `ovs-ofctl` prints them, without times.
fn dump(daemon: &Daemon) -> String {
    let text = |command: &str| daemon.ovs("ovs-ofctl", &["-O", "OpenFlow15", command, "br0"]).unwrap().stdout;
    let rules = text("dump-flows");
    let mut rules: Vec<String> = rules
        .lines()
        .skip(1)
        // Hosts send now and then by themselves.
        .filter(|rule| !rule.contains("NORMAL"))
        .map(|rule| {
            let fields =
                rule.split(", ").filter(|field| !field.contains("duration=") && !field.contains("_age="));
            fields.collect::<Vec<_>>().join(", ")
        })
        .collect();
    rules.sort_unstable();
    let others = ["dump-groups", "dump-group-stats", "dump-meters", "meter-stats", "dump-tlv-map"];
    let others = others.map(|command| {
        // The first line has the transaction id.
        let line = |line: &str| {
            line.split([' ', ',']).filter(|word| !word.starts_with("duration")).collect::<Vec<_>>().join(" ")
        };
        text(command).lines().skip(1).map(line).collect::<Vec<_>>().join("\n")
    });
    format!("{}\n{}", rules.join("\n"), others.join("\n"))
}

/// Hands a daemon over while rules are added; returns the confirmed ones and the successor.
fn hand_over_with_changes(daemon: &Daemon) -> (Vec<String>, Successor) {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let adding = scope.spawn(|| {
            let mut confirmed = Vec::new();
            for n in 0.. {
                let rule = format!("table=7,priority={n},udp,tp_dst={n},actions=drop");
                let done = daemon.tool("ovs-ofctl").args(["add-flow", "br0", &rule]).output().unwrap();
                if done.status.success() {
                    confirmed.push(format!("priority={n},udp,tp_dst={n} actions=drop"));
                }
                if ends.load(Ordering::Relaxed) {
                    break;
                }
            }
            confirmed
        });
        let successor = hand_over(daemon, daemon.pid());
        ends.store(true, Ordering::Relaxed);
        (adding.join().unwrap(), successor)
    })
}

#[test]
fn rules_with_their_counters_groups_meters_and_addresses_travel_whole() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, daemon) = switch(2);
    vsctl(&daemon, "set bridge br0 protocols=OpenFlow10,OpenFlow15");
    let ofctl = |args: &[&str]| daemon.ovs("ovs-ofctl", &[&["-O", "OpenFlow15"], args].concat()).unwrap();
    ofctl(&["add-tlv-map", "br0", "{class=0xffff,type=1,len=4}->tun_metadata1"]);
    ofctl(&["add-meter", "br0", "meter=3,pktps,bands=type=drop,rate=100000"]);
    ofctl(&[
        "add-group",
        "br0",
        "group_id=7,type=select,selection_method=hash,bucket=output:2,bucket=output:2",
    ]);
    ofctl(&["add-flow", "br0", "priority=9,in_port=1,ip,actions=meter:3,group:7"]);
    ofctl(&[
        "add-flow",
        "br0",
        "priority=8,in_port=2,ip,actions=learn(table=5,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:1",
    ]);
    testkit::reachable(&net.hosts[0].netns, net.hosts[1].ipv4.into(), LIMIT).unwrap();
    testkit::ping(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 20).unwrap();
    let counted = |daemon: &Daemon| {
        let text = dump(daemon);
        text.contains("table=5, n_packets=0") && text.contains("n_packets=2")
    };
    wait_for(LIMIT, "counters of packets", || counted(&daemon)).unwrap();
    let fdb = appctl(&daemon, "fdb/show br0");
    // Changes while the new process prepares travel too: all that were confirmed.
    let (confirmed, successor) = hand_over_with_changes(&daemon);
    let after = dump(&daemon);
    for rule in &confirmed {
        assert!(after.contains(rule), "{rule} is missing: {after}");
    }
    println!("{} rules were added meanwhile", confirmed.len());
    // The next process goes on with the counters.
    ofctl(&["del-flows", "br0", "table=7"]);
    wait_for(LIMIT, "the counters of the group", || !dump(&daemon).contains("ref_count=1 packet_count=0"))
        .unwrap();
    let before = dump(&daemon);
    let next = hand_over(&daemon, successor.pid);
    drop(successor);
    let is_same = wait_for(LIMIT, "the counters of before", || dump(&daemon) == before);
    assert!(is_same.is_ok(), "{}\nin place of\n{before}", dump(&daemon));
    assert!(
        before.contains("meter=3")
            && !before.contains("packet_in_count:0")
            && before.contains("group_id=7")
            && before.contains("0xffff"),
        "{before}"
    );
    let addresses = |text: &str| {
        let mut words: Vec<String> =
            text.lines().skip(1).filter_map(|l| Some(l.split_whitespace().nth(2)?.to_string())).collect();
        words.sort_unstable();
        words
    };
    assert_eq!(addresses(&appctl(&daemon, "fdb/show br0")), addresses(&fdb));
    drop(next);
}

#[test]
fn a_monitor_watches_the_successor_and_starts_it_anew_after_a_crash() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl", "kill");
    require_userspace!("a datapath of the kernel stays as it is");
    let netns = Netns::new("handover").unwrap();
    let spec = spec(&netns).args(["--monitor"]).ready_file("db.sock");
    let daemon = spec.start().unwrap();
    vsctl(&daemon, "add-br br0");
    let pid = || {
        std::fs::read_to_string(daemon.rundir().join("ovs-vswitchd.pid"))
            .unwrap_or_default()
            .trim()
            .parse()
            .unwrap_or(0)
    };
    let first: u32 = pid();
    let successor = hand_over(&daemon, first);
    let title = || std::fs::read_to_string(format!("/proc/{}/cmdline", daemon.pid())).unwrap_or_default();
    wait_for(LIMIT, "the monitor of the successor", || {
        title().contains(&format!("monitoring pid {}", successor.pid))
    })
    .unwrap();
    Cmd::new("kill").args(["-ABRT", &successor.pid.to_string()]).run().unwrap();
    let anew = Successor::of(&daemon, successor.pid);
    wait_for(LIMIT, "the bridge", || {
        daemon.tool("ovs-appctl").args(["dpif/show"]).output().is_ok_and(|out| out.stdout.contains("br0"))
    })
    .unwrap();
    drop((successor, anew));
}

/// Settings of sessions that a loaded machine keeps.
const SESSIONS: &str = "lacp=active other_config:lacp-time=fast";
const BFD: &str = "bfd:enable=true bfd:min_tx=100 bfd:min_rx=100 bfd:mult=30";

#[test]
fn neighbours_see_no_change_of_bfd_and_lacp() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    require_userspace!("a datapath of the kernel stays as it is");
    let (here, there) = (Netns::new("here").unwrap(), Netns::new("there").unwrap());
    let links: Vec<_> = (0..2).map(|_| testkit::veth(&here, &there).unwrap()).collect();
    let (ours, theirs) = (spec(&here).start().unwrap(), spec(&there).start().unwrap());
    for (daemon, netns, [bfd, lacp]) in
        [(&ours, &here, [&links[0].0, &links[1].0]), (&theirs, &there, [&links[0].1, &links[1].1])]
    {
        netns.up(bfd).unwrap();
        netns.up(lacp).unwrap();
        vsctl(
            daemon,
            &format!(
                "add-br br0 -- add-port br0 {bfd} -- add-port br0 {lacp} -- set Interface {bfd} {BFD} -- set Port {lacp} {SESSIONS}"
            ),
        );
    }
    let [bfd, lacp] = [&links[0].1, &links[1].1];
    wait_until(&theirs, &format!("Interface {bfd} bfd_status:state=up bfd_status:remote_state=up"));
    wait_until(&theirs, &format!("Interface {lacp} lacp_current=true"));
    let seen = || {
        let flaps = vsctl(&theirs, &format!("get Interface {bfd} bfd_status:flap_count bfd_status:state"));
        let shown = appctl(&theirs, &format!("lacp/show {lacp}"));
        let stats = appctl(&theirs, &format!("lacp/show-stats {lacp}"));
        let told: Vec<&str> =
            stats.lines().filter(|line| line.contains("Defaulted") || line.contains("Expired")).collect();
        (flaps, shown.contains(": current attached\n"), told.join(" "))
    };
    let before = seen();
    assert!(before.1, "{}", appctl(&theirs, "lacp/show"));
    let discriminator = |daemon: &Daemon, port: &str| {
        let shown = appctl(daemon, &format!("bfd/show {port}"));
        shown.lines().find(|line| line.contains("Local Discriminator")).unwrap_or_default().to_string()
    };
    let own = discriminator(&ours, &links[0].0);
    let received = |daemon: &Daemon, port: &str| {
        let stats = appctl(daemon, &format!("lacp/show-stats {port}"));
        let line = stats.lines().find(|line| line.contains("RX PDUs")).unwrap_or_default().to_string();
        line.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
    };
    let successor = hand_over(&ours, ours.pid());
    // Longer than the detection time of BFD and the timeout of LACP: five messages of a second.
    let until = received(&theirs, lacp) + 5;
    wait_for(LIMIT, "five messages of LACP", || received(&theirs, lacp) >= until).unwrap();
    assert_eq!(seen(), before);
    assert_eq!(discriminator(&ours, &links[0].0), own);
    wait_until(&ours, &format!("Interface {} bfd_status:state=up bfd_status:flap_count=1", links[0].0));
    drop(successor);
}

#[test]
fn tracked_connections_go_on_and_no_new_one_is_needed() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    require_userspace!("a datapath of the kernel stays as it is");
    let (net, daemon) = switch(2);
    vsctl(&daemon, "set Bridge br0 fail_mode=secure");
    let rules = "priority=1,arp,actions=NORMAL
        priority=9,ct_state=-trk,tcp,actions=ct(table=1,zone=7,nat)
        table=1,priority=8,in_port=1,ct_state=+trk+new,tcp,actions=ct(commit,zone=7,nat(src=10.0.77.7),exec(set_field:0x5->ct_mark)),2
        table=1,priority=9,ct_state=+trk+est,ct_mark=0x5,in_port=1,tcp,actions=2
        table=1,priority=9,ct_state=+trk+est,ct_mark=0x5,in_port=2,tcp,actions=1
        table=1,priority=1,actions=drop";
    let file = daemon.rundir().join("rules");
    std::fs::write(&file, rules).unwrap();
    daemon.ovs("ovs-ofctl", &["add-flows", "br0", &file.to_string_lossy()]).unwrap();
    net.hosts[1]
        .netns
        .ip(&format!("neigh add 10.0.77.7 lladdr {} dev {}", net.hosts[0].mac, net.hosts[1].dev))
        .unwrap();
    let to = (net.hosts[1].ipv4, PORT);
    let listener =
        net.hosts[1].netns.enter(|| std::net::TcpListener::bind(("0.0.0.0", PORT)).unwrap()).unwrap();
    let mut client = net.hosts[0].netns.enter(|| std::net::TcpStream::connect(to).unwrap()).unwrap();
    let (mut server, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "10.0.77.7");
    let mut exchange = |what: &[u8]| {
        use std::io::{Read as _, Write as _};
        let mut got = vec![0; what.len()];
        client.write_all(what).unwrap();
        server.read_exact(&mut got).unwrap();
        assert_eq!(got, what);
        server.write_all(what).unwrap();
        client.read_exact(&mut got).unwrap();
        assert_eq!(got, what);
    };
    exchange(b"before");
    let entry = || {
        let all = appctl(&daemon, "dpctl/dump-conntrack zone=7");
        all.lines().find(|line| line.contains(&format!("dport={PORT}"))).unwrap_or_default().to_string()
    };
    let before = entry();
    assert!(before.contains("mark=5") && before.contains("10.0.77.7"), "{before}");
    // No rule commits a connection from now on.
    daemon.ovs("ovs-ofctl", &["del-flows", "br0", "table=1,ct_state=+trk+new,tcp"]).unwrap();
    // A file without connections is none yet.
    let kept = || {
        let file = daemon.rundir().join("ovs-vswitchd.connections");
        let has_any = std::fs::read(&file).is_ok_and(|bytes| bytes.windows(4).any(|four| four == b"SLct"));
        has_any
            .then(|| std::fs::metadata(&file).map_or((0, None), |about| (about.ino(), about.modified().ok())))
    };
    wait_for(LIMIT, "the connection in the file", || kept().is_some()).unwrap();
    let former = kept();
    let successor = hand_over(&daemon, daemon.pid());
    for _ in 0..3 {
        exchange(b"afterwards");
    }
    assert_eq!(entry(), before);
    wait_for(LIMIT, "the successor's own file", || kept().is_some_and(|file| Some(file) != former)).unwrap();
    drop(successor);
}
