//! `system` ports over veth pairs, by both receive and both transmit methods.

use std::time::Instant;

use netdev::link::{link_info, link_stats};
use netdev::{Port, RxMethod, SystemOptions, TxDrop};
use packet::{GsoKind, Packet, PacketBatch, PacketPool, checksum};

use crate::helpers::*;

fn each_method(f: impl Fn(SystemOptions) + Send + 'static) {
    in_netns(move || {
        let methods =
            [RxMethod::Recvmmsg, RxMethod::Ring, RxMethod::Grow].map(|m| [(m, true), (m, false)]).concat();
        for (rx_method, own_tx_sockets) in methods {
            println!("{rx_method:?}, own sockets to send: {own_tx_sockets}");
            veth("sl-a", "sl-b");
            f(SystemOptions { rx_method, own_tx_sockets, ..SystemOptions::default() });
            // A test may have deleted the pair.
            let _ = std::process::Command::new("ip").args(["link", "del", "sl-a"]).output();
        }
    });
}

#[test]
fn frames_cross_both_ways() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        for (i, bytes) in [60, 61, 127, 1500, 1514].into_iter().enumerate() {
            let there = frame(i as u8, bytes);
            let report = a.send([there.clone()]);
            assert_eq!((report.sent_packets, report.sent_bytes), (1, bytes as u64));
            assert_eq!(b.recv(1)[0].data(), there.data());
            let back = frame(100 + i as u8, bytes);
            b.send([back.clone()]);
            assert_eq!(a.recv(1)[0].data(), back.data());
        }
        assert_eq!(a.rx.counters(), netdev::RxCounters::default());
        assert_ne!(a.port.ifindex(), b.port.ifindex());
    });
}

#[test]
fn a_burst_arrives_in_order() {
    each_method(|options| {
        for sendmmsg in [true, false] {
            let options = SystemOptions { sendmmsg, ..options.clone() };
            let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
            let sent: Vec<_> = (0..100).map(|i| frame(i, 60 + usize::from(i))).collect();
            let report = a.send(sent.iter().cloned());
            assert_eq!((report.sent_packets, report.dropped_packets()), (100, 0));
            let got = b.recv(100);
            assert_eq!(got.len(), 100);
            assert!(got.iter().zip(&sent).all(|(g, s)| g.data() == s.data()));
        }
    });
}

#[test]
fn a_queue_with_many_bursts_gets_sockets_of_its_own_and_keeps_the_order() {
    in_netns(|| {
        sys::thread::pin_thread(usize::from(sys::thread::cpu())).unwrap();
        veth("sl-a", "sl-b");
        let options = SystemOptions::default();
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        for burst in 0..300 {
            let sent: Vec<_> = (0..8).map(|i| frame(burst as u8 ^ i << 5, 60 + usize::from(i))).collect();
            assert_eq!(a.send(sent.iter().cloned()).sent_packets, 8);
            let got = b.recv(8);
            assert!(got.len() == 8 && got.iter().zip(&sent).all(|(g, s)| g.data() == s.data()), "{burst}");
        }
        // Each port's own, and two more; a heading.
        let sockets = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
        assert_eq!(sockets.lines().count(), 1 + 2 + 2, "{sockets}");
    });
}

#[test]
fn a_large_burst_arrives_in_one_call() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        let sent: Vec<_> = (0..250).map(|i| frame(i, 60 + 5 * usize::from(i))).collect();
        a.send(sent.iter().cloned());
        // When the last frame has arrived, so has the first: veth devices keep the order.
        let mut got = PacketBatch::new();
        let deadline = Instant::now() + LIMIT;
        let mut calls = Vec::new();
        while got.len() < sent.len() && Instant::now() < deadline {
            match b.rx.recv(&mut b.pool, &mut got, 1000).unwrap() {
                0 => drop(wait(b.rx.as_ref(), 50)),
                n => calls.push(n),
            }
        }
        let got: Vec<_> = got.drain().filter(|p| p.data()[12..14] == sent[0].data()[12..14]).collect();
        assert!(got.len() == 250 && got.iter().zip(&sent).all(|(g, s)| g.data() == s.data()), "{calls:?}");
        assert!(
            calls.iter().any(|n| *n > packet::BATCH_MAX_PACKETS && *n <= packet::BURST_MAX_PACKETS),
            "{calls:?}"
        );
    });
}

