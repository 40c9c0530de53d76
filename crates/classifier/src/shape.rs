//! Properties shared by all rules of a subtable: the mask, split into its words by stage.
//!
//! Invariant: elements are in stage order; their bits are disjoint, nonzero, and together the mask; the values of a
//! rule are in the order of the packed mask, by word.

use flow::fields::FieldId;
use flow::{Flow, Mask, MaskWord, Match, PackedMask, Stage};
use std::sync::LazyLock;

/// Maximum stages of a lookup.
pub(crate) const MAX_STEPS: usize = Stage::ALL.len();

/// The bits of each stage. They follow [`Stage::words`], except for bits that Open vSwitch examines later: the
/// addresses of the connection's original direction belong to layer 3; its ports, neighbour discovery, ARP's
/// hardware addresses and the TCP flags belong to layer 4.
static STAGE_BITS: LazyLock<[Mask; MAX_STEPS]> = LazyLock::new(|| {
    let mut stages = Stage::ALL.map(|stage| {
        let mut mask = Mask::none();
        mask.0.words_mut()[stage.words()].fill(u64::MAX);
        mask
    });
    const LAYER3: usize = 2;
    const LAYER4: usize = 3;
    let moved = [
        (FieldId::CtNwSrc, LAYER3),
        (FieldId::CtNwDst, LAYER3),
        (FieldId::CtIpv6Src, LAYER3),
        (FieldId::CtIpv6Dst, LAYER3),
        (FieldId::CtTpSrc, LAYER4),
        (FieldId::CtTpDst, LAYER4),
        (FieldId::NdTarget, LAYER4),
        (FieldId::ArpSha, LAYER4),
        (FieldId::ArpTha, LAYER4),
    ];
    for (field, to) in moved {
        for (stage, mask) in stages.iter_mut().enumerate() {
            field.set(&mut mask.0, if stage == to { field.full_mask() } else { 0 });
        }
    }
    // All 16 bits of the word, including the four unused by TCP.
    stages
        .iter_mut()
        .enumerate()
        .for_each(|(i, mask)| mask.0.tcp_flags = if i == LAYER4 { 0xffff } else { 0 });
    stages
});

/// The common shape of a subtable's rules.
pub(crate) struct Shape {
    /// The mask.
    pub(crate) mask: Mask,
    /// The mask as packed words, shared with the rules: their values are in its order.
    packed: PackedMask,
    /// The words of the mask by stage; a word of several stages occurs several times, with disjoint bits.
    elements: Box<[MaskWord]>,
    /// For each element, the index of its word in `packed`.
    places: Box<[u8]>,
    ends: [u8; MAX_STEPS],
    steps: u8,
    ports: u32,
}

impl Shape {
    pub(crate) fn new(packed: &PackedMask) -> Shape {
        let mask = packed.unpack();
        let mut elements = Vec::new();
        let mut ends = [0; MAX_STEPS];
        let mut steps = 0;
        for stage in STAGE_BITS.iter() {
            let before = elements.len();
            let words = mask.words().iter().zip(stage.words()).enumerate();
            elements.extend(words.filter_map(|(word, (m, s))| {
                let bits = m & s;
                (bits != 0).then_some(MaskWord { word: word as u8, bits })
            }));
            if elements.len() > before {
                ends[steps] = elements.len() as u8;
                steps += 1;
            }
        }
        // The mask that matches everything has one empty step.
        let steps = steps.max(1) as u8;
        let place = |e: &MaskWord| packed.words().iter().position(|w| w.word == e.word).unwrap_or(0) as u8;
        let places = elements.iter().map(place).collect();
        Shape {
            mask,
            packed: packed.clone(),
            elements: elements.into(),
            places,
            ends,
            steps,
            ports: ports_of(&mask.0),
        }
    }

    /// The mask, shared with the rules.
    pub(crate) fn packed(&self) -> &PackedMask {
        &self.packed
    }

    /// All elements.
    pub(crate) fn elements(&self) -> &[MaskWord] {
        &self.elements
    }

    /// The masked words of a rule with these values, for each step.
    pub(crate) fn step_values<'a>(
        &'a self,
        step: usize,
        values: &'a [u64],
    ) -> impl Iterator<Item = u64> + 'a {
        let range = self.start(step)..self.ends[step].into();
        let places = self.places[range.clone()].iter();
        self.elements[range].iter().zip(places).map(|(e, place)| values[usize::from(*place)] & e.bits)
    }

    /// The two ports of a rule with these values, source in the high half.
    pub(crate) fn ports_of_values(&self, values: &[u64]) -> u32 {
        let (src, dst) = self.packed.ports_of(values);
        u32::from(src) << 16 | u32::from(dst)
    }

    /// Number of steps of a lookup: the stages with bits of the mask, at least 1. The last one searches the rules.
    pub(crate) fn steps(&self) -> usize {
        self.steps.into()
    }

    /// The elements of step `step`.
    pub(crate) fn step(&self, step: usize) -> &[MaskWord] {
        &self.elements[self.start(step)..self.ends[step].into()]
    }

    /// The step with the highest bit of `field`; `None` if there is none.
    pub(crate) fn step_of(&self, field: FieldId) -> Option<usize> {
        let mut top = Flow::default();
        field.set(&mut top, 1 << (field.def().bits - 1));
        (0..self.steps())
            .find(|s| self.step(*s).iter().any(|e| top.words()[usize::from(e.word)] & e.bits != 0))
    }

    /// The bits of the mask in the two ports, source in the high half.
    pub(crate) fn ports(&self) -> u32 {
        self.ports
    }

    /// Number of leading bits of the ports covered by the mask; 0 if none.
    pub(crate) fn ports_len(&self) -> u8 {
        (32 - self.ports.trailing_zeros()) as u8
    }

    /// Whether `flow` has `values` under the mask.
    #[inline]
    pub(crate) fn equals(&self, values: &[u64], flow: &Flow) -> bool {
        let words = flow.words();
        self.packed.words().iter().zip(values).all(|(e, v)| words[usize::from(e.word)] & e.bits == *v)
    }

    /// Whether `values` agree with `other` in the bits that both masks have.
    pub(crate) fn agrees(&self, values: &[u64], other: &Match) -> bool {
        let (flow, mask) = (other.flow().words(), other.mask().words());
        self.packed.words().iter().zip(values).all(|(e, v)| {
            let word = usize::from(e.word);
            (flow[word] ^ v) & e.bits & mask[word] == 0
        })
    }

    /// Adds the bits of the steps before `end` to `wc`.
    #[inline]
    pub(crate) fn add_steps_before(&self, end: usize, wc: &mut Mask) {
        let words = wc.0.words_mut();
        self.elements[..self.start(end)].iter().for_each(|e| words[usize::from(e.word)] |= e.bits);
    }

    /// Adds all bits to `wc`, of the ports only the leading `ports_len` ones.
    pub(crate) fn add_with_ports_prefix(&self, ports_len: u8, wc: &mut Mask) {
        let kept =
            ports_of(&wc.0) | self.ports & u32::MAX.checked_shl(32 - u32::from(ports_len)).unwrap_or(0);
        self.add_steps_before(self.steps(), wc);
        wc.0.tp_src = (kept >> 16) as u16;
        wc.0.tp_dst = kept as u16;
    }

    fn start(&self, step: usize) -> usize {
        if step == 0 { 0 } else { self.ends[step - 1].into() }
    }
}

/// Both ports as one number, source in the high half.
pub(crate) fn ports_of(flow: &Flow) -> u32 {
    u32::from(flow.tp_src) << 16 | u32::from(flow.tp_dst)
}
