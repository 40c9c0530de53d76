//! Messages to a service manager (sd_notify(3)): ready, alive, stopping. Without `NOTIFY_SOCKET` nothing is sent.
//!
//! The main loop reports that it is alive twice in the time of `WATCHDOG_USEC`, so a loop that hangs ends the process.

use std::time::Duration;

use sd_notify::NotifyState;

use super::turn::Turn;

/// The service manager.
#[derive(Debug)]
pub(crate) struct Service {
    is_ready: bool,
    /// Time between two signs of life, if any are expected.
    interval_ms: Option<u64>,
    next_ms: u64,
}

impl Service {
    /// The manager that started this process, as its environment names it.
    pub(crate) fn find() -> Service {
        Service::with_watchdog(sd_notify::watchdog_enabled())
    }

    fn with_watchdog(limit: Option<Duration>) -> Service {
        let half = |limit: Duration| u64::try_from(limit.as_millis() / 2).unwrap_or(u64::MAX).max(1);
        Service { is_ready: false, interval_ms: limit.map(half), next_ms: 0 }
    }

    /// Reports once that the first configuration is in force.
    pub(crate) fn ready(&mut self) {
        if !std::mem::replace(&mut self.is_ready, true) {
            send(NotifyState::Ready);
        }
    }

    /// Reports that this process lives, when due.
    pub(crate) fn run(&mut self, now_ms: u64) -> Turn {
        let Some(interval_ms) = self.interval_ms else { return Turn::DONE };
        if self.next_ms <= now_ms {
            send(NotifyState::Watchdog);
            self.next_ms = now_ms + interval_ms;
        }
        Turn::at(self.next_ms)
    }

    /// Reports that another process is the service from now on.
    pub(crate) fn succeeded_by(&self, pid: u32) {
        send(NotifyState::MainPid(pid));
    }

    /// Reports that the end has begun.
    pub(crate) fn stopping(&self) {
        send(NotifyState::Stopping);
    }
}

/// A manager that is gone, or whose socket is full, stops no switch.
fn send(state: NotifyState<'_>) {
    if let Err(e) = sd_notify::notify(&[state]) {
        log::debug!(target: "daemon_unix", "the service manager gets no message: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_come_twice_in_the_time_of_the_watchdog() {
        let mut service = Service::with_watchdog(Some(Duration::from_secs(60)));
        for (now_ms, next_ms) in [(5_000, 35_000), (5_001, 35_000), (34_999, 35_000), (36_000, 66_000)] {
            assert_eq!(service.run(now_ms), Turn::at(next_ms), "{now_ms}");
        }
        assert_eq!(Service::with_watchdog(None).run(0), Turn::DONE);
        // A time that is too short for halves.
        assert_eq!(Service::with_watchdog(Some(Duration::from_micros(1))).run(7), Turn::at(8));
    }
}
