//! Limits against their definition, and under threads.

use super::Limits;
use dpif::CtRefusal;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u16, u32),
    GiveBack(usize),
    Zone(Option<u16>, Option<u32>),
    Max(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3u16, 0..5u32).prop_map(|(zone, port)| Step::Take(zone, port)),
        3 => any::<usize>().prop_map(Step::GiveBack),
        1 => (proptest::option::of(0..3u16), proptest::option::of(0..9u32)).prop_map(|(z, l)| Step::Zone(z, l)),
        1 => (0..40u32).prop_map(Step::Max),
    ]
}

proptest! {
    #[test]
    fn do_as_defined(sharing in 0..6u32, steps in proptest::collection::vec(step(), 0..200)) {
        let limits = Limits::new();
        limits.set_max(20);
        limits.set_sharing(sharing);
        let (mut taken, mut max) = (Vec::<(u16, u32)>::new(), 20);
        let (mut zones, mut default) = ([None; 3], None);
        for step in steps {
            match step {
                Step::Take(zone, port) => {
                    let of_zone = taken.iter().filter(|(z, _)| *z == zone).count() as u32;
                    let limit = zones[usize::from(zone)].or(default.filter(|limit| *limit != 0));
                    let of_port = |port| taken.iter().filter(|(_, p)| *p == port).count() as u32;
                    let (kept, all) = (max * 25 / 100, taken.len() as u32);
                    let share = kept / sharing.max(1);
                    let used: u32 = (0..5).map(|port| of_port(port).min(share)).sum();
                    let spoken_for = (share * sharing.max(1)).saturating_sub(used);
                    let fits = all < max - kept || of_port(port) < share || all + spoken_for < max;
                    let expected = match limit {
                        Some(limit) if of_zone >= limit => Err(CtRefusal::ZoneLimit),
                        _ if all >= max => Err(CtRefusal::Full),
                        _ if !fits => Err(CtRefusal::PortShare),
                        _ => Ok(()),
                    };
                    prop_assert_eq!(limits.take(zone, port), expected);
                    if expected.is_ok() {
                        taken.push((zone, port));
                    }
                }
                Step::GiveBack(n) if !taken.is_empty() => {
                    let (zone, port) = taken.swap_remove(n % taken.len());
                    limits.give_back(zone, port);
                }
                Step::GiveBack(_) => {}
                Step::Zone(zone, limit) => {
                    limits.set_limit(zone, limit);
                    *zone.map_or(&mut default, |zone| &mut zones[usize::from(zone)]) = limit;
                    let own: Vec<u16> = (0..3).filter(|z| zones[usize::from(*z)].is_some()).collect();
                    prop_assert_eq!(limits.limited_zones().collect::<Vec<_>>(), own);
                    prop_assert_eq!(limits.default_limit(), default);
                }
                Step::Max(n) => {
                    limits.set_max(n);
                    max = n;
                }
            }
            prop_assert_eq!(limits.count() as usize, taken.len());
            for n in 0..5u16 {
                prop_assert_eq!(limits.of_zone(n) as usize, taken.iter().filter(|(z, _)| *z == n).count());
                let of_port = taken.iter().filter(|(_, p)| *p == u32::from(n)).count();
                prop_assert_eq!(limits.of_port(n.into()) as usize, of_port);
            }
        }
    }
}

#[test]
fn no_thread_gets_a_place_beyond_a_limit() {
    let limits = Limits::new();
    limits.set_limit(Some(4), Some(50));
    let work = || {
        let mut taken = 0;
        for n in 0..20_000u32 {
            let own = limits.take(4, 1).is_ok();
            assert!(limits.of_zone(4) <= 50 + 4);
            taken += u32::from(own);
            if own && n % 3 != 0 {
                limits.give_back(4, 1);
                taken -= 1;
            }
        }
        taken
    };
    let taken: u32 = std::thread::scope(|s| {
        let threads = [s.spawn(work), s.spawn(work), s.spawn(work), s.spawn(work)];
        threads.into_iter().map(|t| t.join().expect("a thread")).sum()
    });
    assert!(taken <= 50);
    assert_eq!((limits.of_zone(4), limits.of_port(1), limits.count()), (taken, taken, taken));
}

#[test]
fn high_ports_share_a_count() {
    let limits = Limits::new();
    for port in [65_535, 65_536, u32::MAX] {
        assert_eq!(limits.take(0, port), Ok(()));
    }
    assert_eq!(limits.of_port(70_000), 3);
    limits.give_back(0, u32::MAX);
    assert_eq!(limits.of_port(65_535), 2);
}

/// As Open vSwitch 3.5 answers `ct-set-limits zone=1,limit=0` and `default=0`.
#[test]
fn a_zone_of_limit_0_takes_none_and_a_default_of_0_limits_none() {
    let limits = Limits::new();
    limits.set_limit(None, Some(0));
    assert_eq!(limits.take(1, 1), Ok(()));
    limits.set_limit(Some(1), Some(0));
    assert_eq!(limits.take(1, 1), Err(CtRefusal::ZoneLimit));
    limits.set_limit(None, Some(9));
    assert_eq!(limits.take(1, 1), Err(CtRefusal::ZoneLimit));
    assert_eq!((limits.of_zone(1), limits.take(2, 1)), (1, Ok(())));
    limits.set_limit(Some(1), None);
    assert_eq!(limits.take(1, 1), Ok(()));
}
