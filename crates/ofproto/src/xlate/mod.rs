//! Translation: a packet's flow through the OpenFlow tables to datapath actions and the mask of what was looked at.
//!
//! [`translate`] is a pure function of a [`View`] and the flow, apart from what it asks its [`XlateHost`]. What else a
//! packet causes (rule counters, learned addresses and rules) is gathered as an [`XlateCache`], which the caller replays:
//! once for the packet itself before it is sent, later with the counters of the megaflow.
//!
//! Bounds: [`MAX_DEPTH`], [`MAX_NESTING`], [`MAX_RESUBMITS`], [`MAX_ACTIONS`], [`MAX_STACK`]; each ends the translation with its own
//! [`XlateDrop`].

mod actions;
mod cache;
mod commit;
mod ctx;
mod learn;
mod normal;
mod output;
mod trace;

pub use cache::{EffectHost, LearnedFlow, XlateCache, XlateEffect};
pub use trace::{TraceEvent, TraceNode, render_trace};

use crate::ports::BridgeId;
use crate::recirc::FrozenState;
use crate::view::View;
use ctx::XlateCtx;
use dpif::actions::{DropAction, Userspace};
use dpif::{Capabilities, DpAction, UserCookie, XlateDrop};
use flow::{Flow, Mask, RecircId};
use ofp_actions::Action;
use std::sync::Arc;

/// Why a packet that misses goes to the controllers, where that is not for an action's own reason. Numbers beyond `OFPR_*` as
/// in OVS; what a controller is told follows from its version.
pub mod miss_reason {
    /// The rule for packets that miss: priority 0, no match.
    pub const RULE: u8 = 6;
    /// No rule at all.
    pub const NO_RULE: u8 = 7;
}

/// How deep resubmits to the same or an earlier table and patch ports may nest.
pub const MAX_DEPTH: u32 = 64;
/// How deep lookups of any tables may nest.
pub const MAX_NESTING: u32 = 512;
/// How many resubmits one translation may do.
pub const MAX_RESUBMITS: u32 = 4096;
/// How many datapath actions a megaflow may have.
pub const MAX_ACTIONS: usize = 4096;
/// How many values the stack of `push` may hold.
pub const MAX_STACK: usize = 2048;

/// What a translation asks while it runs.
pub trait XlateHost {
    /// An id for a frozen state, held for the translation's owner; `None` when there is none left.
    fn recirc_hold(&mut self, state: FrozenState) -> Option<RecircId>;
    /// What an id stands for.
    fn recirc_state(&mut self, id: RecircId) -> Option<Arc<FrozenState>>;
    /// Whether adding this rule succeeds (its table's `limit` is not reached, or it is there already). With effects
    /// allowed the rule is added.
    fn learn(&mut self, bridge: BridgeId, learned: &LearnedFlow) -> bool;
    /// What the datapath can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::ENOUGH
    }
    /// Whether a packet is translated, whose effects will be carried out, rather than a flow.
    fn has_effects(&self) -> bool {
        false
    }
}

/// Where a translation starts.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// At table 0, or where the flow's recirculation id froze.
    Tables,
    /// With these actions (packet-out).
    Actions(&'a [Action]),
}

/// What is to be translated.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Bridges and tables.
    pub view: &'a View,
    /// The bridge whose port the packet came in by.
    pub bridge: BridgeId,
    /// The packet; its input port is an OpenFlow port of that bridge.
    pub flow: &'a Flow,
    /// Where to start.
    pub start: Start<'a>,
    /// Record the story for `ofproto/trace`.
    pub trace: bool,
}

/// What became of a translation.
#[derive(Debug, Default)]
pub struct Translation {
    /// What to do with this packet.
    pub actions: Vec<DpAction>,
    /// Bits of the flow that were looked at.
    pub wc: Mask,
    /// Why the flow must stay in the slow path, bits of [`dpif::slow_reason`]; 0: it need not.
    pub slow_reasons: u16,
    /// Why nothing is sent, if an error ended the translation.
    pub error: Option<XlateDrop>,
    /// The same in words, for the log, unless configuration wants it so.
    pub fault: Option<String>,
    /// Effects, to be replayed.
    pub cache: XlateCache,
    /// Recirculation ids held for this translation; whoever keeps its actions keeps them, then releases them.
    pub recircs: Vec<RecircId>,
    /// The flow as it was at the end.
    pub final_flow: Flow,
    /// The story, when asked for.
    pub trace: Vec<TraceNode>,
}

impl Translation {
    /// The actions to install: they differ from this packet's own when the flow stays in the slow path.
    pub fn actions_to_put(&self) -> Vec<DpAction> {
        match self.slow_reasons {
            0 => self.actions.clone(),
            reasons => vec![DpAction::Userspace(Userspace(UserCookie::SlowPath { reasons }))],
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
        Start::Tables if request.flow.recirc_id != 0 => ctx.run_frozen(),
        Start::Tables => ctx.run_port_input(),
    }
    ctx.finish()
}

/// The translation of a packet that cannot enter: it is dropped, whatever else it carries.
pub fn dropped(flow: &Flow, reason: XlateDrop) -> Translation {
    Translation {
        actions: vec![DpAction::Drop(DropAction(reason))],
        wc: ctx::always_looked_at(flow),
        error: Some(reason),
        final_flow: *flow,
        ..Translation::default()
    }
}

#[cfg(test)]
mod tests;
