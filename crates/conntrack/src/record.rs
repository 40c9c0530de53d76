//! [`Slab`]: the records of connections, in memory that stays records for good.
//!
//! A record is some words, all atomic. Any thread may read it at any time; the head tells whether it read one consistent
//! state (a sequence lock). A writer holds the lock bit of the head for some tens of nanoseconds. A number
//! is used again after its connection ended, so a reader compares the key before it believes the rest.
//!
//! The first cache line holds all that an established packet of a stateless protocol needs: head, keys, deadline, state.

use crate::key::Words;
use simd::Pages;
use std::mem::offset_of;
use std::ops::Deref;
use sync::{AtomicU32, AtomicU64, Backoff, Mutex, OnceLock, Ordering, lock};

/// Records of an allocated part: 2 or 3 MB, on large pages.
const PART: usize = 1 << 14;
/// Maximum records of one family.
pub(crate) const RECORDS_MAX: usize = 1 << 26;
/// Lists of free records. Each has its own lock.
const LISTS: usize = 16;
/// Records taken from untouched memory at a time.
const FRESH: u32 = 32;

const LOCKED: u64 = 1;
const LIVE: u64 = 2;
/// Counts changes.
const VERSION: u64 = 4;

/// A connection's state, one word each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Body {
    /// Time of expiry.
    pub(crate) expires_ms: u64,
    /// [`State`], packed.
    pub(crate) state: u64,
    /// Input port of the first packet.
    pub(crate) port: u64,
    /// Sequence numbers of TCP, or nothing.
    pub(crate) tcp: [u64; 3],
    /// Labels: high and low half.
    pub(crate) labels: [u64; 2],
    /// Shift of TCP numbers by a helper ([`crate::alg::Skew`]).
    pub(crate) skew: u64,
}

/// The record of a connection. In this order: the compiler chooses another one otherwise.
#[repr(C, align(64))]
pub(crate) struct Record<const W: usize> {
    head: AtomicU64,
    /// By direction: indexed without a branch, which could not be predicted.
    keys: [[AtomicU64; W]; 2],
    expires_ms: AtomicU64,
    state: AtomicU64,
    port: AtomicU64,
    tcp: [AtomicU64; 3],
    labels: [AtomicU64; 2],
    skew: AtomicU64,
}

const _: () = assert!(size_of::<Record<2>>() == 128);
const _: () = assert!(size_of::<Record<5>>() == 192);
/// The last field that an established packet of a stateless protocol reads.
const _: () = assert!(offset_of!(Record<2>, state) + 8 <= 64);

fn zeros<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

#[inline(always)]
fn load<const N: usize>(words: &[AtomicU64; N]) -> [u64; N] {
    std::array::from_fn(|n| words[n].load(Ordering::Acquire))
}

fn store<const N: usize>(words: &[AtomicU64; N], values: [u64; N]) {
    words.iter().zip(values).for_each(|(word, value)| word.store(value, Ordering::Release));
}

/// The version of a record that is live and not locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u64);

impl Version {
    /// As a number, never 0.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Direction of a packet within its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Orig = 0,
    Reply = 1,
}

impl Direction {
    pub(crate) fn is_reply(self) -> bool {
        self == Direction::Reply
    }

    pub(crate) fn opposite(self) -> Direction {
        match self {
            Direction::Orig => Direction::Reply,
            Direction::Reply => Direction::Orig,
        }
    }
}

