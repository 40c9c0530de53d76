//! The way of a table's groups and routers to another process, which has an empty table.

use super::{GroupKey, McastChange, McastTable};
use crate::ids::BundleId;
use l2proto::membership::Protocol;
use std::collections::VecDeque;
use std::net::Ipv6Addr;

/// The place in a table up to which its entries have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct McastPlace {
    order: u64,
    removed: u64,
}

/// A step of a walk over a table.
#[derive(Debug)]
pub struct McastStep {
    /// The other table must be emptied: the walk begins anew.
    pub is_anew: bool,
    /// Entries in their order.
    pub entries: Vec<McastEntry<BundleId>>,
    /// There are no more.
    pub is_last: bool,
    /// The place behind them.
    pub place: McastPlace,
}

/// Removals that a table remembers, for a walk that goes on.
const GONE_MAX: usize = 4096;

/// A member of a group, a group whose last reporter is no member any more, or a router; `P` names its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McastEntry<P> {
    /// It was removed.
    pub is_gone: bool,
    /// Its VLAN.
    pub vlan: u16,
    /// The group and the protocol of its last report; `None`: a router.
    pub group: Option<(Ipv6Addr, Protocol)>,
    /// The port of the member or router; of a group alone, the one that began it.
    pub port: P,
    /// Time of the last report, or query, in milliseconds; `None`: of a group alone.
    pub seen_ms: Option<u64>,
}

impl<P> McastEntry<P> {
    /// This entry with another name of its port, if `port` finds one.
    pub fn map<Q>(self, port: impl FnOnce(P) -> Option<Q>) -> Option<McastEntry<Q>> {
        let McastEntry { is_gone, vlan, group, port: of, seen_ms } = self;
        port(of).map(|port| McastEntry { is_gone, vlan, group, port, seen_ms })
    }

    /// Whether its port is only the one that began a group.
    pub fn is_alone(&self) -> bool {
        self.group.is_some() && self.seen_ms.is_none()
    }
}

/// The latest removals.
#[derive(Debug, Default)]
pub(super) struct GoneLog {
    /// Number of all removals so far.
    removed: u64,
    latest: VecDeque<McastEntry<BundleId>>,
}

impl GoneLog {
    fn add(&mut self, entry: McastEntry<BundleId>) {
        self.latest.truncate(GONE_MAX - 1);
        self.latest.push_front(McastEntry { is_gone: true, ..entry });
        self.removed += 1;
    }

    pub(super) fn member(&mut self, key: GroupKey, bundle: BundleId) {
        // The protocol of a removed entry has no effect.
        self.add(entry(key, Protocol::IgmpV1, bundle, Some(0)));
    }

    pub(super) fn group(&mut self, key: GroupKey) {
        self.add(entry(key, Protocol::IgmpV1, BundleId::NONE, None));
    }

    pub(super) fn router(&mut self, vlan: u16, bundle: BundleId) {
        self.add(router(vlan, bundle, 0));
    }

    /// All entries were removed.
    pub(super) fn all(&mut self) {
        self.removed += 1 + GONE_MAX as u64;
        self.latest.clear();
    }

    /// Removals since that many of them, oldest first; `None`: they are not known any more.
    fn since(&self, removed: u64) -> Option<impl Iterator<Item = McastEntry<BundleId>>> {
        let count = usize::try_from(self.removed - removed).ok().filter(|n| *n <= self.latest.len())?;
        Some(self.latest.iter().take(count).rev().copied())
    }
}

impl McastTable {
    /// Removals since `place`, then the first `max` entries that are new or were seen since. After more removals than are remembered,
    /// the walk begins anew.
    pub fn since(&self, place: McastPlace, max: usize) -> McastStep {
        let gone = self.gone.since(place.removed);
        let is_anew = gone.is_none();
        let from = if is_anew { 0 } else { place.order };
        let members = self.by_age.range(from..).filter_map(|(order, (key, bundle))| {
            let group = self.groups.get(key)?;
            let seen_ms = group.members.iter().find(|m| m.bundle == *bundle)?.seen_ms;
            Some((*order, entry(*key, group.protocol, *bundle, Some(seen_ms))))
        });
        let mut all: Vec<_> = members.take(max).collect();
        // Where members fill the step, others behind the last of them come in a later one.
        let to = all.last().filter(|_| all.len() == max).map_or(u64::MAX, |(order, _)| *order);
        // Where the last reporter is a member, the group gets its place in the order with it.
        let alone = self.by_join.range(from..to).filter_map(|(order, key)| {
            let group = self.groups.get(key)?;
            let is_led = group.members.last().is_some_and(|member| member.order > *order);
            (!is_led).then(|| (*order, entry(*key, group.protocol, group.owner, None)))
        });
        let routers = self.routers.range(from..to);
        let routers = routers.map(|(order, (vlan, m))| (*order, router(*vlan, m.bundle, m.seen_ms)));
        all.extend(alone.take(max).chain(routers.take(max)));
        all.sort_unstable_by_key(|(order, _)| *order);
        let is_last = all.len() < max;
        all.truncate(max);
        let order = all.last().map_or(from, |(order, _)| order + 1);
        let entries = gone.into_iter().flatten().chain(all.into_iter().map(|(_, entry)| entry)).collect();
        McastStep { is_anew, entries, is_last, place: McastPlace { order, removed: self.gone.removed } }
    }

    /// Adds an entry of another table, which come in the order of [`McastTable::since`].
    pub fn restore(&mut self, entry: &McastEntry<BundleId>, changes: &mut Vec<McastChange>) {
        let McastEntry { is_gone, vlan, group, port, seen_ms } = *entry;
        if is_gone {
            return self.forget(entry, changes);
        }
        if !entry.is_alone() && self.flood_ports.contains(&port) {
            return;
        }
        let learned = self.stats.learned;
        match (group, seen_ms) {
            (None, seen_ms) => _ = self.add_router(vlan, port, seen_ms.unwrap_or(0), changes),
            (Some((group, protocol)), Some(seen_ms)) => {
                _ = self.join((vlan, group), protocol, port, seen_ms, changes);
            }
            (Some((group, protocol)), None) => {
                if self.touch((vlan, group), protocol, port, changes) {
                    changes.push(McastChange::Group((vlan, group)));
                }
            }
        }
        // It was learned by the other process.
        self.stats.learned = learned;
    }

    /// Removes what the other table removed.
    fn forget(&mut self, entry: &McastEntry<BundleId>, changes: &mut Vec<McastChange>) {
        let McastEntry { vlan, port, .. } = *entry;
        let Some(key) = entry.group.map(|(group, _)| (vlan, group)) else {
            if self.take_router(vlan, port) {
                changes.push(McastChange::Routers(vlan));
            }
            return;
        };
        let is_changed = if entry.is_alone() {
            let former = self.take_group(key);
            former.iter().flat_map(|group| &group.members).for_each(|m| _ = self.by_age.remove(&m.order));
            former.is_some()
        } else {
            self.take_member(key, port)
        };
        if is_changed {
            changes.push(McastChange::Group(key));
        }
    }
}

fn router(vlan: u16, port: BundleId, seen_ms: u64) -> McastEntry<BundleId> {
    McastEntry { is_gone: false, vlan, group: None, port, seen_ms: Some(seen_ms) }
}

fn entry(
    (vlan, group): GroupKey,
    protocol: Protocol,
    port: BundleId,
    seen_ms: Option<u64>,
) -> McastEntry<BundleId> {
    McastEntry { is_gone: false, vlan, group: Some((group, protocol)), port, seen_ms }
}
