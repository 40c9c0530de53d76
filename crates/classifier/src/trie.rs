//! A persistent trie of bit prefixes, path-compressed.
//!
//! It answers two questions about a value: which of the stored prefix lengths match it, and how many of its leading bits
//! one must look at to know that. Values are left-aligned in 128 bits. Invariant: a node without a rule of its own has two
//! children (so the trie holds nothing but what its prefixes need, and is empty after they are all removed).

use std::sync::Arc;

#[derive(Clone)]
struct Node {
    /// The edge to this node, left-aligned; zero beyond `len`.
    bits: u128,
    len: u8,
    /// Number of rules whose prefix ends here.
    rules: u32,
    children: [Option<Arc<Node>>; 2],
}

type Slot = Option<Arc<Node>>;

/// What the trie knows of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    /// Number of leading bits that decide the answer for all lengths.
    pub(crate) bits: u8,
    lengths: u128,
}

impl Found {
    /// The answer of a trie that must not be used: every length may match.
    pub(crate) const ANY: Found = Found { bits: 0, lengths: u128::MAX };

    /// Whether a prefix of `len` bits (at least 1) may match.
    pub(crate) fn may_match(&self, len: u8) -> bool {
        self.lengths >> (len - 1) & 1 != 0
    }
}

/// The trie.
#[derive(Clone, Default)]
pub(crate) struct Trie {
    root: Slot,
}

impl Trie {
    /// Adds the prefix of `len` (1 to 128) bits of `value`.
    pub(crate) fn insert(&mut self, value: u128, len: u8) {
        insert(&mut self.root, value & leading(len), len);
    }

    /// Takes away one prefix that was added before.
    pub(crate) fn remove(&mut self, value: u128, len: u8) {
        remove(&mut self.root, value & leading(len), len);
    }

    /// What is known of `value`, of which `width` bits count.
    pub(crate) fn lookup(&self, value: u128, width: u8) -> Found {
        let mut found = Found::default();
        let mut slot = &self.root;
        let mut has_sibling = false;
        while let Some(node) = slot {
            let equal = common(value << found.bits, node.bits).min(node.len);
            found.bits += equal;
            if equal < node.len {
                found.bits += 1;
                return found;
            }
            if node.rules > 0 {
                found.lengths |= 1 << (found.bits - 1);
            }
            if found.bits >= width {
                return found;
            }
            has_sibling = node.children.iter().any(Option::is_some);
            slot = &node.children[branch(value << found.bits)];
        }
        // The branch that would go on with the value's next bit does not exist. Its sibling, if there is one, must be ruled out.
        found.bits += u8::from(has_sibling);
        found
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        nodes(&self.root)
    }
}

/// The first `len` bits set.
pub(crate) fn leading(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

fn common(a: u128, b: u128) -> u8 {
    (a ^ b).leading_zeros() as u8
}

fn branch(bits: u128) -> usize {
    (bits >> 127) as usize
}

fn leaf(bits: u128, len: u8) -> Slot {
    Some(Arc::new(Node { bits, len, rules: 1, children: [None, None] }))
}

fn insert(slot: &mut Slot, bits: u128, len: u8) {
    let Some(shared) = slot else {
        *slot = leaf(bits, len);
        return;
    };
    let equal = common(bits, shared.bits).min(shared.len).min(len);
    let node = Arc::make_mut(shared);
    if equal < node.len {
        let above = Node { bits: bits & leading(equal), len: equal, rules: 0, children: [None, None] };
        let mut below = std::mem::replace(node, above);
        below.bits <<= equal;
        below.len -= equal;
        let side = branch(below.bits);
        node.children[side] = Some(Arc::new(below));
    }
    if equal == len {
        node.rules += 1;
    } else {
        let rest = bits << equal;
        insert(&mut node.children[branch(rest)], rest, len - equal);
    }
}

fn remove(slot: &mut Slot, bits: u128, len: u8) {
    let Some(shared) = slot else { unreachable!("a prefix is removed that was not added") };
    let node = Arc::make_mut(shared);
    assert!(
        node.len <= len && node.bits == bits & leading(node.len),
        "a prefix is removed that was not added"
    );
    if node.len == len {
        node.rules -= 1;
    } else {
        let rest = bits << node.len;
        remove(&mut node.children[branch(rest)], rest, len - node.len);
    }
    if node.rules > 0 {
        return;
    }
    match std::mem::take(&mut node.children) {
        [None, None] => *slot = None,
        [Some(only), None] | [None, Some(only)] => {
            let mut only = Arc::unwrap_or_clone(only);
            only.bits = node.bits | only.bits >> node.len;
            only.len += node.len;
            *node = only;
        }
        both => node.children = both,
    }
}

fn nodes(slot: &Slot) -> usize {
    slot.as_ref().map_or(0, |node| 1 + node.children.iter().map(nodes).sum::<usize>())
}
