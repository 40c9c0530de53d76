//! Measures `afxdp` ports beside `system` ports, in turn in one run, in separate network namespaces (needs
//! root and `ip`). Run: `cargo run --release -p netdev --example afxdp [ROUNDS [SECONDS [BYTES]]]`.
//!
//! One thread forwards frames (of 60 bytes) from one veth pair to another, one generates; each has its own
//! processor. Prints the frames that arrived after the forwarder, and its processor time per frame; ratios
//! are to `system` of the same round.
#![allow(unsafe_code, reason = "network namespaces, processors, times")]

use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netdev::{AfxdpPort, Port, RxQueue, SystemOptions, TxQueue, XdpMode, link};
use packet::{Packet, PacketBatch, PacketPool};

#[derive(Clone, Copy)]
enum Kind {
    System,
    Xdp(XdpMode),
}

/// Pairs of port kinds, from and to.
const WAYS: [(Kind, Kind, &str); 5] = [
    (Kind::System, Kind::System, "system"),
    (Kind::Xdp(XdpMode::Native), Kind::Xdp(XdpMode::Native), "afxdp native"),
    (Kind::Xdp(XdpMode::Generic), Kind::Xdp(XdpMode::Generic), "afxdp generic"),
    (Kind::Xdp(XdpMode::Native), Kind::System, "native to system"),
    (Kind::System, Kind::Xdp(XdpMode::Native), "system to native"),
];

#[derive(Clone, Copy)]
struct Figures {
    mpps: f64,
    cost_ns: f64,
}

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split_whitespace()).status().expect("ip");
    assert!(status.success(), "ip {args}");
}

fn new_netns() {
    // SAFETY: changes the namespace of this thread only.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "a network namespace needs root");
}

/// Binds the calling thread to a processor, if there are two.
fn pin(cpu: usize) {
    // SAFETY: the set is plain data, alive through the call, with its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Processor time of the calling thread in ns.
fn thread_time_ns() -> f64 {
    // SAFETY: the structure is plain data, written by the call.
    let time = unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
        time
    };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Waits for a frame, 10 ms at most.
fn sleep(rx: &dyn RxQueue) {
    let mut fd = libc::pollfd { fd: rx.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, alive through the call.
    unsafe { libc::poll(&mut fd, 1, 10) };
}

fn open(name: &str, kind: Kind) -> (Box<dyn RxQueue>, Box<dyn TxQueue>) {
    let mut port = match kind {
        Kind::System => Port::open_system(name, &SystemOptions::default()).expect("port"),
        Kind::Xdp(mode) => {
            let options = AfxdpPort { mode, ..AfxdpPort::default() };
            Port::open_afxdp(name, &options).expect("port").0
        }
    };
    let tx = port.tx().expect("tx");
    (port.rx.remove(0), tx)
}

fn generate(mut out: Box<dyn TxQueue>, bytes: usize, stop: &AtomicBool) {
    pin(1);
    let mut frame = vec![2; 12];
    frame.extend([0x88, 0xb5]);
    frame.resize(bytes, 0);
    let mut pool = PacketPool::new();
    while !stop.load(Ordering::Relaxed) {
        let mut batch: PacketBatch = (0..32)
            .map(|_| {
                let mut p: Packet = pool.alloc(bytes);
                p.set_frame(&frame);
                p
            })
            .collect();
        out.send(&mut batch, &mut pool);
    }
}

/// Measures one pair in its own namespace.
fn measure(from: Kind, to: Kind, time: Duration, bytes: usize) -> Figures {
    let run = move || {
        new_netns();
        for (a, b) in [("sl-g", "sl-a"), ("sl-b", "sl-s")] {
            ip(&format!("link add {a} type veth peer name {b}"));
            ip(&format!("link set dev {a} up"));
            ip(&format!("link set dev {b} up"));
        }
        let ((mut rx, _unused), (_idle, mut tx)) = (open("sl-a", from), open("sl-b", to));
        std::thread::sleep(Duration::from_millis(300));
        let (_, out) = open("sl-g", Kind::System);
        let stop = Arc::new(AtomicBool::new(false));
        let generator = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || generate(out, bytes, &stop))
        };
        pin(0);
        let (mut pool, mut batch) = (PacketPool::new(), PacketBatch::new());
        let mut forward_for = |time: Duration| {
            let start = Instant::now();
            while start.elapsed() < time {
                // Reads the clock every few bursts; sleeps while idle, so the processor time is that of work.
                for _ in 0..64 {
                    if rx.recv(&mut pool, &mut batch, 32).expect("recv") == 0 {
                        sleep(rx.as_ref());
                        break;
                    }
                    tx.send(&mut batch, &mut pool);
                }
            }
        };
        forward_for(Duration::from_millis(300));
        let arrived = || link::link_stats("sl-s").expect("counters").rx_packets;
        let (before, cpu_before, start) = (arrived(), thread_time_ns(), Instant::now());
        forward_for(time);
        let (frames, cpu) = ((arrived() - before) as f64, thread_time_ns() - cpu_before);
        let mpps = frames / start.elapsed().as_secs_f64() / 1e6;
        stop.store(true, Ordering::Relaxed);
        generator.join().expect("generator");
        Figures { mpps, cost_ns: cpu / frames }
    };
    std::thread::spawn(run).join().expect("measurement")
}

/// Median, least and most.
fn summary(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let [least, .., most] = values[..] else { return format!("{:.3}", values[0]) };
    format!("{:.3} ({least:.3} … {most:.3})", values[values.len() / 2])
}

fn main() {
    let argument = |i: usize| std::env::args().nth(i).and_then(|s| s.parse().ok());
    let rounds = argument(1).unwrap_or(5).max(1) as usize;
    let time = Duration::from_secs(argument(2).unwrap_or(2));
    let bytes = argument(3).map_or(60, |n| n.clamp(60, 1514) as usize);
    let mut all: [Vec<Figures>; WAYS.len()] = Default::default();
    for _ in 0..rounds {
        for (figures, (from, to, _)) in all.iter_mut().zip(WAYS) {
            figures.push(measure(from, to, time, bytes));
        }
    }
    println!("{:17} {:26} {:26} {:26} cost to system", "", "Mpps", "to system", "ns a frame");
    for (figures, (.., name)) in all.iter().zip(WAYS) {
        let ratio = |f: fn(&Figures) -> f64| {
            summary(figures.iter().zip(&all[0]).map(|(mine, system)| f(mine) / f(system)).collect())
        };
        let value = |f: fn(&Figures) -> f64| summary(figures.iter().map(f).collect());
        println!(
            "{name:17} {:26} {:26} {:26} {}",
            value(|f| f.mpps),
            ratio(|f| f.mpps),
            value(|f| f.cost_ns),
            ratio(|f| f.cost_ns)
        );
    }
}
