//! Queues with frames are found, hot or cold.

use super::*;
use netdev::RxCounters;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use sys::Waker;

/// A queue with one frame while its waker is set.
struct Fake {
    waker: Arc<Waker>,
    fails: Arc<AtomicBool>,
}

impl RxQueue for Fake {
    fn fd(&self) -> BorrowedFd<'_> {
        self.waker.fd()
    }

    fn recv(&mut self, pool: &mut PacketPool, batch: &mut PacketBatch, _: usize) -> std::io::Result<usize> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(std::io::Error::from_raw_os_error(100));
        }
        let had = self.waker.drain();
        if had {
            batch.push(pool.alloc(60));
        }
        Ok(had.into())
    }

    fn counters(&self) -> RxCounters {
        RxCounters::default()
    }
}

struct Rig {
    set: RxSet,
    wakers: Vec<Arc<Waker>>,
    fails: Vec<Arc<AtomicBool>>,
}

impl Rig {
    fn new(queues: u32) -> Rig {
        let mut rig = Rig { set: RxSet::default(), wakers: Vec::new(), fails: Vec::new() };
        (0..queues).for_each(|port| rig.add(port));
        rig
    }

    fn add(&mut self, port: u32) {
        let (waker, fails) = (Arc::new(Waker::new().unwrap()), Arc::new(AtomicBool::new(false)));
        let id = QueueId { port: DpPort(port), queue: 0 };
        self.set.add(Rx::numbered(
            id,
            Box::new(Fake { waker: waker.clone(), fails: fails.clone() }),
            Default::default(),
        ));
        self.wakers.push(waker);
        self.fails.push(fails);
    }

    /// A check and a pass; returns the ports that had frames.
    fn pass(&mut self) -> Vec<u32> {
        self.set.look(Some(Duration::ZERO), None);
        let (mut pool, mut batch, mut had) = (PacketPool::new(), PacketBatch::new(), Vec::new());
        for n in 0..self.set.hot_len() {
            let Some(rx) = self.set.ready(n) else { continue };
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
            self.set.settle();
        }
    }
}

#[test]
fn few_queues_are_all_hot() {
    let mut rig = Rig::new(FEW as u32);
    rig.idle();
    assert_eq!(rig.set.hot_len(), FEW);
    rig.wakers[3].wake();
    assert_eq!(rig.pass(), [3]);
}

#[test]
fn a_cold_queue_is_found_at_once_and_stays_hot_while_it_has_frames() {
    let mut rig = Rig::new(20);
    rig.idle();
    assert_eq!(rig.set.hot_len(), 0);
    for round in 0..3 {
        rig.wakers[7].wake();
        rig.wakers[13].wake();
        let mut had = rig.pass();
        had.sort_unstable();
        assert_eq!(had, [7, 13], "round {round}");
        assert_eq!(rig.set.hot_len(), 2);
        rig.set.settle();
    }
    rig.idle();
    assert_eq!(rig.set.hot_len(), 0);
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
    let tried = |rig: &mut Rig| (0..rig.set.hot_len()).any(|n| rig.set.ready(n).is_some());
    rig.set.look(Some(Duration::ZERO), None);
    assert!(!tried(&mut rig), "not at each look");
    rig.fails[4].store(false, Ordering::Relaxed);
    rig.set.settle();
    assert_eq!(rig.pass(), [4], "but once a second");
    rig.idle();
    assert_eq!(rig.set.hot_len(), 0);
}
