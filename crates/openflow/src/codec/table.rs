//! The rows of the messages.
//!
//! If a kind has several forms in a version, the standard one is first; [`Format`] selects among them.

use crate::msg::{
    Format, Kind, Message, Multi, control, features, flow_mod, flow_stats, group, meter, packet, port, stats,
};
use ofp_wire::Version;
use ofp_wire::{NX_VENDOR, ONF_VENDOR, error};
use ofp_wire::{Reader, Res, Writer};

/// The id of a message on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Id {
    /// A type in the header.
    Of(u8),
    /// A multipart type.
    Mp { ty: u16, reply: bool },
    /// An experimenter's message.
    Exp(u32, u32),
    /// An experimenter's multipart message.
    ExpMp { vendor: u32, subtype: u32, reply: bool },
}

/// Valid lengths of a body.
#[derive(Clone, Copy)]
pub(super) enum Len {
    /// Exactly that many bytes.
    Is(usize),
    /// At least that many.
    Min(usize),
    /// A fixed part and any number of elements of the given size.
    Array(usize, usize),
}

impl Len {
    pub(super) fn holds(self, len: usize) -> bool {
        match self {
            Len::Is(n) => len == n,
            Len::Min(n) => len >= n,
            Len::Array(base, element) => len >= base && (len - base).is_multiple_of(element),
        }
    }
}

/// A message kind's wire form in a range of versions.
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) format: Format,
    pub(super) id: Id,
    first: Version,
    last: Version,
    pub(super) len: Len,
    pub(super) decode: fn(&mut Reader<'_>) -> Res<Message>,
    pub(super) encode: fn(&Message, &mut Writer),
    more: fn(&Message) -> bool,
}

impl Row {
    pub(super) fn in_version(&self, version: Version) -> bool {
        (self.first..=self.last).contains(&version)
    }

    /// Whether the message is a part followed by more.
    pub(super) fn more(&self, message: &Message) -> bool {
        (self.more)(message)
    }
}

/// Versions of a row.
type Range = (Version, Version);
const V10: Range = (Version::V10, Version::V10);
const V13: Range = (Version::V13, Version::V13);
/// All implemented versions; rows for fewer narrow it.
const ALL: Range = (Version::V10, Version::V13);

fn read_multi<T>(r: &mut Reader<'_>, format: Format, read: fn(&mut Reader<'_>) -> Res<T>) -> Res<Multi<T>> {
    let mut entries = Vec::new();
    while !r.is_empty() {
        entries.push(read(r)?);
    }
    Ok(Multi { entries, more: r.more, format })
}

fn put_multi<T>(m: &Multi<T>, w: &mut Writer, put: fn(&mut Writer, &T)) {
    for e in &m.entries {
        w.entry(|w| put(w, e));
    }
}

const fn exp(subtype: u32) -> Id {
    Id::Exp(NX_VENDOR, subtype)
}

const fn mp(ty: u16, reply: bool) -> Id {
    Id::Mp { ty, reply }
}

const fn exp_mp(subtype: u32, reply: bool) -> Id {
    Id::ExpMp { vendor: NX_VENDOR, subtype, reply }
}

/// A message without a body.
macro_rules! void {
    ($kind:ident, $id:expr, $versions:expr) => {
        Row {
            kind: Kind::$kind,
            format: Format::Standard,
            id: $id,
            first: $versions.0,
            last: $versions.1,
            len: Len::Is(0),
            decode: |_| Ok(Message::$kind),
            encode: |_, _| {},
            more: |_| false,
        }
    };
}

/// A message with a body.
macro_rules! body {
    ($kind:ident, $format:ident, $id:expr, $versions:expr, $len:expr, $decode:expr, $encode:expr) => {
        Row {
            kind: Kind::$kind,
            format: Format::$format,
            id: $id,
            first: $versions.0,
            last: $versions.1,
            len: $len,
            decode: |r| $decode(r).map(Message::$kind),
            encode: |m, w| {
                if let Message::$kind(m) = m {
                    $encode(m, w);
                }
            },
            more: |_| false,
        }
    };
}

