//! [`TlvTable`]: the place of options of tunnels in a [`Flow`].
//!
//! A controller maps types of Geneve options to the fields `tun_metadata0` to `tun_metadata63`. A flow has 256
//! bytes for their values and a bit for the presence of each. A mapping is given a set of 4-byte words, which
//! need not be adjacent, and keeps them until its removal: matches and masks of one mapping stay comparable
//! while others come and go.
//!
//! A table is immutable for its readers: a change makes a new one. Rules refer to fields by number.

use crate::fields::FieldId;
use crate::flow::Flow;
use crate::tunnel::Tunnel;
use crate::wide::Wide;

/// Number of `tun_metadata` fields.
pub const TLV_FIELDS: usize = 64;
/// Bytes of all values together.
pub const TLV_BYTES: usize = 256;
/// Bytes of the longest value (RFC 8926 §3.5: 5 bits of 4-byte multiples).
pub const TLV_VALUE_BYTES: usize = 124;

/// A type of option mapped to a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlvMapping {
    /// Option class.
    pub class: u16,
    /// Option type.
    pub ty: u8,
    /// Bytes of the value: a multiple of 4, at most [`TLV_VALUE_BYTES`].
    pub len_bytes: u8,
    /// Words of [`Flow::tun_metadata`] with the value, most significant first.
    words: u64,
}

/// The tunnel metadata of a flow, kept elsewhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TunMetadata {
    present: u64,
    words: [u32; TLV_BYTES / 4],
}

/// The reason for refusing a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlvError {
    /// No field has that number.
    BadIndex,
    /// The length is no multiple of 4 between 4 and 124.
    BadLength,
    /// The field has a mapping.
    AlreadyMapped,
    /// Another field has that class and type.
    Duplicate,
    /// The values need more than [`TLV_BYTES`].
    Full,
}

/// The mappings of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTable {
    fields: [Option<TlvMapping>; TLV_FIELDS],
}

impl Default for TlvTable {
    fn default() -> TlvTable {
        TlvTable::EMPTY
    }
}

impl FieldId {
    /// The `tun_metadata` field of that number.
    pub fn tun_metadata(index: u8) -> Option<FieldId> {
        let first = FieldId::TunMetadata0 as usize;
        crate::fields::ALL_FIELDS[first..first + TLV_FIELDS].get(usize::from(index)).copied()
    }

    /// The number of a `tun_metadata` field; `None` for other fields.
    #[inline]
    pub fn metadata_index(self) -> Option<u8> {
        let i = (self as u8).wrapping_sub(FieldId::TunMetadata0 as u8);
        (usize::from(i) < TLV_FIELDS).then_some(i)
    }
}

/// Numbers of the bits of a word, ascending.
pub(crate) fn indices(bits: u64) -> impl Iterator<Item = u8> {
    let mut left = bits;
    std::iter::from_fn(move || {
        let next = (left != 0).then(|| left.trailing_zeros() as u8);
        left &= left.wrapping_sub(1);
        next
    })
}

impl Flow {
    /// Numbers of the `tun_metadata` fields of the packet, ascending; of a mask, those with examined presence.
    pub fn metadata_indices(&self) -> impl Iterator<Item = u8> + use<> {
        indices(self.tun_metadata_present)
    }

    /// Removes all tunnel fields: the packet comes from no tunnel.
    pub fn clear_tunnel(&mut self) {
        self.set_tunnel(&Tunnel::default());
        self.clear_metadata();
    }

    /// Removes all tunnel metadata.
    pub fn clear_metadata(&mut self) {
        self.tun_metadata_present = 0;
        self.tun_metadata = [0; TLV_BYTES / 4];
    }

    /// All tunnel metadata; `None`: there is none.
    pub fn tun_options(&self) -> Option<TunMetadata> {
        let (present, words) = (self.tun_metadata_present, self.tun_metadata);
        (present != 0).then_some(TunMetadata { present, words })
    }

    /// Replaces all tunnel metadata.
    pub fn set_tun_options(&mut self, metadata: Option<&TunMetadata>) {
        match metadata {
            Some(m) => (self.tun_metadata_present, self.tun_metadata) = (m.present, m.words),
            None => self.clear_metadata(),
        }
    }
}

