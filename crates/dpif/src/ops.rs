//! Operations on a datapath and the [`Datapath`] trait.

use crate::actions::DpAction;
use crate::drops::DropReason;
use crate::upcall::Ticket;
use flow::{DpPort, FlowKey, KeyMask, Ufid};
use packet::Packet;
use std::sync::Arc;

/// A forwarding thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PmdId {
    /// The main loop, which executes packet-outs.
    Main,
    /// The forwarding thread of that number (its core, where it is bound to one).
    Core(u16),
}

/// Whether a put makes or changes a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutMode {
    /// Make it; [`DpifError::Exists`] when the packet of `key` already hits a flow.
    Create,
    /// Change the actions of the flow of that ufid.
    Modify,
}

/// Installs or changes a megaflow.
#[derive(Clone, Debug)]
pub struct FlowPut {
    /// Its name.
    pub ufid: Ufid,
    /// The packet it was made from, unmasked.
    pub key: FlowKey,
    /// Which bits count.
    pub mask: KeyMask,
    /// What to do.
    pub actions: Arc<[DpAction]>,
    /// Make or change.
    pub mode: PutMode,
}

/// Runs actions on one packet.
#[derive(Debug)]
pub struct Execute {
    /// The packet.
    pub packet: Packet,
    /// Its key: metadata and headers.
    pub key: FlowKey,
    /// What to do; none drops.
    pub actions: Arc<[DpAction]>,
    /// Answers this upcall: packets parked behind it go on after it.
    pub ticket: Option<Ticket>,
}

/// One operation.
#[derive(Debug)]
pub enum DpifOp {
    /// Install or change a megaflow.
    FlowPut(Box<FlowPut>),
    /// Remove a megaflow; answers its last statistics.
    FlowDel(Ufid),
    /// Statistics of a megaflow.
    FlowGet(Ufid),
    /// Part of the flow table: at most `max_flows` flows from `cursor` (0 at first) on.
    FlowDump {
        /// Where to go on.
        cursor: u64,
        /// How many at most.
        max_flows: usize,
    },
    /// Remove all megaflows.
    FlowFlush,
    /// Run actions on a packet.
    Execute(Box<Execute>),
    /// Counters of the thread.
    Stats,
    /// Zero the counters of the thread.
    ClearStats,
}

impl DpifOp {
    /// The flow that it makes, if it is to make one.
    pub fn creates(&self) -> Option<Ufid> {
        match self {
            DpifOp::FlowPut(put) if put.mode == PutMode::Create => Some(put.ufid),
            _ => None,
        }
    }
}

/// Counters of a megaflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowStats {
    /// Packets that it handled.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last one came, in the datapath's milliseconds; 0 is never.
    pub used_ms: u64,
    /// OR of their TCP flags.
    pub tcp_flags: u16,
}

/// A megaflow, as dumped.
#[derive(Clone, Debug)]
pub struct FlowRecord {
    /// Its name.
    pub ufid: Ufid,
    /// The packet it was made from.
    pub key: FlowKey,
    /// Which bits count.
    pub mask: KeyMask,
    /// What it does.
    pub actions: Arc<[DpAction]>,
    /// Its counters.
    pub stats: FlowStats,
}

/// What became of an operation.
#[derive(Debug)]
pub enum OpResult {
    /// Done.
    Done,
    /// The flow asked for, or deleted, with its statistics.
    Flow(Box<FlowRecord>),
    /// A part of the table and where to go on; `None` at the end.
    Dump(Vec<FlowRecord>, Option<u64>),
    /// Counters.
    Stats(Box<PmdStats>),
    /// Not done.
    Failed(DpifError),
}

/// Why an operation was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DpifError {
    /// A flow that matches the packet is there already.
    #[error("a flow that matches is already installed ({0})")]
    Exists(Ufid),
    /// No such flow, port or thread.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// A table or queue is full.
    #[error("{0} is full")]
    Full(&'static str),
    /// The datapath cannot do this.
    #[error("{0}")]
    Unsupported(String),
    /// The device behind a port could not be opened.
    #[error("{0}")]
    Device(String),
}

impl DpifError {
    /// Of operations for a forwarding thread that has ended.
    pub const NO_THREAD: DpifError = DpifError::NotFound("forwarding thread");
}

