//! Rules: changing them, being told that one ended, asking for them.
//!
//! Sources: OpenFlow 1.0 §5.3.3, §5.3.5, §5.4.3; 1.3 §7.3.4.1, §7.3.5.2, §7.3.5.3, §7.4.2; Nicira's NXM forms for 1.0, in which the cookie to
//! look for is a field of the match.

use super::{Format, GROUP_ANY, wire_enum};
use crate::actions::{put_actions, put_instructions, read_actions, read_instructions};
use crate::error::ErrorKind;
use crate::nxm::{self, Unknown};
use crate::version::Version;
use crate::wire::{Reader, Res, Writer};
use crate::match10;
use flow::action::Action;
use flow::{Match, OfPort, TableId};

bitflags::bitflags! {
    /// `OFPFF_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct FlowModFlags: u16 {
        /// Tell when the rule ends.
        const SEND_FLOW_REM = 1;
        /// Refuse a rule that overlaps with another of its priority.
        const CHECK_OVERLAP = 1 << 1;
        /// Begin counting anew (OpenFlow 1.2).
        const RESET_COUNTS = 1 << 2;
        /// Do not count packets (OpenFlow 1.3).
        const NO_PKT_COUNTS = 1 << 3;
        /// Do not count bytes (OpenFlow 1.3).
        const NO_BYT_COUNTS = 1 << 4;
    }
}

/// `OFPFF_EMERG` of OpenFlow 1.0: emergency rules, which nobody has.
const EMERG_10: u16 = 1 << 2;

wire_enum! {
    /// What to do with rules.
    FlowModCommand: u8 {
        /// Add one.
        Add = 0,
        /// Change all that match.
        Modify = 1,
        /// Change the one with this match and priority.
        ModifyStrict = 2,
        /// Delete all that match.
        Delete = 3,
        /// Delete the one with this match and priority.
        DeleteStrict = 4,
    }
}

impl FlowModCommand {
    /// Whether it deletes.
    pub fn deletes(self) -> bool {
        matches!(self, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
    }
}

/// Changes rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    /// The wire form.
    pub format: Format,
    /// What to do.
    pub command: FlowModCommand,
    /// In which table; [`TableId::ALL`] also when OpenFlow 1.0 does not say.
    pub table: TableId,
    /// Cookie to look for, within the mask.
    pub cookie: u64,
    /// Which bits of the cookie to look at.
    pub cookie_mask: u64,
    /// Cookie of the rule added or changed; all ones leaves a changed rule's cookie.
    pub new_cookie: u64,
    /// End after so long without a packet; 0 for never.
    pub idle_timeout_s: u16,
    /// End after so long; 0 for never.
    pub hard_timeout_s: u16,
    /// Priority.
    pub priority: u16,
    /// Packet to apply the rule to, or [`super::NO_BUFFER`].
    pub buffer_id: u32,
    /// When deleting: only rules that output here; `NONE` for any.
    pub out_port: OfPort,
    /// When deleting: only rules that use this group; [`GROUP_ANY`] for any.
    pub out_group: u32,
    /// Flags.
    pub flags: FlowModFlags,
    /// The match.
    pub matching: Match,
    /// Actions and instructions.
    pub actions: Vec<Action>,
}

fn command(n: u16, r: &Reader<'_>) -> Res<(FlowModCommand, TableId)> {
    let (table, n) =
        if r.options.table_id_in_command { (TableId((n >> 8) as u8), n & 0xff) } else { (TableId::ALL, n) };
    let n = u8::try_from(n).map_err(|_| ErrorKind::FmfcBadCommand)?;
    Ok((FlowModCommand::from_wire(n).ok_or(ErrorKind::FmfcBadCommand)?, table))
}

fn flags(n: u16, version: Version) -> Res<FlowModFlags> {
    if version == Version::V10 {
        if n & EMERG_10 != 0 {
            return Err(ErrorKind::FmfcTableFull);
        }
        return FlowModFlags::from_bits(n & !EMERG_10)
            .filter(|f| f.bits() & !3 == 0)
            .ok_or(ErrorKind::FmfcBadFlags);
    }
    FlowModFlags::from_bits(n).ok_or(ErrorKind::FmfcBadFlags)
}

