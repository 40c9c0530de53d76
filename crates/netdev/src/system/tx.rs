//! Sending on a packet socket: a burst in one sendmmsg(2).
//!
//! The kernel stops a burst at a rejected frame; that frame is counted by its error and the burst continues
//! after it. Only a device that is down or a send buffer that stays full ends a batch early.
//!
//! Finished frames use a socket without `virtio_net_hdr`: a message of one part is cheaper for the kernel
//! than one of two. Both sockets pass frames to the same device within the call, so the order of a batch is
//! kept.
//!
//! Runs of datagrams fresh from a host of this machine, with partial checksums, leave as large UDP segments
//! ([`packet::merge`]): the kernel allocates one buffer for them and passes it through the receiver's stack
//! once. It splits them where a device or socket needs single datagrams.
//!
//! A packet socket takes no large segment inside a UDP tunnel. It leaves as large segments of outer UDP likewise
//! ([`packet::Datagrams`]); if these are off or refused, software splits it into frames.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use libc::c_void;
use packet::headers::{ETH_HEADER_BYTES, ETH_TYPE_VLAN, ETH_TYPE_VLAN_8021AD, VLAN_TAG_BYTES, be16};
use packet::{
    BATCH_MAX_PACKETS, BURST_MAX_PACKETS, Datagrams, MERGED_HEADERS_MAX_BYTES, Merged, Packet, PacketBatch,
    PacketPool, VIRTIO_NET_HDR_BYTES, frame_bytes, is_tunneled,
};

use crate::finish_offloads::{exceeds_virtio, finish_offloads, split};
use crate::port::{TxDrop, TxQueue, TxReport};
use crate::raw::{self, Room};
use crate::system::OwnSockets;
use crate::system::queue_sockets::{QueueSockets, SendSocket};

/// Retries on a full send buffer within one batch, yielding the processor before each.
const FULL_RETRIES: u32 = 8;

/// The sockets for sending frames.
pub(crate) enum Sockets {
    /// Sockets of the queue alone.
    Own {
        /// For finished frames.
        finished: SendSocket,
        /// For frames with work left to the kernel.
        unfinished: Option<SendSocket>,
        /// The reservation of these sockets.
        _places: OwnSockets,
    },
    /// The socket that the port receives by.
    Receiving {
        fd: Arc<OwnedFd>,
        /// It requires a `virtio_net_hdr` before every frame.
        vnet_hdr: bool,
    },
}

impl Sockets {
    /// The socket for such frames, and whether it requires a `virtio_net_hdr`.
    pub(super) fn of(&self, unfinished_frames: bool) -> (&OwnedFd, bool) {
        match self {
            Sockets::Own { unfinished: Some(fd), .. } if unfinished_frames => (fd, true),
            Sockets::Own { finished, .. } => (finished, false),
            Sockets::Receiving { fd, vnet_hdr } => (fd, *vnet_hdr),
        }
    }
}

/// A transmit queue of a `system` port.
pub(crate) struct SystemTx {
    sockets: QueueSockets,
    /// Frames may leave checksums and segmentation to the kernel; otherwise software does both.
    offload: bool,
    sendmmsg: bool,
    /// Send runs of unfinished datagrams of one flow as one large segment each.
    merge_udp: bool,
    /// Name of the device.
    name: String,
    /// Headers for the messages of the longest burst so far.
    headers: Vec<MessageHeader>,
    /// Datagrams of the last large segment in a tunnel.
    datagrams: Datagrams,
}

/// Whether a frame leaves work to the kernel.
fn is_unfinished(p: &Packet) -> bool {
    p.offload.needs_csum || p.offload.is_gso()
}

impl SystemTx {
    pub(crate) fn new(
        name: &str,
        sockets: QueueSockets,
        offload: bool,
        sendmmsg: bool,
        merge_udp: bool,
    ) -> SystemTx {
        SystemTx {
            sockets,
            offload,
            sendmmsg,
            merge_udp,
            name: name.to_owned(),
            headers: Vec::new(),
            datagrams: Datagrams::default(),
        }
    }

