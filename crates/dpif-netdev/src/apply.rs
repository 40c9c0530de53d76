//! [`apply`]: executes operations on a forwarding core and reports those of first packets to probes.

use datapath::{Pmd, PmdIo};
use dpif::{DpifOp, OpResult};
use probes::Applying;

/// Executes operations and flushes their output.
pub(crate) fn apply(core: &mut Pmd, ops: Vec<DpifOp>, now_us: u64, io: &mut dyn PmdIo) -> Vec<OpResult> {
    if !probes::applied_armed() {
        let results = core.apply(ops, now_us, io);
        core.flush_output(io);
        return results;
    }
    let mut executed = Vec::new();
    let mut results = Vec::with_capacity(ops.len());
    for op in ops {
        let applying = probes::applying(&op);
        results.extend(core.apply(vec![op], now_us, io));
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
