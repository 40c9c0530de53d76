//! The thread `link_protocols`: runs the sessions of all link protocols, and transmits without the main loop.
//!
//! It owns the [`Engines`](l2proto::Engines), and sleeps until the next session is due or a request arrives. Received control
//! packets and counts of received packets come from handlers, by the queue of each session ([`LinkSession`]). Settings,
//! commands and counters of devices come from the main loop; the exporters ask for members of aggregates ([`LinkReader`]).
//! Frames go to a forwarding thread as packet-outs. A session that changes the state of its port changes the translations of
//! the port at once; the main loop learns of it by a [`Report`], for the database and the controllers.
//!
//! The thread starts with the first session. Each round serves a bounded number of sessions and packets, so none waits
//! for a flood of others.

mod saved;
#[cfg(test)]
mod tests;
mod thread;

use crate::instances::Instance;
use crate::slowpath::translating_thread;
use dpif::Provider;
use flow::OfPort;
use l2proto::lacp::MemberFacts;
use l2proto::protocol::{LinkPort, LinkState, Status, TrunkChange};
use l2proto::{Engines, LinkSettings, Protocol};
use ofproto::backer::Backer;
use ofproto::links::{LinkInbox, LinkSession, PortLink};
use ofproto::ports::{BridgeId, Port, PortCounters, PortTable};
use saved::FormerLink;
pub(crate) use saved::SavedSession;
pub(crate) use saved::fuzz_saved_session;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use sync::{AtomicBool, Mutex, Ordering, Parker, Unparker, lock};
use sys::confine::Kind;
use vswitch::plan::{PortEntry, PortSet};
use vswitch::status::TrunkChanges;

/// Name of the thread.
const THREAD: &str = "link_protocols";
/// Longest wait for the thread: it never blocks for long.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Time between two reports of changed sessions to the main loop, as in OVS.
const REPORTS_EVERY_MS: u64 = 100;

/// A session: its interface and its protocol.
pub(crate) type SessionName = (String, Protocol);

/// A session's state, for the main loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// Its status columns.
    pub(crate) status: Status,
    /// Its bridge.
    pub(crate) bridge: BridgeId,
    /// Its port.
    pub(crate) port: OfPort,
    /// Its effect on the port.
    pub(crate) state: LinkState,
}

/// Where the frames of a session go.
#[derive(Clone)]
struct Target {
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
    revalidator: Unparker,
    bridge: BridgeId,
    port: OfPort,
    /// Counters of a port without a device.
    counters: Option<Arc<PortCounters>>,
}

/// A request to the thread.
enum Request {
    /// New or changed sessions, all before the next work: a tree follows all of its ports at once.
    Configure(Vec<Configure>),
    /// A session ends.
    Remove(SessionName),
    /// Report all sessions whose status has statistics.
    Statistics,
    /// Packets received by the devices of sessions that request them.
    Counters(Vec<(SessionName, u64)>),
    /// A command of a protocol, by its number, with its arguments.
    Command(Protocol, usize, Vec<String>, SyncSender<Result<String, String>>),
    /// Values of members of aggregates, by interface.
    Members(Vec<String>, SyncSender<BTreeMap<String, MemberFacts>>),
    /// Answers when all that is due now, and was sent before, is done.
    Pass(SyncSender<()>),
    /// Does what is due, and stops.
    Hold(SyncSender<()>),
    /// Goes on.
    GoOn,
    /// The states of sessions.
    Save(BTreeMap<SessionName, LinkPort>, SyncSender<Vec<SavedSession>>),
    /// States of former sessions, and the milliseconds since; answers with the refused ones.
    Restore(Vec<(SessionName, String)>, u64, SyncSender<Vec<(SessionName, String)>>),
    /// Later states of sessions, and the milliseconds since; answers with the refused ones.
    Renew(Vec<(String, Configure)>, u64, SyncSender<Vec<(SessionName, String)>>),
    /// Forgets states that no session has taken.
    ForgetRestored,
}

