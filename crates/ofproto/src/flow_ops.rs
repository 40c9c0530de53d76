//! Operations on flows that the datapath has not answered, and the changes that are made without a round of the
//! revalidator (`revalidate::at_once`), which threads share.

use dpif::{Datapath, DpAction, DpifOp, OpBatch, PmdId, ReplySink};
use flow::Ufid;
use std::collections::BTreeMap;
use std::sync::Arc;
use sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// Tags from here on are those of batches sent at once.
const FIRST_TAG: u64 = 1 << 63;

/// An operation on a flow.
pub(crate) type Asked = (Ufid, Sent, DpifOp);

/// Operations in flight.
pub(crate) struct Batch {
    /// The round that waits for their replies; it may have ended, if they were sent in its last part.
    pub(crate) round: Option<u64>,
    /// A barrier waits for their replies.
    pub(crate) covers: bool,
    /// The flows and what was asked of each.
    pub(crate) ops: Vec<(Ufid, Sent)>,
}

/// An operation on a flow that is under way.
#[derive(Clone, Debug)]
pub(crate) enum Sent {
    /// Counters of part of the table.
    Counters,
    /// Requests a flow of unknown origin.
    Get,
    /// Requests the counters of a flow before it is changed.
    CountBefore,
    /// Changes it to these actions.
    Modify(Arc<[DpAction]>),
    /// Deletes it.
    Delete,
}

impl Sent {
    /// Whether the flow differs afterwards.
    pub(crate) fn changes_flow(&self) -> bool {
        matches!(self, Sent::Modify(_) | Sent::Delete)
    }
}

/// State of changes made at once.
#[derive(Default)]
pub(crate) struct AtOnce {
    state: Mutex<UnderWay>,
    /// All flows in the datapath have been checked for this epoch, or the changes are sent.
    done_epoch: AtomicU64,
}

/// Changes made at once that are under way.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// Receives the answers: the revalidator's.
    sink: Option<Arc<dyn ReplySink>>,
    sent: BTreeMap<u64, Batch>,
    next: u64,
}

impl AtOnce {
    /// Has the answers sent there. Without it nothing is changed at once.
    pub(crate) fn answer_to(&self, sink: Arc<dyn ReplySink>) {
        lock(&self.state).sink = Some(sink);
    }

    /// The epoch for which all flows have been checked.
    pub(crate) fn done_epoch(&self) -> u64 {
        self.done_epoch.load(Ordering::Acquire)
    }

    /// All flows have been checked for this epoch.
    pub(crate) fn set_done(&self, epoch: u64) {
        self.done_epoch.fetch_max(epoch, Ordering::AcqRel);
    }

    /// Begins changes. `None`: another thread makes some, and `waits` is not set; or nothing receives the answers.
    pub(crate) fn begin(&self, waits: bool) -> Option<MutexGuard<'_, UnderWay>> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(_) if waits => lock(&self.state),
            Err(_) => return None,
        };
        state.sink.is_some().then_some(state)
    }

    /// A flow was lost that is to be checked: a round has to find it.
    pub(crate) fn forget_done(&self) {
        self.done_epoch.store(0, Ordering::Release);
    }

    /// The batch of an answer, if it was sent at once.
    pub(crate) fn take(&self, tag: u64) -> Option<Batch> {
        if tag < FIRST_TAG { None } else { lock(&self.state).sent.remove(&tag) }
    }

    /// Its batches in flight.
    pub(crate) fn in_flight(&self) -> MutexGuard<'_, UnderWay> {
        lock(&self.state)
    }
}

impl UnderWay {
    /// The batches in flight.
    pub(crate) fn batches(&mut self) -> impl Iterator<Item = &mut Batch> {
        self.sent.values_mut()
    }

    /// Sends operations to a thread.
    pub(crate) fn send(&mut self, dp: &dyn Datapath, pmd: PmdId, ops: Vec<Asked>) {
        if ops.is_empty() {
            return;
        }
        let tag = FIRST_TAG + self.next;
        self.next += 1;
        let names = ops.iter().map(|(ufid, sent, _)| (*ufid, sent.clone())).collect();
        self.sent.insert(tag, Batch { round: None, covers: false, ops: names });
        let ops = ops.into_iter().map(|(_, _, op)| op).collect();
        dp.operate(OpBatch { pmd, ops, tag, reply: self.sink.clone() });
    }
}
