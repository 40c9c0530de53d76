//! Configuration not supported by this version: one table per kind of row.
//!
//! A new feature removes its line here.

use ofproto::ports::SpanningTree;
use ovsdb::client::RowView;

use super::reader::{Reader, flag};

type Asked = fn(RowView<'_>) -> bool;
/// Test for a setting, the setting (a column, or column and key), and the feature.
type Feature = (Asked, &'static str, &'static str);

const OF_BRIDGE: &[Feature] = &[
    (
        |row| row.bool("mcast_snooping_enable"),
        "mcast_snooping_enable",
        "multicast snooping (mcast_snooping_enable), multicast is flooded,",
    ),
    (|row| row.opt_uuid("netflow").is_some(), "netflow", "NetFlow (netflow)"),
    (|row| row.opt_uuid("sflow").is_some(), "sflow", "sFlow (sflow)"),
    (|row| row.opt_uuid("ipfix").is_some(), "ipfix", "IPFIX (ipfix)"),
    (|row| row.opt_uuid("auto_attach").is_some(), "auto_attach", "auto attach (auto_attach)"),
    (
        |row| row.datum("flood_vlans").is_some_and(|vlans| !vlans.is_empty()),
        "flood_vlans",
        "flooding VLANs without learning (flood_vlans)",
    ),
];

const OF_PORT: &[Feature] = &[
    (|row| row.opt_uuid("qos").is_some(), "qos", "quality of service (qos)"),
    (|row| matches!(row.opt_str("lacp"), Some("active" | "passive")), "lacp", "LACP (lacp)"),
    (|row| row.bool("bond_fake_iface"), "bond_fake_iface", "the interface of a bond (bond_fake_iface)"),
];

const OF_INTERFACE: &[Feature] = &[
    (|row| row.opt_int("cfm_mpid").is_some(), "cfm_mpid", "CFM (cfm_mpid)"),
    (|row| flag(row, "lldp", "enable"), "lldp:enable", "LLDP (lldp)"),
    (
        |row| row.int("ingress_policing_rate") > 0 || row.int("ingress_policing_kpkts_rate") > 0,
        "ingress_policing_rate",
        "ingress policing (ingress_policing_rate, ingress_policing_kpkts_rate)",
    ),
];

const OF_SWITCH: &[Feature] = &[
    (
        |row| flag(row, "other_config", "hw-offload"),
        "other_config:hw-offload",
        "hardware offload to devices other than dummies (other_config:hw-offload)",
    ),
    (
        |row| matches!(row.map_str("other_config", "dpdk-init"), Some("true" | "try")),
        "other_config:dpdk-init",
        "DPDK (other_config:dpdk-init)",
    ),
];

/// Unsupported interface types of OVS.
const KNOWN_TYPES: [&str; 5] = ["afxdp", "afxdp-nonpmd", "dpdk", "dpdkvhostuser", "dpdkvhostuserclient"];

/// Types of tunnels that only modules of the kernel outside of Linux had, or that no datapath here has.
const TUNNEL_TYPES: [(&str, &str); 3] = [
    ("bareudp", "neither datapath has bareudp tunnels"),
    ("lisp", "neither datapath has LISP tunnels, which needed a kernel module that OVS removed"),
    ("stt", "neither datapath has STT tunnels, which needed a kernel module that OVS removed"),
];

/// The error of an interface with an unsupported type.
pub(super) fn interface_type_error(name: &str, type_name: &str) -> String {
    if let Some((_, why)) = TUNNEL_TYPES.iter().find(|(known, _)| *known == type_name) {
        return format!("could not open network device {name} ({why})");
    }
    if KNOWN_TYPES.contains(&type_name) {
        format!(
            "could not open network device {name} (interface type {type_name} is not supported in this version)"
        )
    } else {
        format!("could not open network device {name} (Address family not supported by protocol)")
    }
}

/// The spanning tree protocol of a bridge: with both, the rapid one.
pub(super) fn spanning_tree(bridge: RowView<'_>) -> Option<SpanningTree> {
    match (bridge.bool("rstp_enable"), bridge.bool("stp_enable")) {
        (true, _) => Some(SpanningTree::Rstp),
        (false, true) => Some(SpanningTree::Stp),
        (false, false) => None,
    }
}

fn report<'a>(reader: &mut Reader<'a>, row: RowView<'a>, features: &[Feature]) {
    for (_, setting, feature) in features.iter().filter(|(asked, ..)| asked(row)) {
        reader.notice(row, *setting, format!("{feature} is not supported in this version: it has no effect"));
    }
}

pub(super) fn of_bridge<'a>(reader: &mut Reader<'a>, row: RowView<'a>) {
    report(reader, row, OF_BRIDGE);
    let tree = match spanning_tree(row) {
        None => None,
        Some(SpanningTree::Stp) => Some(("stp_enable", "spanning tree")),
        Some(SpanningTree::Rstp) => Some(("rstp_enable", "rapid spanning tree")),
    };
    if let Some((setting, tree)) = tree {
        reader.notice(
            row,
            setting,
            format!("{tree} ({setting}) is not supported in this version: until it is disabled, nothing is forwarded between ports that would take part in the tree"),
        );
    }
    for uuid in row.uuid_set("mirrors") {
        if let Some(mirror) = reader.replica.row("Mirror", uuid) {
            // A mirror's row has no column for the notice.
            let name = mirror.str("name");
            reader.notice(
                row,
                "mirrors",
                format!("mirror {name} (mirrors) is not supported in this version: it has no effect"),
            );
        }
    }
}

pub(super) fn of_port<'a>(reader: &mut Reader<'a>, row: RowView<'a>) {
    report(reader, row, OF_PORT);
}

pub(super) fn of_interface<'a>(reader: &mut Reader<'a>, row: RowView<'a>) {
    report(reader, row, OF_INTERFACE);
}

pub(super) fn of_switch<'a>(reader: &mut Reader<'a>, row: RowView<'a>) {
    report(reader, row, OF_SWITCH);
    for set in reader.replica.rows("Flow_Sample_Collector_Set") {
        let id = set.int("id");
        if let Some(bridge) = set.opt_uuid("bridge").and_then(|uuid| reader.replica.row("Bridge", uuid)) {
            let message = format!(
                "sampling of flows (IPFIX, local_group) is not supported in this version: set {id} (Flow_Sample_Collector_Set) has no effect"
            );
            reader.notice(bridge, "Flow_Sample_Collector_Set", message);
        }
    }
}
