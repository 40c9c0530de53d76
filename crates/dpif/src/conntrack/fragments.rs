//! The reassembly of IP fragments for tracking (`dpctl/ipf-*`).

use super::CtAddresses;
use crate::ops::DpifError;
use std::ops::ControlFlow;

/// An IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Settings and counters of one IP version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FragmentCounts {
    /// Whether fragments are reassembled.
    pub enabled: bool,
    /// Minimum size of all fragments but the last, in bytes.
    pub min_bytes: u32,
    /// Fragments taken.
    pub accepted: u64,
    /// Fragments of complete packets sent on.
    pub completed: u64,
    /// Fragments sent on after their time.
    pub expired: u64,
    /// Fragments below the minimum size.
    pub too_small: u64,
    /// Fragments that overlap others.
    pub overlapped: u64,
    /// Fragments dropped from lists that did not end.
    pub purged: u64,
}

/// Settings and counters of reassembly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FragmentStatus {
    /// Maximum number of fragments held.
    pub max: u32,
    /// Number of fragments held.
    pub held: u32,
    /// Of IPv4.
    pub v4: FragmentCounts,
    /// Of IPv6.
    pub v6: FragmentCounts,
}

/// State of a list of fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FragmentState {
    /// Reassembly failed: the rest is passed on alone.
    Failed,
    /// Neither end was seen.
    Other,
    /// The first fragment was seen.
    First,
    /// The last fragment was seen.
    Last,
    /// Both ends were seen.
    FirstAndLast,
    /// All were seen.
    Complete,
}

impl FragmentState {
    /// Its name in `ipf-get-status -m`.
    pub fn name(self) -> &'static str {
        match self {
            FragmentState::Failed => "reassemble fail",
            FragmentState::Other => "other frag",
            FragmentState::First => "first frag",
            FragmentState::Last => "last frag",
            FragmentState::FirstAndLast => "first/last frag",
            FragmentState::Complete => "complete",
        }
    }
}

/// The fragments of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentList {
    /// Source and destination.
    pub addresses: CtAddresses,
    /// Recirculation id of the packets.
    pub recirc_id: u32,
    /// Identification.
    pub ip_id: u32,
    /// Zone in which they are tracked.
    pub zone: u16,
    /// IP protocol.
    pub proto: u8,
    /// Fragments held.
    pub fragments: u32,
    /// Its state.
    pub state: FragmentState,
}

/// The reassembly of fragments of a tracker. No call waits for packets.
pub trait Fragments {
    /// Settings and counters.
    fn status(&self) -> FragmentStatus;
    /// Enables or disables reassembly. Without it, fragments are invalid to the tracker.
    fn set_enabled(&self, family: IpFamily, enabled: bool);
    /// Sets the minimum size of all fragments but the last, in bytes.
    ///
    /// # Errors
    /// Too small.
    fn set_min_bytes(&self, family: IpFamily, bytes: u32) -> Result<(), DpifError>;
    /// Sets the maximum number of fragments held.
    ///
    /// # Errors
    /// Too large.
    fn set_max(&self, fragments: u32) -> Result<(), DpifError>;
    /// The incomplete lists, one by one, until `each` stops.
    fn lists(&self, each: &mut dyn FnMut(&FragmentList) -> ControlFlow<()>);
}
