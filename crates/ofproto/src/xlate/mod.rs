//! Translation of a packet's flow through the OpenFlow tables to datapath actions and the mask of examined bits.
//!
//! [`translate`] is a pure function of a [`View`] and the flow, apart from calls of its [`XlateHost`]. Other effects
//! of a packet (rule counters, learned addresses and rules) form an [`XlateCache`], which the caller replays: once
//! for the packet itself before it is sent, later with the counters of the megaflow.
//!
//! Bounds: [`MAX_DEPTH`], [`MAX_CLONES`], [`MAX_RESUBMITS`], [`MAX_BUCKETS`],
//! [`MAX_ACTIONS`], [`MAX_STACK_BYTES`]; each ends the translation with its own
//! [`XlateDrop`]. All resubmits may nest, so threads that translate have a stack of [`THREAD_STACK_BYTES`].

mod actions;
mod bonds;
mod commit;
mod conntrack;
mod controllers;
mod copies;
mod ctx;
mod encap;
mod group;
mod learn;
mod links;
mod lookup;
mod masks;
mod mcast;
mod mirror;
mod mpls;
mod native;
mod netflow;
mod normal;
mod output;
mod recirculated;
mod sampling;
mod stack;
mod state;
mod trace;
mod vlan;

pub use crate::cache::{EffectHost, LearnedFlow, XlateCache, XlateEffect};
pub use conntrack::Fork;
pub use mcast::Snooped;
pub use recirculated::{PARTS_MAX, Recirculations};
pub use trace::{TraceEvent, TraceNode, render_trace, rule_text};

use crate::changes::Lookups;
use crate::ids::BridgeId;
use crate::links::Claimed;
use crate::native::NativeTunnels;
use crate::recirc::FrozenState;
use crate::view::View;
use ctx::XlateCtx;
use dpif::actions::{DropAction, Meter, Sample, Userspace};
use dpif::{Capabilities, DpAction, UserCookie, XlateDrop};
use flow::{Flow, MacAddr, Mask, RecircId, TlvTable};
use ofp_actions::Action;
use routing::{Hop, NoRoute, Query};
use std::net::IpAddr;
use std::sync::Arc;

/// Reasons of a table miss for the controllers. Numbers beyond `OFPR_*` as in OVS; the reported reason depends on
/// the controller's version.
pub mod miss_reason {
    /// The table-miss rule: priority 0, no match.
    pub const RULE: u8 = 6;
    /// No rule at all.
    pub const NO_RULE: u8 = 7;
}

/// Maximum nesting of patch ports and resubmits to the same or an earlier table.
pub const MAX_DEPTH: u32 = 64;
/// Maximum nesting of `clone` actions.
pub const MAX_CLONES: u32 = 512;
/// Maximum resubmits of one translation.
pub const MAX_RESUBMITS: u32 = 4096;
/// Maximum group buckets executed by one translation.
pub const MAX_BUCKETS: u32 = 16_384;
/// Maximum buckets examined for the liveness of one.
pub const MAX_BUCKET_LOOKS: u32 = 4096;
/// Maximum datapath actions of a packet. A flow has fewer: [`dpif::Capabilities::flow_actions_max`].
pub const MAX_ACTIONS: usize = 131_072;
/// Bytes on the stack of `push` from which on no lookup begins. A list of actions bounds the bytes that it adds.
pub const MAX_STACK_BYTES: usize = 65_536;

/// Stack of a thread that translates: for nested resubmits and clones up to their limits.
pub const THREAD_STACK_BYTES: usize = 16 << 20;

/// Services that a translation uses.
pub trait XlateHost {
    /// Allocates an id for a frozen state, held for the translation's owner; `None` if none is left.
    fn recirc_hold(&mut self, state: FrozenState) -> Option<RecircId>;
    /// The state of an id.
    fn recirc_state(&mut self, id: RecircId) -> Option<Arc<FrozenState>>;
    /// With effects allowed, adds the rule; otherwise tells whether that would succeed.
    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow) -> Learning;
    /// The next hop of a destination.
    ///
    /// # Errors
    /// There is none.
    fn route(&mut self, native: &NativeTunnels, query: &Query) -> Result<Hop, NoRoute> {
        native.routes.lookup(query)
    }
    /// A packet from a tunnel shows a neighbour of a bridge.
    fn neighbour_seen(&mut self, _native: &NativeTunnels, _bridge: BridgeId, _ip: IpAddr, _mac: MacAddr) {}
    /// The time.
    fn now_ms(&self) -> u64 {
        0
    }
    /// Features of the datapath.
    fn capabilities(&self) -> Capabilities {
        Capabilities::ENOUGH
    }
    /// With a packet and effects allowed, reads its message about multicast groups and applies it. Returns what happened.
    fn snoop(&mut self, _snooped: &Snooped<'_>) -> Option<String> {
        None
    }
    /// Whether a packet is translated, with effects, rather than a flow.
    fn has_effects(&self) -> bool {
        false
    }
}

