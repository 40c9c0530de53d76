//! Actions that another datapath lacks, emulated on one packet ([`emulate`]).
//!
//! Rewrites happen here on a copy of the packet; the other datapath still sends it, so its ports, meters,
//! connections and flows see the expected packets.

use super::rewrite;
use crate::hash::split_mix;
use dpif::actions::{self, ExecResult, Psample, Rewrite, TnlPush};
use dpif::{Capabilities, CtAction, DpAction, FLOW_ACTIONS_MAX, SetAction, UserCookie, XlateDrop};
use flow::{DpPort, FlowKey, RecircId};
use packet::{Packet, frame_bytes};

/// A packet at a point of its actions, its key, and the actions left to the other datapath.
#[derive(Debug)]
pub struct EmulatedPart {
    /// The rewritten packet.
    pub packet: Packet,
    /// Its key.
    pub key: FlowKey,
    /// Actions without need of emulation.
    pub actions: Vec<DpAction>,
}

/// Executes those of `actions` that a datapath with capabilities `can` lacks, and all rewrites before them; returns
/// the parts for that datapath, in order. `random` decides samples around such an action, and advances. A meter or
/// truncation before one goes with the next part, outer headers of a tunnel with all that follow.
///
/// # Errors
/// An action does not fit the packet, an action before an emulated one is unsupported here
/// ([`DpAction::userspace_lacks`], connection tracking), or there are more parts than [`FLOW_ACTIONS_MAX`]: nothing is to be executed.
pub fn emulate(
    packet: Packet,
    key: &FlowKey,
    actions: &[DpAction],
    can: &Capabilities,
    random: &mut u64,
) -> Result<Vec<EmulatedPart>, CannotEmulate> {
    let mut emulator = Emulator { can, random, parts: Vec::new() };
    emulator.run(Frame { packet, key: *key, before: Before::default() }, actions)?;
    Ok(emulator.parts)
}

/// An action does not fit its packet, or is unsupported here, or there are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CannotEmulate;

/// Actions prepended to a part.
#[derive(Clone, Default)]
struct Before {
    /// To the next part.
    once: Vec<DpAction>,
    /// To all parts: a packet executed again has no outer headers yet.
    outer: Option<DpAction>,
}

/// A packet during its actions.
struct Frame {
    packet: Packet,
    key: FlowKey,
    before: Before,
}

impl Frame {
    /// A copy with all actions prepended to its next part.
    fn copy(&mut self) -> Frame {
        let before = Before { once: std::mem::take(&mut self.before.once), outer: self.before.outer.clone() };
        Frame { packet: Packet::from_slice(self.packet.data()), key: self.key, before }
    }
}

/// Reason for ending a list.
enum End {
    Dropped,
    Cannot,
}

struct Emulator<'a> {
    can: &'a Capabilities,
    random: &'a mut u64,
    parts: Vec<EmulatedPart>,
}

impl Emulator<'_> {
    fn run(&mut self, mut frame: Frame, actions: &[DpAction]) -> Result<(), CannotEmulate> {
        let emulated = actions.iter().rposition(|a| a.needs_emulation(self.can)).map_or(0, |last| last + 1);
        let (emulated, others) = actions.split_at(emulated);
        for action in emulated {
            match action.execute(&mut Step { emulator: self, action }, frame) {
                Ok(rest) => frame = rest,
                Err(End::Dropped) => return Ok(()),
                Err(End::Cannot) => return Err(CannotEmulate),
            }
        }
        frame.before.once.extend_from_slice(others);
        if frame.before.once.iter().any(DpAction::has_effect) { self.part(frame) } else { Ok(()) }
    }

    fn part(&mut self, frame: Frame) -> Result<(), CannotEmulate> {
        if self.parts.len() >= FLOW_ACTIONS_MAX {
            return Err(CannotEmulate);
        }
        let Frame { packet, key, before } = frame;
        let actions = before.outer.into_iter().chain(before.once).collect();
        self.parts.push(EmulatedPart { packet, key, actions });
        Ok(())
    }
}

/// Handles an action that is emulated, or precedes one.
struct Step<'a, 'e> {
    emulator: &'a mut Emulator<'e>,
    action: &'a DpAction,
}

impl Step<'_, '_> {
    /// Begins the next part with the action.
    fn put_off(&mut self, mut frame: Frame) -> Result<Frame, End> {
        frame.before.once.push(self.action.clone());
        Ok(frame)
    }

