//! Rows of the messages with a type of their own, and of the extensions' messages.

use super::table::*;
use crate::msg::{
    Format, Kind, Message, asyncs, bundle, control, ct_flush, flow_mod, forward, group, meter, packet, port,
    stats,
};
use ofp_wire::error;
use ofp_wire::{Reader, Res, Writer};

fn rest(r: &mut Reader<'_>) -> Res<Vec<u8>> {
    Ok(r.rest().to_vec())
}

fn put_rest(m: &[u8], w: &mut Writer) {
    w.bytes(m);
}

use asyncs::*;
use bundle::*;
use control::*;
use ct_flush::*;

pub(super) static ROWS: &[Row] = &[
    body!(Hello, Standard, Id::Of(0), ALL, Len::Min(0), decode_hello, encode_hello),
    body!(Error, Standard, Id::Of(1), ALL, Len::Min(4), error::decode, error::encode),
    body!(EchoRequest, Standard, Id::Of(2), ALL, Len::Min(0), rest, put_rest),
    body!(EchoReply, Standard, Id::Of(3), ALL, Len::Min(0), rest, put_rest),
    void!(FeaturesRequest, Id::Of(5), ALL),
    body!(FeaturesReply, Standard, Id::Of(6), V10, Len::Array(24, 48), decode_features, encode_features),
    body!(
        FeaturesReply,
        Standard,
        Id::Of(6),
        V11_TO_12,
        Len::Array(24, 64),
        decode_features,
        encode_features
    ),
    body!(FeaturesReply, Standard, Id::Of(6), SINCE_V13, Len::Is(24), decode_features, encode_features),
    void!(GetConfigRequest, Id::Of(7), ALL),
    body!(GetConfigReply, Standard, Id::Of(8), ALL, Len::Is(4), decode_config, encode_config),
    body!(SetConfig, Standard, Id::Of(9), ALL, Len::Is(4), decode_config, encode_config),
    body!(PacketIn, Standard, Id::Of(10), V10, Len::Min(10), packet::decode, packet::encode),
    body!(PacketIn, Standard, Id::Of(10), SINCE_V11, Len::Min(16), packet::decode, packet::encode),
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
        V11_TO_14,
        Len::Array(40, 8),
        flow_mod::decode_removed,
        flow_mod::encode_removed
    ),
    body!(
        FlowRemoved,
        Standard,
        Id::Of(11),
        V15,
        Len::Array(16, 8),
        flow_mod::decode_removed15,
        flow_mod::encode_removed15
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
    body!(PortStatus, Standard, Id::Of(12), V11_TO_13, Len::Is(72), port::decode_status, port::encode_status),
    body!(
        PortStatus,
        Standard,
        Id::Of(12),
        SINCE_V14,
        Len::Array(48, 8),
        port::decode_status,
        port::encode_status
    ),
    body!(PacketOut, Standard, Id::Of(13), V10, Len::Min(8), packet::decode_out, packet::encode_out),
    body!(PacketOut, Standard, Id::Of(13), V11_TO_14, Len::Min(16), packet::decode_out, packet::encode_out),
    body!(PacketOut, Standard, Id::Of(13), V15, Len::Min(8), packet::decode_out15, packet::encode_out15),
    body!(FlowMod, Standard, Id::Of(14), V10, Len::Array(64, 8), flow_mod::decode_mod, flow_mod::encode_mod),
    body!(
        FlowMod,
        Standard,
        Id::Of(14),
        SINCE_V11,
        Len::Array(40, 8),
        flow_mod::decode_mod,
        flow_mod::encode_mod
    ),
    body!(FlowMod, Nxt, exp(13), V10, Len::Array(32, 8), flow_mod::decode_mod_nxt, flow_mod::encode_mod_nxt),
    body!(PortMod, Standard, Id::Of(15), V10, Len::Is(24), port::decode_mod, port::encode_mod),
    body!(PortMod, Standard, Id::Of(16), V11_TO_13, Len::Is(32), port::decode_mod, port::encode_mod),
    body!(PortMod, Standard, Id::Of(16), SINCE_V14, Len::Array(24, 8), port::decode_mod, port::encode_mod),
    body!(GroupMod, Standard, Id::Of(15), V11_TO_14, Len::Array(8, 8), group::decode_mod, group::encode_mod),
    body!(GroupMod, Standard, Id::Of(15), V15, Len::Array(16, 8), group::decode_mod15, group::encode_mod15),
    body!(GroupMod, Nxt, exp(31), V10_TO_14, Len::Array(16, 8), group::decode_mod_nxt, group::encode_mod15),
    body!(TableMod, Standard, Id::Of(17), V11_TO_13, Len::Is(8), decode_table_mod, encode_table_mod),
    body!(TableMod, Standard, Id::Of(17), SINCE_V14, Len::Array(8, 8), decode_table_mod, encode_table_mod),
    void!(BarrierRequest, Id::Of(18), V10),
    void!(BarrierReply, Id::Of(19), V10),
    void!(BarrierRequest, Id::Of(20), SINCE_V11),
    void!(BarrierReply, Id::Of(21), SINCE_V11),
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
        V11_TO_13,
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
        V11_TO_13,
        Len::Array(8, 8),
        stats::decode_queue_config,
        stats::encode_queue_config
    ),
    body!(RoleRequest, Standard, Id::Of(24), SINCE_V12, Len::Is(16), decode_role, encode_role),
    body!(RoleReply, Standard, Id::Of(25), SINCE_V12, Len::Is(16), decode_role, encode_role),
    body!(RoleRequest, Nxt, exp(10), ALL, Len::Is(4), decode_nx_role, encode_nx_role),
    body!(RoleReply, Nxt, exp(11), ALL, Len::Is(4), decode_nx_role, encode_nx_role),
    void!(GetAsyncRequest, Id::Of(26), SINCE_V13),
    body!(GetAsyncReply, Standard, Id::Of(27), V13, Len::Is(24), decode_async, encode_async),
    body!(GetAsyncReply, Standard, Id::Of(27), SINCE_V14, Len::Array(0, 8), decode_async14, encode_async14),
    body!(SetAsync, Standard, Id::Of(28), V13, Len::Is(24), decode_async, encode_async),
    body!(SetAsync, Standard, Id::Of(28), SINCE_V14, Len::Array(0, 8), decode_async14, encode_async14),
    body!(SetAsync, Nxt, exp(19), ALL, Len::Is(24), decode_nx_async, encode_async),
    body!(SetAsync, Nxt2, exp(27), V10_TO_13, Len::Array(0, 8), decode_nx_async2, encode_async14),
    body!(MeterMod, Standard, Id::Of(29), SINCE_V13, Len::Array(8, 8), meter::decode_mod, meter::encode_mod),
    body!(RoleStatus, Standard, onf(1911), V13, Len::Array(16, 8), decode_role_status, encode_role_status),
    body!(
        RoleStatus,
        Standard,
        Id::Of(30),
        SINCE_V14,
        Len::Array(16, 8),
        decode_role_status,
        encode_role_status
    ),
    body!(
        TableStatus,
        Standard,
        Id::Of(31),
        SINCE_V14,
        Len::Array(16, 8),
        decode_table_status,
        encode_table_status
    ),
    body!(RequestForward, Standard, exp(132), V10_TO_12, Len::Min(8), forward::decode, forward::encode),
    body!(RequestForward, Standard, onf(2350), V13, Len::Min(8), forward::decode, forward::encode),
    body!(RequestForward, Standard, Id::Of(32), SINCE_V14, Len::Min(8), forward::decode, forward::encode),
    body!(
        BundleControl,
        Standard,
        Id::Of(33),
        SINCE_V14,
        Len::Array(8, 8),
        decode_bundle_control,
        encode_bundle_control
    ),
    body!(
        BundleControl,
        Standard,
        onf(2300),
        V13,
        Len::Array(8, 8),
        decode_bundle_control,
        encode_bundle_control
    ),
    body!(BundleAdd, Standard, Id::Of(34), SINCE_V14, Len::Min(16), decode_bundle_add, encode_bundle_add),
    body!(BundleAdd, Standard, onf(2301), V13, Len::Min(16), decode_bundle_add, encode_bundle_add),
    body!(SetFlowFormat, Standard, exp(12), V10, Len::Is(4), decode_flow_format, encode_u32),
    body!(FlowModTableId, Standard, exp(15), ALL, Len::Is(8), decode_bool, encode_bool),
    body!(Resume, Standard, exp(28), ALL, Len::Array(0, 8), packet::decode_nxt2, packet::encode_nxt2),
    body!(SetPacketInFormat, Standard, exp(16), ALL, Len::Is(4), decode_packet_in_format, encode_u32),
    void!(FlowAge, exp(18), ALL),
    body!(SetControllerId, Standard, exp(20), ALL, Len::Is(8), decode_controller_id, encode_controller_id),
    body!(FlowMonitorCancel, Standard, exp(21), V10_TO_12, Len::Is(4), decode_u32, encode_u32),
    body!(FlowMonitorCancel, Standard, onf(1870), V13, Len::Is(4), decode_u32, encode_u32),
    void!(FlowMonitorPaused, exp(22), V10_TO_12),
    void!(FlowMonitorPaused, onf(1871), V13),
    void!(FlowMonitorResumed, exp(23), V10_TO_12),
    void!(FlowMonitorResumed, onf(1872), V13),
    body!(TlvTableMod, Standard, exp(24), ALL, Len::Array(8, 8), decode_tlv_mod, encode_tlv_mod),
    body!(CtFlushZone, Standard, exp(29), ALL, Len::Is(8), decode_ct_flush_zone, encode_ct_flush_zone),
    body!(CtFlush, Standard, exp(32), ALL, Len::Array(8, 8), decode_ct_flush, encode_ct_flush),
    void!(TlvTableRequest, exp(25), ALL),
    body!(TlvTableReply, Standard, exp(26), ALL, Len::Array(16, 8), decode_tlv_table, encode_tlv_table),
];
