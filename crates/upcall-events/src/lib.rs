//! Events of first packets: reported by `sluiced` and the kernel, collected by `sluice upcall-cost`, and
//! their encoding on a socket and in a file ([`codec`]).
//!
//! Values only: no I/O, no clock.
#![forbid(unsafe_code)]

pub mod codec;
pub mod fuzz;
#[cfg(test)]
mod tests;

pub use codec::{CodecError, Decoder, HEADER_BYTES, MAGIC, VERSION, Wrong, encode_header};

/// A stage of an upcall's path, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Stage {
    /// A packet left the fast path: no megaflow matched, or an action sends it to user space. In the kernel
    /// the tracepoint `openvswitch:ovs_dp_upcall`.
    Miss = 1,
    /// It waits in the queue of its port.
    Enqueued = 2,
    /// The queue of its port was full: it is lost.
    Refused = 3,
    /// A handler took it (`dpif_recv:recv_upcall`).
    Received = 4,
    /// Its translation is complete.
    Translated = 5,
    /// The handler sends the megaflow to the datapath (`dpif_netlink_operate__:op_flow_put`).
    PutSent = 6,
    /// The handler sends the packet back with its actions (`dpif_netlink_operate__:op_flow_execute`).
    ExecuteSent = 7,
    /// The datapath has installed the megaflow, or rejected it.
    PutDone = 8,
    /// The datapath executes the actions. In the kernel `ovs_packet_cmd_execute`.
    Executed = 9,
    /// All output of the actions was passed to the devices.
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

/// Reason why a packet left the fast path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Why {
    /// No megaflow matched.
    Miss = 1,
    /// An action sends each packet to the slow path or a controller.
    Action = 2,
    /// Unknown to the source of the event.
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
    /// Stage of the path.
    pub stage: Stage,
    /// Reason of the upcall.
    pub why: Why,
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Id of the upcall: the lower half of the ufid of its megaflow. 0: unknown; events are then joined by
    /// `packet`.
    pub upcall: u64,
    /// Kernel id of the reporting thread.
    pub thread: u32,
    /// Processor that it ran on.
    pub cpu: u16,
    /// Upcalls in the handler's batch, for [`Stage::Received`]; else 0.
    pub batch: u16,
    /// Datapath number of the input port; `u32::MAX`: unknown.
    pub port: u32,
    /// Length of the packet in bytes.
    pub packet_bytes: u32,
    /// 0, or the error of the stage (an errno).
    pub error: u32,
    /// First bytes of the packet, up to the capture limit.
    pub packet: Vec<u8>,
    /// First bytes of its flow key (netlink attributes `OVS_KEY_ATTR_*`), up to the capture limit.
    pub key: Vec<u8>,
}

impl Event {
    /// Value of an unknown `port`.
    pub const NO_PORT: u32 = u32::MAX;
}

/// A dropped packet: one of a sample.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dropped {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Name of the reason (docs/drops.md).
    pub reason: String,
    /// The reason of the kernel's datapath; empty: it has none.
    pub kernel: String,
    /// Datapath number of the port: the input port or, if the transmission failed, the output port; [`Event::NO_PORT`]:
    /// unknown.
    pub port: u32,
    /// Length of the packet in bytes.
    pub packet_bytes: u32,
    /// First bytes of the packet, up to the capture limit.
    pub packet: Vec<u8>,
    /// First bytes of its flow key (netlink attributes `OVS_KEY_ATTR_*`), up to the capture limit; empty: unknown.
    pub key: Vec<u8>,
}

/// A packet sampled by the action `psample`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Sampled {
    /// When, in nanoseconds of `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// Group of the action.
    pub group: u32,
    /// Probability of the sample, out of `u32::MAX`.
    pub probability: u32,
    /// Datapath number of the input port.
    pub port: u32,
    /// Length of the packet in bytes.
    pub packet_bytes: u32,
    /// Cookie of the action, at most [`codec::COOKIE_BYTES_MAX`] bytes.
    pub cookie: Vec<u8>,
    /// First bytes of the packet, up to the capture limit.
    pub packet: Vec<u8>,
}

/// An element of a recording or of the daemon's event socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// First record: the source.
    Start {
        /// Process id of the switch.
        pid: u32,
        /// Program and version, as `sluiced 0.1.0`.
        program: String,
        /// Kind of the source: `bpf` or `ring`.
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
    /// A port was removed.
    PortGone {
        /// Number in the datapath.
        number: u32,
    },
    /// A reporting thread.
    Thread {
        /// Kernel's id.
        thread: u32,
        /// Its name.
        name: String,
    },
    /// An event.
    Event(Event),
    /// Events of a stage lost since the last such record, because a buffer was full.
    Lost {
        /// The stage.
        stage: Stage,
        /// Number of events.
        events: u64,
    },
    /// Cost of reporting so far.
    Overhead {
        /// Reported events.
        events: u64,
        /// Nanoseconds spent on it.
        spent_ns: u64,
    },
    /// A dropped packet.
    Dropped(Dropped),
    /// Dropped packets without a record since the last such record: beyond the limits of samples or of a buffer.
    Unsampled {
        /// Number of packets.
        packets: u64,
    },
    /// A packet sampled by `psample`.
    Sampled(Sampled),
    /// Packets sampled by `psample` that are lost since the last such record, because a buffer was full.
    SamplesLost {
        /// Number of packets.
        packets: u64,
    },
    /// An orderly end.
    End,
}
