//! What a first packet goes through, as values: the events that `sluiced` and the kernel tell and `sluice upcall-cost`
//! gathers, and their form on a socket and in a file ([`codec`]).
//!
//! Values only: no I/O, no clock.
#![forbid(unsafe_code)]

pub mod codec;
pub mod fuzz;
#[cfg(test)]
mod tests;

pub use codec::{CodecError, Decoder, HEADER_BYTES, MAGIC, VERSION, Wrong, encode_header};

/// A point on the way of an upcall, in the order of the way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Stage {
    /// A packet left the fast path: no megaflow matched, or an action asks for user space. In the kernel the tracepoint
    /// `openvswitch:ovs_dp_upcall`.
    Miss = 1,
    /// It waits in the queue of its port.
    Enqueued = 2,
    /// The queue of its port was full: it is lost.
    Refused = 3,
    /// A handler took it (`dpif_recv:recv_upcall`).
    Received = 4,
    /// Its translation is there.
    Translated = 5,
    /// The handler asks the datapath for a megaflow (`dpif_netlink_operate__:op_flow_put`).
    PutSent = 6,
    /// The handler asks the datapath to run actions on the packet (`dpif_netlink_operate__:op_flow_execute`).
    ExecuteSent = 7,
    /// The datapath has installed the megaflow, or refused it.
    PutDone = 8,
    /// The datapath runs the actions. In the kernel `ovs_packet_cmd_execute`.
    Executed = 9,
    /// What the actions sent has been handed to the devices.
    OnWire = 10,
}

impl Stage {
    /// All, in the order of the way.
    pub const ALL: [Stage; 10] = [
        Stage::Miss,
        Stage::Enqueued,
        Stage::Refused,
        Stage::Received,
        Stage::Translated,
        Stage::PutSent,
        Stage::ExecuteSent,
        Stage::PutDone,
        Stage::Executed,
        Stage::OnWire,
    ];

    /// The stage of this number.
    pub fn from_number(number: u8) -> Option<Stage> {
        Stage::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Its name in texts and files.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Miss => "miss",
            Stage::Enqueued => "enqueued",
            Stage::Refused => "refused",
            Stage::Received => "received",
            Stage::Translated => "translated",
            Stage::PutSent => "put-sent",
            Stage::ExecuteSent => "execute-sent",
            Stage::PutDone => "put-done",
            Stage::Executed => "executed",
            Stage::OnWire => "on-wire",
        }
    }
}

/// Why a packet left the fast path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Why {
    /// No megaflow matched.
    Miss = 1,
    /// An action sends each packet to the slow path or a controller.
    Action = 2,
    /// The source of the event does not say.
    Unknown = 3,
}

impl Why {
    /// The reason of this number.
    pub fn from_number(number: u8) -> Option<Why> {
        [Why::Miss, Why::Action, Why::Unknown].into_iter().find(|why| *why as u8 == number)
    }

    /// Its name in texts and files.
    pub const fn name(self) -> &'static str {
        match self {
            Why::Miss => "miss",
            Why::Action => "action",
            Why::Unknown => "unknown",
        }
    }
}

/// One event.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Event {
    /// Where on the way.
    pub stage: Stage,
    /// Why the packet is on it.
    pub why: Why,
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Which upcall: the lower half of the name (ufid) of the megaflow that is made from it. 0: not known; events are
    /// then joined by `packet`.
    pub upcall: u64,
    /// Kernel's id of the thread that told it.
    pub thread: u32,
    /// Processor that it ran on.
    pub cpu: u16,
    /// How many upcalls the handler took at this turn, for [`Stage::Received`]; else 0.
    pub batch: u16,
    /// Number in the datapath of the port that the packet came by; `u32::MAX`: not known.
    pub port: u32,
    /// Length of the packet in bytes.
    pub packet_bytes: u32,
    /// 0, or why the stage went wrong (an errno).
    pub error: u32,
    /// First bytes of the packet, as many as were asked for.
    pub packet: Vec<u8>,
    /// First bytes of its flow key (netlink attributes `OVS_KEY_ATTR_*`), as many as were asked for.
    pub key: Vec<u8>,
}

impl Event {
    /// Value of `port` where it is not known.
    pub const NO_PORT: u32 = u32::MAX;
}

/// What a recording and the daemon's event socket are made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// First of all: who tells.
    Start {
        /// Process id of the switch.
        pid: u32,
        /// Program and version, as `sluiced 0.1.0`.
        program: String,
        /// Where the events come from: `bpf` or `ring`.
        source: String,
        /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC` in nanoseconds.
        wall_offset_ns: u64,
    },
    /// A port, also one that came during the run.
    Port {
        /// Number in the datapath.
        number: u32,
        /// Interface name.
        name: String,
    },
    /// A port is gone.
    PortGone {
        /// Number in the datapath.
        number: u32,
    },
    /// A thread that tells events.
    Thread {
        /// Kernel's id.
        thread: u32,
        /// Its name.
        name: String,
    },
    /// An event.
    Event(Event),
    /// So many events of a stage were lost since the last such record, because a buffer was full.
    Lost {
        /// Of which stage.
        stage: Stage,
        /// How many.
        events: u64,
    },
    /// What the telling itself cost, up to now.
    Overhead {
        /// Events told.
        events: u64,
        /// Nanoseconds spent on it.
        spent_ns: u64,
    },
    /// The end, if it was reached in good order.
    End,
}
