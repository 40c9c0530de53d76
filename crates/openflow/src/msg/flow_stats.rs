//! Flow statistics, single or aggregated.
//!
//! Sources: OpenFlow 1.0 §5.3.5; 1.3 §7.3.5.2, §7.3.5.3; 1.5 §7.3.5.2; Nicira's NXM forms for 1.0 (`NXST_FLOW`,
//! `NXST_AGGREGATE`), in which the cookie to match is a field of the match.

use super::flow_mod::FlowModFlags;
use super::oxs::{self, Oxs};
use super::{Format, GROUP_ANY};
use crate::{match10, match11};
use flow::{Match, OfPort, PackedMatch, TableId};
use ofp_actions::{Action, put_actions, put_instructions, read_actions, read_instructions};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
use ofp_wire::nxm::{self, Unknown};
use ofp_wire::{Reader, Res, Writer};
use std::sync::Arc;

/// Selects rules for statistics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStatsRequest {
    /// The wire form.
    pub format: Format,
    /// The table, or all.
    pub table: TableId,
    /// Only rules that output here; `NONE` for any.
    pub out_port: OfPort,
    /// Only rules that use this group; [`GROUP_ANY`] for any.
    pub out_group: u32,
    /// Cookie to look for, within the mask.
    pub cookie: u64,
    /// Bits of the cookie to match.
    pub cookie_mask: u64,
    /// Only rules that match no more than this.
    pub matching: Box<Match>,
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
    let matching = match11::read(r, Unknown::Refuse)?;
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
    match11::put_whole(w, &m.matching);
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
    /// Time since the last packet (OpenFlow 1.5; Nicira's form, up to 65534).
    pub idle_age_s: Option<u32>,
    /// Time since the last change (Nicira's form, up to 65534).
    pub hard_age_s: Option<u32>,
    /// Flags (OpenFlow 1.3).
    pub flags: FlowModFlags,
    /// Importance (OpenFlow 1.4).
    pub importance: u16,
    /// Cookie.
    pub cookie: u64,
    /// Packets.
    pub packet_count: u64,
    /// Bytes.
    pub byte_count: u64,
    /// The match.
    pub matching: PackedMatch,
    /// Actions and instructions.
    pub actions: Arc<[Action]>,
}

/// The part after an entry's length field.
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
    let mut matching = if old { match10::read(&mut r)? } else { Box::default() };
    let (duration_s, duration_ns, priority) = (r.u32()?, r.u32()?, r.u16()?);
    let (idle_timeout_s, hard_timeout_s, flags) = (r.u16()?, r.u16()?, r.u16()?);
    let importance = r.u16()?;
    r.skip(2)?;
    let (cookie, packet_count, byte_count) = (r.u64()?, r.u64()?, r.u64()?);
    if !old {
        matching = match11::read(&mut r, Unknown::Refuse)?;
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
        flags: if has_flags(r.version) {
            FlowModFlags::from_bits_truncate(flags as u8)
        } else {
            FlowModFlags::empty()
        },
        importance: if r.version >= Version::V14 { importance } else { 0 },
        cookie,
        packet_count,
        byte_count,
        matching: PackedMatch::from(&*matching),
        actions: if old { read_actions(&mut r)? } else { read_instructions(&mut r)? }.into(),
    })
}

pub(crate) fn put_stats(w: &mut Writer, s: &FlowStats) {
    let old = w.version == Version::V10;
    let matching = s.matching.unpack();
    let mark = w.mark();
    w.zeros(2);
    w.u8(s.table.0);
    w.u8(0);
    if old {
        match10::put(w, &matching);
    }
    w.u32(s.duration_s);
    w.u32(s.duration_ns);
    w.u16(s.priority);
    w.u16(s.idle_timeout_s);
    w.u16(s.hard_timeout_s);
    w.u16(if has_flags(w.version) { s.flags.bits().into() } else { 0 });
    w.u16(if w.version >= Version::V14 { s.importance } else { 0 });
    w.zeros(2);
    w.u64(s.cookie);
    w.u64(s.packet_count);
    w.u64(s.byte_count);
    if old {
        put_actions(w, s.actions.iter(), &matching);
    } else {
        nxm::put_oxm_match(w, &matching);
        put_instructions(w, &s.actions, &matching);
    }
    w.set_len(mark, 0);
}

