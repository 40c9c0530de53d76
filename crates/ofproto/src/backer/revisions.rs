//! [`Revisions`]: counters of the events that have flows checked again, by cause, and of rare events of flows.

use sync::{AtomicU64, Ordering};

/// See the module documentation.
#[derive(Default)]
pub struct Revisions {
    /// Translations, of whatever cause.
    pub translations: AtomicU64,
    /// Ports, settings or features changed.
    pub reconfigured: AtomicU64,
    /// Rules, groups or meters changed.
    pub tables: AtomicU64,
    /// Addresses were learned, moved or forgotten.
    pub macs: AtomicU64,
    /// Multicast groups or routers changed.
    pub mcast: AtomicU64,
    /// Ports became able to send, or unable.
    pub toggled: AtomicU64,
    /// Other members of a bond.
    pub bonds: AtomicU64,
    /// Flows that the datapath lost.
    pub lost: AtomicU64,
    /// Upcalls of flows that exist already.
    pub repeated: AtomicU64,
    /// Flows not installed for lack of room.
    pub refused: AtomicU64,
    /// Rounds that lowered the flow limit.
    pub limit_lowered: AtomicU64,
    /// Rounds that raised it.
    pub limit_raised: AtomicU64,
    /// Rules that expired.
    pub expired: AtomicU64,
    /// Removals of all rules of a bridge.
    pub flushed: AtomicU64,
}

/// Counts one event.
pub fn count(events: &AtomicU64) {
    events.fetch_add(1, Ordering::Relaxed);
}
