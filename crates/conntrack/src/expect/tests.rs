//! Bounds, order and ends of expectations.

use super::*;
use crate::key::Rest;

fn key(src: u32, port: u16) -> Key {
    let rest = Rest { src: 0, dst: port, zone: 1, proto: 6 };
    Key::V4([u64::from(src) << 32 | 1, 0]).with_rest(rest)
}

fn expected(parent: Key, now_ms: u64) -> Expected {
    let address = std::net::Ipv4Addr::LOCALHOST.into();
    Expected { parent, mark: 5, labels: 6, address, is_src: true, expires_ms: now_ms + EXPECTED_MS }
}

fn bed() -> Expectations {
    Expectations::new(KeyHash::new(7))
}

#[test]
fn an_expectation_ends_by_time_or_with_its_parent() {
    let all = bed();
    let (a, b) = (key(100, 21), key(200, 21));
    for (n, parent, now_ms) in [(1, a, 0), (2, a, 5), (3, b, 10), (4, b, 10)] {
        assert_eq!(all.add(key(n, 80), expected(parent, now_ms), now_ms), Ok(()));
    }
    let found = |now_ms| -> Vec<u32> {
        let any_port = |n| key(n, 80).with_rest(Rest { src: 999, ..key(n, 80).rest() });
        (1..=4).filter(|n| all.find(any_port(*n), now_ms).is_some()).collect()
    };
    assert_eq!(found(10), [1, 2, 3, 4]);
    assert_eq!(found(EXPECTED_MS + 5), [3, 4]);
    // Another parent does not take it over; the own one renews it.
    assert_eq!(all.add(key(1, 80), expected(b, 20), 20), Ok(()));
    assert_eq!(found(EXPECTED_MS + 5), [3, 4]);
    assert_eq!(all.add(key(1, 80), expected(a, 20), 20), Ok(()));
    assert_eq!(found(EXPECTED_MS + 15), [1]);
    all.end(b);
    assert_eq!((found(20), all.all(20).len()), (vec![1, 2], 2));
    all.expire(EXPECTED_MS + 5, 100);
    assert_eq!((found(20), all.is_empty()), (vec![1], false));
    all.end(a);
    assert!(all.is_empty() && lock(&all.book).by_parent.is_empty() && all.table.is_empty());
}

#[test]
fn there_are_bounds_for_each_parent_and_for_all() {
    let all = bed();
    let parent = key(1, 21);
    let ports = OF_PARENT_MAX as u16 + 3;
    (1..=ports).for_each(|n| assert_eq!(all.add(key(9, n), expected(parent, n.into()), n.into()), Ok(())));
    let kept: Vec<u16> = all.all(0).iter().map(|(key, _)| key.rest().dst).collect();
    assert_eq!(kept, (4..=ports).collect::<Vec<_>>());
    let mut n = 100;
    while all.all(0).len() < EXPECTATIONS_MAX && n < 100 + 2 * EXPECTATIONS_MAX as u32 {
        for _ in 0..8192 {
            if lock(&all.book).by_end.len() < EXPECTATIONS_MAX {
                n += 1;
                assert_eq!(all.add(key(n, 80), expected(key(n, 21), 100), 100), Ok(()));
            }
        }
    }
    assert_eq!(all.add(key(1, 80), expected(key(1, 22), 100), 100), Err(Full));
    // Expectations of the first parent are over later.
    assert_eq!(all.add(key(1, 80), expected(key(1, 22), 40_000), EXPECTED_MS + 50), Ok(()));
}

#[test]
fn a_parent_belongs_to_one_use_of_a_record() {
    let parents = Parents::new(KeyHash::new(7));
    parents.add(3, key(1, 80), key(1, 21));
    assert_eq!(parents.find(3, key(1, 80)), Some(key(1, 21)));
    assert_eq!(parents.find(3, key(2, 80)), None);
    parents.end(3, key(1, 80));
    assert_eq!((parents.find(3, key(1, 80)), parents.len()), (None, 0));
}
