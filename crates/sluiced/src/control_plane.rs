//! The parts of the daemon that commands (`appctl`) show and change, without its main loop.

pub(crate) mod counters;

use super::config::Exit;
use super::coverage::Coverage;
use super::db::Db;
use super::loop_times::LoopTimes;
use super::reactor::Reactor;
use super::routing::Routing;
use super::switch::Switch;
use super::unixctl;
use super::work::Workers;
use crate::implementations::Chosen;
use std::path::PathBuf;

/// The parts of the daemon that commands show and change.
pub struct ControlPlane {
    /// Sockets.
    pub reactor: Reactor,
    /// Database.
    pub db: Db,
    /// The switch.
    pub switch: Switch,
    /// Routes, neighbours and listeners of tunnels.
    pub routing: Routing,
    /// Start of the daemon, in monotonic milliseconds.
    pub started_ms: u64,
    /// Threads that compute replies.
    pub workers: Workers,
    /// Coverage counters.
    pub(crate) coverage: Coverage,
    /// Times of the main loop.
    pub(crate) loop_times: LoopTimes,
    /// Chosen by command.
    pub(crate) implementations: Chosen,
    /// Counts of the control socket.
    pub(crate) unixctl: unixctl::Counts,
    /// Set once the daemon is to end: after this turn of the main loop.
    pub exit: Option<Exit>,
    pub(crate) handover: HandoverState,
}

/// State of a handover to a successor.
#[derive(Debug, Default)]
pub(crate) enum HandoverState {
    #[default]
    None,
    /// Asked for, to this program or to that of this process.
    Wanted(Option<PathBuf>),
    UnderWay,
}

impl ControlPlane {
    /// The state at the start of the daemon.
    pub(crate) fn new(reactor: Reactor, db: Db, switch: Switch, routing: Routing) -> ControlPlane {
        ControlPlane {
            reactor,
            db,
            switch,
            routing,
            started_ms: sys::clock::monotonic_ms(),
            workers: Workers::default(),
            coverage: Coverage::default(),
            loop_times: LoopTimes::default(),
            implementations: Chosen::default(),
            unixctl: unixctl::Counts::default(),
            exit: None,
            handover: HandoverState::None,
        }
    }
}
