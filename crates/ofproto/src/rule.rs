//! OpenFlow rules as the tables hold them: immutable, with counters shared by all versions of a rule.

use classifier::ClsRule;
use flow::{PackedMatch, TableId};
use ofp_actions::{Action, Conjunction, Reference};
use openflow::msg::flow_mod::FlowModFlags;
use std::sync::Arc;
use sync::{AtomicU64, Ordering};

/// Counters of a rule. They survive a flow-mod that changes the rule's actions.
#[derive(Debug, Default)]
pub struct RuleStats {
    packets: AtomicU64,
    bytes: AtomicU64,
    used_ms: AtomicU64,
    /// When a packet last learned the rule again.
    relearned_ms: AtomicU64,
}

impl RuleStats {
    /// Statistics of a new rule, which counts as used now.
    pub fn new(now_ms: u64) -> RuleStats {
        RuleStats { used_ms: AtomicU64::new(now_ms), ..RuleStats::default() }
    }

    /// Adds packets and bytes; `used_ms` moves forward only.
    pub fn credit(&self, packets: u64, bytes: u64, used_ms: u64) {
        self.packets.fetch_add(packets, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.used_ms.fetch_max(used_ms, Ordering::Relaxed);
    }

    /// A packet of that time learned the rule again; times move forward only. A rule whose idle timeout had passed by
    /// then lives on, as in OVS, which had removed it and learns it anew.
    pub fn relearn(&self, used_ms: u64, idle_s: u16) {
        self.relearned_ms.fetch_max(used_ms, Ordering::Relaxed);
        if idle_s != 0 && used_ms >= self.used_ms() + u64::from(idle_s) * 1000 {
            self.used_ms.fetch_max(used_ms, Ordering::Relaxed);
        }
    }

    /// Packets and bytes so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Time of last use (or creation), in milliseconds.
    pub fn used_ms(&self) -> u64 {
        self.used_ms.load(Ordering::Relaxed)
    }
}

/// The timeouts of a rule.
#[derive(Clone, Debug)]
pub enum RuleTimeouts {
    /// Fixed timeouts.
    Fixed(Timeouts),
    /// A `fin_timeout` action shortens them while packets pass. All versions of the rule share them.
    Shrinking(Arc<SharedTimeouts>),
}

/// Timeouts in seconds; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timeouts {
    /// Idle timeout.
    pub idle_s: u16,
    /// Hard timeout, since the rule was added or its actions were changed.
    pub hard_s: u16,
}

/// [`Timeouts`] shortened by several threads.
#[derive(Debug)]
pub struct SharedTimeouts(AtomicU64);

fn shortens_timeouts(actions: &[Action]) -> bool {
    refers_to(actions, Reference::OwnTimeouts)
}

impl RuleTimeouts {
    /// Timeouts of a new rule with these actions.
    pub fn new(idle_s: u16, hard_s: u16, actions: &[Action]) -> RuleTimeouts {
        let timeouts = Timeouts { idle_s, hard_s };
        if shortens_timeouts(actions) {
            return RuleTimeouts::Shrinking(Arc::new(SharedTimeouts(AtomicU64::new(timeouts.to_word()))));
        }
        RuleTimeouts::Fixed(timeouts)
    }

    /// Timeouts of a version of the rule with other actions.
    pub fn for_actions(&self, actions: &[Action]) -> RuleTimeouts {
        match self {
            RuleTimeouts::Fixed(t) => RuleTimeouts::new(t.idle_s, t.hard_s, actions),
            RuleTimeouts::Shrinking(_) => self.clone(),
        }
    }

    /// The current timeouts.
    pub fn now(&self) -> Timeouts {
        match self {
            RuleTimeouts::Fixed(timeouts) => *timeouts,
            RuleTimeouts::Shrinking(shared) => Timeouts::of_word(shared.0.load(Ordering::Relaxed)),
        }
    }

    /// Idle timeout in seconds; 0 for none.
    pub fn idle_s(&self) -> u16 {
        self.now().idle_s
    }

    /// Hard timeout in seconds; 0 for none.
    pub fn hard_s(&self) -> u16 {
        self.now().hard_s
    }

    /// Whether the rule has a timeout, or an action may give it one.
    pub fn may_end(&self) -> bool {
        match self {
            RuleTimeouts::Fixed(timeouts) => *timeouts != Timeouts::default(),
            RuleTimeouts::Shrinking(_) => true,
        }
    }
}

impl Timeouts {
    fn to_word(self) -> u64 {
        u64::from(self.idle_s) << 16 | u64::from(self.hard_s)
    }

    fn of_word(word: u64) -> Timeouts {
        Timeouts { idle_s: (word >> 16) as u16, hard_s: word as u16 }
    }
}

