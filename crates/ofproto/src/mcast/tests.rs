//! Learning, aging, eviction and flushing of groups.

use super::*;
use std::net::Ipv4Addr;

const P1: BundleId = BundleId(1);
const P2: BundleId = BundleId(2);
const P3: BundleId = BundleId(3);

fn group(n: u16) -> Ipv6Addr {
    Ipv4Addr::new(239, 1, (n >> 8) as u8, n as u8).to_ipv6_mapped()
}

fn single(n: u16, joins: bool) -> Message {
    Message::Single { protocol: Protocol::IgmpV2, record: Record { group: group(n), joins } }
}

/// A table with the steps of a test.
#[derive(Default)]
struct Bed {
    table: McastTable,
    now_ms: u64,
    changes: Vec<McastChange>,
}

impl Bed {
    fn apply(&mut self, message: &Message, vlan: u16, bundle: BundleId) -> Option<Told> {
        self.changes.clear();
        self.table.apply(message, (vlan, bundle), true, self.now_ms, &mut self.changes)
    }

    fn join(&mut self, n: u16, bundle: BundleId) -> Option<Told> {
        self.apply(&single(n, true), 0, bundle)
    }

    fn leave(&mut self, n: u16, bundle: BundleId) -> Option<Told> {
        self.apply(&single(n, false), 0, bundle)
    }

    /// The members of a group.
    fn members(&self, n: u16) -> Option<Vec<u32>> {
        let members = self.table.members((0, group(n)))?;
        Some(members.iter().map(|m| m.bundle.0).collect())
    }

    /// The indexes agree with the groups.
    fn check(&self) {
        let t = &self.table;
        assert_eq!(t.by_join.len(), t.groups.len());
        assert_eq!(t.owned.values().map(BTreeMap::len).sum::<usize>(), t.groups.len());
        assert_eq!(t.by_size.iter().map(|(size, _)| size).sum::<usize>(), t.groups.len());
        assert_eq!(t.by_age.len(), t.groups.values().map(|g| g.members.len()).sum::<usize>());
        assert_eq!(t.routers.len(), t.router_orders.len());
        assert!(t.groups.len() <= t.settings.max_groups);
    }
}

#[test]
fn members_join_and_leave() {
    let mut bed = Bed::default();
    assert_eq!(bed.join(1, P1), Some(Told::Learned(group(1))));
    assert_eq!(bed.changes, [McastChange::Group((0, group(1)))]);
    // A further member changes translations, a refreshed one does not.
    assert_eq!((bed.join(1, P2), bed.changes.len()), (None, 1));
    assert_eq!((bed.join(1, P1), bed.changes.len()), (None, 0));
    assert_eq!(bed.members(1), Some(vec![2, 1]));
    assert_eq!(bed.leave(1, P3), None);
    assert_eq!(bed.leave(1, P1), Some(Told::Left(group(1))));
    assert_eq!(bed.members(1), Some(vec![2]));
    assert!(bed.table.members((7, group(1))).is_none());
    bed.check();
}

/// As in OVS 3.5.
#[test]
fn a_deserted_group_stays_until_it_is_the_oldest() {
    let mut bed = Bed::default();
    bed.join(1, P1);
    bed.join(2, P1);
    bed.leave(2, P1);
    assert_eq!(bed.members(2), Some(vec![]));
    bed.leave(1, P1);
    assert_eq!((bed.members(1), bed.members(2)), (None, None));
    bed.check();
}

#[test]
fn members_and_routers_age() {
    let mut bed = Bed::default();
    bed.join(1, P1);
    bed.apply(&Message::Query, 5, P3);
    bed.now_ms = 100_000;
    bed.join(1, P2);
    bed.join(2, P2);
    assert_eq!(bed.table.expire(179_999), []);
    assert_eq!(bed.table.expire(180_000), [McastChange::Routers(5)]);
    assert_eq!(bed.table.expire(299_999), []);
    assert_eq!(bed.table.expire(300_000), [McastChange::Group((0, group(1)))]);
    assert_eq!(bed.members(1), Some(vec![2]));
    // A shorter time counts from the last report.
    bed.table.configure(McastSettings { idle_s: 1, ..McastSettings::default() });
    assert_eq!(bed.table.settings().idle_s, 15);
    assert_eq!(bed.table.expire(115_000).len(), 2);
    assert_eq!((bed.table.len(), bed.table.stats.expired), (0, 4));
    bed.check();
}

