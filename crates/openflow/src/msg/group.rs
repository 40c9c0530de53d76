//! Groups (OpenFlow 1.3 §7.3.4.2, §7.3.5.9 to §7.3.5.11; 1.5 §7.3.4.3), and Nicira's messages for OpenFlow 1.0, which
//! have the structures of 1.5.

use super::{Format, wire_enum};
use crate::msg::GROUP_ANY;
use flow::fields::FieldId;
use flow::{Match, OfPort};
use ofp_actions::{Action, put_actions, read_actions};
use ofp_wire::ErrorKind;
use ofp_wire::{Reader, Res, Version, Writer};
use ofp_wire::{nxm, prop};

/// All groups, in requests and deletions.
pub const GROUP_ALL: u32 = 0xffff_fffc;
/// All buckets, the default place of commands.
pub const BUCKET_ALL: u32 = u32::MAX;
/// The place before all buckets, or the first bucket.
pub const BUCKET_FIRST: u32 = 0xffff_fffd;
/// The place behind all buckets, or the last bucket.
pub const BUCKET_LAST: u32 = 0xffff_fffe;

/// Experimenter of the group property for the selection method.
const NTR_VENDOR: u32 = 0x0000_154d;
/// The number that older controllers have for it, as OVS takes it.
const NTR_COMPAT_VENDOR: u32 = 0x0000_1540;
/// Type of a property of an experimenter.
const EXPERIMENTER: u16 = 0xffff;
/// Bytes of the name of a selection method, with a zero byte at its end.
const METHOD_BYTES: usize = 16;
/// `OFPG15_BUCKET_MAX`.
const BUCKET_MAX: u32 = 0xffff_ff00;

wire_enum! {
    /// Type of a group.
    GroupType: u8 {
        /// Executes all.
        All = 0,
        /// Executes one of them.
        Select = 1,
        /// Executes its only bucket.
        Indirect = 2,
        /// Executes the first live bucket.
        FastFailover = 3,
    }
}

wire_enum! {
    /// Command of a group modification.
    GroupModCommand: u16 {
        /// Add it.
        Add = 0,
        /// Change it.
        Modify = 1,
        /// Delete it, or all.
        Delete = 2,
        /// Insert buckets (OpenFlow 1.5).
        InsertBucket = 3,
        /// Remove buckets (OpenFlow 1.5).
        RemoveBucket = 5,
        /// Add or change (Nicira).
        AddOrModify = 0x8000,
    }
}

/// A bucket of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bucket {
    /// Bucket id; OpenFlow 1.3 counts from 0.
    pub id: u32,
    /// Its share.
    pub weight: u16,
    /// Live if this port is; `NONE` for none.
    pub watch_port: OfPort,
    /// Live if this group is; [`GROUP_ANY`] for none.
    pub watch_group: u32,
    /// Its actions.
    pub actions: Vec<Action>,
}

/// Selection of a bucket of a select group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Its name: `hash` or `dp_hash`.
    pub method: String,
    /// Its parameter.
    pub param: u64,
    /// Fields of `hash`, with the bits that count: of a whole field, all bits of its bytes in a message.
    pub fields: Vec<(FieldId, u128)>,
}

/// The mask of a whole field of a selection: OVS sends and expects ones in unused bits, too.
pub fn whole_field(field: FieldId) -> u128 {
    let bits = 8 * u32::from(field.def().wire_bytes);
    1u128.checked_shl(bits).map_or(u128::MAX, |next| next - 1)
}

/// Whether a selection may have this mask: any of a maskable field, else none or all of it.
pub fn is_field_mask(field: FieldId, mask: u128) -> bool {
    field.def().maskable || mask == 0 || mask == whole_field(field)
}

/// A group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its type.
    pub ty: GroupType,
    /// Its number.
    pub id: u32,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
    /// Selection method of buckets (Netronome's extension of OpenFlow 1.5).
    pub selection: Option<Selection>,
}

