//! Flow modifications and flow-removed messages.
//!
//! Sources: OpenFlow 1.0 §5.3.3, §5.4.3; 1.3 §7.3.4.1, §7.4.2; 1.5 §7.4.2; Nicira's NXM forms for 1.0, in which the
//! cookie to match is a field of the match.

use super::oxs::{self, Oxs};
use super::{Format, GROUP_ANY, wire_enum};
use crate::{match10, match11};
use flow::{Match, OfPort, PackedMatch, TableId};
use ofp_actions::{Action, put_actions, put_instructions, read_actions, read_instructions};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
use ofp_wire::nxm::{self, Unknown};
use ofp_wire::{Reader, Res, Writer};

bitflags::bitflags! {
    /// `OFPFF_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct FlowModFlags: u8 {
        /// Send a flow-removed message when the rule ends.
        const SEND_FLOW_REM = 1;
        /// Reject a rule that overlaps with another of its priority.
        const CHECK_OVERLAP = 1 << 1;
        /// Reset the counters (OpenFlow 1.2).
        const RESET_COUNTS = 1 << 2;
        /// Without packet count (OpenFlow 1.3).
        const NO_PKT_COUNTS = 1 << 3;
        /// Without byte count (OpenFlow 1.3).
        const NO_BYT_COUNTS = 1 << 4;
    }
}

/// `OFPFF_EMERG` of OpenFlow 1.0: emergency rules, which no switch supports.
const EMERG_10: u16 = 1 << 2;

wire_enum! {
    /// Command of a flow modification.
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
    /// The command.
    pub command: FlowModCommand,
    /// The table; [`TableId::ALL`] also if OpenFlow 1.0 omits it.
    pub table: TableId,
    /// Cookie to look for, within the mask.
    pub cookie: u64,
    /// Bits of the cookie to match.
    pub cookie_mask: u64,
    /// Cookie of the added or modified rule; all ones keeps a modified rule's cookie.
    pub new_cookie: u64,
    /// Idle timeout in seconds; 0 for none.
    pub idle_timeout_s: u16,
    /// Hard timeout in seconds; 0 for none.
    pub hard_timeout_s: u16,
    /// Priority.
    pub priority: u16,
    /// Packet to apply the rule to, or [`super::NO_BUFFER`].
    pub buffer_id: u32,
    /// For deletes: only rules that output here; `NONE` for any.
    pub out_port: OfPort,
    /// For deletes: only rules that use this group; [`GROUP_ANY`] for any.
    pub out_group: u32,
    /// Flags.
    pub flags: FlowModFlags,
    /// Rules of less importance are evicted first (OpenFlow 1.4).
    pub importance: u16,
    /// The match.
    pub matching: PackedMatch,
    /// Actions and instructions.
    pub actions: Vec<Action>,
}

fn command(n: u16, r: &Reader<'_>) -> Res<(FlowModCommand, TableId)> {
    let (table, n) =
        if r.options.table_id_in_command { (TableId((n >> 8) as u8), n & 0xff) } else { (TableId::ALL, n) };
    let n = u8::try_from(n).map_err(|_| ErrorKind::FmfcBadCommand)?;
    Ok((FlowModCommand::from_wire(n).ok_or(ErrorKind::FmfcBadCommand)?, table))
}

/// The flags; `timeouts` (idle, hard) select the error for an emergency rule.
fn flags(n: u16, version: Version, timeouts: (u16, u16)) -> Res<FlowModFlags> {
    if version == Version::V10 && n & EMERG_10 != 0 {
        let forever = timeouts == (0, 0);
        return Err(if forever { ErrorKind::FmfcTableFull } else { ErrorKind::FmfcBadEmergTimeout });
    }
    let known = u8::try_from(n).ok().and_then(FlowModFlags::from_bits);
    known.filter(|f| flags_of(version).contains(*f)).ok_or(ErrorKind::FmfcBadFlags)
}

/// The flags of a version.
fn flags_of(version: Version) -> FlowModFlags {
    let old = FlowModFlags::SEND_FLOW_REM | FlowModFlags::CHECK_OVERLAP;
    match version {
        Version::V10 | Version::V11 => old,
        Version::V12 => old | FlowModFlags::RESET_COUNTS,
        _ => FlowModFlags::all(),
    }
}

