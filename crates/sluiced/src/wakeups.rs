//! [`Wakeups`]: debug lines of the log about the wakeups of the main loop (`poll_loop`), in the words of OVS.
//!
//! Without that level a turn costs one load.

use log::Level;
use mio::event::Event;
use mio::{Events, Token};
use std::time::Duration;

const MODULE: &str = "poll_loop";
/// Interval over which the share of processor time is measured, at least, as in OVS.
const MEASURED_MS: u64 = 5000;

/// The processor time of the main loop.
#[derive(Default)]
pub(crate) struct Wakeups {
    /// Machine time and processor time of the latest measurement, in milliseconds.
    measured: Option<(u64, u64)>,
    /// Share of the last interval, in percent.
    share: Option<u64>,
}

impl Wakeups {
    /// Logs why the main loop woke, after a wait of at most `wait`; `owner` names the user of a token.
    pub(crate) fn log(&mut self, events: &Events, wait: Duration, owner: impl Fn(Token) -> &'static str) {
        if !log::log_enabled!(target: MODULE, Level::Debug) {
            self.measured = None;
            return;
        }
        self.measure(sys::clock::machine_us() / 1000, sys::clock::thread_cpu_us() / 1000);
        let share = self.share.map_or(String::new(), |percent| format!(" ({percent}% CPU usage)"));
        if events.is_empty() {
            log::debug!(target: MODULE, "wakeup due to {}-ms timeout{share}", wait.as_millis());
        }
        for event in events {
            let (kind, token) = (kind(event), event.token());
            log::debug!(target: MODULE, "wakeup due to {kind} on socket {} ({}){share}", token.0, owner(token));
        }
    }

    fn measure(&mut self, now_ms: u64, cpu_ms: u64) {
        let Some((then_ms, cpu_then_ms)) = self.measured else {
            (self.measured, self.share) = (Some((now_ms, cpu_ms)), None);
            return;
        };
        let elapsed_ms = now_ms.saturating_sub(then_ms);
        if elapsed_ms >= MEASURED_MS {
            self.share = Some(cpu_ms.saturating_sub(cpu_then_ms) * 100 / elapsed_ms);
            self.measured = Some((now_ms, cpu_ms));
        }
    }
}

/// The event in the names of poll(2).
fn kind(event: &Event) -> String {
    let flags = [
        (event.is_readable(), "[POLLIN]"),
        (event.is_writable(), "[POLLOUT]"),
        (event.is_error(), "[POLLERR]"),
        (event.is_read_closed() || event.is_write_closed(), "[POLLHUP]"),
    ];
    flags.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time, processor time, and the share then.
    #[test]
    fn the_share_of_the_processor_is_that_of_the_last_interval() {
        let mut wakeups = Wakeups::default();
        for (now_ms, cpu_ms, share) in [
            (1000, 10, None),
            (5999, 900, None),
            (6000, 1010, Some(20)),
            (7000, 1900, Some(20)),
            (11_000, 1060, Some(1)),
        ] {
            wakeups.measure(now_ms, cpu_ms);
            assert_eq!(wakeups.share, share, "{now_ms}");
        }
    }
}
