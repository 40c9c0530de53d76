//! [`ActionPool`]: rules with equal actions share one action list.
//!
//! An unused list stays until the pool has doubled since its last clean-up, so upkeep costs O(1) per rule.

use ofp_actions::Action;
use rapidhash::fast::RandomState;
use std::collections::HashSet;
use std::sync::Arc;

/// No clean-up below this number of lists.
const CLEAN_LEAST: usize = 1024;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct ActionPool {
    lists: HashSet<Arc<[Action]>, RandomState>,
    /// Number of lists that triggers the next clean-up.
    clean_at: usize,
}

impl Default for ActionPool {
    fn default() -> ActionPool {
        ActionPool { lists: HashSet::default(), clean_at: CLEAN_LEAST }
    }
}

impl ActionPool {
    /// The shared list of these actions.
    pub(crate) fn intern(&mut self, actions: &[Action]) -> Arc<[Action]> {
        if let Some(list) = self.lists.get(actions) {
            return list.clone();
        }
        if self.lists.len() >= self.clean_at {
            self.lists.retain(|list| Arc::strong_count(list) > 1);
            self.clean_at = (self.lists.len() * 2).max(CLEAN_LEAST);
        }
        let list: Arc<[Action]> = actions.into();
        self.lists.insert(list.clone());
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ofp_actions::SetQueue;

    #[test]
    fn equal_lists_are_one_and_unused_ones_go() {
        let mut pool = ActionPool::default();
        let kept = pool.intern(&[Action::SetQueue(SetQueue(7))]);
        assert!(Arc::ptr_eq(&kept, &pool.intern(&[Action::SetQueue(SetQueue(7))])));
        for n in 0..100_000 {
            let _unused = pool.intern(&[Action::SetQueue(SetQueue(n))]);
            assert!(pool.lists.len() <= CLEAN_LEAST + 1, "{}", pool.lists.len());
        }
        assert!(Arc::ptr_eq(&kept, &pool.intern(&[Action::SetQueue(SetQueue(7))])));
        let used: Vec<_> = (0..5000).map(|n| pool.intern(&[Action::SetQueue(SetQueue(n))])).collect();
        assert!(pool.lists.len() >= used.len());
    }
}
