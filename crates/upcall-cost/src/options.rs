//! The command line, with the option names of OVS's own script.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;
use regex_lite::Regex;

use crate::plot::Kind;

/// Longest `--duration`.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// Maximum histogram buckets.
const BUCKETS_MAX: u64 = 1000;

/// Source of events of a live switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum From {
    /// By eBPF, or, if not permitted, from the daemon's event ring
    Auto,
    /// By eBPF at the probes of the switch: needs root, works with a stock switch that has probes
    Bpf,
    /// The daemon's own event ring: userspace datapath, needs only access to its socket
    Ring,
}

/// Measure the cost of first packets of flows, stage by stage through the slow path.
///
/// Traces a running switch until interrupted (or --duration, --stop), or reads a recording.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Buckets of each histogram
    #[arg(short = 'b', long, value_name = "BUCKETS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=BUCKETS_MAX))]
    pub histogram_buckets: u64,
    /// Pages (4 KiB) of the buffer between the switch and the tracer
    #[arg(long, value_name = "NUMBER", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 18))]
    pub buffer_page_count: u64,
    /// Print debug messages, and unmatched upcalls with reasons
    #[arg(short = 'D', long)]
    pub debug: bool,
    /// Bytes of each flow key to capture
    #[arg(short = 'f', long, value_name = "0-2048", default_value_t = 64, value_parser = clap::value_parser!(u64).range(0..=2048))]
    pub flow_key_size: u64,
    /// Only events of these handler threads: names or patterns, separated by commas
    #[arg(long, value_name = "HANDLERS")]
    pub handler_filter: Option<String>,
    /// Bytes of each packet to capture
    #[arg(short = 'P', long, value_name = "64-2048", default_value_t = 256, value_parser = clap::value_parser!(u64).range(64..=2048))]
    pub packet_size: u64,
    /// Process id of the switch, if several run
    #[arg(short = 'p', long, value_name = "PID")]
    pub pid: Option<u32>,
    /// Do not list events as they come
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// Read a recording instead of tracing a switch
    #[arg(short = 'r', long, value_name = "FILE", conflicts_with_all = ["write_events", "pid", "source", "duration"])]
    pub read_events: Option<PathBuf>,
    /// List the matched sets of events
    #[arg(long)]
    pub sets: bool,
    /// Stop after this many events
    #[arg(short = 's', long, value_name = "EVENTS", default_value_t = 0)]
    pub stop: u64,
    /// Record events in FILE, to be read by --read-events, also elsewhere
    #[arg(short = 'w', long, value_name = "FILE")]
    pub write_events: Option<PathBuf>,
    /// Duration of the trace, such as 500ms or 10s
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Source of the events
    #[arg(long, value_enum, default_value_t = From::Auto)]
    pub source: From,
    /// Compare recordings; ratios are to the first (to that of --read-events, if given)
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["write_events", "pid", "source", "duration"])]
    pub compare: Vec<PathBuf>,
    /// List this many of the slowest upcalls
    #[arg(long, value_name = "NUMBER", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub outliers: u64,
    /// Print a summary of a dozen lines
    #[arg(long, conflicts_with_all = ["json", "compare", "sets"])]
    pub summary: bool,
    /// Print JSON, with all ports and threads, in nanoseconds
    #[arg(long, conflicts_with = "sets")]
    pub json: bool,
    /// Write the matched upcalls to FILE, one per line, in nanoseconds
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw box plots into FILE (.svg or .png)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text}: not a time such as 500ms or 10s, at most a day");
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let seconds: f64 = number.parse().map_err(|_| bad())?;
    let duration = Duration::try_from_secs_f64(seconds * unit_s).map_err(|_| bad())?;
    if duration.is_zero() || duration > DURATION_MAX { Err(bad()) } else { Ok(duration) }
}

/// Selects handler threads.
pub struct Handlers(Option<Regex>);

impl Handlers {
    /// From `--handler-filter`: names or regular expressions of whole names, separated by commas.
    ///
    /// # Errors
    ///
    /// It is not a regular expression.
    pub fn new(filter: Option<&str>) -> Result<Handlers> {
        let Some(filter) = filter else { return Ok(Handlers(None)) };
        let names: Vec<&str> = filter.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        if names.is_empty() {
            bail!("--handler-filter: no name is given");
        }
        let whole = format!("^(?:{})$", names.join("|"));
        match Regex::new(&whole) {
            Ok(regex) => Ok(Handlers(Some(regex))),
            Err(error) => bail!("--handler-filter: {filter}: not a pattern: {error}"),
        }
    }

    /// Whether this thread is selected.
    pub fn count(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|regex| regex.is_match(name))
    }
}

impl Options {
    /// Checks beyond the command line parser's, before any work.
    ///
    /// # Errors
    ///
    /// An invalid value.
    pub fn check(&self) -> Result<()> {
        Handlers::new(self.handler_filter.as_deref())?;
        if let Some(plot) = &self.plot {
            Kind::of(plot)?;
        }
        Ok(())
    }
}
