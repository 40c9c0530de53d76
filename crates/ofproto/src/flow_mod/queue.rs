//! Flow-mods and group-mods of one connection that wait for execution, and the active one.
//!
//! A flow-mod may select all rules of all tables, so [`ModQueue::step`] does a bounded amount of work. It selects
//! the rules of the version at its begin, and changes them in slices, each under one change of the view. A rule
//! changed meanwhile by another connection counts if the flow-mod still selects it; a rule added meanwhile does not.
//! Deleting all rules of a table is one step.
//!
//! Steps pause while the queue of changes of rules is full ([`crate::events`]), and while a transaction is open.

use super::{
    DoneGroupMod, Effects, FlowModCounts, ModContext, PacketOfTurn, add, begin_selection, check,
    check_references, clear, end_orphans, modify, modify_adds,
};
use crate::backer::Backer;
use crate::cause::{Cause, RemovedReason};
use crate::ct_support;
use crate::group::GroupChange;
use crate::ids::BridgeId;
use crate::ids::ConnId;
use crate::rule::Rule;
use crate::tables::{Selected, Tables};
use flow::TableId;
use ofp_actions::Reference;
use openflow::msg::flow_mod::{FlowMod, FlowModCommand};
use openflow::msg::group::{GroupMod, GroupModCommand};
use openflow::msg::packet::PacketOut;
use openflow::{ErrorKind, Format, Version};
use std::collections::VecDeque;
use std::sync::Arc;

/// Examined rules with the cost of one changed rule.
pub const LOOKS_PER_CHANGE: usize = 32;
/// Rules examined between two checks of the remaining work.
const LOOKS_AT_A_TIME: usize = 1024;

/// A change of rules or groups.
#[derive(Debug)]
pub enum Mod {
    /// A change of rules.
    Flow(FlowMod),
    /// A change of groups.
    Group(GroupMod),
    /// No change: a packet-out of a bundle, sent with the tables of its turn.
    Packet(Box<PacketOut>),
}

/// A modification with its message, for errors.
type Request = (Mod, Box<[u8]>);

/// Modifications in order.
#[derive(Default)]
pub struct ModQueue {
    requests: VecDeque<Request>,
    /// The flow-mods passed [`check`] before.
    are_checked: bool,
    under_way: Option<UnderWay>,
    /// Deleted groups whose rules are being removed.
    gone_groups: Vec<u32>,
    /// Rules learned by removed rules are removed before the next flow-mod begins.
    ends_orphans: bool,
    /// The connection that sent them.
    owner: Option<ConnId>,
    /// All changes are reported together, as those of the first request.
    together: bool,
    /// Cause of the present changes.
    cause: Option<Cause>,
}

/// A flow-mod that changes existing rules.
struct UnderWay {
    fm: FlowMod,
    /// Its message, for errors.
    frame: Box<[u8]>,
    /// The cookie of modified rules, if it changes.
    cookie: Option<u64>,
    /// It has found a rule to change.
    changes: bool,
    left: Selected,
    /// Rules found and not yet changed.
    found: std::vec::IntoIter<Arc<Rule>>,
}

/// Result of a step.
#[derive(Debug, Default)]
pub struct QueueProgress {
    /// Failed modifications, with their messages.
    pub failed: Vec<(ErrorKind, Box<[u8]>)>,
    /// Executed group-mods.
    pub groups: Vec<DoneGroupMod>,
    /// Executed flow-mods.
    pub flow_mods: FlowModCounts,
    /// The queue of changes of rules was full, or a transaction is open.
    pub paused: bool,
}

impl FromIterator<Request> for ModQueue {
    /// The requests of a transaction: the flow-mods passed [`check`].
    fn from_iter<I: IntoIterator<Item = Request>>(mods: I) -> ModQueue {
        ModQueue { requests: mods.into_iter().collect(), are_checked: true, ..ModQueue::default() }
    }
}

impl ModQueue {
    /// Modifications of a connection.
    pub fn of(owner: ConnId) -> ModQueue {
        ModQueue { owner: Some(owner), ..ModQueue::default() }
    }

    /// Reports all changes together, as those of a connection.
    pub(super) fn report_together(&mut self, owner: ConnId) {
        (self.owner, self.together) = (Some(owner), true);
    }

    /// Appends a modification.
    pub fn push(&mut self, change: Mod, frame: &[u8]) {
        self.requests.push_back((change, frame.into()));
    }

