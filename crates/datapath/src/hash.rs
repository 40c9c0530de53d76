//! Keyed hash of flow keys: multiply and fold (64×64→128 bits, halves xored) over pairs of words, each word mixed
//! with a secret of the process, so that a sender cannot direct packets to one bucket.
//!
//! Reads only the 64-byte blocks that a key has.

use flow::{FlowKey, KeyMask};

const ALL_ONES: [u64; 8] = [u64::MAX; 8];

/// Hashes keys with one seed.
#[derive(Clone)]
pub(crate) struct KeyHasher {
    secret: [u64; 10],
}

#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// The next number of the SplitMix64 sequence (Steele, Lea, Flood 2014).
pub(crate) fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl KeyHasher {
    /// A hasher whose secrets are derived from `seed`.
    pub(crate) fn new(seed: u64) -> KeyHasher {
        let mut state = seed;
        KeyHasher { secret: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    #[inline(always)]
    fn block(&self, words: &[u64; 8], mask: &[u64; 8], seed: u64) -> u64 {
        let s = &self.secret;
        let w = |i: usize| (words[i] & mask[i]) ^ s[i];
        let a = fold(w(0) ^ seed, w(1));
        let b = fold(w(2), w(3) ^ seed);
        let c = fold(w(4), w(5));
        let d = fold(w(6), w(7));
        fold(a ^ c.rotate_left(29) ^ s[8], b ^ d.rotate_left(31) ^ s[9])
    }

    /// Hash of a whole key.
    #[inline(always)]
    pub(crate) fn key(&self, key: &FlowKey) -> u64 {
        let first = self.block(key.block(0), &ALL_ONES, 0);
        key.extension_blocks().fold(first, |h, i| self.block(key.block(i), &ALL_ONES, h))
    }

    /// Hash of the base block of a key under a mask of it.
    #[inline(always)]
    pub(crate) fn masked_base(&self, key: &FlowKey, mask: &[u64; 8]) -> u64 {
        self.block(key.block(0), mask, 0)
    }

    /// Hash of a key under a mask.
    #[inline(always)]
    pub(crate) fn masked(&self, key: &FlowKey, mask: &KeyMask) -> u64 {
        let first = self.block(key.block(0), mask.block(0), 0);
        key.extension_blocks().fold(first, |h, i| self.block(key.block(i), mask.block(i), h))
    }

    /// Hash of one number.
    #[inline]
    pub(crate) fn number(&self, n: u64) -> u64 {
        fold(n ^ self.secret[0], self.secret[1])
    }

    /// Hash of a ufid.
    #[inline]
    pub(crate) fn wide(&self, n: u128) -> u64 {
        fold(n as u64 ^ self.secret[2], (n >> 64) as u64 ^ self.secret[3])
    }
}
