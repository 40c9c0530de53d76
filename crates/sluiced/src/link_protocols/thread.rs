//! The thread itself.

use super::saved::SavedSession;
use super::{Configure, Report, Request, SessionName, Shared, Target};
use dpif::{DpifOp, OpBatch, PmdId, Provider};
use flow::OfPort;
use l2proto::protocol::{
    Environment, LearnedChange, LineLevel, LinkPort, LinkState, LogLine, Received, SessionId, Status,
    Transmission,
};
use l2proto::{Engines, Protocol};
use ofproto::backer::Backer;
use ofproto::link_sender::{self, LinkSender};
use ofproto::links::{ControlPacket, LinkSession};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use sync::{Ordering, Parker, lock};

/// Sessions of a protocol served in a round before requests are taken again.
const SESSIONS_AT_A_TIME: usize = 64;
/// Longest sleep: the clock of the switch may be stopped and moved.
const SLEEP_MAX_MS: u64 = 1000;

/// The port of a session.
struct SessionPort {
    target: Target,
    session: Arc<LinkSession>,
    sender: LinkSender,
    /// Packets received by its device, as last reported.
    rx_packets: u64,
}

fn write_line(LogLine { module, level, text }: &LogLine) {
    let level = match level {
        LineLevel::Error => log::Level::Error,
        LineLevel::Warning => log::Level::Warn,
        LineLevel::Info => log::Level::Info,
        LineLevel::Debug => log::Level::Debug,
    };
    log::log!(target: module, level, "{text}");
}

impl SessionPort {
    /// Changes learned addresses of the bridge.
    fn change_learned(&self, change: LearnedChange, protocol: Protocol, around: &Surroundings) {
        let Target { backer, bridge, port, revalidator, .. } = &self.target;
        let bundle = |port: OfPort| Some(backer.view().bridge(*bridge)?.ports.port(port)?.bundle);
        match change {
            LearnedChange::FlushBridge => backer.flush_learned(*bridge, None),
            LearnedChange::FlushPort => match bundle(*port) {
                Some(bundle) => backer.flush_learned(*bridge, Some(bundle)),
                None => return,
            },
            LearnedChange::MoveTo(other) => {
                let other = around.ports.get(&(protocol, other)).map(|other| other.target.port);
                let (Some(from), Some(to)) = (bundle(*port), other.and_then(bundle)) else { return };
                backer.move_learned(*bridge, from, to);
            }
        }
        revalidator.unpark();
    }

    fn report(&self, status: Status, state: LinkState) -> Report {
        Report { status, bridge: self.target.bridge, port: self.target.port, state }
    }

    fn name(&self) -> SessionName {
        (self.session.name().to_string(), self.session.protocol())
    }
}

/// The ports of all sessions, and random numbers.
struct Surroundings {
    ports: HashMap<(Protocol, SessionId), SessionPort>,
    /// Counters of sessions that are being made.
    new_rx_packets: u64,
    random: u64,
}

impl Surroundings {
    fn of(&mut self, protocol: Protocol) -> SurroundingsOf<'_> {
        SurroundingsOf { all: self, protocol }
    }
}

/// The surroundings of one protocol's sessions.
struct SurroundingsOf<'a> {
    all: &'a mut Surroundings,
    protocol: Protocol,
}

impl Environment for SurroundingsOf<'_> {
    fn rx_packets(&mut self, session: SessionId) -> u64 {
        let Some(port) = self.all.ports.get(&(self.protocol, session)) else {
            return self.all.new_rx_packets;
        };
        port.target.counters.as_ref().map_or(port.rx_packets, |c| c.rx[0].load(Ordering::Relaxed))
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn random(&mut self, below: u32) -> u32 {
        self.all.random = self.all.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.all.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // 32 random bits keep the bias below 2^-26 for the few values that sessions request.
        ((u64::from(z as u32) * u64::from(below.max(1))) >> 32) as u32
    }
}

/// The thread.
pub(super) struct Runner {
    shared: Arc<Shared>,
    parker: Parker,
    engines: Engines,
    around: Surroundings,
    due: Vec<(SessionId, Transmission)>,
    /// Another process takes over: nothing is done.
    is_held: bool,
}

impl Runner {
    pub(super) fn new(shared: Arc<Shared>, parker: Parker) -> Runner {
        // Without random numbers, discriminators and jitter repeat after a restart.
        let random = sys::random::u64().unwrap_or_else(|_| sys::clock::machine_ns());
        let around = Surroundings { ports: HashMap::new(), new_rx_packets: 0, random };
        Runner { shared, parker, engines: Engines::default(), around, due: Vec::new(), is_held: false }
    }

    /// Runs until it is to stop.
    pub(super) fn run(mut self) {
        while !self.shared.stop.load(Ordering::Acquire) {
            if !self.is_held {
                self.take_packets();
            }
            self.take_requests();
            self.report_changed();
            let more = !self.is_held && self.tick();
            self.report_changed();
            if !more {
                self.sleep();
            }
        }
    }

