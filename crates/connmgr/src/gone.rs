//! Connections whose peers read no more. Nothing is made for them: neither replies nor events. Their earlier requests may
//! change the switch, and those are executed, as in OVS; others are skipped.

use super::conn::{Conn, is_monitor_request};
use super::monitors::Monitors;
use super::requests::changes_the_switch;
use super::{ConnId, Connmgr};
use openflow::Kind;

/// Whether a request is executed even if nobody reads its reply.
pub(super) fn matters_unheard(kind: Kind) -> bool {
    let is_other_change = matches!(
        kind,
        Kind::RoleRequest
            | Kind::SetConfig
            | Kind::TableFeaturesRequest
            | Kind::Resume
            | Kind::CtFlushZone
            | Kind::CtFlush
    );
    is_other_change || changes_the_switch(kind)
}

impl Conn {
    fn mute(&mut self) {
        self.session.mute();
        // It waits for a reader of the former monitors.
        self.waits &= !self.held.as_ref().is_some_and(is_monitor_request);
        (self.dump, self.barrier, self.packet_queues) = (None, None, None);
        self.monitors = Monitors::default();
        self.unsent_packet_ins.clear();
        self.fresh = true;
    }
}

impl Connmgr {
    /// The peer of a connection reads no more: its replies and events are discarded, and of its earlier requests only
    /// changes are executed.
    pub fn mute(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.mute();
        }
    }
}
