//! Statistics, and packets in words.

use proptest::prelude::*;

use crate::packet::{brief, checksum};
use crate::stats::{Bucket, Summary, histogram, jain, percentile};

#[test]
fn percentiles_are_by_nearest_rank() {
    let hundred: Vec<u64> = (1..=100).collect();
    for (percent, expected) in
        [(0.0, 1), (1.0, 1), (25.0, 25), (50.0, 50), (99.0, 99), (99.9, 100), (100.0, 100)]
    {
        assert_eq!(percentile(&hundred, percent), expected, "{percent}");
    }
    assert_eq!((percentile(&[], 50.0), percentile(&[7], 99.0)), (0, 7));
}

#[test]
fn jain_says_how_even_shares_are() {
    let of = |shares: &[f64]| jain(shares.iter().copied());
    assert_eq!(of(&[5.0, 5.0, 5.0, 5.0]), Some(1.0));
    assert_eq!(of(&[20.0, 0.0, 0.0, 0.0]), Some(0.25));
    assert_eq!((of(&[]), of(&[0.0])), (None, None));
}

#[test]
fn whiskers_and_fences_follow_the_quartiles() {
    let mut values: Vec<u64> = (10..=50).chain([1000]).collect();
    let summary = Summary::of(&mut values);
    assert_eq!(summary.quartiles, (20, 41));
    // 41 + 1.5 × 21 = 72: the last value within it is 50. 41 + 3 × 21 = 104.
    assert_eq!((summary.whiskers(&values), summary.outlier_limit()), ((10, 50), 104));
    assert_eq!(Summary::of(&mut []), Summary::default());
}

#[test]
fn histograms_keep_few_large_values_apart() {
    let even: Vec<u64> = (0..100).collect();
    let bucket = |from, to, count| Bucket { from, to, count };
    assert_eq!(
        histogram(&even, 4),
        [bucket(0, 25, 25), bucket(25, 50, 25), bucket(50, 75, 25), bucket(75, 99, 25)]
    );
    let mut tail = even;
    tail.push(1_000_000);
    assert_eq!(histogram(&tail, 2), [bucket(0, 50, 50), bucket(50, 1_000_000, 51)]);
    assert_eq!(histogram(&[5, 5], 20), [bucket(5, 5, 2)]);
    assert_eq!(histogram(&[], 20), []);
}

proptest! {
    #[test]
    fn a_histogram_counts_each_value_once(mut values in proptest::collection::vec(any::<u64>(), 0..200), buckets in 1..50usize) {
        values.sort_unstable();
        let found = histogram(&values, buckets);
        prop_assert_eq!(found.iter().map(|bucket| bucket.count).sum::<usize>(), values.len());
        prop_assert!(found.len() <= buckets && found.windows(2).all(|pair| pair[0].to == pair[1].from));
    }

    #[test]
    fn a_summary_is_within_its_bounds(mut values in proptest::collection::vec(any::<u64>(), 1..200)) {
        let summary = Summary::of(&mut values);
        let (low, high) = summary.whiskers(&values);
        prop_assert!(summary.min <= low && low <= high && high <= summary.max);
        prop_assert!(summary.quartiles.0 <= summary.quartiles.1 && summary.percentiles.is_sorted());
        let bounds = summary.min as f64 * 0.999..=summary.max as f64 * 1.001;
        prop_assert!(bounds.contains(&summary.mean) && bounds.contains(&summary.median));
    }

    #[test]
    fn any_frame_has_words(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
        prop_assert!(!brief(&frame).is_empty());
        prop_assert!(checksum(&frame).is_none_or(|at| at.start < at.end && at.end <= frame.len()));
    }
}

#[test]
fn checksums_of_transport_headers_are_found() {
    let frame = |kind: [u8; 2], header: &[u8]| {
        let mut frame = [&[0; 12][..], &kind, header].concat();
        frame.resize(100, 0);
        frame
    };
    let v4 = |protocol: u8, fragment: u8| frame([8, 0], &[0x46, 0, 0, 50, 0, 0, 0, fragment, 64, protocol]);
    let v6 = frame([0x86, 0xdd], &[0x60, 0, 0, 0, 0, 8, 17, 64]);
    assert_eq!(
        [v4(6, 0), v4(17, 0), v4(132, 0), v6.clone()].map(|f| checksum(&f)),
        [Some(54..56), Some(44..46), Some(46..50), Some(60..62)]
    );
    assert_eq!([v4(1, 0), v4(17, 1), frame([8, 6], &[])].map(|f| checksum(&f)), [None, None, None]);
    // Cut off within it, and before.
    assert_eq!([checksum(&v6[..61]), checksum(&v6[..60])], [Some(60..61), None]);
}

#[test]
fn frames_are_summarized() {
    let ethernet = |kind: &[u8], rest: &[u8]| [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], kind, rest].concat();
    let v4 = |protocol: u8, fragment: u16, rest: &[u8]| {
        let mut header =
            vec![0x45, 0, 0, 40, 0, 0, (fragment >> 8) as u8, fragment as u8, 64, protocol, 0, 0];
        header.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        ethernet(&[8, 0], &[header.as_slice(), rest].concat())
    };
    let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    v6.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    v6.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    v6.extend_from_slice(&[0, 53, 4, 0]);
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
    for (frame, expected) in [
        (vec![], "-"),
        (vec![1, 2, 3], "3 bytes"),
        (v4(6, 0, &[0x1f, 0x90, 0, 80]), "tcp 10.0.0.1:8080 > 10.0.0.2:80"),
        (v4(17, 0, &[]), "udp 10.0.0.1 > 10.0.0.2"),
        (v4(17, 8, &[0, 1, 0, 2]), "udp 10.0.0.1 > 10.0.0.2 fragment"),
        (v4(1, 0, &[8, 0]), "icmp 10.0.0.1 > 10.0.0.2 type 8"),
        (v4(47, 0, &[]), "10.0.0.1 > 10.0.0.2 protocol 47"),
        (ethernet(&[0x86, 0xdd], &v6), "udp [fd00::1]:53 > [fd00::2]:1024"),
        (ethernet(&[8, 6], &arp), "arp 10.0.0.1 asks for 10.0.0.2"),
        (ethernet(&[0x81, 0, 0, 7, 8, 6], &arp), "vlan 7 arp 10.0.0.1 asks for 10.0.0.2"),
        (ethernet(&[0x88, 0xcc], &[]), "02:00:00:00:00:01 > 02:00:00:00:00:02 type 0x88cc"),
        (ethernet(&[8, 0], &[0x45]), "02:00:00:00:00:01 > 02:00:00:00:00:02 type 0x0800"),
    ] {
        assert_eq!(brief(&frame), expected);
    }
    arp[7] = 2;
    assert_eq!(brief(&ethernet(&[8, 6], &arp)), "arp 10.0.0.1 answers 10.0.0.2");
}
