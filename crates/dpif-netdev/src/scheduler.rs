//! The switch's own scheduler: a thread sends packets of ports whose devices lack a discipline of the kernel, at their
//! rates ([`dpif::qos::Scheduler`]).
//!
//! Forwarding threads put packets into the queues of a port. The thread takes them out by time, and sends them by a
//! transmit queue of its own. It starts with the first such port and ends with the last one. Packets that wait are
//! bounded by queue, and by [`MEMORY_MAX`] for all ports together.
//!
//! A forwarding thread counts a packet as sent that it puts into a queue. If the device refuses it later, the report of
//! the port's next batch counts it as dropped ([`PortScheduler::push`]).

use dpif::qos::{LinkFacts, Load, Next, Qos, QueueStats, Scheduler, ShownQos};
use netdev::{TxDrop, TxQueue, TxReport};
use packet::{BURST_MAX_PACKETS, Packet, PacketBatch, PacketPool, wire_cost};
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;
use sync::{AtomicBool, AtomicUsize, Mutex, Ordering, lock};
use sys::Waker;
use sys::confine::Kind;
use sys::poll::PollSet;

/// Most memory of waiting packets of all ports, in bytes.
const MEMORY_MAX: usize = 256 << 20;
/// Longest sleep with nothing to send.
const SLEEP_MAX: Duration = Duration::from_millis(500);

/// Memory of waiting packets.
static MEMORY: AtomicUsize = AtomicUsize::new(0);

/// The queues of a port.
struct Queues {
    scheduler: Scheduler<Packet>,
    /// Packets of queues that are gone, and of a port that ends: they leave at once.
    leaving: Vec<Packet>,
    /// Losses that no report counts yet.
    lost: TxReport,
    /// Memory counted in [`MEMORY`].
    memory: usize,
}

impl Queues {
    fn account(&mut self) {
        let now = self.scheduler.memory();
        match now.checked_sub(self.memory) {
            Some(more) => MEMORY.fetch_add(more, Ordering::Relaxed),
            None => MEMORY.fetch_sub(self.memory - now, Ordering::Relaxed),
        };
        self.memory = now;
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        MEMORY.fetch_sub(self.memory, Ordering::Relaxed);
    }
}

/// A port that is scheduled.
pub(crate) struct PortScheduler {
    queues: Mutex<Queues>,
    /// Held by the thread alone while it sends.
    tx: Mutex<Box<dyn TxQueue>>,
    has_ended: AtomicBool,
    wakeup: Arc<Wakeup>,
}

/// Wakes the thread.
struct Wakeup {
    waker: Waker,
    sleeps: AtomicBool,
}

