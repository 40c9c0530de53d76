//! The members of one port, and the choice of those that carry its traffic.
//!
//! The aggregator asks for an update after each change that may alter the choice; [`Aggregator::run`] makes it, and
//! returns the frames that are due. The caller calls it whenever [`Aggregator::next_wakeup`] has passed, and
//! [`Aggregator::review`] after each change: both visit only the members concerned, unless a value changes that all have.

use super::config::PortConfig;
use super::frame::{Parsed, Pdu, state};
use super::member::{Common, FAST_MS, Link, MISSING, Member, SLOW_MS, Status};
use super::rate::Rate;
use super::saved::FormerMember;
use crate::protocol::{LineLevel, SessionId};
use flow::MacAddr;
use std::collections::{BTreeMap, BTreeSet};

/// Warnings about loops that a port writes at once; later one a minute, as in OVS.
const LOOP_WARNINGS: Rate = Rate::new(10, 60_000);

/// A port with its members.
#[derive(Debug)]
pub struct Aggregator {
    pub(super) name: String,
    pub(super) config: PortConfig,
    /// In the order in which they joined.
    pub(super) members: Vec<Member>,
    places: BTreeMap<SessionId, usize>,
    /// Time of the next work of a member, and its place.
    wakeups: BTreeSet<(u64, usize)>,
    /// Values of the last review; without them each member needs one.
    reviewed: Option<Common>,
    /// Places of the members that may have changed since.
    touched: Vec<usize>,
    /// The member whose key all have.
    pub(super) key_member: Option<SessionId>,
    pub(super) is_negotiated: bool,
    /// Attachments must be chosen anew.
    is_stale: bool,
    /// Members that go on from a former process.
    continued: u32,
    loop_warnings: Rate,
}

impl Aggregator {
    pub(super) fn new(name: &str, config: PortConfig) -> Aggregator {
        Aggregator {
            name: name.to_owned(),
            config,
            members: Vec::new(),
            places: BTreeMap::new(),
            wakeups: BTreeSet::new(),
            reviewed: None,
            touched: Vec::new(),
            key_member: None,
            is_negotiated: false,
            is_stale: true,
            continued: 0,
            loop_warnings: LOOP_WARNINGS,
        }
    }

    /// Its port.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether some partner answers, or is awaited still.
    pub fn is_negotiated(&self) -> bool {
        self.is_negotiated
    }

    /// A member.
    pub fn member(&self, id: SessionId) -> Option<&Member> {
        self.members.get(*self.places.get(&id)?)
    }

    /// A member that is about to change.
    pub(super) fn member_mut(&mut self, id: SessionId) -> Option<&mut Member> {
        let place = *self.places.get(&id)?;
        self.touched.push(place);
        self.members.get_mut(place)
    }

    /// Key of all messages; `None` without members.
    pub(super) fn key(&self) -> Option<u16> {
        let Link { port_id, key, .. } = self.member(self.key_member?)?.link;
        Some(if key == 0 { port_id } else { key })
    }

    pub(super) fn common(&self) -> Common {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let PortConfig { is_active, is_fast, falls_back, system } = self.config;
        Common {
            system,
            key: self.key().unwrap_or(0),
            state: bit(is_active, state::ACTIVITY)
                | bit(is_fast, state::TIMEOUT)
                | bit(self.members.len() > 1, state::AGGREGATION),
            is_negotiated: self.is_negotiated,
            is_active,
            falls_back,
        }
    }

    /// Changes the settings of the port.
    pub(super) fn configure(&mut self, config: PortConfig) {
        let PortConfig { is_active: _, is_fast: _, falls_back, system } = self.config;
        self.is_stale |= (falls_back, system) != (config.falls_back, config.system);
        self.config = config;
    }

