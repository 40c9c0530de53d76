//! [`Leaving`]: the running process during a handover.

use super::notes::{self, Note, Sender};
use super::{CHANGE_MAX, MESSAGE_MAX, PREPARATION_MAX, SUCCEEDS, Step};
use crate::config::Program;
use crate::db::Db;
use crate::openflow::BridgeText;
use crate::reactor::Reactor;
use crate::routing::Routing;
use crate::stream::Listener;
use crate::switch::{FlowWalk, GROUPS_AT_ONCE, GroupWalk, Switch};
use crate::turn::Turn;
use dpif::CtExport;
use dpif_netdev::QueuePlace;
use flow::MacAddr;
use mio::Token;
use ofproto::mcast::{MEMBERS_MAX, ROUTERS_MAX};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;
use sys::channel::Channel;
use sys::confine::Kind;

/// Interval of looking for the state file to be complete, and for requests to end.
const LOOK_MS: u64 = 5;
/// Longest wait for requests of OpenFlow connections that are under way, before those connections end with this process.
const SETTLE_MAX_MS: u64 = 200;
/// Steps of a walk over multicast groups: those of the largest table, twice.
const GROUP_STEPS_MAX: usize = 2 * (MEMBERS_MAX + ROUTERS_MAX) / GROUPS_AT_ONCE;

enum Stage {
    /// The state file is being completed, from its start or for the successor.
    Writing(Receiver<io::Result<u64>>),
    /// The successor prepares.
    Preparing,
    /// It gets the connections so far, and the keys of flows.
    Exporting(Receiver<Result<Exports, String>>),
    /// It installs flows.
    Warming(Exports),
    /// It is ready for the change. Requests of OpenFlow connections end, until then at most.
    Settling(Exports, u64),
    /// It forwards.
    Over,
}

impl Stage {
    /// The walks over connections, once the successor has its flows: the thread that sent them is about to end.
    fn exports(self) -> Result<Exports, String> {
        match self {
            Stage::Warming(exports) => Ok(exports),
            Stage::Exporting(exported) => exported.recv_timeout(MESSAGE_MAX).map_err(|e| e.to_string())?,
            Stage::Writing(_) | Stage::Preparing | Stage::Settling(..) | Stage::Over => {
                Err("nothing is exported".to_string())
            }
        }
    }
}

/// Walks over state that changes by packets: first whole, then what changed since.
struct Exports {
    /// Connections of datapaths, by their names.
    connections: Vec<(String, Box<dyn CtExport>)>,
    /// Multicast groups of bridges.
    groups: Vec<GroupWalk>,
}

impl Exports {
    /// Sends connections, and multicast groups behind them.
    fn send(&mut self, channel: &Channel, limit: Duration) -> io::Result<()> {
        for (name, export) in &mut self.connections {
            while let Some(slice) = export.next(notes::CONNECTIONS_ROOM) {
                if !slice.is_empty() {
                    notes::send_connections(channel, name, &slice, limit)?;
                }
            }
        }
        let mut sender = Sender::new(channel, limit);
        for walk in &mut self.groups {
            // After very many removals the walk begins anew.
            for _ in 0..GROUP_STEPS_MAX {
                let (groups, is_last) = walk.next();
                groups.into_iter().try_for_each(|group| sender.add(Note::Group(group)))?;
                if is_last {
                    break;
                }
            }
        }
        sender.flush()
    }
}

/// See the module documentation. Dropped before the change, it ends the successor.
pub(crate) struct Leaving {
    channel: Arc<Channel>,
    child: Child,
    token: Token,
    stage: Stage,
    until_ms: u64,
    began_ms: u64,
    /// State that controllers gave to bridges, as far as the successor has it.
    bridges: BTreeSet<BridgeText>,
    /// Neighbours of tunnels that the successor has, and the number of changes then.
    neighbours: (BTreeMap<(IpAddr, String), MacAddr>, u64),
}

