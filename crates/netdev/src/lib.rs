//! Port I/O: frames enter and leave the process here. Existing network devices by AF_PACKET (`system`) or
//! AF_XDP (`afxdp`), taps (`tap` and `internal` ports), ports without a device (`dummy`, `null`, `pcap`), and
//! the state and settings of links and the routes of the kernel (rtnetlink, ethtool).
//!
//! A [`Port`] has receive queues, each owned by one thread, and one transmit queue for every thread that
//! needs one: threads share no queue. Receiving never blocks; sending consumes the whole batch and reports
//! the result. The caller assigns queues to threads and handles lost links.
//!
//! Not here: tunnels.

#![allow(unsafe_code, reason = "system calls; each block says why it is sound")]

mod adopt;
mod eventfd;
mod finish_offloads;
pub mod fuzz;
mod kept;
mod lending;
mod null;
mod open;
mod patch;
mod port;
mod raw;
mod system;
mod tap;
mod tunnel;

pub mod afxdp;
pub mod dummy;
pub mod link;
pub mod pcap;
pub mod route;
pub mod tc;

pub use adopt::adopt;
pub use afxdp::AfxdpInfo;
pub use dpif::{AfxdpPort, PcapPort, XdpMode};
pub use dummy::Dummy;
pub use kept::{Keeper, queues_of, set_keeper};
pub use lending::{Lending, LentKind, LentQueue, LentSocket};
pub use link::removal::TOGETHER as ENDED_TOGETHER;
pub use open::{OpenNote, OpenedPort, open};
pub use port::{Port, RxCounters, RxMode, RxQueue, TxDrop, TxQueue, TxReport};
pub use system::{
    ALL_RING_SLOTS, FEW_SLOTS, MAX_RING_SLOTS, MAX_RX_QUEUES, OWN_SOCKETS_MAX, RxMethod, SystemOptions,
    start_ring_threads,
};
pub use tap::{TapOptions, end_devices};
