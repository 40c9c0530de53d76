//! Whether the parts of a tracker agree with one another, while no thread uses it: index, records, limits, free lists.

use crate::Tracker;
use crate::key::{V4_WORDS, V6_WORDS, Words};
use crate::record::Direction;
use crate::tracker::{Family, RecordPlace};
use std::collections::{BTreeMap, BTreeSet};

/// Connections by zone and by port; entries of the index.
#[derive(Default)]
struct Counts {
    zones: BTreeMap<u16, u32>,
    ports: BTreeMap<u32, u32>,
    connections: u32,
    entries: u64,
}

/// Panics unless all parts agree.
pub(crate) fn check(tracker: &Tracker) {
    let mut counts = Counts::default();
    check_family::<V4_WORDS>(tracker, &mut counts);
    check_family::<V6_WORDS>(tracker, &mut counts);
    assert_eq!(tracker.connections(), counts.connections, "limit of all");
    assert_eq!(tracker.index.len(), counts.entries, "entries counted");
    tracker.index.check();
    let by_bucket: u64 =
        tracker.index.entries_by_bucket(1 << 16, |_| true).iter().map(|n| u64::from(*n)).sum();
    assert_eq!(by_bucket, counts.entries, "entries there");
    for zone in 0..=u16::MAX {
        let expected = counts.zones.get(&zone).copied().unwrap_or(0);
        assert_eq!(tracker.connections_of_zone(zone), expected, "limit of zone {zone}");
    }
    for port in 0..=u32::from(u16::MAX) {
        let expected = counts.ports.get(&port).copied().unwrap_or(0);
        assert_eq!(tracker.connections_of_port(port), expected, "limit of port {port}");
    }
    for zone in tracker.zones() {
        assert_eq!(zone.counts.created - zone.counts.ended, u64::from(zone.counts.connections), "{zone:?}");
    }
    assert_eq!(tracker.counts().connections, counts.connections, "sum of all zones");
}

fn check_family<const W: usize>(tracker: &Tracker, counts: &mut Counts)
where
    [u64; W]: Words,
    Tracker: Family<W>,
{
    let slab = Family::<W>::slab(tracker);
    let listed = slab.free_numbers();
    let mut free: BTreeSet<u32> = listed.iter().copied().collect();
    assert_eq!(free.len(), listed.len(), "a number is free twice");
    for number in 0..slab.used() {
        let record = slab.record(number);
        if !record.is_live() {
            assert!(free.remove(&number), "record {number} is lost");
            continue;
        }
        assert!(!free.contains(&number), "record {number} is free and live");
        let Some(locked) = record.lock() else { panic!("record {number} cannot be locked") };
        let keys = [Direction::Orig, Direction::Reply].map(|d| (record.key(d), d));
        let entries = if keys[0].0 == keys[1].0 { 1 } else { 2 };
        for (key, direction) in &keys[..entries] {
            let tag = RecordPlace { number, direction: *direction }.tag(<[u64; W]>::IS_V6);
            let mut times = 0;
            let _: Option<()> = tracker.index.find(tracker.hash.of(key), |t| {
                times += u32::from(t == tag);
                None
            });
            assert_eq!(times, 1, "entries of {key:?} of record {number}");
        }
        counts.entries += entries as u64;
        counts.connections += 1;
        *counts.zones.entry(keys[0].0.rest().zone).or_default() += 1;
        *counts.ports.entry(record.body().port as u32).or_default() += 1;
        drop(locked);
    }
    assert!(free.is_empty(), "free numbers beyond those used: {free:?}");
}
