//! Extensible matches: NXM (Nicira, for OpenFlow 1.0) and OXM (OpenFlow 1.3 §7.2.3), and field headers in actions.
//!
//! Both are one format: entries of a 32-bit header (class, field, has-mask, length) and a value, optionally
//! with a mask. In an entry of class 0xffff an experimenter id follows the header. The registry
//! ([`flow::fields`]) maps headers to fields; this module has the order of entries, the choice between NXM
//! and OXM names, and the checks of a match.

use crate::error::{ErrorKind, NSH_VENDOR, NX_VENDOR, ONF_VENDOR};
use crate::version::Version;
use crate::wire::{Reader, Res, Writer};
use flow::fields::{ALL_FIELDS, FieldId, OxmId, Prereq};
use flow::{Match, OfPort, TlvMapping, Wide};
use std::sync::LazyLock;

mod order;
pub mod text;

use order::ORDER;

/// Class of experimenter entries.
const CLASS_EXPERIMENTER: u16 = 0xffff;
/// Class of the OpenFlow basic fields.
const CLASS_BASIC: u16 = 0x8000;
/// `NXM_NX_COOKIE`: matches a rule's cookie in requests. `NXM_NX_MPLS_TTL`, of length 1, has the same number.
const COOKIE: OxmId = OxmId { class: 1, field: 30 };

/// Basic fields that were ONF extension fields before the version that made them basic (EXT-109, EXT-233).
const ONF_FIELDS: [FieldId; 2] = [FieldId::TcpFlags, FieldId::ActsetOutput];

/// Fields of the Nicira experimenter (`NXOXM_ET_*`).
const NX_FIELDS: [FieldId; 26] = [
    FieldId::TunErspanIdx,
    FieldId::TunErspanVer,
    FieldId::TunErspanDir,
    FieldId::TunErspanHwid,
    FieldId::TunGtpuFlags,
    FieldId::TunGtpuMsgtype,
    FieldId::Reg16,
    FieldId::Reg17,
    FieldId::Reg18,
    FieldId::Reg19,
    FieldId::Reg20,
    FieldId::Reg21,
    FieldId::Reg22,
    FieldId::Reg23,
    FieldId::Reg24,
    FieldId::Reg25,
    FieldId::Reg26,
    FieldId::Reg27,
    FieldId::Reg28,
    FieldId::Reg29,
    FieldId::Reg30,
    FieldId::Reg31,
    FieldId::Xxreg4,
    FieldId::Xxreg5,
    FieldId::Xxreg6,
    FieldId::Xxreg7,
];

/// Fields of the experimenter for network service headers (`NXOXM_NSH_*`).
const NSH_FIELDS: [FieldId; 10] = [
    FieldId::NshFlags,
    FieldId::NshTtl,
    FieldId::NshMdtype,
    FieldId::NshNp,
    FieldId::NshSpi,
    FieldId::NshSi,
    FieldId::NshC1,
    FieldId::NshC2,
    FieldId::NshC3,
    FieldId::NshC4,
];

/// A field's header as read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Class and field.
    pub id: OxmId,
    /// Experimenter of an entry of class 0xffff.
    pub experimenter: Option<u32>,
    /// Whether a mask follows the value.
    pub has_mask: bool,
    /// Bytes of value and mask after the header.
    pub payload_len: usize,
}

static BY_HEADER: LazyLock<[[Option<FieldId>; 128]; 5]> = LazyLock::new(|| {
    let mut index = [[None; 128]; 5];
    for f in ALL_FIELDS.iter().copied() {
        for id in [f.def().nxm, f.def().oxm.map(|o| o.0)].into_iter().flatten() {
            if let Some(row) = class_row(id.class) {
                index[row][usize::from(id.field & 127)] = Some(f);
            }
        }
    }
    index
});

fn class_row(class: u16) -> Option<usize> {
    [0, 1, 0x1000, 0x8000, 0x8001].iter().position(|c| *c == class)
}

