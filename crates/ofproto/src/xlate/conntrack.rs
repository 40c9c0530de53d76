//! Connection tracking: `ct`, `ct_clear`, and lookups of a connection's original direction.
//!
//! A `ct` with a table recirculates a tracked copy of the packet. The packet itself continues untracked, so its
//! connection fields are clear from then on, and after entry into a peer bridge.

use super::ctx::XlateCtx;
use super::trace::TraceEvent;
use dpif::actions::{CtClear, NatAddresses, NatRange};
use dpif::{CtAction, CtCommit, CtNat, DpAction, HelperName, Masked, TimeoutName};
use flow::fields::FieldId;
use flow::{Flow, OfPort, RecircId, TableId, ct_state};
use ofp_actions::{Action, Commit, Ct, Nat, NatSelection, NatSide, Zone};
use packet::headers::ETH_TYPE_IP;

/// Events of committed connections for listeners: new, related, destroyed, mark, labels (`IPCT_*`).
const EVENT_MASK: u32 = 1 | 1 << 1 | 1 << 2 | 1 << 7 | 1 << 10;

/// A tracked copy of a packet.
#[derive(Clone, Debug)]
pub struct Fork {
    /// Its recirculation.
    pub id: RecircId,
    /// Its flow, with the zone and without the state, which only the tracker knows.
    pub flow: Flow,
    /// Its translation of addresses.
    pub nat: Option<Nat>,
}

