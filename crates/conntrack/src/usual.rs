//! The usual packet: of an established connection without sequence numbers, seen for the first time in its zone, with
//! nothing to change. It costs one probe of the index, one read of a record, and no write to shared memory. All other
//! packets go through [`Tracker::track`] as a whole, which gives the same result for these: it is the oracle.
//!
//! A group of packets is looked up in passes, so that the memory of all of them is fetched at once ([`Lookup`]).

use crate::index::Tag;
use crate::key::{Key, V4_WORDS, V6_WORDS, Words};
use crate::metadata::write;
use crate::packet_info::{PacketInfo, Transport};
use crate::record::Direction;
use crate::request::{Request, Translation};
use crate::state::{Stage, State};
use crate::tracker::{Family, Place, REFRESH_MS, Tracker, icmp_timeout, labels_of, other_timeout};
use dpif::CtNat;
use flow::{FlowKey, ct_state};

/// A key on its way to its record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lookup {
    hash: u64,
    /// The first entry of the hash; 0: not looked for, or none.
    hint: Tag,
}

/// The fields of a connection that the usual packet reads.
struct Snapshot<const W: usize> {
    direction: Direction,
    state: State,
    expires_ms: u64,
    /// The key of the other direction.
    other: [u64; W],
    labels: u128,
}

impl Tracker {
    /// Begins a lookup: fetches the bucket of a key.
    #[inline(always)]
    pub fn look_ahead(&self, key: &Key) -> Lookup {
        let hash = match key {
            Key::V4(words) => self.hash.of(words),
            Key::V6(words) => self.hash.of(words),
        };
        self.index.prefetch(hash);
        Lookup { hash, hint: 0 }
    }

    /// Continues a lookup whose bucket was fetched: fetches the record.
    #[inline]
    pub fn look_further(&self, lookup: &mut Lookup, key: &Key) {
        lookup.hint = self.index.first(lookup.hash).unwrap_or(0);
        match key {
            Key::V4(_) => self.fetch::<V4_WORDS>(lookup.hint),
            Key::V6(_) => self.fetch::<V6_WORDS>(lookup.hint),
        }
    }

    #[inline]
    fn fetch<const W: usize>(&self, hint: Tag)
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        if hint != 0
            && let Some(place) = Place::of_tag(hint, <[u64; W]>::IS_V6)
        {
            simd::prefetch(Family::<W>::slab(self).record(place.number));
        }
    }

    /// As [`Tracker::track`], with a lookup of the packet's key.
    #[inline]
    pub fn track_looked_up(
        &self,
        packet: &PacketInfo,
        lookup: Lookup,
        request: &Request,
        key: &mut FlowKey,
        port: u32,
        now_ms: u64,
    ) -> Option<Translation> {
        let usual = match &packet.key {
            Key::V4(words) => self.usual(packet, words, lookup, request, key, now_ms),
            Key::V6(words) => self.usual(packet, words, lookup, request, key, now_ms),
        };
        match usual {
            Some(translation) => translation,
            None => self.track(Some(packet), request, key, port, now_ms),
        }
    }

    /// Tracks a usual packet; `None`, without effect, for another one.
    #[allow(clippy::option_option, reason = "another packet; a packet without and with a translation")]
    #[inline]
    fn usual<const W: usize>(
        &self,
        packet: &PacketInfo,
        words: &[u64; W],
        lookup: Lookup,
        request: &Request,
        key: &mut FlowKey,
        now_ms: u64,
    ) -> Option<Option<Translation>>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let before = key.base.ct_state != 0 && key.base.ct_zone == request.zone;
        let changes = request.force || request.mark.is_some() || request.labels.is_some();
        if before || changes || packet.is_error {
            return None;
        }
        let is_icmp = match packet.transport {
            Transport::Tcp(_) => return None,
            Transport::Icmp { .. } => true,
            Transport::Other => false,
        };
        let hinted = if lookup.hint == 0 { None } else { self.snapshot(words, lookup.hint) };
        let seen = match hinted {
            Some(seen) => seen,
            None => self.index.find(lookup.hash, |tag| self.snapshot(words, tag))?,
        };
        let (state, is_reply) = (seen.state, seen.direction.is_reply());
        let keeps_stage = match state.stage {
            Stage::First => is_icmp && !is_reply,
            Stage::Multiple => !is_reply,
            Stage::Both => true,
        };
        let timeout = if is_icmp { icmp_timeout(state.stage) } else { other_timeout(state.stage) };
        let deadline = now_ms + self.policies.ms(state.policy, timeout);
        let is_over = seen.expires_ms <= now_ms;
        if is_over || state.related || !keeps_stage || deadline.abs_diff(seen.expires_ms) > REFRESH_MS {
            return None;
        }
        let reply = if is_reply { ct_state::RPL } else { 0 };
        let mut bits = ct_state::EST | reply;
        let mut translation = None;
        if request.nat != CtNat::No && (state.snat || state.dnat) {
            bits |= if state.snat != is_reply { ct_state::SNAT } else { ct_state::DNAT };
            translation = Some(Translation::Tuple(seen.other.reversed().key()));
        }
        let orig = if is_reply { &seen.other } else { words };
        write(key, request.zone, bits, state.mark, seen.labels, orig);
        Some(translation)
    }

    /// Reads the connection of an entry, if it is that of the key.
    #[inline(always)]
    fn snapshot<const W: usize>(&self, words: &[u64; W], tag: Tag) -> Option<Snapshot<W>>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let place = Place::of_tag(tag, <[u64; W]>::IS_V6)?;
        let record = Family::<W>::slab(self).record(place.number);
        let direction = place.direction;
        let read = record.read(|record| {
            if record.key(direction) != *words {
                return None;
            }
            let state = State::unpack(record.state());
            let labels = if state.labelled { labels_of(record.labels()) } else { 0 };
            let other = record.key(direction.opposite());
            Some(Snapshot { direction, state, expires_ms: record.expires_ms(), other, labels })
        });
        read.flatten()
    }
}
