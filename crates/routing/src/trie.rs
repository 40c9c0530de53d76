//! [`Trie`]: a persistent map from bit prefixes to values, path-compressed.
//!
//! Invariants: a node's bits extend its parent's; a node without a value has two children. A clone shares all nodes; an
//! update copies the shared nodes of one path, at most 129.

use crate::prefix::ones;
use std::sync::Arc;

#[derive(Clone)]
struct Node<T> {
    bits: u128,
    len: u8,
    value: Option<T>,
    children: [Option<Arc<Node<T>>>; 2],
}

type Link<T> = Option<Arc<Node<T>>>;

/// See the module. Bits are left-aligned, those beyond a prefix's length zero.
#[derive(Clone)]
pub(crate) struct Trie<T> {
    root: Link<T>,
}

impl<T> Default for Trie<T> {
    fn default() -> Trie<T> {
        Trie { root: None }
    }
}

fn bit(bits: u128, at: u8) -> usize {
    (bits >> (127 - at) & 1) as usize
}

impl<T: Clone> Trie<T> {
    /// Whether it has no value.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The value of a prefix.
    pub(crate) fn get(&self, bits: u128, len: u8) -> Option<&T> {
        let mut next = self.root.as_ref();
        while let Some(node) = next {
            if node.len >= len {
                return if node.len == len && node.bits == bits { node.value.as_ref() } else { None };
            }
            next = node.children[bit(bits, node.len)].as_ref();
        }
        None
    }

    /// Changes the value of a prefix in place; `None` is the absence of a value, before and after.
    pub(crate) fn update(&mut self, bits: u128, len: u8, change: impl FnOnce(&mut Option<T>)) {
        update(&mut self.root, bits, len, change);
    }

    /// Calls `visit` for each value whose prefix covers the first `len` of `bits`, shortest first.
    pub(crate) fn covering<'a>(&'a self, bits: u128, len: u8, mut visit: impl FnMut(u128, u8, &'a T)) {
        let mut next = self.root.as_ref();
        while let Some(node) = next {
            if node.len > len || (node.bits ^ bits) & ones(node.len) != 0 {
                break;
            }
            if let Some(value) = &node.value {
                visit(node.bits, node.len, value);
            }
            if node.len == len {
                break;
            }
            next = node.children[bit(bits, node.len)].as_ref();
        }
    }

    /// All values with their prefixes, in order of bits, shorter prefixes first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u128, u8, &T)> {
        let mut stack: Vec<&Node<T>> = self.root.as_deref().into_iter().collect();
        std::iter::from_fn(move || {
            loop {
                let node = stack.pop()?;
                stack.extend(node.children.iter().rev().filter_map(Option::as_deref));
                if let Some(value) = &node.value {
                    return Some((node.bits, node.len, value));
                }
            }
        })
    }
}

fn update<T: Clone>(link: &mut Link<T>, bits: u128, len: u8, change: impl FnOnce(&mut Option<T>)) {
    let Some(node) = link else {
        *link = leaf(bits, len, change);
        return;
    };
    let common = ((node.bits ^ bits).leading_zeros() as u8).min(node.len).min(len);
    if common == node.len {
        let own = Arc::make_mut(node);
        match len == own.len {
            true => change(&mut own.value),
            false => update(&mut own.children[bit(bits, common)], bits, len, change),
        }
        compress(link);
        return;
    }
    let Some(new) = leaf(bits, len, change) else { return };
    let old = link.take();
    let old_bit = old.as_ref().map_or(0, |n| bit(n.bits, common));
    *link = Some(if common == len {
        let mut new = new;
        Arc::make_mut(&mut new).children[old_bit] = old;
        new
    } else {
        let mut children = [None, None];
        children[old_bit] = old;
        children[1 - old_bit] = Some(new);
        Arc::new(Node { bits: bits & ones(common), len: common, value: None, children })
    });
}

fn leaf<T>(bits: u128, len: u8, change: impl FnOnce(&mut Option<T>)) -> Link<T> {
    let mut value = None;
    change(&mut value);
    value.is_some().then(|| Arc::new(Node { bits, len, value, children: [None, None] }))
}

/// Removes a node that is neither a value nor a branch.
fn compress<T: Clone>(link: &mut Link<T>) {
    let Some(node) = link else { return };
    if node.value.is_some() || node.children.iter().all(Option::is_some) {
        return;
    }
    *link = Arc::make_mut(node).children.iter_mut().find_map(Option::take);
}
