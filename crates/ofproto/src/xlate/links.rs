//! Packets of the switch's own link protocols, and the link states of ports.

use super::ctx::XlateCtx;
use crate::cache::XlateEffect;
use crate::links::Claimed;
use crate::ports::Port;
use dpif::{SlowReason, XlateDrop};
use flow::{OfPort, TableId};
use l2proto::protocol::TreePhase;
use l2proto::spanning_tree::ADDRESS;
use packet::headers::FLOW_DL_TYPE_NONE;

impl XlateCtx<'_> {
    /// Whether a session of a port takes the packet, which then goes nowhere else.
    pub(super) fn claims(&mut self, port: &Port) -> bool {
        for link in &port.links {
            if link.claim.claims(&self.packet.flow, &mut self.record.wc) {
                self.record.slow_reasons |= SlowReason::Link(link.claim.protocol()).bit();
                self.record
                    .claimed
                    .push(Claimed { session: link.session.clone(), ttl: self.packet.flow.nw_ttl });
                return true;
            }
        }
        false
    }

    /// As in OVS, a packet that a session takes is looked up in table 0, and counts there.
    pub(super) fn count_in_table_0(&mut self) {
        self.control.counts_only = true;
        self.lookup(TableId(0), true);
        self.control.counts_only = false;
    }

    /// Translates a packet from a port of the current bridge. As in OVS, a port that only learns has its packets
    /// translated for `NORMAL` and `learn`, and nothing is sent; one that does not learn either takes none.
    pub(super) fn translate_received(&mut self, port: Option<&Port>, translate: impl FnOnce(&mut Self)) {
        let Some(port) = port.filter(|port| port.gating_links().next().is_some()) else {
            return translate(self);
        };
        self.record.lookups.port(self.bridge.id, port.of_port);
        let state = port.link_state();
        if state.may_forward {
            return translate(self);
        }
        if state.may_learn {
            let (sent, base) = (self.out.actions.len(), self.packet.base);
            translate(self);
            self.out.actions.truncate(sent);
            self.packet.base = base;
            self.packet.action_set.clear();
            self.cancel_freeze();
        }
        self.out.lost = XlateDrop::ForwardingDisabled;
    }

    /// Whether the links of a port let it send; the trace names the protocol that does not. BPDUs leave by all ports but the
    /// blocking ones of STP, as in OVS.
    pub(super) fn links_forward(&mut self, port: &Port) -> bool {
        let base = &self.packet.base;
        let is_bpdu = base.dl_type == FLOW_DL_TYPE_NONE && base.dl_dst() == ADDRESS;
        for link in port.gating_links() {
            self.record.lookups.port(self.bridge.id, port.of_port);
            let state = link.session.state();
            let why = match state.tree {
                Some(tree) if is_bpdu => match tree.phase {
                    TreePhase::Blocking => "STP not in listening state, skipping bpdu output".to_string(),
                    TreePhase::Disabled
                    | TreePhase::Listening
                    | TreePhase::Learning
                    | TreePhase::Forwarding => continue,
                },
                _ if state.may_forward => continue,
                Some(tree) if tree.is_rapid => "RSTP not in forwarding state, skipping output".to_string(),
                Some(_) => "STP not in forwarding state, skipping output".to_string(),
                None => {
                    let protocol = link.claim.protocol().name().to_uppercase();
                    format!("{protocol} not in forwarding state, skipping output")
                }
            };
            self.record.trace.warning(|| why);
            return false;
        }
        true
    }

    /// Counts a packet that a port without a device receives.
    pub(super) fn received_by(&mut self, port: &Port) {
        self.record.cache.push(XlateEffect::Received(port.counters.clone()));
        for link in port.links.iter().filter(|link| link.counts_rx) {
            self.record.cache.push(XlateEffect::Alive(link.session.clone()));
        }
    }

    /// Whether a port of the bridge exists and can send.
    pub(super) fn can_send(&mut self, port: OfPort) -> bool {
        self.record.lookups.port(self.bridge.id, port);
        self.bridge.ports.port(port).is_some_and(|p| p.may_enable())
    }
}