/// Changes groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupMod {
    /// The wire form.
    pub format: Format,
    /// The command.
    pub command: GroupModCommand,
    /// Position of the insertion, or bucket to remove (Nicira's form).
    pub command_bucket_id: u32,
    /// The group.
    pub group: Group,
}

fn read_bucket(r: &mut Reader<'_>, id: u32) -> Res<Bucket> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len).map_err(|_| ErrorKind::GmfcBadBucket)?.or(ErrorKind::GmfcBadBucket);
    r.skip(2)?;
    let (weight, watch_port, watch_group) = (r.u16()?, OfPort(r.u32()?), r.u32()?);
    r.skip(4)?;
    let actions = read_actions(&mut r)?;
    Ok(Bucket { id, weight, watch_port: watched(watch_port)?, watch_group, actions })
}

fn put_bucket(w: &mut Writer, b: &Bucket) {
    let mark = w.mark();
    w.zeros(2);
    w.u16(b.weight);
    w.u32(b.watch_port.0);
    w.u32(b.watch_group);
    w.zeros(4);
    put_actions(w, b.actions.iter(), &Match::catchall());
    w.set_len(mark, 0);
}

/// The error of a property of an unknown type.
fn unknown(ty: u16) -> ErrorKind {
    if ty == EXPERIMENTER { ErrorKind::BpcBadExpType } else { ErrorKind::BpcBadType }
}

fn read_bucket_nxt(r: &mut Reader<'_>, ty: Option<GroupType>) -> Res<Bucket> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len).map_err(|_| ErrorKind::GmfcBadBucket)?.or(ErrorKind::GmfcBadBucket);
    r.skip(2)?;
    let (actions_len, id) = (usize::from(r.u16()?), r.u32()?);
    let actions = read_actions(&mut r.sub(actions_len)?)?;
    let weight = u16::from(ty == Some(GroupType::Select));
    let mut b = Bucket { id, weight, watch_port: OfPort::NONE, watch_group: GROUP_ANY, actions };
    while !r.is_empty() {
        let (ty, mut p) = prop::read(&mut r)?;
        match ty {
            0 => b.weight = p.u16()?,
            1 => b.watch_port = watched(OfPort(p.u32()?))?,
            2 => b.watch_group = p.u32()?,
            ty => return Err(unknown(ty)),
        }
    }
    Ok(b)
}

/// A watched port, or none.
fn watched(port: OfPort) -> Res<OfPort> {
    if nxm::port_number_ok(port.0) { Ok(port) } else { Err(ErrorKind::GmfcBadWatch) }
}

fn put_bucket_nxt(w: &mut Writer, b: &Bucket, ty: GroupType) {
    let mark = w.mark();
    w.zeros(4);
    w.u32(b.id);
    let start = w.mark();
    put_actions(w, b.actions.iter(), &Match::catchall());
    let actions_len = (w.mark() - start).min(0xffff) as u16;
    w.set_u16(mark + 2, actions_len);
    if ty == GroupType::Select || b.weight != 0 {
        prop::put(w, 0, |w| {
            w.u16(b.weight);
            w.zeros(2);
        });
    }
    if b.watch_port != OfPort::NONE {
        prop::put(w, 1, |w| w.u32(b.watch_port.0));
    }
    if b.watch_group != GROUP_ANY {
        prop::put(w, 2, |w| w.u32(b.watch_group));
    }
    w.set_len(mark, 0);
}

