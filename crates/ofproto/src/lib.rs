//! The slow path, pure: OpenFlow tables, translation, learned addresses, upcalls, revalidation.
//!
//! Time, randomness and configuration are arguments; this crate does no I/O and starts no threads, so a whole switch
//! runs in the simulator from one seed. Locks belong to the control plane and handlers; no packet thread takes one.
#![forbid(unsafe_code)]
// Tests match only on relevant variants.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod action_pool;
pub mod backer;
pub mod barrier;
pub mod bond;
pub mod cache;
pub mod cause;
pub mod changes;
pub mod ct_support;
pub mod events;
mod features;
pub mod flow_mod;
mod flow_ops;
pub mod group;
pub mod ids;
pub mod link_sender;
pub mod links;
pub mod mac_table;
pub mod mcast;
pub mod meter_ids;
pub mod mirror;
pub mod native;
pub mod packet_state;
pub mod ports;
pub mod recirc;
pub mod record;
pub mod revalidate;
pub mod rule;
pub mod rule_index;
pub mod sampling;
pub mod tables;
pub mod tunnel;
pub mod tunnel_ports;
pub mod ukey;
mod unresolved;
pub mod upcall;
pub mod view;
pub mod xlate;

pub use flow::fields::FieldId;
pub use flow::{DpPort, MacAddr, OfPort};
