//! The userspace datapath: forwarding threads that share nothing, behind [`dpif::Datapath`].
//!
//! The control thread adds and removes ports, and waits for the replies of all forwarding threads. Operations and
//! upcalls never wait.

#![forbid(unsafe_code)]

pub mod ablation;
mod announce;
mod apply;
mod bulk;
mod connections;
mod cores;
mod cycles;
mod drops;
mod egress;
mod handover;
mod held;
mod inbox;
mod inheritance;
mod io;
mod main_core;
mod naps;
pub mod offload;
mod perf;
mod plan;
mod pmd;
mod policing;
mod pool;
mod ports;
mod provider;
mod queues;
mod replan;
mod samples;
mod scheduler;
mod shaping;
mod slices;
mod stats;
mod successor;
mod threads;
mod upcall_queues;
mod wakeups;
mod watch;

use ablation::Ablation;
use bulk::Closing;
use connections::Sweeper;
use datapath::DpShared;
use dpif::ThreadPlan;
use dpif::qos::QueueStats;
use dpif::{
    Capabilities, Connections, Datapath, DpifError, DummyPort, FlowRecord, InlineHandler, LOCAL_PORT,
    MeterConfig, MeterStats, OpBatch, PmdId, PortInfo, PortOptions, PortSpec, PortStats,
};
use flow::DpPort;
use inbox::{Control, TxSide};
use main_core::MainCore;
use netdev::OpenedPort;
use netdev::dummy::{Claim, DummyPorts};
use netdev::tc::Disciplines;
use offload::{Offloads, Providers};
use plan::QueueId;
use pmd::Purged;
use policing::PortPolicer;
use pool::PmdPool;
use ports::OpenPort;
use queues::Rx;
use replan::Scope;
use scheduler::SchedulerThread;
use stats::DeviceCounters;
use std::io as std_io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use sync::{AtomicU64, lock};
use threads::PmdFactory;
use upcall_queues::UpcallQueues;

pub use bulk::TOGETHER;
pub use datapath::MeterLevels;
pub use inheritance::{Inheritance, LentPort, QueuePlace};
pub use watch::QueueWatch;

/// Upcalls whose operations are sent to a forwarding thread together.
const UPCALLS_AT_ONCE: usize = 16;

/// Features of a userspace datapath that starts with this number of VLAN tags in keys. As in OVS, they stay when it
/// changes. A dummy one leaves headers of ARP, neighbour discovery and ICMP to the slow path, as every userspace datapath
/// of OVS does, so tests of flows find the same ones.
pub const fn capabilities(vlan_limit: u8, dummy: bool) -> Capabilities {
    Capabilities { max_vlan_headers: vlan_limit, set_arp_nd_icmp: !dummy, ..Capabilities::ENOUGH }
}

/// The userspace datapath.
pub struct UserspaceDatapath {
    name: String,
    can: Capabilities,
    dummy_ports: DummyPorts,
    upcall_queues: UpcallQueues,
    /// Cores, threads and ports.
    pool: PmdPool,
    devices: DeviceCounters,
    disciplines: Disciplines,
    scheduler: SchedulerThread,
    sweeper: Arc<Sweeper>,
}

/// Options of the userspace datapath.
#[derive(Clone, Debug)]
pub struct UserspaceConfig {
    /// `type@name`.
    pub name: String,
    /// Number ports as in a dummy datapath: by their names.
    pub dummy: bool,
    /// Registry of its dummies, for commands.
    pub dummy_ports: DummyPorts,
    /// Simulated cores, by their NUMA nodes; empty for the machine's own.
    pub dummy_numa: Vec<u16>,
    /// Disabled parts of the fast path.
    pub ablation: Ablation,
    /// Watch of the queues polled by the main core.
    pub watch: Option<Arc<QueueWatch>>,
    /// Initial number of forwarding threads, until [`UserspaceDatapath::configure`].
    pub threads: ThreadPlan,
    /// Initial number of VLAN tags in keys.
    pub vlan_limit: u8,
    /// Keys the hash functions.
    pub hash_seed: u64,
    /// Flow offload of ports, once enabled.
    pub offload: Providers,
    /// Ports of the process that it succeeds.
    pub inheritance: Inheritance,
}

