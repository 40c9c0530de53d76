//! Headers with which a packet begins: pushed and popped Ethernet headers, network service headers (RFC 8300), MPLS
//! label stack entries before all headers. They change the packet type, which is metadata of the key; the headers are
//! parsed again afterwards.
//!
//! Large segments are cut before a push of a network service header, or of a label before Ethernet: devices and
//! [`packet`]'s segmentation expect IP behind Ethernet.

use super::{ActionMismatch, mpls, sums};
use crate::burst::HeaderCtx;
use dpif::Masked;
use dpif::actions::{AddMpls, PushEth, PushMpls, PushNsh, Rewrite};
use dpif::{DpAction, DpifError};
use flow::{Nsh, nsh_np, shape};
use packet::{Packet, headers as h};
use std::sync::Arc;

/// Packet type of a frame.
pub(super) const ETHERNET: u32 = 0;
/// Namespace of packet types that are EtherTypes.
pub(super) const ETHERTYPES: u32 = 1 << 16;
/// Packet type of a network service header.
const NSH: u32 = ETHERTYPES | h::ETH_TYPE_NSH as u32;

/// The packet type of a key.
#[inline(always)]
pub(super) fn packet_type(view: &HeaderCtx<'_>) -> u32 {
    // Without the block the type is Ethernet.
    if view.key.has(shape::ARP) { view.key.arp.packet_type } else { ETHERNET }
}

/// The packet has this type from now on.
pub(super) fn becomes(view: &mut HeaderCtx<'_>, packet_type: u32) {
    view.key.arp.packet_type = packet_type;
    view.key.base.shape |= shape::ARP;
    *view.dirty = true;
}

/// Pushes an Ethernet header onto a packet without one.
pub(super) fn push_eth(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    push: PushEth,
) -> Result<(), ActionMismatch> {
    let old = packet_type(view);
    if old & !0xffff != ETHERTYPES {
        return Err(ActionMismatch);
    }
    packet.insert(0, h::ETH_HEADER_BYTES);
    let header = &mut packet.data_mut()[..h::ETH_HEADER_BYTES];
    header[..6].copy_from_slice(&push.dst);
    header[6..12].copy_from_slice(&push.src);
    header[12..].copy_from_slice(&(old as u16).to_be_bytes());
    becomes(view, ETHERNET);
    Ok(())
}

/// Pops the Ethernet header of an untagged frame.
pub(super) fn pop_eth(packet: &mut Packet, view: &mut HeaderCtx<'_>) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    if packet_type(view) != ETHERNET || view.key.base.vlan_tci != 0 || packet.len() < h::ETH_HEADER_BYTES {
        return Err(ActionMismatch);
    }
    let dl_type = view.key.base.dl_type;
    let is_typed = dl_type != h::FLOW_DL_TYPE_NONE;
    let bytes = if is_typed { mpls::network(packet, view)? } else { h::ETH_HEADER_BYTES };
    packet.remove(0, bytes);
    becomes(view, ETHERTYPES | u32::from(dl_type));
    Ok(())
}

/// Whether a large segment of that packet type remains one behind these headers: labels behind Ethernet.
pub(super) fn stays_whole(rewrite: Rewrite<'_>, packet_type: u32) -> bool {
    matches!(rewrite, Rewrite::AddMpls(add) if add.is_l3 && packet_type == ETHERNET)
}

/// Completes the checksum, which no device completes behind other headers.
fn prepare(packet: &mut Packet) -> Result<(), ActionMismatch> {
    if packet.offload.is_gso() {
        return Err(ActionMismatch);
    }
    sums::complete(packet);
    Ok(())
}

/// Pushes a network service header before all headers.
pub(super) fn push_nsh(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    push: &PushNsh,
) -> Result<(), ActionMismatch> {
    prepare(packet)?;
    let header = push.to_bytes();
    packet.insert(0, header.len());
    packet.data_mut()[..header.len()].copy_from_slice(&header);
    becomes(view, NSH);
    Ok(())
}

/// Pops the network service header with which the packet begins.
pub(super) fn pop_nsh(packet: &mut Packet, view: &mut HeaderCtx<'_>) -> Result<(), ActionMismatch> {
    if packet_type(view) != NSH {
        return Err(ActionMismatch);
    }
    let (header, bytes) =
        Nsh::parse(packet.data()).zip(Nsh::len_bytes(packet.data())).ok_or(ActionMismatch)?;
    let next = match header.np {
        nsh_np::IPV4 => ETHERTYPES | u32::from(h::ETH_TYPE_IP),
        nsh_np::IPV6 => ETHERTYPES | u32::from(h::ETH_TYPE_IPV6),
        nsh_np::ETHERNET if packet.len() >= bytes + h::ETH_HEADER_BYTES => ETHERNET,
        nsh_np::NSH => NSH,
        _ => return Err(ActionMismatch),
    };
    packet.remove(0, bytes);
    becomes(view, next);
    Ok(())
}

