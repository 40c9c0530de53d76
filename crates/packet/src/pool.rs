//! Packets and the per-thread pool of their buffers.
//!
//! Invariants: `start + len <= buf.len()`; a packet's buffer is small ([`SMALL_BUFFER_BYTES`], an odd
//! number of cache lines so that a burst spreads over cache sets), as large as needed, or a lent [`Chunk`]. A
//! pool keeps a bounded number of buffers and frees the rest; chunks return to their owner. Threads do not share
//! pools, but may share packets.

use std::ops::{Deref, DerefMut, Range};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::batch::PacketBatch;
use crate::chunk::{Chunk, give_back};
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
pub struct Line([u8; 64]);

impl Line {
    /// All bytes 0.
    pub const ZERO: Line = Line([0; 64]);
}

/// Memory aligned to a cache line: so is a frame after the headroom, and its headers take one line instead of
/// two; with the place of the frame in it. The fields of both variants lie at the same places, so an access does
/// not branch.
#[repr(u16)]
enum Buffer {
    Heap { queue: u16, start: u32, lines: Box<[Line]> },
    Lent { queue: u16, start: u32, lines: &'static mut [Line] },
}

// Packets move through the arrays of a burst.
const _: () = assert!(size_of::<Packet>() == 40);

impl Buffer {
    /// Zeroed memory of at least that many bytes.
    fn new(bytes: usize) -> Buffer {
        let lines = vec![Line::ZERO; bytes.div_ceil(size_of::<Line>())].into_boxed_slice();
        Buffer::Heap { queue: 0, start: HEADROOM_BYTES as u32, lines }
    }

    #[inline(always)]
    fn start(&self) -> usize {
        match self {
            Buffer::Heap { start, .. } | Buffer::Lent { start, .. } => *start as usize,
        }
    }

    #[inline(always)]
    fn queue(&self) -> u16 {
        match self {
            Buffer::Heap { queue, .. } | Buffer::Lent { queue, .. } => *queue,
        }
    }

    #[inline(always)]
    fn set_queue(&mut self, to: u16) {
        match self {
            Buffer::Heap { queue, .. } | Buffer::Lent { queue, .. } => *queue = to,
        }
    }

    #[inline(always)]
    fn set_start(&mut self, to: usize) {
        match self {
            Buffer::Heap { start, .. } | Buffer::Lent { start, .. } => *start = to as u32,
        }
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        // Empty: taken out.
        if let Buffer::Lent { lines, .. } = self
            && !lines.is_empty()
        {
            give_back(std::mem::take(lines));
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Heap { lines, .. } => lines.as_bytes(),
            Buffer::Lent { lines, .. } => lines.as_bytes(),
        }
    }
}

impl DerefMut for Buffer {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Heap { lines, .. } => lines.as_mut_bytes(),
            Buffer::Lent { lines, .. } => lines.as_mut_bytes(),
        }
    }
}

