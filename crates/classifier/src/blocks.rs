//! [`BlockMap`]: a compact persistent map from hashes: entries are in blocks of up to [`BLOCK_MAX`], without gaps.
//!
//! Each inner node uses three bits of the hash, from the top. A full block becomes an inner node with a block for
//! each value of the next three bits; an inner node whose entries fit half a block becomes one block again. A clone
//! shares everything; a change copies the path to one block, or moves entries of unshared blocks.
//!
//! Keys are whole hashes: the caller handles equal hashes.

use std::sync::Arc;

/// Maximum entries of a block.
const BLOCK_MAX: usize = 24;
/// Bits of the hash used by an inner node.
const BITS: u32 = 3;
const FANOUT: usize = 1 << BITS;

#[derive(Clone)]
enum Node<V> {
    /// Entries ascending by hash.
    Block(Arc<[(u64, V)]>),
    Inner(Arc<Inner<V>>),
}

#[derive(Clone)]
struct Inner<V> {
    len: usize,
    children: [Node<V>; FANOUT],
}

/// See the module documentation.
#[derive(Clone)]
pub(crate) struct BlockMap<V> {
    root: Node<V>,
}

impl<V> Default for BlockMap<V> {
    fn default() -> BlockMap<V> {
        BlockMap { root: Node::empty() }
    }
}

/// The child of an inner node of that depth.
fn place(hash: u64, depth: u32) -> usize {
    (hash << (depth * BITS) >> (64 - BITS)) as usize
}

/// Whether an inner node is possible at that depth: unused bits are left.
fn divides(depth: u32) -> bool {
    (depth + 1) * BITS <= u64::BITS
}

impl<V> Node<V> {
    fn empty() -> Node<V> {
        Node::Block(Arc::new([]))
    }

    fn len(&self) -> usize {
        match self {
            Node::Block(entries) => entries.len(),
            Node::Inner(inner) => inner.len,
        }
    }
}

fn find<V>(entries: &[(u64, V)], hash: u64) -> Result<usize, usize> {
    let at = entries.iter().position(|(h, _)| *h >= hash).unwrap_or(entries.len());
    if entries.get(at).is_some_and(|(h, _)| *h == hash) { Ok(at) } else { Err(at) }
}

/// Takes the value out of an entry.
fn take<V: Default>(entry: &mut (u64, V)) -> (u64, V) {
    (entry.0, std::mem::take(&mut entry.1))
}

/// A block with one more entry at `at`. Moves the entries of an unshared block: cloning each would touch reference
/// counts of rules all over the memory.
fn grown<V: Clone + Default>(block: &mut Arc<[(u64, V)]>, at: usize, mut new: (u64, V)) -> Arc<[(u64, V)]> {
    // By index, because chained iterators are slower.
    let places = 0..block.len() + 1;
    let old = |place: usize| place - usize::from(place > at);
    match Arc::get_mut(block) {
        Some(own) => places.map(|i| take(if i == at { &mut new } else { &mut own[old(i)] })).collect(),
        None => places.map(|i| if i == at { take(&mut new) } else { block[old(i)].clone() }).collect(),
    }
}

/// A block without its entry at `at`, and that entry's value. Moves as [`grown`].
fn shrunk<V: Clone + Default>(block: &mut Arc<[(u64, V)]>, at: usize) -> (Arc<[(u64, V)]>, V) {
    let places = 0..block.len() - 1;
    let old = |place: usize| place + usize::from(place >= at);
    match Arc::get_mut(block) {
        Some(own) => {
            let removed = take(&mut own[at]).1;
            (places.map(|i| take(&mut own[old(i)])).collect(), removed)
        }
        None => (places.map(|i| block[old(i)].clone()).collect(), block[at].1.clone()),
    }
}

