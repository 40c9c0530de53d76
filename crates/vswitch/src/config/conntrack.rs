//! [`CtConfig`]: connection tracking zones of a datapath type (`Datapath`, `CT_Zone`, `CT_Timeout_Policy`).
//!
//! The rows have no status: notices are those of the row of `Open_vSwitch`.

use std::collections::BTreeMap;
use std::sync::Arc;

use dpif::{TimeoutAttr, TimeoutPolicy};
use ovsdb::client::RowView;

use super::reader::Reader;

/// Limits and timeouts of the connections of one datapath.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct CtConfig {
    /// `ct_zone_default_limit`: maximum connections of each zone without its own; 0 is no limit.
    pub default_limit: Option<u32>,
    /// `ct_zones`: those with any setting.
    pub zones: BTreeMap<u16, CtZoneConfig>,
}

impl CtConfig {
    /// Whether it sets any limit, so that commands may not.
    pub fn sets_limits(&self) -> bool {
        self.default_limit.is_some() || self.zones.values().any(|zone| zone.limit.is_some())
    }

    /// Whether it sets any timeout.
    pub fn sets_timeouts(&self) -> bool {
        self.zones.values().any(|zone| !zone.timeouts.is_empty())
    }
}

/// Settings of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CtZoneConfig {
    /// `limit`: maximum connections; 0 is no limit.
    pub limit: Option<u32>,
    /// `timeouts` of its policy; empty: defaults.
    pub timeouts: TimeoutPolicy,
}

impl<'a> Reader<'a> {
    /// Settings by the datapath type that serves the row's type.
    pub(super) fn conntrack(&mut self, root: RowView<'a>) -> BTreeMap<String, Arc<CtConfig>> {
        let mut all = BTreeMap::new();
        let mut rows: Vec<_> = root.string_uuid_map("datapaths").into_iter().collect();
        // The row of the serving type itself comes first.
        let served_by =
            |name: &str| self.supported.datapaths.get(name).map(|support| support.served_by.clone());
        rows.sort_by_key(|(name, _)| served_by(name).as_deref() != Some(*name));
        for (name, uuid) in rows {
            let Some(row) = self.replica.row("Datapath", uuid) else { continue };
            let config = self.of_datapath(row);
            if config == CtConfig::default() {
                continue;
            }
            let Some(by) = served_by(name) else {
                let why =
                    "there is no datapath of this type: limits and timeouts of its zones have no effect";
                self.notice(root, format!("datapaths:{name}"), format!("datapaths:{name}: {why}"));
                continue;
            };
            if all.contains_key(&by) {
                let why = format!(
                    "datapaths:{by} has limits and timeouts of zones for the same datapath: those of {name} have no effect"
                );
                self.notice(root, format!("datapaths:{name}"), format!("datapaths:{name}: {why}"));
                continue;
            }
            all.insert(by, Arc::new(config));
        }
        all
    }

    fn of_datapath(&self, row: RowView<'a>) -> CtConfig {
        let zone = |(number, uuid)| {
            let row = self.replica.row("CT_Zone", uuid)?;
            let policy =
                row.opt_uuid("timeout_policy").and_then(|p| self.replica.row("CT_Timeout_Policy", p));
            let config = CtZoneConfig {
                limit: row.opt_int("limit").map(narrow),
                timeouts: policy.map(timeouts).unwrap_or_default(),
            };
            let number = u16::try_from(number).ok()?;
            (config != CtZoneConfig::default()).then_some((number, config))
        };
        CtConfig {
            default_limit: row.opt_int("ct_zone_default_limit").map(narrow),
            zones: row.int_uuid_map("ct_zones").into_iter().filter_map(zone).collect(),
        }
    }
}

/// The schema bounds the numbers; another server may have another one.
fn narrow(n: i64) -> u32 {
    n.clamp(0, u32::MAX.into()) as u32
}

fn timeouts(row: RowView<'_>) -> TimeoutPolicy {
    let timeouts = row.int_map("timeouts").into_iter();
    timeouts.filter_map(|(key, seconds)| Some((TimeoutAttr::of_key(key)?, narrow(seconds)))).collect()
}
