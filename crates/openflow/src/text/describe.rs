//! A message on a line for the log: name, version and transaction id, as `ovs-ofctl` prints them, and the contents of
//! hellos and rule changes. Contents of other messages are left out.

use crate::msg::flow_mod::{FlowMod, FlowModCommand, FlowModFlags};
use crate::{Message, Version, decode_with};
use flow::TableId;
use flow::text::{NoPortNames, format_match};
use ofp_actions::text::format_actions;
use ofp_wire::{NX_VENDOR, ONF_VENDOR, Options};

/// Names of the types that all versions have, from 0.
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
/// Nicira's statistics.
const NICIRA_STATISTICS: [(u32, &str); 6] = [
    (0, "FLOW"),
    (1, "AGGREGATE"),
    (2, "FLOW_MONITOR"),
    (7, "GROUP_DESC"),
    (8, "GROUP"),
    (9, "GROUP_FEATURES"),
];

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Name of a message; `None` if it is unknown or cut short.
fn name(frame: &[u8]) -> Option<String> {
    let (version, ty) = (*frame.first()?, usize::from(*frame.get(1)?));
    let of10 = version == 1;
    if ty == 4 {
        return experimenter(be32(frame, 8)?, be32(frame, 12)?);
    }
    let (request, reply) = if of10 { (16, 17) } else { (18, 19) };
    if ty == request || ty == reply {
        let way = if ty == request { "request" } else { "reply" };
        let kind = be16(frame, 8)?;
        if kind != u16::MAX {
            return Some(format!("OFPST_{} {way}", STATISTICS.get(usize::from(kind))?));
        }
        let vendor_at = if of10 { 12 } else { 16 };
        let (vendor, subtype) = (be32(frame, vendor_at)?, be32(frame, vendor_at + 4)?);
        return match vendor {
            NX_VENDOR => {
                let (_, kind) = NICIRA_STATISTICS.iter().find(|(known, _)| *known == subtype)?;
                Some(format!("NXST_{kind} {way}"))
            }
            ONF_VENDOR if subtype == 1870 => Some(format!("OFPST_FLOW_MONITOR {way}")),
            _ => None,
        };
    }
    let later = ty.checked_sub(COMMON.len());
    let known = match later {
        None => COMMON.get(ty),
        Some(n) if of10 => OF10.get(n),
        Some(n) => OF11.get(n),
    };
    Some(format!("OFPT_{}", known?))
}

fn experimenter(vendor: u32, subtype: u32) -> Option<String> {
    match (vendor, subtype) {
        (NX_VENDOR, 10..) => Some(format!("NXT_{}", NICIRA.get(subtype as usize - 10)?)),
        (ONF_VENDOR, 2300) => Some("OFPT_BUNDLE_CONTROL".to_string()),
        (ONF_VENDOR, 2301) => Some("OFPT_BUNDLE_ADD_MESSAGE".to_string()),
        (ONF_VENDOR, 2350) => Some("OFPT_REQUESTFORWARD".to_string()),
        _ => None,
    }
}

/// The line of a message, which may be cut short, on a connection with these options.
pub fn describe(frame: &[u8], options: &Options) -> String {
    let version = frame.first().copied().unwrap_or_default();
    let named = match version {
        1 => String::new(),
        2.. => format!(" (OF1.{})", version - 1),
        0 => " (version 0)".to_string(),
    };
    let xid = be32(frame, 4).unwrap_or_default();
    let name = name(frame).unwrap_or_else(|| "unknown message".to_string());
    format!("{name}{named} (xid={xid:#x}):{}", body(frame, options))
}

/// The contents of some messages.
fn body(frame: &[u8], options: &Options) -> String {
    let Ok((version, _, message)) = decode_with(frame, options) else { return String::new() };
    if let Message::Hello(hello) = &message {
        let bits: Vec<_> = (1..=31u8)
            .filter(|n| hello.versions.contains(Version(*n)))
            .map(|n| format!("0x{n:02x}"))
            .collect();
        format!("\n version bitmap: {}", bits.join(", "))
    } else if let Message::FlowMod(m) = &message {
        rule(m, version)
    } else if let Message::FlowModTableId(on) = message {
        if on { " enable" } else { " disable" }.to_string()
    } else {
        String::new()
    }
}

/// A change of rules.
fn rule(m: &FlowMod, version: Version) -> String {
    let command = match m.command {
        FlowModCommand::Add => "ADD",
        FlowModCommand::Modify => "MOD",
        FlowModCommand::ModifyStrict => "MOD_STRICT",
        FlowModCommand::Delete => "DEL",
        FlowModCommand::DeleteStrict => "DEL_STRICT",
    };
    let mut words = vec![command.to_string()];
    let all = m.table == TableId::ALL && version == Version::V10;
    if m.table != TableId(0) && !all {
        words.push(format!("table:{}", m.table.0));
    }
    let strict = matches!(
        m.command,
        FlowModCommand::Add | FlowModCommand::ModifyStrict | FlowModCommand::DeleteStrict
    );
    words.push(format_match(&m.matching.unpack(), strict.then_some(m.priority.into())));
    if m.new_cookie != 0 && m.new_cookie != u64::MAX {
        words.push(format!("cookie:{:#x}", m.new_cookie));
    }
    if m.cookie_mask != 0 {
        words.push(format!("cookie:{:#x}/{:#x}", m.cookie, m.cookie_mask));
    }
    let timeouts = [("idle", m.idle_timeout_s), ("hard", m.hard_timeout_s)];
    words.extend(timeouts.iter().filter(|(_, s)| *s != 0).map(|(kind, s)| format!("{kind}:{s}")));
    if m.importance != 0 {
        words.push(format!("importance:{}", m.importance));
    }
    if m.flags.contains(FlowModFlags::SEND_FLOW_REM) {
        words.push("send_flow_rem".to_string());
    }
    words.push(format!("actions={}", format_actions(&m.actions, &NoPortNames)));
    words.iter().filter(|word| !word.is_empty()).map(|word| format!(" {word}")).collect()
}
