//! `afxdp` ports: an existing Ethernet device by AF_XDP (the kernel's `af_xdp` document; Linux 5.9).
//!
//! An XDP program on the device redirects the frames of its receive queues 0 to n-1 to one socket each,
//! before the host's stack. In *native* mode the program runs in the device's driver, with or without copying
//! by the kernel (*zero-copy*); in *generic* mode before the host's stack, on any device. *Best effort* uses
//! the first that works, in the order native-with-zerocopy, native, generic.
//!
//! Invariants: the program is attached exactly while the port or one of its receive queues exists, also if
//! the process is killed. The memory of frames is bounded and shared by all ports, see `umem` and
//! [`MAX_RING_ENTRIES`].
//!
//! Frames that AF_XDP cannot carry are lost, and need settings by ethtool(8): checksums that a veth peer
//! leaves to its device (`-K PEER tx off`) and stripped VLAN tags (`rxvlan off`, on a veth peer `txvlan
//! off`); frames of more than some 3,500 bytes (`gro off lro off`; on a veth in generic mode the peer's `tso
//! off gso off`). Frames of device queues beyond n go to the host. Transmission has no offloads: software
//! computes checksums and segments.

mod program;
mod ring;
mod rx;
mod socket;
#[cfg(test)]
mod tests;
mod tx;
mod umem;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dpif::{AfxdpPort, XdpMode};

use crate::open::{OpenNote, OpenedPort, Opener, Opening};
use crate::port::{Port, PortDevice, RxQueue, TxQueue, not_created};
use crate::system::{MAX_RX_QUEUES, make_promiscuous, require_ethernet};
use crate::{link, raw};
use program::{Hook, SocketMap};
use socket::{MAX_RX_FRAME_BYTES, Setup};
use tx::{TxSide, XdpTx};

/// Module of the log.
const LOG_MODULE: &str = "netdev_afxdp";
/// Ring entries per queue and direction, with a chunk of 4 KB each.
const RING_ENTRIES: u32 = 1024;
/// Maximum ring entries of all queues of a port: 32 MB for received frames and as much for sent ones, out of a umem
/// of at most 160 MB.
pub const MAX_RING_ENTRIES: u32 = 1 << 13;
/// Frame bytes beyond the MTU: Ethernet header and one tag.
const HEADER_BYTES: usize = 18;

impl Opener for AfxdpPort {
    fn open(&self, opening: &Opening<'_>) -> io::Result<OpenedPort> {
        let name = &opening.spec.name;
        let ifindex = link::link_info(name)?.ifindex;
        // Its queues exist only while it is up.
        link::set_admin_up(ifindex, true)?;
        let (port, info) = Port::open_afxdp(name, self)?;
        let note = |text, is_warning| OpenNote { module: LOG_MODULE, text, is_warning };
        let mode = note(format!("{name}: xdp-mode {}", info.mode), false);
        let warnings = info.notes.into_iter().map(|text| note(text, true));
        let notes = std::iter::once(mode).chain(warnings).collect();
        Ok(OpenedPort { notes, ..OpenedPort::of_kernel(port) })
    }
}

impl Port {
    /// Opens an existing Ethernet device by AF_XDP (see [`crate::afxdp`]; CAP_NET_ADMIN, CAP_NET_RAW,
    /// CAP_BPF), and reports the mode. It should be up. Frames do not reach the host until the port and its
    /// receive queues are dropped.
    pub fn open_afxdp(name: &str, options: &AfxdpPort) -> io::Result<(Port, AfxdpInfo)> {
        let Opened { ifindex, rx, device, info } = open(name, options)?;
        Ok((Port::new(name, ifindex, rx, device), info))
    }
}

/// Result of opening a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AfxdpInfo {
    /// The mode in use; never [`XdpMode::BestEffort`].
    pub mode: XdpMode,
    /// Notes for the user: why a better mode failed, which frames will not be received.
    pub notes: Vec<String>,
}

/// Keeps frames arriving. The link is dropped first: without it no frame reaches the map.
struct Attachment {
    _link: OwnedFd,
    map: SocketMap,
    /// In zero-copy mode the device writes frames itself.
    device_writes: bool,
    _promiscuous: OwnedFd,
}

/// State needed for new transmit queues and for staying attached.
struct XdpDevice {
    sides: Vec<Arc<Mutex<TxSide>>>,
    tx_queues: AtomicUsize,
    _attachment: Arc<Attachment>,
}

impl PortDevice for XdpDevice {
    /// Queues are spread over the device's rings in turn.
    fn open_tx(&self) -> io::Result<Box<dyn TxQueue>> {
        let at = self.tx_queues.fetch_add(1, Ordering::Relaxed) % self.sides.len();
        Ok(Box::new(XdpTx(Arc::clone(&self.sides[at]))))
    }

    not_created!();
}

