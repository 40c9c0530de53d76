//! Records the stock switch: two dummy ports on two bridges, between which the recorder carries frames.
//!
//! Commands of a scenario: `PORT KEY=VALUE…` settings (an empty value removes one); `warp TOTAL STEP` milliseconds;
//! `cut PORT` frames of the port are lost from now on, `mend PORT`; `data PORT N` frames of data to the port, one a
//! command of the clock; `mangle PORT AT BYTE` the last frame for the port once more, with another byte;
//! `forward PORT CHOICE`. OVS counts received packets for `forwarding_if_rx` on tunnels and patch ports only, so scenarios
//! of it have patch ports.

use crate::{HEADERS_BYTES, bytes_of, hex_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use testkit::{Daemon, DaemonSpec, Netns};

/// Names and commands. Those with a name of OVS's own tests have their steps.
pub(crate) const SCENARIOS: &[(&str, &str)] = &[
    (
        "basic",
        "p0 enable=true; p1 enable=true; warp 4100 100; p0 enable=false; warp 4100 100; p0 enable=true; warp 4100 100",
    ),
    (
        "lost",
        "p0 enable=true; p1 enable=true; warp 4100 100; cut p0; cut p1; warp 4100 100; mend p0; mend p1; warp 4100 100; \
         cut p0; warp 8200 100; mend p0; warp 1100 100; cut p1; warp 8200 100",
    ),
    (
        "cpath_down",
        "p0 enable=true; p1 enable=true; warp 4100 100; p0 cpath_down=true; warp 3100 100; p0 cpath_down=false; \
         warp 2000 100",
    ),
    (
        "intervals",
        "p0 enable=true; p1 enable=true; warp 3100 100; p0 min_tx=200; warp 2100 100; p1 min_rx=300; warp 2100 100; \
         p0 min_tx=1500 min_rx=2500; warp 6000 250; p0 min_tx= min_rx=; warp 3000 250; p0 mult=1; p1 mult=255; \
         warp 3100 100; p0 mult=0; p1 mult=256; warp 2000 100; p0 mult=8; p1 mult=125; warp 2000 100",
    ),
    (
        "decay",
        "p0 enable=true min_tx=300 min_rx=300; p1 enable=true min_tx=500 min_rx=500; warp 10000 500; \
         p0 decay_min_rx=3000; warp 2000 500; warp 10000 500; data p0 50; p0 decay_min_rx=1000; warp 10000 500; \
         p0 decay_min_rx=0; warp 10000 500; p0 decay_min_rx=3000; p1 min_tx=5000; warp 20000 500; p1 min_tx=500; \
         warp 20000 500; p1 enable=false; warp 15000 1000; p1 enable=true; warp 1500 500; warp 5000 500",
    ),
    (
        "forwarding_if_rx",
        "p0 enable=true min_tx=500 min_rx=500; warp 500 100; p0 forwarding_if_rx=true; data p0 20; \
         p1 enable=true min_tx=300 min_rx=300; warp 5000 500; p1 enable=false; warp 500 100; data p0 40; \
         warp 3000 500; p0 forwarding_if_rx=false; p1 enable=true; warp 5000 500; p0 forwarding_if_rx=true; \
         p1 enable=false; data p0 20; warp 30000 1500; data p0 40; warp 21000 3000; data p0 5; p1 enable=true; \
         warp 5000 500",
    ),
    (
        "flap_count",
        "p0 enable=true min_rx=100; p1 enable=true min_rx=100; warp 3000 50; p1 enable=false; warp 1000 50; \
         forward p0 true; p1 enable=true; warp 3000 50; p1 enable=false; warp 1000 50; forward p0 normal; warp 100 50; \
         forward p0 FALSE; p1 enable=true; warp 3000 50; forward p0 normal; warp 100 50",
    ),
    (
        "addresses",
        "p0 enable=true bfd_local_src_mac=00:00:00:00:01:01 bfd_local_dst_mac=00:00:00:00:01:02 bfd_src_ip=10.1.1.1 \
         bfd_dst_ip=10.1.1.2; p1 enable=true bfd_src_ip=10.1.1.2 bfd_remote_dst_mac=00:00:00:00:01:02 bfd_dst_ip=10.1.1.1 \
         oam=true; warp 3000 100; p0 bfd_src_ip=nope bfd_local_src_mac= bfd_local_dst_mac=zz; p1 bfd_remote_dst_mac=; \
         warp 500 100; p1 bfd_src_ip= bfd_dst_ip=; warp 500 100",
    ),
    (
        "refused",
        "p0 enable=true; p1 enable=true; cut p0; cut p1; warp 500 100; \
         mangle p0 22 fe; mangle p0 42 40; mangle p0 43 44; mangle p0 45 17; mangle p0 44 00; mangle p0 43 41; \
         mangle p0 43 80; mangle p0 43 c0; mangle p0 50 01; mangle p0 45 30; warp 500 100; mangle p0 42 25; \
         mangle p0 43 00; mangle p0 43 60; warp 4000 250; mend p0; mend p1; warp 3000 250; mangle p0 43 04; \
         mangle p0 42 26; warp 500 100; mangle p0 42 20; mangle p0 43 00; warp 500 100",
    ),
];

/// Real time in which the switch comes to rest.
const LIMIT: Duration = Duration::from_secs(10);
/// Equal looks that show a switch at rest.
const SAME_LOOKS: usize = 2;
/// Equal looks at its database, which it writes later.
const SAME_STATUS: usize = 6;

/// The stock switch and the recording so far.
struct Recorder {
    daemons: Vec<Daemon>,
    now_ms: u64,
    text: String,
    ports: BTreeMap<String, Side>,
    patch: bool,
    frames_of_data: u32,
    _netns: Netns,
}

/// One port.
#[derive(Default)]
struct Side {
    settings: BTreeMap<String, String>,
    enabled: bool,
    cut: bool,
    read: usize,
    shown: Vec<String>,
    headers: String,
    last_frame: Vec<u8>,
}

fn other(port: &str) -> &'static str {
    if port == "p0" { "p1" } else { "p0" }
}

