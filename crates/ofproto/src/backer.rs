//! State shared by all bridges of a datapath: the view read by translations, frozen states, flows, events.
//!
//! Writers (flow-mods, port changes, learned rules) run one at a time under the writer lock and publish a new
//! [`View`]; readers never wait. [`Backer::epoch`] grows after every change that may affect a translation. A
//! translation reads the epoch before the view, so a flow made from an older view always carries an older epoch.

mod addresses;
mod bonds;
mod covers;
mod failed;
mod following;
mod hosts;
mod learn;
mod macs;
mod mcast;
mod meters;
mod native;
mod revisions;
mod uuid;

pub use failed::{Failed, Failures};
pub use hosts::BackerHost;
pub use revisions::Revisions;

use crate::action_pool::LongLists;
use crate::barrier::DatapathBarrier;
use crate::cache::LearnedFlow;
use crate::cause::{Cause, RemovedReason};
use crate::changes::{Change, ChangeLog, Changes};
use crate::events::{PacketInEvent, RuleEvents};
use crate::features::ChosenFeatures;
use crate::flow_ops::AtOnce;
use crate::ids::BridgeId;
use crate::mac_table::MacTable;
use crate::meter_ids::MeterIds;
use crate::native::RouteCache;
use crate::ports::PortTable;
use crate::recirc::{FrozenState, RecircTable};
use crate::record::Recorder;
use crate::rule::{Expiry, Rule};
use crate::sampling::SampleSink;
use crate::tables::Tables;
use crate::ukey::{KEPT_FOR_PORTS_PERCENT, Room, Ukeys};
use crate::unresolved::Solicited;
use crate::view::{BridgeView, FragHandling, View};
use crate::xlate::{Request, Translation, translate};
use dpif::{Capabilities, PmdId, SlowReason, TimeoutId, Upcall, actions};
use flow::nlkey::{kernel_mask, mask_fits};
use flow::{DpPort, FLOW_WORDS, Flow, FlowKey, KeyMask, MacAddr, Mask, OfPort, RecircId, Ufid};
use openflow::msg::group::Group as GroupDesc;
use packet::Packet;
pub use revisions::count;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicBool, AtomicU64, BoundedQueue, Mutex, MutexGuard, Ordering, Reclaimer, Snapshot, lock};

/// Maximum packets that wait for the controllers of all bridges together.
const PACKET_IN_QUEUE: usize = 1024;
/// Maximum flows queued for a single check; beyond it, all flows are checked.
const STALE_QUEUE: usize = 4096;
/// Maximum rules with a deadline examined in one pass.
const DUE_AT_A_TIME: usize = 65_536;
/// Expired rules removed under one change of the tables.
const EXPIRED_AT_A_TIME: usize = 1024;
/// Maximum learned rules that wait for the end of a bridge's transaction.
const LEARNED_LATER_MAX: usize = 4096;

/// Tunables of the slow path (`other_config` of the `Open_vSwitch` row).
#[derive(Debug)]
pub struct Limits {
    /// Current limit of megaflows: the number that can be revalidated in time, up to `flow-limit`.
    pub flow_limit: AtomicU64,
    /// `flow-limit`.
    pub flow_limit_max: AtomicU64,
    /// Percentage of the limit reserved for ports with few flows.
    pub kept_for_ports_percent: AtomicU64,
    /// `max-idle`: idle timeout of a megaflow, in milliseconds.
    pub max_idle_ms: AtomicU64,
    /// `max-revalidator`: longest time between two rounds of revalidation, in milliseconds.
    pub max_revalidator_ms: AtomicU64,
    /// `bundle-idle-timeout`: idle timeout of a bundle of OpenFlow messages, in milliseconds.
    pub bundle_idle_ms: AtomicU64,
    /// `min-revalidate-pps`: while rounds over all flows take longer than half of `max-revalidator`, flows with a
    /// lower packet rate are deleted instead of translated again; 0 disables this.
    pub min_revalidate_pps: AtomicU64,
    /// The next round of revalidation deletes all flows that it sees (`revalidator/purge`).
    pub purge: AtomicBool,
    /// Install exact-match flows only (`upcall/disable-megaflows`).
    pub exact_flows: AtomicBool,
    /// Rounds of the revalidator read whole flows, not only names and counters.
    pub whole_dumps: AtomicBool,
}

