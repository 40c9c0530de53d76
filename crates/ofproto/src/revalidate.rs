//! The revalidator: reads the counters of the datapath's flows, pushes them to rules, and keeps, changes or deletes
//! each flow.
//!
//! A state machine in the caller's time: [`Revalidator::poll`] sends operations through the [`Datapath`] and
//! processes received replies. A round starts when the epoch changed, or after `max-revalidator` for statistics and
//! idle flows. A round has several phases: it reads and pushes counters, deletes idle flows, then forgets flows lost
//! by the datapath. After a change, and periodically, it reads all flows and translates those older than the epoch
//! (if such rounds take long, it deletes slow flows: `min-revalidate-pps`). Otherwise it reads only flows with
//! packets since the last round, so its cost depends on current traffic and not on the number of flows. A flow
//! installed after the end of its epoch, which a round may miss, is checked separately.
//!
//! Operations may be executed out of order (see [`Datapath::operate`]), so a change of a flow may follow a newer
//! one. Each reply to a change is compared with the intended state of the flow; if they differ, the change is sent
//! again, so the last executed change is the intended one.

mod at_once;
mod cover;
mod credit;
mod foreign;
mod latest;
mod read;
mod share;

use crate::backer::{Backer, IDLE_LEAST_MS, count};
use crate::flow_ops::{Asked, Batch, Sent};
use crate::ukey::{Ukey, UkeyState, Walk};
use cover::Cover;
use credit::{count_before, deleted, push};
use dpif::{
    Datapath, DpAction, DpifError, DpifOp, FlowPut, FlowStats, OpBatch, OpResult, PmdId, PutMode, ReplySink,
};
use flow::Ufid;
use foreign::foreign_ukey;
use latest::Latest;
use share::{Share, ShareDone};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use sync::{AtomicU64, Ordering, ReplyRing};

pub use at_once::{Few, change as change_at_once};
pub use latest::each_current;
pub use share::Helper;

/// Usual time between rounds, in milliseconds.
pub const ROUND_MS: u64 = 500;
/// Flows of one dump operation.
const DUMP_FLOWS: usize = 256;
/// Shares queued to helpers beyond which reading of counters pauses.
const SHARES_UNDER_WAY: u64 = 64;
/// Deletes of one batch: packets wait behind it.
const DELETE_FLOWS: usize = 64;
/// Delete batches in flight: first packets wait behind them.
const DELETES_UNDER_WAY: u64 = 4;
/// Interval, in rounds, of reading all flows without a change.
const FULL_EVERY: u64 = 8;
/// Overlap with the last round, in milliseconds: timestamps are those of bursts.
const LOOK_BACK_MS: u64 = 100;
/// Number of dumps without a known flow after which it counts as lost.
const MISSED_DUMPS: u64 = 2;

/// Timeout of an unanswered put, in milliseconds: its thread has ended.
const PUT_PATIENCE_MS: u64 = 60_000;

/// Replies in flight from forwarding threads to the caller.
pub type Replies = ReplyRing<(PmdId, u64, Vec<OpResult>)>;

/// A [`ReplySink`] that collects replies and then calls `wake`.
pub struct ReplyQueue<W> {
    replies: Arc<Replies>,
    wake: W,
}

impl<W: Fn() + Send + Sync> ReplyQueue<W> {
    /// A sink into `replies`.
    pub fn new(replies: Arc<Replies>, wake: W) -> ReplyQueue<W> {
        ReplyQueue { replies, wake }
    }
}

impl<W: Fn() + Send + Sync> ReplySink for ReplyQueue<W> {
    fn done(&self, pmd: PmdId, tag: u64, results: Vec<OpResult>) {
        self.replies.push((pmd, tag, results));
        (self.wake)();
    }
}

/// Action on a flow.
#[derive(Debug)]
enum Verdict {
    Keep,
    Modify(Arc<[DpAction]>),
    Delete,
}

/// Statistics of `upcall/show`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevalidatorStats {
    /// Rounds finished.
    pub rounds: u64,
    /// Duration of the last round in milliseconds.
    pub dump_duration_ms: u64,
    /// Flows seen by the last round.
    pub flows: u64,
    /// Running average of that.
    pub average_flows: u64,
    /// Maximum flows seen by a round.
    pub max_flows: u64,
}

