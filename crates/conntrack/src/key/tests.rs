//! Keys: packing, reversal, hash.

use super::{Key, KeyHash, Rest, Words, answer_of};
use dpif::{CtAddresses, CtTransport, CtTuple};
use proptest::prelude::*;

fn tuple() -> impl Strategy<Value = CtTuple> {
    let addresses = prop_oneof![
        any::<(u32, u32)>().prop_map(|(src, dst)| CtAddresses::V4 { src: src.into(), dst: dst.into() }),
        any::<(u128, u128)>().prop_map(|(src, dst)| CtAddresses::V6 { src: src.into(), dst: dst.into() }),
    ];
    (addresses, any::<u8>(), any::<u16>(), any::<u16>(), any::<bool>()).prop_map(
        |(addresses, proto, src, dst, is_icmp)| {
            let proto = if is_icmp { addresses.icmp() } else { proto };
            let transport = if proto == addresses.icmp() {
                CtTransport::Icmp { id: src, kind: (dst >> 8) as u8, code: dst as u8 }
            } else {
                CtTransport::Ports { src, dst }
            };
            CtTuple { addresses, proto, transport }
        },
    )
}

fn opposite(tuple: &CtTuple) -> CtTuple {
    let addresses = match tuple.addresses {
        CtAddresses::V4 { src, dst } => CtAddresses::V4 { src: dst, dst: src },
        CtAddresses::V6 { src, dst } => CtAddresses::V6 { src: dst, dst: src },
    };
    let transport = match (tuple.transport, tuple.addresses) {
        (CtTransport::Ports { src, dst }, _) => CtTransport::Ports { src: dst, dst: src },
        (CtTransport::Icmp { id, kind, code }, CtAddresses::V4 { .. }) => {
            let kind =
                [(8, 0), (0, 8), (13, 14), (14, 13), (15, 16), (16, 15)].iter().find(|(k, _)| *k == kind);
            CtTransport::Icmp { id, kind: kind.map_or(255, |(_, answer)| *answer), code }
        }
        (CtTransport::Icmp { id, kind, code }, CtAddresses::V6 { .. }) => {
            CtTransport::Icmp { id, kind: kind ^ 1, code }
        }
    };
    CtTuple { addresses, transport, ..*tuple }
}

proptest! {
    #[test]
    fn keys_are_tuples(tuple in tuple(), zone: u16) {
        let is_v6 = matches!(tuple.addresses, CtAddresses::V6 { .. });
        let known = match tuple.transport {
            CtTransport::Icmp { kind, .. } if is_v6 => matches!(kind, 128 | 129),
            CtTransport::Icmp { kind, .. } => matches!(kind, 0 | 8 | 13..=16),
            CtTransport::Ports { .. } => true,
        };
        let key = Key::of(&tuple, zone);
        prop_assert_eq!(key.is_some(), known);
        if let Some(key) = key {
            prop_assert_eq!(key.tuple(), tuple);
            prop_assert_eq!(key.addresses(), tuple.addresses.both());
            prop_assert_eq!((key.rest().zone, key.rest().proto), (zone, tuple.proto));
            prop_assert_eq!(key.reversed().tuple(), opposite(&tuple));
            prop_assert_eq!(key.reversed().reversed(), key);
        }
    }

    #[test]
    fn each_bit_of_a_key_counts(words: [u64; 5], seed: u64, at in 0..5usize, bit in 0..64u32) {
        let hash = KeyHash::new(seed);
        let mut other = words;
        other[at] ^= 1 << bit;
        prop_assert_ne!(hash.of(&words), hash.of(&other));
        prop_assert_ne!(hash.of(&words), KeyHash::new(!seed).of(&words));
        let mut short = [words[0], words[1]];
        let before = hash.of(&short);
        short[at % 2] ^= 1 << bit;
        prop_assert_ne!(before, hash.of(&short));
    }

    #[test]
    fn unpacked_words_are_packed_again(src: u16, dst: u16, zone: u16, proto: u8) {
        let rest = Rest { src, dst, zone, proto };
        prop_assert_eq!(Rest::unpack(rest.pack()), rest);
    }
}

#[test]
fn answers_answer_each_other() {
    for is_v6 in [false, true] {
        let answers = (0..=255).filter(|kind| answer_of(*kind, is_v6).is_some());
        for kind in answers {
            assert_eq!(answer_of(kind, is_v6).and_then(|kind| answer_of(kind, is_v6)), Some(kind));
        }
    }
}

#[test]
fn hashes_of_similar_keys_spread() {
    for seed in 0..8 {
        let (hash, mut counts) = (KeyHash::new(seed), [0u32; 64]);
        // Ports in order, both directions, few addresses.
        for n in 0..16_384u64 {
            let words = [(0x0a00_0000 | n >> 12) << 32 | 0x0b00_0001, (n & 0xfff) << 48 | 53 << 32 | 17];
            counts[hash.of(&words) as usize % 64] += 1;
            counts[hash.of(&words.reversed()) as usize % 64] += 1;
        }
        // 512 on average; five standard deviations are some 115.
        assert!(counts.iter().all(|n| (390..640).contains(n)), "{counts:?}");
    }
}
