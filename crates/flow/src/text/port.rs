//! OpenFlow port numbers, reserved names and the port names of a switch.

use super::{Parsed, fail};
use crate::{OfPort, TableId, TlvTable};

/// Context of text: names and numbers of ports, mappings of tunnel metadata.
pub trait PortNames {
    /// Name to print for a port, if any.
    fn name(&self, port: OfPort) -> Option<&str>;
    /// Port of that name.
    fn number(&self, name: &str) -> Option<OfPort>;
    /// Name to print for a table, if any.
    fn table_name(&self, _table: TableId) -> Option<&str> {
        None
    }
    /// Table of that name.
    fn table_number(&self, _name: &str) -> Option<TableId> {
        None
    }
    /// The mappings of tunnel metadata.
    fn tlv(&self) -> &TlvTable {
        static EMPTY: TlvTable = TlvTable::EMPTY;
        &EMPTY
    }
}

/// The mappings of a bridge, whose ports have no names.
impl PortNames for TlvTable {
    fn name(&self, _port: OfPort) -> Option<&str> {
        None
    }

    fn number(&self, _name: &str) -> Option<OfPort> {
        None
    }

    fn tlv(&self) -> &TlvTable {
        self
    }
}

/// No port has a name.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPortNames;

impl PortNames for NoPortNames {
    fn name(&self, _port: OfPort) -> Option<&str> {
        None
    }

    fn number(&self, _name: &str) -> Option<OfPort> {
        None
    }
}

const RESERVED: [(&str, OfPort); 10] = [
    ("UNSET", OfPort::UNSET),
    ("IN_PORT", OfPort::IN_PORT),
    ("TABLE", OfPort::TABLE),
    ("NORMAL", OfPort::NORMAL),
    ("FLOOD", OfPort::FLOOD),
    ("ALL", OfPort::ALL),
    ("CONTROLLER", OfPort::CONTROLLER),
    ("LOCAL", OfPort::LOCAL),
    ("ANY", OfPort::NONE),
    ("NONE", OfPort::NONE),
];

/// Largest number below the reserved ones in 16 bits.
const MAX_ORDINARY: u32 = OfPort::MAX_OF10 as u32 - 1;

/// A port by number, reserved name (any case) or the switch's name, optionally quoted. Numbers are decimal;
/// the 16-bit forms of reserved ports are widened.
pub fn parse_port(text: &str, ports: &dyn PortNames) -> Option<OfPort> {
    if let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        return ports.number(&unescape(inner));
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let n = text.parse::<u32>().ok()?;
        return match n {
            0..=MAX_ORDINARY => Some(OfPort(n)),
            _ if n <= u32::from(u16::MAX) => Some(OfPort::from_of10(n as u16)),
            _ if n >= OfPort::MAX.0 => Some(OfPort(n)),
            _ => None,
        };
    }
    if let Some((_, port)) = RESERVED.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
        return Some(*port);
    }
    ports.number(text)
}

/// [`parse_port`] for the value of a field.
pub(crate) fn parse_field_port(text: &str, field: &str, ports: &dyn PortNames) -> Parsed<OfPort> {
    match parse_port(text, ports) {
        Some(port) => Ok(port),
        None => fail(text, format!("{text}: invalid or unknown port for {field}")),
    }
}

/// A table by decimal number, or by the switch's name, optionally quoted.
pub fn parse_table(text: &str, names: &dyn PortNames) -> Option<TableId> {
    if let Some(inner) = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
        return names.table_number(&unescape(inner));
    }
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok().map(TableId) } else { names.table_number(text) }
}

/// A table by name, quoted if necessary, or by number.
pub fn format_table(table: TableId, names: &dyn PortNames) -> String {
    names.table_name(table).map_or_else(|| table.0.to_string(), quoted)
}

/// A name, in quotes if necessary.
fn quoted(name: &str) -> String {
    if is_plain(name) {
        return name.into();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A port by name, quoted if necessary, or by number.
pub fn format_port(port: OfPort, ports: &dyn PortNames) -> String {
    if let Some((name, _)) = RESERVED.iter().find(|(_, p)| *p == port) {
        return (*name).into();
    }
    match ports.name(port) {
        Some(name) => quoted(name),
        None => match port.to_of10() {
            Some(n) => n.to_string(),
            None => port.0.to_string(),
        },
    }
}

/// Whether the name is unambiguous without quotes.
fn is_plain(name: &str) -> bool {
    let first_ok = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    let rest_ok = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    first_ok && rest_ok && !RESERVED.iter().any(|(r, _)| r.eq_ignore_ascii_case(name))
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            escaped = false;
            out.push(c);
        }
    }
    out
}
