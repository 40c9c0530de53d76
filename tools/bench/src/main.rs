//! `bench`: Sluice beside other switches on this machine, by paired measurements: all sides exist at the same
//! time and are measured in turn, round by round. Prints and saves medians, spreads and ratios.
//!
//! Every measurement is verified: between hosts, every frame is compared byte by byte on arrival and counted
//! once, and the counters on its path explain missing ones; without a network, the counters of both ends of
//! the datapath are compared. A failed check makes the program fail.
//!
//! Everything is in separate namespaces. A guard, a second process of this program, removes them if this one
//! ends in any way (`Ctrl-C`, `kill -9`), and returns reserved memory.
#![forbid(unsafe_code)]

mod daemons;
mod frames;
mod goals;
mod guard;
mod hugepages;
mod lab;
mod ledger;
mod measure;
mod overlay;
mod plots;
mod pmdstats;
mod report;
mod rows;
mod sides;
#[cfg(test)]
mod tests;
mod traffic;
mod tunnels;
mod works;

use anyhow::{Context, Result, bail};
use clap::Parser;
use goals::Verdict;
use guard::Guard;
use report::Row;
use rows::Effort;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measure Sluice beside Open vSwitch's userspace datapath, the same with DPDK, and the Linux bridge (root).
#[derive(Parser, Debug)]
#[command(name = "bench")]
struct Options {
    /// As short as possible: verifies that everything works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Number of rounds
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Numbers of flows of the rate rows between hosts
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1000, 100_000], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    flows: Vec<u64>,
    /// Only these rows: pcap, setup, pipeline, ct, tunnel, rules, ovn, first, lookups, udp, afxdp, delay, tcp, udp1400, bond, idle, restart, ablation
    #[arg(long, value_delimiter = ',', value_parser = measure::THEMES)]
    only: Vec<String>,
    /// Only these peers beside Sluice: dpdk, ovs, bridge
    #[arg(long, value_delimiter = ',', value_parser = measure::PEERS, default_values = measure::PEERS)]
    peers: Vec<String>,
    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every measurement to FILE as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the results: PREFIX-rows.svg and PREFIX-batch.svg
    #[arg(long, value_name = "PREFIX")]
    plots: Option<PathBuf>,
    /// The daemon to measure (default: in SLUICE_BIN_DIR, or beside this program)
    #[arg(long, value_name = "FILE")]
    sluiced: Option<PathBuf>,
    /// Another build of the daemon, as one more side: for before and after in one run
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Clean up after process PID when it ends
    #[arg(long, value_name = "PID", hide = true)]
    guard: Option<u32>,
}

impl Options {
    fn effort(&self) -> Effort {
        if self.quick {
            let (time, warm_up) = (Duration::from_millis(200), Duration::from_millis(50));
            return Effort { rounds: 1, time, warm_up };
        }
        let time = Duration::from_secs(self.seconds.into());
        Effort { rounds: self.rounds as usize, time, warm_up: Duration::from_millis(500) }
    }

    fn wants(&self, theme: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == theme)
    }

    fn peer(&self, peer: &str) -> bool {
        self.peers.iter().any(|p| p == peer)
    }
}

/// Placement of processes, for the reader and the record.
fn placement(options: &Options, cpus: (usize, usize)) -> serde_json::Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_string();
    let cpu_info = read("/proc/cpuinfo");
    let model = cpu_info.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let effort = options.effort();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "processor": model.trim_start_matches([' ', '\t', ':']),
        "processors": sys::thread::online_cpus(),
        "generator_and_sink_on": cpus.0,
        "daemons_on": cpus.1,
        "load_average_at_start": read("/proc/loadavg"),
        "unix_time_s": sys::clock::wall_ms() / 1000,
        "rounds": effort.rounds,
        "seconds": effort.time.as_secs_f64(),
        "quick": options.quick,
    })
}

fn write_results(
    options: &Options,
    about: &serde_json::Value,
    rows: &[Row],
    verdicts: &[Verdict],
) -> Result<()> {
    let write = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &options.json {
        let rows: Vec<_> = rows.iter().map(Row::json).collect();
        let verdicts: Vec<_> = verdicts.iter().map(Verdict::json).collect();
        let all = json!({ "about": about, "rows": rows, "table": verdicts });
        write(path, format!("{all:#}\n"))?;
    }
    if let Some(path) = &options.csv {
        let lines: String = rows.iter().map(Row::csv).collect();
        write(path, format!("row,unit,side,round,value,sent,received,lost_in_switch\n{lines}"))?;
    }
    if let Some(prefix) = &options.plots {
        let named = |suffix: &str| {
            let mut name = prefix.clone().into_os_string();
            name.push(suffix);
            PathBuf::from(name)
        };
        write(&named("-rows.svg"), plots::bars(rows))?;
        if let Some(picture) = rows.iter().find_map(plots::over_batches) {
            write(&named("-batch.svg"), picture)?;
        }
    }
    Ok(())
}

fn run(options: &Options, guard: &Guard) -> Result<()> {
    if let Some(why) = testkit::netns_reason() {
        bail!("no network namespaces: {why}");
    }
    let allowed = sys::thread::allowed_cpus()?;
    let (generator, switch) = match allowed[..] {
        [first, second, ..] => (first, second),
        [only] => {
            eprintln!("bench: one processor for generator and switch: rates say little");
            (only, only)
        }
        [] => bail!("no processor is allowed to this process"),
    };
    let about = placement(options, (generator, switch));
    println!(
        "kernel {}, {}; generator and sink (and with them the kernel's part of their frames) on processor {generator}, \
         daemons on {switch} (without a network: only their forwarding threads), iperf3 anywhere; load {}; {} round(s) of {} s, \
         in turn\n",
        about["kernel"],
        about["processor"],
        about["load_average_at_start"],
        about["rounds"],
        about["seconds"]
    );
    let (rows, mut failures) = measure::all(options, guard, measure::Cpus { generator, switch })?;
    let verdicts = goals::verdicts(&rows);
    println!("{}", goals::head());
    verdicts.iter().for_each(|v| println!("{}", v.text()));
    write_results(options, &about, &rows, &verdicts)?;
    failures.extend(rows.iter().flat_map(Row::faults));
    if !failures.is_empty() {
        bail!("failed:\n  {}", failures.join("\n  "));
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.guard {
        Some(pid) => guard::keep_guard(pid),
        None => Guard::start().and_then(|guard| run(&options, &guard)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}