struct Configure {
    settings: LinkSettings,
    port: LinkPort,
    target: Target,
    session: Arc<LinkSession>,
    rx_packets: u64,
}

/// State shared by main loop, handlers, exporters and the thread.
struct Shared {
    requests: Mutex<VecDeque<Request>>,
    ready: Mutex<Vec<Arc<LinkSession>>>,
    /// The latest report of each changed session; `None`: the session ended.
    reports: Mutex<BTreeMap<SessionName, Option<Report>>>,
    /// The latest change of each VLAN of an interface's port, with whether it is added.
    trunks: Mutex<TrunkChanges>,
    /// The main loop was woken for reports.
    has_reports: AtomicBool,
    stop: AtomicBool,
    wake_thread: Unparker,
    wake_main: Box<dyn Fn() + Send + Sync>,
    /// The thread answers.
    is_running: AtomicBool,
    /// Called when a port's state changed.
    wake_bonds: Box<dyn Fn() + Send + Sync>,
}

impl LinkInbox for Shared {
    fn ready(&self, session: &Arc<LinkSession>) {
        lock(&self.ready).push(session.clone());
        self.wake_thread.unpark();
    }
}

impl Shared {
    fn send(&self, request: Request) {
        lock(&self.requests).push_back(request);
        self.wake_thread.unpark();
    }

    fn next_request(&self) -> Option<Request> {
        lock(&self.requests).pop_front()
    }

    /// Asks the thread; waits at most [`ASK_LIMIT`].
    ///
    /// # Errors
    /// The thread has ended, or does not answer.
    fn ask<T>(&self, request: impl FnOnce(SyncSender<T>) -> Request) -> Result<T, String> {
        let (answer, answered): (SyncSender<T>, Receiver<T>) = sync_channel(1);
        self.send(request(answer));
        let answer = match self.is_running.load(Ordering::SeqCst) {
            true => answered.recv_timeout(ASK_LIMIT).ok(),
            false => None,
        };
        answer.ok_or_else(|| format!("the thread {THREAD} did not answer"))
    }

    fn report(&self, name: SessionName, report: Option<Report>) {
        lock(&self.reports).insert(name, report);
        self.wake_for_reports();
    }

    fn change_trunks(&self, interface: &str, changes: &[TrunkChange]) {
        let changes = changes.iter().map(|change| ((interface.to_string(), change.vlan), change.is_added));
        lock(&self.trunks).extend(changes);
        self.wake_for_reports();
    }

    fn wake_for_reports(&self) {
        if !self.has_reports.swap(true, Ordering::AcqRel) {
            (self.wake_main)();
        }
    }
}

/// Ends the requests of a thread that ends, for any reason: nobody waits for their answers.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::SeqCst);
        lock(&self.0.requests).clear();
    }
}

/// Reads values of sessions for other threads.
#[derive(Clone)]
pub(crate) struct LinkReader(Arc<Shared>);

impl LinkReader {
    /// Values of the members of aggregates among these interfaces; others have no entry. Waits at most [`ASK_LIMIT`]. Empty
    /// if the thread does not answer, which is logged.
    pub(crate) fn members(&self, interfaces: Vec<String>) -> BTreeMap<String, MemberFacts> {
        if interfaces.is_empty() {
            return BTreeMap::new();
        }
        self.0.ask(|answer| Request::Members(interfaces, answer)).unwrap_or_else(|e| {
            log::error!(target: "sflow", "{e}");
            BTreeMap::new()
        })
    }
}

/// A session as configured.
#[derive(Clone)]
struct Attached {
    settings: LinkSettings,
    port: LinkPort,
    target: Target,
    /// Number of its port in the datapath.
    dp_port: Option<flow::DpPort>,
    session: Arc<LinkSession>,
}

