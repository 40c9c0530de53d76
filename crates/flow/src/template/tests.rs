//! The template accepts common frames, and parses them like the general parser.

use super::*;
use crate::extract::extract;
use proptest::prelude::*;
use simd::{Kernel, Level};

const MD: Metadata = Metadata { in_port: 7, recirc_id: 3, pkt_mark: 5, skb_priority: 0, dp_hash: 9 };

/// A valid frame: tagged or not, IPv4 or IPv6, TCP or UDP.
fn good(tags: usize, six: bool, tcp: bool, payload: usize) -> Vec<u8> {
    let mut f: Vec<u8> = (1..=12).collect();
    for n in 0..tags {
        f.extend(if n % 2 == 0 { [0x81, 0] } else { [0x88, 0xa8] });
        f.extend([0x6f, n as u8]);
    }
    let l4 = if tcp { 20 } else { 8 } + payload;
    let proto = if tcp { 6 } else { 17 };
    if six {
        f.extend([0x86, 0xdd, 0x6a, 0xbc, 0xde, 0xf1, 0, l4 as u8, proto, 63]);
        f.extend(100..132);
    } else {
        f.extend([
            8,
            0,
            0x45,
            0xb8,
            0,
            (20 + l4) as u8,
            1,
            2,
            0x40,
            0,
            61,
            proto,
            3,
            4,
            10,
            1,
            2,
            3,
            10,
            4,
            5,
            6,
        ]);
    }
    let start = f.len();
    f.extend((0..l4).map(|i| (200 + i) as u8));
    if tcp {
        f[start + 12] = 0x5a;
    }
    f
}

/// A key left from an earlier packet, with the given blocks.
fn dirty(shape_bits: u16) -> FlowKey {
    let mut key = FlowKey::default();
    key.base.shape = shape_bits;
    for i in key.present_blocks() {
        *key.block_mut(i) = [u64::MAX; 8];
    }
    key.base.shape = shape_bits;
    key
}

/// The parser of bursts: frame, its bytes, VLAN limit, key.
struct Parse<'a>(&'a [u8; HEAD_BYTES], usize, u8, &'a mut FlowKey);

impl Kernel for Parse<'_> {
    type Output = Option<Layout>;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> Option<Layout> {
        let Parse(head, frame_bytes, vlan_limit, key) = self;
        Common::new(&MD, vlan_limit).extract(head, frame_bytes, key, lanes)
    }
}

/// Whether the template accepts the frame; if so, checks that it equals the general parser.
fn check(frame: &[u8], vlan_limit: u8, shape_bits: u16) -> bool {
    let mut head = [0xa5; HEAD_BYTES];
    let n = frame.len().min(HEAD_BYTES);
    head[..n].copy_from_slice(&frame[..n]);
    let (mut fast, mut cold) = (dirty(shape_bits), FlowKey::default());
    let found = extract_common(&head, frame.len(), &MD, vlan_limit, &mut fast);
    for level in Level::available() {
        let mut permuted = dirty(shape_bits);
        let parse = Parse(&head, frame.len(), vlan_limit, &mut permuted);
        assert_eq!(simd::run(level, parse), found);
        assert!(permuted == fast, "{level}, {frame:02x?}: {permuted:?} is not {fast:?}");
    }
    let Some(layout) = found else {
        assert!(fast == dirty(shape_bits), "a refused key stays as it was");
        return false;
    };
    assert_eq!(layout, extract(frame, &MD, vlan_limit, &mut cold));
    assert!(fast == cold, "{frame:02x?}: {fast:?} is not {cold:?}");
    true
}

#[test]
fn takes_the_common_frames() {
    for tags in 0..2 {
        for six in [false, true] {
            for tcp in [false, true] {
                assert!(check(&good(tags, six, tcp, 10), 1, 0xf), "{tags} {six} {tcp}");
                assert!(check(&good(tags, six, tcp, 0), 2, 0));
                assert_eq!(check(&good(tags, six, tcp, 0), 0, 0), tags == 0);
                assert!(!check(&good(2, six, tcp, 0), 2, 0), "two tags are not common");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn malformed_frames_parse_like_the_general_parser(
        (tags, six, tcp) in (0..3usize, any::<bool>(), any::<bool>()),
        payload in 0..40usize,
        (cut, longer) in (0..120usize, 0..10usize),
        spoil in prop::collection::vec((0..100usize, any::<u8>()), 0..3),
        vlan_limit in 0..3u8,
        shape_bits in 0..16u16,
    ) {
        let mut frame = good(tags, six, tcp, payload);
        frame.resize(frame.len() + longer, 0x77);
        for (at, byte) in spoil {
            if let Some(b) = frame.get_mut(at) {
                *b = byte;
            }
        }
        // Most frames stay whole.
        if cut < frame.len() {
            frame.truncate(if cut % 3 == 0 { cut } else { frame.len() });
        }
        check(&frame, vlan_limit, shape_bits);
    }

    #[test]
    fn random_bytes_parse_like_the_general_parser(
        frame in prop::collection::vec(prop_oneof![Just(8u8), Just(0), Just(0x81), Just(0x45), Just(6), any::<u8>()], 0..100),
        vlan_limit in 0..3u8,
    ) {
        check(&frame, vlan_limit, 0xf);
    }
}
