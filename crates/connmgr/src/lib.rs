//! The OpenFlow connections of one bridge: replies to requests, and events.
//!
//! Pure: the owner moves bytes between sockets and [`Connmgr::input`], [`Connmgr::output`]. It calls
//! [`Connmgr::run`] after input, at the time of [`Connmgr::next_wakeup_ms`], and after sending output. It routes
//! packets for the bridge's controllers to [`Connmgr::deliver_packet_in`], and port changes to
//! [`Connmgr::port_changed`]; this crate takes removed rules from the backer.
//!
//! One run does a bounded amount of work ([`WORK_PER_TURN`]), shared among connections in turn: flow-mods with many
//! rules and long replies continue in later runs.
//!
//! Bounds: requests of a connection with unread replies wait (the owner, by [`Connmgr::wants_input`], leaves in the
//! socket all but those already read); long replies are made piece by piece as they are read;
//! packets and port changes for a slow reader are dropped and counted; bundles are bounded in number and bytes.
//!
//! Managers of several bridges share two memory limits ([`Budgets`]): for unsent output, and for unprocessed input,
//! bundles included. If one is exhausted, requests and input wait, and the owner closes the connection that holds
//! most ([`Connmgr::held`]). From half of it on, less output is made ahead of each reader.
//!
//! Removed rules wait for a slow reader, as do flow-mods that remove more of them. A reader without progress for
//! five seconds is skipped, and its missed events are counted. As in Open vSwitch, a barrier does not wait for them.
//!
//! Snoops ([`ConnKind::Snoop`]) of a bridge's controllers get copies of their messages in both directions.
//!
//! Requests of one connection are executed in order, each before the next begins, so a barrier needs no further
//! waiting. A bundle commit and the removal of a deleted meter's rules may take several runs; flow-mods, bundles and
//! meters of other connections wait.
#![forbid(unsafe_code)]
// Tests match only on relevant variants.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod bundle;
mod config;
mod conn;
mod continuation;
mod counters;
mod fail;
mod flush;
mod forward;
mod gone;
mod groups;
mod in_band;
mod meters;
mod monitors;
mod packet_queue;
mod packets;
mod ports;
mod report;
mod requests;
mod restore;
mod saved;
mod snoop;
mod stats;
mod table_features;
#[cfg(test)]
pub(crate) mod tests;
mod tlv;

pub use conn::{ConnKind, ConnSettings, Refusal};
pub use counters::ConnCounters;
pub use fail::{FailEvent, FailMode, RemoteConfig};
pub use in_band::InBandConfig;
pub use ofproto::ids::ConnId;
pub use packet_queue::{QueueStats, RateLimit};
pub use requests::selected_connections;
pub use restore::{Dated, RefusedPart, SavedState, StateChanges};
pub use saved::{CannotPass, SavedBridge, SavedConn};

use conn::Conn;
use dpif::Datapath;
use fail::FailState;
use flow::OfPort;
use in_band::InBand;
use meters::MeterTable;
use ofproto::backer::Backer;
use ofproto::flow_mod::{ModContext, ModQueue};
use ofproto::ids::BridgeId;
use ofproto::view::BridgeView;
use openflow::budget::Budgets;
use openflow::msg::control::{ControllerRole, RoleReason};
use openflow::msg::stats::SwitchDesc;
use openflow::session::CloseReason;
use openflow::{Version, VersionSet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Work of one turn of the main loop, in rules changed or reported, or requests processed.
pub const WORK_PER_TURN: usize = 2048;
/// Part of it for one connection before others have their turn.
const WORK_PER_CONN: usize = 1024;

/// The parts of a bridge used while its connections are served.
#[derive(Clone, Copy)]
pub struct BridgeCtx<'a> {
    /// Tables, ports, translation.
    pub backer: &'a Backer,
    /// Sends packets and keeps port counters.
    pub datapath: &'a dyn Datapath,
    /// The bridge.
    pub bridge: BridgeId,
    /// Its datapath id.
    pub datapath_id: u64,
    /// Description of manufacturer, hardware and software.
    pub desc: &'a SwitchDesc,
}

impl BridgeCtx<'_> {
    /// The current view of the bridge; `None` if it is deleted.
    fn bridge_view(&self) -> Option<Arc<BridgeView>> {
        self.backer.view().bridge(self.bridge).cloned()
    }
}

