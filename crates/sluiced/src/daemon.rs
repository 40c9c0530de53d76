//! The daemon: sets up all parts in order, runs the main loop, and shuts down.
//!
//! Order of set-up: background, signals, limits, log, pid file, database, control socket, datapath, main loop. The
//! command that started the daemon returns when the first configuration is in force.

mod background;
mod handover;

use super::appctl::{self, Answer};
use super::claim::{self, Claim, Look, Seeker};
use super::config::{COMPATIBLE, DaemonConfig, Exit};
use super::confinement::{self, Confinement};
use super::control_plane::ControlPlane;
use super::db::{Db, MANAGERS};
use super::handover::{Leaving, Succession};
use super::implementations::Chosen;
use super::kept::KeptSockets;
use super::loop_times::Part;
use super::machine;
use super::memory_growth::{self, MemoryGrowth};
use super::metrics::Metrics;
use super::reactor::{QUEUES, Reactor, WAKER};
use super::routing::Routing;
use super::service::Service;
use super::switch::Switch;
use super::turn::Turn;
use super::unixctl::{self, Request, Room, Unixctl};
use super::wakeups::Wakeups;
use super::work::ReplyPart;
use anyhow::{Context, Result, bail};
use background::Behind;
use dpif_netdev::ablation::Optimisation;
use mio::{Events, Token, Waker};
use probes::{self, EventSocket};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use sys::daemon::Detached;
use sys::fdstore::FdStore;
use sys::monitor::HANDED_OVER;
use sys::pidfile::PidFile;
use sys::signals::{Signal, Signals};
use vlog::vlog;

/// Maximum wait of the main loop.
const WAIT_MAX_MS: u64 = 1000;
/// Polling interval of waiting commands.
const LOOK_AGAIN_MS: u64 = 10;
/// Parts of a reply in one turn of the main loop: a megabyte.
const PARTS_AT_ONCE: usize = 4;
/// Requested descriptors: two for every port and thread of a large switch.
const OPEN_FILES: u64 = 65_536;

/// Name of the embedded database server, for tools.
const DATABASE_NAME: &str = "ovsdb-server";
/// Name of event sockets, before the process id.
const EVENTS_NAME: &str = "sluiced";

/// State of the main loop.
struct Daemon {
    /// The parts that commands act on.
    plane: ControlPlane,
    service: Service,
    wakeups: Wakeups,
    memory: MemoryGrowth,
    confinement: Confinement,
    metrics: Metrics,
    unixctl: Unixctl,
    /// Control socket of the embedded database server, and its pid file.
    database_unixctl: Option<(Unixctl, Option<PidFile>)>,
    signals: Signals,
    signal_token: Token,
    link_token: Token,
    waiting: Vec<(Request, appctl::Wait)>,
    /// Looks for a successor of the lost server at the default socket, if this process may be it.
    seeker: Option<Seeker>,
    /// Last reason not to be it.
    declined: String,
    waker: Arc<Waker>,
    pid_file: Option<PidFile>,
    /// Serves the database in the place of the process that this one succeeded, as soon as that lets go.
    claims_database: bool,
    /// A successor takes over.
    leaving: Option<Leaving>,
    /// Sockets that outlive this process.
    sockets: KeptSockets,
    /// Dropped last, to report the end of the others.
    _events: Option<EventSocket>,
}

/// Runs the daemon until it is requested to end.
pub fn run(config: &DaemonConfig) -> Result<()> {
    let mut succession = Succession::find()?;
    let ran = run_as(config, &mut succession);
    if let (Err(e), Some(succession)) = (&ran, &succession) {
        succession.give_up(&format!("{e:#}"));
    }
    ran
}

