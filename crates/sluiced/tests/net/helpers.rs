//! Shared parts of the tests: a daemon in a namespace, the stock tools in one line, handmade frames.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use testkit::{Capture, Daemon, DaemonSpec, Host, Netns, Output, Pings, Topology, patience, wait_for};

/// Timeout of user-visible actions (on shared machines and in a guest longer: `testkit::patience`).
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The binary under test.
pub(crate) const SLUICED: &str = env!("CARGO_BIN_EXE_sluiced");

/// The stock tools used by nearly all tests.
pub(crate) const TOOLS: [&str; 2] = ["ovs-vsctl", "ovs-appctl"];

/// The system's Python, with the library of OVS.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// A daemon in a namespace, with pid file and log.
pub(crate) fn spec(netns: &Netns) -> DaemonSpec {
    let spec = DaemonSpec::new(SLUICED).unwrap().netns(netns);
    let spec = spec.args(["--pidfile", "--log-file", "-vconsole:off"]);
    // Nearly all tests use bridges of the default type, so they run on either datapath.
    if on_kernel() { spec } else { spec.args(["--disable-system"]) }
}

/// Open descriptors of the daemon, once their number has been the same for a while: a connection of a tool ends a little
/// after the tool.
pub(crate) fn descriptors(daemon: &Daemon) -> usize {
    let (mut last, mut since) = (descriptors_now(daemon), Instant::now());
    let steady = wait_for(LIMIT, "a steady number of descriptors", || {
        let now = descriptors_now(daemon);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > patience(STEADY)
    });
    steady.unwrap_or_else(|e| panic!("{e}: {last} at last"));
    last
}

/// Open descriptors of the daemon, those of tools that have just ended included.
pub(crate) fn descriptors_now(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

/// Time without a change that makes a number steady.
const STEADY: Duration = Duration::from_millis(100);

/// Whether the tests are to run on the kernel's datapath (`SLUICE_DATAPATH=kernel`), not on the userspace one.
pub(crate) fn on_kernel() -> bool {
    std::env::var_os("SLUICE_DATAPATH").is_some_and(|v| v == "kernel")
}

/// Returns from a test of a userspace datapath feature, with a line `SKIP: …`, if tests run on the kernel's.
macro_rules! require_userspace {
    ($why:literal) => {
        if !$crate::helpers::userspace_or_skip(std::thread::current().name().unwrap_or(module_path!()), $why)
        {
            return;
        }
    };
}
pub(crate) use require_userspace;

/// The work of [`require_userspace!`].
pub(crate) fn userspace_or_skip(test: &str, why: &str) -> bool {
    if on_kernel() {
        // Not by `testkit::skip`: the machine lacks no requirement.
        let _unwritten = writeln!(std::io::stderr(), "SKIP: {test}: of the userspace datapath alone: {why}");
    }
    !on_kernel()
}

/// The datapath of bridges of the default type, in commands.
pub(crate) fn datapath_name() -> &'static str {
    if on_kernel() { "system@ovs-system" } else { "netdev@ovs-netdev" }
}

/// Starts a daemon in a namespace, with its own database.
pub(crate) fn start(netns: &Netns) -> Daemon {
    spec(netns).start().unwrap()
}

/// A switch `br0` with a port for each of this number of hosts.
pub(crate) fn switch(hosts: usize) -> (Topology, Daemon) {
    let net = Topology::new(hosts).unwrap();
    let daemon = start(&net.switch);
    let mut line = "add-br br0".to_string();
    net.ports().iter().for_each(|p| {
        let _ = write!(line, " -- add-port br0 {p}");
    });
    vsctl(&daemon, &line);
    (net, daemon)
}

/// Runs `ovs-vsctl` with the words of `line`; returns its output without the last newline.
pub(crate) fn vsctl(daemon: &Daemon, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let out = daemon.ovs("ovs-vsctl", &words).unwrap();
    out.stdout.trim_end().to_string()
}

/// Runs `ovs-vsctl`, with any outcome.
pub(crate) fn vsctl_output(daemon: &Daemon, line: &str) -> Output {
    daemon.tool("ovs-vsctl").args(line.split_whitespace()).output().unwrap()
}

/// Runs `ovs-appctl` with the words of `line`; returns its output.
pub(crate) fn appctl(daemon: &Daemon, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    daemon.ovs("ovs-appctl", &words).unwrap().stdout
}

/// Runs `ovs-appctl`, with any outcome.
pub(crate) fn appctl_output(daemon: &Daemon, line: &str) -> Output {
    daemon.tool("ovs-appctl").args(line.split_whitespace()).output().unwrap()
}

/// Keeps flows without packets for ten minutes: in an emulated machine the tools that look at them take more than the
/// usual ten seconds.
pub(crate) fn keep_flows(daemon: &Daemon) {
    vsctl(daemon, "set Open_vSwitch . other_config:max-idle=600000");
}