impl<V: Clone + Default> Node<V> {
    fn insert(&mut self, hash: u64, value: V, depth: u32) -> Option<V> {
        match self {
            Node::Inner(inner) => {
                let inner = Arc::make_mut(inner);
                let replaced = inner.children[place(hash, depth)].insert(hash, value, depth + 1);
                inner.len += usize::from(replaced.is_none());
                replaced
            }
            Node::Block(entries) => match find(entries, hash) {
                Ok(at) => Some(std::mem::replace(&mut Arc::make_mut(entries)[at].1, value)),
                Err(at) => {
                    let mut all = grown(entries, at, (hash, value));
                    let fits = all.len() <= BLOCK_MAX || !divides(depth);
                    *self = if fits { Node::Block(all) } else { Node::divided(&mut all, depth) };
                    None
                }
            },
        }
    }

    /// An inner node with the entries of a block.
    fn divided(entries: &mut Arc<[(u64, V)]>, depth: u32) -> Node<V> {
        let len = entries.len();
        let mut parts: [Vec<(u64, V)>; FANOUT] = Default::default();
        for entry in Arc::make_mut(entries) {
            parts[place(entry.0, depth)].push(take(entry));
        }
        let child = |part: Vec<(u64, V)>| {
            let mut part: Arc<[(u64, V)]> = part.into();
            // All may share the next bits.
            if part.len() > BLOCK_MAX && divides(depth + 1) {
                Node::divided(&mut part, depth + 1)
            } else {
                Node::Block(part)
            }
        };
        Node::Inner(Arc::new(Inner { len, children: parts.map(child) }))
    }

    fn remove(&mut self, hash: u64, depth: u32) -> Option<V> {
        match self {
            Node::Block(entries) => {
                let at = find(entries, hash).ok()?;
                let (left, removed) = shrunk(entries, at);
                *entries = left;
                Some(removed)
            }
            Node::Inner(shared) => {
                let inner = Arc::make_mut(shared);
                let removed = inner.children[place(hash, depth)].remove(hash, depth + 1)?;
                inner.len -= 1;
                if inner.len <= BLOCK_MAX / 2 {
                    let mut entries = Vec::with_capacity(inner.len);
                    self.for_each(&mut |hash, value| entries.push((hash, value.clone())));
                    *self = Node::Block(entries.into());
                }
                Some(removed)
            }
        }
    }

    fn for_each(&self, f: &mut impl FnMut(u64, &V)) {
        match self {
            Node::Block(entries) => entries.iter().for_each(|(hash, value)| f(*hash, value)),
            // In the order of their hashes.
            Node::Inner(inner) => inner.children.iter().for_each(|child| child.for_each(f)),
        }
    }
}

impl<V: Clone + Default> BlockMap<V> {
    /// The value of a hash.
    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<&V> {
        let (mut node, mut rest) = (&self.root, hash);
        while let Node::Inner(inner) = node {
            node = &inner.children[(rest >> (64 - BITS)) as usize];
            rest <<= BITS;
        }
        let Node::Block(entries) = node else { return None };
        entries.iter().find(|(h, _)| *h == hash).map(|(_, value)| value)
    }

    /// Mutable access to the value of a hash.
    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut V> {
        // A miss copies nothing.
        self.get(hash)?;
        let (mut node, mut depth) = (&mut self.root, 0);
        loop {
            match node {
                Node::Inner(inner) => {
                    node = &mut Arc::make_mut(inner).children[place(hash, depth)];
                    depth += 1;
                }
                Node::Block(entries) => {
                    let at = find(entries, hash).ok()?;
                    return Some(&mut Arc::make_mut(entries)[at].1);
                }
            }
        }
    }

    /// Whether a hash has a value.
    #[inline]
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.get(hash).is_some()
    }

    /// Inserts a value; returns the previous one.
    pub(crate) fn insert(&mut self, hash: u64, value: V) -> Option<V> {
        self.root.insert(hash, value, 0)
    }

    /// Removes a value. Even a miss copies shared nodes on the path.
    pub(crate) fn remove(&mut self, hash: u64) -> Option<V> {
        self.root.remove(hash, 0)
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.root.len()
    }

    /// All values, in the order of their hashes.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries_from(0).map(|(_, value)| value)
    }

    /// Hashes from `from` on and their values, in order.
    pub(crate) fn entries_from(&self, from: u64) -> Entries<'_, V> {
        let (mut node, mut depth) = (&self.root, 0);
        let mut nodes = Vec::new();
        while let Node::Inner(inner) = node {
            let at = place(from, depth);
            nodes.extend(inner.children[at + 1..].iter().rev());
            node = &inner.children[at];
            depth += 1;
        }
        let Node::Block(entries) = node else { unreachable!("the way ends at a block") };
        let first = entries.partition_point(|(hash, _)| *hash < from);
        Entries { nodes, block: entries[first..].iter() }
    }
}

