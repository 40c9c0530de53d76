//! [`DeviceCounters`]: counters kept by devices beside those of the switch.

use super::ports::OpenPort;
use dpif::{DeviceOrigin, DeviceStats, PortStats};
use netdev::link::{AllLinkStats, LinkStats};

/// Counters of the devices behind ports.
#[derive(Default)]
pub(super) struct DeviceCounters(AllLinkStats);

impl DeviceCounters {
    /// Adds the devices' counters, and marks unknown ones.
    pub(super) fn add_to<'s>(&self, all: impl Iterator<Item = (&'s OpenPort, &'s mut PortStats)>) {
        let (mut indexes, mut places) = (Vec::new(), Vec::new());
        for (open, stats) in all {
            if open.dummy.is_some() {
                // As in stock switches.
                let unknown = u64::MAX;
                (stats.rx_dropped, stats.rx_errors) = (unknown, unknown);
                (stats.tx_dropped, stats.tx_errors) = (unknown, unknown);
            } else if open.is_link() {
                indexes.push(open.device.ifindex());
                places.push((open, stats));
            }
        }
        for ((open, stats), link) in places.into_iter().zip(self.0.get(&indexes)) {
            let is_tap = open.spec.options.device_origin() == DeviceOrigin::Created;
            stats.device = link.map(|link| device_stats(&link, is_tap));
        }
    }
}

/// Counters of a link, from the switch's perspective: a tap receives the frames sent by the switch.
fn device_stats(link: &LinkStats, is_tap: bool) -> DeviceStats {
    let (rx, tx) = ([link.rx_dropped, link.rx_errors], [link.tx_dropped, link.tx_errors]);
    // The port itself counts frames that a tap rejected.
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
