//! All sessions: one per interface of each bridge with a tree, and the bridges that they form.
//!
//! A change of settings marks the bridge; its ports are numbered and its tree follows with the next work, so a change of
//! many ports is one.

mod saved;

use super::bpdu::Bpdu;
use super::config::{
    BridgeSettings, PortNumber, PortSettings, RSTP_PORT_MAX, Refusal, STP_PORT_MAX, Settings, rstp_cost,
    stp_cost,
};
use super::outbox::Outbox;
use super::{rstp, stp};
use crate::protocol::{
    LineLevel, LinkPort, LinkState, LogLine, Report, SessionId, Status, Transmission, TreePhase, TreeState,
};
use crate::saved::{Former, Formers};
use flow::OfPort;
use saved::continue_tree;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The tree of a bridge.
#[derive(Debug)]
pub(super) enum Tree {
    Stp(stp::Bridge),
    Rstp(rstp::Bridge),
}

impl Tree {
    fn out(&mut self) -> &mut Outbox {
        match self {
            Tree::Stp(bridge) => &mut bridge.out,
            Tree::Rstp(bridge) => &mut bridge.out,
        }
    }

    fn next_wakeup(&self) -> Option<u64> {
        match self {
            Tree::Stp(bridge) => bridge.next_wakeup(),
            Tree::Rstp(bridge) => bridge.next_wakeup(),
        }
    }

    fn remove_port(&mut self, id: SessionId, now_ms: u64) {
        match self {
            Tree::Stp(bridge) => bridge.remove_port(id, now_ms),
            Tree::Rstp(bridge) => bridge.remove_port(id),
        }
    }

    /// State of a port; `None` if it takes no part.
    fn state(&self, id: SessionId) -> Option<TreeState> {
        match self {
            Tree::Stp(bridge) => {
                let phase = match bridge.ports.get(&id)?.state {
                    stp::State::Disabled => TreePhase::Disabled,
                    stp::State::Blocking => TreePhase::Blocking,
                    stp::State::Listening => TreePhase::Listening,
                    stp::State::Learning => TreePhase::Learning,
                    stp::State::Forwarding => TreePhase::Forwarding,
                };
                Some(TreeState { is_rapid: false, phase })
            }
            Tree::Rstp(bridge) => {
                let port = bridge.ports.get(&id)?;
                let phase = match (port.learning, port.forwarding) {
                    (_, true) => TreePhase::Forwarding,
                    (true, false) => TreePhase::Learning,
                    (false, false) => TreePhase::Listening,
                };
                Some(TreeState { is_rapid: true, phase })
            }
        }
    }
}

/// A bridge.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: String,
    /// Order of the commands' output.
    pub(super) since: u64,
    pub(super) members: BTreeSet<SessionId>,
    pub(super) tree: Option<Tree>,
    is_stale: bool,
    status: Status,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) port: LinkPort,
    settings: Settings,
    /// Number in its tree.
    number: Option<u16>,
    refused: Option<Refusal>,
    pub(super) rx: u64,
    pub(super) tx: u64,
    pub(super) errors: u64,
    /// The state of a former process, until the tree follows it.
    former: Option<Former>,
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    by_name: BTreeMap<String, SessionId>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) groups: BTreeMap<String, Group>,
    reports: BTreeMap<SessionId, Report>,
    frames: VecDeque<(SessionId, Transmission)>,
    next_id: u32,
    next_group: u64,
    formers: Formers,
}

fn with_address(id: u64, own: Option<flow::MacAddr>, bridge: flow::MacAddr) -> u64 {
    own.unwrap_or(bridge).0.iter().fold(id >> 48, |id, byte| id << 8 | u64::from(*byte))
}

impl Sessions {
    pub(super) fn find_session(&self, name: &str) -> Option<SessionId> {
        self.by_name.get(name).copied()
    }

