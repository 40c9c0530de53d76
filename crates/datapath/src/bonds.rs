//! Bonds that the datapath balances by itself: the ports and counters of their hash values, shared by all cores.

use dpif::BondBalancer;
use flow::DpPort;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU32, AtomicU64, Mutex, Ordering, Snapshot, lock};

/// Hash values of a bond.
const BUCKETS: usize = 256;

/// A bond. A change of its members reaches all cores at once.
pub(crate) struct BondMembers {
    members: [AtomicU32; BUCKETS],
    bytes: [AtomicU64; BUCKETS],
}

impl BondMembers {
    /// The port of a packet with this hash, whose bytes are counted.
    #[inline]
    pub(crate) fn choose(&self, hash: u32, bytes: u64) -> DpPort {
        let bucket = hash as usize % BUCKETS;
        self.bytes[bucket].fetch_add(bytes, Ordering::Relaxed);
        DpPort(self.members[bucket].load(Ordering::Relaxed))
    }

    fn ports(&self) -> Vec<DpPort> {
        self.members.iter().map(|port| DpPort(port.load(Ordering::Relaxed))).collect()
    }
}

/// All bonds of a datapath.
#[derive(Default)]
pub(crate) struct Bonds {
    all: Snapshot<BTreeMap<u32, Arc<BondMembers>>>,
    writer: Mutex<()>,
}

impl Bonds {
    /// The bond.
    pub(crate) fn get(&self, bond: u32) -> Option<Arc<BondMembers>> {
        self.all.load().get(&bond).cloned()
    }
}

impl BondBalancer for Bonds {
    fn set_bond(&self, bond: u32, members: &[DpPort]) {
        let _order = lock(&self.writer);
        let known = self.get(bond);
        if let Some(known) = known.filter(|_| members.len() == BUCKETS) {
            return known
                .members
                .iter()
                .zip(members)
                .for_each(|(m, port)| m.store(port.0, Ordering::Relaxed));
        }
        let mut all = BTreeMap::clone(&self.all.load());
        if members.len() == BUCKETS {
            let new = BondMembers {
                members: std::array::from_fn(|n| AtomicU32::new(members[n].0)),
                bytes: std::array::from_fn(|_| AtomicU64::new(0)),
            };
            all.insert(bond, Arc::new(new));
        } else {
            all.remove(&bond);
        }
        self.all.store(Arc::new(all));
    }

    fn bond_bytes(&self, bond: u32) -> Option<Vec<u64>> {
        let known = self.get(bond)?;
        Some(known.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).collect())
    }

    fn bonds(&self) -> Vec<(u32, Vec<DpPort>)> {
        self.all.load().iter().map(|(id, bond)| (*id, bond.ports())).collect()
    }
}
