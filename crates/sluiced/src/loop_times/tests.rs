use super::*;

/// A turn of these parts, in microseconds; it begins at 100.
fn turn(times: &mut LoopTimes, parts: &[(Part, u64)], wall_ms: u64) {
    let mut now_us = 100;
    times.begin_at(now_us);
    for (part, us) in parts {
        now_us += us;
        times.end_at(*part, now_us);
    }
    times.count_turn(|| wall_ms);
}

#[test]
fn parts_stand_at_their_numbers_with_names_of_their_own() {
    for (n, part) in Part::ALL.into_iter().enumerate() {
        assert_eq!(part as usize, n);
        assert!(Part::ALL.iter().all(|other| *other == part || other.name() != part.name()), "{part:?}");
    }
}

#[test]
fn the_longest_turn_names_its_time_and_its_longest_part() {
    let mut times = LoopTimes::default();
    assert_eq!(times.so_far().longest, None);
    for (parts, wall_ms, longest) in [
        (&[(Part::Database, 5), (Part::Routes, 7)][..], 1000, (12, 1000, Part::Routes, 7)),
        // As long, but not longer.
        (&[(Part::Commands, 12)], 2000, (12, 1000, Part::Routes, 7)),
        // The pieces of a part count together.
        (
            &[(Part::Database, 20), (Part::OpenFlow, 30), (Part::Database, 20)],
            3000,
            (70, 3000, Part::Database, 40),
        ),
        (&[(Part::Metrics, 60)], 4000, (70, 3000, Part::Database, 40)),
    ] {
        turn(&mut times, parts, wall_ms);
        let (us, at_ms, part, part_us) = longest;
        assert_eq!(times.so_far().longest, Some(LongestTurn { us, at_ms, part, part_us }));
    }
    let part = |part: Part| times.so_far().parts[part as usize];
    assert_eq!(part(Part::Database), PartTimes { sum_us: 45, longest_us: 40 });
    assert_eq!(part(Part::Metrics), PartTimes { sum_us: 60, longest_us: 60 });
    assert_eq!(part(Part::Links), PartTimes::default());
    let turns = times.so_far().turns;
    assert_eq!((turns.sum_us, turns.buckets.iter().sum()), (154, 4));
    // Above 10, 25 or 50 microseconds.
    assert_eq!(turns.buckets[..5], [0, 2, 0, 2, 0]);
}

#[test]
fn clearing_keeps_the_present_turn_and_the_count_of_long_ones() {
    let mut times = LoopTimes::default();
    turn(&mut times, &[(Part::Counters, LONG_US)], 1);
    turn(&mut times, &[(Part::Counters, LONG_US - 1)], 2);
    times.begin_at(0);
    times.end_at(Part::Commands, 3);
    times.clear();
    assert_eq!(*times.so_far(), TurnTimes::default());
    times.end_at(Part::Others, 4);
    times.count_turn(|| 3);
    let longest = LongestTurn { us: 4, at_ms: 3, part: Part::Commands, part_us: 3 };
    assert_eq!(times.so_far().longest, Some(longest));
    assert_eq!(times.so_far().turns.buckets.iter().sum::<u64>(), 1);
    assert_eq!(times.long(), 1);
}

/// A clock that steps back adds nothing.
#[test]
fn a_clock_that_steps_back_costs_no_time() {
    let mut times = LoopTimes::default();
    times.begin_at(100);
    times.end_at(Part::Ports, 50);
    times.count_turn(|| 1);
    assert_eq!(times.so_far().turns.sum_us, 0);
}
