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
/// A client whose answers pile up to this is cut off.
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
    closing: bool,
}

/// The control socket and its clients.
pub struct Unixctl {
    listener: Listener,
    clients: BTreeMap<Token, Client>,
}

impl Unixctl {
    /// Listens at a path.
    pub fn open(path: &Path, registry: &Registry, token: Token) -> Result<Unixctl> {
        let endpoint = Endpoint::PassiveUnix(path.to_path_buf());
        let listener = Listener::open(&endpoint, registry, token)
            .with_context(|| format!("{}: cannot listen for control connections", path.display()))?;
        Ok(Unixctl { listener, clients: BTreeMap::new() })
    }

    /// Whether a token is the listener's.
    pub fn is_listener(&self, token: Token) -> bool {
        self.listener.token() == token
    }

    /// Whether a token is one of its clients.
    pub fn has(&self, token: Token) -> bool {
        self.clients.contains_key(&token)
    }

    /// Takes a connection in; `false` when none waits.
    pub fn accept(&mut self, registry: &Registry, token: Token) -> bool {
        match self.listener.accept(registry, token) {
            Ok(Some(mut conn)) if self.clients.len() >= CONNECTIONS_MAX => {
                conn.close(registry);
                true
            }
            Ok(Some(conn)) => {
                let framer = Framer::new(FramerLimits::default());
                self.clients.insert(token, Client { conn, framer, closing: false });
                true
            }
            Ok(None) => false,
            Err(e) => {
                log::warn!(target: "unixctl", "cannot accept a control connection: {e}");
                false
            }
        }
    }

    /// Reads what a client sent; its requests.
    pub fn ready(&mut self, token: Token, reactor: &mut Reactor) -> Vec<Request> {
        let mut requests = Vec::new();
        let Some(client) = self.clients.get_mut(&token) else { return requests };
        let mut open = client.conn.flush(reactor.registry()).is_ok();
        if open {
            match client.conn.read() {
                Ok(Some((bytes, more))) => {
                    client.framer.feed(&bytes);
                    open = client.requests(token, &mut requests);
                    if more {
                        reactor.serve_again(token);
                    }
                }
                Ok(None) | Err(_) => open = false,
            }
        }
        if !open && requests.is_empty() {
            self.close(token, reactor.registry());
        } else if !open {
            client.closing = true;
        }
        requests
    }

    /// Answers a request: `Ok` text for the terminal, or an error.
    pub fn reply(&mut self, request: &Request, answer: Result<String, String>, registry: &Registry) {
        let Some(client) = self.clients.get_mut(&request.conn) else { return };
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
        let sent = client.conn.send(&message.encode(), registry);
        let over = client.conn.backlog_bytes() > BACKLOG_MAX_BYTES;
        if sent.is_err() || over || client.closing && client.conn.backlog_bytes() == 0 {
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
    /// Takes whole requests out of what came; `false` when the client sent something else.
    fn requests(&mut self, conn: Token, out: &mut Vec<Request>) -> bool {
        loop {
            let message = match self.framer.next_text() {
                Ok(None) => return true,
                Ok(Some(json)) => Message::from_json(json),
                Err(_) => return false,
            };
            let Ok(Message::Request { id, method, params }) = message else { return false };
            let args: Option<Vec<String>> = params.iter().map(|p| Some(p.as_str()?.to_string())).collect();
            let Some(args) = args else { return false };
            out.push(Request { conn, id, command: method, args });
        }
    }
}
