//! Text syntax of matches and flows, as in `ovs-ofctl`, `dump-flows` and `ofproto/trace`, and the parts
//! shared with the syntax of actions (`ofp-actions`).
//!
//! Names, widths, formats and prerequisites of fields come from the registry ([`crate::fields`]); the
//! printable NXM and OXM names from [`subfield_name`]. Printing never fails. Parsing never panics and its
//! memory is bounded by its input; an error has a message and a byte offset ([`ParseError`]).
//!
//! Invariants: `parse_match(format_match(m)) == m` for every match whose prerequisites hold.
//!
//! Deliberately stricter than `ovs-ofctl` where it silently changes the input: rejects values that do not fit
//! a field's bits, empty values, unclosed parentheses, IPv4 octets above 255 and matches without their
//! prerequisites ([`parse_match_unchecked`] with [`normalize`] is lenient). Not here: the text of actions and
//! of datapath keys.

mod address;
mod flags;
pub mod fuzz;
mod match_parse;
mod match_print;
mod names;
mod normalize;
pub mod number;
mod packet_print;
mod port;
mod subfield;
pub mod token;
mod values;

#[cfg(test)]
mod tests;

pub use address::{ipv4, ipv6, parse_ipv4, parse_masked_address};
pub use flags::{ct_state_flag, format_ct_state};
pub use match_parse::{
    MatchBuilder, PROTOCOL_NAMES, parse_exact_flow, parse_exact_match, parse_match, parse_match_unchecked,
    unknown_keyword,
};
pub use match_print::{
    format_flow, format_flow_with, format_match, format_match_with, format_megaflow, format_megaflow_with,
};
pub use names::{field_by_name, field_by_subfield_name, header_names, subfield_name};
pub use normalize::{needs, normalize};
pub use packet_print::format_packet;
pub use port::{NoPortNames, PortNames, format_port, format_table, parse_port, parse_table};
pub use subfield::{format_subfield, parse_subfield, sub_field};
pub use values::{format_metadata, format_value, masked_value, metadata_value, parse_value};

/// Reason and place of a syntax error.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ParseError {
    /// The error, in `ovs-ofctl`'s words where it has some.
    pub message: String,
    /// Offset in bytes of the invalid part.
    pub offset: usize,
}

/// An error inside the parsers: keeps the address of the invalid part, which the holder of the whole text
/// converts to an offset.
#[derive(Debug)]
pub struct Fail {
    address: usize,
    message: String,
}

/// Result inside the parsers.
pub type Parsed<T> = Result<T, Fail>;

/// A failure at the beginning of `part`, which must be a slice of the text being parsed.
///
/// # Errors
/// Always.
pub fn fail<T>(part: &str, message: impl Into<String>) -> Parsed<T> {
    Err(Fail { address: part.as_ptr() as usize, message: message.into() })
}

impl Fail {
    /// The message.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error, with its offset in `text`, the whole text being parsed.
    pub fn locate(self, text: &str) -> ParseError {
        let offset = self.address.saturating_sub(text.as_ptr() as usize).min(text.len());
        ParseError { message: self.message, offset }
    }
}