/// Operations for one thread, in order.
pub struct OpBatch {
    /// Which thread.
    pub pmd: PmdId,
    /// What to do.
    pub ops: Vec<DpifOp>,
    /// Told in the reply.
    pub tag: u64,
    /// Who gets the results; `None` when nobody asks.
    pub reply: Option<Arc<dyn ReplySink>>,
}

/// Takes results of operations, without waiting; called from forwarding threads.
pub trait ReplySink: Send + Sync {
    /// The results of the batch of that tag, one per operation in order.
    fn done(&self, pmd: PmdId, tag: u64, results: Vec<OpResult>);
}

/// What a port is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortKind {
    /// An existing network interface.
    System,
    /// A tap device made by us, the bridge's own port or another host-side interface.
    Internal,
    /// A tap device made by us.
    Tap,
    /// A port without a device, by type name.
    Other(String),
}

/// A port to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSpec {
    /// Interface name.
    pub name: String,
    /// What it is made of.
    pub kind: PortKind,
    /// Ethernet address for a device that we make.
    pub mac: Option<flow::MacAddr>,
    /// MTU asked for.
    pub mtu: Option<u32>,
    /// Number asked for.
    pub number: Option<DpPort>,
    /// Other options, by name.
    pub options: Vec<(String, String)>,
}

/// A port of a datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortInfo {
    /// Its number.
    pub number: DpPort,
    /// Interface name.
    pub name: String,
    /// Type name as databases and `dpctl/show` have it.
    pub type_name: String,
}

/// Counters of a port. Those that a port does not keep are `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortStats {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Received frames lost before the switch saw them.
    pub rx_dropped: u64,
    /// Received frames with errors.
    pub rx_errors: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets not sent.
    pub tx_dropped: u64,
    /// Packets that failed to be sent.
    pub tx_errors: u64,
    /// Drops of packets that came in by this port, by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
}

/// Counters of a forwarding thread, cumulative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PmdStats {
    /// Packets received.
    pub received: u64,
    /// Packets recirculated.
    pub recirculated: u64,
    /// Received packets whose headers were read by the template for common ones.
    pub template_hits: u64,
    /// Packets that the flow cache answered.
    pub cache_hits: u64,
    /// Packets that the megaflow table answered.
    pub megaflow_hits: u64,
    /// Subtables visited for those.
    pub subtable_lookups: u64,
    /// Misses whose upcall was queued.
    pub upcalls: u64,
    /// Misses whose upcall could not be queued.
    pub upcalls_lost: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Transmit batches.
    pub sent_batches: u64,
    /// Megaflows now.
    pub flows: u64,
    /// Subtables (masks) now.
    pub masks: u64,
    /// Cycles spent on packets.
    pub busy_cycles: u64,
    /// Cycles spent without packets.
    pub idle_cycles: u64,
    /// Megaflows refused because their input port had as many masks as a port may have.
    pub masks_refused: u64,
    /// Bursts received, by their number of packets; the last counts all that are longer than usual.
    pub bursts: [u64; PmdStats::BURST_BUCKETS],
    /// Bursts by their cycles a packet: entry `n` counts those of 2^n to 2^(n+1) - 1, as far as the driver measures them.
    pub burst_cycles: [u64; PmdStats::CYCLE_BUCKETS],
    /// Drops by [`DropReason`].
    pub drops: [u64; DropReason::COUNT],
}

impl PmdStats {
    /// Entries of [`PmdStats::bursts`]: 0 to 32 packets, and more.
    pub const BURST_BUCKETS: usize = packet::BATCH_MAX_PACKETS + 2;
    /// Entries of [`PmdStats::burst_cycles`].
    pub const CYCLE_BUCKETS: usize = 32;

    /// Packets that a megaflow was looked up for, whether by the cache, the table or in vain.
    pub fn passes(&self) -> u64 {
        self.cache_hits + self.megaflow_hits + self.upcalls + self.lost()
    }

    /// Subtables visited for a hit of the megaflow table; 0 without hits.
    pub fn lookups_per_hit(&self) -> f64 {
        ratio(self.subtable_lookups, self.megaflow_hits)
    }

    /// Packets sent by one transmit call; 0 without calls.
    pub fn packets_per_batch(&self) -> f64 {
        ratio(self.sent_packets, self.sent_batches)
    }

    /// Busy cycles for each packet received; 0 without packets.
    pub fn busy_cycles_per_packet(&self) -> f64 {
        ratio(self.busy_cycles, self.received)
    }

