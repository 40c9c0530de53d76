//! Fast wake-ups (`other_config:pmd-fast-wakeup`): while packets end a thread's sleeps again and again, processors are kept
//! from idle states that take long to leave.
//!
//! A processor that sleeps deeply, or that of a virtual machine that has halted, takes 30 to 100 µs to wake: more than all
//! else that a packet costs. The price is power (in a virtual machine, processors that spin), so it is paid only while
//! traffic is there, and too thin to keep the thread awake by itself.

use std::time::Duration;
use sys::idle::ShallowIdle;

/// How long sleeps are counted before it is decided anew.
const WINDOW_US: u64 = 100_000;
/// So many sleeps ended by packets within a window are worth it: 160 a second.
const WAKEUPS: u32 = 16;

/// Sleeps ended by packets, and what is done about them.
#[derive(Default)]
pub(super) struct Wakeups {
    allowed: bool,
    count: u32,
    window_ends_us: u64,
    shallow: Option<ShallowIdle>,
}

impl Wakeups {
    /// Sets whether processors may be kept from deep sleep.
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

    /// How long a sleep may last at most, so that it is noticed when traffic ends.
    pub(super) fn sleep_max(&self, otherwise: Duration) -> Duration {
        if self.shallow.is_some() { otherwise.min(Duration::from_micros(WINDOW_US)) } else { otherwise }
    }

    /// Decides, at the end of a window. A processor that cannot be kept awake is told of once, and not tried again.
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
