//! The state machines of a port (17.23 to 17.31).

use super::{Bridge, HELLO_S, Info, MIGRATE_S, PortArgs, Role, Seconds, Told, Topology, seconds};
use crate::protocol::{LearnedChange, LineLevel, SessionId};
use crate::spanning_tree::bpdu::{Bpdu, Message, SenderRole, Times, Vector, flag};

use super::Port;

/// Result of one run of a port's machines.
#[derive(Clone, Copy, Default)]
pub(super) struct Step {
    /// A machine moved.
    pub(super) moved: bool,
    /// The machines of other ports read what changed.
    pub(super) concerns_others: bool,
}

impl Step {
    fn of(own: bool, others: bool) -> Step {
        Step { moved: own || others, concerns_others: others }
    }
}

/// How a message compares with the information of its port (17.21.8).
enum Compared {
    SuperiorDesignated,
    RepeatedDesignated,
    InferiorDesignated,
    InferiorRoot,
    Other,
}

impl Port {
    /// A port at its beginning: it discards.
    pub(super) fn new(args: PortArgs, is_rapid: bool, times: Seconds) -> Port {
        Port {
            args,
            info_is: Info::Disabled,
            role: Role::Disabled,
            priority: Vector::default(),
            times,
            designated: Vector::default(),
            designated_times: times,
            received: None,
            selected_role: Role::Disabled,
            selected: false,
            reselect: true,
            update_info: false,
            new_info: true,
            agree: false,
            agreed: false,
            proposed: false,
            proposing: false,
            disputed: false,
            sync: false,
            synced: true,
            reroot: false,
            learn: false,
            forward: false,
            learning: false,
            forwarding: false,
            topology: Topology::Inactive,
            rcvd_tc: false,
            rcvd_tc_ack: false,
            rcvd_tcn: false,
            tc_ack: false,
            tc_prop: false,
            send_rstp: is_rapid,
            rcvd_rstp: false,
            rcvd_stp: false,
            is_sensing: false,
            mcheck: false,
            oper_edge: args.admin_edge,
            tx_count: 0,
            hello_when: HELLO_S,
            tc_while: 0,
            fd_while: times.max_age,
            rcvd_info_while: 0,
            rr_while: 0,
            rb_while: 0,
            mdelay_while: MIGRATE_S,
            edge_delay_while: MIGRATE_S,
            told: Told::default(),
            was_held: false,
            uptime_s: 0,
        }
    }

    /// A second passes. The neighbour's time to answer does not, while a proposal waits because the port sent its share.
    pub(super) fn count_down(&mut self, hold_count: u16) {
        if self.proposing && self.new_info && self.tx_count >= hold_count {
            self.was_held = true;
            self.fd_while += 1;
            self.edge_delay_while += 1;
        }
        self.told.count_down();
        for timer in self.timers() {
            *timer = timer.saturating_sub(1);
        }
        self.uptime_s += 1;
    }

    /// Its timers, seconds, and its count of recent messages (17.17, 17.19.44).
    pub(super) fn timers(&mut self) -> [&mut u16; 9] {
        [
            &mut self.hello_when,
            &mut self.tc_while,
            &mut self.fd_while,
            &mut self.rcvd_info_while,
            &mut self.rr_while,
            &mut self.rb_while,
            &mut self.mdelay_while,
            &mut self.edge_delay_while,
            &mut self.tx_count,
        ]
    }

    /// Reception (17.23).
    pub(super) fn receive(&mut self, bpdu: &Bpdu) {
        self.received = Some(*bpdu);
        let is_rapid = matches!(bpdu, Bpdu::Rapid(_));
        (self.rcvd_rstp, self.rcvd_stp) = (is_rapid, !is_rapid);
        self.oper_edge = false;
        self.edge_delay_while = MIGRATE_S;
    }

    fn forward_delay(&self) -> u16 {
        if self.send_rstp { self.designated_times.hello } else { self.designated_times.forward_delay }
    }

