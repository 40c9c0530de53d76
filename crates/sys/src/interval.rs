//! A timer whose descriptor becomes readable at equal intervals, shorter than a millisecond if asked: epoll_wait(2) counts
//! milliseconds.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timerfd(2) of the monotonic clock.
#[derive(Debug)]
pub struct Interval {
    timer: OwnedFd,
}

impl Interval {
    /// A timer that is off.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Interval> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Interval { timer: timerfd_create(TimerfdClockId::Monotonic, flags)? })
    }

    /// Expires each `every` from now on; never if that is `None`.
    ///
    /// # Errors
    /// The interval is beyond the kernel's range.
    pub fn set(&self, every: Option<Duration>) -> io::Result<()> {
        let every = every.unwrap_or(Duration::ZERO);
        let outside = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let tv_sec = every.as_secs().try_into().map_err(outside)?;
        let spec = Timespec { tv_sec, tv_nsec: every.subsec_nanos().into() };
        let spec = Itimerspec { it_interval: spec, it_value: spec };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }

    /// Expirations since the last call.
    pub fn take(&self) -> u64 {
        let mut count = [0; 8];
        match rustix::io::read(&self.timer, &mut count) {
            Ok(8) => u64::from_ne_bytes(count),
            _ => 0,
        }
    }
}

impl AsFd for Interval {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}
