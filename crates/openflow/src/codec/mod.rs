//! Bytes to [`Message`] and back, by the rows of the message table.
//!
//! A row is the wire form of a message kind in a range of versions: its id on the wire, valid lengths,
//! decoder and encoder. A new protocol version means new rows.

mod messages;
mod multipart;
mod table;

use crate::msg::{Kind, Message};
use ofp_wire::{ErrorKind, NX_VENDOR, ONF_VENDOR, OfError};
use ofp_wire::{Options, Reader, Res, Writer};
use ofp_wire::{Version, VersionSet};
use std::sync::LazyLock;
use table::{Id, Row, rows};

/// Bytes of the header of every message.
pub const HEADER_BYTES: usize = 8;

const OFPT_HELLO: u8 = 0;
const OFPT_ECHO_REPLY: u8 = 3;
const OFPT_EXPERIMENTER: u8 = 4;
/// `NXT_GROUP_MOD`.
const NXT_GROUP_MOD: [u8; 4] = [0, 0, 0, 31];
/// Multipart type of experimenters.
const OFPMP_EXPERIMENTER: u16 = 0xffff;

/// Types of multipart requests and replies.
fn multipart_types(version: Version) -> (u8, u8) {
    if version == Version::V10 { (16, 17) } else { (18, 19) }
}

/// Decodes one whole message. For an unsupported version decodes only messages common to all versions (hello,
/// error, echo); others are errors.
pub fn decode(bytes: &[u8]) -> Result<(Version, u32, Message), OfError> {
    decode_with(bytes, &Options::DEFAULT)
}

/// As [`decode`], on a connection with these options.
pub fn decode_with(bytes: &[u8], options: &Options) -> Result<(Version, u32, Message), OfError> {
    decode_part(bytes, options, false).map_err(|kind| OfError::about(kind, bytes))
}

/// Decodes the message inside a bundle's.
pub(crate) fn decode_inner(bytes: &[u8], outer: &Reader<'_>) -> Res<Message> {
    let (.., message) = decode_part(bytes, outer.options, true)?;
    Ok(message)
}

/// Decodes a forwarded request; returns it with its transaction id.
pub(crate) fn decode_forwarded(bytes: &[u8], outer: &Reader<'_>) -> Res<(u32, Message)> {
    // A forwarded request contains no further message.
    let ty = bytes.get(1).copied().unwrap_or_default();
    let (version, len) = (bytes.first().copied(), outer_len(bytes));
    if version != Some(outer.version.0) || len != bytes.len() {
        return Err(ErrorKind::BrcBadLen);
    }
    if ty == OFPT_EXPERIMENTER && bytes.get(12..16) != Some(&NXT_GROUP_MOD[..]) {
        return Err(ErrorKind::BrcBadType);
    }
    let (_, xid, message) = decode_part(bytes, outer.options, false)?;
    Ok((xid, message))
}

fn outer_len(bytes: &[u8]) -> usize {
    bytes.get(2..4).map_or(0, |b| usize::from(u16::from_be_bytes([b[0], b[1]])))
}

fn decode_part(bytes: &[u8], options: &Options, in_bundle: bool) -> Res<(Version, u32, Message)> {
    let mut r = Reader::new(bytes, Version(bytes.first().copied().unwrap_or(0)));
    r.options = options;
    let (version, ty, len) = (Version(r.u8()?), r.u8()?, usize::from(r.u16()?));
    r.xid = r.u32()?;
    if len != bytes.len() {
        return Err(ErrorKind::BrcBadLen);
    }
    if ty > OFPT_ECHO_REPLY && !VersionSet::IMPLEMENTED.contains(version) {
        return Err(ErrorKind::BrcBadVersion);
    }
    let id = read_id(&mut r, ty)?;
    let row = find(id, version).ok_or(unknown(id))?;
    if in_bundle && !matches!(row.kind, Kind::FlowMod | Kind::GroupMod | Kind::PortMod | Kind::PacketOut) {
        return Err(ErrorKind::BfcMsgUnsup);
    }
    if !row.len.holds(r.len()) {
        return Err(ErrorKind::BrcBadLen);
    }
    let message = (row.decode)(&mut r)?;
    Ok((version, r.xid, message))
}

/// Reads the id of a message: the type, and the headers of multipart messages and experimenters.
fn read_id(r: &mut Reader<'_>, ty: u8) -> Res<Id> {
    let version = r.version;
    let (request, reply) = multipart_types(version);
    if ty == OFPT_EXPERIMENTER {
        let vendor = r.u32()?;
        if vendor != NX_VENDOR && vendor != ONF_VENDOR {
            return Err(ErrorKind::BrcBadExperimenter);
        }
        return Ok(Id::Exp(vendor, r.u32()?));
    }
    let known = VersionSet::IMPLEMENTED.contains(version);
    if !known || (ty != request && ty != reply) {
        return Ok(Id::Of(ty));
    }
    let reply = ty == reply;
    let (mp, flags) = (r.u16()?, r.u16()?);
    r.more = flags & 1 != 0;
    if !reply && r.more && mp != 12 {
        // Only table features requests may be multipart.
        return Err(ErrorKind::BrcMultipartBufferOverflow);
    }
    r.skip(if version == Version::V10 { 0 } else { 4 })?;
    if mp != OFPMP_EXPERIMENTER {
        return Ok(Id::Mp { ty: mp, reply });
    }
    let vendor = r.u32()?;
    if vendor != NX_VENDOR && vendor != ONF_VENDOR {
        return Err(ErrorKind::BrcBadExperimenter);
    }
    let subtype = r.u32()?;
    r.skip(if version == Version::V10 { 4 } else { 0 })?;
    Ok(Id::ExpMp { vendor, subtype, reply })
}

