//! Packets and the per-thread pool of their buffers.
//!
//! Invariants: `start + len <= buf.len()`; a packet's buffer is either small ([`SMALL_BUFFER_BYTES`], an odd number of
//! cache lines so that a burst does not fall into one cache set) or exactly as large as it had to be. A pool keeps a
//! bounded number of buffers; what exceeds it is freed. Pools are not shared between threads; packets may be.

use crate::batch::PacketBatch;
use crate::offload::Offload;

/// Free bytes in front of a received frame, for pushed VLAN tags and tunnel headers.
pub const HEADROOM_BYTES: usize = 128;
/// Size of a small buffer: 35 cache lines.
pub const SMALL_BUFFER_BYTES: usize = 2240;
/// The largest frame that a large buffer takes: 64 KB of IP and its Ethernet and VLAN headers.
pub const LARGE_FRAME_BYTES: usize = 65535 + 22;

/// Bytes of [`Packet::head`]: Ethernet with a VLAN tag, IPv6 and the TCP header's flags.
pub const HEAD_BYTES: usize = 80;

const SMALL_KEPT: usize = 4096;
const LARGE_KEPT: usize = 64;

/// One frame, owned, with headroom; its offload metadata beside it.
pub struct Packet {
    buf: Box<[u8]>,
    start: u32,
    len: u32,
    /// What is still to be done to the frame: checksum, segmentation.
    pub offload: Offload,
}

impl Packet {
    /// A packet holding a copy of `frame`, with the usual headroom.
    pub fn from_slice(frame: &[u8]) -> Packet {
        let mut p = Packet::with_capacity(frame.len());
        p.set_frame(frame);
        p
    }

    /// An empty packet whose buffer takes a frame of `frame_bytes` behind the headroom.
    pub fn with_capacity(frame_bytes: usize) -> Packet {
        let size = (HEADROOM_BYTES + frame_bytes).max(SMALL_BUFFER_BYTES);
        Packet {
            buf: vec![0; size].into_boxed_slice(),
            start: HEADROOM_BYTES as u32,
            len: 0,
            offload: Offload::NONE,
        }
    }

    /// The frame's bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        &self.buf[self.start as usize..(self.start + self.len) as usize]
    }

    /// The first [`HEAD_BYTES`] bytes from the start of the frame on, for parsers that read before they judge: what lies
    /// behind a shorter frame is left over from others and means nothing. `None`: the buffer ends before.
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

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes free behind the start of the frame, the frame's own included.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.buf.len() - self.start as usize
    }

    fn empty(&mut self) {
        self.start = HEADROOM_BYTES as u32;
        self.len = 0;
        self.offload = Offload::NONE;
    }

    /// Replaces the frame by a copy of `frame`; the buffer grows when it is too small.
    #[inline]
    pub fn set_frame(&mut self, frame: &[u8]) {
        if HEADROOM_BYTES + frame.len() > self.buf.len() {
            self.buf = vec![0; HEADROOM_BYTES + frame.len()].into_boxed_slice();
        }
        self.start = HEADROOM_BYTES as u32;
        self.len = frame.len() as u32;
        self.data_mut().copy_from_slice(frame);
    }

    /// The whole room for a frame behind the headroom, for a receive call to fill; follow with [`Packet::set_len`].
    #[inline]
    pub fn receive_room(&mut self) -> &mut [u8] {
        self.start = HEADROOM_BYTES as u32;
        self.len = 0;
        &mut self.buf[HEADROOM_BYTES..]
    }

    /// Sets the frame's length, cutting or extending it at its end.
    ///
    /// # Panics
    /// When `len` exceeds [`Packet::capacity`]: a caller's bug.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "frame of {len} bytes in a buffer of {}", self.capacity());
        self.len = len as u32;
    }

    /// Inserts `n` zero bytes at offset `at` of the frame by moving the bytes before it forward into the headroom
    /// (the buffer is enlarged when that is used up). Checksum offsets of the offload metadata move along.
    pub fn insert(&mut self, at: usize, n: usize) {
        assert!(at <= self.len());
        if n > self.start as usize {
            let mut grown = vec![0; self.buf.len() + n + HEADROOM_BYTES].into_boxed_slice();
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

    /// Removes `n` bytes at offset `at` of the frame. Checksum offsets of the offload metadata move along.
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
/// Those kept are empty: headroom in front, no bytes, no offload.
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

    /// An empty packet whose buffer takes a frame of `frame_bytes`. Its bytes are those of some former packet:
    /// the caller fills what it then declares by [`Packet::set_len`].
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

    /// Appends `n` empty packets with small buffers to `batch`: a burst's worth at the price of one copy, to be filled in
    /// their place.
    pub fn alloc_burst(&mut self, batch: &mut PacketBatch, n: usize) {
        let kept = self.small.len().min(n);
        batch.extend(self.small.drain(self.small.len() - kept..));
        batch.extend((kept..n).map(|_| Packet::with_capacity(0)));
    }

    /// A packet holding a copy of `p`, its offload metadata included.
    pub fn copy(&mut self, p: &Packet) -> Packet {
        let mut copy = self.alloc(p.len());
        copy.set_frame(p.data());
        copy.offload = p.offload;
        copy
    }

    /// Takes a packet's buffer back.
    #[inline]
    pub fn free(&mut self, mut p: Packet) {
        p.empty();
        if p.buf.len() == SMALL_BUFFER_BYTES && self.small.len() < SMALL_KEPT {
            self.small.push(p);
        } else if p.buf.len() == HEADROOM_BYTES + LARGE_FRAME_BYTES && self.large.len() < LARGE_KEPT {
            self.large.push(p);
        }
    }

    /// Takes back the buffers of many packets, which is empty afterwards.
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
