//! The invariants of the classifier, on random rules and packets with few values, so that they match.

use super::plain::Plain;
use crate::Footprint;
use crate::reference::lookup_linear;
use flow::fields::FieldId::{self, *};
use flow::{Flow, Mask, Match};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Fields and their values in these tests.
const WORLD: &[(FieldId, &[u128])] = &[
    (InPortOxm, &[1, 2]),
    (Metadata, &[0, 1, 0xff]),
    (Reg0, &[0, 7]),
    (CtState, &[0, 0x20, 0x22]),
    (CtZone, &[0, 5]),
    (CtTpDst, &[0, 80, 81]),
    (CtNwSrc, &[0, 0x0a00_0001]),
    (EthSrc, &[1, 2, 0x0100_0000_0001]),
    (EthType, &[0x800, 0x806, 0x86dd]),
    (VlanTci, &[0, 0x100a, 0x300a, 0x100b]),
    (IpSrc, &[0x0a00_0001, 0x0a00_0101, 0x0b00_0001, 0xc0a8_0001]),
    (IpDst, &[0x0a00_0001, 0x0a00_0002, 0x0a01_0001, 0x8000_0000]),
    (Ipv6Dst, &[0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 2, 0x2001_0db9 << 96, 1 << 64]),
    (NwProto, &[6, 17]),
    (NwTos, &[0, 0x20]),
    (TcpFlags, &[0, 2, 0x12]),
    (ArpSha, &[0, 1]),
    (TcpSrc, &[80, 1000, 1001]),
    (TcpDst, &[80, 81, 443, 8080]),
];

type Draw = (usize, usize, u8);

fn draws(n: usize) -> impl Strategy<Value = Vec<Draw>> {
    prop::collection::vec((0..WORLD.len(), 0usize..8, any::<u8>()), 0..n)
}

/// A match on the drawn fields: exact, prefix or irregular mask.
fn to_match(draws: &[Draw]) -> Match {
    let mut m = Match::catchall();
    for (field, value, mask) in draws {
        let (field, values) = WORLD[*field];
        let (full, bits) = (field.full_mask(), u32::from(field.def().bits));
        let mask = match mask % 4 {
            0 | 1 => full,
            2 => full & !(full >> (u32::from(*mask / 4) % bits + 1)),
            _ => full & (u128::from(*mask) * 0x0404_0101_0404_0101),
        };
        m.set_masked(field, values[value % values.len()], mask);
    }
    m
}

fn flows() -> impl Strategy<Value = Flow> {
    prop::collection::vec(0usize..8, WORLD.len()).prop_map(|picks| {
        let mut flow = Flow::default();
        for ((field, values), pick) in WORLD.iter().zip(picks) {
            field.set(&mut flow, values[pick % values.len()]);
        }
        // The igmp group shares its word with the ports.
        flow.igmp_group = flow.nw_dst;
        flow
    })
}

/// A rule's match (sometimes on the IGMP group as well) and its priority.
fn rules() -> impl Strategy<Value = Vec<(Match, i32)>> {
    let rule = (draws(5), -3i32..8, 0u8..8).prop_map(|(draws, priority, extra)| {
        let mut m = to_match(&draws);
        if extra == 0 {
            let mut mask = *m.mask();
            mask.0.igmp_group = 0xff00_00ff;
            let flow = Flow { igmp_group: 0x0a00_0001, ..*m.flow() };
            m = Match::new(&flow, &mask);
        }
        (m, priority)
    });
    prop::collection::vec(rule, 0..40)
}

fn tries() -> impl Strategy<Value = &'static [FieldId]> {
    prop::sample::select(vec![
        &[][..],
        &[IpDst, IpSrc],
        &[Ipv6Dst, TcpDst, IpSrc, Metadata],
        &[CtTpDst, EthSrc],
    ])
}

fn build(rules: &[(Match, i32)], prefixes: &[FieldId]) -> Plain<usize> {
    let mut c = Plain::new(0x1234_5678);
    // Half of the rules are added before the tries are set, half after.
    for (i, (m, priority)) in rules.iter().enumerate() {
        if i == rules.len() / 2 {
            c.set_prefix_fields(prefixes);
        }
        c.insert(&m.into(), *priority, i);
    }
    c
}

