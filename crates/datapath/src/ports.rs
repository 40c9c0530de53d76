//! The ports of a forwarding core: transmit batches and counters, and [`PmdIo`], the core's interface to its driver.

use crate::drops::{Sampler, cause};
use crate::ledger::Ledger;
use crate::samples::LocalSamples;
use dpif::{DpifError, DropCause, DropReason, Drops, PmdStats, PortStats, XlateDrop, add_each};
use flow::{DpPort, FlowKey};
use packet::{Packet, PacketBatch, PacketPool};

/// Upper bound of port numbers.
pub const PORT_NUMBERS: u32 = 65536;
/// Size at which a transmit batch is sent before a flush.
pub const TX_BATCH_MAX_PACKETS: usize = 256;

/// Result of a transmit batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxReport {
    /// Packets accepted by the device.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Rejected packets, by reason.
    pub dropped: Drops,
}

/// The driver of a forwarding core. Calls must not block.
pub trait PmdIo: dpif::UpcallSink {
    /// Sends all packets of `batch` in order; frees rejected ones into `pool` and reports them. Packets left in the
    /// batch, or missing in the report, count as [`DropReason::TxFailed`].
    fn transmit(&mut self, port: DpPort, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport;
}

struct Port {
    tx: PacketBatch,
    stats: PortStats,
}

/// Ports by number, and all packet counters.
pub(crate) struct Ports {
    ports: Vec<Option<Box<Port>>>,
    /// Ports with packets to send.
    dirty: Vec<DpPort>,
    pub(crate) pool: PacketPool,
    pub(crate) stats: PmdStats,
    /// Drops of packets without an input port, or of removed ports.
    of_no_port: Drops,
    pub(crate) ledger: Ledger,
    /// Samples of dropped packets, if somebody wants them.
    pub(crate) sampler: Option<Box<Sampler>>,
    /// Packets sampled by `psample`, if a reader wants them.
    pub(crate) samples: Option<Box<LocalSamples>>,
}

impl Ports {
    pub(crate) fn new() -> Ports {
        Ports {
            ports: Vec::new(),
            dirty: Vec::new(),
            pool: PacketPool::new(),
            stats: PmdStats::default(),
            of_no_port: Drops::default(),
            ledger: Ledger::default(),
            sampler: None,
            samples: None,
        }
    }

    #[inline]
    fn port_mut(&mut self, port: DpPort) -> Option<&mut Port> {
        self.ports.get_mut(port.0 as usize)?.as_deref_mut()
    }

    /// Adds a port; an existing one stays unchanged.
    pub(crate) fn add(&mut self, port: DpPort) -> Result<(), DpifError> {
        if port.0 >= PORT_NUMBERS {
            let text = format!("port {port}: numbers go up to {}", PORT_NUMBERS - 1);
            return Err(DpifError::Unsupported(text));
        }
        let at = port.0 as usize;
        if self.ports.len() <= at {
            self.ports.resize_with(at + 1, || None);
        }
        self.ports[at].get_or_insert_with(|| {
            Box::new(Port { tx: PacketBatch::default(), stats: PortStats::default() })
        });
        Ok(())
    }

    /// Removes a port; drops the packets in its transmit batch.
    pub(crate) fn remove(&mut self, port: DpPort) {
        let gone = self.ports.get_mut(port.0 as usize).and_then(Option::take);
        let Some(mut gone) = gone else { return };
        self.dirty.retain(|p| *p != port);
        for packet in gone.tx.drain() {
            self.ledger.queued -= 1;
            self.drop_packet(packet, DropReason::PortRemoved, port);
        }
        add_each(&mut self.of_no_port, &gone.stats.drops);
        add_each(&mut self.of_no_port, &gone.stats.tx_drops);
    }

    /// Whether the port exists.
    pub(crate) fn has(&self, port: DpPort) -> bool {
        self.ports.get(port.0 as usize).is_some_and(Option::is_some)
    }

    /// Counters of a port.
    pub(crate) fn counters(&self, port: DpPort) -> Option<&PortStats> {
        self.ports.get(port.0 as usize)?.as_deref().map(|p| &p.stats)
    }

    /// Counters of all ports in order of their numbers.
    pub(crate) fn all_counters(&self) -> impl Iterator<Item = (DpPort, &PortStats)> {
        let ports = (0..).map(DpPort).zip(&self.ports);
        ports.filter_map(|(number, p)| Some((number, &p.as_deref()?.stats)))
    }

    /// Counts a burst received.
    pub(crate) fn count_received(&mut self, port: DpPort, packets: usize, bytes: u64) {
        let packets = packets as u64;
        self.ledger.received += packets;
        self.stats.received += packets;
        if let Some(port) = self.port_mut(port) {
            port.stats.rx_packets += packets;
            port.stats.rx_bytes += bytes;
        }
    }

    /// Drops a packet for a reason, counted for the core and for its input port.
    pub(crate) fn drop_packet(&mut self, packet: Packet, reason: DropReason, rx_port: DpPort) {
        if let Some(sampler) = &mut self.sampler {
            sampler.note(cause(reason), rx_port, packet.data(), None);
        }
        self.count_drop(packet, reason, rx_port);
    }

    /// As [`Ports::drop_packet`], for the actions of a flow; `key` is that of the packet.
    pub(crate) fn drop_keyed(&mut self, packet: Packet, reason: DropReason, rx_port: DpPort, key: &FlowKey) {
        if let Some(sampler) = &mut self.sampler {
            sampler.note(cause(reason), rx_port, packet.data(), Some(key));
        }
        self.count_drop(packet, reason, rx_port);
    }

