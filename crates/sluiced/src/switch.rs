//! The switch from the main loop's perspective: datapath, slow path and bridges, configured from the database.
//!
//! The planner (`vswitch`) decides the commands; this module executes them and reports their results.

mod carriers;
mod deleted;
mod handover;
mod kept_flows;
mod links;
mod ports;
mod prefixes;
mod replace;
mod restore;
mod sampling;
mod settings;

use super::bonds::Bonds;
use super::config::{DaemonConfig, Exit};
use super::db::{Db, in_band_address};
use super::devices::{Device, Devices};
use super::dummies::Streams;
use super::exporters::Exporters;
use super::facts::FactKeeper;
use super::instances::{Instance, Instances, Samples, Settings};
use super::link_protocols::LinkProtocols;
use super::loop_times::{LoopTimes, Part};
use super::next_hops::NextHops;
use super::openflow::OpenFlow;
use super::reactor::Reactor;
use super::routing::Routing;
use super::state::State;
use super::turn::{Turn, in_steps};
use crate::slowpath::Wake;
use anyhow::{Context, Result};
use dpif::DummyMode;
use dpif_netdev::{Inheritance, QueueWatch, TOGETHER};
use flow::DpPort;
pub(crate) use handover::{FlowWalk, FormerFlow, GROUPS_AT_ONCE, GroupNote, GroupWalk, Inherited, MeterNote};
use handover::{LastCounters, Role};
use kept_flows::FlowsFirst;
use log::Level;
use netdev::dummy::DummyPorts;
use netdev::link::LinkMonitor;
use ofproto::ports::PortTable;
use ovsdb::client::{ClientState, LockState};
use ports::Stale;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use vswitch::config::MetricsAddress;
use vswitch::plan::{CreateBridge, DeviceSettings, OpenInterface};
use vswitch::{Command, Desired, OpenedInterface, Parsed, Planner, SupportedTypes};

/// Steps of one configuration before the main loop serves its sockets again.
const STEPS_PER_TURN: usize = 64;
/// Retry interval of devices that could not be opened, besides link events.
const RETRY_MS: u64 = 10_000;
/// Reads of link events per turn, of some hundred events each.
const LINK_READS: usize = 16;
/// Interval of the main core's housekeeping.
const TICK_MS: u64 = 1000;

/// The switch.
pub struct Switch {
    instances: Instances,
    planner: Planner,
    /// Configurations taken over so far.
    reconfigured: u64,
    supported: SupportedTypes,
    /// Parsed rows of the database that still hold.
    parsed: Parsed,
    /// The database has changes of the configuration that are not carried out.
    is_affected: bool,
    dummies: DummyMode,
    devices: Devices,
    streams: Streams,
    links: LinkMonitor,
    links_dirty: bool,
    stale: Stale,
    facts: FactKeeper,
    openflow: OpenFlow,
    /// Ends before the thread that it asks.
    exporters: Exporters,
    link_protocols: LinkProtocols,
    bonds: Bonds,
    applied_once: bool,
    state: State,
    /// Flows are kept for the next process: its receive queues are.
    keeps_flows: bool,
    /// Flows of the last process, until its rules are restored.
    flows_first: Option<FlowsFirst>,
    next_retry_ms: u64,
    /// Commands left by the last turn.
    unfinished: Vec<Command>,
    waited_for_lock: bool,
    next_tick_ms: u64,
    /// Keys and certificates of the command line.
    tls: tls::Settings,
    /// Where metrics are to be served.
    metrics: Option<MetricsAddress>,
    /// Part in a handover.
    role: Role,
    /// The configuration is to be carried out although nothing in it changed.
    replans: bool,
    last_counters: LastCounters,
}

