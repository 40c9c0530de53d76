//! The daemon in a handover ([`crate::handover`]): as the process that ends, and as its successor.

use super::{Daemon, LOOK_AGAIN_MS};
use crate::appctl;
use crate::config::{DaemonConfig, Exit};
use crate::control_plane::{ControlPlane, HandoverState};
use crate::handover::{Leaving, Step, Succession};
use crate::turn::Turn;
use crate::unixctl::Request;
use anyhow::Result;
use sys::pidfile::PidFile;

impl Daemon {
    /// Goes on with a handover to a successor, if one is wanted or under way.
    pub(super) fn hand_over(&mut self, config: &DaemonConfig) -> Turn {
        let plane = &mut self.plane;
        if let HandoverState::Wanted(program) = &plane.handover {
            let program = program.clone();
            let started = match &config.user {
                Some(user) => {
                    Err(format!("--user={user}: a new process would lack the powers over network devices"))
                }
                None => {
                    let program = (&config.program, program.as_deref());
                    Leaving::start(program, &mut plane.switch, self.sockets.share(), &mut plane.reactor)
                }
            };
            match started {
                Ok(Some(leaving)) => {
                    plane.handover = HandoverState::UnderWay;
                    self.leaving = Some(leaving);
                }
                Ok(None) => return Turn::at(sys::clock::monotonic_ms() + LOOK_AGAIN_MS),
                Err(why) => self.stay(&why),
            }
        }
        let Some(leaving) = &mut self.leaving else { return Turn::DONE };
        let ControlPlane { switch, db, routing, reactor, .. } = &mut self.plane;
        match leaving.run(switch, db, routing, reactor) {
            Ok(Step::Going(turn)) => turn,
            Ok(Step::Over) => {
                self.sockets.leave();
                self.service.succeeded_by(leaving.successor());
                self.plane.exit = Some(Exit { cleanup: false, handed_over: true });
                Turn::DONE
            }
            Err(why) => {
                self.stay(&why);
                Turn::MORE
            }
        }
    }

    /// The handover failed: this process goes on, and answers the commands that wait for it.
    fn stay(&mut self, why: &str) {
        log::error!(target: "handover", "{why}; this process goes on");
        (self.leaving, self.plane.handover) = (None, HandoverState::None);
        self.plane.switch.stay();
        let awaits = |(_, wait): &mut (Request, appctl::Wait)| matches!(wait, appctl::Wait::Handover);
        for (request, _) in self.waiting.extract_if(.., awaits) {
            self.unixctl.reply(&request, Err(why.to_string()), &mut self.plane.reactor);
        }
    }

    /// Goes on with the succession of another process.
    pub(super) fn succeed(
        &mut self,
        config: &DaemonConfig,
        succession: &mut Option<Succession>,
    ) -> Result<()> {
        if let Some(under_way) = succession
            && under_way.run(&mut self.plane.switch, &mut self.plane.routing, &mut self.plane.reactor)?
                == Step::Over
        {
            let clients = under_way.take_clients();
            *succession = None;
            self.sockets.begin();
            self.plane.switch.claim(clients, &mut self.plane.reactor);
            self.claims_database = self.seeker.is_some();
            if !self.claims_database {
                self.plane.reactor.lent.clear();
            }
            if let Some(path) = &config.pid_file {
                match PidFile::create(path, config.overwrite_pid_file) {
                    Ok(file) => self.pid_file = Some(file),
                    Err(e) => log::error!(target: "daemon_unix", "{e}"),
                }
            }
        }
        Ok(())
    }
}
