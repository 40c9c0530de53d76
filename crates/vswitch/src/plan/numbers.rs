//! [`PortNumbers`]: which OpenFlow port numbers of a bridge are in use, and which come next.
//!
//! A number that was given up is not given out again while there are numbers never used: flows and controllers
//! may still mean the port that had it.

use std::collections::{BTreeMap, BTreeSet};

use ofproto::OfPort;

/// Numbers from 1 to 0xfeff.
#[derive(Clone, Debug, Default)]
pub(super) struct PortNumbers {
    in_use: BTreeSet<u32>,
    /// Given up, and when, counted in releases.
    given_up: BTreeMap<u32, u64>,
    releases: u64,
    last: u32,
}

const MOST: u32 = OfPort::MAX_OF10 as u32 - 1;

impl PortNumbers {
    /// Takes the number, if it is free.
    pub(super) fn claim(&mut self, number: OfPort) -> bool {
        (1..=MOST).contains(&number.0) && self.in_use.insert(number.0)
    }

    /// Takes any number: the next one never used, or the one given up longest ago; `None` when all are in use.
    pub(super) fn allocate(&mut self) -> Option<OfPort> {
        let after = self.last + 1..=MOST;
        let never_used = |n: &u32| !self.in_use.contains(n) && !self.given_up.contains_key(n);
        let next = after.chain(1..=self.last).find(never_used);
        let oldest = || {
            let free = self.given_up.iter().filter(|(n, _)| !self.in_use.contains(n));
            free.min_by_key(|(_, when)| **when).map(|(n, _)| *n)
        };
        let number = next.or_else(oldest)?;
        self.last = number;
        self.in_use.insert(number);
        Some(OfPort(number))
    }

    /// Gives a number up.
    pub(super) fn release(&mut self, number: OfPort) {
        if self.in_use.remove(&number.0) {
            self.releases += 1;
            self.given_up.insert(number.0, self.releases);
        }
    }
}
