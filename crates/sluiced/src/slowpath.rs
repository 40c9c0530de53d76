//! The threads of the slow path: handlers that translate upcalls, and the revalidator.

use crate::upcall_times::{self, Stage};
use dpif::InlineHandler;
use dpif::{DpifOp, OpBatch, OpResult, PmdId, ReplySink, UpcallKind, Upcalls};
use dpif::{Provider, UpcallReceiver, usual_revalidators};
use flow::Ufid;
use ofproto::backer::Backer;
use ofproto::revalidate::{Helper, Replies, ReplyQueue, Revalidator, RevalidatorStats};
use ofproto::upcall;
use ofproto::xlate::THREAD_STACK_BYTES;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sync::{AtomicBool, AtomicU64, AtomicUsize, Garbage, Mutex, Ordering, Parker, Unparker, lock};
use sys::confine::Kind;

/// Maximum wait of a handler, so that it notices its end.
const HANDLER_WAIT: Duration = Duration::from_millis(500);

/// Maximum operations of a handler in flight before it takes upcalls again. Forwarding threads execute them in order
/// of arrival, without fairness: further upcalls wait in the ports' queues.
const UNDER_WAY_MAX_OPS: usize = 256;

/// State and control of the revalidator thread.
pub struct RevalidatorState {
    /// Statistics of the last rounds.
    pub stats: Mutex<RevalidatorStats>,
    /// Rounds begun so far.
    pub begun: AtomicU64,
    /// Rounds finished so far.
    pub finished: AtomicU64,
    /// Rounds up to this number begin without waiting for their time.
    pub wanted: AtomicU64,
    /// Number of revalidator threads.
    pub threads: AtomicUsize,
}

/// Wakes the main loop.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Maximum time that old rules wait for translations that still read them.
const LAST_HOLDERS: Duration = Duration::from_secs(1);
/// Interval of checking that.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Maximum time that an ending handler waits for the replies to its puts.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The threads of the slow path. Dropping ends them.
pub struct SlowPath {
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
    wake: Wake,
    handlers: Threads,
    revalidator: Unparker,
    /// State of the revalidator.
    pub state: Arc<RevalidatorState>,
    revalidators: Threads,
    /// Handlers and revalidators, as last logged.
    logged: (usize, usize),
}

/// Threads that end together.
#[derive(Default)]
struct Threads {
    stop: Arc<AtomicBool>,
    running: Vec<JoinHandle<()>>,
}

/// The kind of the threads that translate for a datapath.
fn kind(datapath: &dyn Provider) -> Kind {
    if datapath.pmd_threads().is_some() { Kind::Translation } else { Kind::KernelTranslation }
}

/// A thread that translates: all resubmits may nest on its stack.
pub(crate) fn translating_thread(name: String) -> std::thread::Builder {
    std::thread::Builder::new().name(name).stack_size(THREAD_STACK_BYTES)
}

impl Threads {
    fn spawn(
        &mut self,
        name: String,
        kind: Kind,
        run: impl FnOnce(&AtomicBool) + Send + 'static,
    ) -> io::Result<()> {
        let stop = self.stop.clone();
        let run = move || {
            // Threads that help it have its confinement.
            sys::confine::enter(kind, &[]);
            run(&stop);
        };
        self.running.push(translating_thread(name).spawn(run)?);
        Ok(())
    }

    /// Ends them; `wake` wakes them.
    fn end(&mut self, wake: impl FnOnce()) {
        self.stop.store(true, Ordering::Release);
        wake();
        for thread in self.running.drain(..) {
            // A panic has been reported already.
            let _ended = thread.join();
        }
    }
}

