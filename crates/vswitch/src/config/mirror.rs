//! [`MirrorConfig`]: a mirror of a bridge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ofproto::mirror::{MIRRORS_MAX, MirrorFilter};
use ofproto::ports::VlanSet;
use ovsdb::client::RowView;
use ovsdb::value::Uuid;

use super::reader::Reader;

/// Ports of the bridge that a mirror selects, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorPorts {
    /// All ports (`select_all`).
    All,
    /// These.
    Named(BTreeSet<String>),
}

impl MirrorPorts {
    /// Whether it selects that port.
    pub(crate) fn contains(&self, port: &str) -> bool {
        match self {
            MirrorPorts::All => true,
            MirrorPorts::Named(names) => names.contains(port),
        }
    }
}

/// Where the copies of a mirror go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorTarget {
    /// To a port of the bridge.
    Port(String),
    /// To a VLAN.
    Vlan(u16),
}

/// A row of `Mirror`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorConfig {
    /// The row.
    pub row: Uuid,
    /// Name.
    pub name: String,
    /// Ports whose received packets it selects.
    pub sources: MirrorPorts,
    /// Ports whose sent packets it selects.
    pub destinations: MirrorPorts,
    /// VLANs that it selects; `None`: all.
    pub vlans: Option<VlanSet>,
    /// Packets that it selects; `None`: all.
    pub filter: Option<Arc<MirrorFilter>>,
    /// Where its copies go.
    pub target: MirrorTarget,
    /// Bytes after which a copy is cut; 0: never.
    pub snaplen: u16,
}

/// Names of the ports of a bridge, by row.
type OwnPorts = BTreeMap<Uuid, String>;

impl<'a> Reader<'a> {
    /// The mirrors of a bridge, by row; a faulty one is left out. A mirror's row has no column for the notice, which its
    /// bridge has.
    pub(super) fn mirrors(&mut self, bridge: RowView<'a>) -> Vec<MirrorConfig> {
        let mut rows = bridge.uuid_set("mirrors");
        if rows.is_empty() {
            return Vec::new();
        }
        rows.sort();
        let ports = bridge.uuid_set("ports").into_iter();
        let named = |uuid| Some((uuid, self.replica.row("Port", uuid)?.str("name").to_string()));
        let own: OwnPorts = ports.filter_map(named).collect();
        let rows = rows.into_iter().filter_map(|uuid| self.replica.row("Mirror", uuid));
        let mut mirrors: Vec<_> = rows.filter_map(|row| self.mirror(bridge, &own, row)).collect();
        for MirrorConfig { name, .. } in mirrors.split_off(mirrors.len().min(MIRRORS_MAX)) {
            let message = format!("maximum of {MIRRORS_MAX} port mirrors reached, cannot create {name}");
            self.notice(bridge, "mirrors", message);
        }
        mirrors
    }

    fn mirror(&mut self, bridge: RowView<'a>, own: &OwnPorts, row: RowView<'a>) -> Option<MirrorConfig> {
        let name = row.str("name");
        let vlan = row.opt_int("output_vlan").and_then(|vlan| u16::try_from(vlan).ok());
        let target = match (row.opt_uuid("output_port"), vlan) {
            (Some(port), vlan) => {
                let Some(port) = own.get(&port).cloned() else {
                    let message = format!("mirror {name} outputs to port not on bridge");
                    self.notice(bridge, "mirrors", message);
                    return None;
                };
                if vlan.is_some() {
                    let message = format!(
                        "mirror {name} specifies both output port and output vlan; ignoring output vlan"
                    );
                    self.notice(bridge, "mirrors", message);
                }
                MirrorTarget::Port(port)
            }
            (None, Some(vlan)) => MirrorTarget::Vlan(vlan),
            (None, None) => {
                self.notice(bridge, "mirrors", format!("mirror {name} does not specify output; ignoring"));
                return None;
            }
        };
        let filter = match row.opt_str("filter").map(MirrorFilter::parse) {
            None => None,
            Some(Ok(filter)) => Some(Arc::new(filter)),
            Some(Err(why)) => {
                self.notice(bridge, "mirrors", format!("mirror {name}: {why}"));
                return None;
            }
        };
        let vlans = row.int_set("select_vlan");
        let numbers = vlans.iter().filter_map(|n| u16::try_from(*n).ok());
        let vlans = (!vlans.is_empty()).then(|| VlanSet::new(numbers));
        let snaplen = row.opt_int("snaplen").and_then(|n| u16::try_from(n).ok()).unwrap_or(0);
        let [sources, destinations] = match row.bool("select_all") {
            true => [MirrorPorts::All, MirrorPorts::All],
            false => {
                ["select_src_port", "select_dst_port"].map(|column| self.selected(bridge, own, row, column))
            }
        };
        let name = name.to_string();
        Some(MirrorConfig { row: row.uuid(), name, sources, destinations, vlans, filter, target, snaplen })
    }

    /// The ports of a column that are ports of the bridge.
    fn selected(
        &mut self,
        bridge: RowView<'a>,
        own: &OwnPorts,
        row: RowView<'a>,
        column: &str,
    ) -> MirrorPorts {
        let mut names = BTreeSet::new();
        for uuid in row.uuid_set(column) {
            match own.get(&uuid) {
                Some(name) => {
                    names.insert(name.clone());
                }
                None => {
                    let port = self.replica.row("Port", uuid).map_or("", |port| port.str("name"));
                    let message =
                        format!("mirror {} cannot match on nonexistent port {port}", row.str("name"));
                    self.notice(bridge, "mirrors", message);
                }
            }
        }
        MirrorPorts::Named(names)
    }
}
