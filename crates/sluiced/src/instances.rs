//! The running datapaths: one for each datapath type with bridges, each with its slow path and the state shared by
//! its bridges; and those made by command (`dpctl/add-dp`).
//!
//! An instance with bridges starts with the first one of its type and ends with the last one. One made by command has no
//! bridges, and its flows are those added by command: nothing translates, and no revalidator changes them.

mod kept_flows;
mod settings;

pub(crate) use settings::{Samples, Settings};

use crate::dp_features::log_support;
use crate::implementations::Chosen;
use crate::observer::SlowPathProbes;
use crate::slowpath::{InlineSlowPath, RevalidatorState, SlowPath, Wake};
use crate::zones::Zones;
use anyhow::{Context, Result, ensure};
use dpif::{
    Datapath as _, DpifOp, DropReason, DummyMode, OpBatch, OpResult, PerfLog, PmdId, PmdStats, PortOptions,
    PortSpec, Provider, ReplySink, ThreadPlan,
};
use dpif_netdev::offload::Providers;
use dpif_netdev::{UserspaceConfig, UserspaceDatapath};
use dpif_netlink::{KernelConfig, KernelDatapath, Mode};
use flow::DpPort;
use flow::extract::MAX_VLANS;
use netdev::dummy::{Dummy, DummyPorts};
use ofproto::backer::Backer;
use ofproto::ports::BridgeId;
use ofproto::revalidate::{Few, RevalidatorStats, change_at_once};
use ofproto::tunnel_ports::TunnelPorts;
use ofproto::view::BridgeView;
use routing::Routes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use sync::{Mutex, Ordering, Unparker, lock};
use vswitch::config::{CtConfig, GlobalConfig, UpcallDispatch};

/// Timeout of a command sent to a forwarding thread.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// One datapath with its slow path.
pub struct Instance {
    /// Key of its hash functions.
    pub(crate) hash_seed: u64,
    /// State shared by its bridges.
    pub backer: Arc<Backer>,
    /// The datapath.
    pub datapath: Arc<dyn Provider>,
    /// The datapath, if it is one of user space.
    pub(crate) userspace: Option<Arc<UserspaceDatapath>>,
    slow: SlowPath,
    bridges: BTreeSet<BridgeId>,
    dummy: bool,
    /// `n-handler-threads`.
    handlers: Option<u32>,
    /// It rests until its rules are restored.
    awaits_rules: bool,
    seen_epoch: u64,
    zones: Zones,
    /// Its tunnels, as last reported.
    pub(crate) tunnels: TunnelPorts,
    /// It follows routes and neighbours.
    pub(crate) is_routed: bool,
    /// Options of ports made by command.
    pub(crate) port_options: Mutex<BTreeMap<DpPort, BTreeMap<String, String>>>,
}

impl Instance {
    fn start(
        type_name: &str,
        short: &str,
        settings: &Settings,
        global: Option<&GlobalConfig>,
        wake: &Wake,
    ) -> Result<Instance> {
        let kept_seed = settings.kept_seed(type_name, short);
        let inherited_seed = settings.inherited(type_name, short).map(|inherited| inherited.hash_seed);
        let hash_seed =
            inherited_seed.or(kept_seed).map_or_else(sys::random::u64, Ok).context("no random numbers")?;
        let mut backer = Backer::new(hash_seed.rotate_left(17));
        backer.observer = Some(&SlowPathProbes);
        backer.debug_actions = settings.dummies != DummyMode::Off;
        backer.rewrite = Some(Box::new(datapath::rewrite));
        backer.samples = settings.samples.0.clone();
        let vlan_limit = vlan_limit(global);
        let is_bridged = short == default_name(type_name);
        let awaits_rules = kept_seed.is_some();
        let rests = !is_bridged || awaits_rules || global.is_some_and(|g| g.flow_restore_wait);
        let of_kernel = (type_name == "system" && !settings.dummies.is_datapath(type_name))
            .then(|| kernel(short, global));
        let (backer, datapath, userspace) = match of_kernel.transpose()? {
            Some(datapath) => {
                backer.capabilities = datapath.capabilities();
                (Arc::new(backer), datapath, None)
            }
            None => {
                let is_dummy = settings.dummies.is_datapath(type_name);
                backer.capabilities = dpif_netdev::capabilities(vlan_limit, is_dummy);
                let backer = Arc::new(backer);
                let datapath = userspace(type_name, short, settings, hash_seed, vlan_limit, &backer, wake)?;
                (backer, datapath.clone() as Arc<dyn Provider>, Some(datapath))
            }
        };
        backer.set_vlan_limit(datapath.set_vlan_limit(vlan_limit));
        log_support(datapath.name(), &datapath.capabilities());
        let slow = SlowPath::start(&backer, datapath.clone(), None, rests, wake.clone())
            .context("cannot start the slow path")?;
        let zones = Zones::new(datapath.name(), datapath.connections());
        Ok(Instance {
            hash_seed,
            backer,
            datapath,
            userspace,
            slow,
            bridges: BTreeSet::new(),
            dummy: settings.dummies.is_datapath(type_name),
            handlers: None,
            awaits_rules,
            seen_epoch: 0,
            zones,
            tunnels: TunnelPorts::default(),
            is_routed: false,
            port_options: Mutex::default(),
        })
    }

