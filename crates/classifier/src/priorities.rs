//! Rule counts by priority: a persistent multiset with its maximum.
//!
//! The maximum is stored separately, so that the usual subtable, whose rules share one priority, needs no map.

/// The multiset.
#[derive(Clone, Default)]
pub(crate) struct Priorities {
    max: i32,
    /// Number of rules at `max`; 0 only if empty.
    at_max: usize,
    lower: imbl::OrdMap<i32, usize>,
}

impl Priorities {
    /// The highest priority; `None` without rules.
    pub(crate) fn max(&self) -> Option<i32> {
        (self.at_max > 0).then_some(self.max)
    }

    /// Whether a rule has `priority`.
    pub(crate) fn contains(&self, priority: i32) -> bool {
        self.at_max > 0 && (priority == self.max || self.lower.contains_key(&priority))
    }

    /// Adds a rule.
    pub(crate) fn add(&mut self, priority: i32) {
        if self.at_max > 0 && priority < self.max {
            *self.lower.entry(priority).or_insert(0) += 1;
        } else if self.at_max > 0 && priority == self.max {
            self.at_max += 1;
        } else {
            if self.at_max > 0 {
                self.lower.insert(self.max, self.at_max);
            }
            (self.max, self.at_max) = (priority, 1);
        }
    }

    /// Removes a rule added before.
    pub(crate) fn remove(&mut self, priority: i32) {
        if priority == self.max {
            self.at_max -= 1;
            if self.at_max == 0
                && let Some((max, n)) = self.lower.get_max().copied()
            {
                self.lower.remove(&max);
                (self.max, self.at_max) = (max, n);
            }
            return;
        }
        let n = self.lower.get_mut(&priority).expect("a counted priority");
        *n -= 1;
        if *n == 0 {
            self.lower.remove(&priority);
        }
    }
}
