//! Sluice against itself: with one optimisation off at a time. The sides are daemons of the same build.

use super::pcap::{self, work_rows};
use super::{Effort, Runs, streams, veth};
use crate::daemons::skip;
use crate::lab::Lab;
use crate::report::Row;
use crate::sides::{Build, Instance, Side};
use crate::works::{self, Work};
use anyhow::Result;
use std::path::Path;
use testkit::TempDir;

/// Sizes of a batch.
pub(crate) const BATCHES: [u32; 5] = [1, 8, 32, 64, 256];
/// Flows of the rows on veth.
const FLOWS: u64 = 1000;

/// Starts Sluice with each of `args` as a lab; skips a daemon that rejects them.
fn labs(sluiced: &Path, cpu: usize, args: &[String]) -> Result<Vec<Lab>> {
    let mut labs = vec![Lab::sluice("sluice", sluiced, &[], cpu)?];
    for arg in args {
        let name = format!("sluice {}", arg.trim_start_matches('-').replace('=', " "));
        match Lab::sluice(&name, sluiced, std::slice::from_ref(arg), cpu) {
            Ok(lab) => labs.push(lab),
            Err(why) => skip(&name, &why),
        }
    }
    Ok(labs)
}

fn without(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("--without={name}")).collect()
}

/// Rows of some labs against the first; none if there is only the first.
fn against(labs: &mut [Lab], work: &Work, id: &str, cache: bool, effort: Effort) -> Result<Vec<Row>> {
    if labs.len() < 2 {
        return Ok(Vec::new());
    }
    work_rows(labs, work, |_| vec![cache], id, effort)
}

/// The rows without a network.
pub(crate) fn in_process(sluiced: &Path, cpu: usize, folder: &TempDir, effort: Effort) -> Result<Vec<Row>> {
    let few = works::one_mask(folder, FLOWS, false)?;
    let masks = works::many_masks(folder, pcap::MANY_FLOWS)?;
    let mut rows = Vec::new();
    {
        let mut labs = labs(sluiced, cpu, &without(&["cache", "simd", "template"]))?;
        rows.extend(against(&mut labs, &few, "ablation", true, effort)?);
        rows.extend(against(&mut labs, &masks, "ablation", true, effort)?);
    }
    {
        let mut labs = labs(sluiced, cpu, &without(&["ranking"]))?;
        rows.extend(against(&mut labs, &masks, "ablation-ranking", false, effort)?);
    }
    let batches: Vec<String> = BATCHES.iter().map(|size| format!("--batch={size}")).collect();
    let mut labs = labs(sluiced, cpu, &batches)?;
    rows.extend(against(&mut labs, &few, "ablation-batch", true, effort)?);
    Ok(rows)
}

/// Instances of Sluice: with all optimisations, and without each of `names`; none if there would be only the
/// first.
fn instances(build: &Build, names: &[&'static str]) -> Result<Vec<Instance>> {
    let mut all = Vec::new();
    for name in names {
        match Instance::start(Side::Without(name), build) {
            Ok(instance) => all.push(instance),
            Err(why) => skip(&Side::Without(name).name(), &why),
        }
    }
    if !all.is_empty() {
        all.insert(0, Instance::start(Side::Sluice, build)?);
    }
    Ok(all)
}

/// Rates and costs between veth pairs.
pub(crate) fn veth(build: &Build, effort: Effort, runs: &mut Runs) -> Result<Vec<Row>> {
    let instances = instances(build, &["sendmmsg", "ring", "hold", "threads"])?;
    if instances.is_empty() {
        return Ok(Vec::new());
    }
    let instances: Vec<&Instance> = instances.iter().collect();
    veth::udp_rate(&instances, "ablation-udp64", FLOWS, effort, runs)
}

/// TCP without offloads.
pub(crate) fn offload(build: &Build, effort: Effort) -> Result<Option<Row>> {
    let instances = instances(build, &["offload"])?;
    let instances: Vec<&Instance> = instances.iter().collect();
    Ok((!instances.is_empty()).then(|| streams::tcp(&instances, "ablation-tcp", effort)))
}
