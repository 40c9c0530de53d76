//! Groups of a bridge (OpenFlow 1.3 §5.6, 1.5 §5.10): buckets, selection among them, statistics.
//!
//! [`Groups`] is a persistent value, part of [`crate::tables::Tables`]: a clone is a snapshot. A changed group is a
//! new [`Group`] with new statistics, as in Open vSwitch. Translation executes groups ([`crate::xlate`]); the
//! revalidator credits their statistics.

mod change;
mod select;

pub use change::{GroupChange, MAX_BUCKETS, MAX_GROUPS};
pub use select::{Buckets, Method, construction};

use flow::OfPort;
use ofp_actions::{Action, SetPlace, set};
use openflow::msg::group::{Bucket as BucketDesc, Group as GroupDesc, GroupType};
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU64, Ordering};

/// Packets and bytes.
#[derive(Debug, Default)]
pub struct Counter([AtomicU64; 2]);

impl Counter {
    fn credit(&self, packets: u64, bytes: u64) {
        self.0[0].fetch_add(packets, Ordering::Relaxed);
        self.0[1].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Packets and bytes so far.
    pub fn counts(&self) -> (u64, u64) {
        (self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed))
    }
}

/// A bucket.
#[derive(Debug)]
pub struct Bucket {
    /// Its id, unique in the group.
    pub id: u32,
    /// Its share of the packets of a select group.
    pub weight: u16,
    /// It is live while this port is; `NONE`: none.
    pub watch_port: OfPort,
    /// It is live while this group is; `None`: none.
    pub watch_group: Option<u32>,
    /// Its actions, an action set in execution order.
    pub actions: Arc<[Action]>,
    /// Its actions as configured, if they differ: a group has up to millions of buckets, which need memory once.
    given: Option<Arc<[Action]>>,
    /// Its packets.
    pub counter: Counter,
}

/// A group.
#[derive(Debug)]
pub struct Group {
    /// The group as configured, with its number, without its buckets.
    head: GroupDesc,
    /// Its buckets.
    pub buckets: Box<[Bucket]>,
    /// Selection of a bucket of a select group.
    pub method: Method,
    /// Its packets.
    pub counter: Counter,
    /// Time of the add, in milliseconds.
    pub created_ms: u64,
}

impl Group {
    fn new(desc: &GroupDesc, created_ms: u64) -> Group {
        let GroupDesc { id, ty, ref selection, buckets: _ } = *desc;
        let head = GroupDesc { id, ty, selection: selection.clone(), buckets: Vec::new() };
        let buckets = desc.buckets.iter().map(Bucket::new).collect();
        Group { head, buckets, method: Method::new(desc), counter: Counter::default(), created_ms }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.head.id
    }

    /// Its type.
    pub fn ty(&self) -> GroupType {
        self.head.ty
    }

    /// The group as configured.
    pub fn desc(&self) -> GroupDesc {
        let buckets = self.buckets.iter().map(Bucket::desc).collect();
        GroupDesc { buckets, ..self.head.clone() }
    }

    /// Whether all its buckets execute each packet.
    pub fn executes_all(&self) -> bool {
        matches!(self.head.ty, GroupType::All | GroupType::Indirect)
    }

    /// Counters of the group, then of each bucket.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> {
        std::iter::once(&self.counter).chain(self.buckets.iter().map(|b| &b.counter)).map(Counter::counts)
    }

    /// Adds counters of the same group in another process, as [`Group::counts`] gives them.
    pub fn add_counts(&self, past: &[(u64, u64)]) {
        let counters = std::iter::once(&self.counter).chain(self.buckets.iter().map(|b| &b.counter));
        counters.zip(past).for_each(|(counter, (packets, bytes))| counter.credit(*packets, *bytes));
    }

    /// Counts packets: of one bucket, or of all.
    pub fn credit(&self, bucket: Option<usize>, packets: u64, bytes: u64) {
        self.counter.credit(packets, bytes);
        let buckets = match bucket {
            Some(n) => self.buckets.get(n..=n).unwrap_or_default(),
            None => &self.buckets,
        };
        buckets.iter().for_each(|b| b.counter.credit(packets, bytes));
    }
}

impl Bucket {
    fn new(b: &BucketDesc) -> Bucket {
        // A single output is its own set.
        let is_output = matches!(&b.actions[..], [one] if matches!(one.set_place(), SetPlace::WayOut(_)));
        let in_order = (!is_output).then(|| {
            let mut merged = Vec::new();
            set::merge(&mut merged, &b.actions);
            set::in_order(&merged)
        });
        let in_order = in_order.filter(|set| *set != b.actions);
        let given: Arc<[Action]> = b.actions.as_slice().into();
        let (actions, given) = match in_order {
            Some(set) => (set.into(), Some(given)),
            None => (given, None),
        };
        Bucket {
            id: b.id,
            weight: b.weight,
            watch_port: b.watch_port,
            watch_group: (b.watch_group != openflow::GROUP_ANY).then_some(b.watch_group),
            actions,
            given,
            counter: Counter::default(),
        }
    }

    /// The bucket as configured.
    fn desc(&self) -> BucketDesc {
        BucketDesc {
            id: self.id,
            weight: self.weight,
            watch_port: self.watch_port,
            watch_group: self.watch_group.unwrap_or(openflow::GROUP_ANY),
            actions: self.given.as_ref().unwrap_or(&self.actions).to_vec(),
        }
    }

    /// Whether its liveness depends on a port or group.
    pub fn watches(&self) -> bool {
        self.watch_port != OfPort::NONE || self.watch_group.is_some()
    }
}

/// Number of parts: a change copies one of them.
const PARTS: usize = 64;
type Part = Arc<BTreeMap<u32, Arc<Group>>>;

/// The groups of a bridge.
#[derive(Clone, Debug)]
pub struct Groups {
    parts: Arc<[Part; PARTS]>,
    len: usize,
    /// Buckets of all groups.
    buckets: usize,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups { parts: Arc::new(std::array::from_fn(|_| Part::default())), len: 0, buckets: 0 }
    }
}

fn part_of(id: u32) -> usize {
    id as usize % PARTS
}

impl Groups {
    /// The group of that number.
    pub fn get(&self, id: u32) -> Option<&Arc<Group>> {
        self.parts[part_of(id)].get(&id)
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All groups, by number.
    pub fn all(&self) -> Vec<Arc<Group>> {
        let mut all: Vec<_> = self.parts.iter().flat_map(|part| part.values().cloned()).collect();
        all.sort_unstable_by_key(|group| group.id());
        all
    }

    /// Whether both are the same version.
    pub fn is_same(&self, other: &Groups) -> bool {
        Arc::ptr_eq(&self.parts, &other.parts)
    }

    fn insert(&mut self, group: Group) {
        let id = group.id();
        let new = group.buckets.len();
        let part = Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[part_of(id)]);
        let old = part.insert(id, Arc::new(group));
        self.len += usize::from(old.is_none());
        self.buckets = self.buckets + new - old.map_or(0, |group| group.buckets.len());
    }

    fn remove(&mut self, id: u32) -> bool {
        if self.get(id).is_none() {
            return false;
        }
        let part = Arc::make_mut(&mut Arc::make_mut(&mut self.parts)[part_of(id)]);
        let gone = part.remove(&id);
        self.len -= usize::from(gone.is_some());
        self.buckets -= gone.as_ref().map_or(0, |group| group.buckets.len());
        gone.is_some()
    }
}

#[cfg(test)]
mod tests;
