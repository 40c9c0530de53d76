//! Runs a list of datapath actions on one packet.
//!
//! - The last action that sends the packet somewhere gets the packet itself, those before it get copies. Only a meter behind
//!   it is still charged, as stock switches do.
//! - A truncation applies to the next output or userspace action. A cut packet is no large segment any more: a checksum
//!   that a device was to fill in is completed over the whole packet first, then the packet is cut and its offload
//!   metadata cleared. Less than an Ethernet header is never left.
//! - The header fields of the packet's key are not kept up to date action by action: they are read from the frame again where
//!   something needs them (an upcall, a recirculation, a rewrite behind a VLAN action). Metadata, which no frame
//!   carries, is changed in the key.
//! - Recirculated packets are put off until the burst's own packets are done, first in first out, bounded in depth and number.
//! - An action that does not fit the packet drops it ([`DropReason::BadAction`]); set actions on the ports of a later
//!   fragment, which has none, do nothing.

mod help;
mod set;
mod sums;

pub use help::{NoHelp, Part, with_help};
#[cfg(test)]
pub(crate) use sums::{complete, sctp_sum};

use crate::hash::KeyHasher;
use crate::meter::DpShared;
use crate::park::{Origin, new_ufid};
use crate::ports::{PmdIo, Ports};
use dpif::{DpAction, DpifError, DropReason, PmdId, SetAction, Upcall, UpcallKind, UserCookie, XlateDrop};
use flow::extract::{Layout, Metadata, extract};
use flow::{FlowKey, VlanTag, shape};
use packet::{Offload, Packet, headers as h};
use std::collections::VecDeque;
use std::sync::Arc;

/// Actions nest at most so deep.
pub const ACTION_NESTING_MAX: usize = 8;
/// Actions of one flow or packet, nested ones included.
pub const ACTIONS_MAX: usize = 8192;
/// A packet is recirculated at most so often.
pub const RECIRC_DEPTH_MAX: u8 = 6;
/// Recirculated packets that wait at once.
const DEFERRED_MAX: usize = 1024;

/// A packet on its way round.
pub(crate) struct Deferred {
    pub(crate) packet: Packet,
    /// Its metadata; the rest is read from the frame again.
    pub(crate) key: Box<FlowKey>,
    pub(crate) origin: Origin,
}

/// What is known of the packet beside its bytes while actions run.
pub(crate) struct PacketCtx<'a> {
    pub(crate) key: &'a mut FlowKey,
    pub(crate) layout: Layout,
    pub(crate) origin: Origin,
    /// Headers moved since `layout` and the header fields of `key` were read.
    layout_stale: bool,
    truncate: Option<u32>,
    /// A copy of the packet went on.
    pub(crate) used: bool,
}

