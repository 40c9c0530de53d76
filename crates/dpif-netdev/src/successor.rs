//! Handover: the ports of a running datapath pass to another process, its successor, while packets flow.
//!
//! The first process lends its receive queues ([`UserspaceDatapath::lend`]) and forwards on. The successor opens its ports by
//! them, and does not receive yet. At the change the first process stops ([`UserspaceDatapath::stop_receiving`]), and the
//! successor receives from the same places on ([`UserspaceDatapath::begin`]): meanwhile frames wait in the queues, which both
//! processes share. If the successor fails before that, the first process goes on ([`UserspaceDatapath::begin`] there).

use super::UserspaceDatapath;
use super::inbox::Control;
use super::inheritance::{LentPort, QueuePlace};
use super::queues::Rx;
use datapath::MeterLevels;
use dpif::PmdId;
use flow::DpPort;
use netdev::{Lending, LentKind, LentQueue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use sync::lock;

impl UserspaceDatapath {
    /// Lends the receive queues of all ports, which stay in use; `None`: not yet, ask again soon.
    ///
    /// # Errors
    /// A port whose queues cannot pass, with the reason.
    pub fn lend(&self) -> Result<Option<Vec<LentPort>>, String> {
        let s = lock(&self.pool.state);
        let threads = s.running.values().map(|running| &running.thread);
        let asked = self.pool.cores.ask(threads, Control::Lend).into_iter().flatten();
        let mut queues: BTreeMap<DpPort, BTreeMap<u16, LentQueue>> = BTreeMap::new();
        let mut is_changing = false;
        for (id, lending) in asked {
            let name = s.ports.get(id.port).map_or("", |port| &port.info.name);
            match lending.map_err(|e| format!("port {name}: {e}"))? {
                Lending::Queue(queue) => drop(queues.entry(id.port).or_default().insert(id.queue, queue)),
                Lending::Anew => {}
                Lending::Changing => is_changing = true,
                Lending::Refused(why) => return Err(format!("port {name}: {why}")),
            }
        }
        if is_changing {
            return Ok(None);
        }
        let lent = s.ports.iter().map(|port| LentPort {
            name: port.info.name.clone(),
            type_name: port.info.type_name.clone(),
            number: port.info.number,
            queues: queues.remove(&port.info.number).unwrap_or_default().into_values().collect(),
        });
        Ok(Some(lent.collect()))
    }

    /// Takes the lent queues back: the successor has given up.
    pub fn take_back(&self) {
        let s = lock(&self.pool.state);
        self.pool.cores.ask(s.running.values().map(|running| &running.thread), Control::TakeBack);
    }

    /// Receives no more; returns the places where it stopped. Packets received before are forwarded.
    pub fn stop_receiving(&self) -> Vec<QueuePlace> {
        let s = &mut *lock(&self.pool.state);
        let threads = s.running.values().map(|running| &running.thread);
        let held = s.held.get_or_insert_default();
        held.extend(self.pool.cores.ask(threads, Control::Suspend).into_iter().flatten());
        held.iter().map(Rx::place).collect()
    }

    /// Opens the queues where it stopped anew, because another process may have received from them; returns the ports that
    /// could not be opened, with the reason.
    pub fn begin_anew(&self) -> Vec<(String, String)> {
        let s = &mut *lock(&self.pool.state);
        // Others have no place in memory that could be wrong.
        let mut ports = BTreeSet::new();
        for rx in s.held.iter_mut().flatten() {
            if let Ok(Lending::Queue(LentQueue {
                kind: LentKind::Ring(..) | LentKind::Growing(_, _, Some(_)),
                ..
            })) = rx.lend()
            {
                ports.insert(rx.port);
            }
        }
        let mut lost = Vec::new();
        for port in ports {
            // The old queues are closed with the call.
            s.held.iter_mut().for_each(|held| held.retain(|rx| rx.port != port));
            let name = s.ports.get(port).map(|port| port.info.name.clone()).unwrap_or_default();
            match self.pool.reopen(s, port) {
                Ok(queues) => s.held.get_or_insert_default().extend(queues),
                Err(e) => lost.push((name, e.to_string())),
            }
        }
        lost
    }

    /// Receives: in the successor from these places on; without them, where [`UserspaceDatapath::stop_receiving`] stopped, or from
    /// the oldest frames that an ended process left.
    pub fn begin(&self, places: &[QueuePlace]) {
        self.pool.inheritance.end();
        let s = &mut *lock(&self.pool.state);
        let Some(mut queues) = s.held.take() else { return };
        let places: BTreeMap<_, _> = places.iter().map(|at| ((at.port, at.queue), at.place)).collect();
        for rx in &mut queues {
            rx.take_back();
            let QueuePlace { port, queue, .. } = rx.place();
            match places.get(&(port, queue)) {
                Some(place) => rx.go_on_at(*place),
                None => rx.catch_up(),
            }
        }
        let (running, ports, plan, placement) = (&s.running, &s.ports, &s.plan, &mut s.placement);
        placement.resume(&self.pool.fleet(running, ports, plan), queues);
    }

    /// Levels of a meter, while nothing is received; `None` without such a meter, or if it had no packet.
    pub fn meter_levels(&self, id: u32) -> Option<MeterLevels> {
        self.pool.factory.shared.meter_levels(id, sys::clock::monotonic_us())
    }

    /// Has a meter go on from the levels of the other process.
    pub fn meter_resume(&self, id: u32, levels: &MeterLevels) {
        self.pool.factory.shared.meter_resume(id, levels, sys::clock::monotonic_us());
    }

    /// Number of its ports added and removed so far, as it changes.
    pub fn port_changes(&self) -> Arc<AtomicU64> {
        lock(&self.pool.state).ports.changes.clone()
    }

    /// Threads that receive, or will, from a port.
    pub fn receivers(&self, port: DpPort) -> Vec<PmdId> {
        lock(&self.pool.state).placement.cores_of(port).into_iter().map(PmdId::Core).collect()
    }
}
