//! Ranges of bits of a field, as in actions.

use crate::fields::FieldId;
use crate::flow::Flow;

/// A range of bits of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SubField {
    /// The field.
    pub field: FieldId,
    /// Lowest bit.
    pub offset_bits: u16,
    /// Number of bits, at least 1.
    pub len_bits: u16,
}

impl SubField {
    /// The whole field.
    pub fn whole(field: FieldId) -> SubField {
        SubField { field, offset_bits: 0, len_bits: u16::from(field.def().bits) }
    }

    /// Whether the range lies within the field.
    pub fn is_valid(&self) -> bool {
        let end = u32::from(self.offset_bits) + u32::from(self.len_bits);
        self.len_bits > 0 && end <= u32::from(self.field.def().bits)
    }

    /// The bits of the range, as a mask of the field; 0 if beyond every field.
    pub fn field_mask(&self) -> u128 {
        let ones = if self.len_bits >= 128 { u128::MAX } else { (1 << self.len_bits) - 1 };
        ones.checked_shl(self.offset_bits.into()).unwrap_or(0)
    }

    /// Value of the range in `flow`.
    pub fn get(&self, flow: &Flow) -> u128 {
        (self.field.get(flow) & self.field_mask()).checked_shr(self.offset_bits.into()).unwrap_or(0)
    }

    /// Writes the range of `flow`; ignores higher bits of `value`.
    pub fn set(&self, flow: &mut Flow, value: u128) {
        let mask = self.field_mask();
        let old = self.field.get(flow);
        let value = value.checked_shl(self.offset_bits.into()).unwrap_or(0);
        self.field.set(flow, old & !mask | value & mask);
    }

    /// Adds the range to a mask over a flow.
    pub fn add_mask(&self, mask_flow: &mut Flow) {
        self.field.add_mask(mask_flow, self.field_mask());
    }
}
