//! The receive queues of a forwarding thread, and waiting for them.
//!
//! A thread may poll thousands of queues of which few have frames at a time. Queues with many bursts are *hot*: asked for
//! frames one by one, in one system call whose cost grows with their number. The others are *cold*: they wait together behind
//! one descriptor ([`sys::WatchSet`]), so that the thread's cost between two packets does not grow with the number of its
//! ports. A cold queue with frames is a *guest*: polled at once, but not asked. After [`WARM_BURSTS`] in a second it is hot; a
//! hot one with less than [`COLD_BURSTS`] becomes cold. With few queues all stay hot: a watched queue adds a cost per frame for
//! its sender.
//!
//! Queues that adapt to their traffic ([`netdev::RxMode`]) are reviewed: hot ones ten times a second, cold ones with memory to
//! give back once a second. One that changes is hot.

use super::inheritance::QueuePlace;
use super::plan::QueueId;
use super::plan::load::History;
use super::policing::PortPolicer;
use datapath::Pmd;
use dpif::PortStats;
use flow::DpPort;
use netdev::{Lending, RxMode, RxQueue};
use packet::{PacketBatch, PacketPool};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use sys::WatchSet;
use sys::poll::PollSet;

/// Consecutive failures after which a queue is polled only once a second.
const ERRORS_MAX: u32 = 3;
/// Maximum number of queues that are all hot.
const FEW: usize = 8;
/// Bursts in a second that make a cold queue hot, and below which a hot one becomes cold. By estimate, not measured: at the
/// first number, visits of a queue cost as much as a thousand questions a second.
const WARM_BURSTS: u32 = 200;
const COLD_BURSTS: u32 = 100;
/// Time between two reviews.
const REVIEW_US: u64 = 100_000;
/// Maximum time between two looks at a queue that changes.
const CHANGING_LOOK: Duration = Duration::from_millis(1);

/// Longest time of reading frames that waited for this process no faster than their flows are made.
const CATCH_UP_MAX_US: u64 = 1_000_000;
/// Most packets of a port that wait for the slow path meanwhile: with a burst more they find room.
const CATCH_UP_WAITING: usize = 128;

/// A receive queue and its state.
pub(crate) struct Rx {
    pub(crate) port: DpPort,
    /// Its number in the port.
    number: u16,
    queue: Box<dyn RxQueue>,
    policer: Arc<PortPolicer>,
    /// Frames beyond the limits of its port.
    policed: u64,
    ready: bool,
    errors: u32,
    /// Bursts since the last [`RxSet::settle`], if `second` is that of the set.
    bursts: u32,
    second: u32,
    /// In the set of cold queues.
    cold: bool,
    /// Frames that waited for this process are read until then at most, as flows are made for them; 0: none wait.
    catches_up_until_us: u64,
    /// Cycles of its packets, not yet in `history`.
    pub(super) cycles: u64,
    pub(super) history: History,
}

impl Rx {
    pub(crate) fn numbered(id: QueueId, queue: Box<dyn RxQueue>, policer: Arc<PortPolicer>) -> Rx {
        let history = History::new(sys::clock::machine_us());
        Rx {
            port: id.port,
            number: id.queue,
            queue,
            policer,
            policed: 0,
            ready: true,
            errors: 0,
            bursts: COLD_BURSTS,
            second: 0,
            cold: false,
            catches_up_until_us: 0,
            cycles: 0,
            history,
        }
    }

    /// It is hot from now on, for a second at least.
    fn warm(&mut self) {
        (self.cold, self.ready) = (false, true);
        self.bursts = self.bursts.max(COLD_BURSTS);
    }

    pub(super) fn id(&self) -> QueueId {
        QueueId { port: self.port, queue: self.number }
    }

