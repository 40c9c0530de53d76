//! A persistent set of bit prefixes: what Open vSwitch keeps in a trie, as a sorted set.
//!
//! It answers two questions about a value: does a stored prefix of some length match it, and how many of its leading bits
//! must one look at to know that for all lengths. The second is decided by the value's two neighbours in the order (bits,
//! length): among larger prefixes none matches, and the nearest shares most bits with the value; among smaller ones, those
//! before the nearest either match, and are shorter, or part from the value no later than the nearest does or ends.
//! A sorted set instead of a trie makes some five steps of one node each of what would be twenty and more.
//!
//! Fields of up to [`NARROW_BITS`] bits have keys of one word.
//!
//! Values are left-aligned in 128 bits.

use crate::sorted::SortedCounts;

/// Widest field whose prefixes fit one word, their length in its last byte.
const NARROW_BITS: u8 = 56;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Prefix {
    high: u64,
    low: u64,
    len: u8,
}

impl Prefix {
    fn new(value: u128, len: u8) -> Prefix {
        let bits = value & leading(len);
        Prefix { high: (bits >> 64) as u64, low: bits as u64, len }
    }

    /// The prefix of a narrow field as one word, in the same order.
    fn to_narrow(self) -> u64 {
        self.high | u64::from(self.len)
    }

    fn from_narrow(word: u64) -> Prefix {
        Prefix { high: word & !0xff, low: 0, len: word as u8 }
    }

    /// Number of leading bits of `value` that show whether this prefix matches it, and nothing beyond.
    fn deciding_bits(&self, value: u128) -> u8 {
        let bits = u128::from(self.high) << 64 | u128::from(self.low);
        let common = (bits ^ value).leading_zeros() as u8;
        if common >= self.len { self.len } else { common + 1 }
    }
}

/// The set; counts how often each prefix was added.
#[derive(Clone)]
pub(crate) enum PrefixSet {
    /// Of a field of up to [`NARROW_BITS`] bits.
    Narrow(SortedCounts<u64>),
    /// Of any field.
    Wide(SortedCounts<Prefix>),
}

impl PrefixSet {
    /// An empty set of prefixes of a field of `width` bits.
    pub(crate) fn new(width: u8) -> PrefixSet {
        if width <= NARROW_BITS {
            PrefixSet::Narrow(SortedCounts::default())
        } else {
            PrefixSet::Wide(SortedCounts::default())
        }
    }

    /// Adds the prefix of `len` (1 to the field's width) bits of `value`.
    pub(crate) fn insert(&mut self, value: u128, len: u8) {
        let prefix = Prefix::new(value, len);
        match self {
            PrefixSet::Narrow(set) => set.add(prefix.to_narrow()),
            PrefixSet::Wide(set) => set.add(prefix),
        }
    }

    /// Takes away one prefix that was added before.
    pub(crate) fn remove(&mut self, value: u128, len: u8) {
        let prefix = Prefix::new(value, len);
        match self {
            PrefixSet::Narrow(set) => set.remove(prefix.to_narrow()),
            PrefixSet::Wide(set) => set.remove(prefix),
        }
    }

    /// Whether the first `len` bits of `value` are in the set as a prefix of that length.
    pub(crate) fn contains(&self, value: u128, len: u8) -> bool {
        let prefix = Prefix::new(value, len);
        match self {
            PrefixSet::Narrow(set) => set.contains(prefix.to_narrow()),
            PrefixSet::Wide(set) => set.contains(prefix),
        }
    }

    /// Number of leading bits of `value` that decide for every length whether the set has a prefix of it; every value that
    /// shares these bits has the same prefixes in the set.
    pub(crate) fn deciding_bits(&self, value: u128) -> u8 {
        // Behind all prefixes of the value.
        let at = Prefix::new(value, 128);
        let neighbours = match self {
            PrefixSet::Narrow(set) => {
                set.neighbours(at.to_narrow()).map(|word| word.map(Prefix::from_narrow))
            }
            PrefixSet::Wide(set) => set.neighbours(at),
        };
        neighbours.iter().flatten().map(|prefix| prefix.deciding_bits(value)).max().unwrap_or(0)
    }

    /// Number of different prefixes.
    pub(crate) fn len(&self) -> usize {
        match self {
            PrefixSet::Narrow(set) => set.len(),
            PrefixSet::Wide(set) => set.len(),
        }
    }
}

/// The first `len` bits set.
pub(crate) fn leading(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}