    fn edge_delay(&self) -> u16 {
        if self.args.point_to_point { MIGRATE_S } else { self.designated_times.max_age }
    }

    /// Whether the roles are decided and its information is current.
    pub(super) fn is_settled(&self) -> bool {
        self.selected && !self.update_info
    }

    /// Bridge detection (17.25).
    fn detect_edge(&mut self) -> bool {
        let is_edge = match (self.args.is_up, self.oper_edge) {
            (false, _) => self.args.admin_edge,
            (true, true) => true,
            (true, false) => {
                self.edge_delay_while == 0 && self.args.auto_edge && self.send_rstp && self.proposing
            }
        };
        std::mem::replace(&mut self.oper_edge, is_edge) != is_edge
    }

    /// Protocol migration (17.24).
    fn migrate(&mut self, is_rapid: bool) -> bool {
        let before = (self.send_rstp, self.is_sensing);
        let checks_again = !self.args.is_up
            || self.mcheck
            || is_rapid && !self.send_rstp && self.rcvd_rstp && self.is_sensing;
        if checks_again {
            self.mcheck = false;
            self.is_sensing = false;
            (self.send_rstp, self.mdelay_while) = (is_rapid, MIGRATE_S);
        } else if !self.is_sensing {
            if self.mdelay_while == 0 {
                self.is_sensing = true;
                (self.rcvd_rstp, self.rcvd_stp) = (false, false);
            }
        } else if self.send_rstp && self.rcvd_stp {
            self.is_sensing = false;
            (self.send_rstp, self.mdelay_while) = (false, MIGRATE_S);
        }
        before != (self.send_rstp, self.is_sensing)
    }

    /// Whether information of that origin follows information of the same origin, and is not worse (17.21.1).
    fn is_no_worse(&self, vector: &Vector, origin: Info) -> bool {
        self.info_is == origin && *vector <= self.priority
    }

    fn compare(&self, bpdu: &Bpdu) -> Compared {
        let (Bpdu::Config(message) | Bpdu::Rapid(message)) = bpdu else { return Compared::Other };
        const ADDRESS: u64 = 0xffff_ffff_ffff;
        let (new, old) = (&message.vector, &self.priority);
        let is_same = (*new, times_of(message)) == (*old, self.times);
        // The sender of the information that the port holds may replace it by worse.
        let is_its_sender = (new.bridge & ADDRESS, new.port) == (old.bridge & ADDRESS, old.port);
        match message.role {
            SenderRole::Designated if is_same => Compared::RepeatedDesignated,
            SenderRole::Designated if new < old || is_its_sender => Compared::SuperiorDesignated,
            SenderRole::Designated => Compared::InferiorDesignated,
            _ if new >= old => Compared::InferiorRoot,
            _ => Compared::Other,
        }
    }

    fn record_change(&mut self, bpdu: &Bpdu) {
        match bpdu {
            Bpdu::Change => self.rcvd_tcn = true,
            Bpdu::Config(message) | Bpdu::Rapid(message) => {
                self.rcvd_tc |= message.has(flag::CHANGE);
                self.rcvd_tc_ack |= message.has(flag::CHANGE_ACK);
            }
        }
    }

    fn record_age(&mut self, message: &Message) {
        let times = times_of(message);
        let lives = times.message_age < times.max_age;
        self.rcvd_info_while = if lives { 3 * times.hello } else { 0 };
    }

