//! Status of the running switch for the database: device state, counters, versions; and its write-back.

mod counters;

pub(crate) use counters::Source;

use super::db::Db;
use super::devices::Devices;
use super::dp_features::capabilities;
use super::features::port_features;
use super::instances::{Instance, Instances};
use super::link_protocols::{Report, SessionName};
use super::tunnels::{self, Egress};
use dpif::PortStats;
use flow::{DpPort, MacAddr};
use l2proto::Protocol;
use l2proto::protocol::LinkState;
use l2proto::protocol::Table;
use netdev::dummy::DummyPorts;
use netdev::link::{self, EthtoolLink, LinkInfo};
use ofproto::ports::PortFeatures;
use ovsdb::client::{Change, ColumnValue, LockState, RowView, TxnBuilder, TxnId};
use ovsdb::value::{Datum, Uuid};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use vswitch::config::{PortConfig, connection_dscp};
use vswitch::plan::{ChangedFacts, NOTICE_KEY, OpenPort};
use vswitch::status::{
    ControllerFacts, Counters, Duplex, Facts, InterfaceFacts, ManagerFacts, SwitchFacts, TrunkChanges, UpDown,
};
use vswitch::{Planner, SupportedTypes, Writeback};

/// OVS version reported to tools.
pub(crate) const OVS_VERSION: &str = "3.5.4";
/// Shortest time between looks at the devices below tunnels because routes changed: that may be often.
const EGRESS_MS: u64 = 100;

struct Link {
    info: LinkInfo,
    settings: Option<EthtoolLink>,
    driver: Option<[String; 3]>,
    /// Carrier changes before it was a port.
    changes_before: u32,
    /// The switch's own scheduler serves its queues.
    has_own_scheduler: bool,
}

/// Collects status and writes it.
pub(crate) struct FactKeeper {
    writeback: Writeback,
    in_flight: Option<TxnId>,
    root_asked: bool,
    links: BTreeMap<String, Link>,
    switch: SwitchFacts,
    /// Types of datapaths, with those that serve them.
    datapath_types: BTreeMap<String, String>,
    run_dir: PathBuf,
    /// Whether system statistics are enabled.
    machine: bool,
    system_id: Option<String>,
    embedded: bool,
    controllers: BTreeMap<Uuid, ControllerFacts>,
    managers: BTreeMap<Uuid, ManagerFacts>,
    /// Sessions of link protocols, by interface.
    sessions: BTreeMap<String, BTreeMap<Protocol, Report>>,
    /// Addresses of the active members of bonds, by port.
    active_members: BTreeMap<String, MacAddr>,
    /// Facts may have changed: those of the switch, of bridges, controllers and managers, and of `changed`.
    dirty: bool,
    /// Interfaces of which the facts may have changed, besides those that the planner knows.
    changed: BTreeSet<String>,
    /// All facts are to be made anew.
    renews_all: bool,
    /// All rows are to be compared.
    everything: bool,
    /// Rows that changed in the database since the last comparison.
    changed_rows: BTreeSet<Uuid>,
    /// Facts of the last comparison, and the planner's version then.
    last: Facts,
    planned: u64,
    /// Devices below tunnels at the last comparison, by interface.
    egress: BTreeMap<String, Egress>,
    /// Time of that, and of the next one, because routes changed.
    egress_checked_ms: u64,
    egress_due_ms: Option<u64>,
    last_written: Option<i64>,
    /// Comparisons that found nothing to write.
    unchanged: u64,
}

impl FactKeeper {
    /// Empty, for a database of another process.
    pub(crate) fn new(supported: &SupportedTypes, run_dir: &Path) -> FactKeeper {
        FactKeeper {
            writeback: Writeback::new(Some(super::db::LOCK.to_string())),
            in_flight: None,
            root_asked: false,
            links: BTreeMap::new(),
            switch: SwitchFacts {
                iface_types: Some(supported.interface_types()),
                datapath_types: Some(supported.datapath_types()),
                ..SwitchFacts::default()
            },
            datapath_types: supported
                .datapaths
                .iter()
                .map(|(name, support)| (name.clone(), support.served_by.clone()))
                .collect(),
            run_dir: run_dir.to_path_buf(),
            machine: false,
            system_id: None,
            embedded: false,
            controllers: BTreeMap::new(),
            managers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            active_members: BTreeMap::new(),
            dirty: true,
            changed: BTreeSet::new(),
            renews_all: true,
            everything: true,
            changed_rows: BTreeSet::new(),
            last: Facts::default(),
            planned: 0,
            egress: BTreeMap::new(),
            egress_checked_ms: 0,
            egress_due_ms: None,
            last_written: None,
            unchanged: 0,
        }
    }

