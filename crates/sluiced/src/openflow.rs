//! Sockets of the OpenFlow connections: each bridge's management socket, the one for who watches its controllers, and those
//! controllers, active and passive.
//!
//! The protocol itself is [`Connmgr`]'s; here bytes are moved, connections made again, and events routed.

use super::instances::{Instance, Instances};
use super::reactor::Reactor;
use super::stream::{Conn, Endpoint, Listener};
use super::turn::Turn;
use dpif::Datapath;
use exchange::LIMITS;
use mio::Token;
use ofproto::backer::Backer;
use ofproto::connmgr::{
    AdminChange, BridgeCtx, ConnCounters, ConnId, ConnKind, Connmgr, FailMode, RemoteConfig, WORK_PER_TURN,
};
use ofproto::ports::BridgeId;
use openflow::budget::Budgets;
use openflow::msg::control::ControllerRole;
use openflow::msg::stats::SwitchDesc;
use openflow::reconnect::{Action, Reconnect};
use openflow::{Version, VersionSet};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use vswitch::config::{BridgeOptions, ControllerConfig, ControllerKind};
use vswitch::status::{ControllerFacts, ControllerRole as FactRole};

mod exchange;
#[cfg(test)]
mod tests;

/// Default port of controllers (IANA).
const DEFAULT_PORT: u16 = 6653;
/// Connections that a listener has at a time: others come by other listeners, so none is locked out by these.
const PER_LISTENER_MAX: usize = 128;
/// Packets for controllers routed at one turn.
const PACKET_INS_MAX: usize = 512;
/// Of these, so many before connections send: more at once may be more than may wait for one.
const PACKET_INS_PORTION: usize = 64;

/// Why a connection is over whose peer sends no more.
const CLOSED: &str = "connection closed by peer";
/// Why one is over whose peer takes no more.
const RESET: &str = "connection reset by peer";

/// A connection's socket and what it is to the bridge.
struct Link {
    conn: Conn,
    id: Option<ConnId>,
    origin: Origin,
    /// There may be something to read.
    unread: bool,
    /// It sends no more, for this reason: what it asked before is answered first.
    ended: Option<String>,
    /// It takes no more: what it asked before is done all the same.
    deaf: bool,
}

impl Link {
    /// It sends no more.
    fn end(&mut self, why: String) {
        (self.ended, self.unread) = (Some(why), false);
    }
}

/// Where a connection comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Origin {
    Management,
    Snoop,
    /// The target of a controller, which it was made to or came to.
    Controller(String),
}

impl Origin {
    fn target(&self) -> Option<&str> {
        match self {
            Origin::Controller(target) => Some(target),
            Origin::Management | Origin::Snoop => None,
        }
    }
}

enum Remote {
    Active { endpoint: Endpoint, reconnect: Reconnect, token: Option<Token> },
    Passive { listener: Option<Listener> },
}

struct Controller {
    config: ControllerConfig,
    remote: Remote,
    last_error: Option<String>,
}

struct OfBridge {
    id: BridgeId,
    run_dir: PathBuf,
    name: String,
    backer: Arc<Backer>,
    datapath: Arc<dyn Datapath>,
    datapath_id: u64,
    desc: SwitchDesc,
    versions: VersionSet,
    mgr: Connmgr,
    management: Option<Listener>,
    snoop: Option<Listener>,
    controllers: BTreeMap<String, Controller>,
    links: BTreeMap<Token, Link>,
    configured: Option<RemoteConfig>,
}

/// All bridges' connections.
pub(crate) struct OpenFlow {
    run_dir: PathBuf,
    bridges: BTreeMap<BridgeId, OfBridge>,
    /// The bridge whose connections had their turn last.
    served: Option<BridgeId>,
    budgets: Budgets,
}

impl OpenFlow {
    /// No bridges.
    pub(crate) fn new(run_dir: &Path) -> OpenFlow {
        OpenFlow {
            run_dir: run_dir.to_path_buf(),
            bridges: BTreeMap::new(),
            served: None,
            budgets: LIMITS.budgets(),
        }
    }

