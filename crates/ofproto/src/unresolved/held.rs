//! Packets that wait for a neighbour's Ethernet address, as in the neighbour table of a kernel (RFC 4861 §7.2.2): the first
//! packets of flows, which otherwise lose them.
//!
//! Held is a packet whose translation dropped it only for lack of that address. It counts neither as forwarded nor as
//! dropped. The answer releases it for a new translation; after [`HELD_MS`] it is dropped and counted. Numbers and bytes
//! are bounded for each neighbour, each input port, and in all; beyond these, packets are dropped at once.

use crate::cache::XlateCache;
use crate::ids::BridgeId;
use dpif::{DpAction, Upcall};
use flow::DpPort;
use packet::Packet;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum time of waiting: three requests.
const HELD_MS: u64 = 3000;
/// Maximum packets that wait for one neighbour.
const OF_NEIGHBOUR_MAX: usize = 16;
/// Maximum packets from one input port.
const OF_PORT_MAX: usize = 64;
/// Maximum packets.
const ALL_MAX: usize = 1024;
/// Maximum bytes of all packets.
const BYTES_MAX: usize = 4 << 20;

/// A packet that waits.
pub(crate) struct HeldPacket {
    /// The miss, without a ticket.
    pub(crate) upcall: Upcall,
    /// Effects of its translation, to be counted if no answer comes.
    pub(crate) cache: XlateCache,
    /// Actions of its translation.
    pub(crate) actions: Arc<[DpAction]>,
    until_ms: u64,
}

impl HeldPacket {
    /// Copies the packet of an upcall.
    pub(crate) fn new(
        upcall: &Upcall,
        cache: XlateCache,
        actions: Arc<[DpAction]>,
        now_ms: u64,
    ) -> HeldPacket {
        let mut packet = Packet::from_slice(upcall.packet.data());
        packet.offload = upcall.packet.offload;
        let Upcall { kind, key, ufid, pmd, rx_port, received_us, .. } = *upcall;
        // Samples do not wait.
        let upcall =
            Upcall { kind, packet, key, ufid, pmd, rx_port, ticket: None, received_us, tunnel_out: None };
        HeldPacket { upcall, cache, actions, until_ms: now_ms + HELD_MS }
    }
}

/// All packets that wait, and those that no longer do.
#[derive(Default)]
pub(crate) struct HeldPackets {
    by_neighbour: HashMap<(BridgeId, IpAddr), Vec<HeldPacket>>,
    by_port: HashMap<DpPort, usize>,
    packets: usize,
    bytes: usize,
    /// Their neighbours answered.
    answered: Vec<HeldPacket>,
    /// Total number held.
    pub(crate) total: u64,
}

impl HeldPackets {
    /// Whether a packet of that length from that port may wait for a neighbour.
    pub(crate) fn has_room(&self, bridge: BridgeId, target: IpAddr, port: DpPort, bytes: usize) -> bool {
        let of_neighbour = self.by_neighbour.get(&(bridge, target)).map_or(0, Vec::len);
        let of_port = self.by_port.get(&port).copied().unwrap_or(0);
        of_neighbour < OF_NEIGHBOUR_MAX
            && of_port < OF_PORT_MAX
            && self.packets < ALL_MAX
            && self.bytes + bytes <= BYTES_MAX
    }

    /// Adds a packet, for which there is room.
    pub(crate) fn add(&mut self, bridge: BridgeId, target: IpAddr, held: HeldPacket) {
        *self.by_port.entry(held.upcall.rx_port).or_default() += 1;
        self.packets += 1;
        self.bytes += held.upcall.packet.len();
        self.total += 1;
        self.by_neighbour.entry((bridge, target)).or_default().push(held);
    }

    /// A neighbour answered, or its entry changed.
    pub(crate) fn answer(&mut self, bridge: BridgeId, target: IpAddr) {
        self.answered.extend(self.by_neighbour.remove(&(bridge, target)).unwrap_or_default());
    }

    /// The packets whose neighbours answered, and those that waited too long; each in order of arrival.
    pub(crate) fn take(&mut self, now_ms: u64) -> (Vec<HeldPacket>, Vec<HeldPacket>) {
        let answered = std::mem::take(&mut self.answered);
        let mut late = Vec::new();
        self.by_neighbour.retain(|_, waiting| {
            late.extend(waiting.extract_if(.., |held| held.until_ms <= now_ms));
            !waiting.is_empty()
        });
        answered.iter().chain(&late).for_each(|held| {
            self.packets -= 1;
            self.bytes -= held.upcall.packet.len();
            if let Some(n) = self.by_port.get_mut(&held.upcall.rx_port) {
                *n -= 1;
            }
        });
        if self.packets == 0 {
            self.by_port.clear();
        }
        (answered, late)
    }
}