    /// Ends a part with the action.
    fn hand_over(&mut self, frame: Frame) -> Result<Frame, End> {
        let mut frame = self.put_off(frame)?;
        self.emulator.part(frame.copy()).map_err(|CannotEmulate| End::Cannot)?;
        Ok(frame)
    }

    /// A nested list: executed here if it has an emulated action.
    fn nested(&mut self, mut frame: Frame, actions: &[DpAction]) -> Result<Frame, End> {
        self.emulator.run(frame.copy(), actions).map_err(|CannotEmulate| End::Cannot)?;
        Ok(frame)
    }

    fn is_emulated(&self) -> bool {
        self.action.needs_emulation(self.emulator.can)
    }
}

impl actions::Executor for Step<'_, '_> {
    type Packets = Frame;
    type End = End;

    fn output(&mut self, frame: Frame, _port: DpPort) -> ExecResult<Self> {
        self.hand_over(frame)
    }

    fn balance(&mut self, _frame: Frame, _bond: u32) -> ExecResult<Self> {
        Err(End::Cannot)
    }

    fn userspace(&mut self, frame: Frame, _cookie: &UserCookie) -> ExecResult<Self> {
        self.hand_over(frame)
    }

    fn recirculate(&mut self, frame: Frame, _id: RecircId) -> ExecResult<Self> {
        self.hand_over(frame)
    }

    fn rewrite(&mut self, mut frame: Frame, change: Rewrite<'_>) -> ExecResult<Self> {
        if let Rewrite::Set(SetAction::Tunnel(_)) = change {
            frame.before.outer = Some(self.action.clone());
            return Ok(frame);
        }
        let vlan_limit = self.emulator.can.max_vlan_headers;
        let fits = rewrite(&mut frame.packet, &mut frame.key, change, vlan_limit);
        if fits { Ok(frame) } else { Err(End::Cannot) }
    }

    fn truncate(&mut self, frame: Frame, _bytes: u32) -> ExecResult<Self> {
        self.put_off(frame)
    }

    fn meter(&mut self, frame: Frame, _id: u32) -> ExecResult<Self> {
        self.put_off(frame)
    }

    /// The other datapath knows the connection, but not before it has the packet.
    fn track(&mut self, _frame: Frame, _ct: &CtAction) -> ExecResult<Self> {
        Err(End::Cannot)
    }

    fn clear_tracking(&mut self, _frame: Frame) -> ExecResult<Self> {
        Err(End::Cannot)
    }

    /// The other datapath encapsulates by its ports.
    fn push_tunnel(&mut self, _frame: Frame, _push: &TnlPush) -> ExecResult<Self> {
        Err(End::Cannot)
    }

    fn pop_tunnel(&mut self, _frame: Frame, _port: DpPort) -> ExecResult<Self> {
        Err(End::Cannot)
    }

    fn on_copies(&mut self, frame: Frame, actions: &[DpAction]) -> ExecResult<Self> {
        if self.is_emulated() { self.nested(frame, actions) } else { self.hand_over(frame) }
    }

    fn sample(&mut self, frame: Frame, probability: u32, actions: &[DpAction]) -> ExecResult<Self> {
        if !self.is_emulated() {
            return self.hand_over(frame);
        }
        let fires = probability != 0 && (split_mix(self.emulator.random) >> 32) as u32 <= probability;
        if fires { self.nested(frame, actions) } else { Ok(frame) }
    }

    fn psample(&mut self, frame: Frame, _sample: &Psample) -> ExecResult<Self> {
        self.hand_over(frame)
    }

    fn by_length(
        &mut self,
        frame: Frame,
        len: u16,
        greater: &[DpAction],
        less: &[DpAction],
    ) -> ExecResult<Self> {
        if !self.is_emulated() {
            return self.hand_over(frame);
        }
        let is_greater = frame_bytes(&frame.packet) > usize::from(len);
        self.nested(frame, if is_greater { greater } else { less })
    }

    fn drop_packets(&mut self, _frame: Frame, _reason: XlateDrop) -> ExecResult<Self> {
        Err(End::Dropped)
    }

    fn unsupported(&mut self, _frame: Frame) -> ExecResult<Self> {
        Err(End::Cannot)
    }
}

#[cfg(test)]
mod tests;
