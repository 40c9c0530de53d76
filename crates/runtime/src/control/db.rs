//! The configuration database, served here or elsewhere, behind one façade: [`Db::client`] is a replica with transactions in
//! either case.
//!
//! Embedded, the server lives in this process and its client is moved bytes in memory; others connect by sockets. Remote,
//! the client follows a database server under the lock `ovs_vswitchd` and reconnects with a back-off.

use super::dbfile::{self, DbFile, Written};
use super::reactor::Reactor;
use super::stream::{Conn, Endpoint, Listener};
use super::turn::Turn;
use anyhow::{Context, Result};
use mio::{Token, Waker};
use ovsdb::client::{Client, ClientConfig, ClientState};
use ovsdb::schema;
use ovsdb::server::{Server, ServerLimits, SessionId, Time};
use ovsdb::value::Uuid;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Default port of database servers (IANA).
pub const DEFAULT_PORT: u16 = 6640;
/// Name of the lock that the one active switch of a database holds.
pub const LOCK: &str = "ovs_vswitchd";

const BACKOFF_MIN_MS: u64 = 1000;
const BACKOFF_MAX_MS: u64 = 8000;
/// A server that was silent so long is asked for a sign of life, and given up after as long again.
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
    /// The default socket: listened at whatever managers are asked for.
    own_target: String,
    listeners: BTreeMap<String, Listener>,
    /// Managers that cannot be listened for, with the reason that was told.
    refused: BTreeMap<String, String>,
    conns: BTreeMap<Token, (Conn, SessionId)>,
}

struct Remote {
    target: String,
    endpoint: Endpoint,
    conn: Option<Conn>,
    connecting: bool,
    backoff_ms: u64,
    retry_ms: u64,
    heard_ms: u64,
}

fn now() -> Time {
    Time { mono_ms: sys::clock::monotonic_ms(), wall_ms: sys::clock::wall_ms() as i64 }
}

fn random_uuid() -> Uuid {
    // Without random numbers nothing here is safe; the kernel has always had them once it booted.
    let bits = sys::random::uuid().unwrap_or_else(|e| panic!("no random numbers: {e}"));
    Uuid::from_bytes(bits.to_be_bytes())
}

fn client() -> Client {
    let mut config = ClientConfig::all(schema::open_vswitch());
    config.lock = Some(LOCK.to_string());
    Client::new(config)
}

impl Db {
    /// Serves the database in the file at `path` on the socket at `socket`.
    pub fn embedded(path: &Path, socket: &Path, reactor: &mut Reactor, waker: Arc<Waker>) -> Result<Db> {
        let wake = move || {
            // The main loop is there as long as the writer thread is.
            let _ = waker.wake();
        };
        let (file, db) = dbfile::open(path, schema::open_vswitch(), &mut random_uuid, wake)?;
        let mut server = Server::new(Box::new(random_uuid), ServerLimits::default());
        server.add_database(db, true)?;
        let local = server.session_open()?;
        let own_target = format!("punix:{}", socket.display());
        let mut embedded = Embedded {
            server,
            file,
            local,
            own_target: own_target.clone(),
            listeners: BTreeMap::new(),
            refused: BTreeMap::new(),
            conns: BTreeMap::new(),
        };
        embedded.listen(&own_target, reactor)?;
        Ok(Db { client: client(), side: Side::Embedded(Box::new(embedded)) })
    }

    /// Follows the server at `target`.
    pub fn remote(target: &str) -> Result<Db> {
        let endpoint = Endpoint::parse(target, DEFAULT_PORT)?;
        anyhow::ensure!(
            !endpoint.is_passive(),
            "{target}: the switch connects to its database; use unix: or tcp:"
        );
        let remote = Remote {
            target: target.to_string(),
            endpoint,
            conn: None,
            connecting: false,
            backoff_ms: BACKOFF_MIN_MS,
            retry_ms: 0,
            heard_ms: 0,
        };
        Ok(Db { client: client(), side: Side::Remote(Box::new(remote)) })
    }

    /// The replica and its transactions.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The replica, to read.
    pub fn client_ref(&self) -> &Client {
        &self.client
    }

    /// Whether the database is served here.
    pub fn is_embedded(&self) -> bool {
        matches!(self.side, Side::Embedded(_))
    }