/// Drops values, each once it is unshared, or after [`LAST_HOLDERS`].
fn reclaim(queue: &Receiver<Box<dyn Garbage>>) {
    sys::confine::enter(Kind::Background, &[]);
    while let Ok(garbage) = queue.recv() {
        let since = Instant::now();
        while !garbage.is_last() && since.elapsed() < LAST_HOLDERS {
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

impl SlowPath {
    /// Starts the threads, with this number of handlers (`None`: a default for the processors). If it `rests`,
    /// upcalls wait and flows stay unchanged until [`SlowPath::begin`]. `wake` is called when events wait in the
    /// backer.
    pub(crate) fn start(
        backer: &Arc<Backer>,
        datapath: Arc<dyn Provider>,
        handlers: Option<u32>,
        rests: bool,
        wake: Wake,
    ) -> io::Result<SlowPath> {
        backer.barrier.resting.store(rests, Ordering::Release);
        let parker = Parker::new();
        let revalidator = parker.unparker().clone();
        let state = Arc::new(RevalidatorState {
            stats: Mutex::default(),
            begun: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            threads: AtomicUsize::new(1),
        });
        let mut slow = SlowPath {
            backer: backer.clone(),
            datapath: datapath.clone(),
            wake: wake.clone(),
            handlers: Threads::default(),
            revalidator,
            state: state.clone(),
            revalidators: Threads::default(),
            logged: (0, 0),
        };
        slow.set_handlers(handlers)?;
        let backer = backer.clone();
        let kind = kind(&*datapath);
        let leader = RevalidatorThread { backer, datapath, parker, state, wake };
        slow.revalidators.spawn("revalidator0".to_string(), kind, move |stop| leader.run(stop))?;
        if let Some(garbage) = slow.backer.reclaimer.attach() {
            // It ends with the backer.
            std::thread::Builder::new().name("reclaim".to_string()).spawn(move || reclaim(&garbage))?;
        }
        Ok(slow)
    }

    /// Replaces the handlers by this number of new ones (`None`: a default for the processors). Meanwhile upcalls
    /// wait in their queues.
    ///
    /// # Errors
    /// Threads or their upcall channels cannot be created; those created serve their ports.
    pub(crate) fn set_handlers(&mut self, wanted: Option<u32>) -> io::Result<()> {
        let processors = || sys::thread::allowed_cpus().map_or(1, |cpus| cpus.len());
        let count = wanted.map_or_else(|| self.datapath.usual_handlers(processors()), |n| n as usize).max(1);
        let ended = self.handlers.running.iter().filter(|thread| thread.is_finished()).count();
        if ended > 0 {
            log::error!(target: "ofproto_dpif_upcall", "{}: {ended} handlers ended; restarting all of them", self.datapath.name());
        }
        if self.backer.barrier.resting.load(Ordering::Relaxed)
            || ended == 0 && count == self.handlers.running.len()
        {
            return Ok(());
        }
        self.handlers.end(|| self.datapath.wake_handlers());
        self.handlers = Threads::default();
        for (n, handler) in self.datapath.set_handlers(count)?.into_iter().enumerate() {
            let (backer, datapath) = (self.backer.clone(), self.datapath.clone());
            let thread = HandlerThread::new(&*handler, backer, datapath, self.revalidator.clone());
            let wake = self.wake.clone();
            let kind = kind(&*self.datapath);
            self.handlers.spawn(format!("handler{n}"), kind, move |stop| thread.run(handler, stop, &wake))?;
        }
        Ok(())
    }

    /// Sets the number of revalidator threads from the next round on (`None`: a default for the processors).
    pub(crate) fn set_revalidators(&self, wanted: Option<u32>) {
        let processors = || sys::thread::allowed_cpus().map_or(1, |cpus| cpus.len());
        let count = wanted.map_or_else(|| usual_revalidators(processors()), |n| n as usize).max(1);
        if self.state.threads.swap(count, Ordering::AcqRel) != count {
            self.wake_revalidator();
        }
    }

    /// Logs how many threads there are, if that changed.
    pub(crate) fn log_threads(&mut self) {
        let threads = (self.handlers.running.len(), self.state.threads.load(Ordering::Acquire));
        if std::mem::replace(&mut self.logged, threads) != threads {
            log::info!(target: "ofproto_dpif_upcall", "Starting {} threads", threads.0 + threads.1);
        }
    }

    /// Starts to serve upcalls and to check flows, if it rested.
    pub(crate) fn begin(&self) {
        if self.backer.barrier.resting.swap(false, Ordering::AcqRel) {
            log::info!(target: "ofproto_dpif_upcall", "{}: flows are restored; upcalls are served", self.datapath.name());
            self.wake_revalidator();
        }
    }

    /// Number of handlers.
    pub(crate) fn handlers(&self) -> usize {
        self.handlers.running.len()
    }

    /// Whether a handler has ended unexpectedly.
    pub(crate) fn lacks_handlers(&self) -> bool {
        self.handlers.running.iter().any(JoinHandle::is_finished)
    }

    /// Wakes the revalidator, from any thread.
    pub(crate) fn revalidator(&self) -> Unparker {
        self.revalidator.clone()
    }

    /// Starts a round of the revalidator at once.
    pub fn wake_revalidator(&self) {
        self.revalidator.unpark();
    }
}

impl Drop for SlowPath {
    fn drop(&mut self) {
        self.handlers.end(|| self.datapath.wake_handlers());
        self.revalidators.end(|| self.revalidator.unpark());
    }
}

/// Maximum sleep of the revalidator without a wake-up.
const REVALIDATOR_LOOK_MS: u64 = 100;

/// The first revalidator: it leads rounds, with helper threads while their number stays.
struct RevalidatorThread {
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
    parker: Parker,
    state: Arc<RevalidatorState>,
    wake: Wake,
}

/// Processes shares of rounds until the end.
fn help(backer: &Backer, shares: &Helper, parker: &Parker, leader: &Unparker, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        if shares.work(backer, sys::clock::monotonic_ms()) {
            leader.unpark();
        } else {
            parker.park_timeout(HANDLER_WAIT);
        }
    }
}

impl RevalidatorThread {
    fn run(&self, stop: &AtomicBool) {
        let replies = Arc::new(Replies::default());
        let unparker = self.parker.unparker().clone();
        let sink = Arc::new(ReplyQueue::new(replies.clone(), move || unparker.unpark()));
        let mut revalidator = Revalidator::new(replies, sink);
        let backer: &Backer = &self.backer;
        revalidator.answers(backer);
        while !stop.load(Ordering::Acquire) {
            let threads = self.state.threads.load(Ordering::Acquire);
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let mut helpers = Vec::new();
                let mut unparkers = Vec::new();
                for n in 1..threads {
                    let parker = Parker::new();
                    let unparker = parker.unparker().clone();
                    unparkers.push(unparker.clone());
                    let helper = Arc::new(Helper::new(Box::new(move || unparker.unpark())));
                    let (shares, over, leader) = (helper.clone(), &over, self.parker.unparker().clone());
                    let run = move || help(backer, &shares, &parker, &leader, over);
                    match translating_thread(format!("revalidator{n}")).spawn_scoped(scope, run) {
                        Ok(_) => helpers.push(helper),
                        Err(e) => log::error!(target: "ofproto_dpif_upcall", "revalidator{n}: {e}"),
                    }
                }
                revalidator.set_helpers(helpers);
                self.lead(&mut revalidator, threads, stop);
                over.store(true, Ordering::Release);
                unparkers.iter().for_each(Unparker::unpark);
            });
        }
    }

    /// Leads rounds until it is to stop, or the number of threads is to change between rounds.
    fn lead(&self, revalidator: &mut Revalidator, threads: usize, stop: &AtomicBool) {
        let RevalidatorThread { backer, datapath, parker, state, wake } = self;
        let mut expired_round = 0;
        let mut next_expiry_ms = 0;
        let same = |idle: bool| !idle || state.threads.load(Ordering::Acquire) == threads;
        while !stop.load(Ordering::Acquire) && same(revalidator.is_idle()) {
            let now_ms = sys::clock::monotonic_ms();
            revalidator.take_purged(backer, &**datapath, now_ms);
            let wanted = state.wanted.load(Ordering::Acquire);
            if revalidator.rounds() < wanted {
                revalidator.request_round();
            }
            let idle = revalidator.is_idle();
            let held = backer.barrier.is_held();
            let covered = backer.barrier.covered();
            let mut goes_on = false;
            if !(idle && held) {
                goes_on = revalidator.poll(backer, &**datapath, now_ms) <= now_ms;
            }
            if backer.barrier.covered() != covered {
                wake();
            }
            let finished = revalidator.stats.rounds;
            let (is_due, is_over) = (now_ms >= next_expiry_ms, finished > expired_round);
            // As in OVS, a rule ends with the dump that shows it idle: a later packet may learn it anew.
            if is_due || is_over {
                backer.expire(now_ms);
                if backer.has_events() {
                    wake();
                }
                expired_round = finished;
            }
            if is_due || is_over && finished <= wanted {
                let ops = upcall::solicit(backer, now_ms);
                if !ops.is_empty() {
                    datapath.operate(OpBatch { pmd: PmdId::Main, ops, tag: 0, reply: None });
                }
                next_expiry_ms = now_ms + 1000;
                // An idle switch keeps freed memory otherwise: that of the flows of a removed port, for instance.
                sys::heap::give_back();
            }
            *lock(&state.stats) = revalidator.stats;
            state.begun.store(revalidator.rounds(), Ordering::Release);
            if state.finished.swap(finished, Ordering::AcqRel) < finished && finished <= wanted {
                wake();
            }
            if goes_on {
                // Threads that packets wait for have priority on this processor.
                std::thread::yield_now();
                continue;
            }
            if revalidator.is_idle() && revalidator.rounds() < wanted && !held {
                continue;
            }
            parker.park_timeout(Duration::from_millis(REVALIDATOR_LOOK_MS));
        }
    }
}