    /// Opens the sockets of a bridge of that instance: for management, and to watch its controllers.
    pub(crate) fn create(
        &mut self,
        bridge: BridgeId,
        name: &str,
        datapath_id: u64,
        instance: &Instance,
        reactor: &mut Reactor,
    ) {
        let mut listen = |suffix: &str| {
            let endpoint = Endpoint::PassiveUnix(self.run_dir.join(format!("{name}.{suffix}")));
            let token = reactor.token();
            let listener = Listener::open(&endpoint, reactor.registry(), token);
            if let Err(e) = &listener {
                log::warn!(target: "connmgr", "{name}: cannot listen at {endpoint}: {e}");
            }
            listener.ok().inspect(|_| log::debug!(target: "connmgr", "{name}: listening at {endpoint}"))
        };
        let (management, snoop) = (listen("mgmt"), listen("snoop"));
        if management.is_some() {
            let path = self.run_dir.join(format!("{name}.mgmt"));
            log::info!(target: "connmgr", "{name}: added service controller \"punix:{}\"", path.display());
        }
        let made = OfBridge {
            id: bridge,
            run_dir: self.run_dir.clone(),
            backer: instance.backer.clone(),
            datapath: instance.datapath.clone(),
            name: name.to_string(),
            datapath_id,
            desc: describe(None, None),
            versions: VersionSet::IMPLEMENTED,
            mgr: Connmgr::sharing(self.budgets.clone()),
            management,
            snoop,
            controllers: BTreeMap::new(),
            links: BTreeMap::new(),
            configured: None,
        };
        self.bridges.insert(bridge, made);
    }

    /// Closes all connections of a bridge, and ends what its controllers made outside its tables.
    pub(crate) fn destroy(&mut self, bridge: BridgeId, reactor: &Reactor) {
        if let Some(mut b) = self.bridges.remove(&bridge) {
            b.with_mgr(|mgr, ctx| mgr.shut_down(ctx));
            b.links.values_mut().for_each(|l| l.conn.close(reactor.registry()));
        }
    }

    /// Applies a bridge's settings.
    pub(crate) fn configure(
        &mut self,
        bridge: BridgeId,
        options: &BridgeOptions,
        datapath_id: u64,
        now_ms: u64,
    ) {
        let Some(b) = self.bridges.get_mut(&bridge) else { return };
        b.datapath_id = datapath_id;
        b.desc = describe(options.dp_desc.as_deref(), options.dp_sn.as_deref());
        let versions: Vec<Version> = options.protocols.iter().map(|v| Version(v.wire())).collect();
        b.versions = if versions.is_empty() { VersionSet::IMPLEMENTED } else { VersionSet::of(&versions) };
        let fail_mode = match options.fail_mode {
            vswitch::config::FailMode::Standalone => FailMode::Standalone,
            vswitch::config::FailMode::Secure => FailMode::Secure,
        };
        b.apply(|c| c.fail_mode = fail_mode, now_ms);
    }

    /// Replaces a bridge's controllers; those that stay keep their connections.
    pub(crate) fn set_controllers(
        &mut self,
        bridge: BridgeId,
        wanted: Vec<ControllerConfig>,
        reactor: &mut Reactor,
        now_ms: u64,
    ) {
        let Some(b) = self.bridges.get_mut(&bridge) else { return };
        let gone: Vec<String> = b
            .controllers
            .iter()
            .filter(|(target, _)| !wanted.iter().any(|w| w.target == **target))
            .map(|(target, _)| target.clone())
            .collect();
        for target in gone {
            b.controllers.remove(&target);
            let tokens: Vec<Token> =
                b.links.iter().filter(|(_, l)| l.origin.target() == Some(&target)).map(|(t, _)| *t).collect();
            for token in tokens {
                b.close(token, reactor, now_ms);
            }
        }
        let has_controllers = wanted.iter().any(|c| c.kind == ControllerKind::Primary);
        let probe_ms =
            wanted.iter().filter(|c| !c.is_passive()).map(|c| c.inactivity_probe_ms).max().unwrap_or(0);
        for config in wanted {
            b.add_controller(config, reactor, now_ms);
        }
        b.apply(
            |c| {
                c.has_controllers = has_controllers;
                c.max_probe_interval_ms = probe_ms;
            },
            now_ms,
        );
    }

