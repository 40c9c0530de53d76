//! Skips a test visibly if the machine lacks a requirement.
//!
//! The line `SKIP: test: reason` goes to standard error past the capture of the test harness. With
//! `SLUICE_NO_SKIP=1` in the environment a skip is a failure instead: for machines that are meant to run
//! everything.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::command::Cmd;
use crate::netns::netns_reason;
use crate::wait::wait_for;

/// Maximum time for a tracer to attach.
const TRACER_LIMIT: Duration = Duration::from_secs(10);

/// Implements [`require_netns!`](crate::require_netns): whether `test` can have namespaces.
pub fn netns_or_skip(test: &str) -> bool {
    netns_reason().is_none_or(|reason| skip(test, reason))
}

/// Implements [`require_programs!`](crate::require_programs): whether all of `programs` are in the path.
pub fn programs_or_skip(test: &str, programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|p| !on_path(p)).collect();
    missing.is_empty()
        || skip(test, &format!("not installed: {} (scripts/setup.sh check)", missing.join(", ")))
}

/// Implements [`require_strace!`](crate::require_strace): whether `test` can trace a running program.
pub fn strace_or_skip(test: &str) -> bool {
    programs_or_skip(test, &["strace", "sleep"])
        && match tracer_says() {
            Ok(said) if said.contains(" attached") => true,
            Ok(said) => skip(test, &format!("programs cannot be traced (ptrace): {}", said.trim())),
            Err(why) => skip(test, &format!("programs cannot be traced (ptrace): {why:#}")),
        }
}

/// The output of strace for a running program.
fn tracer_says() -> Result<String> {
    let traced = Cmd::new("sleep").arg("60").spawn()?;
    let mut tracer =
        Cmd::new("strace").args(["-e", "trace=none", "-p", &traced.pid().to_string()]).spawn()?;
    wait_for(TRACER_LIMIT, "strace", || tracer.stderr().contains(" attached") || tracer.status().is_some())?;
    tracer.drain();
    Ok(tracer.stderr())
}

/// Whether a program is in a folder of the path, or in those of system programs, which a user's path may
/// lack.
fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.any(|folder| Path::new(&folder).join(program).is_file())
}

/// Reports that `test` is skipped, with the reason; always false, so that callers can return it.
///
/// # Panics
/// With `SLUICE_NO_SKIP=1`.
pub fn skip(test: &str, reason: &str) -> bool {
    let forbidden = std::env::var_os("SLUICE_NO_SKIP").is_some_and(|v| v == "1");
    assert!(!forbidden, "SLUICE_NO_SKIP=1, but {test} cannot run: {reason}");
    // A closed standard error must not fail the test.
    let _unwritten = writeln!(std::io::stderr(), "SKIP: {test}: {reason}");
    false
}

/// Returns from the test, with a line `SKIP: …` on standard error, if network namespaces are not available.
#[macro_export]
macro_rules! require_netns {
    () => {
        if !$crate::netns_or_skip(std::thread::current().name().unwrap_or(module_path!())) {
            return;
        }
    };
}

/// Returns from the test, with a line `SKIP: …` on standard error, if one of the programs is not installed:
/// `require_programs!("ovs-vsctl", "ovs-ofctl")`.
#[macro_export]
macro_rules! require_programs {
    ($($program:expr),+ $(,)?) => {
        let test = std::thread::current();
        if !$crate::programs_or_skip(test.name().unwrap_or(module_path!()), &[$($program),+]) {
            return;
        }
    };
}

/// Returns from the test, with a line `SKIP: …` on standard error, if strace is not installed or not
/// permitted to trace.
#[macro_export]
macro_rules! require_strace {
    () => {
        if !$crate::strace_or_skip(std::thread::current().name().unwrap_or(module_path!())) {
            return;
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program-anywhere") && !on_path(""));
        assert!(programs_or_skip("this", &["sh", "cat"]));
    }
}
