//! The userspace datapath: forwarding threads that share nothing, behind [`dpif::Datapath`].
//!
//! Ports are made and removed by the control thread, which waits until every forwarding thread has answered. Operations
//! and upcalls never wait.

mod hub;
mod main_core;
mod pmd;
mod ports;

#[cfg(test)]
mod tests;

use datapath::{DpShared, Pmd, PmdConfig};
use dpif::{
    Capabilities, Datapath, DpifError, DpifOp, DropReason, FlowRecord, MeterConfig, MeterStats, OpBatch,
    PmdId, PortInfo, PortSpec, PortStats,
};
use flow::DpPort;
use hub::UpcallHub;
use main_core::MainCore;
use netdev::Port;
use netdev::dummy::Dummy;
use pmd::{Control, Inbox, PmdThread, Purged, ThreadIo, TxSide};
use ports::{OpenPort, Opened, Ports};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, sync_channel};
use std::thread::JoinHandle;
use sync::{AtomicBool, BoundedQueue, Mutex, Ordering, lock};
use vswitch::DummyMode;

pub(crate) use hub::Handler;
pub(crate) use main_core::InlineHandler;

/// Batches of operations that may wait for a forwarding thread.
const INBOX_BATCHES: usize = 4096;

struct Thread {
    id: PmdId,
    inbox: Arc<Inbox>,
    control: Sender<Control>,
    join: Option<JoinHandle<()>>,
}

/// The userspace datapath.
pub struct UserspaceDatapath {
    name: String,
    dummy: bool,
    dummies: DummyMode,
    shared: Arc<DpShared>,
    hub: UpcallHub,
    threads: Vec<Thread>,
    ports: Mutex<Ports>,
    main: MainCore,
    purged: Arc<Purged>,
}

/// How the userspace datapath is made.
#[derive(Clone, Debug)]
pub struct UserspaceConfig {
    /// `type@name`.
    pub name: String,
    /// Its ports are numbered as in a datapath of dummies: by what their names say.
    pub dummy: bool,
    /// Which types of ports are dummies.
    pub dummies: DummyMode,
    /// Forwarding threads, at least one.
    pub pmd_threads: usize,
    /// Handler threads, at least one.
    pub handlers: usize,
    /// VLAN tags that keys tell apart.
    pub vlan_limit: u8,
    /// Keys the hash functions.
    pub hash_seed: u64,
}

impl UserspaceDatapath {
    /// Starts the forwarding threads; also returns the receiving ends for the handlers. What the main core hands up goes to
    /// `inline` at once.
    pub(crate) fn start(
        config: &UserspaceConfig,
        inline: Arc<dyn InlineHandler>,
    ) -> io::Result<(UserspaceDatapath, Vec<Handler>)> {
        let shared = Arc::new(DpShared::new());
        let (hub, handlers) = UpcallHub::new(config.handlers);
        let core = |id: PmdId, salt: u64| {
            let seed = config.hash_seed ^ salt;
            Pmd::new(PmdConfig { vlan_limit: config.vlan_limit, ..PmdConfig::new(id, seed) }, shared.clone())
        };
        let portless = hub.port_add(DpPort::NONE);
        let purged = Arc::new(Purged::default());
        let main = MainCore::new(core(PmdId::Main, 0x6d61_696e), inline);
        let mut threads = Vec::new();
        for n in 0..config.pmd_threads.max(1) as u16 {
            let (control, requests) = std::sync::mpsc::channel();
            let inbox = Arc::new(Inbox {
                ops: BoundedQueue::new(INBOX_BATCHES),
                sleeping: AtomicBool::new(false),
                waker: sys::Waker::new()?,
                control: AtomicBool::new(false),
            });
            let thread = PmdThread::new(
                core(PmdId::Core(n), n.into()),
                ThreadIo::new(portless.clone()),
                inbox.clone(),
                requests,
                purged.clone(),
            );
            let join =
                std::thread::Builder::new().name(format!("pmd-c{n:02}")).spawn(move || thread.run())?;
            threads.push(Thread { id: PmdId::Core(n), inbox, control, join: Some(join) });
        }
        let datapath = UserspaceDatapath {
            name: config.name.clone(),
            dummy: config.dummy,
            dummies: config.dummies,
            shared,
            hub,
            threads,
            ports: Mutex::default(),
            main,
            purged,
        };
        Ok((datapath, handlers))
    }

