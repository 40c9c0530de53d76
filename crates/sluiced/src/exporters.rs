//! The thread `exporters`: sends records of flows, samples and counters to collectors (NetFlow, sFlow, IPFIX).
//!
//! Handlers hand it samples by a bounded queue: a sample that finds no room is lost and counted, and nothing waits. The thread
//! owns the engines ([`telemetry`]) and the sockets, which never block. It waits only for the thread `link_protocols`, for
//! counters of LACP; samples stay in the queue meanwhile. It starts with the first setting that needs it, and
//! wakes for samples, for flows that are due, and once a second for counters. Flows of NetFlow are counted by the threads that
//! read them; this one takes their records.

mod convert;
mod sockets;
mod thread;

use crate::instances::Instance;
use crate::link_protocols::LinkReader;
use dpif::Provider;
use ofproto::backer::Backer;
use ofproto::ports::BridgeId;
use ofproto::sampling::{BridgeIpfix, IpfixCounters, SampleSink, Sampled, Sampling};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use sync::{AtomicBool, AtomicU64, BoundedQueue, Mutex, Ordering, Parker, Unparker, lock};
use sys::confine::Kind;
use telemetry::netflow;
use vswitch::config::{IpfixConfig, SflowConfig};

/// Name of the thread.
const THREAD: &str = "exporters";
/// Samples that wait for the thread.
const WAITING_MAX: usize = 4096;

/// The export of a bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Export {
    /// Collectors of NetFlow, with the settings of records.
    pub(crate) netflow: Option<(Vec<SocketAddr>, netflow::Settings)>,
    /// Collectors of sFlow, with the address of the agent.
    pub(crate) sflow: Option<(SflowConfig, IpAddr)>,
    /// Collectors of IPFIX of all packets.
    pub(crate) ipfix: Option<IpfixConfig>,
    /// Sets of collectors of the action `sample`.
    pub(crate) sets: BTreeMap<u32, IpfixConfig>,
    /// Groups of local readers of the action `sample`, by the number of their set.
    pub(crate) local_groups: BTreeMap<u32, u32>,
    /// `explicit-sampled-drops`.
    pub(crate) explicit_drops: bool,
    /// The bridge's datapath id.
    pub(crate) datapath_id: u64,
}

/// A request to the thread.
enum Request {
    Configure(Box<Configure>),
    Remove(BridgeId),
}

/// An exporter of NetFlow, which threads that count packets share.
type SharedExporter = Arc<Mutex<netflow::Exporter>>;

struct Configure {
    bridge: BridgeId,
    export: Export,
    sub_id: u32,
    netflow: Option<SharedExporter>,
    counters: IpfixCounters,
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
}

/// State shared with handlers and the thread.
pub(crate) struct Shared {
    samples: BoundedQueue<Sampled>,
    lost: AtomicU64,
    requests: Mutex<VecDeque<Request>>,
    stop: AtomicBool,
    wake: Unparker,
}

impl Shared {
    fn next_request(&self) -> Option<Request> {
        lock(&self.requests).pop_front()
    }
}

