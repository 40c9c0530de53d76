//! Connectivity fault management: continuity checks of IEEE 802.1ag in the extent of Open vSwitch.
//!
//! - [`Message`]: a continuity check; [`build`], [`parse_frame`]: the frame around it.
//! - [`Config`]: the column `cfm_mpid` and keys of `other_config` of the table `Interface`.
//! - [`Session`]: one maintenance point; texts of `cfm/show` and the columns `cfm_…`.
//! - [`Sessions`]: the row of the registry of link protocols ([`crate::protocol`]).
//!
//! Omissions: loopback and link trace messages, other levels and maintenance associations than those of OVS.

mod config;
mod message;
mod protocol;
mod session;
mod text;

#[cfg(test)]
mod tests;

pub use config::{Config, Vlan};
pub use message::{
    DST_MAC, DST_MAC_EXTENDED, ETH_TYPE_CFM, Frame, MESSAGE_BYTES, Message, Refusal, Tag, build, parse_frame,
};
pub use protocol::{Claim, Sessions};
pub use session::{Faults, REMOTES_MAX, Session};