#[test]
fn recv_takes_no_more_than_asked_for() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        a.send((0..32).map(|i| frame(i, 60)));
        let (mut batch, mut pool) = (PacketBatch::new(), PacketPool::new());
        assert!(wait(b.rx.as_ref(), 1000));
        assert_eq!(b.rx.recv(&mut pool, &mut batch, 5).unwrap(), 5);
        assert_eq!(b.rx.recv(&mut pool, &mut batch, 0).unwrap(), 0);
        assert_eq!(b.rx.recv(&mut pool, &mut batch, 1000).unwrap(), 27);
        assert_eq!(batch.len(), 32);
        assert_eq!(b.rx.recv(&mut pool, &mut batch, 32).unwrap(), 0);
    });
}

#[test]
fn vlan_tags_stand_in_the_bytes() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        for (tag, bytes) in [([0x81, 0x00, 0xa0, 0x64], 1514), ([0x88, 0xa8, 0x0f, 0xff], 1510)] {
            let mut tagged = frame(9, bytes);
            tagged.insert(12, 4);
            tagged.data_mut()[12..16].copy_from_slice(&tag);
            a.send([tagged.clone()]);
            let got = b.recv(1);
            assert_eq!(got[0].data(), tagged.data());
        }
    });
}

#[test]
fn own_frames_are_not_received() {
    each_method(|options| {
        for ignore_outgoing in [true, false] {
            let options = SystemOptions { ignore_outgoing, ..options.clone() };
            let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
            a.send((0..10).map(|i| frame(i, 100)).chain([tcp_super_frame(20000, 1400, None)]));
            assert_eq!(b.recv_for(60).len(), 11);
            assert_eq!(a.recv_for(60).len(), 0, "ignore_outgoing {ignore_outgoing}");
            // After the filtered frames, others still arrive.
            b.send([tcp_super_frame(30000, 1400, None), frame(1, 60)]);
            let got = a.recv_for(60);
            assert_eq!((got.len(), got[0].len(), got[1].len()), (2, 30054, 60));
        }
    });
}

#[test]
fn large_segments_arrive_whole() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        for (payload, tag) in [(3000, None), (30000, None), (65000, None), (30000, Some([0x81, 0, 0, 5]))] {
            let sent = tcp_super_frame(payload, 1448, tag);
            // Small frames around it must keep their places.
            let report = a.send([frame(1, 60), sent.clone(), frame(2, 60)]);
            assert_eq!((report.sent_packets, report.generated_packets), (3, 0));
            let got = b.recv_where(3, |_| true);
            assert_eq!((got[0].data(), got[2].data()), (frame(1, 60).data(), frame(2, 60).data()));
            assert_eq!(got[1].data(), sent.data());
            let (o, s) = (got[1].offload, sent.offload);
            assert_eq!((o.gso, o.gso_size, o.needs_csum), (GsoKind::Tcp4, 1448, true));
            assert_eq!((o.csum_start, o.csum_offset), (s.csum_start, s.csum_offset));
        }
        assert_eq!(b.rx.counters(), netdev::RxCounters::default());
    });
}

