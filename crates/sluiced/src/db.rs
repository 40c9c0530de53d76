//! The configuration database, embedded or remote, behind one façade: [`Db::client`] is a replica with transactions
//! in either case.
//!
//! Embedded, the server runs in this process and exchanges bytes with its client in memory; others connect through
//! sockets, and it connects to active managers ([`outgoing`]). Remote, the client follows a database server under the
//! lock `ovs_vswitchd` and reconnects with a back-off. A remote side may become embedded ([`Db::take_over`]).

mod managers;
pub(crate) mod message_log;
mod outgoing;
mod remote;
mod session_log;

use super::dbfile::{self, DbFile, Written};
use super::places::{ConnectionSlot, Standing, to_evict};
use super::reactor::Reactor;
use super::stream::{Conn, Endpoint, Listener, NO_DSCP};
use super::turn::Turn;
use anyhow::{Context, Result};
pub use managers::in_band_address;
use message_log::{MessageLog, log_sent};
use mio::{Token, Waker};
use outgoing::Outgoing;
use ovsdb::client::{Client, ClientConfig};
use ovsdb::schema;
use ovsdb::server::{Counters, Origin, Server, ServerError, ServerLimits, SessionId, Time};
use ovsdb::value::Uuid;
use remote::Remote;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use sys::lock::FileLock;

/// Default port of database servers (IANA).
pub const DEFAULT_PORT: u16 = 6640;
/// Column of the `Manager` rows' targets, as named by the stock server's start script.
pub const MANAGERS: &str = "db:Open_vSwitch,Open_vSwitch,manager_options";
/// Table whose only row belongs to one database.
const ROOT: &str = "Open_vSwitch";
/// Reason not to serve a file.
const OTHER_DATABASE: &str = "not the database of the lost server";
/// Name of the lock held by the active switch of a database.
pub const LOCK: &str = "ovs_vswitchd";

/// Maximum output sent to one client at a time.
const OUTPUT_PIECE_BYTES: usize = 256 << 10;
const BACKOFF_MIN_MS: u64 = 1000;
const BACKOFF_MAX_MS: u64 = 8000;
/// Time for which a server that was followed may be absent before another process takes its role: that of a restart.
const RESTART_MS: u64 = 5000;
/// Inactivity probe interval of a server; it is disconnected after another interval.
const PROBE_MS: u64 = 5000;

/// The database.
pub struct Db {
    client: Client,
    side: Side,
}

enum Side {
    Embedded(Box<Embedded>),
    Remote(Box<Remote>),
}

struct Embedded {
    server: Server,
    file: DbFile,
    local: SessionId,
    /// The default socket: always listened at.
    own_target: String,
    listeners: BTreeMap<String, Listener>,
    /// Managers to connect to, by target.
    outgoing: BTreeMap<String, Outgoing>,
    /// Targets added by a command.
    added: BTreeSet<String>,
    /// Managers that cannot be served, with the reported reason.
    refused: BTreeMap<String, String>,
    /// DSCP of the connections of managers, by target.
    dscps: BTreeMap<String, u8>,
    /// Inactivity probe interval of clients, by target.
    probes: BTreeMap<String, u64>,
    conns: BTreeMap<Token, Peer>,
}

/// A client.
struct Peer {
    conn: Conn,
    session: SessionId,
    /// Its target.
    target: String,
    /// Its socket may be readable.
    unread: bool,
    /// It has stopped sending: reply to its earlier requests first.
    ended: bool,
    /// It has stopped reading: execute its earlier requests all the same.
    deaf: bool,
    heard_ms: u64,
    /// Time at which a byte last passed.
    progress_ms: u64,
    /// Time of the pending probe.
    asked_ms: Option<u64>,
    messages: MessageLog,
}

/// Whether a target is on this machine.
fn is_local(target: &str) -> bool {
    target.starts_with("punix:") || target.starts_with("unix:")
}

fn now() -> Time {
    Time { mono_ms: sys::clock::monotonic_ms(), wall_ms: sys::clock::wall_ms() as i64 }
}

