//! The rows: what is measured. Every round asks all sides in turn.

use crate::frames::Frames;
use crate::report::{Row, Sample, SideSamples, percentile};
use crate::sides::{Instance, Side};
use crate::traffic::{Devices, Line, Run};
use anyhow::Result;
use std::time::{Duration, Instant};
use testkit::{Iperf3Options, iperf3_client, iperf3_server};

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    /// A point of a rate or of idleness.
    pub(crate) time: Duration,
    /// Before each point.
    pub(crate) warm_up: Duration,
}

/// Frames a second of the delay row.
const PACED_PPS: u32 = 1000;

/// Numbers runs, so that no frame is taken for another run's.
#[derive(Default)]
pub(crate) struct Runs(u32);

impl Runs {
    fn next(&mut self) -> u32 {
        self.0 += 1;
        // The process id keeps runs of two processes apart.
        std::process::id() << 12 | self.0
    }
}

/// Calls `measure` for every side in turn, `rounds` times.
fn in_turn<T>(
    rounds: usize,
    sides: &mut [T],
    name: impl Fn(&T) -> String,
    mut measure: impl FnMut(&mut T) -> Result<Sample>,
) -> Vec<SideSamples> {
    let mut all: Vec<SideSamples> =
        sides.iter().map(|s| SideSamples { side: name(s), samples: Vec::new() }).collect();
    for _ in 0..rounds {
        for (side, into) in sides.iter_mut().zip(&mut all) {
            let failed = |e: anyhow::Error| Sample { complaint: Some(format!("{e:#}")), ..Sample::default() };
            into.samples.push(measure(side).unwrap_or_else(failed));
        }
    }
    all
}

/// A run with its accounts checked, as a sample without a value.
fn checked(
    instance: &Instance,
    line: &mut Line,
    run: impl FnOnce(&mut Line) -> Result<Run>,
) -> Result<(Run, Sample)> {
    let own_before = instance.own_drops();
    let before = Devices::read(&instance.net)?;
    let run = run(line)?;
    let after = Devices::read(&instance.net)?;
    let losses = run.losses(&before, &after)?;
    let own_drops = instance.own_drops().and_then(|after| Some(after.saturating_sub(own_before?)));
    let nothing = (run.ledger.received == 0).then(|| "nothing arrived".to_string());
    let sample = Sample {
        frames: Some((run.sent, run.ledger.received)),
        losses,
        own_drops,
        complaint: run.ledger.complaint().or(nothing),
        ..Sample::default()
    };
    Ok((run, sample))
}

/// Rate received of 64-byte UDP in `flows` flows, with the generator as fast as it can; and what a forwarded frame cost the
/// daemons, in processor time, which does not depend on who else uses the processor.
pub(crate) fn udp_rate(
    instances: &[Instance],
    flows: u64,
    effort: Effort,
    runs: &mut Runs,
) -> Result<Vec<Row>> {
    let mut lines = open_lines(instances)?;
    let mut costs: Vec<Vec<Sample>> = instances.iter().map(|_| Vec::new()).collect();
    let mut turn = 0;
    let sides = in_turn(effort.rounds, &mut lines, name_of, |(instance, line)| {
        line.say_hello();
        line.blast(&Frames::new(runs.next(), flows), effort.warm_up)?;
        let frames = Frames::new(runs.next(), flows);
        let at = turn % instances.len();
        turn += 1;
        let before = instance.cpu_ns()?;
        let (run, mut sample) = checked(instance, line, |line| line.blast(&frames, effort.time))?;
        let cost = (instance.cpu_ns()? - before) as f64 / run.ledger.received.max(1) as f64;
        costs[at].push(Sample { value: Some(cost), ..Sample::default() });
        sample.value = Some(run.received_pps / 1e6);
        sample.offered = Some(run.sent_pps / 1e6);
        Ok(sample)
    });
    let costs: Vec<SideSamples> = instances
        .iter()
        .zip(costs)
        .filter(|(i, _)| !i.pids().is_empty())
        .map(|(i, samples)| SideSamples { side: i.side.name().to_string(), samples })
        .collect();
    let title = |what| format!("veth → veth, 64-byte UDP, NORMAL, {flows} flow(s), {what}");
    let cost = "processor time of the daemons for each frame received, sending and losing included";
    Ok(vec![
        Row { id: format!("udp64-{flows}"), title: title("received"), unit: "Mpps", sides },
        Row { id: format!("udp64-{flows}-cost"), title: title(cost), unit: "ns", sides: costs },
    ])
}

