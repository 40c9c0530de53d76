//! [`Outgoing`]: a manager that the embedded server connects to, again and again.

use super::session_log;
use crate::reactor::Reactor;
use crate::stream::{Conn, Endpoint};
use crate::turn::Turn;
use mio::Token;
use openflow::reconnect::{Action, Reconnect};
use vswitch::status::ManagerFacts;

/// A manager to connect to, by `tcp:`, `ssl:` or `unix:`.
pub(super) struct Outgoing {
    endpoint: Endpoint,
    dscp: u8,
    reconnect: Reconnect,
    /// The attempt under way.
    attempt: Option<Conn>,
    /// The established connection, one of the server's.
    token: Option<Token>,
    last_error: Option<String>,
}

impl Outgoing {
    pub(super) fn new(endpoint: Endpoint, dscp: u8) -> Outgoing {
        let now_ms = sys::clock::monotonic_ms();
        let mut reconnect = Reconnect::new(now_ms);
        // The server sends its own probes.
        reconnect.set_probe_interval_ms(0);
        reconnect.enable(now_ms);
        Outgoing { endpoint, dscp, reconnect, attempt: None, token: None, last_error: None }
    }

    pub(super) fn set_max_backoff_ms(&mut self, ms: Option<u64>) {
        self.reconnect.set_max_backoff_ms(ms.unwrap_or(openflow::reconnect::DEFAULT_MAX_BACKOFF_MS));
    }

    /// The established connection.
    pub(super) fn token(&self) -> Option<Token> {
        self.token
    }

    /// Whether the token is that of the attempt under way.
    pub(super) fn is_attempt(&self, token: Token) -> bool {
        self.attempt.as_ref().is_some_and(|conn| conn.token() == token)
    }

    /// Starts an attempt that is due, and ends one that takes too long.
    pub(super) fn run(&mut self, reactor: &mut Reactor) {
        let now_ms = sys::clock::monotonic_ms();
        match self.reconnect.run(now_ms) {
            Some(Action::Connect) => {
                let token = reactor.token();
                let (target, reconnect) = (self.endpoint.to_string(), &self.reconnect);
                session_log::connecting(&target, reconnect.backoff_ms(), reconnect.max_backoff_ms());
                self.reconnect.connecting(now_ms);
                match Conn::connect(&self.endpoint, self.dscp, reactor, token) {
                    Ok(conn) => {
                        self.attempt = Some(conn);
                        // A local connection is established at once.
                        reactor.serve_again(token);
                    }
                    Err(e) => self.lost(&e.to_string(), reactor),
                }
            }
            Some(Action::Disconnect) => self.lost("connection attempt timed out", reactor),
            Some(Action::Probe) | None => {}
        }
    }

    /// Continues the attempt; returns the connection once it is established.
    pub(super) fn advance(&mut self, reactor: &mut Reactor) -> Option<Conn> {
        match self.attempt.as_mut()?.connected(reactor) {
            Ok(true) => {
                let conn = self.attempt.take()?;
                self.token = Some(conn.token());
                self.reconnect.connected(sys::clock::monotonic_ms());
                session_log::connected(&self.endpoint.to_string());
                Some(conn)
            }
            Ok(false) => None,
            Err(e) => {
                self.lost(&e.to_string(), reactor);
                None
            }
        }
    }

    /// The attempt failed, or the connection ended: the next one follows after a back-off.
    pub(super) fn lost(&mut self, why: &str, reactor: &Reactor) {
        if let Some(mut conn) = self.attempt.take() {
            conn.close(reactor.registry());
        }
        let was_up = self.token.take().is_some();
        let before_ms = self.reconnect.backoff_ms();
        self.reconnect.disconnected(sys::clock::monotonic_ms());
        let times_ms = [before_ms, self.reconnect.backoff_ms(), self.reconnect.max_backoff_ms()];
        session_log::over(&self.endpoint.to_string(), was_up, why, times_ms);
        self.last_error = Some(sys::os_text(why));
    }

    /// Time of the next call of [`Outgoing::run`].
    pub(super) fn next(&self) -> Turn {
        Turn::from(self.reconnect.next_wakeup_ms())
    }

    /// Status for its row.
    pub(super) fn facts(&self) -> ManagerFacts {
        let now_ms = sys::clock::monotonic_ms();
        let is_connected = self.reconnect.is_connected();
        let mut facts = ManagerFacts { is_connected, ..ManagerFacts::default() };
        let mut say = |key: &str, value: String| facts.status.insert(key.to_string(), value);
        say("state", self.reconnect.state().name().to_string());
        let since = |at_ms: u64| (now_ms.saturating_sub(at_ms) / 1000).to_string();
        if let Some(at_ms) = self.reconnect.last_connected_ms() {
            say("sec_since_connect", since(at_ms));
        }
        if let Some(at_ms) = self.reconnect.last_disconnected_ms() {
            say("sec_since_disconnect", since(at_ms));
        }
        if let Some(why) = self.last_error.as_ref().filter(|_| !is_connected) {
            say("last_error", why.clone());
        }
        facts
    }
}
