//! Actions that another datapath lacks, carried out on one packet in its stead ([`with_help`]).
//!
//! Rewrites are done here on a copy of the packet; what sends it somewhere stays that datapath's work, so its ports, meters,
//! connections and flows see what they would have seen.

use super::{ACTIONS_MAX, has_effect, rewrite};
use crate::hash::split_mix;
use dpif::{Capabilities, DpAction, SetAction};
use flow::FlowKey;
use packet::Packet;

/// A packet as it stands, its key, and what is left for the other datapath to do with it.
#[derive(Debug)]
pub struct Part {
    /// The packet, rewritten.
    pub packet: Packet,
    /// Its key.
    pub key: FlowKey,
    /// None of them needs help.
    pub actions: Vec<DpAction>,
}

/// Carries out those of `actions` that a datapath with capabilities `can` lacks, and all rewrites before them; the parts that it
/// is to execute, in order. Samples around such an action are decided by `random`, which moves on. A meter or truncation before
/// one goes with the next part, outer headers for a tunnel with all that follow.
///
/// # Errors
/// An action does not fit the packet, or one before such an action is none of ours ([`DpAction::others_only`]), or they make
/// more parts than [`ACTIONS_MAX`]: nothing is to be executed.
pub fn with_help(
    packet: Packet,
    key: &FlowKey,
    actions: &[DpAction],
    can: &Capabilities,
    random: &mut u64,
) -> Result<Vec<Part>, NoHelp> {
    let mut helper = Helper { can, random, parts: Vec::new() };
    helper.run(packet, *key, actions, Before::default())?;
    Ok(helper.parts)
}

/// An action does not fit its packet, or cannot be carried out here, or there are too many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoHelp;

/// What goes before the actions of a part.
#[derive(Clone, Default)]
struct Before {
    /// Of the next one.
    once: Vec<DpAction>,
    /// Of all: a packet that is executed again has no outer headers yet.
    outer: Option<DpAction>,
}

impl Before {
    /// For a part now.
    fn take(&mut self) -> Before {
        Before { once: std::mem::take(&mut self.once), outer: self.outer.clone() }
    }
}

struct Helper<'a> {
    can: &'a Capabilities,
    random: &'a mut u64,
    parts: Vec<Part>,
}

impl Helper<'_> {
    fn run(
        &mut self,
        mut packet: Packet,
        mut key: FlowKey,
        actions: &[DpAction],
        mut before: Before,
    ) -> Result<(), NoHelp> {
        let helped = actions.iter().rposition(|a| a.needs_help(self.can)).map_or(0, |last| last + 1);
        let (with_help, without) = actions.split_at(helped);
        for action in with_help {
            match action {
                DpAction::Set(SetAction::Tunnel(_)) => before.outer = Some(action.clone()),
                DpAction::Set(_) | DpAction::PushVlan { .. } | DpAction::PopVlan => {
                    if !rewrite(&mut packet, &mut key, action, self.can.max_vlan_headers) {
                        return Err(NoHelp);
                    }
                }
                DpAction::Trunc(_) | DpAction::Meter(_) => before.once.push(action.clone()),
                DpAction::Drop(_) => return Ok(()),
                DpAction::Hash { .. }
                | DpAction::PushMpls { .. }
                | DpAction::PopMpls { .. }
                | DpAction::Ct(_)
                | DpAction::CtClear
                | DpAction::PushEth { .. }
                | DpAction::PopEth
                | DpAction::CheckPktLen { .. }
                | DpAction::DecTtl(_)
                | DpAction::Foreign { .. } => return Err(NoHelp),
                DpAction::Clone(inner) if action.needs_help(self.can) => {
                    self.run(copy(&packet), key, inner, before.take())?;
                }
                DpAction::Sample { probability, actions: inner } if action.needs_help(self.can) => {
                    if *probability != 0 && (split_mix(self.random) >> 32) as u32 <= *probability {
                        self.run(copy(&packet), key, inner, before.take())?;
                    }
                }
                DpAction::Output(_)
                | DpAction::Userspace(_)
                | DpAction::Recirc(_)
                | DpAction::Clone(_)
                | DpAction::Sample { .. } => {
                    before.once.push(action.clone());
                    self.part(copy(&packet), key, before.take())?;
                }
            }
        }
        before.once.extend_from_slice(without);
        if before.once.iter().any(leaves_something) { self.part(packet, key, before) } else { Ok(()) }
    }

    fn part(&mut self, packet: Packet, key: FlowKey, before: Before) -> Result<(), NoHelp> {
        if self.parts.len() >= ACTIONS_MAX {
            return Err(NoHelp);
        }
        let actions = before.outer.into_iter().chain(before.once).collect();
        self.parts.push(Part { packet, key, actions });
        Ok(())
    }
}

/// Whether the action sends the packet somewhere, charges a meter, or keeps its connection.
fn leaves_something(action: &DpAction) -> bool {
    has_effect(action) || action.any(|a| matches!(a, DpAction::Ct(_)))
}

fn copy(packet: &Packet) -> Packet {
    Packet::from_slice(packet.data())
}

#[cfg(test)]
mod tests;
