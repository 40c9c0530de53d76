//! The thread itself.

use super::{Configure, Message, Report, Shared, Target};
use dpif::{DpifOp, OpBatch, PmdId, Provider};
use l2proto::bfd::{Environment, Received, SessionId, Sessions, Transmission};
use ofproto::backer::Backer;
use ofproto::bfd::{BfdPacket, BfdState};
use ofproto::bfd_sender::{self, Sender};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use sync::{Ordering, Parker, lock};

/// Sessions served in a round before messages are taken again.
const SESSIONS_AT_A_TIME: usize = 64;
/// Longest sleep: the clock of the switch may be stopped and moved.
const SLEEP_MAX_MS: u64 = 1000;

/// A session's surroundings.
struct Place {
    target: Target,
    state: Arc<BfdState>,
    sender: Sender,
    /// Packets received by its device, as last told.
    rx_packets: u64,
}

/// Answers that sessions need.
struct Surroundings {
    places: BTreeMap<SessionId, Place>,
    /// Counters of sessions that are being made.
    new_rx_packets: u64,
    random: u64,
}

impl Environment for Surroundings {
    fn rx_packets(&mut self, session: SessionId) -> u64 {
        let Some(place) = self.places.get(&session) else { return self.new_rx_packets };
        place.target.counters.as_ref().map_or(place.rx_packets, |c| c.rx[0].load(Ordering::Relaxed))
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn random(&mut self, below: u32) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // Of 32 random bits, so the bias is below 2^-26 for the few values that sessions ask for.
        ((u64::from(z as u32) * u64::from(below.max(1))) >> 32) as u32
    }
}

/// The thread.
pub(super) struct Runner {
    shared: Arc<Shared>,
    parker: Parker,
    sessions: Sessions,
    around: Surroundings,
    due: Vec<(SessionId, Transmission)>,
}

impl Runner {
    pub(super) fn new(shared: Arc<Shared>, parker: Parker) -> Runner {
        // Without random numbers, discriminators and jitter repeat after a restart.
        let random = sys::random::u64().unwrap_or_else(|_| sys::clock::machine_ns());
        let around = Surroundings { places: BTreeMap::new(), new_rx_packets: 0, random };
        Runner { shared, parker, sessions: Sessions::default(), around, due: Vec::new() }
    }

