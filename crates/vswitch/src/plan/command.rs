//! [`Command`]: a step for the owner of a [`super::Planner`].

use std::sync::Arc;

use ofproto::ports::BridgeId;
use ofproto::{DpPort, MacAddr};

use super::PortSet;
use crate::config::{BridgeOptions, ControllerConfig, CtConfig, GlobalConfig};
use dpif::qos::{Policing, Qos};
use dpif::{PortOptions, RxqAffinity};

/// Identifies one attempt to open an interface; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub(super) u64);

/// A step. Steps are executed in the given order; a failure does not stop the following ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Apply global settings.
    SetGlobal(Arc<GlobalConfig>),
    /// Apply limits and timeouts of connections, also to a datapath created later. On failure:
    /// [`super::Planner::conntrack_failed`].
    SetConntrack {
        /// The datapath type.
        datapath_type: String,
        /// All its settings.
        config: Arc<CtConfig>,
    },
    /// Create a bridge without ports. On failure: [`super::Planner::bridge_failed`].
    CreateBridge(CreateBridge),
    /// Remove a bridge whose interfaces are closed.
    DestroyBridge {
        /// The bridge.
        bridge: BridgeId,
        /// Its name.
        name: String,
    },
    /// Open a device and add it to the datapath; report with [`super::Planner::opened`].
    OpenInterface(OpenInterface),
    /// Remove a device from the datapath and close it. No error if it is not open.
    CloseInterface {
        /// Its previous bridge.
        bridge: BridgeId,
        /// Its name.
        name: String,
    },
    /// Change settings of an open device in place. On failure: [`super::Planner::settings_failed`].
    UpdateInterface {
        /// Its bridge.
        bridge: BridgeId,
        /// Its name.
        name: String,
        /// All its settings.
        device: DeviceSettings,
    },
    /// Replace ports and bundles of a bridge ([`PortSet::table`] builds their table).
    SetPorts {
        /// The bridge.
        bridge: BridgeId,
        /// Its name.
        name: String,
        /// The ports.
        ports: Arc<PortSet>,
    },
    /// Apply settings of a bridge.
    ConfigureBridge {
        /// The bridge.
        bridge: BridgeId,
        /// Its name.
        name: String,
        /// The settings.
        settings: BridgeSettings,
    },
    /// Replace the controllers of a bridge, except its own management socket.
    SetControllers {
        /// The bridge.
        bridge: BridgeId,
        /// Its name.
        name: String,
        /// The controllers.
        controllers: Vec<ControllerConfig>,
    },
}

/// A new bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateBridge {
    /// Its number in this process, never reused.
    pub bridge: BridgeId,
    /// Its name.
    pub name: String,
    /// The datapath type used for it.
    pub datapath_type: String,
    /// Its initial datapath id; ports may change it.
    pub datapath_id: u64,
}

/// Settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Address to set; `None` leaves it unchanged.
    pub mac: Option<MacAddr>,
    /// MTU to set; `None` leaves it unchanged.
    pub mtu: Option<u32>,
    /// Receive queues pinned to cores.
    pub rxq_affinity: RxqAffinity,
    /// Options of its type.
    pub options: PortOptions,
    /// Quality of service of its port.
    pub qos: Option<Arc<Qos>>,
    /// Limits of what it receives.
    pub policing: Policing,
}

/// A device to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInterface {
    /// Identifies this attempt.
    pub open: OpenId,
    /// Its bridge.
    pub bridge: BridgeId,
    /// The name of the bridge.
    pub bridge_name: String,
    /// The bridge's datapath type, which determines the meaning of `internal`.
    pub datapath_type: String,
    /// Name.
    pub name: String,
    /// Type as in the database, never empty.
    pub type_name: String,
    /// Whether it is the bridge's own.
    pub is_local: bool,
    /// Its address if it has no separate device.
    pub address: MacAddr,
    /// Its settings.
    pub device: DeviceSettings,
}

/// An open device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedInterface {
    /// Its number in the datapath.
    pub dp_port: DpPort,
    /// Its address.
    pub mac: MacAddr,
    /// Its MTU.
    pub mtu: Option<u32>,
}

/// Settings of a bridge, including those derived from its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// As configured.
    pub options: BridgeOptions,
    /// The datapath id.
    pub datapath_id: u64,
    /// The address of its own port.
    pub mac: MacAddr,
}
