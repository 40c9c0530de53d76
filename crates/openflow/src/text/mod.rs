//! Messages as text, in the syntax of ovs-ofctl(8): group modifications and groups.

mod describe;
mod group;

pub use describe::describe;
pub use group::{format_group, parse_group_mod};

#[cfg(test)]
mod tests;
