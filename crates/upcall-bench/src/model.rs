//! A run and its results as values, and as JSON, for `--json` and `--compare`. All times are in ns.

use serde_json::{Map, Value, json};

use crate::stats::{Summary, mean_and_deviation};

/// First key of our files.
const FORMAT: &str = "sluice upcall-bench";
/// The only version until now.
const VERSION: u64 = 1;
/// Maximum text size: ports of a full run take some hundred bytes each.
pub const TEXT_BYTES_MAX: usize = 64 << 20;

/// A value with a form in JSON.
pub trait Json: Sized {
    /// Its form.
    fn to_json(&self) -> Value;
    /// Converts back; `None` for another type. A missing field reads as `Null`.
    fn from_json(value: &Value) -> Option<Self>;
}

impl Json for u64 {
    fn to_json(&self) -> Value {
        json!(self)
    }
    fn from_json(value: &Value) -> Option<u64> {
        value.as_u64()
    }
}

impl Json for f64 {
    fn to_json(&self) -> Value {
        json!((self * 10.0).round() / 10.0)
    }
    fn from_json(value: &Value) -> Option<f64> {
        value.as_f64().filter(|v| v.is_finite() && v.abs() < 1e14)
    }
}

impl Json for bool {
    fn to_json(&self) -> Value {
        json!(self)
    }
    fn from_json(value: &Value) -> Option<bool> {
        value.as_bool()
    }
}

impl Json for String {
    fn to_json(&self) -> Value {
        json!(self)
    }
    fn from_json(value: &Value) -> Option<String> {
        value.as_str().map(str::to_owned)
    }
}

impl<T: Json> Json for Option<T> {
    fn to_json(&self) -> Value {
        self.as_ref().map_or(Value::Null, Json::to_json)
    }
    fn from_json(value: &Value) -> Option<Option<T>> {
        if value.is_null() { Some(None) } else { T::from_json(value).map(Some) }
    }
}

impl<T: Json> Json for Vec<T> {
    fn to_json(&self) -> Value {
        self.iter().map(Json::to_json).collect()
    }
    fn from_json(value: &Value) -> Option<Vec<T>> {
        value.as_array()?.iter().map(T::from_json).collect()
    }
}

/// Takes a field of an object; a missing one is `Null`.
pub(crate) fn field<T: Json>(object: &Map<String, Value>, name: &str) -> Option<T> {
    T::from_json(object.get(name).unwrap_or(&Value::Null))
}

