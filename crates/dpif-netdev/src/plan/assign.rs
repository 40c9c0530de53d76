//! Assignment of receive queues to threads (`pmd-rxq-assign`, `pmd-rxq-affinity`, `pmd-rxq-isolate`).
//!
//! Pinned queues first: each goes to its core. A thread with a pinned queue is isolated, and takes no other, unless
//! the policy disables isolation. The other queues follow by the policy, on threads of their own NUMA node if there
//! are any. A queue pinned to a core without a thread is assigned like the others. If every thread is isolated, the
//! others are assigned all the same: a port without a polling thread would be dead.

use super::QueueId;
use dpif::Numa;
use dpif::{RxqAssign, ThreadPlan};
use std::collections::{BTreeMap, BTreeSet};

/// A thread, by its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Thread {
    pub(crate) core: u16,
    pub(crate) numa: Numa,
}

/// A queue to poll.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Queue {
    pub(crate) id: QueueId,
    pub(crate) numa: Numa,
    /// Its cost, in percent of a thread; 0 if unknown.
    pub(crate) load: f64,
    /// The core it is pinned to.
    pub(crate) pinned: Option<u16>,
}

/// The policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    pub(crate) assign: RxqAssign,
    pub(crate) isolate: bool,
}

impl Policy {
    pub(crate) fn of(plan: &ThreadPlan) -> Policy {
        Policy { assign: plan.assign, isolate: plan.isolate || plan.assign != RxqAssign::Group }
    }
}

/// Warnings about an assignment, for the operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Note {
    /// A queue is pinned to a core without a thread.
    NoThread(QueueId, u16),
    /// All threads are isolated, and this queue is not pinned.
    AllIsolated(QueueId),
}

/// Result of an assignment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Assignment {
    /// The core of each queue.
    pub(crate) core: BTreeMap<QueueId, u16>,
    /// Isolated cores.
    pub(crate) isolated: BTreeSet<u16>,
    pub(crate) notes: BTreeSet<Note>,
}

/// A thread during assignment.
struct ThreadLoad {
    thread: Thread,
    isolated: bool,
    queues: usize,
    load: f64,
}

/// Assigns `queues` to `threads`. Queues in `kept` stay where they are, if permitted; with none kept, all are
/// assigned anew. Without threads no queue is polled.
pub(crate) fn assign(
    threads: &[Thread],
    queues: &[Queue],
    kept: &BTreeMap<QueueId, u16>,
    policy: Policy,
) -> Assignment {
    let mut out = Assignment::default();
    let place = |t: &Thread| ThreadLoad { thread: *t, isolated: false, queues: 0, load: 0.0 };
    let mut places: Vec<ThreadLoad> = threads.iter().map(place).collect();
    places.sort_by_key(|p| p.thread.core);
    let mut free = Vec::new();
    for queue in queues {
        let at = queue.pinned.map(|core| places.iter().position(|p| p.thread.core == core));
        match (at, queue.pinned) {
            (Some(Some(at)), _) => {
                places[at].isolated |= policy.isolate;
                put(&mut places[at], queue, &mut out);
            }
            (_, Some(core)) => {
                out.notes.insert(Note::NoThread(queue.id, core));
                free.push(*queue);
            }
            _ => free.push(*queue),
        }
    }
    out.isolated = places.iter().filter(|p| p.isolated).map(|p| p.thread.core).collect();
    free.sort_by_key(|q| q.id);
    free.retain(|queue| {
        let core = kept.get(&queue.id);
        let stays = places.iter_mut().find(|p| !p.isolated && Some(&p.thread.core) == core);
        stays.map(|place| put(place, queue, &mut out)).is_none()
    });
    if policy.assign != RxqAssign::RoundRobin {
        // Stable: equal loads stay in the order of ports and queues.
        free.sort_by(|a, b| b.load.total_cmp(&a.load));
    }
    for queue in free {
        let candidates = candidates(&places, queue.numa);
        let Some(&first) = candidates.first() else { return out };
        if places[first].isolated {
            out.notes.insert(Note::AllIsolated(queue.id));
        }
        let at = choose(&places, &candidates, &queue, policy.assign);
        put(&mut places[at], &queue, &mut out);
    }
    out
}

fn put(place: &mut ThreadLoad, queue: &Queue, out: &mut Assignment) {
    place.queues += 1;
    place.load += queue.load;
    out.core.insert(queue.id, place.thread.core);
}

/// The threads available to an unpinned queue, by index.
fn candidates(places: &[ThreadLoad], numa: Numa) -> Vec<usize> {
    let those = |fits: &dyn Fn(&ThreadLoad) -> bool| -> Vec<usize> {
        (0..places.len()).filter(|at| fits(&places[*at])).collect()
    };
    let near = those(&|p| !p.isolated && p.thread.numa == numa);
    if !near.is_empty() {
        return near;
    }
    let far = those(&|p| !p.isolated);
    if far.is_empty() { those(&|_| true) } else { far }
}

fn choose(places: &[ThreadLoad], candidates: &[usize], queue: &Queue, assign: RxqAssign) -> usize {
    let fewest = candidates.iter().map(|at| places[*at].queues).min().unwrap_or(0);
    if assign == RxqAssign::Group {
        let key = |at: &&usize| {
            let p = &places[**at];
            // A queue of unknown cost goes to the thread with the fewest queues.
            if queue.load > 0.0 { (p.load, p.queues) } else { (0.0, p.queues) }
        };
        let less = |a: &&usize, b: &&usize| {
            let (a, b) = (key(a), key(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        return candidates.iter().min_by(less).copied().unwrap_or(candidates[0]);
    }
    // Round robin, for `cycles` in alternating direction. First evens out the gaps of removed ports.
    let (n, all) = (candidates.len(), candidates.iter().map(|at| places[*at].queues).sum::<usize>());
    let mut turn = all % n;
    if assign == RxqAssign::Cycles && all / n % 2 == 1 {
        turn = n - 1 - turn;
    }
    let is_fewest = |at: &usize| places[*at].queues == fewest;
    if is_fewest(&candidates[turn]) {
        return candidates[turn];
    }
    candidates.iter().copied().find(is_fewest).unwrap_or(candidates[turn])
}
