//! [`Request`]: a `ct` action as the tracker executes it, and [`Translation`]: the change of the packet that follows.

use crate::alg::Helper;
use crate::key::Key;
use dpif::{CtAction, CtCommit, CtNat, Masked, TimeoutNames};
use std::net::IpAddr;

/// See the module. Values have no bits outside of their masks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Request {
    /// Zone.
    pub zone: u16,
    /// Whether to create a connection.
    pub commit: bool,
    /// Whether to end a connection of the opposite direction first.
    pub force: bool,
    /// Mark to set.
    pub mark: Option<Masked<u32>>,
    /// Labels to set.
    pub labels: Option<Masked<u128>>,
    /// Helper of a new connection.
    pub helper: Option<Helper>,
    /// Translation.
    pub nat: CtNat,
    /// Timeout policy of a new connection; 0: the usual timeouts.
    pub policy: u16,
}

impl Request {
    /// The request of a datapath action. Open vSwitch's userspace datapath names timeout policies by number; unknown
    /// names mean the usual timeouts.
    pub fn of(action: &CtAction) -> Request {
        let policy = action.timeout.as_ref().and_then(TimeoutNames::number);
        let helper = action.helper.as_ref().and_then(|name| Helper::named(name.as_str()));
        Request {
            zone: action.zone,
            commit: action.commit != CtCommit::No,
            force: action.commit == CtCommit::Force,
            mark: action.mark.as_ref().map(|m| Masked { value: m.value & m.mask, mask: m.mask }),
            labels: action.labels.as_ref().map(|m| Masked { value: m.value & m.mask, mask: m.mask }),
            helper,
            nat: action.nat,
            policy: policy.and_then(|id| u16::try_from(id.0.get()).ok()).unwrap_or(0),
        }
    }
}

/// Addresses and ports that a packet must have after tracking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Translation {
    /// Its tuple.
    Tuple(Key),
    /// An ICMP error: its own addresses, as far as they change, and the tuple of the packet that it cites.
    Error {
        /// Source address.
        src: Option<IpAddr>,
        /// Destination address.
        dst: Option<IpAddr>,
        /// Key of the cited packet.
        inner: Key,
    },
}