    fn sleep(&self) {
        let now_ms = sys::clock::monotonic_ms();
        let wakeup_ms = self.engines.next_wakeup().filter(|_| !self.is_held);
        let wait_ms = wakeup_ms.map_or(SLEEP_MAX_MS, |at_ms| at_ms.saturating_sub(now_ms));
        if wait_ms > 0 {
            self.parker.park_timeout(Duration::from_millis(wait_ms.min(SLEEP_MAX_MS)));
        }
    }

    /// Packets of the sessions that have some; each has few.
    fn take_packets(&mut self) {
        let ready = std::mem::take(&mut *lock(&self.shared.ready));
        for session in ready {
            let (counted, packets) = session.take();
            let protocol = session.protocol();
            let Some(id) = session.number() else { continue };
            let engine = self.engines.get(protocol);
            let now_ms = sys::clock::monotonic_ms();
            if counted > 0 {
                engine.account_rx(id, counted, now_ms);
            }
            for ControlPacket { ttl, payload } in packets {
                let received = Received { ttl, payload: payload.as_deref() };
                // The answer to a packet may be due at once.
                if let Err(refusal) = engine.input(id, received, now_ms, &mut self.around.of(protocol)) {
                    log::info!(target: protocol.name(), "{}: {refusal}", session.name());
                }
            }
        }
    }

    fn take_requests(&mut self) {
        while let Some(request) = self.shared.next_request() {
            let now_ms = sys::clock::monotonic_ms();
            // The requester may have given up.
            match request {
                Request::Configure(all) => {
                    all.into_iter().for_each(|configure| self.configure(configure, now_ms));
                }
                Request::Remove(name) => self.remove(name),
                Request::Statistics => self.report_statistics(now_ms),
                Request::Counters(counters) => {
                    for ((name, protocol), rx_packets) in counters {
                        let id = self.engines.get(protocol).find(&name);
                        if let Some(port) = id.and_then(|id| self.around.ports.get_mut(&(protocol, id))) {
                            port.rx_packets = rx_packets;
                        }
                    }
                }
                Request::Command(protocol, command, args, answer) => {
                    let reply = self.engines.run(protocol, command, &args, now_ms);
                    self.report_changed();
                    let _ = answer.try_send(reply);
                }
                Request::Members(interfaces, answer) => {
                    let aggregators = self.engines.aggregators();
                    let facts = interfaces.into_iter().filter_map(|name| {
                        let facts = aggregators.facts(&name)?;
                        Some((name, facts))
                    });
                    let _ = answer.try_send(facts.collect());
                }
                Request::Pass(answer) => {
                    self.pass();
                    let _ = answer.try_send(());
                }
                Request::Hold(answer) => {
                    self.pass();
                    self.is_held = true;
                    let _ = answer.try_send(());
                }
                Request::GoOn => self.is_held = false,
                Request::Save(ports, answer) => {
                    let _ = answer.try_send(self.saved(&ports, now_ms));
                }
                Request::Restore(texts, ago_ms, answer) => {
                    let _ = answer.try_send(self.restore(texts, now_ms.saturating_sub(ago_ms)));
                }
                Request::Renew(renewals, ago_ms, answer) => {
                    let _ = answer.try_send(self.renew(renewals, now_ms.saturating_sub(ago_ms), now_ms));
                }
                Request::ForgetRestored => {
                    for protocol in Protocol::ALL {
                        self.engines.get(*protocol).forget_restored();
                    }
                }
            }
        }
    }

    /// Does what is due.
    fn pass(&mut self) {
        if self.is_held {
            return;
        }
        self.take_packets();
        while self.tick() {}
        self.take_packets();
        self.report_changed();
    }

    fn saved(&mut self, ports: &BTreeMap<SessionName, LinkPort>, now_ms: u64) -> Vec<SavedSession> {
        let of = |((interface, protocol), port): (&SessionName, &LinkPort)| {
            let engine = self.engines.get(*protocol);
            let id = engine.find(interface)?;
            let state = engine.link_state(id, now_ms);
            Some(SavedSession::new(*protocol, port, state, &engine.saved(id, now_ms)?))
        };
        ports.iter().filter_map(of).collect()
    }

    fn restore(&mut self, texts: Vec<(SessionName, String)>, then_ms: u64) -> Vec<(SessionName, String)> {
        let refused = |(name, text): (SessionName, String)| {
            let why = self.engines.get(name.1).restore(&name.0, &text, then_ms).err()?;
            Some((name, why))
        };
        texts.into_iter().filter_map(refused).collect()
    }

