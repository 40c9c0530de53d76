//! Monitor process: restarts the daemon after a crash, like `--monitor` of OVS daemons.
//!
//! The monitor forks the daemon and waits for its end. A daemon that hands over to another process ([`HANDED_OVER`]) leaves
//! that process to the monitor, which waits for its end then. A signal caused by a program error ([`CRASHES`]) leads
//! to a restart, at once the first time and then at most every [`RESTART_S`] seconds; any other end also ends
//! the monitor. It holds descriptors for the daemon ([`crate::fdstore`]), which the next one has after a crash, unless that has to
//! wait: they would be stale. Call it in the place of the set-up after [`crate::daemon::detach`]: with one thread and no
//! files, locks or threads of the daemon.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::channel::Channel;
use crate::daemon::Detached;
use crate::fdstore::{FdStore, Holder, Stored};
use crate::title::Title;

/// Exit status of a daemon that has handed over to a process that it started.
pub const HANDED_OVER: i32 = 75;

/// Minimum time between two restarts.
const RESTART_S: u64 = 10;
/// Signals caused by program errors.
const CRASHES: [libc::c_int; 9] = [
    libc::SIGABRT,
    libc::SIGALRM,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGPIPE,
    libc::SIGSEGV,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// For waitpid(2).
const ANY_CHILD: libc::pid_t = -1;

/// The end of a daemon.
enum End {
    Exited(i32),
    Killed { signal: i32, dumped_core: bool },
}

impl End {
    /// It in words, and whether it is a crash.
    fn told(&self, pid: libc::pid_t) -> (String, bool) {
        match self {
            End::Exited(code) => (format!("pid {pid} died, exit status {code}"), false),
            End::Killed { signal, dumped_core } => {
                let core = if *dumped_core { ", core dumped" } else { "" };
                (format!("pid {pid} died, killed (signal {signal}){core}"), CRASHES.contains(signal))
            }
        }
    }
}

/// Subject of a monitor message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The daemon crashed.
    Crash,
    /// The daemon ended and is not restarted.
    End,
}

/// A daemon under a monitor.
#[derive(Debug)]
pub struct Monitored {
    /// To notify the monitor, in the background.
    pub detached: Option<Detached>,
    /// Holds descriptors for the next daemon.
    pub store: FdStore,
    /// Descriptors of the daemon that crashed.
    pub stored: Vec<Stored>,
}

/// Becomes the monitor of a daemon. Returns in the daemon: once in each process that the monitor forks. In
/// the background, `outer` is notified when the first daemon is ready, and each daemon gets a handle to
/// notify the monitor. `start_over` replaces the monitor by a new program, after the crash of a successor, with the descriptors that it
/// holds; it returns only on an error. `stored`: what it holds at first.
///
/// # Errors
/// The fork fails.
pub fn monitor(
    name: &str,
    outer: Option<Detached>,
    change_directory: bool,
    log: impl Fn(Notice, &str),
    start_over: impl Fn(&[Stored]) -> io::Error,
    stored: Vec<Stored>,
) -> io::Result<Monitored> {
    // Processes that daemons leave behind become children.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let in_background = outer.is_some();
    let mut title = Title::find();
    let mut outer = outer;
    let (mut crashes, mut last_crash) = (0_u32, String::new());
    let mut has_successor = false;
    let mut last_restart: Option<Instant> = None;
    let mut holder = Holder::of(stored);
    loop {
        let (wait, ready) = pipe_with(PipeFlags::CLOEXEC)?;
        let (channel, store) = Channel::pair()?;
        io::stdout().flush()?;
        // SAFETY: the process has one thread, so the child is a whole copy of it.
        let child = match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                title.restore();
                rustix::process::set_child_subreaper(None)?;
                let detached = in_background.then(|| Detached::new(ready));
                return Ok(Monitored { detached, store: FdStore::of(store), stored: holder.into_stored() });
            }
            child => child,
        };
        drop((ready, store));
        let healthy =
            if crashes == 0 { "healthy".to_string() } else { format!("{crashes} crashes: {last_crash}") };
        title.set(&format!("{name}: monitoring pid {child} ({healthy})"));
        let mut holding = Holding::new(child, channel);
        if in_background {
            holding.hold_until(&mut holder, Some(&wait));
        }
        let started = !in_background || is_ready(wait);
        if let Some(outer) = outer.take_if(|_| started) {
            outer.ready(change_directory)?;
        }
        let show = |pid| title.set(&format!("{name}: monitoring pid {pid} ({healthy})"));
        let (last, end) = await_last(child, holding, &mut holder, show)?;
        has_successor |= last != child;
        let child = last;
        let (ended, is_crash) = end.told(child);
        if !is_crash || !started && outer.is_some() {
            log(Notice::End, &format!("{ended}, exiting"));
            leave(&end, outer.is_some());
        }
        crashes += 1;
        if matches!(end, End::Killed { dumped_core: true, .. }) {
            // The first core is kept; more of them would fill the disk.
            crate::limits::no_core_dumps()?;
        }
        match pause(last_restart.map(|last| last.elapsed())) {
            Some(pause) => {
                log(
                    Notice::Crash,
                    &format!(
                        "{crashes} crashes: {ended}, waiting until {RESTART_S} seconds since last restart"
                    ),
                );
                holder.clear();
                std::thread::sleep(pause);
            }
            None => log(Notice::Crash, &format!("{crashes} crashes: {ended}, restarting")),
        }
        if has_successor {
            // The daemon that crashed may have been of another version than this process.
            let e = start_over(&holder.take_all());
            log(Notice::Crash, &format!("cannot start over: {e}; restarting the first version"));
        }
        last_crash = ended;
        last_restart = Some(Instant::now());
    }
}