/// Connection addresses must be of the rule's own protocol: OVS rejects rules, but not requests, that violate
/// this.
fn addresses_fit(m: &Match) -> Res<()> {
    let (mask, ip) = (&m.mask().0, |ty: u16| m.mask().0.dl_type == 0xffff && m.flow().dl_type == ty);
    let v4 = (mask.ct_nw_src | mask.ct_nw_dst) != 0;
    let v6 = mask.ct_ipv6_src != [0; 16] || mask.ct_ipv6_dst != [0; 16];
    if v4 && !ip(0x0800) || v6 && !ip(0x86dd) { Err(ErrorKind::BacMatchInconsistent) } else { Ok(()) }
}

pub(crate) fn decode_mod(r: &mut Reader<'_>) -> Res<FlowMod> {
    if r.version == Version::V10 { decode_mod10(r) } else { decode_mod11(r) }
}

fn decode_mod10(r: &mut Reader<'_>) -> Res<FlowMod> {
    let exact = match10::is_exact(r)?;
    let matching = match10::read(r)?;
    let new_cookie = r.u64()?;
    let (command, table) = command(r.u16()?, r)?;
    let (idle_timeout_s, hard_timeout_s, priority) = (r.u16()?, r.u16()?, r.u16()?);
    // A rule without wildcards has the highest priority (OpenFlow 1.0 §3.4).
    let priority = if exact { u16::MAX } else { priority };
    let (buffer_id, out_port) = (r.u32()?, OfPort::from_of10(r.u16()?));
    let flags = flags(r.u16()?, r.version, (idle_timeout_s, hard_timeout_s))?;
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
        importance: 0,
        matching: PackedMatch::from(&*matching),
        actions: read_actions(r)?,
    })
}

fn decode_mod11(r: &mut Reader<'_>) -> Res<FlowMod> {
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let table = TableId(r.u8()?);
    let command = FlowModCommand::from_wire(r.u8()?).ok_or(ErrorKind::FmfcBadCommand)?;
    let (idle_timeout_s, hard_timeout_s, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let (buffer_id, out_port, out_group) = (r.u32()?, r.u32()?, r.u32()?);
    let flags = flags(r.u16()?, r.version, (idle_timeout_s, hard_timeout_s))?;
    let importance = r.u16()?;
    let importance = if r.version >= Version::V14 { importance } else { 0 };
    if !nxm::port_number_ok(out_port) {
        return Err(ErrorKind::BacBadOutPort);
    }
    let mut matching = Match::catchall();
    match11::read_to(r, Unknown::Refuse, &mut matching)?;
    addresses_fit(&matching)?;
    let actions = read_instructions(r)?;
    // In OpenFlow 1.1 a modification that selects by no cookie adds a rule if none matches.
    let adds = r.version == Version::V11 && !command.deletes() && cookie_mask == 0;
    let add = command == FlowModCommand::Add || adds;
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
        importance,
        matching: PackedMatch::from(&matching),
        actions,
    })
}

pub(crate) fn decode_mod_nxt(r: &mut Reader<'_>) -> Res<FlowMod> {
    let new_cookie = r.u64()?;
    let (command, table) = command(r.u16()?, r)?;
    let (idle_timeout_s, hard_timeout_s, priority) = (r.u16()?, r.u16()?, r.u16()?);
    let (buffer_id, out_port) = (r.u32()?, OfPort::from_of10(r.u16()?));
    let flags = flags(r.u16()?, Version::V10, (idle_timeout_s, hard_timeout_s))?;
    let match_len = r.u16()?;
    r.skip(6)?;
    let mut matching = Match::catchall();
    let cookie = nxm::read_nxm_match_to(r, match_len, Unknown::Refuse, &mut matching)?;
    addresses_fit(&matching)?;
    let (cookie, cookie_mask) = cookie.unwrap_or((0, 0));
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
        importance: 0,
        matching: PackedMatch::from(&matching),
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
    let matching = m.matching.unpack();
    if w.version == Version::V10 {
        match10::put(w, &matching);
        w.u64(m.new_cookie);
        put_command(w, m);
        put_timeouts(w, m);
        w.u16(m.out_port.to_of10().unwrap_or(0xffff));
        w.u16((m.flags.bits() & 3).into());
        put_actions(w, m.actions.iter(), &matching);
        return;
    }
    let adds = w.version == Version::V11 && !m.command.deletes() && m.new_cookie != u64::MAX;
    let add = m.command == FlowModCommand::Add || adds;
    w.u64(if add { m.new_cookie } else { m.cookie });
    w.u64(if add { 0 } else { m.cookie_mask });
    w.u8(m.table.0);
    w.u8(m.command as u8);
    put_timeouts(w, m);
    w.u32(m.out_port.0);
    w.u32(m.out_group);
    w.u16((m.flags & flags_of(w.version)).bits().into());
    w.u16(if w.version >= Version::V14 { m.importance } else { 0 });
    match11::put_whole(w, &matching);
    put_instructions(w, &m.actions, &matching);
}

