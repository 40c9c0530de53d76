//! Lists of actions whose effects later actions do not see: `clone`, and the rest of a list behind
//! `check_pkt_larger`, which only the datapath decides.

use super::MAX_CLONES;
use super::ctx::XlateCtx;
use super::stack::ValueStack;
use super::trace::TraceEvent;
use dpif::actions::{CheckPktLen, CloneAction, Sample};
use dpif::{DpAction, XlateDrop};
use flow::{Flow, OfPort};
use ofp_actions::{Action, CheckPktLarger, assign};

/// Maximum nesting of datapath lists: datapaths bound it, and each `check_pkt_larger` doubles the work.
const MAX_COPIES: usize = 6;

impl XlateCtx<'_> {
    /// Executes a `clone`: its changes do not reach later actions, but `exit` does.
    pub(super) fn run_on_clone(&mut self, actions: &[Action]) {
        if self.in_clones >= MAX_CLONES {
            let fault = format!("over {MAX_CLONES} nested clone actions");
            return self.fail(XlateDrop::RecursionTooDeep, fault);
        }
        // Not on the stack: clones nest deep.
        let flow = Box::new(self.flow);
        let saved = (self.was_mpls, self.stack.clone(), self.action_set.clone());
        // A clone of the packet has the headers pushed so far.
        if self.pending.is_some() {
            self.commit();
        }
        self.in_clones += 1;
        self.nest(false, |cx| cx.clone_or_undo(actions));
        self.in_clones -= 1;
        self.flow = *flow;
        self.pending = None;
        (self.was_mpls, self.stack, self.action_set) = saved;
    }

    /// Runs a list whose effect later actions must not see. If these cannot undo its actions, it works on a clone of
    /// the packet.
    pub(super) fn clone_or_undo(&mut self, actions: &[Action]) {
        if self.is_last || actions.iter().all(Action::is_reversible) {
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
        let (base, before) = (Box::new(self.base), std::mem::take(&mut self.actions));
        let conntracked = self.conntracked;
        self.clones += 1;
        self.outside += before.len();
        self.is_last = true;
        run(self);
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

    /// Whether one more datapath list may be nested; fails otherwise.
    pub(super) fn may_copy(&mut self) -> bool {
        if self.clones < MAX_COPIES {
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
        let before = std::mem::take(&mut self.actions);
        let is_last = std::mem::replace(&mut self.is_last, true);
        self.clones += 1;
        self.outside += before.len();
        let greater = self.run_case(check, true, rest);
        let exit = self.exit;
        kept.clone().restore(self);
        self.outside += greater.len();
        let less = self.run_case(check, false, rest);
        kept.restore(self);
        self.action_set.clear();
        self.flow.actset_output = OfPort::UNSET.0;
        self.exit = exit || self.has_failed();
        self.outside += less.len();
        self.outside -= before.len();
        self.clones -= 1;
        self.is_last = is_last;
        self.actions = before;
        self.actions.push(CheckPktLen { len: check.len_bytes, greater, less }.into());
    }

    /// Executes one case; returns its datapath actions.
    fn run_case(&mut self, check: &CheckPktLarger, larger: bool, rest: &[Action]) -> Vec<DpAction> {
        if self.has_failed() {
            return Vec::new();
        }
        assign(self, &check.dest, larger.into());
        if rest.is_empty() {
            self.trace.push(|()| TraceEvent::NoActions, &());
            self.trace.pop();
        }
        self.run_and_finish(rest);
        std::mem::take(&mut self.actions)
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
}

impl Kept {
    fn of(cx: &XlateCtx<'_>) -> Kept {
        Kept {
            flow: Box::new(cx.flow),
            base: Box::new(cx.base),
            was_mpls: cx.was_mpls,
            conntracked: cx.conntracked,
            stack: cx.stack.clone(),
            action_set: cx.action_set.clone(),
        }
    }

    fn restore(self, cx: &mut XlateCtx<'_>) {
        (cx.flow, cx.base) = (*self.flow, *self.base);
        (cx.was_mpls, cx.conntracked) = (self.was_mpls, self.conntracked);
        (cx.stack, cx.action_set) = (self.stack, self.action_set);
        // The headers before the cases are committed.
        cx.pending = None;
        cx.exit = cx.has_failed();
    }
}