/// Reads the properties of a group of a type, in a change of it, or in its description.
fn read_group_props(
    r: &mut Reader<'_>,
    group: Option<GroupType>,
    change: GroupModCommand,
) -> Res<Option<Selection>> {
    let mut selection = None;
    while !r.is_empty() {
        let (ty, mut p) = prop::read(r)?;
        if ty != EXPERIMENTER || !matches!(p.u32()?, NTR_VENDOR | NTR_COMPAT_VENDOR) || p.u32()? != 1 {
            return Err(unknown(ty));
        }
        let changes_all =
            matches!(change, GroupModCommand::Add | GroupModCommand::Modify | GroupModCommand::AddOrModify);
        if group != Some(GroupType::Select) || !changes_all {
            return Err(ErrorKind::BpcBadValue);
        }
        p.skip(4)?;
        let (method, param) = (p.text(METHOD_BYTES)?, p.u64()?);
        let has_fields = match method.as_str() {
            "hash" => true,
            "dp_hash" => false,
            _ => return Err(ErrorKind::BpcBadValue),
        };
        if !has_fields && !p.is_empty() {
            return Err(ErrorKind::BpcBadValue);
        }
        selection = Some(Selection { method, param, fields: read_fields(&mut p.or(ErrorKind::BmcBadLen))? });
    }
    Ok(selection)
}

/// Reads fields: headers without mask, each with the bits that count. As OVS does, it sorts them.
fn read_fields(p: &mut Reader<'_>) -> Res<Vec<(FieldId, u128)>> {
    let mut fields = Vec::new();
    while !p.is_empty() {
        let header = nxm::Header::read(p)?;
        if header.has_mask {
            return Err(ErrorKind::BmcBadMask);
        }
        let field = header.field().ok_or(ErrorKind::BmcBadField)?;
        let mask = p.uint(field.def().wire_bytes.into())?;
        if fields.iter().any(|(other, _)| *other == field) {
            return Err(ErrorKind::BmcDupField);
        }
        if !is_field_mask(field, mask) {
            return Err(ErrorKind::BmcBadMask);
        }
        fields.push((field, mask));
    }
    fields.sort_unstable();
    Ok(fields)
}

fn put_group_props(w: &mut Writer, g: &Group) {
    if let Some(selection) = &g.selection {
        prop::put(w, EXPERIMENTER, |w| {
            w.u32(NTR_VENDOR);
            w.u32(1);
            w.zeros(4);
            w.text(&selection.method, METHOD_BYTES);
            w.u64(selection.param);
            for (field, mask) in &selection.fields {
                nxm::put_header(w, *field, false);
                w.uint(*mask, field.def().wire_bytes.into());
            }
        });
    }
}

fn group_type(n: u8) -> Res<GroupType> {
    GroupType::from_wire(n).ok_or(ErrorKind::GmfcBadType)
}

fn read_buckets(r: &mut Reader<'_>) -> Res<Vec<Bucket>> {
    let mut buckets = Vec::new();
    while !r.is_empty() {
        buckets.push(read_bucket(r, buckets.len() as u32)?);
    }
    Ok(buckets)
}

/// The type and the command of a change, once the rest of it is read, as OVS checks them. OpenFlow 1.1 to 1.4 lack
/// those for single buckets.
fn kind(ty: u8, command: u16, has_bucket_commands: bool) -> Res<(GroupType, GroupModCommand)> {
    let of_buckets =
        |c: &GroupModCommand| matches!(c, GroupModCommand::InsertBucket | GroupModCommand::RemoveBucket);
    let command = GroupModCommand::from_wire(command).filter(|c| has_bucket_commands || !of_buckets(c));
    Ok((group_type(ty)?, command.ok_or(ErrorKind::GmfcBadCommand)?))
}

pub(crate) fn decode_mod(r: &mut Reader<'_>) -> Res<GroupMod> {
    let (command, ty) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (id, buckets) = (r.u32()?, read_buckets(r)?);
    let (ty, command) = kind(ty, command, false)?;
    let group = Group { ty, id, buckets, selection: None };
    Ok(GroupMod { format: Format::Standard, command, command_bucket_id: BUCKET_ALL, group })
}

pub(crate) fn encode_mod(m: &GroupMod, w: &mut Writer) {
    w.u16(m.command as u16);
    w.u8(m.group.ty as u8);
    w.u8(0);
    w.u32(m.group.id);
    for b in &m.group.buckets {
        put_bucket(w, b);
    }
}

