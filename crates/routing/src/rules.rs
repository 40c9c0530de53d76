//! [`Rule`]: the routing policy, which chooses the tables of a lookup (`ip rule`).

use crate::prefix::Prefix;
use std::net::IpAddr;

/// The table of rules of last resort (`RT_TABLE_DEFAULT`).
pub const TABLE_DEFAULT: u32 = 253;
/// The table of routes without another one, and of routes by command (`RT_TABLE_MAIN`).
pub const TABLE_MAIN: u32 = 254;
/// The table of this machine's own addresses (`RT_TABLE_LOCAL`).
pub const TABLE_LOCAL: u32 = 255;

/// Whether a table exists without a rule by the administrator.
pub fn is_standard_table(table: u32) -> bool {
    (TABLE_DEFAULT..=TABLE_LOCAL).contains(&table)
}

/// A rule: lookups that match it use its table, and go on to the next rule if that has no route.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rule {
    /// Lower ones apply first.
    pub priority: u32,
    /// For lookups of IPv4 addresses, else of IPv6 addresses.
    pub is_ipv4: bool,
    /// The source addresses; `None` for all.
    pub from: Option<Prefix>,
    /// Matches all other source addresses instead.
    pub invert: bool,
    /// The table.
    pub table: u32,
}

impl Rule {
    /// Whether it applies to a source address of its family.
    pub(crate) fn matches(&self, source: IpAddr) -> bool {
        source.is_ipv4() == self.is_ipv4 && self.from.is_none_or(|from| from.contains(source)) != self.invert
    }
}

/// The rules that always exist, with the priorities of Linux.
pub fn standard_rules() -> Vec<Rule> {
    let rule = |is_ipv4, priority, table| Rule { priority, is_ipv4, from: None, invert: false, table };
    vec![
        rule(true, 0, TABLE_LOCAL),
        rule(true, 0x7ffe, TABLE_MAIN),
        rule(true, 0x7fff, TABLE_DEFAULT),
        rule(false, 0, TABLE_LOCAL),
        rule(false, 0x7ffe, TABLE_MAIN),
    ]
}
