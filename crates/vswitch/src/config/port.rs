//! [`PortConfig`]: a port of a bridge with its VLAN mode and its interfaces.

use std::collections::BTreeMap;
use std::sync::Arc;

use l2proto::LinkSettings;
use ofproto::MacAddr;
use ofproto::bond::BondSettings;
use ofproto::ports::{PriorityTags, VlanMode};
use ovsdb::client::RowView;
use ovsdb::value::Uuid;

use super::parsed::ParsedPort;
use super::reader::{Reader, flag};
use super::{InterfaceConfig, natural_order};

/// A row of `Port`, or a bridge's implicit own port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// The row; a bridge's own port may have none.
    pub row: Option<Uuid>,
    /// Name.
    pub name: String,
    /// VLAN mode, with the implicit ones resolved.
    pub vlan_mode: VlanMode,
    /// Access or native VLAN, 0 for a pure trunk.
    pub tag: u16,
    /// VLANs that a trunk carries; empty for all.
    pub trunks: Vec<u16>,
    /// `cvlans`: customer VLANs that a tunnel port carries; empty for all.
    pub cvlans: Vec<u16>,
    /// EtherType of the tag that a tunnel port adds.
    pub qinq_tpid: u16,
    /// `mcast-snooping-flood`: gets all multicast packets.
    pub mcast_flood: bool,
    /// `mcast-snooping-flood-reports`: gets all reports.
    pub mcast_flood_reports: bool,
    /// `other_config:priority-tags`.
    pub priority_tags: PriorityTags,
    /// Not forwarded to other protected ports.
    pub protected: bool,
    /// Shown by tools as a separate bridge.
    pub fake_bridge: bool,
    /// `mac`: address of this port for the choice of the bridge's address.
    pub mac: Option<MacAddr>,
    /// Settings of a bond, for a port with several interfaces.
    pub bond: BondSettings,
    /// Supported interfaces.
    pub interfaces: Vec<Arc<InterfaceConfig>>,
    /// Its own interface beside them (`bond_fake_iface`), for a bond.
    pub bond_interface: Option<Arc<InterfaceConfig>>,
}

impl PortConfig {
    /// All wanted interfaces.
    pub(crate) fn all_interfaces(&self) -> impl Iterator<Item = &Arc<InterfaceConfig>> {
        self.interfaces.iter().chain(&self.bond_interface)
    }

    /// A bridge's own port without a row.
    fn implicit_local(bridge: &str, dummy_datapath: bool, links: Arc<[LinkSettings]>) -> Self {
        PortConfig {
            row: None,
            name: bridge.to_string(),
            vlan_mode: VlanMode::Trunk,
            tag: 0,
            trunks: Vec::new(),
            cvlans: Vec::new(),
            qinq_tpid: TPID_8021AD,
            mcast_flood: false,
            mcast_flood_reports: false,
            priority_tags: PriorityTags::Never,
            protected: false,
            fake_bridge: false,
            mac: None,
            bond: BondSettings::default(),
            interfaces: vec![Arc::new(InterfaceConfig::implicit_local(bridge, dummy_datapath, links))],
            bond_interface: None,
        }
    }
}

/// EtherType of a tag (IEEE 802.1Q).
const TPID_8021Q: u16 = 0x8100;
/// EtherType of a service tag (IEEE 802.1ad).
const TPID_8021AD: u16 = 0x88a8;

/// Whether a port of that mode is in one VLAN of the bridge.
fn is_one_vlan(mode: VlanMode) -> bool {
    matches!(mode, VlanMode::Access | VlanMode::Dot1qTunnel)
}

/// The VLANs of a column.
pub(super) fn vlans(row: RowView<'_>, column: &str) -> Vec<u16> {
    row.int_set(column).into_iter().filter_map(|n| u16::try_from(n).ok()).collect()
}

