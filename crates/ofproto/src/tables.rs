//! The flow tables of a bridge as one persistent value: a clone is a snapshot, a change makes a new version.
//!
//! Translation reads a snapshot and never waits; whoever changes tables works on a clone of his own and publishes it
//! whole, so a bundle is seen entirely or not at all (law 6).

use crate::rule::Rule;
use classifier::{Classifier, DEFAULT_PREFIX_FIELDS};
use flow::fields::FieldId;
use flow::{Flow, Mask, Match, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU64, Ordering};

/// A field that a table cannot be looked up by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPrefixField {
    /// There is no field of that name.
    Unknown,
    /// Its values have no prefixes.
    Incompatible,
}

/// The field of that name, if a table can be looked up by its prefixes (`Flow_Table.prefixes`).
///
/// # Errors
/// It is none that addresses are in.
pub fn prefix_field(name: &str) -> Result<FieldId, NoPrefixField> {
    use FieldId as F;
    let field = F::by_name(name).ok_or(NoPrefixField::Unknown)?;
    match field {
        F::TunId | F::TunSrc | F::TunDst | F::TunIpv6Src | F::TunIpv6Dst => Ok(field),
        F::CtNwSrc | F::CtNwDst | F::CtIpv6Src | F::CtIpv6Dst => Ok(field),
        F::IpSrc | F::IpDst | F::Ipv6Src | F::Ipv6Dst => Ok(field),
        _ => Err(NoPrefixField::Incompatible),
    }
}

/// Counters of one table, shared by all versions.
#[derive(Debug, Default)]
pub struct TableCounters {
    matched: AtomicU64,
    missed: AtomicU64,
}

impl TableCounters {
    /// Counts `packets` lookups that found a rule, or did not.
    pub fn credit(&self, hit: bool, packets: u64) {
        let counter = if hit { &self.matched } else { &self.missed };
        counter.fetch_add(packets, Ordering::Relaxed);
    }

    /// Lookups and matches so far.
    pub fn counts(&self) -> (u64, u64) {
        let matched = self.matched.load(Ordering::Relaxed);
        (matched + self.missed.load(Ordering::Relaxed), matched)
    }
}

/// One table.
#[derive(Clone)]
pub struct Table {
    rules: Classifier<Arc<Rule>>,
    /// How many of them end by time.
    mortal: usize,
    /// Counters.
    pub counters: Arc<TableCounters>,
}

/// All tables of a bridge, number 255 excepted.
#[derive(Clone)]
pub struct Tables {
    tables: Arc<[Arc<Table>]>,
}

impl Tables {
    /// Empty tables; `seed` keys their hash functions.
    pub fn new(seed: u64) -> Tables {
        let table = |n: u64| {
            let counters = Arc::new(TableCounters::default());
            Arc::new(Table { rules: Classifier::new(seed ^ n), mortal: 0, counters })
        };
        Tables { tables: (0..=u64::from(TableId::INTERNAL.0)).map(table).collect() }
    }

    /// The table of that number; `None` for 255.
    pub fn table(&self, id: TableId) -> Option<&Arc<Table>> {
        self.tables.get(usize::from(id.0))
    }

    fn table_mut(&mut self, id: TableId) -> Option<&mut Table> {
        let tables = Arc::make_mut(&mut self.tables);
        tables.get_mut(usize::from(id.0)).map(Arc::make_mut)
    }

    /// Sets the fields by whose prefixes tables are looked up: those of a table's number, the default for all others. A table
    /// whose fields stay costs one comparison.
    pub fn set_prefixes(&mut self, by_table: &BTreeMap<u8, Vec<FieldId>>) {
        for n in 0..self.tables.len() as u8 {
            let fields = by_table.get(&n).map_or(&DEFAULT_PREFIX_FIELDS[..], Vec::as_slice);
            if !self.tables[usize::from(n)].rules.prefix_fields().eq(fields.iter().copied())
                && let Some(table) = self.table_mut(TableId(n))
            {
                table.rules.set_prefix_fields(fields);
            }
        }
    }

    /// The rule with the highest priority that matches `flow`; the bits looked at are added to `wc`.
    pub fn lookup(&self, id: TableId, flow: &Flow, wc: Option<&mut Mask>) -> Option<&Arc<Rule>> {
        self.table(id)?.rules.lookup(flow, wc)
    }

    /// Adds a rule; one with the same match and priority in its table is replaced and returned.
    pub fn insert(&mut self, rule: Arc<Rule>) -> Option<Arc<Rule>> {
        let (matching, priority, mortal) = (rule.matching, rule.priority, rule.is_mortal());
        let table = self.table_mut(rule.table)?;
        let replaced = table.rules.insert(&matching, priority, rule);
        table.mortal += usize::from(mortal);
        table.mortal -= usize::from(replaced.as_ref().is_some_and(|r| r.is_mortal()));
        replaced
    }

    /// Removes exactly the rule with this match and priority.
    pub fn remove(&mut self, id: TableId, matching: &Match, priority: i32) -> Option<Arc<Rule>> {
        let table = self.table_mut(id)?;
        let removed = table.rules.remove(matching, priority)?;
        table.mortal -= usize::from(removed.is_mortal());
        Some(removed)
    }

    /// The rules of the tables in which any rule ends by time.
    pub fn iter_mortal(&self) -> impl Iterator<Item = &Arc<Rule>> {
        let tables = self.tables.iter().filter(|t| t.mortal > 0);
        tables.flat_map(|t| t.rules.iter().map(|(_, _, r)| r)).filter(|r| r.is_mortal())
    }

    /// The rule with exactly this match and priority.
    pub fn find_exactly(&self, id: TableId, matching: &Match, priority: i32) -> Option<&Arc<Rule>> {
        self.table(id)?.rules.find_exactly(matching, priority)
    }

    /// Whether another rule of the same priority could match a packet that `matching` matches.
    pub fn overlaps(&self, id: TableId, matching: &Match, priority: i32) -> bool {
        self.table(id).is_some_and(|t| t.rules.overlaps(matching, priority))
    }

    /// The rules of one table, or of all, whose match lies within `matching`.
    pub fn within(&self, id: TableId, matching: &Match) -> Vec<Arc<Rule>> {
        let of_table = |t: &Arc<Table>| t.rules.within(matching).cloned().collect::<Vec<_>>();
        match id {
            TableId::ALL => self.tables.iter().flat_map(of_table).collect(),
            id => self.table(id).map(of_table).unwrap_or_default(),
        }
    }

    /// Every rule of every table, hidden ones included.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.tables.iter().flat_map(|t| t.rules.iter().map(|(_, _, r)| r))
    }

    /// How many rules [`Tables::within`] looks at.
    pub fn looks(&self, id: TableId) -> usize {
        match id {
            TableId::ALL => self.tables.iter().map(|t| t.rules.len()).sum(),
            id => self.rule_count(id),
        }
    }

    /// Number of rules in a table.
    pub fn rule_count(&self, id: TableId) -> usize {
        self.table(id).map_or(0, |t| t.rules.len())
    }
}
