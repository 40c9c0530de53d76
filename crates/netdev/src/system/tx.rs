//! Sending on a packet socket: a burst in one sendmmsg(2).
//!
//! The kernel stops a burst at the frame that it refuses; that frame is counted by its error and the burst goes on
//! behind it. Only a device that is down or a send buffer that stays full end a batch early.
//!
//! Frames with nothing left to do go by a socket without `virtio_net_hdr`: a message of one part is cheaper for the kernel
//! than one of two. Both sockets hand over to the same device within the call, so the order of a batch is kept.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_void;
use packet::{BATCH_MAX_PACKETS, Packet, PacketBatch, PacketPool, VIRTIO_NET_HDR_BYTES};

use crate::port::{TxDrop, TxQueue, TxReport};
use crate::raw;
use crate::soften::{soften, unsayable};

/// How often a full send buffer is tried again within one batch, yielding the processor before each.
const FULL_RETRIES: u32 = 8;

/// A transmit queue of a `system` port.
pub(crate) struct SystemTx {
    /// For finished frames.
    finished: OwnedFd,
    /// For frames with work left to the kernel; without it software does that work.
    unfinished: Option<OwnedFd>,
    sendmmsg: bool,
}

/// Whether a frame has work left to the kernel.
fn is_unfinished(p: &Packet) -> bool {
    p.offload.needs_csum || p.offload.is_gso()
}

impl SystemTx {
    pub(crate) fn new(finished: OwnedFd, unfinished: Option<OwnedFd>, sendmmsg: bool) -> SystemTx {
        SystemTx { finished, unfinished, sendmmsg }
    }

    /// Sends all frames as they are.
    fn send_frames(&mut self, batch: &PacketBatch, pool: &mut PacketPool, report: &mut TxReport) {
        let mut rest = batch.packets();
        let mut full = 0;
        while let Some(first) = rest.first() {
            let error = match self.send_some(rest) {
                Ok(sent) => {
                    rest[..sent].iter().for_each(|p| report.count_sent(p.len()));
                    rest = &rest[sent..];
                    continue;
                }
                Err(e) => e,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ENOSYS) if self.sendmmsg => {
                    self.sendmmsg = false;
                    continue;
                }
                Some(libc::EAGAIN) if full < FULL_RETRIES => {
                    full += 1;
                    std::thread::yield_now();
                    continue;
                }
                Some(libc::EINVAL) if is_unfinished(first) => {
                    self.send_softened(first, pool, report);
                    rest = &rest[1..];
                    continue;
                }
                _ => {}
            }
            let why = TxDrop::of(&error);
            let lost = if matches!(why, TxDrop::PortDown | TxDrop::QueueFull) { rest.len() } else { 1 };
            report.count_drops(why, lost);
            rest = &rest[lost..];
        }
    }

    /// Sends a frame whose offloads the kernel refuses with them done in software.
    fn send_softened(&mut self, p: &Packet, pool: &mut PacketPool, report: &mut TxReport) {
        let mut frames = PacketBatch::new();
        frames.push(pool.copy(p));
        soften(&mut frames, pool, report);
        self.send_frames(&frames, pool, report);
        frames.free_into(pool);
    }

    /// Sends the first frames of `packets`, at least one, or says why the first cannot be sent.
    fn send_some(&self, packets: &[Packet]) -> io::Result<usize> {
        let most = if self.sendmmsg { BATCH_MAX_PACKETS } else { 1 };
        let unfinished = packets.first().is_some_and(is_unfinished);
        let alike = packets.iter().take(most).take_while(|p| is_unfinished(p) == unfinished).count();
        let packets = &packets[..alike];
        let (fd, with_header) = match &self.unfinished {
            Some(fd) if unfinished => (fd, true),
            _ => (&self.finished, false),
        };
        let mut hdrs = [[0u8; VIRTIO_NET_HDR_BYTES]; BATCH_MAX_PACKETS];
        // SAFETY: both are plain data for which all zeros are valid.
        let (mut heads, mut parts): (
            [libc::mmsghdr; BATCH_MAX_PACKETS],
            [[libc::iovec; 2]; BATCH_MAX_PACKETS],
        ) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        for (i, p) in packets.iter().enumerate() {
            let frame = read_slice(p.data());
            if !with_header {
                parts[i][0] = frame;
                heads[i].msg_hdr.msg_iovlen = 1;
            } else {
                hdrs[i] = virtio_header(p);
                parts[i] = [read_slice(&hdrs[i]), frame];
                heads[i].msg_hdr.msg_iovlen = 2;
            }
            heads[i].msg_hdr.msg_iov = parts[i].as_mut_ptr();
        }
        let fd = fd.as_raw_fd();
        if self.sendmmsg {
            // SAFETY: every pointer in `heads` is to `parts`, `hdrs` or `packets`, which live through the call and which
            // the kernel only reads.
            let sent = unsafe {
                libc::sendmmsg(fd, heads.as_mut_ptr(), packets.len() as u32, libc::MSG_DONTWAIT as _)
            };
            return raw::check(sent).map(|n| n as usize);
        }
        // SAFETY: as above.
        let sent = unsafe { libc::sendmsg(fd, &heads[0].msg_hdr, libc::MSG_DONTWAIT) };
        raw::check_len(sent).map(|_| 1)
    }
}

impl TxQueue for SystemTx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        if self.unfinished.is_none() || batch.packets().iter().any(unsayable) {
            soften(batch, pool, &mut report);
        }
        self.send_frames(batch, pool, &mut report);
        batch.free_into(pool);
        report
    }
}

/// The header for a frame; the hint of the header length never exceeds the frame, which the kernel would refuse.
pub(crate) fn virtio_header(p: &Packet) -> [u8; VIRTIO_NET_HDR_BYTES] {
    let mut offload = p.offload;
    offload.hdr_len = offload.hdr_len.min(p.len().min(usize::from(u16::MAX)) as u16);
    offload.to_virtio()
}

pub(crate) fn read_slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast::<c_void>().cast_mut(), iov_len: bytes.len() }
}
