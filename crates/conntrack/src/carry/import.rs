//! Reading. Each row is checked on its own: a wrong one is refused, the others are taken.

use super::rows::{Row, Table};
use super::{field, kind};
use crate::alg::{Helper, Skew};
use crate::expect::{EXPECTED_MS, Expected};
use crate::key::{Key, Rest, V4_WORDS, V6_WORDS, Words};
use crate::record::{Body, Direction};
use crate::state::{Stage, State};
use crate::tcp::Tcp;
use crate::timeouts::POLICIES_MAX;
use crate::tracker::{Family, Tracker, icmp_timeout, labels_of, other_timeout};
use dpif::{CtImported, TimeoutAttr};
use packet::headers as h;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use sync::Ordering;

/// Connections of one key that a row replaces at most.
const ATTEMPTS: usize = 4;
/// Rows whose buckets are fetched before they are needed.
const AHEAD: usize = 12;
/// Longest time left: that of a policy.
const LEFT_MS_MAX: u64 = u32::MAX as u64 * 1000;

/// A connection of a row, checked.
struct Carried<const W: usize> {
    orig: [u64; W],
    reply: [u64; W],
    state: State,
    body: Body,
    parent: Option<[u64; W]>,
}

/// A key of a row; `None`: no packet has it.
fn key_of<const W: usize>(words: [u64; W]) -> Option<[u64; W]>
where
    [u64; W]: Words,
{
    let key = words.key();
    (Key::of(&key.tuple(), key.rest().zone) == Some(key)).then_some(words)
}

/// Timeout of a new connection.
fn first_timeout(proto: u8) -> TimeoutAttr {
    match proto {
        h::IPPROTO_TCP => TimeoutAttr::TcpSynSent,
        h::IPPROTO_ICMP | h::IPPROTO_ICMPV6 => icmp_timeout(Stage::First),
        _ => other_timeout(Stage::First),
    }
}

/// Takes slices of [`Export::next`](super::Export::next), in their order. A connection that exists has the later state
/// then. Packets may go on meanwhile.
pub fn import(tracker: &Tracker, bytes: &[u8], now_ms: u64) -> CtImported {
    Import { tracker, now_ms, told_ms: now_ms, restored: None, done: CtImported::default() }.all(bytes)
}

/// Takes slices that were written before packets passed unseen: times left count from the writing, and sides of TCP are where their
/// next segments are. A later row replaces an earlier one, but no connection that a packet has made since. Timeout policies are
/// those of the other process: such connections have the default until their next commit.
#[derive(Default)]
pub struct Restore {
    /// Bits of the records that it has made: of IPv4, of IPv6.
    made: [Vec<u64>; 2],
}

impl Restore {
    /// Takes the next slice, written `age_ms` ago.
    pub fn take(&mut self, tracker: &Tracker, bytes: &[u8], now_ms: u64, age_ms: u64) -> CtImported {
        let told_ms = now_ms.saturating_sub(age_ms);
        Import { tracker, now_ms, told_ms, restored: Some(self), done: CtImported::default() }.all(bytes)
    }

    fn note(&mut self, v6: bool, number: u32) {
        let (made, word) = (&mut self.made[usize::from(v6)], number as usize / 64);
        if made.len() <= word {
            made.resize(word + 1, 0);
        }
        made[word] |= 1 << (number % 64);
    }

    fn has(&self, v6: bool, number: u32) -> bool {
        let word = self.made[usize::from(v6)].get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 != 0)
    }
}

struct Import<'a> {
    tracker: &'a Tracker,
    now_ms: u64,
    /// Times left count from here.
    told_ms: u64,
    /// For kept slices.
    restored: Option<&'a mut Restore>,
    done: CtImported,
}