    /// Serves more listening targets (`Manager` rows), and ends those no longer wanted; what newly went wrong, by target.
    pub fn set_managers(&mut self, targets: &[String], reactor: &mut Reactor) -> Vec<(String, String)> {
        let Side::Embedded(e) = &mut self.side else { return Vec::new() };
        e.listeners.retain(|t, _| *t == e.own_target || targets.contains(t));
        e.refused.retain(|t, _| targets.contains(t));
        let mut failed = Vec::new();
        for target in targets.iter().filter(|t| !e.listeners.contains_key(*t)).cloned().collect::<Vec<_>>() {
            match e.listen(&target, reactor) {
                Ok(()) => {
                    e.refused.remove(&target);
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    if e.refused.insert(target.clone(), why.clone()).as_ref() != Some(&why) {
                        failed.push((target, why));
                    }
                }
            }
        }
        failed
    }

    /// Something happened to a socket; `false` when it is not one of the database's.
    pub fn event(&mut self, token: Token, reactor: &mut Reactor) -> bool {
        match &mut self.side {
            Side::Embedded(e) => e.event(token, reactor),
            Side::Remote(r) => r.event(token, reactor, &mut self.client),
        }
    }

    /// Moves what is to be moved: requests and answers, records to the file, connections to be made.
    pub fn run(&mut self, reactor: &mut Reactor) -> Turn {
        match &mut self.side {
            Side::Embedded(e) => e.run(&mut self.client, reactor),
            Side::Remote(r) => r.run(&mut self.client, reactor),
        }
        match &self.side {
            Side::Embedded(e) => Turn::from(e.server.next_deadline_ms()),
            Side::Remote(r) if r.conn.is_none() => Turn::at(r.retry_ms),
            // A probe, unless it is under way or cannot be sent yet: then the end of patience.
            Side::Remote(r) => {
                let probes =
                    r.connecting || self.client.state() != ClientState::Ready || self.client.echo_pending();
                Turn::at(r.heard_ms + if probes { 2 * PROBE_MS } else { PROBE_MS })
            }
        }
    }

    /// Compacts the embedded database's file.
    pub fn compact(&mut self) -> Result<(), String> {
        match &mut self.side {
            Side::Embedded(e) => match e.server.database("Open_vSwitch") {
                Some(db) => {
                    e.file.compact(db);
                    Ok(())
                }
                None => Err("no such database".to_string()),
            },
            Side::Remote(_) => Err("the database is served by another process".to_string()),
        }
    }
}

impl Embedded {
    fn listen(&mut self, target: &str, reactor: &mut Reactor) -> Result<()> {
        let endpoint = Endpoint::parse(target, DEFAULT_PORT)?;
        anyhow::ensure!(
            endpoint.is_passive(),
            "{target}: connecting out to managers is not supported; use ptcp: or punix:"
        );
        let token = reactor.token();
        let listener = Listener::open(&endpoint, reactor.registry(), token)
            .with_context(|| format!("{target}: cannot listen"))?;
        self.listeners.insert(target.to_string(), listener);
        Ok(())
    }

    fn event(&mut self, token: Token, reactor: &mut Reactor) -> bool {
        if let Some(listener) = self.listeners.values().find(|l| l.token() == token) {
            for mut conn in listener.accept(reactor) {
                match self.server.session_open() {
                    Ok(session) => {
                        self.conns.insert(conn.token(), (conn, session));
                    }
                    Err(e) => {
                        log::warn!(target: "jsonrpc", "database connection refused: {e}");
                        reactor.counts.refused += 1;
                        conn.close(reactor.registry());
                    }
                }
            }
            return true;
        }
        let Some((conn, session)) = self.conns.get_mut(&token) else { return false };
        let mut open = conn.flush(reactor.registry()).is_ok();
        if open {
            match conn.read() {
                Ok(Some((bytes, more))) => {
                    self.server.session_input(*session, &bytes, now());
                    if more {
                        reactor.serve_again(token);
                    }
                }
                Ok(None) | Err(_) => open = false,
            }
        }
        if !open {
            self.close(token, reactor);
        }
        true
    }

    fn close(&mut self, token: Token, reactor: &Reactor) {
        if let Some((mut conn, session)) = self.conns.remove(&token) {
            conn.close(reactor.registry());
            self.server.session_close(session);
        }
    }

