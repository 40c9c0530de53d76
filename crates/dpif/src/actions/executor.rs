//! [`Executor`]: what a datapath offers to the actions that it executes.

use super::set::SetAction;
use super::{DpAction, PushVlan};
use crate::drops::XlateDrop;
use crate::upcall::UserCookie;
use flow::{DpPort, RecircId};

/// A datapath as an action sees it: one packet or several, which each method takes, and gives back if they go on with the list.
///
/// It knows the place of the action in its list, so an action calls at most one method with an effect outside of the packet.
pub trait Executor {
    /// Packets that go on with the list.
    type Packets;

    /// Says why they do not.
    type End;

    /// Sends them out of a port.
    fn output(&mut self, packets: Self::Packets, port: DpPort) -> Goes<Self>;

    /// Hands them to the slow path.
    fn userspace(&mut self, packets: Self::Packets, cookie: &UserCookie) -> Goes<Self>;

    /// Runs them through the datapath again.
    fn recirculate(&mut self, packets: Self::Packets, id: RecircId) -> Goes<Self>;

    /// Changes headers or metadata; drops packets that it does not fit.
    fn rewrite(&mut self, packets: Self::Packets, rewrite: Rewrite<'_>) -> Goes<Self>;

    /// Cuts the packets of the next output or upcall.
    fn truncate(&mut self, packets: Self::Packets, bytes: u32) -> Goes<Self>;

    /// Passes a meter, which drops the packets that exceed it.
    fn meter(&mut self, packets: Self::Packets, id: u32) -> Goes<Self>;

    /// Runs actions on copies.
    fn on_copies(&mut self, packets: Self::Packets, actions: &[DpAction]) -> Goes<Self>;

    /// Runs actions on copies with a probability of `probability / u32::MAX`.
    fn sample(&mut self, packets: Self::Packets, probability: u32, actions: &[DpAction]) -> Goes<Self>;

    /// Drops them as a translation asks.
    fn drop_packets(&mut self, packets: Self::Packets, reason: XlateDrop) -> Goes<Self>;

    /// Drops them: only the kernel executes the action ([`DpAction::userspace_lacks`]).
    fn unsupported(&mut self, packets: Self::Packets) -> Goes<Self>;
}

/// Packets that go on with their list, or why they do not.
pub type Goes<X> = Result<<X as Executor>::Packets, <X as Executor>::End>;

/// A change of headers or metadata.
#[derive(Clone, Copy, Debug)]
pub enum Rewrite<'a> {
    /// Writes fields of a header.
    Set(&'a SetAction),
    /// Pushes a VLAN tag.
    PushVlan(PushVlan),
    /// Pops the outermost VLAN tag.
    PopVlan,
}
