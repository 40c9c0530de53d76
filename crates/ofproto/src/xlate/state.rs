//! The state of a translation, in four parts: the packet, its way out, the control flow, and the record for the caller.

use super::Request;
use super::conntrack::Fork;
use super::encap::Pending;
use super::masks::always_looked_at;
use super::stack::ValueStack;
use super::trace::Tracer;
use crate::cache::XlateCache;
use crate::changes::Lookups;
use crate::ids::{BridgeId, BundleId};
use crate::links::Claimed;
use crate::mirror::MirrorSet;
use crate::recirc::FrozenStep;
use crate::rule::RuleTimeouts;
use dpif::actions::HashAction;
use dpif::{DpAction, XlateDrop};
use flow::{Flow, Mask, OfPort, RecircId, TableId};
use ofp_actions::{Action, CheckPktLarger, ControllerAction, Nat};
use packet::headers as h;
use telemetry::netflow;

/// The packet, with the state that travels with it ([`PacketState`](crate::packet_state::PacketState)).
pub(super) struct CurrentPacket {
    /// The bridge port that received it, regardless of changes of `in_port` by rules.
    pub(super) ingress: OfPort,
    /// The packet as currently seen by rules.
    pub(super) flow: Flow,
    /// The datapath's packet after the actions so far.
    pub(super) base: Flow,
    /// The original flow, for masks.
    pub(super) original: Flow,
    /// The last label was popped: the headers behind it are unknown.
    pub(super) was_mpls: bool,
    /// A header to push or pop.
    pub(super) pending: Option<Pending>,
    /// Number of `pending` values so far.
    pub(super) n_pending: u32,
    /// The tracker has seen the packet, and its fields are those of the connection.
    pub(super) conntracked: bool,
    /// The stack of `push` and `pop`.
    pub(super) stack: ValueStack,
    /// The action set.
    pub(super) action_set: Vec<Action>,
    /// Mirrors of the current bridge that have a copy of the packet.
    pub(super) mirrors: MirrorSet,
}

impl CurrentPacket {
    /// The packet of a request.
    pub(super) fn new(request: &Request<'_>) -> CurrentPacket {
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
        CurrentPacket {
            ingress: request.flow.in_port(),
            flow,
            base,
            original,
            was_mpls: false,
            pending: None,
            n_pending: 0,
            conntracked: false,
            stack: ValueStack::default(),
            action_set: Vec::new(),
            mirrors: 0,
        }
    }
}

/// A bond whose member the datapath chooses.
#[derive(Clone, Copy)]
pub(super) struct HashedBond {
    /// The bond's bundle.
    pub(super) bundle: BundleId,
    /// Basis of the hash.
    pub(super) basis: u32,
    /// The bond's number in `lb_output`, if the datapath has its members.
    pub(super) lb_output: Option<RecircId>,
}

/// Where the packet goes: the datapath actions.
pub(super) struct OutputState {
    /// Actions of the current list.
    pub(super) actions: Vec<DpAction>,
    /// Nesting of datapath lists around the current output.
    pub(super) clones: usize,
    /// Datapath actions outside of the current list.
    pub(super) outside: usize,
    /// The packet is the copy of a mirror, of this length at most.
    pub(super) snaplen: Option<u16>,
    /// Truncate the packet of the next output, to a tunnel in user space.
    pub(super) tunnel_cut: Option<u32>,
    /// The bond that takes the place of the next port.
    pub(super) bond: Option<HashedBond>,
    /// The datapath computes this hash before the recirculation.
    pub(super) hash_first: Option<HashAction>,
    /// Why the packet is dropped if nothing is sent.
    pub(super) lost: XlateDrop,
    /// The port that gets the packet, or one of [`netflow::output`].
    pub(super) netflow: u16,
}

impl Default for OutputState {
    fn default() -> OutputState {
        OutputState {
            actions: Vec::new(),
            clones: 0,
            outside: 0,
            snaplen: None,
            tunnel_cut: None,
            bond: None,
            hash_first: None,
            lost: XlateDrop::Ok,
            netflow: netflow::output::DROP,
        }
    }
}

/// How a list goes on after an action.
#[derive(Default)]
pub(super) enum AfterAction {
    /// With the next action.
    #[default]
    Next,
    /// It ends; its caller continues.
    Leave,
    /// The translation freezes, and begins with this action again.
    Repeat,
    /// The rest of the list runs in two cases.
    Split(CheckPktLarger),
}

