//! What all bridges of one datapath share: the view that translations read, frozen states, installed flows, events.
//!
//! Writers (flow-mods, port changes, learned rules) work one at a time under the writer lock and publish a new [`View`];
//! readers never wait. [`Backer::epoch`] grows after every change that may change a translation: who translates reads the
//! epoch first and the view second, so a flow that was made from an older view always carries an older epoch.

use crate::events::{PacketInEvent, RemovedReason, RemovedRules};
use crate::flow_mod::TABLE_MAX_RULES;
use crate::mac_table::MacTable;
use crate::meter_ids::MeterIds;
use crate::ports::{BridgeId, PortTable};
use crate::recirc::{FrozenState, RecircTable};
use crate::rule::{Expiry, Rule, RuleStats, RuleTimeouts};
use crate::tables::Tables;
use crate::ukey::{KEPT_FOR_PORTS_PERCENT, Room, Ukeys};
use crate::view::{BridgeView, FragHandling, View};
use crate::xlate::{EffectHost, LearnedFlow, Request, Translation, XlateHost, translate};
use dpif::{Capabilities, PmdId, Upcall, actions, slow_reason};
use flow::nlkey::{kernel_mask, mask_fits};
use flow::{DpPort, FLOW_WORDS, Flow, FlowKey, KeyMask, Mask, OfPort, PackedMatch, RecircId, Ufid};
use packet::Packet;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicBool, AtomicU64, BoundedQueue, Mutex, MutexGuard, Ordering, Reclaimer, Snapshot, lock};

/// How many packets may wait for the controllers of all bridges together.
const PACKET_IN_QUEUE: usize = 1024;
/// How many flows may wait to be checked by themselves before all are.
const STALE_QUEUE: usize = 4096;
/// How many translations that ended in an error may wait to be told.
const FAULT_QUEUE: usize = 16;
/// Rules with a deadline that one pass looks at, at most.
const DUE_AT_A_TIME: usize = 65_536;
/// Rules that end by time under one change of the tables.
const EXPIRED_AT_A_TIME: usize = 1024;
/// Learned rules that wait for the end of a bridge's transaction, at most.
const LEARNED_LATER_MAX: usize = 4096;

/// Tunables of the slow path (`other_config` of the `Open_vSwitch` row).
#[derive(Debug)]
pub struct Limits {
    /// Megaflows at most, as of now: what can be revalidated in time, up to `flow-limit`.
    pub flow_limit: AtomicU64,
    /// `flow-limit`.
    pub flow_limit_max: AtomicU64,
    /// Of those so many percent are kept for ports that have few.
    pub kept_for_ports_percent: AtomicU64,
    /// `max-idle`: a megaflow without packets for so long goes, in milliseconds.
    pub max_idle_ms: AtomicU64,
    /// `max-revalidator`: longest time between two rounds of revalidation, in milliseconds.
    pub max_revalidator_ms: AtomicU64,
    /// `min-revalidate-pps`: while rounds over all flows take longer than half of `max-revalidator`, a flow with fewer packets
    /// a second goes rather than being translated again; 0: none does.
    pub min_revalidate_pps: AtomicU64,
    /// The next round of revalidation is to delete all flows that it sees (`revalidator/purge`).
    pub purge: AtomicBool,
    /// Flows match the packets they are made from and no others (`upcall/disable-megaflows`).
    pub exact_flows: AtomicBool,
}

impl Limits {
    /// How many flows there may be beside `ports` ports.
    pub fn room(&self, ports: u64) -> Room {
        Room {
            flow_limit: self.flow_limit.load(Ordering::Relaxed),
            ports,
            kept_percent: self.kept_for_ports_percent.load(Ordering::Relaxed),
        }
    }

    /// Sets `flow-limit`; the limit of now follows when it changes.
    pub fn set_flow_limit(&self, max: u64) {
        if self.flow_limit_max.swap(max, Ordering::Relaxed) != max {
            self.flow_limit.store(max, Ordering::Relaxed);
        }
    }

    /// Follows with the limit of now what a round over all flows took: slowly down when it takes longer than
    /// [`ROUND_TARGET_MS`], in proportion to how much too long it was, and up again when there is time.
    pub(crate) fn adapt(&self, round_ms: u64) {
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
    }

