//! The tracker and its oracle side by side, by random packets.

use super::agree;
use crate::carry::{Export, import};
use crate::key::Key;
use crate::packet_info::{PacketInfo, Transport};
use crate::reference::{Metadata, Reference, in_zone, states};
use crate::request::{Request, Translation};
use crate::tcp::{Segment, flag};
use crate::{Cursor, Tracker};
use dpif::{
    CtAddresses, CtCarry, CtNat, CtProtocol, CtRefusal, CtTransport, CtTuple, Masked, NatAddresses, NatRange,
    TimeoutAttr,
};
use flow::{FlowKey, ct_state, shape};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::ControlFlow;

const MAX: u32 = 24;

/// One `ct` action.
#[derive(Clone, Copy, Debug)]
struct Action {
    request: Request,
    /// `ct_clear` before it.
    clear: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// A packet through several actions, with its translations carried out.
    Packet {
        packet: PacketInfo,
        port: u32,
        actions: Vec<Action>,
        valid: bool,
    },
    Wait(u64),
    Expire,
    Flush(u16),
    End(Key),
    Limit(u16, Option<u32>),
    CheckSequence(bool),
    /// Another tracker takes the connections so far, or, for good, takes over.
    Carry(bool),
}

fn address(n: u32, v6: bool) -> (Ipv4Addr, Ipv6Addr) {
    let _ = v6;
    (Ipv4Addr::from(0x0a00_0000 + n), Ipv6Addr::from(0xfd00 << 112 | u128::from(n)))
}

fn key() -> impl Strategy<Value = Key> {
    let transport = prop_oneof![
        Just(6u8).prop_map(|proto| (proto, None)),
        Just(17u8).prop_map(|proto| (proto, None)),
        prop_oneof![2 => Just(0u8), 2 => Just(1), 1 => Just(2)].prop_map(|kind| (1u8, Some(kind))),
    ];
    (1..4u32, 1..4u32, any::<bool>(), transport, 1..3u16, 1..3u16).prop_map(
        |(a, b, v6, (proto, kind), p, q)| {
            let ((a4, a6), (b4, b6)) = (address(a, v6), address(b, v6));
            let addresses = match v6 {
                true => CtAddresses::V6 { src: a6, dst: b6 },
                false => CtAddresses::V4 { src: a4, dst: b4 },
            };
            let transport = match kind {
                Some(kind) => {
                    let kinds = if v6 { [128, 129, 128] } else { [8, 0, 13] };
                    CtTransport::Icmp { id: p, kind: kinds[usize::from(kind)], code: 0 }
                }
                None => CtTransport::Ports { src: p, dst: q },
            };
            let proto = if kind.is_some() { addresses.icmp() } else { proto };
            Key::of(&CtTuple { addresses, proto, transport }, 0).expect("of a known type")
        },
    )
}

fn packet() -> impl Strategy<Value = PacketInfo> {
    let flags = prop_oneof![
        3 => Just(flag::SYN),
        3 => Just(flag::SYN | flag::ACK),
        4 => Just(flag::ACK),
        2 => Just(flag::FIN | flag::ACK),
        2 => Just(flag::RST | flag::ACK),
        1 => 0..64u8,
    ];
    let segment = (flags, 1000..1004u32, 1000..1004u32, 0..3u32)
        .prop_map(|(flags, seq, ack, bytes)| Segment { flags, seq, ack, window: 1000, bytes, scale: None });
    (key(), prop_oneof![6 => Just(false), 1 => Just(true)], segment).prop_map(|(key, is_error, segment)| {
        let rest = key.rest();
        let transport = match rest.proto {
            _ if is_error => Transport::Other,
            6 => Transport::Tcp(segment),
            17 => Transport::Other,
            _ => Transport::Icmp { begins: matches!(rest.dst >> 8, 8 | 13 | 15 | 128) },
        };
        PacketInfo { key, is_error, transport }
    })
}

