//! Lists of actions whose effects later actions do not see: `clone`, and the rest of a list behind
//! `check_pkt_larger`, which only the datapath decides.

use super::MAX_CLONES;
use super::ctx::XlateCtx;
use super::stack::ValueStack;
use super::trace::TraceEvent;
use crate::mirror::MirrorSet;
use dpif::actions::{CheckPktLen, CloneAction, Sample};
use dpif::{DpAction, XlateDrop};
use flow::{Flow, OfPort};
use ofp_actions::{Action, CheckPktLarger, assign};

/// Maximum nesting of datapath lists: datapaths bound it, and each `check_pkt_larger` doubles the work.
const MAX_COPIES: usize = 6;

impl XlateCtx<'_> {
    /// Executes a `clone`: its changes do not reach later actions, but `exit` does.
    pub(super) fn run_on_clone(&mut self, actions: &[Action]) {
        if self.control.in_clones >= MAX_CLONES {
            let fault = format!("over {MAX_CLONES} nested clone actions");
            return self.fail(XlateDrop::RecursionTooDeep, fault);
        }
        // Not on the stack: clones nest deep.
        let flow = Box::new(self.packet.flow);
        let saved = (self.packet.was_mpls, self.packet.stack.clone(), self.packet.action_set.clone());
        // A clone of the packet has the headers pushed so far.
        if self.packet.pending.is_some() {
            self.commit();
        }
        self.control.in_clones += 1;
        self.nest(false, |cx| cx.clone_or_undo(actions));
        self.control.in_clones -= 1;
        self.packet.flow = *flow;
        self.packet.pending = None;
        (self.packet.was_mpls, self.packet.stack, self.packet.action_set) = saved;
    }

    /// Runs a list whose effect later actions must not see. If these cannot undo its actions, it works on a clone of
    /// the packet.
    pub(super) fn clone_or_undo(&mut self, actions: &[Action]) {
        if self.control.is_last || actions.iter().all(Action::is_reversible) {
            return self.run_and_finish(actions);
        }
        self.on_clone(|cx| cx.run_and_finish(actions));
    }

    /// Works on a clone of the packet: later actions see the packet as before.
    pub(super) fn on_clone(&mut self, run: impl FnOnce(&mut Self)) {
        if !self.may_copy() {
            return;
        }
        // Both packets need the changes so far.
        self.commit();
        let (base, before) = (Box::new(self.packet.base), std::mem::take(&mut self.out.actions));
        let conntracked = self.packet.conntracked;
        self.out.clones += 1;
        self.out.outside += before.len();
        self.control.is_last = true;
        run(self);
        self.control.is_last = false;
        self.out.outside -= before.len();
        self.out.clones -= 1;
        let cloned = std::mem::replace(&mut self.out.actions, before);
        (self.packet.base, self.packet.conntracked) = (*base, conntracked);
        self.out.outside += cloned.len();
        if !cloned.is_empty() {
            self.out.actions.push(match self.host.capabilities().clone {
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
        self.control.exit |= self.control.frozen.is_some();
        self.freeze_if_asked();
    }

    /// Whether one more datapath list may be nested; fails otherwise.
    pub(super) fn may_copy(&mut self) -> bool {
        if self.out.clones < MAX_COPIES {
            return true;
        }
        let fault = format!("over {MAX_COPIES} nested clone and check_pkt_larger actions");
        self.fail(XlateDrop::RecursionTooDeep, fault);
        false
    }

    /// Executes the rest of a list, then the action set, for packets longer than the threshold and for others.
    ///
    /// As in OVS, later actions of the callers see the packet as before, and end if longer packets end there. Unlike
    /// in OVS, both cases begin with the same stack and action set, and the set is not executed again.
    pub(super) fn run_both(&mut self, check: &CheckPktLarger, rest: &[Action]) {
        if !self.may_copy() {
            return;
        }
        self.commit();
        let kept = Kept::of(self);
        let before = std::mem::take(&mut self.out.actions);
        let is_last = std::mem::replace(&mut self.control.is_last, true);
        self.out.clones += 1;
        self.out.outside += before.len();
        let greater = self.run_case(check, true, rest);
        let (exit, mirrors) = (self.control.exit, self.packet.mirrors);
        kept.clone().restore(self);
        self.out.outside += greater.len();
        let less = self.run_case(check, false, rest);
        // Unlike in OVS, each case has its copies; no mirror takes a packet twice.
        let mirrors = mirrors | self.packet.mirrors;
        kept.restore(self);
        self.packet.mirrors = mirrors;
        self.packet.action_set.clear();
        self.packet.flow.actset_output = OfPort::UNSET.0;
        self.control.exit = exit || self.has_failed();
        self.out.outside += less.len();
        self.out.outside -= before.len();
        self.out.clones -= 1;
        self.control.is_last = is_last;
        self.out.actions = before;
        self.out.actions.push(CheckPktLen { len: check.len_bytes, greater, less }.into());
    }

    /// Executes one case; returns its datapath actions.
    fn run_case(&mut self, check: &CheckPktLarger, larger: bool, rest: &[Action]) -> Vec<DpAction> {
        if self.has_failed() {
            return Vec::new();
        }
        assign(self, &check.dest, larger.into());
        if rest.is_empty() {
            self.record.trace.push(|()| TraceEvent::NoActions, &());
            self.record.trace.pop();
        }
        self.run_and_finish(rest);
        std::mem::take(&mut self.out.actions)
    }
}

/// State of a translation that both cases begin with. Flows are not on the stack: cases nest.
#[derive(Clone)]
struct Kept {
    flow: Box<Flow>,
    base: Box<Flow>,
    was_mpls: bool,
    conntracked: bool,
    stack: ValueStack,
    action_set: Vec<Action>,
    mirrors: MirrorSet,
}

impl Kept {
    fn of(cx: &XlateCtx<'_>) -> Kept {
        Kept {
            flow: Box::new(cx.packet.flow),
            base: Box::new(cx.packet.base),
            was_mpls: cx.packet.was_mpls,
            conntracked: cx.packet.conntracked,
            stack: cx.packet.stack.clone(),
            action_set: cx.packet.action_set.clone(),
            mirrors: cx.packet.mirrors,
        }
    }

    fn restore(self, cx: &mut XlateCtx<'_>) {
        (cx.packet.flow, cx.packet.base) = (*self.flow, *self.base);
        (cx.packet.was_mpls, cx.packet.conntracked) = (self.was_mpls, self.conntracked);
        (cx.packet.stack, cx.packet.action_set) = (self.stack, self.action_set);
        cx.packet.mirrors = self.mirrors;
        // The headers before the cases are committed.
        cx.packet.pending = None;
        cx.control.exit = cx.has_failed();
    }
}