    /// Whether a flow is worth translating again, of which `packets` came since `since_ms`, the time of its last packet that was
    /// known before (0: none was), when the last round over all flows took so long.
    pub(crate) fn is_worth_checking(&self, packets: u64, since_ms: u64, round_ms: u64, now_ms: u64) -> bool {
        let least_pps = self.min_revalidate_pps.load(Ordering::Relaxed);
        let is_hurried = round_ms >= self.max_revalidator_ms.load(Ordering::Relaxed) / 2;
        let took_ms = now_ms.saturating_sub(since_ms);
        !is_hurried || since_ms == 0 || packets.saturating_mul(1000) >= least_pps.saturating_mul(took_ms)
    }

    /// How long a flow may be without packets beside so many flows, in milliseconds: `max-idle` while there is room, from
    /// four fifths of the limit on evenly less, so that those in use find room before it is reached.
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

/// Frozen states that are ended under one lock.
const RELEASED_AT_A_TIME: usize = 32;
/// A round over all flows that takes longer lowers the flow limit.
const ROUND_TARGET_MS: u64 = 1000;
/// The flow limit is not lowered further, and raised by so many at least.
const FLOW_LIMIT_LEAST: u64 = 1000;
/// Flows without packets for so long go when there is no room at all.
pub(crate) const IDLE_LEAST_MS: u64 = 100;

/// What came of translating a flow again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rechecked {
    /// It stays as it is.
    Keep,
    /// It goes.
    Delete,
    /// It gets other actions.
    Modify,
}

/// Is told what the slow path does, on the thread that does it, and must not wait. For tracers.
pub trait Observer: Send + Sync {
    /// The packet of an upcall is translated.
    fn translated(&self, upcall: &Upcall);
    /// A round of the revalidator begins, with so many flows known.
    fn round_begins(&self, flows: u64);
    /// A round that saw so many flows is over; the next one is due in so many milliseconds.
    fn round_ends(&self, flows: u64, next_ms: u64);
    /// A flow is to be translated again.
    fn recheck_begins(&self, ufid: Ufid, key: &FlowKey);
    /// It was.
    fn recheck_ends(&self, ufid: Ufid, result: Rechecked);
}

