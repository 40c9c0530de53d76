//! Programs that send and capture packets: ping, iperf3, tcpdump.

use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde_json::Value;

use crate::command::{Running, Signal};
use crate::netns::Netns;
use crate::wait::wait_for;

/// Maximum time for a server or a capture to become ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// A capture ends after this time without packets.
const QUIET: Duration = Duration::from_millis(250);
/// But a capture of an endless stream is over after this long.
const QUIET_LIMIT: Duration = Duration::from_secs(2);

/// Results of a ping run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PingReport {
    /// Requests sent.
    pub sent: u32,
    /// Replies received, without duplicates.
    pub received: u32,
    /// Mean round trip in milliseconds, if there was a reply.
    pub mean_rtt_ms: Option<f64>,
}

/// Sends `count` echo requests, 50 ms apart, and waits 3 s for the last reply. Missing replies are no
/// error: check the report.
///
/// # Errors
/// If ping cannot be run or prints no report (no route, for instance).
pub fn ping(from: &Netns, to: IpAddr, count: u32) -> Result<PingReport> {
    let (count, to) = (count.to_string(), to.to_string());
    let limit = Duration::from_secs(5) + Duration::from_millis(60) * count.parse().unwrap_or(u32::MAX);
    let out =
        from.cmd("ping").args(["-n", "-i", "0.05", "-W", "3", "-c", &count, &to]).limit(limit).output()?;
    parse_ping(&out.stdout).with_context(|| {
        format!("ping {to} in {} gave no report:\n{}{}", from.name(), out.stdout, out.stderr)
    })
}

pub(crate) fn parse_ping(text: &str) -> Option<PingReport> {
    let line = text.lines().find(|l| l.contains("packets transmitted"))?;
    let number_before =
        |what: &str| line.split(", ").find(|p| p.contains(what))?.split(' ').next()?.parse().ok();
    let mean_rtt_ms = text
        .lines()
        .find(|l| l.starts_with("rtt "))
        .and_then(|l| l.split(" = ").nth(1)?.split('/').nth(1)?.parse().ok());
    Some(PingReport {
        sent: number_before("transmitted")?,
        received: number_before("received")?,
        mean_rtt_ms,
    })
}

/// Pings until a reply arrives.
///
/// # Errors
/// If none arrives within `limit`.
pub fn reachable(from: &Netns, to: IpAddr, limit: Duration) -> Result<()> {
    let mut last = None;
    let waited = wait_for(limit, &format!("a reply of {to} to {}", from.name()), || {
        let report = ping(from, to, 1);
        let good = report.as_ref().is_ok_and(|r| r.received > 0);
        last = report.err();
        good
    });
    match (waited, last) {
        (Err(why), Some(cause)) => bail!("{why}; the last ping: {cause:#}"),
        (waited, _) => waited,
    }
}

/// A ping(8) without end. With `-c` it ends at that number of replies, or a round trip after its last request: under load
/// the reply to an early request comes after those to later ones.
#[derive(Debug)]
pub struct Pings(Running);

impl Pings {
    /// Starts it with these arguments, addresses as numbers.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(from: &Netns, args: &[&str]) -> Result<Self> {
        from.spawn("ping", &[&["-n"], args].concat()).map(Self)
    }

    /// Ends it once every request up to one behind the latest answered so far, and up to `count`, has a reply.
    ///
    /// # Errors
    /// A request has no reply within `limit`, or has two.
    pub fn answered(self, count: u32, limit: Duration) -> Result<()> {
        let until = (last_reply(&self.0.stdout()) + 1).max(count as usize);
        let waited = wait_for(limit, &format!("the replies to {until} requests"), || {
            replies(&self.0.stdout(), until).iter().all(|n| *n > 0)
        });
        let output = self.0.stop(Signal::TERM, limit)?.stdout;
        waited.with_context(|| output.clone())?;
        match replies(&output, until).iter().position(|n| *n > 1) {
            Some(before) => bail!("request {} has more than one reply:\n{output}", before + 1),
            None => Ok(()),
        }
    }
}

/// Sequence numbers of the replies in ping(8)'s output.
fn sequence_numbers(output: &str) -> impl Iterator<Item = usize> {
    output.lines().filter(|line| line.contains(" ttl=")).filter_map(|line| {
        let (_, rest) = line.split_once("icmp_seq=")?;
        rest.split(' ').next()?.parse().ok()
    })
}

