//! Many connections: their memory, forwarding with them, and lists and deletions of all beside the main loop. Millions of them
//! in `make check-long`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use packet::checksum::checksum;
use testkit::{Daemon, Netns, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, capture_of, require_userspace, spec, vsctl};

/// Zones that each packet passes, with a connection and a translation in each.
const ZONES: u32 = 4;
/// Memory of a connection over IPv4 with a translation, at most.
const CONNECTION_MAX_BYTES: u64 = 256;
/// Additional time of a packet for one connection among millions: cache lines that are not in the cache, and their pages.
const MISSES_MAX_NS: u64 = 1000;
/// Number of tries to get a measurement that other programs do not disturb.
const TRIES: usize = 5;

/// Packets with a flow each.
fn flows() -> u32 {
    if testkit::long() { 1_000_000 } else { 20_000 }
}

/// Longest delay of the main loop, in milliseconds. Tests that run beside this one delay it, too.
fn delay_max_ms() -> u128 {
    if testkit::long() { 50 } else { 500 }
}

/// A datagram of flow `n`, with a right header.
pub(crate) fn udp(n: u32) -> Vec<u8> {
    let [_, a, b, c] = n.to_be_bytes();
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, a, b, c, 10, 99, 1, 1]);
    let sum = checksum(&frame[14..]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([0, 7, 0, 9, 0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

struct Lab {
    daemon: Daemon,
    _netns: Netns,
}

impl Lab {
    fn new() -> Lab {
        let netns = Netns::new("millions").unwrap();
        // Its clock can be advanced.
        let daemon = spec(&netns).args(["--enable-dummy"]).start().unwrap();
        vsctl(
            &daemon,
            "add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure \
             -- add-port br0 sink -- set Interface sink type=null ofport_request=9",
        );
        appctl(&daemon, "dpctl/ct-set-maxconns 8000000");
        Lab { daemon, _netns: netns }
    }

    /// Replays that many flows on a port of that number, for ever.
    fn replay(&self, name: &str, port: u32, flows: u32) {
        let file = self.daemon.rundir().join(&format!("{name}.pcap"));
        std::fs::write(&file, capture_of((0..flows).map(udp))).unwrap();
        vsctl(
            &self.daemon,
            &format!(
                "add-port br0 {name} -- set Interface {name} type=pcap ofport_request={port} options:infinite_rx=true \
                 options:rx_pcap={}",
                file.display()
            ),
        );
    }

    fn rule(&self, rule: &str) {
        self.daemon.ovs("ovs-ofctl", &["add-flow", "br0", rule]).unwrap();
    }

    /// Tracks and translates the packets of a port in all zones.
    fn track(&self, port: u32) {
        let track = |zone: u32| format!("ct(commit,zone={zone},nat(src=20.{zone}.0.0-20.{zone}.255.255)),");
        let track: String = (1..=ZONES).map(track).collect();
        self.rule(&format!("in_port={port},ip,actions={track}9"));
    }

    fn connections(&self) -> u32 {
        appctl(&self.daemon, "dpctl/ct-get-nconns").trim().parse().unwrap()
    }

    /// Flows and counters, for failures.
    fn state(&self) -> String {
        let lines = [
            "dpctl/dump-flows",
            "coverage/show",
            "dpctl/ct-stats-show",
            "dpctl/show -s",
            "dpif-netdev/pmd-stats-show",
        ];
        lines.map(|line| appctl(&self.daemon, line)).join("\n")
    }

    /// Packets received by all forwarding threads.
    fn received(&self) -> u64 {
        packets_received(&appctl(&self.daemon, "dpif-netdev/pmd-stats-show"))
    }

    /// Nanoseconds for a packet: the least of several readings over that number of packets.
    fn packet_ns(&self, packets: u64) -> u64 {
        let once = || {
            let (before, begun) = (self.received(), Instant::now());
            let mut now = before;
            wait_for(LIMIT * 6, "packets", || {
                now = self.received();
                now > before + packets
            })
            .unwrap();
            begun.elapsed().as_nanos() as u64 / (now - before)
        };
        (0..TRIES).map(|_| once()).min().unwrap()
    }

    /// Resident memory in bytes (proc(5)).
    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.pid())).unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// The same several times, until neither the main loop nor the packets are delayed too long; checks that each reply has
    /// `lines` lines at least.
    fn assert_beside(&self, command: &str, lines: u64) {
        let mut all = Vec::new();
        for _ in 0..TRIES {
            let beside = beside(&self.daemon, command);
            assert!(beside.lines >= lines, "{command}: {beside:?} instead of {lines} lines");
            let is_good = beside.main_loop_ms.max(beside.packets_ms) <= delay_max_ms();
            all.push(beside);
            if is_good {
                println!("{command}: {all:?}");
                return;
            }
        }
        panic!("{command}: {all:?}");
    }
}

/// A connection to the control socket.
pub(crate) fn control(daemon: &Daemon) -> UnixStream {
    let socket = daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", daemon.pid()));
    UnixStream::connect(socket).unwrap()
}

/// Runs a command while another client reads the counters of forwarding again and again.
pub(crate) fn beside(daemon: &Daemon, command: &str) -> Beside {
    let words: Vec<&str> = command.split(' ').collect();
    let mut asked = control(daemon);
    let mut beside = Beside::default();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || reply(&mut asked, words[0], &words[1..], &mut Vec::new()));
        let mut reader = control(daemon);
        let (mut received, mut grew) = (0, Instant::now());
        while !running.is_finished() {
            let (begun, mut text) = (Instant::now(), Vec::new());
            reply(&mut reader, "dpif-netdev/pmd-stats-show", &[], &mut text);
            beside.main_loop_ms = beside.main_loop_ms.max(begun.elapsed().as_millis());
            let now = packets_received(&String::from_utf8_lossy(&text));
            if now > received {
                (received, grew) = (now, Instant::now());
            }
            beside.packets_ms = beside.packets_ms.max(grew.elapsed().as_millis());
            std::thread::sleep(Duration::from_millis(1));
        }
        (beside.bytes, beside.lines) = running.join().unwrap();
    });
    beside
}

