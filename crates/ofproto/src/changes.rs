//! Changes that may affect translations, numbered by epoch, and the test whether one affects an installed flow.
//!
//! A translation records its [`Lookups`]. A change of a rule affects it only if it looked up the rule's table with a
//! packet that the rule's match may cover. The test compares only examined bits of fields unchanged by then, so it
//! holds for all packets of the megaflow, and errs towards "affected".
//!
//! The log holds the latest changes, [`CHANGES_MAX`] at most. Flows older than the first of them, and changes of
//! other kinds (ports, learned addresses, settings), count as affected.

use crate::ids::{BridgeId, BundleId};
use flow::{DpPort, FLOW_WORDS, Flow, KeyWord, OfPort, PackedFlow, PackedMatch, TableId};
use routing::Query;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, OnceLock};
use sync::{AtomicU64, Mutex, Ordering, lock};

/// Changes in the log. Above this number, translating a flow again costs less than testing it.
pub const CHANGES_MAX: usize = 128;

const _: () = assert!(FLOW_WORDS <= u128::BITS as usize);

/// VLAN and group.
type GroupKey = (u16, Ipv6Addr);

/// Objects that a translation looked up, and fields that it had changed by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lookups {
    /// A bit for each object, by a hash of its number: other objects may share it.
    objects: u64,
    /// Bits of routes, neighbours and multicast groups.
    ways: u64,
    /// Words of the flow that differed from the original packet at a lookup of a table.
    changed: u128,
}

fn bit_of(bridge: BridgeId, n: u32) -> u64 {
    1 << ((bridge.0.wrapping_mul(0x9e37_79b9) ^ n) % u64::BITS)
}

/// Distinguishes groups from tables and meters.
fn group_bit(bridge: BridgeId, id: u32) -> u64 {
    bit_of(bridge, id.wrapping_mul(0x85eb_ca6b).rotate_left(7))
}

/// Distinguishes meters from tables and groups.
fn meter_bit(bridge: BridgeId, id: u32) -> u64 {
    bit_of(bridge, id.wrapping_mul(0xc2b2_ae35).rotate_left(13))
}

/// Distinguishes the liveness of ports from tables, groups and meters.
fn port_bit(bridge: BridgeId, port: OfPort) -> u64 {
    bit_of(bridge, port.0.wrapping_mul(0x27d4_eb2f).rotate_left(19))
}

/// Distinguishes bonds from tables, groups, meters and ports.
fn bond_bit(bridge: BridgeId, bundle: BundleId) -> u64 {
    bit_of(bridge, bundle.0.wrapping_mul(0x1656_67b1).rotate_left(11))
}

/// The bit of a route or a neighbour.
fn bit_by_hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    1 << (hasher.finish() % u64::from(u64::BITS))
}

impl Lookups {
    /// Lookups of a translation that may have looked up anything.
    pub const ALL: Lookups = Lookups { objects: u64::MAX, ways: u64::MAX, changed: u128::MAX };

    /// A lookup of `flow` in a table; `original` is the packet as received.
    pub(crate) fn table(&mut self, bridge: BridgeId, table: TableId, flow: &Flow, original: &Flow) {
        self.objects |= bit_of(bridge, table.0.into());
        let words = flow.words().iter().zip(original.words()).enumerate();
        self.changed |= words.fold(0, |all, (n, (now, before))| all | u128::from(now != before) << n);
    }

    /// A lookup with fields in the place of others: none is compared.
    pub(crate) fn exchanged(&mut self) {
        self.changed = u128::MAX;
    }

    /// A lookup of a group.
    pub(crate) fn group(&mut self, bridge: BridgeId, id: u32) {
        self.objects |= group_bit(bridge, id);
    }

    /// A look at whether a port can send.
    pub(crate) fn port(&mut self, bridge: BridgeId, port: OfPort) {
        self.objects |= port_bit(bridge, port);
    }

    /// A look at the members of a bond.
    pub(crate) fn bond(&mut self, bridge: BridgeId, bundle: BundleId) {
        self.objects |= bond_bit(bridge, bundle);
    }

    /// A lookup of a route.
    pub(crate) fn route(&mut self, query: &Query) {
        self.ways |= bit_by_hash(query);
    }

    /// A lookup of a neighbour of a bridge.
    pub(crate) fn neighbour(&mut self, bridge: BridgeId, ip: IpAddr) {
        self.ways |= bit_by_hash((bridge, ip));
    }

    /// A lookup of the members of a multicast group.
    pub(crate) fn multicast_group(&mut self, bridge: BridgeId, key: GroupKey) {
        self.ways |= bit_by_hash((bridge, key));
    }

    /// A look at the multicast routers of a VLAN.
    pub(crate) fn multicast_routers(&mut self, bridge: BridgeId, vlan: u16) {
        self.ways |= bit_by_hash((bridge, vlan));
    }

    /// A lookup of a meter.
    pub(crate) fn meter(&mut self, bridge: BridgeId, id: u32) {
        self.objects |= meter_bit(bridge, id);
    }
}

