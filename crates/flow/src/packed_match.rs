//! [`PackedMatch`]: a match without unmatched words, for tables of many rules.

use crate::flow::{Flow, Mask, VlanTag};
use crate::matching::Match;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

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
        // Most words are 0, so whole groups of them are passed over.
        let (groups, rest) = mask.words().as_chunks::<GROUP_WORDS>();
        let of_group = |words: &mut Vec<MaskWord>, first: usize, group: &[u64]| {
            let some = (first..).zip(group).filter(|(_, bits)| **bits != 0);
            words.extend(some.map(|(word, bits)| MaskWord { word: word as u8, bits: *bits }));
        };
        let mut words = Vec::with_capacity(USUAL_WORDS);
        for (n, group) in groups.iter().enumerate() {
            if group.iter().fold(0, |any, bits| any | bits) != 0 {
                of_group(&mut words, n * GROUP_WORDS, group);
            }
        }
        of_group(&mut words, groups.len() * GROUP_WORDS, rest);
        PackedMask(Arc::new(words.into()))
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

    /// Source and destination port of the flow with these values.
    pub fn ports_of(&self, values: &[u64]) -> (u16, u16) {
        let found = self.0.iter().zip(values).find(|(w, _)| usize::from(w.word) == PORTS_WORD);
        let bytes = found.map_or([0; 8], |(_, value)| value.to_ne_bytes());
        let port = |at: usize| u16::from_ne_bytes([bytes[at % 8], bytes[at % 8 + 1]]);
        (port(std::mem::offset_of!(Flow, tp_src)), port(std::mem::offset_of!(Flow, tp_dst)))
    }

    /// Restores the mask.
    pub fn unpack(&self) -> Mask {
        let mut mask = Mask::default();
        let words = mask.0.words_mut();
        self.0.iter().for_each(|w| words[usize::from(w.word)] = w.bits);
        mask
    }
}

/// Most masks have no more words.
const USUAL_WORDS: usize = 8;
/// Words of a mask that are examined together.
const GROUP_WORDS: usize = 8;
/// All bits of some fields, as words.
struct Ones {
    /// Fields of the Ethernet header.
    ethernet: Flow,
    /// Place and bits of the EtherType.
    dl_type: (usize, u64),
    /// Place and bits of the packet type.
    packet_type: (usize, u64),
}

static ONES: LazyLock<Ones> = LazyLock::new(|| {
    let tag = VlanTag { tci: u16::MAX, tpid: u16::MAX };
    let place = |flow: Flow| flow.words().iter().copied().enumerate().find(|(_, bits)| *bits != 0);
    let place = |flow: Flow| place(flow).unwrap_or_default();
    Ones {
        ethernet: Flow {
            dl_src: [0xff; 6],
            dl_dst: [0xff; 6],
            dl_type: u16::MAX,
            vlans: Flow::default().vlans.map(|_| tag),
            ..Flow::default()
        },
        dl_type: place(Flow { dl_type: u16::MAX, ..Flow::default() }),
        packet_type: place(Flow { packet_type: u32::MAX, ..Flow::default() }),
    }
});

