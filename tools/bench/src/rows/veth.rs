//! Rows of single frames between two veth pairs: rate, cost per frame, delay.

use super::{Effort, Runs, in_turn};
use crate::frames::Frames;
use crate::report::{Row, Sample, SideSamples, percentile};
use crate::sides::{Instance, Side};
use crate::traffic::{Devices, Line, Run};
use anyhow::Result;

/// Frames a second of the delay row.
const PACED_PPS: u32 = 1000;
/// Sides of the rows of `afxdp` ports, the measured one first.
const AFXDP_SIDES: [Side; 4] = [Side::SluiceAfxdp, Side::OvsAfxdp, Side::Sluice, Side::Ovs];

/// Flows of the row of a bond.
const JOINED_FLOWS: u64 = 1000;
const COST: &str = "processor time of the daemons for each frame received, sending and losing included";

/// A verified run, as a sample without a value.
pub(super) fn checked(
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
        fault: run.ledger.fault().or(nothing),
        ..Sample::default()
    };
    Ok((run, sample))
}

/// Samples of two rows from the same turns: of each instance, in their order.
struct Twin {
    sides: Vec<Side>,
    first: Vec<SideSamples>,
    second: Vec<SideSamples>,
}

/// Asks all instances in turn for two values each.
fn twin(
    instances: &[&Instance],
    effort: Effort,
    mut measure: impl FnMut(&Instance, &mut Line) -> Result<(Sample, Option<f64>)>,
) -> Result<Twin> {
    let mut lines = open_lines(instances)?;
    let mut others: Vec<Vec<Sample>> = instances.iter().map(|_| Vec::new()).collect();
    let mut asked = 0;
    let first = in_turn(effort.rounds, &mut lines, name_of, |(instance, line)| {
        let into = &mut others[asked % instances.len()];
        asked += 1;
        into.push(Sample::default());
        let (sample, other) = instance.awake(|| measure(instance, line))?;
        if let Some(last) = into.last_mut() {
            last.value = other;
        }
        Ok(sample)
    });
    let second =
        first.iter().zip(others).map(|(s, samples)| SideSamples { side: s.side.clone(), samples }).collect();
    Ok(Twin { sides: instances.iter().map(|i| i.side).collect(), first, second })
}

impl Twin {
    /// The samples of some sides, in the order of `wanted`.
    fn of(&self, second: bool, wanted: &[Side]) -> Vec<SideSamples> {
        let all = if second { &self.second } else { &self.first };
        let find = |side: &Side| Some(all[self.sides.iter().position(|s| s == side)?].clone());
        wanted.iter().filter_map(find).collect()
    }

    /// All sides but those on `afxdp` ports.
    fn plain(&self) -> Vec<Side> {
        let afxdp = |s: &&Side| !matches!(s, Side::SluiceAfxdp | Side::OvsAfxdp);
        self.sides.iter().filter(afxdp).copied().collect()
    }

    /// The sides of the rows of `afxdp` ports, if the measured one is available.
    fn afxdp(&self) -> Option<Vec<Side>> {
        let ours = self.sides.contains(&Side::SluiceAfxdp);
        let has_daemon = |s: &Side| self.sides.contains(s);
        ours.then(|| AFXDP_SIDES.into_iter().filter(has_daemon).collect())
    }
}

/// The maximum rate of the generator in `flows` flows: a sample of the received rate in Mpps, and the daemons' processor time
/// in ns for each received frame.
fn blast(
    instance: &Instance,
    line: &mut Line,
    flows: u64,
    effort: Effort,
    runs: &mut Runs,
) -> Result<(Sample, Option<f64>)> {
    line.announce_sink();
    line.blast(&Frames::new(runs.next(), flows), effort.warm_up)?;
    let frames = Frames::new(runs.next(), flows);
    let before = instance.cpu_ns()?;
    let (run, mut sample) = checked(instance, line, |line| line.blast(&frames, effort.time))?;
    let cost = (instance.cpu_ns()? - before) as f64 / run.ledger.received.max(1) as f64;
    sample.value = Some(run.received_pps / 1e6);
    sample.offered = Some(run.sent_pps / 1e6);
    Ok((sample, Some(cost).filter(|_| !instance.pids().is_empty())))
}

