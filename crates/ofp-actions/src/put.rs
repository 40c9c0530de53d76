//! Writing actions: each in the version's form.
//!
//! OpenFlow 1.2 and later express some actions only relative to a packet (the port fields of TCP, UDP or SCTP; a tag to push
//! first): the match determines these. Actions without a form in a version (in 1.0: instructions other than metadata
//! and goto) are omitted, as in OVS for controllers of another version.

use crate::list::Action;
use crate::rows::EXPERIMENTER;
use flow::fields::FieldId;
use flow::{Match, SubField};
use ofp_wire::{NX_VENDOR, Writer, nxm};

/// Output of a list, with properties of the packet known from its earlier actions and its match.
pub struct PutContext<'a> {
    /// The list's match.
    pub(crate) matching: &'a Match,
    pub(crate) nw_proto: u8,
    pub(crate) has_vlan: bool,
    /// The list has instructions, rather than actions.
    pub(crate) instructions: bool,
}

impl PutContext<'_> {
    pub(crate) fn new(matching: &Match, instructions: bool) -> PutContext<'_> {
        let flow = matching.flow();
        let has_vlan = flow.vlans[0].is_present();
        PutContext { matching, nw_proto: flow.nw_proto, has_vlan, instructions }
    }

    /// Runs `f` with the packet at this point of the list; later actions do not see its changes.
    pub(crate) fn on_copy(&mut self, f: impl FnOnce(&mut Self)) {
        let saved = (self.nw_proto, self.has_vlan);
        f(self);
        (self.nw_proto, self.has_vlan) = saved;
    }

    /// Writes a push of a tag, if the packet has none.
    pub(crate) fn push_tag_if_none(&mut self, w: &mut Writer) {
        if !self.has_vlan {
            standard(w, 17, |w| w.u16(packet::headers::ETH_TYPE_VLAN));
            self.has_vlan = true;
        }
    }
}

/// Writes actions; `m` is their match.
pub fn put_actions<'a>(w: &mut Writer, actions: impl Iterator<Item = &'a Action>, m: &Match) {
    let mut cx = PutContext::new(m, false);
    actions.for_each(|a| a.put(w, &mut cx));
}

/// Writes a standard action: type, length, `body`, padding to 8 bytes.
pub(crate) fn standard(w: &mut Writer, ty: u16, body: impl FnOnce(&mut Writer)) {
    let mark = w.mark();
    w.u16(ty);
    w.u16(0);
    body(w);
    w.pad8(mark);
    w.set_len(mark, 2);
}

/// Writes a Nicira action.
pub(crate) fn nicira(w: &mut Writer, subtype: u16, body: impl FnOnce(&mut Writer)) {
    experimenter(w, NX_VENDOR, subtype, body);
}

/// Writes an action of an experimenter.
pub(crate) fn experimenter(w: &mut Writer, vendor: u32, subtype: u16, body: impl FnOnce(&mut Writer)) {
    standard(w, EXPERIMENTER, |w| {
        w.u32(vendor);
        w.u16(subtype);
        body(w);
    });
}

/// Writes a Nicira action without arguments.
pub(crate) fn nicira_plain(w: &mut Writer, subtype: u16) {
    nicira(w, subtype, |w| w.zeros(6));
}

/// Writes a set-field of a whole field.
pub(crate) fn put_set(w: &mut Writer, field: FieldId, value: u128) {
    put_set_masked(w, field, value, nxm::valid_bits(field));
}

/// Writes a set-field; its mask is partial in OpenFlow 1.5 alone.
pub(crate) fn put_set_masked(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    standard(w, 25, |w| nxm::put_entry(w, field, value, mask));
}

/// Writes an `NXAST_REG_LOAD2`.
pub(crate) fn put_load2(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    nicira(w, 33, |w| nxm::put_entry(w, field, value, mask));
}

/// Writes `NXAST_REG_LOAD`s, one for each run of at most 64 bits of the mask, lowest first.
pub(crate) fn put_loads(w: &mut Writer, field: FieldId, value: u128, mask: u128) {
    let (field, value, mask) = if field == FieldId::DlVlan {
        (FieldId::VlanTci, value | 0x1000, mask | 0x1000)
    } else if field == FieldId::DlVlanPcp {
        (FieldId::VlanTci, value << 13 | 0x1000, mask << 13 | 0x1000)
    } else {
        (field, value, mask)
    };
    if !nxm::has_header(field) {
        return;
    }
    if nxm::has_long_nx_header(field) {
        return put_load2(w, field, value, mask);
    }
    for (at, len_bits) in runs_of(mask) {
        let ones = u128::from(u64::MAX >> (64 - len_bits));
        nicira(w, 7, |w| {
            w.u16(at << 6 | (wire_bits(field, len_bits) - 1));
            nxm::put_nx_header(w, field);
            w.u64((value >> at & ones) as u64);
        });
    }
}

/// Offset and length of the runs of ones, split at 64 bits, lowest first.
pub(crate) fn runs_of(mask: u128) -> impl Iterator<Item = (u16, u16)> {
    let mut at = 0u32;
    std::iter::from_fn(move || {
        if at >= 128 || mask >> at == 0 {
            return None;
        }
        at += (mask >> at).trailing_zeros();
        let (first, len) = (at, (mask >> at).trailing_ones().min(64));
        at += len;
        Some((first as u16, len as u16))
    })
}

/// A range of at most 64 bits as `offset << 6 | (bits - 1)`.
pub(crate) fn ofs_nbits(s: SubField) -> u16 {
    s.offset_bits << 6 | (wire_bits(s.field, s.len_bits.clamp(1, 64)) - 1)
}

/// Length of a range on the wire: the whole ARP opcode has 16 bits there.
pub(crate) fn wire_bits(field: FieldId, len_bits: u16) -> u16 {
    if field == FieldId::ArpOp && len_bits == 8 { 16 } else { len_bits }
}
