//! State of one translation and its walk through tables, instructions and actions.

use super::cache::{XlateCache, XlateEffect};
use super::conntrack::Fork;
use super::mpls::passes_unknown;
use super::trace::{TraceEvent, Tracer};
use super::{
    MAX_ACTIONS, MAX_DEPTH, MAX_NESTING, MAX_RESUBMITS, Request, Translation, XlateHost, miss_reason,
};
use crate::changes::Lookups;
use crate::ports::PortConfigBits;
use crate::recirc::{FrozenState, FrozenStep};
use crate::rule::{Rule, RuleTimeouts};
use crate::tables::Found;
use crate::view::{BridgeView, FragHandling, View};
use dpif::actions::{CloneAction, DropAction, HashAction, Recirc, Sample};
use dpif::{DpAction, XlateDrop, slow_reason};
use flow::text::format_match_with;
use flow::{Flow, Mask, OfPort, RecircId, TableId, TlvTable, VlanTag, nw_frag};
use ofp_actions::text::format_actions;
use ofp_actions::{Action, ControllerAction, Nat, PacketInReason, set};
use packet::headers::{self as h, is_mpls};
use std::sync::Arc;

/// Destination of spanning tree frames (IEEE 802.1D §7.12.3).
const STP_ADDRESS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];

/// Maximum nesting of `clone` actions: datapaths bound the nesting of actions.
const MAX_CLONES: usize = 6;

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
    /// Depth of nested lookups.
    nesting: u32,
    resubmits: u32,
    /// Group buckets executed so far.
    pub(super) buckets: u32,
    pub(super) exit: bool,
    /// No relevant action follows the current one.
    pub(super) is_last: bool,
    /// The next rule found is the first of a peer bridge.
    enters_peer: bool,
    /// Nesting of `clone` actions around the current output.
    clones: usize,
    /// Datapath actions outside of the current list.
    outside: usize,
    /// Stop the current list; its caller continues.
    pub(super) leaves_list: bool,
    pub(super) frozen: Option<Vec<FrozenStep>>,
    /// The translation freezes for a controller, which may resume it.
    pub(super) pause: Option<Box<ControllerAction>>,
    /// The datapath computes this hash before the recirculation.
    hash_first: Option<HashAction>,
    /// The last label was popped: the headers behind it are unknown.
    pub(super) was_mpls: bool,
    /// The tracker has seen the packet, and its fields are those of the connection.
    pub(super) conntracked: bool,
    /// The last `nat` of the `ct` being executed.
    pub(super) nat: Option<Nat>,
    /// Tracked copies, for the trace.
    pub(super) forks: Vec<Fork>,
    /// The translation freezes before the current action, not after it.
    repeats_action: bool,
    pub(super) stack: Vec<Vec<u8>>,
    pub(super) slow_reasons: u16,
    pub(super) cache: XlateCache,
    pub(super) lookups: Lookups,
    pub(super) recircs: Vec<RecircId>,
    error: Option<XlateDrop>,
    fault: Option<String>,
    pub(super) trace: Tracer,
}

/// Trace event of the entry into a bridge.
pub(super) fn entry(bridge: &BridgeView) -> TraceEvent {
    TraceEvent::Bridge(bridge.name.clone(), bridge.tables.tlv().clone())
}

/// Match and priority of a clause of a conjunction. Its match stays off the stack of nested lookups.
#[inline(never)]
fn clause_text(rule: &Rule, tlv: &TlvTable) -> String {
    format_match_with(&rule.matching.unpack(), Some(rule.priority), tlv)
}

/// Trace line of an action of a frozen list.
fn restored(actions: &[Action], tlv: &TlvTable) -> String {
    format!("Restoring actions: {}", format_actions(actions, tlv))
}

