//! Receiving from a ring shared with the kernel (TPACKET_V2, packet(7) and the kernel's `packet_mmap` document).
//!
//! Each frame of up to about 1,970 bytes is in its slot of 2 KB, after its `virtio_net_hdr`. The slot of a
//! longer one (a large segment) has only a flag (`TP_STATUS_COPY`); the whole frame waits in the socket's
//! queue, in the same order (`PACKET_COPY_THRESH`). So the ring stays small and large segments arrive
//! unsplit.
//!
//! Invariant: slots are consumed in order, and returned to the kernel right after the copy.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::c_int;
use packet::{BURST_MAX_PACKETS, PacketBatch, PacketPool, VIRTIO_NET_HDR_BYTES};

use super::rx::{Expected, Losses, Reader, Setup, Tag};
use super::{ALL_RING_SLOTS, FEW_SLOTS};
use crate::lending::{Lending, LentKind};
use crate::port::{RxCounters, RxQueue, lent};
use crate::raw;

const SLOT_BYTES: usize = 2048;
const SLOTS_A_BLOCK: usize = 32;
const MAX_SLOTS: u32 = 1 << 16;
/// Offset of `sockaddr_ll` in a slot: after `tpacket2_hdr`, aligned to 16.
const ADDRESS_AT: usize = 32;
/// Offset of the time of a frame in a slot: seconds, nanoseconds.
const TIME_AT: usize = 16;
/// Consecutive empty polls of the ring before a check of the socket's error.
const POLLS_PER_CHECK: u32 = 32;

/// Slots of all rings of the process.
static SLOTS: AtomicUsize = AtomicUsize::new(0);

/// Whether the process may have that many more ring slots without smaller rings.
pub(super) fn has_room(slots: u32) -> bool {
    SLOTS.load(Ordering::Relaxed) + slots as usize <= ALL_RING_SLOTS
}

/// The mapped ring.
struct Ring {
    base: NonNull<u8>,
    slots: usize,
}

// SAFETY: this value owns the mapping exclusively; it is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates a ring of `slots` slots on the socket and maps it.
    fn new(fd: &OwnedFd, slots: u32) -> io::Result<Ring> {
        let slots = slots.clamp(SLOTS_A_BLOCK as u32, MAX_SLOTS).next_power_of_two();
        let slots = if has_room(slots) { slots } else { slots.min(FEW_SLOTS) };
        let version = libc::tpacket_versions::TPACKET_V2 as c_int;
        raw::set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        raw::set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1 as c_int)?;
        let req = libc::tpacket_req {
            tp_block_size: (SLOT_BYTES * SLOTS_A_BLOCK) as u32,
            tp_block_nr: slots / SLOTS_A_BLOCK as u32,
            tp_frame_size: SLOT_BYTES as u32,
            tp_frame_nr: slots,
        };
        raw::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, req)?;
        Ring::map(fd, slots as usize)
    }

    /// Maps the ring of a socket, of that number of slots.
    fn map(fd: &OwnedFd, slots: usize) -> io::Result<Ring> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                slots * SLOT_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        SLOTS.fetch_add(slots, Ordering::Relaxed);
        Ok(Ring { base, slots })
    }

    fn slot(&self, i: usize) -> *mut u8 {
        debug_assert!(i < self.slots);
        // SAFETY: the slot lies in the mapping, as the index is below the number of slots.
        unsafe { self.base.as_ptr().add(i * SLOT_BYTES) }
    }

    fn status(&self, i: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with `tp_status`, a u32 that kernel and process both access as a whole; the mapping
        // lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.slot(i).cast::<u32>()) }
    }

    /// The contents of a slot, if the kernel has filled it. It stays ours until [`Ring::give_back`].
    fn filled(&self, i: usize) -> Option<(u32, &[u8])> {
        let status = self.status(i).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel does not write to a slot in state USER; the slice lies in the mapping.
        Some((status, unsafe { std::slice::from_raw_parts(self.slot(i), SLOT_BYTES) }))
    }

    /// The slot of the oldest frame that waits; `None`: none waits.
    fn oldest(&self) -> Option<usize> {
        let is_filled = |i: usize| self.status(i).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        let before = |i: usize| (i + self.slots - 1) % self.slots;
        let begins = (0..self.slots).filter(|i| is_filled(*i) && !is_filled(before(*i)));
        // The kernel may be filling a slot among others.
        let first = begins.min_by_key(|i| self.time_ns(*i));
        // A full ring begins where times go back most: neighbours may have the times of two processors.
        let step_back = |i: &usize| self.time_ns(before(*i)) as i64 - self.time_ns(*i) as i64;
        first.or_else(|| (0..self.slots).filter(|_| is_filled(0)).max_by_key(step_back))
    }

    /// The slot behind the newest frame, which may have been taken.
    fn behind_newest(&self) -> usize {
        let newest = (0..self.slots).max_by_key(|i| self.time_ns(*i)).filter(|i| self.time_ns(*i) > 0);
        newest.map_or(0, |i| (i + 1) % self.slots)
    }

    /// Time of the last frame of a slot; 0 without one. The kernel may be writing it.
    fn time_ns(&self, i: usize) -> u64 {
        let word = |at: usize| {
            // SAFETY: `tp_sec` and `tp_nsec` of the header in the slot, which the mapping holds; both are aligned.
            let word = unsafe { AtomicU32::from_ptr(self.slot(i).add(at).cast::<u32>()) };
            u64::from(word.load(Ordering::Relaxed))
        };
        word(TIME_AT) * 1_000_000_000 + word(TIME_AT + 4)
    }

    fn give_back(&self, i: usize) {
        self.status(i).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; no slice of it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.slots * SLOT_BYTES) };
        SLOTS.fetch_sub(self.slots, Ordering::Relaxed);
    }
}