/// Does to a packet and its key what the datapath does for a rewrite; `false` when the datapath drops the packet for it, or when that is
/// not known.
pub type Rewrite = Box<dyn Fn(&mut Packet, &mut FlowKey, actions::Rewrite<'_>) -> bool + Send + Sync>;

/// What the bridges of one datapath share.
pub struct Backer {
    view: Snapshot<View>,
    writer: Mutex<()>,
    epoch: AtomicU64,
    recirc: Mutex<RecircTable>,
    pub(crate) meter_ids: Mutex<MeterIds>,
    /// Installed flows.
    pub ukeys: Ukeys,
    /// Packets for controllers.
    packet_ins: BoundedQueue<PacketInEvent>,
    /// Packets for controllers that did not fit.
    pub packet_ins_lost: AtomicU64,
    /// Packets for controllers that were not made because nobody listens.
    pub packet_ins_unwanted: AtomicU64,
    /// Packets for controllers that were made where a packet was translated, without an upcall of their own; those that did
    /// not fit or that nobody wanted included.
    pub packet_ins_made: AtomicU64,
    /// Ended rules that controllers are to be told of.
    pub removed: RemovedRules,
    /// Flows that were installed when a newer epoch had begun: their translation is to be checked at once.
    pub(crate) stale: BoundedQueue<(Ufid, PmdId)>,
    /// Set when some of them found no room: all flows are to be checked.
    pub(crate) stale_lost: AtomicBool,
    /// What translations of packets stumbled over, to be logged.
    pub faults: BoundedQueue<String>,
    /// Tunables.
    pub limits: Limits,
    /// What the datapath can do.
    pub capabilities: Capabilities,
    /// How the datapath rewrites a packet, where that is known; see [`Rewrite`].
    pub rewrite: Option<Rewrite>,
    /// Whether rules and packet-outs may have actions for tests of a switch (`debug_recirc`, `debug_slow`).
    pub debug_actions: bool,
    /// Who is told what is done, if anybody.
    pub observer: Option<&'static dyn Observer>,
    /// When the last complete dump of the datapath's flows began.
    dumped_ms: AtomicU64,
    hash_seed: u64,
    next_bridge: AtomicU64,
    /// Drops old versions of many rules.
    pub reclaimer: Reclaimer,
    /// Bridges whose tables a transaction changes, with the rules that are learned meanwhile.
    open: Mutex<BTreeMap<BridgeId, Vec<(LearnedFlow, u64)>>>,
}

impl Backer {
    /// A backer without bridges; `hash_seed` keys the hash functions of its tables.
    pub fn new(hash_seed: u64) -> Backer {
        Backer {
            view: Snapshot::new(View::default()),
            writer: Mutex::new(()),
            epoch: AtomicU64::new(1),
            recirc: Mutex::new(RecircTable::default()),
            meter_ids: Mutex::default(),
            ukeys: Ukeys::default(),
            packet_ins: BoundedQueue::new(PACKET_IN_QUEUE),
            packet_ins_lost: AtomicU64::new(0),
            packet_ins_unwanted: AtomicU64::new(0),
            packet_ins_made: AtomicU64::new(0),
            removed: RemovedRules::default(),
            stale: BoundedQueue::new(STALE_QUEUE),
            stale_lost: AtomicBool::new(false),
            faults: BoundedQueue::new(FAULT_QUEUE),
            limits: Limits {
                flow_limit: AtomicU64::new(200_000),
                flow_limit_max: AtomicU64::new(200_000),
                kept_for_ports_percent: AtomicU64::new(KEPT_FOR_PORTS_PERCENT),
                max_idle_ms: AtomicU64::new(10_000),
                max_revalidator_ms: AtomicU64::new(500),
                min_revalidate_pps: AtomicU64::new(5),
                purge: AtomicBool::new(false),
                exact_flows: AtomicBool::new(false),
            },
            capabilities: Capabilities::ENOUGH,
            rewrite: None,
            debug_actions: false,
            observer: None,
            dumped_ms: AtomicU64::new(0),
            hash_seed,
            next_bridge: AtomicU64::new(1),
            reclaimer: Reclaimer::default(),
            open: Mutex::default(),
        }
    }

    /// The view of now.
    pub fn view(&self) -> Arc<View> {
        self.view.load()
    }

    /// The mask of a flow made from the packet of `key`, whose translation looked at `wc`.
    pub fn mask_of(&self, wc: &Mask, key: &FlowKey) -> KeyMask {
        let mask = if self.limits.exact_flows.load(Ordering::Relaxed) {
            FlowKey::from_mask(&Mask(Flow::from_words([u64::MAX; FLOW_WORDS])), key)
        } else {
            FlowKey::from_mask(wc, key)
        };
        // As the datapath will hold it, so that a flow read back compares equal.
        self.capabilities.key_limits.map_or(mask, |limits| kernel_mask(key, &mask, &limits))
    }

    /// Marks a translation of the packet of `key` as slow when the datapath's masks cannot tell apart what it looked at.
    fn check_mask(&self, t: &mut Translation, key: &FlowKey) {
        if let Some(limits) = &self.capabilities.key_limits
            && !mask_fits(key, &FlowKey::from_mask(&t.wc, key), limits)
        {
            t.slow_reasons |= slow_reason::MATCH;
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

    /// Tells the observer, if there is one.
    pub fn observe(&self, tell: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = self.observer {
            tell(observer);
        }
    }

    /// Number of the last change that may change a translation.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Makes every translation be checked again.
    pub fn bump_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Adds an empty bridge under the next free number.
    pub fn add_bridge(&self, name: &str) -> BridgeId {
        let id = BridgeId(self.next_bridge.fetch_add(1, Ordering::Relaxed) as u32);
        self.insert_bridge(id, name);
        id
    }

    /// Adds an empty bridge under a number that its owner chose; one of that number is replaced.
    pub fn insert_bridge(&self, id: BridgeId, name: &str) {
        let bridge = BridgeView {
            id,
            name: name.into(),
            tables: Tables::new(self.hash_seed ^ u64::from(id.0) << 32, &self.reclaimer),
            ports: Arc::new(PortTable::default()),
            macs: Arc::new(Mutex::new(MacTable::default())),
            meters: Arc::default(),
            miss_to_controller: false,
            listeners: Arc::default(),
            forward_bpdu: false,
            frags: FragHandling::default(),
        };
        self.change(|view| {
            view.bridges.insert(id, Arc::new(bridge));
        });
    }

    /// Removes a bridge and the mapping of its ports.
    pub fn remove_bridge(&self, id: BridgeId) {
        self.change(|view| {
            view.bridges.remove(&id);
            view.dp_ports.retain(|_, (bridge, _)| *bridge != id);
            view.tunnels.set(id, std::iter::empty());
        });
        lock(&self.open).remove(&id);
        self.removed.forget(id);
    }

    /// Changes the view under the writer lock, publishes it and starts a new epoch.
    pub fn change<R>(&self, f: impl FnOnce(&mut View) -> R) -> R {
        let _order = lock(&self.writer);
        let mut view = View::clone(&self.view.load());
        let result = f(&mut view);
        self.view.store(Arc::new(view));
        self.bump_epoch();
        result
    }

    /// Changes one bridge; `None` when it is not there.
    pub fn change_bridge<R>(&self, id: BridgeId, f: impl FnOnce(&mut BridgeView) -> R) -> Option<R> {
        self.change(|view| {
            let bridge = Arc::make_mut(view.bridges.get_mut(&id)?);
            let result = f(bridge);
            bridge.tables.commit().discard(&self.reclaimer);
            Some(result)
        })
    }

    /// Changes rules of one bridge; `None` when it is not there or a transaction changes them. An epoch starts only if a translation
    /// may come out differently.
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
        let tables = &mut Arc::make_mut(view.bridges.get_mut(&id)?).tables;
        let result = f(tables);
        let journal = tables.commit();
        if !journal.is_empty() {
            self.view.store(Arc::new(view));
        }
        if journal.affects_translation() {
            self.bump_epoch();
        }
        drop(order);
        journal.discard(&self.reclaimer);
        Some(result)
    }

    /// Whether a transaction changes the tables of a bridge. Rules of other origin wait for its end.
    pub fn is_changing(&self, id: BridgeId) -> bool {
        lock(&self.open).contains_key(&id)
    }

    /// Opens the tables of a bridge for a transaction; `None` when it is not there or another one is open.
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
            tables.adopt_prefixes(there);
            std::mem::replace(there, tables)
        });
        if let Some(old) = old {
            self.close_tables(id, old);
        }
    }

    /// Ends a transaction: drops tables that were undone or that others have replaced, and learns what waited.
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
            let Some(bridge) = view.bridges.get_mut(&id) else { return };
            let gone: Vec<_> =
                bridge.ports.bundles.keys().filter(|b| !ports.bundles.contains_key(b)).copied().collect();
            let mut macs = lock(&bridge.macs);
            for bundle in gone {
                macs.forget_bundle(bundle);
            }
            drop(macs);
            let devices = ports.ports.values().filter(|p| p.tunnel.is_none());
            let dp_ports: Vec<(DpPort, OfPort)> =
                devices.filter_map(|p| Some((p.dp_port?, p.of_port))).collect();
            view.tunnels.set(id, ports.ports.values());
            Arc::make_mut(bridge).ports = Arc::new(ports);
            view.dp_ports.retain(|_, (b, _)| *b != id);
            view.dp_ports.extend(dp_ports.into_iter().map(|(d, o)| (d, (id, o))));
        });
    }

    /// The frozen state of an id.
    pub fn recirc_state(&self, id: RecircId) -> Option<Arc<FrozenState>> {
        lock(&self.recirc).state(id)
    }

    /// How many frozen states are held.
    pub fn recirc_count(&self) -> usize {
        lock(&self.recirc).len()
    }

    /// Gives ids back that a translation or a flow held; a few at a time, since handlers wait for the table.
    pub fn recirc_release(&self, ids: &[RecircId]) {
        for some in ids.chunks(RELEASED_AT_A_TIME) {
            let mut table = lock(&self.recirc);
            let ended: Vec<_> = some.iter().filter_map(|id| table.release(*id)).collect();
            drop(table);
            // What they stood for is freed while nobody waits.
            drop(ended);
        }
    }

    /// Queues a packet for the controllers; lost and counted when there is no room.
    pub(crate) fn tell_packet_in(&self, event: PacketInEvent) {
        if self.packet_ins.push(event).is_err() {
            self.packet_ins_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands at most `max` of the packets for controllers on, oldest first; how many.
    pub fn route_packet_ins(&self, max: usize, to: impl FnMut(PacketInEvent)) -> usize {
        std::iter::from_fn(|| self.packet_ins.pop()).take(max).map(to).count()
    }

    /// How many packets for controllers wait.
    pub fn packet_ins_waiting(&self) -> usize {
        self.packet_ins.len()
    }

    /// Whether anything waits to be told to controllers.
    pub fn has_events(&self) -> bool {
        !self.packet_ins.is_empty() || !self.removed.is_empty()
    }

    /// Keeps what a packet's translation stumbled over, to be logged; what finds no room is told by others of its kind.
    pub(crate) fn tell_fault(&self, bridge: &str, flow: &Flow, t: &Translation) {
        let Some(fault) = t.fault.as_deref().filter(|_| self.faults.len() < FAULT_QUEUE) else { return };
        let flow = flow::text::format_flow(flow);
        let _ = self.faults.push(format!("{fault} on bridge {bridge} while processing {flow}"));
    }

    /// A flow was installed whose translation is older than the present.
    pub(crate) fn tell_stale(&self, ufid: Ufid, pmd: PmdId) {
        if self.stale.push((ufid, pmd)).is_err() {
            self.stale_lost.store(true, Ordering::Release);
        }
    }

    /// A dump of the datapath's flows that began at that time is complete, its statistics pushed: what was not used by then
    /// is known to be idle.
    pub fn dump_completed(&self, began_ms: u64) {
        self.dumped_ms.fetch_max(began_ms, Ordering::AcqRel);
    }

    /// Ages addresses and ends rules whose time is over. To be called about once a second. What idles ends only after a dump
    /// that began after its time.
    pub fn expire(&self, now_ms: u64) {
        let dumped_ms = self.dumped_ms.load(Ordering::Acquire);
        let view = self.view();
        for (id, bridge) in &view.bridges {
            if lock(&bridge.macs).expire(dumped_ms) {
                self.bump_epoch();
            }
            if self.is_changing(*id) {
                continue;
            }
            let due = bridge.tables.take_due(now_ms, DUE_AT_A_TIME).into_iter();
            let over: Vec<(Arc<Rule>, Expiry)> =
                due.filter_map(|r| r.expired(now_ms, dumped_ms).map(|expiry| (r, expiry))).collect();
            for some in over.chunks(EXPIRED_AT_A_TIME) {
                // What finds no room ends at a later time.
                if self.removed.room(*id) == 0 {
                    break;
                }
                self.end_expired(*id, some);
            }
            while bridge.tables.has_orphans() && self.removed.room(*id) > 0 {
                if self.end_expired(*id, &[]) == 0 {
                    break;
                }
            }
        }
    }

    /// Ends rules whose time is over, as far as they are still there as they were seen, and some of what they had learned; returns
    /// how many.
    fn end_expired(&self, bridge: BridgeId, over: &[(Arc<Rule>, Expiry)]) -> usize {
        let ended = self.change_tables(bridge, |tables| {
            let mut end = |r: &Arc<Rule>| {
                tables.remove_if(r.table, &r.matching, r.priority, |now| Arc::ptr_eq(now, r)).is_some()
            };
            let over = over.iter().filter(|(r, _)| end(r)).collect::<Vec<_>>();
            (over, tables.end_orphans(EXPIRED_AT_A_TIME))
        });
        let (over, orphans) = ended.unwrap_or_default();
        let ended = over.len() + orphans.len();
        for (rule, expiry) in over {
            let reason = match expiry {
                Expiry::Idle => RemovedReason::Idle,
                Expiry::Hard => RemovedReason::Hard,
            };
            self.removed.push(bridge, rule, reason);
        }
        orphans.iter().for_each(|rule| self.removed.push(bridge, rule, RemovedReason::Delete));
        ended
    }
}

/// The rule that a learned flow becomes.
fn learned_rule(tables: &Tables, matching: PackedMatch, l: &LearnedFlow, now_ms: u64) -> Rule {
    let stats = RuleStats::default();
    stats.credit(0, 0, now_ms);
    Rule {
        table: l.table,
        matching,
        priority: l.priority.into(),
        cookie: l.cookie,
        timeouts: RuleTimeouts::new(l.idle_timeout_s, l.hard_timeout_s, &l.actions),
        importance: 0,
        flags: l.flags,
        actions: tables.intern(&l.actions),
        created_ms: now_ms,
        modified_ms: now_ms,
        stats: Arc::new(stats),
    }
}

/// Whether the table has room for a learned flow under its limit, or has it already; a rule of another cookie in its place
/// does not count.
fn has_room(tables: &Tables, matching: &PackedMatch, l: &LearnedFlow) -> bool {
    let there = tables.find_exactly(l.table, matching, l.priority.into());
    if there.is_none() && tables.rule_count(l.table) >= TABLE_MAX_RULES as usize {
        return false;
    }
    if l.limit == 0 || there.is_some_and(|r| r.cookie == l.cookie) {
        return true;
    }
    tables.len_of_cookie(l.table, l.cookie) < l.limit as usize
}

impl Backer {
    /// Adds a learned rule, or refreshes the one that is there: its age, not its idle time, which only packets that match
    /// it do, nor its timeouts, which may have been shortened, as in OVS. A rule whose actions changed is replaced.
    pub fn learn_rule(&self, bridge: BridgeId, l: &LearnedFlow, used_ms: u64) -> bool {
        let view = self.view();
        let Some(b) = view.bridge(bridge) else { return false };
        let matching = b.tables.pack(l.table, &l.matching);
        let is_same = |there: &Rule| *there.actions == l.actions[..] && there.cookie == l.cookie;
        if let Some(there) = b.tables.find_exactly(l.table, &matching, l.priority.into())
            && is_same(there)
        {
            // A rule with a hard timeout counts anew from the packet that would have made it; within a second, the unit of
            // timeouts, it is not worth a new version of the tables.
            let stale = there.timeouts.hard_s() != 0 && there.modified_ms + 1000 <= used_ms;
            if !stale {
                return true;
            }
        }
        let learned = self.change_tables(bridge, |tables| {
            if !has_room(tables, &matching, l) {
                return false;
            }
            let mut rule = learned_rule(tables, matching.clone(), l, used_ms);
            if let Some(there) = tables.find_exactly(l.table, &matching, l.priority.into()) {
                if is_same(there) {
                    rule = Rule::clone(there);
                }
                rule.stats = there.stats.clone();
                rule.created_ms = there.created_ms;
                rule.modified_ms = used_ms.max(there.modified_ms);
            }
            tables.insert(Arc::new(rule));
            true
        });
        learned.unwrap_or_else(|| self.learn_later(bridge, l, used_ms))
    }

    /// Keeps a learned rule until the open transaction ends; returns whether there is room for it.
    fn learn_later(&self, bridge: BridgeId, l: &LearnedFlow, used_ms: u64) -> bool {
        if let Some(waiting) = lock(&self.open).get_mut(&bridge) {
            let has_room = waiting.len() < LEARNED_LATER_MAX;
            if has_room {
                waiting.push((l.clone(), used_ms));
            }
            return has_room;
        }
        // The transaction ended meanwhile, or the bridge.
        self.view().bridge(bridge).is_some() && self.learn_rule(bridge, l, used_ms)
    }

    /// The host of a translation; `effects` lets it add learned rules.
    pub fn xlate_host(&self, effects: bool, now_ms: u64) -> BackerHost<'_> {
        BackerHost { backer: self, effects, now_ms }
    }

    /// The host of replayed effects.
    pub fn effect_host(&self) -> impl EffectHost + '_ {
        BackerEffects { backer: self }
    }
}

struct BackerEffects<'a> {
    backer: &'a Backer,
}

impl EffectHost for BackerEffects<'_> {
    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow, used_ms: u64) {
        self.backer.learn_rule(bridge, learned, used_ms);
    }

    fn macs_changed(&mut self) {
        self.backer.bump_epoch();
    }
}

/// What a translation asks of its backer.
pub struct BackerHost<'a> {
    backer: &'a Backer,
    effects: bool,
    now_ms: u64,
}

impl XlateHost for BackerHost<'_> {
    fn capabilities(&self) -> Capabilities {
        self.backer.capabilities
    }

    fn recirc_hold(&mut self, state: FrozenState) -> Option<RecircId> {
        lock(&self.backer.recirc).hold_state(state)
    }

    fn recirc_state(&mut self, id: RecircId) -> Option<Arc<FrozenState>> {
        self.backer.recirc_state(id)
    }

    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow) -> bool {
        if self.effects {
            return self.backer.learn_rule(bridge, learned, self.now_ms);
        }
        self.backer
            .view()
            .bridge(bridge)
            .is_some_and(|b| has_room(&b.tables, &b.tables.pack(learned.table, &learned.matching), learned))
    }

    fn has_effects(&self) -> bool {
        self.effects
    }
}
