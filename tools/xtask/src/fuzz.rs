//! `cargo xtask fuzz`: the fuzz targets of all crates under libFuzzer, each for a bounded time.
//!
//! The package `tools/fuzz/` is built with libFuzzer's coverage instrumentation, which stable rustc has, in
//! its own target folder. Each target starts with its corpus and with the findings of earlier runs. New
//! findings stay in the target folder; inputs are added to the repository's corpora by hand.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::supply;
use crate::workspace::cargo;

/// The parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// One target; `None` is all.
    pub(crate) target: Option<String>,
    /// The action.
    pub(crate) work: Work,
}

/// See [`Options`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Search for new inputs for that many seconds.
    Seek(u64),
    /// Run one input.
    Replay(PathBuf),
}

/// Default seconds for each target.
pub(crate) const SECONDS: u64 = 60;

/// Instrumentation for libFuzzer: counters, table of program counters, comparisons.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Longest input in bytes.
const INPUT_MAX_BYTES: u32 = 4096;

/// Parses the arguments after `fuzz`.
///
/// # Errors
/// If they are too many, or the second is neither seconds nor a file.
pub(crate) fn parse(args: &[String]) -> Result<Options, String> {
    match args {
        [] => Ok(Options { target: None, work: Work::Seek(SECONDS) }),
        [target] if target.parse::<u64>().is_ok() => {
            Ok(Options { target: None, work: Work::Seek(target.parse().unwrap_or(SECONDS)) })
        }
        [target] => Ok(Options { target: Some(target.clone()), work: Work::Seek(SECONDS) }),
        [target, last] => {
            let work = last.parse().map_or_else(|_| Work::Replay(last.into()), Work::Seek);
            Ok(Options { target: Some(target.clone()), work })
        }
        _ => Err("`fuzz` takes a target and seconds, or a target and a file".to_owned()),
    }
}

/// The reason why fuzzing is not possible here, if any.
pub(crate) fn lacks() -> Option<&'static str> {
    let there = Command::new("c++").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    (!there.is_ok_and(|s| s.success())).then_some("no C++ compiler (scripts/setup.sh check-long)")
}

/// The folder of builds and findings.
fn folder(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    root.join(target).join("fuzz")
}

/// Builds the targets and runs the action; true on success.
///
/// # Errors
/// If the build fails or a target is unknown.
pub(crate) fn run(root: &Path, order: &Options) -> Result<bool> {
    let problems = supply::check_fuzzer(root)?;
    for problem in &problems {
        println!("  {problem}");
    }
    let program = build(root)?;
    let all = list(&program)?;
    let wanted: Vec<String> =
        all.iter().filter(|t| order.target.as_ref().is_none_or(|o| o == *t)).cloned().collect();
    ensure!(!wanted.is_empty(), "there is no such target; there are: {}", all.join(" "));
    match &order.work {
        Work::Replay(input) => {
            let status = target(&program, &wanted[0]).arg(input).status().context("cannot run the target")?;
            Ok(status.success())
        }
        Work::Seek(seconds) => Ok(seek(&folder(root), &program, wanted, *seconds)? && problems.is_empty()),
    }
}

fn build(root: &Path) -> Result<PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host =
        version.lines().find_map(|l| l.strip_prefix("host: ")).context("rustc names no host")?.to_owned();
    let dir = folder(root);
    // With an explicit target, build scripts and macros are built without the instrumentation.
    let status = Command::new(cargo())
        .args(["build", "--quiet", "--locked", "--release", "--target", &host])
        .current_dir(root.join("tools/fuzz"))
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &dir)
        .status()
        .context("cannot run cargo")?;
    ensure!(
        status.success(),
        "the fuzz targets do not build (a lock file that is behind: cargo update --workspace in tools/fuzz/)"
    );
    Ok(dir.join(host).join("release/fuzz"))
}

fn list(program: &Path) -> Result<Vec<String>> {
    let out = Command::new(program).env("SLUICE_FUZZ_LIST", "1").output().context("cannot run the fuzzer")?;
    Ok(String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect())
}

