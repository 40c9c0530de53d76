//! Fast wake-ups (`other_config:pmd-fast-wakeup`): while packets frequently end a thread's sleeps, keeps processors
//! from idle states with a long exit latency.
//!
//! A processor in a deep idle state, or a halted one of a virtual machine, takes 30 to 100 µs to wake: more than the
//! rest of a packet's cost. The price is power (in a virtual machine, spinning processors), so it applies only to
//! traffic too thin to keep the thread awake by itself.

use std::time::Duration;
use sys::idle::ShallowIdle;

/// Window for counting sleeps.
const WINDOW_US: u64 = 100_000;
/// Sleeps ended by packets within a window that justify it: 160 a second.
const WAKEUPS: u32 = 16;

/// Sleeps ended by packets, and the resulting state.
#[derive(Default)]
pub(super) struct Wakeups {
    allowed: bool,
    count: u32,
    window_ends_us: u64,
    shallow: Option<ShallowIdle>,
}

impl Wakeups {
    /// Sets whether processors may be kept from deep idle states.
    pub(super) fn allow(&mut self, allowed: bool) {
        self.allowed = allowed;
        if !allowed {
            self.shallow = None;
        }
    }

    /// A packet ended a sleep.
    pub(super) fn note(&mut self) {
        self.count += 1;
    }

    /// Maximum length of a sleep, to notice the end of traffic.
    pub(super) fn sleep_max(&self, otherwise: Duration) -> Duration {
        if self.shallow.is_some() { otherwise.min(Duration::from_micros(WINDOW_US)) } else { otherwise }
    }

    /// Decides at the end of a window. Logs a processor that cannot be kept awake once, and does not try again.
    pub(super) fn review(&mut self, now_us: u64) {
        if now_us < self.window_ends_us {
            return;
        }
        self.window_ends_us = now_us + WINDOW_US;
        let worth_it = std::mem::take(&mut self.count) >= WAKEUPS;
        if !worth_it || !self.allowed {
            self.shallow = None;
        } else if self.shallow.is_none() {
            match ShallowIdle::begin() {
                Ok(shallow) => self.shallow = Some(shallow),
                Err(e) => {
                    self.allowed = false;
                    log::info!(
                        target: "dpif_netdev",
                        "packets may take longer after a pause, processors sleep as deep as they like: {e}"
                    );
                }
            }
        }
    }
}
