//! All sessions of a switch, by interface, with their timers.
//!
//! [`Sessions::tick`] serves a bounded number of due sessions; all others cost nothing. The owner bounds the number of
//! sessions: one for each interface.

use super::config::Config;
use super::frame::UDP_SOURCE_PORTS;
use super::message::Refusal;
use super::notice::Notice;
use super::session::{Forwarding, Identity, Session, Transmission, identity_of};
use crate::protocol::{Environment, Received, SessionId};
use crate::saved::{Former, Formers, Nothing};
use crate::slots::{Slots, Timed};
use flow::MacAddr;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// No session has this number or name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no such bfd object")]
pub struct UnknownSession;

impl Timed for Session {
    fn next_wakeup(&self) -> u64 {
        Session::next_wakeup(self)
    }

    fn has_changed(&self) -> bool {
        Session::has_changed(self)
    }
}

/// Changes of a session since the last report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    /// The session.
    pub id: SessionId,
    /// Whether its status may have changed.
    pub status: bool,
    /// Its events for the log.
    pub notices: Vec<Notice>,
    /// Events that were lost.
    pub notices_lost: u64,
}

/// Sessions by number and by interface.
#[derive(Debug, Default)]
pub struct Sessions {
    slots: Slots<Session>,
    discriminators: BTreeSet<u32>,
    next_port: u16,
    formers: Formers,
}

impl Sessions {
    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    /// The session of an interface.
    pub fn find(&self, name: &str) -> Option<SessionId> {
        self.slots.find(name)
    }

