use super::each_by;
use std::sync::Barrier;
use sync::{AtomicU64, Ordering};

#[test]
fn all_items_are_processed_with_bounded_concurrency() {
    for (items, threads) in [(0, 4), (1, 4), (4, 4), (8, 4), (12, 1)] {
        // A barrier for this number of threads: with fewer threads this waits forever.
        let together = Barrier::new(threads.min(items.max(1)));
        let sum = AtomicU64::new(0);
        each_by((1..=items as u64).collect(), threads, |n| {
            together.wait();
            sum.fetch_add(n, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), (1..=items as u64).sum::<u64>(), "{items} on {threads}");
    }
}
