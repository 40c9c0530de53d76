//! Flow offload: a partial cache of megaflows in front of the datapath, in the devices of ports.
//!
//! A port's device may have a provider ([`FlowOffload`]). The thread `hw_offload` owns all providers and rules
//! ([`rules`]). Cores send it each put of a flow from such a port, and it may refuse; the core's own table always
//! holds the flow, so a refused or removed rule changes only the speed of the traffic.
//!
//! Invariants:
//! - Requests are one queue in order of arrival: a rule is removed before the answer that reports its flow gone.
//! - Answers to operations on flows pass through the thread, which adds the counters of devices. So counters are
//!   exact, final ones included, and nothing is shared but the queue.
//! - Puts that wait are bounded for each core ([`PUTS_WAITING_MAX`]); others are as many as operations in flight and
//!   flows of the cores.
//!
//! Without a provider a core tests one flag per batch of operations, and the thread does not exist.

mod core;
pub(crate) mod dummy;
mod latency;
mod rules;
#[cfg(test)]
mod tests;

pub(crate) use self::core::CoreOffload;
pub(crate) use rules::{Answer, Kind};

use super::pmd::Purged;
use datapath::DpShared;
use dpif::{DpAction, FlowPut, FlowRecord, FlowStats, OffloadLayer, OffloadStats, PmdId, PortInfo};
use flow::{DpPort, FlowKey, KeyMask};
use netdev::dummy::Dummy;
use rules::Rules;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Parker, ReplyRing, Snapshot, Unparker, lock,
};

/// Maximum waiting puts of a core; more are refused.
pub(crate) const PUTS_WAITING_MAX: usize = 1024;

/// Names a rule of a provider, unique in its datapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RuleId(pub u64);

/// A flow to offload.
#[derive(Debug)]
pub struct OffloadRule<'a> {
    /// Its name. A put under the name of an existing rule replaces its actions.
    pub id: RuleId,
    /// For received packets that match: with it the datapath finds the flow without a lookup. Never 0; other rules
    /// may have the same.
    pub mark: u32,
    /// The match.
    pub key: &'a FlowKey,
    /// Its mask.
    pub mask: &'a KeyMask,
    /// Actions.
    pub actions: &'a [DpAction],
}

/// The part of a flow's work that a device accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// It marks packets and passes them on.
    Marks,
    /// It executes the actions; the datapath gets none of the packets.
    Executes(OffloadLayer),
}

/// Offloads the flows of one port. The thread `hw_offload` calls; calls may wait for the device.
pub trait FlowOffload: Send {
    /// Its name in the log.
    fn name(&self) -> &'static str;

    /// Adds or replaces a rule; `None` refuses it. A refused replacement keeps the previous rule until
    /// [`FlowOffload::del`].
    fn put(&mut self, rule: &OffloadRule<'_>) -> Option<Accepted>;

    /// Removes a rule; returns its last counters, if it has any.
    fn del(&mut self, id: RuleId) -> Option<FlowStats>;

    /// Counters of a rule since its first put; `None` without any. They never decrease. Rules without counters are
    /// displayed as not offloaded.
    fn stats(&mut self, id: RuleId) -> Option<FlowStats>;

    /// Rules counted as inserted in `dpctl/offload-stats-show`.
    fn inserted(&self) -> u64;
}

/// A port that may have a provider.
pub struct Candidate<'a> {
    /// Number, name and type.
    pub info: &'a PortInfo,
    /// Its control handle, for a dummy.
    pub dummy: Option<&'a Dummy>,
    /// State of its datapath.
    pub shared: &'a Arc<DpShared>,
}

type Choose = dyn Fn(&Candidate<'_>) -> Option<Box<dyn FlowOffload>> + Send + Sync;

/// Chooses the provider of a port. By default dummies mark packets, and other ports have none.
#[derive(Clone)]
pub struct Providers(Arc<Choose>);

impl Providers {
    /// Providers by `choose`.
    pub fn new(
        choose: impl Fn(&Candidate<'_>) -> Option<Box<dyn FlowOffload>> + Send + Sync + 'static,
    ) -> Providers {
        Providers(Arc::new(choose))
    }
}

impl Default for Providers {
    fn default() -> Providers {
        Providers::new(|port| {
            let dummy = port.dummy?.clone();
            Some(Box::new(dummy::DummyOffload::new(dummy, port.info.number, port.shared.clone())))
        })
    }
}

impl fmt::Debug for Providers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Providers")
    }
}