pub(crate) fn last_reply(output: &str) -> usize {
    sequence_numbers(output).max().unwrap_or(0)
}

/// Number of replies to each request from 1 to `until`.
pub(crate) fn replies(output: &str, until: usize) -> Vec<usize> {
    let mut counts = vec![0; until];
    for number in sequence_numbers(output) {
        if let Some(count) = number.checked_sub(1).and_then(|n| counts.get_mut(n)) {
            *count += 1;
        }
    }
    counts
}

/// A UDP socket at a port of all addresses, with a receive buffer that holds the datagrams of a reader that waits.
///
/// # Errors
/// The port is taken.
pub fn patient_receiver(port: u16) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(("0.0.0.0", port))?;
    set_socket_recv_buffer_size_force(&socket, 64 << 20)?;
    Ok(socket)
}

/// Starts an iperf3 server on a TCP port and waits until it listens.
///
/// # Errors
/// If it does not listen after 10 s.
pub fn iperf3_server(netns: &Netns, port: u16) -> Result<Running> {
    let mut server = netns.cmd("iperf3").args(["-s", "--forceflush", "-p", &port.to_string()]).spawn()?;
    let waited = wait_for(READY_LIMIT, "iperf3 to listen", || {
        server.stdout().contains("Server listening") || server.status().is_some()
    });
    if waited.is_err() || server.status().is_some() {
        bail!(
            "the iperf3 server in {} does not listen:\n{}{}",
            netns.name(),
            server.stdout(),
            server.stderr()
        );
    }
    Ok(server)
}

/// Options of an iperf3 client.
#[derive(Clone, Debug)]
pub struct Iperf3Options {
    /// Port of the server.
    pub port: u16,
    /// Duration in seconds.
    pub time_s: u32,
    /// Bytes to send instead, however long that takes.
    pub bytes: Option<u64>,
    /// Parallel streams.
    pub streams: u32,
    /// UDP at this rate (bits per second, 0 for the maximum) instead of TCP.
    pub udp_bps: Option<u64>,
    /// Extra arguments.
    pub more: Vec<String>,
}

impl Default for Iperf3Options {
    fn default() -> Self {
        Self { port: 5201, time_s: 1, bytes: None, streams: 1, udp_bps: None, more: Vec::new() }
    }
}

/// Results of an iperf3 client.
#[derive(Clone, Debug)]
pub struct Iperf3Report {
    /// Bits per second that the sender sent.
    pub sent_bps: f64,
    /// Bits per second that reached the receiver.
    pub received_bps: f64,
    /// Retransmitted TCP segments, over all streams; 0 for UDP.
    pub retransmits: u64,
    /// UDP datagrams lost, in percent; 0 for TCP.
    pub lost_percent: f64,
    /// iperf3's whole output.
    pub json: Value,
}

/// Further tries to connect to an iperf3 server, and the pause before each.
const CONNECT_TRIES: u32 = 25;
const CONNECT_PAUSE: Duration = Duration::from_millis(200);

/// Sends to an iperf3 server, to the end.
///
/// # Errors
/// If iperf3 fails; the text includes its reason.
pub fn iperf3_client(from: &Netns, server: IpAddr, options: &Iperf3Options) -> Result<Iperf3Report> {
    let mut cmd = from.cmd("iperf3").args(["-J", "-c", &server.to_string()]);
    cmd = cmd.args(["-p", &options.port.to_string()]);
    cmd = match options.bytes {
        Some(bytes) => cmd.args(["-n", &bytes.to_string()]),
        None => cmd.args(["-t", &options.time_s.to_string()]),
    };
    cmd = cmd.args(["-P", &options.streams.to_string(), "--connect-timeout", "5000"]);
    if let Some(rate) = options.udp_bps {
        cmd = cmd.args(["-u", "-b", &rate.to_string()]);
    }
    let limit = Duration::from_secs(u64::from(options.time_s) + 20);
    let cmd = cmd.args(&options.more).limit(limit);
    let mut out = cmd.output()?;
    // A server opens its socket anew after some tests, and so resets a client that connects just then; and it ends a
    // test only after its client has.
    let not_yet = ["unable to connect to server: Connection re", "the server is busy running a test"];
    let mut tries = CONNECT_TRIES;
    while tries > 0 && not_yet.iter().any(|why| out.stdout.contains(why)) {
        tries -= 1;
        std::thread::sleep(CONNECT_PAUSE);
        out = cmd.output()?;
    }
    parse_iperf3(&out.stdout)
        .with_context(|| format!("iperf3 from {} to {server}: {}", from.name(), out.stderr))
}