/// Datagrams between hosts: each arrives unchanged, whether they cross as large segments or one by one.
#[test]
fn runs_of_datagrams_cross_as_large_segments() {
    each_method(|options| {
        ip("addr add 192.0.2.1/24 dev sl-b");
        let to = link_info("sl-b").unwrap().mac.unwrap();
        let host = std::net::UdpSocket::bind("192.0.2.1:0").unwrap();
        host.set_read_timeout(Some(LIMIT)).unwrap();
        let port = host.local_addr().unwrap().port();
        for merge_udp in [false, true] {
            let mut a = End::system("sl-a", &SystemOptions { merge_udp, ..options.clone() });
            let payload = |i: u8| vec![i; if i == 39 { 300 } else { 1000 }];
            let addresses = [[192, 0, 2, 9], [192, 0, 2, 1]];
            let before = link_stats("sl-a").unwrap().tx_packets;
            let report = a.send((0..40).map(|i| datagram(to, addresses, port, u16::from(i), &payload(i))));
            assert_eq!((report.sent_packets, report.dropped_packets()), (40, 0));
            assert_eq!(report.sent_bytes, 39 * 1042 + 342);
            let mut got = [0; 2000];
            for i in 0..40 {
                let bytes = host.recv(&mut got).expect("all datagrams arrive");
                assert_eq!(&got[..bytes], payload(i), "datagram {i}");
            }
            let frames = link_stats("sl-a").unwrap().tx_packets - before;
            if merge_udp && frames == 40 {
                println!("SKIP: large UDP segments: this kernel takes none from packet sockets");
            } else {
                assert_eq!(frames, if merge_udp { 1 } else { 40 });
            }
        }
    });
}

#[test]
fn software_does_offloads_that_the_way_out_does_not() {
    each_method(|options| {
        let plain = [
            SystemOptions { tx_offload: false, ..options.clone() },
            SystemOptions { vnet_hdr: false, ..options.clone() },
        ];
        for sender in plain {
            let (mut a, mut b) = (End::system("sl-a", &sender), End::system("sl-b", &options));
            let report = a.send([tcp_super_frame(10000, 1400, None)]);
            assert_eq!((report.sent_packets, report.generated_packets), (8, 7));
            let got = b.recv_where(8, is_super_frame);
            let mut payload: Vec<u8> = Vec::new();
            for p in &got {
                let d = p.data();
                let sum = checksum::pseudo(&d[26..30], &d[30..34], 6, d.len() - 34);
                assert_eq!(checksum::fold(checksum::sum(&d[34..], sum)), 0xffff);
                assert!(!p.offload.needs_csum && !p.offload.is_gso());
                payload.extend(&d[54..]);
            }
            assert!(
                payload == (0..10000).map(|i| (i % 251) as u8).collect::<Vec<_>>(),
                "{} bytes",
                payload.len()
            );
            let mut nonsense = tcp_super_frame(10000, 1400, None);
            nonsense.offload.gso = GsoKind::Tcp6;
            let report = a.send([nonsense, frame(1, 60)]);
            assert_eq!((report.dropped(TxDrop::BadOffload), report.sent_packets), (1, 1));
        }
    });
}

#[test]
fn a_refused_frame_does_not_stop_the_burst() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        let mut bad_offset = frame(3, 100);
        bad_offset.offload.needs_csum = true;
        (bad_offset.offload.csum_start, bad_offset.offload.csum_offset) = (5000, 16);
        let report = a.send([
            frame(0, 60),
            frame(1, 4000),
            frame(2, 60),
            bad_offset,
            Packet::from_slice(&[1; 5]),
            frame(5, 60),
        ]);
        assert_eq!(report.dropped(TxDrop::TooLarge), 1, "{report:?}");
        assert_eq!(report.dropped(TxDrop::Refused), 1, "{report:?}");
        assert_eq!(report.sent_packets, 4, "{report:?}");
        assert_eq!(b.recv(4).iter().map(|p| p.len()).collect::<Vec<_>>(), [60, 60, 100, 60]);
    });
}

/// Receives until an error occurs.
fn error_of(end: &mut End) -> Option<i32> {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        match end.rx.recv(&mut end.pool, &mut PacketBatch::new(), 32) {
            Ok(_) => wait(end.rx.as_ref(), 10),
            Err(e) => return e.raw_os_error(),
        };
    }
    None
}

