//! State read by translations: an immutable view of all bridges and the map from datapath ports to them.

use crate::ids::{BridgeId, BundleId};
use crate::mac_table::MacTable;
use crate::mcast::{McastSettings, McastTable};
use crate::mirror::Mirrors;
use crate::native::NativeTunnels;
use crate::ports::{Port, PortTable, VlanSet};
use crate::sampling::Sampling;
use crate::tables::Tables;
use crate::tunnel_ports::TunnelPorts;
use dpif::TimeoutId;
use flow::{BadOptions, DpPort, Flow, FlowKey, MacAddr, OfPort, shape};
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, Ordering};
use telemetry::netflow;

/// Controllers of a bridge that want packets. May return false positives: for ids equal modulo 64, and before the
/// listeners are set.
#[derive(Debug)]
pub struct Listeners(AtomicU64);

impl Default for Listeners {
    fn default() -> Listeners {
        Listeners(AtomicU64::new(u64::MAX))
    }
}

impl Listeners {
    /// Sets the listening controllers, by their ids.
    pub fn set(&self, controllers: impl Iterator<Item = u16>) {
        self.0.store(controllers.fold(0, |all, id| all | 1 << (id % 64)), Ordering::Release);
    }

    /// Whether to make a packet for the controllers of that id.
    pub fn want(&self, controller_id: u16) -> bool {
        self.0.load(Ordering::Acquire) >> (controller_id % 64) & 1 != 0
    }
}

/// Treatment of IP fragments by a bridge (`OFPC_FRAG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FragHandling {
    /// Rules see the transport ports of all fragments as 0.
    #[default]
    Normal,
    /// Drops them.
    Drop,
    /// Rules see the transport ports of first fragments (`OFPC_FRAG_NX_MATCH`).
    NxMatch,
}

impl FragHandling {
    /// `OFPC_FRAG_MASK`.
    pub const MASK: u16 = 3;

    /// The bits of `OFPT_GET_CONFIG_REPLY`.
    pub fn to_flags(self) -> u16 {
        match self {
            FragHandling::Normal => 0,
            FragHandling::Drop => 1,
            FragHandling::NxMatch => 3,
        }
    }

    /// The value for the bits of `OFPT_SET_CONFIG`; `None` for reassembly, which this switch does not support.
    pub fn from_flags(flags: u16) -> Option<FragHandling> {
        match flags & FragHandling::MASK {
            0 => Some(FragHandling::Normal),
            1 => Some(FragHandling::Drop),
            3 => Some(FragHandling::NxMatch),
            _ => None,
        }
    }
}

/// A snapshot of a bridge.
#[derive(Clone)]
pub struct BridgeView {
    /// Its number.
    pub id: BridgeId,
    /// Its name.
    pub name: Arc<str>,
    /// Flow tables.
    pub tables: Tables,
    /// Ports and bundles.
    pub ports: Arc<PortTable>,
    /// Whether a bond has mode `balance-slb`: such a bond may reflect what its hosts say.
    pub(crate) has_slb: bool,
    /// Learned addresses: shared by all versions of the view.
    pub macs: Arc<Mutex<MacTable>>,
    /// Multicast groups, where they are snooped: shared like addresses.
    pub mcast: Option<Arc<Mutex<McastTable>>>,
    /// Datapath numbers of the bridge's meters, by OpenFlow number.
    pub meters: Arc<BTreeMap<u32, u32>>,
    /// Table misses go to the controllers (for connections of OpenFlow 1.2 or older).
    pub miss_to_controller: bool,
    /// In-band control: the bridge's device gets DHCP replies whatever the rules.
    pub in_band: bool,
    /// Listening controllers: shared by all versions of the view.
    pub listeners: Arc<Listeners>,
    /// `NORMAL` forwards the reserved multicast addresses of 802.1D.
    pub forward_bpdu: bool,
    /// VLANs in which `NORMAL` learns nothing and floods all (`flood_vlans`).
    pub flood_vlans: Option<Arc<VlanSet>>,
    /// Treatment of IP fragments.
    pub frags: FragHandling,
    /// Mirrors; `None`: there are none.
    pub mirrors: Option<Arc<Mirrors>>,
    /// Sampling; `None`: there is none.
    pub sampling: Option<Arc<Sampling>>,
    /// Exporter of NetFlow; `None`: there is none. Shared by all versions of the view.
    pub netflow: Option<Arc<Mutex<netflow::Exporter>>>,
}

