//! The planner's state of the running switch: bridges, interfaces, numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ofproto::ports::{BridgeId, BundleId};
use ofproto::{DpPort, MacAddr, OfPort};

use super::address::{self, may_represent};
use super::interfaces::{Interfaces, Least};
use super::mirrors::Places;
use super::numbers::PortNumbers;
use super::{BridgeSettings, DeviceSettings, OpenId, PortSet};
use crate::config::{BridgeConfig, ControllerConfig, InterfaceConfig, PortConfig};

/// A device, or a patch port, in the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) number: OfPort,
    pub(super) dp_port: Option<DpPort>,
    pub(super) mac: MacAddr,
    pub(super) mtu: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To be opened.
    Wanted,
    /// The owner is opening it.
    Opening(OpenId),
    /// It works.
    Open(Open),
    /// It failed; the error is for its row.
    Failed(String),
}

/// A wanted interface of a bridge.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) config: Arc<InterfaceConfig>,
    /// Its port.
    pub(super) port: Arc<PortConfig>,
    pub(super) state: State,
    /// Settings last sent to its device.
    pub(super) sent: Option<DeviceSettings>,
    /// Failed ones among them, with errors.
    pub(super) setting_error: Option<String>,
    /// Its number when it last worked.
    pub(super) number_before: Option<OfPort>,
}

impl Interface {
    pub(super) fn new(config: Arc<InterfaceConfig>, port: Arc<PortConfig>) -> Self {
        let number_before = config.ofport;
        Interface { config, port, state: State::Wanted, sent: None, setting_error: None, number_before }
    }

    pub(super) fn open(&self) -> Option<Open> {
        if let State::Open(open) = &self.state { Some(*open) } else { None }
    }

    pub(super) fn has_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Whether it is open with another number than the requested one.
    pub(super) fn is_misplaced(&self) -> bool {
        let request = self.config.ofport_request;
        request.is_some() && self.open().is_some_and(|open| Some(open.number) != request)
    }

    /// The MTU of a device around the bridge. As in OVS, an internal device counts if its row sets its MTU.
    fn outside_mtu(&self) -> Option<u32> {
        let config = &self.config;
        let counts = !config.is_internal() && !config.is_patch() || config.mtu_request.is_some();
        self.open().filter(|_| counts)?.mtu
    }

    /// Whether the owner has, or may have, a device for it.
    pub(super) fn has_device(&self) -> bool {
        !self.config.is_patch() && matches!(self.state, State::Open(_) | State::Opening(_))
    }
}

/// Names of interfaces and of ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) interfaces: BTreeSet<String>,
    pub(super) ports: BTreeSet<String>,
}

/// Least values of a bridge.
#[derive(Clone, Debug, Default)]
struct Leasts {
    /// Addresses that may represent the bridge, by port.
    addresses: Least<MacAddr>,
    /// MTUs of devices around the bridge, by interface.
    mtus: Least<u32>,
}

/// An existing bridge, or one that could not be created.
#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) id: BridgeId,
    pub(super) config: Arc<BridgeConfig>,
    pub(super) interfaces: Interfaces,
    /// Values that follow from the interfaces, as of the last [`Bridge::refresh`].
    least: Leasts,
    /// Interfaces that failed.
    failed_interfaces: BTreeSet<String>,
    /// Open interfaces whose number is not the one that they request.
    pub(super) misplaced: BTreeSet<String>,
    /// Ports that are fake bridges, by name.
    pub(super) fakes: BTreeMap<String, Arc<PortConfig>>,
    /// Patch ports in `ports`.
    pub(super) patches: BTreeSet<String>,
    /// Changed since settings of devices were compared.
    pub(super) unsent: BTreeSet<String>,
    /// The properties with which they were compared.
    pub(super) derived: Option<Derived>,
    /// Interfaces and ports changed since `ports` was made.
    pub(super) unpublished: Names,
    pub(super) numbers: PortNumbers,
    pub(super) bundles: BTreeMap<String, BundleId>,
    pub(super) next_bundle: u32,
    pub(super) mirrors: Places,
    pub(super) ports: Arc<PortSet>,
    pub(super) settings: Option<BridgeSettings>,
    pub(super) controllers: Vec<ControllerConfig>,
    /// The error of its creation.
    pub(super) failed: Option<String>,
    /// Why its samples for local readers are not taken.
    pub(super) sampling_error: Option<String>,
    /// Devices to close once no port refers to them.
    pub(super) to_close: Vec<String>,
}

