//! Operations on a datapath and the [`Datapath`] trait.

use crate::actions::DpAction;
use crate::conntrack::{Connections, TimeoutNames};
use crate::offload::Offloaded;
use crate::port::{PortInfo, PortSpec};
use crate::qos::QueueStats;
use crate::stats::{PmdStats, PortStats};
use crate::upcall::Ticket;
use flow::nlkey::KeyLimits;
use flow::{DpPort, FlowKey, KeyMask, Ufid};
use packet::Packet;
use std::sync::Arc;

/// An executor of operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PmdId {
    /// The main loop, for packet-outs.
    Main,
    /// The forwarding thread of that number (its core, if it is bound).
    Core(u16),
    /// No thread: for a datapath without separate threads, like the kernel's.
    None,
}

/// Whether a put creates or modifies a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutMode {
    /// Create; [`DpifError::Exists`] if the packet of `key` already hits a flow.
    Create,
    /// Modify the actions of the flow of that ufid.
    Modify,
}

/// Installs or modifies a megaflow.
#[derive(Clone, Debug)]
pub struct FlowPut {
    /// Its name.
    pub ufid: Ufid,
    /// The packet it was made from, unmasked.
    pub key: FlowKey,
    /// Mask.
    pub mask: KeyMask,
    /// Actions.
    pub actions: Arc<[DpAction]>,
    /// Create or modify.
    pub mode: PutMode,
}

/// Executes actions on one packet.
#[derive(Debug)]
pub struct Execute {
    /// The packet.
    pub packet: Packet,
    /// Its key: metadata and headers.
    pub key: FlowKey,
    /// Actions; an empty list drops.
    pub actions: Arc<[DpAction]>,
    /// Answers this upcall: packets parked behind it resume after it.
    pub ticket: Option<Ticket>,
    /// The upcall that caused it ([`Upcall::id`](crate::Upcall::id)); 0: none.
    pub upcall: u64,
    /// Copies were already sent to controllers: do not count a drop if the actions send it nowhere.
    pub went_on: bool,
}

/// One operation.
#[derive(Debug)]
pub enum DpifOp {
    /// Install or modify a megaflow.
    FlowPut(Box<FlowPut>),
    /// Remove a megaflow; returns its last statistics.
    FlowDel(Ufid),
    /// Get statistics of a megaflow.
    FlowGet(Ufid),
    /// Dump part of the flow table: at most `max_flows` flows from `cursor` (0 at first) on.
    FlowDump {
        /// Position to resume at.
        cursor: u64,
        /// Maximum number of flows.
        max_flows: usize,
    },
    /// Names and counters of part of the flow table: as [`DpifOp::FlowDump`], for flows used at that time or later.
    FlowCounters {
        /// Position to resume at.
        cursor: u64,
        /// Maximum number of flows.
        max_flows: usize,
        /// In the datapath's milliseconds; 0: all flows. A datapath may return more flows than requested.
        since_ms: u64,
    },
    /// Remove all megaflows.
    FlowFlush,
    /// Execute actions on a packet.
    Execute(Box<Execute>),
    /// Get counters of the thread.
    Stats,
    /// Reset counters, except drops ([`PmdStats::cleared`]).
    ClearStats,
}

impl DpifOp {
    /// The flow that it creates, if any.
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
    /// Time of the last packet, in the datapath's milliseconds; 0 is never.
    pub used_ms: u64,
    /// OR of their TCP flags.
    pub tcp_flags: u16,
}

/// A megaflow in a dump.
#[derive(Clone, Debug)]
pub struct FlowRecord {
    /// Its name.
    pub ufid: Ufid,
    /// The packet it was made from.
    pub key: FlowKey,
    /// Mask.
    pub mask: KeyMask,
    /// Actions.
    pub actions: Arc<[DpAction]>,
    /// Its counters.
    pub stats: FlowStats,
    /// Its part in a device.
    pub offloaded: Offloaded,
}

/// Result of an operation.
#[derive(Debug)]
pub enum OpResult {
    /// Done.
    Done,
    /// The requested or deleted flow, with its statistics.
    Flow(Box<FlowRecord>),
    /// A part of the table and the position to resume at; `None` at the end.
    Dump(Vec<FlowRecord>, Option<u64>),
    /// Names and counters of a part of the table and the position to resume at; `None` at the end.
    Counters(Vec<(Ufid, FlowStats)>, Option<u64>),
    /// Counters.
    Stats(Box<PmdStats>),
    /// Failed.
    Failed(DpifError),
}

