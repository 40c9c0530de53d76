//! Names of messages, as `ovs-ofctl` prints them: `OFPT_*` and `OFPST_*` of the standard, `NXT_*` and `NXST_*` of Nicira,
//! `ONFT_*` and `ONFST_*` of the ONF.

use ofp_wire::{NX_VENDOR, ONF_VENDOR};

/// The types that all versions have, from 0.
const COMMON: [&str; 15] = [
    "HELLO",
    "ERROR",
    "ECHO_REQUEST",
    "ECHO_REPLY",
    "EXPERIMENTER",
    "FEATURES_REQUEST",
    "FEATURES_REPLY",
    "GET_CONFIG_REQUEST",
    "GET_CONFIG_REPLY",
    "SET_CONFIG",
    "PACKET_IN",
    "FLOW_REMOVED",
    "PORT_STATUS",
    "PACKET_OUT",
    "FLOW_MOD",
];
/// The types of OpenFlow 1.0 from 15 on.
const OF10: [&str; 7] = [
    "PORT_MOD",
    "STATS_REQUEST",
    "STATS_REPLY",
    "BARRIER_REQUEST",
    "BARRIER_REPLY",
    "QUEUE_GET_CONFIG_REQUEST",
    "QUEUE_GET_CONFIG_REPLY",
];
/// The types of OpenFlow 1.1 to 1.5 from 15 on.
const OF11: [&str; 21] = [
    "GROUP_MOD",
    "PORT_MOD",
    "TABLE_MOD",
    "MULTIPART_REQUEST",
    "MULTIPART_REPLY",
    "BARRIER_REQUEST",
    "BARRIER_REPLY",
    "QUEUE_GET_CONFIG_REQUEST",
    "QUEUE_GET_CONFIG_REPLY",
    "ROLE_REQUEST",
    "ROLE_REPLY",
    "GET_ASYNC_REQUEST",
    "GET_ASYNC_REPLY",
    "SET_ASYNC",
    "METER_MOD",
    "ROLE_STATUS",
    "TABLE_STATUS",
    "REQUESTFORWARD",
    "BUNDLE_CONTROL",
    "BUNDLE_ADD_MESSAGE",
    "CONTROLLER_STATUS",
];
/// The types of statistics, from 0.
const STATISTICS: [&str; 17] = [
    "DESC",
    "FLOW",
    "AGGREGATE",
    "TABLE",
    "PORT",
    "QUEUE",
    "GROUP",
    "GROUP_DESC",
    "GROUP_FEATURES",
    "METER",
    "METER_CONFIG",
    "METER_FEATURES",
    "TABLE_FEATURES",
    "PORT_DESC",
    "TABLE_DESC",
    "QUEUE_DESC",
    "FLOW_MONITOR",
];
/// Nicira's messages, from 10.
const NICIRA: [&str; 23] = [
    "ROLE_REQUEST",
    "ROLE_REPLY",
    "SET_FLOW_FORMAT",
    "FLOW_MOD",
    "FLOW_REMOVED",
    "FLOW_MOD_TABLE_ID",
    "SET_PACKET_IN_FORMAT",
    "PACKET_IN",
    "FLOW_AGE",
    "SET_ASYNC_CONFIG",
    "SET_CONTROLLER_ID",
    "FLOW_MONITOR_CANCEL",
    "FLOW_MONITOR_PAUSED",
    "FLOW_MONITOR_RESUMED",
    "TLV_TABLE_MOD",
    "TLV_TABLE_REQUEST",
    "TLV_TABLE_REPLY",
    "SET_ASYNC_CONFIG2",
    "RESUME",
    "CT_FLUSH_ZONE",
    "PACKET_IN2",
    "GROUP_MOD",
    "CT_FLUSH",
];
/// Nicira's messages of other numbers.
const NICIRA_OTHERS: [(u32, &str); 1] = [(132, "REQUESTFORWARD")];
/// Nicira's statistics.
const NICIRA_STATISTICS: [(u32, &str); 8] = [
    (0, "FLOW"),
    (1, "AGGREGATE"),
    (2, "FLOW_MONITOR"),
    (3, "IPFIX_BRIDGE"),
    (4, "IPFIX_FLOW"),
    (7, "GROUP"),
    (8, "GROUP_DESC"),
    (9, "GROUP_FEATURES"),
];
/// The ONF's messages.
const ONF: [(u32, &str); 7] = [
    (1870, "FLOW_MONITOR_CANCEL"),
    (1871, "FLOW_MONITOR_PAUSED"),
    (1872, "FLOW_MONITOR_RESUMED"),
    (1911, "ROLE_STATUS"),
    (2300, "BUNDLE_CONTROL"),
    (2301, "BUNDLE_ADD_MESSAGE"),
    (2350, "REQUESTFORWARD"),
];
/// The ONF's statistics.
const ONF_STATISTICS: [(u32, &str); 1] = [(1870, "FLOW_MONITOR")];

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// 32 bits at a place.
pub(super) fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn of<'n>(table: &[(u32, &'n str)], number: u32) -> Option<&'n str> {
    table.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Types of requests and replies of statistics.