/// Waits until a record satisfies `condition` (syntax of `ovs-vsctl wait-until`).
pub(crate) fn wait_until(daemon: &Daemon, condition: &str) {
    let timeout = format!("--timeout={}", patience(LIMIT).as_secs());
    let wait = daemon.tool("ovs-vsctl").args([&timeout, "wait-until"]).args(condition.split_whitespace());
    if let Err(why) = wait.run() {
        panic!("{why:#}\n{}", vsctl(daemon, "list Interface"));
    }
}

/// Waits until a line of the log contains `text`.
pub(crate) fn wait_log(daemon: &Daemon, text: &str) {
    wait_for(LIMIT, &format!("`{text}` in the log"), || daemon.log().contains(text)).unwrap();
}

/// Sends pings, the first `count` of which must get exactly one reply each.
pub(crate) fn ping_all(from: &Netns, to: IpAddr, count: u32) {
    testkit::reachable(from, to, LIMIT).unwrap();
    answered(pings(from, "0.02", to), count);
}

/// Starts pings without end, with this interval in seconds.
pub(crate) fn pings(from: &Netns, interval: &str, to: IpAddr) -> Pings {
    Pings::start(from, &["-i", interval, &to.to_string()]).unwrap()
}

/// Ends pings; those up to one behind the latest answered, and `count` at least, must have exactly one reply each.
pub(crate) fn answered(pings: Pings, count: u32) {
    pings.answered(count, LIMIT).unwrap();
}

/// Sends two pings, which must get no reply.
pub(crate) fn unreachable(from: &Netns, to: IpAddr) {
    let report = testkit::ping(from, to, 2).unwrap();
    assert_eq!(report.received, 0, "{} reaches {to}", from.name());
}

/// An Ethernet frame (of type 0x88b5, for experiments: IEEE 802), broadcast unless `to` is set.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'a> {
    pub(crate) to: &'a str,
    pub(crate) from: &'a str,
    pub(crate) vlan: Option<u16>,
}

impl Frame<'_> {
    /// The frame in hexadecimal digits, 64 bytes long.
    fn hex(&self) -> String {
        let mut hex = format!("{}{}", self.to.replace(':', ""), self.from.replace(':', ""));
        if let Some(vlan) = self.vlan {
            let _ = write!(hex, "8100{vlan:04x}");
        }
        hex += "88b5";
        format!("{hex:0<128}")
    }
}

/// A capture file of this number of UDP frames of 60 bytes, one per flow.
pub(crate) fn capture(frames: u32) -> Vec<u8> {
    capture_of((0..frames).map(|n| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let [_, a, b, c] = n.to_be_bytes();
        frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, a, b, c, 10, 99, 1, 1]);
        frame.extend([0, 7, 0, 9, 0, 26, 0, 0]);
        frame.resize(60, 0);
        frame
    }))
}

/// A capture file of frames.
pub(crate) fn capture_of(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let bytes = frame.len() as u32;
        for word in [0_u32, 0, bytes, bytes] {
            file.extend(word.to_le_bytes());
        }
        file.extend(frame);
    }
    file
}

/// Broadcast address.
pub(crate) const BROADCAST: &str = "ff:ff:ff:ff:ff:ff";

const SEND: &str = "\
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    s.send(bytes.fromhex(frame))
";

/// Sends frames from a host's interface unchanged.
pub(crate) fn send(host: &Host, frames: &[Frame<'_>]) {
    let frames = frames.iter().map(Frame::hex);
    host.netns.cmd(PYTHON).args(["-c", SEND, &host.dev]).args(frames).run().unwrap();
}

/// Captures received frames made by [`Frame`], with their tags.
pub(crate) fn watch(netns: &Netns, dev: &str) -> Capture {
    let filter = "ether proto 0x88b5 or (vlan and ether proto 0x88b5)";
    // Slot size of tcpdump's buffer: with the default there are too few slots for a burst.
    Capture::start(netns, dev, filter, &["-e", "-Q", "in", "-s", "256"]).unwrap()
}

/// The senders and tags of captured frames, in order.
pub(crate) fn seen(lines: &[String]) -> Vec<(String, Option<u16>)> {
    let heads = lines.iter().filter(|l| l.contains(" > "));
    heads
        .map(|l| {
            let from = l.split(" > ").next().unwrap_or_default().to_string();
            let vlan = l.split("vlan ").nth(1).and_then(|r| r.split(',').next()?.parse().ok());
            (from, vlan)
        })
        .collect()
}

/// Number of packets received and sent by an interface, by `ip -s link`.
pub(crate) fn kernel_rx_packets(netns: &Netns, dev: &str) -> u64 {
    let text = netns.ip(&format!("-j -s link show dev {dev}")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// The text of the next datagram. A read with a timeout is interrupted, not restarted: it is tried again.
///
/// # Errors
/// Of `recv`, such as its timeout.
pub(crate) fn received_text(
    mut recv: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
) -> std::io::Result<String> {
    let mut bytes = [0; 256];
    loop {
        match recv(&mut bytes) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            got => return got.map(|length| String::from_utf8_lossy(&bytes[..length]).into_owned()),
        }
    }
}
