//! Executes a list of datapath actions on one packet.
//!
//! - The last action that sends the packet gets the packet itself, earlier ones get copies. Only a later meter is
//!   still charged, as in stock switches.
//! - A truncation applies to the next output or userspace action. A truncated packet is no longer a large segment: a
//!   checksum left to a device is completed over the whole packet first, then the packet is truncated and its
//!   offload metadata cleared. The result is never shorter than an Ethernet header.
//! - The packet's key follows each rewrite. A rewrite that changes more of a frame than the key shows marks its
//!   headers dirty: they are parsed again when needed (by an upcall, a recirculation, a further rewrite). The full
//!   extraction is the oracle of the key.
//! - Recirculated packets wait until the burst's own packets are done, in FIFO order, bounded in depth and number.
//! - An action that does not fit the packet drops it ([`DropReason::BadAction`]); set actions on the ports of a
//!   later fragment, which has none, have no effect.

mod ct;
mod ct_alg;
mod emulate;
mod encap;
mod fragments;
mod group;
mod mpls;
mod packet_wise;
mod set;
mod sums;
mod translate;
mod tunnel;
mod usual;
mod vlan;

pub use emulate::{CannotEmulate, EmulatedPart, emulate};
pub(crate) use fragments::Fragment;
pub(crate) use group::{Fate, Work};
pub(crate) use packet_wise::PacketCtx;
#[cfg(test)]
pub(crate) use sums::{complete, sctp_sum};

use crate::bonds::CoreBonds;
use crate::burst::{HeaderCtx, Parsed, Recirculated};
use crate::hash::{KeyHasher, split_mix};
use crate::park::{Origin, new_ufid};
use crate::ports::{PmdIo, Ports};
use crate::shared::DpShared;
use dpif::actions::{HashAlgorithm, Psample, Rewrite};
use dpif::{DpAction, DpifError, DropReason, PmdId, Upcall, UpcallKind, UserCookie};
use flow::extract::{Layout, Metadata, extract_typed};
use flow::{DpPort, FlowKey, flow_hash, shape};
use packet::{Offload, Packet, headers as h};
use std::sync::Arc;

/// Maximum nesting of actions.
pub const ACTION_NESTING_MAX: usize = 8;
/// Maximum actions of one packet, nested ones included: a flood to all ports that a datapath may have, several times.
pub const EXECUTED_ACTIONS_MAX: usize = 262_144;
/// Maximum recirculations of a packet.
pub const RECIRC_DEPTH_MAX: u8 = 6;
/// Parses the headers of `frame` into `key`, whose metadata (packet type, ports, marks, tunnel, connection) stay.
pub fn re_extract(key: &mut FlowKey, frame: &[u8], vlan_limit: u8) -> Layout {
    #[cfg(test)]
    crate::tests::parses::count(1);
    let (b, had) = (key.base, key.base.shape);
    let md = Metadata {
        in_port: b.in_port,
        recirc_id: b.recirc_id,
        pkt_mark: b.pkt_mark,
        skb_priority: if had & shape::ARP != 0 { key.arp.skb_priority } else { 0 },
        dp_hash: b.dp_hash,
    };
    let packet_type = if had & shape::ARP != 0 { key.arp.packet_type } else { 0 };
    // Blocks without a bit are not touched.
    let kept = had & (shape::TUNNEL | shape::CT | shape::ALL_OPTIONS);
    key.base.shape &= !kept;
    let layout = extract_typed(frame, packet_type, &md, vlan_limit, key);
    key.base.ct_state = b.ct_state;
    key.base.ct_zone = b.ct_zone;
    key.base.ct_mark = b.ct_mark;
    key.base.shape |= kept;
    layout
}

