//! Changes of `Port.trunks` that auto-attach requests.
//!
//! A change is written once: a later edit by a user stays. As in OVS a port that gets its first VLAN becomes a trunk, and
//! one that loses its last becomes an access port. A bond has no port of the name of its members, so it does not change.

use std::collections::BTreeMap;

use ovsdb::client::ColumnValue;
use ovsdb::value::Datum;

use super::Writing;

/// Whether a VLAN is added, by port and VLAN.
pub type TrunkChanges = BTreeMap<(String, u16), bool>;

impl Writing<'_> {
    /// Writes the changes that make a difference; returns whether there are any.
    pub(super) fn trunks(&mut self, changes: &TrunkChanges) -> bool {
        let mut by_port: BTreeMap<&str, Vec<(i64, bool)>> = BTreeMap::new();
        for ((port, vlan), is_added) in changes {
            by_port.entry(port).or_default().push((i64::from(*vlan), *is_added));
        }
        if by_port.is_empty() {
            return false;
        }
        let mut changed = false;
        for row in self.replica.rows("Port") {
            let Some(changes) = by_port.get(row.str("name")) else { continue };
            let before = row.int_set("trunks");
            let mut after = before.clone();
            for (vlan, is_added) in changes {
                match (after.contains(vlan), is_added) {
                    (false, true) => after.push(*vlan),
                    (true, false) => after.retain(|other| other != vlan),
                    _ => {}
                }
            }
            if after == before {
                continue;
            }
            let mode = match (before.is_empty(), after.is_empty()) {
                (true, false) => Some("trunk"),
                (false, true) => Some("access"),
                _ => None,
            };
            let trunks = ColumnValue::from(Datum::set(after));
            let mode = mode.map(|mode| ("vlan_mode", ColumnValue::from(Datum::from(mode))));
            self.txn.verify("Port", row.uuid(), [("trunks", Datum::set(before))]);
            self.txn.update("Port", row.uuid(), [("trunks", trunks)].into_iter().chain(mode));
            changed = true;
        }
        changed
    }
}
