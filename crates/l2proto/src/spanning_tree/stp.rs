//! One bridge of IEEE 802.1D-1998, clause 8, with what Open vSwitch varies: messages age by 1/256 s on each bridge, so rings
//! may be longer than the maximum age in seconds.
//!
//! A timer is the time of its start; its length is that of the moment, as in the standard.

mod saved;

use super::bpdu::{Bpdu, Message, SenderRole, Times, Vector, flag};
use super::config::StpBridge;
use super::outbox::Outbox;
use crate::protocol::{LearnedChange, LineLevel, SessionId};
use std::collections::BTreeMap;

/// Time in which a port sends one configuration message.
const HOLD_MS: u64 = 1000;
/// Rounds of a tick: a timer that is over may make another one so, for instance by the shorter timers of a new root.
const ROUNDS_MAX: usize = 4;

/// State of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Without a carrier.
    Disabled,
    /// Receives messages only.
    Blocking,
    /// On the way to learning.
    Listening,
    /// Learns addresses.
    Learning,
    /// Forwards.
    Forwarding,
}

/// A port with its session's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortArgs {
    /// Identifier: priority and number.
    pub id: u16,
    /// Cost of its link.
    pub cost: u32,
    /// Whether it has a carrier.
    pub is_up: bool,
}

/// A port.
#[derive(Debug)]
pub struct Port {
    pub(super) args: PortArgs,
    pub(super) state: State,
    pub(super) since_ms: u64,
    info: Vector,
    ack: bool,
    config_pending: bool,
    message_age: Option<u64>,
    forward_delay: Option<u64>,
    hold: Option<u64>,
}

/// A bridge.
#[derive(Debug)]
pub struct Bridge {
    pub(super) name: String,
    pub(super) id: u64,
    pub(super) own: Timers,
    pub(super) timers: Timers,
    pub(super) root: u64,
    pub(super) root_cost: u32,
    pub(super) root_port: Option<SessionId>,
    change_detected: bool,
    change: bool,
    hello: Option<u64>,
    notification: Option<u64>,
    change_since: Option<u64>,
    logged_ms: Option<u64>,
    pub(super) ports: BTreeMap<SessionId, Port>,
    pub(super) out: Outbox,
}

/// Lengths of timers, milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timers {
    pub(super) hello_ms: u64,
    pub(super) max_age_ms: u64,
    pub(super) forward_delay_ms: u64,
}

fn units(ms: u64) -> u16 {
    u16::try_from(ms * 256 / 1000).unwrap_or(u16::MAX)
}

fn milliseconds(units: u16) -> u64 {
    u64::from(units) * 1000 / 256
}

/// Whether a timer ends now; it then stops.
fn expires(timer: &mut Option<u64>, length_ms: u64, now_ms: u64) -> bool {
    let ends = timer.is_some_and(|start| now_ms >= start + length_ms);
    if ends {
        *timer = None;
    }
    ends
}

impl Port {
    /// A port that takes no part yet.
    fn disabled(args: PortArgs, now_ms: u64) -> Port {
        Port {
            args,
            state: State::Disabled,
            since_ms: now_ms,
            info: Vector::default(),
            ack: false,
            config_pending: false,
            message_age: None,
            forward_delay: None,
            hold: None,
        }
    }
}

impl Bridge {
    /// A bridge without ports.
    pub fn new(name: &str, settings: &StpBridge, now_ms: u64) -> Bridge {
        let own = settings.timers();
        Bridge {
            name: name.to_string(),
            id: settings.id,
            own,
            timers: own,
            root: settings.id,
            root_cost: 0,
            root_port: None,
            change_detected: false,
            change: false,
            hello: Some(now_ms),
            notification: None,
            change_since: None,
            logged_ms: None,
            ports: BTreeMap::new(),
            out: Outbox::default(),
        }
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.root == self.id
    }

    /// Changes the settings.
    pub fn configure(&mut self, settings: &StpBridge, now_ms: u64) {
        self.own = settings.timers();
        if self.is_root() {
            self.timers = self.own;
        }
        if settings.id == self.id {
            return;
        }
        let was_root = self.is_root();
        let old = std::mem::replace(&mut self.id, settings.id);
        for port in
            self.ports.values_mut().filter(|port| (port.info.bridge, port.info.port) == (old, port.args.id))
        {
            port.info.bridge = settings.id;
        }
        self.update(now_ms);
        self.become_root(was_root, now_ms);
    }

