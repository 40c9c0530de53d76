//! Commands about unsupported protocols and tables.
//!
//! If no such object is configured, the reply is that of a switch without any: an empty table, or an unknown object.
//! If one is configured, the reply is that it is not supported.

use super::Answer;
use super::datapath::with_threads;
use crate::daemon::Daemon;
use ovsdb::client::RowView;

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

const BONDS: Feature = Feature {
    name: "bonds",
    table: "Port",
    asks: |port| port.uuid_set("interfaces").len() > 1,
    unknown: "no such bond",
};
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
fn not_asked_for(daemon: &Daemon, feature: &Feature, named: &[String]) -> Result<(), String> {
    let replica = daemon.db.client_ref().replica();
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
fn none_of(daemon: &Daemon, feature: &Feature, args: &[String], empty: &str) -> Answer {
    let answer = not_asked_for(daemon, feature, args);
    Answer::Now(answer.and_then(|()| match args.is_empty() {
        true => Ok(empty.to_string()),
        false => Err(feature.unknown.to_string()),
    }))
}

pub(super) fn bonds(daemon: &mut Daemon, _: &[String]) -> Answer {
    none_of(daemon, &BONDS, &[], "bond\ttype\trecircID\tmembers\n")
}

pub(super) fn bond(daemon: &mut Daemon, args: &[String]) -> Answer {
    none_of(daemon, &BONDS, args, "")
}

pub(super) fn lacp(daemon: &mut Daemon, args: &[String]) -> Answer {
    none_of(daemon, &LACP, args, "")
}

pub(super) fn cfm(daemon: &mut Daemon, args: &[String]) -> Answer {
    none_of(daemon, &CFM, args, "")
}

pub(super) fn stp(daemon: &mut Daemon, args: &[String]) -> Answer {
    none_of(daemon, &STP, args, "")
}

pub(super) fn rstp(daemon: &mut Daemon, args: &[String]) -> Answer {
    none_of(daemon, &RSTP, args, "")
}

/// Without an instance of the protocol all these replies are empty.
pub(super) fn autoattach(daemon: &mut Daemon, args: &[String]) -> Answer {
    Answer::Now(not_asked_for(daemon, &AUTO_ATTACH, args).map(|()| String::new()))
}

/// `[INTERFACE] normal|false|true`: overrides a state of all instances or of one.
fn forced(daemon: &Daemon, feature: &Feature, args: &[String], unknown: &str) -> Answer {
    let known = args.last().is_some_and(|state| ["normal", "false", "true"].contains(&state.as_str()));
    if !known {
        return Answer::Now(Err("unknown fault string".to_string()));
    }
    let named = &args[..args.len() - 1];
    let answer = not_asked_for(daemon, feature, named);
    Answer::Now(answer.and_then(|()| match named.is_empty() {
        true => Ok("OK".to_string()),
        false => Err(unknown.to_string()),
    }))
}

pub(super) fn cfm_fault(daemon: &mut Daemon, args: &[String]) -> Answer {
    forced(daemon, &CFM, args, "no such CFM object")
}

/// Forces a topology change.
pub(super) fn stp_change(daemon: &mut Daemon, args: &[String]) -> Answer {
    none_of(daemon, &STP, args, "OK")
}

/// The same.
pub(super) fn rstp_change(daemon: &mut Daemon, args: &[String]) -> Answer {
    none_of(daemon, &RSTP, args, "OK")
}

/// Bonds of userspace datapaths.
pub(super) fn datapath_bonds(daemon: &mut Daemon, args: &[String]) -> Answer {
    with_threads(&daemon.switch, args.first()).map(|_| String::new()).into()
}

/// Reply for an interface of a bridge.
fn of_interface(daemon: &Daemon, name: &str, text: String) -> Result<String, String> {
    let bridges = daemon.switch.instances().bridges();
    match bridges.iter().any(|(_, b)| b.ports.by_name(name).is_some()) {
        true => Ok(text),
        false => Err(QOS.unknown.to_string()),
    }
}

pub(super) fn qos(daemon: &mut Daemon, args: &[String]) -> Answer {
    let text = format!("QoS not configured on {}\n", args[0]);
    let answer = not_asked_for(daemon, &QOS, args);
    Answer::Now(answer.and_then(|()| of_interface(daemon, &args[0], text)))
}

pub(super) fn qos_types(daemon: &mut Daemon, args: &[String]) -> Answer {
    let text = format!("No QoS types supported for interface: {}\n", args[0]);
    of_interface(daemon, &args[0], text).into()
}
