//! Operations on a datapath and the [`Datapath`] trait.

use crate::actions::DpAction;
use crate::port::{PortInfo, PortSpec};
use crate::stats::{PmdStats, PortStats};
use crate::upcall::Ticket;
use flow::nlkey::KeyLimits;
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
    /// None: of a datapath that is one whole, as the kernel's is.
    None,
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
    /// The upcall that it comes from ([`Upcall::id`](crate::Upcall::id)); 0: none.
    pub upcall: u64,
    /// Copies of it went on already, to controllers: it is not dropped when the actions send it nowhere.
    pub went_on: bool,
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
    /// Names and counters of part of the flow table: as [`DpifOp::FlowDump`], of flows used at that time or later.
    FlowCounters {
        /// Where to go on.
        cursor: u64,
        /// How many at most.
        max_flows: usize,
        /// In the datapath's milliseconds; 0: all flows. A datapath may tell more flows than asked for.
        since_ms: u64,
    },
    /// Remove all megaflows.
    FlowFlush,
    /// Run actions on a packet.
    Execute(Box<Execute>),
    /// Counters of the thread.
    Stats,
    /// Counts anew, but for drops ([`PmdStats::cleared`]).
    ClearStats,
}

impl DpifOp {
    /// The flow that it makes, if it is to make one.
    pub fn creates(&self) -> Option<Ufid> {
        match self {
            DpifOp::FlowPut(put) => (put.mode == PutMode::Create).then_some(put.ufid),
            DpifOp::FlowDel(_)
            | DpifOp::FlowGet(_)
            | DpifOp::FlowDump { .. }
            | DpifOp::FlowCounters { .. }
            | DpifOp::FlowFlush
            | DpifOp::Execute(_)
            | DpifOp::Stats
            | DpifOp::ClearStats => None,
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
    /// Names and counters of a part of the table and where to go on; `None` at the end.
    Counters(Vec<(Ufid, FlowStats)>, Option<u64>),
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
    /// Rewriting of ARP, neighbour discovery and ICMP headers.
    pub set_arp_nd_icmp: bool,
    /// Truncation of what is output next.
    pub truncate: bool,
    /// Actions on a copy.
    pub clone: bool,
    /// The last of [`HashAlgorithm`](crate::HashAlgorithm), as a number, that a hash action takes; 0 also where there is none.
    pub max_hash_algorithm: u8,
    /// Actions that the packet's length chooses.
    pub check_pkt_len: bool,
    /// MPLS labels before the Ethernet header (`add_mpls`).
    pub add_mpls: bool,
    /// Samples by `psample`.
    pub psample: bool,
    /// Tracking of connections.
    pub ct: CtCapabilities,
    /// How a packet's priority chooses a queue.
    pub queues: QueuePriority,
    /// Its keys tell packet types.
    pub packet_types: bool,
    /// What its keys and masks have room for, where that is less than ours; `None`: all that ours have.
    pub key_limits: Option<KeyLimits>,
}

/// How a packet's priority (`skb_priority`) chooses a queue of the port that it leaves by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePriority {
    /// It is the queue's number.
    Number,
    /// It is the handle of a class of traffic control: minor number queue + 1 below the qdisc `1:`.
    ClassHandle,
}

/// What a datapath can do about connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtCapabilities {
    /// Matches on the state.
    pub state: bool,
    /// Matches on the bits of the state that tell of translated addresses.
    pub state_nat: bool,
    /// Matches on the zone.
    pub zone: bool,
    /// Matches on the mark.
    pub mark: bool,
    /// Matches on labels.
    pub label: bool,
    /// Matches on addresses and ports of the original direction, IPv4.
    pub orig_tuple: bool,
    /// The same, IPv6.
    pub orig_tuple6: bool,
    /// Forgets what was said of the connection.
    pub clear: bool,
    /// Tells listeners of chosen events.
    pub event_mask: bool,
    /// Policies of timeouts.
    pub timeout: bool,
    /// Translation of source ports that keeps the address (0.0.0.0).
    pub zero_snat: bool,
}

impl Capabilities {
    /// Of a datapath that leaves nothing of our translations to the slow path, and can do no more than they ask for.
    pub const ENOUGH: Capabilities = Capabilities {
        max_vlan_headers: 2,
        max_mpls_depth: 3,
        recirc: true,
        explicit_drop: true,
        sample_nesting: 8,
        set_arp_nd_icmp: true,
        truncate: true,
        clone: true,
        max_hash_algorithm: 0,
        check_pkt_len: false,
        add_mpls: false,
        psample: false,
        ct: CtCapabilities {
            state: false,
            state_nat: false,
            zone: false,
            mark: false,
            label: false,
            orig_tuple: false,
            orig_tuple6: false,
            clear: false,
            event_mask: false,
            timeout: false,
            zero_snat: false,
        },
        queues: QueuePriority::Number,
        packet_types: true,
        key_limits: None,
    };

    /// The priority of packets for that queue; `None`: there is none.
    pub fn priority_of_queue(&self, queue: u32) -> Option<u32> {
        /// Minor numbers from here on are those of traffic control itself.
        const MINOR_RESERVED: u32 = 0xf000;
        match self.queues {
            QueuePriority::Number => Some(queue),
            QueuePriority::ClassHandle => (queue < MINOR_RESERVED).then(|| 1 << 16 | (queue + 1)),
        }
    }
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
    /// Counters of all ports in order of their numbers, by one question to each thread.
    fn all_port_stats(&self) -> Vec<(DpPort, PortStats)> {
        let stats = |p: PortInfo| Some((p.number, self.port_stats(p.number).ok()?));
        self.ports().into_iter().filter_map(stats).collect()
    }
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
