//! Rows of restarts under traffic: the longest time without a frame at the receiver, and lost frames.

use super::veth::{checked, name_of, open_lines};
use super::{Effort, Runs, in_turn};
use crate::frames::Frames;
use crate::report::{Row, Sample};
use crate::sides::{Instance, Restart};
use anyhow::{Context, Result};
use std::time::Duration;

/// Frames a second, and their flows.
const PPS: u32 = 100_000;
const FLOWS: u64 = 10_000;
/// Rules beside those of the traffic.
const RULES: u32 = 10_000;
/// Time from the first frame to the restart.
const BEFORE: Duration = Duration::from_millis(500);

/// No restart for comparison, a planned restart of each side by its own means, and one after `kill -9`. All restarts are on the processor `cpu`.
pub(crate) fn rows(
    instances: &[Instance],
    cpu: usize,
    effort: Effort,
    quick: bool,
    runs: &mut Runs,
) -> Result<Vec<Row>> {
    let (pps, flows, rules) = if quick { (1000, 10, 10) } else { (PPS, FLOWS, RULES) };
    for instance in instances {
        instance.add_rules(
            (0..rules).map(|n| format!("priority=9,udp,tp_dst={n},nw_src=11.0.0.1,actions=drop")),
        )?;
    }
    let kinds = [
        ("restart-none", "no restart", Restart::None),
        ("restart", "a planned restart (Sluice: handover; others: exit and start)", Restart::Planned),
        (
            "restart-kill",
            "kill -9 and a start (Sluice: by a service manager that keeps its sockets)",
            Restart::Kill,
        ),
    ];
    let all: Vec<&Instance> = instances.iter().collect();
    let rows = kinds.map(|(id, what, how)| -> Result<Row> {
        let mut lines = open_lines(&all)?;
        let sides = in_turn(effort.rounds, &mut lines, name_of, |(instance, line)| {
            line.announce_sink();
            line.blast(&Frames::new(runs.next(), flows), effort.warm_up)?;
            let frames = Frames::new(runs.next(), flows);
            let (run, sample) = checked(instance, line, |line| {
                std::thread::scope(|scope| {
                    let restarting = scope.spawn(|| -> Result<()> {
                        // Its programs must not take the processor of the generator.
                        sys::thread::pin_thread(cpu)?;
                        std::thread::sleep(BEFORE);
                        instance.restart(how)
                    });
                    let run = line.pace(&frames, pps, effort.time.max(4 * BEFORE));
                    let restarted =
                        restarting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    restarted.context("the restart")?;
                    run
                })
            })?;
            Ok(Sample { value: Some(run.longest_gap_ns as f64 / 1e6), ..sample })
        });
        let title = format!(
            "{what} at {pps} packets/s in {flows} flows, {rules} rules: longest time without a frame"
        );
        Ok(Row { id: id.into(), title, unit: "ms", sides })
    });
    rows.into_iter().collect()
}