pub(crate) fn parse_iperf3(text: &str) -> Result<Iperf3Report> {
    let json: Value =
        serde_json::from_str(text).with_context(|| format!("iperf3 printed no JSON: {text}"))?;
    if let Some(why) = json.get("error").and_then(Value::as_str) {
        bail!("iperf3 says: {why}");
    }
    let end = json.get("end").context("iperf3's report has no `end`")?;
    let rate = |key: &str| end.get(key)?.get("bits_per_second")?.as_f64();
    // UDP reports of iperf3 before 3.17 have one `sum` for both sides, with the sender's rate.
    let udp_loss = end.get("sum").and_then(|s| s.get("lost_percent")).and_then(Value::as_f64);
    let lost_percent = udp_loss.unwrap_or(0.0);
    let sent_bps = rate("sum_sent").or_else(|| rate("sum")).context("iperf3's report has no rate")?;
    let received_bps = rate("sum_received").unwrap_or(sent_bps * (1.0 - lost_percent / 100.0));
    let retransmits =
        end.get("sum_sent").and_then(|s| s.get("retransmits")).and_then(Value::as_u64).unwrap_or(0);
    Ok(Iperf3Report { sent_bps, received_bps, retransmits, lost_percent, json })
}

/// Snapshot length in bytes and buffer in KiB of captures: room for some 250 frames while tcpdump waits for a processor.
/// With immediate mode each frame takes the snapshot length; the usual 256 KiB in 2 MiB are eight frames.
const ROOM: [&str; 4] = ["-s", "65600", "-B", "16384"];

/// A tcpdump at work.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Running,
}

impl Capture {
    /// Captures on an interface and waits until the kernel delivers packets. `filter` is an expression of
    /// pcap-filter(7), empty for all; the lines have numbers, no names and no times, and with `-e` among
    /// `more` the Ethernet headers too.
    ///
    /// # Errors
    /// If tcpdump is not ready after 10 s: a bad filter, or no such interface.
    pub fn start(netns: &Netns, dev: &str, filter: &str, more: &[&str]) -> Result<Self> {
        let cmd = netns
            .cmd("tcpdump")
            .args(["-nn", "-t", "-l", "-U", "--immediate-mode", "-i", dev])
            .args(ROOM)
            .args(more);
        let mut tcpdump = cmd.args(filter.split_whitespace()).spawn()?;
        let waited = wait_for(READY_LIMIT, "tcpdump to listen", || {
            tcpdump.stderr().contains("listening on") || tcpdump.status().is_some()
        });
        if waited.is_err() || tcpdump.status().is_some() {
            bail!("tcpdump on {dev} in {} does not listen:\n{}", netns.name(), tcpdump.stderr());
        }
        Ok(Self { tcpdump })
    }

    /// The lines until now.
    pub fn lines(&self) -> Vec<String> {
        lines(&self.tcpdump.stdout())
    }

    /// Waits for a line that contains `text`.
    ///
    /// # Errors
    /// If none came within `limit`; the error shows the captured lines.
    pub fn wait_for(&self, text: &str, limit: Duration) -> Result<()> {
        let waited =
            wait_for(limit, &format!("a packet with `{text}`"), || self.tcpdump.stdout().contains(text));
        waited.with_context(|| format!("captured:\n{}", self.tcpdump.stdout()))
    }

    /// Ends the capture after 100 ms without packets (2 s at most), and returns all lines.
    ///
    /// # Errors
    /// If tcpdump fails.
    pub fn stop(self) -> Result<Vec<String>> {
        let start = Instant::now();
        let (mut seen, mut since) = (self.tcpdump.stdout().len(), Instant::now());
        while since.elapsed() < QUIET && start.elapsed() < QUIET_LIMIT {
            std::thread::sleep(Duration::from_millis(10));
            let now = self.tcpdump.stdout().len();
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
        let out = self.tcpdump.stop(Signal::INT, READY_LIMIT)?;
        if !out.status.success() {
            bail!("tcpdump: {}\n{}", out.status, out.stderr);
        }
        Ok(lines(&out.stdout))
    }
}

/// The non-empty lines: tcpdump ends with an empty one.
fn lines(text: &str) -> Vec<String> {
    text.lines().filter(|l| !l.trim().is_empty()).map(str::to_owned).collect()
}
