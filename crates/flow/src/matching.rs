//! A match: a flow and the mask of its matched bits.

use crate::fields::FieldId;
use crate::flow::{Flow, Mask};
use crate::packed_match::MaskWord;
use crate::tlv::TlvTable;
use crate::wide::Wide;

/// The match of a rule. Invariant: `flow` has no bit outside `mask`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Match {
    flow: Flow,
    mask: Mask,
}

impl Match {
    /// Matches every packet.
    pub fn catchall() -> Match {
        Match::default()
    }

    /// Matches packets that agree with `flow` in the bits of `mask`.
    pub fn new(flow: &Flow, mask: &Mask) -> Match {
        Match { flow: flow.masked(mask), mask: *mask }
    }

    /// Sets whole words of the mask, with values that have no bits beyond them.
    pub(crate) fn set_words(&mut self, words: impl Iterator<Item = (MaskWord, u64)>) {
        let (flow, mask) = (self.flow.words_mut(), self.mask.0.words_mut());
        for (w, value) in words {
            (flow[usize::from(w.word)], mask[usize::from(w.word)]) = (value & w.bits, w.bits);
        }
    }

    /// The values, masked.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// The matched bits.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Whether `packet` matches.
    pub fn matches(&self, packet: &Flow) -> bool {
        packet.equal_under(&self.flow, &self.mask)
    }

    /// Requires `field` to be `value` exactly (numbers as in [`FieldId::get`]).
    pub fn set(&mut self, field: FieldId, value: u128) -> &mut Match {
        self.set_masked(field, value, field.full_mask())
    }

    /// Requires the bits `mask` of `field` to be those of `value`.
    pub fn set_masked(&mut self, field: FieldId, value: u128, mask: u128) -> &mut Match {
        field.set(&mut self.flow, value & mask);
        field.set_mask(&mut self.mask.0, mask);
        self
    }

    /// Builder form of [`Match::set`].
    pub fn with(mut self, field: FieldId, value: u128) -> Match {
        self.set(field, value);
        self
    }

    /// Value and mask of `field`.
    pub fn get(&self, field: FieldId) -> (u128, u128) {
        (field.get(&self.flow), field.get(&self.mask.0))
    }

    /// Whether it examines the presence of a `tun_metadata` field.
    pub fn has_metadata(&self, field: FieldId) -> bool {
        field.metadata_index().is_some_and(|i| self.mask.0.tun_metadata_present >> i & 1 != 0)
    }

    /// As [`Match::set_masked`], for any field. Tunnel metadata must be present to match.
    pub fn set_wide(&mut self, tlv: &TlvTable, field: FieldId, value: Wide, mask: Wide) {
        tlv.write(field, &mut self.flow, value & mask);
        tlv.write(field, &mut self.mask.0, mask);
        if field.metadata_index().is_none() {
            field.set_mask(&mut self.mask.0, mask.low());
        }
    }

    /// Requires the tunnel metadata that `packet` has.
    pub fn set_tun_metadata(&mut self, packet: &Flow) {
        self.flow.set_tun_options(packet.tun_options().as_ref());
        self.mask.0.tun_metadata_present = packet.tun_metadata_present;
        self.mask.0.tun_metadata = [if packet.tun_metadata_present == 0 { 0 } else { u32::MAX }; 64];
    }

    /// Value and mask of any field.
    pub fn get_wide(&self, tlv: &TlvTable, field: FieldId) -> (Wide, Wide) {
        (tlv.read(field, &self.flow), tlv.read(field, &self.mask.0))
    }

    /// Whether it matches a field of the Ethernet header.
    pub fn has_ethernet(&self) -> bool {
        let m = &self.mask.0;
        let tags = m.vlans.iter().any(|tag| tag.tci != 0 || tag.tpid != 0);
        m.dl_src != [0; 6] || m.dl_dst != [0; 6] || m.dl_type != 0 || tags
    }

    /// Restricts a match on fields of the Ethernet header to packets with one. One on an EtherType needs no further bit
    /// for that: other packets are looked up without an EtherType. Equal matches stay equal.
    pub fn imply_packet_type(&mut self) {
        let is_typed = self.mask.0.dl_type == u16::MAX && self.flow.dl_type != 0;
        if self.has_ethernet() && self.flow.packet_type == 0 {
            self.mask.0.packet_type = if is_typed { 0 } else { u32::MAX };
        }
    }

    /// Whether every packet that matches `self` also matches `wider`.
    pub fn is_within(&self, wider: &Match) -> bool {
        self.mask.contains(&wider.mask) && self.flow.equal_under(&wider.flow, &wider.mask)
    }

    /// Whether some packet could match both.
    pub fn overlaps(&self, other: &Match) -> bool {
        let pairs = self.flow.words().iter().zip(other.flow.words());
        let masks = self.mask.words().iter().zip(other.mask.words());
        pairs.zip(masks).all(|((a, b), (ma, mb))| (a ^ b) & ma & mb == 0)
    }
}
