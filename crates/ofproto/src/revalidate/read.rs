//! How a round reads the statistics of flows: by their names, or, if set by command, by dumps of whole flows.

use super::DUMP_FLOWS;
use crate::backer::Backer;
use crate::flow_ops::{Asked, Sent};
use dpif::{DpifOp, OpResult};
use flow::Ufid;
use sync::Ordering;

/// Reads a part of a thread's flows.
pub(super) fn part(backer: &Backer, cursor: u64, since_ms: u64) -> Asked {
    let op = match backer.limits.whole_dumps.load(Ordering::Relaxed) {
        true => DpifOp::FlowDump { cursor, max_flows: DUMP_FLOWS },
        false => DpifOp::FlowCounters { cursor, max_flows: DUMP_FLOWS, since_ms },
    };
    (Ufid::default(), Sent::Counters, op)
}

/// The names and counters of dumped flows; other results are unchanged.
pub(super) fn counters(result: OpResult) -> OpResult {
    if let OpResult::Dump(flows, cursor) = result {
        return OpResult::Counters(flows.iter().map(|f| (f.ufid, f.stats)).collect(), cursor);
    }
    result
}
