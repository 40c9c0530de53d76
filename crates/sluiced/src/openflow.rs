//! The OpenFlow connections of all bridges.
//!
//! [`Connmgr`](connmgr::Connmgr) implements the protocol; this module moves bytes, reconnects, and routes
//! events. If memory is short, it closes the connection that holds most, over all bridges, before the next turn, and
//! logs the reason.

use super::instances::{Instance, Instances};
use super::next_hops::NextHops;
use super::reactor::Reactor;
use super::stream::Listener;
use super::trace_text::failed_text;
use super::turn::Turn;
use bridge::OfBridge;
pub(crate) use clients::{BridgeText, LentClient};
use connmgr::{AdminChange, ConnCounters, Held, RefusedPart, SavedState, StateChanges, WORK_PER_TURN};
use mio::Token;
use ofproto::backer::Backer;
use ofproto::ports::{BridgeId, Port, PortTable};
use openflow::budget::Budgets;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use vswitch::config::{ControllerConfig, FailMode, OpenFlowVersion};
use vswitch::status::ControllerFacts;

mod bridge;
mod clients;
mod controller;
mod flush;
mod link;
mod rconn_log;
#[cfg(test)]
mod tests;

/// Packets for controllers routed at one turn.
const PACKET_INS_MAX: usize = 512;
/// Maximum number of these before connections send; fewer if the queue of a connection is shorter.
const PACKET_INS_PORTION: usize = 64;

/// Memory limits for the connections of all bridges.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Unprocessed input: partial messages, bundles.
    input_bytes: usize,
    /// Unread output.
    output_bytes: usize,
}

const LIMITS: Limits = Limits { input_bytes: 512 << 20, output_bytes: 256 << 20 };

impl Limits {
    fn budgets(self) -> Budgets {
        Budgets::new(self.input_bytes, self.output_bytes)
    }
}

/// Settings of a bridge for its controllers.
pub(crate) struct OpenFlowOptions<'a> {
    /// Its datapath id.
    pub(crate) datapath_id: u64,
    /// Its behaviour without a controller.
    pub(crate) fail_mode: FailMode,
    /// Versions spoken, oldest first.
    pub(crate) protocols: &'a [OpenFlowVersion],
    /// Has no hidden rules for in-band control.
    pub(crate) disable_in_band: bool,
    /// Queue of packets of in-band control.
    pub(crate) in_band_queue: Option<u32>,
    /// Description.
    pub(crate) dp_desc: Option<&'a str>,
    /// Serial number.
    pub(crate) dp_sn: Option<&'a str>,
}

/// The connections of all bridges.
pub(crate) struct OpenFlow {
    run_dir: PathBuf,
    /// Reads the next hops that the kernel knows.
    next_hops: fn() -> NextHops,
    /// Addresses of managers whose connections may pass through bridges.
    managers: BTreeSet<SocketAddrV4>,
    bridges: BTreeMap<BridgeId, OfBridge>,
    /// Counters of bridges that were removed.
    gone: ConnCounters,
    /// The bridge served last.
    served: Option<BridgeId>,
    budgets: Budgets,
    /// Bridges have sockets.
    is_open: bool,
    /// Controllers of bridges, until they have.
    waiting: BTreeMap<BridgeId, Vec<ControllerConfig>>,
}

impl OpenFlow {
    /// No bridges. `next_hops` reads what the kernel knows of the bridges' devices. Unless it `is_open`, bridges have no
    /// sockets and no controllers until [`OpenFlow::open`].
    pub(crate) fn new(run_dir: &Path, next_hops: fn() -> NextHops, is_open: bool) -> OpenFlow {
        OpenFlow {
            run_dir: run_dir.to_path_buf(),
            next_hops,
            managers: BTreeSet::new(),
            bridges: BTreeMap::new(),
            gone: ConnCounters::default(),
            served: None,
            budgets: LIMITS.budgets(),
            is_open,
            waiting: BTreeMap::new(),
        }
    }

    /// Bridges made from now on have no sockets and no controllers until [`OpenFlow::open`].
    pub(crate) fn close(&mut self) {
        self.is_open = false;
    }

    /// Gives all bridges their sockets and controllers.
    pub(crate) fn open(&mut self, reactor: &mut Reactor, now_ms: u64) {
        if std::mem::replace(&mut self.is_open, true) {
            return;
        }
        self.bridges.values_mut().for_each(|b| b.listen(reactor));
        for (bridge, controllers) in std::mem::take(&mut self.waiting) {
            self.set_controllers(bridge, controllers, reactor, now_ms);
        }
    }

    /// Opens the sockets of a bridge of that instance: management and snoop.
    pub(crate) fn create(
        &mut self,
        bridge: BridgeId,
        name: &str,
        datapath_id: u64,
        instance: &Instance,
        reactor: &mut Reactor,
    ) {
        let mut made = OfBridge::new(bridge, name, &self.run_dir, datapath_id, instance, &self.budgets);
        if self.is_open {
            made.listen(reactor);
        }
        self.bridges.insert(bridge, made);
    }

