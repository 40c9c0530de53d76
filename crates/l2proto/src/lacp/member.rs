//! A member of an aggregator: one interface with its partner, timers and counters.

use super::frame::{Information, Pdu, System, build, state};
use super::rate::Rate;
use crate::protocol::{LineLevel, LogLine, SessionId};
use flow::MacAddr;

/// Interval of messages to a partner that expects them fast.
pub(super) const FAST_MS: u64 = 1000;
/// Interval of messages to other partners.
pub(super) const SLOW_MS: u64 = 30_000;
/// Missing messages after which a partner is out of date.
pub(super) const MISSING: u64 = 3;
/// Messages that changes and wrong partners cause at once, per member; later ones wait. OVS has no such limit, so a partner
/// that never learns gets an answer to each of its messages.
const TRIGGERED: Rate = Rate::new(10, 100);
/// Lines of a member that wait for the log.
const LINES_MAX: usize = 16;

/// Knowledge of the partner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Its last message is recent.
    Current,
    /// It has missed three messages.
    Expired,
    /// Nothing.
    Defaulted,
}

impl Status {
    /// Its name in `lacp/show`.
    pub fn name(self) -> &'static str {
        match self {
            Status::Current => "current",
            Status::Expired => "expired",
            Status::Defaulted => "defaulted",
        }
    }
}

/// Counters of `lacp/show-stats`; they wrap as in OVS.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Sent messages.
    pub sent: u32,
    /// Received packets of any kind.
    pub received: u32,
    /// Those that are neither messages nor markers.
    pub bad: u32,
    /// Received markers.
    pub markers: u32,
    /// Times that the partner's information expired.
    pub expired: u32,
    /// Times that it then was given up.
    pub defaulted: u32,
    /// Changes of the carrier.
    pub carrier_changed: u32,
}

/// Settings of a member.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Link {
    pub(super) port_id: u16,
    pub(super) port_priority: u16,
    /// 0: the number of the key member.
    pub(super) key: u16,
}

/// Effect of a member that others see.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Effect {
    pub(super) is_current: bool,
    pub(super) may_enable: bool,
    pub(super) is_negotiated: bool,
}

/// Values of the aggregator that each of its messages has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Common {
    pub(super) system: System,
    pub(super) key: u16,
    /// Bits of the state that do not depend on the member.
    pub(super) state: u8,
    pub(super) is_negotiated: bool,
    pub(super) is_active: bool,
    pub(super) falls_back: bool,
}

/// An interface of an aggregator.
#[derive(Clone, Debug)]
pub struct Member {
    pub(super) id: SessionId,
    pub(super) name: String,
    pub(super) mac: MacAddr,
    pub(super) link: Link,
    pub(super) has_carrier: bool,
    pub(super) status: Status,
    pub(super) is_attached: bool,
    pub(super) partner: Information,
    /// This end as the partner knows it.
    pub(super) told: Information,
    /// Time of the next message.
    pub(super) tx_ms: u64,
    /// Time at which the partner's information is too old.
    pub(super) rx_ms: u64,
    pub(super) counters: Counters,
    pub(super) triggered: Rate,
    pub(super) lines: Vec<LogLine>,
    pub(super) lines_lost: u64,
    /// The effect that was reported last.
    pub(super) reported: Option<Effect>,
    /// Its time in the order of its aggregator.
    pub(super) wakeup_ms: Option<u64>,
    /// Later members have a higher one.
    pub(super) order: u32,
}

impl Member {
    pub(super) fn new(id: SessionId, name: &str) -> Member {
        Member {
            id,
            name: name.to_owned(),
            mac: MacAddr::default(),
            link: Link::default(),
            has_carrier: false,
            status: Status::Defaulted,
            is_attached: false,
            partner: Information::default(),
            told: Information::default(),
            tx_ms: 0,
            rx_ms: 0,
            counters: Counters::default(),
            triggered: TRIGGERED,
            lines: Vec::new(),
            lines_lost: 0,
            reported: None,
            wakeup_ms: None,
            order: 0,
        }
    }

