//! Rows of first packets: runs `sluice upcall-bench` against each switch, and reads its saved results.

use super::{Effort, in_turn};
use crate::daemons;
use crate::measure::Cpus;
use crate::report::{Row, Sample, SideSamples};
use crate::sides::Side;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Cmd, Daemon, Netns, TempDir};

/// Maximum time of a run.
const LIMIT: Duration = Duration::from_secs(300);
/// Flows of a test expire before the next one begins.
const IDLE_MS: u32 = 1000;

/// Size of one run.
struct Size {
    ports: u32,
    packets: u32,
    port_packets: u32,
    load_packets: u32,
    load_rate: u32,
}

const SIZE: Size =
    Size { ports: 20, packets: 2000, port_packets: 500, load_packets: 2000, load_rate: 100_000 };
const QUICK: Size = Size { ports: 4, packets: 50, port_packets: 5, load_packets: 50, load_rate: 1000 };

/// A result of a run, by row.
struct Metric {
    id: &'static str,
    title: &'static str,
    unit: &'static str,
    of: fn(&Value) -> Option<f64>,
}

fn number(run: &Value, path: &str) -> Option<f64> {
    run.pointer(path)?.as_f64()
}

/// Percent of `/whole` that `/part` lacks.
fn lost(of: Option<&Value>, whole: &str, part: &str) -> Option<f64> {
    let of = of?;
    let sent = of[whole].as_f64().filter(|n| *n > 0.0)?;
    Some(100.0 * (sent - of[part].as_f64()?).max(0.0) / sent)
}

/// Deviation of the ports' mean delays, in percent of their mean.
fn deviation(run: &Value) -> Option<f64> {
    let all: Option<Vec<f64>> = run["all"].as_array()?.iter().map(|p| p["avg_ns"].as_f64()).collect();
    let all = all.filter(|all| !all.is_empty())?;
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let square = all.iter().map(|a| (a - mean).powi(2)).sum::<f64>() / all.len() as f64;
    Some(100.0 * square.sqrt() / mean)
}

/// Loss of the probes minus that of their port's other packets under load, in percentage points.
fn excess_loss(run: &Value) -> Option<f64> {
    let measured = run.get("load")?;
    let load = lost(measured.get("load"), "port_offered", "port_arrived")?;
    Some((lost(Some(measured), "sent", "arrived")? - load).max(0.0))
}

const METRICS: [Metric; 5] = [
    Metric {
        id: "first-p50",
        title: "first packets, one a millisecond on one port: delay, p50",
        unit: "µs",
        of: |run| Some(number(run, "/one/delays/p50_ns")? / 1e3),
    },
    Metric {
        id: "first-deviation",
        title: "the same on every port in turn: deviation of the ports' means",
        unit: "% of the mean",
        of: deviation,
    },
    Metric {
        id: "first-loaded-lost",
        title: "first packets on a port among loaded ones: lost more than of that port's own load",
        unit: "% points",
        of: excess_loss,
    },
    Metric {
        id: "first-idle-lost",
        title: "first packets on an idle port, all others loaded: lost",
        unit: "%",
        of: |run| lost(run.pointer("/idle/loaded"), "sent", "arrived"),
    },
    Metric {
        id: "first-idle-p99",
        title: "the same: delay, p99, to that without load",
        unit: "times",
        of: |run| {
            let [loaded, alone] =
                ["loaded", "unloaded"].map(|n| number(run, &format!("/idle/{n}/delays/p99_ns")));
            Some(loaded? / alone.filter(|ns| *ns > 0.0)?)
        },
    },
];

/// Programs for these rows.
pub(crate) struct Programs<'a> {
    pub(crate) sluiced: &'a Path,
    pub(crate) before: Option<&'a Path>,
    pub(crate) cpus: Cpus,
}

impl Programs<'_> {
    /// The command line tool beside the daemon.
    fn sluice(&self) -> Result<PathBuf> {
        let path = self.sluiced.with_file_name("sluice");
        if !path.is_file() {
            bail!("{}: no such program; build it (cargo build --release -p sluice)", path.display());
        }
        Ok(path)
    }

    fn start(&self, side: Side, netns: &Netns) -> Result<Vec<Daemon>> {
        let cpu = Some(self.cpus.switch);
        Ok(match side {
            Side::Sluice => vec![daemons::start_sluice(netns, self.sluiced, &[], cpu, None)?],
            Side::Before => {
                vec![daemons::start_sluice(netns, self.before.context("no other build")?, &[], cpu, None)?]
            }
            Side::Ovs => daemons::start_stock(netns, daemons::stock(), &[], &[], cpu)?,
            _ => bail!("{}: not measured by its first packets", side.name()),
        })
    }

    /// Runs it against a separate switch; returns the saved results.
    fn measure(&self, side: Side, size: &Size, folder: &TempDir) -> Result<Value> {
        let netns = Netns::new("first")?;
        let daemons = self.start(side, &netns)?;
        let daemon = daemons.first().context("no daemon")?;
        daemon
            .ovs("ovs-vsctl", &["set", "Open_vSwitch", ".", &format!("other_config:max-idle={IDLE_MS}")])?;
        let json = folder.path().join("run.json");
        let words = format!(
            "upcall-bench --tests one,all,load,idle --ports {} --packets {} --port-packets {} --load-packets {} \
             --load-rate {} --cpu {} --rundir {} --json {}",
            size.ports,
            size.packets,
            size.port_packets,
            size.load_packets,
            size.load_rate,
            self.cpus.generator,
            daemon.rundir().path().display(),
            json.display()
        );
        Cmd::new(self.sluice()?).netns(&netns).args(words.split(' ')).limit(LIMIT).run()?;
        Ok(serde_json::from_slice(&std::fs::read(&json)?)?)
    }
}

/// The rows of these sides.
pub(crate) fn rows(sides: &[Side], programs: &Programs, effort: Effort, quick: bool) -> Result<Vec<Row>> {
    let folder = TempDir::new("first")?;
    let size = if quick { &QUICK } else { &SIZE };
    let mut runs: Vec<Vec<Value>> = sides.iter().map(|_| Vec::new()).collect();
    let mut sides = sides.to_vec();
    let (count, mut asked) = (sides.len(), 0);
    let first = in_turn(
        effort.rounds,
        &mut sides,
        |side| side.name(),
        |side| {
            let at = asked % count;
            asked += 1;
            runs[at].push(Value::Null);
            let run = programs.measure(*side, size, &folder)?;
            let value = (METRICS[0].of)(&run);
            runs[at].pop();
            runs[at].push(run);
            Ok(Sample { value, ..Sample::default() })
        },
    );
    let of = |metric: &Metric| -> Vec<SideSamples> {
        let sample = |run: &Value| Sample { value: (metric.of)(run), ..Sample::default() };
        let side = |(s, all): (&SideSamples, &Vec<Value>)| SideSamples {
            side: s.side.clone(),
            samples: all.iter().map(sample).collect(),
        };
        first.iter().zip(&runs).map(side).collect()
    };
    let row = |(metric, sides): (&Metric, Vec<SideSamples>)| Row {
        id: metric.id.to_string(),
        title: format!("{} ({} ports)", metric.title, size.ports),
        unit: metric.unit,
        sides,
    };
    let others: Vec<_> = METRICS[1..].iter().map(|metric| (metric, of(metric))).collect();
    Ok(std::iter::once((&METRICS[0], first)).chain(others).map(row).collect())
}
