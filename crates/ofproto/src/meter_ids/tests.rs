//! Datapath numbers of meters: allocation order, and exhaustion.

use super::*;
use crate::backer::Backer;

#[test]
fn the_lowest_free_number_is_allocated_until_exhaustion() {
    let backer = Backer::new(1);
    let take = || backer.meter_hold();
    assert_eq!([take(), take(), take()], [Some(0), Some(1), Some(2)]);
    backer.meter_release(1);
    assert_eq!([take(), take()], [Some(1), Some(3)]);
    let all = std::iter::from_fn(take).last();
    assert_eq!((all, take()), (Some(DP_METERS_MAX - 1), None));
    backer.meter_release(7);
    assert_eq!(take(), Some(7));
}