/// Whether a command may name this bucket.
fn is_place(command: Option<GroupModCommand>, bucket: u32) -> bool {
    let one = bucket <= BUCKET_MAX || bucket == BUCKET_FIRST || bucket == BUCKET_LAST;
    match command {
        Some(GroupModCommand::InsertBucket) => one,
        Some(GroupModCommand::RemoveBucket) => one || bucket == BUCKET_ALL,
        Some(
            GroupModCommand::Add
            | GroupModCommand::Modify
            | GroupModCommand::AddOrModify
            | GroupModCommand::Delete,
        )
        | None => bucket == BUCKET_ALL,
    }
}

pub(crate) fn decode_mod15(r: &mut Reader<'_>) -> Res<GroupMod> {
    let (command, ty) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let (id, buckets_len) = (r.u32()?, usize::from(r.u16()?));
    r.skip(2)?;
    let command_bucket_id = r.u32()?;
    let (change, group) = (GroupModCommand::from_wire(command), GroupType::from_wire(ty));
    if !is_place(change, command_bucket_id) {
        return Err(ErrorKind::GmfcBadBucket);
    }
    let buckets = read_buckets_nxt(r, buckets_len, group)?;
    // The properties of an unknown command are as those of one that has none.
    let selection = read_group_props(r, group, change.unwrap_or(GroupModCommand::Delete))?;
    let (ty, command) = kind(ty, command, true)?;
    if command == GroupModCommand::RemoveBucket && !buckets.is_empty() {
        return Err(ErrorKind::GmfcBadBucket);
    }
    let group = Group { ty, id, buckets, selection };
    Ok(GroupMod { format: Format::Standard, command, command_bucket_id, group })
}

fn read_buckets_nxt(r: &mut Reader<'_>, len: usize, ty: Option<GroupType>) -> Res<Vec<Bucket>> {
    let mut part = r.sub(len).map_err(|_| ErrorKind::GmfcBadBucket)?;
    let mut buckets = Vec::new();
    while !part.is_empty() {
        buckets.push(read_bucket_nxt(&mut part, ty)?);
    }
    Ok(buckets)
}

pub(crate) fn decode_mod_nxt(r: &mut Reader<'_>) -> Res<GroupMod> {
    Ok(GroupMod { format: Format::Nxt, ..decode_mod15(r)? })
}

pub(crate) fn encode_mod15(m: &GroupMod, w: &mut Writer) {
    w.u16(m.command as u16);
    w.u8(m.group.ty as u8);
    w.u8(0);
    w.u32(m.group.id);
    let len_at = w.mark();
    w.zeros(4);
    w.u32(m.command_bucket_id);
    let start = w.mark();
    for b in &m.group.buckets {
        put_bucket_nxt(w, b, m.group.ty);
    }
    let len = (w.mark() - start).min(0xffff) as u16;
    w.set_u16(len_at, len);
    put_group_props(w, &m.group);
}

/// Selects groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupRequest {
    /// The group, or [`GROUP_ALL`].
    pub group: u32,
}

pub(crate) fn decode_request(r: &mut Reader<'_>) -> Res<GroupRequest> {
    Ok(GroupRequest { group: r.u32()? })
}

pub(crate) fn encode_request(m: &GroupRequest, w: &mut Writer) {
    w.u32(m.group);
    w.zeros(4);
}

/// Before OpenFlow 1.5 a request asks for the descriptions of all groups.
pub(crate) fn decode_request_all(_: &mut Reader<'_>) -> Res<GroupRequest> {
    Ok(GroupRequest { group: GROUP_ALL })
}

pub(crate) fn encode_request_all(_: &GroupRequest, _: &mut Writer) {}

pub(crate) fn read_desc(r: &mut Reader<'_>) -> Res<Group> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len)?;
    r.skip(2)?;
    let ty = group_type(r.u8()?)?;
    r.skip(1)?;
    Ok(Group { ty, id: r.u32()?, buckets: read_buckets(&mut r)?, selection: None })
}

pub(crate) fn put_desc(w: &mut Writer, g: &Group) {
    let mark = w.mark();
    w.zeros(2);
    w.u8(g.ty as u8);
    w.u8(0);
    w.u32(g.id);
    for b in &g.buckets {
        put_bucket(w, b);
    }
    w.set_len(mark, 0);
}

