//! `system` ports: an existing Ethernet device by AF_PACKET (packet(7)).
//!
//! Receiving: an idle port has a plain socket, one with much traffic also a ring (`grow`). Each has
//! `PACKET_VNET_HDR`, so frames with partial checksums and large segments of up to 64 KB arrive unchanged and
//! whole. VLAN tags stripped by the device (`PACKET_AUXDATA`) are put back into the bytes. Frames sent by the
//! host or this process on the device are not received.
//!
//! With several receive queues, `fanout` distributes the device's frames over them by flow.
//!
//! Sending: by the port's receive socket, so an idle port costs one descriptor. A queue with many bursts gets separate
//! sockets, bound with protocol 0 so that they receive nothing: one for finished frames, one with `PACKET_VNET_HDR` for
//! those with offloads. There are at most [`OWN_SOCKETS_MAX`] of them in the process.
//!
//! The host's own stack also sees the frames of such a device; avoiding that is up to the user (no addresses
//! on it).

mod fanout;
mod grow;
mod pace;
mod queue_sockets;
mod ring;
mod rings;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dpif::SystemPort;
use libc::c_int;

use crate::kept::Kept;
use crate::lending::{LentKind, LentQueue};
use crate::open::{OpenedPort, Opener, Opening};
use crate::port::{Port, PortDevice, RxQueue, TxQueue, not_created};
use crate::{link, raw};

pub use rings::start_ring_threads;
pub(crate) use rx::{io_slice, whole};
pub(crate) use tx::{read_slice, virtio_header};

/// The most receive queues of a port.
pub const MAX_RX_QUEUES: usize = 64;
/// Maximum ring slots (2 KB) of all receive queues of a port: 32 MB.
pub const MAX_RING_SLOTS: u32 = 1 << 14;

/// Once the process has that many ring slots (512 MB), new rings have [`FEW_SLOTS`].
pub const ALL_RING_SLOTS: usize = 1 << 18;
/// Slots of a new ring beyond that limit.
pub const FEW_SLOTS: u32 = 128;

/// Receive method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RxMethod {
    /// [`RxMethod::Recvmmsg`] while frames come slowly, [`RxMethod::Ring`] while they come fast ([`RxQueue::review`]). A
    /// ring with several queues, and where the kernel lacks the means.
    #[default]
    Grow,
    /// A shared ring (TPACKET_V2) of 2 KB slots; longer frames arrive by recvmsg in between.
    Ring,
    /// recvmmsg(2) straight into packet buffers.
    Recvmmsg,
}

/// Options of a `system` port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemOptions {
    /// Receive method.
    pub rx_method: RxMethod,
    /// Exchange offload metadata with the kernel (`PACKET_VNET_HDR`). Without it, frames arrive with partial
    /// checksums and no indication of that: only for devices without offloads.
    pub vnet_hdr: bool,
    /// Leave checksums and segmentation of sent frames to the device; otherwise software does both.
    pub tx_offload: bool,
    /// Let the kernel suppress outgoing frames (`PACKET_IGNORE_OUTGOING`); otherwise, and on kernels before
    /// 4.20, they are filtered here.
    pub ignore_outgoing: bool,
    /// Receive frames for other stations too.
    pub promiscuous: bool,
    /// Use separate sockets for a transmit queue with many bursts while the process has few of them
    /// ([`OWN_SOCKETS_MAX`]); otherwise the port's receive socket, which costs a little more per frame and no descriptor.
    pub own_tx_sockets: bool,
    /// Send a burst by one sendmmsg(2); otherwise, and if the kernel lacks it, by sendmsg(2) each.
    pub sendmmsg: bool,
    /// Send runs of datagrams fresh from a host of this machine as large segments (needs `tx_offload`, and
    /// Linux 6.2). The device counts, and a capture on it shows, one frame for a run.
    pub merge_udp: bool,
    /// Receive buffer of the socket, in bytes (the kernel doubles it); for a ring the queue of long frames only. 8 MB hold
    /// 4,096 frames of 1,500 bytes, with the kernel's own part of each.
    pub rx_buffer_bytes: u32,
    /// Send buffer of each transmit queue's socket, in bytes (the kernel doubles it).
    pub tx_buffer_bytes: u32,
    /// Slots of a receive ring, 2 KB each; a power of two. Fewer for many queues ([`MAX_RING_SLOTS`]) and
    /// many ports ([`ALL_RING_SLOTS`]).
    pub ring_slots: u32,
    /// Receive queues, clamped to 1 to [`MAX_RX_QUEUES`]. Kernels before 6.13 permit more than one only while
    /// the device is up.
    pub n_rxq: usize,
}