/// Measurements beside a command.
#[derive(Default, Debug)]
pub(crate) struct Beside {
    /// Bytes of its reply.
    bytes: u64,
    pub(crate) lines: u64,
    /// Longest delay of another command.
    main_loop_ms: u128,
    /// Longest time without a packet.
    packets_ms: u128,
}

/// Packets of all forwarding threads, in the text of their statistics.
fn packets_received(text: &str) -> u64 {
    let all = text.split("packets received: ").skip(1);
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    all.filter_map(|rest| digits(rest).parse::<u64>().ok()).sum()
}

/// One command on the control socket; returns the bytes and lines of the reply. Holds its first bytes only.
pub(crate) fn reply(
    stream: &mut UnixStream,
    command: &str,
    args: &[&str],
    first: &mut Vec<u8>,
) -> (u64, u64) {
    let request = serde_json::json!({ "id": 0, "method": command, "params": args }).to_string();
    stream.write_all(request.as_bytes()).unwrap();
    let (mut chunk, mut bytes, mut lines) = (vec![0; 1 << 20], 0, 0);
    let (mut depth, mut in_string, mut escaped, mut has_ended) = (0, false, false, false);
    loop {
        let n = stream.read(&mut chunk).unwrap();
        assert!(n > 0, "{command}: the daemon closed the connection after {bytes} bytes");
        bytes += n as u64;
        if first.is_empty() {
            first.extend_from_slice(&chunk[..n]);
        }
        for byte in &chunk[..n] {
            match (byte, in_string, std::mem::take(&mut escaped)) {
                (b'n', true, true) => lines += 1,
                (_, true, true) => {}
                (b'\\', true, false) => escaped = true,
                (b'"', ..) => in_string = !in_string,
                (b'{', false, _) => depth += 1,
                (b'}', false, _) => {
                    depth -= 1;
                    has_ended = depth == 0;
                }
                _ => {}
            }
        }
        // White space may follow the last reply.
        if has_ended {
            return (bytes, lines);
        }
    }
}

