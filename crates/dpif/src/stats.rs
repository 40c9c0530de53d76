//! Counters of ports and forwarding threads.

use crate::drops::{DropReason, XlateDrop};

/// Drops by [`DropReason`].
pub type Drops = [u64; DropReason::COUNT];
/// Packets dropped by translation, by [`XlateDrop`]: the parts of [`DropReason::Explicit`].
pub type XlateDrops = [u64; XlateDrop::COUNT];

/// Counters of a port. Unsupported ones are `u64::MAX`.
///
/// The first three kinds of loss occur before the switch: `rx_dropped`, `rx_malformed` and `rx_truncated` are not in
/// `rx_packets`. `tx_dropped` is the sum of `tx_drops`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Received frames lost before the switch: the receive ring was full.
    pub rx_dropped: u64,
    /// Received frames with errors: `rx_malformed` and `rx_truncated`.
    pub rx_errors: u64,
    /// Malformed received frames.
    pub rx_malformed: u64,
    /// Received frames beyond the maximum length.
    pub rx_truncated: u64,
    /// Received frames beyond the limits of policing, a part of `rx_dropped`.
    pub rx_policed: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets not sent.
    pub tx_dropped: u64,
    /// Packets that failed to be sent.
    pub tx_errors: u64,
    /// Drops of packets received on this port.
    pub drops: Drops,
    /// Drops by translation, a part of `drops`.
    pub xlate_drops: XlateDrops,
    /// Drops of packets to be sent by this port.
    pub tx_drops: Drops,
    /// Counters of its device; `None`: no device, or unknown.
    pub device: Option<DeviceStats>,
}

/// Counters of a port's device, from the switch's perspective. Its losses and errors are not in the port's own
/// counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceStats {
    /// Received multicast frames.
    pub rx_multicast: u64,
    /// Received frames dropped by the device.
    pub rx_dropped: u64,
    /// Received frames with errors.
    pub rx_errors: u64,
    /// Received frames lost for lack of device buffers.
    pub rx_missed: u64,
    /// Received frames with bad alignment.
    pub rx_frame: u64,
    /// Overruns of the receive ring.
    pub rx_over: u64,
    /// Received frames with a bad checksum.
    pub rx_crc: u64,
    /// Frames dropped by the device on transmission.
    pub tx_dropped: u64,
    /// Frames whose transmission failed.
    pub tx_errors: u64,
    /// Frames whose transmission was aborted.
    pub tx_aborted: u64,
    /// Frames lost without carrier.
    pub tx_carrier: u64,
    /// Collisions.
    pub collisions: u64,
}

impl PortStats {
    /// The same plus the device's losses and errors in `rx_dropped`, `rx_errors`, `tx_dropped` and `tx_errors`, as
    /// in stock switches. Unsupported counters stay so.
    pub fn with_device(mut self) -> PortStats {
        let Some(d) = self.device else { return self };
        let sums = [
            (&mut self.rx_dropped, d.rx_dropped),
            (&mut self.rx_errors, d.rx_errors),
            (&mut self.tx_dropped, d.tx_dropped),
            (&mut self.tx_errors, d.tx_errors),
        ];
        for (own, more) in sums {
            *own = own.saturating_add(more);
        }
        self
    }

    /// Adds counters of the same port from another place, without those of its device.
    pub fn add(&mut self, s: &PortStats) {
        self.rx_packets += s.rx_packets;
        self.rx_bytes += s.rx_bytes;
        self.rx_dropped += s.rx_dropped;
        self.rx_errors += s.rx_errors;
        self.rx_malformed += s.rx_malformed;
        self.rx_truncated += s.rx_truncated;
        self.rx_policed += s.rx_policed;
        self.tx_packets += s.tx_packets;
        self.tx_bytes += s.tx_bytes;
        self.tx_dropped += s.tx_dropped;
        self.tx_errors += s.tx_errors;
        add_each(&mut self.drops, &s.drops);
        add_each(&mut self.xlate_drops, &s.xlate_drops);
        add_each(&mut self.tx_drops, &s.tx_drops);
    }

