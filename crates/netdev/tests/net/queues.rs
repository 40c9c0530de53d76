//! `system` ports with several receive queues.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use netdev::{Port, RxMethod, SystemOptions};
use packet::{BATCH_MAX_PACKETS, Packet, PacketBatch, PacketPool, checksum};

use crate::helpers::*;

const FLOWS: u16 = 200;
const FRAMES_A_FLOW: u32 = 20;

/// A UDP frame of a flow with a number in its payload; the source port identifies the flow.
fn udp(flow: u16, number: u32, back: bool) -> Packet {
    let mut f = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 8, 0];
    f.extend([0x45, 0, 0, 60, 0, 7, 0x40, 0, 64, 17, 0, 0]);
    let (mut a, mut b) = ([198, 51, 100, 1], [198, 51, 100, 2]);
    let (mut sport, mut dport) = (10_000 + flow, 7);
    if back {
        std::mem::swap(&mut a, &mut b);
        std::mem::swap(&mut sport, &mut dport);
    }
    f.extend([a, b].concat());
    let sum = checksum::checksum(&f[14..]).to_be_bytes();
    f[24..26].copy_from_slice(&sum);
    f.extend([sport.to_be_bytes(), dport.to_be_bytes(), [0, 40], [0, 0]].concat());
    f.extend(number.to_be_bytes());
    f.resize(74, 0);
    Packet::from_slice(&f)
}

/// Flow and number of a frame of [`udp`].
fn read(p: &Packet) -> Option<(u16, u32)> {
    let d = p.data();
    let ports = [d.get(34..36)?, d.get(36..38)?].map(|b| u16::from_be_bytes([b[0], b[1]]));
    let number = u32::from_be_bytes(d.get(42..46)?.try_into().ok()?);
    let flow = ports.into_iter().find(|p| *p >= 10_000)? - 10_000;
    (d[23] == 17 && d[26..28] == [198, 51]).then_some((flow, number))
}

/// Received frames of each queue within a quiet time of 300 ms: flow and number, in order.
fn drain(port: &mut Port) -> Vec<Vec<(u16, u32)>> {
    let mut got = vec![Vec::new(); port.rx.len()];
    let mut pool = PacketPool::new();
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(300) {
        for (rx, got) in port.rx.iter_mut().zip(&mut got) {
            let mut batch = PacketBatch::new();
            if rx.recv(&mut pool, &mut batch, BATCH_MAX_PACKETS).unwrap() > 0 {
                got.extend(batch.packets().iter().filter_map(read));
                last = Instant::now();
            }
            batch.free_into(&mut pool);
        }
    }
    got
}

fn each_method(f: impl Fn(SystemOptions) + Send + 'static) {
    in_netns(move || {
        // Frames that one thread sends from two processors may overtake each other in the kernel's queues of received frames.
        sys::thread::pin_thread(usize::from(sys::thread::cpu())).unwrap();
        for rx_method in [RxMethod::Recvmmsg, RxMethod::Ring] {
            println!("{rx_method:?}");
            veth("sl-a", "sl-b");
            f(SystemOptions { rx_method, n_rxq: 4, ring_slots: 4096, ..SystemOptions::default() });
            ip("link del sl-a");
        }
    });
}

