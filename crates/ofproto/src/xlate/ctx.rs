//! State of one translation and its walk through tables, instructions and actions.

use super::conntrack::Fork;
use super::encap::Pending;
use super::masks::{always_looked_at, tidy_mask};
use super::mpls::passes_unknown;
use super::stack::ValueStack;
use super::trace::{TraceEvent, Tracer};
use super::{MAX_ACTIONS, MAX_DEPTH, MAX_RESUBMITS, MAX_STACK_BYTES, Request, Translation, XlateHost};
use crate::bfd::Claimed;
use crate::cache::{XlateCache, XlateEffect};
use crate::changes::Lookups;
use crate::ids::BridgeId;
use crate::packet_state::PacketState;
use crate::ports::{Port, PortConfigBits};
use crate::recirc::{FrozenState, FrozenStep};
use crate::rule::{Rule, RuleTimeouts};
use crate::tunnel::{PacketTypes, take_congestion};
use crate::view::{BridgeView, View};
use dpif::actions::{CloneAction, DropAction, HashAction, Recirc};
use dpif::{DpAction, XlateDrop, slow_reason};
use flow::{Flow, Mask, OfPort, RecircId, TableId, TlvTable};
use ofp_actions::text::format_actions;
use ofp_actions::{Action, CheckPktLarger, ControllerAction, Nat, PacketInReason, set};
use openflow::msg::meter;
use packet::headers as h;
use std::sync::Arc;

/// Destination of spanning tree frames (IEEE 802.1D §7.12.3).
const STP_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];

