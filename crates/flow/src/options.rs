//! [`TunnelOptions`]: the options of a tunnel's outer header, as in the packet (RFC 8926 §3.5).

use crate::fields::FieldId;
use crate::flow::{Flow, Mask};
use crate::tlv::TlvTable;
use crate::wide::Wide;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of an option before its data.
const HEADER_BYTES: usize = 4;
/// Bit of an option's type: packets with an unknown option must be dropped.
const CRITICAL: u8 = 0x80;
/// Number of 32-bit words of data, in the last byte of an option's header.
const WORDS: u8 = 0x1f;

/// Geneve options, headers included: 256 bytes, four blocks of a flow key. Bytes beyond the length are 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
pub struct TunnelOptions {
    len_bytes: u8,
    pad: [u8; 3],
    bytes: [u8; TunnelOptions::MAX_BYTES],
}

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelOption<'a> {
    /// Class.
    pub class: u16,
    /// Type, with its critical bit.
    pub ty: u8,
    /// Value, a multiple of 4 bytes.
    pub data: &'a [u8],
}

/// Options that do not agree with the mappings: a critical one is not mapped, or a length differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadOptions;

impl TunnelOption<'_> {
    /// Whether packets with it must be dropped where it is unknown.
    pub fn is_critical(&self) -> bool {
        self.ty & CRITICAL != 0
    }
}

impl Default for TunnelOptions {
    fn default() -> TunnelOptions {
        TunnelOptions { len_bytes: 0, pad: [0; 3], bytes: [0; TunnelOptions::MAX_BYTES] }
    }
}

impl TunnelOptions {
    /// Bytes of the options of one packet.
    pub const MAX_BYTES: usize = 252;

    /// Options as in a packet; `None` if they are too long, or an option exceeds the end.
    pub fn from_bytes(bytes: &[u8]) -> Option<TunnelOptions> {
        let mut out =
            TunnelOptions { len_bytes: u8::try_from(bytes.len()).ok()?, ..TunnelOptions::default() };
        out.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let whole = out.iter().map(|o| HEADER_BYTES + o.data.len()).sum::<usize>();
        (whole == bytes.len()).then_some(out)
    }

    /// The bytes of a mask over options: not of their form.
    pub(crate) fn from_mask_bytes(bytes: &[u8]) -> Option<TunnelOptions> {
        let mut out = TunnelOptions { len_bytes: u8::MAX, ..TunnelOptions::default() };
        out.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(out)
    }

    /// The options as in a packet.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len_bytes).min(TunnelOptions::MAX_BYTES)]
    }

    /// The bytes of this mask for those options.
    pub fn mask_bytes(&self, of: &TunnelOptions) -> &[u8] {
        &self.bytes[..of.as_bytes().len()]
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// The options; ends before one that exceeds the end.
    pub fn iter(&self) -> impl Iterator<Item = TunnelOption<'_>> {
        let mut rest = self.as_bytes();
        std::iter::from_fn(move || {
            let (header, after) = rest.split_first_chunk::<HEADER_BYTES>()?;
            let (data, after) = after.split_at_checked(4 * usize::from(header[3] & WORDS))?;
            rest = after;
            Some(TunnelOption { class: u16::from_be_bytes([header[0], header[1]]), ty: header[2], data })
        })
    }

    /// Appends an option; `false` if it does not fit, or its length is no multiple of 4 up to 124.
    pub fn push(&mut self, class: u16, ty: u8, data: &[u8]) -> bool {
        let (start, len) = (self.as_bytes().len(), HEADER_BYTES + data.len());
        let valid = data.len().is_multiple_of(4) && data.len() / 4 <= usize::from(WORDS);
        let Some(place) = self.bytes.get_mut(start..start + len).filter(|_| valid) else { return false };
        place[..2].copy_from_slice(&class.to_be_bytes());
        (place[2], place[3]) = (ty, (data.len() / 4) as u8);
        place[HEADER_BYTES..].copy_from_slice(data);
        self.len_bytes += len as u8;
        true
    }

    /// The mask of these options without their data: exact length, exact headers.
    pub fn header_mask(&self) -> TunnelOptions {
        let mut out = TunnelOptions { len_bytes: u8::MAX, ..TunnelOptions::default() };
        let mut at = 0;
        for option in self.iter() {
            out.bytes[at..at + HEADER_BYTES].fill(u8::MAX);
            at += HEADER_BYTES + option.data.len();
        }
        out
    }

    /// Sets the mask of the data of option number `n` of those options.
    pub fn set_data_mask(&mut self, of: &TunnelOptions, n: usize, data: &[u8]) {
        let Some(option) = of.iter().nth(n) else { return };
        let before: usize = of.iter().take(n).map(|o| HEADER_BYTES + o.data.len()).sum();
        let place = &mut self.bytes[before + HEADER_BYTES..][..option.data.len()];
        place.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
    }
}

impl TlvTable {
    /// Sets the fields of a packet with these options. Ignores options that are not mapped.
    ///
    /// # Errors
    /// See [`BadOptions`].
    pub fn decode(&self, options: &TunnelOptions, flow: &mut Flow) -> Result<(), BadOptions> {
        for option in options.iter() {
            match self.find(option.class, option.ty) {
                Some((index, mapping)) if usize::from(mapping.len_bytes) == option.data.len() => {
                    let field = FieldId::tun_metadata(index).ok_or(BadOptions)?;
                    self.write(field, flow, Wide::from_be_bytes(option.data));
                }
                Some(_) => return Err(BadOptions),
                None if option.is_critical() => return Err(BadOptions),
                None => {}
            }
        }
        Ok(())
    }

