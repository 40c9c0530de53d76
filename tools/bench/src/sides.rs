//! The switches compared on veth pairs: each with its own namespaces, two hosts, run directory and daemons.
//! All exist at the same time, so that measurements can alternate; the others are idle.

use crate::daemons::{self, cpu_ns};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testkit::{Daemon, Netns, ServiceManager, Signal, Topology, if_name, reachable};

/// The bridge of every side.
const BRIDGE: &str = "br0";
/// The second bridge of two that are joined.
const JOINED: &str = "br1";
const PORTS_A_CALL: usize = 20;
const REACHABLE_LIMIT: Duration = Duration::from_secs(10);

/// A kind of switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// This project's.
    Sluice,
    /// Another build of it, to compare with.
    Before,
    /// This project's without one of its optimisations.
    Without(&'static str),
    /// This project's on `afxdp` ports.
    SluiceAfxdp,
    /// The stock daemon with its userspace datapath (`datapath_type=netdev`).
    Ovs,
    /// The stock daemon with large segments kept.
    OvsTso,
    /// The stock daemon on `afxdp` ports, if built with them.
    OvsAfxdp,
    /// The Linux bridge.
    Bridge,
}

impl Side {
    /// Name in results.
    pub(crate) fn name(self) -> String {
        match self {
            Side::Sluice => "sluice".into(),
            Side::Before => "sluice-before".into(),
            Side::Without(what) => format!("sluice without {what}"),
            Side::SluiceAfxdp => "sluice-afxdp".into(),
            Side::Ovs => "ovs-netdev".into(),
            Side::OvsTso => "ovs-netdev, tso".into(),
            Side::OvsAfxdp => "ovs-afxdp".into(),
            Side::Bridge => "linux-bridge".into(),
        }
    }

    /// Whether it is this project's, of any build.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Side::Sluice | Side::Before | Side::Without(_) | Side::SluiceAfxdp)
    }

    fn port_type(self) -> Option<&'static str> {
        matches!(self, Side::SluiceAfxdp | Side::OvsAfxdp).then_some("type=afxdp")
    }
}

/// Two bridges in place of one, a host at each, and what joins them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Joint {
    /// A veth pair.
    Port,
    /// Two veth pairs, bonded with LACP and hashed by flow in the datapath.
    Bond,
}

/// A way to restart a switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Restart {
    /// None, for comparison.
    None,
    /// Sluice hands over to a new process; others exit and start.
    Planned,
    /// It is killed, and starts.
    Kill,
}

