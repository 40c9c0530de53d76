//! The controllers of a bridge: their connections, and in-band control's paths to them and to managers.

use super::OfBridge;
use crate::next_hops::NextHops;
use crate::openflow::controller::{Controller, ControllerBridge, Remote};
use crate::openflow::link::{Link, Origin};
use crate::openflow::rconn_log;
use crate::reactor::Reactor;
use crate::stream::Conn;
use connmgr::InBandConfig;
use flow::MacAddr;
use mio::Token;
use openflow::reconnect::Action;
use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use vswitch::config::{ControllerConfig, ControllerKind};
use vswitch::status::ControllerFacts;

/// Interval of looking for next hops while some are unknown, then for changes.
const RESOLVE_MS: u64 = 1000;
const RESOLVE_AGAIN_MS: u64 = 10_000;

impl OfBridge {
    /// Replaces the controllers; unchanged ones keep their connections.
    pub(in crate::openflow) fn set_controllers(
        &mut self,
        wanted: Vec<ControllerConfig>,
        reactor: &mut Reactor,
        now_ms: u64,
    ) {
        let gone: Vec<String> = self
            .controllers
            .iter()
            .filter(|(target, _)| !wanted.iter().any(|w| w.target == **target))
            .map(|(target, _)| target.clone())
            .collect();
        for target in gone {
            if let Some(controller) = self.controllers.remove(&target) {
                log::info!(target: "connmgr", "{}: removed {} controller \"{target}\"", self.name, controller.kind_name());
            }
            let tokens: Vec<Token> = self
                .links
                .iter()
                .filter(|(_, l)| l.origin.target() == Some(&target))
                .map(|(t, _)| *t)
                .collect();
            for token in tokens {
                self.close(token, reactor, now_ms);
            }
        }
        let has_controllers = wanted.iter().any(|c| c.kind == ControllerKind::Primary);
        let probe_ms =
            wanted.iter().filter(|c| !c.is_passive()).map(|c| c.inactivity_probe_ms).max().unwrap_or(0);
        for config in wanted {
            self.add_controller(config, reactor, now_ms);
        }
        self.controllers.values_mut().for_each(|c| c.set_local_address(&self.name));
        self.apply(
            |c| {
                c.has_controllers = has_controllers;
                c.max_probe_interval_ms = probe_ms;
            },
            now_ms,
        );
        self.find_remotes(now_ms);
    }

    /// Sets the addresses of managers whose connections may pass through it.
    pub(in crate::openflow) fn set_managers(&mut self, managers: &BTreeSet<SocketAddrV4>, now_ms: u64) {
        self.managers.clone_from(managers);
        self.find_remotes(now_ms);
    }

    /// Finds the remotes of in-band control: controllers and managers.
    pub(super) fn find_remotes(&mut self, now_ms: u64) {
        let managers = self.managers.iter().copied().filter(|_| self.has_in_band);
        let remotes: BTreeSet<_> =
            self.controllers.values().filter_map(Controller::in_band_address).chain(managers).collect();
        if remotes != self.in_band.remotes {
            self.resolves_at_ms = Some(now_ms).filter(|_| !remotes.is_empty());
            self.change_in_band(|c| c.remotes = remotes, now_ms);
        }
    }

    /// Time at which its next hops are to be resolved; `None` without in-band control.
    pub(in crate::openflow) fn resolves_at_ms(&self) -> Option<u64> {
        self.resolves_at_ms
    }

    /// Resolves the next hops of in-band control.
    pub(in crate::openflow) fn resolve_next_hops(&mut self, known: &NextHops, now_ms: u64) {
        let found = self.in_band.remotes.iter().map(|remote| known.towards(*remote.ip()));
        let found: Vec<Option<MacAddr>> = found.collect();
        let interval_ms = if found.contains(&None) { RESOLVE_MS } else { RESOLVE_AGAIN_MS };
        self.resolves_at_ms = Some(now_ms + interval_ms);
        self.change_in_band(|c| c.next_hops = found.into_iter().flatten().collect(), now_ms);
    }

    pub(super) fn change_in_band(&mut self, change: impl FnOnce(&mut InBandConfig), now_ms: u64) {
        let mut config = self.in_band.clone();
        change(&mut config);
        if config != self.in_band {
            self.in_band = config.clone();
            self.with_mgr(|mgr, ctx| mgr.set_in_band(config, ctx, now_ms));
        }
    }

