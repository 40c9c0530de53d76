//! Connections of dummies (`options:stream`, `options:pstream`): frames in both directions, each preceded by its
//! length. They join dummies of several switches, or a test to one.
//!
//! A connection that does not accept its frames is closed: nothing here waits.

use super::devices::{Body, Device};
use super::reactor::Reactor;
use super::stream::{Conn, Endpoint, Listener, NO_DSCP};
use super::turn::Turn;
use dpif::DummyStream;
use mio::Token;
use netdev::dummy::stream::{Framer, frame};
use netdev::dummy::{Dummy, DummyError};
use openflow::reconnect::{Action, Reconnect};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use sync::{Mutex, lock};

/// Maximum frames of a dummy waiting to be sent.
const SENT_MAX: usize = 100;
/// Unsent bytes at which a connection is closed.
const BACKLOG_MAX_BYTES: usize = 1 << 20;
/// Maximum connections of one dummy.
const CONNECTIONS_MAX: usize = 16;

enum Role {
    Active { endpoint: Endpoint, reconnect: Reconnect, token: Option<Token> },
    Passive(Listener),
}

struct Link {
    conn: Conn,
    framer: Framer,
    up: bool,
}

struct Stream {
    dummy: Dummy,
    role: Role,
    links: BTreeMap<Token, Link>,
    sent: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

/// All connections.
#[derive(Default)]
pub(crate) struct Streams(BTreeMap<String, Stream>);

impl Streams {
    /// Opens a dummy's connections, if its options request some.
    ///
    /// # Errors
    /// The target is invalid, or cannot be listened at.
    pub(crate) fn add(
        &mut self,
        device: &Device,
        stream: Option<&DummyStream>,
        reactor: &mut Reactor,
    ) -> Result<(), String> {
        let Body::Dummy(dummy) = &device.body else { return Ok(()) };
        let (option, target) = match stream {
            Some(DummyStream::Active(target)) => ("stream", target),
            Some(DummyStream::Passive(target)) => ("pstream", target),
            None => return Ok(()),
        };
        let bad = |why: &dyn std::fmt::Display| format!("option {option}: {target}: {why}");
        let endpoint = Endpoint::parse(target, 0).map_err(|e| bad(&e))?;
        if endpoint.is_passive() != (option == "pstream") {
            return Err(bad(&"pstream listens (ptcp:, pssl:, punix:), stream connects (tcp:, ssl:, unix:)"));
        }
        let role = if endpoint.is_passive() {
            let token = reactor.token();
            Role::Passive(Listener::open(&endpoint, NO_DSCP, reactor.registry(), token).map_err(|e| bad(&e))?)
        } else {
            let now_ms = sys::clock::monotonic_ms();
            let mut reconnect = Reconnect::new(now_ms);
            reconnect.set_probe_interval_ms(0);
            reconnect.enable(now_ms);
            Role::Active { endpoint, reconnect, token: None }
        };
        let sent: Arc<Mutex<VecDeque<Vec<u8>>>> = Arc::default();
        let waiting = sent.clone();
        dummy.set_tap(Some(Box::new(move |bytes| {
            let mut waiting = lock(&waiting);
            // As with a full transmit queue: drop the newest.
            if waiting.len() < SENT_MAX {
                waiting.push_back(bytes.to_vec());
            }
        })));
        let stream = Stream { dummy: dummy.clone(), role, links: BTreeMap::new(), sent };
        self.0.insert(device.name.clone(), stream);
        Ok(())
    }

    /// Closes a dummy's connections.
    pub(crate) fn remove(&mut self, name: &str, reactor: &Reactor) {
        if let Some(mut stream) = self.0.remove(name) {
            stream.dummy.set_tap(None);
            stream.links.values_mut().for_each(|l| l.conn.close(reactor.registry()));
        }
    }

    /// Handles a socket event; `false` for a token of others.
    pub(crate) fn event(&mut self, token: Token, reactor: &mut Reactor) -> bool {
        self.0.values_mut().any(|s| s.event(token, reactor))
    }

    /// Makes due connections, and sends the dummies' frames.
    pub(crate) fn run(&mut self, reactor: &mut Reactor, now_ms: u64) -> Turn {
        for stream in self.0.values_mut() {
            stream.reconnect(reactor, now_ms);
            stream.send_on(reactor);
        }
        let wakeup = |s: &Stream| match &s.role {
            Role::Active { reconnect, .. } => Turn::from(reconnect.next_wakeup_ms()),
            Role::Passive(_) => Turn::DONE,
        };
        self.0.values().map(wakeup).collect()
    }

