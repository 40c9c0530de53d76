//! State of one translation and its walk through tables, instructions and actions.

use super::masks::tidy_mask;
use super::mpls::passes_unknown;
use super::state::{AfterAction, ControlFlow, CurrentPacket, OutputState, Recording};
use super::trace::TraceEvent;
use super::{MAX_ACTIONS, MAX_DEPTH, MAX_RESUBMITS, MAX_STACK_BYTES, Request, Translation, XlateHost};
use crate::cache::XlateEffect;
use crate::ids::BridgeId;
use crate::mirror::MirrorSet;
use crate::packet_state::PacketState;
use crate::ports::{Port, PortConfigBits};
use crate::recirc::{FrozenState, FrozenStep};
use crate::rule::Rule;
use crate::tunnel::{PacketTypes, take_congestion};
use crate::view::{BridgeView, View};
use dpif::actions::{CloneAction, DropAction, HashAction, Recirc};
use dpif::{DpAction, SlowReason, XlateDrop};
use flow::{OfPort, RecircId, TableId, TlvTable};
use ofp_actions::text::format_actions;
use ofp_actions::{Action, PacketInReason, set};
use openflow::msg::meter;
use packet::headers as h;
use std::sync::Arc;

/// Destination of spanning tree frames (IEEE 802.1D §7.12.3).
const STP_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];

/// One translation. Its parts can be borrowed separately.
pub(super) struct XlateCtx<'a> {
    pub(super) view: &'a View,
    pub(super) bridge: Arc<BridgeView>,
    pub(super) host: &'a mut dyn XlateHost,
    /// The packet.
    pub(super) packet: CurrentPacket,
    /// Where it goes.
    pub(super) out: OutputState,
    /// How the translation goes on.
    pub(super) control: ControlFlow,
    /// The record for the caller.
    pub(super) record: Recording,
}

/// Trace event of the entry into a bridge.
pub(super) fn entry(bridge: &BridgeView) -> TraceEvent {
    TraceEvent::Bridge(bridge.name.clone(), bridge.tables.tlv().clone(), bridge.ports.clone())
}

/// Trace line of an action of a frozen list.
fn restored(actions: &[Action], tlv: &TlvTable) -> String {
    format!("Restoring actions: {}", format_actions(actions, tlv))
}

