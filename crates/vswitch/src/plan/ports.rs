//! [`PortSet`]: the ports and bundles of a bridge for translation.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use l2proto::LinkSettings;
use ofproto::bond::BondSettings;
use ofproto::mirror::Mirrors;
use ofproto::ports::{BridgeId, Bundle, BundleId, Port, PortTable};
use ofproto::tunnel::TunnelConfig;
use ofproto::{DpPort, MacAddr, OfPort};

use super::mirrors::{self, MirrorEntry};

/// A port of a [`PortSet`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortEntry {
    /// OpenFlow number.
    pub of_port: OfPort,
    /// Datapath number; a patch port has none, and tunnels may share one.
    pub dp_port: Option<DpPort>,
    /// Name.
    pub name: String,
    /// Type as in the database, never empty.
    pub type_name: String,
    /// Address.
    pub mac: MacAddr,
    /// Its bundle.
    pub bundle: BundleId,
    /// Encapsulation of a tunnel port.
    pub tunnel: Option<Arc<TunnelConfig>>,
    /// Settings of its sessions of link protocols.
    pub links: Arc<[LinkSettings]>,
    /// DSCP that packets of a queue get, by queue.
    pub queue_dscp: BTreeMap<u32, u8>,
    /// The requested peer of a patch port.
    pub patch_peer_name: Option<String>,
    /// The peer of a patch port, if it exists and points back.
    pub patch_peer: Option<(BridgeId, OfPort)>,
}

impl PortEntry {
    /// Whether a port without sessions is as this entry makes it.
    fn is_port(&self, port: &Port) -> bool {
        let PortEntry {
            of_port,
            dp_port,
            name,
            type_name,
            mac,
            bundle,
            tunnel,
            links,
            queue_dscp,
            patch_peer_name: _,
            patch_peer,
        } = self;
        links.is_empty()
            && port.links.is_empty()
            && (*of_port, *dp_port, *mac) == (port.of_port, port.dp_port, port.mac)
            && (name, type_name, tunnel) == (&port.name, &port.type_name, &port.tunnel)
            && (*bundle, *patch_peer) == (port.bundle, port.patch_peer)
            && *queue_dscp == port.queue_dscp
    }

    /// Whether it is the same but for the peer of a patch port.
    fn is_same(&self, other: &PortEntry) -> bool {
        *self == PortEntry { patch_peer: self.patch_peer, ..other.clone() }
    }
}

/// Ports and bundles of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSet {
    /// In the order of their names.
    pub ports: Vec<Arc<PortEntry>>,
    /// In the order of their names; each has a port.
    pub bundles: Vec<Arc<Bundle>>,
    /// Settings of bundles that are bonds.
    pub bonds: BTreeMap<BundleId, BondSettings>,
    /// Mirrors, by row.
    pub mirrors: Vec<MirrorEntry>,
}

/// Entries and bundles that were taken out of a set, by name.
#[derive(Default)]
pub(super) struct FormerEntries {
    entries: BTreeMap<String, Arc<PortEntry>>,
    bundles: BTreeMap<String, Arc<Bundle>>,
}

impl PortSet {
    fn place(&self, name: &str) -> Result<usize, usize> {
        self.ports.binary_search_by(|entry| entry.name.as_str().cmp(name))
    }

    fn bundle_place(&self, name: &str) -> Result<usize, usize> {
        self.bundles.binary_search_by(|bundle| bundle.name.as_str().cmp(name))
    }

    /// The port of that name.
    pub(super) fn entry(&self, name: &str) -> Option<&Arc<PortEntry>> {
        self.ports.get(self.place(name).ok()?)
    }

    /// The port of that name, to be changed.
    pub(super) fn entry_mut(&mut self, name: &str) -> Option<&mut Arc<PortEntry>> {
        let at = self.place(name).ok()?;
        self.ports.get_mut(at)
    }

    /// Takes these interfaces and the bundles of these ports out.
    pub(super) fn take_out(
        &mut self,
        interfaces: &BTreeSet<String>,
        ports: &BTreeSet<String>,
    ) -> FormerEntries {
        let mut former = FormerEntries::default();
        for name in interfaces {
            if let Ok(at) = self.place(name) {
                former.entries.insert(name.clone(), self.ports.remove(at));
            }
        }
        for name in ports {
            if let Ok(at) = self.bundle_place(name) {
                let bundle = self.bundles.remove(at);
                self.bonds.remove(&bundle.id);
                former.bundles.insert(name.clone(), bundle);
            }
        }
        former
    }

    /// Adds a port; the former value if it is the same.
    pub(super) fn add_entry(&mut self, entry: PortEntry, former: &FormerEntries) {
        let known = former.entries.get(&entry.name).filter(|known| known.is_same(&entry));
        let entry = known.cloned().unwrap_or_else(|| Arc::new(entry));
        match self.place(&entry.name) {
            Ok(at) => self.ports[at] = entry,
            Err(at) => self.ports.insert(at, entry),
        }
    }

