//! Packets and the per-thread pool of their buffers.
//!
//! Invariants: `start + len <= buf.len()`; a packet's buffer is either small ([`SMALL_BUFFER_BYTES`], an odd
//! number of cache lines so that a burst spreads over cache sets) or as large as needed. A pool keeps a
//! bounded number of buffers and frees the rest. Threads do not share pools, but may share packets.

use std::ops::{Deref, DerefMut};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::batch::PacketBatch;
use crate::offload::Offload;

/// Headroom of a received frame, for pushed VLAN tags and tunnel headers.
pub const HEADROOM_BYTES: usize = 128;
/// Size of a small buffer: 35 cache lines.
pub const SMALL_BUFFER_BYTES: usize = 2240;
/// Maximum frame of a large buffer: 64 KB of IP and its Ethernet and VLAN headers.
pub const LARGE_FRAME_BYTES: usize = 65535 + 22;

/// Bytes of [`Packet::head`]: Ethernet with a VLAN tag, IPv6 and the TCP header's flags.
pub const HEAD_BYTES: usize = 80;

const SMALL_KEPT: usize = 4096;
const LARGE_KEPT: usize = 64;

/// Bytes of a large buffer.
const LARGE_BUFFER_BYTES: usize = (HEADROOM_BYTES + LARGE_FRAME_BYTES).next_multiple_of(size_of::<Line>());

/// A cache line.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory aligned to a cache line: so is a frame after the headroom, and its headers take one line instead of
/// two.
struct Buffer(Box<[Line]>);

impl Buffer {
    /// Zeroed memory of at least that many bytes.
    fn new(bytes: usize) -> Buffer {
        Buffer(vec![Line([0; 64]); bytes.div_ceil(size_of::<Line>())].into_boxed_slice())
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for Buffer {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

/// One frame, owned, with headroom; its offload metadata beside it.
pub struct Packet {
    buf: Buffer,
    start: u32,
    len: u32,
    /// Pending work on the frame: checksum, segmentation.
    pub offload: Offload,
    /// The mark of the device's rule that the frame matched on reception; 0 without one. Copies have none.
    pub mark: u32,
}

impl Packet {
    /// A packet with a copy of `frame`, with the usual headroom.
    pub fn from_slice(frame: &[u8]) -> Packet {
        let mut p = Packet::with_capacity(frame.len());
        p.set_frame(frame);
        p
    }

    /// An empty packet whose buffer has room for a frame of `frame_bytes` after the headroom.
    pub fn with_capacity(frame_bytes: usize) -> Packet {
        let size = (HEADROOM_BYTES + frame_bytes).max(SMALL_BUFFER_BYTES);
        Packet {
            buf: Buffer::new(size),
            start: HEADROOM_BYTES as u32,
            len: 0,
            offload: Offload::NONE,
            mark: 0,
        }
    }

    /// The frame's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.buf[self.start as usize..(self.start + self.len) as usize]
    }

    /// The first [`HEAD_BYTES`] bytes from the start of the frame, for parsers that read before they check:
    /// bytes after a shorter frame are stale. `None`: the buffer ends before.
    #[inline]
    pub fn head(&self) -> Option<&[u8; HEAD_BYTES]> {
        self.buf[self.start as usize..].first_chunk()
    }

    /// The frame's bytes, writable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.buf[self.start as usize..(self.start + self.len) as usize]
    }

    /// Length of the frame in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the frame is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes available from the start of the frame.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.buf.len() - self.start as usize
    }

    fn empty(&mut self) {
        self.start = HEADROOM_BYTES as u32;
        self.len = 0;
        self.offload = Offload::NONE;
        self.mark = 0;
    }

    /// Replaces the frame by a copy of `frame`; grows the buffer if necessary.
    #[inline]
    pub fn set_frame(&mut self, frame: &[u8]) {
        if HEADROOM_BYTES + frame.len() > self.buf.len() {
            self.buf = Buffer::new(HEADROOM_BYTES + frame.len());
        }
        self.start = HEADROOM_BYTES as u32;
        self.len = frame.len() as u32;
        self.data_mut().copy_from_slice(frame);
    }

    /// The whole space for a frame after the headroom, to be filled by a receive call; follow with
    /// [`Packet::set_len`].
    #[inline]
    pub fn receive_room(&mut self) -> &mut [u8] {
        self.start = HEADROOM_BYTES as u32;
        self.len = 0;
        &mut self.buf[HEADROOM_BYTES..]
    }

