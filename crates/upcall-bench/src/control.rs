//! The measured switch, by the interfaces common to every OVS: its database, its management sockets and its
//! control socket.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

/// Runs command lines of the OVS tools; supplied by the caller of this library.
pub trait Tools: Sync {
    /// An `ovs-vsctl` line; returns its output.
    ///
    /// # Errors
    /// Its error messages, also if the line otherwise succeeds (an interface that could not be set up).
    fn vsctl(&self, words: &[String]) -> Result<String>;
    /// An `ovs-ofctl` line; returns its output.
    ///
    /// # Errors
    /// Its error messages.
    fn ofctl(&self, words: &[String]) -> Result<String>;
    /// A command to the daemon on the control socket `socket`; returns its reply.
    ///
    /// # Errors
    /// If it is unreachable, or rejects the command.
    fn appctl(&self, socket: &Path, command: &str, args: &[String]) -> Result<String>;
}

/// Maximum time of a command line: a bridge with thousands of ports is slow.
const TIMEOUT_S: u32 = 600;
/// Maximum time for the flows of an earlier test to expire (OVS keeps idle ones for 10 s).
const EXPIRY_LIMIT: Duration = Duration::from_secs(30);
/// Tolerated number of extra flows.
const FLOWS_LEFT: u64 = 100;
/// The key that holds the process id of a bridge's creator.
const OWNER_KEY: &str = "sluice-upcall-bench";

/// Counters of a datapath.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Packets that a flow matched.
    pub hit: u64,
    /// Packets that none matched.
    pub missed: u64,
    /// Missed packets that were lost before the slow path.
    pub lost: u64,
    /// Installed flows.
    pub flows: u64,
}

/// The counters of the datapaths of one type in a reply to `dpctl/show`.
pub fn parse_lookups(text: &str, datapath_type: &str) -> Option<Lookups> {
    let (mut sums, mut ours, mut found) = (Lookups::default(), false, false);
    for line in text.lines() {
        if !line.starts_with(' ') {
            ours = line.split_once('@').is_some_and(|(kind, _)| kind == datapath_type);
        } else if ours && let Some(numbers) = line.trim().strip_prefix("lookups:") {
            found = true;
            for (name, number) in numbers.split_whitespace().filter_map(|word| word.split_once(':')) {
                let number: u64 = number.parse().ok()?;
                match name {
                    "hit" => sums.hit = sums.hit.checked_add(number)?,
                    "missed" => sums.missed = sums.missed.checked_add(number)?,
                    "lost" => sums.lost = sums.lost.checked_add(number)?,
                    _ => {}
                }
            }
        } else if ours && let Some(number) = line.trim().strip_prefix("flows:") {
            sums.flows = sums.flows.checked_add(number.trim().parse().ok()?)?;
        }
    }
    found.then_some(sums)
}

/// The id in the name of a control socket, `ovs-vswitchd.PID.ctl`.
fn pid_of_socket(name: &str) -> Option<u32> {
    name.strip_prefix("ovs-vswitchd.")?.strip_suffix(".ctl")?.parse().ok()
}

/// Whether a process runs, by its `/proc/PID/stat`: a zombie does not.
fn runs(stat: &str) -> bool {
    // The name before it may contain anything, parentheses too.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The database: the given one, or the one in the run directory.
pub fn database(rundir: &Path, named: Option<&str>) -> String {
    named.map_or_else(|| format!("unix:{}", rundir.join("db.sock").display()), str::to_owned)
}

/// Removes a bridge from a database, if it exists, and optionally waits for the daemon.
///
/// # Errors
/// If the database is unreachable, or rejects it.
pub fn remove_bridge(tools: &dyn Tools, db: &str, bridge: &str, wait: bool) -> Result<()> {
    let options = [format!("--db={db}"), format!("--timeout={TIMEOUT_S}")];
    let line = words(if wait { &["--if-exists", "del-br"] } else { &["--no-wait", "--if-exists", "del-br"] });
    tools.vsctl(&[&options[..], &line, &words(&[bridge])].concat()).map(drop)
}

/// A running daemon with its database.
pub struct Switch<'t> {
    tools: &'t dyn Tools,
    db: String,
    rundir: PathBuf,
    ctl: PathBuf,
    /// The daemon's process.
    pub pid: u32,
    /// Whether it is Sluice.
    pub is_sluice: bool,
    /// Its version.
    pub version: String,
    datapath_type: String,
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_string()).collect()
}

