//! The switch as the main loop sees it: datapath, slow path and bridges, made what the database wants them to be.
//!
//! The planner (`vswitch`) says what to do; this module does it and tells what came of it.

use super::daemon::{DaemonConfig, Exit};
use super::db::Db;
use super::facts::FactKeeper;
use super::openflow::{OpenFlow, Parts};
use super::reactor::Reactor;
use crate::slowpath::{InlineSlowPath, RevalidatorState, SlowPath, Wake};
use crate::userspace::{UserspaceConfig, UserspaceDatapath};
use anyhow::{Context, Result};
use dpif::{Datapath, DpifOp, OpBatch, OpResult, PmdId, PmdStats, PortKind, PortSpec, ReplySink};
use flow::{DpPort, MacAddr, OfPort};
use netdev::link::{self, LinkEvent, LinkInfo, LinkMonitor};
use ofproto::backer::Backer;
use ofproto::ports::BridgeId;
use ofproto::revalidate::RevalidatorStats;
use ovsdb::client::{ClientState, LockState};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use sync::{Ordering, lock};
use vswitch::config::{GlobalConfig, affects_desired};
use vswitch::plan::{BridgeSettings, DeviceSettings, OpenInterface};
use vswitch::{Command, Desired, OpenedInterface, Planner, SupportedTypes};

/// How long a forwarding thread may take to answer a command.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Steps of one configuration before the main loop looks at its sockets again.
const STEPS_PER_TURN: usize = 64;
/// How often devices that could not be opened are tried again, beside link events.
const RETRY_MS: u64 = 10_000;
/// How often the main core's housekeeping is due.
const TICK_MS: u64 = 1000;

/// A device that is open.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its number in the datapath.
    pub dp_port: DpPort,
    /// Its index in the kernel.
    pub ifindex: u32,
    /// Its type as in the database.
    pub type_name: String,
}

/// The switch.
pub struct Switch {
    backer: Arc<Backer>,
    datapath: Arc<UserspaceDatapath>,
    slow: SlowPath,
    planner: Planner,
    supported: SupportedTypes,
    devices: BTreeMap<String, Device>,
    links: LinkMonitor,
    links_dirty: bool,
    facts: FactKeeper,
    openflow: OpenFlow,
    applied_once: bool,
    next_retry_ms: u64,
    waited_for_lock: bool,
    seen_epoch: u64,
    next_tick_ms: u64,
}

impl Switch {
    /// Starts datapath and slow path, without bridges.
    pub fn start(config: &DaemonConfig, embedded: bool, waker: Arc<mio::Waker>) -> Result<Switch> {
        let hash_seed = sys::random::u64().context("no random numbers")?;
        let userspace = UserspaceConfig {
            name: "netdev@ovs-netdev".to_string(),
            pmd_threads: 1,
            handlers: 1,
            vlan_limit: 1,
            hash_seed,
        };
        let backer = Arc::new(Backer::new(hash_seed.rotate_left(17)));
        let wake: Wake = Arc::new(move || {
            // The main loop is there as long as the slow path is.
            let _ = waker.wake();
        });
        let inline = Arc::new(InlineSlowPath { backer: backer.clone(), wake: wake.clone() });
        let (datapath, handlers) =
            UserspaceDatapath::start(&userspace, inline).context("cannot start the forwarding threads")?;
        let datapath = Arc::new(datapath);
        let slow =
            SlowPath::start(&backer, &datapath, handlers, wake).context("cannot start the slow path")?;
        let links = LinkMonitor::new().context("cannot watch the system's links")?;
        let supported = SupportedTypes::userspace();
        let system_id = embedded.then(|| super::daemon::system_id(&config.config_dir)).flatten();
        Ok(Switch {
            backer,
            datapath,
            slow,
            planner: Planner::new(machine_seed()),
            facts: FactKeeper::new(&supported, system_id),
            openflow: OpenFlow::new(&config.run_dir),
            supported,
            devices: BTreeMap::new(),
            links,
            links_dirty: true,
            applied_once: false,
            next_retry_ms: 0,
            waited_for_lock: false,
            seen_epoch: 0,
            next_tick_ms: 0,
        })
    }

    /// What the bridges share.
    pub fn backer(&self) -> &Arc<Backer> {
        &self.backer
    }

    /// The datapath.
    pub fn datapath(&self) -> &UserspaceDatapath {
        &self.datapath
    }

