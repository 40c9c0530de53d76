use super::*;
use conntrack::{Key, PacketInfo, Request, Tracker, Transport};
use flow::FlowKey;

/// A tracker with UDP connections that end 60 s after time 0.
fn tracker(connections: u32) -> Tracker {
    let tracker = Tracker::new(7);
    for n in 0..connections {
        let key = Key::V4([u64::from(n) << 32 | 0x0a00_0001, 1000 << 48 | 53 << 32 | 17]);
        let packet = PacketInfo { key, is_error: false, transport: Transport::Other };
        let commit = Request { commit: true, ..Request::default() };
        tracker.track(Some(&packet), &commit, &mut FlowKey::default(), 1, 0);
    }
    assert_eq!(tracker.connections(), connections);
    tracker
}

/// Each row: time, interval, connections that are left then. (There are somewhat more records than connections.)
fn check(connections: u32, rows: &[(u64, u32, u32)]) {
    let tracker = tracker(connections);
    let mut round = Round::new(60_000);
    for (now_ms, interval_ms, left) in rows {
        let records = tracker.records();
        round.go_on(*now_ms, *interval_ms, records, || false, |at, some| tracker.expire(at, some, *now_ms));
        let got = tracker.connections();
        let is_near = got.abs_diff(*left) <= 500 && (got == 0) == (*left == 0);
        assert!(
            got == *left || connections > 1000 && is_near,
            "{got}, not {left}, at {now_ms} of {connections}"
        );
    }
}

#[test]
fn few_connections_go_at_the_end_of_the_interval() {
    check(100, &[(60_000, 20_000, 100), (79_999, 20_000, 100), (80_000, 20_000, 0)]);
    // A shorter interval takes effect at once, and so does a longer one.
    check(100, &[(61_000, 20_000, 100), (61_001, 1000, 0)]);
    check(100, &[(79_000, 20_000, 100), (80_000, 3_000_000, 100), (3_060_000, 3_000_000, 0)]);
    // All at once.
    check(100, &[(60_000, 0, 0)]);
}

#[test]
fn many_connections_go_little_by_little() {
    check(
        100_000,
        &[
            (60_000, 20_000, 100_000),
            (60_100, 20_000, 100_000),
            (61_000, 20_000, 95_000),
            (70_000, 20_000, 50_000),
            (70_000, 20_000, 50_000),
            (70_001, 4_000_000_000, 50_000),
            (79_000, 20_000, 5000),
            (80_000, 20_000, 0),
        ],
    );
    // After a leap of the clock.
    check(100_000, &[(600_000, 20_000, 0)]);
}

#[test]
fn a_round_follows_the_other_and_ends_with_the_thread() {
    let tracker = tracker(50_000);
    let mut round = Round::new(0);
    let mut visits = 0;
    for now_ms in [20_000, 40_000, 60_000] {
        round.go_on(
            now_ms,
            20_000,
            tracker.records(),
            || false,
            |at, some| {
                visits += 1;
                tracker.expire(at, some, now_ms)
            },
        );
        let left = if now_ms == 60_000 { 0 } else { 50_000 };
        assert_eq!((round.began_ms, tracker.connections()), (now_ms, left));
    }
    assert!(visits >= 12, "{visits}");
    round.go_on(80_000, 20_000, tracker.records(), || true, |_, _| panic!("it stops"));
}