fn run_as(config: &DaemonConfig, succession: &mut Option<Succession>) -> Result<()> {
    // A successor is in the background of the process that started it, under its monitor.
    let starts = succession.is_none();
    let Behind { detached, monitor, stored } = if starts { Behind::go(config)? } else { Behind::default() };
    if let Some(user) = &config.user {
        let found = sys::user::User::parse(user).with_context(|| format!("--user={user}"))?;
        found.switch_to(sys::user::Powers::Devices).with_context(|| format!("--user={user}"))?;
    }
    let signals = Signals::hold().context("cannot install signal handlers")?;
    let log = vlog();
    log.set_program(&config.name);
    if config.detach {
        log.set("console:off").map_err(anyhow::Error::msg)?;
    }
    if let Some(method) = &config.syslog_method {
        log.set_syslog_method(method).map_err(anyhow::Error::msg)?;
    }
    if let Some(target) = &config.syslog_target {
        log.set_syslog_target(target).map_err(anyhow::Error::msg)?;
    }
    for spec in &config.verbose {
        log.set(spec).map_err(anyhow::Error::msg).with_context(|| format!("-v{spec}"))?;
    }
    if let Some(path) = &config.log_file {
        log.open_file(path).with_context(|| format!("{}: cannot open the log file", path.display()))?;
    }
    if let Err(e) = sys::limits::raise_open_files(OPEN_FILES) {
        log::warn!(target: "daemon_unix", "cannot raise the limit of open files: {e}; many ports may not fit");
    }
    if config.lock_memory {
        sys::limits::lock_memory().context("--mlockall")?;
    }
    if config.confine {
        confinement::begin(config.lock_memory);
    }
    std::fs::create_dir_all(&config.run_dir).with_context(|| format!("{}", config.run_dir.display()))?;
    let pid_file = match &config.pid_file {
        Some(path) if starts => Some(PidFile::create(path, config.overwrite_pid_file)?),
        _ => None,
    };
    if let Some(deviation) = config.ablation.deviation() {
        log::warn!(target: "dpif_netdev", "for measuring only: {deviation}");
    }
    if !config.ablation.has(Optimisation::Threads) {
        log::warn!(
            target: "dpif_netdev",
            "the main loop forwards: settings of forwarding threads and their caches (pmd-*, tx-flush-interval, \
             emc-insert-inv-prob, smc-enable) have no effect"
        );
    }
    machine::log_processors(config.dummy_numa.as_slice());
    Chosen::log();
    let sockets = match succession {
        Some(succession) => {
            succession.learn()?;
            KeptSockets::start(succession.take_holder(), Vec::new(), true)
        }
        None => KeptSockets::start(monitor.or_else(service_store), stored, false),
    };
    let mut daemon = Daemon::start(config, signals, succession, sockets)?;
    daemon.pid_file = pid_file;
    let exit = daemon.main_loop(config, detached, succession);
    let how = *exit.as_ref().unwrap_or(&Exit::default());
    daemon.end(how);
    if how.handed_over && config.monitor {
        std::process::exit(HANDED_OVER);
    }
    exit.map(drop)
}

/// The service manager, as a holder of descriptors.
fn service_store() -> Option<FdStore> {
    FdStore::of_service_manager().unwrap_or_else(|e| {
        log::warn!(target: "kept", "no way to the service manager: {e}; sockets end with this process");
        None
    })
}

impl Daemon {
    fn start(
        config: &DaemonConfig,
        signals: Signals,
        succession: &mut Option<Succession>,
        sockets: KeptSockets,
    ) -> Result<Daemon> {
        let mut reactor = Reactor::new()?;
        let waker = Arc::new(Waker::new(reactor.registry(), WAKER)?);
        let names = [(config.name.as_str(), "ctl"), (DATABASE_NAME, "ctl"), (EVENTS_NAME, "events")];
        sys::local::remove_stale(&config.run_dir, &names);
        reactor.tls.configure(&config.tls);
        let (mut db, seeker) = open_db(config, &signals, &mut reactor, waker.clone())?;
        if let Some(succession) = succession {
            succession.watch(&mut reactor).context("cannot watch the channel")?;
        } else {
            add_remotes(config, &mut db, &mut reactor)?;
        }
        let unixctl_path = config
            .unixctl
            .clone()
            .unwrap_or_else(|| config.run_dir.join(format!("{}.{}.ctl", config.name, std::process::id())));
        let token = reactor.token();
        let unixctl = Unixctl::open(&unixctl_path, reactor.registry(), token)?;
        let events = open_events(&config.run_dir);
        let signal_token = reactor.watch(signals.fd())?;
        let watch = match config.ablation.has(Optimisation::Threads) {
            true => None,
            false => Some(Arc::new(reactor.queue_watch()?)),
        };
        let routing = Routing::start(config.system_routes, &mut reactor)?;
        let inherited = succession.as_ref().map(Succession::inherited);
        let left = (sockets.left(), sockets.are_kept());
        let switch = Switch::start(config, waker.clone(), watch, inherited, left)?;
        let link_token = reactor.watch(switch.link_fd())?;
        let mut daemon = Daemon {
            plane: ControlPlane::new(reactor, db, switch, routing),
            service: Service::find(),
            wakeups: Wakeups::default(),
            memory: MemoryGrowth::new(sys::clock::monotonic_ms()),
            confinement: Confinement::default(),
            metrics: Metrics::default(),
            unixctl,
            database_unixctl: None,
            signals,
            signal_token,
            link_token,
            waiting: Vec::new(),
            seeker,
            declined: String::new(),
            waker,
            pid_file: None,
            claims_database: false,
            leaving: None,
            sockets,
            _events: events,
        };
        if daemon.plane.db.is_embedded() {
            daemon.own_database(config);
        }
        Ok(daemon)
    }