/// Phase of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepPhase {
    Counters,
    /// Searches idle flows; sends deletes meanwhile.
    Idle(Idle),
    /// Waits for the last deletes.
    Deletes,
    /// Searches flows lost by the datapath.
    Lost(Walk),
}

/// Criteria for idle flows in a round.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Idle {
    walk: Walk,
    since_ms: u64,
    max_idle_ms: u64,
    /// Flows above the limit, still to be found.
    excess: u64,
}

struct Round {
    part: SweepPhase,
    /// Number among the rounds that read all flows; `None`: it reads those with packets.
    full: Option<u64>,
    since_ms: u64,
    /// Delete all flows.
    purge: bool,
    epoch: u64,
    started_ms: u64,
    /// Batches in flight.
    waiting: u64,
    /// Shares queued to helpers.
    shared: u64,
}

/// The revalidator of one datapath.
pub struct Revalidator {
    replies: Arc<Replies>,
    sink: Arc<dyn ReplySink>,
    round: Option<Round>,
    seq: u64,
    full_rounds: u64,
    /// Duration of the last one.
    full_round_ms: u64,
    /// The next round reads all flows.
    full_next: bool,
    last_started_ms: u64,
    done_epoch: u64,
    next_ms: u64,
    tags: BTreeMap<u64, Batch>,
    next_tag: u64,
    /// Helper threads.
    helpers: Vec<Arc<Helper>>,
    /// Counters held back until helpers are less busy, with the position to resume reading.
    held_back: VecDeque<(PmdId, Vec<(Ufid, FlowStats)>, Option<u64>)>,
    /// Flows to delete once fewer deletes are in flight.
    to_delete: VecDeque<(PmdId, Vec<Ufid>)>,
    /// Flows deleted in this round: an earlier dump may still show them.
    ended: BTreeSet<(Ufid, PmdId)>,
    /// The epoch being covered for barriers.
    cover: Option<Cover>,
    /// Statistics.
    pub stats: RevalidatorStats,
    /// Deleted flows of unknown origin.
    pub foreign_flows: AtomicU64,
}

impl Revalidator {
    /// A revalidator that receives `replies` through `sink`.
    pub fn new(replies: Arc<Replies>, sink: Arc<dyn ReplySink>) -> Revalidator {
        Revalidator {
            replies,
            sink,
            round: None,
            seq: 0,
            full_rounds: 0,
            full_round_ms: 0,
            full_next: true,
            last_started_ms: 0,
            done_epoch: 0,
            next_ms: 0,
            tags: BTreeMap::new(),
            next_tag: 0,
            helpers: Vec::new(),
            held_back: VecDeque::new(),
            to_delete: VecDeque::new(),
            ended: BTreeSet::new(),
            cover: None,
            stats: RevalidatorStats::default(),
            foreign_flows: AtomicU64::new(0),
        }
    }

    /// Receives the answers to changes made by [`change_at_once`], which changes nothing before.
    pub fn answers(&self, backer: &Backer) {
        backer.at_once.answer_to(self.sink.clone());
    }

    /// Sets the helper threads from the next round on. Call between rounds.
    pub fn set_helpers(&mut self, helpers: Vec<Arc<Helper>>) {
        self.helpers = helpers;
    }

    /// Whether no round is active and all changes up to now are in the datapath.
    pub fn is_settled(&self, backer: &Backer) -> bool {
        self.round.is_none() && self.done_epoch == backer.epoch()
    }

    /// Whether no round is active.
    pub fn is_idle(&self) -> bool {
        self.round.is_none()
    }

    /// Rounds begun so far; a round that begins after a change covers it.
    pub fn rounds(&self) -> u64 {
        self.seq
    }

    /// Starts a round that reads all flows at the next [`Revalidator::poll`], or after the current one.
    pub fn request_round(&mut self) {
        self.next_ms = 0;
        self.full_next = true;
    }

