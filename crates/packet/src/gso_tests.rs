//! Tests of the software offloads: segments random frames, and checks every segment against the plain rules.

use super::headers::*;
use super::*;
use proptest::prelude::*;

/// Parameters of a super-frame.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) tags: Vec<u16>,
    pub(super) v6: bool,
    pub(super) tcp: bool,
    /// IPv4 option words, or IPv6 destination-options headers.
    pub(super) options: usize,
    pub(super) tcp_option_words: usize,
    pub(super) payload: Vec<u8>,
    pub(super) gso_size: u16,
    pub(super) flags: u8,
    pub(super) id: u16,
    pub(super) seq: u32,
    pub(super) padding: usize,
}

pub(super) fn spec() -> impl Strategy<Value = Spec> {
    let layers = (proptest::collection::vec(prop_oneof![Just(0x8100u16), Just(0x88a8)], 0..3), any::<bool>());
    let shape = (any::<bool>(), 0usize..4, 0usize..11, 0usize..7);
    let body = (proptest::collection::vec(any::<u8>(), 0..5000), 40u16..3000);
    (layers, shape, body, any::<u8>(), any::<u16>(), any::<u32>()).prop_map(
        |((tags, v6), (tcp, options, tcp_option_words, padding), (payload, gso_size), flags, id, seq)| Spec {
            tags,
            v6,
            tcp,
            options,
            tcp_option_words,
            payload,
            gso_size,
            flags,
            id,
            seq,
            padding,
        },
    )
}

fn l4_header(s: &Spec) -> Vec<u8> {
    let mut h = vec![0x12, 0x34, 0x56, 0x78];
    if s.tcp {
        h.extend(s.seq.to_be_bytes());
        h.extend([9; 4]);
        h.extend([((5 + s.tcp_option_words) << 4) as u8, s.flags, 1, 2, 0, 0, 0, 0]);
        h.extend(vec![1; s.tcp_option_words * 4]);
    } else {
        h.extend(((8 + s.payload.len()) as u16).to_be_bytes());
        h.extend([0, 0]);
    }
    h
}

pub(super) fn build(s: &Spec) -> Packet {
    let l4 = l4_header(s);
    let proto = if s.tcp { IPPROTO_TCP } else { IPPROTO_UDP };
    let mut f = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for t in &s.tags {
        f.extend(t.to_be_bytes());
        f.extend([0x20, 7]);
    }
    let l4_bytes = l4.len() + s.payload.len();
    if s.v6 {
        f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        f.extend(((s.options * 8 + l4_bytes) as u16).to_be_bytes());
        f.extend([if s.options > 0 { IPPROTO_DSTOPTS } else { proto }, 64]);
        f.extend((0..32).collect::<Vec<u8>>());
        for i in 0..s.options {
            f.extend([if i + 1 < s.options { IPPROTO_DSTOPTS } else { proto }, 0, 1, 4, 0, 0, 0, 0]);
        }
    } else {
        f.extend([0x08, 0x00, 0x45 + s.options as u8, 0]);
        f.extend(((20 + s.options * 4 + l4_bytes) as u16).to_be_bytes());
        f.extend(s.id.to_be_bytes());
        f.extend([0x40, 0, 64, proto, 0xde, 0xad, 10, 0, 0, 1, 10, 0, 0, 2]);
        f.extend(vec![1; s.options * 4]);
    }
    let csum_start = f.len() as u16;
    f.extend(&l4);
    f.extend(&s.payload);
    f.extend(vec![0xee; s.padding]);
    let mut p = Packet::from_slice(&f);
    p.offload = Offload {
        needs_csum: true,
        csum_start,
        csum_offset: if s.tcp { 16 } else { 6 },
        gso: match (s.tcp, s.v6) {
            (true, false) => GsoKind::Tcp4,
            (true, true) => GsoKind::Tcp6,
            (false, _) => GsoKind::UdpL4,
        },
        gso_size: s.gso_size,
        ..Offload::NONE
    };
    p
}

