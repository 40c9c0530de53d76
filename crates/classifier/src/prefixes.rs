//! A persistent set of bit prefixes: what Open vSwitch keeps in a trie, as a sorted map.
//!
//! It answers two questions about a value: does a stored prefix of some length match it, and how many of its leading bits
//! must one look at to know that for all lengths. The second is decided by the value's two neighbours in the order (bits,
//! length): among larger prefixes none matches, and the nearest shares most bits with the value; among smaller ones, those
//! before the nearest either match, and are shorter, or part from the value no later than the nearest does or ends.
//! A sorted map instead of a trie makes some five steps of one node each of what would be twenty and more.
//!
//! Values are left-aligned in 128 bits.

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    high: u64,
    low: u64,
    len: u8,
}

impl Prefix {
    fn new(value: u128, len: u8) -> Prefix {
        let bits = value & leading(len);
        Prefix { high: (bits >> 64) as u64, low: bits as u64, len }
    }

    /// Number of leading bits of `value` that show whether this prefix matches it, and nothing beyond.
    fn deciding_bits(&self, value: u128) -> u8 {
        let bits = u128::from(self.high) << 64 | u128::from(self.low);
        let common = (bits ^ value).leading_zeros() as u8;
        if common >= self.len { self.len } else { common + 1 }
    }
}

/// The set; counts how often each prefix was added.
#[derive(Clone, Default)]
pub(crate) struct PrefixSet {
    counts: imbl::OrdMap<Prefix, u32>,
}

impl PrefixSet {
    /// Adds the prefix of `len` (1 to 128) bits of `value`.
    pub(crate) fn insert(&mut self, value: u128, len: u8) {
        let prefix = Prefix::new(value, len);
        // Most are new: one way down the tree is enough for them.
        if let Some(n) = self.counts.insert(prefix, 1) {
            self.counts.insert(prefix, n + 1);
        }
    }

    /// Takes away one prefix that was added before.
    pub(crate) fn remove(&mut self, value: u128, len: u8) {
        let prefix = Prefix::new(value, len);
        // Most were added once: one way down the tree is enough for them.
        let n = self.counts.remove(&prefix).expect("a prefix is removed that was added before");
        if n > 1 {
            self.counts.insert(prefix, n - 1);
        }
    }

    /// Whether the first `len` bits of `value` are in the set as a prefix of that length.
    pub(crate) fn contains(&self, value: u128, len: u8) -> bool {
        self.counts.contains_key(&Prefix::new(value, len))
    }

    /// Number of leading bits of `value` that decide for every length whether the set has a prefix of it; every value that
    /// shares these bits has the same prefixes in the set.
    pub(crate) fn deciding_bits(&self, value: u128) -> u8 {
        let at = Prefix::new(value, 128);
        let neighbours = [self.counts.get_prev(&at), self.counts.get_next(&at)];
        neighbours.iter().flatten().map(|(prefix, _)| prefix.deciding_bits(value)).max().unwrap_or(0)
    }

    /// Number of different prefixes.
    pub(crate) fn len(&self) -> usize {
        self.counts.len()
    }
}

/// The first `len` bits set.
pub(crate) fn leading(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}
