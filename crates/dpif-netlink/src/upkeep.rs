//! Restores the datapath and its ports after changes by other programs: `ovs-dpctl del-dp`, `ovs-dpctl
//! del-if`.
//!
//! - Recreates a removed datapath with its ports.
//! - Restores the dispatch mode, a setting of the datapath which stock `ovs-dpctl` overwrites whenever it
//!   opens it.
//! - Restores a removed port whose interface exists, under its number, so that flows stay valid.
//! - Restores a tunnel port together with its device.
//! - Leaves a port whose interface is gone to the owner of link events; the control plane reopens an internal
//!   one, since its device is new then.
//!
//! Called about once a second by the main thread ([`dpif::Provider::tick`](dpif::Provider::tick)).

use super::{KernelDatapath, Mode, probe, short_name};
use dpif::DpifError;
use flow::DpPort;
use netlink::Ovs;
use netlink::ovs::{DpName, DpNew, DpSet, VportEvent, VportKind, VportMonitor, VportNew, features};
use std::collections::BTreeSet;
use sync::{Ordering, lock};

/// Listens for removed ports. Without it they are not restored, but the datapath still works.
pub(super) fn listen(ovs: &Ovs) -> Option<VportMonitor> {
    ovs.vport_monitor()
        .map_err(
            |e| log::warn!(target: "dpif_netlink", "cannot watch ports that other processes delete: {e}"),
        )
        .ok()
}

impl KernelDatapath {
    /// Recreates a removed datapath, with those ports whose interfaces exist.
    pub(super) fn restore_datapath(&self) -> Result<(), DpifError> {
        match self.info() {
            Ok(info) => return self.restore_dispatch(info.user_features),
            Err(e) if e.is_no_device() => {}
            Err(e) => return Err(DpifError::Device(e.to_string())),
        }
        log::error!(target: "dpif_netlink", "{}: another process deleted the datapath; recreating it with its ports", self.name);
        let new = DpNew {
            name: short_name(&self.name).to_string(),
            user_features: features::UNALIGNED,
            ..DpNew::default()
        };
        let info = self.ovs.dp_new(&new).map_err(|e| DpifError::Device(e.to_string()))?;
        self.ifindex.store(info.dp_ifindex.into(), Ordering::Relaxed);
        self.set_cpu_sockets()?;
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

    /// Restores the dispatch mode, if another program changed it.
    fn restore_dispatch(&self, now: u32) -> Result<(), DpifError> {
        let by_cpu = now & features::DISPATCH_UPCALL_PER_CPU != 0;
        if by_cpu == (self.mode() == Mode::PerCpu) {
            return Ok(());
        }
        log::warn!(
            target: "dpif_netlink",
            "{}: another process changed the dispatch of upcalls (as ovs-dpctl does); restored {}",
            self.name,
            self.mode().name()
        );
        if by_cpu {
            let change = DpSet { user_features: Some(features::UNALIGNED), ..DpSet::default() };
            let set = self.ovs.dp_set(DpName::Ifindex(self.dp_ifindex()), &change);
            return set.map(drop).map_err(|e| DpifError::Device(e.to_string()));
        }
        self.set_cpu_sockets()
    }

    /// Reports the processors' sockets to a new datapath.
    fn set_cpu_sockets(&self) -> Result<(), DpifError> {
        if self.mode() != Mode::PerCpu {
            return Ok(());
        }
        let cpus = probe::Cpus::of_machine().map_err(|e| DpifError::Device(e.to_string()))?;
        self.set_cpu_pids(cpus.pids(&self.dispatch.cpu_pids()))
    }

    /// Restores removed ports.
    pub(super) fn restore_ports(&self) {
        for number in self.reported_removed() {
            self.restore_port(number);
        }
    }

    /// Our ports reported removed since the last call.
    fn reported_removed(&self) -> BTreeSet<DpPort> {
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

    /// Restores one port, if it is wanted and missing.
    fn restore_port(&self, number: DpPort) {
        // Closing a port removes it from here first: while locked, it is wanted.
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
                log::warn!(target: "dpif_netlink", "{}: another process deleted port {name}; added it again", self.name);
            }
            // It went with its interface.
            Err(e) if e.is_no_device() => {}
            Err(e) => {
                log::warn!(target: "dpif_netlink", "{}: another process deleted port {name}, cannot add it again: {e}", self.name);
            }
        }
    }
}