impl Switch {
    /// Starts datapath and slow path, without bridges. `watch` reports queues polled by the main loop itself. A successor
    /// begins with the `inherited` ports and state of another process, or receives from queues that one which ended has `left`.
    /// With `keeps_flows` the next process will have the receive queues of this one.
    pub(crate) fn start(
        config: &DaemonConfig,
        waker: Arc<mio::Waker>,
        watch: Option<Arc<QueueWatch>>,
        inherited: Option<&Inherited>,
        (left, keeps_flows): (&Inheritance, bool),
    ) -> Result<Switch> {
        let wake: Wake = Arc::new(move || {
            // The main loop outlives the slow path.
            let _ = waker.wake();
        });
        let wake_main = || {
            let wake = wake.clone();
            move || wake()
        };
        let bonds = Bonds::new(wake_main());
        let mut link_protocols = LinkProtocols::new(wake_main(), bonds.waker());
        if let Some(inherited) = inherited {
            handover::succeed_sessions(&mut link_protocols, &inherited.sessions);
        }
        let exporters = Exporters::new(link_protocols.reader());
        let links = LinkMonitor::new().context("cannot watch the system's links")?;
        let supported = settings::supported_types(config);
        let state = match inherited {
            Some(of) => State::succeed(&config.run_dir, &config.name, of.state_bytes)?,
            None => State::open(&config.run_dir, &config.name, left),
        };
        // Dummies have no next hops.
        let has_devices = config.dummies != DummyMode::Override;
        let next_hops = if has_devices { NextHops::read } else { NextHops::default };
        Ok(Switch {
            instances: Instances::new(
                Settings {
                    dummies: config.dummies,
                    dummy_ports: DummyPorts::default(),
                    numa: config.dummy_numa.clone(),
                    ablation: config.ablation.clone(),
                    watch,
                    samples: Samples(Some(exporters.sink())),
                    inherited: inherited.map(|of| of.datapaths.clone()).unwrap_or_default(),
                    left: left.clone(),
                    kept_seeds: Default::default(),
                },
                wake,
            ),
            planner: Planner::default(),
            reconfigured: 0,
            facts: FactKeeper::new(&supported, &config.run_dir),
            openflow: OpenFlow::new(&config.run_dir, next_hops, inherited.is_none()),
            link_protocols,
            bonds,
            exporters,
            supported,
            parsed: Parsed::default(),
            is_affected: false,
            dummies: config.dummies,
            devices: Devices::default(),
            streams: Streams::default(),
            links,
            links_dirty: true,
            stale: Stale::default(),
            applied_once: false,
            state,
            keeps_flows,
            flows_first: None,
            next_retry_ms: 0,
            unfinished: Vec::new(),
            waited_for_lock: false,
            next_tick_ms: 0,
            tls: config.tls.clone(),
            metrics: None,
            role: if inherited.is_some() { Role::Succeeding } else { Role::Whole },
            replans: false,
            last_counters: LastCounters::default(),
        })
    }

    /// The database is embedded, of the system with this identity, type and version.
    pub fn own_database(&mut self, system_id: Option<String>, system: (String, String)) {
        self.facts.own_database(system_id, system);
    }

    /// The running datapaths.
    pub fn instances(&self) -> &Instances {
        &self.instances
    }

    /// The datapaths, mutable.
    pub(crate) fn instances_mut(&mut self) -> &mut Instances {
        &mut self.instances
    }

    /// The sessions of link protocols.
    pub(crate) fn link_protocols(&self) -> &LinkProtocols {
        &self.link_protocols
    }

    /// The bonds.
    pub(crate) fn bonds(&self) -> &Bonds {
        &self.bonds
    }

    /// Types that this build supports.
    pub(crate) fn supported(&self) -> &SupportedTypes {
        &self.supported
    }

    /// The interfaces of the database that have a datapath port.
    pub(crate) fn owners(&self, instance: &Instance, number: DpPort) -> Vec<String> {
        let is_it = |d: &&Device| d.dp_port == number && Arc::ptr_eq(&d.datapath, &instance.datapath);
        self.devices.values().filter(is_it).map(|d| d.name.clone()).collect()
    }

    /// Open devices, by interface name.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Whether any dummies are enabled.
    pub fn has_dummies(&self) -> bool {
        self.dummies != DummyMode::Off
    }

    /// Whether the dummies with active connections are connected, by their names.
    pub fn dummy_connections(&self) -> Vec<(&str, bool)> {
        self.streams.states()
    }

    /// Where metrics are to be served; nowhere while another process switches.
    pub(crate) fn metrics_address(&self) -> Option<&MetricsAddress> {
        self.metrics.as_ref().filter(|_| !self.waited_for_lock && self.role != Role::Succeeding)
    }

    /// Metrics cannot be served; `None`: they can, or are not wanted.
    pub(crate) fn metrics_failed(&mut self, error: Option<String>) {
        self.planner.metrics_failed(error);
        self.facts.changed();
    }

    /// Status for the database.
    pub(crate) fn facts(&self) -> &FactKeeper {
        &self.facts
    }

    /// Configurations taken over so far.
    pub(crate) fn reconfigured(&self) -> u64 {
        self.reconfigured
    }

