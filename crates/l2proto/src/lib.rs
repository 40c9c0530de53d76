//! Engines of protocols between switches, each a state machine without I/O.
//!
//! - [`protocol`]: the interface of a link protocol, [`LinkProtocol`](protocol::LinkProtocol).
//! - [`cfm`]: connectivity fault management (IEEE 802.1ag), as Open vSwitch has it.
//! - [`membership`]: messages about multicast groups, without an engine.
//! - [`bfd`]: bidirectional forwarding detection (RFC 5880 and 5881), as Open vSwitch has it.
//! - [`lacp`]: link aggregation control (IEEE 802.1AX), as Open vSwitch has it.
//! - [`spanning_tree`]: STP and RSTP (IEEE 802.1D).
//! - [`lldp`]: link layer discovery (IEEE 802.1AB) with auto-attach, as Open vSwitch has it.
//!
//! Time and randomness are arguments. Each engine takes received packets, returns packets to send, and tells the time of
//! its next work. The thread `link_protocols` of `sluiced` runs them. Sessions move to another process (`saved`).
//!
//! A protocol is a folder and a row of the list below: datapaths, translations, the database and the control socket find it
//! there (ARCHITECTURE.md, "Adding a link protocol").
#![forbid(unsafe_code)]

pub mod bfd;
pub mod cfm;
pub mod fuzz;
pub mod lacp;
mod lines;
pub mod lldp;
pub mod membership;
pub mod protocol;
pub mod registry;
mod saved;
mod slots;
pub mod spanning_tree;

#[cfg(test)]
mod tests;

pub use saved::{FORMER_MAX, TEXT_BYTES_MAX};

registry::link_protocols! {
    /// Connectivity fault management.
    Cfm, cfm: cfm::Sessions;
    /// Bidirectional forwarding detection.
    Bfd, bfd: bfd::Sessions;
    /// Link aggregation control.
    Lacp, lacp: lacp::Aggregators;
    /// Spanning trees.
    SpanningTree, spanning_tree: spanning_tree::Sessions;
    /// Link layer discovery.
    Lldp, lldp: lldp::Sessions;
}

impl Engines {
    /// The engine of LACP, for readers of its own values.
    pub fn aggregators(&self) -> &lacp::Aggregators {
        &self.lacp
    }
}

impl Protocol {
    /// Name: log module, and word of `slow_path(…)` in datapath actions.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Bit of its packets in slow-path cookies (`enum slow_path_reason` of OVS).
    pub fn ovs_slow_path(self) -> u32 {
        self.row().ovs_slow_path
    }

    /// Reason of `ofproto/trace` for its flows being in the slow path.
    pub fn slow_path_text(self) -> &'static str {
        self.row().slow_path_text
    }

    /// Status columns that it writes.
    pub fn status_columns(self) -> &'static [protocol::StatusColumn] {
        self.row().status_columns
    }

    /// Counter of `coverage/show` for control packets that are lost because too many of a session wait.
    pub fn lost_counter(self) -> &'static str {
        self.row().lost_counter
    }

    /// Effect of a new session on its port.
    pub fn initial_state(self) -> protocol::LinkState {
        self.row().initial_state
    }

    /// Effect of the liveness of its sessions.
    pub fn liveness(self) -> protocol::Liveness {
        self.row().liveness
    }

    /// Whether sessions may stop forwarding or learning; otherwise their state is liveness alone.
    pub fn gates_traffic(self) -> bool {
        self.row().gates_traffic
    }

    /// The payload of a claimed frame, cut to the bytes that sessions read.
    pub fn payload(self, frame: &[u8]) -> Option<&[u8]> {
        let payload = (self.row().payload)(frame)?;
        Some(&payload[..payload.len().min(self.row().payload_bytes_max)])
    }
}

/// Whether packets of this key have the form of control packets of a link protocol. Their upcalls are a class of their own
/// in the queues of datapaths, so that no flood of other upcalls delays or drops them. Their number is bounded per port;
/// whether a session takes them is up to the slow path.
pub fn is_control_packet(key: &flow::FlowKey) -> bool {
    Protocol::ALL.iter().any(|protocol| (protocol.row().is_control_packet)(key))
}