    /// The listening sockets of all bridges.
    pub(crate) fn listeners(&mut self) -> impl Iterator<Item = &mut Listener> {
        self.bridges.values_mut().flat_map(OfBridge::listeners)
    }

    /// Gives a new bridge saved state, in its configured fail mode, with or without controllers; returns refused parts.
    pub(crate) fn restore(
        &mut self,
        bridge: BridgeId,
        saved: &SavedState,
        (fail_mode, has_controllers): (FailMode, bool),
        until_admitted: bool,
        now_ms: u64,
    ) -> Vec<RefusedPart> {
        let Some(b) = self.bridges.get_mut(&bridge) else { return Vec::new() };
        b.restore(saved, (fail_mode, has_controllers), until_admitted, now_ms)
    }

    /// Follows changes of the state in another process; returns refused parts.
    pub(crate) fn follow(
        &mut self,
        bridge: BridgeId,
        changes: &StateChanges,
        now_ms: u64,
    ) -> Vec<RefusedPart> {
        self.bridges.get_mut(&bridge).map(|b| b.follow(changes, now_ms)).unwrap_or_default()
    }

    /// Sets the addresses of managers whose connections may pass through bridges.
    pub(crate) fn set_managers(&mut self, managers: BTreeSet<SocketAddrV4>, now_ms: u64) {
        if self.managers != managers {
            self.managers = managers;
            self.bridges.values_mut().for_each(|b| b.set_managers(&self.managers, now_ms));
        }
    }

    /// Closes all connections of a bridge, and removes its meters.
    pub(crate) fn destroy(&mut self, bridge: BridgeId, reactor: &Reactor) {
        if let Some(b) = self.bridges.remove(&bridge) {
            self.gone.add(&b.shut_down(reactor));
        }
    }

    /// Applies a bridge's settings.
    pub(crate) fn configure(&mut self, bridge: BridgeId, options: &OpenFlowOptions<'_>, now_ms: u64) {
        if let Some(b) = self.bridges.get_mut(&bridge) {
            b.set_managers(&self.managers, now_ms);
            b.configure(options, now_ms);
        }
    }

    /// Replaces a bridge's controllers; unchanged ones keep their connections.
    pub(crate) fn set_controllers(
        &mut self,
        bridge: BridgeId,
        wanted: Vec<ControllerConfig>,
        reactor: &mut Reactor,
        now_ms: u64,
    ) {
        if !self.is_open {
            self.waiting.insert(bridge, wanted);
            return;
        }
        if let Some(b) = self.bridges.get_mut(&bridge) {
            b.set_controllers(wanted, reactor, now_ms);
        }
    }

    /// Closes all connections of a bridge (of all bridges, if none is named); reconnects to controllers.
    pub(crate) fn reconnect(&mut self, bridge: Option<&str>, reactor: &mut Reactor, now_ms: u64) {
        for b in self.bridges.values_mut().filter(|b| bridge.is_none_or(|name| b.name() == name)) {
            b.break_off(reactor, now_ms);
        }
    }

    /// Handles a socket event; `false` for a token of others.
    pub(crate) fn event(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) -> bool {
        self.keep_bounds(reactor, now_ms);
        for b in self.bridges.values_mut() {
            if b.event(token, reactor, now_ms) {
                return true;
            }
        }
        false
    }

    /// Routes events, advances the time, reconnects, replies and sends, all within the limits of a turn; bridges
    /// take turns in going first.
    pub(crate) fn run(&mut self, instances: &Instances, reactor: &mut Reactor, now_ms: u64) -> Turn {
        if !self.is_open {
            return Turn::DONE;
        }
        let mut next: Turn = instances.iter().map(|i| self.route(&i.backer, reactor, now_ms)).collect();
        let mut work = WORK_PER_TURN;
        self.keep_bounds(reactor, now_ms);
        self.resolve_next_hops(now_ms);
        let after = self.bridges.range((Bound::Excluded(self.served.unwrap_or_default()), Bound::Unbounded));
        let ids: Vec<BridgeId> =
            after.chain(self.bridges.iter()).map(|(id, _)| *id).take(self.bridges.len()).collect();
        for id in ids {
            let Some(b) = self.bridges.get_mut(&id) else { continue };
            let had = work;
            next = next.and(b.run(&mut work, reactor, now_ms));
            if work < had {
                self.served = Some(id);
            }
        }
        next.and(Turn::more_if(self.is_short()))
    }

    /// Resolves the next hops of in-band control that are due, for all bridges from one reading of the tables.
    fn resolve_next_hops(&mut self, now_ms: u64) {
        let mut hops = None;
        let is_due = |b: &&mut OfBridge| b.resolves_at_ms().is_some_and(|at_ms| at_ms <= now_ms);
        for b in self.bridges.values_mut().filter(is_due) {
            b.resolve_next_hops(hops.get_or_insert_with(self.next_hops), now_ms);
        }
    }

