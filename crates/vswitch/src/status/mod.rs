//! [`Writeback`]: writes facts about the running switch into the database, as far as they differ.
//!
//! Identity and state of ports are written at once, statistics every `stats-update-interval`. At most one
//! transaction is in flight; a failed one is rebuilt from the facts at that time, after an exponential back-off.
//! Without the lock nothing is written. `cur_cfg` follows [`Writeback::acknowledged`], never `next_cfg` directly,
//! and is written in one transaction with the facts, so that a waiting client finds the numbers of its ports.
//!
//! [`Writeback::next`] compares all rows, [`Writeback::next_of`] those of which the row or the facts changed.

mod columns;
mod facts;
#[cfg(test)]
mod tests;
mod trunks;

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::client::{ColumnValue, Replica, TxnBuilder, TxnOutcome};
use ovsdb::value::{Datum, Uuid};

pub use facts::{
    BridgeFacts, ControllerFacts, ControllerRole, Counters, Duplex, Facts, InterfaceFacts, LinkFacts,
    ManagerFacts, PortFacts, SwitchFacts, UpDown,
};

pub use trunks::TrunkChanges;

use columns::{Column, When, differ_beyond_times};

/// First pause after a failure.
const FIRST_PAUSE_MS: u64 = 1000;
/// Longest pause after failures.
const LONGEST_PAUSE_MS: u64 = 60_000;

/// Data to write, with their times.
#[derive(Clone, Debug)]
pub struct Writeback {
    lock: Option<String>,
    lock_held: bool,
    stats_interval_ms: u64,
    stats_due_ms: u64,
    in_flight: bool,
    /// The transaction in flight has the statistics.
    stats_in_flight: bool,
    failures: u32,
    not_before_ms: u64,
    acknowledged: Option<i64>,
    missing: BTreeSet<String>,
    /// Rows with differences when last compared: written, or not due.
    unsettled: BTreeSet<Uuid>,
    /// To write.
    trunks: TrunkChanges,
    /// Changes in the transaction in flight.
    trunks_in_flight: TrunkChanges,
}

impl Writeback {
    /// Initial state. With a lock, writing begins after [`Writeback::set_lock_held`], and each transaction asserts it.
    pub fn new(lock: Option<String>) -> Self {
        Writeback {
            lock_held: lock.is_none(),
            lock,
            stats_interval_ms: 5000,
            stats_due_ms: 0,
            in_flight: false,
            stats_in_flight: false,
            failures: 0,
            not_before_ms: 0,
            acknowledged: None,
            missing: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            trunks: TrunkChanges::new(),
            trunks_in_flight: TrunkChanges::new(),
        }
    }

    /// Sets whether this process has the lock.
    pub fn set_lock_held(&mut self, held: bool) {
        self.lock_held = held || self.lock.is_none();
    }

    /// Sets the interval of statistics (`stats-update-interval`).
    pub fn set_stats_interval_ms(&mut self, interval_ms: u64) {
        let started_ms = self.stats_due_ms.saturating_sub(self.stats_interval_ms);
        if self.stats_due_ms > 0 {
            self.stats_due_ms = started_ms.saturating_add(interval_ms);
        }
        self.stats_interval_ms = interval_ms;
    }

    /// Tables (`T`) and columns (`T.C`) that the server lacks ([`ovsdb::client::Client::missing`]): they are not written.
    pub fn set_missing(&mut self, missing: &[String]) {
        self.missing = missing.iter().cloned().collect();
    }

    /// Requests changes of `Port.trunks`. A later change of the same VLAN replaces an earlier one.
    pub fn change_trunks(&mut self, changes: TrunkChanges) {
        self.trunks.extend(changes);
    }

    /// Records that the configuration of this number is applied: it becomes `cur_cfg`.
    pub fn acknowledged(&mut self, next_cfg: i64) {
        self.acknowledged = Some(next_cfg);
    }

    /// Whether the next transaction writes statistics: no need to collect them before.
    pub fn wants_statistics(&self, now_ms: u64) -> bool {
        self.may_write(now_ms) && now_ms >= self.stats_due_ms
    }

