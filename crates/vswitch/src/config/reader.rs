//! [`Reader`]: shared state of configuration parsing: rows, notices, and typed access to settings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use ofproto::MacAddr;
use ovsdb::client::{Replica, RowView};
use ovsdb::value::Uuid;

use super::{BridgeConfig, Notice, Parsed, StringMap, SupportedTypes};

/// State of one parse.
pub(super) struct Reader<'a> {
    pub(super) replica: &'a Replica,
    pub(super) supported: &'a SupportedTypes,
    pub(super) refused: BTreeMap<Uuid, String>,
    pub(super) notices: BTreeSet<Notice>,
    /// Rows of `Port` and `Interface` already read, and the name of their owning port or bridge.
    pub(super) owners: HashMap<Uuid, &'a str>,
    /// Results of earlier readings.
    pub(super) parsed: Parsed,
    /// Each port was read without regard to others.
    pub(super) is_by_port: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(replica: &'a Replica, supported: &'a SupportedTypes, parsed: Parsed) -> Self {
        Reader {
            replica,
            supported,
            refused: BTreeMap::new(),
            notices: BTreeSet::new(),
            owners: HashMap::new(),
            parsed,
            is_by_port: true,
        }
    }

    /// Adds a notice for the operator about a setting of a row: a column, or column and key.
    pub(super) fn notice(
        &mut self,
        row: RowView<'a>,
        setting: impl Into<String>,
        message: impl Into<String>,
    ) {
        self.add_notice(row, setting.into(), message.into(), true);
    }

    /// Adds a notice without a warning, where OVS has none.
    pub(super) fn hint(&mut self, row: RowView<'a>, setting: impl Into<String>, message: impl Into<String>) {
        self.add_notice(row, setting.into(), message.into(), false);
    }

    fn add_notice(&mut self, row: RowView<'a>, setting: String, message: String, is_warning: bool) {
        let tables = ["Bridge", "Port", "Interface", "Controller", "Manager"];
        let table = tables.into_iter().find(|table| *table == row.table()).unwrap_or("Open_vSwitch");
        let name = display_name(row);
        self.notices.insert(Notice { table, row: row.uuid(), name, setting, message, is_warning });
    }

    /// Rejects a row of `Interface` for a setting, with the error to write into it.
    pub(super) fn refuse(&mut self, row: RowView<'a>, setting: impl Into<String>, error: impl Into<String>) {
        let error = error.into();
        self.notice(row, setting, error.clone());
        self.refused.insert(row.uuid(), error);
    }

    /// An integer setting of `other_config`: the default if absent. Reports an invalid number and uses the default;
    /// clamps one outside the range.
    pub(super) fn setting(
        &mut self,
        row: RowView<'a>,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> u64 {
        let Some(text) = row.map_str("other_config", key) else { return default };
        match text.trim().parse::<u64>() {
            Ok(n) if range.contains(&n) => n,
            Ok(n) => {
                let used = n.clamp(*range.start(), *range.end());
                self.hint(
                    row,
                    format!("other_config:{key}"),
                    format!(
                        "other_config:{key}={n} is not from {} to {}: {used} is used",
                        range.start(),
                        range.end()
                    ),
                );
                used
            }
            Err(_) => {
                let message = format!("other_config:{key}={text:?} is not a number: {default} is used");
                self.hint(row, format!("other_config:{key}"), message);
                default
            }
        }
    }

    /// A setting of `other_config` without a default.
    pub(super) fn opt_setting(
        &mut self,
        row: RowView<'a>,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Option<u64> {
        let text = row.map_str("other_config", key)?;
        let value = text.trim().parse::<u64>().ok().filter(|n| range.contains(n));
        if value.is_none() {
            let (from, to) = range.into_inner();
            self.hint(
                row,
                format!("other_config:{key}"),
                format!("other_config:{key}={text:?} is not a number from {from} to {to}: ignored"),
            );
        }
        value
    }

    /// An Ethernet address valid for a device: neither zero nor multicast.
    pub(super) fn mac(&mut self, row: RowView<'a>, what: &str, text: &str) -> Option<MacAddr> {
        let mac = MacAddr::parse(text.trim()).filter(|mac| !mac.is_multicast() && !mac.is_zero());
        if mac.is_none() {
            self.notice(
                row,
                what,
                format!("{what}={text:?} is not an Ethernet address of a single station: ignored"),
            );
        }
        mac
    }
}

/// The name of a row; empty for that of `Open_vSwitch`.
pub(super) fn display_name(row: RowView<'_>) -> String {
    let column = match row.table() {
        "Bridge" | "Port" | "Interface" => "name",
        "Controller" | "Manager" => "target",
        _ => return String::new(),
    };
    row.str(column).to_string()
}

/// A boolean setting as in OVS: `true` or not.
pub(super) fn flag(row: RowView<'_>, column: &str, key: &str) -> bool {
    row.map_str(column, key).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// A map column with owned strings.
pub(super) fn strings(row: RowView<'_>, column: &str) -> StringMap {
    row.string_map(column).into_iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

/// A bridge's own port reserves its name even without a row: an interface of that name elsewhere loses.
pub(super) fn check_names_across(reader: &mut Reader<'_>, bridges: &mut BTreeMap<String, Arc<BridgeConfig>>) {
    let names: Vec<String> = bridges.keys().cloned().collect();
    for bridge in bridges.values_mut() {
        let own = bridge.name.clone();
        let clashes = |interface: &Arc<super::InterfaceConfig>| {
            interface.name != own && names.binary_search(&interface.name).is_ok()
        };
        if !bridge.ports.values().flat_map(|port| &port.interfaces).any(clashes) {
            continue;
        }
        reader.is_by_port = false;
        let bridge = Arc::make_mut(bridge);
        for port in bridge.ports.values_mut() {
            if !port.interfaces.iter().any(clashes) {
                continue;
            }
            let port = Arc::make_mut(port);
            port.interfaces.retain(|interface| {
                let clash = clashes(interface);
                if let (true, Some(uuid)) = (clash, interface.row)
                    && let Some(row) = reader.replica.row("Interface", uuid)
                {
                    let name = &interface.name;
                    reader.refuse(
                        row,
                        "name",
                        format!("{name} is the name of a bridge, whose own port has it"),
                    );
                }
                !clash
            });
        }
    }
}
