//! `dummy` ports: no device; what is received is put in by the [`Dummy`] that controls the port, what is sent goes to
//! capture files and a tap. For tests of a whole switch that give the same result each time.
//!
//! A dummy does as those of stock switches: it answers ARP requests for its own address, refuses frames longer than its
//! MTU, and sends and receives also while it is down for the administrator. It has no offloads: checksums and segmentation
//! are done before a frame leaves.
//!
//! Invariants: a queue's descriptor is readable exactly while frames wait in it; a queue holds [`MAX_QUEUED`] frames at
//! most. The port's queues belong to one thread each; a [`Dummy`] may be used by any. Not for fast ports: sending takes a
//! lock of the port.
//!
//! Not here: connections (`stream`, `pstream`): their owner frames by [`stream`] and uses [`Dummy::receive`] and
//! [`Dummy::set_tap`].

mod arp;
mod queue;
mod registry;
mod state;
pub mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use packet::headers::ETH_HEADER_BYTES;

use crate::port::{RxQueue, TxQueue};
use queue::{Queue, Rx, Tx};
use state::{Captures, State};

pub use registry::DummyPorts;
pub use stream::MAX_FRAME_BYTES;

/// Frames that may wait in a receive queue.
pub const MAX_QUEUED: usize = 100;
/// The most receive queues of a port.
pub const MAX_QUEUES: usize = 1024;
/// The least and greatest MTU that can be set, in bytes (RFC 791: 68).
pub const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=65535;
const DEFAULT_MTU: u32 = 1500;

/// The last four bytes of the next address that is given out, behind `aa:55`.
static NEXT_MAC: AtomicU32 = AtomicU32::new(0xaa55_0000);

/// How a dummy port is made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DummyOptions {
    /// Receive queues, 1 to [`MAX_QUEUES`]; others are taken as the nearest of these.
    pub n_rxq: usize,
    /// Ethernet address; otherwise `aa:55:aa:55:00:00` and those that follow, one for each port of the process.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes; 1500 otherwise.
    pub mtu: Option<u32>,
    /// What [`Dummy::numa_id`] tells.
    pub numa_id: u32,
    /// What [`Dummy::ifindex`] tells; 0 otherwise.
    pub ifindex: Option<u32>,
    /// Files for the frames of both directions.
    pub captures: DummyCaptures,
}

/// Capture files of a dummy port. A file that exists is continued.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DummyCaptures {
    /// For frames of both directions. With it, the two others are not used.
    pub pcap: Option<PathBuf>,
    /// For received frames.
    pub rxq_pcap: Option<PathBuf>,
    /// For sent frames.
    pub tx_pcap: Option<PathBuf>,
}

/// Why a frame was not put into a queue, or a value not set.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DummyError {
    /// Less than an Ethernet header.
    #[error("dummy port {name}: a frame of {bytes} bytes; an Ethernet header has {ETH_HEADER_BYTES}")]
    TooShort {
        /// The port.
        name: String,
        /// Length.
        bytes: usize,
    },
    /// More than [`MAX_FRAME_BYTES`].
    #[error("dummy port {name}: a frame of {bytes} bytes; {MAX_FRAME_BYTES} are the most")]
    TooLong {
        /// The port.
        name: String,
        /// Length.
        bytes: usize,
    },
    /// No such receive queue.
    #[error("dummy port {name}: no receive queue {qid}; it has {queues}, from 0 on")]
    NoQueue {
        /// The port.
        name: String,
        /// The queue asked for.
        qid: usize,
        /// Queues there are.
        queues: usize,
    },
    /// [`MAX_QUEUED`] frames wait already; this one is dropped and counted.
    #[error("dummy port {name}: receive queue {qid} is full ({MAX_QUEUED} frames)")]
    Full {
        /// The port.
        name: String,
        /// The queue.
        qid: usize,
    },
    /// An MTU outside [`MTU_RANGE`].
    #[error("dummy port {name}: MTU {mtu}; {} to {} are taken", MTU_RANGE.start(), MTU_RANGE.end())]
    BadMtu {
        /// The port.
        name: String,
        /// The MTU asked for.
        mtu: u32,
    },
}

