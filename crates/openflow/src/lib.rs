//! OpenFlow as bytes and as a conversation, without I/O: versions 1.0 and 1.3 with the Nicira and ONF extensions.
//!
//! - [`decode`] and [`encode`]: a whole message from and to bytes. [`Message`] is the same for all versions.
//! - [`ErrorKind`], [`OfError`]: what is wrong with a message, by the standard's name, and its numbers in each version.
//! - [`check_actions`]: whether a rule's actions fit its match and the switch.
//! - [`session`]: one connection: framing, negotiation, keepalive, bounded output.
//! - [`reconnect`]: when a client connects again.
//! - [`fuzz`]: entry points that take any bytes.
//!
//! The same code serves a switch and a controller: requests and replies both decode and encode. Nothing here reads a clock or
//! a socket, keeps rules, or knows what a message does.
#![forbid(unsafe_code)]

mod actions;
pub mod budget;
mod codec;
mod error;
pub mod fuzz;
mod match10;
pub mod msg;
mod nxm;
pub mod reconnect;
pub mod session;
mod version;
mod wire;

pub use actions::{CheckContext, check_actions};
pub use codec::{HEADER_BYTES, decode, decode_with, encode, encode_with};
pub use error::{ErrorBody, ErrorCode, ErrorKind, NX_VENDOR, ONF_VENDOR, OfError, WireError};
pub use match10::fits as match_fits_10;
pub use msg::{Format, GROUP_ANY, Kind, Message, Multi, NO_BUFFER};
pub use nxm::has_header;
pub use version::{Version, VersionSet};
pub use wire::{MAX_MESSAGE_BYTES, Options};

#[cfg(test)]
mod tests;
