//! [`SortedCounts`]: a persistent multiset of ordered keys, a B+ tree whose nodes have no unused slots.
//!
//! A clone shares everything; a change copies the path to one leaf, or works in place on unshared nodes. The key of
//! an inner entry is a lower bound: at most the smallest key below it, and above all keys before it.

use std::sync::Arc;

/// Maximum entries of a leaf.
const LEAF_MAX: usize = 32;
/// Maximum entries of an inner node. Fewer, because a copy counts a reference for each.
const INNER_MAX: usize = 16;
/// Neighbours with fewer entries together are merged.
const MERGE_BELOW: usize = INNER_MAX;

#[derive(Clone)]
enum Node<K> {
    /// Keys, ascending, with their counts.
    Leaf(Arc<[(K, u32)]>),
    Inner(Arc<[(K, Node<K>)]>),
}

/// See the module documentation.
#[derive(Clone)]
pub(crate) struct SortedCounts<K> {
    root: Node<K>,
    len: usize,
}

impl<K> Default for SortedCounts<K> {
    fn default() -> SortedCounts<K> {
        SortedCounts { root: Node::Leaf(Arc::new([])), len: 0 }
    }
}

/// The entries with one more at `at`, split if they exceed a node of `max` entries.
fn inserted<T: Clone>(entries: &[T], max: usize, at: usize, new: T) -> (Arc<[T]>, Option<Arc<[T]>>) {
    // By index, because chained iterators are slower.
    let entry = |place: usize| match place {
        place if place == at => new.clone(),
        place => entries[place - usize::from(place > at)].clone(),
    };
    let len = entries.len() + 1;
    let end = if len <= max { len } else { len / 2 };
    let right = (end < len).then(|| (end..len).map(entry).collect());
    ((0..end).map(entry).collect(), right)
}

/// The entries with those of `range` replaced by `new`.
fn spliced<T: Clone>(entries: &[T], range: std::ops::Range<usize>, new: Option<T>) -> Arc<[T]> {
    entries[..range.start].iter().cloned().chain(new).chain(entries[range.end..].iter().cloned()).collect()
}

impl<K: Ord + Copy> Node<K> {
    fn width(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.len(),
        }
    }

    /// Adds a key; returns whether it is new, and the right half with its lower bound if the node was split.
    fn add(&mut self, key: K) -> (bool, Option<(K, Node<K>)>) {
        match self {
            Node::Leaf(entries) => match entries.binary_search_by_key(&key, |(k, _)| *k) {
                Ok(at) => {
                    Arc::make_mut(entries)[at].1 += 1;
                    (false, None)
                }
                Err(at) => {
                    let (left, right) = inserted(entries, LEAF_MAX, at, (key, 1));
                    *entries = left;
                    (true, right.map(|right| (right[0].0, Node::Leaf(right))))
                }
            },
            Node::Inner(children) => {
                let at = child_of(children, key);
                let shared = Arc::make_mut(children);
                shared[at].0 = shared[at].0.min(key);
                let (is_new, divided) = shared[at].1.add(key);
                let Some(divided) = divided else { return (is_new, None) };
                let (left, right) = inserted(children, INNER_MAX, at + 1, divided);
                *children = left;
                (is_new, right.map(|right| (right[0].0, Node::Inner(right))))
            }
        }
    }

    /// Removes one occurrence of a key; returns whether it was the last one. `None` if the key is absent.
    fn remove(&mut self, key: K) -> Option<bool> {
        match self {
            Node::Leaf(entries) => {
                let at = entries.binary_search_by_key(&key, |(k, _)| *k).ok()?;
                if entries[at].1 > 1 {
                    Arc::make_mut(entries)[at].1 -= 1;
                    return Some(false);
                }
                *entries = spliced(entries, at..at + 1, None);
                Some(true)
            }
            Node::Inner(children) => {
                let at = child_of(children, key);
                let is_last = Arc::make_mut(children)[at].1.remove(key)?;
                if is_last {
                    Node::tidy(children, at);
                }
                Some(is_last)
            }
        }
    }

    /// Drops the child at `at` if it is empty, or merges it with a neighbour if both are small.
    fn tidy(children: &mut Arc<[(K, Node<K>)]>, at: usize) {
        if children[at].1.width() == 0 {
            *children = spliced(children, at..at + 1, None);
            return;
        }
        let left = at.saturating_sub(1);
        let [(bound, a), (_, b), ..] = &children[left..] else { return };
        if a.width() + b.width() < MERGE_BELOW {
            let joined = match (a, b) {
                (Node::Leaf(a), Node::Leaf(b)) => Node::Leaf(a.iter().chain(&**b).copied().collect()),
                (Node::Inner(a), Node::Inner(b)) => Node::Inner(a.iter().chain(&**b).cloned().collect()),
                _ => unreachable!("all leaves have the same depth"),
            };
            *children = spliced(children, left..left + 2, Some((*bound, joined)));
        }
    }

    /// The largest key below `key`.
    fn before(&self, key: K) -> Option<K> {
        match self {
            Node::Leaf(entries) => {
                let end = entries.partition_point(|(k, _)| *k < key);
                entries[..end].last().map(|(k, _)| *k)
            }
            // At most two children are searched: those before the last one have smaller keys only.
            Node::Inner(children) => {
                let end = children.partition_point(|(bound, _)| *bound < key);
                children[..end].iter().rev().find_map(|(_, child)| child.before(key))
            }
        }
    }

    /// The smallest key that is not below `key`.
    fn from(&self, key: K) -> Option<K> {
        match self {
            Node::Leaf(entries) => entries.get(entries.partition_point(|(k, _)| *k < key)).map(|(k, _)| *k),
            // At most two children are searched: those behind the first one have larger keys only.
            Node::Inner(children) => {
                children[child_of(children, key)..].iter().find_map(|(_, child)| child.from(key))
            }
        }
    }
}

