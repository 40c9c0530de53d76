//! Lists, deletion and expiry of connections: walks over the records, in slices. They hold no lock but that of the record
//! at hand, so packets and other walks go on.

use crate::index::Index;
use crate::key::{Key, V4_WORDS, V6_WORDS, Words};
use crate::record::Direction;
use crate::state::State;
use crate::stats::TrackerStats;
use crate::tcp::Tcp;
use crate::timeouts::NoSuchPolicy;
use crate::tracker::{Family, RecordPlace, Tracker, labels_of};
use dpif::{Connection, CtCounts, CtProtocol, CtStatistics, CtZoneCounts, Expectation, TimeoutPolicy};
use packet::headers as h;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::ControlFlow;
use sync::Ordering;

/// Zones with the highest values; of equal ones, those with lower numbers.
#[derive(Default)]
struct Most(BinaryHeap<Reverse<(u64, Reverse<u16>)>>);

impl Most {
    /// Keeps `each` zones at most, none with value 0. Zones come in order of their numbers.
    fn offer(&mut self, zone: u16, value: u64, each: usize) {
        let least =
            if self.0.len() < each { Some(0) } else { self.0.peek().map(|Reverse((least, _))| *least) };
        if least.is_some_and(|least| value > least) {
            self.0.push(Reverse((value, Reverse(zone))));
        }
        if self.0.len() > each {
            self.0.pop();
        }
    }

    fn zones(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().map(|Reverse((_, Reverse(zone)))| *zone)
    }
}

/// Where a walk continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    v6: bool,
    number: u32,
}

impl Tracker {
    /// Visits one slice of at most `records` records; returns where the next begins, or `None` at the end.
    fn slice(&self, from: Cursor, records: u32, mut visit: impl FnMut(bool, u32)) -> Option<Cursor> {
        let used = if from.v6 { self.v6.used() } else { self.v4.used() };
        let end = used.min(from.number.saturating_add(records));
        (from.number..end).for_each(|number| visit(from.v6, number));
        match (end < used, from.v6) {
            (true, _) => Some(Cursor { number: end, ..from }),
            (false, false) => Some(Cursor { v6: true, number: 0 }),
            (false, true) => None,
        }
    }

    /// Ends expired connections of one slice, and as many expired expectations at most.
    pub fn expire(&self, from: Cursor, records: u32, now_ms: u64) -> Option<Cursor> {
        self.expectations.expire(now_ms, records as usize);
        self.slice(from, records, |v6, number| {
            if v6 {
                self.expire_one::<V6_WORDS>(number, now_ms);
            } else {
                self.expire_one::<V4_WORDS>(number, now_ms);
            }
        })
    }

