//! `dummy` ports: no device; the controlling [`Dummy`] injects received frames, sent ones go to capture files
//! and a tap. For reproducible tests of a whole switch.
//!
//! A dummy behaves like those of stock switches: it answers ARP requests for its own addresses, rejects frames
//! longer than its MTU, and sends and receives also while administratively down. It has no offloads:
//! checksums and segmentation are done before a frame leaves.
//!
//! Invariants: a queue's descriptor is readable exactly while frames wait in it; a queue holds at most
//! [`MAX_QUEUED`] frames. Each queue of the port belongs to one thread; any thread may use a [`Dummy`]. Not
//! for fast ports: sending takes a lock of the port.
//!
//! Not here: connections (`stream`, `pstream`): their owner uses [`stream`] for framing, [`Dummy::receive`]
//! and [`Dummy::set_tap`].

mod arp;
mod queue;
mod registry;
mod state;
pub mod stream;
#[cfg(test)]
mod tests;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dpif::DummyPort;
use packet::headers::ETH_HEADER_BYTES;

use crate::open::{OpenedPort, Opener, Opening};
use crate::port::{Port, PortDevice, RxQueue, TxQueue, not_created};
use queue::{Queue, Rx, Tx};
use state::{Captures, State};

pub use registry::{Claim, DummyPorts};
pub use stream::MAX_FRAME_BYTES;

/// Frames that may wait in a receive queue.
pub const MAX_QUEUED: usize = 100;
/// The most receive queues of a port.
pub const MAX_QUEUES: usize = 1024;
/// The most IP addresses of a port.
pub const MAX_ADDRESSES: usize = 64;
/// Range of the MTU, in bytes (RFC 791: 68).
pub const MTU_RANGE: std::ops::RangeInclusive<u32> = 68..=65535;
const DEFAULT_MTU: u32 = 1500;

/// The last four bytes of the next assigned address, after `aa:55`.
static NEXT_MAC: AtomicU32 = AtomicU32::new(0xaa55_0000);

impl Opener for DummyPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        let spec = opening.spec;
        let (device, dummy) = Port::open_dummy(&spec.name, self, spec.mac.map(|m| m.0), spec.mtu)?;
        Ok(OpenedPort { dummy: Some(dummy), inline: !self.pmd, ..OpenedPort::bare(device) })
    }
}

impl Port {
    /// Creates a port without a device (see [`crate::dummy`]) and its control handle. Any name is valid. By default
    /// it has an address from `aa:55:aa:55:00:00` on, one for each port of the process, and MTU 1500.
    pub fn open_dummy(
        name: &str,
        options: &DummyPort,
        mac: Option<[u8; 6]>,
        mtu: Option<u32>,
    ) -> io::Result<(Port, Dummy)> {
        let (dummy, rx) = Dummy::open(name, options, mac, mtu)?;
        Ok((Port::new(name, dummy.ifindex(), rx, dummy.clone()), dummy))
    }
}

impl PortDevice for Dummy {
    fn open_tx(&self) -> io::Result<Box<dyn TxQueue>> {
        self.0.tx_queues.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Tx::new(self.clone())))
    }

    not_created!();
}

/// Capture files of a dummy port. An existing file is appended to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DummyCaptures {
    /// For frames of both directions. Overrides the two others.
    pub pcap: Option<PathBuf>,
    /// For received frames.
    pub rxq_pcap: Option<PathBuf>,
    /// For sent frames.
    pub tx_pcap: Option<PathBuf>,
}

impl DummyCaptures {
    fn of(options: &DummyPort) -> DummyCaptures {
        let DummyPort { pcap, rxq_pcap, tx_pcap, .. } = options.clone();
        DummyCaptures { pcap, rxq_pcap, tx_pcap }
    }
}

