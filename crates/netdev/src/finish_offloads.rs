//! Software offloads before sending: checksums and segmentation of a batch for outputs without them.

use packet::{Packet, PacketBatch, PacketPool, complete_checksum, is_large_behind_nsh, segment};

use crate::port::{TxDrop, TxReport};

/// Whether the kernel cannot split the frame by a `virtio_net_hdr`: a large segment with a finished checksum, or behind a
/// network service header.
pub(crate) fn exceeds_virtio(p: &Packet) -> bool {
    p.offload.is_gso() && (!p.offload.needs_csum || is_large_behind_nsh(p))
}

/// Finishes every frame of `batch`; replaces large segments by their parts, in place.
pub(crate) fn finish_offloads(batch: &mut PacketBatch, pool: &mut PacketPool, report: &mut TxReport) {
    if batch.packets().iter().any(|p| p.offload.is_gso()) {
        let mut frames = PacketBatch::new();
        for p in batch.drain() {
            if p.offload.is_gso() {
                split(&p, pool, &mut frames, report);
                pool.free(p);
            } else {
                frames.push(p);
            }
        }
        *batch = frames;
    }
    for p in batch.packets_mut() {
        complete_checksum(p);
    }
}

/// Appends the parts of a large segment to `frames`.
pub(crate) fn split(p: &Packet, pool: &mut PacketPool, frames: &mut PacketBatch, report: &mut TxReport) {
    let before = frames.len();
    match segment(p, pool, frames) {
        Ok(()) => report.generated_packets += (frames.len() - before - 1) as u64,
        Err(_) => report.count_drops(TxDrop::BadOffload, 1),
    }
}
