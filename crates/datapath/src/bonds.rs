//! Bonds that the datapath balances by itself: the ports of their hash values, shared by all cores, and counters, each core's own.

use dpif::BondBalancer;
use flow::DpPort;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU32, AtomicU64, Mutex, Ordering, Snapshot, lock};

/// Hash values of a bond.
const BUCKETS: usize = 256;

/// Bytes that a core sent by hash value. The core alone writes.
struct CoreBytes([AtomicU64; BUCKETS]);

impl CoreBytes {
    fn new() -> CoreBytes {
        CoreBytes(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    #[inline]
    fn add(&self, bucket: usize, bytes: u64) {
        let sum = &self.0[bucket];
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }
}

/// A bond. A change of its members reaches all cores at once.
struct BondMembers {
    members: [AtomicU32; BUCKETS],
    /// Counters of all cores that ever balanced it; the first sums those of ended cores.
    bytes: Mutex<Vec<Arc<CoreBytes>>>,
}

impl BondMembers {
    fn new(members: &[DpPort]) -> BondMembers {
        let members = std::array::from_fn(|n| AtomicU32::new(members[n].0));
        BondMembers { members, bytes: Mutex::new(vec![Arc::new(CoreBytes::new())]) }
    }

    fn ports(&self) -> Vec<DpPort> {
        self.members.iter().map(|port| DpPort(port.load(Ordering::Relaxed))).collect()
    }

    /// Counters for one more core.
    fn join(&self) -> Arc<CoreBytes> {
        let own = Arc::new(CoreBytes::new());
        lock(&self.bytes).push(own.clone());
        own
    }

    fn sent(&self) -> Vec<u64> {
        let mut cores = lock(&self.bytes);
        let all = std::mem::take(&mut *cores);
        for core in all {
            match (cores.first(), Arc::try_unwrap(core)) {
                (Some(sums), Ok(ended)) => {
                    (0..BUCKETS).for_each(|n| sums.add(n, ended.0[n].load(Ordering::Relaxed)))
                }
                (None, Ok(sums)) => cores.push(Arc::new(sums)),
                (_, Err(core)) => cores.push(core),
            }
        }
        let sum = |n: usize| cores.iter().map(|core| core.0[n].load(Ordering::Relaxed)).sum();
        (0..BUCKETS).map(sum).collect()
    }
}

/// A bond as a core uses it.
pub(crate) struct CoreBond {
    bond: Arc<BondMembers>,
    bytes: Arc<CoreBytes>,
}

impl CoreBond {
    /// The port of a packet with this hash, whose bytes are counted.
    #[inline]
    pub(crate) fn choose(&self, hash: u32, bytes: u64) -> DpPort {
        let bucket = hash as usize % BUCKETS;
        self.bytes.add(bucket, bytes);
        DpPort(self.bond.members[bucket].load(Ordering::Relaxed))
    }
}

/// The bonds that a core balanced, until the list of all changes.
#[derive(Default)]
pub(crate) struct CoreBonds {
    version: u64,
    known: Vec<(u32, CoreBond)>,
}

impl CoreBonds {
    /// The bond.
    #[inline]
    pub(crate) fn find(&mut self, all: &Bonds, id: u32) -> Option<&CoreBond> {
        let version = all.version.load(Ordering::Acquire);
        if self.version != version {
            let current = all.all.load();
            // Counters of a bond that stays go on.
            self.known
                .retain(|(id, known)| current.get(id).is_some_and(|bond| Arc::ptr_eq(bond, &known.bond)));
            self.version = version;
        }
        if let Some(at) = self.known.iter().position(|(known, _)| *known == id) {
            return Some(&self.known[at].1);
        }
        let bond = all.all.load().get(&id)?.clone();
        let bytes = bond.join();
        self.known.push((id, CoreBond { bond, bytes }));
        self.known.last().map(|(_, bond)| bond)
    }
}

/// All bonds of a datapath.
#[derive(Default)]
pub(crate) struct Bonds {
    all: Snapshot<BTreeMap<u32, Arc<BondMembers>>>,
    /// Counts additions and removals.
    version: AtomicU64,
    writer: Mutex<()>,
}

impl BondBalancer for Bonds {
    fn set_bond(&self, bond: u32, members: &[DpPort]) {
        let _order = lock(&self.writer);
        let known = self.all.load().get(&bond).cloned();
        if let Some(known) = known.filter(|_| members.len() == BUCKETS) {
            return known
                .members
                .iter()
                .zip(members)
                .for_each(|(m, port)| m.store(port.0, Ordering::Relaxed));
        }
        let mut all = BTreeMap::clone(&self.all.load());
        if members.len() == BUCKETS {
            all.insert(bond, Arc::new(BondMembers::new(members)));
        } else {
            all.remove(&bond);
        }
        self.all.store(Arc::new(all));
        self.version.fetch_add(1, Ordering::Release);
    }

    fn bond_bytes(&self, bond: u32) -> Option<Vec<u64>> {
        Some(self.all.load().get(&bond)?.sent())
    }

    fn bonds(&self) -> Vec<(u32, Vec<DpPort>)> {
        self.all.load().iter().map(|(id, bond)| (*id, bond.ports())).collect()
    }
}