/// A structure whose JSON form is an object with its fields.
macro_rules! record {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$note:meta])* pub $field:ident: $kind:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name { $($(#[$note])* pub $field: $kind,)* }

        impl $crate::model::Json for $name {
            fn to_json(&self) -> serde_json::Value {
                let mut object = serde_json::Map::new();
                $(object.insert(stringify!($field).into(), $crate::model::Json::to_json(&self.$field));)*
                serde_json::Value::Object(object)
            }
            fn from_json(value: &serde_json::Value) -> Option<Self> {
                let object = value.as_object()?;
                Some($name { $($field: $crate::model::field(object, stringify!($field))?,)* })
            }
        }
    };
}
pub(crate) use record;

record! {
    /// Results of the load during a measurement.
    pub struct LoadResults {
        /// Number of its ports.
        pub ports: u64,
        /// Packets sent.
        pub offered: u64,
        /// Packets rejected by the kernel.
        pub unsent: u64,
        /// Duration in s.
        pub seconds: f64,
        /// Packets of the load that left the switch, on all ports.
        pub delivered: u64,
        /// Packets sent by the port that was measured.
        pub port_offered: u64,
        /// Packets of these that left the switch.
        pub port_arrived: u64,
    }
}

record! {
    /// Probes by one port.
    pub struct Measurement {
        /// The port, from 0.
        pub port: u64,
        /// Probes sent.
        pub sent: u64,
        /// Probes rejected by the kernel.
        pub unsent: u64,
        /// Different probes that arrived.
        pub arrived: u64,
        /// Duplicate arrivals.
        pub duplicates: u64,
        /// Arrivals after a later one.
        pub reordered: u64,
        /// Foreign frames.
        pub foreign: u64,
        /// Arrived, but without a usable time stamp.
        pub unstamped: u64,
        /// Frames of this port dropped by the device before the switch, load among them.
        pub dropped_before_switch: u64,
        /// Frames dropped at this tool's own socket.
        pub dropped_by_tool: u64,
        /// Misses counted by the switch meanwhile (all its ports, lost ones included).
        pub misses: Option<u64>,
        /// The delays.
        pub delays: Summary,
        /// Load during the measurement.
        pub load: Option<LoadResults>,
    }
}

record! {
    /// One port in the test of all ports.
    pub struct PortRow {
        /// The port, from 0.
        pub port: u64,
        /// Probes sent.
        pub sent: u64,
        /// Probes that arrived.
        pub arrived: u64,
        /// Mean delay.
        pub avg_ns: f64,
        /// Median.
        pub p50_ns: f64,
        /// 99 of 100 are not greater.
        pub p99_ns: f64,
    }
}

record! {
    /// An idle port, without and with load on others.
    pub struct Idle {
        /// Without load.
        pub unloaded: Measurement,
        /// With load on all other ports; `None` if the run ended before.
        pub loaded: Option<Measurement>,
    }
}

record! {
    /// Resources of the daemon with all ports present.
    pub struct DaemonResources {
        /// Its process id.
        pub pid: u64,
        /// Open descriptors before the ports were created.
        pub descriptors_before: u64,
        /// Open descriptors.
        pub descriptors: u64,
        /// The sockets among them.
        pub sockets: u64,
        /// Threads.
        pub threads: u64,
    }
}

record! {
    /// Settings of the measurement.
    pub struct Settings {
        /// Ports of the bridge.
        pub ports: u64,
        /// The bridge's `datapath_type`; empty for a Linux bridge.
        pub datapath_type: String,
        /// Whether one installed flow was measured, instead of a new one per packet.
        pub user_actions: bool,
        /// Between two probes.
        pub interval_ns: u64,
        /// Load in packets a second; none: as much as could be sent.
        pub load_rate: Option<u64>,
    }
}

record! {
    /// A run with its results; tests not run are absent.
    pub struct Run {
        /// Its name in tables.
        pub name: String,
        /// `sluice`, `ovs` or `bridge`.
        pub target: String,
        /// The switch's version.
        pub version: String,
        /// Start time, s since 1970.
        pub when_s: u64,
        /// The kernel.
        pub kernel: String,
        /// Processors of the machine.
        pub processors: u64,
        /// Settings of the measurement.
        pub settings: Settings,
        /// The daemon, when its process is known.
        pub daemon: Option<DaemonResources>,
        /// Test 1.
        pub one: Option<Measurement>,
        /// Test 2.
        pub all: Option<Vec<PortRow>>,
        /// Test 3.
        pub load: Option<Measurement>,
        /// Test 4.
        pub idle: Option<Idle>,
        /// Notes for the reader: errors, omissions.
        pub notes: Vec<String>,
    }
}

/// The share of `whole` that did not arrive.
pub fn lost(whole: u64, arrived: u64) -> f64 {
    if whole == 0 { 0.0 } else { whole.saturating_sub(arrived) as f64 / whole as f64 }
}

impl Measurement {
    /// Share of the probes that did not arrive, from 0 to 1.
    pub fn loss(&self) -> f64 {
        lost(self.sent, self.arrived)
    }
}

/// The mean of one statistic of the ports, such as their means, and its deviation; excludes ports without
/// arrivals.
pub fn of_ports(rows: &[PortRow], statistic: fn(&PortRow) -> f64) -> (f64, f64) {
    mean_and_deviation(rows.iter().filter(|row| row.arrived > 0).map(statistic))
}

impl Run {
    /// The text of a file.
    pub fn to_text(&self) -> String {
        let mut object = Map::new();
        object.insert("format".into(), json!(FORMAT));
        object.insert("format_version".into(), json!(VERSION));
        if let Value::Object(fields) = self.to_json() {
            object.extend(fields);
        }
        format!("{:#}\n", Value::Object(object))
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// One line with the fault.
    pub fn from_text(text: &str) -> Result<Run, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("larger than {} MB", TEXT_BYTES_MAX >> 20));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
        if value["format"] != FORMAT {
            return Err("not written by upcall-bench --json".into());
        }
        if value["format_version"] != VERSION {
            let version = &value["format_version"];
            return Err(format!("of version {version}; this program reads version {VERSION}"));
        }
        Run::from_json(&value).ok_or_else(|| "fields are missing or of another kind".into())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with something in each field.
    pub(crate) fn sample(name: &str, scale: f64) -> Run {
        let delays = |scale: f64| Summary {
            count: 990,
            min_ns: 5000.0 * scale,
            avg_ns: 10_000.0 * scale,
            max_ns: 90_000.0 * scale,
            mdev_ns: 2000.0 * scale,
            p50_ns: 9500.0 * scale,
            p90_ns: 12_000.0 * scale,
            p99_ns: 20_000.0 * scale,
            p999_ns: 40_000.0 * scale,
        };
        let of = |scale: f64| Measurement {
            sent: 1000,
            arrived: 990,
            duplicates: 1,
            misses: Some(1000),
            delays: delays(scale),
            ..Measurement::default()
        };
        let load = LoadResults {
            ports: 20,
            offered: 100_000,
            unsent: 0,
            seconds: 2.0,
            delivered: 60_000,
            port_offered: 5000,
            port_arrived: 3000,
        };
        let row = |port: u64, avg: f64| PortRow {
            port,
            sent: 100,
            arrived: 100,
            avg_ns: avg * scale,
            p50_ns: avg * scale,
            p99_ns: avg * scale,
        };
        Run {
            name: name.into(),
            target: "sluice".into(),
            version: "0.1.0".into(),
            when_s: 1_700_000_000,
            kernel: "6.18".into(),
            processors: 2,
            settings: Settings {
                ports: 20,
                datapath_type: "netdev".into(),
                user_actions: false,
                interval_ns: 1_000_000,
                load_rate: Some(50_000),
            },
            daemon: Some(DaemonResources {
                pid: 7,
                descriptors_before: 30,
                descriptors: 52,
                sockets: 40,
                threads: 4,
            }),
            one: Some(of(scale)),
            all: Some(vec![row(0, 9000.0), row(1, 11_000.0)]),
            load: Some(Measurement { load: Some(load), ..of(scale * 3.0) }),
            idle: Some(Idle { unloaded: of(scale), loaded: Some(of(scale * 2.0)) }),
            notes: vec!["a note".into()],
        }
    }

    #[test]
    fn a_saved_run_is_read_back() {
        let run = sample("a \"name\"", 1.0);
        assert_eq!(Run::from_text(&run.to_text()).unwrap(), run);
        let empty = Run::default();
        assert_eq!(Run::from_text(&empty.to_text()).unwrap(), empty);
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let text = sample("a", 1.0).to_text();
        let cases = [
            ("", "no JSON"),
            ("{}", "not written by"),
            (&text[..text.len() / 2], "no JSON"),
            (&text.replace("\"format_version\": 1", "\"format_version\": 2"), "version 2"),
            (&text.replace("\"sent\": 1000", "\"sent\": -1"), "another kind"),
            (&text.replace("\"settings\"", "\"other\""), "missing"),
        ];
        for (text, reason) in cases {
            let error = Run::from_text(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn deviation_between_ports_by_hand() {
        let run = sample("a", 1.0);
        assert_eq!(of_ports(run.all.as_deref().unwrap(), |row| row.avg_ns), (10_000.0, 1000.0));
        assert_eq!((lost(0, 0), lost(100, 96), lost(1, 2)), (0.0, 0.04, 0.0));
    }

    #[test]
    fn corpus_of_saved_run() {
        testkit::replay_corpus(
            concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/saved_run"),
            crate::fuzz::saved_run,
        );
    }
}