fn random_uuid() -> Uuid {
    // The switch is unsafe without random numbers; the kernel always has them after boot.
    let bits = sys::random::uuid().unwrap_or_else(|e| panic!("no random numbers: {e}"));
    Uuid::from_bytes(bits.to_be_bytes())
}

fn client() -> Client {
    let mut config = ClientConfig::all(schema::open_vswitch());
    config.lock = Some(LOCK.to_string());
    Client::new(config)
}

impl Db {
    /// Serves the database in the file at `path`, protected by `lock`, on the socket at `socket`.
    pub fn embedded(
        path: &Path,
        lock: FileLock,
        socket: &Path,
        reactor: &mut Reactor,
        waker: Arc<Waker>,
    ) -> Result<Db> {
        let embedded = Embedded::start(path, lock, socket, None, reactor, waker)?;
        Ok(Db { client: client(), side: Side::Embedded(Box::new(embedded)) })
    }

    /// Serves the database of a lost server, from its file. Its replica stays until this one replies.
    ///
    /// # Errors
    /// The file cannot be used, or holds another database than the lost server's; the side stays remote.
    pub fn take_over(
        &mut self,
        path: &Path,
        lock: FileLock,
        socket: &Path,
        reactor: &mut Reactor,
        waker: Arc<Waker>,
    ) -> Result<()> {
        let root = self.client.replica().rows(ROOT).next().map(|row| row.uuid());
        anyhow::ensure!(root.is_none() || path.exists(), "{}: {OTHER_DATABASE}", path.display());
        let embedded = Embedded::start(path, lock, socket, root, reactor, waker)?;
        self.side = Side::Embedded(Box::new(embedded));
        self.client.reset();
        Ok(())
    }

    /// Follows the server at `target`.
    pub fn remote(target: &str) -> Result<Db> {
        let endpoint = Endpoint::parse(target, DEFAULT_PORT)?;
        anyhow::ensure!(
            !endpoint.is_passive(),
            "{target}: the switch connects to its database; use unix:, tcp: or ssl:"
        );
        let remote = Remote {
            target: target.to_string(),
            endpoint,
            conn: None,
            connecting: false,
            backoff_ms: BACKOFF_MIN_MS,
            waited_ms: 0,
            retry_ms: 0,
            heard_ms: 0,
            lost_ms: None,
            failed: false,
            messages: Default::default(),
        };
        session_log::started(target);
        Ok(Db { client: client(), side: Side::Remote(Box::new(remote)) })
    }

    /// The replica and its transactions.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The replica, read-only.
    pub fn client_ref(&self) -> &Client {
        &self.client
    }

    /// Whether the database is served here.
    pub fn is_embedded(&self) -> bool {
        matches!(self.side, Side::Embedded(_))
    }

