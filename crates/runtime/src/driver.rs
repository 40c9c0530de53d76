//! [`Driver`]: what the slow path and the control plane ask of a datapath that runs in this process, beside
//! [`dpif::Datapath`]; and [`Receiver`], the end of it that hands upcalls to one handler.
//!
//! The userspace datapath is one, the kernel's is the other. What only one of them has is behind [`Driver::userspace`] and
//! [`Driver::kernel`].

use crate::kernel::KernelDatapath;
use crate::userspace::UserspaceDatapath;
use dpif::{Connections, Datapath, OpBatch, PmdStats, PortSpec, PortStats, Upcalls};
use flow::DpPort;
use ofproto::upcall::BATCH_MAX_UPCALLS;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Wakes whoever waits.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// A datapath with all that is needed to run it.
pub trait Driver: Datapath {
    /// Gives the upcalls to so many handlers; their receiving ends. The former ones must have ended.
    ///
    /// # Errors
    /// When the system refuses descriptors; nobody receives then until the next call.
    fn set_handlers(&self, handlers: usize) -> io::Result<Vec<Box<dyn Receiver>>>;

    /// Wakes all handlers.
    fn wake_handlers(&self);

    /// Whether the device that a port made still is there, be it in another network namespace; `None` when the port did not
    /// make it.
    fn own_device_exists(&self, port: DpPort) -> Option<bool>;

    /// Packets that waited for the slow path when their port was removed.
    fn ended_with_port(&self) -> u64;

    /// Upcalls of a port that wait for a handler.
    fn upcalls_waiting(&self, port: DpPort) -> u64;

    /// What ports counted that were removed.
    fn removed_ports(&self) -> PortStats;

    /// What threads counted that have ended.
    fn ended_threads(&self) -> PmdStats {
        PmdStats::default()
    }

    /// Opens the devices of ports that are about to be added, where that is faster together.
    fn prepare(&self, specs: Vec<PortSpec>) {
        drop(specs);
    }

    /// Closes the devices of removed ports, and those that were opened in vain.
    fn close_devices(&self) {}

    /// Serves the ports that no thread polls; `true` when there is more to do at once.
    fn run_main(&self) -> bool {
        false
    }

    /// How many handlers there are unless `n-handler-threads` says otherwise, with so many processors: those, less what
    /// revalidators would take in stock switches.
    fn usual_handlers(&self, processors: usize) -> usize {
        processors.saturating_sub(processors / 4 + 1)
    }

    /// Upcalls after which a handler hands over what is to be done, when it has taken more and from several ports: few where that
    /// costs next to nothing, so that the first packet of a batch does not wait for the last one's translation.
    fn upcalls_at_once(&self) -> usize {
        BATCH_MAX_UPCALLS
    }

    /// [`Datapath::operate`], ahead of operations that wait already, where they wait.
    fn operate_ahead(&self, batch: OpBatch) {
        self.operate(batch);
    }

    /// Housekeeping, about once a second.
    fn tick(&self) {}

    /// Its connection tracker; `None`: it tracks none.
    fn connections(&self) -> Option<&dyn Connections> {
        None
    }

    /// It as the userspace datapath, for what only that has.
    fn userspace(&self) -> Option<&UserspaceDatapath> {
        None
    }

    /// It as the kernel's datapath, for what only that has.
    fn kernel(&self) -> Option<&KernelDatapath> {
        None
    }

    /// All ports that are wanted are there: others, that a former process left, go.
    fn sweep_ports(&self) {}

    /// Its last bridge is gone: what would outlive the process ends.
    fn remove(&self) {}
}

/// The receiving end of one handler.
pub trait Receiver: Send {
    /// What wakes it.
    fn waker(&self) -> Waker;

    /// Up to a batch of upcalls, fairly from all ports; waits for `timeout` when there are none.
    fn take(&mut self, timeout: Duration) -> Upcalls;

    /// How many of the upcalls taken last came from ports that had had none: they are the first of them.
    fn ahead(&self) -> usize;

    /// Waits until it is woken, or for `timeout`.
    fn wait(&mut self, timeout: Duration);
}