    /// A session.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.slots.get(id)
    }

    /// Creates, changes or, without `enable`, removes the session of an interface. Returns its number, if there is one now.
    pub fn configure(
        &mut self,
        name: &str,
        port_mac: MacAddr,
        config: &Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Option<SessionId> {
        if !config.enable {
            if let Some(id) = self.find(name) {
                self.remove(id);
            }
            return None;
        }
        Some(self.put(name, port_mac, config, now_ms, env))
    }

    /// Creates or changes the session of an interface, whether or not `enable` is set.
    pub(super) fn put(
        &mut self,
        name: &str,
        port_mac: MacAddr,
        config: &Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> SessionId {
        let Some(id) = self.find(name) else { return self.add(name, port_mac, config, now_ms, env) };
        self.slots.with(id, |session| {
            session.set_port_mac(port_mac);
            if session.config() != config {
                session.configure(config.clone(), now_ms, env);
            }
        });
        id
    }

    /// Removes a session.
    pub fn remove(&mut self, id: SessionId) {
        if let Some(session) = self.slots.remove(id) {
            self.discriminators.remove(&session.identity().discriminator);
        }
    }

    /// A session takes a packet that its claim selects. The answer to a poll is then due at once.
    ///
    /// # Errors
    /// The packet is ignored for the inner reason; or the session is gone.
    pub fn input(
        &mut self,
        id: SessionId,
        received: Received<'_>,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Result<Result<(), Refusal>, UnknownSession> {
        self.slots.with(id, |session| session.input(received, now_ms, env)).ok_or(UnknownSession)
    }

    /// Counts packets received by the port of a session ([`Session::account_rx`]).
    pub fn account_rx(&mut self, id: SessionId, packets: u64, now_ms: u64) {
        self.slots.with(id, |session| session.account_rx(packets, now_ms));
    }

    /// The session has another device ([`Session::device_changed`]).
    pub fn device_changed(&mut self, id: SessionId, now_ms: u64, env: &mut dyn Environment) {
        self.slots.with(id, |session| session.device_changed(now_ms, env));
    }

    /// Time of the earliest work: 0 is at once, `None` never.
    pub fn next_wakeup(&self) -> Option<u64> {
        self.slots.next_wakeup()
    }

    /// Serves at most `limit` due sessions, the longest due first, and appends the frames to send to `out`. Returns
    /// whether more are due.
    pub fn tick(
        &mut self,
        now_ms: u64,
        limit: usize,
        env: &mut dyn Environment,
        out: &mut Vec<(SessionId, Transmission)>,
    ) -> bool {
        for _ in 0..limit {
            let Some(id) = self.slots.due(now_ms) else { return false };
            let transmission = self.slots.with(id, |session| {
                let transmission = session.poll_transmit(now_ms, env);
                session.tick(now_ms, env);
                transmission
            });
            out.extend(transmission.flatten().map(|transmission| (id, transmission)));
        }
        self.slots.due(now_ms).is_some()
    }

    /// Takes the report of a session of which something changed.
    pub fn take_changed(&mut self) -> Option<Changed> {
        let id = self.slots.pop_changed()?;
        self.slots.with(id, |session| {
            let (notices, notices_lost) = session.take_notices();
            Changed { id, status: session.take_status_changed(), notices, notices_lost }
        })
    }

    /// The pairs of `bfd_status`; none without the session.
    pub fn status(&mut self, id: SessionId, now_ms: u64) -> BTreeMap<String, String> {
        self.slots.with(id, |session| session.status(now_ms)).unwrap_or_default()
    }

    /// Whether a session lets its interface forward; `None` without the session.
    pub fn forwarding(&mut self, id: SessionId, now_ms: u64) -> Option<bool> {
        self.slots.with(id, |session| session.forwarding(now_ms))
    }

    /// The reply to `bfd/show`: one session, or all in the order of their names.
    ///
    /// # Errors
    /// No such session.
    pub fn show(&mut self, name: Option<&str>, now_ms: u64) -> Result<String, UnknownSession> {
        if let Some(name) = name {
            let id = self.find(name).ok_or(UnknownSession)?;
            return self.slots.with(id, |session| session.show(now_ms)).ok_or(UnknownSession);
        }
        let named: Vec<(String, SessionId)> =
            self.slots.named().map(|(name, id)| (name.to_string(), id)).collect();
        let mut text = String::new();
        for (name, id) in named {
            text += &format!("---- {name} ----\n");
            text += &self.slots.with(id, |session| session.show(now_ms)).unwrap_or_default();
        }
        Ok(text)
    }

    /// The command `bfd/set-forwarding [INTERFACE] normal|false|true`: the text of its reply.
    ///
    /// # Errors
    /// The text of its error.
    pub fn set_forwarding(&mut self, name: Option<&str>, choice: &str) -> Result<&'static str, &'static str> {
        let forced = Forwarding::parse(choice).ok_or("unknown fault string")?;
        let ids = match name {
            Some(name) => vec![self.find(name).ok_or("no such BFD object")?],
            None => self.slots.ids(),
        };
        for id in ids {
            self.slots.with(id, |session| session.set_forwarding(forced));
        }
        Ok("OK")
    }

    fn add(
        &mut self,
        name: &str,
        port_mac: MacAddr,
        config: &Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> SessionId {
        let id = self.slots.next_id();
        if let Some(former) = self.formers.take(name)
            && let Some(session) = self.continued(&former, (id, name), port_mac, config, now_ms, env)
        {
            self.discriminators.insert(session.identity().discriminator);
            return self.slots.add(name, session);
        }
        let ports = UDP_SOURCE_PORTS;
        let src_port = ports.start() + self.next_port;
        self.next_port = (self.next_port + 1) % (ports.end() - ports.start() + 1);
        let discriminator = self.new_discriminator(env);
        let identity = Identity { id, name: name.to_owned(), discriminator, src_port, port_mac };
        let session = Session::new(identity, config.clone(), now_ms, env);
        self.discriminators.insert(discriminator);
        self.slots.add(name, session)
    }

    /// A session that goes on from a former one, unless another session has its discriminator.
    fn continued(
        &self,
        former: &Former,
        (id, name): (SessionId, &str),
        port_mac: MacAddr,
        config: &Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> Option<Session> {
        let (discriminator, src_port) = identity_of(former).ok()?;
        if discriminator == 0 || src_port == 0 || self.discriminators.contains(&discriminator) {
            return None;
        }
        let identity = Identity { id, name: name.to_owned(), discriminator, src_port, port_mac };
        Session::continued(identity, config.clone(), former, now_ms, env).ok()
    }

    /// The state of a session for another process.
    pub(super) fn saved(&self, id: SessionId, now_ms: u64) -> Option<String> {
        self.get(id).map(|session| session.saved(now_ms))
    }

    /// Keeps the state of a former session.
    pub(super) fn restore(&mut self, name: &str, text: &str, then_ms: u64) -> Result<(), String> {
        let former = Former::parse(text, then_ms)?;
        let (discriminator, src_port) = identity_of(&former)?;
        let identity = Identity {
            id: SessionId(0),
            name: name.to_owned(),
            discriminator,
            src_port,
            port_mac: MacAddr::default(),
        };
        Session::continued(identity, Config::default(), &former, then_ms, &mut Nothing)?;
        self.formers.put(name, former)
    }

    pub(super) fn forget_restored(&mut self) -> Vec<String> {
        self.formers.drain()
    }

    /// A random one, or the next that is free.
    fn new_discriminator(&self, env: &mut dyn Environment) -> u32 {
        let mut discriminator = env.random(u32::MAX).saturating_add(1);
        while self.discriminators.contains(&discriminator) {
            discriminator = discriminator.checked_add(1).unwrap_or(1);
        }
        discriminator
    }
}