/// Checks one segment against the rules; returns its payload.
fn check(s: &Spec, f: &[u8], i: usize, count: usize, at: usize) -> Vec<u8> {
    let l3 = 14 + 4 * s.tags.len();
    let l4 = l3 + if s.v6 { 40 + 8 * s.options } else { 20 + 4 * s.options };
    let l4_bytes = f.len() - l4;
    let (src, dst) = if s.v6 {
        assert_eq!(be16(f, l3 + 4).unwrap() as usize, f.len() - l3 - 40);
        (&f[l3 + 8..l3 + 24], &f[l3 + 24..l3 + 40])
    } else {
        assert_eq!(be16(f, l3 + 2).unwrap() as usize, f.len() - l3);
        assert_eq!(be16(f, l3 + 4).unwrap(), s.id.wrapping_add(i as u16));
        assert_eq!(checksum::checksum(&f[l3..l4]), 0, "IPv4 header checksum");
        (&f[l3 + 12..l3 + 16], &f[l3 + 16..l3 + 20])
    };
    let proto = if s.tcp { IPPROTO_TCP } else { IPPROTO_UDP };
    let sum = checksum::sum(&f[l4..], checksum::pseudo(src, dst, proto, l4_bytes));
    assert_eq!(checksum::fold(sum), 0xffff, "layer-4 checksum");
    if !s.tcp {
        assert_eq!(be16(f, l4 + 4).unwrap() as usize, l4_bytes);
        assert_ne!(be16(f, l4 + 6), Some(0));
        return f[l4 + 8..].to_vec();
    }
    assert_eq!(be32(f, l4 + 4).unwrap(), s.seq.wrapping_add(at as u32));
    let mut flags = s.flags;
    if i > 0 {
        flags &= !0x80;
    }
    if i + 1 < count {
        flags &= !0x09;
    }
    assert_eq!(f[l4 + 13], flags, "segment {i} of {count}");
    f[l4 + 20 + 4 * s.tcp_option_words..].to_vec()
}

proptest! {
    #[test]
    fn segments_keep_the_payload_and_verify(s in spec()) {
        let p = build(&s);
        let (mut pool, mut out) = (PacketPool::new(), PacketBatch::new());
        segment(&p, &mut pool, &mut out).unwrap();
        prop_assert_eq!(out.len(), s.payload.len().div_ceil(s.gso_size as usize).max(1));
        let count = out.len();
        let mut payload = Vec::new();
        for (i, seg) in out.drain().enumerate() {
            let part = check(&s, seg.data(), i, count, payload.len());
            prop_assert!(part.len() <= s.gso_size as usize);
            prop_assert!(!seg.offload.is_gso() && !seg.offload.needs_csum);
            payload.extend(part);
        }
        prop_assert_eq!(payload, s.payload);
    }

    #[test]
    fn no_bytes_panic(mut f in proptest::collection::vec(any::<u8>(), 0..200), s in spec(), kind in 0u8..6,
                      size in any::<u16>(), start in any::<u16>(), offset in any::<u16>(), cut in 0usize..120) {
        let head = build(&s);
        f.splice(..0, head.data()[..cut.min(head.len())].iter().copied());
        let mut p = Packet::from_slice(&f);
        p.offload.gso = match kind { 1 => GsoKind::Tcp4, 2 => GsoKind::Tcp6, 3 => GsoKind::UdpL4, _ => GsoKind::None };
        p.offload.gso_size = size;
        p.offload.needs_csum = true;
        (p.offload.csum_start, p.offload.csum_offset) = (start % 256, offset % 64);
        let mut out = PacketBatch::new();
        let cut = segment(&p, &mut PacketPool::new(), &mut out);
        prop_assert_eq!(cut.is_err(), out.is_empty());
        complete_checksum(&mut p);
        prop_assert!(!p.offload.needs_csum);
    }

    #[test]
    fn completed_checksums_verify(mut s in spec()) {
        s.padding = 0;
        let mut p = build(&s);
        p.offload.gso = GsoKind::None;
        let start = p.offload.csum_start as usize;
        let field = start + p.offload.csum_offset as usize;
        let l3 = 14 + 4 * s.tags.len();
        let (from, len) = if s.v6 { (l3 + 8, 16) } else { (l3 + 12, 4) };
        let proto = if s.tcp { IPPROTO_TCP } else { IPPROTO_UDP };
        let f = p.data();
        let pseudo = checksum::pseudo(&f[from..from + len], &f[from + len..from + 2 * len], proto, f.len() - start);
        p.data_mut()[field..field + 2].copy_from_slice(&checksum::fold(pseudo).to_be_bytes());
        complete_checksum(&mut p);
        prop_assert_eq!(checksum::fold(checksum::sum(&p.data()[start..], pseudo)), 0xffff);
        prop_assert!(p.offload.csum_valid && !p.offload.needs_csum);
    }
}

