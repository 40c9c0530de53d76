//! Limits of tables, and eviction from full ones. The expectations are those of OVS 3.1.

use super::*;
use ofproto::tables::{TableSettings, eviction_field};
use std::collections::BTreeMap;

fn limited(s: &Switch, limit: u32, evict: bool, groups: &[&str]) {
    let groups = groups.iter().map(|name| eviction_field(name).unwrap()).collect();
    let settings = TableSettings { name: String::new(), limit: Some(limit), evict, groups };
    s.backer.change_bridge(s.bridge, |b| b.tables.set_settings(&BTreeMap::from([(0, settings)])));
    s.backer.evict_excess(s.bridge);
}

/// Priorities of the rules.
fn left(s: &Switch) -> Vec<i32> {
    let view = s.backer.view();
    let mut all: Vec<i32> = view.bridge(s.bridge).unwrap().tables.iter().map(|r| r.priority).collect();
    all.sort_unstable();
    all
}

/// Adds rules one after the other; after each: the priorities left, or `None` if it is refused.
fn check(limit: u32, evict: bool, groups: &[&str], steps: &[(&str, Option<&[i32]>)]) {
    let mut s = Switch::new();
    let mut c = s.service(Version::V14);
    limited(&s, limit, evict, groups);
    for (line, expected) in steps {
        let answers = c.ask(&mut s, &Message::FlowMod(flow_mod(Text::Add, line)));
        match expected {
            Some(expected) => assert_eq!((answers, left(&s)), (vec![], expected.to_vec()), "{line}"),
            None => {
                let [Message::Error(e)] = &answers[..] else { panic!("{line}: {answers:?}") };
                assert_eq!(e.error, ErrorCode::Known(ErrorKind::FmfcTableFull), "{line}");
            }
        }
    }
}

use TextCommand as Text;

#[test]
fn a_full_table_refuses_or_evicts() {
    check(
        2,
        false,
        &[],
        &[
            ("priority=1,hard_timeout=9,actions=1", Some(&[1])),
            ("priority=2,hard_timeout=9,actions=1", Some(&[1, 2])),
            ("priority=3,hard_timeout=9,actions=1", None),
            ("priority=1,actions=2", Some(&[1, 2])),
        ],
    );
    // Rules without a timeout stay.
    check(
        2,
        true,
        &[],
        &[
            ("priority=1,actions=1", Some(&[1])),
            ("priority=2,actions=1", Some(&[1, 2])),
            ("priority=3,actions=1", None),
        ],
    );
    // The least important, then the one that expires first.
    check(
        3,
        true,
        &[],
        &[
            ("priority=1,importance=5,actions=1", Some(&[1])),
            ("priority=2,importance=1,hard_timeout=100,actions=1", Some(&[1, 2])),
            ("priority=3,importance=1,hard_timeout=50,actions=1", Some(&[1, 2, 3])),
            ("priority=4,importance=9,hard_timeout=60,actions=1", Some(&[1, 2, 4])),
            ("priority=5,importance=9,idle_timeout=70,actions=1", Some(&[1, 4, 5])),
            ("priority=6,importance=9,hard_timeout=60,actions=1", Some(&[1, 5, 6])),
        ],
    );
    // The largest group loses.
    check(
        4,
        true,
        &["NXM_OF_IN_PORT[]"],
        &[
            ("in_port=1,priority=1,hard_timeout=100,actions=1", Some(&[1])),
            ("in_port=2,priority=2,hard_timeout=9,actions=1", Some(&[1, 2])),
            ("in_port=1,priority=3,hard_timeout=90,actions=1", Some(&[1, 2, 3])),
            ("in_port=1,priority=4,hard_timeout=95,actions=1", Some(&[1, 2, 3, 4])),
            ("in_port=3,priority=5,hard_timeout=5,actions=1", Some(&[1, 2, 4, 5])),
            ("in_port=3,priority=6,hard_timeout=5,actions=1", Some(&[1, 2, 5, 6])),
        ],
    );
}

#[test]
fn evicted_rules_are_reported() {
    let mut s = Switch::new();
    let (mut c, mut other) = (s.controller(Version::V14), s.service(Version::V13));
    limited(&s, 1, true, &[]);
    other.add(&mut s, "send_flow_rem,priority=1,hard_timeout=9,actions=1");
    other.add(&mut s, "priority=2,hard_timeout=9,actions=1");
    let gone = |m: &Message| matches!(m, Message::FlowRemoved(m) if m.priority == 1 && m.reason == openflow::msg::flow_mod::FlowRemovedReason::Eviction);
    let events = c.events(&mut s);
    assert!(matches!(&events[..], [m] if gone(m)), "{events:?}");
}

#[test]
fn a_lower_limit_evicts_what_it_can() {
    let mut s = Switch::new();
    let mut c = s.service(Version::V14);
    c.add(&mut s, "priority=1,actions=1");
    (2..3000).for_each(|n| c.add(&mut s, &format!("priority={n},hard_timeout={n},actions=1")));
    limited(&s, 2, false, &[]);
    assert_eq!(left(&s).len(), 2999);
    limited(&s, 2, true, &[]);
    assert_eq!(left(&s), [1, 2999]);
    limited(&s, 0, true, &[]);
    assert_eq!(left(&s), [1]);
    c.flow(&mut s, Text::Delete, "");
    limited(&s, 1, true, &[]);
    c.add(&mut s, "priority=1,hard_timeout=9,actions=1");
    c.add(&mut s, "priority=2,hard_timeout=9,actions=1");
    assert_eq!(left(&s), [2], "a cleared table evicts as before");
}