fn nat() -> impl Strategy<Value = CtNat> {
    let range =
        (any::<bool>(), 0..3u8, any::<bool>(), any::<bool>()).prop_map(|(is_dst, which, ports, random)| {
            let ((a4, a6), v6) = (address(9, false), which == 1);
            let addresses = match which {
                0 => Some(NatAddresses::V4(a4, a4)),
                1 => Some(NatAddresses::V6(a6, a6)),
                _ => None,
            };
            let _ = v6;
            let ports = ports.then_some((7, 8));
            CtNat::New(NatRange { is_dst, addresses, ports, persistent: false, hash: false, random })
        });
    prop_oneof![3 => Just(CtNat::No), 3 => Just(CtNat::Known), 4 => range]
}

fn action() -> impl Strategy<Value = Action> {
    let mark = prop_oneof![3 => Just(None), 1 => (any::<u32>(), any::<u32>()).prop_map(Some)];
    let labels = prop_oneof![3 => Just(None), 1 => (0..4u128, 0..4u128).prop_map(Some)];
    let often = |n: u32| prop_oneof![n => Just(true), 1 => Just(false)];
    let rare = prop_oneof![6 => Just(false), 1 => Just(true)];
    (0..3u16, often(2), rare.clone(), mark, labels, nat(), 0..3u16, rare).prop_map(
        |(zone, commit, force, mark, labels, nat, policy, clear)| {
            let request = Request {
                zone,
                commit,
                force: commit && force,
                mark: mark.map(|(value, mask)| Masked { value: value & mask, mask }),
                labels: labels.map(|(value, mask)| Masked { value: value & mask, mask }),
                helper: None,
                nat: if commit || !matches!(nat, CtNat::New(_)) { nat } else { CtNat::Known },
                policy,
            };
            Action { request, clear }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let actions = proptest::collection::vec(action(), 1..4);
    let valid = prop_oneof![20 => Just(true), 1 => Just(false)];
    prop_oneof![
        30 => (packet(), 1..4u32, actions, valid)
            .prop_map(|(packet, port, actions, valid)| Step::Packet { packet, port, actions, valid }),
        4 => (0..400u64).prop_map(|n| Step::Wait(n * 100)),
        1 => Just(Step::Expire),
        1 => (0..3u16).prop_map(Step::Flush),
        1 => (key(), 0..3u16).prop_map(|(key, zone)| Step::End(in_zone(&key, zone))),
        1 => (0..3u16, prop_oneof![Just(None), (0..8u32).prop_map(Some)]).prop_map(|(z, l)| Step::Limit(z, l)),
        1 => any::<bool>().prop_map(Step::CheckSequence),
        2 => any::<bool>().prop_map(Step::Carry),
    ]
}

/// The metadata in a flow key. Ports of ICMP are type and code, so the identifier is that of the packet.
fn metadata(key: &FlowKey, v6: bool, id: u16) -> Metadata {
    let b = &key.base;
    let orig = key.has(shape::CT).then(|| {
        let c = &key.ct;
        let addresses = match v6 {
            true => CtAddresses::V6 { src: c.ipv6_src.into(), dst: c.ipv6_dst.into() },
            false => CtAddresses::V4 { src: c.nw_src.into(), dst: c.nw_dst.into() },
        };
        let transport = match c.nw_proto == addresses.icmp() {
            true => CtTransport::Icmp { id, kind: c.tp_src as u8, code: c.tp_dst as u8 },
            false => CtTransport::Ports { src: c.tp_src, dst: c.tp_dst },
        };
        Key::of(&CtTuple { addresses, proto: c.nw_proto, transport }, b.ct_zone).expect("a tracked type")
    });
    let labels = if orig.is_some() { u128::from_be_bytes(key.ct.label) } else { 0 };
    Metadata { state: b.ct_state, zone: b.ct_zone, mark: b.ct_mark, labels, orig }
}

const POLICY: [(TimeoutAttr, u32); 3] =
    [(TimeoutAttr::UdpFirst, 3), (TimeoutAttr::TcpEstablished, 20), (TimeoutAttr::IcmpReply, 0)];

fn new_tracker(seed: u64) -> Tracker {
    let tracker = Tracker::new(seed);
    tracker.set_max_connections(MAX);
    tracker.set_ports(3);
    assert!(tracker.set_policy(1, Some(&POLICY.into_iter().collect())).is_ok());
    tracker
}

/// A tracker, its oracle and their time.
struct Pair {
    tracker: Tracker,
    oracle: Reference,
    now_ms: u64,
    /// Packets tracked so far.
    packets: u32,
    /// Packets whose key two connections have.
    ambiguous: u32,
    /// The next tracker, and the walk that fills it.
    next: Option<(Tracker, Export)>,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let (tracker, mut oracle) = (new_tracker(seed), Reference::new(MAX));
        oracle.sharing = 3;
        oracle.policy = POLICY.iter().map(|(attr, s)| (*attr as u8, *s)).collect();
        Pair { tracker, oracle, now_ms: 1_000_000, packets: 0, ambiguous: 0, next: None }
    }

    /// Tells the next tracker what changed; it takes over if it `is_last`.
    fn carry(&mut self, is_last: bool) {
        let seed = u64::from(self.packets);
        let (next, mut export) =
            self.next.take().unwrap_or_else(|| (new_tracker(seed), Export::new(CtCarry::Over)));
        while let Some(slice) = export.next(&self.tracker, 300, self.now_ms) {
            let done = import(&next, &slice, self.now_ms);
            assert_eq!((done.refused, &done.why), (0, &None), "{done:?}");
        }
        if !is_last {
            self.next = Some((next, export));
            return;
        }
        agree::check(&next);
        for zone in self.tracker.limited_zones() {
            next.set_zone_limit(Some(zone), self.tracker.zone_limit(zone));
        }
        next.set_checks_sequence(self.tracker.checks_sequence());
        self.tracker = next;
        // Counters of refusals stay behind.
        self.oracle.refused.clear();
        self.step(&Step::Expire);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Packet { packet, port, actions, valid } => self.packet(*packet, *port, actions, *valid),
            Step::Wait(ms) => self.now_ms += ms,
            Step::Expire => {
                let mut at = Some(Cursor::default());
                while let Some(cursor) = at {
                    at = self.tracker.expire(cursor, 7, self.now_ms);
                }
                self.oracle.expire(self.now_ms);
            }
            Step::Flush(zone) => {
                self.tracker.flush(self.now_ms, |c| c.zone == *zone);
                let now_ms = self.now_ms;
                self.oracle.conns.retain(|c| c.orig.rest().zone != *zone || c.expires_ms <= now_ms);
            }
            Step::End(key) => {
                let now_ms = self.now_ms;
                let live = |c: &&crate::reference::Conn| c.expires_ms > now_ms;
                let conns = || self.oracle.conns.iter().filter(live);
                let replies = conns().filter(|c| c.reply == *key).count();
                let by_orig = conns().any(|c| c.orig == *key);
                if !by_orig && replies > 1 {
                    self.ambiguous += 1;
                    return;
                }
                assert_eq!(self.tracker.end_of_key(key, now_ms), by_orig || replies == 1);
                self.oracle.conns.retain(|c| {
                    let tuple = if by_orig { &c.orig } else { &c.reply };
                    tuple != key || c.expires_ms <= now_ms
                });
            }
            Step::Limit(zone, limit) => {
                self.tracker.set_zone_limit(Some(*zone), *limit);
                self.oracle.zone_limits.remove(zone);
                self.oracle.zone_limits.extend(limit.map(|limit| (*zone, limit)));
            }
            Step::CheckSequence(on) => {
                self.tracker.set_checks_sequence(*on);
                self.oracle.checks_sequence = *on;
            }
            Step::Carry(is_last) => self.carry(*is_last),
        }
        self.compare();
    }

    fn packet(&mut self, mut packet: PacketInfo, port: u32, actions: &[Action], valid: bool) {
        let v6 = matches!(packet.key, Key::V6(_));
        let mut key = FlowKey::default();
        for action in actions {
            let request = &action.request;
            if action.clear {
                key.clear_tracking();
            }
            packet.key = in_zone(&packet.key, request.zone);
            let id = packet.key.rest().src;
            let md = metadata(&key, v6, id);
            let mut keys = vec![packet.key, packet.key.reversed()];
            keys.extend(md.orig);
            if keys.iter().any(|key| self.oracle.with_key(key) > 1) {
                self.ambiguous += 1;
                return;
            }
            let info = valid.then_some(&packet);
            let to = match info {
                // As a forwarding core does, with and without a fetched record.
                Some(info) => {
                    let mut lookup = self.tracker.look_ahead(&info.key);
                    self.packets += 1;
                    if !self.packets.is_multiple_of(3) {
                        self.tracker.look_further(&mut lookup, &info.key);
                    }
                    let mut to = None;
                    self.tracker.track_looked_up(info, lookup, request, &mut key, port, self.now_ms, &mut to);
                    to
                }
                None => self.tracker.track(None, request, &mut key, port, self.now_ms),
            };
            let chosen = match to {
                Some(Translation::Tuple(to)) if key.base.ct_state & ct_state::NEW != 0 => Some(to.reversed()),
                _ => None,
            };
            let (mut expected, expected_to) =
                self.oracle.track(info, request, &md, port, self.now_ms, chosen);
            if let Some(orig) = &mut expected.orig {
                // The metadata have no identifier.
                let mut tuple = orig.tuple();
                if let CtTransport::Icmp { id: of_tuple, .. } = &mut tuple.transport {
                    *of_tuple = id;
                }
                *orig = Key::of(&tuple, orig.rest().zone).expect("a tracked type");
            }
            assert_eq!(metadata(&key, v6, id), expected, "{packet:?} {request:?}");
            assert_eq!(to, expected_to, "{packet:?} {request:?}");
            match to {
                Some(Translation::Tuple(to)) => packet.key = to,
                Some(Translation::Error { inner, .. }) => packet.key = inner.reversed(),
                None => {}
            }
        }
    }

    fn compare(&self) {
        let mut all = Vec::new();
        self.tracker.list(self.now_ms, |c| {
            let sides = match c.protocol {
                Some(CtProtocol::Tcp(a, b)) => Some([a.state, b.state]),
                _ => None,
            };
            all.push(format!(
                "{:?} {:?} {} {} {} {} {sides:?}",
                c.orig, c.reply, c.zone, c.mark, c.labels, c.timeout_s
            ));
            ControlFlow::Continue(())
        });
        let live = self.oracle.conns.iter().filter(|c| c.expires_ms > self.now_ms);
        let mut expected: Vec<_> = live
            .map(|c| {
                let (zone, timeout_s) = (c.orig.rest().zone, (c.expires_ms - self.now_ms) / 1000);
                let (orig, reply, sides) = (c.orig.tuple(), c.reply.tuple(), states(&c.phase));
                format!("{orig:?} {reply:?} {zone} {} {} {timeout_s} {sides:?}", c.mark, c.labels)
            })
            .collect();
        all.sort();
        expected.sort();
        assert_eq!(all, expected);
        assert_eq!(self.tracker.connections() as usize, self.oracle.conns.len());
        for zone in self.tracker.zones() {
            let refused = |why| self.oracle.refused.get(&(zone.zone, why)).copied().unwrap_or(0);
            assert_eq!(zone.counts.refused, CtRefusal::ALL.map(refused), "{zone:?}");
        }
        let refused: u64 = self.tracker.counts().refused.iter().sum();
        assert_eq!(refused, self.oracle.refused.values().sum::<u64>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if testkit::long() { 20_000 } else { 200 }))]

    #[test]
    fn does_as_its_oracle(seed: u64, steps in proptest::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new(seed);
        steps.iter().for_each(|step| pair.step(step));
        agree::check(&pair.tracker);
        prop_assert!(pair.ambiguous < 60, "most packets are ambiguous");
    }
}