    /// Does the work possible now, with one slice of a walk over all flows. Returns the time of the next call if
    /// nothing arrives before: `now_ms` if a walk continues.
    pub fn poll(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) -> u64 {
        while let Some((pmd, tag, results)) = self.replies.pop() {
            // A reply may report the end of a flow: push its last statistics before.
            self.take_purged(backer, dp, now_ms);
            let Some(sent) = self.tags.remove(&tag).or_else(|| backer.at_once.take(tag)) else { continue };
            if let Some(round) = self.round.as_mut().filter(|_| sent.round == Some(self.seq)) {
                round.waiting -= 1;
            }
            if let Some(cover) = self.cover.as_mut().filter(|_| sent.covers) {
                cover.waiting -= 1;
            }
            // Send follow-up operations of a batch together: when a full inbox refused its changes, each flow sends
            // another one.
            let mut next = Vec::new();
            let mut latest = Latest::new(backer);
            for (result, (ufid, what)) in results.into_iter().zip(sent.ops) {
                self.result(&mut latest, pmd, (ufid, what), result, now_ms, &mut next);
            }
            self.send(dp, pmd, next);
        }
        self.take_shares(backer, dp, now_ms);
        self.done_epoch = self.done_epoch.max(backer.at_once.done_epoch());
        self.check_stale(backer, dp, now_ms);
        let covers = self.cover(backer, dp, now_ms);
        self.go_on(backer, dp, now_ms);
        // Covering an epoch checks all flows too.
        let changed =
            self.cover.is_none() && self.done_epoch != backer.epoch() && !self.change(backer, dp, now_ms);
        if self.round.is_none() && (now_ms >= self.next_ms || changed) {
            self.start(backer, dp, now_ms);
        }
        match self.round {
            _ if covers => now_ms,
            Some(Round { part: SweepPhase::Idle(_) | SweepPhase::Lost(_), .. }) => now_ms,
            Some(_) => now_ms + ROUND_MS,
            None => self.next_ms,
        }
    }

    /// Changes affected flows without a round, if these are few.
    fn change(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) -> bool {
        let done = at_once::change(backer, dp, Few::FOR_REVALIDATOR, now_ms);
        self.done_epoch = self.done_epoch.max(backer.at_once.done_epoch());
        done && self.done_epoch == backer.epoch()
    }

    /// Runs the phases of the round in order, until one waits for replies, and one slice of a walk.
    fn go_on(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        let Some(round) = &mut self.round else { return };
        let shared = round.shared > 0 || !self.held_back.is_empty();
        if round.part == SweepPhase::Counters && round.waiting == 0 && !shared {
            backer.dump_completed(round.started_ms);
            round.part = SweepPhase::Idle(idle_flows(backer, round.purge, now_ms));
        }
        self.find_idle(backer, now_ms);
        self.send_deletes(dp);
        let Some(round) = &mut self.round else { return };
        if round.part == SweepPhase::Deletes && round.waiting == 0 {
            match round.full {
                Some(_) => round.part = SweepPhase::Lost(Walk::default()),
                None => return self.finish(backer, now_ms),
            }
        }
        if let (SweepPhase::Lost(walk), Some(seq)) = (round.part, round.full) {
            match forget_lost(backer, walk, seq, now_ms) {
                Some(next) => round.part = SweepPhase::Lost(next),
                None => self.finish(backer, now_ms),
            }
        }
    }

    /// Checks flows installed after the end of their epoch. If a round is still to begin, it covers them.
    fn check_stale(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        if backer.stale_lost.swap(false, Ordering::AcqRel) {
            backer.at_once.forget_done();
            self.done_epoch = 0;
        }
        let mut going: BTreeMap<PmdId, Vec<_>> = BTreeMap::new();
        while let Some((ufid, pmd)) = backer.stale.pop() {
            let changes = backer.latest_changes();
            let epoch = changes.epoch();
            let seen_up_to = self.round.as_ref().map_or(0, |r| r.epoch).max(self.done_epoch);
            if seen_up_to != epoch {
                continue;
            }
            let op = share::is_stale(backer, ufid, pmd, &changes)
                .and_then(|flow| share::recheck(backer, ufid, pmd, &flow, epoch, None, now_ms));
            let Some(op) = op else { continue };
            let ops = going.entry(pmd).or_default();
            ops.push(op);
            if ops.len() == DUMP_FLOWS {
                let full = std::mem::take(ops);
                self.send(dp, pmd, full);
            }
        }
        going.into_iter().for_each(|(pmd, ops)| self.send(dp, pmd, ops));
    }