impl Header {
    /// Reads a header.
    #[inline]
    pub fn read(r: &mut Reader<'_>) -> Res<Header> {
        let (class, second) = (r.u16()?, r.u8()?);
        let mut payload_len = usize::from(r.u8()?);
        let mut experimenter = None;
        if class == CLASS_EXPERIMENTER {
            payload_len = payload_len.checked_sub(4).ok_or(ErrorKind::BmcBadLen)?;
            experimenter = Some(r.u32()?);
        }
        let id = OxmId { class, field: second >> 1 };
        Ok(Header { id, experimenter, has_mask: second & 1 != 0, payload_len })
    }

    /// The field that it names, whatever the payload's length.
    fn named(&self) -> Option<FieldId> {
        match self.experimenter {
            None => BY_HEADER[class_row(self.id.class)?][usize::from(self.id.field)],
            Some(ONF_VENDOR) => {
                let id = OxmId { class: CLASS_BASIC, field: self.id.field };
                ONF_FIELDS.into_iter().find(|f| f.def().oxm.is_some_and(|(o, _)| o == id))
            }
            Some(NX_VENDOR) => NX_FIELDS.into_iter().find(|f| f.def().nxm == Some(self.id)),
            Some(NSH_VENDOR) => NSH_FIELDS.into_iter().find(|f| f.def().nxm == Some(self.id)),
            Some(_) => None,
        }
    }

    /// The field, if the payload has its length; tunnel metadata has any length.
    #[inline]
    pub fn field(&self) -> Option<FieldId> {
        let f = self.named()?;
        if f.metadata_index().is_some() {
            return Some(f);
        }
        let bytes = usize::from(f.def().wire_bytes);
        (self.payload_len == if self.has_mask { 2 * bytes } else { bytes }).then_some(f)
    }

    fn is_cookie(&self) -> bool {
        self.id == COOKIE && self.payload_len == if self.has_mask { 16 } else { 8 }
    }
}

/// The header of `field` in `version`.
fn header_of(field: FieldId, version: Version) -> Option<KnownHeader> {
    let headers = HEADERS.get(usize::from(version.0)).unwrap_or(&HEADERS[usize::from(Version::V15.0)]);
    headers[field as usize]
}

/// A header of a field, and the bytes of its value; those of tunnel metadata follow its mapping.
#[derive(Clone, Copy)]
struct KnownHeader {
    id: OxmId,
    experimenter: Option<u32>,
    value_len: u8,
}

/// The headers of all fields by version number. Descriptions of all tables' features have a hundred thousand.
static HEADERS: LazyLock<[[Option<KnownHeader>; ALL_FIELDS.len()]; Version::V15.0 as usize + 1]> =
    LazyLock::new(|| {
        std::array::from_fn(|version| {
            std::array::from_fn(|n| {
                let field = ALL_FIELDS[n];
                let (id, experimenter) = choose_header(field, Version(version as u8))?;
                let value_len = wire_twin(field).unwrap_or(field).def().wire_bytes;
                Some(KnownHeader { id, experimenter, value_len })
            })
        })
    });

/// The header of `field` in `version`: OXM if the version has it, else NXM, else OXM anyway.
fn choose_header(field: FieldId, version: Version) -> Option<(OxmId, Option<u32>)> {
    let def = field.def();
    match (def.nxm, def.oxm) {
        (_, Some((id, since))) if version >= Version::V12 && version.0 >= since => Some((id, None)),
        (_, Some((id, since))) if ONF_FIELDS.contains(&field) && version.0 < since => match def.nxm {
            Some(nxm) if version < Version::V13 => Some((nxm, None)),
            _ => Some((OxmId { class: CLASS_EXPERIMENTER, ..id }, Some(ONF_VENDOR))),
        },
        (Some(id), _) if id.class == CLASS_EXPERIMENTER => {
            Some((id, Some(if NSH_FIELDS.contains(&field) { NSH_VENDOR } else { NX_VENDOR })))
        }
        (Some(id), _) | (None, Some((id, _))) => Some((id, None)),
        (None, None) => wire_twin(field).and_then(|f| choose_header(f, version)),
    }
}

