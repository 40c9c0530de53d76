//! The stages of the check: run in order, timed, and summarized.
//!
//! A failed stage does not stop the next, so that one run reports all faults. The cheap ones come first. Beside tests, the
//! machine of `guest` runs, and clippy is the compiler of the tests: one compilation serves both.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::jobs::Job;
use crate::programs::Compiler;
use crate::workspace::{Workspace, cargo, target};
use crate::{circles, direction, fuzz, guest, osken, package, supply, test_programs, tidy};

/// One part of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Dependencies between crates, and between the modules of a crate.
    Direction,
    /// Rules on the source text.
    Tidy,
    /// Licences, sources, bans, duplicates.
    Supply,
    /// rustfmt.
    Format,
    /// clippy, warnings are errors.
    Clippy,
    /// All tests.
    Tests,
    /// Tests of the kernel datapath, in a virtual machine.
    Guest,
    /// All tests with their long ranges, except the simulation; like those below not a part of `check`.
    LongTests,
    /// The tests of traffic on the kernel datapath, of two kernels.
    GuestLong,
    /// An hour of virtual time in each of 100 seeds.
    Simulation,
    /// All fuzz targets for a minute each.
    Fuzz,
    /// Cache line transfers of connection tracking between simulated cores.
    Contention,
    /// os-ken's switch tester.
    Osken,
    /// Probes of OVN, on Sluice and on Debian's switch.
    Ovn,
    /// Packages: equal builds; installed and removed in fresh systems.
    Packages,
}

impl Stage {
    /// The stages of `check`, in order.
    pub(crate) const CHECK: &[Stage] = &[
        Stage::Direction,
        Stage::Tidy,
        Stage::Supply,
        Stage::Format,
        Stage::Clippy,
        Stage::Tests,
        Stage::Guest,
    ];

    /// The stages that `check --fast` leaves out.
    pub(crate) const SLOW: &[Stage] = &[Stage::Tests, Stage::Guest];

    /// The stages of `check-long`, in order.
    pub(crate) const LONG: &[Stage] = &[
        Stage::LongTests,
        Stage::GuestLong,
        Stage::Simulation,
        Stage::Fuzz,
        Stage::Contention,
        Stage::Osken,
        Stage::Ovn,
        Stage::Packages,
    ];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Direction => "direction",
            Stage::Tidy => "tidy",
            Stage::Supply => "supply",
            Stage::Format => "format",
            Stage::Clippy => "clippy",
            Stage::Tests => "tests",
            Stage::Guest => "guest",
            Stage::LongTests => "long-tests",
            Stage::GuestLong => "guest-long",
            Stage::Simulation => "simulation",
            Stage::Fuzz => "fuzz",
            Stage::Contention => "contention",
            Stage::Osken => "osken",
            Stage::Ovn => "ovn",
            Stage::Packages => "packages",
        }
    }

    /// The cargo command that it is, if it is one.
    fn cargo_args(self) -> &'static [&'static str] {
        match self {
            Stage::Direction
            | Stage::Tidy
            | Stage::Supply
            | Stage::Tests
            | Stage::Guest
            | Stage::GuestLong
            | Stage::Fuzz
            | Stage::Osken
            | Stage::Packages => &[],
            Stage::Format => &["fmt", "--all", "--check"],
            Stage::Clippy => &[
                "clippy",
                "--locked",
                "--workspace",
                "--all-targets",
                "--keep-going",
                "--",
                "-D",
                "warnings",
            ],
            Stage::LongTests => &[
                "test",
                "--locked",
                "--workspace",
                "--no-fail-fast",
                "--profile",
                "long",
                "--",
                "--include-ignored",
                "--skip",
                HOUR,
                "--skip",
                OVN,
            ],
            Stage::Ovn => &[
                "test",
                "--locked",
                "--package",
                "sluiced",
                "--test",
                "ovn",
                "--no-fail-fast",
                "--profile",
                "long",
                "--",
                "--include-ignored",
                "--test-threads=4",
            ],
            Stage::Contention => &[
                "run",
                "--locked",
                "--release",
                "--package",
                "conntrack",
                "--example",
                "contention",
                "--target-dir",
                "target/contention",
            ],
            Stage::Simulation => &[
                "test",
                "--locked",
                "--package",
                "sim",
                "--profile",
                "long",
                "--",
                "--ignored",
                "--nocapture",
                HOUR,
            ],
        }
    }

    /// Runs it; true on success. Prints faults; adds omissions to `skips`.
    fn run(self, root: &Path, skips: &mut Vec<String>) -> Result<bool> {
        match self {
            Stage::Direction => {
                let workspace = Workspace::load(root)?;
                let mut found = direction::check(&workspace.members, direction::TABLE);
                let page = std::fs::read_to_string(root.join("ARCHITECTURE.md"))
                    .context("cannot read ARCHITECTURE.md")?;
                found.problems.extend(direction::page::check(&page, direction::TABLE));
                for note in &found.notes {
                    println!("  note: {note}");
                }
                let files = tidy::prepare(&workspace.rust_files()?);
                found.problems.extend(circles::check(&files, circles::LISTED, circles::LAYERS));
                Ok(report(&found.problems))
            }
            Stage::Tidy => Ok(report(&tidy::check(&Workspace::load(root)?)?)),
            Stage::Supply => Ok(report(&supply::check(&Workspace::load(root)?)?)),
            Stage::Tests => Ok(run_with_tests(root, &[], skips).iter().all(|(_, _, good)| *good)),
            Stage::Guest => guest::stage::run(root, skips),
            Stage::GuestLong => guest::stage::run_long(root, skips),
            Stage::Fuzz => match fuzz::lacks() {
                Some(reason) => skip(skips, "fuzz", reason),
                None => {
                    fuzz::run(root, &fuzz::Options { target: None, work: fuzz::Work::Seek(fuzz::SECONDS) })
                }
            },
            Stage::Osken => match osken::lacks() {
                Some(reason) => skip(skips, "osken", reason),
                None => osken::run(root),
            },
            Stage::Packages => match package::check::lacks() {
                Some(reason) => skip(skips, "packages", &reason),
                None => {
                    let (good, mut trials) = package::check::run(root)?;
                    Ok(run_and_collect(&mut trials, skips)? && good)
                }
            },
            Stage::Format
            | Stage::Clippy
            | Stage::LongTests
            | Stage::Simulation
            | Stage::Contention
            | Stage::Ovn => {
                let mut command = Command::new(cargo());
                command.args(self.cargo_args()).current_dir(root).stdin(Stdio::null());
                if matches!(self, Stage::LongTests | Stage::Simulation) {
                    command.env("SLUICE_LONG", "1");
                }
                if matches!(self, Stage::LongTests) {
                    // Built with the tests, before the first of them runs.
                    command.env("SLUICE_BIN_DIR", target(root)?.join("long"));
                }
                if matches!(self, Stage::Contention) {
                    command.env("RUSTFLAGS", "--cfg sluice_contention");
                }
                run_and_collect(&mut command, skips)
            }
        }
    }
}

