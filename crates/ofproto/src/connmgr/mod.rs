//! The OpenFlow connections of one bridge: requests answered, events told.
//!
//! Pure: the owner moves bytes between sockets and [`Connmgr::input`], [`Connmgr::output`], and calls [`Connmgr::run`] when
//! the time of [`Connmgr::next_wakeup_ms`] has come or output has been sent. It routes the events of the bridge's backer to
//! [`Connmgr::deliver_packet_in`], [`Connmgr::deliver_removed`], [`Connmgr::port_changed`].
//!
//! Bounds: a connection whose answers are not read is not served further (its input waits, and the owner, asked by
//! [`Connmgr::wants_input`], leaves the rest in the socket); long answers are made piece by piece as they are read; events
//! for a slow reader are dropped and counted; bundles are bounded in number and bytes.
//!
//! Who watches a bridge's controllers ([`ConnKind::Snoop`]) gets copies of what they say and are told.
//!
//! Requests of one connection are carried out in order, each before the next, so a barrier has nothing to wait for.

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
use openflow::msg::control::ControllerRole;
use openflow::msg::stats::SwitchDesc;
use openflow::session::CloseReason;
use openflow::{Version, VersionSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A connection of a [`Connmgr`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ConnId(pub u64);

/// What the bridge is made of, while its connections are served.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
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

impl Ctx<'_> {
    /// The bridge as it is now; `None` when it is gone.
    fn bridge_view(&self) -> Option<Arc<BridgeView>> {
        self.backer.view().bridge(self.bridge).cloned()
    }
}

/// What all connections of the bridge share.
#[derive(Default)]
struct Shared {
    meters: MeterTable,
    /// The highest generation of a master's election so far.
    generation_id: Option<u64>,
    /// When each port was first seen.
    port_since_ms: BTreeMap<OfPort, u64>,
}

/// The connections of one bridge.
#[derive(Default)]
pub struct Connmgr {
    conns: BTreeMap<ConnId, Conn>,
    next_id: u64,
    shared: Shared,
    fail: FailState,
    admin_changes: Vec<AdminChange>,
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
        Connmgr::default()
    }

    /// A connection has come about; its hello waits in the output.
    pub fn open(&mut self, kind: ConnKind, versions: VersionSet, now_ms: u64) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        self.conns.insert(id, Conn::new(kind, versions, now_ms));
        self.watchers_changed();
        id
    }

    /// The connection is gone.
    pub fn close(&mut self, id: ConnId, ctx: &Ctx<'_>, now_ms: u64) {
        self.conns.remove(&id);
        self.watchers_changed();
        self.connections_changed(ctx, now_ms);
    }

    /// Takes bytes that came.
    pub fn input(&mut self, id: ConnId, bytes: &[u8], ctx: &Ctx<'_>, now_ms: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.receive(bytes, now_ms);
            self.serve(id, ctx, now_ms);
            self.relay();
        }
    }

    /// Bytes to send.
    pub fn output(&self, id: ConnId) -> &[u8] {
        self.conns.get(&id).map_or(&[], |c| c.session.output())
    }

    /// Takes `n` bytes off the output, which have been sent.
    pub fn consume_output(&mut self, id: ConnId, n: usize) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.session.consume_output(n);
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

    /// Whether a connection has requests or answers left to be worked on as soon as output is read.
    pub fn has_work(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|c| !c.is_over() && c.has_work())
    }

    /// Why the connection is to be closed once its output is sent; `None` while it lives or when it is not there.
    pub fn close_reason(&self, id: ConnId) -> Option<CloseReason> {
        self.conns.get(&id)?.over
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

    /// Takes the time and goes on with what waited: keepalive, answers in pieces, bundles left behind, fail-open.
    pub fn run(&mut self, ctx: &Ctx<'_>, now_ms: u64) {
        let ids: Vec<ConnId> = self.ids().collect();
        for id in ids {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.tick(now_ms);
                conn.expire_bundles(now_ms);
                self.serve(id, ctx, now_ms);
            }
        }
        self.connections_changed(ctx, now_ms);
        self.run_fail_open(ctx, now_ms);
        self.relay();
    }

    /// When [`Connmgr::run`] has something to do, output aside.
    pub fn next_wakeup_ms(&self) -> Option<u64> {
        let conns = self.conns.values().filter_map(Conn::next_wakeup_ms).min();
        [conns, self.fail.next_wakeup_ms()].into_iter().flatten().min()
    }

    /// Works on a connection's input until there is none or its reader is behind.
    fn serve(&mut self, id: ConnId, ctx: &Ctx<'_>, now_ms: u64) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let was_up = conn.is_up();
        let outcome = conn.serve(&mut self.shared, ctx, now_ms);
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
    fn connections_changed(&mut self, ctx: &Ctx<'_>, now_ms: u64) {
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
