//! The revalidator: reads the counters of the datapath's flows, pushes them to rules, and keeps, changes or deletes each.
//!
//! A state machine in the caller's time: [`Revalidator::poll`] sends operations through the [`Datapath`] and takes the
//! replies that have come. A round starts when the epoch changed, or after `max-revalidator` for statistics and idle flows. A
//! round has several parts: counters are read and pushed, then what is idle goes, then what the datapath lost is forgotten. After
//! a change, and now and then, it reads all flows, and translates again those that are older than the epoch (unless such rounds
//! take long: then slow flows go, `min-revalidate-pps`); else only those that had packets since the last round, so that it costs
//! what the traffic of the moment costs and not what is installed. A flow that was installed when its epoch was over, and that no
//! round is sure to see, is checked by itself.
//!
//! Operations may be carried out in another order than they were sent in (see [`Datapath::operate`]), so a change of a flow may
//! come behind a newer one. Each answer to a change is held against what the flow is to do by then; if that is something
//! else, it is sent again: what is carried out last is what was meant last.

mod share;

use crate::backer::{Backer, IDLE_LEAST_MS};
use crate::ukey::{Ukey, UkeyState, Walk};
use crate::xlate::XlateCache;
use dpif::{
    Datapath, DpAction, DpifError, DpifOp, FlowPut, FlowRecord, FlowStats, OpBatch, OpResult, PmdId, PutMode,
    ReplySink,
};
use flow::{PackedFlow, Ufid};
use share::{Share, ShareDone};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use sync::{AtomicU64, Ordering, ReplyRing};

pub use share::Helper;

/// Usual time between rounds, in milliseconds.
pub const ROUND_MS: u64 = 500;
/// Flows of one dump operation.
const DUMP_FLOWS: usize = 256;
/// Shares that helpers have at a time before counters are read on.
const SHARES_UNDER_WAY: u64 = 64;
/// Deletes of one batch: packets wait meanwhile.
const DELETE_FLOWS: usize = 64;
/// Batches of deletes under way at a time: first packets wait behind them.
const DELETES_UNDER_WAY: u64 = 4;
/// One of so many rounds reads all flows, also without a change.
const FULL_EVERY: u64 = 8;
/// How far a round looks back beyond the start of the last one, in milliseconds: time stamps are those of bursts.
const LOOK_BACK_MS: u64 = 100;
/// A flow that the slow path knows and that so many dumps did not show is gone.
const MISSED_DUMPS: u64 = 2;

/// A flow whose put was not answered for so long, in milliseconds, is given up: its thread is gone.
const PUT_PATIENCE_MS: u64 = 60_000;

/// Results on their way from forwarding threads to whoever asked.
pub type Replies = ReplyRing<(PmdId, u64, Vec<OpResult>)>;

/// A [`ReplySink`] that gathers results and then calls `wake`.
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

/// What is to be done with a flow.
#[derive(Debug)]
enum Verdict {
    Keep,
    Modify(Arc<[DpAction]>),
    Delete,
}

/// Figures of `upcall/show`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RevalidatorStats {
    /// Rounds finished.
    pub rounds: u64,
    /// Duration of the last round in milliseconds.
    pub dump_duration_ms: u64,
    /// Flows that the last round saw.
    pub flows: u64,
    /// Running average of that.
    pub average_flows: u64,
    /// Most flows that a round saw.
    pub max_flows: u64,
}

/// What a round does now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Counters,
    /// Idle flows are looked for; deletes go out meanwhile.
    Idle(Idle),
    /// The last deletes are answered.
    Deletes,
    /// Flows that the datapath lost are looked for.
    Lost(Walk),
}

/// Which flows are idle in a round.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Idle {
    walk: Walk,
    since_ms: u64,
    max_idle_ms: u64,
    /// Flows above the limit, that are still to be found.
    excess: u64,
}

struct Round {
    part: Part,
    /// Number among the rounds that read all flows; `None`: it reads those that had packets.
    full: Option<u64>,
    since_ms: u64,
    /// All flows go.
    purge: bool,
    epoch: u64,
    started_ms: u64,
    /// Batches that are not answered.
    waiting: u64,
    /// Shares that helpers have.
    shared: u64,
}