impl<'a> Reader<'a> {
    /// The ports of a bridge, its own included.
    pub(super) fn ports(
        &mut self,
        bridge: RowView<'a>,
        dummy_datapath: bool,
    ) -> BTreeMap<String, Arc<PortConfig>> {
        let bridge_name = bridge.str("name");
        let mut ports = BTreeMap::new();
        for row in bridge.uuid_set("ports").into_iter().filter_map(|uuid| self.replica.row("Port", uuid)) {
            let name = row.str("name");
            if let Some(owner) = self.owners.get(&row.uuid()) {
                let message =
                    format!("port {name} is already in bridge {owner}: bridge {bridge_name} goes without it");
                self.notice(row, "name", message);
                self.is_by_port = false;
                continue;
            }
            self.owners.insert(row.uuid(), bridge_name);
            let port = self.known_port(row, bridge, dummy_datapath);
            self.is_by_port &= ports.insert(name.to_string(), port).is_none();
        }
        let has_local = |port: &Arc<PortConfig>| port.interfaces.iter().any(|i| i.name == bridge_name);
        if !ports.values().any(has_local) {
            let links = self.links(self.link_rows(bridge, None, None));
            let local = Arc::new(PortConfig::implicit_local(bridge_name, dummy_datapath, links));
            let port = ports.entry(bridge_name.to_string()).or_insert_with(|| local.clone());
            if port.interfaces.is_empty() {
                Arc::make_mut(port).interfaces.clone_from(&local.interfaces);
            }
        }
        ports
    }

    /// A port as parsed before, or anew.
    pub(super) fn known_port(
        &mut self,
        row: RowView<'a>,
        bridge: RowView<'a>,
        dummy_datapath: bool,
    ) -> Arc<PortConfig> {
        if let Some(known) = self.parsed.port(row.uuid())
            && known.bridge == bridge.uuid()
            && !known.interfaces.iter().any(|uuid| self.owners.contains_key(uuid))
        {
            let name = row.str("name");
            self.owners.extend(known.interfaces.iter().map(|uuid| (*uuid, name)));
            self.notices.extend(known.notices.iter().cloned());
            self.refused.extend(known.refused.iter().cloned());
            return known.config.clone();
        }
        self.parsed.drop_port(row.uuid());
        let interfaces = row.uuid_set("interfaces");
        // Other rows decide about an interface of two ports, and about the name of a bond's own interface.
        let is_alone = !interfaces.iter().any(|uuid| self.owners.contains_key(uuid));
        let may_keep = is_alone && !row.bool("bond_fake_iface");
        let before = (std::mem::take(&mut self.notices), std::mem::take(&mut self.refused));
        let config = Arc::new(self.port(row, bridge, dummy_datapath));
        let notices = std::mem::replace(&mut self.notices, before.0);
        let refused = std::mem::replace(&mut self.refused, before.1);
        self.is_by_port &= may_keep;
        if may_keep {
            let parsed = ParsedPort {
                config: config.clone(),
                bridge: bridge.uuid(),
                interfaces,
                notices: notices.iter().cloned().collect(),
                refused: refused.clone().into_iter().collect(),
            };
            self.parsed.keep_port(row.uuid(), parsed);
        }
        self.notices.extend(notices);
        self.refused.extend(refused);
        config
    }

    fn port(&mut self, row: RowView<'a>, bridge: RowView<'a>, dummy_datapath: bool) -> PortConfig {
        let interfaces = self.port_interfaces(row, bridge, dummy_datapath);
        let (vlan_mode, tag) = self.vlan_treatment(row);
        PortConfig {
            row: Some(row.uuid()),
            name: row.str("name").to_string(),
            vlan_mode,
            tag,
            trunks: if is_one_vlan(vlan_mode) { Vec::new() } else { vlans(row, "trunks") },
            cvlans: if vlan_mode == VlanMode::Dot1qTunnel { vlans(row, "cvlans") } else { Vec::new() },
            qinq_tpid: match row.map_str("other_config", "qinq-ethtype") {
                Some("802.1q") => TPID_8021Q,
                _ => TPID_8021AD,
            },
            mcast_flood: flag(row, "other_config", "mcast-snooping-flood"),
            mcast_flood_reports: flag(row, "other_config", "mcast-snooping-flood-reports"),
            priority_tags: match row.map_str("other_config", "priority-tags") {
                Some("true" | "if-nonzero") => PriorityTags::IfNonzero,
                Some("always") => PriorityTags::Always,
                _ => PriorityTags::Never,
            },
            protected: row.bool("protected"),
            fake_bridge: row.bool("fake_bridge"),
            mac: self.port_mac(row),
            bond: self.bond(row, bridge, interfaces.len()),
            bond_interface: self.bond_interface(row, interfaces.len(), dummy_datapath).map(Arc::new),
            interfaces,
        }
    }

