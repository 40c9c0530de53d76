//! Packets of the switch's own BFD sessions, and the liveness of ports.

use super::ctx::XlateCtx;
use crate::bfd::{BfdPort, Claimed};
use crate::cache::XlateEffect;
use crate::ports::Port;
use dpif::slow_reason;
use flow::{OfPort, TableId};

impl XlateCtx<'_> {
    /// Whether the session of a port takes the packet, which then goes nowhere else.
    pub(super) fn claims(&mut self, port: &Port) -> bool {
        let Some(bfd) = &port.bfd else { return false };
        let claims = bfd.claim.claims(&self.packet.flow, &mut self.record.wc);
        if claims {
            self.record.slow_reasons |= slow_reason::BFD;
            self.record.claimed.push(Claimed { session: bfd.state.clone(), ttl: self.packet.flow.nw_ttl });
        }
        claims
    }

    /// As in OVS, a packet that a session takes is looked up in table 0, and counts there.
    pub(super) fn look_only(&mut self) {
        self.control.only_looks = true;
        self.lookup(TableId(0), true);
        self.control.only_looks = false;
    }

    /// Counts a packet that a port without a device receives.
    pub(super) fn received_by(&mut self, port: &Port) {
        self.record.cache.push(XlateEffect::Received(port.counters.clone()));
        if let Some(session) = port.bfd.as_ref().and_then(BfdPort::counting) {
            self.record.cache.push(XlateEffect::Alive(session.clone()));
        }
    }

    /// Whether a port of the bridge exists and can send.
    pub(super) fn can_send(&mut self, port: OfPort) -> bool {
        self.record.lookups.port(self.bridge.id, port);
        self.bridge.ports.port(port).is_some_and(|p| p.may_enable())
    }
}
