//! Returns to earlier information.

use super::*;

/// Only a return to information of a moment ago is doubtful, for two ticks.
#[test]
fn returns_are_doubtful() {
    let vector = |cost| Vector { root: 1, cost, bridge: 2, port: 3 };
    let mut told = Told::default();
    told.tell(vector(1), 1);
    told.tell(vector(1), 1);
    told.tell(vector(2), 1);
    told.tell(vector(2), 2);
    assert!(!told.is_doubtful(), "nothing came back");
    told.tell(vector(1), 1);
    assert!(told.is_doubtful());
    told.count_down();
    assert!(told.is_doubtful());
    told.count_down();
    assert!(!told.is_doubtful());
    told.tell(vector(2), 2);
    assert!(!told.is_doubtful(), "that is forgotten");
    (0..100).for_each(|cost| told.tell(vector(cost + 10), 1));
    assert!(told.is_doubtful(), "it cannot remember all");
    assert!(told.before.len() <= MAX);
}
