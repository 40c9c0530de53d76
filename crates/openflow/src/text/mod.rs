//! Messages as text, in the syntax of ovs-ofctl(8): group modifications, groups, selections of connections.

mod ct_flush;
mod describe;
mod group;

pub use ct_flush::parse_ct_flush;
pub use describe::describe;
pub use group::{format_group, parse_group_mod};

#[cfg(test)]
mod tests;