#[test]
fn many_connections_cost_their_memory_and_delay_nothing() {
    require_userspace!("the kernel's connections are its own");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let measured = if testkit::long() { 4_000_000 } else { 200_000 };
    lab.replay("few", 1, 1000);
    lab.track(1);
    wait_for(LIMIT, "a few connections", || lab.connections() == 1000 * ZONES).unwrap();
    let few_ns = lab.packet_ns(measured);
    vsctl(&lab.daemon, "del-port few");
    appctl(&lab.daemon, "dpctl/flush-conntrack");

    // The capture itself is in memory before.
    lab.rule("in_port=2,ip,actions=9");
    lab.replay("many", 2, flows());
    let before = lab.received();
    wait_for(LIMIT * 6, "the whole capture", || lab.received() > before + u64::from(flows())).unwrap();
    let before_bytes = lab.resident_bytes();
    lab.track(2);
    let connections = flows() * ZONES;
    wait_for(LIMIT * 30, "all connections", || lab.connections() >= connections).unwrap();
    assert_eq!(lab.connections(), connections, "one for each flow and zone");
    let bytes = lab.resident_bytes().saturating_sub(before_bytes) / u64::from(connections);
    let many_ns = lab.packet_ns(measured);
    println!("{bytes} bytes a connection; {few_ns} ns a packet with few, {many_ns} with {connections}");
    assert!((100..=CONNECTION_MAX_BYTES).contains(&bytes), "{bytes} bytes a connection");
    let misses_ns = many_ns.saturating_sub(few_ns) / u64::from(ZONES);
    assert!(misses_ns <= MISSES_MAX_NS, "{few_ns} ns a packet with few connections, {many_ns} with many");
    // It looks up the connections of before, and creates none.
    assert_eq!(lab.connections(), connections);

    // While packets pass: all of them are listed, in one reply however long.
    let all = u64::from(connections);
    lab.assert_beside("dpctl/dump-conntrack", all);
    lab.assert_beside("dpctl/dump-conntrack -m -s", all);
    lab.assert_beside("dpctl/dump-conntrack zone=2", u64::from(flows()));
    lab.assert_beside("dpctl/ct-stats-show -m", 3);
    lab.assert_beside("dpctl/ct-bkts gt=3", 4);
    lab.assert_beside("dpctl/ct-set-limits default=10000000 zone=1,limit=2000000", 0);
    lab.assert_beside("dpctl/ct-get-limits", 2);
    lab.assert_beside("dpctl/flush-conntrack zone=77", 0);
    lab.assert_beside("dpctl/flush-conntrack zone=3", 0);
    lab.assert_beside("dpctl/flush-conntrack", 0);
    assert_eq!(appctl(&lab.daemon, "coverage/read-counter unixctl_cut_off"), "0\n");
    // All connections expire while the main loop runs on.
    vsctl(&lab.daemon, "del-port many");
    wait_for(LIMIT, "no more packets", || {
        let before = lab.received();
        lab.received() == before
    })
    .unwrap();
    appctl(&lab.daemon, "dpctl/ct-set-sweep-interval 1000");
    appctl(&lab.daemon, "time/warp 61000");
    let mut worst_ms = Vec::new();
    wait_for(LIMIT * 12, "all connections to expire", || {
        worst_ms.push(beside(&lab.daemon, "dpctl/ct-get-nconns").main_loop_ms);
        lab.connections() == 0
    })
    .unwrap();
    worst_ms.sort_unstable();
    // All but the worst one in a hundred.
    let nearly_worst_ms = worst_ms[worst_ms.len() - 1 - worst_ms.len() / 100];
    assert!(nearly_worst_ms <= delay_max_ms(), "{worst_ms:?}");
}

/// The stock tool gets a long list whole.
#[test]
fn a_long_list_is_one_reply() {
    require_userspace!("the kernel's connections are its own");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let flows = 10_000;
    lab.replay("some", 1, flows);
    lab.track(1);
    wait_for(LIMIT * 3, "all connections", || lab.connections() == flows * ZONES)
        .unwrap_or_else(|why| panic!("{why:#}: {}", lab.state()));
    let list = appctl(&lab.daemon, "dpctl/dump-conntrack");
    assert!(list.len() > 16 * (256 << 10), "{}: it takes several parts", list.len());
    let mut sources: Vec<&str> = Vec::new();
    for line in list.lines() {
        let rest = line.strip_prefix("udp,orig=(src=").unwrap_or_else(|| panic!("{line}"));
        assert!(rest.contains("),zone="), "{line}");
        if rest.ends_with(",zone=1") {
            sources.push(rest.split(',').next().unwrap());
        }
    }
    assert_eq!(list.lines().count() as u32, flows * ZONES);
    sources.sort_unstable();
    sources.dedup();
    assert_eq!(sources.len() as u32, flows);
}
