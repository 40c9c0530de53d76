//! The control socket of `ovs-appctl`: JSON-RPC 1.0 requests whose method is the command and whose parameters are
//! its arguments, all strings.

use super::db::message_log::{MessageLog, log_sent};
use super::places::{ConnectionSlot, Standing, to_evict};
use super::reactor::Reactor;
use super::stream::{Conn, Endpoint, Listener, NO_DSCP};
use anyhow::{Context, Result};
use log::Level;
use mio::{Registry, Token};
use ovsdb::jsonrpc::{Framer, FramerLimits, RpcMessage};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

#[cfg(test)]
mod tests;

/// Maximum connections.
const CONNECTIONS_MAX: usize = 64;
/// Maximum length of a command with its arguments.
const COMMAND_MAX_BYTES: usize = 4 << 20;
/// Commands of a client that has stopped reading that are executed. OVS executes as many as one read of 4 kB brings.
const UNHEARD_MAX: usize = 64;
/// Unread bytes beyond which a client's requests wait.
const BUSY_BYTES: usize = 1 << 20;

/// Memory limits for all clients together; before one is exceeded, the client that holds most is disconnected.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Incomplete commands.
    half_sent_bytes: usize,
    /// Unread replies. A single reply beyond this is sent all the same, if it is the only one.
    unread_bytes: usize,
}

const LIMITS: Limits = Limits { half_sent_bytes: 32 << 20, unread_bytes: 128 << 20 };

/// Format of the replies to a client (`set-options --format`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Text for the terminal.
    #[default]
    Text,
    /// JSON; text is wrapped.
    Json,
}

/// Contents of the parts of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Contents {
    /// Text, as the contents of a JSON string.
    Text,
    /// The JSON of a value. It is not wrapped.
    Json,
}

/// A command and its arguments; reply with [`Unixctl::reply`].
#[derive(Debug)]
pub struct Request {
    /// The client.
    pub conn: Token,
    id: Value,
    /// The command.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Format of the reply.
    pub format: Format,
}

struct Client {
    conn: Conn,
    framer: Framer,
    /// A request waits for its reply; further ones wait for that.
    unanswered: bool,
    /// It has stopped sending: reply to its earlier requests first.
    closing: bool,
    /// It has stopped reading. As in OVS some of its earlier commands are executed all the same.
    deaf: bool,
    /// Commands executed since.
    unheard: usize,
    /// Time at which a byte last passed.
    progress_ms: u64,
    /// Format of its replies.
    format: Format,
    /// The reply has begun: its head and some parts of these contents were sent.
    begun: Option<Contents>,
    messages: MessageLog,
}

/// Whether a client takes parts of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It does.
    Some,
    /// It has to read first.
    Full,
    /// It does not read any more.
    Gone,
}

/// The control socket and its clients.
pub struct Unixctl {
    /// `None` once it ends.
    listener: Option<Listener>,
    clients: BTreeMap<Token, Client>,
    limits: Limits,
    /// Counts of requests and of clients.
    pub counts: Counts,
}

/// Counts of the control socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Clients disconnected for incomplete commands, or unread replies.
    pub cut_off: u64,
    /// Requests received.
    pub received: u64,
    /// Requests answered.
    pub replied: u64,
}

/// Logs a request, as OVS does.
pub fn log_request(request: &Request) {
    if log::log_enabled!(target: "unixctl", Level::Debug) {
        let args = Value::from(request.args.clone());
        log::debug!(target: "unixctl", "received request {}{args}, id={}", request.command, request.id);
    }
}

/// Logs the answer to a request, as OVS does.
fn log_answer(request: &Request, answer: &Result<Value, Value>) {
    if log::log_enabled!(target: "unixctl", Level::Debug) {
        let (outcome, body) = match answer {
            Ok(body) => ("success", body),
            Err(body) => ("error", body),
        };
        log::debug!(target: "unixctl", "replying with {outcome}, id={}: \"{body}\"", request.id);
    }
}