pub(super) fn sample() -> Spec {
    Spec {
        tags: vec![],
        v6: false,
        tcp: true,
        options: 0,
        tcp_option_words: 0,
        payload: vec![5; 4000],
        gso_size: 1000,
        flags: 0x18,
        id: 1,
        seq: 1,
        padding: 0,
    }
}

#[test]
fn the_longest_segment_counts() {
    let mut p = build(&Spec { payload: vec![7; 3000], gso_size: 1400, ..sample() });
    let segments = |p: &Packet| {
        let (mut pool, mut out) = (PacketPool::new(), PacketBatch::new());
        segment(p, &mut pool, &mut out).unwrap();
        (out.len(), out.drain().map(|s| s.len()).max().unwrap())
    };
    for (size, count) in [(1400, 3), (1500, 2), (1499, 3), (9000, 1)] {
        p.offload.gso_size = size;
        assert_eq!((frames(&p), frame_bytes(&p)), segments(&p), "{size}");
        assert_eq!(frames(&p), count, "{size}");
    }
    p.data_mut()[20] = 0x20;
    p.offload.gso_size = 1000;
    assert_eq!(frames(&p), 4, "a fragment is not cut, so its headers count");
    p.offload = Offload::NONE;
    assert_eq!((frames(&p), frame_bytes(&p)), (1, p.len()));
}

/// Network service headers (RFC 8300), of a length in words: in front of IP or Ethernet, tagged, and one in another.
#[test]
fn segments_behind_a_network_service_header_are_those_without_it() {
    let nsh = |words: u8, next: u8| {
        let mut header = vec![0x0f, 0xc0 | words, 1, next, 0, 0, 1, 255];
        header.resize(usize::from(words) * 4, 0xab);
        header
    };
    let of_type = [0x89, 0x4f];
    for v6 in [false, true] {
        let ip = if v6 { 2 } else { 1 };
        for (name, before, from) in [
            ("IP", [&of_type[..], &nsh(6, ip)].concat(), 14),
            ("Ethernet", [&of_type[..], &nsh(6, 3)].concat(), 0),
            ("no contexts", [&of_type[..], &nsh(2, 3)].concat(), 0),
            ("long contexts", [&of_type[..], &nsh(63, 3)].concat(), 0),
            ("tagged", [&[0x81, 0, 0, 5], &of_type[..], &nsh(6, 3)].concat(), 0),
            ("two", [&of_type[..], &nsh(6, 4), &nsh(6, ip)].concat(), 14),
        ] {
            let plain = build(&Spec { payload: vec![7; 3000], gso_size: 1400, v6, ..sample() });
            let front = [&plain.data()[..12], &before].concat();
            let mut wrapped = Packet::from_slice(&[&front, &plain.data()[from..]].concat());
            wrapped.offload = plain.offload;
            wrapped.offload.csum_start = (usize::from(plain.offload.csum_start) + front.len() - from) as u16;
            assert!(is_large_behind_nsh(&wrapped) && !is_large_behind_nsh(&plain), "{name}");
            let cut = |p: &Packet| {
                let mut out = PacketBatch::new();
                segment(p, &mut PacketPool::new(), &mut out).expect(name);
                out.drain().map(|s| s.data().to_vec()).collect::<Vec<_>>()
            };
            let expected: Vec<_> = cut(&plain).iter().map(|s| [&front, &s[from..]].concat()).collect();
            assert_eq!(cut(&wrapped), expected, "{name}");
            assert_eq!(frame_bytes(&wrapped), expected[0].len(), "{name}");
        }
    }
}

