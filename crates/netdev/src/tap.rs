//! `tap` and `internal` ports: a tap device (the kernel's `tuntap` document), with `virtio_net_hdr`, so the
//! host passes its TCP and UDP segments large and with partial checksums.
//!
//! A device is persistent once its port is in the datapath ([`Port::persist`]): it outlives the process with its state,
//! addresses and routes, and the next process takes it over. Else closing the last descriptor removes it. Writing to a tap that
//! is down does not fail: those frames count as [`TxDrop::PortDown`].

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dpif::{InternalPort, TapPort};
use libc::{c_int, c_uint};
use packet::headers::ETH_HEADER_BYTES;
use packet::{BURST_MAX_PACKETS, Offload, PacketBatch, PacketPool, VIRTIO_NET_HDR_BYTES, is_tunneled};

use crate::finish_offloads::{exceeds_virtio, finish_offloads};
use crate::lending::{Lending, LentKind};
use crate::link::{self, removal};
use crate::open::{OpenedPort, Opener, Opening};
use crate::port::{Namespace, Port, PortDevice, RxCounters, RxQueue, TxDrop, TxQueue, TxReport, lent};
use crate::raw::{self, context};
use crate::system::{MAX_RX_QUEUES, io_slice, read_slice, virtio_header, whole};

/// Options of a tap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapOptions {
    /// Ethernet address; the kernel's random one otherwise.
    pub mac: Option<[u8; 6]>,
    /// MTU in bytes; 1500 otherwise.
    pub mtu: Option<u32>,
    /// Leave checksums and segmentation of frames to the host undone; otherwise software does both.
    pub tx_offload: bool,
    /// Let the host leave checksums and segmentation of its frames undone.
    pub rx_offload: bool,
    /// Receive queues, clamped to 1 to [`MAX_RX_QUEUES`]. The kernel distributes the host's output over them
    /// by flow: a flow uses the queue that its reverse direction was written to, if any. With one queue the
    /// device lacks `IFF_MULTI_QUEUE`, which matters when taking over a persistent one.
    pub n_rxq: usize,
}

impl Default for TapOptions {
    fn default() -> TapOptions {
        TapOptions { mac: None, mtu: None, tx_offload: true, rx_offload: true, n_rxq: 1 }
    }
}

impl Opener for TapPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        let spec = opening.spec;
        let options = TapOptions { mac: spec.mac.map(|m| m.0), mtu: spec.mtu, ..TapOptions::default() };
        Port::open_tap(&spec.name, &options).map(OpenedPort::of_kernel)
    }
}

impl Opener for InternalPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        TapPort.open(opening)
    }
}

impl Port {
    /// Creates a tap in the calling thread's network namespace (CAP_NET_ADMIN), down. Takes over an unused persistent tap
    /// of that name as it is. A new one is removed with the port and its queues, unless [`Port::persist`] keeps it.
    pub fn open_tap(name: &str, options: &TapOptions) -> io::Result<Port> {
        let tap = create(name, options)?;
        Ok(Port::new(name, tap.ifindex, tap.open_rx(), tap))
    }
}

/// Opens a tap by its queues, which another process lends. The device stays as it is.
pub(crate) fn adopt(name: &str, fds: Vec<OwnedFd>) -> io::Result<Port> {
    let failed = |what: &str| context(format!("tap {name}: {what}"));
    for fd in &fds {
        if !attached_to(fd, name).map_err(failed("a lent descriptor is no tap"))? {
            return Err(failed("a lent descriptor is of another tap")(io::ErrorKind::InvalidInput.into()));
        }
    }
    let ifindex = raw::ifindex(name)?;
    let options = TapOptions { n_rxq: fds.len(), ..TapOptions::default() };
    let fds = fds.into_iter().map(Arc::new).collect();
    let tap = Tap { ifindex, fds, options, tx_queues: AtomicUsize::new(0) };
    Ok(Port::new(name, ifindex, tap.open_rx(), tap))
}

/// Whether a descriptor is attached to the tap of that name, and not to another one.
fn attached_to(fd: &OwnedFd, name: &str) -> io::Result<bool> {
    Ok(present_name(fd)?.to_bytes() == name.as_bytes())
}

/// Name of the descriptor's device at present, in the device's own namespace; an error if the device is gone.
fn present_name(fd: &OwnedFd) -> io::Result<CString> {
    // SAFETY: ifreq is plain data for which all zeros are valid.
    let mut req: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: TUNGETIFF writes name and flags into the ifreq.
    unsafe { raw::ioctl_ifreq(fd, libc::TUNGETIFF as _, &mut req) }?;
    // SAFETY: the kernel has written a C string.
    Ok(unsafe { CStr::from_ptr(req.ifr_name.as_ptr()) }.to_owned())
}

