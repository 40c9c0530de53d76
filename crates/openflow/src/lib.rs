//! OpenFlow codec and sessions, without I/O: versions 1.0 to 1.5 with the Nicira and ONF extensions.
//!
//! - [`decode`] and [`encode`]: a whole message from and to bytes. [`Message`] is the same for all versions.
//! - [`ErrorKind`], [`OfError`]: errors by their standard names, and their numbers in each version.
//! - [`session`]: one connection: framing, negotiation, keepalive, bounded output.
//! - [`reconnect`]: reconnection of a client.
//! - [`text`]: messages as text, and groups and meters from it.
//! - [`pcap`]: captures and the streams in them.
//! - [`fuzz`]: fuzz targets.
//!
//! The same code serves switch and controller: requests and replies both decode and encode. Nothing here
//! reads a clock or a socket, keeps rules, or interprets messages.
#![forbid(unsafe_code)]
// Tests match on one variant.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod budget;
mod codec;
pub mod fuzz;
mod match10;
mod match11;
pub mod message_log;
pub mod msg;
pub mod pcap;
pub mod reconnect;
pub mod session;
pub mod text;

pub use codec::{HEADER_BYTES, decode, decode_with, encode, encode_with};
pub use match10::fits as match_fits_10;
pub use msg::{Format, GROUP_ANY, Kind, Message, Multi, NO_BUFFER};
pub use ofp_wire::{
    ErrorBody, ErrorCode, ErrorKind, MAX_MESSAGE_BYTES, NX_VENDOR, ONF_VENDOR, OfError, Options, Version,
    VersionSet, WireError,
};

#[cfg(test)]
mod tests;