    /// Keeps an address impossible for a bridge: the port then provides none for its bridge.
    fn port_mac(&mut self, row: RowView<'a>) -> Option<MacAddr> {
        let text = row.opt_str("mac")?;
        let mac = MacAddr::parse(text.trim());
        if mac.is_none() {
            self.notice(row, "mac", format!("mac={text:?} is not an Ethernet address: ignored"));
        }
        mac
    }

    /// The supported interfaces, in name order.
    fn port_interfaces(
        &mut self,
        row: RowView<'a>,
        bridge: RowView<'a>,
        dummy_datapath: bool,
    ) -> Vec<Arc<InterfaceConfig>> {
        let mut rows: Vec<_> = row
            .uuid_set("interfaces")
            .into_iter()
            .filter_map(|uuid| self.replica.row("Interface", uuid))
            .collect();
        rows.sort_by(|a, b| natural_order(a.str("name"), b.str("name")));
        let mut interfaces = Vec::new();
        let qos = self.qos(row);
        for interface in rows {
            let (port, name) = (row.str("name"), interface.str("name"));
            if let Some(owner) = self.owners.get(&interface.uuid()) {
                let message =
                    format!("interface {name} is already in port {owner}: port {port} goes without it");
                self.notice(row, "interfaces", message);
                continue;
            }
            self.owners.insert(interface.uuid(), port);
            let rows = self.link_rows(bridge, Some(row), Some(interface));
            interfaces.extend(self.interface(interface, rows, dummy_datapath, qos.clone()).map(Arc::new));
        }
        interfaces
    }

    /// VLAN mode and tag: without a mode, a tag selects access and no tag selects trunk.
    fn vlan_treatment(&mut self, row: RowView<'a>) -> (VlanMode, u16) {
        let tag = row.opt_int("tag").and_then(|n| u16::try_from(n).ok()).filter(|tag| *tag < 4096);
        let trunks = !row.int_set("trunks").is_empty();
        let mode = match row.opt_str("vlan_mode") {
            Some("access") => VlanMode::Access,
            Some("dot1q-tunnel") => VlanMode::Dot1qTunnel,
            Some("native-tagged") => VlanMode::NativeTagged,
            Some("native-untagged") => VlanMode::NativeUntagged,
            Some("trunk") => VlanMode::Trunk,
            _ if tag.is_some() => VlanMode::Access,
            _ => VlanMode::Trunk,
        };
        if mode == VlanMode::Access && trunks {
            self.notice(row, "trunks", "an access port has no trunks: trunks are ignored");
        }
        if mode == VlanMode::Dot1qTunnel && trunks {
            self.notice(row, "trunks", "a dot1q-tunnel port has no trunks: trunks are ignored");
        }
        if mode != VlanMode::Dot1qTunnel && !row.int_set("cvlans").is_empty() {
            self.notice(row, "cvlans", "only a dot1q-tunnel port has customers' VLANs: cvlans are ignored");
        }
        if mode == VlanMode::Trunk && tag.is_some() {
            self.notice(row, "tag", "a trunk has no native VLAN: tag is ignored");
        }
        (mode, if mode == VlanMode::Trunk { 0 } else { tag.unwrap_or(0) })
    }
}
