//! Daemons without a network: capture files are replayed into a port that drops, so that the datapath alone
//! is measured, by its own counters.
//!
//! All labs exist at the same time. An endless replay keeps its thread busy, so the others are stopped as
//! processes (SIGSTOP): this costs nothing, keeps flows and caches, and resumes at once. Flows do not age
//! meanwhile (`max-idle`).

use crate::daemons::{self, STOCK_DPDK};
use crate::pmdstats::{Count, PmdStats, all_drops, counts_of_port, datapath_drops, full_rings, lost_lookups};
use crate::sides::sum_of_drops;
use crate::tunnels::{self, TUNNEL, Tunnel, UNDERLAY};
use crate::works::{OUT, Source, Work};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{Daemon, Netns, Signal, veth, wait_for};

/// The bridge of every work.
pub(crate) const BRIDGE: &str = "br0";
/// Maximum time until packets flow and all megaflows exist.
const FLOWING_LIMIT: Duration = Duration::from_secs(30);
const IDLE_MS: u64 = 3_600_000;
/// Memory of DPDK, in MB: space for a capture of 100,000 frames in packet buffers.
const DPDK_MEMORY_MB: u32 = 1024;
/// Number of 2 MB pages for that.
pub(crate) const DPDK_PAGES: u64 = 768;

/// Bytes of each frame of a source, without outer headers.
const FRAME_BYTES: u64 = crate::frames::FRAME_BYTES as u64;
/// Maximum time until addresses, routes, and counters have settled.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// Packets of a source that were sent when all of its connections have begun: its capture some times.
const CONNECTED: u64 = 5_000;
/// Forwarding threads add their counts to `coverage/show` once a second.
const COVERAGE_LAG: Duration = Duration::from_secs(2);

/// Kind of daemon: the two name types and options differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sluice,
    Dpdk,
}

/// A daemon with its database.
pub(crate) struct Lab {
    /// Name of the side, in results.
    pub(crate) name: String,
    kind: Kind,
    // Dropped before their namespace.
    daemons: Vec<Daemon>,
    netns: Netns,
    /// Source ports of the installed work.
    sources: Vec<u32>,
    /// Ways of the packets of the installed work, each once.
    ways: Vec<Tunnel>,
    /// Whether its packets belong to established connections.
    established: bool,
    /// Whether the bridge of the underlay exists.
    has_underlay: bool,
    /// DPDK devices are numbered; numbers are never reused.
    devices: u32,
    /// Drops before the work was installed.
    drops_before: u64,
    /// Drops, of its ports too, when a work with a tunnel had begun.
    drops_at_begin: u64,
    /// Resident memory before the first work.
    memory_at_first: Option<u64>,
}

/// Counts over an interval.
pub(crate) struct Interval {
    pub(crate) stats: PmdStats,
    pub(crate) seconds: f64,
}

/// Counters of a lab at a moment.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub(crate) at: Instant,
    pub(crate) stats: PmdStats,
    pub(crate) megaflows: usize,
}

impl Now {
    fn none() -> Now {
        Now { at: Instant::now(), stats: PmdStats::default(), megaflows: 0 }
    }
}

/// Resident memory of a process in bytes, without huge pages (proc_pid_status(5)).
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kb: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb * 1024)
}