    /// Adds a port, or changes its settings.
    pub fn put_port(&mut self, id: SessionId, args: PortArgs, now_ms: u64) {
        let known = self.ports.get(&id).map(|port| port.args);
        if known == Some(args) {
            return;
        }
        let was_up = known.is_some_and(|known| known.is_up);
        if was_up && !args.is_up {
            self.disable(id, now_ms);
        }
        let bridge = self.id;
        let port =
            self.ports.entry(id).or_insert_with(|| Port::disabled(PortArgs { is_up: false, ..args }, now_ms));
        if port.info.bridge == bridge && port.info.port == port.args.id {
            port.info.port = args.id;
        }
        port.args = args;
        self.out.changed.insert(id);
        if args.is_up && !was_up {
            self.become_designated(id);
            self.set_state(id, State::Blocking, now_ms);
        }
        self.update(now_ms);
    }

    /// Removes a port.
    pub fn remove_port(&mut self, id: SessionId, now_ms: u64) {
        self.disable(id, now_ms);
        self.ports.remove(&id);
        self.update(now_ms);
    }

    fn disable(&mut self, id: SessionId, now_ms: u64) {
        let was_root = self.is_root();
        if self.ports.get(&id).is_none_or(|port| port.state == State::Disabled) {
            return;
        }
        self.become_designated(id);
        self.set_state(id, State::Disabled, now_ms);
        if let Some(port) = self.ports.get_mut(&id) {
            (port.ack, port.config_pending) = (false, false);
            (port.message_age, port.forward_delay, port.hold) = (None, None, None);
        }
        if self.root_port == Some(id) {
            self.root_port = None;
        }
        self.update(now_ms);
        self.become_root(was_root, now_ms);
        self.detect_change(now_ms);
    }

    fn enabled(&self) -> impl Iterator<Item = (SessionId, &Port)> {
        self.ports.iter().filter(|(_, port)| port.state != State::Disabled).map(|(id, port)| (*id, port))
    }

    /// Whether the information of a port is the bridge's own.
    fn is_designated(&self, port: &Port) -> bool {
        (port.info.bridge, port.info.port) == (self.id, port.args.id)
    }

    fn become_designated(&mut self, id: SessionId) {
        let (root, cost, bridge) = (self.root, self.root_cost, self.id);
        if let Some(port) = self.ports.get_mut(&id) {
            port.info = Vector { root, cost, bridge, port: port.args.id };
        }
    }

    /// Selects the root, the designated ports and the states of all ports (8.6.7, 8.6.11).
    fn update(&mut self, now_ms: u64) {
        let candidates =
            self.enabled().filter(|(_, port)| !self.is_designated(port) && port.info.root < self.id);
        let of = |(id, port): (SessionId, &Port)| {
            let cost = port.info.cost.saturating_add(port.args.cost);
            (Vector { cost, ..port.info }, port.args.id, id)
        };
        let best = candidates.map(of).min();
        (self.root, self.root_cost, self.root_port) = match best {
            Some((vector, _, id)) => (vector.root, vector.cost, Some(id)),
            None => (self.id, 0, None),
        };
        let own = |port: &Port| Vector {
            root: self.root,
            cost: self.root_cost,
            bridge: self.id,
            port: port.args.id,
        };
        let is_ours =
            |port: &Port| self.is_designated(port) || port.info.root != self.root || own(port) <= port.info;
        let ours: Vec<SessionId> =
            self.enabled().filter(|(_, port)| is_ours(port)).map(|(id, _)| id).collect();
        for id in ours {
            self.become_designated(id);
        }
        let ids: Vec<SessionId> = self.enabled().map(|(id, _)| id).collect();
        for id in ids {
            let is_root = self.root_port == Some(id);
            let is_ours = self.ports.get(&id).is_some_and(|port| self.is_designated(port));
            let Some(port) = self.ports.get_mut(&id) else { continue };
            if is_root || !is_ours {
                (port.config_pending, port.ack) = (false, false);
            } else {
                port.message_age = None;
            }
            if is_root || is_ours {
                if port.state == State::Blocking {
                    port.forward_delay = Some(now_ms);
                    self.set_state(id, State::Listening, now_ms);
                }
            } else if port.state != State::Blocking {
                let was_in_use = matches!(port.state, State::Learning | State::Forwarding);
                port.forward_delay = None;
                self.set_state(id, State::Blocking, now_ms);
                if was_in_use {
                    self.detect_change(now_ms);
                }
            }
        }
    }

