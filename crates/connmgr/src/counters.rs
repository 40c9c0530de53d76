//! [`ConnCounters`]: counters of connections.

use openflow::session::MessageCounts;

/// Counters of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnCounters {
    /// Packets sent to controllers.
    pub packet_ins: u64,
    /// Packets for controllers dropped.
    pub packet_ins_dropped: u64,
    /// Dropped packets among these because too many were unsent.
    pub packet_ins_unsent: u64,
    /// Other events dropped.
    pub events_dropped: u64,
    /// Requests to send a packet, outside of bundles.
    pub packet_outs: u64,
    /// Ports added, removed and changed.
    pub ports_changed: u64,
    /// Messages.
    pub messages: MessageCounts,
}

impl ConnCounters {
    /// Adds the counters of another connection.
    pub fn add(&mut self, other: &ConnCounters) {
        self.packet_ins += other.packet_ins;
        self.packet_ins_dropped += other.packet_ins_dropped;
        self.packet_ins_unsent += other.packet_ins_unsent;
        self.events_dropped += other.events_dropped;
        self.packet_outs += other.packet_outs;
        self.ports_changed += other.ports_changed;
        self.messages.add(&other.messages);
    }

    /// The counters of ended connections.
    pub fn ended(self) -> ConnCounters {
        ConnCounters { messages: self.messages.ended(), ..self }
    }
}
