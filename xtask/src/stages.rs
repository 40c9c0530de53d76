//! The stages of the check: run one after another, timed, and summed up.
//!
//! A stage that fails does not stop the next, so that one run tells all that is wrong. The cheap ones come first.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::workspace::{Workspace, cargo};
use crate::{direction, supply, tidy};

/// One part of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Which crate may depend on which.
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
    /// All tests with their long ranges; not a part of `check`.
    LongTests,
}

impl Stage {
    /// The stages of `check`, in order.
    pub(crate) const CHECK: &[Stage] =
        &[Stage::Direction, Stage::Tidy, Stage::Supply, Stage::Format, Stage::Clippy, Stage::Tests];

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Stage::Direction => "direction",
            Stage::Tidy => "tidy",
            Stage::Supply => "supply",
            Stage::Format => "format",
            Stage::Clippy => "clippy",
            Stage::Tests => "tests",
            Stage::LongTests => "long tests",
        }
    }

    /// The cargo command that it is, if it is one.
    fn cargo_args(self) -> &'static [&'static str] {
        match self {
            Stage::Direction | Stage::Tidy | Stage::Supply => &[],
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
            Stage::Tests => &["test", "--locked", "--workspace", "--no-fail-fast"],
            Stage::LongTests => &[
                "test",
                "--locked",
                "--workspace",
                "--no-fail-fast",
                "--profile",
                "long",
                "--",
                "--include-ignored",
            ],
        }
    }

    /// Runs it; true if all is well. What is wrong is printed.
    fn run(self, root: &Path) -> Result<bool> {
        match self {
            Stage::Direction => {
                let found = direction::check(&Workspace::load(root)?.members, direction::TABLE);
                for note in &found.notes {
                    println!("  note: {note}");
                }
                Ok(report(&found.problems))
            }
            Stage::Tidy => Ok(report(&tidy::check(&Workspace::load(root)?)?)),
            Stage::Supply => Ok(report(&supply::check(&Workspace::load(root)?)?)),
            Stage::Format | Stage::Clippy | Stage::Tests | Stage::LongTests => {
                let mut command = Command::new(cargo());
                command.args(self.cargo_args()).current_dir(root).stdin(Stdio::null());
                if self == Stage::LongTests {
                    command.env("SLUICE_LONG", "1");
                }
                let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
                Ok(status.success())
            }
        }
    }
}

/// Runs `stages` in order; true if all went well.
pub(crate) fn run(root: &Path, stages: &[Stage]) -> bool {
    let mut results = Vec::new();
    for stage in stages {
        println!("== {}", stage.name());
        let start = Instant::now();
        let good = stage.run(root).unwrap_or_else(|why| {
            println!("  {why:#}");
            false
        });
        results.push((stage.name(), start.elapsed(), good));
    }
    print!("{}", summary(&results));
    results.iter().all(|(_, _, good)| *good)
}

fn report(problems: &[String]) -> bool {
    for problem in problems {
        println!("  {problem}");
    }
    problems.is_empty()
}

fn summary(results: &[(&str, Duration, bool)]) -> String {
    let mut text = String::from("\nstage        minutes\n");
    let mut row = |name: &str, time: Duration, good: bool| {
        let verdict = if good { "ok" } else { "FAILED" };
        text += &format!("{name:<12} {:>7.2}  {verdict}\n", time.as_secs_f64() / 60.0);
    };
    for (name, time, good) in results {
        row(name, *time, *good);
    }
    row("total", results.iter().map(|r| r.1).sum(), results.iter().all(|r| r.2));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_adds_up() {
        let text =
            summary(&[("tidy", Duration::from_secs(30), true), ("tests", Duration::from_secs(60), false)]);
        let rows: Vec<&str> = text.lines().filter(|l| !l.is_empty()).collect();
        assert_eq!(rows[1], "tidy            0.50  ok");
        assert_eq!(rows[2], "tests           1.00  FAILED");
        assert_eq!(rows[3], "total           1.50  FAILED");
    }

    #[test]
    fn a_stage_that_cannot_run_fails() {
        assert!(!run(Path::new("/nonexistent"), &[Stage::Tidy]));
        assert!(!run(Path::new("/nonexistent"), &[Stage::Format]));
    }

    #[test]
    fn cargo_stages_pin_the_lock_file() {
        for stage in Stage::CHECK.iter().chain([&Stage::LongTests]) {
            let args = stage.cargo_args();
            assert!(args.is_empty() || args[0] == "fmt" || args.contains(&"--locked"), "{}", stage.name());
        }
    }
}
