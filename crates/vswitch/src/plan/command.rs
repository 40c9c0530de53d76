//! [`Command`]: what the owner of a [`super::Planner`] has to do, in order.

use std::sync::Arc;

use ofproto::ports::BridgeId;
use ofproto::{DpPort, MacAddr};

use super::PortSet;
use crate::config::{BridgeOptions, ControllerConfig, DeviceOptions, GlobalConfig};
use dpif::RxqAffinity;

/// Names one attempt to open an interface; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub(super) u64);

/// A step. Steps are executed in the order given; a failing one does not stop those after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Apply settings of the whole switch.
    SetGlobal(Arc<GlobalConfig>),
    /// Make a bridge without ports. If it fails: [`super::Planner::bridge_failed`].
    CreateBridge(CreateBridge),
    /// Remove a bridge whose interfaces are closed by now.
    DestroyBridge {
        /// The bridge.
        bridge: BridgeId,
        /// Its name.
        name: String,
    },
    /// Open a device and add it to the datapath; answer with [`super::Planner::opened`].
    OpenInterface(OpenInterface),
    /// Remove a device from the datapath and close it. No error if it is not open.
    CloseInterface {
        /// The bridge it was in.
        bridge: BridgeId,
        /// Its name.
        name: String,
    },
    /// Change settings of an open device in place. If it fails: [`super::Planner::settings_failed`].
    UpdateInterface {
        /// The bridge it is in.
        bridge: BridgeId,
        /// Its name.
        name: String,
        /// All its settings.
        device: DeviceSettings,
    },
    /// Replace ports and bundles of a bridge ([`PortSet::table`] makes the table of them).
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
    /// Replace the controllers of a bridge, its own management socket aside.
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
    /// Its number in this process; not used before.
    pub bridge: BridgeId,
    /// Its name.
    pub name: String,
    /// The datapath type that serves it.
    pub datapath_type: String,
    /// Its datapath id for now; ports may change it.
    pub datapath_id: u64,
}

/// Settings of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Address to set; `None` leaves it as it is.
    pub mac: Option<MacAddr>,
    /// MTU to set; `None` leaves it as it is.
    pub mtu: Option<u32>,
    /// Receive queues pinned to cores.
    pub rxq_affinity: RxqAffinity,
    /// Options of its type.
    pub options: DeviceOptions,
}

/// A device to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInterface {
    /// Names this attempt.
    pub open: OpenId,
    /// The bridge it is for.
    pub bridge: BridgeId,
    /// The name of that bridge.
    pub bridge_name: String,
    /// The datapath type of that bridge: what `internal` means depends on it.
    pub datapath_type: String,
    /// Name.
    pub name: String,
    /// Type as in the database, never empty.
    pub type_name: String,
    /// It is the bridge's own.
    pub is_local: bool,
    /// Its address if it has no device of its own.
    pub address: MacAddr,
    /// Its settings.
    pub device: DeviceSettings,
}

/// A device that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedInterface {
    /// Its number in the datapath.
    pub dp_port: DpPort,
    /// Its address.
    pub mac: MacAddr,
    /// Its MTU.
    pub mtu: Option<u32>,
}

/// Settings of a bridge, with what is derived from its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSettings {
    /// As configured.
    pub options: BridgeOptions,
    /// The datapath id.
    pub datapath_id: u64,
    /// The address of its own port.
    pub mac: MacAddr,
}
