//! The switch at the other end of the wires, with hosts behind it.

use super::{Mac, is_multicast};
use crate::rng::Rng;
use std::collections::HashMap;

/// How the partner treats the wires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// One link: it agrees by LACP, and sends by wires that the bond enables.
    Aggregates,
    /// Separate ports of a switch that learns: it sends a copy by each of the others.
    Learns,
}

/// The partner.
pub(super) struct Partner {
    pub(super) kind: Kind,
    /// Wires of addresses that it learned.
    known: HashMap<Mac, usize>,
}

impl Partner {
    pub(super) fn new(kind: Kind) -> Partner {
        Partner { kind, known: HashMap::new() }
    }

    pub(super) fn learn(&mut self, mac: Mac, wire: usize) {
        self.known.insert(mac, wire);
    }

    /// The wire went down.
    pub(super) fn flush(&mut self, wire: usize) {
        self.known.retain(|_, known| *known != wire);
    }

    pub(super) fn wire_of(&self, mac: Mac) -> Option<usize> {
        self.known.get(&mac).copied()
    }

    /// A frame arrives by a wire: the wires by which it comes back.
    pub(super) fn receive(&mut self, wire: usize, dst: Mac, src: Mac, up: &[usize]) -> Vec<usize> {
        if self.kind == Kind::Aggregates {
            return Vec::new();
        }
        self.learn(src, wire);
        let others = || up.iter().copied().filter(|other| *other != wire).collect();
        match self.known.get(&dst) {
            _ if super::is_remote(dst) => Vec::new(),
            Some(known) if !is_multicast(dst) => Vec::from_iter(Some(*known).filter(|known| *known != wire)),
            _ => others(),
        }
    }

    /// The wires by which a frame of a host behind it leaves. `up`: those that carry; `enabled`: those that the bond uses.
    pub(super) fn send(&self, dst: Mac, up: &[usize], enabled: &[usize], rng: &mut Rng) -> Vec<usize> {
        match self.kind {
            Kind::Aggregates => {
                let usable: Vec<usize> = up.iter().copied().filter(|wire| enabled.contains(wire)).collect();
                if usable.is_empty() { usable } else { vec![*rng.pick(&usable)] }
            }
            Kind::Learns if is_multicast(dst) => up.to_vec(),
            // Without an address it would send a copy by each wire, of which a bond takes several, as in OVS.
            Kind::Learns => Vec::from_iter(self.wire_of(dst)),
        }
    }
}
