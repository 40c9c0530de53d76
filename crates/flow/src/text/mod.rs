//! The text syntax of matches, flows, actions and flow modifications, as `ovs-ofctl` reads and `dump-flows` and
//! `ofproto/trace` print it.
//!
//! Names, widths, formats and prerequisites of fields come from the registry ([`crate::fields`]); the printable NXM and
//! OXM names from [`subfield_name`]. Printing never fails. Parsing never panics and its memory is bounded by its input;
//! an error says what was wrong and at which byte ([`ParseError`]).
//!
//! Invariants: `parse_match(format_match(m)) == m` for every match whose prerequisites hold, likewise for actions.
//!
//! Deliberately stricter than `ovs-ofctl` where that one silently changes what was asked: values that do not fit a
//! field's bits, empty values, unclosed parentheses, IPv4 octets above 255 and matches whose prerequisites are missing
//! are refused ([`parse_match_unchecked`] with [`normalize`] gives the lenient behaviour). The text of datapath keys and
//! actions is not here.

mod actions_parse;
mod actions_print;
mod address;
mod check;
mod flags;
mod flow_mod;
pub mod fuzz;
mod learn;
mod match_parse;
mod match_print;
mod names;
mod normalize;
mod number;
mod port;
mod set_actions;
mod subfield;
mod token;
mod values;

#[cfg(test)]
mod tests;

pub use actions_parse::parse_actions;
pub use actions_print::{format_action, format_actions};
pub use check::check_actions;
pub use flow_mod::{FileError, FlowModCommand, FlowModFlags, FlowModText, parse_flow_file, parse_flow_mod};
pub use match_parse::{parse_exact_flow, parse_match, parse_match_unchecked};
pub use match_print::{
    format_flow, format_flow_with, format_match, format_match_with, format_megaflow, format_megaflow_with,
};
pub use names::{field_by_subfield_name, subfield_name};
pub use normalize::normalize;
pub use port::{NoPortNames, PortNames, format_port, parse_port};
pub use subfield::{format_subfield, parse_subfield};
pub use values::{format_value, parse_value};

/// Why a text was refused, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message} (at byte {offset})")]
pub struct ParseError {
    /// What was wrong, in `ovs-ofctl`'s words where it has some.
    pub message: String,
    /// Byte of the text where the part that was wrong begins.
    pub offset: usize,
}

/// A failure inside the parsers: the part of the text that was wrong is remembered by its address and turned into an
/// offset by whoever holds the whole text.
#[derive(Debug)]
pub(crate) struct Fail {
    address: usize,
    message: String,
}

pub(crate) type Parsed<T> = Result<T, Fail>;

/// A failure at the beginning of `part`, which must be a slice of the text being parsed.
pub(crate) fn fail<T>(part: &str, message: impl Into<String>) -> Parsed<T> {
    Err(Fail { address: part.as_ptr() as usize, message: message.into() })
}

impl Fail {
    pub(crate) fn locate(self, text: &str) -> ParseError {
        let offset = self.address.saturating_sub(text.as_ptr() as usize).min(text.len());
        ParseError { message: self.message, offset }
    }
}
