//! Flow-mods: effect of OpenFlow's five commands on the tables of a bridge.
//!
//! [`ModQueue`] executes flow-mods and group-mods separately, a bounded number of rules at a time. [`Transaction`] executes a list
//! in slices under one change of the view: packets see the tables before or after it, and a failure undoes
//! everything. Rules of the switch itself (priority outside 0 to 65535, table 254) are never changed. Sources:
//! OpenFlow 1.0 §4.6, §5.3.3; 1.3 §6.4, §6.5, §7.3.4.1; where these leave a choice, the behaviour of Open vSwitch.
//!
//! It neither decodes nor replies: the connection manager does.

mod queue;
mod transaction;

pub use queue::{LOOKS_PER_CHANGE, Mod, ModQueue, QueueProgress};
pub use transaction::{Progress, Transaction};

use crate::backer::{Backer, count};
use crate::cause::{Cause, RemovedReason};
use crate::ct_support;
use crate::group::Group;
use crate::ids::BridgeId;
use crate::rule::{Rule, RuleStats, RuleTimeouts};
use crate::tables::{Selected, Selection, Tables};
use dpif::Capabilities;
use flow::{OfPort, TableId};
use ofp_actions::{Action, CheckContext, Reference, check_actions};
use openflow::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags};
use openflow::msg::group::{Group as GroupDesc, GroupMod, GroupModCommand, GroupType};
use openflow::msg::packet::PacketOut;
use openflow::{ErrorKind, GROUP_ANY, NO_BUFFER, Version};
use std::collections::VecDeque;
use std::sync::Arc;

/// Upper bound of port numbers.
pub const MAX_PORTS: u32 = OfPort::MAX_OF10 as u32;

/// Context for checking flow-mods.
#[derive(Clone, Copy)]
pub struct ModContext<'a> {
    /// Version of the connection that sent them.
    pub version: Version,
    /// Current time.
    pub now_ms: u64,
    /// See [`CheckContext`].
    pub debug_actions: bool,
    /// Whether a meter exists.
    pub has_meter: &'a dyn Fn(u32) -> bool,
    /// Features of the datapath.
    pub can: Capabilities,
}

impl ModContext<'_> {
    /// Context for checking the actions of a rule in `table` (`None`: of a packet-out).
    pub fn for_actions(&self, table: Option<TableId>) -> CheckContext {
        CheckContext {
            version: self.version,
            max_ports: MAX_PORTS,
            n_tables: TableId::INTERNAL.0 + 1,
            table,
            debug_actions: self.debug_actions,
        }
    }
}

/// A packet-out of a bundle with the tables of its turn.
pub struct PacketOfTurn {
    /// The packet-out.
    pub out: Box<PacketOut>,
    /// The tables.
    pub tables: Tables,
}

impl Drop for PacketOfTurn {
    fn drop(&mut self) {
        // It may be the last user of a version of many rules.
        self.tables.clone().retire();
    }
}

/// Results of flow-mods beside the new tables.
#[derive(Default)]
struct Effects {
    /// Flow-mods that failed, with their messages.
    failed: Vec<(ErrorKind, Box<[u8]>)>,
    /// Executed group-mods.
    groups: Vec<DoneGroupMod>,
    /// Executed flow-mods.
    flow_mods: FlowModCounts,
    /// Packets to send.
    packets: VecDeque<PacketOfTurn>,
}

/// Executed flow-mods, by command.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowModCounts {
    /// Adds.
    pub adds: u64,
    /// Deletions.
    pub deletes: u64,
    /// Modifications, also those that added a rule.
    pub modifications: u64,
}

impl FlowModCounts {
    /// Adds those of `other`.
    pub fn add(&mut self, other: FlowModCounts) {
        self.adds += other.adds;
        self.deletes += other.deletes;
        self.modifications += other.modifications;
    }

    fn count(&mut self, command: FlowModCommand) {
        *match command {
            FlowModCommand::Add => &mut self.adds,
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => &mut self.deletes,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => &mut self.modifications,
        } += 1;
    }
}

