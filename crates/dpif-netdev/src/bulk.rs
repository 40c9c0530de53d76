//! Devices opened and closed by the dozen.
//!
//! The kernel has whoever makes a receive ring, and whoever closes a packet socket, wait until all processors have let go of
//! it, 10 to 40 ms each time. Those who wait at the same time wait once: so the control thread has some threads do
//! it for many ports, and no forwarding thread ever does. What it was asked is done when it returns.
//!
//! Only ports of devices that were there before go this way. Others are opened and closed in turn: a device that a port made ends with its
//! last descriptor, and another one may be wanted by its name at once.
//!
//! A thread that ends, and the datapath at its end, have [`AT_END`] threads close all devices.
//!
//! Bounds: [`TOGETHER`] threads otherwise, as many devices opened before they are asked for, as many waiting to be closed.

use super::inbox::TxSide;
use super::ports::{OpenPort, Opened};
use super::queues::Rx;
use dpif::{DpifError, PortOptions, PortSpec};
use flow::DpPort;
use std::collections::BTreeMap;
use sync::{Mutex, lock};

/// Devices that are opened or closed at the same time.
pub const TOGETHER: usize = 32;

/// Devices that are closed at the same time when a thread or the datapath ends.
const AT_END: usize = 128;

/// What a thread had of a port that was removed.
pub(super) struct PortParts {
    pub(super) rx: Vec<Rx>,
    pub(super) side: Option<TxSide>,
}

/// All that is left of a removed port.
pub(super) struct Closing {
    pub(super) parts: Vec<PortParts>,
    pub(super) open: Option<OpenPort>,
}

impl Closing {
    /// Closes the device: its rings, its own sockets, then what all of them share.
    fn end(self) {
        let Closing { parts, open } = self;
        for PortParts { rx, side } in parts {
            drop((rx, side));
        }
        drop(open);
    }
}

/// What a thread had of its ports, by port.
pub(super) fn parts_of(rx: Vec<Rx>, sides: BTreeMap<DpPort, TxSide>) -> Vec<(DpPort, PortParts)> {
    let queues = rx.into_iter().map(|rx| (rx.port, PortParts { rx: vec![rx], side: None }));
    let sides = sides.into_iter().map(|(port, side)| (port, PortParts { rx: Vec::new(), side: Some(side) }));
    queues.chain(sides).collect()
}

/// Devices on their way in and out.
#[derive(Default)]
pub(super) struct Bulk {
    /// Opened before their ports were asked for.
    prepared: Mutex<Vec<(PortSpec, Opened)>>,
    closing: Mutex<Vec<Closing>>,
}

/// Does something with each item in no order, on so many threads at most.
fn each_by<T: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) + Sync) {
    let count = items.len();
    let left = Mutex::new(items);
    let next = || lock(&left).pop();
    let run = || std::iter::from_fn(next).for_each(&work);
    std::thread::scope(|scope| {
        for _ in 1..count.min(threads) {
            let named = std::thread::Builder::new().name("devices".to_string());
            // Where one cannot be started, the others do its part.
            if named.spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}

/// Does something with each item, on a thread of its own if there are several.
fn each<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if items.len() < 2 {
        return items.into_iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let spawn = |item| {
            let named = std::thread::Builder::new().name("devices".to_string());
            // One that cannot be started drops its item: it is closed all the same, or opened when it is asked for.
            named.spawn_scoped(scope, move || work(item)).ok()
        };
        let running: Vec<_> = items.into_iter().map(spawn).collect();
        // One that panicked has told so.
        running.into_iter().flatten().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Whether its device is there before the port and stays after it.
fn is_system(spec: &PortSpec) -> bool {
    matches!(spec.options, PortOptions::System(_))
}

impl Bulk {
    /// Opens the devices of ports that are about to be added; those that cannot be opened say why when they are added. At most
    /// [`TOGETHER`] at a time.
    pub(super) fn open_together(
        &self,
        specs: Vec<PortSpec>,
        open: impl Fn(&PortSpec) -> Result<Opened, DpifError> + Sync,
    ) {
        let specs: Vec<_> = specs.into_iter().filter(is_system).take(TOGETHER).collect();
        let opened = each(specs, |spec| open(&spec).ok().map(|opened| (spec, opened)));
        lock(&self.prepared).extend(opened.into_iter().flatten());
    }

    /// The device of a port, if it was opened before.
    pub(super) fn prepared(&self, spec: &PortSpec) -> Option<Opened> {
        let mut all = lock(&self.prepared);
        let at = all.iter().position(|(s, _)| s == spec)?;
        Some(all.swap_remove(at).1)
    }

    /// Closes what was opened in vain, and the devices of removed ports.
    pub(super) fn close_together(&self) {
        let (unused, closing) = {
            let (mut prepared, mut closing) = (lock(&self.prepared), lock(&self.closing));
            (std::mem::take(&mut *prepared), std::mem::take(&mut *closing))
        };
        each(unused, drop);
        each(closing, Closing::end);
    }

    /// Closes what ended threads had of ports, and whole ports, all together: devices that ports made as well, so this is not
    /// for ports whose names are wanted again at once.
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

    /// A port is removed: its device is closed now or by [`Bulk::close_together`].
    pub(super) fn close(&self, closing: Closing) {
        if !closing.open.as_ref().is_some_and(|open| is_system(&open.spec)) {
            return closing.end();
        }
        let full = {
            let mut all = lock(&self.closing);
            all.push(closing);
            all.len() >= TOGETHER
        };
        if full {
            self.close_together();
        }
    }
}

#[cfg(test)]
mod tests;
