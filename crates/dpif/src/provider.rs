//! [`Provider`]: a datapath as the daemon runs it, beside [`Datapath`] with its operations: handlers, devices of ports, housekeeping.
//!
//! `dpif-netdev` and `dpif-netlink` implement it. A feature that one of them lacks is a capability: a method with a default, or a
//! trait of its own behind an `Option` ([`PmdThreads`], [`Connections`]). Nothing above asks which of the two it talks to.

use crate::conntrack::Connections;
use crate::drr::BATCH_MAX_UPCALLS;
use crate::ops::{Datapath, DpifError, DpifOp, OpBatch, OpResult};
use crate::port::{PortOptions, PortSpec};
use crate::stats::{PmdStats, PortStats};
use crate::threads::{Numa, PerfLog, PerfQuery, QueueInfo, RxqAffinity, ThreadInfo, ThreadPlan};
use crate::upcall::Upcalls;
use flow::{DpPort, Ufid};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Wakes a waiting thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Default of `n-revalidator-threads` for a number of processors, as in Open vSwitch.
pub fn usual_revalidators(processors: usize) -> usize {
    processors / 4 + 1
}

/// See the module.
pub trait Provider: Datapath {
    /// Sets the number of handlers and returns their receiving ends. The former handlers must have ended.
    ///
    /// # Errors
    /// The system refuses descriptors; nobody receives upcalls then until the next call.
    fn set_handlers(&self, handlers: usize) -> io::Result<Vec<Box<dyn UpcallReceiver>>>;

    /// Wakes all handlers.
    fn wake_handlers(&self);

    /// Whether the device that a port created still exists, in any network namespace; `None` when the port created none.
    fn own_device_exists(&self, port: DpPort) -> Option<bool>;

    /// Whether the kernel has a network device of the port; dummies and files have none.
    fn has_netdev(&self, port: DpPort) -> bool {
        let _ = port;
        true
    }

    /// Packets that waited for the slow path when their port was removed.
    fn ended_with_port(&self) -> u64;

    /// Upcalls of a port that wait for a handler.
    fn upcalls_waiting(&self, port: DpPort) -> u64;

    /// Counters of removed ports.
    fn removed_ports(&self) -> PortStats;

    /// Counters of all ports together, and of those that were removed; without their devices'. A port that does not know what
    /// it lost lost nothing.
    fn port_totals(&self) -> PortStats {
        let mut sum = self.removed_ports();
        for (_, mut stats) in self.all_port_stats() {
            let lost =
                [&mut stats.rx_dropped, &mut stats.rx_errors, &mut stats.tx_dropped, &mut stats.tx_errors];
            lost.into_iter().filter(|n| **n == u64::MAX).for_each(|n| *n = 0);
            sum.add(&stats);
        }
        sum
    }

    /// Counters of threads that have ended.
    fn ended_threads(&self) -> PmdStats {
        PmdStats::default()
    }

    /// Opens the devices of ports that are about to be added, where opening them together is faster.
    fn prepare(&self, specs: Vec<PortSpec>) {
        drop(specs);
    }

    /// Closes the devices of removed ports, and those that [`Provider::prepare`] opened in vain.
    fn close_devices(&self) {}

    /// Serves the ports that no thread polls; `true` when there is more to do at once.
    fn run_main(&self) -> bool {
        false
    }

    /// Default of `n-handler-threads` for a number of processors: those, less the revalidators of Open vSwitch.
    fn usual_handlers(&self, processors: usize) -> usize {
        processors.saturating_sub(usual_revalidators(processors))
    }

    /// Upcalls after which a handler sends operations, if it took more and from several ports. Small where sending is cheap, so
    /// that the first packet of a batch does not wait for the translation of the last.
    fn upcalls_at_once(&self) -> usize {
        BATCH_MAX_UPCALLS
    }

    /// [`Datapath::operate`], ahead of waiting operations.
    fn operate_ahead(&self, batch: OpBatch) {
        self.operate(batch);
    }

    /// Housekeeping, about once a second.
    fn tick(&self) {}

