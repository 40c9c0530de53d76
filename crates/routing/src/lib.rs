//! Routes, neighbours and listeners of tunnels in user space (native tunnels).
//!
//! - [`Routes`]: the kernel's routes and those of commands, as a persistent value; a lookup yields device, gateway and
//!   source address of a tunnel's packets.
//! - [`Neighbours`]: Ethernet addresses of next hops, learned from ARP and neighbour discovery ([`snoop`]).
//! - [`Listeners`]: the local addresses and tunnel ports whose packets are decapsulated.
//! - [`Shared`]: what translation reads of all these.
//!
//! Callers: `sluiced::routing` owns one of each and follows the kernel; translation reads them.
//!
//! Invariants: a clone of [`Routes`] or [`Listeners`] is a snapshot that costs a few reference counts, and a change
//! copies the changed path only. Every table is bounded and counts refusals.
//!
//! Not here: reading the kernel's tables (`netdev::route`), and headers of tunnels (`dpif`).
#![forbid(unsafe_code)]

mod hops;
mod listeners;
mod lookup;
mod neighbours;
mod prefix;
mod routes;
mod rules;
mod snoop;
mod sources;
pub mod text;
mod trie;

pub use hops::{HOPS_MAX, HopObject, Hops, NextHop, OBJECTS_MAX};
pub use listeners::{Carrier, Families, Listeners, ListeningDevice, TunnelPort};
pub use lookup::{Hop, LeftOut, NoRoute, Why};
pub use neighbours::{
    AGING_DEFAULT_MS, AGING_MAX_S, NEIGHBOURS_MAX, Neighbour, Neighbours, RETRANS_DEFAULT_MS, RETRANS_MAX_MS,
    UNASKED_MAX,
};
pub use prefix::Prefix;
pub use routes::{
    Change, Origin, Query, ROUTES_MAX, Route, RouteError, RouteKind, RoutePosition, Routes, ShownRoute,
};
pub use rules::{
    Rule, RuleAction, TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN, is_standard_table, standard_rules,
};
pub use snoop::{Snooped, snoop};
pub use sources::{InterfaceAddress, SCOPE_HOST, SCOPE_LINK, SCOPE_UNIVERSE};

#[cfg(test)]
mod tests;
