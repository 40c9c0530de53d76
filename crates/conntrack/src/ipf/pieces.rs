//! The parts of a datagram's payload that have arrived: intervals without overlap, in order.
//!
//! Invariants: no byte lies in two pieces, none after the end that a last fragment gave; `bytes` is their sum. Thus
//! the datagram is complete exactly if `bytes` equals that end.

/// One fragment's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// First byte, and the byte after the last one.
    pub(super) start: u32,
    pub(super) end: u32,
    /// Index of the fragment in order of arrival.
    pub(super) arrived: u32,
    /// Offset of the payload from the fragment's IP header.
    pub(super) payload: u16,
}

/// A piece repeats bytes, or contradicts the known end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Overlap;

/// All pieces of a datagram.
#[derive(Clone, Default, Debug)]
pub(super) struct Pieces {
    pieces: Vec<Piece>,
    bytes: u32,
    end: Option<u32>,
}

impl Pieces {
    /// Adds a piece; `last` if no fragment follows it.
    pub(super) fn add(&mut self, piece: Piece, last: bool) -> Result<(), Overlap> {
        let known = self.pieces.last().map_or(0, |p| p.end);
        let fits = match self.end {
            Some(end) if last => piece.end == end,
            Some(end) => piece.end <= end,
            None => !last || known <= piece.end,
        };
        let at = self.pieces.partition_point(|p| p.start < piece.start);
        let before = at.checked_sub(1).and_then(|i| self.pieces.get(i));
        let after = self.pieces.get(at);
        let free = before.is_none_or(|p| p.end <= piece.start)
            && after.is_none_or(|p| piece.end <= p.start && piece.start != p.start);
        if !fits || !free {
            return Err(Overlap);
        }
        self.pieces.insert(at, piece);
        self.bytes += piece.end - piece.start;
        if last {
            self.end = Some(piece.end);
        }
        Ok(())
    }

    /// Bytes of the whole payload, once all of it has arrived.
    pub(super) fn complete(&self) -> Option<u32> {
        self.end.filter(|end| *end == self.bytes)
    }

    /// In order of their bytes.
    pub(super) fn in_order(&self) -> &[Piece] {
        &self.pieces
    }

    /// Number of pieces.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the first fragment and the last one have arrived.
    pub(super) fn ends(&self) -> (bool, bool) {
        (self.pieces.first().is_some_and(|p| p.start == 0), self.end.is_some())
    }
}
