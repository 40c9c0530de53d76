//! The text of datapath flows, in the form of `dpctl/dump-flows`, `dpctl/add-flow` and `ofproto/trace`: printing and
//! parsing of keys with masks, actions, whole flows. Also that of tracked connections, in the form of
//! `dpctl/dump-conntrack` and `dpctl/flush-conntrack`.
//!
//! Printing equals OVS 3.5 exactly. `brief` text omits unmatched fields; `verbose` text shows every field with its
//! mask. Parsing accepts both; fields absent from a text are unmatched, except input port, recirculation id,
//! EtherType and the absence of VLAN tags, which a megaflow always matches. Parsing never panics and bounds nesting.

mod conntrack;
pub(crate) mod key;
pub(crate) mod key_parse;
pub(crate) mod options;
pub(crate) mod sets;
pub(crate) mod token;
pub(crate) mod values;
pub(crate) mod write;

pub use crate::actions::{format_actions, parse_actions};
pub use conntrack::{
    ConnectionFormat, format_flush, format_protocol, tcp_state_name, write_connection, write_expectation,
};
pub use key::{format_key, format_key_mask};
pub use key_parse::parse_key_mask;

use crate::offload::Offloaded;
use crate::ops::{FlowRecord, FlowStats};
use flow::DpPort;
use std::fmt::Write;

/// Error for an invalid flow or list of actions: the fault and its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TextError(pub(crate) String);

/// Names of datapath ports.
pub trait PortNames {
    /// The name to print for a port, if names are enabled and it has one.
    fn name(&self, port: DpPort) -> Option<String>;
    /// The port of that name.
    fn number(&self, name: &str) -> Option<DpPort>;
}

/// Ports as numbers only.
pub struct NumbersOnly;

impl PortNames for NumbersOnly {
    fn name(&self, _: DpPort) -> Option<String> {
        None
    }

    fn number(&self, _: &str) -> Option<DpPort> {
        None
    }
}

/// Format of a flow.
pub struct FlowFormat<'a> {
    /// With ufid, all fields and the executing layer, as `dpctl/dump-flows -m`.
    pub verbose: bool,
    /// Include the packet type: keys of the datapath have one.
    pub packet_types: bool,
    /// Names to print.
    pub names: &'a dyn PortNames,
    /// The text after `dp-extra-info:` in verbose text.
    pub extra_info: Option<&'a str>,
}

impl<'a> FlowFormat<'a> {
    /// Brief text.
    pub fn brief(names: &'a dyn PortNames) -> FlowFormat<'a> {
        FlowFormat { verbose: false, packet_types: true, names, extra_info: None }
    }
}

/// One line of a flow dump, without a line end. `now_ms` is on the clock of the flow's statistics.
pub fn format_flow(flow: &FlowRecord, now_ms: u64, format: &FlowFormat<'_>) -> String {
    let mut out = String::new();
    if format.verbose {
        let _ = write!(out, "ufid:{}, ", flow.ufid);
    }
    out += &format_key_mask(&flow.key, &flow.mask, format);
    let _ = write!(out, ", {}", format_stats(&flow.stats, now_ms));
    if format.verbose {
        out += match flow.offloaded {
            Offloaded::No => "",
            Offloaded::Partial => ", offloaded:partial",
            Offloaded::Full(_) => ", offloaded:yes",
        };
        let _ = write!(out, ", dp:{}", flow.offloaded.layer());
    }
    let _ = write!(out, ", actions:{}", format_actions(&flow.actions, format.names));
    if let (true, Some(info)) = (format.verbose, format.extra_info) {
        let _ = write!(out, ", dp-extra-info:{info}");
    }
    out
}

/// The counters of a flow: `packets:…, bytes:…, used:…`, and the TCP flags if there were any.
pub fn format_stats(stats: &FlowStats, now_ms: u64) -> String {
    let mut out = format!("packets:{}, bytes:{}, used:", stats.packets, stats.bytes);
    if stats.used_ms == 0 {
        out += "never";
    } else {
        let ago_ms = now_ms.saturating_sub(stats.used_ms);
        let _ = write!(out, "{}.{:03}s", ago_ms / 1000, ago_ms % 1000);
    }
    if stats.tcp_flags != 0 {
        let _ = write!(out, ", flags:{}", tcp_flag_letters(stats.tcp_flags));
    }
    out
}

/// TCP flags as letters: `S`, `SF.`, `[200]` for those without a name.
pub fn tcp_flag_letters(flags: u16) -> String {
    const LETTERS: [(u16, &str); 12] = [
        (0x002, "S"),
        (0x001, "F"),
        (0x008, "P"),
        (0x004, "R"),
        (0x020, "U"),
        (0x010, "."),
        (0x040, "E"),
        (0x080, "C"),
        (0x100, "N"),
        (0x200, "[200]"),
        (0x400, "[400]"),
        (0x800, "[800]"),
    ];
    LETTERS.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| *letter).collect()
}

/// Runs any bytes through the parsers, and accepted ones through printing and parsing again: for fuzzing.
pub fn fuzz_text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok((key, mask)) = parse_key_mask(text, &NumbersOnly) {
        let again = format_key_mask(&key, &mask, &FlowFormat::brief(&NumbersOnly));
        let parsed = parse_key_mask(&again, &NumbersOnly);
        assert!(parsed.is_ok(), "{text:?} was printed as {again:?}: {parsed:?}");
    }
    if let Ok(actions) = parse_actions(text, &NumbersOnly) {
        let again = format_actions(&actions, &NumbersOnly);
        let parsed = parse_actions(&again, &NumbersOnly);
        assert!(parsed.is_ok(), "{text:?} was printed as {again:?}: {parsed:?}");
    }
}

#[cfg(test)]
mod tests;
