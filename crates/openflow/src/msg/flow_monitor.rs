//! Flow monitors: requests for notifications of rule changes, and the notifications.
//!
//! Sources: Nicira's `NXST_FLOW_MONITOR` (OpenFlow 1.0 to 1.2); ONF EXT-187 (1.3); OpenFlow 1.4 §7.3.5.17. Nicira's
//! form has an NXM match and a list of actions, the others an OXM match and instructions. From 1.4 on, pauses are
//! notifications; before, they are messages of their own.

use super::flow_mod::FlowRemovedReason;
use super::{GROUP_ANY, wire_enum};
use crate::match11;
use flow::{Match, OfPort, PackedMatch, TableId};
use ofp_actions::{Action, put_actions, put_instructions, read_actions, read_instructions};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
use ofp_wire::nxm::{self, Unknown};
use ofp_wire::{Reader, Res, Writer};
use std::sync::Arc;

bitflags::bitflags! {
    /// `NXFMF_*`, `OFPFMF_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct MonitorFlags: u16 {
        /// Report the present rules.
        const INITIAL = 1;
        /// Report added rules.
        const ADD = 1 << 1;
        /// Report deleted rules.
        const DELETE = 1 << 2;
        /// Report modified rules.
        const MODIFY = 1 << 3;
        /// Report actions and instructions.
        const ACTIONS = 1 << 4;
        /// Report changes of the connection itself in full.
        const OWN = 1 << 5;
    }
}

impl MonitorFlags {
    /// Flags for changes: a monitor has one of them at least.
    pub const CHANGES: MonitorFlags =
        MonitorFlags::ADD.union(MonitorFlags::DELETE).union(MonitorFlags::MODIFY);
}

wire_enum! {
    /// Command of a request (`OFPFMC_*`); before OpenFlow 1.4 a request adds.
    MonitorCommand: u8 {
        /// Add a monitor.
        Add = 0,
        /// Replace a monitor.
        Modify = 1,
        /// Delete a monitor.
        Delete = 2,
    }
}

/// A monitor of rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitorRequest {
    /// The monitor.
    pub id: u32,
    /// The command.
    pub command: MonitorCommand,
    /// The flags; of a deletion, none.
    pub flags: MonitorFlags,
    /// Only rules that output here; `NONE` for any.
    pub out_port: OfPort,
    /// Only rules that use this group; [`GROUP_ANY`] for any.
    pub out_group: u32,
    /// The table, or all.
    pub table: TableId,
    /// Only rules that match no more than this.
    pub matching: Box<Match>,
}

/// The flags of a monitor among `known` ones.
fn flags(n: u16, known: MonitorFlags) -> Res<MonitorFlags> {
    let flags = MonitorFlags::from_bits(n).filter(|f| known.contains(*f));
    flags.filter(|f| f.intersects(MonitorFlags::CHANGES)).ok_or(ErrorKind::MofcBadFlags)
}

fn port(n: u32) -> Res<OfPort> {
    if nxm::port_number_ok(n) { Ok(OfPort(n)) } else { Err(ErrorKind::BacBadOutPort) }
}

pub(crate) fn read_nxt(r: &mut Reader<'_>) -> Res<FlowMonitorRequest> {
    let (id, flags, out_port) = (r.u32()?, flags(r.u16()?, MonitorFlags::all())?, r.u16()?);
    let (match_len, table) = (r.u16()?, TableId(r.u8()?));
    r.sub(5)?.zeros(ErrorKind::NxbrcMustBeZero)?;
    Ok(FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port: OfPort::from_of10(out_port),
        out_group: GROUP_ANY,
        table,
        matching: nxm::read_nxm_match(r, match_len, Unknown::Refuse)?.matching,
    })
}

pub(crate) fn put_nxt(w: &mut Writer, m: &FlowMonitorRequest) {
    w.u32(m.id);
    w.u16(m.flags.bits());
    w.u16(m.out_port.to_of10().unwrap_or(0xffff));
    let len_at = w.mark();
    w.zeros(2);
    w.u8(m.table.0);
    w.zeros(5);
    put_nxm(w, &m.matching, len_at);
}

