//! The userspace datapath: forwarding threads that share nothing, behind [`dpif::Datapath`].
//!
//! Ports are made and removed by the control thread, which waits until every forwarding thread has answered. Operations
//! and upcalls never wait.

#![forbid(unsafe_code)]

pub mod ablation;
mod apply;
mod bulk;
mod control;
mod inbox;
mod io;
mod main_core;
mod perf;
mod plan;
mod pmd;
mod ports;
mod provider;
mod queues;
mod replan;
mod stats;
mod threads;
mod upcall_queues;
mod wakeups;
mod watch;

use ablation::{Ablation, Optimisation};
use bulk::Closing;
use datapath::DpShared;
use dpif::ThreadPlan;
use dpif::{
    Capabilities, Datapath, DpifError, DpifOp, FlowRecord, InlineHandler, MeterConfig, MeterStats, OpBatch,
    OpResult, PmdId, PortInfo, PortSpec, PortStats,
};
use flow::DpPort;
use inbox::{Control, TxSide};
use main_core::MainCore;
use netdev::Port;
use netdev::dummy::DummyPorts;
use plan::QueueId;
use pmd::Purged;
use ports::{OpenPort, Opened};
use queues::Rx;
use replan::{Scope, State};
use std::io as std_io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use sync::{AtomicU64, Mutex, Snapshot, lock};
use threads::{PmdFactory, Thread};
use upcall_queues::UpcallQueues;

pub use bulk::TOGETHER;
pub use watch::QueueWatch;

/// Upcalls whose operations go to a forwarding thread together.
const UPCALLS_AT_ONCE: usize = 16;

/// The userspace datapath.
pub struct UserspaceDatapath {
    name: String,
    dummy: bool,
    dummy_ports: DummyPorts,
    upcall_queues: UpcallQueues,
    /// The threads that take operations, in the order of their cores.
    threads: Snapshot<Vec<Arc<Thread>>>,
    /// Of the control thread: ports, threads, and who polls what.
    state: Mutex<State>,
    main: MainCore,
    inline: Arc<dyn InlineHandler>,
    factory: PmdFactory,
    bulk: bulk::Bulk,
    links: netdev::link::AllLinkStats,
}

/// How the userspace datapath is made.
#[derive(Clone, Debug)]
pub struct UserspaceConfig {
    /// `type@name`.
    pub name: String,
    /// Its ports are numbered as in a datapath of dummies: by what their names say.
    pub dummy: bool,
    /// Where its dummies are entered, for commands.
    pub dummy_ports: DummyPorts,
    /// Cores that are pretended, by their NUMA nodes; empty for the machine's own.
    pub dummy_numa: Vec<u16>,
    /// What the fast path does without.
    pub ablation: Ablation,
    /// Told of queues that the main core polls.
    pub watch: Option<Arc<QueueWatch>>,
    /// Forwarding threads, until [`UserspaceDatapath::configure`] says otherwise.
    pub threads: ThreadPlan,
    /// VLAN tags that keys tell apart.
    pub vlan_limit: u8,
    /// Keys the hash functions.
    pub hash_seed: u64,
}

impl UserspaceDatapath {
    /// A datapath without ports: its threads start with the first port that needs one. What the main core hands up goes to
    /// `inline` at once, the rest to handlers ([`Provider::set_handlers`]).
    ///
    /// # Errors
    /// The processors that may be used are unknown.
    pub fn start(
        config: &UserspaceConfig,
        inline: Arc<dyn InlineHandler>,
    ) -> std_io::Result<UserspaceDatapath> {
        let upcall_queues = UpcallQueues::new();
        let factory = PmdFactory {
            shared: Arc::new(DpShared::new()),
            purged: Arc::new(Purged::default()),
            portless: upcall_queues.port_add(DpPort::NONE),
            vlan_limit: config.vlan_limit,
            hash_seed: config.hash_seed,
            started: AtomicU64::new(0),
            all_cpus: sys::thread::allowed_cpus()?,
            dummy_numa: config.dummy_numa.clone(),
            ablation: config.ablation.clone(),
        };
        Ok(UserspaceDatapath {
            name: config.name.clone(),
            dummy: config.dummy,
            dummy_ports: config.dummy_ports.clone(),
            upcall_queues,
            threads: Snapshot::new(Vec::new()),
            state: Mutex::new(State { plan: config.threads.clone(), ..State::default() }),
            main: MainCore::new(
                factory.core(PmdId::Main),
                inline.clone(),
                config.ablation.burst_packets(),
                config.watch.clone(),
            ),
            inline,
            factory,
            bulk: bulk::Bulk::default(),
            links: netdev::link::AllLinkStats::default(),
        })
    }

