//! A switch is handed over to a new process while packets flow: none is lost, and state travels whole.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use testkit::{Cmd, Daemon, Netns, Topology, require_netns, require_programs, wait_for};

use crate::helpers::{LIMIT, appctl, require_userspace, serving, spec, vsctl, wait_log};

/// The process that succeeded a daemon, in its run directory. Dropped, it ends.
struct Successor {
    pid: u32,
}

impl Successor {
    fn of(daemon: &Daemon, before: u32) -> Successor {
        let file = daemon.rundir().join("ovs-vswitchd.pid");
        let mut pid = before;
        wait_for(LIMIT, "the pid file of the new process", || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            pid = text.trim().parse().unwrap_or(before);
            pid != before
        })
        .unwrap();
        Successor { pid }
    }

    fn lives(&self) -> bool {
        std::path::Path::new(&format!("/proc/{}", self.pid)).exists()
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        let kill = |signal: &str| Cmd::new("kill").args([signal, &self.pid.to_string()]).output();
        let _ = kill("-TERM");
        if wait_for(LIMIT, "the end of the new process", || !self.lives()).is_err() {
            let _ = kill("-KILL");
        }
    }
}

/// Hands a daemon over; returns its successor.
fn hand_over(daemon: &Daemon, before: u32) -> Successor {
    appctl(daemon, "sluice/handover");
    let successor = Successor::of(daemon, before);
    let socket = daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", successor.pid));
    wait_for(LIMIT, "the control socket", || testkit::listens(&socket)).unwrap();
    successor
}

/// Datagrams with numbers from one host to another, until told to end.
#[derive(Default)]
struct Stream {
    ends: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    /// Datagrams that came twice or out of order.
    disordered: AtomicU64,
    /// Longest time between two datagrams.
    gap_us: AtomicU64,
}

const PORT: u16 = 7777;

impl Stream {
    /// Sends at that rate, in groups of a millisecond.
    fn send(&self, from: &Netns, to: IpAddr, per_ms: u64) {
        from.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect((to, PORT)).unwrap();
            let mut next = Instant::now();
            while !self.ends.load(Ordering::Relaxed) {
                for _ in 0..per_ms {
                    let n = self.sent.fetch_add(1, Ordering::Relaxed);
                    socket.send(&n.to_be_bytes()).unwrap();
                }
                next += Duration::from_millis(1);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        })
        .unwrap();
    }

    fn receive(&self, at: &Netns) {
        at.enter(|| {
            let socket = UdpSocket::bind(("0.0.0.0", PORT)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let (mut next, mut last) = (0, Instant::now());
            let mut bytes = [0; 64];
            loop {
                let Ok(8) = socket.recv(&mut bytes) else {
                    if self.ends.load(Ordering::Relaxed) {
                        return;
                    }
                    continue;
                };
                let n = u64::from_be_bytes(bytes[..8].try_into().unwrap());
                if self.received.fetch_add(1, Ordering::Relaxed) > 0 {
                    self.gap_us.fetch_max(last.elapsed().as_micros() as u64, Ordering::Relaxed);
                }
                self.disordered.fetch_add(u64::from(n < next), Ordering::Relaxed);
                (next, last) = (n + 1, Instant::now());
            }
        })
        .unwrap();
    }
}

/// Runs `during` while datagrams flow from the first host to the second; returns lost, disordered ones and the longest gap.
fn with_stream(net: &Topology, per_ms: u64, during: impl FnOnce(&Stream)) -> (u64, u64, u64) {
    let stream = Stream::default();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.receive(&net.hosts[1].netns));
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            stream.send(&net.hosts[0].netns, net.hosts[1].ipv4.into(), per_ms);
        });
        let before = || stream.received.load(Ordering::Relaxed);
        wait_for(LIMIT, "datagrams", || before() > 100 * per_ms).unwrap();
        stream.gap_us.store(0, Ordering::Relaxed);
        during(&stream);
        let so_far = before();
        wait_for(LIMIT, "further datagrams", || before() > so_far + 100 * per_ms).unwrap();
        stream.ends.store(true, Ordering::Relaxed);
    });
    let [sent, received] = [&stream.sent, &stream.received].map(|n| n.load(Ordering::Relaxed));
    (sent - received, stream.disordered.load(Ordering::Relaxed), stream.gap_us.load(Ordering::Relaxed))
}

#[test]
fn no_packet_is_lost_when_the_switch_is_handed_over_again_and_again() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    require_userspace!("a datapath of the kernel stays as it is");
    let net = Topology::new(2).unwrap();
    let daemon = serving(&spec(&net.switch));
    let [a, b] = net.ports()[..] else { panic!("two ports") };
    vsctl(&daemon, &format!("add-br br0 -- add-port br0 {a} -- add-port br0 {b}"));
    testkit::reachable(&net.hosts[0].netns, net.hosts[1].ipv4.into(), LIMIT).unwrap();
    let mut successors: Vec<Successor> = Vec::new();
    let (lost, disordered, gap_us) = with_stream(&net, 10, |_| {
        for _ in 0..3 {
            let before = successors.last().map_or(daemon.pid(), |last| last.pid);
            successors.push(hand_over(&daemon, before));
        }
    });
    println!("three handovers at 10,000 packets/s: longest gap {gap_us} us");
    assert_eq!((lost, disordered), (0, 0), "lost, disordered");
    wait_log(&daemon, "|handover|INFO|");
}