    /// `type@name`.
    pub fn name(&self) -> &str {
        self.datapath.name()
    }

    /// Whether a name from a command line refers to this datapath: complete, or without its type.
    pub fn is_named(&self, name: &str) -> bool {
        let own = self.name();
        name == own || own.split_once('@').is_some_and(|(_, short)| name == short)
    }

    /// Whether its internal ports are dummies.
    pub fn is_dummy(&self) -> bool {
        self.dummy
    }

    /// Number of its handlers.
    pub fn handlers(&self) -> usize {
        self.slow.handlers()
    }

    /// State of the revalidator.
    pub fn revalidator(&self) -> &RevalidatorState {
        &self.slow.state
    }

    /// Statistics of the revalidator's last rounds.
    pub fn revalidator_stats(&self) -> RevalidatorStats {
        *lock(&self.slow.state.stats)
    }

    /// Starts a round of the revalidator at once.
    pub fn wake_revalidator(&self) {
        self.slow.wake_revalidator();
    }

    /// Wakes the revalidator, from any thread.
    pub(crate) fn revalidator_unparker(&self) -> Unparker {
        self.slow.revalidator()
    }

    /// Sends operations to a thread and waits for their results.
    pub fn ask(&self, pmd: PmdId, ops: Vec<DpifOp>) -> Result<Vec<OpResult>, String> {
        ask(&*self.datapath, pmd, ops)
    }

    /// Counters of all threads.
    pub fn pmd_stats(&self) -> Vec<(PmdId, PmdStats)> {
        pmd_stats(&*self.datapath)
    }

    /// Counters of all threads together: see [`Instance::totals_with`].
    pub fn totals(&self) -> PmdStats {
        self.totals_with(&self.pmd_stats())
    }

    /// The counters of these threads together, with those of ended ones, and of upcalls that ended with their port.
    pub fn totals_with(&self, threads: &[(PmdId, PmdStats)]) -> PmdStats {
        totals_with(&*self.datapath, threads)
    }

    /// Starts a round of the revalidator at once; returns its number, complete when [`RevalidatorState::finished`]
    /// is past it.
    pub fn order_round(&self) -> u64 {
        let state = &self.slow.state;
        // Another one may have begun, not reported yet.
        let next = state.begun.load(Ordering::Acquire) + 1;
        state.wanted.fetch_max(next + 1, Ordering::AcqRel);
        self.wake_revalidator();
        next
    }

    fn set_global(&mut self, global: &GlobalConfig) {
        let limits = &self.backer.limits;
        limits.set_flow_limit(global.flow_limit.into());
        limits.max_idle_ms.store(global.max_idle_ms, Ordering::Relaxed);
        limits.max_revalidator_ms.store(global.max_revalidator_ms, Ordering::Relaxed);
        limits.bundle_idle_ms.store(global.bundle_idle_s * 1000, Ordering::Relaxed);
        limits.min_revalidate_pps.store(global.min_revalidate_pps, Ordering::Relaxed);
        if !global.flow_restore_wait && !self.awaits_rules {
            self.slow.begin();
        }
        self.handlers = global.handler_threads;
        self.set_handlers();
        self.slow.set_revalidators(global.revalidator_threads);
        self.slow.log_threads();
        if let Some(threads) = self.datapath.pmd_threads()
            && let Err(e) = threads.configure(&global.threads)
        {
            log::error!(target: "dpif_netdev", "{}: {e}; the threads stay as they were", self.name());
        }
    }