    /// Passes packets for controllers to their bridges.
    fn route(&mut self, backer: &Backer, reactor: &mut Reactor, now_ms: u64) -> Turn {
        // All connections are asked only if there is a packet.
        let has_packets = backer.packet_ins_waiting() > 0;
        let room = self.bridges.values().filter(|_| has_packets).filter_map(OfBridge::packet_in_room).min();
        let portion = room.unwrap_or(PACKET_INS_PORTION).clamp(1, PACKET_INS_PORTION);
        for _ in 0..PACKET_INS_MAX / portion {
            let mut receivers = BTreeSet::new();
            let routed = backer.route_packet_ins(portion, |event| {
                if let Some(b) = self.bridges.get_mut(&event.state.bridge) {
                    b.deliver_packet_in(&event, now_ms);
                    receivers.insert(event.state.bridge);
                }
            });
            for id in receivers {
                if let Some(b) = self.bridges.get_mut(&id) {
                    b.send_all(reactor, now_ms);
                }
            }
            if routed < portion {
                break;
            }
        }
        while let Some(error) = backer.failures.next_error() {
            log::warn!(target: "ofproto_dpif_xlate", "{error}");
        }
        while let Some(failed) = backer.failures.next_trace() {
            log::warn!(target: "ofproto_dpif_upcall", "{}", failed_text(&failed));
        }
        Turn::more_if(backer.packet_ins_waiting() > 0)
    }

    /// Number of open connections of all bridges.
    pub(crate) fn links(&self) -> usize {
        self.bridges.values().map(OfBridge::links).sum()
    }

    /// Counters of the connections of all bridges, removed ones included.
    pub(crate) fn counters(&self) -> ConnCounters {
        let mut sum = self.gone;
        self.bridges.values().for_each(|b| sum.add(&b.counters()));
        sum
    }

    /// The ports whose devices controllers set up or down, in order, over all bridges.
    pub(crate) fn take_admin_changes(&mut self) -> Vec<AdminChange> {
        self.bridges.values_mut().flat_map(|b| b.take_admin_changes()).collect()
    }

    /// Reports added, removed and changed ports to controllers.
    pub(crate) fn ports_changed(&mut self, bridge: BridgeId, old: &PortTable, new: &PortTable, now_ms: u64) {
        if let Some(b) = self.bridges.get_mut(&bridge) {
            b.ports_changed(old, new, now_ms);
        }
    }

    /// Reports that a link protocol changed the liveness of a port.
    pub(crate) fn port_toggled(&mut self, bridge: BridgeId, port: &Port, tree_changed: bool) {
        if let Some(b) = self.bridges.get_mut(&bridge) {
            b.port_toggled(port, tree_changed);
        }
    }

    /// Status of controllers, by their rows; the fault of keys and certificates concerns those that need them.
    pub(crate) fn facts(
        &self,
        tls_fault: Option<&str>,
        now_ms: u64,
    ) -> BTreeMap<ovsdb::value::Uuid, ControllerFacts> {
        self.bridges.values().flat_map(|b| b.controller_facts(tls_fault, now_ms)).collect()
    }

    /// Closes the connections that hold most while their total memory exceeds the limit.
    fn keep_bounds(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let budgets = self.budgets.clone();
        let input = |h: Held| h.input_bytes;
        let output = |h: Held| h.output_bytes;
        type Of = fn(Held) -> usize;
        let kinds: [(_, Of, _); 2] = [
            (budgets.input, input, "input that is not carried out"),
            (budgets.output, output, "unread output"),
        ];
        for (budget, of, what) in kinds {
            while budget.is_short()
                && let Some((bytes, bridge, token)) = self.greatest(of).filter(|(bytes, ..)| *bytes > 0)
                && let Some(b) = self.bridges.get_mut(&bridge)
            {
                let (used, limit) = (budget.used_bytes(), budget.limit_bytes());
                let why = format!(
                    "all OpenFlow connections hold {used} bytes of {what}, of {limit} that they may, and this one most, {bytes}"
                );
                b.cut_off(token, &why, reactor, now_ms);
            }
        }
    }

    /// The connection that holds the most memory of a kind.
    fn greatest(&self, of: fn(Held) -> usize) -> Option<(usize, BridgeId, Token)> {
        let of_bridge =
            |(id, b): (&BridgeId, &OfBridge)| b.greatest(of).map(|(bytes, token)| (bytes, *id, token));
        self.bridges.iter().filter_map(of_bridge).max()
    }

    /// Whether connections wait for [`OpenFlow::keep_bounds`].
    fn is_short(&self) -> bool {
        self.budgets.input.is_short() || self.budgets.output.is_short()
    }
}
