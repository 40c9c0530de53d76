//! New connections: limits, translation, insertion.

use crate::expect::Expected;
use crate::index::Refused;
use crate::key::Words;
use crate::metadata::{write, write_invalid};
use crate::nat::Candidates;
use crate::packet_info::{PacketInfo, Transport};
use crate::record::{Body, Direction, Locked};
use crate::request::{Request, Translation};
use crate::state::{Stage, State};
use crate::tcp::Tcp;
use crate::tracker::{Family, RecordPlace, Seen, Tracker, translate, words_of};
use dpif::{CtNat, CtRefusal, TimeoutAttr};
use flow::{FlowKey, ct_state};
use packet::headers as h;
use sync::Ordering;

/// Insertions of a key that meet expired connections, at most.
const INSERTIONS_MAX: usize = 8;

pub(crate) enum NotInserted {
    Exists(RecordPlace),
    Full,
    /// No translated tuple is free.
    NoTuple,
}

impl Tracker {
    /// A packet without a connection: commits one if requested. `Err`: there is one by now.
    pub(crate) fn begin<const W: usize>(
        &self,
        packet: &PacketInfo,
        words: [u64; W],
        request: &Request,
        key: &mut FlowKey,
        port: u32,
        now_ms: u64,
    ) -> Result<(Option<Translation>, Option<Seen<W>>), RecordPlace>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let begins = match packet.transport {
            Transport::Tcp(segment) => segment.may_begin(),
            Transport::Icmp { begins } => begins,
            Transport::Other => true,
        };
        if packet.is_error || !begins {
            write_invalid(key, request.zone);
            return Ok((None, None));
        }
        let expected = self.expectations.find(words.key(), now_ms);
        let mut state = ct_state::NEW | if expected.is_some() { ct_state::REL } else { 0 };
        let mut seen = None;
        if request.commit {
            match self.commit(packet, words, request, expected.as_ref(), port, now_ms) {
                Ok(created) => seen = created,
                Err(place) => return Err(place),
            }
        }
        let Some(seen) = seen else {
            let (mark, labels) = expected.map_or((0, 0), |e| (e.mark, e.labels));
            let orig = expected.and_then(|e| Words::of(e.parent)).unwrap_or(words);
            write(key, request.zone, state, mark, labels, &orig);
            return Ok((None, None));
        };
        let translation = translate(packet, request, &seen, &mut state);
        self.write_seen(key, request.zone, state, &seen);
        Ok((translation, Some(seen)))
    }

    /// Creates a connection. `Ok(None)`: a limit or the translation refuses it. `Err`: there is one by now.
    fn commit<const W: usize>(
        &self,
        packet: &PacketInfo,
        orig: [u64; W],
        request: &Request,
        expected: Option<&Expected>,
        port: u32,
        now_ms: u64,
    ) -> Result<Option<Seen<W>>, RecordPlace>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        if let Err(why) = self.limits.take(request.zone, port) {
            self.limits.count_refused(request.zone, why);
            return Ok(None);
        }
        let slab = Family::<W>::slab(self);
        let hash = self.hash.of(&orig);
        let list = (hash >> 40) as usize;
        let Some(number) = slab.allocate(list) else {
            self.limits.refuse(request.zone, port, CtRefusal::Full);
            return Ok(None);
        };
        let (state, tcp, timeout) = first_state(packet, request, expected);
        if state.helper.is_some() && packet.control(None).is_none() {
            self.has_helpers_elsewhere.store(true, Ordering::Relaxed);
        }
        let labels = expected.map_or(request.labels.map_or(0, |m| m.value), |e| e.labels);
        let body = Body {
            expires_ms: now_ms + self.policies.ms(state.policy, timeout),
            state: state.pack(),
            port: port.into(),
            tcp,
            labels: words_of(labels),
            skew: 0,
        };
        let reply = orig.reversed();
        let locked = slab.create(number, [orig, reply], &body);
        if let Some(expected) = expected {
            self.parents.add(number, orig.key(), expected.parent);
        }
        let refused = match (&request.nat, expected) {
            (CtNat::New(_) | CtNat::Known, Some(expected)) => {
                self.insert_expected(&locked, number, [orig, reply], expected, now_ms)
            }
            (CtNat::New(range), None) => self.insert_translated(&locked, number, orig, range, now_ms),
            (CtNat::No, _) | (CtNat::Known, None) => self.insert(number, [orig, reply], false, now_ms),
        };
        let reply = match refused {
            Ok(reply) => reply,
            Err(refused) => {
                locked.end();
                if expected.is_some() {
                    self.parents.end(number, orig.key());
                }
                drop(locked);
                slab.release(number, list);
                let why = match refused {
                    NotInserted::Exists(place) => {
                        self.limits.give_back(request.zone, port);
                        return Err(place);
                    }
                    NotInserted::Full => CtRefusal::Full,
                    NotInserted::NoTuple => CtRefusal::NatExhausted,
                };
                self.limits.refuse(request.zone, port, why);
                return Ok(None);
            }
        };
        self.limits.count_created(request.zone);
        drop(locked);
        let place = RecordPlace { number, direction: Direction::Orig };
        Ok(Some(Seen { place, orig, reply, state, labels }))
    }

    /// Inserts the keys of a locked record. `unique`: no other connection may have the reply key.
    pub(crate) fn insert<const W: usize>(
        &self,
        number: u32,
        keys: [[u64; W]; 2],
        unique: bool,
        now_ms: u64,
    ) -> Result<[u64; W], NotInserted>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        self.insert_unless(number, keys, now_ms, |n, _| n == 0 || unique)
    }

    /// Inserts the keys of a locked record, unless another connection has one: `excludes` tells whether one that has the key of
    /// that number in that direction excludes it.
    pub(crate) fn insert_unless<const W: usize>(
        &self,
        number: u32,
        keys: [[u64; W]; 2],
        now_ms: u64,
        excludes: impl Fn(usize, Direction) -> bool,
    ) -> Result<[u64; W], NotInserted>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let slab = Family::<W>::slab(self);
        let is_v6 = <[u64; W]>::IS_V6;
        let hashes = [self.hash.of(&keys[0]), self.hash.of(&keys[1])];
        let tag = |direction| RecordPlace { number, direction }.tag(is_v6);
        let tags = match keys[0] == keys[1] {
            true => [tag(Direction::Orig); 2],
            false => [tag(Direction::Orig), tag(Direction::Reply)],
        };
        for _ in 0..INSERTIONS_MAX {
            let same = |tag, n: usize| {
                let place = RecordPlace::of_tag(tag, is_v6);
                place.filter(|place| excludes(n, place.direction)).is_some_and(|place| {
                    let record = slab.record(place.number);
                    record.key(place.direction) == keys[n] && record.is_live()
                })
            };
            match self.index.insert_both(hashes, tags, same) {
                Ok(()) => return Ok(keys[1]),
                Err(Refused::Full) => return Err(NotInserted::Full),
                Err(Refused::Exists(n, tag)) => {
                    let Some(place) = RecordPlace::of_tag(tag, is_v6) else { return Err(NotInserted::Full) };
                    if slab.record(place.number).expires_ms() <= now_ms {
                        self.end_if_expired::<W>(place.number, now_ms);
                        continue;
                    }
                    return Err(if n == 0 { NotInserted::Exists(place) } else { NotInserted::NoTuple });
                }
            }
        }
        Err(NotInserted::NoTuple)
    }

    /// Inserts the keys of a locked record of an expected connection, translated as its parent is.
    fn insert_expected<const W: usize>(
        &self,
        locked: &Locked<'_, W>,
        number: u32,
        [orig, mut reply]: [[u64; W]; 2],
        expected: &Expected,
        now_ms: u64,
    ) -> Result<[u64; W], NotInserted>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        if expected.is_src {
            reply.set_dst(expected.address)
        } else {
            reply.set_src(expected.address)
        }
        locked.set_reply(reply);
        self.insert(number, [orig, reply], true, now_ms)
    }

    /// Chooses a translation for a locked record and inserts its keys.
    fn insert_translated<const W: usize>(
        &self,
        locked: &Locked<'_, W>,
        number: u32,
        orig: [u64; W],
        range: &dpif::NatRange,
        now_ms: u64,
    ) -> Result<[u64; W], NotInserted>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        let hasher = if range.persistent { &self.persistent } else { &self.hash };
        let hash = hasher.of(&orig);
        let candidates = Candidates::new(&orig, range, hash, if range.random { self.random() } else { 0 });
        let mut candidates = candidates.ok_or(NotInserted::NoTuple)?;
        while let Some(reply) = candidates.next(|| self.random()) {
            if self.find(&reply, now_ms).is_some() {
                continue;
            }
            locked.set_reply(reply);
            match self.insert(number, [orig, reply], true, now_ms) {
                Err(NotInserted::NoTuple) => {}
                done => return done,
            }
        }
        Err(NotInserted::NoTuple)
    }
}