    /// Devices that are open, by interface name.
    pub fn devices(&self) -> &BTreeMap<String, Device> {
        &self.devices
    }

    /// The planner, to read.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// State of the revalidator.
    pub fn revalidator(&self) -> &RevalidatorState {
        &self.slow.state
    }

    /// Figures of the revalidator's last rounds.
    pub fn revalidator_stats(&self) -> RevalidatorStats {
        *lock(&self.slow.state.stats)
    }

    /// Something happened to a socket; `false` when it is none of OpenFlow's.
    pub fn socket_event(&mut self, token: mio::Token, reactor: &mut Reactor) -> bool {
        let now_ms = sys::clock::monotonic_ms();
        let parts = Parts { backer: &self.backer, datapath: &*self.datapath, now_ms };
        self.openflow.event(token, reactor, parts)
    }

    /// Makes the revalidator look at once.
    pub fn wake_revalidator(&self) {
        self.slow.wake_revalidator();
    }

    /// Packets for controllers that found no room.
    pub fn packet_ins_lost(&self) -> u64 {
        self.backer.packet_ins_lost.load(Ordering::Relaxed)
    }

    /// Readable when [`Switch::links_changed`] is to be called.
    pub fn link_fd(&self) -> BorrowedFd<'_> {
        self.links.fd()
    }

    /// Sends operations to a thread and waits for their results.
    pub fn ask(&self, pmd: PmdId, ops: Vec<DpifOp>) -> Result<Vec<OpResult>, String> {
        let (results, answer) = sync_channel(1);
        self.datapath.operate(OpBatch { pmd, ops, tag: 0, reply: Some(Arc::new(Ask(results))) });
        answer.recv_timeout(ASK_LIMIT).map_err(|_| "a forwarding thread did not answer".to_string())
    }

    /// Counters of all threads.
    pub fn pmd_stats(&self) -> Vec<(PmdId, PmdStats)> {
        let mut all = Vec::new();
        for pmd in self.datapath.pmds() {
            if let Ok(mut results) = self.ask(pmd, vec![DpifOp::Stats])
                && let Some(OpResult::Stats(stats)) = results.pop()
            {
                all.push((pmd, *stats));
            }
        }
        all
    }

    /// Whether the first configuration is in force, or there is none to wait for: the daemon counts as started.
    pub fn is_ready(&self, db: &Db) -> bool {
        let waiting = db.client_ref().lock_state() == LockState::Waiting;
        self.applied_once || waiting && db.client_ref().state() == ClientState::Ready && self.waited_for_lock
    }

    /// When [`Switch::run`] has something to do without an event.
    pub fn next_ms(&self, now_ms: u64) -> u64 {
        self.facts.next_ms(now_ms).min(self.next_retry_ms.max(now_ms + 1)).min(self.openflow.next_ms(now_ms))
    }

    /// Follows the database and the system, and writes back.
    pub fn run(&mut self, db: &mut Db, reactor: &mut Reactor) {
        self.follow(db, reactor);
        self.datapath.run_main();
        let now_ms = sys::clock::monotonic_ms();
        if now_ms >= self.next_tick_ms {
            self.datapath.tick_main();
            self.next_tick_ms = now_ms + TICK_MS;
        }
        let epoch = self.backer.epoch();
        if epoch != self.seen_epoch {
            self.seen_epoch = epoch;
            self.wake_revalidator();
        }
    }

    fn follow(&mut self, db: &mut Db, reactor: &mut Reactor) {
        let now_ms = sys::clock::monotonic_ms();
        let parts = Parts { backer: &self.backer, datapath: &*self.datapath, now_ms };
        self.openflow.run(reactor, parts);
        let changes = db.client().take_changes();
        self.facts.take_outcomes(db, now_ms);
        if db.client_ref().state() != ClientState::Ready {
            return;
        }
        if db.client_ref().lock_state() != LockState::Held {
            if !self.waited_for_lock {
                log::info!(target: "bridge", "another process holds the database's lock; this one stays idle until it lets go");
                self.waited_for_lock = true;
            }
            return;
        }
        let first = !self.applied_once || std::mem::take(&mut self.waited_for_lock);
        if first || !changes.is_empty() {
            self.facts.prepare(db);
            let managers = managers(db);
            for (target, why) in db.set_managers(&managers, reactor) {
                log::warn!(target: "ovsdb_file", "{target}: {why}");
            }
        }
        if first || affects_desired(db.client_ref().replica(), &changes) {
            let desired = Desired::from_replica(db.client_ref().replica(), &self.supported);
            // A new request is a reason to try again what failed.
            if desired.next_cfg != self.planner.desired().next_cfg {
                self.planner.retry_failed();
            }
            let commands = self.planner.plan(desired);
            self.carry_out(commands, reactor);
        }
        if self.links_dirty {
            self.links_dirty = false;
            self.follow_links(reactor);
        }
        if now_ms >= self.next_retry_ms {
            self.next_retry_ms = now_ms + RETRY_MS;
            self.drop_lost_devices();
            self.planner.retry_failed();
        }
        let commands = self.planner.commands();
        self.carry_out(commands, reactor);
        for notice in self.planner.take_notices() {
            log::warn!(target: "bridge", "{} {}: {}", notice.table, notice.name, notice.message);
        }
        if self.planner.is_settled() {
            self.applied_once = true;
        }
        self.write_back(db, now_ms);
    }

    /// The system told of changed links.
    pub fn links_changed(&mut self) {
        self.links_dirty = true;
    }

    fn carry_out(&mut self, commands: Vec<Command>, reactor: &mut Reactor) {
        let mut commands = commands;
        for _ in 0..STEPS_PER_TURN {
            if commands.is_empty() {
                return;
            }
            for command in commands {
                self.command(command, reactor);
            }
            commands = self.planner.commands();
        }
    }

    fn command(&mut self, command: Command, reactor: &mut Reactor) {
        match command {
            Command::SetGlobal(global) => self.set_global(&global),
            Command::CreateBridge(bridge) => {
                self.backer.insert_bridge(bridge.bridge, &bridge.name);
                log::info!(target: "bridge", "bridge {}: using datapath ID {:016x}", bridge.name, bridge.datapath_id);
                self.openflow.create(bridge.bridge, &bridge.name, bridge.datapath_id, reactor);
            }
            Command::DestroyBridge { bridge, .. } => {
                self.openflow.destroy(bridge, reactor);
                self.backer.remove_bridge(bridge);
            }
            Command::OpenInterface(open) => {
                let result = self.open(&open);
                if let Err(e) = &result {
                    log::warn!(target: "bridge", "{e}");
                }
                let number = self.planner.opened(open.open, result);
                if let Some(number) = number {
                    let number = if number == OfPort::LOCAL { 65534 } else { number.0 };
                    let (bridge, name) = (&open.bridge_name, &open.name);
                    log::info!(target: "bridge", "bridge {bridge}: added interface {name} on port {number}");
                }
            }
            Command::CloseInterface { name, .. } => {
                if let Some(device) = self.devices.remove(&name)
                    && let Err(e) = self.datapath.port_del(device.dp_port)
                {
                    log::warn!(target: "dpif", "cannot remove port {name}: {e}");
                }
            }
            Command::UpdateInterface { name, device, .. } => {
                if let Err(e) = self.update(&name, &device) {
                    log::warn!(target: "bridge", "{e}");
                    self.planner.update_failed(&name, e);
                }
            }
            Command::SetPorts { bridge, ports, .. } => {
                let view = self.backer.view();
                let previous = view.bridge(bridge).map(|b| b.ports.clone()).unwrap_or_default();
                let table = ports.table(&previous);
                self.openflow.ports_changed(bridge, &previous, &table, sys::clock::monotonic_ms());
                self.backer.set_ports(bridge, table);
                self.links_dirty = true;
            }
            Command::ConfigureBridge { bridge, settings, .. } => self.configure(bridge, &settings),
            Command::SetControllers { bridge, controllers, .. } => {
                let now_ms = sys::clock::monotonic_ms();
                let parts = Parts { backer: &self.backer, datapath: &*self.datapath, now_ms };
                self.openflow.set_controllers(bridge, controllers, reactor, parts);
            }
        }
    }

    fn set_global(&mut self, global: &GlobalConfig) {
        let limits = &self.backer.limits;
        limits.flow_limit.store(global.flow_limit.into(), Ordering::Relaxed);
        limits.max_idle_ms.store(global.max_idle_ms, Ordering::Relaxed);
        self.facts.set_interval_ms(global.stats_update_interval_ms);
    }

    fn configure(&mut self, bridge: BridgeId, settings: &BridgeSettings) {
        let options = &settings.options;
        self.backer.change_bridge(bridge, |b| {
            b.forward_bpdu = options.forward_bpdu;
            lock(&b.macs).configure(options.mac_aging_time_s, options.mac_table_size as usize);
        });
        let now_ms = sys::clock::monotonic_ms();
        let parts = Parts { backer: &self.backer, datapath: &*self.datapath, now_ms };
        self.openflow.configure(bridge, options, settings.datapath_id, parts);
    }

    fn open(&mut self, open: &OpenInterface) -> Result<OpenedInterface, String> {
        let name = &open.name;
        let failed = |why: &dyn std::fmt::Display| format!("could not open network device {name} ({why})");
        let kind = match open.type_name.as_str() {
            "system" => PortKind::System,
            "internal" => PortKind::Internal,
            "tap" => PortKind::Tap,
            other => PortKind::Other(other.to_string()),
        };
        if kind == PortKind::System {
            link::link_info(name).map_err(|e| failed(&os_text(&e)))?;
        }
        let spec = PortSpec {
            name: name.clone(),
            kind,
            mac: open.device.mac,
            mtu: open.device.mtu,
            number: None,
            options: open.device.options.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
        };
        let dp_port = self.datapath.port_add(&spec).map_err(|e| failed(&e))?;
        let info = match link::link_info(name) {
            Ok(info) => info,
            Err(e) => {
                // It went away at once.
                let _ = self.datapath.port_del(dp_port);
                return Err(failed(&os_text(&e)));
            }
        };
        self.devices.insert(
            name.clone(),
            Device { dp_port, ifindex: info.ifindex, type_name: open.type_name.clone() },
        );
        self.links_dirty = true;
        if let Err(e) = self.update(name, &open.device) {
            log::warn!(target: "bridge", "{e}");
        }
        let mac = open.device.mac.or(info.mac.map(MacAddr)).unwrap_or_default();
        Ok(OpenedInterface { dp_port, mac, mtu: Some(open.device.mtu.unwrap_or(info.mtu)) })
    }

    /// Sets address and MTU of an open device.
    fn update(&mut self, name: &str, wanted: &DeviceSettings) -> Result<(), String> {
        let Some(device) = self.devices.get(name) else { return Ok(()) };
        let failed =
            |what: &str, e: &std::io::Error| format!("interface {name}: cannot set {what}: {}", os_text(e));
        let info = link::link_info(name).map_err(|e| failed("anything", &e))?;
        if let Some(mtu) = wanted.mtu.filter(|mtu| *mtu != info.mtu) {
            link::set_mtu(device.ifindex, mtu).map_err(|e| failed(&format!("MTU {mtu}"), &e))?;
        }
        // An existing device's address belongs to whoever made it.
        let ours = device.type_name != "system";
        if let Some(mac) = wanted.mac.filter(|mac| ours && info.mac != Some(mac.0)) {
            link::set_mac(device.ifindex, mac.0).map_err(|e| failed(&format!("address {mac}"), &e))?;
        }
        Ok(())
    }

    /// Takes in what the system tells of links: devices that went, came, or changed.
    fn follow_links(&mut self, reactor: &mut Reactor) {
        let events = match self.links.poll() {
            Ok(events) => events,
            Err(e) => {
                log::warn!(target: "netdev_linux", "cannot read link events: {e}");
                Vec::new()
            }
        };
        for event in events {
            match event {
                LinkEvent::Changed(info) => self.link_changed(&info, reactor),
                LinkEvent::Deleted { ifindex, .. } => self.link_gone(|d| d.ifindex == ifindex),
                LinkEvent::Resync(all) => {
                    self.link_gone(|d| !all.iter().any(|l| l.ifindex == d.ifindex));
                    all.iter().for_each(|info| self.link_changed(info, reactor));
                }
            }
        }
        self.facts.refresh_links(&self.devices);
        self.follow_carriers();
    }

    fn link_changed(&mut self, info: &LinkInfo, reactor: &mut Reactor) {
        // A device of the same name is another one when its index differs.
        self.link_gone_named(&info.name, info.ifindex, reactor);
        if self.devices.contains_key(&info.name) {
            if let Some(mac) = info.mac {
                self.planner.device_changed(&info.name, MacAddr(mac), Some(info.mtu));
            }
        } else {
            self.planner.retry(&info.name);
        }
    }

    fn link_gone_named(&mut self, name: &str, ifindex: u32, reactor: &mut Reactor) {
        let Some(device) = self.devices.get_mut(name) else { return };
        if device.ifindex == ifindex {
            return;
        }
        if self.datapath.own_device_exists(device.dp_port) == Some(true) {
            // Ours, come back from another namespace.
            device.ifindex = ifindex;
        } else {
            self.planner.device_gone(name);
            let commands = self.planner.commands();
            self.carry_out(commands, reactor);
            self.planner.retry(name);
        }
    }

    fn link_gone(&mut self, gone: impl Fn(&Device) -> bool) {
        let names: Vec<String> =
            self.devices.iter().filter(|(_, d)| gone(d)).map(|(n, _)| n.clone()).collect();
        for name in names {
            if self.own_device_exists(&name) == Some(true) {
                log::info!(target: "netdev_linux", "device {name} was moved into another namespace; it stays a port");
                continue;
            }
            log::info!(target: "netdev_linux", "device {name} is gone");
            self.planner.device_gone(&name);
        }
    }

    fn own_device_exists(&self, name: &str) -> Option<bool> {
        self.datapath.own_device_exists(self.devices.get(name)?.dp_port)
    }

    /// Finds devices of ours that ended in another namespace, of which no event tells.
    fn drop_lost_devices(&mut self) {
        let lost = |name: &&String| self.own_device_exists(name) == Some(false);
        let names: Vec<String> = self.devices.keys().filter(lost).cloned().collect();
        for name in names {
            log::info!(target: "netdev_linux", "device {name} is gone");
            self.planner.device_gone(&name);
        }
    }

    /// Tells translation and controllers which ports have no carrier, and how fast they are.
    fn follow_carriers(&mut self) {
        let view = self.backer.view();
        for b in view.bridges.values() {
            let differs = |p: &ofproto::ports::Port| {
                self.facts.link_down(&p.name).is_some_and(|down| down != p.link_down)
                    || self.facts.speed_mbps(&p.name).is_some_and(|speed| speed != p.speed_mbps)
            };
            if !b.ports.ports.values().any(|p| differs(p)) {
                continue;
            }
            let facts = &self.facts;
            let before = b.ports.clone();
            let after = self.backer.change_bridge(b.id, |b| {
                let table = Arc::make_mut(&mut b.ports);
                for port in table.ports.values_mut() {
                    if let (Some(down), Some(speed)) =
                        (facts.link_down(&port.name), facts.speed_mbps(&port.name))
                    {
                        let port = Arc::make_mut(port);
                        (port.link_down, port.speed_mbps) = (down, speed);
                    }
                }
                b.ports.clone()
            });
            if let Some(after) = after {
                self.openflow.ports_changed(b.id, &before, &after, sys::clock::monotonic_ms());
            }
        }
    }

    fn write_back(&mut self, db: &mut Db, now_ms: u64) {
        let acknowledged = self.planner.is_settled().then(|| self.planner.desired().next_cfg);
        self.facts.set_controllers(self.openflow.facts(now_ms));
        self.facts.write_back(db, &self.planner, &*self.datapath, &self.backer, acknowledged, now_ms);
    }

    /// One object that says what runs, for `sluice status`.
    pub fn status(&self, uptime_ms: u64) -> serde_json::Value {
        super::status::report(self, uptime_ms)
    }

    /// Ends the switch. Taps end with it; with `cleanup`, ports are taken out one by one before.
    pub fn stop(&mut self, exit: Exit) {
        if exit.cleanup {
            let devices = std::mem::take(&mut self.devices);
            for (name, device) in devices {
                if let Err(e) = self.datapath.port_del(device.dp_port) {
                    log::warn!(target: "dpif", "cannot remove port {name}: {e}");
                }
            }
        }
    }
}

/// Where one answer goes.
struct Ask(SyncSender<Vec<OpResult>>);

impl ReplySink for Ask {
    fn done(&self, _: PmdId, _: u64, results: Vec<OpResult>) {
        // Who asked may have given up.
        let _ = self.0.try_send(results);
    }
}

/// A number that stays the same on this machine, from which addresses of bridges follow.
fn machine_seed() -> u64 {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    u64::from_str_radix(id.trim().get(..16).unwrap_or(""), 16).unwrap_or(0x5317_1ce0)
}

/// The system's own words for an error, without its number and without what was tried.
fn os_text(e: &std::io::Error) -> String {
    let text = e.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.rsplit(": ").next().unwrap_or(text).to_string()
}

/// Listening targets of `Manager` rows.
fn managers(db: &Db) -> Vec<String> {
    db.client_ref().replica().rows("Manager").map(|row| row.str("target").to_string()).collect()
}
