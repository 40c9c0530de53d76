//! Push, pop and rewriting of MPLS label stack entries (RFC 3032). The stack is behind all parsed VLAN tags. The
//! headers are parsed again afterwards.

use super::Misfit;
use crate::burst::HeaderCtx;
use dpif::Masked;
use dpif::actions::{PopMpls, PushMpls};
use flow::extract::Layout;
use packet::{Packet, headers as h};

/// Bytes of an entry.
const ENTRY_BYTES: usize = 4;

/// Offset of the network layer, which follows the EtherType. The layout lacks it if the network header is damaged.
fn network(packet: &Packet, view: &mut HeaderCtx<'_>) -> Result<usize, Misfit> {
    view.refresh(packet);
    if view.layout.l3 != Layout::NONE {
        return Ok(view.layout.l3.into());
    }
    let tags = [view.key.base.vlan_tci, view.key.arp.vlan1.tci].iter().filter(|tci| **tci != 0).count();
    let at = h::ETH_HEADER_BYTES - 2 + tags * h::VLAN_TAG_BYTES;
    match h::be16(packet.data(), at) {
        Some(ethertype) if ethertype == view.key.base.dl_type => Ok(at + 2),
        _ => Err(Misfit),
    }
}

/// Offset of the outermost entry.
fn stack(packet: &Packet, view: &mut HeaderCtx<'_>) -> Result<usize, Misfit> {
    let at = network(packet, view)?;
    if h::is_mpls(view.key.base.dl_type) && packet.len() >= at + ENTRY_BYTES { Ok(at) } else { Err(Misfit) }
}

/// Pushes an entry as the outermost one.
pub(super) fn push(packet: &mut Packet, view: &mut HeaderCtx<'_>, push: PushMpls) -> Result<(), Misfit> {
    let at = network(packet, view)?;
    if !h::is_mpls(push.ethertype) {
        return Err(Misfit);
    }
    packet.insert(at, ENTRY_BYTES);
    packet.data_mut()[at - 2..at].copy_from_slice(&push.ethertype.to_be_bytes());
    packet.data_mut()[at..at + ENTRY_BYTES].copy_from_slice(&push.lse.to_be_bytes());
    *view.dirty = true;
    Ok(())
}

/// Pops the outermost entry.
pub(super) fn pop(packet: &mut Packet, view: &mut HeaderCtx<'_>, pop: PopMpls) -> Result<(), Misfit> {
    let at = stack(packet, view)?;
    packet.remove(at, ENTRY_BYTES);
    packet.data_mut()[at - 2..at].copy_from_slice(&pop.ethertype.to_be_bytes());
    *view.dirty = true;
    Ok(())
}

/// Rewrites bits of the outermost entry.
pub(super) fn set(packet: &mut Packet, view: &mut HeaderCtx<'_>, m: &Masked<u32>) -> Result<(), Misfit> {
    let at = stack(packet, view)?;
    let entry = packet.data_mut()[at..].first_chunk_mut::<ENTRY_BYTES>().ok_or(Misfit)?;
    *entry = (u32::from_be_bytes(*entry) & !m.mask | m.value & m.mask).to_be_bytes();
    *view.dirty = true;
    Ok(())
}
