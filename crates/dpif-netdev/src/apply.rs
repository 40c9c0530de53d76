//! [`apply`]: executes operations on a forwarding core, reports those of first packets to probes, flows to the
//! offload thread and, on demand, to the log.

use super::drops;
use super::offload::{CoreOffload, Kind};
use super::samples;
use datapath::{Pmd, PmdIo};
use dpif::{DpAction, DpifOp, OpResult, ReplySink};
use flow::Ufid;
use probes::Applying;
use std::sync::Arc;

/// Results of operations, and what they mean for offloaded flows; `None`: nothing.
pub(crate) struct Applied {
    pub(crate) results: Vec<OpResult>,
    kinds: Option<Vec<Kind>>,
}

impl Applied {
    /// Answers the batch of that tag.
    pub(crate) fn answer(self, offload: &CoreOffload, tag: u64, reply: Option<Arc<dyn ReplySink>>) {
        offload.answer(tag, reply, self.kinds.unwrap_or_default(), self.results);
    }
}

/// Executes operations and flushes their output.
pub(crate) fn apply(
    core: &mut Pmd,
    mut ops: Vec<DpifOp>,
    now_us: u64,
    io: &mut dyn PmdIo,
    offload: &CoreOffload,
) -> Applied {
    let notes = offload.note(&mut ops);
    drops::report(core);
    samples::report(core);
    let results = execute(core, ops, now_us, io);
    drops::report(core);
    samples::report(core);
    let kinds = notes.map(|notes| offload.executed(core, notes, &results));
    Applied { results, kinds }
}

fn execute(core: &mut Pmd, ops: Vec<DpifOp>, now_us: u64, io: &mut dyn PmdIo) -> Vec<OpResult> {
    if !probes::applied_armed() && !probes::logs_flows() {
        let results = core.apply(ops, now_us, io);
        core.flush_output(io);
        return results;
    }
    let mut executed = Vec::new();
    let mut results = Vec::with_capacity(ops.len());
    for op in ops {
        let applying = probes::applying(&op);
        let lines = probes::flow_lines(&op, |ufid| actions_of(core, ufid, now_us, io));
        results.extend(core.apply(vec![op], now_us, io));
        if let Some(lines) = lines.filter(|_| !matches!(results.last(), Some(OpResult::Failed(_)))) {
            lines.log();
        }
        match applying {
            Some(Applying::Put(about)) => probes::put_done(about, results.last()),
            Some(Applying::Execute(about)) => executed.push(about),
            None => {}
        }
    }
    core.flush_output(io);
    executed.into_iter().for_each(probes::on_wire);
    results
}

/// Actions of an existing flow.
fn actions_of(core: &mut Pmd, ufid: Ufid, now_us: u64, io: &mut dyn PmdIo) -> Option<Arc<[DpAction]>> {
    match core.apply(vec![DpifOp::FlowGet(ufid)], now_us, io).pop() {
        Some(OpResult::Flow(flow)) => Some(flow.actions),
        _ => None,
    }
}
