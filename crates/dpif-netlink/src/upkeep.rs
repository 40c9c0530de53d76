//! The datapath and its ports as they are to be, though others may change them: `ovs-dpctl del-dp`, `ovs-dpctl del-if`.
//!
//! - A datapath that is gone is made anew with its ports.
//! - Which sockets upcalls go to is a setting of the datapath, which stock `ovs-dpctl` turns to its own whenever it looks at it;
//!   what it turned is turned back.
//! - A port that went alone, and whose interface is there, is added again under its number, so that flows stay right.
//! - So is a port of tunnels, whose device comes with it.
//! - A port whose interface went is left to whoever follows links; an internal one is opened anew by the control plane, since its
//!   device is a new one then.
//!
//! Called about once a second by the main thread ([`dpif::Provider::tick`](dpif::Provider::tick)).

use super::{KernelDatapath, Mode, probe, short_name};
use dpif::DpifError;
use flow::DpPort;
use netlink::Ovs;
use netlink::ovs::{DpName, DpNew, DpSet, VportEvent, VportKind, VportMonitor, VportNew, features};
use std::collections::BTreeSet;
use sync::{Ordering, lock};

/// Listens for ports that go. Without it they do not come back by themselves, which is no reason to serve nothing.
pub(super) fn listen(ovs: &Ovs) -> Option<VportMonitor> {
    ovs.vport_monitor()
        .map_err(|e| log::warn!(target: "dpif_netlink", "ports that others remove go unnoticed: {e}"))
        .ok()
}

impl KernelDatapath {
    /// Makes the datapath anew when somebody removed it, with its ports as far as their interfaces are there.
    pub(super) fn look_after(&self) -> Result<(), DpifError> {
        match self.info() {
            Ok(info) => return self.keep_dispatch(info.user_features),
            Err(e) if e.is_no_device() => {}
            Err(e) => return Err(DpifError::Device(e.to_string())),
        }
        log::error!(target: "dpif_netlink", "{}: somebody removed the datapath; it is made anew with its ports", self.name);
        let new = DpNew {
            name: short_name(&self.name).to_string(),
            user_features: features::UNALIGNED,
            ..DpNew::default()
        };
        let info = self.ovs.dp_new(&new).map_err(|e| DpifError::Device(e.to_string()))?;
        self.ifindex.store(info.dp_ifindex.into(), Ordering::Relaxed);
        self.point_cpus_here()?;
        let ports = lock(&self.ports);
        for (number, port) in ports.iter().filter(|(number, _)| **number != DpPort(0)) {
            let new = VportNew {
                name: port.info.name.clone(),
                kind: port.kind,
                number: Some(*number),
                upcall_pids: self.dispatch.pid_of(*number).into_iter().collect(),
                tunnel: port.tunnel,
            };
            if let Err(e) = self.ovs.vport_new(info.dp_ifindex, &new) {
                log::warn!(target: "dpif_netlink", "{}: port {} cannot be added again: {e}", self.name, port.info.name);
            }
        }
        Ok(())
    }

    /// Has upcalls come as they are to, if somebody set the datapath otherwise.
    fn keep_dispatch(&self, now: u32) -> Result<(), DpifError> {
        let by_cpu = now & features::DISPATCH_UPCALL_PER_CPU != 0;
        if by_cpu == (self.mode() == Mode::PerCpu) {
            return Ok(());
        }
        log::warn!(
            target: "dpif_netlink",
            "{}: somebody set another dispatch of upcalls (ovs-dpctl does); it is {} again",
            self.name,
            self.mode().name()
        );
        if by_cpu {
            let change = DpSet { user_features: Some(features::UNALIGNED), ..DpSet::default() };
            let set = self.ovs.dp_set(DpName::Ifindex(self.dp_ifindex()), &change);
            return set.map(drop).map_err(|e| DpifError::Device(e.to_string()));
        }
        self.point_cpus_here()
    }

    /// Tells a new datapath of the sockets of processors.
    fn point_cpus_here(&self) -> Result<(), DpifError> {
        if self.mode() != Mode::PerCpu {
            return Ok(());
        }
        let cpus = probe::Cpus::of_machine().map_err(|e| DpifError::Device(e.to_string()))?;
        self.set_cpu_pids(cpus.pids(&self.dispatch.cpu_pids()))
    }

    /// Adds ports again that somebody removed.
    pub(super) fn look_after_ports(&self) {
        for number in self.ports_said_gone() {
            self.restore(number);
        }
    }

    /// Ports of ours of which was said, since the last call, that they went.
    fn ports_said_gone(&self) -> BTreeSet<DpPort> {
        let mut monitor = lock(&self.gone);
        let Some(events) = monitor.as_mut().map(VportMonitor::poll) else { return BTreeSet::new() };
        let mut gone = BTreeSet::new();
        for event in events.unwrap_or_else(|_| vec![VportEvent::Lost]) {
            match event {
                VportEvent::Deleted(info) if info.dp_ifindex == self.dp_ifindex() => {
                    gone.insert(info.number);
                }
                VportEvent::Lost => gone.extend(lock(&self.ports).keys()),
                VportEvent::Deleted(_) | VportEvent::Changed(_) => {}
            }
        }
        gone
    }

    /// Adds one port again, if it is to be there and is not.
    fn restore(&self, number: DpPort) {
        // Whoever closes a port takes it from here first: with the lock held, it is wanted.
        let ports = lock(&self.ports);
        let Some(port) = ports.get(&number).filter(|p| p.kind != VportKind::Internal) else { return };
        if self.info().is_err() {
            // All of it went.
            return;
        }
        if !self.ovs.vport_get(self.dp_ifindex(), number).is_err_and(|e| e.is_no_device()) {
            return;
        }
        let name = &port.info.name;
        let new = VportNew {
            name: name.clone(),
            kind: port.kind,
            number: Some(number),
            upcall_pids: self.dispatch.pid_of(number).into_iter().collect(),
            tunnel: port.tunnel,
        };
        match self.ovs.vport_new(self.dp_ifindex(), &new) {
            Ok(_) => {
                log::warn!(target: "dpif_netlink", "{}: somebody removed port {name}; it is added again", self.name);
            }
            // It went with its interface.
            Err(e) if e.is_no_device() => {}
            Err(e) => {
                log::warn!(target: "dpif_netlink", "{}: somebody removed port {name}, and it cannot be added again: {e}", self.name);
            }
        }
    }
}