impl Lab {
    /// Starts Sluice, its forwarding thread on processor `cpu`.
    pub(crate) fn sluice(name: &str, sluiced: &Path, args: &[String], cpu: usize) -> Result<Lab> {
        let netns = Netns::new("lab")?;
        let daemon = daemons::start_sluice(&netns, sluiced, args, None, None)?;
        let mask = format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << cpu);
        daemon.ovs("ovs-vsctl", &["set", "Open_vSwitch", ".", &mask, &max_idle()])?;
        Lab::with(name, Kind::Sluice, vec![daemon], netns)
    }

    /// Starts the stock daemon with DPDK, its forwarding thread on processor `cpu` and the rest on `other`,
    /// with extra arguments. Its memory is private and leaves no file.
    pub(crate) fn dpdk(name: &str, args: &[&str], cpu: usize, other: usize) -> Result<Lab> {
        let netns = Netns::new("lab")?;
        let settings = [
            "other_config:dpdk-init=true".to_string(),
            "other_config:dpdk-extra=--in-memory".to_string(),
            format!("other_config:dpdk-socket-mem={DPDK_MEMORY_MB}"),
            format!("other_config:dpdk-lcore-mask={:#x}", 1_u64 << other),
            format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << cpu),
            max_idle(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let daemons = daemons::start_stock(&netns, STOCK_DPDK, &settings, args, None)?;
        Lab::with(name, Kind::Dpdk, daemons, netns)
    }

    fn with(name: &str, kind: Kind, daemons: Vec<Daemon>, netns: Netns) -> Result<Lab> {
        let lab = Lab {
            name: name.to_string(),
            kind,
            daemons,
            netns,
            sources: Vec::new(),
            ways: Vec::new(),
            established: false,
            has_underlay: false,
            devices: 0,
            drops_before: 0,
            drops_at_begin: 0,
            memory_at_first: None,
        };
        let secure = ["datapath_type=netdev", "fail-mode=secure"];
        lab.vsctl(&[&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE], &secure[..]].concat())?;
        Ok(lab)
    }

    fn daemon(&self) -> Result<&Daemon> {
        self.daemons.first().context("a lab has a daemon")
    }

    fn vsctl(&self, args: &[&str]) -> Result<()> {
        self.daemon()?.ovs("ovs-vsctl", args).map(drop)
    }

    /// Name of its program in its run directory.
    fn program(&self) -> &'static str {
        match self.kind {
            Kind::Sluice => "ovs-vswitchd",
            Kind::Dpdk => "ovs-vswitchd-dpdk",
        }
    }

    pub(crate) fn appctl(&self, args: &[&str]) -> Result<String> {
        daemons::appctl(self.daemon()?, self.program(), args)
    }

    /// Lets it run.
    pub(crate) fn wake(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(|d| d.signal(Signal::CONT))
    }

    /// Stops it as a process.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(|d| d.signal(Signal::STOP))
    }

    /// Resumes the daemon only while `work` runs.
    pub(crate) fn awake<T>(&mut self, work: impl FnOnce(&mut Lab) -> Result<T>) -> Result<T> {
        self.wake()?;
        let done = work(self);
        self.rest()?;
        done
    }

    /// Sets the cache between packets and megaflows to the daemon's default, or off.
    pub(crate) fn set_cache(&self, on: bool) -> Result<()> {
        if on {
            return self.vsctl(&["remove", "Open_vSwitch", ".", "other_config", "emc-insert-inv-prob"]);
        }
        self.vsctl(&["set", "Open_vSwitch", ".", "other_config:emc-insert-inv-prob=0"])
    }

    /// Replaces its work, and waits until all megaflows exist.
    pub(crate) fn install(&mut self, work: &Work) -> Result<()> {
        self.begin(work)?;
        let (mut last, mut seen) = (None, 0);
        let waited = wait_for(FLOWING_LIMIT, "packets and their megaflows", || {
            let count = self.megaflows();
            seen = count.as_ref().map_or(0, |n| *n);
            last = count.err();
            (work.megaflows - work.may_end..=work.megaflows).contains(&seen)
        });
        waited.with_context(|| {
            let why = last.map(|e| format!("{e:#}")).unwrap_or_default();
            format!("{}, {}: {seen} megaflows instead of {} {why}", self.name, work.title, work.megaflows)
        })?;
        if self.has_tunnel() {
            self.drops_at_begin = self.settled_drops()?;
        }
        Ok(())
    }

    /// Replaces its work; returns the counters before the first packet.
    pub(crate) fn begin(&mut self, work: &Work) -> Result<Now> {
        self.remove_sources()?;
        for way in std::mem::take(&mut self.ways) {
            self.vsctl(&["--if-exists", "del-port", way.out().1])?;
        }
        self.vsctl(&["--if-exists", "del-port", tunnels::NAME])?;
        self.replace_rules(BRIDGE, &work.rules)?;
        self.established = work.established;
        for source in &work.sources {
            if !self.ways.contains(&source.tunnel) {
                self.ways.push(source.tunnel);
            }
        }
        if self.has_tunnel() {
            self.add_tunnel()?;
        }
        self.appctl(&["dpif-netdev/pmd-stats-clear"])?;
        self.drops_before = self.drops()?;
        // The source comes last: no packet arrives before its output exists.
        for way in self.ways.clone() {
            let (bridge, name) = way.out();
            self.add_port(bridge, name, OUT, None)?;
        }
        let memory = resident_bytes(self.daemon()?.pid())?;
        self.memory_at_first.get_or_insert(memory);
        // Without a port a forwarding thread may not run yet.
        let before = self.now().unwrap_or_else(|_| Now::none());
        for (at, source) in work.sources.iter().enumerate() {
            let name = format!("in{}", source.port);
            self.add_port(source.tunnel.source_bridge(), &name, source.port, Some(source))?;
            self.sources.push(source.port);
            if work.established && at + 1 < work.sources.len() {
                self.connect(source.tunnel)?;
            }
        }
        Ok(before)
    }

    /// Waits until a source has begun its connections: the next one answers them.
    fn connect(&self, way: Tunnel) -> Result<()> {
        wait_for(FLOWING_LIMIT, "packets of the first source", || {
            let ports = self.ports(way.out().0).unwrap_or_default();
            counts_of_port(&ports, OUT).is_some_and(|counts| counts.sent.packets >= CONNECTED)
        })
    }

    /// Its present counters, read without a separate program.
    pub(crate) fn now(&self) -> Result<Now> {
        let stats = PmdStats::parse(&self.ask("dpif-netdev/pmd-stats-show")?)?;
        let at = Instant::now();
        let shown = self.ask("dpctl/show")?;
        let flows = shown.lines().find_map(|l| l.trim().strip_prefix("flows: "));
        let megaflows = flows.and_then(|n| n.parse().ok()).context("dpctl/show shows no flows")?;
        Ok(Now { at, stats, megaflows })
    }

    /// Bytes of memory allocated since the first work began.
    pub(crate) fn memory_taken(&self) -> Result<u64> {
        let now = resident_bytes(self.daemon()?.pid())?;
        Ok(now.saturating_sub(self.memory_at_first.unwrap_or(now)))
    }

    /// The reply to a command of the control socket (JSON-RPC 1.0).
    pub(crate) fn ask(&self, command: &str) -> Result<String> {
        let path = daemons::control_socket(self.daemon()?, self.program());
        let mut socket = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
        socket.write_all(json!({ "id": 0, "method": command, "params": [] }).to_string().as_bytes())?;
        let answer: Value = serde_json::Deserializer::from_reader(socket)
            .into_iter()
            .next()
            .context("the control socket was closed")??;
        answer["result"].as_str().map(String::from).with_context(|| format!("{command}: {answer}"))
    }

    /// Replaces the rules of a bridge.
    pub(crate) fn replace_rules(&self, bridge: &str, rules: &[String]) -> Result<()> {
        let daemon = self.daemon()?;
        daemon.ovs("ovs-ofctl", &["del-flows", bridge])?;
        daemon.tool("ovs-ofctl").args(["add-flows", bridge, "-"]).input(rules.join("\n")).run().map(drop)
    }

    /// Adds the tunnel port of the work, and what it needs: the underlay, its address and a neighbour.
    fn add_tunnel(&mut self) -> Result<()> {
        if !self.has_underlay {
            self.vsctl(&tunnels::UNDERLAY_BRIDGE)?;
            let netns = &self.netns;
            // Nothing but the work's frames is to pass: no router is solicited.
            netns.run("sysctl", &["-q", "-w", "net.ipv6.conf.all.disable_ipv6=1"])?;
            let exists = || netns.ip(&format!("link show dev {UNDERLAY}")).is_ok();
            wait_for(SETTLE_LIMIT, "the device of the underlay", exists)?;
            netns.up(UNDERLAY)?;
            netns.add_addr(UNDERLAY, tunnels::LOCAL_PREFIX)?;
            self.has_underlay = true;
        }
        let rules: Vec<String> = self.ways.iter().filter_map(|way| way.underlay_rule()).collect();
        self.replace_rules(UNDERLAY, &rules)?;
        let port = tunnels::port();
        self.vsctl(&port.iter().map(String::as_str).collect::<Vec<_>>())?;
        let listens = || {
            let shown = |command| self.appctl(&[command]).unwrap_or_default();
            shown("tnl/ports/show").contains("4789") && shown("ovs/route/show").contains(tunnels::NETWORK)
        };
        wait_for(SETTLE_LIMIT, "the tunnel's route and listener", listens)?;
        self.appctl(&tunnels::NEIGHBOUR).map(drop)
    }

    /// Adds a port of type `system` to the bridge; returns the namespace of its far end, and the name of that.
    pub(crate) fn add_veth(&mut self, number: u32) -> Result<(Netns, String)> {
        let far = Netns::new("far")?;
        let (device, port) = veth(&far, &self.netns)?;
        for (netns, device) in [(&far, &device), (&self.netns, &port)] {
            // Only the frames of the work are to pass.
            netns.ip(&format!("link set dev {device} addrgenmode none"))?;
            netns.up(device)?;
        }
        let request = format!("ofport_request={number}");
        self.vsctl(&["add-port", BRIDGE, &port, "--", "set", "Interface", &port, &request])?;
        Ok((far, device))
    }

    pub(crate) fn add_port(
        &mut self,
        bridge: &str,
        name: &str,
        number: u32,
        source: Option<&Source>,
    ) -> Result<()> {
        self.devices += 1;
        let device = self.devices;
        let mut args: Vec<String> = ["add-port", bridge, name, "--", "set", "Interface", name]
            .iter()
            .map(ToString::to_string)
            .collect();
        args.push(format!("ofport_request={number}"));
        match (self.kind, source) {
            (Kind::Sluice, None) => args.push("type=null".into()),
            (Kind::Sluice, Some(source)) => args.extend([
                "type=pcap".into(),
                format!("options:rx_pcap={}", source.file.display()),
                "options:infinite_rx=true".into(),
            ]),
            (Kind::Dpdk, None) => {
                args.extend(["type=dpdk".into(), format!("options:dpdk-devargs=net_null{device},no-rx=1")]);
            }
            (Kind::Dpdk, Some(source)) => {
                let file = source.file.display();
                let args_of =
                    format!("options:dpdk-devargs=\"net_pcap{device},rx_pcap={file},infinite_rx=1\"");
                args.extend(["type=dpdk".into(), args_of]);
            }
        }
        self.vsctl(&args.iter().map(String::as_str).collect::<Vec<_>>())?;
        let error = self.daemon()?.ovs("ovs-vsctl", &["get", "Interface", name, "error"])?.stdout;
        if error.trim() != "[]" {
            bail!("{}: {}", self.name, error.trim());
        }
        Ok(())
    }

    pub(crate) fn remove_sources(&mut self) -> Result<()> {
        for port in std::mem::take(&mut self.sources) {
            self.vsctl(&["del-port", &format!("in{port}")])?;
        }
        Ok(())
    }

    /// Megaflows of its forwarding threads.
    pub(crate) fn megaflows(&self) -> Result<usize> {
        let flows = self.appctl(&["dpctl/dump-flows"])?;
        Ok(flows.lines().filter(|l| l.contains("in_port(")).count())
    }

    fn stats(&self) -> Result<PmdStats> {
        // A forwarding thread of Sluice sums up its cycles once a second, and on a request for its load.
        self.appctl(&["dpif-netdev/pmd-rxq-show"])?;
        PmdStats::parse(&self.appctl(&["dpif-netdev/pmd-stats-show"])?)
    }

    /// Counts for `time`.
    pub(crate) fn count(&self, time: Duration) -> Result<Interval> {
        let (before, start) = (self.stats()?, Instant::now());
        std::thread::sleep(time);
        let (after, seconds) = (self.stats()?, start.elapsed().as_secs_f64());
        Ok(Interval { stats: after.since(&before), seconds })
    }

    /// As [`Self::count`], with counters reset to zero, so that averages are exact for the interval.
    pub(crate) fn count_anew(&self, time: Duration) -> Result<Interval> {
        self.appctl(&["dpif-netdev/pmd-stats-clear"])?;
        let start = Instant::now();
        std::thread::sleep(time);
        Ok(Interval { stats: self.stats()?, seconds: start.elapsed().as_secs_f64() })
    }

    fn has_tunnel(&self) -> bool {
        self.ways.iter().any(|way| *way != Tunnel::None)
    }

    /// Ends the stream, and compares the packets received by its threads since the work was installed with
    /// those sent by the `null` ports: returns the fault, if any.
    pub(crate) fn settle(&mut self) -> Result<Option<String>> {
        let by_ports = self.drops_of_ports()?;
        let while_running = (by_ports + self.drops()?).saturating_sub(self.drops_at_begin);
        let unestablished = if self.established { self.unestablished()? } else { None };
        self.remove_sources()?;
        let (mut last, mut wrong) = (None, None);
        let settled = wait_for(SETTLE_LIMIT, "the counters of all packets", || {
            let now = self.passed(by_ports);
            wrong = now.as_ref().map_or_else(|e| Some(format!("{e:#}")), Passed::fault);
            last = now.ok();
            wrong.is_none()
        });
        let wrong = wrong.filter(|_| settled.is_err()).or(unestablished);
        let Some(passed) = last.filter(|_| wrong.is_none() && self.has_tunnel()) else { return Ok(wrong) };
        // Packets of a source that is being added or removed may have no bridge.
        if while_running > 0 {
            return Ok(Some(format!("{while_running} of {} packets dropped", passed.received)));
        }
        for (way, (count, _)) in self.ways.iter().zip(&passed.sent) {
            if let Some(wrong) = self.tunnel_fault(*way, count.packets, passed.dropped)? {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }

    /// Packets since the work was installed; `by_ports`: drops that its removed sources counted.
    fn passed(&self, by_ports: u64) -> Result<Passed> {
        let received = self.stats()?.received;
        let mut sent = Vec::new();
        for way in &self.ways {
            let counts = counts_of_port(&self.ports(way.out().0)?, OUT);
            let count = counts.context("dump-ports shows no port into nothing")?.sent;
            // DPDK's null port counts no bytes.
            let frame_bytes = (self.kind == Kind::Sluice).then(|| way.out_bytes(FRAME_BYTES));
            sent.push((count, frame_bytes));
        }
        let dropped = by_ports + self.drops()?.saturating_sub(self.drops_before);
        Ok(Passed { received, sent, dropped })
    }

    /// The fault in the counters of the tunnel port in one direction, if any. They follow those of the megaflows after some
    /// time, and contain packets that were dropped between the tunnel port and the other one: up to `dropped`, while
    /// megaflows were made.
    ///
    /// The stock daemon counts a packet that it encapsulates with its inner and its outer size, and loses the last
    /// counts of a removed source, so that there only silence is a fault.
    fn tunnel_fault(&self, way: Tunnel, packets: u64, dropped: u64) -> Result<Option<String>> {
        let expected = packets..=packets + dropped;
        let mut seen = None;
        let settled = wait_for(SETTLE_LIMIT, "the counters of the tunnel", || {
            let ports = self.ports(BRIDGE).unwrap_or_default();
            seen = counts_of_port(&ports, TUNNEL).map(|counts| way.counted(counts));
            match self.kind {
                Kind::Sluice => {
                    seen.is_some_and(|s| expected.contains(&s.packets) && s.bytes == s.packets * FRAME_BYTES)
                }
                Kind::Dpdk => seen.is_some_and(|s| s.packets > 0),
            }
        });
        Ok(settled
            .is_err()
            .then(|| format!("the tunnel port counts {seen:?} instead of {expected:?} packets")))
    }

    /// The fault if rules of new connections count more than the first packets of them, while the stream goes on. Counters of
    /// rules follow those of megaflows, and a short run has few packets.
    fn unestablished(&self) -> Result<Option<String>> {
        let mut wrong = None;
        let settled = wait_for(SETTLE_LIMIT, "packets of established connections", || {
            let flows = self.daemon().and_then(|daemon| daemon.ovs("ovs-ofctl", &["dump-flows", BRIDGE]));
            wrong = flows.map_or_else(|e| Some(format!("{e:#}")), |flows| new_fault(&flows.stdout));
            wrong.is_none()
        });
        Ok(wrong.filter(|_| settled.is_err()))
    }

    fn ports(&self, bridge: &str) -> Result<String> {
        Ok(self.daemon()?.ovs("ovs-ofctl", &["dump-ports", bridge])?.stdout)
    }

    /// Packets dropped so far by the datapath, except for those that only ports count.
    fn drops(&self) -> Result<u64> {
        let coverage = self.appctl(&["coverage/show"])?;
        match self.kind {
            Kind::Sluice => Ok(all_drops(&self.appctl(&["sluice/status"])?)? + full_rings(&coverage)),
            Kind::Dpdk => Ok(datapath_drops(&coverage) + lost_lookups(&self.appctl(&["dpctl/show"])?)),
        }
    }

    /// Drops so far, by its datapath and its existing ports.
    fn present_drops(&self) -> Result<u64> {
        Ok(self.drops_of_ports()? + self.drops()?)
    }

    /// Drops when its threads have added all of them, or after [`SETTLE_LIMIT`] if ever more are dropped.
    fn settled_drops(&self) -> Result<u64> {
        let (start, mut last) = (Instant::now(), self.present_drops()?);
        loop {
            std::thread::sleep(COVERAGE_LAG);
            let now = self.present_drops()?;
            if now == last || start.elapsed() >= SETTLE_LIMIT {
                return Ok(now);
            }
            last = now;
        }
    }

    /// As [`Self::settled_drops`], without those at full receive rings.
    pub(crate) fn settled_drops_inside(&self) -> Result<u64> {
        Ok(self.settled_drops()?.saturating_sub(self.full_rings()?))
    }

    /// Packets dropped at full receive rings, as on any congested way.
    pub(crate) fn full_rings(&self) -> Result<u64> {
        Ok(full_rings(&self.appctl(&["coverage/show"])?))
    }

    /// Drops that only ports count, by the existing ones.
    fn drops_of_ports(&self) -> Result<u64> {
        match self.kind {
            Kind::Sluice => Ok(0),
            Kind::Dpdk => {
                let underlay = if self.has_underlay { self.ports(UNDERLAY)? } else { String::new() };
                Ok(sum_of_drops(&self.ports(BRIDGE)?) + sum_of_drops(&underlay))
            }
        }
    }
}

/// Counts of a stream.
pub(crate) struct Passed {
    /// Packets received by the forwarding threads.
    pub(crate) received: u64,
    /// Those sent by each port, with the bytes of a frame there if they are counted.
    pub(crate) sent: Vec<(Count, Option<u64>)>,
    /// Packets known as dropped.
    pub(crate) dropped: u64,
}

impl Passed {
    /// The fault, if any. No port has less than a third of another one's packets.
    pub(crate) fn fault(&self) -> Option<String> {
        let Passed { received, sent, dropped } = self;
        let mut out = String::new();
        if *received == 0 {
            out += "nothing was received; ";
        }
        let packets = || sent.iter().map(|(count, _)| count.packets);
        let all: u64 = packets().sum();
        if all > *received {
            let _ = write!(out, "{received} packets received, but {all} sent; ");
        }
        let lost = received.saturating_sub(all);
        if lost > *dropped {
            let _ = write!(out, "{lost} of {received} packets lost, {dropped} explained; ");
        }
        if packets().min().unwrap_or(0) * 3 < packets().max().unwrap_or(0) {
            let _ = write!(out, "directions have {:?} packets; ", packets().collect::<Vec<_>>());
        }
        for (count, frame_bytes) in sent {
            if let Some(each) = frame_bytes
                && count.bytes != count.packets * each
            {
                let _ = write!(out, "{} bytes in {} frames of {each}; ", count.bytes, count.packets);
            }
        }
        (!out.is_empty()).then(|| out.trim_end_matches("; ").to_string())
    }
}

/// The fault in the counts of an `ovs-ofctl dump-flows` if rules of new connections have more than a quarter of the packets of
/// those of established ones: connections without replies stay new, and their packets are tracked twice.
pub(crate) fn new_fault(flows: &str) -> Option<String> {
    let count = |state: &str| -> u64 {
        let rules =
            flows.lines().filter_map(|l| l.split_once(" actions=")).filter(|(m, _)| m.contains(state));
        let packets =
            rules.filter_map(|(m, _)| m.split("n_packets=").nth(1)?.split(',').next()?.parse::<u64>().ok());
        packets.sum()
    };
    let (new, established) = (count("+new"), count("+est"));
    (new * 4 > established || established == 0)
        .then(|| format!("{new} packets of new connections, {established} of established ones"))
}

fn max_idle() -> String {
    format!("other_config:max-idle={IDLE_MS}")
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A stopped process does not handle SIGTERM.
        if let Err(e) = self.wake() {
            eprintln!("bench: {}: {e:#}", self.name);
        }
    }
}
