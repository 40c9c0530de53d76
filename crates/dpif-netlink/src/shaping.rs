//! [`Shaping`] of the kernel's datapath: the kernel does it all, for the device of the port.

use super::KernelDatapath;
use dpif::Shaping;
use dpif::qos::{LinkFacts, Policing, Qos, QueueStats, ShownQos, kernel_types};
use flow::DpPort;
use netdev::{link, tc};
use std::sync::Arc;
use sync::lock;

impl KernelDatapath {
    /// The index of a port's device; tunnels have none of their own.
    fn device_of(&self, port: DpPort) -> Option<u32> {
        let name = {
            let ports = lock(&self.ports);
            let port = ports.get(&port).filter(|port| port.tunnel.is_none())?;
            port.info.name.clone()
        };
        Some(link::link_info(&name).ok()?.ifindex)
    }

    pub(crate) fn forget_device(&self, name: Option<String>) {
        if let Some(info) = name.and_then(|name| link::link_info(&name).ok()) {
            self.disciplines.forget(info.ifindex);
        }
    }

    pub(crate) fn port_queues(&self, port: DpPort) -> Vec<QueueStats> {
        self.device_of(port).map(|ifindex| self.disciplines.queues(ifindex)).unwrap_or_default()
    }
}

impl Shaping for KernelDatapath {
    fn set_qos(&self, port: DpPort, qos: Option<&Arc<Qos>>, link: LinkFacts) -> Result<(), String> {
        match (self.device_of(port), qos) {
            (Some(ifindex), _) => self.disciplines.set(ifindex, qos, link).map_err(|e| e.text),
            (None, None) => Ok(()),
            (None, Some(qos)) => Err(format!("{}: the port has no device", qos.discipline.name())),
        }
    }

    fn set_policing(&self, port: DpPort, limits: Policing) -> Result<(), String> {
        match self.device_of(port) {
            Some(ifindex) => tc::police(ifindex, limits),
            None if limits.is_none() => Ok(()),
            None => Err("the port has no device".to_string()),
        }
    }

    fn shown_qos(&self, port: DpPort) -> ShownQos {
        self.device_of(port).map(|ifindex| self.disciplines.shown(ifindex)).unwrap_or_default()
    }

    fn qos_types(&self, port: DpPort) -> &'static [&'static str] {
        if self.device_of(port).is_some() { kernel_types() } else { &[] }
    }
}
