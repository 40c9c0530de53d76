//! Port I/O against the kernel, each test in a network namespace of its own (root and `ip` needed; skipped otherwise).

#![allow(unsafe_code, reason = "namespaces and poll(2)")]

mod afxdp;
mod helpers;
mod link;
mod queues;
mod system;
mod tap;
mod tcp;
