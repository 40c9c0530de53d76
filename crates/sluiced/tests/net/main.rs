//! The daemon with real traffic and with the stock tools of OVS: every test has its own namespaces, run directory
//! and daemon, so all of them run in parallel. Tests wait for conditions; the absence of a packet is checked after a
//! later packet on the same path.
#![forbid(unsafe_code)]

mod ablation;
mod bfd;
mod bfd_load;
mod bounds;
mod cli;
mod commands;
mod connections;
mod ct;
mod ct_balancer;
mod ct_beside;
mod ct_hostile;
mod ct_lab;
mod ct_live;
mod ct_millions;
mod ct_oracle;
mod ct_restart;
mod ct_traffic;
mod ct_zones;
mod daemon;
mod database;
mod dscp;
mod dummy;
mod events;
mod external_db;
mod helpers;
mod kernel;
mod kernel_cost;
mod kernel_ct;
mod kernel_queues;
mod links;
mod loops;
mod openflow;
mod overlay_l3;
mod overlays;
mod partners;
mod port_types;
mod ports;
mod routes;
mod slowpath;
mod soak;
mod statistics;
mod streams;
mod syscalls;
mod threads;
mod tls;
mod traffic;
mod tunnels;
mod upcall_bench;
mod upcall_cost;
mod vlan;