/// The revalidator of one datapath.
pub struct Revalidator {
    replies: Arc<Replies>,
    sink: Arc<dyn ReplySink>,
    round: Option<Round>,
    seq: u64,
    full_rounds: u64,
    /// What the last one of them took.
    full_round_ms: u64,
    /// The next round is to read all flows.
    full_next: bool,
    last_started_ms: u64,
    done_epoch: u64,
    next_ms: u64,
    tags: BTreeMap<u64, Batch>,
    next_tag: u64,
    /// Threads that help.
    helpers: Vec<Arc<Helper>>,
    /// Counters that wait until helpers have less to do, with where to read on.
    held_back: VecDeque<(PmdId, Vec<(Ufid, FlowStats)>, Option<u64>)>,
    /// Flows that are to be deleted as soon as fewer deletes are under way.
    to_delete: VecDeque<(PmdId, Vec<Ufid>)>,
    /// Flows that ended in this round: a dump that was answered before may still show them.
    ended: BTreeSet<(Ufid, PmdId)>,
    /// Figures.
    pub stats: RevalidatorStats,
    /// Flows deleted because nobody knew what they were for.
    pub foreign_flows: AtomicU64,
}

/// An operation on a flow.
type Asked = (Ufid, Sent, DpifOp);

/// Operations on their way.
struct Batch {
    /// The round waits for their answers.
    in_round: bool,
    ops: Vec<(Ufid, Sent)>,
}

#[derive(Clone, Debug)]
enum Sent {
    /// Counters of part of the table.
    Counters,
    /// A flow that nobody here made is asked for.
    Get,
    /// To these actions.
    Modify(Arc<[DpAction]>),
    Delete,
}

