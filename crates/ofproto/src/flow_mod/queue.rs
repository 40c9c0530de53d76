//! Flow-mods of one connection that wait for execution, and the active one.
//!
//! A flow-mod may select all rules of all tables, so [`ModQueue::step`] does a bounded amount of work. It selects
//! the rules of the version at its begin, and changes them in slices, each under one change of the view. A rule
//! changed meanwhile by another connection counts if the flow-mod still selects it; a rule added meanwhile does not.
//! Deleting all rules of a table is one step.
//!
//! Steps pause while the queue of removed rules is full ([`crate::events`]), and while a transaction is open.

use super::{Effects, ModContext, add, begin_selection, check, clear, modify, modify_adds};
use crate::backer::Backer;
use crate::events::RemovedReason;
use crate::ports::BridgeId;
use crate::rule::Rule;
use crate::tables::{Selected, Tables};
use openflow::ErrorKind;
use openflow::msg::flow_mod::{FlowMod, FlowModCommand};
use std::collections::VecDeque;
use std::sync::Arc;

/// Examined rules with the cost of one changed rule.
pub(crate) const LOOKS_PER_CHANGE: usize = 32;
/// Rules examined between two checks of the remaining work.
const LOOKS_AT_A_TIME: usize = 1024;

/// A flow-mod with its message, for errors.
type Request = (FlowMod, Box<[u8]>);

/// Flow-mods in order.
#[derive(Default)]
pub struct ModQueue {
    requests: VecDeque<Request>,
    under_way: Option<UnderWay>,
    /// Rules learned by removed rules are removed before the next flow-mod begins.
    ends_orphans: bool,
}

/// A flow-mod that changes existing rules.
struct UnderWay {
    fm: FlowMod,
    left: Selected,
    /// Rules found and not yet changed.
    found: std::vec::IntoIter<Arc<Rule>>,
}

/// Result of a step.
#[derive(Debug, Default)]
pub struct Step {
    /// Failed flow-mods, with their messages.
    pub failed: Vec<(ErrorKind, Box<[u8]>)>,
    /// The queue of removed rules was full, or a transaction is open.
    pub paused: bool,
}

impl FromIterator<Request> for ModQueue {
    fn from_iter<I: IntoIterator<Item = Request>>(mods: I) -> ModQueue {
        ModQueue { requests: mods.into_iter().collect(), ..ModQueue::default() }
    }
}

impl ModQueue {
    /// Appends a flow-mod.
    pub fn push(&mut self, fm: FlowMod, frame: &[u8]) {
        self.requests.push_back((fm, frame.into()));
    }

    /// Number of flow-mods that have not begun.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no work is left.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.under_way.is_none() && !self.ends_orphans
    }

    /// Executes flow-mods separately, until `work`, in rules changed, is used up. Packets see the changes of one
    /// step at once.
    pub fn step(&mut self, backer: &Backer, bridge: BridgeId, cx: &ModContext<'_>, work: &mut usize) -> Step {
        if backer.is_changing(bridge) || backer.removed.room(bridge) == 0 {
            return Step { failed: Vec::new(), paused: true };
        }
        let effects = backer.change_tables(bridge, |tables| {
            let mut effects = Effects::default();
            while *work > 0 && !self.is_empty() {
                self.work(tables, cx, work, &mut effects);
                self.ends_orphans = self.under_way.is_none() && tables.has_orphans();
                if self.ends_orphans {
                    effects.end_orphans(tables, work);
                    self.ends_orphans = tables.has_orphans();
                }
            }
            effects
        });
        let failed = match effects {
            Some(effects) => effects.publish(backer, bridge, cx.now_ms),
            None => {
                (self.under_way, self.ends_orphans) = (None, false);
                let all = std::mem::take(&mut self.requests);
                all.into_iter().map(|(_, frame)| (ErrorKind::FmfcUnknown, frame)).collect()
            }
        };
        Step { failed, paused: false }
    }

    /// Continues the active flow-mod, or begins the next one; a pure add completes at once.
    pub(super) fn work(
        &mut self,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        effects: &mut Effects,
    ) {
        if let Some(under_way) = self.under_way.take() {
            self.under_way = under_way.slice(tables, cx, work, effects);
            return;
        }
        if self.ends_orphans {
            return;
        }
        let Some((fm, frame)) = self.requests.pop_front() else { return };
        *work = work.saturating_sub(1);
        if let Err(kind) = check(&fm, cx) {
            effects.failed.push((kind, frame));
            return;
        }
        if fm.command != FlowModCommand::Add {
            clear(tables, &fm, effects);
            let mut under_way =
                UnderWay { left: begin_selection(tables, &fm), fm, found: Vec::new().into_iter() };
            // A modification without matching rules may be an add: the first rule decides.
            under_way.find(work);
            if under_way.fm.command.deletes() || !under_way.is_found_out() {
                self.under_way = Some(under_way);
                return;
            }
            if modify_adds(&under_way.fm)
                && let Err(kind) = add(tables, &under_way.fm, cx, effects)
            {
                effects.failed.push((kind, frame));
            }
        } else if let Err(kind) = add(tables, &fm, cx, effects) {
            effects.failed.push((kind, frame));
        }
    }

    /// The first flow-mod that is invalid regardless of the tables, among `max` from index `from` on.
    pub(super) fn check(
        &self,
        from: usize,
        max: usize,
        cx: &ModContext<'_>,
    ) -> Option<(ErrorKind, Box<[u8]>)> {
        let some = self.requests.iter().skip(from).take(max);
        some.filter_map(|(fm, frame)| check(fm, cx).err().map(|kind| (kind, frame.clone()))).next()
    }
}

impl UnderWay {
    /// Finds more rules once all found ones are changed.
    fn find(&mut self, work: &mut usize) {
        let mut found = Vec::new();
        // Rules of one table and hash come together, so one search may find more than the remaining work.
        while *work > 0 && found.is_empty() && !self.left.is_done() {
            let looked = self.left.next_slice(LOOKS_AT_A_TIME, &mut found);
            *work = work.saturating_sub(looked.div_ceil(LOOKS_PER_CHANGE));
            found.retain(|r| super::selects(&self.fm, r));
        }
        self.found = found.into_iter();
    }

    /// Whether no rule is left.
    fn is_found_out(&self) -> bool {
        self.found.as_slice().is_empty() && self.left.is_done()
    }

    /// Changes some of the remaining rules; returns itself until it is complete.
    fn slice(
        mut self,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        effects: &mut Effects,
    ) -> Option<UnderWay> {
        while *work > 0 && !self.is_found_out() {
            let Some(found) = self.found.next() else {
                self.find(work);
                continue;
            };
            *work = work.saturating_sub(1);
            self.change(tables, cx, &found, effects);
        }
        (!self.is_found_out()).then_some(self)
    }

    /// Changes one rule, if it exists as found, or if the flow-mod still selects it.
    fn change(&self, tables: &mut Tables, cx: &ModContext<'_>, found: &Arc<Rule>, effects: &mut Effects) {
        let same = |now: &Arc<Rule>| Arc::ptr_eq(now, found) || super::selects(&self.fm, now);
        if self.fm.command.deletes() {
            if let Some(gone) = tables.remove_if(found.table, &found.matching, found.priority, same) {
                effects.ended.push((gone, RemovedReason::Delete));
            }
            return;
        }
        let there = tables.find_exactly(found.table, &found.matching, found.priority).cloned();
        if let Some(now) = there.filter(same) {
            modify(tables, &self.fm, cx, &now);
        }
    }
}
