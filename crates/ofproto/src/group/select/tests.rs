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

/// The debug lines of OVS 3.5 about the same groups.
#[test]
fn construction_is_told_as_in_ovs() {
    use openflow::msg::group::GroupModCommand;
    for (text, expected) in [
        (
            "group_id=1,type=select,bucket=bucket_id:0,weight:5,actions=1,bucket=bucket_id:1,actions=2",
            "Constructing select group 1\nNo selection method specified. Trying dp_hash.\n  Minimum weight: 1, total \
             weight: 6\n  Using 16 hash values:\n  Bucket 0: weight=5, target=13.33 hits=13\n  Bucket 1: weight=1, \
             target=2.67 hits=3\nUse dp_hash with 16 hash values using algorithm 1.",
        ),
        (
            "group_id=3,type=select,selection_method=hash,fields(eth_src=ff:00:00:00:00:00,ip_src),bucket=1",
            "Constructing select group 3\nSelection method specified: hash.\nHash fields: \
             eth_src=ff:00:00:00:00:00,ip_src",
        ),
        (
            "group_id=4,type=select,selection_method=hash,bucket=1",
            "Constructing select group 4\nSelection method specified: hash.\nNo hash fields. Falling back to default \
             hash method.",
        ),
        (
            "group_id=4,type=select,selection_method=dp_hash",
            "Constructing select group 4\nSelection method specified: dp_hash.\n  Don't apply dp_hash method without \
             buckets.\nFalling back to default hash method.",
        ),
        (
            "group_id=5,type=select,bucket=bucket_id:0,weight:1000,actions=1,bucket=bucket_id:1,actions=2",
            "Constructing select group 5\nNo selection method specified. Trying dp_hash.\n  Minimum weight: 1, total \
             weight: 1001\n  Too many hash values required: 1024\nFalling back to default hash method.",
        ),
        (
            "group_id=7,type=select,bucket=bucket_id:0,weight:0,actions=1",
            "Constructing select group 7\nNo selection method specified. Trying dp_hash.\n  Total weight is zero. No \
             active buckets.\nFalling back to default hash method.",
        ),
        (
            "group_id=8,type=select,selection_method=dp_hash,selection_method_param=8589934592,bucket=bucket_id:0,actions=1",
            "Constructing select group 8\nSelection method specified: dp_hash.\n  Minimum weight: 1, total weight: \
             1\n  Using 16 hash values:\n  Bucket 0: weight=1, target=16.00 hits=16\nInvalid dp_hash algorithm 2. \
             Defaulting to OVS_HASH_ALG_L4\nUse dp_hash with 16 hash values using algorithm 0.",
        ),
    ] {
        let m = openflow::text::parse_group_mod(text, GroupModCommand::Add, &NoPortNames).unwrap();
        assert_eq!(construction(&m.group).join("\n"), expected, "{text}");
    }
}
