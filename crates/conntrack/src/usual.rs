//! The usual packet: of an existing connection whose state it does not change, seen for the first time in its zone, with no
//! mark or labels to set; or one that its zone tracked before, as by a second action. It costs one probe of the index and one
//! read of a record. It writes to shared memory only if the deadline moves by more than [`REFRESH_MS`], or a segment moves an
//! edge of TCP's windows: then it locks the version that it read. All other packets go through [`Tracker::track`] as a whole,
//! which gives the same result for these: it is the oracle.
//!
//! A group of packets is looked up in passes, so that the memory of all of them is fetched at once ([`Lookup`]).

use crate::index::{Bucket, Index, Tag};
use crate::key::{Key, Words};
use crate::metadata::write;
use crate::packet_info::{PacketInfo, Transport};
use crate::record::{Direction, Record};
use crate::request::{Request, Translation};
use crate::state::{Stage, State};
use crate::tcp::{Segment, Tcp};
use crate::tracker::{Family, REFRESH_MS, RecordPlace, Tracker, icmp_timeout, labels_of, other_timeout};
use dpif::{CtNat, TimeoutAttr};
use flow::{FlowKey, ct_state};
use packet::headers::IPPROTO_TCP;
use sync::Ordering;

/// A key on its way to its record.
#[derive(Clone, Copy, Default)]
pub struct Lookup<'t> {
    hash: u64,
    bucket: Option<&'t Bucket>,
    /// The first entry of the hash; 0: not looked for, or none.
    hint: Tag,
}

/// The fields of a connection that the usual packet reads. They stay in registers as long as one path alone uses them: a
/// copy of fields just written stalls the processor.
struct Snapshot<const W: usize> {
    state: State,
    expires_ms: u64,
    orig: [u64; W],
    /// The key of the other direction.
    other: [u64; W],
    labels: u128,
}

/// Reason why a packet is not usual.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unusual {
    /// The entry is not that of its connection.
    NotThere,
    /// The tracker as a whole decides.
    Another,
}

