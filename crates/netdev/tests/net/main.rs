//! Port I/O against the kernel, each test in its own network namespace (needs root and `ip`; skipped
//! otherwise).

#![allow(unsafe_code, reason = "namespaces and poll(2)")]

mod afxdp;
mod former;
mod growing;
mod helpers;
mod link;
mod queues;
mod route;
mod system;
mod tap;
mod tcp;
mod tunneled;
