//! The interface of ports: queues of either direction and their reports.
//!
//! A receive queue belongs to one thread at a time. Every transmit queue is independent of the others of its
//! port. Dropping a port closes it; its queues live until they are dropped too.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::lending::{Lending, LentKind, LentQueue};

use packet::{PacketBatch, PacketPool};

/// Frames coming in.
pub trait RxQueue: Send {
    /// Readable when frames wait (or an error does), for poll(2).
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends waiting frames to `batch`, at most `max_packets` and at most [`packet::BURST_MAX_PACKETS`],
    /// and returns their number. Never blocks; 0 if none waits. An error is that of the device (down:
    /// `ENETDOWN`, gone: `ENXIO`, `EBADFD`). A `system` port reports it once; further calls are allowed.
    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize>;

    /// Losses so far.
    fn counters(&self) -> RxCounters;

    /// Lends the queue to another process, which receives once this one has stopped. It exchanges no descriptor until
    /// [`RxQueue::take_back`].
    ///
    /// # Errors
    /// No descriptor is left.
    fn lend(&mut self) -> io::Result<Lending> {
        Ok(Lending::Refused("queues of this kind stay with their process"))
    }

    /// The other process has given up.
    fn take_back(&mut self) {}

    /// The place of the next frame in memory shared with the kernel; 0 without such memory.
    fn place(&self) -> u32 {
        0
    }

    /// Receives from that place on, at which another process stopped.
    fn go_on_at(&mut self, place: u32) {
        let _ = place;
    }

    /// Its use of memory and descriptors now.
    fn mode(&self) -> RxMode {
        RxMode::Idle
    }

    /// Adapts memory to the frames since the last review; about ten times a second, or once a second without frames.
    /// `now_us`: of any clock that only moves forwards. May begin a change ([`RxMode::Changing`]), but exchanges no
    /// descriptor itself.
    fn review(&mut self, _now_us: u64) {}
}

/// State of a receive queue that adapts to its traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RxMode {
    /// Needs no review while it has no frames.
    Idle,
    /// Has memory to give back: needs reviews also without frames.
    Fast,
    /// [`RxQueue::recv`] exchanges its descriptor ([`RxQueue::fd`]). Frames may wait although that is not readable, so
    /// call `recv` at least each millisecond.
    Changing,
}

/// A further descriptor of an open file, for another process.
pub(crate) fn lent(kind: LentKind, fd: &OwnedFd) -> io::Result<Lending> {
    Ok(Lending::Queue(LentQueue { kind, fds: vec![fd.try_clone()?] }))
}

/// Frames going out.
pub trait TxQueue: Send {
    /// Sends all frames of `batch` in order, frees them into `pool` and leaves the batch empty. Blocks only
    /// in the device's own system call.
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport;
}

/// Losses of a receive queue since it was opened, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxCounters {
    /// No room in the kernel: the queue was not emptied fast enough.
    pub kernel_drops: u64,
    /// Too short for Ethernet, or with an invalid or unknown offload header.
    pub malformed: u64,
    /// Longer than the maximum frame.
    pub truncated: u64,
}

/// Reason for a transmit drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TxDrop {
    /// The kernel or the device's queueing discipline had no buffer (`ENOBUFS`, `ENOMEM`).
    NoBuffers,
    /// The socket's send buffer stayed full (`EAGAIN`).
    QueueFull,
    /// The device is down or gone (`ENETDOWN`, `ENXIO`, `ENODEV`, a tap's `EIO` and `EBADFD`).
    PortDown,
    /// Longer than the device's MTU (`EMSGSIZE`).
    TooLarge,
    /// A large segment whose headers do not permit segmentation.
    BadOffload,
    /// Rejected by the kernel for another reason.
    Refused,
    /// Beyond the rates of the port's policer.
    Policed,
    /// Its queue of the switch's own scheduler was full.
    QosQueueFull,
}

impl TxDrop {
    /// All reasons, in the order of their counters.
    pub const ALL: [TxDrop; 8] = [
        TxDrop::NoBuffers,
        TxDrop::QueueFull,
        TxDrop::PortDown,
        TxDrop::TooLarge,
        TxDrop::BadOffload,
        TxDrop::Refused,
        TxDrop::Policed,
        TxDrop::QosQueueFull,
    ];

    pub(crate) fn of(e: &io::Error) -> TxDrop {
        match e.raw_os_error().unwrap_or(0) {
            libc::ENOBUFS | libc::ENOMEM => TxDrop::NoBuffers,
            libc::EAGAIN => TxDrop::QueueFull,
            libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EIO | libc::EBADFD => TxDrop::PortDown,
            libc::EMSGSIZE => TxDrop::TooLarge,
            _ => TxDrop::Refused,
        }
    }
}

/// Result for a batch: every frame of it, and every frame segmented by software, is either sent or dropped,
/// so `frames in the batch + generated_packets = sent_packets + dropped_packets()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxReport {
    /// Frames passed to the device; a large segment split by the device counts once.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Extra frames from segmentation by software.
    pub generated_packets: u64,
    /// Frames sent from the memory in which another `afxdp` port received them.
    pub in_place_packets: u64,
    drops: [u64; TxDrop::ALL.len()],
}

