//! A persistent set of bit prefixes: a sorted set in place of Open vSwitch's trie.
//!
//! It answers two questions about a value: whether a stored prefix of some length matches it, and how many of its
//! leading bits determine this for all lengths. The value's two neighbours in the order (bits, length) determine the
//! second. Among larger prefixes none matches, and the nearest shares most bits with the value. Smaller ones before
//! the nearest either match, and are shorter, or diverge from the value no later than the nearest diverges or ends.
//! A lookup in the sorted set takes about five steps of one node each, in a trie twenty or more.
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

    /// Number of leading bits of `value` that determine whether this prefix matches it.
    fn deciding_bits(&self, value: u128) -> u8 {
        let bits = u128::from(self.high) << 64 | u128::from(self.low);
        let common = (bits ^ value).leading_zeros() as u8;
        if common >= self.len { self.len } else { common + 1 }
    }
}

/// The set, with a count per prefix.
#[derive(Clone)]
pub(crate) enum PrefixSet {
    /// For a field of up to [`NARROW_BITS`] bits.
    Narrow(SortedCounts<u64>),
    /// For any field.
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

    /// Removes one prefix that was added before.
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

    /// Number of leading bits of `value` that determine for every length whether the set has its prefix. Every value
    /// that shares these bits has the same prefixes in the set.
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