/// One frame, owned, with headroom; its offload metadata beside it.
pub struct Packet {
    buf: Buffer,
    len: u32,
    /// Pending work on the frame: checksum, segmentation.
    pub offload: Offload,
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
        Packet { buf: Buffer::new(size), len: 0, offload: Offload::NONE }
    }

    /// The frame at `place` of a chunk, without a copy. The chunk returns to its owner with the packet.
    ///
    /// # Panics
    /// If `place` is not in the chunk: a caller's bug.
    #[inline]
    pub fn from_chunk(chunk: &'static mut Chunk, place: Range<usize>) -> Packet {
        let (start, len) = (place.start as u32, place.len() as u32);
        assert!(place.start <= place.end && place.end <= size_of::<Chunk>(), "frame at {place:?} of a chunk");
        Packet { buf: Buffer::Lent { queue: 0, start, lines: chunk }, len, offload: Offload::NONE }
    }

    /// The chunk that holds the frame, if any.
    #[inline]
    pub fn chunk(&self) -> Option<&Chunk> {
        match &self.buf {
            Buffer::Heap { .. } => None,
            Buffer::Lent { lines, .. } => lines.first_chunk(),
        }
    }

    /// Takes the chunk out of the packet, which is empty and without capacity afterwards; the frame's place in it.
    pub fn take_chunk(&mut self) -> Option<(&'static mut Chunk, Range<usize>)> {
        let Buffer::Lent { lines, .. } = &mut self.buf else { return None };
        let chunk = std::mem::take(lines).try_into().ok()?;
        let (start, len) = (self.buf.start(), self.len());
        self.buf = Buffer::new(0);
        self.buf.set_start(0);
        self.len = 0;
        Some((chunk, start..start + len))
    }

    /// The frame's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let start = self.buf.start();
        &self.buf[start..start + self.len()]
    }

    /// The first [`HEAD_BYTES`] bytes from the start of the frame, for parsers that read before they check:
    /// bytes after a shorter frame are stale. `None`: the buffer ends before.
    #[inline]
    pub fn head(&self) -> Option<&[u8; HEAD_BYTES]> {
        self.buf[self.buf.start()..].first_chunk()
    }

    /// The frame's bytes, writable.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.buf.start(), self.len());
        &mut self.buf[start..start + len]
    }

    /// Sets the mark of the device's rule that the frame matched on reception; 0 for none. It lies at the start of
    /// the headroom, so copies have none, and a device that marks frames sets it for each.
    pub fn set_mark(&mut self, mark: u32) {
        if let Some(place) = self.buf.first_chunk_mut() {
            *place = mark.to_ne_bytes();
        }
    }

    /// Takes the mark. It is a hint: an old one may be left of an earlier frame in the buffer.
    pub fn take_mark(&mut self) -> u32 {
        self.buf.first_chunk_mut().map_or(0, |place| u32::from_ne_bytes(std::mem::take(place)))
    }

    /// The queue of the device by which it leaves; 0 unless set, and again once the packet is freed.
    #[inline]
    pub fn queue(&self) -> u16 {
        self.buf.queue()
    }

    /// Sets the queue.
    #[inline]
    pub fn set_queue(&mut self, queue: u16) {
        self.buf.set_queue(queue);
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
        self.buf.len() - self.buf.start()
    }

    fn empty(&mut self) {
        self.buf.set_start(HEADROOM_BYTES);
        self.buf.set_queue(0);
        self.len = 0;
        self.offload = Offload::NONE;
    }

    /// Replaces the frame by a copy of `frame`; grows the buffer if necessary.
    #[inline]
    pub fn set_frame(&mut self, frame: &[u8]) {
        if HEADROOM_BYTES + frame.len() > self.buf.len() {
            let queue = self.buf.queue();
            self.buf = Buffer::new(HEADROOM_BYTES + frame.len());
            self.buf.set_queue(queue);
        }
        self.buf.set_start(HEADROOM_BYTES);
        self.len = frame.len() as u32;
        self.data_mut().copy_from_slice(frame);
    }

    /// The whole space for a frame after the headroom, to be filled by a receive call; follow with
    /// [`Packet::set_len`].
    #[inline]
    pub fn receive_room(&mut self) -> &mut [u8] {
        self.buf.set_start(HEADROOM_BYTES);
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
        if n > self.buf.start() {
            let mut grown = Buffer::new(self.buf.len() + n + HEADROOM_BYTES);
            let start = HEADROOM_BYTES + n;
            grown[start..start + self.len()].copy_from_slice(self.data());
            grown.set_start(start);
            grown.set_queue(self.buf.queue());
            self.buf = grown;
        }
        let old = self.buf.start();
        let new = old - n;
        self.buf.copy_within(old..old + at, new);
        self.buf[new + at..new + at + n].fill(0);
        self.buf.set_start(new);
        self.len += n as u32;
        self.offload.moved(at, n as isize);
    }

    /// Puts bytes before the frame. As [`Packet::insert`] at 0. Inlined: callers know their number.
    #[inline(always)]
    pub fn prepend(&mut self, bytes: &[u8]) {
        let (n, start) = (bytes.len(), self.buf.start());
        if n > start {
            self.insert(0, n);
            self.data_mut()[..n].copy_from_slice(bytes);
            return;
        }
        self.buf[start - n..start].copy_from_slice(bytes);
        self.buf.set_start(start - n);
        self.len += n as u32;
        self.offload.moved(0, n as isize);
    }

    /// Removes the first `n` bytes of the frame. As [`Packet::remove`] at 0.
    #[inline]
    pub fn strip(&mut self, n: usize) {
        assert!(n <= self.len());
        self.buf.set_start(self.buf.start() + n);
        self.len -= n as u32;
        self.offload.moved(0, -(n as isize));
    }

    /// Removes `n` bytes at offset `at` of the frame. Adjusts checksum offsets of the offload metadata.
    pub fn remove(&mut self, at: usize, n: usize) {
        assert!(at + n <= self.len());
        let old = self.buf.start();
        self.buf.copy_within(old..old + at, old + n);
        self.buf.set_start(old + n);
        self.len -= n as u32;
        self.offload.moved(at, -(n as isize));
    }
}