fn send_all(a: &mut End, back: bool) {
    for number in 0..FRAMES_A_FLOW {
        for flows in 0..FLOWS / 50 {
            let report = a.send((0..50).map(|i| udp(flows * 50 + i, number, back)));
            assert_eq!(report.sent_packets, 50);
        }
        // The receiving side of veth runs in a softirq with a bounded queue.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks that each frame arrived once, and each flow in order in one queue. Returns the queue of each flow.
fn check(got: &[Vec<(u16, u32)>]) -> BTreeMap<u16, usize> {
    let mut queue_of = BTreeMap::new();
    let mut next: BTreeMap<u16, u32> = BTreeMap::new();
    for (q, frames) in got.iter().enumerate() {
        for (flow, number) in frames {
            assert_eq!(*queue_of.entry(*flow).or_insert(q), q, "flow {flow} in two queues");
            let next = next.entry(*flow).or_default();
            assert_eq!(number, next, "flow {flow}");
            *next += 1;
        }
    }
    assert!((0..FLOWS).all(|f| next.get(&f) == Some(&FRAMES_A_FLOW)), "frames are missing");
    queue_of
}

#[test]
fn flows_are_spread_and_each_has_one_queue() {
    each_method(|options| {
        let mut a = End::system("sl-a", &SystemOptions { n_rxq: 1, ..options.clone() });
        let mut port = Port::open_system("sl-b", &options).unwrap();
        assert_eq!(port.rx.len(), 4);
        send_all(&mut a, false);
        let got = drain(&mut port);
        let queue_of = check(&got);
        for (q, frames) in got.iter().enumerate() {
            let expected = usize::from(FLOWS) * FRAMES_A_FLOW as usize / 4;
            assert!(frames.len() > expected / 3, "queue {q} got {} of {expected}", frames.len());
        }
        // Replies of a connection use the same queue.
        send_all(&mut a, true);
        assert_eq!(check(&drain(&mut port)), queue_of);
        assert!(port.rx.iter().all(|q| q.counters() == netdev::RxCounters::default()));
    });
}

#[test]
fn ports_of_one_device_do_not_take_from_each_other() {
    each_method(|options| {
        let mut a = End::system("sl-a", &SystemOptions { n_rxq: 1, ..options.clone() });
        let mut ports = [0, 1].map(|_| Port::open_system("sl-b", &options).unwrap());
        send_all(&mut a, false);
        for port in &mut ports {
            check(&drain(port));
        }
    });
}

#[test]
fn what_a_port_sends_does_not_come_back() {
    each_method(|options| {
        for ignore_outgoing in [true, false] {
            let options = SystemOptions { ignore_outgoing, ..options.clone() };
            let mut b = Port::open_system("sl-b", &options).unwrap();
            let (mut tx, mut pool) = (b.tx().unwrap(), PacketPool::new());
            let mut batch: PacketBatch = (0..100).map(|flow| udp(flow, 0, false)).collect();
            assert_eq!(tx.send(&mut batch, &mut pool).sent_packets, 100);
            assert!(drain(&mut b).iter().all(Vec::is_empty), "ignore_outgoing {ignore_outgoing}");
        }
    });
}

#[test]
fn the_group_survives_the_device_going_down_and_queues_that_leave() {
    each_method(|options| {
        let mut a = End::system("sl-a", &SystemOptions { n_rxq: 1, ..options.clone() });
        let mut port = Port::open_system("sl-b", &options).unwrap();
        ip("link set sl-b down");
        ip("link set sl-b up");
        wait_up("sl-a");
        wait_up("sl-b");
        for rx in &mut port.rx {
            let error = rx.recv(&mut PacketPool::new(), &mut PacketBatch::new(), 32);
            // By the ring, an error shows after some looks at it.
            assert!(error.map_or_else(|e| e.raw_os_error() == Some(libc::ENETDOWN), |n| n == 0));
        }
        a.rx.recv(&mut a.pool, &mut PacketBatch::new(), 32).ok();
        for _ in 0..40 {
            for rx in &mut port.rx {
                let _ = rx.recv(&mut PacketPool::new(), &mut PacketBatch::new(), 32);
            }
        }
        // A device that reports up may still lose frames: the kernel starts its transmit queues one by one.
        let crosses = |_| {
            a.send((0..50).map(|flow| udp(flow, 0, false)));
            drain(&mut port).iter().map(Vec::len).sum::<usize>() == 50
        };
        assert!((0..100).any(crosses), "not all frames cross");
        send_all(&mut a, false);
        check(&drain(&mut port));
        // The remaining ones share the frames of the others.
        port.rx.drain(1..3);
        send_all(&mut a, false);
        let got = drain(&mut port);
        check(&got);
        assert!(got.iter().all(|q| !q.is_empty()));
    });
}

#[test]
fn the_number_of_queues_is_bounded() {
    in_netns(|| {
        veth("sl-a", "sl-b");
        let options = SystemOptions { n_rxq: 1000, ring_slots: 1 << 16, ..SystemOptions::default() };
        let port = Port::open_system("sl-b", &options).unwrap();
        assert_eq!(port.rx.len(), netdev::MAX_RX_QUEUES);
        assert_eq!(Port::open_system("sl-a", &SystemOptions { n_rxq: 0, ..options }).unwrap().rx.len(), 1);
    });
}

#[test]
fn a_tap_with_several_queues_spreads_what_the_host_sends() {
    in_netns(|| {
        let options = netdev::TapOptions { n_rxq: 4, ..netdev::TapOptions::default() };
        let mut port = Port::open_tap("sl-t", &options).unwrap();
        assert_eq!((port.rx.len(), port.exists()), (4, Some(true)));
        ip("addr add 198.51.100.1/24 dev sl-t");
        ip("link set sl-t txqueuelen 4000 up");
        ip("neigh add 198.51.100.2 lladdr 02:00:00:00:00:02 dev sl-t");
        let sockets: Vec<_> = (0..FLOWS)
            .map(|flow| {
                let socket = std::net::UdpSocket::bind(("198.51.100.1", 10_000 + flow)).unwrap();
                socket.set_read_timeout(Some(LIMIT)).unwrap();
                socket.connect("198.51.100.2:7").unwrap();
                socket
            })
            .collect();
        for number in 0..FRAMES_A_FLOW {
            for socket in &sockets {
                socket.send(&number.to_be_bytes()).unwrap();
            }
        }
        let got = drain(&mut port);
        check(&got);
        assert!(got.iter().all(|q| q.len() > 200), "{:?}", got.iter().map(Vec::len).collect::<Vec<_>>());
        // Sending by whichever queue reaches the host.
        let mac = netdev::link::link_info("sl-t").unwrap().mac.unwrap();
        for (i, socket) in sockets.iter().take(8).enumerate() {
            let mut p = udp(i as u16, 99, true);
            p.data_mut()[..6].copy_from_slice(&mac);
            p.data_mut()[26..34].copy_from_slice(&[198, 51, 100, 2, 198, 51, 100, 1]);
            let mut batch: PacketBatch = [p].into_iter().collect();
            assert_eq!(port.tx().unwrap().send(&mut batch, &mut PacketPool::new()).sent_packets, 1);
            let mut payload = [0; 64];
            assert_eq!(socket.recv(&mut payload).unwrap(), 32);
            assert_eq!(payload[..4], 99u32.to_be_bytes());
        }
        drop(port);
        // A process being started by another test holds our descriptors until its exec.
        let gone = |_| {
            std::thread::sleep(Duration::from_millis(2));
            netdev::link::link_info("sl-t").is_err()
        };
        assert!((0..10_000).any(gone), "a tap goes with its port");
    });
}
