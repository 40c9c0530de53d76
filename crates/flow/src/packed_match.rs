//! [`PackedMatch`]: a match without unmatched words, for tables of many rules.

use crate::flow::{FLOW_WORDS, Flow, Mask};
use crate::matching::Match;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A word of a mask.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MaskWord {
    /// Index of the word in [`Flow::words`].
    pub word: u8,
    /// The bits; never 0.
    pub bits: u64,
}

/// A mask as its non-zero words, ascending. Rules with equal masks share it. One pointer wide.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PackedMask(Arc<Box<[MaskWord]>>);

impl PackedMask {
    /// Packs a mask.
    pub fn new(mask: &Mask) -> PackedMask {
        let mut words = [MaskWord { word: 0, bits: 0 }; FLOW_WORDS];
        let mut len = 0;
        for (word, bits) in mask.words().iter().enumerate().filter(|(_, bits)| **bits != 0) {
            words[len] = MaskWord { word: word as u8, bits: *bits };
            len += 1;
        }
        PackedMask(Arc::new(words[..len].into()))
    }

    /// The words.
    pub fn words(&self) -> &[MaskWord] {
        &self.0
    }

    /// The flow with these values, in the mask's order, and zeros elsewhere.
    pub fn flow_of(&self, values: &[u64]) -> Flow {
        let mut flow = Flow::default();
        let words = flow.words_mut();
        self.0.iter().zip(values).for_each(|(w, value)| words[usize::from(w.word)] = *value);
        flow
    }

    /// Restores the mask.
    pub fn unpack(&self) -> Mask {
        let mut mask = Mask::default();
        let words = mask.0.words_mut();
        self.0.iter().for_each(|w| words[usize::from(w.word)] = w.bits);
        mask
    }
}

/// The word of a flow with the input port.
const IN_PORT_WORD: usize = std::mem::offset_of!(Flow, in_port) / 8;

/// Words of [`MaskedWords`] without an allocation.
const INLINE_WORDS: usize = 3;

/// The masked words of a flow, in the order of a [`PackedMask`]. Up to 3 words are stored in place.
#[derive(Clone)]
pub struct MaskedWords(Words);

#[derive(Clone)]
enum Words {
    Inline(u8, [u64; INLINE_WORDS]),
    Shared(Arc<[u64]>),
}

impl MaskedWords {
    fn new(values: impl ExactSizeIterator<Item = u64>) -> MaskedWords {
        if values.len() > INLINE_WORDS {
            return MaskedWords(Words::Shared(values.collect()));
        }
        let mut words = [0; INLINE_WORDS];
        let len = values.len() as u8;
        words.iter_mut().zip(values).for_each(|(word, value)| *word = value);
        MaskedWords(Words::Inline(len, words))
    }
}

impl Deref for MaskedWords {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        match &self.0 {
            Words::Inline(len, words) => &words[..usize::from(*len)],
            Words::Shared(words) => words,
        }
    }
}

impl PartialEq for MaskedWords {
    fn eq(&self, other: &MaskedWords) -> bool {
        **self == **other
    }
}

impl Eq for MaskedWords {}

impl PartialOrd for MaskedWords {
    fn partial_cmp(&self, other: &MaskedWords) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for MaskedWords {
    fn cmp(&self, other: &MaskedWords) -> std::cmp::Ordering {
        (**self).cmp(other)
    }
}

impl Hash for MaskedWords {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// A match as its mask and the masked words of its flow, in the mask's order. 40 bytes, and 16 more and 8 for each word from 4 words on,
/// against some 1,300 of a [`Match`].
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PackedMatch {
    mask: PackedMask,
    values: MaskedWords,
}

impl PackedMatch {
    /// Packs a match with the mask `mask`.
    pub fn with_mask(mask: &PackedMask, m: &Match) -> PackedMatch {
        let words = m.flow().words();
        let values = MaskedWords::new(mask.0.iter().map(|w| words[usize::from(w.word)]));
        PackedMatch { mask: mask.clone(), values }
    }

    /// The same match with another copy of its mask.
    pub fn sharing(&self, mask: &PackedMask) -> PackedMatch {
        PackedMatch { mask: mask.clone(), values: self.values.clone() }
    }