    /// Sets the number of VLAN tags in keys. The datapath comes first: packets that the slow path still gets with the
    /// former number make no flow.
    fn set_vlan_limit(&self, tags: u8) {
        self.backer.set_vlan_limit(self.datapath.set_vlan_limit(tags));
    }

    fn set_handlers(&mut self) {
        if let Err(e) = self.slow.set_handlers(self.handlers) {
            log::error!(target: "ofproto_dpif_upcall", "{}: not all handlers could be started: {e}", self.name());
        }
    }

    /// Housekeeping, about once a second.
    fn tick(&mut self) {
        self.datapath.tick();
        if self.slow.lacks_handlers() {
            self.set_handlers();
        }
        let finished = self.slow.state.finished.load(Ordering::Acquire);
        let mut zones = std::mem::take(&mut self.zones);
        let tracker = self.datapath.connections();
        zones.remove_unused(tracker, finished, sys::clock::monotonic_ms(), &mut || self.order_round());
        self.zones = zones;
    }

    fn set_conntrack(&mut self, config: Arc<CtConfig>) {
        self.zones.set(self.datapath.name(), self.datapath.connections(), config);
    }

    /// Whether the database sets limits of zones, so that commands may not.
    pub fn database_owns_limits(&self) -> bool {
        self.zones.own_limits()
    }

    /// Removes the datapath.
    fn end(self) {
        let Instance { datapath, slow, zones, .. } = self;
        drop(slow);
        zones.end(datapath.name(), datapath.connections(), || datapath.remove());
    }

    fn enable_offload(&self) {
        if let Some(offload) = self.datapath.offload() {
            offload.enable();
        }
    }

    fn set_perf_log(&self, log: PerfLog) {
        if let Some(threads) = self.datapath.pmd_threads() {
            threads.set_perf_log(log);
        }
    }

    /// Serves the ports without threads, and wakes the revalidator after changes of the tables; `true` if more work
    /// is ready.
    fn run(&mut self) -> bool {
        let mut more = self.datapath.run_main();
        if !self.zones.is_settled() {
            let mut assign = |timeouts| self.backer.set_zone_timeouts(timeouts);
            self.zones.run(self.datapath.name(), self.datapath.connections(), &mut assign);
            // The result is for the next turn.
            more = true;
        }
        let epoch = self.backer.epoch();
        // Without flows a round has nothing to check. A flow put later from an older view is checked at the put.
        let changed = epoch != self.seen_epoch && !self.backer.ukeys.is_empty();
        let is_open = || {
            let now_ms = sys::clock::monotonic_ms();
            !change_at_once(&self.backer, &*self.datapath, Few::FOR_OTHERS, now_ms)
        };
        if changed && is_open() || self.backer.barrier.wanted().is_some() {
            self.wake_revalidator();
        }
        if changed {
            self.seen_epoch = epoch;
        }
        more
    }
}

/// Sends operations to a thread of a datapath and waits for their results.
fn ask(datapath: &dyn Provider, pmd: PmdId, ops: Vec<DpifOp>) -> Result<Vec<OpResult>, String> {
    let (results, answer) = sync_channel(1);
    datapath.operate(OpBatch { pmd, ops, tag: 0, reply: Some(Arc::new(Ask(results))) });
    answer.recv_timeout(ASK_LIMIT).map_err(|_| "a forwarding thread did not answer".to_string())
}

/// See [`Instance::pmd_stats`]; from any thread.
pub(crate) fn pmd_stats(datapath: &dyn Provider) -> Vec<(PmdId, PmdStats)> {
    let mut all = Vec::new();
    for pmd in datapath.pmds() {
        if let Ok(mut results) = ask(datapath, pmd, vec![DpifOp::Stats])
            && let Some(OpResult::Stats(stats)) = results.pop()
        {
            all.push((pmd, *stats));
        }
    }
    all
}

/// See [`Instance::totals_with`]; from any thread.
pub(crate) fn totals_with(datapath: &dyn Provider, threads: &[(PmdId, PmdStats)]) -> PmdStats {
    let mut sum = datapath.ended_threads();
    threads.iter().for_each(|(_, stats)| sum.add(stats));
    sum.drops[DropReason::PortRemoved as usize] += datapath.ended_with_port();
    sum
}