    /// The file of the database that is served here.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.side {
            Side::Embedded(embedded) => Some(embedded.file.path()),
            Side::Remote(_) => None,
        }
    }

    /// Whether an attempt failed since the last call and the followed server is absent. One that has sent its database
    /// has time to restart.
    pub fn take_loss(&mut self) -> bool {
        let Side::Remote(remote) = &mut self.side else { return false };
        let restart_ms = if self.client.replica().row_count(ROOT) > 0 { RESTART_MS } else { 0 };
        let absent_ms = remote.lost_ms.map(|lost_ms| sys::clock::monotonic_ms() - lost_ms);
        std::mem::take(&mut remote.failed) && absent_ms.is_some_and(|ms| ms >= restart_ms)
    }

    /// Handles a socket event; `false` for a token of others.
    pub fn event(&mut self, token: Token, reactor: &mut Reactor) -> bool {
        match &mut self.side {
            Side::Embedded(e) => e.event(token, reactor),
            Side::Remote(r) => r.event(token, reactor, &mut self.client),
        }
    }

    /// Does pending work: requests and replies, records to the file, new connections.
    pub fn run(&mut self, reactor: &mut Reactor) -> Turn {
        match &mut self.side {
            Side::Embedded(e) => e.run(&mut self.client, reactor),
            Side::Remote(r) => r.run(&mut self.client, reactor),
        }
        match &self.side {
            Side::Embedded(e) => e.next(),
            Side::Remote(r) => r.next(&self.client),
        }
    }

    /// Ends all listening: a new process finds no listener.
    pub fn stop_listening(&mut self) {
        if let Side::Embedded(e) = &mut self.side {
            e.listeners.clear();
        }
    }

    /// Listening sockets of the embedded server.
    pub(crate) fn listeners(&mut self) -> impl Iterator<Item = &mut Listener> {
        let embedded = match &mut self.side {
            Side::Embedded(e) => Some(e),
            Side::Remote(_) => None,
        };
        embedded.into_iter().flat_map(|e| e.listeners.values_mut())
    }

    /// Names of the embedded server's databases, in order; none when it is served elsewhere.
    pub fn names(&self) -> Vec<&str> {
        match &self.side {
            Side::Embedded(e) => e.server.database_names(),
            Side::Remote(_) => Vec::new(),
        }
    }

    /// Targets of the embedded server besides the managers of the database, in order.
    pub fn remotes(&self) -> Vec<&str> {
        match &self.side {
            Side::Embedded(e) => e.added.iter().chain([&e.own_target]).map(String::as_str).collect(),
            Side::Remote(_) => Vec::new(),
        }
    }

    /// Adds a target to listen at or to connect to until [`Db::remove_remote`].
    ///
    /// # Errors
    /// The target is invalid, or cannot be listened at.
    pub fn add_remote(&mut self, target: &str, reactor: &mut Reactor) -> Result<()> {
        let Side::Embedded(e) = &mut self.side else { return Ok(()) };
        if !e.has(target) {
            e.serve(target, reactor)?;
        }
        if target != e.own_target {
            e.added.insert(target.to_string());
        }
        Ok(())
    }

    /// Removes a target of [`Db::add_remote`]; `false` for an unknown one. A target also wanted by a manager returns
    /// after the next change of the database.
    pub fn remove_remote(&mut self, target: &str, reactor: &Reactor) -> bool {
        let Side::Embedded(e) = &mut self.side else { return false };
        let was = e.added.remove(target);
        if was {
            e.listeners.remove(target);
            e.disconnect(target, reactor);
        }
        was
    }

    /// Closes all connections to the embedded server.
    pub fn reconnect_clients(&mut self, reactor: &Reactor) {
        if let Side::Embedded(e) = &mut self.side {
            let tokens: Vec<Token> = e.conns.keys().copied().collect();
            tokens.into_iter().for_each(|token| e.close(token, reactor));
        }
    }

    /// The embedded server; `None` when the database is served elsewhere.
    pub fn server(&mut self) -> Option<&mut Server> {
        match &mut self.side {
            Side::Embedded(e) => Some(&mut e.server),
            Side::Remote(_) => None,
        }
    }

    /// Counts of reached limits of the embedded server.
    pub fn counters(&self) -> Counters {
        match &self.side {
            Side::Embedded(e) => e.server.counters(),
            Side::Remote(_) => Counters::default(),
        }
    }

    /// Compacts the embedded database's file; the receiver gets the outcome.
    pub fn compact(&mut self) -> Result<Receiver<Result<(), String>>, String> {
        match &mut self.side {
            Side::Embedded(e) => match e.server.database(ROOT) {
                Some(db) => Ok(e.file.compact(db)),
                None => Err("no such database".to_string()),
            },
            Side::Remote(_) => Err("the database is served by another process".to_string()),
        }
    }
}

impl Embedded {
    /// Opens the file and listens; `root` is the row of `Open_vSwitch` that it must hold.
    fn start(
        path: &Path,
        lock: FileLock,
        socket: &Path,
        root: Option<Uuid>,
        reactor: &mut Reactor,
        waker: Arc<Waker>,
    ) -> Result<Embedded> {
        let wake = move || {
            // The main loop outlives the writer thread.
            let _ = waker.wake();
        };
        let (file, db) = dbfile::open(path, lock, schema::open_vswitch(), &mut random_uuid, wake)?;
        let holds = |root| db.schema().table_ix(ROOT).is_some_and(|table| db.row(table, root).is_some());
        anyhow::ensure!(root.is_none_or(holds), "{}: {OTHER_DATABASE}", path.display());
        let mut server = Server::new(Box::new(random_uuid), ServerLimits::default());
        server.add_database(db, true)?;
        let local = server.session_open_from(Origin::Owner)?;
        let own_target = format!("punix:{}", socket.display());
        let mut embedded = Embedded {
            server,
            file,
            local,
            own_target: own_target.clone(),
            listeners: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            added: BTreeSet::new(),
            refused: BTreeMap::new(),
            dscps: BTreeMap::new(),
            probes: BTreeMap::new(),
            conns: BTreeMap::new(),
        };
        embedded.serve(&own_target, reactor)?;
        Ok(embedded)
    }

