//! What a port is to its users: queues of either direction and their reports.
//!
//! A receive queue belongs to one thread at a time. Every transmit queue is independent of the others of its port. A
//! port that is dropped closes; its queues live on until they are dropped too.

use std::io;
use std::os::fd::BorrowedFd;

use packet::{PacketBatch, PacketPool};

use crate::afxdp::{self, AfxdpInfo, AfxdpOptions};
use crate::dummy::{Dummy, DummyOptions};
use crate::null::NullTx;
use crate::pcap::{self, PcapOptions};
use crate::system::{self, SystemOptions};
use crate::tap::{self, Tap, TapOptions};

/// Frames coming in.
pub trait RxQueue: Send {
    /// Readable when frames wait (or an error does), for poll(2).
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends waiting frames to `batch`, at most `max_packets` and at most [`packet::BURST_MAX_PACKETS`], and returns
    /// their number. Never blocks; 0 when none waits. An error is that of the device (gone down: `ENETDOWN`, gone:
    /// `ENXIO`, `EBADFD`); it is reported once by a `system` port, and calling again is allowed.
    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize>;

    /// What has been lost so far.
    fn counters(&self) -> RxCounters;
}

/// Frames going out.
pub trait TxQueue: Send {
    /// Sends all frames of `batch` in order, frees them into `pool` and leaves the batch empty. Blocks on nothing but
    /// the device's own system call.
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport;
}

/// Losses of a receive queue since it was opened, in frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RxCounters {
    /// The kernel had no room for them: the queue was not emptied fast enough.
    pub kernel_drops: u64,
    /// Too short for Ethernet, or with an offload header that makes no sense or that this switch does not know.
    pub malformed: u64,
    /// Longer than the largest frame taken.
    pub truncated: u64,
}

/// Why a frame was not sent.
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
    /// A large segment whose headers do not allow to cut it.
    BadOffload,
    /// The kernel refused it for another reason.
    Refused,
}

impl TxDrop {
    /// All reasons, in the order of their counters.
    pub const ALL: [TxDrop; 6] = [
        TxDrop::NoBuffers,
        TxDrop::QueueFull,
        TxDrop::PortDown,
        TxDrop::TooLarge,
        TxDrop::BadOffload,
        TxDrop::Refused,
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

/// What became of a batch: every frame of it, and every frame made of a large segment by software, is either sent or
/// dropped, so `frames in the batch + generated_packets = sent_packets + dropped_packets()`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxReport {
    /// Frames handed to the device; a large segment that the device cuts is one.
    pub sent_packets: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames more than were in the batch, because large segments were cut by software.
    pub generated_packets: u64,
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
        for (mine, theirs) in self.drops.iter_mut().zip(other.drops) {
            *mine += theirs;
        }
    }

    pub(crate) fn count_drops(&mut self, why: TxDrop, packets: usize) {
        self.drops[why as usize] += packets as u64;
    }

    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.sent_packets += 1;
        self.sent_bytes += bytes as u64;
    }
}

/// An open port.
pub struct Port {
    name: String,
    ifindex: u32,
    /// The receive queues, to be taken out and given to the threads that poll them.
    pub rx: Vec<Box<dyn RxQueue>>,
    way_out: WayOut,
}

enum WayOut {
    System(system::WayOut),
    Tap(Tap),
    Dummy(Dummy),
    Null,
    Pcap(pcap::TxFile),
    Afxdp(afxdp::WayOut),
}

impl Port {
    /// Opens an existing Ethernet device of the calling thread's network namespace by AF_PACKET (CAP_NET_RAW). Its own
    /// administrative state is left alone; it becomes promiscuous until the receive queue is dropped.
    pub fn open_system(name: &str, options: &SystemOptions) -> io::Result<Port> {
        let system::Opened { ifindex, queues, way_out } = system::open_rx(name, options)?;
        Ok(Port { name: name.to_owned(), ifindex, rx: queues, way_out: WayOut::System(way_out) })
    }

    /// Makes a tap in the calling thread's network namespace (CAP_NET_ADMIN), down, gone with the port and its queues.
    /// A persistent tap of that name that nobody uses is taken over.
    pub fn open_tap(name: &str, options: &TapOptions) -> io::Result<Port> {
        let tap = tap::create(name, options)?;
        Ok(Port {
            name: tap.name().to_owned(),
            ifindex: tap.ifindex(),
            rx: tap.open_rx(),
            way_out: WayOut::Tap(tap),
        })
    }

    /// Opens an existing Ethernet device by AF_XDP (see [`crate::afxdp`]; CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF), and tells
    /// how. It should be up. Frames no longer reach the host until the port and its receive queues are dropped.
    pub fn open_afxdp(name: &str, options: &AfxdpOptions) -> io::Result<(Port, AfxdpInfo)> {
        let opened = afxdp::open(name, options)?;
        let (ifindex, rx, way_out) = (opened.ifindex, opened.rx, WayOut::Afxdp(opened.way_out));
        Ok((Port { name: name.to_owned(), ifindex, rx, way_out }, opened.info))
    }

    /// Makes a port without a device (see [`crate::dummy`]) and what controls it. Any name will do.
    pub fn open_dummy(name: &str, options: &DummyOptions) -> io::Result<(Port, Dummy)> {
        let (dummy, rx) = Dummy::open(name, options)?;
        let way_out = WayOut::Dummy(dummy.clone());
        Ok((Port { name: name.to_owned(), ifindex: dummy.ifindex(), rx, way_out }, dummy))
    }

    /// Makes a port that loses what is sent to it and receives nothing: it has no receive queues. Any name will do.
    pub fn open_null(name: &str) -> Port {
        Port { name: name.to_owned(), ifindex: 0, rx: Vec::new(), way_out: WayOut::Null }
    }

    /// Makes a port of capture files (see [`crate::pcap`]). Any name will do.
    pub fn open_pcap(name: &str, options: &PcapOptions) -> io::Result<Port> {
        let (rx, file) = pcap::open(name, options)?;
        Ok(Port { name: name.to_owned(), ifindex: 0, rx, way_out: WayOut::Pcap(file) })
    }

    /// A new transmit queue. Call once for every thread that sends, in the network namespace of the port.
    pub fn tx(&self) -> io::Result<Box<dyn TxQueue>> {
        match &self.way_out {
            WayOut::System(out) => out.open_tx(&self.name, self.ifindex),
            WayOut::Tap(tap) => Ok(tap.open_tx()),
            WayOut::Dummy(dummy) => Ok(dummy.open_tx()),
            WayOut::Afxdp(out) => Ok(out.open_tx()),
            WayOut::Null => Ok(Box::new(NullTx)),
            WayOut::Pcap(file) => Ok(Box::new(pcap::PcapTx(file.clone()))),
        }
    }

    /// Whether a tap's device still is there. It may have been moved into another network namespace, where it goes on
    /// working; link events tell of that as of its end. `None` for devices that are not of this port's making (those
    /// are lost when they are moved) and for ports without one.
    pub fn exists(&self) -> Option<bool> {
        match &self.way_out {
            WayOut::System(_) | WayOut::Afxdp(_) | WayOut::Dummy(_) | WayOut::Null | WayOut::Pcap(_) => None,
            WayOut::Tap(tap) => Some(tap.exists()),
        }
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's index; for a port without a device what it was told to be when it was made, 0 otherwise.
    pub fn ifindex(&self) -> u32 {
        self.ifindex
    }
}