    /// The database is embedded: from now on the daemon identifies and describes the system in it, as start scripts do
    /// for other servers.
    pub(crate) fn own_database(&mut self, system_id: Option<String>, system: (String, String)) {
        let (system_type, system_version) = system;
        self.embedded = system_id.is_some();
        self.system_id = system_id;
        let own = |text: String| self.embedded.then_some(text);
        self.switch.ovs_version = own(OVS_VERSION.to_string());
        self.switch.db_version = own(ovsdb::schema::open_vswitch().version.to_string());
        self.switch.system_type = own(system_type);
        self.switch.system_version = own(system_version);
        self.switch.dpdk_version = own("none".to_string());
        self.dirty = true;
    }

    /// Sets the interval of statistics.
    pub(crate) fn set_interval_ms(&mut self, interval_ms: u64) {
        self.writeback.set_stats_interval_ms(interval_ms);
    }

    /// Comparisons that found nothing to write.
    pub(crate) fn unchanged(&self) -> u64 {
        self.unchanged
    }

    /// Sets whether system statistics are written (`enable-statistics`).
    pub(crate) fn set_machine(&mut self, wanted: bool) {
        self.machine = wanted;
    }

    /// Time of the next write without an event.
    pub(crate) fn next_ms(&self, now_ms: u64) -> u64 {
        let Some(from_ms) = self.writeback.writes_from_ms() else { return now_ms + 1000 };
        let waiting = self.dirty || !self.changed_rows.is_empty();
        let due_ms = self.writeback.next_due_ms().min(self.egress_due_ms.unwrap_or(u64::MAX));
        if waiting { from_ms.max(now_ms) } else { due_ms.max(from_ms).max(now_ms) }
    }

    /// Whether the next statistics are due by that time.
    pub(crate) fn statistics_due_by(&self, now_ms: u64) -> bool {
        self.writeback.next_due_ms() <= now_ms
    }

    /// The database changed: compare the status of these rows again.
    pub(crate) fn rows_changed(&mut self, changes: &[Change]) {
        self.changed_rows.extend(changes.iter().map(|change| change.uuid));
    }

    /// Creates a missing root row in an embedded database.
    pub(crate) fn prepare(&mut self, db: &mut Db) {
        if !self.embedded || self.root_asked || db.client_ref().replica().row_count("Open_vSwitch") > 0 {
            return;
        }
        self.root_asked = true;
        let mut txn = TxnBuilder::new();
        let external_ids = Datum::map(self.system_id.iter().map(|id| ("system-id", id.as_str())));
        txn.insert("Open_vSwitch", [("external_ids", ColumnValue::from(external_ids))]);
        txn.comment("sluiced: a new database");
        if let Err(e) = db.client().transact(txn) {
            log::warn!(target: "bridge", "cannot set up the database: {e}");
        }
    }

    /// Processes the result of the transaction in flight.
    pub(crate) fn take_outcomes(&mut self, db: &mut Db, now_ms: u64) {
        for (id, outcome) in db.client().take_outcomes() {
            if self.in_flight == Some(id) {
                self.in_flight = None;
                self.dirty |= !matches!(outcome, ovsdb::client::TxnOutcome::Success { .. });
                if let ovsdb::client::TxnOutcome::Error(why) = &outcome {
                    log::warn!(target: "bridge", "the database refused the switch's status: {why:?}");
                }
                self.writeback.outcome(&outcome, now_ms);
            }
        }
    }

    /// The rows are not followed, or were not: all are to be compared once they are.
    pub(crate) fn start_over(&mut self) {
        (self.dirty, self.renews_all, self.everything) = (true, true, true);
        self.changed_rows.clear();
    }

    /// Facts of the planner changed.
    pub(crate) fn changed(&mut self) {
        self.dirty = true;
    }

