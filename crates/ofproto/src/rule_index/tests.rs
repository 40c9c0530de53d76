use crate::ids::BridgeId;
use crate::rule::{Rule, RuleStats, RuleTimeouts, refers_to};
use crate::tables::{Selection, Tables};
use flow::fields::FieldId;
use flow::text::NoPortNames;
use flow::{Match, OfPort, TableId};
use ofp_actions::text::parse_actions;
use ofp_actions::{Action, FinTimeout, Group, Meter, Output, Reference};
use openflow::GROUP_ANY;
use openflow::msg::flow_mod::FlowModFlags;
use proptest::prelude::*;
use std::sync::Arc;
use sync::Reclaimer;

/// Random numbers of a rule: place, cookie, output, timeouts.
type Draw = (u8, u8, u8, u8);

fn matching(place: u8) -> Match {
    let mut m = Match::catchall();
    if place & 1 != 0 {
        m.set(FieldId::InPortOxm, u128::from(place >> 4));
    }
    if place & 2 != 0 {
        m.set_masked(FieldId::IpDst, u128::from(place) << 24, 0xff00_0000);
    }
    m
}

fn rule(tables: &Tables, (place, cookie, output, timeout): Draw, now_ms: u64) -> Arc<Rule> {
    let table = TableId(place >> 2 & 1);
    let mut actions = vec![Action::Output(Output { port: OfPort(u32::from(output % 4)), max_len_bytes: 0 })];
    if output & 0x20 != 0 {
        actions.push(Group(2).into());
    }
    if output & 0x10 != 0 {
        actions.push(Action::FinTimeout(FinTimeout { idle_timeout_s: 1, hard_timeout_s: 0 }));
    }
    if output & 0x20 != 0 {
        actions.insert(0, Action::Meter(Meter(3)));
    }
    let (idle_s, hard_s) = (u16::from(timeout & 3), u16::from(timeout >> 2 & 3));
    let stats = RuleStats::default();
    stats.credit(0, 0, now_ms);
    Arc::new(Rule {
        table,
        matching: tables.pack(table, &matching(place)),
        priority: i32::from(place >> 5),
        cookie: u64::from(cookie % 5),
        timeouts: RuleTimeouts::new(idle_s, hard_s, &actions),
        importance: 0,
        flags: if output & 0x40 != 0 { FlowModFlags::SEND_FLOW_REM } else { FlowModFlags::empty() },
        actions: tables.intern(&actions),
        created_ms: now_ms,
        modified_ms: now_ms,
        stats: Arc::new(stats),
    })
}

fn ids(rules: impl IntoIterator<Item = Arc<Rule>>) -> Vec<usize> {
    let mut ids: Vec<_> = rules.into_iter().map(|r| Arc::as_ptr(&r) as usize).collect();
    ids.sort_unstable();
    ids
}

/// Every selection by the index equals a walk over all rules.
fn check(tables: &Tables) -> Result<(), TestCaseError> {
    let all: Vec<Arc<Rule>> = tables.iter().cloned().collect();
    for (cookie, mask) in [(1, u64::MAX), (2, u64::MAX), (9, u64::MAX), (1, 1), (0, 0)] {
        for (out_port, out_group) in [
            (OfPort::NONE, GROUP_ANY),
            (OfPort(1), GROUP_ANY),
            (OfPort(7), GROUP_ANY),
            (OfPort::NONE, 2),
            (OfPort(1), 2),
        ] {
            for (table, place) in [(TableId::ALL, 0), (TableId(1), 0), (TableId::ALL, 1), (TableId(0), 2)] {
                let m = matching(place);
                let by =
                    Selection { table, matching: m.into(), cookie, cookie_mask: mask, out_port, out_group };
                let walk = all.iter().filter(|r| {
                    (table == TableId::ALL || r.table == table)
                        && r.matching.unpack().is_within(&m)
                        && (r.cookie ^ cookie) & mask == 0
                        && (out_port == OfPort::NONE || refers_to(&r.actions, Reference::Output(out_port)))
                        && (out_group == GROUP_ANY || refers_to(&r.actions, Reference::Group(out_group)))
                });
                let walk = ids(walk.cloned());
                prop_assert_eq!(ids(tables.select(&by).rest()), walk.clone(), "{:?}", by);
                let (mut slices, mut found) = (tables.select_newest(&by), Vec::new());
                while !slices.is_done() {
                    slices.next_slice(3, &mut found);
                }
                prop_assert_eq!(ids(found), walk, "{:?}", by);
            }
        }
    }
    for table in [TableId(0), TableId(1)] {
        let walk = all.iter().filter(|r| r.table == table && r.cookie == 3).count();
        prop_assert_eq!(tables.len_of_cookie(table, 3), walk);
    }
    let metered = all.iter().filter(|r| r.actions.contains(&Action::Meter(Meter(3))));
    prop_assert_eq!(tables.len_of_users(Reference::Meter(3)), metered.clone().count());
    prop_assert_eq!(ids(tables.users(Reference::Meter(3), usize::MAX)), ids(metered.cloned()));
    Ok(())
}

