//! The vocabulary that the slow path and the datapaths share, and the one seam between them: [`Datapath`].
//!
//! Everything that crosses the seam is a value. Operations are sent in batches and answered later through a
//! [`ReplySink`], so a datapath of threads that share nothing and a kernel behind system calls both fit.
#![forbid(unsafe_code)]

mod actions;
mod connections;
mod drops;
mod ops;
mod stats;
pub mod text;
mod upcall;

pub use actions::{
    ArpSet, CtAction, CtCommit, CtName, CtNat, DpAction, EthSet, HashAlgorithm, HelperName, Ipv4Set, Ipv6Set,
    Masked, NatAddresses, NatRange, NdSet, PortsSet, SetAction, TimeoutName,
};
pub use connections::{
    Connection, ConnectionSink, Connections, CtAddresses, CtCounters, CtLimit, CtMatch, CtProtocol,
    CtTransport, CtTuple, CtTupleMatch, CtZone, TcpSide, TcpState,
};
pub use drops::{DropReason, XlateDrop};
pub use ops::{
    Capabilities, CtCapabilities, Datapath, DpStats, DpifError, DpifOp, Execute, FlowPut, FlowRecord,
    FlowStats, MeterBand, MeterBandStats, MeterConfig, MeterStats, OpBatch, OpResult, PmdId, PortInfo,
    PortKind, PortSpec, PutMode, QueuePriority, ReplySink,
};
pub use stats::{Drops, PmdStats, PortStats, XlateDrops, add_each};
pub use upcall::{
    ControllerCookie, Ticket, Upcall, UpcallKind, UpcallSink, Upcalls, UserCookie, slow_reason,
};
