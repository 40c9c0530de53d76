//! All aggregators of a switch, by port, with their timers.
//!
//! Each aggregator stands once in an ordered set of wakeups, so the next one, and a change of one member, cost O(log n).
//! [`Aggregators::tick`] serves a bounded number of due ones. The owner bounds the number of members: one for each interface.

use super::aggregator::Aggregator;
use super::config::{Config, PortConfig};
use super::facts::MemberFacts;
use super::frame::System;
use super::member::{Effect, Member};
use super::rate::Rate;
use super::saved::FormerMember;
use crate::protocol::{LinkPort, LogLine, SessionId};
use crate::saved::{Former, Formers};
use flow::MacAddr;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// Warnings about bad packets at once; later one a minute, as in OVS.
const WARNINGS: Rate = Rate::new(5, 60_000);
/// Never.
const NEVER: u64 = u64::MAX;

/// No aggregator has this name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no such lacp object")]
pub struct UnknownPort;

/// Number of an aggregator, in the order of their creation.
type Number = u64;

/// An aggregator and its place in the set of wakeups.
#[derive(Debug)]
struct Slot {
    aggregator: Aggregator,
    wakeup_ms: u64,
}

/// Changes of a member since the last report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Changed {
    pub(super) id: SessionId,
    pub(super) effect: bool,
    pub(super) lines: Vec<LogLine>,
    pub(super) lines_lost: u64,
}

/// Aggregators by number and by port, and their members by number and by interface.
#[derive(Debug)]
pub struct Aggregators {
    slots: BTreeMap<Number, Slot>,
    ports: BTreeMap<String, Number>,
    members: BTreeMap<SessionId, (Number, String)>,
    names: BTreeMap<String, SessionId>,
    wakeups: BTreeSet<(u64, Number)>,
    changed: BTreeMap<SessionId, bool>,
    warnings: Rate,
    next_id: u32,
    next_number: Number,
    formers: Formers,
}

impl Default for Aggregators {
    fn default() -> Aggregators {
        Aggregators {
            slots: BTreeMap::new(),
            ports: BTreeMap::new(),
            members: BTreeMap::new(),
            names: BTreeMap::new(),
            wakeups: BTreeSet::new(),
            changed: BTreeMap::new(),
            warnings: WARNINGS,
            next_id: 0,
            next_number: 0,
            formers: Formers::default(),
        }
    }
}

impl Aggregators {
    /// The member of an interface.
    pub fn find(&self, name: &str) -> Option<SessionId> {
        self.names.get(name).copied()
    }

    /// The aggregator of a port.
    pub fn port(&self, name: &str) -> Option<&Aggregator> {
        self.ports.get(name).and_then(|number| self.slots.get(number)).map(|slot| &slot.aggregator)
    }

    fn of_member(&self, id: SessionId) -> Option<&Aggregator> {
        let (number, _) = self.members.get(&id)?;
        self.slots.get(number).map(|slot| &slot.aggregator)
    }

    /// A member.
    pub fn member(&self, id: SessionId) -> Option<&Member> {
        self.of_member(id)?.member(id)
    }

    /// Values of the member of an interface for management systems; `None` without it.
    pub fn facts(&self, interface: &str) -> Option<MemberFacts> {
        let id = self.find(interface)?;
        let aggregator = self.of_member(id)?;
        Some(aggregator.facts(aggregator.member(id)?))
    }

    /// The effect of a member; `None` without it.
    pub(super) fn effect(&self, id: SessionId) -> Option<Effect> {
        let aggregator = self.of_member(id)?;
        Some(aggregator.member(id)?.effect(&aggregator.common()))
    }

    /// Creates or changes the member of an interface. One that moved to another port begins anew there.
    pub fn put(&mut self, port: &LinkPort, config: &Config, now_ms: u64) -> SessionId {
        let known = self.find(&port.interface);
        let moved = known.filter(|id| self.of_member(*id).is_none_or(|a| a.name() != port.port));
        if let Some(id) = moved {
            self.leave(id, now_ms);
        }
        let id = known.unwrap_or_else(|| self.new_id());
        let of_port = config.of_port(port);
        let former = self.formers.take(&port.interface).filter(|_| known.is_none());
        let former = former
            .and_then(|former| FormerMember::parse(&former, (id, &port.interface), port.mac, &of_port).ok());
        let former = former.filter(|former| former.common.name == port.port);
        let number = self.ports.get(&port.port).copied();
        let number = number.unwrap_or_else(|| {
            let number = self.next_number;
            self.next_number += 1;
            let aggregator = Aggregator::new(&port.port, of_port);
            self.slots.insert(number, Slot { aggregator, wakeup_ms: NEVER });
            self.wakeups.insert((NEVER, number));
            self.ports.insert(port.port.clone(), number);
            number
        });
        self.members.insert(id, (number, port.interface.clone()));
        self.names.insert(port.interface.clone(), id);
        self.with(number, now_ms, |aggregator, _| {
            former.into_iter().for_each(|former| aggregator.put_former(former));
            aggregator.configure(of_port);
            let link = config.of_link(port);
            aggregator.put((id, &port.interface), port.mac, link, port.is_up, now_ms);
        });
        id
    }

