//! Filter for row changes: those that can change the desired state, and not those of columns written by the switch.

use ovsdb::client::{Change, ChangeKind, Replica};

use crate::settings::{self, Setting};

/// Whether [`super::Desired::from_replica`] may return a different state after these changes. Written-back status
/// needs no new pass over all rows.
pub fn affects_desired(replica: &Replica, changes: &[Change]) -> bool {
    changes.iter().any(|change| affects(replica, change))
}

fn affects(replica: &Replica, change: &Change) -> bool {
    let (ChangeKind::Modified, Some(old), Some(new)) =
        (change.kind, change.old(), replica.row(&change.table, change.uuid))
    else {
        return true;
    };
    let table = replica.schema().table(&change.table);
    let columns = table.map_or(&[][..], |table| &table.columns).iter();
    let known = settings::table(&change.table);
    // Ephemeral columns are all status. A column that only another version has is not read.
    let is_read = |name: &str| known.is_none_or(|known| known.column(name).is_some_and(Setting::is_read));
    let mut read = columns.filter(|column| !column.ephemeral && is_read(&column.name));
    read.any(|column| old.datum(&column.name) != new.datum(&column.name))
}