/// Rewrites a packet and its key as a forwarding core does; `vlan_limit` as in [`DpShared`]. `false`: the
/// rewrite does not fit the packet, so a core would drop it.
pub fn rewrite(packet: &mut Packet, key: &mut FlowKey, rewrite: Rewrite<'_>, vlan_limit: u8) -> bool {
    let mut now = *key;
    let mut layout = re_extract(&mut now, packet.data(), vlan_limit);
    let mut dirty = false;
    let mut headers = HeaderCtx { key: &mut now, layout: &mut layout, dirty: &mut dirty, vlan_limit };
    let fits = apply(rewrite, packet, &mut headers);
    if fits.is_ok() {
        headers.refresh(packet);
        *key = now;
    }
    fits.is_ok()
}

/// Rewrites a packet and its header metadata.
fn apply(
    rewrite: Rewrite<'_>,
    packet: &mut Packet,
    headers: &mut HeaderCtx<'_>,
) -> Result<(), ActionMismatch> {
    match rewrite {
        Rewrite::Set(set) => set::apply(set, packet, headers),
        Rewrite::PushVlan(tag) => vlan::push(packet, headers, tag.tpid, tag.tci),
        Rewrite::PopVlan => vlan::pop(packet, headers),
        Rewrite::PushMpls(push) => mpls::push(packet, headers, push),
        Rewrite::PopMpls(pop) => mpls::pop(packet, headers, pop),
        Rewrite::PushEth(push) => encap::push_eth(packet, headers, push),
        Rewrite::PopEth => encap::pop_eth(packet, headers),
        Rewrite::PushNsh(push) => encap::push_nsh(packet, headers, push),
        Rewrite::PopNsh => encap::pop_nsh(packet, headers),
        Rewrite::AddMpls(add) => encap::add_mpls(packet, headers, add),
        Rewrite::Hash(hash) => {
            headers.refresh(packet);
            headers.key.base.dp_hash = match hash.algorithm {
                HashAlgorithm::L4 => flow_hash::five_tuple(headers.key, hash.basis),
                HashAlgorithm::SymL4 => flow_hash::symmetric_l4(headers.key, hash.basis),
            };
            Ok(())
        }
    }
}

/// The actions to run for such a list and packets of that type: without outputs of packets that no port takes.
///
/// # Errors
/// The list nests too deep, has more than `max` actions, or an unsupported one.
pub(crate) fn validate(
    actions: &Arc<[DpAction]>,
    max: usize,
    packet_type: u32,
) -> Result<Arc<[DpAction]>, DpifError> {
    fn count(actions: &[DpAction], depth: usize, max: usize, total: &mut usize) -> Result<(), DpifError> {
        if depth > ACTION_NESTING_MAX {
            return Err(DpifError::Unsupported(format!("actions nest deeper than {ACTION_NESTING_MAX}")));
        }
        *total += actions.len();
        if *total > max {
            return Err(DpifError::Unsupported(format!("more than {max} actions")));
        }
        for action in actions {
            if let Some(name) = action.userspace_lacks() {
                return Err(DpifError::Unsupported(format!(
                    "the userspace datapath lacks the action {name}"
                )));
            }
            for inner in action.lists() {
                count(inner, depth + 1, max, total)?;
            }
        }
        Ok(())
    }
    count(actions, 0, max, &mut 0)?;
    encap::for_ports(actions, packet_type == 0)
}

/// The state of the forwarding core used by actions. Fields are as in [`crate::PmdConfig`].
pub(crate) struct Executor {
    pub(crate) id: PmdId,
    /// The instruction set of the stages.
    pub(crate) level: simd::Level,
    /// Number of VLAN tags in keys.
    pub(crate) vlan_limit: u8,
    pub(crate) template: bool,
    /// Do not trust keys kept by rewrites: parse the headers of each rewritten packet again.
    pub(crate) reread: bool,
    pub(crate) hasher: KeyHasher,
    pub(crate) shared: Arc<DpShared>,
    pub(crate) bonds: CoreBonds,
    pub(crate) ports: Ports,
    pub(crate) recirculated: Recirculated,
    pub(crate) now_us: u64,
    pub(crate) random: u64,
    /// Number of packets so far: names the next one.
    pub(crate) numbers: u64,
    pub(crate) sample_seed: u64,
    /// Probability of the sample whose actions run, out of `u32::MAX`.
    pub(crate) probability: u32,
    pub(crate) ufids: u64,
    /// Fragments and segments before the packet at hand, which continue with its list.
    pub(crate) released: Vec<Fragment>,
}