impl<'a> XlateCtx<'a> {
    pub(super) fn new(
        request: &Request<'a>,
        bridge: &Arc<BridgeView>,
        host: &'a mut dyn XlateHost,
    ) -> XlateCtx<'a> {
        let packet = CurrentPacket::new(request);
        XlateCtx {
            view: request.view,
            bridge: bridge.clone(),
            host,
            record: Recording::new(&packet.original, request.trace),
            packet,
            out: OutputState::default(),
            control: ControlFlow::default(),
        }
    }

    /// Ends the translation with an error: nothing is sent.
    pub(super) fn fail(&mut self, reason: XlateDrop, fault: impl Into<String>) {
        if self.control.error.is_none() {
            let fault = fault.into();
            if reason == XlateDrop::UnsupportedPacketType {
                self.record.trace.refused(|| fault.clone());
            } else {
                self.record.trace.error(|| fault.clone());
            }
            (self.control.error, self.record.fault) = (Some(reason), Some(fault));
            if reason == XlateDrop::RecursionTooDeep {
                self.record.patch_loop = self.find_patch_loop();
            }
        }
        self.control.exit = true;
    }

    /// A bucket has ended. As in OVS, headers that it cannot push or pop end no other action.
    pub(super) fn end_bucket(&mut self) {
        if matches!(self.control.error, Some(XlateDrop::TooManyMplsLabels | XlateDrop::UnsupportedPacketType))
        {
            (self.control.error, self.record.fault) = (None, None);
        }
        // Limits of the translation still end it.
        self.control.exit = self.has_failed();
    }

    pub(super) fn ended(&self) -> bool {
        self.control.exit || self.has_failed()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.control.error.is_some()
    }

    /// A packet from a port of the bridge enters table 0.
    pub(super) fn run_port_input(&mut self) {
        self.record.trace.push(entry, &*self.bridge);
        let port = self.bridge.ports.port(self.packet.flow.in_port()).cloned();
        if let Some(port) = &port {
            self.count_input(port);
        }
        if port.as_ref().is_some_and(|port| self.claims(port)) {
            self.count_in_table_0();
        } else {
            self.sample_received(port.as_deref());
            // An unknown port belongs to a packet-out or a trace: tables see its packets.
            if port.as_deref().is_none_or(|port| self.port_receives(port)) {
                self.translate_received(port.as_deref(), |cx| {
                    cx.control.is_received = true;
                    cx.lookup(TableId(0), true);
                    cx.run_action_set();
                });
            }
            self.deliver_dhcp_reply();
        }
        self.record.trace.pop();
        self.freeze_if_asked();
        self.count_flow();
    }

    /// Actions of a packet-out.
    pub(super) fn run_packet_out(&mut self, actions: &[Action]) {
        self.control.in_packet_out = true;
        self.record.trace.push(entry, &*self.bridge);
        let port = self.bridge.ports.port(self.packet.flow.in_port()).cloned();
        // As in OVS, a packet-out comes from its input port.
        if !port.as_ref().is_some_and(|port| self.claims(port)) {
            self.sample_received(port.as_deref());
            if port.is_none_or(|port| self.takes_from(port.config) && !self.takes_only_copies(Some(&port))) {
                self.mirror_received();
                self.run_actions(actions);
                self.run_action_set();
            }
            self.deliver_dhcp_reply();
        }
        self.record.trace.pop();
        self.freeze_if_asked();
        self.count_flow();
    }

    /// Resumes a frozen translation.
    pub(super) fn run_frozen(&mut self) {
        let id = self.packet.flow.recirc_id();
        // As in OVS, the bridge of the request, also if another one resumes.
        self.record.trace.push(entry, &*self.bridge);
        let Some(state) = self.host.recirc_state(id) else {
            let why = format!("Recirculation context not found for ID {:x}", id.0);
            self.fail(XlateDrop::NoRecirculationContext, &why);
            return self.record.trace.pop();
        };
        self.resume(&state);
        self.deliver_dhcp_reply();
        self.record.trace.pop();
        self.freeze_if_asked();
    }

    /// A controller resumes a frozen translation.
    pub(super) fn run_resumed(&mut self, state: &FrozenState) {
        self.record.trace.push(entry, &*self.bridge);
        self.resume(state);
        self.deliver_dhcp_reply();
        self.record.trace.pop();
        self.freeze_if_asked();
    }

    /// Continues a frozen translation with the current packet.
    fn resume(&mut self, state: &FrozenState) {
        let Some(bridge) = self.view.bridge(state.bridge).cloned() else {
            return self.fail(XlateDrop::BridgeNotFound, "Recirculation bridge no longer exists.");
        };
        self.bridge = bridge;
        self.record.trace.push(|()| TraceEvent::Thaw, &());
        let of_bond = state.bond.is_some().then_some(&state.table);
        let tables = state.resume_at.iter().chain(of_bond);
        for table in tables.chain(state.steps.iter().map(|step| &step.table)) {
            self.record.trace.push(|t| TraceEvent::Remark(format!("Resuming from table {}", t.0)), table);
            self.record.trace.pop();
        }
        let tlv = self.bridge.tables.tlv();
        for step in &state.steps {
            self.record.trace.push(|s| TraceEvent::Remark(restored(&s.actions, tlv)), step);
            self.record.trace.pop();
        }
        self.record.trace.pop();
        state.packet.restore(&mut self.packet.flow);
        self.packet.ingress = state.packet.ingress;
        self.packet.conntracked = state.packet.conntracked;
        self.packet.base = self.packet.flow;
        self.packet.base.clear_tunnel();
        self.packet.stack = state.packet.stack[..].into();
        self.packet.action_set.clone_from(&state.packet.action_set);
        match state.bond {
            Some(bundle) => {
                // Mirrors have seen the packet before the datapath hashed it.
                self.packet.mirrors = MirrorSet::MAX;
                self.resume_in_bond(bundle);
            }
            None => {
                self.packet.mirrors = state.packet.mirrors;
                self.mirror_received();
            }
        }
        if let Some(table) = state.resume_at {
            self.control.is_last = state.packet.action_set.is_empty();
            self.lookup(table, true);
        }
        for (i, step) in state.steps.iter().enumerate() {
            if self.ended() {
                break;
            }
            self.control.is_last = i + 1 == state.steps.len();
            self.control.table = step.table;
            self.control.rule_cookie = step.cookie;
            match &mut self.control.frozen {
                Some(frozen) => frozen.push(step.clone()),
                None => self.run_actions(&step.actions),
            }
        }
        self.run_action_set();
    }

    /// The packet enters the bridge at the other end of a patch port.
    pub(super) fn in_peer_bridge(&mut self) {
        self.control.enters_peer = true;
        let (was_mpls, conntracked) = (self.packet.was_mpls, std::mem::take(&mut self.packet.conntracked));
        let n_pending = self.packet.n_pending;
        // As in OVS, the entry counts as a resubmit to an earlier table, and a fault ends only the path through the peer.
        if self.may_nest() {
            self.control.resubmits += 1;
            let port = self.bridge.ports.port(self.packet.ingress).cloned();
            self.translate_received(port.as_deref(), |cx| {
                cx.nest(true, |cx| cx.lookup(TableId(0), true));
            });
        }
        (self.control.enters_peer, self.packet.was_mpls, self.packet.conntracked) =
            (false, was_mpls, conntracked);
        self.forget_headers(n_pending);
        // `exit` and errors end only the packet's path through the peer; the fault is still reported.
        self.control.exit = false;
        self.control.error = None;
    }

    /// A tunnel has no device that counts.
    fn count_input(&mut self, port: &Port) {
        if port.tunnel.is_some() {
            self.received_by(port);
        }
    }

    /// Whether a port takes the packet.
    fn port_receives(&mut self, port: &Port) -> bool {
        if let Some(tunnel) = &port.tunnel {
            if !take_congestion(&mut self.packet.flow, &mut self.record.wc) {
                let why = "dropping tunnel packet marked ECN CE but is not ECN capable";
                self.quietly_drop(XlateDrop::Congestion, why);
                return false;
            }
            if tunnel.of_kind.packet_types == PacketTypes::Bare {
                self.received_bare();
            }
        }
        self.takes_from(port.config)
    }

    /// Whether a port with this configuration accepts the packet, which is dropped otherwise.
    fn takes_from(&mut self, config: PortConfigBits) -> bool {
        let receives = self.may_receive(config);
        if !receives {
            self.quietly_drop(XlateDrop::ForwardingDisabled, "the input port does not receive");
        }
        receives
    }

    /// Whether a port with this configuration accepts the packet. Spanning tree frames, which have a length in place of
    /// a type, have their own bit. The device enforces a port's down state, for input and output.
    pub(super) fn may_receive(&mut self, config: PortConfigBits) -> bool {
        if config.no_recv == config.no_recv_stp {
            return !config.no_recv;
        }
        if self.packet.flow.dl_type != h::FLOW_DL_TYPE_NONE {
            return !config.no_recv;
        }
        self.record.wc.0.dl_dst = [0xff; 6];
        if self.packet.flow.dl_dst == STP_ADDRESS { !config.no_recv_stp } else { !config.no_recv }
    }

    /// Ends the translation as configured: nothing is sent, without an error.
    fn quietly_drop(&mut self, reason: XlateDrop, why: &str) {
        self.fail(reason, why);
        self.record.fault = None;
    }

    pub(super) fn run_rule(&mut self, rule: &Arc<Rule>) {
        self.record.cache.push(XlateEffect::Rule(rule.clone()));
        self.control.rule_cookie = rule.cookie;
        self.control.rule_is_miss = rule.priority == 0 && rule.matching.is_catchall();
        let outer = self.control.rule_timeouts.replace(rule.timeouts.clone());
        let in_bucket = std::mem::take(&mut self.control.in_bucket);
        if std::mem::take(&mut self.control.enters_peer) {
            self.clone_or_undo(&rule.actions);
        } else {
            self.run_actions(&rule.actions);
        }
        self.control.rule_timeouts = outer;
        self.control.in_bucket = in_bucket;
    }

    /// The patch ports that lead the packet back to where it was, if they do.
    fn find_patch_loop(&self) -> Option<String> {
        let (last, before) = self.control.crossed.split_last()?;
        let first = before.iter().rposition(|port| port == last)? + 1;
        let name = |(bridge, port): &(BridgeId, OfPort)| {
            let bridge = self.view.bridge(*bridge)?;
            Some(format!("{} of {}", bridge.ports.port(*port)?.name, bridge.name))
        };
        Some(self.control.crossed[first..].iter().filter_map(name).collect::<Vec<_>>().join(", "))
    }

    /// Whether limits permit one more nested lookup or group; fails otherwise.
    pub(super) fn may_nest(&mut self) -> bool {
        let (reason, fault) = if self.control.depth >= MAX_DEPTH {
            (XlateDrop::RecursionTooDeep, format!("over max translation depth {MAX_DEPTH}"))
        } else if self.control.resubmits >= MAX_RESUBMITS {
            (XlateDrop::TooManyResubmits, format!("over {MAX_RESUBMITS} resubmit actions"))
        } else if self.packet.stack.bytes() >= MAX_STACK_BYTES {
            (XlateDrop::StackTooDeep, "resubmits yielded over 64 kB of stack".to_string())
        } else {
            return true;
        };
        self.fail(reason, fault);
        false
    }

    /// Runs `f` within the current action. `may_loop`: it counts for the depth.
    pub(super) fn nest(&mut self, may_loop: bool, f: impl FnOnce(&mut Self)) {
        let deeper = u32::from(may_loop);
        let saved = (self.control.table, self.control.rule_cookie, self.control.rule_is_miss);
        self.control.depth += deeper;
        f(self);
        self.control.depth -= deeper;
        (self.control.table, self.control.rule_cookie, self.control.rule_is_miss) = saved;
    }

    /// A `resubmit`, `goto_table` or output to `TABLE`.
    pub(super) fn resubmit_to(&mut self, table: TableId, in_port: OfPort, honor_miss: bool) {
        self.resubmit_with(table, in_port, false, honor_miss);
    }

    /// As [`XlateCtx::resubmit_to`]; with `ct` the lookup sees the connection's original direction.
    pub(super) fn resubmit_with(&mut self, table: TableId, in_port: OfPort, ct: bool, honor_miss: bool) {
        if !self.may_nest() {
            return;
        }
        self.control.resubmits += 1;
        // Later tables always terminate; only backward jumps can loop.
        self.nest(table <= self.control.table, |cx| cx.lookup_from(in_port, ct, table, honor_miss));
    }

    /// Freezes before the current action.
    pub(super) fn freeze_and_repeat(&mut self) {
        self.control.frozen = Some(Vec::new());
        self.control.after_action = AfterAction::Repeat;
    }

    /// As [`XlateCtx::freeze_and_repeat`]; the datapath hashes the packet before its recirculation.
    pub(super) fn freeze_with_hash(&mut self, hash: HashAction) {
        self.freeze_and_repeat();
        self.out.hash_first = Some(hash);
    }

    /// Runs a list of actions. If the translation freezes within, the rest of the list is stored.
    pub(super) fn run_actions(&mut self, actions: &[Action]) {
        let is_last = self.control.is_last;
        self.run_list(actions, is_last);
        self.control.is_last = is_last;
    }

    fn run_list(&mut self, actions: &[Action], is_last: bool) {
        for (i, action) in actions.iter().enumerate() {
            if self.ended() {
                return;
            }
            if self.packet.was_mpls && self.control.frozen.is_none() && !passes_unknown(action) {
                self.control.frozen = Some(Vec::new());
            }
            if self.control.frozen.is_some() {
                return self.freeze_rest(&actions[i..]);
            }
            self.control.is_last = is_last && i + 1 == actions.len() && self.packet.action_set.is_empty();
            self.record.trace.push(|a| TraceEvent::Action(Box::new((*a).clone())), &action);
            self.note_change(action);
            action.translate(self);
            self.record.trace.pop();
            match std::mem::take(&mut self.control.after_action) {
                AfterAction::Next => {}
                AfterAction::Leave => return,
                AfterAction::Repeat => return self.freeze_rest(&actions[i..]),
                AfterAction::Split(check) => return self.run_both(&check, &actions[i + 1..]),
            }
            if self.out.outside + self.out.actions.len() > MAX_ACTIONS {
                self.fail(XlateDrop::TooManyOutputs, "more datapath actions than a packet may have");
            }
        }
    }

    /// Stores the rest of a list in the frozen state.
    fn freeze_rest(&mut self, rest: &[Action]) {
        let step = FrozenStep {
            table: self.control.table,
            cookie: self.control.rule_cookie,
            actions: rest.to_vec(),
        };
        self.control.frozen.get_or_insert_default().push(step);
    }

    /// The output of the action set, after all instructions.
    pub(super) fn run_action_set(&mut self) {
        if self.ended() || self.control.frozen.is_some() {
            return;
        }
        let set = set::in_order(&std::mem::take(&mut self.packet.action_set));
        if set.is_empty() {
            return;
        }
        self.record.trace.push(|()| TraceEvent::ActionSet, &());
        let is_last = self.control.is_last;
        (self.control.in_action_set, self.control.is_last) = (true, true);
        self.run_actions(&set);
        // As in OVS, the trace shows the rest of an action set that ran this one as empty.
        (self.control.in_action_set, self.control.is_last) = (false, is_last);
        self.record.trace.pop();
    }

    /// Default reason of an output to the controllers.
    pub(super) fn reason_of_output(&self) -> PacketInReason {
        match (self.control.in_packet_out, self.control.in_action_set) {
            _ if self.control.in_bucket => PacketInReason::Group,
            (true, _) => PacketInReason::PacketOut,
            (_, true) => PacketInReason::ActionSet,
            _ => PacketInReason::Action,
        }
    }

    pub(super) fn frozen_state(&self, steps: Vec<FrozenStep>, userdata: Vec<u8>) -> FrozenState {
        let mut packet = PacketState::of(&self.packet.flow, self.packet.ingress, self.packet.conntracked);
        // No rule matches the source port, which differs by connection.
        packet.tunnel.tp_src = 0;
        packet.stack = self.packet.stack.values().to_vec();
        packet.action_set.clone_from(&self.packet.action_set);
        packet.mirrors = self.packet.mirrors;
        FrozenState {
            bridge: self.bridge.id,
            table: self.control.table,
            packet,
            steps,
            resume_at: None,
            userdata,
            bond: None,
        }
    }

    /// Forgets a freeze that was requested.
    pub(super) fn cancel_freeze(&mut self) {
        (self.control.frozen, self.control.pause, self.out.hash_first) = (None, None, None);
    }

    pub(super) fn freeze_if_asked(&mut self) {
        let Some(steps) = self.control.frozen.take() else { return };
        if self.control.error.is_some() {
            return;
        }
        if let Some(action) = self.control.pause.take() {
            // As in OVS, a trace without a packet does not show it, but the changes made before.
            if self.record.trace.is_on() && !self.host.has_effects() {
                self.commit();
            } else {
                self.hand_up(&action, action.reason as u8, Some(steps));
            }
            return;
        }
        self.commit();
        let state = self.frozen_state(steps, Vec::new());
        let _ = self.recirculate(state);
    }

    /// Recirculates the packet with a frozen state; returns its id, unless none is left.
    pub(super) fn recirculate(&mut self, state: FrozenState) -> Option<RecircId> {
        let Some(id) = self.host.recirc_hold(state) else {
            self.fail(XlateDrop::NoRecirculationContext, "no recirculation id left");
            return None;
        };
        self.record.recircs.push(id);
        self.out.actions.extend(self.out.hash_first.take().map(DpAction::from));
        self.out.actions.push(Recirc(id).into());
        Some(id)
    }

    pub(super) fn finish(mut self) -> Translation {
        if let Some(reason) = self.control.error {
            self.out.actions = vec![DpAction::Drop(DropAction(reason))];
            self.record.slow_reasons = 0;
        } else if self.out.actions.is_empty() {
            self.out.actions.push(DropAction(self.out.lost).into());
        }
        self.finish_samples();
        if let Some(DpAction::Clone(CloneAction(inner))) =
            self.out.actions.pop_if(|a| matches!(a, DpAction::Clone(_)))
        {
            // Nothing follows.
            self.out.actions.extend(inner);
        }
        let can = self.host.capabilities();
        let actions = self.out.outside + self.out.actions.len();
        if actions > can.flow_actions_max || self.out.actions.iter().any(|a| a.needs_emulation(&can)) {
            self.record.slow_reasons |= SlowReason::Action.bit();
        }
        self.examine_flow();
        tidy_mask(&mut self.record.wc, &self.packet.original);
        if self.record.slow_reasons != 0 {
            self.record.lookups.meter(self.bridge.id, meter::SLOW_PATH);
        }
        Translation {
            slow_meter: self.bridge.meters.get(&meter::SLOW_PATH).copied(),
            actions: self.out.actions,
            wc: self.record.wc,
            tlv: self.bridge.tables.tlv().clone(),
            slow_reasons: self.record.slow_reasons,
            error: self.control.error,
            fault: self.record.fault,
            patch_loop: self.record.patch_loop,
            cache: self.record.cache,
            lookups: self.record.lookups,
            recircs: self.record.recircs,
            to_upcall: self.record.to_upcall,
            claimed: self.record.claimed,
            final_flow: self.packet.flow,
            trace: self.record.trace.into_nodes(),
            forks: self.record.forks,
        }
    }
}