impl UserspaceDatapath {
    /// A datapath without ports: its threads start with the first port that needs one. Upcalls of the main core go
    /// to `inline` at once, others to handlers ([`Provider::set_handlers`]).
    ///
    /// # Errors
    /// The permitted processors are unknown.
    pub fn start(
        config: &UserspaceConfig,
        inline: Arc<dyn InlineHandler>,
    ) -> std_io::Result<UserspaceDatapath> {
        let upcall_queues = UpcallQueues::new();
        let purged = Arc::new(Purged::default());
        let shared = Arc::new(DpShared::new(config.hash_seed));
        shared.set_vlan_limit(config.vlan_limit);
        let factory = PmdFactory {
            shared,
            offloads: Offloads::new(purged.clone(), config.offload.clone()),
            purged,
            portless: upcall_queues.port_add(DpPort::NONE),
            hash_seed: config.hash_seed,
            started: AtomicU64::new(0),
            all_cpus: sys::thread::allowed_cpus()?,
            dummy_numa: config.dummy_numa.clone(),
            ablation: config.ablation.clone(),
        };
        let main = MainCore::new(
            factory.core(PmdId::Main),
            inline.clone(),
            factory.offload(PmdId::Main),
            config.ablation.burst_packets(),
            config.watch.clone(),
        );
        Ok(UserspaceDatapath {
            name: config.name.clone(),
            can: capabilities(config.vlan_limit, config.dummy),
            dummy_ports: config.dummy_ports.clone(),
            upcall_queues,
            pool: PmdPool::new(main, factory, inline, config),
            devices: DeviceCounters::default(),
            disciplines: Disciplines::default(),
            scheduler: SchedulerThread::default(),
            sweeper: Sweeper::new(),
        })
    }
}

/// How a dummy holds its name, by its type and number; `None` for ports of other kinds.
fn dummy_claim(spec: &PortSpec, number: DpPort) -> Option<Claim> {
    let PortOptions::Dummy(options) = &spec.options else { return None };
    Some(match (number == LOCAL_PORT, options.type_name.as_str()) {
        (true, _) => Claim::Own,
        (false, DummyPort::INTERNAL_TYPE) => Claim::Shared,
        (false, _) => Claim::Sole,
    })
}

impl Datapath for UserspaceDatapath {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn port_add(&self, spec: &PortSpec) -> Result<DpPort, DpifError> {
        let s = &mut *lock(&self.pool.state);
        if let Some(joined) = s.ports.join_tunnel(spec) {
            return joined;
        }
        let inherited = self.pool.inheritance.number(&spec.name).filter(|_| spec.number.is_none());
        let wanted = PortSpec { number: inherited.or(spec.number), ..spec.clone() };
        let is_reserved = |number| self.pool.inheritance.reserves(number);
        let number = s.ports.number_for(&wanted, self.pool.dummy, is_reserved)?;
        // Commands find dummies by name, so it is unique in the process, as names of devices are.
        let claim = dummy_claim(spec, number);
        let is_here = || s.ports.iter().any(|p| p.info.name == spec.name);
        if claim.is_some_and(|claim| !self.dummy_ports.is_free(&spec.name, claim) || is_here()) {
            return Err(DpifError::Device("File exists".to_string()));
        }
        self.pool.bulk.release(&spec.name);
        let OpenedPort { mut device, dummy, inline, bare, notes: _ } = self.pool.open(spec)?;
        if !inline {
            self.pool.first_threads(s)?;
        }
        let upcalls = self.upcall_queues.port_add(number);
        let tunnel = spec.options.tunnel();
        self.pool.factory.shared.set_tunnel(number, tunnel);
        // Actions use tunnels, and no core sends to one.
        let threads = if tunnel.is_some() { 0 } else { s.running.len() };
        let egress = Arc::default();
        let sides: Result<Vec<_>, _> =
            (0..=threads).map(|_| TxSide::open(&device, &upcalls, &egress)).collect();
        let mut sides = sides.inspect_err(|_| self.upcall_queues.port_del(number))?;
        let policer = Arc::default();
        let mut queues = numbered(number, std::mem::take(&mut device.rx), &policer);
        let inline_queues = if inline { std::mem::take(&mut queues) } else { Vec::new() };
        if let Some(side) = sides.pop().filter(|_| tunnel.is_none()) {
            self.pool.cores.main.port_add(number, side, inline_queues)?;
        }
        let (done, answers) = sync_channel(threads);
        for (running, side) in s.running.values().zip(sides) {
            self.pool.cores.request(&running.thread, Control::PortAdd(number, side, done.clone()));
        }
        drop(done);
        answers.iter().for_each(drop);
        // From here on only `port_del` ends a tap: it outlives the process, as in OVS.
        if let Err(e) = device.persist(true) {
            log::warn!(target: "dpif_netdev", "{}: its device ends with this process: {e}", spec.name);
        }
        probes::port_added(self.name(), number, &spec.name);
        if let (Some(dummy), Some(claim)) = (&dummy, claim) {
            self.dummy_ports.insert(&spec.name, dummy.clone(), claim);
        }
        let open = OpenPort {
            info: PortInfo {
                number,
                name: spec.name.clone(),
                type_name: spec.options.userspace_type_name().to_string(),
            },
            device,
            dummy,
            inline,
            bare,
            upcalls,
            spec: spec.clone(),
            users: 1,
            queues: queues.len() as u16,
            affinity: Default::default(),
            retired: None,
            policer,
            egress,
        };
        self.pool.offload_port(&open);
        s.ports.insert(open);
        // Before its first packet: it must not take places that are kept for others.
        self.share_connections(s);
        self.pool.place(s, Scope::New, queues, &[]);
        // As in OVS the datapath's own port does not count.
        if number != LOCAL_PORT {
            self.pool.factory.shared.ops.count_added();
        }
        Ok(number)
    }