    fn count_drop(&mut self, packet: Packet, reason: DropReason, rx_port: DpPort) {
        self.pool.free(packet);
        self.ledger.dropped += 1;
        self.stats.drops[reason as usize] += 1;
        match self.port_mut(rx_port) {
            Some(port) => port.stats.drops[reason as usize] += 1,
            None => self.of_no_port[reason as usize] += 1,
        }
    }

    /// Drops a packet of that key on request of a translation.
    pub(crate) fn drop_wanted(&mut self, packet: Packet, why: XlateDrop, rx_port: DpPort, key: &FlowKey) {
        if let Some(sampler) = &mut self.sampler {
            sampler.note(DropCause::Xlate(why), rx_port, packet.data(), Some(key));
        }
        self.stats.xlate_drops[why as usize] += 1;
        if let Some(port) = self.port_mut(rx_port) {
            port.stats.xlate_drops[why as usize] += 1;
        }
        self.count_drop(packet, DropReason::Explicit, rx_port);
    }

    /// See [`crate::Pmd::drops_by_ports`].
    pub(crate) fn drops_by_ports(&self) -> Drops {
        let mut sum = self.of_no_port;
        for port in self.ports.iter().flatten() {
            add_each(&mut sum, &port.stats.drops);
            add_each(&mut sum, &port.stats.tx_drops);
        }
        sum
    }

    /// Ends a packet of which a copy continued.
    pub(crate) fn consume(&mut self, packet: Packet) {
        self.pool.free(packet);
        self.ledger.consumed += 1;
    }

    /// Copies a packet.
    pub(crate) fn copy(&mut self, packet: &Packet) -> Packet {
        self.ledger.copied += 1;
        self.pool.copy(packet)
    }

    /// Queues a packet for transmission.
    #[inline]
    pub(crate) fn output(&mut self, port: DpPort, packet: Packet, rx_port: DpPort, io: &mut dyn PmdIo) {
        let Some(known) = self.ports.get_mut(port.0 as usize).and_then(Option::as_deref_mut) else {
            return self.drop_packet(packet, DropReason::NoPort, rx_port);
        };
        if known.tx.is_empty() {
            self.dirty.push(port);
        }
        known.tx.push(packet);
        self.ledger.queued += 1;
        if known.tx.len() >= TX_BATCH_MAX_PACKETS {
            self.dirty.retain(|p| *p != port);
            self.flush_port(port, io);
        }
    }

    /// Queues all of `packets`, which is empty afterwards; `false`, without effect, if the port does not exist or
    /// its batch would grow too long.
    #[inline]
    pub(crate) fn output_all(&mut self, port: DpPort, packets: &mut Vec<Packet>, io: &mut dyn PmdIo) -> bool {
        let known = self.ports.get_mut(port.0 as usize).and_then(Option::as_deref_mut);
        let Some(known) = known.filter(|k| k.tx.len() + packets.len() <= TX_BATCH_MAX_PACKETS) else {
            return false;
        };
        if known.tx.is_empty() {
            self.dirty.push(port);
        }
        self.ledger.queued += packets.len() as u64;
        known.tx.append(packets);
        if known.tx.len() == TX_BATCH_MAX_PACKETS {
            self.dirty.retain(|p| *p != port);
            self.flush_port(port, io);
        }
        true
    }

    /// Queues packets for the port of each, in order; `packets` is empty afterwards. `false`, without effect, if a port does not
    /// exist or a batch may grow too long.
    #[inline]
    pub(crate) fn output_each(&mut self, to: &[DpPort], packets: &mut Vec<Packet>) -> bool {
        let has_room = |port: &DpPort| {
            let known = self.ports.get(port.0 as usize).and_then(Option::as_deref);
            known.is_some_and(|k| k.tx.len() + packets.len() < TX_BATCH_MAX_PACKETS)
        };
        if to.len() != packets.len() || !to.iter().all(has_room) {
            return false;
        }
        self.ledger.queued += packets.len() as u64;
        let mut left = packets.drain(..);
        for run in to.chunk_by(|a, b| a == b) {
            let Some(known) = self.ports.get_mut(run[0].0 as usize).and_then(Option::as_deref_mut) else {
                continue;
            };
            if known.tx.is_empty() {
                self.dirty.push(run[0]);
            }
            known.tx.extend(left.by_ref().take(run.len()));
        }
        true
    }

    /// One transmit call for every port with packets.
    pub(crate) fn flush(&mut self, io: &mut dyn PmdIo) {
        while let Some(port) = self.dirty.pop() {
            self.flush_port(port, io);
        }
    }

    /// One transmit call for that port, if it has packets.
    pub(crate) fn flush_port(&mut self, number: DpPort, io: &mut dyn PmdIo) {
        let Some(port) = self.ports.get_mut(number.0 as usize).and_then(Option::as_deref_mut) else { return };
        let queued = port.tx.len() as u64;
        if queued == 0 {
            return;
        }
        let mut report = io.transmit(number, &mut port.tx, &mut self.pool);
        port.tx.free_into(&mut self.pool);
        report.sent_packets = report.sent_packets.min(queued);
        let dropped = queued - report.sent_packets;
        port.stats.tx_packets += report.sent_packets;
        port.stats.tx_bytes += report.sent_bytes;
        port.stats.tx_dropped += dropped;
        self.ledger.queued -= queued;
        self.ledger.sent += report.sent_packets;
        self.ledger.dropped += dropped;
        self.stats.sent_packets += report.sent_packets;
        self.stats.sent_batches += 1;
        if dropped > 0 {
            let mut left = dropped;
            for n in &mut report.dropped {
                *n = (*n).min(left);
                left -= *n;
            }
            report.dropped[DropReason::TxFailed as usize] += left;
            add_each(&mut port.stats.tx_drops, &report.dropped);
            add_each(&mut self.stats.drops, &report.dropped);
        }
    }
}
