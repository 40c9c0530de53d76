use super::*;

/// Takes each due sample, as the clock advances in steps.
fn go(c: &mut Coverage, now_ms: &mut u64, total_ms: u64, step_ms: u64, total: u64) {
    for _ in 0..total_ms / step_ms {
        *now_ms += step_ms;
        if c.next_ms(*now_ms) <= *now_ms {
            c.sample(&[("some", total), ("nothing", 0)], *now_ms);
        }
    }
}

fn rates(c: &Coverage, total: u64) -> String {
    let shown = c.show(&[("nothing", 0), ("some", total)]);
    let mut lines = shown.lines();
    let title = lines.next().unwrap();
    let (words, hash) = title.split_once("hash=").unwrap();
    assert_eq!(words, "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  ");
    assert!(hash.len() == 9 && hash.ends_with(':'), "{title}");
    let row = lines.next().unwrap().to_string();
    assert_eq!(lines.collect::<Vec<_>>(), ["1 events never hit"]);
    row
}

/// As in OVS 3.1, for six events before the first sample, and later ones.
#[test]
fn rates_follow_the_last_5_seconds_the_minute_and_the_hour() {
    let (mut c, mut now_ms) = (Coverage::default(), 1000);
    assert_eq!(c.next_ms(now_ms), 6000);
    let some = "some                    ";
    assert_eq!(rates(&c, 6), format!("{some}   0.0/sec     0.000/sec        0.0000/sec   total: 6"));
    go(&mut c, &mut now_ms, 6000, 100, 6);
    assert_eq!(rates(&c, 6), format!("{some}   1.2/sec     0.100/sec        0.0017/sec   total: 6"));
    go(&mut c, &mut now_ms, 5000, 100, 6);
    assert_eq!(rates(&c, 6), format!("{some}   0.0/sec     0.100/sec        0.0017/sec   total: 6"));
    go(&mut c, &mut now_ms, 5000, 100, 7);
    assert_eq!(rates(&c, 7), format!("{some}   0.2/sec     0.117/sec        0.0019/sec   total: 7"));
    go(&mut c, &mut now_ms, 60_000, 1000, 7);
    assert_eq!(rates(&c, 7), format!("{some}   0.0/sec     0.000/sec        0.0019/sec   total: 7"));
    go(&mut c, &mut now_ms, 3_600_000, 10_000, 7);
    assert_eq!(rates(&c, 7), format!("{some}   0.0/sec     0.000/sec        0.0000/sec   total: 7"));
}

#[test]
fn a_late_sample_is_spread_over_its_interval() {
    let (mut c, mut now_ms) = (Coverage::default(), 0);
    assert_eq!(c.next_ms(now_ms), 5000);
    // Six periods and the rest; the last has most.
    go(&mut c, &mut now_ms, 30_000, 30_000, 62);
    assert!(rates(&c, 62).contains("  2.4/sec     1.033/sec        0.0172/sec"), "{}", rates(&c, 62));
    assert_eq!(c.next_ms(now_ms), 35_000);
    // Longer than the stored history, and cleared meanwhile.
    go(&mut c, &mut now_ms, 7_200_000, 7_200_000, 60);
    assert!(rates(&c, 60).contains("  0.0/sec     0.000/sec        0.0000/sec"), "{}", rates(&c, 60));
    go(&mut c, &mut now_ms, u64::MAX / 4, u64::MAX / 4, u64::MAX);
    assert!(rates(&c, u64::MAX).ends_with(&format!("total: {}", u64::MAX)));
    c.sample(&[("some", 0)], u64::MAX);
}

#[test]
fn the_hash_is_of_what_was_hit_and_its_order() {
    let of = |totals: &[(&'static str, u64)]| hash(totals);
    assert_eq!(of(&[("a", 1), ("b", 2), ("c", 0)]), of(&[("a", 10), ("b", 20)]));
    assert_ne!(of(&[("a", 1), ("b", 2)]), of(&[("a", 2), ("b", 1)]));
    assert_ne!(of(&[("a", 1)]), of(&[("a", 1), ("b", 1)]));
}
