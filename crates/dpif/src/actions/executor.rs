//! [`Executor`]: interface of a datapath to the actions that it executes.

use super::set::SetAction;
use super::{
    AddMpls, CtAction, DpAction, HashAction, PopMpls, Psample, PushEth, PushMpls, PushNsh, PushVlan, TnlPush,
};
use crate::drops::XlateDrop;
use crate::upcall::UserCookie;
use flow::{DpPort, RecircId};

/// A datapath executing an action: on one packet or several, which each method takes, and returns if they continue
/// with the list.
///
/// It knows the action's index in its list, so an action calls at most one method with an effect outside of the
/// packet.
pub trait Executor {
    /// Packets that continue with the list.
    type Packets;

    /// Reason for ending it.
    type End;

    /// Sends them to a port.
    fn output(&mut self, packets: Self::Packets, port: DpPort) -> ExecResult<Self>;

    /// Sends each to the member of a bond that its hash chooses.
    fn balance(&mut self, packets: Self::Packets, bond: u32) -> ExecResult<Self>;

    /// Sends them to the slow path.
    fn userspace(&mut self, packets: Self::Packets, cookie: &UserCookie) -> ExecResult<Self>;

    /// Recirculates them.
    fn recirculate(&mut self, packets: Self::Packets, id: RecircId) -> ExecResult<Self>;

    /// Rewrites headers or metadata; drops packets that it does not fit.
    fn rewrite(&mut self, packets: Self::Packets, rewrite: Rewrite<'_>) -> ExecResult<Self>;

    /// Truncates the packets of the next output or upcall.
    fn truncate(&mut self, packets: Self::Packets, bytes: u32) -> ExecResult<Self>;

    /// Applies a meter, which drops packets beyond its rate.
    fn meter(&mut self, packets: Self::Packets, id: u32) -> ExecResult<Self>;

    /// Passes them through the connection tracker, which may translate, hold or drop them.
    fn track(&mut self, packets: Self::Packets, ct: &CtAction) -> ExecResult<Self>;

    /// Clears their connection tracking state.
    fn clear_tracking(&mut self, packets: Self::Packets) -> ExecResult<Self>;

    /// Pushes the outer headers of a tunnel, which may cut a large segment into several packets.
    fn push_tunnel(&mut self, packets: Self::Packets, push: &TnlPush) -> ExecResult<Self>;

    /// Removes the outer headers of a tunnel, and recirculates the packets as received from its port.
    fn pop_tunnel(&mut self, packets: Self::Packets, port: DpPort) -> ExecResult<Self>;

    /// Executes actions on copies.
    fn on_copies(&mut self, packets: Self::Packets, actions: &[DpAction]) -> ExecResult<Self>;

    /// Executes actions on copies with a probability of `probability / u32::MAX`.
    fn sample(&mut self, packets: Self::Packets, probability: u32, actions: &[DpAction]) -> ExecResult<Self>;

    /// Hands a copy of each to readers of samples.
    fn psample(&mut self, packets: Self::Packets, sample: &Psample) -> ExecResult<Self>;

    /// Executes `greater` on copies of packets longer than `len` bytes, `less` on copies of the others. A large segment
    /// counts as the frames that it becomes.
    fn by_length(
        &mut self,
        packets: Self::Packets,
        len: u16,
        greater: &[DpAction],
        less: &[DpAction],
    ) -> ExecResult<Self>;

    /// Drops them on request of a translation.
    fn drop_packets(&mut self, packets: Self::Packets, reason: XlateDrop) -> ExecResult<Self>;

    /// Drops them: only the kernel executes the action ([`DpAction::userspace_lacks`]).
    fn unsupported(&mut self, packets: Self::Packets) -> ExecResult<Self>;
}

/// Packets that continue with their list, or the reason for ending it.
pub type ExecResult<X> = Result<<X as Executor>::Packets, <X as Executor>::End>;

/// A rewrite of headers or metadata.
#[derive(Clone, Copy, Debug)]
pub enum Rewrite<'a> {
    /// Writes fields of a header.
    Set(&'a SetAction),
    /// Pushes a VLAN tag.
    PushVlan(PushVlan),
    /// Pops the outermost VLAN tag.
    PopVlan,
    /// Pushes an MPLS label stack entry.
    PushMpls(PushMpls),
    /// Pops the outermost MPLS label stack entry.
    PopMpls(PopMpls),
    /// Pushes an Ethernet header.
    PushEth(PushEth),
    /// Pops the Ethernet header.
    PopEth,
    /// Pushes a network service header.
    PushNsh(&'a PushNsh),
    /// Pops a network service header.
    PopNsh,
    /// Pushes an MPLS label stack entry before all headers.
    AddMpls(AddMpls),
    /// Sets `dp_hash`.
    Hash(HashAction),
}