    /// Whether the dummies that connect are connected, by their names.
    pub(crate) fn states(&self) -> Vec<(&str, bool)> {
        self.0
            .iter()
            .filter(|(_, s)| matches!(s.role, Role::Active { .. }))
            .map(|(name, s)| (name.as_str(), s.links.values().any(|l| l.up)))
            .collect()
    }
}

impl Stream {
    fn event(&mut self, token: Token, reactor: &mut Reactor) -> bool {
        if let Role::Passive(listener) = &self.role
            && listener.owns(token)
        {
            self.accept(token, reactor);
            return true;
        }
        let Some(link) = self.links.get_mut(&token) else { return false };
        let alive = link.serve(&self.dummy, reactor);
        if alive
            && link.up
            && let Role::Active { reconnect, .. } = &mut self.role
        {
            reconnect.connected(sys::clock::monotonic_ms());
        }
        if !alive {
            self.lost(token, reactor);
        }
        true
    }

    fn accept(&mut self, token: Token, reactor: &mut Reactor) {
        let Role::Passive(listener) = &mut self.role else { return };
        for mut conn in listener.serve(token, reactor) {
            if self.links.len() >= CONNECTIONS_MAX {
                reactor.counts.refused += 1;
                conn.close(reactor.registry());
                continue;
            }
            let token = conn.token();
            self.links.insert(token, Link { conn, framer: Framer::new(), up: true });
            reactor.serve_again(token);
        }
    }

    fn lost(&mut self, token: Token, reactor: &Reactor) {
        if let Some(mut link) = self.links.remove(&token) {
            link.conn.close(reactor.registry());
        }
        if let Role::Active { reconnect, token: at, .. } = &mut self.role {
            *at = None;
            reconnect.disconnected(sys::clock::monotonic_ms());
        }
    }

    fn reconnect(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let Role::Active { endpoint, reconnect, token } = &mut self.role else { return };
        match reconnect.run(now_ms) {
            Some(Action::Connect) => {
                let new = reactor.token();
                reconnect.connecting(now_ms);
                match Conn::connect(endpoint, NO_DSCP, reactor, new) {
                    Ok(conn) => {
                        *token = Some(new);
                        self.links.insert(new, Link { conn, framer: Framer::new(), up: false });
                        reactor.serve_again(new);
                    }
                    Err(_) => reconnect.disconnected(now_ms),
                }
            }
            Some(Action::Disconnect) => {
                if let Some(at) = *token {
                    self.lost(at, reactor);
                }
            }
            Some(Action::Probe) | None => {}
        }
    }

    fn send_on(&mut self, reactor: &Reactor) {
        let waiting = std::mem::take(&mut *lock(&self.sent));
        if waiting.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        for sent in &waiting {
            // The dummy already rejected frames too long for the length field.
            let _ = frame(sent, &mut bytes);
        }
        let mut broken = Vec::new();
        for (token, link) in self.links.iter_mut().filter(|(_, l)| l.up) {
            let sent = link.conn.send(&bytes, reactor.registry());
            if sent.is_err() || link.conn.backlog_bytes() > BACKLOG_MAX_BYTES {
                broken.push(*token);
            }
        }
        broken.into_iter().for_each(|token| self.lost(token, reactor));
    }
}

impl Link {
    /// Receives frames; `false` at the end of the connection.
    fn serve(&mut self, dummy: &Dummy, reactor: &mut Reactor) -> bool {
        if !self.up {
            match self.conn.connected(reactor) {
                Ok(up) => self.up = up,
                Err(_) => return false,
            }
            if !self.up {
                return true;
            }
        }
        if self.conn.flush(reactor.registry()).is_err() {
            return false;
        }
        match self.conn.read(reactor) {
            Ok(Some((bytes, more))) => {
                let stays = self.receive(bytes, dummy);
                if more {
                    reactor.serve_again(self.conn.token());
                }
                stays
            }
            Ok(None) | Err(_) => false,
        }
    }

    fn receive(&mut self, mut bytes: &[u8], dummy: &Dummy) -> bool {
        loop {
            let taken = self.framer.push(bytes);
            bytes = &bytes[taken..];
            loop {
                match self.framer.next_frame() {
                    // Frames that are too short, or find the queue full, are lost, as on a wire.
                    Ok(Some(frame)) => match dummy.receive(0, frame) {
                        Ok(()) | Err(DummyError::Full { .. } | DummyError::TooShort { .. }) => {}
                        Err(_) => return false,
                    },
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
            if bytes.is_empty() {
                return true;
            }
        }
    }
}