impl Import<'_> {
    fn all(mut self, mut bytes: &[u8]) -> CtImported {
        loop {
            match Table::take(&mut bytes) {
                Ok(Some(table)) => self.table(&table),
                Ok(None) => return self.done,
                Err(why) => {
                    self.done.refuse(why);
                    return self.done;
                }
            }
        }
    }

    fn table(&mut self, table: &Table<'_>) {
        let family = |kinds: [u8; 2]| kinds.iter().position(|kind| *kind == table.kind);
        let mut ahead = table.rows().skip(AHEAD);
        for row in table.rows() {
            if let Some(row) = ahead.next() {
                self.fetch_row(&row);
            }
            if let Some(v6) = family(kind::CONNECTIONS) {
                let taken = match v6 {
                    0 => self.connection::<V4_WORDS>(&row),
                    _ => self.connection::<V6_WORDS>(&row),
                };
                taken.unwrap_or_else(|why| self.done.refuse(why));
            } else if let Some(v6) = family(kind::ENDED) {
                let ended = match v6 {
                    0 => self.end::<V4_WORDS>(&row),
                    _ => self.end::<V6_WORDS>(&row),
                };
                self.done.ended += u64::from(ended);
            } else if let Some(v6) = family(kind::EXPECTED) {
                let taken = match v6 {
                    0 => self.expected_one::<V4_WORDS>(&row),
                    _ => self.expected_one::<V6_WORDS>(&row),
                };
                match taken {
                    Ok(()) => self.done.expected += 1,
                    Err(why) => self.done.refuse(why),
                }
            }
        }
    }

    /// Fetches the buckets of a row.
    fn fetch_row(&self, row: &Row<'_>) {
        for number in [field::ORIG, field::REPLY] {
            if let Some(words) = row.field::<V4_WORDS>(number) {
                self.tracker.index.prefetch(self.tracker.hash.of(&words));
            } else if let Some(words) = row.field::<V6_WORDS>(number) {
                self.tracker.index.prefetch(self.tracker.hash.of(&words));
            }
        }
    }

    fn end<const W: usize>(&self, row: &Row<'_>) -> bool
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let Some(orig) = row.field::<W>(field::ORIG) else { return false };
        let place = self.tracker.find_where(&orig, self.now_ms, |place| !place.direction.is_reply());
        place.is_some_and(|place| self.may_end::<W>(place.number) && self.tracker.end_if_of(place, &orig))
    }

    /// Whether a row may end that connection: of kept ones, only those that came from rows too.
    fn may_end<const W: usize>(&self, number: u32) -> bool
    where
        [u64; W]: Words,
    {
        self.restored.as_ref().is_none_or(|restored| restored.has(<[u64; W]>::IS_V6, number))
    }

    /// Whether a connection that a packet has made has the reply key of a kept one; ends an earlier kept one.
    fn is_taken<const W: usize>(&self, new: &Carried<W>) -> bool
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        for _ in 0..ATTEMPTS {
            let Some(place) = self.tracker.find_where(&new.reply, self.now_ms, |_| true) else {
                return false;
            };
            let record = Family::<W>::slab(self.tracker).record(place.number);
            if record.key(Direction::Orig) == new.orig {
                return false;
            }
            if !self.may_end::<W>(place.number) {
                return true;
            }
            self.tracker.end_if_of(place, &new.reply);
        }
        true
    }

    /// Checks a connection.
    fn carried<const W: usize>(&self, row: &Row<'_>) -> Result<Carried<W>, &'static str>
    where
        [u64; W]: Words,
    {
        let key = |number| row.field::<W>(number).and_then(key_of);
        let (Some(orig), Some(reply)) = (key(field::ORIG), key(field::REPLY)) else {
            return Err("a connection without a key of each direction");
        };
        let (rest, back) = (orig.rest(), reply.rest());
        if (rest.zone, rest.proto) != (back.zone, back.proto) {
            return Err("a connection with directions of two zones or protocols");
        }
        let parent = row.field::<W>(field::PARENT).and_then(key_of);
        let labels = row.field::<2>(field::LABELS).unwrap_or_default();
        let word = State::unpack(row.word(field::STATE));
        let policy = if self.restored.is_some() { 0 } else { word.policy };
        let state = State { related: parent.is_some(), labelled: labels != [0; 2], policy, ..word };
        if usize::from(state.policy) >= POLICIES_MAX {
            return Err("a connection with a timeout policy out of range");
        }
        let left_ms = row.field::<1>(field::LEFT_MS);
        let left_ms = left_ms.map_or_else(
            || self.tracker.policies.ms(state.policy, first_timeout(rest.proto)),
            |[left_ms]| left_ms,
        );
        if left_ms == 0 {
            return Err("a connection whose time is over");
        }
        let tcp = Tcp::unpack(row.field::<3>(field::TCP).unwrap_or_default());
        let body = Body {
            expires_ms: self.told_ms + left_ms.min(LEFT_MS_MAX),
            state: state.pack(),
            port: row.word(field::PORT) & u64::from(u32::MAX),
            tcp: if self.restored.is_some() { tcp.unplaced() } else { tcp }.pack(),
            labels,
            skew: Skew::unpack(row.word(field::SKEW)).pack(),
        };
        Ok(Carried { orig, reply, state, body, parent })
    }

    fn connection<const W: usize>(&mut self, row: &Row<'_>) -> Result<(), &'static str>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let new = self.carried::<W>(row)?;
        if new.body.expires_ms <= self.now_ms {
            self.done.ended += u64::from(self.end::<W>(row));
            return Ok(());
        }
        if self.restored.is_some() && self.is_taken(&new) {
            return Err("a connection whose translation another one has by now");
        }
        for _ in 0..ATTEMPTS {
            let known = self.tracker.find_where(&new.orig, self.now_ms, |place| !place.direction.is_reply());
            match known {
                Some(place) if self.replace(place.number, &new) => {
                    self.done.replaced += 1;
                    return Ok(());
                }
                // It has another reply key, or has ended just now.
                Some(place) => _ = self.tracker.end_if_of(place, &new.orig),
                None => {
                    let Some(number) = self.make(&new)? else { continue };
                    if let Some(restored) = &mut self.restored {
                        restored.note(<[u64; W]>::IS_V6, number);
                    }
                    self.done.made += 1;
                    return Ok(());
                }
            }
        }
        Err("a connection whose key others take again and again")
    }

    /// Gives an existing connection its later state; `false`: it is another one.
    fn replace<const W: usize>(&self, number: u32, new: &Carried<W>) -> bool
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let Some(locked) = Family::<W>::slab(self.tracker).record(number).lock() else { return false };
        let record = locked.record();
        if (record.key(Direction::Orig), record.key(Direction::Reply)) != (new.orig, new.reply) {
            return false;
        }
        let was_related = State::unpack(record.state()).related;
        match new.parent {
            Some(parent) => self.tracker.parents.add(number, new.orig.key(), parent.key()),
            None if was_related => self.tracker.parents.end(number, new.orig.key()),
            None => {}
        }
        self.note_helper(new);
        let Body { expires_ms, state, port: _, tcp, labels, skew } = new.body;
        locked.set_expires_ms(expires_ms);
        locked.set_state(state);
        locked.set_tcp(tcp);
        locked.set_labels(labels);
        locked.set_skew(skew);
        true
    }

    /// Makes a connection; returns the number of its record. `None`: there is one of its key by now. Another one may have its keys in the other direction: one
    /// that was made later, or that has ended since.
    fn make<const W: usize>(&self, new: &Carried<W>) -> Result<Option<u32>, &'static str>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let (zone, port) = (new.orig.rest().zone, new.body.port as u32);
        if !self.tracker.limits.take_anyway(zone, port) {
            return Err("a connection beyond the maximum");
        }
        let slab = Family::<W>::slab(self.tracker);
        let list = (self.tracker.hash.of(&new.orig) >> 40) as usize;
        let Some(number) = slab.allocate(list) else {
            self.tracker.limits.give_back(zone, port);
            return Err("a connection without a free record");
        };
        let locked = slab.create(number, [new.orig, new.reply], &new.body);
        if let Some(parent) = new.parent {
            self.tracker.parents.add(number, new.orig.key(), parent.key());
        }
        self.note_helper(new);
        let excludes = |n: usize, direction: Direction| n == 0 && !direction.is_reply();
        let inserted = self.tracker.insert_unless(number, [new.orig, new.reply], self.now_ms, excludes);
        if inserted.is_ok() {
            self.tracker.limits.count_created(zone);
            return Ok(Some(number));
        }
        locked.end();
        if new.parent.is_some() {
            self.tracker.parents.end(number, new.orig.key());
        }
        drop(locked);
        slab.release(number, list);
        self.tracker.limits.give_back(zone, port);
        Ok(None)
    }

    /// Packets at other ports than the well-known ones look for the helper of their connection.
    fn note_helper<const W: usize>(&self, new: &Carried<W>)
    where
        [u64; W]: Words,
    {
        let Rest { src, dst, .. } = new.orig.rest();
        if new.state.helper.is_some() && !Helper::has_port(src, dst) {
            self.tracker.has_helpers_elsewhere.store(true, Ordering::Relaxed);
        }
    }

    fn expected_one<const W: usize>(&self, row: &Row<'_>) -> Result<(), &'static str>
    where
        [u64; W]: Words,
    {
        let key = |number| row.field::<W>(number).and_then(key_of);
        let (Some(orig), Some(parent)) = (key(field::ORIG), key(field::PARENT)) else {
            return Err("an expected connection without its keys");
        };
        let left_ms =
            row.field::<1>(field::LEFT_MS).map_or(EXPECTED_MS, |[left_ms]| left_ms.min(EXPECTED_MS));
        let address = labels_of(row.field::<2>(field::ADDRESS).unwrap_or_default());
        let address = match <[u64; W]>::IS_V6 {
            true => IpAddr::from(Ipv6Addr::from(address)),
            false => IpAddr::from(Ipv4Addr::from(address as u32)),
        };
        let expected = Expected {
            parent: parent.key(),
            mark: row.word(field::MARK) as u32,
            labels: labels_of(row.field::<2>(field::LABELS).unwrap_or_default()),
            address,
            is_src: row.word(field::IS_SOURCE) & 1 != 0,
            expires_ms: self.told_ms + left_ms,
        };
        let key = orig.key();
        let key = key.with_rest(Rest { src: 0, ..key.rest() });
        self.tracker.expectations.add(key, expected, self.now_ms).map_err(|_| "too many expected connections")
    }
}
