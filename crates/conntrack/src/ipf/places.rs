//! Places for held fragments: a total, and the number of each input port.
//!
//! Any port may take any free place, as in OVS. Without a free one, a port that holds less than an equal share of all
//! places (the total by the number of ports with fragments) takes one from the port that holds most. Invariant: `taken`
//! and `active` equal sum and number of the ports' entries while no call runs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use sync::{AtomicUsize, Mutex, Ordering, lock};

const SHARDS: usize = 16;

/// Fragments held by port; ports without any have no entry.
type Ports = BTreeMap<u32, usize>;

/// See the module.
pub(super) struct Places {
    max: AtomicUsize,
    taken: AtomicUsize,
    /// Ports that hold fragments.
    active: AtomicUsize,
    ports: [Mutex<Ports>; SHARDS],
}

impl Places {
    pub(super) fn new(max: usize) -> Places {
        Places {
            max: AtomicUsize::new(max),
            taken: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            ports: std::array::from_fn(|_| Mutex::new(Ports::default())),
        }
    }

    pub(super) fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    fn shard(&self, port: u32) -> &Mutex<Ports> {
        &self.ports[port as usize % SHARDS]
    }

    /// Takes a place for a fragment of `port`; whether there was a free one.
    pub(super) fn take(&self, port: u32) -> bool {
        let max = self.max();
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return false;
        }
        self.charge(port);
        true
    }

    fn charge(&self, port: u32) {
        let mut ports = lock(self.shard(port));
        let held = ports.entry(port).or_insert(0);
        *held += 1;
        if *held == 1 {
            self.active.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The port that owes a place to `port`: it holds most, and `port` less than its share. Looks at all ports with
    /// fragments.
    pub(super) fn debtor(&self, port: u32) -> Option<u32> {
        let held = lock(self.shard(port)).get(&port).copied().unwrap_or(0);
        let active = self.active.load(Ordering::Relaxed) + usize::from(held == 0);
        if held >= self.max() / active.max(1) {
            return None;
        }
        let most_of = |ports: &Mutex<Ports>| lock(ports).iter().map(|(port, held)| (*held, *port)).max();
        let (most, debtor) = self.ports.iter().filter_map(most_of).max()?;
        (most > held + 1).then_some(debtor)
    }

    /// Returns a place of `port`.
    pub(super) fn give_back(&self, port: u32) {
        if self.discharge(port) {
            self.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Gives a place of `from`, which has one, to `to`: it is free at no time, and no other port can take it.
    pub(super) fn pass_on(&self, from: u32, to: u32) {
        if self.discharge(from) {
            self.charge(to);
        }
    }

    /// Whether the port had a place.
    fn discharge(&self, port: u32) -> bool {
        let mut ports = lock(self.shard(port));
        let Entry::Occupied(mut held) = ports.entry(port) else { return false };
        *held.get_mut() -= 1;
        if *held.get() == 0 {
            self.active.fetch_sub(1, Ordering::Relaxed);
            held.remove();
        }
        true
    }
}
