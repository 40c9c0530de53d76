//! Bounds; the rest is tested against the kernel.

use super::*;

#[test]
fn memory_is_bounded() {
    assert_eq!([1, 8, 9, 64].map(entries_per_queue), [1024, 1024, 512, 128]);
    for count in 1..=MAX_RX_QUEUES {
        assert!(entries_per_queue(count) * count as u32 <= MAX_RING_ENTRIES);
    }
}