pub(super) struct XlateCtx<'a> {
    pub(super) view: &'a View,
    pub(super) bridge: Arc<BridgeView>,
    /// The bridge port that received the packet, regardless of changes of `in_port` by rules.
    pub(super) ingress: OfPort,
    pub(super) host: &'a mut dyn XlateHost,
    /// The packet as currently seen by rules.
    pub(super) flow: Flow,
    /// The datapath's packet after the actions so far.
    pub(super) base: Flow,
    pub(super) wc: Mask,
    /// The original flow, for masks.
    pub(super) original: Flow,
    pub(super) actions: Vec<DpAction>,
    pub(super) action_set: Vec<Action>,
    pub(super) table: TableId,
    pub(super) rule_cookie: u64,
    pub(super) rule_is_miss: bool,
    /// Those of the rule whose actions are being executed.
    pub(super) rule_timeouts: Option<RuleTimeouts>,
    pub(super) in_packet_out: bool,
    pub(super) in_action_set: bool,
    /// The actions being executed are those of a group bucket.
    pub(super) in_bucket: bool,
    pub(super) depth: u32,
    /// Nested `clone` actions.
    pub(super) in_clones: u32,
    resubmits: u32,
    /// Group buckets executed so far.
    pub(super) buckets: u32,
    pub(super) exit: bool,
    /// No relevant action follows the current one.
    pub(super) is_last: bool,
    /// The next rule found is the first of a peer bridge.
    enters_peer: bool,
    /// Truncate the packet of the next output, to a tunnel in user space.
    pub(super) tunnel_cut: Option<u32>,
    /// Nesting of datapath lists around the current output.
    pub(super) clones: usize,
    /// Datapath actions outside of the current list.
    pub(super) outside: usize,
    /// Stop the current list; its caller continues.
    pub(super) leaves_list: bool,
    pub(super) frozen: Option<Vec<FrozenStep>>,
    /// The translation freezes for a controller, which may resume it.
    pub(super) pause: Option<Box<ControllerAction>>,
    /// The datapath computes this hash before the recirculation.
    hash_first: Option<HashAction>,
    /// The last label was popped: the headers behind it are unknown.
    pub(super) was_mpls: bool,
    /// A header to push or pop.
    pub(super) pending: Option<Pending>,
    /// Number of `pending` values so far.
    pub(super) n_pending: u32,
    /// The tracker has seen the packet, and its fields are those of the connection.
    pub(super) conntracked: bool,
    /// The last `nat` of the `ct` being executed.
    pub(super) nat: Option<Nat>,
    /// Tracked copies, for the trace.
    pub(super) forks: Vec<Fork>,
    /// The translation freezes before the current action, not after it.
    repeats_action: bool,
    /// The current action, if it executes the rest of its list in two cases.
    pub(super) split: Option<CheckPktLarger>,
    pub(super) stack: ValueStack,
    pub(super) slow_reasons: u16,
    pub(super) cache: XlateCache,
    pub(super) lookups: Lookups,
    pub(super) recircs: Vec<RecircId>,
    /// See [`Translation::to_upcall`].
    pub(super) to_upcall: bool,
    /// See [`Translation::claimed`].
    pub(super) claimed: Vec<Claimed>,
    /// A lookup shows and counts the rule, and does not run it.
    pub(super) only_looks: bool,
    error: Option<XlateDrop>,
    /// Why the packet is dropped if nothing is sent.
    pub(super) lost: XlateDrop,
    fault: Option<String>,
    /// Ports by which the packet entered the current bridge and those around it, outermost first.
    pub(super) crossed: Vec<(BridgeId, OfPort)>,
    patch_loop: Option<String>,
    pub(super) trace: Tracer,
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
        let mut flow = *request.flow;
        for tag in flow.vlans.iter_mut().filter(|t| t.is_present() && t.tpid == 0) {
            // A flow that was not made from a frame may lack it.
            tag.tpid = h::ETH_TYPE_VLAN;
        }
        if flow.packet_type != 0 {
            // A flow that was not made from a packet may lack it.
            flow.dl_type = flow.effective_type();
        }
        let mut original = *request.flow;
        original.dl_type = flow.dl_type;
        flow.actset_output = OfPort::UNSET.0;
        // The origin of a packet does not determine its destination.
        let mut base = flow;
        base.clear_tunnel();
        XlateCtx {
            view: request.view,
            bridge: bridge.clone(),
            ingress: request.flow.in_port(),
            host,
            flow,
            base,
            wc: always_looked_at(&original),
            original,
            actions: Vec::new(),
            action_set: Vec::new(),
            table: TableId(0),
            rule_cookie: u64::MAX,
            rule_is_miss: false,
            rule_timeouts: None,
            in_packet_out: false,
            depth: 0,
            in_clones: 0,
            resubmits: 0,
            buckets: 0,
            exit: false,
            is_last: true,
            enters_peer: false,
            tunnel_cut: None,
            clones: 0,
            outside: 0,
            leaves_list: false,
            frozen: None,
            pause: None,
            hash_first: None,
            was_mpls: false,
            pending: None,
            n_pending: 0,
            conntracked: false,
            nat: None,
            forks: Vec::new(),
            repeats_action: false,
            split: None,
            stack: ValueStack::default(),
            slow_reasons: 0,
            cache: XlateCache::default(),
            lookups: Lookups::default(),
            recircs: Vec::new(),
            to_upcall: false,
            claimed: Vec::new(),
            only_looks: false,
            error: None,
            lost: XlateDrop::Ok,
            fault: None,
            crossed: Vec::new(),
            patch_loop: None,
            in_action_set: false,
            in_bucket: false,
            trace: Tracer::new(request.trace),
        }
    }

    /// Ends the translation with an error: nothing is sent.
    pub(super) fn fail(&mut self, reason: XlateDrop, fault: impl Into<String>) {
        if self.error.is_none() {
            let fault = fault.into();
            if reason == XlateDrop::UnsupportedPacketType {
                self.trace.refused(|| fault.clone());
            } else {
                self.trace.error(|| fault.clone());
            }
            (self.error, self.fault) = (Some(reason), Some(fault));
            if reason == XlateDrop::RecursionTooDeep {
                self.patch_loop = self.find_patch_loop();
            }
        }
        self.exit = true;
    }

    /// A bucket has ended. As in OVS, headers that it cannot push or pop end no other action.
    pub(super) fn end_bucket(&mut self) {
        if matches!(self.error, Some(XlateDrop::TooManyMplsLabels | XlateDrop::UnsupportedPacketType)) {
            (self.error, self.fault) = (None, None);
        }
        self.leaves_list = false;
        // Limits of the translation still end it.
        self.exit = self.has_failed();
    }

    pub(super) fn ended(&self) -> bool {
        self.exit || self.has_failed()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// A packet from a port of the bridge enters table 0.
    pub(super) fn run_port_input(&mut self) {
        self.trace.push(entry, &*self.bridge);
        let port = self.bridge.ports.port(self.flow.in_port()).cloned();
        if let Some(port) = &port {
            self.count_input(port);
        }
        if port.as_ref().is_some_and(|port| self.claims(port)) {
            self.look_only();
        } else {
            // An unknown port belongs to a packet-out or a trace: tables see its packets.
            if port.is_none_or(|port| self.port_receives(&port)) {
                self.lookup(TableId(0), true);
                self.run_action_set();
            }
            self.deliver_dhcp_reply();
        }
        self.trace.pop();
        self.freeze_if_asked();
    }

    /// Actions of a packet-out.
    pub(super) fn run_packet_out(&mut self, actions: &[Action]) {
        self.in_packet_out = true;
        self.trace.push(entry, &*self.bridge);
        let port = self.bridge.ports.port(self.flow.in_port()).cloned();
        // As in OVS, a packet-out comes from its input port.
        if !port.as_ref().is_some_and(|port| self.claims(port)) {
            if port.is_none_or(|port| self.takes_from(port.config)) {
                self.run_actions(actions);
                self.run_action_set();
            }
            self.deliver_dhcp_reply();
        }
        self.trace.pop();
        self.freeze_if_asked();
    }

    /// Resumes a frozen translation.
    pub(super) fn run_frozen(&mut self) {
        let id = self.flow.recirc_id();
        // As in OVS, the bridge of the request, also if another one resumes.
        self.trace.push(entry, &*self.bridge);
        let Some(state) = self.host.recirc_state(id) else {
            let why = format!("Recirculation context not found for ID {:x}", id.0);
            self.fail(XlateDrop::NoRecirculationContext, &why);
            return self.trace.pop();
        };
        self.resume(&state);
        self.deliver_dhcp_reply();
        self.trace.pop();
        self.freeze_if_asked();
    }

    /// A controller resumes a frozen translation.
    pub(super) fn run_resumed(&mut self, state: &FrozenState) {
        self.trace.push(entry, &*self.bridge);
        self.resume(state);
        self.deliver_dhcp_reply();
        self.trace.pop();
        self.freeze_if_asked();
    }

    /// Continues a frozen translation with the current packet.
    fn resume(&mut self, state: &FrozenState) {
        let Some(bridge) = self.view.bridge(state.bridge).cloned() else {
            return self.fail(XlateDrop::BridgeNotFound, "Recirculation bridge no longer exists.");
        };
        self.bridge = bridge;
        self.trace.push(|()| TraceEvent::Thaw, &());
        for table in state.resume_at.iter().chain(state.steps.iter().map(|step| &step.table)) {
            self.trace.push(|t| TraceEvent::Remark(format!("Resuming from table {}", t.0)), table);
            self.trace.pop();
        }
        let tlv = self.bridge.tables.tlv();
        for step in &state.steps {
            self.trace.push(|s| TraceEvent::Remark(restored(&s.actions, tlv)), step);
            self.trace.pop();
        }
        self.trace.pop();
        state.packet.restore(&mut self.flow);
        self.ingress = state.packet.ingress;
        self.conntracked = state.packet.conntracked;
        self.base = self.flow;
        self.base.clear_tunnel();
        self.stack = state.packet.stack[..].into();
        self.action_set.clone_from(&state.packet.action_set);
        if let Some(table) = state.resume_at {
            self.is_last = state.packet.action_set.is_empty();
            self.lookup(table, true);
        }
        for (i, step) in state.steps.iter().enumerate() {
            if self.ended() {
                break;
            }
            self.is_last = i + 1 == state.steps.len();
            self.table = step.table;
            self.rule_cookie = step.cookie;
            match &mut self.frozen {
                Some(frozen) => frozen.push(step.clone()),
                None => self.run_actions(&step.actions),
            }
        }
        self.run_action_set();
    }

    /// The packet enters the bridge at the other end of a patch port.
    pub(super) fn in_peer_bridge(&mut self) {
        self.enters_peer = true;
        let (was_mpls, conntracked) = (self.was_mpls, std::mem::take(&mut self.conntracked));
        let n_pending = self.n_pending;
        // As in OVS, the entry counts as a resubmit to an earlier table, and a fault ends only the path through the peer.
        if self.may_nest() {
            self.resubmits += 1;
            self.nest(true, |cx| cx.lookup(TableId(0), true));
        }
        (self.enters_peer, self.was_mpls, self.conntracked) = (false, was_mpls, conntracked);
        self.forget_headers(n_pending);
        // `exit` and errors end only the packet's path through the peer; the fault is still reported.
        self.exit = false;
        self.error = None;
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
            if !take_congestion(&mut self.flow, &mut self.wc) {
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
        if self.flow.dl_type != h::FLOW_DL_TYPE_NONE {
            return !config.no_recv;
        }
        self.wc.0.dl_dst = [0xff; 6];
        if self.flow.dl_dst == STP_ADDRESS { !config.no_recv_stp } else { !config.no_recv }
    }

    /// Ends the translation as configured: nothing is sent, without an error.
    fn quietly_drop(&mut self, reason: XlateDrop, why: &str) {
        self.fail(reason, why);
        self.fault = None;
    }

    pub(super) fn run_rule(&mut self, rule: &Arc<Rule>) {
        self.cache.push(XlateEffect::Rule(rule.clone()));
        self.rule_cookie = rule.cookie;
        self.rule_is_miss = rule.priority == 0 && rule.matching.is_catchall();
        let outer = self.rule_timeouts.replace(rule.timeouts.clone());
        let in_bucket = std::mem::take(&mut self.in_bucket);
        if std::mem::take(&mut self.enters_peer) {
            self.clone_or_undo(&rule.actions);
        } else {
            self.run_actions(&rule.actions);
        }
        self.rule_timeouts = outer;
        self.in_bucket = in_bucket;
    }

    /// The patch ports that lead the packet back to where it was, if they do.
    fn find_patch_loop(&self) -> Option<String> {
        let (last, before) = self.crossed.split_last()?;
        let first = before.iter().rposition(|port| port == last)? + 1;
        let name = |(bridge, port): &(BridgeId, OfPort)| {
            let bridge = self.view.bridge(*bridge)?;
            Some(format!("{} of {}", bridge.ports.port(*port)?.name, bridge.name))
        };
        Some(self.crossed[first..].iter().filter_map(name).collect::<Vec<_>>().join(", "))
    }

    /// Whether limits permit one more nested lookup or group; fails otherwise.
    pub(super) fn may_nest(&mut self) -> bool {
        let (reason, fault) = if self.depth >= MAX_DEPTH {
            (XlateDrop::RecursionTooDeep, format!("over max translation depth {MAX_DEPTH}"))
        } else if self.resubmits >= MAX_RESUBMITS {
            (XlateDrop::TooManyResubmits, format!("over {MAX_RESUBMITS} resubmit actions"))
        } else if self.stack.bytes() >= MAX_STACK_BYTES {
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
        let saved = (self.table, self.rule_cookie, self.rule_is_miss);
        self.depth += deeper;
        f(self);
        self.depth -= deeper;
        (self.table, self.rule_cookie, self.rule_is_miss) = saved;
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
        self.resubmits += 1;
        // Later tables always terminate; only backward jumps can loop.
        self.nest(table <= self.table, |cx| cx.lookup_from(in_port, ct, table, honor_miss));
    }

    /// Freezes before the current action.
    pub(super) fn freeze_and_repeat(&mut self) {
        self.frozen = Some(Vec::new());
        self.repeats_action = true;
    }

    /// As [`XlateCtx::freeze_and_repeat`]; the datapath hashes the packet before its recirculation.
    pub(super) fn freeze_with_hash(&mut self, hash: HashAction) {
        self.freeze_and_repeat();
        self.hash_first = Some(hash);
    }

    /// Runs a list of actions. If the translation freezes within, the rest of the list is stored.
    pub(super) fn run_actions(&mut self, actions: &[Action]) {
        let is_last = self.is_last;
        self.run_list(actions, is_last);
        self.is_last = is_last;
    }

    fn run_list(&mut self, actions: &[Action], is_last: bool) {
        for (i, action) in actions.iter().enumerate() {
            if self.ended() {
                return;
            }
            if self.was_mpls && self.frozen.is_none() && !passes_unknown(action) {
                self.frozen = Some(Vec::new());
            }
            if self.frozen.is_some() {
                return self.freeze_rest(&actions[i..]);
            }
            self.is_last = is_last && i + 1 == actions.len() && self.action_set.is_empty();
            self.trace.push(|a| TraceEvent::Action(Box::new((*a).clone())), &action);
            action.translate(self);
            self.trace.pop();
            if std::mem::take(&mut self.repeats_action) {
                return self.freeze_rest(&actions[i..]);
            }
            if let Some(check) = self.split.take() {
                return self.run_both(&check, &actions[i + 1..]);
            }
            if std::mem::take(&mut self.leaves_list) {
                return;
            }
            if self.outside + self.actions.len() > MAX_ACTIONS {
                self.fail(XlateDrop::TooManyOutputs, "more datapath actions than a flow may have");
            }
        }
    }

    /// Stores the rest of a list in the frozen state.
    fn freeze_rest(&mut self, rest: &[Action]) {
        let step = FrozenStep { table: self.table, cookie: self.rule_cookie, actions: rest.to_vec() };
        self.frozen.get_or_insert_default().push(step);
    }

    /// The output of the action set, after all instructions.
    pub(super) fn run_action_set(&mut self) {
        if self.ended() || self.frozen.is_some() {
            return;
        }
        let set = set::in_order(&std::mem::take(&mut self.action_set));
        if set.is_empty() {
            return;
        }
        self.trace.push(|()| TraceEvent::ActionSet, &());
        let is_last = self.is_last;
        (self.in_action_set, self.is_last) = (true, true);
        self.run_actions(&set);
        // As in OVS, the trace shows the rest of an action set that ran this one as empty.
        (self.in_action_set, self.is_last) = (false, is_last);
        self.trace.pop();
    }

    /// Default reason of an output to the controllers.
    pub(super) fn reason_of_output(&self) -> PacketInReason {
        match (self.in_packet_out, self.in_action_set) {
            _ if self.in_bucket => PacketInReason::Group,
            (true, _) => PacketInReason::PacketOut,
            (_, true) => PacketInReason::ActionSet,
            _ => PacketInReason::Action,
        }
    }

    pub(super) fn frozen_state(&self, steps: Vec<FrozenStep>, userdata: Vec<u8>) -> FrozenState {
        let mut packet = PacketState::of(&self.flow, self.ingress, self.conntracked);
        // No rule matches the source port, which differs by connection.
        packet.tunnel.tp_src = 0;
        packet.stack = self.stack.values().to_vec();
        packet.action_set.clone_from(&self.action_set);
        FrozenState { bridge: self.bridge.id, table: self.table, packet, steps, resume_at: None, userdata }
    }

    pub(super) fn freeze_if_asked(&mut self) {
        let Some(steps) = self.frozen.take() else { return };
        if self.error.is_some() {
            return;
        }
        if let Some(action) = self.pause.take() {
            // As in OVS, a trace without a packet does not show it, but the changes made before.
            if self.trace.is_on() && !self.host.has_effects() {
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
        self.recircs.push(id);
        self.actions.extend(self.hash_first.take().map(DpAction::from));
        self.actions.push(Recirc(id).into());
        Some(id)
    }

    pub(super) fn finish(mut self) -> Translation {
        if let Some(reason) = self.error {
            self.actions = vec![DpAction::Drop(DropAction(reason))];
            self.slow_reasons = 0;
        } else if self.actions.is_empty() {
            self.actions.push(DropAction(self.lost).into());
        }
        if let Some(DpAction::Clone(CloneAction(inner))) =
            self.actions.pop_if(|a| matches!(a, DpAction::Clone(_)))
        {
            // Nothing follows.
            self.actions.extend(inner);
        }
        let can = self.host.capabilities();
        if self.actions.iter().any(|a| a.needs_emulation(&can)) {
            self.slow_reasons |= slow_reason::ACTION;
        }
        tidy_mask(&mut self.wc, &self.original);
        if self.slow_reasons != 0 {
            self.lookups.meter(self.bridge.id, meter::SLOW_PATH);
        }
        Translation {
            slow_meter: self.bridge.meters.get(&meter::SLOW_PATH).copied(),
            actions: self.actions,
            wc: self.wc,
            tlv: self.bridge.tables.tlv().clone(),
            slow_reasons: self.slow_reasons,
            error: self.error,
            fault: self.fault,
            patch_loop: self.patch_loop,
            cache: self.cache,
            lookups: self.lookups,
            recircs: self.recircs,
            to_upcall: self.to_upcall,
            claimed: self.claimed,
            final_flow: self.flow,
            trace: self.trace.into_nodes(),
            forks: self.forks,
        }
    }
}