    /// Has sessions begin anew, with later states. All of them end first: a tree has all of its ports at once.
    fn renew(
        &mut self,
        renewals: Vec<(String, Configure)>,
        then_ms: u64,
        now_ms: u64,
    ) -> Vec<(SessionName, String)> {
        for (_, Configure { settings, port, .. }) in &renewals {
            let (engine, protocol) = (self.engines.get(settings.protocol()), settings.protocol());
            if let Some(id) = engine.find(&port.interface) {
                engine.remove(id);
                self.around.ports.remove(&(protocol, id));
            }
        }
        for protocol in Protocol::ALL {
            // These ends are no news: the sessions go on.
            while self.engines.get(*protocol).take_report().is_some() {}
        }
        let name = |configure: &Configure| (configure.port.interface.clone(), configure.settings.protocol());
        let texts = renewals.iter().map(|(text, configure)| (name(configure), text.clone())).collect();
        let refused = self.restore(texts, then_ms);
        renewals.into_iter().for_each(|(_, configure)| self.configure(configure, now_ms));
        refused
    }

    fn configure(&mut self, configure: Configure, now_ms: u64) {
        let Configure { settings, port, target, session, rx_packets } = configure;
        self.around.new_rx_packets = rx_packets;
        let protocol = settings.protocol();
        let env = &mut self.around.of(protocol);
        let id = self.engines.configure(&port, &settings, now_ms, env);
        session.set_number(Some(id));
        let port = SessionPort { target, session, sender: LinkSender::default(), rx_packets };
        self.around.ports.insert((protocol, id), port);
    }

    /// Reports all sessions of protocols whose status has statistics.
    fn report_statistics(&mut self, now_ms: u64) {
        let has_statistics = |protocol: Protocol| protocol.status_columns().iter().any(|c| c.is_statistics);
        for ((protocol, id), port) in &self.around.ports {
            if has_statistics(*protocol) {
                let engine = self.engines.get(*protocol);
                let (status, state) = (engine.status(*id, now_ms), engine.link_state(*id, now_ms));
                self.shared.report(port.name(), Some(port.report(status, state)));
            }
        }
    }

    fn remove(&mut self, name: SessionName) {
        let protocol = name.1;
        let engine = self.engines.get(protocol);
        if let Some(id) = engine.find(&name.0) {
            engine.remove(id);
            if let Some(port) = self.around.ports.remove(&(protocol, id)) {
                port.session.set_number(None);
            }
        }
        self.shared.report(name, None);
    }

    /// Serves some of the sessions that are due, and sends their frames; returns whether more are due.
    fn tick(&mut self) -> bool {
        let now_ms = sys::clock::monotonic_ms();
        let mut outlets: Vec<Outlet> = Vec::new();
        let mut more = false;
        for &protocol in Protocol::ALL {
            let env = &mut self.around.of(protocol);
            more |= self.engines.get(protocol).tick(now_ms, SESSIONS_AT_A_TIME, env, &mut self.due);
            for (id, transmission) in self.due.drain(..) {
                let Some(port) = self.around.ports.get_mut(&(protocol, id)) else { continue };
                let SessionPort { target, sender, .. } = port;
                let to = (target.bridge, target.port);
                let op = sender.send(&target.backer, to, &transmission, now_ms);
                let known = outlets.iter().position(|outlet| Arc::ptr_eq(&outlet.backer, &target.backer));
                let at = known.unwrap_or_else(|| {
                    outlets.push(Outlet::new(target));
                    outlets.len() - 1
                });
                outlets[at].add(id, op);
            }
        }
        // A port stops before the frames that tell others so.
        self.report_changed();
        outlets.into_iter().for_each(|outlet| outlet.flush(now_ms));
        more
    }

    /// Reports changed sessions.
    fn report_changed(&mut self) {
        for &protocol in Protocol::ALL {
            let engine = self.engines.get(protocol);
            while let Some(changed) = engine.take_report() {
                let Some(port) = self.around.ports.get(&(protocol, changed.id)) else { continue };
                changed.lines.iter().for_each(write_line);
                changed
                    .learned
                    .iter()
                    .for_each(|change| port.change_learned(*change, protocol, &self.around));
                if !changed.trunks.is_empty() {
                    self.shared.change_trunks(port.session.name(), &changed.trunks);
                }
                if changed.lines_lost > 0 {
                    let name = port.session.name();
                    log::info!(target: protocol.name(), "{name}: {} further events", changed.lines_lost);
                }
                if !changed.status_changed {
                    continue;
                }
                let now_ms = sys::clock::monotonic_ms();
                let status = engine.status(changed.id, now_ms);
                let state = engine.link_state(changed.id, now_ms);
                if port.session.set_state(state) != state {
                    let Target { backer, revalidator, bridge, port, .. } = &port.target;
                    backer.port_toggled(*bridge, *port);
                    revalidator.unpark();
                    (self.shared.wake_bonds)();
                }
                self.shared.report(port.name(), Some(port.report(status, state)));
            }
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
        self.add(SessionId(0), link_sender::solicit(&self.backer, now_ms));
        for (pmd, ops) in self.ops.into_iter().filter(|(_, ops)| !ops.is_empty()) {
            self.datapath.operate_ahead(OpBatch { pmd, ops, tag: 0, reply: None });
        }
    }
}
