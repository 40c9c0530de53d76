//! The bound of receive rings.

use super::*;

#[test]
fn rings_are_bounded_together() {
    for (wanted, count, each) in [(1024, 1, 1024), (1024, 16, 1024), (1024, 17, 512), (1 << 20, 1, 1 << 14)] {
        assert_eq!(slots_per_queue(wanted, count), each);
    }
    for count in 1..=MAX_RX_QUEUES {
        assert!(slots_per_queue(u32::MAX, count) * count as u32 <= MAX_RING_SLOTS);
        // The minimum ring size does not exceed it either.
        assert!(slots_per_queue(1024, count) >= 32);
    }
}
