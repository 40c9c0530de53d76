//! Zones under threads, and the choice of the busiest.

use super::Zones;
use crate::{PacketInfo, Request, Tracker, Transport};
use dpif::{CtCounts, CtNat, CtRefusal, CtZoneCounts};
use flow::FlowKey;

#[test]
fn a_zone_occupies_one_cache_line() {
    assert_eq!(std::mem::size_of::<super::Zone>(), 64);
}

#[test]
fn zones_without_events_are_not_counted() {
    let zones = Zones::new();
    for n in [0, 63, 64, u16::MAX] {
        assert!(zones.get(n).is_none() || n == 63);
        assert_eq!((zones.used(n).limit(), zones.used(n).counts()), (None, None));
    }
    // Three parts of 64.
    assert_eq!(zones.iter().count(), 3 * 64);
    assert!(zones.iter().map(|(n, _)| n).is_sorted());
    zones.used(64).set_limit(Some(u32::MAX));
    assert_eq!((zones.used(64).limit(), zones.used(64).counts()), (Some(u32::MAX - 1), None));
    zones.used(65).count_refused(CtRefusal::ZoneLimit);
    let refused = Some(CtCounts { refused: [0, 1, 0, 0], ..CtCounts::default() });
    assert_eq!((zones.iter().nth(65).unwrap().0, zones.used(65).counts()), (65, refused));
}

#[test]
fn threads_lose_no_event() {
    const EACH: u64 = 20_000;
    let zones = Zones::new();
    let work = || {
        for n in 0..EACH {
            let zone = zones.used((n % 3 * 1000) as u16);
            if zone.take(Some(2)).is_err() {
                zone.count_refused(CtRefusal::ZoneLimit);
                continue;
            }
            zone.count_created();
            let counts = zone.counts().expect("a connection");
            assert!(counts.ended <= counts.created, "{counts:?}");
            zone.give_back();
            zone.count_ended();
        }
    };
    std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(work))));
    let mut all = CtCounts::default();
    zones.iter().filter_map(|(_, zone)| zone.counts()).for_each(|counts| all.add(&counts));
    assert_eq!((all.connections, all.created), (0, all.ended));
    assert_eq!(all.created + all.refused[CtRefusal::ZoneLimit as usize], 4 * EACH);
}

/// A tracker with that number of connections and refusals in each zone.
fn tracker(zones: &[(u16, u32, u32)]) -> Tracker {
    let tracker = Tracker::new(7);
    for (zone, connections, refused) in zones {
        tracker.set_zone_limit(Some(*zone), Some(*connections));
        for n in 1..=connections + refused {
            let key = crate::Key::V4([n.into(), 53 << 32 | u64::from(*zone) << 16 | 17]);
            assert_eq!((key.rest().zone, key.rest().proto), (*zone, 17));
            let info = PacketInfo { key, is_error: false, transport: Transport::Other };
            let request = Request { commit: true, zone: *zone, nat: CtNat::No, ..Request::default() };
            tracker.track(Some(&info), &request, &mut FlowKey::default(), 1, 1000);
        }
    }
    tracker
}

#[test]
fn the_busiest_zones_are_chosen() {
    let tracker = tracker(&[(1, 9, 0), (2, 8, 0), (3, 7, 5), (4, 2, 6), (5, 1, 7), (65_535, 1, 7)]);
    // All connections of zone 2 end.
    tracker.flush(1000, |c| c.zone == 2);
    let chosen = |each| tracker.statistics(each).zones.iter().map(|z| z.zone).collect::<Vec<_>>();
    // Zone 1 has most connections, and most were created there. Among the two with most refusals, 5 has the lower number.
    assert_eq!(chosen(1), [1, 5]);
    // By connections 1 and 3, by creations 1 and 2, by refusals 5 and 65535.
    assert_eq!(chosen(2), [1, 2, 3, 5, 65_535]);
    assert_eq!((chosen(100), chosen(0)), (vec![1, 2, 3, 4, 5, 65_535], vec![]));
    let all = tracker.statistics(2);
    assert_eq!((all.maximum, all.zones_used), (3_000_000, 6));
    assert_eq!(all.all, CtCounts { connections: 20, created: 28, ended: 8, refused: [0, 25, 0, 0] });
    let counts = CtCounts { connections: 0, created: 8, ended: 8, refused: [0; 4] };
    assert_eq!(all.zones[1], CtZoneCounts { zone: 2, limit: Some(8), counts });
}
