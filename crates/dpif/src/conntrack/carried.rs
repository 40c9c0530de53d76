//! Connections on their way to another process.

/// Reader of exported connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CtCarry {
    /// A process that goes on at the same packet.
    Over,
    /// A process that starts later, while packets passed unseen: passes have fewer changes.
    Kept,
}

/// All connections of a tracker, in passes of slices.
pub trait CtExport: Send {
    /// The next slice of a pass: about `room` bytes, none if nothing changed in its part. `None`: the pass is over; the next
    /// call begins another one, of the connections that were made, changed or ended since. Call it on a thread that may
    /// wait. Packets go on meanwhile; the last pass is exact only if none do.
    fn next(&mut self, room: usize) -> Option<Vec<u8>>;

    /// Has the next pass tell all connections again.
    fn begin_anew(&mut self);
}

/// Import of slices that another process kept.
pub trait CtRestore: Send {
    /// Takes a slice of [`CtCarry::Kept`], written `age_ms` ago, in the order of the slices. Packets may go on meanwhile:
    /// connections that they make stay.
    fn take(&mut self, slice: &[u8], age_ms: u64) -> CtImported;
}

/// Result of an import.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CtImported {
    /// Connections that were made.
    pub made: u64,
    /// Connections that were there, and have the later state now.
    pub replaced: u64,
    /// Connections that were there, and have ended.
    pub ended: u64,
    /// Expected connections.
    pub expected: u64,
    /// Connections that were refused; a part that cannot be read counts as one.
    pub refused: u64,
    /// Reason for the first of these.
    pub why: Option<String>,
}

impl CtImported {
    /// Counts a refusal.
    pub fn refuse(&mut self, why: impl Into<String>) {
        self.refused += 1;
        self.why.get_or_insert_with(|| why.into());
    }

    /// Adds the result of a later slice.
    pub fn add(&mut self, later: CtImported) {
        let CtImported { made, replaced, ended, expected, refused, why } = later;
        self.made += made;
        self.replaced += replaced;
        self.ended += ended;
        self.expected += expected;
        self.refused += refused;
        self.why = self.why.take().or(why);
    }
}
