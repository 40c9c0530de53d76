//! [`Parsed`]: ports and rows without faults, kept from one reading of the configuration to the next, so that a change of one
//! port parses one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovsdb::client::{Change, ChangeKind, Replica, RowView};
use ovsdb::value::Uuid;

use super::changes::changed_columns;
use super::{Notice, PortConfig};

/// Results of the last reading that still hold.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// By row of `Port`.
    ports: HashMap<Uuid, ParsedPort>,
    /// The row of `Port` of each interface in `ports`.
    homes: HashMap<Uuid, Uuid>,
    /// Rows with nothing to tell the operator, in any table.
    quiet: HashSet<Uuid>,
}

/// A port with its interfaces.
#[derive(Clone, Debug)]
pub(super) struct ParsedPort {
    pub(super) config: Arc<PortConfig>,
    /// Its rows of `Interface`.
    pub(super) interfaces: Vec<Uuid>,
    pub(super) notices: Vec<Notice>,
    /// Rejected rows of `Interface`, with their errors.
    pub(super) refused: Vec<(Uuid, String)>,
}

impl Parsed {
    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Parsed::default();
    }

    /// Forgets results that depend on changed rows. Whether [`super::Desired::read`] may return a different state after these
    /// changes: status that the switch writes needs no new one.
    pub fn changed(&mut self, replica: &Replica, changes: &[Change]) -> bool {
        let mut is_affected = false;
        for change in changes {
            let columns = changed_columns(replica, change);
            is_affected |= columns.as_ref().is_none_or(|columns| !columns.is_empty());
            // A new interface reads its former number, which the switch writes.
            let number = |row: RowView<'_>| row.opt_int("ofport");
            let is_renumbered =
                change.old().map(number) != replica.row(&change.table, change.uuid).map(number);
            if columns.as_ref().is_some_and(Vec::is_empty) && !is_renumbered {
                continue;
            }
            self.quiet.remove(&change.uuid);
            match &*change.table {
                "Port" => self.forget_port(change.uuid),
                "Interface" => {
                    if let Some(port) = self.homes.get(&change.uuid).copied() {
                        self.forget_port(port);
                    }
                }
                // Ports of a bridge read its other columns.
                "Bridge" if columns.is_some_and(|columns| columns == ["ports"]) => {}
                // Ports do not read these.
                "Open_vSwitch" | "Controller" | "Manager" if change.kind == ChangeKind::Modified => {}
                _ => {
                    self.clear();
                    return true;
                }
            }
        }
        is_affected
    }

    fn forget_port(&mut self, port: Uuid) {
        for interface in self.ports.remove(&port).into_iter().flat_map(|parsed| parsed.interfaces) {
            self.homes.remove(&interface);
        }
    }

    pub(super) fn port(&self, row: Uuid) -> Option<&ParsedPort> {
        self.ports.get(&row)
    }

    pub(super) fn keep_port(&mut self, row: Uuid, parsed: ParsedPort) {
        self.homes.extend(parsed.interfaces.iter().map(|interface| (*interface, row)));
        self.ports.insert(row, parsed);
    }

    pub(super) fn is_quiet(&self, row: Uuid) -> bool {
        self.quiet.contains(&row)
    }

    pub(super) fn keep_quiet(&mut self, row: Uuid) {
        self.quiet.insert(row);
    }
}
