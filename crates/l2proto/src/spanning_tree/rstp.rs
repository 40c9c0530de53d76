//! One bridge of IEEE 802.1D-2004, clause 17. `machines` has the state machines of a port, `told` what it told before.
//!
//! The machines run until none moves. A change at one port runs those of the others only if they read it: a repeated message,
//! which is most of the work, costs its own port only.

mod machines;
mod saved;
mod told;

use super::bpdu::{Bpdu, Message, Vector};
use super::config::RstpBridge;
use super::outbox::Outbox;
use crate::protocol::{LearnedChange, SessionId};
use std::collections::BTreeMap;
use told::Told;

/// Log module of the state machines.
const MODULE: &str = "rstp_sm";

/// Seconds between two messages of a designated port: the only value of the standard.
pub(super) const HELLO_S: u16 = 2;
/// Seconds that a port waits for other protocol versions.
const MIGRATE_S: u16 = 3;
/// Interval of the timers.
const TICK_MS: u64 = 1000;
/// Runs of all machines at one time. The standard ends after few; more are an error of this module.
const ROUNDS_MAX: usize = 1000;

/// Role of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Without a carrier, or administratively disabled.
    Disabled,
    /// The way to the root.
    Root,
    /// The way of its network to the root.
    Designated,
    /// Another way to the root.
    Alternate,
    /// Another way of this bridge's own network.
    Backup,
}

/// Origin of a port's information.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Info {
    Disabled,
    Aged,
    Mine,
    Received,
}

/// Place of the topology change machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Topology {
    Inactive,
    Learning,
    Active,
}

/// Times of messages, seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seconds {
    pub(super) message_age: u16,
    pub(super) max_age: u16,
    pub(super) hello: u16,
    pub(super) forward_delay: u16,
}

/// Settings of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortArgs {
    /// Identifier: priority and number.
    pub id: u16,
    /// Cost of its link.
    pub cost: u32,
    /// Whether it has a carrier and is administratively enabled.
    pub is_up: bool,
    /// No bridge is at the port until a message arrives.
    pub admin_edge: bool,
    /// The port detects whether a bridge is there.
    pub auto_edge: bool,
    /// At most one bridge is there.
    pub point_to_point: bool,
    /// Tries the rapid protocol again.
    pub mcheck: bool,
}

/// A port: variables with the names of 17.19.
#[derive(Debug)]
pub struct Port {
    pub(super) args: PortArgs,
    pub(super) info_is: Info,
    pub(super) role: Role,
    pub(super) priority: Vector,
    times: Seconds,
    designated: Vector,
    designated_times: Seconds,
    received: Option<Bpdu>,
    selected_role: Role,
    selected: bool,
    reselect: bool,
    update_info: bool,
    new_info: bool,
    agree: bool,
    agreed: bool,
    proposed: bool,
    proposing: bool,
    disputed: bool,
    sync: bool,
    synced: bool,
    reroot: bool,
    learn: bool,
    forward: bool,
    pub(super) learning: bool,
    pub(super) forwarding: bool,
    topology: Topology,
    rcvd_tc: bool,
    rcvd_tc_ack: bool,
    rcvd_tcn: bool,
    tc_ack: bool,
    tc_prop: bool,
    send_rstp: bool,
    rcvd_rstp: bool,
    rcvd_stp: bool,
    is_sensing: bool,
    mcheck: bool,
    oper_edge: bool,
    tx_count: u16,
    hello_when: u16,
    tc_while: u16,
    fd_while: u16,
    rcvd_info_while: u16,
    rr_while: u16,
    rb_while: u16,
    mdelay_while: u16,
    edge_delay_while: u16,
    told: Told,
    /// A proposal waited until the port may send again.
    was_held: bool,
    /// Seconds since it takes part.
    pub(super) uptime_s: u64,
}

