//! [`Shaping`] of the userspace datapath: disciplines are those of the kernel's devices, and policing is its own.

use super::UserspaceDatapath;
use dpif::Shaping;
use dpif::qos::{LinkFacts, Policing, Qos, QueueStats, ShownQos, TYPES};
use flow::DpPort;
use std::sync::Arc;
use sync::lock;

/// Server of the queues of a port.
enum Server {
    /// The kernel, for the device of that index.
    Kernel(u32),
    /// A device within the switch, with one queue that is not counted.
    Dummy,
    /// Nothing.
    Nobody,
}

impl UserspaceDatapath {
    fn server(&self, port: DpPort) -> Server {
        let s = lock(&self.pool.state);
        match s.ports.get(port) {
            Some(open) if open.dummy.is_some() => Server::Dummy,
            Some(open) if !open.bare && open.device.ifindex() != 0 => Server::Kernel(open.device.ifindex()),
            _ => Server::Nobody,
        }
    }

    pub(crate) fn port_queues(&self, port: DpPort) -> Vec<QueueStats> {
        match self.server(port) {
            Server::Kernel(ifindex) => self.disciplines.queues(ifindex),
            Server::Dummy => vec![QueueStats::UNKNOWN],
            Server::Nobody => Vec::new(),
        }
    }
}

impl Shaping for UserspaceDatapath {
    fn set_qos(&self, port: DpPort, qos: Option<&Arc<Qos>>, link: LinkFacts) -> Result<(), String> {
        match (self.server(port), qos) {
            (Server::Kernel(ifindex), _) => self.disciplines.set(ifindex, qos, link),
            (_, None) => Ok(()),
            (_, Some(qos)) => Err(format!(
                "{}: a port without a device of the kernel has no discipline",
                qos.discipline.name()
            )),
        }
    }

    fn set_policing(&self, port: DpPort, limits: Policing) -> Result<(), String> {
        if let Some(open) = lock(&self.pool.state).ports.get(port) {
            open.policer.set(limits, sys::clock::monotonic_us());
        }
        Ok(())
    }

    fn shown_qos(&self, port: DpPort) -> ShownQos {
        match self.server(port) {
            Server::Kernel(ifindex) => self.disciplines.shown(ifindex),
            Server::Dummy | Server::Nobody => ShownQos::default(),
        }
    }

    fn qos_types(&self, port: DpPort) -> &'static [&'static str] {
        match self.server(port) {
            Server::Kernel(_) => &TYPES,
            Server::Dummy | Server::Nobody => &[],
        }
    }
}
