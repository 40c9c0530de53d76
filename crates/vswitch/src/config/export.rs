//! Export of flows and samples: rows of `NetFlow`, `sFlow` and `IPFIX`, and sets of collectors of flows. A faulty one is reported at its bridge,
//! whose column refers to it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ovsdb::client::RowView;

use super::reader::Reader;

/// A row of `sFlow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SflowConfig {
    /// Collectors.
    pub targets: Vec<SocketAddr>,
    /// Device whose address identifies the agent, or that address.
    pub agent: Option<String>,
    /// Packets of which one is sampled.
    pub sampling: u32,
    /// Seconds between two reports of counters; 0: never.
    pub polling_s: u32,
    /// Bytes of each sampled packet.
    pub header_bytes: u32,
}

/// A row of `IPFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpfixConfig {
    /// Collectors.
    pub targets: Vec<SocketAddr>,
    /// Seconds for which a flow is collected.
    pub active_timeout_s: u32,
    /// Most flows that are collected.
    pub max_flows: u32,
    /// Seconds between two transmissions of the templates.
    pub template_interval_s: u32,
    /// Seconds between two reports of statistics.
    pub stats_interval_s: u32,
    /// Observation domain, of samples of a bridge.
    pub domain: u32,
    /// Observation point, of samples of a bridge.
    pub point: u32,
    /// Packets of which one is sampled, of a bridge.
    pub sampling: u32,
    /// Samples packets that enter a bridge.
    pub input: bool,
    /// Samples packets that leave a bridge.
    pub output: bool,
    /// Reports headers of tunnels.
    pub tunnels: bool,
    /// Identifier in each record.
    pub virtual_id: Option<String>,
}

/// A row of `NetFlow`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetflowConfig {
    /// Collectors.
    pub targets: Vec<SocketAddr>,
    /// Seconds between two records of a flow that goes on; `None`: only its end makes one.
    pub active_timeout_s: Option<u32>,
    /// Engine id; `None`: from the datapath.
    pub engine_id: Option<u8>,
    /// Engine type; `None`: from the datapath.
    pub engine_type: Option<u8>,
    /// Puts the engine id into numbers of interfaces.
    pub add_id_to_interface: bool,
}

/// Seconds between two records of a flow of NetFlow by default.
const ACTIVE_TIMEOUT_S: u32 = 600;
/// Largest engine id that numbers of interfaces have whole.
const ENGINE_ID_MAX: u8 = 0x7f;
/// Packets of which one is sampled by default.
const SAMPLING: u32 = 400;
/// Bytes of a sampled packet by default.
const HEADER_BYTES: u32 = 128;
/// Seconds between two reports of counters by default.
const POLLING_S: u32 = 30;
/// Seconds between two transmissions of templates, and of statistics, by default.
const INTERVAL_S: u32 = 600;
/// Keys of `other_config` of IPFIX.
const IPFIX_KEYS: [&str; 4] =
    ["enable-input-sampling", "enable-output-sampling", "enable-tunnel-sampling", "virtual_obs_id"];
/// Ports of collectors by default.
const SFLOW_PORT: u16 = 6343;
const IPFIX_PORT: u16 = 4739;

/// A number of a column, whose schema limits it to 32 bits.
fn number(row: RowView<'_>, column: &str, default: u32) -> u32 {
    row.opt_int(column).map_or(default, |n| u32::try_from(n.max(0)).unwrap_or(u32::MAX))
}

/// `ADDRESS[:PORT]`, IPv6 in brackets.
fn target(text: &str, default_port: u16) -> Option<SocketAddr> {
    let text = text.trim();
    let v6 = |text: &str| text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok();
    let bare = || text.parse::<IpAddr>().ok().or_else(|| v6(text).map(IpAddr::from));
    let with_port = text.parse::<SocketAddr>().ok();
    with_port.or_else(|| bare().map(|ip| SocketAddr::new(ip, default_port))).filter(|t| t.port() != 0)
}