    /// Breaks all connections of a bridge off (of all bridges, if none is named); those to controllers are made again.
    pub(crate) fn reconnect(&mut self, bridge: Option<&str>, reactor: &mut Reactor, now_ms: u64) {
        for b in self.bridges.values_mut().filter(|b| bridge.is_none_or(|name| b.name == name)) {
            let tokens: Vec<Token> = b.links.keys().copied().collect();
            for token in tokens {
                b.lost(token, "reconnection was asked for", reactor, now_ms);
            }
        }
    }

    /// Something happened to a socket; `false` when it is not one of these.
    pub(crate) fn event(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) -> bool {
        self.keep_bounds(reactor, now_ms);
        for b in self.bridges.values_mut() {
            if b.links.contains_key(&token) {
                b.ready(token, reactor, now_ms);
                return true;
            }
            if b.accept(token, reactor, now_ms) {
                return true;
            }
        }
        false
    }

    /// Routes events, takes the time, makes connections again, answers and sends, all within the bounds of a turn; bridges go
    /// first in turns.
    pub(crate) fn run(&mut self, instances: &Instances, reactor: &mut Reactor, now_ms: u64) -> Turn {
        let mut next: Turn = instances.iter().map(|i| self.route(&i.backer, reactor, now_ms)).collect();
        let mut work = WORK_PER_TURN;
        self.keep_bounds(reactor, now_ms);
        let after = self.bridges.range((Bound::Excluded(self.served.unwrap_or_default()), Bound::Unbounded));
        let ids: Vec<BridgeId> =
            after.chain(self.bridges.iter()).map(|(id, _)| *id).take(self.bridges.len()).collect();
        for id in ids {
            let Some(b) = self.bridges.get_mut(&id) else { continue };
            let had = work;
            b.reconnect(reactor, now_ms);
            b.with_mgr(|mgr, ctx| mgr.run_within(ctx, now_ms, &mut work));
            next = next.and(b.exchange_all(reactor, now_ms)).and(b.next());
            if work < had {
                self.served = Some(id);
            }
        }
        next.and(Turn::more_if(self.is_short()))
    }

    /// Hands packets for controllers to the bridges that they belong to.
    fn route(&mut self, backer: &Backer, reactor: &mut Reactor, now_ms: u64) -> Turn {
        for _ in 0..PACKET_INS_MAX / PACKET_INS_PORTION {
            let mut told = BTreeSet::new();
            let routed = backer.route_packet_ins(PACKET_INS_PORTION, |event| {
                if let Some(b) = self.bridges.get_mut(&event.state.bridge) {
                    b.mgr.deliver_packet_in(&event);
                    told.insert(b.id);
                }
            });
            for id in told {
                if let Some(b) = self.bridges.get_mut(&id) {
                    b.send_all(reactor, now_ms);
                }
            }
            if routed < PACKET_INS_PORTION {
                break;
            }
        }
        while let Some(fault) = backer.faults.pop() {
            log::warn!(target: "ofproto_dpif_xlate", "{fault}");
        }
        Turn::more_if(backer.packet_ins_waiting() > 0)
    }

    /// What the connections of all bridges counted.
    pub(crate) fn counters(&self) -> ConnCounters {
        let mut sum = ConnCounters::default();
        self.bridges.values().for_each(|b| sum.add(&b.mgr.counters()));
        sum
    }