#[test]
fn a_flood_of_a_port_evicts_its_own_groups() {
    let mut bed = Bed::default();
    bed.table.configure(McastSettings { max_groups: 10, ..McastSettings::default() });
    (1..=4).for_each(|n| _ = bed.join(n, P1));
    (100..1000).for_each(|n| _ = bed.join(n, P2));
    assert!((1..=4).all(|n| bed.members(n).is_some()));
    let last: Vec<u16> = (0..1000).filter(|n| bed.members(*n).is_some()).collect();
    assert_eq!(last, [1, 2, 3, 4, 994, 995, 996, 997, 998, 999]);
    assert_eq!(bed.table.stats.evicted, 894);
    bed.check();
    bed.now_ms = 1;
    assert!(bed.table.flush() && !bed.table.flush());
    bed.check();
}

/// Passes what is new to another table; returns the number of entries and whether they are all.
fn pass(from: &McastTable, to: &mut McastTable, place: &mut McastPlace, max: usize) -> (usize, bool) {
    let (mut passed, mut all) = (0, false);
    loop {
        let step = from.since(*place, max);
        if step.is_anew {
            to.flush();
        }
        step.entries.iter().for_each(|entry| to.restore(entry, &mut Vec::new()));
        (*place, all, passed) = (step.place, all | step.is_anew, passed + step.entries.len());
        if step.is_last {
            return (passed, all);
        }
    }
}

fn shown(table: &McastTable) -> String {
    let seen = |members: &[Member]| members.iter().map(|m| (m.bundle.0, m.seen_ms)).collect::<Vec<_>>();
    let groups: Vec<_> =
        table.groups().map(|(key, protocol, members)| (key, protocol, seen(members))).collect();
    let routers: Vec<_> = table.routers().map(|(vlan, m)| (*vlan, m.bundle.0, m.seen_ms)).collect();
    format!("{groups:?} {routers:?}")
}

#[test]
fn a_table_passes_whole_and_then_by_its_changes() {
    let (mut bed, mut other, mut place) = (Bed::default(), Bed::default(), McastPlace::default());
    for n in 1..=50 {
        bed.now_ms += 10;
        bed.join(n, if n % 3 == 0 { P2 } else { P1 });
        bed.join(n / 2, P3);
    }
    bed.apply(&Message::Query, 4, P2);
    // A group without members that is not the oldest.
    bed.leave(40, P1);
    pass(&bed.table, &mut other.table, &mut place, 7);
    assert_eq!(shown(&other.table), shown(&bed.table));
    assert!(shown(&bed.table).contains("[])"), "{}", shown(&bed.table));
    assert_eq!(pass(&bed.table, &mut other.table, &mut place, 7), (0, false));
    bed.now_ms += 10;
    bed.join(5, P1);
    bed.join(99, P2);
    bed.apply(&Message::Query, 4, P2);
    assert_eq!(pass(&bed.table, &mut other.table, &mut place, 7), (3, false));
    assert_eq!(shown(&other.table), shown(&bed.table));
    // Removals pass, too.
    for n in 0..6 {
        match n {
            0 => drop(bed.leave(7, P1)),
            1 => drop(bed.table.expire(bed.now_ms + ROUTER_IDLE_MS)),
            2 => bed.table.forget_bundle(P3),
            3 => bed.table.configure(McastSettings { max_groups: 12, ..McastSettings::default() }).clear(),
            4 => drop(bed.table.expire(bed.now_ms + 299_990)),
            _ => drop(bed.table.flush()),
        }
        other.table.configure(bed.table.settings());
        let (passed, is_all) = pass(&bed.table, &mut other.table, &mut place, 7);
        assert_eq!((passed > 0, is_all), (n < 5, n == 5), "{n}: {passed}");
        assert_eq!(shown(&other.table), shown(&bed.table), "{n}");
        bed.check();
        other.check();
    }
    assert_eq!(other.table.stats.learned, 0);
    // Between the steps of a walk: entries ahead are gone, and some come back behind it.
    for n in 0..5000 {
        bed.now_ms += 1;
        bed.join(n % 100, [P1, P2, P3][usize::from(n) % 3]);
        if n % 7 == 0 {
            bed.leave(n / 2 % 100, P1);
            bed.apply(&Message::Query, n % 5, P2);
        }
        if n % 50 == 0 {
            drop(bed.table.expire(bed.now_ms + 299_000));
        }
        let step = bed.table.since(place, 3);
        assert!(!step.is_anew && step.entries.len() <= 3 + 200, "{n}");
        step.entries.iter().for_each(|entry| other.table.restore(entry, &mut Vec::new()));
        place = step.place;
    }
    pass(&bed.table, &mut other.table, &mut place, 7);
    assert_eq!(shown(&other.table), shown(&bed.table));
    // More removals than are remembered.
    for n in 0..5000 {
        bed.join(n, P1);
        bed.leave(n, P1);
    }
    assert!(pass(&bed.table, &mut other.table, &mut place, 7).1);
    assert_eq!(shown(&other.table), shown(&bed.table));
}