impl Limits {
    /// Flow limits with `ports` ports.
    pub fn room(&self, ports: u64) -> Room {
        Room {
            flow_limit: self.flow_limit.load(Ordering::Relaxed),
            ports,
            kept_percent: self.kept_for_ports_percent.load(Ordering::Relaxed),
        }
    }

    /// Sets `flow-limit`; a change resets the current limit.
    pub fn set_flow_limit(&self, max: u64) {
        if self.flow_limit_max.swap(max, Ordering::Relaxed) != max {
            self.flow_limit.store(max, Ordering::Relaxed);
        }
    }

    /// Adapts the current limit to the duration of a round over all flows: lowers it in proportion to the excess
    /// over [`ROUND_TARGET_MS`], and raises it again when rounds are shorter. Returns the order of the new and the former
    /// limit.
    pub(crate) fn adapt(&self, round_ms: u64) -> std::cmp::Ordering {
        let max = self.flow_limit_max.load(Ordering::Relaxed);
        let now = self.flow_limit.load(Ordering::Relaxed).min(max);
        let next = if round_ms > ROUND_TARGET_MS {
            let wanted = u128::from(now) * u128::from(ROUND_TARGET_MS) / u128::from(round_ms);
            (wanted as u64).max(now - now / 4).max(FLOW_LIMIT_LEAST.min(max))
        } else if round_ms <= ROUND_TARGET_MS / 2 {
            now.saturating_add((now / 8).max(FLOW_LIMIT_LEAST)).min(max)
        } else {
            now
        };
        self.flow_limit.store(next, Ordering::Relaxed);
        next.cmp(&now)
    }

    /// Whether to translate a flow again, given the duration of the last round over all flows. The flow had
    /// `packets` packets since `since_ms`, the time of its last packet known before (0: none).
    pub(crate) fn is_worth_checking(&self, packets: u64, since_ms: u64, round_ms: u64, now_ms: u64) -> bool {
        let least_pps = self.min_revalidate_pps.load(Ordering::Relaxed);
        let is_hurried = round_ms >= self.max_revalidator_ms.load(Ordering::Relaxed) / 2;
        let took_ms = now_ms.saturating_sub(since_ms);
        !is_hurried || since_ms == 0 || packets.saturating_mul(1000) >= least_pps.saturating_mul(took_ms)
    }

    /// Idle timeout of a flow with the given number of flows, in milliseconds: `max-idle`, decreasing linearly from
    /// four fifths of the limit on, to free space before the limit is reached.
    pub fn idle_ms(&self, flows: u64) -> u64 {
        let max = self.max_idle_ms.load(Ordering::Relaxed);
        let limit = self.flow_limit.load(Ordering::Relaxed);
        let least = max.min(IDLE_LEAST_MS);
        let (tight, range) = (limit - limit / 5, limit / 5);
        let used = flows.saturating_sub(tight).min(range);
        let less = u128::from(max - least) * u128::from(used) / u128::from(range.max(1));
        max - less as u64
    }
}

/// Frozen states released under one lock.
const RELEASED_AT_A_TIME: usize = 32;
/// Round duration beyond which the flow limit decreases.
const ROUND_TARGET_MS: u64 = 1000;
/// Minimum of the flow limit, and minimum step of an increase.
const FLOW_LIMIT_LEAST: u64 = 1000;
/// Idle timeout at the flow limit.
pub(crate) const IDLE_LEAST_MS: u64 = 100;

/// Verdict on a retranslated flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rechecked {
    /// Keep it.
    Keep,
    /// Delete it.
    Delete,
    /// Change its actions.
    Modify,
}

