//! The planner's facts for the database: numbers, errors, datapath ids, notices.

use std::collections::{BTreeMap, BTreeSet};

use ofproto::ports::BridgeId;
use ovsdb::value::Uuid;

use super::state::{Bridge, Interface, State};
use super::{MirrorEntry, Planner};
use crate::config::Notice;
use crate::status::{BridgeFacts, ControllerFacts, Facts, InterfaceFacts, PortFacts};

/// Key of a row's `status` for unsupported configuration.
pub const NOTICE_KEY: &str = "notice";

impl Planner {
    /// Facts without those of devices and controllers, which the owner adds. Includes only controllers that are not
    /// served as configured. Omits interfaces being opened, so that their rows stay unchanged.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for (row, error) in &self.desired.refused {
            facts.interfaces.insert(*row, InterfaceFacts::broken(error.clone()));
        }
        let notices = self.notices_by_row();
        for row in self.desired.notices.iter().filter(|n| n.table == "Controller").map(|n| n.row) {
            let status = notice(&notices, row).into_iter().collect();
            facts.controllers.insert(row, ControllerFacts { status, ..ControllerFacts::default() });
        }
        for (name, config) in &self.desired.bridges {
            let mut of_bridge = BridgeFacts::default();
            let zones = self.conntrack_errors.get(&config.datapath_type);
            let mut texts: Vec<&str> = zones.map(String::as_str).into_iter().collect();
            texts.extend(config.default_datapath.as_deref());
            texts.extend(notices.get(&config.row).map(String::as_str));
            texts.extend(self.bridges.get(name).and_then(|bridge| bridge.sampling_error.as_deref()));
            if !texts.is_empty() {
                of_bridge.status.insert(NOTICE_KEY.to_string(), texts.join("; "));
            }
            for port in config.ports.values() {
                let Some(row) = port.row else { continue };
                let status = notice(&notices, row).into_iter().collect();
                // A bond that begins later reads the column.
                let active_member = (port.interfaces.len() < 2).then_some(None);
                facts.ports.insert(row, PortFacts { status, active_member, ..PortFacts::default() });
            }
            let Some(bridge) = self.bridges.get(name) else { continue };
            if let Some(error) = &bridge.failed {
                for row in config.ports.values().flat_map(|port| &port.interfaces).filter_map(|i| i.row) {
                    facts.interfaces.insert(row, InterfaceFacts::broken(error.clone()));
                }
            } else {
                of_bridge.datapath_version.clone_from(&config.datapath_version);
                of_bridge.datapath_id = bridge.settings.as_ref().map(|s| format!("{:016x}", s.datapath_id));
                for interface in bridge.interfaces.values() {
                    if let Some(row) = interface.config.row
                        && let Some(mut known) = self.interface_facts(bridge, interface)
                    {
                        known.status.extend(notice(&notices, row));
                        facts.interfaces.insert(row, known);
                    }
                }
            }
            facts.bridges.insert(config.row, of_bridge);
        }
        facts
    }

    /// The mirrors of all bridges.
    pub fn mirrors(&self) -> impl Iterator<Item = (BridgeId, &MirrorEntry)> {
        self.bridges.values().flat_map(|b| b.ports.mirrors.iter().map(|entry| (b.id, entry)))
    }

    /// Settings that are refused, have no effect or another one, also those refused by a datapath or a device.
    pub fn ineffective(&self) -> BTreeSet<Notice> {
        let mut all = self.desired.notices.clone();
        let conntrack = self.conntrack_errors.iter();
        let conntrack = conntrack.map(|(datapath_type, error)| (format!("datapaths:{datapath_type}"), error));
        let metrics = self.metrics_error.iter().map(|error| ("other_config:metrics".to_string(), error));
        for (setting, error) in conntrack.chain(metrics) {
            all.extend(self.desired.row.map(|row| Notice {
                table: "Open_vSwitch",
                row,
                name: String::new(),
                setting,
                message: error.clone(),
                is_warning: true,
            }));
        }
        for bridge in self.bridges.values() {
            all.extend(bridge.sampling_error.as_ref().map(|error| Notice {
                table: "Bridge",
                row: bridge.config.row,
                name: bridge.config.name.clone(),
                setting: "Flow_Sample_Collector_Set:local_group_id".to_string(),
                message: error.clone(),
                is_warning: true,
            }));
        }
        for interface in self.bridges.values().flat_map(|bridge| bridge.interfaces.values()) {
            if let (Some(row), Some(error)) = (interface.config.row, &interface.setting_error) {
                let (name, message) = (interface.config.name.clone(), error.clone());
                // The device may have refused several settings.
                let setting = "error".to_string();
                all.insert(Notice { table: "Interface", row, name, setting, message, is_warning: true });
            }
        }
        all
    }

    fn interface_facts(&self, bridge: &Bridge, interface: &Interface) -> Option<InterfaceFacts> {
        match &interface.state {
            State::Wanted | State::Opening(_) => None,
            State::Failed(error) => Some(InterfaceFacts::broken(error.clone())),
            State::Open(open) => {
                let name = &interface.config.name;
                let error = interface.config.patch_peer().filter(|_| self.patch_end(name).is_none());
                let datapath = &bridge.config.datapath_type;
                let error =
                    error.map(|peer| format!("No usable peer '{peer}' exists in '{datapath}' datapath."));
                let error = error.or_else(|| interface.setting_error.clone());
                Some(InterfaceFacts {
                    ofport: i64::from(open.number.to_of10().unwrap_or(0)),
                    error,
                    ..Default::default()
                })
            }
        }
    }

    fn notices_by_row(&self) -> BTreeMap<Uuid, String> {
        let mut by_row: BTreeMap<Uuid, String> = BTreeMap::new();
        for notice in &self.desired.notices {
            let text = by_row.entry(notice.row).or_default();
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&notice.message);
        }
        by_row
    }
}

fn notice(notices: &BTreeMap<Uuid, String>, row: Uuid) -> Option<(String, String)> {
    notices.get(&row).map(|text| (NOTICE_KEY.to_string(), text.clone()))
}
