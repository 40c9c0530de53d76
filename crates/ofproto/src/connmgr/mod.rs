//! The OpenFlow connections of one bridge: requests answered, events told.
//!
//! Pure: the owner moves bytes between sockets and [`Connmgr::input`], [`Connmgr::output`], and calls [`Connmgr::run`] after
//! input, when the time of [`Connmgr::next_wakeup_ms`] has come, or output has been sent. It routes packets for the bridge's
//! controllers to [`Connmgr::deliver_packet_in`], and changes of ports to [`Connmgr::port_changed`]; ended rules are taken from
//! the backer here.
//!
//! One run does a bounded amount of work ([`WORK_PER_TURN`]), each connection a share of it in turns: a flow-mod that selects many
//! rules goes on in the next ones, and so does a long answer.
//!
//! Bounds: a connection whose answers are not read is not served further (its input waits, and the owner, asked by
//! [`Connmgr::wants_input`], leaves the rest in the socket); long answers are made piece by piece as they are read; packets and
//! changes of ports for a slow reader are dropped and counted; bundles are bounded in number and bytes.
//!
//! Managers of several bridges share two bounds of memory ([`Budgets`]): of output that is not sent, and of input that is not carried out,
//! bundles included. Where one is short, requests and input wait, and the owner closes the connection that holds most
//! ([`Connmgr::held`]). From half of it on, a connection has less output made for it ahead of its reader.
//!
//! Ended rules wait for a slow reader, and flow-mods that end more of them wait with them; one that has taken nothing for five
//! seconds is left out, and what it was not told is counted. As in Open vSwitch, a barrier does not wait for them.
//!
//! Who watches a bridge's controllers ([`ConnKind::Snoop`]) gets copies of what they say and are told.
//!
//! Requests of one connection are carried out in order, each before the next begins, so a barrier waits for nothing else. A bundle that
//! is committed, and the rules of a deleted meter, go on over several runs; flow-mods, bundles and meters of other connections wait.

mod bundle;
mod config;
mod conn;
mod fail;
mod meters;
mod packets;
mod ports;
mod requests;
mod snoop;
mod stats;
mod table_features;
#[cfg(test)]
mod tests;

pub use conn::{ConnCounters, ConnKind};
pub use fail::{FailMode, RemoteConfig};

use crate::backer::Backer;
use crate::ports::BridgeId;
use crate::view::BridgeView;
use conn::Conn;
use dpif::Datapath;
use fail::FailState;
use flow::OfPort;
use meters::MeterTable;
use openflow::budget::Budgets;
use openflow::msg::control::ControllerRole;
use openflow::msg::stats::SwitchDesc;
use openflow::session::CloseReason;
use openflow::{Version, VersionSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Work of one turn of the main loop, in rules changed or told, or requests answered.
pub const WORK_PER_TURN: usize = 2048;
/// Of that, what one connection does before others have their turn.
const WORK_PER_CONN: usize = 1024;

/// A connection of a [`Connmgr`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnId(pub u64);

/// What the bridge is made of, while its connections are served.
#[derive(Clone, Copy)]
pub struct BridgeCtx<'a> {
    /// Tables, ports, translation.
    pub backer: &'a Backer,
    /// Where packets are sent and port counters kept.
    pub datapath: &'a dyn Datapath,
    /// The bridge.
    pub bridge: BridgeId,
    /// Its datapath id.
    pub datapath_id: u64,
    /// Who made it.
    pub desc: &'a SwitchDesc,
}

impl BridgeCtx<'_> {
    /// The bridge as it is now; `None` when it is gone.
    fn bridge_view(&self) -> Option<Arc<BridgeView>> {
        self.backer.view().bridge(self.bridge).cloned()
    }
}

/// What all connections of the bridge share.
#[derive(Default)]
struct Shared {
    meters: MeterTable,
    /// A bundle that is being carried out.
    commit: Option<bundle::Commit>,
    /// The highest generation of a master's election so far.
    generation_id: Option<u64>,
    /// When each port was first seen.
    port_since_ms: BTreeMap<OfPort, u64>,
}

impl Shared {
    /// Whether a request has to wait that changes rules by itself alone: another one is under way, or too many ended rules wait to be
    /// told.
    fn is_busy(&self, ctx: &BridgeCtx<'_>) -> bool {
        self.commit.is_some() || self.meters.is_ending() || ctx.backer.removed.room(ctx.bridge) == 0
    }
}

/// The connections of one bridge.
pub struct Connmgr {
    budgets: Budgets,
    conns: BTreeMap<ConnId, Conn>,
    next_id: u64,
    shared: Shared,
    fail: FailState,
    admin_changes: Vec<AdminChange>,
    /// The connection that was served last.
    served: Option<ConnId>,
    /// Ended rules wait to be told, until then at the latest; 0 for the next turn.
    removed_again_ms: Option<u64>,
    /// What connections that are gone counted.
    gone: ConnCounters,
}

