//! The four rings of an XDP socket (`linux/if_xdp.h`, the kernel's `af_xdp` document): one side writes
//! entries and then advances the producer index, the other reads them and then advances the consumer index.
//! Indices run freely and are masked.
//!
//! Invariant: whatever the other side's index, only entries of the mapping are accessed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, xdp_desc, xdp_ring_offset};

use crate::raw;

/// An entry of a ring.
///
/// # Safety
/// Every bit pattern must be a valid value: the kernel writes them.
pub(super) unsafe trait Entry: Copy + Send {}

// SAFETY: an integer.
unsafe impl Entry for u64 {}
// SAFETY: integers.
unsafe impl Entry for xdp_desc {}

/// A mapped ring of entries of one kind.
struct Ring<T> {
    base: NonNull<u8>,
    mapped_bytes: usize,
    offsets: Offsets,
    mask: u32,
    entry: std::marker::PhantomData<T>,
}

#[derive(Clone, Copy)]
struct Offsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

// SAFETY: this value owns the mapping exclusively; it is not bound to a thread.
unsafe impl<T: Entry> Send for Ring<T> {}

impl<T: Entry> Ring<T> {
    /// Creates a ring of `entries` (a power of two) by the socket option `kind`, and maps it at
    /// `page_offset`.
    fn new(
        fd: BorrowedFd<'_>,
        kind: c_int,
        entries: u32,
        offsets: &xdp_ring_offset,
        page_offset: i64,
    ) -> io::Result<Ring<T>> {
        debug_assert!(entries.is_power_of_two());
        let mapped_bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        let offsets = Offsets {
            producer: offsets.producer as usize,
            consumer: offsets.consumer as usize,
            flags: offsets.flags as usize,
            entries: offsets.desc as usize,
        };
        let index_fits = |at: usize| at.is_multiple_of(4) && at + 4 <= mapped_bytes;
        let sound = [offsets.producer, offsets.consumer, offsets.flags].into_iter().all(index_fits)
            && offsets.entries.is_multiple_of(align_of::<T>());
        if !sound {
            return Err(io::Error::other("the kernel returned invalid offsets of a ring"));
        }
        raw::set_option(&fd, libc::SOL_XDP, kind, entries as c_int)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                page_offset as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Ring { base, mapped_bytes, offsets, mask: entries - 1, entry: std::marker::PhantomData })
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        // SAFETY: aligned and within the mapping (checked in `new`), which lives as long as `self`; kernel and process
        // both access it as a whole.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast::<u32>()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: a masked index is below the number of entries, all of which lie in the mapping.
        unsafe {
            let entries = self.base.as_ptr().add(self.offsets.entries).cast::<T>();
            entries.add((index & self.mask) as usize)
        }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; no reference into it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.mapped_bytes) };
    }
}

/// A ring that this process writes: fill and transmit.
pub(super) struct Producer<T> {
    ring: Ring<T>,
    next: u32,
}

impl<T: Entry> Producer<T> {
    /// See [`Ring::new`].
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        kind: c_int,
        entries: u32,
        offsets: &xdp_ring_offset,
        page_offset: i64,
    ) -> io::Result<Producer<T>> {
        Ok(Producer { ring: Ring::new(fd, kind, entries, offsets, page_offset)?, next: 0 })
    }

    /// Written entries that the kernel has not consumed.
    pub(super) fn pending(&self) -> u32 {
        let taken = self.ring.index(self.ring.offsets.consumer).load(Ordering::Acquire);
        self.next.wrapping_sub(taken).min(self.ring.size())
    }

    /// Entries that can be written now.
    pub(super) fn room(&self) -> u32 {
        self.ring.size() - self.pending()
    }

    /// Writes an entry; requires [`Producer::room`]. The kernel sees it after [`Producer::publish`].
    pub(super) fn write(&mut self, value: T) {
        // SAFETY: within the mapping; the kernel does not access entries between producer and consumer.
        unsafe { self.ring.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
    }

    /// Hands all written entries to the kernel.
    pub(super) fn publish(&self) {
        self.ring.index(self.ring.offsets.producer).store(self.next, Ordering::Release);
    }

    /// Whether the kernel needs a system call to process the ring (`XDP_RING_NEED_WAKEUP`).
    pub(super) fn needs_wakeup(&self) -> bool {
        let flags = self.ring.index(self.ring.offsets.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that this process reads: receive and completion.
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    next: u32,
}

impl<T: Entry> Consumer<T> {
    /// See [`Ring::new`].
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        kind: c_int,
        entries: u32,
        offsets: &xdp_ring_offset,
        page_offset: i64,
    ) -> io::Result<Consumer<T>> {
        Ok(Consumer { ring: Ring::new(fd, kind, entries, offsets, page_offset)?, next: 0 })
    }

    /// Entries that wait.
    pub(super) fn waiting(&self) -> u32 {
        let written = self.ring.index(self.ring.offsets.producer).load(Ordering::Acquire);
        written.wrapping_sub(self.next).min(self.ring.size())
    }

    /// Reads the next entry; requires [`Consumer::waiting`]. The kernel may reuse its slot after
    /// [`Consumer::release`].
    pub(super) fn read(&mut self) -> T {
        // SAFETY: within the mapping; the kernel wrote it before advancing its index, and does not write
        // again until ours advances. Any bytes make a valid entry.
        let value = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        value
    }

    /// Releases the slots of all read entries to the kernel.
    pub(super) fn release(&self) {
        self.ring.index(self.ring.offsets.consumer).store(self.next, Ordering::Release);
    }
}