    /// Cycles, idle ones included, for each packet received; 0 without packets.
    pub fn cycles_per_packet(&self) -> f64 {
        ratio(self.busy_cycles + self.idle_cycles, self.received)
    }

    /// Packets without a megaflow that were dropped: their upcall, or their place behind one, found no room.
    pub fn lost(&self) -> u64 {
        self.upcalls_lost + self.drops[DropReason::ParkedOverflow as usize]
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Default for PortStats {
    fn default() -> PortStats {
        PortStats {
            rx_packets: 0,
            rx_bytes: 0,
            rx_dropped: 0,
            rx_errors: 0,
            tx_packets: 0,
            tx_bytes: 0,
            tx_dropped: 0,
            tx_errors: 0,
            drops: [0; DropReason::COUNT],
        }
    }
}

impl Default for PmdStats {
    fn default() -> PmdStats {
        PmdStats {
            received: 0,
            recirculated: 0,
            template_hits: 0,
            cache_hits: 0,
            megaflow_hits: 0,
            subtable_lookups: 0,
            upcalls: 0,
            upcalls_lost: 0,
            sent_packets: 0,
            sent_batches: 0,
            flows: 0,
            masks: 0,
            busy_cycles: 0,
            idle_cycles: 0,
            masks_refused: 0,
            bursts: [0; PmdStats::BURST_BUCKETS],
            burst_cycles: [0; PmdStats::CYCLE_BUCKETS],
            drops: [0; DropReason::COUNT],
        }
    }
}

/// Counters of a whole datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpStats {
    /// Packets that a megaflow handled.
    pub hits: u64,
    /// Packets without one.
    pub misses: u64,
    /// Misses that never reached the slow path.
    pub lost: u64,
    /// Megaflows.
    pub flows: u64,
}

/// A meter's band: what exceeds the rate is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterBand {
    /// Kilobits or packets a second.
    pub rate: u32,
    /// Kilobits or packets that may come at once.
    pub burst: u32,
}

/// A meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterConfig {
    /// Rates count packets, not kilobits.
    pub per_packet: bool,
    /// Bands, the highest rate that is exceeded applies.
    pub bands: Vec<MeterBand>,
}

/// Counters of one band of a meter, or of all packets that met it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterBandStats {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Counters of a meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// Packets that met the meter.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What each band applied to, in the order of the configuration.
    pub bands: Vec<MeterBandStats>,
}

/// What a datapath can do. Nothing above the seam asks which datapath it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// VLAN tags that a key tells apart.
    pub max_vlan_headers: u8,
    /// MPLS labels that a key tells apart.
    pub max_mpls_depth: u8,
    /// Recirculation.
    pub recirc: bool,
    /// Drop actions with a reason.
    pub explicit_drop: bool,
    /// Depth of nested sample actions.
    pub sample_nesting: u8,
}

/// A datapath: the one seam between slow path and fast path.
pub trait Datapath: Send + Sync {
    /// `type@name`, as in `netdev@ovs-netdev`.
    fn name(&self) -> &str;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// Makes a port; its number.
    fn port_add(&self, spec: &PortSpec) -> Result<DpPort, DpifError>;
    /// Removes a port; returns when no thread has it any more.
    fn port_del(&self, port: DpPort) -> Result<(), DpifError>;
    /// All ports in order of their numbers.
    fn ports(&self) -> Vec<PortInfo>;
    /// Counters of a port.
    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError>;
    /// The forwarding threads.
    fn pmds(&self) -> Vec<PmdId>;
    /// Sends operations to a thread. Never waits; when the thread's inbox is full, a batch of nothing but puts is refused
    /// ([`DpifError::Full`]), and any other is taken all the same and may be carried out before what was sent earlier. If the
    /// thread has ended, another one executes packets; the rest fails ([`DpifError::NO_THREAD`]).
    fn operate(&self, batch: OpBatch);
    /// The next flow that ended without being deleted by an operation, with its last statistics: its port or its thread went
    /// away, or another thread took it over. Whoever takes an answer to an operation takes these first: a flow that is
    /// not there any more stands here before the answer that says so.
    fn next_purged(&self) -> Option<(PmdId, FlowRecord)> {
        None
    }
    /// Makes or changes a meter.
    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError>;
    /// Removes a meter.
    fn meter_del(&self, id: u32) -> Result<(), DpifError>;
    /// Counters of a meter.
    fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError>;
}