impl<'t> Switch<'t> {
    /// Finds the daemon by its run directory and checks that it answers.
    ///
    /// # Errors
    /// If there is none, or its database cannot be read.
    pub fn find(tools: &'t dyn Tools, rundir: &Path, db: Option<&str>, datapath_type: &str) -> Result<Self> {
        let delay_of = rundir.display();
        let entries = std::fs::read_dir(rundir).with_context(|| {
            format!(
                "{delay_of}: cannot read the run directory; is a switch running? --rundir names another one"
            )
        })?;
        let mut pids: Vec<u32> =
            entries.flatten().filter_map(|entry| pid_of_socket(entry.file_name().to_str()?)).collect();
        pids.retain(|pid| Path::new(&format!("/proc/{pid}")).exists());
        pids.sort_unstable();
        let pid = match pids[..] {
            [pid] => pid,
            [] => bail!("{delay_of}: no control socket of a running daemon (ovs-vswitchd.PID.ctl) is there"),
            _ => bail!("{delay_of}: control sockets of several running daemons are there: {pids:?}"),
        };
        let ctl = rundir.join(format!("ovs-vswitchd.{pid}.ctl"));
        let version = tools.appctl(&ctl, "version", &[]).context("the daemon does not answer")?;
        let db = database(rundir, db);
        // Sluice reports name and version of the switch that it replaces; its own are elsewhere.
        let own = tools.appctl(&ctl, "sluice/status", &[]).ok();
        let is_sluice = own.is_some();
        let own = own.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
        let own = own.and_then(|status| Some(format!("Sluice {}", status["version"].as_str()?)));
        let version = own.unwrap_or_else(|| version.lines().next().unwrap_or_default().trim().to_string());
        let rundir = rundir.to_owned();
        let switch =
            Switch { tools, db, rundir, ctl, pid, is_sluice, version, datapath_type: datapath_type.into() };
        switch.vsctl(&["list-br"]).context("cannot read the database")?;
        Ok(switch)
    }

    fn vsctl(&self, line: &[&str]) -> Result<String> {
        let options = [format!("--db={}", self.db), format!("--timeout={TIMEOUT_S}")];
        self.tools.vsctl(&[&options[..], &words(line)].concat())
    }

    fn ofctl(&self, bridge: &str, command: &str, rest: &[&str]) -> Result<String> {
        let socket = format!("unix:{}", self.rundir.join(format!("{bridge}.mgmt")).display());
        let begin = words(&["-O", "OpenFlow13", &format!("--timeout={TIMEOUT_S}"), command, &socket]);
        self.tools.ofctl(&[begin, words(rest)].concat())
    }

