//! The interface of a translation to the actions that it executes.

use super::ctx::XlateCtx;
use super::state::AfterAction;
use dpif::actions::Meter;
use dpif::{SlowReason, XlateDrop};
use flow::{Flow, Mask, OfPort, TableId, TlvTable, Wide};
use ofp_actions::text::format_actions;
use ofp_actions::{
    Action, CheckPktLarger, ControllerAction, Ct, Encap, LearnAction, Nat, SampleFlow, Translator, set,
};
use std::sync::Arc;

/// Maximum actions of an action set.
const ACTION_SET_MAX: usize = 4096;

impl Translator for XlateCtx<'_> {
    fn flow(&self) -> &Flow {
        &self.packet.flow
    }

    fn state(&mut self) -> (&mut Flow, &mut Mask) {
        (&mut self.packet.flow, &mut self.record.wc)
    }

    fn original(&self) -> &Flow {
        &self.packet.original
    }

    fn detail(&mut self, text: impl FnOnce() -> String) {
        self.record.trace.detail(text);
    }

    fn warning(&mut self, text: impl FnOnce() -> String) {
        self.record.trace.warning(text);
    }

    fn error(&mut self, text: impl FnOnce() -> String) {
        self.record.trace.error(text);
    }

    fn output(&mut self, port: OfPort, max_len_bytes: u16) {
        self.join_outputs(|cx| cx.send(port, max_len_bytes));
    }

    fn output_truncated(&mut self, port: OfPort, max_len_bytes: u32) {
        self.join_outputs(|cx| cx.send_truncated(port, max_len_bytes));
    }

    fn output_to(&mut self, port: OfPort) {
        self.join_outputs(|cx| cx.send_to(port));
    }

    fn output_controller(&mut self, action: &ControllerAction) {
        if action.pause {
            self.pause_for_controllers(action);
        } else {
            self.send_to_controllers(action);
        }
    }

    fn resubmit(&mut self, table: Option<TableId>, in_port: Option<OfPort>, ct: bool, honor_miss: bool) {
        let table = table.unwrap_or(self.control.table);
        let in_port = in_port.unwrap_or(self.packet.flow.in_port());
        if ct {
            self.resubmit_original(table, in_port, honor_miss);
        } else {
            self.resubmit_to(table, in_port, honor_miss);
        }
    }

    fn track(&mut self, ct: &Ct) {
        self.track_packet(ct);
    }

    fn clear_tracking(&mut self) {
        self.clear_connection();
    }

    fn translate_addresses(&mut self, nat: &Nat) {
        self.control.nat = Some(*nat);
    }

    fn is_live(&mut self, port: OfPort) -> bool {
        self.can_send(port)
    }

    fn group(&mut self, id: u32) {
        self.run_group(id);
    }

    fn clone_packet(&mut self, actions: &[Action]) {
        self.run_on_clone(actions);
    }

    fn split_by_length(&mut self, check: &CheckPktLarger) {
        self.control.after_action = AfterAction::Split(*check);
    }

    fn learn(&mut self, learn: &LearnAction) -> Option<bool> {
        self.learn_rule(learn)
    }

    fn shorten_timeouts(&mut self, idle_s: u16, hard_s: u16) {
        self.shorten_own_timeouts(idle_s, hard_s);
    }

    fn exit(&mut self) {
        self.control.exit = true;
    }

    fn leave_list(&mut self) {
        self.control.after_action = AfterAction::Leave;
    }

    fn push_mpls(&mut self, ethertype: u16) {
        self.push_label(ethertype);
    }

    fn pop_mpls(&mut self, ethertype: u16) {
        self.pop_label(ethertype);
    }

    fn encap(&mut self, encap: &Encap) {
        self.push_header(encap);
    }

    fn decap(&mut self, packet_type: Option<u32>) {
        self.pop_header(packet_type);
    }

    /// A deleted meter limits nothing: the rules that use it are removed with it.
    fn meter(&mut self, id: u32) {
        self.record.lookups.meter(self.bridge.id, id);
        if let Some(dp_id) = self.bridge.meters.get(&id) {
            self.out.actions.push(Meter(*dp_id).into());
        }
    }

    fn write_actions(&mut self, actions: &[Action]) {
        set::merge(&mut self.packet.action_set, actions);
        self.packet.flow.actset_output = set::output_of(&self.packet.action_set).0;
        self.trace_action_set("is");
        if self.packet.action_set.len() > ACTION_SET_MAX {
            self.fail(XlateDrop::TooManyOutputs, "more actions in the action set than it may have");
        }
    }

    fn clear_actions(&mut self) {
        self.trace_action_set("was");
        self.packet.action_set.clear();
        self.packet.flow.actset_output = OfPort::UNSET.0;
    }

    fn freeze(&mut self) {
        self.control.frozen = Some(Vec::new());
    }

    fn sample(&mut self, sample: &SampleFlow) {
        self.sample_by_rule(sample);
    }

    fn stay_slow(&mut self) {
        self.record.slow_reasons |= SlowReason::Action.bit();
    }

    fn tlv(&self) -> Arc<TlvTable> {
        self.bridge.tables.tlv().clone()
    }

    fn stack_push(&mut self, value: Wide, len_bits: u16) {
        self.packet.stack.push(value.to_be_bytes(usize::from(len_bits.div_ceil(8))));
    }

    fn stack_pop(&mut self) -> Option<Wide> {
        self.packet.stack.pop().map(|value| Wide::from_be_bytes(&value))
    }

    fn priority_of_queue(&self, queue: u32) -> Option<u32> {
        self.host.capabilities().priority_of_queue(queue)
    }
}

impl XlateCtx<'_> {
    /// Traces the actions of the action set.
    fn trace_action_set(&mut self, verb: &str) {
        let (actions, tlv) = (&self.packet.action_set, self.bridge.tables.tlv());
        self.record.trace.detail(|| match set::in_order(actions) {
            actions if actions.is_empty() => format!("action set {verb} empty"),
            actions => format!("action set {verb}: {}", format_actions(&actions, &**tlv)),
        });
    }
}
