//! OpenFlow rules as the tables hold them: immutable, with counters shared by all versions of a rule.

use flow::action::Action;
use flow::{Match, TableId};
use std::sync::Arc;
use sync::{AtomicU64, Ordering};

/// Counters of a rule. They live on when a flow-mod changes the rule's actions.
#[derive(Debug, Default)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    used_ms: AtomicU64,
}

impl RuleStats {
    /// Adds packets and bytes; `used_ms` moves forward only.
    pub fn credit(&self, packets: u64, bytes: u64, used_ms: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used_ms.fetch_max(used_ms, Ordering::Relaxed);
    }

    /// Packets and bytes so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// When the rule was last used (or made), in milliseconds.
    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }
}

/// Flags of a rule (`OFPFF_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RuleFlags {
    /// Tell the controllers when the rule ends.
    pub send_flow_rem: bool,
    /// Do not show packet counts.
    pub no_packet_counts: bool,
    /// Do not show byte counts.
    pub no_byte_counts: bool,
    /// It was added on condition that it overlapped with no other; told again.
    pub check_overlap: bool,
    /// It was added with new counters (before OpenFlow 1.2 always); told again.
    pub reset_counts: bool,
}

/// One rule. A change makes a new `Rule` that shares the counters.
#[derive(Debug)]
pub struct Rule {
    /// Its table.
    pub table: TableId,
    /// What it matches.
    pub matching: Match,
    /// Higher wins. OpenFlow has 0 to 65535; the switch's own rules may lie outside.
    pub priority: i32,
    /// The controller's name for it.
    pub cookie: u64,
    /// Ends after so many seconds without a packet; 0 never.
    pub idle_timeout_s: u16,
    /// Ends after so many seconds; 0 never.
    pub hard_timeout_s: u16,
    /// For eviction (OpenFlow 1.4).
    pub importance: u16,
    /// Flags.
    pub flags: RuleFlags,
    /// Actions and instructions.
    pub actions: Arc<[Action]>,
    /// When it was added, in milliseconds.
    pub created_ms: u64,
    /// When its actions were last changed, in milliseconds.
    pub modified_ms: u64,
    /// Counters.
    pub stats: Arc<RuleStats>,
}

impl Rule {
    /// Whether it ends by time.
    pub fn is_mortal(&self) -> bool {
        self.idle_timeout_s != 0 || self.hard_timeout_s != 0
    }

    /// Whether only the switch itself sees and changes it.
    pub fn is_hidden(&self) -> bool {
        !(0..=i32::from(u16::MAX)).contains(&self.priority) || self.table == TableId::INTERNAL
    }

    /// Whether `out_port` is unset or one of the rule's actions outputs to it.
    pub fn outputs_to(&self, out_port: flow::OfPort) -> bool {
        out_port == flow::OfPort::NONE || actions_output_to(&self.actions, out_port)
    }

    /// Why the rule is to end now, if it is; the statistics pushed so far tell of all packets up to `dumped_ms`.
    pub fn expired(&self, now_ms: u64, dumped_ms: u64) -> Option<Expiry> {
        let past = |since_ms: u64, timeout_s: u16, now_ms: u64| {
            timeout_s != 0 && now_ms >= since_ms + u64::from(timeout_s) * 1000
        };
        if past(self.modified_ms, self.hard_timeout_s, now_ms) {
            Some(Expiry::Hard)
        } else if past(self.stats.used_ms(), self.idle_timeout_s, dumped_ms) {
            Some(Expiry::Idle)
        } else {
            None
        }
    }
}

/// Which timeout ended a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// No packet for too long.
    Idle,
    /// Its time is over.
    Hard,
}

fn actions_output_to(actions: &[Action], out_port: flow::OfPort) -> bool {
    actions.iter().any(|a| match a {
        Action::Output { port, .. } | Action::Enqueue { port, .. } => *port == out_port,
        Action::Controller(_) => out_port == flow::OfPort::CONTROLLER,
        Action::WriteActions(set) => actions_output_to(set, out_port),
        _ => false,
    })
}
