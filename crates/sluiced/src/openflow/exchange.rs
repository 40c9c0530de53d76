//! Bytes of the connections: read when requests are wanted, sent as peers take them, and given up where all connections together
//! hold too much.
//!
//! Output stays with [`Connmgr`], where it is counted, until the socket takes it. Input is read only while there is memory for it.
//! Where either is short, the connection of all bridges that holds most is closed before the next turn, and the log says why.

use super::{CLOSED, Link, OfBridge, OpenFlow, Origin, RESET, Remote};
use crate::reactor::Reactor;
use crate::turn::Turn;
use mio::Token;
use ofproto::connmgr::{ConnKind, Held};
use openflow::budget::Budgets;
use openflow::session::CloseReason;

/// Bounds of what the connections of all bridges make the switch hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Came and is not carried out: half-sent messages, bundles.
    pub(super) input_bytes: usize,
    /// Made and not read.
    pub(super) output_bytes: usize,
}

pub(super) const LIMITS: Limits = Limits { input_bytes: 512 << 20, output_bytes: 256 << 20 };

impl Limits {
    pub(super) fn budgets(self) -> Budgets {
        Budgets::new(self.input_bytes, self.output_bytes)
    }
}

impl OpenFlow {
    /// Ends the connections that hold most while memory for all of them is short.
    pub(super) fn keep_bounds(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let budgets = self.budgets.clone();
        let input = |h: Held| h.input_bytes;
        let output = |h: Held| h.output_bytes;
        type Of = fn(Held) -> usize;
        let kinds: [(_, Of, _); 2] = [
            (budgets.input, input, "input that is not carried out"),
            (budgets.output, output, "unread output"),
        ];
        for (budget, of, what) in kinds {
            while budget.is_short()
                && let Some((bytes, bridge, token)) = self.greatest(of).filter(|(bytes, ..)| *bytes > 0)
                && let Some(b) = self.bridges.get_mut(&bridge)
            {
                let peer = b.links.get(&token).map(|l| l.conn.peer()).unwrap_or_default();
                let (used, limit) = (budget.used_bytes(), budget.limit_bytes());
                log::warn!(target: "connmgr", "{}<->{peer}: connection ended: all OpenFlow connections hold {used} bytes of {what}, of {limit} that they may, and this one most, {bytes}", b.name);
                reactor.counts.cut_off += 1;
                b.lost(token, &CloseReason::MemoryShort.to_string(), reactor, now_ms);
            }
        }
    }

    /// The connection that holds most of something.
    fn greatest(&self, of: fn(Held) -> usize) -> Option<(usize, ofproto::ports::BridgeId, Token)> {
        let all = self.bridges.iter().flat_map(|(id, b)| {
            let held = |l: &Link| l.id.and_then(|id| b.mgr.held(id)).map_or(0, of);
            b.links.iter().map(move |(token, l)| (held(l), *id, *token))
        });
        all.max()
    }

    /// Whether connections wait for [`OpenFlow::keep_bounds`].
    pub(super) fn is_short(&self) -> bool {
        self.budgets.input.is_short() || self.budgets.output.is_short()
    }
}

impl OfBridge {
    /// A connection can be read or written.
    pub(super) fn ready(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        link.unread = link.ended.is_none();
        if link.id.is_some() || self.came_up(token, reactor, now_ms) {
            self.exchange(token, reactor, now_ms);
        }
    }

    /// Sends what a connection has to send, and reads once if its requests are wanted. [`Connmgr::run`] works on them.
    pub(super) fn exchange(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) {
        // What a slow reader has not taken yet goes first: its requests wait until there is room for their answers.
        self.send(token, reactor, now_ms);
        let Some(link) = self.links.get_mut(&token) else { return };
        let Some(id) = link.id else { return };
        let over = match link.deaf {
            true => !link.unread && !self.mgr.is_busy(id),
            false => link.ended.is_some() && !self.mgr.is_busy(id) && self.mgr.output(id).is_empty(),
        };
        if over {
            let why = link.ended.clone().unwrap_or_else(|| RESET.to_string());
            return self.lost(token, &why, reactor, now_ms);
        }
        if !link.unread || !self.mgr.wants_input(id) {
            return;
        }
        match link.conn.read() {
            Ok(Some((bytes, more))) => {
                link.unread = more;
                self.mgr.input(id, &bytes, now_ms);
            }
            Ok(None) => link.end(CLOSED.to_string()),
            Err(e) => link.end(e.to_string()),
        }
    }

