//! All fuzz targets: one row each.

use crate::seeds::Seeds;

/// A fuzz target.
pub(crate) struct Target {
    /// Its name: the crate and its input.
    pub(crate) name: &'static str,
    /// The function of the crate's `fuzz` module.
    pub(crate) run: fn(&[u8]),
    /// Initial inputs.
    pub(crate) seeds: &'static [Seeds],
}

const fn target(name: &'static str, run: fn(&[u8]), seeds: &'static [Seeds]) -> Target {
    Target { name, run, seeds }
}

const OPENFLOW: &[Seeds] = &[
    Seeds::HexLines("crates/openflow/corpus/captured.txt"),
    Seeds::HexLines("crates/openflow/corpus/cases.txt"),
];

/// See the module.
#[rustfmt::skip]
pub(crate) const TARGETS: &[Target] = &[
    target("conntrack-track", conntrack::fuzz::track, &[Seeds::Files("crates/conntrack/corpus/track")]),
    target("conntrack-carried", conntrack::fuzz::carried, &[Seeds::Files("crates/conntrack/corpus/carried")]),
    target("conntrack-fragments", conntrack::fuzz::fragments, &[Seeds::Files("crates/conntrack/corpus/fragments")]),
    target("conntrack-ftp", conntrack::fuzz::ftp, &[Seeds::Files("crates/conntrack/corpus/ftp")]),
    target("dpif-actions", dpif::fuzz::action_list, &[Seeds::Files("crates/dpif/corpus/action_list")]),
    target("dpif-text", dpif::text::fuzz_text, &[
        Seeds::Lines("crates/dpif/corpus/key/recorded.txt"),
        Seeds::Lines("crates/dpif/corpus/actions/recorded.txt"),
    ]),
    target("flow-extract", flow::fuzz::extract_frame, &[Seeds::Files("crates/flow/corpus/extract")]),
    target("flow-attributes", flow::fuzz::attributes, &[Seeds::Files("crates/flow/corpus/attributes")]),
    target("flow-kernel-key", flow::fuzz::kernel_key, &[Seeds::Files("crates/flow/corpus/kernel_key")]),
    target("flow-words", flow::fuzz::parse_words, &[Seeds::Files("crates/flow/corpus/words")]),
    target("flow-match", flow::text::fuzz::parse_flow, &[Seeds::Files("crates/flow/corpus/text_parse_flow")]),
    target("httpd-request", httpd::fuzz::request, &[Seeds::Files("crates/httpd/corpus/request")]),
    target("l2proto-bfd", l2proto::fuzz::bfd_packets, &[Seeds::Files("crates/l2proto/corpus/bfd_packets")]),
    target("l2proto-lacp", l2proto::fuzz::lacp_packets, &[Seeds::Files("crates/l2proto/corpus/lacp_packets")]),
    target("l2proto-cfm", l2proto::fuzz::cfm_frames, &[Seeds::Files("crates/l2proto/corpus/cfm_frames")]),
    target("l2proto-lldp", l2proto::fuzz::lldp_frames, &[Seeds::Files("crates/l2proto/corpus/lldp_frames")]),
    target(
        "l2proto-spanning-tree",
        l2proto::fuzz::spanning_tree_messages,
        &[Seeds::Files("crates/l2proto/corpus/spanning_tree_messages")],
    ),
    target("telemetry-frame", telemetry::fuzz::sampled_frame, &[Seeds::Files("crates/telemetry/corpus/sampled_frame")]),
    target("l2proto-saved", l2proto::fuzz::saved_states, &[Seeds::Files("crates/l2proto/corpus/saved_states")]),
    target("l2proto-membership", l2proto::fuzz::membership, &[Seeds::Files("crates/l2proto/corpus/membership")]),
    target("ofp-actions-text", ofp_actions::fuzz::parse_actions, &[Seeds::Files("crates/ofp-actions/corpus/text_parse_actions")]),
    target("ofp-actions-flow-mods", ofp_actions::fuzz::parse_flow_mods, &[Seeds::Files("crates/ofp-actions/corpus/flow_mods")]),
    target("ofp-actions-wire", ofp_actions::fuzz::read_actions, OPENFLOW),
    target("openflow-message", openflow::fuzz::decode_message, OPENFLOW),
    target("openflow-match", openflow::fuzz::roundtrip_match, OPENFLOW),
    target("openflow-match-entries", openflow::fuzz::match_entries, &[Seeds::Files("crates/openflow/corpus/match_entries")]),
    target("openflow-group-text", openflow::fuzz::group_text, &[Seeds::Files("crates/openflow/corpus/group_text")]),
    target("openflow-ct-flush", openflow::fuzz::ct_flush_text, &[Seeds::Lines("crates/openflow/corpus/ct_flush/tuples.txt")]),
    target("openflow-meter-text", openflow::fuzz::meter_text, &[Seeds::Files("crates/openflow/corpus/meter_text")]),
    target("openflow-capture", openflow::fuzz::capture, &[Seeds::Files("crates/openflow/corpus/capture")]),
    target("openflow-session", openflow::fuzz::session, OPENFLOW),
    target("netdev-link", netdev::fuzz::link_messages, &[Seeds::Files("crates/netdev/corpus/link_messages")]),
    target("netdev-tc", netdev::fuzz::tc_messages, &[Seeds::Files("crates/netdev/corpus/tc_messages")]),
    target("netdev-route", netdev::fuzz::route_messages, &[Seeds::Files("crates/netdev/corpus/route_messages")]),
    target("netlink-timeout-policy", netlink::fuzz::timeout_policy, &[Seeds::Files("crates/netlink/corpus/timeout_policy")]),
    target("netlink-connection", netlink::fuzz::connection, &[Seeds::Files("crates/netlink/corpus/connection")]),
    target("netlink-flow", netlink::fuzz::flow_reply, &[Seeds::Files("crates/netlink/corpus/flow_reply")]),
    target("netlink-messages", netlink::fuzz::messages, &[Seeds::Files("crates/netlink/corpus/messages")]),
    target("netlink-told", netlink::fuzz::told, &[Seeds::Files("crates/netlink/corpus/told")]),
    target("netlink-upcall", netlink::fuzz::upcall, &[Seeds::Files("crates/netlink/corpus/upcall")]),
    target("ovsdb-client", ovsdb::fuzz::fuzz_client, &[Seeds::Files("crates/ovsdb/corpus/client")]),
    target("ovsdb-jsonrpc", ovsdb::fuzz::fuzz_jsonrpc, &[Seeds::Files("crates/ovsdb/corpus/jsonrpc")]),
    target("ovsdb-log", ovsdb::fuzz::fuzz_log, &[Seeds::Files("crates/ovsdb/corpus/log")]),
    target("ovsdb-schema", ovsdb::fuzz::fuzz_schema, &[Seeds::Files("crates/ovsdb/corpus/schema")]),
    target("ovsdb-transact", ovsdb::fuzz::fuzz_transact, &[Seeds::Files("crates/ovsdb/corpus/transact")]),
    target("packet-offload", packet::fuzz::offload, &[Seeds::Files("crates/packet/corpus/offload")]),
    target("sluice-appctl-words", sluice::fuzz::appctl_words, &[Seeds::Files("crates/sluice/corpus/appctl_words")]),
    target("sluice-bundle-lines", sluice::fuzz::bundle_lines, &[Seeds::Files("crates/sluice/corpus/bundle_lines")]),
    target("sluice-colored-rules", sluice::fuzz::colored_rules, &[Seeds::Files("crates/sluice/corpus/colored_rules")]),
    target("sluice-completed-words", sluice::fuzz::completed_words, &[Seeds::Files("crates/sluice/corpus/completed_words")]),
    target("sluice-monitor-arguments", sluice::fuzz::monitor_arguments, &[Seeds::Files("crates/sluice/corpus/monitor_arguments")]),
    target("sluice-ofctl-words", sluice::fuzz::ofctl_words, &[Seeds::Files("crates/sluice/corpus/ofctl_words")]),
    target("sluice-packet-out", sluice::fuzz::packet_out, &[Seeds::Files("crates/sluice/corpus/packet_out")]),
    target("sluice-saved-file", sluice::fuzz::saved_file, &[Seeds::Files("crates/sluice/corpus/saved_file")]),
    target("sluice-status-reply", sluice::fuzz::status_reply, &[Seeds::Files("crates/sluice/corpus/status_reply")]),
    target("sluice-tlv-maps", sluice::fuzz::tlv_maps, &[Seeds::Files("crates/sluice/corpus/tlv_maps")]),
    target("sluice-vsctl-commands", sluice::fuzz::vsctl_commands, &[Seeds::Files("crates/sluice/corpus/vsctl_commands")]),
    target("sluice-vsctl-values", sluice::fuzz::vsctl_values, &[Seeds::Files("crates/sluice/corpus/vsctl_values")]),
    target("sluiced-control-arguments", sluiced::fuzz::control_arguments, &[Seeds::Files("crates/sluiced/corpus/control_arguments")]),
    target("sluiced-saved-session", sluiced::fuzz::saved_session, &[Seeds::Files("crates/sluiced/corpus/saved_session")]),
    target("sluiced-saved-state", sluiced::fuzz::saved_state, &[Seeds::Files("crates/sluiced/corpus/saved_state")]),
    target("sluiced-handover-notes", sluiced::fuzz::handover_notes, &[Seeds::Files("crates/sluiced/corpus/handover_notes")]),
    target("sluiced-words", sluiced::fuzz::words, &[Seeds::Files("crates/sluiced/corpus/words")]),
    target("switch-actions", sim::fuzz::actions, &[Seeds::Files("tools/sim/corpus/actions")]),
    target("switch-configuration", sim::fuzz::configuration, &[
        Seeds::Files("tools/sim/corpus/configuration"),
        Seeds::Files("crates/ovsdb/corpus/transact"),
    ]),
    target("switch-connection", sim::fuzz::connection, &[Seeds::Files("tools/sim/corpus/connection")]),
    target("switch-pipeline", sim::fuzz::pipeline, &[Seeds::Files("tools/sim/corpus/pipeline")]),
    target("tls-protocols", tls::fuzz::protocols, &[Seeds::Files("crates/tls/corpus/protocols")]),
    target("upcall-cost-recording", upcall_cost::fuzz::recording, &[Seeds::Files("crates/upcall-cost/corpus/recording")]),
    target("upcall-events-stream", upcall_events::fuzz::stream, &[Seeds::Files("crates/upcall-events/corpus/stream")]),
    target("upcall-bench-probe", upcall_bench::fuzz::probe, &[Seeds::Files("crates/upcall-bench/corpus/probe")]),
    target("upcall-bench-run", upcall_bench::fuzz::saved_run, &[Seeds::Files("crates/upcall-bench/corpus/saved_run")]),
];
