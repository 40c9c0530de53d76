//! The ports of a userspace datapath: their numbers, and opening of their devices.

use super::egress::PortEgress;
use super::policing::PortPolicer;
use super::slices::Departure;
use super::upcall_queues::PortQueues;
use crate::ablation::Ablation;
use crate::inheritance::{Inheritance, Opening};
use dpif::{DeviceOrigin, DpifError, LOCAL_PORT, PortInfo, PortOptions, PortSpec, PortStats, RxqAffinity};
use flow::DpPort;
use log::Level;
use netdev::{Dummy, OpenNote, OpenedPort, Port, SystemOptions};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// A port and its device.
pub(crate) struct OpenPort {
    pub(crate) info: PortInfo,
    pub(crate) device: Port,
    /// Its control handle, for a dummy.
    pub(crate) dummy: Option<Dummy>,
    /// Polled by the main core, not by a thread.
    pub(crate) inline: bool,
    /// Unknown to the kernel.
    pub(crate) bare: bool,
    /// Its upcall queues.
    pub(crate) upcalls: Arc<PortQueues>,
    /// Its configuration.
    pub(crate) spec: PortSpec,
    /// Tunnels that share it; 1 for others.
    pub(crate) users: usize,
    /// Receive queues that threads poll, numbered from 0.
    pub(crate) queues: u16,
    /// Pinned ones among them.
    pub(crate) affinity: RxqAffinity,
    /// Counters of ended threads and closed queues, if any.
    pub(crate) retired: Option<Box<PortStats>>,
    /// Its limits, shared by its receive queues.
    pub(crate) policer: Arc<PortPolicer>,
    /// Stage of packets that it sends, shared by all threads that send to it.
    pub(crate) egress: Arc<PortEgress>,
}

impl OpenPort {
    /// Counters of ended threads and closed queues.
    pub(crate) fn retired(&self) -> PortStats {
        self.retired.as_deref().copied().unwrap_or_default()
    }

    /// Whether its device is a link of the kernel.
    pub(crate) fn is_link(&self) -> bool {
        self.dummy.is_none() && !self.bare
    }

    /// Whether the port created its device: a tap. The tap outlives the process until [`end_devices`] removes it.
    pub(crate) fn created_device(&self) -> bool {
        self.device.exists().is_some()
    }
}

/// Removes the devices that these ports created.
pub(crate) fn end_devices<'a>(ports: impl IntoIterator<Item = &'a OpenPort>) {
    for (name, why) in netdev::end_devices(ports.into_iter().map(|port| &port.device)) {
        log::warn!(target: "dpif_netdev", "{name}: its device stays: {why}");
    }
}

/// Ports by their numbers.
#[derive(Default)]
pub(crate) struct Ports {
    open: BTreeMap<DpPort, OpenPort>,
    /// Removed ports of which threads may have flows.
    departing: BTreeMap<DpPort, Weak<()>>,
    /// Ports added and removed so far.
    pub(crate) changes: Arc<AtomicU64>,
}

impl Ports {
    /// The number of a new port: the requested one if it is free, or in a dummy datapath the one in its name, else
    /// the first free one of which no flows are left, and that no other port expects (`is_reserved`), or the first free one. Only
    /// a request gives 0.
    ///
    /// # Errors
    /// A port of that name exists, or no number is left.
    pub(crate) fn number_for(
        &mut self,
        spec: &PortSpec,
        dummy: bool,
        is_reserved: impl Fn(DpPort) -> bool,
    ) -> Result<DpPort, DpifError> {
        self.departing.retain(|_, departure| departure.strong_count() > 0);
        if self.open.values().any(|p| p.info.name == spec.name) {
            return Err(DpifError::Device(format!("port {} is already in the datapath", spec.name)));
        }
        let usable = |n: &DpPort| {
            let free = n.0 < datapath::PORT_NUMBERS && !self.open.contains_key(n);
            free && (*n != LOCAL_PORT || spec.number == Some(LOCAL_PORT))
        };
        let named = if dummy { number_in(&spec.name) } else { None };
        let all = || (1..datapath::PORT_NUMBERS).map(DpPort);
        let gone = all().filter(|n| !self.departing.contains_key(n) && !is_reserved(*n));
        let named = spec.number.into_iter().chain(named);
        named.chain(gone).chain(all()).find(usable).ok_or(DpifError::Full("the port table of the datapath"))
    }

