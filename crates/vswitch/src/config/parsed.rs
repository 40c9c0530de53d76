//! [`Parsed`]: ports and rows without faults, kept from one reading of the configuration to the next, so that a change of one
//! port parses one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ovsdb::client::{Change, ChangeKind, Replica, RowView};
use ovsdb::value::Uuid;

use super::changes::changed_columns;
use super::{Desired, Notice, PortConfig};

/// Results of the last reading that still hold.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// By row of `Port`.
    ports: HashMap<Uuid, ParsedPort>,
    /// The row of `Port` of each interface in `ports`.
    homes: HashMap<Uuid, Uuid>,
    /// Rows with nothing to tell the operator, in any table.
    quiet: HashSet<Uuid>,
    /// The last reading, if its ports can be followed one by one.
    last: Option<Desired>,
    /// Changes since.
    changed: ChangedRows,
}

/// Changes of rows since a reading.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangedRows {
    /// Ports that are to be read again, or are gone.
    pub(super) ports: BTreeMap<Uuid, FormerPort>,
    /// Those among them that left their bridge.
    pub(super) left: BTreeSet<Uuid>,
    /// Ports that joined a bridge, with the row of the bridge.
    pub(super) new: BTreeMap<Uuid, Uuid>,
    /// Changed rows of `Port`.
    pub(super) port_rows: BTreeSet<Uuid>,
    /// Changed rows of `Interface`.
    pub(super) interface_rows: BTreeSet<Uuid>,
}

/// A port as it was.
#[derive(Clone, Debug)]
pub(super) struct FormerPort {
    /// The row of its bridge.
    pub(super) bridge: Uuid,
    pub(super) name: String,
}

/// Rows of changes that are kept.
const CHANGED_MAX: usize = 10_000;

/// A port with its interfaces.
#[derive(Clone, Debug)]
pub(super) struct ParsedPort {
    pub(super) config: Arc<PortConfig>,
    /// The row of its bridge.
    pub(super) bridge: Uuid,
    /// Its rows of `Interface`.
    pub(super) interfaces: Vec<Uuid>,
    pub(super) notices: Vec<Notice>,
    /// Rejected rows of `Interface`, with their errors.
    pub(super) refused: Vec<(Uuid, String)>,
}

impl ChangedRows {
    fn len(&self) -> usize {
        self.ports.len() + self.left.len() + self.new.len() + self.port_rows.len() + self.interface_rows.len()
    }
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
            match &*change.table {
                "Port" => {
                    self.row_changed(change, |changed| &mut changed.port_rows);
                    self.forget_port(change.uuid);
                }
                "Interface" => {
                    self.row_changed(change, |changed| &mut changed.interface_rows);
                    if let Some(port) = self.homes.get(&change.uuid).copied() {
                        self.forget_port(port);
                    }
                }
                // Ports of a bridge read its other columns.
                "Bridge" if columns.as_ref().is_some_and(|columns| columns == &["ports"]) => {
                    self.ports_changed(replica, change);
                }
                "Open_vSwitch" if columns.as_ref().is_some_and(|columns| columns == &["next_cfg"]) => {}
                // Ports do not read these.
                "Open_vSwitch" | "Controller" | "Manager" if change.kind == ChangeKind::Modified => {
                    self.quiet.remove(&change.uuid);
                    self.last = None;
                }
                _ => {
                    self.clear();
                    return true;
                }
            }
        }
        if self.last.is_none() || self.changed.len() > CHANGED_MAX {
            (self.last, self.changed) = (None, ChangedRows::default());
        }
        is_affected
    }

    /// A row of a port or of an interface changed: notices about it may be no longer true.
    fn row_changed(&mut self, change: &Change, rows: fn(&mut ChangedRows) -> &mut BTreeSet<Uuid>) {
        let is_new = rows(&mut self.changed).insert(change.uuid);
        let was_quiet = self.quiet.remove(&change.uuid) || change.kind == ChangeKind::Inserted;
        if is_new && !was_quiet {
            self.last = None;
        }
    }

    /// The ports of a bridge changed.
    fn ports_changed(&mut self, replica: &Replica, change: &Change) {
        let ports = |row: Option<RowView<'_>>| row.map(|row| row.uuid_set("ports")).unwrap_or_default();
        let before = ports(change.old());
        let now = ports(replica.row(&change.table, change.uuid));
        // Both are sorted.
        let lacks = |all: &[Uuid], port: &Uuid| all.binary_search(port).is_err();
        for port in before.iter().filter(|port| lacks(&now, port)) {
            self.forget_port(*port);
            self.changed.left.insert(*port);
            self.changed.new.remove(port);
        }
        for port in now.iter().filter(|port| lacks(&before, port)) {
            let is_known = self.ports.contains_key(port) || self.changed.ports.contains_key(port);
            if is_known || self.changed.new.insert(*port, change.uuid).is_some() {
                // It moves, or is in two bridges.
                self.last = None;
            }
        }
    }

    /// Keeps a port no longer. Another one may have an interface of it.
    pub(super) fn drop_port(&mut self, port: Uuid) -> Option<ParsedPort> {
        let parsed = self.ports.remove(&port)?;
        for interface in &parsed.interfaces {
            if self.homes.get(interface) == Some(&port) {
                self.homes.remove(interface);
            }
        }
        Some(parsed)
    }

    fn forget_port(&mut self, port: Uuid) {
        let Some(parsed) = self.drop_port(port) else { return };
        if !parsed.notices.is_empty() || !parsed.refused.is_empty() {
            self.last = None;
        }
        let former = FormerPort { bridge: parsed.bridge, name: parsed.config.name.clone() };
        self.changed.ports.insert(port, former);
    }

    /// The last reading and the changes since, which are forgotten.
    pub(super) fn take_last(&mut self) -> (Option<Desired>, ChangedRows) {
        (self.last.take(), std::mem::take(&mut self.changed))
    }

    /// Keeps a reading whose ports can be followed one by one.
    pub(super) fn keep_last(&mut self, last: &Desired) {
        self.last = Some(last.clone());
    }

    /// Whether a port has that interface.
    pub(super) fn has_home(&self, interface: Uuid) -> bool {
        self.homes.contains_key(&interface)
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
