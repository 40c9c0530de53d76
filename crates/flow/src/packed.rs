//! Compact keys and masks, for tables of many flows: the base block and the extension blocks of the shape,
//! unaligned. 80 bytes for the common packet, against 320 of a [`FlowKey`].

use crate::key::{BaseBlock, FlowKey, KeyMask};
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
        assert_eq!((size_of::<PackedKey>(), size_of::<FlowKey>()), (80, 320));
        assert!(PackedKey::new(&FlowKey::default()).extensions.is_empty());
    }
}