impl Leaving {
    /// Starts the successor from `program`, or from the file that this process was started from, and describes the switch and
    /// the holder of sockets to it. `None`: a port exchanges its sockets; ask again soon.
    ///
    /// # Errors
    /// The switch cannot be handed over, or the program not be started; nothing has changed.
    pub(crate) fn start(
        (own, program): (&Program, Option<&Path>),
        switch: &mut Switch,
        holder: Option<&OwnedFd>,
        reactor: &mut Reactor,
    ) -> Result<Option<Leaving>, String> {
        let Some(lent) = switch.lend()? else { return Ok(None) };
        let (channel, other) = Channel::pair().map_err(|e| format!("cannot make a channel: {e}"))?;
        let file = program.unwrap_or(&own.file);
        let mut command = Program { file: file.to_owned(), ..own.clone() }.command();
        command.stdin(Stdio::from(other)).env(SUCCEEDS, std::process::id().to_string());
        // The watchdog of the service manager watches the successor next.
        command.env_remove("WATCHDOG_PID");
        let child = command.spawn().map_err(|e| format!("{}: cannot be started: {e}", file.display()))?;
        // The other end is now the child's alone.
        drop(command);
        log::info!(target: "handover", "process {} is started from {} to take over", child.id(), file.display());
        let synced = switch.sync_state();
        let token = reactor.watch(channel.fd());
        let now_ms = sys::clock::machine_us() / 1000;
        let mut leaving = Leaving {
            channel: Arc::new(channel),
            child,
            token: *token.as_ref().unwrap_or(&Token(0)),
            stage: Stage::Preparing,
            until_ms: now_ms + PREPARATION_MAX.as_millis() as u64,
            began_ms: now_ms,
            bridges: BTreeSet::new(),
            neighbours: (BTreeMap::new(), 0),
        };
        token.map_err(|e| format!("cannot watch the channel: {e}"))?;
        leaving.stage = Stage::Writing(synced?);
        let mut sender = Sender::new(&leaving.channel, MESSAGE_MAX);
        for datapath in lent {
            let mut described = sender.add(Note::Datapath(datapath.name, datapath.hash_seed));
            for port in datapath.ports {
                described = described.and_then(|()| sender.add(Note::Port(port)));
            }
            described.map_err(|e| format!("the new process takes no description: {e}"))?;
        }
        let sessions = switch.saved_sessions()?;
        let described = sessions.into_iter().try_for_each(|session| sender.add(Note::Session(session)));
        let described = described.and_then(|()| sender.flush());
        // In a message of its own: a version that does not know it skips the descriptor too.
        let holder = holder.map(OwnedFd::try_clone).transpose();
        let described = described.and(holder).and_then(|holder| {
            holder.map(Note::Holder).into_iter().try_for_each(|note| sender.add(note))?;
            sender.flush()
        });
        described.map_err(|e| format!("the new process takes no description: {e}"))?;
        Ok(Some(leaving))
    }

    /// Process id of the successor.
    pub(crate) fn successor(&self) -> u32 {
        self.child.id()
    }