/// A snapshot of all bridges of one datapath.
#[derive(Clone)]
pub struct View {
    /// Bridges by number.
    pub bridges: BTreeMap<BridgeId, Arc<BridgeView>>,
    /// Bridge and OpenFlow port of each datapath port, except those of tunnels.
    pub dp_ports: Arc<BTreeMap<DpPort, (BridgeId, OfPort)>>,
    /// Bridges and OpenFlow ports of tunnels.
    pub tunnels: TunnelPorts,
    /// Tunnels in user space; `None`: the datapath encapsulates by its ports.
    pub native: Option<Arc<NativeTunnels>>,
    /// Timeout policies of connection tracking zones.
    pub zone_timeouts: Arc<BTreeMap<u16, TimeoutId>>,
    /// VLAN tags that rules tell apart (`vlan-limit`).
    pub vlan_limit: u8,
}

/// The device of a route: a port of a bridge.
#[derive(Clone, Debug)]
pub struct OutDevice {
    /// Its bridge.
    pub bridge: BridgeId,
    /// The name of that.
    pub bridge_name: Arc<str>,
    /// The port.
    pub port: Arc<Port>,
    /// Its Ethernet address.
    pub mac: MacAddr,
}

impl Default for View {
    fn default() -> View {
        View {
            bridges: BTreeMap::new(),
            dp_ports: Arc::default(),
            tunnels: TunnelPorts::default(),
            native: None,
            zone_timeouts: Arc::default(),
            vlan_limit: 1,
        }
    }
}

impl BridgeView {
    /// Whether copies of a mirror go to this bundle.
    pub fn is_mirror_output(&self, bundle: BundleId) -> bool {
        self.mirrors.as_ref().is_some_and(|mirrors| mirrors.of(bundle).into != 0)
    }

    /// Sets the VLANs in which `NORMAL` floods all packets. A change flushes learned addresses, as in OVS.
    pub fn set_flood_vlans(&mut self, vlans: &[u16]) {
        let vlans = (!vlans.is_empty()).then(|| Arc::new(VlanSet::new(vlans.iter().copied())));
        if self.flood_vlans != vlans {
            self.flood_vlans = vlans;
            sync::lock(&self.macs).flush(None);
        }
    }

    /// Starts multicast snooping with these settings, changes them, or stops it.
    pub fn set_mcast(&mut self, settings: Option<McastSettings>) {
        self.mcast = settings.map(|settings| {
            let table = self.mcast.take().unwrap_or_default();
            sync::lock(&table).configure(settings);
            self.ports.flag(&table);
            table
        });
    }

    /// Whether `NORMAL` floods all packets of that VLAN.
    pub fn floods(&self, vlan: u16) -> bool {
        self.flood_vlans.as_ref().is_some_and(|vlans| vlans.contains(vlan))
    }

    /// The flow of a packet of that key, received on `of_port` of the bridge.
    ///
    /// # Errors
    /// Its tunnel options do not agree with the bridge's mappings.
    pub fn flow_of(&self, key: &FlowKey, of_port: OfPort) -> Result<Flow, BadOptions> {
        let mut flow = key.to_flow(of_port);
        if key.has(shape::OPTIONS) {
            self.tables.tlv().decode(&key.options, &mut flow)?;
        }
        Ok(flow)
    }
}

impl View {
    /// The bridge.
    pub fn bridge(&self, id: BridgeId) -> Option<&Arc<BridgeView>> {
        self.bridges.get(&id)
    }

    /// The bridge of that name.
    pub fn bridge_by_name(&self, name: &str) -> Option<&Arc<BridgeView>> {
        self.bridges.values().find(|b| &*b.name == name)
    }

    /// Bridge and OpenFlow input port of a packet with this key.
    pub fn receiver(&self, key: &FlowKey) -> Option<(&Arc<BridgeView>, OfPort)> {
        let of_device = || self.dp_ports.get(&key.in_port()).copied();
        let (bridge, of_port) = self.tunnels.receiver(key).or_else(of_device)?;
        Some((self.bridges.get(&bridge)?, of_port))
    }

    /// The port of a device of that name: a bridge's own port, or else the first port of that name.
    pub(crate) fn device(&self, name: &str) -> Option<OutDevice> {
        let own = self.bridge_by_name(name).and_then(|b| Some((b, b.ports.port(OfPort::LOCAL)?)));
        let named = || self.bridges.values().find_map(|b| Some((b, b.ports.by_name(name)?)));
        let (bridge, port) = own.or_else(named)?;
        // Follows the device; that of the port follows the configuration.
        let listening = self.native.as_ref().and_then(|native| native.listeners.device(name));
        Some(OutDevice {
            bridge: bridge.id,
            bridge_name: bridge.name.clone(),
            port: port.clone(),
            mac: listening.map_or(port.mac, |device| device.mac),
        })
    }
}
