//! Doing in software, before sending, what the way out cannot do: checksums and segmentation of a batch.

use packet::{Packet, PacketBatch, PacketPool, complete_checksum, segment};

use crate::port::{TxDrop, TxReport};

/// Whether the kernel could not take the frame even with a `virtio_net_hdr`: a large segment with a finished checksum
/// cannot be said in one.
pub(crate) fn unsayable(p: &Packet) -> bool {
    p.offload.is_gso() && !p.offload.needs_csum
}

/// Finishes every frame of `batch`; large segments are replaced by theirs, in place.
pub(crate) fn finish_offloads(batch: &mut PacketBatch, pool: &mut PacketPool, report: &mut TxReport) {
    if batch.packets().iter().any(|p| p.offload.is_gso()) {
        let mut frames = PacketBatch::new();
        for p in batch.drain() {
            if !p.offload.is_gso() {
                frames.push(p);
                continue;
            }
            let before = frames.len();
            match segment(&p, pool, &mut frames) {
                Ok(()) => report.generated_packets += (frames.len() - before - 1) as u64,
                Err(_) => report.count_drops(TxDrop::BadOffload, 1),
            }
            pool.free(p);
        }
        *batch = frames;
    }
    for p in batch.packets_mut() {
        complete_checksum(p);
    }
}
