//! The control socket that `ovs-appctl` speaks to: JSON-RPC 1.0 requests whose method is the command and whose parameters
//! are its arguments, all strings.

use super::reactor::Reactor;
use super::stream::{Conn, Endpoint, Listener};
use anyhow::{Context, Result};
use mio::{Registry, Token};
use ovsdb::jsonrpc::{Framer, FramerLimits, Message};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Longest command with its arguments.
const COMMAND_MAX_BYTES: usize = 4 << 20;
/// What all clients together may have sent without a whole command; above it the one with most is cut off.
const HALF_SENT_MAX_BYTES: usize = 32 << 20;
/// A client whose former answers pile up to this is cut off; one answer may be longer.
const BACKLOG_MAX_BYTES: usize = 64 << 20;

/// A command and its arguments, to be answered by [`Unixctl::reply`].
#[derive(Debug)]
pub struct Request {
    /// Who asks.
    pub conn: Token,
    id: Value,
    /// The command.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
}

struct Client {
    conn: Conn,
    framer: Framer,
    /// Requests that wait for their answer.
    unanswered: usize,
    /// It sends no more.
    closing: bool,
}

/// The control socket and its clients.
pub struct Unixctl {
    listener: Listener,
    clients: BTreeMap<Token, Client>,
    /// Clients that were cut off for what they sent without a whole command.
    pub cut_off: u64,
}

impl Unixctl {
    /// Listens at a path.
    pub fn open(path: &Path, registry: &Registry, token: Token) -> Result<Unixctl> {
        let endpoint = Endpoint::PassiveUnix(path.to_path_buf());
        let listener = Listener::open(&endpoint, registry, token)
            .with_context(|| format!("{}: cannot listen for control connections", path.display()))?;
        Ok(Unixctl { listener, clients: BTreeMap::new(), cut_off: 0 })
    }

    /// Whether a token is the listener's.
    pub fn is_listener(&self, token: Token) -> bool {
        self.listener.token() == token
    }

    /// Whether a token is one of its clients.
    pub fn has(&self, token: Token) -> bool {
        self.clients.contains_key(&token)
    }

    /// Takes connections in.
    pub fn accept(&mut self, reactor: &mut Reactor) {
        for mut conn in self.listener.accept(reactor) {
            if self.clients.len() >= CONNECTIONS_MAX {
                log::warn!(target: "unixctl", "connection refused: {CONNECTIONS_MAX} are open, which is the limit");
                reactor.counts.refused += 1;
                conn.close(reactor.registry());
                continue;
            }
            let framer = Framer::new(FramerLimits { bytes: COMMAND_MAX_BYTES, ..FramerLimits::default() });
            self.clients.insert(conn.token(), Client { conn, framer, unanswered: 0, closing: false });
        }
    }

    /// Reads what a client sent; its next request. Others that came with it wait for their turn.
    pub fn ready(&mut self, token: Token, reactor: &mut Reactor) -> Option<Request> {
        let client = self.clients.get_mut(&token)?;
        let mut open = client.conn.flush(reactor.registry()).is_ok();
        let mut request = None;
        if open && client.closing {
            open = !client.is_done();
        } else if open {
            match client.request(token) {
                // Served again until nothing is left of what was read.
                Ok(Some(next)) => {
                    client.unanswered += 1;
                    request = Some(next);
                    reactor.serve_again(token);
                }
                // What was asked for is answered before the end.
                Ok(None) => {
                    client.closing = !client.read(token, reactor);
                    open = !(client.closing && client.is_done());
                }
                Err(()) => open = false,
            }
        }
        if !open {
            self.close(token, reactor.registry());
        }
        self.shed(reactor.registry());
        request
    }

    /// Keeps the bound of what all clients have sent without a whole command.
    fn shed(&mut self, registry: &Registry) {
        while self.clients.values().map(|c| c.framer.held_bytes()).sum::<usize>() > HALF_SENT_MAX_BYTES
            && let Some((token, client)) = self.clients.iter().max_by_key(|(_, c)| c.framer.held_bytes())
        {
            let (token, bytes) = (*token, client.framer.held_bytes());
            log::warn!(target: "unixctl", "client cut off: all together sent too much without a whole command, this one {bytes} bytes");
            self.cut_off += 1;
            self.close(token, registry);
        }
    }

    /// Answers a request: `Ok` text for the terminal, or an error.
    pub fn reply(&mut self, request: &Request, answer: Result<String, String>, registry: &Registry) {
        let Some(client) = self.clients.get_mut(&request.conn) else { return };
        client.unanswered = client.unanswered.saturating_sub(1);
        let id = request.id.clone();
        let line = |mut text: String| {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            Value::from(text)
        };
        let message = match answer {
            Ok(text) => Message::Reply { id, result: line(text) },
            Err(text) => Message::Error { id, error: line(text) },
        };
        let over = client.conn.backlog_bytes() > BACKLOG_MAX_BYTES;
        let sent = client.conn.send(&message.encode(), registry);
        if sent.is_err() || over || client.closing && client.is_done() {
            self.close(request.conn, registry);
        }
    }

    fn close(&mut self, token: Token, registry: &Registry) {
        if let Some(mut client) = self.clients.remove(&token) {
            client.conn.close(registry);
        }
    }
}

impl Client {
    /// Whether all its requests are answered and it has the answers.
    fn is_done(&self) -> bool {
        self.unanswered == 0 && self.conn.backlog_bytes() == 0
    }

    /// Takes in what has come; `false` when the client is gone.
    fn read(&mut self, token: Token, reactor: &mut Reactor) -> bool {
        match self.conn.read() {
            Ok(Some((bytes, more))) => {
                if more || !bytes.is_empty() {
                    reactor.serve_again(token);
                }
                self.framer.feed(&bytes);
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Takes a whole request out of what came; an error when the client sent something else.
    fn request(&mut self, conn: Token) -> Result<Option<Request>, ()> {
        let message = match self.framer.next_text() {
            Ok(None) => return Ok(None),
            Ok(Some(json)) => Message::from_json(json),
            Err(_) => return Err(()),
        };
        let Ok(Message::Request { id, method, params }) = message else { return Err(()) };
        let args: Option<Vec<String>> = params.iter().map(|p| Some(p.as_str()?.to_string())).collect();
        let Some(args) = args else { return Err(()) };
        Ok(Some(Request { conn, id, command: method, args }))
    }
}