impl TxReport {
    /// Frames dropped for one reason.
    pub fn dropped(&self, why: TxDrop) -> u64 {
        self.drops[why as usize]
    }

    /// Frames dropped for any reason.
    pub fn dropped_packets(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Adds another report to this one.
    pub fn add(&mut self, other: &TxReport) {
        self.sent_packets += other.sent_packets;
        self.sent_bytes += other.sent_bytes;
        self.generated_packets += other.generated_packets;
        self.in_place_packets += other.in_place_packets;
        self.add_drops(other);
    }

    /// Adds the drops of another report.
    pub fn add_drops(&mut self, other: &TxReport) {
        for (mine, theirs) in self.drops.iter_mut().zip(other.drops) {
            *mine += theirs;
        }
    }

    /// Takes out drops for one reason, at most those it has.
    pub fn take_drops(&mut self, why: TxDrop, packets: u64) {
        let drops = &mut self.drops[why as usize];
        *drops = drops.saturating_sub(packets);
    }

    /// Counts drops.
    pub fn count_drops(&mut self, why: TxDrop, packets: usize) {
        self.drops[why as usize] += packets as u64;
    }

    /// Counts a frame of that many bytes as sent.
    pub fn count_sent(&mut self, bytes: usize) {
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
    }
}

/// Identity of a network namespace: device and inode of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Namespace(u64, u64);

impl Namespace {
    /// Identity of the calling thread.
    pub(crate) fn current() -> io::Result<Namespace> {
        std::fs::metadata("/proc/thread-self/ns/net").map(|file| Namespace(file.dev(), file.ino()))
    }

    /// Identity of an open file of a namespace.
    pub(crate) fn of(file: OwnedFd) -> io::Result<Namespace> {
        File::from(file).metadata().map(|file| Namespace(file.dev(), file.ino()))
    }
}

/// The device behind a port.
pub(crate) trait PortDevice: Send + Sync {
    /// Creates a transmit queue.
    fn open_tx(&self) -> io::Result<Box<dyn TxQueue>>;

    /// Whether a device created by the port still exists; `None`: the port created none.
    fn exists(&self) -> Option<bool>;

    /// Makes a device created by the port outlive the process and its port, or end with them.
    fn persist(&self, persistent: bool) -> io::Result<()>;

    /// Present index of a device created by the port, which may have been moved and back; 0: it is in another namespace
    /// than this one, which is the calling thread's. `None`: it is gone, or the port created none.
    fn index_in(&self, namespace: &Namespace) -> Option<u32>;
}

/// Methods of a [`PortDevice`] that the port did not create.
macro_rules! not_created {
    () => {
        fn exists(&self) -> Option<bool> {
            None
        }

        fn persist(&self, _persistent: bool) -> std::io::Result<()> {
            Ok(())
        }

        fn index_in(&self, _namespace: &crate::port::Namespace) -> Option<u32> {
            None
        }
    };
}
pub(crate) use not_created;

/// An open port.
pub struct Port {
    name: String,
    ifindex: AtomicU32,
    /// The receive queues, to be moved to the polling threads.
    pub rx: Vec<Box<dyn RxQueue>>,
    device: Box<dyn PortDevice>,
}

impl Port {
    /// A port with that device; the index is 0 for one unknown to the kernel.
    pub(crate) fn new(
        name: &str,
        ifindex: u32,
        rx: Vec<Box<dyn RxQueue>>,
        device: impl PortDevice + 'static,
    ) -> Port {
        Port { name: name.to_owned(), ifindex: ifindex.into(), rx, device: Box::new(device) }
    }

    /// Creates a transmit queue. Call once for every sending thread, in the network namespace of the port.
    pub fn tx(&self) -> io::Result<Box<dyn TxQueue>> {
        self.device.open_tx()
    }

    /// Whether a tap's device still exists. It may be in another network namespace, where it keeps working;
    /// link events report that as a deletion. `None` for devices that this port did not create (moving them
    /// loses them) and for ports without one.
    pub fn exists(&self) -> Option<bool> {
        self.device.exists()
    }

    /// Makes a tap outlive the process and its port, or end with them; nothing for other devices.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn persist(&self, persistent: bool) -> io::Result<()> {
        self.device.persist(persistent)
    }

    /// Asks the kernel for the index of a device created by the port, which gets another one when it is moved into a
    /// namespace where its own is taken; 0: it is in another network namespace than the calling thread's. `None`: it is
    /// gone, or the port created none. [`Port::ifindex`] has the answer from now on.
    pub fn renew_ifindex(&self) -> Option<u32> {
        match Namespace::current() {
            Ok(here) => self.ifindex.store(self.index_in(&here)?, Ordering::Relaxed),
            // Without /proc it keeps the one that it has.
            Err(_) => drop(self.exists().filter(|exists| *exists)?),
        }
        Some(self.ifindex())
    }

    /// As [`Port::renew_ifindex`], in this namespace; keeps nothing.
    pub(crate) fn index_in(&self, here: &Namespace) -> Option<u32> {
        self.device.index_in(here)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's index when it was opened, or last [renewed](Port::renew_ifindex); for a port without a device the
    /// configured one, or 0.
    pub fn ifindex(&self) -> u32 {
        self.ifindex.load(Ordering::Relaxed)
    }
}