/// Writes an NXM match with the fields' old numbers, whatever the version, and its length without padding at
/// `len_at`.
fn put_nxm(w: &mut Writer, m: &Match, len_at: usize) {
    let version = std::mem::replace(&mut w.version, Version::V10);
    let len = nxm::put_nxm_match(w, m, (0, 0));
    w.version = version;
    w.set_u16(len_at, len);
}

/// The length of the match at the reader's position, which a form repeats before it.
fn whole_match(r: &mut Reader<'_>, len: u16) -> Res<Box<Match>> {
    let mut head = r.clone();
    head.skip(2)?;
    if head.u16()? != len {
        return Err(ErrorKind::BmcBadLen);
    }
    match11::read(r, Unknown::Refuse)
}

/// Writes the match, and its length without padding at `len_at`.
fn put_whole_match(w: &mut Writer, m: &Match, len_at: usize) {
    let mark = w.mark();
    match11::put(w, m);
    let len = u16::from_be_bytes([w.buf[mark + 2], w.buf[mark + 3]]);
    w.set_u16(len_at, len);
}

pub(crate) fn read_onf(r: &mut Reader<'_>) -> Res<FlowMonitorRequest> {
    // The match has a length of its own, the only one that OVS reads.
    let (id, flags, _) = (r.u32()?, flags(r.u16()?, MonitorFlags::all())?, r.u16()?);
    let (out_port, table) = (r.u32()?, TableId(r.u8()?));
    r.sub(3)?.zeros(ErrorKind::NxbrcMustBeZero)?;
    Ok(FlowMonitorRequest {
        id,
        command: MonitorCommand::Add,
        flags,
        out_port: port(out_port)?,
        out_group: GROUP_ANY,
        table,
        matching: match11::read(r, Unknown::Refuse)?,
    })
}

pub(crate) fn put_onf(w: &mut Writer, m: &FlowMonitorRequest) {
    w.u32(m.id);
    w.u16(m.flags.bits());
    let len_at = w.mark();
    w.zeros(2);
    w.u32(m.out_port.0);
    w.u8(m.table.0);
    w.zeros(3);
    put_whole_match(w, &m.matching, len_at);
}

/// [`MonitorFlags::OWN`] in OpenFlow 1.4 and later, as in OVS.
const OWN_14: u16 = 1 << 6;

/// The flags in the numbers of OpenFlow 1.4.
fn flags14(n: u16) -> Res<MonitorFlags> {
    let own = if n & OWN_14 != 0 { MonitorFlags::OWN } else { MonitorFlags::empty() };
    Ok(flags(n & !OWN_14, MonitorFlags::all() - MonitorFlags::OWN)? | own)
}

pub(crate) fn read14(r: &mut Reader<'_>) -> Res<FlowMonitorRequest> {
    let (id, out_port, out_group, bits) = (r.u32()?, r.u32()?, r.u32()?, r.u16()?);
    let (table, command) = (TableId(r.u8()?), r.u8()?);
    let command = MonitorCommand::from_wire(command).ok_or(ErrorKind::MofcBadCommand)?;
    let flags = match command {
        MonitorCommand::Delete => MonitorFlags::empty(),
        MonitorCommand::Add | MonitorCommand::Modify => flags14(bits)?,
    };
    Ok(FlowMonitorRequest {
        id,
        command,
        flags,
        out_port: port(out_port)?,
        out_group,
        table,
        matching: match11::read(r, Unknown::Refuse)?,
    })
}

pub(crate) fn put14(w: &mut Writer, m: &FlowMonitorRequest) {
    w.u32(m.id);
    w.u32(m.out_port.0);
    w.u32(m.out_group);
    let own = if m.flags.contains(MonitorFlags::OWN) { OWN_14 } else { 0 };
    w.u16((m.flags - MonitorFlags::OWN).bits() | own);
    w.u8(m.table.0);
    w.u8(m.command as u8);
    match11::put(w, &m.matching);
}

