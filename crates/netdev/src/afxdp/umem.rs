//! UMEM: memory of frames in chunks of 4 KB, which all `afxdp` ports of the process share. Each socket registers a whole
//! [`Umem`], so a chunk filled by one socket can be sent by another.
//!
//! Invariants: a chunk has one owner: the kernel (in a ring of a socket or on its way back), one direction of a socket,
//! a packet, or the spare chunks here. Only its owner accesses it. A socket owns a fixed number of chunks; packets use
//! spare ones, so packets that are held never starve a socket.
//!
//! `holders` tells the chunks of the kernel by direction of a socket, so an address that the kernel should not have
//! given is refused. A closed socket may still be open in a process just forked, so the kernel might write to chunks
//! that it had then. Unless it is known to have stopped (`rx`), these are retired until the umem has no socket and no
//! packet has a chunk. Then its pages are replaced: the kernel keeps those that it has pinned, and every chunk is
//! spare again.
//!
//! Bounds: a umem has room for two ports like its first: 32 to 160 MB, besides the kernel's records of each chunk for
//! each socket. Another one is made only if
//! none has room, so there are at most as many as open ports and ports whose packets are still held. Umems stay for
//! later ports, [`UMEMS_MAX`] at most; without a socket they take no memory.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_queue::ArrayQueue;
use libc::c_int;
use packet::{CHUNK_BYTES, Chunk, set_chunk_owner};

/// Chunks of a umem, 32 MB: for three ports with one queue each, and as many frames as a port has on their way.
const CHUNKS_MIN: u32 = 8192;
/// The shares of the chunks of a umem's first port: two directions of two ports, and spare chunks.
const SHARES: u32 = 5;

/// Maximum umems of a process.
const UMEMS_MAX: usize = 256;

/// Memory of chunks.
pub(super) struct Umem {
    base: NonNull<Chunk>,
    chunks: u32,
    spare: ArrayQueue<u32>,
    /// By chunk: the direction that gave it to the kernel, or 0.
    holders: Box<[AtomicU32]>,
    next_holder: AtomicU32,
    /// Chunks that the kernel may still access, of closed sockets.
    retired: AtomicU32,
    sockets: AtomicU32,
    /// A socket has used the present pages.
    used: AtomicBool,
}

// SAFETY: plain memory of the process for all time; the invariant above governs access to its parts.
unsafe impl Send for Umem {}
// SAFETY: as above: each chunk is accessed by its one owner.
unsafe impl Sync for Umem {}

/// All of the process, from the first place on.
static UMEMS: [OnceLock<Umem>; UMEMS_MAX] = [const { OnceLock::new() }; UMEMS_MAX];
/// Held while sockets get or return their chunks.
static CHANGES: Mutex<()> = Mutex::new(());

fn umems() -> impl Iterator<Item = &'static Umem> {
    UMEMS.iter().map_while(OnceLock::get)
}

/// The chunk of a dropped packet becomes spare.
fn give_back(chunk: &'static mut Chunk) {
    if let Some(umem) = umems().find(|umem| umem.has(chunk)) {
        let chunk = umem.take_back(chunk);
        umem.put_back(chunk);
    }
}

/// A direction of a socket that gives chunks to the kernel.
pub(super) struct Holder(u32);

/// Chunks for one socket.
pub(super) struct Share {
    pub(super) umem: &'static Umem,
    pub(super) rx: Vec<u32>,
    pub(super) tx: Vec<u32>,
}

