//! The stage `tests`: all test programs and documentation tests of the workspace, several at once.
//!
//! Tests of traffic wait most of the time, so that other programs, clippy and the machine of `guest` run beside
//! them. The programs that run longest begin first. Prints the slowest tests.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::jobs::{Ended, Job, run as run_jobs};
use crate::programs::{Built, build};
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

/// Builds and runs all tests beside `others`, which start after the first program. True if all tests passed, and the
/// ends of all jobs.
///
/// # Errors
/// Never: a build that fails is printed and counts as failed tests.
pub(crate) fn run(root: &Path, mut others: Vec<Job>) -> (bool, Vec<Ended>) {
    let jobs = match jobs(root, &mut others) {
        Ok(jobs) => jobs,
        Err(why) => {
            println!("  {why:#}");
            return (false, run_jobs(others, LANES));
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
    (failed.is_empty(), ended)
}

/// The jobs of the tests; gives `others` the build.
fn jobs(root: &Path, others: &mut [Job]) -> Result<Vec<Job>> {
    let built = build(root, "test")?;
    let folder = target(root)?;
    others.iter_mut().try_for_each(|job| built.give(&mut job.command, &folder))?;
    let mut programs = built.programs;
    let place = |b: &Built| {
        let named = FIRST.iter().position(|(package, target)| b.package == *package && b.target == *target);
        named.unwrap_or(FIRST.len())
    };
    programs.sort_by_key(place);
    let mut jobs: Vec<Job> = programs.iter().map(job).collect();
    let mut doc = Command::new(cargo());
    doc.args(["test", "--locked", "--workspace", "--doc", "--no-fail-fast"]).current_dir(root);
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
    use std::time::Duration;

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