/// A change of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEvent {
    /// It exists as a monitor begins; before OpenFlow 1.4 encoded as an addition.
    Initial,
    /// It was added.
    Added,
    /// It was deleted.
    Deleted(FlowRemovedReason),
    /// It was modified.
    Modified,
}

/// A change of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleUpdate {
    /// The change.
    pub event: FlowEvent,
    /// Table.
    pub table: TableId,
    /// Priority.
    pub priority: u16,
    /// Idle timeout in seconds.
    pub idle_timeout_s: u16,
    /// Hard timeout in seconds.
    pub hard_timeout_s: u16,
    /// Cookie.
    pub cookie: u64,
    /// The match.
    pub matching: PackedMatch,
    /// Actions and instructions; empty unless the monitor asks for them.
    pub actions: Arc<[Action]>,
}

/// A notification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowUpdate {
    /// A rule, in full.
    Rule(RuleUpdate),
    /// The connection's own request of this transaction changed rules.
    Abbreviated(u32),
    /// Changes are no longer reported, deletions excepted (OpenFlow 1.4).
    Paused,
    /// Changes are reported again (OpenFlow 1.4).
    Resumed,
}

/// `OFPFME_*`; Nicira's and ONF's numbers are one less, and end before [`event14::PAUSED`].
mod event14 {
    pub(super) const INITIAL: u16 = 0;
    pub(super) const ADDED: u16 = 1;
    pub(super) const DELETED: u16 = 2;
    pub(super) const MODIFIED: u16 = 3;
    pub(super) const ABBREVIATED: u16 = 4;
    pub(super) const PAUSED: u16 = 5;
    pub(super) const RESUMED: u16 = 6;
}

fn number(event: FlowEvent) -> u16 {
    match event {
        FlowEvent::Initial => event14::INITIAL,
        FlowEvent::Added => event14::ADDED,
        FlowEvent::Deleted(_) => event14::DELETED,
        FlowEvent::Modified => event14::MODIFIED,
    }
}

fn reason(event: FlowEvent) -> u8 {
    if let FlowEvent::Deleted(reason) = event { reason as u8 } else { 0 }
}

fn event_of(number: u16, reason: u16) -> Res<FlowEvent> {
    match number {
        event14::INITIAL => Ok(FlowEvent::Initial),
        event14::ADDED => Ok(FlowEvent::Added),
        event14::DELETED => {
            let reason = u8::try_from(reason).ok().and_then(FlowRemovedReason::from_wire);
            reason.map(FlowEvent::Deleted).ok_or(ErrorKind::NxbrcBadReason)
        }
        event14::MODIFIED => Ok(FlowEvent::Modified),
        _ => Err(ErrorKind::NxbrcFmBadEvent),
    }
}

/// Reads length and event of a notification, and returns the rest of it.
fn update<'a>(r: &mut Reader<'a>) -> Res<(u16, Reader<'a>)> {
    let len = usize::from(r.clone().u16()?);
    if !len.is_multiple_of(8) {
        return Err(ErrorKind::BrcBadLen);
    }
    let mut r = r.sub(len)?;
    r.skip(2)?;
    Ok((r.u16()?, r))
}

pub(crate) fn read_update(r: &mut Reader<'_>) -> Res<FlowUpdate> {
    let (event, mut r) = update(r)?;
    let event = event.checked_add(1).ok_or(ErrorKind::NxbrcFmBadEvent)?;
    if event == event14::ABBREVIATED {
        return Ok(FlowUpdate::Abbreviated(r.u32()?));
    }
    let (reason, priority) = (r.u16()?, r.u16()?);
    let (idle_timeout_s, hard_timeout_s, match_len) = (r.u16()?, r.u16()?, r.u16()?);
    let table = TableId(r.u8()?);
    r.skip(1)?;
    let cookie = r.u64()?;
    let nicira = is_nicira(r.version);
    let matching = match nicira {
        true => nxm::read_nxm_match(&mut r, match_len, Unknown::Refuse)?.matching,
        false => whole_match(&mut r, match_len)?,
    };
    let actions = if nicira { read_actions(&mut r)? } else { read_instructions(&mut r)? };
    Ok(FlowUpdate::Rule(RuleUpdate {
        event: event_of(event, reason)?,
        table,
        priority,
        idle_timeout_s,
        hard_timeout_s,
        cookie,
        matching: PackedMatch::from(&*matching),
        actions: actions.into(),
    }))
}

