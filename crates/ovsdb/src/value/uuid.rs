//! [`Uuid`], and sources of new ones. This crate draws no random numbers: a server is given a [`UuidSource`].

use std::fmt;
use std::str::FromStr;

/// A UUID. Ordered by its bytes, which is also the order of its text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid([u8; 16]);

/// The text was not 36 characters of the form `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a UUID")]
pub struct UuidParseError(pub String);

impl Uuid {
    /// The UUID whose bits are all zero.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// From its 16 bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Uuid(bytes)
    }

    /// From 16 random bytes: sets the version bits of UUID version 4 (RFC 4122 section 4.4).
    pub const fn from_random_bytes(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    /// Its 16 bytes, most significant first.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl FromStr for Uuid {
    type Err = UuidParseError;

    fn from_str(text: &str) -> Result<Self, UuidParseError> {
        let fail = || UuidParseError(text.chars().take(64).collect());
        if text.len() != 36 {
            return Err(fail());
        }
        uuid::Uuid::try_parse(text).map(|parsed| Uuid(*parsed.as_bytes())).map_err(|_| fail())
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&uuid::Uuid::from_bytes(self.0).hyphenated(), f)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Source of new UUIDs: the caller's randomness, or [`SeededUuids`] in tests and simulation.
pub trait UuidSource {
    /// A UUID never given before.
    fn next_uuid(&mut self) -> Uuid;
}

impl<F: FnMut() -> Uuid> UuidSource for F {
    fn next_uuid(&mut self) -> Uuid {
        self()
    }
}

/// A reproducible source: SplitMix64 from a seed. Not for production: its output is predictable.
#[derive(Clone, Debug)]
pub struct SeededUuids {
    state: u64,
}

impl SeededUuids {
    /// A source with a fixed sequence for each seed.
    pub fn new(seed: u64) -> Self {
        SeededUuids { state: seed }
    }

    fn next_word(&mut self) -> [u8; 8] {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_be_bytes()
    }
}

impl UuidSource for SeededUuids {
    fn next_uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next_word());
        bytes[8..].copy_from_slice(&self.next_word());
        Uuid::from_random_bytes(bytes)
    }
}