proptest! {
    #[test]
    fn selections_are_those_of_a_walk(
        steps in prop::collection::vec((any::<Draw>(), any::<bool>(), 0u8..8), 1..60),
    ) {
        let mut tables = Tables::new(7, &Reclaimer::default());
        for (i, (draw, removes, ends)) in steps.into_iter().enumerate() {
            let rule = rule(&tables, draw, i as u64);
            if removes {
                tables.remove(rule.table, &rule.matching, rule.priority);
            } else {
                tables.insert(rule);
            }
            if ends == 0 {
                tables.commit();
            }
            check(&tables)?;
        }
        tables.commit();
        let before = tables.clone();
        let mut open = tables.clone();
        for n in 0..20 {
            open.insert(rule(&open, (n * 13, n, n, n), 5));
            if n % 8 == 7 {
                open.clear(TableId(1));
                prop_assert_eq!(open.rule_count(TableId(1)), 0);
                check(&open)?;
            }
        }
        open.undo(usize::MAX);
        check(&before)?;
    }

    #[test]
    fn rules_are_due_at_their_deadlines(
        draws in prop::collection::vec((any::<Draw>(), 0u64..3000, 0u64..5000), 1..40),
    ) {
        let mut tables = Tables::new(7, &Reclaimer::default());
        for (draw, at_ms, used_ms) in &draws {
            let rule = rule(&tables, *draw, *at_ms);
            rule.stats.credit(1, 60, *used_ms);
            tables.insert(rule);
        }
        // Some are used after they were entered.
        for (i, rule) in tables.iter().enumerate() {
            rule.stats.credit(1, 60, 1000 * (i as u64 % 6));
        }
        for now_ms in (0..12_000).step_by(700) {
            let due = ids(tables.take_due(now_ms, usize::MAX));
            for rule in tables.iter() {
                let is_due = due.contains(&(Arc::as_ptr(rule) as usize));
                let over = rule.expired(now_ms, now_ms).is_some();
                prop_assert!(is_due || !over, "{:?} at {}", rule, now_ms);
                let shrinks = matches!(rule.timeouts, RuleTimeouts::Shrinking(_));
                prop_assert!(over || shrinks || !is_due, "{:?} at {}", rule, now_ms);
            }
        }
        for rule in tables.iter().cloned().collect::<Vec<_>>() {
            tables.remove(rule.table, &rule.matching, rule.priority);
        }
        prop_assert!(tables.take_due(u64::MAX, usize::MAX).is_empty());
    }
}

#[test]
fn learned_rules_are_orphans_when_their_last_learner_is_gone() {
    let mut tables = Tables::new(7, &Reclaimer::default());
    let text = "learn(table=1,cookie=3,delete_learned,NXM_OF_VLAN_TCI[])";
    let actions = parse_actions(text, &NoPortNames).unwrap();
    let learner = |tables: &Tables, place| {
        let plain = rule(tables, (place, 0, 0, 0), 0);
        Arc::new(Rule { actions: tables.intern(&actions), ..Rule::clone(&plain) })
    };
    let (a, b) = (learner(&tables, 0x20), learner(&tables, 0x40));
    tables.insert(a.clone());
    tables.insert(b.clone());
    let learned = rule(&tables, (0x04, 3, 0, 0), 0);
    tables.insert(learned.clone());
    tables.insert(rule(&tables, (0x00, 3, 0, 0), 0));
    tables.remove(a.table, &a.matching, a.priority);
    assert!(!tables.has_orphans());
    tables.remove(b.table, &b.matching, b.priority);
    // A learner that comes later does not keep them.
    tables.insert(a.clone());
    assert!(tables.has_orphans() && tables.end_orphans(0).is_empty());
    assert_eq!(ids(tables.end_orphans(9)), ids([learned]));
    assert!(tables.end_orphans(9).is_empty() && !tables.has_orphans());
}

#[test]
fn a_change_that_no_packet_sees_affects_no_translation() {
    let mut tables = Tables::new(7, &Reclaimer::default());
    let first = rule(&tables, (0, 1, 1, 0), 0);
    let controller = parse_actions("controller", &NoPortNames).unwrap();
    let mut affects = |before: &Arc<Rule>, change: &dyn Fn(&mut Rule)| {
        tables.insert(before.clone());
        tables.commit();
        let mut after = Rule::clone(before);
        change(&mut after);
        tables.insert(Arc::new(after));
        let journal = tables.commit();
        assert!(!journal.is_empty());
        journal.changes(BridgeId(1), &|_| None).is_none_or(|changes| !changes.is_empty())
    };
    assert!(!affects(&first, &|r| r.cookie = 9));
    assert!(!affects(&first, &|r| r.flags = FlowModFlags::SEND_FLOW_REM));
    assert!(!affects(&first, &|r| r.timeouts = RuleTimeouts::new(5, 6, &[])));
    assert!(affects(&first, &|r| r.actions = controller.clone().into()));
    assert!(affects(&first, &|r| r.stats = Arc::default()));
    // Controllers receive the cookie.
    let told = Arc::new(Rule { actions: controller.clone().into(), ..Rule::clone(&first) });
    assert!(affects(&told, &|r| r.cookie = 9) && !affects(&told, &|r| r.modified_ms = 9));
    tables.remove(first.table, &first.matching, first.priority);
    assert_eq!(tables.commit().changes(BridgeId(1), &|_| None).map(|changes| changes.len()), Some(1));
    assert_eq!(tables.commit().changes(BridgeId(1), &|_| None).map(|changes| changes.len()), Some(0));
}