/// The test of the simulation's hour.
const HOUR: &str = "invariants_hold_for_an_hour";
/// The probes of OVN, on either switch.
const OVN: &str = "ovn_on_";

/// A stage that cannot run here: a failure with `SLUICE_NO_SKIP=1`.
pub(crate) fn skip(skips: &mut Vec<String>, stage: &str, reason: &str) -> Result<bool> {
    println!("SKIP: {stage}: {reason}");
    skips.push(format!("SKIP: {stage}: {reason}"));
    Ok(std::env::var_os("SLUICE_NO_SKIP").is_none_or(|v| v != "1"))
}

/// Runs a command, forwards its output, and collects lines that begin with `SKIP:`.
fn run_and_collect(command: &mut Command, skips: &mut Vec<String>) -> Result<bool> {
    // Colours as they would be without us in between.
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let heard = Mutex::new(Vec::new());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        scope.spawn(|| out.map(|from| forward(from, std::io::stdout(), &heard)));
        scope.spawn(|| err.map(|from| forward(from, std::io::stderr(), &heard)));
    });
    skips.append(&mut heard.into_inner().unwrap_or_default());
    Ok(child.wait().context("cannot wait for the program")?.success())
}

/// Forwards the output `from`, and collects lines that begin with `SKIP:`.
pub(crate) fn forward(from: impl Read, mut to: impl Write, heard: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        // The reader may be gone: the stage continues.
        let _unwritten = to.write_all(&line).and_then(|()| to.flush());
        let text = String::from_utf8_lossy(&line);
        if let (Some(skip), Ok(mut heard)) = (skipped(&text), heard.lock()) {
            heard.push(skip);
        }
        line.clear();
    }
}

