//! What OpenFlow messages are made of: bounded reading and writing, versions, errors, field headers and matches, properties.
//!
//! - [`Reader`], [`Writer`]: big-endian wire formats within bounds.
//! - [`Version`], [`VersionSet`]: versions of the protocol.
//! - [`ErrorKind`], [`OfError`]: what is wrong with a message, by the standard's name, and its numbers in each version.
//! - [`nxm`]: extensible matches (NXM, OXM) and the headers of fields in actions.
//! - [`mod@prop`] reads and writes properties.
//!
//! The codecs of actions (`ofp-actions`) and of messages (`openflow`) are written in these terms. Nothing here knows a message or
//! an action.
#![forbid(unsafe_code)]
// Tests match on what they are about.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod error;
pub mod nxm;
pub mod prop;
mod version;
mod wire;

pub use error::{ErrorBody, ErrorCode, ErrorKind, NX_VENDOR, ONF_VENDOR, OfError, WireError};
pub use version::{Version, VersionSet};
pub use wire::{MAX_MESSAGE_BYTES, Options, Reader, Res, Writer};