impl<'a> PacketCtx<'a> {
    /// A view of a packet just extracted.
    pub(crate) fn new(key: &'a mut FlowKey, layout: Layout, origin: Origin) -> PacketCtx<'a> {
        PacketCtx { key, layout, origin, layout_stale: false, truncate: None, used: false }
    }

    fn refresh(&mut self, packet: &Packet, vlan_limit: u8) {
        self.layout = re_extract(self.key, packet.data(), vlan_limit);
        self.layout_stale = false;
    }
}

/// Reads the headers of `frame` into `key`, whose metadata (ports, marks, tunnel, connection) stay.
pub fn re_extract(key: &mut FlowKey, frame: &[u8], vlan_limit: u8) -> Layout {
    let (b, had) = (key.base, key.base.shape);
    let md = Metadata {
        in_port: b.in_port,
        recirc_id: b.recirc_id,
        pkt_mark: b.pkt_mark,
        skb_priority: if had & shape::ARP != 0 { key.arp.skb_priority } else { 0 },
        dp_hash: b.dp_hash,
    };
    let (tunnel, ct) = (key.tunnel, key.ct);
    let layout = extract(frame, &md, vlan_limit, key);
    key.base.ct_state = b.ct_state;
    key.base.ct_zone = b.ct_zone;
    key.base.ct_mark = b.ct_mark;
    key.base.shape |= had & (shape::TUNNEL | shape::CT);
    if had & shape::TUNNEL != 0 {
        key.tunnel = tunnel;
    }
    if had & shape::CT != 0 {
        key.ct = ct;
    }
    layout
}

/// Whether the action is seen outside of the packet: it sends it, or a copy, somewhere, or charges a meter.
fn has_effect(action: &DpAction) -> bool {
    match action {
        DpAction::Output(_) | DpAction::Userspace(_) | DpAction::Recirc(_) | DpAction::Meter(_) => true,
        _ => action.lists().flatten().any(has_effect),
    }
}

/// Carries out one rewrite on a packet, as a forwarding core does, and on its key; `vlan_limit` as in
/// [`crate::PmdConfig`]. `false`: it does not fit the packet, which a core would drop, or is no rewrite.
pub fn rewrite(packet: &mut Packet, key: &mut FlowKey, action: &DpAction, vlan_limit: u8) -> bool {
    let mut now = *key;
    let layout = re_extract(&mut now, packet.data(), vlan_limit);
    let mut view = PacketCtx::new(&mut now, layout, Origin { rx_port: key.in_port(), depth: 0 });
    let fits = match action {
        DpAction::Set(set) => set::apply(set, packet, &mut view, vlan_limit),
        DpAction::PushVlan { tpid, tci } => push_vlan(packet, &mut view, *tpid, *tci),
        DpAction::PopVlan => pop_vlan(packet, &mut view),
        _ => Err(Misfit),
    };
    if fits.is_ok() {
        re_extract(&mut now, packet.data(), vlan_limit);
        *key = now;
    }
    fits.is_ok()
}

/// Refuses lists that nest too deep, are too long, or have an action that this datapath lacks.
pub(crate) fn validate(actions: &[DpAction]) -> Result<(), DpifError> {
    fn count(actions: &[DpAction], depth: usize, total: &mut usize) -> Result<(), DpifError> {
        if depth > ACTION_NESTING_MAX {
            return Err(DpifError::Unsupported(format!("actions nest deeper than {ACTION_NESTING_MAX}")));
        }
        *total += actions.len();
        if *total > ACTIONS_MAX {
            return Err(DpifError::Unsupported(format!("more than {ACTIONS_MAX} actions")));
        }
        for action in actions {
            let lacking = match action {
                DpAction::Set(SetAction::Tunnel(_)) => Some("set(tunnel)"),
                _ => action.others_only(),
            };
            if let Some(name) = lacking {
                return Err(DpifError::Unsupported(format!(
                    "the userspace datapath lacks the action {name}"
                )));
            }
            for inner in action.lists() {
                count(inner, depth + 1, total)?;
            }
        }
        Ok(())
    }
    count(actions, 0, &mut 0)
}

/// What actions need of the forwarding core. Fields are as in [`crate::PmdConfig`].
pub(crate) struct Executor {
    pub(crate) id: PmdId,
    pub(crate) vlan_limit: u8,
    pub(crate) hasher: KeyHasher,
    pub(crate) shared: Arc<DpShared>,
    pub(crate) ports: Ports,
    pub(crate) deferred: VecDeque<Deferred>,
    pub(crate) now_us: u64,
    pub(crate) random: u64,
    pub(crate) ufids: u64,
}

/// Whether the list goes on with the packet after an action.
enum Step {
    Next(Packet),
    Done,
}

impl Executor {
    /// Runs `actions` on `packet`, which ends here: sent, handed up, put off, dropped or consumed.
    pub(crate) fn run(
        &mut self,
        mut packet: Packet,
        view: &mut PacketCtx<'_>,
        actions: &[DpAction],
        io: &mut dyn PmdIo,
    ) {
        let last = actions.iter().rposition(has_effect);
        for (i, action) in actions.iter().enumerate() {
            match self.step(packet, view, action, Some(i) == last, io) {
                Step::Next(p) => packet = p,
                Step::Done => return,
            }
        }
        self.end(packet, view);
    }

    fn end(&mut self, packet: Packet, view: &PacketCtx<'_>) {
        if view.used {
            self.ports.consume(packet);
        } else {
            self.ports.drop_wanted(packet, XlateDrop::Ok, view.origin.rx_port);
        }
    }

    fn step(
        &mut self,
        mut packet: Packet,
        view: &mut PacketCtx<'_>,
        action: &DpAction,
        is_last: bool,
        io: &mut dyn PmdIo,
    ) -> Step {
        let fits = match action {
            DpAction::Output(_) | DpAction::Userspace(_) | DpAction::Recirc(_) => {
                return self.deliver(packet, view, action, is_last, io);
            }
            DpAction::Sample { probability, actions } => {
                if !self.fires(*probability) {
                    return Step::Next(packet);
                }
                return self.nested(packet, view, actions, is_last, io);
            }
            DpAction::Clone(actions) => return self.nested(packet, view, actions, is_last, io),
            DpAction::Set(set) => set::apply(set, &mut packet, view, self.vlan_limit),
            DpAction::PushVlan { tpid, tci } => push_vlan(&mut packet, view, *tpid, *tci),
            DpAction::PopVlan => pop_vlan(&mut packet, view),
            DpAction::Hash { .. }
            | DpAction::PushMpls { .. }
            | DpAction::PopMpls { .. }
            | DpAction::Ct(_)
            | DpAction::CtClear
            | DpAction::PushEth { .. }
            | DpAction::PopEth
            | DpAction::CheckPktLen { .. }
            | DpAction::DecTtl(_)
            | DpAction::Foreign { .. } => Err(Misfit),
            DpAction::Trunc(bytes) => {
                view.truncate = Some(*bytes);
                Ok(())
            }
            DpAction::Meter(id) => {
                if !self.shared.admit(*id, packet.len() as u64, self.now_us) {
                    self.ports.drop_packet(packet, DropReason::Meter, view.origin.rx_port);
                    return Step::Done;
                }
                Ok(())
            }
            DpAction::Drop(reason) => {
                self.ports.drop_wanted(packet, *reason, view.origin.rx_port);
                return Step::Done;
            }
        };
        if fits.is_err() {
            self.ports.drop_packet(packet, DropReason::BadAction, view.origin.rx_port);
            return Step::Done;
        }
        Step::Next(packet)
    }