    /// Its forwarding threads; `None`: it has none of its own.
    fn pmd_threads(&self) -> Option<&dyn PmdThreads> {
        None
    }

    /// Its connection tracker; `None`: it does not track.
    fn connections(&self) -> Option<&dyn Connections> {
        None
    }

    /// Statistics of its mask lookups, where it has one table of masks.
    fn lookup_masks(&self) -> Option<LookupMasks> {
        None
    }

    /// Sockets by which its upcalls arrive, where it has any.
    fn upcall_sockets(&self) -> Option<UpcallSockets> {
        None
    }

    /// Removes ports that a former process left; all wanted ports are there.
    fn sweep_ports(&self) {}

    /// Removes whatever outlives the process; the last bridge is gone.
    fn remove(&self) {}
}

/// The receiving end of one handler.
pub trait UpcallReceiver: Send {
    /// Wakes it.
    fn waker(&self) -> Waker;

    /// Up to [`BATCH_MAX_UPCALLS`], fairly from all ports; waits for `timeout` when there are none.
    fn take(&mut self, timeout: Duration) -> Upcalls;

    /// Number of upcalls of the last batch from ports whose queue was empty before; they come first in it.
    fn ahead(&self) -> usize;

    /// Waits until it is woken, or for `timeout`.
    fn wait(&mut self, timeout: Duration);
}

/// Translates upcalls on the calling thread, for ports that the main loop polls.
pub trait InlineHandler: Send + Sync {
    /// The operations that answer the upcalls, in order. Must not call the datapath.
    fn translate(&self, upcalls: Upcalls) -> Vec<DpifOp>;

    /// Reports the results of operations; `ops` holds the flow that each one creates.
    fn done(&self, ops: &[Option<Ufid>], results: &[OpResult]);

    /// Threads took over flows of others, which the revalidator then has to compare with the tables.
    fn flows_moved(&self);
}

/// Forwarding threads of a datapath: configuration, placement of receive queues, measurements.
pub trait PmdThreads {
    /// Starts, stops and configures threads, and shares out the receive queues. Returns when all threads run so.
    ///
    /// # Errors
    /// A thread cannot be started: the former ones go on as before.
    fn configure(&self, plan: &ThreadPlan) -> Result<(), DpifError>;

    /// All threads in order of their cores; usage over the last `intervals` of 5 seconds.
    fn threads(&self, intervals: usize) -> Vec<ThreadInfo>;

    /// Receive queues that the main loop polls for lack of threads; `None` where there are threads.
    fn main_queues(&self) -> Option<Vec<QueueInfo>>;

    /// NUMA node of a core.
    fn numa(&self, core: u16) -> Numa;

    /// Default of `pmd-sleep-max`, in microseconds.
    fn sleep_max_default_us(&self) -> u64;

    /// Shares out all receive queues anew.
    fn rebalance(&self);

    /// Reopens the receive queues of a port after a change of its options, and pins them.
    ///
    /// # Errors
    /// The port is gone or cannot have these queues.
    fn port_rx_update(
        &self,
        port: DpPort,
        options: &PortOptions,
        affinity: &RxqAffinity,
    ) -> Result<(), DpifError>;

    /// Iteration statistics of threads as text, in the layout of `pmd-perf-show`.
    fn perf_text(&self, query: &PerfQuery) -> String;

    /// Sets which iterations are logged.
    fn set_perf_log(&self, log: PerfLog);

    /// Clears the counters of the thread of one core, or of all threads.
    fn clear_stats(&self, core: Option<u16>);
}

/// Statistics of mask lookups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookupMasks {
    /// Packets that were looked up.
    pub packets: u64,
    /// Masks visited for them.
    pub visited: u64,
    /// Masks now.
    pub masks: u32,
    /// Hits of the mask cache.
    pub cache_hits: u64,
    /// Entries of the mask cache; `None`: unknown.
    pub cache_size: Option<u32>,
}

/// Sockets of upcalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpcallSockets {
    /// Name of the dispatch mode.
    pub dispatch: &'static str,
    /// Sockets.
    pub sockets: usize,
    /// Handlers that read them.
    pub handlers: usize,
}
