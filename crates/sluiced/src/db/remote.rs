//! [`Remote`]: a database server that is followed: connects, probes, and reconnects with a back-off.

use super::message_log::{MessageLog, log_sent};
use super::{BACKOFF_MAX_MS, BACKOFF_MIN_MS, PROBE_MS, session_log};
use crate::reactor::Reactor;
use crate::stream::{Conn, Endpoint, NO_DSCP};
use crate::turn::Turn;
use mio::Token;
use ovsdb::client::{Client, ClientState};

/// The connection to the server.
pub(super) struct Remote {
    pub(super) target: String,
    pub(super) endpoint: Endpoint,
    pub(super) conn: Option<Conn>,
    pub(super) connecting: bool,
    /// The next back-off.
    pub(super) backoff_ms: u64,
    /// The back-off before the latest attempt; 0 for the first one after a connection.
    pub(super) waited_ms: u64,
    pub(super) retry_ms: u64,
    pub(super) heard_ms: u64,
    /// Time of the first failure since it was last connected.
    pub(super) lost_ms: Option<u64>,
    /// An attempt failed, or the connection ended.
    pub(super) failed: bool,
    pub(super) messages: MessageLog,
}

impl Remote {
    pub(super) fn event(&mut self, token: Token, reactor: &mut Reactor, client: &mut Client) -> bool {
        let Some(conn) = self.conn.as_mut().filter(|c| c.token() == token) else { return false };
        if self.connecting {
            match conn.connected(reactor) {
                Ok(true) => {
                    self.connecting = false;
                    (self.backoff_ms, self.waited_ms) = (BACKOFF_MIN_MS, 0);
                    self.heard_ms = sys::clock::monotonic_ms();
                    (self.lost_ms, self.failed) = (None, false);
                    session_log::connected(&self.target);
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
            match conn.read(reactor) {
                Ok(Some((bytes, more))) => {
                    self.heard_ms = sys::clock::monotonic_ms();
                    self.messages.received(|| self.target.clone(), bytes);
                    let before = client.state_name();
                    let fault = client.input(bytes).err();
                    session_log::replica(&self.target, before, client.state_name());
                    if let Some(e) = fault {
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
        let was_up = self.conn.is_some() && !self.connecting;
        if let Some(mut conn) = self.conn.take() {
            conn.close(reactor.registry());
        }
        session_log::server_lost(&self.target, was_up, why, self.waited_ms, self.backoff_ms);
        self.waited_ms = self.backoff_ms;
        let now_ms = sys::clock::monotonic_ms();
        self.lost_ms.get_or_insert(now_ms);
        self.failed = true;
        self.retry_ms = now_ms + self.backoff_ms;
        self.backoff_ms = (self.backoff_ms * 2).min(BACKOFF_MAX_MS);
        client.reset();
    }

    /// Whether silence ends it: the kernel tells the end of a local peer, which is not probed.
    fn is_timed(&self) -> bool {
        self.connecting || !matches!(self.endpoint, Endpoint::Unix(_))
    }

    /// The time of the next attempt, probe or end.
    pub(super) fn next(&self, client: &Client) -> Turn {
        if self.conn.is_none() {
            return Turn::at(self.retry_ms);
        }
        if !self.is_timed() {
            return Turn::DONE;
        }
        // The time of a probe, unless one is pending or cannot be sent yet: then the time of disconnection.
        let waits = self.connecting || client.state() != ClientState::Ready || client.echo_pending();
        Turn::at(self.heard_ms + if waits { 2 * PROBE_MS } else { PROBE_MS })
    }

    pub(super) fn run(&mut self, client: &mut Client, reactor: &mut Reactor) {
        let now_ms = sys::clock::monotonic_ms();
        if self.conn.is_none() && now_ms >= self.retry_ms {
            session_log::connecting(&self.target, self.waited_ms, BACKOFF_MAX_MS);
            let token = reactor.token();
            match Conn::connect(&self.endpoint, NO_DSCP, reactor, token) {
                Ok(conn) => {
                    self.conn = Some(conn);
                    self.connecting = true;
                    self.heard_ms = now_ms;
                }
                Err(e) => self.lost(&e.to_string(), reactor, client),
            }
        }
        if self.conn.is_some() && self.is_timed() && now_ms >= self.heard_ms + 2 * PROBE_MS {
            return self.lost("no response to inactivity probe", reactor, client);
        }
        if self.connecting {
            return;
        }
        if self.conn.is_some()
            && self.is_timed()
            && now_ms >= self.heard_ms + PROBE_MS
            && client.state() == ClientState::Ready
            && !client.echo_pending()
        {
            client.send_echo();
        }
        let Some(conn) = &mut self.conn else { return };
        let output = client.take_output();
        log_sent(|| self.target.clone(), &output);
        if !output.is_empty()
            && let Err(e) = conn.send(&output, reactor.registry())
        {
            self.lost(&e.to_string(), reactor, client);
        }
    }
}