    /// Routes changed: looks at the devices below tunnels, not more often than each [`EGRESS_MS`].
    pub(crate) fn routes_changed(&mut self, now_ms: u64) {
        self.egress_due_ms.get_or_insert(now_ms.max(self.egress_checked_ms + EGRESS_MS));
    }

    /// Sets the addresses of the active members of bonds, by port.
    pub(crate) fn set_active_members(&mut self, active: BTreeMap<String, MacAddr>) {
        let differs = self.active_members != active;
        self.dirty |= differs;
        self.renews_all |= differs;
        self.active_members = active;
    }

    /// Effect of a session on its port, as last reported.
    pub(crate) fn session_state(&self, (interface, protocol): &SessionName) -> LinkState {
        let known = self.sessions.get(interface).and_then(|sessions| sessions.get(protocol));
        known.map_or(protocol.initial_state(), |known| known.state)
    }

    /// Sets the status of a session; `None`: it ended.
    pub(crate) fn set_session(&mut self, (interface, protocol): SessionName, report: Option<Report>) {
        let sessions = self.sessions.entry(interface.clone()).or_default();
        let known = sessions.get(&protocol);
        if known.map(|known| &known.status) != report.as_ref().map(|report| &report.status) {
            self.dirty = true;
            self.changed.insert(interface.clone());
        }
        match report {
            Some(report) => drop(sessions.insert(protocol, report)),
            None => drop(sessions.remove(&protocol)),
        }
        if sessions.is_empty() {
            self.sessions.remove(&interface);
        }
    }

    /// Reads the state of these devices again, and forgets it of those that are not open.
    pub(crate) fn refresh_links(&mut self, devices: &Devices, names: &BTreeSet<String>) {
        for name in names {
            let Some(device) = devices.get(name) else {
                self.links.remove(name);
                continue;
            };
            let Ok(info) = device.link() else { continue };
            let known = self.links.get(name);
            let has_own_scheduler = device.has_own_scheduler();
            if known.is_some_and(|l| l.info == info && l.has_own_scheduler == has_own_scheduler) {
                continue;
            }
            self.dirty = true;
            self.changed.insert(name.clone());
            // The driver's data change only with the carrier.
            let changes_before = known.map_or(info.carrier_changes, |l| l.changes_before);
            let (settings, driver) = (device.ethtool(), device.driver());
            let link = Link { settings, driver, changes_before, has_own_scheduler, info };
            self.links.insert(name.clone(), link);
        }
    }

    /// Sets the status of controllers.
    pub(crate) fn set_controllers(&mut self, controllers: BTreeMap<Uuid, ControllerFacts>) {
        let lasting = |all: &BTreeMap<Uuid, ControllerFacts>| {
            let value = |f: &ControllerFacts, key: &str| f.status.get(key).cloned();
            let strip =
                |f: &ControllerFacts| (f.is_connected, f.role, value(f, "state"), value(f, "last_error"));
            all.iter().map(|(u, f)| (*u, strip(f))).collect::<Vec<_>>()
        };
        self.dirty |= lasting(&controllers) != lasting(&self.controllers);
        self.controllers = controllers;
    }

    /// Sets the status of managers. The fault of keys and certificates concerns those that need them.
    pub(crate) fn set_managers(&mut self, db: &Db, tls_fault: Option<&str>) {
        let managers = managers(db, tls_fault);
        let lasting = |all: &BTreeMap<Uuid, ManagerFacts>| {
            let strip = |f: &ManagerFacts| {
                let lasts = |key: &&String| !key.starts_with("sec_since_");
                let keys = f.status.keys().filter(lasts).map(|key| (key.clone(), f.status[key].clone()));
                (f.is_connected, keys.collect::<Vec<_>>())
            };
            all.iter().map(|(u, f)| (*u, strip(f))).collect::<Vec<_>>()
        };
        self.dirty |= lasting(&managers) != lasting(&self.managers);
        self.managers = managers;
    }

    /// State of an open device: set up, carrier, MTU, changes of the carrier, bits a second.
    pub(crate) fn device_state(&self, name: &str) -> Option<DeviceState> {
        let Link { info, settings, changes_before, .. } = self.links.get(name)?;
        let speed_mbps = settings.as_ref().and_then(|settings| settings.speed_mbps);
        Some(DeviceState {
            is_up: info.admin_up,
            has_carrier: info.carrier(),
            mtu: info.mtu,
            resets: info.carrier_changes.wrapping_sub(*changes_before),
            speed_bps: speed_mbps.map_or(0, |mbps| u64::from(mbps) * 1_000_000),
        })
    }

