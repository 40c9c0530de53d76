//! A digest of the settings that translations depend on.

use super::{BridgeConfig, Desired, GlobalConfig, InterfaceConfig, ManagerConfig, PortConfig};
use l2proto::LinkSettings;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write};
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

/// The settings of a switch that translations depend on. Copies share them.
#[derive(Clone, Debug)]
pub struct Translated {
    global: Arc<GlobalConfig>,
    managers: Vec<ManagerConfig>,
    bridges: BTreeMap<String, Arc<BridgeConfig>>,
}

/// Hashes text.
struct Hashed(DefaultHasher);

impl Write for Hashed {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Hashed {
    fn add(&mut self, value: &dyn Debug) {
        // The end of a value counts; hashing does not fail.
        let _ = writeln!(self, "{value:?}");
    }
}

impl Desired {
    /// Its settings that translations depend on.
    pub fn translated(&self) -> Translated {
        let (managers, bridges) = (self.managers.clone(), self.bridges.clone());
        Translated { global: self.global.clone(), managers, bridges }
    }

    /// Whether a bridge takes part in a spanning tree.
    pub fn has_trees(&self) -> bool {
        let ports = self.bridges.values().flat_map(|bridge| bridge.ports.values());
        let mut links = ports.flat_map(|port| port.all_interfaces()).flat_map(|interface| &*interface.links);
        links.any(|link| matches!(link, LinkSettings::SpanningTree(_)))
    }
}

impl Translated {
    /// Whether they are the settings of this configuration.
    pub fn is_of(&self, desired: &Desired) -> bool {
        let is_same = |a: &Arc<BridgeConfig>, b: &Arc<BridgeConfig>| Arc::ptr_eq(a, b) || a == b;
        let (bridges, others) = (self.bridges.values(), desired.bridges.values());
        (Arc::ptr_eq(&self.global, &desired.global) || self.global == desired.global)
            && self.managers == desired.managers
            && bridges.len() == others.len()
            && bridges.zip(others).all(|(a, b)| is_same(a, b))
    }

    /// The digest: the same in a later process of this program if the settings are. Rows may be others, and numbers that the
    /// switch chose do not count.
    pub fn digest(&self) -> u64 {
        let mut all = Hashed(DefaultHasher::new());
        all.add(&(&self.global, &self.managers));
        self.bridges.values().for_each(|bridge| add_bridge(&mut all, bridge));
        all.0.finish()
    }
}

fn add_bridge(all: &mut Hashed, bridge: &BridgeConfig) {
    let BridgeConfig {
        row: _,
        name,
        datapath_type,
        datapath_version,
        default_datapath,
        options,
        controllers,
        mirrors,
        ports,
    } = bridge;
    all.add(&(name, datapath_type, datapath_version, default_datapath, options, controllers, mirrors));
    ports.values().for_each(|port| add_port(all, port));
}

fn add_port(all: &mut Hashed, port: &PortConfig) {
    let PortConfig {
        row: _,
        name,
        vlan_mode,
        tag,
        trunks,
        cvlans,
        qinq_tpid,
        mcast_flood,
        mcast_flood_reports,
        priority_tags,
        protected,
        fake_bridge: _,
        mac,
        bond,
        interfaces,
        bond_interface,
    } = port;
    all.add(&(name, vlan_mode, tag, trunks, cvlans, qinq_tpid));
    all.add(&(mcast_flood, mcast_flood_reports, priority_tags, protected, mac, bond));
    interfaces.iter().chain(bond_interface).for_each(|interface| add_interface(all, interface));
}

fn add_interface(all: &mut Hashed, interface: &InterfaceConfig) {
    let InterfaceConfig {
        row: _,
        is_of_bond,
        name,
        type_name,
        options,
        mac,
        mtu_request,
        rxq_affinity: _,
        ofport_request,
        // The switch chose it, and keeps it.
        ofport: _,
        links,
        qos,
        policing,
    } = interface;
    all.add(&(is_of_bond, name, type_name, options, mac, mtu_request, ofport_request, links, qos, policing));
}
