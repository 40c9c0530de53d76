//! Queues with frames are found, hot or cold.

use super::*;
use netdev::RxCounters;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::Waker;

/// A queue with one frame while its waker is set. It has memory to give back after a frame; the next review begins to do
/// so, and the next call ends it, with another descriptor.
struct Fake {
    waker: Arc<Waker>,
    fails: Arc<AtomicBool>,
    mode: RxMode,
    /// Its memory adapts to its traffic.
    adapts: bool,
    other: Waker,
}

impl RxQueue for Fake {
    fn fd(&self) -> BorrowedFd<'_> {
        if self.mode == RxMode::Fast { self.other.fd() } else { self.waker.fd() }
    }

    fn mode(&self) -> RxMode {
        self.mode
    }

    fn review(&mut self, now_us: u64) {
        if self.mode == RxMode::Fast && now_us >= GIVE_BACK_US {
            self.mode = RxMode::Changing;
        }
    }

    fn recv(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch, _: usize) -> std::io::Result<usize> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(std::io::Error::from_raw_os_error(100));
        }
        let had = self.waker.drain();
        if had {
            batch.push(pool.alloc(60));
        }
        self.mode = match self.mode {
            RxMode::Changing => RxMode::Idle,
            _ if had && self.adapts => RxMode::Fast,
            mode => mode,
        };
        Ok(had.into())
    }

    fn counters(&self) -> RxCounters {
        RxCounters::default()
    }
}

/// When a [`Fake`] gives memory back.
const GIVE_BACK_US: u64 = 5_000_000;

struct Rig {
    set: RxSet,
    adapts: bool,
    wakers: Vec<Arc<Waker>>,
    fails: Vec<Arc<AtomicBool>>,
}

impl Rig {
    fn new(queues: u32) -> Rig {
        let mut rig = Rig { set: RxSet::default(), adapts: false, wakers: Vec::new(), fails: Vec::new() };
        (0..queues).for_each(|port| rig.add(port));
        rig
    }

    fn add(&mut self, port: u32) {
        let (waker, fails) = (Arc::new(Waker::new().unwrap()), Arc::new(AtomicBool::new(false)));
        let id = QueueId { port: DpPort(port), queue: 0 };
        self.set.add(Rx::numbered(
            id,
            Box::new(Fake {
                waker: waker.clone(),
                fails: fails.clone(),
                mode: RxMode::Idle,
                adapts: self.adapts,
                other: Waker::new().unwrap(),
            }),
            Default::default(),
        ));
        self.wakers.push(waker);
        self.fails.push(fails);
    }

    /// A check and a pass; returns the ports that had frames.
    fn pass(&mut self) -> Vec<u32> {
        self.set.look(Some(Duration::ZERO), None);
        let (mut pool, mut batch, mut had) = (PacketPool::new(), PacketBatch::new(), Vec::new());
        for n in 0..self.set.polled_len() {
            let Some((_, rx)) = self.set.ready(n) else { continue };
            let port = rx.port.0;
            rx.receive(&mut pool, &mut batch, 32);
            had.extend((!batch.is_empty()).then_some(port));
            batch.free_into(&mut pool);
        }
        had
    }

    /// Seconds without frames, until idle queues are cold.
    fn idle(&mut self) {
        for _ in 0..2 {
            assert!(self.pass().is_empty());
            self.set.settle(0);
        }
    }
}

#[test]
fn few_queues_are_all_hot() {
    let mut rig = Rig::new(FEW as u32);
    rig.idle();
    assert_eq!(rig.set.hot.len(), FEW);
    rig.wakers[3].wake();
    assert_eq!(rig.pass(), [3]);
}

#[test]
fn a_cold_queue_is_found_at_once_and_hot_while_it_has_many_bursts() {
    let mut rig = Rig::new(20);
    rig.idle();
    let mut rounds = |count: u32, hot: usize| {
        for round in 0..count {
            rig.wakers[7].wake();
            rig.wakers[13].wake();
            let mut had = rig.pass();
            had.sort_unstable();
            assert_eq!(had, [7, 13], "round {round}");
        }
        assert_eq!(rig.set.hot.len(), hot, "after {count} rounds");
        rig.set.settle(0);
        rig.set.hot.len()
    };
    // The last burst of the first number is seen at the next look.
    assert_eq!(rounds(WARM_BURSTS, 0), 0);
    assert_eq!(rounds(WARM_BURSTS - 1, 0), 0);
    assert_eq!(rounds(WARM_BURSTS + 1, 2), 2);
    assert_eq!(rounds(COLD_BURSTS, 2), 2);
    assert_eq!(rounds(COLD_BURSTS - 1, 2), 0);
    assert_eq!(rounds(3, 0), 0);
    assert!(rig.pass().is_empty());
}

