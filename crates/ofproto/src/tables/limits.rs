//! Settings of tables: the number of rules, eviction from a full table, treatment of misses.
//!
//! Settings come from `Flow_Table` rows and from OpenFlow 1.4's table modifications; a table evicts if either says so.

use super::Tables;
use crate::cause::{Cause, RemovedReason};
use crate::rule_index::RuleIndex;
use flow::text::{NoPortNames, parse_subfield};
use flow::{SubField, TableId};
use openflow::msg::control::{TableMiss, TableMod, TableReason, TableStatus, Vacancy, table_config};
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::lock;

/// Maximum rules of a table, as reported in table statistics and features.
pub const TABLE_MAX_RULES: u32 = 1_000_000;

/// A field that groups rules for eviction.
pub type EvictionField = SubField;

/// The field, or range of a field, of that name in NXM syntax (`Flow_Table.groups`). Tunnel metadata groups no rules.
///
/// # Errors
/// The fault of the syntax.
pub fn eviction_field(name: &str) -> Result<EvictionField, String> {
    parse_subfield(name, &NoPortNames).map_err(|why| why.message)
}

/// Settings of a table (a `Flow_Table` row).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableSettings {
    /// Name; empty for none.
    pub name: String,
    /// Maximum rules; `None` for the maximum of all tables.
    pub limit: Option<u32>,
    /// Evicts a rule from the full table for a new one.
    pub evict: bool,
    /// Fields that group rules: the largest group loses a rule first.
    pub groups: Vec<EvictionField>,
}

/// Settings of a table, and what controllers set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TableState {
    settings: TableSettings,
    /// Name that a controller gave; empty for none.
    own_name: String,
    /// A controller enabled eviction.
    evict: bool,
    /// A controller enabled reports of room.
    vacancy: Option<Thresholds>,
    /// Treatment of misses that a controller of OpenFlow 1.1 or 1.2 set.
    miss: Option<TableMiss>,
}

/// Thresholds of room in a table, in percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Thresholds {
    down_percent: u8,
    up_percent: u8,
    /// The next report is that room rose above `up_percent`.
    waits_for_up: bool,
}

/// `OFPTMPEF14_*`, as OVS describes every table: other, importance, lifetime.
const EVICTION_FLAGS: u32 = 7;

impl TableState {
    /// The fields that group rules for eviction; `None` if the table does not evict.
    fn evicts_by(&self) -> Option<Arc<[SubField]>> {
        (self.evict || self.settings.evict).then(|| self.settings.groups.clone().into())
    }
}

/// Tables with settings.
pub(super) type States = BTreeMap<TableId, TableState>;

impl Tables {
    /// Maximum rules of a table.
    pub fn limit(&self, id: TableId) -> u32 {
        let limit = self.states.get(&id).and_then(|state| state.settings.limit);
        limit.map_or(TABLE_MAX_RULES, |limit| limit.min(TABLE_MAX_RULES))
    }

    /// Whether any table has settings.
    pub fn has_settings(&self) -> bool {
        self.states.values().any(|state| *state != TableState::default())
    }

    /// Name of a table; empty for none.
    pub fn name(&self, id: TableId) -> &str {
        self.states.get(&id).map_or("", |state| match state.settings.name.as_str() {
            "" => &state.own_name,
            name => name,
        })
    }

    /// Whether a controller may give a table that name: one of the database stays.
    pub fn may_name(&self, id: TableId, name: &str) -> bool {
        let given = self.states.get(&id).map_or("", |state| &state.settings.name);
        given.is_empty() || given == name
    }

    /// Names a table for a controller, if the database does not.
    pub fn set_name(&mut self, id: TableId, name: &str) {
        if self.may_name(id, name) && self.name(id) != name {
            self.change_state(id, |state| state.own_name = name.to_string());
        }
    }

    /// Treatment of misses; `None` as the controllers' versions have it.
    pub fn miss(&self, id: TableId) -> Option<TableMiss> {
        self.states.get(&id)?.miss
    }

    /// Sets the treatment of misses.
    pub fn set_miss(&mut self, id: TableId, miss: TableMiss) {
        self.change_state(id, |state| state.miss = Some(miss));
    }

    /// The settings of controllers, as they see them.
    pub fn desc(&self, id: TableId) -> TableMod {
        let state = self.states.get(&id);
        let evicts = state.is_some_and(|s| s.evict);
        let vacancy = state.and_then(|s| s.vacancy).map(|t| Vacancy {
            down_percent: t.down_percent,
            up_percent: t.up_percent,
            now_percent: self.vacancy_percent(id),
        });
        let config = if evicts { table_config::EVICTION } else { 0 }
            | if vacancy.is_some() { table_config::VACANCY_EVENTS } else { 0 };
        TableMod { table: id, config, eviction: Some(EVICTION_FLAGS), vacancy }
    }