    fn set_state(&mut self, id: SessionId, state: State, now_ms: u64) {
        if let Some(port) = self.ports.get_mut(&id).filter(|port| port.state != state) {
            let uses = |state: State| matches!(state, State::Learning | State::Forwarding);
            if uses(port.state) != uses(state) {
                self.out.learned(id, LearnedChange::FlushBridge);
            }
            let text = format!("STP state changed from {} to {}", port.state.text(), state.text());
            self.out.line_of(id, "ofproto_dpif", LineLevel::Debug, text);
            (port.state, port.since_ms) = (state, now_ms);
            self.out.changed.insert(id);
        }
    }

    /// Begins the work of a root, if the bridge has just become it.
    fn become_root(&mut self, was_root: bool, now_ms: u64) {
        if was_root || !self.is_root() {
            return;
        }
        self.timers = self.own;
        self.detect_change(now_ms);
        self.notification = None;
        self.send_all(now_ms);
        self.hello = Some(now_ms);
    }

    /// A port began or ended to forward, or `stp/tcn`.
    pub fn detect_change(&mut self, now_ms: u64) {
        if self.is_root() {
            self.change = true;
            self.change_since = Some(now_ms);
        } else if !self.change_detected {
            self.send_notification();
            self.notification = Some(now_ms);
        }
        self.change_detected = true;
        self.flush();
        // A flood of notifications is no flood of lines.
        if self.logged_ms.is_none_or(|at_ms| now_ms >= at_ms + HOLD_MS) {
            self.logged_ms = Some(now_ms);
            self.out.line("stp", LineLevel::Info, format!("{}: detected topology change.", self.name));
        }
    }

    fn flush(&mut self) {
        if let Some(id) = self.ports.keys().next() {
            self.out.learned(*id, LearnedChange::FlushBridge);
        }
    }

    fn send_notification(&mut self) {
        if let Some(id) = self.root_port {
            self.out.frames.push((id, Bpdu::Change));
        }
    }

    fn send_all(&mut self, now_ms: u64) {
        let ours = self.enabled().filter(|(_, port)| self.is_designated(port)).map(|(id, _)| id);
        let ours: Vec<SessionId> = ours.collect();
        ours.into_iter().for_each(|id| self.send_config(id, now_ms));
    }

    /// Sends the bridge's information, now or at the end of the hold time (8.6.1).
    fn send_config(&mut self, id: SessionId, now_ms: u64) {
        let heard = self.root_port.and_then(|root| self.ports.get(&root)).and_then(|port| port.message_age);
        let message_age = match self.is_root() {
            true => 0,
            false => units(heard.map_or(0, |since| now_ms.saturating_sub(since))).saturating_add(1),
        };
        let Timers { hello_ms, max_age_ms, forward_delay_ms } = self.timers;
        let (root, cost, bridge, change) = (self.root, self.root_cost, self.id, self.change);
        let Some(port) = self.ports.get_mut(&id) else { return };
        if port.hold.is_some() {
            port.config_pending = true;
            return;
        }
        let max_age = units(max_age_ms);
        if message_age >= max_age {
            return;
        }
        let set = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = set(change, flag::CHANGE) | set(std::mem::take(&mut port.ack), flag::CHANGE_ACK);
        let vector = Vector { root, cost, bridge, port: port.args.id };
        let (hello, forward_delay) = (units(hello_ms), units(forward_delay_ms));
        let times = Times { message_age, max_age, hello, forward_delay };
        port.config_pending = false;
        port.hold = Some(now_ms);
        self.out
            .frames
            .push((id, Bpdu::Config(Message { flags, role: SenderRole::Designated, vector, times })));
    }

    /// A port receives a BPDU.
    pub fn input(&mut self, id: SessionId, bpdu: &Bpdu, now_ms: u64) {
        if self.ports.get(&id).is_none_or(|port| port.state == State::Disabled) {
            return;
        }
        match bpdu {
            // Its receiver treats a message of the newer protocol as one of this protocol.
            Bpdu::Config(message) | Bpdu::Rapid(message) => self.receive(id, message, now_ms),
            Bpdu::Change => {
                if self.ports.get(&id).is_some_and(|port| self.is_designated(port)) {
                    self.detect_change(now_ms);
                    if let Some(port) = self.ports.get_mut(&id) {
                        port.ack = true;
                    }
                    self.send_config(id, now_ms);
                }
            }
        }
    }

