//! Records for collectors: sFlow 5, NetFlow 5 and IPFIX. Engines that take samples and the time, and give datagrams.
//!
//! No engine sends anything: the caller owns sockets and clocks. Memory is bounded: a datagram has at most
//! [`DATAGRAM_MAX_BYTES`], the cache of IPFIX has the limit of its settings, and that of NetFlow
//! [`netflow::FLOWS_MAX`].

#![forbid(unsafe_code)]

mod bytes;
pub mod fuzz;
pub mod ipfix;
pub mod netflow;
pub mod sflow;

/// Most bytes of a datagram, so that a link of 1500 bytes takes it whole. Templates of IPFIX and long names go a little beyond.
pub const DATAGRAM_MAX_BYTES: usize = 1400;
