//! Push, pop and rewriting of MPLS label stack entries (RFC 3032). The stack is behind all parsed VLAN tags. The
//! headers are parsed again afterwards. A packet without an Ethernet header has the EtherType in its packet type.

use super::{ActionMismatch, encap};
use crate::burst::HeaderCtx;
use dpif::Masked;
use dpif::actions::{PopMpls, PushMpls};
use flow::extract::Layout;
use packet::{Packet, headers as h};

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 4;

/// Offset of the network layer, which follows the EtherType. The layout lacks it if the network header is damaged.
pub(super) fn network(packet: &Packet, view: &mut HeaderCtx<'_>) -> Result<usize, ActionMismatch> {
    view.refresh(packet);
    if encap::packet_type(view) != 0 {
        return Ok(0);
    }
    if view.layout.l3 != Layout::NONE {
        return Ok(view.layout.l3.into());
    }
    let tags = [view.key.base.vlan_tci, view.key.arp.vlan1.tci].iter().filter(|tci| **tci != 0).count();
    let at = h::ETH_HEADER_BYTES - 2 + tags * h::VLAN_TAG_BYTES;
    match h::be16(packet.data(), at) {
        Some(ethertype) if ethertype == view.key.base.dl_type => Ok(at + 2),
        _ => Err(ActionMismatch),
    }
}

/// Offset of the outermost entry.
fn stack(packet: &Packet, view: &mut HeaderCtx<'_>) -> Result<usize, ActionMismatch> {
    let at = network(packet, view)?;
    if h::is_mpls(view.key.base.dl_type) && packet.len() >= at + ENTRY_BYTES {
        Ok(at)
    } else {
        Err(ActionMismatch)
    }
}

/// Sets the EtherType of the header at `at`. A packet without an Ethernet header becomes a frame by that of one.
fn set_ethertype(packet: &mut Packet, view: &mut HeaderCtx<'_>, at: usize, ethertype: u16) {
    if let Some(field) = at.checked_sub(2) {
        packet.data_mut()[field..at].copy_from_slice(&ethertype.to_be_bytes());
    } else if ethertype == h::ETH_TYPE_TEB {
        encap::becomes(view, 0);
    } else {
        encap::becomes(view, 1 << 16 | u32::from(ethertype));
    }
}

/// Pushes an entry as the outermost one.
pub(super) fn push(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    push: PushMpls,
) -> Result<(), ActionMismatch> {
    let at = network(packet, view)?;
    if !h::is_mpls(push.ethertype) {
        return Err(ActionMismatch);
    }
    packet.insert(at, ENTRY_BYTES);
    set_ethertype(packet, view, at, push.ethertype);
    packet.data_mut()[at..at + ENTRY_BYTES].copy_from_slice(&push.lse.to_be_bytes());
    *view.dirty = true;
    Ok(())
}

/// Pops the outermost entry.
pub(super) fn pop(packet: &mut Packet, view: &mut HeaderCtx<'_>, pop: PopMpls) -> Result<(), ActionMismatch> {
    let at = stack(packet, view)?;
    packet.remove(at, ENTRY_BYTES);
    set_ethertype(packet, view, at, pop.ethertype);
    *view.dirty = true;
    Ok(())
}

/// Rewrites bits of the outermost entry.
pub(super) fn set(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    m: &Masked<u32>,
) -> Result<(), ActionMismatch> {
    let at = stack(packet, view)?;
    let entry = packet.data_mut()[at..].first_chunk_mut::<ENTRY_BYTES>().ok_or(ActionMismatch)?;
    *entry = (u32::from_be_bytes(*entry) & !m.mask | m.value & m.mask).to_be_bytes();
    *view.dirty = true;
    Ok(())
}
