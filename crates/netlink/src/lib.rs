//! Netlink to the Linux kernel's `openvswitch` module, by generic netlink, and to its connection tracking: the
//! system calls of datapath operations.
//!
//! - [`Ovs`]: the handle. Opened once per process and network namespace, shared by all threads; every call is synchronous.
//! - [`ovs`]: typed requests and replies of the families `ovs_datapath`, `ovs_vport`, `ovs_flow`, `ovs_packet`, `ovs_meter` and
//!   `ovs_ct_limit`; [`UpcallSocket`], [`VportMonitor`].
//! - [`Conntrack`]: connections tracked by the kernel for its datapaths and all others.
//! - Attributes: [`attr`]; keys and masks: [`flow::nlkey`]; datapath actions: [`dpif::nlactions`]; cookies of userspace actions:
//!   [`dpif::cookie`].
//! - [`socket`], [`genl`]: messages, transactions and dumps of generic netlink and of netfilter.
//!
//! Invariants: every access checks received data, and no bytes cause a panic; a request gets exactly one result,
//! with an [`Error`] if its reply was lost; every buffer is bounded. Constants and layouts are those of
//! linux/netlink.h, linux/genetlink.h, linux/openvswitch.h and linux/netfilter/nfnetlink_conntrack.h.
//!
//! Not here: the choice of flows, threads, polling, and reactions to failures (`dpif-netlink`).

// Tests match only on relevant variants.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]
#![allow(unsafe_code, reason = "system calls; each block says why it is sound")]

mod conntrack;
mod error;
pub mod fuzz;
pub mod genl;
mod message;
mod namespace;
pub mod ovs;
mod pool;
mod raw;
pub mod socket;

pub use conntrack::Conntrack;
pub use error::{Error, Refusal};
pub use flow::nlattr as attr;
pub use ovs::{Ovs, UpcallSocket, VportMonitor};
pub use raw::{messages_received, messages_sent};
