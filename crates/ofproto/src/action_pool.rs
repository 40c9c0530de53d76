//! [`ActionPool`]: rules with equal actions share one action list, flows with equal long ones, too ([`LongLists`]).
//!
//! An unused list stays until the pool has doubled since its last clean-up, so upkeep costs O(1) per rule.

use dpif::DpAction;
use rapidhash::fast::RandomState;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;
use sync::{Mutex, lock};

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct ActionPool<A> {
    lists: HashSet<Arc<[A]>, RandomState>,
    /// No clean-up below this number of lists.
    clean_least: usize,
    /// Number of lists that triggers the next clean-up.
    clean_at: usize,
}

impl<A: Hash + Eq> ActionPool<A> {
    /// Empty. `clean_least` lists may be unused.
    pub(crate) fn new(clean_least: usize) -> ActionPool<A> {
        ActionPool { lists: HashSet::default(), clean_least, clean_at: clean_least }
    }

    /// The shared list of these actions.
    pub(crate) fn intern(&mut self, actions: impl AsRef<[A]> + Into<Arc<[A]>>) -> Arc<[A]> {
        if let Some(list) = self.lists.get(actions.as_ref()) {
            return list.clone();
        }
        if self.lists.len() >= self.clean_at {
            self.clean();
        }
        let list: Arc<[A]> = actions.into();
        self.lists.insert(list.clone());
        list
    }

    fn clean(&mut self) {
        self.lists.retain(|list| Arc::strong_count(list) > 1);
        self.clean_at = (self.lists.len() * 2).max(self.clean_least);
    }
}

/// Datapath actions from which on flows share a list: a shorter one costs less than its lookup.
const LONG: usize = 64;
/// Long lists up to which the next list looks for unused ones; each round of the revalidator does.
const LONG_UNUSED_MAX: usize = 64;

/// Long lists of datapath actions. A flood to thousands of ports is stored once for a port, not for each address that packets
/// invent.
pub(crate) struct LongLists(Mutex<ActionPool<DpAction>>);

impl Default for LongLists {
    fn default() -> LongLists {
        LongLists(Mutex::new(ActionPool::new(LONG_UNUSED_MAX)))
    }
}

impl LongLists {
    /// The list, or an equal one of another flow.
    pub(crate) fn share(&self, list: Arc<[DpAction]>) -> Arc<[DpAction]> {
        if list.len() < LONG { list } else { lock(&self.0).intern(list) }
    }

    /// Frees lists without flows.
    pub(crate) fn clean(&self) {
        lock(&self.0).clean();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dpif::actions::Output;
    use flow::DpPort;
    use ofp_actions::{Action, SetQueue};

    #[test]
    fn equal_lists_are_one_and_unused_ones_go() {
        let list = |n| [Action::SetQueue(SetQueue(n))];
        let mut pool = ActionPool::new(1024);
        let kept = pool.intern(list(7));
        assert!(Arc::ptr_eq(&kept, &pool.intern(list(7))));
        for n in 0..100_000 {
            let _unused = pool.intern(list(n));
            assert!(pool.lists.len() <= 1024 + 1, "{}", pool.lists.len());
        }
        assert!(Arc::ptr_eq(&kept, &pool.intern(list(7))));
        let used: Vec<_> = (0..5000).map(|n| pool.intern(list(n))).collect();
        assert!(pool.lists.len() >= used.len());
    }

    #[test]
    fn flows_share_long_lists() {
        let flood = |ports| -> Arc<[DpAction]> { (0..ports).map(|p| Output(DpPort(p)).into()).collect() };
        let lists = LongLists::default();
        let first = lists.share(flood(100));
        assert!(Arc::ptr_eq(&first, &lists.share(flood(100))));
        assert!(!Arc::ptr_eq(&first, &lists.share(flood(101))));
        drop(first);
        lists.clean();
        assert!(lock(&lists.0).lists.is_empty());
        let short = lists.share(flood(LONG as u32 - 1));
        assert!(!Arc::ptr_eq(&short, &lists.share(flood(LONG as u32 - 1))));
    }
}
