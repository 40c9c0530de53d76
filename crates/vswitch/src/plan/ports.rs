//! [`PortSet`]: the ports and bundles of a bridge for translation.

use std::collections::BTreeMap;
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

/// Ports and bundles of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSet {
    /// In the order of their names.
    pub ports: Vec<PortEntry>,
    /// In the order of their names; each has a port.
    pub bundles: Vec<Bundle>,
    /// Settings of bundles that are bonds.
    pub bonds: BTreeMap<BundleId, BondSettings>,
    /// Mirrors, by row.
    pub mirrors: Vec<MirrorEntry>,
}

impl PortSet {
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
            bundles.insert(bundle.id, Arc::new(Bundle { floodable, ..bundle.clone() }));
        }
        PortTable { ports, bundles }
    }
}