/// Serves upcalls of the main core on its own thread.
pub(crate) struct InlineSlowPath {
    pub(crate) backer: Arc<Backer>,
    /// Name of the datapath.
    pub(crate) datapath: String,
    pub(crate) wake: Wake,
}

impl InlineHandler for InlineSlowPath {
    fn translate(&self, upcalls: dpif::Upcalls) -> Vec<DpifOp> {
        probes::received(&self.datapath, &upcalls);
        probes::log_upcalls(&self.datapath, true, &upcalls);
        let (began_us, count) = (upcall_times::begin(), upcalls.len());
        let mut ops = upcall::handle(&self.backer, upcalls, sys::clock::monotonic_ms());
        upcall_times::end(Stage::Translate, began_us, count);
        if self.backer.has_events() {
            (self.wake)();
        }
        ops.remove(&PmdId::Main).unwrap_or_default()
    }

    fn flows_moved(&self) {
        self.backer.bump_epoch();
        (self.wake)();
    }

    fn done(&self, puts: &[Option<Ufid>], results: &[OpResult]) {
        for (ufid, result) in puts.iter().zip(results) {
            if let Some(ufid) = ufid {
                upcall::put_done(&self.backer, PmdId::Main, *ufid, !matches!(result, OpResult::Failed(_)));
            }
        }
    }
}

