//! The reassembly of IP fragments for tracking (`dpctl/ipf-*`).

use super::CtAddresses;
use crate::ops::DpifError;
use std::fmt;
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
    /// Fragments held until their packet was complete, or still.
    pub accepted: u64,
    /// Fragments of complete packets.
    pub completed: u64,
    /// Fragments dropped after 15 seconds without the rest of their packet.
    pub expired: u64,
    /// Fragments below the minimum size.
    pub too_small: u64,
    /// Fragments that repeat bytes, or contradict the end of their packet.
    pub overlapped: u64,
    /// Fragments dropped as `expired`, 10 seconds or more too late.
    pub purged: u64,
    /// Fragments refused because no place was free, or their packet had too many. OVS has no such counter.
    pub too_many: u64,
    /// Fragments dropped because another port had less than its share of places. Not in OVS.
    pub evicted: u64,
    /// Fragments with a wrong checksum of their header (`coverage/show`).
    pub bad_checksum: u64,
}

/// Settings and counters of reassembly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FragmentStatus {
    /// Maximum number of fragments held.
    pub max: u32,
    /// Number of fragments held.
    pub held: u32,
    /// Counts of IPv4.
    pub v4: FragmentCounts,
    /// Counts of IPv6.
    pub v6: FragmentCounts,
}

/// The reply of `ipf-get-status`, without lists.
impl fmt::Display for FragmentStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MARGIN: &str = "        ";
        let families = [("v4", &self.v4), ("v6", &self.v6)];
        writeln!(f, "{MARGIN}Fragmentation Module Status\n{MARGIN}---------------------------")?;
        for (name, family) in families {
            writeln!(f, "{MARGIN}{name} enabled: {}", u8::from(family.enabled))?;
        }
        writeln!(f, "{MARGIN}max num frags (v4/v6): {}", self.max)?;
        writeln!(f, "{MARGIN}num frag: {}", self.held)?;
        for (name, family) in families {
            writeln!(f, "{MARGIN}min {name} frag size: {}", family.min_bytes)?;
            for (counter, count) in [
                ("accepted", family.accepted),
                ("completed", family.completed),
                ("expired", family.expired),
                ("too small", family.too_small),
                ("overlapped", family.overlapped),
                ("purged", family.purged),
            ] {
                writeln!(f, "{MARGIN}{name} frags {counter}: {count}")?;
            }
        }
        Ok(())
    }
}

/// State of a list of fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FragmentState {
    /// All were seen, but they exceed a packet's 65,535 bytes.
    Failed,
    /// Neither end was seen.
    Other,
    /// The first fragment was seen.
    First,
    /// The last fragment was seen.
    Last,
    /// Both ends were seen.
    FirstAndLast,
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
    /// Identification: 16 bits for IPv4, 32 for IPv6.
    pub ip_id: u32,
    /// Zone in which they are tracked.
    pub zone: u16,
    /// IP protocol; 0 for IPv6.
    pub proto: u8,
    /// Fragments held.
    pub fragments: u32,
    /// Its state.
    pub state: FragmentState,
}

/// The line of `ipf-get-status -m`.
impl fmt::Display for FragmentList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [src, dst] = self.addresses.both();
        let eth_type = if src.is_ipv4() { 0x0800 } else { 0x86dd };
        let FragmentList { addresses: _, recirc_id, ip_id, zone, proto, fragments, state } = self;
        write!(
            f,
            "(src={src},dst={dst},recirc_id={recirc_id},ip_id={ip_id},dl_type={eth_type:#x},zone={zone},"
        )?;
        write!(f, "nw_proto={proto},num_fragments={fragments},state={})", state.name())
    }
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