    /// Whether a target is served.
    fn has(&self, target: &str) -> bool {
        self.listeners.contains_key(target) || self.outgoing.contains_key(target)
    }

    /// Listens at a target, or connects to it from now on.
    fn serve(&mut self, target: &str, reactor: &mut Reactor) -> Result<()> {
        let endpoint = Endpoint::parse(target, DEFAULT_PORT)?;
        let dscp = self.dscps.get(target).copied().unwrap_or(NO_DSCP);
        if !endpoint.is_passive() {
            self.outgoing.insert(target.to_string(), Outgoing::new(endpoint, dscp));
            return Ok(());
        }
        let token = reactor.token();
        let listener = Listener::open_in(&endpoint, dscp, reactor, token)
            .with_context(|| format!("{target}: cannot listen"))?;
        self.listeners.insert(target.to_string(), listener);
        Ok(())
    }

    /// Connects to a manager no longer.
    fn disconnect(&mut self, target: &str, reactor: &Reactor) {
        if let Some(token) = self.outgoing.remove(target).and_then(|outgoing| outgoing.token()) {
            self.close(token, reactor);
        }
    }

    fn event(&mut self, token: Token, reactor: &mut Reactor) -> bool {
        if let Some((target, listener)) = self.listeners.iter_mut().find(|(_, l)| l.owns(token)) {
            let target = target.clone();
            for conn in listener.serve(token, reactor) {
                self.open(conn, &target, reactor);
            }
            return true;
        }
        if let Some((target, outgoing)) = self.outgoing.iter_mut().find(|(_, o)| o.is_attempt(token)) {
            let target = target.clone();
            if let Some(conn) = outgoing.advance(reactor) {
                self.open(conn, &target, reactor);
            }
            return true;
        }
        let Some(peer) = self.conns.get_mut(&token) else { return false };
        peer.unread = !peer.ended;
        if reactor.is_gone(token) {
            self.deafen(token);
        }
        self.read(token, reactor);
        true
    }

    fn open(&mut self, mut conn: Conn, target: &str, reactor: &mut Reactor) {
        let origin = if is_local(target) { Origin::Local } else { Origin::Remote };
        match self.open_session(origin, reactor) {
            Ok(session) => {
                let heard_ms = sys::clock::monotonic_ms();
                let target = target.to_string();
                let peer = Peer {
                    conn,
                    session,
                    target,
                    unread: true,
                    ended: false,
                    deaf: false,
                    heard_ms,
                    progress_ms: heard_ms,
                    asked_ms: None,
                    messages: MessageLog::default(),
                };
                self.conns.insert(peer.conn.token(), peer);
            }
            Err(e) => {
                log::warn!(target: "jsonrpc", "database connection of {} refused: {e}", conn.peer());
                reactor.counts.refused += 1;
                conn.close(reactor.registry());
                if let Some(outgoing) = self.outgoing.get_mut(target) {
                    outgoing.lost(&e.to_string(), reactor);
                }
            }
        }
    }

    /// Opens a session: at the limit, one without progress ends for it. Sessions of the network end for each other only.
    fn open_session(&mut self, origin: Origin, reactor: &mut Reactor) -> Result<SessionId, ServerError> {
        let refusal = match self.server.session_open_from(origin) {
            Ok(session) => return Ok(session),
            Err(refusal) => refusal,
        };
        let able = self.conns.values().filter(|p| origin == Origin::Local || !is_local(&p.target));
        let places = able.map(|p| ConnectionSlot {
            token: p.conn.token(),
            standing: match self.server.session_is_used(p.session) {
                _ if p.deaf => Standing::Served,
                _ if p.conn.backlog_bytes() > 0 => Standing::Unread,
                true => Standing::Served,
                false => Standing::Unused,
            },
            progress_ms: p.progress_ms,
        });
        let Some(token) = to_evict(places) else { return Err(refusal) };
        let peer = self.conns.get(&token).map(|p| p.conn.peer()).unwrap_or_default();
        log::warn!(target: "jsonrpc", "{peer}: database connection closed for a new one: {refusal}, and it made no progress for the longest time");
        reactor.counts.evicted += 1;
        self.close(token, reactor);
        self.server.session_open_from(origin)
    }

