//! The reply to the control command `sluice/status`: one JSON object of this shape, parsed into
//! [`StatusModel`].
//!
//! ```json
//! {"version": "0.1.0", "pid": 4711, "uptime_ms": 61000,
//!  "main_loop": {"turns": 4321, "longest": {"us": 5300, "at_ms": 1700000000123, "part": "database", "part_us": 5100}},
//!  "confinement": {"calls": true, "files": true, "capabilities": true, "refused": 0},
//!  "datapaths": [{"name": "netdev@ovs-netdev", "flows": 12, "masks": 3, "hits": 1000, "misses": 12, "lost": 0,
//!    "threads": [{"id": "pmd-c00", "received": 1012, "cache_hits": 900, "megaflow_hits": 100,
//!      "subtable_lookups": 150, "upcalls": 12, "upcalls_lost": 0, "busy_cycles": 5, "idle_cycles": 95,
//!      "recirculated": 0, "sent_packets": 1000, "sent_batches": 40}],
//!    "upcalls": {"misses": 12, "refused": 0, "answers": 12, "answers_us": 480, "installed": 12,
//!      "flow_limit": 200000, "dump_duration_ms": 1},
//!    "connections": {"maximum": 3000000, "zones_used": 1,
//!      "all": {"connections": 3, "created": 5, "ended": 2, "refused": {"full": 0, "zone_limit": 7}},
//!      "zones": [{"zone": 5, "limit": 3, "counts":
//!        {"connections": 3, "created": 5, "ended": 2, "refused": {"full": 0, "zone_limit": 7}}}]}}],
//!  "bridges": [{"name": "br0", "datapath_id": "0000aabbccddeeff", "ports": [{"name": "p0", "ofport": 1,
//!    "type": "system", "link": "up", "rx_packets": 1, "rx_bytes": 60, "tx_packets": 1, "tx_bytes": 60,
//!    "drops": {"rules": 3, "tx_down": 1}, "upcalls_waiting": 0, "error": null}]}],
//!  "sessions": [{"interface": "p0", "protocol": "bfd", "live": true, "forwarding": true}],
//!  "ineffective": [{"table": "Bridge", "row": "br0", "setting": "other_config:hwaddr", "message": "…"}],
//!  "unknown_keys": [{"table": "Port", "row": "p0", "column": "other_config", "key": "net_uuid", "rows": 3}]}
//! ```
//!
//! Member `connections` is null if nothing is tracked, or if the datapath does not count by zone. Its list has the
//! busiest zones: those with most connections, most created ones, most refused ones. A limit of null is none.
//!
//! Counters start with the daemon. A missing member or one of another type reads as zero, empty or unknown,
//! and unknown members are ignored, so versions of daemon and program may differ. Only a reply that is not an
//! object is an error.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::unknown_keys::UnknownKey;

/// The whole object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct StatusModel {
    /// Version of the daemon.
    pub(crate) version: String,
    /// Id of the daemon's process; `None` if unknown.
    pub(crate) pid: Option<u64>,
    /// Since the daemon's start; `None` if unknown.
    pub(crate) uptime_ms: Option<u64>,
    /// Longest turn of the main loop; `None` if unknown.
    pub(crate) longest_turn: Option<LongestTurn>,
    /// Confinement of the daemon's threads; `None` if unknown.
    pub(crate) confinement: Option<Confinement>,
    /// One for each type with bridges.
    pub(crate) datapaths: Vec<Datapath>,
    /// In display order.
    pub(crate) bridges: Vec<Bridge>,
    /// Sessions of link protocols.
    pub(crate) sessions: Vec<Session>,
    /// Settings that are refused, have no effect or another one.
    pub(crate) ineffective: Vec<Setting>,
    /// Keys that no setting has.
    pub(crate) unknown_keys: Vec<UnknownKey>,
}

/// `confinement`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Confinement {
    /// Confined parts: system calls, files, capabilities.
    pub(crate) parts: Vec<&'static str>,
    /// Refused system calls.
    pub(crate) refused: u64,
}

