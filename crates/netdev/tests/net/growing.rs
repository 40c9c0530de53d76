//! Receive queues that get a ring with their traffic and give it back: no frame is lost, doubled or overtaken.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use netdev::{RxCounters, RxMethod, RxMode, SystemOptions};
use packet::{BURST_MAX_PACKETS, Packet, PacketBatch, PacketPool};

use crate::helpers::*;

/// Microseconds of the virtual clock between two reviews of a fast queue.
const WINDOW_US: u64 = 100_000;
/// Frames on their way at most: less than the ring holds, and the queue of a processor in the kernel.
const UNDERWAY: u32 = 512;

/// A frame with a number of four bytes.
fn numbered(number: u32) -> Packet {
    let mut p = frame(0, 64);
    p.data_mut()[14..18].copy_from_slice(&number.to_be_bytes());
    p
}

fn number(p: &Packet) -> u32 {
    u32::from_be_bytes(p.data()[14..18].try_into().unwrap())
}

/// A receiver with its own clock, which checks the order of all frames.
struct Receiver {
    end: End,
    next: u32,
    received: Arc<AtomicU32>,
    now_us: u64,
}

impl Receiver {
    fn new(name: &str) -> Receiver {
        let end = End::system(name, &SystemOptions::default());
        assert_eq!(end.rx.mode(), RxMode::Idle);
        Receiver { end, next: 0, received: Arc::default(), now_us: 1 }
    }

    /// Takes waiting frames; each is the next one.
    fn take(&mut self) -> usize {
        let mut batch = PacketBatch::new();
        let got = self.end.rx.recv(&mut self.end.pool, &mut batch, 32).unwrap();
        assert_eq!(got, batch.len());
        for p in batch.packets().iter().filter(|p| is_test_frame(p)) {
            assert_eq!(number(p), self.next, "in mode {:?}", self.end.rx.mode());
            self.next += 1;
        }
        batch.free_into(&mut self.end.pool);
        self.received.store(self.next, Ordering::Relaxed);
        got
    }

    fn review(&mut self, us: u64) {
        self.now_us += us;
        self.end.rx.review(self.now_us);
    }

    /// Receives, with reviews of fast windows, until the queue has that mode.
    fn until(&mut self, mode: RxMode, us: u64) {
        let deadline = Instant::now() + LIMIT;
        let mut frames = 0;
        while self.end.rx.mode() != mode {
            assert!(Instant::now() < deadline, "mode {:?} in place of {mode:?}", self.end.rx.mode());
            frames += self.take();
            // 2,000 frames are fast for the shortest window.
            if frames >= 2_000 || us > WINDOW_US {
                frames = 0;
                self.review(us);
            }
        }
    }

    fn until_received(&mut self, count: u32) {
        let deadline = Instant::now() + LIMIT;
        while self.next < count {
            assert!(
                Instant::now() < deadline,
                "{} of {count} frames, {:?}",
                self.next,
                self.end.rx.counters()
            );
            self.take();
        }
    }
}

/// Sends numbered frames from one processor until told to end; returns their number.
struct Sender {
    ends: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u32>,
}

impl Sender {
    fn start(mut end: End, received: Arc<AtomicU32>) -> Sender {
        let ends = Arc::new(AtomicBool::new(false));
        let end_of = ends.clone();
        let thread = std::thread::spawn(move || {
            sys::thread::pin_thread(usize::from(sys::thread::cpu())).unwrap();
            let mut sent = 0;
            while !end_of.load(Ordering::Relaxed) {
                if sent - received.load(Ordering::Relaxed) + 32 > UNDERWAY {
                    std::thread::yield_now();
                    continue;
                }
                let report = end.send((sent..sent + 32).map(numbered));
                assert_eq!(report.sent_packets, 32);
                sent += 32;
            }
            sent
        });
        Sender { ends, thread }
    }

    fn end(self) -> u32 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn no_frame_is_lost_doubled_or_overtaken_while_the_ring_comes_and_goes() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let mut b = Receiver::new("sl-b");
        let sender = Sender::start(End::system("sl-a", &SystemOptions::default()), b.received.clone());
        let rounds = if testkit::long() { 200 } else { 6 };
        for _ in 0..rounds {
            b.until(RxMode::Fast, WINDOW_US);
            // By this clock the frames come slowly now.
            b.until(RxMode::Changing, 20_000_000);
            b.until(RxMode::Idle, WINDOW_US / 2);
        }
        let sent = sender.end();
        b.until_received(sent);
        assert_eq!(b.take(), 0);
        assert_eq!(b.end.rx.counters(), RxCounters::default());
    });
}