/// Number of VLAN tags in keys that `vlan-limit` wants; 1 before the first configuration.
fn vlan_limit(global: Option<&GlobalConfig>) -> u8 {
    match global.map_or(1, |g| g.vlan_limit) {
        0 => MAX_VLANS,
        tags => tags.min(MAX_VLANS.into()) as u8,
    }
}

/// Name of the datapath of a type's bridges.
fn default_name(type_name: &str) -> String {
    format!("ovs-{type_name}")
}

/// A datapath of the kernel.
fn kernel(short: &str, global: Option<&GlobalConfig>) -> Result<Arc<dyn Provider>> {
    let config = KernelConfig {
        name: format!("system@{short}"),
        dispatch: global.and_then(|g| g.upcall_dispatch).map(|wanted| match wanted {
            UpcallDispatch::PerCpu => Mode::PerCpu,
            UpcallDispatch::PerPort => Mode::PerPort,
        }),
        keep_flows: global.is_some_and(|g| g.flow_restore_wait),
    };
    Ok(Arc::new(KernelDatapath::start(&config).map_err(anyhow::Error::from)?))
}

/// A userspace datapath of that type.
fn userspace(
    type_name: &str,
    short: &str,
    settings: &Settings,
    hash_seed: u64,
    vlan_limit: u8,
    backer: &Arc<Backer>,
    wake: &Wake,
) -> Result<Arc<UserspaceDatapath>> {
    Chosen::log_of_datapath();
    let dummy = settings.dummies.is_datapath(type_name);
    let config = UserspaceConfig {
        name: format!("{type_name}@{short}"),
        dummy,
        dummy_ports: settings.dummy_ports.clone(),
        dummy_numa: settings.numa.clone(),
        ablation: settings.ablation.clone(),
        watch: settings.watch.clone(),
        threads: ThreadPlan::default(),
        vlan_limit,
        hash_seed,
        offload: Providers::default(),
        inheritance: settings
            .inherited(type_name, short)
            .map_or(&settings.left, |of| &of.inheritance)
            .clone(),
    };
    let inline = Arc::new(InlineSlowPath {
        backer: backer.clone(),
        datapath: config.name.clone(),
        wake: wake.clone(),
    });
    let datapath =
        Arc::new(UserspaceDatapath::start(&config, inline).context("cannot start the forwarding threads")?);
    // As in stock switches: the local port of the datapath. The bridges' own would be a device without use.
    if dummy || short != default_name(type_name) {
        let local = PortSpec {
            name: short.to_string(),
            options: PortOptions::local(dummy),
            mac: None,
            mtu: None,
            number: Some(DpPort(0)),
        };
        datapath.port_add(&local).context("cannot make the datapath's own port")?;
    }
    Ok(datapath)
}

/// Counters of all threads of a datapath together; not to be called by the main loop, which may have to answer.
pub(crate) fn datapath_totals(datapath: &dyn Provider) -> PmdStats {
    totals_with(datapath, &pmd_stats(datapath))
}

/// All running datapaths.
pub struct Instances {
    by_type: BTreeMap<String, Instance>,
    /// Those made by command, by their names.
    separate: BTreeMap<String, Instance>,
    global: Option<Arc<GlobalConfig>>,
    /// Settings of connection tracking, by datapath type.
    conntrack: BTreeMap<String, Arc<CtConfig>>,
    /// Types of datapaths that ended since the last report of these settings.
    ended: Vec<String>,
    settings: Settings,
    wake: Wake,
    perf_log: PerfLog,
    /// `hw-offload` was true once: it stays so until the end of the process.
    hw_offload: bool,
    /// For the status of tunnels.
    pub(crate) routes: Routes,
}

impl Instances {
    /// Empty. `wake` is called when events wait in a backer.
    pub(crate) fn new(settings: Settings, wake: Wake) -> Instances {
        Instances {
            by_type: BTreeMap::new(),
            separate: BTreeMap::new(),
            global: None,
            conntrack: BTreeMap::new(),
            ended: Vec::new(),
            settings,
            wake,
            perf_log: PerfLog::default(),
            hw_offload: false,
            routes: Routes::new(),
        }
    }