/// Takes `entries` chunks for each direction of `count` sockets out of one umem; another one if none has room.
pub(super) fn take(count: usize, entries: u32) -> io::Result<Vec<Share>> {
    let changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    set_chunk_owner(give_back);
    let port = count as u32 * entries;
    umems().for_each(Umem::renew_if_idle);
    // Some stay spare, for packets.
    let roomy = umems().find(|umem| umem.spare.len() >= 3 * port as usize);
    let umem = match roomy {
        Some(umem) => umem,
        None => {
            let place = UMEMS.iter().find(|place| place.get().is_none());
            let place = place.ok_or_else(|| io::Error::other("too many ports of type afxdp"))?;
            let made = Umem::new((SHARES * port).max(CHUNKS_MIN))?;
            place.get_or_init(|| made)
        }
    };
    umem.used.store(true, Ordering::Relaxed);
    let some = || std::iter::from_fn(|| umem.spare.pop()).take(entries as usize).collect();
    let share = || {
        umem.sockets.fetch_add(1, Ordering::Relaxed);
        Share { umem, rx: some(), tx: some() }
    };
    let shares: Vec<Share> = std::iter::repeat_with(share).take(count).collect();
    // The end of a share takes the lock.
    drop(changes);
    // Packets from other ports may have taken spare chunks meanwhile.
    if shares.iter().any(|s| s.rx.len().min(s.tx.len()) < entries as usize) {
        return Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "all memory for frames is in use by packets; try again",
        ));
    }
    Ok(shares)
}

impl Drop for Share {
    /// Returns the chunks left in it: those that no kernel has seen, or that it has returned.
    fn drop(&mut self) {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in self.rx.drain(..).chain(self.tx.drain(..)) {
            self.umem.put_back(chunk);
        }
        self.umem.sockets.fetch_sub(1, Ordering::Relaxed);
        self.umem.renew_if_idle();
    }
}

impl Umem {
    fn new(chunks: u32) -> io::Result<Umem> {
        let base = map(None, chunks as usize * CHUNK_BYTES)?;
        let umem = Umem {
            base,
            chunks,
            spare: ArrayQueue::new(chunks as usize),
            holders: (0..chunks).map(|_| AtomicU32::new(0)).collect(),
            next_holder: AtomicU32::new(1),
            retired: AtomicU32::new(0),
            sockets: AtomicU32::new(0),
            used: AtomicBool::new(false),
        };
        (0..chunks).for_each(|chunk| umem.put_back(chunk));
        Ok(umem)
    }

