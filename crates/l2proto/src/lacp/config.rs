//! Settings of a session: columns of the tables `Port` and `Interface`, as typed values.
//!
//! As in OVS a bad number counts as absent, and so does any `lacp-time` but `fast`; a port with a bad system id has no LACP.

use super::frame::System;
use super::member::Link;
use crate::protocol::{Columns, IgnoredSetting, LinkPort, LinkValue, Table};
use flow::{Flow, MacAddr, Mask};
use packet::headers::ETH_TYPE_LACP;
use std::collections::BTreeMap;

/// Column with further settings, of both tables.
const MORE: &str = "other_config";

/// The settings of one member, with those of its port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Whether the port sends without being asked (`lacp=active`).
    pub is_active: bool,
    /// Whether the port is a bond.
    pub is_bond: bool,
    /// Whether partners are asked for a message each second (`lacp-time=fast`).
    pub is_fast: bool,
    /// Whether members without a partner carry traffic if none has one (`lacp-fallback-ab`).
    pub falls_back: bool,
    /// Address of the system (`lacp-system-id`); that of the bridge if `None`.
    pub system_id: Option<MacAddr>,
    /// Priority of the system, at least 1 (`lacp-system-priority`).
    pub system_priority: Option<u16>,
    /// Number of the link, at least 1 (`lacp-port-id`); the port number of OpenFlow if `None`.
    pub port_id: Option<u16>,
    /// Priority of the link, at least 1 (`lacp-port-priority`).
    pub port_priority: Option<u16>,
    /// Key of the bond, at least 1 (`lacp-aggregation-key`); the number of its first link if `None`.
    pub key: Option<u16>,
}

/// The settings of a port, complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PortConfig {
    pub(super) is_active: bool,
    pub(super) is_fast: bool,
    pub(super) falls_back: bool,
    pub(super) system: System,
}

impl Config {
    /// The settings of an interface: `None` without LACP.
    pub fn parse(columns: &dyn Columns) -> (Option<Config>, Vec<IgnoredSetting>) {
        let mut reader = Reader::new(columns);
        let is_active = match columns.column(Table::Port, "lacp") {
            Some(LinkValue::Text(mode)) if mode == "active" => true,
            Some(LinkValue::Text(mode)) if mode == "passive" => false,
            Some(LinkValue::Text(mode)) if mode != "off" => {
                let message = format!("lacp={mode}: ignored: give active, passive or off");
                reader.ignored.push(IgnoredSetting {
                    table: Table::Port,
                    place: "lacp".to_string(),
                    message,
                });
                return (None, reader.ignored);
            }
            _ => return (None, Vec::new()),
        };
        let system_id = reader.system_id();
        let config = Config {
            is_active,
            is_bond: columns.members() > 1,
            is_fast: reader.is_fast(),
            falls_back: reader.falls_back(),
            system_id: system_id.ok().flatten(),
            system_priority: reader.number(Table::Port, "lacp-system-priority"),
            port_id: reader.number(Table::Interface, "lacp-port-id"),
            port_priority: reader.number(Table::Interface, "lacp-port-priority"),
            key: reader.number(Table::Interface, "lacp-aggregation-key"),
        };
        (system_id.is_ok().then_some(config), reader.ignored)
    }

    /// The settings of the port on a bridge. A bond is the lower system by default, so it decides.
    pub(super) fn of_port(&self, port: &LinkPort) -> PortConfig {
        let default_priority = u16::MAX - u16::from(self.is_bond);
        PortConfig {
            is_active: self.is_active,
            is_fast: self.is_fast,
            falls_back: self.falls_back,
            system: System {
                priority: self.system_priority.unwrap_or(default_priority),
                id: self.system_id.unwrap_or(port.bridge_mac),
            },
        }
    }

    /// The settings of the member.
    pub(super) fn of_link(&self, port: &LinkPort) -> Link {
        Link {
            port_id: self.port_id.unwrap_or(port.of_port.0 as u16),
            port_priority: self.port_priority.unwrap_or(u16::MAX),
            key: self.key.unwrap_or(0),
        }
    }
}

/// Reads values of `other_config`, and collects those that it ignores.
struct Reader {
    port: BTreeMap<String, String>,
    interface: BTreeMap<String, String>,
    ignored: Vec<IgnoredSetting>,
}

impl Reader {
    fn new(columns: &dyn Columns) -> Reader {
        let map = |table| match columns.column(table, MORE) {
            Some(LinkValue::Map(map)) => map,
            _ => BTreeMap::new(),
        };
        Reader { port: map(Table::Port), interface: map(Table::Interface), ignored: Vec::new() }
    }

    fn get(&self, table: Table, key: &str) -> Option<&str> {
        let map = if table == Table::Port { &self.port } else { &self.interface };
        map.get(key).map(String::as_str)
    }

    fn ignore(&mut self, table: Table, key: &str, reason: &str) {
        let value = self.get(table, key).unwrap_or_default();
        let place = format!("{MORE}:{key}");
        let message = format!("{place}={value}: ignored: {reason}");
        self.ignored.push(IgnoredSetting { table, place, message });
    }

    /// A number from 1 to 65535 as `strtol` reads it, to its end.
    fn number(&mut self, table: Table, key: &str) -> Option<u16> {
        let value = self.get(table, key)?;
        let number = value.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']).parse().ok();
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.ignore(table, key, "give a number from 1 to 65535");
        }
        number
    }

    fn is_fast(&mut self) -> bool {
        let Some(value) = self.get(Table::Port, "lacp-time") else { return false };
        let is_fast = value.eq_ignore_ascii_case("fast");
        if !is_fast && !value.eq_ignore_ascii_case("slow") {
            self.ignore(Table::Port, "lacp-time", "give fast or slow");
        }
        is_fast
    }

    /// `true` in any case of letters; another value is false.
    fn falls_back(&mut self) -> bool {
        let Some(value) = self.get(Table::Port, "lacp-fallback-ab") else { return false };
        let is_true = value.eq_ignore_ascii_case("true");
        if !is_true && !value.eq_ignore_ascii_case("false") {
            self.ignore(Table::Port, "lacp-fallback-ab", "give true or false");
        }
        is_true
    }

    /// The id, if one is set.
    ///
    /// # Errors
    /// It is bad.
    fn system_id(&mut self) -> Result<Option<MacAddr>, ()> {
        let Some(value) = self.get(Table::Port, "lacp-system-id") else { return Ok(None) };
        let id = MacAddr::parse(value);
        let reason = match id {
            Some(id) if !id.is_zero() => return Ok(Some(id)),
            Some(_) => "the port has no LACP with a zero system id",
            None => "the port has no LACP: give an Ethernet address, as in 00:23:20:00:00:01",
        };
        self.ignore(Table::Port, "lacp-system-id", reason);
        Err(())
    }
}

/// Which packets of a port belong to its session: all of slow protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim;

impl Claim {
    /// Whether a packet is for the session; the bits that decide are added to `mask`.
    pub fn claims(self, flow: &Flow, mask: &mut Mask) -> bool {
        mask.0.dl_type = u16::MAX;
        flow.dl_type == ETH_TYPE_LACP
    }
}