    /// Adds a bundle; the former value if it is the same.
    pub(super) fn add_bundle(&mut self, bundle: Bundle, former: &FormerEntries) {
        let known = former.bundles.get(&bundle.name).filter(|known| ***known == bundle);
        let bundle = known.cloned().unwrap_or_else(|| Arc::new(bundle));
        match self.bundle_place(&bundle.name) {
            Ok(at) => self.bundles[at] = bundle,
            Err(at) => self.bundles.insert(at, bundle),
        }
    }

    /// The mirrors for translation; those of `previous` keep their counters.
    pub fn mirrors(&self, previous: Option<&Mirrors>) -> Option<Arc<Mirrors>> {
        mirrors::mirrors(&self.mirrors, previous)
    }

    /// The table for translation. Data outside the set (configuration bits, link state, features, counters of a
    /// patch port or tunnel) is copied from `previous` for ports of the same number and name. Sessions of link
    /// protocols and bonds are for the caller to add.
    pub fn table(&self, previous: &PortTable) -> PortTable {
        let mut ports = BTreeMap::new();
        for entry in &self.ports {
            let before = previous.port(entry.of_port).filter(|port| port.name == entry.name);
            if let Some(before) = before.filter(|port| entry.is_port(port)) {
                ports.insert(entry.of_port, before.clone());
                continue;
            }
            let port = Port {
                of_port: entry.of_port,
                dp_port: entry.dp_port,
                name: entry.name.clone(),
                type_name: entry.type_name.clone(),
                mac: entry.mac,
                bundle: entry.bundle,
                patch_peer: entry.patch_peer,
                tunnel: entry.tunnel.clone(),
                counters: before.map(|port| port.counters.clone()).unwrap_or_default(),
                config: before.map(|port| port.config).unwrap_or_default(),
                link_down: before.is_some_and(|port| port.link_down),
                features: before.map(|port| port.features).unwrap_or_default(),
                links: Vec::new(),
                queue_dscp: entry.queue_dscp.clone(),
            };
            ports.insert(entry.of_port, Arc::new(port));
        }
        let mut bundles = BTreeMap::new();
        for bundle in &self.bundles {
            let flood = |of_port: &OfPort| ports.get(of_port).is_some_and(|port| port.is_floodable());
            let floodable = bundle.members.iter().any(flood);
            let before = previous.bundles.get(&bundle.id).filter(|b| is_bundle(b, bundle, floodable));
            let anew = || Arc::new(Bundle { floodable, ..Bundle::clone(bundle) });
            bundles.insert(bundle.id, before.cloned().unwrap_or_else(anew));
        }
        PortTable { ports, bundles }
    }
}

/// The entries of two sets that are another value in the other set, by name.
pub(super) fn differing_entries<'e>(
    before: &'e [Arc<PortEntry>],
    now: &'e [Arc<PortEntry>],
) -> (Vec<&'e PortEntry>, Vec<&'e PortEntry>) {
    let (before, now) = differing(before.iter(), now.iter(), |entry| &entry.name);
    (before.into_iter().map(|entry| &**entry).collect(), now.into_iter().map(|entry| &**entry).collect())
}

/// The values of two lists in the order of names that are other ones in the other list.
pub(super) fn differing<'v, T>(
    before: impl Iterator<Item = &'v Arc<T>>,
    now: impl Iterator<Item = &'v Arc<T>>,
    name: impl Fn(&T) -> &String,
) -> (Vec<&'v Arc<T>>, Vec<&'v Arc<T>>) {
    let (mut before, mut now) = (before.peekable(), now.peekable());
    let (mut only_before, mut only_now) = (Vec::new(), Vec::new());
    loop {
        let order = match (before.peek(), now.peek()) {
            (Some(a), Some(b)) if Arc::ptr_eq(a, b) => {
                before.next();
                now.next();
                continue;
            }
            (Some(a), Some(b)) => name(a).cmp(name(b)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return (only_before, only_now),
        };
        if order.is_le() {
            only_before.extend(before.next());
        }
        if order.is_ge() {
            only_now.extend(now.next());
        }
    }
}

/// Whether a bundle that is no bond is as a set wants it.
fn is_bundle(known: &Bundle, wanted: &Bundle, floodable: bool) -> bool {
    let Bundle {
        id,
        name,
        members,
        vlan_mode,
        tag,
        trunks,
        cvlans,
        qinq_tpid,
        priority_tags,
        protected,
        mcast_flood,
        mcast_flood_reports,
        floodable: _,
        bond: _,
    } = wanted;
    known.bond.is_none()
        && known.floodable == floodable
        && (*id, name, members) == (known.id, &known.name, &known.members)
        && (*vlan_mode, *tag, trunks, cvlans) == (known.vlan_mode, known.tag, &known.trunks, &known.cvlans)
        && (*qinq_tpid, *priority_tags) == (known.qinq_tpid, known.priority_tags)
        && (*protected, *mcast_flood) == (known.protected, known.mcast_flood)
        && *mcast_flood_reports == known.mcast_flood_reports
}
