//! Rules choose the tables of a lookup; routes and rules refuse.

use super::{ip, prefix};
use crate::{
    Change, Hops, InterfaceAddress, NoRoute, Prefix, Query, Route, RouteKind, RoutePosition, Routes, Rule,
    RuleAction, TABLE_LOCAL, TABLE_MAIN, standard_rules,
};

fn rule(priority: u32, from: &str, invert: bool, table: u32) -> Rule {
    let from = (!from.is_empty()).then(|| prefix(from));
    Rule { from, invert, ..Rule::new(true, priority, table) }
}

fn acts(priority: u32, action: RuleAction) -> Rule {
    Rule { action, ..Rule::new(true, priority, 0) }
}

/// Addresses and routes of several tables: 1.1.2.1 is the gateway of the main one, 1.1.2.2 of 100, 1.1.2.3 of 200.
fn sample() -> Routes {
    let mut all = Routes::new();
    all.set_addresses("br0", 1, &[InterfaceAddress::new(ip("1.1.2.88"), 24)]);
    let to = |table: u32, network: &str, gateway: &str| Route {
        table,
        kind: if table == TABLE_LOCAL { RouteKind::Local } else { RouteKind::Unicast },
        ..Route::new(prefix(network), Hops::one("br0", (!gateway.is_empty()).then(|| ip(gateway))))
    };
    for r in [
        to(TABLE_LOCAL, "1.1.2.88/32", ""),
        to(TABLE_MAIN, "0.0.0.0/0", "1.1.2.1"),
        to(100, "0.0.0.0/0", "1.1.2.2"),
        to(200, "10.0.0.0/8", "1.1.2.3"),
    ] {
        all.add_cached(&r, RoutePosition::Last).unwrap();
    }
    all
}

/// Sets these rules beside the standard ones.
fn set(all: &mut Routes, rules: &[Rule]) -> Option<Change> {
    all.set_rules(&[standard_rules(), rules.to_vec()].concat())
}

#[test]
fn rules_choose_tables_by_priority_and_selectors() {
    let mut all = sample();
    let src = "1.1.2.88";
    let to = |network: &str| Rule { to: Some(prefix(network)), ..rule(10, "", false, 100) };
    let suppressing = |suppress_len| {
        vec![
            acts(9, RuleAction::Table { table: 200, suppress_len: Some(suppress_len) }),
            rule(10, "", false, 100),
        ]
    };
    let foreign = Rule { is_foreign: true, ..rule(10, "", false, 100) };
    let marked = Rule { mark: (7, u32::MAX), ..rule(10, "", false, 100) };
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
        (vec![to("11.0.0.0/8")], "11.0.0.1", "", Some("1.1.2.2")),
        (vec![to("11.0.0.0/8")], "12.0.0.1", "", Some("1.1.2.1")),
        (vec![Rule { invert: true, ..to("11.0.0.0/8") }], "12.0.0.1", "", Some("1.1.2.2")),
        (vec![foreign.clone()], "11.0.0.1", "", Some("1.1.2.1")),
        (vec![Rule { invert: true, ..foreign }], "11.0.0.1", "", Some("1.1.2.2")),
        (vec![marked.clone()], "11.0.0.1", "", Some("1.1.2.1")),
        (vec![Rule { invert: true, ..marked }], "11.0.0.1", "", Some("1.1.2.2")),
        (suppressing(8), "10.0.0.1", "", Some("1.1.2.2")),
        (suppressing(7), "10.0.0.1", "", Some("1.1.2.3")),
        (vec![acts(9, RuleAction::Nop), rule(10, "", false, 100)], "11.0.0.1", "", Some("1.1.2.2")),
        (vec![acts(9, RuleAction::Goto(11)), rule(10, "", false, 100)], "11.0.0.1", "", Some("1.1.2.2")),
        (vec![acts(9, RuleAction::Goto(0x7ffe)), rule(10, "", false, 100)], "11.0.0.1", "", Some("1.1.2.1")),
        (vec![acts(9, RuleAction::Refuse(RouteKind::Prohibit))], "11.0.0.1", "", None),
    ] {
        set(&mut all, &rules);
        let src = (!src.is_empty()).then(|| ip(src));
        let hop = all.lookup(&Query { mark: 0, dst: ip(dst), src });
        assert_eq!(hop.ok().and_then(|hop| hop.gateway), expected.map(ip), "{rules:?} {dst} {src:?}");
    }
    set(&mut all, &[rule(10, "", false, 100)]);
    assert!(all.uses_table(100) && !all.uses_table(200));
    assert_eq!(all.set_rules(&standard_rules()), Some(Change::Everything));
    assert_eq!(all.set_rules(&[]), None, "a family without rules has the standard ones");
    assert_eq!(all.rules().len(), standard_rules().len());
    all.set_rules(&[rule(10, "", false, 200)]);
    let hop = all.lookup(&Query { mark: 0, dst: ip("11.0.0.1"), src: None });
    assert_eq!(hop, Err(NoRoute::Missing), "the standard ones were removed");
}

