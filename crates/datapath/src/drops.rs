//! Samples of dropped packets while a listener wants them.
//!
//! Without a listener there is no [`Sampler`], and a drop costs its counter. With one, at most a number of packets for each
//! cause and second are copied, so a flood neither costs more than that nor hides a rare cause. The driver takes the
//! samples after each burst.

use dpif::{DropCause, DropReason, DropSampling, DroppedPacket, XlateDrop};
use flow::{DpPort, FlowKey};

/// Samples that wait for the driver, at most.
const WAITING_MAX: usize = 256;

/// How many samples of each cause are left in this second.
#[derive(Clone, Debug)]
pub struct DropBudget {
    per_second: u32,
    second: u64,
    left: [u32; DropCause::COUNT],
    /// Drops without a sample, since they were last taken.
    unsampled: u64,
}

impl DropBudget {
    /// A whole budget.
    pub fn new(per_second: u32) -> DropBudget {
        DropBudget { per_second, second: 0, left: [per_second; DropCause::COUNT], unsampled: 0 }
    }

    /// Whether a sample of that cause may be made; counts it.
    pub fn take(&mut self, cause: DropCause) -> bool {
        let left = &mut self.left[cause.index()];
        let has = *left > 0;
        match has {
            true => *left -= 1,
            false => self.unsampled += 1,
        }
        has
    }

    /// At that time: each second has a whole budget.
    pub fn refill(&mut self, now_us: u64) {
        let second = now_us / 1_000_000;
        if second != self.second {
            self.second = second;
            self.left = [self.per_second; DropCause::COUNT];
        }
    }

    /// Drops without a sample since the last call.
    pub fn take_unsampled(&mut self) -> u64 {
        std::mem::take(&mut self.unsampled)
    }

    /// Counts drops without a sample.
    pub fn pass_over(&mut self, packets: u64) {
        self.unsampled += packets;
    }
}

/// The samples of a core while somebody listens.
pub(crate) struct Sampler {
    how: DropSampling,
    budget: DropBudget,
    waiting: Vec<DroppedPacket>,
}

impl Sampler {
    pub(crate) fn new(how: DropSampling) -> Sampler {
        Sampler { how, budget: DropBudget::new(how.per_second), waiting: Vec::new() }
    }

    pub(crate) fn how(&self) -> DropSampling {
        self.how
    }

    /// The samples since the last call, and the number of drops without one.
    pub(crate) fn take(&mut self, now_us: u64) -> (Vec<DroppedPacket>, u64) {
        self.budget.refill(now_us);
        (std::mem::take(&mut self.waiting), self.budget.take_unsampled())
    }

    #[cold]
    pub(crate) fn note(&mut self, cause: DropCause, port: DpPort, packet: &[u8], key: Option<&FlowKey>) {
        if self.waiting.len() >= WAITING_MAX {
            return self.budget.pass_over(1);
        }
        if self.budget.take(cause) {
            self.waiting.push(DroppedPacket {
                cause,
                port,
                bytes: packet.len(),
                packet: packet[..packet.len().min(self.how.packet_bytes)].to_vec(),
                key: key.map(|key| Box::new(*key)),
            });
        }
    }
}

/// The cause of a drop by the datapath; [`DropReason::Explicit`] is one by rules.
pub(crate) fn cause(reason: DropReason) -> DropCause {
    if reason == DropReason::Explicit {
        return DropCause::Xlate(XlateDrop::Ok);
    }
    DropCause::Datapath(reason)
}