/// A created tap, as kept by its port.
struct Tap {
    ifindex: u32,
    /// One for each queue.
    fds: Vec<Arc<OwnedFd>>,
    options: TapOptions,
    /// Number of transmit queues created: they are spread over the device's queues in turn.
    tx_queues: AtomicUsize,
}

/// Creates the device, or takes over a persistent one of that name that no process has open.
fn create(name: &str, options: &TapOptions) -> io::Result<Tap> {
    let failed = |what: &str| context(format!("tap {name}: {what}"));
    if name.contains('%') {
        // The kernel would insert a number there and change the name.
        let what = format!("tap {name}: a name with \"%\" is a pattern, not a name");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let count = options.n_rxq.clamp(1, MAX_RX_QUEUES);
    let attach_all =
        || (0..count).map(|_| attach(name, count > 1).map(Arc::new)).collect::<io::Result<Vec<_>>>();
    let fds = match attach_all() {
        // A persistent device of the other kind of queues: it makes room.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && remove_persistent(name, count == 1).is_ok() => {
            attach_all()
        }
        other => other,
    };
    let fds = fds.map_err(failed("cannot be made"))?;
    let fd = &fds[0];
    set_offload(fd, options.rx_offload).map_err(failed("TUNSETOFFLOAD"))?;
    let ifindex = raw::ifindex(name)?;
    if let Some(mac) = options.mac {
        link::set_mac(ifindex, mac).map_err(failed("cannot set its Ethernet address"))?;
    }
    if let Some(mtu) = options.mtu {
        link::set_mtu(ifindex, mtu).map_err(failed("cannot set its MTU"))?;
    }
    let options = options.clone();
    Ok(Tap { ifindex, fds, options, tx_queues: AtomicUsize::new(0) })
}

/// A descriptor of the device, which is made if it is missing; with several queues or one.
fn attach(name: &str, several: bool) -> io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path is a C string; a descriptor returned by open is new.
    let fd = unsafe { raw::own(raw::check(libc::open(c"/dev/net/tun".as_ptr(), flags))?) };
    let mut req = raw::ifreq(name)?;
    let queues = if several { libc::IFF_MULTI_QUEUE } else { 0 };
    req.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | queues) as i16;
    // SAFETY: TUNSETIFF takes an ifreq and writes the name into it.
    unsafe { raw::ioctl_ifreq(&fd, libc::TUNSETIFF as _, &mut req) }?;
    Ok(fd)
}

/// Whether the device outlives its last descriptor.
fn set_persistent(fd: &OwnedFd, persistent: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes 0 or 1 as the argument itself.
    raw::check(unsafe {
        libc::ioctl(fd.as_raw_fd(), libc::TUNSETPERSIST as _, libc::c_ulong::from(persistent))
    })
    .map(drop)
}

/// Removes a persistent device that no process has open; `several` queues or one.
fn remove_persistent(name: &str, several: bool) -> io::Result<()> {
    set_persistent(&attach(name, several)?, false)
}

impl Tap {
    /// Its receive queues.
    fn open_rx(&self) -> Vec<Box<dyn RxQueue>> {
        let queue = |fd: &Arc<OwnedFd>| -> Box<dyn RxQueue> {
            Box::new(TapRx { fd: Arc::clone(fd), counters: RxCounters::default() })
        };
        self.fds.iter().map(queue).collect()
    }
}

impl PortDevice for Tap {
    fn open_tx(&self) -> io::Result<Box<dyn TxQueue>> {
        let at = self.tx_queues.fetch_add(1, Ordering::Relaxed) % self.fds.len();
        Ok(Box::new(TapTx { fd: self.fds[at].clone(), offload: self.options.tx_offload }))
    }

    /// Possibly in another network namespace.
    fn exists(&self) -> Option<bool> {
        Some(present_name(&self.fds[0]).is_ok())
    }

    fn persist(&self, persistent: bool) -> io::Result<()> {
        set_persistent(&self.fds[0], persistent)
    }

    fn index_in(&self, namespace: &Namespace) -> Option<u32> {
        let name = present_name(&self.fds[0]).ok()?;
        // SAFETY: TUNGETDEVNETNS takes no argument; the descriptor that it returns is new.
        let own = unsafe {
            raw::check(libc::ioctl(self.fds[0].as_raw_fd(), libc::TUNGETDEVNETNS as _)).map(|fd| raw::own(fd))
        };
        if !own.and_then(Namespace::of).is_ok_and(|own| own == *namespace) {
            return Some(0);
        }
        raw::ifindex(name.to_str().ok()?).ok()
    }
}