/// A field of the same bits with a header, for a field that is only a notation.
fn wire_twin(field: FieldId) -> Option<FieldId> {
    let twins = [(FieldId::DlVlan, FieldId::VlanVid), (FieldId::DlVlanPcp, FieldId::VlanPcp)];
    twins.into_iter().find(|(notation, _)| *notation == field).map(|(_, twin)| twin)
}

/// Whether an action or match can name `field` on the wire.
#[inline]
pub fn has_header(field: FieldId) -> bool {
    header_of(field, Version::V13).is_some()
}

/// Writes the header of `field` for a match or a set-field; `false`, without output, if it has none.
#[inline]
pub fn put_header(w: &mut Writer, field: FieldId, has_mask: bool) -> bool {
    put_header_as(w, field, has_mask, w.version)
}

/// Whether the header of `field` in Nicira actions is one of an experimenter, of 8 bytes.
#[inline]
pub fn has_long_nx_header(field: FieldId) -> bool {
    header_of(field, Version::V10).is_some_and(|h| h.experimenter.is_some())
}

/// Writes the header of `field` for Nicira actions of every version: the NXM name if it exists.
#[inline]
pub fn put_nx_header(w: &mut Writer, field: FieldId) {
    put_header_as(w, field, false, Version::V10);
}

fn put_header_as(w: &mut Writer, field: FieldId, has_mask: bool, version: Version) -> bool {
    let Some(KnownHeader { id, experimenter, value_len }) = header_of(field, version) else { return false };
    let mapped = field.metadata_index().and_then(|i| w.options.tlv().get(i)).map(|m| m.len_bytes);
    put_raw_header(w, id, experimenter, has_mask, mapped.unwrap_or(value_len));
    true
}

fn put_raw_header(w: &mut Writer, id: OxmId, experimenter: Option<u32>, has_mask: bool, value_len: u8) {
    let payload = if has_mask { 2 * value_len } else { value_len };
    let ([class_high, class_low], second) = (id.class.to_be_bytes(), id.field << 1 | u8::from(has_mask));
    w.bytes(&[class_high, class_low, second, payload + if experimenter.is_some() { 4 } else { 0 }]);
    experimenter.into_iter().for_each(|e| w.u32(e));
}

/// Writes an entry: header, value and, unless it is full, mask.
#[inline]
pub fn put_entry(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    put_entry_as(w, field, value, mask, mask != valid_bits(field));
}

/// Writes an entry of a match. Tunnel flags have a mask even if it is full, as in OVS.
fn put_match_entry(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    put_entry_as(w, field, value, mask, field == FieldId::TunFlags || mask != valid_bits(field));
}

fn put_entry_as(w: &mut Writer, field: FieldId, value: u128, mask: u128, has_mask: bool) {
    let bytes = usize::from(field.def().wire_bytes);
    if put_header(w, field, has_mask) {
        w.uint(value, bytes);
        if has_mask {
            w.uint(mask, bytes);
        }
    }
}

/// Reads the field header of an action. Unknown, unmapped and masked ones are errors of the action.
#[inline]
pub fn read_action_field(r: &mut Reader<'_>) -> Res<FieldId> {
    let h = Header::read(r)?;
    match h.field() {
        Some(f) if !h.has_mask => {
            mapping_of(f, r)?;
            Ok(f)
        }
        _ => Err(ErrorKind::BacBadSetType),
    }
}

/// As [`read_action_field`], for actions with place for a header of 4 bytes: the fields of experimenters are unknown
/// there.
#[inline]
pub fn read_short_action_field(r: &mut Reader<'_>) -> Res<FieldId> {
    read_action_field(&mut r.sub(4)?.or(ErrorKind::BacBadSetType))
}