/// Splits a batch into parts, each with a flag for priority operations. Parts have at most `at_once` upcalls if
/// several ports wait. Only first packets have priority: the following packets of their flow wait in the datapath,
/// while packets sent up by an action could overtake others of their flow. Control packets of link protocols, which go no
/// further, have it, too.
fn parts(mut upcalls: Upcalls, ahead: usize, at_once: usize) -> impl Iterator<Item = (Upcalls, bool)> {
    let alone = upcalls.iter().all(|u| u.rx_port == upcalls[0].rx_port);
    let at_once = if alone { upcalls.len() } else { at_once };
    let first = upcalls.iter().take(ahead);
    let mut ahead = first.take_while(|u| u.kind == UpcallKind::Miss || u.is_of_session()).count();
    std::iter::from_fn(move || {
        let goes_ahead = ahead > 0;
        let part = if goes_ahead { ahead.min(at_once) } else { at_once };
        let rest = upcalls.split_off(part.min(upcalls.len()));
        let part = std::mem::replace(&mut upcalls, rest);
        ahead = ahead.saturating_sub(part.len());
        (!part.is_empty()).then_some((part, goes_ahead))
    })
}

struct HandlerThread {
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
    replies: Arc<Replies>,
    sink: Arc<dyn ReplySink>,
    sent: HashMap<u64, Sent>,
    /// Unanswered operations.
    under_way: usize,
    next_tag: u64,
    revalidator: Unparker,
}