    /// Next time at which [`Writeback::next`] may return a transaction without changes of facts other than statistics.
    pub fn next_due_ms(&self) -> u64 {
        self.stats_due_ms.max(self.not_before_ms)
    }

    /// Time from which [`Writeback::next`] looks for differences: the end of the pause behind a failure. `None`: it waits
    /// for the lock or for an outcome.
    pub fn writes_from_ms(&self) -> Option<u64> {
        (self.lock_held && !self.in_flight).then_some(self.not_before_ms)
    }

    /// Whether [`Writeback::next`] looks for differences.
    pub fn may_write(&self, now_ms: u64) -> bool {
        self.writes_from_ms().is_some_and(|from_ms| now_ms >= from_ms)
    }

    /// A transaction with all due differences. The caller sends it and reports its outcome.
    pub fn next(&mut self, replica: &Replica, facts: &Facts, now_ms: u64) -> Option<TxnBuilder> {
        self.next_in(replica, facts, None, now_ms)
    }

    /// A transaction as [`Writeback::next`], of these rows and of the switch alone: those that changed in the database or in
    /// the facts since the last call. Differences that were not due, or not written, are found when statistics are due, and
    /// after a failure.
    pub fn next_of(
        &mut self,
        replica: &Replica,
        facts: &Facts,
        rows: &BTreeSet<Uuid>,
        now_ms: u64,
    ) -> Option<TxnBuilder> {
        self.next_in(replica, facts, Some(rows), now_ms)
    }

    fn next_in(
        &mut self,
        replica: &Replica,
        facts: &Facts,
        only: Option<&BTreeSet<Uuid>>,
        now_ms: u64,
    ) -> Option<TxnBuilder> {
        if !self.may_write(now_ms) {
            return None;
        }
        let with_statistics = now_ms >= self.stats_due_ms;
        let wider: BTreeSet<Uuid>;
        let only = match only {
            Some(rows) if with_statistics || self.failures > 0 => {
                wider = rows.union(&std::mem::take(&mut self.unsettled)).copied().collect();
                Some(&wider)
            }
            Some(rows) => Some(rows),
            None => {
                self.unsettled.clear();
                None
            }
        };
        let mut writing = Writing {
            replica,
            only,
            missing: &self.missing,
            unsettled: &mut self.unsettled,
            differs: false,
            with_statistics,
            txn: TxnBuilder::new(),
        };
        if let Some(lock) = &self.lock {
            writing.txn.assert_lock(lock);
        }
        let mut changed = writing.switch(facts, self.acknowledged);
        changed |= writing.rows("Interface", &facts.interfaces, columns::of_interface);
        changed |= writing.rows("Bridge", &facts.bridges, columns::of_bridge);
        changed |= writing.rows("Port", &facts.ports, columns::of_port);
        let trunks = std::mem::take(&mut self.trunks);
        changed |= writing.trunks(&trunks);
        changed |= writing.rows("Mirror", &facts.mirrors, columns::of_mirror);
        changed |= writing.rows("Controller", &facts.controllers, columns::of_controller);
        changed |= writing.rows("Manager", &facts.managers, columns::of_manager);
        let txn = writing.txn;
        if !changed {
            if with_statistics {
                self.stats_due_ms = now_ms.saturating_add(self.stats_interval_ms);
            }
            return None;
        }
        self.in_flight = true;
        self.trunks_in_flight = trunks;
        self.stats_in_flight = with_statistics;
        Some(txn)
    }

    /// Reports the outcome of the transaction in flight.
    pub fn outcome(&mut self, outcome: &TxnOutcome, now_ms: u64) {
        self.in_flight = false;
        let trunks = std::mem::take(&mut self.trunks_in_flight);
        if !matches!(outcome, TxnOutcome::Success { .. }) {
            self.try_again(trunks);
        }
        match outcome {
            TxnOutcome::Success { .. } => {
                self.failures = 0;
                if self.stats_in_flight {
                    self.stats_due_ms = now_ms.saturating_add(self.stats_interval_ms);
                }
            }
            TxnOutcome::TryAgain | TxnOutcome::Lost => self.pause(now_ms),
            TxnOutcome::NotLocked => {
                self.lock_held = false;
                self.pause(now_ms);
            }
            TxnOutcome::Error(_) => self.pause(now_ms),
        }
    }

