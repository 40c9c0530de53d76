//! Push and pop of VLAN tags. A common tag, pushed to an untagged frame, updates key and layout at once; other
//! frames are parsed again.

use super::{ActionMismatch, encap};
use crate::burst::HeaderCtx;
use flow::VlanTag;
use flow::extract::Layout;
use packet::{Packet, headers as h};

/// Limit of moving layouts: beyond it the parser's own limits would apply.
const MOVED_MAX: u16 = 1 << 15;

fn is_vlan(eth_type: u16) -> bool {
    matches!(eth_type, h::ETH_TYPE_VLAN | h::ETH_TYPE_VLAN_8021AD)
}

/// Whether key and layout are those of the frame, and the frame has no further tags that would then be parsed.
fn is_simple(view: &HeaderCtx<'_>) -> bool {
    let near = |at: u16| at == Layout::NONE || at < MOVED_MAX;
    !*view.dirty
        && view.vlan_limit != 0
        && !is_vlan(view.key.base.dl_type)
        && view.key.arp.vlan1.tci == 0
        && near(view.layout.l3)
        && near(view.layout.l4)
}

fn moved(at: u16, bytes: i16) -> u16 {
    if at == Layout::NONE { at } else { at.wrapping_add_signed(bytes) }
}

fn set_tag(view: &mut HeaderCtx<'_>, tag: VlanTag, moved_bytes: i16) {
    view.key.base.vlan_tpid = tag.tpid;
    view.key.base.vlan_tci = tag.tci;
    view.layout.l3 = moved(view.layout.l3, moved_bytes);
    view.layout.l4 = moved(view.layout.l4, moved_bytes);
}

/// Pushes a tag as the outermost one.
pub(super) fn push(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    tpid: u16,
    tci: u16,
) -> Result<(), ActionMismatch> {
    if packet.len() < h::ETH_HEADER_BYTES || encap::packet_type(view) != 0 {
        return Err(ActionMismatch);
    }
    packet.insert(12, h::VLAN_TAG_BYTES);
    let tag = &mut packet.data_mut()[12..16];
    tag[..2].copy_from_slice(&tpid.to_be_bytes());
    tag[2..].copy_from_slice(&(tci & !VlanTag::PRESENT).to_be_bytes());
    if is_simple(view) && view.key.base.vlan_tci == 0 && is_vlan(tpid) {
        set_tag(view, VlanTag { tpid, tci: tci | VlanTag::PRESENT }, h::VLAN_TAG_BYTES as i16);
    } else {
        *view.dirty = true;
    }
    Ok(())
}

/// Pops the outermost tag.
pub(super) fn pop(packet: &mut Packet, view: &mut HeaderCtx<'_>) -> Result<(), ActionMismatch> {
    let tagged = h::be16(packet.data(), 12).is_some_and(is_vlan);
    let is_short = packet.len() < h::ETH_HEADER_BYTES + h::VLAN_TAG_BYTES;
    if !tagged || is_short || encap::packet_type(view) != 0 {
        return Err(ActionMismatch);
    }
    packet.remove(12, h::VLAN_TAG_BYTES);
    if is_simple(view) && view.key.base.vlan_tci != 0 {
        set_tag(view, VlanTag { tpid: 0, tci: 0 }, -(h::VLAN_TAG_BYTES as i16));
    } else {
        *view.dirty = true;
    }
    Ok(())
}