    /// Whether the daemon still runs.
    pub fn alive(&self) -> bool {
        std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| runs(&stat))
    }

    /// Removes bridges left by runs of this program that were killed together with their guards.
    ///
    /// # Errors
    /// If the database rejects it.
    pub fn sweep(&self) -> Result<()> {
        for bridge in self.vsctl(&["list-br"])?.lines() {
            let owner = self.vsctl(&["br-get-external-id", bridge, OWNER_KEY])?;
            let stale = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
            if owner.trim().parse().is_ok_and(stale) {
                self.vsctl(&["--if-exists", "del-br", bridge])?;
            }
        }
        Ok(())
    }

    /// Whether a bridge of this name exists.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn has_bridge(&self, bridge: &str) -> Result<bool> {
        Ok(self.vsctl(&["list-br"])?.lines().any(|name| name == bridge))
    }

    /// Creates the bridge, without rules, and adds the devices.
    ///
    /// # Errors
    /// If the switch rejects one of them.
    pub fn add_bridge(&self, bridge: &str, ports: &[String]) -> Result<()> {
        let kind = format!("datapath_type={}", self.datapath_type);
        let owner = format!("external_ids:{OWNER_KEY}={}", std::process::id());
        let mut line =
            vec!["add-br", bridge, "--", "set", "Bridge", bridge, &kind, "fail_mode=secure", &owner];
        line.extend(["other_config:disable-in-band=true"]);
        for port in ports {
            line.extend(["--", "add-port", bridge, port]);
        }
        self.vsctl(&line).with_context(|| format!("the switch does not take {} ports", ports.len()))?;
        let mut line = Vec::new();
        for port in ports {
            let separator = if line.is_empty() { &[][..] } else { &["--"][..] };
            line.extend(separator.iter().chain(&["get", "Interface", port, "ofport"]).copied());
        }
        let numbers = self.vsctl(&line)?;
        let bad = numbers.lines().filter(|number| number.trim().parse::<u32>().is_err()).count();
        ensure!(
            bad == 0 && numbers.lines().count() == ports.len(),
            "{bad} of {} ports did not get a number; see the daemon's log (too many open files?)",
            ports.len()
        );
        Ok(())
    }

    /// Removes the bridge, if it exists, and waits for the daemon, if it runs.
    ///
    /// # Errors
    /// If the database rejects it.
    pub fn remove_bridge(&self, bridge: &str) -> Result<()> {
        remove_bridge(self.tools, &self.db, bridge, self.alive())
    }

    /// Installs the bridge's only rule.
    ///
    /// # Errors
    /// If the switch rejects it.
    pub fn set_rule(&self, bridge: &str, rule: &str) -> Result<()> {
        self.ofctl(bridge, "add-flow", &[rule])
            .map(drop)
            .with_context(|| format!("the switch refuses the rule `{rule}`"))
    }

    /// Counters of the datapath.
    ///
    /// # Errors
    /// If the daemon does not answer, or its reply cannot be parsed.
    pub fn lookups(&self) -> Result<Lookups> {
        let text = self.tools.appctl(&self.ctl, "dpctl/show", &[])?;
        parse_lookups(&text, &self.datapath_type)
            .ok_or_else(|| anyhow!("dpctl/show lists no {} datapath:\n{text}", self.datapath_type))
    }

    /// Waits until the flows of an earlier test have expired, down to `before`; returns whether they have.
    ///
    /// # Errors
    /// As [`Switch::lookups`].
    pub fn wait_for_expiry(&self, before: u64, stop: &dyn Fn() -> bool) -> Result<bool> {
        let begin = Instant::now();
        while self.lookups()?.flows > before.saturating_add(FLOWS_LEFT) {
            if begin.elapsed() > EXPIRY_LIMIT || stop() {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(true)
    }
}

/// Open descriptors of a process, the sockets among them, and its threads.
///
/// # Errors
/// If the process is gone or belongs to another user.
pub fn descriptors(pid: u32) -> Result<(u64, u64, u64)> {
    let of = |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}"));
    let (mut all, mut sockets) = (0, 0);
    for entry in of("fd").with_context(|| format!("cannot inspect process {pid}"))?.flatten() {
        all += 1;
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        sockets += u64::from(target.to_string_lossy().starts_with("socket:"));
    }
    Ok((all, sockets, of("task")?.count() as u64))
}

/// Maximum number of descriptors of a process; `None` if unknown.
pub fn descriptor_limit(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    // The hard limit: daemons raise the soft one.
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_datapaths_of_one_type() {
        let text = "netdev@ovs-netdev:\n  lookups: hit:7 missed:5 lost:1\n  flows: 3\n  port 1: br0 (internal)\n\
                    system@ovs-system:\n  lookups: hit:70 missed:50 lost:10\n  flows: 30\n  masks: hit:1 total:2\n";
        let of = |hit, missed, lost, flows| Some(Lookups { hit, missed, lost, flows });
        assert_eq!(parse_lookups(text, "netdev"), of(7, 5, 1, 3));
        assert_eq!(parse_lookups(text, "system"), of(70, 50, 10, 30));
        for other in ["", "netdev@ovs-netdev:\n", "x\n  lookups: hit:1", "netdev@a:\n  lookups: hit:x\n"] {
            assert_eq!(parse_lookups(other, "netdev"), None, "{other}");
        }
    }

    #[test]
    fn control_sockets_name_their_process() {
        assert_eq!(pid_of_socket("ovs-vswitchd.12.ctl"), Some(12));
        for other in ["ovsdb-server.12.ctl", "ovs-vswitchd.pid", "ovs-vswitchd.x.ctl", "ovs-vswitchd..ctl"] {
            assert_eq!(pid_of_socket(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_that_has_ended_does_not_run() {
        assert!(runs("1 (a b) S 1 2") && runs("1 () Z) R 1"));
        for stat in ["1 (a) Z 1 2", "1 (a) X 1", "", "1 (a"] {
            assert!(!runs(stat), "{stat}");
        }
    }

    #[test]
    fn this_process_has_descriptors() {
        let (all, sockets, threads) = descriptors(std::process::id()).unwrap();
        assert!(all >= 3 && sockets <= all && threads >= 1);
        assert!(descriptor_limit(std::process::id()).is_some_and(|limit| limit >= all));
        assert!(descriptors(u32::MAX).is_err());
    }
}