    /// Drops before the switch, by display name.
    pub fn drops_before(&self) -> [(&'static str, u64); 4] {
        let known = |n: u64| if n == u64::MAX { 0 } else { n };
        [
            ("rx_ring_full", known(self.rx_dropped).saturating_sub(self.rx_policed)),
            ("rx_malformed", self.rx_malformed),
            ("rx_truncated", self.rx_truncated),
            ("rx_policed", self.rx_policed),
        ]
    }

    /// All nonzero drops counted by the port, those before the switch included, by display name; each once.
    /// [`DropReason::Explicit`] is split into its parts.
    pub fn drops_by_name(&self) -> Vec<(&'static str, u64)> {
        let mut inside = self.drops;
        add_each(&mut inside, &self.tx_drops);
        self.drops_before()
            .into_iter()
            .filter(|(_, n)| *n > 0)
            .chain(by_name(&inside, &self.xlate_drops))
            .collect()
    }
}

/// Counters of a forwarding thread, cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PmdStats {
    /// Packets received.
    pub received: u64,
    /// Packets recirculated.
    pub recirculated: u64,
    /// Received packets parsed by the template for common ones.
    pub template_hits: u64,
    /// Packets hit by the mark of a device.
    pub mark_hits: u64,
    /// Packets hit in the flow cache, or by the megaflow of the burst before.
    pub cache_hits: u64,
    /// Packets hit in the megaflow table.
    pub megaflow_hits: u64,
    /// Subtables visited for those.
    pub subtable_lookups: u64,
    /// Misses whose upcall was queued.
    pub upcalls: u64,
    /// Misses whose upcall could not be queued.
    pub upcalls_lost: u64,
    /// Misses without space behind a pending translation.
    pub parked_lost: u64,
    /// Misses answered by the slow path.
    pub answers: u64,
    /// Total waiting time of those.
    pub answers_us: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Transmit batches.
    pub sent_batches: u64,
    /// Current megaflows.
    pub flows: u64,
    /// Current subtables (masks).
    pub masks: u64,
    /// Cycles with packets.
    pub busy_cycles: u64,
    /// Cycles without packets.
    pub idle_cycles: u64,
    /// Megaflows refused by the mask limit of their input port.
    pub masks_refused: u64,
    /// Packets dropped.
    pub drops: Drops,
    /// Drops by translation, a part of `drops`.
    pub xlate_drops: XlateDrops,
}

impl PmdStats {
    /// Packets with a megaflow.
    pub fn hits(&self) -> u64 {
        self.mark_hits + self.cache_hits + self.megaflow_hits
    }

    /// Packets looked up: hits, and misses.
    pub fn passes(&self) -> u64 {
        self.hits() + self.upcalls + self.lost()
    }

    /// Subtables visited per hit of the megaflow table; 0 without hits.
    pub fn lookups_per_hit(&self) -> f64 {
        ratio(self.subtable_lookups, self.megaflow_hits)
    }

    /// Packets per transmit call; 0 without calls.
    pub fn packets_per_batch(&self) -> f64 {
        ratio(self.sent_packets, self.sent_batches)
    }

    /// Busy cycles per received packet; 0 without packets.
    pub fn busy_cycles_per_packet(&self) -> f64 {
        ratio(self.busy_cycles, self.received)
    }

    /// Cycles, idle ones included, per received packet; 0 without packets.
    pub fn cycles_per_packet(&self) -> f64 {
        ratio(self.busy_cycles + self.idle_cycles, self.received)
    }

    /// Packets dropped without a megaflow: their upcall queue, or parking space, was full.
    pub fn lost(&self) -> u64 {
        self.upcalls_lost + self.parked_lost
    }

    /// All nonzero drops, by display name; each once.
    pub fn drops_by_name(&self) -> Vec<(&'static str, u64)> {
        by_name(&self.drops, &self.xlate_drops).collect()
    }

    /// The counters after a reset by `pmd-stats-clear`. Drops continue: they are totals of the ports.
    pub fn cleared(&self) -> PmdStats {
        let PmdStats { flows, masks, drops, xlate_drops, .. } = *self;
        PmdStats { flows, masks, drops, xlate_drops, ..PmdStats::default() }
    }

    /// The counters to keep of an ended thread: all but current numbers.
    pub fn ended(&self) -> PmdStats {
        PmdStats { flows: 0, masks: 0, ..*self }
    }

    /// Adds counters of another thread.
    pub fn add(&mut self, s: &PmdStats) {
        self.received += s.received;
        self.recirculated += s.recirculated;
        self.template_hits += s.template_hits;
        self.mark_hits += s.mark_hits;
        self.cache_hits += s.cache_hits;
        self.megaflow_hits += s.megaflow_hits;
        self.subtable_lookups += s.subtable_lookups;
        self.upcalls += s.upcalls;
        self.upcalls_lost += s.upcalls_lost;
        self.parked_lost += s.parked_lost;
        self.answers += s.answers;
        self.answers_us += s.answers_us;
        self.sent_packets += s.sent_packets;
        self.sent_batches += s.sent_batches;
        self.flows += s.flows;
        self.masks += s.masks;
        self.busy_cycles += s.busy_cycles;
        self.idle_cycles += s.idle_cycles;
        self.masks_refused += s.masks_refused;
        add_each(&mut self.drops, &s.drops);
        add_each(&mut self.xlate_drops, &s.xlate_drops);
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Nonzero drops, with [`DropReason::Explicit`] split into its parts.
fn by_name(drops: &Drops, wanted: &XlateDrops) -> impl Iterator<Item = (&'static str, u64)> {
    let wanted = XlateDrop::ALL.map(|d| (d.name(), wanted[d as usize]));
    let others =
        DropReason::ALL.map(|r| (r.name(), if r == DropReason::Explicit { 0 } else { drops[r as usize] }));
    wanted.into_iter().chain(others).filter(|(_, n)| *n > 0)
}

/// Adds counters element by element.
pub fn add_each<const N: usize>(sum: &mut [u64; N], add: &[u64; N]) {
    sum.iter_mut().zip(add).for_each(|(sum, n)| *sum += n);
}

#[cfg(test)]
mod tests;