    /// The state of a member for another process.
    pub(super) fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        self.of_member(id)?.saved(id, now_ms)
    }

    /// Keeps the state of a former member.
    pub(super) fn restore(&mut self, interface: &str, text: &str, then_ms: u64) -> Result<(), String> {
        let former = Former::parse(text, then_ms)?;
        let config =
            PortConfig { is_active: false, is_fast: false, falls_back: false, system: System::default() };
        FormerMember::parse(&former, (SessionId(0), interface), MacAddr::default(), &config)?;
        self.formers.put(interface, former)
    }

    pub(super) fn forget_restored(&mut self) -> Vec<String> {
        self.formers.drain()
    }

    fn new_id(&mut self) -> SessionId {
        while self.members.contains_key(&SessionId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = SessionId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Removes a member; the last one takes its aggregator along. The port's others are due at once.
    pub fn remove(&mut self, id: SessionId) {
        self.leave(id, 0);
        if let Some((_, name)) = self.members.remove(&id) {
            self.names.remove(&name);
            self.changed.remove(&id);
        }
    }

    fn leave(&mut self, id: SessionId, now_ms: u64) {
        let Some(number) = self.members.get(&id).map(|(number, _)| *number) else { return };
        if self.with(number, now_ms, |aggregator, _| aggregator.remove(id)) == Some(false)
            && let Some(slot) = self.slots.remove(&number)
        {
            self.wakeups.remove(&(slot.wakeup_ms, number));
            self.ports.remove(slot.aggregator.name());
        }
    }

    /// A member receives a payload. Its consequences are due at once.
    pub fn input(&mut self, id: SessionId, payload: &[u8], now_ms: u64) {
        if let Some(number) = self.members.get(&id).map(|(number, _)| *number) {
            self.with(number, now_ms, |aggregator, warnings| {
                aggregator.input(id, payload, now_ms, warnings);
            });
        }
    }

    /// Time of the earliest work: 0 is at once, `None` never.
    pub fn next_wakeup(&self) -> Option<u64> {
        self.wakeups.first().map(|(wakeup_ms, _)| *wakeup_ms).filter(|wakeup_ms| *wakeup_ms != NEVER)
    }

    /// Serves at most `limit` due aggregators, the longest due first, and sends their frames. Returns whether more are due.
    pub fn tick(&mut self, now_ms: u64, limit: usize, mut send: impl FnMut(SessionId, Box<[u8]>)) -> bool {
        for _ in 0..limit {
            let Some(number) = self.due(now_ms) else { return false };
            self.with(number, now_ms, |aggregator, _| aggregator.run(now_ms, &mut send));
        }
        self.due(now_ms).is_some()
    }

    /// Takes the report of a member of which something changed.
    pub(super) fn take_changed(&mut self) -> Option<Changed> {
        loop {
            let (id, effect) = self.changed.pop_first()?;
            let Some((number, _)) = self.members.get(&id) else { continue };
            let Some(slot) = self.slots.get_mut(number) else { continue };
            let Some(member) = slot.aggregator.member_mut(id) else { continue };
            let (lines, lines_lost) =
                (std::mem::take(&mut member.lines), std::mem::take(&mut member.lines_lost));
            return Some(Changed { id, effect, lines, lines_lost });
        }
    }

    /// The reply to `lacp/show`: one port, or all in the order of their creation.
    ///
    /// # Errors
    /// No such port.
    pub fn show(&self, name: Option<&str>) -> Result<String, UnknownPort> {
        self.texts(name, Aggregator::show)
    }

    /// The reply to `lacp/show-stats`.
    ///
    /// # Errors
    /// No such port.
    pub fn show_counters(&self, name: Option<&str>) -> Result<String, UnknownPort> {
        self.texts(name, Aggregator::show_counters)
    }

    fn texts(&self, name: Option<&str>, text: impl Fn(&Aggregator) -> String) -> Result<String, UnknownPort> {
        match name {
            Some(name) => self.port(name).map(text).ok_or(UnknownPort),
            None => Ok(self.slots.values().map(|slot| text(&slot.aggregator)).collect()),
        }
    }

    /// Changes an aggregator, moves its timer, and lists the members whose effect changed.
    fn with<T>(
        &mut self,
        number: Number,
        now_ms: u64,
        change: impl FnOnce(&mut Aggregator, &mut Rate) -> T,
    ) -> Option<T> {
        let slot = self.slots.get_mut(&number)?;
        let result = change(&mut slot.aggregator, &mut self.warnings);
        let changed = &mut self.changed;
        slot.aggregator.review(now_ms, |id, effect| *changed.entry(id).or_insert(false) |= effect);
        let wakeup_ms = slot.aggregator.next_wakeup().unwrap_or(NEVER);
        if wakeup_ms != slot.wakeup_ms {
            self.wakeups.remove(&(slot.wakeup_ms, number));
            self.wakeups.insert((wakeup_ms, number));
            slot.wakeup_ms = wakeup_ms;
        }
        Some(result)
    }

    fn due(&self, now_ms: u64) -> Option<Number> {
        self.wakeups.first().filter(|(wakeup_ms, _)| *wakeup_ms <= now_ms).map(|(_, number)| *number)
    }
}