    /// The options of a packet with these fields, in the order of the fields. Omits those beyond
    /// [`TunnelOptions::MAX_BYTES`].
    pub fn encode(&self, flow: &Flow) -> TunnelOptions {
        let mut options = TunnelOptions::default();
        for index in flow.metadata_indices() {
            if let (Some(field), Some(m)) = (FieldId::tun_metadata(index), self.get(index)) {
                let data = self.read(field, flow).to_be_bytes(m.len_bytes.into());
                let _fits = options.push(m.class, m.ty, &data);
            }
        }
        options
    }

    /// Adds the examined bits `wc` of the metadata of a packet with these options to the mask of the options. Class,
    /// type and length of each option are exact already, so the absence of another is, too.
    pub fn add_mask_of_options(&self, options: &TunnelOptions, wc: &Mask, mask: &mut TunnelOptions) {
        for (n, option) in options.iter().enumerate() {
            let field =
                self.find(option.class, option.ty).and_then(|(index, _)| FieldId::tun_metadata(index));
            if let Some(field) = field {
                mask.set_data_mask(options, n, &self.read(field, &wc.0).to_be_bytes(option.data.len()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table() -> TlvTable {
        let mut table = TlvTable::EMPTY;
        for (index, class, ty, len_bytes) in
            [(0, 0xffff, 0, 4), (5, 0xffff, 1, 8), (7, 1, 0x82, 124), (9, 1, 3, 116)]
        {
            table.add(index, class, ty, len_bytes).expect("the mapping is valid");
        }
        table
    }

    #[test]
    fn options_follow_the_mappings() {
        let check = |bytes: &[u8], want: Option<&[u8]>| {
            let options = TunnelOptions::from_bytes(bytes).expect("whole options");
            let mut flow = Flow::default();
            let read = table()
                .decode(&options, &mut flow)
                .ok()
                .map(|()| flow.metadata_indices().collect::<Vec<_>>());
            assert_eq!(read.as_deref(), want, "{bytes:x?}");
        };
        check(&[], Some(&[]));
        check(&[0xff, 0xff, 0, 1, 1, 2, 3, 4], Some(&[0]));
        check(&[0xff, 0xff, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff, 0, 1, 0, 0, 0, 0], Some(&[0, 5]));
        // Not mapped: ignored, unless critical.
        check(&[0xff, 0xfe, 0, 1, 1, 2, 3, 4], Some(&[]));
        check(&[0xff, 0xfe, 0x80, 1, 1, 2, 3, 4], None);
        // Another length.
        check(&[0xff, 0xff, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8], None);
        check(&[0xff, 0xff, 0, 0], None);
    }

    #[test]
    fn options_have_bounds() {
        assert_eq!(TunnelOptions::from_bytes(&[0; 256]), None);
        assert_eq!(TunnelOptions::from_bytes(&[0, 0, 0, 2, 0, 0, 0, 0]), None, "the option exceeds the end");
        assert_eq!(TunnelOptions::from_bytes(&[0, 0, 0]), None, "less than a header");
        let mut options = TunnelOptions::default();
        assert!(options.push(1, 2, &[7; 124]) && options.push(1, 3, &[7; 116]) && options.push(1, 4, &[]));
        assert_eq!(options.as_bytes().len(), TunnelOptions::MAX_BYTES);
        assert!(!options.push(1, 5, &[]) && !TunnelOptions::default().push(1, 2, &[0; 3]));
        assert!(!TunnelOptions::default().push(1, 2, &[0; 128]));
    }

    proptest! {
        #[test]
        fn fields_round_trip(values in prop::collection::vec((0..4usize, any::<[u8; 124]>()), 0..8)) {
            let (table, mut flow) = (table(), Flow::default());
            for (n, bytes) in values {
                let field = FieldId::tun_metadata([0, 5, 7, 9][n]).expect("a field");
                let len = usize::from(table.bits_of(field)) / 8;
                // The two long ones do not fit together with the others.
                if n < 2 || flow.tun_metadata_present & (1 << 7 | 1 << 9) == 0 {
                    table.write(field, &mut flow, Wide::from_be_bytes(&bytes[..len]));
                }
            }
            let options = table.encode(&flow);
            prop_assert_eq!(TunnelOptions::from_bytes(options.as_bytes()), Some(options));
            let mut back = Flow::default();
            prop_assert_eq!(table.decode(&options, &mut back), Ok(()));
            prop_assert_eq!(back, flow);
            // The mask of examined bits marks these bits of the packet.
            let mut wc = Mask(flow);
            wc.0.tun_metadata_present = u64::MAX;
            let mut mask = options.header_mask();
            table.add_mask_of_options(&options, &wc, &mut mask);
            for ((o, m), at) in options.as_bytes().iter().zip(mask.mask_bytes(&options)).zip(0..) {
                prop_assert!(*m == 0xff || m == o, "byte {}", at);
            }
        }
    }
}
