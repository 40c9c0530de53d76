//! The index against a map, with hashes that spread and hashes that clash.

use super::{BUCKETS_MAX, ENTRIES, Index, OVERFLOW_MAX, PART, Refused, Tag, address};
use proptest::prelude::*;
use std::collections::HashSet;
use sync::Ordering;

/// Kinds of hashes, by their number of distinct values.
fn hash(id: u64, distinct: u64) -> u64 {
    (id % distinct).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

fn found(index: &Index, id: u64, distinct: u64) -> bool {
    index.find(hash(id, distinct), |tag| (tag == id + 1).then_some(())).is_some()
}

fn insert(index: &Index, ids: [u64; 2], distinct: u64) -> Result<(), Refused> {
    let tags = ids.map(|id| id + 1);
    index.insert_both(ids.map(|id| hash(id, distinct)), tags, |tag, n| tag == tags[n])
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(u64, u64),
    Remove(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0..600u64;
    let step = prop_oneof![
        3 => (id.clone(), id.clone()).prop_map(|(a, b)| Step::Insert(a, b)),
        2 => id.prop_map(Step::Remove),
    ];
    proptest::collection::vec(step, 0..1500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if testkit::long() { 5000 } else { 100 }))]

    #[test]
    fn is_a_set_of_tags(steps in steps(), distinct in prop_oneof![Just(1u64), Just(5), Just(64), Just(1 << 40)]) {
        let (index, mut model) = (Index::new(), HashSet::<u64>::new());
        for step in steps {
            match step {
                Step::Insert(a, b) => {
                    let expected = match (model.contains(&a), model.contains(&b)) {
                        (true, _) => Err(Refused::Exists(0, a + 1)),
                        (_, true) => Err(Refused::Exists(1, b + 1)),
                        _ => Ok(()),
                    };
                    prop_assert_eq!(insert(&index, [a, b], distinct), expected);
                    if !model.contains(&a) && !model.contains(&b) {
                        model.extend([a, b]);
                    }
                }
                Step::Remove(a) => {
                    prop_assert_eq!(index.remove(hash(a, distinct), a + 1), model.remove(&a));
                }
            }
        }
        for id in 0..600 {
            prop_assert_eq!(found(&index, id, distinct), model.contains(&id), "{}", id);
        }
        prop_assert_eq!(index.len(), model.len() as u64);
        index.check();
    }

    #[test]
    fn a_bucket_keeps_its_hashes_or_gives_them_to_its_new_half(hash: u64, buckets in 64u64..5000) {
        let at = address(hash, buckets);
        prop_assert!(at < buckets);
        let next = address(hash, buckets + 1);
        let top = 1 << buckets.ilog2();
        prop_assert!(next == at || next == buckets && at == buckets & !top);
    }
}

#[test]
fn grows_and_shrinks_over_several_doublings() {
    let (index, distinct) = (Index::new(), 1 << 40);
    let all: Tag = 100_000;
    (0..all / 2).for_each(|n| assert_eq!(insert(&index, [2 * n, 2 * n + 1], distinct), Ok(())));
    let at_load = 2 * all / super::LOAD_TIMES_2;
    assert!((at_load..=at_load + 1).contains(&index.buckets()), "{}", index.buckets());
    assert!((0..all).all(|id| found(&index, id, distinct)));
    assert!(!(all..2 * all).any(|id| found(&index, id, distinct)));
    index.check();
    let counts = index.entries_by_bucket(1 << 16, |_| true);
    let most = counts.iter().max().copied().unwrap_or(0);
    assert!(most < 5 * ENTRIES as u32, "a chain of {most} entries");
    (0..all).filter(|id| id % 3 != 0).for_each(|id| assert!(index.remove(hash(id, distinct), id + 1)));
    assert!((0..all).all(|id| found(&index, id, distinct) == (id % 3 == 0)));
    (0..all).filter(|id| id % 3 == 0).for_each(|id| assert!(index.remove(hash(id, distinct), id + 1)));
    assert_eq!(index.len(), 0);
    index.check();
    // All overflow buckets are free again.
    assert_eq!(sync::lock(&index.free).len() as u32 + 1, index.overflow_used.load(Ordering::Relaxed));
}

#[test]
fn one_entry_serves_two_equal_tags() {
    let index = Index::new();
    assert_eq!(insert(&index, [4, 4], 9), Ok(()));
    assert_eq!((index.len(), found(&index, 4, 9)), (1, true));
    assert!(index.remove(hash(4, 9), 5) && !index.remove(hash(4, 9), 5));
    assert_eq!(index.len(), 0);
}

#[test]
fn refuses_both_entries_when_no_overflow_bucket_is_left() {
    let index = Index::new();
    // Room for one entry in the bucket, and for none beyond.
    (0..3).for_each(|n| assert_eq!(insert(&index, [2 * n, 2 * n + 1], 1), Ok(())));
    index.overflow_used.store(OVERFLOW_MAX as u32, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(insert(&index, [10, 11], 1), Err(Refused::Full));
        assert!(!found(&index, 10, 1) && !found(&index, 11, 1));
        assert_eq!(index.len(), 6);
    }
    assert!(index.remove(hash(0, 1), 1));
    assert_eq!(insert(&index, [10, 11], 1), Ok(()));
    assert_eq!(insert(&index, [12, 13], 1), Err(Refused::Full));
}

#[test]
fn takes_no_overflow_bucket_for_growth_that_is_over() {
    let index = Index::new();
    index.buckets.store(BUCKETS_MAX, Ordering::Relaxed);
    index.entries.store(BUCKETS_MAX * 10, Ordering::Relaxed);
    (0..50).for_each(|n| assert_eq!(insert(&index, [2 * n, 2 * n + 1], 1 << 40), Ok(())));
    assert_eq!(index.overflow_used.load(Ordering::Relaxed), 1);
    assert_eq!(index.buckets(), BUCKETS_MAX);
}

#[test]
fn memory_of_further_buckets_is_taken_ahead() {
    let index = Index::new();
    let ready = || index.parts.iter().filter(|part| part.get().is_some()).count();
    assert_eq!(ready(), 0);
    index.prepare(1);
    assert_eq!(ready(), 1);
    index.prepare(PART as u64);
    assert_eq!(ready(), 2);
    index.buckets.store(BUCKETS_MAX, Ordering::Relaxed);
    index.prepare(PART as u64);
    assert_eq!(ready(), 3, "the last one");
}