/// Positions of the ones of a number, ascending.
fn ones(mut bits: u64) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator {
    let mut at = [0u8; TLV_FIELDS];
    let n = bits.count_ones() as usize;
    for place in at.iter_mut().take(n) {
        *place = bits.trailing_zeros() as u8;
        bits &= bits - 1;
    }
    (0..n).map(move |i| usize::from(at[i]))
}

impl TlvMapping {
    /// Bits of the value.
    pub fn len_bits(&self) -> u16 {
        8 * u16::from(self.len_bytes)
    }

    fn read(&self, flow: &Flow) -> Wide {
        let mut out = Wide::default();
        for (i, word) in ones(self.words).rev().enumerate() {
            out.put_word(i, flow.tun_metadata[word]);
        }
        out
    }

    fn write(&self, flow: &mut Flow, value: Wide) {
        for (i, word) in ones(self.words).rev().enumerate() {
            flow.tun_metadata[word] = value.word(i);
        }
    }
}

impl TlvTable {
    /// A table without mappings.
    pub const EMPTY: TlvTable = TlvTable { fields: [None; TLV_FIELDS] };

    /// The mapping of a field.
    pub fn get(&self, index: u8) -> Option<&TlvMapping> {
        self.fields.get(usize::from(index))?.as_ref()
    }

