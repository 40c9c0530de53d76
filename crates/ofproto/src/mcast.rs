//! Multicast groups of a bridge and their members, by VLAN, and the ports of multicast routers (RFC 4541).
//!
//! Bounded: a new group above the limit evicts the least recently joined one of the port that began the most groups, so
//! that a flood on one port evicts no group of the others. [`MEMBERS_MAX`] and [`ROUTERS_MAX`] bound the rest; what is beyond
//! them is not learned, and counts as refused. Time comes from the caller.
//!
//! As in OVS, a group whose last member left stays, without members, until no older one is there: its packets reach only
//! routers. Ports that get all multicast packets, and those of routers, become no members, as they would get packets twice.

mod carry;

pub use carry::{McastEntry, McastPlace, McastStep};

use carry::GoneLog;

use crate::ids::BundleId;
use l2proto::membership::{Message, Protocol, Record};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;

/// Default of `mcast-snooping-aging-time`.
pub const DEFAULT_IDLE_S: u32 = 300;
/// Default of `mcast-snooping-table-size`.
pub const DEFAULT_MAX_GROUPS: usize = 8192;
/// Members of all groups.
pub const MEMBERS_MAX: usize = 1_000_000;
/// Ports of routers, counted in each VLAN.
pub const ROUTERS_MAX: usize = 65_536;
/// Time after which a router that sends no queries is forgotten.
pub const ROUTER_IDLE_MS: u64 = 180_000;

/// VLAN and group; an address of IPv4 is mapped.
pub type GroupKey = (u16, Ipv6Addr);

/// Settings of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct McastSettings {
    /// `mcast-snooping-aging-time`.
    pub idle_s: u32,
    /// `mcast-snooping-table-size`.
    pub max_groups: usize,
    /// Not `mcast-snooping-disable-flood-unregistered`.
    pub flood_unregistered: bool,
}

impl Default for McastSettings {
    fn default() -> McastSettings {
        McastSettings { idle_s: DEFAULT_IDLE_S, max_groups: DEFAULT_MAX_GROUPS, flood_unregistered: true }
    }
}

/// Counters since creation of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct McastStats {
    /// Groups and routers learned.
    pub learned: u64,
    /// Members and routers that aged out.
    pub expired: u64,
    /// Groups evicted by others.
    pub evicted: u64,
    /// Members and routers that had no place.
    pub refused: u64,
}

/// A change by a message or by time. Translations that looked at it are checked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McastChange {
    /// The members of a group.
    Group(GroupKey),
    /// The routers of a VLAN.
    Routers(u16),
}

/// The port of a member, or of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The port.
    pub bundle: BundleId,
    /// Time of its last report, or query.
    pub seen_ms: u64,
    order: u64,
}

#[derive(Clone, Debug)]
struct Group {
    /// Protocol of the last report.
    protocol: Protocol,
    /// The port that began it.
    owner: BundleId,
    /// Least recently seen first.
    members: Vec<Member>,
    order: u64,
}

/// The table of one bridge.
#[derive(Debug, Default)]
pub struct McastTable {
    settings: McastSettings,
    groups: HashMap<GroupKey, Group>,
    /// Groups, least recently joined first.
    by_join: BTreeMap<u64, GroupKey>,
    /// Groups of each port that began some, in that order.
    owned: HashMap<BundleId, BTreeMap<u64, GroupKey>>,
    /// Ports by number of groups that they began.
    by_size: BTreeSet<(usize, BundleId)>,
    /// Members of all groups, least recently seen first.
    by_age: BTreeMap<u64, (GroupKey, BundleId)>,
    /// Routers, least recently seen first.
    routers: BTreeMap<u64, (u16, Member)>,
    router_orders: HashMap<(u16, BundleId), u64>,
    flood_ports: Vec<BundleId>,
    report_ports: Vec<BundleId>,
    next_order: u64,
    gone: GoneLog,
    /// Counters.
    pub stats: McastStats,
}

