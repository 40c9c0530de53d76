//! Commands about unsupported protocols and tables.
//!
//! If no such object is configured, the reply is that of a switch without any: an empty table, or an unknown object.
//! If one is configured, the reply is that it is not supported.

use super::{Command, Reply, command};
use crate::control_plane::ControlPlane;
use ovsdb::client::RowView;

/// The commands of this module.
pub(super) const ROWS: &[Command] = &[
    command(
        "autoattach/show-isid",
        "[bridge]",
        0..=1,
        "show the service mappings of auto-attach, of all bridges or one",
        autoattach,
    ),
    command(
        "autoattach/statistics",
        "[bridge]",
        0..=1,
        "show the counters of auto-attach, of all bridges or one",
        autoattach,
    ),
    command(
        "autoattach/status",
        "[bridge]",
        0..=1,
        "show the state of auto-attach, of all bridges or one",
        autoattach,
    ),
    command(
        "cfm/set-fault",
        "[interface] normal|false|true",
        1..=2,
        "override the fault state of CFM; normal ends the override",
        cfm_fault,
    ),
    command("cfm/show", "[interface]", 0..=1, "show the CFM state of all interfaces or one", cfm),
    command("lacp/show", "[port]", 0..=1, "show the LACP state of all ports or one", lacp),
    command("lacp/show-stats", "[port]", 0..=1, "show the LACP counters of all ports or one", lacp),
    command("qos/show", "interface", 1..=1, "show the QoS queues of an interface", qos),
    command("qos/show-types", "interface", 1..=1, "list the QoS types that an interface supports", qos_types),
    command("rstp/show", "[bridge]", 0..=1, "show the RSTP state of all bridges or one", rstp),
    command("rstp/tcn", "[bridge]", 0..=1, "force an RSTP topology change", rstp_change),
    command("stp/show", "[bridge]", 0..=1, "show the STP state of all bridges or one", stp),
    command("stp/tcn", "[bridge]", 0..=1, "force an STP topology change", stp_change),
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

const LACP: Feature = Feature {
    name: "LACP",
    table: "Port",
    asks: |port| port.opt_str("lacp").is_some_and(|mode| mode != "off"),
    unknown: "no such lacp object",
};
const CFM: Feature = Feature {
    name: "connectivity fault management",
    table: "Interface",
    asks: |interface| interface.opt_int("cfm_mpid").is_some(),
    unknown: "no such CFM object",
};
const STP: Feature = Feature {
    name: "STP",
    table: "Bridge",
    asks: |bridge| bridge.bool("stp_enable"),
    unknown: "no such stp object",
};
const RSTP: Feature = Feature {
    name: "RSTP",
    table: "Bridge",
    asks: |bridge| bridge.bool("rstp_enable"),
    unknown: "No such RSTP object",
};
const AUTO_ATTACH: Feature = Feature {
    name: "auto-attach",
    table: "Bridge",
    asks: |bridge| bridge.opt_uuid("auto_attach").is_some(),
    unknown: "",
};
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

/// An empty table without a name, an error otherwise.
fn none_of(plane: &ControlPlane, feature: &Feature, args: &[String], empty: &str) -> Reply {
    let answer = not_asked_for(plane, feature, args);
    Reply::from(answer.and_then(|()| match args.is_empty() {
        true => Ok(empty.to_string()),
        false => Err(feature.unknown.to_string()),
    }))
}

fn lacp(plane: &mut ControlPlane, args: &[String]) -> Reply {
    none_of(plane, &LACP, args, "")
}

fn cfm(plane: &mut ControlPlane, args: &[String]) -> Reply {
    none_of(plane, &CFM, args, "")
}

fn stp(plane: &mut ControlPlane, args: &[String]) -> Reply {
    none_of(plane, &STP, args, "")
}

fn rstp(plane: &mut ControlPlane, args: &[String]) -> Reply {
    none_of(plane, &RSTP, args, "")
}

/// Without an instance of the protocol all these replies are empty.
fn autoattach(plane: &mut ControlPlane, args: &[String]) -> Reply {
    Reply::from(not_asked_for(plane, &AUTO_ATTACH, args).map(|()| String::new()))
}

/// `[INTERFACE] normal|false|true`: overrides a state of all instances or of one.
fn forced(plane: &ControlPlane, feature: &Feature, args: &[String], unknown: &str) -> Reply {
    let known = args.last().is_some_and(|state| ["normal", "false", "true"].contains(&state.as_str()));
    if !known {
        return Reply::Error("unknown fault string".to_string());
    }
    let named = &args[..args.len() - 1];
    let answer = not_asked_for(plane, feature, named);
    Reply::from(answer.and_then(|()| match named.is_empty() {
        true => Ok("OK".to_string()),
        false => Err(unknown.to_string()),
    }))
}

fn cfm_fault(plane: &mut ControlPlane, args: &[String]) -> Reply {
    forced(plane, &CFM, args, "no such CFM object")
}

/// Forces a topology change.
fn stp_change(plane: &mut ControlPlane, args: &[String]) -> Reply {
    none_of(plane, &STP, args, "OK")
}

/// The same.
fn rstp_change(plane: &mut ControlPlane, args: &[String]) -> Reply {
    none_of(plane, &RSTP, args, "OK")
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
