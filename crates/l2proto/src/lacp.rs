//! Link aggregation control: the protocol of IEEE 802.1AX in the extent of Open vSwitch.
//!
//! - [`Pdu`], [`Information`]: a message and its halves; [`build`], [`payload`]: the frame around it.
//! - [`Config`]: columns of the tables `Port` and `Interface`; [`Claim`]: which packets belong to a session.
//! - [`Aggregator`]: the members of a port, and which of them are attached; texts of `lacp/show` and `lacp/show-stats`.
//! - [`Aggregators`]: all of them with their timers, as one engine.
//! - `protocol`: the row of the registry of link protocols ([`crate::protocol`]).
//!
//! A session is a member: an interface of a port with `lacp`. All members of a port share one aggregator, also the only
//! member of a port that is no bond. A member is live if the aggregator lets it carry traffic; ports forward in any case,
//! and bonds select among live members.
//!
//! Omissions, as in OVS: answers to markers, the churn machine, waiting before a link is attached.

mod aggregator;
mod aggregators;
mod config;
mod facts;
mod frame;
mod member;
mod protocol;
mod rate;
mod saved;
mod text;

#[cfg(test)]
mod tests;

pub use aggregator::Aggregator;
pub use aggregators::Aggregators;
pub use config::{Claim, Config};
pub use facts::MemberFacts;
pub use frame::{
    FRAME_BYTES, Information, PDU_BYTES, Parsed, Pdu, STATE_NAMES, System, build, payload, state,
};
pub use member::{Counters, Member, Status};