    /// Adds a member, or changes its settings and its carrier.
    pub(super) fn put(
        &mut self,
        (id, name): (SessionId, &str),
        mac: MacAddr,
        link: Link,
        has_carrier: bool,
        now_ms: u64,
    ) {
        let asks = self.config.is_active || self.is_negotiated;
        if self.member(id).is_none() {
            let order = self.members.last().map_or(0, |last| last.order.saturating_add(1));
            let member = Member { has_carrier, order, ..Member::new(id, name) };
            self.places.insert(id, self.members.len());
            self.members.push(member);
            self.key_member = self.key_member.or(Some(id));
            self.is_stale = true;
        }
        let is_active = self.config.is_active;
        let Some(member) = self.member_mut(id) else { return };
        member.mac = mac;
        let is_changed = member.link != link;
        if is_changed {
            member.link = link;
            if asks {
                member.expire(now_ms);
            }
        }
        if member.has_carrier != has_carrier {
            member.has_carrier = has_carrier;
            member.counters.carrier_changed = member.counters.carrier_changed.wrapping_add(1);
            if is_active || member.status == Status::Current {
                member.expire(now_ms);
            }
        }
        self.is_stale |= is_changed;
    }

    /// Adds a member that goes on from a former process, before [`Aggregator::put`]. The choice of members stands once all of
    /// them are back.
    pub(super) fn put_former(&mut self, FormerMember { member, common }: FormerMember) {
        let id = member.id;
        if self.continued as usize != self.members.len() {
            // Others have begun anew: the choice follows them.
            self.members.push(member);
            self.is_stale = true;
        } else {
            self.continued += 1;
            self.members.push(member);
            self.is_stale = self.continued != common.members || !common.stands(&self.config);
        }
        self.is_negotiated |= common.is_negotiated;
        if common.is_key_member || self.key_member.is_none() {
            self.key_member = Some(id);
        }
        self.members.sort_by_key(|member| member.order);
        self.reindex();
    }

    /// Whether attachments must be chosen anew.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Removes a member; returns whether others are left.
    pub(super) fn remove(&mut self, id: SessionId) -> bool {
        self.members.retain(|member| member.id != id);
        self.reindex();
        if self.key_member == Some(id) {
            self.key_member = self.members.first().map(|member| member.id);
        }
        self.is_stale = true;
        !self.members.is_empty()
    }

    /// Follows a change of places.
    fn reindex(&mut self) {
        self.places = self.members.iter().enumerate().map(|(place, member)| (member.id, place)).collect();
        self.members.iter_mut().for_each(|member| member.wakeup_ms = None);
        self.wakeups.clear();
        self.touched.clear();
        self.reviewed = None;
    }

    /// A member receives a payload. `warnings` bounds the lines about bad ones.
    pub(super) fn input(&mut self, id: SessionId, payload: &[u8], now_ms: u64, warnings: &mut Rate) {
        let rx_interval_ms = MISSING * if self.config.is_fast { FAST_MS } else { SLOW_MS };
        let Some(place) = self.places.get(&id).copied() else { return };
        self.touched.push(place);
        let (name, Some(member)) = (&self.name, self.members.get_mut(place)) else { return };
        member.counters.received = member.counters.received.wrapping_add(1);
        let pdu = match Pdu::parse(payload) {
            Parsed::Pdu(pdu) => pdu,
            Parsed::Marker => {
                member.counters.markers = member.counters.markers.wrapping_add(1);
                member.line(LineLevel::Debug, format!("{name}: received a LACP marker PDU."));
                return;
            }
            Parsed::Bad => {
                member.counters.bad = member.counters.bad.wrapping_add(1);
                if warnings.take(now_ms) {
                    let text = format!("{name}: received an unparsable LACP PDU.");
                    member.line(LineLevel::Warning, text);
                }
                return;
            }
        };
        if !member.has_carrier {
            if warnings.take(now_ms) {
                let text = format!("{}: carrier state is DOWN, dropping received LACP PDU.", member.name);
                member.line(LineLevel::Info, text);
            }
            return;
        }
        member.status = Status::Current;
        member.rx_ms = now_ms + rx_interval_ms;
        member.told = pdu.partner;
        if member.partner != pdu.actor {
            member.partner = pdu.actor;
            self.is_stale = true;
        }
    }

