//! `bench`: Sluice beside other switches on this machine, by paired measurements: all sides stand at the same time and are
//! asked in turn, round by round; medians, spreads and ratios are printed and written down.
//!
//! What is timed is checked: every frame is compared byte for byte on arrival, counted once, and what did not arrive is
//! explained by the counters on its way. A failed check fails the program.
//!
//! Everything stands in namespaces of its own. A guard, a second process of this program, takes them down if this
//! one is ended in whatever way (`Ctrl-C`, `kill -9`).
#![forbid(unsafe_code)]

mod frames;
mod ledger;
mod report;
mod rows;
mod sides;
#[cfg(test)]
mod tests;
mod traffic;

use anyhow::{Context, Result, bail};
use clap::Parser;
use report::Row;
use rows::{Effort, Runs};
use serde_json::json;
use sides::{Instance, Side, find_sluiced};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Measure Sluice beside Open vSwitch's userspace datapath and the Linux bridge (root).
#[derive(Parser, Debug)]
#[command(name = "bench")]
struct Options {
    /// As short as can be: shows that everything works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Rounds in which all sides are asked
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Numbers of flows of the rate row
    #[arg(long, value_delimiter = ',', default_values_t = [1, 1000], value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    flows: Vec<u64>,
    /// Only these rows: udp, tcp, delay, idle
    #[arg(long, value_delimiter = ',', value_parser = ["udp", "tcp", "delay", "idle"])]
    only: Vec<String>,
    /// Only these peers beside Sluice: ovs, bridge
    #[arg(long, value_delimiter = ',', value_parser = ["ovs", "bridge"], default_values = ["ovs", "bridge"])]
    peers: Vec<String>,
    /// Write all results to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write every measurement to FILE as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// The daemon to measure (default: in SLUICE_BIN_DIR, or beside this program)
    #[arg(long, value_name = "FILE")]
    sluiced: Option<PathBuf>,
    /// Another build of the daemon, as one more side: for before and after in one run
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// Take down what process PID leaves when it ends
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

    fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == row)
    }
}

/// The guard's part: waits until the pipe from `pid` closes and the process is gone, then removes what is left of it.
fn guard(pid: u32) -> Result<()> {
    let _ended_either_way = std::io::stdin().read_to_end(&mut Vec::new());
    let path = format!("/proc/{pid}");
    testkit::wait_for(Duration::from_secs(20), "the end of the measurement", || !Path::new(&path).exists())?;
    // The first namespace and the first folder that a process makes sweep up after dead ones.
    let _swept = (testkit::TempDir::new("sweep")?, testkit::Netns::new("sweep")?);
    Ok(())
}

/// Starts the guard, in a process group of its own so that `Ctrl-C` spares it.
fn start_guard() -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--guard", &std::process::id().to_string()]).stdin(Stdio::piped()).process_group(0);
    command.spawn().context("cannot start the guard")
}

/// The sides that can be had; who is missing is said.
fn start_sides(options: &Options, cpu: usize) -> Result<Vec<Instance>> {
    let sluiced = find_sluiced(options.sluiced.clone())?;
    let before = options.before.as_deref().map(sides::absolute).transpose()?;
    let mut instances = Vec::new();
    for side in Side::ALL {
        let wanted = match side {
            Side::Sluice => true,
            Side::Before => before.is_some(),
            Side::Ovs => options.peers.iter().any(|p| p == "ovs"),
            Side::Bridge => options.peers.iter().any(|p| p == "bridge"),
        };
        if !wanted {
            continue;
        }
        let programs: &[&str] = match side {
            Side::Sluice => &["taskset", "ovs-vsctl", "ovs-ofctl"],
            Side::Before => &[],
            Side::Ovs => &["ovs-vswitchd", "ovsdb-server", "ovsdb-tool"],
            Side::Bridge => &[],
        };
        if !testkit::programs_or_skip(side.name(), programs) {
            if side == Side::Sluice {
                bail!("without those nothing can be measured: scripts/setup.sh check installs them");
            }
            continue;
        }
        let program = before.as_ref().filter(|_| side == Side::Before).unwrap_or(&sluiced);
        match Instance::start(side, program, cpu) {
            Ok(instance) => instances.push(instance),
            Err(e) if side == Side::Sluice => return Err(e),
            Err(e) => eprintln!("SKIP: {}: {e:#}", side.name()),
        }
    }
    Ok(instances)
}

/// Does `work` on a thread of its own, bound to a processor: programs that this one starts elsewhere are not.
fn pinned<T: Send>(cpu: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let bound = || {
        sys::thread::pin_thread(cpu)?;
        work()
    };
    std::thread::scope(|scope| scope.spawn(bound).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Measures; prints each row as it is done.
fn measure(options: &Options, instances: &[Instance], generator: usize) -> Result<Vec<Row>> {
    let effort = options.effort();
    let mut runs = Runs::default();
    let mut rows = Vec::new();
    let mut done = |new: Vec<Row>| {
        new.iter().for_each(|row| println!("{}", row.text()));
        rows.extend(new);
    };
    if options.wants("udp") {
        for flows in &options.flows {
            done(pinned(generator, || rows::udp_rate(instances, *flows, effort, &mut runs))?);
        }
    }
    if options.wants("delay") {
        done(pinned(generator, || rows::delay(instances, effort, &mut runs))?);
    }
    if options.wants("tcp") && testkit::programs_or_skip("the row of TCP", &["iperf3"]) {
        done(vec![rows::tcp(instances, effort)?]);
    }
    if options.wants("idle") {
        done(vec![rows::idle(instances, effort)]);
    }
    Ok(rows)
}

/// Who ran where, for the reader and the record.
fn circumstances(options: &Options, cpus: (usize, usize)) -> serde_json::Value {
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

fn write_results(options: &Options, about: &serde_json::Value, rows: &[Row]) -> Result<()> {
    let write = |path: &PathBuf, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    if let Some(path) = &options.json {
        let all = json!({ "about": about, "rows": rows.iter().map(Row::json).collect::<Vec<_>>() });
        write(path, format!("{all:#}\n"))?;
    }
    if let Some(path) = &options.csv {
        let lines: String = rows.iter().map(Row::csv).collect();
        write(path, format!("row,unit,side,round,value,sent,received,lost_in_switch\n{lines}"))?;
    }
    Ok(())
}

fn run(options: &Options) -> Result<()> {
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
    let about = circumstances(options, (generator, switch));
    println!(
        "kernel {}, {}; generator and sink (and with them the kernel's part of their frames) on processor {generator}, \
         daemons on {switch}, iperf3 anywhere; load {}; {} round(s) of {} s, in turn\n",
        about["kernel"],
        about["processor"],
        about["load_average_at_start"],
        about["rounds"],
        about["seconds"]
    );
    let instances = start_sides(options, switch)?;
    let rows = measure(options, &instances, generator)?;
    write_results(options, &about, &rows)?;
    let complaints: Vec<String> = rows.iter().flat_map(Row::complaints).collect();
    if !complaints.is_empty() {
        bail!("checks failed:\n  {}", complaints.join("\n  "));
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.guard {
        Some(pid) => guard(pid),
        None => start_guard().and_then(|_guard| run(&options)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("bench: {e:#}");
            ExitCode::FAILURE
        }
    }
}
