//! [`Tracker`]: the connections of a datapath, shared by its forwarding threads.
//!
//! One packet: its key leads by [`Index`] to a record; the record's protocol state is brought up to date; key fields
//! (`ct_state`, zone, mark, labels, original tuple) follow. Most packets take a shorter way (`usual`), of which this is the
//! oracle.
//!
//! A connection begins by a commit: a place within the limits, a free record, filled and locked; then both keys enter the
//! index together. If two threads commit one connection, one inserts; the other gives its record back and goes on
//! with the winner's. It ends once: the thread that clears the record's live bit removes its keys and frees it.

use crate::alg::Skew;
use crate::expect::{Expectations, Parents};
use crate::index::{Index, Tag};
use crate::key::{Key, KeyHash, Rest, V4_WORDS, V6_WORDS, Words};
use crate::limits::Limits;
use crate::metadata::{original_tuple, write, write_invalid};
use crate::packet_info::{PacketInfo, Transport};
use crate::record::{Direction, Locked, Record, Slab};
use crate::request::{Request, Translation};
use crate::state::{Stage, State};
use crate::stats::Stats;
use crate::tcp::{Tcp, Update};
use crate::timeouts::Policies;
use dpif::{CtNat, TimeoutAttr};
use flow::{FlowKey, ct_state, shape};
use std::net::IpAddr;
use sync::{AtomicBool, AtomicU64, Ordering};

/// A deadline is written when it moves by more than this.
pub(crate) const REFRESH_MS: u64 = 50;

/// Place of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordPlace {
    pub(crate) number: u32,
    pub(crate) direction: Direction,
}

const REPLY_TAG: u64 = 1 << 32;
const V6_TAG: u64 = 1 << 31;

impl RecordPlace {
    pub(crate) fn tag(self, is_v6: bool) -> Tag {
        let family = if is_v6 { V6_TAG } else { 0 };
        let direction = if self.direction.is_reply() { REPLY_TAG } else { 0 };
        // Not zero.
        direction | family | u64::from(self.number + 1)
    }

    pub(crate) fn is_reply_tag(tag: Tag) -> bool {
        tag & REPLY_TAG != 0
    }

    #[inline(always)]
    pub(crate) fn of_tag(tag: Tag, is_v6: bool) -> Option<RecordPlace> {
        let direction = if tag & REPLY_TAG != 0 { Direction::Reply } else { Direction::Orig };
        let number = (tag & (V6_TAG - 1)) as u32 - 1;
        ((tag & V6_TAG != 0) == is_v6).then_some(RecordPlace { number, direction })
    }
}

/// See the module.
pub struct Tracker {
    pub(crate) index: Index,
    pub(crate) v4: Slab<V4_WORDS>,
    pub(crate) v6: Slab<V6_WORDS>,
    pub(crate) limits: Limits,
    pub(crate) policies: Policies,
    pub(crate) stats: Stats,
    pub(crate) expectations: Expectations,
    /// Parents of related connections.
    pub(crate) parents: Parents,
    pub(crate) hash: KeyHash,
    /// Not seeded: the same after a restart (`persistent`).
    pub(crate) persistent: KeyHash,
    random: AtomicU64,
    /// Whether TCP sequence numbers must fit.
    pub(crate) checks_sequence: AtomicBool,
    /// Whether some connection got a helper at other ports than its well-known ones.
    pub(crate) has_helpers_elsewhere: AtomicBool,
}

/// Connections of one address family.
pub(crate) trait Family<const W: usize> {
    fn slab(&self) -> &Slab<W>;
}

impl Family<V4_WORDS> for Tracker {
    fn slab(&self) -> &Slab<V4_WORDS> {
        &self.v4
    }
}

impl Family<V6_WORDS> for Tracker {
    fn slab(&self) -> &Slab<V6_WORDS> {
        &self.v6
    }
}

/// A connection as a packet finds it.
pub(crate) struct Seen<const W: usize> {
    pub(crate) place: RecordPlace,
    pub(crate) orig: [u64; W],
    pub(crate) reply: [u64; W],
    pub(crate) state: State,
    pub(crate) labels: u128,
}

/// Sees the connection of a packet, once it is tracked.
pub(crate) trait Observe {
    fn see<const W: usize>(&mut self, seen: &Seen<W>)
    where
        [u64; W]: Words;
}

/// An observer without interest.
impl Observe for () {
    #[inline]
    fn see<const W: usize>(&mut self, _seen: &Seen<W>)
    where
        [u64; W]: Words,
    {
    }
}

