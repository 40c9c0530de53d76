//! Packets sampled by the action `psample`, while a reader wants them.
//!
//! Without a reader there is no [`LocalSamples`], and the action costs a branch. With one, the first bytes of each packet
//! wait for the driver, which takes them after each burst. Those beyond [`WAITING_MAX`] are lost and counted.

use dpif::SampledPacket;
use dpif::actions::Psample;
use flow::DpPort;

/// Samples that wait for the driver, at most: a burst whose packets are sampled thirty times each.
pub(crate) const WAITING_MAX: usize = 1024;

/// The samples of a core while a reader wants them.
pub(crate) struct LocalSamples {
    packet_bytes: usize,
    waiting: Vec<SampledPacket>,
    lost: u64,
}

impl LocalSamples {
    pub(crate) fn new(packet_bytes: usize) -> LocalSamples {
        LocalSamples { packet_bytes, waiting: Vec::new(), lost: 0 }
    }

    pub(crate) fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// The samples since the last call, and the number of lost ones.
    pub(crate) fn take(&mut self) -> (Vec<SampledPacket>, u64) {
        (std::mem::take(&mut self.waiting), std::mem::take(&mut self.lost))
    }

    /// A packet with that input port is sampled, with a probability out of `u32::MAX`.
    #[cold]
    pub(crate) fn note(&mut self, sample: &Psample, probability: u32, in_port: DpPort, packet: &[u8]) {
        if self.waiting.len() >= WAITING_MAX {
            self.lost += 1;
            return;
        }
        self.waiting.push(SampledPacket {
            group: sample.group,
            cookie: sample.cookie.clone(),
            probability,
            in_port,
            bytes: packet.len(),
            packet: packet[..packet.len().min(self.packet_bytes)].to_vec(),
        });
    }
}