/// Start of a translation.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// Table 0, or the frozen state of the flow's recirculation id.
    Tables,
    /// These actions (packet-out).
    Actions(&'a [Action]),
    /// A frozen state that a controller resumes.
    Resume(&'a FrozenState),
}

/// Input of a translation.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Bridges and tables.
    pub view: &'a View,
    /// The bridge of the packet's input port.
    pub bridge: BridgeId,
    /// The packet; its input port is an OpenFlow port of that bridge.
    pub flow: &'a Flow,
    /// Where to start.
    pub start: Start<'a>,
    /// Record the trace for `ofproto/trace`.
    pub trace: bool,
}

/// Outcome of a `learn` action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Learning {
    /// The rule exists.
    Done,
    /// The rule may be added.
    Possible,
    /// The table has no place for it, for instance below the limit of the action.
    Refused,
}

/// Result of a translation.
#[derive(Debug, Default)]
pub struct Translation {
    /// Actions for this packet.
    pub actions: Vec<DpAction>,
    /// Examined bits of the flow.
    pub wc: Mask,
    /// Mappings of the tunnel metadata in `wc`.
    pub tlv: Arc<TlvTable>,
    /// Reasons for keeping the flow in the slow path, bits of [`dpif::SlowReason`]; 0: none.
    pub slow_reasons: u16,
    /// The datapath's meter of packets that take the slow path, if the bridge has it.
    pub slow_meter: Option<u32>,
    /// The error that ended the translation, if any: nothing is sent.
    pub error: Option<XlateDrop>,
    /// Its text for the log, unless it is configured behaviour.
    pub fault: Option<String>,
    /// Ports of a loop of patch ports that made it too deep.
    pub patch_loop: Option<String>,
    /// Effects, to be replayed.
    pub cache: XlateCache,
    /// Its lookups, for the test whether a change affects it.
    pub lookups: Lookups,
    /// Recirculation ids held for this translation; the holder of its actions releases them.
    pub recircs: Vec<RecircId>,
    /// The final flow.
    pub final_flow: Flow,
    /// The trace, if requested.
    pub trace: Vec<TraceNode>,
    /// The next packet is to be translated: no flow takes its place.
    pub to_upcall: bool,
    /// Sessions of the switch itself that get the packet.
    pub claimed: Vec<Claimed>,
    /// Tracked copies of the packet, recirculated by `ct` with a table, if the trace is requested.
    pub forks: Vec<Fork>,
}

impl Translation {
    /// The actions to install: they differ from this packet's own if the flow stays in the slow path.
    pub fn actions_to_put(&self) -> Vec<DpAction> {
        match self.slow_reasons {
            0 => self.actions.clone(),
            reasons => {
                let up = DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons }));
                let metered = |id| Sample {
                    probability: u32::MAX,
                    actions: vec![DpAction::Meter(Meter(id)), up.clone()],
                };
                vec![self.slow_meter.map_or_else(|| up.clone(), |id| DpAction::Sample(metered(id)))]
            }
        }
    }
}

/// Translates a flow.
pub fn translate(request: &Request<'_>, host: &mut dyn XlateHost) -> Translation {
    let Some(bridge) = request.view.bridge(request.bridge) else {
        return dropped(request.flow, XlateDrop::BridgeNotFound);
    };
    let mut ctx = XlateCtx::new(request, bridge, host);
    match request.start {
        Start::Actions(actions) => ctx.run_packet_out(actions),
        Start::Resume(state) => ctx.run_resumed(state),
        Start::Tables if request.flow.recirc_id != 0 => ctx.run_frozen(),
        Start::Tables => ctx.run_port_input(),
    }
    ctx.finish()
}

/// The translation of a packet that cannot enter: drop, regardless of its other fields.
pub fn dropped(flow: &Flow, reason: XlateDrop) -> Translation {
    Translation {
        actions: vec![DpAction::Drop(DropAction(reason))],
        wc: masks::always_looked_at(flow),
        error: Some(reason),
        final_flow: *flow,
        ..Translation::default()
    }
}

#[cfg(test)]
mod tests;