    /// Wakes a handler, so that it looks at the answers to its operations.
    pub(crate) fn handler_unparker(&self, handler: usize) -> sync::Unparker {
        self.hub.unparker(handler)
    }

    /// The next flow that ended with its port, with its last statistics.
    pub(crate) fn next_purged(&self) -> Option<(PmdId, FlowRecord)> {
        self.purged.pop()
    }

    /// What controls a port that is a dummy.
    pub(crate) fn dummy(&self, port: DpPort) -> Option<Dummy> {
        lock(&self.ports).get(port)?.dummy.clone()
    }

    /// Takes what waits at the ports that no thread polls through the switch; `true` when there may be more.
    pub(crate) fn run_main(&self) -> bool {
        self.main.run()
    }

    /// Housekeeping of the main core, about once a second.
    pub(crate) fn tick_main(&self) {
        self.main.tick();
    }

    /// Wakes all handlers.
    pub(crate) fn wake_handlers(&self) {
        self.hub.wake();
    }

    /// Whether the device that a port made still is there, be it in another network namespace; `None` when the port did not
    /// make it.
    pub fn own_device_exists(&self, port: DpPort) -> Option<bool> {
        lock(&self.ports).get(port)?.device.exists()
    }

    fn request(&self, thread: &Thread, request: Control) {
        // A thread ends only when the datapath does.
        let _ = thread.control.send(request);
        thread.inbox.control.store(true, Ordering::SeqCst);
        thread.inbox.notify();
    }

    fn tx_side(device: &Port, upcalls: &Arc<hub::PortQueues>) -> Result<TxSide, DpifError> {
        let tx = device.tx().map_err(|e| DpifError::Device(e.to_string()))?;
        Ok(TxSide { tx, upcalls: upcalls.clone() })
    }
}