/// A failed bundle undoes its evictions, and the index of rules to evict.
#[test]
fn evictions_of_a_bundle_are_undone() {
    let s = Switch::new();
    limited(&s, 2, true, &[]);
    let cx = ModContext {
        version: Version::V14,
        now_ms: 5,
        debug_actions: false,
        has_meter: &|_| false,
        can: dpif::Capabilities::ENOUGH,
    };
    let adds = |lines: &[&str]| lines.iter().map(|l| flow_mod(Text::Add, l)).collect::<Vec<_>>();
    let first = adds(&["priority=1,hard_timeout=9,actions=1", "priority=2,hard_timeout=8,actions=1"]);
    apply_all(&s, &first, &cx).unwrap();
    let fails = adds(&["priority=3,actions=1", "priority=4,actions=1", "priority=5,actions=1"]);
    assert_eq!(apply_all(&s, &fails, &cx), Err((2, ErrorKind::FmfcTableFull)));
    assert_eq!(left(&s), [1, 2]);
    apply_all(&s, &adds(&["priority=6,hard_timeout=7,actions=1"]), &cx).unwrap();
    assert_eq!(left(&s), [1, 6]);
}

/// Many evictions leave groups of equal size.
#[test]
fn evictions_are_fair_among_many_groups() {
    let s = Switch::new();
    let (rules, groups) = if testkit::long() { (200_000, 1000) } else { (4000, 100) };
    limited(&s, rules, true, &["NXM_OF_IP_SRC[0..15]"]);
    let cx = ModContext {
        version: Version::V14,
        now_ms: 5,
        debug_actions: false,
        has_meter: &|_| false,
        can: dpif::Capabilities::ENOUGH,
    };
    let address = |n: u32| std::net::Ipv4Addr::from(n);
    let add = |n: u32, group: u32| {
        let (src, timeout_s) = (address(group), 1000 + n % 60_000);
        let line = format!("udp,nw_src={src},nw_dst={},hard_timeout={timeout_s},actions=1", address(n));
        flow_mod(Text::Add, &line)
    };
    // First, half of the rules are of one group.
    let first: Vec<FlowMod> = (0..rules).map(|n| add(n, if n % 2 == 0 { 0 } else { n % groups })).collect();
    apply_all(&s, &first, &cx).unwrap();
    let more: Vec<FlowMod> = (rules..2 * rules).map(|n| add(n, n % groups)).collect();
    apply_all(&s, &more, &cx).unwrap();
    let mut sizes = BTreeMap::new();
    let view = s.backer.view();
    for rule in view.bridge(s.bridge).unwrap().tables.iter() {
        *sizes.entry(rule.matching.unpack().flow().nw_src & 0xffff).or_insert(0) += 1;
    }
    assert_eq!(sizes.values().sum::<u32>(), rules);
    let (least, most) = (sizes.values().min().unwrap(), sizes.values().max().unwrap());
    assert!(sizes.len() == groups as usize && most - least <= 1, "{least} to {most}");
}

/// Reports of room, with the free room in percent, as OVS 3.1 sends them for a table of ten rules.
#[test]
fn room_is_reported_at_its_thresholds() {
    use openflow::msg::asyncs::AsyncConfig;
    use openflow::msg::control::{TableMod, TableReason, Vacancy, table_config};
    let mut s = Switch::new();
    let (mut c, mut deaf, mut other) =
        (s.controller(Version::V14), s.controller(Version::V14), s.service(Version::V14));
    c.silent(&mut s, &Message::SetAsync(AsyncConfig { table_status: [0x18, 0], ..AsyncConfig::default() }));
    limited(&s, 10, false, &[]);
    let watch = |s: &mut Switch, other: &mut Client, thresholds: Option<(u8, u8)>| {
        let vacancy =
            thresholds.map(|(down_percent, up_percent)| Vacancy { down_percent, up_percent, now_percent: 0 });
        let config = if vacancy.is_some() { table_config::VACANCY_EVENTS } else { 0 };
        other.silent(s, &Message::TableMod(TableMod { table: TableId(0), config, eviction: None, vacancy }));
    };
    let mut told = |s: &mut Switch| {
        assert!(!deaf.events(s).iter().any(|m| matches!(m, Message::TableStatus(_))));
        let events = c.events(s);
        let status = |m: &Message| match m {
            Message::TableStatus(m) => Some((m.reason, m.desc.vacancy.unwrap().now_percent)),
            _ => None,
        };
        events.iter().filter_map(status).collect::<Vec<_>>()
    };
    watch(&mut s, &mut other, Some((20, 60)));
    let (down, up) = (TableReason::VacancyDown, TableReason::VacancyUp);
    for round in 0..2 {
        for n in 1..=10 {
            other.add(&mut s, &format!("priority={n},actions=1"));
            assert_eq!(told(&mut s), if n == 9 { vec![(down, 10)] } else { vec![] }, "{round}: {n}");
        }
        watch(&mut s, &mut other, Some((20, 60)));
        for n in (1..=10).rev() {
            other.flow(&mut s, Text::DeleteStrict, &format!("priority={n}"));
            assert_eq!(told(&mut s), if n == 4 { vec![(up, 70)] } else { vec![] }, "{round}: {n}");
        }
    }
    (1..=10).for_each(|n| other.add(&mut s, &format!("priority={n},actions=1")));
    assert_eq!(told(&mut s), [(down, 10)]);
    watch(&mut s, &mut other, None);
    watch(&mut s, &mut other, Some((30, 50)));
    other.flow(&mut s, Text::Delete, "");
    assert_eq!(told(&mut s), [(up, 100)]);
}