    pub(super) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks as usize * CHUNK_BYTES
    }

    /// Replaces the pages of a umem without socket and packets. Requires [`CHANGES`].
    fn renew_if_idle(&self) {
        let spare = self.spare.len() as u32;
        let retired = self.retired.load(Ordering::Relaxed);
        let idle = self.sockets.load(Ordering::Relaxed) == 0 && spare + retired == self.chunks;
        if !idle || !self.used.load(Ordering::Relaxed) {
            return;
        }
        // Without memory for that, the pages and the retired chunks stay as they are.
        if map(Some(self.base), self.bytes()).is_ok() {
            while self.spare.pop().is_some() {}
            self.holders.iter().for_each(|holder| holder.store(0, Ordering::Relaxed));
            (0..self.chunks).for_each(|chunk| self.put_back(chunk));
            self.retired.store(0, Ordering::Relaxed);
            self.used.store(false, Ordering::Relaxed);
        }
    }

    /// Whether another socket could send what one has received.
    pub(super) fn is_shared(&self) -> bool {
        self.sockets.load(Ordering::Relaxed) > 1
    }

    /// A spare chunk, if there is one. The caller owns it.
    pub(super) fn spare(&self) -> Option<u32> {
        self.spare.pop()
    }

    /// Takes back a chunk; the caller no longer owns it.
    pub(super) fn put_back(&self, chunk: u32) {
        // There is a place for each chunk, and each is in at most once.
        let _ = self.spare.push(chunk);
    }

    /// A direction of a socket, for the following calls.
    pub(super) fn new_holder(&self) -> Holder {
        // A number is in use again after 2^32 sockets.
        Holder(self.next_holder.fetch_add(1, Ordering::Relaxed).max(1))
    }

    /// The kernel gets a chunk of the caller through that direction.
    pub(super) fn give_to(&self, chunk: u32, holder: &Holder) {
        self.holders[chunk as usize].store(holder.0, Ordering::Relaxed);
    }

    /// The kernel returned the chunk at an address through that direction: the caller owns it. `None`: it was not
    /// given to it there.
    pub(super) fn take_from(&self, address: u64, holder: &Holder) -> Option<u32> {
        let chunk = u32::try_from(address / CHUNK_BYTES as u64).ok()?;
        let place = self.holders.get(chunk as usize)?;
        let is_its = place.load(Ordering::Relaxed) == holder.0;
        is_its.then(|| place.store(0, Ordering::Relaxed)).map(|()| chunk)
    }

    /// A direction ends. Its chunks become spare if the kernel has stopped accessing them; else they are retired.
    pub(super) fn end(&self, holder: &Holder, kernel_stopped: bool) {
        for (chunk, place) in self.holders.iter().enumerate() {
            if place.load(Ordering::Relaxed) != holder.0 {
                continue;
            }
            place.store(0, Ordering::Relaxed);
            if kernel_stopped {
                self.put_back(chunk as u32);
            } else {
                self.retired.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The address of a chunk, for the kernel.
    pub(super) fn address_of(chunk: u32) -> u64 {
        u64::from(chunk) * CHUNK_BYTES as u64
    }

    /// The bytes of a frame at an address of the kernel, if within one chunk.
    ///
    /// # Safety
    /// The caller must own the chunk.
    pub(super) unsafe fn frame(&self, address: u64, bytes: usize) -> Option<&[u8]> {
        let (chunk, at) = ((address / CHUNK_BYTES as u64) as u32, address as usize % CHUNK_BYTES);
        // SAFETY: a part of a chunk within the mapping, which was zeroed; nobody writes to it, as the caller owns it.
        (chunk < self.chunks && at + bytes <= CHUNK_BYTES).then(|| unsafe {
            std::slice::from_raw_parts(self.base.add(chunk as usize).cast().add(at).as_ptr(), bytes)
        })
    }

    /// Writes a frame to a chunk, from its start on.
    ///
    /// # Safety
    /// The caller must own the chunk.
    pub(super) unsafe fn put(&self, chunk: u32, frame: &[u8]) {
        assert!(chunk < self.chunks && frame.len() <= CHUNK_BYTES);
        // SAFETY: within the mapping; nobody else accesses the chunk, as the caller owns it.
        unsafe {
            let to = self.base.add(chunk as usize).cast::<u8>();
            std::ptr::copy_nonoverlapping(frame.as_ptr(), to.as_ptr(), frame.len());
        }
    }

    /// Lends a chunk to a packet.
    ///
    /// # Safety
    /// The caller must own the chunk.
    #[allow(clippy::mut_from_ref, reason = "the chunk is the caller's")]
    pub(super) unsafe fn lend(&'static self, chunk: u32) -> &'static mut Chunk {
        assert!(chunk < self.chunks);
        // SAFETY: within the mapping, whose bytes all make valid chunks; its pages are replaced only once no packet has one
        // of them; the caller owns it.
        unsafe { self.base.add(chunk as usize).as_mut() }
    }

    /// Whether a chunk is of this umem.
    pub(super) fn has(&self, chunk: &Chunk) -> bool {
        let at = std::ptr::from_ref(chunk) as u64;
        (self.address()..self.address() + self.bytes() as u64).contains(&at)
    }

    /// The caller owns the chunk that a packet had.
    pub(super) fn take_back(&self, chunk: &'static mut Chunk) -> u32 {
        assert!(self.has(chunk), "a chunk comes home");
        ((std::ptr::from_mut(chunk) as u64 - self.address()) / CHUNK_BYTES as u64) as u32
    }
}

/// Zeroed pages, at an address of the kernel's choice or in place of the former ones.
fn map(former: Option<NonNull<Chunk>>, bytes: usize) -> io::Result<NonNull<Chunk>> {
    let (at, fixed): (_, c_int) = former.map_or((std::ptr::null_mut(), 0), |f| (f.as_ptr(), libc::MAP_FIXED));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: a new mapping, or one over a mapping of this module to which no reference exists.
    let base = unsafe { libc::mmap(at.cast(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // A forked process needs no copy of them.
    // SAFETY: exactly the mapping just made.
    let forked = unsafe { libc::madvise(base, bytes, libc::MADV_DONTFORK) };
    if forked != 0 {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))
}
