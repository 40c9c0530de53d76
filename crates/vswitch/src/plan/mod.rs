//! [`Planner`]: computes commands from the desired state.
//!
//! The planner stores the state it has commanded, and computes the steps from there to a new [`Desired`]:
//!
//! 1. [`Planner::plan`] takes a desired state and returns commands; the owner executes them in order and reports
//!    opened devices ([`Planner::opened`]) and failures.
//! 2. [`Planner::commands`] returns follow-ups, such as the ports of a bridge whose devices are open now. Call it
//!    until it returns none; if [`Planner::is_settled`] then, the configuration is applied and may be acknowledged.
//! 3. [`Planner::device_gone`], [`Planner::retry`] and similar methods report external events, at any time.
//!
//! A bridge with unchanged rows costs one comparison and no command. Unchanged ports are never closed, renumbered or
//! rebundled because of others. Numbers are assigned to open devices: a missing one uses none.

mod address;
mod command;
mod interfaces;
mod mirrors;
mod numbers;
mod ports;
mod reconcile;
mod report;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ofproto::ports::BridgeId;
use ofproto::{DpPort, MacAddr, OfPort};
use ovsdb::value::Uuid;

pub use command::{
    BridgeSettings, Command, CreateBridge, DeviceSettings, OpenId, OpenInterface, OpenedInterface,
};
pub use mirrors::MirrorEntry;
pub use ports::{PortEntry, PortSet};
pub use report::NOTICE_KEY;
pub use zones::{ZonePlanner, ZoneStep};

use crate::config::{CtConfig, Desired, GlobalConfig, Notice};
use interfaces::Rows;
use state::{Bridge, Interface, Open, State};

/// The applied state, and pending steps to the desired one. The default is a switch without bridges.
#[derive(Clone, Debug, Default)]
pub struct Planner {
    desired: Desired,
    global: Option<Arc<GlobalConfig>>,
    conntrack: BTreeMap<String, Arc<CtConfig>>,
    /// Errors of connection tracking, by datapath type.
    conntrack_errors: BTreeMap<String, String>,
    /// Error of serving metrics.
    metrics_error: Option<String>,
    bridges: BTreeMap<String, Bridge>,
    next_bridge: u32,
    /// The bridge of each interface in `bridges`.
    home: BTreeMap<String, String>,
    openings: BTreeMap<OpenId, String>,
    next_open: u64,
    /// Bridges to examine.
    dirty: BTreeSet<String>,
    notices: Vec<Notice>,
    /// See [`Planner::version`].
    version: u64,
    /// Facts may have changed beyond those of rows that the bridges note.
    all_changed: bool,
}

/// Rows of ports and interfaces of which the facts may have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedFacts {
    /// All of them.
    pub all: bool,
    /// Rows of `Interface`, with their names.
    pub interfaces: BTreeMap<Uuid, String>,
    /// Rows of `Port`, with the names of a bridge and of the port there.
    pub ports: BTreeSet<(Uuid, String, String)>,
}

/// A working interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPort<'a> {
    /// Its bridge.
    pub bridge: BridgeId,
    /// Its bridge's name.
    pub bridge_name: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its row; a bridge's own may have none.
    pub row: Option<Uuid>,
    /// Name of its port.
    pub port: &'a str,
    /// The row of its port; a bridge's own may have none.
    pub port_row: Option<Uuid>,
    /// The row of its bridge.
    pub bridge_row: Uuid,
    /// Its type, never empty.
    pub type_name: &'a str,
    /// Its OpenFlow number.
    pub of_port: OfPort,
    /// Its datapath number; a patch port has none.
    pub dp_port: Option<DpPort>,
    /// Its address.
    pub mac: MacAddr,
}

impl Planner {
    /// Takes a new desired state and returns the first steps towards it.
    pub fn plan(&mut self, desired: Desired) -> Vec<Command> {
        let before = &self.desired;
        let names = before.bridges.keys().chain(desired.bridges.keys());
        let changed = |name: &&String| match (before.bridges.get(*name), desired.bridges.get(*name)) {
            (Some(a), Some(b)) => !Arc::ptr_eq(a, b) && a != b,
            _ => true,
        };
        self.dirty.extend(names.filter(changed).cloned());
        if before.global.flow_restore_wait != desired.global.flow_restore_wait {
            self.dirty.extend(desired.bridges.keys().cloned());
        }
        self.notices.extend(desired.notices.difference(&before.notices).cloned());
        let Desired { row, refused, notices, .. } = &desired;
        let is_same = (&before.row, &before.refused, &before.notices) == (row, refused, notices);
        if !is_same || self.bridges.values().any(|bridge| bridge.interfaces.has_excess_rows()) {
            self.all_changed();
        }
        self.desired = desired;
        self.commands()
    }

    /// The steps that can be executed now.
    pub fn commands(&mut self) -> Vec<Command> {
        self.reconcile()
    }

    /// Whether no step is left and no device is being opened.
    pub fn is_settled(&self) -> bool {
        self.dirty.is_empty() && self.openings.is_empty()
    }