impl Revalidator {
    /// A revalidator whose replies come by `replies` through `sink`.
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
            stats: RevalidatorStats::default(),
            foreign_flows: AtomicU64::new(0),
        }
    }

    /// Has other threads help from the next round on. To be called between rounds.
    pub fn set_helpers(&mut self, helpers: Vec<Arc<Helper>>) {
        self.helpers = helpers;
    }

    /// Whether no round is under way and all changes up to now are in the datapath.
    pub fn is_settled(&self, backer: &Backer) -> bool {
        self.round.is_none() && self.done_epoch == backer.epoch()
    }

    /// Whether no round is under way.
    pub fn is_idle(&self) -> bool {
        self.round.is_none()
    }

    /// Rounds begun so far; a round that began after a change has taken it in.
    pub fn rounds(&self) -> u64 {
        self.seq
    }

    /// Makes the next round begin at the next [`Revalidator::poll`], or when the one under way is over, and read all flows.
    pub fn request_round(&mut self) {
        self.next_ms = 0;
        self.full_next = true;
    }

    /// Does what can be done now, but for walks over all flows, of which it does a part; the time of the next call, if nothing
    /// comes before: `now_ms` when a walk is to go on.
    pub fn poll(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) -> u64 {
        while let Some((pmd, tag, results)) = self.replies.pop() {
            // An answer may tell that a flow is gone: what it counted last is pushed before.
            self.take_purged(backer, dp, now_ms);
            let Some(sent) = self.tags.remove(&tag) else { continue };
            if let Some(round) = self.round.as_mut().filter(|_| sent.in_round) {
                round.waiting -= 1;
            }
            // What follows from a batch goes as one: when a full inbox refused its changes, each flow asks for another one.
            let mut next = Vec::new();
            for (result, (ufid, what)) in results.into_iter().zip(sent.ops) {
                self.result(backer, pmd, (ufid, what), result, now_ms, &mut next);
            }
            self.send(dp, pmd, next);
        }
        self.take_shares(backer, dp, now_ms);
        self.check_stale(backer, dp, now_ms);
        self.go_on(backer, dp, now_ms);
        if self.round.is_none() && (now_ms >= self.next_ms || self.done_epoch != backer.epoch()) {
            self.start(backer, dp, now_ms);
        }
        match self.round {
            Some(Round { part: Part::Idle(_) | Part::Lost(_), .. }) => now_ms,
            Some(_) => now_ms + ROUND_MS,
            None => self.next_ms,
        }
    }

    /// Takes the parts of the round in turn, as far as answers that it waits for allow, and one part of a walk.
    fn go_on(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        let Some(round) = &mut self.round else { return };
        let shared = round.shared > 0 || !self.held_back.is_empty();
        if round.part == Part::Counters && round.waiting == 0 && !shared {
            backer.dump_completed(round.started_ms);
            round.part = Part::Idle(idle_flows(backer, round.purge, now_ms));
        }
        self.find_idle(backer, now_ms);
        self.send_deletes(dp);
        let Some(round) = &mut self.round else { return };
        if round.part == Part::Deletes && round.waiting == 0 {
            match round.full {
                Some(_) => round.part = Part::Lost(Walk::default()),
                None => return self.finish(backer, now_ms),
            }
        }
        if let (Part::Lost(walk), Some(seq)) = (round.part, round.full) {
            match forget_lost(backer, walk, seq, now_ms) {
                Some(next) => round.part = Part::Lost(next),
                None => self.finish(backer, now_ms),
            }
        }
    }

    /// Checks flows that were installed after their epoch was over. Where a round is still to begin, it sees them.
    fn check_stale(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        if backer.stale_lost.swap(false, Ordering::AcqRel) {
            self.done_epoch = 0;
        }
        let mut going: BTreeMap<PmdId, Vec<_>> = BTreeMap::new();
        while let Some((ufid, pmd)) = backer.stale.pop() {
            let epoch = backer.epoch();
            let seen_up_to = self.round.as_ref().map_or(self.done_epoch, |r| r.epoch);
            if seen_up_to != epoch {
                continue;
            }
            let op = share::is_stale(backer, ufid, pmd, epoch)
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

    /// Flows that ended with their port or thread, or were taken over by another one: their last statistics are pushed. For
    /// times without [`Revalidator::poll`], which does it too.
    pub fn take_purged(&mut self, backer: &Backer, dp: &dyn Datapath, now_ms: u64) {
        while let Some((pmd, flow)) = dp.next_purged() {
            if self.round.is_some() {
                self.ended.insert((flow.ufid, pmd));
            }
            let known = backer.ukeys.with(flow.ufid, pmd, |_| ()).is_some();
            if known || flow.stats.packets == 0 {
                deleted(backer, pmd, flow.ufid, Some(&flow.stats));
                continue;
            }
            // A thread took it over and gave it on before a dump showed it.
            let mut k = foreign_ukey(&flow, now_ms);
            share::recheck_own(backer, flow.ufid, &mut k, now_ms);
            push(backer, &mut k, &flow.stats);
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
            part: Part::Counters,
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
            let read = DpifOp::FlowCounters { cursor: 0, max_flows: DUMP_FLOWS, since_ms };
            self.send(dp, pmd, vec![(Ufid::default(), Sent::Counters, read)]);
        }
    }

    /// Some of the walk over flows without packets for too long, which are to go.
    fn find_idle(&mut self, backer: &Backer, now_ms: u64) {
        let Some(Round { part, purge, .. }) = &mut self.round else { return };
        let Part::Idle(mut idle) = *part else { return };
        let mut going: BTreeMap<PmdId, Vec<Ufid>> = BTreeMap::new();
        let next = backer.ukeys.each_idle(idle.walk, idle.since_ms, |ufid, pmd, k| {
            let over = *purge || idle.excess > 0 || k.last_ms() + idle.max_idle_ms <= now_ms;
            if k.state == UkeyState::Operational && over {
                k.state = UkeyState::Evicting;
                idle.excess = idle.excess.saturating_sub(1);
                going.entry(pmd).or_default().push(ufid);
            }
        });
        *part = next.map_or(Part::Deletes, |walk| Part::Idle(Idle { walk, ..idle }));
        for (pmd, names) in going {
            self.to_delete.extend(names.chunks(DELETE_FLOWS).map(|some| (pmd, some.to_vec())));
        }
    }

    /// Sends what is to be deleted, a little at a time.
    fn send_deletes(&mut self, dp: &dyn Datapath) {
        while self.round.as_ref().is_some_and(|r| r.waiting < DELETES_UNDER_WAY)
            && let Some((pmd, names)) = self.to_delete.pop_front()
        {
            let deletes = names.into_iter().map(|ufid| (ufid, Sent::Delete, DpifOp::FlowDel(ufid)));
            self.send(dp, pmd, deletes.collect());
        }
    }

    fn finish(&mut self, backer: &Backer, now_ms: u64) {
        let Some(round) = self.round.take() else { return };
        self.ended.clear();
        self.done_epoch = round.epoch;
        self.next_ms = now_ms + backer.limits.max_revalidator_ms.load(Ordering::Relaxed);
        let duration_ms = now_ms.saturating_sub(round.started_ms).max(1);
        if round.full.is_some() {
            backer.limits.adapt(duration_ms);
            self.full_round_ms = duration_ms;
        }
        backer.recirc_release(&backer.ukeys.take_deferred());
        let (s, flows) = (&mut self.stats, backer.ukeys.len());
        s.rounds += 1;
        s.dump_duration_ms = duration_ms;
        s.flows = flows;
        s.average_flows = (s.average_flows + flows) / 2;
        s.max_flows = s.max_flows.max(flows);
        backer.observe(|o| o.round_ends(flows, self.next_ms.saturating_sub(now_ms)));
    }

    fn send(&mut self, dp: &dyn Datapath, pmd: PmdId, ops: Vec<(Ufid, Sent, DpifOp)>) {
        if ops.is_empty() {
            return;
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let names = ops.iter().map(|(u, s, _)| (*u, s.clone())).collect();
        self.tags.insert(tag, Batch { in_round: self.round.is_some(), ops: names });
        if let Some(round) = &mut self.round {
            round.waiting += 1;
        }
        let ops = ops.into_iter().map(|(_, _, op)| op).collect();
        dp.operate(OpBatch { pmd, ops, tag, reply: Some(self.sink.clone()) });
    }

    /// Takes the answer to an operation; those that follow from it are added to `next`.
    fn result(
        &mut self,
        backer: &Backer,
        pmd: PmdId,
        (ufid, what): (Ufid, Sent),
        result: OpResult,
        now_ms: u64,
        next: &mut Vec<(Ufid, Sent, DpifOp)>,
    ) {
        match (what, result) {
            (Sent::Counters, OpResult::Counters(flows, cursor)) => {
                let held_back = self.round.as_ref().is_some_and(|r| r.shared >= SHARES_UNDER_WAY);
                if held_back {
                    self.held_back.push_back((pmd, flows, cursor));
                } else {
                    next.extend(self.counted(backer, pmd, flows, cursor, now_ms));
                }
            }
            (Sent::Get, OpResult::Flow(record)) => next.extend(self.foreign(backer, pmd, &record, now_ms)),
            (Sent::Modify(_), OpResult::Failed(_)) => {
                next.push((ufid, Sent::Delete, DpifOp::FlowDel(ufid)));
            }
            (Sent::Modify(actions), _) => next.extend(meant_otherwise(backer, pmd, ufid, &actions)),
            (Sent::Delete, OpResult::Flow(record)) => deleted(backer, pmd, ufid, Some(&record.stats)),
            (Sent::Delete, OpResult::Failed(DpifError::Full(_))) => {
                // The thread's inbox is full: the flow stays, the next round tries again.
                backer.ukeys.with(ufid, pmd, |k| k.state = UkeyState::Operational);
            }
            (Sent::Delete, _) => deleted(backer, pmd, ufid, None),
            _ => {}
        }
    }

    /// Does its part of the work on counters that a thread told, and gives the rest to its helpers; what follows.
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
        let read = |cursor| DpifOp::FlowCounters { cursor, max_flows: DUMP_FLOWS, since_ms };
        let mut next = own.map_or_else(Vec::new, |share| self.follow(share.work(backer, now_ms)));
        next.extend(cursor.map(|cursor| (Ufid::default(), Sent::Counters, read(cursor))));
        next
    }

    /// Operations that follow from a share that is done.
    fn follow(&self, done: ShareDone) -> Vec<Asked> {
        // One may have ended after the datapath told its counters.
        let unknown = done.unknown.into_iter().filter(|ufid| !self.ended.contains(&(*ufid, done.pmd)));
        let get = |ufid| (ufid, Sent::Get, DpifOp::FlowGet(ufid));
        done.ops.into_iter().chain(unknown.map(get)).collect()
    }

    /// Takes what helpers have done, and goes on with counters that were held back meanwhile.
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

    /// Takes in a flow that the datapath has and nobody here made.
    fn foreign(
        &mut self,
        backer: &Backer,
        pmd: PmdId,
        r: &FlowRecord,
        now_ms: u64,
    ) -> Option<(Ufid, Sent, DpifOp)> {
        if self.ended.contains(&(r.ufid, pmd)) {
            return None;
        }
        let mut k = foreign_ukey(r, now_ms);
        k.dump_seq = self.full_rounds;
        // What its packets cause must be known before they are counted.
        let verdict = share::recheck_own(backer, r.ufid, &mut k, now_ms);
        push(backer, &mut k, &r.stats);
        // Where its packets for the slow path go to was told by who made it: that is to be told anew.
        let hands_up = |a: &DpAction| a.any(|a| matches!(a, DpAction::Userspace(_)));
        let verdict = match verdict {
            Verdict::Keep if k.actions.iter().any(hands_up) => Verdict::Modify(k.actions.clone()),
            Verdict::Keep => Verdict::Keep,
            Verdict::Modify(actions) => Verdict::Modify(actions),
            Verdict::Delete => Verdict::Delete,
        };
        let op = carry_out(r.ufid, verdict, &mut k);
        match backer.ukeys.insert(r.ufid, pmd, k) {
            Ok(()) => {
                self.foreign_flows.fetch_add(1, Ordering::Relaxed);
                op
            }
            Err(refused) => {
                backer.ukeys.defer_release(&refused.recircs);
                None
            }
        }
    }
}

/// Which flows go now for want of packets, or for want of room.
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

/// Forgets, among some of the flows, those that the datapath lost without us: their thread ended, or somebody deleted them.
/// `seq`: how many rounds that read all flows there have been. Where to go on; `None` at the end.
fn forget_lost(backer: &Backer, from: Walk, seq: u64, now_ms: u64) -> Option<Walk> {
    let (lost, next) = backer.ukeys.sweep(from, |_, _, k| {
        if k.dump_seq == 0 {
            // This round may have begun before the flow was there: only the next ones can miss it.
            k.dump_seq = seq;
        }
        let patience_ms = if k.state == UkeyState::Visible { PUT_PATIENCE_MS } else { 2 * ROUND_MS };
        k.state != UkeyState::Evicting
            && k.dump_seq + MISSED_DUMPS < seq
            && k.created_ms + patience_ms < now_ms
    });
    for k in &lost {
        backer.ukeys.defer_release(&k.recircs);
    }
    next
}

/// The operation that a verdict on a flow asks for.
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

/// The datapath gave a flow these actions: the operation that is needed when it is to have others by now. The one that
/// was sent for those may have been carried out before.
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

/// A flow that the datapath has and nobody here made.
fn foreign_ukey(r: &FlowRecord, now_ms: u64) -> Ukey {
    Ukey {
        flow: PackedFlow::new(&r.key, &r.mask),
        actions: r.actions.clone(),
        cache: XlateCache::default(),
        recircs: Box::default(),
        epoch: 0,
        pushed: FlowStats::default(),
        created_ms: now_ms,
        dump_seq: 0,
        state: UkeyState::Operational,
    }
}

/// Credits what a flow has counted since the last time. What its packets teach is taught by its present translation alone: by
/// one that is over, a removed port or a deleted rule would come back. `true` when that is left to do.
fn push(backer: &Backer, k: &mut Ukey, now: &FlowStats) -> bool {
    let (packets, bytes) = k.take_delta(now);
    if packets == 0 {
        return false;
    }
    let is_present = k.epoch == backer.epoch();
    let host = &mut backer.effect_host();
    let seen = FlowStats { packets, bytes, ..*now };
    if is_present {
        k.cache.replay(&seen, host);
    } else {
        k.cache.replay_counters(&seen, host);
    }
    !is_present
}

fn deleted(backer: &Backer, pmd: PmdId, ufid: Ufid, last: Option<&FlowStats>) {
    let Some(mut k) = backer.ukeys.remove(ufid, pmd) else { return };
    if let Some(last) = last
        && push(backer, &mut k, last)
    {
        // No translation follows that would say which rules the connections that ended belong to.
        k.cache.replay_timeouts(last, &mut backer.effect_host());
    }
    backer.ukeys.defer_release(&k.recircs);
}

#[cfg(test)]
mod tests;
