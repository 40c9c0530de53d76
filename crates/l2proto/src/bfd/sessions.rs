//! All sessions of a switch, by interface, with their timers.
//!
//! Each session stands once in an ordered set of wakeups, so the next one, and a change of one, cost O(log n).
//! [`Sessions::tick`] serves a bounded number of due sessions; all others cost nothing. The owner bounds the number of
//! sessions: one for each interface.

use super::config::Config;
use super::frame::UDP_SOURCE_PORTS;
use super::message::Refusal;
use super::notice::Notice;
use super::session::{Forwarding, Identity, Session, Transmission};
use crate::protocol::{Environment, Received, SessionId};
use flow::MacAddr;
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// No session has this number or name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("no such bfd object")]
pub struct UnknownSession;

/// A session and its place in the set of wakeups.
#[derive(Debug)]
struct Slot {
    session: Session,
    wakeup_ms: u64,
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
    slots: BTreeMap<SessionId, Slot>,
    names: BTreeMap<String, SessionId>,
    discriminators: BTreeSet<u32>,
    wakeups: BTreeSet<(u64, SessionId)>,
    changed: BTreeSet<SessionId>,
    next_id: u32,
    next_port: u16,
}

impl Sessions {
    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The session of an interface.
    pub fn find(&self, name: &str) -> Option<SessionId> {
        self.names.get(name).copied()
    }

    /// A session.
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.slots.get(&id).map(|slot| &slot.session)
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
        self.with(id, |session| {
            session.set_port_mac(port_mac);
            if session.config() != config {
                session.configure(config.clone(), now_ms, env);
            }
        });
        id
    }

    /// Removes a session.
    pub fn remove(&mut self, id: SessionId) {
        let Some(slot) = self.slots.remove(&id) else { return };
        let identity = slot.session.identity();
        self.names.remove(&identity.name);
        self.discriminators.remove(&identity.discriminator);
        self.wakeups.remove(&(slot.wakeup_ms, id));
        self.changed.remove(&id);
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
        self.with(id, |session| session.input(received, now_ms, env)).ok_or(UnknownSession)
    }

    /// Counts packets received by the port of a session ([`Session::account_rx`]).
    pub fn account_rx(&mut self, id: SessionId, packets: u64, now_ms: u64) {
        self.with(id, |session| session.account_rx(packets, now_ms));
    }

    /// The session has another device ([`Session::device_changed`]).
    pub fn device_changed(&mut self, id: SessionId, now_ms: u64, env: &mut dyn Environment) {
        self.with(id, |session| session.device_changed(now_ms, env));
    }

    /// Time of the earliest work: 0 is at once, `None` never.
    pub fn next_wakeup(&self) -> Option<u64> {
        self.wakeups.first().map(|(wakeup_ms, _)| *wakeup_ms)
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
            let Some(id) = self.due(now_ms) else { return false };
            let transmission = self.with(id, |session| {
                let transmission = session.poll_transmit(now_ms, env);
                session.tick(now_ms, env);
                transmission
            });
            out.extend(transmission.flatten().map(|transmission| (id, transmission)));
        }
        self.due(now_ms).is_some()
    }

    /// Takes the report of a session of which something changed.
    pub fn take_changed(&mut self) -> Option<Changed> {
        let id = self.changed.pop_first()?;
        let session = &mut self.slots.get_mut(&id)?.session;
        let (notices, notices_lost) = session.take_notices();
        Some(Changed { id, status: session.take_status_changed(), notices, notices_lost })
    }

    /// The pairs of `bfd_status`; none without the session.
    pub fn status(&mut self, id: SessionId, now_ms: u64) -> BTreeMap<String, String> {
        self.with(id, |session| session.status(now_ms)).unwrap_or_default()
    }

    /// Whether a session lets its interface forward; `None` without the session.
    pub fn forwarding(&mut self, id: SessionId, now_ms: u64) -> Option<bool> {
        self.with(id, |session| session.forwarding(now_ms))
    }

    /// The reply to `bfd/show`: one session, or all in the order of their names.
    ///
    /// # Errors
    /// No such session.
    pub fn show(&mut self, name: Option<&str>, now_ms: u64) -> Result<String, UnknownSession> {
        if let Some(name) = name {
            let id = self.find(name).ok_or(UnknownSession)?;
            return self.with(id, |session| session.show(now_ms)).ok_or(UnknownSession);
        }
        let named: Vec<(String, SessionId)> =
            self.names.iter().map(|(name, id)| (name.clone(), *id)).collect();
        let mut text = String::new();
        for (name, id) in named {
            text += &format!("---- {name} ----\n");
            text += &self.with(id, |session| session.show(now_ms)).unwrap_or_default();
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
            None => self.names.values().copied().collect(),
        };
        for id in ids {
            self.with(id, |session| session.set_forwarding(forced));
        }
        Ok("OK")
    }

    /// Changes a session and moves its timer.
    fn with<T>(&mut self, id: SessionId, change: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let slot = self.slots.get_mut(&id)?;
        let result = change(&mut slot.session);
        let wakeup_ms = slot.session.next_wakeup();
        if wakeup_ms != slot.wakeup_ms {
            self.wakeups.remove(&(slot.wakeup_ms, id));
            self.wakeups.insert((wakeup_ms, id));
            slot.wakeup_ms = wakeup_ms;
        }
        if slot.session.has_changed() {
            self.changed.insert(id);
        }
        Some(result)
    }

    fn due(&self, now_ms: u64) -> Option<SessionId> {
        self.wakeups.first().filter(|(wakeup_ms, _)| *wakeup_ms <= now_ms).map(|(_, id)| *id)
    }

    fn add(
        &mut self,
        name: &str,
        port_mac: MacAddr,
        config: &Config,
        now_ms: u64,
        env: &mut dyn Environment,
    ) -> SessionId {
        while self.slots.contains_key(&SessionId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = SessionId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let ports = UDP_SOURCE_PORTS;
        let src_port = ports.start() + self.next_port;
        self.next_port = (self.next_port + 1) % (ports.end() - ports.start() + 1);
        let discriminator = self.new_discriminator(env);
        let identity = Identity { id, name: name.to_owned(), discriminator, src_port, port_mac };
        let session = Session::new(identity, config.clone(), now_ms, env);
        let wakeup_ms = session.next_wakeup();
        self.wakeups.insert((wakeup_ms, id));
        self.changed.insert(id);
        self.names.insert(name.to_owned(), id);
        self.discriminators.insert(discriminator);
        self.slots.insert(id, Slot { session, wakeup_ms });
        id
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