impl Default for SystemOptions {
    fn default() -> SystemOptions {
        SystemOptions {
            rx_method: RxMethod::default(),
            vnet_hdr: true,
            tx_offload: true,
            ignore_outgoing: true,
            promiscuous: true,
            own_tx_sockets: true,
            sendmmsg: true,
            merge_udp: true,
            rx_buffer_bytes: 8 << 20,
            tx_buffer_bytes: 4 << 20,
            ring_slots: 1024,
            n_rxq: 1,
        }
    }
}

impl Opener for SystemPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        let (name, n_rxq) = (&opening.spec.name, self.n_rxq as usize);
        let options = SystemOptions { n_rxq, merge_udp: self.merge_udp, ..opening.system.clone() };
        let ifindex = link::link_info(name)?.ifindex;
        // A device stays down if it is down, but several queues share its frames only while it is up.
        if n_rxq > 1 {
            link::set_admin_up(ifindex, true)?;
        }
        Port::open_system(name, &options).map(OpenedPort::of_kernel)
    }
}

impl Port {
    /// Opens an existing Ethernet device of the calling thread's network namespace by AF_PACKET
    /// (CAP_NET_RAW). Leaves its administrative state unchanged; makes it promiscuous until the receive queue
    /// is dropped.
    pub fn open_system(name: &str, options: &SystemOptions) -> io::Result<Port> {
        let (queues, device) = open_rx(name, options)?;
        Ok(Port::new(name, device.ifindex, queues, device))
    }
}

/// State needed for new transmit queues.
struct SystemDevice {
    name: String,
    ifindex: u32,
    options: SystemOptions,
    /// Socket of the first receive queue.
    receiving: Arc<OwnedFd>,
    /// Sockets of all receive queues, without the rings of queues that grow.
    kept: Vec<Kept>,
}

/// Opens the receive side.
fn open_rx(name: &str, options: &SystemOptions) -> io::Result<(Vec<Box<dyn RxQueue>>, SystemDevice)> {
    let failed = |what: &str| raw::context(format!("device {name}: {what}"));
    let ifindex = raw::ifindex(name)?;
    let count = options.n_rxq.clamp(1, MAX_RX_QUEUES);
    let sockets: io::Result<Vec<_>> = (0..count).map(|_| open_rx_socket(name, ifindex, options)).collect();
    let sockets = sockets?;
    let fds: Vec<_> = sockets.iter().map(|(fd, _)| fd.as_fd()).collect();
    let mut ignores = sockets.iter().all(|(_, ignores)| *ignores);
    // Each socket receives all frames until all have joined, so they are blocked until then.
    if count > 1 {
        for fd in &fds {
            fanout::shut(fd).map_err(failed("cannot hold back frames"))?;
            bind(fd, ifindex, libc::ETH_P_ALL as u16).map_err(failed("cannot bind"))?;
        }
        let what = format!("{count} receive queues (PACKET_FANOUT; before Linux 6.13 the device must be up)");
        ignores = fanout::join(&fds, options.ignore_outgoing).map_err(failed(&what))?;
    }
    let sockets: Vec<_> = sockets.into_iter().map(|(fd, _)| Arc::new(fd)).collect();
    let receiving = sockets[0].clone();
    let mut device = SystemDevice {
        name: name.to_owned(),
        ifindex,
        options: options.clone(),
        receiving,
        kept: Vec::new(),
    };
    let setup = rx::Setup { vnet_hdr: options.vnet_hdr, drop_outgoing: !ignores };
    let slots = slots_per_queue(options.ring_slots, count);
    if count == 1 && options.rx_method == RxMethod::Grow {
        let fd = device.receiving.clone();
        let opened = grow::GrowRx::open(name, fd, ifindex, options, slots).map_err(failed("cannot bind"))?;
        if let Some(queue) = opened {
            device.kept.extend(Kept::receiving(name, 0, queue.base_kind(), &device.receiving));
            return Ok((vec![Box::new(queue)], device));
        }
    }
    let mut queues: Vec<Box<dyn RxQueue>> = Vec::with_capacity(count);
    for (number, fd) in sockets.into_iter().enumerate() {
        let (kind, queue): (_, Box<dyn RxQueue>) = match options.rx_method {
            RxMethod::Recvmmsg => {
                (LentKind::Socket(setup.lent()), Box::new(rx::SocketRx::new(fd.clone(), setup)))
            }
            RxMethod::Ring | RxMethod::Grow => {
                let ring = ring::RingRx::new(fd.clone(), setup, slots);
                let ring = ring.map_err(failed("cannot make a receive ring"))?;
                (ring.kind(), Box::new(ring))
            }
        };
        device.kept.extend(Kept::receiving(name, number, kind, &fd));
        queues.push(queue);
    }
    // Opened last: no frame arrives before the setup is complete.
    for queue in &queues {
        if count > 1 {
            fanout::open(&queue.fd()).map_err(failed("cannot let frames in"))?;
        } else {
            bind(&queue.fd(), ifindex, libc::ETH_P_ALL as u16).map_err(failed("cannot bind"))?;
        }
    }
    Ok((queues, device))
}

