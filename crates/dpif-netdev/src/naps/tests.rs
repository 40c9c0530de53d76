use super::Naps;

#[test]
fn sleeps_grow_up_to_the_bound_and_end_with_a_large_burst() {
    let mut naps = Naps::default();
    assert_eq!(naps.next(32), None, "none is permitted");
    naps.set_max(3);
    for (burst, expected_us) in [(0, 1), (1, 2), (15, 3), (15, 3), (16, 0), (15, 1), (32, 0), (0, 1)] {
        naps.note_burst(burst);
        naps.note_burst(0);
        assert_eq!(naps.next(32).map_or(0, |nap| nap.as_micros()), expected_us, "{burst}");
    }
    naps.set_max(0);
    assert_eq!(naps.next(32), None);
}