    /// The dummies of all datapaths.
    pub(crate) fn dummy_ports(&self) -> &DummyPorts {
        &self.settings.dummy_ports
    }

    /// Opens the capture files of dummies anew, as OVS does after each change of the configuration.
    pub(crate) fn reopen_captures(&self) {
        let fault = |dummy: &Dummy| Some((dummy.name().to_string(), dummy.reopen_captures().err()?));
        for (name, e) in self.dummy_ports().all().iter().filter_map(fault) {
            log::warn!(target: "netdev_dummy", "{name}: {e}");
        }
    }

    /// Those with bridges, in order of type.
    pub fn iter(&self) -> impl Iterator<Item = &Instance> {
        self.by_type.values()
    }

    /// All, in order of their names.
    pub fn all(&self) -> Vec<&Instance> {
        let mut all: Vec<_> = self.by_type.values().chain(self.separate.values()).collect();
        all.sort_by_key(|i| i.name());
        all
    }

    pub(crate) fn bridged_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        self.by_type.values_mut()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        self.by_type.values_mut().chain(self.separate.values_mut())
    }

    /// The datapath of a bridge.
    pub fn of_bridge(&self, bridge: BridgeId) -> Option<&Instance> {
        self.iter().find(|i| i.bridges.contains(&bridge))
    }

    /// The current view of a bridge, by its name, and its datapath.
    pub fn bridge(&self, name: &str) -> Option<(&Instance, Arc<BridgeView>)> {
        self.iter().find_map(|i| Some((i, i.backer.view().bridge_by_name(name)?.clone())))
    }

    /// All bridges in order of their names, with their instances.
    pub fn bridges(&self) -> Vec<(&Instance, Arc<BridgeView>)> {
        let of = |i: &Instance| i.backer.view().bridges.values().cloned().collect::<Vec<_>>();
        let mut all: Vec<_> = self.iter().flat_map(|i| of(i).into_iter().map(move |b| (i, b))).collect();
        all.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        all
    }

    /// The datapath of that name, or without a name the only one.
    ///
    /// # Errors
    /// Unknown name; or no datapath, or several, to choose from.
    pub fn named(&self, name: Option<&str>) -> Result<&Instance, String> {
        let all = self.all();
        match name {
            Some(name) => all.iter().find(|i| i.is_named(name)).copied().ok_or_else(|| {
                let known: Vec<_> = all.iter().map(|i| i.name()).collect();
                format!("{name}: no such datapath (there is: {})", known.join(", "))
            }),
            None if all.len() > 1 => Err("multiple datapaths, specify one".to_string()),
            None => all.first().copied().ok_or_else(|| "no datapaths exist".to_string()),
        }
    }

    /// The datapath of a new bridge, started if it is the first of its type.
    pub(crate) fn add_bridge(&mut self, bridge: BridgeId, type_name: &str) -> Result<&Instance> {
        if !self.by_type.contains_key(type_name) {
            let short = default_name(type_name);
            // As in stock switches: bridges have the only datapath of their type.
            let prefix = format!("{type_name}@");
            for (name, extra) in self.separate.extract_if(.., |name, _| name.starts_with(&prefix)) {
                log::warn!(target: "ofproto_dpif", "{name}: removed, since bridges of its type begin");
                extra.end();
            }
            let mut instance =
                Instance::start(type_name, &short, &self.settings, self.global.as_deref(), &self.wake)?;
            if let Some(global) = &self.global {
                instance.set_global(global);
            }
            if let Some(config) = self.conntrack.get(type_name) {
                instance.set_conntrack(config.clone());
            }
            instance.set_perf_log(self.perf_log);
            if self.hw_offload {
                instance.enable_offload();
            }
            self.by_type.insert(type_name.to_string(), instance);
        }
        let instance = self.by_type.get_mut(type_name).context("a datapath ended as it started")?;
        instance.bridges.insert(bridge);
        Ok(instance)
    }

    /// Makes a datapath without bridges.
    ///
    /// # Errors
    /// There is one of that name, or it cannot start.
    pub(crate) fn add_separate(&mut self, type_name: &str, short: &str) -> Result<()> {
        let name = format!("{type_name}@{short}");
        ensure!(!self.all().iter().any(|i| i.name() == name), "File exists");
        let instance = Instance::start(type_name, short, &self.settings, self.global.as_deref(), &self.wake)?;
        // Packets without a flow are dropped, and get none.
        instance.backer.limits.set_flow_limit(0);
        self.separate.insert(name, instance);
        Ok(())
    }

    /// Removes a datapath without bridges.
    ///
    /// # Errors
    /// It does not exist, or has bridges.
    pub(crate) fn remove_separate(&mut self, name: &str) -> Result<(), String> {
        let name = self.named(Some(name))?.name().to_string();
        let removed = self.separate.remove(&name).ok_or_else(|| {
            format!("{name}: it ends with the last bridge of its type: ovs-vsctl del-br BRIDGE")
        })?;
        removed.end();
        Ok(())
    }

    /// Removes a bridge; its datapath ends with its last one.
    pub(crate) fn remove_bridge(&mut self, bridge: BridgeId) {
        for instance in self.by_type.values_mut() {
            if instance.bridges.remove(&bridge) {
                instance.backer.remove_bridge(bridge);
            }
        }
        for (name, instance) in self.by_type.extract_if(.., |_, i| i.bridges.is_empty()) {
            instance.end();
            self.ended.push(name);
        }
    }

    /// Applies settings of the whole switch, also to datapaths started later.
    pub(crate) fn set_global(&mut self, global: Arc<GlobalConfig>) {
        if global.hw_offload && !std::mem::replace(&mut self.hw_offload, true) {
            log::info!(target: "netdev_offload", "netdev: Flow API Enabled");
            self.iter().for_each(Instance::enable_offload);
        }
        self.by_type.values_mut().for_each(|i| i.set_global(&global));
        self.all().iter().for_each(|i| i.set_vlan_limit(vlan_limit(Some(&global))));
        self.global = Some(global);
    }

    /// Applies limits and timeouts of connections, also to a datapath of that type started later.
    pub(crate) fn set_conntrack(&mut self, type_name: String, config: Arc<CtConfig>) {
        if let Some(instance) = self.by_type.get_mut(&type_name) {
            instance.set_conntrack(config.clone());
        }
        self.conntrack.insert(type_name, config);
    }

    /// Whether those are applied, or reported as failed.
    pub(crate) fn conntrack_settled(&self) -> bool {
        self.iter().all(|i| i.zones.is_settled())
    }

    /// Tries failed settings of connection tracking again.
    pub(crate) fn retry_conntrack(&mut self) {
        for instance in self.by_type.values_mut() {
            instance.zones.retry(instance.datapath.name(), instance.datapath.connections());
        }
    }

    /// New failures of these settings, by datapath type; `None`: none any more.
    pub(crate) fn take_conntrack_reports(&mut self) -> Vec<(String, Option<String>)> {
        let ended = self.ended.drain(..).map(|name| (name, None));
        let running = self.by_type.iter_mut();
        let reports = running.filter_map(|(name, i)| Some((name.clone(), i.zones.take_report()?)));
        ended.chain(reports).collect()
    }

    /// The datapath of a type.
    pub(crate) fn of_type(&self, type_name: &str) -> Option<&Instance> {
        self.by_type.get(type_name)
    }

    /// Sets the logging of suspicious iterations, also for datapaths started later.
    pub(crate) fn set_perf_log(&mut self, log: PerfLog) {
        self.iter().for_each(|i| i.set_perf_log(log));
        self.perf_log = log;
    }

    /// See [`Instance::run`].
    pub(crate) fn run(&mut self) -> bool {
        let mut more = false;
        for instance in self.all_mut() {
            more |= instance.run();
            instance.datapath.close_devices();
        }
        more
    }

    /// Closes the devices of removed ports, and unused ones.
    pub(crate) fn close_devices(&self) {
        self.iter().for_each(|i| i.datapath.close_devices());
    }

    /// All wanted ports exist: removes those left by a previous process.
    pub(crate) fn settled(&self) {
        self.iter().for_each(|i| i.datapath.sweep_ports());
    }

    /// See [`Instance::tick`].
    pub(crate) fn tick(&mut self) {
        self.all_mut().for_each(Instance::tick);
    }
}

/// Destination of a reply.
struct Ask(SyncSender<Vec<OpResult>>);

impl ReplySink for Ask {
    fn done(&self, _: PmdId, _: u64, results: Vec<OpResult>) {
        // The requester may have given up.
        let _ = self.0.try_send(results);
    }
}
