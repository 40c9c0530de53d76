//! Counters of ports and mirrors, by the names of their columns.

use dpif::{DropReason, PortStats};
use netdev::dummy::{Dummy, DummyStats, QueueStats};
use ofproto::ports::PortCounters;
use ovsdb::value::Uuid;
use std::borrow::Cow;
use std::collections::BTreeMap;
use sync::Ordering;
use vswitch::Planner;
use vswitch::status::Counters;

use crate::instances::Instances;

/// A counter with its name.
pub(super) type Row = (Cow<'static, str>, i64);

/// Source of a port's counters.
pub(crate) enum Source<'a> {
    /// Translations count its packets.
    View(&'a PortCounters),
    /// A dummy.
    Dummy(&'a Dummy),
    /// A datapath and a device.
    Device(&'a PortStats),
}

impl<'a> Source<'a> {
    /// The first of these that a port has; a dummy needs its datapath.
    pub(crate) fn of(
        of_view: Option<&'a PortCounters>,
        stats: Option<&'a PortStats>,
        dummy: Option<&'a Dummy>,
    ) -> Option<Source<'a>> {
        match (of_view, stats, dummy) {
            (Some(counters), _, _) => Some(Source::View(counters)),
            (None, None, _) => None,
            (None, Some(_), Some(dummy)) => Some(Source::Dummy(dummy)),
            (None, Some(stats), None) => Some(Source::Device(stats)),
        }
    }

    /// The counters.
    pub(crate) fn counters(&self) -> Counters {
        let mut rows = Vec::new();
        self.add_to(&mut rows);
        rows.into_iter().map(|(name, n)| (name.into_owned(), n)).collect()
    }

    /// Sets `known` to the counters; whether that changed it. `rows` is scratch.
    pub(super) fn refresh(&self, known: &mut Counters, rows: &mut Vec<Row>) -> bool {
        rows.clear();
        self.add_to(rows);
        if rows.len() == known.len() && rows.iter().all(|(name, n)| known.get(&**name) == Some(n)) {
            return false;
        }
        *known = rows.drain(..).map(|(name, n)| (name.into_owned(), n)).collect();
        true
    }

    fn add_to(&self, rows: &mut Vec<Row>) {
        match self {
            Source::View(counters) => add_translated(counters, rows),
            Source::Dummy(dummy) => add_dummy(&dummy.stats(), dummy.counted_txq(), rows),
            Source::Device(stats) => add_device(stats, rows),
        }
    }
}

/// Counters of mirrors.
pub(super) fn mirrors(planner: &Planner, instances: &Instances) -> BTreeMap<Uuid, Counters> {
    let counted = planner.mirrors().filter_map(|(bridge, entry)| {
        let view = instances.of_bridge(bridge)?.backer.view();
        let mirrors = view.bridge(bridge)?.mirrors.clone()?;
        let counters = &mirrors.get(entry.place.into()).filter(|mirror| mirror.id == entry.id)?.counters;
        let number = |n: &sync::AtomicU64| signed(n.load(Ordering::Relaxed));
        let both = [("tx_packets", &counters.packets), ("tx_bytes", &counters.bytes)];
        Some((entry.row, both.map(|(name, n)| (name.to_string(), number(n))).into_iter().collect()))
    });
    counted.collect()
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn named(name: &'static str, n: u64) -> Row {
    (Cow::Borrowed(name), signed(n))
}

/// Counters of a port, by the names of stock switches, and drops by reason.
fn add_device(stats: &PortStats, rows: &mut Vec<Row>) {
    let s = stats.with_device();
    let own = [
        ("rx_packets", s.rx_packets),
        ("rx_bytes", s.rx_bytes),
        ("rx_dropped", s.rx_dropped),
        ("rx_errors", s.rx_errors),
        ("tx_packets", s.tx_packets),
        ("tx_bytes", s.tx_bytes),
        ("tx_dropped", s.tx_dropped),
        ("tx_errors", s.tx_errors),
    ];
    let of_device = s.device.map(|d| {
        [
            ("collisions", d.collisions),
            ("rx_crc_err", d.rx_crc),
            ("rx_frame_err", d.rx_frame),
            ("rx_missed_errors", d.rx_missed),
            ("rx_multicast_packets", d.rx_multicast),
            ("rx_over_err", d.rx_over),
        ]
    });
    let all = own.into_iter().chain(of_device.into_iter().flatten());
    rows.extend(all.filter(|(_, n)| *n != u64::MAX).map(|(name, n)| named(name, n)));
    add_drops(stats, rows);
}

/// Counters of a dummy, as in stock switches: two extra ones for tests of custom statistics, and those of its
/// queues. All packets are sent by one queue.
fn add_dummy(s: &DummyStats, tx_queues: usize, rows: &mut Vec<Row>) {
    let queue = |way: &str, n: usize, q: &QueueStats| {
        [("packets", q.packets), ("bytes", q.bytes)]
            .map(|(unit, count)| (Cow::Owned(format!("{way}_q{n}_{unit}")), signed(count)))
    };
    let all = [
        ("rx_packets", s.rx.packets),
        ("rx_bytes", s.rx.bytes),
        ("tx_packets", s.tx.packets),
        ("tx_bytes", s.tx.bytes),
        ("rx_custom_packets_1", s.rx.packets),
        ("rx_custom_packets_2", s.rx.packets),
    ];
    rows.extend(all.map(|(name, n)| named(name, n)));
    rows.extend(s.rx_queues.iter().enumerate().flat_map(|(n, q)| queue("rx", n, q)));
    rows.extend(queue("tx", 0, &s.tx));
    rows.extend((1..tx_queues).flat_map(|n| queue("tx", n, &QueueStats::default())));
}

/// Drops by the names of stock switches if these count them, and otherwise by our own names: only nonzero ones, so
/// that a port without any has the counters of stock switches.
fn add_drops(s: &PortStats, rows: &mut Vec<Row>) {
    let failures =
        [DropReason::TxNoBuffers, DropReason::TxQueueFull, DropReason::TxDown, DropReason::TxFailed];
    let sum = |reasons: &[DropReason]| reasons.iter().map(|r| s.tx_drops[*r as usize]).sum::<u64>();
    let stock = [
        ("ovs_tx_failure_drops", sum(&failures)),
        ("ovs_tx_invalid_hwol_drops", sum(&[DropReason::TxBadOffload])),
        ("ovs_tx_mtu_exceeded_drops", sum(&[DropReason::TxTooBig])),
        ("ovs_tx_qos_drops", sum(&[DropReason::TxPoliced, DropReason::TxQosQueueFull])),
        ("ovs_rx_qos_drops", s.rx_policed),
    ];
    rows.extend(stock.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| named(name, n)));
    let own = s.drops_by_name().into_iter();
    rows.extend(own.map(|(name, n)| (Cow::Owned(format!("sluice_{name}_drops")), signed(n))));
}

fn add_translated(c: &PortCounters, rows: &mut Vec<Row>) {
    let [rx_packets, rx_bytes] = [0, 1].map(|i| c.rx[i].load(Ordering::Relaxed));
    let [tx_packets, tx_bytes] = [0, 1].map(|i| c.tx[i].load(Ordering::Relaxed));
    let all = [
        ("rx_packets", rx_packets),
        ("rx_bytes", rx_bytes),
        ("tx_packets", tx_packets),
        ("tx_bytes", tx_bytes),
    ];
    rows.extend(all.map(|(name, n)| named(name, n)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_change_with_their_source_alone() {
        let (mut known, mut rows) = (Counters::new(), Vec::new());
        let mut stats = PortStats { rx_packets: 1, tx_errors: u64::MAX, ..PortStats::default() };
        assert!(Source::Device(&stats).refresh(&mut known, &mut rows));
        assert_eq!((known["rx_packets"], known.len()), (1, 7), "an unknown one is left out: {known:?}");
        assert!(!Source::Device(&stats).refresh(&mut known, &mut rows));
        stats.rx_packets = 2;
        assert!(Source::Device(&stats).refresh(&mut known, &mut rows));
        assert_eq!(known["rx_packets"], 2);
        // A counter comes, and one goes.
        stats.tx_drops[DropReason::TxTooBig as usize] = 3;
        assert!(Source::Device(&stats).refresh(&mut known, &mut rows));
        assert_eq!(
            (known["ovs_tx_mtu_exceeded_drops"], known["sluice_tx_too_big_drops"], known.len()),
            (3, 3, 9)
        );
        stats.rx_errors = u64::MAX;
        assert!(Source::Device(&stats).refresh(&mut known, &mut rows));
        assert!(!known.contains_key("rx_errors"));
        assert_eq!(known, Source::Device(&stats).counters());
        assert!(!Source::Device(&stats).refresh(&mut known, &mut rows));
    }
}
