//! [`Succession`]: the new process during a handover.

use super::notes::{self, Note};
use super::{MESSAGE_MAX, PREPARATION_MAX, SUCCEEDS, Step};
use crate::inherited::InheritedDatapath;
use crate::link_protocols::SavedSession;
use crate::openflow::LentClient;
use crate::reactor::Reactor;
use crate::routing::Routing;
use crate::switch::{FormerFlow, GroupNote, Inherited, MeterNote, Switch};
use crate::turn::Turn;
use anyhow::{Context as _, Result, bail, ensure};
use dpif_netdev::{Inheritance, LentPort, QueuePlace};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use sys::channel::Channel;
use sys::confine::Kind;
use sys::fdstore::FdStore;
use sys::priority::{self, Lowered};

/// Most flows, sessions and places kept at a time, of each.
const NOTES_MAX: usize = 4 << 20;

/// Longest time of the preparation with low priority.
const YIELDS_MAX: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The configuration is carried out.
    Preparing,
    /// Flows come, then the change.
    Ready,
    /// This process forwards, and the other one ends.
    Forwarding,
}

/// Number of all values.
fn total<T>(by_datapath: &BTreeMap<String, Vec<T>>) -> usize {
    by_datapath.values().map(Vec::len).sum()
}

/// See the module documentation.
pub(crate) struct Succession {
    channel: Channel,
    stage: Stage,
    /// The switch of the other process.
    inherited: Inherited,
    flows: BTreeMap<String, Vec<FormerFlow>>,
    places: BTreeMap<String, Vec<QueuePlace>>,
    /// The way to the holder of sockets.
    holder: Option<OwnedFd>,
    /// Sessions of link protocols at the change.
    sessions: Vec<SavedSession>,
    /// Multicast groups of bridges, in the order of the walks over them.
    groups: Vec<GroupNote>,
    /// Meters of bridges at the change.
    meters: Vec<MeterNote>,
    /// OpenFlow connections, after the change.
    clients: Vec<LentClient>,
    /// Until the change, at most, this process yields to the one that forwards.
    lowered: Option<Lowered>,
}

/// Yields to the process that forwards, for [`YIELDS_MAX`] at most: on a busy processor the preparation would not end.
fn yield_for_a_while() -> io::Result<Option<Lowered>> {
    let lowered = priority::lower()?;
    if let Some(lowered) = lowered {
        let restore = move || {
            std::thread::sleep(YIELDS_MAX);
            // The process confines threads by now.
            sys::confine::enter(Kind::Priority, &[]);
            if let Err(e) = lowered.restore() {
                log::warn!(target: "handover", "cannot take the priority of before: {e}");
            }
        };
        std::thread::Builder::new().name("priority".to_string()).spawn(restore)?;
    }
    Ok(lowered)
}

impl Succession {
    /// The other process, if it started this one to succeed it.
    ///
    /// # Errors
    /// There is no channel to it.
    pub(crate) fn find() -> Result<Option<Succession>> {
        let parent = std::os::unix::process::parent_id().to_string();
        if std::env::var(SUCCEEDS).ok().is_none_or(|pid| pid != parent) {
            return Ok(None);
        }
        let channel = Channel::of_standard_input().context("no channel to the process to succeed")?;
        let lowered = yield_for_a_while().unwrap_or_else(|e| {
            log::warn!(target: "handover", "cannot yield to the process to succeed: {e}");
            None
        });
        Ok(Some(Succession {
            channel,
            stage: Stage::Preparing,
            inherited: Inherited::default(),
            flows: BTreeMap::new(),
            places: BTreeMap::new(),
            holder: None,
            sessions: Vec::new(),
            groups: Vec::new(),
            meters: Vec::new(),
            clients: Vec::new(),
            lowered,
        }))
    }

    /// Receives the description of the switch.
    ///
    /// # Errors
    /// The other process gave up, or described something unknown.
    pub(crate) fn learn(&mut self) -> Result<()> {
        let until = Instant::now() + PREPARATION_MAX;
        let (mut ports, mut sessions) = (Vec::<(String, u64, Vec<LentPort>)>::new(), Vec::new());
        loop {
            let Some(notes) = self.receive(until.saturating_duration_since(Instant::now()))? else {
                bail!("the process to succeed did not describe its switch");
            };
            for note in notes {
                match note {
                    Note::Datapath(name, hash_seed) => ports.push((name, hash_seed, Vec::new())),
                    Note::Port(port) => match ports.last_mut() {
                        Some((_, _, ports)) => ports.push(port),
                        None => bail!("port {} came without a datapath", port.name),
                    },
                    Note::Session(session) => sessions.push(session),
                    Note::Holder(fd) => self.holder = Some(fd),
                    Note::State(bytes) => {
                        let all = ports.into_iter().map(|(name, hash_seed, ports)| {
                            (name, InheritedDatapath { hash_seed, inheritance: Inheritance::new(ports) })
                        });
                        self.inherited = Inherited { datapaths: all.collect(), state_bytes: bytes, sessions };
                        return Ok(());
                    }
                    other => bail!("unexpected from the process to succeed: {other}"),
                }
            }
        }
    }