    /// Creates or changes a session.
    pub fn put(&mut self, port: &LinkPort, settings: &Settings, now_ms: u64) -> SessionId {
        let known = self.by_name.get(&port.interface).copied();
        let id = known.unwrap_or_else(|| {
            self.next_id += 1;
            SessionId(self.next_id)
        });
        let old = self.sessions.get(&id).map(|session| session.port.bridge.clone());
        if let Some(old) = old.filter(|old| *old != port.bridge) {
            self.leave(&old, id, now_ms);
        }
        self.by_name.insert(port.interface.clone(), id);
        let former = self.formers.take(&port.interface);
        let session = self.sessions.entry(id).or_insert_with(|| {
            let mut session = Session {
                port: port.clone(),
                settings: *settings,
                number: None,
                refused: None,
                rx: 0,
                tx: 0,
                errors: 0,
                former: None,
            };
            former.into_iter().for_each(|former| session.go_on(former));
            session
        });
        (session.port, session.settings) = (port.clone(), *settings);
        let group = self.groups.entry(port.bridge.clone()).or_insert_with(|| {
            self.next_group += 1;
            Group {
                name: port.bridge.clone(),
                since: self.next_group,
                members: BTreeSet::new(),
                tree: None,
                is_stale: true,
                status: Status::new(),
            }
        });
        group.members.insert(id);
        group.is_stale = true;
        self.report(id).status_changed = true;
        id
    }

    /// Removes a session.
    pub fn forget(&mut self, id: SessionId) {
        let Some(gone) = self.sessions.remove(&id) else { return };
        self.by_name.remove(&gone.port.interface);
        self.reports.remove(&id);
        self.leave(&gone.port.bridge, id, 0);
    }

    fn leave(&mut self, bridge: &str, id: SessionId, now_ms: u64) {
        let Some(group) = self.groups.get_mut(bridge) else { return };
        group.members.remove(&id);
        if group.members.is_empty() {
            self.groups.remove(bridge);
        } else {
            // The tree loses the port with the next work, at its time.
            group.is_stale = true;
            if now_ms > 0
                && let Some(tree) = &mut group.tree
            {
                tree.remove_port(id, now_ms);
            }
        }
    }

    fn report(&mut self, id: SessionId) -> &mut Report {
        self.reports.entry(id).or_insert_with(|| Report::of(id))
    }

    /// Bridges with changed settings follow them.
    pub(super) fn refresh(&mut self, now_ms: u64) {
        let stale: Vec<String> =
            self.groups.values().filter(|group| group.is_stale).map(|group| group.name.clone()).collect();
        for name in stale {
            self.refresh_group(&name, now_ms);
            self.collect(&name, now_ms);
        }
    }

    fn refresh_group(&mut self, name: &str, now_ms: u64) {
        let Some(group) = self.groups.get_mut(name) else { return };
        group.is_stale = false;
        let members: Vec<SessionId> = group.members.iter().copied().collect();
        // The latest session has the latest settings of the bridge; all have the same in the end.
        let Some(settings) = members.iter().next_back().and_then(|id| self.sessions.get(id)) else { return };
        let (bridge, mac) = (settings.settings.bridge, settings.port.bridge_mac);
        let numbers = self.number(&members, bridge);
        let take = |id: &SessionId| Some((*id, self.sessions.get_mut(id)?.former.take()?));
        let formers: Vec<(SessionId, Former)> = members.iter().filter_map(take).collect();
        let Some(group) = self.groups.get_mut(name) else { return };
        let Some(numbers) = numbers else {
            let text = format!("bridge {name}: must manually configure all STP port IDs or none, disabling");
            group.tree = None;
            for id in members {
                self.report(id).status_changed = true;
            }
            if let Some(id) = self.groups.get(name).and_then(|group| group.members.first().copied()) {
                let line = LogLine { module: "bridge", level: LineLevel::Error, text };
                self.report(id).lines.push(line);
            }
            return;
        };
        match (bridge, &mut group.tree) {
            (BridgeSettings::Stp(own, mut settings), tree) => {
                settings.id = with_address(settings.id, own, mac);
                match tree {
                    Some(Tree::Stp(_)) => {}
                    _ => *tree = Some(Tree::Stp(stp::Bridge::new(name, &settings, now_ms))),
                }
                let Some(tree) = tree else { return };
                continue_tree(tree, formers, &numbers, now_ms);
                if let Tree::Stp(bridge) = tree {
                    bridge.configure(&settings, now_ms);
                }
            }
            (BridgeSettings::Rstp(own, mut settings), tree) => {
                settings.id = with_address(settings.id, own, mac);
                match tree {
                    Some(Tree::Rstp(_)) => {}
                    _ => *tree = Some(Tree::Rstp(rstp::Bridge::new(&settings, now_ms))),
                }
                let Some(tree) = tree else { return };
                continue_tree(tree, formers, &numbers, now_ms);
                if let Tree::Rstp(bridge) = tree {
                    bridge.configure(&settings);
                }
            }
        }
        let Some(tree) = &mut group.tree else { return };
        let gone: Vec<SessionId> = match tree {
            Tree::Stp(bridge) => {
                bridge.ports.keys().filter(|id| !numbers.contains_key(id)).copied().collect()
            }
            Tree::Rstp(bridge) => {
                bridge.ports.keys().filter(|id| !numbers.contains_key(id)).copied().collect()
            }
        };
        gone.iter().for_each(|id| tree.remove_port(*id, now_ms));
        for (id, number) in numbers {
            let Some(session) = self.sessions.get(&id) else { continue };
            put_port(tree, id, session, number, now_ms);
        }
        for id in members {
            self.report(id).status_changed = true;
        }
    }