    /// Its number.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Knowledge of the partner.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Whether the aggregator uses it.
    pub fn is_attached(&self) -> bool {
        self.is_attached
    }

    /// The partner's end.
    pub fn partner(&self) -> Information {
        self.partner
    }

    /// Its counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// This end of the link.
    pub(super) fn actor(&self, common: &Common) -> Information {
        let bit = |is_set: bool, bits: u8| if is_set { bits } else { 0 };
        let in_use = state::COLLECTING | state::DISTRIBUTING;
        Information {
            system: common.system,
            key: common.key,
            port_priority: self.link.port_priority,
            port_id: self.link.port_id,
            state: common.state
                | bit(self.is_attached, state::SYNCHRONIZED)
                | bit(self.is_attached || !common.is_negotiated, in_use)
                | bit(self.status == Status::Defaulted, state::DEFAULTED)
                | bit(self.status == Status::Expired, state::EXPIRED),
        }
    }

    /// Rank of the link, the lowest first: the values of the end whose system is lower.
    pub(super) fn rank(&self, common: &Common) -> (System, u16, u16) {
        let end = if common.system < self.partner.system { self.actor(common) } else { self.partner };
        (end.system, end.port_priority, end.port_id)
    }

    /// Whether the member may carry traffic.
    pub(super) fn may_enable(&self, common: &Common) -> bool {
        let is_synchronized = self.partner.state & state::SYNCHRONIZED != 0;
        self.is_attached && (is_synchronized || common.falls_back && self.status == Status::Defaulted)
    }

    pub(super) fn effect(&self, common: &Common) -> Effect {
        Effect {
            is_current: self.status != Status::Defaulted,
            may_enable: self.may_enable(common),
            is_negotiated: common.is_negotiated,
        }
    }

    fn may_send(&self, common: &Common) -> bool {
        self.has_carrier && (common.is_active || self.status != Status::Defaulted)
    }

    /// Time of its next message, if it may send; 0 is at once.
    pub(super) fn next_message_ms(&mut self, common: &Common, now_ms: u64) -> Option<u64> {
        if !self.may_send(common) {
            return None;
        }
        if self.told.is_told(&self.actor(common)) {
            return Some(self.tx_ms);
        }
        Some(self.tx_ms.min(self.triggered.next_ms(now_ms)))
    }

    /// The frame to send now, if one is due.
    pub(super) fn poll(&mut self, common: &Common, now_ms: u64) -> Option<Box<[u8]>> {
        if self.next_message_ms(common, now_ms).is_none_or(|at_ms| at_ms > now_ms) {
            return None;
        }
        if now_ms < self.tx_ms {
            self.triggered.take(now_ms);
        }
        let actor = self.actor(common);
        self.told = actor;
        self.counters.sent = self.counters.sent.wrapping_add(1);
        let is_fast = self.partner.state & state::TIMEOUT != 0;
        self.tx_ms = now_ms + if is_fast { FAST_MS } else { SLOW_MS };
        Some(Box::new(build(self.mac, Pdu { actor, partner: self.partner })))
    }

    /// The partner is out of date: it is asked for fast messages.
    pub(super) fn expire(&mut self, now_ms: u64) {
        self.status = Status::Expired;
        self.partner.state |= state::TIMEOUT;
        self.partner.state &= !state::SYNCHRONIZED;
        self.rx_ms = now_ms + MISSING * FAST_MS;
    }

    /// Nothing is known of the partner any more.
    pub(super) fn default(&mut self) {
        self.status = Status::Defaulted;
        self.partner = Information::default();
    }

    /// Time at which the partner's information is too old, if there is any.
    pub(super) fn next_timeout_ms(&self) -> Option<u64> {
        (self.status != Status::Defaulted).then_some(self.rx_ms)
    }

    /// Queues a line for the log. Debug lines are dropped without a trace if too many wait.
    pub(super) fn line(&mut self, level: LineLevel, text: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(LogLine { module: "lacp", level, text });
        } else if level != LineLevel::Debug {
            self.lines_lost += 1;
        }
    }
}