#[test]
fn a_sleep_ends_when_a_cold_queue_has_something() {
    let mut rig = Rig::new(20);
    rig.idle();
    let (set, waker) = (&mut rig.set, rig.wakers[19].clone());
    std::thread::scope(|scope| {
        scope.spawn(|| waker.wake());
        // Without a timeout: it hangs if the queue is not seen.
        set.look(None, None);
    });
    assert_eq!(rig.pass(), [19]);
}

#[test]
fn more_readable_queues_than_one_call_reports_are_all_found() {
    let mut rig = Rig::new(200);
    rig.idle();
    rig.wakers.iter().for_each(|w| w.wake());
    let mut had = Vec::new();
    for _ in 0..10 {
        had.extend(rig.pass());
    }
    had.sort_unstable();
    assert_eq!(had, (0..200).collect::<Vec<_>>());
}

#[test]
fn queues_come_and_go_hot_or_cold() {
    let mut rig = Rig::new(20);
    rig.idle();
    rig.wakers[5].wake();
    assert_eq!(rig.pass(), [5]);
    // One hot, one cold.
    let gone: Vec<u32> =
        rig.set.remove(|rx| [5, 6].contains(&rx.port.0)).iter().map(|rx| rx.port.0).collect();
    assert_eq!(gone, [5, 6]);
    rig.wakers[6].wake();
    assert!(rig.pass().is_empty(), "a queue that is gone is not looked at");
    // Another one takes its index.
    rig.add(99);
    rig.wakers[20].wake();
    assert_eq!(rig.pass(), [99]);
    rig.idle();
    rig.wakers[20].wake();
    assert_eq!(rig.pass(), [99]);
    assert_eq!(rig.set.iter().count(), 19);
}

#[test]
fn a_queue_that_fails_is_tried_once_a_second_and_works_again() {
    let mut rig = Rig::new(20);
    rig.idle();
    rig.fails[4].store(true, Ordering::Relaxed);
    rig.wakers[4].wake();
    for _ in 0..ERRORS_MAX {
        assert!(rig.pass().is_empty());
    }
    let tried = |rig: &mut Rig| (0..rig.set.polled_len()).any(|n| rig.set.ready(n).is_some());
    rig.set.look(Some(Duration::ZERO), None);
    assert!(!tried(&mut rig), "not at each look");
    rig.fails[4].store(false, Ordering::Relaxed);
    rig.set.settle(0);
    assert_eq!(rig.pass(), [4], "but once a second");
    rig.idle();
    assert_eq!(rig.set.hot.len(), 0);
}

#[test]
fn a_cold_queue_gives_its_memory_back() {
    let mut rig = Rig::new(20);
    rig.adapts = true;
    rig.add(99);
    rig.wakers[20].wake();
    assert_eq!(rig.pass(), [99]);
    rig.idle();
    assert_eq!((rig.set.hot.len(), rig.set.fast.len()), (0, 1));
    rig.set.review(GIVE_BACK_US);
    assert_eq!(rig.set.hot.len(), 0, "cold queues are not reviewed as often as hot ones");
    rig.set.settle(GIVE_BACK_US);
    assert_eq!((rig.set.hot.len(), rig.set.changing.len()), (1, 1));
    // It is polled although its descriptor is not readable, and does not become cold meanwhile.
    assert!(rig.pass().is_empty());
    rig.idle();
    assert_eq!((rig.set.hot.len(), rig.set.fast.len(), rig.set.changing.len()), (0, 0, 0));
    rig.wakers[20].wake();
    assert_eq!(rig.pass(), [99], "by its other descriptor");
}

#[test]
fn hot_queues_are_reviewed_ten_times_a_second() {
    let mut rig = Rig::new(1);
    rig.adapts = true;
    rig.add(99);
    rig.wakers[1].wake();
    assert_eq!(rig.pass(), [99]);
    rig.set.review(GIVE_BACK_US - 1);
    assert!(rig.set.changing.is_empty());
    rig.set.review(GIVE_BACK_US);
    assert!(rig.set.changing.is_empty(), "not yet");
    rig.set.review(GIVE_BACK_US - 1 + REVIEW_US);
    assert_eq!(rig.set.changing.len(), 1);
    // Another thread goes on with it.
    let moved = rig.set.remove(|rx| rx.port == DpPort(99));
    let mut other = Rig::new(0);
    moved.into_iter().for_each(|rx| other.set.add(rx));
    assert_eq!(other.set.changing.len(), 1);
    // Without a limit of its own: it hangs if the queue is not polled at once.
    other.set.look(None, None);
    assert!(other.set.ready(0).is_some());
}