/// State, sequence numbers and timeout of a new connection.
fn first_state(
    packet: &PacketInfo,
    request: &Request,
    expected: Option<&Expected>,
) -> (State, [u64; 3], TimeoutAttr) {
    let (snat, dnat) = match (request.nat, expected) {
        (CtNat::New(_) | CtNat::Known, Some(expected)) => (expected.is_src, !expected.is_src),
        (CtNat::New(range), None) => (!range.is_dst, range.is_dst),
        (CtNat::No, _) | (CtNat::Known, None) => (false, false),
    };
    let state = State {
        stage: Stage::First,
        snat,
        dnat,
        related: expected.is_some(),
        labelled: expected.map_or(request.labels.map_or(0, |m| m.value), |e| e.labels) != 0,
        helper: packet.control(request.helper).filter(|helper| request.helper == Some(*helper)),
        policy: if has_policies(packet.key.rest().proto) { request.policy } else { 0 },
        mark: expected.map_or(request.mark.map_or(0, |m| m.value), |e| e.mark),
    };
    match packet.transport {
        Transport::Tcp(segment) => (state, Tcp::new(&segment).pack(), TimeoutAttr::TcpSynSent),
        Transport::Icmp { .. } => (state, [0; 3], TimeoutAttr::IcmpFirst),
        Transport::Other => (state, [0; 3], TimeoutAttr::UdpFirst),
    }
}

/// Whether timeout policies apply to connections of that IP protocol.
fn has_policies(proto: u8) -> bool {
    matches!(proto, h::IPPROTO_TCP | h::IPPROTO_UDP | h::IPPROTO_ICMP | h::IPPROTO_ICMPV6)
}
