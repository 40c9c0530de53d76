//! Rules choose the tables of a lookup.

use super::{ip, prefix};
use crate::{
    Change, InterfaceAddress, Origin, Place, Query, Route, Routes, Rule, TABLE_LOCAL, TABLE_MAIN,
    standard_rules,
};

fn rule(priority: u32, from: &str, invert: bool, table: u32) -> Rule {
    Rule { priority, is_ipv4: true, from: (!from.is_empty()).then(|| prefix(from)), invert, table }
}

#[test]
fn rules_choose_tables_by_priority_and_source() {
    let mut all = Routes::new();
    let address = InterfaceAddress { address: ip("1.1.2.88"), len: 24 };
    all.set_addresses("br0", &[address]);
    let route = |table: u32, network: &str, gateway: &str| Route {
        table,
        mark: 0,
        prefix: prefix(network),
        origin: Origin::Cached,
        is_local: table == TABLE_LOCAL,
        device: "br0".into(),
        gateway: (!gateway.is_empty()).then(|| ip(gateway)),
        source: None,
        metric: 0,
    };
    for r in [
        route(TABLE_LOCAL, "1.1.2.88/32", ""),
        route(TABLE_MAIN, "0.0.0.0/0", "1.1.2.1"),
        route(100, "0.0.0.0/0", "1.1.2.2"),
        route(200, "10.0.0.0/8", "1.1.2.3"),
    ] {
        all.add_cached(&r, Place::Last).unwrap();
    }
    let src = "1.1.2.88";
    for (rules, dst, src, expected) in [
        (vec![], "10.0.0.1", "", Some("1.1.2.1")),
        (vec![rule(10, "", false, 100)], "10.0.0.1", "", Some("1.1.2.2")),
        (vec![rule(40_000, "", false, 100)], "10.0.0.1", "", Some("1.1.2.1")),
        // A table without a route leads to the next rule.
        (vec![rule(10, "", false, 200), rule(11, "", false, 100)], "10.0.0.1", "", Some("1.1.2.3")),
        (vec![rule(10, "", false, 200), rule(11, "", false, 100)], "11.0.0.1", "", Some("1.1.2.2")),
        (vec![rule(10, "", false, 999)], "11.0.0.1", "", Some("1.1.2.1")),
        (vec![rule(10, "1.1.2.0/24", false, 100)], "11.0.0.1", "", Some("1.1.2.1")),
        (vec![rule(10, "1.1.2.0/24", false, 100)], "11.0.0.1", src, Some("1.1.2.2")),
        (vec![rule(10, "1.1.3.0/24", true, 100)], "11.0.0.1", src, Some("1.1.2.2")),
        (vec![rule(10, "1.1.2.0/24", true, 100)], "11.0.0.1", src, Some("1.1.2.1")),
        (vec![Rule { is_ipv4: false, ..rule(10, "", false, 100) }], "11.0.0.1", "", Some("1.1.2.1")),
    ] {
        all.set_rules(&rules);
        let src = (!src.is_empty()).then(|| ip(src));
        let hop = all.lookup(&Query { mark: 0, dst: ip(dst), src });
        assert_eq!(hop.and_then(|hop| hop.gateway), expected.map(ip), "{rules:?} {dst} {src:?}");
    }
    assert!(all.uses_table(100) && !all.uses_table(200));
    assert_eq!(all.set_rules(&standard_rules()), Some(Change::Everything));
    assert_eq!(all.set_rules(&[]), None, "the standard ones always exist");
    assert_eq!(all.rules().len(), standard_rules().len());
}
