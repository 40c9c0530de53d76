//! Metrics of forwarding threads.

use super::Kind::{Counter, Gauge};
use super::{Metric, Sink, number, row};
use crate::metrics::snapshot::{Snapshot, ThreadFacts};

const THREAD: &[&str] = &["numa", "cpu"];
const QUEUE: &[&str] = &["numa", "cpu", "interface", "rxq"];

#[rustfmt::skip]
pub(super) const ROWS: &[Metric] = &[
    row("ovs_pmd_total_iterations", Counter, THREAD, "Iterations.", |s, out| threads(s, out, |t| t.iterations.all)),
    row("ovs_pmd_idle_iterations", Counter, THREAD, "Iterations without packets.", |s, out| {
        threads(s, out, |t| t.iterations.all.saturating_sub(t.iterations.busy));
    }),
    row("ovs_pmd_busy_iterations", Counter, THREAD, "Iterations with packets.", |s, out| threads(s, out, |t| t.iterations.busy)),
    row("ovs_pmd_sleep_iterations", Counter, THREAD, "Sleeps.", |s, out| threads(s, out, |t| t.iterations.sleeps)),
    row("ovs_pmd_sleep_microseconds", Counter, THREAD, "Time slept, in microseconds.", |s, out| {
        threads(s, out, |t| t.iterations.slept_us);
    }),
    row("ovs_pmd_rx_packets", Counter, THREAD, "Packets received.", |s, out| threads(s, out, |t| t.stats.received)),
    row("ovs_pmd_datapath_passes", Counter, THREAD, "Packets processed: received, and recirculated.", |s, out| {
        threads(s, out, |t| t.stats.received + t.stats.recirculated);
    }),
    row("ovs_pmd_phwol_hits", Counter, THREAD, "Packets that a device's mark assigned to a flow.", |s, out| {
        threads(s, out, |t| t.stats.mark_hits);
    }),
    row("ovs_pmd_mfex_opt_hits", Counter, THREAD, "0: there is no such stage.", |s, out| threads(s, out, |_| 0)),
    row("ovs_pmd_simple_match_hits", Counter, THREAD, "0: there is no such stage.", |s, out| threads(s, out, |_| 0)),
    row("ovs_pmd_emc_hits", Counter, THREAD, "0: there is no such cache.", |s, out| threads(s, out, |_| 0)),
    row("ovs_pmd_smc_hits", Counter, THREAD, "Packets found in the flow cache.", |s, out| threads(s, out, |t| t.stats.cache_hits)),
    row("ovs_pmd_megaflow_hits", Counter, THREAD, "Packets found in the table of megaflows.", |s, out| {
        threads(s, out, |t| t.stats.megaflow_hits);
    }),
    row("ovs_pmd_total_upcalls", Counter, THREAD, "Packets passed to the slow path.", |s, out| threads(s, out, |t| t.stats.upcalls)),
    row("ovs_pmd_lost_upcalls", Counter, THREAD, "Packets for the slow path that were dropped.", |s, out| {
        threads(s, out, |t| t.stats.lost());
    }),
    row("ovs_pmd_tx_packets", Counter, THREAD, "Packets sent.", |s, out| threads(s, out, |t| t.stats.sent_packets)),
    row("ovs_pmd_tx_batches", Gauge, THREAD, "Calls that sent them.", |s, out| threads(s, out, |t| t.stats.sent_batches)),
    row("ovs_pmd_cpu_isolated", Gauge, THREAD, "Whether a thread polls pinned queues only.", |s, out| {
        each(s, |numa, core, t| out.add(&[numa, core], number(t.info.isolated)));
    }),
    row("ovs_pmd_cpu_overhead", Gauge, THREAD,
        "Percent of the last minute that a thread spent on work that belongs to no receive queue.", |s, out| {
            each(s, |numa, core, t| {
                let queues: f64 = t.info.queues.iter().filter_map(|queue| queue.usage).sum();
                if let Some(busy) = t.info.busy {
                    out.add(&[numa, core], percent((busy - queues).max(0.0)));
                }
            });
        }),
    row("ovs_pmd_rxq_usage", Gauge, QUEUE, "Percent of the last minute that a thread spent on a receive queue.", |s, out| {
        each(s, |numa, core, t| {
            for queue in &t.info.queues {
                if let Some(usage) = queue.usage {
                    out.add(&[numa, core, &queue.port, &queue.queue.to_string()], percent(usage));
                }
            }
        });
    }),
    row("ovs_pmd_rxq_enabled", Gauge, QUEUE, "1: a receive queue is polled.", |s, out| {
        each(s, |numa, core, t| {
            t.info.queues.iter().for_each(|queue| out.add(&[numa, core, &queue.port, &queue.queue.to_string()], 1.0));
        });
    }),
];

/// Whole percents, as `pmd-rxq-show` has them.
fn percent(share: f64) -> f64 {
    (share * 100.0).floor()
}

fn each(s: &Snapshot, mut each: impl FnMut(&str, &str, &ThreadFacts)) {
    for thread in s.datapaths.iter().flat_map(|datapath| &datapath.threads) {
        each(&thread.info.numa.0.to_string(), &thread.info.core.to_string(), thread);
    }
}

fn threads(s: &Snapshot, out: &mut dyn Sink, value: fn(&ThreadFacts) -> u64) {
    each(s, |numa, core, thread| out.add(&[numa, core], value(thread) as f64));
}