    fn port_del(&self, port: DpPort) -> Result<(), DpifError> {
        let s = &mut *lock(&self.pool.state);
        if s.ports.leave_tunnel(port) {
            return Ok(());
        }
        let counted = self.pool.port_stats(s, port).ok_or(DpifError::NotFound("port"))?;
        s.removed.add(&counted);
        let departure = s.ports.depart(port);
        let threads = s.running.values().map(|r| &r.thread);
        let mut parts = self.pool.cores.ask(threads, |done| Control::PortDel(port, departure.clone(), done));
        drop(departure);
        parts.push(self.pool.cores.main.port_del(port));
        self.pool.factory.offloads.port_del(port);
        self.upcall_queues.port_del(port);
        self.pool.factory.shared.set_tunnel(port, None);
        probes::port_removed(self.name(), port);
        s.held.iter_mut().for_each(|held| held.retain(|rx| rx.port != port));
        let open = s.ports.remove(port);
        self.pool.factory.shared.ops.count_removed();
        open.iter().for_each(|open| self.disciplines.forget(open.device.ifindex()));
        self.share_connections(s);
        if let Some((open, dummy)) = open.iter().find_map(|open| Some((open, open.dummy.as_ref()?))) {
            self.dummy_ports.remove(&open.info.name, dummy);
        }
        self.pool.bulk.close(Closing { parts, open });
        s.placement.forget(port);
        if s.placement.isolates() {
            // Without its pinned queues a thread may take others.
            self.pool.place(s, Scope::New, Vec::new(), &[]);
        }
        Ok(())
    }

    fn ports(&self) -> Vec<PortInfo> {
        lock(&self.pool.state).ports.infos()
    }

    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError> {
        let s = lock(&self.pool.state);
        let mut sum = self.pool.port_stats(&s, port).ok_or(DpifError::NotFound("port"))?;
        self.devices.add_to(s.ports.get(port).into_iter().zip([&mut sum]));
        Ok(sum)
    }

    fn all_port_stats(&self) -> Vec<(DpPort, PortStats)> {
        let s = lock(&self.pool.state);
        let mut all = self.pool.all_port_stats(&s);
        self.devices.add_to(s.ports.iter().zip(all.iter_mut().map(|(_, stats)| stats)));
        all
    }

    fn queues(&self, port: DpPort) -> Vec<QueueStats> {
        self.port_queues(port)
    }

    fn pmds(&self) -> Vec<PmdId> {
        self.pool.cores.ids()
    }

    fn operate(&self, batch: OpBatch) {
        probes::log_operations(&self.name, &batch.ops);
        self.pool.cores.send(batch, false);
    }

    fn next_purged(&self) -> Option<(PmdId, FlowRecord)> {
        self.pool.factory.purged.pop()
    }

    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError> {
        self.pool.factory.shared.meter_set(id, config)
    }

    fn meter_del(&self, id: u32) -> Result<(), DpifError> {
        self.pool.factory.shared.meter_del(id)
    }

    fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError> {
        self.pool.factory.shared.meter_stats(id)
    }

    fn connections(&self) -> Option<&dyn Connections> {
        Some(self)
    }
}

impl Drop for UserspaceDatapath {
    fn drop(&mut self) {
        self.sweeper.stop();
        let s = &mut *lock(&self.pool.state);
        s.ports.infos().iter().for_each(|port| probes::port_removed(self.name(), port.number));
        let running = std::mem::take(&mut s.running);
        // Nothing waits for operations that they did not execute.
        let parts: Vec<_> = running.into_values().flat_map(|running| running.stop().0.parts).collect();
        self.pool.factory.offloads.stop();
        self.pool
            .bulk
            .close_all(parts.into_iter().chain(self.pool.cores.main.take_parts()).collect(), s.ports.take());
    }
}

/// The receive queues of a port with their numbers.
fn numbered(port: DpPort, queues: Vec<Box<dyn netdev::RxQueue>>, policer: &Arc<PortPolicer>) -> Vec<Rx> {
    let numbered = queues.into_iter().zip(0u16..);
    numbered.map(|(rx, queue)| Rx::numbered(QueueId { port, queue }, rx, policer.clone())).collect()
}
