//! Other processes, from proc(5).

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