/// Longest time of a daemon's end.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Waits for the end of a daemon, and sees it within a millisecond.
fn await_end(mut ended: impl FnMut() -> bool) -> Result<()> {
    let until = Instant::now() + END_LIMIT;
    while !ended() {
        ensure!(Instant::now() < until, "the daemon did not end within {} s", END_LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A process that took a switch over; this program is not its parent. Ends with this.
struct Successor(u32);

impl Successor {
    fn ends(&self, signal: &str) -> Result<()> {
        // An ended process stays until its foster parent has asked for its status.
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        let lives = || state().rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'));
        testkit::Cmd::new("kill").args([signal, &self.0.to_string()]).output()?;
        await_end(|| !lives())
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Err(why) = self.ends("-TERM") {
            eprintln!("bench: process {}: {why:#}", self.0);
        }
    }
}

/// A running switch.
pub(crate) struct Instance {
    pub(crate) side: Side,
    joint: Option<Joint>,
    // Dropped before their namespaces. Locked for one call at a time.
    successor: Mutex<Option<Successor>>,
    daemons: Mutex<Vec<Daemon>>,
    manager: Option<ServiceManager>,
    program: PathBuf,
    cpu: usize,
    pub(crate) net: Topology,
    /// The far ends of ports that stay idle.
    _idle: Option<Netns>,
}

/// Parameters of an [`Instance`].
pub(crate) struct Build<'a> {
    /// Program of a side of this project.
    pub(crate) sluiced: &'a Path,
    /// Processor of the daemons.
    pub(crate) cpu: usize,
    /// Number of ports, those of the two hosts included.
    pub(crate) ports: usize,
    /// `None`: all ports have one bridge.
    pub(crate) joint: Option<Joint>,
    /// A service manager runs the daemon, as its unit has it.
    pub(crate) managed: bool,
}

impl Instance {
    /// Name in results.
    pub(crate) fn name(&self) -> String {
        let suffix = match self.joint {
            None => "",
            Some(Joint::Port) => ", one port",
            Some(Joint::Bond) => ", bond",
        };
        self.side.name() + suffix
    }

    /// Builds a switch with two hosts, and rules that match its flows up to the UDP ports.
    ///
    /// # Errors
    /// If the machine lacks a requirement, or the hosts cannot reach each other through it.
    pub(crate) fn start(side: Side, build: &Build) -> Result<Instance> {
        let net = Topology::new(2)?;
        let (idle, mut ports) = idle_ports(&net.switch, build.ports.saturating_sub(2))?;
        ports.splice(0..0, net.ports().into_iter().map(str::to_string));
        let manager = match build.managed {
            true => Some(ServiceManager::start(&std::env::temp_dir().join(if_name("notify")))?),
            false => None,
        };
        let daemons = start_daemons(side, &net.switch, build.sluiced, Some(build.cpu), manager.as_ref())?;
        let program = if side.is_ours() { build.sluiced } else { Path::new(daemons::stock()) }.to_path_buf();
        let (successor, daemons) = (Mutex::new(None), Mutex::new(daemons));
        let (joint, cpu) = (build.joint, build.cpu);
        let instance = Instance { side, joint, successor, daemons, manager, program, cpu, net, _idle: idle };
        instance.configure(&ports)?;
        let [a, b] = &instance.net.hosts[..] else { bail!("a line has two ends") };
        reachable(&a.netns, b.ipv4.into(), REACHABLE_LIMIT)
            .with_context(|| format!("{}: hosts do not reach each other", side.name()))?;
        instance.rest()?;
        Ok(instance)
    }

    fn daemons(&self) -> MutexGuard<'_, Vec<Daemon>> {
        self.daemons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a stock tool against its daemon.
    fn ovs(&self, tool: &str, args: &[&str], input: &str) -> Result<String> {
        let cmd = self.daemons().first().context("no daemon")?.tool(tool);
        Ok(cmd.args(args.iter().copied()).input(input).run()?.stdout)
    }

    /// Resumes a busy-polling daemon only while `work` runs: it would take the processor from the others.
    /// Otherwise it is stopped as a process (SIGSTOP).
    pub(crate) fn awake<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.wake()?;
        let done = work();
        self.rest()?;
        done
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let spins = self.side == Side::OvsAfxdp;
        self.daemons().iter_mut().filter(|_| spins).try_for_each(|d| d.signal(signal))
    }

    fn wake(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn rest(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    fn configure(&self, ports: &[String]) -> Result<()> {
        if self.side == Side::Bridge {
            let mut script = format!("link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0\n");
            ports.iter().for_each(|p| script += &format!("link set dev {p} master {BRIDGE}\n"));
            script += &format!("link set dev {BRIDGE} up\n");
            return batch(&self.net.switch, script);
        }
        if self.side == Side::OvsAfxdp {
            let types = self.ovs("ovs-vsctl", &["get", "Open_vSwitch", ".", "iface_types"], "")?;
            ensure!(types.contains("afxdp"), "the stock daemon here is built without AF_XDP");
        }
        if let Some(joint) = self.joint {
            return self.join(joint, ports);
        }
        let kind = "datapath_type=netdev";
        self.ovs("ovs-vsctl", &["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, kind], "")?;
        // A call for a hundred ports may exceed a tool's timeout.
        for some in ports.chunks(PORTS_A_CALL) {
            let mut args = Vec::new();
            for port in some {
                args.extend(["--", "add-port", BRIDGE, port]);
                if let Some(kind) = self.side.port_type() {
                    args.extend(["--", "set", "Interface", port, kind]);
                }
            }
            self.ovs("ovs-vsctl", &args, "")?;
        }
        let (a, b) = (self.number(&ports[0])?, self.number(&ports[1])?);
        let rules = format!(
            "priority=200,in_port={a},udp,nw_src=10.99.0.0/16,tp_dst=5000,actions=output:{b}\n\
             priority=200,in_port={b},udp,nw_src=10.98.0.0/16,tp_dst=5000,actions=output:{a}\n"
        );
        self.ovs("ovs-ofctl", &["add-flows", BRIDGE, "-"], &rules).map(drop)
    }

    /// Creates both bridges and what joins them.
    fn join(&self, joint: Joint, ports: &[String]) -> Result<()> {
        let count = if joint == Joint::Bond { 2 } else { 1 };
        let wires: Vec<[String; 2]> = (0..count).map(|_| [if_name("w"), if_name("w")]).collect();
        let mut script = String::new();
        for [near, far] in &wires {
            script += &format!("link add name {near} type veth peer name {far}\n");
            for end in [near, far] {
                script += &format!("link set dev {end} addrgenmode none up\n");
            }
        }
        batch(&self.net.switch, script)?;
        let mut words = String::new();
        for (at, (bridge, host)) in [BRIDGE, JOINED].into_iter().zip(ports).enumerate() {
            let ends = wires.iter().map(|wire| wire[at].as_str()).collect::<Vec<_>>().join(" ");
            let added = match joint {
                Joint::Port => format!("add-port {bridge} {ends}"),
                Joint::Bond => format!("add-bond {bridge} joint{at} {ends} {BOND}"),
            };
            words += &format!(
                " -- add-br {bridge} -- set bridge {bridge} datapath_type=netdev -- add-port {bridge} {host} -- {added}"
            );
        }
        self.ovs("ovs-vsctl", &words.split_whitespace().collect::<Vec<_>>(), "")?;
        if joint == Joint::Bond {
            bonds_agree(&["joint0", "joint1"], |args| self.appctl(args))?;
        }
        Ok(())
    }

    /// Replaces the rules of its bridge.
    pub(crate) fn replace_rules(&self, rules: &str) -> Result<()> {
        self.ovs("ovs-ofctl", &["del-flows", BRIDGE], "")?;
        self.ovs("ovs-ofctl", &["add-flows", BRIDGE, "-"], rules).map(drop)
    }

    /// Adds rules to its bridge.
    pub(crate) fn add_rules(&self, rules: impl Iterator<Item = String>) -> Result<()> {
        let rules: String = rules.map(|rule| rule + "\n").collect();
        self.ovs("ovs-ofctl", &["add-flows", BRIDGE, "-"], &rules).map(drop)
    }

    /// Restarts its forwarding daemon: until a planned handover is over, or the new process has begun.
    pub(crate) fn restart(&self, how: Restart) -> Result<()> {
        if how == Restart::None {
            return Ok(());
        }
        let mut successor = self.successor.lock().unwrap_or_else(PoisonError::into_inner);
        if how == Restart::Planned && self.side.is_ours() {
            self.ovs("ovs-appctl", &["sluice/handover"], "")?;
            let file = self.daemons().first().context("no daemon")?.rundir().join("ovs-vswitchd.pid");
            testkit::wait_for(END_LIMIT, "the pid file of the new process", || file.exists())?;
            let pid = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            let pid = pid.trim().parse().with_context(|| file.display().to_string())?;
            // The one before has ended.
            std::mem::forget(successor.replace(Successor(pid)));
            return Ok(());
        }
        let mut daemons = self.daemons();
        let daemon = daemons.first_mut().context("no daemon")?;
        let signal = if how == Restart::Kill { Signal::KILL } else { Signal::TERM };
        match successor.take() {
            Some(running) => {
                let ended = running.ends(if how == Restart::Kill { "-KILL" } else { "-TERM" });
                std::mem::forget(running);
                ended?;
            }
            None => {
                daemon.signal(signal)?;
                await_end(|| daemon.status().is_some())?;
            }
        }
        let (program, ours) = (&self.program, self.side.is_ours());
        let (switch, manager) = (&self.net.switch, self.manager.as_ref());
        let next = daemons::start_again(switch, program, daemon, ours, self.cpu, manager)?;
        std::mem::replace(daemon, next).crash().map(drop)?;
        Ok(())
    }

    /// Reply to a command of its daemon.
    pub(crate) fn appctl(&self, args: &[&str]) -> Result<String> {
        daemons::appctl(self.daemons().first().context("no daemon")?, "ovs-vswitchd", args)
    }

    /// OpenFlow number of a port.
    pub(crate) fn number(&self, port: &str) -> Result<u32> {
        let text = self.ovs("ovs-vsctl", &["get", "Interface", port, "ofport"], "")?;
        text.trim().parse().with_context(|| format!("port {port} has the number {}", text.trim()))
    }

    /// Process ids of its daemons, the forwarding one first.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.daemons().iter().map(Daemon::pid).collect()
    }

    /// Processor time of its daemons until now, in ns.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        self.pids().into_iter().map(cpu_ns).sum()
    }

    /// Drops so far by its own port counters; `None` for a switch without such counters.
    pub(crate) fn own_drops(&self) -> Option<u64> {
        let bridges = if self.joint.is_some() { &[BRIDGE, JOINED][..] } else { &[BRIDGE] };
        let drops =
            |bridge: &&str| Some(sum_of_drops(&self.ovs("ovs-ofctl", &["dump-ports", bridge], "").ok()?));
        bridges.iter().map(drops).sum()
    }

    /// Switches the offloads of all hosts and their ports.
    pub(crate) fn set_offloads(&self, on: bool) -> Result<()> {
        for host in &self.net.hosts {
            host.netns.set_offloads(&host.dev, on)?;
            self.net.switch.set_offloads(&host.port, on)?;
        }
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A stopped process does not handle SIGTERM.
        if let Err(e) = self.wake() {
            eprintln!("bench: {}: {e:#}", self.side.name());
        }
    }
}

/// Starts the daemons of a side, the forwarding one first, on processor `cpu` if given.
pub(crate) fn start_daemons(
    side: Side,
    netns: &Netns,
    sluiced: &Path,
    cpu: Option<usize>,
    manager: Option<&ServiceManager>,
) -> Result<Vec<Daemon>> {
    let ours = |args: &[String]| Ok(vec![daemons::start_sluice(netns, sluiced, args, cpu, manager)?]);
    let stock = |settings: &[&str]| daemons::start_stock(netns, daemons::stock(), settings, &[], cpu);
    match side {
        Side::Sluice | Side::Before | Side::SluiceAfxdp => ours(&[]),
        Side::Without(what) => ours(&[format!("--without={what}")]),
        Side::Ovs => stock(&[]),
        // Its forwarding thread binds itself.
        Side::OvsAfxdp => {
            let cpu = cpu.context("a thread that polls without end needs a processor")?;
            stock(&[&format!("other_config:pmd-cpu-mask={:#x}", 1_u64 << cpu)])
        }
        Side::OvsTso => stock(&["other_config:userspace-tso-enable=true"]),
        Side::Bridge => Ok(Vec::new()),
    }
}

/// Settings of a bond that hashes flows in the datapath, and negotiates.
pub(crate) const BOND: &str =
    "bond_mode=balance-tcp lacp=active other_config:lacp-time=fast other_config:lb-output-action=true";

/// Waits until both ends of a bond have enabled both members; `appctl` asks their daemon.
pub(crate) fn bonds_agree(names: &[&str], appctl: impl Fn(&[&str]) -> Result<String>) -> Result<()> {
    let agrees = |name: &&str| {
        let shown = appctl(&["bond/show", name]).unwrap_or_default();
        shown.contains("lacp_status: negotiated") && shown.matches(": enabled").count() >= 2
    };
    testkit::wait_for(REACHABLE_LIMIT, "an agreement about the bond", || names.iter().all(agrees))
}

/// Runs `ip` with a script of commands, within a namespace.
pub(crate) fn batch(netns: &Netns, script: String) -> Result<()> {
    testkit::Cmd::new("ip").args(["-n", netns.name(), "-batch", "-"]).input(script).run().map(drop)
}

/// Ports that are up and silent, their far ends in a separate namespace; returns the names of the ports.
fn idle_ports(switch: &Netns, count: usize) -> Result<(Option<Netns>, Vec<String>)> {
    if count == 0 {
        return Ok((None, Vec::new()));
    }
    let far = Netns::new("idle")?;
    // IPv6 addresses would make them send.
    far.run("sysctl", &["-q", "-w", "net.ipv6.conf.default.disable_ipv6=1"])?;
    let pairs: Vec<(String, String)> = (0..count).map(|_| (if_name("i"), if_name("i"))).collect();
    let mut script = String::new();
    for (near, end) in &pairs {
        script += &format!("link add name {near} type veth peer name {end} netns {}\n", far.name());
        script += &format!("link set dev {near} addrgenmode none up\n");
    }
    batch(switch, script)?;
    batch(&far, pairs.iter().map(|(_, end)| format!("link set dev {end} up\n")).collect())?;
    Ok((Some(far), pairs.into_iter().map(|(near, _)| near).collect()))
}

/// The sum of all `drop=N` of an `ovs-ofctl dump-ports`.
pub(crate) fn sum_of_drops(text: &str) -> u64 {
    let values = text.split("drop=").skip(1);
    values.filter_map(|t| t.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()).sum()
}
