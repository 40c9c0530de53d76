//! State of reassembly as values, with the text of `dpctl/ipf-get-status`.

use std::fmt;
use std::net::IpAddr;

/// Settings and counters of one address family. Counters count fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FamilyStatus {
    /// Whether fragments are held.
    pub enabled: bool,
    /// Minimum bytes from the IP header on of a fragment that is not the last one.
    pub min_fragment_bytes: u32,
    /// Held until their datagram was complete, or still.
    pub accepted: u64,
    /// Of complete datagrams.
    pub completed: u64,
    /// Ended after 15 seconds without the rest of their datagram.
    pub expired: u64,
    /// Refused: too small.
    pub too_small: u64,
    /// Refused: repeated bytes, or a second end.
    pub overlapped: u64,
    /// Ended as `expired`, 10 seconds or more too late.
    pub purged: u64,
    /// Refused: no place, or too many of one datagram. OVS has no such counter.
    pub too_many: u64,
    /// Ended because another port had less than its share of places. Not in OVS.
    pub evicted: u64,
}

/// The fragments that a held datagram has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListState {
    /// Neither the first nor the last one.
    Other,
    /// The first one.
    First,
    /// The last one.
    Last,
    /// Both.
    FirstLast,
    /// All, but they exceed a datagram's 65,535 bytes.
    Failed,
}

impl fmt::Display for ListState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListState::Other => "other frag",
            ListState::First => "first frag",
            ListState::Last => "last frag",
            ListState::FirstLast => "first/last frag",
            ListState::Failed => "reassemble fail",
        })
    }
}

/// A datagram with held fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpfList {
    /// Source.
    pub src: IpAddr,
    /// Destination, of the same family.
    pub dst: IpAddr,
    /// Recirculation id of the packets.
    pub recirc_id: u32,
    /// Identification of the datagram: 16 bits for IPv4, 32 for IPv6.
    pub id: u32,
    /// Connection zone.
    pub zone: u16,
    /// IP protocol; 0 for IPv6.
    pub proto: u8,
    /// Number of held fragments.
    pub fragments: u32,
    /// Which ones.
    pub state: ListState,
}

impl fmt::Display for IpfList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dl_type = if self.src.is_ipv6() { 0x86dd } else { 0x800 };
        let IpfList { src, dst, recirc_id, id, zone, proto, fragments, state } = self;
        write!(f, "(src={src},dst={dst},recirc_id={recirc_id},ip_id={id},dl_type={dl_type:#x},zone={zone},")?;
        write!(f, "nw_proto={proto},num_fragments={fragments},state={state})")
    }
}

/// Status of reassembly. As text: the reply of `dpctl/ipf-get-status` without lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpfStatus {
    /// Maximum fragments held.
    pub max_fragments: u32,
    /// Fragments held now.
    pub fragments: u32,
    /// Of IPv4.
    pub v4: FamilyStatus,
    /// Of IPv6.
    pub v6: FamilyStatus,
}

impl fmt::Display for IpfStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MARGIN: &str = "        ";
        writeln!(f, "{MARGIN}Fragmentation Module Status\n{MARGIN}---------------------------")?;
        for (name, family) in [("v4", &self.v4), ("v6", &self.v6)] {
            writeln!(f, "{MARGIN}{name} enabled: {}", u8::from(family.enabled))?;
        }
        writeln!(f, "{MARGIN}max num frags (v4/v6): {}", self.max_fragments)?;
        writeln!(f, "{MARGIN}num frag: {}", self.fragments)?;
        for (name, family) in [("v4", &self.v4), ("v6", &self.v6)] {
            writeln!(f, "{MARGIN}min {name} frag size: {}", family.min_fragment_bytes)?;
            for (what, count) in [
                ("accepted", family.accepted),
                ("completed", family.completed),
                ("expired", family.expired),
                ("too small", family.too_small),
                ("overlapped", family.overlapped),
                ("purged", family.purged),
            ] {
                writeln!(f, "{MARGIN}{name} frags {what}: {count}")?;
            }
        }
        Ok(())
    }
}
