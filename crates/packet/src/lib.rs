//! Packet memory: owned frames with headroom, their offload metadata, batches, header views and checksums.
//!
//! A [`Packet`] is one Ethernet frame (or layer-3 packet) in an owned heap buffer or a lent [`Chunk`], with headroom
//! for pushed headers. Large segments (TCP super-frames of up to 64 KB) are ordinary packets in a large buffer;
//! [`Offload`] beside the bytes describes pending work of a NIC or a tap (checksum, segmentation).
//!
//! Nothing here does I/O. A [`PacketPool`], owned by one thread, recycles buffers.
#![forbid(unsafe_code)]

mod batch;
pub mod checksum;
mod chunk;
pub mod fuzz;
mod gso;
pub mod headers;
mod merge;
mod offload;
mod pool;
mod tunneled;

pub use batch::{BATCH_MAX_PACKETS, BURST_MAX_PACKETS, PacketBatch};
pub use chunk::{CHUNK_BYTES, Chunk, set_chunk_owner};
pub use gso::{
    Crc32c, MAX_SEGMENTS, SegmentError, can_be_tunneled, complete_checksum, crc32c, frame_bytes, frames,
    is_large_behind_nsh, is_tunneled, segment, wire_cost,
};
pub use merge::{MERGED_HEADERS_MAX_BYTES, MERGED_MAX, Merged, merge};
pub use offload::{GsoKind, Offload, VIRTIO_NET_HDR_BYTES};
pub use pool::{HEAD_BYTES, HEADROOM_BYTES, LARGE_FRAME_BYTES, Line, Packet, PacketPool, SMALL_BUFFER_BYTES};
pub use tunneled::{Datagrams, join};

#[cfg(test)]
mod gso_tests;
#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tunneled_tests;