    /// Sends all frames unchanged.
    fn send_frames(&mut self, batch: &PacketBatch, pool: &mut PacketPool, report: &mut TxReport) {
        let mut rest = batch.packets();
        let mut full = 0;
        while let Some(first) = rest.first() {
            if is_tunneled(first) {
                let lost = match self.send_tunneled(first, pool, report) {
                    Ok(()) => 0,
                    Err(why) => {
                        let all = matches!(why, TxDrop::PortDown | TxDrop::QueueFull);
                        let lost = if all { rest.len() } else { 1 };
                        report.count_drops(why, lost);
                        lost
                    }
                };
                rest = &rest[lost.max(1)..];
                continue;
            }
            let Refused { error, frames } = match self.send_some(rest) {
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
                // Linux before 6.2 rejects large UDP segments on packet sockets.
                Some(libc::EINVAL) if frames > 1 => {
                    self.merge_udp = false;
                    continue;
                }
                Some(libc::EINVAL) if is_unfinished(first) => {
                    self.send_finished(first, pool, report);
                    rest = &rest[1..];
                    continue;
                }
                _ => {}
            }
            let why = TxDrop::of(&error);
            let lost = if matches!(why, TxDrop::PortDown | TxDrop::QueueFull) { rest.len() } else { frames };
            report.count_drops(why, lost);
            rest = &rest[lost..];
        }
    }

    /// Finishes the offloads of a frame rejected by the kernel in software, and sends it.
    fn send_finished(&mut self, p: &Packet, pool: &mut PacketPool, report: &mut TxReport) {
        let mut frames = PacketBatch::new();
        if p.offload.is_gso() {
            split(p, pool, &mut frames, report);
        } else {
            frames.push(pool.copy(p));
            finish_offloads(&mut frames, pool, report);
        }
        self.send_frames(&frames, pool, report);
        frames.free_into(pool);
    }

    /// Sends a large segment inside a UDP tunnel as large segments of outer UDP, or else as frames. An error is that of
    /// the former.
    fn send_tunneled(
        &mut self,
        p: &Packet,
        pool: &mut PacketPool,
        report: &mut TxReport,
    ) -> Result<(), TxDrop> {
        let (fd, with_header) = self.sockets.of(true, p.queue());
        let whole = self.offload && self.merge_udp && with_header;
        // The kernel checks the length of no large segment.
        if whole && raw::mtu(fd, &self.name).is_ok_and(|mtu| longest(p) > mtu) {
            return Err(TxDrop::TooLarge);
        }
        if whole && self.datagrams.split(p).is_ok() {
            match self.send_datagrams(p) {
                Ok(()) => {
                    report.count_sent(p.len());
                    return Ok(());
                }
                // Linux before 6.2 rejects large UDP segments on packet sockets.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => self.merge_udp = false,
                Err(e) => return Err(TxDrop::of(&e)),
            }
        }
        self.send_finished(p, pool, report);
        Ok(())
    }