    /// The numbers of the ports that take part; `None` if only some have one and the tree needs all or none.
    fn number(&mut self, members: &[SessionId], bridge: BridgeSettings) -> Option<BTreeMap<SessionId, u16>> {
        let is_rapid = matches!(bridge, BridgeSettings::Rstp(..));
        let max = if is_rapid { RSTP_PORT_MAX } else { STP_PORT_MAX };
        let place = |settings: &Settings| match settings.port {
            PortSettings::Stp(place) if !is_rapid => Some(place),
            PortSettings::Rstp(place, _) if is_rapid => Some(place),
            _ => None,
        };
        let taking: Vec<(SessionId, PortNumber)> = members
            .iter()
            .filter_map(|id| self.sessions.get(id).map(|session| (id, session)))
            .filter_map(|(id, session)| Some((*id, place(&session.settings)?)))
            .collect();
        let explicit = taking.iter().filter(|(_, place)| place.number.is_some()).count();
        let is_void = !is_rapid && explicit > 0 && explicit < taking.len();
        let mut used: BTreeMap<u16, SessionId> = BTreeMap::new();
        let mut refused: BTreeMap<SessionId, Refusal> = BTreeMap::new();
        for (id, place) in &taking {
            if let Some(number) = place.number {
                match used.entry(number) {
                    Entry::Vacant(free) => _ = free.insert(*id),
                    Entry::Occupied(_) if is_rapid => {}
                    Entry::Occupied(_) => _ = refused.insert(*id, Refusal::Duplicate(number)),
                }
            }
        }
        let mut numbers: BTreeMap<SessionId, u16> = used.iter().map(|(number, id)| (*id, *number)).collect();
        // Ports keep their number where they can.
        for keeps in [true, false] {
            let mut free = 1..=max;
            for (id, _) in &taking {
                if numbers.contains_key(id) || refused.contains_key(id) {
                    continue;
                }
                let kept = self.sessions.get(id).and_then(|session| session.number);
                let number = match keeps {
                    true => kept.filter(|number| *number <= max && !used.contains_key(number)),
                    false => free.find(|number| !used.contains_key(number)),
                };
                match number {
                    Some(number) => {
                        used.insert(number, *id);
                        numbers.insert(*id, number);
                    }
                    None if !keeps => drop(refused.insert(*id, Refusal::Many)),
                    None => {}
                }
            }
        }
        for id in members {
            let Some(session) = self.sessions.get_mut(id) else { continue };
            session.number = numbers.get(id).copied();
            let refusal = match session.settings.port {
                PortSettings::Refused(refusal) => Some(refusal),
                _ => refused.get(id).copied(),
            };
            if refusal == session.refused {
                continue;
            }
            session.refused = refusal;
            if let Some(refusal) = refusal {
                let (level, text) = refusal.line(&session.port.port, is_rapid);
                self.report(*id).lines.push(LogLine { module: "bridge", level, text });
            }
        }
        (!is_void).then_some(numbers)
    }

