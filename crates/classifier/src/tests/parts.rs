//! Individual parts: cases that the invariant tests find late or not at all.

use super::plain::Plain;
use super::text::parse_match;
use crate::Footprint;
use crate::prefixes::{PrefixSet, leading};
use flow::fields::FieldId;
use flow::{Flow, Mask};
use proptest::prelude::*;

/// The expected result of the trie, by a scan of all prefixes.
fn plain_lookup(prefixes: &[(u128, u8)], value: u128) -> (u8, Vec<u8>) {
    let common = |p: &(u128, u8)| ((p.0 ^ value).leading_zeros() as u8).min(p.1);
    let bits = prefixes.iter().map(|p| if common(p) == p.1 { p.1 } else { common(p) + 1 }).max().unwrap_or(0);
    let matching = prefixes.iter().filter(|p| common(p) == p.1).map(|p| p.1);
    (bits, matching.collect())
}

proptest! {
    #[test]
    fn trie_knows_lengths_and_bits(
        prefixes in prop::collection::vec((any::<u8>(), 1u8..=12, 1u8..=128), 0..40),
        values in prop::collection::vec((any::<u8>(), 1u8..=12), 1..20),
        keep in 0usize..20,
    ) {
        // Few distinct bits in different positions, so that prefixes nest and diverge late.
        let spread = |b: u8, by: u8| u128::from(b).wrapping_mul(0x0101_0101_0101_0101_0101_0101_0101_0101).rotate_left(by.into()) & 0xf0f0_0ff0_00f0_000f_0f0f_0000_0000_00ff;
        // The leading bits alone of narrow fields.
        for width in [56, 128u8] {
        let prefixes: Vec<_> = prefixes.iter().map(|(b, by, len)| (*b, *by, *len.min(&width))).collect();
        let spread = |b: u8, by: u8| spread(b, by) & leading(width);
        let mut trie = PrefixSet::new(width);
        for (b, by, len) in &prefixes {
            trie.insert(spread(*b, *by), *len);
        }
        let (kept, gone) = prefixes.split_at(keep.min(prefixes.len()));
        for (b, by, len) in gone {
            trie.remove(spread(*b, *by), *len);
        }
        let left: Vec<_> = kept.iter().map(|(b, by, len)| (spread(*b, *by) & leading(*len), *len)).collect();
        for (b, by) in &values {
            let value = spread(*b, *by);
            let (bits, matching) = plain_lookup(&left, value);
            prop_assert_eq!(trie.deciding_bits(value), bits);
            for len in 1..=width {
                prop_assert_eq!(trie.contains(value, len), matching.contains(&len), "length {}", len);
            }
        }
        for (value, len) in left {
            trie.remove(value, len);
        }
        prop_assert_eq!(trie.len(), 0);
        }
    }
}

#[test]
fn many_priorities_of_one_match() {
    let m = parse_match("tcp,tp_dst=80");
    let mut c = Plain::new(7);
    for priority in (0..20_000).rev().chain(20_000..40_000) {
        assert_eq!(c.insert(&m.into(), priority, priority), None);
    }
    let snapshot = c.clone();
    for priority in (0..40_000).rev() {
        assert_eq!(c.lookup(m.flow(), None), Some(&priority));
        assert_eq!(c.remove(&m.into(), priority), Some(priority));
    }
    assert_eq!(c.debug_footprint(), Footprint::default());
    assert_eq!(snapshot.len(), 40_000);
    assert_eq!(snapshot.lookup(m.flow(), None), Some(&39_999));
}

#[test]
fn catchall_looks_at_nothing() {
    let mut c = Plain::new(7);
    c.insert(&parse_match("").into(), i32::MIN, 'a');
    let mut wc = Mask::none();
    assert_eq!(c.lookup(parse_match("tcp,tp_dst=80").flow(), Some(&mut wc)), Some(&'a'));
    assert!(wc.is_empty());
    assert_eq!(c.insert(&parse_match("").into(), i32::MIN, 'b'), Some('a'));
    assert_eq!(c.len(), 1);
}

#[test]
fn a_lookup_adds_to_the_wildcards_and_takes_nothing_away() {
    let mut c = Plain::new(7);
    c.insert(&parse_match("tcp,tp_dst=80").into(), 1, ());
    let before = *parse_match("udp,tp_src=0xffff,tp_dst=0xf/0xf,eth_src=00:00:00:00:00:01").mask();
    let mut wc = before;
    assert!(c.lookup(parse_match("tcp,tp_dst=8080").flow(), Some(&mut wc)).is_none());
    assert!(wc.contains(&before));
    assert_eq!(wc.0.tp_dst, 0xf00f);
}

#[test]
fn prefix_fields_are_checked() {
    let mut c = Plain::<()>::new(7);
    let now = |c: &Plain<()>| c.prefix_fields().collect::<Vec<_>>();
    use FieldId::{DlVlan, InPort, IpDst, IpSrc, Ipv6Dst, Ipv6Src, NwTos, TcpDst, TcpSrc};
    assert_eq!(now(&c), [IpDst, IpSrc, Ipv6Dst, Ipv6Src]);
    c.set_prefix_fields(&[DlVlan, Ipv6Dst, NwTos, Ipv6Dst, InPort, TcpSrc, TcpDst, Ipv6Src, IpDst]);
    assert_eq!(now(&c), [Ipv6Dst, TcpSrc, TcpDst, Ipv6Src]);
    c.set_prefix_fields(&[]);
    assert_eq!(now(&c), []);
}

