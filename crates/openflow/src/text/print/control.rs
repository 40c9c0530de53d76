//! Messages about the connection and the switch: hello, errors, configuration, roles, tunnel options, bundles.

use super::{Printer, end_line, format_message, hex_dump, put};
use crate::msg::asyncs::AsyncConfig;
use crate::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use crate::msg::control::{
    ControllerRole, Hello, Role, RoleReason, RoleStatus, SwitchConfig, TlvMap, TlvTable, TlvTableCommand,
    TlvTableMod,
};
use crate::msg::ct_flush::{CtFlush, CtFlushTuple};
use crate::msg::forward::RequestForward;
use crate::msg::stats::SwitchDesc;
use crate::{ErrorBody, ErrorCode, ErrorKind, HEADER_BYTES, Message, Version, encode_with};
use flow::text::number::hex;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

/// Names of the reasons of asynchronous messages, by kind.
const REASONS: [(&str, &[(u32, &str)]); 6] = [
    (
        "PACKET_IN",
        &[
            (0, "no_match"),
            (1, "action"),
            (2, "invalid_ttl"),
            (3, "action_set"),
            (4, "group"),
            (5, "packet_out"),
        ],
    ),
    ("PORT_STATUS", &[(0, "add"), (1, "delete"), (2, "modify")]),
    (
        "FLOW_REMOVED",
        &[(0, "idle"), (1, "hard"), (2, "delete"), (3, "group_delete"), (4, "meter_delete"), (5, "eviction")],
    ),
    (
        "ROLE_STATUS",
        &[(0, "primary_request"), (1, "configuration_changed"), (2, "experimenter_data_changed")],
    ),
    ("TABLE_STATUS", &[(3, "vacancy_down"), (4, "vacancy_up")]),
    ("REQUESTFORWARD", &[(0, "group_mod_request"), (1, "meter_mod_request")]),
];
const TLV_TITLE: &str =
    " mapping table:\n  class  type  length  match field\n ------  ----  ------  --------------\n";

fn role_name(role: ControllerRole) -> &'static str {
    match role {
        ControllerRole::NoChange => "nochange",
        ControllerRole::Equal => "equal",
        ControllerRole::Master => "primary",
        ControllerRole::Slave => "secondary",
    }
}

/// Bytes as text, others in octal.
fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let mut out = String::new();
    for byte in &bytes[..end] {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b'"' => out.push_str("\\\""),
            0x20..=0x7e => out.push(char::from(*byte)),
            _ => put!(out, "\\{byte:03o}"),
        }
    }
    out
}

fn tlv_row(out: &mut String, map: &TlvMap) {
    let (class, ty) = (hex(map.class.into()), hex(map.ty.into()));
    put!(out, " {class:>6}  {ty:>4}  {:>6}  tun_metadata{}\n", map.len_bytes, map.index);
}

/// Fields of one direction of a connection.
fn tuple(t: &CtFlushTuple, ipv4: bool, proto: u8) -> String {
    let name = if ipv4 { "nw" } else { "ipv6" };
    let address = |address: Option<Ipv6Addr>| {
        let address = address.unwrap_or(Ipv6Addr::UNSPECIFIED);
        address.to_ipv4_mapped().filter(|_| ipv4).map_or(address.to_string(), |v4| v4.to_string())
    };
    let mut out = format!("ct_{name}_src={},ct_{name}_dst={},", address(t.src), address(t.dst));
    if matches!(proto, 1 | 58) {
        let (ty, code) = (t.icmp_type.unwrap_or(0), t.icmp_code.unwrap_or(0));
        put!(out, "icmp_id={},icmp_type={ty},icmp_code={code}", t.icmp_id.unwrap_or(0));
    } else {
        put!(out, "ct_tp_src={},ct_tp_dst={}", t.src_port.unwrap_or(0), t.dst_port.unwrap_or(0));
    }
    out
}

