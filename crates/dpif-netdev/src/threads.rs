//! Handles of a datapath's forwarding threads, and their start.

use super::inbox::{Control, FinalStats, Inbox};
use super::offload::{CoreOffload, Offloads};
use super::plan::assign::Thread as Place;
use super::pmd::{PmdThread, Purged};
use super::upcall_queues::PortQueues;
use crate::ablation::Ablation;
use datapath::{DpShared, Pmd, PmdConfig};
use dpif::Numa;
use dpif::{OpBatch, PmdId};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use sync::{AtomicU64, Ordering};
use sys::confine::Kind;

/// The sending side of its inbox.
pub(super) struct Thread {
    pub(super) id: PmdId,
    /// Its core, or its displayed number.
    pub(super) core: u16,
    pub(super) inbox: Arc<Inbox>,
}

/// A thread and its join handle.
pub(super) struct Running {
    pub(super) thread: Arc<Thread>,
    join: JoinHandle<()>,
    /// Whether it is bound to its core.
    pub(super) bound: bool,
    /// The NUMA node of its core.
    pub(super) numa: Numa,
}

/// Parameters of new threads.
pub(super) struct PmdFactory {
    pub(super) shared: Arc<DpShared>,
    pub(super) purged: Arc<Purged>,
    pub(super) portless: Arc<PortQueues>,
    pub(super) hash_seed: u64,
    /// Number of threads started so far: each has different hash functions, so that flow names are unique.
    pub(super) started: AtomicU64,
    /// Processors of unbound threads.
    pub(super) all_cpus: Vec<usize>,
    /// Simulated cores, by their nodes (`--dummy-numa`); empty for the machine's own.
    pub(super) dummy_numa: Vec<u16>,
    pub(super) ablation: Ablation,
    pub(super) offloads: Arc<Offloads>,
}

impl PmdFactory {
    /// The NUMA node of a core. A machine's own cores count as one node.
    pub(super) fn numa(&self, core: u16) -> Numa {
        self.dummy_numa.get(usize::from(core)).copied().map_or(Numa::default(), Numa)
    }

    /// The core of a thread, or of the main loop.
    pub(super) fn core(&self, id: PmdId) -> Pmd {
        let salt = self.started.fetch_add(1, Ordering::Relaxed) << 16;
        let number = match id {
            PmdId::Main | PmdId::None => 0xffff,
            PmdId::Core(n) => u64::from(n),
        };
        let seed = self.hash_seed ^ salt ^ number;
        let pmd = Pmd::new(self.ablation.core(PmdConfig::new(id, seed)), self.shared.clone());
        let level = pmd.level();
        match id {
            PmdId::Main | PmdId::None => {
                log::info!(target: "dpif_netdev", "main loop: stages compiled for {level}")
            }
            PmdId::Core(n) => log::info!(target: "dpif_netdev", "core {n}: stages compiled for {level}"),
        }
        pmd
    }

    /// A core's side of flow offload.
    pub(super) fn offload(&self, id: PmdId) -> CoreOffload {
        CoreOffload::new(self.offloads.clone(), id)
    }

    /// Starts a thread without ports.
    pub(super) fn start(&self, core: u16) -> io::Result<Running> {
        let id = PmdId::Core(core);
        let inbox = Arc::new(Inbox::new()?);
        let pmd = self.core(id);
        let (portless, offload) = (self.portless.clone(), self.offload(id));
        let thread = PmdThread::new(pmd, portless, inbox.clone(), offload, &self.ablation);
        let run = move || {
            sys::confine::enter(Kind::Packets, &[]);
            thread.run();
        };
        let join = std::thread::Builder::new().name(format!("pmd-c{core:02}")).spawn(run)?;
        Ok(Running {
            thread: Arc::new(Thread { id, core, inbox }),
            join,
            bound: false,
            numa: self.numa(core),
        })
    }
}

impl Running {
    /// Where its queues may be placed.
    pub(super) fn place(&self) -> Place {
        Place { core: self.thread.core, numa: self.numa }
    }

    /// Ends it, after its queues were taken: returns its remains, and unexecuted operations.
    pub(super) fn stop(self) -> (FinalStats, Vec<OpBatch>) {
        let (final_stats, answer) = sync_channel(1);
        let mut unanswered = self.thread.inbox.request(Control::Stop(final_stats));
        let left = answer.recv().unwrap_or_default();
        if self.join.join().is_err() {
            log::error!(target: "dpif_netdev", "forwarding thread of core {} ended by a fault", self.thread.core);
        }
        unanswered.extend(self.thread.inbox.leftovers());
        (left, unanswered)
    }
}