impl Executor {
    /// Keeps a sampled packet with that input port, if a reader wants it.
    #[inline]
    fn note_sample(&mut self, sample: &Psample, in_port: DpPort, packet: &[u8]) {
        if let Some(samples) = &mut self.ports.samples {
            samples.note(sample, self.probability, in_port, packet);
        }
    }

    /// Begins a burst or a batch of operations: all its keys have the same number of VLAN tags.
    #[inline]
    pub(crate) fn begin(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.vlan_limit = self.shared.vlan_limit();
    }

    /// Reserves the numbers of this many packets; returns the first.
    #[inline]
    pub(crate) fn take_numbers(&mut self, packets: usize) -> u64 {
        let first = self.numbers;
        self.numbers = first.wrapping_add(packets as u64);
        first
    }

    /// Whether a sample of that probability takes this packet. Depends on the seed, the packet and the action's
    /// index.
    fn fires(&self, probability: u32, packet: u64, place: u64) -> bool {
        let mut state = packet.wrapping_mul(0xd605_1ca5_2ee1_d2a9) ^ place ^ self.sample_seed;
        probability != 0 && (split_mix(&mut state) >> 32) as u32 <= probability
    }

    /// Queues a packet for recirculation after the burst. `origin` counts this recirculation.
    pub(crate) fn recirculate(&mut self, packet: Packet, state: Parsed<'_>, origin: Origin, id: u32) {
        let pushed = match origin.depth <= RECIRC_DEPTH_MAX {
            true => self.recirculated.push(packet, state, origin, id),
            false => Err(packet),
        };
        match pushed {
            Ok(()) => self.ports.stats.recirculated += 1,
            Err(packet) => self.ports.drop_packet(packet, DropReason::RecirculationLimit, origin.rx_port),
        }
    }

    /// Sends a packet to the slow path by an action, with the current key of its frame.
    pub(crate) fn userspace(
        &mut self,
        packet: Packet,
        state: Parsed<'_>,
        rx_port: DpPort,
        cookie: UserCookie,
        io: &mut dyn PmdIo,
    ) {
        let mut key = *state.key;
        if state.dirty {
            re_extract(&mut key, packet.data(), self.vlan_limit);
        }
        let hash = self.hasher.key(&key);
        let upcall = Box::new(Upcall {
            kind: UpcallKind::Action(cookie),
            packet,
            key,
            ufid: new_ufid(&self.hasher, hash, &mut self.ufids),
            pmd: self.id,
            rx_port,
            ticket: None,
            received_us: self.now_us,
            tunnel_out: None,
        });
        match io.upcall(upcall) {
            Ok(()) => self.ports.ledger.upcalled += 1,
            Err(back) => self.ports.drop_packet(back.packet, DropReason::UpcallQueueFull, rx_port),
        }
    }
}

/// The identity of an action in its flow: entry `i` of the list with that base, 0 for the flow's own.
fn inner_place(list: u64, i: usize) -> u64 {
    list.wrapping_mul(EXECUTED_ACTIONS_MAX as u64 + 1).wrapping_add(i as u64 + 1)
}

/// An action does not fit the packet.
pub(crate) struct ActionMismatch;

/// Whether the packet was truncated.
fn truncate(packet: &mut Packet, bytes: Option<u32>) -> bool {
    let Some(bytes) = bytes else { return false };
    let keep = (bytes as usize).max(h::ETH_HEADER_BYTES);
    let cuts = keep < packet.len();
    if cuts {
        sums::complete(packet);
        packet.set_len(keep);
        packet.offload = Offload::NONE;
    }
    cuts
}