impl Bridge {
    pub(super) fn new(id: BridgeId, config: Arc<BridgeConfig>) -> Self {
        Bridge {
            id,
            config,
            interfaces: Interfaces::default(),
            least: Leasts::default(),
            failed_interfaces: BTreeSet::new(),
            misplaced: BTreeSet::new(),
            fakes: BTreeMap::new(),
            patches: BTreeSet::new(),
            unsent: BTreeSet::new(),
            derived: None,
            unpublished: Names::default(),
            numbers: PortNumbers::default(),
            bundles: BTreeMap::new(),
            next_bundle: 0,
            mirrors: Places::default(),
            ports: Arc::default(),
            settings: None,
            controllers: Vec::new(),
            failed: None,
            sampling_error: None,
            to_close: Vec::new(),
        }
    }

    /// Brings all that follows from the interfaces up to date, with a look at changed ones alone.
    pub(super) fn refresh(&mut self) {
        let Names { interfaces, ports } = self.interfaces.take_changed();
        for name in interfaces {
            let interface = self.interfaces.get(&name);
            self.least.mtus.set(&name, interface.and_then(Interface::outside_mtu));
            follow(&mut self.failed_interfaces, &name, interface.is_some_and(Interface::has_failed));
            follow(&mut self.misplaced, &name, interface.is_some_and(Interface::is_misplaced));
            self.unsent.insert(name.clone());
            self.unpublished.interfaces.insert(name);
        }
        for name in ports {
            self.least.addresses.set(&name, self.port_address(&name));
            self.unpublished.ports.insert(name);
        }
    }

    /// The interfaces that failed, by name.
    pub(super) fn failed_interfaces(&mut self) -> Vec<String> {
        self.refresh();
        self.failed_interfaces.iter().cloned().collect()
    }

    /// The address of the bridge: as configured, else the lowest of its ports, else that of its row.
    pub(super) fn mac(&mut self) -> MacAddr {
        if let Some(mac) = self.config.options.hwaddr {
            return mac;
        }
        self.refresh();
        self.least.addresses.get().unwrap_or_else(|| address::of_row(self.config.row))
    }

    /// The address of a port, if it may represent the bridge. A bond has that of its first open member by name.
    fn port_address(&self, name: &str) -> Option<MacAddr> {
        let port = self.config.ports.get(name)?;
        let members = port.interfaces.iter().filter_map(|member| {
            let interface = self.interfaces.get(&member.name).filter(|i| i.port.name == name)?;
            let open = interface.open().filter(|open| open.number != OfPort::LOCAL)?;
            Some((&member.name, open.mac))
        });
        let (_, mac) = members.min_by_key(|(name, _)| *name)?;
        Some(port.mac.unwrap_or(mac)).filter(|mac| may_represent(*mac))
    }

    /// Addresses of the internal interfaces of fake bridges, from the ports with the same tag.
    fn fake_bridges(&self) -> BTreeMap<String, MacAddr> {
        let lowest = |tag: u16| {
            let of_tag = self.config.ports.iter().filter(|(_, port)| port.tag == tag);
            let lowest = of_tag.filter_map(|(name, _)| self.port_address(name)).min();
            lowest.unwrap_or_else(|| address::of_row(self.config.row))
        };
        let of_port = |port: &Arc<PortConfig>| {
            let interface = port.interfaces.first().filter(|interface| interface.is_internal())?;
            Some((interface.name.clone(), lowest(port.tag)))
        };
        self.fakes.values().filter_map(of_port).collect()
    }

    /// The address of an interface without a separate device.
    pub(super) fn address(&self, interface: &InterfaceConfig) -> MacAddr {
        let of_bond = || self.config.ports.get(&interface.name).filter(|_| interface.is_of_bond)?.row;
        address::of_row(interface.row.or_else(of_bond).unwrap_or(self.config.row))
    }

    /// The datapath id: as configured, else the address with zeros before it.
    pub(super) fn datapath_id(&mut self) -> u64 {
        self.config.options.datapath_id.unwrap_or_else(|| self.mac().to_u64())
    }