/// As [`read_action_field`], for actions whose unknown and masked fields are errors of a match, as in OVS.
#[inline]
pub fn read_field(r: &mut Reader<'_>) -> Res<FieldId> {
    let h = Header::read(r)?;
    match h.field() {
        Some(f) if !h.has_mask => {
            mapping_of(f, r)?;
            Ok(f)
        }
        Some(_) => Err(ErrorKind::BmcBadMask),
        None => Err(ErrorKind::BmcBadField),
    }
}

/// The mapping of tunnel metadata; `None` for other fields.
///
/// # Errors
/// Tunnel metadata without a mapping.
#[inline]
fn mapping_of(field: FieldId, r: &Reader<'_>) -> Res<Option<TlvMapping>> {
    let Some(index) = field.metadata_index() else { return Ok(None) };
    let mapping = r.options.tlv().get(index).copied();
    mapping.map(Some).ok_or(ErrorKind::NxfmfcInvalidTlvField)
}

/// Reads value and mask of tunnel metadata after its header. Values of another length than the mapping's are
/// aligned at the low end if shorter, and cut at that end if longer.
///
/// # Errors
/// The field has no mapping, the payload is shorter than its length, or the value has bits outside the mask (`bad`).
pub fn read_metadata(r: &mut Reader<'_>, h: &Header, field: FieldId, bad: ErrorKind) -> Res<(Wide, Wide)> {
    let Some(mapping) = mapping_of(field, r)? else { return Err(ErrorKind::BmcBadField) };
    let len = if h.has_mask { h.payload_len / 2 } else { h.payload_len };
    let kept = len.min(usize::from(mapping.len_bytes));
    let mut number = || r.bytes(len).map(|bytes| Wide::from_be_bytes(&bytes[..kept]));
    let value = number()?;
    let mask = if h.has_mask { number()? } else { Wide::ones(mapping.len_bits().into()) };
    let rest = h.payload_len - if h.has_mask { 2 * len } else { len };
    r.skip(rest)?;
    if (value & !mask).is_zero() { Ok((value, mask)) } else { Err(bad) }
}

/// Writes a value of tunnel metadata for an action: with a mask unless it is full.
pub fn put_metadata(w: &mut Writer, field: FieldId, value: Wide, mask: Wide) {
    let full = Wide::ones(w.options.tlv().bits_of(field).into());
    put_metadata_entry(w, field, (value, mask), |_| mask != full);
}

/// Writes value and mask without leading zero bytes, as in OVS; `has_mask` is given the remaining number of bits.
fn put_metadata_entry(
    w: &mut Writer,
    field: FieldId,
    (value, mask): (Wide, Wide),
    has_mask: impl Fn(u32) -> bool,
) {
    let Some(KnownHeader { id, experimenter, .. }) = header_of(field, w.version) else { return };
    let bytes = (value | mask).bits().div_ceil(8).max(1);
    let has_mask = has_mask(8 * bytes);
    put_raw_header(w, id, experimenter, has_mask, bytes as u8);
    w.bytes(&value.to_be_bytes(bytes as usize));
    if has_mask {
        w.bytes(&mask.to_be_bytes(bytes as usize));
    }
}

/// Valid bits of a value of `field`.
#[inline]
pub fn valid_bits(field: FieldId) -> u128 {
    if field == FieldId::NwTos { 0xfc } else { field.full_mask() }
}

/// Whether `value` is valid for `field`.
#[inline]
pub fn value_ok(field: FieldId, value: u128) -> bool {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the values of other fields are limited by their bits alone"
    )]
    let ok = match field {
        FieldId::InPortOxm => port_number_ok(value as u32),
        FieldId::NshTtl => value <= 63,
        FieldId::NshMdtype => matches!(value, 1 | 2),
        _ => true,
    };
    value & !valid_bits(field) == 0 && ok
}

/// Whether a 32-bit port number is that of a port or a reserved one (OpenFlow 1.3 §7.2.1 against 16-bit
/// numbers).
#[inline]
pub fn port_number_ok(n: u32) -> bool {
    n < u32::from(OfPort::MAX_OF10) || n >= OfPort::MAX.0
}

