//! [`Facts`]: state of the running switch, by database row.
//!
//! A row outside `Facts` stays unchanged. In a row inside, a field without a value clears its column, unless its
//! comment states otherwise. Columns that nothing fills ([`crate::settings::Effect::Empty`]) have no field and are
//! cleared in rows of `Bridge`, `Port` and `Interface`.

use std::collections::{BTreeMap, BTreeSet};

use l2proto::protocol::{LinkValue, Status, Table};
use ofproto::MacAddr;
use ovsdb::value::Uuid;

use crate::config::StringMap;

/// Counters by name.
pub type Counters = BTreeMap<String, i64>;

/// All facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The whole switch.
    pub switch: SwitchFacts,
    /// Rows of `Bridge`.
    pub bridges: BTreeMap<Uuid, BridgeFacts>,
    /// Rows of `Port`.
    pub ports: BTreeMap<Uuid, PortFacts>,
    /// Rows of `Interface`.
    pub interfaces: BTreeMap<Uuid, InterfaceFacts>,
    /// Counters of rows of `Mirror`.
    pub mirrors: BTreeMap<Uuid, Counters>,
    /// Rows of `Controller`.
    pub controllers: BTreeMap<Uuid, ControllerFacts>,
    /// Rows of `Manager`, if this process serves them.
    pub managers: BTreeMap<Uuid, ManagerFacts>,
}

impl Facts {
    /// Adds to `rows` those whose facts differ from `last` or are new, without regard to the switch and to mirrors.
    /// The counters of interfaces are to be left out of both.
    pub fn differing(&self, last: &Facts, rows: &mut BTreeSet<Uuid>) {
        differing(&self.bridges, &last.bridges, rows);
        differing(&self.ports, &last.ports, rows);
        differing(&self.interfaces, &last.interfaces, rows);
        differing(&self.controllers, &last.controllers, rows);
        differing(&self.managers, &last.managers, rows);
    }

    /// Whether these facts are the same, without regard to the switch, to mirrors and to counters of interfaces.
    pub fn is_same_beside_counters(&self, other: &Facts) -> bool {
        let interfaces = |facts: &Facts| {
            let mut interfaces = facts.interfaces.clone();
            interfaces.values_mut().for_each(|known| known.statistics.clear());
            interfaces
        };
        (&self.bridges, &self.ports) == (&other.bridges, &other.ports)
            && (&self.controllers, &self.managers) == (&other.controllers, &other.managers)
            && interfaces(self) == interfaces(other)
    }
}

fn differing<F: PartialEq>(new: &BTreeMap<Uuid, F>, last: &BTreeMap<Uuid, F>, rows: &mut BTreeSet<Uuid>) {
    rows.extend(new.iter().filter(|(row, facts)| last.get(row) != Some(facts)).map(|(row, _)| *row));
}

/// Facts of the row of `Open_vSwitch`. `None` leaves a column unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SwitchFacts {
    /// Supported interface types.
    pub iface_types: Option<Vec<String>>,
    /// Supported datapath types.
    pub datapath_types: Option<Vec<String>>,
    /// Emulated version of OVS; written only with an embedded database, as the four that follow.
    pub ovs_version: Option<String>,
    /// Version of the schema.
    pub db_version: Option<String>,
    /// Name of the system.
    pub system_type: Option<String>,
    /// Version of the system.
    pub system_version: Option<String>,
    /// Version of DPDK: `none`.
    pub dpdk_version: Option<String>,
    /// System statistics, if enabled.
    pub statistics: Option<StringMap>,
    /// Capabilities by datapath type, for rows of `Datapath`.
    pub capabilities: BTreeMap<String, StringMap>,
}

/// Facts of a row of `Bridge`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BridgeFacts {
    /// 16 hexadecimal digits; `None` for a nonexistent bridge.
    pub datapath_id: Option<String>,
    /// Version of the datapath: `<built-in>` in userspace.
    pub datapath_version: String,
    /// Status.
    pub status: StringMap,
    /// Status columns of link protocols.
    pub links: LinkFacts,
}

/// Facts of a row of `Port`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortFacts {
    /// Status.
    pub status: StringMap,
    /// Status columns of link protocols.
    pub links: LinkFacts,
    /// Address of the active member of a bond, if its column is to be written; `None` without a bond.
    pub active_member: Option<Option<MacAddr>>,
}

/// Values of a row's columns that link protocols write, by name; those that are left out are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkFacts(pub(super) BTreeMap<&'static str, LinkValue>);

impl LinkFacts {
    /// Adds the values of a session for this table. Maps of several sessions are joined.
    pub fn add(&mut self, table: Table, status: &Status) {
        let of_table = status.iter().filter(|((t, _), _)| *t == table);
        for ((_, name), value) in of_table {
            match (self.0.get_mut(name), value) {
                (Some(LinkValue::Map(all)), LinkValue::Map(more)) => all.extend(more.clone()),
                (Some(LinkValue::Counters(all)), LinkValue::Counters(more)) => all.extend(more.clone()),
                (Some(known), _) => known.clone_from(value),
                (None, _) => drop(self.0.insert(name, value.clone())),
            }
        }
    }
}

/// Up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpDown {
    /// `up`
    Up,
    /// `down`
    Down,
}

/// Duplex of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplex {
    /// `half`
    Half,
    /// `full`
    Full,
}

/// Facts of a row of `Interface`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterfaceFacts {
    /// OpenFlow number, 65534 for a bridge's own; -1 if it could not be opened.
    pub ofport: i64,
    /// The error, if any.
    pub error: Option<String>,
    /// Interface index in the system.
    pub ifindex: Option<u32>,
    /// Address.
    pub mac_in_use: Option<MacAddr>,
    /// MTU.
    pub mtu: Option<u32>,
    /// Whether it is administratively up.
    pub admin_state: Option<UpDown>,
    /// Whether it has a carrier.
    pub link_state: Option<UpDown>,
    /// Speed in bit/s.
    pub link_speed_bps: Option<u64>,
    /// Duplex.
    pub duplex: Option<Duplex>,
    /// Number of carrier changes.
    pub link_resets: Option<u64>,
    /// Driver and similar data.
    pub status: StringMap,
    /// Counters.
    pub statistics: Counters,
    /// Status columns of link protocols.
    pub links: LinkFacts,
}

impl InterfaceFacts {
    /// An interface that could not be opened.
    pub fn broken(error: String) -> Self {
        InterfaceFacts { ofport: -1, error: Some(error), ..InterfaceFacts::default() }
    }
}

/// Role of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerRole {
    /// Equal.
    Other,
    /// The one that decides.
    Primary,
    /// One that looks.
    Secondary,
}

/// Facts of a row of `Controller`. `status` has `state`, `sec_since_connect`, `sec_since_disconnect`, `last_error`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ControllerFacts {
    /// Whether it is connected.
    pub is_connected: bool,
    /// Its role, while connected.
    pub role: Option<ControllerRole>,
    /// Status. Keys beginning with `sec_since_` are written with the statistics, as they change all the time.
    pub status: StringMap,
}

/// Facts of a row of `Manager`; `status` as of a controller, and `n_connections`, `bound_port`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagerFacts {
    /// Whether it is connected.
    pub is_connected: bool,
    /// Status.
    pub status: StringMap,
}
