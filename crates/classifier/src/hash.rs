//! Keyed hashing of masked words, step by step.
//!
//! The caller provides the key: a party that adds rules (packets do, through `learn` actions) must not be able to
//! choose collisions. The mixing step is the folded 64 by 64 bit multiplication of wyhash and related hashes.

use std::hash::{BuildHasher, Hasher};

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const FINISH: u64 = 0xd6e8_feb8_6659_fd93;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// A running hash over words.
#[derive(Clone, Copy)]
pub(crate) struct Running(u64);

impl Running {
    /// The hash of no words.
    pub(crate) fn new(seed: u64) -> Running {
        Running(fold(seed ^ FINISH, MULTIPLIER))
    }

    /// Adds a word.
    #[inline]
    pub(crate) fn add(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, MULTIPLIER);
    }

    /// The hash of the words so far.
    #[inline]
    pub(crate) fn value(self) -> u64 {
        fold(self.0 ^ MULTIPLIER, FINISH)
    }
}

/// Keyed hasher for other keys.
pub(crate) struct Keyed(Running);

impl Hasher for Keyed {
    fn finish(&self) -> u64 {
        self.0.value()
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.0.add(u64::from(*b)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0.add(word);
    }

    fn write_u8(&mut self, byte: u8) {
        self.0.add(u64::from(byte));
    }

    fn write_usize(&mut self, n: usize) {
        self.0.add(n as u64);
    }
}

/// Builds [`Keyed`] from the seed.
#[derive(Clone, Copy)]
pub(crate) struct BuildKeyed(pub(crate) u64);

impl BuildHasher for BuildKeyed {
    type Hasher = Keyed;

    fn build_hasher(&self) -> Keyed {
        Keyed(Running::new(self.0))
    }
}