impl Clone for Packet {
    fn clone(&self) -> Packet {
        let mut copy = Packet::from_slice(self.data());
        copy.offload = self.offload;
        copy.set_queue(self.queue());
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
/// Pooled packets are empty: headroom, no bytes, no offload.
#[derive(Default)]
pub struct PacketPool {
    /// Small ones freed as a burst, to be allocated as one without moving them.
    burst: Vec<Packet>,
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
            && let Some(packet) = self.burst.pop().or_else(|| self.small.pop())
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

    /// Appends `n` empty packets with small buffers to `batch`: those of the last burst freed, if as many, in constant
    /// time.
    pub fn alloc_burst(&mut self, batch: &mut PacketBatch, mut n: usize) {
        if self.burst.len() <= n {
            n -= self.burst.len();
            batch.append(&mut self.burst);
        }
        let pooled = if self.burst.is_empty() { &mut self.small } else { &mut self.burst };
        let kept = pooled.len().min(n);
        batch.extend(pooled.drain(pooled.len() - kept..));
        batch.extend((kept..n).map(|_| Packet::with_capacity(0)));
    }

    /// A packet with a copy of `p`, its offload metadata included.
    pub fn copy(&mut self, p: &Packet) -> Packet {
        let mut copy = self.alloc(p.len());
        copy.set_frame(p.data());
        copy.offload = p.offload;
        copy.set_queue(p.queue());
        copy
    }

    /// Number of pooled small buffers.
    #[cfg(test)]
    pub(crate) fn pooled(&self) -> usize {
        self.small.len() + self.burst.len()
    }

    /// Returns a packet's buffer to the pool.
    #[inline]
    pub fn free(&mut self, mut p: Packet) {
        p.empty();
        if p.buf.len() == SMALL_BUFFER_BYTES && self.small.len() + self.burst.len() < SMALL_KEPT {
            self.small.push(p);
        } else if p.buf.len() == LARGE_BUFFER_BYTES && self.large.len() < LARGE_KEPT {
            self.large.push(p);
        }
    }

    /// Returns the buffers of many packets, leaving `packets` empty.
    pub(crate) fn free_burst(&mut self, packets: &mut Vec<Packet>) {
        let mut small = self.small.len() + self.burst.len() + packets.len() <= SMALL_KEPT;
        for p in packets.iter_mut() {
            p.empty();
            small &= p.buf.len() == SMALL_BUFFER_BYTES;
        }
        if small && self.burst.is_empty() {
            std::mem::swap(&mut self.burst, packets);
        } else if small {
            self.small.append(packets);
        } else {
            packets.drain(..).for_each(|p| self.free(p));
        }
    }
}
