//! Packets for and from controllers, and their contents.

use super::{Printer, Printing, hex_dump, put};
use crate::msg::continuation::Continuation;
use crate::msg::packet::{PacketIn, PacketOut};
use crate::{NO_BUFFER, Version};
use flow::fields::FieldId;
use flow::text::{format_match_with, format_packet};
use ofp_actions::text::format_actions;
use std::fmt::Write as _;

/// The fields of a packet, and the checksum of its transport header.
pub fn packet_text(packet: &[u8], packet_type: u32, how: Printing<'_>) -> String {
    format_packet(packet, packet_type, how.names) + "\n"
}

/// Bytes separated by dots.
fn dotted(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(".")
}

impl Printer<'_> {
    /// A packet-in, or one to continue.
    pub(super) fn packet_in(&mut self, m: &PacketIn) {
        if m.table.0 != 0 {
            put!(self.out, " table_id={}", m.table.0);
        }
        if m.cookie != u64::MAX {
            put!(self.out, " cookie={}", flow::text::number::hex(m.cookie.into()));
        }
        put!(self.out, " total_len={} ", m.total_len_bytes);
        self.out += &format_match_with(&m.metadata, None, self.how.names);
        put!(self.out, " (via {})", m.reason.name());
        put!(self.out, " data_len={}", m.data.len());
        let total = m.total_len_bytes as usize;
        if m.buffer_id == NO_BUFFER {
            self.out.push_str(" (unbuffered)");
            if total != m.data.len() {
                self.out.push_str(" (***total_len != data_len***)");
            }
        } else {
            put!(self.out, " buffer=0x{:08x}", m.buffer_id);
            if total < m.data.len() {
                self.out.push_str(" (***total_len < data_len***)");
            }
        }
        self.out.push('\n');
        if !m.userdata.is_empty() {
            put!(self.out, " userdata={}\n", dotted(&m.userdata));
        }
        self.continuation(&m.continuation);
        let packet_type = m.metadata.get(FieldId::PacketType);
        let packet_type = if packet_type.1 == 0 { 0 } else { packet_type.0 as u32 };
        if self.how.verbosity > 0 {
            self.out += &packet_text(&m.data, packet_type, self.how);
        }
        if self.how.verbosity > 2 {
            self.out += &hex_dump(&m.data, false);
        }
    }

    /// The state of a paused translation.
    fn continuation(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let Ok(c) = Continuation::decode(bytes, self.version, self.how.options) else { return };
        let b = c.bridge.map(|byte| format!("{byte:02x}")).concat();
        put!(
            self.out,
            " continuation.bridge={}-{}-{}-{}-{}\n",
            &b[..8],
            &b[8..12],
            &b[12..16],
            &b[16..20],
            &b[20..]
        );
        if !c.stack.is_empty() {
            self.out.push_str(" continuation.stack=");
            let values: Vec<String> = c.stack.iter().map(|value| value_text(value)).collect();
            put!(self.out, "{}\n", values.join(" "));
        }
        if c.mirrors != 0 {
            put!(self.out, " continuation.mirrors={:#x}\n", c.mirrors);
        }
        if c.conntracked {
            self.out.push_str(" continuation.conntracked=true\n");
        }
        let mut actions = String::new();
        let mut last = None;
        for step in &c.steps {
            if last != Some((step.table, step.cookie)) {
                if !actions.is_empty() {
                    actions.push(',');
                }
                last = Some((step.table, step.cookie));
            }
            if !step.actions.is_empty() {
                put!(actions, "{}", format_actions(&step.actions, self.how.names));
            }
        }
        if !actions.is_empty() {
            put!(self.out, " continuation.actions={actions}\n");
        }
        if !c.action_set.is_empty() {
            put!(self.out, " continuation.action_set={}\n", format_actions(&c.action_set, self.how.names));
        }
        if c.odp_port != 0 && c.odp_port != u32::MAX {
            put!(self.out, " continuation.odp_port={}\n", c.odp_port);
        }
    }

    pub(super) fn packet_out(&mut self, m: &PacketOut) {
        self.out.push(' ');
        if self.version >= Version::V15 {
            let mut metadata = m.metadata.clone();
            metadata.set(FieldId::InPortOxm, m.in_port.0.into());
            self.out += &format_match_with(&metadata, None, self.how.names);
        } else {
            put!(self.out, "in_port={}", self.port(m.in_port));
        }
        put!(self.out, " actions={}", format_actions(&m.actions, self.how.names));
        if m.buffer_id != NO_BUFFER {
            put!(self.out, " buffer=0x{:08x}", m.buffer_id);
            return;
        }
        put!(self.out, " data_len={}", m.data.len());
        if self.how.verbosity > 0 && !m.data.is_empty() {
            self.out.push('\n');
            self.out += &packet_text(&m.data, 0, self.how);
        }
        if self.how.verbosity > 2 {
            self.out += &hex_dump(&m.data, false);
        }
    }
}

/// A value of the stack, in hexadecimal without leading zeros.
fn value_text(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match digits.trim_start_matches('0') {
        "" => "0".to_string(),
        rest => format!("0x{rest}"),
    }
}
