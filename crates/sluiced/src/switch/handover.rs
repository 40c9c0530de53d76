//! The switch in a handover ([`crate::handover`]): as the process that ends, and as its successor.

use super::Switch;
use super::restore::learn;
use crate::db::Db;
use crate::inherited::{InheritedDatapath, LentDatapath};
use crate::instances::Instance;
use crate::link_protocols::{LinkProtocols, SavedSession};
use crate::openflow::{BridgeText, LentClient};
use crate::reactor::Reactor;
use crate::state::Counted;
use crate::stream::Listener;
use anyhow::{Context as _, Result};
use dpif::{CtCarry, CtExport, CtImported, DpifOp, OpResult, PmdId, Provider};
use dpif_netdev::{MeterLevels, QueuePlace};
use flow::{DpPort, FlowKey, Ufid};
use ofproto::backer::Backer;
use ofproto::ids::{BridgeId, BundleId};
use ofproto::mcast::{McastEntry, McastPlace, McastStep};
use ofproto::ukey::Walk;
use ofproto::upcall;
use ofproto::view::BridgeView;
use ovsdb::client::{ClientState, LockState};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;
use sync::{Ordering, lock};

/// Flows sent to a thread at a time.
const FLOWS_AT_ONCE: usize = 256;
/// Multicast groups read from a bridge at a time.
pub(crate) const GROUPS_AT_ONCE: usize = 16_384;
/// Rules and groups credited in a turn of the main loop.
const RULES_PER_TURN: usize = 4096;
const GROUPS_PER_TURN: usize = 256;
/// Longest wait for the last statistics of flows.
const LAST_ROUND: Duration = Duration::from_secs(2);

/// Part of a switch in a handover.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Role {
    /// None.
    #[default]
    Whole,
    /// Its successor prepares: the configuration stays.
    Leaving,
    /// The successor of a process that runs or ends: it has neither controllers nor the database's lock.
    Succeeding,
    /// That has ended; the lock is awaited.
    Claiming,
}

/// The switch that this process succeeds to.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Its datapaths by name.
    pub(crate) datapaths: BTreeMap<String, InheritedDatapath>,
    /// Bytes of its state file when it was described.
    pub(crate) state_bytes: u64,
    /// Sessions of its link protocols then.
    pub(crate) sessions: Vec<SavedSession>,
}

/// Has link protocols begin with the sessions of another process, which runs: they do nothing until the change.
pub(super) fn succeed_sessions(link_protocols: &mut LinkProtocols, sessions: &[SavedSession]) {
    for why in link_protocols.restore(sessions.to_vec(), 0) {
        log::warn!(target: "handover", "a link session begins anew: {why}");
    }
    link_protocols.hold_from_start();
}

/// A walk over the flows of a datapath.
pub(crate) struct FlowWalk {
    datapath: String,
    backer: Arc<Backer>,
}

impl FlowWalk {
    /// Calls `f` with the name of the datapath, the name, thread and key of each flow that begins at a port.
    pub(crate) fn each(&self, mut f: impl FnMut(&str, Ufid, u16, FlowKey)) {
        let mut walk = Some(Walk::default());
        while let Some(from) = walk {
            let mut some = Vec::new();
            walk = self.backer.ukeys.each(from, |ufid, pmd, ukey| {
                let key = ukey.flow.key();
                if let (PmdId::Core(core), 0) = (pmd, key.base.recirc_id) {
                    some.push((ufid, core, key));
                }
            });
            // Flows are locked no longer.
            some.into_iter().for_each(|(ufid, core, key)| f(&self.datapath, ufid, core, key));
        }
    }
}

/// A walk over the multicast groups of a bridge, which goes on at those that changed.
pub(crate) struct GroupWalk {
    bridge: String,
    backer: Arc<Backer>,
    id: BridgeId,
    place: McastPlace,
}

impl GroupWalk {
    /// The next groups, and whether there are no more for now.
    pub(crate) fn next(&mut self) -> (Vec<GroupNote>, bool) {
        let view = self.backer.view();
        let Some((bridge, groups)) = view.bridge(self.id).and_then(|b| Some((b, b.mcast.as_ref()?))) else {
            return (Vec::new(), true);
        };
        let McastStep { is_anew, entries, is_last, place } = lock(groups).since(self.place, GROUPS_AT_ONCE);
        self.place = place;
        let now_ms = sys::clock::monotonic_ms();
        let of = |entry| GroupNote { bridge: self.bridge.clone(), entry };
        let named = |entry: McastEntry<BundleId>| {
            let is_alone = entry.is_alone();
            by_age(entry, now_ms).map(|id| {
                let bundle = bridge.ports.bundles.get(&id);
                // The port that began a group may be gone.
                let name = bundle.map(|bundle| bundle.name.to_string());
                name.or(is_alone.then(|| "-".to_string())).filter(|name| !name.contains(char::is_control))
            })
        };
        let notes = entries.into_iter().filter_map(|entry| Some(of(Some(named(entry)?))));
        (is_anew.then(|| of(None)).into_iter().chain(notes).collect(), is_last)
    }
}