/// A bridge.
#[derive(Debug)]
pub struct Bridge {
    pub(super) settings: RstpBridge,
    /// The best vector, with the cost to here, and the port that received it.
    pub(super) root: Vector,
    pub(super) root_port: Option<SessionId>,
    pub(super) root_times: Seconds,
    pub(super) ports: BTreeMap<SessionId, Port>,
    pub(super) out: Outbox,
    next_tick_ms: u64,
}

fn seconds(units: u16) -> u16 {
    // Part of a second counts as one, so no information lives longer than the sender allows.
    units.div_ceil(256)
}

impl Bridge {
    /// A bridge without ports.
    pub fn new(settings: &RstpBridge, now_ms: u64) -> Bridge {
        let root = Vector { root: settings.id, cost: 0, bridge: settings.id, port: 0 };
        Bridge {
            settings: *settings,
            root,
            root_port: None,
            root_times: settings.seconds(),
            ports: BTreeMap::new(),
            out: Outbox::default(),
            next_tick_ms: now_ms + TICK_MS,
        }
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.root.root == self.settings.id
    }

    /// Changes the settings.
    pub fn configure(&mut self, settings: &RstpBridge) {
        if *settings == self.settings {
            return;
        }
        let begins_anew = settings.is_rapid != self.settings.is_rapid;
        let hold_changed = settings.hold_count != self.settings.hold_count;
        self.settings = *settings;
        let is_rapid = settings.is_rapid;
        for (id, port) in &mut self.ports {
            (port.selected, port.reselect) = (false, true);
            if hold_changed {
                port.tx_count = 0;
            }
            if begins_anew {
                let uptime_s = port.uptime_s;
                *port = Port::new(port.args, is_rapid, settings.seconds());
                port.uptime_s = uptime_s;
                self.out.changed.insert(*id);
            }
        }
        self.settle(None);
    }

    /// Adds a port, or changes its settings.
    pub fn put_port(&mut self, id: SessionId, args: PortArgs) {
        let (is_rapid, times) = (self.settings.is_rapid, self.settings.seconds());
        let port = self.ports.entry(id).or_insert_with(|| Port::new(args, is_rapid, times));
        let old = std::mem::replace(&mut port.args, args);
        if (old.id, old.cost) != (args.id, args.cost) || old.point_to_point != args.point_to_point {
            (port.selected, port.reselect) = (false, true);
        }
        if args.mcheck && !old.mcheck && is_rapid {
            port.mcheck = true;
        }
        if old.admin_edge != args.admin_edge && !args.is_up {
            port.oper_edge = args.admin_edge;
        }
        self.out.changed.insert(id);
        self.settle(None);
    }

    /// Removes a port.
    pub fn remove_port(&mut self, id: SessionId) {
        self.ports.remove(&id);
        for port in self.ports.values_mut() {
            (port.selected, port.reselect) = (false, true);
        }
        if self.ports.is_empty() {
            self.select_roles();
        }
        self.settle(None);
    }

    /// A port receives a BPDU.
    pub fn input(&mut self, id: SessionId, bpdu: &Bpdu) {
        let Some(port) = self.ports.get_mut(&id).filter(|port| port.args.is_up) else { return };
        if let Bpdu::Config(message) = bpdu
            && (message.vector.bridge, message.vector.port) == (self.settings.id, port.args.id)
        {
            return;
        }
        port.receive(bpdu);
        self.settle(Some(id));
    }

    /// `rstp/tcn`: every port reports a change.
    pub fn change_topology(&mut self) {
        for port in self.ports.values_mut() {
            port.rcvd_tc = true;
        }
        self.settle(None);
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms < self.next_tick_ms {
            return;
        }
        // A thread that was late does not make up for the ticks, as in OVS.
        let next_ms = self.next_tick_ms + TICK_MS;
        self.next_tick_ms = if next_ms > now_ms { next_ms } else { now_ms + TICK_MS };
        for port in self.ports.values_mut() {
            port.count_down(self.settings.hold_count);
        }
        self.settle(None);
    }

    /// Time of its next work.
    pub fn next_wakeup(&self) -> Option<u64> {
        (!self.ports.is_empty()).then_some(self.next_tick_ms)
    }