/// Delay of a restart, given the time since the last one; `None`: no delay.
fn pause(since_restart: Option<Duration>) -> Option<Duration> {
    let pause = Duration::from_secs(RESTART_S).saturating_sub(since_restart?);
    (!pause.is_zero()).then_some(pause)
}

/// Waits until a daemon reports ready; `false` if it ends before.
fn is_ready(wait: OwnedFd) -> bool {
    loop {
        match rustix::io::read(&wait, &mut [0]) {
            Ok(count) => return count == 1,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Waits for the end of a daemon, or of the last of its successors; `show` shows their process ids.
fn await_last(
    child: libc::pid_t,
    mut holding: Holding,
    holder: &mut Holder,
    mut show: impl FnMut(libc::pid_t),
) -> io::Result<(libc::pid_t, End)> {
    holding.hold_until(holder, None);
    let (mut child, mut end) = (child, await_end(child)?);
    while let End::Exited(HANDED_OVER) = end {
        child = next_child().unwrap_or(ANY_CHILD);
        show(child);
        holding.follow(child);
        holding.hold_until(holder, None);
        end = match await_end(child) {
            Err(e) if e.raw_os_error() == Some(libc::ECHILD) => End::Exited(0),
            other => other?,
        };
    }
    Ok((child, end))
}

/// A child of this process, if it has one.
fn next_child() -> Option<libc::pid_t> {
    let own = std::process::id();
    let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children")).ok()?;
    children.split_whitespace().find_map(|pid| pid.parse().ok())
}

/// Holds descriptors for a daemon while it runs.
struct Holding {
    /// Readable at its end. Without pidfd_open(2), Linux 5.3, none are held.
    ended: Option<OwnedFd>,
    /// Its messages, until nobody has the other end.
    channel: Option<Channel>,
}

impl Holding {
    fn new(child: libc::pid_t, channel: Channel) -> Holding {
        let mut holding = Holding { ended: None, channel: Some(channel) };
        holding.follow(child);
        holding
    }

    /// The daemon is another process now.
    fn follow(&mut self, child: libc::pid_t) {
        let pid = Pid::from_raw(child).filter(|_| child > 0);
        self.ended = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if self.ended.is_none() {
            // Nobody reads the messages.
            self.channel = None;
        }
    }

    /// Carries out messages until the daemon ends, or `other` is readable.
    fn hold_until(&mut self, holder: &mut Holder, other: Option<&OwnedFd>) {
        let Some(ended) = &self.ended else { return };
        loop {
            let fds: Vec<&dyn AsFd> = [Some(ended as &dyn AsFd), other.map(|fd| fd as &dyn AsFd)]
                .into_iter()
                .chain([self.channel.as_ref().map(|channel| channel as &dyn AsFd)])
                .flatten()
                .collect();
            let mut polled: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            match poll(&mut polled, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return,
            }
            let others = 1 + usize::from(other.is_some());
            let is_over = polled[..others].iter().any(|fd| !fd.revents().is_empty());
            // Messages before the end count.
            while let Some(Ok(message)) = self.channel.as_ref().map(|channel| channel.receive(Duration::ZERO))
            {
                match message {
                    Some(message) => holder.take(message),
                    None => self.channel = None,
                }
            }
            if is_over {
                return;
            }
        }
    }
}

fn await_end(child: libc::pid_t) -> io::Result<End> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is alive through the call.
        if unsafe { libc::waitpid(child, &mut status, 0) } > 0 {
            break;
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
    Ok(match libc::WIFSIGNALED(status) {
        true => End::Killed { signal: libc::WTERMSIG(status), dumped_core: libc::WCOREDUMP(status) },
        false => End::Exited(libc::WEXITSTATUS(status)),
    })
}

/// Ends the monitor. The command that waits for the start of a daemon gets its failure.
fn leave(end: &End, is_awaited: bool) -> ! {
    let status = match end {
        End::Exited(0) if is_awaited => {
            let _ = writeln!(io::stderr(), "the daemon ended before it was ready");
            1
        }
        End::Exited(code) => *code,
        End::Killed { signal, .. } if is_awaited => {
            let _ = writeln!(io::stderr(), "the daemon died of signal {signal} before it was ready");
            1
        }
        End::Killed { .. } => 0,
    };
    // SAFETY: ends the process without running exit handlers, which the daemon, its copy, runs itself.
    unsafe { libc::_exit(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_are_ten_seconds_apart_but_for_the_first() {
        let s = Duration::from_secs;
        for (since, wait) in [
            (None, None),
            (Some(s(0)), Some(s(10))),
            (Some(s(9)), Some(s(1))),
            (Some(s(10)), None),
            (Some(s(3600)), None),
        ] {
            assert_eq!(pause(since), wait, "{since:?}");
        }
    }
}