impl<const W: usize> Record<W>
where
    [u64; W]: Words,
{
    fn new() -> Record<W> {
        Record {
            head: AtomicU64::new(0),
            keys: [zeros(), zeros()],
            expires_ms: AtomicU64::new(0),
            state: AtomicU64::new(0),
            port: AtomicU64::new(0),
            tcp: zeros(),
            labels: zeros(),
            skew: AtomicU64::new(0),
        }
    }

    /// The key of one direction. Only meaningful if the record is live before and after.
    #[inline(always)]
    pub(crate) fn key(&self, direction: Direction) -> [u64; W] {
        load(&self.keys[direction as usize])
    }

    #[inline]
    pub(crate) fn is_live(&self) -> bool {
        self.head.load(Ordering::Acquire) & LIVE != 0
    }

    /// The present version as [`Version::number`]; another number while the record is locked or not live.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.head.load(Ordering::Acquire)
    }

    /// The deadline.
    #[inline(always)]
    pub(crate) fn expires_ms(&self) -> u64 {
        self.expires_ms.load(Ordering::Acquire)
    }

    /// Reads parts of a live record that no writer changes meanwhile: `None` if one does, or the record is not live.
    #[inline(always)]
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Record<W>) -> R) -> Option<R> {
        self.read_version(read).map(|(result, _)| result)
    }

    /// As [`Self::read`], with the version that was read.
    #[inline(always)]
    pub(crate) fn read_version<R>(&self, read: impl FnOnce(&Record<W>) -> R) -> Option<(R, Version)> {
        let head = self.head.load(Ordering::Acquire);
        if head & (LIVE | LOCKED) != LIVE {
            return None;
        }
        let result = read(self);
        (self.head.load(Ordering::Acquire) == head).then_some((result, Version(head)))
    }

    /// Locks the record if nobody changed it since that version was read.
    #[inline]
    pub(crate) fn lock_version(&self, Version(head): Version) -> Option<Locked<'_, W>> {
        let taken = self.head.compare_exchange(head, head | LOCKED, Ordering::Acquire, Ordering::Relaxed);
        // Made only then: its end unlocks the record.
        taken.is_ok().then(|| Locked { record: self })
    }

    /// Fetches the lines that a packet reads: those up to the state, and for TCP its words.
    #[inline(always)]
    pub(crate) fn prefetch(&self, is_tcp: bool) {
        simd::prefetch(&self.head);
        if W > 2 {
            simd::prefetch(&self.state);
        }
        if is_tcp {
            simd::prefetch(&self.tcp);
        }
    }

    /// The words of TCP.
    #[inline]
    pub(crate) fn tcp(&self) -> [u64; 3] {
        load(&self.tcp)
    }

    /// The state word.
    #[inline]
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// The labels.
    pub(crate) fn labels(&self) -> [u64; 2] {
        load(&self.labels)
    }

    /// Everything but the keys.
    pub(crate) fn body(&self) -> Body {
        Body {
            expires_ms: self.expires_ms(),
            state: self.state(),
            port: self.port.load(Ordering::Acquire),
            tcp: load(&self.tcp),
            labels: self.labels(),
            skew: self.skew.load(Ordering::Acquire),
        }
    }

    /// Locks a live record; `None` if it is not live.
    #[inline]
    pub(crate) fn lock(&self) -> Option<Locked<'_, W>> {
        let backoff = Backoff::new();
        loop {
            let head = self.head.load(Ordering::Relaxed);
            if head & LIVE == 0 {
                return None;
            }
            let open = head & !LOCKED;
            let taken =
                self.head.compare_exchange_weak(open, open | LOCKED, Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                return Some(Locked { record: self });
            }
            backoff.snooze();
        }
    }
}

/// A live record that its holder alone may change. Unlocks at the end.
pub(crate) struct Locked<'a, const W: usize> {
    record: &'a Record<W>,
}

impl<const W: usize> Locked<'_, W>
where
    [u64; W]: Words,
{
    pub(crate) fn record(&self) -> &Record<W> {
        self.record
    }

    pub(crate) fn set_expires_ms(&self, ms: u64) {
        self.record.expires_ms.store(ms, Ordering::Release);
    }

    pub(crate) fn set_state(&self, state: u64) {
        self.record.state.store(state, Ordering::Release);
    }

    pub(crate) fn set_tcp(&self, words: [u64; 3]) {
        store(&self.record.tcp, words);
    }

    pub(crate) fn tcp(&self) -> [u64; 3] {
        self.record.tcp()
    }

    pub(crate) fn set_labels(&self, words: [u64; 2]) {
        store(&self.record.labels, words);
    }

    pub(crate) fn set_skew(&self, skew: u64) {
        self.record.skew.store(skew, Ordering::Release);
    }

    /// Ends the connection: from now on nobody else finds the record live.
    pub(crate) fn end(&self) {
        self.record.head.fetch_and(!LIVE, Ordering::AcqRel);
    }
}