/// An entry with the age in place of the time, or the time in place of the age.
fn by_age<P>(entry: McastEntry<P>, now_ms: u64) -> McastEntry<P> {
    McastEntry { seen_ms: entry.seen_ms.map(|seen_ms| now_ms.saturating_sub(seen_ms)), ..entry }
}

/// A multicast group or router of a bridge, its port by name, with its age in place of the time of its last report; `None`: those
/// so far are forgotten.
#[derive(Debug)]
pub(crate) struct GroupNote {
    pub(crate) bridge: String,
    pub(crate) entry: Option<McastEntry<String>>,
}

/// A meter of a bridge, by its OpenFlow number.
#[derive(Debug)]
pub(crate) struct MeterNote {
    pub(crate) bridge: String,
    pub(crate) id: u32,
    pub(crate) levels: MeterLevels,
}

/// A flow of the other process: its name, its thread, the key of a packet.
pub(crate) type FormerFlow = (Ufid, u16, FlowKey);

/// Makes flows of a datapath from those of the other process; returns their number.
fn make_flows(instance: &Instance, flows: Vec<FormerFlow>) -> usize {
    let Some(datapath) = &instance.userspace else { return 0 };
    let now_ms = sys::clock::monotonic_ms();
    let mut receivers: BTreeMap<DpPort, Vec<PmdId>> = BTreeMap::new();
    let mut by_thread: BTreeMap<PmdId, Vec<DpifOp>> = BTreeMap::new();
    let mut made = 0;
    for (ufid, core, key) in flows {
        let port = key.in_port();
        let receivers = receivers.entry(port).or_insert_with(|| datapath.receivers(port));
        let same = receivers.iter().find(|pmd| **pmd == PmdId::Core(core));
        let Some(pmd) = same.or(receivers.first()).copied() else { continue };
        let Some(put) = upcall::inherit(&instance.backer, ufid, pmd, &key, now_ms) else { continue };
        let puts = by_thread.entry(pmd).or_default();
        puts.push(put);
        if puts.len() >= FLOWS_AT_ONCE {
            made += put_flows(instance, pmd, std::mem::take(puts));
        }
    }
    made + by_thread.into_iter().map(|(pmd, puts)| put_flows(instance, pmd, puts)).sum::<usize>()
}

/// Puts flows on a thread of a datapath; returns their number.
fn put_flows(instance: &Instance, pmd: PmdId, puts: Vec<DpifOp>) -> usize {
    let names: Vec<_> = puts.iter().map(DpifOp::creates).collect();
    let results = instance.ask(pmd, puts).unwrap_or_default();
    let mut installed = 0;
    for (n, ufid) in names.into_iter().enumerate() {
        let Some(ufid) = ufid else { continue };
        let is_installed = matches!(results.get(n), Some(OpResult::Done));
        installed += usize::from(is_installed);
        upcall::put_done(&instance.backer, pmd, ufid, is_installed);
    }
    installed
}

/// Last counters of the process that this one succeeded.
#[derive(Default)]
pub(super) struct LastCounters {
    receiver: Option<Receiver<Vec<(String, Counted)>>>,
    left: VecDeque<(String, Counted)>,
}

impl LastCounters {
    fn are_pending(&self) -> bool {
        self.receiver.is_some() || !self.left.is_empty()
    }
}

impl Switch {
    /// Lends the ports of all datapaths to a successor; `None`: not yet, ask again soon.
    ///
    /// # Errors
    /// A datapath or port cannot pass to another process, with the reason.
    pub(crate) fn lend(&self) -> Result<Option<Vec<LentDatapath>>, String> {
        if !self.applied_once {
            return Err("the configuration is not in force yet".to_string());
        }
        if self.last_counters.are_pending() {
            return Ok(None);
        }
        let mut lent = Vec::new();
        for instance in self.instances.all() {
            let name = instance.name();
            if !self.instances.iter().any(|bridged| bridged.name() == name) {
                return Err(format!(
                    "{name}: a datapath made by command cannot be handed over; remove it first"
                ));
            }
            let Some(datapath) = &instance.userspace else {
                return Err(format!(
                    "{name}: a datapath of the kernel stays at a restart, and cannot be handed over"
                ));
            };
            let Some(ports) = datapath.lend().map_err(|why| format!("{name}: {why}"))? else {
                return Ok(None);
            };
            lent.push(LentDatapath { name: name.to_string(), hash_seed: instance.hash_seed, ports });
        }
        Ok(Some(lent))
    }

