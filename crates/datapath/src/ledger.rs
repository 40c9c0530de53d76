//! Packet conservation as counters: the destination of every packet.

/// Packets in and out, cumulative except for packets that wait at present.
///
/// `received + executed + copied + released == sent + upcalled + dropped + consumed + held + parked + queued`, at any time
/// between calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Packets received from ports.
    pub received: u64,
    /// Packets from `Execute`: packet-outs and answered upcalls.
    pub executed: u64,
    /// Copies made by actions.
    pub copied: u64,
    /// Packets accepted by devices.
    pub sent: u64,
    /// Packets sent to the slow path.
    pub upcalled: u64,
    /// Dropped packets, each also counted under one reason.
    pub dropped: u64,
    /// Packets that ended after a copy of them continued, as the original behind a sample that did not fire.
    pub consumed: u64,
    /// Fragments given to the reassembly that all cores share. Those that expire there end there.
    pub held: u64,
    /// Fragments of complete datagrams, held by this core or others.
    pub released: u64,
    /// Packets currently parked behind an upcall.
    pub parked: u64,
    /// Packets currently in transmit batches.
    pub queued: u64,
}

impl Ledger {
    /// Whether every packet is accounted for.
    pub fn balances(&self) -> bool {
        self.received + self.executed + self.copied + self.released
            == self.sent
                + self.upcalled
                + self.dropped
                + self.consumed
                + self.held
                + self.parked
                + self.queued
    }
}
