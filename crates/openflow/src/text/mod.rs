//! Messages as text, in the syntax of ovs-ofctl(8): group and meter modifications, groups, selections of connections,
//! and whole messages.

mod ct_flush;
mod describe;
mod flow_mod;
mod group;
mod matches;
mod meter;
mod name;
mod print;

pub use ct_flush::parse_ct_flush;
pub use describe::describe;
pub use flow_mod::flow_mod_of;
pub use group::{format_group, parse_group_mod};
pub use matches::{
    ExtensibleMatch, extensible_match, fixed_match, fixed_round_trip, format_match_bytes,
    read_extensible_match,
};
pub use meter::{format_meter, parse_meter_mod};
pub use name::{more_follows, name as message_name};
pub use print::{Printing, format_message, format_rule, format_table_features, hex_dump, packet_text};

/// Reads a list of actions in a version.
///
/// # Errors
/// The error that a switch would report.
pub fn read_action_bytes(
    bytes: &[u8],
    version: crate::Version,
) -> Result<Vec<ofp_actions::Action>, crate::ErrorKind> {
    ofp_actions::read_actions(&mut ofp_wire::Reader::new(bytes, version))
}

/// Reads a list of instructions in a version.
///
/// # Errors
/// The error that a switch would report.
pub fn read_instruction_bytes(
    bytes: &[u8],
    version: crate::Version,
) -> Result<Vec<ofp_actions::Action>, crate::ErrorKind> {
    ofp_actions::read_instructions(&mut ofp_wire::Reader::new(bytes, version))
}

/// Takes the first message off the front of received bytes, once all of it is there. A length below that of a header
/// takes all bytes, because the next message has no place then.
pub fn split_frame(bytes: &mut Vec<u8>) -> Option<Vec<u8>> {
    let len = usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    if bytes.len() < crate::HEADER_BYTES {
        return None;
    }
    if len < crate::HEADER_BYTES {
        return Some(std::mem::take(bytes));
    }
    (bytes.len() >= len).then(|| bytes.drain(..len).collect())
}

#[cfg(test)]
mod tests;
