//! The desired state: the database's configuration, parsed into types without invalid values.
//!
//! [`Desired::from_replica`] is a function of the rows and the features of this build. A configuration that the
//! switch cannot apply becomes a [`Notice`], or an error of an interface in [`Desired::refused`]; nothing is ignored
//! silently, as `review` compares all rows with [`crate::settings`]. Status columns are never read, except `Interface.ofport`, which keeps a port's number across a restart.

mod bond;
mod bridge;
mod changes;
mod conntrack;
mod controller;
mod digest;
mod export;
mod global;
mod increment;
mod interface;
mod links;
mod mirror;
mod parsed;
mod port;
mod qos;
mod reader;
mod review;
mod supported;
#[cfg(test)]
mod tests;
mod threads;
mod unsupported;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ovsdb::client::Replica;
use ovsdb::value::Uuid;

pub use bridge::{BridgeConfig, BridgeOptions, FailMode, FlowTableConfig, OpenFlowVersion};
pub use conntrack::{CtConfig, CtZoneConfig};
pub use controller::{
    ConnectionMode, ControllerConfig, ControllerKind, LocalAddress, ManagerConfig, connection_dscp,
};
pub use digest::Translated;
pub use export::{IpfixConfig, NetflowConfig, SflowConfig};
pub use global::{GlobalConfig, MetricsAddress, Restore, SslConfig, UpcallDispatch};
pub use interface::{InterfaceConfig, check_device_name};
pub use mirror::{MirrorConfig, MirrorPorts, MirrorTarget};
pub use parsed::Parsed;
pub use port::PortConfig;
pub use review::UnknownKey;
pub use supported::{DatapathSupport, SupportedTypes};

pub(crate) use interface::natural_order;
use reader::Reader;

/// String maps, like `other_config` and `options`.
pub type StringMap = BTreeMap<String, String>;

/// A configuration that is not applied, or differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Notice {
    /// The row's table.
    pub table: &'static str,
    /// The row.
    pub row: Uuid,
    /// The row's name, or another display name.
    pub name: String,
    /// The column of the setting, or column and key (`other_config:flow-limit`).
    pub setting: String,
    /// The problem and its consequence.
    pub message: String,
    /// Whether the log warns of it, rather than tells it on demand: OVS does not warn of every value out of range.
    pub is_warning: bool,
}

/// The configuration in the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// The row of `Open_vSwitch`, once there is one.
    pub row: Option<Uuid>,
    /// `next_cfg`: to acknowledge when all of this is applied.
    pub next_cfg: i64,
    /// Global settings.
    pub global: Arc<GlobalConfig>,
    /// Connection tracking by datapath type; only types with settings.
    pub conntrack: BTreeMap<String, Arc<CtConfig>>,
    /// Rows of `Manager`.
    pub managers: Vec<ManagerConfig>,
    /// Bridges by name.
    pub bridges: BTreeMap<String, Arc<BridgeConfig>>,
    /// Rows of `Interface` that cannot be served, with their errors.
    pub refused: BTreeMap<Uuid, String>,
    /// All notices for the operator.
    pub notices: BTreeSet<Notice>,
    /// Keys that no setting has: other programs may use them, or they are mistyped.
    pub unknown_keys: Vec<UnknownKey>,
}

impl Desired {
    /// Parses the rows.
    pub fn from_replica(replica: &Replica, supported: &SupportedTypes) -> Desired {
        Desired::read(replica, supported, &mut Parsed::default())
    }

    /// Parses the rows, but those that `parsed` has, and keeps results there. The owner tells it [changes](Parsed::changed)
    /// before.
    pub fn read(replica: &Replica, supported: &SupportedTypes, parsed: &mut Parsed) -> Desired {
        if let Some(desired) = increment::read(replica, supported, parsed) {
            return desired;
        }
        let Some(root) = replica.rows("Open_vSwitch").next() else { return Desired::default() };
        let mut reader = Reader::new(replica, supported, std::mem::take(parsed));
        let global = reader.global(root);
        let conntrack = reader.conntrack(root);
        let managers = replica.rows("Manager").map(|row| reader.manager(row)).collect();
        let mut rows: Vec<_> =
            root.uuid_set("bridges").into_iter().filter_map(|uuid| replica.row("Bridge", uuid)).collect();
        rows.sort_by_key(|row| row.str("name"));
        let mut bridges = BTreeMap::new();
        for row in rows {
            if let Some(bridge) = reader.bridge(row) {
                let former = bridges.insert(bridge.name.clone(), Arc::new(bridge));
                reader.is_by_port &= former.is_none();
            }
        }
        reader::check_names_across(&mut reader, &mut bridges);
        let unknown_keys = reader.review();
        *parsed = reader.parsed;
        let is_by_port = reader.is_by_port;
        let desired = Desired {
            row: Some(root.uuid()),
            next_cfg: root.int("next_cfg"),
            global: Arc::new(global),
            conntrack,
            managers,
            bridges,
            refused: reader.refused,
            notices: reader.notices,
            unknown_keys,
        };
        if is_by_port {
            parsed.keep_last(&desired);
        }
        desired
    }
}