impl Confinement {
    fn from_json(value: &Value) -> Option<Confinement> {
        let parts = [("calls", "system calls"), ("files", "files"), ("capabilities", "capabilities")];
        let has = |(name, shown): (&str, &'static str)| (value[name] == true).then_some(shown);
        let parts = parts.into_iter().filter_map(has).collect();
        value.is_object().then(|| Confinement { parts, refused: number(value, "refused") })
    }
}

/// `main_loop.longest`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LongestTurn {
    /// Its time.
    pub(crate) us: u64,
    /// The part that took most of it.
    pub(crate) part: String,
    /// Time of that part.
    pub(crate) part_us: u64,
}

impl LongestTurn {
    fn from_json(value: &Value) -> Option<LongestTurn> {
        value.is_object().then(|| LongestTurn {
            us: number(value, "us"),
            part: text(value, "part"),
            part_us: number(value, "part_us"),
        })
    }
}

/// An element of `sessions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Session {
    /// Name of the interface.
    pub(crate) interface: String,
    /// The protocol, as its log module is named.
    pub(crate) protocol: String,
    /// Whether the session holds its interface for live.
    pub(crate) live: bool,
    /// Whether it lets its interface forward.
    pub(crate) forwarding: bool,
}

impl Session {
    fn from_json(value: &Value) -> Session {
        let is = |name: &str| value[name].as_bool().unwrap_or(false);
        Session {
            interface: text(value, "interface"),
            protocol: text(value, "protocol"),
            live: is("live"),
            forwarding: is("forwarding"),
        }
    }
}

/// An element of `ineffective`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Setting {
    /// The row's table.
    pub(crate) table: String,
    /// The row's name; empty for the row of `Open_vSwitch`.
    pub(crate) row: String,
    /// Column, or column and key.
    pub(crate) setting: String,
    /// The reason and the consequence.
    pub(crate) message: String,
}

impl Setting {
    fn from_json(value: &Value) -> Setting {
        Setting {
            table: text(value, "table"),
            row: text(value, "row"),
            setting: text(value, "setting"),
            message: text(value, "message"),
        }
    }

    /// One line; the row of `Open_vSwitch` is `.`, as in `sluice vsctl`.
    pub(crate) fn line(&self) -> String {
        let row = if self.row.is_empty() { "." } else { &self.row };
        format!("{} {row} {}: {}\n", self.table, self.setting, self.message)
    }
}

/// An element of `datapaths`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Datapath {
    /// Its name in `dpif/show`.
    pub(crate) name: String,
    /// Megaflows installed now.
    pub(crate) flows: u64,
    /// Different masks among them.
    pub(crate) masks: u64,
    /// Packets that a megaflow or a cache entry handled.
    pub(crate) hits: u64,
    /// Packets that no megaflow matched.
    pub(crate) misses: u64,
    /// Misses that could not be passed on and were dropped.
    pub(crate) lost: u64,
    /// Its forwarding threads.
    pub(crate) threads: Vec<Thread>,
    /// Packets that it could not handle alone.
    pub(crate) upcalls: Upcalls,
    /// Tracked connections; `None` if unknown.
    pub(crate) connections: Option<Connections>,
}

/// `datapaths[].connections`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Connections {
    /// Maximum number.
    pub(crate) maximum: u64,
    /// Sum of all zones.
    pub(crate) all: Counts,
    /// Number of zones that had a connection or a refusal.
    pub(crate) zones_used: u64,
    /// The busiest of them, in order of their numbers.
    pub(crate) zones: Vec<Zone>,
}

/// An element of `datapaths[].connections.zones`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Zone {
    /// Its number.
    pub(crate) zone: u64,
    /// Maximum number of connections; `None` is no limit.
    pub(crate) limit: Option<u64>,
    /// Counts of the zone.
    pub(crate) counts: Counts,
}