    /// All sessions of link protocols, with their effect on their interface.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (&str, Protocol, LinkState)> {
        self.sessions.iter().flat_map(|(name, sessions)| {
            sessions.iter().map(move |(protocol, report)| (name.as_str(), *protocol, report.state))
        })
    }

    /// Adds VLANs to the trunks of ports, or removes them.
    pub(crate) fn change_trunks(&mut self, changes: TrunkChanges) {
        self.dirty |= !changes.is_empty();
        self.writeback.change_trunks(changes);
    }

    /// Whether a device is set down; `None` if unknown.
    pub(crate) fn admin_down(&self, name: &str) -> Option<bool> {
        self.links.get(name).map(|l| !l.info.admin_up)
    }

    /// Whether a device has no carrier; `None` if unknown.
    pub(crate) fn link_down(&self, name: &str) -> Option<bool> {
        self.links.get(name).map(|l| !l.info.carrier())
    }

    /// The driver's data of a device's link, empty if not provided; `None` if unknown.
    pub(crate) fn features(&self, name: &str) -> Option<PortFeatures> {
        self.links.get(name).map(|l| l.settings.as_ref().map(port_features).unwrap_or_default())
    }

    /// Writes due differences.
    pub(crate) fn write_back(
        &mut self,
        db: &mut Db,
        planner: &mut Planner,
        instances: &Instances,
        acknowledged: Option<i64>,
        now_ms: u64,
    ) {
        self.writeback.set_lock_held(db.client_ref().lock_state() == LockState::Held);
        let due = self.writeback.wants_statistics(now_ms);
        let newly = acknowledged.is_some() && acknowledged != self.last_written;
        self.dirty |= planner.version() != self.planned;
        let has_reason = due || newly || self.dirty || !self.changed_rows.is_empty();
        let is_egress_due = self.egress_due_ms.is_some_and(|due_ms| now_ms >= due_ms);
        if !has_reason && !is_egress_due || !self.writeback.may_write(now_ms) {
            return;
        }
        if let Some(next_cfg) = acknowledged {
            self.writeback.acknowledged(next_cfg);
            self.last_written = acknowledged;
        }
        if due {
            let wanted = self.machine.then(|| super::machine::statistics(&self.run_dir));
            self.switch.statistics = Some(wanted.unwrap_or_default());
        }
        self.writeback.set_missing(db.client_ref().missing());
        let replica = db.client_ref().replica();
        let egress = tunnels::egress(instances);
        (self.egress_checked_ms, self.egress_due_ms) = (now_ms, None);
        if egress != self.egress {
            (self.dirty, self.renews_all) = (true, true);
            self.egress = egress;
        }
        let mut rows = std::mem::take(&mut self.changed_rows);
        if self.dirty {
            self.renew(planner, instances.dummy_ports(), &mut rows);
        }
        if due {
            self.refresh(planner, instances, &mut rows);
        }
        self.last.switch.clone_from(&self.switch);
        self.last.switch.capabilities = self.capabilities(instances);
        let txn = match std::mem::take(&mut self.everything) {
            true => self.writeback.next(replica, &self.last, now_ms),
            false => self.writeback.next_of(replica, &self.last, &rows, now_ms),
        };
        let Some(txn) = txn else {
            self.dirty = false;
            self.unchanged += 1;
            return;
        };
        match db.client().transact(txn) {
            Ok(id) => {
                self.in_flight = Some(id);
                self.dirty = false;
            }
            Err(e) => {
                log::debug!(target: "bridge", "cannot write status: {e}");
                self.dirty = true;
                self.writeback.not_sent(now_ms);
            }
        }
    }

    /// Brings the last facts up to date, without counters, and adds the rows with other facts to `rows`.
    fn renew(&mut self, planner: &mut Planner, dummies: &DummyPorts, rows: &mut BTreeSet<Uuid>) {
        let mut changed = planner.take_changed();
        self.planned = planner.version();
        let others = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.renews_all) || changed.all {
            let mut facts = self.facts(planner, dummies);
            self.compare(&mut facts, planner, rows);
            self.last = facts;
            return;
        }
        for port in others.iter().filter_map(|name| planner.open_port(name)) {
            changed.interfaces.extend(port.row.map(|row| (row, port.name.to_string())));
            let of_port = |row| (row, port.bridge_name.to_string(), port.port.to_string());
            changed.ports.extend(port.port_row.map(of_port));
        }
        let facts = self.changed_facts(planner, dummies, &changed);
        self.take(facts, planner, &changed, rows);
        debug_assert!(self.last.is_same_beside_counters(&self.facts(planner, dummies)));
    }

    /// Takes changed facts over into the last ones. The counters of open ports stay.
    fn take(&mut self, facts: Facts, planner: &Planner, changed: &ChangedFacts, rows: &mut BTreeSet<Uuid>) {
        let Facts { switch: _, mirrors: _, bridges, ports, mut interfaces, controllers, managers } = facts;
        for (row, name) in &changed.interfaces {
            let last = self.last.interfaces.remove(row);
            let Some(mut known) = interfaces.remove(row) else { continue };
            if planner.open_port(name).is_some() {
                known.statistics = last.as_ref().map(|last| last.statistics.clone()).unwrap_or_default();
            }
            if last.as_ref() != Some(&known) {
                rows.insert(*row);
            }
            self.last.interfaces.insert(*row, known);
        }
        for (row, ..) in &changed.ports {
            let last = self.last.ports.get(row);
            let now = ports.get(row);
            if now.is_some() && last != now {
                rows.insert(*row);
            }
            match now {
                Some(now) => drop(self.last.ports.insert(*row, now.clone())),
                None => drop(self.last.ports.remove(row)),
            }
        }
        let beside = Facts { bridges, controllers, managers, ..Facts::default() };
        beside.differing(&self.last, rows);
        let Facts { bridges, controllers, managers, .. } = beside;
        (self.last.bridges, self.last.controllers, self.last.managers) = (bridges, controllers, managers);
    }

    /// Adds the rows with other facts than the last ones to `rows`, and moves the counters of open ports to the new facts.
    fn compare(&mut self, facts: &mut Facts, planner: &Planner, rows: &mut BTreeSet<Uuid>) {
        let last = self.last.interfaces.iter_mut();
        let mut counters: BTreeMap<Uuid, Counters> =
            last.map(|(row, known)| (*row, std::mem::take(&mut known.statistics))).collect();
        facts.differing(&self.last, rows);
        for row in planner.open_ports().filter_map(|port| port.row) {
            if let Some((known, counters)) = facts.interfaces.get_mut(&row).zip(counters.remove(&row)) {
                known.statistics = counters;
            }
        }
        // Ports that were closed have none.
        rows.extend(counters.into_iter().filter(|(_, counters)| !counters.is_empty()).map(|(row, _)| row));
    }

    /// All facts anew, without counters.
    fn facts(&self, planner: &Planner, dummies: &DummyPorts) -> Facts {
        let mut facts = planner.facts();
        for port in planner.open_ports() {
            self.add_open_port(&mut facts, &port, dummies);
        }
        for port in planner.desired().bridges.values().flat_map(|bridge| bridge.ports.values()) {
            self.add_active_member(&mut facts, port);
        }
        self.add_beside_ports(&mut facts, planner);
        facts
    }

    /// Facts as [`FactKeeper::facts`] has them, but of interfaces and ports only the changed ones.
    fn changed_facts(&self, planner: &Planner, dummies: &DummyPorts, changed: &ChangedFacts) -> Facts {
        let mut facts = planner.changed_facts(changed);
        let mut names: BTreeSet<&str> = changed.interfaces.values().map(String::as_str).collect();
        for (_, bridge, name) in &changed.ports {
            let bridge = planner.desired().bridges.get(bridge);
            let Some(port) = bridge.and_then(|bridge| bridge.ports.get(name)) else { continue };
            self.add_active_member(&mut facts, port);
            // Its facts have those of the sessions of all its members.
            names.extend(port.interfaces.iter().map(|interface| interface.name.as_str()));
        }
        for port in names.into_iter().filter_map(|name| planner.open_port(name)) {
            self.add_open_port(&mut facts, &port, dummies);
        }
        self.add_beside_ports(&mut facts, planner);
        facts
    }

    /// Adds the facts of bridges, controllers and managers that the planner does not know.
    fn add_beside_ports(&self, facts: &mut Facts, planner: &Planner) {
        facts.managers = self.managers.clone();
        for (row, known) in &self.controllers {
            renew_controller(facts.controllers.entry(*row).or_default(), known);
        }
        for bridge in facts.bridges.values_mut() {
            bridge.datapath_version = "<built-in>".to_string();
        }
        for (name, sessions) in &self.sessions {
            let row = planner.open_port(name).map(|port| port.bridge_row);
            let Some(known) = row.and_then(|row| facts.bridges.get_mut(&row)) else { continue };
            sessions.values().for_each(|session| known.links.add(Table::Bridge, &session.status));
        }
    }

    fn add_active_member(&self, facts: &mut Facts, port: &PortConfig) {
        let known = port.row.and_then(|row| facts.ports.get_mut(&row));
        if let Some((known, mac)) = known.zip(self.active_members.get(&port.name)) {
            known.active_member = Some(Some(*mac));
        }
    }

    /// Adds the facts of an open port that the planner does not know, to the rows that `facts` has.
    fn add_open_port(&self, facts: &mut Facts, port: &OpenPort<'_>, dummies: &DummyPorts) {
        let Facts { interfaces, ports, .. } = facts;
        for session in self.sessions.get(port.name).into_iter().flat_map(BTreeMap::values) {
            let row = port.row.and_then(|row| interfaces.get_mut(&row));
            row.into_iter().for_each(|facts| facts.links.add(Table::Interface, &session.status));
            let row = port.port_row.and_then(|row| ports.get_mut(&row));
            row.into_iter().for_each(|facts| facts.links.add(Table::Port, &session.status));
        }
        let Some(known) = port.row.and_then(|row| interfaces.get_mut(&row)) else { return };
        match self.links.get(port.name) {
            Some(link) => add_link(known, link),
            None if port.type_name == "patch" => {
                (known.admin_state, known.link_state) = (Some(UpDown::Up), Some(UpDown::Up));
                (known.ifindex, known.link_resets) = (Some(0), Some(0));
                known.mac_in_use = Some(port.mac);
            }
            None => {}
        }
        if let Some(egress) = self.egress.get(port.name) {
            let carrier = if egress.has_carrier { "up" } else { "down" };
            known.status.insert("tunnel_egress_iface".to_string(), egress.device.to_string());
            known.status.insert("tunnel_egress_iface_carrier".to_string(), carrier.to_string());
        }
        // A dummy has none.
        if dummies.get(port.name).is_some() {
            known.status.extend(OFFLOADS.map(|key| (key.to_string(), "false".to_string())));
        }
    }

    /// Capabilities of datapaths by type; without bridges there are none, as in OVS.
    fn capabilities(&self, instances: &Instances) -> BTreeMap<String, BTreeMap<String, String>> {
        let shown = |i: &Instance| capabilities(i.backer.features(), i.datapath.connections().is_some());
        let of = |served_by: &str| instances.of_type(served_by).map(shown).unwrap_or_default();
        self.datapath_types.iter().map(|(name, by)| (name.clone(), of(by))).collect()
    }

    /// Brings all that changes without an event up to date in the last facts: counters and times. Adds the rows with other
    /// values to `rows`. One request per datapath, for any number of ports.
    fn refresh(&mut self, planner: &Planner, instances: &Instances, rows: &mut BTreeSet<Uuid>) {
        let all: BTreeMap<&str, Vec<(DpPort, PortStats)>> =
            instances.iter().map(|i| (i.name(), i.datapath.all_port_stats())).collect();
        let (mut scratch, dummies) = (Vec::new(), instances.dummy_ports());
        for port in planner.open_ports() {
            let known = port.row.and_then(|row| Some((row, self.last.interfaces.get_mut(&row)?)));
            let (Some((row, known)), Some(instance)) = (known, instances.of_bridge(port.bridge)) else {
                continue;
            };
            let view = instance.backer.view();
            let port_of_view = view.bridge(port.bridge).and_then(|b| b.ports.port(port.of_port));
            let counted_here = port_of_view.filter(|p| p.is_counted_here()).map(|p| &*p.counters);
            let stats = all.get(instance.name()).zip(port.dp_port).and_then(|(all, number)| {
                let at = all.binary_search_by_key(&number, |(number, _)| *number).ok()?;
                Some(&all[at].1)
            });
            let dummy = dummies.get(port.name);
            let changed = match Source::of(counted_here, stats, dummy.as_ref()) {
                Some(source) => source.refresh(&mut known.statistics, &mut scratch),
                None => !std::mem::take(&mut known.statistics).is_empty(),
            };
            if changed {
                rows.insert(row);
            }
        }
        self.last.mirrors = counters::mirrors(planner, instances);
        rows.extend(self.last.mirrors.keys());
        for (row, known) in &self.controllers {
            renew_controller(self.last.controllers.entry(*row).or_default(), known);
        }
        rows.extend(self.controllers.keys());
        self.last.managers.clone_from(&self.managers);
        rows.extend(self.managers.keys());
    }
}

