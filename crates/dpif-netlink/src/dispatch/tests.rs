//! Handlers on fake sockets: no upcall is lost, duplicated or reordered, whichever handler serves it.

use super::*;
use dpif::testing;
use dpif::{PmdId, UpcallKind};
use std::collections::HashSet;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;
use sync::AtomicUsize;

const LONG: Duration = Duration::from_secs(60);

/// A socket without a kernel.
#[derive(Clone)]
struct Fake {
    pid: u32,
    inner: Arc<Inner>,
}

struct Inner {
    ready: sys::Waker,
    queue: Mutex<VecDeque<Box<Upcall>>>,
    overruns: AtomicU64,
    reads: AtomicUsize,
}

impl Fake {
    fn new(pid: u32) -> Fake {
        let inner = Inner {
            ready: sys::Waker::new().unwrap(),
            queue: Mutex::default(),
            overruns: AtomicU64::new(0),
            reads: AtomicUsize::new(0),
        };
        Fake { pid, inner: Arc::new(inner) }
    }

    fn send(&self, port: u32, name: u64) {
        let upcall = testing::upcall(DpPort(port), name.into(), UpcallKind::Miss, PmdId::None);
        lock(&self.inner.queue).push_back(upcall);
        self.inner.ready.wake();
    }
}

impl Source for Fake {
    fn fd(&self) -> BorrowedFd<'_> {
        self.inner.ready.fd()
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn read(&self, max: usize) -> Read {
        self.inner.reads.fetch_add(1, Ordering::Relaxed);
        let mut queue = lock(&self.inner.queue);
        assert!(max >= READ_LEAST);
        let upcalls: Upcalls = std::iter::from_fn(|| queue.pop_front()).take(max).collect();
        let emptied = queue.is_empty();
        Read { upcalls, emptied, overruns: self.inner.overruns.swap(0, Ordering::Relaxed) }
    }
}

