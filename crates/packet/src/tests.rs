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
fn a_freed_burst_is_allocated_again() {
    let mut pool = PacketPool::new();
    let burst =
        |bytes: &[u8], n: usize| -> PacketBatch { (0..n).map(|_| Packet::from_slice(bytes)).collect() };
    for (freed, wanted) in [(32, 32), (32, 8), (8, 32), (0, 3), (300, 7), (1, 0)] {
        let mut batch = burst(b"stale", freed);
        batch.free_into(&mut pool);
        assert!(batch.is_empty());
        batch.push(Packet::from_slice(b"first"));
        pool.alloc_burst(&mut batch, wanted);
        assert_eq!(batch.len(), 1 + wanted);
        assert_eq!(batch.packets()[0].data(), b"first");
        assert!(batch.packets()[1..].iter().all(|p| p.is_empty() && p.capacity() >= 1514));
        pool.alloc(60);
    }
    // Mixed with large ones, and many.
    let mut batch = burst(&[0; 9000], 2);
    batch.extend(burst(b"small", 2).drain());
    batch.free_into(&mut pool);
    for _ in 0..200 {
        burst(b"many", 32).free_into(&mut pool);
    }
    assert!((4000..=4096).contains(&pool.pooled()), "{}", pool.pooled());
}

mod chunks {
    use super::*;
    use std::sync::Mutex;

    static RETURNED: Mutex<Vec<&'static mut Chunk>> = Mutex::new(Vec::new());

    fn returned() -> usize {
        RETURNED.lock().unwrap().drain(..).count()
    }

    /// Bytes 1000 to 1100 of a chunk hold the numbers from 0 on.
    fn lent() -> Packet {
        set_chunk_owner(|chunk| RETURNED.lock().unwrap().push(chunk));
        let chunk: &'static mut Chunk = Box::leak(Box::new([Line::ZERO; 64]));
        let mut p = Packet::from_chunk(chunk, 1000..1100);
        assert!(p.data().iter().all(|b| *b == 0));
        p.data_mut().iter_mut().zip(0..).for_each(|(b, n)| *b = n);
        p
    }

    /// One test: the owner is that of the process.
    #[test]
    fn come_back_once_however_their_packet_ends() {
        let frame: Vec<u8> = (0..100).collect();
        let mut pool = PacketPool::new();
        drop(lent());
        pool.free(lent());
        let mut batch: PacketBatch = [lent(), Packet::from_slice(&frame), lent()].into_iter().collect();
        batch.free_into(&mut pool);
        std::thread::spawn(|| drop(lent())).join().unwrap();
        assert_eq!((returned(), pool.pooled()), (5, 1));

        // Room of a chunk: 1,000 bytes before the frame.
        let mut p = lent();
        p.insert(12, 1000);
        p.remove(12, 900);
        assert_eq!((p.len(), returned(), p.chunk().is_some()), (200, 0, true));
        p.insert(0, 901);
        assert_eq!((p.len(), returned(), p.chunk().is_some()), (1101, 1, false));
        assert_eq!((&p.data()[901..913], &p.data()[1013..]), (&frame[..12], &frame[12..]));

        // A longer frame than a chunk, and copies.
        let mut p = lent();
        assert_eq!((p.clone().chunk().is_some(), pool.copy(&p).chunk().is_some()), (false, false));
        p.set_frame(&[1; 4000]);
        assert_eq!((p.len(), returned(), p.chunk().is_some()), (4000, 1, false));

        let mut p = lent();
        let (chunk, place) = p.take_chunk().unwrap();
        assert_eq!((place.clone(), p.len(), p.capacity()), (1000..1100, 0, 0));
        assert!(p.take_chunk().is_none() && p.head().is_none());
        drop(p);
        assert_eq!(returned(), 0, "it has another owner");
        assert_eq!(Packet::from_chunk(chunk, place).data(), &frame);
        assert_eq!(returned(), 1);
        assert!(Packet::from_slice(&frame).take_chunk().is_none());
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

proptest::proptest! {
    #[test]
    fn a_sum_is_that_of_all_halves(data in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
                                   ones: bool, from: u32) {
        let data: Vec<u8> = data.into_iter().map(|byte| if ones { byte | 0xfe } else { byte }).collect();
        let half = |bytes: &[u8]| u64::from(bytes[0]) << 8 | bytes.get(1).map_or(0, |&low| u64::from(low));
        let plain = u64::from(from) + data.chunks(2).map(half).sum::<u64>();
        let sum = checksum::fold(checksum::sum(&data, from.into()));
        proptest::prop_assert_eq!(sum, checksum::fold(plain), "{:?}", data);
    }
}

proptest::proptest! {
    /// Random headers, with the right checksum, the other form of its zero, and wrong ones.
    #[test]
    fn a_header_is_right_if_its_checksum_is_zero(words: [u32; 5], wrong: u16) {
        let mut header = [0; 20];
        header.chunks_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_be_bytes()));
        header[10..12].fill(0);
        let right = checksum::checksum(&header);
        for sum in [right, !right, 0, 0xffff, wrong, right ^ 0x100] {
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let expected = checksum::checksum(&header) == 0;
            proptest::prop_assert_eq!(checksum::ipv4_header_is_right(&header), expected, "{:?}", header);
        }
        proptest::prop_assert!(!checksum::ipv4_header_is_right(&[0; 20]));
        proptest::prop_assert!(checksum::ipv4_header_is_right(&[0xff; 20]));
    }
}

#[test]
fn a_folded_sum_has_all_carries() {
    let with_carries = |mut sum: u64| {
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    };
    let mut random = 1u64;
    let edges = [0, 1, 0xfffe, 0xffff, 0x1_0000, 0x1_ffff, u64::MAX];
    let sums = edges.into_iter().flat_map(|a| edges.map(|b| a.wrapping_sub(b) ^ a << 32 ^ b << 16));
    for sum in sums {
        assert_eq!(checksum::fold(sum), with_carries(sum), "{sum:x}");
    }
    for bits in (0..64).cycle().take(20_000) {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let sum = random >> bits;
        assert_eq!(checksum::fold(sum), with_carries(sum), "{sum:x}");
    }
}

#[test]
fn the_corpus_of_offload_is_replayed() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/offload");
    testkit::replay_corpus(folder, crate::fuzz::offload);
}