/// Received rate of 64-byte UDP in `flows` flows, with the generator at its maximum; and the daemons'
/// processor time per forwarded frame, which does not depend on other load. `name` begins the rows' names.
pub(crate) fn udp_rate(
    instances: &[&Instance],
    name: &str,
    flows: u64,
    effort: Effort,
    runs: &mut Runs,
) -> Result<Vec<Row>> {
    let all = twin(instances, effort, |instance, line| blast(instance, line, flows, effort, runs))?;
    let rows = |name: String, ports: &str, sides: &[Side]| {
        let title = |what| format!("{ports}, 64-byte UDP, rules of L4, {flows} flow(s), {what}");
        let daemons: Vec<Side> = sides.iter().copied().filter(|s| *s != Side::Bridge).collect();
        [
            Row { id: name.clone(), title: title("received"), unit: "Mpps", sides: all.of(false, sides) },
            Row { id: format!("{name}-cost"), title: title(COST), unit: "ns", sides: all.of(true, &daemons) },
        ]
    };
    let mut out = Vec::new();
    if all.sides.contains(&Side::Sluice) {
        out.extend(rows(format!("{name}-{flows}"), "veth → veth", &all.plain()));
    }
    if let Some(sides) = all.afxdp() {
        out.extend(rows(format!("afxdp-{name}-{flows}"), "veth → veth on afxdp ports", &sides));
    }
    Ok(out)
}

/// Received rate of 64-byte UDP across two joined bridges, and the daemons' processor time per forwarded frame.
pub(crate) fn joined(instances: &[&Instance], effort: Effort, runs: &mut Runs) -> Result<Vec<Row>> {
    let all = twin(instances, effort, |instance, line| blast(instance, line, JOINED_FLOWS, effort, runs))?;
    let row = |suffix: &str, what: &str, unit, sides| Row {
        id: format!("bond{suffix}"),
        title: format!(
            "veth → bridge → bond of two veths, or one → bridge → veth, 64-byte UDP, {JOINED_FLOWS} flows, {what}"
        ),
        unit,
        sides,
    };
    Ok(vec![row("", "received", "Mpps", all.first), row("-cost", COST, "ns", all.second)])
}

/// One-way delay of single frames: a row for the median and one for the 99th percentile.
pub(crate) fn delay(
    instances: &[&Instance],
    ports: usize,
    effort: Effort,
    runs: &mut Runs,
) -> Result<Vec<Row>> {
    let all = twin(instances, effort, |instance, line| {
        line.announce_sink();
        line.pace(&Frames::new(runs.next(), 1), PACED_PPS, effort.warm_up)?;
        let frames = Frames::new(runs.next(), 1);
        let (mut run, sample) = checked(instance, line, |line| line.pace(&frames, PACED_PPS, effort.time))?;
        let mut at_share = |share| percentile(&mut run.delays_ns, share).map(|ns| ns as f64 / 1e3);
        let (p50, p99) = (at_share(0.5), at_share(0.99));
        Ok((Sample { value: p50, ..sample }, p99))
    })?;
    let rows = |name: &str, what: &str, sides: &[Side]| {
        let title = |share| format!("one-way delay at {PACED_PPS} packets/s{what}, {ports} ports, {share}");
        let id = |share| format!("{name}-{share}-{ports}ports");
        [
            Row { id: id("p50"), title: title("median"), unit: "µs", sides: all.of(false, sides) },
            Row { id: id("p99"), title: title("99th percentile"), unit: "µs", sides: all.of(true, sides) },
        ]
    };
    let mut out = rows("delay", "", &all.plain()).to_vec();
    if let Some(sides) = all.afxdp() {
        out.extend(rows("afxdp-delay", " on afxdp ports", &sides));
    }
    Ok(out)
}

pub(super) fn open_lines<'a>(instances: &[&'a Instance]) -> Result<Vec<(&'a Instance, Line)>> {
    instances.iter().map(|i| Ok((*i, Line::open(&i.net)?))).collect()
}

pub(super) fn name_of((instance, _): &(&Instance, Line)) -> String {
    instance.name()
}