    /// Takes frames, lines and changes of a bridge over.
    pub(super) fn collect(&mut self, name: &str, _now_ms: u64) {
        let Some(tree) = self.groups.get_mut(name).and_then(|group| group.tree.as_mut()) else { return };
        let Outbox { frames, changed, learned, lines, lines_lost } = std::mem::take(tree.out());
        let had_news = !frames.is_empty() || !changed.is_empty() || !lines.is_empty() || !learned.is_empty();
        for (id, bpdu) in frames {
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            session.tx += 1;
            let frame = bpdu.frame(session.port.mac);
            let header_bytes = packet::headers::ETH_HEADER_BYTES;
            self.frames.push_back((id, Transmission { frame, header_bytes, oam: false }));
        }
        for id in changed {
            if self.sessions.contains_key(&id) {
                self.report(id).status_changed = true;
            }
        }
        for (id, change) in learned {
            if self.sessions.contains_key(&id) {
                self.report(id).learned.push(change);
            }
        }
        let Some(first) = self.groups.get(name).and_then(|group| group.members.first().copied()) else {
            return;
        };
        self.report(first).lines_lost += lines_lost;
        for (id, mut line) in lines {
            let named =
                id.and_then(|id| self.sessions.get(&id)).map(|session| session.port.interface.clone());
            if let Some(named) = named {
                line.text = format!("port {named}: {}", line.text);
            }
            self.report(id.filter(|id| self.sessions.contains_key(id)).unwrap_or(first)).lines.push(line);
        }
        if had_news {
            self.compare_status(name);
        }
    }

    /// The bridge's own port reports a changed status of the bridge.
    fn compare_status(&mut self, name: &str) {
        let Some(group) = self.groups.get(name) else { return };
        let status = group.tree.as_ref().map(super::text::bridge_status).unwrap_or_default();
        if status == group.status {
            return;
        }
        let local = group
            .members
            .iter()
            .find(|id| self.sessions.get(id).is_some_and(|session| session.port.of_port == OfPort::LOCAL));
        let local = local.copied();
        if let Some(group) = self.groups.get_mut(name) {
            group.status = status;
        }
        if let Some(local) = local {
            self.report(local).status_changed = true;
        }
    }

    /// A session receives a payload.
    pub fn receive(&mut self, id: SessionId, payload: Option<&[u8]>, now_ms: u64) {
        self.refresh(now_ms);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let name = session.port.bridge.clone();
        let Some(tree) = self.groups.get_mut(&name).and_then(|group| group.tree.as_mut()) else { return };
        let is_up = match tree {
            Tree::Stp(bridge) => bridge.ports.get(&id).is_some_and(|port| port.args.is_up),
            Tree::Rstp(bridge) => bridge.ports.get(&id).is_some_and(|port| port.args.is_up),
        };
        if !is_up {
            return;
        }
        let Some(bpdu) = payload.and_then(Bpdu::parse) else {
            session.errors += 1;
            return;
        };
        session.rx += 1;
        match tree {
            Tree::Stp(bridge) => bridge.input(id, &bpdu, now_ms),
            Tree::Rstp(bridge) => bridge.input(id, &bpdu),
        }
        self.collect(&name, now_ms);
    }

