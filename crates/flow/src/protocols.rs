//! Flow formats of OpenFlow: the forms in which a rule travels, one for each version, and four for OpenFlow 1.0.

use std::fmt;
use std::ops::{BitAnd, BitAndAssign, BitOr};

/// A set of flow formats. It prints as `ovs-ofctl` does: `any`, `NXM,OXM`, `OpenFlow10-table_id`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Protocols(u16);

/// Names of single formats, in order of their bits.
const NAMES: [&str; 9] = [
    "OpenFlow10-table_id",
    "OpenFlow10+table_id",
    "NXM-table_id",
    "NXM+table_id",
    "OpenFlow11",
    "OXM-OpenFlow12",
    "OXM-OpenFlow13",
    "OXM-OpenFlow14",
    "OXM-OpenFlow15",
];

/// Names of several formats, the first that fits applies.
const GROUPS: [(&str, Protocols); 4] = [
    ("any", Protocols::ANY),
    ("OpenFlow10", Protocols::OF10),
    ("NXM", Protocols::NXM),
    ("OXM", Protocols::OXM),
];

impl Protocols {
    /// None.
    pub const NONE: Protocols = Protocols(0);
    /// All.
    pub const ANY: Protocols = Protocols(0x1ff);
    /// The fixed structure of OpenFlow 1.0, without and with the number of a table.
    pub const OF10: Protocols = Protocols(0x003);
    /// Nicira's extensible match in OpenFlow 1.0, without and with the number of a table.
    pub const NXM: Protocols = Protocols(0x00c);
    /// The fixed structure of OpenFlow 1.1.
    pub const OF11: Protocols = Protocols(0x010);
    /// The extensible match of OpenFlow 1.2 and later.
    pub const OXM: Protocols = Protocols(0x1e0);
    /// Both extensible matches.
    pub const NXM_OXM: Protocols = Protocols(0x1ec);
    /// Both extensible matches, and OpenFlow 1.1.
    pub const NXM_OF11_UP: Protocols = Protocols(0x1fc);
    /// OpenFlow 1.1 and later.
    pub const OF11_UP: Protocols = Protocols(0x1f0);
    /// OpenFlow 1.3 and later.
    pub const OF13_UP: Protocols = Protocols(0x1c0);
    /// Those that carry the number of a table.
    pub const TABLE_ID: Protocols = Protocols(0x1fa);

    /// The formats of a version, given as in a header.
    pub fn of_version(version: u8) -> Protocols {
        match version {
            1 => Protocols(0x00f),
            2..=6 => Protocols(0x010 << (version - 2)),
            _ => Protocols::NONE,
        }
    }

    /// The format of a name, or several: `NXM`, `oxm-openflow13`.
    pub fn by_name(name: &str) -> Option<Protocols> {
        let group = GROUPS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, set)| *set);
        let bit = || NAMES.iter().position(|n| n.eq_ignore_ascii_case(name));
        group.or_else(|| bit().map(|bit| Protocols(1 << bit)))
    }

    /// All names of formats.
    pub fn names() -> impl Iterator<Item = &'static str> {
        GROUPS.iter().map(|(name, _)| *name).chain(NAMES)
    }

    /// Whether the set has no format.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether any format is in both.
    pub fn meets(self, other: Protocols) -> bool {
        !(self & other).is_empty()
    }

    /// The protocols of `self` that are not in `other`.
    #[must_use]
    pub fn without(self, other: Protocols) -> Protocols {
        Protocols(self.0 & !other.0)
    }

    /// The first format alone: the lowest version.
    pub fn first(self) -> Option<Protocols> {
        (self.0 != 0).then(|| Protocols(1 << self.0.trailing_zeros()))
    }

    /// The versions of its formats, as in a header, upwards.
    pub fn versions(self) -> impl Iterator<Item = u8> {
        (1..=6).filter(move |version| self.meets(Protocols::of_version(*version)))
    }
}

impl BitAnd for Protocols {
    type Output = Protocols;

    fn bitand(self, other: Protocols) -> Protocols {
        Protocols(self.0 & other.0)
    }
}

impl BitAndAssign for Protocols {
    fn bitand_assign(&mut self, other: Protocols) {
        self.0 &= other.0;
    }
}

impl BitOr for Protocols {
    type Output = Protocols;

    fn bitor(self, other: Protocols) -> Protocols {
        Protocols(self.0 | other.0)
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let (mut rest, mut separator) = (*self, "");
        while let Some(first) = rest.first() {
            let group = GROUPS.iter().find(|(_, set)| rest & *set == *set);
            let (name, set) = group.copied().unwrap_or((NAMES[first.0.trailing_zeros() as usize], first));
            write!(f, "{separator}{name}")?;
            (rest, separator) = (rest.without(set), ",");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ovs_ofctl() {
        for (set, name) in [
            (Protocols::ANY, "any"),
            (Protocols::NONE, "none"),
            (Protocols::NXM_OXM, "NXM,OXM"),
            (Protocols::NXM_OF11_UP, "NXM,OXM,OpenFlow11"),
            (Protocols::TABLE_ID, "OXM,OpenFlow10+table_id,NXM+table_id,OpenFlow11"),
            (Protocols::OF13_UP, "OXM-OpenFlow13,OXM-OpenFlow14,OXM-OpenFlow15"),
            (Protocols::ANY.without(Protocols::OF11_UP), "OpenFlow10,NXM"),
            (Protocols::of_version(2), "OpenFlow11"),
            (Protocols::of_version(9), "none"),
        ] {
            assert_eq!(set.to_string(), name);
        }
        for name in Protocols::names() {
            assert_eq!(Protocols::by_name(&name.to_lowercase()).unwrap().to_string(), name);
        }
        assert_eq!(Protocols::by_name("OpenFlow12"), None);
        assert_eq!(Protocols::ANY.versions().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(Protocols::ANY.first().unwrap().to_string(), "OpenFlow10-table_id");
    }
}
