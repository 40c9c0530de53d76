//! A whole switch in one process, from one seed and on virtual time: forwarding cores, upcall queues,
//! handlers, the revalidator, a controller that changes rules, ports added and removed, and traffic. A seeded
//! schedule picks the next actor, so messages interleave in every order; checkers watch the invariants of
//! ARCHITECTURE.md.
//!
//! [`run`] is deterministic for a seed. Only threads, devices and clock are simulated: the cores are
//! [`datapath::Pmd`], the slow path is `ofproto`. Deliberately omitted: the database and OpenFlow sessions.
#![forbid(unsafe_code)]

pub mod bonds;
mod checks;
mod dp;
mod fragments;
mod frames;
pub mod fuzz;
mod model;
mod reassembly;
mod report;
mod rng;
mod rules;
mod tracking;
mod upcall_queues;
mod world;

pub use report::{Broken, Coverage, Invariant, Report, Violation};
pub use rng::Rng;

/// Runs a switch for about `steps` steps, then settles it. A violation ends the run early.
pub fn run(seed: u64, steps: u64) -> Report {
    world::World::new(seed, None).run(steps, 0)
}

/// Runs a switch for that much virtual time, in milliseconds, then settles it.
pub fn run_for(seed: u64, virtual_ms: u64) -> Report {
    world::World::new(seed, None).run(0, virtual_ms)
}

/// Runs a deliberately broken switch, with the checkers of one invariant only.
pub fn run_broken(seed: u64, steps: u64, broken: Broken, invariant: Invariant) -> Report {
    let world = world::World::new(seed, Some(broken));
    world.watch_only(invariant);
    world.run(steps, 0)
}

#[cfg(test)]
mod tests;