    /// Reports that the transaction of [`Writeback::next`] could not be sent: it is rebuilt after a pause.
    pub fn not_sent(&mut self, now_ms: u64) {
        self.in_flight = false;
        let trunks = std::mem::take(&mut self.trunks_in_flight);
        self.try_again(trunks);
        self.pause(now_ms);
    }

    /// Keeps changes of trunks that were not written, unless later ones replace them.
    fn try_again(&mut self, trunks: TrunkChanges) {
        for (key, is_added) in trunks {
            self.trunks.entry(key).or_insert(is_added);
        }
    }

    fn pause(&mut self, now_ms: u64) {
        let pause_ms = FIRST_PAUSE_MS.checked_shl(self.failures.min(16)).unwrap_or(LONGEST_PAUSE_MS);
        self.not_before_ms = now_ms.saturating_add(pause_ms.min(LONGEST_PAUSE_MS));
        self.failures = self.failures.saturating_add(1);
    }
}

/// A transaction under construction.
struct Writing<'a> {
    replica: &'a Replica,
    /// Rows to look at; `None`: all.
    only: Option<&'a BTreeSet<Uuid>>,
    missing: &'a BTreeSet<String>,
    unsettled: &'a mut BTreeSet<Uuid>,
    /// A column of the last row differs, whether it is due or not.
    differs: bool,
    with_statistics: bool,
    txn: TxnBuilder,
}

impl Writing<'_> {
    fn is_due(&self, when: When, old: &Datum, new: &Datum) -> bool {
        match when {
            When::Now => true,
            When::Statistics => self.with_statistics,
            When::Status => self.with_statistics || differ_beyond_times(old, new),
        }
    }

    fn rows<F>(&mut self, table: &str, facts: &BTreeMap<Uuid, F>, columns: fn(&F) -> Vec<Column>) -> bool {
        let empty = columns::empty(self.replica, table);
        let mut changed = false;
        let only = self.only;
        let all = facts.iter().filter(|_| only.is_none());
        let some = only.into_iter().flatten().filter_map(|uuid| facts.get_key_value(uuid));
        for (uuid, facts) in all.chain(some) {
            self.differs = false;
            changed |= self.row(table, *uuid, columns(facts).into_iter().chain(empty.iter().cloned()));
            if self.differs {
                self.unsettled.insert(*uuid);
            } else {
                self.unsettled.remove(uuid);
            }
        }
        changed
    }

    /// Writes the due, differing columns of a row. Ignores a deleted row.
    fn row(&mut self, table: &str, uuid: Uuid, columns: impl IntoIterator<Item = Column>) -> bool {
        let Some(row) = self.replica.row(table, uuid) else { return false };
        if self.missing.contains(table) {
            return false;
        }
        let mut any = false;
        let differs = |(name, new, when): Column| {
            let old = row.datum(name)?;
            if *old == new {
                return None;
            }
            any = true;
            let known = || !self.missing.contains(&format!("{table}.{name}"));
            (self.is_due(when, old, &new) && known()).then(|| (name, ColumnValue::from(new)))
        };
        let columns: Vec<_> = columns.into_iter().filter_map(differs).collect();
        self.differs |= any;
        if columns.is_empty() {
            return false;
        }
        self.txn.update(table, uuid, columns);
        true
    }

    fn switch(&mut self, facts: &Facts, acknowledged: Option<i64>) -> bool {
        let Some(root) = self.replica.rows("Open_vSwitch").next() else { return false };
        let mut columns = columns::of_switch(&facts.switch);
        columns.extend(acknowledged.map(|number| ("cur_cfg", Datum::from(number), When::Now)));
        let mut changed = self.row("Open_vSwitch", root.uuid(), columns);
        for (datapath, uuid) in root.string_uuid_map("datapaths") {
            if let Some(map) = facts.switch.capabilities.get(datapath) {
                changed |= self.row("Datapath", uuid, columns::capabilities(map));
            }
        }
        changed
    }
}