    /// The database is served here: identifies the system in it, and listens for commands of its server.
    fn own_database(&mut self, config: &DaemonConfig) {
        let system = machine::system(&config.system, &config.config_dir);
        self.plane.switch.own_database(system_id(&config.config_dir), system);
        self.database_unixctl = database_unixctl(config, &mut self.plane.reactor);
    }

    /// Takes the role of a lost server that nobody replaces, as a start at this time would.
    fn replace_lost_server(&mut self, config: &DaemonConfig) {
        let (claims, db) = (self.claims_database, &mut self.plane.db);
        let Some(seeker) = self.seeker.as_mut().filter(|_| claims || db.take_loss()) else { return };
        let (file, socket) = (seeker.file().to_path_buf(), seeker.socket().to_path_buf());
        let taken = match if claims { seeker.look_at_file() } else { seeker.look() } {
            Ok(Look::Found(Claim::Served) | Look::Wait(_)) => return,
            Ok(Look::Found(Claim::Ours(lock))) => {
                self.plane.db.take_over(&file, lock, &socket, &mut self.plane.reactor, self.waker.clone())
            }
            Err(e) => Err(e),
        };
        match taken {
            Ok(()) => {
                self.seeker = None;
                let served = format!("serving {} on unix:{}", file.display(), socket.display());
                match std::mem::take(&mut self.claims_database) {
                    true => log::info!(target: "ovsdb_file", "{served}"),
                    false => {
                        log::warn!(target: "ovsdb_file", "the database server is gone and has no successor: {served}")
                    }
                }
                if let Err(e) = add_remotes(config, &mut self.plane.db, &mut self.plane.reactor) {
                    log::error!(target: "ovsdb_file", "{e:#}");
                }
                self.plane.reactor.lent.clear();
                self.own_database(config);
            }
            Err(e) => {
                let why = format!("{e:#}");
                if self.declined != why {
                    log::warn!(target: "ovsdb_file", "the database server is gone, and this process cannot replace it: {why}");
                    self.declined = why;
                }
            }
        }
    }

    /// Shuts down: first the listeners, then the ports, and last the lock of the database file, so that the next
    /// process finds either none or all of this one. Replies to `exit` after that: the next process can start then.
    fn end(self, exit: Exit) {
        let Daemon {
            plane,
            mut unixctl,
            database_unixctl,
            waiting,
            metrics,
            mut confinement,
            service,
            pid_file,
            leaving,
            sockets,
            _events: events,
            ..
        } = self;
        if !exit.handed_over {
            service.stopping();
        }
        drop(metrics);
        let ControlPlane { mut db, switch, mut reactor, .. } = plane;
        unixctl.stop_listening();
        drop(database_unixctl);
        db.stop_listening();
        switch.stop(exit);
        sockets.end();
        drop((db, events, pid_file));
        confinement.run(u64::MAX);
        let is_asked = |wait: &appctl::Wait| matches!(wait, appctl::Wait::Exit | appctl::Wait::Handover);
        for (request, _) in waiting.iter().filter(|(_, wait)| is_asked(wait)) {
            unixctl.reply(request, Ok(String::new()), &mut reactor);
        }
        // A successor takes the role now.
        drop(leaving);
    }