    /// Sends a request to a thread.
    fn request(&self, thread: &Thread, request: Control) {
        thread.inbox.request(request).into_iter().for_each(|batch| self.without_thread(batch));
    }

    /// Sends a request to each of these threads and gathers the answers; one that has ended gives none.
    fn ask<'t, T>(
        &self,
        threads: impl Iterator<Item = &'t Arc<Thread>>,
        request: impl Fn(SyncSender<T>) -> Control,
    ) -> Vec<T> {
        let threads: Vec<_> = threads.collect();
        let (reply, answers) = sync_channel(threads.len());
        threads.iter().for_each(|thread| self.request(thread, request(reply.clone())));
        drop(reply);
        answers.iter().collect()
    }

    /// Operations whose thread has ended: the main core executes packets, the rest fails. Packets that were parked behind one
    /// of them have left with the thread.
    fn without_thread(&self, batch: OpBatch) {
        let mut executes = Vec::new();
        let results = batch.ops.into_iter().map(|op| match op {
            DpifOp::Execute(mut execute) => {
                execute.ticket = None;
                executes.push(DpifOp::Execute(execute));
                OpResult::Done
            }
            _ => OpResult::Failed(DpifError::NO_THREAD),
        });
        let results: Vec<OpResult> = results.collect();
        if !executes.is_empty() {
            self.main.operate(OpBatch { pmd: PmdId::Main, ops: executes, tag: 0, reply: None });
        }
        if let Some(reply) = batch.reply {
            reply.done(batch.pmd, batch.tag, results);
        }
    }

    /// Opens the device of a port.
    fn open(&self, spec: &PortSpec) -> Result<Opened, DpifError> {
        if let Some(opened) = self.prepared(spec) {
            return Ok(opened);
        }
        let opened = ports::open(spec, &self.factory.ablation)?;
        Ok(Opened { inline: opened.inline || !self.has_threads(), ..opened })
    }

    /// Whether ports are polled by threads of their own.
    fn has_threads(&self) -> bool {
        self.factory.ablation.has(Optimisation::Threads)
    }

    fn tx_side(device: &Port, upcalls: &Arc<upcall_queues::PortQueues>) -> Result<TxSide, DpifError> {
        let tx = device.tx().map_err(|e| DpifError::Device(e.to_string()))?;
        Ok(TxSide { tx, upcalls: upcalls.clone() })
    }
}

