//! [`FieldSet`]: fields as bits, and the candidate fields of a mask.

use super::{ALL_FIELDS, FieldId, FieldPosition, table};
use crate::flow::{FLOW_WORDS, Flow, Mask};
use std::mem::{offset_of, size_of};

/// A set of fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FieldSet([u64; ALL_FIELDS.len().div_ceil(64)]);

/// For each word of a [`Flow`]: the fields with a byte in it.
static FIELDS_OF_WORD: [FieldSet; FLOW_WORDS] = fields_of_words();

/// Offset and size in bytes of a field in a [`Flow`].
const fn bytes_of(place: &FieldPosition) -> (usize, usize) {
    match *place {
        FieldPosition::Int { offset, size, .. } | FieldPosition::Bytes { offset, size } => {
            (offset, size as usize)
        }
        FieldPosition::Port16 { offset } => (offset, 4),
        FieldPosition::Regs { first, count } => {
            (offset_of!(Flow, regs) + 4 * first as usize, 4 * count as usize)
        }
        FieldPosition::VlanPresent { .. } => (offset_of!(Flow, vlans), 8),
        FieldPosition::Tos => (offset_of!(Flow, nw_tos), 1),
        // Any of these fields is in the mask if its presence is.
        FieldPosition::Mapped => (offset_of!(Flow, tun_metadata_present), 8),
    }
}

const fn fields_of_words() -> [FieldSet; FLOW_WORDS] {
    let mut sets = [FieldSet([0; ALL_FIELDS.len().div_ceil(64)]); FLOW_WORDS];
    let mut field = 0;
    while field < ALL_FIELDS.len() {
        let (offset, size) = bytes_of(&table::DEFS[field].place);
        let mut word = offset / size_of::<u64>();
        while word * size_of::<u64>() < offset + size && word < FLOW_WORDS {
            sets[word].0[field / 64] |= 1 << (field % 64);
            word += 1;
        }
        field += 1;
    }
    sets
}

impl FieldSet {
    /// Whether the field is in the set.
    #[inline]
    pub fn contains(self, field: FieldId) -> bool {
        self.0[field as usize / 64] >> (field as usize % 64) & 1 != 0
    }
}

impl Mask {
    /// All fields with a bit in the mask, and possibly others that share a word with it. Avoids testing each
    /// field.
    pub fn candidate_fields(&self) -> FieldSet {
        let mut all = FieldSet::default();
        for (word, fields) in self.words().iter().zip(&FIELDS_OF_WORD) {
            if *word != 0 {
                all.0.iter_mut().zip(fields.0).for_each(|(a, b)| *a |= b);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_a_field_has_it_as_candidate_and_few_others() {
        for field in ALL_FIELDS.iter().filter(|field| field.metadata_index().is_none()) {
            let mut mask = Mask::default();
            assert_eq!(mask.candidate_fields(), FieldSet::default());
            for bit in 0..u32::from(field.def().bits) {
                let mut mask = Mask::default();
                field.set(&mut mask.0, 1 << bit);
                let set = field.get(&mask.0) != 0;
                assert!(!set || mask.candidate_fields().contains(*field), "{field:?} bit {bit}");
            }
            field.set(&mut mask.0, field.full_mask());
            let all = mask.candidate_fields();
            assert!(all.contains(*field), "{field:?}");
            assert!(ALL_FIELDS.iter().filter(|f| all.contains(**f)).count() <= 24, "{field:?}");
        }
    }
}
