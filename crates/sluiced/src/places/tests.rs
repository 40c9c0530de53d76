//! The connection without progress ends first; those in use stay.

use super::Standing::{Served, Unread, Unused};
use super::*;

#[test]
fn the_connection_without_progress_for_the_longest_time_ends() {
    type Case = (&'static [(Standing, u64)], Option<usize>);
    let cases: [Case; 6] = [
        (&[], None),
        (&[(Served, 0), (Served, 5)], None),
        (&[(Served, 0), (Unused, 5)], Some(1)),
        (&[(Unused, 0), (Unread, 9), (Unread, 8)], Some(2)),
        (&[(Unused, 7), (Unused, 6), (Served, 1)], Some(1)),
        // The oldest of equal ones.
        (&[(Unread, 3), (Unread, 3)], Some(0)),
    ];
    for (places, expected) in cases {
        let places = places.iter().enumerate();
        let places = places.map(|(n, (standing, progress_ms))| ConnectionSlot {
            token: Token(n),
            standing: *standing,
            progress_ms: *progress_ms,
        });
        assert_eq!(to_evict(places.clone()), expected.map(Token), "{places:?}");
    }
}
