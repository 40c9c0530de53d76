//! Packet-in in all its formats, and packet-out.
//!
//! Sources: OpenFlow 1.0 §5.3.6, §5.4.1; 1.1 §A.4.1; 1.2 §A.4.1; 1.3 §7.3.7, §7.4.1; 1.5 §7.3.6; Nicira's `NXT_PACKET_IN`
//! and `NXT_PACKET_IN2`.

use super::Format;
use flow::fields::FieldId;
use flow::{Match, OfPort, TableId};
use ofp_actions::{Action, PacketInReason, put_actions, read_actions};
use ofp_wire::ErrorKind;
use ofp_wire::Version;
use ofp_wire::nxm::{self, Unknown};
use ofp_wire::prop;
use ofp_wire::{Reader, Res, Writer};

/// Properties of `NXT_PACKET_IN2`.
mod pin {
    pub(super) const PACKET: u16 = 0;
    pub(super) const FULL_LEN: u16 = 1;
    pub(super) const BUFFER_ID: u16 = 2;
    pub(super) const TABLE_ID: u16 = 3;
    pub(super) const COOKIE: u16 = 4;
    pub(super) const REASON: u16 = 5;
    pub(super) const METADATA: u16 = 6;
    pub(super) const USERDATA: u16 = 7;
    pub(super) const CONTINUATION: u16 = 8;
}

/// A packet for the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketIn {
    /// The wire form.
    pub format: Format,
    /// Id of its buffer, or [`super::NO_BUFFER`].
    pub buffer_id: u32,
    /// Length of the whole packet.
    pub total_len_bytes: u32,
    /// Its reason.
    pub reason: PacketInReason,
    /// Table of the rule (0 in OpenFlow 1.0's own form).
    pub table: TableId,
    /// Cookie of the rule; all ones without a rule, and in the forms of OpenFlow 1.0 to 1.2.
    pub cookie: u64,
    /// Input port and other pipeline fields.
    pub metadata: Box<Match>,
    /// Beginning of the packet.
    pub data: Vec<u8>,
    /// From the controller action (format 2).
    pub userdata: Vec<u8>,
    /// State for a resume, opaque to the controller (format 2).
    pub continuation: Vec<u8>,
}

/// The number of the reason; reasons of OpenFlow 1.4 become "action" in earlier versions.
fn reason_to_wire(reason: PacketInReason, version: Version) -> u8 {
    let n = reason as u8;
    if n > 2 && version < Version::V14 { PacketInReason::Action as u8 } else { n }
}

fn read_reason(r: &mut Reader<'_>) -> Res<PacketInReason> {
    PacketInReason::from_wire(r.u8()?).ok_or(ErrorKind::NxbrcBadReason)
}

fn new(format: Format) -> PacketIn {
    PacketIn {
        format,
        buffer_id: super::NO_BUFFER,
        total_len_bytes: 0,
        reason: PacketInReason::NoMatch,
        table: TableId(0),
        cookie: u64::MAX,
        metadata: Box::default(),
        data: Vec::new(),
        userdata: Vec::new(),
        continuation: Vec::new(),
    }
}

pub(crate) fn decode(r: &mut Reader<'_>) -> Res<PacketIn> {
    let mut m = new(Format::Standard);
    m.buffer_id = r.u32()?;
    if r.version == Version::V11 {
        m.metadata.set(FieldId::InPortOxm, r.u32()?.into());
        // The physical port.
        r.skip(4)?;
    }
    m.total_len_bytes = r.u16()?.into();
    if r.version == Version::V10 {
        m.metadata.set(FieldId::InPortOxm, OfPort::from_of10(r.u16()?).0.into());
        m.reason = read_reason(r)?;
        r.skip(1)?;
    } else {
        m.reason = read_reason(r)?;
        m.table = TableId(r.u8()?);
        if r.version >= Version::V13 {
            m.cookie = r.u64()?;
        }
        if r.version >= Version::V12 {
            m.metadata = nxm::read_oxm_match(r, Unknown::Skip)?;
            r.skip(2)?;
        }
    }
    m.data = r.rest().to_vec();
    Ok(m)
}

fn in_port(m: &Match) -> OfPort {
    if m.mask().0.in_port == 0 { OfPort::NONE } else { m.flow().in_port() }
}

/// The part of the packet that fits into the message.
fn fitting(data: &[u8], w: &Writer) -> usize {
    data.len().min(ofp_wire::MAX_MESSAGE_BYTES.saturating_sub(w.mark() + 8))
}

