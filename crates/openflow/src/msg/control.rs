//! Hello, features, configuration, tables, roles, TLV tables: messages about switch and connection.
//!
//! Sources: OpenFlow 1.0 §5.3, 1.3 §7.3.1, §7.3.2, §7.3.9, §7.5.1; 1.4 §7.3.3, §7.3.5.18, §7.4.4; Nicira extensions.

use super::{Format, wire_enum};
use ofp_wire::ErrorKind;
use ofp_wire::prop;
use ofp_wire::{Reader, Res, Writer};
use ofp_wire::{Version, VersionSet};

/// A greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Versions that the sender speaks.
    pub versions: VersionSet,
}

/// Hello element with the version bitmap.
const HELLO_VERSIONBITMAP: u16 = 1;

pub(crate) fn decode_hello(r: &mut Reader<'_>) -> Res<Hello> {
    let mut versions = VersionSet::up_to(r.version);
    // Ignores unknown or malformed hello elements (§7.5.1).
    while let Ok((ty, len)) = r.u16().and_then(|ty| Ok((ty, usize::from(r.u16()?)))) {
        let Some(body_len) = len.checked_sub(4) else { break };
        let Ok(mut body) = r.sub(body_len) else { break };
        if let (HELLO_VERSIONBITMAP, Ok(bitmap)) = (ty, body.u32()) {
            versions = VersionSet(bitmap & !1);
        }
        let pad = (len.next_multiple_of(8) - len).min(r.len());
        r.skip(pad)?;
    }
    Ok(Hello { versions })
}

pub(crate) fn encode_hello(m: &Hello, w: &mut Writer) {
    if m.versions != VersionSet::up_to(w.version) {
        w.u16(HELLO_VERSIONBITMAP);
        w.u16(8);
        w.u32(m.versions.0);
    }
}

/// Features of the switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SwitchFeatures {
    /// Datapath id.
    pub datapath_id: u64,
    /// Number of packets buffered for the controller.
    pub n_buffers: u32,
    /// Number of tables.
    pub n_tables: u8,
    /// Auxiliary connection (OpenFlow 1.3).
    pub auxiliary_id: u8,
    /// `OFPC_*`, in the version's numbers.
    pub capabilities: u32,
    /// `OFPAT10_*` bits (OpenFlow 1.0).
    pub actions: u32,
    /// Ports (to OpenFlow 1.2).
    pub ports: Vec<super::port::Port>,
}

pub(crate) fn decode_features(r: &mut Reader<'_>) -> Res<SwitchFeatures> {
    let (datapath_id, n_buffers, n_tables, auxiliary_id) = (r.u64()?, r.u32()?, r.u8()?, r.u8()?);
    r.skip(2)?;
    let old = r.version == Version::V10;
    let has_ports = r.version < Version::V13;
    let (capabilities, actions) = (r.u32()?, r.u32()?);
    let mut ports = Vec::new();
    while has_ports && !r.is_empty() {
        ports.push(super::port::read(r)?);
    }
    Ok(SwitchFeatures {
        datapath_id,
        n_buffers,
        n_tables,
        auxiliary_id: if has_ports { 0 } else { auxiliary_id },
        capabilities,
        actions: if old { actions } else { 0 },
        ports,
    })
}

pub(crate) fn encode_features(m: &SwitchFeatures, w: &mut Writer) {
    let old = w.version == Version::V10;
    let has_ports = w.version < Version::V13;
    w.u64(m.datapath_id);
    w.u32(m.n_buffers);
    w.u8(m.n_tables);
    w.u8(if has_ports { 0 } else { m.auxiliary_id });
    w.zeros(2);
    w.u32(m.capabilities);
    w.u32(if old { m.actions } else { 0 });
    if has_ports {
        // Omits ports beyond one message, for which the standard has no encoding.
        for p in m.ports.iter().take((65535 - 32) / if old { 48 } else { 64 }) {
            super::port::put(w, p);
        }
    }
}

/// Configuration of the switch for this controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchConfig {
    /// `OFPC_FRAG_*` and, to OpenFlow 1.2, `OFPC_INVALID_TTL_TO_CONTROLLER` (4).
    pub flags: u16,
    /// Bytes of a packet that missed to send to the controller.
    pub miss_send_len_bytes: u16,
}

pub(crate) fn decode_config(r: &mut Reader<'_>) -> Res<SwitchConfig> {
    Ok(SwitchConfig { flags: r.u16()?, miss_send_len_bytes: r.u16()? })
}