impl SharedTimeouts {
    /// Lowers both to at most these; 0 leaves a timeout unchanged.
    pub fn reduce(&self, idle_s: u16, hard_s: u16) {
        let lower = |now: u16, most: u16| match (now, most) {
            (_, 0) => now,
            (0, _) => most,
            _ => now.min(most),
        };
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
            let now = Timeouts::of_word(word);
            let then = Timeouts { idle_s: lower(now.idle_s, idle_s), hard_s: lower(now.hard_s, hard_s) };
            Some(then.to_word())
        });
    }
}

/// A rule. A change makes a new `Rule` that shares the counters.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its table.
    pub table: TableId,
    /// Its match.
    pub matching: PackedMatch,
    /// Higher wins. OpenFlow uses 0 to 65535; the switch's own rules may use others.
    pub priority: i32,
    /// Opaque id of the controller.
    pub cookie: u64,
    /// Its timeouts.
    pub timeouts: RuleTimeouts,
    /// For eviction (OpenFlow 1.4).
    pub importance: u16,
    /// Flags; before OpenFlow 1.2 an add sets `RESET_COUNTS`.
    pub flags: FlowModFlags,
    /// Actions and instructions.
    pub actions: Arc<[Action]>,
    /// Time of the add, in milliseconds.
    pub created_ms: u64,
    /// Time of the last change of actions, in milliseconds.
    pub modified_ms: u64,
    /// Counters.
    pub stats: Arc<RuleStats>,
}

impl ClsRule for Rule {
    fn matching(&self) -> &PackedMatch {
        &self.matching
    }

    fn priority(&self) -> i32 {
        self.priority
    }

    /// Whether it is a clause of a conjunction.
    fn is_soft(&self) -> bool {
        Conjunction::is_in(&self.actions)
    }
}

impl Rule {
    /// Whether it has a timeout, or may get one. Constant while the rule is in its table.
    pub fn has_timeout(&self) -> bool {
        self.timeouts.may_end()
    }

    /// Whether only the switch itself sees and changes it.
    pub fn is_hidden(&self) -> bool {
        !(0..=i32::from(u16::MAX)).contains(&self.priority) || self.table == TableId::INTERNAL
    }

    /// Whether `other`, another version of the rule, has the same effect on packets and counts them in the same
    /// place.
    pub fn acts_as(&self, other: &Rule) -> bool {
        let same_timeouts = match (&self.timeouts, &other.timeouts) {
            (RuleTimeouts::Shrinking(a), RuleTimeouts::Shrinking(b)) => Arc::ptr_eq(a, b),
            (RuleTimeouts::Fixed(_), RuleTimeouts::Fixed(_)) => true,
            _ => false,
        };
        // Controllers receive the cookie.
        let same_cookie = self.cookie == other.cookie || !refers_to(&self.actions, Reference::OwnCookie);
        let same_actions = Arc::ptr_eq(&self.actions, &other.actions) || self.actions == other.actions;
        same_actions && same_timeouts && same_cookie && Arc::ptr_eq(&self.stats, &other.stats)
    }

    /// Start of the hard timeout, in milliseconds: the last change of actions, or the last packet that learned the rule.
    pub fn renewed_ms(&self) -> u64 {
        self.modified_ms.max(self.stats.relearned_ms.load(Ordering::Relaxed))
    }

    /// The expired timeout, if any; the statistics pushed so far cover all packets up to `dumped_ms`.
    pub fn expired(&self, now_ms: u64, dumped_ms: u64) -> Option<Expiry> {
        let past = |since_ms: u64, timeout_s: u16, now_ms: u64| {
            timeout_s != 0 && now_ms >= since_ms + u64::from(timeout_s) * 1000
        };
        let timeouts = self.timeouts.now();
        if past(self.renewed_ms(), timeouts.hard_s, now_ms) {
            Some(Expiry::Hard)
        } else if past(self.stats.used_ms(), timeouts.idle_s, dumped_ms) {
            Some(Expiry::Idle)
        } else {
            None
        }
    }
}

/// The timeout that removed a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expiry {
    /// Idle timeout.
    Idle,
    /// Hard timeout.
    Hard,
}

/// Whether one of the actions refers to `wanted`.
pub(crate) fn refers_to(actions: &[Action], wanted: Reference) -> bool {
    let mut found = false;
    actions.iter().for_each(|a| a.references(&mut |reference| found |= reference == wanted));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables have hundreds of thousands of rules; with its reference counts a rule fits a block of 128 bytes of the
    /// allocator.
    #[test]
    fn a_rule_is_small() {
        let counts = 2 * size_of::<usize>();
        assert!(size_of::<Rule>() + counts <= 128, "{} bytes", size_of::<Rule>());
        assert!(size_of::<RuleStats>() + counts <= 48);
    }
}