/// Removes the devices that these ports created: those in the calling thread's network namespace by one request, as each
/// request takes the kernel some 20 ms; others end with their last descriptor. Returns the names and errors of devices that
/// the kernel keeps. Ports of other devices stay as they are.
pub fn end_devices<'a>(ports: impl IntoIterator<Item = &'a Port>) -> Vec<(&'a str, io::Error)> {
    let mut made: Vec<&Port> = ports.into_iter().filter(|port| port.exists() == Some(true)).collect();
    if made.len() > 1
        && let Ok(here) = Namespace::current()
    {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for port in made {
            // Another device may have the index that this one had once.
            match port.index_in(&here) {
                Some(ifindex) if ifindex != 0 => near.push((port, ifindex)),
                _ => far.push(port),
            }
        }
        for together in near.chunks(removal::TOGETHER) {
            let ifindexes: Vec<u32> = together.iter().map(|(_, ifindex)| *ifindex).collect();
            match removal::delete_together(&ifindexes) {
                Ok(unknown) => far.extend(unknown.into_iter().filter_map(|at| Some(together.get(at)?.0))),
                // One by one then.
                Err(_) => far.extend(together.iter().map(|(port, _)| *port)),
            }
        }
        made = far;
    }
    made.into_iter().filter_map(|port| Some((port.name(), port.persist(false).err()?))).collect()
}

/// Enables all offloads known to the kernel (UDP segmentation since Linux 6.2), or none.
fn set_offload(fd: &OwnedFd, wanted: bool) -> io::Result<()> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let set = |bits: c_uint| {
        // SAFETY: TUNSETOFFLOAD takes its bits as the argument itself.
        raw::check(unsafe {
            libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, libc::c_ulong::from(bits))
        })
        .map(drop)
    };
    if wanted { set(tcp | udp).or_else(|_| set(tcp)) } else { set(0) }
}

struct TapRx {
    fd: Arc<OwnedFd>,
    counters: RxCounters,
}

impl RxQueue for TapRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        let before = batch.len();
        for _ in 0..max_packets.min(BURST_MAX_PACKETS) {
            match self.recv_one(pool, batch) {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => self.counters.malformed += 1,
                // Received frames go first; a lasting error repeats.
                Err(_) if batch.len() > before => break,
                Err(e) => return Err(e),
            }
        }
        Ok(batch.len() - before)
    }

    fn counters(&self) -> RxCounters {
        self.counters
    }

    fn lend(&mut self) -> io::Result<Lending> {
        lent(LentKind::Tap, &self.fd)
    }
}

impl TapRx {
    /// Reads one frame; `false` when none waits.
    fn recv_one(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch) -> io::Result<bool> {
        let mut hdr = [0; VIRTIO_NET_HDR_BYTES];
        let mut p = pool.alloc(1);
        let received = raw::with_overflow(1, |overflow| {
            let bytes = loop {
                let parts = [io_slice(&mut hdr), io_slice(p.receive_room()), io_slice(overflow)];
                // SAFETY: the three parts are distinct buffers, alive through the call, with their lengths.
                match raw::check_len(unsafe { libc::readv(self.fd.as_raw_fd(), parts.as_ptr(), 3) }) {
                    Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                    Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => return Ok((p, false)),
                    Err(e) => return Err(e),
                    Ok(bytes) => break bytes,
                }
            };
            let frame_bytes = bytes.saturating_sub(VIRTIO_NET_HDR_BYTES);
            Ok((whole(p, frame_bytes, overflow, pool), true))
        });
        let (mut p, any) = received?;
        let offload = Offload::from_virtio(&hdr, p.len()).filter(|_| p.len() >= ETH_HEADER_BYTES);
        match offload {
            Some(offload) if any => {
                p.offload = offload;
                batch.push(p);
            }
            _ => {
                self.counters.malformed += u64::from(any);
                pool.free(p);
            }
        }
        Ok(any)
    }
}

struct TapTx {
    fd: Arc<OwnedFd>,
    offload: bool,
}

impl TxQueue for TapTx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        if !self.offload || batch.packets().iter().any(|p| exceeds_virtio(p) || is_tunneled(p)) {
            finish_offloads(batch, pool, &mut report);
        }
        let packets = batch.packets();
        for (i, p) in packets.iter().enumerate() {
            let hdr = virtio_header(p);
            let parts = [read_slice(&hdr), read_slice(p.data())];
            let result = loop {
                // SAFETY: both parts live through the call; the kernel only reads them.
                let written =
                    unsafe { libc::writev(self.fd.as_raw_fd(), parts.as_ptr(), parts.len() as c_int) };
                match raw::check_len(written) {
                    Err(e) if e.raw_os_error() == Some(libc::EINTR) => {}
                    other => break other,
                }
            };
            match result.map_err(|e| TxDrop::of(&e)) {
                Ok(_) => report.count_sent(p.len()),
                Err(TxDrop::PortDown) => {
                    report.count_drops(TxDrop::PortDown, packets.len() - i);
                    break;
                }
                Err(why) => report.count_drops(why, 1),
            }
        }
        batch.free_into(pool);
        report
    }
}