/// Rewrites fields of the network service header.
pub(super) fn set_nsh(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    m: &Masked<Nsh>,
) -> Result<(), ActionMismatch> {
    view.refresh(packet);
    if view.key.base.dl_type != h::ETH_TYPE_NSH {
        return Err(ActionMismatch);
    }
    let at = mpls::network(packet, view)?;
    let bytes = packet.data_mut().get_mut(at..).ok_or(ActionMismatch)?;
    let (old, len) = Nsh::parse(bytes).zip(Nsh::len_bytes(bytes)).ok_or(ActionMismatch)?;
    let new = old.with(&m.value, &m.mask);
    bytes[..h::NSH_BASE_BYTES].copy_from_slice(&new.header(len));
    if old.mdtype == h::NSH_MD_TYPE1 {
        bytes[h::NSH_BASE_BYTES..h::NSH_MD1_BYTES].copy_from_slice(&new.contexts());
    }
    *view.dirty = true;
    Ok(())
}

/// Pushes an MPLS label stack entry before all headers.
pub(super) fn add_mpls(
    packet: &mut Packet,
    view: &mut HeaderCtx<'_>,
    add: AddMpls,
) -> Result<(), ActionMismatch> {
    let AddMpls { lse, ethertype, is_l3 } = add;
    if is_l3 && packet_type(view) == ETHERNET {
        return mpls::push(packet, view, PushMpls { lse, ethertype });
    }
    if !h::is_mpls(ethertype) {
        return Err(ActionMismatch);
    }
    prepare(packet)?;
    packet.insert(0, mpls::ENTRY_BYTES);
    packet.data_mut()[..mpls::ENTRY_BYTES].copy_from_slice(&lse.to_be_bytes());
    becomes(view, ETHERTYPES | u32::from(ethertype));
    Ok(())
}

/// The first header of a packet between two actions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Ethernet,
    Other,
    /// It follows a network service header: recirculation shows it.
    Unknown,
}

impl First {
    fn after(self, action: &DpAction) -> First {
        if matches!(action, DpAction::TnlPush(_)) {
            // Outer headers begin with Ethernet.
            return First::Ethernet;
        }
        match action.as_rewrite() {
            Some(Rewrite::PushEth(_)) => First::Ethernet,
            Some(Rewrite::PopEth | Rewrite::PushNsh(_)) => First::Other,
            Some(Rewrite::PopNsh) => First::Unknown,
            Some(Rewrite::AddMpls(add)) if !add.is_l3 => First::Other,
            Some(
                Rewrite::AddMpls(_)
                | Rewrite::Set(_)
                | Rewrite::PushVlan(_)
                | Rewrite::PopVlan
                | Rewrite::PushMpls(_)
                | Rewrite::PopMpls(_)
                | Rewrite::Hash(_),
            )
            | None => self,
        }
    }
}

/// The list without outputs of packets that have no Ethernet header there: no port takes these, as in the kernel's
/// datapath.
///
/// # Errors
/// A nested list has such an output, or one follows a popped network service header.
pub(super) fn for_ports(actions: &Arc<[DpAction]>, is_ethernet: bool) -> Result<Arc<[DpAction]>, DpifError> {
    let left_out = not_frames(actions, if is_ethernet { First::Ethernet } else { First::Other })?;
    if left_out.is_empty() {
        return Ok(actions.clone());
    }
    let kept = actions.iter().enumerate().filter(|(at, _)| !left_out.contains(at));
    Ok(kept.map(|(_, action)| action.clone()).collect())
}

/// Places of outputs of packets that have no Ethernet header there, in this list and not in nested ones.
fn not_frames(actions: &[DpAction], mut first: First) -> Result<Vec<usize>, DpifError> {
    let refused = || {
        let why = "a port takes no packets without an Ethernet header, and this list may output some in a nested \
                   list, or behind a popped network service header";
        Err(DpifError::Unsupported(why.into()))
    };
    let mut found = Vec::new();
    for (at, action) in actions.iter().enumerate() {
        if matches!(action, DpAction::Output(_)) {
            match first {
                First::Ethernet => {}
                First::Other => found.push(at),
                First::Unknown => return refused(),
            }
        }
        first = first.after(action);
        for list in action.lists() {
            if !not_frames(list, first)?.is_empty() {
                return refused();
            }
        }
    }
    Ok(found)
}