    /// Begins or goes on to write the state for a successor; the receiver gets the bytes of the file.
    ///
    /// # Errors
    /// No file is written.
    pub(crate) fn sync_state(&mut self) -> Result<Receiver<io::Result<u64>>, String> {
        self.role = Role::Leaving;
        self.state.sync(self.backers(), &self.tracked())
    }

    /// Datapaths whose connections are kept.
    pub(super) fn tracked(&self) -> Vec<Arc<dyn Provider>> {
        self.instances.iter().map(|instance| instance.datapath.clone()).collect()
    }

    pub(super) fn backers(&self) -> Vec<Arc<Backer>> {
        self.instances.iter().map(|instance| instance.backer.clone()).collect()
    }

    /// The states of all sessions of link protocols.
    ///
    /// # Errors
    /// Their thread does not answer.
    pub(crate) fn saved_sessions(&self) -> Result<Vec<SavedSession>, String> {
        self.link_protocols.saved()
    }

    /// Stops the sessions of link protocols until [`Switch::receive_again`].
    ///
    /// # Errors
    /// Their thread does not answer.
    pub(crate) fn hold_sessions(&self) -> Result<(), String> {
        self.link_protocols.hold().inspect_err(|_| self.link_protocols.go_on())
    }

    /// Begins the way of the connections of all datapaths to a successor.
    pub(crate) fn exports(&self) -> Vec<(String, Box<dyn CtExport>)> {
        let of = |i: &Instance| {
            Some((i.name().to_string(), i.datapath.connections()?.export(CtCarry::Over).ok()?))
        };
        self.instances.iter().filter_map(of).collect()
    }

    /// Takes connections of the other process.
    pub(crate) fn inherit_connections(&self, datapath: &str, slice: &[u8]) {
        let Ok(instance) = self.instances.named(Some(datapath)) else { return };
        let Some(imported) = instance.datapath.connections().map(|connections| connections.import(slice))
        else {
            return;
        };
        let why = match imported {
            Ok(CtImported { refused: 0, .. }) => return,
            Ok(CtImported { refused, why, .. }) => {
                format!("{refused} are refused: {}", why.unwrap_or_default())
            }
            Err(e) => e.to_string(),
        };
        log::warn!(target: "handover", "{datapath}: connections: {why}");
    }

    /// Walks over the flows of all datapaths, for any thread.
    pub(crate) fn flow_walks(&self) -> Vec<FlowWalk> {
        let of = |i: &Instance| FlowWalk { datapath: i.name().to_string(), backer: i.backer.clone() };
        self.instances.iter().map(of).collect()
    }

    /// Walks over the multicast groups of all bridges, for any thread.
    pub(crate) fn group_walks(&self) -> Vec<GroupWalk> {
        let of_instance = |instance: &Instance| {
            let backer = instance.backer.clone();
            let view = backer.view();
            let snooping = view.bridges.values().filter(|bridge| bridge.mcast.is_some());
            let walk = |bridge: &Arc<BridgeView>| GroupWalk {
                bridge: bridge.name.to_string(),
                backer: backer.clone(),
                id: bridge.id,
                place: McastPlace::default(),
            };
            snooping.map(walk).collect::<Vec<_>>()
        };
        self.instances.iter().flat_map(of_instance).collect()
    }

    /// Takes multicast groups of the other process, in their order, without members of ports that are no more.
    pub(crate) fn inherit_groups(&self, notes: Vec<GroupNote>) {
        let now_ms = sys::clock::monotonic_ms();
        let mut of_bridges: BTreeMap<String, Vec<Option<McastEntry<String>>>> = BTreeMap::new();
        for GroupNote { bridge, entry } in notes {
            of_bridges.entry(bridge).or_default().push(entry);
        }
        for (name, entries) in of_bridges {
            let Some((instance, bridge)) = self.instances.bridge(&name) else { continue };
            let Some(groups) = &bridge.mcast else { continue };
            let bundles: BTreeMap<_, _> =
                bridge.ports.bundles.iter().map(|(id, bundle)| (bundle.name.as_str(), *id)).collect();
            let begin = entries.iter().rposition(Option::is_none);
            let (mut groups, mut changes) = (lock(groups), Vec::new());
            let is_flushed = begin.is_some() && groups.flush();
            for entry in entries.into_iter().skip(begin.unwrap_or(0)).flatten() {
                let none = entry.is_alone().then_some(BundleId::NONE);
                if let Some(entry) = entry.map(|port| bundles.get(port.as_str()).copied().or(none)) {
                    groups.restore(&by_age(entry, now_ms), &mut changes);
                }
            }
            drop(groups);
            if is_flushed {
                instance.backer.bump_epoch();
            }
            instance.backer.mcast_changed(bridge.id, &changes);
        }
    }