pub(crate) fn encode(m: &PacketIn, w: &mut Writer) {
    w.u32(m.buffer_id);
    if w.version == Version::V11 {
        let port = in_port(&m.metadata).0;
        w.u32(port);
        w.u32(port);
    }
    w.u16(m.total_len_bytes.min(0xffff) as u16);
    let reason = reason_to_wire(m.reason, w.version);
    if w.version == Version::V10 {
        w.u16(in_port(&m.metadata).to_of10().unwrap_or(0xffff));
        w.u8(reason);
        w.u8(0);
    } else {
        w.u8(reason);
        w.u8(m.table.0);
        if w.version >= Version::V13 {
            w.u64(m.cookie);
        }
        if w.version >= Version::V12 {
            nxm::put_oxm_match(w, &m.metadata);
            w.zeros(2);
        }
    }
    let n = fitting(&m.data, w);
    w.bytes(&m.data[..n]);
}

pub(crate) fn decode_nxt(r: &mut Reader<'_>) -> Res<PacketIn> {
    let mut m = new(Format::Nxt);
    m.buffer_id = r.u32()?;
    m.total_len_bytes = r.u16()?.into();
    m.reason = read_reason(r)?;
    m.table = TableId(r.u8()?);
    m.cookie = r.u64()?;
    let len = r.u16()?;
    r.skip(6)?;
    m.metadata = nxm::read_nxm_match(r, len, Unknown::Skip)?.matching;
    r.skip(2)?;
    m.data = r.rest().to_vec();
    Ok(m)
}

pub(crate) fn encode_nxt(m: &PacketIn, w: &mut Writer) {
    w.u32(m.buffer_id);
    w.u16(m.total_len_bytes.min(0xffff) as u16);
    w.u8(reason_to_wire(m.reason, w.version));
    w.u8(m.table.0);
    w.u64(m.cookie);
    let len_at = w.mark();
    w.zeros(8);
    let len = with_version(w, Version::V10, |w| nxm::put_nxm_match(w, &m.metadata, (0, 0)));
    w.set_u16(len_at, len);
    w.zeros(2);
    let n = fitting(&m.data, w);
    w.bytes(&m.data[..n]);
}

/// Writes with the field names of another version.
fn with_version<T>(w: &mut Writer, version: Version, f: impl FnOnce(&mut Writer) -> T) -> T {
    let was = std::mem::replace(&mut w.version, version);
    let out = f(w);
    w.version = was;
    out
}

pub(crate) fn decode_nxt2(r: &mut Reader<'_>) -> Res<PacketIn> {
    let mut m = new(Format::Nxt2);
    let mut full_len = None;
    while !r.is_empty() {
        let (ty, mut p) = prop::read(r)?;
        match ty {
            pin::PACKET => m.data = p.rest().to_vec(),
            pin::FULL_LEN => full_len = Some(p.u32()?),
            pin::BUFFER_ID => m.buffer_id = p.u32()?,
            pin::TABLE_ID => m.table = TableId(prop::small_u8(&mut p)?),
            pin::COOKIE => {
                p.skip(4)?;
                m.cookie = p.u64()?;
            }
            pin::REASON => {
                m.reason =
                    PacketInReason::from_wire(prop::small_u8(&mut p)?).ok_or(ErrorKind::NxbrcBadReason)?;
            }
            pin::METADATA => m.metadata = nxm::read_entries(&mut p, Unknown::Skip)?.matching,
            pin::USERDATA => m.userdata = p.rest().to_vec(),
            pin::CONTINUATION => m.continuation = p.rest().to_vec(),
            _ => {}
        }
    }
    m.total_len_bytes = full_len.unwrap_or(m.data.len() as u32);
    Ok(m)
}

pub(crate) fn encode_nxt2(m: &PacketIn, w: &mut Writer) {
    // Room for the other properties: the messages of origin bound userdata and continuation.
    let others = 160 + m.userdata.len() + m.continuation.len() + 512;
    let keep = m.data.len().min(ofp_wire::MAX_MESSAGE_BYTES.saturating_sub(others));
    prop::put(w, pin::PACKET, |w| w.bytes(&m.data[..keep]));
    if m.total_len_bytes as usize != keep {
        prop::put(w, pin::FULL_LEN, |w| w.u32(m.total_len_bytes));
    }
    if m.buffer_id != super::NO_BUFFER {
        prop::put(w, pin::BUFFER_ID, |w| w.u32(m.buffer_id));
    }
    prop::put(w, pin::TABLE_ID, |w| w.u8(m.table.0));
    if m.cookie != u64::MAX {
        prop::put(w, pin::COOKIE, |w| {
            w.zeros(4);
            w.u64(m.cookie);
        });
    }
    let reason = reason_to_wire(m.reason, w.version);
    prop::put(w, pin::REASON, |w| w.u8(reason));
    prop::put(w, pin::METADATA, |w| {
        with_version(w, Version::V13, |w| nxm::put_entries(w, &m.metadata, (0, 0)));
    });
    if !m.userdata.is_empty() {
        prop::put(w, pin::USERDATA, |w| w.bytes(&m.userdata));
    }
    if !m.continuation.is_empty() {
        prop::put(w, pin::CONTINUATION, |w| w.bytes(&m.continuation));
    }
}