    /// Port information (17.27), the states in which the port has a carrier.
    fn inform(&mut self, is_rapid: bool) -> bool {
        if self.selected && self.update_info {
            (self.proposing, self.proposed) = (false, false);
            self.agreed = self.agreed && self.is_no_worse(&self.designated, Info::Mine);
            self.synced = self.synced && self.agreed;
            (self.priority, self.times) = (self.designated, self.designated_times);
            self.told.tell(self.designated, self.designated_times.message_age);
            self.update_info = false;
            self.info_is = Info::Mine;
            self.new_info = true;
            return true;
        }
        if self.update_info {
            return false;
        }
        let Some(bpdu) = self.received else {
            let ends = self.info_is == Info::Received && self.rcvd_info_while == 0;
            if ends {
                self.info_is = Info::Aged;
                (self.reselect, self.selected) = (true, false);
            }
            return ends;
        };
        self.received = None;
        let compared = self.compare(&bpdu);
        let (Bpdu::Config(message) | Bpdu::Rapid(message)) = &bpdu else {
            self.record_change(&bpdu);
            return true;
        };
        match compared {
            Compared::SuperiorDesignated => {
                (self.agreed, self.proposing) = (false, false);
                self.proposed |= message.has(flag::PROPOSAL);
                self.record_change(&bpdu);
                // An agreement stands only with better information.
                self.agree = self.agree && self.is_no_worse(&message.vector, Info::Received);
                self.priority = message.vector;
                self.times = times_of(message);
                self.record_age(message);
                self.info_is = Info::Received;
                (self.reselect, self.selected) = (true, false);
            }
            Compared::RepeatedDesignated => {
                self.proposed |= message.has(flag::PROPOSAL);
                self.record_change(&bpdu);
                self.record_age(message);
            }
            Compared::InferiorDesignated => {
                if message.has(flag::LEARNING) && matches!(bpdu, Bpdu::Rapid(_)) {
                    self.disputed = true;
                    self.agreed = false;
                }
            }
            Compared::InferiorRoot => {
                let agrees = is_rapid
                    && self.args.point_to_point
                    && message.has(flag::AGREEMENT)
                    && self.answers(message)
                    && !self.told.is_doubtful();
                self.agreed = agrees;
                self.proposing &= !agrees;
                self.record_change(&bpdu);
            }
            Compared::Other => {}
        }
        true
    }

    /// Whether an agreement is one with what this port tells now. A root port agrees with what it holds: one with another
    /// root or of another age holds older information. With it, a bridge that counts to infinity would close a loop.
    fn answers(&self, message: &Message) -> bool {
        let age = self.designated_times.message_age + 1;
        message.role != SenderRole::Root
            || message.vector.root == self.designated.root && times_of(message).message_age == age
    }

    /// Starts the time in which changes are reported (17.21.7).
    fn start_change(&mut self, root_times: &Seconds) {
        if self.tc_while == 0 {
            if self.send_rstp {
                self.tc_while = self.designated_times.hello + 1;
                self.new_info = true;
            } else {
                self.tc_while = root_times.max_age + root_times.forward_delay;
            }
        }
    }

    /// The message to send.
    pub(super) fn message(&self, root_times: &Seconds) -> Message {
        let set = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = set(self.tc_while != 0, flag::CHANGE);
        let (role, flags) = if self.send_rstp {
            let role = match self.role {
                Role::Disabled => SenderRole::Unknown,
                Role::Root => SenderRole::Root,
                Role::Designated => SenderRole::Designated,
                Role::Alternate | Role::Backup => SenderRole::Alternate,
            };
            let more = set(self.agree, flag::AGREEMENT)
                | set(self.proposing, flag::PROPOSAL)
                | set(self.learning, flag::LEARNING)
                | set(self.forwarding, flag::FORWARDING);
            (role, flags | more)
        } else {
            (SenderRole::Designated, flags | set(self.tc_ack, flag::CHANGE_ACK))
        };
        let units = |seconds: u16| seconds.saturating_mul(256);
        let times = Times {
            message_age: units(root_times.message_age),
            max_age: units(self.designated_times.max_age),
            hello: units(self.designated_times.hello),
            forward_delay: units(self.designated_times.forward_delay),
        };
        Message { flags, role, vector: self.designated, times }
    }
}