impl Printer<'_> {
    pub(super) fn hello(&mut self, m: &Hello) {
        let bits: Vec<String> =
            (1..=31u8).filter(|n| m.versions.contains(Version(*n))).map(|n| format!("0x{n:02x}")).collect();
        put!(self.out, "\n version bitmap: {}", bits.join(", "));
    }

    /// The name of the error, and the rejected message, or the text of a failed greeting.
    pub(super) fn error(&mut self, m: &ErrorBody) {
        match m.error {
            ErrorCode::Known(kind) => {
                put!(self.out, " {kind}\n");
                if matches!(kind, ErrorKind::HfcIncompatible | ErrorKind::HfcEperm) {
                    put!(self.out, "{}\n", printable(&m.data));
                    return;
                }
            }
            ErrorCode::Other(_) => {
                put!(self.out, " {}\n", m.error);
            }
        }
        // Errors within errors are not unfolded: their depth has no other bound.
        let nested = m.data.len() < HEADER_BYTES || m.data[1] != 1;
        if nested {
            self.out += &format_message(&m.data, super::Printing { verbosity: 1, ..self.how });
        } else {
            self.out += &hex_dump(&m.data, true);
        }
    }

    pub(super) fn echo(&mut self, payload: &[u8]) {
        put!(self.out, " {} bytes of payload\n", payload.len());
        if self.how.verbosity > 1 {
            self.out += &hex_dump(payload, true);
        }
    }

    pub(super) fn switch_config(&mut self, m: &SwitchConfig) {
        let frags = ["normal", "drop", "reassemble", "nx-match"][usize::from(m.flags & 3)];
        let ttl = if m.flags & 4 != 0 { " invalid_ttl_to_controller" } else { "" };
        put!(self.out, " frags={frags}{ttl} miss_send_len={}\n", m.miss_send_len_bytes);
    }

    pub(super) fn role(&mut self, m: &Role) {
        put!(self.out, " role={}", role_name(m.role));
        let elects = matches!(m.role, ControllerRole::Master | ControllerRole::Slave);
        let has_id = m.format == crate::Format::Standard && m.generation_id != u64::MAX;
        if elects && has_id {
            put!(self.out, " generation_id={}", m.generation_id);
        }
    }

    pub(super) fn role_status(&mut self, m: &RoleStatus) {
        put!(self.out, " role={}", role_name(m.role));
        if m.generation_id != u64::MAX {
            put!(self.out, " generation_id={}", m.generation_id);
        }
        let reason = match m.reason {
            RoleReason::MasterRequest => "primary_request",
            RoleReason::Config => "configuration_changed",
            RoleReason::Experimenter => "experimenter_data_changed",
        };
        put!(self.out, " reason={reason}");
    }

    pub(super) fn async_config(&mut self, m: &AsyncConfig) {
        let mut m = *m;
        let masks = m.masks();
        for (role, title) in ["primary", "secondary"].iter().enumerate() {
            put!(self.out, "\n {title}:\n");
            for ((name, reasons), masks) in REASONS.iter().zip(&masks) {
                put!(self.out, "{name:>16}:");
                let mut any = false;
                for bit in (0..32).filter(|bit| masks[role] >> bit & 1 != 0) {
                    any = true;
                    match reasons.iter().find(|(known, _)| *known == bit) {
                        Some((_, reason)) => put!(self.out, " {reason}"),
                        None => put!(self.out, " {bit}"),
                    }
                }
                self.out += if any { "\n" } else { " (off)\n" };
            }
        }
    }

    pub(super) fn flow_format(&mut self, format: u32) {
        let name = if format == 0 { "openflow10" } else { "nxm" };
        put!(self.out, " format={name}");
    }

    pub(super) fn packet_in_format(&mut self, format: u32) {
        let name = match format {
            0 => "standard",
            1 => "nxt_packet_in",
            _ => "nxt_packet_in2",
        };
        put!(self.out, " format={name}");
    }

    pub(super) fn request_forward(&mut self, m: &RequestForward) {
        let meter = matches!(*m.message, Message::MeterMod(_));
        self.out += if meter { " reason=meter_mod" } else { " reason=group_mod" };
        self.message(&m.message);
    }

    pub(super) fn bundle_control(&mut self, m: &BundleControl) {
        let ty = match m.ty {
            BundleControlType::OpenRequest => "OPEN_REQUEST",
            BundleControlType::OpenReply => "OPEN_REPLY",
            BundleControlType::CloseRequest => "CLOSE_REQUEST",
            BundleControlType::CloseReply => "CLOSE_REPLY",
            BundleControlType::CommitRequest => "COMMIT_REQUEST",
            BundleControlType::CommitReply => "COMMIT_REPLY",
            BundleControlType::DiscardRequest => "DISCARD_REQUEST",
            BundleControlType::DiscardReply => "DISCARD_REPLY",
        };
        put!(self.out, "\n bundle_id={} type={ty} flags={}", hex(m.bundle_id.into()), bundle_flags(m.flags));
    }

    pub(super) fn bundle_add(&mut self, m: &BundleAdd) {
        let (id, flags) = (hex(m.bundle_id.into()), bundle_flags(m.flags));
        put!(self.out, "\n bundle_id={id} flags={flags}\n");
        if let Ok(inner) = encode_with(&m.message, self.version, self.xid, self.how.options) {
            self.out += &format_message(&inner, self.how);
        }
    }

    pub(super) fn ct_flush(&mut self, m: &CtFlush) {
        let is_v4 = |address: Option<Ipv6Addr>| address.is_some_and(|a| a.to_ipv4_mapped().is_some());
        let ipv4 = [m.orig.src, m.orig.dst, m.reply.src, m.reply.dst].into_iter().any(is_v4);
        put!(self.out, " zone={}", m.zone.unwrap_or(0));
        let masked = |value: u128, mask: u128, full: u128| match mask == full {
            true => hex(value),
            false => format!("{}/{mask:#x}", hex(value)),
        };
        if let Some((mark, mask)) = m.mark {
            put!(self.out, " mark={}", masked(mark.into(), mask.into(), u32::MAX.into()));
        }
        if let Some((labels, mask)) = m.labels {
            put!(self.out, " labels={}", masked(labels, mask, u128::MAX));
        }
        put!(
            self.out,
            " '{},ct_nw_proto={}' '{}'",
            tuple(&m.orig, ipv4, m.proto),
            m.proto,
            tuple(&m.reply, ipv4, m.proto)
        );
    }

    pub(super) fn tlv_table_mod(&mut self, m: &TlvTableMod) {
        self.out.push_str("\n ");
        self.out += match m.command {
            TlvTableCommand::Add => "ADD",
            TlvTableCommand::Delete => "DEL",
            TlvTableCommand::Clear => "CLEAR",
        };
        if m.command != TlvTableCommand::Clear {
            self.tlv_rows(&m.maps);
        }
    }

    fn tlv_rows(&mut self, maps: &[TlvMap]) {
        self.out += TLV_TITLE;
        for map in maps {
            tlv_row(&mut self.out, map);
        }
        end_line(&mut self.out);
    }

    pub(super) fn tlv_table(&mut self, m: &TlvTable) {
        let used: u32 = m.maps.iter().map(|map| u32::from(map.len_bytes)).sum();
        put!(
            self.out,
            "\n max option space={} max fields={}\n allocated option space={used}\n\n",
            m.max_option_bytes,
            m.max_fields
        );
        self.tlv_rows(&m.maps);
    }

    pub(super) fn description(&mut self, m: &SwitchDesc) {
        self.out.push('\n');
        for (title, text) in [
            ("Manufacturer", &m.manufacturer),
            ("Hardware", &m.hardware),
            ("Software", &m.software),
            ("Serial Num", &m.serial),
            ("DP Description", &m.datapath),
        ] {
            put!(self.out, "{title}: {text}\n");
        }
    }
}

fn bundle_flags(flags: u16) -> String {
    super::bit_names(flags.into(), &[(1, "atomic"), (2, "ordered")], " ")
}