fn statistics_types(version: u8) -> (u8, u8) {
    if version == 1 { (16, 17) } else { (18, 19) }
}

/// Flags of a request or reply of statistics, and whether it is a request.
pub(super) fn statistics_flags(frame: &[u8]) -> Option<(u16, bool)> {
    let (version, ty) = (*frame.first()?, *frame.get(1)?);
    let (request, reply) = statistics_types(version);
    if ty == request || ty == reply { Some((be16(frame, 10)?, ty == request)) } else { None }
}

/// Whether a message is a part of a reply that others follow.
pub fn more_follows(frame: &[u8]) -> bool {
    statistics_flags(frame).is_some_and(|(flags, request)| !request && flags & 1 != 0)
}

/// Name of a message; `None` if it is unknown or cut short.
pub fn name(frame: &[u8]) -> Option<String> {
    let (version, ty) = (*frame.first()?, *frame.get(1)?);
    if ty == 4 {
        return experimenter(be32(frame, 8)?, be32(frame, 12)?);
    }
    let (request, reply) = statistics_types(version);
    if ty == request || ty == reply {
        let way = if ty == request { "request" } else { "reply" };
        let kind = be16(frame, 8)?;
        if kind != u16::MAX {
            return Some(format!("OFPST_{} {way}", STATISTICS.get(usize::from(kind))?));
        }
        let vendor_at = if version == 1 { 12 } else { 16 };
        let (vendor, subtype) = (be32(frame, vendor_at)?, be32(frame, vendor_at + 4)?);
        return match vendor {
            NX_VENDOR => Some(format!("NXST_{} {way}", of(&NICIRA_STATISTICS, subtype)?)),
            ONF_VENDOR => Some(format!("ONFST_{} {way}", of(&ONF_STATISTICS, subtype)?)),
            _ => None,
        };
    }
    let ty = usize::from(ty);
    let known = match ty.checked_sub(COMMON.len()) {
        None => COMMON.get(ty),
        Some(n) if version == 1 => OF10.get(n),
        Some(n) => OF11.get(n),
    };
    Some(format!("OFPT_{}", known?))
}

fn experimenter(vendor: u32, subtype: u32) -> Option<String> {
    match vendor {
        NX_VENDOR => {
            let row = subtype.checked_sub(10).and_then(|n| NICIRA.get(n as usize).copied());
            Some(format!("NXT_{}", row.or_else(|| of(&NICIRA_OTHERS, subtype))?))
        }
        ONF_VENDOR => Some(format!("ONFT_{}", of(&ONF, subtype)?)),
        _ => None,
    }
}

/// Version as in the title of a message: nothing for 1.0.
pub(super) fn version_text(version: u8) -> String {
    match version {
        1 => String::new(),
        2..=6 => format!(" (OF1.{})", version - 1),
        n => format!(" (OF 0x{n:02x})"),
    }
}