#[test]
fn a_device_that_goes_down_is_reported_once_and_comes_back() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        ip("link set sl-a down");
        assert_eq!(error_of(&mut a), Some(libc::ENETDOWN));
        assert_eq!(a.recv_for(30).len(), 0, "once");
        let report = a.send([frame(1, 60), frame(2, 60)]);
        assert_eq!((report.sent_packets, report.dropped(TxDrop::PortDown)), (0, 2));
        ip("link set sl-a up");
        // The peer has its carrier back a moment later, and drops frames until then.
        wait_up("sl-a");
        wait_up("sl-b");
        a.send([frame(3, 60)]);
        assert_eq!(b.recv(1)[0].data(), frame(3, 60).data());
        b.send([frame(4, 60)]);
        assert_eq!(a.recv(1)[0].data(), frame(4, 60).data());
    });
}

#[test]
fn frames_that_wait_when_the_device_goes_down_keep_their_order() {
    each_method(|options| {
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        a.send([
            frame(1, 60),
            tcp_super_frame(20000, 1400, None),
            frame(2, 60),
            tcp_super_frame(30000, 1400, None),
        ]);
        assert!(wait(b.rx.as_ref(), 1000));
        ip("link set sl-b down");
        ip("link set sl-b up");
        wait_up("sl-a");
        wait_up("sl-b");
        a.send([frame(3, 60), tcp_super_frame(40000, 1400, None)]);
        let (mut sizes, mut errors) = (Vec::new(), 0);
        for _ in 0..100 {
            let mut batch = PacketBatch::new();
            match b.rx.recv(&mut b.pool, &mut batch, 32) {
                Ok(_) => sizes.extend(batch.packets().iter().map(|p| p.len())),
                Err(e) => {
                    assert_eq!(e.raw_os_error(), Some(libc::ENETDOWN));
                    errors += 1;
                }
            }
            wait(b.rx.as_ref(), 1);
        }
        assert_eq!((sizes, errors), (vec![60, 20054, 60, 30054, 60, 40054], 1));
    });
}

#[test]
fn a_device_that_is_down_can_be_opened() {
    each_method(|options| {
        ip("link set sl-a down");
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        assert_eq!(a.send([frame(1, 60)]).dropped(TxDrop::PortDown), 1);
        assert_eq!(error_of(&mut a), Some(libc::ENETDOWN));
        ip("link set sl-a up");
        wait_up("sl-a");
        wait_up("sl-b");
        b.send([frame(4, 60)]);
        assert_eq!(a.recv(1)[0].data(), frame(4, 60).data());
    });
}

#[test]
fn a_device_that_disappears_is_an_error_and_counted_drops() {
    each_method(|options| {
        let mut a = End::system("sl-a", &options);
        ip("link del sl-a");
        assert!(error_of(&mut a).is_some());
        let report = a.send((0..40).map(|i| frame(i, 60)));
        assert_eq!((report.sent_packets, report.dropped(TxDrop::PortDown)), (0, 40));
        // A new queue on a device that is gone: the port's socket keeps reporting that it is down.
        a.tx = a.port.tx().unwrap();
        assert_eq!(a.send([frame(1, 60)]).dropped(TxDrop::PortDown), 1);
    });
}

#[test]
fn what_is_not_fetched_is_counted() {
    each_method(|options| {
        let small = SystemOptions { ring_slots: 64, rx_buffer_bytes: 32768, ..options.clone() };
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &small));
        let mut sent = 0;
        for _ in 0..20 {
            sent += a.send((0..32).map(|i| frame(i, 100))).sent_packets;
        }
        // The receiving side of veth runs in a softirq.
        let (begun, mut got, mut lost) = (Instant::now(), 0, 0);
        while got + lost < sent && begun.elapsed() < LIMIT {
            got += b.recv_for(10).iter().filter(|p| p.len() == 100).count() as u64;
            lost = b.rx.counters().kernel_drops;
        }
        assert!(lost > 0 && got > 0);
        assert_eq!(got + lost, sent);
        assert_eq!(b.rx.counters().kernel_drops, lost, "reading does not reset it");
    });
}