pub(crate) fn decode_mod(r: &mut Reader<'_>) -> Res<FlowMod> {
    if r.version == Version::V10 { decode_mod10(r) } else { decode_mod11(r) }
}

fn decode_mod10(r: &mut Reader<'_>) -> Res<FlowMod> {
    let matching = match10::read(r)?;
    let new_cookie = r.u64()?;
    let (command, table) = command(r.u16()?, r)?;
    let (idle_timeout_s, hard_timeout_s, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let (buffer_id, out_port) = (r.u32()?, OfPort::from_of10(r.u16()?));
    let flags = flags(r.u16()?, r.version)?;
    Ok(FlowMod {
        format: Format::Standard,
        command,
        table,
        cookie: 0,
        cookie_mask: 0,
        new_cookie,
        idle_timeout_s,
        hard_timeout_s,
        priority,
        buffer_id,
        out_port,
        out_group: GROUP_ANY,
        flags,
        matching,
        actions: read_actions(r)?,
    })
}

fn decode_mod11(r: &mut Reader<'_>) -> Res<FlowMod> {
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let table = TableId(r.u8()?);
    let command = FlowModCommand::from_wire(r.u8()?).ok_or(ErrorKind::FmfcBadCommand)?;
    let (idle_timeout_s, hard_timeout_s, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let (buffer_id, out_port, out_group) = (r.u32()?, r.u32()?, r.u32()?);
    let flags = flags(r.u16()?, r.version)?;
    r.skip(2)?;
    if !nxm::port_number_ok(out_port) {
        return Err(ErrorKind::BacBadOutPort);
    }
    let matching = nxm::read_oxm_match(r, Unknown::Refuse)?;
    let actions = read_instructions(r)?;
    let add = command == FlowModCommand::Add;
    let (out_port, out_group) =
        if command.deletes() { (OfPort(out_port), out_group) } else { (OfPort::NONE, GROUP_ANY) };
    Ok(FlowMod {
        format: Format::Standard,
        command,
        table,
        cookie: if add { 0 } else { cookie & cookie_mask },
        cookie_mask: if add { 0 } else { cookie_mask },
        new_cookie: if add { cookie } else { u64::MAX },
        idle_timeout_s,
        hard_timeout_s,
        priority,
        buffer_id,
        out_port,
        out_group,
        flags,
        matching,
        actions,
    })
}

pub(crate) fn decode_mod_nxt(r: &mut Reader<'_>) -> Res<FlowMod> {
    let new_cookie = r.u64()?;
    let (command, table) = command(r.u16()?, r)?;
    let (idle_timeout_s, hard_timeout_s, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let (buffer_id, out_port) = (r.u32()?, OfPort::from_of10(r.u16()?));
    let flags = flags(r.u16()?, Version::V10)?;
    let match_len = r.u16()?;
    r.skip(6)?;
    let m = nxm::read_nxm_match(r, match_len, Unknown::Refuse)?;
    let (cookie, cookie_mask) = m.cookie.unwrap_or((0, 0));
    if command == FlowModCommand::Add && cookie_mask != 0 {
        return Err(ErrorKind::NxbrcNxmInvalid);
    }
    Ok(FlowMod {
        format: Format::Nxt,
        command,
        table,
        cookie,
        cookie_mask,
        new_cookie,
        idle_timeout_s,
        hard_timeout_s,
        priority,
        buffer_id,
        out_port,
        out_group: GROUP_ANY,
        flags,
        matching: m.matching,
        actions: read_actions(r)?,
    })
}

fn put_command(w: &mut Writer, m: &FlowMod) {
    let table = if w.options.table_id_in_command { u16::from(m.table.0) << 8 } else { 0 };
    w.u16(table | m.command as u16);
}

fn put_timeouts(w: &mut Writer, m: &FlowMod) {
    w.u16(m.idle_timeout_s);
    w.u16(m.hard_timeout_s);
    w.u16(m.priority);
    w.u32(m.buffer_id);
}

pub(crate) fn encode_mod(m: &FlowMod, w: &mut Writer) {
    if w.version == Version::V10 {
        match10::put(w, &m.matching);
        w.u64(m.new_cookie);
        put_command(w, m);
        put_timeouts(w, m);
        w.u16(m.out_port.to_of10().unwrap_or(0xffff));
        w.u16(m.flags.bits() & 3);
        put_actions(w, m.actions.iter(), &m.matching);
        return;
    }
    let add = m.command == FlowModCommand::Add;
    w.u64(if add { m.new_cookie } else { m.cookie });
    w.u64(if add { 0 } else { m.cookie_mask });
    w.u8(m.table.0);
    w.u8(m.command as u8);
    put_timeouts(w, m);
    w.u32(m.out_port.0);
    w.u32(m.out_group);
    w.u16(m.flags.bits());
    w.zeros(2);
    nxm::put_oxm_match(w, &m.matching);
    put_instructions(w, &m.actions, &m.matching);
}

pub(crate) fn encode_mod_nxt(m: &FlowMod, w: &mut Writer) {
    w.u64(m.new_cookie);
    put_command(w, m);
    put_timeouts(w, m);
    w.u16(m.out_port.to_of10().unwrap_or(0xffff));
    w.u16(m.flags.bits() & 3);
    let len_at = w.mark();
    w.zeros(8);
    let len = nxm::put_nxm_match(w, &m.matching, (m.cookie, m.cookie_mask));
    w.set_u16(len_at, len);
    put_actions(w, m.actions.iter(), &m.matching);
}

wire_enum! {
    /// Why a rule ended.
    FlowRemovedReason: u8 {
        /// Idle timeout.
        IdleTimeout = 0,
        /// Hard timeout.
        HardTimeout = 1,
        /// Deleted.
        Delete = 2,
        /// Its group was deleted.
        GroupDelete = 3,
        /// Its meter was deleted (OpenFlow 1.4).
        MeterDelete = 4,
        /// Evicted (OpenFlow 1.4).
        Eviction = 5,
    }
}

/// A rule has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRemoved {
    /// The wire form.
    pub format: Format,
    /// The match.
    pub matching: Match,
    /// Cookie.
    pub cookie: u64,
    /// Priority.
    pub priority: u16,
    /// Why.
    pub reason: FlowRemovedReason,
    /// Table; [`TableId::ALL`] where the form does not tell it.
    pub table: TableId,
    /// Age, whole seconds.
    pub duration_s: u32,
    /// Age, the rest.
    pub duration_ns: u32,
    /// Idle timeout.
    pub idle_timeout_s: u16,
    /// Hard timeout (OpenFlow 1.2).
    pub hard_timeout_s: u16,
    /// Packets.
    pub packet_count: u64,
    /// Bytes.
    pub byte_count: u64,
}

fn read_removed_reason(r: &mut Reader<'_>) -> Res<FlowRemovedReason> {
    FlowRemovedReason::from_wire(r.u8()?).ok_or(ErrorKind::NxbrcBadReason)
}

pub(crate) fn decode_removed(r: &mut Reader<'_>) -> Res<FlowRemoved> {
    let old = r.version == Version::V10;
    let mut matching = if old { match10::read(r)? } else { Match::catchall() };
    let (cookie, priority, reason) = (r.u64()?, r.u16()?, read_removed_reason(r)?);
    let table = TableId(r.u8()?);
    let (duration_s, duration_ns, idle_timeout_s, hard) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    if !old {
        matching = nxm::read_oxm_match(r, Unknown::Skip)?;
    }
    Ok(FlowRemoved {
        format: Format::Standard,
        matching,
        cookie,
        priority,
        reason,
        table: if old { TableId::ALL } else { table },
        duration_s,
        duration_ns,
        idle_timeout_s,
        hard_timeout_s: if old { 0 } else { hard },
        packet_count,
        byte_count,
    })
}

pub(crate) fn encode_removed(m: &FlowRemoved, w: &mut Writer) {
    let old = w.version == Version::V10;
    if old {
        match10::put(w, &m.matching);
    }
    w.u64(m.cookie);
    w.u16(m.priority);
    w.u8(removed_reason(m.reason, w.version));
    w.u8(if old { 0 } else { m.table.0 });
    w.u32(m.duration_s);
    w.u32(m.duration_ns);
    w.u16(m.idle_timeout_s);
    w.u16(if old { 0 } else { m.hard_timeout_s });
    w.u64(m.packet_count);
    w.u64(m.byte_count);
    if !old {
        nxm::put_oxm_match(w, &m.matching);
    }
}

/// The number of the reason; those that the version lacks are "deleted".
fn removed_reason(reason: FlowRemovedReason, version: Version) -> u8 {
    let known = match version.0 {
        ..=1 => 2,
        2..=4 => 3,
        _ => 5,
    };
    let n = reason as u8;
    if n > known { FlowRemovedReason::Delete as u8 } else { n }
}

pub(crate) fn decode_removed_nxt(r: &mut Reader<'_>) -> Res<FlowRemoved> {
    let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, read_removed_reason(r)?, r.u8()?);
    let (duration_s, duration_ns, idle_timeout_s, match_len) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    let matching = nxm::read_nxm_match(r, match_len, Unknown::Skip)?.matching;
    Ok(FlowRemoved {
        format: Format::Nxt,
        matching,
        cookie,
        priority,
        reason,
        // The form tells the table plus one, 0 for unknown.
        table: TableId(table.wrapping_sub(1)),
        duration_s,
        duration_ns,
        idle_timeout_s,
        hard_timeout_s: 0,
        packet_count,
        byte_count,
    })
}

pub(crate) fn encode_removed_nxt(m: &FlowRemoved, w: &mut Writer) {
    w.u64(m.cookie);
    w.u16(m.priority);
    w.u8(removed_reason(m.reason, w.version));
    w.u8(m.table.0.wrapping_add(1));
    w.u32(m.duration_s);
    w.u32(m.duration_ns);
    w.u16(m.idle_timeout_s);
    let len_at = w.mark();
    w.zeros(2);
    w.u64(m.packet_count);
    w.u64(m.byte_count);
    let len = nxm::put_nxm_match(w, &m.matching, (0, 0));
    w.set_u16(len_at, len);
}

/// Which rules are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStatsRequest {
    /// The wire form.
    pub format: Format,
    /// Of which table, or of all.
    pub table: TableId,
    /// Only rules that output here; `NONE` for any.
    pub out_port: OfPort,
    /// Only rules that use this group; [`GROUP_ANY`] for any.
    pub out_group: u32,
    /// Cookie to look for, within the mask.
    pub cookie: u64,
    /// Which bits of the cookie to look at.
    pub cookie_mask: u64,
    /// Only rules that match no more than this.
    pub matching: Match,
}

