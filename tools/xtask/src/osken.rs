//! The long stage `osken`: os-ken's switch tester against Sluice and the stock switch beside it, by `scripts/osken.sh`.
//!
//! The suites include cases that no switch passes: wrong checksums, Provider Backbone Bridging, bands of meters that
//! differ from those set. So each case that the stock switch passes must pass with Sluice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};

use crate::workspace::cargo;

/// Folders of cases.
const SUITES: [&str; 9] = [
    "of10",
    "of13/action",
    "of13/match",
    "of13/group",
    "of13/meter",
    "of14/action",
    "of14/match",
    "of14/group",
    "of14/meter",
];
/// Suites that run at a time, each for both switches: the tester mostly waits.
const AT_ONCE: usize = 3;
/// Attempts of a suite: a case that fails on a busy machine may pass alone.
const ATTEMPTS: usize = 3;

/// The reason why it cannot run here, if any.
pub(crate) fn lacks() -> Option<&'static str> {
    let says = |program: &str, args: &[&str]| {
        Command::new(program).args(args).output().is_ok_and(|o| o.status.success() && !o.stdout.is_empty())
    };
    if !says("id", &["-u"]) || !says("sh", &["-c", "test $(id -u) = 0 && echo yes"]) {
        return Some("it makes network namespaces: run it as root");
    }
    if !says("ovs-vswitchd", &["--version"]) {
        return Some("the tester's own switch is the stock one, which is not installed");
    }
    (!says("python3", &["-c", "import venv; print(1)"])).then_some("no python3 with venv")
}

/// Runs all suites; true if Sluice passes all cases that the stock switch passes.
///
/// # Errors
/// If something cannot be run or read.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let dir = root.join(&target).join("osken");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let built = Command::new(cargo())
        .args(["build", "--locked", "--profile", "long", "--package", "sluiced"])
        .current_dir(root)
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "sluiced does not build");
    let sluiced = root.join(target).join("long/sluiced");
    let venv = dir.join("venv");
    let made = Command::new(root.join("scripts/controllers.sh")).arg(&venv).status();
    if !made.context("cannot run scripts/controllers.sh")?.success() {
        println!("  os-ken cannot be installed (is PyPI to be reached?)");
        return Ok(false);
    }
    let tester = Tester { script: root.join("scripts/osken.sh"), dir, venv };
    let mut good = true;
    for suites in SUITES.chunks(AT_ONCE) {
        let start =
            |suite: &&'static str| (*suite, tester.start(suite, Some(&sluiced)), tester.start(suite, None));
        let running: Vec<_> = suites.iter().map(start).collect();
        for (suite, ours, stock) in running {
            let (mut ours, stock) = (ours?.cases()?, stock?.cases()?);
            for _ in 1..ATTEMPTS {
                if !lost(&ours, &stock).is_empty() {
                    ours.extend(tester.start(suite, Some(&sluiced))?.cases()?);
                }
            }
            let lost = lost(&ours, &stock);
            println!("  {suite}: {} cases pass, {} with the stock switch", ours.len(), stock.len());
            lost.iter().for_each(|name| println!("    FAILED: {name}"));
            good &= lost.is_empty();
        }
    }
    Ok(good)
}

/// Names of cases that pass.
type Passed = BTreeSet<String>;

/// Cases that pass only with the stock switch.
fn lost(ours: &Passed, stock: &Passed) -> Vec<String> {
    stock.difference(ours).cloned().collect()
}

/// The tester and its results.
struct Tester {
    script: PathBuf,
    dir: PathBuf,
    venv: PathBuf,
}

impl Tester {
    /// Starts a suite in namespaces of its own, for this program or the stock switch.
    fn start(&self, suite: &str, sluiced: Option<&Path>) -> Result<Attempt> {
        let switch = if sluiced.is_some() { "sluice" } else { "ovs" };
        let log = self.dir.join(format!("{}-{switch}.log", suite.replace('/', "-")));
        let mut command = Command::new(&self.script);
        let child = command.arg(&self.venv).arg(&log).arg(suite).args(sluiced).spawn();
        Ok(Attempt { log, child: child.context("cannot run scripts/osken.sh")? })
    }
}

/// A running suite.
struct Attempt {
    log: PathBuf,
    child: Child,
}

impl Attempt {
    /// Waits for the end, and returns the cases that pass.
    fn cases(mut self) -> Result<Passed> {
        let ended = self.child.wait()?;
        ensure!(ended.success(), "scripts/osken.sh did not come to its end; see {}", self.log.display());
        Ok(passed(&std::fs::read_to_string(&self.log).unwrap_or_default()))
    }
}

/// Cases of a log that pass. A case is one line; a line with its file precedes it.
fn passed(log: &str) -> Passed {
    let (mut file, mut cases) = ("", Passed::new());
    for line in log.lines() {
        if !line.starts_with(' ') {
            file = line.split_once(": ").map_or(file, |(_, name)| name);
        }
        if let Some(case) = line.strip_suffix(" OK").filter(|case| case.starts_with("    ")) {
            cases.insert(format!("{file} {}", case.trim()));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "action: 00_OUTPUT\n    arp-->'output:2'      OK\n    tcp-->'x'   ERROR\n        Receiving timeout\nOK(1) / ERROR(1)\n";

    #[test]
    fn a_case_that_only_the_stock_switch_passes_is_lost() {
        let ours = passed(LOG);
        assert_eq!(Vec::from_iter(&ours), ["00_OUTPUT arp-->'output:2'"]);
        let stock = passed(&LOG.replace("ERROR\n ", "OK\n "));
        assert_eq!(lost(&ours, &stock), ["00_OUTPUT tcp-->'x'"]);
        assert!(lost(&stock, &ours).is_empty());
    }
}
