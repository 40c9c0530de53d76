//! The switches that are compared: each with its own namespaces, two hosts, run directory and daemons. All stand at the same
//! time, so that measurements can take turns; who is not measured is idle.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Cmd, Daemon, DaemonSpec, RunDir, Topology, reachable};

/// The bridge of every side.
const BRIDGE: &str = "br0";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const REACHABLE_LIMIT: Duration = Duration::from_secs(10);

/// A kind of switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Side {
    /// This project's.
    Sluice,
    /// Debian's `ovs-vswitchd` with its userspace datapath (`datapath_type=netdev`).
    Ovs,
    /// The Linux bridge.
    Bridge,
}

impl Side {
    /// In the order of their turns.
    pub(crate) const ALL: [Side; 3] = [Side::Sluice, Side::Ovs, Side::Bridge];

    /// Name in results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Sluice => "sluice",
            Side::Ovs => "ovs-netdev",
            Side::Bridge => "linux-bridge",
        }
    }
}

/// A switch that stands.
pub(crate) struct Instance {
    pub(crate) side: Side,
    // The daemons end before their namespaces go.
    daemons: Vec<Daemon>,
    pub(crate) net: Topology,
}

impl Instance {
    /// Builds a switch with two hosts; its daemons run on processor `cpu`.
    ///
    /// # Errors
    /// When the machine lacks what it needs, or the hosts do not reach each other through it.
    pub(crate) fn start(side: Side, sluiced: &Path, cpu: usize) -> Result<Instance> {
        let net = Topology::new(2)?;
        let daemons = match side {
            Side::Sluice => vec![start_sluice(&net, sluiced, cpu)?],
            Side::Ovs => start_ovs(&net, cpu)?,
            Side::Bridge => {
                net.switch.ip(&format!("link add {BRIDGE} type bridge stp_state 0 mcast_snooping 0"))?;
                for port in net.ports() {
                    net.switch.ip(&format!("link set dev {port} master {BRIDGE}"))?;
                }
                net.switch.up(BRIDGE)?;
                Vec::new()
            }
        };
        let instance = Instance { side, daemons, net };
        if let Some(daemon) = instance.daemons.first() {
            let mut args = vec!["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"];
            for port in instance.net.ports() {
                args.extend(["--", "add-port", BRIDGE, port]);
            }
            daemon.ovs("ovs-vsctl", &args)?;
        }
        let [a, b] = &instance.net.hosts[..] else { bail!("a line has two ends") };
        reachable(&a.netns, b.ipv4.into(), REACHABLE_LIMIT)
            .with_context(|| format!("{}: hosts do not reach each other", side.name()))?;
        Ok(instance)
    }

    /// Process ids of its daemons, the forwarding one first.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.daemons.iter().map(Daemon::pid).collect()
    }

    /// What its own port counters say that it dropped so far; `None` for a switch without such counters.
    pub(crate) fn own_drops(&self) -> Option<u64> {
        let text = self.daemons.first()?.ovs("ovs-ofctl", &["dump-ports", BRIDGE]).ok()?.stdout;
        Some(sum_of_drops(&text))
    }

    /// Switches the offloads of all hosts and ports.
    pub(crate) fn set_offloads(&self, on: bool) -> Result<()> {
        for host in &self.net.hosts {
            host.netns.set_offloads(&host.dev, on)?;
            self.net.switch.set_offloads(&host.port, on)?;
        }
        Ok(())
    }
}

/// The sum of all `drop=N` of an `ovs-ofctl dump-ports`.
pub(crate) fn sum_of_drops(text: &str) -> u64 {
    let values = text.split("drop=").skip(1);
    values.filter_map(|t| t.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()).sum()
}

/// A daemon's specification, bound to a processor by taskset(1), which becomes the daemon.
fn on_cpu(program: &Path, net: &Topology, cpu: usize) -> Result<DaemonSpec> {
    let spec = DaemonSpec::new("taskset")?.netns(&net.switch);
    Ok(spec.args(["-c".into(), cpu.to_string().into(), program.as_os_str().to_owned()]))
}

fn start_sluice(net: &Topology, sluiced: &Path, cpu: usize) -> Result<Daemon> {
    on_cpu(sluiced, net, cpu)?.args(["-vconsole:off", "--log-file"]).start()
}

/// Starts the stock daemon and its database server; the daemon comes first in the answer.
fn start_ovs(net: &Topology, cpu: usize) -> Result<Vec<Daemon>> {
    let spec = on_cpu(Path::new("ovsdb-server"), net, cpu)?;
    let run: RunDir = spec.run_directory().clone();
    let db = run.join("conf.db");
    Cmd::new("ovsdb-tool").arg("create").arg(&db).arg(SCHEMA).run()?;
    let remote = format!("--remote=p{}", run.db());
    let server = spec
        .args([db.into_os_string(), remote.into(), "-vconsole:off".into(), "--log-file".into()])
        .ready_file("db.sock")
        .start()?;
    run.ovs("ovs-vsctl", &["--no-wait", "init"])?;
    let daemon = on_cpu(Path::new("ovs-vswitchd"), net, cpu)?
        .rundir(&run)
        .args([run.db().as_str(), "-vconsole:off", "--log-file", "--disable-system", "--pidfile"])
        .start()?;
    Ok(vec![daemon, server])
}

/// The daemon to measure: given, in `SLUICE_BIN_DIR`, or beside this program.
pub(crate) fn find_sluiced(given: Option<PathBuf>) -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("sluiced"));
    let from_env = || std::env::var_os("SLUICE_BIN_DIR").map(|dir| PathBuf::from(dir).join("sluiced"));
    let path = given.or_else(from_env).or_else(beside).context("this program does not know its own path")?;
    if !path.is_file() {
        bail!(
            "{}: no such program; build it (cargo build --release -p sluiced) or name it by --sluiced",
            path.display()
        );
    }
    Ok(std::path::absolute(path)?)
}
