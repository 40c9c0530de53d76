//! [`CoreOffload`]: one core's side of flow offload.

use super::{Answer, Kind, Offloads, PUTS_WAITING_MAX, Put, Request};
use datapath::Pmd;
use dpif::{DpifOp, FlowPut, FlowRecord, OpResult, PmdId, PutMode, ReplySink};
use flow::{FlowKey, KeyMask};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use sync::{AtomicUsize, Ordering};

/// See the module documentation.
pub(crate) struct CoreOffload {
    shared: Arc<Offloads>,
    pmd: PmdId,
    /// Waiting puts.
    waiting: Arc<AtomicUsize>,
}

/// An operation before its execution.
enum Noted {
    Put(Box<FlowPut>),
    Other(Kind),
}

/// Operations before their execution.
pub(crate) struct Notes(Vec<Noted>);

impl CoreOffload {
    /// For that core.
    pub(crate) fn new(shared: Arc<Offloads>, pmd: PmdId) -> CoreOffload {
        CoreOffload { shared, pmd, waiting: Arc::new(AtomicUsize::new(0)) }
    }

    /// Notes what operations mean for rules, before their execution; `None` without providers. Counters are then read
    /// for all flows: the device may have used one that the core has not.
    pub(crate) fn note(&self, ops: &mut [DpifOp]) -> Option<Notes> {
        if !self.shared.is_on() {
            return None;
        }
        let ports = self.shared.ports.load();
        let note = |op: &mut DpifOp| match op {
            DpifOp::FlowPut(put) => match put.mode {
                PutMode::Create if ports.contains(&put.key.in_port()) => Noted::Put(put.clone()),
                PutMode::Create => Noted::Other(Kind::Other),
                PutMode::Modify => Noted::Other(Kind::Modify(put.ufid, put.actions.clone())),
            },
            DpifOp::FlowDel(_) => Noted::Other(Kind::Delete),
            DpifOp::FlowGet(_) | DpifOp::FlowDump { .. } => Noted::Other(Kind::Read),
            DpifOp::FlowCounters { since_ms, .. } => Noted::Other(Kind::Counters(std::mem::take(since_ms))),
            DpifOp::FlowFlush => Noted::Other(Kind::Flush),
            DpifOp::Execute(_) | DpifOp::Stats | DpifOp::ClearStats => Noted::Other(Kind::Other),
        };
        Some(Notes(ops.iter_mut().map(note).collect()))
    }

    /// After their execution: offers new flows to the device. Returns what is left for [`CoreOffload::answer`].
    pub(crate) fn executed(&self, core: &mut Pmd, notes: Notes, results: &[OpResult]) -> Vec<Kind> {
        let kinds = notes.0.into_iter().zip(results).map(|(noted, result)| match (noted, result) {
            (Noted::Put(put), OpResult::Done) => {
                self.offer(core, *put);
                Kind::Other
            }
            (Noted::Put(_), _) => Kind::Other,
            (Noted::Other(kind), result) => {
                match (&kind, result) {
                    (Kind::Delete, OpResult::Flow(flow)) => core.unmark(mark_of(&flow.key, &flow.mask)),
                    (Kind::Flush, _) => core.unmark_all(),
                    _ => {}
                }
                kind
            }
        });
        kinds.collect()
    }

    /// Offers a flow of the core to the device of its port. Too many that wait are refused.
    pub(crate) fn offer(&self, core: &mut Pmd, flow: FlowPut) {
        if !self.shared.is_on() || !self.shared.ports.load().contains(&flow.key.in_port()) {
            return;
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= PUTS_WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            self.shared.queue_full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mark = mark_of(&flow.key, &flow.mask);
        core.mark(flow.ufid, mark);
        let (waiting, queued_us) = (self.waiting.clone(), sys::clock::machine_us());
        self.shared.enqueued.fetch_add(1, Ordering::Relaxed);
        self.shared.send(Request::Put(self.pmd, Box::new(Put { flow, mark, queued_us, waiting })));
    }

    /// Answers operations: through the thread if they concern its rules, else at once.
    pub(crate) fn answer(
        &self,
        tag: u64,
        reply: Option<Arc<dyn ReplySink>>,
        kinds: Vec<Kind>,
        results: Vec<OpResult>,
    ) {
        let answer = Answer { pmd: self.pmd, tag, kinds, results, reply };
        if answer.kinds.iter().all(|kind| matches!(kind, Kind::Other)) {
            answer.send();
        } else {
            self.shared.send(Request::Answer(Box::new(answer)));
        }
    }

    /// Waits until the thread has carried out all requests of this core, at its end.
    pub(crate) fn settle(&self) {
        if self.shared.is_on() {
            self.shared.send_and_wait(Request::Sync);
        }
    }

    /// Reports flows that ended with their port or core.
    pub(crate) fn ended(&self, core: &mut Pmd, flows: Vec<FlowRecord>) {
        if self.shared.is_on() {
            flows.iter().for_each(|flow| core.unmark(mark_of(&flow.key, &flow.mask)));
            self.shared.send(Request::Ended(self.pmd, flows));
        } else {
            flows.into_iter().for_each(|flow| self.shared.purged.push((self.pmd, flow)));
        }
    }
}

/// The mark of a flow, the same on all cores.
fn mark_of(key: &FlowKey, mask: &KeyMask) -> u32 {
    let mut hasher = DefaultHasher::new();
    (key.masked(mask), mask).hash(&mut hasher);
    (hasher.finish() as u32).max(1)
}