/// Reads value and mask of an entry after its header.
fn read_payload(r: &mut Reader<'_>, field: FieldId, has_mask: bool) -> Res<(u128, u128)> {
    let bytes = usize::from(field.def().wire_bytes);
    let full = valid_bits(field);
    let value = r.uint(bytes)?;
    let mask = if has_mask { r.uint(bytes)? } else { full };
    if value & !mask != 0 && has_mask {
        return Err(ErrorKind::BmcBadWildcards);
    }
    if !value_ok(field, value) {
        return Err(ErrorKind::BmcBadValue);
    }
    let all_ones = if bytes == 16 { u128::MAX } else { (1 << (8 * bytes)) - 1 };
    let mask = if mask == all_ones { full } else { mask };
    let partial_ok = field.def().maskable || mask == 0 || mask == full;
    if mask & !full != 0 || !partial_ok {
        return Err(ErrorKind::BmcBadMask);
    }
    Ok((value, mask))
}

/// Treatment of unknown fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// An error, as in requests.
    Refuse,
    /// Skipped, as in reports of a switch, whose matches may lack prerequisites, too.
    Skip,
}

/// A decoded extensible match: the match proper, and value and mask of the cookie if present.
pub struct Decoded {
    /// The match. Boxed: a match is large, and passes through many calls.
    pub matching: Box<Match>,
    /// Value and mask of the cookie.
    pub cookie: Option<(u64, u64)>,
}

/// Reads entries up to the end of `r`.
pub fn read_entries(r: &mut Reader<'_>, unknown: Unknown) -> Res<Decoded> {
    let mut matching = Box::default();
    let cookie = read_entries_to(r, unknown, &mut matching)?;
    Ok(Decoded { matching, cookie })
}

/// Reads entries up to the end of `r` into `m`, which matches all packets before; returns the cookie. A match is large:
/// this costs neither a copy nor an allocation.
pub fn read_entries_to(r: &mut Reader<'_>, unknown: Unknown, m: &mut Match) -> Res<Option<(u64, u64)>> {
    let mut r = r.sub(r.len())?.or(ErrorKind::BmcBadLen);
    let mut cookie = None;
    while !r.is_empty() {
        let h = Header::read(&mut r)?;
        let mut payload = r.sub(h.payload_len)?;
        if h.is_cookie() {
            let value = payload.u64()?;
            let mask = if h.has_mask { payload.u64()? } else { u64::MAX };
            if value & !mask != 0 {
                return Err(ErrorKind::BmcBadWildcards);
            }
            if cookie.replace((value, mask)).is_some() {
                return Err(ErrorKind::BmcDupField);
            }
            continue;
        }
        let Some(field) = h.field() else {
            match unknown {
                Unknown::Refuse => return Err(ErrorKind::BmcBadField),
                Unknown::Skip => continue,
            }
        };
        if field.metadata_index().is_some() {
            let (value, mask) = read_metadata(&mut payload, &h, field, ErrorKind::BmcBadWildcards)?;
            if m.has_metadata(field) {
                return Err(ErrorKind::BmcDupField);
            }
            m.set_wide(r.options.tlv(), field, value, mask);
            continue;
        }
        let (value, mask) = read_payload(&mut payload, field, h.has_mask)?;
        if unknown == Unknown::Refuse && !exists(field, m) {
            return Err(ErrorKind::BmcBadPrereq);
        }
        // A field of Ethernet implies packet type Ethernet.
        if field.get(&m.mask().0) != 0 || field == FieldId::PacketType && m.has_ethernet() {
            return Err(ErrorKind::BmcDupField);
        }
        m.set_masked(field, value, mask);
    }
    if unknown == Unknown::Refuse && !is_coherent(m) {
        return Err(ErrorKind::BmcBadPrereq);
    }
    Ok(cookie)
}