/// A request to the thread.
enum Request {
    /// A core put a flow.
    Put(PmdId, Box<Put>),
    /// A core executed operations on flows; their answer.
    Answer(Box<Answer>),
    /// Flows ended with their port or core.
    Ended(PmdId, Vec<FlowRecord>),
    /// A port gets a provider, or `None` and loses the one it has.
    Port(DpPort, Option<Box<dyn FlowOffload>>, SyncSender<()>),
    /// Tell when everything before is done.
    Sync(SyncSender<()>),
    /// End.
    Stop,
}

/// A put under way.
struct Put {
    flow: FlowPut,
    mark: u32,
    queued_us: u64,
    /// Waiting puts of its core.
    waiting: Arc<AtomicUsize>,
}

/// The thread, seen from others.
struct Running {
    unparker: Unparker,
    join: JoinHandle<()>,
}

/// Flow offload of a datapath: requests to its thread, and the set of ports with a provider.
pub(crate) struct Offloads {
    /// Set with the first provider, for good.
    on: AtomicBool,
    /// Ports with a provider.
    ports: Snapshot<BTreeSet<DpPort>>,
    requests: ReplyRing<Request>,
    unparker: Snapshot<Option<Unparker>>,
    /// Waiting puts.
    enqueued: AtomicU64,
    /// Puts refused because too many of their core waited.
    queue_full: AtomicU64,
    /// The thread has ended: senders carry out their requests themselves, without rules.
    ended: AtomicBool,
    purged: Arc<Purged>,
    /// Whether ports get providers (`other_config:hw-offload`).
    enabled: AtomicBool,
    stats: Mutex<OffloadStats>,
    running: Mutex<Option<Running>>,
    providers: Providers,
}

impl Offloads {
    /// Without providers. The last statistics of ended flows go to `purged`.
    pub(crate) fn new(purged: Arc<Purged>, providers: Providers) -> Arc<Offloads> {
        Arc::new(Offloads {
            on: AtomicBool::new(false),
            ports: Snapshot::new(BTreeSet::new()),
            requests: ReplyRing::default(),
            unparker: Snapshot::new(None),
            enqueued: AtomicU64::new(0),
            queue_full: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            purged,
            enabled: AtomicBool::new(false),
            stats: Mutex::default(),
            running: Mutex::default(),
            providers,
        })
    }

    /// Gives ports providers from now on.
    pub(crate) fn enable(&self) {
        self.enabled.store(true, Ordering::Relaxed);
    }

    /// Whether ports get providers.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Statistics; `None` if disabled.
    pub(crate) fn stats(&self) -> Option<OffloadStats> {
        let mut stats = self.is_enabled().then(|| *lock(&self.stats))?;
        stats.enqueued = self.enqueued.load(Ordering::Relaxed);
        stats.refused += self.queue_full.load(Ordering::Relaxed);
        Some(stats)
    }

    /// Whether a port has, or had, a provider.
    fn is_on(&self) -> bool {
        self.on.load(Ordering::SeqCst)
    }

    /// Gives a new port the provider of its device, if it has one.
    pub(crate) fn port_add(self: &Arc<Offloads>, port: &Candidate<'_>) {
        if !self.is_enabled() || self.ports.load().contains(&port.info.number) {
            return;
        }
        let Some(provider) = (self.providers.0)(port) else { return };
        if let Err(e) = self.start() {
            let name = &port.info.name;
            log::error!(target: "netdev_offload", "{name}: cannot start the offload thread: {e}; its flows are not offloaded");
            return;
        }
        log::info!(target: "netdev_offload", "{}: Assigned flow API '{}'.", port.info.name, provider.name());
        let number = port.info.number;
        self.change_port(number, Some(provider));
        let mut ports = BTreeSet::clone(&self.ports.load());
        ports.insert(number);
        self.ports.store(ports.into());
        self.on.store(true, Ordering::SeqCst);
    }

