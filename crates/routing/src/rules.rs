//! [`Rule`]: the routing policy, which chooses the tables of a lookup (`ip rule`).

use crate::prefix::Prefix;
use crate::routes::RouteKind;
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

/// Action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RuleAction {
    /// Use a table, and go on to the next rule if that has no route.
    Table {
        /// The table.
        table: u32,
        /// Its routes of networks of this length or shorter do not apply.
        suppress_len: Option<u8>,
    },
    /// Go on at the rule of this priority.
    Goto(u32),
    /// Go on to the next rule.
    Nop,
    /// There is no route, for the reason of a route of this kind.
    Refuse(RouteKind),
}

/// A rule of the routing policy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rule {
    /// Lower ones apply first.
    pub priority: u32,
    /// For lookups of IPv4 addresses, else of IPv6 addresses.
    pub is_ipv4: bool,
    /// The source addresses; `None` for all.
    pub from: Option<Prefix>,
    /// The destinations; `None` for all.
    pub to: Option<Prefix>,
    /// Value and mask of the mark; the mask 0 for all.
    pub mark: (u32, u32),
    /// It selects by something that packets of tunnels never have, such as an input device.
    pub is_foreign: bool,
    /// Matches all other lookups instead.
    pub invert: bool,
    /// Its action.
    pub action: RuleAction,
}

impl Rule {
    /// The rule of this priority that selects nothing, and uses a table.
    pub fn new(is_ipv4: bool, priority: u32, table: u32) -> Rule {
        let action = RuleAction::Table { table, suppress_len: None };
        Rule {
            priority,
            is_ipv4,
            from: None,
            to: None,
            mark: (0, 0),
            is_foreign: false,
            invert: false,
            action,
        }
    }

    /// The table that it uses.
    pub fn table(&self) -> Option<u32> {
        match self.action {
            RuleAction::Table { table, .. } => Some(table),
            _ => None,
        }
    }

    /// True if it applies to a lookup.
    pub(crate) fn matches(&self, mark: u32, source: IpAddr, dst: IpAddr) -> bool {
        let selects = !self.is_foreign
            && (self.mark.0 ^ mark) & self.mark.1 == 0
            && self.from.is_none_or(|from| from.contains(source))
            && self.to.is_none_or(|to| to.contains(dst));
        dst.is_ipv4() == self.is_ipv4 && selects != self.invert
    }
}

/// The rules of a machine without others, with the priorities of Linux.
pub fn standard_rules() -> Vec<Rule> {
    vec![
        Rule::new(true, 0, TABLE_LOCAL),
        Rule::new(true, 0x7ffe, TABLE_MAIN),
        Rule::new(true, 0x7fff, TABLE_DEFAULT),
        Rule::new(false, 0, TABLE_LOCAL),
        Rule::new(false, 0x7ffe, TABLE_MAIN),
    ]
}
