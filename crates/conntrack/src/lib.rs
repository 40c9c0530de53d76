//! Connection tracking of the userspace datapath, shared by all of its forwarding threads. Pure: no I/O, no clock, no
//! thread; `datapath` executes `ct` actions with it, `dpif-netdev` runs its expiry.
//!
//! - [`PacketInfo`]: key and transport state of a packet, or the verdict that it is invalid.
//! - [`Tracker`]: finds and updates the connection, commits new ones, translates (docs/conntrack.md).
//! - [`ipf`]: holds IP fragments until their datagram is complete, so that it is tracked as a whole.
//! - [`alg`]: reads and rewrites control messages of FTP; knows those of TFTP. [`Tracker::track_control`] expects the
//!   connections that they announce.
//! - [`carry`]: takes all connections to another process.
//! - Memory that never moves: records of fixed size in slabs, found by an index of one cache line per bucket. Both are read
//!   without a lock and without a pin; writers lock one record or one bucket.
//!
//! Invariants: a connection is in the index under both keys, or ends; its state changes under its record's lock; it ends
//! exactly once; counts of limits are exact; each search has a stated maximum of steps.
//!
//! Semantics are those of Open vSwitch's userspace datapath, except that SCTP has ports and a checksum.
#![forbid(unsafe_code)]

pub mod alg;
pub mod carry;
mod commit;
mod control;
mod expect;
pub mod fuzz;
mod index;
pub mod ipf;
mod key;
mod limits;
mod lookups;
mod metadata;
mod nat;
mod packet_info;
mod record;
#[cfg(test)]
mod reference;
mod request;
mod state;
mod stats;
pub mod tcp;
mod timeouts;
mod tracker;
mod usual;
mod views;
mod zones;

pub use alg::{Announcement, Helper};
pub use control::Edit;
pub use key::{Key, Rest};
pub use limits::CONNECTIONS_MAX_DEFAULT;
#[cfg(debug_assertions)]
pub use lookups::lookups_of_thread;
pub use nat::CANDIDATES_MAX;
pub use packet_info::{PacketInfo, Transport, cited_transport};
pub use request::{Request, Translation};
pub use stats::TrackerStats;
pub use timeouts::{NoSuchPolicy, POLICIES_MAX, usual_s};
pub use tracker::Tracker;
pub use usual::Lookup;
pub use views::Cursor;

#[cfg(test)]
mod tests;