    /// Sets what controllers ask for. Thresholds that replace others leave the next report as it is.
    pub fn modify(&mut self, id: TableId, m: &TableMod) {
        let evict = m.config & table_config::EVICTION != 0;
        let wanted = m.vacancy.filter(|_| m.config & table_config::VACANCY_EVENTS != 0);
        let now_percent = self.vacancy_percent(id);
        self.change_state(id, |state| {
            state.evict = evict;
            state.vacancy = wanted.map(|v| Thresholds {
                down_percent: v.down_percent,
                up_percent: v.up_percent,
                waits_for_up: state.vacancy.map_or(now_percent < v.up_percent, |old| old.waits_for_up),
            });
        });
    }

    /// Free room in a table, in percent.
    fn vacancy_percent(&self, id: TableId) -> u8 {
        let (limit, used) = (u64::from(self.limit(id)), self.visible_count(id) as u64);
        let free = limit.saturating_sub(used) * 100;
        free.checked_div(limit).unwrap_or(0) as u8
    }

    /// The report of a table whose room has just passed a threshold.
    pub(super) fn passed_threshold(&mut self, id: TableId) -> Option<TableStatus> {
        let thresholds = self.states.get(&id)?.vacancy?;
        let percent = self.vacancy_percent(id);
        let reason = match thresholds.waits_for_up {
            false if percent < thresholds.down_percent => TableReason::VacancyDown,
            true if percent > thresholds.up_percent => TableReason::VacancyUp,
            _ => return None,
        };
        let next = Thresholds { waits_for_up: !thresholds.waits_for_up, ..thresholds };
        Arc::make_mut(&mut self.states).get_mut(&id)?.vacancy = Some(next);
        Some(TableStatus { reason, desc: self.desc(id) })
    }

    /// Takes over the settings of another version, but not its next reports.
    pub(super) fn adopt_states(&mut self, from: &Tables) {
        let own = std::mem::replace(&mut self.states, from.states.clone());
        let waits = |id: &TableId| own.get(id).and_then(|s| s.vacancy).map(|t| t.waits_for_up);
        if own.values().any(|state| state.vacancy.is_some()) {
            for (id, state) in Arc::make_mut(&mut self.states).iter_mut() {
                if let (Some(now), Some(waits)) = (&mut state.vacancy, waits(id)) {
                    now.waits_for_up = waits;
                }
            }
        }
    }

    /// Replaces the settings of all tables.
    pub fn set_settings(&mut self, by_table: &BTreeMap<u8, TableSettings>) {
        for id in Tables::ids() {
            let settings = by_table.get(&id.0).cloned().unwrap_or_default();
            if self.states.get(&id).map_or_else(TableSettings::default, |s| s.settings.clone()) != settings {
                self.change_state(id, |state| {
                    if !settings.name.is_empty() {
                        state.own_name.clear();
                    }
                    state.settings = settings;
                });
            }
        }
    }

    /// Changes settings of a table; the index follows in one walk over its rules if eviction changes.
    fn change_state(&mut self, id: TableId, change: impl FnOnce(&mut TableState)) {
        let state = Arc::make_mut(&mut self.states).entry(id).or_default();
        let before = state.evicts_by();
        change(state);
        let after = state.evicts_by();
        if before == after {
            return;
        }
        let mut all = lock(&self.index);
        match &after {
            Some(groups) => drop(all.evicting.insert(id, groups.clone())),
            None => drop(all.evicting.remove(&id)),
        }
        if let Some(index) = all.tables.get_mut(&id) {
            index.set_eviction(after);
        }
    }

    /// Evicts up to `max` rules from tables with more rules than their limit; returns their number.
    pub(crate) fn evict_excess(&mut self, max: usize) -> usize {
        let mut evicted = 0;
        for id in self.states.keys().copied().collect::<Vec<_>>() {
            while evicted < max && self.visible_count(id) > self.limit(id) as usize && self.evict(id) {
                evicted += 1;
            }
        }
        evicted
    }

    /// Whether a table has room, or evicts.
    pub(crate) fn may_add(&self, id: TableId) -> bool {
        self.has_room(id) || lock(&self.index).evicting.contains_key(&id)
    }

    /// Makes room for a rule: evicts one from a full table. Returns whether there is room.
    pub(crate) fn make_room(&mut self, id: TableId) -> bool {
        self.has_room(id) || self.evict(id)
    }

    /// Whether a table is below its limit.
    fn has_room(&self, id: TableId) -> bool {
        let limit = self.limit(id) as usize;
        self.rule_count(id) < limit || self.visible_count(id) < limit
    }

    /// Evicts a rule, if the table evicts and one has a timeout.
    pub(crate) fn evict(&mut self, id: TableId) -> bool {
        let victim = lock(&self.index).tables.get_mut(&id).and_then(RuleIndex::victim);
        let Some(rule) = victim else { return false };
        let cause = self.cause;
        self.also_caused_by(Cause { reason: RemovedReason::Eviction, ..cause });
        let gone = self.remove(id, &rule.matching, rule.priority).is_some();
        self.also_caused_by(cause);
        gone
    }
}
