use super::visited_for_hits;

#[test]
fn visits_of_cached_packets_and_of_misses_do_not_count_for_hits() {
    for (hit, missed, visited, cached, expected) in [
        (0, 0, 0, 0, 0),
        // All by the cache.
        (100, 0, 100, 100, 0),
        // Ten by the table, with three masks each.
        (110, 0, 130, 100, 30),
        // Two of twelve lookups were misses.
        (110, 2, 136, 100, 30),
        // Only misses.
        (0, 5, 10, 0, 0),
        // Counters read one after the other may be inconsistent.
        (5, 0, 3, 9, 0),
        (u64::MAX, u64::MAX, u64::MAX, 0, u64::MAX / 2),
    ] {
        let got = visited_for_hits(hit, missed, visited, cached);
        assert_eq!(got, expected, "{hit} {missed} {visited} {cached}");
    }
}