/// A packet from the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketOut {
    /// Id of its buffer, or [`super::NO_BUFFER`].
    pub buffer_id: u32,
    /// Assumed input port.
    pub in_port: OfPort,
    /// Other pipeline fields (OpenFlow 1.5).
    pub metadata: Box<Match>,
    /// Its actions.
    pub actions: Vec<Action>,
    /// The packet, when it is not in a buffer.
    pub data: Vec<u8>,
}

pub(crate) fn decode_out(r: &mut Reader<'_>) -> Res<PacketOut> {
    let buffer_id = r.u32()?;
    let old = r.version == Version::V10;
    let in_port = if old { OfPort::from_of10(r.u16()?) } else { OfPort(r.u32()?) };
    if !nxm::port_number_ok(in_port.0) {
        return Err(ErrorKind::BacBadOutPort);
    }
    let actions_len = usize::from(r.u16()?);
    r.skip(if old { 0 } else { 6 })?;
    check_in_port(in_port)?;
    out_of(r, buffer_id, in_port, Box::default(), actions_len)
}

/// Rejects reserved ports from which no packet comes.
fn check_in_port(in_port: OfPort) -> Res<()> {
    let special = [OfPort::LOCAL, OfPort::NONE, OfPort::CONTROLLER];
    let ok = in_port.0 < u32::from(OfPort::MAX_OF10) || special.contains(&in_port);
    if ok { Ok(()) } else { Err(ErrorKind::BrcBadPort) }
}

/// Reads the part common to all versions: actions and packet.
fn out_of(
    r: &mut Reader<'_>,
    buffer_id: u32,
    in_port: OfPort,
    metadata: Box<Match>,
    actions_len: usize,
) -> Res<PacketOut> {
    if actions_len > r.len() || !actions_len.is_multiple_of(8) {
        return Err(ErrorKind::BrcBadLen);
    }
    let actions = read_actions(&mut r.sub(actions_len)?)?;
    let data = if buffer_id == super::NO_BUFFER { r.rest().to_vec() } else { Vec::new() };
    Ok(PacketOut { buffer_id, in_port, metadata, actions, data })
}

pub(crate) fn decode_out15(r: &mut Reader<'_>) -> Res<PacketOut> {
    let (buffer_id, actions_len) = (r.u32()?, usize::from(r.u16()?));
    r.skip(2)?;
    // As in OVS, unknown fields are of no importance.
    let mut metadata = nxm::read_oxm_match(r, Unknown::Skip)?;
    if metadata.get(FieldId::InPortOxm).1 == 0 {
        return Err(ErrorKind::BrcBadPort);
    }
    let in_port = metadata.flow().in_port();
    check_in_port(in_port)?;
    metadata.set_masked(FieldId::InPortOxm, 0, 0);
    out_of(r, buffer_id, in_port, metadata, actions_len)
}

pub(crate) fn encode_out15(m: &PacketOut, w: &mut Writer) {
    w.u32(m.buffer_id);
    let len_at = w.mark();
    w.zeros(4);
    let mut metadata = m.metadata.clone();
    metadata.set(FieldId::InPortOxm, m.in_port.0.into());
    nxm::put_oxm_match(w, &metadata);
    put_actions_and_packet(m, w, len_at);
}

/// Writes actions, their length at `len_at`, and the packet.
fn put_actions_and_packet(m: &PacketOut, w: &mut Writer, len_at: usize) {
    let start = w.mark();
    put_actions(w, m.actions.iter(), &Match::catchall());
    let len = (w.mark() - start).min(0xffff) as u16;
    w.set_u16(len_at, len);
    if m.buffer_id == super::NO_BUFFER {
        w.bytes(&m.data);
    }
}

pub(crate) fn encode_out(m: &PacketOut, w: &mut Writer) {
    w.u32(m.buffer_id);
    let old = w.version == Version::V10;
    if old {
        w.u16(m.in_port.to_of10().unwrap_or(0xffff));
    } else {
        w.u32(m.in_port.0);
    }
    let len_at = w.mark();
    w.zeros(if old { 2 } else { 8 });
    put_actions_and_packet(m, w, len_at);
}
