use super::*;

#[test]
fn values_have_the_form_of_ovs() {
    let m = Memory { total_kb: 5, used_kb: 4, cache_kb: 3, swap_kb: 2, swap_used_kb: 1 };
    assert_eq!(memory(m), "5,4,3,2,1");
    let f = |point: &str| FileSystem { mount_point: point.to_string(), total_kb: 9, used_kb: 8 };
    assert_eq!(file_systems(&[f("/"), f("/a b,c")]), "/,9,8 /a_b_c,9,8");
    assert_eq!(file_systems(&[]), "");
    for (title, expected) in [
        ("sluiced\0--monitor\0", None),
        ("ovs-vswitchd: monitoring pid 7 (healthy)\0", Some(0)),
        ("ovs-vswitchd: monitoring pid 7 (3 crashes: pid 5 died)\0", Some(3)),
        ("ovs-vswitchd: monitoring pid 77 (healthy)\0", None),
    ] {
        assert_eq!(crashes(title, 7), expected, "{title}");
    }
}