/// An executed group-mod.
#[derive(Debug)]
pub struct DoneGroupMod {
    /// The group-mod.
    pub request: GroupMod,
    /// Its transaction id.
    pub xid: u32,
    /// The group afterwards, if the group-mod changed only some of its buckets.
    pub group: Option<Arc<Group>>,
}

impl DoneGroupMod {
    /// The select group that it made, as configured.
    pub fn built(&self) -> Option<GroupDesc> {
        let whole = matches!(
            self.request.command,
            GroupModCommand::Add | GroupModCommand::Modify | GroupModCommand::AddOrModify
        );
        let made = match &self.group {
            Some(group) => Some(group.desc()),
            None => whole.then(|| self.request.group.clone()),
        };
        made.filter(|group| group.ty == GroupType::Select)
    }
}

impl Effects {
    /// Notes the result of a flow-mod.
    fn conclude(&mut self, command: FlowModCommand, done: Result<(), ErrorKind>, frame: Box<[u8]>) {
        match done {
            Ok(()) => self.flow_mods.count(command),
            Err(kind) => self.failed.push((kind, frame)),
        }
    }
}

/// Removes rules learned by removed rules, within `work`.
fn end_orphans(tables: &mut Tables, work: &mut usize) {
    let ended = tables.end_orphans(*work);
    *work = work.saturating_sub(ended.len());
}

/// Removes all groups, and all rules except those of the internal table, as for a change of the bridge's controllers.
pub fn flush(backer: &Backer, bridge: BridgeId) {
    count(&backer.revisions.flushed);
    let all = (0..TableId::INTERNAL.0).map(TableId);
    backer.change_tables(bridge, |tables| {
        all.for_each(|id| tables.clear(id));
        tables.clear_groups();
    });
}

/// Removes up to `max` rules that use a meter, and their learned rules; fewer if the event queue is full. Returns
/// their number, and whether others are left.
pub fn remove_users_of_meter(backer: &Backer, bridge: BridgeId, id: u32, max: usize) -> (usize, bool) {
    let of = Reference::Meter(id);
    let max = max.min(backer.events.room(bridge));
    let removed = backer.change_tables(bridge, |tables| {
        tables.also_caused_by(Cause { reason: RemovedReason::MeterDelete, ..Cause::default() });
        let users = tables.users(of, max);
        users.iter().for_each(|r| drop(tables.remove(r.table, &r.matching, r.priority)));
        let orphans = tables.end_orphans(max - users.len());
        (users.len() + orphans.len(), tables.len_of_users(of) > 0 || tables.has_orphans())
    });
    removed.unwrap_or_default()
}

/// A rule of an earlier process.
#[derive(Clone, Debug)]
pub struct SavedRule {
    /// The rule as added.
    pub added: FlowMod,
    /// Its past.
    pub past: Past,
}

/// Counters and times of a rule, the latter of the monotonic clock, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Past {
    /// Time of the add.
    pub created_ms: u64,
    /// Start of its hard timeout.
    pub renewed_ms: u64,
    /// Time of the last packet, or of the add.
    pub used_ms: u64,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Adds rules of an earlier process to a bridge, as far as they are valid here. Returns the others, by their place in `rules`,
/// with the reason.
pub fn restore(
    backer: &Backer,
    bridge: BridgeId,
    rules: &[SavedRule],
    cx: &ModContext<'_>,
) -> Vec<(usize, ErrorKind)> {
    let restored = backer.change_tables(bridge, |tables| {
        let one = |(n, rule): (usize, &SavedRule)| {
            let done = check(&rule.added, cx).and_then(|()| add(tables, &rule.added, cx, Some(rule.past)));
            done.err().map(|kind| (n, kind))
        };
        rules.iter().enumerate().filter_map(one).collect()
    });
    restored.unwrap_or_else(|| (0..rules.len()).map(|n| (n, ErrorKind::FmfcUnknown)).collect())
}

