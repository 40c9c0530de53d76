//! Daemons without a network: capture files are played into a port that sends into nothing, so what is measured is the
//! datapath alone, by its own counters.
//!
//! All labs stand at the same time. A file that is played for ever keeps its thread busy, so whoever is not being measured is
//! stopped as a process (SIGSTOP): it costs nothing then, keeps its flows and caches, and goes on at once. Flows do not
//! grow old meanwhile (`max-idle`).

use crate::daemons::{self, STOCK_DPDK};
use crate::pmdstats::{PmdStats, PortSent, datapath_drops, lost_lookups, port_drops, sent_by_port};
use crate::sides::sum_of_drops;
use crate::works::{OUT, Source, Work};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::{Daemon, Netns, Signal, wait_for};

const BRIDGE: &str = "br0";
/// Until a work's packets are seen, and its megaflows are all there.
const FLOWING_LIMIT: Duration = Duration::from_secs(30);
const IDLE_MS: u64 = 3_600_000;
/// Memory of DPDK, in MB: room for a capture of 100,000 frames in packet buffers.
const DPDK_MEMORY_MB: u32 = 1024;
/// Pages of 2 MB that this takes.
pub(crate) const DPDK_PAGES: u64 = 768;

/// Bytes of each frame.
const FRAME_BYTES: u64 = crate::frames::FRAME_BYTES as u64;

/// Whose ports they are: the two name types and options differently.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sluice,
    Dpdk,
}

/// A daemon with its database.
pub(crate) struct Lab {
    /// Of the side, in results.
    pub(crate) name: String,
    kind: Kind,
    // The daemons end before their namespace goes.
    daemons: Vec<Daemon>,
    _netns: Netns,
    /// Sources of the work that is installed.
    sources: Vec<u32>,
    /// Devices of DPDK are numbered; no number comes twice.
    devices: u32,
    /// What had been dropped when the work was installed.
    drops_before: u64,
    /// Resident memory before the first work.
    memory_at_first: Option<u64>,
}

/// What was counted in some time.
pub(crate) struct Interval {
    pub(crate) stats: PmdStats,
    pub(crate) seconds: f64,
}