/// State shared by all connections of the bridge.
#[derive(Default)]
struct Shared {
    meters: MeterTable,
    /// Modifications of closed connections that have begun.
    begun: Vec<ModQueue>,
    /// A bundle being committed.
    commit: Option<bundle::Commit>,
    /// The highest generation id of a master election so far.
    generation_id: Option<u64>,
    /// Creation time of each port.
    port_since_ms: BTreeMap<OfPort, u64>,
    /// Rules changed while flow monitors are paused.
    stamps: monitors::Stamps,
    /// Whether the rules are those of an earlier process.
    restored: restore::Restored,
}

impl Shared {
    /// Whether a request that needs exclusive rule changes must wait: another one is active, or the event queue is
    /// full.
    fn is_busy(&self, ctx: &BridgeCtx<'_>) -> bool {
        self.commit.is_some() || self.meters.is_ending() || ctx.backer.events.room(ctx.bridge) == 0
    }
}

/// The connections of one bridge.
pub struct Connmgr {
    budgets: Budgets,
    conns: BTreeMap<ConnId, Conn>,
    next_id: u64,
    shared: Shared,
    fail: FailState,
    in_band: InBand,
    admin_changes: Vec<AdminChange>,
    /// The connection served last.
    served: Option<ConnId>,
    /// Latest time for the next attempt to report removed rules; 0 for the next turn.
    removed_again_ms: Option<u64>,
    /// Whether a connection has had flow monitors since the queue of changes was last cleared.
    is_monitoring: bool,
    /// Time of the next check of readers for which changes of rules wait.
    updates_again_ms: Option<u64>,
    /// Number of the next change of rules at the last attempt to report them.
    changes_end: u64,
    /// Counters of closed connections.
    gone: ConnCounters,
    /// Whether messages are kept for the log.
    keeps_messages: bool,
}

/// Memory held for a connection, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Held {
    /// Unprocessed input.
    pub input_bytes: usize,
    /// Unsent output.
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
    /// The wanted state.
    pub up: bool,
}

/// Public state of a connection (`Controller` rows of the database, `ofproto/list`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnStatus {
    /// Its kind.
    pub kind: ConnKind,
    /// The negotiated version, if any.
    pub version: Option<Version>,
    /// Its role.
    pub role: ControllerRole,
    /// Its drops.
    pub counters: ConnCounters,
    /// Its rate limit of packet-ins, if it has one: table misses, then actions.
    pub queues: Option<[QueueStats; 2]>,
}

impl Connmgr {
    /// No connections; the bridge's rules as [`Connmgr::configure`] makes them.
    pub fn new() -> Connmgr {
        Connmgr::sharing(Budgets::unbounded())
    }

    /// A manager with limits shared with other bridges.
    pub fn sharing(budgets: Budgets) -> Connmgr {
        Connmgr {
            budgets,
            conns: BTreeMap::new(),
            next_id: 0,
            shared: Shared::default(),
            fail: FailState::default(),
            in_band: InBand::default(),
            admin_changes: Vec::new(),
            served: None,
            removed_again_ms: None,
            is_monitoring: false,
            updates_again_ms: None,
            changes_end: 0,
            gone: ConnCounters::default(),
            keeps_messages: false,
        }
    }

    /// Adds a new connection; its hello waits in the output.
    pub fn open(&mut self, kind: ConnKind, versions: VersionSet, now_ms: u64) -> ConnId {
        let id = ConnId(self.next_id);
        self.next_id += 1;
        let mut conn = Conn::new(id, kind, versions, now_ms, &self.budgets);
        conn.session.set_log(self.keeps_messages);
        self.conns.insert(id, conn);
        self.watchers_changed();
        id
    }

    /// Removes a connection.
    pub fn close(&mut self, id: ConnId, ctx: &BridgeCtx<'_>, now_ms: u64) {
        if let Some(conn) = self.conns.remove(&id) {
            self.gone.add(&conn.all_counters().ended());
            self.fail.closed(&conn);
            self.shared.begun.extend(conn.mods.into_begun());
        }
        self.give_up_commit(id);
        self.watchers_changed();
        self.connections_changed(ctx, now_ms);
    }