/// A connection as the index led to it. Its record may have been used again since.
#[derive(Clone, Copy)]
struct Found<const W: usize> {
    /// Record and direction of the packet.
    place: RecordPlace,
    /// The key that was looked up, of this direction of the record.
    key: [u64; W],
    of: Direction,
}

impl<const W: usize> Found<W>
where
    [u64; W]: Words,
{
    fn new(place: RecordPlace, key: [u64; W]) -> Found<W> {
        Found { place, key, of: place.direction }
    }

    /// Whether the record, read while nobody changes it, still belongs to that connection.
    fn is_in(&self, record: &Record<W>) -> bool {
        record.key(self.of) == self.key
    }
}

/// Result for a packet of an existing connection.
enum Existing<const W: usize> {
    /// It has been tracked.
    Tracked(Seen<W>),
    /// The connection was over, and is ended now; the packet begins another.
    Anew,
    /// The connection ended meanwhile.
    Gone,
}

pub(crate) fn labels_of(words: [u64; 2]) -> u128 {
    u128::from(words[0]) << 64 | u128::from(words[1])
}

pub(crate) fn words_of(labels: u128) -> [u64; 2] {
    [(labels >> 64) as u64, labels as u64]
}

impl Tracker {
    /// An empty tracker; `seed` is secret.
    pub fn new(seed: u64) -> Tracker {
        Tracker {
            index: Index::new(),
            v4: Slab::new(),
            v6: Slab::new(),
            limits: Limits::new(),
            policies: Policies::new(),
            stats: Stats::default(),
            expectations: Expectations::new(KeyHash::new(seed)),
            parents: Parents::new(KeyHash::new(seed)),
            hash: KeyHash::new(seed),
            persistent: KeyHash::new(0),
            random: AtomicU64::new(seed),
            checks_sequence: AtomicBool::new(true),
            has_helpers_elsewhere: AtomicBool::new(false),
        }
    }

    pub(crate) fn random(&self) -> u64 {
        let n = self.random.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        self.hash.of(&[n])
    }

