//! Upcalls: packets that the datapath hands to the slow path.

use crate::ops::PmdId;
use flow::{DpPort, FlowKey, RecircId, Ufid};
use packet::Packet;

/// Ties an upcall to the packets that the datapath parked behind it. The slow path returns it with the `Execute`
/// that answers the upcall.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// Why a flow is handled by the slow path packet by packet, as bits.
pub mod slow_reason {
    /// The packet goes to a controller.
    pub const CONTROLLER: u16 = 1;
    /// The test action `debug_slow`.
    pub const ACTION: u16 = 2;
    /// A protocol that the switch itself speaks.
    pub const PROTOCOL: u16 = 4;
    /// The datapath's masks cannot tell apart what the translation looked at.
    pub const MATCH: u16 = 8;
}

/// A packet for the controllers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControllerCookie {
    /// The frozen state that tells table, metadata and registers at that point.
    pub recirc_id: RecircId,
    /// Cookie of the rule that sent it.
    pub rule_cookie: u64,
    /// `OFPR_*`.
    pub reason: u8,
    /// Connections with this id.
    pub controller_id: u16,
    /// At most this many bytes.
    pub max_len_bytes: u16,
}

/// What a userspace action tells the slow path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UserCookie {
    /// Translate this packet by itself; bits of [`slow_reason`].
    SlowPath {
        /// Why.
        reasons: u16,
    },
    /// Send it to the controllers.
    Controller(ControllerCookie),
}

/// Why a packet is handed up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UpcallKind {
    /// No megaflow matched.
    Miss,
    /// A megaflow's userspace action.
    Action(UserCookie),
}

/// A packet on its way to the slow path.
#[derive(Debug)]
pub struct Upcall {
    /// Why.
    pub kind: UpcallKind,
    /// The packet, as it was at that point of its actions.
    pub packet: Packet,
    /// Its key at that point.
    pub key: FlowKey,
    /// Name for a megaflow made from it.
    pub ufid: Ufid,
    /// Who sent it and wants the answer.
    pub pmd: PmdId,
    /// Physical port that it was received on: whose queue it waits in.
    pub rx_port: DpPort,
    /// Packets are parked behind it.
    pub ticket: Option<Ticket>,
    /// When it was received, in the datapath's microseconds.
    pub received_us: u64,
}

impl Upcall {
    /// Its id, told with every event on its way: the lower half of the name that its megaflow is to have.
    pub fn id(&self) -> u64 {
        self.ufid.0 as u64
    }
}

/// Upcalls on their way from hand to hand.
#[allow(
    clippy::vec_box,
    reason = "they come and go one by one, by a pointer; the values are half a kilobyte each"
)]
pub type Upcalls = Vec<Box<Upcall>>;

/// Takes upcalls without ever waiting.
pub trait UpcallSink {
    /// Queues the upcall, or gives it back when the queue of its port is full.
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>>;

    /// Whether a miss from that port would be queued now, so that none is made in vain. An answer may be over soon.
    fn has_room(&self, port: DpPort) -> bool {
        let _every = port;
        true
    }
}
