//! Tests of learning, moving, aging and bounds.

use super::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const C: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const P1: BundleId = BundleId(1);
const P2: BundleId = BundleId(2);

#[test]
fn addresses_are_learned_per_vlan_and_move() {
    let mut t = MacTable::default();
    assert_eq!(t.learn(0, A, P1, 10), Learned::Changed);
    assert_eq!(t.learn(0, A, P1, 20), Learned::Refreshed);
    assert_eq!((t.lookup(0, A), t.lookup(5, A)), (Some(P1), None));
    assert!(t.would_change(0, A, P2) && !t.would_change(0, A, P1) && t.would_change(5, A, P1));
    assert_eq!(t.learn(0, A, P2, 30), Learned::Changed);
    assert_eq!((t.lookup(0, A), t.stats.moved, t.stats.learned), (Some(P2), 1, 1));
    assert_eq!(t.learn(0, MacAddr::BROADCAST, P1, 40), Learned::Refreshed);
    assert_eq!(t.len(), 1);
}

#[test]
fn counters_of_an_older_time_do_not_move_an_address_back() {
    let mut t = MacTable::default();
    t.learn(0, A, P1, 100);
    t.learn(0, A, P2, 200);
    assert_eq!(t.learn(0, A, P1, 150), Learned::Refreshed);
    assert_eq!((t.lookup(0, A), t.entries()[0].seen_ms), (Some(P2), Some(200)));
}

#[test]
fn entries_age_out() {
    let mut t = MacTable::default();
    t.configure(10, 100);
    t.learn(0, A, P1, 0);
    t.learn(0, B, P1, 5000);
    assert!(!t.expire(9999));
    assert!(t.expire(10_000));
    assert_eq!((t.lookup(0, A), t.lookup(0, B), t.stats.expired), (None, Some(P1), 1));
    t.refresh(0, B, P1, 9000);
    assert!(!t.expire(18_999) && t.expire(19_000) && t.is_empty());
}

#[test]
fn a_full_table_evicts_the_oldest_entry_of_the_largest_port() {
    let mut t = MacTable::default();
    t.configure(300, 2);
    t.learn(0, A, P1, 1);
    t.learn(0, B, P1, 2);
    t.learn(0, A, P1, 3);
    t.learn(0, C, P2, 4);
    assert_eq!((t.lookup(0, A), t.lookup(0, B), t.len(), t.stats.evicted), (Some(P1), None, 2, 1));
}

#[test]
fn a_flood_on_one_port_takes_no_address_of_another() {
    let mac = |n: u16| MacAddr::from_u64(0x02_00_00_01_00_00 | u64::from(n));
    let mut t = MacTable::default();
    t.configure(300, 10);
    for n in 0..4 {
        t.learn(0, mac(n), P2, 1);
    }
    for n in 100..400 {
        assert_eq!(t.learn(0, mac(n), P1, 2), Learned::Changed);
        assert!((0..4).all(|n| t.lookup(0, mac(n)) == Some(P2)), "after {n}");
    }
    assert_eq!((t.len(), t.stats.learned, t.stats.evicted), (10, 304, 294));
    // The other port loses nothing as long as it has fewer; then it loses its own.
    for n in 4..7 {
        t.learn(0, mac(n), P2, 3);
    }
    let on = |t: &MacTable, port| t.entries().iter().filter(|e| e.bundle == port).count();
    assert!((4..=5).contains(&on(&t, P1)) && on(&t, P1) + on(&t, P2) == 10);
    // A moved address counts at its new port.
    for n in 0..7 {
        t.learn(0, mac(n), P1, 4);
    }
    assert_eq!((on(&t, P1), on(&t, P2)), (10, 0));
    t.learn(0, C, P2, 5);
    assert_eq!((on(&t, P1), on(&t, P2), t.lookup(0, C)), (9, 1, Some(P2)));
    assert_eq!([t.forget_bundle(P1).len(), t.forget_bundle(P1).len(), t.len()], [9, 0, 1]);
}

/// As `fdb/show` and `fdb/stats-show` of OVS 3.5 after a smaller `mac-table-size`.
#[test]
fn a_smaller_table_expires_the_oldest_entries() {
    let mut t = MacTable::default();
    t.learn(0, A, P1, 1);
    t.add_static(0, B, P1);
    t.learn(0, C, P2, 2);
    t.configure(300, 1);
    assert_eq!((t.lookup(0, A), t.lookup(0, B), t.lookup(0, C)), (None, None, Some(P2)));
    assert_eq!((t.stats.expired, t.stats.evicted), (2, 0));
}

#[test]
fn static_entries_stay_where_they_are() {
    let mut t = MacTable::default();
    t.configure(10, 2);
    t.add_static(0, A, P1);
    assert_eq!(t.learn(0, A, P2, 5), Learned::Refreshed);
    assert!(!t.would_change(0, A, P2));
    t.learn(0, B, P1, 5);
    assert!(t.flush(Some(P1)) && !t.flush(Some(P1)) && !t.flush(None) && !t.expire(u64::MAX));
    t.add_static(0, B, P1);
    assert_eq!(t.forget_bundle(P1), [(0, A), (0, B)]);
    assert!(t.is_empty());
}

/// OVS 3.5 evicts static addresses like learned ones: `fdb/add` never fails, and a host beside them is learned.
#[test]
fn static_entries_are_evicted_as_well() {
    let mut t = MacTable::default();
    t.configure(10, 2);
    t.add_static(0, A, P1);
    t.add_static(0, B, P1);
    assert_eq!(t.learn(0, C, P2, 6), Learned::Changed);
    let known = |t: &MacTable| [A, B, C].map(|mac| t.lookup(0, mac));
    assert_eq!(known(&t), [None, Some(P1), Some(P2)]);
    t.add_static(0, A, P2);
    assert_eq!((known(&t), t.stats.evicted), ([Some(P2), Some(P1), None], 2));
}

#[test]
fn flushing_is_by_bundle_or_whole() {
    let mut t = MacTable::default();
    t.learn(0, A, P1, 1);
    t.learn(0, B, P2, 1);
    assert!(t.flush(Some(P1)) && !t.flush(Some(P1)));
    assert_eq!((t.lookup(0, A), t.lookup(0, B)), (None, Some(P2)));
    assert!(t.remove(0, B) && !t.remove(0, B));
    // A flushed address leaves the age order as well.
    assert!(!t.expire(u64::MAX));
}