impl Datapath for UserspaceDatapath {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_vlan_headers: 1,
            max_mpls_depth: 3,
            recirc: true,
            explicit_drop: true,
            sample_nesting: 8,
        }
    }

    fn port_add(&self, spec: &PortSpec) -> Result<DpPort, DpifError> {
        let mut ports = lock(&self.ports);
        let number = ports.number_for(spec, self.dummy)?;
        let Opened { mut device, type_name, dummy, inline } = ports::open(spec, self.dummies, self.dummy)?;
        let upcalls = self.hub.port_add(number);
        let sides: Result<Vec<_>, _> =
            (0..=self.threads.len()).map(|_| UserspaceDatapath::tx_side(&device, &upcalls)).collect();
        let mut sides = match sides {
            Ok(sides) => sides,
            Err(e) => {
                self.hub.port_del(number);
                return Err(e);
            }
        };
        let mut queues: Vec<Vec<_>> = (0..self.threads.len()).map(|_| Vec::new()).collect();
        let inline_queues = if inline { std::mem::take(&mut device.rx) } else { Vec::new() };
        for (i, queue) in device.rx.drain(..).enumerate() {
            let thread = (number.0 as usize + i) % self.threads.len();
            queues[thread].push(queue);
        }
        if let Some(side) = sides.pop() {
            self.main.port_add(number, side, inline_queues)?;
        }
        let (done, answers) = sync_channel(self.threads.len());
        for ((thread, side), queues) in self.threads.iter().zip(sides).zip(queues) {
            self.request(thread, Control::PortAdd(number, side, queues, done.clone()));
        }
        drop(done);
        while answers.recv().is_ok() {}
        let info = PortInfo { number, name: spec.name.clone(), type_name };
        ports.insert(OpenPort { info, device, dummy });
        Ok(number)
    }

    fn port_del(&self, port: DpPort) -> Result<(), DpifError> {
        let mut ports = lock(&self.ports);
        if ports.get(port).is_none() {
            return Err(DpifError::NotFound("port"));
        }
        let (done, answers) = sync_channel(self.threads.len());
        for thread in &self.threads {
            self.request(thread, Control::PortDel(port, done.clone()));
        }
        drop(done);
        while answers.recv().is_ok() {}
        self.main.port_del(port, &self.purged);
        self.hub.port_del(port);
        ports.remove(port);
        Ok(())
    }

    fn ports(&self) -> Vec<PortInfo> {
        lock(&self.ports).infos()
    }

    fn port_stats(&self, port: DpPort) -> Result<PortStats, DpifError> {
        let is_dummy = match lock(&self.ports).get(port) {
            Some(open) => open.dummy.is_some(),
            None => return Err(DpifError::NotFound("port")),
        };
        let (reply, answers) = sync_channel(self.threads.len());
        for thread in &self.threads {
            self.request(thread, Control::PortStats(port, reply.clone()));
        }
        drop(reply);
        let mut sum = self.main.port_stats(port);
        while let Ok(s) = answers.recv() {
            add_stats(&mut sum, &s);
        }
        if is_dummy {
            // As stock switches have it.
            let unknown = u64::MAX;
            (sum.rx_dropped, sum.rx_errors, sum.tx_dropped, sum.tx_errors) =
                (unknown, unknown, unknown, unknown);
        }
        Ok(sum)
    }

    fn pmds(&self) -> Vec<PmdId> {
        std::iter::once(PmdId::Main).chain(self.threads.iter().map(|t| t.id)).collect()
    }

    fn operate(&self, mut batch: OpBatch) {
        if batch.pmd == PmdId::Main {
            return self.main.operate(batch);
        }
        let Some(thread) = self.threads.iter().find(|t| t.id == batch.pmd) else {
            let missing = |_| dpif::OpResult::Failed(DpifError::NotFound("forwarding thread"));
            if let Some(reply) = batch.reply {
                reply.done(batch.pmd, batch.tag, batch.ops.iter().map(missing).collect());
            }
            return;
        };
        if let Err(refused) = thread.inbox.ops.push(batch) {
            batch = refused;
            let droppable = |op: &DpifOp| matches!(op, DpifOp::FlowPut(_));
            if batch.ops.iter().all(droppable) {
                if let Some(reply) = &batch.reply {
                    reply.done(batch.pmd, batch.tag, pmd::refused(&batch.ops));
                }
                return;
            }
            // Deletes and dumps are never lost, and an execute carries packets that wait for it.
            self.request(thread, Control::Ops(batch));
            return;
        }
        thread.inbox.notify();
    }

    fn meter_set(&self, id: u32, config: &MeterConfig) -> Result<(), DpifError> {
        self.shared.meter_set(id, config)
    }

    fn meter_del(&self, id: u32) -> Result<(), DpifError> {
        self.shared.meter_del(id)
    }

    fn meter_stats(&self, id: u32) -> Result<MeterStats, DpifError> {
        self.shared.meter_stats(id)
    }
}

impl Drop for UserspaceDatapath {
    fn drop(&mut self) {
        for thread in &self.threads {
            self.request(thread, Control::Stop);
        }
        for thread in &mut self.threads {
            if let Some(join) = thread.join.take() {
                let _ = join.join();
            }
        }
    }
}

fn add_stats(sum: &mut PortStats, s: &PortStats) {
    sum.rx_packets += s.rx_packets;
    sum.rx_bytes += s.rx_bytes;
    sum.rx_dropped += s.rx_dropped;
    sum.rx_errors += s.rx_errors;
    sum.tx_packets += s.tx_packets;
    sum.tx_bytes += s.tx_bytes;
    sum.tx_dropped += s.tx_dropped;
    sum.tx_errors += s.tx_errors;
    for reason in DropReason::ALL {
        sum.drops[reason as usize] += s.drops[reason as usize];
    }
}