/// The times of a message in seconds. A stranger may send anything; a hello time of 0 would end all information.
fn times_of(message: &Message) -> Seconds {
    let Times { message_age, max_age, hello, forward_delay } = message.times;
    Seconds {
        message_age: seconds(message_age),
        max_age: seconds(max_age),
        hello: seconds(hello).max(1),
        forward_delay: seconds(forward_delay),
    }
}

impl Bridge {
    /// Runs the machines of a port once.
    pub(super) fn run_port(&mut self, id: SessionId) -> Step {
        let is_rapid = self.settings.is_rapid;
        let Some(port) = self.ports.get_mut(&id) else { return Step::default() };
        let mut moved = port.detect_edge();
        if !port.args.is_up {
            port.received = None;
            port.edge_delay_while = MIGRATE_S;
            if port.info_is != Info::Disabled {
                (port.proposing, port.proposed, port.agree, port.agreed) = (false, false, false, false);
                port.rcvd_info_while = 0;
                port.info_is = Info::Disabled;
                (port.reselect, port.selected) = (true, false);
                moved = true;
            }
        } else if port.info_is == Info::Disabled {
            port.info_is = Info::Aged;
            (port.reselect, port.selected) = (true, false);
            moved = true;
        } else {
            moved |= port.inform(is_rapid);
        }
        let roles = self.transit(id);
        let states = self.change_state(id);
        let topology = self.track_topology(id);
        let others = roles.concerns_others || topology.concerns_others;
        // A message tells the end of the transitions, not their middle.
        let sent = !roles.moved && self.transmit(id);
        let Some(port) = self.ports.get_mut(&id) else { return Step::default() };
        let migrated = port.migrate(is_rapid);
        Step::of(moved || roles.moved || states || topology.moved || sent || migrated, others)
    }

    /// Port role transitions (17.29).
    fn transit(&mut self, id: SessionId) -> Step {
        let (all_synced, rerooted) = (self.all_synced(), self.rerooted(id));
        let is_rapid = self.settings.is_rapid;
        let Some(port) = self.ports.get_mut(&id).filter(|port| port.is_settled()) else {
            return Step::default();
        };
        if port.role != port.selected_role {
            port.role = port.selected_role;
            match port.role {
                Role::Disabled | Role::Alternate | Role::Backup => {
                    (port.learn, port.forward) = (false, false)
                }
                Role::Root => port.rr_while = port.designated_times.forward_delay,
                Role::Designated => {}
            }
            self.out.changed.insert(id);
            return Step::of(true, true);
        }
        match port.role {
            Role::Disabled => port.rest(port.designated_times.max_age),
            Role::Alternate | Role::Backup => self.transit_alternate(id, all_synced),
            Role::Root => self.transit_root(id, all_synced, rerooted && is_rapid),
            Role::Designated => port.transit_designated(),
        }
    }

    fn transit_alternate(&mut self, id: SessionId, all_synced: bool) -> Step {
        let Some(port) = self.ports.get_mut(&id) else { return Step::default() };
        if port.proposed && !port.agree {
            port.proposed = false;
            self.sync_all();
            return Step::of(true, true);
        }
        if all_synced && !port.agree || port.proposed && port.agree {
            (port.proposed, port.agree, port.new_info) = (false, true, true);
            return Step::of(true, false);
        }
        let backup_s = 2 * port.designated_times.hello;
        if port.role == Role::Backup && port.rb_while != backup_s {
            port.rb_while = backup_s;
            return Step::of(true, false);
        }
        port.rest(port.forward_delay())
    }

