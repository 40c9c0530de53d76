//! Rows of the multipart requests and replies.

use super::table::*;
use crate::msg::{
    Format, Kind, Message, control, features, flow_monitor, flow_stats, group, ipfix, meter, port, stats,
};

use flow_monitor::{
    put_nxt, put_onf, put_update, put_update14, put14, read_nxt, read_onf, read_update, read_update14, read14,
};
use flow_stats::*;

pub(super) static ROWS: &[Row] = &[
    void!(DescRequest, mp(0, false), ALL),
    body!(DescReply, Standard, mp(0, true), ALL, Len::Is(1056), stats::decode_desc, stats::encode_desc),
    body!(FlowStatsRequest, Standard, mp(1, false), V10, Len::Is(44), decode_request, encode_request),
    body!(
        FlowStatsRequest,
        Standard,
        mp(1, false),
        SINCE_V11,
        Len::Array(32, 8),
        decode_request,
        encode_request
    ),
    body!(
        FlowStatsRequest,
        Nxt,
        exp_mp(0, false),
        V10,
        Len::Array(8, 8),
        decode_request_nxt,
        encode_request_nxt
    ),
    multi!(FlowStatsReply, Standard, mp(1, true), V10_TO_14, Len::Min(0), read_stats, put_stats),
    multi!(FlowStatsReply, Standard, mp(1, true), V15, Len::Min(0), read_stats15, put_stats15),
    multi!(FlowStatsReply, Nxt, exp_mp(0, true), V10, Len::Min(0), read_stats_nxt, put_stats_nxt),
    body!(AggregateRequest, Standard, mp(2, false), V10, Len::Is(44), decode_request, encode_request),
    body!(
        AggregateRequest,
        Standard,
        mp(2, false),
        SINCE_V11,
        Len::Array(32, 8),
        decode_request,
        encode_request
    ),
    body!(
        AggregateRequest,
        Nxt,
        exp_mp(1, false),
        V10,
        Len::Array(8, 8),
        decode_request_nxt,
        encode_request_nxt
    ),
    body!(AggregateReply, Standard, mp(2, true), V10_TO_14, Len::Is(24), decode_aggregate, encode_aggregate),
    body!(
        AggregateReply,
        Standard,
        mp(2, true),
        V15,
        Len::Array(0, 8),
        decode_aggregate15,
        encode_aggregate15
    ),
    body!(AggregateReply, Nxt, exp_mp(1, true), V10, Len::Is(24), decode_aggregate_nxt, encode_aggregate),
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
        V11,
        Len::Array(0, 88),
        stats::read_table,
        stats::put_table
    ),
    multi!(
        TableStatsReply,
        Standard,
        mp(3, true),
        V12,
        Len::Array(0, 128),
        stats::read_table,
        stats::put_table
    ),
    multi!(
        TableStatsReply,
        Standard,
        mp(3, true),
        SINCE_V13,
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
    multi!(
        PortStatsReply,
        Standard,
        mp(4, true),
        V11_TO_12,
        Len::Array(0, 104),
        port::read_stats,
        port::put_stats
    ),
    multi!(PortStatsReply, Standard, mp(4, true), V13, Len::Array(0, 112), port::read_stats, port::put_stats),
    multi!(
        PortStatsReply,
        Standard,
        mp(4, true),
        SINCE_V14,
        Len::Array(0, 8),
        port::read_stats14,
        port::put_stats14
    ),
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
        V10_TO_12,
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
    multi!(
        QueueStatsReply,
        Standard,
        mp(5, true),
        SINCE_V14,
        Len::Array(0, 8),
        stats::read_queue14,
        stats::put_queue14
    ),
    body!(
        GroupStatsRequest,
        Standard,
        mp(6, false),
        SINCE_V11,
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
        SINCE_V11,
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
        V11_TO_14,
        Len::Is(0),
        group::decode_request_all,
        group::encode_request_all
    ),
    body!(
        GroupDescRequest,
        Standard,
        mp(7, false),
        V15,
        Len::Is(8),
        group::decode_request,
        group::encode_request
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
    multi!(
        GroupDescReply,
        Standard,
        mp(7, true),
        V11_TO_14,
        Len::Array(0, 8),
        group::read_desc,
        group::put_desc
    ),
    multi!(
        GroupDescReply,
        Standard,
        mp(7, true),
        V15,
        Len::Array(0, 8),
        group::read_desc15,
        group::put_desc15
    ),
    multi!(
        GroupDescReply,
        Standard,
        exp_mp(8, true),
        V10,
        Len::Array(0, 8),
        group::read_desc15,
        group::put_desc15
    ),
    void!(GroupFeaturesRequest, mp(8, false), SINCE_V12),
    void!(GroupFeaturesRequest, exp_mp(9, false), V10_TO_11),
    body!(
        GroupFeaturesReply,
        Standard,
        mp(8, true),
        SINCE_V12,
        Len::Is(40),
        group::decode_features,
        group::encode_features
    ),
    body!(
        GroupFeaturesReply,
        Standard,
        exp_mp(9, true),
        V10_TO_11,
        Len::Is(40),
        group::decode_features,
        group::encode_features
    ),
    body!(
        MeterStatsRequest,
        Standard,
        mp(9, false),
        SINCE_V13,
        Len::Is(8),
        meter::decode_request,
        meter::encode_request
    ),
    multi!(
        MeterStatsReply,
        Standard,
        mp(9, true),
        SINCE_V13,
        Len::Array(0, 8),
        meter::read_stats,
        meter::put_stats
    ),
    body!(
        MeterConfigRequest,
        Standard,
        mp(10, false),
        SINCE_V13,
        Len::Is(8),
        meter::decode_request,
        meter::encode_request
    ),
    multi!(
        MeterConfigReply,
        Standard,
        mp(10, true),
        SINCE_V13,
        Len::Array(0, 8),
        meter::read_config,
        meter::put_config
    ),
    void!(MeterFeaturesRequest, mp(11, false), SINCE_V13),
    body!(
        MeterFeaturesReply,
        Standard,
        mp(11, true),
        SINCE_V13,
        Len::Is(16),
        meter::decode_features,
        meter::encode_features
    ),
    multi!(
        TableFeaturesRequest,
        Standard,
        mp(12, false),
        SINCE_V13,
        Len::Array(0, 8),
        features::read,
        features::put
    ),
    multi!(
        TableFeaturesReply,
        Standard,
        mp(12, true),
        SINCE_V13,
        Len::Array(0, 8),
        features::read,
        features::put
    ),
    body!(
        PortDescRequest,
        Standard,
        mp(13, false),
        V10_TO_14,
        Len::Is(0),
        port::decode_desc_request_all,
        port::encode_desc_request_all
    ),
    body!(
        PortDescRequest,
        Standard,
        mp(13, false),
        V15,
        Len::Is(8),
        port::decode_request,
        port::encode_stats_request
    ),
    multi!(PortDescReply, Standard, mp(13, true), V10, Len::Array(0, 48), port::read, port::put),
    multi!(PortDescReply, Standard, mp(13, true), V11_TO_13, Len::Array(0, 64), port::read, port::put),
    multi!(PortDescReply, Standard, mp(13, true), SINCE_V14, Len::Array(0, 8), port::read, port::put),
    void!(TableDescRequest, mp(14, false), SINCE_V14),
    multi!(
        TableDescReply,
        Standard,
        mp(14, true),
        SINCE_V14,
        Len::Array(0, 8),
        control::read_table_desc,
        control::put_table_desc
    ),
    body!(
        QueueDescRequest,
        Standard,
        mp(15, false),
        SINCE_V14,
        Len::Is(8),
        stats::decode_queue_request,
        stats::encode_queue_request
    ),
    multi!(
        QueueDescReply,
        Standard,
        mp(15, true),
        SINCE_V14,
        Len::Array(0, 8),
        stats::read_queue_desc,
        stats::put_queue_desc
    ),
    multi!(FlowMonitorRequest, Standard, exp_mp(2, false), V10_TO_12, Len::Array(0, 8), read_nxt, put_nxt),
    multi!(FlowMonitorRequest, Standard, onf_mp(1870, false), V13, Len::Array(0, 8), read_onf, put_onf),
    multi!(FlowMonitorRequest, Standard, mp(16, false), SINCE_V14, Len::Array(0, 8), read14, put14),
    multi!(FlowMonitorReply, Standard, exp_mp(2, true), V10_TO_12, Len::Array(0, 8), read_update, put_update),
    multi!(FlowMonitorReply, Standard, onf_mp(1870, true), V13, Len::Array(0, 8), read_update, put_update),
    multi!(
        FlowMonitorReply,
        Standard,
        mp(16, true),
        SINCE_V14,
        Len::Array(0, 8),
        read_update14,
        put_update14
    ),
    void!(IpfixBridgeRequest, exp_mp(3, false), ALL),
    body!(IpfixBridgeReply, Standard, exp_mp(3, true), ALL, Len::Is(88), ipfix::read, ipfix::encode),
    void!(IpfixFlowRequest, exp_mp(4, false), ALL),
    multi!(IpfixFlowReply, Standard, exp_mp(4, true), ALL, Len::Array(0, 88), ipfix::read, ipfix::put),
];