/// The fields of `tpacket2_hdr` and `sockaddr_ll` that matter.
struct SlotHeader {
    bytes: usize,
    kept_bytes: usize,
    frame_at: usize,
    outgoing: bool,
    tag: Option<Tag>,
}

impl SlotHeader {
    fn read(status: u32, slot: &[u8]) -> SlotHeader {
        let int = |at: usize| u32::from_ne_bytes([slot[at], slot[at + 1], slot[at + 2], slot[at + 3]]);
        let short = |at: usize| u16::from_ne_bytes([slot[at], slot[at + 1]]);
        SlotHeader {
            bytes: int(4) as usize,
            kept_bytes: int(8) as usize,
            frame_at: usize::from(short(12)),
            outgoing: slot[ADDRESS_AT + 10] == libc::PACKET_OUTGOING,
            tag: Tag::new(status, short(26), short(24)),
        }
    }
}

/// A receive queue by a ring.
pub(crate) struct RingRx {
    ring: Ring,
    reader: Reader,
    losses: Losses,
    next: usize,
    /// Long frames announced by slots and not fetched yet.
    pending: usize,
    /// Those are outgoing ones, to be dropped.
    pending_unwanted: bool,
    /// Error to report at the next call, because this one returned frames.
    failed: Option<io::Error>,
    empty_looks: u32,
    start: Start,
}

/// Knowledge of the place of the next frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The ring of a process that told nothing: long frames may wait in the socket whose slots it has returned.
    Former,
    /// Those are fetched. The place is a guess until its first frame.
    Guessed,
    Known,
}

impl RingRx {
    pub(crate) fn new(fd: Arc<OwnedFd>, setup: Setup, slots: u32) -> io::Result<RingRx> {
        let ring = Ring::new(&fd, slots)?;
        Ok(RingRx::of(ring, fd, setup))
    }