#[test]
fn tries_come_and_go_with_rules_in_place() {
    let rules = ["ip,nw_dst=10.0.0.0/8", "ip,nw_src=10.1.0.0/16", "ipv6,ipv6_dst=2001:db8::/32"];
    let packets = ["tcp,nw_dst=11.1.1.1,nw_src=12.1.1.1", "tcp6,ipv6_dst=3001::1"];
    let masks = |c: &Plain<()>| {
        packets.map(|packet| {
            let mut wc = Mask::none();
            c.lookup(parse_match(packet).flow(), Some(&mut wc));
            wc
        })
    };
    let filled = |fields: &[FieldId]| {
        let mut c = Plain::<()>::new(7);
        c.set_prefix_fields(fields);
        rules.iter().for_each(|rule| assert!(c.insert(&parse_match(rule).into(), 1, ()).is_none()));
        c
    };
    use FieldId::{IpDst, IpSrc, Ipv6Dst};
    let mut c = filled(&[]);
    for fields in [&[IpDst][..], &[IpSrc, IpDst], &[Ipv6Dst, IpSrc], &[], &[IpSrc, Ipv6Dst, IpDst]] {
        c.set_prefix_fields(fields);
        let fresh = filled(fields);
        assert_eq!(masks(&c), masks(&fresh), "{fields:?}");
        assert_eq!(c.debug_footprint().prefixes, fresh.debug_footprint().prefixes, "{fields:?}");
    }
    // Rules are still removed from the tries built later.
    rules.iter().for_each(|rule| assert!(c.remove(&parse_match(rule).into(), 1).is_some()));
    assert_eq!(c.debug_footprint().prefixes, 0);
}

#[test]
fn overlap_and_selection() {
    let mut c = Plain::new(7);
    let rules = [
        "ip,nw_dst=10.0.0.0/8",
        "ip,nw_dst=10.1.0.0/16",
        "tcp,tp_dst=80",
        "in_port=1",
        "ip,nw_dst=11.0.0.0/8",
    ];
    for (i, text) in rules.iter().enumerate() {
        c.insert(&parse_match(text).into(), 5, i);
    }
    c.insert(&parse_match("ip,nw_dst=10.1.0.0/16").into(), 6, 9);
    let overlaps = [("ip,nw_dst=10.0.0.0/8", 5, true), ("ip", 6, true), ("ip", 7, false), ("udp", 6, true)];
    for (text, priority, expect) in overlaps {
        assert_eq!(c.overlaps(&parse_match(text), priority), expect, "{text} {priority}");
    }
    assert!(!c.overlaps(&parse_match("arp,in_port=2"), 5));
    assert!(!c.overlaps(&parse_match("ip,nw_dst=10.2.0.0/16"), 6));
    let within = |text: &str| {
        let mut ids: Vec<usize> = c.within(&parse_match(text)).copied().collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(within(""), [0, 1, 2, 3, 4, 9]);
    assert_eq!(within("ip"), [0, 1, 2, 4, 9]);
    assert_eq!(within("ip,nw_dst=10.0.0.0/8"), [0, 1, 9]);
    assert_eq!(within("ip,nw_dst=10.1.0.0/16"), [1, 9]);
    assert_eq!(within("ip,nw_dst=10.1.1.0/24"), []);
}

#[test]
fn the_connections_addresses_belong_to_layer_3() {
    let mut c = Plain::new(7);
    c.insert(&parse_match("ct_nw_src=10.0.0.1,eth_src=00:00:00:00:00:01,tcp").into(), 1, ());
    let mut wc = Mask::none();
    assert!(c.lookup(&Flow::default(), Some(&mut wc)).is_none());
    assert_eq!(wc.0.ct_nw_src, 0);
    assert_eq!(wc, *parse_match("eth_src=00:00:00:00:00:00,eth_type=0").mask());
}

#[test]
fn soft_rules_above_the_best_hard_rule_come_out_with_their_wildcards() {
    let mut c = Plain::new(7);
    c.set_prefix_fields(&[]);
    c.insert_soft(&parse_match("ip,nw_src=10.0.0.1").into(), 20, "src");
    c.insert_soft(&parse_match("ip,nw_dst=10.0.0.2").into(), 20, "dst");
    c.insert_soft(&parse_match("ip,nw_dst=10.0.0.3").into(), 30, "other");
    c.insert_soft(&parse_match("tcp,tp_dst=80").into(), 9, "below");
    c.insert(&parse_match("ip").into(), 10, "hard");
    // One match at several priorities: a hard rule hides only the soft ones below it.
    c.insert_soft(&parse_match("ip").into(), 15, "same");
    c.insert_soft(&parse_match("ip").into(), 5, "hidden");
    let packet = parse_match("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80");
    let mut wc = Mask::none();
    let (hard, mut soft) = c.lookup_conjunctive(packet.flow(), &mut wc);
    assert!(soft[2] == &"same" && soft.len() == 3);
    soft.sort_unstable();
    assert_eq!((hard, soft), (Some(&"hard"), vec![&"dst", &"same", &"src"]));
    // Addresses without a clause are examined, too; rules that cannot beat the hard rule are not.
    assert_eq!((wc.0.nw_src, wc.0.nw_dst, wc.0.tp_dst), (u32::MAX, u32::MAX, 0));
    // Without a hard rule, all matching soft rules.
    c.remove(&parse_match("ip").into(), 10);
    let mut wc = Mask::none();
    let (hard, soft) = c.lookup_conjunctive(packet.flow(), &mut wc);
    assert_eq!((hard, soft.len(), wc.0.tp_dst), (None, 5, u16::MAX));
}
