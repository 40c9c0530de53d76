//! The bound of receive rings.

use super::*;

#[test]
fn rings_are_bounded_together() {
    for (wanted, count, each) in [(1024, 1, 1024), (1024, 16, 1024), (1024, 17, 512), (1 << 20, 1, 1 << 14)] {
        assert_eq!(slots_per_queue(wanted, count), each);
    }
    for count in 1..=MAX_RX_QUEUES {
        assert!(slots_per_queue(u32::MAX, count) * count as u32 <= MAX_RING_SLOTS);
        // The minimum ring size does not exceed it either.
        assert!(slots_per_queue(1024, count) >= 32);
    }
}

mod paces {
    use super::super::pace::*;

    /// Frames of a window at a rate.
    const fn frames(per_second: u64) -> usize {
        (per_second * WINDOW_US / 1_000_000) as usize
    }

    #[test]
    fn two_fast_windows_ask_for_a_ring_and_one_burst_does_not() {
        let mut pace = Pace::default();
        let mut now_us = 1 << 40;
        let mut window = |count: usize| {
            now_us += WINDOW_US;
            pace.count(count, true);
            pace.review(now_us)
        };
        // The first window has no known length.
        window(0);
        assert_eq!(window(1 << 20), Advice::Keep);
        assert_eq!(window(0), Advice::Keep);
        assert_eq!(window(frames(FAST_PPS)), Advice::Keep);
        assert_eq!(window(frames(FAST_PPS) - 1), Advice::Keep);
        assert_eq!(window(frames(FAST_PPS)), Advice::Keep);
        assert_eq!(window(frames(FAST_PPS)), Advice::Grow);
    }

    #[test]
    fn ten_slow_seconds_give_the_ring_back() {
        let mut pace = Pace::default();
        let mut now_us = 1 << 40;
        let slow = frames(SLOW_PPS) - 1;
        let mut windows = |count: usize, n: u64| {
            let mut advice = Advice::Keep;
            for _ in 0..n {
                now_us += WINDOW_US;
                pace.count(count, true);
                advice = pace.review(now_us);
            }
            advice
        };
        assert_eq!(windows(slow, SLOW_US / WINDOW_US), Advice::Keep);
        assert_eq!(windows(frames(SLOW_PPS), 1), Advice::Keep, "neither fast nor slow");
        assert_eq!(windows(slow, SLOW_US / WINDOW_US), Advice::Keep);
        assert_eq!(windows(slow, 1), Advice::GiveBack);
    }

    #[test]
    fn a_short_window_is_none() {
        let mut pace = Pace::default();
        pace.review(1 << 40);
        pace.count(1 << 20, true);
        assert_eq!(pace.review((1 << 40) + WINDOW_US - 1), Advice::Keep);
        pace.count(1 << 20, true);
        assert_eq!(pace.review((1 << 40) + WINDOW_US), Advice::Keep);
        pace.count(1 << 20, true);
        assert_eq!(pace.review((1 << 40) + 2 * WINDOW_US), Advice::Grow, "its frames count in the next one");
    }

    #[test]
    fn a_queue_that_is_never_empty_for_a_second_is_overloaded() {
        let mut pace = Pace::default();
        let mut now_us = 1 << 40;
        let mut overloaded = |count: usize, emptied: bool, n: u64| {
            for _ in 0..n {
                now_us += WINDOW_US;
                pace.count(count, emptied);
                pace.review(now_us);
            }
            pace.is_overloaded()
        };
        assert!(!overloaded(32, false, 10));
        assert!(overloaded(32, false, 1));
        assert!(!overloaded(32, true, 1));
        assert!(!overloaded(32, false, 10));
        assert!(!overloaded(0, false, 1), "without frames nothing waits");
    }
}
