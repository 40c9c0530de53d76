//! New connections: limits, translation, insertion.

use crate::index::Refused;
use crate::key::Words;
use crate::limits::Refusal;
use crate::metadata::{write, write_invalid};
use crate::nat::Candidates;
use crate::packet_info::{PacketInfo, Transport};
use crate::record::{Body, Direction, Locked};
use crate::request::{Request, Translation};
use crate::state::{Stage, State};
use crate::tcp::Tcp;
use crate::tracker::{Family, Place, Seen, Tracker, translate, words_of};
use dpif::{CtNat, TimeoutAttr};
use flow::{FlowKey, ct_state};
use packet::headers as h;

/// Insertions of a key that meet expired connections, at most.
const INSERTIONS_MAX: usize = 8;

enum NotInserted {
    Exists(Place),
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
    ) -> Result<Option<Translation>, Place>
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
            return Ok(None);
        }
        let mut seen = None;
        if request.commit {
            match self.commit(packet, words, request, port, now_ms) {
                Ok(created) => seen = created,
                Err(place) => return Err(place),
            }
        }
        let Some(seen) = seen else {
            write(key, request.zone, ct_state::NEW, 0, 0, &words);
            return Ok(None);
        };
        let mut state = ct_state::NEW;
        let translation = translate(packet, request, &seen, &mut state);
        write(key, request.zone, state, seen.state.mark, seen.labels, &seen.orig);
        Ok(translation)
    }

    /// Creates a connection. `Ok(None)`: a limit or the translation refuses it. `Err`: there is one by now.
    fn commit<const W: usize>(
        &self,
        packet: &PacketInfo,
        orig: [u64; W],
        request: &Request,
        port: u32,
        now_ms: u64,
    ) -> Result<Option<Seen<W>>, Place>
    where
        [u64; W]: Words,
        Tracker: Family<W>,
    {
        if let Err(refusal) = self.limits.take(request.zone, port) {
            let counter = match refusal {
                Refusal::Full => &self.stats.full,
                Refusal::Zone => &self.stats.zone_full,
            };
            counter.add();
            return Ok(None);
        }
        let slab = Family::<W>::slab(self);
        let hash = self.hash.of(&orig);
        let list = (hash >> 40) as usize;
        let Some(number) = slab.allocate(list) else {
            self.limits.give_back(request.zone, port);
            self.stats.full.add();
            return Ok(None);
        };
        let (state, tcp, timeout) = first_state(packet, request);
        let labels = request.labels.map_or(0, |m| m.value);
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
        let refused = match &request.nat {
            CtNat::New(range) => self.insert_translated(&locked, number, orig, range, now_ms),
            CtNat::No | CtNat::Known => self.insert(number, [orig, reply], false, now_ms),
        };
        let reply = match refused {
            Ok(reply) => reply,
            Err(refused) => {
                locked.end();
                drop(locked);
                slab.release(number, list);
                self.limits.give_back(request.zone, port);
                let counter = match refused {
                    NotInserted::Exists(place) => return Err(place),
                    NotInserted::Full => &self.stats.full,
                    NotInserted::NoTuple => &self.stats.no_tuple,
                };
                counter.add();
                return Ok(None);
            }
        };
        drop(locked);
        self.stats.created.add();
        let place = Place { number, direction: Direction::Orig };
        Ok(Some(Seen { place, orig, reply, state, labels }))
    }

    /// Inserts the keys of a locked record. `unique`: no other connection may have the reply key.
    fn insert<const W: usize>(
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
        let slab = Family::<W>::slab(self);
        let is_v6 = <[u64; W]>::IS_V6;
        let hashes = [self.hash.of(&keys[0]), self.hash.of(&keys[1])];
        let tag = |direction| Place { number, direction }.tag(is_v6);
        let tags = match keys[0] == keys[1] {
            true => [tag(Direction::Orig); 2],
            false => [tag(Direction::Orig), tag(Direction::Reply)],
        };
        for _ in 0..INSERTIONS_MAX {
            let same = |tag, n: usize| {
                (n == 0 || unique)
                    && Place::of_tag(tag, is_v6).is_some_and(|place| {
                        let record = slab.record(place.number);
                        record.key(place.direction) == keys[n] && record.is_live()
                    })
            };
            match self.index.insert_both(hashes, tags, same) {
                Ok(()) => return Ok(keys[1]),
                Err(Refused::Full) => return Err(NotInserted::Full),
                Err(Refused::Exists(n, tag)) => {
                    let Some(place) = Place::of_tag(tag, is_v6) else { return Err(NotInserted::Full) };
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
fn first_state(packet: &PacketInfo, request: &Request) -> (State, [u64; 3], TimeoutAttr) {
    let (snat, dnat) = match request.nat {
        CtNat::New(range) => (!range.is_dst, range.is_dst),
        CtNat::No | CtNat::Known => (false, false),
    };
    let state = State {
        stage: Stage::First,
        snat,
        dnat,
        related: false,
        labelled: request.labels.is_some_and(|m| m.value != 0),
        helper: request.helper,
        policy: if has_policies(packet.key.rest().proto) { request.policy } else { 0 },
        mark: request.mark.map_or(0, |m| m.value),
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
