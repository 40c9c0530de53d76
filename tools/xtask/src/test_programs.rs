//! The stage `tests`: all test programs and documentation tests of the workspace, several at once.
//!
//! Tests of traffic wait most of the time, so that other programs and the machine of `guest` run beside them. The programs
//! that run longest begin first. Prints the slowest tests.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::jobs::{Ended, Job, run as run_jobs};
use crate::programs::{Build, Built, Compiler, build};
use crate::workspace::{cargo, target};

/// Jobs at once.
const LANES: usize = 3;

/// Tests at once of the program with real traffic.
const NET_THREADS: &str = "--test-threads=5";

/// Package and target of the programs that begin first, the longest before others.
const FIRST: &[(&str, &str)] =
    &[("sluiced", "net"), ("sluiced", "trial"), ("bench", "smoke"), ("sim", "sim")];

/// How many of the slowest tests are listed.
const SLOWEST: usize = 10;

/// Name of the job of documentation tests.
const DOC: &str = "documentation tests";

/// The end of a stage, for its row of the summary.
pub(crate) struct End {
    /// How long it took.
    pub(crate) time: Duration,
    /// Whether all went well.
    pub(crate) good: bool,
}

/// How the tests ended, and with them clippy and the jobs beside.
pub(crate) struct Ends {
    /// Build and tests.
    pub(crate) tests: End,
    /// The build's lints; its time is the whole build's.
    pub(crate) lints: End,
    /// Tests and other jobs.
    pub(crate) jobs: Vec<Ended>,
}

/// Builds all tests with `compiler`, and runs them beside `others`, which start after the first program.
///
/// A build that fails is printed and counts as failed tests. Lints stop no test.
pub(crate) fn run(root: &Path, compiler: Compiler, mut others: Vec<Job>) -> Ends {
    let start = Instant::now();
    let jobs = build(root, "test", compiler).and_then(|built| {
        built.diagnostics.iter().for_each(|text| println!("{text}"));
        ensure!(built.complete, "the tests do not build");
        Ok((jobs(root, compiler, &built, &mut others)?, built.diagnostics.is_empty()))
    });
    let lints = |good| End { time: start.elapsed(), good };
    let (jobs, lints) = match jobs {
        Ok((jobs, clean)) => (jobs, lints(clean)),
        Err(why) => {
            println!("  {why:#}");
            let lints = lints(false);
            let jobs = run_jobs(others, LANES);
            return Ends { tests: End { time: start.elapsed(), good: false }, lints, jobs };
        }
    };
    let names: Vec<String> = jobs.iter().map(|j| j.name.clone()).collect();
    let mut queue = Vec::new();
    let mut others = Some(others);
    for job in jobs {
        queue.push(job);
        queue.extend(others.take().into_iter().flatten());
    }
    let ended = run_jobs(queue, LANES);
    let failed = ended.iter().filter(|e| !e.good && names.contains(&e.name));
    let failed: Vec<&Ended> = failed.collect();
    for Ended { name, output, .. } in &failed {
        println!("FAILED: {name}\n{}", failures(output));
    }
    print!("{}", slowest(&ended));
    Ends { tests: End { time: start.elapsed(), good: failed.is_empty() }, lints, jobs: ended }
}

/// The jobs of the tests; gives `others` the build.
fn jobs(root: &Path, compiler: Compiler, built: &Build, others: &mut [Job]) -> Result<Vec<Job>> {
    let folder = target(root)?;
    others.iter_mut().try_for_each(|job| built.give(&mut job.command, &folder))?;
    let mut programs = built.programs.clone();
    let place = |b: &Built| {
        let named = FIRST.iter().position(|(package, target)| b.package == *package && b.target == *target);
        named.unwrap_or(FIRST.len())
    };
    programs.sort_by_key(place);
    let mut jobs: Vec<Job> = programs.iter().map(job).collect();
    let mut doc = Command::new(cargo());
    doc.args(["test", "--locked", "--workspace", "--doc", "--no-fail-fast"]).current_dir(root);
    compiler.give(&mut doc);
    jobs.push(Job { name: DOC.to_owned(), command: doc });
    Ok(jobs)
}