    /// The planner, read-only.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Handles a socket event; `false` for a token of others.
    pub fn socket_event(&mut self, token: mio::Token, reactor: &mut Reactor) -> bool {
        if self.streams.event(token, reactor) {
            return true;
        }
        let ours = self.openflow.event(token, reactor, sys::clock::monotonic_ms());
        self.set_devices_up_or_down();
        ours
    }

    /// The OpenFlow connections.
    pub(crate) fn openflow(&self) -> &OpenFlow {
        &self.openflow
    }

    /// Executes device changes requested by controllers. If one fails, reading the links again corrects the port's
    /// bit.
    fn set_devices_up_or_down(&mut self) {
        for change in self.openflow.take_admin_changes() {
            if let Some(Err(e)) = self.devices.get(&change.name).map(|d| d.set_admin_up(change.up)) {
                log::warn!(target: "ofproto", "{e}");
            }
            self.read_link(change.name);
        }
    }

    /// Closes the OpenFlow connections of a bridge, or of all.
    pub fn reconnect(&mut self, bridge: Option<&str>, reactor: &mut Reactor) {
        self.openflow.reconnect(bridge, reactor, sys::clock::monotonic_ms());
    }

    /// Readable when [`Switch::links_changed`] is due.
    pub fn link_fd(&self) -> BorrowedFd<'_> {
        self.links.fd()
    }

    /// Whether the first configuration is in force, or there is none to wait for: the daemon has started.
    pub fn is_ready(&self, db: &Db) -> bool {
        let waiting = db.client_ref().lock_state() == LockState::Waiting;
        self.applied_once || waiting && db.client_ref().state() == ClientState::Ready && self.waited_for_lock
    }

    /// Has datapaths follow routes, neighbours and local addresses.
    pub fn follow_routing(&mut self, routing: &mut Routing) {
        if crate::tunnels::follow_routing(&mut self.instances, routing) {
            self.facts.routes_changed(sys::clock::monotonic_ms());
        }
    }

    /// Follows the database and the system, serves controllers and ports without a thread, and writes back.
    pub(crate) fn run(&mut self, db: &mut Db, reactor: &mut Reactor, times: &mut LoopTimes) -> Turn {
        let mut next = self.openflow.run(&self.instances, reactor, sys::clock::monotonic_ms());
        times.end(Part::OpenFlow);
        next = next.and(self.follow_sessions());
        if self.has_dummies() && !self.bonds.is_empty() {
            // The clock may have moved.
            self.bonds.waker()();
        }
        if let Some(active) = self.bonds.take_changed() {
            self.facts.set_active_members(active);
        }
        times.end(Part::Links);
        next = next.and(self.follow(db, reactor));
        times.end(Part::Configuration);
        let now_ms = sys::clock::monotonic_ms();
        if now_ms >= self.next_tick_ms {
            self.instances.tick();
            self.keep_flows();
            self.link_protocols.send_counters(|bridge| self.instances.of_bridge(bridge));
            if self.facts.statistics_due_by(now_ms + TICK_MS) {
                self.link_protocols.request_statistics();
            }
            reactor.tls.refresh();
            self.next_tick_ms = now_ms + TICK_MS;
        }
        let counts = self.role == Role::Whole && self.add_last_counters();
        next = next.and(Turn::more_if(self.instances.run() || counts)).and(self.streams.run(reactor, now_ms));
        times.end(Part::Ports);
        next
    }

    /// Passes changes of link protocols' sessions on to the database and the controllers.
    fn follow_sessions(&mut self) -> Turn {
        let (machine_ms, now_ms) = (sys::clock::machine_us() / 1000, sys::clock::monotonic_ms());
        self.facts.change_trunks(self.link_protocols.take_trunk_changes());
        for (name, report) in self.link_protocols.take_reports(machine_ms) {
            let before = self.facts.session_state(&name);
            if let Some(report) = &report
                && (report.state.is_live, report.state.tree) != (before.is_live, before.tree)
                && let Some(instance) = self.instances.of_bridge(report.bridge)
                && let Some(b) = instance.backer.view().bridge(report.bridge)
                && let Some(port) = b.ports.port(report.port)
            {
                self.openflow.port_toggled(report.bridge, port, report.state.tree != before.tree);
            }
            self.facts.set_session(name, report);
        }
        self.link_protocols.reports_in_ms(machine_ms).map_or(Turn::DONE, |ms| Turn::at(now_ms + ms))
    }

    /// Carries out the database's changes and writes back. The turn has the time of that work alone which this state of
    /// the database's connection allows: a time that passes unused would keep the main loop busy.
    fn follow(&mut self, db: &mut Db, reactor: &mut Reactor) -> Turn {
        let now_ms = sys::clock::monotonic_ms();
        let is_succeeding = matches!(self.role, Role::Succeeding | Role::Claiming);
        if self.role == Role::Leaving || is_succeeding && self.applied_once && !self.ends_succession(db) {
            // The configuration stays as both processes know it.
            return Turn::DONE;
        }
        self.set_devices_up_or_down();
        let changes = db.client().take_changes();
        let replica = db.client_ref().replica();
        self.is_affected |= self.parsed.changed(replica, &changes);
        self.facts.rows_changed(&changes);
        self.facts.take_outcomes(db, now_ms);
        if db.client_ref().state() != ClientState::Ready {
            // Devices appear and disappear also while the database is unreachable.
            return self.follow_devices(now_ms, reactor);
        }
        match db.client_ref().lock_state() {
            LockState::Held => {}
            LockState::Waiting if is_succeeding => {}
            LockState::Waiting => {
                self.stand_by(reactor);
                return Turn::more_if(!self.unfinished.is_empty());
            }
            // On a new connection the owner of the lock is not known yet: leave everything running.
            LockState::Asked | LockState::None => return self.follow_devices(now_ms, reactor),
        }
        let first = !self.applied_once
            || std::mem::take(&mut self.waited_for_lock)
            || std::mem::take(&mut self.replans);
        if first {
            self.parsed.clear();
        }
        let is_affected = std::mem::take(&mut self.is_affected) || first;
        let replica = db.client_ref().replica();
        let desired = is_affected.then(|| Desired::read(replica, &self.supported, &mut self.parsed));
        if first || !changes.is_empty() {
            self.facts.prepare(db);
            if first {
                self.facts.start_over();
            }
            let managers = &desired.as_ref().unwrap_or(self.planner.desired()).managers;
            self.openflow.set_managers(managers.iter().filter_map(in_band_address).collect(), now_ms);
            for (target, why) in db.set_managers(managers, reactor) {
                log::warn!(target: "ovsdb_file", "{target}: {why}");
            }
        }
        if let Some(desired) = desired {
            // A new request is a reason to retry failures.
            if desired.next_cfg != self.planner.desired().next_cfg {
                self.planner.retry_failed();
                self.instances.retry_conntrack();
            }
            self.reconfigured += 1;
            self.configure_flows(&desired);
            let commands = self.planner.plan(desired);
            self.carry_out(commands, reactor);
            self.instances.reopen_captures();
        }
        let next = self.follow_devices(now_ms, reactor);
        for (datapath_type, error) in self.instances.take_conntrack_reports() {
            self.planner.conntrack_failed(&datapath_type, error);
            self.facts.changed();
        }
        for notice in self.planner.take_notices() {
            let level = if notice.is_warning { Level::Warn } else { Level::Debug };
            log::log!(target: "bridge", level, "{} {}: {}", notice.table, notice.name, notice.message);
        }
        if self.is_settled() && !std::mem::replace(&mut self.applied_once, true) {
            self.begin_settled(reactor);
        }
        if self.role == Role::Succeeding {
            return next;
        }
        self.keep_state();
        self.write_back(db, reactor.tls.fault(), now_ms);
        next.and(Turn::at(self.facts.next_ms(now_ms)))
    }

    /// Another process holds the lock and switches: remove the bridges, so that no two processes forward, and start
    /// again after taking the lock.
    fn stand_by(&mut self, reactor: &mut Reactor) {
        if !self.waited_for_lock {
            log::error!(
                target: "bridge",
                "another process holds the database's lock and switches; this one has no bridges and stays idle until it lets go"
            );
            self.waited_for_lock = true;
            self.state.stand_by();
            let nothing = Desired { bridges: Default::default(), ..self.planner.desired().clone() };
            let commands = self.planner.plan(nothing);
            self.carry_out(commands, reactor);
        }
        let commands = self.planner.commands();
        self.carry_out(commands, reactor);
        self.facts.start_over();
    }

    /// Processes the results of device operations, and retries failures.
    fn follow_devices(&mut self, now_ms: u64, reactor: &mut Reactor) -> Turn {
        if std::mem::take(&mut self.links_dirty) {
            self.follow_links(reactor);
        }
        if now_ms >= self.next_retry_ms {
            self.next_retry_ms = now_ms + RETRY_MS;
            self.drop_lost_devices();
            self.planner.retry_failed();
        }
        let commands = self.planner.commands();
        self.carry_out(commands, reactor);
        // Events after a bounded number of reads, or caused by these commands.
        Turn::more_if(self.links_dirty || !self.unfinished.is_empty()).and(Turn::at(self.next_retry_ms))
    }

    /// Whether the whole configuration is applied.
    fn is_settled(&self) -> bool {
        self.planner.is_settled() && self.unfinished.is_empty() && self.instances.conntrack_settled()
    }

    /// Handles link events of the system.
    pub fn links_changed(&mut self) {
        self.links_dirty = true;
    }

    /// Executes commands and their follow-ups. Commands left by a turn go first in the next one.
    fn carry_out(&mut self, commands: Vec<Command>, reactor: &mut Reactor) {
        let mut first = std::mem::take(&mut self.unfinished);
        first.extend(commands);
        let left = in_steps(first, STEPS_PER_TURN, |commands| {
            let mut left = VecDeque::from(commands);
            let mut prepared = 0_usize;
            while let Some(command) = left.pop_front() {
                if let (0, Command::OpenInterface(open)) = (prepared, &command) {
                    prepared = self.prepare(open, &left);
                }
                prepared = prepared.saturating_sub(1);
                self.command(command, reactor);
            }
            self.instances.close_devices();
            self.planner.commands()
        });
        // After the commands left by the caller's own commands.
        self.unfinished.extend(left);
    }

    /// Opens the devices of an interface and of the following ones of the same bridge; returns their number.
    fn prepare(&self, first: &OpenInterface, next: &VecDeque<Command>) -> usize {
        let next = next.iter().map_while(|command| match command {
            Command::OpenInterface(open) if open.bridge == first.bridge => Some(open),
            _ => None,
        });
        let specs: Vec<_> = std::iter::once(first).chain(next).take(TOGETHER).map(Device::spec).collect();
        let count = specs.len();
        if let Some(instance) = self.instances.of_bridge(first.bridge).filter(|_| count > 1) {
            instance.datapath.prepare(specs);
        }
        count
    }

    fn command(&mut self, command: Command, reactor: &mut Reactor) {
        match command {
            Command::SetGlobal(global) => self.set_global(global, reactor),
            Command::SetConntrack { datapath_type, config } => {
                self.instances.set_conntrack(datapath_type, config);
            }
            Command::CreateBridge(bridge) => self.create_bridge(&bridge, reactor),
            Command::DestroyBridge { bridge, name } => {
                if let Some(instance) = self.instances.of_bridge(bridge) {
                    let view = instance.backer.view();
                    let ports = view.bridge(bridge).map(|b| b.ports.clone()).unwrap_or_default();
                    deleted::log(&name, &ports, &PortTable::default());
                }
                self.openflow.destroy(bridge, reactor);
                self.exporters.remove(bridge);
                // Sessions of its ports have ended; their thread lets go of the datapath.
                self.link_protocols.pass();
                self.instances.remove_bridge(bridge);
            }
            Command::OpenInterface(open) => {
                let result = self.open(&open, reactor).map_err(|e| sys::os_text(&e));
                if let Err(e) = &result {
                    log::warn!(target: "bridge", "{e}");
                }
                let number = self.planner.opened(open.open, result);
                if let Some(number) = number {
                    let number = deleted::shown(number);
                    let (bridge, name) = (&open.bridge_name, &open.name);
                    log::info!(target: "bridge", "bridge {bridge}: added interface {name} on port {number}");
                    let error = self.devices.get_mut(name).and_then(|d| d.update(&open.device).err());
                    self.settings_failed(name, error);
                }
            }
            Command::CloseInterface { name, .. } => {
                self.streams.remove(&name, reactor);
                self.stale.links.insert(name.clone());
                if let Some(device) = self.devices.remove(&name)
                    && let Err(e) = device.datapath.port_del(device.dp_port)
                {
                    log::warn!(target: "dpif", "cannot remove port {name}: {e}");
                }
            }
            Command::UpdateInterface { name, device, .. }
                if self.devices.get(&name).is_some_and(|d| d.must_reopen(&device)) =>
            {
                self.reopen(&name, reactor);
            }
            Command::UpdateInterface { name, device, .. } => {
                let same = self.tunnel_like(&name, &device);
                let same = same.map(|other| format!("interface {name}: {other} has the same tunnel settings: only one of them receives packets"));
                let open = self.devices.get_mut(&name);
                let error = open.and_then(|d| d.update(&device).err()).or(same);
                self.settings_failed(&name, error);
                // A device unknown to the kernel causes no event.
                self.dummy_changed(&name);
                self.read_link(name);
            }
            Command::SetPorts { bridge, name, ports } => self.set_ports(bridge, &name, &ports),
            Command::ConfigureBridge { bridge, settings, .. } => self.configure(bridge, &settings),
            Command::SetControllers { bridge, controllers, .. } => {
                let now_ms = sys::clock::monotonic_ms();
                self.openflow.set_controllers(bridge, controllers, reactor, now_ms);
            }
        }
    }

    fn create_bridge(&mut self, bridge: &CreateBridge, reactor: &mut Reactor) {
        let (id, name, type_name) = (bridge.bridge, &bridge.name, &bridge.datapath_type);
        let instance = match self.instances.add_bridge(id, type_name) {
            Ok(instance) => instance,
            Err(e) => {
                log::error!(target: "bridge", "failed to create bridge {name}: {e:#}");
                return self.planner.bridge_failed(id, &format!("{e:#}"));
            }
        };
        instance.backer.insert_bridge(id, name);
        log::info!(target: "bridge", "bridge {name}: using datapath ID {:016x}", bridge.datapath_id);
        self.openflow.create(id, name, bridge.datapath_id, instance, reactor);
        self.restore_in_turn(id, name);
    }

    fn open(&mut self, open: &OpenInterface, reactor: &mut Reactor) -> Result<OpenedInterface, String> {
        let instance = self.instances.of_bridge(open.bridge).ok_or("its bridge is gone")?;
        if let Some(other) = self.tunnel_like(&open.name, &open.device) {
            let name = &open.name;
            return Err(format!(
                "could not add network device {name} to ofproto ({other} is the same tunnel)"
            ));
        }
        let (device, opened) = Device::open(open, &instance.datapath, self.instances.dummy_ports())?;
        if let Err(e) = self.streams.add(&device, open.device.options.stream(), reactor) {
            // Nothing uses it yet.
            let _ = device.datapath.port_del(device.dp_port);
            return Err(format!("could not open network device {} ({e})", open.name));
        }
        self.devices.insert(open.name.clone(), device);
        self.read_link(open.name.clone());
        Ok(opened)
    }

    /// Another tunnel that would receive the same packets.
    fn tunnel_like(&self, name: &str, device: &DeviceSettings) -> Option<&str> {
        let tunnel = device.options.tunnel_config()?;
        self.devices.values().find(|d| d.name != name && d.collides(tunnel)).map(|d| d.name.as_str())
    }

    fn settings_failed(&mut self, name: &str, error: Option<String>) {
        let error = error.map(|e| sys::os_text(&e));
        if let Some(error) = &error {
            log::warn!(target: "bridge", "{error}");
        }
        self.planner.settings_failed(name, error);
    }

    /// Closes and reopens a device.
    fn reopen(&mut self, name: &str, reactor: &mut Reactor) {
        self.planner.device_gone(name);
        let commands = self.planner.commands();
        self.carry_out(commands, reactor);
        self.planner.retry(name);
    }

    fn write_back(&mut self, db: &mut Db, tls_fault: Option<&str>, now_ms: u64) {
        let acknowledged = self.is_settled().then(|| self.planner.desired().next_cfg);
        self.facts.set_controllers(self.openflow.facts(tls_fault, now_ms));
        self.facts.set_managers(db, tls_fault);
        self.facts.write_back(db, &mut self.planner, &self.instances, acknowledged, now_ms);
    }

    /// Ends the switch, its listeners first. Taps stay for the next process; with `cleanup`, removes the ports one by one
    /// before, taps included.
    pub fn stop(self, exit: Exit) {
        if exit.handed_over {
            self.count_last();
        }
        let Switch { instances, devices, openflow, streams, exporters, link_protocols, bonds, state, .. } =
            self;
        // Packets are still forwarded, here or by a successor.
        state.finish(exit);
        drop((exporters, link_protocols, bonds, openflow, streams));
        if exit.cleanup {
            for (name, device) in devices.into_all() {
                if let Err(e) = device.datapath.port_del(device.dp_port) {
                    log::warn!(target: "dpif", "cannot remove port {name}: {e}");
                }
            }
            instances.close_devices();
        }
        drop(instances);
    }
}
