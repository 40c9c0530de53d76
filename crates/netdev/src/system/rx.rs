//! Receiving by recvmmsg(2), and the common parts of both receive methods.
//!
//! A frame is read into a small packet buffer; the excess goes into an overflow slot shared by all queues of
//! the thread, and the frame is then assembled in a large buffer. So small frames are never copied here, and
//! no queue reserves 64 KB for each frame of a burst. Frames known to be long are read into large buffers at once.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libc::{c_int, c_void};
use packet::headers::{ETH_HEADER_BYTES, ETH_TYPE_VLAN};
use packet::{
    BURST_MAX_PACKETS, LARGE_FRAME_BYTES, Offload, Packet, PacketBatch, PacketPool, VIRTIO_NET_HDR_BYTES,
};

use crate::lending::{Lending, LentKind, LentSocket};
use crate::port::{RxCounters, RxQueue, lent};
use crate::raw::{self, OVERFLOW_BYTES, Room};

/// Bytes of one control message with `tpacket_auxdata`: a header of 16 and 20 of data, aligned to 8.
const CONTROL_BYTES: usize = 40;
/// Expected length of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    /// Most fit a small buffer.
    Small,
    /// Most do not.
    Long,
}

/// Settings of a receive socket that are emulated here.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) vnet_hdr: bool,
    pub(crate) drop_outgoing: bool,
}

impl Setup {
    /// Settings of a socket that another process lends.
    pub(crate) fn of(socket: LentSocket) -> Setup {
        let LentSocket { vnet_hdr, drop_outgoing } = socket;
        Setup { vnet_hdr, drop_outgoing }
    }

    /// For another process.
    pub(crate) fn lent(self) -> LentSocket {
        let Setup { vnet_hdr, drop_outgoing } = self;
        LentSocket { vnet_hdr, drop_outgoing }
    }
}

/// A VLAN tag stripped by the kernel.
#[derive(Clone, Copy)]
pub(crate) struct Tag {
    tpid: u16,
    tci: u16,
}

impl Tag {
    /// From the fields of `tpacket_auxdata` and `tpacket2_hdr`.
    pub(crate) fn new(status: u32, tpid: u16, tci: u16) -> Option<Tag> {
        let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { tpid } else { ETH_TYPE_VLAN };
        (status & libc::TP_STATUS_VLAN_VALID != 0).then_some(Tag { tpid, tci })
    }
}

/// Counters of a receive socket; the kernel's own are read on demand.
#[derive(Default)]
pub(crate) struct Losses {
    kernel_drops: Cell<u64>,
    pub(crate) malformed: u64,
    pub(crate) truncated: u64,
    /// Long frames dropped by the kernel because the socket's queue was full.
    pub(crate) no_room: u64,
}

impl Losses {
    /// Totals so far. Reading resets the kernel's counter, hence the sum here.
    pub(crate) fn read(&self, fd: &OwnedFd) -> RxCounters {
        let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        // SAFETY: tpacket_stats is two integers.
        let got = unsafe { raw::get_option(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut stats) };
        if got.is_ok() {
            self.kernel_drops.set(self.kernel_drops.get() + u64::from(stats.tp_drops));
        }
        RxCounters {
            kernel_drops: self.kernel_drops.get() + self.no_room,
            malformed: self.malformed,
            truncated: self.truncated,
        }
    }

    /// Sets offload metadata and tag of a received frame. `false`: malformed, counted.
    pub(crate) fn finish(
        &mut self,
        p: &mut Packet,
        hdr: Option<&[u8; VIRTIO_NET_HDR_BYTES]>,
        tag: Option<Tag>,
    ) -> bool {
        let offload = hdr.map_or(Some(Offload::NONE), |h| Offload::from_virtio(h, p.len()));
        let Some(offload) = offload.filter(|_| p.len() >= ETH_HEADER_BYTES) else {
            self.malformed += 1;
            return false;
        };
        p.offload = offload;
        if let Some(tag) = tag {
            p.insert(12, 4);
            p.data_mut()[12..14].copy_from_slice(&tag.tpid.to_be_bytes());
            p.data_mut()[14..16].copy_from_slice(&tag.tci.to_be_bytes());
        }
        true
    }
}

/// One message as received, before it is judged.
#[derive(Clone, Copy)]
struct Received {
    /// Bytes after the offload header.
    bytes: usize,
    truncated: bool,
    outgoing: bool,
    tag: Option<Tag>,
    hdr: [u8; VIRTIO_NET_HDR_BYTES],
}

