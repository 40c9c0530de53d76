//! Building blocks of OpenFlow messages: bounded reading and writing, versions, errors, field headers and
//! matches, properties.
//!
//! - [`Reader`], [`Writer`]: big-endian wire formats within bounds.
//! - [`Version`], [`VersionSet`]: versions of the protocol.
//! - [`ErrorKind`], [`OfError`]: errors by their standard names, and their numbers in each version.
//! - [`nxm`]: extensible matches (NXM, OXM) and the headers of fields in actions.
//! - [`mod@prop`] reads and writes properties.
//!
//! The codecs of actions (`ofp-actions`) and of messages (`openflow`) build on these. Messages and actions
//! are unknown here.
#![forbid(unsafe_code)]
// Tests match on one variant.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod error;
pub mod nxm;
pub mod prop;
mod version;
mod wire;

pub use error::{ErrorBody, ErrorCode, ErrorKind, NX_VENDOR, ONF_VENDOR, OfError, WireError};
pub use version::{Version, VersionSet};
pub use wire::{MAX_MESSAGE_BYTES, Options, Reader, Res, Writer};
