//! The row of idle daemons.

use super::{Effort, in_turn};
use crate::report::{Row, Sample};
use crate::sides::Instance;
use std::time::Instant;

/// Processor time of idle daemons (database server included), in per cent of a processor.
pub(crate) fn idle(instances: &[&Instance], ports: usize, effort: Effort) -> Row {
    let mut sides: Vec<&Instance> = instances.iter().filter(|i| !i.pids().is_empty()).copied().collect();
    let name = |i: &&Instance| i.side.name();
    let sides = in_turn(effort.rounds, &mut sides, name, |instance| {
        std::thread::sleep(effort.warm_up);
        let (before, start) = (instance.cpu_ns()?, Instant::now());
        std::thread::sleep(effort.time);
        let share = (instance.cpu_ns()? - before) as f64 / start.elapsed().as_nanos() as f64;
        Ok(Sample { value: Some(share * 100.0), ..Sample::default() })
    });
    let title = format!("processor time of the idle daemons, {ports} ports");
    Row { id: format!("idle-{ports}ports"), title, unit: "% of a core", sides }
}
