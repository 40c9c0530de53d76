//! The invariant of merging: segmentation of a merged run yields the run.

use super::headers::*;
use super::*;
use proptest::prelude::*;

/// A flow of datagrams as sent by a host, with partial checksums.
#[derive(Clone, Debug)]
struct Flow {
    tags: usize,
    v6: bool,
    first_id: u16,
    payload_bytes: usize,
    last_bytes: usize,
    count: usize,
}

fn flow() -> impl Strategy<Value = Flow> {
    let sizes = prop_oneof![1usize..64, 1000usize..1473];
    (0usize..3, any::<bool>(), any::<u16>(), sizes, 1usize..1473, 1usize..100).prop_map(
        |(tags, v6, first_id, payload_bytes, last_bytes, count)| Flow {
            tags,
            v6,
            first_id,
            payload_bytes,
            last_bytes,
            count,
        },
    )
}

fn datagram(flow: &Flow, i: usize, payload_bytes: usize) -> Packet {
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for _ in 0..flow.tags {
        f.extend([0x81, 0x00, 0x20, 7]);
    }
    let l4_bytes = UDP_HEADER_BYTES + payload_bytes;
    let addresses: Vec<u8> = (1..if flow.v6 { 33 } else { 9 }).collect();
    let l3 = f.len() + 2;
    if flow.v6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend((l4_bytes as u16).to_be_bytes());
        f.extend([IPPROTO_UDP, 64]);
    } else {
        f.extend([0x08, 0x00, 0x45, 0]);
        f.extend(((IPV4_HEADER_BYTES + l4_bytes) as u16).to_be_bytes());
        f.extend(flow.first_id.wrapping_add(i as u16).to_be_bytes());
        f.extend([0x40, 0, 64, IPPROTO_UDP, 0, 0]);
    }
    f.extend(&addresses);
    if !flow.v6 {
        let csum = checksum::checksum(&f[l3..]).to_be_bytes();
        f[l3 + 10..l3 + 12].copy_from_slice(&csum);
    }
    let csum_start = f.len() as u16;
    let (src, dst) = addresses.split_at(addresses.len() / 2);
    let pseudo = checksum::fold(checksum::pseudo(src, dst, IPPROTO_UDP, l4_bytes));
    f.extend([0x12, 0x34, 0x56, 0x78]);
    f.extend((l4_bytes as u16).to_be_bytes());
    f.extend(pseudo.to_be_bytes());
    f.extend((0..payload_bytes).map(|n| (n * 7 + i) as u8));
    let mut p = Packet::from_slice(&f);
    p.offload = Offload { needs_csum: true, csum_start, csum_offset: 6, ..Offload::NONE };
    p
}

fn frames(flow: &Flow) -> Vec<Packet> {
    let bytes = |i| if i + 1 == flow.count { flow.last_bytes } else { flow.payload_bytes };
    (0..flow.count).map(|i| datagram(flow, i, bytes(i))).collect()
}

/// The large segment as one frame.
fn gathered(m: &Merged, run: &[Packet]) -> Packet {
    let mut bytes = m.headers().to_vec();
    run.iter().for_each(|p| bytes.extend(&p.data()[m.header_bytes()..]));
    let mut p = Packet::from_slice(&bytes);
    p.offload = m.offload();
    p
}

/// Merges the start of `packets`, segments it and compares; returns the length of the run.
fn check(packets: &[Packet]) -> usize {
    let Some(m) = merge(packets) else { return 1 };
    let run = &packets[..m.packets()];
    assert!(run.len() > 1 && run.len() <= MERGED_MAX);
    let large = gathered(&m, run);
    let as_told = Offload::from_virtio(&large.offload.to_virtio(), large.len());
    assert_eq!(as_told, Some(large.offload), "the header says all there is");
    let (mut pool, mut cut) = (PacketPool::new(), PacketBatch::new());
    segment(&large, &mut pool, &mut cut).expect("a merged run can be cut");
    assert_eq!(cut.len(), run.len());
    for (got, sent) in cut.packets().iter().zip(run) {
        let mut sent = Packet::from_slice(sent.data());
        sent.offload = run[0].offload;
        complete_checksum(&mut sent);
        assert_eq!(got.data(), sent.data());
    }
    run.len()
}

/// Expected frames of the first run for a regular flow.
fn expected(flow: &Flow) -> usize {
    let headers = if flow.v6 { 48 } else { 28 };
    let most = MERGED_MAX.min((65535 - headers) / flow.payload_bytes);
    let equal = if flow.last_bytes <= flow.payload_bytes { flow.count } else { flow.count - 1 };
    let short_last = flow.count <= most + 1 && flow.last_bytes < flow.payload_bytes;
    let room = headers + most * flow.payload_bytes + flow.last_bytes <= 65535 && most < MERGED_MAX;
    if short_last && flow.count == most + 1 && room { flow.count } else { equal.min(most).max(1) }
}

proptest! {
    #[test]
    fn a_run_is_merged_whole_and_cut_into_itself(flow in flow()) {
        prop_assert_eq!(check(&frames(&flow)), expected(&flow));
    }

    #[test]
    fn whatever_is_changed_in_a_frame_the_law_holds(
        flow in flow(), at in 0usize..100, which in 0usize..4, value in any::<u8>(), cut in 0usize..3,
    ) {
        let mut packets = frames(&flow);
        let which = which.min(packets.len() - 1);
        let p = &mut packets[which];
        let at = at.min(p.len() - 1);
        p.data_mut()[at] = value;
        p.set_len(p.len() - cut.min(p.len() - 1));
        check(&packets);
    }

    #[test]
    fn offloads_that_contradict_the_frame_are_left_alone(flow in flow(), start in 0u16..80, offset in 0u16..20) {
        let mut packets = frames(&flow);
        let true_start = packets[0].offload.csum_start;
        for p in &mut packets {
            p.offload.csum_start = start;
            p.offload.csum_offset = offset;
        }
        if (start, offset) != (true_start, 6) {
            prop_assert!(merge(&packets).is_none());
        }
    }
}

#[test]
fn what_is_not_a_run() {
    let flow = Flow { tags: 0, v6: false, first_id: 65535, payload_bytes: 100, last_bytes: 100, count: 3 };
    assert_eq!(check(&frames(&flow)), 3, "the identification counts past its end");
    let with = |change: &dyn Fn(&mut Packet)| {
        let mut packets = frames(&flow);
        change(&mut packets[1]);
        merge(&packets).is_some()
    };
    assert!(with(&|_| ()));
    let finished: &dyn Fn(&mut Packet) = &complete_checksum;
    assert!(!with(finished), "a datagram that came from elsewhere keeps its own checksum");
    assert!(!with(&|p| p.data_mut()[34] ^= 1), "another port");
    assert!(!with(&|p| p.data_mut()[0] ^= 2), "another station");
    assert!(!with(&|p| p.offload.gso = GsoKind::UdpL4), "large already");
    assert!(!with(&|p| p.data_mut()[18] ^= 1), "an identification out of turn (and a wrong header checksum)");
    assert!(merge(&frames(&flow)[..1]).is_none(), "one alone");
}