    /// Fields with their mappings, by number.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &TlvMapping)> {
        self.fields.iter().zip(0u8..).filter_map(|(mapping, i)| Some((i, mapping.as_ref()?)))
    }

    /// Whether no field is mapped.
    pub fn is_empty(&self) -> bool {
        self.fields.iter().all(Option::is_none)
    }

    /// The field of an option.
    pub fn find(&self, class: u16, ty: u8) -> Option<(u8, &TlvMapping)> {
        self.iter().find(|(_, m)| (m.class, m.ty) == (class, ty))
    }

    /// Checks the form of a mapping.
    ///
    /// # Errors
    /// [`TlvError::BadLength`], [`TlvError::BadIndex`].
    pub fn check(index: u16, len_bytes: u8) -> Result<(), TlvError> {
        let valid =
            len_bytes != 0 && len_bytes.is_multiple_of(4) && usize::from(len_bytes) <= TLV_VALUE_BYTES;
        match usize::from(index) < TLV_FIELDS {
            _ if !valid => Err(TlvError::BadLength),
            true => Ok(()),
            false => Err(TlvError::BadIndex),
        }
    }

    /// Maps an option to a field.
    ///
    /// # Errors
    /// See [`TlvError`].
    pub fn add(&mut self, index: u16, class: u16, ty: u8, len_bytes: u8) -> Result<(), TlvError> {
        TlvTable::check(index, len_bytes)?;
        let place = usize::from(index);
        if self.fields[place].is_some() {
            return Err(TlvError::AlreadyMapped);
        }
        if self.find(class, ty).is_some() {
            return Err(TlvError::Duplicate);
        }
        let used = self.iter().fold(0, |used, (_, m)| used | m.words);
        let free = ones(!used);
        let wanted = usize::from(len_bytes / 4);
        if free.len() < wanted {
            return Err(TlvError::Full);
        }
        let words = free.take(wanted).fold(0, |words, i| words | 1 << i);
        self.fields[place] = Some(TlvMapping { class, ty, len_bytes, words });
        Ok(())
    }

    /// Removes the mapping of a field.
    pub fn remove(&mut self, index: u8) {
        if let Some(mapping) = self.fields.get_mut(usize::from(index)) {
            *mapping = None;
        }
    }

    /// Bits of a field: of tunnel metadata those of its mapping, 0 without one.
    pub fn bits_of(&self, field: FieldId) -> u16 {
        match field.metadata_index() {
            Some(index) => self.get(index).map_or(0, TlvMapping::len_bits),
            None => field.def().bits,
        }
    }

    /// Value of a field of `flow`; 0 if it has no mapping.
    pub fn read(&self, field: FieldId, flow: &Flow) -> Wide {
        match field.metadata_index() {
            Some(index) => self.get(index).map_or(Wide::default(), |m| m.read(flow)),
            None => field.get(flow).into(),
        }
    }

    /// Writes a field of `flow`, which the packet has from then on. Ignores a field without a mapping.
    pub fn write(&self, field: FieldId, flow: &mut Flow, value: Wide) {
        match field.metadata_index() {
            Some(index) => {
                if let Some(mapping) = self.get(index) {
                    mapping.write(flow, value);
                    flow.tun_metadata_present |= 1 << index;
                }
            }
            None => field.set(flow, value.low()),
        }
    }

    /// Removes tunnel metadata from `flow`. Ignores a field without a mapping.
    pub fn delete(&self, field: FieldId, flow: &mut Flow) {
        if let Some(index) = field.metadata_index() {
            self.write(field, flow, Wide::default());
            flow.tun_metadata_present &= !(1 << index);
        }
    }

    /// Adds the bits `mask` of a field, and its presence, to a mask.
    pub fn add_mask(&self, field: FieldId, mask_flow: &mut Flow, mask: Wide) {
        match field.metadata_index() {
            Some(_) => self.write(field, mask_flow, self.read(field, mask_flow) | mask),
            None => field.add_mask(mask_flow, mask.low()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(maps: &[(u16, u16, u8, u8)]) -> TlvTable {
        let mut table = TlvTable::EMPTY;
        for (index, class, ty, len_bytes) in maps {
            table.add(*index, *class, *ty, *len_bytes).expect("the mapping is valid");
        }
        table
    }

    #[test]
    fn mappings_are_checked() {
        let mut t = table(&[(0, 0xffff, 0, 4), (1, 0xffff, 1, 124), (2, 0xffff, 2, 124)]);
        for (map, want) in [
            ((3, 0xffff, 3, 0), TlvError::BadLength),
            ((3, 0xffff, 3, 6), TlvError::BadLength),
            ((3, 0xffff, 3, 128), TlvError::BadLength),
            ((64, 0xffff, 3, 4), TlvError::BadIndex),
            ((0, 0xffff, 3, 4), TlvError::AlreadyMapped),
            ((3, 0xffff, 2, 4), TlvError::Duplicate),
            ((3, 0xffff, 3, 8), TlvError::Full),
        ] {
            let (index, class, ty, len_bytes) = map;
            assert_eq!(t.add(index, class, ty, len_bytes), Err(want), "{map:?}");
        }
        assert_eq!(t.add(3, 0xffff, 3, 4), Ok(()));
        assert_eq!(t.find(0xffff, 3).map(|(index, _)| index), Some(3));
    }

    proptest! {
        /// Fields keep their values while others are mapped and removed, and do not share bits.
        #[test]
        fn values_do_not_overlap(changes in prop::collection::vec((0..64u16, 1..=31u8, any::<[u8; 124]>()), 1..60)) {
            let (mut t, mut flow) = (TlvTable::EMPTY, Flow::default());
            let mut model: std::collections::BTreeMap<u16, Wide> = Default::default();
            for (index, words, bytes) in changes {
                let field = FieldId::tun_metadata(index as u8).expect("a field");
                if t.get(index as u8).is_some() {
                    t.write(field, &mut flow, Wide::default());
                    flow.tun_metadata_present &= !(1 << index);
                    t.remove(index as u8);
                    model.remove(&index);
                } else if t.add(index, 1, index as u8, words * 4).is_ok() {
                    let value = Wide::from_be_bytes(&bytes[..usize::from(words) * 4]);
                    t.write(field, &mut flow, value);
                    model.insert(index, value);
                } else {
                    let used: u32 = t.iter().map(|(_, m)| u32::from(m.len_bytes)).sum();
                    prop_assert!(used + u32::from(words) * 4 > TLV_BYTES as u32, "{} bytes are free", 256 - used);
                }
                for (index, value) in &model {
                    let field = FieldId::tun_metadata(*index as u8).expect("a field");
                    prop_assert_eq!(t.read(field, &flow), *value);
                }
                let there: Vec<u16> = flow.metadata_indices().map(u16::from).collect();
                prop_assert_eq!(there, model.keys().copied().collect::<Vec<_>>());
            }
        }
    }
}
