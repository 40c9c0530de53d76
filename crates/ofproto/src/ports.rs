//! Ports and bundles of a bridge, as translation sees them.

use crate::bond::{Bond, BondMode};
pub use crate::ids::{BridgeId, BundleId};
use crate::links::{self, PortLink};
use crate::mcast::McastTable;
use crate::tunnel::{PacketTypes, TunnelConfig};
use flow::text::PortNames;
use flow::{DpPort, MacAddr, OfPort, TlvTable};
use l2proto::protocol::LinkState;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU64, Mutex};

/// Set of VLAN numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// The set of the given numbers; ignores those above 4095.
    pub fn new(vlans: impl IntoIterator<Item = u16>) -> VlanSet {
        let mut set = Box::new([0; 64]);
        for v in vlans.into_iter().filter(|v| *v < 4096) {
            set[usize::from(v / 64)] |= 1 << (v % 64);
        }
        VlanSet(set)
    }

    /// Whether the number is in the set.
    pub fn contains(&self, vlan: u16) -> bool {
        vlan < 4096 && self.0[usize::from(vlan / 64)] >> (vlan % 64) & 1 != 0
    }
}

/// VLAN mode of a bundle (`Port.vlan_mode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VlanMode {
    /// One VLAN, untagged.
    Access,
    /// Several VLANs, tagged.
    #[default]
    Trunk,
    /// A trunk whose native VLAN is tagged on output.
    NativeTagged,
    /// A trunk whose native VLAN is untagged on output.
    NativeUntagged,
    /// The packets of a customer, within one VLAN of the bridge (IEEE 802.1ad).
    Dot1qTunnel,
}

/// A `Port` of the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    /// Its number.
    pub id: BundleId,
    /// Its name.
    pub name: String,
    /// Its interfaces.
    pub members: Vec<OfPort>,
    /// VLAN treatment.
    pub vlan_mode: VlanMode,
    /// Access or native VLAN (0 for a pure trunk).
    pub tag: u16,
    /// VLANs that a trunk carries; `None` for all.
    pub trunks: Option<VlanSet>,
    /// VLANs of the customer that a tunnel port carries; `None` for all.
    pub cvlans: Option<VlanSet>,
    /// EtherType of the tag that a tunnel port adds (`other_config:qinq-ethtype`).
    pub qinq_tpid: u16,
    /// Send priority-tagged frames for VLAN 0 (`other_config:priority-tags`).
    pub priority_tags: PriorityTags,
    /// Not forwarded to other protected ports.
    pub protected: bool,
    /// Gets all multicast packets (`mcast-snooping-flood`).
    pub mcast_flood: bool,
    /// Gets all reports of members (`mcast-snooping-flood-reports`).
    pub mcast_flood_reports: bool,
    /// Flooded to by `NORMAL` (the port is not excluded by `no-flood`).
    pub floodable: bool,
    /// Chooses among several members.
    pub bond: Option<Arc<Bond>>,
}

/// Use of priority tags for frames of VLAN 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PriorityTags {
    /// Never.
    #[default]
    Never,
    /// If the priority is not 0.
    IfNonzero,
    /// Always.
    Always,
}

impl Port {
    /// Whether it can send: group buckets that watch it are live. The state of its links may change while the port stays.
    pub fn may_enable(&self) -> bool {
        !self.link_down && !self.config.port_down && self.link_state().is_live
    }

    /// The restrictions of all its links.
    pub fn link_state(&self) -> LinkState {
        links::state(&self.links)
    }

    /// Its links of protocols that may stop forwarding or learning.
    pub fn gating_links(&self) -> impl Iterator<Item = &PortLink> {
        self.links.iter().filter(|link| link.gates_traffic)
    }

    /// Whether translation counts its packets, because no device does.
    pub fn is_counted_here(&self) -> bool {
        self.dp_port.is_none() || self.tunnel.is_some()
    }
}

impl Bundle {
    /// Whether addresses learned with the other settings stay valid, as in OVS.
    pub fn keeps_macs(&self, other: &Bundle) -> bool {
        (self.vlan_mode, self.tag, &self.trunks, self.protected, self.priority_tags)
            == (other.vlan_mode, other.tag, &other.trunks, other.protected, other.priority_tags)
            && (&self.cvlans, self.qinq_tpid) == (&other.cvlans, other.qinq_tpid)
    }

    /// Whether a tunnel port carries that VLAN of its customer.
    pub fn allows_cvlan(&self, vlan: u16) -> bool {
        self.cvlans.as_ref().is_none_or(|cvlans| cvlans.contains(vlan))
    }

    /// Whether the bundle carries `vlan`.
    pub fn includes_vlan(&self, vlan: u16) -> bool {
        let trunked = || self.trunks.as_ref().is_none_or(|t| t.contains(vlan));
        match self.vlan_mode {
            VlanMode::Access | VlanMode::Dot1qTunnel => vlan == self.tag,
            VlanMode::Trunk => trunked(),
            // A native VLAN replaces VLAN 0.
            VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                vlan == self.tag && vlan != 0 || (vlan != 0 || self.tag == 0) && trunked()
            }
        }
    }
}

impl Port {
    /// Whether `NORMAL` floods to it. As in OVS, not to tunnels without Ethernet headers.
    pub fn is_floodable(&self) -> bool {
        let packet_types = self.tunnel.as_ref().map(|t| t.of_kind.packet_types);
        !self.config.no_flood && packet_types != Some(PacketTypes::Bare)
    }
}