/// How the translation goes on.
pub(super) struct ControlFlow {
    /// The table of the current rule.
    pub(super) table: TableId,
    /// Cookie of the current rule, for controllers.
    pub(super) rule_cookie: u64,
    /// The current rule is the table-miss rule.
    pub(super) rule_is_miss: bool,
    /// Timeouts of the rule whose actions are being executed.
    pub(super) rule_timeouts: Option<RuleTimeouts>,
    /// The translation is of a packet-out, and in its own bridge.
    pub(super) in_packet_out: bool,
    /// The actions being executed are those of an action set.
    pub(super) in_action_set: bool,
    /// The actions being executed are those of a group bucket.
    pub(super) in_bucket: bool,
    /// Nesting that may loop.
    pub(super) depth: u32,
    /// Nested `clone` actions.
    pub(super) in_clones: u32,
    /// Resubmits so far.
    pub(super) resubmits: u32,
    /// Group buckets executed so far.
    pub(super) buckets: u32,
    /// No further action runs.
    pub(super) exit: bool,
    /// No relevant action follows the current one.
    pub(super) is_last: bool,
    /// How the current list goes on.
    pub(super) after_action: AfterAction,
    /// The next rule found is the first of a peer bridge.
    pub(super) enters_peer: bool,
    /// The next lookup is the first of a received packet, which mirrors have not seen.
    pub(super) is_received: bool,
    /// A lookup shows and counts the rule, and does not run it.
    pub(super) counts_only: bool,
    /// The translation freezes, with these remaining actions.
    pub(super) frozen: Option<Vec<FrozenStep>>,
    /// The translation freezes for a controller, which may resume it.
    pub(super) pause: Option<Box<ControllerAction>>,
    /// The last `nat` of the `ct` being executed.
    pub(super) nat: Option<Nat>,
    /// Ports by which the packet entered the current bridge and those around it, outermost first.
    pub(super) crossed: Vec<(BridgeId, OfPort)>,
    /// The error that ended the translation.
    pub(super) error: Option<XlateDrop>,
}

impl Default for ControlFlow {
    fn default() -> ControlFlow {
        ControlFlow {
            table: TableId(0),
            rule_cookie: u64::MAX,
            rule_is_miss: false,
            rule_timeouts: None,
            in_packet_out: false,
            in_action_set: false,
            in_bucket: false,
            depth: 0,
            in_clones: 0,
            resubmits: 0,
            buckets: 0,
            exit: false,
            is_last: true,
            after_action: AfterAction::Next,
            enters_peer: false,
            is_received: false,
            counts_only: false,
            frozen: None,
            pause: None,
            nat: None,
            crossed: Vec::new(),
            error: None,
        }
    }
}

/// Results for the caller, beside the datapath actions.
pub(super) struct Recording {
    /// Examined bits of the flow.
    pub(super) wc: Mask,
    /// See [`Translation::slow_reasons`](super::Translation::slow_reasons).
    pub(super) slow_reasons: u16,
    /// Effects.
    pub(super) cache: XlateCache,
    /// Lookups.
    pub(super) lookups: Lookups,
    /// Recirculation ids held.
    pub(super) recircs: Vec<RecircId>,
    /// See [`Translation::to_upcall`](super::Translation::to_upcall).
    pub(super) to_upcall: bool,
    /// See [`Translation::claimed`](super::Translation::claimed).
    pub(super) claimed: Vec<Claimed>,
    /// Tracked copies, for the trace.
    pub(super) forks: Vec<Fork>,
    /// Text of the error, for the log.
    pub(super) fault: Option<String>,
    /// See [`Translation::patch_loop`](super::Translation::patch_loop).
    pub(super) patch_loop: Option<String>,
    /// The trace.
    pub(super) trace: Tracer,
}

impl Recording {
    /// The record of a translation of that flow.
    pub(super) fn new(original: &Flow, trace: bool) -> Recording {
        Recording {
            wc: always_looked_at(original),
            slow_reasons: 0,
            cache: XlateCache::default(),
            lookups: Lookups::default(),
            recircs: Vec::new(),
            to_upcall: false,
            claimed: Vec::new(),
            forks: Vec::new(),
            fault: None,
            patch_loop: None,
            trace: Tracer::new(trace),
        }
    }
}
