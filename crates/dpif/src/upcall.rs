//! Upcalls: packets that the datapath sends to the slow path.

use crate::ops::PmdId;
use flow::{DpPort, FlowKey, RecircId, Tunnel, Ufid};
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

/// A packet for the collectors of sFlow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SflowCookie {
    /// The VLAN tag that it leaves with; 0: none.
    pub vlan_tci: u16,
    /// Where it goes, in the encoding of sFlow 5: an index of an interface, a number of outputs, or a reason of a drop.
    pub output: u32,
}

/// A packet for the collectors of IPFIX of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IpfixCookie {
    /// Where it leaves; `NONE`: sampled as it enters.
    pub output_port: DpPort,
    /// Whether that is a tunnel whose headers the datapath reports.
    pub tunnel_out: bool,
    /// Number of the bridge that samples.
    pub bridge: u32,
}

/// Direction in a record of a sampled flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum FlowDirection {
    /// Egress if it has an output port, else ingress.
    #[default]
    ByPort,
    /// Ingress.
    Ingress,
    /// Egress.
    Egress,
}

/// A packet for a set of collectors, by the action `sample` of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowSampleCookie {
    /// Sampled packets out of 65535.
    pub probability: u16,
    /// The set of collectors.
    pub collector_set: u32,
    /// Observation domain.
    pub domain: u32,
    /// Observation point.
    pub point: u32,
    /// Where it leaves; `NONE`: unknown.
    pub output_port: DpPort,
    /// Whether that is a tunnel whose headers the datapath reports.
    pub tunnel_out: bool,
    /// Direction.
    pub direction: FlowDirection,
    /// Number of the bridge that samples.
    pub bridge: u32,
}

/// Data of a userspace action for the slow path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UserCookie {
    /// Report it to the collectors of sFlow.
    Sflow(SflowCookie),
    /// Report it to the collectors of IPFIX of a bridge.
    Ipfix(IpfixCookie),
    /// Report it to a set of collectors.
    FlowSample(FlowSampleCookie),
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
    /// Outer headers of the tunnel that a sample leaves by, if the datapath reports them ([`UserCookie::tunnel_out`]).
    pub tunnel_out: Option<Box<Tunnel>>,
}

impl UserCookie {
    /// Whether the packet is a sample: it goes to collectors only.
    pub fn is_sample(&self) -> bool {
        match self {
            UserCookie::Sflow(_) | UserCookie::Ipfix(_) | UserCookie::FlowSample(_) => true,
            UserCookie::SlowPath { .. } | UserCookie::Controller(_) => false,
        }
    }

    /// The tunnel whose outer headers the datapath reports with a sample.
    pub fn tunnel_out(&self) -> Option<DpPort> {
        match self {
            UserCookie::Ipfix(IpfixCookie { tunnel_out: true, output_port, .. })
            | UserCookie::FlowSample(FlowSampleCookie { tunnel_out: true, output_port, .. }) => {
                Some(*output_port)
            }
            UserCookie::Ipfix(_)
            | UserCookie::FlowSample(_)
            | UserCookie::Sflow(_)
            | UserCookie::SlowPath { .. }
            | UserCookie::Controller(_) => None,
        }
    }

    /// The same sample, with a report of that tunnel; `None` unless it leaves by it.
    #[must_use]
    pub fn with_tunnel_out(mut self, port: DpPort) -> Option<UserCookie> {
        let (output_port, tunnel_out) = match &mut self {
            UserCookie::Ipfix(cookie) => (cookie.output_port, &mut cookie.tunnel_out),
            UserCookie::FlowSample(cookie) => (cookie.output_port, &mut cookie.tunnel_out),
            UserCookie::Sflow(_) | UserCookie::SlowPath { .. } | UserCookie::Controller(_) => return None,
        };
        *tunnel_out = true;
        (output_port == port).then_some(self)
    }
}

impl Upcall {
    /// Whether its packet has the form of a control packet of a link protocol ([`l2proto::is_control_packet`]), and it is
    /// neither for controllers nor a sample.
    pub fn is_of_session(&self) -> bool {
        let may_be = match self.kind {
            UpcallKind::Miss => true,
            UpcallKind::Action(cookie) => matches!(cookie, UserCookie::SlowPath { .. }),
        };
        may_be && l2proto::is_control_packet(&self.key)
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