    /// Pushes the last statistics of flows that ended with their port or thread, or moved to another thread. For use
    /// without [`Revalidator::poll`], which does it too.
    pub fn take_purged(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        let mut latest = Latest::new(backer);
        while let Some((pmd, flow)) = dp.next_purged() {
            if self.round.is_some() {
                self.ended.insert((flow.ufid, pmd));
            }
            let known = backer.ukeys.with(flow.ufid, pmd, |_| ()).is_some();
            if known || flow.stats.packets == 0 {
                deleted(&mut latest, pmd, flow.ufid, Some(&flow.stats));
                continue;
            }
            // A thread took it over and passed it on before a dump showed it.
            let mut k = foreign_ukey(&flow, now_ms);
            share::recheck_own(backer, flow.ufid, &mut k, now_ms);
            push(&mut latest, &mut k, &flow.stats);
            k.cache.end_flow(None);
            backer.ukeys.defer_release(&k.recircs);
        }
    }

    fn start(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        self.seq += 1;
        let (epoch, purge) = (backer.epoch(), backer.limits.purge.swap(false, Ordering::AcqRel));
        let is_full = std::mem::take(&mut self.full_next)
            || purge
            || epoch != self.done_epoch
            || self.seq.is_multiple_of(FULL_EVERY);
        self.full_rounds += u64::from(is_full);
        let since_ms = if is_full { 0 } else { self.last_started_ms.saturating_sub(LOOK_BACK_MS) };
        self.last_started_ms = now_ms;
        self.round = Some(Round {
            part: SweepPhase::Counters,
            full: is_full.then_some(self.full_rounds),
            since_ms,
            purge,
            epoch,
            started_ms: now_ms,
            waiting: 0,
            shared: 0,
        });
        backer.observe(|o| o.round_begins(backer.ukeys.len()));
        for pmd in dp.pmds() {
            self.send(dp, pmd, vec![read::part(backer, 0, since_ms)]);
        }
    }

    /// One slice of the walk over idle flows.
    fn find_idle(&mut self, backer: &Backer, now_ms: u64) {
        let Some(Round { part, purge, .. }) = &mut self.round else { return };
        let SweepPhase::Idle(mut idle) = *part else { return };
        let longest_ms = backer.limits.max_idle_ms.load(Ordering::Relaxed);
        let mut going: BTreeMap<PmdId, Vec<Ufid>> = BTreeMap::new();
        let next = backer.ukeys.each_idle(idle.walk, idle.since_ms, |ufid, pmd, k| {
            let over = *purge || k.is_over([idle.max_idle_ms, longest_ms], idle.excess > 0, now_ms);
            if k.state == UkeyState::Operational && over {
                k.state = UkeyState::Evicting;
                idle.excess = idle.excess.saturating_sub(1);
                going.entry(pmd).or_default().push(ufid);
            }
        });
        *part = next.map_or(SweepPhase::Deletes, |walk| SweepPhase::Idle(Idle { walk, ..idle }));
        for (pmd, names) in going {
            self.to_delete.extend(names.chunks(DELETE_FLOWS).map(|some| (pmd, some.to_vec())));
        }
    }

    /// Sends waiting deletes, a few at a time.
    fn send_deletes(&mut self, dp: &dyn Datapath) {
        while self.round.as_ref().is_some_and(|r| r.waiting < DELETES_UNDER_WAY)
            && let Some((pmd, names)) = self.to_delete.pop_front()
        {
            let deletes = names.into_iter().map(|ufid| (ufid, Sent::Delete, DpifOp::FlowDel(ufid)));
            // They are idle: no barrier waits for them.
            self.send_as(dp, pmd, deletes.collect(), false);
        }
    }

    fn finish(&mut self, backer: &Backer, now_ms: u64) {
        let Some(round) = self.round.take() else { return };
        self.ended.clear();
        self.done_epoch = self.done_epoch.max(round.epoch);
        self.next_ms = now_ms + backer.limits.max_revalidator_ms.load(Ordering::Relaxed);
        let duration_ms = now_ms.saturating_sub(round.started_ms).max(1);
        if round.full.is_some() {
            match backer.limits.adapt(duration_ms) {
                std::cmp::Ordering::Less => count(&backer.revisions.limit_lowered),
                std::cmp::Ordering::Greater => count(&backer.revisions.limit_raised),
                std::cmp::Ordering::Equal => {}
            }
            self.full_round_ms = duration_ms;
        }
        backer.recirc_release(&backer.ukeys.take_deferred());
        backer.long_lists.clean();
        let (s, flows) = (&mut self.stats, backer.ukeys.len());
        s.rounds += 1;
        s.dump_duration_ms = duration_ms;
        s.flows = flows;
        s.average_flows = (s.average_flows + flows) / 2;
        s.max_flows = s.max_flows.max(flows);
        backer.observe(|o| o.round_ends(flows, self.next_ms.saturating_sub(now_ms)));
    }

