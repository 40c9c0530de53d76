//! [`Provider`]: a datapath as the daemon runs it, beside [`Datapath`] with its operations: handlers, devices of ports, housekeeping.
//!
//! Implemented by `dpif-netdev` and `dpif-netlink`. A feature missing in one of them is a capability: a method with
//! a default, or a separate trait behind an `Option` ([`PmdThreads`], [`FlowOffloads`], [`UserspaceTunnels`], [`Connections`]). Callers never ask which of
//! the two it is.

use crate::drr::BATCH_MAX_UPCALLS;
use crate::offload::FlowOffloads;
use crate::ops::{Datapath, DpifError, DpifOp, OpBatch, OpResult};
use crate::port::{EgressPorts, PortSpec};
use crate::port_types::PortOptions;
use crate::qos::{LinkFacts, Policing, Qos, ShownQos};
use crate::stats::{PmdStats, PortStats};
use crate::threads::{Iterations, Numa, PerfLog, PerfQuery, QueueInfo, RxqAffinity, ThreadInfo, ThreadPlan};
use crate::upcall::Upcalls;
use flow::{DpPort, Ufid};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Tunnels whose headers actions push and pop.
pub trait UserspaceTunnels {
    /// Sets the range of their UDP source ports.
    fn set_egress_ports(&self, ports: EgressPorts);
}

/// Quality of service and policing of ports.
pub trait Shaping {
    /// Gives a port's device its discipline and queues; `None` leaves the system's own.
    ///
    /// # Errors
    /// The device cannot have it, with the reason.
    fn set_qos(&self, port: DpPort, qos: Option<&Arc<Qos>>, link: LinkFacts) -> Result<(), String>;

    /// Limits what a port receives.
    ///
    /// # Errors
    /// It cannot be limited, with the reason.
    fn set_policing(&self, port: DpPort, limits: Policing) -> Result<(), String>;

    /// The discipline of a port as it is.
    fn shown_qos(&self, port: DpPort) -> ShownQos;

    /// The names of disciplines that a port can have.
    fn qos_types(&self, port: DpPort) -> &'static [&'static str];

    /// Whether the switch's own scheduler serves a port, instead of the kernel.
    fn has_own_scheduler(&self, port: DpPort) -> bool {
        let _ = port;
        false
    }
}

/// Bonds that the datapath balances by itself (`lb_output`).
pub trait BondBalancer {
    /// Adds or changes a bond: the ports of its 256 hash values, in their order. Without ports, removes it.
    fn set_bond(&self, bond: u32, members: &[DpPort]);

    /// Bytes sent so far for each hash value; `None`: there is no such bond.
    fn bond_bytes(&self, bond: u32) -> Option<Vec<u64>>;

    /// All bonds with the ports of their hash values.
    fn bonds(&self) -> Vec<(u32, Vec<DpPort>)>;
}

/// Wakes a waiting thread.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// Default of `n-revalidator-threads` for a number of processors, as in Open vSwitch.
pub fn usual_revalidators(processors: usize) -> usize {
    processors / 4 + 1
}

/// See the module documentation.
pub trait Provider: Datapath {
    /// Sets the number of handlers and returns their receiving ends. The previous handlers must have ended.
    ///
    /// # Errors
    /// The system refuses descriptors; upcalls are not received until the next call.
    fn set_handlers(&self, handlers: usize) -> io::Result<Vec<Box<dyn UpcallReceiver>>>;

    /// Sets the number of VLAN tags in keys, 1 or 2; returns the one in force, which the datapath limits. Flows stay.
    fn set_vlan_limit(&self, tags: u8) -> u8;

    /// Wakes all handlers.
    fn wake_handlers(&self);

    /// Whether the device created by a port still exists, in any network namespace; `None` if the port created none.
    fn own_device_exists(&self, port: DpPort) -> Option<bool>;

    /// Present index of the device created by a port, which may have been moved and back; 0: it is in another network
    /// namespace than the calling thread. `None`: it is gone, or the port created none.
    fn own_device_index(&self, port: DpPort) -> Option<u32>;

    /// Whether the port has a network device in the kernel; dummies and files have none.
    fn has_netdev(&self, port: DpPort) -> bool {
        let _ = port;
        true
    }

    /// Upcalls dropped because their port was removed.
    fn ended_with_port(&self) -> u64;

    /// Number of a port's upcalls waiting for a handler.
    fn upcalls_waiting(&self, port: DpPort) -> u64;

    /// Counters of removed ports.
    fn removed_ports(&self) -> PortStats;

    /// Counters of all ports together, including removed ones; without those of devices. An unknown loss counts as
    /// 0.
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

    /// Counters of ended threads.
    fn ended_threads(&self) -> PmdStats {
        PmdStats::default()
    }

    /// Opens the devices of ports about to be added, if opening them together is faster.
    fn prepare(&self, specs: Vec<PortSpec>) {
        drop(specs);
    }

    /// Closes the devices of removed ports, and unused ones opened by [`Provider::prepare`].
    fn close_devices(&self) {}

    /// Serves the ports without a polling thread; `true` if more work is ready.
    fn run_main(&self) -> bool {
        false
    }