    /// The ports whose devices controllers want up or down, in order, whatever the bridge.
    pub(crate) fn take_admin_changes(&mut self) -> Vec<AdminChange> {
        self.bridges.values_mut().flat_map(|b| b.mgr.take_admin_changes()).collect()
    }

    /// Tells controllers of ports that came, went or changed.
    pub(crate) fn ports_changed(
        &mut self,
        bridge: BridgeId,
        old: &ofproto::ports::PortTable,
        new: &ofproto::ports::PortTable,
        now_ms: u64,
    ) {
        let Some(b) = self.bridges.get_mut(&bridge) else { return };
        for (number, port) in &old.ports {
            if new.port(*number).is_none_or(|p| p.name != port.name) {
                b.mgr.port_changed(Some(port), None, now_ms);
            }
        }
        for (number, port) in &new.ports {
            match old.port(*number).filter(|p| p.name == port.name) {
                None => b.mgr.port_changed(None, Some(port), now_ms),
                Some(before) => b.mgr.port_changed(Some(before), Some(port), now_ms),
            }
        }
    }

    /// Facts about controllers, by the rows they come from.
    pub(crate) fn facts(&self, now_ms: u64) -> BTreeMap<ovsdb::value::Uuid, ControllerFacts> {
        self.bridges
            .values()
            .flat_map(|b| {
                b.controllers
                    .iter()
                    .map(move |(target, c)| (c.config.row, b.controller_facts(target, c, now_ms)))
            })
            .collect()
    }
}