/// Port configuration bits set by controllers (`OFPPC_*`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortConfigBits {
    /// The device is set down.
    pub port_down: bool,
    /// Drop received packets.
    pub no_recv: bool,
    /// Drop packets to be sent.
    pub no_fwd: bool,
    /// Exclude from flooding.
    pub no_flood: bool,
    /// Do not send packet-ins for table misses.
    pub no_packet_in: bool,
    /// No spanning tree: stored and reported, without effect.
    pub no_stp: bool,
    /// Drop received spanning tree frames.
    pub no_recv_stp: bool,
}

/// Counters of a port without device counters: a patch port, or one of the tunnels that share a device.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Packets and bytes received.
    pub rx: [AtomicU64; 2],
    /// Packets and bytes sent.
    pub tx: [AtomicU64; 2],
}

/// An interface of a bridge.
#[derive(Clone, Debug)]
pub struct Port {
    /// OpenFlow number.
    pub of_port: OfPort,
    /// Datapath number; a patch port has none, and tunnels may share one.
    pub dp_port: Option<DpPort>,
    /// Name.
    pub name: String,
    /// Database type (`""`/`system`, `internal`, `tap`, `patch` …).
    pub type_name: String,
    /// Ethernet address.
    pub mac: MacAddr,
    /// Its bundle.
    pub bundle: BundleId,
    /// The peer of a patch port, if it exists.
    pub patch_peer: Option<(BridgeId, OfPort)>,
    /// Counters of a patch port or tunnel.
    pub counters: Arc<PortCounters>,
    /// Encapsulation of a tunnel port.
    pub tunnel: Option<Arc<TunnelConfig>>,
    /// Configuration bits.
    pub config: PortConfigBits,
    /// The link is down.
    pub link_down: bool,
    /// Link state of its device.
    pub features: PortFeatures,
    /// Its sessions of link protocols, one of each at most.
    pub links: Vec<PortLink>,
    /// DSCP that packets of a queue get, by queue.
    pub queue_dscp: BTreeMap<u32, u8>,
}

/// Link state of a port's device. Bits are `OFPPF_*` with the numbers of OpenFlow 1.1 and later (1.3 §7.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortFeatures {
    /// Current features.
    pub current: u32,
    /// Advertised features.
    pub advertised: u32,
    /// Supported features.
    pub supported: u32,
    /// Current speed in Mbit/s, 0 unknown.
    pub speed_mbps: u32,
    /// Maximum speed in Mbit/s, 0 unknown.
    pub speed_max_mbps: u32,
}

impl PortFeatures {
    /// Current features of full duplex: `OFPPF_10MB_FD`, `100MB_FD`, `1GB_FD`, and faster ones.
    const FULL_DUPLEX: u32 = 0x3ea;

    /// Whether the port works in full duplex.
    pub fn is_full_duplex(&self) -> bool {
        self.current & PortFeatures::FULL_DUPLEX != 0
    }
}

/// Ports and bundles of a bridge.
#[derive(Clone, Debug, Default)]
pub struct PortTable {
    /// By OpenFlow number.
    pub ports: BTreeMap<OfPort, Arc<Port>>,
    /// By bundle number.
    pub bundles: BTreeMap<BundleId, Arc<Bundle>>,
}

impl PortTable {
    /// The port.
    pub fn port(&self, of_port: OfPort) -> Option<&Arc<Port>> {
        self.ports.get(&of_port)
    }

    /// The bundle of a port.
    pub fn bundle_of(&self, of_port: OfPort) -> Option<&Arc<Bundle>> {
        self.bundles.get(&self.port(of_port)?.bundle)
    }

    /// Whether a bond has mode `balance-slb`.
    pub(crate) fn has_slb(&self) -> bool {
        let mut bonds = self.bundles.values().filter_map(|bundle| bundle.bond.as_deref());
        bonds.any(|bond| bond.state().settings().mode == BondMode::BalanceSlb)
    }

    /// Tells a table of multicast groups which ports get all packets, and which get all reports.
    pub(crate) fn flag(&self, groups: &Mutex<McastTable>) {
        let ids = |is_flagged: fn(&Bundle) -> bool| {
            self.bundles.values().filter(|b| is_flagged(b)).map(|b| b.id).collect()
        };
        sync::lock(groups).set_ports(ids(|b| b.mcast_flood), ids(|b| b.mcast_flood_reports));
    }

    /// The port of that name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Port>> {
        self.ports.values().find(|p| p.name == name)
    }

    /// Ports for flooding: the bridge's own port first, the others by number.
    pub fn flood_order(&self) -> impl Iterator<Item = &Arc<Port>> {
        let local = self.ports.get(&OfPort::LOCAL);
        local.into_iter().chain(self.ports.values().filter(|p| p.of_port != OfPort::LOCAL))
    }

    /// Bundles for flooding, each at its first member.
    pub fn flood_bundles(&self) -> impl Iterator<Item = &Arc<Bundle>> {
        self.flood_order().filter_map(|port| {
            let bundle = self.bundles.get(&port.bundle)?;
            (bundle.members.first() == Some(&port.of_port)).then_some(bundle)
        })
    }
}

/// Names of a bridge's ports, and its mappings of tunnel metadata, for texts.
#[derive(Clone, Copy)]
pub struct BridgeNames<'a> {
    /// The ports.
    pub ports: &'a PortTable,
    /// The mappings.
    pub tlv: &'a TlvTable,
    /// Print names, not numbers. Both are always read.
    pub show: bool,
}

impl PortNames for BridgeNames<'_> {
    fn name(&self, port: OfPort) -> Option<&str> {
        self.ports.port(port).filter(|_| self.show).map(|p| p.name.as_str())
    }

    fn number(&self, name: &str) -> Option<OfPort> {
        self.ports.by_name(name).map(|p| p.of_port)
    }

    fn tlv(&self) -> &TlvTable {
        self.tlv
    }
}
