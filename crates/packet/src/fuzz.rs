//! Entry points for fuzzing: any bytes in, no panic out.

use crate::{
    Datagrams, Offload, Packet, PacketBatch, PacketPool, VIRTIO_NET_HDR_BYTES, complete_checksum, join,
    segment,
};

/// Frames beyond this only slow down the target.
const SEGMENTS_MAX: usize = 4096;

/// A `virtio_net_hdr` and a frame, as from a guest: completes its checksum and segments it, in a tunnel in each way, and
/// joins the segments that it holds behind VXLAN.
pub fn offload(bytes: &[u8]) {
    let Some((header, frame)) = bytes.split_first_chunk::<VIRTIO_NET_HDR_BYTES>() else { return };
    let Some(offload) = Offload::from_virtio(header, frame.len()) else { return };
    if let Some(again) = Offload::from_virtio(&offload.to_virtio(), frame.len()) {
        assert_eq!(again.to_virtio(), offload.to_virtio());
    }
    let mut packet = Packet::from_slice(frame);
    packet.offload = offload;
    if !offload.is_gso() {
        complete_checksum(&mut packet);
        assert!(!packet.offload.needs_csum && packet.len() == frame.len());
        return;
    }
    if frame.len() / usize::from(offload.gso_size).max(1) > SEGMENTS_MAX {
        return;
    }
    let (mut pool, mut out) = (PacketPool::new(), PacketBatch::new());
    if segment(&packet, &mut pool, &mut out).is_ok() {
        for p in out.packets() {
            assert!(!p.offload.is_gso() && p.len() <= frame.len(), "{} of {}", p.len(), frame.len());
        }
    }
    let mut datagrams = Datagrams::default();
    if datagrams.split(&packet).is_ok() {
        assert_eq!(datagrams.parts(&packet).count(), datagrams.runs().map(|(_, parts)| parts).sum::<usize>());
    }
    let l4 = usize::from(offload.csum_start);
    if join(&mut packet, l4, l4 + 16) {
        let mut frames = PacketBatch::new();
        segment(&packet, &mut pool, &mut frames).expect("joined segments are cut again");
        assert!(frames.len() > 1);
    }
}