    /// Default of `n-handler-threads` for a number of processors: their number less Open vSwitch's default of
    /// revalidators.
    fn usual_handlers(&self, processors: usize) -> usize {
        processors.saturating_sub(usual_revalidators(processors))
    }

    /// Number of upcalls after which a handler sends operations, if it took more and from several ports. Small if
    /// sending is cheap, so that the first packet of a batch does not wait for the translation of the last.
    fn upcalls_at_once(&self) -> usize {
        BATCH_MAX_UPCALLS
    }

    /// As [`Datapath::operate`], before waiting operations.
    fn operate_ahead(&self, batch: OpBatch) {
        self.operate(batch);
    }

    /// Housekeeping, about once a second.
    fn tick(&self) {}

    /// Its forwarding threads; `None`: no separate ones.
    fn pmd_threads(&self) -> Option<&dyn PmdThreads> {
        None
    }

    /// Tunnels whose headers actions push and pop; `None`: its ports do that.
    fn tunnels(&self) -> Option<&dyn UserspaceTunnels> {
        None
    }

    /// Operations so far, by the names of their counters.
    fn op_counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Its quality of service, if it has any.
    fn shaping(&self) -> Option<&dyn Shaping> {
        None
    }

    /// Bonds that it balances by itself; `None`: it cannot.
    fn bond_balancer(&self) -> Option<&dyn BondBalancer> {
        None
    }

    /// Its flow offload; `None`: none.
    fn offload(&self) -> Option<&dyn FlowOffloads> {
        None
    }

    /// Statistics of its mask lookups, if it has one table of masks.
    fn lookup_masks(&self) -> Option<LookupMasks> {
        None
    }

    /// Settings of a port's device that `dpif/show` and `dpctl/show` have.
    fn shown_settings(&self, _port: DpPort) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Sockets of its upcalls, if any.
    fn upcall_sockets(&self) -> Option<UpcallSockets> {
        None
    }

    /// Removes ports left by a previous process; all wanted ports exist.
    fn sweep_ports(&self) {}

    /// Removes all state that outlives the process; the last bridge is removed.
    fn remove(&self) {}
}

/// The receiving end of one handler.
pub trait UpcallReceiver: Send {
    /// Wakes it.
    fn waker(&self) -> Waker;

    /// Up to [`BATCH_MAX_UPCALLS`], fairly from all ports; without any, waits for `timeout`.
    fn take(&mut self, timeout: Duration) -> Upcalls;

    /// Number of upcalls of the last batch from newly nonempty queues; they come first in it.
    fn ahead(&self) -> usize;

    /// Waits for a wake-up, or for `timeout`.
    fn wait(&mut self, timeout: Duration);
}

/// Translates upcalls on the calling thread, for ports polled by the main loop.
pub trait InlineHandler: Send + Sync {
    /// The operations for the upcalls, in order. Must not call the datapath.
    fn translate(&self, upcalls: Upcalls) -> Vec<DpifOp>;

    /// Reports the results of operations; `ops` has the flow created by each one.
    fn done(&self, ops: &[Option<Ufid>], results: &[OpResult]);

    /// Threads took over flows of others: the revalidator must compare them with the tables.
    fn flows_moved(&self);
}

/// Forwarding threads of a datapath: configuration, placement of receive queues, statistics.
pub trait PmdThreads {
    /// Starts, stops and configures threads, and assigns the receive queues. Returns once the change is complete.
    ///
    /// # Errors
    /// A thread cannot be started: the previous ones continue.
    fn configure(&self, plan: &ThreadPlan) -> Result<(), DpifError>;

    /// All threads in order of their cores; usage over the last `intervals` of 5 seconds.
    fn threads(&self, intervals: usize) -> Vec<ThreadInfo>;

    /// Receive queues polled by the main loop for lack of threads; `None` with threads.
    fn main_queues(&self) -> Option<Vec<QueueInfo>>;

    /// NUMA node of a core.
    fn numa(&self, core: u16) -> Numa;

    /// Default of `pmd-sleep-max`, in microseconds.
    fn sleep_max_default_us(&self) -> u64;

    /// Assigns all receive queues anew.
    fn rebalance(&self);

    /// Reopens the receive queues of a port after a change of its options, and pins them.
    ///
    /// # Errors
    /// The port was removed or cannot have these queues.
    fn port_rx_update(
        &self,
        port: DpPort,
        options: &PortOptions,
        affinity: &RxqAffinity,
    ) -> Result<(), DpifError>;

    /// Iteration statistics of threads as text, in the layout of `pmd-perf-show`.
    fn perf_text(&self, query: &PerfQuery) -> String;

    /// Iterations of all threads, by core.
    fn iterations(&self) -> Vec<(u16, Iterations)>;

    /// Sets which iterations are logged.
    fn set_perf_log(&self, log: PerfLog);

    /// Clears the counters of the thread of one core, or of all threads.
    fn clear_stats(&self, core: Option<u16>);
}

/// Statistics of mask lookups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookupMasks {
    /// Packets looked up.
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