/// Whether no later entry excludes the prerequisite of an earlier one. Two fields can: a later fragment,
/// which has no ports (its ICMP fields can be matched), and an ICMPv6 code that neighbour discovery lacks.
fn is_coherent(m: &Match) -> bool {
    let (f, mask) = (m.flow(), &m.mask().0);
    let later = f.nw_frag & flow::nw_frag::LATER != 0;
    let matched = |field: FieldId| field.get(&m.mask().0) != 0;
    let icmp6 = f.dl_type == 0x86dd && f.nw_proto == 58;
    let nd_ok = |field: FieldId| !matched(field) || exists(field, m);
    let has_ports = || [FieldId::Icmpv6Type, FieldId::IcmpType].into_iter().all(|f| !exists(f, m));
    let lost_ports = later && has_ports() && (mask.tp_src | mask.tp_dst | mask.tcp_flags) != 0;
    let of_nd =
        [FieldId::NdReserved, FieldId::NdTarget, FieldId::NdOptionsType, FieldId::NdSll, FieldId::NdTll];
    let nd_kept = !icmp6 || of_nd.into_iter().all(nd_ok);
    nd_kept && !lost_ports
}

/// Whether every matching packet has the field.
#[inline]
pub fn exists(field: FieldId, m: &Match) -> bool {
    field.prereq_holds(m.flow(), Some(&m.mask().0))
}

/// Writes the entries of a match, and of a cookie if its mask is not 0.
pub fn put_entries(w: &mut Writer, m: &Match, cookie: (u64, u64)) {
    let oxm = w.version >= Version::V11;
    let candidates = m.mask().candidate_fields();
    for field in ORDER.into_iter().filter(|field| candidates.contains(*field)) {
        if field == FieldId::TunMetadata0 {
            put_all_metadata(w, m);
            continue;
        }
        let (value, mask) = m.get(field);
        // Fields of a connection are written unchanged: the reader rejects invalid ones, rather than match
        // more.
        let certain = exists(field, m) || field.def().prereq == Prereq::Connection;
        if mask == 0 || !certain {
            continue;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "other fields have one form in all versions")]
        match field {
            FieldId::InPort => put_in_port(w, m),
            // A field of Ethernet implies it.
            FieldId::PacketType if value == 0 && m.has_ethernet() => {}
            FieldId::VlanTci if oxm => put_vlan(w, m),
            _ if w.version >= Version::V15 && register(field).is_some() => put_registers(w, m, field),
            FieldId::IpDscp if !oxm => put_entry(w, FieldId::NwTos, value << 2, mask << 2),
            FieldId::NwProto if m.flow().is_arp() => {}
            _ => put_match_entry(w, field, value, mask),
        }
    }
    if cookie.1 != 0 {
        put_raw_header(w, COOKIE, None, cookie.1 != u64::MAX, 8);
        w.u64(cookie.0);
        if cookie.1 != u64::MAX {
            w.u64(cookie.1);
        }
    }
}

/// The number of a register.
fn register(field: FieldId) -> Option<usize> {
    (field as usize)
        .checked_sub(FieldId::Reg0 as usize)
        .filter(|n| *n <= FieldId::Reg31 as usize - FieldId::Reg0 as usize)
}

/// Writes a register as part of a pair, which is a field of OpenFlow 1.5; once for both.
fn put_registers(w: &mut Writer, m: &Match, field: FieldId) {
    let n = register(field).unwrap_or(0);
    let pair = ALL_FIELDS[FieldId::Xreg0 as usize + n / 2];
    let (value, mask) = m.get(pair);
    if n.is_multiple_of(2) || mask >> 32 == 0 {
        put_match_entry(w, pair, value, mask);
    }
}

/// Writes the tunnel metadata of a match. The absence of an option, which no rule matches, has no entry.
fn put_all_metadata(w: &mut Writer, m: &Match) {
    let present = m.flow().metadata_indices();
    for field in present.filter_map(FieldId::tun_metadata) {
        let bits = m.get_wide(w.options.tlv(), field);
        // As in OVS, a mask of low bytes alone makes a shorter value without a mask.
        put_metadata_entry(w, field, bits, |len| bits.1 != Wide::ones(len));
    }
}