    /// Removes the rules of a port; returns once its device has none. No core has flows of it any more.
    pub(crate) fn port_del(&self, port: DpPort) {
        if !self.ports.load().contains(&port) {
            return;
        }
        let mut ports = BTreeSet::clone(&self.ports.load());
        ports.remove(&port);
        self.ports.store(ports.into());
        self.change_port(port, None);
    }

    fn change_port(&self, port: DpPort, provider: Option<Box<dyn FlowOffload>>) {
        self.send_and_wait(|done| Request::Port(port, provider, done));
    }

    fn send_and_wait(&self, request: impl FnOnce(SyncSender<()>) -> Request) {
        let (done, answer) = sync_channel(1);
        self.send(request(done));
        // An ended thread drops the request or carries it out: either ends the wait.
        let _ = answer.recv();
    }

    fn send(&self, request: Request) {
        self.requests.push(request);
        if let Some(unparker) = &*self.unparker.load() {
            unparker.unpark();
        }
        if self.ended.load(Ordering::SeqCst) {
            self.drain();
        }
    }

    /// Carries out the requests of an ended thread: there are no rules.
    fn drain(&self) {
        let mut none = Rules::default();
        while let Some(request) = self.requests.pop() {
            self.carry_out(&mut none, request);
        }
    }

    /// Starts the thread, unless it runs.
    fn start(self: &Arc<Offloads>) -> io::Result<()> {
        let running = &mut *lock(&self.running);
        if running.is_some() {
            return Ok(());
        }
        let parker = Parker::new();
        let unparker = parker.unparker().clone();
        let offloads = self.clone();
        let work = move || {
            sys::confine::enter(sys::confine::Kind::Background, &[]);
            offloads.run(&parker);
        };
        let join = std::thread::Builder::new().name("hw_offload".to_string()).spawn(work)?;
        self.unparker.store(Some(unparker.clone()).into());
        *running = Some(Running { unparker, join });
        Ok(())
    }

    /// Carries out requests until the end.
    fn run(&self, parker: &Parker) {
        let mut rules = Rules::default();
        // A fault must not leave answers unsent.
        let _ending = DrainAtEnd(self);
        loop {
            while let Some(request) = self.requests.pop() {
                if !self.carry_out(&mut rules, request) {
                    return;
                }
            }
            parker.park();
        }
    }

    /// Carries out one request; `false` for the last one.
    fn carry_out(&self, rules: &mut Rules, request: Request) -> bool {
        match request {
            Request::Put(pmd, put) => {
                put.waiting.fetch_sub(1, Ordering::Relaxed);
                self.enqueued.fetch_sub(1, Ordering::Relaxed);
                rules.put(pmd, &put.flow, put.mark);
                rules.note_latency(sys::clock::machine_us().saturating_sub(put.queued_us));
            }
            Request::Answer(mut answer) => {
                rules.complete(&mut answer);
                self.publish(rules);
                answer.send();
                return true;
            }
            Request::Ended(pmd, flows) => {
                for mut flow in flows {
                    rules.end(pmd, &mut flow);
                    self.purged.push((pmd, flow));
                }
            }
            Request::Port(port, provider, done) => {
                match provider {
                    Some(provider) => rules.port_add(port, provider),
                    None => rules.port_del(port),
                }
                self.publish(rules);
                // The requester waits for it.
                let _ = done.send(());
                return true;
            }
            Request::Sync(done) => {
                // The requester waits for it.
                let _ = done.send(());
                return true;
            }
            Request::Stop => {
                rules.clear();
                return false;
            }
        }
        self.publish(rules);
        true
    }

    fn publish(&self, rules: &Rules) {
        *lock(&self.stats) = rules.stats();
    }

    /// Ends the thread, once it has carried out all requests; its rules are removed. The cores have ended.
    pub(crate) fn stop(&self) {
        let Some(running) = lock(&self.running).take() else { return };
        self.requests.push(Request::Stop);
        running.unparker.unpark();
        if running.join.join().is_err() {
            log::error!(target: "dpif_netdev", "the offload thread ended by a fault");
        }
    }
}

/// Carries out remaining requests when the thread ends, for any reason.
struct DrainAtEnd<'a>(&'a Offloads);

impl Drop for DrainAtEnd<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.0.drain();
    }
}
