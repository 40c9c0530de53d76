//! The thread `monitor`: runs the sessions of BFD, and transmits without the main loop.
//!
//! It owns [`Sessions`], and sleeps until the next of them is due or a message arrives. Received control packets and counts
//! of received packets come from handlers, by the queue of each session ([`BfdState`]). Settings, commands and counters of
//! devices come from the main loop. Frames go to a forwarding thread as packet-outs. A session that begins or ceases to
//! forward changes the translations of its port at once; the main loop learns of it by a [`Report`], for the database and
//! the controllers.
//!
//! The thread starts with the first session. Each round serves a bounded number of sessions and packets, so none waits
//! for a flood of others.

#[cfg(test)]
mod tests;
mod thread;

use crate::instances::Instance;
use crate::slowpath::translating_thread;
use dpif::Provider;
use flow::{MacAddr, OfPort};
use l2proto::bfd::Config;
use ofproto::backer::Backer;
use ofproto::bfd::{BfdInbox, BfdPort, BfdState};
use ofproto::ports::{BridgeId, PortCounters, PortTable};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use sync::{AtomicBool, Mutex, Ordering, Parker, Unparker, lock};
use vswitch::config::StringMap;
use vswitch::plan::PortSet;

/// Longest wait for the thread: it never blocks for long.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Time between two looks of the main loop at changed sessions, as in OVS.
const REPORTS_EVERY_MS: u64 = 100;

/// A session's state, for the main loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// The pairs of `bfd_status`.
    pub(crate) status: StringMap,
    /// Its bridge.
    pub(crate) bridge: BridgeId,
    /// Its port.
    pub(crate) port: OfPort,
    /// Whether it lets the port forward.
    pub(crate) forwarding: bool,
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

/// A message to the thread.
enum Message {
    /// A new or changed session.
    Configure(Box<Configure>),
    /// A session ends.
    Remove(String),
    /// Packets received by the devices of sessions that ask for them.
    Counters(Vec<(String, u64)>),
    /// `bfd/show`.
    Show(Option<String>, SyncSender<Result<String, String>>),
    /// `bfd/set-forwarding`.
    SetForwarding(Option<String>, String, SyncSender<Result<String, String>>),
    /// Answers when all that is due now, and was sent before, is done.
    Pass(SyncSender<()>),
}

struct Configure {
    config: Arc<Config>,
    mac: MacAddr,
    target: Target,
    state: Arc<BfdState>,
    rx_packets: u64,
}

/// State shared by main loop, handlers and the thread.
struct Shared {
    messages: Mutex<VecDeque<Message>>,
    ready: Mutex<Vec<Arc<BfdState>>>,
    /// The latest report of each changed session; `None`: the session ended.
    reports: Mutex<BTreeMap<String, Option<Report>>>,
    /// The main loop was woken for reports.
    told: AtomicBool,
    stop: AtomicBool,
    wake_thread: Unparker,
    wake_main: Box<dyn Fn() + Send + Sync>,
}

impl BfdInbox for Shared {
    fn ready(&self, session: &Arc<BfdState>) {
        lock(&self.ready).push(session.clone());
        self.wake_thread.unpark();
    }
}

impl Shared {
    fn send(&self, message: Message) {
        lock(&self.messages).push_back(message);
        self.wake_thread.unpark();
    }

    fn next_message(&self) -> Option<Message> {
        lock(&self.messages).pop_front()
    }

    fn report(&self, name: &str, report: Option<Report>) {
        lock(&self.reports).insert(name.to_string(), report);
        if !self.told.swap(true, Ordering::AcqRel) {
            (self.wake_main)();
        }
    }
}

/// A session as configured.
struct Attached {
    config: Arc<Config>,
    mac: MacAddr,
    bridge: BridgeId,
    port: OfPort,
    state: Arc<BfdState>,
}

