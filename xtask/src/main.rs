//! `cargo xtask`: what CI runs, and what a contributor runs before a commit.
//!
//! `check` runs stages one after another, all of them even if one fails, prints the minutes of each and their total, and
//! ends with 1 if any failed. It changes nothing in the tree.
#![forbid(unsafe_code)]

mod direction;
mod source;
mod stages;
mod supply;
mod tidy;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use stages::Stage;

const USAGE: &str = "\
usage: cargo xtask check [--fast] [STAGE…]   all stages, or those named; --fast leaves the tests out
       cargo xtask check-long                all tests with their long ranges, at release speed
stages: direction tidy supply format clippy tests";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let stages = match parse(&args) {
        Ok(stages) => stages,
        Err(why) => {
            eprintln!("xtask: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match root().map(|root| stages::run(&root, &stages)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("xtask: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// Which stages the command line asks for.
fn parse(args: &[String]) -> Result<Vec<Stage>, String> {
    let mut words = args.iter().map(String::as_str);
    match words.next() {
        Some("check") => {}
        Some("check-long") => {
            return match words.next() {
                None => Ok(vec![Stage::LongTests]),
                Some(word) => Err(format!("`check-long` takes no argument, got `{word}`")),
            };
        }
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
        named.extend(Stage::CHECK.iter().filter(|s| !(fast && **s == Stage::Tests)));
    } else if fast {
        return Err("either `--fast` or names of stages".to_owned());
    }
    Ok(named)
}

/// The workspace root: the folder above this crate's.
fn root() -> Result<PathBuf> {
    let here = std::env::var("CARGO_MANIFEST_DIR").context("run it as `cargo xtask`")?;
    Ok(Path::new(&here).parent().context("this crate has no parent folder")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let stages = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(stages("check").unwrap(), Stage::CHECK);
        assert!(!stages("check --fast").unwrap().contains(&Stage::Tests));
        assert_eq!(stages("check tidy format").unwrap(), [Stage::Tidy, Stage::Format]);
        assert_eq!(stages("check-long").unwrap(), [Stage::LongTests]);
        for bad in ["", "chek", "check --slow", "check tidy --fast", "check-long tidy"] {
            assert!(stages(bad).is_err(), "{bad}");
        }
    }
}
