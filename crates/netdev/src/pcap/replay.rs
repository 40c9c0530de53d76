//! Frames in memory, received repeatedly.
//!
//! Each frame begins at a cache line, and whole lines are copied: bytes after its end are ignored.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use packet::headers::ETH_HEADER_BYTES;
use packet::{BURST_MAX_PACKETS, PacketBatch, PacketPool};

use super::{open_frames, wrap};
use crate::eventfd::EventFd;
use crate::port::{RxCounters, RxQueue};

/// Maximum memory for the frames of one port.
pub const MAX_PRELOADED_BYTES: usize = 256 << 20;
const LINE_BYTES: usize = 64;
/// Number of frames prefetched, as a device would place them into the cache: two bursts.
const FRAMES_AHEAD: usize = 64;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE_BYTES]);

#[derive(Clone, Copy)]
struct FramePosition {
    first_line: u32,
    bytes: u32,
}

/// A receive queue that never ends.
pub(super) struct Replay {
    lines: Vec<Line>,
    frames: Vec<FramePosition>,
    next: usize,
    /// Raised for ever.
    ready: EventFd,
    malformed: u64,
}

impl Replay {
    /// Reads a file whole.
    pub(super) fn load(path: &Path) -> io::Result<Replay> {
        let mut file = open_frames(path)?;
        let refused =
            |what: String| wrap(path, "cannot be played", io::Error::new(io::ErrorKind::InvalidData, what));
        let mut replay =
            Replay { lines: Vec::new(), frames: Vec::new(), next: 0, ready: EventFd::new()?, malformed: 0 };
        let mut frame = Vec::new();
        while let Some(record) = file.next().map_err(|e| wrap(path, "cannot be played", e))? {
            frame.resize(record.stored_bytes, 0);
            file.read(&mut frame).map_err(|e| wrap(path, "cannot be played", e))?;
            if record.frame_bytes < ETH_HEADER_BYTES {
                replay.malformed += 1;
                continue;
            }
            replay.add(&frame[..record.frame_bytes]);
            if replay.lines.len() * LINE_BYTES > MAX_PRELOADED_BYTES {
                let most = MAX_PRELOADED_BYTES >> 20;
                return Err(refused(format!(
                    "its frames take more than {most} MB; play it without infinite_rx"
                )));
            }
        }
        if replay.frames.is_empty() {
            return Err(refused("it contains no frame to replay".to_owned()));
        }
        replay.ready.raise();
        Ok(replay)
    }

    fn add(&mut self, frame: &[u8]) {
        let place = FramePosition { first_line: self.lines.len() as u32, bytes: frame.len() as u32 };
        self.frames.push(place);
        for part in frame.chunks(LINE_BYTES) {
            let mut line = Line([0; LINE_BYTES]);
            line.0[..part.len()].copy_from_slice(part);
            self.lines.push(line);
        }
    }

    /// The lines of a frame.
    fn lines(&self, place: FramePosition) -> &[Line] {
        let first = place.first_line as usize;
        &self.lines[first..first + (place.bytes as usize).div_ceil(LINE_BYTES)]
    }
}

impl RxQueue for Replay {
    fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    fn recv(
        &mut self,
        pool: &mut PacketPool,
        batch: &mut PacketBatch,
        max_packets: usize,
    ) -> io::Result<usize> {
        let most = max_packets.min(BURST_MAX_PACKETS);
        let before = batch.len();
        pool.alloc_burst(batch, most);
        for p in &mut batch.packets_mut()[before..] {
            let place = self.frames[self.next];
            if let Some(ahead) = self.frames.get(self.next + FRAMES_AHEAD) {
                simd::prefetch(&self.lines[ahead.first_line as usize]);
            }
            self.next = if self.next + 1 == self.frames.len() { 0 } else { self.next + 1 };
            if place.bytes as usize > p.capacity() {
                let large = pool.alloc(place.bytes as usize);
                pool.free(std::mem::replace(p, large));
            }
            // A loop over lines of constant size: a call of memcpy costs as much as a whole short frame.
            let mut room = p.receive_room().chunks_exact_mut(LINE_BYTES);
            let mut from = self.lines(place).iter();
            for (to, line) in (&mut room).zip(&mut from) {
                to.copy_from_slice(&line.0);
            }
            if let Some(line) = from.next() {
                let rest = room.into_remainder();
                let copied = rest.len().min(LINE_BYTES);
                rest[..copied].copy_from_slice(&line.0[..copied]);
            }
            p.set_len(place.bytes as usize);
        }
        Ok(most)
    }

    fn counters(&self) -> RxCounters {
        RxCounters { malformed: self.malformed, ..RxCounters::default() }
    }
}