    /// Runs the machines of one port or of all until none moves.
    fn settle(&mut self, only: Option<SessionId>) {
        let mut only = only;
        for _ in 0..ROUNDS_MAX {
            if self.ports.values().any(|port| port.reselect) {
                self.select_roles();
                only = None;
            }
            let mut moved = false;
            let ids: Vec<SessionId> = match only {
                Some(id) => vec![id],
                None => self.ports.keys().copied().collect(),
            };
            for id in ids {
                let step = self.run_port(id);
                moved |= step.moved;
                if step.concerns_others {
                    only = None;
                }
            }
            if !moved && !self.ports.values().any(|port| port.reselect) {
                return;
            }
        }
        log_limit(&mut self.out);
    }

    /// Role selection (17.21.25 and 17.28).
    fn select_roles(&mut self) {
        let own = self.settings.id;
        const ADDRESS: u64 = 0xffff_ffff_ffff;
        let candidates = self.ports.iter().filter(|(_, port)| {
            port.info_is == Info::Received && port.priority.bridge & ADDRESS != own & ADDRESS
        });
        let paths = candidates.map(|(id, port)| {
            let cost = port.priority.cost.saturating_add(port.args.cost);
            (Vector { cost, ..port.priority }, port.args.id, *id, port.times)
        });
        let best = paths.min_by_key(|(vector, port, id, _)| (*vector, *port, *id));
        let mine = Vector { root: own, cost: 0, bridge: own, port: 0 };
        let old_root = self.root_port;
        (self.root, self.root_port, self.root_times) = match best {
            Some((vector, _, id, times)) if vector < mine => {
                (vector, Some(id), Seconds { message_age: times.message_age + 1, ..times })
            }
            _ => (mine, None, self.settings.seconds()),
        };
        let new_was_alternate = self
            .root_port
            .and_then(|id| self.ports.get(&id))
            .is_some_and(|port| port.role == Role::Alternate);
        if let (Some(old), Some(new)) = (old_root, self.root_port)
            && old != new
            && new_was_alternate
        {
            self.out.learned(old, LearnedChange::MoveTo(new));
        }
        let (root, root_port, times) = (self.root, self.root_port, self.root_times);
        for (id, port) in &mut self.ports {
            port.reselect = false;
            port.selected = true;
            port.designated = Vector { root: root.root, cost: root.cost, bridge: own, port: port.args.id };
            port.designated_times = Seconds { hello: HELLO_S, ..times };
            let is_better = port.designated < port.priority;
            (port.selected_role, port.update_info) = match port.info_is {
                Info::Disabled => (Role::Disabled, port.update_info),
                Info::Aged => (Role::Designated, true),
                Info::Mine => {
                    let is_old = (port.priority, port.times) != (port.designated, port.designated_times);
                    (Role::Designated, port.update_info || is_old)
                }
                Info::Received if root_port == Some(*id) => (Role::Root, false),
                Info::Received if is_better => (Role::Designated, true),
                Info::Received if port.priority.bridge & ADDRESS == own & ADDRESS => (Role::Backup, false),
                Info::Received => (Role::Alternate, false),
            };
        }
    }

    /// Whether all ports agree with the root's information (17.20.3). A port that has not taken it over yet (`update_info`)
    /// still has the marks of what it told before.
    fn all_synced(&self) -> bool {
        self.ports.values().all(|port| {
            port.is_settled() && port.role == port.selected_role && (port.synced || port.role == Role::Root)
        })
    }

    /// Whether no other port was the root recently (17.20.10).
    fn rerooted(&self, id: SessionId) -> bool {
        self.ports.iter().all(|(other, port)| *other == id || port.rr_while == 0)
    }

    /// The message that a port sends.
    fn message(&self, port: &Port) -> Message {
        port.message(&self.root_times)
    }
}

fn log_limit(out: &mut Outbox) {
    let text = "the machines of a bridge do not come to rest".to_string();
    out.line(MODULE, crate::protocol::LineLevel::Error, text);
}