impl Unixctl {
    /// Listens at a path.
    pub fn open(path: &Path, registry: &Registry, token: Token) -> Result<Unixctl> {
        let endpoint = Endpoint::PassiveUnix(path.to_path_buf());
        let listener = Listener::open(&endpoint, NO_DSCP, registry, token)
            .with_context(|| format!("{}: cannot listen for control connections", path.display()))?;
        Ok(Unixctl {
            listener: Some(listener),
            clients: BTreeMap::new(),
            limits: LIMITS,
            counts: Counts::default(),
        })
    }

    /// Removes the socket; its clients stay.
    pub fn stop_listening(&mut self) {
        self.listener = None;
    }

    /// Whether the token is the listener's.
    pub fn is_listener(&self, token: Token) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.owns(token))
    }

    /// Whether the token is a client's.
    pub fn has(&self, token: Token) -> bool {
        self.clients.contains_key(&token)
    }

    /// Accepts connections.
    pub fn accept(&mut self, token: Token, reactor: &mut Reactor) {
        let conns = self.listener.as_mut().map(|listener| listener.serve(token, reactor));
        for mut conn in conns.unwrap_or_default() {
            if self.clients.len() >= CONNECTIONS_MAX && !self.evict(reactor) {
                log::warn!(target: "unixctl", "connection refused: {CONNECTIONS_MAX} are open and in use, which is the limit");
                reactor.counts.refused += 1;
                conn.close(reactor.registry());
                continue;
            }
            let framer = Framer::new(FramerLimits { bytes: COMMAND_MAX_BYTES, ..FramerLimits::default() });
            self.clients.insert(
                conn.token(),
                Client {
                    conn,
                    framer,
                    unanswered: false,
                    closing: false,
                    deaf: false,
                    unheard: 0,
                    progress_ms: sys::clock::monotonic_ms(),
                    format: Format::default(),
                    begun: None,
                    messages: MessageLog::default(),
                },
            );
        }
    }

    /// Ends a connection without progress for a new one; `false` if there is none.
    fn evict(&mut self, reactor: &mut Reactor) -> bool {
        let Some(token) = to_evict(self.clients.values().map(Client::place)) else { return false };
        log::warn!(target: "unixctl", "client disconnected for a new one: it made no progress for the longest time, at the limit of {CONNECTIONS_MAX} connections");
        reactor.counts.evicted += 1;
        self.close(token, reactor.registry());
        true
    }

    /// Reads a client's input; returns its next request. Further ones wait until that is answered and the reply
    /// read.
    pub fn ready(&mut self, token: Token, reactor: &mut Reactor) -> Option<Request> {
        let client = self.clients.get_mut(&token)?;
        let unsent = client.conn.backlog_bytes();
        client.deaf |= client.conn.flush(reactor.registry()).is_err() || reactor.is_gone(token);
        if client.conn.backlog_bytes() < unsent {
            client.progress_ms = sys::clock::monotonic_ms();
        }
        if client.unanswered || client.unread_bytes() >= BUSY_BYTES {
            return None;
        }
        match client.request(token) {
            Ok(Some(request)) => {
                client.unanswered = true;
                self.counts.received += 1;
                return Some(request);
            }
            Ok(None) if client.closing => {}
            Ok(None) => match client.conn.read(reactor) {
                Ok(Some((bytes, more))) => {
                    let bytes = bytes.to_vec();
                    if !bytes.is_empty() {
                        client.progress_ms = sys::clock::monotonic_ms();
                    }
                    if more || !bytes.is_empty() {
                        // Serve it again until its input is used up.
                        reactor.serve_again(token);
                    }
                    self.take(token, &bytes, reactor.registry());
                    return None;
                }
                // Reply to requests before the end.
                Ok(None) | Err(_) => client.closing = true,
            },
            Err(()) => {
                self.close(token, reactor.registry());
                return None;
            }
        }
        if client.unread_bytes() == 0 {
            self.close(token, reactor.registry());
        }
        None
    }

    /// Takes input, if there is space.
    fn take(&mut self, token: Token, bytes: &[u8], registry: &Registry) {
        let others = self.clients.iter().filter(|(t, _)| **t != token).map(|(_, c)| c.framer.held_bytes());
        let others: usize = others.sum();
        let Some(client) = self.clients.get(&token) else { return };
        let wanted = client.framer.held_after(bytes.len());
        self.shed(others + wanted, self.limits.half_sent_bytes, registry, |t, c| match t == token {
            true => wanted,
            false => c.framer.held_bytes(),
        });
        if let Some(client) = self.clients.get_mut(&token) {
            client.messages.received(|| client.conn.label(), bytes);
            client.framer.feed(bytes);
        }
    }

    /// Disconnects the clients that hold most until `held` is at most `limit`, in bytes.
    fn shed(
        &mut self,
        held: usize,
        limit: usize,
        registry: &Registry,
        its: impl Fn(Token, &Client) -> usize,
    ) {
        let mut held = held;
        while held > limit
            && let Some((bytes, token)) = self.clients.iter().map(|(t, c)| (its(*t, c), *t)).max()
            && bytes > 0
        {
            log::warn!(target: "unixctl", "client cut off: all together hold {held} bytes of half-sent commands or unread answers, this one {bytes}");
            self.counts.cut_off += 1;
            held -= bytes.min(held);
            self.close(token, registry);
        }
    }

    /// Sets the format of a client's further replies.
    pub fn set_format(&mut self, token: Token, format: Format) {
        if let Some(client) = self.clients.get_mut(&token) {
            client.format = format;
        }
    }

    /// Whether the client of a request has room for a part of the reply. If it does not read any more, the request is done.
    pub fn room(&mut self, request: &Request, reactor: &mut Reactor) -> Room {
        let Some(client) = self.clients.get_mut(&request.conn) else { return Room::Gone };
        if client.deaf {
            (client.unanswered, client.begun) = (false, None);
            reactor.serve_again(request.conn);
            self.count_unheard(request.conn, reactor.registry());
            return Room::Gone;
        }
        if client.unread_bytes() < BUSY_BYTES { Room::Some } else { Room::Full }
    }

    /// Sends a part of a reply's text: the contents of a JSON string. [`Unixctl::reply`] sends the end of the text.
    pub fn reply_part(&mut self, request: &Request, contents: &[u8], reactor: &mut Reactor) {
        self.part(request, Contents::Text, contents, reactor);
    }

    /// Sends a part of the JSON of a value, which is not wrapped. [`Unixctl::reply`] with an empty text ends it.
    pub fn reply_json_part(&mut self, request: &Request, json: &[u8], reactor: &mut Reactor) {
        self.part(request, Contents::Json, json, reactor);
    }

    fn part(&mut self, request: &Request, contents: Contents, part: &[u8], reactor: &mut Reactor) {
        let Some(client) = self.clients.get_mut(&request.conn) else { return };
        let head = match client.begun.replace(contents) {
            Some(_) => Vec::new(),
            None => head(request, contents),
        };
        self.send(request.conn, &[&head, part].concat(), reactor);
    }

    /// Ends a reply whose parts were sent. An error then disconnects the client.
    fn end_parts(
        &mut self,
        request: &Request,
        contents: Contents,
        end: Result<String, String>,
        reactor: &mut Reactor,
    ) {
        match end {
            Ok(_) if contents == Contents::Json => self.send(request.conn, b"}", reactor),
            Ok(text) => {
                let quoted = Value::from(text).to_string().into_bytes();
                // The rest follows the opening quotation mark.
                let rest = quoted.get(1..).unwrap_or_default();
                let tail: &[u8] = match request.format {
                    Format::Text => b"}",
                    Format::Json => b"}}",
                };
                self.send(request.conn, &[rest, tail].concat(), reactor);
            }
            Err(why) => {
                let why = sys::os_text(&why);
                log::warn!(target: "unixctl", "{}: client cut off within its answer: {why}", request.command);
                self.counts.cut_off += 1;
                self.close(request.conn, reactor.registry());
            }
        }
    }

    /// Replies to a request: `Ok` text for the terminal, or an error. Text is wrapped for clients that want JSON.
    pub fn reply(&mut self, request: &Request, answer: Result<String, String>, reactor: &mut Reactor) {
        if let Some(client) = self.clients.get_mut(&request.conn)
            && let Some(contents) = client.begun.take()
        {
            client.unanswered = false;
            self.counts.replied += 1;
            reactor.serve_again(request.conn);
            self.end_parts(request, contents, answer, reactor);
            return self.count_unheard(request.conn, reactor.registry());
        }
        let answer = answer.map(line).map(|text| match request.format {
            Format::Text => text,
            Format::Json => json!({ "reply-format": "plain", "reply": text }),
        });
        self.reply_value(request, answer.map_err(line), reactor);
    }

    /// Replies with a value, or an error.
    pub fn reply_value(&mut self, request: &Request, answer: Result<Value, Value>, reactor: &mut Reactor) {
        let Some(client) = self.clients.get_mut(&request.conn) else { return };
        client.unanswered = false;
        self.counts.replied += 1;
        reactor.serve_again(request.conn);
        if client.deaf {
            return self.count_unheard(request.conn, reactor.registry());
        }
        log_answer(request, &answer);
        let id = request.id.clone();
        let message = match answer {
            Ok(result) => RpcMessage::Reply { id, result },
            Err(Value::String(text)) => RpcMessage::Error { id, error: Value::from(sys::os_text(&text)) },
            Err(error) => RpcMessage::Error { id, error },
        };
        self.send(request.conn, &message.encode(), reactor);
        self.count_unheard(request.conn, reactor.registry());
    }

    /// Counts a command of a client that has stopped reading, and closes it after the last permitted one.
    fn count_unheard(&mut self, token: Token, registry: &Registry) {
        let Some(client) = self.clients.get_mut(&token).filter(|client| client.deaf) else { return };
        client.unheard += 1;
        if client.unheard >= UNHEARD_MAX {
            self.close(token, registry);
        }
    }

    /// Sends bytes to a client, if all clients together leave room.
    fn send(&mut self, token: Token, bytes: &[u8], reactor: &mut Reactor) {
        let unread: usize = self.clients.values().map(Client::unread_bytes).sum();
        let held = unread + bytes.len();
        self.shed(held, self.limits.unread_bytes, reactor.registry(), |_, c| c.unread_bytes());
        if let Some(client) = self.clients.get_mut(&token) {
            log_sent(|| client.conn.label(), bytes);
            client.deaf |= client.conn.send(bytes, reactor.registry()).is_err();
        }
    }

    fn close(&mut self, token: Token, registry: &Registry) {
        if let Some(mut client) = self.clients.remove(&token) {
            client.conn.close(registry);
        }
    }
}

