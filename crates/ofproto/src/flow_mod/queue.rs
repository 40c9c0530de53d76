//! Flow-mods of one connection that wait to be carried out, and the one that is under way.
//!
//! A flow-mod may select all rules of all tables. [`ModQueue::step`] does a bounded amount of work: the rules that such a
//! flow-mod selects are those of the version at its begin, found and changed in slices, each under one change of the view. A rule
//! that another connection changes meanwhile counts if the flow-mod still selects it; one that is added meanwhile came after it.
//! Deleting all rules of a table is one step.
//!
//! Steps pause while too many ended rules wait to be told ([`crate::events`]).

use super::{Ended, ModContext, add, begin_selection, change, check, clear, end_learned};
use crate::backer::Backer;
use crate::events::RemovedReason;
use crate::ports::BridgeId;
use crate::rule::Rule;
use crate::rule_index::learners;
use crate::tables::{Selected, Tables};
use flow::TableId;
use openflow::ErrorKind;
use openflow::msg::flow_mod::{FlowMod, FlowModCommand};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// So many rules looked at cost as much as one changed.
pub(crate) const LOOKS_PER_CHANGE: usize = 32;
/// Rules looked at between two looks at the work that is left.
const LOOKS_AT_A_TIME: usize = 1024;

/// A flow-mod and the message that it came in, which an error tells.
type Request = (FlowMod, Box<[u8]>);

/// Flow-mods in order.
#[derive(Default)]
pub struct ModQueue {
    requests: VecDeque<Request>,
    under_way: Option<UnderWay>,
}

/// A flow-mod that changes rules that are there.
struct UnderWay {
    fm: FlowMod,
    left: Selected,
    /// Rules that are found and not changed.
    found: std::vec::IntoIter<Arc<Rule>>,
    orphans: BTreeSet<(TableId, u64)>,
}

/// What a step came to.
#[derive(Debug, Default)]
pub struct Step {
    /// Flow-mods that failed, with their messages.
    pub failed: Vec<(ErrorKind, Box<[u8]>)>,
    /// There was no room to tell of ended rules.
    pub paused: bool,
}

impl ModQueue {
    /// Appends a flow-mod.
    pub fn push(&mut self, fm: FlowMod, frame: &[u8]) {
        self.requests.push_back((fm, frame.into()));
    }

    /// How many have not begun.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether nothing is left to do.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.under_way.is_none()
    }

    /// Goes on, with each flow-mod for itself, until `work`, in rules changed, is used up. What is done in one step packets see
    /// at once.
    pub fn step(&mut self, backer: &Backer, bridge: BridgeId, cx: &ModContext<'_>, work: &mut usize) -> Step {
        let mut step = Step::default();
        if backer.removed.room(bridge) == 0 {
            step.paused = true;
            return step;
        }
        let ended = backer.change_tables(bridge, |tables| {
            let mut ended = Ended::new();
            while *work > 0 && !self.is_empty() {
                match self.under_way.take() {
                    Some(under_way) => self.under_way = under_way.slice(tables, cx, work, &mut ended),
                    None => self.begin(tables, cx, work, &mut step, &mut ended),
                }
            }
            ended
        });
        match ended {
            Some(ended) => ended.iter().for_each(|(rule, reason)| backer.removed.push(bridge, rule, *reason)),
            None => {
                let all = std::mem::take(&mut self.requests);
                step.failed.extend(all.into_iter().map(|(_, frame)| (ErrorKind::FmfcUnknown, frame)));
                self.under_way = None;
            }
        }
        step
    }

    /// Begins with the next flow-mod; one that only adds is done with that. One that fails has changed nothing.
    fn begin(
        &mut self,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        step: &mut Step,
        ended: &mut Ended,
    ) {
        let Some((fm, frame)) = self.requests.pop_front() else { return };
        *work = work.saturating_sub(1);
        if let Err(kind) = check(&fm, cx) {
            step.failed.push((kind, frame));
            return;
        }
        let mut orphans = BTreeSet::new();
        if fm.command != FlowModCommand::Add {
            clear(tables, &fm, ended, &mut orphans);
            let mut under_way =
                UnderWay { left: begin_selection(tables, &fm), fm, found: Vec::new().into_iter(), orphans };
            // A modification that finds none may be an add: the first rule decides.
            under_way.find(work);
            if under_way.fm.command.deletes() || !under_way.is_found_out() {
                self.under_way = Some(under_way);
                return;
            }
            return self.add(under_way.fm, frame, tables, cx, step);
        }
        self.add(fm, frame, tables, cx, step);
    }

    /// Adds the rule of a flow-mod.
    fn add(
        &mut self,
        fm: FlowMod,
        frame: Box<[u8]>,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        step: &mut Step,
    ) {
        match add_or_nothing(tables, &fm, cx) {
            Ok(replaced) => {
                let orphans: BTreeSet<_> = replaced.iter().flat_map(|r| learners(r)).collect();
                if !orphans.is_empty() {
                    let left = Selected::of(&super::selection(&fm), Vec::new());
                    self.under_way = Some(UnderWay { fm, left, found: Vec::new().into_iter(), orphans });
                }
            }
            Err(kind) => step.failed.push((kind, frame)),
        }
    }
}

fn add_or_nothing(
    tables: &mut Tables,
    fm: &FlowMod,
    cx: &ModContext<'_>,
) -> Result<Vec<Arc<Rule>>, ErrorKind> {
    if fm.command != FlowModCommand::Add && !super::modify_adds(fm) {
        return Ok(Vec::new());
    }
    let mut used = Vec::new();
    let replaced = add(tables, fm, cx, &mut used)?;
    used.iter().for_each(|stats| stats.credit(0, 0, cx.now_ms));
    Ok(replaced)
}

impl UnderWay {
    /// Finds some rules more when all that were found are changed.
    fn find(&mut self, work: &mut usize) {
        let mut found = Vec::new();
        // Rules of one table and one hash come together, so that one look may find more than there is work for.
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

    /// Changes some of the rules that are left; gives itself back while it is not done.
    fn slice(
        mut self,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        ended: &mut Ended,
    ) -> Option<UnderWay> {
        while *work > 0 && !self.is_found_out() {
            let Some(found) = self.found.next() else {
                self.find(work);
                continue;
            };
            *work = work.saturating_sub(1);
            self.change(tables, cx, &found, ended);
        }
        if !self.is_found_out() {
            return Some(self);
        }
        end_learned(tables, self.orphans, ended);
        None
    }

    /// Changes one rule, if it is there as it was found, or as the flow-mod still selects it.
    fn change(&mut self, tables: &mut Tables, cx: &ModContext<'_>, found: &Arc<Rule>, ended: &mut Ended) {
        let same = |now: &Arc<Rule>| Arc::ptr_eq(now, found) || super::selects(&self.fm, now);
        if self.fm.command.deletes() {
            if let Some(gone) = tables.remove_if(found.table, &found.matching, found.priority, same) {
                self.orphans.extend(learners(&gone));
                ended.push((gone, RemovedReason::Delete));
            }
            return;
        }
        let there = tables.find_exactly(found.table, &found.matching, found.priority).cloned();
        if let Some(now) = there.filter(same) {
            self.orphans.extend(learners(&now));
            change(tables, &self.fm, cx, now, ended);
        }
    }
}