    fn main_loop(
        &mut self,
        config: &DaemonConfig,
        detached: Option<Detached>,
        succession: &mut Option<Succession>,
    ) -> Result<Exit> {
        let mut events = Events::with_capacity(256);
        let mut detached = detached;
        self.plane.loop_times.begin();
        loop {
            probes::loop_begins();
            self.replace_lost_server(config);
            let handover = self.hand_over(config);
            // Nothing is answered any longer: the successor would not know.
            if let Some(exit) = self.plane.exit.filter(|exit| exit.handed_over) {
                return Ok(exit);
            }
            let ControlPlane { db, switch, routing, reactor, loop_times: times, .. } = &mut self.plane;
            times.end(Part::Takeover);
            let mut next = db.run(reactor);
            times.end(Part::Database);
            next = next.and(switch.run(db, reactor, times));
            next = next.and(routing.run(reactor, switch.instances().dummy_ports()));
            switch.follow_routing(routing);
            times.end(Part::Routes);
            next = next.and(db.run(reactor));
            times.end(Part::Database);
            let is_ready = switch.is_ready(db);
            self.succeed(config, succession)?;
            self.plane.loop_times.end(Part::Takeover);
            // A successor is not the service before it has the role.
            self.sockets.settle(&mut self.plane.switch, &mut self.plane.reactor, is_ready);
            if is_ready && succession.is_none() {
                self.service.ready();
                if let Some(detached) = detached.take() {
                    detached.ready(!config.no_chdir).context("cannot tell that the daemon is ready")?;
                }
            }
            next = next.and(self.service.run(sys::clock::monotonic_ms()));
            self.plane.unixctl = self.unixctl.counts;
            self.plane.loop_times.end(Part::Others);
            self.metrics.run(&mut self.plane, &self.waker);
            self.plane.loop_times.end(Part::Metrics);
            next = next.and(self.sample());
            self.plane.loop_times.end(Part::Counters);
            next = next.and(self.answer_waiting()).and(self.plane.reactor.turn()).and(handover);
            self.plane.loop_times.end(Part::Commands);
            if self.claims_database {
                next = next.and(Turn::at(sys::clock::monotonic_ms() + LOOK_AGAIN_MS));
            }
            if let Some(exit) = self.plane.exit {
                return Ok(exit);
            }
            let wait = next.wait(sys::clock::monotonic_ms(), WAIT_MAX_MS);
            self.plane.loop_times.end_turn();
            probes::loop_waits();
            let polled = self.plane.reactor.poll().poll(&mut events, Some(wait));
            self.plane.loop_times.begin();
            if let Err(e) = polled
                && e.kind() != std::io::ErrorKind::Interrupted
            {
                bail!("the main loop cannot wait for events: {e}");
            }
            self.log_wakeup(&events, wait);
            for token in self.plane.reactor.take_ready(&events) {
                let part = self.event(token);
                self.plane.loop_times.end(part);
            }
        }
    }

    fn log_wakeup(&mut self, events: &Events, wait: Duration) {
        let mut wakeups = std::mem::take(&mut self.wakeups);
        let owner = |token: Token| match token {
            WAKER => "other threads",
            QUEUES => "receive queues",
            _ if token == self.signal_token => "signals",
            _ if token == self.link_token => "links",
            _ if self.unixctl.is_listener(token) || self.unixctl.has(token) => "control socket",
            _ => "connections",
        };
        wakeups.log(events, wait, owner);
        self.wakeups = wakeups;
    }

    /// Serves a socket; returns the part of the turn that it belongs to.
    fn event(&mut self, token: Token) -> Part {
        // Each turn of the main loop serves the queues.
        let of_handover = self.leaving.as_ref().is_some_and(|leaving| leaving.token() == token);
        if token == WAKER || token == QUEUES || of_handover {
            return Part::Others;
        }
        if token == self.signal_token {
            while let Ok(Some(signal)) = self.signals.next() {
                match signal {
                    Signal::Terminate | Signal::Interrupt => self.plane.exit = Some(Exit::default()),
                    Signal::Hangup => {
                        if let Err(e) = vlog().reopen() {
                            log::debug!(target: "vlog", "{e}");
                        }
                    }
                }
            }
            Part::Others
        } else if token == self.link_token {
            self.plane.switch.links_changed();
            Part::Configuration
        } else if self.unixctl.is_listener(token) {
            self.unixctl.accept(token, &mut self.plane.reactor);
            Part::Commands
        } else if self.unixctl.has(token) {
            if let Some(request) = self.unixctl.ready(token, &mut self.plane.reactor) {
                self.command(request);
            }
            Part::Commands
        } else if self.plane.routing.event(token) {
            Part::Routes
        } else if self.database_event(token) {
            Part::Commands
        } else if self.plane.db.event(token, &mut self.plane.reactor) {
            Part::Database
        } else {
            self.plane.switch.socket_event(token, &mut self.plane.reactor);
            Part::OpenFlow
        }
    }