pub(crate) fn decode_request(r: &mut Reader<'_>) -> Res<FlowStatsRequest> {
    if r.version == Version::V10 {
        let matching = match10::read(r)?;
        let table = TableId(r.u8()?);
        r.skip(1)?;
        let out_port = OfPort::from_of10(r.u16()?);
        return Ok(FlowStatsRequest {
            format: Format::Standard,
            table,
            out_port,
            out_group: GROUP_ANY,
            cookie: 0,
            cookie_mask: 0,
            matching,
        });
    }
    let table = TableId(r.u8()?);
    r.skip(3)?;
    let (out_port, out_group) = (r.u32()?, r.u32()?);
    r.skip(4)?;
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    if !nxm::port_number_ok(out_port) {
        return Err(ErrorKind::BacBadOutPort);
    }
    let matching = nxm::read_oxm_match(r, Unknown::Refuse)?;
    Ok(FlowStatsRequest {
        format: Format::Standard,
        table,
        out_port: OfPort(out_port),
        out_group,
        cookie: cookie & cookie_mask,
        cookie_mask,
        matching,
    })
}

pub(crate) fn encode_request(m: &FlowStatsRequest, w: &mut Writer) {
    if w.version == Version::V10 {
        match10::put(w, &m.matching);
        w.u8(m.table.0);
        w.u8(0);
        w.u16(m.out_port.to_of10().unwrap_or(0xffff));
        return;
    }
    w.u8(m.table.0);
    w.zeros(3);
    w.u32(m.out_port.0);
    w.u32(m.out_group);
    w.zeros(4);
    w.u64(m.cookie);
    w.u64(m.cookie_mask);
    nxm::put_oxm_match(w, &m.matching);
}

