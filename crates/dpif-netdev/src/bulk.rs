//! Bulk opening and closing of devices.
//!
//! The kernel waits for an RCU grace period, 10 to 40 ms, when a receive ring is made or a packet socket is closed.
//! Concurrent waits share it, so the control thread has several threads work on many ports, and no forwarding thread
//! ever waits. A call returns once all its work is done.
//!
//! Devices made by their ports (taps) are opened in order. Their removal waits for the others, and one request ends them:
//! at the end of a change, or before a port of one of these names opens.
//!
//! At the end of a thread or of the datapath, [`AT_END`] threads close all devices.
//!
//! Bounds: otherwise [`TOGETHER`] threads, and the same number of devices opened in advance and of devices waiting
//! for close, but [`netdev::ENDED_TOGETHER`] with taps.

use super::inbox::TxSide;
use super::ports::{self, OpenPort};
use super::queues::Rx;
use dpif::{DpifError, PortSpec};
use flow::DpPort;
use netdev::OpenedPort;
use std::collections::BTreeMap;
use sync::{Mutex, lock};
use sys::confine::Kind;

/// Devices opened or closed concurrently.
pub const TOGETHER: usize = 32;

/// Devices closed concurrently at the end of a thread or the datapath.
const AT_END: usize = 128;

/// A thread's part of a removed port.
pub(super) struct PortParts {
    pub(super) rx: Vec<Rx>,
    pub(super) side: Option<TxSide>,
}

/// All remaining parts of a removed port.
pub(super) struct Closing {
    pub(super) parts: Vec<PortParts>,
    pub(super) open: Option<OpenPort>,
}

impl Closing {
    /// Whether several threads close such devices at once.
    fn closes_aside(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.spec.options.opens_together())
    }

    /// Whether the port created its device.
    fn created_device(&self) -> bool {
        self.open.as_ref().is_some_and(OpenPort::created_device)
    }

    fn has_name(&self, name: &str) -> bool {
        self.open.as_ref().is_some_and(|open| open.info.name == name)
    }

    /// Closes the device: its rings, its own sockets, then the shared part.
    fn end(self) {
        let Closing { parts, open } = self;
        for PortParts { rx, side } in parts {
            drop((rx, side));
        }
        drop(open);
    }
}

/// A thread's parts of its ports, by port.
pub(super) fn parts_of(rx: Vec<Rx>, sides: BTreeMap<DpPort, TxSide>) -> Vec<(DpPort, PortParts)> {
    let queues = rx.into_iter().map(|rx| (rx.port, PortParts { rx: vec![rx], side: None }));
    let sides = sides.into_iter().map(|(port, side)| (port, PortParts { rx: Vec::new(), side: Some(side) }));
    queues.chain(sides).collect()
}

/// Devices being opened and closed.
#[derive(Default)]
pub(super) struct Bulk {
    /// Opened in advance.
    prepared: Mutex<Vec<(PortSpec, OpenedPort)>>,
    closing: Mutex<Vec<Closing>>,
}

/// Processes each item, in no order, on at most this number of threads.
fn each_by<T: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) + Sync) {
    let count = items.len();
    let left = Mutex::new(items);
    let next = || lock(&left).pop();
    let run = || std::iter::from_fn(next).for_each(&work);
    std::thread::scope(|scope| {
        for _ in 1..count.min(threads) {
            let named = std::thread::Builder::new().name("devices".to_string());
            // If a thread cannot be started, the others do its part.
            let confined = || {
                sys::confine::enter(Kind::Devices, &[]);
                run();
            };
            if named.spawn_scoped(scope, confined).is_err() {
                break;
            }
        }
        run();
    });
}

/// Processes each item, in separate threads if there are several.
fn each<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if items.len() < 2 {
        return items.into_iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let spawn = |item| {
            let named = std::thread::Builder::new().name("devices".to_string());
            // A thread that cannot be started drops its item: it is closed all the same, or opened on request.
            let run = move || {
                sys::confine::enter(Kind::Devices, &[]);
                work(item)
            };
            named.spawn_scoped(scope, run).ok()
        };
        let running: Vec<_> = items.into_iter().map(spawn).collect();
        // A panic has been reported already.
        running.into_iter().flatten().filter_map(|thread| thread.join().ok()).collect()
    })
}

impl Bulk {
    /// Opens the devices of ports about to be added, at most [`TOGETHER`] at a time; errors are reported when the
    /// ports are added.
    pub(super) fn open_together(
        &self,
        specs: Vec<PortSpec>,
        open: impl Fn(&PortSpec) -> Result<OpenedPort, DpifError> + Sync,
    ) {
        let specs: Vec<_> =
            specs.into_iter().filter(|spec| spec.options.opens_together()).take(TOGETHER).collect();
        let opened = each(specs, |spec| open(&spec).ok().map(|opened| (spec, opened)));
        lock(&self.prepared).extend(opened.into_iter().flatten());
    }

    /// The device of a port, if opened in advance.
    pub(super) fn prepared(&self, spec: &PortSpec) -> Option<OpenedPort> {
        let mut all = lock(&self.prepared);
        let at = all.iter().position(|(s, _)| s == spec)?;
        Some(all.swap_remove(at).1)
    }

    /// Closes unused devices, and the devices of removed ports.
    pub(super) fn close_together(&self) {
        let (unused, closing) = {
            let (mut prepared, mut closing) = (lock(&self.prepared), lock(&self.closing));
            (std::mem::take(&mut *prepared), std::mem::take(&mut *closing))
        };
        each(unused, drop);
        ports::end_devices(closing.iter().filter_map(|closing| closing.open.as_ref()));
        let (aside, here): (Vec<_>, Vec<_>) = closing.into_iter().partition(Closing::closes_aside);
        each(aside, Closing::end);
        here.into_iter().for_each(Closing::end);
    }

    /// Ends a removed device of that name, which a new port may take.
    pub(super) fn release(&self, name: &str) {
        let is_it = |closing: &Closing| closing.has_name(name) && closing.created_device();
        if lock(&self.closing).iter().any(is_it) {
            self.close_together();
        }
    }

    /// Closes the ports of ended threads, and whole ports, all together. Includes devices made by ports, so do not
    /// use it for ports whose names are reused at once.
    pub(super) fn close_all(&self, parts: Vec<(DpPort, PortParts)>, open: Vec<OpenPort>) {
        self.close_together();
        let mut all: BTreeMap<DpPort, Closing> = BTreeMap::new();
        for open in open {
            all.insert(open.info.number, Closing { parts: Vec::new(), open: Some(open) });
        }
        for (port, part) in parts {
            all.entry(port).or_insert(Closing { parts: Vec::new(), open: None }).parts.push(part);
        }
        each_by(all.into_values().collect(), AT_END, Closing::end);
    }

    /// Removes a port: closes its device now or in [`Bulk::close_together`].
    pub(super) fn close(&self, closing: Closing) {
        if !closing.closes_aside() && !closing.created_device() {
            return closing.end();
        }
        let full = {
            let mut all = lock(&self.closing);
            all.push(closing);
            all.iter().filter(|closing| closing.closes_aside()).count() >= TOGETHER
                || all.len() >= netdev::ENDED_TOGETHER
        };
        if full {
            self.close_together();
        }
    }
}

#[cfg(test)]
mod tests;
