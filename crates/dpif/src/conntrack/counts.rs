//! Counters of connections by zone, and reasons for refusals.

/// Reason why the connection of a packet is not committed. `as usize` indexes [`CtCounts::refused`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum CtRefusal {
    /// All places are taken.
    Full,
    /// The zone is at its limit.
    ZoneLimit,
    /// The free places are kept for other input ports.
    PortShare,
    /// No translated tuple is free.
    NatExhausted,
}

impl CtRefusal {
    /// Number of reasons.
    pub const COUNT: usize = 4;
    /// All reasons, in numeric order.
    pub const ALL: [CtRefusal; CtRefusal::COUNT] =
        [CtRefusal::Full, CtRefusal::ZoneLimit, CtRefusal::PortShare, CtRefusal::NatExhausted];

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            CtRefusal::Full => "full",
            CtRefusal::ZoneLimit => "zone_limit",
            CtRefusal::PortShare => "port_share",
            CtRefusal::NatExhausted => "nat_exhausted",
        }
    }

    /// Its counter in `coverage/show`: the stock switches' name, if any.
    pub fn counter(self) -> &'static str {
        match self {
            CtRefusal::Full => "conntrack_full",
            CtRefusal::ZoneLimit => "conntrack_zone_full",
            CtRefusal::PortShare => "conntrack_port_full",
            CtRefusal::NatExhausted => "conntrack_nat_exhausted",
        }
    }
}

/// Connections of a zone or of all zones; the counters start with the tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CtCounts {
    /// Connections now, expired ones included that are not removed yet.
    pub connections: u32,
    /// Connections created.
    pub created: u64,
    /// Connections ended.
    pub ended: u64,
    /// Connections refused, by [`CtRefusal`].
    pub refused: [u64; CtRefusal::COUNT],
}

impl CtCounts {
    /// Adds those of another zone.
    pub fn add(&mut self, other: &CtCounts) {
        self.connections = self.connections.saturating_add(other.connections);
        self.created += other.created;
        self.ended += other.ended;
        self.refused.iter_mut().zip(other.refused).for_each(|(sum, n)| *sum += n);
    }

    /// Refused connections by name of the reason, in numeric order.
    pub fn refused_by_name(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CtRefusal::ALL.into_iter().zip(self.refused).map(|(why, n)| (why.name(), n))
    }
}

/// Connections of one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CtZoneCounts {
    /// Its number.
    pub zone: u16,
    /// Its limit, which may be the default; `None` is no limit.
    pub limit: Option<u32>,
    /// Its counters.
    pub counts: CtCounts,
}

/// Connections of a tracker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CtStatistics {
    /// Maximum number of connections.
    pub maximum: u32,
    /// Counters of all zones.
    pub all: CtCounts,
    /// Number of zones that had a connection or a refusal.
    pub zones_used: u32,
    /// The busiest of them, in order of their numbers.
    pub zones: Vec<CtZoneCounts>,
}