    fn receive(&mut self, id: SessionId, message: &Message, now_ms: u64) {
        let Some(port) = self.ports.get(&id) else { return };
        let (new, old) = (&message.vector, &port.info);
        let from_here = (new.root, new.cost, new.bridge) == (old.root, old.cost, old.bridge);
        let supersedes = (new.root, new.cost, new.bridge) < (old.root, old.cost, old.bridge)
            || from_here && (new.bridge != self.id || new.port <= old.port);
        if !supersedes {
            if self.is_designated(port) {
                self.send_config(id, now_ms);
            }
            return;
        }
        let was_root = self.is_root();
        if let Some(port) = self.ports.get_mut(&id) {
            port.info = message.vector;
            port.message_age = Some(now_ms.saturating_sub(milliseconds(message.times.message_age)));
        }
        self.update(now_ms);
        if was_root && !self.is_root() {
            self.hello = None;
            if self.change_detected {
                self.change_since = None;
                self.send_notification();
                self.notification = Some(now_ms);
            }
        }
        if self.root_port == Some(id) {
            let Times { max_age, hello, forward_delay, .. } = message.times;
            // A root of a foreign maker may send any values: none may stop a timer.
            self.timers = Timers {
                hello_ms: milliseconds(hello).max(HOLD_MS),
                max_age_ms: milliseconds(max_age).max(HOLD_MS),
                forward_delay_ms: milliseconds(forward_delay).max(HOLD_MS),
            };
            self.change = message.has(flag::CHANGE);
            if self.change {
                self.flush();
            }
            self.send_all(now_ms);
            if message.has(flag::CHANGE_ACK) {
                self.change_detected = false;
                self.notification = None;
            }
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ms: u64) {
        for _ in 0..ROUNDS_MAX {
            self.expire(now_ms);
            if self.next_wakeup().is_none_or(|at_ms| at_ms > now_ms) {
                return;
            }
        }
    }

    fn expire(&mut self, now_ms: u64) {
        let Timers { hello_ms, max_age_ms, forward_delay_ms } = self.timers;
        if expires(&mut self.hello, hello_ms, now_ms) {
            self.send_all(now_ms);
            self.hello = Some(now_ms);
        }
        if expires(&mut self.notification, self.own.hello_ms, now_ms) {
            self.send_notification();
            self.notification = Some(now_ms);
        }
        if expires(&mut self.change_since, max_age_ms + forward_delay_ms, now_ms) {
            (self.change_detected, self.change) = (false, false);
        }
        let ids: Vec<SessionId> = self.ports.keys().copied().collect();
        for id in ids {
            self.tick_port(id, now_ms);
        }
    }

    fn tick_port(&mut self, id: SessionId, now_ms: u64) {
        let Timers { max_age_ms, forward_delay_ms, .. } = self.timers;
        let Some(port) = self.ports.get_mut(&id) else { return };
        if expires(&mut port.message_age, max_age_ms, now_ms) {
            let was_root = self.is_root();
            self.become_designated(id);
            self.update(now_ms);
            self.become_root(was_root, now_ms);
        }
        let Some(port) = self.ports.get_mut(&id) else { return };
        if expires(&mut port.forward_delay, forward_delay_ms, now_ms) {
            if port.state == State::Listening {
                port.forward_delay = Some(now_ms);
                self.set_state(id, State::Learning, now_ms);
            } else if port.state == State::Learning {
                self.set_state(id, State::Forwarding, now_ms);
                if self.enabled().any(|(_, port)| self.is_designated(port)) {
                    self.detect_change(now_ms);
                }
            }
        }
        let Some(port) = self.ports.get_mut(&id) else { return };
        if expires(&mut port.hold, HOLD_MS, now_ms) && port.config_pending {
            self.send_config(id, now_ms);
        }
    }

    /// Time of its next work.
    pub fn next_wakeup(&self) -> Option<u64> {
        let Timers { hello_ms, max_age_ms, forward_delay_ms } = self.timers;
        let end = |timer: Option<u64>, length_ms: u64| timer.map(|start| start + length_ms);
        let of_port = |port: &Port| {
            let age = end(port.message_age, max_age_ms);
            [age, end(port.forward_delay, forward_delay_ms), end(port.hold, HOLD_MS)]
                .into_iter()
                .flatten()
                .min()
        };
        let own = [
            end(self.hello, hello_ms),
            end(self.notification, self.own.hello_ms),
            end(self.change_since, max_age_ms + forward_delay_ms),
        ];
        own.into_iter().flatten().chain(self.ports.values().filter_map(of_port)).min()
    }

    /// Role of a port.
    pub(super) fn role(&self, id: SessionId, port: &Port) -> &'static str {
        if self.root_port == Some(id) {
            "root"
        } else if port.state == State::Disabled {
            "disabled"
        } else if self.is_designated(port) {
            "designated"
        } else {
            "alternate"
        }
    }
}

impl State {
    /// Name.
    pub fn text(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Blocking => "blocking",
            State::Listening => "listening",
            State::Learning => "learning",
            State::Forwarding => "forwarding",
        }
    }
}