/// The input port: as 16 bits in NXM if they suffice.
fn put_in_port(w: &mut Writer, m: &Match) {
    let (value, mask) = m.get(FieldId::InPortOxm);
    match OfPort(value as u32).to_of10() {
        Some(port) if w.version < Version::V11 => put_entry(w, FieldId::InPort, port.into(), 0xffff),
        _ => put_entry(w, FieldId::InPortOxm, value, mask),
    }
}

/// The VLAN in OXM form if that suffices, else as `NXM_OF_VLAN_TCI`.
fn put_vlan(w: &mut Writer, m: &Match) {
    let (value, mask) = m.get(FieldId::VlanTci);
    let (vid, pcp) = (mask & 0x1fff, mask >> 13);
    if mask == 0xffff && value == 0 {
        put_entry(w, FieldId::VlanVid, 0, 0x1fff);
    } else if (pcp == 0 || pcp == 7 && value & vid & 0x1000 != 0) && vid != 0 {
        put_entry(w, FieldId::VlanVid, value & 0x1fff, vid);
        if pcp != 0 {
            put_entry(w, FieldId::VlanPcp, value >> 13, 7);
        }
    } else {
        put_entry(w, FieldId::VlanTci, value, mask);
    }
}

/// Reads an OpenFlow 1.2 match structure: type, length, entries, padding.
pub fn read_oxm_match(r: &mut Reader<'_>, unknown: Unknown) -> Res<Box<Match>> {
    let mut m = Box::default();
    read_oxm_match_to(r, unknown, &mut m)?;
    Ok(m)
}

/// As [`read_oxm_match`], into `m`, which matches all packets before.
pub fn read_oxm_match_to(r: &mut Reader<'_>, unknown: Unknown, m: &mut Match) -> Res<()> {
    let mut head = Reader::new(r.peek(), r.version).or(ErrorKind::BmcBadLen);
    let (ty, len) = (head.u16()?, usize::from(head.u16()?));
    if ty != 1 {
        return Err(ErrorKind::BmcBadType);
    }
    let padded = len.next_multiple_of(8);
    if len < 4 || padded > r.len() {
        return Err(ErrorKind::BmcBadLen);
    }
    let mut body = r.sub(padded)?;
    body.skip(4)?;
    read_entries_to(&mut body.sub(len - 4)?, unknown, m)?;
    Ok(())
}

/// Writes an OpenFlow 1.2 match structure with its padding; OVS uses it in 1.1 too, with NXM names where they exist.
pub fn put_oxm_match(w: &mut Writer, m: &Match) {
    let mark = w.mark();
    w.u16(1);
    w.u16(0);
    put_entries(w, m, (0, 0));
    w.set_len(mark, 2);
    w.pad8(mark);
}

/// Reads an NXM match of `len` bytes and its padding.
pub fn read_nxm_match(r: &mut Reader<'_>, len: u16, unknown: Unknown) -> Res<Decoded> {
    let mut matching = Box::default();
    let cookie = read_nxm_match_to(r, len, unknown, &mut matching)?;
    Ok(Decoded { matching, cookie })
}

/// As [`read_nxm_match`], into `m`, which matches all packets before; returns the cookie.
pub fn read_nxm_match_to(
    r: &mut Reader<'_>,
    len: u16,
    unknown: Unknown,
    m: &mut Match,
) -> Res<Option<(u64, u64)>> {
    let len = usize::from(len);
    let mut padded = r.sub(len.next_multiple_of(8)).map_err(|_| ErrorKind::BmcBadLen)?;
    read_entries_to(&mut padded.sub(len)?, unknown, m)
}

/// Writes an NXM match with its padding; returns its length without the padding.
pub fn put_nxm_match(w: &mut Writer, m: &Match, cookie: (u64, u64)) -> u16 {
    let mark = w.mark();
    put_entries(w, m, cookie);
    let len = w.mark() - mark;
    w.pad8(mark);
    len as u16
}