/// Connections of a zone, or of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Connections now.
    pub(crate) connections: u64,
    /// Connections created.
    pub(crate) created: u64,
    /// Connections ended.
    pub(crate) ended: u64,
    /// Connections refused, by reason, each once.
    pub(crate) refused: BTreeMap<String, u64>,
}

/// An element of `datapaths[].threads`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Thread {
    /// A name for people.
    pub(crate) id: String,
    /// Packets received from its queues.
    pub(crate) received: u64,
    /// Packets found in its cache.
    pub(crate) cache_hits: u64,
    /// Packets found in its megaflow table.
    pub(crate) megaflow_hits: u64,
    /// Subtables visited for those.
    pub(crate) subtable_lookups: u64,
    /// Packets passed to the slow path.
    pub(crate) upcalls: u64,
    /// Dropped upcalls.
    pub(crate) upcalls_lost: u64,
    /// Processor cycles in passes that found packets.
    pub(crate) busy_cycles: u64,
    /// Processor cycles in passes that found none.
    pub(crate) idle_cycles: u64,
    /// Passes of packets that came back to it.
    pub(crate) recirculated: u64,
    /// Packets sent.
    pub(crate) sent_packets: u64,
    /// Calls that sent them.
    pub(crate) sent_batches: u64,
}

/// `datapaths[].upcalls`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Upcalls {
    /// Handled because no megaflow matched.
    pub(crate) misses: u64,
    /// Rejected: a port's queue or budget was full.
    pub(crate) refused: u64,
    /// Megaflows that the slow path keeps now.
    pub(crate) installed: u64,
    /// Maximum number of megaflows.
    pub(crate) flow_limit: u64,
    /// Misses answered.
    pub(crate) answers: u64,
    /// Total waiting time of those.
    pub(crate) answers_us: u64,
    /// Duration of the last dump of all megaflows.
    pub(crate) dump_duration_ms: u64,
}

/// An element of `bridges`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bridge {
    /// Its name.
    pub(crate) name: String,
    /// 16 hexadecimal digits.
    pub(crate) datapath_id: String,
    /// In display order.
    pub(crate) ports: Vec<Port>,
}

/// An element of `bridges[].ports`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Port {
    /// Name of the interface.
    pub(crate) name: String,
    /// OpenFlow port number; `None` if not assigned (yet).
    pub(crate) ofport: Option<u64>,
    /// Member `type`: of the interface.
    pub(crate) kind: String,
    /// `up` or `down`.
    pub(crate) link: String,
    /// Received packets.
    pub(crate) rx_packets: u64,
    /// Received bytes.
    pub(crate) rx_bytes: u64,
    /// Sent packets.
    pub(crate) tx_packets: u64,
    /// Sent bytes.
    pub(crate) tx_bytes: u64,
    /// Dropped packets: received by it, lost before that, or to be sent by it; by reason, each once.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Packets from it that wait for the slow path now.
    pub(crate) upcalls_waiting: u64,
    /// Reason why the port does not work.
    pub(crate) error: Option<String>,
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or(0)
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or("").to_string()
}

fn list<T>(value: &Value, name: &str, read: fn(&Value) -> T) -> Vec<T> {
    value[name].as_array().map(|items| items.iter().map(read).collect()).unwrap_or_default()
}

/// Non-negative numbers by name.
fn by_reason(value: &Value, name: &str) -> BTreeMap<String, u64> {
    let members = value[name].as_object().into_iter().flatten();
    members.filter_map(|(why, n)| Some((why.clone(), n.as_u64()?))).collect()
}