const NOTHING: Received =
    Received { bytes: 0, truncated: false, outgoing: false, tag: None, hdr: [0; VIRTIO_NET_HDR_BYTES] };

/// A receive queue by recvmmsg.
pub(crate) struct SocketRx {
    reader: Reader,
    losses: Losses,
    /// Frames of the last burst were all that waited.
    emptied: bool,
}

impl SocketRx {
    pub(crate) fn new(fd: Arc<OwnedFd>, setup: Setup) -> SocketRx {
        SocketRx { reader: Reader::new(fd, setup), losses: Losses::default(), emptied: true }
    }

    /// Whether the last call took all frames that waited.
    pub(crate) fn is_emptied(&self) -> bool {
        self.emptied
    }

    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        &self.reader.fd
    }

    pub(crate) fn setup(&self) -> Setup {
        self.reader.setup
    }
}

impl RxQueue for SocketRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.reader.fd.as_fd()
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        let before = batch.len();
        let got = self.reader.read(&mut self.losses, pool, batch, max_packets, Expected::Small)?;
        self.emptied = got < max_packets.min(BURST_MAX_PACKETS);
        Ok(batch.len() - before)
    }

    fn counters(&self) -> RxCounters {
        self.losses.read(&self.reader.fd)
    }

    fn lend(&mut self) -> io::Result<Lending> {
        lent(LentKind::Socket(self.reader.setup.lent()), &self.reader.fd)
    }
}

thread_local! {
    /// Small buffers for the next burst of any queue of the thread.
    static SPARE: Cell<Vec<Packet>> = const { Cell::new(Vec::new()) };
}

/// Reads frames from a packet socket's own queue.
pub(crate) struct Reader {
    /// The port's transmit queues may send by it.
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) setup: Setup,
}

impl Reader {
    pub(crate) fn new(fd: Arc<OwnedFd>, setup: Setup) -> Reader {
        Reader { fd, setup }
    }

    /// Receives up to `max_packets` waiting frames and appends the valid ones to `batch`; returns the number
    /// received.
    pub(crate) fn read(
        &mut self,
        losses: &mut Losses,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
        expected: Expected,
    ) -> io::Result<usize> {
        let want = max_packets.min(BURST_MAX_PACKETS);
        let (mut buffers, bytes) = match expected {
            Expected::Small => (SPARE.take(), 1),
            Expected::Long => (Vec::with_capacity(want), LARGE_FRAME_BYTES),
        };
        while buffers.len() < want {
            buffers.push(pool.alloc(bytes));
        }
        let got = self.read_into(&mut buffers, losses, pool, batch, want);
        match expected {
            Expected::Small => SPARE.set(buffers),
            Expected::Long => buffers.into_iter().for_each(|p| pool.free(p)),
        }
        got
    }

    /// Receives up to `want` frames into as many of `buffers`, which it takes out.
    fn read_into(
        &self,
        buffers: &mut Vec<Packet>,
        losses: &mut Losses,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        want: usize,
    ) -> io::Result<usize> {
        raw::with_overflow(want, |overflow| {
            let mut room = Room::<_, BURST_MAX_PACKETS>::new();
            let messages = room.fill(want, NOTHING);
            let got = read_burst(&self.fd, self.setup, losses, buffers, overflow, messages)?;
            for (i, (p, m)) in buffers.drain(..got).zip(messages).enumerate() {
                if m.truncated {
                    losses.truncated += 1;
                }
                if m.truncated || m.outgoing {
                    pool.free(p);
                    continue;
                }
                let mut p = whole(p, m.bytes, &overflow[i * OVERFLOW_BYTES..], pool);
                if losses.finish(&mut p, self.setup.vnet_hdr.then_some(&m.hdr), m.tag) {
                    batch.push(p);
                } else {
                    pool.free(p);
                }
            }
            Ok(got)
        })
    }
}

/// One burst into buffers and overflow slots. A frame that the kernel cannot describe by an offload header causes an
/// `EINVAL`; the kernel has dropped it then, and the next one is tried.
fn read_burst(
    fd: &OwnedFd,
    setup: Setup,
    losses: &mut Losses,
    buffers: &mut [Packet],
    overflow: &mut [u8],
    messages: &mut [Received],
) -> io::Result<usize> {
    for _ in 0..=messages.len() {
        match recvmmsg(fd, setup, buffers, overflow, messages) {
            Ok(got) => return Ok(got),
            Err(e) => match e.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(0),
                Some(libc::EINTR) => {}
                Some(libc::EINVAL) => losses.malformed += 1,
                _ => return Err(e),
            },
        }
    }
    Ok(0)
}