pub(crate) fn encode_config(m: &SwitchConfig, w: &mut Writer) {
    w.u16(m.flags);
    w.u16(m.miss_send_len_bytes);
}

/// `OFPTC14_*` and `OFPTC11_*` bits of a table's configuration.
pub mod table_config {
    /// Action on a miss, to OpenFlow 1.2: 0 to the controller, 1 the next table, 2 drop.
    pub const MISS_MASK: u32 = 3;
    /// A full table evicts rules (OpenFlow 1.4).
    pub const EVICTION: u32 = 1 << 2;
    /// Reports shortage of room (OpenFlow 1.4).
    pub const VACANCY_EVENTS: u32 = 1 << 3;
}

/// Treatment of packets that miss a table (`OFPTC11_TABLE_MISS_*`, OpenFlow 1.1 and 1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableMiss {
    /// To the controllers.
    Controller,
    /// To the next table.
    Continue,
    /// Drop.
    Drop,
}

impl TableMiss {
    /// From the bits of a table's configuration.
    pub fn from_config(config: u32) -> Option<TableMiss> {
        [TableMiss::Controller, TableMiss::Continue, TableMiss::Drop]
            .get((config & table_config::MISS_MASK) as usize)
            .copied()
    }

    /// The bits of a table's configuration.
    pub fn to_config(self) -> u32 {
        self as u32
    }
}

/// Thresholds of free room in a table, in percent (OpenFlow 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vacancy {
    /// Reports room below it.
    pub down_percent: u8,
    /// Reports room above it.
    pub up_percent: u8,
    /// Free room (in a description).
    pub now_percent: u8,
}

/// Configures a table, or describes its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableMod {
    /// Table, or all.
    pub table: flow::TableId,
    /// Bits of [`table_config`].
    pub config: u32,
    /// `OFPTMPEF14_*`, which select evicted rules (OpenFlow 1.4).
    pub eviction: Option<u32>,
    /// Thresholds (OpenFlow 1.4).
    pub vacancy: Option<Vacancy>,
}

/// Property types of a table's configuration.
const EVICTION_PROP: u16 = 2;
const VACANCY_PROP: u16 = 3;

fn read_table_props(r: &mut Reader<'_>, m: &mut TableMod) -> Res<()> {
    while !r.is_empty() {
        let (ty, mut p) = prop::read(r)?;
        match ty {
            EVICTION_PROP => m.eviction = Some(p.u32()?),
            VACANCY_PROP => {
                let (down_percent, up_percent, now_percent) = (p.u8()?, p.u8()?, p.u8()?);
                p.skip(1)?;
                m.vacancy = Some(Vacancy { down_percent, up_percent, now_percent });
            }
            _ => return Err(ErrorKind::BpcBadType),
        }
        if !p.is_empty() {
            return Err(ErrorKind::BpcBadLen);
        }
    }
    Ok(())
}

fn put_table_props(w: &mut Writer, m: &TableMod) {
    if let Some(flags) = m.eviction {
        prop::put(w, EVICTION_PROP, |w| w.u32(flags));
    }
    if let Some(v) = &m.vacancy {
        prop::put(w, VACANCY_PROP, |w| w.bytes(&[v.down_percent, v.up_percent, v.now_percent, 0]));
    }
}

pub(crate) fn decode_table_mod(r: &mut Reader<'_>) -> Res<TableMod> {
    let table = flow::TableId(r.u8()?);
    r.skip(3)?;
    let mut m = TableMod { table, config: r.u32()?, eviction: None, vacancy: None };
    // Without properties before OpenFlow 1.4.
    read_table_props(r, &mut m)?;
    let valid = |v: Vacancy| v.down_percent <= v.up_percent && v.up_percent <= 100 && v.now_percent == 0;
    if m.vacancy.is_some_and(|v| !valid(v)) {
        return Err(ErrorKind::BpcBadValue);
    }
    Ok(m)
}

pub(crate) fn encode_table_mod(m: &TableMod, w: &mut Writer) {
    w.u8(m.table.0);
    w.zeros(3);
    w.u32(m.config);
    if w.version >= Version::V14 {
        put_table_props(w, m);
    }
}

pub(crate) fn read_table_desc(r: &mut Reader<'_>) -> Res<TableMod> {
    let len = usize::from(r.clone().u16()?);
    let mut r = r.sub(len)?;
    r.skip(2)?;
    let table = flow::TableId(r.u8()?);
    r.skip(1)?;
    let mut m = TableMod { table, config: r.u32()?, eviction: None, vacancy: None };
    read_table_props(&mut r, &mut m)?;
    Ok(m)
}

