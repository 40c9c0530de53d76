//! Bidirectional forwarding detection: RFC 5880 and 5881 in the extent of Open vSwitch, asynchronous mode only.
//!
//! - [`Message`]: a control packet; [`build`], [`Received`]: the frame around it.
//! - [`Config`]: the column `bfd` of the table `Interface`; [`Claim`]: which packets of a port belong to its session.
//! - [`Session`]: one state machine; texts of `bfd/show` and `bfd_status`.
//! - [`Sessions`]: all of them with their timers.
//! - `protocol`: the row of the registry of link protocols ([`crate::protocol`]). The thread `link_protocols` of `sluiced`
//!   runs the sessions.
//!
//! Omissions: authentication, demand mode, echo packets, multihop (RFC 5883), IPv6.

mod claim;
mod config;
mod frame;
mod message;
mod notice;
mod protocol;
mod session;
mod sessions;
mod text;

#[cfg(test)]
mod tests;

pub use crate::protocol::{Environment, Received, SessionId};
pub use claim::Claim;
pub use config::Config;
pub use frame::{
    Addresses, DEFAULT_DST_IP, DEFAULT_DST_MAC, DEFAULT_SRC_IP, FRAME_BYTES, UDP_PORT, UDP_SOURCE_PORTS,
    build, udp_payload,
};
pub use message::{Diagnostic, Flags, MESSAGE_BYTES, Message, Refusal, State, VERSION};
pub use notice::Notice;
pub use session::{Forwarding, Identity, Session, Transmission};
pub use sessions::{Changed, Sessions, UnknownSession};