/// Opens a device by the sockets of its receive queues, which another process lends.
pub(crate) fn adopt(name: &str, options: &SystemOptions, queues: Vec<LentQueue>) -> io::Result<Port> {
    let failed = |what: &str| raw::context(format!("device {name}: {what}"));
    let ifindex = raw::ifindex(name)?;
    let (mut rx, mut receiving, mut vnet_hdr) = (Vec::<Box<dyn RxQueue>>::new(), None, options.vnet_hdr);
    let mut kept = Vec::new();
    for LentQueue { kind, fds } in queues {
        for fd in &fds {
            let bound = raw::bound_ifindex(fd).map_err(failed("a lent descriptor is no packet socket"))?;
            if bound != ifindex {
                let other = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(failed("a lent socket is of another device")(other));
            }
        }
        let mut fds = fds.into_iter().map(Arc::new);
        let (LentKind::Socket(socket) | LentKind::Ring(socket, _) | LentKind::Growing(socket, ..)) = kind
        else {
            continue;
        };
        let Some(fd) = fds.next() else { continue };
        if receiving.is_none() {
            (receiving, vnet_hdr) = (Some(fd.clone()), socket.vnet_hdr);
        }
        kept.extend(Kept::receiving(name, rx.len(), kind.without_ring(), &fd));
        let setup = rx::Setup::of(socket);
        let no_ring = || failed("cannot map a lent receive ring");
        rx.push(match kind {
            LentKind::Ring(_, slots) => Box::new(ring::RingRx::adopt(fd, setup, slots).map_err(no_ring())?),
            LentKind::Growing(_, group, slots) => {
                let ring = fds.next().zip(slots);
                let ring = ring.map(|(fd, slots)| ring::RingRx::adopt(fd, setup, slots));
                let ring = ring.transpose().map_err(no_ring())?;
                let slots = slots_per_queue(options.ring_slots, 1);
                Box::new(grow::GrowRx::adopt(
                    grow::Plan::new(name, ifindex, options, slots),
                    fd,
                    setup,
                    group,
                    ring,
                ))
            }
            LentKind::Socket(_) | LentKind::Tap => Box::new(rx::SocketRx::new(fd, setup)),
        });
    }
    let receiving = receiving.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let options = SystemOptions { vnet_hdr, n_rxq: rx.len(), ..options.clone() };
    let device = SystemDevice { name: name.to_owned(), ifindex, options, receiving, kept };
    Ok(Port::new(name, ifindex, rx, device))
}

/// Ring slots of each of `count` queues: a power of two each, within the bound in total.
fn slots_per_queue(wanted: u32, count: usize) -> u32 {
    wanted.min(MAX_RING_SLOTS / (count as u32).next_power_of_two())
}

