//! Neighbours of tunnels in user space without a known Ethernet address: requests to be sent, at most one a second for a
//! neighbour, and the packets of misses that wait for the answers (`held`).

pub(crate) mod held;

use crate::ids::BridgeId;
use crate::native::Solicit;
use held::HeldPackets;
use std::collections::HashMap;
use std::net::IpAddr;

/// Maximum neighbours that are asked for at a time.
const SOLICITED_MAX: usize = 4096;

/// Neighbours asked for, and requests to be sent.
#[derive(Default)]
pub(crate) struct Solicited {
    asked_ms: HashMap<(BridgeId, IpAddr), u64>,
    waiting: Vec<Solicit>,
    /// Packets that wait for answers.
    pub(crate) held: HeldPackets,
}

impl Solicited {
    /// Requests a neighbour, unless that was done less than `every_ms` ago, or too many others were requested.
    pub(crate) fn request(&mut self, solicit: &Solicit, every_ms: u64, now_ms: u64) {
        if self.asked_ms.len() >= SOLICITED_MAX {
            self.asked_ms.retain(|_, asked_ms| now_ms < *asked_ms + every_ms);
        }
        let key = (solicit.bridge, solicit.target);
        let is_due = self.asked_ms.get(&key).is_none_or(|asked_ms| now_ms >= *asked_ms + every_ms);
        if is_due && self.asked_ms.len() < SOLICITED_MAX {
            self.asked_ms.insert(key, now_ms);
            self.waiting.push(solicit.clone());
        }
    }

    /// The requests to be sent.
    pub(crate) fn take(&mut self) -> Vec<Solicit> {
        std::mem::take(&mut self.waiting)
    }

    /// A neighbour answered, or its entry ended: the next request goes out at once, and packets wait no longer.
    pub(crate) fn answered(&mut self, bridge: BridgeId, target: IpAddr) {
        self.asked_ms.remove(&(bridge, target));
        self.held.answer(bridge, target);
    }
}
