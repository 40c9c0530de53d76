//! Compact keys and masks, for tables of many flows: the base block and the extension blocks of the shape,
//! unaligned. 80 bytes for the common packet, against 576 of a [`FlowKey`].

use crate::flow::Flow;
use crate::key::{BaseBlock, FlowKey, KeyMask};
use crate::packed_match::PackedMatch;
use crate::types::DpPort;

/// A [`FlowKey`] without absent blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedKey {
    base: [u64; 8],
    extensions: Box<[[u64; 8]]>,
}

impl PackedKey {
    /// Packs a key.
    pub fn new(key: &FlowKey) -> PackedKey {
        PackedKey::of_shape(key, key)
    }

    /// The base block of `key` and the blocks of `shape`.
    fn of_shape(key: &FlowKey, shape: &FlowKey) -> PackedKey {
        PackedKey {
            base: *key.block(0),
            extensions: shape.extension_blocks().map(|i| *key.block(i)).collect(),
        }
    }

    /// Restores the key; absent blocks are zero.
    pub fn unpack(&self) -> FlowKey {
        let mut key = FlowKey::default();
        *key.block_mut(0) = self.base;
        for (i, block) in key.extension_blocks().zip(self.extensions.iter()) {
            *key.block_mut(i) = *block;
        }
        key
    }

    /// The port that the packet came in by.
    pub fn in_port(&self) -> DpPort {
        let base: BaseBlock = zerocopy::transmute!(self.base);
        DpPort(base.in_port)
    }
}

/// A word of keys that a match compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyWord {
    /// Index of the block ([`FlowKey::block`]) and of the word in it.
    place: (u8, u8),
    /// The compared bits.
    bits: u64,
    /// Their values.
    value: u64,
    /// The word of [`Flow::words`] that they are part of.
    source: u8,
}

impl KeyWord {
    /// The words that a match compares, apart from fields that keys lack. `in_port` is the datapath's number of the
    /// matched input port; `None`: input ports are not compared.
    pub fn of_match(m: &PackedMatch, in_port: Option<DpPort>) -> Box<[KeyWord]> {
        let flow = m.mask().flow_of(m.values());
        let values = FlowKey::blocks_of(&flow, in_port.map_or(0, |p| p.0), flow.dl_type);
        let mut words = Vec::new();
        for w in m.mask().words() {
            let mut part = Flow::default();
            part.words_mut()[usize::from(w.word)] = w.bits;
            let has_port = part.in_port == u32::MAX && in_port.is_some();
            let bits = FlowKey::blocks_of(&part, if has_port { u32::MAX } else { 0 }, flow.dl_type);
            for (i, n) in (0..FlowKey::BLOCKS).flat_map(|i| (0..8).map(move |n| (i, n))) {
                let bits = bits.block(i)[n];
                if bits != 0 {
                    let (place, value) = ((i as u8, n as u8), values.block(i)[n] & bits);
                    words.push(KeyWord { place, bits, value, source: w.word });
                }
            }
        }
        words.into()
    }
}

/// A key with a mask over its blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackedFlow {
    key: PackedKey,
    mask: PackedKey,
}

impl PackedFlow {
    /// Packs a key and its mask, which is zero in blocks absent from the key ([`FlowKey::from_mask`]).
    pub fn new(key: &FlowKey, mask: &KeyMask) -> PackedFlow {
        PackedFlow { key: PackedKey::new(key), mask: PackedKey::of_shape(mask, key) }
    }

    /// The key.
    pub fn key(&self) -> FlowKey {
        self.key.unpack()
    }

    /// The mask.
    pub fn mask(&self) -> KeyMask {
        let mut mask = KeyMask::default();
        *mask.block_mut(0) = self.mask.base;
        for (i, block) in self.key().extension_blocks().zip(self.mask.extensions.iter()) {
            *mask.block_mut(i) = *block;
        }
        mask
    }

    /// The port that the packet came in by.
    pub fn in_port(&self) -> DpPort {
        self.key.in_port()
    }

    /// Whether all its packets differ from these words in a bit of its mask. Leaves out words of the flow in `except`,
    /// a bit for each.
    pub fn differs(&self, words: &[KeyWord], except: u128) -> bool {
        words.iter().any(|w| {
            let (block, n) = (usize::from(w.place.0), usize::from(w.place.1));
            let at = |key: &PackedKey| match block {
                0 => Some(key.base[n]),
                _ => Some(key.extensions.get(self.extension(block)?)?[n]),
            };
            let (Some(key), Some(mask)) = (at(&self.key), at(&self.mask)) else { return false };
            except >> w.source & 1 == 0 && (key ^ w.value) & w.bits & mask != 0
        })
    }

    /// Index of an extension block among the present ones.
    fn extension(&self, block: usize) -> Option<usize> {
        let base: BaseBlock = zerocopy::transmute!(self.key.base);
        let bit = 1 << (block - 1);
        (base.shape & bit != 0).then(|| (base.shape & (bit - 1)).count_ones() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::shape;
    use proptest::prelude::*;

    /// A key of that shape, zero in other blocks, and a mask over it.
    fn flow() -> impl Strategy<Value = (FlowKey, KeyMask)> {
        let words = proptest::collection::vec(any::<u64>(), 2 * 8 * FlowKey::BLOCKS);
        (words, 0..1u16 << shape::COUNT).prop_map(|(words, bits)| {
            let (mut key, mut mask) = (FlowKey::default(), KeyMask::default());
            let blocks = words.as_chunks::<8>().0;
            for i in 0..FlowKey::BLOCKS {
                if i == 0 || bits >> (i - 1) & 1 != 0 {
                    (*key.block_mut(i), *mask.block_mut(i)) = (blocks[i], blocks[FlowKey::BLOCKS + i]);
                }
            }
            (key.base.shape, mask.base.shape) = (bits, u16::MAX);
            (key, mask)
        })
    }

    proptest! {
        #[test]
        fn nothing_is_lost((key, mask) in flow()) {
            let packed = PackedFlow::new(&key, &mask);
            prop_assert_eq!((packed.key(), packed.mask()), (key, mask));
            prop_assert_eq!(packed.in_port(), key.in_port());
            prop_assert_eq!(PackedKey::new(&key).unpack(), key);
        }
    }

    #[test]
    fn a_common_packet_is_small() {
        assert_eq!((size_of::<PackedKey>(), size_of::<FlowKey>()), (80, 576));
        assert!(PackedKey::new(&FlowKey::default()).extensions.is_empty());
    }
}