impl Datapath for UserspaceDatapath {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { max_vlan_headers: 1, ..Capabilities::ENOUGH }
    }

    fn port_add(&self, spec: &PortSpec) -> Result<DpPort, DpifError> {
        let s = &mut *lock(&self.state);
        let number = s.ports.number_for(spec, self.dummy)?;
        let Opened { mut device, type_name, dummy, inline, bare } = self.open(spec)?;
        if !inline {
            self.first_threads(s)?;
        }
        let upcalls = self.upcall_queues.port_add(number);
        let threads = s.running.len();
        let sides: Result<Vec<_>, _> =
            (0..=threads).map(|_| UserspaceDatapath::tx_side(&device, &upcalls)).collect();
        let mut sides = sides.inspect_err(|_| self.upcall_queues.port_del(number))?;
        let mut queues = numbered(number, std::mem::take(&mut device.rx));
        let inline_queues = if inline { std::mem::take(&mut queues) } else { Vec::new() };
        if let Some(side) = sides.pop() {
            self.main.port_add(number, side, inline_queues)?;
        }
        let (done, answers) = sync_channel(threads);
        for (running, side) in s.running.values().zip(sides) {
            self.request(&running.thread, Control::PortAdd(number, side, done.clone()));
        }
        drop(done);
        answers.iter().for_each(drop);
        probes::port_added(number, &spec.name);
        if let Some(dummy) = &dummy {
            self.dummy_ports.insert(&spec.name, dummy.clone());
        }
        s.ports.insert(OpenPort {
            info: PortInfo { number, name: spec.name.clone(), type_name },
            device,
            dummy,
            inline,
            bare,
            upcalls,
            spec: spec.clone(),
            queues: queues.len() as u16,
            affinity: Default::default(),
            retired: PortStats::default(),
        });
        self.replan(s, Scope::New, queues);
        Ok(number)
    }

    fn port_del(&self, port: DpPort) -> Result<(), DpifError> {
        let s = &mut *lock(&self.state);
        let counted = self.gather(s, port).ok_or(DpifError::NotFound("port"))?;
        s.removed.add(&counted);
        let mut parts = self.ask(s.running.values().map(|r| &r.thread), |done| Control::PortDel(port, done));
        parts.push(self.main.port_del(port, &self.factory.purged));
        self.upcall_queues.port_del(port);
        probes::port_removed(port);
        let open = s.ports.remove(port);
        if let Some(open) = open.iter().find(|open| open.dummy.is_some()) {
            self.dummy_ports.remove(&open.info.name);
        }
        self.close(Closing { parts, open });
        s.placed.core.retain(|id, _| id.port != port);
        if !s.placed.isolated.is_empty() {
            // Without its pinned queues a thread may take others.
            self.replan(s, Scope::New, Vec::new());
        }
        Ok(())
    }

    fn ports(&self) -> Vec<PortInfo> {
        lock(&self.state).ports.infos()
    }

    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError> {
        let s = lock(&self.state);
        let mut sum = self.gather(&s, port).ok_or(DpifError::NotFound("port"))?;
        self.add_devices(s.ports.get(port).into_iter().zip([&mut sum]));
        Ok(sum)
    }

    fn all_port_stats(&self) -> Vec<(DpPort, PortStats)> {
        let s = lock(&self.state);
        let mut all = self.gather_all(&s);
        self.add_devices(s.ports.iter().zip(all.values_mut()));
        all.into_iter().collect()
    }

    fn pmds(&self) -> Vec<PmdId> {
        std::iter::once(PmdId::Main).chain(self.threads.load().iter().map(|t| t.id)).collect()
    }

    fn operate(&self, batch: OpBatch) {
        self.send(batch, false);
    }

    fn next_purged(&self) -> Option<(PmdId, FlowRecord)> {
        self.factory.purged.pop()
    }

    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError> {
        self.factory.shared.meter_set(id, config)
    }

    fn meter_del(&self, id: u32) -> Result<(), DpifError> {
        self.factory.shared.meter_del(id)
    }

    fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError> {
        self.factory.shared.meter_stats(id)
    }
}

impl UserspaceDatapath {
    fn send(&self, batch: OpBatch, ahead: bool) {
        probes::sent(&batch.ops);
        if batch.pmd == PmdId::Main {
            return self.main.operate(batch);
        }
        let threads = self.threads.load();
        let Some(thread) = threads.iter().find(|t| t.id == batch.pmd) else {
            return self.without_thread(batch);
        };
        match thread.inbox.offer(batch, ahead) {
            Ok(left) => left.into_iter().for_each(|batch| self.without_thread(batch)),
            Err(batch) if batch.ops.iter().all(|op| matches!(op, DpifOp::FlowPut(_))) => {
                if let Some(reply) = &batch.reply {
                    reply.done(batch.pmd, batch.tag, inbox::refused(&batch.ops));
                }
            }
            // Deletes and dumps are never lost, and an execute carries packets that wait for it.
            Err(batch) => self.request(thread, Control::Ops(batch)),
        }
    }
}

impl Drop for UserspaceDatapath {
    fn drop(&mut self) {
        let s = &mut *lock(&self.state);
        s.ports.infos().iter().for_each(|port| probes::port_removed(port.number));
        let running = std::mem::take(&mut s.running);
        // What they did not carry out, nobody asks for any more.
        let parts = running.into_values().flat_map(|running| running.stop().0.parts);
        self.close_all(parts.chain(self.main.take_parts()).collect(), s.ports.take());
    }
}

/// The receive queues of a port with their numbers.
fn numbered(port: DpPort, queues: Vec<Box<dyn netdev::RxQueue>>) -> Vec<Rx> {
    let numbered = queues.into_iter().zip(0u16..);
    numbered.map(|(rx, queue)| Rx::numbered(QueueId { port, queue }, rx)).collect()
}