/// A successful reply up to its contents.
fn head(request: &Request, contents: Contents) -> Vec<u8> {
    let result = match (contents, request.format) {
        (Contents::Json, _) => "",
        (Contents::Text, Format::Text) => "\"",
        (Contents::Text, Format::Json) => r#"{"reply-format":"plain","reply":""#,
    };
    format!(r#"{{"id":{},"error":null,"result":{result}"#, request.id).into_bytes()
}

/// Text that ends with a newline, or is empty.
fn line(mut text: String) -> Value {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    Value::from(text)
}

impl Client {
    /// Its unread bytes; nothing is kept for one that has stopped reading.
    fn unread_bytes(&self) -> usize {
        if self.deaf { 0 } else { self.conn.backlog_bytes() }
    }

    fn place(&self) -> ConnectionSlot {
        let standing = match self.unread_bytes() {
            1.. => Standing::Unread,
            0 if self.unanswered => Standing::Served,
            0 => Standing::Unused,
        };
        ConnectionSlot { token: self.conn.token(), standing, progress_ms: self.progress_ms }
    }

    /// Takes a complete request out of the input; an error for other data.
    fn request(&mut self, conn: Token) -> Result<Option<Request>, ()> {
        let message = match self.framer.next_text() {
            Ok(None) => return Ok(None),
            Ok(Some(json)) => RpcMessage::from_json(json),
            Err(_) => return Err(()),
        };
        let Ok(RpcMessage::Request { id, method, params }) = message else { return Err(()) };
        let args: Option<Vec<String>> = params.iter().map(|p| Some(p.as_str()?.to_string())).collect();
        let Some(args) = args else { return Err(()) };
        Ok(Some(Request { conn, id, command: method, args, format: self.format }))
    }
}
