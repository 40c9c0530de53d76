//! `cargo xtask`: the checks of CI, also for contributors before a commit.
//!
//! `check` runs all stages even if one fails, prints the minutes of each and in total, and exits with 1 if any failed. It
//! changes nothing in the tree.
#![forbid(unsafe_code)]

mod circles;
mod direction;
mod fuzz;
mod guest;
mod jobs;
mod osken;
mod package;
mod programs;
#[cfg(test)]
mod setup_tests;
mod source;
mod stages;
mod supply;
mod test_programs;
mod tidy;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use stages::Stage;

const USAGE: &str = "\
usage: cargo xtask check [--fast] [STAGE…]   all stages, or those named; --fast leaves tests and guest out
       cargo xtask check-long [STAGE…]       all long stages, or those named
       cargo xtask fuzz [TARGET] [SECONDS|FILE]   look for inputs that break a parser, or run one
       cargo xtask package deb|rpm|image…    release builds and packages, in `packages` of the target folder
       cargo xtask guest [OPTION…] -- COMMAND…    a command in a virtual machine with the kernel datapath
options of guest: --cpus N --memory MB --kernel PACKAGE|VERSION --write DIR --timeout SECONDS --accel kvm|tcg --verbose
stages: direction tidy supply format clippy tests guest
long stages: long-tests guest-long simulation fuzz contention osken ovn packages";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let task = match parse(&args) {
        Ok(task) => task,
        Err(why) => {
            eprintln!("xtask: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let run = |root: PathBuf| match &task {
        Task::Stages(stages) => Ok(u8::from(!stages::run(&root, stages))),
        Task::Fuzz(order) => fuzz::run(&root, order).map(|good| u8::from(!good)),
        Task::Guest(order) => guest::run(&root, order),
        Task::Package(kinds) => package::run(&root, kinds).map(|()| 0),
    };
    match (root().and_then(run), &task) {
        (Ok(status), _) => ExitCode::from(status),
        (Err(why), Task::Guest(_)) => {
            eprintln!("xtask: guest: {why:#}");
            ExitCode::from(guest::FAILED)
        }
        (Err(why), _) => {
            eprintln!("xtask: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// The parsed command line.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    Stages(Vec<Stage>),
    Fuzz(fuzz::Options),
    Guest(guest::Options),
    Package(Vec<package::Kind>),
}

fn parse(args: &[String]) -> Result<Task, String> {
    let mut words = args.iter().map(String::as_str);
    match words.next() {
        Some("check") => {}
        Some("check-long") => {
            let known = |word: &str| {
                let stage = Stage::LONG.iter().find(|s| s.name() == word);
                stage.copied().ok_or_else(|| format!("unknown long stage `{word}`"))
            };
            let named = words.map(known).collect::<Result<Vec<_>, _>>()?;
            return Ok(Task::Stages(if named.is_empty() { Stage::LONG.to_vec() } else { named }));
        }
        Some("fuzz") => return Ok(Task::Fuzz(fuzz::parse(&args[1..])?)),
        Some("package") => return Ok(Task::Package(package::parse(&args[1..])?)),
        Some("guest") => return Ok(Task::Guest(guest::parse(&args[1..])?)),
        Some(word) => return Err(format!("unknown command `{word}`")),
        None => return Err("a command is missing".to_owned()),
    }
    let (mut fast, mut named) = (false, Vec::new());
    for word in words {
        match Stage::CHECK.iter().find(|s| s.name() == word) {
            Some(stage) => named.push(*stage),
            None if word == "--fast" => fast = true,
            None => return Err(format!("unknown stage or option `{word}`")),
        }
    }
    if named.is_empty() {
        named.extend(Stage::CHECK.iter().filter(|s| !(fast && Stage::SLOW.contains(s))));
    } else if fast {
        return Err("either `--fast` or names of stages".to_owned());
    }
    Ok(Task::Stages(named))
}

/// The workspace root, two folders above this crate.
fn root() -> Result<PathBuf> {
    let here = std::env::var("CARGO_MANIFEST_DIR").context("run it as `cargo xtask`")?;
    Ok(Path::new(&here)
        .ancestors()
        .nth(2)
        .context("this crate is not two folders below the root")?
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let task = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let stages = |line: &str| match task(line) {
            Ok(Task::Stages(stages)) => Ok(stages),
            other => Err(other),
        };
        assert_eq!(stages("check").unwrap(), Stage::CHECK);
        assert!(!stages("check --fast").unwrap().iter().any(|s| Stage::SLOW.contains(s)));
        assert!(matches!(task("guest --cpus 1 -- ls"), Ok(Task::Guest(_))));
        assert_eq!(stages("check tidy format").unwrap(), [Stage::Tidy, Stage::Format]);
        assert_eq!(stages("check-long").unwrap(), Stage::LONG);
        assert_eq!(stages("check-long fuzz").unwrap(), [Stage::Fuzz]);
        assert!(matches!(task("fuzz flow-match 5"), Ok(Task::Fuzz(_))));
        for bad in ["", "chek", "check --slow", "check tidy --fast", "check-long tidy"] {
            assert!(stages(bad).is_err(), "{bad}");
        }
    }
}