#[test]
fn routes_that_refuse_end_a_lookup_and_those_that_throw_a_table() {
    let dst = ip("10.1.1.1");
    for (kind, expected) in [
        (RouteKind::Blackhole, None),
        (RouteKind::Unreachable, None),
        (RouteKind::Prohibit, None),
        (RouteKind::Throw, Some("1.1.2.1")),
    ] {
        let mut all = sample();
        set(&mut all, &[rule(10, "", false, 200)]);
        let refusal = |network: &str| Route { table: 200, kind, ..Route::new(prefix(network), Hops::None) };
        all.add_cached(&refusal("10.0.0.0/7"), RoutePosition::Last).unwrap();
        let gateway = |all: &Routes| {
            all.lookup(&Query { mark: 0, dst, src: None })
                .map(|hop| hop.gateway)
                .map_err(crate::text::no_route)
        };
        assert_eq!(gateway(&all), Ok(Some(ip("1.1.2.3"))), "a wider {kind:?}");
        all.add_cached(&refusal("10.1.0.0/16"), RoutePosition::Last).unwrap();
        let name = format!("{kind:?}").to_lowercase();
        let reason = format!("the route 10.1.0.0/16 of table 200 is of type {name}");
        assert_eq!(gateway(&all), expected.map(|next| Some(ip(next))).ok_or(reason));
        let (_, left_out) = all.explain(&Query { mark: 0, dst, src: None });
        let line = "left out: 10.1.0.0/16 of table 200: throw, the next rule applies\n";
        assert_eq!(crate::text::left_out(&left_out), if expected.is_some() { line } else { "" });
        assert!(all.remove_cached(&refusal("10.1.0.0/16")).is_some());
        assert_eq!(gateway(&all), Ok(Some(ip("1.1.2.3"))));
    }
}

#[test]
fn a_prefix_of_a_rule_is_of_its_family() {
    let rule = Rule { to: Prefix::new(ip("::"), 0), ..rule(10, "", false, 100) };
    assert!(!rule.matches(0, ip("0.0.0.0"), ip("1.1.1.1")));
}

#[test]
fn rules_are_listed_in_the_layout_of_ovs() {
    let of = |from: &str| rule(100, from, false, 77);
    for (rule, expected) in [
        (rule(0, "", false, TABLE_LOCAL), "0: from all lookup local"),
        (rule(5, "10.0.0.1/32", true, TABLE_MAIN), "5: not from 10.0.0.1 lookup main"),
        (of("10.0.0.0/8"), "100: from 10.0.0.0/8  lookup 77"),
        (Rule { is_ipv4: false, ..of("2001:db8::1/128") }, "100: from 2001:db8::1 lookup 77"),
        (Rule { is_ipv4: false, ..of("2001:db8::/32") }, "100: from 2001:db8::/32  lookup 77"),
        (Rule { to: Some(prefix("10.0.0.0/8")), ..of("") }, "100: from all to 10.0.0.0/8 lookup 77"),
        (Rule { mark: (5, u32::MAX), ..of("") }, "100: from all fwmark 0x5 lookup 77"),
        (Rule { mark: (0, 0xff), ..of("") }, "100: from all fwmark 0x0/0xff lookup 77"),
        (Rule { is_foreign: true, ..of("") }, "100: from all [other selectors] lookup 77"),
        (
            acts(9, RuleAction::Table { table: 253, suppress_len: Some(0) }),
            "9: from all lookup default suppress_prefixlength 0",
        ),
        (acts(9, RuleAction::Goto(20)), "9: from all goto 20"),
        (acts(9, RuleAction::Nop), "9: from all nop"),
        (acts(9, RuleAction::Refuse(RouteKind::Blackhole)), "9: from all blackhole"),
    ] {
        assert_eq!(crate::text::rules(&[rule]), format!("Cached: {expected}\n"));
    }
}
