//! The thread itself.

use super::announce::Announcements;
use super::carriers::CarrierWatch;
use super::{CARRIERS, LINKS, Running, Shared, WAKE};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use netdev::link::{LinkEvent, LinkInfo, LinkMonitor, link_info};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use sync::{Ordering, lock};

/// Longest sleep: the clock of the switch may be stopped and moved.
const SLEEP_MAX_MS: u64 = 1000;
/// Pause until counters of flows are read again for a rebalancing that is due.
const COUNTERS_MS: u64 = 100;

/// The thread.
pub(super) struct Runner {
    shared: Arc<Shared>,
    poll: Poll,
    monitor: LinkMonitor,
    carriers: CarrierWatch,
    announcements: Announcements,
    /// When links are read that no event reports, by bond.
    reads: HashMap<String, u64>,
}

impl Runner {
    pub(super) fn new(shared: Arc<Shared>, poll: Poll) -> io::Result<Runner> {
        let monitor = LinkMonitor::new()?;
        poll.registry().register(&mut SourceFd(&monitor.fd().as_raw_fd()), LINKS, Interest::READABLE)?;
        let carriers = CarrierWatch::new()?;
        poll.registry().register(&mut SourceFd(&carriers.fd()), CARRIERS, Interest::READABLE)?;
        let (announcements, reads) = (Announcements::default(), HashMap::new());
        Ok(Runner { shared, poll, monitor, carriers, announcements, reads })
    }

    /// Runs until it is to stop.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(4);
        let mut next_ms: u64 = 0;
        while !self.shared.stop.load(Ordering::Acquire) {
            let wait_ms = next_ms.saturating_sub(sys::clock::monotonic_ms());
            if let Err(e) = self.poll.poll(&mut events, Some(Duration::from_millis(wait_ms)))
                && e.kind() != io::ErrorKind::Interrupted
            {
                log::error!(target: "bond", "cannot wait for link events: {e}");
                std::thread::sleep(Duration::from_millis(SLEEP_MAX_MS));
            }
            debug_assert!(events.iter().all(|event| matches!(event.token(), WAKE | LINKS | CARRIERS)));
            // Events of new members may be lost: their links are read.
            let all = self.shared.has_new.swap(false, Ordering::AcqRel);
            let has_events = all || events.iter().any(|event| event.token() != CARRIERS);
            let mut links = if has_events { self.changed_links(all) } else { HashMap::new() };
            let has_changed = self.carriers.read(&mut links);
            if has_events || has_changed || sys::clock::monotonic_ms() >= next_ms {
                next_ms = self.round(&links, all);
            }
        }
    }

    /// Carriers of links that changed, by name.
    fn changed_links(&mut self, all: bool) -> HashMap<String, bool> {
        let mut carriers = HashMap::new();
        let mut note = |name: &str, carrier: bool| _ = carriers.insert(name.to_string(), carrier);
        let mut note_all = |links: Vec<LinkInfo>| links.iter().for_each(|l| note(&l.name, l.carrier()));
        if all {
            note_all(netdev::link::list_links().unwrap_or_default());
        }
        loop {
            match self.monitor.poll() {
                Ok(events) if events.is_empty() => return carriers,
                Ok(events) => {
                    for event in events {
                        match event {
                            LinkEvent::Changed(info) => note_all(vec![info]),
                            LinkEvent::Deleted { name, .. } => {
                                note_all(vec![LinkInfo { name, ..LinkInfo::default() }])
                            }
                            LinkEvent::Resync(links) => note_all(links),
                        }
                    }
                }
                Err(e) => {
                    log::warn!(target: "bond", "cannot read link events: {e}");
                    return carriers;
                }
            }
        }
    }

    /// Serves all bonds, of which some are `new`; returns the time of the next round.
    fn round(&mut self, links: &HashMap<String, bool>, new: bool) -> u64 {
        let shared = self.shared.clone();
        let running = lock(&shared.running);
        let now_ms = sys::clock::monotonic_ms();
        let mut next_ms = now_ms + SLEEP_MAX_MS;
        self.reads.retain(|name, _| running.iter().any(|r| r.bond.name() == name));
        for bond in running.iter() {
            for member in &bond.members {
                if let Some(carrier) = links.get(&member.name) {
                    member.carrier.store(*carrier, Ordering::Release);
                }
            }
            next_ms = next_ms.min(self.read_links(bond, now_ms));
            bond.update(|_, _| ());
            next_ms = next_ms.min(rebalance(bond, now_ms));
            next_ms = next_ms.min(bond.bond.state().next_wakeup_ms().unwrap_or(u64::MAX));
        }
        if new {
            self.carriers.look_soon();
        }
        next_ms = next_ms.min(self.carriers.look(&running, now_ms));
        let wanted = std::mem::take(&mut *lock(&shared.to_announce));
        if self.announcements.send(wanted, &running, now_ms) { now_ms } else { next_ms }
    }

    /// Reads the links of a bond that does so regularly; returns the time of the next read.
    fn read_links(&mut self, bond: &Running, now_ms: u64) -> u64 {
        let every_ms = {
            let state = bond.bond.state();
            let settings = state.settings();
            if !settings.polls {
                return u64::MAX;
            }
            settings.poll_ms
        };
        let due_ms = self.reads.entry(bond.bond.name().to_string()).or_default();
        if now_ms >= *due_ms {
            *due_ms = now_ms + every_ms;
            for member in &bond.members {
                // Dummies and tunnels are no links.
                if let Ok(info) = link_info(&member.name) {
                    member.carrier.store(info.carrier(), Ordering::Release);
                }
            }
        }
        *due_ms
    }
}

/// Moves load between members if that is due and counters are up to date; returns the time of the next look.
fn rebalance(bond: &Running, now_ms: u64) -> u64 {
    let Some(due_ms) = bond.bond.state().rebalance_at_ms() else { return u64::MAX };
    if now_ms < due_ms {
        return due_ms;
    }
    if bond.backer.dumped_ms() < due_ms {
        return now_ms + COUNTERS_MS;
    }
    bond.account();
    bond.update(|state, now_ms| state.rebalance(now_ms));
    now_ms + COUNTERS_MS
}