    /// The holder of the other process's sockets, once.
    pub(crate) fn take_holder(&mut self) -> Option<FdStore> {
        self.holder.take().map(FdStore::of)
    }

    /// The switch of the other process.
    pub(crate) fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// Has the channel wake the main loop.
    pub(crate) fn watch(&mut self, reactor: &mut Reactor) -> io::Result<()> {
        reactor.watch(self.channel.fd()).map(drop)
    }

    /// Tells the other process why this one gives up.
    pub(crate) fn give_up(&self, why: &str) {
        // The other process may be gone.
        let _ = notes::send(&self.channel, Note::Failed(why.to_string()), Duration::ZERO);
    }

    /// OpenFlow connections of the other process, once that has ended.
    pub(crate) fn take_clients(&mut self) -> Vec<LentClient> {
        std::mem::take(&mut self.clients)
    }

    /// Goes on.
    ///
    /// # Errors
    /// The other process ended before the change, or this one cannot take over.
    pub(crate) fn run(
        &mut self,
        switch: &mut Switch,
        routing: &mut Routing,
        reactor: &mut Reactor,
    ) -> Result<Step> {
        if let Some(fault) =
            self.inherited.datapaths.values().find_map(|datapath| datapath.inheritance.fault())
        {
            bail!("{fault}");
        }
        if self.stage == Stage::Preparing && switch.is_prepared() {
            self.tell(Note::Ready)?;
            self.stage = Stage::Ready;
        }
        loop {
            let notes = match (self.receive(Duration::ZERO), self.stage) {
                (Ok(Some(notes)), _) => notes,
                (Ok(None), _) => return Ok(Step::Going(Turn::DONE)),
                // It has ended, in whatever way.
                (Err(_), Stage::Forwarding) => return Ok(Step::Over),
                (Err(e), Stage::Preparing | Stage::Ready) => return Err(e),
            };
            for note in notes {
                self.follow(note, switch, routing, reactor)?;
            }
        }
    }

    fn follow(
        &mut self,
        note: Note,
        switch: &mut Switch,
        routing: &mut Routing,
        reactor: &mut Reactor,
    ) -> Result<()> {
        let stage = if matches!(note, Note::Client(_)) { Stage::Forwarding } else { Stage::Ready };
        ensure!(self.stage == stage, "unexpected from the process to succeed: {note}");
        let control = self.sessions.len() + self.clients.len() + self.groups.len() + self.meters.len();
        let kept = control.max(total(&self.flows)).max(total(&self.places));
        ensure!(kept < NOTES_MAX, "too much from the process to succeed: {note}");
        match note {
            Note::Flow(datapath, ufid, core, key) => {
                self.flows.entry(datapath).or_default().push((ufid, core, *key));
            }
            Note::FlowsEnd => {
                switch.inherit_groups(std::mem::take(&mut self.groups));
                switch.inherit_flows(std::mem::take(&mut self.flows));
                self.tell(Note::Warm)?;
            }
            Note::Connections(datapath, slice) => switch.inherit_connections(&datapath, &slice),
            Note::Session(session) => self.sessions.push(session),
            Note::Place(datapath, place) => self.places.entry(datapath).or_default().push(place),
            Note::Listener(target, fd) => drop(reactor.lent.insert(target, fd)),
            Note::Bridge(saved) => switch.inherit_bridge(&saved)?,
            Note::Tunnels(settings) => routing.inherit_tunnel_settings(settings),
            Note::Route(route) => {
                let network = route.prefix;
                if let Err(e) = routing.add_user_route(&route, network.address()) {
                    log::warn!(target: "handover", "the route to {network} that a command made: {e}");
                }
            }
            Note::Meter(meter) => self.meters.push(meter),
            Note::Group(group) => {
                if group.entry.is_none() {
                    self.groups.retain(|of| of.bridge != group.bridge);
                }
                self.groups.push(group);
            }
            Note::Neighbour(neighbour) => routing.inherit_neighbour(&neighbour),
            Note::Client(client) => self.clients.push(client),
            Note::Change(bytes) => {
                if let Some(lowered) = self.lowered.take() {
                    lowered.restore().context("cannot take the priority of before")?;
                }
                switch.inherit_groups(std::mem::take(&mut self.groups));
                switch.take_over(bytes, &self.places, std::mem::take(&mut self.sessions), &self.meters)?;
                self.tell(Note::Forwarding)?;
                self.stage = Stage::Forwarding;
            }
            other => bail!("unexpected from the process to succeed: {other}"),
        }
        Ok(())
    }

    fn tell(&self, note: Note) -> Result<()> {
        notes::send(&self.channel, note, MESSAGE_MAX).context("the process to succeed takes no messages")
    }

    /// The next notes; `None`: none came in that time.
    fn receive(&self, limit: Duration) -> Result<Option<Vec<Note>>> {
        match self.channel.receive(limit) {
            Ok(Some(message)) => Ok(Some(notes::read(message).context("the process to succeed sent a")?)),
            Ok(None) => bail!("the process to succeed has ended"),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Ok(None),
            Err(e) => Err(e).context("the channel to the process to succeed"),
        }
    }
}
