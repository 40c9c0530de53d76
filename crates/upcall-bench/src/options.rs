//! The command line, and the resulting plan.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::devices::process_tag;

/// Maximum ports: their numbers are two bytes of addresses, and device names are short.
const PORTS_MAX: u16 = 9999;
/// A Linux bridge has at most 1024 ports; packets leave by one.
const LINUX_BRIDGE_PORTS_MAX: u16 = 1023;

/// The measured switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// The daemon in the run directory, whichever it is
    Auto,
    /// A Sluice daemon
    Sluice,
    /// An ovs-vswitchd
    Ovs,
    /// A Linux bridge, which has no slow path: the floor
    Bridge,
}

/// One of the four tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Probes by one port
    One,
    /// Probes by every port in turn
    All,
    /// Load by all ports, probes by one of them
    Load,
    /// Load on all ports but one, probes on that one
    Idle,
}

/// `sluice upcall-bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Switch to measure
    #[arg(long, value_enum, default_value = "auto")]
    pub target: Target,
    /// Name of this run in tables (default: the target)
    #[arg(long)]
    pub name: Option<String>,
    /// The daemon's run directory (default: $OVS_RUNDIR, or /var/run/openvswitch)
    #[arg(long, value_name = "DIR")]
    pub rundir: Option<PathBuf>,
    /// The database (default: unix:DIR/db.sock)
    #[arg(long, value_name = "REMOTE")]
    pub db: Option<String>,
    /// Name of the bridge to create (default: br-ub and a tag of this process)
    #[arg(long, value_name = "NAME")]
    pub bridge: Option<String>,
    /// datapath_type of the bridge
    #[arg(long, value_name = "TYPE", default_value = "netdev")]
    pub datapath_type: String,
    /// Run only these tests
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["one", "all", "load", "idle"])]
    pub tests: Vec<Test>,
    /// A short run: 8 ports, few packets, little load; verifies that everything works
    #[arg(long)]
    pub quick: bool,
    /// Ports of the bridge [default: 2223; quick: 8]
    #[arg(long, value_parser = clap::value_parser!(u16).range(2..=i64::from(PORTS_MAX)))]
    pub ports: Option<u16>,
    /// Packets of test one [default: 100000; quick: 500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub packets: Option<u32>,
    /// Packets per port in test all [default: 1000; quick: 100]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub port_packets: Option<u32>,
    /// Probes under load, and before it in test idle [default: 10000; quick: 500]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub load_packets: Option<u32>,
    /// Time between two probes, such as 1ms or 200us
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_interval)]
    pub interval: Duration,
    /// Load in packets per second, over all ports, or max [default: 200000; quick: 20000]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub load_rate: Option<Rate>,
    /// Measure one installed flow whose packets also go to the slow path, instead of a new flow per packet
    #[arg(long)]
    pub user_actions: bool,
    /// Run on this processor only
    #[arg(long, value_name = "NUMBER")]
    pub cpu: Option<usize>,
    /// Also show the run saved in FILE; repeatable
    #[arg(long, value_name = "FILE")]
    pub compare: Vec<PathBuf>,
    /// Save the results to FILE; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw the results to FILE (SVG)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Remove the bridge after the end of the parent process
    #[arg(long, hide = true)]
    pub guard: bool,
}

/// A rate of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As many as can be sent.
    Max,
    /// Packets a second.
    PerS(u64),
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    match text.parse() {
        Ok(rate @ 1..=100_000_000) => Ok(Rate::PerS(rate)),
        _ if text == "max" => Ok(Rate::Max),
        _ => Err(format!("{text}: not a number of packets a second from 1 to 100000000, nor max")),
    }
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1_u64), ("us", 1000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let parsed = units.into_iter().find_map(|(unit, ns)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(ns)
    });
    match parsed {
        Some(ns @ 1000..=10_000_000_000) => Ok(Duration::from_nanos(ns)),
        _ => Err(format!("{text}: not a whole number of us, ms or s, from 1us to 10s")),
    }
}

