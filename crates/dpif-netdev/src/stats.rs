//! Figures of threads and ports, for people.

use super::UserspaceDatapath;
use super::inbox::Control;
use super::perf::PerfShown;
use super::ports::OpenPort;
use super::replan::State;
use dpif::Numa;
use dpif::PerfLog;
use dpif::{DeviceStats, DpifOp, OpBatch, PmdId, PortOptions, PortStats};
use flow::DpPort;
use netdev::link::LinkStats;
use std::collections::BTreeMap;
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

    /// What all threads and the main core counted of all ports, by one question to each thread.
    pub(super) fn gather_all(&self, s: &State) -> BTreeMap<DpPort, PortStats> {
        let mut all: BTreeMap<_, _> = s.ports.iter().map(|p| (p.info.number, p.retired)).collect();
        let threads = s.running.values().map(|r| &r.thread);
        let counted = self.ask(threads, Control::AllPortStats).into_iter().flatten();
        for (port, stats) in counted.chain(self.main.all_port_stats()) {
            // A thread knows the ports that are there.
            all.entry(port).and_modify(|sum| sum.add(&stats));
        }
        all
    }

    /// Fills in what the devices counted, and what is not kept.
    pub(super) fn add_devices<'s>(&self, all: impl Iterator<Item = (&'s OpenPort, &'s mut PortStats)>) {
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for (open, stats) in all {
            if open.dummy.is_some() {
                // As stock switches have it.
                let unknown = u64::MAX;
                (stats.rx_dropped, stats.rx_errors) = (unknown, unknown);
                (stats.tx_dropped, stats.tx_errors) = (unknown, unknown);
            }
            if !open.bare {
                names.push(open.info.name.as_str());
                places.push((open, stats));
            }
        }
        for ((open, stats), link) in places.into_iter().zip(self.links.get(&names)) {
            let is_tap = matches!(open.spec.options, PortOptions::Internal | PortOptions::Tap);
            stats.device = link.map(|link| device_stats(&link, is_tap));
        }
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

/// Counters of a link, seen from the switch: a tap receives what the switch sends.
fn device_stats(link: &LinkStats, is_tap: bool) -> DeviceStats {
    let (rx, tx) = ([link.rx_dropped, link.rx_errors], [link.tx_dropped, link.tx_errors]);
    // What a tap did not take of the switch, the port counts itself.
    let (rx, tx) = if is_tap { (tx, [0, 0]) } else { (rx, tx) };
    DeviceStats {
        rx_multicast: link.multicast,
        rx_dropped: rx[0],
        rx_errors: rx[1],
        rx_missed: link.rx_missed_errors,
        rx_frame: link.rx_frame_errors,
        rx_over: link.rx_over_errors,
        rx_crc: link.rx_crc_errors,
        tx_dropped: tx[0],
        tx_errors: tx[1],
        tx_aborted: link.tx_aborted_errors,
        tx_carrier: link.tx_carrier_errors,
        collisions: link.collisions,
    }
}