/// Whether statistics of rules have their flags.
fn has_flags(version: Version) -> bool {
    version >= Version::V13
}

/// OpenFlow 1.5: a description, with the counters as OXS fields.
pub(crate) fn read_stats15(r: &mut Reader<'_>) -> Res<FlowStats> {
    let mut r = entry(r)?;
    r.skip(2)?;
    let table = TableId(r.u8()?);
    r.skip(1)?;
    let (priority, idle_timeout_s, hard_timeout_s) = (r.u16()?, r.u16()?, r.u16()?);
    let (flags, importance, cookie) = (r.u16()?, r.u16()?, r.u64()?);
    let matching = match11::read(&mut r, Unknown::Refuse)?;
    let stats = oxs::read(&mut r)?;
    let (duration_s, duration_ns) = stats.duration.unwrap_or_default();
    Ok(FlowStats {
        table,
        duration_s,
        duration_ns,
        priority,
        idle_timeout_s,
        hard_timeout_s,
        idle_age_s: stats.idle_s,
        hard_age_s: None,
        flags: FlowModFlags::from_bits_truncate(flags as u8),
        importance,
        cookie,
        packet_count: stats.packets.unwrap_or(u64::MAX),
        byte_count: stats.bytes.unwrap_or(u64::MAX),
        matching: PackedMatch::from(&*matching),
        actions: read_instructions(&mut r)?.into(),
    })
}

pub(crate) fn put_stats15(w: &mut Writer, s: &FlowStats) {
    let matching = s.matching.unpack();
    let mark = w.mark();
    w.zeros(4);
    w.u8(s.table.0);
    w.u8(0);
    w.u16(s.priority);
    w.u16(s.idle_timeout_s);
    w.u16(s.hard_timeout_s);
    w.u16(s.flags.bits().into());
    w.u16(s.importance);
    w.u64(s.cookie);
    match11::put(w, &matching);
    let stats = Oxs {
        duration: Some((s.duration_s, s.duration_ns)),
        idle_s: s.idle_age_s,
        packets: Some(s.packet_count),
        bytes: Some(s.byte_count),
        flows: None,
    };
    oxs::put(w, &stats);
    put_instructions(w, &s.actions, &matching);
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
        importance: 0,
        cookie,
        packet_count,
        byte_count,
        matching: PackedMatch::from(&*matching),
        actions: read_actions(&mut r)?.into(),
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
    let matching = s.matching.unpack();
    let len = nxm::put_nxm_match(w, &matching, (0, 0));
    w.set_u16(len_at, len);
    put_actions(w, s.actions.iter(), &matching);
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

pub(crate) fn decode_aggregate15(r: &mut Reader<'_>) -> Res<AggregateStats> {
    let stats = oxs::read(r)?;
    if !r.is_empty() {
        return Err(ErrorKind::BrcBadLen);
    }
    let (packet_count, byte_count) = (stats.packets.unwrap_or(u64::MAX), stats.bytes.unwrap_or(u64::MAX));
    let flow_count = stats.flows.unwrap_or(u32::MAX);
    Ok(AggregateStats { format: Format::Standard, packet_count, byte_count, flow_count })
}

pub(crate) fn encode_aggregate15(m: &AggregateStats, w: &mut Writer) {
    let stats = Oxs {
        packets: Some(m.packet_count),
        bytes: Some(m.byte_count),
        flows: Some(m.flow_count),
        ..Oxs::default()
    };
    oxs::put(w, &stats);
}