    /// Assigns an interface its number: that of the bridge's own port, the requested, the previous, or the next. A
    /// port that holds the requested number without having requested it gets another.
    pub(super) fn assign_number(&mut self, name: &str) -> Option<OfPort> {
        if name == self.config.name {
            return Some(OfPort::LOCAL);
        }
        let interface = self.interfaces.get(name)?;
        let (request, before) = (interface.config.ofport_request, interface.number_before);
        if let Some(request) = request {
            if self.numbers.claim(request) {
                return Some(request);
            }
            let has = |interface: &Interface| interface.open().is_some_and(|open| open.number == request);
            let holder = self.interfaces.values().find(|interface| has(interface));
            let holder = holder.filter(|holder| holder.config.ofport_request != Some(request));
            if let Some(holder) = holder.map(|holder| holder.config.name.clone())
                && let Some(other) = self.numbers.allocate()
                && let Some(State::Open(open)) = self.interfaces.get_mut(&holder).map(|i| &mut i.state)
            {
                open.number = other;
                return Some(request);
            }
        }
        if let Some(before) = before
            && self.numbers.claim(before)
        {
            return Some(before);
        }
        self.numbers.allocate()
    }

    /// Removes an interface from the switch. Its device is closed after the next change of ports.
    pub(super) fn take_out(&mut self, name: &str, state: State) {
        let Some(interface) = self.interfaces.get_mut(name) else { return };
        if interface.has_device() {
            self.to_close.push(name.to_string());
        }
        if let State::Open(open) = std::mem::replace(&mut interface.state, state) {
            interface.number_before = Some(open.number);
            self.numbers.release(open.number);
        }
    }

    /// Bridge properties in the settings of internal devices.
    pub(super) fn derived(&mut self) -> Derived {
        let mac = self.mac();
        self.refresh();
        let mtu = self.least.mtus.get().unwrap_or(ETHERNET_MTU).min(TAP_MTU_MAX);
        Derived { local: self.config.name.clone(), mac, fakes: self.fake_bridges(), mtu }
    }

    pub(super) fn bundle_id(&mut self, port: &str) -> BundleId {
        if let Some(id) = self.bundles.get(port) {
            return *id;
        }
        let id = BundleId(self.next_bundle);
        self.next_bundle += 1;
        self.bundles.insert(port.to_string(), id);
        id
    }
}

/// Adds the name to a set, or removes it.
fn follow(set: &mut BTreeSet<String>, name: &str, is_in: bool) {
    if !is_in {
        set.remove(name);
    } else if !set.contains(name) {
        set.insert(name.to_string());
    }
}

/// The maximum MTU of internal devices in the kernel: 65,535 less their Ethernet header. Ports without a device have
/// no such limit.
const TAP_MTU_MAX: u32 = 65_521;
/// MTU of internal interfaces in a bridge without others (RFC 894).
const ETHERNET_MTU: u32 = 1500;

/// Settings of internal devices from their bridge: its own has the bridge's address, and all have the minimum MTU of
/// the other devices, unless the row sets another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Derived {
    local: String,
    mac: MacAddr,
    fakes: BTreeMap<String, MacAddr>,
    mtu: u32,
}

impl Derived {
    #[cfg(test)]
    pub(super) fn fakes(&self) -> &BTreeMap<String, MacAddr> {
        &self.fakes
    }

    #[cfg(test)]
    pub(super) fn least_mtu(&self) -> u32 {
        self.mtu
    }

    fn mac(&self, config: &InterfaceConfig) -> Option<MacAddr> {
        match config.name == self.local {
            true => Some(self.mac),
            false => config.mac.or_else(|| self.fakes.get(&config.name).copied()),
        }
    }

    fn mtu(&self, config: &InterfaceConfig) -> Option<u32> {
        config.mtu_request.or(config.is_internal().then_some(self.mtu))
    }

    /// The settings of a device.
    pub(super) fn settings(&self, config: &InterfaceConfig) -> DeviceSettings {
        DeviceSettings {
            mac: self.mac(config),
            mtu: self.mtu(config),
            rxq_affinity: config.rxq_affinity.clone(),
            options: config.options.clone(),
            qos: config.qos.clone(),
            policing: config.policing,
        }
    }

    /// Whether these settings equal those last sent to a device.
    pub(super) fn is_sent(&self, sent: &DeviceSettings, config: &InterfaceConfig) -> bool {
        sent.mac == self.mac(config)
            && sent.mtu == self.mtu(config)
            && sent.rxq_affinity == config.rxq_affinity
            && sent.options == config.options
            && sent.qos == config.qos
            && sent.policing == config.policing
    }
}