fn job(built: &Built) -> Job {
    let mut command = Command::new(&built.program);
    command.current_dir(&built.dir).env("CARGO_MANIFEST_DIR", &built.dir);
    // Programs that run cargo themselves must not have it take the variable for theirs: it would build all anew.
    if built.package != "bench" && built.package != "xtask" {
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
    }
    // The programs of other packages, which are built with the tests.
    if let (true, Some(folder)) = (built.package == "bench", Path::new(&built.program).ancestors().nth(2)) {
        command.env("SLUICE_BIN_DIR", folder);
    }
    if (built.package.as_str(), built.target.as_str()) == FIRST[0] {
        command.arg(NET_THREADS);
    }
    Job { name: format!("{} {}", built.package, built.target), command }
}

/// The lines of a test program's output from its list of failures on, or all of it.
fn failures(output: &str) -> &str {
    output.find("\nfailures:\n").map_or(output, |at| &output[at..])
}

/// The slowest tests of all programs that report times, as a table.
fn slowest(ended: &[Ended]) -> String {
    let mut tests: Vec<(f64, String)> = Vec::new();
    for Ended { name, output, .. } in ended {
        tests.extend(
            output.lines().filter_map(timed).map(|(seconds, test)| (seconds, format!("{name} {test}"))),
        );
    }
    tests.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut text = String::from("\nslowest tests   seconds\n");
    for (seconds, test) in tests.iter().take(SLOWEST) {
        text += &format!("{seconds:>23.1}  {test}\n");
    }
    text
}

/// Seconds and name of the test in a line `test NAME ... ok <1.234s>`.
fn timed(line: &str) -> Option<(f64, &str)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = rest.rsplit_once('<')?.1.strip_suffix("s>")?;
    Some((seconds.parse().ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_the_lines_of_tests() {
        assert_eq!(timed("test a::b ... ok <1.250s>"), Some((1.25, "a::b")));
        assert_eq!(timed("test a::b ... FAILED <0.500s>"), Some((0.5, "a::b")));
        for other in ["test a::b ... ok", "test result: ok. 1 passed", "SKIP: a <1s>", ""] {
            assert_eq!(timed(other), None, "{other}");
        }
    }

    #[test]
    fn the_slowest_come_first() {
        let ended = |name: &str, output: &str| Ended {
            name: name.to_owned(),
            time: Duration::ZERO,
            good: true,
            output: output.to_owned(),
        };
        let text = slowest(&[
            ended("p one", "test x ... ok <0.100s>\ntest y ... ok <2.000s>"),
            ended("p two", "test z ... ok <1.000s>"),
        ]);
        let order: Vec<&str> = text.lines().filter_map(|l| l.split_whitespace().last()).skip(1).collect();
        assert_eq!(order, ["y", "z", "x"]);
    }

    #[test]
    fn a_failure_is_cut_to_its_list() {
        assert_eq!(failures("test a ... FAILED\n\nfailures:\n\nwhy\n"), "\nfailures:\n\nwhy\n");
        assert_eq!(failures("abort"), "abort");
    }

    #[test]
    fn programs_with_traffic_run_in_more_threads() {
        let args = |package: &str, target: &str| {
            let built = Built {
                package: package.to_owned(),
                target: target.to_owned(),
                program: "/t/debug/deps/p-1".to_owned(),
                dir: "/".to_owned(),
            };
            format!("{:?}", job(&built).command)
        };
        assert!(args("sluiced", "net").contains(NET_THREADS));
        assert!(args("bench", "smoke").contains("SLUICE_BIN_DIR=\"/t/debug\""));
        assert!(!args("sluiced", "trial").contains(NET_THREADS));
        assert!(
            args("flow", "flow").contains("--report-time")
                && !args("bench", "smoke").contains("--report-time")
        );
    }
}
