//! The planner's facts for the database: numbers, errors, datapath ids, notices.

use std::collections::{BTreeMap, BTreeSet};

use ofproto::ports::BridgeId;
use ovsdb::value::Uuid;

use super::state::{Bridge, Interface, State};
use super::{ChangedFacts, MirrorEntry, Planner};
use crate::config::{Notice, PortConfig};
use crate::status::{BridgeFacts, ControllerFacts, Facts, InterfaceFacts, PortFacts};

/// Key of a row's `status` for unsupported configuration.
pub const NOTICE_KEY: &str = "notice";

impl Planner {
    /// Facts without those of devices and controllers, which the owner adds. Includes only controllers that are not
    /// served as configured. Omits interfaces being opened, so that their rows stay unchanged.
    pub fn facts(&self) -> Facts {
        let notices = self.notices_by_row();
        let mut facts = self.facts_beside_ports(&notices);
        for (row, error) in &self.desired.refused {
            facts.interfaces.insert(*row, InterfaceFacts::broken(error.clone()));
        }
        for (name, config) in &self.desired.bridges {
            for port in config.ports.values() {
                facts.ports.extend(port.row.map(|row| (row, port_facts(&notices, row, port))));
            }
            let Some(bridge) = self.bridges.get(name) else { continue };
            if let Some(error) = &bridge.failed {
                for row in config.ports.values().flat_map(|port| &port.interfaces).filter_map(|i| i.row) {
                    facts.interfaces.insert(row, InterfaceFacts::broken(error.clone()));
                }
            }
            for interface in bridge.interfaces.values() {
                facts.interfaces.extend(self.interface_facts(&notices, bridge, interface));
            }
        }
        facts
    }

    /// Those facts, but of interfaces and ports only the changed ones: a row among them that is missing has no facts.
    pub fn changed_facts(&self, changed: &ChangedFacts) -> Facts {
        let notices = self.notices_by_row();
        let mut facts = self.facts_beside_ports(&notices);
        for (row, bridge, port) in &changed.ports {
            let port = self.desired.bridges.get(bridge).and_then(|config| config.ports.get(port));
            let port = port.filter(|port| port.row == Some(*row));
            facts.ports.extend(port.map(|port| (*row, port_facts(&notices, *row, port))));
        }
        for (row, name) in &changed.interfaces {
            let error = self.desired.refused.get(row);
            facts.interfaces.extend(error.map(|error| (*row, InterfaceFacts::broken(error.clone()))));
            let bridge = self.home.get(name).and_then(|home| self.bridges.get(home));
            let interface = bridge.and_then(|bridge| Some((bridge, bridge.interfaces.get(name)?)));
            let interface = interface.filter(|(_, interface)| interface.config.row == Some(*row));
            let known =
                interface.and_then(|(bridge, interface)| self.interface_facts(&notices, bridge, interface));
            facts.interfaces.extend(known);
        }
        facts
    }

    /// Facts of bridges and controllers.
    fn facts_beside_ports(&self, notices: &BTreeMap<Uuid, String>) -> Facts {
        let mut facts = Facts::default();
        for row in self.desired.notices.iter().filter(|n| n.table == "Controller").map(|n| n.row) {
            let status = notice(notices, row).into_iter().collect();
            facts.controllers.insert(row, ControllerFacts { status, ..ControllerFacts::default() });
        }
        for (name, config) in &self.desired.bridges {
            let mut of_bridge = BridgeFacts::default();
            let bridge = self.bridges.get(name);
            let zones = self.conntrack_errors.get(&config.datapath_type);
            let mut texts: Vec<&str> = zones.map(String::as_str).into_iter().collect();
            texts.extend(config.default_datapath.as_deref());
            texts.extend(notices.get(&config.row).map(String::as_str));
            texts.extend(bridge.and_then(|bridge| bridge.sampling_error.as_deref()));
            if !texts.is_empty() {
                of_bridge.status.insert(NOTICE_KEY.to_string(), texts.join("; "));
            }
            if let Some(bridge) = bridge.filter(|bridge| bridge.failed.is_none()) {
                of_bridge.datapath_version.clone_from(&config.datapath_version);
                of_bridge.datapath_id = bridge.settings.as_ref().map(|s| format!("{:016x}", s.datapath_id));
            }
            // A bridge that is not there yet has no facts.
            facts.bridges.extend(bridge.map(|_| (config.row, of_bridge)));
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

    /// The facts of an interface, unless it has no row or is being opened.
    fn interface_facts(
        &self,
        notices: &BTreeMap<Uuid, String>,
        bridge: &Bridge,
        interface: &Interface,
    ) -> Option<(Uuid, InterfaceFacts)> {
        let row = interface.config.row?;
        let mut facts = match &interface.state {
            State::Wanted | State::Opening(_) => return None,
            State::Failed(error) => InterfaceFacts::broken(error.clone()),
            State::Open(open) => {
                let name = &interface.config.name;
                let error = interface.config.patch_peer().filter(|_| self.patch_end(name).is_none());
                let datapath = &bridge.config.datapath_type;
                let error =
                    error.map(|peer| format!("No usable peer '{peer}' exists in '{datapath}' datapath."));
                let error = error.or_else(|| interface.setting_error.clone());
                InterfaceFacts {
                    ofport: i64::from(open.number.to_of10().unwrap_or(0)),
                    error,
                    ..Default::default()
                }
            }
        };
        facts.status.extend(notice(notices, row));
        Some((row, facts))
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

fn port_facts(notices: &BTreeMap<Uuid, String>, row: Uuid, port: &PortConfig) -> PortFacts {
    let status = notice(notices, row).into_iter().collect();
    // A bond that begins later reads the column.
    let active_member = (port.interfaces.len() < 2).then_some(None);
    PortFacts { status, active_member, ..PortFacts::default() }
}

fn notice(notices: &BTreeMap<Uuid, String>, row: Uuid) -> Option<(String, String)> {
    notices.get(&row).map(|text| (NOTICE_KEY.to_string(), text.clone()))
}
