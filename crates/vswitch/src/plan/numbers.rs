//! [`PortNumbers`]: allocation of a bridge's OpenFlow port numbers.
//!
//! A released number is not reused while never-used numbers are left: flows and controllers may still refer to its
//! previous port.

use std::collections::{BTreeMap, BTreeSet};

use ofproto::OfPort;

/// Numbers from 1 to 0xfeff.
#[derive(Clone, Debug, Default)]
pub(super) struct PortNumbers {
    in_use: BTreeSet<u32>,
    /// Released numbers, with the count of releases at that time.
    given_up: BTreeMap<u32, u64>,
    releases: u64,
    last: u32,
}

const MOST: u32 = OfPort::MAX_OF10 as u32 - 1;

impl PortNumbers {
    /// Allocates the number, if it is free.
    pub(super) fn claim(&mut self, number: OfPort) -> bool {
        (1..=MOST).contains(&number.0) && self.in_use.insert(number.0)
    }

    /// Allocates any number: the next never-used one, or the least recently released one; `None` if all are in use.
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

    /// Releases a number.
    pub(super) fn release(&mut self, number: OfPort) {
        if self.in_use.remove(&number.0) {
            self.releases += 1;
            self.given_up.insert(number.0, self.releases);
        }
    }
}
