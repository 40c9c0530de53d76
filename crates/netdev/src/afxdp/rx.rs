//! Receiving: copies frames out of the ring's chunks, which return to the kernel at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use libc::c_int;
use packet::headers::ETH_HEADER_BYTES;
use packet::{BURST_MAX_PACKETS, PacketBatch, PacketPool};

use super::Attachment;
use super::socket::{CHUNK_BYTES, RxRings};
use crate::port::{RxCounters, RxQueue};
use crate::raw;

/// Consecutive empty polls of the ring before a check of the socket's error.
const POLLS_PER_CHECK: u32 = 32;

/// A receive queue.
pub(super) struct XdpRx {
    rings: RxRings,
    malformed: u64,
    empty_looks: u32,
    /// Keeps the program attached while a receive queue exists.
    _attachment: Arc<Attachment>,
}

impl XdpRx {
    pub(super) fn new(rings: RxRings, attachment: Arc<Attachment>) -> XdpRx {
        XdpRx { rings, malformed: 0, empty_looks: 0, _attachment: attachment }
    }

    /// A device error does not appear in the ring, only on the socket.
    fn check_error(&mut self) -> io::Result<()> {
        self.empty_looks += 1;
        if self.empty_looks < POLLS_PER_CHECK {
            return Ok(());
        }
        self.empty_looks = 0;
        let mut error: c_int = 0;
        // SAFETY: the option is an integer.
        unsafe { raw::get_option(&*self.rings.socket, libc::SOL_SOCKET, libc::SO_ERROR, &mut error)? };
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }
}

impl RxQueue for XdpRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.rings.socket.as_fd()
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        let before = batch.len();
        let RxRings { received, fill, socket } = &mut self.rings;
        let most = max_packets.min(BURST_MAX_PACKETS) as u32;
        // As many chunks as entries: the fill ring always has room.
        let count = received.waiting().min(most).min(fill.room());
        for _ in 0..count {
            let d = received.read();
            // SAFETY: the kernel handed over the chunk with this entry; it returns below, after the copy.
            let frame = unsafe { socket.bytes(d.addr, d.len as usize) };
            match frame.filter(|f| f.len() >= ETH_HEADER_BYTES) {
                Some(frame) => {
                    let mut p = pool.alloc(frame.len());
                    p.set_frame(frame);
                    batch.push(p);
                }
                None => self.malformed += 1,
            }
            fill.write(d.addr - d.addr % CHUNK_BYTES as u64);
        }
        if count > 0 {
            self.empty_looks = 0;
            received.release();
            fill.publish();
        }
        if fill.needs_wakeup() {
            socket.kick_rx();
        }
        if count == 0 && most > 0 {
            self.check_error()?;
        }
        Ok(batch.len() - before)
    }

    fn counters(&self) -> RxCounters {
        RxCounters {
            kernel_drops: self.rings.socket.lost(),
            malformed: self.malformed,
            ..RxCounters::default()
        }
    }
}