/// Frames and bytes of one queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct QueueStats {
    pub packets: u64,
    pub bytes: u64,
}

/// Counters of a dummy port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DummyStats {
    /// Received: taken out of a queue.
    pub rx: QueueStats,
    /// Found their receive queue full.
    pub rx_dropped: u64,
    /// Sent.
    pub tx: QueueStats,
    /// Not sent, for any reason.
    pub tx_dropped: u64,
    /// Frames that could not be written to a capture file.
    pub capture_errors: u64,
    /// Received, by queue.
    pub rx_queues: Vec<QueueStats>,
}

/// What hears of each frame sent.
pub type DummyTap = Box<dyn Fn(&[u8]) + Send + Sync>;

/// Controls a dummy port. Its clones control the same; they outlive the port.
#[derive(Clone)]
pub struct Dummy(Arc<Shared>);

struct Shared {
    name: String,
    numa_id: u32,
    queues: Vec<Queue>,
    state: Mutex<State>,
    /// Calls of [`Dummy::open_tx`].
    tx_queues: AtomicUsize,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked left counters at worst.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dummy {
    /// Makes the port's state and its receive queues.
    pub(crate) fn open(name: &str, options: &DummyOptions) -> io::Result<(Dummy, Vec<Box<dyn RxQueue>>)> {
        let mtu = checked_mtu(name, options.mtu.unwrap_or(DEFAULT_MTU)).map_err(io::Error::other)?;
        let captures = Captures::open(&options.captures)?;
        let queues: io::Result<Vec<_>> =
            (0..options.n_rxq.clamp(1, MAX_QUEUES)).map(|_| Queue::new()).collect();
        let mac = options.mac.unwrap_or_else(next_mac);
        let dummy = Dummy(Arc::new(Shared {
            name: name.to_owned(),
            numa_id: options.numa_id,
            queues: queues?,
            state: Mutex::new(State::new(mac, mtu, options.ifindex.unwrap_or(0), captures)),
            tx_queues: AtomicUsize::new(0),
        }));
        let rx =
            (0..dummy.0.queues.len()).map(|qid| Box::new(Rx::new(dummy.clone(), qid)) as Box<dyn RxQueue>);
        let rx = rx.collect();
        Ok((dummy, rx))
    }

    pub(crate) fn open_tx(&self) -> Box<dyn TxQueue> {
        self.0.tx_queues.fetch_add(1, Ordering::Relaxed);
        Box::new(Tx::new(self.clone()))
    }

    fn queue(&self, qid: usize) -> Result<&Queue, DummyError> {
        let queues = self.0.queues.len();
        self.0.queues.get(qid).ok_or_else(|| DummyError::NoQueue { name: self.0.name.clone(), qid, queues })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    /// Puts a copy of a frame at the end of a receive queue.
    pub fn receive(&self, qid: usize, frame: &[u8]) -> Result<(), DummyError> {
        let (name, bytes) = (|| self.0.name.clone(), frame.len());
        let queue = self.queue(qid)?;
        if bytes < ETH_HEADER_BYTES {
            return Err(DummyError::TooShort { name: name(), bytes });
        }
        if bytes > MAX_FRAME_BYTES {
            return Err(DummyError::TooLong { name: name(), bytes });
        }
        self.state().capture_rx(frame);
        if queue.push(frame) { Ok(()) } else { Err(DummyError::Full { name: name(), qid }) }
    }

    /// Frames that a receive queue would take now. 0 for a queue that does not exist.
    pub fn room(&self, qid: usize) -> usize {
        self.queue(qid).map_or(0, Queue::room)
    }

    /// Name of the port.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Number of receive queues.
    pub fn n_rxq(&self) -> usize {
        self.0.queues.len()
    }

    /// Number of transmit queues that have been opened.
    pub fn n_txq(&self) -> usize {
        self.0.tx_queues.load(Ordering::Relaxed)
    }

    /// The NUMA node that the port was told to be on.
    pub fn numa_id(&self) -> u32 {
        self.0.numa_id
    }

    /// The index that the port was told to have, 0 for none.
    pub fn ifindex(&self) -> u32 {
        self.state().ifindex
    }

    /// Gives the port another index; 0 for none.
    pub fn set_ifindex(&self, ifindex: u32) {
        self.state().change(|s| &mut s.ifindex, ifindex);
    }

    /// Whether the port is up for the administrator; it is from the start. Carrier is the same.
    pub fn admin_up(&self) -> bool {
        self.state().admin_up
    }

    /// Sets the port up or down.
    pub fn set_admin_up(&self, up: bool) {
        self.state().change(|s| &mut s.admin_up, up);
    }

    /// Ethernet address.
    pub fn mac(&self) -> [u8; 6] {
        self.state().mac
    }

    /// Sets the Ethernet address.
    pub fn set_mac(&self, mac: [u8; 6]) {
        self.state().change(|s| &mut s.mac, mac);
    }

    /// MTU in bytes.
    pub fn mtu(&self) -> u32 {
        self.state().mtu
    }

    /// Sets the MTU.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), DummyError> {
        let mtu = checked_mtu(&self.0.name, mtu)?;
        self.state().change(|s| &mut s.mtu, mtu);
        Ok(())
    }

    /// IPv4 address and mask, if it has one.
    pub fn ip4(&self) -> Option<(Ipv4Addr, Ipv4Addr)> {
        self.state().ip4
    }

    /// Gives the port an IPv4 address, for which it then answers ARP requests.
    pub fn set_ip4(&self, address: Ipv4Addr, mask: Ipv4Addr) {
        self.state().change(|s| &mut s.ip4, Some((address, mask)));
    }

    /// IPv6 address and mask, if it has one.
    pub fn ip6(&self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        self.state().ip6
    }

    /// Gives the port an IPv6 address. It answers no neighbour solicitations.
    pub fn set_ip6(&self, address: Ipv6Addr, mask: Ipv6Addr) {
        self.state().change(|s| &mut s.ip6, Some((address, mask)));
    }

    /// Changes with each change of address, MTU, index or administrative state.
    pub fn change_count(&self) -> u64 {
        self.state().changes
    }

    /// Captures to other files from now on. With an error all stays as it was.
    pub fn set_captures(&self, captures: &DummyCaptures) -> io::Result<()> {
        let captures = Captures::open(captures)?;
        self.state().captures = captures;
        Ok(())
    }

    /// Has `tap` told of each frame sent from now on, in the sending thread; `None` ends that. A thread that is sending just
    /// now may call the former one once more.
    pub fn set_tap(&self, tap: Option<DummyTap>) {
        self.state().tap = tap.map(Arc::from);
    }

    /// Counters. Those of the receive queues are read one after the other.
    pub fn stats(&self) -> DummyStats {
        let mut stats = self.state().stats();
        for queue in &self.0.queues {
            let (received, dropped) = queue.stats();
            stats.rx.packets += received.packets;
            stats.rx.bytes += received.bytes;
            stats.rx_dropped += dropped;
            stats.rx_queues.push(received);
        }
        stats
    }
}

fn checked_mtu(name: &str, mtu: u32) -> Result<u32, DummyError> {
    if MTU_RANGE.contains(&mtu) { Ok(mtu) } else { Err(DummyError::BadMtu { name: name.to_owned(), mtu }) }
}

fn next_mac() -> [u8; 6] {
    let [a, b, c, d] = NEXT_MAC.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    [0xaa, 0x55, a, b, c, d]
}