/// See [`BlockMap::entries_from`].
pub(crate) struct Entries<'a, V> {
    /// Remaining nodes, the next one last.
    nodes: Vec<&'a Node<V>>,
    block: std::slice::Iter<'a, (u64, V)>,
}

impl<'a, V> Iterator for Entries<'a, V> {
    type Item = (u64, &'a V);

    fn next(&mut self) -> Option<(u64, &'a V)> {
        loop {
            if let Some((hash, value)) = self.block.next() {
                return Some((*hash, value));
            }
            match self.nodes.pop()? {
                Node::Block(entries) => self.block = entries.iter(),
                Node::Inner(inner) => self.nodes.extend(inner.children.iter().rev()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Hashes that share leading bits, and some that do not.
    fn hashes() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            (0u64..64).prop_map(|n| n << 58 | 7),
            0u64..64,
            (0u64..300).prop_map(|n| 0xffff_ffff_ffff_0000 | n),
        ]
    }

    fn same(map: &BlockMap<u32>, model: &BTreeMap<u64, u32>) -> Result<(), TestCaseError> {
        prop_assert_eq!(map.len(), model.len());
        prop_assert!(map.values().eq(model.values()));
        prop_assert!(model.iter().all(|(hash, value)| map.get(*hash) == Some(value)));
        for from in model.keys().flat_map(|hash| [*hash, hash.wrapping_add(1)]).chain([0, u64::MAX]).take(50)
        {
            prop_assert!(map.entries_from(from).eq(model.range(from..).map(|(hash, value)| (*hash, value))));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn it_is_a_map_and_snapshots_stay(
            steps in prop::collection::vec((hashes(), 0u8..10, any::<u32>()), 1..600),
            cut in 0usize..600,
            removes in 1u8..9,
        ) {
            let (mut map, mut model) = (BlockMap::default(), BTreeMap::new());
            let mut snapshot = (map.clone(), model.clone());
            for (i, (hash, what, value)) in steps.iter().copied().enumerate() {
                if what == 9 {
                    prop_assert_eq!(map.get_mut(hash).copied(), model.get(&hash).copied());
                    if let (Some(a), Some(b)) = (map.get_mut(hash), model.get_mut(&hash)) {
                        (*a, *b) = (value, value);
                    }
                } else if what < removes {
                    prop_assert_eq!(map.insert(hash, value), model.insert(hash, value));
                } else {
                    prop_assert_eq!(map.remove(hash), model.remove(&hash));
                }
                prop_assert_eq!(map.contains(hash), model.contains_key(&hash));
                if i == cut {
                    snapshot = (map.clone(), model.clone());
                }
            }
            same(&map, &model)?;
            same(&snapshot.0, &snapshot.1)?;
            for hash in model.into_keys() {
                prop_assert!(map.remove(hash).is_some());
            }
            prop_assert_eq!(map.len(), 0);
            prop_assert!(matches!(map.root, Node::Block(_)));
        }
    }

    #[test]
    fn blocks_are_well_filled() {
        let mut map = BlockMap::default();
        for n in 0..100_000u64 {
            map.insert(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
        }
        let (mut blocks, mut inner) = (0, 0);
        let mut nodes = vec![&map.root];
        while let Some(node) = nodes.pop() {
            match node {
                Node::Block(_) => blocks += 1,
                Node::Inner(node) => {
                    inner += 1;
                    nodes.extend(&node.children);
                }
            }
        }
        let bytes = blocks * 16 + inner * (16 + size_of::<Inner<u64>>()) + map.len() * 16;
        assert!(
            bytes / map.len() < 24,
            "{} bytes an entry, {blocks} blocks, {inner} inner",
            bytes / map.len()
        );
    }
}
