//! [`Provider`] of the userspace datapath.

use super::{UPCALLS_AT_ONCE, UserspaceDatapath, ports};
use dpif::{
    BondBalancer, EgressPorts, FlowOffloads, OpBatch, PmdStats, PmdThreads, PortSpec, PortStats, Provider,
    Shaping, UpcallReceiver, UserspaceTunnels,
};
use flow::DpPort;
use std::io;
use sync::lock;

impl Provider for UserspaceDatapath {
    fn upcalls_at_once(&self) -> usize {
        UPCALLS_AT_ONCE
    }

    fn operate_ahead(&self, batch: OpBatch) {
        probes::log_operations(&self.name, &batch.ops);
        self.pool.cores.send(batch, true);
    }

    fn set_handlers(&self, handlers: usize) -> io::Result<Vec<Box<dyn UpcallReceiver>>> {
        let ends = self.upcall_queues.set_handlers(handlers).into_iter();
        Ok(ends.map(|end| Box::new(end) as Box<dyn UpcallReceiver>).collect())
    }

    fn set_vlan_limit(&self, tags: u8) -> u8 {
        self.pool.factory.shared.set_vlan_limit(tags);
        tags
    }

    fn wake_handlers(&self) {
        self.upcall_queues.wake();
    }

    fn own_device_exists(&self, port: DpPort) -> Option<bool> {
        lock(&self.pool.state).ports.get(port)?.device.exists()
    }

    fn own_device_index(&self, port: DpPort) -> Option<u32> {
        let s = lock(&self.pool.state);
        let device = &s.ports.get(port)?.device;
        let before = device.ifindex();
        let now = device.renew_ifindex();
        if now.is_some_and(|now| now != before) {
            // The kernel ended its queues as it was moved.
            self.disciplines.forget(before);
        }
        now
    }

    fn shown_settings(&self, port: DpPort) -> Vec<(&'static str, String)> {
        lock(&self.pool.state).ports.get(port).map(|p| p.spec.options.shown()).unwrap_or_default()
    }

    fn op_counts(&self) -> Vec<(&'static str, u64)> {
        self.pool.factory.shared.ops.all()
    }

    fn shaping(&self) -> Option<&dyn Shaping> {
        Some(self)
    }

    fn has_netdev(&self, port: DpPort) -> bool {
        lock(&self.pool.state).ports.get(port).is_none_or(|p| !p.bare)
    }

    fn ended_with_port(&self) -> u64 {
        self.upcall_queues.ended_with_port()
    }

    fn upcalls_waiting(&self, port: DpPort) -> u64 {
        lock(&self.pool.state).ports.get(port).map_or(0, |p| p.upcalls.waiting())
    }

    fn removed_ports(&self) -> PortStats {
        lock(&self.pool.state).removed
    }

    fn port_totals(&self) -> PortStats {
        let s = lock(&self.pool.state);
        let mut sum = s.removed;
        self.pool.all_port_stats(&s).iter().for_each(|(_, stats)| sum.add(stats));
        sum
    }

    fn ended_threads(&self) -> PmdStats {
        lock(&self.pool.state).ended
    }

    fn prepare(&self, specs: Vec<PortSpec>) {
        specs.iter().for_each(|spec| self.pool.bulk.release(&spec.name));
        self.pool.bulk.open_together(specs, |spec| self.pool.open(spec));
    }

    fn close_devices(&self) {
        self.pool.bulk.close_together();
    }

    fn run_main(&self) -> bool {
        self.pool.cores.main.run()
    }

    fn tick(&self) {
        self.pool.cores.main.tick();
        self.pool.factory.shared.set_wall_clock(sys::clock::wall_us(), sys::clock::monotonic_us());
        self.pool.balance();
        self.share_connections(&lock(&self.pool.state));
        if let Err(e) = self.sweeper.tick(&self.pool.factory.shared) {
            log::error!("{}: cannot start the thread ct_clean, so expired connections stay: {e}", self.name);
        }
    }

    fn tunnels(&self) -> Option<&dyn UserspaceTunnels> {
        Some(self)
    }

    fn bond_balancer(&self) -> Option<&dyn BondBalancer> {
        Some(self.pool.factory.shared.bond_balancer())
    }

    fn offload(&self) -> Option<&dyn FlowOffloads> {
        Some(&self.pool)
    }

    fn pmd_threads(&self) -> Option<&dyn PmdThreads> {
        Some(&self.pool)
    }

    fn remove(&self) {
        let state = lock(&self.pool.state);
        ports::end_devices(state.ports.iter());
        for open in state.ports.iter() {
            if let Some(dummy) = &open.dummy {
                self.dummy_ports.remove(&open.info.name, dummy);
            }
        }
    }
}

impl UserspaceTunnels for UserspaceDatapath {
    fn set_egress_ports(&self, ports: EgressPorts) {
        self.pool.factory.shared.set_egress_ports(ports);
    }
}
