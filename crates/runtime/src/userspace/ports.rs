//! The ports of a userspace datapath: their numbers, and how each type is opened.

use dpif::{DpifError, PortInfo, PortKind, PortSpec};
use flow::DpPort;
use netdev::{Port, SystemOptions, TapOptions};
use std::collections::BTreeMap;
use std::io;

/// Number of the port that stands for the datapath itself, as stock switches have it.
const LOCAL_PORT: DpPort = DpPort(0);

/// A port and its device.
pub(crate) struct OpenPort {
    pub(crate) info: PortInfo,
    pub(crate) device: Port,
}

/// Ports by their numbers.
#[derive(Default)]
pub(crate) struct Ports(BTreeMap<DpPort, OpenPort>);

impl Ports {
    /// The number that a new port gets: the one wanted if it is free, else the first free one.
    ///
    /// # Errors
    /// A port of that name is there, or there is no number left.
    pub(crate) fn number_for(&self, spec: &PortSpec) -> Result<DpPort, DpifError> {
        if self.0.values().any(|p| p.info.name == spec.name) {
            return Err(DpifError::Device(format!("port {} is already in the datapath", spec.name)));
        }
        let usable = |n: &DpPort| *n != LOCAL_PORT && n.0 < datapath::PORT_NUMBERS && !self.0.contains_key(n);
        let mut wanted_then_others = spec.number.into_iter().chain((1..datapath::PORT_NUMBERS).map(DpPort));
        wanted_then_others.find(usable).ok_or(DpifError::Full("the port table of the datapath"))
    }

    pub(crate) fn get(&self, port: DpPort) -> Option<&OpenPort> {
        self.0.get(&port)
    }

    pub(crate) fn insert(&mut self, port: OpenPort) {
        self.0.insert(port.info.number, port);
    }

    pub(crate) fn remove(&mut self, port: DpPort) {
        self.0.remove(&port);
    }

    /// All of them, in order of their numbers.
    pub(crate) fn infos(&self) -> Vec<PortInfo> {
        self.0.values().map(|p| p.info.clone()).collect()
    }
}

/// Opens the device of a port; also its type as it is shown.
pub(crate) fn open(spec: &PortSpec) -> Result<(Port, &'static str), DpifError> {
    let device = |e: io::Error| DpifError::Device(e.to_string());
    match &spec.kind {
        PortKind::System => {
            let port = Port::open_system(&spec.name, &SystemOptions::default()).map_err(device)?;
            // What is to be forwarded through a device needs it up.
            netdev::link::set_admin_up(port.ifindex(), true).map_err(device)?;
            Ok((port, "system"))
        }
        PortKind::Internal | PortKind::Tap => {
            let options = TapOptions { mac: spec.mac.map(|m| m.0), mtu: spec.mtu, ..TapOptions::default() };
            let port = Port::open_tap(&spec.name, &options).map_err(device)?;
            Ok((port, if spec.kind == PortKind::Tap { "tap" } else { "internal" }))
        }
        PortKind::Other(name) => {
            Err(DpifError::Unsupported(format!("ports of type {name} are not supported")))
        }
    }
}