pub(crate) fn decode_request_nxt(r: &mut Reader<'_>) -> Res<FlowStatsRequest> {
    let (out_port, match_len) = (OfPort::from_of10(r.u16()?), r.u16()?);
    let table = TableId(r.u8()?);
    r.skip(3)?;
    let m = nxm::read_nxm_match(r, match_len, Unknown::Refuse)?;
    let (cookie, cookie_mask) = m.cookie.unwrap_or((0, 0));
    Ok(FlowStatsRequest {
        format: Format::Nxt,
        table,
        out_port,
        out_group: GROUP_ANY,
        cookie,
        cookie_mask,
        matching: m.matching,
    })
}

pub(crate) fn encode_request_nxt(m: &FlowStatsRequest, w: &mut Writer) {
    w.u16(m.out_port.to_of10().unwrap_or(0xffff));
    let len_at = w.mark();
    w.zeros(2);
    w.u8(m.table.0);
    w.zeros(3);
    let len = nxm::put_nxm_match(w, &m.matching, (m.cookie, m.cookie_mask));
    w.set_u16(len_at, len);
}

/// A rule and its counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStats {
    /// Table.
    pub table: TableId,
    /// Age, whole seconds.
    pub duration_s: u32,
    /// Age, the rest.
    pub duration_ns: u32,
    /// Priority.
    pub priority: u16,
    /// Idle timeout.
    pub idle_timeout_s: u16,
    /// Hard timeout.
    pub hard_timeout_s: u16,
    /// Time since the last packet (Nicira's form, up to 65534).
    pub idle_age_s: Option<u32>,
    /// Time since the last change (Nicira's form, up to 65534).
    pub hard_age_s: Option<u32>,
    /// Flags (OpenFlow 1.3).
    pub flags: FlowModFlags,
    /// Cookie.
    pub cookie: u64,
    /// Packets.
    pub packet_count: u64,
    /// Bytes.
    pub byte_count: u64,
    /// The match.
    pub matching: Match,
    /// Actions and instructions.
    pub actions: Vec<Action>,
}