    /// Tracks a packet, and writes the result into its key. `packet`: `None` if it is invalid. `port`: its input port.
    /// Returns how to translate it.
    pub fn track(
        &self,
        packet: Option<&PacketInfo>,
        request: &Request,
        key: &mut FlowKey,
        port: u32,
        now_ms: u64,
    ) -> Option<Translation> {
        match packet.map(|p| (p, p.key)) {
            None => {
                self.stats.invalid.add();
                write_invalid(key, request.zone);
                None
            }
            Some((p, Key::V4(words))) => self.track_words(p, words, request, key, port, now_ms, &mut ()),
            Some((p, Key::V6(words))) => self.track_words(p, words, request, key, port, now_ms, &mut ()),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "those of track, and who looks on")]
    pub(crate) fn track_words<const W: usize>(
        &self,
        packet: &PacketInfo,
        words: [u64; W],
        request: &Request,
        key: &mut FlowKey,
        port: u32,
        now_ms: u64,
        observer: &mut impl Observe,
    ) -> Option<Translation>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let b = &key.base;
        // Another zone knows nothing of the state so far.
        let before = if b.ct_zone == request.zone { b.ct_state } else { 0 };
        let translated = before & (ct_state::SNAT | ct_state::DNAT) != 0;
        let mut found = self.look_up(words, before, request, key, now_ms);
        if let Some(found) = found.take_if(|found| request.force && found.place.direction.is_reply()) {
            self.end_found(&found);
        }
        // A second look in the same zone changes nothing, except for translated packets.
        let again = before & ct_state::TRK != 0 && !translated;
        for _ in 0..4 {
            if let Some(connection) = found {
                let ct = Pass { packet, request, before, translated, again, now_ms };
                match self.existing(&connection, &ct) {
                    (Existing::Tracked(seen), state) => {
                        observer.see(&seen);
                        return self.finish(packet, request, seen, state, key);
                    }
                    // It has ended.
                    (Existing::Anew, _) => {}
                    (Existing::Gone, _) => {
                        found = self.find(&words, now_ms).map(|place| Found::new(place, words));
                        if found.is_some() {
                            continue;
                        }
                    }
                }
            } else if packet.is_error {
                write_invalid(key, request.zone);
                return None;
            }
            match self.begin(packet, words, request, key, port, now_ms) {
                Ok((translation, seen)) => {
                    seen.iter().for_each(|seen| observer.see(seen));
                    return translation;
                }
                // Another thread was faster.
                Err(place) => found = Some(Found::new(place, words)),
            }
        }
        write_invalid(key, request.zone);
        None
    }

    /// Finds the connection of a packet.
    fn look_up<const W: usize>(
        &self,
        words: [u64; W],
        before: u32,
        request: &Request,
        key: &FlowKey,
        now_ms: u64,
    ) -> Option<Found<W>>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let find = |key: [u64; W]| Some(Found::new(self.find(&key, now_ms)?, key));
        if before & (ct_state::SNAT | ct_state::DNAT) == 0 {
            return find(words);
        }
        // The tuple of a translated packet is the reverse of the other direction's.
        if let Some(found) = find(words.reversed()) {
            let direction = found.place.direction.opposite();
            return Some(Found { place: RecordPlace { direction, ..found.place }, ..found });
        }
        if request.nat != CtNat::No || !key.has(shape::CT) {
            return None;
        }
        let mut orig = original_tuple(words, key)?;
        orig.set_rest(Rest { zone: key.base.ct_zone, ..orig.rest() });
        let found = find(orig)?;
        Some(Found { place: RecordPlace { direction: Direction::Orig, ..found.place }, ..found })
    }

    /// Finds the live, unexpired connection of a key.
    #[inline]
    pub(crate) fn find<const W: usize>(&self, words: &[u64; W], now_ms: u64) -> Option<RecordPlace>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        self.find_where(words, now_ms, |_| true)
    }

    /// As [`Tracker::find`], among places of a kind.
    #[inline]
    pub(crate) fn find_where<const W: usize>(
        &self,
        words: &[u64; W],
        now_ms: u64,
        of_kind: impl Fn(RecordPlace) -> bool,
    ) -> Option<RecordPlace>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let slab = Family::<W>::slab(self);
        self.index.find(self.hash.of(words), |tag| {
            let place = RecordPlace::of_tag(tag, <[u64; W]>::IS_V6).filter(|place| of_kind(*place))?;
            let record = slab.record(place.number);
            let fits =
                record.key(place.direction) == *words && record.is_live() && record.expires_ms() > now_ms;
            fits.then_some(place)
        })
    }

    /// Brings a connection up to date with a packet; returns it and the packet's `ct_state`.
    fn existing<const W: usize>(&self, found: &Found<W>, ct: &Pass<'_>) -> (Existing<W>, u32)
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let place = found.place;
        let record = Family::<W>::slab(self).record(place.number);
        let writes = ct.request.mark.is_some() || ct.request.labels.is_some();
        if !writes && let Some(done) = self.existing_unlocked(record, found, ct) {
            return done;
        }
        let Some(locked) = record.lock() else { return (Existing::Gone, 0) };
        if !found.is_in(record) {
            return (Existing::Gone, 0);
        }
        let mut seen = seen_of(record, place);
        let state = match self.update(&locked, &mut seen.state, place.direction, ct) {
            Some(state) => state,
            None => {
                // Under the same lock: once it is open, the number may lead to the next connection.
                self.end_locked(place.number, locked);
                return (Existing::Anew, 0);
            }
        };
        if !seen.state.related {
            if let Some(m) = ct.request.mark {
                // The packet's mark is the connection's.
                seen.state.mark = m.value | seen.state.mark & !m.mask;
            }
            if let Some(m) = ct.request.labels {
                seen.labels = m.value | seen.labels & !m.mask;
                seen.state.labelled = seen.labels != 0;
                locked.set_labels(words_of(seen.labels));
            }
        }
        locked.set_state(seen.state.pack());
        (Existing::Tracked(seen), state)
    }

    /// As [`Tracker::existing`], for packets that change nothing.
    #[inline]
    fn existing_unlocked<const W: usize>(
        &self,
        record: &Record<W>,
        found: &Found<W>,
        ct: &Pass<'_>,
    ) -> Option<(Existing<W>, u32)>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let place = found.place;
        let (seen, expires_ms) = record.read(|record| (seen_of(record, place), record.expires_ms()))?;
        let own = if found.of.is_reply() { &seen.reply } else { &seen.orig };
        if *own != found.key {
            return None;
        }
        let related = if seen.state.related { ct_state::REL } else { 0 };
        let reply = if place.direction.is_reply() { ct_state::RPL } else { 0 };
        if ct.packet.is_error {
            let state = ct.before | ct_state::REL | reply;
            return Some((Existing::Tracked(seen), state));
        }
        if ct.again {
            return Some((Existing::Tracked(seen), ct.before));
        }
        let timeout = match ct.packet.transport {
            Transport::Tcp(_) => return None,
            Transport::Icmp { .. } => {
                if place.direction.is_reply() && seen.state.stage == Stage::First {
                    return None;
                }
                icmp_timeout(seen.state.stage)
            }
            Transport::Other => match seen.state.stage {
                Stage::First => return None,
                Stage::Multiple if place.direction.is_reply() => return None,
                stage => other_timeout(stage),
            },
        };
        let deadline = ct.now_ms + self.policies.ms(seen.state.policy, timeout);
        if deadline.abs_diff(expires_ms) > REFRESH_MS {
            return None;
        }
        let state = match seen.state.stage {
            Stage::First | Stage::Multiple => ct.before | ct_state::NEW | related,
            Stage::Both => (ct.before | ct_state::EST | reply | related) & !ct_state::NEW,
        };
        Some((Existing::Tracked(seen), state))
    }

    /// Updates the protocol state of a locked connection; returns the packet's `ct_state`. `None`: the packet begins
    /// another connection.
    fn update<const W: usize>(
        &self,
        locked: &Locked<'_, W>,
        state: &mut State,
        direction: Direction,
        ct: &Pass<'_>,
    ) -> Option<u32>
    where
        [u64; W]: Words,
    {
        let reply = if direction.is_reply() { ct_state::RPL } else { 0 };
        if ct.packet.is_error {
            return Some(ct.before | ct_state::REL | reply);
        }
        if ct.again {
            return Some(ct.before);
        }
        let before = ct.before | if state.related { ct_state::REL } else { 0 };
        let policy = state.policy;
        let renew = |timeout| locked.set_expires_ms(ct.now_ms + self.policies.ms(policy, timeout));
        let valid = (before | ct_state::EST | reply) & !ct_state::NEW;
        match ct.packet.transport {
            Transport::Tcp(mut segment) => {
                if state.helper.is_some() {
                    let skew = Skew::unpack(locked.record().body().skew);
                    skew.restore(&mut segment, direction.is_reply(), ct.translated);
                }
                let mut tcp = Tcp::unpack(locked.tcp());
                let checked = self.checks_sequence.load(Ordering::Relaxed);
                let update = tcp.update(&segment, direction.is_reply(), checked);
                locked.set_tcp(tcp.pack());
                match update {
                    Update::Valid(timeout) => {
                        timeout.into_iter().for_each(renew);
                        Some(valid)
                    }
                    Update::StillNew(timeout) => {
                        renew(timeout);
                        Some(before | ct_state::NEW)
                    }
                    Update::Invalid => {
                        self.stats.invalid.add();
                        Some(ct_state::INV)
                    }
                    Update::OutOfWindow => {
                        self.stats.out_of_window.add();
                        Some(ct_state::INV)
                    }
                    Update::Anew => None,
                }
            }
            Transport::Icmp { .. } => {
                if direction.is_reply() {
                    state.stage = Stage::Both;
                }
                renew(icmp_timeout(state.stage));
                Some(if state.stage == Stage::Both { valid } else { before | ct_state::NEW })
            }
            Transport::Other => {
                if direction.is_reply() {
                    state.stage = Stage::Both;
                } else if state.stage == Stage::First {
                    state.stage = Stage::Multiple;
                }
                renew(other_timeout(state.stage));
                Some(if state.stage == Stage::Both { valid } else { before | ct_state::NEW })
            }
        }
    }

    /// Ends a connection, if it still exists.
    fn end_found<const W: usize>(&self, found: &Found<W>)
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let locked = Family::<W>::slab(self).record(found.place.number).lock();
        if let Some(locked) = locked.filter(|locked| found.is_in(locked.record())) {
            self.end_locked(found.place.number, locked);
        }
    }

    /// Ends a connection if its time is over.
    pub(crate) fn end_if_expired<const W: usize>(&self, number: u32, now_ms: u64) -> bool
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let Some(locked) = Family::<W>::slab(self).record(number).lock() else { return false };
        let expired = locked.record().expires_ms() <= now_ms;
        if expired {
            self.end_locked(number, locked);
        }
        expired
    }

    /// Removes the keys of a locked connection, and frees its record.
    pub(crate) fn end_locked<const W: usize>(&self, number: u32, locked: Locked<'_, W>)
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        locked.end();
        let record = locked.record();
        let is_v6 = <[u64; W]>::IS_V6;
        let keys = [Direction::Orig, Direction::Reply].map(|d| (record.key(d), d));
        for (n, (key, direction)) in keys.into_iter().enumerate() {
            if n == 0 || key != keys[0].0 {
                self.index.remove(self.hash.of(&key), RecordPlace { number, direction }.tag(is_v6));
            }
        }
        let orig = keys[0].0;
        let state = State::unpack(record.state());
        if state.helper.is_some() {
            self.expectations.end(orig.key());
        }
        if state.related {
            self.parents.end(number, orig.key());
        }
        self.limits.end(orig.rest().zone, record.body().port as u32);
        // Another thread may fill the record as soon as its number is free: the lock must be open before.
        drop(locked);
        Family::<W>::slab(self).release(number, (self.hash.of(&orig) >> 40) as usize);
    }

    /// Writes the state of a packet of an existing connection.
    fn finish<const W: usize>(
        &self,
        packet: &PacketInfo,
        request: &Request,
        seen: Seen<W>,
        mut state: u32,
        key: &mut FlowKey,
    ) -> Option<Translation>
    where
        [u64; W]: Words,
    {
        let translation = translate(packet, request, &seen, &mut state);
        self.write_seen(key, request.zone, state, &seen);
        translation
    }

    /// Writes the state of a packet of a connection. The original tuple of a related one is that of its parent.
    #[inline]
    pub(crate) fn write_seen<const W: usize>(&self, key: &mut FlowKey, zone: u16, state: u32, seen: &Seen<W>)
    where
        [u64; W]: Words,
    {
        let mut orig = seen.orig;
        if seen.state.related {
            let parent = self.parents.find(seen.place.number, orig.key());
            orig = parent.and_then(Words::of).unwrap_or(orig);
        }
        write(key, zone, state, seen.state.mark, seen.labels, &orig);
    }
}