    /// Runs until it is to stop.
    pub(super) fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            self.take_packets();
            self.take_messages();
            let more = self.tick();
            self.tell();
            if !more {
                self.sleep();
            }
        }
    }

    fn sleep(&self) {
        let now_ms = sys::clock::monotonic_ms();
        let wait_ms = self.sessions.next_wakeup().map_or(SLEEP_MAX_MS, |at_ms| at_ms.saturating_sub(now_ms));
        if wait_ms > 0 {
            self.parker.park_timeout(Duration::from_millis(wait_ms.min(SLEEP_MAX_MS)));
        }
    }

    /// Packets of the sessions that have some; each has few.
    fn take_packets(&mut self) {
        let ready = std::mem::take(&mut *lock(&self.shared.ready));
        for state in ready {
            let (counted, packets) = state.take();
            let Some(id) = self.sessions.find(state.name()) else { continue };
            let now_ms = sys::clock::monotonic_ms();
            self.sessions.account_rx(id, counted, now_ms);
            for BfdPacket { ttl, payload } in packets {
                let received = Received { ttl, payload: payload.as_deref() };
                // The answer to a poll is due at once.
                if let Ok(Err(refusal)) = self.sessions.input(id, received, now_ms, &mut self.around) {
                    log::info!(target: "bfd", "{}: {refusal}", state.name());
                }
            }
        }
    }

    fn take_messages(&mut self) {
        while let Some(message) = self.shared.next_message() {
            let now_ms = sys::clock::monotonic_ms();
            // The requester may have given up.
            match message {
                Message::Configure(configure) => self.configure(*configure, now_ms),
                Message::Remove(name) => self.remove(&name),
                Message::Counters(counters) => {
                    for (name, rx_packets) in counters {
                        let id = self.sessions.find(&name);
                        if let Some(place) = id.and_then(|id| self.around.places.get_mut(&id)) {
                            place.rx_packets = rx_packets;
                        }
                    }
                }
                Message::Show(name, answer) => {
                    let shown = self.sessions.show(name.as_deref(), now_ms).map_err(|e| e.to_string());
                    let _ = answer.try_send(shown);
                }
                Message::SetForwarding(name, choice, answer) => {
                    let set = self.sessions.set_forwarding(name.as_deref(), &choice);
                    self.tell();
                    let _ = answer.try_send(set.map(str::to_string).map_err(str::to_string));
                }
                Message::Pass(answer) => {
                    self.take_packets();
                    while self.tick() {}
                    self.take_packets();
                    self.tell();
                    let _ = answer.try_send(());
                }
            }
        }
    }

    fn configure(&mut self, configure: Configure, now_ms: u64) {
        let Configure { config, mac, target, state, rx_packets } = configure;
        self.around.new_rx_packets = rx_packets;
        let name = state.name().to_string();
        if let Some(id) = self.sessions.configure(&name, mac, &config, now_ms, &mut self.around) {
            self.around.places.insert(id, Place { target, state, sender: Sender::default(), rx_packets });
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(id) = self.sessions.find(name) {
            self.sessions.remove(id);
            self.around.places.remove(&id);
        }
        self.shared.report(name, None);
    }

    /// Serves some of the sessions that are due, and sends their frames; returns whether more are due.
    fn tick(&mut self) -> bool {
        let now_ms = sys::clock::monotonic_ms();
        let more = self.sessions.tick(now_ms, SESSIONS_AT_A_TIME, &mut self.around, &mut self.due);
        let mut outlets: Vec<Outlet> = Vec::new();
        for (id, transmission) in self.due.drain(..) {
            let Some(Place { target, sender, .. }) = self.around.places.get_mut(&id) else { continue };
            let to = (target.bridge, target.port);
            let op = sender.send(&target.backer, to, &transmission, now_ms);
            let known = outlets.iter().position(|outlet| Arc::ptr_eq(&outlet.backer, &target.backer));
            let at = known.unwrap_or_else(|| {
                outlets.push(Outlet::new(target));
                outlets.len() - 1
            });
            outlets[at].add(id, op);
        }
        outlets.into_iter().for_each(|outlet| outlet.flush(now_ms));
        more
    }

    /// Reports changed sessions.
    fn tell(&mut self) {
        while let Some(changed) = self.sessions.take_changed() {
            let Some(place) = self.around.places.get(&changed.id) else { continue };
            let name = place.state.name();
            changed.notices.iter().for_each(|notice| log::info!(target: "bfd", "{}", notice.text(name)));
            if changed.notices_lost > 0 {
                log::info!(target: "bfd", "{name}: {} further events", changed.notices_lost);
            }
            if !changed.status {
                continue;
            }
            let now_ms = sys::clock::monotonic_ms();
            let status = self.sessions.status(changed.id, now_ms);
            let forwarding = self.sessions.forwarding(changed.id, now_ms).unwrap_or(false);
            let Target { backer, revalidator, bridge, port, .. } = &place.target;
            if place.state.set_forwarding(forwarding) != forwarding {
                backer.port_toggled(*bridge, *port);
                revalidator.unpark();
            }
            let report = Report { status, bridge: *bridge, port: *port, forwarding };
            self.shared.report(name, Some(report));
        }
    }
}

/// Operations of one round for a datapath: forwarding threads share them, by session. Without threads the main core
/// executes them.
struct Outlet {
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
    threads: Vec<PmdId>,
    ops: BTreeMap<PmdId, Vec<DpifOp>>,
}

impl Outlet {
    fn new(target: &Target) -> Outlet {
        let mut threads = target.datapath.pmds();
        if threads.len() > 1 {
            threads.retain(|pmd| *pmd != PmdId::Main);
        }
        let (backer, datapath) = (target.backer.clone(), target.datapath.clone());
        Outlet { backer, datapath, threads, ops: BTreeMap::new() }
    }

    fn add(&mut self, id: SessionId, ops: impl IntoIterator<Item = DpifOp>) {
        let n = id.0 as usize % self.threads.len().max(1);
        let pmd = self.threads.get(n).copied().unwrap_or(PmdId::Main);
        self.ops.entry(pmd).or_default().extend(ops);
    }

    fn flush(mut self, now_ms: u64) {
        self.add(SessionId(0), bfd_sender::solicit(&self.backer, now_ms));
        for (pmd, ops) in self.ops.into_iter().filter(|(_, ops)| !ops.is_empty()) {
            self.datapath.operate_ahead(OpBatch { pmd, ops, tag: 0, reply: None });
        }
    }
}
