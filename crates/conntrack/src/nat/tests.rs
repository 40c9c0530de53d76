//! Candidates: their number, order and ranges.

use super::{CANDIDATES_MAX, Candidates};
use crate::key::{Rest, V4_WORDS, V6_WORDS, Words};
use crate::{Key, PacketInfo, Request, Tracker, Translation, Transport};
use dpif::{CtAddresses, CtNat, CtTransport, CtTuple, NatAddresses, NatRange};
use flow::FlowKey;
use proptest::prelude::*;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NO_RANGE: NatRange =
    NatRange { is_dst: false, addresses: None, ports: None, persistent: false, hash: false, random: false };

fn v4(src: u16, dst: u16, proto: u8) -> [u64; V4_WORDS] {
    [0x0a00_0001_0a00_0002, Rest { src, dst, zone: 9, proto }.pack()]
}

fn v6(src: u16, dst: u16, proto: u8) -> [u64; V6_WORDS] {
    [1, 2, 3, 4, Rest { src, dst, zone: 9, proto }.pack()]
}

fn range_v4(first: u32, last: u32) -> Option<NatAddresses> {
    Some(NatAddresses::V4(first.into(), last.into()))
}

/// All candidates; the random numbers count up from `from`.
fn all<W: Words>(orig: W, range: &NatRange, hash: u64, from: u64) -> Option<Vec<W>> {
    let mut candidates = Candidates::new(&orig, range, hash, from)?;
    let random = std::cell::Cell::new(from);
    let draw = || random.replace(random.get().wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1)) >> 20;
    Some(std::iter::from_fn(|| candidates.next(draw)).collect())
}

/// Source and destination port after translation.
fn ports<W: Words>(reply: &W) -> (u16, u16) {
    let rest = reply.rest();
    (rest.dst, rest.src)
}

#[test]
fn ports_in_their_order() {
    let snat = |ports| NatRange { ports: Some(ports), ..NO_RANGE };
    let dnat = |ports| NatRange { is_dst: true, ports: Some(ports), ..NO_RANGE };
    let random = NatRange { random: true, ..snat((100, 199)) };
    for (what, orig, range, hash, first, count) in [
        // Port by hash, then upwards and around.
        ("range", v4(5, 80, 6), snat((100, 103)), 2, vec![(102, 80), (103, 80), (100, 80), (101, 80)], 5),
        ("one port", v4(5, 80, 17), snat((100, 100)), 7, vec![(100, 80)], 2),
        ("reversed range", v4(5, 80, 17), snat((103, 100)), 0, vec![(100, 80), (100, 80), (101, 80)], 5),
        ("by a random number", v4(5, 80, 17), random, 3, vec![(111, 80), (111, 80), (112, 80)], 101),
        (
            "low",
            v4(510, 80, 6),
            NO_RANGE,
            5,
            vec![(510, 80), (510, 80), (511, 80), (1, 80)],
            CANDIDATES_MAX / 2 + 1,
        ),
        ("between", v4(512, 80, 6), NO_RANGE, 5, vec![(512, 80), (512, 80), (600, 80), (601, 80)], 249),
        ("below 1024", v4(1023, 80, 6), NO_RANGE, 5, vec![(1023, 80), (1023, 80), (600, 80)], 249),
        ("high", v4(65535, 80, 132), NO_RANGE, 5, vec![(65535, 80), (65535, 80), (1024, 80)], 249),
        // Ports of the range, then source ports.
        (
            "destination",
            v4(5, 80, 6),
            dnat((90, 91)),
            1,
            vec![(5, 91), (5, 91), (5, 90), (5, 91), (6, 91)],
            251,
        ),
        ("whole", v4(5, 80, 6), dnat((1, 65535)), 0, vec![(5, 1), (5, 1), (5, 2)], CANDIDATES_MAX),
    ] {
        let got: Vec<_> = all(orig, &range, hash, 11).expect("a family").iter().map(ports).collect();
        // The first candidate comes again at the start of the walk.
        let skip = usize::from(first.len() > 1 && first[0] != first[1]);
        assert_eq!(got[skip..skip + first.len()], first, "{what}");
        assert_eq!(got.len(), count, "{what}");
    }
}

#[test]
fn addresses_and_families() {
    let with = |addresses| NatRange { addresses, ..NO_RANGE };
    for (what, addresses, is_dst, hash, expected) in [
        ("one", range_v4(0x0101_0101, 0x0101_0101), false, 99, Some("1.1.1.1")),
        ("by hash", range_v4(0x0101_0101, 0x0101_0104), false, 6, Some("1.1.1.3")),
        ("wrong order", range_v4(9, 5), false, 6, Some("0.0.0.9")),
        ("all", range_v4(1, u32::MAX), true, u64::from(u32::MAX) - 1, Some("255.255.255.255")),
        ("none", None, false, 6, Some("10.0.0.1")),
        ("none, destination", None, true, 6, Some("10.0.0.2")),
        ("zero", range_v4(0, 77), false, 6, Some("10.0.0.1")),
        ("other family", Some(NatAddresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)), false, 6, None),
    ] {
        let got = all(v4(5, 80, 1), &NatRange { is_dst, ..with(addresses) }, hash, 0);
        // ICMP has no ports: one candidate.
        assert_eq!(got.as_ref().map(Vec::len), expected.map(|_| 1), "{what}");
        let address = got.map(|all| all[0].addresses()[usize::from(!is_dst)].to_string());
        assert_eq!(address.as_deref(), expected, "{what}");
    }
    let last = Ipv6Addr::from(u128::MAX);
    let v6_range = with(Some(NatAddresses::V6(Ipv6Addr::from(u128::MAX - 5), last)));
    let got = all(v6(5, 80, 58), &v6_range, 5, 0).expect("the family");
    assert_eq!((got.len(), got[0].addresses()[1]), (1, IpAddr::V6(last)));
    assert_eq!(all(v6(5, 80, 6), &with(range_v4(1, 2)), 5, 0).map(|all| all.len()), None);
    assert!(all(v6(5, 80, 6), &with(Some(NatAddresses::V6(1.into(), last))), u64::MAX, 0).is_some());
}

