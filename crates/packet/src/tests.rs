//! Tests of packet memory, offload metadata and checksums.

use super::*;

#[test]
fn insert_and_remove_keep_bytes_and_offsets() {
    let frame: Vec<u8> = (0..100u8).collect();
    let mut p = Packet::from_slice(&frame);
    p.offload = Offload { needs_csum: true, csum_start: 34, csum_offset: 16, ..Offload::NONE };
    p.insert(12, 4);
    assert_eq!(p.len(), 104);
    assert_eq!(&p.data()[..12], &frame[..12]);
    assert_eq!(&p.data()[12..16], &[0; 4]);
    assert_eq!(&p.data()[16..], &frame[12..]);
    assert_eq!(p.offload.csum_start, 38);
    p.remove(12, 4);
    assert_eq!(p.data(), &frame[..]);
    assert_eq!(p.offload.csum_start, 34);
}

#[test]
fn insert_beyond_the_headroom_grows_the_buffer() {
    let mut p = Packet::from_slice(&[7; 60]);
    for _ in 0..100 {
        p.insert(12, 4);
    }
    assert_eq!(p.len(), 460);
    assert_eq!(&p.data()[412..], &[7; 48]);
}

#[test]
fn pool_recycles_small_and_large_buffers() {
    let mut pool = PacketPool::new();
    for size in [60, 1500, 9000, LARGE_FRAME_BYTES] {
        let mut p = pool.alloc(size);
        assert!(p.capacity() >= size);
        p.set_len(size);
        pool.free(p);
        assert!(pool.alloc(size).is_empty());
    }
}

#[test]
fn virtio_header_round_trips_and_refuses_nonsense() {
    let o = Offload {
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        gso: GsoKind::Tcp4,
        gso_size: 1448,
        hdr_len: 66,
        ..Offload::NONE
    };
    assert_eq!(Offload::from_virtio(&o.to_virtio(), 3000), Some(o));
    assert_eq!(Offload::from_virtio(&o.to_virtio(), 51), None, "checksum field outside the frame");
    let mut unknown = o.to_virtio();
    unknown[1] = 77;
    assert_eq!(Offload::from_virtio(&unknown, 3000), None);
}

#[test]
fn checksum_of_rfc1071_example_and_incremental_update() {
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum::checksum(&data), !0xddf2);
    let mut changed = data;
    changed[2..4].copy_from_slice(&[0x12, 0x34]);
    assert_eq!(checksum::update16(!0xddf2, 0xf203, 0x1234), checksum::checksum(&changed));
    assert_eq!(checksum::update_bytes(!0xddf2, &data[2..6], &changed[2..6]), checksum::checksum(&changed));
}

#[test]
fn the_corpus_of_offload_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/offload");
    testkit::replay_corpus(folder, crate::fuzz::offload);
}
