//! Tracked packets through a forwarding core, on virtual time: costs of established ones, and hostile traffic beside them.
//!
//! Allocations are counted by the allocator of this binary, lookups by the tracker, in builds with debug assertions.
#![cfg(debug_assertions)]
#![forbid(unsafe_code)]

mod established;
mod hostile;
mod switch;

#[global_allocator]
static ALLOCATOR: sys::counting::Counting = sys::counting::Counting;