fn find(id: Id, version: Version) -> Option<&'static Row> {
    let version = if is_common(id) { Version::V10 } else { version };
    let at = BY_ID.binary_search_by_key(&key(id, version), |(key, _)| *key).ok()?;
    Some(BY_ID[at].1)
}

/// Whether the message is the same in all versions, known or not.
fn is_common(id: Id) -> bool {
    matches!(id, Id::Of(OFPT_HELLO..=OFPT_ECHO_REPLY))
}

/// Id and version as one number: a search compares it at each step.
fn key(id: Id, version: Version) -> u128 {
    let (form, vendor, ty, reply) = match id {
        Id::Of(ty) => (0, 0, u32::from(ty), false),
        Id::Mp { ty, reply } => (1, 0, u32::from(ty), reply),
        Id::Exp(vendor, subtype) => (2, vendor, subtype, false),
        Id::ExpMp { vendor, subtype, reply } => (3, vendor, subtype, reply),
    };
    let head = u128::from(version.0) << 16 | form << 8 | u128::from(reply);
    head << 64 | u128::from(vendor) << 32 | u128::from(ty)
}

/// The first row of each version and id, in order.
static BY_ID: LazyLock<Vec<(u128, &'static Row)>> = LazyLock::new(|| {
    let versions = (Version::V10.0..=Version::V15.0).map(Version);
    let of_version = |v| rows().filter(move |r| r.in_version(v)).map(move |r| (key(r.id, v), r));
    let mut all: Vec<_> = versions.flat_map(of_version).collect();
    all.sort_by_key(|(key, _)| *key);
    all.dedup_by_key(|(key, _)| *key);
    all
});

/// The error for a name without a row.
fn unknown(id: Id) -> ErrorKind {
    match id {
        Id::Of(_) => ErrorKind::BrcBadType,
        Id::Mp { .. } => ErrorKind::BrcBadStat,
        Id::Exp(..) | Id::ExpMp { .. } => ErrorKind::BrcBadExpType,
    }
}

/// Encodes a message. Returns one message, or the parts of a multipart one in order, each with its own
/// header. `Err` if the version lacks the message or it is too long.
pub fn encode(message: &Message, version: Version, xid: u32) -> Result<Vec<u8>, ErrorKind> {
    encode_with(message, version, xid, &Options::DEFAULT)
}

/// As [`encode`], on a connection with these options.
pub fn encode_with(
    message: &Message,
    version: Version,
    xid: u32,
    options: &Options,
) -> Result<Vec<u8>, ErrorKind> {
    let mut w = Writer::new(version);
    w.xid = xid;
    w.options = options.clone();
    let row = row_of(message, version).ok_or(ErrorKind::BrcBadType)?;
    put_head(&mut w, row);
    (row.encode)(message, &mut w);
    w.finish(row.more(message))
}

/// Encodes a message inside another. A message without a form in the version is omitted, which the receiver
/// rejects.
pub(crate) fn encode_inner(message: &Message, xid: u32, w: &mut Writer) {
    if let Ok(inner) = encode_with(message, w.version, xid, &w.options) {
        w.bytes(&inner);
    }
}

/// The row of the message's format, else the first row of the version.
fn row_of(message: &Message, version: Version) -> Option<&'static Row> {
    let kind = message.kind();
    let mut first = None;
    for row in rows().filter(|r| r.kind == kind) {
        if !is_common(row.id) && !row.in_version(version) {
            continue;
        }
        if row.format == message.format() {
            return Some(row);
        }
        first = first.or(Some(row));
    }
    first
}

fn put_head(w: &mut Writer, row: &Row) {
    let version = w.version;
    let (request, reply_ty) = multipart_types(version);
    let (ty, multipart) = match row.id {
        Id::Of(ty) => (ty, false),
        Id::Exp(..) => (OFPT_EXPERIMENTER, false),
        Id::Mp { reply, .. } | Id::ExpMp { reply, .. } => (if reply { reply_ty } else { request }, true),
    };
    w.u8(version.0);
    w.u8(ty);
    w.u16(0);
    let xid = w.xid;
    w.u32(xid);
    let pad = if version == Version::V10 { 0 } else { 4 };
    match row.id {
        Id::Of(_) => {}
        Id::Exp(vendor, subtype) => {
            w.u32(vendor);
            w.u32(subtype);
        }
        Id::Mp { ty, .. } => {
            w.u16(ty);
            w.zeros(2 + pad);
        }
        Id::ExpMp { vendor, subtype, .. } => {
            w.u16(OFPMP_EXPERIMENTER);
            w.zeros(2 + pad);
            w.u32(vendor);
            w.u32(subtype);
            w.zeros(4 - pad);
        }
    }
    w.end_head(multipart.then_some(HEADER_BYTES + 2));
}