    /// Does what is due: ages partners, chooses attachments, and appends the frames to send.
    pub(super) fn run(&mut self, now_ms: u64, mut send: impl FnMut(SessionId, Box<[u8]>)) {
        let due = self.wakeups.iter().take_while(|(at_ms, _)| *at_ms <= now_ms);
        let mut due: Vec<usize> = due.map(|(_, place)| *place).collect();
        for place in &due {
            let Some(member) = self.members.get_mut(*place) else { continue };
            if member.next_timeout_ms().is_some_and(|at_ms| at_ms <= now_ms) {
                let counters = &mut member.counters;
                if member.status == Status::Current {
                    counters.expired = counters.expired.wrapping_add(1);
                    member.expire(now_ms);
                } else {
                    counters.defaulted = counters.defaulted.wrapping_add(1);
                    member.default();
                    self.is_stale = true;
                }
            }
        }
        if std::mem::take(&mut self.is_stale) {
            let before: Vec<bool> = self.members.iter().map(|member| member.is_attached).collect();
            self.attach(now_ms);
            let moved = self.members.iter().zip(before).enumerate();
            let moved = moved.filter(|(_, (member, was_attached))| {
                member.is_attached != *was_attached || !member.lines.is_empty()
            });
            due.extend(moved.map(|(place, _)| place));
        }
        let common = self.common();
        let mut poll = |member: &mut Member| {
            if let Some(frame) = member.poll(&common, now_ms) {
                send(member.id, frame);
            }
        };
        if self.reviewed == Some(common) {
            for place in &due {
                self.members.get_mut(*place).into_iter().for_each(&mut poll);
            }
        } else {
            self.members.iter_mut().for_each(poll);
        }
        self.touched.extend(due);
    }

    /// Chooses the members that carry traffic: those with the partner of the leading member.
    ///
    /// The leading member is the highest ranked of those in use; only without one, of all with a partner. Another partner
    /// thus gains a port only after the former one is lost. Ties go to the member that joined first.
    fn attach(&mut self, now_ms: u64) {
        let common = self.common();
        let in_use = |member: &&Member| member.status == Status::Current && member.is_attached;
        let leading = self.members.iter().filter(in_use).min_by_key(|member| member.rank(&common));
        let mut lead = leading.map(|member| member.partner);
        let kept = lead.map(|partner| partner.system.id);
        let mut best = None;
        for member in &mut self.members {
            member.is_attached = false;
            if member.partner.system.id == common.system.id {
                if self.loop_warnings.take(now_ms) {
                    let name = &member.name;
                    let text =
                        format!("member {name}: Loopback detected. Interface is connected to its own bond");
                    member.line(LineLevel::Warning, text);
                }
                continue;
            }
            if member.status == Status::Defaulted {
                member.is_attached = common.falls_back;
                continue;
            }
            let rank = member.rank(&common);
            member.is_attached = kept.is_none_or(|id| id == member.partner.system.id);
            if kept.is_none() && best.is_none_or(|best| rank < best) {
                best = Some(rank);
                lead = Some(member.partner);
            }
        }
        self.is_negotiated = lead.is_some();
        let Some(lead) = lead else { return };
        for member in &mut self.members {
            let partner = member.partner;
            if common.falls_back && member.status == Status::Defaulted
                || (partner.key, partner.system.id) != (lead.key, lead.system.id)
            {
                member.is_attached = false;
            }
        }
    }

    /// Follows changes: moves the timers of the members, and reports those whose effect changed, or that have lines.
    pub(super) fn review(&mut self, now_ms: u64, mut report: impl FnMut(SessionId, bool)) {
        let common = self.common();
        let mut touched = std::mem::take(&mut self.touched);
        if self.reviewed != Some(common) {
            self.reviewed = Some(common);
            touched = (0..self.members.len()).collect();
        }
        for place in touched {
            let Some(member) = self.members.get_mut(place) else { continue };
            let message = member.next_message_ms(&common, now_ms);
            let wakeup_ms = [message, member.next_timeout_ms()].into_iter().flatten().min();
            let old_ms = std::mem::replace(&mut member.wakeup_ms, wakeup_ms);
            if old_ms != wakeup_ms {
                old_ms.map(|at_ms| self.wakeups.remove(&(at_ms, place)));
                self.wakeups.extend(wakeup_ms.map(|at_ms| (at_ms, place)));
            }
            let effect = Some(member.effect(&common));
            if std::mem::replace(&mut member.reported, effect) != effect {
                report(member.id, true);
            } else if !member.lines.is_empty() {
                report(member.id, false);
            }
        }
    }

    /// Time of the earliest work: 0 is at once, `None` never.
    pub(super) fn next_wakeup(&self) -> Option<u64> {
        if self.is_stale {
            return Some(0);
        }
        self.wakeups.first().map(|(at_ms, _)| *at_ms)
    }
}