impl XlateCtx<'_> {
    /// Executes a `ct`.
    pub(super) fn track_packet(&mut self, ct: &Ct) {
        self.commit();
        let examined = (self.record.wc.0.ct_mark, self.record.wc.0.ct_label);
        (self.record.wc.0.ct_mark, self.record.wc.0.ct_label) = (0, [0; 16]);
        self.control.nat = None;
        if ct.actions.is_empty() {
            self.record.trace.push(|()| TraceEvent::NoActions, &());
            self.record.trace.pop();
        }
        self.run_actions(&ct.actions);
        let set = self.connection_marks();
        (self.record.wc.0.ct_mark, self.record.wc.0.ct_label) = examined;
        for action in &ct.actions {
            // A copied mark is examined, and a new one is not.
            if let Action::Move(copy) = action {
                copy.source.add_wide_mask(self.bridge.tables.tlv(), &mut self.record.wc.0);
            }
        }
        let zone = match ct.zone {
            Zone::Number(number) => number,
            Zone::Field(field) => {
                let tlv = self.bridge.tables.tlv();
                field.add_wide_mask(tlv, &mut self.record.wc.0);
                field.get_wide(tlv, &self.packet.flow).low() as u16
            }
        };
        let nat = self.control.nat.take();
        let action = self.ct_action(ct, zone, set, nat.as_ref());
        self.out.actions.push(DpAction::Ct(Box::new(action)));
        if let Some(table) = ct.table {
            self.fork(table, zone, nat);
        }
        self.forget_connection();
        self.record.trace.detail(|| {
            "Sets the packet to an untracked state, and clears all the conntrack fields.".to_string()
        });
    }

    /// The bits of mark and labels that the actions of a `ct` wrote.
    fn connection_marks(&self) -> (Option<Masked<u32>>, Option<Masked<u128>>) {
        let bits = |field: FieldId| {
            let mask = field.get(&self.record.wc.0);
            (mask != 0).then_some(Masked { value: field.get(&self.packet.flow) & mask, mask })
        };
        let mark = bits(FieldId::CtMark).map(|m| Masked { value: m.value as u32, mask: m.mask as u32 });
        (mark, bits(FieldId::CtLabel))
    }

    fn ct_action(
        &mut self,
        ct: &Ct,
        zone: u16,
        (mark, labels): (Option<Masked<u32>>, Option<Masked<u128>>),
        nat: Option<&Nat>,
    ) -> CtAction {
        if ct.alg != 0 && ct.helper().is_none() {
            self.record.trace.error(|| format!("cannot serialize ct_helper {}", ct.alg));
        }
        let commits = ct.commit != Commit::No;
        let timeout = if commits { self.zone_timeout(zone) } else { None };
        CtAction {
            commit: match ct.commit {
                Commit::No => CtCommit::No,
                Commit::Yes => CtCommit::Yes,
                Commit::Force => CtCommit::Force,
            },
            zone,
            mark,
            labels,
            helper: ct.helper().and_then(HelperName::new),
            nat: nat.map_or(CtNat::No, dp_nat),
            event_mask: (commits && self.host.capabilities().ct.event_mask).then_some(EVENT_MASK),
            timeout,
        }
    }

    /// The name of the zone's timeout policy for this packet's connection.
    fn zone_timeout(&mut self, zone: u16) -> Option<TimeoutName> {
        let can = self.host.capabilities().ct;
        let id = *self.view.zone_timeouts.get(&zone).filter(|_| can.timeout)?;
        if can.timeout_names.depend_on_protocol() && self.packet.flow.is_ip() {
            self.record.wc.0.nw_proto = u8::MAX;
        }
        can.timeout_names.name(id, self.packet.flow.dl_type, self.packet.flow.nw_proto)
    }

    /// Recirculates a tracked copy, which continues in `table`.
    fn fork(&mut self, table: TableId, zone: u16, nat: Option<Nat>) {
        self.packet.conntracked = true;
        let mut state = self.frozen_state(Vec::new(), Vec::new());
        state.resume_at = Some(table);
        let Some(id) = self.recirculate(state) else { return };
        if self.record.trace.is_on() {
            let flow = Flow { recirc_id: id.0, ct_zone: zone, ..self.packet.flow };
            self.record.forks.push(Fork { id, flow, nat });
            let what = "A clone of the packet is forked to recirculate.";
            let where_to = format!("The forked pipeline will be resumed at table {}.", table.0);
            self.record.trace.detail(|| format!("{what} {where_to}"));
        }
    }

    /// Executes a `ct_clear`; nothing to do in the datapath for a packet that is not tracked.
    pub(super) fn clear_connection(&mut self) {
        // A datapath may keep the state of a packet from one port to the next.
        let tracked = self.packet.conntracked || self.packet.flow.ct_state & ct_state::TRK != 0;
        self.forget_connection();
        if tracked && self.host.capabilities().ct.clear {
            self.out.actions.push(CtClear.into());
        }
    }

    /// The packet is not tracked from here on.
    pub(super) fn forget_connection(&mut self) {
        self.packet.conntracked = false;
        self.packet.flow.clear_conntrack();
    }

    /// A `resubmit` with `ct`: the lookup sees the connection's original direction.
    pub(super) fn resubmit_original(&mut self, table: TableId, in_port: OfPort, honor_miss: bool) {
        if self.packet.flow.ct_nw_proto == 0 || !self.packet.flow.is_ip() {
            return self.record.trace.error(|| "resubmit(ct) with non-tracked or non-IP packet!".to_string());
        }
        self.resubmit_with(table, in_port, true, honor_miss);
    }

    /// Exchanges the packet's addresses and ports with those of the original direction, in flow and mask.
    pub(super) fn swap_tuples(&mut self) {
        self.record.lookups.exchanged();
        let is_ipv4 = self.packet.flow.dl_type == ETH_TYPE_IP;
        for f in [&mut self.packet.flow, &mut self.record.wc.0] {
            std::mem::swap(&mut f.nw_proto, &mut f.ct_nw_proto);
            std::mem::swap(&mut f.tp_src, &mut f.ct_tp_src);
            std::mem::swap(&mut f.tp_dst, &mut f.ct_tp_dst);
            if is_ipv4 {
                std::mem::swap(&mut f.nw_src, &mut f.ct_nw_src);
                std::mem::swap(&mut f.nw_dst, &mut f.ct_nw_dst);
            } else {
                std::mem::swap(&mut f.ipv6_src, &mut f.ct_ipv6_src);
                std::mem::swap(&mut f.ipv6_dst, &mut f.ct_ipv6_dst);
            }
        }
    }
}

/// The datapath's form of a `nat`.
fn dp_nat(nat: &Nat) -> CtNat {
    let Some(side) = nat.side else { return CtNat::Known };
    let addresses = nat.range.map(|range| match range.addresses {
        ofp_actions::NatAddresses::V4(min, max) => NatAddresses::V4(min, max.unwrap_or(min)),
        ofp_actions::NatAddresses::V6(min, max) => NatAddresses::V6(min, max.unwrap_or(min)),
    });
    let ports = nat.range.and_then(|range| range.ports).map(|(min, max)| (min, max.unwrap_or(min)));
    CtNat::New(NatRange {
        is_dst: side == NatSide::Dst,
        addresses,
        ports,
        persistent: nat.persistent,
        hash: nat.selection == Some(NatSelection::Hash),
        random: nat.selection == Some(NatSelection::Random),
    })
}
