//! Chunks: memory of frames that belongs to ports (AF_XDP's UMEM), lent to packets.
//!
//! Invariant: a chunk has one owner, because its reference is exclusive. `netdev` makes chunks; packets hold them as
//! they hold heap buffers. Dropping the packet returns its chunk, from any thread, by the function set here.

use std::sync::OnceLock;

use crate::pool::Line;

/// Bytes of a chunk: a page.
pub const CHUNK_BYTES: usize = 4096;

/// Memory of one frame.
pub type Chunk = [Line; CHUNK_BYTES / size_of::<Line>()];

static RETURN: OnceLock<fn(&'static mut Chunk)> = OnceLock::new();

/// Sets the owner of chunks without a packet, once in a process: the first call counts. `give_back` must not block.
pub fn set_chunk_owner(give_back: fn(&'static mut Chunk)) {
    RETURN.get_or_init(|| give_back);
}

/// Returns the chunk of a dropped packet.
#[cold]
pub(crate) fn give_back(lines: &'static mut [Line]) {
    if let (Some(give_back), Ok(chunk)) = (RETURN.get(), lines.try_into()) {
        give_back(chunk);
    }
}