    /// New notices for the operator since the last call. A notice is reported once, until it disappears and returns.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// Changes with the state that [`Planner::facts`] shows.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn all_changed(&mut self) {
        self.version += 1;
        self.all_changed = true;
        for bridge in self.bridges.values_mut() {
            bridge.interfaces.take_rows();
        }
    }

    /// Rows whose facts may have changed in [`Planner::facts`] since the last call, without those of bridges and controllers.
    pub fn take_changed(&mut self) -> ChangedFacts {
        let mut changed = ChangedFacts { all: std::mem::take(&mut self.all_changed), ..Default::default() };
        for (name, bridge) in &mut self.bridges {
            let Rows { interfaces, ports } = bridge.interfaces.take_rows();
            changed.interfaces.extend(interfaces);
            changed.ports.extend(ports.into_iter().map(|(row, port)| (row, name.clone(), port)));
        }
        changed
    }

    /// The latest desired state.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// Reports the result of [`Command::OpenInterface`]. Returns the OpenFlow number, if the interface is in the
    /// switch now. Ignores results of aborted attempts (whose close was commanded).
    pub fn opened(&mut self, open: OpenId, result: Result<OpenedInterface, String>) -> Option<OfPort> {
        let name = self.openings.remove(&open)?;
        self.version += 1;
        let bridge_name = self.home.get(&name)?;
        let bridge = self.bridges.get_mut(bridge_name)?;
        let interface = bridge.interfaces.get_mut(&name)?;
        if interface.state != State::Opening(open) {
            return None;
        }
        self.dirty.insert(bridge_name.clone());
        match result {
            Err(error) => {
                interface.state = State::Failed(error);
                None
            }
            Ok(opened) => match bridge.assign_number(&name) {
                Some(number) => {
                    let open =
                        Open { number, dp_port: Some(opened.dp_port), mac: opened.mac, mtu: opened.mtu };
                    if let Some(interface) = bridge.interfaces.get_mut(&name) {
                        interface.state = State::Open(open);
                    }
                    Some(number)
                }
                None => {
                    let error = format!(
                        "could not add network device {name} to bridge {bridge_name} (no OpenFlow port number is free)"
                    );
                    bridge.take_out(&name, State::Failed(error));
                    None
                }
            },
        }
    }

    /// Reports a failure to apply settings of an open device: the port stays, and its row has the error. `None` for
    /// success.
    pub fn settings_failed(&mut self, name: &str, error: Option<String>) {
        let Some(bridge) = self.home.get(name).and_then(|b| self.bridges.get_mut(b)) else { return };
        if bridge.interfaces.get(name).is_some_and(|interface| interface.setting_error != error)
            && let Some(interface) = bridge.interfaces.get_mut(name)
        {
            self.version += 1;
            interface.setting_error = error;
        }
    }

    /// Reports a failure to apply [`Command::SetConntrack`], shown in the status of the bridges of that datapath type;
    /// `None` for success.
    pub fn conntrack_failed(&mut self, datapath_type: &str, error: Option<String>) {
        self.version += 1;
        match error {
            Some(error) => self.conntrack_errors.insert(datapath_type.to_string(), error),
            None => self.conntrack_errors.remove(datapath_type),
        };
    }

    /// Reports why samples of a bridge for local readers are not taken, shown in its status; `None` if they are, or if none
    /// are wanted.
    pub fn sampling_failed(&mut self, bridge: BridgeId, error: Option<String>) {
        if let Some(bridge) = self.bridges.values_mut().find(|b| b.id == bridge) {
            self.version += u64::from(bridge.sampling_error != error);
            bridge.sampling_error = error;
        }
    }

    /// Reports that metrics cannot be served, shown among the settings without effect; `None` for success.
    pub fn metrics_failed(&mut self, error: Option<String>) {
        self.version += 1;
        self.metrics_error = error;
    }

    /// Reports that the device of an open interface has disappeared: closes it and shows it as missing. If it
    /// returns, it gets its number again, unless another port has requested that meanwhile.
    pub fn device_gone(&mut self, name: &str) {
        self.fail(name, format!("could not open network device {name} (No such device)"));
    }

    fn fail(&mut self, name: &str, error: String) {
        let Some(bridge_name) = self.home.get(name) else { return };
        let Some(bridge) = self.bridges.get_mut(bridge_name) else { return };
        let works = |i: &Interface| !i.config.is_patch() && matches!(i.state, State::Open(_));
        if bridge.interfaces.get(name).is_some_and(works) {
            bridge.take_out(name, State::Failed(error));
            self.dirty.insert(bridge_name.clone());
        }
    }

    /// Reports that a device of this name appeared: retries a failed interface.
    pub fn retry(&mut self, name: &str) {
        let Some(bridge_name) = self.home.get(name) else { return };
        let Some(bridge) = self.bridges.get_mut(bridge_name) else { return };
        if bridge.interfaces.get(name).is_some_and(Interface::has_failed)
            && let Some(interface) = bridge.interfaces.get_mut(name)
        {
            interface.state = State::Wanted;
            self.dirty.insert(bridge_name.clone());
        }
    }

    /// Retries all failures, bridges included.
    pub fn retry_failed(&mut self) {
        let failed: Vec<String> = self.bridges.values_mut().flat_map(Bridge::failed_interfaces).collect();
        failed.iter().for_each(|name| self.retry(name));
        let bridges = self.bridges.iter().filter(|(_, bridge)| bridge.failed.is_some());
        let bridges: Vec<String> = bridges.map(|(name, _)| name.clone()).collect();
        for name in bridges {
            self.bridges.remove(&name);
            self.dirty.insert(name);
        }
    }

    /// Reports that [`Command::CreateBridge`] failed. Retried when the bridge's rows change, or by
    /// [`Planner::retry_failed`].
    pub fn bridge_failed(&mut self, bridge: BridgeId, error: &str) {
        let found = self.bridges.values_mut().find(|b| b.id == bridge);
        let Some(found) = found else { return };
        let name = found.config.name.clone();
        let error = format!("could not create bridge {name} ({error})");
        let mut failed = Bridge::new(found.id, found.config.clone());
        failed.failed = Some(error);
        *found = failed;
        self.home.retain(|_, home| *home != name);
        let home = &self.home;
        self.openings.retain(|_, interface| home.contains_key(interface));
        self.all_changed();
    }

    /// Reports the present address or MTU of an open device.
    pub fn device_changed(&mut self, name: &str, mac: MacAddr, mtu: Option<u32>) {
        let Some(bridge_name) = self.home.get(name) else { return };
        let Some(bridge) = self.bridges.get_mut(bridge_name) else { return };
        let known = bridge.interfaces.get(name).and_then(Interface::open);
        if known.is_some_and(|open| (open.mac, open.mtu) != (mac, mtu))
            && let Some(interface) = bridge.interfaces.get_mut(name)
            && let State::Open(open) = &mut interface.state
        {
            (open.mac, open.mtu) = (mac, mtu);
            let config = &interface.config;
            // As in OVS, a device keeps the MTU of its row. Without one, an internal device may have less than the others
            // by hand, but not more.
            let strays = |sent: &&mut DeviceSettings| match config.mtu_request {
                Some(_) => mtu != sent.mtu,
                None => config.is_internal() && mtu > sent.mtu,
            };
            if let Some(sent) = interface.sent.as_mut().filter(strays) {
                sent.mtu = None;
            }
            self.dirty.insert(bridge_name.clone());
        }
    }

    /// Reports that an open device has another number in its datapath.
    pub fn device_moved(&mut self, name: &str, dp_port: DpPort) {
        let Some(bridge_name) = self.home.get(name) else { return };
        let Some(bridge) = self.bridges.get_mut(bridge_name) else { return };
        let known = bridge.interfaces.get(name).and_then(Interface::open);
        if known.is_some_and(|open| open.dp_port != Some(dp_port))
            && let Some(interface) = bridge.interfaces.get_mut(name)
            && let State::Open(open) = &mut interface.state
        {
            open.dp_port = Some(dp_port);
            self.dirty.insert(bridge_name.clone());
        }
    }

    /// The settings last sent to an interface's device.
    pub fn settings_of(&self, name: &str) -> Option<&DeviceSettings> {
        self.bridges.get(self.home.get(name)?)?.interfaces.get(name)?.sent.as_ref()
    }

    /// The number of a bridge in this process.
    pub fn bridge_id(&self, name: &str) -> Option<BridgeId> {
        self.bridges.get(name).filter(|bridge| bridge.failed.is_none()).map(|bridge| bridge.id)
    }

    /// All working interfaces, by bridge and name.
    pub fn open_ports(&self) -> impl Iterator<Item = OpenPort<'_>> {
        self.bridges.iter().flat_map(|(bridge_name, bridge)| {
            bridge.interfaces.values().filter_map(move |interface| open_port(bridge_name, bridge, interface))
        })
    }

    /// A working interface.
    pub fn open_port(&self, name: &str) -> Option<OpenPort<'_>> {
        let (bridge_name, bridge) = self.bridges.get_key_value(self.home.get(name)?)?;
        open_port(bridge_name, bridge, bridge.interfaces.get(name)?)
    }

    /// Interfaces that wait for a device or for a retry, with their errors.
    pub fn failed_interfaces(&self) -> impl Iterator<Item = (&str, &str)> {
        self.bridges.values().flat_map(|bridge| bridge.interfaces.iter()).filter_map(|(name, interface)| {
            match &interface.state {
                State::Failed(error) => Some((name.as_str(), error.as_str())),
                _ => None,
            }
        })
    }
}

fn open_port<'p>(bridge_name: &'p str, bridge: &'p Bridge, interface: &'p Interface) -> Option<OpenPort<'p>> {
    let open = interface.open()?;
    Some(OpenPort {
        bridge: bridge.id,
        bridge_name,
        name: &interface.config.name,
        port: &interface.port.name,
        row: interface.config.row,
        port_row: interface.port.row,
        bridge_row: bridge.config.row,
        type_name: &interface.config.type_name,
        of_port: open.number,
        dp_port: open.dp_port,
        mac: open.mac,
    })
}