#[test]
fn routers_and_flagged_ports_are_no_members() {
    let mut bed = Bed::default();
    assert_eq!(bed.apply(&Message::Query, 0, P1), Some(Told::Router));
    assert_eq!((bed.apply(&Message::Query, 0, P1), bed.changes.len()), (None, 0));
    bed.table.set_ports(vec![P2], vec![P3]);
    assert_eq!((bed.join(1, P1), bed.join(1, P2), bed.apply(&Message::Query, 0, P2)), (None, None, None));
    // The router of another VLAN.
    assert_eq!(bed.apply(&single(1, true), 4, P1), Some(Told::Learned(group(1))));
    // Hosts behind a port with reports leave by age only.
    bed.join(9, P3);
    assert_eq!((bed.leave(9, P3), bed.members(9)), (None, Some(vec![3])));
    // A query without a source makes no router.
    let unknown = bed.table.apply(&Message::Query, (9, P3), false, 0, &mut Vec::new());
    assert_eq!((unknown, bed.table.routers().count()), (None, 1));
    bed.check();
}

#[test]
fn a_removed_port_takes_its_memberships() {
    let mut bed = Bed::default();
    let records = vec![Record { group: group(1), joins: true }, Record { group: group(2), joins: true }];
    let report = Message::Report { protocol: Protocol::IgmpV3, records };
    assert_eq!(bed.apply(&report, 0, P1), Some(Told::Processed(2)));
    bed.join(2, P2);
    bed.apply(&Message::Query, 3, P1);
    bed.table.forget_bundle(P1);
    assert_eq!((bed.members(1), bed.members(2), bed.table.routers().count()), (None, Some(vec![2]), 0));
    bed.check();
}

#[test]
fn beyond_its_limits_nothing_is_learned() {
    let mut bed = Bed::default();
    for bundle in 0..ROUTERS_MAX / 4096 {
        (0..4096).for_each(|vlan| _ = bed.apply(&Message::Query, vlan, BundleId(bundle as u32)));
    }
    assert_eq!((bed.table.routers().count(), bed.table.stats.refused), (ROUTERS_MAX, 0));
    assert_eq!(bed.apply(&Message::Query, 0, BundleId(99)), None);
    assert_eq!(bed.apply(&Message::Query, 0, P1), None);
    assert_eq!((bed.table.routers().count(), bed.table.stats.refused), (ROUTERS_MAX, 1));
    bed.table.configure(McastSettings { max_groups: 2000, ..McastSettings::default() });
    for n in 0..1000 {
        (1000..2000).for_each(|bundle| _ = bed.join(n, BundleId(bundle)));
    }
    assert_eq!((bed.table.by_age.len(), bed.table.stats.refused), (MEMBERS_MAX, 1));
    assert_eq!((bed.join(1, BundleId(5000)), bed.table.stats.refused), (None, 2));
    bed.check();
}
