use super::*;

fn counts(weights: &[u16]) -> Option<(usize, Vec<usize>)> {
    let map = map_of(weights)?;
    let count = |n: usize| map.iter().filter(|b| usize::from(**b) == n).count();
    Some((map.len(), (0..weights.len()).map(count).collect()))
}

/// The buckets that OVS 3.1 selects for the hashes 0 to 15.
#[test]
fn values_of_the_hash_are_mapped_as_in_ovs() {
    let map = map_of(&[10, 20]).unwrap();
    assert_eq!(map[..], [1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1, 0, 1, 1]);
}

#[test]
fn buckets_get_values_by_weight() {
    for (weights, expected) in [
        (&[1u16][..], Some((16, vec![16]))),
        (&[1, 1], Some((16, vec![8, 8]))),
        (&[1, 1, 1], Some((16, vec![6, 5, 5]))),
        (&[1, 0, 3], Some((16, vec![4, 0, 12]))),
        (&[1, 99], Some((128, vec![1, 127]))),
        (&[1, 255], Some((256, vec![1, 255]))),
        (&[1, 256], None),
        (&[u16::MAX, u16::MAX], Some((16, vec![8, 8]))),
        (&[0, 0], None),
        (&[], None),
    ] {
        assert_eq!(counts(weights), expected, "{weights:?}");
    }
    let (values, of) = counts(&[1; 256]).unwrap();
    assert!(values == 256 && of.iter().all(|n| *n == 1));
    assert_eq!(counts(&[1; 257]), None);
}
