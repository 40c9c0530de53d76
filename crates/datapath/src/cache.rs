//! The signature cache, first stage of a lookup: 16 bits of a packet's hash → the id of a megaflow.
//!
//! One 64-byte line holds twelve entries. The line is found by some bits of the hash of the whole key, the entry by sixteen
//! others; what it says is a hint only: a hit counts when the megaflow of that id, under its own mask, matches the packet.
//! So entries of deleted or replaced megaflows are harmless and nothing is ever invalidated: the next insertion of the same
//! signature writes over them.
//!
//! The size follows the traffic: doubled while more than 1 % of lookups evict, halved when so few lookups come that
//! an eighth of the entries could not be in use. A resized cache starts empty; megaflow lookups fill it again.

/// Entries of one line.
pub(crate) const LINE_ENTRIES: usize = 12;
/// Ids have 24 bits.
pub(crate) const ID_LIMIT: u32 = 1 << 24;

const WINDOW_LOOKUPS: u64 = 16 * 1024;
const LINES_MIN: usize = 256;
/// Up to so many lines (64 KiB) the second-level cache of a processor has them.
const NEAR_LINES: usize = 1024;
const IDLE_TICKS: u32 = 10;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    signatures: [u16; LINE_ENTRIES],
    ids: [[u8; 3]; LINE_ENTRIES],
    next_victim: u8,
}

const _: () = assert!(size_of::<Line>() == 64);

const EMPTY: Line = Line { signatures: [0; LINE_ENTRIES], ids: [[0; 3]; LINE_ENTRIES], next_victim: 0 };

/// The cache of one forwarding core. Not for other threads.
pub(crate) struct SignatureCache {
    lines: Box<[Line]>,
    lines_max: usize,
    /// Compares signatures by vector instructions.
    vector: bool,
    window_lookups: u64,
    window_evictions: u64,
    idle_lookups: u64,
    idle_ticks: u32,
    /// Evictions since the start.
    pub(crate) evictions: u64,
}

impl SignatureCache {
    /// A cache that grows up to `entries_max` entries (rounded to a power of two of lines); 0 switches it off.
    pub(crate) fn new(entries_max: usize, vector: bool) -> SignatureCache {
        let lines_max = match entries_max / LINE_ENTRIES {
            0 => 0,
            n => n.next_power_of_two().max(LINES_MIN),
        };
        let lines = if lines_max == 0 { 0 } else { LINES_MIN };
        SignatureCache {
            lines: vec![EMPTY; lines].into_boxed_slice(),
            lines_max,
            vector,
            window_lookups: 0,
            window_evictions: 0,
            idle_lookups: 0,
            idle_ticks: 0,
            evictions: 0,
        }
    }

    /// Switches it on, empty, or off, which gives its memory back.
    pub(crate) fn set_on(&mut self, on: bool) {
        let on = on && self.lines_max != 0;
        if on != self.is_on() {
            self.resize(if on { LINES_MIN } else { 0 });
        }
    }

    /// Whether it is used at all.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        !self.lines.is_empty()
    }

    /// How many entries it has room for now.
    pub(crate) fn entries(&self) -> usize {
        self.lines.len() * LINE_ENTRIES
    }

    /// Whether it is so large that its lines are better asked for in advance.
    #[inline(always)]
    pub(crate) fn is_far(&self) -> bool {
        self.lines.len() > NEAR_LINES
    }

    #[inline(always)]
    fn signature(hash: u64) -> u16 {
        (hash >> 48) as u16 | 1
    }

    #[inline(always)]
    fn line_of(&self, hash: u64) -> usize {
        hash as usize & (self.lines.len() - 1)
    }

    #[inline(always)]
    fn probe(&self, line: &Line, signature: u16) -> u32 {
        if self.vector {
            simd::equal_u16(&line.signatures, signature)
        } else {
            simd::equal_u16_plain(&line.signatures, signature)
        }
    }

    /// Asks for the line of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        simd::prefetch(&self.lines[self.line_of(hash)]);
    }

    /// The first megaflow of the packet's signature, unconfirmed: an id that may be any, or none.
    #[inline(always)]
    pub(crate) fn hint(&self, hash: u64) -> Option<u32> {
        let line = &self.lines[self.line_of(hash)];
        let hits = self.probe(line, SignatureCache::signature(hash));
        let [a, b, c] = *line.ids.get(hits.trailing_zeros() as usize)?;
        Some(u32::from_le_bytes([a, b, c, 0]))
    }

    /// The megaflow that `confirm` accepts among those of the packet's signature.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut confirm: impl FnMut(u32) -> bool) -> Option<u32> {
        let line = &self.lines[self.line_of(hash)];
        let mut hits = self.probe(line, SignatureCache::signature(hash));
        while hits != 0 {
            let [a, b, c] = line.ids[hits.trailing_zeros() as usize];
            let id = u32::from_le_bytes([a, b, c, 0]);
            if confirm(id) {
                return Some(id);
            }
            hits &= hits - 1;
        }
        None
    }

    /// Counts lookups, for the sizing.
    #[inline]
    pub(crate) fn count_lookups(&mut self, lookups: u64) {
        self.window_lookups += lookups;
        if self.window_lookups >= WINDOW_LOOKUPS {
            self.end_window();
        }
    }

    /// Remembers that a packet of this hash matches megaflow `id`.
    pub(crate) fn insert(&mut self, hash: u64, id: u32) {
        debug_assert!(id < ID_LIMIT);
        let signature = SignatureCache::signature(hash);
        let at = self.line_of(hash);
        let (same, free) = (self.probe(&self.lines[at], signature), self.probe(&self.lines[at], 0));
        let line = &mut self.lines[at];
        let entry = if same != 0 {
            same.trailing_zeros() as usize
        } else if free != 0 {
            free.trailing_zeros() as usize
        } else {
            let victim = usize::from(line.next_victim);
            line.next_victim = ((victim + 1) % LINE_ENTRIES) as u8;
            self.window_evictions += 1;
            self.evictions += 1;
            victim
        };
        let [a, b, c, _] = id.to_le_bytes();
        line.signatures[entry] = signature;
        line.ids[entry] = [a, b, c];
    }

    fn end_window(&mut self) {
        let thrashes = self.window_evictions * 100 > self.window_lookups;
        self.idle_lookups += self.window_lookups;
        self.window_lookups = 0;
        self.window_evictions = 0;
        if thrashes && self.is_on() && self.lines.len() < self.lines_max {
            self.resize(self.lines.len() * 2);
        }
    }

    fn resize(&mut self, lines: usize) {
        self.lines = vec![EMPTY; lines].into_boxed_slice();
        self.idle_lookups = 0;
        self.idle_ticks = 0;
    }

    /// About once a second: shrinks a cache that is hardly used.
    pub(crate) fn tick(&mut self) {
        self.idle_ticks += 1;
        if self.idle_ticks < IDLE_TICKS {
            return;
        }
        let lookups = self.idle_lookups + self.window_lookups;
        self.idle_ticks = 0;
        self.idle_lookups = 0;
        self.window_lookups = 0;
        self.window_evictions = 0;
        if lookups < self.entries() as u64 / 8 && self.lines.len() > LINES_MIN {
            self.resize(self.lines.len() / 2);
        }
    }
}