/// A multipart message of entries.
macro_rules! multi {
    ($kind:ident, $format:ident, $id:expr, $versions:expr, $len:expr, $read:expr, $put:expr) => {
        Row {
            kind: Kind::$kind,
            format: Format::$format,
            id: $id,
            first: $versions.0,
            last: $versions.1,
            len: $len,
            decode: |r| read_multi(r, Format::$format, $read).map(Message::$kind),
            encode: |m, w| {
                if let Message::$kind(m) = m {
                    put_multi(m, w, $put);
                }
            },
            more: |m| matches!(m, Message::$kind(m) if m.more),
        }
    };
}

fn rest(r: &mut Reader<'_>) -> Res<Vec<u8>> {
    Ok(r.rest().to_vec())
}

fn put_rest(m: &[u8], w: &mut Writer) {
    w.bytes(m);
}

pub(super) static ROWS: &[Row] = &[
    body!(Hello, Standard, Id::Of(0), ALL, Len::Min(0), control::decode_hello, control::encode_hello),
    body!(Error, Standard, Id::Of(1), ALL, Len::Min(4), error::decode, error::encode),
    body!(EchoRequest, Standard, Id::Of(2), ALL, Len::Min(0), rest, put_rest),
    body!(EchoReply, Standard, Id::Of(3), ALL, Len::Min(0), rest, put_rest),
    void!(FeaturesRequest, Id::Of(5), ALL),
    body!(
        FeaturesReply,
        Standard,
        Id::Of(6),
        V10,
        Len::Array(24, 48),
        control::decode_features,
        control::encode_features
    ),
    body!(
        FeaturesReply,
        Standard,
        Id::Of(6),
        V13,
        Len::Is(24),
        control::decode_features,
        control::encode_features
    ),
    void!(GetConfigRequest, Id::Of(7), ALL),
    body!(
        GetConfigReply,
        Standard,
        Id::Of(8),
        ALL,
        Len::Is(4),
        control::decode_config,
        control::encode_config
    ),
    body!(SetConfig, Standard, Id::Of(9), ALL, Len::Is(4), control::decode_config, control::encode_config),
    body!(PacketIn, Standard, Id::Of(10), V10, Len::Min(10), packet::decode, packet::encode),
    body!(PacketIn, Standard, Id::Of(10), V13, Len::Min(24), packet::decode, packet::encode),
    body!(PacketIn, Nxt, exp(17), ALL, Len::Min(24), packet::decode_nxt, packet::encode_nxt),
    body!(PacketIn, Nxt2, exp(30), ALL, Len::Array(0, 8), packet::decode_nxt2, packet::encode_nxt2),
    body!(
        FlowRemoved,
        Standard,
        Id::Of(11),
        V10,
        Len::Is(80),
        flow_mod::decode_removed,
        flow_mod::encode_removed
    ),
    body!(
        FlowRemoved,
        Standard,
        Id::Of(11),
        V13,
        Len::Array(40, 8),
        flow_mod::decode_removed,
        flow_mod::encode_removed
    ),
    body!(
        FlowRemoved,
        Nxt,
        exp(14),
        V10,
        Len::Array(40, 8),
        flow_mod::decode_removed_nxt,
        flow_mod::encode_removed_nxt
    ),
    body!(PortStatus, Standard, Id::Of(12), V10, Len::Is(56), port::decode_status, port::encode_status),
    body!(PortStatus, Standard, Id::Of(12), V13, Len::Is(72), port::decode_status, port::encode_status),
    body!(PacketOut, Standard, Id::Of(13), V10, Len::Min(8), packet::decode_out, packet::encode_out),
    body!(PacketOut, Standard, Id::Of(13), V13, Len::Min(16), packet::decode_out, packet::encode_out),
    body!(FlowMod, Standard, Id::Of(14), V10, Len::Array(64, 8), flow_mod::decode_mod, flow_mod::encode_mod),
    body!(FlowMod, Standard, Id::Of(14), V13, Len::Array(48, 8), flow_mod::decode_mod, flow_mod::encode_mod),
    body!(FlowMod, Nxt, exp(13), V10, Len::Array(32, 8), flow_mod::decode_mod_nxt, flow_mod::encode_mod_nxt),
    body!(PortMod, Standard, Id::Of(15), V10, Len::Is(24), port::decode_mod, port::encode_mod),
    body!(PortMod, Standard, Id::Of(16), V13, Len::Is(32), port::decode_mod, port::encode_mod),
    body!(GroupMod, Standard, Id::Of(15), V13, Len::Array(8, 8), group::decode_mod, group::encode_mod),
    body!(GroupMod, Nxt, exp(31), ALL, Len::Array(16, 8), group::decode_mod_nxt, group::encode_mod_nxt),
    body!(
        TableMod,
        Standard,
        Id::Of(17),
        V13,
        Len::Is(8),
        control::decode_table_mod,
        control::encode_table_mod
    ),
    void!(BarrierRequest, Id::Of(18), V10),
    void!(BarrierReply, Id::Of(19), V10),
    void!(BarrierRequest, Id::Of(20), V13),
    void!(BarrierReply, Id::Of(21), V13),
    body!(
        QueueGetConfigRequest,
        Standard,
        Id::Of(20),
        V10,
        Len::Is(4),
        port::decode_request,
        port::encode_queue_config_request
    ),
    body!(
        QueueGetConfigRequest,
        Standard,
        Id::Of(22),
        V13,
        Len::Is(8),
        port::decode_request,
        port::encode_queue_config_request
    ),
    body!(
        QueueGetConfigReply,
        Standard,
        Id::Of(21),
        V10,
        Len::Array(8, 8),
        stats::decode_queue_config,
        stats::encode_queue_config
    ),
    body!(
        QueueGetConfigReply,
        Standard,
        Id::Of(23),
        V13,
        Len::Array(8, 8),
        stats::decode_queue_config,
        stats::encode_queue_config
    ),
    body!(RoleRequest, Standard, Id::Of(24), V13, Len::Is(16), control::decode_role, control::encode_role),
    body!(RoleReply, Standard, Id::Of(25), V13, Len::Is(16), control::decode_role, control::encode_role),
    body!(RoleRequest, Nxt, exp(10), ALL, Len::Is(4), control::decode_nx_role, control::encode_nx_role),
    body!(RoleReply, Nxt, exp(11), ALL, Len::Is(4), control::decode_nx_role, control::encode_nx_role),
    void!(GetAsyncRequest, Id::Of(26), V13),
    body!(
        GetAsyncReply,
        Standard,
        Id::Of(27),
        V13,
        Len::Is(24),
        control::decode_async,
        control::encode_async
    ),
    body!(SetAsync, Standard, Id::Of(28), V13, Len::Is(24), control::decode_async, control::encode_async),
    body!(SetAsync, Nxt, exp(19), ALL, Len::Is(24), control::decode_nx_async, control::encode_async),
    body!(MeterMod, Standard, Id::Of(29), V13, Len::Array(8, 8), meter::decode_mod, meter::encode_mod),
    body!(
        BundleControl,
        Standard,
        Id::Exp(ONF_VENDOR, 2300),
        ALL,
        Len::Min(8),
        control::decode_bundle_control,
        control::encode_bundle_control
    ),
    body!(
        BundleAdd,
        Standard,
        Id::Exp(ONF_VENDOR, 2301),
        ALL,
        Len::Min(16),
        control::decode_bundle_add,
        control::encode_bundle_add
    ),
    body!(
        SetFlowFormat,
        Standard,
        exp(12),
        V10,
        Len::Is(4),
        control::decode_flow_format,
        control::encode_u32
    ),
    body!(FlowModTableId, Standard, exp(15), ALL, Len::Is(8), control::decode_bool, control::encode_bool),
    body!(
        SetPacketInFormat,
        Standard,
        exp(16),
        ALL,
        Len::Is(4),
        control::decode_packet_in_format,
        control::encode_u32
    ),
    void!(FlowAge, exp(18), ALL),
    body!(
        SetControllerId,
        Standard,
        exp(20),
        ALL,
        Len::Is(8),
        control::decode_controller_id,
        control::encode_controller_id
    ),
    body!(FlowMonitorCancel, Standard, exp(21), ALL, Len::Is(4), control::decode_u32, control::encode_u32),
    body!(
        TlvTableMod,
        Standard,
        exp(24),
        ALL,
        Len::Array(8, 8),
        control::decode_tlv_mod,
        control::encode_tlv_mod
    ),
    void!(TlvTableRequest, exp(25), ALL),
    body!(
        TlvTableReply,
        Standard,
        exp(26),
        ALL,
        Len::Array(16, 8),
        control::decode_tlv_table,
        control::encode_tlv_table
    ),
    void!(DescRequest, mp(0, false), ALL),
    body!(DescReply, Standard, mp(0, true), ALL, Len::Is(1056), stats::decode_desc, stats::encode_desc),
    body!(
        FlowStatsRequest,
        Standard,
        mp(1, false),
        V10,
        Len::Is(44),
        flow_stats::decode_request,
        flow_stats::encode_request
    ),
    body!(
        FlowStatsRequest,
        Standard,
        mp(1, false),
        V13,
        Len::Array(40, 8),
        flow_stats::decode_request,
        flow_stats::encode_request
    ),
    body!(
        FlowStatsRequest,
        Nxt,
        exp_mp(0, false),
        V10,
        Len::Array(8, 8),
        flow_stats::decode_request_nxt,
        flow_stats::encode_request_nxt
    ),
    multi!(
        FlowStatsReply,
        Standard,
        mp(1, true),
        ALL,
        Len::Min(0),
        flow_stats::read_stats,
        flow_stats::put_stats
    ),
    multi!(
        FlowStatsReply,
        Nxt,
        exp_mp(0, true),
        V10,
        Len::Min(0),
        flow_stats::read_stats_nxt,
        flow_stats::put_stats_nxt
    ),
    body!(
        AggregateRequest,
        Standard,
        mp(2, false),
        V10,
        Len::Is(44),
        flow_stats::decode_request,
        flow_stats::encode_request
    ),
    body!(
        AggregateRequest,
        Standard,
        mp(2, false),
        V13,
        Len::Array(40, 8),
        flow_stats::decode_request,
        flow_stats::encode_request
    ),
    body!(
        AggregateRequest,
        Nxt,
        exp_mp(1, false),
        V10,
        Len::Array(8, 8),
        flow_stats::decode_request_nxt,
        flow_stats::encode_request_nxt
    ),
    body!(
        AggregateReply,
        Standard,
        mp(2, true),
        ALL,
        Len::Is(24),
        flow_stats::decode_aggregate,
        flow_stats::encode_aggregate
    ),
    body!(
        AggregateReply,
        Nxt,
        exp_mp(1, true),
        V10,
        Len::Is(24),
        flow_stats::decode_aggregate_nxt,
        flow_stats::encode_aggregate
    ),
    void!(TableStatsRequest, mp(3, false), ALL),
    multi!(
        TableStatsReply,
        Standard,
        mp(3, true),
        V10,
        Len::Array(0, 64),
        stats::read_table,
        stats::put_table
    ),
    multi!(
        TableStatsReply,
        Standard,
        mp(3, true),
        V13,
        Len::Array(0, 24),
        stats::read_table,
        stats::put_table
    ),
    body!(
        PortStatsRequest,
        Standard,
        mp(4, false),
        ALL,
        Len::Is(8),
        port::decode_request,
        port::encode_stats_request
    ),
    multi!(PortStatsReply, Standard, mp(4, true), V10, Len::Array(0, 104), port::read_stats, port::put_stats),
    multi!(PortStatsReply, Standard, mp(4, true), V13, Len::Array(0, 112), port::read_stats, port::put_stats),
    body!(
        QueueStatsRequest,
        Standard,
        mp(5, false),
        ALL,
        Len::Is(8),
        stats::decode_queue_request,
        stats::encode_queue_request
    ),
    multi!(
        QueueStatsReply,
        Standard,
        mp(5, true),
        V10,
        Len::Array(0, 32),
        stats::read_queue,
        stats::put_queue
    ),
    multi!(
        QueueStatsReply,
        Standard,
        mp(5, true),
        V13,
        Len::Array(0, 40),
        stats::read_queue,
        stats::put_queue
    ),
    body!(
        GroupStatsRequest,
        Standard,
        mp(6, false),
        V13,
        Len::Is(8),
        group::decode_request,
        group::encode_request
    ),
    body!(
        GroupStatsRequest,
        Standard,
        exp_mp(7, false),
        V10,
        Len::Is(8),
        group::decode_request,
        group::encode_request
    ),
    multi!(
        GroupStatsReply,
        Standard,
        mp(6, true),
        V13,
        Len::Array(0, 8),
        group::read_stats,
        group::put_stats
    ),
    multi!(
        GroupStatsReply,
        Standard,
        exp_mp(7, true),
        V10,
        Len::Array(0, 8),
        group::read_stats,
        group::put_stats
    ),
    body!(
        GroupDescRequest,
        Standard,
        mp(7, false),
        V13,
        Len::Is(0),
        group::decode_request_all,
        group::encode_request_all
    ),
    body!(
        GroupDescRequest,
        Standard,
        exp_mp(8, false),
        V10,
        Len::Is(8),
        group::decode_request,
        group::encode_request
    ),
    multi!(GroupDescReply, Standard, mp(7, true), V13, Len::Array(0, 8), group::read_desc, group::put_desc),
    multi!(
        GroupDescReply,
        Standard,
        exp_mp(8, true),
        V10,
        Len::Array(0, 8),
        group::read_desc_nxt,
        group::put_desc_nxt
    ),
    void!(GroupFeaturesRequest, mp(8, false), V13),
    void!(GroupFeaturesRequest, exp_mp(9, false), V10),
    body!(
        GroupFeaturesReply,
        Standard,
        mp(8, true),
        V13,
        Len::Is(40),
        group::decode_features,
        group::encode_features
    ),
    body!(
        GroupFeaturesReply,
        Standard,
        exp_mp(9, true),
        V10,
        Len::Is(40),
        group::decode_features,
        group::encode_features
    ),
    body!(
        MeterStatsRequest,
        Standard,
        mp(9, false),
        V13,
        Len::Is(8),
        meter::decode_request,
        meter::encode_request
    ),
    multi!(
        MeterStatsReply,
        Standard,
        mp(9, true),
        V13,
        Len::Array(0, 8),
        meter::read_stats,
        meter::put_stats
    ),
    body!(
        MeterConfigRequest,
        Standard,
        mp(10, false),
        V13,
        Len::Is(8),
        meter::decode_request,
        meter::encode_request
    ),
    multi!(
        MeterConfigReply,
        Standard,
        mp(10, true),
        V13,
        Len::Array(0, 8),
        meter::read_config,
        meter::put_config
    ),
    void!(MeterFeaturesRequest, mp(11, false), V13),
    body!(
        MeterFeaturesReply,
        Standard,
        mp(11, true),
        V13,
        Len::Is(16),
        meter::decode_features,
        meter::encode_features
    ),
    multi!(
        TableFeaturesRequest,
        Standard,
        mp(12, false),
        V13,
        Len::Array(0, 8),
        features::read,
        features::put
    ),
    multi!(TableFeaturesReply, Standard, mp(12, true), V13, Len::Array(0, 8), features::read, features::put),
    void!(PortDescRequest, mp(13, false), ALL),
    multi!(PortDescReply, Standard, mp(13, true), V10, Len::Array(0, 48), port::read, port::put),
    multi!(PortDescReply, Standard, mp(13, true), V13, Len::Array(0, 64), port::read, port::put),
    multi!(
        FlowMonitorRequest,
        Standard,
        exp_mp(2, false),
        V10,
        Len::Array(0, 8),
        flow_stats::read_monitor,
        flow_stats::put_monitor
    ),
];