/// The flow that agrees with `a` in the bits of `wc` and with `b` elsewhere.
fn mix(a: &Flow, b: &Flow, wc: &Mask) -> Flow {
    let mut out = *b;
    for ((o, a), w) in out.words_mut().iter_mut().zip(a.words()).zip(wc.words()) {
        *o = *a & w | *o & !w;
    }
    out
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn lookup_equals_oracle(rules in rules(), tries in tries(), flows in prop::collection::vec(flows(), 1..20)) {
        let c = build(&rules, tries);
        for flow in &flows {
            let expect = lookup_linear(c.iter(), flow).map(|(priority, _)| priority);
            let mut wc = Mask::none();
            for found in [c.lookup_with_priority(flow, Some(&mut wc)), c.lookup_with_priority(flow, None)] {
                prop_assert_eq!(found.map(|(priority, _)| priority), expect);
                if let Some((priority, rule)) = found {
                    prop_assert_eq!(rules[*rule].1, priority);
                    prop_assert!(rules[*rule].0.matches(flow));
                    prop_assert!(wc.contains(rules[*rule].0.mask()));
                }
            }
        }
    }

    #[test]
    fn flows_of_a_megaflow_get_the_same_rule(
        rules in rules(),
        tries in tries(),
        flow in flows(),
        others in prop::collection::vec(flows(), 1..40),
        flips in prop::collection::vec(prop::array::uniform32(any::<u64>()), 4),
    ) {
        let c = build(&rules, tries);
        let mut wc = Mask::none();
        let rule = c.lookup(&flow, Some(&mut wc));
        for other in &others {
            prop_assert_eq!(c.lookup(&mix(&flow, other, &wc), None), rule);
        }
        for flip in &flips {
            let mut noise = flow;
            noise.words_mut().iter_mut().zip(flip.iter().cycle()).for_each(|(w, f)| *w ^= f);
            prop_assert_eq!(c.lookup(&mix(&flow, &noise, &wc), None), rule);
        }
        // One bit at a time, of those matched by some rule.
        for word in 0..flow::FLOW_WORDS {
            for bit in 0..64 {
                let is_used = rules.iter().any(|(m, _)| m.mask().words()[word] >> bit & 1 != 0);
                if is_used && wc.words()[word] >> bit & 1 == 0 {
                    let mut near = flow;
                    near.words_mut()[word] ^= 1 << bit;
                    prop_assert_eq!(c.lookup(&near, None), rule);
                }
            }
        }
    }

    #[test]
    fn conjunctive_lookup_equals_oracle(
        rules in rules(),
        tries in tries(),
        soft in prop::collection::vec(any::<bool>(), 40),
        flow in flows(),
        others in prop::collection::vec(flows(), 1..40),
    ) {
        let mut c = Plain::new(5);
        c.set_prefix_fields(tries);
        // Later rules replace earlier ones of the same match and priority.
        let mut model = BTreeMap::new();
        for (i, (m, priority)) in rules.iter().enumerate() {
            if soft[i] {
                c.insert_soft(&m.into(), *priority, i);
            } else {
                c.insert(&m.into(), *priority, i);
            }
            model.insert((*m.flow().words(), *m.mask().words(), *priority), i);
        }
        let mut wc = Mask::none();
        let found = c.lookup_conjunctive(&flow, &mut wc);
        let matching = || model.values().copied().filter(|i| rules[*i].0.matches(&flow));
        let best = matching().filter(|i| !soft[*i]).map(|i| rules[i].1).max();
        prop_assert_eq!(found.0.map(|i| rules[*i].1), best);
        let mut expect: Vec<usize> =
            matching().filter(|i| soft[*i] && best.is_none_or(|best| rules[*i].1 > best)).collect();
        expect.sort_unstable();
        let mut got: Vec<usize> = found.1.iter().map(|i| **i).collect();
        prop_assert!(got.is_sorted_by_key(|i| -rules[*i].1));
        got.sort_unstable();
        prop_assert_eq!(got, expect);
        for other in &others {
            prop_assert_eq!(&c.lookup_conjunctive(&mix(&flow, other, &wc), &mut Mask::none()), &found);
        }
    }

    #[test]
    fn updates_match_model_and_keep_snapshots(
        pool in rules(),
        tries in tries(),
        steps in prop::collection::vec((any::<bool>(), 0usize..40, -1i32..3), 1..120),
        cut in 0usize..120,
    ) {
        let mut c = Plain::new(99);
        c.set_prefix_fields(tries);
        let mut model = BTreeMap::new();
        let mut snapshot = (c.clone(), model.clone());
        for (i, (adds, at, priority)) in steps.into_iter().enumerate() {
            let Some((m, _)) = pool.get(at) else { continue };
            let key = (*m.flow().words(), *m.mask().words(), priority);
            prop_assert_eq!(c.find_exactly(&m.into(), priority), model.get(&key));
            if adds {
                prop_assert_eq!(c.insert(&m.into(), priority, i), model.insert(key, i));
            } else {
                prop_assert_eq!(c.remove(&m.into(), priority), model.remove(&key));
            }
            if i == cut {
                snapshot = (c.clone(), model.clone());
            }
        }
        for (c, model) in [(&c, &model), (&snapshot.0, &snapshot.1)] {
            let all: BTreeMap<_, _> = c.iter().map(|(m, p, r)| ((*m.flow().words(), *m.mask().words(), p), *r)).collect();
            prop_assert_eq!(&all, model);
            prop_assert_eq!(c.len(), model.len());
            prop_assert_eq!(c.debug_footprint().rules, model.len());
        }
        for (m, priority, _) in snapshot.0.iter().collect::<Vec<_>>() {
            let mut one = snapshot.0.clone();
            prop_assert!(one.remove(&m.into(), priority).is_some());
            prop_assert_eq!(one.len() + 1, snapshot.0.len());
        }
        for (m, priority, _) in c.clone().iter() {
            prop_assert!(c.remove(&m.into(), priority).is_some());
        }
        prop_assert_eq!(c.debug_footprint(), Footprint::default());
    }

    #[test]
    fn selections_equal_oracle(rules in rules(), probe in draws(4), priority in -3i32..8) {
        let c = build(&rules, &[IpDst]);
        let probe = to_match(&probe);
        let in_order: Vec<usize> = c.within(&probe).copied().collect();
        let mut within = in_order.clone();
        within.sort_unstable();
        let mut expect: Vec<usize> = c.iter().filter(|(m, _, _)| m.is_within(&probe)).map(|(_, _, r)| *r).collect();
        expect.sort_unstable();
        prop_assert_eq!(&within, &expect);
        for max in [1, 3, 1000] {
            let (mut walk, mut walked) = (c.walk(&probe), Vec::new());
            while !walk.is_done() {
                let before = walked.len();
                let looked = c.walk_on(&mut walk, &probe, max, &mut walked);
                prop_assert!(looked > 0 && walked.len() - before <= looked);
            }
            prop_assert_eq!(&walked, &in_order);
        }
        let overlaps = c.iter().any(|(m, p, _)| p == priority && m.overlaps(&probe));
        prop_assert_eq!(c.overlaps(&probe, priority), overlaps);
    }
}
