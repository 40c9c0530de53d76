//! Filter for row changes: those that can change the desired state, and not those of columns written by the switch.

use ovsdb::client::{Change, ChangeKind, Replica};

use crate::settings::{self, Setting};

/// The changed columns among those that the configuration reads; `None` for a row that came or went.
pub(super) fn changed_columns<'a>(replica: &'a Replica, change: &Change) -> Option<Vec<&'a str>> {
    let (ChangeKind::Modified, Some(old), Some(new)) =
        (change.kind, change.old(), replica.row(&change.table, change.uuid))
    else {
        return None;
    };
    let table = replica.schema().table(&change.table);
    let columns = table.map_or(&[][..], |table| &table.columns).iter();
    let known = settings::table(&change.table);
    // Ephemeral columns are all status. A column that only another version has is not read.
    let is_read = |name: &str| known.is_none_or(|known| known.column(name).is_some_and(Setting::is_read));
    let read = columns.filter(|column| !column.ephemeral && is_read(&column.name));
    let names = read.map(|column| &*column.name);
    Some(names.filter(|name| old.datum(name) != new.datum(name)).collect())
}
