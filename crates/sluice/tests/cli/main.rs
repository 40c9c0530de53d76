//! Tests of the program: beside the stock `ovs-vsctl` on databases of `ovsdb::server`, and with a control
//! socket served by a thread. Tests that need the stock tool are skipped, with a message, if it is not
//! installed.

mod appctl;
mod check;
mod control;
mod matches;
mod ofctl;
mod oxs;
mod refused;
mod server;
mod stock;
mod tls;
mod upcall_cost;
mod usable;
mod verbs;
mod vsctl;
