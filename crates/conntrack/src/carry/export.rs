//! Writing.

use super::rows::Block;
use super::{WORD, field, kind};
use crate::expect::Expected;
use crate::key::{Key, V4_WORDS, V6_WORDS, Words};
use crate::record::{Body, Direction, Record};
use crate::state::State;
use crate::tcp::BOTH_SIDES;
use crate::tracker::{Family, Tracker, words_of};
use dpif::CtCarry;
use std::net::IpAddr;
use sync::Backoff;

/// Records that a slice visits at most, so that a slice without changes ends too.
const RECORDS_AT_ONCE: u32 = 1 << 16;
/// Attempts to read a record that changes meanwhile; then its lock is taken.
const ATTEMPTS: usize = 32;

const V4: u8 = V4_WORDS as u8;
const V6: u8 = V6_WORDS as u8;

/// Fields of connections; related ones have the last one too.
macro_rules! fields {
    ($words:expr) => {
        &[
            (field::ORIG, $words),
            (field::REPLY, $words),
            (field::LEFT_MS, 1),
            (field::STATE, 1),
            (field::PORT, 1),
            (field::TCP, 3),
            (field::LABELS, 2),
            (field::SKEW, 1),
            (field::PARENT, $words),
        ]
    };
}
const CONNECTIONS: [&[(u8, u8)]; 2] = [fields!(V4), fields!(V6)];
const ENDED: [&[(u8, u8)]; 2] = [&[(field::ORIG, V4)], &[(field::ORIG, V6)]];
macro_rules! expected {
    ($words:expr) => {
        &[
            (field::ORIG, $words),
            (field::PARENT, $words),
            (field::MARK, 1),
            (field::LABELS, 2),
            (field::ADDRESS, 2),
            (field::IS_SOURCE, 1),
            (field::LEFT_MS, 1),
        ]
    };
}
const EXPECTED: [&[(u8, u8)]; 2] = [expected!(V4), expected!(V6)];

/// A connection that a pass has told: the version of its record, its original key, its state. Version 0: none.
#[derive(Clone, Copy)]
struct Told<const W: usize> {
    version: u64,
    orig: [u64; W],
    gist: Gist,
}

/// State, translation and deadline of a connection, without positions in its data.
#[derive(Clone, Copy, Default)]
struct Gist {
    hash: u32,
    /// In units of 64 ms.
    deadline: u32,
}

impl Gist {
    fn of(body: &Body, reply: &[u64], parent: Option<&[u64]>) -> Gist {
        let Body { expires_ms, state, port, tcp: [.., tcp], labels: [high, low], skew } = *body;
        let words = [state, port, tcp & BOTH_SIDES, high, low, skew];
        let keys = reply.iter().chain(parent.unwrap_or_default()).copied();
        let hash = words
            .into_iter()
            .chain(keys)
            .fold(0, |hash: u64, word| (hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Gist { hash: (hash >> 32) as u32, deadline: u32::try_from(expires_ms >> 6).unwrap_or(u32::MAX) }
    }

    /// Whether a later one needs no row: its state is equal, and its deadline differs by half of the time left at most.
    fn serves_for(self, later: Gist, now_ms: u64) -> bool {
        let left = u64::from(self.deadline).saturating_sub(now_ms >> 6);
        self.hash == later.hash && u64::from(self.deadline.abs_diff(later.deadline)) * 2 <= left
    }
}

/// A version that no live record has: the next pass tells the connection again.
const ANY: u64 = 1;

/// Place of a walk.
enum At {
    Records { v6: bool, number: u32 },
    Expected(Vec<(Key, Expected)>),
}

const START: At = At::Records { v6: false, number: 0 };

/// A walk over all connections, and what it has told so far: 32 bytes for each record of IPv4, 56 of IPv6.
pub struct Export {
    v4: Vec<Told<V4_WORDS>>,
    v6: Vec<Told<V6_WORDS>>,
    at: At,
    carry: CtCarry,
}

impl Export {
    /// A walk for such a reader.
    pub fn new(carry: CtCarry) -> Export {
        Export { v4: Vec::new(), v6: Vec::new(), at: START, carry }
    }

    /// Has the next pass tell all connections again.
    pub fn begin_anew(&mut self) {
        *self = Export::new(self.carry);
    }
}

/// The blocks of a slice: of one family.
struct Slice {
    plain: Block,
    related: Block,
    ended: Block,
}

impl Slice {
    fn new(v6: bool) -> Slice {
        let family = usize::from(v6);
        let related = CONNECTIONS[family];
        let plain = &related[..related.len() - 1];
        Slice {
            plain: Block::new(kind::CONNECTIONS[family], plain),
            related: Block::new(kind::CONNECTIONS[family], related),
            ended: Block::new(kind::ENDED[family], ENDED[family]),
        }
    }

    fn len(&self) -> usize {
        self.plain.len() + self.related.len() + self.ended.len()
    }

    /// A connection that ended comes before the one that has its key now.
    fn finish(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len() + 128);
        self.ended.finish(&mut out);
        self.plain.finish(&mut out);
        self.related.finish(&mut out);
        out
    }
}

/// A consistent state of a live record and its version; `None`: it is not live.
#[inline]
fn read<const W: usize>(record: &Record<W>) -> Option<([u64; W], [u64; W], Body, u64)>
where
    [u64; W]: Words,
{
    let all = |r: &Record<W>| (r.key(Direction::Orig), r.key(Direction::Reply), r.body());
    let backoff = Backoff::new();
    for _ in 0..ATTEMPTS {
        if let Some(((orig, reply, body), version)) = record.read_version(all) {
            return Some((orig, reply, body, version.number()));
        }
        if !record.is_live() {
            return None;
        }
        backoff.snooze();
    }
    let locked = record.lock()?;
    let (orig, reply, body) = all(locked.record());
    Some((orig, reply, body, ANY))
}

impl Export {
    /// The next slice of a pass: about `room` bytes, none if nothing changed in its records. `None`: the pass is over; the
    /// next call begins another one, of the changes since.
    ///
    /// Packets go on meanwhile. Only a pass without packets is exact.
    pub fn next(&mut self, tracker: &Tracker, room: usize, now_ms: u64) -> Option<Vec<u8>> {
        let walk = Walk { tracker, room, now_ms, carry: self.carry };
        let out = match &mut self.at {
            At::Records { v6: false, number } => {
                let out = walk.slice_of(&mut self.v4, number);
                if *number >= tracker.v4.used() {
                    self.at = At::Records { v6: true, number: 0 };
                }
                out
            }
            At::Records { v6: true, number } => {
                let out = walk.slice_of(&mut self.v6, number);
                if *number >= tracker.v6.used() {
                    self.at = At::Expected(tracker.expectations.all(now_ms));
                }
                out
            }
            At::Expected(left) if left.is_empty() => {
                self.at = START;
                return None;
            }
            At::Expected(left) => expected_slice(left, room, now_ms),
        };
        Some(out)
    }
}

/// One slice of a tracker.
struct Walk<'a> {
    tracker: &'a Tracker,
    room: usize,
    now_ms: u64,
    carry: CtCarry,
}

