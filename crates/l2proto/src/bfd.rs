//! Bidirectional forwarding detection: RFC 5880 and 5881 in the extent of Open vSwitch, asynchronous mode only.
//!
//! - [`Message`]: a control packet; [`build`], [`Received`]: the frame around it.
//! - [`Config`]: the column `bfd` of the table `Interface`; [`Claim`]: which packets of a port belong to its session.
//! - [`Session`]: one state machine; texts of `bfd/show` and `bfd_status`.
//! - [`Sessions`]: all of them with their timers.
//!
//! # The thread that runs it
//!
//! `sluiced` runs a thread `monitor` that owns [`Sessions`] and transmits without the main loop, which may take
//! longer for a turn than a detection time. The thread sleeps until [`Sessions::next_wakeup`] or a message. Handlers
//! translate with a [`Claim`] from the view of the port, which is a value, and send each claimed packet to the thread by a bounded
//! queue per port: a flood of one port then delays no session of another. [`Sessions::tick`] with a limit returns frames;
//! the thread hands them to the datapath as packet-outs through their port, and takes messages in between. Configuration,
//! commands and counters of received packets arrive as messages. [`Sessions::take_changed`] names sessions whose
//! status the main loop then writes, and whose forwarding state the translations read from the view.
//!
//! Omissions: authentication, demand mode, echo packets, multihop (RFC 5883), IPv6.

mod claim;
mod config;
mod frame;
mod message;
mod notice;
mod session;
mod sessions;
mod text;

#[cfg(test)]
mod tests;

pub use claim::Claim;
pub use config::Config;
pub use frame::{
    Addresses, DEFAULT_DST_IP, DEFAULT_DST_MAC, DEFAULT_SRC_IP, FRAME_BYTES, Received, UDP_PORT,
    UDP_SOURCE_PORTS, build, udp_payload,
};
pub use message::{Diagnostic, Flags, MESSAGE_BYTES, Message, Refusal, State, VERSION};
pub use notice::Notice;
pub use session::{Environment, Forwarding, Identity, Session, SessionId, Transmission};
pub use sessions::{Changed, Sessions, UnknownSession};