/// An unbound receive socket, and whether the kernel suppresses outgoing frames.
fn open_rx_socket(name: &str, ifindex: u32, options: &SystemOptions) -> io::Result<(OwnedFd, bool)> {
    let failed = |what: &str| raw::context(format!("device {name}: {what}"));
    let fd = socket(options.vnet_hdr).map_err(failed("cannot open a packet socket"))?;
    require_ethernet(name, &fd)?;
    set_buffer(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, options.rx_buffer_bytes)
        .map_err(failed("receive buffer"))?;
    set_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, options.tx_buffer_bytes)
        .map_err(failed("send buffer"))?;
    raw::set_option(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1 as c_int)
        .map_err(failed("PACKET_AUXDATA"))?;
    let ignores = options.ignore_outgoing
        && raw::set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1 as c_int).is_ok();
    if options.promiscuous {
        make_promiscuous(&fd, ifindex).map_err(failed("promiscuous mode"))?;
    }
    Ok((fd, ignores))
}

/// Maximum number of separate transmit sockets in the process.
pub const OWN_SOCKETS_MAX: usize = 256;

static OWN_SOCKETS: AtomicUsize = AtomicUsize::new(0);

/// Reserves that many of those sockets until dropped.
pub(crate) struct OwnSockets(usize);

impl OwnSockets {
    fn take(sockets: usize) -> Option<OwnSockets> {
        let own = OwnSockets(sockets);
        // Given back by dropping it.
        (OWN_SOCKETS.fetch_add(sockets, Ordering::Relaxed) + sockets <= OWN_SOCKETS_MAX).then_some(own)
    }
}

impl Drop for OwnSockets {
    fn drop(&mut self) {
        OWN_SOCKETS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl PortDevice for SystemDevice {
    fn open_tx(&self) -> io::Result<Box<dyn TxQueue>> {
        let SystemDevice { name, ifindex, options, receiving, .. } = self;
        let opener = queue_sockets::Opener {
            name: name.clone(),
            ifindex: *ifindex,
            buffer_bytes: options.tx_buffer_bytes,
        };
        let offload = options.vnet_hdr && options.tx_offload;
        // Sockets that come later are opened in the network namespace of the sending thread.
        let at_once = options.rx_method == RxMethod::Ring;
        let own = if options.own_tx_sockets && at_once { opener.open_own(offload).ok() } else { None };
        let receiving = || tx::Sockets::Receiving { fd: receiving.clone(), vnet_hdr: options.vnet_hdr };
        let usual = own.unwrap_or_else(receiving);
        let grows = options.own_tx_sockets && !at_once;
        let sockets = queue_sockets::QueueSockets::new(usual, opener, offload, grows);
        Ok(Box::new(tx::SystemTx::new(name, sockets, offload, options.sendmmsg, options.merge_udp)))
    }

    not_created!();
}

/// Makes a device promiscuous while the packet socket is open.
pub(crate) fn make_promiscuous(fd: &OwnedFd, ifindex: u32) -> io::Result<()> {
    let mreq = libc::packet_mreq {
        mr_ifindex: ifindex as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    raw::set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, mreq)
}

fn socket(vnet_hdr: bool) -> io::Result<OwnedFd> {
    let fd = raw::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    if vnet_hdr {
        raw::set_option(&fd, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1 as c_int)?;
    }
    Ok(fd)
}

fn bind(fd: &impl AsFd, ifindex: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: ifindex as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    raw::bind(fd, &address)
}

/// Sets a buffer size beyond the system's limit if permitted, up to it otherwise.
fn set_buffer(fd: &OwnedFd, force: c_int, plain: c_int, bytes: u32) -> io::Result<()> {
    let bytes = bytes.min(i32::MAX as u32 / 2) as c_int;
    raw::set_option(fd, libc::SOL_SOCKET, force, bytes)
        .or_else(|_| raw::set_option(fd, libc::SOL_SOCKET, plain, bytes))
}

/// Rejects devices without Ethernet headers.
pub(crate) fn require_ethernet(name: &str, fd: &impl AsFd) -> io::Result<()> {
    let mut req = raw::ifreq(name)?;
    // SAFETY: SIOCGIFHWADDR takes an ifreq and fills ifru_hwaddr.
    let kind = unsafe {
        raw::ioctl_ifreq(fd, libc::SIOCGIFHWADDR as libc::c_ulong, &mut req)
            .map_err(raw::context(format!("device {name}: SIOCGIFHWADDR")))?;
        req.ifr_ifru.ifru_hwaddr.sa_family
    };
    if kind == libc::ARPHRD_ETHER || kind == libc::ARPHRD_LOOPBACK {
        return Ok(());
    }
    let what = format!("device {name} is no Ethernet device (type {kind}); a switch port must be one");
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}
