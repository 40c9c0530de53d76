//! LLDP (IEEE 802.1AB) with auto-attach, in the extent of Open vSwitch.
//!
//! - [`build`], [`parse`]: frames.
//! - [`Config`]: the key `lldp:enable` of the table `Interface`, and the table `AutoAttach`.
//! - [`Session`]: one port: its frames, its neighbours, the services that it requests; texts of `autoattach/…`.
//! - [`Sessions`]: the row of the registry of link protocols ([`crate::protocol`]).
//!
//! Omissions: digests of auto-attach; VLANs of services do not become trunks of ports.

mod frame;
mod protocol;
mod session;

#[cfg(test)]
mod tests;

pub use frame::{
    Assignment, DST_MAC, ETH_TYPE_LLDP, Element, Id, Local, MAPPINGS_MAX, Mapping, Refusal, Remote,
    TEXT_BYTES_MAX, TTL_S, build, parse,
};
pub use protocol::{Claim, Sessions};
pub use session::{Config, NEIGHBOURS_MAX, Session};