    /// Gives the packet, or a copy when later actions need it, to where `action` says.
    fn deliver(
        &mut self,
        packet: Packet,
        view: &mut PacketCtx<'_>,
        action: &DpAction,
        is_last: bool,
        io: &mut dyn PmdIo,
    ) -> Step {
        let (mut out, rest) = if is_last {
            (packet, Step::Done)
        } else {
            view.used = true;
            (self.ports.copy(&packet), Step::Next(packet))
        };
        match action {
            DpAction::Output(port) => {
                truncate(&mut out, view.truncate.take());
                self.ports.output(*port, out, view.origin.rx_port, io);
            }
            DpAction::Userspace(cookie) => {
                truncate(&mut out, view.truncate.take());
                self.userspace(out, view, *cookie, io);
            }
            DpAction::Recirc(id) => self.recirculate(out, view, id.0),
            _ => unreachable!("only actions that deliver by themselves come here"),
        }
        rest
    }

    fn nested(
        &mut self,
        packet: Packet,
        view: &mut PacketCtx<'_>,
        actions: &[DpAction],
        is_last: bool,
        io: &mut dyn PmdIo,
    ) -> Step {
        if is_last {
            self.run(packet, view, actions, io);
            return Step::Done;
        }
        if !actions.iter().any(has_effect) {
            return Step::Next(packet);
        }
        let copy = self.ports.copy(&packet);
        view.used = true;
        let mut key = *view.key;
        let mut inner = PacketCtx { key: &mut key, ..*view };
        self.run(copy, &mut inner, actions, io);
        Step::Next(packet)
    }

    /// Whether a sample of that probability is taken this time.
    fn fires(&mut self, probability: u32) -> bool {
        probability != 0 && (crate::hash::split_mix(&mut self.random) >> 32) as u32 <= probability
    }

    fn recirculate(&mut self, packet: Packet, view: &PacketCtx<'_>, id: u32) {
        let depth = view.origin.depth + 1;
        if depth > RECIRC_DEPTH_MAX || self.deferred.len() >= DEFERRED_MAX {
            return self.ports.drop_packet(packet, DropReason::RecirculationLimit, view.origin.rx_port);
        }
        self.ports.stats.recirculated += 1;
        let mut key = Box::new(*view.key);
        key.base.recirc_id = id;
        self.deferred.push_back(Deferred { packet, key, origin: Origin { depth, ..view.origin } });
    }

    fn userspace(
        &mut self,
        packet: Packet,
        view: &mut PacketCtx<'_>,
        cookie: UserCookie,
        io: &mut dyn PmdIo,
    ) {
        // Read from a copy that may be cut: so that the key tells no header that the packet lacks.
        let mut key = *view.key;
        re_extract(&mut key, packet.data(), self.vlan_limit);
        let hash = self.hasher.key(&key);
        let upcall = Box::new(Upcall {
            kind: UpcallKind::Action(cookie),
            packet,
            key,
            ufid: new_ufid(&self.hasher, hash, &mut self.ufids),
            pmd: self.id,
            rx_port: view.origin.rx_port,
            ticket: None,
            received_us: self.now_us,
        });
        match io.upcall(upcall) {
            Ok(()) => self.ports.ledger.upcalled += 1,
            Err(back) => {
                self.ports.drop_packet(back.packet, DropReason::UpcallQueueFull, view.origin.rx_port);
            }
        }
    }
}

/// An action does not fit the packet.
pub(crate) struct Misfit;

fn truncate(packet: &mut Packet, bytes: Option<u32>) {
    let Some(bytes) = bytes else { return };
    let keep = (bytes as usize).max(h::ETH_HEADER_BYTES);
    if keep < packet.len() {
        sums::complete(packet);
        packet.set_len(keep);
        packet.offload = Offload::NONE;
    }
}

fn push_vlan(packet: &mut Packet, view: &mut PacketCtx<'_>, tpid: u16, tci: u16) -> Result<(), Misfit> {
    if packet.len() < h::ETH_HEADER_BYTES {
        return Err(Misfit);
    }
    packet.insert(12, h::VLAN_TAG_BYTES);
    let tag = &mut packet.data_mut()[12..16];
    tag[..2].copy_from_slice(&tpid.to_be_bytes());
    tag[2..].copy_from_slice(&(tci & !VlanTag::PRESENT).to_be_bytes());
    view.layout_stale = true;
    Ok(())
}

fn pop_vlan(packet: &mut Packet, view: &mut PacketCtx<'_>) -> Result<(), Misfit> {
    let tpid = h::be16(packet.data(), 12);
    let tagged = matches!(tpid, Some(h::ETH_TYPE_VLAN | h::ETH_TYPE_VLAN_8021AD));
    if !tagged || packet.len() < h::ETH_HEADER_BYTES + h::VLAN_TAG_BYTES {
        return Err(Misfit);
    }
    packet.remove(12, h::VLAN_TAG_BYTES);
    view.layout_stale = true;
    Ok(())
}