/// Reason why a frame was not queued, or a value not set.
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
        /// The requested queue.
        qid: usize,
        /// Number of queues.
        queues: usize,
    },
    /// [`MAX_QUEUED`] frames already wait; this one is dropped and counted.
    #[error("dummy port {name}: receive queue {qid} is full ({MAX_QUEUED} frames)")]
    Full {
        /// The port.
        name: String,
        /// The queue.
        qid: usize,
    },
    /// [`MAX_ADDRESSES`] is reached.
    #[error("dummy port {name}: it has {MAX_ADDRESSES} IP addresses, the most")]
    TooManyAddresses {
        /// The port.
        name: String,
    },
    /// An MTU outside [`MTU_RANGE`].
    #[error("dummy port {name}: MTU {mtu}; {} to {} are taken", MTU_RANGE.start(), MTU_RANGE.end())]
    BadMtu {
        /// The port.
        name: String,
        /// The requested MTU.
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
    /// Received: dequeued.
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

/// Callback for each sent frame.
pub type DummyTap = Box<dyn Fn(&[u8]) + Send + Sync>;

/// Returns the mark of a received frame, 0 for none: the classifier of a device.
pub type DummyMarker = Arc<dyn Fn(&[u8]) -> u32 + Send + Sync>;

/// Controls a dummy port. Its clones control the same port; they outlive it.
#[derive(Clone)]
pub struct Dummy(Arc<Shared>);

struct Shared {
    name: String,
    numa_id: u32,
    counted_txq: usize,
    queues: Vec<Queue>,
    state: Mutex<State>,
    marker: Mutex<Option<DummyMarker>>,
    /// Transmit queues opened.
    tx_queues: AtomicUsize,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves at worst wrong counters.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dummy {
    /// Creates the port's state and its receive queues.
    fn open(
        name: &str,
        options: &DummyPort,
        mac: Option<[u8; 6]>,
        mtu: Option<u32>,
    ) -> io::Result<(Dummy, Vec<Box<dyn RxQueue>>)> {
        let mtu = checked_mtu(name, mtu.unwrap_or(DEFAULT_MTU)).map_err(io::Error::other)?;
        let captures = Captures::open(&DummyCaptures::of(options))?;
        let queues: io::Result<Vec<_>> =
            (0..(options.n_rxq as usize).clamp(1, MAX_QUEUES)).map(|_| Queue::new()).collect();
        let mac = mac.unwrap_or_else(next_mac);
        let dummy = Dummy(Arc::new(Shared {
            name: name.to_owned(),
            numa_id: options.numa_id,
            counted_txq: (options.n_txq as usize).clamp(1, MAX_QUEUES),
            queues: queues?,
            state: Mutex::new(State::new(mac, mtu, options.ifindex.unwrap_or(0), captures)),
            marker: Mutex::new(None),
            tx_queues: AtomicUsize::new(0),
        }));
        let rx =
            (0..dummy.0.queues.len()).map(|qid| Box::new(Rx::new(dummy.clone(), qid)) as Box<dyn RxQueue>);
        let rx = rx.collect();
        Ok((dummy, rx))
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
        if queue.push(frame, self.mark_of(frame)) {
            Ok(())
        } else {
            Err(DummyError::Full { name: name(), qid })
        }
    }

    /// Free slots of a receive queue. 0 for a missing queue.
    pub fn room(&self, qid: usize) -> usize {
        self.queue(qid).map_or(0, Queue::room)
    }

    /// Name of the port.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether both control the same port.
    pub fn is_same(&self, other: &Dummy) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Number of receive queues.
    pub fn n_rxq(&self) -> usize {
        self.0.queues.len()
    }

    /// Number of transmit queues with counters.
    pub fn counted_txq(&self) -> usize {
        self.0.counted_txq
    }

    /// Number of transmit queues opened.
    pub fn n_txq(&self) -> usize {
        self.0.tx_queues.load(Ordering::Relaxed)
    }

    /// The configured NUMA node.
    pub fn numa_id(&self) -> u32 {
        self.0.numa_id
    }

    /// The configured index, 0 for none.
    pub fn ifindex(&self) -> u32 {
        self.state().ifindex
    }

    /// Sets the index; 0 for none.
    pub fn set_ifindex(&self, ifindex: u32) {
        self.state().change(|s| &mut s.ifindex, ifindex);
    }

    /// Whether the port is administratively up, as at the start. Carrier is the same.
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

    /// IP addresses, each with the bits of its network, in the order of their addition.
    pub fn addresses(&self) -> Vec<(IpAddr, u8)> {
        self.state().addresses.clone()
    }

    /// Adds an IP address with the bits of its network, unless it has it. The port answers ARP requests for IPv4
    /// addresses, but no neighbour solicitations.
    ///
    /// # Errors
    /// It has [`MAX_ADDRESSES`].
    pub fn add_address(&self, address: IpAddr, len: u8) -> Result<(), DummyError> {
        let mut state = self.state();
        if state.addresses.contains(&(address, len)) {
            return Ok(());
        }
        if state.addresses.len() >= MAX_ADDRESSES {
            return Err(DummyError::TooManyAddresses { name: self.0.name.clone() });
        }
        let mut addresses = state.addresses.clone();
        addresses.push((address, len));
        state.change(|s| &mut s.addresses, addresses);
        Ok(())
    }

    /// Increases with each change of address, MTU, index or administrative state.
    pub fn change_count(&self) -> u64 {
        self.state().changes
    }

    /// Switches to other capture files. An error leaves the state unchanged.
    pub fn set_captures(&self, captures: &DummyCaptures) -> io::Result<()> {
        let captures = Captures::open(captures)?;
        self.state().captures = captures;
        Ok(())
    }

    /// Opens its capture files anew: one that was removed begins again. An error leaves the state unchanged.
    pub fn reopen_captures(&self) -> io::Result<()> {
        let files = self.state().captures.files.clone();
        if files == DummyCaptures::default() { Ok(()) } else { self.set_captures(&files) }
    }

    /// Calls `tap` for each sent frame, in the sending thread; `None` ends that. A concurrent send may call
    /// the former one once more.
    pub fn set_tap(&self, tap: Option<DummyTap>) {
        self.state().tap = tap.map(Arc::from);
    }

    /// Marks frames received from now on ([`Packet::mark`](packet::Packet::mark)); `None` ends that.
    pub fn set_marker(&self, marker: Option<DummyMarker>) {
        *lock(&self.0.marker) = marker;
    }

    fn mark_of(&self, frame: &[u8]) -> u32 {
        let marker = lock(&self.0.marker).clone();
        marker.map_or(0, |marker| marker(frame))
    }

    /// Counters. The receive queues are read one after the other.
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