/// Plan of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The bridge to make.
    pub bridge: String,
    /// Ports.
    pub ports: u16,
    /// Probes of test one.
    pub packets: u32,
    /// Probes by each port of test all.
    pub port_packets: u32,
    /// Probes under load.
    pub load_packets: u32,
    /// Between two probes.
    pub interval_ns: u64,
    /// Load; none: as much as can be sent.
    pub load_rate: Option<u64>,
}

impl Options {
    /// The resulting plan.
    ///
    /// # Errors
    /// If the options contradict each other.
    pub fn plan(&self) -> Result<Plan> {
        let or = |given: Option<u32>, full, quick| given.unwrap_or(if self.quick { quick } else { full });
        let bridge = self.bridge.clone().unwrap_or_else(|| format!("br-{}", process_tag()));
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        ensure!(
            (1..=15).contains(&bridge.len()) && bridge.chars().all(good) && !bridge.starts_with(['.', '-']),
            "--bridge {bridge}: names of devices have 1 to 15 letters, digits, \"-\", \"_\" or \".\""
        );
        let linux = self.target == Target::Bridge;
        let full = if linux { LINUX_BRIDGE_PORTS_MAX } else { 2223 };
        let ports = self.ports.unwrap_or(if self.quick { 8 } else { full });
        ensure!(
            !linux || ports <= LINUX_BRIDGE_PORTS_MAX,
            "--ports {ports}: a Linux bridge takes {LINUX_BRIDGE_PORTS_MAX} and the one where packets leave it"
        );
        ensure!(!linux || !self.user_actions, "--user-actions: a Linux bridge has none");
        let rate = self.load_rate.unwrap_or(Rate::PerS(if self.quick { 20_000 } else { 200_000 }));
        Ok(Plan {
            bridge,
            ports,
            packets: or(self.packets, 100_000, 500),
            port_packets: or(self.port_packets, 1000, 100),
            load_packets: or(self.load_packets, 10_000, 500),
            interval_ns: self.interval.as_nanos() as u64,
            load_rate: match rate {
                Rate::Max => None,
                Rate::PerS(rate) => Some(rate),
            },
        })
    }

    /// Folder of the daemon's sockets.
    pub fn run_directory(&self) -> PathBuf {
        let from_env = || std::env::var_os("OVS_RUNDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
        self.rundir.clone().or_else(from_env).unwrap_or_else(|| "/var/run/openvswitch".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn plan(line: &str) -> Result<Plan> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words)?.options.plan()
    }

    #[test]
    fn defaults_presets_and_what_is_said() {
        let full = plan("").unwrap();
        assert_eq!(
            (full.ports, full.packets, full.port_packets, full.load_packets),
            (2223, 100_000, 1000, 10_000)
        );
        assert_eq!((full.interval_ns, full.load_rate), (1_000_000, Some(200_000)));
        assert!(full.bridge.starts_with("br-ub") && full.bridge.len() <= 15);
        let quick = plan("--quick --packets 9 --load-rate max --interval 200us --bridge b1").unwrap();
        assert_eq!((quick.ports, quick.packets, quick.port_packets, quick.load_rate), (8, 9, 100, None));
        assert_eq!((quick.interval_ns, quick.bridge.as_str()), (200_000, "b1"));
        assert_eq!(plan("--target bridge").unwrap().ports, 1023);
    }

    #[test]
    fn invalid_options_are_refused() {
        for bad in [
            "--ports 1",
            "--ports 65536",
            "--packets 0",
            "--interval 1",
            "--interval 0ms",
            "--interval 1ns",
            "--interval 99999999999999999999s",
            "--load-rate 0",
            "--load-rate fast",
            "--tests two",
            "--bridge a/b",
            "--bridge sixteen-letters-",
            "--target bridge --ports 1024",
            "--target bridge --user-actions",
        ] {
            assert!(plan(bad).is_err(), "{bad}");
        }
    }
}