fn target(program: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.env("SLUICE_FUZZ_TARGET", name).stdin(Stdio::null());
    command
}

/// Runs as many targets in parallel as there are processors; true if none found anything.
fn seek(dir: &Path, program: &Path, wanted: Vec<String>, seconds: u64) -> Result<bool> {
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (left, good) = (Mutex::new(wanted.into_iter()), Mutex::new(true));
    let fine = |result: Result<bool>| {
        let fine = result.unwrap_or_else(|why| {
            println!("  {why:#}");
            false
        });
        *good.lock().unwrap_or_else(std::sync::PoisonError::into_inner) &= fine;
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
                    let Some(name) = next else { break };
                    fine(seek_one(dir, program, &name, seconds));
                }
            });
        }
    });
    Ok(good.into_inner().unwrap_or(false))
}

fn seek_one(dir: &Path, program: &Path, name: &str, seconds: u64) -> Result<bool> {
    let (seeds, found, crashes) =
        (dir.join("seeds").join(name), dir.join("found").join(name), dir.join("crashes"));
    for folder in [&seeds, &found, &crashes] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    // Its standard error always has libFuzzer's warnings: shown only on failure.
    let written = target(program, name).env("SLUICE_FUZZ_SEEDS", &seeds).output();
    let written = written.context("cannot run the target")?;
    let said = String::from_utf8_lossy(&written.stderr);
    ensure!(written.status.success(), "{name}: its corpus cannot be read: {said}");
    let log = dir.join(format!("{name}.log"));
    let file = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let start = Instant::now();
    let status = target(program, name)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_MAX_BYTES}"))
        .args(["-rss_limit_mb=2048", "-timeout=20", "-verbosity=1"])
        .arg(format!("-artifact_prefix={}/{name}-", crashes.display()))
        .args([&found, &seeds])
        .stdout(file.try_clone().context("cannot share the log")?)
        .stderr(file)
        .status()
        .with_context(|| format!("cannot run {name}"))?;
    let text = String::from_utf8_lossy(&std::fs::read(&log).unwrap_or_default()).into_owned();
    let summed = last_statistics(&text);
    println!("  {name:<22} {:>5} s  {summed}", start.elapsed().as_secs());
    if !status.success() {
        println!("{}", ending(&text));
        println!(
            "  {name} FAILED; the input is in {}; again: cargo xtask fuzz {name} FILE",
            crashes.display()
        );
    }
    // Output must appear even if the parent buffers it.
    let _unwritten = std::io::stdout().flush();
    Ok(status.success())
}

/// libFuzzer's last statistics: runs, coverage, inputs kept.
fn last_statistics(log: &str) -> String {
    let line = log.lines().rfind(|l| l.starts_with('#') && l.contains("cov:")).unwrap_or("nothing ran");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The part of a log about the failure.
fn ending(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|l| !l.starts_with('#')).collect();
    let from = lines.iter().position(|l| l.contains("panicked at") || l.contains("ERROR:")).unwrap_or(0);
    lines[from..].iter().take(12).map(|l| format!("    {l}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        let order = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let seek =
            |target: Option<&str>, s| Ok(Options { target: target.map(str::to_owned), work: Work::Seek(s) });
        assert_eq!(order(""), seek(None, SECONDS));
        assert_eq!(order("5"), seek(None, 5));
        assert_eq!(order("flow-match"), seek(Some("flow-match"), SECONDS));
        assert_eq!(order("flow-match 5"), seek(Some("flow-match"), 5));
        assert_eq!(order("flow-match x/y").unwrap().work, Work::Replay("x/y".into()));
        assert!(order("a b c").is_err());
    }

    #[test]
    fn logs_are_summed_up() {
        let log = "INFO: x\n#2\tINITED cov: 5 ft: 6\n#9\tDONE   cov: 7 ft: 8 corp: 3/9b\nthread 'x' panicked at y\nbad\n";
        assert_eq!(last_statistics(log), "#9 DONE cov: 7 ft: 8 corp: 3/9b");
        assert_eq!(last_statistics(""), "nothing ran");
        assert!(ending(log).starts_with("    thread 'x' panicked at y\n    bad\n"));
    }
}
