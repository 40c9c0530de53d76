//! Packet-ins: made during translation, or from packets sent up by the datapath.
//!
//! The first packet of a flow to a controller needs no second upcall: [`take`] makes its packet-ins from the packet
//! at each point of its actions and leaves the rest to the datapath. From the first action with an unpredictable
//! effect on, the datapath executes all actions in order (a meter decides there, also the one of all packet-ins).
//! The megaflow has all actions in any case. Without a listening controller, nothing is made and no thread is woken
//! ([`Listeners`](crate::view::Listeners)).
//!
//! Controllers get frames as a device would send them: checksums complete, large segments cut.
//!
//! Caller: the handler, for packets that it translates. The datapath executes packet-outs.

use crate::backer::Backer;
use crate::events::PacketInEvent;
use crate::sampling::is_sampling;
use crate::view::View;
use dpif::actions::{ExecResult, Executor, Psample, Rewrite, TnlPush, Userspace};
use dpif::{ControllerCookie, CtAction, DpAction, Upcall, UserCookie, XlateDrop};
use flow::{DpPort, FlowKey, RecircId};
use packet::{Packet, PacketBatch, PacketPool, complete_checksum, segment};
use std::borrow::Cow;
use std::sync::Arc;
use sync::Ordering;

/// Remaining actions of a packet.
pub(super) struct Remaining {
    pub(super) actions: Arc<[DpAction]>,
    /// The packet went to controllers.
    pub(super) went_on: bool,
}

fn for_controller(action: &DpAction) -> Option<&ControllerCookie> {
    if let DpAction::Userspace(Userspace(UserCookie::Controller(cookie))) = action {
        Some(cookie)
    } else {
        None
    }
}

/// The packet of an upcall on its path through its actions.
struct Frame<'a> {
    packet: Cow<'a, Packet>,
    key: FlowKey,
}

/// State of a packet before an action: certain to pass, with its contents, or left to the datapath.
struct PacketExecutor<'a, 'p> {
    backer: &'a Backer,
    vlan_limit: u8,
    frame: &'a mut Frame<'p>,
}

/// Only the datapath determines whether the packet passes.
struct Unsure;

impl Executor for PacketExecutor<'_, '_> {
    type Packets = ();
    type End = Unsure;

    fn output(&mut self, (): (), _port: DpPort) -> ExecResult<Self> {
        Ok(())
    }

    fn balance(&mut self, (): (), _bond: u32) -> ExecResult<Self> {
        Ok(())
    }

    fn recirculate(&mut self, (): (), _id: RecircId) -> ExecResult<Self> {
        Ok(())
    }

    fn rewrite(&mut self, (): (), rewrite: Rewrite<'_>) -> ExecResult<Self> {
        let Some(change) = &self.backer.rewrite else { return Err(Unsure) };
        let passes = change(self.frame.packet.to_mut(), &mut self.frame.key, rewrite, self.vlan_limit);
        if passes { Ok(()) } else { Err(Unsure) }
    }

    fn userspace(&mut self, (): (), cookie: &UserCookie) -> ExecResult<Self> {
        // A sample is a copy.
        if cookie.is_sample() { Ok(()) } else { Err(Unsure) }
    }

    fn truncate(&mut self, (): (), _bytes: u32) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn meter(&mut self, (): (), _id: u32) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn track(&mut self, (): (), _ct: &CtAction) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn clear_tracking(&mut self, (): ()) -> ExecResult<Self> {
        self.frame.key.clear_tracking();
        Ok(())
    }

    fn push_tunnel(&mut self, (): (), _push: &TnlPush) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn pop_tunnel(&mut self, (): (), _port: DpPort) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn on_copies(&mut self, (): (), _actions: &[DpAction]) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn sample(&mut self, (): (), _probability: u32, actions: &[DpAction]) -> ExecResult<Self> {
        if actions.last().is_some_and(is_sampling) { Ok(()) } else { Err(Unsure) }
    }

    fn psample(&mut self, (): (), _sample: &Psample) -> ExecResult<Self> {
        Ok(())
    }

    fn by_length(
        &mut self,
        (): (),
        _len: u16,
        _greater: &[DpAction],
        _less: &[DpAction],
    ) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn drop_packets(&mut self, (): (), _reason: XlateDrop) -> ExecResult<Self> {
        Err(Unsure)
    }

    fn unsupported(&mut self, (): ()) -> ExecResult<Self> {
        Err(Unsure)
    }
}

/// Makes the packet-ins of `actions` and returns the remaining actions.
pub(super) fn take(backer: &Backer, view: &View, upcall: &Upcall, actions: Arc<[DpAction]>) -> Remaining {
    let Some(last) = actions.iter().rposition(|a| for_controller(a).is_some()) else {
        return Remaining { actions, went_on: false };
    };
    let mut frame = Frame { packet: Cow::Borrowed(&upcall.packet), key: upcall.key };
    let mut rest = Vec::with_capacity(actions.len());
    let mut done = 0;
    for action in &actions[..=last] {
        if let Some(cookie) = for_controller(action) {
            made(backer, view, &frame, *cookie);
        } else if action
            .execute(&mut PacketExecutor { backer, vlan_limit: view.vlan_limit, frame: &mut frame }, ())
            .is_ok()
        {
            rest.push(action.clone());
        } else {
            break;
        }
        done += 1;
    }
    let went_on = rest.len() < done;
    rest.extend_from_slice(&actions[done..]);
    Remaining { actions: rest.into(), went_on }
}

fn made(backer: &Backer, view: &View, frame: &Frame<'_>, cookie: ControllerCookie) {
    backer.packet_ins_made.fetch_add(1, Ordering::Relaxed);
    queue(backer, view, cookie, || ((*frame.packet).clone(), frame.key));
}

/// A packet sent up by the datapath for controllers.
pub(super) fn handed_up(backer: &Backer, view: &View, upcall: Upcall, cookie: ControllerCookie) {
    queue(backer, view, cookie, || (upcall.packet, upcall.key));
}

/// Queues a packet for the controllers, if one of them listens.
fn queue(backer: &Backer, view: &View, cookie: ControllerCookie, make: impl FnOnce() -> (Packet, FlowKey)) {
    let Some(state) = backer.recirc_state(cookie.recirc_id) else {
        // The packet waited so long that its flow is removed.
        backer.packet_ins_lost.fetch_add(1, Ordering::Relaxed);
        return;
    };
    let wanted = view.bridge(state.bridge).is_some_and(|b| b.listeners.want(cookie.controller_id));
    if !wanted {
        backer.packet_ins_unwanted.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let (packet, key) = make();
    let paused_in = cookie.continuation.then(|| backer.bridge_uuid(state.bridge));
    for packet in wire_frames(packet).drain() {
        backer.queue_packet_in(PacketInEvent { state: Arc::clone(&state), cookie, packet, key, paused_in });
    }
}

/// The frames that a device without offloads would send for `packet`. A large segment that cannot be cut stays whole.
fn wire_frames(mut packet: Packet) -> PacketBatch {
    let mut frames = PacketBatch::new();
    if !packet.offload.is_gso() || segment(&packet, &mut PacketPool::new(), &mut frames).is_err() {
        complete_checksum(&mut packet);
        frames.push(packet);
    }
    frames
}

#[cfg(test)]
mod tests;
