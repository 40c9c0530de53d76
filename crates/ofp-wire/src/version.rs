//! Version numbers of the protocol and sets of them.

use std::fmt;

/// A protocol version as in a header (OpenFlow 1.3 §7.1 "version"); any byte may arrive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version(pub u8);

impl Version {
    /// OpenFlow 1.0.
    pub const V10: Version = Version(1);
    /// OpenFlow 1.1.
    pub const V11: Version = Version(2);
    /// OpenFlow 1.2.
    pub const V12: Version = Version(3);
    /// OpenFlow 1.3.
    pub const V13: Version = Version(4);
    /// OpenFlow 1.4.
    pub const V14: Version = Version(5);
    /// OpenFlow 1.5.
    pub const V15: Version = Version(6);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n @ 1..=6 => write!(f, "OpenFlow 1.{}", n - 1),
            n => write!(f, "OpenFlow {n:#04x}"),
        }
    }
}

/// A set of versions 0 to 31, as in the bitmap of a hello (OpenFlow 1.3 §7.5.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct VersionSet(pub u32);

impl VersionSet {
    /// The versions that Sluice encodes and decodes.
    pub const IMPLEMENTED: VersionSet = VersionSet(0x7e);

    /// The set of these versions, without those above 31.
    pub fn of(versions: &[Version]) -> VersionSet {
        VersionSet(versions.iter().filter(|v| v.0 < 32).fold(0, |set, v| set | 1 << v.0))
    }

    /// Every version from 1 to `highest`: the meaning of a hello without a bitmap.
    pub fn up_to(highest: Version) -> VersionSet {
        VersionSet(if highest.0 >= 31 { !1 } else { (1 << (highest.0 + 1)) - 2 })
    }

    /// Whether it has `version`.
    pub fn contains(self, version: Version) -> bool {
        version.0 < 32 && self.0 & 1 << version.0 != 0
    }

    /// Versions in both.
    pub fn and(self, other: VersionSet) -> VersionSet {
        VersionSet(self.0 & other.0)
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The highest one.
    pub fn highest(self) -> Option<Version> {
        (self.0 != 0).then(|| Version(31 - self.0.leading_zeros() as u8))
    }
}

impl fmt::Display for VersionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, n) in (0..32u8).filter(|n| self.0 & 1 << n != 0).enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, Version(n))?;
        }
        Ok(())
    }
}