#[test]
fn a_full_queue_of_the_device_is_counted() {
    in_netns(|| {
        // A tap without a reader, with room for a few frames and no queueing discipline, rejects the others.
        let mut tap = Port::open_tap("sl-t", &netdev::TapOptions::default()).unwrap();
        ip("link set sl-t txqueuelen 8 up");
        run("tc qdisc replace dev sl-t root noqueue");
        let mut t = End::system("sl-t", &SystemOptions::default());
        let mut total = netdev::TxReport::default();
        for _ in 0..100 {
            total.add(&t.send((0..32).map(|i| frame(i, 100))));
        }
        assert_eq!(total.sent_packets + total.dropped_packets(), 3200);
        assert!(total.dropped(TxDrop::NoBuffers) > 0, "{total:?}");
        tap.rx.clear();
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    in_netns(|| {
        let open = |name: &str| Port::open_system(name, &SystemOptions::default()).err().unwrap().to_string();
        assert!(open("sl-none").contains("sl-none"), "{}", open("sl-none"));
        assert!(open("much-too-long-a-name").contains("much-too-long-a-name"));
        assert!(open("").contains("no device name"));
        ip("tuntap add dev sl-tun mode tun");
        assert!(open("sl-tun").contains("no Ethernet device"), "{}", open("sl-tun"));
    });
}

/// Sends two frames in a thread where sendmmsg fails with that error; returns the report, and the received
/// frames.
fn send_with_failing_sendmmsg(errno: i32, check: fn(netdev::TxReport, usize)) {
    in_netns(move || {
        veth("sl-a", "sl-b");
        let options = SystemOptions::default();
        let (mut a, mut b) = (End::system("sl-a", &options), End::system("sl-b", &options));
        if !fail_syscall(libc::SYS_sendmmsg, errno) {
            println!("SKIP: no seccomp");
            return;
        }
        let mut report = a.send([frame(1, 60), tcp_super_frame(20000, 1400, None)]);
        report.add(&a.send([frame(2, 60)]));
        check(report, b.recv_for(30).len());
    });
}

#[test]
fn without_sendmmsg_frames_are_sent_one_by_one() {
    send_with_failing_sendmmsg(libc::ENOSYS, |report, got| {
        assert_eq!((report.sent_packets, report.dropped_packets(), got), (3, 0, 3));
    });
}

#[test]
fn a_send_buffer_that_stays_full_is_counted() {
    send_with_failing_sendmmsg(libc::EAGAIN, |report, got| {
        assert_eq!((report.sent_packets, report.dropped(TxDrop::QueueFull), got), (0, 3, 0));
    });
}

#[test]
fn any_other_refusal_is_counted() {
    send_with_failing_sendmmsg(libc::EPERM, |report, got| {
        assert_eq!((report.sent_packets, report.dropped(TxDrop::Refused), got), (0, 3, 0));
    });
}

#[test]
fn many_ports_cost_a_descriptor_each_and_take_bursts() {
    const PORTS: usize = 300;
    in_netns(|| {
        veth("sl-a", "sl-b");
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let (before, mut ports, mut queues) = (descriptors(), Vec::new(), Vec::new());
        for _ in 0..PORTS {
            let port = Port::open_system("sl-a", &SystemOptions::default()).unwrap();
            // As with two threads.
            queues.extend([port.tx().unwrap(), port.tx().unwrap()]);
            ports.push(port);
        }
        // Concurrent tests of this process hold some descriptors.
        let more = descriptors().saturating_sub(before);
        assert!(more <= PORTS + 64, "{more} descriptors for {PORTS} ports");
        let mut far = End::system("sl-b", &SystemOptions::default());
        let mut last = End {
            rx: ports[PORTS - 1].rx.remove(0),
            tx: queues.remove(2 * PORTS - 1),
            port: ports.remove(PORTS - 1),
            pool: PacketPool::new(),
        };
        let there = frame(1, 60);
        last.send([there.clone()]);
        assert_eq!(far.recv(1)[0].data(), there.data());
        for i in 0..1000 {
            far.send([frame(i as u8, 60)]);
        }
        assert_eq!(last.recv(1000).len(), 1000);
    });
}