/// Runs `stages` in order, those of [`WITH_TESTS`] together with the tests; true if all went well.
pub(crate) fn run(root: &Path, stages: &[Stage]) -> bool {
    let (mut results, mut skips) = (Vec::new(), Vec::new());
    let start = Instant::now();
    let with_tests: Vec<Stage> = match stages.contains(&Stage::Tests) {
        true => stages.iter().copied().filter(|s| WITH_TESTS.contains(s)).collect(),
        false => Vec::new(),
    };
    for stage in stages.iter().filter(|s| !with_tests.contains(s)) {
        println!("== {}", stage.name());
        if *stage == Stage::Tests {
            results.append(&mut run_with_tests(root, &with_tests, &mut skips));
            continue;
        }
        let start = Instant::now();
        let good = stage.run(root, &mut skips).unwrap_or_else(|why| {
            println!("  {why:#}");
            false
        });
        results.push((stage.name(), start.elapsed(), good));
    }
    print!("{}", summary(&results, start.elapsed()));
    skips.sort();
    skips.dedup();
    for skip in skips {
        println!("{skip}");
    }
    results.iter().all(|(_, _, good)| *good)
}

/// Stages that run together with the tests.
const WITH_TESTS: &[Stage] = &[Stage::Clippy, Stage::Guest];

/// Runs the tests: with lints if `others` has clippy, the rest of them beside as jobs. Rows of the summary; omissions go to
/// `skips`.
fn run_with_tests(
    root: &Path,
    others: &[Stage],
    skips: &mut Vec<String>,
) -> Vec<(&'static str, Duration, bool)> {
    let lints = others.contains(&Stage::Clippy);
    let beside: Vec<Stage> = others.iter().copied().filter(|stage| *stage != Stage::Clippy).collect();
    let compiler = if lints { Compiler::Clippy } else { Compiler::Rustc };
    let ends = test_programs::run(root, compiler, beside.iter().map(|stage| job(*stage, root)).collect());
    let mut results = vec![(Stage::Tests.name(), ends.tests.time, ends.tests.good)];
    if lints {
        results.push((Stage::Clippy.name(), ends.lints.time, ends.lints.good));
    }
    for end in &ends.jobs {
        skips.extend(end.output.lines().filter_map(skipped));
        if let Some(stage) = beside.iter().find(|s| s.name() == end.name) {
            results.push((stage.name(), end.time, end.good));
            if !end.good {
                println!("FAILED: {}\n{}", end.name, end.output);
            }
        }
    }
    results
}

/// A stage as a command of its own.
fn job(stage: Stage, root: &Path) -> Job {
    let mut command = Command::new(cargo());
    command.args(["run", "--quiet", "--locked", "--package", "xtask", "--", "check", stage.name()]);
    command.current_dir(root);
    Job { name: stage.name().to_owned(), command }
}

/// The omission that a line of output reports.
fn skipped(line: &str) -> Option<String> {
    line.find("SKIP: ").map(|at| line[at..].trim_end().to_owned())
}

fn report(problems: &[String]) -> bool {
    for problem in problems {
        println!("  {problem}");
    }
    problems.is_empty()
}

/// A row for each stage, and the time from the first to the last.
fn summary(results: &[(&str, Duration, bool)], total: Duration) -> String {
    let mut text = String::from("\nstage        minutes\n");
    let mut row = |name: &str, time: Duration, good: bool| {
        let verdict = if good { "ok" } else { "FAILED" };
        text += &format!("{name:<12} {:>7.2}  {verdict}\n", time.as_secs_f64() / 60.0);
    };
    for (name, time, good) in results {
        row(name, *time, *good);
    }
    row("total", total, results.iter().all(|r| r.2));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_a_row_for_each_stage() {
        let rows = [("tidy", Duration::from_secs(30), true), ("tests", Duration::from_secs(60), false)];
        let text = summary(&rows, Duration::from_secs(90));
        let rows: Vec<&str> = text.lines().filter(|l| !l.is_empty()).collect();
        assert_eq!(rows[1], "tidy            0.50  ok");
        assert_eq!(rows[2], "tests           1.00  FAILED");
        assert_eq!(rows[3], "total           1.50  FAILED");
    }

    #[test]
    fn what_a_stage_leaves_out_is_gathered_and_passed_on() {
        let (heard, mut out) = (Mutex::new(Vec::new()), Vec::new());
        forward(&b"one\ntest x ... SKIP: x: not here\nlast"[..], &mut out, &heard);
        assert_eq!(heard.into_inner().unwrap(), ["SKIP: x: not here"]);
        assert_eq!(out, b"one\ntest x ... SKIP: x: not here\nlast");
    }

    #[test]
    fn a_stage_that_cannot_run_fails() {
        assert!(!run(Path::new("/nonexistent"), &[Stage::Tidy]));
        assert!(!run(Path::new("/nonexistent"), &[Stage::Format]));
    }

    #[test]
    fn cargo_stages_pin_the_lock_file() {
        for stage in Stage::CHECK.iter().chain(Stage::LONG) {
            let args = stage.cargo_args();
            assert!(args.is_empty() || args[0] == "fmt" || args.contains(&"--locked"), "{}", stage.name());
        }
    }
}
