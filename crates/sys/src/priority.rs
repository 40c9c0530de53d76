//! Priorities of threads: work that prepares something yields to threads that forward.

use std::io;

use rustix::process::{Pid, Resource, getpriority_process, getrlimit, setpriority_process};

/// The nice value that yields to all others: a thread with it gets one or two per cent of a busy processor.
const LOWEST: i32 = 19;
/// Bit of CAP_SYS_NICE in the capabilities of a process (capability.h).
const CAP_SYS_NICE: u64 = 1 << 23;

/// The nice value of all threads of this process before [`lower`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lowered {
    nice: i32,
}

/// Has the calling thread, and those that it starts, yield to others. `None`: this process might not go back
/// (CAP_SYS_NICE, RLIMIT_NICE), so nothing has changed.
///
/// # Errors
/// The kernel does not tell the priority, or refuses.
pub fn lower() -> io::Result<Option<Lowered>> {
    let nice = getpriority_process(None)?;
    if !may_have(nice)? {
        return Ok(None);
    }
    yield_for_good()?;
    Ok(Some(Lowered { nice }))
}

/// Has the calling thread yield to others until it ends.
///
/// # Errors
/// The kernel refuses.
pub fn yield_for_good() -> io::Result<()> {
    setpriority_process(None, LOWEST).map_err(io::Error::from)
}

impl Lowered {
    /// Gives all threads of this process the priority of before.
    ///
    /// # Errors
    /// The kernel does not tell the threads, or refuses.
    pub fn restore(self) -> io::Result<()> {
        for entry in std::fs::read_dir("/proc/self/task")? {
            let name = entry?.file_name();
            let thread = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            match setpriority_process(thread, self.nice) {
                // It has ended meanwhile.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

/// Whether a thread with a lower priority may go back to that nice value.
fn may_have(nice: i32) -> io::Result<bool> {
    // The limit counts from 19 down: 20 for a nice value of 0 (getrlimit(2)).
    let limit = getrlimit(Resource::Nice).current.unwrap_or(u64::MAX);
    if i128::from(limit) >= i128::from(20 - nice) {
        return Ok(true);
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:")).map(str::trim);
    Ok(held.and_then(|held| u64::from_str_radix(held, 16).ok()).is_some_and(|held| held & CAP_SYS_NICE != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_go_back_to_their_priority() {
        // Another thread of the tests keeps its priority: only threads begun here are looked at.
        let nice = getpriority_process(None).unwrap();
        let done = std::thread::spawn(move || {
            let Some(lowered) = lower().unwrap() else {
                println!("SKIP: threads_go_back_to_their_priority: neither CAP_SYS_NICE nor RLIMIT_NICE");
                return None;
            };
            let of_child = std::thread::spawn(|| getpriority_process(None).unwrap()).join().unwrap();
            let low = getpriority_process(None).unwrap();
            lowered.restore().unwrap();
            Some((low, of_child, getpriority_process(None).unwrap()))
        });
        if let Some(seen) = done.join().unwrap() {
            assert_eq!(seen, (LOWEST, LOWEST, nice));
        }
        assert_eq!(getpriority_process(None).unwrap(), nice);
    }
}