/// The port of a session, from the bridge's ports.
fn link_port(ports: &PortTable, port: &Port) -> LinkPort {
    let local = ports.port(OfPort::LOCAL);
    LinkPort {
        interface: port.name.clone(),
        port: ports.bundles.get(&port.bundle).map_or_else(|| port.name.clone(), |bundle| bundle.name.clone()),
        bridge: local.map(|local| local.name.clone()).unwrap_or_default(),
        of_port: port.of_port,
        mac: port.mac,
        bridge_mac: local.map_or(port.mac, |local| local.mac),
        is_up: !port.link_down && !port.config.port_down,
        speed_mbps: port.features.speed_mbps,
        is_full_duplex: port.features.is_full_duplex(),
    }
}

/// The main loop's side.
pub(crate) struct LinkProtocols {
    shared: Arc<Shared>,
    parker: Option<Parker>,
    thread: Option<JoinHandle<()>>,
    attached: BTreeMap<SessionName, Attached>,
    /// Sessions that use counters of devices.
    counting: BTreeSet<SessionName>,
    next_reports_ms: u64,
    /// Losses of ended sessions.
    lost_before: BTreeMap<Protocol, u64>,
    /// Ports of former sessions, until the present ones are known.
    formers: BTreeMap<SessionName, FormerLink>,
}

impl LinkProtocols {
    /// Without sessions. `wake` is called when [`LinkProtocols::take_reports`] has some.
    /// `wake_bonds` when the state of a port has changed.
    pub(crate) fn new(
        wake: impl Fn() + Send + Sync + 'static,
        wake_bonds: impl Fn() + Send + Sync + 'static,
    ) -> LinkProtocols {
        let parker = Parker::new();
        let shared = Arc::new(Shared {
            requests: Mutex::default(),
            ready: Mutex::default(),
            reports: Mutex::default(),
            trunks: Mutex::default(),
            has_reports: AtomicBool::new(false),
            is_running: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake_thread: parker.unparker().clone(),
            wake_main: Box::new(wake),
            wake_bonds: Box::new(wake_bonds),
        });
        LinkProtocols {
            shared,
            parker: Some(parker),
            thread: None,
            attached: BTreeMap::new(),
            counting: BTreeSet::new(),
            next_reports_ms: 0,
            lost_before: BTreeMap::new(),
            formers: BTreeMap::new(),
        }
    }

    /// A reader for another thread.
    pub(crate) fn reader(&self) -> LinkReader {
        LinkReader(self.shared.clone())
    }

    /// Gives the ports of a bridge their sessions, before the table is published: new, changed and ended ones.
    pub(crate) fn attach(
        &mut self,
        bridge: BridgeId,
        instance: &Instance,
        wanted: &PortSet,
        table: &mut PortTable,
    ) {
        let wanted_links =
            || wanted.ports.iter().flat_map(|entry| entry.links.iter().map(move |link| (entry, link)));
        let names: BTreeSet<(&str, Protocol)> =
            wanted_links().map(|(entry, link)| (entry.name.as_str(), link.protocol())).collect();
        let of_bridge = self.attached.iter().filter(|(_, attached)| attached.target.bridge == bridge);
        let gone: Vec<SessionName> = of_bridge
            .filter(|((name, protocol), _)| !names.contains(&(name.as_str(), *protocol)))
            .map(|(name, _)| name.clone())
            .collect();
        gone.iter().for_each(|name| self.remove(name));
        let mut changed = Vec::new();
        for (entry, settings) in wanted_links() {
            let of_bridge = table.ports.get(&entry.of_port).map(|port| link_port(table, port));
            if let (Some(link_port), Some(port)) = (of_bridge, table.ports.get_mut(&entry.of_port)) {
                let port = Arc::make_mut(port);
                changed.extend(self.attach_one((bridge, instance), entry, settings, link_port, port));
            }
        }
        if !changed.is_empty() {
            self.start();
            self.shared.send(Request::Configure(changed));
        }
    }

