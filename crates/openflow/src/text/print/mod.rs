//! Messages as text, in the layout of `ovs-ofctl ofp-print`: a title, and the contents by subject, a file each.
//!
//! Callers: `sluice ofctl` (replies, `monitor`, `snoop`, `ofp-print`). Bytes that do not decode become their title, the
//! error and a dump. The text of a message is bounded by its length. Left out: names of tables.

mod control;
mod events;
mod groups;
mod hex_dump;
mod ipfix;
mod meters;
mod packets;
mod ports;
mod rules;
mod table_features;
mod tables;

pub use hex_dump::hex_dump;
pub use packets::packet_text;
pub use rules::format_rule;
pub use table_features::format_table_features;

use super::name::{be32, name, statistics_flags, version_text};
use crate::{ErrorKind, HEADER_BYTES, Message, Options, Version, decode_with};
use flow::text::PortNames;
use std::fmt::Write as _;

/// Settings of the text of messages.
#[derive(Clone, Copy)]
pub struct Printing<'a> {
    /// Options of the connection.
    pub options: &'a Options,
    /// Names of ports.
    pub names: &'a dyn PortNames,
    /// 0: without packets; 1: with their fields; 3: with their bytes, and matches of Nicira's
    /// form as entries; 5: with the bytes of the message.
    pub verbosity: u8,
}

/// The text of a message, with the settings of its contents.
struct Printer<'a> {
    out: String,
    version: Version,
    xid: u32,
    how: Printing<'a>,
}

/// Adds formatted text to a [`Printer`] or a string; writing to a string cannot fail.
macro_rules! put {
    ($out:expr, $($args:tt)*) => {{
        let _infallible = write!($out, $($args)*);
    }};
}
use put;

/// The text of a message: lines that end with a newline.
pub fn format_message(frame: &[u8], how: Printing<'_>) -> String {
    let Some(len) = frame.get(2..4).filter(|_| frame.len() >= HEADER_BYTES) else {
        if frame.is_empty() {
            return "OpenFlow message is empty\n".to_string();
        }
        return format!("OpenFlow packet too short (only {} bytes):\n{}", frame.len(), hex_dump(frame, true));
    };
    let len = usize::from(u16::from_be_bytes([len[0], len[1]]));
    if len != frame.len() {
        let what = if len > frame.len() {
            let title = title(frame).map(|title| title + "\n").unwrap_or_default();
            format!("{title}(***truncated to {} bytes from {len}***)\n", frame.len())
        } else {
            format!("(***only uses {len} bytes out of {}***)\n", frame.len())
        };
        return what + &hex_dump(frame, true);
    }
    whole(frame, how)
}

/// `OFPT_HELLO (OF1.3) (xid=0x1):`
fn title(frame: &[u8]) -> Option<String> {
    let version = version_text(*frame.first()?);
    Some(format!("{}{version} (xid={:#x}):", name(frame)?, be32(frame, 4)?))
}

/// The text of a message of the right length.
fn whole(frame: &[u8], how: Printing<'_>) -> String {
    let (mut out, decoded) = match decode_with(frame, how.options) {
        Ok(parts) => (title(frame).unwrap_or_default(), Ok(parts)),
        // A message of an unknown type or a wrong length has no title.
        Err(e) if untitled(e.kind) => (String::new(), Err(e)),
        Err(e) => (title(frame).unwrap_or_default(), Err(e)),
    };
    if !out.is_empty() {
        put_flags(&mut out, frame);
    }
    match decoded {
        Ok((version, xid, message)) => {
            let mut printer = Printer { out, version, xid, how };
            printer.message(&message);
            out = printer.out;
            if how.verbosity >= 5 {
                end_line(&mut out);
                out += &hex_dump(frame, true);
            }
        }
        Err(e) => {
            let space = match () {
                () if out.is_empty() => "",
                () if out.ends_with(']') => "\n",
                () => " ",
            };
            put!(out, "{space}***decode error: {}***\n", e.kind);
            out += &hex_dump(frame, true);
        }
    }
    end_line(&mut out);
    out
}

fn untitled(error: ErrorKind) -> bool {
    matches!(
        error,
        ErrorKind::BrcBadLen
            | ErrorKind::BrcBadType
            | ErrorKind::BrcBadStat
            | ErrorKind::BrcBadVersion
            | ErrorKind::BrcBadExperimenter
            | ErrorKind::BrcBadExpType
    )
}

