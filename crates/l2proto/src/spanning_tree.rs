//! Spanning trees: STP (IEEE 802.1D-1998) and RSTP (IEEE 802.1D-2004) in the extent of Open vSwitch.
//!
//! - [`Bpdu`]: a message with its frame; `config`: the columns of bridges and ports.
//! - [`stp`], [`rstp`]: one bridge of each protocol; they share no state.
//! - [`Sessions`]: the ports of all bridges, one session for each interface of a bridge with a tree. Ports outside of the tree
//!   have one as well: as in OVS, the bridge takes their BPDUs. The session of the bridge's own port has its status.
//! - `protocol`: the row of the registry of link protocols ([`crate::protocol`]).
//!
//! A port stops before its session knows anything ([`crate::protocol::LinkProtocol::initial_state`]), so no restart and no new
//! port closes a loop.

mod bpdu;
mod config;
mod outbox;
mod protocol;
pub mod rstp;
mod sessions;
pub mod stp;
mod text;

#[cfg(test)]
mod tests;

pub use bpdu::{ADDRESS, Bpdu, Message, SenderRole, Times, Vector, flag, payload};
pub use config::{
    BridgeSettings, PortNumber, PortSettings, Refusal, RstpBridge, RstpPort, Settings, StpBridge,
};
pub use outbox::Outbox;
pub use protocol::Claim;
pub use sessions::Sessions;

use crate::protocol::{LinkPort, LinkState, SessionId, TreePhase, TreeState};
use flow::{MacAddr, OfPort};

/// Columns of the status, of bridges and ports.
const STATUS: &str = "status";
const RSTP_STATUS: &str = "rstp_status";
/// Columns of the counters of ports.
const PORT_STATISTICS: &str = "statistics";
const PORT_RSTP_STATISTICS: &str = "rstp_statistics";

/// Effect of a port that its tree does not know.
const STOPPED: LinkState = LinkState::of_tree(TreeState { is_rapid: false, phase: TreePhase::Disabled });

/// Effect of a session with these settings until its tree knows it.
fn initial_state(settings: &Settings) -> LinkState {
    match settings.port {
        PortSettings::Stp(_) => STOPPED,
        PortSettings::Rstp(..) => {
            LinkState::of_tree(TreeState { is_rapid: true, phase: TreePhase::Disabled })
        }
        PortSettings::Outside | PortSettings::Refused(_) => LinkState::UP,
    }
}

/// A bridge with two ports, for the fuzz target.
pub(crate) fn small_bridge(is_rapid: bool) -> (Sessions, Vec<SessionId>) {
    let mut sessions = Sessions::default();
    let settings = Settings::plain(is_rapid);
    let ids = (1..=2).map(|n| sessions.put(&small_port(n, true), &settings, 1000)).collect();
    (sessions, ids)
}

/// Takes the carrier of a port of that bridge.
pub(crate) fn cut(sessions: &mut Sessions, n: usize, is_rapid: bool, now_ms: u64) {
    sessions.put(&small_port(n as u32 + 1, false), &Settings::plain(is_rapid), now_ms);
}

fn small_port(n: u32, is_up: bool) -> LinkPort {
    let name = format!("p{n}");
    LinkPort {
        interface: name.clone(),
        port: name,
        bridge: "br0".to_string(),
        of_port: OfPort(n),
        mac: MacAddr([2; 6]),
        bridge_mac: MacAddr([2; 6]),
        is_up,
        speed_mbps: 10_000,
        is_full_duplex: true,
    }
}
