//! Measures receive methods: forwarding by one thread between two `system` ports, in separate network
//! namespaces (needs root and `ip`). Run: `cargo run --release -p netdev --example forward [SECONDS]`.
//!
//! Two results each: frames of 60 bytes forwarded per second under a flood, and TCP between two hosts with
//! offloads on.
#![allow(unsafe_code, reason = "network namespaces")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use netdev::{Port, RxMethod, RxQueue, SystemOptions, TapOptions, TxQueue};
use packet::{Packet, PacketBatch, PacketPool};

type Ends = (Box<dyn RxQueue>, Box<dyn TxQueue>);

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split_whitespace()).status().expect("ip");
    assert!(status.success(), "ip {args}");
}

fn new_netns() {
    // SAFETY: changes the namespace of this thread only.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(result, 0, "a network namespace needs root");
}

/// Binds the calling thread to a processor, if there are two: forwarding on one, generating on the other.
fn pin(cpu: usize) {
    // SAFETY: the set is plain data, alive through the call, with its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn veth(a: &str, b: &str) {
    ip(&format!("link add {a} type veth peer name {b}"));
    ip(&format!("link set dev {a} up"));
    ip(&format!("link set dev {b} up"));
}

fn open(name: &str, method: RxMethod) -> Ends {
    let options = SystemOptions { rx_method: method, ..SystemOptions::default() };
    ends(Port::open_system(name, &options).expect("port"))
}

fn ends(mut port: Port) -> Ends {
    let tx = port.tx().expect("tx");
    (port.rx.remove(0), tx)
}

/// Forwards between both until stopped; returns frames sent.
fn forward(mut a: Ends, mut b: Ends, stop: &AtomicBool) -> u64 {
    let (mut pool, mut batch, mut sent) = (PacketPool::new(), PacketBatch::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let there = a.0.recv(&mut pool, &mut batch, 32).expect("recv");
        if there > 0 {
            sent += b.1.send(&mut batch, &mut pool).sent_packets;
        }
        let back = b.0.recv(&mut pool, &mut batch, 32).expect("recv");
        if back > 0 {
            sent += a.1.send(&mut batch, &mut pool).sent_packets;
        }
    }
    sent
}

/// Millions of small frames a second.
fn flood(method: RxMethod, seconds: u64) -> f64 {
    std::thread::spawn(move || {
        new_netns();
        veth("sl-g", "sl-a");
        veth("sl-b", "sl-s");
        std::thread::sleep(Duration::from_millis(200));
        let (from, to) = (open("sl-a", method), open("sl-b", method));
        let (_, mut out) = open("sl-g", method);
        let stop = Arc::new(AtomicBool::new(false));
        let generator = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                pin(1);
                let mut frame = vec![2; 12];
                frame.extend([0x88, 0xb5]);
                frame.resize(60, 0);
                let mut pool = PacketPool::new();
                while !stop.load(Ordering::Relaxed) {
                    let mut batch: PacketBatch = (0..32)
                        .map(|_| {
                            let mut p: Packet = pool.alloc(60);
                            p.set_frame(&frame);
                            p
                        })
                        .collect();
                    out.send(&mut batch, &mut pool);
                }
            })
        };
        let timer = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(seconds));
                stop.store(true, Ordering::Relaxed);
            })
        };
        pin(0);
        let start = Instant::now();
        let sent = forward(from, to, &stop);
        let rate = sent as f64 / start.elapsed().as_secs_f64() / 1e6;
        timer.join().expect("timer");
        generator.join().expect("generator");
        rate
    })
    .join()
    .expect("flood")
}

fn host(method: Option<RxMethod>, address: &str, ports: &Sender<Ends>) {
    new_netns();
    let Some(method) = method else {
        let port = Port::open_tap("sl-h", &TapOptions::default()).expect("tap");
        ip(&format!("addr add {address}/24 dev sl-h"));
        ip("link set dev sl-h up");
        ports.send(ends(port)).expect("send");
        return;
    };
    veth("sl-h", "sl-p");
    ip(&format!("addr add {address}/24 dev sl-h"));
    std::thread::sleep(Duration::from_millis(200));
    ports.send(open("sl-p", method)).expect("send");
}

fn serve(got: &AtomicU64, stop: &AtomicBool, listening: &Barrier) {
    let listener = TcpListener::bind("192.0.2.1:7000").expect("bind");
    listening.wait();
    let (mut s, _) = listener.accept().expect("accept");
    let mut buf = vec![0; 1 << 20];
    while !stop.load(Ordering::Relaxed) {
        match s.read(&mut buf) {
            Ok(n) if n > 0 => got.fetch_add(n as u64, Ordering::Relaxed),
            _ => break,
        };
    }
}

fn transfer(go: &Receiver<()>, stop: &AtomicBool) {
    go.recv().expect("go");
    let mut s = TcpStream::connect("192.0.2.1:7000").expect("connect");
    let data = vec![7; 1 << 20];
    while !stop.load(Ordering::Relaxed) && s.write_all(&data).is_ok() {}
}

/// Gigabits a second of TCP payload; taps without a method.
fn tcp(method: Option<RxMethod>, seconds: u64) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let got = Arc::new(AtomicU64::new(0));
    let listening = Arc::new(Barrier::new(2));
    let (ports, opened) = channel();
    let (go, wait) = channel();
    let server = {
        let (ports, stop, got, listening) = (ports.clone(), stop.clone(), got.clone(), listening.clone());
        std::thread::spawn(move || {
            host(method, "192.0.2.1", &ports);
            serve(&got, &stop, &listening);
        })
    };
    let client = {
        let stop = stop.clone();
        std::thread::spawn(move || {
            host(method, "192.0.2.2", &ports);
            transfer(&wait, &stop);
        })
    };
    let (a, b) = (opened.recv().expect("port"), opened.recv().expect("port"));
    listening.wait();
    let forwarder = {
        let stop = stop.clone();
        std::thread::spawn(move || forward(a, b, &stop))
    };
    go.send(()).expect("go");
    std::thread::sleep(Duration::from_millis(300));
    let (before, start) = (got.load(Ordering::Relaxed), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let bytes = got.load(Ordering::Relaxed) - before;
    let rate = bytes as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9;
    stop.store(true, Ordering::Relaxed);
    forwarder.join().expect("forwarder");
    // Without a forwarder both hosts block in their sockets; the end of the process frees them.
    drop((server, client));
    rate
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(3);
    println!("{:10} {:>12} {:>12}", "receive", "Mpps 60 B", "TCP Gb/s");
    for method in [RxMethod::Recvmmsg, RxMethod::Ring] {
        let name = format!("{method:?}");
        println!("{name:10} {:>12.2} {:>12.1}", flood(method, seconds), tcp(Some(method), seconds));
    }
    println!("{:10} {:>12} {:>12.1}", "tap", "", tcp(None, seconds));
}