/// The frame of `bytes` whose first part is in `small` and whose rest is in `rest`.
pub(crate) fn whole(mut small: Packet, bytes: usize, rest: &[u8], pool: &mut PacketPool) -> Packet {
    let room = small.receive_room().len();
    if bytes <= room {
        small.set_len(bytes);
        small.offload = Offload::NONE;
        return small;
    }
    let mut large = pool.alloc(bytes);
    large.set_len(bytes);
    let (first, second) = large.data_mut().split_at_mut(room);
    first.copy_from_slice(small.receive_room());
    second.copy_from_slice(&rest[..bytes - room]);
    pool.free(small);
    large
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// recvmmsg(2) into as many of `buffers` and slots of `overflow` as there are `messages`.
fn recvmmsg(
    fd: &OwnedFd,
    setup: Setup,
    buffers: &mut [Packet],
    overflow: &mut [u8],
    messages: &mut [Received],
) -> io::Result<usize> {
    let hdr_bytes = if setup.vnet_hdr { VIRTIO_NET_HDR_BYTES } else { 0 };
    let slots = overflow.chunks_exact_mut(OVERFLOW_BYTES);
    let count = messages.len().min(BURST_MAX_PACKETS).min(buffers.len()).min(slots.len());
    // SAFETY: all three are plain data for which all zeros are valid.
    let (head, part, name): (libc::mmsghdr, [libc::iovec; 3], libc::sockaddr_ll) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed(), std::mem::zeroed()) };
    let (mut heads, mut parts) = (Room::<_, BURST_MAX_PACKETS>::new(), Room::<_, BURST_MAX_PACKETS>::new());
    let (mut names, mut controls) =
        (Room::<_, BURST_MAX_PACKETS>::new(), Room::<_, BURST_MAX_PACKETS>::new());
    let (heads, parts) = (heads.fill(count, head), parts.fill(count, part));
    let (names, controls) = (names.fill(count, name), controls.fill(count, Control([0; CONTROL_BYTES])));
    for (i, ((m, p), slot)) in messages[..count].iter_mut().zip(buffers).zip(slots).enumerate() {
        let room = p.receive_room();
        parts[i] = [io_slice(&mut m.hdr[..hdr_bytes]), io_slice(room), io_slice(slot)];
        let h = &mut heads[i].msg_hdr;
        h.msg_iov = parts[i].as_mut_ptr();
        h.msg_iovlen = 3;
        h.msg_control = controls[i].0.as_mut_ptr().cast::<c_void>();
        h.msg_controllen = CONTROL_BYTES as _;
        if setup.drop_outgoing {
            h.msg_name = (&raw mut names[i]).cast::<c_void>();
            h.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
        }
    }
    // SAFETY: every pointer in `heads` is to `messages`, `buffers`, `overflow`, `controls` or `names`, none of which is
    // used otherwise until the call returns, with its length; no timeout is given.
    let got = raw::check(unsafe {
        libc::recvmmsg(
            fd.as_raw_fd(),
            heads.as_mut_ptr(),
            count as u32,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    })? as usize;
    for (i, m) in messages[..got].iter_mut().enumerate() {
        let h = &heads[i];
        m.bytes = (h.msg_len as usize).saturating_sub(hdr_bytes);
        m.truncated = h.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        m.outgoing = setup.drop_outgoing && names[i].sll_pkttype == libc::PACKET_OUTGOING;
        m.tag = tag_of(controls[i].0.get(..h.msg_hdr.msg_controllen as _).unwrap_or(&[]));
    }
    Ok(got)
}

pub(crate) fn io_slice(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast::<c_void>(), iov_len: bytes.len() }
}

/// The tag in a control message of `PACKET_AUXDATA` (cmsghdr: length, level, type; then `tpacket_auxdata`).
fn tag_of(control: &[u8]) -> Option<Tag> {
    let int = |at: usize| Some(u32::from_ne_bytes(control.get(at..at + 4)?.try_into().ok()?));
    let short = |at: usize| Some(u16::from_ne_bytes(control.get(at..at + 2)?.try_into().ok()?));
    const LEVEL: usize = size_of::<usize>();
    const DATA: usize = LEVEL + 8;
    let auxdata =
        int(LEVEL)? as c_int == libc::SOL_PACKET && int(LEVEL + 4)? as c_int == libc::PACKET_AUXDATA;
    if !auxdata {
        return None;
    }
    let (status, tci, tpid) = (int(DATA)?, short(DATA + 16)?, short(DATA + 18)?);
    Tag::new(status, tpid, tci)
}