    /// Serves the control socket of the embedded database server; `false` for a token of others.
    fn database_event(&mut self, token: Token) -> bool {
        let Some((unixctl, _)) = &mut self.database_unixctl else { return false };
        if unixctl.is_listener(token) {
            unixctl.accept(token, &mut self.plane.reactor);
            return true;
        }
        if !unixctl.has(token) {
            return false;
        }
        if let Some(request) = unixctl.ready(token, &mut self.plane.reactor) {
            self.plane.unixctl = self.unixctl.counts;
            let answer = appctl::run_of_database(&mut self.plane, &request);
            if let Some((unixctl, _)) = &mut self.database_unixctl
                && let Some(wait) = answer_now(unixctl, &request, answer, &mut self.plane.reactor)
            {
                self.waiting.push((request, wait));
            }
        }
        true
    }

    fn command(&mut self, request: Request) {
        unixctl::log_request(&request);
        self.plane.unixctl = self.unixctl.counts;
        let answer = appctl::run(&mut self.plane, &request);
        self.plane.switch.follow_routing(&mut self.plane.routing);
        if let Some(wait) = answer_now(&mut self.unixctl, &request, answer, &mut self.plane.reactor) {
            self.waiting.push((request, wait));
        }
    }

    /// Samples the coverage counters, and looks at the memory of the process, when due.
    fn sample(&mut self) -> Turn {
        let now_ms = sys::clock::monotonic_ms();
        let plane = &mut self.plane;
        if plane.coverage.next_ms(now_ms) <= now_ms {
            plane.unixctl = self.unixctl.counts;
            let totals = plane.counters();
            plane.coverage.sample(&totals, now_ms);
        }
        let turn = Turn::at(plane.coverage.next_ms(now_ms));
        if self.memory.run(now_ms) {
            memory_growth::log_counts(&appctl::memory_counts(&self.plane));
        }
        self.confinement.run(now_ms);
        turn.and(self.memory.turn())
    }

    /// Replies to commands whose replies are ready, or parts of them.
    fn answer_waiting(&mut self) -> Turn {
        let waiting = std::mem::take(&mut self.waiting);
        let mut look_again_ms = LOOK_AGAIN_MS;
        for (request, mut wait) in waiting {
            match self.answer_parts(&request, &mut wait) {
                Progress::Ended => continue,
                Progress::None => {}
                Progress::Parts => look_again_ms = 1,
            }
            self.waiting.push((request, wait));
        }
        // Not all awaited events wake the main loop.
        if self.waiting.is_empty() {
            Turn::DONE
        } else {
            Turn::at(sys::clock::monotonic_ms() + look_again_ms)
        }
    }

    /// Replies to a command with the parts that are ready and that its client has room for.
    fn answer_parts(&mut self, request: &Request, wait: &mut appctl::Wait) -> Progress {
        let unixctl = match &mut self.database_unixctl {
            Some((unixctl, _)) if unixctl.has(request.conn) => unixctl,
            _ => &mut self.unixctl,
        };
        let mut progress = Progress::None;
        for _ in 0..PARTS_AT_ONCE {
            match unixctl.room(request, &mut self.plane.reactor) {
                // A disconnected client waits for nothing.
                Room::Gone => return Progress::Ended,
                Room::Full => return progress,
                Room::Some => {}
            }
            match wait.part(&self.plane.switch) {
                None => return progress,
                Some(ReplyPart::Text(text)) => unixctl.reply_part(request, &text, &mut self.plane.reactor),
                Some(ReplyPart::Json(json)) => {
                    unixctl.reply_json_part(request, &json, &mut self.plane.reactor)
                }
                Some(ReplyPart::End(answer)) => {
                    let answer = answer.map_err(|e| appctl::worded(&request.command, e));
                    unixctl.reply(request, answer, &mut self.plane.reactor);
                    return Progress::Ended;
                }
            }
            progress = Progress::Parts;
        }
        progress
    }
}

/// The state of a reply that is waited for.
enum Progress {
    Ended,
    None,
    /// Parts of it were sent.
    Parts,
}

/// Replies to a command; returns the event that a later reply waits for.
fn answer_now(
    unixctl: &mut Unixctl,
    request: &Request,
    answer: Answer,
    reactor: &mut Reactor,
) -> Option<appctl::Wait> {
    match answer {
        Answer::Now(answer) => unixctl.reply(request, answer, reactor),
        Answer::Json(value) => unixctl.reply_value(request, Ok(value), reactor),
        Answer::Format(format) => {
            unixctl.set_format(request.conn, format);
            unixctl.reply(request, Ok(String::new()), reactor);
        }
        Answer::Later(wait) => return Some(wait),
    }
    None
}

