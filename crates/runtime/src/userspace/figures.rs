//! Figures of threads and ports, for people.

use super::UserspaceDatapath;
use super::inbox::Control;
use super::perf::{PerfLog, PerfShown};
use super::plan::Numa;
use super::replan::State;
use dpif::{DpifOp, OpBatch, PmdId, PortStats};
use flow::DpPort;
use sync::lock;

/// What the iterations of a thread cost.
pub(crate) struct ThreadPerf {
    pub(crate) core: u16,
    pub(crate) numa: Numa,
    pub(crate) perf: PerfShown,
}

impl UserspaceDatapath {
    /// What all threads and the main core counted of a port.
    pub(super) fn gather(&self, s: &State, port: DpPort) -> Option<PortStats> {
        let mut sum = s.ports.get(port)?.retired;
        sum.add(&self.main.port_stats(port));
        let threads = s.running.values().map(|r| &r.thread);
        self.ask(threads, |reply| Control::PortStats(port, reply)).iter().for_each(|stats| sum.add(stats));
        Some(sum)
    }

    /// What the iterations of the threads cost, of one core or of all, with the last so many iterations and milliseconds.
    pub(crate) fn perf(&self, core: Option<u16>, lengths: [usize; 2]) -> Vec<ThreadPerf> {
        let s = lock(&self.state);
        let wanted = s.running.iter().filter(|(n, _)| core.is_none_or(|core| core == **n));
        let asked = wanted.map(|(n, running)| {
            let perf =
                self.ask(std::iter::once(&running.thread), |reply| Control::Perf(lengths, reply)).pop();
            perf.map(|perf| ThreadPerf { core: *n, numa: running.numa, perf })
        });
        asked.flatten().collect()
    }

    /// Which iterations all threads tell in the log.
    pub(crate) fn set_perf_log(&self, log: PerfLog) {
        let s = &mut *lock(&self.state);
        s.perf_log = log;
        self.run_as(s, None);
    }

    /// Counters anew, of the thread of one core or of all and of those that ended.
    pub(crate) fn clear_stats(&self, core: Option<u16>) {
        let s = &mut *lock(&self.state);
        let wanted = s.running.iter().filter(|(n, _)| core.is_none_or(|core| core == **n));
        self.ask(wanted.map(|(_, running)| &running.thread), Control::Clear);
        if core.is_none() {
            s.ended = s.ended.cleared();
            let ops = vec![DpifOp::ClearStats];
            self.main.operate(OpBatch { pmd: PmdId::Main, ops, tag: 0, reply: None });
        }
    }
}