impl Walk<'_> {
    /// The records from a number on that changed since the pass that told them; moves the number behind them.
    fn slice_of<const W: usize>(&self, told: &mut Vec<Told<W>>, number: &mut u32) -> Vec<u8>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let slab = Family::<W>::slab(self.tracker);
        let end = slab.used().min(number.saturating_add(RECORDS_AT_ONCE));
        if told.len() < end as usize {
            told.resize(end as usize, Told { version: 0, orig: [0; W], gist: Gist::default() });
        }
        let mut slice = Slice::new(<[u64; W]>::IS_V6);
        while *number < end && slice.len() < self.room {
            let told = &mut told[*number as usize];
            self.tell(*number, told, &mut slice);
            *number += 1;
        }
        slice.finish()
    }

    fn tell<const W: usize>(&self, number: u32, told: &mut Told<W>, slice: &mut Slice)
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let now_ms = self.now_ms;
        let record = Family::<W>::slab(self.tracker).record(number);
        if record.version() == told.version && told.version != 0 {
            return;
        }
        let now = read(record).filter(|(.., body, _)| body.expires_ms > now_ms);
        if told.version != 0 && now.is_none_or(|(orig, ..)| orig != told.orig) {
            self.tell_end(&told.orig, slice);
        }
        let Some((orig, reply, body, version)) = now else {
            told.version = 0;
            return;
        };
        let parent = match State::unpack(body.state).related {
            true => self.tracker.parents.find(number, orig.key()).and_then(<[u64; W]>::of),
            false => None,
        };
        let gist = match self.carry {
            CtCarry::Kept => Gist::of(&body, &reply, parent.as_ref().map(|parent| parent.as_slice())),
            // A handover writes each change.
            CtCarry::Over => Gist::default(),
        };
        let is_told = told.version != 0 && told.orig == orig;
        if is_told && self.carry == CtCarry::Kept && told.gist.serves_for(gist, now_ms) {
            told.version = version;
            return;
        }
        *told = Told { version, orig, gist };
        let left_ms = [body.expires_ms - now_ms];
        let (state, port, skew) = ([body.state], [body.port], [body.skew]);
        let row: [&[u64]; 9] = [
            &orig,
            &reply,
            &left_ms,
            &state,
            &port,
            &body.tcp,
            &body.labels,
            &skew,
            parent.as_ref().map_or(&[], |parent| parent.as_slice()),
        ];
        match parent {
            Some(_) => slice.related.row(&row),
            None => slice.plain.row(&row[..8]),
        }
    }

    /// A connection has ended, unless another record has one of that key.
    fn tell_end<const W: usize>(&self, orig: &[u64; W], slice: &mut Slice)
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        if self.tracker.find_where(orig, self.now_ms, |place| !place.direction.is_reply()).is_none() {
            slice.ended.row(&[orig]);
        }
    }
}

/// Takes expectations from the front.
fn expected_slice(left: &mut Vec<(Key, Expected)>, room: usize, now_ms: u64) -> Vec<u8> {
    let row_bytes = EXPECTED[1].iter().map(|(_, words)| usize::from(*words) * WORD).sum::<usize>();
    let count = (room / row_bytes).clamp(1, left.len());
    let mut blocks = [false, true].map(|v6| {
        let family = usize::from(v6);
        Block::new(kind::EXPECTED[family], EXPECTED[family])
    });
    for (key, expected) in left.drain(..count) {
        let address = match expected.address {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        };
        let left_ms = [expected.expires_ms.saturating_sub(now_ms)];
        let (mark, labels, address) = ([expected.mark.into()], words_of(expected.labels), words_of(address));
        let is_src = [u64::from(expected.is_src)];
        let mut put = |v6: bool, key: &[u64], parent: &[u64]| {
            blocks[usize::from(v6)].row(&[key, parent, &mark, &labels, &address, &is_src, &left_ms]);
        };
        match (key, expected.parent) {
            (Key::V4(key), Key::V4(parent)) => put(false, &key, &parent),
            (Key::V6(key), Key::V6(parent)) => put(true, &key, &parent),
            // Helpers announce connections of their own family.
            (Key::V4(_), Key::V6(_)) | (Key::V6(_), Key::V4(_)) => {}
        }
    }
    let mut out = Vec::new();
    blocks.into_iter().for_each(|block| block.finish(&mut out));
    out
}