    /// A connection that was started is there (`true`), or not yet, or failed.
    fn came_up(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) -> bool {
        let Some(link) = self.links.get_mut(&token) else { return false };
        match link.conn.connected() {
            Ok(false) => return false,
            Err(e) => {
                self.lost(token, &e.to_string(), reactor, now_ms);
                return false;
            }
            Ok(true) => {}
        }
        let Some(controller) = link.origin.target().and_then(|t| self.controllers.get_mut(t)) else {
            return false;
        };
        if let Remote::Active { reconnect, .. } = &mut controller.remote {
            reconnect.connected(now_ms);
        }
        log::info!(target: "connmgr", "{}<->{}: connected", self.name, controller.config.target);
        let kind = ConnKind::Controller { probe_interval_ms: controller.config.inactivity_probe_ms };
        link.id = Some(self.mgr.open(kind, self.versions, now_ms));
        true
    }

    /// Sends what a connection has, and closes it when it is over.
    fn send(&mut self, token: Token, reactor: &mut Reactor, now_ms: u64) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let Some(id) = link.id else { return };
        // One that watches and does not read is left as it is: nobody waits for what it has not taken.
        let watches = link.origin == Origin::Snoop;
        if let Some(reason) = self.mgr.close_reason(id).filter(|_| watches) {
            return self.lost(token, &reason.to_string(), reactor, now_ms);
        }
        match link.conn.send_some(self.mgr.output(id), reactor.registry()) {
            Ok(bytes) => self.mgr.consume_output(id, bytes),
            Err(_) if watches => return self.lost(token, RESET, reactor, now_ms),
            Err(_) => {
                if !link.deaf {
                    // What it sent before it left is still there to read.
                    (link.deaf, link.unread) = (true, link.ended.is_none());
                }
                self.mgr.consume_output(id, usize::MAX);
            }
        }
        let has_all = link.deaf || self.mgr.output(id).is_empty();
        if let Some(reason) = self.mgr.close_reason(id).filter(|why| has_all || why.is_for_memory()) {
            self.over(token, reason, reactor, now_ms);
        }
    }

    /// A session is over and its last output sent.
    fn over(&mut self, token: Token, reason: CloseReason, reactor: &mut Reactor, now_ms: u64) {
        if reason == CloseReason::ProbeTimeout
            && let Some(link) = self.links.get(&token)
            && let Some(c) =
                link.origin.target().and_then(|t| self.controllers.get(t)).filter(|c| c.config.is_passive())
        {
            let seconds = c.config.inactivity_probe_ms as f64 / 1000.0;
            let (name, peer) = (&self.name, link.conn.peer());
            reactor.counts.probes_failed += 1;
            log::error!(target: "rconn", "{name}<->{peer}: no response to inactivity probe after {seconds} seconds, disconnecting");
        }
        if reason.is_for_memory()
            && let Some(link) = self.links.get(&token)
        {
            reactor.counts.cut_off += 1;
            log::warn!(target: "connmgr", "{}<->{}: connection ended: {reason}", self.name, link.conn.peer());
        }
        self.lost(token, &reason.to_string(), reactor, now_ms);
    }

    /// Sends what all connections have.
    pub(super) fn send_all(&mut self, reactor: &mut Reactor, now_ms: u64) {
        let has = |l: &Link| l.id.is_some_and(|id| !self.mgr.output(id).is_empty());
        let tokens: Vec<Token> = self.links.iter().filter(|(_, l)| has(l)).map(|(t, _)| *t).collect();
        for token in tokens {
            self.send(token, reactor, now_ms);
        }
    }

    /// Moves the bytes of all connections.
    pub(super) fn exchange_all(&mut self, reactor: &mut Reactor, now_ms: u64) -> Turn {
        let tokens: Vec<Token> = self.links.keys().copied().collect();
        for token in tokens {
            self.exchange(token, reactor, now_ms);
        }
        let can_read = |l: &Link| l.unread && l.id.is_some_and(|id| self.mgr.wants_input(id));
        Turn::more_if(self.links.values().any(can_read))
    }

    /// A connection ended; an active one is made again later.
    pub(super) fn lost(&mut self, token: Token, why: &str, reactor: &mut Reactor, now_ms: u64) {
        let target = self.links.get(&token).and_then(|l| l.origin.target().map(str::to_string));
        self.close(token, reactor, now_ms);
        let Some(controller) = target.and_then(|t| self.controllers.get_mut(&t)) else { return };
        if let Remote::Active { reconnect, token: at, .. } = &mut controller.remote {
            *at = None;
            reconnect.disconnected(now_ms);
            log::info!(target: "connmgr", "{}<->{}: {why}", self.name, controller.config.target);
            controller.last_error = Some(why.to_string());
        }
    }

    pub(super) fn close(&mut self, token: Token, reactor: &Reactor, now_ms: u64) {
        let Some(mut link) = self.links.remove(&token) else { return };
        link.conn.close(reactor.registry());
        if let Some(id) = link.id {
            self.with_mgr(|mgr, ctx| mgr.close(id, ctx, now_ms));
        }
    }
}