    /// Stops receiving on all datapaths; returns the places of their queues.
    pub(crate) fn stop_receiving(&mut self) -> Vec<(String, Vec<QueuePlace>)> {
        let of = |i: &Instance| Some((i.name().to_string(), i.userspace.as_ref()?.stop_receiving()));
        self.instances.iter().filter_map(of).collect()
    }

    /// Levels and counters of all meters that had packets, while nothing is received.
    pub(crate) fn meters(&self) -> Vec<MeterNote> {
        let of_instance = |instance: &Instance| {
            let datapath = instance.userspace.as_ref()?;
            let view = instance.backer.view();
            let of_bridge = |bridge: &Arc<BridgeView>| {
                let note = |(id, number): (&u32, &u32)| {
                    let levels = datapath.meter_levels(*number)?;
                    Some(MeterNote { bridge: bridge.name.to_string(), id: *id, levels })
                };
                bridge.meters.iter().filter_map(note).collect::<Vec<_>>()
            };
            Some(view.bridges.values().flat_map(of_bridge).collect::<Vec<_>>())
        };
        self.instances.iter().filter_map(of_instance).flatten().collect()
    }

    /// Has meters go on from the levels of the other process.
    fn resume_meters(&self, notes: &[MeterNote]) {
        for of_bridge in notes.chunk_by(|a, b| a.bridge == b.bridge) {
            let found = of_bridge.first().and_then(|note| self.instances.bridge(&note.bridge));
            let Some((Instance { userspace: Some(datapath), .. }, bridge)) = found else { continue };
            for MeterNote { id, levels, .. } in of_bridge {
                if let Some(number) = bridge.meters.get(id) {
                    datapath.meter_resume(*number, levels);
                }
            }
        }
    }

    /// Receives again, since the successor failed: where it stopped, or if the other one `may_have_received`, by new queues.
    pub(crate) fn receive_again(&mut self, may_have_received: bool) {
        self.link_protocols.go_on();
        for instance in self.instances.iter() {
            let Some(datapath) = &instance.userspace else { continue };
            let lost = if may_have_received { datapath.begin_anew() } else { Vec::new() };
            for (name, why) in lost {
                log::error!(target: "handover", "{}: port {name} receives no more: {why}", instance.name());
            }
            datapath.begin(&[]);
        }
    }

    /// The listening sockets of controllers and of the database.
    pub(crate) fn listeners<'a>(&'a mut self, db: &'a mut Db) -> impl Iterator<Item = &'a mut Listener> {
        self.openflow.listeners().chain(db.listeners())
    }

    /// The handover has failed: goes on as before, with the changes of the database meanwhile.
    pub(crate) fn stay(&mut self) {
        self.instances.iter().filter_map(|i| i.userspace.as_ref()).for_each(|datapath| datapath.take_back());
        self.state.go_on();
        (self.role, self.replans) = (Role::Whole, true);
    }