    /// Readable when frames wait.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.queue.fd()
    }

    /// Whether more frames may wait: the last burst was a whole one.
    pub(super) fn has_more(&self) -> bool {
        self.ready
    }

    /// Takes up to `max_packets` waiting frames.
    pub(crate) fn receive(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch, max_packets: usize) {
        let before = batch.len();
        match self.queue.recv(pool, batch, max_packets) {
            Ok(n) => {
                self.ready = n == max_packets;
                if !self.ready {
                    self.catches_up_until_us = 0;
                }
                self.bursts = self.bursts.saturating_add((n > 0).into());
                self.errors = 0;
                if n > 0 && self.policer.limits() {
                    self.policed += self.policer.police(batch, before, pool, sys::clock::monotonic_us());
                }
            }
            Err(e) => {
                self.ready = false;
                self.errors = self.errors.saturating_add(1);
                if self.errors == ERRORS_MAX {
                    let (port, queue) = (self.port, self.number);
                    log::warn!(target: "dpif_netdev", "port {port} receive queue {queue} keeps failing: {e}");
                }
            }
        }
    }

    /// Frames waited in it while no process received.
    pub(super) fn catch_up(&mut self) {
        self.catches_up_until_us = sys::clock::machine_us() + CATCH_UP_MAX_US;
    }

    /// Whether frames that waited must wait on, since too many before them, `waiting`, have no flow yet: all at once they would
    /// find no room.
    #[inline]
    pub(super) fn holds_back(&mut self, waiting: impl FnOnce() -> usize) -> bool {
        self.catches_up_until_us != 0 && self.catches_up(waiting)
    }

    #[cold]
    fn catches_up(&mut self, waiting: impl FnOnce() -> usize) -> bool {
        if sys::clock::machine_us() >= self.catches_up_until_us {
            self.catches_up_until_us = 0;
        }
        self.catches_up_until_us != 0 && waiting() >= CATCH_UP_WAITING
    }

    /// Lends the queue to another process.
    pub(super) fn lend(&mut self) -> io::Result<Lending> {
        self.queue.lend()
    }

    /// The other process has given up.
    pub(super) fn take_back(&mut self) {
        self.queue.take_back();
    }

    /// Where it stopped.
    pub(super) fn place(&self) -> QueuePlace {
        QueuePlace { port: self.port, queue: self.number, place: self.queue.place() }
    }

    /// Goes on where another process stopped.
    pub(super) fn go_on_at(&mut self, place: u32) {
        self.queue.go_on_at(place);
    }

    /// Adds the queue's lost frames.
    pub(crate) fn add_losses(&self, stats: &mut PortStats) {
        let lost = self.queue.counters();
        stats.rx_dropped += lost.kernel_drops + self.policed;
        stats.rx_policed += self.policed;
        stats.rx_malformed += lost.malformed;
        stats.rx_truncated += lost.truncated;
        stats.rx_errors += lost.malformed + lost.truncated;
    }
}