    /// Passes changes of carriers and speeds on to the sessions of a bridge.
    pub(crate) fn ports_changed(&mut self, bridge: BridgeId, instance: &Instance, ports: &PortTable) {
        let mut changed = Vec::new();
        for (name, attached) in &mut self.attached {
            let is_here = attached.target.bridge == bridge && !self.formers.contains_key(name);
            let Some(port) = ports.port(attached.port.of_port).filter(|_| is_here) else { continue };
            let port = link_port(ports, port);
            if port == attached.port || port.interface != attached.port.interface {
                continue;
            }
            attached.port = port.clone();
            let rx_packets = match self.counting.contains(name) {
                true => received(instance, attached.dp_port),
                false => 0,
            };
            let (settings, target) = (attached.settings.clone(), attached.target.clone());
            let session = attached.session.clone();
            changed.push(Configure { settings, port, target, session, rx_packets });
        }
        if !changed.is_empty() {
            self.shared.send(Request::Configure(changed));
        }
    }

    /// Requests reports of the sessions whose status has statistics.
    pub(crate) fn request_statistics(&self) {
        let has_statistics =
            |protocol: Protocol| protocol.status_columns().iter().any(|column| column.is_statistics);
        if self.attached.keys().any(|(_, protocol)| has_statistics(*protocol)) {
            self.shared.send(Request::Statistics);
        }
    }

    /// Gives a port a session; returns its change.
    fn attach_one(
        &mut self,
        (bridge, instance): (BridgeId, &Instance),
        entry: &PortEntry,
        settings: &LinkSettings,
        link_port: LinkPort,
        port: &mut Port,
    ) -> Option<Configure> {
        let protocol = settings.protocol();
        let name = (entry.name.clone(), protocol);
        let former = self.formers.get(&name);
        let former_state = former.and_then(|former| former.state(&link_port, settings.initial_state()));
        let link_port = former.map_or(link_port.clone(), |former| former.port(link_port));
        let known = self.attached.get(&name);
        let is_same =
            known.is_some_and(|a| (&a.settings, &a.port, a.target.bridge) == (settings, &link_port, bridge));
        let session = known.map_or_else(
            || Arc::new(LinkSession::new(&entry.name, protocol, self.shared.clone())),
            |known| known.session.clone(),
        );
        let begins_anew = known.is_none_or(|known| {
            known.settings.initial_state() != settings.initial_state() || known.target.bridge != bridge
        });
        if begins_anew {
            // Nothing passes until the thread knows these settings.
            session.set_state(former_state.unwrap_or(settings.initial_state()));
        }
        let rx = settings.rx_use();
        port.links.push(PortLink {
            claim: settings.claim(),
            counts_rx: rx.by_flows,
            gates_traffic: protocol.gates_traffic(),
            session: session.clone(),
        });
        if is_same {
            return None;
        }
        let target = Target {
            backer: instance.backer.clone(),
            datapath: instance.datapath.clone(),
            revalidator: instance.revalidator_unparker(),
            bridge,
            port: entry.of_port,
            counters: port.is_counted_here().then(|| port.counters.clone()),
        };
        let rx_packets = if rx.by_device && target.counters.is_none() {
            self.counting.insert(name.clone());
            received(instance, entry.dp_port)
        } else {
            self.counting.remove(&name);
            0
        };
        let attached = Attached {
            settings: settings.clone(),
            port: link_port.clone(),
            target: target.clone(),
            dp_port: entry.dp_port,
            session: session.clone(),
        };
        self.attached.insert(name, attached);
        Some(Configure { settings: settings.clone(), port: link_port, target, session, rx_packets })
    }

    fn remove(&mut self, name: &SessionName) {
        if let Some(gone) = self.attached.remove(name) {
            *self.lost_before.entry(name.1).or_default() += gone.session.lost();
            self.counting.remove(name);
            self.shared.send(Request::Remove(name.clone()));
        }
    }

    fn start(&mut self) {
        let Some(parker) = self.parker.take() else { return };
        let shared = self.shared.clone();
        shared.is_running.store(true, Ordering::SeqCst);
        let ended = Ended(shared.clone());
        let run = move || {
            let _ended = ended;
            sys::confine::enter(Kind::Links, &[]);
            thread::Runner::new(shared, parker).run();
        };
        // Without a thread, the guard is dropped with the closure.
        match translating_thread(THREAD.to_string()).spawn(run) {
            Ok(thread) => self.thread = Some(thread),
            Err(e) => log::error!(
                target: "bridge",
                "cannot start the thread {THREAD}, so no link protocol runs: {e}"
            ),
        }
    }

