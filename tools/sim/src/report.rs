//! What a run found: violations of the laws, and figures that show that it did something.

/// A law of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Law {
    /// Every packet that matches an installed mask translates alike.
    Megaflow,
    /// The forwarding core does what the plain one does.
    Oracle,
    /// Every packet is accounted for.
    Conservation,
    /// Queues and tables keep their limits, and nothing is left over.
    Bounds,
    /// A port's load is its own.
    Isolation,
    /// A bundle is seen whole or not at all.
    Bundle,
    /// Packets of one flow leave in order.
    Order,
    /// Installed flows follow the tables within a second.
    Staleness,
    /// Each packet counts once.
    Statistics,
}

/// A law that did not hold.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub law: Law,
    /// At which step.
    pub step: u64,
    /// What was seen.
    pub detail: String,
}

/// A way to break the switch on purpose, to see that the checkers notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// Puts lose mask bits on their way.
    WideMask,
    /// A byte of a sent frame is changed.
    CorruptFrame,
    /// A received packet vanishes on its way into the core.
    LostPacket,
    /// An upcall vanishes between the queue and the handler.
    LostUpcall,
    /// Queues take more than their limit.
    UnboundedQueue,
    /// Deletes are acknowledged and not carried out.
    ForgottenDelete,
    /// All ports share one queue.
    SharedQueue,
    /// A bundle is published rule by rule.
    SplitBundle,
    /// Packets of a transmit batch change places.
    Reordered,
    /// Flows are not revalidated after changes.
    NoRevalidation,
    /// The packet that missed counts twice.
    CountedTwice,
    /// The slow path knows no flow limit.
    NoFlowLimit,
    /// Bridges learn addresses without limit.
    NoMacLimit,
    /// One port may use the whole flow limit.
    NoShares,
}

/// Gathers violations; keeps the first ones.
#[derive(Default)]
pub(crate) struct Violations {
    pub(crate) step: u64,
    pub(crate) list: Vec<Violation>,
    /// Only violations of this law count.
    pub(crate) only: Option<Law>,
}

const KEPT: usize = 20;

impl Violations {
    pub(crate) fn add(&mut self, law: Law, detail: impl FnOnce() -> String) {
        if self.list.len() < KEPT && self.only.is_none_or(|only| only == law) {
            self.list.push(Violation { law, step: self.step, detail: detail() });
        }
    }
}

/// How often what the laws are about came to pass: a run without it shows nothing about them.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Learned addresses that aged out, that went for lack of room, that moved.
    pub macs_aged: u64,
    /// See there.
    pub macs_evicted: u64,
    /// See there.
    pub macs_moved: u64,
    /// Rules that ended by their idle timeout.
    pub rules_idle: u64,
    /// Rules that ended by their hard timeout.
    pub rules_hard: u64,
    /// Ports added or removed.
    pub port_changes: u64,
    /// Ports that went down or came up, or whose configuration changed.
    pub config_changes: u64,
    /// Bundles committed.
    pub bundles: u64,
    /// Upcalls refused by a full queue.
    pub upcalls_refused: u64,
    /// Batches of operations that a full inbox refused.
    pub inbox_full: u64,
    /// Packets that found no room behind a translation.
    pub parked_overflow: u64,
    /// Translations that left no flow because of the flow limit.
    pub flow_limit_reached: u64,
    /// Packets that a meter's band applied to.
    pub metered: u64,
    /// Misses after a recirculation.
    pub recirculated: u64,
    /// Packets of the slow path's own flows.
    pub slow: u64,
    /// Packets told to controllers.
    pub packet_ins: u64,
    /// Packets that controllers sent.
    pub packet_outs: u64,
    /// Times that a handler, a core's inbox or the revalidator stood still.
    pub stalls: u64,
    /// Times that nobody worked for seconds.
    pub jumps: u64,
    /// Forwarding cores.
    pub cores: u64,
}

/// What became of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The seed that gives the same run again.
    pub seed: u64,
    /// What was wrong; empty when all laws held.
    pub violations: Vec<Violation>,
    /// Frames that came in by ports.
    pub received: u64,
    /// Frames that left by ports.
    pub sent: u64,
    /// Upcalls served.
    pub upcalls: u64,
    /// Flows put.
    pub flows_put: u64,
    /// Flows compared with a translation of theirs.
    pub flows_checked: u64,
    /// Packets translated for the megaflow law.
    pub packets_checked: u64,
    /// Changes of the controller.
    pub changes: u64,
    /// Virtual time, in milliseconds.
    pub elapsed_ms: u64,
    /// What came to pass.
    pub work: Work,
}
