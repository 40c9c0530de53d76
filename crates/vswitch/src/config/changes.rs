//! Filter for row changes: those that can change the desired state, and not those of columns written by the switch.

use ovsdb::client::{Change, ChangeKind, Replica};

/// Status columns that the database keeps across restarts, and identifiers for other programs. Ephemeral columns are
/// all status.
const NOT_READ: &[(&str, &[&str])] = &[
    ("Bridge", &["datapath_version", "external_ids"]),
    ("Controller", &["external_ids"]),
    ("Datapath", &["capabilities", "datapath_version", "external_ids"]),
    ("Interface", &["cfm_flap_count", "error", "external_ids", "ofport"]),
    ("Manager", &["external_ids"]),
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
    let table = replica.schema().tables.iter().find(|table| table.name == change.table);
    let not_read = NOT_READ.iter().find(|(table, _)| *table == &*change.table).map_or(&[][..], |(_, c)| c);
    let columns = table.map_or(&[][..], |table| &table.columns).iter().filter(|column| !column.ephemeral);
    let read = columns.filter(|column| !not_read.contains(&&*column.name));
    read.into_iter().any(|column| old.datum(&column.name) != new.datum(&column.name))
}
