//! Versions: readers that catch up with changes.

use super::{ip, prefix};
use crate::{Change, EGRESS_PORTS_DEFAULT, LOG_MAX, Query, RoutingTables, Shared};

#[test]
fn a_reader_catches_up_with_few_changes() {
    let query = |dst: &str| Query { mark: 0, dst: ip(dst), src: None };
    let mut tables = vec![RoutingTables::new(1)];
    let next = |tables: &mut Vec<RoutingTables>, changes: &[Change]| {
        let last = tables.last().unwrap();
        tables.push(last.next(&last.routes, &last.listeners, changes));
    };
    for n in 0..LOG_MAX {
        next(&mut tables, &[Change::Prefix(prefix(&format!("10.0.{n}.0/24")))]);
    }
    let newest = tables.last().unwrap();
    for (version, dst, expected) in [
        (0, "10.0.0.1", true),
        (1, "10.0.0.1", false),
        (1, "10.0.1.1", true),
        (2, "10.0.1.1", false),
        (0, "11.0.0.1", false),
        (LOG_MAX as u64, "10.0.1.1", false),
    ] {
        assert_eq!(newest.may_differ_since(version, &query(dst)), expected, "{dst} since {version}");
    }
    // The oldest change is lost to the log.
    next(&mut tables, &[]);
    next(&mut tables, &[Change::Prefix(prefix("10.1.0.0/24"))]);
    let newest = tables.last().unwrap();
    assert!(newest.may_differ_since(0, &query("11.0.0.1")));
    assert!(!newest.may_differ_since(1, &query("11.0.0.1")));
    let many: Vec<Change> =
        (0..=LOG_MAX).map(|n| Change::Prefix(prefix(&format!("10.9.{n}.0/24")))).collect();
    next(&mut tables, &many);
    let newest = tables.last().unwrap();
    assert!(newest.may_differ_since(newest.version() - 1, &query("11.0.0.1")), "too many at once");
    assert!(!newest.may_differ_since(newest.version(), &query("10.9.0.1")));
}

#[test]
fn readers_see_what_is_published() {
    let shared = Shared::new(1);
    assert_eq!((shared.version(), shared.egress_ports()), (0, EGRESS_PORTS_DEFAULT));
    let tables = shared.tables();
    shared.publish(tables.next(&tables.routes, &tables.listeners, &[Change::Everything]).into());
    shared.neighbours().set(0, "br0", ip("1.1.2.92"), flow::MacAddr([2; 6]));
    shared.set_egress_ports(9, 3);
    assert_eq!((shared.version(), shared.egress_ports()), (2, (3, 9)));
}
