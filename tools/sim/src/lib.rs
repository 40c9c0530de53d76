//! A whole switch in one process, from one seed and on virtual time: forwarding cores, upcall queues, handlers, the
//! revalidator, a controller that changes rules, ports that come and go, and traffic. A seeded schedule says who works next,
//! so that messages meet in every order; checkers watch the laws of ARCHITECTURE.md.
//!
//! [`run`] gives the same run for the same seed. What is simulated takes the place of threads, devices and clock only: the
//! cores are [`datapath::Pmd`], the slow path is `ofproto`. Deliberately not here: the database and OpenFlow sessions.
#![forbid(unsafe_code)]

mod checks;
mod dp;
mod frames;
pub mod fuzz;
mod model;
mod report;
mod rng;
mod rules;
mod upcall_queues;
mod world;

pub use report::{Broken, Law, Report, Violation, Work};
pub use rng::Rng;

/// Runs a switch for about `steps` steps and lets it come to rest. A violation ends the run early.
pub fn run(seed: u64, steps: u64) -> Report {
    world::World::new(seed, None).run(steps, 0)
}

/// Runs a switch for that much virtual time, in milliseconds, and lets it come to rest.
pub fn run_for(seed: u64, virtual_ms: u64) -> Report {
    world::World::new(seed, None).run(0, virtual_ms)
}

/// The same for a switch that is broken on purpose, with the checkers of one law only.
pub fn run_broken(seed: u64, steps: u64, broken: Broken, law: Law) -> Report {
    let world = world::World::new(seed, Some(broken));
    world.watch_only(law);
    world.run(steps, 0)
}

#[cfg(test)]
mod tests;