/// Observes the slow path, on the thread that does the work; must not block. For tracers.
pub trait Observer: Send + Sync {
    /// The packet of an upcall is translated.
    fn translated(&self, upcall: &Upcall);
    /// A round of the revalidator begins, with this number of known flows.
    fn round_begins(&self, flows: u64);
    /// A round ends: the number of flows seen, and the milliseconds until the next one.
    fn round_ends(&self, flows: u64, next_ms: u64);
    /// A flow is about to be retranslated.
    fn recheck_begins(&self, ufid: Ufid, key: &FlowKey);
    /// It was retranslated.
    fn recheck_ends(&self, ufid: Ufid, result: Rechecked);
    /// Enables [`Observer::learned`].
    fn follows_learning(&self) -> bool;
    /// A bridge learned that an address is on a port.
    fn learned(&self, bridge: &str, mac: MacAddr, port: &str, vlan: u16);
    /// Enables [`Observer::group_built`].
    fn follows_groups(&self) -> bool;
    /// A select group was added or changed.
    fn group_built(&self, group: &GroupDesc);
}

/// Applies a rewrite to a packet and its key, of at most that many VLAN tags, as the datapath does; `false` if the datapath drops the packet for it,
/// or if that is unknown.
pub type Rewrite = Box<dyn Fn(&mut Packet, &mut FlowKey, actions::Rewrite<'_>, u8) -> bool + Send + Sync>;

/// State shared by the bridges of one datapath.
pub struct Backer {
    view: Snapshot<View>,
    writer: Mutex<()>,
    changes: ChangeLog,
    /// Barriers that cover the datapath.
    pub barrier: DatapathBarrier,
    recirc: Mutex<RecircTable>,
    pub(crate) meter_ids: Mutex<MeterIds>,
    /// Installed flows.
    pub ukeys: Ukeys,
    /// Long lists of their actions.
    pub(crate) long_lists: LongLists,
    /// Packets for controllers.
    packet_ins: BoundedQueue<PacketInEvent>,
    /// Events that had flows checked again.
    pub revisions: Revisions,
    /// Packets for controllers dropped because the queue was full.
    pub packet_ins_lost: AtomicU64,
    /// Packets for controllers suppressed because no controller listens.
    pub packet_ins_unwanted: AtomicU64,
    /// Packets for controllers made during translation, without a separate upcall; includes those that were dropped
    /// or unwanted.
    pub packet_ins_made: AtomicU64,
    /// Changes of rules to report to controllers.
    pub events: RuleEvents,
    /// Changes to write down for a later process.
    pub recorder: Recorder,
    /// Flows installed after their epoch ended: to be checked at once.
    pub(crate) stale: BoundedQueue<(Ufid, PmdId)>,
    /// Set if that queue overflowed: all flows are to be checked.
    pub(crate) stale_lost: AtomicBool,
    /// Changes of flows made without the revalidator.
    pub(crate) at_once: AtOnce,
    /// Failed translations to be logged.
    pub failures: Failures,
    /// Tunables.
    pub limits: Limits,
    /// Features of the datapath; see [`Backer::features`].
    pub capabilities: Capabilities,
    chosen_features: ChosenFeatures,
    /// Packet rewriter of the datapath, if known; see [`Rewrite`].
    pub rewrite: Option<Rewrite>,
    /// Takes sampled packets, if anything does.
    pub samples: Option<Arc<dyn SampleSink>>,
    /// Whether rules and packet-outs may use test actions (`debug_recirc`, `debug_slow`).
    pub debug_actions: bool,
    /// The observer, if any.
    pub observer: Option<&'static dyn Observer>,
    /// Start of the last complete dump of the datapath's flows.
    dumped_ms: AtomicU64,
    /// Routes that translations asked for.
    routes_asked: Mutex<RouteCache>,
    solicited: Mutex<Solicited>,
    hash_seed: u64,
    next_bridge: AtomicU64,
    /// Frees old versions with many rules.
    pub reclaimer: Reclaimer,
    /// Bridges with an open transaction, with rules learned meanwhile.
    open: Mutex<BTreeMap<BridgeId, Vec<(LearnedFlow, u64)>>>,
}

impl Backer {
    /// A backer without bridges; `hash_seed` keys the hash functions of its tables.
    pub fn new(hash_seed: u64) -> Backer {
        Backer {
            view: Snapshot::new(View::default()),
            writer: Mutex::new(()),
            changes: ChangeLog::default(),
            barrier: DatapathBarrier::default(),
            recirc: Mutex::new(RecircTable::default()),
            meter_ids: Mutex::default(),
            ukeys: Ukeys::default(),
            long_lists: LongLists::default(),
            packet_ins: BoundedQueue::new(PACKET_IN_QUEUE),
            revisions: Revisions::default(),
            packet_ins_lost: AtomicU64::new(0),
            packet_ins_unwanted: AtomicU64::new(0),
            packet_ins_made: AtomicU64::new(0),
            events: RuleEvents::default(),
            recorder: Recorder::default(),
            stale: BoundedQueue::new(STALE_QUEUE),
            stale_lost: AtomicBool::new(false),
            at_once: AtOnce::default(),
            failures: Failures::default(),
            limits: Limits {
                flow_limit: AtomicU64::new(200_000),
                flow_limit_max: AtomicU64::new(200_000),
                kept_for_ports_percent: AtomicU64::new(KEPT_FOR_PORTS_PERCENT),
                max_idle_ms: AtomicU64::new(10_000),
                max_revalidator_ms: AtomicU64::new(500),
                bundle_idle_ms: AtomicU64::new(10_000),
                min_revalidate_pps: AtomicU64::new(5),
                purge: AtomicBool::new(false),
                exact_flows: AtomicBool::new(false),
                whole_dumps: AtomicBool::new(false),
            },
            capabilities: Capabilities::ENOUGH,
            chosen_features: ChosenFeatures::default(),
            rewrite: None,
            samples: None,
            debug_actions: false,
            observer: None,
            dumped_ms: AtomicU64::new(0),
            routes_asked: Mutex::default(),
            solicited: Mutex::default(),
            hash_seed,
            next_bridge: AtomicU64::new(1),
            reclaimer: Reclaimer::default(),
            open: Mutex::default(),
        }
    }

    /// Features that translations use: those of the datapath, or fewer.
    pub fn features(&self) -> Capabilities {
        self.chosen_features.of(&self.capabilities)
    }

    /// Has translations use these features; checks all flows again.
    pub fn set_features(&self, features: Capabilities) {
        self.chosen_features.set(features);
        count(&self.revisions.reconfigured);
        self.bump_epoch();
    }

    /// The current view.
    pub fn view(&self) -> Arc<View> {
        self.view.load()
    }

    /// The mask of a flow made from the packet of `key`, which was translated to `t`.
    pub fn mask_of(&self, t: &Translation, key: &FlowKey) -> KeyMask {
        let all = Mask(Flow::from_words([u64::MAX; FLOW_WORDS]));
        let wc = if self.limits.exact_flows.load(Ordering::Relaxed) { &all } else { &t.wc };
        let mut mask = FlowKey::from_mask(wc, key);
        t.tlv.add_mask_of_options(&key.options, wc, &mut mask.options);
        // In the datapath's form, so that a flow read back compares equal.
        self.capabilities.key_limits.map_or(mask, |limits| kernel_mask(key, &mask, &limits))
    }

    /// Marks a translation of the packet of `key` as slow if the datapath's masks cannot express the examined bits.
    fn check_mask(&self, t: &mut Translation, key: &FlowKey) {
        if let Some(limits) = &self.capabilities.key_limits
            && !mask_fits(key, &FlowKey::from_mask(&t.wc, key), limits)
        {
            t.slow_reasons |= SlowReason::Match.bit();
        }
    }

    /// Translates the flow of a packet's key, for this datapath.
    pub(crate) fn translate(
        &self,
        request: &Request<'_>,
        key: &FlowKey,
        host: &mut BackerHost<'_>,
    ) -> Translation {
        let mut t = translate(request, host);
        self.check_mask(&mut t, key);
        t
    }

    /// Notifies the observer, if any.
    pub fn observe(&self, notify: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = self.observer {
            notify(observer);
        }
    }

    /// Number of the last change that may affect a translation.
    pub fn epoch(&self) -> u64 {
        self.changes.epoch()
    }

    /// The latest changes that may affect translations.
    pub fn latest_changes(&self) -> Changes {
        self.changes_since(0)
    }

    /// The changes that matter to flows of epoch `since` or later.
    pub(crate) fn changes_since(&self, since: u64) -> Changes {
        self.changes.since(since)
    }

    /// Has every flow checked again.
    pub fn bump_epoch(&self) {
        self.changes.record(None);
    }

    /// Tells the observer of select groups that were added or changed.
    pub fn tell_groups(&self, built: impl Iterator<Item = GroupDesc>) {
        if let Some(observer) = self.observer.filter(|observer| observer.follows_groups()) {
            built.for_each(|group| observer.group_built(&group));
        }
    }

    /// Adds an empty bridge under the next free number.
    pub fn add_bridge(&self, name: &str) -> BridgeId {
        let id = BridgeId(self.next_bridge.fetch_add(1, Ordering::Relaxed) as u32);
        self.insert_bridge(id, name);
        id
    }

    /// Adds an empty bridge under a number chosen by the caller; replaces an existing one.
    pub fn insert_bridge(&self, id: BridgeId, name: &str) {
        let bridge = BridgeView {
            id,
            name: name.into(),
            tables: Tables::new(self.hash_seed ^ u64::from(id.0) << 32, &self.reclaimer),
            ports: Arc::new(PortTable::default()),
            has_slb: false,
            macs: Arc::new(Mutex::new(MacTable::default())),
            mcast: None,
            meters: Arc::default(),
            miss_to_controller: false,
            in_band: false,
            listeners: Arc::default(),
            forward_bpdu: false,
            mirrors: None,
            sampling: None,
            netflow: None,
            flood_vlans: None,
            frags: FragHandling::default(),
        };
        self.change(|view| {
            view.bridges.insert(id, Arc::new(bridge));
        });
    }

    /// Removes a bridge and the mapping of its ports.
    pub fn remove_bridge(&self, id: BridgeId) {
        self.change(|view| {
            addresses::follow(view, id, &PortTable::default());
            let removed = view.bridges.remove(&id);
            if let Some((bridge, native)) = removed.zip(view.native.as_ref()) {
                lock(&native.neighbours).flush(Some(&bridge.name));
            }
            Arc::make_mut(&mut view.dp_ports).retain(|_, (bridge, _)| *bridge != id);
            view.tunnels.set(id, std::iter::empty());
        });
        lock(&self.open).remove(&id);
        self.events.forget(id);
        self.recorder.bridge_gone(id);
    }

    /// Changes the view under the writer lock, publishes it and starts a new epoch.
    pub fn change<R>(&self, f: impl FnOnce(&mut View) -> R) -> R {
        count(&self.revisions.reconfigured);
        self.change_as(f, None)
    }

    /// As [`Backer::change`], if the change affects only what `changes` name.
    fn change_as<R>(&self, f: impl FnOnce(&mut View) -> R, changes: Option<Vec<Change>>) -> R {
        let _order = lock(&self.writer);
        let mut view = View::clone(&self.view.load());
        let result = f(&mut view);
        self.view.store(Arc::new(view));
        self.changes.record(changes);
        result
    }

    /// Changes one bridge; `None` if it does not exist.
    pub fn change_bridge<R>(&self, id: BridgeId, f: impl FnOnce(&mut BridgeView) -> R) -> Option<R> {
        self.change(|view| {
            let bridge = Arc::make_mut(view.bridges.get_mut(&id)?);
            let result = f(bridge);
            let journal = bridge.tables.commit();
            self.events.follow(id, &journal, bridge.tables.is_monitored());
            self.recorder.follow(id, &journal, &bridge.tables);
            journal.discard(&self.reclaimer);
            Some(result)
        })
    }

    /// Changes rules of one bridge; `None` if it does not exist or has an open transaction. An epoch starts only if
    /// a translation may come out differently.
    pub fn change_tables<R>(&self, id: BridgeId, f: impl FnOnce(&mut Tables) -> R) -> Option<R> {
        let order = lock(&self.writer);
        if self.is_changing(id) {
            return None;
        }
        self.publish(order, id, f)
    }

    fn publish<R>(
        &self,
        order: MutexGuard<'_, ()>,
        id: BridgeId,
        f: impl FnOnce(&mut Tables) -> R,
    ) -> Option<R> {
        let mut view = View::clone(&self.view.load());
        let bridge = Arc::make_mut(view.bridges.get_mut(&id)?);
        let (tables, ports) = (&mut bridge.tables, bridge.ports.clone());
        let result = f(tables);
        let journal = tables.commit();
        let monitored = tables.is_monitored();
        self.recorder.follow(id, &journal, tables);
        if !journal.is_empty() {
            self.view.store(Arc::new(view));
        }
        self.events.follow(id, &journal, monitored);
        let changes = journal.changes(id, &|port| ports.port(port)?.dp_port);
        if changes.as_ref().is_none_or(|changes| !changes.is_empty()) {
            count(&self.revisions.tables);
            self.changes.record(changes);
        }
        drop(order);
        journal.discard(&self.reclaimer);
        Some(result)
    }

    /// Evicts rules from tables with more than their limit.
    pub fn evict_excess(&self, id: BridgeId) {
        while self.change_tables(id, |tables| tables.evict_excess(EXPIRED_AT_A_TIME)).is_some_and(|n| n > 0) {
        }
    }

    /// Whether a bridge has an open transaction. Rule changes of other origin wait for its end.
    pub fn is_changing(&self, id: BridgeId) -> bool {
        lock(&self.open).contains_key(&id)
    }

    /// Opens the tables of a bridge for a transaction; `None` if it does not exist or another one is open.
    pub(crate) fn open_tables(&self, id: BridgeId) -> Option<Tables> {
        let _order = lock(&self.writer);
        let view = self.view();
        let bridge = view.bridge(id)?;
        if self.is_changing(id) {
            return None;
        }
        lock(&self.open).insert(id, Vec::new());
        Some(bridge.tables.open())
    }

    /// Publishes the tables of a transaction.
    pub(crate) fn publish_tables(&self, id: BridgeId, mut tables: Tables) {
        let old = self.publish(lock(&self.writer), id, |there| {
            tables.adopt_settings(there);
            std::mem::replace(there, tables)
        });
        if let Some(old) = old {
            self.close_tables(id, old);
        }
    }

    /// Ends a transaction: drops tables that were undone or replaced, and adds the rules learned meanwhile.
    pub(crate) fn close_tables(&self, id: BridgeId, unused: Tables) {
        unused.close();
        unused.retire();
        let learned = lock(&self.open).remove(&id).unwrap_or_default();
        for (flow, used_ms) in learned {
            self.learn_rule(id, &flow, used_ms);
        }
    }

    /// Replaces the ports of a bridge and the mapping of its datapath ports.
    pub fn set_ports(&self, id: BridgeId, ports: PortTable) {
        self.change(|view| {
            addresses::follow(view, id, &ports);
            let Some(bridge) = view.bridges.get_mut(&id) else { return };
            let devices = ports.ports.values().filter(|p| p.tunnel.is_none());
            let dp_ports: Vec<(DpPort, OfPort)> =
                devices.filter_map(|p| Some((p.dp_port?, p.of_port))).collect();
            view.tunnels.set(id, ports.ports.values());
            let bridge = Arc::make_mut(bridge);
            bridge.has_slb = ports.has_slb();
            bridge.ports = Arc::new(ports);
            let all = Arc::make_mut(&mut view.dp_ports);
            all.retain(|_, (b, _)| *b != id);
            all.extend(dp_ports.into_iter().map(|(d, o)| (d, (id, o))));
        });
    }

    /// Replaces the timeout policies of zones. Flows that name former ones are changed by the revalidator.
    pub fn set_zone_timeouts(&self, timeouts: BTreeMap<u16, TimeoutId>) {
        self.change(|view| view.zone_timeouts = Arc::new(timeouts));
    }

    /// Sets the number of VLAN tags that rules tell apart, 1 or 2. The datapath has the same limit by then.
    pub fn set_vlan_limit(&self, tags: u8) {
        if self.view().vlan_limit != tags {
            self.change(|view| view.vlan_limit = tags);
        }
    }

    /// Has flows checked that depend on whether a port can send.
    pub fn port_toggled(&self, bridge: BridgeId, port: OfPort) {
        count(&self.revisions.toggled);
        self.changes.record(Some(vec![Change::Port(bridge, port)]));
    }

    /// The frozen state of an id.
    pub fn recirc_state(&self, id: RecircId) -> Option<Arc<FrozenState>> {
        lock(&self.recirc).state(id)
    }

    /// Number of frozen states.
    pub fn recirc_count(&self) -> usize {
        lock(&self.recirc).len()
    }

    /// Releases ids held by a translation or a flow; a few at a time, since handlers wait for the table.
    pub fn recirc_release(&self, ids: &[RecircId]) {
        for some in ids.chunks(RELEASED_AT_A_TIME) {
            let mut table = lock(&self.recirc);
            let ended: Vec<_> = some.iter().filter_map(|id| table.release(*id)).collect();
            drop(table);
            // Frees the states outside the lock.
            drop(ended);
        }
    }

    /// Queues a packet for the controllers; drops and counts it if the queue is full.
    pub(crate) fn queue_packet_in(&self, event: PacketInEvent) {
        if self.packet_ins.push(event).is_err() {
            self.packet_ins_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes at most `max` packets for controllers on, oldest first; returns their number.
    pub fn route_packet_ins(&self, max: usize, to: impl FnMut(PacketInEvent)) -> usize {
        std::iter::from_fn(|| self.packet_ins.pop()).take(max).map(to).count()
    }

    /// Number of packets waiting for controllers.
    pub fn packet_ins_waiting(&self) -> usize {
        self.packet_ins.len()
    }

    /// Whether any event waits for controllers.
    pub fn has_events(&self) -> bool {
        !self.packet_ins.is_empty() || !self.events.is_empty()
    }

    /// Queues a flow whose translation is older than the current epoch.
    pub(crate) fn queue_stale(&self, ufid: Ufid, pmd: PmdId) {
        if self.stale.push((ufid, pmd)).is_err() {
            self.stale_lost.store(true, Ordering::Release);
        }
    }

    /// Records that a dump of the datapath's flows begun at that time is complete and its statistics are pushed:
    /// flows unused by then are idle.
    pub fn dump_completed(&self, began_ms: u64) {
        self.dumped_ms.fetch_max(began_ms, Ordering::AcqRel);
    }

    /// Ages addresses and removes expired rules. Call about once a second. Idle timeouts expire only after a dump
    /// that began after them.
    pub fn expire(&self, now_ms: u64) {
        let dumped_ms = self.dumped_ms.load(Ordering::Acquire);
        let view = self.view();
        for (id, bridge) in &view.bridges {
            if lock(&bridge.macs).expire(dumped_ms) {
                self.macs_changed();
            }
            self.expire_mcast(bridge, now_ms);
            if self.is_changing(*id) {
                continue;
            }
            let due = bridge.tables.take_due(now_ms, DUE_AT_A_TIME).into_iter();
            let over: Vec<(Arc<Rule>, Expiry)> =
                due.filter_map(|r| r.expired(now_ms, dumped_ms).map(|expiry| (r, expiry))).collect();
            for some in over.chunks(EXPIRED_AT_A_TIME) {
                // Without space in the event queue, rules expire later.
                if self.events.room(*id) == 0 {
                    break;
                }
                self.end_expired(*id, some);
            }
            while bridge.tables.has_orphans() && self.events.room(*id) > 0 {
                if self.end_expired(*id, &[]) == 0 {
                    break;
                }
            }
        }
    }

    /// Removes expired rules that are still present as seen, and some of the rules that they had learned; returns
    /// their number.
    fn end_expired(&self, bridge: BridgeId, over: &[(Arc<Rule>, Expiry)]) -> usize {
        let ended = self.change_tables(bridge, |tables| {
            let mut ended = 0;
            for (rule, expiry) in over {
                let reason = match expiry {
                    Expiry::Idle => RemovedReason::Idle,
                    Expiry::Hard => RemovedReason::Hard,
                };
                tables.caused_by(Cause { reason, ..Cause::default() });
                let same = |now: &Arc<Rule>| Arc::ptr_eq(now, rule);
                ended +=
                    usize::from(tables.remove_if(rule.table, &rule.matching, rule.priority, same).is_some());
            }
            self.revisions.expired.fetch_add(ended as u64, Ordering::Relaxed);
            ended + tables.end_orphans(EXPIRED_AT_A_TIME).len()
        });
        ended.unwrap_or_default()
    }
}