/// One-way delay of single frames: a row for the median and one for the 99th percentile.
pub(crate) fn delay(instances: &[Instance], effort: Effort, runs: &mut Runs) -> Result<Vec<Row>> {
    let mut lines = open_lines(instances)?;
    let mut high: Vec<Vec<Sample>> = instances.iter().map(|_| Vec::new()).collect();
    let mut turn = 0;
    let sides = in_turn(effort.rounds, &mut lines, name_of, |(instance, line)| {
        line.say_hello();
        line.pace(&Frames::new(runs.next(), 1), PACED_PPS, effort.warm_up)?;
        let frames = Frames::new(runs.next(), 1);
        let at = turn % instances.len();
        turn += 1;
        let (mut run, sample) = checked(instance, line, |line| line.pace(&frames, PACED_PPS, effort.time))?;
        let mut at_share = |share| percentile(&mut run.delays_ns, share).map(|ns| ns as f64 / 1e3);
        let (p50, p99) = (at_share(0.5), at_share(0.99));
        high[at].push(Sample { value: p99, ..sample.clone() });
        Ok(Sample { value: p50, ..sample })
    });
    let upper =
        sides.iter().zip(high).map(|(s, samples)| SideSamples { side: s.side.clone(), samples }).collect();
    let title = |what| format!("one-way delay at {PACED_PPS} packets/s, {what}");
    Ok(vec![
        Row { id: "delay-p50".into(), title: title("median"), unit: "µs", sides },
        Row { id: "delay-p99".into(), title: title("99th percentile"), unit: "µs", sides: upper },
    ])
}

fn open_lines(instances: &[Instance]) -> Result<Vec<(&Instance, Line)>> {
    instances.iter().map(|i| Ok((i, Line::open(&i.net)?))).collect()
}

fn name_of((instance, _): &(&Instance, Line)) -> String {
    instance.side.name().to_string()
}

/// TCP between the hosts with offloads on, and for the stock switch also with offloads off.
pub(crate) fn tcp(instances: &[Instance], effort: Effort) -> Result<Row> {
    let mut sides: Vec<(&Instance, bool)> = instances.iter().map(|i| (i, true)).collect();
    sides.extend(instances.iter().filter(|i| i.side == Side::Ovs).map(|i| (i, false)));
    let name =
        |(i, on): &(&Instance, bool)| format!("{}{}", i.side.name(), if *on { "" } else { ", offloads off" });
    let sides = in_turn(effort.rounds, &mut sides, name, |(instance, on)| {
        instance.set_offloads(*on)?;
        let sample = tcp_sample(instance, effort);
        instance.set_offloads(true)?;
        sample
    });
    let title = "TCP between namespaces, one stream, offloads on unless said, received".to_string();
    Ok(Row { id: "tcp".into(), title, unit: "Gb/s", sides })
}

fn tcp_sample(instance: &Instance, effort: Effort) -> Result<Sample> {
    let [a, b] = &instance.net.hosts[..] else { anyhow::bail!("a line has two ends") };
    let _server = iperf3_server(&b.netns, 5201)?;
    let options = Iperf3Options { time_s: (effort.time.as_secs() as u32).max(1), ..Iperf3Options::default() };
    Ok(match iperf3_client(&a.netns, b.ipv4.into(), &options) {
        Ok(report) if report.received_bps > 0.0 => Sample {
            value: Some(report.received_bps / 1e9),
            note: (report.retransmits > 0).then(|| "with retransmissions".to_string()),
            ..Sample::default()
        },
        // The switch under test must carry TCP; a peer may fail to, and that is a result.
        failed if instance.side == Side::Sluice => {
            let why = failed.err().map_or_else(|| "no byte passed".to_string(), |e| format!("{e:#}"));
            Sample { complaint: Some(why), ..Sample::default() }
        }
        _ => Sample { note: Some("no connection".into()), ..Sample::default() },
    })
}

/// Processor time of idle daemons (database server included), in per cent of a processor.
pub(crate) fn idle(instances: &[Instance], effort: Effort) -> Row {
    let mut sides: Vec<&Instance> = instances.iter().filter(|i| !i.pids().is_empty()).collect();
    let name = |i: &&Instance| i.side.name().to_string();
    let sides = in_turn(effort.rounds, &mut sides, name, |instance| {
        std::thread::sleep(effort.warm_up);
        let (before, start) = (instance.cpu_ns()?, Instant::now());
        std::thread::sleep(effort.time);
        let share = (instance.cpu_ns()? - before) as f64 / start.elapsed().as_nanos() as f64;
        Ok(Sample { value: Some(share * 100.0), ..Sample::default() })
    });
    let title = "processor time of the idle daemons, two ports".to_string();
    Row { id: "idle".into(), title, unit: "% of a core", sides }
}
