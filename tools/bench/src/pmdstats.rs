//! Counters of forwarding threads, parsed from `dpif-netdev/pmd-stats-show`: the same text from Sluice and
//! from the stock daemon.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Totals of all forwarding threads, without the main thread.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct PmdStats {
    /// Packets from ports.
    pub(crate) received: u64,
    /// Packets whose megaflow was found by a cache, or without any lookup.
    pub(crate) cache_hits: u64,
    /// Packets whose megaflow was found in the subtables.
    pub(crate) megaflow_hits: u64,
    /// Subtables visited for those: with the precision of the printed average, two digits.
    pub(crate) subtable_lookups: f64,
    /// Packets that the slow path took.
    pub(crate) upcalls: u64,
    /// Failed upcalls.
    pub(crate) upcalls_failed: u64,
    /// Cycles that packets cost.
    pub(crate) busy_cycles: u64,
}

impl PmdStats {
    /// Reads the command's answer.
    ///
    /// # Errors
    /// If there is no forwarding thread, or none with packet counts.
    pub(crate) fn parse(text: &str) -> Result<PmdStats> {
        let mut all = PmdStats::default();
        let (mut threads, mut in_thread, mut average_hits) = (0, false, 0);
        for line in text.lines() {
            if !line.starts_with(' ') {
                in_thread = line.starts_with("pmd thread");
                continue;
            }
            let Some((name, value)) = line.trim().split_once(": ").filter(|_| in_thread) else { continue };
            // Shares and quotients follow the number.
            let value = value.split(' ').next().unwrap_or_default();
            let count = value.parse::<u64>().unwrap_or(0);
            match name {
                "packets received" => {
                    threads += 1;
                    all.received += count;
                }
                "phwol hits" | "simple match hits" | "emc hits" | "smc hits" => all.cache_hits += count,
                "megaflow hits" => {
                    average_hits = count;
                    all.megaflow_hits += count;
                }
                "avg. subtable lookups per megaflow hit" => {
                    all.subtable_lookups += value.parse::<f64>().unwrap_or(0.0) * average_hits as f64;
                }
                "miss with success upcall" => all.upcalls += count,
                "miss with failed upcall" => all.upcalls_failed += count,
                "processing cycles" => all.busy_cycles += count,
                _ => {}
            }
        }
        ensure!(threads > 0, "pmd-stats-show shows no forwarding thread:\n{text}");
        Ok(all)
    }

    /// Difference to `before`.
    pub(crate) fn since(&self, before: &PmdStats) -> PmdStats {
        PmdStats {
            received: self.received.saturating_sub(before.received),
            cache_hits: self.cache_hits.saturating_sub(before.cache_hits),
            megaflow_hits: self.megaflow_hits.saturating_sub(before.megaflow_hits),
            subtable_lookups: (self.subtable_lookups - before.subtable_lookups).max(0.0),
            upcalls: self.upcalls.saturating_sub(before.upcalls),
            upcalls_failed: self.upcalls_failed.saturating_sub(before.upcalls_failed),
            busy_cycles: self.busy_cycles.saturating_sub(before.busy_cycles),
        }
    }

    /// Subtables per megaflow hit; `None` without such hits.
    pub(crate) fn lookups_per_hit(&self) -> Option<f64> {
        (self.megaflow_hits > 0).then(|| self.subtable_lookups / self.megaflow_hits as f64)
    }

    /// Cycles per packet; `None` if not counted.
    pub(crate) fn cycles_per_packet(&self) -> Option<f64> {
        (self.received > 0 && self.busy_cycles > 0).then(|| self.busy_cycles as f64 / self.received as f64)
    }
}

/// Packets and bytes received and sent by port `port` in an `ovs-ofctl dump-ports`; `?` counts as 0.
pub(crate) fn counts_of_port(text: &str, port: u32) -> Option<PortCounts> {
    let mut lines = text.lines().skip_while(|l| {
        let number = l.trim().strip_prefix("port").and_then(|l| l.split(':').next());
        number.is_none_or(|n| n.trim() != port.to_string())
    });
    let (rx, tx) = (lines.next()?, lines.next()?);
    let field = |line: &str, name: &str| -> u64 {
        let value = line.split(name).nth(1).and_then(|v| v.split(',').next());
        value.and_then(|v| v.trim().parse().ok()).unwrap_or(0)
    };
    let count = |line| Count { packets: field(line, "pkts="), bytes: field(line, "bytes=") };
    Some(PortCounts { received: count(rx), sent: count(tx) })
}

/// Counters of a port in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PortCounts {
    pub(crate) received: Count,
    pub(crate) sent: Count,
}

/// The total of all drops by reason in a `coverage/show`, without those that rules ask for.
pub(crate) fn datapath_drops(text: &str) -> u64 {
    coverage(text, "datapath_drop_")
}

/// Packets dropped at full receive rings in a `coverage/show` of Sluice: part of [`datapath_drops`], not of [`all_drops`].
pub(crate) fn full_rings(text: &str) -> u64 {
    coverage(text, "datapath_drop_rx_ring_full")
}

/// The total of all counters whose name begins with `prefix`.
fn coverage(text: &str, prefix: &str) -> u64 {
    let rows = text.lines().filter(|l| l.starts_with(prefix));
    rows.filter_map(|l| l.split("total:").nth(1)?.trim().parse::<u64>().ok()).sum()
}

/// Packets dropped without a megaflow, of all datapaths of a `dpctl/show`.
pub(crate) fn lost_lookups(text: &str) -> u64 {
    let values = text.lines().filter(|l| l.trim_start().starts_with("lookups:"));
    values.filter_map(|l| l.split("lost:").nth(1)?.split(' ').next()?.trim().parse::<u64>().ok()).sum()
}

/// The drops of all datapaths in a reply of `sluice/status`, for any reason, also of ports that were removed.
///
/// # Errors
/// When it is none.
pub(crate) fn all_drops(text: &str) -> Result<u64> {
    let status: Value = serde_json::from_str(text).context("sluice/status is no JSON")?;
    let datapaths = status["datapaths"].as_array().context("sluice/status names no datapaths")?;
    let drops = datapaths.iter().filter_map(|d| d["drops"].as_object()).flat_map(|d| d.values());
    Ok(drops.filter_map(Value::as_u64).sum())
}