    /// A client has stopped reading; its earlier input can still be read.
    fn deafen(&mut self, token: Token) {
        let Some(peer) = self.conns.get_mut(&token) else { return };
        if !std::mem::replace(&mut peer.deaf, true) {
            peer.unread = !peer.ended;
            self.server.session_transact_only(peer.session);
        }
    }

    /// Reads once from a client whose input is wanted.
    fn read(&mut self, token: Token, reactor: &mut Reactor) {
        let Some(peer) = self.conns.get_mut(&token) else { return };
        let unsent = peer.conn.backlog_bytes();
        if !peer.deaf && peer.conn.flush(reactor.registry()).is_err() {
            self.deafen(token);
        }
        let Some(peer) = self.conns.get_mut(&token) else { return };
        if peer.conn.backlog_bytes() < unsent {
            peer.progress_ms = sys::clock::monotonic_ms();
        }
        if peer.ended || !peer.unread || !self.server.session_wants_input(peer.session) {
            return;
        }
        match peer.conn.read(reactor) {
            Ok(Some((bytes, more))) => {
                peer.unread = more;
                if !bytes.is_empty() {
                    (peer.heard_ms, peer.asked_ms) = (sys::clock::monotonic_ms(), None);
                    peer.progress_ms = peer.heard_ms;
                }
                peer.messages.received(|| peer.conn.label(), bytes);
                self.server.session_input(peer.session, bytes, now());
            }
            Ok(None) => (peer.ended, peer.unread) = (true, false),
            Err(_) => {
                (peer.ended, peer.unread) = (true, false);
                self.deafen(token);
            }
        }
    }

    /// Closes clients that have stopped sending or reading, once their requests are done and the replies sent. Drops
    /// their waiting transactions.
    fn close_ended(&mut self, reactor: &Reactor) {
        let over = |p: &Peer| match p.deaf {
            true => !p.unread && !self.server.session_has_requests(p.session),
            false => p.ended && p.conn.backlog_bytes() == 0 && self.server.session_is_idle(p.session),
        };
        let over: Vec<Token> = self.conns.iter().filter(|(_, p)| over(p)).map(|(token, _)| *token).collect();
        over.into_iter().for_each(|token| self.close(token, reactor));
    }

    /// Time of the next work without an event.
    fn next(&self) -> Turn {
        let wants = |p: &Peer| p.unread && self.server.session_wants_input(p.session);
        let sending = self.server.sessions_with_output();
        let sends = |p: &Peer| p.is_free() && sending.binary_search(&p.session).is_ok();
        let sends = !sending.is_empty() && self.conns.values().any(sends);
        let more = self.server.has_work() || sends || self.conns.values().any(wants);
        let probes = self.conns.values().filter_map(|p| self.probe_due_ms(p)).min();
        let attempts = self.outgoing.values().map(Outgoing::next);
        attempts
            .chain([Turn::more_if(more), Turn::from(probes), Turn::from(self.server.next_deadline_ms())])
            .collect()
    }

    /// Time to probe or disconnect a client; none while the client itself waits.
    fn probe_due_ms(&self, peer: &Peer) -> Option<u64> {
        let probe_ms = self.probes.get(&peer.target).copied().filter(|ms| *ms > 0)?;
        Some(peer.asked_ms.unwrap_or(peer.heard_ms) + probe_ms)
    }