pub(crate) fn read_desc15(r: &mut Reader<'_>) -> Res<Group> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len)?;
    r.skip(2)?;
    let ty = group_type(r.u8()?)?;
    r.skip(1)?;
    let (id, buckets_len) = (r.u32()?, usize::from(r.u16()?));
    r.skip(6)?;
    let buckets = read_buckets_nxt(&mut r, buckets_len, Some(ty))?;
    Ok(Group { ty, id, buckets, selection: read_group_props(&mut r, Some(ty), GroupModCommand::Add)? })
}

pub(crate) fn put_desc15(w: &mut Writer, g: &Group) {
    let mark = w.mark();
    w.zeros(2);
    w.u8(g.ty as u8);
    w.u8(0);
    w.u32(g.id);
    w.zeros(8);
    let start = w.mark();
    for b in &g.buckets {
        put_bucket_nxt(w, b, g.ty);
    }
    let len = (w.mark() - start).min(0xffff) as u16;
    w.set_u16(mark + 8, len);
    put_group_props(w, g);
    w.set_len(mark, 0);
}

/// Counters of a group.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupStats {
    /// The group.
    pub id: u32,
    /// Rules and groups that use it.
    pub ref_count: u32,
    /// Packets.
    pub packet_count: u64,
    /// Bytes.
    pub byte_count: u64,
    /// Age, whole seconds.
    pub duration_s: u32,
    /// Age, the rest.
    pub duration_ns: u32,
    /// Packets and bytes of each bucket.
    pub buckets: Vec<(u64, u64)>,
}

/// OpenFlow 1.3 added the age; Nicira's messages for 1.0 have it too.
fn has_duration(version: Version) -> bool {
    !matches!(version, Version::V11 | Version::V12)
}

pub(crate) fn read_stats(r: &mut Reader<'_>) -> Res<GroupStats> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len)?;
    r.skip(4)?;
    let mut s = GroupStats { id: r.u32()?, ref_count: r.u32()?, ..GroupStats::default() };
    r.skip(4)?;
    (s.packet_count, s.byte_count) = (r.u64()?, r.u64()?);
    if has_duration(r.version) {
        (s.duration_s, s.duration_ns) = (r.u32()?, r.u32()?);
    }
    while !r.is_empty() {
        s.buckets.push((r.u64()?, r.u64()?));
    }
    Ok(s)
}

pub(crate) fn put_stats(w: &mut Writer, s: &GroupStats) {
    let mark = w.mark();
    w.zeros(4);
    w.u32(s.id);
    w.u32(s.ref_count);
    w.zeros(4);
    w.u64(s.packet_count);
    w.u64(s.byte_count);
    if has_duration(w.version) {
        w.u32(s.duration_s);
        w.u32(s.duration_ns);
    }
    for (packets, bytes) in &s.buckets {
        w.u64(*packets);
        w.u64(*bytes);
    }
    w.set_len(mark, 0);
}

/// Features of groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupFeatures {
    /// `1 << OFPGT_*`.
    pub types: u32,
    /// `OFPGFC_*`.
    pub capabilities: u32,
    /// Maximum number of groups of each type.
    pub max_groups: [u32; 4],
    /// `1 << OFPAT_*` of each type.
    pub actions: [u32; 4],
}

pub(crate) fn decode_features(r: &mut Reader<'_>) -> Res<GroupFeatures> {
    let mut f = GroupFeatures { types: r.u32()?, capabilities: r.u32()?, ..GroupFeatures::default() };
    for n in f.max_groups.iter_mut().chain(&mut f.actions) {
        *n = r.u32()?;
    }
    Ok(f)
}

pub(crate) fn encode_features(m: &GroupFeatures, w: &mut Writer) {
    w.u32(m.types);
    w.u32(m.capabilities);
    for n in m.max_groups.iter().chain(&m.actions) {
        w.u32(*n);
    }
}
