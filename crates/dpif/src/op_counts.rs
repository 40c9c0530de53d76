//! [`OpCounts`]: operations of a datapath, by the names that stock switches count them by (`coverage/show`).

use crate::ops::{DpifOp, OpResult};
use std::sync::atomic::{AtomicU64, Ordering};

/// Names of the operations that are counted, and of those that failed.
const NAMES: [(&str, &str); 5] = [
    ("dpif_flow_put", "dpif_flow_put_error"),
    ("dpif_flow_del", "dpif_flow_del_error"),
    ("dpif_flow_get", "dpif_flow_get_error"),
    ("dpif_flow_flush", "dpif_flow_flush_error"),
    ("dpif_execute", "dpif_execute_error"),
];

/// See the module documentation.
#[derive(Default)]
pub struct OpCounts {
    done: [AtomicU64; NAMES.len()],
    failed: [AtomicU64; NAMES.len()],
    ports_added: AtomicU64,
    ports_removed: AtomicU64,
}

/// An operation that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted(Option<usize>);

impl Counted {
    /// The kind of an operation.
    pub fn of(op: &DpifOp) -> Counted {
        Counted(match op {
            DpifOp::FlowPut(_) => Some(0),
            DpifOp::FlowDel(_) => Some(1),
            DpifOp::FlowGet(_) => Some(2),
            DpifOp::FlowFlush => Some(3),
            DpifOp::Execute(_) => Some(4),
            DpifOp::FlowDump { .. } | DpifOp::FlowCounters { .. } | DpifOp::Stats | DpifOp::ClearStats => {
                None
            }
        })
    }
}

impl OpCounts {
    /// Counts an operation with its result.
    pub fn count(&self, Counted(kind): Counted, result: &OpResult) {
        let Some(kind) = kind else { return };
        let counters = if matches!(result, OpResult::Failed(_)) { &self.failed } else { &self.done };
        if let Some(counter) = counters.get(kind) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a port that was added.
    pub fn count_added(&self) {
        self.ports_added.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a port that was removed.
    pub fn count_removed(&self) {
        self.ports_removed.fetch_add(1, Ordering::Relaxed);
    }

    /// All counters by name. As in stock switches a failed operation counts by both names.
    pub fn all(&self) -> Vec<(&'static str, u64)> {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let mut all =
            vec![("dpif_port_add", load(&self.ports_added)), ("dpif_port_del", load(&self.ports_removed))];
        for ((name, error), (done, failed)) in NAMES.into_iter().zip(self.done.iter().zip(&self.failed)) {
            let failed = load(failed);
            all.extend([(name, load(done) + failed), (error, failed)]);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::DpifError;
    use flow::Ufid;

    #[test]
    fn operations_count_by_kind_and_result() {
        let counts = OpCounts::default();
        let failed = OpResult::Failed(DpifError::NotFound("flow"));
        counts.count(Counted::of(&DpifOp::FlowDel(Ufid::default())), &OpResult::Done);
        counts.count(Counted::of(&DpifOp::FlowDel(Ufid::default())), &failed);
        counts.count(Counted::of(&DpifOp::Stats), &failed);
        counts.count_added();
        let hit: Vec<_> = counts.all().into_iter().filter(|(_, n)| *n > 0).collect();
        assert_eq!(hit, [("dpif_port_add", 1), ("dpif_flow_del", 2), ("dpif_flow_del_error", 1)]);
    }
}