/// Bytes that a connection makes its manager hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Held {
    /// That came and are not carried out.
    pub input_bytes: usize,
    /// That were made and are not sent.
    pub output_bytes: usize,
}

impl Default for Connmgr {
    fn default() -> Connmgr {
        Connmgr::new()
    }
}

/// A controller sets a port's device up or down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminChange {
    /// The port.
    pub name: String,
    /// Whether it is to be up.
    pub up: bool,
}

/// What a connection looks like from outside (`Controller` rows of the database, `ofproto/list`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnStatus {
    /// What it is for.
    pub kind: ConnKind,
    /// The version agreed, when there is one.
    pub version: Option<Version>,
    /// Its role.
    pub role: ControllerRole,
    /// What was dropped.
    pub counters: ConnCounters,
}

impl Connmgr {
    /// No connections; the bridge's rules as [`Connmgr::configure`] makes them.
    pub fn new() -> Connmgr {
        Connmgr::sharing(Budgets::unbounded())
    }

    /// The same, with bounds that it shares with other bridges.
    pub fn sharing(budgets: Budgets) -> Connmgr {
        Connmgr {
            budgets,
            conns: BTreeMap::new(),
            next_id: 0,
            shared: Shared::default(),
            fail: FailState::default(),
            admin_changes: Vec::new(),
            served: None,
            removed_again_ms: None,
            gone: ConnCounters::default(),
        }
    }