impl<const W: usize> Drop for Locked<'_, W> {
    #[inline]
    fn drop(&mut self) {
        let head = self.record.head.load(Ordering::Relaxed);
        self.record.head.store((head & !LOCKED).wrapping_add(VERSION), Ordering::Release);
    }
}

type Part<const W: usize> = OnceLock<Pages<Record<W>, PART>>;

/// See the module.
pub(crate) struct Slab<const W: usize> {
    parts: Box<[Part<W>]>,
    free: [Mutex<Vec<u32>>; LISTS],
    /// Records below were used.
    used: AtomicU32,
}

impl<const W: usize> Slab<W>
where
    [u64; W]: Words,
{
    pub(crate) fn new() -> Slab<W> {
        Slab {
            parts: (0..RECORDS_MAX / PART).map(|_| Part::new()).collect(),
            free: std::array::from_fn(|_| Mutex::new(Vec::new())),
            used: AtomicU32::new(0),
        }
    }

    /// The record of a number.
    #[inline(always)]
    pub(crate) fn record(&self, number: u32) -> &Record<W> {
        let part = &self.parts[number as usize / PART];
        &part.get().map_or_else(|| Self::new_part(part), Deref::deref)[number as usize % PART]
    }

    #[cold]
    fn new_part(part: &Part<W>) -> &[Record<W>; PART] {
        part.get_or_init(|| Pages::new(Record::new))
    }

    /// Takes the memory of that many further records, if any was used.
    pub(crate) fn prepare(&self, ahead: u32) {
        let used = self.used();
        let end = used.saturating_add(ahead).min(RECORDS_MAX as u32);
        if used != 0 {
            (used..end).step_by(PART).chain([end - 1]).for_each(|number| {
                self.record(number);
            });
        }
    }

    /// Numbers below were used.
    pub(crate) fn used(&self) -> u32 {
        // Threads that find all in use count further for a moment.
        self.used.load(Ordering::Acquire).min(RECORDS_MAX as u32)
    }

    /// A free number; `list` spreads callers over locks. `None`: all are in use.
    pub(crate) fn allocate(&self, list: usize) -> Option<u32> {
        let mut own = lock(&self.free[list % LISTS]);
        if let Some(number) = own.pop() {
            return Some(number);
        }
        let from = self.used.fetch_add(FRESH, Ordering::AcqRel);
        if ((from + FRESH) as usize) <= RECORDS_MAX {
            own.extend((from + 1..from + FRESH).rev());
            return Some(from);
        }
        self.used.store(RECORDS_MAX as u32, Ordering::Release);
        drop(own);
        self.free.iter().find_map(|list| lock(list).pop())
    }

    /// All free numbers.
    #[cfg(test)]
    pub(crate) fn free_numbers(&self) -> Vec<u32> {
        self.free.iter().flat_map(|list| lock(list).clone()).collect()
    }

    /// Frees the record of a connection that has ended, and whose lock is open.
    pub(crate) fn release(&self, number: u32, list: usize) {
        let head = self.record(number).head.load(Ordering::Relaxed);
        debug_assert!(head & (LIVE | LOCKED) == 0, "the next holder of record {number} writes its head");
        lock(&self.free[list % LISTS]).push(number);
    }

    /// Fills a free record, which is live and locked then.
    pub(crate) fn create(&self, number: u32, keys: [[u64; W]; 2], body: &Body) -> Locked<'_, W> {
        let record = self.record(number);
        let head = record.head.load(Ordering::Relaxed);
        record.head.store(head | LOCKED, Ordering::Release);
        record.keys.iter().zip(keys).for_each(|(words, key)| store(words, key));
        record.port.store(body.port, Ordering::Release);
        store(&record.labels, body.labels);
        let locked = Locked { record };
        locked.set_expires_ms(body.expires_ms);
        locked.set_state(body.state);
        locked.set_tcp(body.tcp);
        locked.set_skew(body.skew);
        record.head.store(head | LOCKED | LIVE, Ordering::Release);
        locked
    }
}

impl<const W: usize> Locked<'_, W>
where
    [u64; W]: Words,
{
    /// Changes the keys of a record that is not in the index yet.
    pub(crate) fn set_reply(&self, key: [u64; W]) {
        store(&self.record.keys[Direction::Reply as usize], key);
    }
}

#[cfg(test)]
mod tests;