    fn transit_root(&mut self, id: SessionId, all_synced: bool, may_hurry: bool) -> Step {
        let Some(port) = self.ports.get_mut(&id) else { return Step::default() };
        let delay = port.designated_times.forward_delay;
        if port.rr_while != delay {
            port.rr_while = delay;
            return Step::of(true, false);
        }
        if port.proposed && !port.agree {
            port.proposed = false;
            self.sync_all();
            return Step::of(true, true);
        }
        if all_synced && !port.agree || port.proposed && port.agree {
            (port.proposed, port.sync, port.agree, port.new_info) = (false, false, true, true);
            return Step::of(true, false);
        }
        if port.agreed && !port.synced || port.sync && port.synced {
            (port.synced, port.sync) = (true, false);
            return Step::of(true, true);
        }
        if !port.forward && !port.reroot {
            self.ports.values_mut().for_each(|port| port.reroot = true);
            return Step::of(true, true);
        }
        if port.forward && port.reroot {
            port.reroot = false;
            return Step::of(true, false);
        }
        let may_go_on = port.fd_while == 0 || may_hurry && port.rb_while == 0;
        if may_go_on && !port.learn {
            port.fd_while = port.forward_delay();
            port.learn = true;
            return Step::of(true, false);
        }
        if may_go_on && !port.forward {
            port.fd_while = 0;
            port.forward = true;
            return Step::of(true, false);
        }
        Step::default()
    }

    /// All ports discard or agree before the bridge answers a proposal.
    fn sync_all(&mut self) {
        self.ports.values_mut().for_each(|port| port.sync = true);
    }

    /// Port state transitions (17.30).
    fn change_state(&mut self, id: SessionId) -> bool {
        let Some(port) = self.ports.get_mut(&id) else { return false };
        let old = (port.learning, port.forwarding);
        port.learning = port.learn;
        port.forwarding = port.learn && port.forward;
        let new = (port.learning, port.forwarding);
        if old == new {
            return false;
        }
        let text = format!("RSTP state changed from {} to {}", state_text(old), state_text(new));
        if old.0 != new.0 {
            self.out.learned(id, LearnedChange::FlushPort);
        }
        self.out.line_of(id, "ofproto_dpif", LineLevel::Debug, text);
        self.out.changed.insert(id);
        true
    }

    /// Topology changes (17.31).
    fn track_topology(&mut self, id: SessionId) -> Step {
        let root_times = self.root_times;
        let Some(port) = self.ports.get_mut(&id) else { return Step::default() };
        let is_active_role = matches!(port.role, Role::Root | Role::Designated);
        match port.topology {
            Topology::Inactive if port.learn => port.topology = Topology::Learning,
            Topology::Inactive => {
                (port.rcvd_tc, port.rcvd_tcn, port.rcvd_tc_ack, port.tc_prop) = (false, false, false, false);
                return Step::default();
            }
            Topology::Learning if is_active_role && port.forward && !port.oper_edge => {
                port.topology = Topology::Active;
                port.start_change(&root_times);
                port.new_info = true;
                self.propagate(id);
                return Step::of(true, true);
            }
            Topology::Learning => {
                (port.rcvd_tc, port.rcvd_tcn, port.rcvd_tc_ack, port.tc_prop) = (false, false, false, false);
                if is_active_role || port.learn || port.learning {
                    return Step::default();
                }
                port.topology = Topology::Inactive;
                (port.tc_while, port.tc_ack) = (0, false);
                self.out.learned(id, LearnedChange::FlushPort);
            }
            Topology::Active if !is_active_role || port.oper_edge => port.topology = Topology::Learning,
            Topology::Active if port.rcvd_tcn || port.rcvd_tc => {
                if port.rcvd_tcn {
                    port.start_change(&root_times);
                }
                port.tc_ack |= port.role == Role::Designated;
                (port.rcvd_tc, port.rcvd_tcn) = (false, false);
                self.propagate(id);
                return Step::of(true, true);
            }
            Topology::Active if port.tc_prop => {
                port.start_change(&root_times);
                port.tc_prop = false;
                self.out.learned(id, LearnedChange::FlushPort);
            }
            Topology::Active if port.rcvd_tc_ack => (port.tc_while, port.rcvd_tc_ack) = (0, false),
            Topology::Active => return Step::default(),
        }
        Step::of(true, false)
    }