    /// Receives by the ring of a socket of another process, of that number of slots; without [`RxQueue::go_on_at`], from the
    /// oldest frame in the ring on.
    pub(crate) fn adopt(fd: Arc<OwnedFd>, setup: Setup, slots: u32) -> io::Result<RingRx> {
        if !slots.is_power_of_two() || !(SLOTS_A_BLOCK as u32..=MAX_SLOTS).contains(&slots) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a ring of {slots} slots")));
        }
        let ring = Ring::map(&fd, slots as usize)?;
        let next = ring.oldest().unwrap_or_else(|| ring.behind_newest());
        Ok(RingRx { next, start: Start::Former, ..RingRx::of(ring, fd, setup) })
    }

    fn of(ring: Ring, fd: Arc<OwnedFd>, setup: Setup) -> RingRx {
        RingRx {
            ring,
            reader: Reader::new(fd, setup),
            losses: Losses::default(),
            next: 0,
            pending: 0,
            pending_unwanted: false,
            failed: None,
            empty_looks: 0,
            start: Start::Known,
        }
    }

    /// Its kind, for another process.
    pub(super) fn kind(&self) -> LentKind {
        LentKind::Ring(self.reader.setup.lent(), self.ring.slots as u32)
    }

    /// Fetches long frames whose slots the former process has returned. They overtake those in slots.
    #[cold]
    fn begin(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch, most: usize) -> io::Result<()> {
        if self.reader.read(&mut self.losses, pool, batch, most, Expected::Long)? == 0 {
            self.start = Start::Guessed;
        }
        Ok(())
    }

    pub(super) fn socket(&self) -> &Arc<OwnedFd> {
        &self.reader.fd
    }

    pub(super) fn slots(&self) -> usize {
        self.ring.slots
    }

    /// Copies the frame of a slot into `batch`, unless it is filtered.
    fn take(
        losses: &mut Losses,
        setup: Setup,
        slot: &[u8],
        h: &SlotHeader,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
    ) {
        let Some(frame) = slot.get(h.frame_at..h.frame_at + h.kept_bytes) else {
            losses.malformed += 1;
            return;
        };
        if h.kept_bytes < h.bytes {
            losses.no_room += 1;
            return;
        }
        let hdr: Option<&[u8; VIRTIO_NET_HDR_BYTES]> =
            slot[..h.frame_at].last_chunk().filter(|_| setup.vnet_hdr);
        let mut p = pool.alloc(frame.len());
        p.set_frame(frame);
        if losses.finish(&mut p, hdr, h.tag) {
            batch.push(p);
        } else {
            pool.free(p);
        }
    }

    /// Fetches the announced long frames from the socket's queue. After an error they remain pending.
    fn fetch_pending(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch) -> io::Result<()> {
        while self.pending > 0 {
            let most = self.pending.min(BURST_MAX_PACKETS);
            let taken = if self.pending_unwanted {
                let mut unwanted = PacketBatch::default();
                let taken = self.reader.read(&mut self.losses, pool, &mut unwanted, most, Expected::Long);
                unwanted.free_into(pool);
                taken?
            } else {
                self.reader.read(&mut self.losses, pool, batch, most, Expected::Long)?
            };
            // An empty queue has none pending.
            self.pending = if taken == 0 { 0 } else { self.pending - taken };
        }
        Ok(())
    }

    /// Consumes slots until `most` frames are copied or pending, or the ring is empty. Fetches consecutive
    /// long frames together.
    fn take_slots(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch, most: usize) -> io::Result<()> {
        if self.start == Start::Former {
            self.begin(pool, batch, most)?;
            if self.start == Start::Former {
                return Ok(());
            }
        }
        let setup = self.reader.setup;
        let before = batch.len();
        // A slot is visited twice if pending frames must be fetched before it.
        for _ in 0..2 * most {
            if batch.len() - before + self.pending >= most {
                break;
            }
            let at = self.next;
            let Some((status, slot)) = self.ring.filled(at) else { break };
            let h = SlotHeader::read(status, slot);
            let unwanted = h.outgoing && setup.drop_outgoing;
            let long = status & libc::TP_STATUS_COPY != 0;
            if self.pending > 0 && (!long || unwanted != self.pending_unwanted) {
                self.fetch_pending(pool, batch)?;
                continue;
            }
            if long {
                self.pending += 1;
                self.pending_unwanted = unwanted;
            } else if !unwanted {
                RingRx::take(&mut self.losses, setup, slot, &h, pool, batch);
            }
            self.ring.give_back(at);
            self.next = (at + 1) % self.ring.slots;
            (self.empty_looks, self.start) = (0, Start::Known);
        }
        self.fetch_pending(pool, batch)
    }

    /// A device error does not appear in the ring, only on the socket.
    fn check_error(&mut self) -> io::Result<()> {
        self.empty_looks += 1;
        if self.empty_looks < POLLS_PER_CHECK {
            return Ok(());
        }
        self.empty_looks = 0;
        if self.start == Start::Guessed {
            self.next = self.ring.oldest().unwrap_or(self.next);
        }
        let mut error: c_int = 0;
        // SAFETY: the option is an integer.
        unsafe { raw::get_option(&self.reader.fd, libc::SOL_SOCKET, libc::SO_ERROR, &mut error)? };
        if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
    }
}

impl RxQueue for RingRx {
    fn fd(&self) -> BorrowedFd<'_> {
        self.reader.fd.as_fd()
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let before = batch.len();
        let result = self.take_slots(pool, batch, max_packets.min(BURST_MAX_PACKETS));
        let got = batch.len() - before;
        match result {
            Err(e) if got == 0 => return Err(e),
            Err(e) => self.failed = Some(e),
            Ok(()) if got == 0 => self.check_error()?,
            Ok(()) => {}
        }
        Ok(got)
    }

    fn counters(&self) -> RxCounters {
        self.losses.read(&self.reader.fd)
    }

    fn lend(&mut self) -> io::Result<Lending> {
        lent(self.kind(), &self.reader.fd)
    }

    fn place(&self) -> u32 {
        self.next as u32
    }

    fn go_on_at(&mut self, place: u32) {
        self.next = place as usize % self.ring.slots;
        self.start = Start::Known;
    }
}