fn range() -> impl Strategy<Value = NatRange> {
    let addresses = prop_oneof![
        Just(None),
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| range_v4(a, b)),
        (any::<u32>(), 0..4u32).prop_map(|(a, n)| range_v4(a, a.saturating_add(n))),
    ];
    let ports = prop_oneof![
        Just(None),
        any::<(u16, u16)>().prop_map(Some),
        (any::<u16>(), 0..200u16).prop_map(|(a, n)| Some((a, a.saturating_add(n)))),
    ];
    (any::<bool>(), addresses, ports, any::<bool>()).prop_map(|(is_dst, addresses, ports, random)| NatRange {
        is_dst,
        addresses,
        ports,
        random,
        ..NO_RANGE
    })
}

proptest! {
    #[test]
    fn stay_within_their_ranges(
        range in range(),
        src: u16,
        dst: u16,
        proto in prop_oneof![Just(6u8), Just(17), Just(132), Just(1), Just(47)],
        hash: u64,
        random: u64,
    ) {
        let orig = v4(src, dst, proto);
        let got = all(orig, &range, hash, random).expect("the family");
        prop_assert!(!got.is_empty() && got.len() <= CANDIDATES_MAX);
        let has_ports = matches!(proto, 6 | 17 | 132);
        for reply in &got {
            let [reply_src, reply_dst] = reply.addresses();
            let [own_src, own_dst] = orig.addresses();
            let (kept, moved, own) = match range.is_dst {
                true => (reply_dst == own_src, reply_src, own_dst),
                false => (reply_src == own_dst, reply_dst, own_src),
            };
            prop_assert!(kept);
            match range.addresses {
                Some(NatAddresses::V4(first, last)) if !first.is_unspecified() => {
                    let IpAddr::V4(moved) = moved else { panic!("{moved}") };
                    prop_assert!((first..=last.max(first)).contains(&moved));
                }
                _ => prop_assert_eq!(moved, own),
            }
            prop_assert_eq!((reply.rest().zone, reply.rest().proto), (9, proto));
            if !has_ports {
                continue;
            }
            let (new_src, new_dst) = ports(reply);
            match (range.ports, range.is_dst) {
                (Some((a, b)), true) => prop_assert!((a.min(b)..=a.max(b)).contains(&new_dst)),
                (Some((a, b)), false) => prop_assert!((a.min(b)..=a.max(b)).contains(&new_src)),
                (None, _) => {
                    let class = if src < 512 { 1..=511 } else if src < 1024 { 600..=1023 } else { 1024..=65535 };
                    prop_assert!(new_src == src || class.contains(&new_src));
                }
            }
            if range.ports.is_none() || !range.is_dst {
                prop_assert_eq!(new_dst, dst);
            }
        }
        // A small range is searched completely.
        if let Some((a, b)) = range.ports.filter(|(a, b)| a.abs_diff(*b) < 128 && has_ports) {
            let of_range = |r: &[u64; 2]| if range.is_dst { ports(r).1 } else { ports(r).0 };
            let tried: HashSet<u16> = got.iter().map(of_range).collect();
            prop_assert_eq!(tried.len(), usize::from(a.abs_diff(b)) + 1);
        }
    }
}

#[test]
fn persistent_translations_are_the_same_after_a_restart() {
    let addresses = range_v4(0x0101_0000, 0x0101_ffff);
    let translated = |seed, persistent| {
        let nat = CtNat::New(NatRange { addresses, persistent, ..NO_RANGE });
        let request = Request { commit: true, nat, ..Request::default() };
        let packet = PacketInfo { key: Key::V4(v4(5, 80, 17)), is_error: false, transport: Transport::Other };
        match Tracker::new(seed).track(Some(&packet), &request, &mut FlowKey::default(), 1, 1) {
            Some(Translation::Tuple(key)) => key.addresses()[0],
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(translated(1, true), translated(2, true));
    assert_ne!(translated(1, false), translated(2, false));
    assert_ne!(translated(1, false), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
}

/// All reply tuples that a translation to one address may have; `None`: the range has none for the tuple's family.
pub(crate) fn legal_replies(orig: &Key, range: &NatRange) -> Option<Vec<Key>> {
    let mut reply = orig.reversed().tuple();
    match (&mut reply.addresses, range.addresses) {
        (CtAddresses::V4 { src, dst }, Some(NatAddresses::V4(to, _))) => {
            *(if range.is_dst { src } else { dst }) = to;
        }
        (CtAddresses::V6 { src, dst }, Some(NatAddresses::V6(to, _))) => {
            *(if range.is_dst { src } else { dst }) = to;
        }
        (_, None) => {}
        _ => return None,
    }
    let zone = orig.rest().zone;
    let CtTransport::Ports { src: of_server, dst: of_client } = reply.transport else {
        return Some(Key::of(&reply, zone).into_iter().collect());
    };
    // The ports of these tests are low.
    let clients = match range.ports {
        Some((a, b)) if !range.is_dst => a..=b,
        _ => {
            assert!(of_client < 512);
            1..=511
        }
    };
    let servers = range.ports.filter(|_| range.is_dst).map_or(of_server..=of_server, |(a, b)| a..=b);
    let all = servers.flat_map(|src| clients.clone().map(move |dst| CtTransport::Ports { src, dst }));
    all.map(|transport| Key::of(&CtTuple { transport, ..reply }, zone)).collect()
}
