//! [`BridgeConfig`]: a bridge, its ports and its controllers.

use std::collections::BTreeMap;
use std::sync::Arc;

use ofproto::mcast::McastSettings;
use ofproto::tables::{EvictionField, NoPrefixField, TableSettings, eviction_field, prefix_field};
use ofproto::{FieldId, MacAddr};
use ovsdb::client::RowView;
use ovsdb::value::Uuid;

use super::reader::{Reader, flag};
use super::{
    ControllerConfig, DatapathSupport, IpfixConfig, MirrorConfig, NetflowConfig, PortConfig, SflowConfig,
};

/// Fail mode of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FailMode {
    /// Standalone: it becomes a learning switch.
    #[default]
    Standalone,
    /// Secure: it keeps its flows and adds none.
    Secure,
}

/// A version of OpenFlow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpenFlowVersion {
    /// 1.0
    V10,
    /// 1.1
    V11,
    /// 1.2
    V12,
    /// 1.3
    V13,
    /// 1.4
    V14,
    /// 1.5
    V15,
}

impl OpenFlowVersion {
    /// All of them, oldest first.
    pub const ALL: [OpenFlowVersion; 6] = [Self::V10, Self::V11, Self::V12, Self::V13, Self::V14, Self::V15];

    /// The name in `Bridge.protocols`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V10 => "OpenFlow10",
            Self::V11 => "OpenFlow11",
            Self::V12 => "OpenFlow12",
            Self::V13 => "OpenFlow13",
            Self::V14 => "OpenFlow14",
            Self::V15 => "OpenFlow15",
        }
    }

    /// The version byte of its messages.
    pub fn wire(self) -> u8 {
        1 + self as u8
    }
}

/// A row of `Flow_Table`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FlowTableConfig {
    /// Name, limit and eviction.
    pub settings: TableSettings,
    /// Fields looked up by prefix; `None` for the default.
    pub prefixes: Option<Vec<FieldId>>,
}

/// Settings of a bridge, without its ports and controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// Requested `datapath-id`.
    pub datapath_id: Option<u64>,
    /// `hwaddr`: requested Ethernet address of the bridge's own port.
    pub hwaddr: Option<MacAddr>,
    /// Fail mode.
    pub fail_mode: FailMode,
    /// OpenFlow versions to speak, oldest first.
    pub protocols: Vec<OpenFlowVersion>,
    /// `mac-aging-time`.
    pub mac_aging_time_s: u32,
    /// `mac-table-size`: maximum number of learned addresses.
    pub mac_table_size: u32,
    /// `forward-bpdu`: forward frames to reserved bridge addresses.
    pub forward_bpdu: bool,
    /// `flood_vlans`: VLANs in which `NORMAL` learns nothing.
    pub flood_vlans: Vec<u16>,
    /// `mcast_snooping_enable`, with its settings.
    pub mcast: Option<McastSettings>,
    /// `disable-in-band`: no hidden flows for in-band control.
    pub disable_in_band: bool,
    /// `in-band-queue`.
    pub in_band_queue: Option<u32>,
    /// `dp-desc`: description for controllers.
    pub dp_desc: Option<String>,
    /// `dp-sn`: serial number for controllers.
    pub dp_sn: Option<String>,
    /// Settings of tables, by number.
    pub flow_tables: BTreeMap<u8, FlowTableConfig>,
    /// `netflow`: records of flows for collectors of NetFlow.
    pub netflow: Option<NetflowConfig>,
    /// `sflow`: samples and counters for collectors of sFlow.
    pub sflow: Option<SflowConfig>,
    /// `ipfix`: samples of all packets for collectors of IPFIX.
    pub ipfix: Option<IpfixConfig>,
    /// Sets of collectors of the action `sample`, by number.
    pub sample_sets: BTreeMap<u32, IpfixConfig>,
    /// Groups of local readers of the action `sample`, by the number of their set of collectors.
    pub local_groups: BTreeMap<u32, u32>,
    /// `explicit-sampled-drops` of the switch: flows that only sample end with a drop that is counted.
    pub explicit_sampled_drops: bool,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        BridgeOptions {
            datapath_id: None,
            hwaddr: None,
            fail_mode: FailMode::Standalone,
            protocols: OpenFlowVersion::ALL.to_vec(),
            mac_aging_time_s: 300,
            mac_table_size: MAC_TABLE_SIZE,
            forward_bpdu: false,
            flood_vlans: Vec::new(),
            mcast: None,
            disable_in_band: false,
            in_band_queue: None,
            dp_desc: None,
            dp_sn: None,
            flow_tables: BTreeMap::new(),
            netflow: None,
            sflow: None,
            ipfix: None,
            sample_sets: BTreeMap::new(),
            local_groups: BTreeMap::new(),
            explicit_sampled_drops: false,
        }
    }
}

