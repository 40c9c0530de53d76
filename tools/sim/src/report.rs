//! Result of a run: violations of the invariants, and coverage.

/// An invariant of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invariant {
    /// Every packet that matches an installed mask translates alike.
    Megaflow,
    /// The forwarding core equals the plain one.
    Oracle,
    /// Every packet is accounted for.
    Conservation,
    /// Queues and tables keep their limits, and nothing leaks.
    Bounds,
    /// A port's load affects no other port.
    Isolation,
    /// A packet sees a bundle whole or not at all.
    Bundle,
    /// Packets of one flow leave in order.
    Order,
    /// Installed flows follow the tables within a second.
    Staleness,
    /// Each packet counts once.
    Statistics,
    /// Connections are tracked, translated, limited and ended as by the plain tracker.
    Tracking,
}

/// A violated invariant.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Step of the run.
    pub step: u64,
    /// Description.
    pub detail: String,
}

/// A deliberate fault of the switch, to test the checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Puts lose mask bits.
    WideMask,
    /// A byte of a sent frame is changed.
    CorruptFrame,
    /// A received packet is lost before the core.
    LostPacket,
    /// An upcall is lost between the queue and the handler.
    LostUpcall,
    /// Queues exceed their limit.
    UnboundedQueue,
    /// Deletes are acknowledged but not executed.
    ForgottenDelete,
    /// All ports share one queue.
    SharedQueue,
    /// A bundle is published rule by rule.
    SplitBundle,
    /// Packets of a transmit batch are reordered.
    Reordered,
    /// Flows are not revalidated after changes.
    NoRevalidation,
    /// The packet that missed counts twice.
    CountedTwice,
    /// The slow path ignores the flow limit.
    NoFlowLimit,
    /// Bridges learn addresses without limit.
    NoMacLimit,
    /// One port may use the whole flow limit.
    NoShares,
    /// Connections are forgotten.
    ForgottenConnections,
}

/// Collects violations; keeps the first ones.
#[derive(Default)]
pub(crate) struct Violations {
    pub(crate) step: u64,
    pub(crate) list: Vec<Violation>,
    /// Only violations of this invariant count.
    pub(crate) only: Option<Invariant>,
}

const KEPT: usize = 20;

impl Violations {
    pub(crate) fn add(&mut self, invariant: Invariant, detail: impl FnOnce() -> String) {
        if self.list.len() < KEPT && self.only.is_none_or(|only| only == invariant) {
            self.list.push(Violation { invariant, step: self.step, detail: detail() });
        }
    }
}

/// How often the events occurred that the invariants concern: a run without them proves nothing.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Learned addresses that expired.
    pub macs_aged: u64,
    /// Learned addresses evicted at the limit.
    pub macs_evicted: u64,
    /// Learned addresses that moved.
    pub macs_moved: u64,
    /// Rules removed by their idle timeout.
    pub rules_idle: u64,
    /// Rules removed by their hard timeout.
    pub rules_hard: u64,
    /// Ports added or removed.
    pub port_changes: u64,
    /// Flows deleted after the removal of their port.
    pub flows_ended: u64,
    /// Ports that went down or up, or whose configuration changed.
    pub config_changes: u64,
    /// Bundles committed.
    pub bundles: u64,
    /// Upcalls refused by a full queue.
    pub upcalls_refused: u64,
    /// Batches of operations refused by a full inbox.
    pub inbox_full: u64,
    /// Packets that found no room behind a translation.
    pub parked_overflow: u64,
    /// Translations without a flow because of the flow limit.
    pub flow_limit_reached: u64,
    /// Packets that a meter's band applied to.
    pub metered: u64,
    /// Misses after a recirculation.
    pub recirculated: u64,
    /// Packets of slow-path flows.
    pub slow: u64,
    /// Packet-ins.
    pub packet_ins: u64,
    /// Packet-outs.
    pub packet_outs: u64,
    /// Stalls of a handler, a core's inbox or the revalidator.
    pub stalls: u64,
    /// Pauses of the whole switch for seconds.
    pub jumps: u64,
    /// Forwarding cores.
    pub cores: u64,
    /// Connections created, while the plain tracker sees the same packets.
    pub connections_compared: u64,
    /// Connections created.
    pub connections: u64,
    /// Connections that ended.
    pub connections_ended: u64,
    /// Packets not committed because all places were taken.
    pub connections_full: u64,
    /// Packets not committed because no translated tuple was free.
    pub no_tuple: u64,
    /// Packets of established connections.
    pub established: u64,
    /// Packets of the reply direction.
    pub tracked_replies: u64,
    /// Translated packets.
    pub translated: u64,
    /// Translated packets whose opposite direction was translated, too.
    pub translated_back: u64,
    /// Fragments that left with all others of their datagram.
    pub fragments_completed: u64,
    /// Such fragments, while the plain cores hold the same ones.
    pub fragments_compared: u64,
    /// Datagrams of which all fragments left one port.
    pub datagrams: u64,
    /// Fragments whose datagram was not complete in time.
    pub fragments_late: u64,
    /// Fragments that found no place, or lost it to another port.
    pub fragments_refused: u64,
    /// Connections expected at the time of a check.
    pub expected: u64,
    /// Related connections at the time of a check.
    pub related: u64,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Seed that reproduces the run.
    pub seed: u64,
    /// Violations; empty if all invariants held.
    pub violations: Vec<Violation>,
    /// Frames received on ports.
    pub received: u64,
    /// Frames sent to ports.
    pub sent: u64,
    /// Upcalls served.
    pub upcalls: u64,
    /// Flows put.
    pub flows_put: u64,
    /// Flows compared with their translation.
    pub flows_checked: u64,
    /// Packets translated for the megaflow check.
    pub packets_checked: u64,
    /// Changes by the controller.
    pub changes: u64,
    /// Virtual time, in milliseconds.
    pub elapsed_ms: u64,
    /// Coverage.
    pub coverage: Coverage,
}
