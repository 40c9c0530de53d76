//! Tests of large segments inside UDP tunnels. The oracle cuts first, and then pushes the outer headers onto each frame.

use super::gso_tests::{Spec, build, spec};
use super::headers::*;
use super::*;
use proptest::prelude::*;

/// Outer headers.
#[derive(Clone, Debug)]
struct Outer {
    tags: usize,
    /// Labels of MPLS.
    labels: usize,
    v6: bool,
    csum: bool,
    df: bool,
    id: u16,
    /// Header of the tunnel: VXLAN, or Geneve with options.
    tunnel: Vec<u8>,
}

fn outer() -> impl Strategy<Value = Outer> {
    let tunnel = prop_oneof![
        Just(vec![8, 0, 0, 0, 0, 0, 123, 0]),
        (0u8..20, any::<u8>()).prop_map(|(words, byte)| {
            let mut geneve = vec![words, 0, 0x65, 0x58, 0, 0, 77, 0];
            geneve.extend(vec![byte; usize::from(words) * 4]);
            geneve
        }),
    ];
    let ip = (any::<bool>(), any::<bool>(), any::<bool>(), any::<u16>());
    (0usize..2, 0usize..2, ip, tunnel).prop_map(|(tags, labels, (v6, csum, df, id), tunnel)| Outer {
        tags,
        labels,
        v6,
        csum: csum || v6,
        df,
        id,
        tunnel,
    })
}