    fn run(&mut self, client: &mut Client, reactor: &mut Reactor) {
        self.server.tick(now());
        for told in self.file.written() {
            match told {
                Written::Synced(up_to) => self.server.log_synced(up_to),
                Written::Failed(why) => {
                    log::error!(target: "ovsdb_file", "{why}; the transactions since the last written one were taken back");
                    self.server.log_failed(&why);
                    self.file.go_on();
                }
            }
        }
        // The client and the server answer each other until both are quiet; each round trip is a few messages.
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
        self.send(reactor);
        if let Some(db) = self.server.database("Open_vSwitch") {
            self.file.compact_if_due(db);
        }
    }

    fn send(&mut self, reactor: &mut Reactor) {
        let by_session: BTreeMap<SessionId, Token> = self.conns.iter().map(|(t, (_, s))| (*s, *t)).collect();
        let mut gone = Vec::new();
        for session in self.server.sessions_with_output() {
            let Some(token) = by_session.get(&session) else { continue };
            let Some((conn, _)) = self.conns.get_mut(token) else { continue };
            // What a client does not read stays in the server, where it is bounded.
            if conn.backlog_bytes() == 0 {
                let output = self.server.session_output(session);
                if conn.send(&output, reactor.registry()).is_err() {
                    gone.push(*token);
                }
            }
        }
        for (session, why) in self.server.closing_sessions() {
            if let Some(token) = by_session.get(&session) {
                log::info!(target: "jsonrpc", "database connection closed: {why}");
                gone.push(*token);
            }
        }
        for token in gone {
            self.close(token, reactor);
        }
    }
}

impl Remote {
    fn event(&mut self, token: Token, reactor: &mut Reactor, client: &mut Client) -> bool {
        let Some(conn) = self.conn.as_mut().filter(|c| c.token() == token) else { return false };
        if self.connecting {
            match conn.connected() {
                Ok(true) => {
                    self.connecting = false;
                    self.backoff_ms = BACKOFF_MIN_MS;
                    self.heard_ms = sys::clock::monotonic_ms();
                    log::info!(target: "reconnect", "{}: connected", self.target);
                }
                Ok(false) => return true,
                Err(e) => {
                    let why = e.to_string();
                    self.lost(&why, reactor, client);
                    return true;
                }
            }
        }
        let problem = loop {
            match conn.read() {
                Ok(Some((bytes, more))) => {
                    self.heard_ms = sys::clock::monotonic_ms();
                    if let Err(e) = client.input(&bytes) {
                        break Some(e.to_string());
                    }
                    if !more {
                        break conn.flush(reactor.registry()).err().map(|e| e.to_string());
                    }
                }
                Ok(None) => break Some("connection closed by peer".to_string()),
                Err(e) => break Some(e.to_string()),
            }
        };
        if let Some(why) = problem {
            self.lost(&why, reactor, client);
        }
        true
    }

    fn lost(&mut self, why: &str, reactor: &Reactor, client: &mut Client) {
        if let Some(mut conn) = self.conn.take() {
            conn.close(reactor.registry());
        }
        log::info!(target: "reconnect", "{}: {why}; waiting {} ms before reconnecting", self.target, self.backoff_ms);
        self.retry_ms = sys::clock::monotonic_ms() + self.backoff_ms;
        self.backoff_ms = (self.backoff_ms * 2).min(BACKOFF_MAX_MS);
        client.reset();
    }

    fn run(&mut self, client: &mut Client, reactor: &mut Reactor) {
        let now_ms = sys::clock::monotonic_ms();
        if self.conn.is_none() && now_ms >= self.retry_ms {
            log::info!(target: "reconnect", "{}: connecting...", self.target);
            let token = reactor.token();
            match Conn::connect(&self.endpoint, reactor.registry(), token) {
                Ok(conn) => {
                    self.conn = Some(conn);
                    self.connecting = true;
                    self.heard_ms = now_ms;
                }
                Err(e) => self.lost(&format!("connection attempt failed ({e})"), reactor, client),
            }
        }
        if self.conn.is_some() && now_ms >= self.heard_ms + 2 * PROBE_MS {
            return self.lost("no response to inactivity probe", reactor, client);
        }
        if self.connecting {
            return;
        }
        if self.conn.is_some()
            && now_ms >= self.heard_ms + PROBE_MS
            && client.state() == ClientState::Ready
            && !client.echo_pending()
        {
            client.send_echo();
        }
        let Some(conn) = &mut self.conn else { return };
        let output = client.take_output();
        if !output.is_empty()
            && let Err(e) = conn.send(&output, reactor.registry())
        {
            self.lost(&e.to_string(), reactor, client);
        }
    }
}