/// Nonzero counters of all ports in order of their numbers, for packets of this core and these queues.
pub(crate) fn counted<'r>(core: &Pmd, queues: impl Iterator<Item = &'r Rx>) -> Vec<(DpPort, PortStats)> {
    let nothing = PortStats::default();
    let counters = core.all_port_counters().filter(|(_, stats)| **stats != nothing);
    let mut all: Vec<_> = counters.map(|(port, stats)| (port, *stats)).collect();
    for rx in queues {
        let mut lost = nothing;
        rx.add_losses(&mut lost);
        if lost == nothing {
            continue;
        }
        match all.binary_search_by_key(&rx.port, |(port, _)| *port) {
            Ok(at) => all[at].1.add(&lost),
            Err(at) => all.insert(at, (rx.port, lost)),
        }
    }
    all
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct RxSet {
    /// Queues have a fixed index.
    places: Vec<Option<Rx>>,
    /// Indices of hot queues.
    hot: Vec<usize>,
    /// The cold queues by index; allocated with the first one.
    cold: Option<WatchSet>,
    /// Indices of cold queues that had frames at the last look.
    guests: Vec<usize>,
    /// Counts calls of [`Self::settle`].
    second: u32,
    /// Indices of cold queues with memory to give back; of others too.
    fast: Vec<usize>,
    /// Indices of hot queues that change; of others too.
    changing: Vec<usize>,
    next_review_us: u64,
}

impl RxSet {
    /// Adds a queue, polled at once.
    pub(super) fn add(&mut self, rx: Rx) {
        let rx = Some(Rx { ready: true, bursts: COLD_BURSTS, second: self.second, cold: false, ..rx });
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[place] = rx;
        self.hot.push(place);
        // It may come from another thread in the middle of a change.
        self.note_change(place);
    }

    fn note_change(&mut self, place: usize) {
        if self.is_in(place, RxMode::Changing) && !self.changing.contains(&place) {
            self.changing.push(place);
        }
    }

    fn is_in(&self, place: usize, mode: RxMode) -> bool {
        self.places.get(place).and_then(Option::as_ref).is_some_and(|rx| rx.queue.mode() == mode)
    }

    /// Takes out the queues selected by `gone`, in index order.
    pub(super) fn remove(&mut self, gone: impl Fn(&Rx) -> bool) -> Vec<Rx> {
        let cold = &mut self.cold;
        let out = self.places.iter_mut().filter_map(|place| {
            let rx = place.take_if(|rx| gone(rx))?;
            if let Some(cold) = cold.as_mut().filter(|_| rx.cold) {
                cold.remove(rx.queue.fd());
            }
            Some(rx)
        });
        let out = out.collect();
        self.hot.retain(|place| self.places[*place].is_some());
        self.guests.retain(|place| self.places[*place].is_some());
        out
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Rx> {
        self.places.iter().flatten()
    }

    /// All of them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Rx> {
        self.places.iter_mut().flatten()
    }

    /// Number of queues to poll: hot ones, then guests.
    pub(super) fn polled_len(&self) -> usize {
        self.hot.len() + self.guests.len()
    }

    fn polled(&self, n: usize) -> Option<usize> {
        self.hot.get(n).or_else(|| self.guests.get(n.checked_sub(self.hot.len())?)).copied()
    }

    /// The `n`-th queue to poll with its place, if it may have frames.
    pub(super) fn ready(&mut self, n: usize) -> Option<(usize, &mut Rx)> {
        let place = self.polled(n)?;
        self.places[place].as_mut().filter(|rx| rx.ready).map(|rx| (place, rx))
    }

    /// Accounts for cycles of packets of the queue at `place`.
    pub(super) fn spent(&mut self, place: usize, cycles: u64) {
        self.places.get_mut(place).into_iter().flatten().for_each(|rx| rx.cycles += cycles);
    }

    /// Asks the kernel for readable queues; waits for one, for `waker` or for the timeout.
    pub(super) fn look(&mut self, timeout: Option<Duration>, waker: Option<&sys::Waker>) {
        let timeout = if self.changing.is_empty() {
            timeout
        } else {
            self.look_at_changing();
            Some(timeout.map_or(CHANGING_LOOK, |timeout| timeout.min(CHANGING_LOOK)))
        };
        let mut set = PollSet::new();
        let mut asked = Vec::with_capacity(self.hot.len());
        for place in &self.hot {
            if let Some(rx) = self.places[*place].as_ref().filter(|rx| rx.errors < ERRORS_MAX) {
                asked.push((*place, set.add(rx.queue.fd(), false)));
            }
        }
        let cold_at =
            self.cold.as_ref().filter(|cold| !cold.is_empty()).map(|cold| set.add(cold.fd(), false));
        let woken_at = waker.map(|w| set.add(w.fd(), false));
        if set.wait(timeout).is_err() {
            return;
        }
        asked.retain(|(_, at)| set.ready(*at).readable);
        let warmer = cold_at.is_some_and(|at| set.ready(at).readable);
        let woken = woken_at.is_some_and(|at| set.ready(at).readable);
        drop(set);
        for (place, _) in asked {
            self.places[place].iter_mut().for_each(|rx| rx.ready = true);
        }
        // Those with frames left are reported again.
        self.guests.clear();
        if warmer {
            self.invite();
        }
        if let Some(waker) = waker.filter(|_| woken) {
            waker.drain();
        }
    }

    /// Lets queues that change be polled, whatever their descriptors say.
    #[cold]
    fn look_at_changing(&mut self) {
        let mut changing = std::mem::take(&mut self.changing);
        changing.retain(|place| {
            let still = self.is_in(*place, RxMode::Changing);
            if still && let Some(rx) = &mut self.places[*place] {
                rx.ready = true;
            }
            still
        });
        self.changing = changing;
    }

    /// Reviews hot queues, if it is time.
    #[inline]
    pub(super) fn review(&mut self, now_us: u64) {
        if now_us >= self.next_review_us {
            self.next_review_us = now_us + REVIEW_US;
            self.review_hot(now_us);
        }
    }

    fn review_hot(&mut self, now_us: u64) {
        for n in 0..self.hot.len() {
            let place = self.hot[n];
            if let Some(rx) = &mut self.places[place] {
                rx.queue.review(now_us);
                self.note_change(place);
            }
        }
    }

    /// Reviews cold queues with memory to give back. One that begins to do so becomes hot.
    fn review_cold(&mut self, now_us: u64) {
        let mut fast = std::mem::take(&mut self.fast);
        fast.retain(|place| {
            let Some(rx) = self.places.get_mut(*place).and_then(Option::as_mut).filter(|rx| rx.cold) else {
                return false;
            };
            rx.queue.review(now_us);
            match (rx.queue.mode(), &mut self.cold) {
                (RxMode::Changing, Some(cold)) => {
                    cold.remove(rx.queue.fd());
                    rx.warm();
                    self.hot.push(*place);
                    self.changing.push(*place);
                    false
                }
                (mode, _) => mode == RxMode::Fast,
            }
        });
        self.fast = fast;
    }

    /// Makes readable cold queues guests, or hot: those with many bursts, with failures, and with memory that adapts, which
    /// hot queues are reviewed for.
    fn invite(&mut self) {
        let Some(cold) = &mut self.cold else { return };
        for place in cold.ready() {
            let place = place as usize;
            let Some(rx) = self.places.get_mut(place).and_then(Option::as_mut).filter(|rx| rx.cold) else {
                continue;
            };
            if rx.second != self.second {
                (rx.second, rx.bursts) = (self.second, 0);
            }
            if rx.bursts < WARM_BURSTS && rx.errors == 0 && rx.queue.mode() == RxMode::Idle {
                rx.ready = true;
                self.guests.push(place);
            } else {
                cold.remove(rx.queue.fd());
                rx.warm();
                self.hot.push(place);
            }
        }
    }

    /// Once a second: hot queues with few bursts become cold, and failed ones are tried again.
    pub(super) fn settle(&mut self, now_us: u64) {
        self.review_cold(now_us);
        let few = self.iter().nth(FEW).is_none();
        self.second = self.second.wrapping_add(1);
        let RxSet { places, hot, cold, fast, second, .. } = self;
        hot.retain(|place| {
            let Some(rx) = &mut places[*place] else { return false };
            rx.ready |= rx.errors >= ERRORS_MAX;
            let idle = rx.bursts < COLD_BURSTS && !rx.ready && rx.errors == 0;
            (rx.bursts, rx.second) = (0, *second);
            let mode = rx.queue.mode();
            rx.cold = idle && !few && mode != RxMode::Changing && cool(cold, rx, *place);
            if rx.cold && mode == RxMode::Fast && !fast.contains(place) {
                fast.push(*place);
            }
            !rx.cold
        });
    }
}

/// Moves a queue into the set of cold ones; `false` if impossible (too many descriptors): it stays hot then.
fn cool(cold: &mut Option<WatchSet>, rx: &Rx, place: usize) -> bool {
    if cold.is_none() {
        *cold = WatchSet::new().ok();
    }
    cold.as_mut().is_some_and(|cold| cold.add(rx.queue.fd(), place as u64).is_ok())
}

#[cfg(test)]
mod tests;
