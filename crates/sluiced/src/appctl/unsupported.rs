//! Commands about unsupported protocols and tables.
//!
//! If no such object is configured, the reply is that of a switch without any: an empty table, or an unknown object.
//! If one is configured, the reply is that it is not supported.

use super::{Command, Reply, command};
use crate::control_plane::ControlPlane;
use ovsdb::client::RowView;

/// The commands of this module.
pub(super) const ROWS: &[Command] = &[
    command("qos/show", "interface", 1..=1, "show the QoS queues of an interface", qos),
    command("qos/show-types", "interface", 1..=1, "list the QoS types that an interface supports", qos_types),
];

/// An unsupported feature of the database.
struct Feature {
    /// Its name in errors.
    name: &'static str,
    /// The table, and the test for a row that requests the feature.
    table: &'static str,
    asks: fn(&RowView<'_>) -> bool,
    /// Error for an unknown name.
    unknown: &'static str,
}

const QOS: Feature = Feature {
    name: "QoS",
    table: "Port",
    asks: |port| port.opt_uuid("qos").is_some(),
    unknown: "no such interface",
};

/// An error if a row requests the feature: the row `named`, or any if that is empty.
fn not_asked_for(plane: &ControlPlane, feature: &Feature, named: &[String]) -> Result<(), String> {
    let replica = plane.db.client_ref().replica();
    let meant = |row: &RowView<'_>| named.first().is_none_or(|n| row.str("name") == *n);
    let mut rows = replica.rows(feature.table);
    match rows.find(|row| meant(row) && (feature.asks)(row)) {
        Some(row) => Err(format!(
            "{}: asked for by {}, and not supported in this version",
            feature.name,
            row.str("name")
        )),
        None => Ok(()),
    }
}

/// Reply for an interface of a bridge.
fn of_interface(plane: &ControlPlane, name: &str, text: String) -> Result<String, String> {
    let bridges = plane.switch.instances().bridges();
    match bridges.iter().any(|(_, b)| b.ports.by_name(name).is_some()) {
        true => Ok(text),
        false => Err(QOS.unknown.to_string()),
    }
}

fn qos(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let text = format!("QoS not configured on {}\n", args[0]);
    let answer = not_asked_for(plane, &QOS, args);
    Reply::from(answer.and_then(|()| of_interface(plane, &args[0], text)))
}

fn qos_types(plane: &mut ControlPlane, args: &[String]) -> Reply {
    let text = format!("No QoS types supported for interface: {}\n", args[0]);
    of_interface(plane, &args[0], text).into()
}