impl Tracker {
    /// Begins a lookup: fetches the bucket of a key.
    #[inline(always)]
    pub fn look_ahead(&self, key: &Key) -> Lookup<'_> {
        let hash = match key {
            Key::V4(words) => self.hash.of(words),
            Key::V6(words) => self.hash.of(words),
        };
        Lookup { hash, bucket: Some(self.index.prefetch(hash)), hint: 0 }
    }

    /// Continues a lookup whose bucket was fetched: fetches the record.
    #[inline(always)]
    pub fn look_further(&self, lookup: &mut Lookup<'_>, key: &Key) {
        lookup.hint = lookup.bucket.and_then(|bucket| Index::first(bucket, lookup.hash)).unwrap_or(0);
        match key {
            Key::V4(words) => self.fetch(lookup.hint, words),
            Key::V6(words) => self.fetch(lookup.hint, words),
        }
    }

    #[inline(always)]
    fn fetch<const W: usize>(&self, hint: Tag, words: &[u64; W])
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        if hint != 0
            && let Some(place) = RecordPlace::of_tag(hint, <[u64; W]>::IS_V6)
        {
            Family::<W>::slab(self).record(place.number).prefetch(words.rest().proto == IPPROTO_TCP);
        }
    }

    /// As [`Tracker::track`], with a lookup of the packet's key. The translation is written to `to`, which holds none
    /// before: a copy of what was just written stalls the processor.
    #[allow(clippy::too_many_arguments, reason = "those of track, and two for speed")]
    pub fn track_looked_up(
        &self,
        packet: &PacketInfo,
        lookup: Lookup<'_>,
        request: &Request,
        key: &mut FlowKey,
        port: u32,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) {
        if !self.track_usual(packet, lookup, request, key, now_ms, to) {
            *to = self.track(Some(packet), request, key, port, now_ms);
        }
    }

    /// Tracks a usual packet likewise; `false`, without effect, for another one.
    #[inline(always)]
    pub fn track_usual(
        &self,
        packet: &PacketInfo,
        lookup: Lookup<'_>,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) -> bool {
        if !changes_nothing(packet, request) {
            return false;
        }
        let again = key.base.ct_state != 0 && key.base.ct_zone == request.zone;
        let usual = match (&packet.key, &packet.transport) {
            (Key::V4(words), _) if again => self.again(words, lookup, request, key, now_ms),
            (Key::V6(words), _) if again => self.again(words, lookup, request, key, now_ms),
            (Key::V4(words), Transport::Tcp(s)) => {
                self.usual_segment(s, words, lookup, request, key, now_ms, to)
            }
            (Key::V6(words), Transport::Tcp(s)) => {
                self.usual_segment(s, words, lookup, request, key, now_ms, to)
            }
            (Key::V4(words), _) => self.usual(packet, words, lookup, request, key, now_ms, to),
            (Key::V6(words), _) => self.usual(packet, words, lookup, request, key, now_ms, to),
        };
        usual.is_ok()
    }

    /// Tracks a packet that its zone tracked before, and did not translate: often it commits a connection that exists.
    #[inline(always)]
    fn again<const W: usize>(
        &self,
        words: &[u64; W],
        lookup: Lookup<'_>,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
    ) -> Result<(), Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        const OTHERS: u32 = ct_state::INV | ct_state::REL | ct_state::SNAT | ct_state::DNAT;
        let before = key.base.ct_state;
        let (record, place) = self.record_of(lookup.hint).ok_or(Unusual::Another)?;
        let seen = record.read(|record| snapshot(record, place, words)).flatten().ok_or(Unusual::Another)?;
        let state = seen.state;
        let translates = request.nat != CtNat::No && (state.snat || state.dnat);
        if before & (OTHERS | ct_state::TRK) != ct_state::TRK
            || seen.expires_ms <= now_ms
            || state.related
            || translates
        {
            return Err(Unusual::Another);
        }
        write(key, request.zone, before, state.mark, seen.labels, &seen.orig);
        Ok(())
    }

    /// Tracks a usual packet that is no segment of TCP; an error, without effect, for another one.
    #[inline(always)]
    fn usual<const W: usize>(
        &self,
        packet: &PacketInfo,
        words: &[u64; W],
        lookup: Lookup<'_>,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) -> Result<(), Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let is_icmp = matches!(packet.transport, Transport::Icmp { .. });
        match self.usual_of(words, lookup.hint, is_icmp, request, key, now_ms, to) {
            Err(Unusual::NotThere) => self.usual_elsewhere(words, lookup, is_icmp, request, key, now_ms, to),
            done => done,
        }
    }

    /// Tracks a usual packet of a connection whose record was not fetched.
    #[inline(never)]
    fn usual_elsewhere<const W: usize>(
        &self,
        words: &[u64; W],
        lookup: Lookup<'_>,
        is_icmp: bool,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) -> Result<(), Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        self.usual_of(words, self.tag_of(words, lookup)?, is_icmp, request, key, now_ms, to)
    }

    /// Tracks a usual packet of the connection of an entry, if it is that of the key.
    #[inline(always)]
    fn usual_of<const W: usize>(
        &self,
        words: &[u64; W],
        tag: Tag,
        is_icmp: bool,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) -> Result<(), Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let (record, place) = self.record_of(tag).ok_or(Unusual::NotThere)?;
        let seen = record.read(|record| snapshot(record, place, words)).flatten().ok_or(Unusual::NotThere)?;
        let (state, is_reply) = (seen.state, place.direction.is_reply());
        let (keeps_stage, bit) = match state.stage {
            Stage::First => (is_icmp && !is_reply, ct_state::NEW),
            Stage::Multiple => (!is_reply, ct_state::NEW),
            Stage::Both => (true, ct_state::EST),
        };
        let timeout = if is_icmp { icmp_timeout(state.stage) } else { other_timeout(state.stage) };
        let deadline = now_ms + self.policies.ms(state.policy, timeout);
        if seen.expires_ms <= now_ms || state.related || state.helper.is_some() || !keeps_stage {
            return Err(Unusual::Another);
        }
        if deadline.abs_diff(seen.expires_ms) > REFRESH_MS {
            renew(record, place.direction, words, state.pack(), deadline)?;
        }
        finish(&seen, is_reply, bit, request, key, to);
        Ok(())
    }

    /// Tracks a usual segment of TCP.
    #[allow(clippy::too_many_arguments, reason = "those of a packet, and its segment")]
    #[inline(never)]
    fn usual_segment<const W: usize>(
        &self,
        segment: &Segment,
        words: &[u64; W],
        lookup: Lookup<'_>,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) -> Result<(), Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        match self.segment_of(words, lookup.hint, segment, request, key, now_ms, to) {
            Err(Unusual::NotThere) => {
                self.segment_elsewhere(words, lookup, segment, request, key, now_ms, to)
            }
            done => done,
        }
    }

    #[inline(never)]
    fn segment_elsewhere<const W: usize>(
        &self,
        words: &[u64; W],
        lookup: Lookup<'_>,
        segment: &Segment,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) -> Result<(), Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        self.segment_of(words, self.tag_of(words, lookup)?, segment, request, key, now_ms, to)
    }

    #[inline(always)]
    fn segment_of<const W: usize>(
        &self,
        words: &[u64; W],
        tag: Tag,
        segment: &Segment,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
        to: &mut Option<Translation>,
    ) -> Result<(), Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let (record, place) = self.record_of(tag).ok_or(Unusual::NotThere)?;
        let read = record.read_version(|record| Some((snapshot(record, place, words)?, record.tcp())));
        let (Some((seen, before)), version) = read.ok_or(Unusual::NotThere)? else {
            return Err(Unusual::NotThere);
        };
        let (state, is_reply) = (seen.state, place.direction.is_reply());
        if seen.expires_ms <= now_ms || state.related || state.helper.is_some() {
            return Err(Unusual::Another);
        }
        let checked = self.checks_sequence.load(Ordering::Relaxed);
        let after = Tcp::usual(before, segment, is_reply, checked).ok_or(Unusual::Another)?;
        let deadline = now_ms + self.policies.ms(state.policy, TimeoutAttr::TcpEstablished);
        if after != before || deadline.abs_diff(seen.expires_ms) > REFRESH_MS {
            let locked = record.lock_version(version).ok_or(Unusual::Another)?;
            locked.set_expires_ms(deadline);
            locked.set_tcp(after);
        }
        finish(&seen, is_reply, ct_state::EST, request, key, to);
        Ok(())
    }

    /// The entry of a key.
    fn tag_of<const W: usize>(&self, words: &[u64; W], lookup: Lookup) -> Result<Tag, Unusual>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let has_key = |tag: &Tag| {
            let of = self.record_of::<W>(*tag);
            of.is_some_and(|(record, place)| record.is_live() && record.key(place.direction) == *words)
        };
        self.index.find(lookup.hash, |tag| Some(tag).filter(has_key)).ok_or(Unusual::Another)
    }

    /// The record of an entry, and the direction.
    #[inline(always)]
    fn record_of<const W: usize>(&self, tag: Tag) -> Option<(&Record<W>, RecordPlace)>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        if tag == 0 {
            return None;
        }
        let place = RecordPlace::of_tag(tag, <[u64; W]>::IS_V6)?;
        Some((Family::<W>::slab(self).record(place.number), place))
    }
}

