//! Bursts and batches of packets: of one receive call and of one transmit call.

use crate::pool::{Packet, PacketPool};

/// Packets that pass the stages of the fast path together; also the default maximum of a receive call.
pub const BATCH_MAX_PACKETS: usize = 32;
/// Maximum packets of one receive call.
pub const BURST_MAX_PACKETS: usize = 256;

/// Packets in order of arrival. A receive burst holds at most [`BURST_MAX_PACKETS`]; a transmit batch may be
/// longer.
#[derive(Default, Debug)]
pub struct PacketBatch {
    packets: Vec<Packet>,
}

impl PacketBatch {
    /// An empty batch with capacity for a usual burst.
    pub fn new() -> PacketBatch {
        PacketBatch { packets: Vec::with_capacity(BATCH_MAX_PACKETS) }
    }

    /// Appends a packet.
    #[inline]
    pub fn push(&mut self, p: Packet) {
        self.packets.push(p);
    }

    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The packets.
    pub fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// The packets, writable.
    pub fn packets_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }

    /// Removes all packets, in order.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Packet> {
        self.packets.drain(..)
    }

    /// Moves all packets to the end of `into`; if that is empty, swaps the two in constant time.
    #[inline]
    pub fn move_into(&mut self, into: &mut Vec<Packet>) {
        if into.is_empty() {
            std::mem::swap(&mut self.packets, into);
        } else {
            into.append(&mut self.packets);
        }
    }

    /// Appends all packets of `from`, in the same way.
    #[inline]
    pub fn append(&mut self, from: &mut Vec<Packet>) {
        if self.packets.is_empty() {
            std::mem::swap(&mut self.packets, from);
        } else {
            self.packets.append(from);
        }
    }

    /// Frees the packets from the place `from` on that `keep` rejects; returns their number.
    pub fn retain_from(
        &mut self,
        from: usize,
        pool: &mut PacketPool,
        mut keep: impl FnMut(&Packet) -> bool,
    ) -> usize {
        let before = self.packets.len();
        let rejected = self.packets.extract_if(from.min(before).., |p| !keep(p));
        rejected.for_each(|p| pool.free(p));
        before - self.packets.len()
    }

    /// Frees all packets into `pool`.
    pub fn free_into(&mut self, pool: &mut PacketPool) {
        pool.free_burst(&mut self.packets);
    }
}

impl Extend<Packet> for PacketBatch {
    fn extend<I: IntoIterator<Item = Packet>>(&mut self, packets: I) {
        self.packets.extend(packets);
    }
}

impl FromIterator<Packet> for PacketBatch {
    fn from_iter<I: IntoIterator<Item = Packet>>(packets: I) -> PacketBatch {
        PacketBatch { packets: packets.into_iter().collect() }
    }
}