impl SampleSink for Shared {
    fn sampled(&self, sample: Sampled) {
        match self.samples.push(sample) {
            Ok(()) => self.wake.unpark(),
            Err(_) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A bridge that exports.
struct Exporting {
    export: Export,
    sub_id: u32,
    netflow: Option<SharedExporter>,
    counters: IpfixCounters,
}

/// The main loop's side.
pub(crate) struct Exporters {
    shared: Arc<Shared>,
    parker: Option<Parker>,
    thread: Option<JoinHandle<()>>,
    links: LinkReader,
    bridges: BTreeMap<BridgeId, Exporting>,
}

/// Probability of one packet of this many, out of `u32::MAX`.
fn probability(sampling: u32) -> u32 {
    u32::MAX.checked_div(sampling).unwrap_or(0).max(1)
}

impl Export {
    /// Whether anything is to be exported.
    fn is_none(&self) -> bool {
        self.netflow.is_none() && self.samples_nothing()
    }

    /// Whether no packet is sampled.
    fn samples_nothing(&self) -> bool {
        let has_sets = !self.sets.is_empty() || !self.local_groups.is_empty();
        self.sflow.is_none() && self.ipfix.is_none() && !has_sets
    }

    /// The sampling that translations read, without ports.
    fn sampling(&self, counters: &IpfixCounters) -> Sampling {
        let sflow = self.sflow.as_ref().map(|(sflow, _)| probability(sflow.sampling));
        let ipfix = self.ipfix.as_ref().filter(|ipfix| ipfix.sampling != 0).map(|ipfix| BridgeIpfix {
            probability: probability(ipfix.sampling),
            input: ipfix.input,
            output: ipfix.output,
            tunnels: ipfix.tunnels,
        });
        Sampling {
            sflow,
            ipfix,
            flows: self.ipfix.is_some() || !self.sets.is_empty(),
            tunnel_sets: self.sets.iter().filter(|(_, set)| set.tunnels).map(|(number, _)| *number).collect(),
            local_groups: self.local_groups.clone(),
            explicit_drops: self.explicit_drops,
            ports: BTreeMap::new(),
            counters: counters.clone(),
        }
    }
}

impl Exporters {
    /// Without bridges that export. `links` has the members of aggregates.
    pub(crate) fn new(links: LinkReader) -> Exporters {
        let parker = Parker::new();
        let shared = Arc::new(Shared {
            samples: BoundedQueue::new(WAITING_MAX),
            lost: AtomicU64::new(0),
            requests: Mutex::default(),
            stop: AtomicBool::new(false),
            wake: parker.unparker().clone(),
        });
        Exporters { shared, parker: Some(parker), thread: None, links, bridges: BTreeMap::new() }
    }

    /// Takes the samples of handlers.
    pub(crate) fn sink(&self) -> Arc<dyn SampleSink> {
        self.shared.clone()
    }

    /// Configures the export of a bridge.
    pub(crate) fn configure(&mut self, bridge: BridgeId, export: Export, instance: &Instance) {
        if export.is_none() {
            return self.remove(bridge);
        }
        let now = self.bridges.get(&bridge);
        if now.is_some_and(|now| now.export == export) {
            return;
        }
        let used: Vec<u32> = self.bridges.values().map(|b| b.sub_id).collect();
        let free = (0..).find(|id| !used.contains(id)).unwrap_or(0);
        let (sub_id, counters) =
            now.map_or((free, IpfixCounters::default()), |b| (b.sub_id, b.counters.clone()));
        let netflow = export.netflow.as_ref().map(|(_, settings)| {
            let exporter = now.and_then(|b| b.netflow.clone()).unwrap_or_else(|| {
                let now_ms = sys::clock::monotonic_ms();
                Arc::new(Mutex::new(netflow::Exporter::new(*settings, now_ms)))
            });
            lock(&exporter).configure(*settings);
            exporter
        });
        self.send(Request::Configure(Box::new(Configure {
            bridge,
            export: export.clone(),
            sub_id,
            netflow: netflow.clone(),
            counters: counters.clone(),
            backer: instance.backer.clone(),
            datapath: instance.datapath.clone(),
        })));
        self.bridges.insert(bridge, Exporting { export, sub_id, netflow, counters });
    }

    /// Ends the export of a bridge.
    pub(crate) fn remove(&mut self, bridge: BridgeId) {
        if self.bridges.remove(&bridge).is_some() {
            self.send(Request::Remove(bridge));
        }
    }

    /// The sampling that translations of a bridge read, without ports; `None`: nothing is sampled.
    pub(crate) fn sampling(&self, bridge: BridgeId) -> Option<Sampling> {
        let bridge = self.bridges.get(&bridge).filter(|b| !b.export.samples_nothing());
        bridge.map(|b| b.export.sampling(&b.counters))
    }

    /// The groups of local readers of a bridge.
    pub(crate) fn local_groups(&self, bridge: BridgeId) -> Option<&BTreeMap<u32, u32>> {
        Some(&self.bridges.get(&bridge)?.export.local_groups)
    }

    /// The exporter of NetFlow of a bridge.
    pub(crate) fn netflow(&self, bridge: BridgeId) -> Option<Arc<Mutex<netflow::Exporter>>> {
        self.bridges.get(&bridge)?.netflow.clone()
    }

    fn send(&mut self, request: Request) {
        lock(&self.shared.requests).push_back(request);
        if let Some(parker) = self.parker.take() {
            let (shared, links) = (self.shared.clone(), self.links.clone());
            let run = move || {
                sys::confine::enter(Kind::Exporters, &[]);
                thread::run(&shared, &parker, links);
            };
            match std::thread::Builder::new().name(THREAD.into()).spawn(run) {
                Ok(thread) => self.thread = Some(thread),
                Err(e) => log::error!(target: "collectors", "cannot start the thread of exporters: {e}"),
            }
        }
        self.shared.wake.unpark();
    }
}

impl Drop for Exporters {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.unpark();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ended = thread.join();
        }
    }
}

/// The address that identifies an agent of sFlow: that of its device, itself an address, or the one from which collectors
/// are reached.
pub(crate) fn agent_address(
    agent: Option<&str>,
    of_device: impl Fn(&str) -> Option<IpAddr>,
    targets: &[SocketAddr],
) -> Option<IpAddr> {
    let given = agent.and_then(|agent| of_device(agent).or_else(|| agent.parse().ok()));
    given.or_else(|| targets.iter().find_map(local_address))
}

/// The address from which a packet to that one would be sent.
fn local_address(target: &SocketAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind(sockets::unspecified(target)).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests;
