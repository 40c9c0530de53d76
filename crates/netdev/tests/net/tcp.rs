//! A real TCP connection between two hosts (namespaces), through two ports joined by a loop of the test.
//! Offloads are on everywhere, so without offload metadata no segment would be accepted.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use netdev::{AfxdpPort, Port, RxMethod, SystemOptions, TapOptions, XdpMode};
use packet::PacketBatch;

use crate::helpers::*;

const TOTAL_BYTES: usize = 8 << 20;

/// Creates a host: its device with an address, and the port to it.
type Make = fn(address: &str) -> Port;

fn tap_port(address: &str) -> Port {
    let port = Port::open_tap("sl-t", &TapOptions::default()).unwrap();
    ip(&format!("addr add {address}/24 dev sl-t"));
    ip("link set sl-t up");
    port
}

fn system_port(address: &str, options: &SystemOptions) -> Port {
    veth("sl-h", "sl-p");
    ip(&format!("addr add {address}/24 dev sl-h"));
    Port::open_system("sl-p", options).unwrap()
}

fn ring_port(address: &str) -> Port {
    system_port(address, &SystemOptions { rx_method: RxMethod::Ring, ..SystemOptions::default() })
}

fn recvmmsg_port(address: &str) -> Port {
    system_port(address, &SystemOptions { rx_method: RxMethod::Recvmmsg, ..SystemOptions::default() })
}

fn software_port(address: &str) -> Port {
    system_port(address, &SystemOptions { tx_offload: false, ..SystemOptions::default() })
}

fn xdp_port(address: &str, mode: XdpMode) -> Port {
    veth("sl-h", "sl-p");
    // Features that AF_XDP lacks: checksums left to the device, large segments.
    run("ethtool -K sl-h tx off tso off gso off");
    ip(&format!("addr add {address}/24 dev sl-h"));
    Port::open_afxdp("sl-p", &AfxdpPort { mode, ..AfxdpPort::default() }).unwrap().0
}

fn xdp_native_port(address: &str) -> Port {
    xdp_port(address, XdpMode::Native)
}

fn xdp_generic_port(address: &str) -> Port {
    xdp_port(address, XdpMode::Generic)
}

fn host(make: Make, address: &'static str, ports: Sender<Option<End>>, go: Receiver<()>, f: fn()) {
    if !enter_netns("tcp") {
        ports.send(None).unwrap();
        return;
    }
    // Queues are opened in their port's namespace.
    ports.send(Some(End::of(make(address)))).unwrap();
    if go.recv().is_ok() {
        f();
    }
}

fn serve() {
    let listener = TcpListener::bind("192.0.2.1:7000").unwrap();
    let (mut s, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    s.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), TOTAL_BYTES);
    assert!(got.iter().enumerate().all(|(i, b)| *b == (i % 253) as u8));
    s.write_all(b"all").unwrap();
}

fn transfer() {
    let mut s = (0..100)
        .find_map(|_| {
            std::thread::sleep(Duration::from_millis(10));
            TcpStream::connect_timeout(&"192.0.2.1:7000".parse().unwrap(), Duration::from_secs(2)).ok()
        })
        .expect("no connection");
    let data: Vec<u8> = (0..TOTAL_BYTES).map(|i| (i % 253) as u8).collect();
    s.write_all(&data).unwrap();
    s.shutdown(std::net::Shutdown::Write).unwrap();
    s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = Vec::new();
    s.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"all");
}

/// Forwards between the two ports until stopped; records the largest frame seen.
fn forward(a: End, b: End, stop: &AtomicBool, largest: &AtomicUsize) {
    let mut ends = [a, b];
    let mut batch = PacketBatch::new();
    while !stop.load(Ordering::Relaxed) {
        for from in 0..2 {
            let End { rx, pool, .. } = &mut ends[from];
            if rx.recv(pool, &mut batch, 32).unwrap() == 0 {
                continue;
            }
            let most = batch.packets().iter().map(|p| p.len()).max().unwrap_or(0);
            largest.fetch_max(most, Ordering::Relaxed);
            let End { tx, pool, .. } = &mut ends[1 - from];
            tx.send(&mut batch, pool);
        }
    }
}

fn check(make: Make) -> Option<usize> {
    let (port_tx, port_rx) = channel();
    let mut go = Vec::new();
    let mut hosts = Vec::new();
    for (address, f) in [("192.0.2.1", serve as fn()), ("192.0.2.2", transfer)] {
        let (go_tx, go_rx) = channel();
        let ports = port_tx.clone();
        go.push(go_tx);
        hosts.push(std::thread::spawn(move || host(make, address, ports, go_rx, f)));
    }
    let (a, b) = (port_rx.recv().unwrap()?, port_rx.recv().unwrap()?);
    let stop = Arc::new(AtomicBool::new(false));
    let largest = Arc::new(AtomicUsize::new(0));
    let forwarder = {
        let (stop, largest) = (Arc::clone(&stop), Arc::clone(&largest));
        std::thread::spawn(move || forward(a, b, &stop, &largest))
    };
    go.iter().for_each(|g| g.send(()).unwrap());
    let results: Vec<_> = hosts.into_iter().map(|h| h.join()).collect();
    stop.store(true, Ordering::Relaxed);
    forwarder.join().unwrap();
    for r in results {
        r.unwrap();
    }
    Some(largest.load(Ordering::Relaxed))
}

#[test]
fn tcp_between_taps_in_large_segments() {
    if let Some(largest) = check(tap_port) {
        assert!(largest > 10_000, "no large segment: {largest}");
    }
}

#[test]
fn tcp_between_rings_in_large_segments() {
    if let Some(largest) = check(ring_port) {
        assert!(largest > 10_000, "no large segment: {largest}");
    }
}

#[test]
fn tcp_between_sockets_in_large_segments() {
    if let Some(largest) = check(recvmmsg_port) {
        assert!(largest > 10_000, "no large segment: {largest}");
    }
}

#[test]
fn tcp_with_segments_cut_in_software() {
    if let Some(largest) = check(software_port) {
        assert!(largest > 10_000, "no large segment: {largest}");
    }
}

#[test]
fn tcp_between_xdp_sockets_in_the_driver() {
    if let Some(largest) = check(xdp_native_port) {
        assert_eq!(largest, 1514);
    }
}

#[test]
fn tcp_between_xdp_sockets_before_the_stack() {
    if let Some(largest) = check(xdp_generic_port) {
        assert_eq!(largest, 1514);
    }
}