    fn add_controller(&mut self, config: ControllerConfig, reactor: &mut Reactor, now_ms: u64) {
        if let Some(known) = self.controllers.get_mut(&config.target) {
            if let Remote::Active { reconnect, .. } = &mut known.remote {
                reconnect.set_max_backoff_ms(config.max_backoff_ms);
            }
            let has_new_dscp = known.config.dscp != config.dscp;
            known.config = config;
            let settings = known.settings();
            let is_of = |l: &&Link| l.origin.target() == Some(&known.config.target);
            for id in self.links.values().filter(is_of).filter_map(|l| l.id) {
                self.mgr.configure_conn(id, settings);
            }
            if has_new_dscp {
                let target = known.config.target.clone();
                self.change_dscp(&target, reactor, now_ms);
            }
            return;
        }
        let target = config.target.clone();
        let place = ControllerBridge { bridge: &self.name, run_dir: &self.run_dir };
        let controller = Controller::new(config, &place, reactor, now_ms);
        self.controllers.insert(target, controller);
    }

    /// Applies the changed DSCP of a controller: as in OVS an active one is connected to again. The connections of a
    /// passive one stay.
    fn change_dscp(&mut self, target: &str, reactor: &mut Reactor, now_ms: u64) {
        let Some(controller) = self.controllers.get_mut(target) else { return };
        let dscp = controller.config.dscp;
        match &controller.remote {
            Remote::Active { token: Some(token), .. } => {
                let token = *token;
                self.lost(token, "disconnecting", reactor, now_ms);
            }
            Remote::Active { token: None, .. } => {}
            Remote::Passive { listener } => {
                let links = self.links.values().filter(|l| l.origin.target() == Some(target));
                let faults = links.map(|l| l.conn.set_dscp(dscp));
                let faults = listener.iter().map(|l| l.set_dscp(dscp)).chain(faults);
                if let Some(Err(e)) = faults.reduce(|all, one| all.and(one)) {
                    controller.last_error = Some(format!("cannot set the DSCP: {e}"));
                }
            }
        }
    }

    /// Starts due connections and aborts attempts that time out.
    pub(super) fn reconnect(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let targets: Vec<String> = self.controllers.keys().cloned().collect();
        for target in targets {
            let Some(controller) = self.controllers.get_mut(&target) else { continue };
            let Remote::Active { endpoint, reconnect, token } = &mut controller.remote else { continue };
            match reconnect.run(now_ms) {
                Some(Action::Connect) => {
                    let new = reactor.token();
                    rconn_log::connecting(&self.name, &target, reconnect);
                    reconnect.connecting(now_ms);
                    reactor.counts.controllers_tried += 1;
                    match Conn::connect(endpoint, controller.config.dscp, reactor, new) {
                        Ok(conn) => {
                            *token = Some(new);
                            let origin = Origin::Controller(target);
                            let link = Link::new(conn, None, origin, now_ms);
                            self.links.insert(new, link);
                        }
                        Err(e) => {
                            let (why, before_ms) = (e.to_string(), reconnect.backoff_ms());
                            reconnect.disconnected(now_ms);
                            rconn_log::lost(&self.name, &target, false, &why, before_ms, reconnect);
                            controller.last_error = Some(why);
                        }
                    }
                }
                Some(Action::Disconnect) => {
                    if let Some(at) = *token {
                        self.lost(at, "connection attempt timed out", reactor, now_ms);
                    }
                }
                Some(Action::Probe) | None => {}
            }
        }
    }

    /// Status of its controllers, by their rows.
    pub(in crate::openflow) fn controller_facts<'a>(
        &'a self,
        tls_fault: Option<&'a str>,
        now_ms: u64,
    ) -> impl Iterator<Item = (ovsdb::value::Uuid, ControllerFacts)> + 'a {
        self.controllers.iter().map(move |(target, controller)| {
            let up = |l: &&Link| l.origin.target() == Some(target) && l.id.is_some();
            let status = self.links.values().find(up).and_then(|l| self.mgr.status(l.id?));
            (controller.config.row, controller.facts(status, tls_fault, now_ms))
        })
    }
}
