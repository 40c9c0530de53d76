//! OpenFlow connections in a handover: given to the successor, which goes on with them.

use super::OpenFlow;
use super::bridge::OfBridge;
use super::controller::Remote;
use super::link::{Link, Origin};
use crate::instances::Instances;
use crate::reactor::Reactor;
use crate::stream::{Conn, Endpoint};
use crate::turn::Turn;
use connmgr::{CannotPass, ConnSettings, SavedBridge, SavedConn};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// A connection for another process.
#[derive(Debug)]
pub(crate) struct LentClient {
    /// Its bridge.
    pub(crate) bridge: String,
    /// Its listener or controller: `management`, `snoop`, or a target.
    pub(crate) origin: String,
    /// Its state, in the form of [`SavedConn`].
    pub(crate) text: String,
    /// Its socket.
    pub(crate) fd: OwnedFd,
}

/// A part of the state that controllers gave to a bridge, in the form of [`SavedBridge`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BridgeText {
    /// The bridge.
    pub(crate) bridge: String,
    /// The part.
    pub(crate) text: String,
}

/// Words for origins without a target, which no target equals.
const MANAGEMENT: &str = "management";
const SNOOP: &str = "snoop";

impl Origin {
    fn word(&self) -> &str {
        match self {
            Origin::Management => MANAGEMENT,
            Origin::Snoop => SNOOP,
            Origin::Controller(target) => target,
        }
    }

    fn of(word: &str) -> Origin {
        match word {
            MANAGEMENT => Origin::Management,
            SNOOP => Origin::Snoop,
            target => Origin::Controller(target.to_string()),
        }
    }
}

/// OpenFlow connections that end with this process: their number by reason.
type Staying = BTreeMap<&'static str, usize>;

impl OfBridge {
    /// Whether no connection has something under way that keeps it from passing to another process.
    fn may_pass(&self) -> bool {
        let ids = self.links.values().filter(|link| !link.conn.is_tls()).filter_map(|link| link.id);
        ids.map(|id| self.mgr.may_pass(id)).all(|may| !matches!(may, Err(CannotPass::Now(_))))
    }

    /// Its connections for another process, with the last reports; counts the others.
    fn lend(&mut self, staying: &mut Staying, now_ms: u64) -> Vec<LentClient> {
        self.with_mgr(|mgr, ctx| mgr.report_last(ctx, now_ms));
        let mut lent = Vec::new();
        for link in self.links.values() {
            let saved = match link.id.filter(|_| !link.deaf && link.ended.is_none()) {
                Some(id) => self.mgr.save(id).map_err(CannotPass::why),
                None => Err("they are not established, or their peers have ended them"),
            };
            let passing = saved.and_then(|saved| Ok((saved, link.conn.lend()?)));
            match passing {
                Ok((saved, fd)) => lent.push(LentClient {
                    bridge: self.name.clone(),
                    origin: link.origin.word().to_string(),
                    text: saved.text(),
                    fd,
                }),
                Err(why) => *staying.entry(why).or_default() += 1,
            }
        }
        lent
    }

    /// Goes on with a connection of another process.
    ///
    /// # Errors
    /// It has no place here, with the reason: it is closed.
    fn adopt(&mut self, client: LentClient, reactor: &mut Reactor, now_ms: u64) -> Result<(), String> {
        let saved = SavedConn::parse(&client.text)?;
        let origin = Origin::of(&client.origin);
        let controller = match &origin {
            Origin::Management | Origin::Snoop => None,
            Origin::Controller(target) => {
                Some(self.controllers.get_mut(target).ok_or_else(|| format!("no controller {target}"))?)
            }
        };
        let is_unix = origin.target().is_none_or(is_unix);
        let token = reactor.token();
        let conn = Conn::adopt(client.fd, is_unix, reactor, token).map_err(|e| e.to_string())?;
        let settings = controller.as_ref().map_or_else(ConnSettings::default, |c| c.settings());
        if let Some(controller) = controller
            && let Remote::Active { reconnect, token: at, .. } = &mut controller.remote
        {
            if at.is_some() {
                return Err(format!("controller {} has another connection", controller.config.target));
            }
            reconnect.connected(saved.connected_ms().min(now_ms));
            *at = Some(token);
        }
        let versions = self.versions;
        let id = self.with_mgr(|mgr, ctx| mgr.adopt(saved, versions, ctx, now_ms));
        self.mgr.configure_conn(id, settings);
        let mut link = Link::new(conn, Some(id), origin, now_ms);
        link.is_agreed = true;
        self.links.insert(token, link);
        Ok(())
    }
}

impl OpenFlow {
    /// Whether no connection of a bridge has something under way that keeps it from passing to another process.
    pub(crate) fn may_pass(&self) -> bool {
        self.bridges.values().all(OfBridge::may_pass)
    }

    /// The connections of all bridges for another process, with the last packets and reports in their output. This process
    /// serves them no longer.
    pub(crate) fn lend(
        &mut self,
        instances: &Instances,
        reactor: &mut Reactor,
        now_ms: u64,
    ) -> Vec<LentClient> {
        for instance in instances.iter() {
            while self.route(&instance.backer, reactor, now_ms) == Turn::MORE {}
        }
        let mut staying = Staying::new();
        let lent: Vec<LentClient> =
            self.bridges.values_mut().flat_map(|b| b.lend(&mut staying, now_ms)).collect();
        for (why, count) in staying {
            log::info!(target: "handover", "{count} OpenFlow connections end: {why}");
        }
        lent
    }

    /// State that controllers gave to bridges, besides rules, groups and meters.
    pub(crate) fn saved_bridges(&mut self) -> Vec<BridgeText> {
        let of = |b: &mut OfBridge| {
            let texts = b.with_mgr(|mgr, ctx| mgr.save_bridge(ctx)).texts();
            let bridge = b.name.clone();
            texts.into_iter().map(move |text| BridgeText { bridge: bridge.clone(), text }).collect::<Vec<_>>()
        };
        self.bridges.values_mut().flat_map(of).collect()
    }

    /// Goes on with state that controllers gave to a bridge in another process.
    ///
    /// # Errors
    /// The text is malformed.
    pub(crate) fn adopt_bridge(&mut self, saved: &BridgeText) -> Result<(), String> {
        let state = SavedBridge::parse(&saved.text)?;
        if let Some(b) = self.bridges.values_mut().find(|b| b.name() == saved.bridge) {
            b.with_mgr(|mgr, ctx| mgr.adopt_bridge(&state, ctx));
        }
        Ok(())
    }

    /// Goes on with connections of another process, whose place this one has taken.
    pub(crate) fn adopt(&mut self, clients: Vec<LentClient>, reactor: &mut Reactor, now_ms: u64) {
        let all = clients.len();
        let mut adopted = 0;
        for client in clients {
            let (name, origin) = (client.bridge.clone(), client.origin.clone());
            let done = match self.bridges.values_mut().find(|b| b.name() == name) {
                Some(b) => b.adopt(client, reactor, now_ms),
                None => Err("no such bridge".to_string()),
            };
            match done {
                Ok(()) => adopted += 1,
                Err(why) => {
                    log::warn!(target: "handover", "{name}: a connection of {origin} ends: {why}");
                }
            }
        }
        if all > 0 {
            log::info!(target: "handover", "{adopted} OpenFlow connections of {all} go on");
        }
    }
}

/// Whether a target is a Unix socket.
fn is_unix(target: &str) -> bool {
    matches!(Endpoint::parse(target, 0), Ok(Endpoint::Unix(_) | Endpoint::PassiveUnix(_)))
}
