//! The rows of `Manager`, as the embedded server serves them.

use super::{DEFAULT_PORT, Db, Embedded, Outgoing, PROBE_MS, Side, is_local};
use crate::reactor::Reactor;
use crate::stream::{Endpoint, Listener};
use anyhow::Result;
use std::net::SocketAddrV4;
use vswitch::config::ManagerConfig;
use vswitch::status::ManagerFacts;

/// Address of a manager, if its connection may pass through a bridge.
pub fn in_band_address(manager: &ManagerConfig) -> Option<SocketAddrV4> {
    Endpoint::parse(&manager.target, DEFAULT_PORT).ok()?.remote_ipv4().filter(|_| manager.in_band)
}

impl Db {
    /// Replaces the targets of `Manager` rows; returns new errors by target.
    pub fn set_managers(
        &mut self,
        managers: &[ManagerConfig],
        reactor: &mut Reactor,
    ) -> Vec<(String, String)> {
        let Side::Embedded(e) = &mut self.side else { return Vec::new() };
        let targets: Vec<String> = managers.iter().map(|m| m.target.clone()).collect();
        // Local clients are not probed unless the row requests it.
        let usual_ms = |target: &str| if is_local(target) { 0 } else { PROBE_MS };
        let probe_ms = |m: &ManagerConfig| m.probe_ms.unwrap_or_else(|| usual_ms(&m.target));
        e.probes = managers.iter().map(|m| (m.target.clone(), probe_ms(m))).collect();
        e.listeners.retain(|t, _| *t == e.own_target || e.added.contains(t) || targets.contains(t));
        let gone = e.outgoing.keys().filter(|t| !e.added.contains(*t) && !targets.contains(t));
        gone.cloned().collect::<Vec<_>>().iter().for_each(|target| e.disconnect(target, reactor));
        e.refused.retain(|t, _| targets.contains(t));
        e.dscps.retain(|t, _| targets.contains(t));
        let mut failed = Vec::new();
        for manager in managers {
            // The probes are set above, addresses for bridges by `in_band_address`.
            let ManagerConfig { target, max_backoff_ms, probe_ms: _, dscp, in_band: _ } = manager;
            let is_new_dscp = e.dscps.insert(target.clone(), *dscp) != Some(*dscp);
            let was_served = match e.has(target) {
                true if is_new_dscp => e.change_dscp(target, *dscp, reactor),
                true => Ok(()),
                false => e.serve(target, reactor),
            };
            if let Some(outgoing) = e.outgoing.get_mut(target) {
                outgoing.set_max_backoff_ms(*max_backoff_ms);
            }
            match was_served {
                Ok(()) => {
                    e.refused.remove(target);
                }
                Err(error) => {
                    let why = sys::os_text(&format!("{error:#}"));
                    if e.refused.insert(target.clone(), why.clone()).as_ref() != Some(&why) {
                        failed.push((target.clone(), why));
                    }
                }
            }
        }
        failed
    }

    /// Reason that a `Manager` row's target is not served, as of the last [`Db::set_managers`].
    pub fn refused_manager(&self, target: &str) -> Option<&str> {
        let Side::Embedded(e) = &self.side else { return None };
        e.refused.get(target).map(String::as_str)
    }

    /// Status of a manager that the embedded server serves; `None` for other targets.
    pub fn manager_facts(&self, target: &str) -> Option<ManagerFacts> {
        let Side::Embedded(e) = &self.side else { return None };
        let passive = || e.listeners.get(target).map(|listener| e.passive_facts(target, listener));
        e.outgoing.get(target).map(Outgoing::facts).or_else(passive)
    }
}

impl Embedded {
    /// Status of a target that clients connect to. As in OVS a single client is not counted, and times are zero.
    fn passive_facts(&self, target: &str, listener: &Listener) -> ManagerFacts {
        let clients = self.conns.values().filter(|peer| peer.target == target).count();
        let mut facts = ManagerFacts { is_connected: clients > 0, ..ManagerFacts::default() };
        let mut say = |key: &str, value: String| facts.status.insert(key.to_string(), value);
        say("sec_since_connect", "0".to_string());
        say("sec_since_disconnect", "0".to_string());
        if let Some(port) = listener.port() {
            say("bound_port", port.to_string());
        }
        if clients > 1 {
            say("n_connections", clients.to_string());
        }
        facts
    }

    /// Applies the changed DSCP of a target: as in OVS an active one is connected to again. The connections of a passive
    /// one stay.
    fn change_dscp(&mut self, target: &str, dscp: u8, reactor: &mut Reactor) -> Result<()> {
        if self.outgoing.contains_key(target) {
            self.disconnect(target, reactor);
            return self.serve(target, reactor);
        }
        if let Some(listener) = self.listeners.get(target) {
            listener.set_dscp(dscp)?;
        }
        for peer in self.conns.values().filter(|peer| peer.target == target) {
            peer.conn.set_dscp(dscp)?;
        }
        Ok(())
    }
}
