//! Ranges of bits of a field, as in actions.

use crate::fields::FieldId;
use crate::flow::Flow;
use crate::tlv::TlvTable;
use crate::wide::Wide;

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
        SubField { field, offset_bits: 0, len_bits: field.def().bits }
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

    /// The bits of the range, as a mask of any field.
    pub fn wide_mask(&self) -> Wide {
        Wide::ones(self.len_bits.into()) << self.offset_bits.into()
    }

    /// As [`SubField::get`], for any field.
    pub fn get_wide(&self, tlv: &TlvTable, flow: &Flow) -> Wide {
        (tlv.read(self.field, flow) >> self.offset_bits.into()) & Wide::ones(self.len_bits.into())
    }

    /// As [`SubField::set`], for any field.
    pub fn set_wide(&self, tlv: &TlvTable, flow: &mut Flow, value: Wide) {
        let mask = self.wide_mask();
        let old = tlv.read(self.field, flow);
        tlv.write(self.field, flow, (old & !mask) | ((value << self.offset_bits.into()) & mask));
    }

    /// As [`SubField::add_mask`], for any field.
    pub fn add_wide_mask(&self, tlv: &TlvTable, mask_flow: &mut Flow) {
        tlv.add_mask(self.field, mask_flow, self.wide_mask());
    }

    /// Adds the range to a mask over a flow.
    pub fn add_mask(&self, mask_flow: &mut Flow) {
        self.field.add_mask(mask_flow, self.field_mask());
    }
}
