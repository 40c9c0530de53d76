//! The stock switch with its own database server, for comparison: Debian's, or that of another root file system.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::command::Cmd;
use crate::daemon::{Daemon, DaemonSpec};
use crate::ovs::RunDir;
use crate::wait::wait_for;

/// Path of its database schema below the root.
const SCHEMA: &str = "usr/share/openvswitch/vswitch.ovsschema";

/// The folder of another release of OVS, as `scripts/ovs35.sh` makes it.
const ROOT: &str = "/opt/ovs35";
/// Names another folder; empty, none.
const ROOT_VARIABLE: &str = "SLUICE_OVS_ROOT";

/// The root file system with the release of OVS to compare with: that of `SLUICE_OVS_ROOT`, else `/opt/ovs35`; `None`
/// if it has no such switch. Then Debian's switch takes its place.
pub fn stock_root() -> Option<PathBuf> {
    let root = std::env::var_os(ROOT_VARIABLE).map_or_else(|| PathBuf::from(ROOT), PathBuf::from);
    (root.is_absolute() && root.join("usr/sbin/ovs-vswitchd").exists()).then_some(root)
}

/// Starts the database server and the stock daemon `program`; the daemon is first in the result. `spec`
/// builds the specification of each program: namespace, processor. `settings` are of the `Open_vSwitch` row,
/// `args` extra arguments of both. The daemon does not use the kernel's datapath.
///
/// # Errors
/// A program is missing, or does not become ready.
pub fn start_stock(
    spec: impl Fn(&Path) -> Result<DaemonSpec>,
    program: &str,
    settings: &[&str],
    [of_server, of_daemon]: [&[&str]; 2],
) -> Result<Vec<Daemon>> {
    start_stock_with(spec, program, settings, [of_server, &[&["--disable-system"], of_daemon].concat()])
}

/// Seconds after boot from which the stock daemon counts processors. Before, it starts no handlers on the kernel's
/// datapath, and loses each upcall until its next count.
const COUNTS_FROM_S: f64 = 15.0;

/// Waits until the stock daemon counts the machine's processors: up to 15 s after boot.
///
/// # Errors
/// If `/proc/uptime` does not tell the time since boot.
pub fn wait_for_processors() -> Result<()> {
    let since_boot_s = || {
        let text = std::fs::read_to_string("/proc/uptime").ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    let limit = Duration::from_secs(20);
    wait_for(limit, "the machine to be up for a while", || since_boot_s().is_some_and(|s| s > COUNTS_FROM_S))
}

/// Starts them on all datapaths, once the daemon counts processors ([`wait_for_processors`]).
///
/// # Errors
/// As [`start_stock`] and [`wait_for_processors`].
pub fn start_stock_with(
    spec: impl Fn(&Path) -> Result<DaemonSpec>,
    program: &str,
    settings: &[&str],
    args: [&[&str]; 2],
) -> Result<Vec<Daemon>> {
    wait_for_processors()?;
    let server = spec(Path::new("ovsdb-server"))?;
    let run: RunDir = server.run_directory().clone();
    let db = run.join("conf.db");
    let root = server.root_directory().unwrap_or(Path::new("/"));
    Cmd::new("ovsdb-tool").arg("create").arg(&db).arg(root.join(SCHEMA)).run()?;
    let remote = format!("--remote=p{}", run.db());
    let server = server
        .args([db.into_os_string(), remote.into(), "-vconsole:off".into()])
        .args(args[0])
        .ready_file("db.sock")
        .start()?;
    run.ovs("ovs-vsctl", &["--no-wait", "init"])?;
    if !settings.is_empty() {
        let set = ["--no-wait", "set", "Open_vSwitch", "."];
        run.ovs("ovs-vsctl", &[&set[..], settings].concat())?;
    }
    let daemon = spec(Path::new(program))?
        .rundir(&run)
        .args([run.db().as_str(), "-vconsole:off"])
        .args(args[1])
        .start()?;
    Ok(vec![daemon, server])
}