impl<'a> Reader<'a> {
    /// The collectors of a row; without any, the bridge's column says so.
    fn targets(
        &mut self,
        bridge: RowView<'a>,
        row: RowView<'a>,
        setting: &str,
        port: u16,
    ) -> Vec<SocketAddr> {
        let mut targets = Vec::new();
        for text in row.string_set("targets") {
            match target(text, port) {
                Some(target) => targets.push(target),
                None => {
                    let message = format!(
                        "{setting}: collector {text:?} is not ADDRESS:PORT: it gets nothing; give an IP address"
                    );
                    self.notice(bridge, setting, message);
                }
            }
        }
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// The `NetFlow` row of a bridge.
    pub(super) fn netflow(&mut self, bridge: RowView<'a>) -> Option<NetflowConfig> {
        let row = self.replica.row("NetFlow", bridge.opt_uuid("netflow")?)?;
        let engine = |column| row.opt_int(column).and_then(|n| u8::try_from(n).ok());
        let (engine_id, add_id_to_interface) = (engine("engine_id"), row.bool("add_id_to_interface"));
        if add_id_to_interface && engine_id.is_some_and(|id| id > ENGINE_ID_MAX) {
            let message = format!(
                "netflow: numbers of interfaces have 7 bits of the engine id, which another switch may share: choose one up to {ENGINE_ID_MAX}"
            );
            self.hint(bridge, "netflow", message);
        }
        let active_timeout_s = match row.opt_int("active_timeout") {
            Some(n) if n < 0 => None,
            None | Some(0) => Some(ACTIVE_TIMEOUT_S),
            Some(n) => Some(u32::try_from(n).unwrap_or(u32::MAX)),
        };
        let targets = self.targets(bridge, row, "netflow", 0);
        let engine_type = engine("engine_type");
        Some(NetflowConfig { targets, active_timeout_s, engine_id, engine_type, add_id_to_interface })
    }

    /// The `sFlow` row of a bridge.
    pub(super) fn sflow(&mut self, bridge: RowView<'a>) -> Option<SflowConfig> {
        let row = self.replica.row("sFlow", bridge.opt_uuid("sflow")?)?;
        Some(SflowConfig {
            targets: self.targets(bridge, row, "sflow", SFLOW_PORT),
            agent: row.opt_str("agent").filter(|agent| !agent.is_empty()).map(str::to_string),
            sampling: number(row, "sampling", SAMPLING),
            polling_s: number(row, "polling", POLLING_S),
            header_bytes: number(row, "header", HEADER_BYTES),
        })
    }

    /// The `IPFIX` row of a bridge.
    pub(super) fn ipfix(&mut self, bridge: RowView<'a>) -> Option<IpfixConfig> {
        let row = self.replica.row("IPFIX", bridge.opt_uuid("ipfix")?)?;
        Some(self.ipfix_row(bridge, row, "ipfix"))
    }

    fn ipfix_row(&mut self, bridge: RowView<'a>, row: RowView<'a>, setting: &str) -> IpfixConfig {
        for (key, _) in row.string_map("other_config") {
            if !IPFIX_KEYS.contains(&key) {
                self.hint(bridge, setting, format!("{setting}: other_config:{key} has no effect"));
            }
        }
        IpfixConfig {
            targets: self.targets(bridge, row, setting, IPFIX_PORT),
            active_timeout_s: number(row, "cache_active_timeout", 0),
            max_flows: number(row, "cache_max_flows", 0),
            template_interval_s: number(row, "template_interval", INTERVAL_S),
            stats_interval_s: number(row, "stats_interval", INTERVAL_S),
            domain: number(row, "obs_domain_id", 0),
            point: number(row, "obs_point_id", 0),
            sampling: number(row, "sampling", SAMPLING),
            input: self.flag_of(bridge, row, setting, "enable-input-sampling", true),
            output: self.flag_of(bridge, row, setting, "enable-output-sampling", true),
            tunnels: self.flag_of(bridge, row, setting, "enable-tunnel-sampling", true),
            virtual_id: row.map_str("other_config", "virtual_obs_id").map(str::to_string),
        }
    }

    /// A flag of a row, with a default.
    fn flag_of(
        &mut self,
        bridge: RowView<'a>,
        row: RowView<'a>,
        setting: &str,
        key: &str,
        default: bool,
    ) -> bool {
        match row.map_str("other_config", key) {
            None => default,
            Some("true") => true,
            Some("false") => false,
            // As in OVS: whatever differs from the other value is the default.
            Some(text) => {
                let message = format!("{setting}: other_config:{key}={text} is neither true nor false");
                self.hint(bridge, setting, message);
                default
            }
        }
    }

    /// The sets of collectors of a bridge with collectors of IPFIX, by number.
    pub(super) fn sample_sets(&mut self, bridge: RowView<'a>) -> BTreeMap<u32, IpfixConfig> {
        const TABLE: &str = "Flow_Sample_Collector_Set";
        let mut sets = BTreeMap::new();
        for set in self.replica.rows(TABLE).filter(|set| set.opt_uuid("bridge") == Some(bridge.uuid())) {
            let id = number(set, "id", 0);
            let row = set.opt_uuid("ipfix").and_then(|uuid| self.replica.row("IPFIX", uuid));
            if let Some(row) = row {
                let config = self.ipfix_row(bridge, row, TABLE);
                sets.insert(id, config);
            }
        }
        sets
    }

    /// The groups of local readers of a bridge, by the number of their set of collectors.
    pub(super) fn local_groups(&self, bridge: RowView<'a>) -> BTreeMap<u32, u32> {
        let sets = self.replica.rows("Flow_Sample_Collector_Set");
        let of_bridge = sets.filter(|set| set.opt_uuid("bridge") == Some(bridge.uuid()));
        let groups = of_bridge.filter(|set| set.opt_int("local_group_id").is_some());
        groups.map(|set| (number(set, "id", 0), number(set, "local_group_id", 0))).collect()
    }

    /// `explicit-sampled-drops`.
    pub(super) fn explicit_sampled_drops(&self) -> bool {
        let root = self.replica.rows("Open_vSwitch").next();
        root.is_some_and(|root| super::reader::flag(root, "other_config", "explicit-sampled-drops"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_with_ports() {
        for (text, wanted) in [
            ("192.0.2.9:2055", Some("192.0.2.9:2055")),
            ("192.0.2.9", Some("192.0.2.9:6343")),
            ("[2001:db8::1]:5", Some("[2001:db8::1]:5")),
            ("[2001:db8::1]", Some("[2001:db8::1]:6343")),
            ("2001:db8::1", Some("[2001:db8::1]:6343")),
            ("collector:5", None),
            ("192.0.2.9:0", None),
            ("192.0.2.9:70000", None),
            ("", None),
        ] {
            assert_eq!(target(text, 6343), wanted.map(|t| t.parse().unwrap()), "{text}");
        }
    }
}