    /// Takes received bytes; [`Connmgr::run`] processes them.
    pub fn input(&mut self, id: ConnId, bytes: &[u8], now_ms: u64) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.receive(bytes, now_ms);
        }
    }

    /// Bytes to send.
    pub fn output(&self, id: ConnId) -> &[u8] {
        self.conns.get(&id).map_or(&[], |c| c.session.output())
    }

    /// Removes `n` sent bytes from the output.
    pub fn consume_output(&mut self, id: ConnId, n: usize) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.consume_output(n);
        }
    }

    /// Takes all bytes to send.
    pub fn take_output(&mut self, id: ConnId) -> Vec<u8> {
        let bytes = self.output(id).to_vec();
        self.consume_output(id, bytes.len());
        bytes
    }

    /// Whether to pass more input in. If not, leave it in the socket.
    pub fn wants_input(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(Conn::wants_input)
    }

    /// Whether a connection has requests or replies that can be processed at once.
    pub fn has_work(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(Conn::has_work)
    }

    /// Whether a connection has unprocessed requests that wait for anything but its reader.
    pub fn is_busy(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(Conn::is_busy)
    }

    /// Whether both sides of a connection have agreed on a version.
    pub fn is_agreed(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.is_up())
    }

    /// Whether a connection has sent more than its hello; a snoop sends nothing else.
    pub fn has_asked(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|c| c.has_asked || c.kind == ConnKind::Snoop && c.is_up())
    }

    /// Applies the settings of a connection's row.
    pub fn configure_conn(&mut self, id: ConnId, settings: ConnSettings) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.configure(settings, &self.budgets);
        }
    }

    /// Whether a packet-in for a connection was dropped since the last call, because too many were unsent.
    pub fn take_packet_in_overflow(&mut self, id: ConnId) -> bool {
        self.conns.get_mut(&id).is_some_and(|c| std::mem::take(&mut c.overflowed))
    }

    /// The smallest number of packet-ins that may overflow the queue of a connection.
    pub fn packet_in_room(&self) -> Option<usize> {
        self.conns.values().map(|c| c.settings.queue_packets).min()
    }

    /// Reason to close the connection once its output is sent; `None` while it lives or if it does not exist.
    pub fn close_reason(&self, id: ConnId) -> Option<CloseReason> {
        self.conns.get(&id)?.over
    }

    /// Memory that a connection holds of the shared limits.
    pub fn held(&self, id: ConnId) -> Option<Held> {
        let c = self.conns.get(&id)?;
        Some(Held { input_bytes: c.input_bytes(), output_bytes: c.output_bytes() })
    }

    /// State of a connection.
    pub fn status(&self, id: ConnId) -> Option<ConnStatus> {
        let c = self.conns.get(&id)?;
        let (version, queues) = (c.session.version(), c.packet_queue_stats());
        Some(ConnStatus { kind: c.kind, version, role: c.role, counters: c.counters, queues })
    }

    /// All connections.
    pub fn ids(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.keys().copied()
    }

    /// Takes the ports whose devices to set up or down, in order. The port's configuration has the wanted state
    /// already: if the device cannot be set, the owner corrects it.
    pub fn take_admin_changes(&mut self) -> Vec<AdminChange> {
        std::mem::take(&mut self.admin_changes)
    }

    /// Whether a controller is connected and has negotiated a version.
    pub fn controller_is_connected(&self) -> bool {
        self.conns.values().any(|c| c.kind == ConnKind::Controller && c.is_up())
    }

    /// Counters of all connections, closed ones included.
    pub fn counters(&self) -> ConnCounters {
        let mut sum = self.gone;
        self.conns.values().for_each(|c| sum.add(&c.all_counters()));
        sum
    }

    /// One turn with all its permitted work; see [`Connmgr::run_within`].
    pub fn run(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        self.run_within(ctx, now_ms, &mut WORK_PER_TURN.clone());
    }

    /// Sets the time and processes waiting work, within `work`: removed rules, requests, partial replies, keepalive,
    /// idle bundles, fail-open. With work left, [`Connmgr::next_wakeup_ms`] returns the present time.
    pub fn run_within(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        for conn in self.conns.values_mut() {
            conn.tick(now_ms);
            conn.expire_bundles(now_ms);
            conn.expire_parts(now_ms);
            conn.end_barrier(ctx, now_ms);
            conn.send_queued_packet_ins(now_ms);
        }
        self.send_flow_removed(ctx, now_ms, work);
        self.send_flow_updates(ctx, now_ms, work);
        self.send_table_status(ctx);
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
        self.send_flow_removed(ctx, now_ms, work);
        self.send_flow_updates(ctx, now_ms, work);
        self.send_table_status(ctx);
        self.connections_changed(ctx, now_ms);
        self.run_fail_open(ctx, now_ms);
        if self.shared.restored.take_end() {
            self.in_band.flushed();
        }
        self.run_in_band(ctx, now_ms);
        self.relay();
    }

    /// Continues a bundle commit, or the removal of deleted meters' rules.
    fn run_exclusive(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        let mut share = (*work).min(WORK_PER_CONN);
        *work -= share;
        if self.shared.meters.is_ending() {
            self.shared.meters.run_ending(ctx, &mut share);
            if !self.shared.meters.is_ending() {
                self.conns.values_mut().for_each(|conn| conn.end_wait(ctx));
            }
        }
        self.run_commit(ctx, now_ms, &mut share);
        self.run_begun(ctx, now_ms, &mut share);
        *work += share;
    }

    /// Continues modifications of closed connections, one at a time.
    fn run_begun(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        let Some(mods) = self.shared.begun.last_mut() else { return };
        let cx = ModContext {
            version: Version::V13,
            now_ms,
            debug_actions: false,
            has_meter: &|_| true,
            can: ctx.backer.features(),
        };
        mods.step(ctx.backer, ctx.bridge, &cx, work);
        if mods.is_empty() {
            self.shared.begun.pop();
        }
    }

    /// Time of the next work of [`Connmgr::run`], output aside; 0 for at once.
    pub fn next_wakeup_ms(&self) -> Option<u64> {
        let begun = !self.shared.begun.is_empty() && self.removed_again_ms.is_none();
        if begun
            || self.shared.commit.is_some()
            || self.shared.meters.is_ending() && self.removed_again_ms.is_none()
        {
            return Some(0);
        }
        if self.has_updates() {
            return Some(0);
        }
        // A connection continues after removed rules have been reported.
        let unblocked = |c: &Conn| c.blocked && self.removed_again_ms.is_none();
        if self.conns.values().any(|c| c.has_work() || unblocked(c)) {
            return Some(0);
        }
        let conns = self.conns.values().filter_map(Conn::next_wakeup_ms).min();
        [conns, self.fail.next_wakeup_ms(), self.removed_again_ms, self.updates_again_ms]
            .into_iter()
            .flatten()
            .min()
    }

    /// Processes a connection's requests until none is left, its reader lags, or `work` is used up.
    fn serve(&mut self, id: ConnId, ctx: &BridgeCtx<'_>, now_ms: u64, work: &mut usize) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let was_up = conn.is_up();
        conn.use_tlv(ctx);
        let outcome = conn.serve(&mut self.shared, ctx, now_ms, work);
        self.is_monitoring |= !conn.monitors.is_empty();
        let changed = was_up != conn.is_up() || outcome.interest_changed;
        self.forward(&outcome.forwards, id);
        if outcome.became_master {
            for (_, other) in self.conns.iter_mut().filter(|(other, _)| **other != id) {
                if other.role == ControllerRole::Master {
                    other.role = ControllerRole::Slave;
                    other.send_role_status(RoleReason::MasterRequest, self.shared.generation_id);
                }
            }
        }
        if outcome.tlv_changed {
            self.conns.values_mut().for_each(|conn| conn.use_tlv(ctx));
        }
        for (old, new) in &outcome.ports {
            self.send_port_status(Some(old), Some(new), Some(id), now_ms);
            if old.config.port_down != new.config.port_down {
                let (name, up) = (new.name.clone(), !new.config.port_down);
                self.admin_changes.push(AdminChange { name, up });
            }
        }
        if changed {
            self.connections_changed(ctx, now_ms);
        }
    }

    /// Table misses go to controllers of OpenFlow 1.2 and older, and to service connections of those versions that
    /// requested packets. Publishes the listening controllers to the makers of packets.
    fn connections_changed(&mut self, ctx: &BridgeCtx<'_>, now_ms: u64) {
        let wanted = self.conns.values().any(Conn::wants_misses);
        if let Some(bridge) = ctx.bridge_view() {
            let listening = self.conns.values().filter(|c| c.reasons(conn::AsyncKind::PacketIn) != 0);
            bridge.listeners.set(listening.map(|c| c.controller_id));
            if bridge.miss_to_controller != wanted {
                ctx.backer.change_bridge(ctx.bridge, |b| b.miss_to_controller = wanted);
            }
        }
        self.fail.controllers_seen(self.conns.values(), now_ms);
    }
}