pub(crate) fn put_table_desc(w: &mut Writer, m: &TableMod) {
    let mark = w.mark();
    w.zeros(2);
    w.u8(m.table.0);
    w.u8(0);
    w.u32(m.config);
    put_table_props(w, m);
    w.set_len(mark, 0);
}

wire_enum! {
    /// Reason of a table status (OpenFlow 1.4 §7.4.5).
    TableReason: u8 {
        /// Room fell below the lower threshold.
        VacancyDown = 3,
        /// Room rose above the upper threshold.
        VacancyUp = 4,
    }
}

/// The room in a table passed a threshold (OpenFlow 1.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableStatus {
    /// The reason.
    pub reason: TableReason,
    /// The table.
    pub desc: TableMod,
}

pub(crate) fn decode_table_status(r: &mut Reader<'_>) -> Res<TableStatus> {
    let reason = TableReason::from_wire(r.u8()?).ok_or(ErrorKind::NxbrcBadReason)?;
    r.skip(7)?;
    let desc = read_table_desc(r)?;
    if !r.is_empty() {
        return Err(ErrorKind::BrcBadLen);
    }
    Ok(TableStatus { reason, desc })
}

pub(crate) fn encode_table_status(m: &TableStatus, w: &mut Writer) {
    w.u8(m.reason as u8);
    w.zeros(7);
    put_table_desc(w, &m.desc);
}

wire_enum! {
    /// Role of a controller (numbers of OpenFlow 1.3 §7.3.9).
    ControllerRole: u32 {
        /// Only asks.
        NoChange = 0,
        /// Full access, one of several (Nicira: "other").
        Equal = 1,
        /// Full access, the only one.
        Master = 2,
        /// Reads only.
        Slave = 3,
    }
}

/// A role, in a request or a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Role {
    /// The wire form.
    pub format: Format,
    /// Role.
    pub role: ControllerRole,
    /// Detects stale requests for master or slave; in a reply all ones before the first such request.
    /// Nicira's form lacks it, and decodes as 0.
    pub generation_id: u64,
}

pub(crate) fn decode_role(r: &mut Reader<'_>) -> Res<Role> {
    let role = ControllerRole::from_wire(r.u32()?).ok_or(ErrorKind::RrfcBadRole)?;
    r.skip(4)?;
    Ok(Role { format: Format::Standard, role, generation_id: r.u64()? })
}

pub(crate) fn encode_role(m: &Role, w: &mut Writer) {
    w.u32(m.role as u32);
    w.zeros(4);
    w.u64(m.generation_id);
}

/// `NX_ROLE_*` are one less.
pub(crate) fn decode_nx_role(r: &mut Reader<'_>) -> Res<Role> {
    let n = r.u32()?;
    let role = n.checked_add(1).and_then(ControllerRole::from_wire).ok_or(ErrorKind::RrfcBadRole)?;
    Ok(Role { format: Format::Nxt, role, generation_id: 0 })
}

pub(crate) fn encode_nx_role(m: &Role, w: &mut Writer) {
    w.u32((m.role as u32).saturating_sub(1));
}

wire_enum! {
    /// Reason of a role status (OpenFlow 1.4 §7.4.4).
    RoleReason: u8 {
        /// Another controller became master.
        MasterRequest = 0,
        /// The configuration of the switch changed.
        Config = 1,
        /// An experimenter's message.
        Experimenter = 2,
    }
}

/// The switch changed a controller's role (OpenFlow 1.4; ONF EXT-191 for 1.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoleStatus {
    /// The new role.
    pub role: ControllerRole,
    /// The reason.
    pub reason: RoleReason,
    /// The generation id of the last election; all ones before the first.
    pub generation_id: u64,
}

pub(crate) fn decode_role_status(r: &mut Reader<'_>) -> Res<RoleStatus> {
    let role = ControllerRole::from_wire(r.u32()?).ok_or(ErrorKind::RrfcBadRole)?;
    let reason = RoleReason::from_wire(r.u8()?).ok_or(ErrorKind::NxbrcBadReason)?;
    r.skip(3)?;
    let generation_id = r.u64()?;
    while !r.is_empty() {
        prop::read(r)?;
    }
    Ok(RoleStatus { role, reason, generation_id })
}

