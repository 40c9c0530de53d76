//! Types shared by the slow path and the datapaths, and the interface between them: [`Datapath`], and [`Provider`]
//! for running one.
//!
//! The interface exchanges only values. Operations are sent in batches and answered later through a [`ReplySink`],
//! which suits both a datapath of shared-nothing threads and a kernel behind system calls.
#![forbid(unsafe_code)]
// Tests match only on relevant variants.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod actions;
mod conntrack;
pub mod cookie;
mod drops;
mod drr;
mod dummy_mode;
pub mod fuzz;
pub mod nlactions;
mod offload;
mod op_counts;
mod ops;
mod port;
pub mod port_types;
mod provider;
pub mod qos;
mod sampled;
pub mod slow_path;
mod stats;
pub mod testing;
pub mod text;
mod threads;
mod upcall;

pub use actions::{
    ArpSet, CtAction, CtCommit, CtName, CtNat, DpAction, EthSet, HashAlgorithm, HelperName, Ipv4Set, Ipv6Set,
    Masked, NatAddresses, NatRange, NdExtSet, NdSet, PortsSet, SetAction, TimeoutName,
};
pub use conntrack::{
    Connection, ConnectionSink, Connections, CtAddresses, CtCarry, CtCounters, CtCounts, CtExport,
    CtImported, CtLimit, CtMatch, CtProtocol, CtRefusal, CtRestore, CtStatistics, CtTransport, CtTuple,
    CtTupleMatch, CtZone, CtZoneCounts, Expectation, ExpectationSink, FragmentCounts, FragmentList,
    FragmentState, FragmentStatus, Fragments, IpFamily, TcpSide, TcpState, TimeoutAttr, TimeoutId,
    TimeoutNames, TimeoutPolicies, TimeoutPolicy,
};
pub use drops::{DropCause, DropReason, DropSampling, DroppedPacket, XlateDrop};
pub use drr::{BATCH_MAX_UPCALLS, DeficitRoundRobin, QUANTUM};
pub use dummy_mode::DummyMode;
pub use l2proto::is_control_packet;
pub use offload::{FlowOffloads, OffloadLatency, OffloadLayer, OffloadStats, Offloaded};
pub use op_counts::{Counted, OpCounts};
pub use ops::{
    Capabilities, CtCapabilities, Datapath, DpStats, DpifError, DpifOp, Execute, FLOW_ACTIONS_MAX, FlowPut,
    FlowRecord, FlowStats, MeterBand, MeterBandStats, MeterConfig, MeterStats, OpBatch, OpResult, PmdId,
    PutMode, QueuePriority, ReplySink,
};
pub use port::{EgressPorts, LOCAL_PORT, PortInfo, PortSpec};
pub use port_types::{
    AfxdpPort, DeviceOrigin, DummyPort, DummyStream, InterfaceType, InternalPort, KernelPort, NullPort,
    OptionChange, OptionNotice, ParsedOptions, PatchPort, PcapPort, PortOptions, PortTypeVisitor, SystemPort,
    TapPort, TunnelConfig, TunnelKind, TunnelPort, XdpMode,
};
pub use provider::{
    BondBalancer, InlineHandler, LookupMasks, PmdThreads, Provider, Shaping, UpcallReceiver, UpcallSockets,
    UserspaceTunnels, Waker, usual_revalidators,
};
pub use sampled::SampledPacket;
pub use slow_path::SlowReason;
pub use stats::{DeviceStats, Drops, PmdStats, PortStats, XlateDrops, add_each};
pub use threads::{
    AutoBalance, CacheSettings, Iterations, Numa, PerfLog, PerfQuery, QueueInfo, RxqAffinity, RxqAssign,
    SleepMax, ThreadInfo, ThreadPlan,
};
pub use upcall::{
    ControllerCookie, FlowDirection, FlowSampleCookie, IpfixCookie, SflowCookie, Ticket, Upcall, UpcallKind,
    UpcallSink, Upcalls, UserCookie,
};