/// Effect of a message on the table, as `ofproto/trace` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A group is new.
    Learned(Ipv6Addr),
    /// A member left.
    Left(Ipv6Addr),
    /// A router is new.
    Router,
    /// That many groups of a report are new or lost a member.
    Processed(usize),
}

impl McastTable {
    /// Sets it up. Returns what changed: groups beyond the size are evicted.
    pub fn configure(&mut self, settings: McastSettings) -> Vec<McastChange> {
        let max_groups = settings.max_groups.clamp(10, 1_000_000);
        let idle_s = settings.idle_s.clamp(15, 3600);
        self.settings = McastSettings { idle_s, max_groups, ..settings };
        let mut changes = Vec::new();
        self.make_room(max_groups, &mut changes);
        changes
    }

    /// The settings in force.
    pub fn settings(&self) -> McastSettings {
        self.settings
    }

    /// Sets the ports that get all multicast packets, and those that get all reports.
    pub fn set_ports(&mut self, flood: Vec<BundleId>, reports: Vec<BundleId>) {
        (self.flood_ports, self.report_ports) = (flood, reports);
    }

    /// Ports that get all multicast packets.
    pub fn flood_ports(&self) -> &[BundleId] {
        &self.flood_ports
    }

    /// Ports that get all reports.
    pub fn report_ports(&self) -> &[BundleId] {
        &self.report_ports
    }

    /// The members of a group, least recently seen first; `None`: nobody asked for it.
    pub fn members(&self, key: GroupKey) -> Option<&[Member]> {
        self.groups.get(&key).map(|group| &group.members[..])
    }

    /// The routers of all VLANs, least recently seen first.
    pub fn routers(&self) -> impl Iterator<Item = &(u16, Member)> {
        self.routers.values()
    }

