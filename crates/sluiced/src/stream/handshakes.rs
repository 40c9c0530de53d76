//! [`Handshakes`]: connections to a TLS listener before their handshakes are complete.
//!
//! They have a limit and a time, apart from those of established connections: clients that connect and stay silent
//! neither hold places nor memory for long. At the limit the oldest one is ended, since an honest handshake takes a few
//! round trips. The signatures of a turn of the main loop are bounded by [`Reactor::handshake`].

use super::{Conn, Stream};
use crate::reactor::Reactor;
use mio::Token;
use std::collections::BTreeMap;
use tls::Handshake;

/// Maximum incomplete handshakes of a listener.
pub(super) const PENDING_MAX: usize = 128;
/// Time for a handshake.
const HANDSHAKE_MAX_MS: u64 = 10_000;

struct Pending {
    conn: Conn,
    since_ms: u64,
}

/// Incomplete handshakes of a listener, oldest first.
pub(super) struct Handshakes {
    /// The listener's.
    token: Token,
    pending: BTreeMap<Token, Pending>,
}

/// Time of the machine: a stopped clock of the switch stops no handshake.
fn now_ms() -> u64 {
    sys::clock::machine_us() / 1000
}

impl Handshakes {
    pub(super) fn new(token: Token) -> Handshakes {
        Handshakes { token, pending: BTreeMap::new() }
    }

    pub(super) fn has(&self, token: Token) -> bool {
        self.pending.contains_key(&token)
    }

    /// Starts the handshake of a connection; returns it if that is complete at once.
    pub(super) fn begin(&mut self, conn: Conn, reactor: &mut Reactor) -> Option<Conn> {
        let token = conn.token();
        if self.pending.len() >= PENDING_MAX
            && let Some((_, oldest)) = self.pending.pop_first()
        {
            end(oldest, &format!("{PENDING_MAX} others came after it"), reactor);
        }
        self.pending.insert(token, Pending { conn, since_ms: now_ms() });
        reactor.serve_in(self.token, HANDSHAKE_MAX_MS);
        self.advance(token, reactor)
    }

    /// Continues a handshake; returns the connection if that is complete.
    pub(super) fn advance(&mut self, token: Token, reactor: &mut Reactor) -> Option<Conn> {
        let pending = self.pending.get_mut(&token)?;
        let Stream::Tls(session) = &mut pending.conn.stream else { return None };
        match reactor.handshake(session, token) {
            Ok(Handshake::Done) => self.pending.remove(&token).map(|pending| pending.conn),
            Ok(Handshake::Wait) => None,
            // The log has the reason.
            Err(_) => {
                if let Some(mut pending) = self.pending.remove(&token) {
                    pending.conn.close(reactor.registry());
                }
                None
            }
        }
    }

    /// Ends handshakes that take too long.
    pub(super) fn expire(&mut self, reactor: &mut Reactor) {
        let now_ms = now_ms();
        while let Some(first) = self.pending.first_entry() {
            let due_ms = first.get().since_ms + HANDSHAKE_MAX_MS;
            if due_ms > now_ms {
                return reactor.serve_in(self.token, due_ms - now_ms);
            }
            end(first.remove(), &format!("it took {} seconds", HANDSHAKE_MAX_MS / 1000), reactor);
        }
    }
}

fn end(mut pending: Pending, why: &str, reactor: &mut Reactor) {
    reactor.counts.handshakes_cut_off += 1;
    log::warn!(target: "stream_ssl", "{}: incomplete handshake ended: {why}", pending.conn.peer());
    pending.conn.close(reactor.registry());
}