impl Wakeup {
    fn wake(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// Cost of a packet: rate and memory.
fn load_of(p: &Packet) -> Load {
    let (packets, bytes) = wire_cost(p);
    Load { packets, bytes, memory: p.capacity() }
}

impl PortScheduler {
    /// Changes rates and queues; packets of queues that are gone leave at once.
    pub(super) fn set(&self, qos: &Qos, link: LinkFacts) {
        let mut queues = lock(&self.queues);
        let gone = queues.scheduler.set(qos, link, sys::clock::monotonic_us());
        queues.leaving.extend(gone);
        queues.account();
        drop(queues);
        self.wakeup.wake();
    }

    /// Ends it: packets that wait leave at once.
    pub(super) fn end(&self) {
        let mut queues = lock(&self.queues);
        let all = queues.scheduler.drain();
        queues.leaving.extend(all);
        queues.account();
        self.has_ended.store(true, Ordering::Release);
        drop(queues);
        self.wakeup.wake();
    }

    /// Puts a batch into the queues. The report has what found no room, and earlier losses, at most a batch of them.
    pub(super) fn push(&self, batch: &mut PacketBatch, pool: &mut PacketPool, now_us: u64) -> TxReport {
        let mut report = TxReport::default();
        let queues = &mut *lock(&self.queues);
        for p in batch.drain() {
            let (load, len, queue) = (load_of(&p), p.len(), u32::from(p.queue()));
            // A receive queue's own memory must not wait.
            let p = if p.chunk().is_some() {
                let copy = pool.copy(&p);
                pool.free(p);
                copy
            } else {
                p
            };
            let fits = MEMORY.load(Ordering::Relaxed).saturating_add(load.memory) <= MEMORY_MAX;
            let refused = if fits { queues.scheduler.push(queue, load, p, now_us).err() } else { Some(p) };
            match refused {
                None => report.count_sent(len),
                Some(p) => {
                    report.count_drops(TxDrop::QosQueueFull, 1);
                    pool.free(p);
                }
            }
        }
        queues.account();
        // A late loss takes the place of a packet that this report would count as sent.
        for why in TxDrop::ALL {
            let late = queues.lost.dropped(why).min(report.sent_packets);
            queues.lost.take_drops(why, late);
            report.sent_packets -= late;
            report.count_drops(why, late as usize);
        }
        self.wakeup.wake();
        report
    }

    pub(super) fn queues(&self, now_us: u64) -> Vec<QueueStats> {
        lock(&self.queues).scheduler.queues(now_us)
    }

    pub(super) fn shown(&self) -> ShownQos {
        lock(&self.queues).scheduler.shown()
    }

    /// Sends what may be sent now; returns the time of the next packet, if one waits.
    fn run(&self, batch: &mut PacketBatch, pool: &mut PacketPool) -> Option<u64> {
        let mut tx = lock(&self.tx);
        loop {
            let mut next = None;
            let mut queues = lock(&self.queues);
            let leaving = queues.leaving.len().min(BURST_MAX_PACKETS);
            queues.leaving.drain(..leaving).for_each(|p| batch.push(p));
            let now_us = sys::clock::monotonic_us();
            while batch.len() < BURST_MAX_PACKETS {
                match queues.scheduler.pop(now_us) {
                    Next::Send(p) => batch.push(p),
                    Next::Wait(until_us) => {
                        next = Some(until_us);
                        break;
                    }
                    Next::Empty => break,
                }
            }
            queues.account();
            drop(queues);
            if batch.is_empty() {
                return next;
            }
            // The device has one queue.
            batch.packets_mut().iter_mut().for_each(|p| p.set_queue(0));
            let report = tx.send(batch, pool);
            if report.dropped_packets() > 0 {
                lock(&self.queues).lost.add_drops(&report);
            }
        }
    }
}

/// The thread, and the ports that it serves.
#[derive(Default)]
pub(crate) struct SchedulerThread {
    served: Arc<Mutex<Served>>,
}

#[derive(Default)]
struct Served {
    ports: Vec<Arc<PortScheduler>>,
    /// Wakes the thread that runs.
    wakeup: Weak<Wakeup>,
}

impl SchedulerThread {
    /// Serves a port, by a transmit queue of its own.
    ///
    /// # Errors
    /// No thread can be started, or the discipline is not one that the scheduler has.
    pub(crate) fn serve(
        &self,
        qos: &Qos,
        link: LinkFacts,
        tx: Box<dyn TxQueue>,
    ) -> Result<Arc<PortScheduler>, String> {
        let name = qos.discipline.name();
        let scheduler = Scheduler::new(qos, link, sys::clock::monotonic_us());
        let scheduler =
            scheduler.ok_or_else(|| format!("{name}: the switch's own scheduler has no such discipline"))?;
        let served = &mut *lock(&self.served);
        let wakeup = match served.wakeup.upgrade() {
            Some(wakeup) => wakeup,
            None => {
                let failed = |e: io::Error| format!("{name}: cannot start the scheduler: {e}");
                let waker = Waker::new().map_err(failed)?;
                let wakeup = Arc::new(Wakeup { waker, sleeps: AtomicBool::new(false) });
                let (ports, own) = (self.served.clone(), wakeup.clone());
                let thread = std::thread::Builder::new().name("qos".to_string());
                let run = move || {
                    sys::confine::enter(Kind::Packets, &[]);
                    run(&ports, &own);
                };
                thread.spawn(run).map_err(failed)?;
                served.wakeup = Arc::downgrade(&wakeup);
                wakeup
            }
        };
        let queues = Queues { scheduler, leaving: Vec::new(), lost: TxReport::default(), memory: 0 };
        let port = Arc::new(PortScheduler {
            queues: Mutex::new(queues),
            tx: Mutex::new(tx),
            has_ended: AtomicBool::new(false),
            wakeup: wakeup.clone(),
        });
        served.ports.push(port.clone());
        wakeup.wake();
        Ok(port)
    }
}

#[cfg(test)]
impl SchedulerThread {
    /// Ports that it serves.
    pub(super) fn serves(&self) -> usize {
        lock(&self.served).ports.len()
    }
}

/// Serves ports until none is left.
fn run(served: &Mutex<Served>, wakeup: &Wakeup) {
    // Without it a sleep is longer, and the next turn sends more.
    if let Err(e) = sys::thread::precise_sleeps() {
        log::info!(target: "dpif_netdev", "scheduler: timed sleeps will be longer: {e}");
    }
    let (mut batch, mut pool) = (PacketBatch::new(), PacketPool::new());
    loop {
        wakeup.waker.drain();
        // Before the look at the queues: a packet that comes behind it wakes.
        wakeup.sleeps.store(true, Ordering::SeqCst);
        let ports = {
            let served = &mut *lock(served);
            if served.ports.is_empty() {
                // The next port starts another thread.
                served.wakeup = Weak::new();
                return;
            }
            served.ports.clone()
        };
        let mut next: Option<u64> = None;
        for port in &ports {
            let ended = port.has_ended.load(Ordering::Acquire);
            let due = port.run(&mut batch, &mut pool);
            next = match (next, due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            if ended {
                lock(served).ports.retain(|other| !Arc::ptr_eq(other, port));
            }
        }
        if ports.iter().any(|port| port.has_ended.load(Ordering::Acquire)) {
            continue;
        }
        let now_us = sys::clock::monotonic_us();
        let timeout =
            next.map_or(SLEEP_MAX, |at| Duration::from_micros(at.saturating_sub(now_us)).min(SLEEP_MAX));
        if !timeout.is_zero() {
            let mut set = PollSet::new();
            set.add(wakeup.waker.fd(), false);
            // Woken or not, the loop looks at all ports.
            let _ = set.wait(Some(timeout));
        }
        wakeup.sleeps.store(false, Ordering::SeqCst);
    }
}