/// One change.
#[derive(Clone, Debug)]
pub enum Change {
    /// A rule was added, removed or modified.
    Rule {
        /// Its bridge.
        bridge: BridgeId,
        /// Its table.
        table: TableId,
        /// Its match.
        matching: PackedMatch,
        /// The datapath's number of the matched input port, if it has one.
        in_port: Option<DpPort>,
        /// The words of keys that the match compares, once known.
        words: OnceLock<Box<[KeyWord]>>,
    },
    /// A table lost all its rules.
    Table(BridgeId, TableId),
    /// A group was added, removed or modified.
    Group(BridgeId, u32),
    /// A meter was added or removed.
    Meter(BridgeId, u32),
    /// A port can send now, or no longer.
    Port(BridgeId, OfPort),
    /// The members of a bond that send or take packets changed.
    Bond(BridgeId, BundleId),
    /// The next hop of a destination changed.
    Route(Query),
    /// A neighbour of a bridge was learned, changed or lost.
    Neighbour(BridgeId, IpAddr),
    /// A multicast group of a VLAN has other members.
    MulticastGroup(BridgeId, GroupKey),
    /// A VLAN has other multicast routers.
    MulticastRouters(BridgeId, u16),
}

impl Change {
    /// Whether it may affect a flow whose translation had these lookups.
    fn affects(&self, lookups: &Lookups, flow: &PackedFlow) -> bool {
        match self {
            Change::Rule { bridge, table, matching, in_port, words } => {
                let words = || words.get_or_init(|| KeyWord::of_match(matching, *in_port));
                lookups.objects & bit_of(*bridge, table.0.into()) != 0
                    && !flow.differs(words(), lookups.changed)
            }
            Change::Table(bridge, table) => lookups.objects & bit_of(*bridge, table.0.into()) != 0,
            Change::Group(bridge, id) => lookups.objects & group_bit(*bridge, *id) != 0,
            Change::Meter(bridge, id) => lookups.objects & meter_bit(*bridge, *id) != 0,
            Change::Port(bridge, port) => lookups.objects & port_bit(*bridge, *port) != 0,
            Change::Bond(bridge, bundle) => lookups.objects & bond_bit(*bridge, *bundle) != 0,
            Change::Route(query) => lookups.ways & bit_by_hash(query) != 0,
            Change::Neighbour(bridge, ip) => lookups.ways & bit_by_hash((bridge, ip)) != 0,
            Change::MulticastGroup(bridge, key) => lookups.ways & bit_by_hash((bridge, key)) != 0,
            Change::MulticastRouters(bridge, vlan) => lookups.ways & bit_by_hash((bridge, vlan)) != 0,
        }
    }
}

/// Changes of one epoch.
type Entry = (u64, Arc<[Change]>);

/// The latest changes, up to an epoch.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The epoch after all of them.
    epoch: u64,
    /// The log is complete for flows of this epoch and later ones.
    complete_from: u64,
    entries: VecDeque<Entry>,
}

impl Changes {
    /// The epoch after all of them.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether a change after the epoch `since` may affect a flow whose translation had these lookups.
    pub fn affect(&self, since: u64, lookups: &Lookups, flow: &PackedFlow) -> bool {
        let later = self.entries.partition_point(|(epoch, _)| *epoch <= since);
        let mut later = self.entries.range(later..).flat_map(|(_, changes)| changes.iter());
        since < self.complete_from || later.any(|change| change.affects(lookups, flow))
    }
}

/// The log of changes, with the current epoch.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    epoch: AtomicU64,
    log: Mutex<(u64, usize, VecDeque<Entry>)>,
}

impl Default for ChangeLog {
    fn default() -> ChangeLog {
        ChangeLog { epoch: AtomicU64::new(1), log: Mutex::new((1, 0, VecDeque::new())) }
    }
}

impl ChangeLog {
    /// Number of the last change.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Starts an epoch with these changes; `None`: all flows may be affected.
    pub(crate) fn record(&self, changes: Option<Vec<Change>>) {
        let (complete_from, held, entries) = &mut *lock(&self.log);
        let epoch = self.epoch.load(Ordering::Relaxed) + 1;
        match changes.filter(|c| c.len() <= CHANGES_MAX) {
            Some(changes) => {
                *held += changes.len();
                entries.push_back((epoch, changes.into()));
                while *held > CHANGES_MAX
                    && let Some((oldest, gone)) = entries.pop_front()
                {
                    (*complete_from, *held) = (oldest, *held - gone.len());
                }
            }
            None => {
                entries.clear();
                (*complete_from, *held) = (epoch, 0);
            }
        }
        self.epoch.store(epoch, Ordering::Release);
    }

    /// The latest changes, for flows of epoch `since` or later.
    pub(crate) fn since(&self, since: u64) -> Changes {
        let (complete_from, _, entries) = &*lock(&self.log);
        let epoch = self.epoch.load(Ordering::Relaxed);
        let later = entries.partition_point(|(epoch, _)| *epoch <= since);
        Changes {
            epoch,
            complete_from: since.max(*complete_from),
            entries: entries.range(later..).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