/// Checks a flow-mod by itself: its groups and meters may be missing.
///
/// # Errors
/// The error to reply with.
pub fn check(fm: &FlowMod, cx: &ModContext<'_>) -> Result<(), ErrorKind> {
    let matching = fm.matching.unpack();
    check_actions(&fm.actions, &matching, &cx.for_actions(Some(fm.table)))?;
    if matching.mask().0.recirc_id != 0 {
        return Err(ErrorKind::BrcEperm);
    }
    if fm.command.deletes() {
        return Ok(());
    }
    if fm.table == TableId::INTERNAL {
        return Err(ErrorKind::BrcEperm);
    }
    if fm.table == TableId::ALL && cx.version > Version::V10 {
        return Err(ErrorKind::FmfcBadTableId);
    }
    if fm.buffer_id != NO_BUFFER {
        return Err(ErrorKind::BrcBufferUnknown);
    }
    ct_support::check_match(&matching, &cx.can)?;
    ct_support::check_actions(&fm.actions, &cx.can)
}

/// Rejects actions that refer to missing groups or meters.
///
/// # Errors
/// The error of the first such reference.
pub fn check_references(
    actions: &[Action],
    tables: &Tables,
    has_meter: &dyn Fn(u32) -> bool,
) -> Result<(), ErrorKind> {
    let mut missing = None;
    let mut visit = |of| {
        if matches!(of, Reference::Group(id) if tables.groups().get(id).is_none()) {
            missing.get_or_insert(ErrorKind::BacBadOutGroup);
        } else if matches!(of, Reference::Meter(id) if !has_meter(id)) {
            missing.get_or_insert(ErrorKind::MmfcInvalidMeter);
        }
    };
    actions.iter().for_each(|a| a.references(&mut visit));
    missing.map_or(Ok(()), Err)
}

/// Rejects tunnel metadata whose mapping was removed after the flow-mod arrived.
fn check_mappings(tables: &Tables, fm: &FlowMod) -> Result<(), ErrorKind> {
    let is_mapped = |index| tables.tlv().get(index).is_some();
    let mut ok = fm.matching.metadata_indices().all(is_mapped);
    for action in &fm.actions {
        action.references(&mut |of| ok &= !matches!(of, Reference::TunMetadata(i) if !is_mapped(i)));
    }
    if ok { Ok(()) } else { Err(ErrorKind::NxfmfcInvalidTlvField) }
}

/// Adds the rule, with its `past` in an earlier process, if any.
fn add(tables: &mut Tables, fm: &FlowMod, cx: &ModContext<'_>, past: Option<Past>) -> Result<(), ErrorKind> {
    let table = if fm.table == TableId::ALL { TableId(0) } else { fm.table };
    check_references(&fm.actions, tables, cx.has_meter)?;
    check_mappings(tables, fm)?;
    let priority = i32::from(fm.priority);
    let matching = tables.share(table, &fm.matching.of_rule());
    let there = tables.find_exactly(table, &matching, priority).cloned();
    if there.is_none() {
        if past.is_none()
            && fm.flags.contains(FlowModFlags::CHECK_OVERLAP)
            && tables.overlaps(table, &matching.unpack(), priority)
        {
            return Err(ErrorKind::FmfcOverlap);
        }
        if !tables.make_room(table) {
            return Err(ErrorKind::FmfcTableFull);
        }
    }
    // Before OpenFlow 1.2 an add always resets the counters, from 1.2 on only with the flag.
    let keep_counts = cx.version >= Version::V12 && !fm.flags.contains(FlowModFlags::RESET_COUNTS);
    let stats = match &there {
        Some(old) if keep_counts => old.stats.clone(),
        // As in OVS, the idle time goes on.
        Some(old) => Arc::new(RuleStats::new(old.stats.used_ms())),
        None => {
            let past = past.unwrap_or(Past { used_ms: cx.now_ms, ..Past::default() });
            let stats = RuleStats::new(past.used_ms.min(cx.now_ms));
            stats.credit(past.packets, past.bytes, 0);
            Arc::new(stats)
        }
    };
    let then = |of: fn(Past) -> u64| past.map_or(cx.now_ms, |past| of(past).min(cx.now_ms));
    tables.insert(Arc::new(Rule {
        table,
        matching,
        priority,
        cookie: fm.new_cookie,
        timeouts: RuleTimeouts::new(fm.idle_timeout_s, fm.hard_timeout_s, &fm.actions),
        importance: fm.importance,
        flags: rule_flags(fm, cx.version),
        actions: tables.intern(&fm.actions),
        created_ms: then(|past| past.created_ms),
        modified_ms: then(|past| past.renewed_ms),
        stats,
    }));
    Ok(())
}