/// The child whose keys are closest to `key`.
fn child_of<K: Ord + Copy>(children: &[(K, Node<K>)], key: K) -> usize {
    children.partition_point(|(bound, _)| *bound <= key).saturating_sub(1)
}

impl<K: Ord + Copy> SortedCounts<K> {
    /// Adds a key.
    pub(crate) fn add(&mut self, key: K) {
        let (is_new, divided) = self.root.add(key);
        self.len += usize::from(is_new);
        if let Some((bound, right)) = divided {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Arc::new([])));
            let first = match &left {
                Node::Leaf(entries) => entries[0].0,
                Node::Inner(children) => children[0].0,
            };
            self.root = Node::Inner(Arc::new([(first, left), (bound, right)]));
        }
    }

    /// Removes a key added before.
    ///
    /// # Panics
    /// If the key is absent.
    pub(crate) fn remove(&mut self, key: K) {
        let is_last = self.root.remove(key).expect("a key is removed that was added before");
        self.len -= usize::from(is_last);
        while let Node::Inner(children) = &self.root
            && let [(_, child)] = &**children
        {
            self.root = child.clone();
        }
    }

    /// Whether it has the key.
    pub(crate) fn contains(&self, key: K) -> bool {
        let mut node = &self.root;
        while let Node::Inner(children) = node {
            node = &children[child_of(children, key)].1;
        }
        let Node::Leaf(entries) = node else { return false };
        entries.binary_search_by_key(&key, |(k, _)| *k).is_ok()
    }

    /// The largest key below `key`, and the smallest that is not.
    pub(crate) fn neighbours(&self, key: K) -> [Option<K>; 2] {
        [self.root.before(key), self.root.from(key)]
    }

    /// Number of different keys.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn depth<K>(node: &Node<K>) -> usize {
        match node {
            Node::Leaf(_) => 0,
            Node::Inner(children) => 1 + depth(&children[0].1),
        }
    }

    fn same(
        set: &SortedCounts<u32>,
        model: &BTreeMap<u32, u32>,
        probes: &[u32],
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(set.len(), model.len());
        for key in probes.iter().copied() {
            prop_assert_eq!(set.contains(key), model.contains_key(&key));
            let expect =
                [model.range(..key).next_back(), model.range(key..).next()].map(|e| e.map(|(k, _)| *k));
            prop_assert_eq!(set.neighbours(key), expect);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn it_is_a_multiset_and_snapshots_stay(
            steps in prop::collection::vec((0u32..400, 0u8..10), 1..1500),
            removes in 1u8..9,
            cut in 0usize..1500,
        ) {
            let (mut set, mut model) = (SortedCounts::default(), BTreeMap::new());
            let mut snapshot = (set.clone(), model.clone());
            for (i, (key, what)) in steps.iter().copied().enumerate() {
                if what >= removes {
                    set.add(key);
                    *model.entry(key).or_insert(0u32) += 1;
                } else if let Some(n) = model.get_mut(&key) {
                    set.remove(key);
                    *n -= 1;
                    if *n == 0 {
                        model.remove(&key);
                    }
                }
                if i == cut {
                    snapshot = (set.clone(), model.clone());
                }
            }
            let probes: Vec<u32> = (0..401).collect();
            same(&set, &model, &probes)?;
            same(&snapshot.0, &snapshot.1, &probes)?;
            for (key, n) in model {
                (0..n).for_each(|_| set.remove(key));
            }
            prop_assert!(set.len() == 0 && depth(&set.root) == 0);
        }
    }

    #[test]
    fn it_stays_shallow_in_any_order() {
        const KEYS: u64 = 100_000;
        let orders: [fn(u64) -> u64; 3] = [|n| n, |n| KEYS - n, |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15)];
        for key_of in orders {
            let mut set = SortedCounts::default();
            (0..KEYS).for_each(|n| set.add(key_of(n)));
            assert!(set.len() == KEYS as usize && depth(&set.root) <= 4);
            (0..KEYS).filter(|n| n % 64 != 0).for_each(|n| set.remove(key_of(n)));
            assert!(depth(&set.root) <= 3, "{}", depth(&set.root));
        }
    }
}