#[test]
fn an_idle_queue_takes_a_burst_of_thousands() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let (mut a, mut b) = (End::system("sl-a", &SystemOptions::default()), Receiver::new("sl-b"));
        // Nobody reads meanwhile.
        for from in (0..4096).step_by(64) {
            assert_eq!(a.send((from..from + 64).map(numbered)).sent_packets, 64);
            // A burst from outside has no bound of the sender's processor (`netdev_max_backlog`).
            std::thread::sleep(Duration::from_millis(1));
        }
        b.until_received(4096);
        assert_eq!(b.end.rx.counters(), RxCounters::default());
        // A single burst is no reason for a ring.
        b.review(WINDOW_US);
        assert_eq!(b.end.rx.mode(), RxMode::Idle);
    });
}

#[test]
fn the_ring_survives_a_device_that_goes_down() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let mut b = Receiver::new("sl-b");
        let sender = Sender::start(End::system("sl-a", &SystemOptions::default()), b.received.clone());
        b.until(RxMode::Fast, WINDOW_US);
        let sent = sender.end();
        b.until_received(sent);
        ip("link set sl-b down");
        ip("link set sl-b up");
        wait_up("sl-b");
        let mut a = End::system("sl-a", &SystemOptions::default());
        let mut pool = PacketPool::new();
        let mut batch = PacketBatch::new();
        // Its error, once.
        while b.end.rx.recv(&mut pool, &mut batch, BURST_MAX_PACKETS).is_ok_and(|_| wait(&*b.end.rx, 0)) {}
        batch.free_into(&mut pool);
        a.send((sent..sent + 100).map(numbered));
        b.until_received(sent + 100);
        assert_eq!(b.end.rx.mode(), RxMode::Fast);
        b.until(RxMode::Changing, 20_000_000);
        b.until(RxMode::Idle, 20_000_000);
        a.send((sent + 100..sent + 200).map(numbered));
        b.until_received(sent + 200);
    });
}

#[test]
fn a_fixed_method_never_changes() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        for (rx_method, n_rxq) in [(RxMethod::Ring, 1), (RxMethod::Recvmmsg, 1), (RxMethod::Grow, 2)] {
            let options = SystemOptions { rx_method, n_rxq, ..SystemOptions::default() };
            let mut b = End::system("sl-b", &options);
            for now in 1..100 {
                b.rx.review(now * WINDOW_US);
                assert_eq!(b.rx.mode(), RxMode::Idle);
            }
        }
    });
}

#[test]
fn an_overloaded_queue_keeps_less() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let (mut a, mut b) = (End::system("sl-a", &SystemOptions::default()), Receiver::new("sl-b"));
        // Bytes of the frames that wait, and their maximum (`SK_MEMINFO_RMEM_ALLOC`, `SK_MEMINFO_RCVBUF`).
        let memory = |b: &Receiver| {
            let (mut values, mut len) = ([0u32; 9], size_of::<[u32; 9]>() as u32);
            // SAFETY: nine integers and their length.
            let got = unsafe {
                let at = values.as_mut_ptr().cast();
                libc::getsockopt(b.end.rx.fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, at, &mut len)
            };
            assert_eq!(got, 0);
            (values[0], values[1])
        };
        let buffer = |b: &Receiver| memory(b).1;
        let usual = buffer(&b);
        assert!(usual >= 4096 * 2304, "4,096 frames of 1,500 bytes fit: {usual}");
        b.review(WINDOW_US);
        for from in (0..32 * 20).step_by(32) {
            a.send((from..from + 32).map(numbered));
        }
        let frame_bytes = 512;
        testkit::wait_for(LIMIT, "all frames wait", || memory(&b).0 >= 32 * 20 * frame_bytes).unwrap();
        for _ in 0..12 {
            // A whole burst each time: more may wait.
            assert_eq!(b.take(), 32);
            b.review(WINDOW_US);
        }
        assert!(buffer(&b) <= 1 << 20, "{}", buffer(&b));
        b.until_received(32 * 20);
        assert_eq!(b.take(), 0);
        b.review(WINDOW_US);
        assert_eq!(buffer(&b), usual);
    });
}