    /// Has the last statistics of flows counted, after the handover.
    pub(super) fn count_last(&self) {
        let rounds: Vec<_> = self.instances.iter().map(|i| (i, i.order_round())).collect();
        let until = std::time::Instant::now() + LAST_ROUND;
        let is_over = |(instance, round): &(&Instance, u64)| {
            instance.revalidator().finished.load(Ordering::Acquire) > *round
        };
        while !rounds.iter().all(is_over) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether a successor has carried out the configuration.
    pub(crate) fn is_prepared(&self) -> bool {
        self.applied_once
    }

    /// Makes flows from those of the other process, by datapath.
    pub(crate) fn inherit_flows(&self, flows: BTreeMap<String, Vec<FormerFlow>>) {
        let (mut all, mut made) = (0, 0);
        for (name, flows) in flows {
            all += flows.len();
            if let Ok(instance) = self.instances.named(Some(&name)) {
                made += make_flows(instance, flows);
            }
        }
        log::info!(target: "handover", "{made} flows of {all} are installed");
    }

    /// The change: follows the state up to these bytes of the other process's file, and receives from its places on.
    ///
    /// # Errors
    /// The state cannot be read: nothing is received.
    pub(crate) fn take_over(
        &mut self,
        bytes: u64,
        places: &BTreeMap<String, Vec<QueuePlace>>,
        sessions: Vec<SavedSession>,
        meters: &[MeterNote],
    ) -> Result<()> {
        let changes = self.state.take_changes(bytes).context("the state of the process to succeed")?;
        let now_ms = sys::clock::monotonic_ms();
        for (name, changes) in changes {
            let found = self.instances.bridge(&name).map(|(i, bridge)| (i.backer.clone(), bridge.id));
            let Some((backer, id)) = found else { continue };
            let refused = self.openflow.follow(id, &changes.state, now_ms);
            let left_out = refused.len() + changes.faults.len();
            if left_out > 0 {
                log::warn!(target: "handover", "{name}: {left_out} last changes of rules, groups and meters are left out");
            }
            learn(&backer, id, &mut BTreeMap::from([(id, changes.macs)]));
        }
        // A changed meter begins with full buckets.
        self.resume_meters(meters);
        for instance in self.instances.iter() {
            if let Some(datapath) = &instance.userspace {
                datapath.begin(places.get(instance.name()).map_or(&[], Vec::as_slice));
            }
        }
        for why in self.link_protocols.renew(sessions, 0) {
            log::warn!(target: "handover", "a link session begins anew: {why}");
        }
        self.link_protocols.go_on();
        self.link_protocols.end_restore(|bridge| self.instances.of_bridge(bridge));
        Ok(())
    }

    /// The other process has ended: takes its role, once the database has given its lock, with its OpenFlow connections.
    pub(crate) fn claim(&mut self, clients: Vec<LentClient>, reactor: &mut Reactor) {
        self.role = Role::Claiming;
        self.last_counters.receiver = self.state.take_counters();
        let now_ms = sys::clock::monotonic_ms();
        self.openflow.open(reactor, now_ms);
        self.openflow.adopt(clients, reactor, now_ms);
    }

    /// Whether all OpenFlow connections that can pass to another process may do so now.
    pub(crate) fn clients_may_pass(&self) -> bool {
        self.openflow.may_pass()
    }

    /// OpenFlow connections for the successor, which forwards.
    pub(crate) fn lend_clients(&mut self, reactor: &mut Reactor) -> Vec<LentClient> {
        self.openflow.lend(&self.instances, reactor, sys::clock::monotonic_ms())
    }

    /// State that controllers gave to bridges, besides rules, groups and meters.
    pub(crate) fn saved_bridges(&mut self) -> Vec<BridgeText> {
        self.openflow.saved_bridges()
    }

    /// Goes on with state that controllers gave to a bridge in the other process.
    ///
    /// # Errors
    /// It is malformed.
    pub(crate) fn inherit_bridge(&mut self, saved: &BridgeText) -> Result<()> {
        let adopted = self.openflow.adopt_bridge(saved);
        adopted.map_err(|why| anyhow::anyhow!("bridge {}: {why}", saved.bridge))
    }

    /// Whether the other process has ended and the lock is this one's, so that it is a switch as any other from now on.
    pub(super) fn ends_succession(&mut self, db: &Db) -> bool {
        let client = db.client_ref();
        let ends = self.role == Role::Claiming
            && client.state() == ClientState::Ready
            && client.lock_state() == LockState::Held;
        if ends {
            (self.role, self.replans) = (Role::Whole, true);
        }
        ends
    }

    /// Adds the last counters of the other process; returns whether more are left for the next turn.
    pub(super) fn add_last_counters(&mut self) -> bool {
        let LastCounters { receiver, left } = &mut self.last_counters;
        match receiver.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) | None => {}
            // Without an answer its thread has told why.
            Some(counted) => {
                left.extend(counted.unwrap_or_default());
                *receiver = None;
            }
        }
        let Some((name, Counted { rules, groups })) = left.front_mut() else { return receiver.is_some() };
        if let Some((_, bridge)) = self.instances.bridge(name) {
            for (group, counts) in groups.drain(groups.len().saturating_sub(GROUPS_PER_TURN)..) {
                // One that has changed since counts anew.
                let same = bridge.tables.groups().get(group.id).filter(|now| now.desc() == group);
                same.iter().for_each(|now| now.add_counts(&counts));
            }
            for (rule, past) in rules.drain(rules.len().saturating_sub(RULES_PER_TURN)..) {
                let found = bridge.tables.find_exactly(rule.table, &rule.matching, rule.priority.into());
                found.iter().for_each(|rule| rule.stats.credit(past.packets, past.bytes, past.used_ms));
            }
        } else {
            *rules = Vec::new();
            *groups = Vec::new();
        }
        if rules.is_empty() && groups.is_empty() {
            left.pop_front();
        }
        true
    }
}