    /// Number of modifications that have not begun.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no work is left.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() && !self.is_under_way() && !self.ends_orphans
    }

    /// The modification that has begun, if any: it continues after its connection's end.
    pub fn into_begun(mut self) -> Option<ModQueue> {
        self.requests.clear();
        (!self.is_empty()).then_some(self)
    }

    fn is_under_way(&self) -> bool {
        self.under_way.is_some() || !self.gone_groups.is_empty()
    }

    /// Executes modifications separately, until `work`, in rules changed, is used up. Packets see the changes of one
    /// step at once.
    pub fn step(
        &mut self,
        backer: &Backer,
        bridge: BridgeId,
        cx: &ModContext<'_>,
        work: &mut usize,
    ) -> QueueProgress {
        if backer.is_changing(bridge) || backer.events.room(bridge) == 0 {
            return QueueProgress { paused: true, ..QueueProgress::default() };
        }
        let effects = backer.change_tables(bridge, |tables| {
            let mut effects = Effects::default();
            while *work > 0 && !self.is_empty() {
                self.work(tables, cx, work, &mut effects);
                self.ends_orphans = !self.is_under_way() && tables.has_orphans();
                if self.ends_orphans {
                    end_orphans(tables, work);
                    self.ends_orphans = tables.has_orphans();
                }
            }
            effects
        });
        let (failed, groups, flow_mods) = match effects {
            Some(effects) => (effects.failed, effects.groups, effects.flow_mods),
            None => {
                (self.under_way, self.ends_orphans) = (None, false);
                self.gone_groups.clear();
                let all = std::mem::take(&mut self.requests);
                let failed = all.into_iter().map(|(_, frame)| (ErrorKind::FmfcUnknown, frame));
                (failed.collect(), Vec::new(), FlowModCounts::default())
            }
        };
        QueueProgress { failed, groups, flow_mods, paused: false }
    }

    /// Continues the active modification, or begins the next one; a pure add completes at once.
    pub(super) fn work(
        &mut self,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        effects: &mut Effects,
    ) {
        if let Some(under_way) = self.under_way.take() {
            self.cause.into_iter().for_each(|cause| tables.go_on(cause));
            self.go_on(under_way, tables, cx, work, effects);
            return;
        }
        if let Some(id) = self.gone_groups.last().copied() {
            self.cause.into_iter().for_each(|cause| tables.go_on(cause));
            if !remove_users(tables, id, work) {
                self.gone_groups.pop();
            }
            return;
        }
        if self.ends_orphans {
            return;
        }
        let Some((change, frame)) = self.requests.pop_front() else { return };
        *work = work.saturating_sub(1);
        if !matches!(change, Mod::Packet(_)) {
            self.begin_cause(&change, &frame, tables);
        }
        match change {
            Mod::Flow(fm) => self.begin(fm, frame, tables, cx, work, effects),
            Mod::Group(gm) => {
                let done = self.change_groups(gm, xid_of(&frame), tables, cx, effects);
                effects.failed.extend(done.err().map(|kind| (kind, frame)));
            }
            Mod::Packet(out) => match check_references(&out.actions, tables, cx.has_meter) {
                Ok(()) => effects.packets.push_back(PacketOfTurn { out, tables: tables.clone() }),
                Err(kind) => effects.failed.push((kind, frame)),
            },
        }
    }

    /// Sets the cause of the changes of a modification. The removal of the rules of a group is nobody's request.
    fn begin_cause(&mut self, change: &Mod, frame: &[u8], tables: &mut Tables) {
        let xid = xid_of(frame);
        let (reason, adds, request) = match change {
            Mod::Flow(fm) => {
                let adds = fm.command == FlowModCommand::Add;
                (RemovedReason::Delete, adds, self.owner.map(|owner| (owner, xid)))
            }
            Mod::Group(_) | Mod::Packet(_) => (RemovedReason::GroupDelete, false, None),
        };
        let cause = Cause { reason, adds, request, batch: 0 };
        self.cause = Some(match self.cause.filter(|_| self.together) {
            Some(first) => {
                let request = request.and(first.request).or(request);
                let cause = Cause { request, batch: first.batch, ..cause };
                tables.go_on(cause);
                cause
            }
            None => tables.caused_by(cause),
        });
    }

    /// Executes a group modification; the rules of deleted groups remain to be removed.
    fn change_groups(
        &mut self,
        gm: GroupMod,
        xid: u32,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        effects: &mut Effects,
    ) -> Result<(), ErrorKind> {
        let buckets = &gm.group.buckets;
        buckets.iter().try_for_each(|b| ct_support::check_actions(&b.actions, &cx.can))?;
        match tables.change_groups(&gm, cx.now_ms)? {
            GroupChange::Changed => {}
            GroupChange::Deleted(ids) => self.gone_groups = ids,
        }
        let in_part = matches!(gm.command, GroupModCommand::InsertBucket | GroupModCommand::RemoveBucket);
        let group = tables.groups().get(gm.group.id).filter(|_| in_part).cloned();
        effects.groups.push(DoneGroupMod { request: gm, xid, group });
        Ok(())
    }

    /// Begins a flow-mod.
    fn begin(
        &mut self,
        fm: FlowMod,
        frame: Box<[u8]>,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        effects: &mut Effects,
    ) {
        let checked = if self.are_checked { Ok(()) } else { check(&fm, cx) };
        let checked = match checked {
            // The others were checked by themselves.
            Ok(()) if fm.table == TableId::INTERNAL => Err(ErrorKind::BrcEperm),
            checked => checked,
        };
        if fm.command == FlowModCommand::Add || checked.is_err() {
            let done = checked.and_then(|()| add(tables, &fm, cx, None));
            effects.conclude(fm.command, done, frame);
            return;
        }
        clear(tables, &fm);
        let left = begin_selection(tables, &fm);
        // The flow-mods of OpenFlow 1.1 give a cookie to added rules alone.
        let keeps = fm.new_cookie == u64::MAX || cx.version == Version::V11 && fm.format == Format::Standard;
        let cookie = (!keeps).then_some(fm.new_cookie);
        let found = Vec::new().into_iter();
        let under_way = UnderWay { fm, frame, cookie, changes: false, left, found };
        self.go_on(under_way, tables, cx, work, effects);
    }

    /// Continues a flow-mod that changes existing rules. A modification that finds none may be an add. As in OVS, its
    /// groups and meters must exist only if it changes or adds a rule.
    fn go_on(
        &mut self,
        mut under_way: UnderWay,
        tables: &mut Tables,
        cx: &ModContext<'_>,
        work: &mut usize,
        effects: &mut Effects,
    ) {
        let done = under_way.slice(tables, cx, work);
        if done.is_ok() && !under_way.is_found_out() {
            self.under_way = Some(under_way);
            return;
        }
        let UnderWay { fm, frame, changes, .. } = under_way;
        let adds = !changes && modify_adds(&fm);
        let done = done.and_then(|()| if adds { add(tables, &fm, cx, None) } else { Ok(()) });
        effects.conclude(fm.command, done, frame);
    }
}

