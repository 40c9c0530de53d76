//! The conservation law as counters: where every packet that came in went.

/// What came in and what became of it, cumulative except for the packets that are waiting now.
///
/// `received + executed + copied == sent + upcalled + dropped + consumed + parked + queued`, at any time between calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// Packets that came in by ports.
    pub received: u64,
    /// Packets that came in by `Execute`: packet-outs and answered upcalls.
    pub executed: u64,
    /// Copies made by actions.
    pub copied: u64,
    /// Packets that devices took.
    pub sent: u64,
    /// Packets handed to the slow path.
    pub upcalled: u64,
    /// Packets dropped, each counted under one reason too.
    pub dropped: u64,
    /// Packets that ended after a copy of them went on, as the original behind a sample that did not fire.
    pub consumed: u64,
    /// Packets parked behind an upcall now.
    pub parked: u64,
    /// Packets in transmit batches now.
    pub queued: u64,
}

impl Ledger {
    /// Whether every packet is accounted for.
    pub fn balances(&self) -> bool {
        self.received + self.executed + self.copied
            == self.sent + self.upcalled + self.dropped + self.consumed + self.parked + self.queued
    }
}