impl StatusModel {
    /// Reads the daemon's answer.
    pub(crate) fn from_json(value: &Value) -> Result<StatusModel, String> {
        if !value.is_object() {
            return Err("the daemon's answer to sluice/status is not a JSON object".into());
        }
        Ok(StatusModel {
            version: text(value, "version"),
            pid: value["pid"].as_u64(),
            uptime_ms: value["uptime_ms"].as_u64(),
            longest_turn: LongestTurn::from_json(&value["main_loop"]["longest"]),
            confinement: Confinement::from_json(&value["confinement"]),
            datapaths: list(value, "datapaths", Datapath::from_json),
            bridges: list(value, "bridges", Bridge::from_json),
            sessions: list(value, "sessions", Session::from_json),
            ineffective: list(value, "ineffective", Setting::from_json),
            unknown_keys: list(value, "unknown_keys", UnknownKey::from_json),
        })
    }
}

impl Datapath {
    fn from_json(value: &Value) -> Datapath {
        Datapath {
            name: text(value, "name"),
            flows: number(value, "flows"),
            masks: number(value, "masks"),
            hits: number(value, "hits"),
            misses: number(value, "misses"),
            lost: number(value, "lost"),
            threads: list(value, "threads", Thread::from_json),
            upcalls: Upcalls::from_json(&value["upcalls"]),
            connections: Connections::from_json(&value["connections"]),
        }
    }
}

impl Connections {
    fn from_json(value: &Value) -> Option<Connections> {
        value.is_object().then(|| Connections {
            maximum: number(value, "maximum"),
            all: Counts::from_json(&value["all"]),
            zones_used: number(value, "zones_used"),
            zones: list(value, "zones", Zone::from_json),
        })
    }
}

impl Zone {
    fn from_json(value: &Value) -> Zone {
        Zone {
            zone: number(value, "zone"),
            limit: value["limit"].as_u64(),
            counts: Counts::from_json(&value["counts"]),
        }
    }
}

impl Counts {
    fn from_json(value: &Value) -> Counts {
        Counts {
            connections: number(value, "connections"),
            created: number(value, "created"),
            ended: number(value, "ended"),
            refused: by_reason(value, "refused"),
        }
    }

    /// Connections refused for any reason.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.values().fold(0, |sum: u64, n| sum.saturating_add(*n))
    }
}

impl Thread {
    fn from_json(value: &Value) -> Thread {
        Thread {
            id: text(value, "id"),
            received: number(value, "received"),
            cache_hits: number(value, "cache_hits"),
            megaflow_hits: number(value, "megaflow_hits"),
            subtable_lookups: number(value, "subtable_lookups"),
            upcalls: number(value, "upcalls"),
            upcalls_lost: number(value, "upcalls_lost"),
            busy_cycles: number(value, "busy_cycles"),
            idle_cycles: number(value, "idle_cycles"),
            recirculated: number(value, "recirculated"),
            sent_packets: number(value, "sent_packets"),
            sent_batches: number(value, "sent_batches"),
        }
    }
}

impl Upcalls {
    fn from_json(value: &Value) -> Upcalls {
        Upcalls {
            misses: number(value, "misses"),
            refused: number(value, "refused"),
            installed: number(value, "installed"),
            flow_limit: number(value, "flow_limit"),
            answers: number(value, "answers"),
            answers_us: number(value, "answers_us"),
            dump_duration_ms: number(value, "dump_duration_ms"),
        }
    }
}

impl Bridge {
    fn from_json(value: &Value) -> Bridge {
        Bridge {
            name: text(value, "name"),
            datapath_id: text(value, "datapath_id"),
            ports: list(value, "ports", Port::from_json),
        }
    }
}

impl Port {
    fn from_json(value: &Value) -> Port {
        Port {
            name: text(value, "name"),
            ofport: value["ofport"].as_u64(),
            kind: text(value, "type"),
            link: text(value, "link"),
            rx_packets: number(value, "rx_packets"),
            rx_bytes: number(value, "rx_bytes"),
            tx_packets: number(value, "tx_packets"),
            tx_bytes: number(value, "tx_bytes"),
            drops: by_reason(value, "drops"),
            upcalls_waiting: number(value, "upcalls_waiting"),
            error: value["error"].as_str().map(str::to_string),
        }
    }
}