impl OfBridge {
    fn with_mgr<R>(&mut self, f: impl FnOnce(&mut Connmgr, &BridgeCtx<'_>) -> R) -> R {
        let ctx = BridgeCtx {
            backer: &self.backer,
            datapath: &*self.datapath,
            bridge: self.id,
            datapath_id: self.datapath_id,
            desc: &self.desc,
        };
        f(&mut self.mgr, &ctx)
    }

    /// When its connections have something to do without an event.
    fn next(&self) -> Turn {
        let reconnects = self.controllers.values().map(|c| match &c.remote {
            Remote::Active { reconnect, .. } => Turn::from(reconnect.next_wakeup_ms()),
            Remote::Passive { .. } => Turn::DONE,
        });
        reconnects.chain([Turn::from(self.mgr.next_wakeup_ms())]).collect()
    }

    /// Changes what the manager knows of fail mode and controllers.
    fn apply(&mut self, change: impl FnOnce(&mut RemoteConfig), now_ms: u64) {
        let mut config = self.configured.unwrap_or_default();
        change(&mut config);
        if self.configured == Some(config) {
            return;
        }
        self.configured = Some(config);
        self.with_mgr(|mgr, ctx| mgr.configure(config, ctx, now_ms));
    }

    /// Keeps a controller that is not served, to say why.
    fn refuse_controller(&mut self, config: ControllerConfig, why: String) {
        let remote = Remote::Passive { listener: None };
        self.controllers.insert(config.target.clone(), Controller { config, remote, last_error: Some(why) });
    }

    fn add_controller(&mut self, config: ControllerConfig, reactor: &mut Reactor, now_ms: u64) {
        if let Some(known) = self.controllers.get_mut(&config.target) {
            if let Remote::Active { reconnect, .. } = &mut known.remote {
                reconnect.set_max_backoff_ms(config.max_backoff_ms);
            }
            known.config = config;
            return;
        }
        let target = config.target.clone();
        let mut last_error = None;
        let endpoint = Endpoint::parse(&target, DEFAULT_PORT).map(|e| match e {
            // A path without directory is one of the run directory.
            Endpoint::Unix(path) => Endpoint::Unix(self.run_dir.join(path)),
            other => other,
        });
        let remote = match endpoint {
            Ok(Endpoint::PassiveUnix(path)) if !self.may_listen_at(&path) => {
                let (name, dir) = (&self.name, self.run_dir.display());
                let may = format!("\"punix:{dir}/{name}.*\"");
                log::error!(target: "bridge", "bridge {name}: Not adding Unix domain socket controller \"{target}\" due to possibility of \
                    overwriting local files. Instead, specify path in permitted format {may} or connect to \
                    \"unix:{dir}/{name}.mgmt\" (which is always available without special configuration).");
                return self.refuse_controller(config, format!("not permitted: a socket must be at {may}"));
            }
            Ok(Endpoint::Unix(path)) if !self.may_connect_to(&path) => {
                let (name, dir) = (&self.name, self.run_dir.display());
                log::error!(target: "bridge", "bridge {name}: Not connecting to socket controller \"{target}\" due to possibility for \
                    remote exploit.  Instead, specify socket in permitted directory \"unix:{dir}/\" or connect to \
                    \"unix:{dir}/{name}.mgmt\" (which is always available without special configuration).");
                return self.refuse_controller(
                    config,
                    format!("not permitted: a socket must be in \"unix:{dir}/\""),
                );
            }
            Ok(endpoint) if endpoint.is_passive() => {
                let token = reactor.token();
                let listener = Listener::open(&endpoint, reactor.registry(), token);
                if let Err(e) = &listener {
                    log::warn!(target: "connmgr", "{}: cannot listen at {target}: {e}", self.name);
                    last_error = Some(e.to_string());
                }
                Remote::Passive { listener: listener.ok() }
            }
            Ok(endpoint) => {
                let mut reconnect = Reconnect::new(now_ms);
                reconnect.set_max_backoff_ms(config.max_backoff_ms);
                // The session probes for itself once it is up.
                reconnect.set_probe_interval_ms(0);
                reconnect.enable(now_ms);
                Remote::Active { endpoint, reconnect, token: None }
            }
            Err(e) => {
                log::warn!(target: "connmgr", "{}: controller {e}", self.name);
                last_error = Some(e.to_string());
                Remote::Passive { listener: None }
            }
        };
        log::info!(target: "connmgr", "{}: added {} controller \"{target}\"", self.name,
            if config.is_passive() { "service" } else { "primary" });
        self.controllers.insert(target, Controller { config, remote, last_error });
    }

    /// Whoever may write the database must not make files wherever the switch may: sockets are the bridge's own, in the run directory.
    fn may_listen_at(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_own =
            name.and_then(|name| name.strip_prefix(&self.name)).is_some_and(|rest| rest.starts_with('.'));
        is_own && path.parent() == Some(&self.run_dir)
    }

    /// Whether the bridge may connect to this socket: one of the run directory, so that what is in the database reaches no other.
    fn may_connect_to(&self, path: &Path) -> bool {
        let climbs = path.components().any(|c| c == Component::ParentDir);
        !climbs && path.parent().is_some_and(|dir| dir.starts_with(&self.run_dir))
    }

    /// Takes connections in; `false` when the token is none of this bridge's listeners.
    fn accept(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) -> bool {
        let is = |l: &Option<Listener>| l.as_ref().is_some_and(|l| l.token() == token);
        let (service, snoop) = (is(&self.management), is(&self.snoop));
        let passive =
            |c: &Controller| matches!(&c.remote, Remote::Passive { listener: Some(l) } if l.token() == token);
        let target = self.controllers.iter().find(|(_, c)| passive(c)).map(|(t, _)| t.clone());
        if !service && !snoop && target.is_none() {
            return false;
        }
        let listener = match &target {
            None if snoop => self.snoop.as_ref(),
            None => self.management.as_ref(),
            Some(t) => match self.controllers.get(t).map(|c| &c.remote) {
                Some(Remote::Passive { listener }) => listener.as_ref(),
                _ => None,
            },
        };
        let new = listener.map(|l| l.accept(reactor)).unwrap_or_default();
        // Who watches is sent what others agreed on, whatever the version.
        let (kind, versions) = match snoop {
            true => (ConnKind::Snoop, VersionSet::IMPLEMENTED),
            false => (ConnKind::Service, self.versions),
        };
        let probe_ms =
            target.as_ref().and_then(|t| self.controllers.get(t)).map(|c| c.config.inactivity_probe_ms);
        let origin = match target {
            Some(target) => Origin::Controller(target),
            None if snoop => Origin::Snoop,
            None => Origin::Management,
        };
        let mut room =
            PER_LISTENER_MAX.saturating_sub(self.links.values().filter(|l| l.origin == origin).count());
        for mut conn in new {
            if room == 0 {
                log::warn!(target: "connmgr", "{}: connection of {} refused: {PER_LISTENER_MAX} are open, which is the limit", self.name, conn.peer());
                reactor.counts.refused += 1;
                conn.close(reactor.registry());
                continue;
            }
            room -= 1;
            let id = self.mgr.open(kind, versions, now_ms);
            self.mgr.set_probe_interval(id, probe_ms.unwrap_or(0));
            let token = conn.token();
            let link =
                Link { conn, id: Some(id), origin: origin.clone(), unread: true, ended: None, deaf: false };
            self.links.insert(token, link);
            self.exchange(token, reactor, now_ms);
        }
        true
    }

    /// Starts connections whose time has come and breaks off attempts that take too long.
    fn reconnect(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let targets: Vec<String> = self.controllers.keys().cloned().collect();
        for target in targets {
            let Some(controller) = self.controllers.get_mut(&target) else { continue };
            let Remote::Active { endpoint, reconnect, token } = &mut controller.remote else { continue };
            match reconnect.run(now_ms) {
                Some(Action::Connect) => {
                    let new = reactor.token();
                    reconnect.connecting(now_ms);
                    match Conn::connect(endpoint, reactor.registry(), new) {
                        Ok(conn) => {
                            *token = Some(new);
                            let origin = Origin::Controller(target);
                            let link =
                                Link { conn, id: None, origin, unread: false, ended: None, deaf: false };
                            self.links.insert(new, link);
                        }
                        Err(e) => {
                            reconnect.disconnected(now_ms);
                            controller.last_error = Some(e.to_string());
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

    fn controller_facts(&self, target: &str, c: &Controller, now_ms: u64) -> ControllerFacts {
        let up = |l: &&Link| l.origin.target() == Some(target) && l.id.is_some();
        let status = self.links.values().find(up).and_then(|l| self.mgr.status(l.id?));
        let is_connected = status.is_some_and(|s| s.version.is_some());
        let role = status.filter(|_| is_connected).map(|s| match s.role {
            ControllerRole::Master => FactRole::Primary,
            ControllerRole::Slave => FactRole::Secondary,
            _ => FactRole::Other,
        });
        let mut facts = ControllerFacts { is_connected, role, ..ControllerFacts::default() };
        let mut say = |k: &str, v: String| facts.status.insert(k.to_string(), v);
        if let Remote::Active { reconnect, .. } = &c.remote {
            say("state", reconnect.state().name().to_string());
            if let Some(at) = reconnect.last_connected_ms() {
                say("sec_since_connect", (now_ms.saturating_sub(at) / 1000).to_string());
            }
            if let Some(at) = reconnect.last_disconnected_ms() {
                say("sec_since_disconnect", (now_ms.saturating_sub(at) / 1000).to_string());
            }
        }
        if let Some(error) = c.last_error.as_ref().filter(|_| !is_connected) {
            say("last_error", error.clone());
        }
        facts
    }
}

/// What OpenFlow's description tells: the texts that tools compare.
fn describe(datapath: Option<&str>, serial: Option<&str>) -> SwitchDesc {
    SwitchDesc {
        manufacturer: "Nicira, Inc.".to_string(),
        hardware: "Open vSwitch".to_string(),
        software: "3.5.4".to_string(),
        serial: serial.unwrap_or("None").to_string(),
        datapath: datapath.unwrap_or("None").to_string(),
    }
}