/// The part behind an entry's length field.
fn entry<'a>(r: &mut Reader<'a>) -> Res<Reader<'a>> {
    let len = usize::from(r.clone().u16()?);
    let mut e = r.sub(len)?;
    e.skip(2)?;
    Ok(e)
}

pub(crate) fn read_stats(r: &mut Reader<'_>) -> Res<FlowStats> {
    let mut r = entry(r)?;
    let old = r.version == Version::V10;
    let table = TableId(r.u8()?);
    r.skip(1)?;
    let mut matching = if old { match10::read(&mut r)? } else { Match::catchall() };
    let (duration_s, duration_ns, priority) = (r.u32()?, r.u32()?, r.u16()?);
    let (idle_timeout_s, hard_timeout_s, flags) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(4)?;
    let (cookie, packet_count, byte_count) = (r.u64()?, r.u64()?, r.u64()?);
    if !old {
        matching = nxm::read_oxm_match(&mut r, Unknown::Refuse)?;
    }
    Ok(FlowStats {
        table,
        duration_s,
        duration_ns,
        priority,
        idle_timeout_s,
        hard_timeout_s,
        idle_age_s: None,
        hard_age_s: None,
        flags: if old { FlowModFlags::empty() } else { FlowModFlags::from_bits_truncate(flags) },
        cookie,
        packet_count,
        byte_count,
        matching,
        actions: if old { read_actions(&mut r)? } else { read_instructions(&mut r)? },
    })
}

pub(crate) fn put_stats(w: &mut Writer, s: &FlowStats) {
    let old = w.version == Version::V10;
    let mark = w.mark();
    w.zeros(2);
    w.u8(s.table.0);
    w.u8(0);
    if old {
        match10::put(w, &s.matching);
    }
    w.u32(s.duration_s);
    w.u32(s.duration_ns);
    w.u16(s.priority);
    w.u16(s.idle_timeout_s);
    w.u16(s.hard_timeout_s);
    w.u16(if old { 0 } else { s.flags.bits() });
    w.zeros(4);
    w.u64(s.cookie);
    w.u64(s.packet_count);
    w.u64(s.byte_count);
    if old {
        put_actions(w, s.actions.iter(), &s.matching);
    } else {
        nxm::put_oxm_match(w, &s.matching);
        put_instructions(w, &s.actions, &s.matching);
    }
    w.set_len(mark, 0);
}