    /// Sends operations to a forwarding thread. An epoch being covered waits for changes of flows.
    fn send(&mut self, dp: &dyn Datapath, pmd: PmdId, ops: Vec<Asked>) {
        let covers = ops.iter().any(|(_, sent, _)| sent.changes_flow());
        self.send_as(dp, pmd, ops, covers);
    }

    /// As [`Revalidator::send`]. `covers`: an epoch being covered waits for the replies.
    fn send_as(&mut self, dp: &dyn Datapath, pmd: PmdId, ops: Vec<Asked>, covers: bool) {
        if ops.is_empty() {
            return;
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let names = ops.iter().map(|(u, s, _)| (*u, s.clone())).collect();
        let covers = match &mut self.cover {
            Some(cover) if covers => {
                cover.waiting += 1;
                true
            }
            _ => false,
        };
        self.tags.insert(tag, Batch { round: self.round.is_some().then_some(self.seq), covers, ops: names });
        if let Some(round) = &mut self.round {
            round.waiting += 1;
        }
        let ops = ops.into_iter().map(|(_, _, op)| op).collect();
        dp.operate(OpBatch { pmd, ops, tag, reply: Some(self.sink.clone()) });
    }

    /// Processes the reply to an operation; adds follow-up operations to `next`.
    fn result(
        &mut self,
        latest: &mut Latest<'_>,
        pmd: PmdId,
        (ufid, what): (Ufid, Sent),
        result: OpResult,
        now_ms: u64,
        next: &mut Vec<(Ufid, Sent, DpifOp)>,
    ) {
        let backer = latest.backer();
        match (what, read::counters(result)) {
            (Sent::Counters, OpResult::Counters(flows, cursor)) => {
                let held_back = self.round.as_ref().is_some_and(|r| r.shared >= SHARES_UNDER_WAY);
                if held_back {
                    self.held_back.push_back((pmd, flows, cursor));
                } else {
                    next.extend(self.counted(backer, pmd, flows, cursor, now_ms));
                }
            }
            (Sent::CountBefore, OpResult::Flow(record)) => {
                backer.ukeys.with(ufid, pmd, |k| count_before(latest, k, Some(&record.stats)));
            }
            (Sent::CountBefore, _) => {
                backer.ukeys.with(ufid, pmd, |k| count_before(latest, k, None));
            }
            (Sent::Get, OpResult::Flow(record)) => next.extend(self.foreign(backer, pmd, &record, now_ms)),
            (Sent::Modify(_), OpResult::Failed(_)) => {
                next.push((ufid, Sent::Delete, DpifOp::FlowDel(ufid)));
            }
            (Sent::Modify(actions), _) => next.extend(meant_otherwise(backer, pmd, ufid, &actions)),
            (Sent::Delete, OpResult::Flow(record)) => deleted(latest, pmd, ufid, Some(&record.stats)),
            (Sent::Delete, OpResult::Failed(DpifError::Full(_))) => {
                // The thread's inbox is full: keep the flow, the next round tries again.
                backer.ukeys.with(ufid, pmd, |k| k.state = UkeyState::Operational);
            }
            (Sent::Delete, _) => deleted(latest, pmd, ufid, None),
            _ => {}
        }
    }

    /// Processes its share of a thread's counters, and queues the others to helpers; returns follow-up operations.
    fn counted(
        &mut self,
        backer: &Backer,
        pmd: PmdId,
        flows: Vec<(Ufid, FlowStats)>,
        cursor: Option<u64>,
        now_ms: u64,
    ) -> Vec<Asked> {
        let Some(round) = &mut self.round else { return Vec::new() };
        let share = Share { pmd, flows, full: round.full, full_round_ms: self.full_round_ms };
        let mut parts = share.divide(self.helpers.len() + 1).into_iter();
        let own = parts.next();
        for (helper, part) in self.helpers.iter().zip(parts) {
            round.shared += 1;
            helper.give(part);
        }
        let since_ms = round.since_ms;
        let mut next = own.map_or_else(Vec::new, |share| self.follow(share.work(backer, now_ms)));
        next.extend(cursor.map(|cursor| read::part(backer, cursor, since_ms)));
        next
    }

    /// Follow-up operations of a finished share.
    fn follow(&self, done: ShareDone) -> Vec<Asked> {
        // One may have ended after the datapath reported its counters.
        let unknown = done.unknown.into_iter().filter(|ufid| !self.ended.contains(&(*ufid, done.pmd)));
        let get = |ufid| (ufid, Sent::Get, DpifOp::FlowGet(ufid));
        done.ops.into_iter().chain(unknown.map(get)).collect()
    }

    /// Collects finished shares of helpers, and resumes with counters held back meanwhile.
    fn take_shares(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        for helper in self.helpers.clone() {
            while let Some(done) = helper.take_done() {
                if let Some(round) = &mut self.round {
                    round.shared -= 1;
                }
                let pmd = done.pmd;
                let next = self.follow(done);
                self.send(dp, pmd, next);
            }
        }
        while self.round.as_ref().is_some_and(|r| r.shared < SHARES_UNDER_WAY)
            && let Some((pmd, flows, cursor)) = self.held_back.pop_front()
        {
            let next = self.counted(backer, pmd, flows, cursor, now_ms);
            self.send(dp, pmd, next);
        }
    }
}

/// Flows to delete now as idle, or for lack of space.
fn idle_flows(backer: &Backer, purge: bool, now_ms: u64) -> Idle {
    let flows = backer.ukeys.len();
    let max_idle_ms = backer.limits.idle_ms(flows);
    let excess = flows.saturating_sub(backer.limits.flow_limit.load(Ordering::Relaxed));
    let since_ms = match (purge, excess) {
        (true, _) => u64::MAX,
        (_, 0) => now_ms.saturating_sub(max_idle_ms),
        _ => now_ms.saturating_sub(max_idle_ms.min(IDLE_LEAST_MS)),
    };
    Idle { walk: Walk::default(), since_ms, max_idle_ms, excess }
}

/// Forgets, in one slice, flows lost by the datapath: their thread ended, or they were deleted from outside. `seq`
/// counts the rounds that read all flows. Returns the position to resume; `None` at the end.
fn forget_lost(backer: &Backer, from: Walk, seq: u64, now_ms: u64) -> Option<Walk> {
    let (lost, next) = backer.ukeys.sweep(from, |_, _, k| {
        if k.dump_seq == 0 {
            // This round may have begun before the flow existed: only the next ones can miss it.
            k.dump_seq = seq;
        }
        let patience_ms = if k.state == UkeyState::Visible { PUT_PATIENCE_MS } else { 2 * ROUND_MS };
        k.state != UkeyState::Evicting
            && k.dump_seq + MISSED_DUMPS < seq
            && k.created_ms + patience_ms < now_ms
    });
    for k in &lost {
        count(&backer.revisions.lost);
        k.cache.end_flow(None);
        backer.ukeys.defer_release(&k.recircs);
    }
    next
}

/// The operation for a verdict on a flow.
fn carry_out(ufid: Ufid, verdict: Verdict, k: &mut Ukey) -> Option<(Ufid, Sent, DpifOp)> {
    match verdict {
        Verdict::Keep => None,
        Verdict::Modify(actions) => {
            let sent = Sent::Modify(actions.clone());
            let (key, mask) = (k.flow.key(), k.flow.mask());
            let put = FlowPut { ufid, key, mask, actions, mode: PutMode::Modify };
            Some((ufid, sent, DpifOp::FlowPut(Box::new(put))))
        }
        Verdict::Delete => {
            k.state = UkeyState::Evicting;
            Some((ufid, Sent::Delete, DpifOp::FlowDel(ufid)))
        }
    }
}

/// Processes the actions applied by the datapath: returns an operation if other actions are intended by now. The one
/// sent for those may have been executed before.
fn meant_otherwise(
    backer: &Backer,
    pmd: PmdId,
    ufid: Ufid,
    actions: &[DpAction],
) -> Option<(Ufid, Sent, DpifOp)> {
    backer.ukeys.with(ufid, pmd, |k| {
        let differs = k.state != UkeyState::Evicting && *k.actions != *actions;
        carry_out(ufid, if differs { Verdict::Modify(k.actions.clone()) } else { Verdict::Keep }, k)
    })?
}

#[cfg(test)]
mod tests;
