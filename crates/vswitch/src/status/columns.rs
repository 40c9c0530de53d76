//! Facts as columns: one function per table, each column with its urgency.

use l2proto::Protocol;
use l2proto::protocol::{ColumnKind, LinkValue, StatusColumn, Table};
use ovsdb::client::Replica;
use ovsdb::value::Datum;

use super::facts::{
    BridgeFacts, ControllerFacts, ControllerRole, Counters, Duplex, InterfaceFacts, LinkFacts, ManagerFacts,
    PortFacts, SwitchFacts, UpDown,
};
use crate::config::StringMap;
use crate::settings::{self, Effect};

/// Write time of a changed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At once.
    Now,
    /// With the statistics.
    Statistics,
    /// At once, unless only times (`sec_since_…`, `stp_sec_in_state`) differ: these wait for the statistics.
    Status,
}

/// A column, its value, and when it is written.
pub(super) type Column = (&'static str, Datum, When);

/// Longest text written into a column.
const MAX_TEXT_BYTES: usize = 4096;

/// A text valid for the database: without zero characters, of bounded length.
fn text(text: &str) -> String {
    let mut out: String = text.chars().map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect();
    let mut end = out.len().min(MAX_TEXT_BYTES);
    while !out.is_char_boundary(end) {
        end -= 1;
    }
    out.truncate(end);
    out
}

fn strings(map: &StringMap) -> Datum {
    Datum::map(map.iter().map(|(key, value)| (text(key), text(value))))
}

fn counters(map: &Counters) -> Datum {
    Datum::map(map.iter().map(|(key, value)| (text(key), *value)))
}

fn optional<D: Into<Datum>>(value: Option<D>) -> Datum {
    value.map_or_else(Datum::empty_set, Into::into)
}

/// The value of a link protocol's column.
fn link_value(column: StatusColumn, value: Option<&LinkValue>) -> Datum {
    match value {
        None if column.kind == ColumnKind::Map => Datum::empty_map(),
        None => Datum::empty_set(),
        Some(LinkValue::Texts(all)) => Datum::set(all.iter().map(|t| text(t))),
        Some(LinkValue::Integers(all)) => Datum::set(all.iter().copied()),
        Some(LinkValue::Numbers(map)) => Datum::map(map.iter().map(|(key, value)| (*key, *value))),
        Some(LinkValue::Counters(map)) => counters(map),
        Some(LinkValue::Flag(flag)) => (*flag).into(),
        Some(LinkValue::Integer(number)) => (*number).into(),
        Some(LinkValue::Text(value)) => text(value).into(),
        Some(LinkValue::Map(map)) => strings(map),
    }
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn up_down(state: Option<UpDown>) -> Datum {
    optional(state.map(|state| if state == UpDown::Up { "up" } else { "down" }))
}

pub(super) fn of_interface(facts: &InterfaceFacts) -> Vec<Column> {
    use When::{Now, Statistics};
    let duplex = facts.duplex.map(|duplex| if duplex == Duplex::Full { "full" } else { "half" });
    let mut columns = vec![
        ("ofport", facts.ofport.into(), Now),
        ("error", optional(facts.error.as_deref().map(text)), Now),
        ("ifindex", optional(facts.ifindex.map(i64::from)), Now),
        ("mac_in_use", optional(facts.mac_in_use.map(|mac| mac.to_string())), Now),
        ("mtu", optional(facts.mtu.map(i64::from)), Now),
        ("admin_state", up_down(facts.admin_state), Now),
        ("link_state", up_down(facts.link_state), Now),
        ("link_speed", optional(facts.link_speed_bps.map(number)), Now),
        ("duplex", optional(duplex), Now),
        ("link_resets", optional(facts.link_resets.map(number)), Now),
        ("status", strings(&facts.status), Now),
        ("statistics", counters(&facts.statistics), Statistics),
    ];
    add_links(Table::Interface, &facts.links, &mut columns);
    columns
}

/// Adds the columns of link protocols. A map that the switch fills, too, has the pairs of both.
fn add_links(table: Table, facts: &LinkFacts, columns: &mut Vec<Column>) {
    let all = Protocol::ALL.iter().flat_map(|protocol| protocol.status_columns());
    for column in all.filter(|column| column.table == table) {
        let value = facts.0.get(column.name);
        let when = if column.is_statistics { When::Statistics } else { When::Now };
        match columns.iter_mut().find(|(name, _, _)| *name == column.name) {
            None => columns.push((column.name, link_value(*column, value), when)),
            Some((_, known, _)) => {
                if let Some(LinkValue::Map(map)) = value {
                    let own = known
                        .pairs()
                        .iter()
                        .filter_map(|(k, v)| Some((k.as_str()?.to_string(), v.as_str()?.to_string())));
                    let mut joined: StringMap = own.collect();
                    joined.extend(map.clone());
                    *known = strings(&joined);
                }
            }
        }
    }
}

pub(super) fn of_bridge(facts: &BridgeFacts) -> Vec<Column> {
    let mut columns = vec![
        ("datapath_id", optional(facts.datapath_id.as_deref().map(text)), When::Now),
        ("datapath_version", text(&facts.datapath_version).into(), When::Now),
        ("status", strings(&facts.status), When::Now),
    ];
    add_links(Table::Bridge, &facts.links, &mut columns);
    columns
}

pub(super) fn of_port(facts: &PortFacts) -> Vec<Column> {
    let mut columns = vec![("status", strings(&facts.status), When::Status)];
    if let Some(mac) = facts.active_member {
        columns.push(("bond_active_slave", optional(mac.map(|mac| mac.to_string())), When::Now));
    }
    add_links(Table::Port, &facts.links, &mut columns);
    columns
}

pub(super) fn of_mirror(statistics: &Counters) -> Vec<Column> {
    vec![("statistics", counters(statistics), When::Statistics)]
}

pub(super) fn of_controller(facts: &ControllerFacts) -> Vec<Column> {
    let role = facts.role.map(|role| match role {
        ControllerRole::Other => "other",
        ControllerRole::Primary => "master",
        ControllerRole::Secondary => "slave",
    });
    vec![
        ("is_connected", facts.is_connected.into(), When::Now),
        ("role", optional(role), When::Now),
        ("status", strings(&facts.status), When::Status),
    ]
}

pub(super) fn of_manager(facts: &ManagerFacts) -> Vec<Column> {
    vec![
        ("is_connected", facts.is_connected.into(), When::Now),
        ("status", strings(&facts.status), When::Status),
    ]
}

/// Excludes `cur_cfg`, which is written by acknowledgement.
pub(super) fn of_switch(facts: &SwitchFacts) -> Vec<Column> {
    let mut columns = Vec::new();
    let sets = [("iface_types", &facts.iface_types), ("datapath_types", &facts.datapath_types)];
    for (name, value) in sets {
        columns
            .extend(value.iter().map(|types| (name, Datum::set(types.iter().map(|t| text(t))), When::Now)));
    }
    let texts = [
        ("ovs_version", &facts.ovs_version),
        ("db_version", &facts.db_version),
        ("system_type", &facts.system_type),
        ("system_version", &facts.system_version),
        ("dpdk_version", &facts.dpdk_version),
    ];
    for (name, value) in texts {
        columns.extend(value.iter().map(|value| (name, text(value).into(), When::Now)));
    }
    columns.extend(facts.statistics.iter().map(|map| ("statistics", strings(map), When::Statistics)));
    columns
}

pub(super) fn capabilities(map: &StringMap) -> Vec<Column> {
    vec![("capabilities", strings(map), When::Now)]
}

/// The columns of a table that nothing fills, at their defaults: another switch may have left values.
pub(super) fn empty(replica: &Replica, table: &str) -> Vec<Column> {
    let schema = replica.schema().table(table);
    let default = |name: &'static str| Some((name, schema?.column(name)?.default.clone(), When::Now));
    let columns = settings::table(table).into_iter().flat_map(|table| table.columns());
    let empty = columns.filter(|column| matches!(column.effect, Effect::Empty { .. }));
    empty.filter_map(|column| default(column.column)).collect()
}

/// Whether two values of a status column differ in more than times.
pub(super) fn differ_beyond_times(a: &Datum, b: &Datum) -> bool {
    let lasting = |datum: &Datum| -> Vec<_> {
        let is_time = |key: &str| key.starts_with("sec_since_") || key == "stp_sec_in_state";
        datum.pairs().iter().filter(|(key, _)| !key.as_str().is_some_and(is_time)).cloned().collect()
    };
    lasting(a) != lasting(b)
}