/// A row of `Bridge`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeConfig {
    /// The row.
    pub row: Uuid,
    /// Name.
    pub name: String,
    /// The datapath type used for it.
    pub datapath_type: String,
    /// Its version.
    pub datapath_version: String,
    /// The datapath that serves a row without a type, if it is not that of the kernel: for the status.
    pub default_datapath: Option<String>,
    /// Its settings.
    pub options: BridgeOptions,
    /// Supported controllers.
    pub controllers: Vec<ControllerConfig>,
    /// Mirrors, by row.
    pub mirrors: Vec<MirrorConfig>,
    /// Ports by name. One has the name of the bridge and holds its own interface.
    pub ports: BTreeMap<String, Arc<PortConfig>>,
}

/// Default of `mac-table-size`.
const MAC_TABLE_SIZE: u32 = 8192;

/// A datapath id, not zero: 16 hexadecimal digits, or `0x` and 1 to 16 of them.
fn parse_datapath_id(text: &str) -> Option<u64> {
    let (digits, lengths) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 1..=16),
        None => (text, 16..=16),
    };
    let sound = lengths.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|id| sound && *id != 0)
}

impl<'a> Reader<'a> {
    /// A bridge; `None` if it cannot be served at all: an error of each of its interfaces.
    pub(super) fn bridge(&mut self, row: RowView<'a>) -> Option<BridgeConfig> {
        let name = row.str("name");
        let (asked, support) = self.datapath(row);
        let Some(support) = support else {
            let error = format!("could not create bridge {name}: unknown datapath type {asked:?}");
            self.refuse_bridge(row, "datapath_type", &error);
            return None;
        };
        if let Err(why) = super::interface::check_name(name, support.dummy) {
            self.refuse_bridge(row, "name", &format!("could not create bridge {name:?}: {why}"));
            return None;
        }
        // A row without a type has no setting without effect: its status alone names the datapath.
        let is_default = row.str("datapath_type").is_empty();
        if let Some(notice) = support.notice.as_ref().filter(|_| !is_default) {
            self.notice(row, "datapath_type", notice.clone());
        }
        let options = self.bridge_options(row);
        let in_band = !options.disable_in_band;
        let controllers: Vec<_> = row
            .uuid_set("controller")
            .into_iter()
            .filter_map(|uuid| self.replica.row("Controller", uuid))
            .filter_map(|row| self.controller(row, in_band))
            .collect();
        Some(BridgeConfig {
            row: row.uuid(),
            name: name.to_string(),
            datapath_type: support.served_by.clone(),
            datapath_version: support.version.clone(),
            default_datapath: support.notice.clone().filter(|_| is_default),
            options,
            controllers,
            mirrors: self.mirrors(row),
            ports: self.ports(row, support.dummy),
        })
    }

    /// The datapath type of a bridge, and its support.
    pub(super) fn datapath(&self, bridge: RowView<'a>) -> (&'a str, Option<&'a DatapathSupport>) {
        let asked = match bridge.str("datapath_type") {
            "" => "system",
            other => other,
        };
        (asked, self.supported.datapaths.get(asked))
    }

    fn refuse_bridge(&mut self, row: RowView<'a>, setting: &str, error: &str) {
        self.is_by_port = false;
        self.notice(row, setting, error);
        for port in row.uuid_set("ports").into_iter().filter_map(|uuid| self.replica.row("Port", uuid)) {
            for uuid in port.uuid_set("interfaces") {
                self.refused.insert(uuid, error.to_string());
            }
        }
    }