    /// The groups with their protocols and members, least recently joined first.
    pub fn groups(&self) -> impl Iterator<Item = (GroupKey, Protocol, &[Member])> {
        self.by_join.values().filter_map(|key| {
            let group = self.groups.get(key)?;
            Some((*key, group.protocol, &group.members[..]))
        })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Applies a message that came in on `bundle`; `from_router`: a query with a source address. Changes are added to
    /// `changes`. Returns the effect that a trace shows.
    pub fn apply(
        &mut self,
        message: &Message,
        (vlan, bundle): (u16, BundleId),
        from_router: bool,
        now_ms: u64,
        changes: &mut Vec<McastChange>,
    ) -> Option<Told> {
        if self.flood_ports.contains(&bundle) {
            return None;
        }
        match message {
            Message::Query => {
                (from_router && self.add_router(vlan, bundle, now_ms, changes)).then_some(Told::Router)
            }
            Message::Single { protocol, record } => {
                let told = if record.joins { Told::Learned } else { Told::Left };
                self.record(*protocol, *record, (vlan, bundle), now_ms, changes).then(|| told(record.group))
            }
            Message::Report { protocol, records } => {
                let mut apply = |r: &&Record| self.record(*protocol, **r, (vlan, bundle), now_ms, changes);
                let count = records.iter().filter(|r| apply(r)).count();
                (count > 0).then_some(Told::Processed(count))
            }
        }
    }

    /// Forgets members and routers of a port.
    pub fn forget_bundle(&mut self, bundle: BundleId) {
        let of_port: Vec<GroupKey> =
            self.by_age.values().filter(|(_, b)| *b == bundle).map(|(key, _)| *key).collect();
        for key in of_port {
            self.take_member(key, bundle);
            self.gone.member(key, bundle);
            self.drop_empty(key);
        }
        let vlans: Vec<u16> =
            self.routers.values().filter(|(_, m)| m.bundle == bundle).map(|(vlan, _)| *vlan).collect();
        for vlan in vlans {
            self.take_router(vlan, bundle);
            self.gone.router(vlan, bundle);
        }
    }

    /// Forgets all groups and routers. Callers: settings, commands, and spanning trees whose topology changed. Returns
    /// whether there were any.
    pub fn flush(&mut self) -> bool {
        let had = !self.groups.is_empty() || !self.routers.is_empty();
        self.gone.all();
        self.groups.clear();
        self.by_join.clear();
        self.owned.clear();
        self.by_size.clear();
        self.by_age.clear();
        self.routers.clear();
        self.router_orders.clear();
        had
    }

    /// Forgets members and routers that were not seen for long.
    pub fn expire(&mut self, now_ms: u64) -> Vec<McastChange> {
        let mut changes = Vec::new();
        let idle_ms = u64::from(self.settings.idle_s) * 1000;
        while let Some((key, bundle)) = self.by_age.first_key_value().map(|(_, member)| *member) {
            let member = self.members(key).and_then(|all| all.iter().find(|m| m.bundle == bundle));
            if member.is_some_and(|m| m.seen_ms.saturating_add(idle_ms) > now_ms) {
                break;
            }
            self.take_member(key, bundle);
            self.gone.member(key, bundle);
            self.stats.expired += 1;
            changes.push(McastChange::Group(key));
            self.drop_empty(key);
        }
        self.drop_deserted(&mut changes);
        while let Some((vlan, router)) = self.routers.first_key_value().map(|(_, router)| *router)
            && router.seen_ms.saturating_add(ROUTER_IDLE_MS) <= now_ms
        {
            self.take_router(vlan, router.bundle);
            self.gone.router(vlan, router.bundle);
            self.stats.expired += 1;
            changes.push(McastChange::Routers(vlan));
        }
        changes
    }

    /// Applies one record. Returns whether a group is new, or lost a member.
    fn record(
        &mut self,
        protocol: Protocol,
        record: Record,
        (vlan, bundle): (u16, BundleId),
        now_ms: u64,
        changes: &mut Vec<McastChange>,
    ) -> bool {
        let key = (vlan, record.group);
        match record.joins {
            true => self.join(key, protocol, bundle, now_ms, changes),
            false => self.leave(key, bundle, changes),
        }
    }

    fn join(
        &mut self,
        key: GroupKey,
        protocol: Protocol,
        bundle: BundleId,
        now_ms: u64,
        changes: &mut Vec<McastChange>,
    ) -> bool {
        if self.router_orders.contains_key(&(key.0, bundle)) {
            return false;
        }
        let is_member = self.members(key).is_some_and(|all| all.iter().any(|m| m.bundle == bundle));
        if !is_member && self.by_age.len() >= MEMBERS_MAX {
            self.stats.refused += 1;
            return false;
        }
        self.take_member(key, bundle);
        let is_new = self.touch(key, protocol, bundle, changes);
        let order = self.next_order;
        self.next_order += 1;
        if let Some(group) = self.groups.get_mut(&key) {
            group.members.push(Member { bundle, seen_ms: now_ms, order });
            self.by_age.insert(order, (key, bundle));
        }
        if !is_member {
            changes.push(McastChange::Group(key));
        }
        is_new
    }

    /// Makes a group, begun by `owner`, or makes it the most recently joined one. Returns whether it is new.
    fn touch(
        &mut self,
        key: GroupKey,
        protocol: Protocol,
        owner: BundleId,
        changes: &mut Vec<McastChange>,
    ) -> bool {
        let former = self.take_group(key);
        let is_new = former.is_none();
        if is_new {
            self.make_room(self.settings.max_groups - 1, changes);
            self.stats.learned += 1;
        }
        let order = self.next_order;
        self.next_order += 1;
        let (owner, members) = former.map_or((owner, Vec::new()), |group| (group.owner, group.members));
        // Members that the group had before are still in the index by age.
        self.put_group(key, Group { protocol, owner, members, order });
        is_new
    }

    fn leave(&mut self, key: GroupKey, bundle: BundleId, changes: &mut Vec<McastChange>) -> bool {
        // As in OVS, several hosts may be behind a port that gets reports: its members only age.
        if self.report_ports.contains(&bundle) || !self.take_member(key, bundle) {
            return false;
        }
        self.gone.member(key, bundle);
        changes.push(McastChange::Group(key));
        self.drop_deserted(changes);
        true
    }

    fn add_router(
        &mut self,
        vlan: u16,
        bundle: BundleId,
        now_ms: u64,
        changes: &mut Vec<McastChange>,
    ) -> bool {
        let is_known = self.take_router(vlan, bundle);
        if !is_known && self.routers.len() >= ROUTERS_MAX {
            self.stats.refused += 1;
            return false;
        }
        let order = self.next_order;
        self.next_order += 1;
        self.routers.insert(order, (vlan, Member { bundle, seen_ms: now_ms, order }));
        self.router_orders.insert((vlan, bundle), order);
        if !is_known {
            self.stats.learned += 1;
            changes.push(McastChange::Routers(vlan));
        }
        !is_known
    }

    fn take_router(&mut self, vlan: u16, bundle: BundleId) -> bool {
        let order = self.router_orders.remove(&(vlan, bundle));
        order.is_some_and(|order| self.routers.remove(&order).is_some())
    }

    /// Removes a member; returns whether there was one.
    fn take_member(&mut self, key: GroupKey, bundle: BundleId) -> bool {
        let Some(group) = self.groups.get_mut(&key) else { return false };
        let Some(at) = group.members.iter().position(|m| m.bundle == bundle) else { return false };
        let member = group.members.remove(at);
        self.by_age.remove(&member.order);
        true
    }

    fn put_group(&mut self, key: GroupKey, group: Group) {
        self.by_join.insert(group.order, key);
        let owned = self.owned.entry(group.owner).or_default();
        self.by_size.remove(&(owned.len(), group.owner));
        owned.insert(group.order, key);
        self.by_size.insert((owned.len(), group.owner));
        self.groups.insert(key, group);
    }

    /// Removes a group from all but the index of its members.
    fn take_group(&mut self, key: GroupKey) -> Option<Group> {
        let group = self.groups.remove(&key)?;
        self.by_join.remove(&group.order);
        if let Some(owned) = self.owned.get_mut(&group.owner) {
            self.by_size.remove(&(owned.len(), group.owner));
            owned.remove(&group.order);
            if owned.is_empty() {
                self.owned.remove(&group.owner);
            } else {
                self.by_size.insert((owned.len(), group.owner));
            }
        }
        Some(group)
    }

    /// Removes the oldest groups while they have no members.
    fn drop_deserted(&mut self, changes: &mut Vec<McastChange>) {
        while let Some(key) = self.by_join.first_key_value().map(|(_, key)| *key)
            && self.groups.get(&key).is_some_and(|group| group.members.is_empty())
        {
            self.take_group(key);
            self.gone.group(key);
            changes.push(McastChange::Group(key));
        }
    }

    /// Removes a group without members, whatever its age.
    fn drop_empty(&mut self, key: GroupKey) {
        if self.groups.get(&key).is_some_and(|group| group.members.is_empty()) {
            self.take_group(key);
            self.gone.group(key);
        }
    }

    /// Evicts groups until there are only that many.
    fn make_room(&mut self, max_groups: usize, changes: &mut Vec<McastChange>) {
        while self.groups.len() > max_groups {
            let Some((_, owner)) = self.by_size.last() else { return };
            let oldest = self.owned.get(owner).and_then(BTreeMap::first_key_value);
            let Some(key) = oldest.map(|(_, key)| *key) else { return };
            let members = self.take_group(key).map(|group| group.members).unwrap_or_default();
            members.iter().for_each(|member| _ = self.by_age.remove(&member.order));
            self.gone.group(key);
            self.stats.evicted += 1;
            changes.push(McastChange::Group(key));
        }
    }
}

#[cfg(test)]
mod tests;