    /// The match of a rule: restricted to packets with an Ethernet header if it matches one
    /// ([`Match::imply_packet_type`]). Costs nothing unless it matches such a field without an EtherType.
    pub fn of_rule(&self) -> PackedMatch {
        let type_at = std::mem::offset_of!(Flow, dl_type);
        let header = std::mem::offset_of!(Flow, dl_dst) / 8..std::mem::offset_of!(Flow, mpls_lse) / 8;
        let packet_type = std::mem::offset_of!(Flow, packet_type) / 8;
        let (mut has_header, mut is_typed, mut has_type) = (false, false, false);
        for (w, value) in self.mask.0.iter().zip(self.values.iter()) {
            let word = usize::from(w.word);
            let type_of = |n: u64| n.to_ne_bytes()[type_at % 8..][..2] != [0; 2];
            has_header |= header.contains(&word);
            is_typed |= word == type_at / 8 && type_of(*value);
            has_type |= word == packet_type;
        }
        if !has_header || is_typed && !has_type {
            return self.clone();
        }
        let mut m = self.unpack();
        m.imply_packet_type();
        PackedMatch::from(&m)
    }

    /// The mask.
    pub fn mask(&self) -> &PackedMask {
        &self.mask
    }

    /// The masked words of the flow, in the mask's order.
    pub fn values(&self) -> &MaskedWords {
        &self.values
    }

    /// The matched input port and its mask.
    pub fn in_port(&self) -> (u32, u32) {
        let mut words = self.mask.0.iter().zip(self.values.iter());
        let found = words.find(|(w, _)| usize::from(w.word) == IN_PORT_WORD);
        let part = |word: u64| {
            let mut flow = Flow::default();
            flow.words_mut()[IN_PORT_WORD] = word;
            flow.in_port
        };
        found.map_or((0, 0), |(w, value)| (part(*value), part(w.bits)))
    }

    /// Whether it matches every packet.
    pub fn is_catchall(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether every packet that matches `self` also matches `wider`.
    pub fn is_within(&self, wider: &Match) -> bool {
        let (flow, mask) = (wider.flow().words(), wider.mask().words());
        let mut own = self.mask.0.iter().zip(self.values.iter()).peekable();
        mask.iter().enumerate().all(|(word, bits)| {
            let here = own.next_if(|(w, _)| usize::from(w.word) == word);
            let (own_bits, value) = here.map_or((0, 0), |(w, value)| (w.bits, *value));
            own_bits & bits == *bits && (value ^ flow[word]) & bits == 0
        })
    }

    /// Numbers of the `tun_metadata` fields that it examines, ascending.
    pub fn metadata_indices(&self) -> impl Iterator<Item = u8> + use<> {
        let word = std::mem::offset_of!(Flow, tun_metadata_present) / size_of::<u64>();
        let of_mask = self.mask.0.iter().find(|w| usize::from(w.word) == word);
        let mask = Flow { tun_metadata_present: of_mask.map_or(0, |w| w.bits), ..Flow::default() };
        mask.metadata_indices()
    }

    /// Restores the match.
    pub fn unpack(&self) -> Match {
        Match::new(&self.mask.flow_of(&self.values), &self.mask.unpack())
    }
}

impl From<&Match> for PackedMatch {
    fn from(m: &Match) -> PackedMatch {
        PackedMatch::with_mask(&PackedMask::new(m.mask()), m)
    }
}

impl From<Match> for PackedMatch {
    fn from(m: Match) -> PackedMatch {
        PackedMatch::from(&m)
    }
}

impl std::fmt::Debug for PackedMatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::text::format_match(&self.unpack(), None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_loses_nothing(
            words in prop::collection::vec((0..FLOW_WORDS, any::<u64>(), any::<u64>()), 0..8)
        ) {
            let (mut flow, mut mask) = (Flow::default(), Mask::default());
            for (word, value, bits) in words {
                flow.words_mut()[word] = value;
                mask.0.words_mut()[word] = bits;
            }
            let m = Match::new(&flow, &mask);
            let packed = PackedMatch::from(&m);
            prop_assert_eq!(packed.unpack(), m);
            prop_assert_eq!(packed.mask().unpack(), mask);
            prop_assert_eq!(packed.is_catchall(), mask.is_empty());
            prop_assert!(packed.values().len() <= 8);
            prop_assert!(size_of::<PackedMatch>() <= 40);
            let again = PackedMatch::from(&m);
            prop_assert!(again == packed && again.values().cmp(packed.values()).is_eq());
            for (i, w) in packed.mask().words().iter().enumerate() {
                // Wider by one word; and not wider, because of a different value.
                let (mut flow, mut mask) = (*m.flow(), *m.mask());
                mask.0.words_mut()[usize::from(w.word)] = 0;
                let wider = Match::new(&flow, &mask);
                prop_assert!(packed.is_within(&wider) && !PackedMatch::from(&wider).is_within(&m));
                flow.words_mut()[usize::from(w.word)] = packed.values()[i] ^ w.bits;
                prop_assert!(!packed.is_within(&Match::new(&flow, m.mask())));
            }
            prop_assert!(packed.is_within(&m) && packed.is_within(&Match::catchall()));
        }
    }
}