    fn bridge_options(&mut self, row: RowView<'a>) -> BridgeOptions {
        let datapath_id = row.map_str("other_config", "datapath-id").and_then(|text| {
            let id = parse_datapath_id(text);
            if id.is_none() {
                self.hint(
                    row,
                    "other_config:datapath-id",
                    format!("other_config:datapath-id={text:?} is not 16 hexadecimal digits, or 0x and 1 to 16: ignored"),
                );
            }
            id
        });
        let hwaddr =
            row.map_str("other_config", "hwaddr").and_then(|text| self.mac(row, "other_config:hwaddr", text));
        let asked = row.string_set("protocols");
        let mut protocols = OpenFlowVersion::ALL.to_vec();
        if !asked.is_empty() {
            protocols.retain(|version| asked.contains(&version.name()));
        }
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let text = |key: &str| row.map_str("other_config", key).map(str::to_string);
        BridgeOptions {
            datapath_id,
            hwaddr,
            fail_mode: match row.opt_str("fail_mode") {
                Some("secure") => FailMode::Secure,
                _ => FailMode::Standalone,
            },
            protocols,
            mac_aging_time_s: narrow(self.setting(row, "mac-aging-time", 15..=3600, 300)),
            mac_table_size: match row.map_str("other_config", "mac-table-size") {
                // As in OVS, an empty set means the default.
                Some("0") => MAC_TABLE_SIZE,
                _ => narrow(self.setting(row, "mac-table-size", 10..=1_000_000, MAC_TABLE_SIZE.into())),
            },
            forward_bpdu: flag(row, "other_config", "forward-bpdu"),
            flood_vlans: super::port::vlans(row, "flood_vlans"),
            mcast: row.bool("mcast_snooping_enable").then(|| self.mcast(row)),
            disable_in_band: flag(row, "other_config", "disable-in-band"),
            in_band_queue: self.opt_setting(row, "in-band-queue", 0..=u64::from(u32::MAX)).map(narrow),
            dp_desc: text("dp-desc"),
            dp_sn: text("dp-sn"),
            flow_tables: self.flow_tables(row),
            netflow: self.netflow(row),
            sflow: self.sflow(row),
            ipfix: self.ipfix(row),
            sample_sets: self.sample_sets(row),
            local_groups: self.local_groups(row),
            explicit_sampled_drops: self.explicit_sampled_drops(),
        }
    }

    fn mcast(&mut self, row: RowView<'a>) -> McastSettings {
        let McastSettings { idle_s, max_groups, .. } = McastSettings::default();
        let aging = self.setting(row, "mcast-snooping-aging-time", 15..=3600, idle_s.into());
        let size = self.setting(row, "mcast-snooping-table-size", 10..=1_000_000, max_groups as u64);
        McastSettings {
            idle_s: u32::try_from(aging).unwrap_or(idle_s),
            max_groups: usize::try_from(size).unwrap_or(max_groups),
            flood_unregistered: !flag(row, "other_config", "mcast-snooping-disable-flood-unregistered"),
        }
    }

    fn flow_tables(&mut self, bridge: RowView<'a>) -> BTreeMap<u8, FlowTableConfig> {
        let mut tables = BTreeMap::new();
        for (number, uuid) in bridge.int_uuid_map("flow_tables") {
            let (Ok(number), Some(row)) = (u8::try_from(number), self.replica.row("Flow_Table", uuid)) else {
                continue;
            };
            let settings = TableSettings {
                name: row.opt_str("name").unwrap_or_default().to_string(),
                limit: row.opt_int("flow_limit").map(|n| u32::try_from(n.max(0)).unwrap_or(u32::MAX)),
                evict: row.opt_str("overflow_policy") == Some("evict"),
                groups: self.eviction_groups(bridge, number, &row.string_set("groups")),
            };
            let config = FlowTableConfig {
                settings,
                prefixes: self.prefixes(bridge, number, &row.string_set("prefixes")),
            };
            tables.insert(number, config);
        }
        tables
    }

    /// Fields that group the rules of a table; a faulty one is left out.
    fn eviction_groups(&mut self, bridge: RowView<'a>, number: u8, names: &[&str]) -> Vec<EvictionField> {
        let mut groups = Vec::new();
        for name in names {
            match eviction_field(name) {
                Ok(field) => groups.push(field),
                Err(why) => {
                    let message = format!("table {number}: 'groups' with {name}: {why}");
                    self.notice(bridge, format!("flow_tables:{number}"), message);
                }
            }
        }
        groups
    }

    /// Prefix fields of a table, in name order. `none` overrides all others.
    fn prefixes(&mut self, bridge: RowView<'a>, number: u8, names: &[&str]) -> Option<Vec<FieldId>> {
        if names.contains(&"none") {
            return Some(Vec::new());
        }
        let mut names = names.to_vec();
        names.sort_unstable();
        let mut fields = Vec::new();
        for name in names {
            let fault = match prefix_field(name) {
                Ok(field) => {
                    if !fields.contains(&field) {
                        fields.push(field);
                    }
                    continue;
                }
                Err(NoPrefixField::Unknown) => "unknown",
                Err(NoPrefixField::Incompatible) => "incompatible",
            };
            let message = format!("'prefixes' with {fault} field: {name}");
            self.notice(bridge, format!("flow_tables:{number}"), message);
        }
        (!fields.is_empty()).then_some(fields)
    }
}