/// See [`FactKeeper::device_state`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceState {
    pub(crate) is_up: bool,
    pub(crate) has_carrier: bool,
    pub(crate) mtu: u32,
    pub(crate) resets: u32,
    pub(crate) speed_bps: u64,
}

/// Offloads of transmission that the status of a device has in OVS.
const OFFLOADS: [&str; 10] = [
    "tx_geneve_tso_offload",
    "tx_gre_tso_offload",
    "tx_ip_csum_offload",
    "tx_out_ip_csum_offload",
    "tx_out_udp_csum_offload",
    "tx_sctp_csum_offload",
    "tx_tcp_csum_offload",
    "tx_tcp_seg_offload",
    "tx_udp_csum_offload",
    "tx_vxlan_tso_offload",
];

/// Replaces a controller's facts; the planner's notice stays.
fn renew_controller(entry: &mut ControllerFacts, known: &ControllerFacts) {
    let notice = entry.status.remove(NOTICE_KEY).map(|text| (NOTICE_KEY.to_string(), text));
    entry.clone_from(known);
    entry.status.extend(notice);
}

/// Adds the state of a device.
fn add_link(known: &mut InterfaceFacts, link: &Link) {
    let up = |up: bool| Some(if up { UpDown::Up } else { UpDown::Down });
    known.ifindex = Some(link.info.ifindex);
    known.mac_in_use = link.info.mac.map(MacAddr);
    known.mtu = Some(link.info.mtu).filter(|mtu| *mtu != 0);
    known.admin_state = up(link.info.admin_up);
    known.link_state = up(link.info.carrier());
    known.link_resets = Some(link.info.carrier_changes.wrapping_sub(link.changes_before).into());
    if let Some(settings) = &link.settings {
        known.link_speed_bps = settings.speed_mbps.map(|mbps| u64::from(mbps) * 1_000_000);
        known.duplex = settings.duplex.map(|d| match d {
            link::Duplex::Half => Duplex::Half,
            link::Duplex::Full => Duplex::Full,
        });
    }
    if let Some([name, version, firmware]) = &link.driver {
        let rows = [("driver_name", name), ("driver_version", version), ("firmware_version", firmware)];
        known.status.extend(rows.map(|(k, v)| (k.to_string(), v.clone())));
    }
    if link.has_own_scheduler {
        known.status.insert("qos".to_string(), "own scheduler".to_string());
    }
    // As in OVS 4.0.
    let peer = link.info.peer_ifindex().map(|peer| ("peer_ifindex".to_string(), peer.to_string()));
    known.status.extend(peer);
}

/// Status of managers, if they are served here.
fn managers(db: &Db, tls_fault: Option<&str>) -> BTreeMap<Uuid, ManagerFacts> {
    if !db.is_embedded() {
        return BTreeMap::new();
    }
    let of_row = |row: RowView<'_>| {
        let target = row.str("target");
        let mut facts = db.manager_facts(target).unwrap_or_default();
        let listens_for_tls = target.starts_with("pssl:");
        let fault = db.refused_manager(target).or(tls_fault.filter(|_| listens_for_tls));
        if let Some(why) = fault.map(str::to_string).or_else(|| connection_dscp(row).err()) {
            facts.status.insert(NOTICE_KEY.to_string(), why);
        }
        (row.uuid(), facts)
    };
    db.client_ref().replica().rows("Manager").map(of_row).collect()
}
