//! The way of a table's groups and routers to another process, which has an empty table.

use super::{GroupKey, McastChange, McastTable};
use crate::ids::BundleId;
use l2proto::membership::Protocol;
use std::net::Ipv6Addr;

/// The place in a table up to which its entries have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct McastPlace {
    order: u64,
    removed: u64,
}

/// A member of a group, a group whose last reporter is no member any more, or a router; `P` names its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McastEntry<P> {
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
    /// The same with another name of its port, if `port` finds one.
    pub fn map<Q>(self, port: impl FnOnce(P) -> Option<Q>) -> Option<McastEntry<Q>> {
        let McastEntry { vlan, group, port: of, seen_ms } = self;
        port(of).map(|port| McastEntry { vlan, group, port, seen_ms })
    }
}

impl McastTable {
    /// The first `max` entries that are new or were seen since `place`, and the place behind them. `true`: entries from before
    /// `place` are gone, so these are the first of all, and the other table must be emptied.
    pub fn since(&self, place: McastPlace, max: usize) -> (bool, Vec<McastEntry<BundleId>>, McastPlace) {
        let is_anew = place.removed != self.removed;
        let from = if is_anew { 0 } else { place.order };
        let members = self.by_age.range(from..).filter_map(|(order, (key, bundle))| {
            let group = self.groups.get(key)?;
            let seen_ms = group.members.iter().find(|m| m.bundle == *bundle)?.seen_ms;
            Some((*order, entry(*key, group.protocol, *bundle, Some(seen_ms))))
        });
        // Where the last reporter is a member, the group gets its place in the order with it.
        let alone = self.by_join.range(from..).filter_map(|(order, key)| {
            let group = self.groups.get(key)?;
            let is_led = group.members.last().is_some_and(|member| member.order > *order);
            (!is_led).then(|| (*order, entry(*key, group.protocol, group.owner, None)))
        });
        let routers = self.routers.range(from..).map(|(order, (vlan, router))| {
            let of_router =
                McastEntry { vlan: *vlan, group: None, port: router.bundle, seen_ms: Some(router.seen_ms) };
            (*order, of_router)
        });
        let mut all: Vec<_> = members.take(max).chain(alone.take(max)).chain(routers.take(max)).collect();
        all.sort_unstable_by_key(|(order, _)| *order);
        all.truncate(max);
        let order = all.last().map_or(from, |(order, _)| order + 1);
        let entries = all.into_iter().map(|(_, entry)| entry).collect();
        (is_anew, entries, McastPlace { order, removed: self.removed })
    }

    /// Adds an entry of another table, which come in the order of [`McastTable::since`].
    pub fn restore(&mut self, entry: &McastEntry<BundleId>, changes: &mut Vec<McastChange>) {
        let McastEntry { vlan, group, port, seen_ms } = *entry;
        if self.flood_ports.contains(&port) {
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
}

fn entry(
    (vlan, group): GroupKey,
    protocol: Protocol,
    port: BundleId,
    seen_ms: Option<u64>,
) -> McastEntry<BundleId> {
    McastEntry { vlan, group: Some((group, protocol)), port, seen_ms }
}
