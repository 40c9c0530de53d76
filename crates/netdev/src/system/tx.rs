//! Sending on a packet socket: a burst in one sendmmsg(2).
//!
//! The kernel stops a burst at the frame that it refuses; that frame is counted by its error and the burst goes on
//! behind it. Only a device that is down or a send buffer that stays full end a batch early.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_void;
use packet::{BATCH_MAX_PACKETS, Packet, PacketBatch, PacketPool, VIRTIO_NET_HDR_BYTES};

use super::SystemOptions;
use crate::port::{TxDrop, TxQueue, TxReport};
use crate::raw;
use crate::soften::{soften, unsayable};

/// How often a full send buffer is tried again within one batch, yielding the processor before each.
const FULL_RETRIES: u32 = 8;

/// A transmit queue of a `system` port.
pub(crate) struct SystemTx {
    fd: OwnedFd,
    vnet_hdr: bool,
    /// The kernel gets frames with work left over.
    offload: bool,
    sendmmsg: bool,
}

impl SystemTx {
    pub(crate) fn new(fd: OwnedFd, options: &SystemOptions) -> SystemTx {
        SystemTx {
            fd,
            vnet_hdr: options.vnet_hdr,
            offload: options.vnet_hdr && options.tx_offload,
            sendmmsg: options.sendmmsg,
        }
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
                Some(libc::EINVAL) if first.offload.needs_csum || first.offload.is_gso() => {
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
        let packets = &packets[..packets.len().min(most)];
        let mut hdrs = [[0u8; VIRTIO_NET_HDR_BYTES]; BATCH_MAX_PACKETS];
        // SAFETY: both are plain data for which all zeros are valid.
        let (mut heads, mut parts): (
            [libc::mmsghdr; BATCH_MAX_PACKETS],
            [[libc::iovec; 2]; BATCH_MAX_PACKETS],
        ) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let hdr_bytes = if self.vnet_hdr { VIRTIO_NET_HDR_BYTES } else { 0 };
        for (i, p) in packets.iter().enumerate() {
            hdrs[i] = virtio_header(p);
            parts[i] = [read_slice(&hdrs[i][..hdr_bytes]), read_slice(p.data())];
            heads[i].msg_hdr.msg_iov = parts[i].as_mut_ptr();
            heads[i].msg_hdr.msg_iovlen = 2;
        }
        let fd = self.fd.as_raw_fd();
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
        if !self.offload || batch.packets().iter().any(unsayable) {
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