    /// A further tunnel of a port, by its name; `None`: there is no such port.
    ///
    /// # Errors
    /// Its options differ.
    pub(crate) fn join_tunnel(&mut self, spec: &PortSpec) -> Option<Result<DpPort, DpifError>> {
        let wanted = spec.options.tunnel()?;
        let port = self.open.values_mut().find(|p| p.info.name == spec.name)?;
        if !port.spec.options.tunnel().is_some_and(|tunnel| tunnel.is_shared_with(wanted)) {
            return Some(Err(DpifError::Device(format!("{} is in use with other options", spec.name))));
        }
        port.users += 1;
        Some(Ok(port.info.number))
    }

    /// Whether other tunnels still use a port after one left.
    pub(crate) fn leave_tunnel(&mut self, port: DpPort) -> bool {
        self.get_mut(port).is_some_and(|port| {
            port.users -= 1;
            port.users > 0
        })
    }

    pub(crate) fn get(&self, port: DpPort) -> Option<&OpenPort> {
        self.open.get(&port)
    }

    pub(crate) fn get_mut(&mut self, port: DpPort) -> Option<&mut OpenPort> {
        self.open.get_mut(&port)
    }

    /// In the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenPort> {
        self.open.values()
    }

    pub(crate) fn insert(&mut self, port: OpenPort) {
        self.changes.fetch_add(1, Ordering::Release);
        self.open.insert(port.info.number, port);
    }

    /// Notes that a port is being removed: while a clone of the departure exists, new ports prefer other numbers.
    pub(crate) fn depart(&mut self, port: DpPort) -> Departure {
        let departure = Departure::default();
        self.departing.insert(port, Arc::downgrade(&departure));
        departure
    }

    pub(crate) fn remove(&mut self, port: DpPort) -> Option<OpenPort> {
        self.changes.fetch_add(1, Ordering::Release);
        self.open.remove(&port)
    }

    /// Takes all of them out.
    pub(crate) fn take(&mut self) -> Vec<OpenPort> {
        std::mem::take(&mut self.open).into_values().collect()
    }

    /// Their number.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// All of them, by number.
    pub(crate) fn infos(&self) -> Vec<PortInfo> {
        self.open.values().map(|p| p.info.clone()).collect()
    }
}

/// Opens the device of a port, and logs its notes.
pub(crate) fn open(
    spec: &PortSpec,
    ablation: &Ablation,
    inheritance: &Inheritance,
) -> Result<OpenedPort, DpifError> {
    let system = ablation.system(SystemOptions::default());
    let options = &spec.options;
    let has_device = options.device_origin() != DeviceOrigin::None;
    let opened = match inheritance.opening(&spec.name, options.userspace_type_name(), has_device) {
        Opening::Usual => {
            open_left(spec, &system, inheritance).map_or_else(|| netdev::open(spec, &system), Ok)
        }
        Opening::By(queues) => netdev::adopt(spec, &system, queues)
            .inspect_err(|e| inheritance.failed(format!("port {}: {e}", spec.name))),
        Opening::Later => {
            let later = "its device is opened once the process before this one has ended";
            return Err(DpifError::Device(format!("{}: {later}", spec.name)));
        }
    };
    let opened = opened.map_err(|e| DpifError::Device(e.to_string()))?;
    for OpenNote { module, text, is_warning } in &opened.notes {
        let level = if *is_warning { Level::Warn } else { Level::Info };
        log::log!(target: module, level, "{text}");
    }
    Ok(opened)
}

/// Opens a port by the queues that an ended process left; `None`: it left none, or they are of no use.
fn open_left(spec: &PortSpec, system: &SystemOptions, inheritance: &Inheritance) -> Option<OpenedPort> {
    let PortOptions::System(port) = &spec.options else { return None };
    let queues = inheritance.left_queues(&spec.name, port.n_rxq as usize)?;
    netdev::adopt(spec, system, queues)
        .inspect_err(
            |e| log::info!(target: "netdev_linux", "port {}: frames that waited are lost: {e}", spec.name),
        )
        .ok()
}

/// The number in a port's name, for a dummy datapath: the first number in the name, plus 100 for a name that begins
/// with `br`.
fn number_in(name: &str) -> Option<DpPort> {
    let start = name.find(|c: char| c.is_ascii_digit())?;
    let digits = &name[start..];
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let base = if name.starts_with("br") { 100 } else { 0 };
    digits[..end].parse::<u32>().ok()?.checked_add(base).map(DpPort)
}

#[cfg(test)]
mod tests;