fn end_line(out: &mut String) {
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

/// Flags of statistics: whether more parts follow.
fn put_flags(out: &mut String, frame: &[u8]) {
    let Some((flags, request)) = statistics_flags(frame).filter(|(flags, _)| *flags != 0) else { return };
    out.push_str(" flags=");
    // OpenFlow 1.0 to 1.2 have the flag in replies only.
    let known = !request || frame[0] >= Version::V13.0;
    let more = u16::from(known);
    if flags & more != 0 {
        out.push_str("[more]");
    }
    if flags & !more != 0 {
        put!(out, "[***unknown flags 0x{:04x}***]", flags & !more);
    }
}

impl Printer<'_> {
    fn message(&mut self, message: &Message) {
        match message {
            Message::Hello(m) => self.hello(m),
            Message::Error(m) => self.error(m),
            Message::EchoRequest(m) | Message::EchoReply(m) => self.echo(m),
            Message::FeaturesReply(m) => self.switch_features(m),
            Message::GetConfigReply(m) | Message::SetConfig(m) => self.switch_config(m),
            Message::PacketIn(m) | Message::Resume(m) => self.packet_in(m),
            Message::PacketOut(m) => self.packet_out(m),
            Message::FlowMod(m) => self.flow_mod(m),
            Message::FlowRemoved(m) => self.flow_removed(m),
            Message::PortMod(m) => self.port_mod(m),
            Message::PortStatus(m) => self.port_status(m),
            Message::TableMod(m) => self.table_mod(m),
            Message::GroupMod(m) => self.group_mod(m),
            Message::MeterMod(m) => self.meter_mod(m),
            Message::QueueGetConfigRequest(m) => self.queue_config_request(*m),
            Message::QueueGetConfigReply(m) => self.queue_config(m),
            Message::RoleRequest(m) | Message::RoleReply(m) => self.role(m),
            Message::GetAsyncReply(m) | Message::SetAsync(m) => self.async_config(m),
            Message::RoleStatus(m) => self.role_status(m),
            Message::TableStatus(m) => self.table_status(m),
            Message::RequestForward(m) => self.request_forward(m),
            Message::BundleControl(m) => self.bundle_control(m),
            Message::BundleAdd(m) => self.bundle_add(m),
            Message::SetFlowFormat(m) => self.flow_format(*m),
            Message::FlowModTableId(on) => self.out += if *on { " enable" } else { " disable" },
            Message::SetPacketInFormat(m) => self.packet_in_format(*m),
            Message::SetControllerId(id) => put!(self.out, " id={id}"),
            Message::CtFlushZone(zone) => put!(self.out, " zone_id={zone}"),
            Message::CtFlush(m) => self.ct_flush(m),
            Message::TlvTableMod(m) => self.tlv_table_mod(m),
            Message::TlvTableReply(m) => self.tlv_table(m),
            Message::FlowMonitorCancel(id) => put!(self.out, " id={id}"),
            Message::DescReply(m) => self.description(m),
            Message::FlowStatsRequest(m) | Message::AggregateRequest(m) => self.flow_stats_request(m),
            Message::FlowStatsReply(m) => self.flow_stats(m),
            Message::AggregateReply(m) => self.aggregate(m),
            Message::TableStatsReply(m) => self.table_stats(m),
            Message::PortStatsRequest(m) => self.port_stats_request(*m),
            Message::PortStatsReply(m) => self.port_stats(m),
            Message::QueueStatsRequest(m) => self.queue_stats_request(m),
            Message::QueueStatsReply(m) => self.queue_stats(m),
            Message::GroupStatsRequest(m) => self.group_request(m.group),
            Message::GroupStatsReply(m) => self.group_stats(m),
            Message::GroupDescRequest(m) => self.group_request(m.group),
            Message::GroupDescReply(m) => self.group_desc(m),
            Message::GroupFeaturesReply(m) => self.group_features(m),
            Message::MeterStatsRequest(id) | Message::MeterConfigRequest(id) => self.meter_request(*id),
            Message::MeterStatsReply(m) => self.meter_stats(m),
            Message::MeterConfigReply(m) => self.meter_configs(m),
            Message::MeterFeaturesReply(m) => self.meter_features(m),
            Message::TableFeaturesRequest(m) | Message::TableFeaturesReply(m) => self.table_features(m),
            Message::PortDescRequest(m) => self.port_desc_request(*m),
            Message::PortDescReply(m) => self.port_descs(m),
            Message::TableDescReply(m) => self.table_descs(m),
            Message::QueueDescRequest(m) => self.queue_desc_request(m),
            Message::QueueDescReply(m) => self.queue_descs(m),
            Message::FlowMonitorRequest(m) => self.monitor_requests(m),
            Message::FlowMonitorReply(m) => self.flow_updates(m),
            Message::IpfixBridgeReply(m) => self.ipfix_bridge(m),
            Message::IpfixFlowReply(m) => self.ipfix_flows(m),
            Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::BarrierRequest
            | Message::BarrierReply
            | Message::GetAsyncRequest
            | Message::FlowAge
            | Message::TlvTableRequest
            | Message::FlowMonitorPaused
            | Message::FlowMonitorResumed
            | Message::DescRequest
            | Message::TableStatsRequest
            | Message::GroupFeaturesRequest
            | Message::MeterFeaturesRequest
            | Message::TableDescRequest
            | Message::IpfixBridgeRequest
            | Message::IpfixFlowRequest => {}
        }
    }

    /// A port by name or number.
    fn port(&self, port: flow::OfPort) -> String {
        flow::text::format_port(port, self.how.names)
    }
}

/// Names of the bits of a value, lowest first; bits without a name in hexadecimal; `0` without any.
fn bit_names(bits: u32, names: &[(u32, &str)], separator: &str) -> String {
    let mut order: Vec<&(u32, &str)> = names.iter().collect();
    order.sort_by_key(|(bit, _)| *bit);
    let mut parts: Vec<String> =
        order.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name.to_string()).collect();
    let unknown = names.iter().fold(bits, |rest, (bit, _)| rest & !bit);
    if unknown != 0 {
        parts.push(format!("{unknown:#x}"));
    }
    if parts.is_empty() { "0".to_string() } else { parts.join(separator) }
}

/// Seconds with three decimals if these are enough, else with as many as are not zero.
fn duration(s: u32, ns: u32) -> String {
    match ns {
        0 => format!("{s}s"),
        _ if ns.is_multiple_of(1_000_000) => format!("{s}.{:03}s", ns / 1_000_000),
        _ => format!("{}s", format!("{s}.{ns:09}").trim_end_matches('0')),
    }
}

#[cfg(test)]
mod tests;
