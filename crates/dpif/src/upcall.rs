//! Upcalls: packets that the datapath sends to the slow path.

use crate::ops::PmdId;
use flow::{DpPort, FlowKey, RecircId, Ufid};
use packet::Packet;

/// Links an upcall to the packets parked behind it. The slow path returns it with the `Execute` that answers the
/// upcall.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u64);

/// A packet for the controllers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControllerCookie {
    /// The frozen state with table, metadata and registers at that point.
    pub recirc_id: RecircId,
    /// Cookie of the rule that sent it.
    pub rule_cookie: u64,
    /// `OFPR_*`.
    pub reason: u8,
    /// Controller id.
    pub controller_id: u16,
    /// Maximum bytes.
    pub max_len_bytes: u16,
    /// The translation pauses here; a controller may resume it.
    pub continuation: bool,
}

/// Data of a userspace action for the slow path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UserCookie {
    /// Translate this packet separately.
    SlowPath {
        /// The reasons, bits of [`SlowReason`](crate::SlowReason).
        reasons: u16,
    },
    /// Send it to the controllers.
    Controller(ControllerCookie),
}

/// Reason of an upcall.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UpcallKind {
    /// No megaflow matched.
    Miss,
    /// A megaflow's userspace action.
    Action(UserCookie),
}

/// A packet for the slow path.
#[derive(Debug)]
pub struct Upcall {
    /// The reason.
    pub kind: UpcallKind,
    /// The packet, at that point of its actions.
    pub packet: Packet,
    /// Its key at that point.
    pub key: FlowKey,
    /// Name for a megaflow made from it.
    pub ufid: Ufid,
    /// Its sender, which needs the answer.
    pub pmd: PmdId,
    /// Physical input port, which determines its queue.
    pub rx_port: DpPort,
    /// Ticket of packets parked behind it.
    pub ticket: Option<Ticket>,
    /// Time of reception, in the datapath's microseconds.
    pub received_us: u64,
}

impl Upcall {
    /// Whether its packet has the form of a control packet of a link protocol ([`l2proto::is_control_packet`]), and it is
    /// not for controllers.
    pub fn is_of_session(&self) -> bool {
        let for_controllers = matches!(self.kind, UpcallKind::Action(UserCookie::Controller(_)));
        !for_controllers && l2proto::is_control_packet(&self.key)
    }

    /// Its id in all events: the lower half of the name of its future megaflow.
    pub fn id(&self) -> u64 {
        self.ufid.0 as u64
    }
}

/// Upcalls in transit.
#[allow(
    clippy::vec_box,
    reason = "they come and go one by one, by a pointer; the values are half a kilobyte each"
)]
pub type Upcalls = Vec<Box<Upcall>>;

/// Accepts upcalls without blocking.
pub trait UpcallSink {
    /// Queues the upcall, or returns it if the queue of its port is full.
    fn upcall(&mut self, upcall: Box<Upcall>) -> Result<(), Box<Upcall>>;

    /// Whether a miss of that key from that port would be queued now, to avoid useless ones. The result may be outdated
    /// soon.
    fn has_room(&self, port: DpPort, key: &FlowKey) -> bool {
        let _every = (port, key);
        true
    }
}