/// What a lab had counted at a moment.
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
        let daemon = daemons::start_sluice(&netns, sluiced, args, None)?;
        let mask = format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << cpu);
        daemon.ovs("ovs-vsctl", &["set", "Open_vSwitch", ".", &mask, &max_idle()])?;
        Lab::with(name, Kind::Sluice, vec![daemon], netns)
    }

    /// Starts the stock daemon with DPDK, its forwarding thread on processor `cpu` and the rest on `other`, with more
    /// arguments. Its memory belongs to it alone and leaves no file.
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
            _netns: netns,
            sources: Vec::new(),
            devices: 0,
            drops_before: 0,
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

    /// Its control socket: there is no pid file, which would be there before the daemon is ready.
    fn control_socket(&self) -> Result<PathBuf> {
        let daemon = self.daemon()?;
        let program = match self.kind {
            Kind::Sluice => "ovs-vswitchd",
            Kind::Dpdk => "ovs-vswitchd-dpdk",
        };
        Ok(daemon.rundir().join(&format!("{program}.{}.ctl", daemon.pid())))
    }

    fn appctl(&self, args: &[&str]) -> Result<String> {
        let tool = self.daemon()?.tool("ovs-appctl").arg("-t").arg(self.control_socket()?);
        Ok(tool.args(args.iter().copied()).run()?.stdout)
    }

    /// Lets it run.
    pub(crate) fn wake(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(|d| d.signal(Signal::CONT))
    }

    /// Stops it as a process.
    pub(crate) fn rest(&mut self) -> Result<()> {
        self.daemons.iter_mut().try_for_each(|d| d.signal(Signal::STOP))
    }

    /// Lets it run while `work` is done, and no longer.
    pub(crate) fn awake<T>(&mut self, work: impl FnOnce(&mut Lab) -> Result<T>) -> Result<T> {
        self.wake()?;
        let done = work(self);
        self.rest()?;
        done
    }

    /// Cache between packets and megaflows as the daemon has it by itself, or off.
    pub(crate) fn set_cache(&self, on: bool) -> Result<()> {
        if on {
            return self.vsctl(&["remove", "Open_vSwitch", ".", "other_config", "emc-insert-inv-prob"]);
        }
        self.vsctl(&["set", "Open_vSwitch", ".", "other_config:emc-insert-inv-prob=0"])
    }

    /// Replaces what it forwards, and waits until all the megaflows of it are there.
    pub(crate) fn install(&mut self, work: &Work) -> Result<()> {
        self.begin(work)?;
        let (mut last, mut seen) = (None, 0);
        let waited = wait_for(FLOWING_LIMIT, "packets and their megaflows", || {
            let count = self.megaflows();
            seen = count.as_ref().map_or(0, |n| *n);
            last = count.err();
            seen == work.megaflows
        });
        waited.with_context(|| {
            let why = last.map(|e| format!("{e:#}")).unwrap_or_default();
            format!("{}, {}: {seen} megaflows instead of {} {why}", self.name, work.title, work.megaflows)
        })
    }

    /// Replaces what it forwards; what it had counted before the first packet could come.
    pub(crate) fn begin(&mut self, work: &Work) -> Result<Now> {
        self.remove_sources()?;
        self.vsctl(&["--if-exists", "del-port", BRIDGE, "out"])?;
        let daemon = self.daemon()?;
        let rules = work.rules.join("\n");
        daemon.ovs("ovs-ofctl", &["del-flows", BRIDGE])?;
        daemon.tool("ovs-ofctl").args(["add-flows", BRIDGE, "-"]).input(rules).run()?;
        self.appctl(&["dpif-netdev/pmd-stats-clear"])?;
        self.drops_before = self.drops()?;
        // Whoever sends comes last: no packet arrives before its way is there.
        self.add_port("out", OUT, None)?;
        let memory = resident_bytes(self.daemon()?.pid())?;
        self.memory_at_first.get_or_insert(memory);
        // Without a port a forwarding thread may not run yet.
        let before = self.now().unwrap_or_else(|_| Now::none());
        for source in &work.sources {
            self.add_port(&format!("in{}", source.port), source.port, Some(source))?;
            self.sources.push(source.port);
        }
        Ok(before)
    }

    /// What it has counted by now, asked without a program in between.
    pub(crate) fn now(&self) -> Result<Now> {
        let stats = PmdStats::parse(&self.ask("dpif-netdev/pmd-stats-show")?)?;
        let at = Instant::now();
        let shown = self.ask("dpctl/show")?;
        let flows = shown.lines().find_map(|l| l.trim().strip_prefix("flows: "));
        let megaflows = flows.and_then(|n| n.parse().ok()).context("dpctl/show shows no flows")?;
        Ok(Now { at, stats, megaflows })
    }

    /// Bytes of memory that it has taken since the first work began.
    pub(crate) fn memory_taken(&self) -> Result<u64> {
        let now = resident_bytes(self.daemon()?.pid())?;
        Ok(now.saturating_sub(self.memory_at_first.unwrap_or(now)))
    }

    /// The answer to a command of the control socket (JSON-RPC 1.0).
    fn ask(&self, command: &str) -> Result<String> {
        let path = self.control_socket()?;
        let mut socket = UnixStream::connect(&path).with_context(|| path.display().to_string())?;
        socket.write_all(json!({ "id": 0, "method": command, "params": [] }).to_string().as_bytes())?;
        let answer: Value = serde_json::Deserializer::from_reader(socket)
            .into_iter()
            .next()
            .context("the control socket was closed")??;
        answer["result"].as_str().map(String::from).with_context(|| format!("{command}: {answer}"))
    }

    fn add_port(&mut self, name: &str, number: u32, source: Option<&Source>) -> Result<()> {
        self.devices += 1;
        let device = self.devices;
        let mut args: Vec<String> = ["add-port", BRIDGE, name, "--", "set", "Interface", name]
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

    fn remove_sources(&mut self) -> Result<()> {
        for port in std::mem::take(&mut self.sources) {
            self.vsctl(&["del-port", BRIDGE, &format!("in{port}")])?;
        }
        Ok(())
    }

    /// Megaflows of its forwarding threads.
    pub(crate) fn megaflows(&self) -> Result<usize> {
        let flows = self.appctl(&["dpctl/dump-flows"])?;
        Ok(flows.lines().filter(|l| l.contains("in_port(")).count())
    }

    fn stats(&self) -> Result<PmdStats> {
        // A forwarding thread of Sluice adds its cycles up once a second, and when it is asked for its load.
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

    /// The same with counters that begin at zero, so that averages are those of the interval to the last digit.
    pub(crate) fn count_anew(&self, time: Duration) -> Result<Interval> {
        self.appctl(&["dpif-netdev/pmd-stats-clear"])?;
        let start = Instant::now();
        std::thread::sleep(time);
        Ok(Interval { stats: self.stats()?, seconds: start.elapsed().as_secs_f64() })
    }

    /// Ends the stream, and compares what its threads received since the work was installed with what the port into nothing
    /// sent: what is wrong, in words, if anything is.
    pub(crate) fn settle(&mut self) -> Result<Option<String>> {
        let by_ports = self.drops_of_ports()?;
        self.remove_sources()?;
        let stats = self.stats()?;
        let ports = self.daemon()?.ovs("ovs-ofctl", &["dump-ports", BRIDGE])?.stdout;
        let sent = sent_by_port(&ports, OUT).context("dump-ports shows no port into nothing")?;
        let dropped = by_ports + self.drops()?.saturating_sub(self.drops_before);
        let counts_bytes = self.kind == Kind::Sluice;
        Ok(complaint(stats.received, sent, dropped, counts_bytes))
    }

    /// Packets that the datapath dropped so far for a reason that counts nowhere but here.
    fn drops(&self) -> Result<u64> {
        let by_reason = datapath_drops(&self.appctl(&["coverage/show"])?);
        match self.kind {
            // Its ports name the others, by reason.
            Kind::Sluice => Ok(by_reason),
            Kind::Dpdk => Ok(by_reason + lost_lookups(&self.appctl(&["dpctl/show"])?)),
        }
    }

    /// What the ports that are there say was dropped of theirs.
    fn drops_of_ports(&self) -> Result<u64> {
        match self.kind {
            Kind::Sluice => port_drops(&self.appctl(&["sluice/status"])?),
            Kind::Dpdk => {
                let ports = self.daemon()?.ovs("ovs-ofctl", &["dump-ports", BRIDGE])?.stdout;
                Ok(sum_of_drops(&ports))
            }
        }
    }
}

/// What is wrong with a stream's accounts. (DPDK's port into nothing counts no bytes.)
pub(crate) fn complaint(received: u64, sent: PortSent, dropped: u64, counts_bytes: bool) -> Option<String> {
    let mut out = String::new();
    if received == 0 {
        out += "nothing was received; ";
    }
    if sent.packets > received {
        let _ = write!(out, "{} packets received, but {} sent; ", received, sent.packets);
    }
    let lost = received.saturating_sub(sent.packets);
    if lost > dropped {
        let _ = write!(out, "{lost} of {received} packets lost, {dropped} explained; ");
    }
    if counts_bytes && sent.bytes != sent.packets * FRAME_BYTES {
        let _ = write!(out, "{} bytes in {} frames of {FRAME_BYTES}; ", sent.bytes, sent.packets);
    }
    (!out.is_empty()).then(|| out.trim_end_matches("; ").to_string())
}

fn max_idle() -> String {
    format!("other_config:max-idle={IDLE_MS}")
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A stopped process does not hear SIGTERM.
        if let Err(e) = self.wake() {
            eprintln!("bench: {}: {e:#}", self.name);
        }
    }
}
