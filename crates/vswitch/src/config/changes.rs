//! Which changes of rows can change the desired state: not those of columns that the switch itself writes.

use ovsdb::client::{Change, ChangeKind, Replica};

/// Columns that are status though the database keeps them across restarts, and identifiers for other programs. Columns
/// that it does not keep (ephemeral ones) are all status.
const NOT_READ: &[(&str, &[&str])] = &[
    ("Bridge", &["datapath_version", "external_ids"]),
    ("Controller", &["external_ids"]),
    ("Datapath", &["capabilities", "datapath_version", "external_ids"]),
    ("Interface", &["cfm_flap_count", "error", "external_ids", "ofport"]),
    ("Mirror", &["external_ids"]),
    (
        "Open_vSwitch",
        &[
            "cur_cfg",
            "datapath_types",
            "db_version",
            "dpdk_initialized",
            "dpdk_version",
            "iface_types",
            "manager_options",
            "ovs_version",
            "system_type",
            "system_version",
        ],
    ),
    ("Port", &["bond_active_slave", "external_ids"]),
];

/// Tables of which nothing is read.
const TABLES_NOT_READ: [&str; 1] = ["Manager"];

/// Whether [`super::Desired::from_replica`] may give something else after these changes. The write-back of status is
/// not worth a new look at every row.
pub fn affects_desired(replica: &Replica, changes: &[Change]) -> bool {
    changes.iter().any(|change| affects(replica, change))
}

fn affects(replica: &Replica, change: &Change) -> bool {
    if TABLES_NOT_READ.contains(&&*change.table) {
        return false;
    }
    let (ChangeKind::Modified, Some(old), Some(new)) =
        (change.kind, change.old(), replica.row(&change.table, change.uuid))
    else {
        return true;
    };
    let table = replica.schema().tables.iter().find(|table| table.name == change.table);
    let not_read = NOT_READ.iter().find(|(table, _)| *table == &*change.table).map_or(&[][..], |(_, c)| c);
    let columns = table.map_or(&[][..], |table| &table.columns).iter().filter(|column| !column.ephemeral);
    let read = columns.filter(|column| !not_read.contains(&&*column.name));
    read.into_iter().any(|column| old.datum(&column.name) != new.datum(&column.name))
}