/// A line of `bfd/show` with the time itself, which does not change with the clock.
fn absolute(line: &str, now_ms: u64) -> String {
    let Some((name, rest)) = line.split_once("now ") else { return line.to_owned() };
    let from_now: i64 = rest.trim_end_matches("ms").parse().unwrap();
    format!("{name}at {}", now_ms as i64 + from_now)
}

impl Recorder {
    /// With `patch` each port is a patch port, behind which a switch has the dummy port.
    fn new(patch: bool) -> Recorder {
        let netns = Netns::new("bfd").unwrap();
        let spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(&netns));
        // Without megaflows, each frame is translated, and counts at once.
        let settings = ["other_config:flow-limit=0", "other_config:stats-update-interval=50000000"];
        let daemons =
            testkit::start_stock(spec, "ovs-vswitchd", &settings, [&[], &["--enable-dummy", "--pidfile"]])
                .unwrap();
        let ports = ["p0", "p1"].map(|port| (port.to_owned(), Side::default())).into();
        let (text, frames_of_data) = (String::new(), 0);
        let recorder = Recorder { daemons, now_ms: 0, text, ports, patch, frames_of_data, _netns: netns };
        for (bridge, port) in [("br0", "p0"), ("br1", "p1")] {
            let add = |bridge: &str, port: &str, kind: &str, option: &str| {
                format!(
                    "--may-exist add-br {bridge} -- set bridge {bridge} datapath-type=dummy fail-mode=secure -- \
                     add-port {bridge} {port} -- set interface {port} type={kind} options:{option}"
                )
            };
            let pcap = format!("tx_pcap={}", recorder.pcap(port));
            if !patch {
                recorder.tool("ovs-vsctl", &add(bridge, port, "dummy", &pcap));
                continue;
            }
            let (switch, device, peer) = (&format!("sw{port}"), &format!("d{port}"), &format!("q{port}"));
            recorder.tool("ovs-vsctl", &add(bridge, port, "patch", &format!("peer={peer}")));
            recorder.tool("ovs-vsctl", &add(switch, device, "dummy", &pcap));
            recorder.tool("ovs-vsctl", &add(switch, peer, "patch", &format!("peer={port}")));
            for (from, to) in [(device, peer), (peer, device)] {
                recorder.tool("ovs-ofctl", &format!("add-flow {switch} in_port={from},actions=output:{to}"));
            }
        }
        testkit::wait_for(LIMIT, "the ports", || {
            recorder.tool("ovs-vsctl", "get interface p1 ofport").trim() == "1"
        })
        .unwrap();
        recorder.tool("ovs-appctl", "time/stop");
        recorder
    }

    fn pcap(&self, port: &str) -> String {
        self.daemons[0].rundir().join(&format!("{port}.pcap")).display().to_string()
    }

    fn tool(&self, tool: &str, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.daemons[0].ovs(tool, &words).unwrap().stdout
    }

    fn write(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    /// Waits until nothing changes any more. A packet that is due may wait: see `Port::wakeup_ms`.
    fn settle(&self) {
        let (mut last, mut same) = (String::new(), 0);
        let at_rest = || {
            let now = self.tool("ovs-appctl", "bfd/show");
            same = if now == last { same + 1 } else { 0 };
            last = now;
            same >= SAME_LOOKS && !last.contains("Local Flags: final")
        };
        testkit::wait_for(LIMIT, "a switch at rest", at_rest).unwrap();
    }

    /// Frames that a port sent since the last call.
    fn sent(&mut self, port: &str) -> Vec<Vec<u8>> {
        let pcap = std::fs::read(self.pcap(port)).unwrap_or_default();
        let side = self.ports.get_mut(port).unwrap();
        let mut frames = Vec::new();
        side.read = side.read.max(24);
        while let Some(head) = pcap.get(side.read..side.read + 16) {
            let bytes = u32::from_le_bytes(head[8..12].try_into().unwrap()) as usize;
            let Some(frame) = pcap.get(side.read + 16..side.read + 16 + bytes) else { break };
            frames.push(frame.to_vec());
            side.read += 16 + bytes;
        }
        frames
    }

    fn deliver(&mut self, port: &str, frame: &[u8]) {
        let device = if self.patch { format!("d{port}") } else { port.to_owned() };
        self.tool("ovs-appctl", &format!("netdev-dummy/receive {device} {}", hex_of(frame)));
        self.settle();
    }

    /// Carries frames until no more come.
    fn carry(&mut self) {
        self.settle();
        loop {
            let sent: Vec<(&str, Vec<Vec<u8>>)> =
                ["p0", "p1"].into_iter().map(|port| (port, self.sent(port))).collect();
            if sent.iter().all(|(_, frames)| frames.is_empty()) {
                return;
            }
            for (port, frames) in &sent {
                for frame in frames {
                    self.write_sent(port, frame);
                }
            }
            for (port, frames) in sent {
                for frame in frames {
                    let to = other(port);
                    self.ports.get_mut(to).unwrap().last_frame = frame.clone();
                    if !self.ports[port].cut {
                        self.write(&format!("{to} in {}", hex_of(&frame)));
                        self.deliver(to, &frame);
                    }
                }
            }
        }
    }

    fn write_sent(&mut self, port: &str, frame: &[u8]) {
        let (headers, message) = frame.split_at(HEADERS_BYTES);
        let side = self.ports.get_mut(port).unwrap();
        let headers = hex_of(headers);
        let written = if side.headers == headers { "-" } else { &headers };
        let line = format!("{port} out {written} {}", hex_of(message));
        side.headers = headers;
        self.write(&line);
    }

    /// Writes the changed lines of `bfd/show`, and the status if asked to.
    fn look(&mut self, status: bool) {
        for port in ["p0", "p1"] {
            if !self.ports[port].enabled {
                continue;
            }
            let shown = self.tool("ovs-appctl", &format!("bfd/show {port}"));
            for (row, line) in shown.lines().enumerate() {
                let line = absolute(line, self.now_ms);
                let side = self.ports.get_mut(port).unwrap();
                side.shown.resize(side.shown.len().max(row + 1), "?".to_owned());
                if side.shown[row] != line {
                    side.shown[row] = line.clone();
                    self.write(&format!("{port} ~{row} {line}"));
                }
            }
            if status {
                let (mut pairs, mut same) = (String::new(), 0);
                let written = || {
                    let now = self.tool("ovs-vsctl", &format!("get interface {port} bfd_status"));
                    same = if now == pairs { same + 1 } else { 0 };
                    pairs = now;
                    same >= SAME_STATUS
                };
                testkit::wait_for(LIMIT, "a database at rest", written).unwrap();
                let pairs = pairs.trim().trim_matches(['{', '}']).replace('"', "").replace(", ", ",");
                self.write(&format!("{port} status {pairs}"));
            }
        }
    }

    fn configure(&mut self, port: &str, pairs: &[&str]) {
        let side = self.ports.get_mut(port).unwrap();
        let (mut set, mut removed) = (String::new(), String::new());
        for pair in pairs {
            let (key, value) = pair.split_once('=').unwrap();
            if value.is_empty() {
                side.settings.remove(key);
                removed += &format!(" -- remove interface {port} bfd {key}");
            } else {
                side.settings.insert(key.to_owned(), value.to_owned());
                set += &format!(" bfd:{key}=\"{value}\"");
            }
        }
        let all: Vec<String> = side.settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let enabled = side.settings.get("enable").is_some_and(|value| value == "true");
        let new = enabled && !side.enabled;
        side.enabled = enabled;
        let set = if set.is_empty() { String::new() } else { format!("-- set interface {port}{set}") };
        self.tool("ovs-vsctl", &format!("{set}{removed}").replacen("-- ", "", 1));
        self.settle();
        if new {
            self.identify(port);
        }
        self.write(&format!("{port} set {}", all.join(" ")));
    }

    /// Writes what a new session drew, and the time, which shows as long as there is no detection time.
    fn identify(&mut self, port: &str) {
        let shown = self.tool("ovs-appctl", &format!("bfd/show {port}"));
        let value = |name: &str| {
            let line = shown.lines().find_map(|line| line.trim().strip_prefix(name));
            line.unwrap().trim_start_matches(": ").to_owned()
        };
        if self.now_ms == 0 {
            self.now_ms = value("Detect Time: now -").trim_end_matches("ms").parse().unwrap();
            self.write(&format!("@ {}", self.now_ms));
        }
        let read = self.ports[port].read;
        let mut frame = None;
        testkit::wait_for(LIMIT, "the first packet", || {
            frame = self.sent(port).into_iter().next();
            frame.is_some()
        })
        .unwrap();
        let frame = frame.unwrap();
        self.ports.get_mut(port).unwrap().read = read;
        let src_port = u16::from_be_bytes([frame[34], frame[35]]);
        let mac = self.tool("ovs-vsctl", &format!("get interface {port} mac_in_use")).trim().replace('"', "");
        let kind = if self.patch { "patch" } else { "dummy" };
        self.write(&format!("{port} new {} {src_port} {mac} {kind}", value("Local Discriminator")));
    }

    fn warp(&mut self, ms: u64) {
        self.tool("ovs-appctl", &format!("time/warp {ms}"));
        self.now_ms += ms;
        self.write(&format!("@ {}", self.now_ms));
        self.carry();
    }

    /// A frame of data that no other resembles.
    fn data(&mut self, port: &str) {
        self.frames_of_data += 1;
        let frame = format!("0a0000000001 0b00{:08x} 88b5", self.frames_of_data).replace(' ', "");
        self.write(&format!("{port} data"));
        self.deliver(port, &bytes_of(&format!("{frame:0<120}")));
    }

    fn command(&mut self, words: &[&str]) {
        match *words {
            ["warp", total, step] => {
                let (total, step): (u64, u64) = (total.parse().unwrap(), step.parse().unwrap());
                for _ in 0..total / step {
                    self.warp(step);
                    self.look(false);
                }
            }
            ["cut", port] => self.ports.get_mut(port).unwrap().cut = true,
            ["mend", port] => self.ports.get_mut(port).unwrap().cut = false,
            ["data", port, count] => {
                for _ in 0..count.parse().unwrap() {
                    self.warp(100);
                    self.data(port);
                    self.look(false);
                }
            }
            ["mangle", port, at, byte] => {
                let mut frame = self.ports[port].last_frame.clone();
                frame[at.parse::<usize>().unwrap()] = u8::from_str_radix(byte, 16).unwrap();
                self.warp(1);
                self.write(&format!("{port} in {}", hex_of(&frame)));
                self.deliver(port, &frame);
                self.carry();
            }
            ["forward", port, choice] => {
                self.tool("ovs-appctl", &format!("bfd/set-forwarding {port} {choice}"));
                self.write(&format!("{port} forward {choice}"));
            }
            [port, ref pairs @ ..] => {
                self.configure(port, pairs);
                self.carry();
            }
            [] => {}
        }
        if self.now_ms != 0 && !matches!(words, ["cut" | "mend", _]) {
            self.look(true);
            // A step has one look.
            self.warp(1);
            self.look(false);
        }
    }
}

/// Records all scenarios, or the one that `SLUICE_BFD_RECORD` names.
pub(crate) fn all(folder: &str) {
    let only = std::env::var("SLUICE_BFD_RECORD").unwrap();
    for (name, commands) in SCENARIOS.iter().filter(|(name, _)| only == "1" || only == *name) {
        let patch = commands.contains("forwarding_if_rx");
        let mut recorder = Recorder::new(patch);
        for command in commands.split(';') {
            let words: Vec<&str> = command.split_whitespace().collect();
            recorder.command(&words);
        }
        std::fs::write(format!("{folder}/{name}.txt"), &recorder.text).unwrap();
    }
}