/// A packet on its way through an existing connection.
struct Pass<'a> {
    packet: &'a PacketInfo,
    request: &'a Request,
    /// Its `ct_state` of the same zone so far.
    before: u32,
    /// It was translated in this zone before.
    translated: bool,
    /// It was tracked in this zone before.
    again: bool,
    now_ms: u64,
}

fn seen_of<const W: usize>(record: &Record<W>, place: RecordPlace) -> Seen<W>
where
    [u64; W]: Words,
{
    let state = State::unpack(record.state());
    let labels = if state.labelled { labels_of(record.labels()) } else { 0 };
    Seen { place, orig: record.key(Direction::Orig), reply: record.key(Direction::Reply), state, labels }
}

#[inline(always)]
pub(crate) fn icmp_timeout(stage: Stage) -> TimeoutAttr {
    if stage == Stage::First { TimeoutAttr::IcmpFirst } else { TimeoutAttr::IcmpReply }
}

#[inline(always)]
pub(crate) fn other_timeout(stage: Stage) -> TimeoutAttr {
    match stage {
        Stage::First => TimeoutAttr::UdpFirst,
        Stage::Multiple => TimeoutAttr::UdpSingle,
        Stage::Both => TimeoutAttr::UdpMultiple,
    }
}

/// The translation of a packet, if requested and not done yet; adds it to `state`.
pub(crate) fn translate<const W: usize>(
    packet: &PacketInfo,
    request: &Request,
    seen: &Seen<W>,
    state: &mut u32,
) -> Option<Translation>
where
    [u64; W]: Words,
{
    let done = ct_state::SNAT | ct_state::DNAT;
    if request.nat == CtNat::No || !(seen.state.snat || seen.state.dnat) || *state & done != 0 {
        return None;
    }
    let reply = seen.place.direction.is_reply();
    let source = seen.state.snat != reply;
    *state |= if source { ct_state::SNAT } else { ct_state::DNAT };
    let to = if reply { seen.orig.reversed() } else { seen.reply.reversed() };
    if !packet.is_error {
        return Some(Translation::Tuple(to.key()));
    }
    let [src, dst] = to.addresses();
    let outer: (Option<IpAddr>, Option<IpAddr>) = if source { (Some(src), None) } else { (None, Some(dst)) };
    // The cited packet was sent by the error's receiver, before translation.
    let inner = if reply { seen.orig } else { seen.reply };
    Some(Translation::Error { src: outer.0, dst: outer.1, inner: inner.key() })
}

#[cfg(test)]
mod tests;