pub(crate) fn read_stats_nxt(r: &mut Reader<'_>) -> Res<FlowStats> {
    let mut r = entry(r)?;
    let table = TableId(r.u8()?);
    r.skip(1)?;
    let (duration_s, duration_ns, priority) = (r.u32()?, r.u32()?, r.u16()?);
    let (idle_timeout_s, hard_timeout_s, match_len) = (r.u16()?, r.u16()?, r.u16()?);
    let (idle_age, hard_age) = (u32::from(r.u16()?), u32::from(r.u16()?));
    let (cookie, packet_count, byte_count) = (r.u64()?, r.u64()?, r.u64()?);
    let matching = nxm::read_nxm_match(&mut r, match_len, Unknown::Refuse)?.matching;
    Ok(FlowStats {
        table,
        duration_s,
        duration_ns,
        priority,
        idle_timeout_s,
        hard_timeout_s,
        idle_age_s: idle_age.checked_sub(1),
        hard_age_s: hard_age.checked_sub(1),
        flags: FlowModFlags::empty(),
        cookie,
        packet_count,
        byte_count,
        matching,
        actions: read_actions(&mut r)?,
    })
}

pub(crate) fn put_stats_nxt(w: &mut Writer, s: &FlowStats) {
    let mark = w.mark();
    w.zeros(2);
    w.u8(s.table.0);
    w.u8(0);
    w.u32(s.duration_s);
    w.u32(s.duration_ns);
    w.u16(s.priority);
    w.u16(s.idle_timeout_s);
    w.u16(s.hard_timeout_s);
    let len_at = w.mark();
    w.zeros(2);
    let age = |a: Option<u32>| a.map_or(0, |a| a.min(0xfffe) as u16 + 1);
    w.u16(age(s.idle_age_s));
    w.u16(age(s.hard_age_s));
    w.u64(s.cookie);
    w.u64(s.packet_count);
    w.u64(s.byte_count);
    let len = nxm::put_nxm_match(w, &s.matching, (0, 0));
    w.set_u16(len_at, len);
    put_actions(w, s.actions.iter(), &s.matching);
    w.set_len(mark, 0);
}

/// Sums over rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AggregateStats {
    /// The wire form.
    pub format: Format,
    /// Packets.
    pub packet_count: u64,
    /// Bytes.
    pub byte_count: u64,
    /// Rules.
    pub flow_count: u32,
}

pub(crate) fn decode_aggregate(r: &mut Reader<'_>) -> Res<AggregateStats> {
    let (packet_count, byte_count, flow_count) = (r.u64()?, r.u64()?, r.u32()?);
    Ok(AggregateStats { format: Format::Standard, packet_count, byte_count, flow_count })
}

pub(crate) fn decode_aggregate_nxt(r: &mut Reader<'_>) -> Res<AggregateStats> {
    Ok(AggregateStats { format: Format::Nxt, ..decode_aggregate(r)? })
}

pub(crate) fn encode_aggregate(m: &AggregateStats, w: &mut Writer) {
    w.u64(m.packet_count);
    w.u64(m.byte_count);
    w.u32(m.flow_count);
    w.zeros(4);
}

/// A monitor of rules (`NXST_FLOW_MONITOR`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitorRequest {
    /// The monitor.
    pub id: u32,
    /// `NXFMF_*`.
    pub flags: u16,
    /// Only rules that output here; `NONE` for any.
    pub out_port: OfPort,
    /// Of which table, or of all.
    pub table: TableId,
    /// Only rules that match no more than this.
    pub matching: Match,
}

pub(crate) fn read_monitor(r: &mut Reader<'_>) -> Res<FlowMonitorRequest> {
    let (id, flags, out_port) = (r.u32()?, r.u16()?, OfPort::from_of10(r.u16()?));
    let (match_len, table) = (r.u16()?, TableId(r.u8()?));
    if flags & !0x3f != 0 {
        return Err(ErrorKind::MofcBadFlags);
    }
    r.sub(5)?.zeros(ErrorKind::NxbrcMustBeZero)?;
    let matching = nxm::read_nxm_match(r, match_len, Unknown::Refuse)?.matching;
    Ok(FlowMonitorRequest { id, flags, out_port, table, matching })
}

pub(crate) fn put_monitor(w: &mut Writer, m: &FlowMonitorRequest) {
    w.u32(m.id);
    w.u16(m.flags);
    w.u16(m.out_port.to_of10().unwrap_or(0xffff));
    let len_at = w.mark();
    w.zeros(2);
    w.u8(m.table.0);
    w.zeros(5);
    let len = nxm::put_nxm_match(w, &m.matching, (0, 0));
    w.set_u16(len_at, len);
}