    /// Reports a change to all other ports.
    fn propagate(&mut self, from: SessionId) {
        self.ports.iter_mut().filter(|(id, _)| **id != from).for_each(|(_, port)| port.tc_prop = true);
    }

    /// Port transmission (17.26).
    fn transmit(&mut self, id: SessionId) -> bool {
        let hold_count = self.settings.hold_count;
        let Some(port) = self.ports.get_mut(&id).filter(|port| port.is_settled()) else { return false };
        if !port.args.is_up {
            (port.new_info, port.tx_count) = (true, 0);
            return false;
        }
        if port.hello_when == 0 {
            let is_periodic = port.role == Role::Designated || port.role == Role::Root && port.tc_while != 0;
            port.new_info |= is_periodic;
            port.hello_when = port.designated_times.hello;
            return true;
        }
        if !port.new_info || port.tx_count >= hold_count {
            return false;
        }
        let message = self.ports.get(&id).map(|port| self.message(port));
        let (Some(port), Some(message)) = (self.ports.get_mut(&id), message) else { return false };
        let bpdu = match (port.send_rstp, port.role) {
            (true, Role::Disabled) => return false,
            (true, _) => Bpdu::Rapid(message),
            (false, Role::Root) => Bpdu::Change,
            (false, Role::Designated) => Bpdu::Config(message),
            (false, _) => return false,
        };
        port.new_info = false;
        if std::mem::take(&mut port.was_held) && port.proposing && !port.forward {
            port.fd_while = port.forward_delay();
            port.edge_delay_while = port.edge_delay();
        }
        port.tx_count += 1;
        if bpdu != Bpdu::Change {
            port.tc_ack = false;
        }
        self.out.frames.push((id, bpdu));
        true
    }
}

impl Port {
    /// A port that neither learns nor forwards is in step with every decision.
    fn rest(&mut self, delay: u16) -> Step {
        if self.learning || self.forwarding {
            return Step::default();
        }
        let is_at_rest = self.synced && !self.sync && !self.reroot && self.rr_while == 0;
        if is_at_rest && self.fd_while == delay {
            return Step::default();
        }
        self.fd_while = delay;
        (self.synced, self.sync, self.reroot, self.rr_while) = (true, false, false, 0);
        Step::of(true, !is_at_rest)
    }

    fn transit_designated(&mut self) -> Step {
        if !self.forward && !self.agreed && !self.proposing && !self.oper_edge {
            self.proposing = true;
            self.edge_delay_while = self.edge_delay();
            self.new_info = true;
            return Step::of(true, false);
        }
        let discards = !self.learning && !self.forwarding;
        if (discards || self.agreed || self.oper_edge) && !self.synced || self.sync && self.synced {
            (self.rr_while, self.synced, self.sync) = (0, true, false);
            return Step::of(true, true);
        }
        if self.reroot && self.rr_while == 0 {
            self.reroot = false;
            return Step::of(true, false);
        }
        let must_stop = self.sync && !self.synced || self.reroot && self.rr_while != 0 || self.disputed;
        if must_stop && !self.oper_edge && (self.learn || self.forward) {
            (self.learn, self.forward, self.disputed) = (false, false, false);
            self.fd_while = self.forward_delay();
            return Step::of(true, false);
        }
        let may_go_on = (self.fd_while == 0 || self.agreed || self.oper_edge)
            && (self.rr_while == 0 || !self.reroot)
            && !self.sync;
        if may_go_on && !self.learn {
            self.learn = true;
            self.fd_while = self.forward_delay();
            return Step::of(true, false);
        }
        if may_go_on && !self.forward {
            self.forward = true;
            self.fd_while = 0;
            self.agreed = self.send_rstp;
            return Step::of(true, false);
        }
        Step::default()
    }
}

fn state_text((learning, forwarding): (bool, bool)) -> &'static str {
    match (learning, forwarding) {
        (_, true) => "Forwarding",
        (true, false) => "Learning",
        (false, false) => "Discarding",
    }
}