/// The database: the requested one; else the default socket's, if it has a listener; else our own. With a listener this
/// process may replace, the second value looks for its end.
fn open_db(
    config: &DaemonConfig,
    signals: &Signals,
    reactor: &mut Reactor,
    waker: Arc<Waker>,
) -> Result<(Db, Option<Seeker>)> {
    log::info!(target: "bridge", "{COMPATIBLE}");
    let socket = config.run_dir.join("db.sock");
    let default = format!("unix:{}", socket.display());
    if let Some(remote) = &config.remote {
        return Ok((Db::remote(remote)?, None));
    }
    if !config.may_embed {
        return Ok((Db::remote(&default)?, None));
    }
    let file = config.db_dir.join("conf.db");
    let mut seeker = Seeker::new(file.clone(), socket.clone());
    match claim::claim(&mut seeker, &claim::Patience::DEFAULT, || termination_requested(signals))? {
        Claim::Served => Ok((Db::remote(&default)?, Some(seeker))),
        Claim::Ours(lock) => {
            log::info!(target: "ovsdb_file", "serving {} on {default}", file.display());
            Ok((Db::embedded(&file, lock, &socket, reactor, waker)?, None))
        }
    }
}

/// Serves the own database at the targets of the command line too.
fn add_remotes(config: &DaemonConfig, db: &mut Db, reactor: &mut Reactor) -> Result<()> {
    for remote in config.remotes.iter().filter(|remote| *remote != MANAGERS) {
        anyhow::ensure!(db.is_embedded(), "--remote={remote}: the database is served by another process");
        db.add_remote(remote, reactor).with_context(|| format!("--remote={remote}"))?;
    }
    Ok(())
}

/// Whether a termination signal arrived before the main loop could see it.
fn termination_requested(signals: &Signals) -> bool {
    std::iter::from_fn(|| signals.next().ok().flatten()).any(|signal| signal != Signal::Hangup)
}

/// The control socket of the embedded database server, and the pid file by which tools find it if the daemon has
/// one. The switch works without them.
fn database_unixctl(config: &DaemonConfig, reactor: &mut Reactor) -> Option<(Unixctl, Option<PidFile>)> {
    let warn = |e: &dyn std::fmt::Display| log::warn!(target: "unixctl", "{DATABASE_NAME}: {e}");
    let path = config.run_dir.join(format!("{DATABASE_NAME}.{}.ctl", std::process::id()));
    let token = reactor.token();
    let unixctl =
        Unixctl::open(&path, reactor.registry(), token).map_err(|e| warn(&format!("{e:#}"))).ok()?;
    let pid_file = config.pid_file.as_ref().and_then(|_| {
        let path = config.run_dir.join(format!("{DATABASE_NAME}.pid"));
        PidFile::create(&path, config.overwrite_pid_file).map_err(|e| warn(&e)).ok()
    });
    Some((unixctl, pid_file))
}

/// The socket of the event ring. The switch works without it.
fn open_events(run_dir: &Path) -> Option<EventSocket> {
    let path = run_dir.join(format!("{EVENTS_NAME}.{}.events", std::process::id()));
    let warn = |e| log::warn!(target: "events", "{}: {e}; events are not available", path.display());
    EventSocket::open(&path).map_err(warn).ok()
}

/// Prints a fatal error of the start, to the terminal and the log.
pub fn report_failure(name: &str, error: &anyhow::Error) {
    log::error!(target: "daemon_unix", "{error:#}");
    // A closed terminal must not hide the failure.
    let _ = writeln!(std::io::stderr(), "{name}: {error:#}");
}

/// The machine's identity, otherwise written by start scripts: `system-id.conf`, created if missing.
pub fn system_id(config_dir: &Path) -> Option<String> {
    let path = config_dir.join("system-id.conf");
    if let Ok(id) = std::fs::read_to_string(&path) {
        return Some(id.trim().to_string());
    }
    let bits = sys::random::uuid().ok()?;
    let id = flow::Ufid(bits).to_string();
    std::fs::create_dir_all(config_dir).ok()?;
    std::fs::write(&path, format!("{id}\n")).ok()?;
    Some(id)
}
