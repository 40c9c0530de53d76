//! Other processes, from proc(5) and by pidfd_open(2).

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, getpriority_process, pidfd_open, pidfd_send_signal};

/// `PF_EXITING` of the kernel's process flags: the process is exiting, and the kernel closes its files.
const PF_EXITING: u64 = 0x4;
/// SIGKILL in a mask of pending signals.
const KILLED: u64 = 1 << (libc::SIGKILL - 1);

/// State of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It runs, or waits.
    Running,
    /// It was killed or is exiting. Sockets may stay open until the kernel has closed all files.
    Ending,
    /// No such process, or a zombie, whose files are closed.
    Gone,
}

/// The state of a process.
pub fn stage(pid: u32) -> Stage {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return Stage::Gone };
    // The second field, the name, is in parentheses and may contain anything.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    let state = fields.next().unwrap_or("");
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    if matches!(state, "Z" | "X" | "x") && threads(pid) <= 1 {
        Stage::Gone
    } else if flags & PF_EXITING != 0 || is_killed(pid) {
        Stage::Ending
    } else {
        Stage::Running
    }
}

/// Number of threads of a process, including a main thread that ended before the others.
fn threads(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}

/// Whether SIGKILL is pending until the process leaves a system call.
fn is_killed(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = |line: &str| {
        let mask = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|mask| mask & KILLED != 0)
}

/// A process that stays the same one: its number is not given to another while this handle exists.
#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
}

impl Handle {
    /// Opens a process of this machine.
    ///
    /// # Errors
    /// No such process, or no right to see it.
    pub fn open(pid: u32) -> io::Result<Handle> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = raw.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Handle { fd: pidfd_open(pid, PidfdFlags::empty())? })
    }

    /// Requests its end (SIGTERM), or ends it at once (SIGKILL).
    ///
    /// # Errors
    /// It is gone, or belongs to another user.
    pub fn end(&self, at_once: bool) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, if at_once { Signal::KILL } else { Signal::TERM })?)
    }

    /// Waits for its end, `limit` at most; whether it has ended.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let timeout =
                Timespec::try_from(left).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                found => return Ok(found? > 0),
            }
        }
    }
}

/// Name of the program file of a process, also if it was replaced meanwhile; `None` for a kernel thread, or without the
/// right to see it.
pub fn program(pid: u32) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = path.file_name()?.to_str()?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_string())
}

/// The arguments of a process, its name first; `None` if it is gone.
pub fn arguments(pid: u32) -> Option<Vec<OsString>> {
    strings(&format!("/proc/{pid}/cmdline"))
}

/// A variable of the environment that a process was started with.
pub fn variable(pid: u32, name: &str) -> Option<OsString> {
    let all = strings(&format!("/proc/{pid}/environ"))?;
    let own =
        |text: &OsString| Some(text.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    all.iter().find_map(own).map(OsString::from_vec)
}

/// The working folder of a process; `None` without the right to see it.
pub fn folder(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// The nice value of a process.
pub fn nice(pid: u32) -> Option<i32> {
    getpriority_process(Pid::from_raw(i32::try_from(pid).ok()?)).ok()
}

/// The strings of a file, each of which ends with a zero.
fn strings(path: &str) -> Option<Vec<OsString>> {
    let all = std::fs::read(path).ok()?;
    let all = all.strip_suffix(&[0]).unwrap_or(&all);
    Some(all.split(|byte| *byte == 0).map(|one| OsString::from_vec(one.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn arguments_are_those_of_the_process() {
        let words = ["-c", "read _", "name", ""];
        let mut command = Command::new("sh");
        command.args(words).env("SLUICE_TEST", "a=b").current_dir("/proc").stdin(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pid = child.id();
        // During its exec, the child has no arguments.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) && arguments(pid).is_none_or(|all| all[0] != "sh") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let found =
            (arguments(pid), variable(pid, "SLUICE_TEST"), variable(pid, "SLUICE"), folder(pid), nice(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.0.unwrap(), ["sh", "-c", "read _", "name", ""]);
        assert_eq!((found.1.unwrap(), found.2, found.3.unwrap()), ("a=b".into(), None, "/proc".into()));
        assert_eq!(found.4, nice(std::process::id()));
        assert_eq!(arguments(u32::MAX), None);
    }

    #[test]
    fn a_handle_sees_the_end_of_its_process_and_causes_it() {
        for at_once in [false, true] {
            let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
            let handle = Handle::open(child.id()).unwrap();
            assert_eq!(program(child.id()).as_deref().map(|name| name.is_empty()), Some(false));
            assert!(!handle.wait(Duration::ZERO).unwrap());
            handle.end(at_once).unwrap();
            assert!(handle.wait(Duration::from_secs(60)).unwrap());
            child.wait().unwrap();
            assert!(handle.end(at_once).is_err());
        }
        assert!(Handle::open(u32::MAX).is_err() && program(u32::MAX).is_none());
    }
}