/// The main loop's side.
pub(crate) struct Monitor {
    shared: Arc<Shared>,
    parker: Option<Parker>,
    thread: Option<JoinHandle<()>>,
    attached: BTreeMap<String, Attached>,
    /// Sessions with `decay_min_rx`, which need counters of devices.
    decaying: BTreeSet<String>,
    next_reports_ms: u64,
    /// Losses of ended sessions.
    lost_before: u64,
}

impl Monitor {
    /// Without sessions. `wake` is called when [`Monitor::take_reports`] has some.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Monitor {
        let parker = Parker::new();
        let shared = Arc::new(Shared {
            messages: Mutex::default(),
            ready: Mutex::default(),
            reports: Mutex::default(),
            told: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake_thread: parker.unparker().clone(),
            wake_main: Box::new(wake),
        });
        Monitor {
            shared,
            parker: Some(parker),
            thread: None,
            attached: BTreeMap::new(),
            decaying: BTreeSet::new(),
            next_reports_ms: 0,
            lost_before: 0,
        }
    }

    /// Gives the ports of a bridge their sessions, before the table is published: new, changed and ended ones.
    pub(crate) fn attach(
        &mut self,
        bridge: BridgeId,
        instance: &Instance,
        wanted: &PortSet,
        table: &mut PortTable,
    ) {
        let sessions = wanted.ports.iter().filter(|p| p.bfd.is_some());
        let names: BTreeSet<&str> = sessions.map(|p| p.name.as_str()).collect();
        let of_bridge = self.attached.iter().filter(|(_, a)| a.bridge == bridge);
        let gone: Vec<String> =
            of_bridge.map(|(name, _)| name.clone()).filter(|name| !names.contains(name.as_str())).collect();
        gone.iter().for_each(|name| self.remove(name));
        for entry in &wanted.ports {
            let Some(config) = &entry.bfd else { continue };
            let Some(port) = table.ports.get_mut(&entry.of_port) else { continue };
            let known = self.attached.get(&entry.name);
            let same = known.is_some_and(|a| {
                (&a.config, a.mac, a.bridge, a.port) == (config, entry.mac, bridge, entry.of_port)
            });
            let state = known.map_or_else(
                || Arc::new(BfdState::new(&entry.name, self.shared.clone())),
                |known| known.state.clone(),
            );
            let port = Arc::make_mut(port);
            port.bfd = Some(BfdPort {
                claim: config.claim(),
                counts_rx: config.forwarding_if_rx,
                state: state.clone(),
            });
            if same {
                continue;
            }
            let target = Target {
                backer: instance.backer.clone(),
                datapath: instance.datapath.clone(),
                revalidator: instance.revalidator_unparker(),
                bridge,
                port: entry.of_port,
                counters: port.is_counted_here().then(|| port.counters.clone()),
            };
            let decays = config.decay_min_rx_ms > 0 && target.counters.is_none();
            let rx_packets = if decays {
                self.decaying.insert(entry.name.clone());
                received(instance, entry.dp_port)
            } else {
                self.decaying.remove(&entry.name);
                0
            };
            let attached = Attached {
                config: config.clone(),
                mac: entry.mac,
                bridge,
                port: entry.of_port,
                state: state.clone(),
            };
            self.attached.insert(entry.name.clone(), attached);
            self.start();
            let configure = Configure { config: config.clone(), mac: entry.mac, target, state, rx_packets };
            self.shared.send(Message::Configure(Box::new(configure)));
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(gone) = self.attached.remove(name) {
            self.lost_before += gone.state.lost();
            self.decaying.remove(name);
            self.shared.send(Message::Remove(name.to_string()));
        }
    }

    fn start(&mut self) {
        let Some(parker) = self.parker.take() else { return };
        let shared = self.shared.clone();
        let run = move || thread::Runner::new(shared, parker).run();
        match translating_thread("monitor".to_string()).spawn(run) {
            Ok(thread) => self.thread = Some(thread),
            Err(e) => {
                log::error!(target: "bfd", "cannot start the thread monitor, so no session of BFD runs: {e}")
            }
        }
    }

    /// Sends counters of devices to sessions that ask for them.
    pub(crate) fn send_counters<'i>(&self, find: impl Fn(BridgeId) -> Option<&'i Instance>) {
        let counters: Vec<(String, u64)> = self
            .decaying
            .iter()
            .filter_map(|name| {
                let attached = self.attached.get(name)?;
                let instance = find(attached.bridge)?;
                let view = instance.backer.view();
                let port = view.bridge(attached.bridge)?.ports.port(attached.port)?.dp_port;
                Some((name.clone(), received(instance, port)))
            })
            .collect();
        if !counters.is_empty() {
            self.shared.send(Message::Counters(counters));
        }
    }

    /// Reports of changed sessions by interface, `None` for an ended one; at most ten times a second, and later after many. The time of the
    /// machine.
    pub(crate) fn take_reports(&mut self, machine_ms: u64) -> BTreeMap<String, Option<Report>> {
        if !self.shared.told.load(Ordering::Acquire) || machine_ms < self.next_reports_ms {
            return BTreeMap::new();
        }
        // A later report wakes again.
        self.shared.told.store(false, Ordering::Release);
        let reports = std::mem::take(&mut *lock(&self.shared.reports));
        // A storm of changes leaves the main loop time for others.
        self.next_reports_ms = machine_ms + REPORTS_EVERY_MS.max(reports.len() as u64);
        reports
    }

    /// Milliseconds until reports that wait may be taken.
    pub(crate) fn reports_in_ms(&self, machine_ms: u64) -> Option<u64> {
        let waits = self.shared.told.load(Ordering::Acquire);
        waits.then(|| self.next_reports_ms.saturating_sub(machine_ms))
    }

    /// `bfd/show`.
    ///
    /// # Errors
    /// No such session, or the thread does not answer.
    pub(crate) fn show(&self, name: Option<&str>) -> Result<String, String> {
        if self.thread.is_none() {
            return name.map_or_else(|| Ok(String::new()), |_| Err(l2proto::bfd::UnknownSession.to_string()));
        }
        self.ask(|answer| Message::Show(name.map(str::to_string), answer))?
    }

    /// `bfd/set-forwarding`.
    ///
    /// # Errors
    /// The text of the command's error.
    pub(crate) fn set_forwarding(&self, name: Option<&str>, choice: &str) -> Result<String, String> {
        if self.thread.is_none() {
            let mut none = l2proto::bfd::Sessions::default();
            return none.set_forwarding(name, choice).map(str::to_string).map_err(str::to_string);
        }
        self.ask(|answer| Message::SetForwarding(name.map(str::to_string), choice.to_string(), answer))?
    }

    /// Waits until the thread has done what is due, and followed all earlier messages: it holds no datapath of an ended
    /// session any more.
    pub(crate) fn pass(&self) {
        if self.thread.is_some()
            && let Err(e) = self.ask(Message::Pass)
        {
            log::error!(target: "bfd", "{e}");
        }
    }

    /// Control packets lost because too many of a session waited.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_before + self.attached.values().map(|a| a.state.lost()).sum::<u64>()
    }

    fn ask<T>(&self, message: impl FnOnce(SyncSender<T>) -> Message) -> Result<T, String> {
        let (answer, answered): (SyncSender<T>, Receiver<T>) = sync_channel(1);
        self.shared.send(message(answer));
        answered.recv_timeout(ASK_LIMIT).map_err(|_| "the thread monitor did not answer".to_string())
    }
}

/// Packets received by a device so far.
fn received(instance: &Instance, port: Option<flow::DpPort>) -> u64 {
    let stats = port.and_then(|port| instance.datapath.port_stats(port).ok());
    stats.map_or(0, |stats| stats.with_device().rx_packets)
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake_thread.unpark();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ended = thread.join();
        }
    }
}