    /// Sets the frame's length, truncating or extending it at its end.
    ///
    /// # Panics
    /// If `len` exceeds [`Packet::capacity`]: a caller's bug.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "frame of {len} bytes in a buffer of {}", self.capacity());
        self.len = len as u32;
    }

    /// Inserts `n` zero bytes at offset `at` of the frame by moving the bytes before it into the headroom
    /// (grows the buffer if that is used up). Adjusts checksum offsets of the offload metadata.
    pub fn insert(&mut self, at: usize, n: usize) {
        assert!(at <= self.len());
        if n > self.start as usize {
            let mut grown = Buffer::new(self.buf.len() + n + HEADROOM_BYTES);
            let start = HEADROOM_BYTES + n;
            grown[start..start + self.len()].copy_from_slice(self.data());
            self.buf = grown;
            self.start = start as u32;
        }
        let old = self.start as usize;
        let new = old - n;
        self.buf.copy_within(old..old + at, new);
        self.buf[new + at..new + at + n].fill(0);
        self.start = new as u32;
        self.len += n as u32;
        self.offload.moved(at, n as isize);
    }

    /// Removes `n` bytes at offset `at` of the frame. Adjusts checksum offsets of the offload metadata.
    pub fn remove(&mut self, at: usize, n: usize) {
        assert!(at + n <= self.len());
        let old = self.start as usize;
        self.buf.copy_within(old..old + at, old + n);
        self.start += n as u32;
        self.len -= n as u32;
        self.offload.moved(at, -(n as isize));
    }
}

impl Clone for Packet {
    fn clone(&self) -> Packet {
        let mut copy = Packet::from_slice(self.data());
        copy.offload = self.offload;
        copy
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packet({} bytes, {:?}, ", self.len, self.offload)?;
        for b in self.data().iter().take(64) {
            write!(f, "{b:02x}")?;
        }
        write!(f, ")")
    }
}

/// Recycles packets for one thread, last in first out.
///
/// Pooled packets are empty: headroom, no bytes, no offload, no mark.
#[derive(Default)]
pub struct PacketPool {
    small: Vec<Packet>,
    large: Vec<Packet>,
}

impl PacketPool {
    /// An empty pool; buffers come from the allocator until some are freed into it.
    pub fn new() -> PacketPool {
        PacketPool::default()
    }

    /// An empty packet whose buffer has room for a frame of `frame_bytes`. Its bytes are stale: the caller
    /// writes those that it declares by [`Packet::set_len`].
    #[inline]
    pub fn alloc(&mut self, frame_bytes: usize) -> Packet {
        if HEADROOM_BYTES + frame_bytes <= SMALL_BUFFER_BYTES
            && let Some(packet) = self.small.pop()
        {
            return packet;
        }
        self.alloc_rarely(frame_bytes)
    }

    #[cold]
    fn alloc_rarely(&mut self, frame_bytes: usize) -> Packet {
        if HEADROOM_BYTES + frame_bytes <= SMALL_BUFFER_BYTES || frame_bytes > LARGE_FRAME_BYTES {
            return Packet::with_capacity(frame_bytes);
        }
        self.large.pop().unwrap_or_else(|| Packet::with_capacity(LARGE_FRAME_BYTES))
    }

    /// Appends `n` empty packets with small buffers to `batch`: a whole burst for the price of one copy.
    pub fn alloc_burst(&mut self, batch: &mut PacketBatch, n: usize) {
        let kept = self.small.len().min(n);
        batch.extend(self.small.drain(self.small.len() - kept..));
        batch.extend((kept..n).map(|_| Packet::with_capacity(0)));
    }

    /// A packet with a copy of `p`, its offload metadata included.
    pub fn copy(&mut self, p: &Packet) -> Packet {
        let mut copy = self.alloc(p.len());
        copy.set_frame(p.data());
        copy.offload = p.offload;
        copy
    }

    /// Returns a packet's buffer to the pool.
    #[inline]
    pub fn free(&mut self, mut p: Packet) {
        p.empty();
        if p.buf.len() == SMALL_BUFFER_BYTES && self.small.len() < SMALL_KEPT {
            self.small.push(p);
        } else if p.buf.len() == LARGE_BUFFER_BYTES && self.large.len() < LARGE_KEPT {
            self.large.push(p);
        }
    }

    /// Returns the buffers of many packets, leaving `packets` empty.
    pub(crate) fn free_burst(&mut self, packets: &mut Vec<Packet>) {
        let mut small = self.small.len() + packets.len() <= SMALL_KEPT;
        for p in packets.iter_mut() {
            p.empty();
            small &= p.buf.len() == SMALL_BUFFER_BYTES;
        }
        if small {
            self.small.append(packets);
        } else {
            packets.drain(..).for_each(|p| self.free(p));
        }
    }
}
