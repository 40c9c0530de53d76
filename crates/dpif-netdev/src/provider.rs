//! [`Provider`] and [`PmdThreads`] of the userspace datapath.

use super::perf;
use super::{UPCALLS_AT_ONCE, UserspaceDatapath};
use dpif::{
    DpifError, Numa, OpBatch, PerfLog, PerfQuery, PmdStats, PmdThreads, PortOptions, PortSpec, PortStats,
    Provider, QueueInfo, RxqAffinity, ThreadInfo, ThreadPlan, UpcallReceiver,
};
use flow::DpPort;
use std::io;
use sync::lock;

impl Provider for UserspaceDatapath {
    fn upcalls_at_once(&self) -> usize {
        UPCALLS_AT_ONCE
    }

    fn operate_ahead(&self, batch: OpBatch) {
        self.send(batch, true);
    }

    fn set_handlers(&self, handlers: usize) -> io::Result<Vec<Box<dyn UpcallReceiver>>> {
        let ends = self.upcall_queues.set_handlers(handlers).into_iter();
        Ok(ends.map(|end| Box::new(end) as Box<dyn UpcallReceiver>).collect())
    }

    fn wake_handlers(&self) {
        self.upcall_queues.wake();
    }

    fn own_device_exists(&self, port: DpPort) -> Option<bool> {
        lock(&self.state).ports.get(port)?.device.exists()
    }

    fn has_netdev(&self, port: DpPort) -> bool {
        lock(&self.state).ports.get(port).is_none_or(|p| !p.bare)
    }

    fn ended_with_port(&self) -> u64 {
        self.upcall_queues.ended_with_port()
    }

    fn upcalls_waiting(&self, port: DpPort) -> u64 {
        lock(&self.state).ports.get(port).map_or(0, |p| p.upcalls.waiting())
    }

    fn removed_ports(&self) -> PortStats {
        lock(&self.state).removed
    }

    fn port_totals(&self) -> PortStats {
        let s = lock(&self.state);
        let mut sum = s.removed;
        self.gather_all(&s).values().for_each(|stats| sum.add(stats));
        sum
    }

    fn ended_threads(&self) -> PmdStats {
        lock(&self.state).ended
    }

    fn prepare(&self, specs: Vec<PortSpec>) {
        self.open_together(specs);
    }

    fn close_devices(&self) {
        self.close_together();
    }

    fn run_main(&self) -> bool {
        self.main.run()
    }

    fn tick(&self) {
        self.main.tick();
        self.balance();
    }

    fn pmd_threads(&self) -> Option<&dyn PmdThreads> {
        Some(self)
    }
}

impl PmdThreads for UserspaceDatapath {
    fn configure(&self, plan: &ThreadPlan) -> Result<(), DpifError> {
        UserspaceDatapath::configure(self, plan)
    }

    fn threads(&self, intervals: usize) -> Vec<ThreadInfo> {
        self.thread_infos(intervals)
    }

    fn main_queues(&self) -> Option<Vec<QueueInfo>> {
        UserspaceDatapath::main_queues(self)
    }

    fn numa(&self, core: u16) -> Numa {
        self.factory.numa(core)
    }

    fn sleep_max_default_us(&self) -> u64 {
        lock(&self.state).plan.sleep.default_us
    }

    fn rebalance(&self) {
        UserspaceDatapath::rebalance(self);
    }

    fn port_rx_update(
        &self,
        port: DpPort,
        options: &PortOptions,
        affinity: &RxqAffinity,
    ) -> Result<(), DpifError> {
        UserspaceDatapath::port_rx_update(self, port, options, affinity)
    }

    fn perf_text(&self, query: &PerfQuery) -> String {
        let lengths = [query.iterations, query.milliseconds].map(|n| n.min(PerfLog::HISTORY_LEN));
        let threads = self.perf(query.core, lengths).into_iter();
        let text = threads.map(|t| {
            let head = format!("pmd thread numa_id {} core_id {}:\n", t.numa.0, t.core);
            perf::show(&t.perf, &query.time, &head, query.histograms)
        });
        text.collect()
    }

    fn set_perf_log(&self, log: PerfLog) {
        UserspaceDatapath::set_perf_log(self, log);
    }

    fn clear_stats(&self, core: Option<u16>) {
        UserspaceDatapath::clear_stats(self, core);
    }
}