    /// Probes idle clients, and disconnects those that did not reply.
    fn probe(&mut self, reactor: &mut Reactor) {
        let now_ms = sys::clock::monotonic_ms();
        let due = |(token, p): (&Token, &Peer)| (self.probe_due_ms(p)? <= now_ms).then_some(*token);
        let due: Vec<Token> = self.conns.iter().filter_map(due).collect();
        for token in due {
            let Some(peer) = self.conns.get_mut(&token) else { continue };
            if peer.asked_ms.is_none() {
                peer.asked_ms = Some(now_ms);
                self.server.session_probe(peer.session);
                continue;
            }
            let seconds = self.probes.get(&peer.target).map_or(0.0, |ms| *ms as f64 / 1000.0);
            let name = peer.conn.peer();
            log::error!(target: "reconnect", "{name}: no response to inactivity probe after {seconds} seconds, disconnecting");
            reactor.counts.probes_failed += 1;
            self.close(token, reactor);
        }
    }

    fn close(&mut self, token: Token, reactor: &Reactor) {
        if let Some(mut peer) = self.conns.remove(&token) {
            peer.conn.close(reactor.registry());
            self.server.session_close(peer.session);
            if let Some(outgoing) = self.outgoing.get_mut(&peer.target).filter(|o| o.token() == Some(token)) {
                outgoing.lost("connection closed", reactor);
            }
        }
    }

    fn run(&mut self, client: &mut Client, reactor: &mut Reactor) {
        self.outgoing.values_mut().for_each(|outgoing| outgoing.run(reactor));
        self.server.work(now());
        let unread: Vec<Token> =
            self.conns.iter().filter(|(_, p)| p.unread).map(|(token, _)| *token).collect();
        unread.into_iter().for_each(|token| self.read(token, reactor));
        self.probe(reactor);
        for outcome in self.file.written() {
            match outcome {
                Written::Synced(up_to) => self.server.log_synced(up_to),
                Written::Failed(why) => {
                    log::error!(target: "ovsdb_file", "{why}; the transactions since the last written one were taken back");
                    self.server.log_failed(&why);
                    self.file.go_on();
                }
            }
        }
        // The client and the server exchange messages until both are idle; each round trip is a few messages.
        loop {
            let request = client.take_output();
            if !request.is_empty() {
                self.server.session_input(self.local, &request, now());
            }
            self.file.append(self.server.take_log());
            let answer = self.server.session_output(self.local);
            if answer.is_empty() {
                break;
            }
            if let Err(e) = client.input(&answer) {
                log::error!(target: "jsonrpc", "the embedded database: {e}");
                client.reset();
            }
        }
        for change in self.server.take_logged() {
            log::info!(target: "transaction", "{change}");
        }
        self.send(reactor);
        if let Some(db) = self.server.database("Open_vSwitch") {
            self.file.compact_if_due(db);
        }
    }

    fn send(&mut self, reactor: &mut Reactor) {
        let mut gone = Vec::new();
        let sending = self.server.sessions_with_output();
        // Most turns have none.
        let conns = self.conns.iter().filter(|_| !sending.is_empty());
        let by_session: BTreeMap<SessionId, Token> = conns.map(|(t, p)| (p.session, *t)).collect();
        for session in sending {
            let Some(token) = by_session.get(&session) else { continue };
            let Some(peer) = self.conns.get_mut(token) else { continue };
            // Unread output stays in the server, where it is bounded; a reader gets a piece per turn.
            if peer.is_free() {
                let output = self.server.session_output_some(session, OUTPUT_PIECE_BYTES);
                if peer.deaf {
                    continue;
                }
                log_sent(|| peer.conn.label(), &output);
                let sent = peer.conn.send(&output, reactor.registry());
                if peer.conn.backlog_bytes() < output.len() {
                    peer.progress_ms = sys::clock::monotonic_ms();
                }
                if sent.is_err() {
                    self.deafen(*token);
                }
            }
        }
        for (session, why) in self.server.closing_sessions() {
            if let Some((token, _)) = self.conns.iter().find(|(_, p)| p.session == session) {
                log::info!(target: "jsonrpc", "database connection closed: {why}");
                gone.push(*token);
            }
        }
        for token in gone {
            self.close(token, reactor);
        }
        self.close_ended(reactor);
    }
}

impl Peer {
    /// Whether more output can be sent to it, or discarded.
    fn is_free(&self) -> bool {
        self.deaf || self.conn.backlog_bytes() == 0
    }
}