    /// A connection has come about; its hello waits in the output.
    pub fn open(&mut self, kind: ConnKind, versions: VersionSet, now_ms: u64) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        self.conns.insert(id, Conn::new(id, kind, versions, now_ms, &self.budgets));
        self.watchers_changed();
        id
    }

    /// The connection is gone.
    pub fn close(&mut self, id: ConnId, ctx: &BridgeCtx<'_>, now_ms: u64) {
        if let Some(conn) = self.conns.remove(&id) {
            self.gone.add(&conn.counters);
        }
        self.give_up_commit(id);
        self.watchers_changed();
        self.connections_changed(ctx, now_ms);
    }

    /// Takes bytes that came; [`Connmgr::run`] works on them.
    pub fn input(&mut self, id: ConnId, bytes: &[u8], now_ms: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.receive(bytes, now_ms);
        }
    }

    /// Bytes to send.
    pub fn output(&self, id: ConnId) -> &[u8] {
        self.conns.get(&id).map_or(&[], |c| c.session.output())
    }

    /// Takes `n` bytes off the output, which have been sent.
    pub fn consume_output(&mut self, id: ConnId, n: usize) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.consume_output(n);
        }
    }

    /// All bytes to send, taken.
    pub fn take_output(&mut self, id: ConnId) -> Vec<u8> {
        let bytes = self.output(id).to_vec();
        self.consume_output(id, bytes.len());
        bytes
    }

    /// Whether more input may be handed in. While not, leave it in the socket.
    pub fn wants_input(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(Conn::wants_input)
    }

    /// Whether a connection has requests or answers left that can be worked on at once.
    pub fn has_work(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(Conn::has_work)
    }

    /// Whether a connection has requests that were not carried out, whatever they wait for but its reader.
    pub fn is_busy(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|c| c.blocked || c.has_requests())
    }

    /// After so long without a sign of life, a connection is asked for one; 0 for never.
    pub fn set_probe_interval(&mut self, id: ConnId, ms: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.session.set_probe_interval_ms(ms);
        }
    }

    /// Why the connection is to be closed once its output is sent; `None` while it lives or when it is not there.
    pub fn close_reason(&self, id: ConnId) -> Option<CloseReason> {
        self.conns.get(&id)?.over
    }

    /// What a connection holds of the bounds that it shares.
    pub fn held(&self, id: ConnId) -> Option<Held> {
        let c = self.conns.get(&id)?;
        Some(Held { input_bytes: c.input_bytes(), output_bytes: c.session.output_share().bytes() })
    }

    /// State of a connection.
    pub fn status(&self, id: ConnId) -> Option<ConnStatus> {
        let c = self.conns.get(&id)?;
        Some(ConnStatus { kind: c.kind, version: c.session.version(), role: c.role, counters: c.counters })
    }

    /// All connections.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.keys().copied()
    }

    /// The ports whose devices are to be set up or down, in order; the owner carries it out. The port's configuration says so
    /// already: where it cannot be done, the owner sets it right again.
    pub fn take_admin_changes(&mut self) -> Vec<AdminChange> {
        std::mem::take(&mut self.admin_changes)
    }

    /// Whether a controller is connected and has agreed on a version.
    pub fn controller_is_connected(&self) -> bool {
        self.conns.values().any(|c| matches!(c.kind, ConnKind::Controller { .. }) && c.is_up())
    }

    /// What all connections counted, those that are gone included.
    pub fn counters(&self) -> ConnCounters {
        let mut sum = self.gone;
        self.conns.values().for_each(|c| sum.add(&c.counters));
        sum
    }

    /// One turn with all the work that it may do; see [`Connmgr::run_within`].
    pub fn run(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        self.run_within(ctx, now_ms, &mut WORK_PER_TURN.clone());
    }

    /// Takes the time and goes on with what waits, as far as `work` goes: ended rules, requests, answers in pieces, keepalive,
    /// bundles left behind, fail-open. What is left makes [`Connmgr::next_wakeup_ms`] tell of now.
    pub fn run_within(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        for conn in self.conns.values_mut() {
            conn.tick(now_ms);
            conn.expire_bundles(now_ms);
        }
        self.tell_removed(ctx, now_ms, work);
        self.run_exclusive(ctx, now_ms, work);
        let able = |(id, c): (&ConnId, &Conn)| (c.blocked || c.has_work()).then_some(*id);
        let (first, second): (Vec<ConnId>, Vec<ConnId>) =
            self.conns.iter().filter_map(able).partition(|id| Some(*id) > self.served);
        for id in first.into_iter().chain(second) {
            if *work == 0 {
                break;
            }
            let mut share = (*work).min(WORK_PER_CONN);
            *work -= share;
            self.serve(id, ctx, now_ms, &mut share);
            *work += share;
            self.served = Some(id);
        }
        self.run_exclusive(ctx, now_ms, work);
        self.tell_removed(ctx, now_ms, work);
        self.connections_changed(ctx, now_ms);
        self.run_fail_open(ctx, now_ms);
        self.relay();
    }

    /// Goes on with a bundle, or with the rules of deleted meters.
    fn run_exclusive(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        let mut share = (*work).min(WORK_PER_CONN);
        *work -= share;
        if self.shared.meters.is_ending() {
            self.shared.meters.run_ending(ctx, &mut share);
            if !self.shared.meters.is_ending() {
                self.conns.values_mut().for_each(|conn| conn.waits = false);
            }
        }
        self.run_commit(ctx, now_ms, &mut share);
        *work += share;
    }

    /// When [`Connmgr::run`] has something to do, output aside; 0 for at once.
    pub fn next_wakeup_ms(&self) -> Option<u64> {
        if self.shared.commit.is_some() || self.shared.meters.is_ending() && self.removed_again_ms.is_none() {
            return Some(0);
        }
        // A connection that waits until ended rules have been told goes on.
        let unblocked = |c: &Conn| c.blocked && self.removed_again_ms.is_none();
        if self.conns.values().any(|c| c.has_work() || unblocked(c)) {
            return Some(0);
        }
        let conns = self.conns.values().filter_map(Conn::next_wakeup_ms).min();
        [conns, self.fail.next_wakeup_ms(), self.removed_again_ms].into_iter().flatten().min()
    }

    /// Works on a connection's requests until there is none, its reader is behind, or `work` is used up.
    fn serve(&mut self, id: ConnId, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let was_up = conn.is_up();
        let outcome = conn.serve(&mut self.shared, ctx, now_ms, work);
        let changed = was_up != conn.is_up() || outcome.interest_changed;
        if outcome.became_master {
            for (_, other) in self.conns.iter_mut().filter(|(other, _)| **other != id) {
                if other.role == ControllerRole::Master {
                    other.role = ControllerRole::Slave;
                }
            }
        }
        for (old, new) in &outcome.ports {
            self.tell_port(Some(old), Some(new), Some(id), now_ms);
            if old.config.port_down != new.config.port_down {
                let (name, up) = (new.name.clone(), !new.config.port_down);
                self.admin_changes.push(AdminChange { name, up });
            }
        }
        if changed {
            self.connections_changed(ctx, now_ms);
        }
    }

    /// Table misses go to controllers of OpenFlow 1.2 and older, and to service connections of those versions that asked
    /// for packets. Which controllers listen at all is told to those who make packets for them.
    fn connections_changed(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let wanted = self.conns.values().any(Conn::wants_misses);
        if let Some(bridge) = ctx.bridge_view() {
            let listening = self.conns.values().filter(|c| c.reasons(conn::AsyncKind::PacketIn) != 0);
            bridge.listeners.set(listening.map(|c| c.controller_id));
            if bridge.miss_to_controller != wanted {
                ctx.backer.change_bridge(ctx.bridge, |b| b.miss_to_controller = wanted);
            }
        }
        let connected = self.controller_is_connected();
        self.fail.controllers_seen(connected, now_ms);
    }
}