/// The word of a flow with both ports.
const PORTS_WORD: usize = std::mem::offset_of!(Flow, tp_src) / 8;
const _: () = assert!(std::mem::offset_of!(Flow, tp_dst) / 8 == PORTS_WORD);
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
        let (full_type, packet_type) = (ONES.dl_type.1, ONES.packet_type.1);
        let (mut has_header, mut is_typed, mut has_type) = (false, false, false);
        for (w, value) in self.mask.0.iter().zip(self.values.iter()) {
            let word = usize::from(w.word);
            has_header |= ONES.ethernet.words()[word] & w.bits != 0;
            is_typed |= word == ONES.dl_type.0 && w.bits & full_type == full_type && value & full_type != 0;
            has_type |= word == ONES.packet_type.0 && w.bits & packet_type != 0;
        }
        if !has_header || is_typed && !has_type {
            return self.clone();
        }
        self.with_packet_type(if is_typed { 0 } else { packet_type })
    }

    /// The same match with these bits of the packet type in its mask, unless it matches one other than Ethernet.
    fn with_packet_type(&self, bits: u64) -> PackedMatch {
        let (place, all_bits) = ONES.packet_type;
        let mut words: Vec<_> = self.mask.0.iter().copied().zip(self.values.iter().copied()).collect();
        let at = words.partition_point(|(w, _)| usize::from(w.word) < place);
        match words.get_mut(at).filter(|(w, _)| usize::from(w.word) == place) {
            Some((_, value)) if *value & all_bits != 0 => return self.clone(),
            Some((w, _)) => w.bits = w.bits & !all_bits | bits,
            None => words.insert(at, (MaskWord { word: place as u8, bits }, 0)),
        }
        words.retain(|(w, _)| w.bits != 0);
        PackedMatch {
            mask: PackedMask(Arc::new(words.iter().map(|(w, _)| *w).collect())),
            values: MaskedWords::new(words.iter().map(|(_, value)| *value)),
        }
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
    pub fn is_within(&self, wider: &PackedMatch) -> bool {
        let mut own = self.mask.0.iter().zip(self.values.iter());
        wider.mask.0.iter().zip(wider.values.iter()).all(|(theirs, value)| {
            own.find(|(w, _)| w.word >= theirs.word).is_some_and(|(w, own_value)| {
                w.word == theirs.word
                    && w.bits & theirs.bits == theirs.bits
                    && (own_value ^ value) & theirs.bits == 0
            })
        })
    }

    /// Numbers of the `tun_metadata` fields that it examines, ascending.
    pub fn metadata_indices(&self) -> impl Iterator<Item = u8> + use<> {
        let word = std::mem::offset_of!(Flow, tun_metadata_present) / size_of::<u64>();
        let of_mask = self.mask.0.iter().find(|w| usize::from(w.word) == word);
        crate::tlv::indices(of_mask.map_or(0, |w| w.bits))
    }

    /// Restores the match.
    pub fn unpack(&self) -> Match {
        let mut m = Match::default();
        m.set_words(self.mask.0.iter().zip(self.values.iter()).map(|(w, value)| (*w, *value)));
        m
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
    use crate::flow::FLOW_WORDS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packing_loses_nothing(
            words in prop::collection::vec((0..FLOW_WORDS, any::<u64>(), any::<u64>()), 0..8),
            ports in prop::option::of((any::<u64>(), any::<u64>())),
            types in (prop::option::of(any::<bool>()), prop::option::of(0u32..2), any::<bool>()),
        ) {
            let (mut flow, mut mask) = (Flow::default(), Mask::default());
            for (word, value, bits) in words.into_iter().chain(ports.map(|(v, bits)| (PORTS_WORD, v, bits))) {
                flow.words_mut()[word] = value;
                mask.0.words_mut()[word] = bits;
            }
            let (dl_type, packet_type, has_address) = types;
            if let Some(is_known) = dl_type {
                (flow.dl_type, mask.0.dl_type) = (u16::from(is_known) * 0x800, u16::MAX);
            }
            if let Some(n) = packet_type {
                (flow.packet_type, mask.0.packet_type) = (n, u32::MAX);
            }
            if has_address {
                mask.0.dl_dst = [0xff; 6];
            }
            let m = Match::new(&flow, &mask);
            let packed = PackedMatch::from(&m);
            prop_assert_eq!(packed.unpack(), m);
            prop_assert_eq!(packed.mask().unpack(), mask);
            prop_assert_eq!(packed.mask().ports_of(packed.values()), (m.flow().tp_src, m.flow().tp_dst));
            prop_assert_eq!(packed.is_catchall(), mask.is_empty());
            prop_assert!(packed.values().len() <= 12);
            prop_assert!(size_of::<PackedMatch>() <= 40);
            let again = PackedMatch::from(&m);
            prop_assert!(again == packed && again.values().cmp(packed.values()).is_eq());
            for (i, w) in packed.mask().words().iter().enumerate() {
                // Wider by one word; and not wider, because of a different value.
                let (mut flow, mut mask) = (*m.flow(), *m.mask());
                mask.0.words_mut()[usize::from(w.word)] = 0;
                let wider = Match::new(&flow, &mask);
                let wider = PackedMatch::from(&wider);
                prop_assert!(packed.is_within(&wider) && !wider.is_within(&packed));
                flow.words_mut()[usize::from(w.word)] = packed.values()[i] ^ w.bits;
                prop_assert!(!packed.is_within(&PackedMatch::from(Match::new(&flow, m.mask()))));
            }
            let mut implied = m;
            implied.imply_packet_type();
            prop_assert_eq!(packed.of_rule(), PackedMatch::from(&implied));
            prop_assert!(packed.is_within(&packed) && packed.is_within(&PackedMatch::from(Match::catchall())));
        }
    }
}