    fn expire_one<const W: usize>(&self, number: u32, now_ms: u64)
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let record = Family::<W>::slab(self).record(number);
        if record.is_live() && record.expires_ms() <= now_ms {
            self.end_if_expired::<W>(number, now_ms);
        }
    }

    /// Records that walks visit.
    pub fn records(&self) -> u32 {
        self.v4.used() + self.v6.used()
    }

    /// Takes memory for that many further connections, so that the thread of their packets does not wait for it: the first
    /// touch of a large page may take milliseconds in a virtual machine.
    pub fn prepare(&self, connections: u32) {
        self.index.prepare(Index::buckets_of(connections));
        self.v4.prepare(connections);
        self.v6.prepare(connections);
    }

    /// All connections, one by one.
    pub fn list(&self, now_ms: u64, mut visit: impl FnMut(&Connection) -> ControlFlow<()>) {
        let mut at = Some(Cursor::default());
        let mut go_on = true;
        while let Some(cursor) = at.filter(|_| go_on) {
            at = self.slice(cursor, 1024, |v6, number| {
                if go_on && let Some(connection) = self.connection(v6, number, now_ms) {
                    go_on = visit(&connection).is_continue();
                }
            });
        }
    }

    fn connection(&self, v6: bool, number: u32, now_ms: u64) -> Option<Connection> {
        if v6 {
            self.connection_of::<V6_WORDS>(number, now_ms)
        } else {
            self.connection_of::<V4_WORDS>(number, now_ms)
        }
    }

    fn connection_of<const W: usize>(&self, number: u32, now_ms: u64) -> Option<Connection>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let record = Family::<W>::slab(self).record(number);
        let read = || {
            let unlocked = record.read(|r| (r.key(Direction::Orig), r.key(Direction::Reply), r.body()));
            // Locked at this moment: wait for the lock once.
            unlocked.or_else(|| {
                let locked = record.lock()?;
                let r = locked.record();
                Some((r.key(Direction::Orig), r.key(Direction::Reply), r.body()))
            })
        };
        if !record.is_live() {
            return None;
        }
        let (orig, reply, body) = read().filter(|(.., body)| body.expires_ms > now_ms)?;
        let state = State::unpack(body.state);
        let parent = if state.related { self.parents.find(number, orig.key()) } else { None };
        let rest = orig.rest();
        let protocol = (rest.proto == h::IPPROTO_TCP).then(|| {
            let [a, b] = Tcp::unpack(body.tcp).sides();
            CtProtocol::Tcp(a, b)
        });
        Some(Connection {
            parent: parent.map(|key| key.tuple()),
            zone: rest.zone,
            mark: state.mark,
            labels: labels_of(body.labels),
            timeout_s: ((body.expires_ms - now_ms) / 1000) as u32,
            protocol,
            helper: state.helper.map(|helper| helper.name().to_string()),
            ..Connection::new(orig.key().tuple(), reply.key().tuple())
        })
    }

    /// All expected connections, those that end first at the beginning.
    pub fn expectations(&self, now_ms: u64) -> impl Iterator<Item = Expectation> {
        self.expectations.all(now_ms).into_iter().map(|(key, expected)| Expectation {
            tuple: key.tuple(),
            parent: expected.parent.tuple(),
            zone: key.rest().zone,
            mark: expected.mark,
            labels: expected.labels,
        })
    }

    /// Ends all connections that `select` accepts.
    pub fn flush(&self, now_ms: u64, mut select: impl FnMut(&Connection) -> bool) {
        let mut at = Some(Cursor::default());
        while let Some(cursor) = at {
            at = self.slice(cursor, 1024, |v6, number| {
                let selected = self.connection(v6, number, now_ms).filter(&mut select);
                let place = RecordPlace { number, direction: Direction::Orig };
                match selected.and_then(|c| Key::of(&c.orig, c.zone)) {
                    Some(Key::V4(words)) => _ = self.end_if_of(place, &words),
                    Some(Key::V6(words)) => _ = self.end_if_of(place, &words),
                    None => {}
                }
            });
        }
    }

    /// Ends the connection with that original tuple or, if there is none, that reply tuple; returns whether there was one.
    pub fn end_of_key(&self, key: &Key, now_ms: u64) -> bool {
        fn end<const W: usize>(tracker: &Tracker, words: &[u64; W], now_ms: u64) -> bool
        where
            [u64; W]: Words,
            Tracker: Family<W>,
        {
            // Both may exist, of different connections.
            let original = tracker.find_where(words, now_ms, |place| !place.direction.is_reply());
            let place = original.or_else(|| tracker.find(words, now_ms));
            place.is_some_and(|place| tracker.end_if_of(place, words))
        }
        match key {
            Key::V4(words) => end(self, words, now_ms),
            Key::V6(words) => end(self, words, now_ms),
        }
    }

    /// Ends the connection of a record if that is its tuple of the place's direction.
    pub(crate) fn end_if_of<const W: usize>(&self, place: RecordPlace, words: &[u64; W]) -> bool
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let locked = Family::<W>::slab(self).record(place.number).lock();
        let locked = locked.filter(|locked| locked.record().key(place.direction) == *words);
        locked.map(|locked| self.end_locked(place.number, locked)).is_some()
    }

    /// Number of connections, expired ones included that no walk has met yet.
    pub fn connections(&self) -> u32 {
        self.limits.count()
    }

    /// Connections of a zone.
    pub fn connections_of_zone(&self, zone: u16) -> u32 {
        self.limits.of_zone(zone)
    }

    /// Connections that packets of an input port began.
    pub fn connections_of_port(&self, port: u32) -> u32 {
        self.limits.of_port(port)
    }

    /// Maximum connections.
    pub fn max_connections(&self) -> u32 {
        self.limits.max()
    }

    /// Sets the maximum; connections beyond it stay.
    pub fn set_max_connections(&self, max: u32) {
        self.limits.set_max(max);
    }

    /// Sets the number of ports that share the places kept for ports with few connections.
    pub fn set_ports(&self, ports: u32) {
        self.limits.set_sharing(ports);
    }

    /// The limit of a zone, without the default.
    pub fn zone_limit(&self, zone: u16) -> Option<u32> {
        self.limits.own_limit(zone)
    }

    /// The limit of zones without their own.
    pub fn default_zone_limit(&self) -> Option<u32> {
        self.limits.default_limit()
    }

    /// Sets or removes the limit of a zone, or of zones without their own.
    pub fn set_zone_limit(&self, zone: Option<u16>, limit: Option<u32>) {
        self.limits.set_limit(zone, limit);
    }

    /// Zones with a limit of their own, in order.
    pub fn limited_zones(&self) -> Vec<u16> {
        self.limits.limited_zones().collect()
    }

    /// Whether TCP sequence numbers must fit.
    pub fn checks_sequence(&self) -> bool {
        self.checks_sequence.load(Ordering::Relaxed)
    }

    /// Sets whether TCP sequence numbers must fit.
    pub fn set_checks_sequence(&self, on: bool) {
        self.checks_sequence.store(on, Ordering::Relaxed);
    }

    /// Creates, replaces or (`None`) removes a timeout policy; connections of a removed one have the usual timeouts.
    ///
    /// # Errors
    /// There is no policy of that number: 0, or [`crate::POLICIES_MAX`] and more.
    pub fn set_policy(&self, policy: u16, values: Option<&TimeoutPolicy>) -> Result<(), NoSuchPolicy> {
        self.policies.set(policy, values)
    }

    /// A timeout policy, with defaults.
    pub fn policy(&self, policy: u16) -> Option<TimeoutPolicy> {
        self.policies.get(policy)
    }

    /// Numbers of all timeout policies.
    pub fn policies(&self) -> Vec<u16> {
        self.policies.numbers()
    }

    /// Connections, counters and limits of all zones that had a connection or a refusal, in order of their numbers.
    /// Visits zones, not connections.
    pub fn zones(&self) -> impl Iterator<Item = CtZoneCounts> + '_ {
        self.limits.used_zones()
    }

    /// The sum of all zones.
    pub fn counts(&self) -> CtCounts {
        let mut all = CtCounts::default();
        self.zones().for_each(|zone| all.add(&zone.counts));
        all
    }

    /// All zones and the busiest of them ([`dpif::Connections::statistics`]).
    pub fn statistics(&self, each: usize) -> CtStatistics {
        let (mut all, mut zones_used) = (CtCounts::default(), 0);
        let mut most = [Most::default(), Most::default(), Most::default()];
        for CtZoneCounts { zone, counts, .. } in self.zones() {
            zones_used += 1;
            all.add(&counts);
            let values = [counts.connections.into(), counts.created, counts.refused.iter().sum()];
            most.iter_mut().zip(values).for_each(|(most, value)| most.offer(zone, value, each));
        }
        let chosen: BTreeSet<u16> = most.iter().flat_map(Most::zones).collect();
        let zones = chosen.into_iter().filter_map(|zone| self.limits.used_zone(zone)).collect();
        CtStatistics { maximum: self.max_connections(), all, zones_used, zones }
    }

    /// Counters of rare events.
    pub fn stats(&self) -> TrackerStats {
        self.stats.values()
    }

    /// Connections by bucket of their original tuple; beyond 65,536 buckets, by groups of them.
    pub fn connections_by_bucket(&self) -> Vec<u32> {
        self.index.entries_by_bucket(1 << 16, |tag| !RecordPlace::is_reply_tag(tag))
    }
}
