//! Against a plain list of sessions.

use super::*;
use proptest::prelude::*;

/// A session whose wakeup is set from outside.
struct Alarm(u64);

impl Timed for Alarm {
    fn next_wakeup(&self) -> u64 {
        self.0
    }

    fn has_changed(&self) -> bool {
        self.0.is_multiple_of(2)
    }
}

proptest! {
    #[test]
    fn the_earliest_wakeup_is_that_of_a_session(steps in proptest::collection::vec((0..4u8, 0..8u32, 0..50u64), 0..300)) {
        let mut slots = Slots::default();
        let mut plain: BTreeMap<u32, u64> = BTreeMap::new();
        for (step, n, at_ms) in steps {
            let name = n.to_string();
            match (step, slots.find(&name)) {
                (0, None) => {
                    slots.add(&name, Alarm(at_ms));
                    plain.insert(n, at_ms);
                }
                (1, Some(id)) => {
                    slots.remove(id);
                    plain.remove(&n);
                }
                (2 | 3, Some(id)) => {
                    slots.with(id, |alarm| alarm.0 = at_ms);
                    plain.insert(n, at_ms);
                }
                _ => {}
            }
            prop_assert_eq!(slots.next_wakeup(), plain.values().copied().min());
            let due = slots.due(25).and_then(|id| slots.get(id)).map(|alarm| alarm.0);
            prop_assert_eq!(due, plain.values().copied().min().filter(|at_ms| *at_ms <= 25));
            prop_assert_eq!(slots.len(), plain.len());
            prop_assert!(slots.wakeups.len() <= WAKEUPS_EACH * slots.slots.len());
            let names: Vec<String> = slots.named().map(|(name, _)| name.to_string()).collect();
            prop_assert_eq!(names, plain.keys().map(u32::to_string).collect::<Vec<_>>());
        }
    }
}