    /// Does what is due, and appends frames. Returns whether more are due.
    pub fn serve(&mut self, now_ms: u64, limit: usize, out: &mut Vec<(SessionId, Transmission)>) -> bool {
        self.refresh(now_ms);
        let is_due = |group: &&Group| {
            group.tree.as_ref().and_then(Tree::next_wakeup).is_some_and(|at_ms| at_ms <= now_ms)
        };
        let due: Vec<String> = self.groups.values().filter(is_due).map(|group| group.name.clone()).collect();
        for name in due {
            match self.groups.get_mut(&name).and_then(|group| group.tree.as_mut()) {
                Some(Tree::Stp(bridge)) => bridge.tick(now_ms),
                Some(Tree::Rstp(bridge)) => bridge.tick(now_ms),
                None => continue,
            }
            self.collect(&name, now_ms);
        }
        out.extend(self.frames.drain(..limit.min(self.frames.len())));
        !self.frames.is_empty()
    }

    /// Time of the earliest work.
    pub fn wakes_at(&self) -> Option<u64> {
        if !self.frames.is_empty() || self.groups.values().any(|group| group.is_stale) {
            return Some(0);
        }
        self.groups.values().filter_map(|group| group.tree.as_ref()?.next_wakeup()).min()
    }

    pub(super) fn next_report(&mut self) -> Option<Report> {
        self.reports.pop_first().map(|(_, report)| report)
    }

    /// Effect of a session on its port.
    pub fn state(&self, id: SessionId) -> LinkState {
        let Some(session) = self.sessions.get(&id) else { return LinkState::UP };
        let group = self.groups.get(&session.port.bridge);
        // Settings that the tree has not followed yet stop the port.
        match (group, group.and_then(|group| group.tree.as_ref())) {
            (Some(group), _) if group.is_stale => super::initial_state(&session.settings),
            (_, Some(tree)) => match tree.state(id) {
                Some(tree) => LinkState::of_tree(tree),
                None => LinkState::UP,
            },
            _ => LinkState::UP,
        }
    }

    /// A change of topology by a command, in one bridge or all.
    pub fn change_topology(&mut self, name: Option<&str>, is_rapid: bool, now_ms: u64) -> bool {
        self.refresh(now_ms);
        let chosen: Vec<String> = self.trees(name, is_rapid).map(|group| group.name.clone()).collect();
        for name in &chosen {
            match self.groups.get_mut(name).and_then(|group| group.tree.as_mut()) {
                Some(Tree::Stp(bridge)) => bridge.detect_change(now_ms),
                Some(Tree::Rstp(bridge)) => bridge.change_topology(),
                None => {}
            }
            self.collect(name, now_ms);
        }
        !chosen.is_empty()
    }

    /// The bridges with such a tree, the oldest first.
    pub(super) fn trees(&self, name: Option<&str>, is_rapid: bool) -> impl Iterator<Item = &Group> {
        let has_tree = move |group: &&Group| match &group.tree {
            Some(Tree::Stp(_)) => !is_rapid,
            Some(Tree::Rstp(_)) => is_rapid,
            None => false,
        };
        let mut all: Vec<&Group> = self
            .groups
            .values()
            .filter(has_tree)
            .filter(|group| name.is_none_or(|name| group.name == name))
            .collect();
        all.sort_by_key(|group| group.since);
        all.into_iter()
    }
}

/// Gives a port of a tree its settings.
fn put_port(tree: &mut Tree, id: SessionId, session: &Session, number: u16, now_ms: u64) {
    let LinkPort { is_up, speed_mbps, is_full_duplex, .. } = session.port;
    match (tree, session.settings.port) {
        (Tree::Stp(bridge), PortSettings::Stp(place)) => {
            let cost = place.cost.unwrap_or_else(|| stp_cost(speed_mbps));
            bridge.put_port(id, stp::PortArgs { id: place.priority << 8 | number, cost, is_up }, now_ms);
        }
        (Tree::Rstp(bridge), PortSettings::Rstp(place, more)) => bridge.put_port(
            id,
            rstp::PortArgs {
                id: place.priority << 8 | number,
                cost: place.cost.unwrap_or_else(|| rstp_cost(speed_mbps)),
                is_up,
                admin_edge: more.admin_edge,
                auto_edge: more.auto_edge,
                point_to_point: more.point_to_point.unwrap_or(is_full_duplex),
                mcheck: more.mcheck,
            },
        ),
        _ => {}
    }
}
