//! Reading of the ports that changed alone, where the rest of the last reading holds.
//!
//! That is so if each port is read without regard to others: none shares a row or a name with another, and nothing that
//! changed has a notice, before or now. In all other cases all rows are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use ovsdb::client::{Replica, RowView};
use ovsdb::value::Uuid;

use super::parsed::ChangedRows;
use super::reader::Reader;
use super::{BridgeConfig, Desired, Parsed, PortConfig, SupportedTypes};

/// The configuration, from the last reading and the ports that changed; `None`: all rows are to be read.
pub(super) fn read(replica: &Replica, supported: &SupportedTypes, parsed: &mut Parsed) -> Option<Desired> {
    let (last, changed) = parsed.take_last();
    let last = last?;
    let root = replica.rows("Open_vSwitch").next()?;
    // Mirrors name ports.
    if last.row != Some(root.uuid()) || replica.row_count("Mirror") > 0 {
        return None;
    }
    let mut reader = Reader::new(replica, supported, std::mem::take(parsed));
    let bridges = reader.changed_bridges(&last.bridges, &changed);
    let bridges = bridges.filter(|_| reader.review_changed(&changed));
    *parsed = reader.parsed;
    let bridges = bridges?;
    let desired = Desired { next_cfg: root.int("next_cfg"), bridges, ..last };
    parsed.keep_last(&desired);
    Some(desired)
}

impl<'a> Reader<'a> {
    /// The bridges with the changed ports read anew; `None`: they may depend on other ports, or have notices.
    fn changed_bridges(
        &mut self,
        last: &BTreeMap<String, Arc<BridgeConfig>>,
        changed: &ChangedRows,
    ) -> Option<BTreeMap<String, Arc<BridgeConfig>>> {
        let mut bridges = last.clone();
        let of_row: BTreeMap<Uuid, &String> = last.iter().map(|(name, config)| (config.row, name)).collect();
        let is_of_bridge = |port: &PortConfig| {
            let mut names = port.all_interfaces().map(|interface| &interface.name).chain([&port.name]);
            names.any(|name| last.contains_key(name))
        };
        let mut wanted = Vec::new();
        for (row, former) in &changed.ports {
            let name = of_row.get(&former.bridge)?;
            let ports = &mut Arc::make_mut(bridges.get_mut(*name)?).ports;
            let before = ports.remove(&former.name).filter(|port| port.row == Some(*row))?;
            if is_of_bridge(&before) {
                return None;
            }
            wanted.extend((!changed.left.contains(row)).then_some((*row, former.bridge)));
        }
        wanted.extend(changed.new.iter().map(|(row, bridge)| (*row, *bridge)));
        for (row, bridge) in wanted {
            let Some(row) = self.replica.row("Port", row) else { continue };
            let port = self.sole_port(row, self.replica.row("Bridge", bridge)?)?;
            let ports = &mut Arc::make_mut(bridges.get_mut(*of_row.get(&bridge)?)?).ports;
            if is_of_bridge(&port) || ports.insert(port.name.clone(), port).is_some() {
                return None;
            }
        }
        Some(bridges)
    }

    /// A port that shares nothing with others and has no notices.
    fn sole_port(&mut self, row: RowView<'a>, bridge: RowView<'a>) -> Option<Arc<PortConfig>> {
        let support = self.datapath(bridge).1?;
        if row.uuid_set("interfaces").iter().any(|interface| self.parsed.has_home(*interface)) {
            return None;
        }
        let port = self.known_port(row, bridge, support.dummy);
        let is_sole = self.is_by_port && self.notices.is_empty() && self.refused.is_empty();
        is_sole.then_some(port)
    }
}