/// The mask of fields examined by every translation.
pub(super) fn always_looked_at(flow: &Flow) -> Mask {
    let mut wc = Mask::none();
    wc.0.recirc_id = u32::MAX;
    wc.0.in_port = u32::MAX;
    wc.0.packet_type = u32::MAX;
    wc.0.dl_type = u16::MAX;
    if flow.is_ip() {
        wc.0.nw_frag = nw_frag::MASK;
    }
    crate::tunnel::look_at(flow, &mut wc);
    wc
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
            wc: always_looked_at(request.flow),
            original: *request.flow,
            actions: Vec::new(),
            action_set: Vec::new(),
            table: TableId(0),
            rule_cookie: u64::MAX,
            rule_is_miss: false,
            rule_timeouts: None,
            in_packet_out: false,
            depth: 0,
            nesting: 0,
            resubmits: 0,
            buckets: 0,
            exit: false,
            is_last: true,
            enters_peer: false,
            clones: 0,
            outside: 0,
            leaves_list: false,
            frozen: None,
            pause: None,
            hash_first: None,
            was_mpls: false,
            conntracked: false,
            nat: None,
            forks: Vec::new(),
            repeats_action: false,
            stack: Vec::new(),
            slow_reasons: 0,
            cache: XlateCache::default(),
            lookups: Lookups::default(),
            recircs: Vec::new(),
            error: None,
            fault: None,
            in_action_set: false,
            in_bucket: false,
            trace: Tracer::new(request.trace),
        }
    }

    /// Ends the translation with an error: nothing is sent.
    pub(super) fn fail(&mut self, reason: XlateDrop, fault: impl Into<String>) {
        if self.error.is_none() {
            let fault = fault.into();
            self.trace.error(|| fault.clone());
            (self.error, self.fault) = (Some(reason), Some(fault));
        }
        self.exit = true;
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
        if self.port_receives() {
            self.lookup(TableId(0), true);
            self.run_action_set();
        }
        self.trace.pop();
        self.freeze_if_asked();
    }

    /// Actions of a packet-out.
    pub(super) fn run_packet_out(&mut self, actions: &[Action]) {
        self.in_packet_out = true;
        self.trace.push(entry, &*self.bridge);
        self.run_actions(actions);
        self.run_action_set();
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
        self.trace.pop();
        self.freeze_if_asked();
    }

    /// A controller resumes a frozen translation.
    pub(super) fn run_resumed(&mut self, state: &FrozenState) {
        self.trace.push(entry, &*self.bridge);
        self.resume(state);
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
        self.ingress = state.ingress;
        self.conntracked = state.conntracked;
        if !state.conntracked {
            self.flow.clear_conntrack();
        }
        self.flow.in_port = state.in_port;
        self.flow.metadata = state.metadata;
        self.flow.regs = state.regs;
        self.flow.set_tunnel(&state.tunnel);
        self.flow.set_tun_options(state.tun_metadata.as_deref());
        self.base = self.flow;
        self.base.clear_tunnel();
        self.stack.clone_from(&state.stack);
        self.action_set.clone_from(&state.action_set);
        self.flow.actset_output = set::output_of(&self.action_set).0;
        if let Some(table) = state.resume_at {
            self.is_last = state.action_set.is_empty();
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
        let (was_mpls, conntracked) = (self.was_mpls, self.conntracked);
        self.forget_connection();
        self.lookup(TableId(0), true);
        (self.enters_peer, self.was_mpls, self.conntracked) = (false, was_mpls, conntracked);
        // `exit` and errors end only the packet's path through the peer; the fault is still reported.
        self.exit = false;
        self.error = None;
    }

    /// Executes a `clone`: its changes do not reach later actions, but `exit` does.
    pub(super) fn run_on_clone(&mut self, actions: &[Action]) {
        if self.nesting >= MAX_NESTING {
            let fault = format!("over {MAX_NESTING} nested lookups and clone actions");
            return self.fail(XlateDrop::RecursionTooDeep, fault);
        }
        // Not on the stack: clones nest deep.
        let flow = Box::new(self.flow);
        let saved = (self.was_mpls, self.stack.clone(), self.action_set.clone());
        self.nest(false, |cx| cx.clone_or_undo(actions));
        self.flow = *flow;
        (self.was_mpls, self.stack, self.action_set) = saved;
    }

    /// Runs a list whose effect later actions must not see. If these cannot undo its actions, it works on a clone of
    /// the packet.
    fn clone_or_undo(&mut self, actions: &[Action]) {
        if self.is_last || actions.iter().all(Action::is_reversible) {
            return self.run_and_finish(actions);
        }
        if self.clones >= MAX_CLONES {
            let fault = format!("over {MAX_CLONES} nested clone actions");
            return self.fail(XlateDrop::RecursionTooDeep, fault);
        }
        // Both packets need the changes so far.
        self.commit();
        let (base, before) = (Box::new(self.base), std::mem::take(&mut self.actions));
        let conntracked = self.conntracked;
        self.clones += 1;
        self.outside += before.len();
        self.is_last = true;
        self.run_and_finish(actions);
        self.is_last = false;
        self.outside -= before.len();
        self.clones -= 1;
        let cloned = std::mem::replace(&mut self.actions, before);
        (self.base, self.conntracked) = (*base, conntracked);
        self.outside += cloned.len();
        if !cloned.is_empty() {
            self.actions.push(match self.host.capabilities().clone {
                true => DpAction::Clone(CloneAction(cloned)),
                false => DpAction::Sample(Sample { probability: u32::MAX, actions: cloned }),
            });
        }
    }

    /// Runs a list and the resulting action set. A freeze within resumes there, with the current packet.
    fn run_and_finish(&mut self, actions: &[Action]) {
        self.run_actions(actions);
        self.run_action_set();
        // As in OVS, nothing runs after a freeze.
        self.exit |= self.frozen.is_some();
        self.freeze_if_asked();
    }

    /// An unknown port belongs to a packet-out or a trace: tables see its packets.
    fn port_receives(&mut self) -> bool {
        let Some(port) = self.bridge.ports.port(self.flow.in_port()).cloned() else { return true };
        if port.tunnel.is_some() {
            self.cache.push(XlateEffect::Received(port.counters.clone()));
        }
        let receives = self.may_receive(port.config);
        if !receives {
            self.quietly_drop(XlateDrop::ForwardingDisabled, "the input port does not receive");
        }
        receives
    }

    /// Whether a port with this configuration accepts the packet. Spanning tree frames have their own bit. The
    /// device enforces a port's down state, for input and output.
    pub(super) fn may_receive(&mut self, config: PortConfigBits) -> bool {
        if config.no_recv == config.no_recv_stp {
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

    /// Looks the packet up in a table and runs the rule found. `honor_miss`: a table miss may go to the controllers.
    pub(super) fn lookup(&mut self, table: TableId, honor_miss: bool) {
        self.lookup_from(self.flow.in_port(), false, table, honor_miss);
    }

    /// As [`XlateCtx::lookup`], with another input port for the lookup, and with `ct` the connection's original
    /// direction. The rule found runs with the packet's own.
    fn lookup_from(&mut self, in_port: OfPort, ct: bool, table: TableId, honor_miss: bool) {
        self.table = table;
        let bridge = self.bridge.clone();
        let is_fragment = self.flow.nw_frag & nw_frag::ANY != 0;
        if is_fragment && bridge.frags == FragHandling::Drop {
            return self.drop_fragment(table);
        }
        if ct {
            self.swap_tuples();
        }
        let f = &mut self.flow;
        let own = (f.in_port, f.tp_src, f.tp_dst);
        f.in_port = in_port.0;
        if is_fragment && bridge.frags == FragHandling::Normal {
            (f.tp_src, f.tp_dst) = (0, 0);
        }
        self.lookups.table(bridge.id, table, &self.flow, &self.original);
        let Found { rule, clauses } = bridge.tables.lookup(table, &self.flow, &mut self.wc);
        let found = rule.cloned();
        (self.flow.in_port, self.flow.tp_src, self.flow.tp_dst) = own;
        if ct {
            self.swap_tuples();
        }
        if let Some(t) = bridge.tables.table(table) {
            self.cache.push(XlateEffect::Table { counters: t.counters.clone(), hit: found.is_some() });
        }
        self.trace.push(|(t, r)| TraceEvent::Table { table: *t, rule: r.clone() }, &(table, found.clone()));
        for clause in &clauses {
            self.trace.detail(|| format!("conj. {}", clause_text(clause, bridge.tables.tlv())));
        }
        match found {
            Some(rule) => self.run_rule(&rule),
            None if honor_miss => self.table_miss(),
            None => {}
        }
        self.trace.pop();
    }

    /// A hidden rule of every table matches fragments and drops them.
    fn drop_fragment(&mut self, table: TableId) {
        if let Some(t) = self.bridge.tables.table(table) {
            self.cache.push(XlateEffect::Table { counters: t.counters.clone(), hit: true });
        }
        self.trace.push(|t| TraceEvent::FragmentsDropped(*t), &table);
        self.trace.pop();
    }

    fn run_rule(&mut self, rule: &Arc<Rule>) {
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

    fn table_miss(&mut self) {
        let quiet = self.bridge.ports.port(self.flow.in_port()).is_some_and(|p| p.config.no_packet_in);
        if !self.bridge.miss_to_controller || quiet {
            return;
        }
        self.rule_cookie = 0;
        self.hand_up(&ControllerAction::plain(u16::MAX), miss_reason::NO_RULE, None);
    }

    /// Whether limits permit one more nested lookup or group; fails otherwise.
    pub(super) fn may_nest(&mut self) -> bool {
        let (reason, fault) = if self.depth >= MAX_DEPTH {
            (XlateDrop::RecursionTooDeep, format!("over max translation depth {MAX_DEPTH}"))
        } else if self.nesting >= MAX_NESTING {
            (XlateDrop::RecursionTooDeep, format!("over {MAX_NESTING} nested resubmit actions"))
        } else if self.resubmits >= MAX_RESUBMITS {
            (XlateDrop::TooManyResubmits, format!("over {MAX_RESUBMITS} resubmit actions"))
        } else {
            return true;
        };
        self.fail(reason, fault);
        false
    }

    /// Runs `f` one level of nesting down. `may_loop`: it counts for the depth.
    pub(super) fn nest(&mut self, may_loop: bool, f: impl FnOnce(&mut Self)) {
        let deeper = u32::from(may_loop);
        let saved = (self.table, self.rule_cookie, self.rule_is_miss);
        (self.depth, self.nesting) = (self.depth + deeper, self.nesting + 1);
        f(self);
        (self.depth, self.nesting) = (self.depth - deeper, self.nesting - 1);
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

    /// Freezes before the current action; the datapath hashes the packet before its recirculation.
    pub(super) fn freeze_with_hash(&mut self, hash: HashAction) {
        self.frozen = Some(Vec::new());
        (self.hash_first, self.repeats_action) = (Some(hash), true);
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
    fn run_action_set(&mut self) {
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
        FrozenState {
            bridge: self.bridge.id,
            table: self.table,
            in_port: self.flow.in_port,
            ingress: self.ingress,
            metadata: self.flow.metadata,
            regs: self.flow.regs,
            tunnel: self.flow.tunnel(),
            tun_metadata: self.flow.tun_options().map(Box::new),
            stack: self.stack.clone(),
            steps,
            resume_at: None,
            conntracked: self.conntracked,
            action_set: self.action_set.clone(),
            userdata,
        }
    }

    pub(super) fn freeze_if_asked(&mut self) {
        let Some(steps) = self.frozen.take() else { return };
        if self.error.is_some() {
            return;
        }
        if let Some(action) = self.pause.take() {
            // As in OVS, a trace without a packet does not show it.
            if !self.trace.is_on() || self.host.has_effects() {
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
            self.actions.push(DropAction(XlateDrop::Ok).into());
        }
        let can = self.host.capabilities();
        if self.actions.iter().any(|a| a.needs_emulation(&can)) {
            self.slow_reasons |= slow_reason::ACTION;
        }
        tidy_mask(&mut self.wc, &self.original);
        Translation {
            actions: self.actions,
            wc: self.wc,
            tlv: self.bridge.tables.tlv().clone(),
            slow_reasons: self.slow_reasons,
            error: self.error,
            fault: self.fault,
            cache: self.cache,
            lookups: self.lookups,
            recircs: self.recircs,
            final_flow: self.flow,
            trace: self.trace.into_nodes(),
            forks: self.forks,
        }
    }
}

/// Removes from the mask fields that packets like `flow` lack or the datapath does not support.
fn tidy_mask(wc: &mut Mask, flow: &Flow) {
    let m = &mut wc.0;
    m.metadata = 0;
    m.regs = [0; 16];
    m.conj_id = 0;
    m.actset_output = 0;
    if !is_mpls(flow.dl_type) {
        // Those of labels pushed since.
        m.mpls_lse = [0; 4];
    }
    if !flow.tunnel().is_some() {
        wc.0.clear_tunnel();
    }
    let m = &mut wc.0;
    let icmp = flow.dl_type == h::ETH_TYPE_IP && matches!(flow.nw_proto, h::IPPROTO_ICMP | h::IPPROTO_IGMP)
        || flow.dl_type == h::ETH_TYPE_IPV6 && flow.nw_proto == h::IPPROTO_ICMPV6;
    if icmp {
        m.tp_src &= 0xff;
        m.tp_dst &= 0xff;
    }
    if flow.is_ip() && flow.nw_frag & nw_frag::LATER != 0 {
        (m.tp_src, m.tp_dst) = (0, 0);
    }
    for tag in &mut m.vlans {
        if tag.tci != 0 {
            tag.tci |= VlanTag::PRESENT;
            // Tags are compared and moved whole, and datapaths identify a tag by its EtherType.
            tag.tpid = u16::MAX;
        }
    }
}