/// Error of an operation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DpifError {
    /// A flow that matches the packet exists already.
    #[error("a flow that matches is already installed ({0})")]
    Exists(Ufid),
    /// The flow, port or thread does not exist.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// A table or queue is full.
    #[error("{0} is full")]
    Full(&'static str),
    /// In use: it cannot be removed yet.
    #[error("{0} is in use")]
    Busy(&'static str),
    /// Unsupported by the datapath.
    #[error("{0}")]
    Unsupported(String),
    /// The device behind a port could not be opened.
    #[error("{0}")]
    Device(String),
}

impl DpifError {
    /// For operations of an ended forwarding thread.
    pub const NO_THREAD: DpifError = DpifError::NotFound("forwarding thread");
}

/// Operations for one thread, in order.
pub struct OpBatch {
    /// The thread.
    pub pmd: PmdId,
    /// The operations.
    pub ops: Vec<DpifOp>,
    /// Repeated in the reply.
    pub tag: u64,
    /// Receiver of the results; `None` if unneeded.
    pub reply: Option<Arc<dyn ReplySink>>,
}

/// Receives results of operations without blocking; called from forwarding threads.
pub trait ReplySink: Send + Sync {
    /// The results of the batch of that tag, one per operation in order.
    fn done(&self, pmd: PmdId, tag: u64, results: Vec<OpResult>);
}

/// Counters of a whole datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DpStats {
    /// Packets with a megaflow.
    pub hits: u64,
    /// Packets without one.
    pub misses: u64,
    /// Misses lost before the slow path.
    pub lost: u64,
    /// Megaflows.
    pub flows: u64,
}

/// A meter's band: drops packets beyond the rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterBand {
    /// Kilobits or packets per second.
    pub rate: u32,
    /// Burst in kilobits or packets.
    pub burst: u32,
}

/// A meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterConfig {
    /// Rates count packets, not kilobits.
    pub per_packet: bool,
    /// Bands; the highest exceeded rate applies.
    pub bands: Vec<MeterBand>,
}

/// Counters of one band of a meter, or of all packets of a meter.
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
    /// Packets metered.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Counters of each band, in the order of the configuration.
    pub bands: Vec<MeterBandStats>,
}

/// Features of a datapath. Upper layers never ask which datapath it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Number of VLAN tags that a key can have.
    pub max_vlan_headers: u8,
    /// Number of MPLS labels in a key.
    pub max_mpls_depth: u8,
    /// Recirculation.
    pub recirc: bool,
    /// Drop actions with a reason.
    pub explicit_drop: bool,
    /// Rewriting of parts of a header; else sets have all of its fields.
    pub masked_set: bool,
    /// Flows have names. The flows of all our datapaths do; it is only reported.
    pub ufid: bool,
    /// Depth of nested sample actions.
    pub sample_nesting: u8,
    /// Tunnel headers pushed and popped by actions.
    pub tnl_push_pop: bool,
    /// `lb_output`: balances bonds by itself.
    pub lb_output: bool,
    /// Rewriting of ARP, neighbour discovery and ICMP headers.
    pub set_arp_nd_icmp: bool,
    /// Its keys have reserved bytes and option type of neighbour discovery, and it rewrites them.
    pub nd_ext: bool,
    /// Truncation of the next output.
    pub truncate: bool,
    /// Actions on a copy (`clone`).
    pub clone: bool,
    /// The last supported [`HashAlgorithm`](crate::HashAlgorithm) of hash actions, as a number; also 0 without any.
    pub max_hash_algorithm: u8,
    /// Actions selected by packet length (`check_pkt_len`).
    pub check_pkt_len: bool,
    /// MPLS labels before the Ethernet header (`add_mpls`).
    pub add_mpls: bool,
    /// Samples by `psample`.
    pub psample: bool,
    /// Connection tracking.
    pub ct: CtCapabilities,
    /// Mapping of a packet's priority to a queue.
    pub queues: QueuePriority,
    /// Its keys include packet types.
    pub packet_types: bool,
    /// Capacity of its keys and masks, if less than ours; `None`: the same.
    pub key_limits: Option<KeyLimits>,
    /// Actions of a flow, nested ones included, at most. Packets of longer translations take the slow path.
    pub flow_actions_max: usize,
}

/// Mapping of a packet's priority (`skb_priority`) to a queue of its output port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePriority {
    /// The priority is the queue's number.
    Number,
    /// The priority is the handle of a traffic control class: minor number queue + 1 under the qdisc `1:`.
    ClassHandle,
}

/// Connection tracking features of a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtCapabilities {
    /// Matches on the state.
    pub state: bool,
    /// Matches on the state bits of translated addresses.
    pub state_nat: bool,
    /// Matches on the zone.
    pub zone: bool,
    /// Matches on the mark.
    pub mark: bool,
    /// Matches on labels.
    pub label: bool,
    /// Matches on addresses and ports of the original direction, IPv4.
    pub orig_tuple: bool,
    /// Matches on addresses and ports of the original direction, IPv6.
    pub orig_tuple6: bool,
    /// Clearing the connection state (`ct_clear`).
    pub clear: bool,
    /// Event masks for listeners.
    pub event_mask: bool,
    /// Timeout policies.
    pub timeout: bool,
    /// Form of their names in actions.
    pub timeout_names: TimeoutNames,
    /// Source port translation that keeps the address (0.0.0.0).
    pub zero_snat: bool,
    /// Helpers for related connections (`alg`).
    pub helpers: bool,
}