pub(crate) fn encode_mod_nxt(m: &FlowMod, w: &mut Writer) {
    let matching = m.matching.unpack();
    w.u64(m.new_cookie);
    put_command(w, m);
    put_timeouts(w, m);
    w.u16(m.out_port.to_of10().unwrap_or(0xffff));
    w.u16((m.flags.bits() & 3).into());
    let len_at = w.mark();
    w.zeros(8);
    let len = nxm::put_nxm_match(w, &matching, (m.cookie, m.cookie_mask));
    w.set_u16(len_at, len);
    put_actions(w, m.actions.iter(), &matching);
}

wire_enum! {
    /// Reason for a rule's removal.
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

/// A flow-removed message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowRemoved {
    /// The wire form.
    pub format: Format,
    /// The match. Boxed, as all wide parts of messages: every [`super::Message`] has the size of the largest.
    pub matching: Box<Match>,
    /// Cookie.
    pub cookie: u64,
    /// Priority.
    pub priority: u16,
    /// The reason.
    pub reason: FlowRemovedReason,
    /// Table; [`TableId::ALL`] if the form lacks it.
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
    let mut matching = if old { match10::read(r)? } else { Box::default() };
    let (cookie, priority, reason) = (r.u64()?, r.u16()?, read_removed_reason(r)?);
    let table = TableId(r.u8()?);
    let (duration_s, duration_ns, idle_timeout_s, hard) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
    let (packet_count, byte_count) = (r.u64()?, r.u64()?);
    if !old {
        matching = match11::read(r, Unknown::Skip)?;
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
        hard_timeout_s: if r.version < Version::V12 { 0 } else { hard },
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
    w.u16(if w.version < Version::V12 { 0 } else { m.hard_timeout_s });
    w.u64(m.packet_count);
    w.u64(m.byte_count);
    if !old {
        match11::put(w, &m.matching);
    }
}

/// OpenFlow 1.5: the counters are OXS fields.
pub(crate) fn decode_removed15(r: &mut Reader<'_>) -> Res<FlowRemoved> {
    let table = TableId(r.u8()?);
    let (reason, priority) = (read_removed_reason(r)?, r.u16()?);
    let (idle_timeout_s, hard_timeout_s, cookie) = (r.u16()?, r.u16()?, r.u64()?);
    let matching = match11::read(r, Unknown::Skip)?;
    let stats = oxs::read(r)?;
    let (duration_s, duration_ns) = stats.duration.unwrap_or_default();
    Ok(FlowRemoved {
        format: Format::Standard,
        matching,
        cookie,
        priority,
        reason,
        table,
        duration_s,
        duration_ns,
        idle_timeout_s,
        hard_timeout_s,
        packet_count: stats.packets.unwrap_or(u64::MAX),
        byte_count: stats.bytes.unwrap_or(u64::MAX),
    })
}

pub(crate) fn encode_removed15(m: &FlowRemoved, w: &mut Writer) {
    w.u8(m.table.0);
    w.u8(removed_reason(m.reason, w.version));
    w.u16(m.priority);
    w.u16(m.idle_timeout_s);
    w.u16(m.hard_timeout_s);
    w.u64(m.cookie);
    match11::put(w, &m.matching);
    oxs::put(
        w,
        &Oxs {
            duration: Some((m.duration_s, m.duration_ns)),
            packets: Some(m.packet_count),
            bytes: Some(m.byte_count),
            ..Oxs::default()
        },
    );
}

/// The number of the reason; reasons unknown to the version become "deleted".
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
        // The form has the table plus one, 0 for unknown.
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
