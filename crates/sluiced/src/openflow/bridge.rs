//! [`OfBridge`]: the OpenFlow connections of one bridge: accepts, reads, sends and closes. [`remotes`] has controllers.

mod remotes;

use super::controller::{Controller, Remote};
use super::flush::Flushes;
use super::link::{CLOSED, EVICTED, Link, Origin, RESET};
use super::{OpenFlowOptions, rconn_log};
use crate::instances::Instance;
use crate::places::to_evict;
use crate::port_changes::differing;
use crate::reactor::Reactor;
use crate::stream::{Endpoint, Listener, NO_DSCP};
use crate::turn::Turn;
use connmgr::{
    AdminChange, BridgeCtx, ConnCounters, ConnKind, ConnSettings, Connmgr, FailEvent, FailMode, Held,
    InBandConfig, Refusal, RefusedPart, RemoteConfig, SavedState, StateChanges,
};
use dpif::Datapath;
use log::LevelFilter;
use mio::Token;
use ofproto::backer::Backer;
use ofproto::events::PacketInEvent;
use ofproto::ports::{BridgeId, Port, PortTable};
use ofproto::revalidate::{Few, change_at_once};
use openflow::budget::Budgets;
use openflow::message_log::Direction;
use openflow::msg::stats::SwitchDesc;
use openflow::session::CloseReason;
use openflow::text::describe as describe_message;
use openflow::{Version, VersionSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sync::Ordering;
use vlog::vlog;
use vswitch::config::ControllerKind;

/// Maximum connections of a listener: other listeners have their own limit, so they are not locked out.
const PER_LISTENER_MAX: usize = 128;

/// The sockets of one bridge: management, snoop, and controllers.
///
/// Output stays in [`Connmgr`], where it is counted, until the socket accepts it. Input is read only while there is
/// memory for it.
pub(super) struct OfBridge {
    id: BridgeId,
    run_dir: PathBuf,
    pub(super) name: String,
    backer: Arc<Backer>,
    datapath: Arc<dyn Datapath>,
    datapath_id: u64,
    desc: SwitchDesc,
    pub(super) versions: VersionSet,
    pub(super) mgr: Connmgr,
    flushes: Flushes,
    management: Option<Listener>,
    snoop: Option<Listener>,
    pub(super) controllers: BTreeMap<String, Controller>,
    pub(super) links: BTreeMap<Token, Link>,
    configured: Option<RemoteConfig>,
    /// In-band control is not disabled.
    has_in_band: bool,
    managers: BTreeSet<SocketAddrV4>,
    in_band: InBandConfig,
    /// Time of looking for next hops; `None` without in-band control.
    resolves_at_ms: Option<u64>,
}

impl OfBridge {
    /// A bridge of that instance, without sockets.
    pub(super) fn new(
        id: BridgeId,
        name: &str,
        run_dir: &Path,
        datapath_id: u64,
        instance: &Instance,
        budgets: &Budgets,
    ) -> OfBridge {
        OfBridge {
            id,
            run_dir: run_dir.to_path_buf(),
            backer: instance.backer.clone(),
            datapath: instance.datapath.clone(),
            name: name.to_string(),
            datapath_id,
            desc: describe(None, None),
            versions: VersionSet::IMPLEMENTED,
            mgr: Connmgr::sharing(budgets.clone()),
            flushes: Flushes::default(),
            management: None,
            snoop: None,
            controllers: BTreeMap::new(),
            links: BTreeMap::new(),
            configured: None,
            has_in_band: true,
            managers: BTreeSet::new(),
            in_band: InBandConfig::default(),
            resolves_at_ms: None,
        }
    }

    /// Opens its sockets: management and snoop.
    pub(super) fn listen(&mut self, reactor: &mut Reactor) {
        let (name, run_dir) = (&self.name, &self.run_dir);
        let mut listen = |suffix: &str| {
            let endpoint = Endpoint::PassiveUnix(run_dir.join(format!("{name}.{suffix}")));
            let token = reactor.token();
            let listener = Listener::open_in(&endpoint, NO_DSCP, reactor, token);
            if let Err(e) = &listener {
                log::warn!(target: "connmgr", "{name}: cannot listen at {endpoint}: {e}");
            }
            listener.ok().inspect(|_| log::debug!(target: "connmgr", "{name}: listening at {endpoint}"))
        };
        (self.management, self.snoop) = (listen("mgmt"), listen("snoop"));
        if self.management.is_some() {
            let path = run_dir.join(format!("{name}.mgmt"));
            log::info!(target: "connmgr", "{name}: added service controller \"punix:{}\"", path.display());
        }
    }

    /// Its listening sockets.
    pub(super) fn listeners(&mut self) -> impl Iterator<Item = &mut Listener> {
        let passive = self.controllers.values_mut().filter_map(|controller| match &mut controller.remote {
            Remote::Passive { listener } => listener.as_mut(),
            Remote::Active { .. } => None,
        });
        self.management.iter_mut().chain(&mut self.snoop).chain(passive)
    }

    /// Closes all connections, and removes the bridge's meters.
    pub(super) fn shut_down(mut self, reactor: &Reactor) -> ConnCounters {
        self.with_mgr(|mgr, ctx| mgr.shut_down(ctx));
        self.links.values_mut().for_each(|l| l.conn.close(reactor.registry()));
        self.counters()
    }

    /// Applies the settings of the bridge.
    pub(super) fn configure(&mut self, options: &OpenFlowOptions<'_>, now_ms: u64) {
        let OpenFlowOptions {
            datapath_id,
            fail_mode,
            protocols,
            disable_in_band,
            in_band_queue,
            dp_desc,
            dp_sn,
        } = *options;
        self.datapath_id = datapath_id;
        self.desc = describe(dp_desc, dp_sn);
        let versions: Vec<Version> = protocols.iter().map(|v| Version(v.wire())).collect();
        self.versions = if versions.is_empty() { VersionSet::IMPLEMENTED } else { VersionSet::of(&versions) };
        self.apply(|c| c.fail_mode = mode_of(fail_mode), now_ms);
        self.has_in_band = !disable_in_band;
        self.change_in_band(|c| c.queue = in_band_queue, now_ms);
        self.find_remotes(now_ms);
    }

    /// Begins with saved state, under the configuration that follows: a change of it would flush the rules.
    pub(super) fn restore(
        &mut self,
        saved: &SavedState,
        (fail_mode, has_controllers): (vswitch::config::FailMode, bool),
        until_admitted: bool,
        now_ms: u64,
    ) -> Vec<RefusedPart> {
        let configure = |c: &mut RemoteConfig| {
            (c.fail_mode, c.has_controllers) = (mode_of(fail_mode), has_controllers);
        };
        self.apply(configure, now_ms);
        self.with_mgr(|mgr, ctx| mgr.restore(saved, until_admitted, ctx, now_ms))
    }

    /// Follows changes of the state in another process; returns refused parts.
    pub(super) fn follow(&mut self, changes: &StateChanges, now_ms: u64) -> Vec<RefusedPart> {
        self.with_mgr(|mgr, ctx| mgr.follow(changes, ctx, now_ms))
    }

    /// Name of the bridge.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Number of open connections.
    pub(super) fn links(&self) -> usize {
        self.links.len()
    }

    /// Closes all connections; reconnects to controllers.
    pub(super) fn break_off(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let tokens: Vec<Token> = self.links.keys().copied().collect();
        for token in tokens {
            self.lost(token, "reconnection was asked for", reactor, now_ms);
        }
    }

    /// Handles a socket event; `false` for a token of others.
    pub(super) fn event(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) -> bool {
        if self.links.contains_key(&token) {
            self.ready(token, reactor, now_ms);
            return true;
        }
        self.accept(token, reactor, now_ms)
    }

    /// Reconnects, processes requests within `work`, and moves bytes.
    pub(super) fn run(&mut self, work: &mut usize, reactor: &mut Reactor, now_ms: u64) -> Turn {
        self.mgr.keep_messages(vlog().wants("vconn", LevelFilter::Debug));
        self.reconnect(reactor, now_ms);
        self.change_rules(now_ms, work);
        let flushes = self.flushes.run(&mut self.mgr, &self.datapath, now_ms);
        self.log_fail_mode();
        for link in self.links.values_mut() {
            if link.id.is_some_and(|id| self.mgr.is_agreed(id)) {
                rconn_log::agreed(&self.name, &link.conn.label(), link);
            }
            log_messages(&self.name, &mut self.mgr, link);
            let report = link.id.and_then(|id| self.mgr.take_mod_report(id, now_ms));
            log_mods(&self.name, link, report);
        }
        self.exchange_all(reactor, now_ms).and(self.next()).and(flushes)
    }

    /// Processes requests within `work`. The datapath follows before the replies, and without the revalidator if that is
    /// little work.
    fn change_rules(&mut self, now_ms: u64, work: &mut usize) {
        let reclaimer = self.backer.reclaimer.clone();
        let held = reclaimer.hold();
        let epoch = self.backer.epoch();
        self.with_mgr(|mgr, ctx| mgr.run_within(ctx, now_ms, work));
        if self.backer.epoch() != epoch {
            change_at_once(&self.backer, &*self.datapath, Few::FOR_OTHERS, now_ms);
        }
        drop(held);
    }

    fn log_fail_mode(&mut self) {
        let name = &self.name;
        for event in self.mgr.take_fail_events() {
            match event {
                FailEvent::Entered(s) => log::warn!(target: "fail_open",
                    "{name}: no controller connected and admitted this bridge for {s} seconds, failing open"),
                FailEvent::Still(s) => log::warn!(target: "fail_open",
                    "{name}: still in fail-open mode after {s} seconds without a controller"),
                FailEvent::Left => log::warn!(target: "fail_open", "{name}: no longer in fail-open mode"),
            }
        }
    }

    /// Passes a packet to the controllers.
    pub(super) fn deliver_packet_in(&mut self, event: &PacketInEvent, now_ms: u64) {
        self.mgr.deliver_packet_in(event, now_ms);
    }

    /// The smallest number of packet-ins that may overflow the queue of a connection.
    pub(super) fn packet_in_room(&self) -> Option<usize> {
        self.mgr.packet_in_room()
    }

    /// Counters of its connections.
    pub(super) fn counters(&self) -> ConnCounters {
        self.mgr.counters()
    }

    /// The ports whose devices controllers set up or down, in order.
    pub(super) fn take_admin_changes(&mut self) -> Vec<AdminChange> {
        self.mgr.take_admin_changes()
    }

    /// The connection that holds the most memory of a kind.
    pub(super) fn greatest(&self, of: fn(Held) -> usize) -> Option<(usize, Token)> {
        let held = |l: &Link| l.id.and_then(|id| self.mgr.held(id)).map_or(0, of);
        self.links.iter().map(|(token, l)| (held(l), *token)).max()
    }

    /// Closes a connection because memory is short, and logs the reason.
    pub(super) fn cut_off(&mut self, token: Token, why: &str, reactor: &mut Reactor, now_ms: u64) {
        let peer = self.links.get(&token).map(|l| l.conn.peer()).unwrap_or_default();
        log::warn!(target: "connmgr", "{}<->{peer}: connection ended: {why}", self.name);
        reactor.counts.cut_off += 1;
        self.lost(token, &CloseReason::MemoryShort.to_string(), reactor, now_ms);
    }

    /// Reports added, removed and changed ports to controllers.
    pub(super) fn ports_changed(&mut self, old: &PortTable, new: &PortTable, now_ms: u64) {
        let differing = differing(old, new);
        let is_same = |a: &&Arc<Port>, b: Option<&Arc<Port>>| b.is_some_and(|b| a.name == b.name);
        for (before, now) in &differing {
            if let Some(port) = before.filter(|before| !is_same(before, *now)) {
                self.mgr.port_changed(Some(port), None, now_ms);
            }
        }
        for (before, now) in differing {
            let Some(port) = now else { continue };
            let before = before.filter(|before| is_same(before, now));
            if before.is_some_and(|p| p.may_enable()) != port.may_enable() {
                self.backer.revisions.toggled.fetch_add(1, Ordering::Relaxed);
            }
            self.mgr.port_changed(before.map(|before| &**before), Some(port), now_ms);
        }
    }

    /// Reports that a link protocol changed the liveness of a port, or its state in a spanning tree.
    pub(super) fn port_toggled(&mut self, port: &Port, tree_changed: bool) {
        self.mgr.port_toggled(port, tree_changed);
    }

    pub(super) fn with_mgr<R>(&mut self, f: impl FnOnce(&mut Connmgr, &BridgeCtx<'_>) -> R) -> R {
        let ctx = BridgeCtx {
            backer: &self.backer,
            datapath: &*self.datapath,
            bridge: self.id,
            datapath_id: self.datapath_id,
            desc: &self.desc,
        };
        f(&mut self.mgr, &ctx)
    }

    /// Time of its connections' next work without an event.
    fn next(&self) -> Turn {
        let reconnects = self.controllers.values().map(|c| match &c.remote {
            Remote::Active { reconnect, .. } => Turn::from(reconnect.next_wakeup_ms()),
            Remote::Passive { .. } => Turn::DONE,
        });
        let own = [self.mgr.next_wakeup_ms(), self.resolves_at_ms].map(Turn::from);
        reconnects.chain(own).collect()
    }

    /// Updates the manager's fail mode and controllers.
    fn apply(&mut self, change: impl FnOnce(&mut RemoteConfig), now_ms: u64) {
        let mut config = self.configured.unwrap_or_default();
        change(&mut config);
        if self.configured == Some(config) {
            return;
        }
        self.configured = Some(config);
        self.with_mgr(|mgr, ctx| mgr.configure(config, ctx, now_ms));
    }

    /// Accepts connections; `false` if the token is none of this bridge's listeners.
    fn accept(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) -> bool {
        let is = |l: &Option<Listener>| l.as_ref().is_some_and(|l| l.owns(token));
        let (service, snoop) = (is(&self.management), is(&self.snoop));
        let passive =
            |c: &Controller| matches!(&c.remote, Remote::Passive { listener: Some(l) } if l.owns(token));
        let target = self.controllers.iter().find(|(_, c)| passive(c)).map(|(t, _)| t.clone());
        if !service && !snoop && target.is_none() {
            return false;
        }
        let listener = match &target {
            None if snoop => self.snoop.as_mut(),
            None => self.management.as_mut(),
            Some(t) => match self.controllers.get_mut(t).map(|c| &mut c.remote) {
                Some(Remote::Passive { listener }) => listener.as_mut(),
                _ => None,
            },
        };
        let new = listener.map(|l| l.serve(token, reactor)).unwrap_or_default();
        // A snoop gets the messages of others in any version.
        let (kind, versions) = match snoop {
            true => (ConnKind::Snoop, VersionSet::IMPLEMENTED),
            false => (ConnKind::Service, self.versions),
        };
        let controller = target.as_ref().and_then(|t| self.controllers.get(t));
        let settings = controller.map_or_else(ConnSettings::default, Controller::settings);
        let origin = match target {
            Some(target) => Origin::Controller(target),
            None if snoop => Origin::Snoop,
            None => Origin::Management,
        };
        for mut conn in new {
            if !self.make_place(&origin, reactor, now_ms) {
                log::warn!(target: "connmgr", "{}: connection of {} refused: {PER_LISTENER_MAX} are open and in use, which is the limit", self.name, conn.peer());
                reactor.counts.refused += 1;
                conn.close(reactor.registry());
                continue;
            }
            let id = self.mgr.open(kind, versions, now_ms);
            self.mgr.configure_conn(id, settings);
            let token = conn.token();
            let link = Link::new(conn, Some(id), origin.clone(), now_ms);
            rconn_log::accepted(&self.name, &link.conn.label());
            self.links.insert(token, link);
            self.exchange(token, reactor, now_ms);
        }
        true
    }

    /// Whether there is a place for another connection of that origin: at the limit, one without progress ends for it.
    fn make_place(&mut self, origin: &Origin, reactor: &mut Reactor, now_ms: u64) -> bool {
        let same = || self.links.values().filter(|l| l.origin == *origin);
        // Those whose peers are gone end by themselves, and may be as many.
        let (all, deaf) = (same().count(), same().filter(|l| l.deaf).count());
        if all - deaf < PER_LISTENER_MAX && deaf < PER_LISTENER_MAX {
            return true;
        }
        let Some(token) = to_evict(same().map(|l| l.place(&self.mgr))) else { return false };
        let peer = self.links.get(&token).map(|l| l.conn.label()).unwrap_or_default();
        log::warn!(target: "connmgr", "{}<->{peer}: connection closed for a new one: it made no progress for the longest time, at the limit of {PER_LISTENER_MAX} connections", self.name);
        reactor.counts.evicted += 1;
        self.lost(token, EVICTED, reactor, now_ms);
        true
    }

    /// A connection is readable or writable.
    fn ready(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        (link.unread, link.full) = (link.ended.is_none(), false);
        if link.id.is_none() && !self.came_up(token, reactor, now_ms) {
            return;
        }
        if reactor.is_gone(token)
            && let Some(link) = self.links.get_mut(&token)
        {
            link.deafen(&mut self.mgr);
        }
        self.exchange(token, reactor, now_ms);
    }

    /// Sends a connection's output, and reads once if its input is wanted. [`Connmgr::run`] processes the requests.
    fn exchange(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) {
        // Send unread output of a slow reader first: its requests wait until there is space for their replies.
        self.send(token, reactor, now_ms);
        let Some(link) = self.links.get_mut(&token) else { return };
        let Some(id) = link.id else { return };
        let over = match link.deaf {
            true => !link.unread && !self.mgr.is_busy(id),
            false => link.ended.is_some() && !self.mgr.is_busy(id) && self.mgr.output(id).is_empty(),
        };
        if over {
            let why = link.ended.clone().unwrap_or_else(|| RESET.to_string());
            return self.lost(token, &why, reactor, now_ms);
        }
        if !link.unread || !self.mgr.wants_input(id) {
            return;
        }
        match link.conn.read(reactor) {
            Ok(Some((bytes, more))) => {
                link.unread = more;
                if !bytes.is_empty() {
                    link.progress_ms = now_ms;
                }
                self.mgr.input(id, bytes, now_ms);
            }
            Ok(None) => link.end(CLOSED.to_string()),
            Err(e) => {
                link.end(e.to_string());
                link.deafen(&mut self.mgr);
            }
        }
    }

    /// Whether a pending connection is established (`true`), pending, or failed.
    fn came_up(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) -> bool {
        let Some(link) = self.links.get_mut(&token) else { return false };
        match link.conn.connected(reactor) {
            Ok(false) => return false,
            Err(e) => {
                self.lost(token, &e.to_string(), reactor, now_ms);
                return false;
            }
            Ok(true) => {}
        }
        let Some(controller) = link.origin.target().and_then(|t| self.controllers.get_mut(t)) else {
            return false;
        };
        if let Remote::Active { reconnect, .. } = &mut controller.remote {
            reconnect.connected(now_ms);
        }
        rconn_log::connected(&self.name, &controller.config.target);
        let kind = match controller.config.kind {
            ControllerKind::Primary => ConnKind::Controller,
            ControllerKind::Service => ConnKind::Service,
        };
        let id = self.mgr.open(kind, self.versions, now_ms);
        self.mgr.configure_conn(id, controller.settings());
        link.id = Some(id);
        true
    }

    /// Sends a connection's output, and closes it when it is over.
    fn send(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let Some(id) = link.id else { return };
        if self.mgr.take_packet_in_overflow(id) {
            log::info!(target: "connmgr", "{}<->{}: dropping packet-in due to queue overflow", self.name, link.conn.peer());
        }
        // A snoop that does not read stays as it is: nothing waits for its output.
        let watches = link.origin == Origin::Snoop;
        if watches && link.deaf {
            return self.lost(token, RESET, reactor, now_ms);
        }
        if let Some(reason) = self.mgr.close_reason(id).filter(|_| watches) {
            return self.lost(token, &reason.to_string(), reactor, now_ms);
        }
        if !link.deaf && !link.full {
            match link.conn.send_some(self.mgr.output(id), reactor.registry()) {
                Ok(0) => link.full = !self.mgr.output(id).is_empty(),
                Ok(bytes) => {
                    link.full = bytes < self.mgr.output(id).len();
                    link.progress_ms = now_ms;
                    self.mgr.consume_output(id, bytes);
                }
                Err(_) if watches => return self.lost(token, RESET, reactor, now_ms),
                Err(_) => link.deafen(&mut self.mgr),
            }
        }
        let has_all = self.mgr.output(id).is_empty();
        if let Some(reason) = self.mgr.close_reason(id).filter(|why| has_all || why.closes_immediately()) {
            self.over(token, reason, reactor, now_ms);
        }
    }

    /// A session has ended and its last output is sent.
    fn over(&mut self, token: Token, reason: CloseReason, reactor: &mut Reactor, now_ms: u64) {
        if reason == CloseReason::ProbeTimeout
            && let Some(link) = self.links.get(&token)
            && let Some(c) =
                link.origin.target().and_then(|t| self.controllers.get(t)).filter(|c| c.config.is_passive())
        {
            let seconds = c.config.inactivity_probe_ms as f64 / 1000.0;
            let (name, peer) = (&self.name, link.conn.peer());
            reactor.counts.probes_failed += 1;
            log::error!(target: "rconn", "{name}<->{peer}: no response to inactivity probe after {seconds} seconds, disconnecting");
        }
        if reason.closes_immediately()
            && let Some(link) = self.links.get(&token)
        {
            reactor.counts.cut_off += 1;
            log::warn!(target: "connmgr", "{}<->{}: connection ended: {reason}", self.name, link.conn.peer());
        }
        self.lost(token, &reason.to_string(), reactor, now_ms);
    }

    /// Sends the output of all connections.
    pub(super) fn send_all(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let has = |l: &Link| l.id.is_some_and(|id| !self.mgr.output(id).is_empty());
        let tokens: Vec<Token> = self.links.iter().filter(|(_, l)| has(l)).map(|(t, _)| *t).collect();
        for token in tokens {
            self.send(token, reactor, now_ms);
        }
    }

    /// Moves the bytes of all connections.
    fn exchange_all(&mut self, reactor: &mut Reactor, now_ms: u64) -> Turn {
        let tokens: Vec<Token> = self.links.keys().copied().collect();
        for token in tokens {
            self.exchange(token, reactor, now_ms);
        }
        let can_read = |l: &Link| l.unread && l.id.is_some_and(|id| self.mgr.wants_input(id));
        Turn::more_if(self.links.values().any(can_read))
    }

    /// Handles the end of a connection; an active one reconnects later.
    fn lost(&mut self, token: Token, why: &str, reactor: &mut Reactor, now_ms: u64) {
        let Some(link) = self.links.get(&token) else { return };
        let (target, was_up) = (link.origin.target().map(str::to_string), link.id.is_some());
        let peer = link.conn.label();
        self.close(token, reactor, now_ms);
        let controller = target.and_then(|t| self.controllers.get_mut(&t));
        let Some(Controller {
            remote: Remote::Active { reconnect, token: at, .. }, config, last_error, ..
        }) = controller
        else {
            return rconn_log::over(&self.name, &peer, why);
        };
        *at = None;
        let before_ms = reconnect.backoff_ms();
        reconnect.disconnected(now_ms);
        rconn_log::lost(&self.name, &config.target, was_up, why, before_ms, reconnect);
        *last_error = Some(why.to_string());
    }

    fn close(&mut self, token: Token, reactor: &Reactor, now_ms: u64) {
        let Some(mut link) = self.links.remove(&token) else { return };
        log_messages(&self.name, &mut self.mgr, &link);
        link.conn.close(reactor.registry());
        if let Some(id) = link.id {
            log_mods(&self.name, &link, self.mgr.take_last_mod_report(id, now_ms));
            self.with_mgr(|mgr, ctx| mgr.close(id, ctx, now_ms));
        }
    }
}

/// Logs the report about a connection's flow-mods.
fn log_mods(bridge: &str, link: &Link, report: Option<String>) {
    if let Some(report) = report {
        log::info!(target: "connmgr", "{bridge}<->{}: {report}", link.conn.label());
    }
}

/// Logs the errors that a connection was sent, and its messages, as far as they are kept.
fn log_messages(bridge: &str, mgr: &mut Connmgr, link: &Link) {
    let Some(id) = link.id else { return };
    let (refusals, kept) = (mgr.take_refusals(id), mgr.take_messages(id));
    if refusals.is_empty() && kept.is_none() {
        return;
    }
    let peer = link.conn.label();
    for Refusal { kind, request } in refusals {
        log::info!(target: "connmgr", "{bridge}<->{peer}: sending {kind} error reply to {request} message");
    }
    let Some((kept, version, options)) = kept else { return };
    for (direction, frame) in &kept.messages {
        let text = describe_message(frame, &options);
        match direction {
            Direction::Received => log::debug!(target: "vconn", "{peer}: received: {text}"),
            Direction::Sent => log::debug!(target: "vconn", "{peer}: sent (Success): {text}"),
        }
        if let (Direction::Received, [theirs, 0, ..], Some(version)) = (direction, &frame[..], version) {
            log::debug!(
                target: "vconn",
                "{peer}: negotiated OpenFlow version 0x{:02x} (we support version 0x06 and earlier, peer supports version 0x{theirs:02x})",
                version.0
            );
        }
    }
    if kept.left_out > 0 {
        log::debug!(target: "vconn", "{peer}: {} further messages are not logged", kept.left_out);
    }
}

fn mode_of(configured: vswitch::config::FailMode) -> FailMode {
    match configured {
        vswitch::config::FailMode::Standalone => FailMode::Standalone,
        vswitch::config::FailMode::Secure => FailMode::Secure,
    }
}

/// OpenFlow's switch description: tools compare these texts.
fn describe(datapath: Option<&str>, serial: Option<&str>) -> SwitchDesc {
    SwitchDesc {
        manufacturer: "Nicira, Inc.".to_string(),
        hardware: "Open vSwitch".to_string(),
        software: "3.5.4".to_string(),
        serial: serial.unwrap_or("None").to_string(),
        datapath: datapath.unwrap_or("None").to_string(),
    }
}