    /// Sends counters of devices to sessions that use them.
    pub(crate) fn send_counters<'i>(&self, find: impl Fn(BridgeId) -> Option<&'i Instance>) {
        let counters: Vec<(SessionName, u64)> = self
            .counting
            .iter()
            .filter_map(|name| {
                let attached = self.attached.get(name)?;
                let instance = find(attached.target.bridge)?;
                let view = instance.backer.view();
                let port = view.bridge(attached.target.bridge)?.ports.port(attached.target.port)?.dp_port;
                Some((name.clone(), received(instance, port)))
            })
            .collect();
        if !counters.is_empty() {
            self.shared.send(Request::Counters(counters));
        }
    }

    /// Reports of changed sessions, `None` for an ended one; at most ten times a second, and later after many.
    /// The time of the machine.
    pub(crate) fn take_reports(&mut self, machine_ms: u64) -> BTreeMap<SessionName, Option<Report>> {
        if !self.shared.has_reports.load(Ordering::Acquire) || machine_ms < self.next_reports_ms {
            return BTreeMap::new();
        }
        // A later report wakes again.
        self.shared.has_reports.store(false, Ordering::Release);
        let reports = std::mem::take(&mut *lock(&self.shared.reports));
        // A storm of changes leaves the main loop time for others.
        self.next_reports_ms = machine_ms + REPORTS_EVERY_MS.max(reports.len() as u64);
        reports
    }

    /// Requested changes of the VLANs of ports. Reports wake the main loop for them.
    pub(crate) fn take_trunk_changes(&self) -> TrunkChanges {
        std::mem::take(&mut *lock(&self.shared.trunks))
    }

    /// Milliseconds until reports that wait may be taken.
    pub(crate) fn reports_in_ms(&self, machine_ms: u64) -> Option<u64> {
        let waits = self.shared.has_reports.load(Ordering::Acquire);
        waits.then(|| self.next_reports_ms.saturating_sub(machine_ms))
    }

    /// Executes a command of a protocol ([`Protocol::commands`]), whose number of arguments is checked.
    ///
    /// # Errors
    /// The text of the command's error, or the thread does not answer.
    pub(crate) fn command(
        &self,
        protocol: Protocol,
        command: usize,
        args: &[String],
    ) -> Result<String, String> {
        if self.thread.is_none() {
            let now_ms = sys::clock::monotonic_ms();
            return Engines::default().run(protocol, command, args, now_ms);
        }
        self.shared.ask(|answer| Request::Command(protocol, command, args.to_vec(), answer))?
    }

    /// Waits until the thread has done what is due, and followed all earlier messages: it holds no datapath of an ended
    /// session any more.
    pub(crate) fn pass(&self) {
        if self.thread.is_some()
            && let Err(e) = self.shared.ask(Request::Pass)
        {
            log::error!(target: "bridge", "{e}");
        }
    }

    /// Control packets of a protocol lost because too many of a session waited.
    pub(crate) fn lost(&self, protocol: Protocol) -> u64 {
        let of_protocol = self.attached.iter().filter(|((_, p), _)| *p == protocol);
        let now: u64 = of_protocol.map(|(_, attached)| attached.session.lost()).sum();
        self.lost_before.get(&protocol).copied().unwrap_or(0) + now
    }
}

/// Packets received by a device so far.
fn received(instance: &Instance, port: Option<flow::DpPort>) -> u64 {
    let stats = port.and_then(|port| instance.datapath.port_stats(port).ok());
    stats.map_or(0, |stats| stats.with_device().rx_packets)
}

impl Drop for LinkProtocols {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake_thread.unpark();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ended = thread.join();
        }
    }
}
