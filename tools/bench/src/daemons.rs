//! The compared daemons, each in a namespace and with its own run directory. They are named by path, as
//! packages share the name `ovs-vswitchd` among several programs.

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use testkit::{Daemon, DaemonSpec, Netns, ServiceManager};

/// Paths of the stock daemon, and the same one built with DPDK, in Debian's packages.
const STOCK: &str = "/usr/lib/openvswitch-switch/ovs-vswitchd";
pub(crate) const STOCK_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";

/// The stock daemon without DPDK: at its Debian path, or in the PATH elsewhere.
pub(crate) fn stock() -> &'static str {
    if Path::new(STOCK).is_file() { STOCK } else { "ovs-vswitchd" }
}

/// Whether the daemon with DPDK is installed.
pub(crate) fn stock_dpdk() -> Result<()> {
    ensure!(Path::new(STOCK_DPDK).is_file(), "{STOCK_DPDK} is not installed (scripts/setup.sh bench)");
    Ok(())
}

/// A daemon's specification, bound to a processor by taskset(1), which becomes the daemon; `None` leaves it
/// unbound.
fn on_cpu(program: &Path, netns: &Netns, cpu: Option<usize>) -> Result<DaemonSpec> {
    let Some(cpu) = cpu else { return Ok(DaemonSpec::new(program)?.netns(netns)) };
    let spec = DaemonSpec::new("taskset")?.netns(netns);
    Ok(spec.args(["-c".into(), cpu.to_string().into(), program.as_os_str().to_owned()]))
}

/// Starts Sluice with more arguments, perhaps under a service manager.
pub(crate) fn start_sluice(
    netns: &Netns,
    sluiced: &Path,
    args: &[String],
    cpu: Option<usize>,
    manager: Option<&ServiceManager>,
) -> Result<Daemon> {
    let spec = on_cpu(sluiced, netns, cpu)?;
    let spec = manager.into_iter().fold(spec, DaemonSpec::manager);
    spec.args(["--disable-system", "-vconsole:off", "--log-file", "--pidfile"]).args(args).start()
}

/// Starts a stock daemon with extra arguments and its database server, with settings of the `Open_vSwitch`
/// row; the daemon is first in the result.
pub(crate) fn start_stock(
    netns: &Netns,
    program: &str,
    settings: &[&str],
    args: &[&str],
    cpu: Option<usize>,
) -> Result<Vec<Daemon>> {
    let log = ["--log-file"].as_slice();
    let args = [log, args].concat();
    testkit::start_stock(|program| on_cpu(program, netns, cpu), program, settings, [log, &args])
}

/// Starts Sluice, or the stock daemon with its database server running, in the run directory of one that has ended.
pub(crate) fn start_again(
    netns: &Netns,
    program: &Path,
    ended: &Daemon,
    is_ours: bool,
    cpu: usize,
    manager: Option<&ServiceManager>,
) -> Result<Daemon> {
    let run = ended.rundir();
    let spec = on_cpu(program, netns, Some(cpu))?.rundir(run);
    let spec = if is_ours { spec } else { spec.args([run.db()]) };
    let spec = manager.into_iter().fold(spec, DaemonSpec::manager);
    spec.args(["--disable-system", "-vconsole:off", "--log-file", "--pidfile"]).start()
}

/// Control socket of a daemon that is named `program`: a pid file would exist before the daemon is ready.
pub(crate) fn control_socket(daemon: &Daemon, program: &str) -> PathBuf {
    daemon.rundir().join(&format!("{program}.{}.ctl", daemon.pid()))
}

/// Reply to a command of ovs-appctl(8).
pub(crate) fn appctl(daemon: &Daemon, program: &str, args: &[&str]) -> Result<String> {
    let tool = daemon.tool("ovs-appctl").arg("-t").arg(control_socket(daemon, program));
    Ok(tool.args(args.iter().copied()).run()?.stdout)
}

/// Processor time of all threads of a process, in ns (`/proc/PID/task/*/schedstat`).
pub(crate) fn cpu_ns(pid: u32) -> Result<u64> {
    let tasks =
        std::fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid} is gone"))?;
    let of = |entry: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(entry.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    Ok(tasks.flatten().filter_map(of).sum())
}

/// The daemon to measure: the given one, in `SLUICE_BIN_DIR`, or beside this program.
pub(crate) fn find_sluiced(given: Option<PathBuf>) -> Result<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join("sluiced"));
    let from_env = || std::env::var_os("SLUICE_BIN_DIR").map(|dir| PathBuf::from(dir).join("sluiced"));
    absolute(&given.or_else(from_env).or_else(beside).context("this program does not know its own path")?)
}

/// The absolute path of an existing program: daemons start in another directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    if !path.is_file() {
        bail!(
            "{}: no such program; build it (cargo build --release -p sluiced) or name it by --sluiced",
            path.display()
        );
    }
    Ok(std::path::absolute(path)?)
}

/// Reports an omission with its reason; of an error with many lines, the first relevant one.
pub(crate) fn skip(what: &str, why: &anyhow::Error) {
    let text = format!("{why:#}");
    let line = text.lines().find(|l| l.contains("error:")).or_else(|| text.lines().next());
    eprintln!("SKIP: {what}: {}", line.unwrap_or_default().trim());
}
