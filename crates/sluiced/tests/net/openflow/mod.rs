//! OpenFlow with real traffic: the stock `ovs-ofctl` and controllers, and handmade frames.

mod actions;
mod barriers;
mod controllers;
mod flows;
mod frames;
mod groups;
mod limits;
mod matches;
mod monitors;
mod packets;
mod ports;
mod trace;

use std::fmt::Write as _;
use std::time::Duration;

use crate::helpers;
use testkit::{Capture, Daemon, Host, Running, Topology, wait_for};

/// Timeout of user-visible actions.
const LIMIT: Duration = Duration::from_secs(20);

/// Versions spoken by the tools: the default (1.0 with its extensions), and 1.3.
const VERSIONS: [&str; 2] = ["OpenFlow10", "OpenFlow13"];

const SEND: &str = "\
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for frame in sys.argv[2:]:
    s.send(bytes.fromhex(frame))
";

/// Sends frames (hexadecimal digits) from a host's interface unchanged.
fn send(host: &Host, frames: &[String]) {
    host.netns.cmd("/usr/bin/python3").args(["-c", SEND, &host.dev]).args(frames).run().unwrap();
}

/// A daemon with the bridge `br0` in secure mode, without flows. Host `n` is at port `n`.
struct Lab {
    net: Topology,
    daemon: Daemon,
}

impl Lab {
    fn new(hosts: usize) -> Lab {
        let net = Topology::new(hosts).unwrap();
        // Disables the kernel's own IPv6 packets, which would be counted too.
        for netns in net.hosts.iter().map(|h| &h.netns).chain([&net.switch]) {
            netns
                .run(
                    "sysctl",
                    &["-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"],
                )
                .unwrap();
        }
        // Dummy mode permits test actions.
        let daemon = helpers::spec(&net.switch).args(["--enable-dummy"]).start().unwrap();
        let lab = Lab { net, daemon };
        let mut line = "add-br br0 -- set bridge br0 fail_mode=secure".to_string();
        for (n, port) in (1..).zip(lab.net.ports()) {
            let _ = write!(line, " -- add-port br0 {port} -- set interface {port} ofport_request={n}");
        }
        lab.vsctl(&line);
        lab
    }

    /// Runs `ovs-vsctl` with the words of `line`; returns its output.
    fn vsctl(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.daemon.ovs("ovs-vsctl", &words).unwrap().stdout.trim_end().to_string()
    }

    /// Runs `ovs-appctl` likewise.
    fn appctl(&self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.daemon.ovs("ovs-appctl", &words).unwrap().stdout
    }

    /// Runs `ovs-ofctl` likewise, in OpenFlow 1.0 unless the line begins with another version.
    fn ofctl(&self, line: &str) -> String {
        self.ofctl_input(line, "")
    }

    /// Runs `ovs-ofctl` with standard input, for the file `-`.
    fn ofctl_input(&self, line: &str, input: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.daemon.tool("ovs-ofctl").args(words).input(input).run().unwrap().stdout
    }

    /// Runs `ovs-ofctl`, which must fail; returns its error output.
    fn refused(&self, line: &str, input: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let out = self.daemon.tool("ovs-ofctl").args(words).input(input).output().unwrap();
        assert!(!out.status.success(), "{line}: {out:?}");
        out.stderr + &out.stdout
    }

    /// Replaces all flows by these lines.
    fn rules(&self, version: &str, lines: &str) {
        self.ofctl("del-flows br0");
        self.ofctl_input(&format!("-O {version} add-flows br0 -"), lines);
    }

    /// The flows without counters and names: `ovs-ofctl --no-stats --no-names`.
    fn dump(&self, version: &str) -> Vec<String> {
        let text = self.ofctl(&format!("-O {version} --no-stats --no-names dump-flows br0"));
        let mut lines: Vec<String> = text.lines().map(|l| l.trim().to_string()).collect();
        lines.sort();
        lines
    }

    /// The number of packets counted by the flows selected by `filter`.
    fn packets(&self, filter: &str) -> u64 {
        let text = self.ofctl(&format!("dump-aggregate br0 {filter}"));
        number_after(&text, "packet_count=")
    }

    /// Waits for this number of packets, and checks that no more follow once all statistics are collected.
    fn wait_packets(&self, filter: &str, count: u64) {
        let what = format!("{count} packets of {filter}");
        if let Err(why) = wait_for(LIMIT, &what, || self.packets(filter) >= count) {
            let datapath = self.appctl("dpctl/show") + &self.ofctl("dump-ports br0");
            panic!("{why}\n{}{datapath}", self.ofctl("dump-flows br0"));
        }
        self.appctl("revalidator/wait");
        assert_eq!(self.packets(filter), count, "{filter}:\n{}", self.ofctl("dump-flows br0"));
    }

    fn host(&self, number: usize) -> &Host {
        &self.net.hosts[number - 1]
    }

    /// Starts `ovs-ofctl monitor` and waits for the switch's replies: to the format of packet-ins, and before it to their
    /// length, if that is given.
    fn monitor(&self, args: &str) -> Running {
        let cmd = self.daemon.tool("ovs-ofctl").arg("-vvconn:console:dbg").args(args.split_whitespace());
        let running = cmd.spawn().unwrap();
        let replies = 1 + usize::from(args.contains(" 65534"));
        let all = || running.stderr().matches("received: OFPT_BARRIER_REPLY").count() >= replies;
        wait_for(LIMIT, "replies to a monitor", all)
            .unwrap_or_else(|why| panic!("{why}\n{}", running.stderr()));
        running
    }

    /// Captures the frames received by a host, for [`received`].
    fn watch(&self, number: usize) -> Capture {
        let host = self.host(number);
        Capture::start(&host.netns, &host.dev, "ether[6:2] = 0x02aa", &["-xx", "-Q", "in"]).unwrap()
    }
}

/// Waits until a program has written this text.
fn wait_text(running: &Running, text: &str) {
    let seen = || running.stderr().contains(text) || running.stdout().contains(text);
    if let Err(why) = wait_for(LIMIT, text, seen) {
        panic!("{why}\n{}{}", running.stdout(), running.stderr());
    }
}

/// The number after the first `key` in a text.
fn number_after(text: &str, key: &str) -> u64 {
    let rest = text.split(key).nth(1).unwrap_or_else(|| panic!("no {key} in {text}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after {key} in {text}"))
}

/// The frames of a capture by [`Lab::watch`], in hexadecimal digits.
fn received(lines: &[String]) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    for line in lines {
        match line.trim_start().strip_prefix("0x") {
            Some(dump) => {
                let digits = dump.split_once(':').map_or("", |(_, d)| d).replace(' ', "");
                if let Some(frame) = frames.last_mut() {
                    frame.push_str(&digits);
                }
            }
            None => frames.push(String::new()),
        }
    }
    frames
}
