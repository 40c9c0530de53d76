//! Changes of a version of the tables, as one value for all who follow them.

use super::{RuleIndex, Table};
use crate::cause::{Cause, RemovedReason};
use crate::changes;
use crate::ids::BridgeId;
use crate::rule::Rule;
use crate::rule_index::RuleChange;
use crate::tables::select::GATHERED_MAX;
use flow::{DpPort, OfPort, TableId};
use openflow::msg::control::TableStatus;
use openflow::msg::group::GROUP_ALL;
use std::sync::{Arc, OnceLock};
use sync::{Garbage, Reclaimer};

/// A change of a version of the tables.
pub enum Change {
    /// A change of one rule.
    Rule(RuleChange, Cause),
    /// A table lost all its rules.
    Cleared(Box<Cleared>, Cause),
    /// A change of a group, or of all ([`GROUP_ALL`]).
    Group(u32),
    /// A change of mappings of tunnel metadata.
    Tlv,
    /// The room in a table passed a threshold.
    Status(Box<TableStatus>),
}

impl Change {
    /// Whether a translation may come out differently. A change of cookie, flags or timeouts alone is irrelevant,
    /// unless the rule sends packets to controllers, which receive its cookie.
    fn affects_translation(&self) -> bool {
        match self {
            Change::Rule(RuleChange { before: Some(before), after: Some(after) }, _) => {
                !before.acts_as(after)
            }
            Change::Rule(..) | Change::Cleared(..) | Change::Group(_) | Change::Tlv => true,
            Change::Status(_) => false,
        }
    }

    /// Its form in the log of changes; `None` if it may affect any translation.
    fn as_logged(
        &self,
        bridge: BridgeId,
        dp_port: &dyn Fn(OfPort) -> Option<DpPort>,
    ) -> Option<changes::Change> {
        match self {
            Change::Rule(RuleChange { before, after }, _) => {
                let rule = after.as_ref().or(before.as_ref())?;
                let (matching, words) = (rule.matching.clone(), OnceLock::new());
                let (port, mask) = matching.in_port();
                let in_port = if mask == u32::MAX { dp_port(OfPort(port)) } else { None };
                Some(changes::Change::Rule { bridge, table: rule.table, matching, in_port, words })
            }
            Change::Cleared(cleared, _) => Some(changes::Change::Table(bridge, cleared.id)),
            Change::Group(GROUP_ALL) | Change::Tlv | Change::Status(_) => None,
            Change::Group(id) => Some(changes::Change::Group(bridge, *id)),
        }
    }
}

/// The table before it lost all its rules.
pub struct Cleared {
    pub(super) id: TableId,
    pub(super) index: RuleIndex,
    pub(super) rules: Arc<Table>,
}

impl Cleared {
    /// Number of the table.
    pub(crate) fn id(&self) -> TableId {
        self.id
    }
}

/// Summary of the changes of a version.
#[derive(Default)]
pub struct Journal {
    pub(super) changes: Vec<Change>,
    /// There are changes beside added and modified rules. Without them some walks over many changes are spared.
    pub(super) has_others: bool,
    /// Tables and cookies that the changes made orphans.
    pub(super) orphans: Vec<(TableId, u64)>,
}

impl Journal {
    pub(super) fn push(&mut self, change: Change) {
        self.has_others |= !matches!(change, Change::Rule(RuleChange { after: Some(_), .. }, _));
        self.changes.push(change);
    }

    /// The changes if there are any beside added and modified rules.
    pub(super) fn others(&self) -> &[Change] {
        if self.has_others { &self.changes } else { &[] }
    }

    /// The changes after which a translation may come out differently; `None` if they are too many to test one by
    /// one, or may affect all.
    /// `dp_port` maps ports of the bridge.
    pub fn changes(
        &self,
        bridge: BridgeId,
        dp_port: &dyn Fn(OfPort) -> Option<DpPort>,
    ) -> Option<Vec<changes::Change>> {
        let mut found = Vec::new();
        for change in self.changes.iter().filter(|change| change.affects_translation()) {
            if found.len() == changes::CHANGES_MAX {
                return None;
            }
            found.push(change.as_logged(bridge, dp_port)?);
        }
        Some(found)
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Calls `f` with each change.
    pub(crate) fn each(&self, f: &mut dyn FnMut(&Change)) {
        self.changes.iter().for_each(f);
    }

    /// Calls `f` with each changed rule.
    pub(crate) fn for_each(&self, f: &mut dyn FnMut(&RuleChange, Cause)) {
        for change in &self.changes {
            match change {
                Change::Rule(change, cause) => f(change, *cause),
                Change::Cleared(cleared, cause) => cleared.rules.rules.iter().for_each(|rule| {
                    f(&RuleChange { before: Some(rule.clone()), after: None }, *cause);
                }),
                Change::Group(_) | Change::Tlv | Change::Status(_) => {}
            }
        }
    }

    /// Tables whose room passed a threshold.
    pub(crate) fn statuses(&self) -> impl Iterator<Item = &TableStatus> {
        self.others()
            .iter()
            .filter_map(|change| if let Change::Status(status) = change { Some(&**status) } else { None })
    }

    /// Removed rules with the reason; of a cleared table only those with `SEND_FLOW_REM`.
    pub(crate) fn removed(&self) -> impl Iterator<Item = (&Arc<Rule>, RemovedReason)> {
        self.others().iter().flat_map(|change| {
            let (one, cleared, reason) = match change {
                Change::Rule(RuleChange { before, after: None }, cause) => {
                    (before.as_ref(), None, cause.reason)
                }
                Change::Cleared(cleared, cause) => (None, Some(cleared), cause.reason),
                Change::Rule(..) | Change::Group(_) | Change::Tlv | Change::Status(_) => {
                    (None, None, RemovedReason::Delete)
                }
            };
            let cleared = cleared.into_iter().flat_map(|cleared| cleared.index.send_flow_rem());
            one.into_iter().chain(cleared).map(move |rule| (rule, reason))
        })
    }

    /// Drops it, on another thread if that takes long.
    pub fn discard(self, reclaimer: &Reclaimer) {
        let clears = |change: &Change| matches!(change, Change::Cleared(..));
        if self.changes.len() >= GATHERED_MAX || self.others().iter().any(clears) {
            reclaimer.give(self);
        }
    }
}

impl Garbage for Journal {
    fn is_last(&self) -> bool {
        self.others().iter().all(|change| match change {
            Change::Rule(..) | Change::Group(_) | Change::Tlv | Change::Status(_) => true,
            Change::Cleared(cleared, _) => Arc::strong_count(&cleared.rules) == 1,
        })
    }
}