/// The transaction id of a message.
fn xid_of(frame: &[u8]) -> u32 {
    frame.get(4..8).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
}

/// Removes rules that execute a deleted group, within `work`; returns whether some are left.
fn remove_users(tables: &mut Tables, id: u32, work: &mut usize) -> bool {
    let of = Reference::Group(id);
    let users = tables.users(of, *work);
    *work = work.saturating_sub(users.len());
    for rule in users {
        tables.remove(rule.table, &rule.matching, rule.priority);
    }
    tables.len_of_users(of) > 0
}

impl UnderWay {
    /// Finds more rules once all found ones are changed.
    fn find(&mut self, work: &mut usize) {
        let mut found = Vec::new();
        // Rules of one table and hash come together, so one search may find more than the remaining work.
        while *work > 0 && found.is_empty() && !self.left.is_done() {
            let looked = self.left.next_slice(LOOKS_AT_A_TIME, &mut found);
            *work = work.saturating_sub(looked.div_ceil(LOOKS_PER_CHANGE));
            found.retain(|r| !r.is_hidden());
        }
        self.found = found.into_iter();
    }

    /// Whether no rule is left.
    fn is_found_out(&self) -> bool {
        self.found.as_slice().is_empty() && self.left.is_done()
    }

    /// Changes some of the remaining rules.
    fn slice(&mut self, tables: &mut Tables, cx: &ModContext<'_>, work: &mut usize) -> Result<(), ErrorKind> {
        while *work > 0 && !self.is_found_out() {
            let Some(found) = self.found.next() else {
                self.find(work);
                continue;
            };
            if !self.changes && !self.fm.command.deletes() {
                check_references(&self.fm.actions, tables, cx.has_meter)?;
            }
            self.changes = true;
            *work = work.saturating_sub(1);
            self.change(tables, cx, &found);
        }
        Ok(())
    }

    /// Changes one rule, if it exists as found, or if the flow-mod still selects it.
    fn change(&self, tables: &mut Tables, cx: &ModContext<'_>, found: &Arc<Rule>) {
        let by = self.left.by();
        let same = |now: &Arc<Rule>| Arc::ptr_eq(now, found) || by.selects_beside_match(now);
        if self.fm.command.deletes() {
            tables.remove_if(found.table, &found.matching, found.priority, same);
            return;
        }
        let there = tables.find_exactly(found.table, &found.matching, found.priority).cloned();
        if let Some(now) = there.filter(same) {
            modify(tables, &self.fm, self.cookie, cx, &now);
        }
    }
}