/// Moves the deadline of a connection that is still as it was seen.
#[inline(never)]
fn renew<const W: usize>(
    record: &Record<W>,
    direction: Direction,
    words: &[u64; W],
    state: u64,
    deadline: u64,
) -> Result<(), Unusual>
where
    [u64; W]: Words,
{
    let locked = record.lock().ok_or(Unusual::Another)?;
    if record.key(direction) != *words || record.state() != state {
        return Err(Unusual::Another);
    }
    locked.set_expires_ms(deadline);
    Ok(())
}

/// Whether an action changes nothing of an existing connection.
#[inline(always)]
fn changes_nothing(packet: &PacketInfo, request: &Request) -> bool {
    !(request.force || request.mark.is_some() || request.labels.is_some() || packet.is_error)
}

/// Reads a record, if it is that of the key.
#[inline(always)]
fn snapshot<const W: usize>(record: &Record<W>, place: RecordPlace, words: &[u64; W]) -> Option<Snapshot<W>>
where
    [u64; W]: Words,
{
    if record.key(place.direction) != *words {
        return None;
    }
    let state = State::unpack(record.state());
    let labels = if state.labelled { labels_of(record.labels()) } else { 0 };
    let (orig, other) = (record.key(Direction::Orig), record.key(place.direction.opposite()));
    Some(Snapshot { state, expires_ms: record.expires_ms(), orig, other, labels })
}

/// Writes the state of a packet, and its translation, if any. `bit`: established, or new before a reply.
#[inline(always)]
fn finish<const W: usize>(
    seen: &Snapshot<W>,
    is_reply: bool,
    bit: u32,
    request: &Request,
    key: &mut FlowKey,
    to: &mut Option<Translation>,
) where
    [u64; W]: Words,
{
    let state = seen.state;
    let mut bits = bit | if is_reply { ct_state::RPL } else { 0 };
    if request.nat != CtNat::No && (state.snat || state.dnat) {
        bits |= if state.snat != is_reply { ct_state::SNAT } else { ct_state::DNAT };
        *to = Some(Translation::Tuple(seen.other.reversed().key()));
    }
    write(key, request.zone, bits, state.mark, seen.labels, &seen.orig);
}

#[cfg(test)]
mod tests;
