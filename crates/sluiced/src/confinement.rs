//! Confinement of the threads ([`sys::confine`]): its begin, and lines of the log (`daemon_unix`) about refused system calls.

use std::collections::BTreeMap;
use std::hash::RandomState;
use sys::confine::{self, Kind, Means, Refused};

const MODULE: &str = "daemon_unix";
/// Time between two lines about the same call of the same kind of thread.
const REPEAT_MS: u64 = 60_000;
/// Time between two looks.
const INTERVAL_MS: u64 = 1000;

/// Confines threads that start from now on.
pub(crate) fn begin(locks_memory: bool) {
    // The first table counts the processors, of which files tell.
    drop(sync::SharedTable::<u64, u64, _>::new(0, RandomState::new()));
    match confine::begin(locks_memory) {
        Ok(Means { calls: Ok(()), files: Ok(()) }) => {
            log::info!(target: MODULE, "threads are confined to the system calls, capabilities and files that they need");
        }
        Ok(means) => {
            for (means, result) in [("seccomp", &means.calls), ("Landlock", &means.files)] {
                if let Err(e) = result {
                    log::warn!(target: MODULE, "threads are not confined by {means}: {e}");
                }
            }
        }
        Err(e) => log::warn!(target: MODULE, "threads are not confined: {e}"),
    }
}

/// Lines about refused calls so far.
#[derive(Default)]
pub(crate) struct Confinement {
    calls: u64,
    /// Number and time of the last line, by kind and call.
    lines: BTreeMap<(Option<Kind>, String), (u32, u64)>,
    failed: u32,
    next_ms: u64,
}

impl Confinement {
    /// Logs what is new, with each turn of the main loop: refused calls wake nobody.
    pub(crate) fn run(&mut self, now_ms: u64) {
        let calls = confine::refused_calls();
        if calls != self.calls && now_ms >= self.next_ms {
            self.next_ms = now_ms.saturating_add(INTERVAL_MS);
            let (lines, is_all) = self.lines(confine::refused(), now_ms);
            lines.iter().for_each(|line| log::warn!(target: MODULE, "{line}"));
            if is_all {
                self.calls = calls;
            }
        }
        let failed = confine::failed();
        if failed != self.failed {
            self.failed = failed;
            log::warn!(target: MODULE, "{failed} threads so far are less confined than they should be");
        }
    }

    /// The lines that are due; whether none is left for later.
    fn lines(&mut self, refused: Vec<Refused>, now_ms: u64) -> (Vec<String>, bool) {
        let mut is_all = true;
        let due = refused.into_iter().filter_map(|Refused { kind, call, count, thread }| {
            let (counted, at_ms) = self.lines.entry((kind, call.clone())).or_insert((0, 0));
            if *counted == count {
                return None;
            }
            if *counted > 0 && now_ms < at_ms.saturating_add(REPEAT_MS) {
                is_all = false;
                return None;
            }
            (*counted, *at_ms) = (count, now_ms);
            let name = std::fs::read_to_string(format!("/proc/self/task/{thread}/comm"));
            let name = name.map_or_else(|_| thread.to_string(), |name| name.trim().to_string());
            let kind = kind.map_or("none of this process", Kind::name);
            Some(format!(
                "thread {name} (kind: {kind}) was refused the system call {call}, {count} times so far: it got EPERM and goes on. \
                 Please report this; --no-self-confinement permits all calls"
            ))
        });
        (due.collect(), is_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_is_logged_at_once_and_then_every_minute() {
        let refused = |count| {
            let call = "openat (257)".to_string();
            vec![Refused { kind: Some(Kind::Packets), call, count, thread: u32::MAX }]
        };
        let mut confinement = Confinement::default();
        let (lines, is_all) = confinement.lines(refused(1), 5);
        let expected =
            "thread 4294967295 (kind: packets) was refused the system call openat (257), 1 times so far: ";
        assert!(is_all && lines.len() == 1 && lines[0].starts_with(expected), "{lines:?}");
        for (count, at_ms, wanted) in
            [(1, 10, 0), (9, 1000, 0), (9, 60_005, 1), (9, 200_000, 0), (10, 200_000, 1)]
        {
            let (lines, is_all) = confinement.lines(refused(count), at_ms);
            assert_eq!(lines.len(), wanted, "{count} calls at {at_ms}: {lines:?}");
            assert_eq!(is_all, (count, at_ms) != (9, 1000), "a line is held back for a minute");
        }
    }
}