/// An unanswered batch.
struct Sent {
    ops: usize,
    /// Flows that it installs, by index of their operation.
    puts: Vec<(usize, Ufid)>,
    /// See [`upcall_times::begin`].
    began_us: Option<u64>,
}

impl HandlerThread {
    fn new(
        handler: &dyn UpcallReceiver,
        backer: Arc<Backer>,
        datapath: Arc<dyn Provider>,
        revalidator: Unparker,
    ) -> HandlerThread {
        let replies = Arc::new(Replies::default());
        let wake = handler.waker();
        let sink = Arc::new(ReplyQueue::new(replies.clone(), move || wake()));
        HandlerThread {
            backer,
            datapath,
            replies,
            sink,
            sent: HashMap::new(),
            under_way: 0,
            next_tag: 0,
            revalidator,
        }
    }

    fn run(mut self, mut handler: Box<dyn UpcallReceiver>, stop: &AtomicBool, wake: &Wake) {
        let is_userspace = self.datapath.pmd_threads().is_some();
        while !stop.load(Ordering::Acquire) {
            self.wait_for_room(&mut *handler);
            let upcalls = handler.take(HANDLER_WAIT);
            self.take_replies();
            if upcalls.is_empty() {
                continue;
            }
            probes::received(self.datapath.name(), &upcalls);
            probes::log_upcalls(self.datapath.name(), is_userspace, &upcalls);
            upcall_times::waited(upcalls.iter().map(|upcall| upcall.received_us));
            self.serve(upcalls, handler.ahead(), wake);
        }
        let end = Instant::now() + LAST_ANSWERS;
        while !self.sent.is_empty() && Instant::now() < end {
            handler.wait(Duration::from_millis(1));
            self.take_replies();
        }
    }

    /// Serves a batch of upcalls in parts. The first `ahead` of them are of ports with few upcalls: their operations
    /// have priority over those in flight.
    fn serve(&mut self, upcalls: Upcalls, ahead: usize, wake: &Wake) {
        let epoch = self.backer.epoch();
        for (part, ahead) in parts(upcalls, ahead, self.datapath.upcalls_at_once()) {
            let (began_us, upcalls) = (upcall_times::begin(), part.len());
            let ops = upcall::handle(&self.backer, part, sys::clock::monotonic_ms());
            upcall_times::end(Stage::Translate, began_us, upcalls);
            for (pmd, ops) in ops {
                self.send(pmd, ops, ahead);
            }
        }
        if self.backer.epoch() != epoch {
            self.revalidator.unpark();
        }
        if self.backer.has_events() {
            wake();
        }
    }

    fn send(&mut self, pmd: PmdId, ops: Vec<DpifOp>, ahead: bool) {
        let puts = ops.iter().enumerate().filter_map(|(i, op)| Some((i, op.creates()?))).collect();
        let tag = self.next_tag;
        self.next_tag += 1;
        self.under_way += ops.len();
        self.sent.insert(tag, Sent { ops: ops.len(), puts, began_us: upcall_times::begin() });
        let batch = OpBatch { pmd, ops, tag, reply: Some(self.sink.clone()) };
        if ahead { self.datapath.operate_ahead(batch) } else { self.datapath.operate(batch) }
    }

    /// Waits until few operations are in flight; with a timeout, in case their thread hangs.
    fn wait_for_room(&mut self, handler: &mut dyn UpcallReceiver) {
        let end = Instant::now() + HANDLER_WAIT;
        self.take_replies();
        while self.under_way >= UNDER_WAY_MAX_OPS && Instant::now() < end {
            handler.wait(HANDLER_WAIT);
            self.take_replies();
        }
    }

    fn take_replies(&mut self) {
        while let Some((pmd, tag, results)) = self.replies.pop() {
            let Some(Sent { ops, puts, began_us }) = self.sent.remove(&tag) else { continue };
            upcall_times::end(Stage::Install, began_us, puts.len());
            self.under_way -= ops;
            for (i, ufid) in puts {
                let installed = results.get(i).is_some_and(|r| !matches!(r, OpResult::Failed(_)));
                if upcall::put_done(&self.backer, pmd, ufid, installed) {
                    self.revalidator.unpark();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
