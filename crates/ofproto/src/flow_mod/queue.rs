//! Flow-mods of one connection that wait to be carried out, and the one that is under way.
//!
//! A flow-mod may select all rules of all tables. [`ModQueue::step`] does a bounded amount of work: the rules that such a
//! flow-mod selects are gathered once, and changed in slices, each under one change of the view. A rule that somebody else
//! changes meanwhile counts if the flow-mod still selects it; one that somebody adds meanwhile came after it.
//!
//! Steps pause while too many ended rules wait to be told ([`crate::events`]).

use super::{Ended, ModContext, add, change, check, collect, end_learned, selection};
use crate::backer::Backer;
use crate::ports::BridgeId;
use crate::rule::Rule;
use crate::rule_index::learners;
use crate::tables::Tables;
use flow::TableId;
use openflow::ErrorKind;
use openflow::msg::flow_mod::{FlowMod, FlowModCommand};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// So many rules looked at cost as much as one changed.
pub(crate) const LOOKS_PER_CHANGE: usize = 32;

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
    left: std::vec::IntoIter<Arc<Rule>>,
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
        let ended = backer.change_bridge(bridge, |b| {
            let mut ended = Ended::new();
            while *work > 0 && !self.is_empty() {
                match self.under_way.take() {
                    Some(under_way) => {
                        self.under_way = under_way.slice(&mut b.tables, cx, work, &mut ended);
                    }
                    None => self.begin(&mut b.tables, cx, work, &mut step),
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
    fn begin(&mut self, tables: &mut Tables, cx: &ModContext<'_>, work: &mut usize, step: &mut Step) {
        let Some((fm, frame)) = self.requests.pop_front() else { return };
        *work = work.saturating_sub(1);
        if let Err(kind) = check(&fm, cx) {
            step.failed.push((kind, frame));
            return;
        }
        let mut found = Vec::new();
        if fm.command != FlowModCommand::Add {
            *work = work.saturating_sub(looks(tables, &fm) / LOOKS_PER_CHANGE);
            found = collect(tables, &fm);
        }
        if fm.command.deletes() || !found.is_empty() {
            self.under_way = Some(UnderWay { fm, left: found.into_iter(), orphans: BTreeSet::new() });
            return;
        }
        // None is there to be changed: for some versions that is an add.
        match add_or_nothing(tables, &fm, cx) {
            Ok(replaced) => {
                let orphans: BTreeSet<_> = replaced.iter().flat_map(|r| learners(r)).collect();
                if !orphans.is_empty() {
                    self.under_way = Some(UnderWay { fm, left: Vec::new().into_iter(), orphans });
                }
            }
            Err(kind) => step.failed.push((kind, frame)),
        }
    }
}

/// How many rules are looked at to find those that a flow-mod is about.
fn looks(tables: &Tables, fm: &FlowMod) -> usize {
    match fm.command {
        FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict => 1,
        FlowModCommand::Add | FlowModCommand::Modify | FlowModCommand::Delete => tables.looks(&selection(fm)),
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
    /// Changes some of the rules that are left; gives itself back while it is not done.
    fn slice(
        mut self,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        ended: &mut Ended,
    ) -> Option<UnderWay> {
        while *work > 0
            && let Some(found) = self.left.next()
        {
            *work -= 1;
            let there = tables.find_exactly(found.table, &found.matching, found.priority).cloned();
            let same = |now: &Arc<Rule>| Arc::ptr_eq(now, &found) || super::selects(&self.fm, now);
            let Some(now) = there.filter(same) else { continue };
            self.orphans.extend(learners(&now));
            change(tables, &self.fm, cx, now, ended);
        }
        if !self.left.as_slice().is_empty() {
            return Some(self);
        }
        end_learned(tables, self.orphans, ended);
        None
    }
}
