//! Policing of what a port receives: [`PortPolicer`], shared by its receive queues.
//!
//! A port without limits costs one load for each burst.

use dpif::qos::{Policer, Policing};
use packet::{Packet, PacketBatch, PacketPool, wire_cost};
use std::sync::atomic::{AtomicBool, Ordering};
use sync::{Mutex, lock};

/// The limits of a port.
#[derive(Default)]
pub(crate) struct PortPolicer {
    limits: AtomicBool,
    policer: Mutex<Option<Policer>>,
}

impl PortPolicer {
    /// Replaces the limits.
    pub(crate) fn set(&self, limits: Policing, now_us: u64) {
        let mut policer = lock(&self.policer);
        *policer = Policer::new(limits, now_us);
        self.limits.store(policer.is_some(), Ordering::Relaxed);
    }

    /// Whether there are limits.
    pub(crate) fn limits(&self) -> bool {
        self.limits.load(Ordering::Relaxed)
    }

    /// Drops the packets of the batch, from the place `from` on, that are beyond the limits; returns their number.
    pub(crate) fn police(
        &self,
        batch: &mut PacketBatch,
        from: usize,
        pool: &mut PacketPool,
        now_us: u64,
    ) -> u64 {
        let mut policer = lock(&self.policer);
        let Some(policer) = policer.as_mut() else { return 0 };
        policer.fill(now_us);
        let keep = |p: &Packet| {
            let (packets, bytes) = wire_cost(p);
            policer.admit(packets, bytes)
        };
        batch.retain_from(from, pool, keep) as u64
    }
}

#[cfg(test)]
mod tests;