    /// Sends what `self.datagrams` holds of `p`. `EINVAL`: nothing was sent.
    fn send_datagrams(&mut self, p: &Packet) -> io::Result<()> {
        let datagrams = &self.datagrams;
        let virtio: Vec<_> = datagrams.runs().map(|(offload, _)| offload.to_virtio()).collect();
        let mut payloads = datagrams.parts(p).map(read_slice);
        let mut parts = Vec::with_capacity(datagrams.runs().map(|(_, count)| count + 1).sum());
        // SAFETY: plain data for which all zeros are valid.
        let mut heads: Vec<libc::mmsghdr> = vec![unsafe { std::mem::zeroed() }; virtio.len()];
        for ((header, (_, count)), head) in virtio.iter().zip(datagrams.runs()).zip(&mut heads) {
            let from = parts.len();
            parts.push(read_slice(header));
            parts.extend(payloads.by_ref().take(count));
            // Within the capacity: the parts stay in place.
            head.msg_hdr.msg_iov = parts[from..].as_mut_ptr();
            head.msg_hdr.msg_iovlen = (parts.len() - from) as _;
        }
        let (fd, mut done, mut full) = (self.sockets.of(true, p.queue()).0, 0, 0);
        while done < heads.len() {
            // SAFETY: every pointer in `heads` is to `parts`, and those in `parts` to `virtio`, `datagrams` and `p`, all of
            // which live through the call, and which the kernel only reads.
            let error = match unsafe { submit(fd, &mut heads[done..], self.sendmmsg) } {
                Ok(sent) => {
                    done += sent;
                    continue;
                }
                Err(e) => e,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ENOSYS) if self.sendmmsg => self.sendmmsg = false,
                Some(libc::EAGAIN) if full < FULL_RETRIES => {
                    full += 1;
                    std::thread::yield_now();
                }
                Some(libc::EINVAL) if done > 0 => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends the first frames of `packets`, at least one, or returns the error of the first.
    fn send_some(&mut self, packets: &[Packet]) -> Result<usize, Refused> {
        let unfinished = packets.first().is_some_and(is_unfinished);
        let queue = packets.first().map_or(0, Packet::queue);
        let (fd, with_header) = self.sockets.of(unfinished, queue);
        let merge = with_header && unfinished && self.merge_udp;
        // Without sendmmsg, sends one frame, or one merged run.
        let (most, reach) = match (self.sendmmsg, merge) {
            (true, _) => (BURST_MAX_PACKETS, BURST_MAX_PACKETS),
            (false, true) => (1, BATCH_MAX_PACKETS),
            (false, false) => (1, 1),
        };
        let is_alike = |p: &Packet| is_unfinished(p) == unfinished && p.queue() == queue && !is_tunneled(p);
        let alike = packets.iter().take(reach).take_while(|p| is_alike(p)).count();
        if with_header && self.headers.len() < alike {
            self.headers.resize_with(alike, || MessageHeader::EMPTY);
        }
        // SAFETY: both are plain data for which all zeros are valid.
        let (head, slice): (libc::mmsghdr, libc::iovec) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut heads = Room::<_, BURST_MAX_PACKETS>::new();
        let mut parts = Room::<_, { 2 * BURST_MAX_PACKETS }>::new();
        // Frames of each message: several in a merged run, without more parts than otherwise.
        let mut frames = Room::<_, BURST_MAX_PACKETS>::new();
        let heads = heads.fill(alike.min(most), head);
        let parts = parts.fill(if with_header { 2 * alike } else { alike }, slice);
        let frames = frames.fill(alike.min(most), 0u16);
        let (mut messages, mut taken, mut part) = (0, 0, 0);
        while messages < most && taken < alike {
            let rest = &packets[taken..alike];
            let first_part = part;
            let merged = if merge { packet::merge(rest) } else { None };
            if with_header {
                parts[part] = read_slice(self.headers[messages].write(&rest[0], merged.as_ref()));
                part += 1;
            }
            let run = merged.as_ref().map_or(1, Merged::packets);
            let skip = merged.as_ref().map_or(0, Merged::header_bytes);
            for p in &rest[..run] {
                parts[part] = read_slice(&p.data()[skip..]);
                part += 1;
            }
            heads[messages].msg_hdr.msg_iov = parts[first_part..part].as_mut_ptr();
            heads[messages].msg_hdr.msg_iovlen = (part - first_part) as _;
            frames[messages] = run as u16;
            messages += 1;
            taken += run;
        }
        // SAFETY: every pointer in `heads` is to `parts`, and those in `parts` to `self.headers` and `packets`, all of
        // which live through the call, and which the kernel only reads.
        let sent = unsafe { submit(fd, &mut heads[..messages], self.sendmmsg) };
        match sent {
            Ok(n) => Ok(frames[..n].iter().map(|n| usize::from(*n)).sum()),
            Err(error) => Err(Refused { error, frames: frames[0].into() }),
        }
    }
}

/// Sends messages without blocking, by one sendmmsg(2) or the first one by sendmsg(2); returns the number sent, at least
/// one.
///
/// # Safety
/// Each message must have valid parts, for reading.
unsafe fn submit(fd: &OwnedFd, heads: &mut [libc::mmsghdr], sendmmsg: bool) -> io::Result<usize> {
    let (fd, count) = (fd.as_raw_fd(), heads.len() as u32);
    if sendmmsg {
        // SAFETY: the caller's promise; the kernel writes the lengths sent into `heads`.
        let sent = unsafe { libc::sendmmsg(fd, heads.as_mut_ptr(), count, libc::MSG_DONTWAIT as _) };
        return raw::check(sent).map(|sent| sent as usize);
    }
    // SAFETY: the caller's promise.
    raw::check_len(unsafe { libc::sendmsg(fd, &heads[0].msg_hdr, libc::MSG_DONTWAIT) }).map(|_| 1)
}

/// Bytes behind the Ethernet header, and a tag, of the longest frame that a large segment becomes.
fn longest(p: &Packet) -> usize {
    let ethertype = be16(p.data(), 12);
    let tagged = matches!(ethertype, Some(ETH_TYPE_VLAN | ETH_TYPE_VLAN_8021AD));
    let headers = ETH_HEADER_BYTES + if tagged { VLAN_TAG_BYTES } else { 0 };
    frame_bytes(p).saturating_sub(headers)
}

/// A message rejected by the kernel.
struct Refused {
    error: io::Error,
    /// The frames in it.
    frames: usize,
}

/// Bytes before the first frame of a message: its `virtio_net_hdr` and, for a merged run, its headers.
struct MessageHeader([u8; VIRTIO_NET_HDR_BYTES + MERGED_HEADERS_MAX_BYTES]);

impl MessageHeader {
    const EMPTY: MessageHeader = MessageHeader([0; VIRTIO_NET_HDR_BYTES + MERGED_HEADERS_MAX_BYTES]);

    /// Writes it for a frame, or for the run that begins with the frame.
    fn write(&mut self, first: &Packet, merged: Option<&Merged>) -> &[u8] {
        let (virtio, headers) = self.0.split_at_mut(VIRTIO_NET_HDR_BYTES);
        let bytes = match merged {
            None => {
                virtio.copy_from_slice(&virtio_header(first));
                0
            }
            Some(m) => {
                virtio.copy_from_slice(&m.offload().to_virtio());
                headers[..m.header_bytes()].copy_from_slice(m.headers());
                m.header_bytes()
            }
        };
        &self.0[..VIRTIO_NET_HDR_BYTES + bytes]
    }
}

impl TxQueue for SystemTx {
    fn send(&mut self, batch: &mut PacketBatch, pool: &mut PacketPool) -> TxReport {
        let mut report = TxReport::default();
        self.sockets.count(batch.len());
        if !self.offload || batch.packets().iter().any(exceeds_virtio) {
            finish_offloads(batch, pool, &mut report);
        }
        self.send_frames(batch, pool, &mut report);
        batch.free_into(pool);
        report
    }
}

/// The header for a frame; the header length hint never exceeds the frame, which the kernel would reject.
pub(crate) fn virtio_header(p: &Packet) -> [u8; VIRTIO_NET_HDR_BYTES] {
    let mut offload = p.offload;
    offload.hdr_len = offload.hdr_len.min(p.len().min(usize::from(u16::MAX)) as u16);
    offload.to_virtio()
}

pub(crate) fn read_slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast::<c_void>().cast_mut(), iov_len: bytes.len() }
}