/// A port as opened.
struct Opened {
    ifindex: u32,
    rx: Vec<Box<dyn RxQueue>>,
    device: XdpDevice,
    info: AfxdpInfo,
}

/// Opens a device in the requested mode, or the first that works.
fn open(name: &str, options: &AfxdpPort) -> io::Result<Opened> {
    let ifindex = raw::ifindex(name)?;
    let any = raw::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    require_ethernet(name, &any)?;
    let modes: &[XdpMode] = match &options.mode {
        XdpMode::BestEffort => &[XdpMode::NativeWithZerocopy, XdpMode::Native, XdpMode::Generic],
        one => std::slice::from_ref(one),
    };
    let mut notes = Vec::new();
    let mut last = None;
    for mode in modes {
        match open_in(name, ifindex, *mode, options) {
            Ok((rx, device)) => {
                notes.extend(reception_notes(name, rx.len()));
                return Ok(Opened { ifindex, rx, device, info: AfxdpInfo { mode: *mode, notes } });
            }
            Err(e) => {
                notes.push(format!("device {name}: xdp-mode {mode}: {e}"));
                last = Some(e);
            }
        }
    }
    let kind = last.map_or(io::ErrorKind::Other, |e| e.kind());
    Err(io::Error::new(kind, notes.join("; ")))
}

/// Opens a device in one mode.
fn open_in(
    name: &str,
    ifindex: u32,
    mode: XdpMode,
    options: &AfxdpPort,
) -> io::Result<(Vec<Box<dyn RxQueue>>, XdpDevice)> {
    let count = (options.n_rxq as usize).clamp(1, MAX_RX_QUEUES);
    let setup = Setup {
        entries: entries_per_queue(count),
        zerocopy: mode == XdpMode::NativeWithZerocopy,
        use_need_wakeup: options.use_need_wakeup,
    };
    let map = SocketMap::new(count)?;
    let (mut rx, mut sides) = (Vec::new(), Vec::new());
    let mtu = tx::mtu(name)?;
    let shares = umem::take(count, setup.entries).map_err(raw::context("memory for frames"))?;
    for (queue, share) in shares.into_iter().enumerate() {
        let (receiving, sending) = socket::open(ifindex, queue, setup, share)?;
        map.set(queue, receiving.socket.as_fd())?;
        rx.push(receiving);
        sides.push(Arc::new(Mutex::new(TxSide::new(name, sending, mtu, options.use_need_wakeup))));
    }
    let promiscuous = raw::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    make_promiscuous(&promiscuous, ifindex).map_err(raw::context("promiscuous mode"))?;
    // Attached last: no frame arrives before the setup is complete.
    let hook = if mode == XdpMode::Generic { Hook::Generic } else { Hook::Driver };
    let link = program::attach(&map, ifindex, hook)?;
    let attachment =
        Arc::new(Attachment { _link: link, map, device_writes: setup.zerocopy, _promiscuous: promiscuous });
    let queues = rx.into_iter().enumerate().map(|(queue, rings)| -> Box<dyn RxQueue> {
        Box::new(rx::XdpRx::new(rings, queue, Arc::clone(&attachment)))
    });
    let queues = queues.collect();
    Ok((queues, XdpDevice { sides, tx_queues: AtomicUsize::new(0), _attachment: attachment }))
}

/// Ring entries of each of `count` queues: a power of two each, within the bound in total.
fn entries_per_queue(count: usize) -> u32 {
    RING_ENTRIES.min(MAX_RING_ENTRIES / (count as u32).next_power_of_two())
}

/// Notes on frames that will be lost or altered.
fn reception_notes(name: &str, queues: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if let Ok(have) = link::rx_queues(name)
        && have as usize > queues
    {
        notes.push(format!(
            "device {name} has {have} receive queues, the port {queues}: frames of the others go to the host \
             (n_rxq={have}, or ethtool -L {name} combined {queues})"
        ));
    }
    if let Ok(mtu) = tx::mtu(name)
        && mtu as usize + HEADER_BYTES > MAX_RX_FRAME_BYTES
    {
        notes.push(format!(
            "device {name} has MTU {mtu}: frames of more than {MAX_RX_FRAME_BYTES} bytes are not received"
        ));
    }
    // On a veth the peer, possibly in another namespace, leaves work to its device.
    if link::driver(name).is_ok_and(|[driver, ..]| driver == "veth") {
        notes.push(format!(
            "device {name} is a veth: AF_XDP does not carry what its peer leaves to the device (ethtool -K PEER tx off \
             tso off gso off txvlan off)"
        ));
    } else if link::strips_vlan_tags(name).unwrap_or(false) {
        notes.push(format!(
            "device {name} takes VLAN tags out of frames, which AF_XDP does not carry (ethtool -K {name} rxvlan off)"
        ));
    }
    notes
}