/// Whether notifications have Nicira's form, not ONF's for OpenFlow 1.3.
fn is_nicira(version: Version) -> bool {
    version < Version::V13
}

pub(crate) fn put_update(w: &mut Writer, update: &FlowUpdate) {
    let mark = w.mark();
    w.zeros(2);
    match update {
        FlowUpdate::Rule(u) => put_rule(w, u),
        FlowUpdate::Abbreviated(xid) => {
            w.u16(event14::ABBREVIATED - 1);
            w.u32(*xid);
        }
        // Messages of their own in these versions.
        FlowUpdate::Paused | FlowUpdate::Resumed => return w.buf.truncate(mark),
    }
    w.set_len(mark, 0);
}

fn put_rule(w: &mut Writer, u: &RuleUpdate) {
    let matching = u.matching.unpack();
    w.u16(number(u.event).max(event14::ADDED) - 1);
    w.u16(reason(u.event).into());
    w.u16(u.priority);
    w.u16(u.idle_timeout_s);
    w.u16(u.hard_timeout_s);
    let len_at = w.mark();
    w.zeros(2);
    w.u8(u.table.0);
    w.u8(0);
    w.u64(u.cookie);
    if is_nicira(w.version) {
        put_nxm(w, &matching, len_at);
        put_actions(w, u.actions.iter(), &matching);
    } else {
        put_whole_match(w, &matching, len_at);
        put_instructions(w, &u.actions, &matching);
    }
}

pub(crate) fn read_update14(r: &mut Reader<'_>) -> Res<FlowUpdate> {
    let (event, mut r) = update(r)?;
    match event {
        event14::ABBREVIATED => return Ok(FlowUpdate::Abbreviated(r.u32()?)),
        event14::PAUSED => return Ok(FlowUpdate::Paused),
        event14::RESUMED => return Ok(FlowUpdate::Resumed),
        _ => {}
    }
    let (table, reason) = (TableId(r.u8()?), r.u8()?);
    let (idle_timeout_s, hard_timeout_s, priority) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(4)?;
    let cookie = r.u64()?;
    let matching = match11::read(&mut r, Unknown::Refuse)?;
    Ok(FlowUpdate::Rule(RuleUpdate {
        event: event_of(event, reason.into())?,
        table,
        priority,
        idle_timeout_s,
        hard_timeout_s,
        cookie,
        matching: PackedMatch::from(&*matching),
        actions: read_instructions(&mut r)?.into(),
    }))
}

pub(crate) fn put_update14(w: &mut Writer, update: &FlowUpdate) {
    let mark = w.mark();
    w.zeros(2);
    match update {
        FlowUpdate::Rule(u) => {
            let matching = u.matching.unpack();
            w.u16(number(u.event));
            w.u8(u.table.0);
            w.u8(reason(u.event));
            w.u16(u.idle_timeout_s);
            w.u16(u.hard_timeout_s);
            w.u16(u.priority);
            w.zeros(4);
            w.u64(u.cookie);
            match11::put(w, &matching);
            put_instructions(w, &u.actions, &matching);
        }
        FlowUpdate::Abbreviated(xid) => {
            w.u16(event14::ABBREVIATED);
            w.u32(*xid);
        }
        FlowUpdate::Paused | FlowUpdate::Resumed => {
            let paused = *update == FlowUpdate::Paused;
            w.u16(if paused { event14::PAUSED } else { event14::RESUMED });
            w.zeros(4);
        }
    }
    w.set_len(mark, 0);
}