#[test]
fn a_network_service_header_without_ip_is_not_cut() {
    for (at, value) in [(15, 0xc1), (17, 5), (17, 0), (15, 0xff)] {
        let plain = build(&Spec { payload: vec![7; 100], gso_size: 60, ..sample() });
        let header = [0x89, 0x4f, 0x0f, 0xc6, 1, 3, 0, 0, 1, 255];
        let front = [&plain.data()[..12], &header, &[0; 16]].concat();
        let mut p = Packet::from_slice(&[&front, plain.data()].concat());
        p.offload = plain.offload;
        p.data_mut()[at] = value;
        let mut out = PacketBatch::new();
        let cut = segment(&p, &mut PacketPool::new(), &mut out);
        assert_eq!(cut, Err(SegmentError::Headers), "byte {at} is {value:#x}");
    }
}

#[test]
fn what_cannot_be_cut_says_why() {
    let cases: [(&str, fn(&mut Packet), SegmentError); 7] = [
        ("no segmentation asked", |p| p.offload.gso = GsoKind::None, SegmentError::NotLarge),
        ("segment size 0", |p| p.offload.gso_size = 0, SegmentError::NotLarge),
        ("one byte a segment", |p| p.offload.gso_size = 1, SegmentError::TooMany),
        ("other address family", |p| p.offload.gso = GsoKind::Tcp6, SegmentError::Headers),
        ("a fragment", |p| p.data_mut()[20] = 0x20, SegmentError::Headers),
        ("TCP header too short", |p| p.data_mut()[46] = 0x40, SegmentError::Headers),
        ("IP length beyond the frame", |p| p.data_mut()[16] = 0xff, SegmentError::Headers),
    ];
    for (name, change, why) in cases {
        let mut p = build(&sample());
        change(&mut p);
        let mut out = PacketBatch::new();
        assert_eq!(segment(&p, &mut PacketPool::new(), &mut out), Err(why), "{name}");
        assert!(out.is_empty(), "{name}");
    }
}

#[test]
fn a_routing_header_with_segments_left_keeps_the_senders_pseudo_header() {
    let mut s = sample();
    (s.v6, s.options) = (true, 1);
    let mut p = build(&s);
    // The options header becomes a routing header with one segment left; the final destination differs.
    let last = [0xfd; 16];
    let f = p.data_mut();
    f[20] = IPPROTO_ROUTING;
    f[57] = 1;
    let l4_bytes = f.len() - 62;
    let partial = checksum::fold(checksum::pseudo(&f[22..38], &last, IPPROTO_TCP, l4_bytes));
    f[78..80].copy_from_slice(&partial.to_be_bytes());
    let mut out = PacketBatch::new();
    segment(&p, &mut PacketPool::new(), &mut out).unwrap();
    for seg in out.packets() {
        let f = seg.data();
        let pseudo = checksum::pseudo(&f[22..38], &last, IPPROTO_TCP, f.len() - 62);
        assert_eq!(checksum::fold(checksum::sum(&f[62..], pseudo)), 0xffff);
    }
}

#[test]
fn sctp_gets_its_crc32c() {
    // The check value of CRC-32C is 0xe3069283 for "123456789", the end of the covered bytes here.
    let mut f = vec![0; 12];
    f.extend([0x08, 0x00, 0x45, 0, 0, 41, 0, 0, 0, 0, 64, IPPROTO_SCTP, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    f.extend([0, 7, 0, 9, 0, 0, 0, 1, 0xaa, 0xbb, 0xcc, 0xdd]);
    f.extend(b"123456789");
    let mut p = Packet::from_slice(&f);
    p.offload = Offload { needs_csum: true, csum_start: 34, csum_offset: 8, ..Offload::NONE };
    complete_checksum(&mut p);
    let mut covered = f[34..].to_vec();
    covered[8..12].fill(0);
    assert_eq!(bitwise_crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(p.data()[42..46], bitwise_crc32c(&covered).to_le_bytes());
}

fn bitwise_crc32c(data: &[u8]) -> u32 {
    let mut crc = !0u32;
    for b in data {
        crc ^= u32::from(*b);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