fn rule_flags(fm: &FlowMod, version: Version) -> FlowModFlags {
    let old_add = version < Version::V12 && fm.command == FlowModCommand::Add;
    fm.flags | if old_add { FlowModFlags::RESET_COUNTS } else { FlowModFlags::empty() }
}

/// Whether a modification without matching rules adds one.
fn modify_adds(fm: &FlowMod) -> bool {
    !fm.command.deletes() && fm.cookie_mask == 0 && fm.new_cookie != u64::MAX
}

/// Modifies an existing rule, and gives it the cookie, if any.
fn modify(tables: &mut Tables, fm: &FlowMod, cookie: Option<u64>, cx: &ModContext<'_>, old: &Rule) {
    let stats = if fm.flags.contains(FlowModFlags::RESET_COUNTS) {
        Arc::new(RuleStats::new(old.stats.used_ms()))
    } else {
        old.stats.clone()
    };
    tables.insert(Arc::new(Rule {
        table: old.table,
        matching: old.matching.clone(),
        priority: old.priority,
        cookie: cookie.unwrap_or(old.cookie),
        timeouts: old.timeouts.for_actions(&fm.actions),
        importance: old.importance,
        flags: old.flags,
        actions: tables.intern(&fm.actions),
        created_ms: old.created_ms,
        modified_ms: cx.now_ms,
        stats,
    }));
}

/// Clears the tables selected by a deletion of all rules, where that is one step.
fn clear(tables: &mut Tables, fm: &FlowMod) {
    if fm.command != FlowModCommand::Delete || !selection(fm).is_everything() {
        return;
    }
    let ids = match fm.table {
        TableId::ALL => 0..TableId::COUNT,
        id => id.0..id.0 + 1,
    };
    for id in ids.map(TableId).filter(|id| *id != TableId::INTERNAL) {
        if tables.clears(id) {
            tables.clear(id);
        }
    }
}

/// The initial selection of a modification or deletion.
fn begin_selection(tables: &Tables, fm: &FlowMod) -> Selected {
    if !matches!(fm.command, FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict) {
        return tables.select_newest(&selection(fm));
    }
    let (by, matching) = (selection(fm), fm.matching.of_rule());
    let in_table = |t: u8| {
        let rule = tables.find_exactly(TableId(t), &matching, i32::from(fm.priority));
        rule.filter(|rule| by.selects_beside_match(rule)).cloned()
    };
    let found: Vec<_> = match fm.table {
        TableId::ALL => (0..TableId::COUNT).filter_map(in_table).collect(),
        t => in_table(t.0).into_iter().collect(),
    };
    Selected::of(&by, found)
}

/// The rules selected by a flow-mod, hidden ones included.
pub(crate) fn selection(fm: &FlowMod) -> Selection {
    let (out_port, out_group) =
        if fm.command.deletes() { (fm.out_port, fm.out_group) } else { (OfPort::NONE, GROUP_ANY) };
    Selection {
        table: fm.table,
        matching: fm.matching.clone(),
        cookie: fm.cookie,
        cookie_mask: fm.cookie_mask,
        out_port,
        out_group,
    }
}
