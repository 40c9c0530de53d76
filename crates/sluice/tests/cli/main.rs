//! The program as its users meet it: beside the stock `ovs-vsctl` on databases of `ovsdb::server`, and before a control
//! socket that a thread serves. What the stock tool is needed for is skipped, visibly, where it is not installed.

mod appctl;
mod server;
mod stock;
mod upcall_cost;
mod vsctl;