impl Outer {
    /// Pushes the headers onto a frame. The checksum of UDP is complete, unless the frame is a large segment.
    fn push(&self, p: &mut Packet, id: u16) {
        let ip_bytes = if self.v6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
        let l4_bytes = UDP_HEADER_BYTES + self.tunnel.len() + p.len();
        let mut f = vec![2, 0, 0, 0, 0, 3, 2, 0, 0, 0, 0, 4];
        for _ in 0..self.tags {
            f.extend([0x81, 0, 0x20, 9]);
        }
        let ethertype: [u8; 2] = if self.v6 { [0x86, 0xdd] } else { [0x08, 0] };
        f.extend(if self.labels > 0 { [0x88, 0x47] } else { ethertype });
        for n in 0..self.labels {
            f.extend([0, 1, 0x20 | u8::from(n + 1 == self.labels), 64]);
        }
        let l3 = f.len();
        let addresses: Vec<u8> = if self.v6 { (100..132).collect() } else { (100..108).collect() };
        if self.v6 {
            f.extend([0x60, 0, 0, 0]);
            f.extend((l4_bytes as u16).to_be_bytes());
            f.extend([IPPROTO_UDP, 64]);
        } else {
            f.extend([0x45, 0]);
            f.extend(((ip_bytes + l4_bytes) as u16).to_be_bytes());
            f.extend(id.to_be_bytes());
            f.extend([if self.df { 0x40 } else { 0 }, 0, 64, IPPROTO_UDP, 0, 0]);
        }
        f.extend(&addresses);
        if !self.v6 {
            let sum = checksum::checksum(&f[l3..]);
            f[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let l4 = f.len();
        f.extend([0x9c, 0x40, 0x12, 0xb5]);
        f.extend((l4_bytes as u16).to_be_bytes());
        f.extend([0, 0]);
        f.extend(&self.tunnel);
        p.prepend(&f);
        if self.csum {
            let (src, dst) = addresses.split_at(addresses.len() / 2);
            let pseudo = checksum::pseudo(src, dst, IPPROTO_UDP, l4_bytes);
            let sum = !checksum::fold(checksum::sum(&p.data()[l4..], pseudo));
            let sum = if sum == 0 { 0xffff } else { sum };
            p.data_mut()[l4 + 6..l4 + 8].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn l4(&self) -> usize {
        14 + 4 * (self.tags + self.labels) + if self.v6 { 40 } else { 20 }
    }
}

fn cut(p: &Packet) -> Vec<Packet> {
    let mut out = PacketBatch::new();
    segment(p, &mut PacketPool::new(), &mut out).expect("it can be cut");
    out.drain().collect()
}

fn bytes(packets: &[Packet]) -> Vec<Vec<u8>> {
    packets.iter().map(|p| p.data().to_vec()).collect()
}

/// The frames with their outer headers, as of a cut before the push.
fn oracle(inner: &Packet, outer: &Outer) -> Vec<Packet> {
    let mut frames = cut(inner);
    for (p, n) in frames.iter_mut().zip(0..) {
        p.offload = Offload::NONE;
        outer.push(p, outer.id.wrapping_add(n));
    }
    frames
}

/// A large segment without padding, whose inner checksum is left to a device.
fn large(s: &Spec) -> Packet {
    build(&Spec { padding: 0, ..s.clone() })
}

fn whole(inner: &Packet, outer: &Outer) -> Packet {
    let mut p = Packet::from_slice(inner.data());
    p.offload = inner.offload;
    outer.push(&mut p, outer.id);
    p
}

/// The large segments of outer UDP as frames.
fn gathered(p: &Packet) -> Result<Vec<Packet>, SegmentError> {
    let mut datagrams = Datagrams::default();
    datagrams.split(p)?;
    let mut parts = datagrams.parts(p);
    let frames = datagrams.runs().map(|(offload, count)| {
        let bytes: Vec<u8> = parts.by_ref().take(count).flatten().copied().collect();
        let mut p = Packet::from_slice(&bytes);
        assert_eq!(Offload::from_virtio(&offload.to_virtio(), p.len()), Some(offload));
        p.offload = offload;
        p
    });
    let frames = frames.collect();
    assert!(parts.next().is_none());
    Ok(frames)
}

/// The datagrams of a run, split by a device.
fn split(run: &Packet) -> Vec<Packet> {
    if run.offload.is_gso() {
        return cut(run);
    }
    let mut one = run.clone();
    complete_checksum(&mut one);
    vec![one]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn cutting_after_the_push_equals_cutting_before(s in spec(), outer in outer()) {
        let inner = large(&s);
        let pushed = whole(&inner, &outer);
        let is_plain = !(s.v6 && s.options > 0);
        prop_assert_eq!((is_tunneled(&pushed), can_be_tunneled(&inner)), (is_plain, is_plain));
        if !is_plain {
            return Ok(());
        }
        prop_assert!(!can_be_tunneled(&pushed) && !is_tunneled(&inner));
        let wanted = oracle(&inner, &outer);
        prop_assert_eq!(bytes(&cut(&pushed)), bytes(&wanted));
        prop_assert_eq!(Some(frame_bytes(&pushed)), wanted.iter().map(Packet::len).max());
    }

    #[test]
    fn datagrams_are_those_of_a_cut_before_the_push(s in spec(), outer in outer()) {
        let inner = large(&s);
        let wanted = oracle(&inner, &Outer { csum: true, ..outer.clone() });
        let runs = match gathered(&whole(&inner, &outer)) {
            Ok(runs) => runs,
            Err(why) => {
                let one = wanted.len() == 1;
                let extended = s.v6 && s.options > 0;
                prop_assert!(one && why == SegmentError::NotLarge || outer.labels > 0 || extended, "{}", why);
                return Ok(());
            }
        };
        let got: Vec<_> = runs.iter().flat_map(split).collect();
        prop_assert_eq!(bytes(&got), bytes(&wanted));
    }

    #[test]
    fn joined_datagrams_are_the_large_segment_again(
        s in spec(), outer in outer(), change in prop::option::of((any::<prop::sample::Index>(), 1..=255u8)),
    ) {
        let outer = Outer { labels: 0, ..outer };
        // Each segment but the last has neither flag; the first has all others.
        let inner = large(&Spec { flags: s.flags & !0x26, ..s });
        let Ok(runs) = gathered(&whole(&inner, &outer)) else { return Ok(()) };
        let at = outer.l4() + 8 + outer.tunnel.len();
        let mut frames = Vec::new();
        let many = runs.iter().all(|run| run.offload.is_gso());
        for mut run in runs {
            // The receiver has parsed the outer Ethernet and IP headers.
            if let Some((index, by)) = &change {
                let at = outer.l4() + index.index(run.len() - outer.l4());
                run.data_mut()[at] ^= by;
            }
            let before = run.clone();
            if join(&mut run, outer.l4(), at) {
                prop_assert!(many && !is_tunneled(&run) && run.offload.needs_csum);
                let o = run.offload;
                prop_assert_eq!(Offload::from_virtio(&o.to_virtio(), run.len()), Some(o));
                frames.extend(cut(&run));
                let frames = cut(&run);
                let datagrams = cut(&before);
                prop_assert_eq!(frames.len(), datagrams.len());
                for (frame, datagram) in frames.iter().zip(&datagrams) {
                    prop_assert_eq!(frame.data(), &datagram.data()[at..]);
                }
            } else {
                prop_assert_eq!((run.data(), run.offload), (before.data(), before.offload));
                let plain = s.tcp && !(s.v6 && s.options > 0);
                prop_assert!(change.is_some() || !plain || !many, "it can be joined");
            }
        }
        if change.is_none() && s.tcp && !(s.v6 && s.options > 0) && many {
            prop_assert_eq!(bytes(&frames), bytes(&cut(&inner)));
        }
    }

    #[test]
    fn no_bytes_panic(
        s in spec(), outer in outer(), keep in any::<prop::sample::Index>(),
        start in any::<u16>(), size in any::<u16>(), l4 in 0usize..200, at in 0usize..300, kind in 0usize..4,
    ) {
        let mut p = whole(&large(&s), &outer);
        p.set_len(keep.index(p.len().min(300)));
        p.offload.gso = [GsoKind::None, GsoKind::Tcp4, GsoKind::Tcp6, GsoKind::UdpL4][kind];
        p.offload.gso_size = size;
        p.offload.csum_start = start % 256;
        let mut out = PacketBatch::new();
        let result = segment(&p, &mut PacketPool::new(), &mut out);
        prop_assert!(result.is_ok() || !can_be_tunneled(&p));
        let _ = gathered(&p);
        join(&mut p, l4, at);
    }
}

/// A full large segment: two runs of equal length, and what is no run.
#[test]
fn runs_fill_ip_packets() {
    let outer = Outer {
        tags: 0,
        labels: 0,
        v6: false,
        csum: false,
        df: true,
        id: 7,
        tunnel: vec![8, 0, 0, 0, 0, 0, 5, 0],
    };
    let s = Spec {
        payload: (0..65160u32).map(|n| n as u8).collect(),
        gso_size: 1398,
        ..super::gso_tests::sample()
    };
    let inner = large(&s);
    let runs = gathered(&whole(&inner, &outer)).expect("it can be split");
    assert_eq!(runs.iter().map(|run| cut(run).len()).collect::<Vec<_>>(), [24, 23]);
    let mut joined = runs[0].clone();
    assert!(join(&mut joined, 34, 50));
    assert_eq!((joined.len(), joined.offload.gso), (54 + 24 * 1398, GsoKind::Tcp4));
    assert_eq!(joined.data()[14..16], inner.data()[14..16]);
    let refused: [(&str, usize, u8); 9] = [
        ("another VNI", 42 + 1460 + 6, 1),
        ("another station", 42 + 1460 + 8, 2),
        ("another address", 42 + 1460 + 22 + 12, 1),
        ("another port", 42 + 1460 + 42, 1),
        ("a sequence number out of turn", 42 + 1460 + 46 + 3, 1),
        ("a flag", 42 + 1460 + 42 + 13, 1),
        ("a byte of the payload", 42 + 1460 + 80, 1),
        ("a SYN", 42 + 8 + 34 + 13, 2),
        ("a length", 42 + 1460 + 22 + 3, 1),
    ];
    for (name, at, by) in refused {
        let mut p = runs[0].clone();
        p.data_mut()[at] ^= by;
        assert!(!join(&mut p, 34, 50), "{name}");
    }
    let mut one = runs[0].clone();
    one.offload.gso_size = (one.len() - 42) as u16;
    assert!(!join(&mut one, 34, 50), "one datagram");
}

/// The inputs of the fuzzer reach both ways of a tunnel.
#[test]
fn the_corpus_has_segments_in_tunnels() {
    let packet = |bytes: &[u8]| {
        let (header, frame) = bytes.split_first_chunk().expect("a header");
        let mut p = Packet::from_slice(frame);
        p.offload = Offload::from_virtio(header, frame.len()).expect("an offload");
        p
    };
    let pushed = packet(include_bytes!("../corpus/offload/vxlan_tcp4_segment"));
    assert_eq!(gathered(&pushed).map(|runs| runs.len()), Ok(1));
    let mut received = packet(include_bytes!("../corpus/offload/udp_segment_of_vxlan_tcp4"));
    assert!(join(&mut received, 34, 50));
}