pub(crate) fn encode_role_status(m: &RoleStatus, w: &mut Writer) {
    w.u32(m.role as u32);
    w.u8(m.reason as u8);
    w.zeros(3);
    w.u64(m.generation_id);
}

/// One mapping of a tunnel option to a metadata field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlvMap {
    /// Option class.
    pub class: u16,
    /// Option type.
    pub ty: u8,
    /// Bytes of the option, a multiple of 4.
    pub len_bytes: u8,
    /// Number of the `tun_metadata` field.
    pub index: u16,
}

fn read_tlv_maps(r: &mut Reader<'_>) -> Res<Vec<TlvMap>> {
    let mut maps = Vec::new();
    while !r.is_empty() {
        maps.push(TlvMap { class: r.u16()?, ty: r.u8()?, len_bytes: r.u8()?, index: r.u16()? });
        r.skip(2)?;
    }
    Ok(maps)
}

fn put_tlv_maps(w: &mut Writer, maps: &[TlvMap]) {
    for m in maps {
        w.u16(m.class);
        w.u8(m.ty);
        w.u8(m.len_bytes);
        w.u16(m.index);
        w.zeros(2);
    }
}

wire_enum! {
    /// Command of a TLV table modification.
    TlvTableCommand: u16 {
        /// Add the mappings.
        Add = 0,
        /// Delete the mappings.
        Delete = 1,
        /// Delete all.
        Clear = 2,
    }
}

/// Changes the TLV table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTableMod {
    /// The command.
    pub command: TlvTableCommand,
    /// The mappings.
    pub maps: Vec<TlvMap>,
}

pub(crate) fn decode_tlv_mod(r: &mut Reader<'_>) -> Res<TlvTableMod> {
    let command = TlvTableCommand::from_wire(r.u16()?).ok_or(ErrorKind::NxttmfcBadCommand)?;
    r.skip(6)?;
    Ok(TlvTableMod { command, maps: read_tlv_maps(r)? })
}

pub(crate) fn encode_tlv_mod(m: &TlvTableMod, w: &mut Writer) {
    w.u16(m.command as u16);
    w.zeros(6);
    put_tlv_maps(w, &m.maps);
}

/// The TLV table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTable {
    /// Bytes of option data that it can hold.
    pub max_option_bytes: u32,
    /// Fields that it can map.
    pub max_fields: u16,
    /// The mappings.
    pub maps: Vec<TlvMap>,
}

pub(crate) fn decode_tlv_table(r: &mut Reader<'_>) -> Res<TlvTable> {
    let (max_option_bytes, max_fields) = (r.u32()?, r.u16()?);
    r.skip(10)?;
    Ok(TlvTable { max_option_bytes, max_fields, maps: read_tlv_maps(r)? })
}

pub(crate) fn encode_tlv_table(m: &TlvTable, w: &mut Writer) {
    w.u32(m.max_option_bytes);
    w.u16(m.max_fields);
    w.zeros(10);
    put_tlv_maps(w, &m.maps);
}

pub(crate) fn decode_bool(r: &mut Reader<'_>) -> Res<bool> {
    let on = r.u8()?;
    r.skip(7)?;
    match on {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ErrorKind::BrcBadLen),
    }
}

pub(crate) fn encode_bool(m: &bool, w: &mut Writer) {
    w.u8((*m).into());
    w.zeros(7);
}

pub(crate) fn decode_controller_id(r: &mut Reader<'_>) -> Res<u16> {
    r.sub(6)?.zeros(ErrorKind::NxbrcMustBeZero)?;
    r.u16()
}

pub(crate) fn encode_controller_id(m: &u16, w: &mut Writer) {
    w.zeros(6);
    w.u16(*m);
}

pub(crate) fn decode_u32(r: &mut Reader<'_>) -> Res<u32> {
    r.u32()
}

pub(crate) fn encode_u32(m: &u32, w: &mut Writer) {
    w.u32(*m);
}

/// A number of which the switch supports only some values: 0 and 2 as flow format, 0 to 2 as packet-in
/// format.
pub(crate) fn decode_flow_format(r: &mut Reader<'_>) -> Res<u32> {
    match r.u32()? {
        n @ (0 | 2) => Ok(n),
        _ => Err(ErrorKind::BrcEperm),
    }
}

pub(crate) fn decode_packet_in_format(r: &mut Reader<'_>) -> Res<u32> {
    match r.u32()? {
        n @ 0..=2 => Ok(n),
        _ => Err(ErrorKind::BrcEperm),
    }
}