    /// Its channel.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Goes on.
    ///
    /// # Errors
    /// The successor failed, with the reason: this process goes on.
    pub(crate) fn run(
        &mut self,
        switch: &mut Switch,
        db: &mut Db,
        routing: &Routing,
        reactor: &mut Reactor,
    ) -> Result<Step, String> {
        if let Stage::Writing(synced) = &self.stage {
            match synced.try_recv() {
                Ok(Ok(bytes)) => {
                    self.send(Note::State(bytes))?;
                    self.stage = Stage::Preparing;
                }
                Ok(Err(e)) => return Err(format!("the state cannot be written: {e}")),
                Err(TryRecvError::Disconnected) => return Err("the state cannot be written".to_string()),
                Err(TryRecvError::Empty) => {}
            }
        }
        if let Stage::Exporting(exported) = &self.stage {
            match exported.try_recv() {
                Ok(exports) => self.stage = Stage::Warming(exports.map_err(|e| self.broken(&e))?),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err("connections and flows cannot be exported".to_string());
                }
            }
        }
        while let Some(note) = self.receive(Duration::ZERO)? {
            match (note, std::mem::replace(&mut self.stage, Stage::Preparing)) {
                (Note::Ready, Stage::Preparing) => {
                    self.send_bridges(switch, MESSAGE_MAX)?;
                    self.send_routing(routing)?;
                    self.stage = Stage::Exporting(self.export(switch)?);
                }
                (Note::Warm, stage @ (Stage::Exporting(_) | Stage::Warming(_))) => {
                    let until_ms = sys::clock::machine_us() / 1000 + SETTLE_MAX_MS;
                    self.stage = Stage::Settling(stage.exports()?, until_ms);
                }
                (other, _) => return Err(format!("the new process sent at a wrong time: {other}")),
            }
        }
        let now_ms = sys::clock::machine_us() / 1000;
        match std::mem::replace(&mut self.stage, Stage::Preparing) {
            Stage::Settling(exports, until_ms) if now_ms >= until_ms || switch.clients_may_pass() => {
                self.send_neighbours(routing, MESSAGE_MAX)?;
                self.change(switch, db, exports)?;
                self.pass_clients(switch, reactor);
                self.stage = Stage::Over;
                return Ok(Step::Over);
            }
            other => self.stage = other,
        }
        if now_ms >= self.until_ms {
            return Err(format!("the new process was not ready within {} s", PREPARATION_MAX.as_secs()));
        }
        let look_ms = match self.stage {
            Stage::Writing(_) | Stage::Exporting(_) | Stage::Settling(..) => LOOK_MS,
            Stage::Preparing | Stage::Warming(_) | Stage::Over => self.until_ms - now_ms,
        };
        Ok(Step::Going(Turn::at(sys::clock::monotonic_ms() + look_ms)))
    }

    /// Sends connections and multicast groups, twice, and the keys of flows, on a thread of its own. The second pass has those that
    /// changed during the first.
    fn export(&self, switch: &Switch) -> Result<Receiver<Result<Exports, String>>, String> {
        let (connections, groups) = (switch.exports(), switch.group_walks());
        let (mut exports, flows) = (Exports { connections, groups }, switch.flow_walks());
        let (done, exported) = sync_channel(1);
        let channel = self.channel.clone();
        let run = move || {
            sys::confine::enter(Kind::Handover, &[]);
            yield_to_forwarding();
            let sent = [(); 2].iter().try_for_each(|()| exports.send(&channel, MESSAGE_MAX));
            let sent = sent.and_then(|()| send_flows(&channel, &flows));
            // The main loop may have given up.
            let _ = done.send(sent.map(|()| exports).map_err(|e| e.to_string()));
        };
        let thread = std::thread::Builder::new().name("handover".to_string()).spawn(run);
        thread.map(|_| exported).map_err(|e| format!("cannot start a thread: {e}"))
    }

    /// Sends state that controllers gave to bridges, as far as it is new.
    fn send_bridges(&mut self, switch: &mut Switch, limit: Duration) -> Result<(), String> {
        let all: BTreeSet<BridgeText> = switch.saved_bridges().into_iter().collect();
        self.send_all(all.difference(&self.bridges).cloned().map(Note::Bridge), limit)?;
        self.bridges = all;
        Ok(())
    }

    /// Sends settings, routes and neighbours of tunnels, before the flows that use them.
    fn send_routing(&mut self, routing: &Routing) -> Result<(), String> {
        let settings = std::iter::once(Note::Tunnels(routing.tunnel_settings()));
        let routes = routing.routes().by_command().map(|route| Note::Route(Box::new(route)));
        self.send_all(settings.chain(routes), MESSAGE_MAX)?;
        self.send_neighbours(routing, MESSAGE_MAX)
    }

    /// Sends neighbours of tunnels, as far as they are new. Others expire by themselves.
    fn send_neighbours(&mut self, routing: &Routing, limit: Duration) -> Result<(), String> {
        let (changes, all) = {
            let neighbours = routing.neighbours();
            if neighbours.changes() == self.neighbours.1 {
                return Ok(());
            }
            (neighbours.changes(), neighbours.list(sys::clock::monotonic_ms()))
        };
        let known = &mut self.neighbours.0;
        let new = all.into_iter().filter(|n| known.insert((n.ip, n.bridge.clone()), n.mac) != Some(n.mac));
        let new: Vec<_> = new.map(Note::Neighbour).collect();
        self.send_all(new, limit)?;
        self.neighbours.1 = changes;
        Ok(())
    }

    /// Stops receiving, and waits until the successor forwards.
    fn change(&mut self, switch: &mut Switch, db: &mut Db, exports: Exports) -> Result<(), String> {
        switch.hold_sessions()?;
        let began_us = sys::clock::machine_us();
        let places = switch.stop_receiving();
        let mut is_told = false;
        let changed = self.tell_change(switch, db, (places, exports), &mut is_told);
        match &changed {
            Ok(()) => {
                let gap_us = sys::clock::machine_us() - began_us;
                let took_ms = sys::clock::machine_us() / 1000 - self.began_ms;
                log::info!(target: "handover", "process {} forwards: prepared within {took_ms} ms, changed within {gap_us} us", self.child.id());
            }
            Err(_) => {
                // It may receive: two processes must not.
                self.end_child();
                switch.receive_again(is_told);
                switch.listeners(db).for_each(Listener::take_back);
            }
        }
        changed
    }

    /// Passes OpenFlow connections to the successor, which forwards. Those that do not pass end with this process.
    fn pass_clients(&self, switch: &mut Switch, reactor: &mut Reactor) {
        let mut sender = Sender::new(&self.channel, MESSAGE_MAX);
        let mut clients = switch.lend_clients(reactor).into_iter().map(Note::Client);
        let passed = clients.try_for_each(|client| sender.add(client)).and_then(|()| sender.flush());
        // The rest is the end of this process.
        yield_to_forwarding();
        if let Err(e) = passed {
            log::warn!(target: "handover", "OpenFlow connections end: {e}");
        }
    }

    /// Tells the successor to receive, and waits until it does; `is_told`: it may have been told.
    fn tell_change(
        &mut self,
        switch: &mut Switch,
        db: &mut Db,
        (places, mut exports): (Vec<(String, Vec<QueuePlace>)>, Exports),
        is_told: &mut bool,
    ) -> Result<(), String> {
        let synced = switch.sync_state()?;
        let bytes =
            synced.recv_timeout(CHANGE_MAX).map_err(|e| format!("the state cannot be written: {e}"))?;
        let bytes = bytes.map_err(|e| format!("the state cannot be written: {e}"))?;
        exports.send(&self.channel, CHANGE_MAX).map_err(|e| self.broken(&e))?;
        self.send_bridges(switch, CHANGE_MAX)?;
        let sessions = switch.saved_sessions()?;
        let mut sender = Sender::new(&self.channel, CHANGE_MAX);
        let mut described = sessions.into_iter().try_for_each(|session| sender.add(Note::Session(session)));
        for meter in switch.meters() {
            described = described.and_then(|()| sender.add(Note::Meter(meter)));
        }
        for listener in switch.listeners(db) {
            described = described.and_then(|()| {
                listener.lend().and_then(|(target, fd)| sender.add(Note::Listener(target, fd)))
            });
        }
        for (name, places) in places {
            for place in places {
                described = described.and_then(|()| sender.add(Note::Place(name.clone(), place)));
            }
        }
        described.map_err(|e| self.broken(&e))?;
        *is_told = true;
        sender.add(Note::Change(bytes)).and_then(|()| sender.flush()).map_err(|e| self.broken(&e))?;
        match self.receive(CHANGE_MAX)? {
            Some(Note::Forwarding) => Ok(()),
            Some(other) => Err(format!("the new process sent at a wrong time: {other}")),
            None => Err(format!("the new process did not forward within {} s", CHANGE_MAX.as_secs())),
        }
    }

    /// Ends the successor, and waits for its end.
    fn end_child(&mut self) {
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(e) = ended {
            log::warn!(target: "handover", "process {}: {e}", self.child.id());
        }
    }

    fn send(&self, note: Note) -> Result<(), String> {
        self.send_all([note], MESSAGE_MAX)
    }

    fn send_all(&self, notes: impl IntoIterator<Item = Note>, limit: Duration) -> Result<(), String> {
        let mut sender = Sender::new(&self.channel, limit);
        let sent = notes.into_iter().try_for_each(|note| sender.add(note)).and_then(|()| sender.flush());
        sent.map_err(|e| self.broken(&e))
    }

    fn broken(&self, e: &impl Display) -> String {
        // A process that gives up tells why before.
        match self.receive(Duration::ZERO) {
            Err(why) => why,
            Ok(_) => format!("the new process takes no messages: {e}"),
        }
    }

    /// The next note; `None`: none came in that time.
    fn receive(&self, limit: Duration) -> Result<Option<Note>, String> {
        let message = match self.channel.receive(limit) {
            Ok(Some(message)) => message,
            Ok(None) => return Err("the new process ended".to_string()),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return Ok(None),
            Err(e) => return Err(format!("the channel to the new process: {e}")),
        };
        // The successor sends one note a message.
        match notes::read(message).map_err(|e| format!("the new process sent a {e}"))?.pop() {
            Some(Note::Failed(why)) => Err(format!("the new process gave up: {why}")),
            note => Ok(note),
        }
    }
}

/// Has the calling thread yield to threads that forward.
fn yield_to_forwarding() {
    if let Err(e) = sys::priority::yield_for_good() {
        log::warn!(target: "handover", "cannot yield to the threads that forward: {e}");
    }
}

/// Sends the keys of all flows: the successor makes flows of its own from them.
fn send_flows(channel: &Channel, walks: &[FlowWalk]) -> io::Result<()> {
    let mut sender = Sender::new(channel, MESSAGE_MAX);
    let mut sent = Ok(());
    for walk in walks {
        walk.each(|datapath, ufid, core, key| {
            if sent.is_ok() {
                sent = sender.add(Note::Flow(datapath.to_string(), ufid, core, Box::new(key)));
            }
        });
    }
    sent.and_then(|()| sender.add(Note::FlowsEnd)).and_then(|()| sender.flush())
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Over) {
            return;
        }
        self.end_child();
    }
}