/// Handlers that report received upcalls until stopped.
struct Handlers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Handlers {
    fn start(dispatch: &Arc<Dispatch>, count: usize, reported: &Sender<(usize, u32, u64)>) -> Handlers {
        let stop = Arc::new(AtomicBool::new(false));
        let ends = dispatch.set_handlers(count).unwrap().into_iter().enumerate();
        let threads = ends.map(|(n, mut end)| {
            let (stop, reported) = (stop.clone(), reported.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    for u in end.take(LONG) {
                        reported.send((n, u.rx_port.0, u.ufid.0 as u64)).unwrap();
                    }
                }
            })
        });
        Handlers { stop: stop.clone(), threads: threads.collect() }
    }

    fn end(self, dispatch: &Dispatch) {
        self.stop.store(true, Ordering::Release);
        dispatch.wake();
        self.threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

/// Ports with a socket each.
fn ports(dispatch: &Arc<Dispatch>, count: u32) -> Vec<Fake> {
    let add = |n| {
        let fake = Fake::new(n + 1000);
        dispatch.port_add(DpPort(n), Some(Box::new(fake.clone()))).unwrap();
        fake
    };
    (0..count).map(add).collect()
}

#[test]
fn shared_sockets_lose_nothing_and_keep_each_ports_order() {
    const PORTS: u32 = 40;
    const EACH: u64 = 300;
    let dispatch = Arc::new(Dispatch::new(Mode::PerPort));
    let fakes = ports(&dispatch, PORTS);
    let (reported, heard) = channel();
    let mut handlers = Handlers::start(&dispatch, 4, &reported);
    let mut from = vec![0; PORTS as usize];
    let mut next = vec![0; PORTS as usize];
    let mut total = 0;
    for name in 0..EACH {
        fakes.iter().enumerate().for_each(|(port, fake)| fake.send(port as u32, name));
        // Handlers start and end while upcalls wait.
        if name % 100 == 50 {
            handlers.end(&dispatch);
            handlers = Handlers::start(&dispatch, 1 + (name / 100) as usize * 2, &reported);
        }
    }
    while total < u64::from(PORTS) * EACH {
        let (handler, port, name) = heard.recv_timeout(LONG).expect("an upcall stayed behind");
        assert_eq!(name, next[port as usize], "port {port}: one is missing, came twice or out of order");
        next[port as usize] += 1;
        from[port as usize] |= 1 << handler;
        total += 1;
    }
    assert!(heard.try_recv().is_err());
    handlers.end(&dispatch);
    // As many sockets as ports, whatever the number of handlers.
    assert_eq!((dispatch.sockets(), dispatch.pid_of(DpPort(7))), (PORTS as usize, Some(1007)));
    let refused: u64 =
        (0..PORTS).map(|n| dispatch.port(DpPort(n)).unwrap().refused.load(Ordering::Relaxed)).sum();
    assert_eq!(refused, 0);
}

/// While one handler is busy another one takes new upcalls, and under load all handlers get work.
#[test]
fn work_is_spread_and_a_busy_handler_blocks_no_port() {
    let dispatch = Arc::new(Dispatch::new(Mode::PerPort));
    let fakes = ports(&dispatch, 8);
    let mut ends = dispatch.set_handlers(2).unwrap();
    let (busy, idle) = ends.split_at_mut(1);
    // The first one serves a packet of port 0; it does not wait.
    fakes[0].send(0, 1);
    assert_eq!(busy[0].take(LONG).len(), 1);
    let worker = std::thread::scope(|scope| {
        let idle = &mut idle[0];
        let waits = scope.spawn(move || {
            // It may also be woken for port 0, which it does not own.
            std::iter::repeat_with(|| idle.take(LONG)).find(|taken| !taken.is_empty()).unwrap()
        });
        fakes[3].send(3, 2);
        waits.join().unwrap()
    });
    assert_eq!(worker.iter().map(|u| u.ufid.0).collect::<Vec<_>>(), [2]);
    drop(ends);

    let (reported, heard) = channel();
    let handlers = Handlers::start(&dispatch, 3, &reported);
    let mut by_handler = [0; 3];
    let mut seen = HashSet::new();
    let end = Instant::now() + LONG;
    let mut name = 0;
    // Each upcall alone: the first waiter of a port receives it.
    while by_handler.contains(&0) {
        assert!(Instant::now() < end, "one of the handlers gets nothing: {by_handler:?}");
        for (port, fake) in fakes.iter().enumerate() {
            name += 1;
            fake.send(port as u32, name);
            let (handler, _, name) = heard.recv_timeout(LONG).unwrap();
            by_handler[handler] += 1;
            assert!(seen.insert(name));
        }
    }
    handlers.end(&dispatch);
}

#[test]
fn a_full_queue_leaves_the_rest_in_the_ports_own_socket() {
    let dispatch = Arc::new(Dispatch::new(Mode::PerPort));
    let fakes = ports(&dispatch, 2);
    let mut ends = dispatch.set_handlers(1).unwrap();
    (0..10_000).for_each(|n| fakes[0].send(0, n));
    fakes[1].send(1, 77);
    let (mut order, mut turns, mut other) = (Vec::new(), 0, None);
    while order.len() < 10_000 || other.is_none() {
        turns += 1;
        for upcall in ends[0].take(LONG) {
            match upcall.rx_port {
                DpPort(0) => order.push(upcall.ufid.0),
                _ => other = Some(turns),
            }
        }
        assert!(lock(&fakes[0].inner.queue).len() >= 9000 || turns > 1, "all was read at once");
    }
    assert!(other <= Some(3), "the other port's upcall waited for {other:?} turns");
    assert_eq!(order, (0..10_000).collect::<Vec<u128>>());
    assert_eq!(dispatch.port(DpPort(0)).unwrap().refused.load(Ordering::Relaxed), 0);
}

#[test]
fn a_processors_socket_is_emptied_and_the_flooding_port_loses() {
    let dispatch = Arc::new(Dispatch::new(Mode::PerCpu));
    let cpus: Vec<Fake> = (0..2).map(Fake::new).collect();
    for (n, cpu) in cpus.iter().enumerate() {
        dispatch.cpu_add(n as u32, Box::new(cpu.clone())).unwrap();
    }
    (1..4).for_each(|n| dispatch.port_add(DpPort(n), None).unwrap());
    // One handler serves both.
    let mut ends = dispatch.set_handlers(1).unwrap();
    (0..5000).for_each(|n| cpus[0].send(1, n));
    cpus[0].send(2, 9001);
    cpus[1].send(3, 9002);
    cpus[0].inner.overruns.store(2, Ordering::Relaxed);
    let mut got = HashSet::new();
    loop {
        let taken = ends[0].take(Duration::ZERO);
        got.extend(taken.iter().map(|u| u.ufid.0));
        if taken.is_empty() && cpus.iter().all(|c| lock(&c.inner.queue).is_empty()) {
            break;
        }
    }
    assert!(got.contains(&9001) && got.contains(&9002));
    let lost = |port| {
        let state = dispatch.port(DpPort(port)).unwrap();
        (state.refused.load(Ordering::Relaxed), state.overruns.load(Ordering::Relaxed))
    };
    assert!(lost(1).0 > 0 && lost(1).1 == 2, "{:?}", lost(1));
    assert_eq!((lost(2), lost(3)), ((0, 0), (0, 0)));
    assert_eq!(dispatch.cpu_pids(), BTreeMap::from([(0, 0), (1, 1)]));
}

#[test]
fn a_removed_port_is_counted_and_its_socket_is_gone() {
    let dispatch = Arc::new(Dispatch::new(Mode::PerPort));
    let fakes = ports(&dispatch, 2);
    let mut ends = dispatch.set_handlers(1).unwrap();
    (0..100).for_each(|n| fakes[0].send(0, n));
    assert_eq!(ends[0].take(LONG).len(), 64);
    let waiting = dispatch.port(DpPort(0)).unwrap().waiting.load(Ordering::Relaxed);
    dispatch.port_del(DpPort(0));
    assert_eq!(
        (dispatch.ended_with_port(), dispatch.sockets(), dispatch.pid_of(DpPort(0))),
        (waiting, 1, None)
    );
    // Its upcalls are served yet, as a packet without a port; the other port continues.
    fakes[1].send(1, 7);
    let mut rest = 0;
    while rest < 37 {
        rest += ends[0].take(LONG).len();
    }
    drop(ends);
    assert_eq!(Arc::strong_count(&fakes[0].inner), 1, "no reference to its socket remains");
}