impl CtCapabilities {
    /// All of them.
    pub const ALL: CtCapabilities = CtCapabilities {
        state: true,
        state_nat: true,
        zone: true,
        mark: true,
        label: true,
        orig_tuple: true,
        orig_tuple6: true,
        clear: true,
        event_mask: true,
        timeout: true,
        timeout_names: TimeoutNames::Number,
        zero_snat: true,
        helpers: true,
    };
}

/// Actions of a flow of the user-space datapath, nested ones included, at most: as many outputs as a netlink attribute holds.
pub const FLOW_ACTIONS_MAX: usize = 8192;

impl Capabilities {
    /// Features of a datapath that executes all of our translations, and nothing beyond.
    pub const ENOUGH: Capabilities = Capabilities {
        max_vlan_headers: 2,
        max_mpls_depth: 3,
        recirc: true,
        explicit_drop: true,
        masked_set: true,
        ufid: true,
        sample_nesting: 8,
        tnl_push_pop: true,
        lb_output: true,
        set_arp_nd_icmp: true,
        nd_ext: true,
        truncate: true,
        clone: true,
        max_hash_algorithm: 1,
        check_pkt_len: true,
        add_mpls: true,
        psample: true,
        ct: CtCapabilities::ALL,
        queues: QueuePriority::Number,
        packet_types: true,
        key_limits: None,
        flow_actions_max: FLOW_ACTIONS_MAX,
    };

    /// The queue of packets with that priority; `None`: there is none.
    pub fn queue_of_priority(&self, priority: u32) -> Option<u32> {
        match self.queues {
            QueuePriority::Number => Some(priority),
            QueuePriority::ClassHandle => {
                (priority >> 16 == 1).then(|| (priority & 0xffff).checked_sub(1)).flatten()
            }
        }
    }

    /// The priority of packets for that queue; `None`: there is none.
    pub fn priority_of_queue(&self, queue: u32) -> Option<u32> {
        /// Higher minor numbers are reserved by traffic control.
        const MINOR_RESERVED: u32 = 0xf000;
        match self.queues {
            QueuePriority::Number => Some(queue),
            QueuePriority::ClassHandle => (queue < MINOR_RESERVED).then(|| 1 << 16 | (queue + 1)),
        }
    }
}

/// A datapath: the interface between slow path and fast path.
pub trait Datapath: Send + Sync {
    /// `type@name`, as in `netdev@ovs-netdev`.
    fn name(&self) -> &str;
    /// Its features.
    fn capabilities(&self) -> Capabilities;
    /// Adds a port; returns its number.
    fn port_add(&self, spec: &PortSpec) -> Result<DpPort, DpifError>;
    /// Removes a port; returns once no thread uses it.
    fn port_del(&self, port: DpPort) -> Result<(), DpifError>;
    /// All ports in order of their numbers.
    fn ports(&self) -> Vec<PortInfo>;
    /// Counters of a port.
    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError>;
    /// Counters of all ports in order of their numbers, with one request per thread.
    fn all_port_stats(&self) -> Vec<(DpPort, PortStats)> {
        let stats = |p: PortInfo| Some((p.number, self.port_stats(p.number).ok()?));
        self.ports().into_iter().filter_map(stats).collect()
    }
    /// The queues of a port, in order of their numbers.
    fn queues(&self, _port: DpPort) -> Vec<QueueStats> {
        Vec::new()
    }
    /// The forwarding threads.
    fn pmds(&self) -> Vec<PmdId>;
    /// Sends operations to a thread. Never blocks; if the thread's inbox is full, a batch of puts only is refused
    /// ([`DpifError::Full`]), and any other is accepted all the same and may overtake earlier ones. If the thread
    /// has ended, another one executes packets; the others fail ([`DpifError::NO_THREAD`]).
    fn operate(&self, batch: OpBatch);
    /// The next flow that ended without a delete operation, with its last statistics: its port or its thread was
    /// removed, or another thread took it over. Call it before processing a reply: a missing flow is returned here
    /// before the reply that reports it missing.
    fn next_purged(&self) -> Option<(PmdId, FlowRecord)> {
        None
    }
    /// Its connection tracker; `None`: none.
    fn connections(&self) -> Option<&dyn Connections> {
        None
    }
    /// Creates or replaces a meter.
    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError>;
    /// Removes a meter.
    fn meter_del(&self, id: u32) -> Result<(), DpifError>;
    /// Counters of a meter.
    fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError>;
}
