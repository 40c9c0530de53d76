//! `afxdp` ports over veth pairs, in the driver and before the stack.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use netdev::{AfxdpInfo, AfxdpPort, Port, SystemOptions, TxDrop, XdpMode};
use packet::{Packet, PacketBatch, PacketPool, checksum};

use crate::helpers::*;

fn veth_of(queues: usize) {
    let q = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add sl-a {q} type veth peer name sl-b {q}"));
    ip("link set sl-a up");
    ip("link set sl-b up");
    wait_up("sl-a");
    wait_up("sl-b");
}

fn options(mode: XdpMode) -> AfxdpPort {
    AfxdpPort { mode, ..AfxdpPort::default() }
}

/// Runs in each mode of a veth, with a pair of one queue: an AF_XDP end, and an AF_PACKET end opposite.
fn each_mode(f: impl Fn(End, End, AfxdpPort) + Send + 'static) {
    in_netns(move || {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            for use_need_wakeup in [true, false] {
                println!("{mode}, need-wakeup {use_need_wakeup}");
                veth_of(1);
                let options = AfxdpPort { use_need_wakeup, ..options(mode) };
                let (port, info) = Port::open_afxdp("sl-a", &options).unwrap();
                let AfxdpInfo { mode: opened, notes } = info;
                assert!(opened == mode && notes.len() == 1 && notes[0].contains("PEER tx off"), "{notes:?}");
                wait_up("sl-a");
                wait_up("sl-b");
                f(End::of(port), End::system("sl-b", &SystemOptions::default()), options);
                let _ = Command::new("ip").args(["link", "del", "sl-a"]).output();
            }
        }
    });
}

/// Whether a program is attached to a device.
fn has_program(name: &str) -> bool {
    let out = Command::new("ip").args(["-d", "link", "show", name]).output().unwrap();
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stdout).contains("xdp")
}

fn program_detached(name: &str) -> bool {
    let start = Instant::now();
    while has_program(name) {
        if start.elapsed() > LIMIT {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

#[test]
fn frames_cross_both_ways_byte_for_byte() {
    each_mode(|mut a, mut b, _| {
        for (i, bytes) in [14, 60, 61, 64, 127, 1500, 1514].into_iter().enumerate() {
            let there = frame(i as u8, bytes);
            let report = a.send([there.clone()]);
            assert_eq!((report.sent_packets, report.sent_bytes), (1, bytes as u64));
            assert_eq!(b.recv(1)[0].data(), there.data());
            let back = frame(100 + i as u8, bytes);
            b.send([back.clone()]);
            assert_eq!(a.recv(1)[0].data(), back.data());
        }
        let mut tagged = frame(9, 1514);
        tagged.insert(12, 4);
        tagged.data_mut()[12..16].copy_from_slice(&[0x81, 0, 0xa0, 0x64]);
        assert_eq!(a.send([tagged.clone()]).sent_packets, 1);
        assert_eq!(b.recv(1)[0].data(), tagged.data());
        b.send([tagged.clone()]);
        assert_eq!(a.recv(1)[0].data(), tagged.data());
        assert_eq!(a.rx.counters(), netdev::RxCounters::default());
        assert_eq!(a.recv_for(20).len(), 0, "what it sends does not come back");
    });
}

#[test]
fn rings_go_round_many_times_without_loss_and_in_order() {
    each_mode(|mut a, mut b, _| {
        for round in 0..300u32 {
            let numbered = |i: u32| {
                let mut p = frame(0, 64 + (i % 7) as usize);
                p.data_mut()[20..24].copy_from_slice(&(round * 32 + i).to_be_bytes());
                p
            };
            let expected: Vec<_> = (0..32).map(numbered).collect();
            assert_eq!(a.send(expected.iter().cloned()).sent_packets, 32);
            let got = b.recv(32);
            assert!(got.iter().map(|p| p.data()).eq(expected.iter().map(|p| p.data())), "round {round}");
            b.send(expected.iter().cloned());
            let got = a.recv(32);
            assert!(got.iter().map(|p| p.data()).eq(expected.iter().map(|p| p.data())), "round {round}");
        }
    });
}

#[test]
fn a_batch_longer_than_the_ring_is_sent_or_counted() {
    each_mode(|mut a, mut b, _| {
        let report = a.send((0..3000).map(|i| frame(i as u8, 60)));
        assert_eq!(report.sent_packets + report.dropped_packets(), 3000, "{report:?}");
        assert!(report.sent_packets >= 1024, "{report:?}");
        let mut got = 0;
        loop {
            let some = b.recv_for(50).len() as u64;
            got += some;
            if some == 0 {
                break;
            }
        }
        let lost = b.rx.counters().kernel_drops;
        assert_eq!(got + lost, report.sent_packets, "{report:?}, got {got}");
    });
}

#[test]
fn threads_that_share_a_ring_lose_and_repeat_nothing() {
    each_mode(|a, mut b, _| {
        let threads: Vec<_> = (0..3u8)
            .map(|id| {
                let (mut tx, mut pool) = (a.port.tx().unwrap(), PacketPool::new());
                std::thread::spawn(move || {
                    let mut sent = 0;
                    for round in 0..15u8 {
                        let mut batch: PacketBatch = (0..20)
                            .map(|i| {
                                let mut p = frame(0, 64);
                                p.data_mut()[20..23].copy_from_slice(&[id, round, i]);
                                p
                            })
                            .collect();
                        sent += tx.send(&mut batch, &mut pool).sent_packets;
                        std::thread::sleep(Duration::from_micros(500));
                    }
                    sent
                })
            })
            .collect();
        assert_eq!(threads.into_iter().map(|t| t.join().unwrap()).sum::<u64>(), 900);
        let got = b.recv(900);
        let mut next = [0; 3];
        for p in &got {
            let d = &p.data()[20..23];
            let (id, number) = (usize::from(d[0]), usize::from(d[1]) * 20 + usize::from(d[2]));
            assert_eq!(number, next[id], "thread {id}");
            next[id] += 1;
        }
        assert_eq!(next, [300; 3]);
    });
}

#[test]
fn large_segments_are_cut_and_checksums_filled() {
    each_mode(|mut a, mut b, _| {
        let report = a.send([tcp_super_frame(10_000, 1400, None)]);
        assert_eq!((report.sent_packets, report.generated_packets), (8, 7));
        for p in b.recv_where(8, is_super_frame) {
            let d = p.data();
            let sum = checksum::pseudo(&d[26..30], &d[30..34], 6, d.len() - 34);
            assert_eq!(checksum::fold(checksum::sum(&d[34..], sum)), 0xffff);
        }
    });
}

#[test]
fn what_does_not_fit_is_dropped_for_its_reason() {
    each_mode(|mut a, mut b, _| {
        let frames = || [frame(1, 1515), frame(2, 60), Packet::from_slice(&[1; 13]), frame(3, 1514)];
        let report = a.send(frames());
        assert_eq!((report.dropped(TxDrop::TooLarge), report.dropped(TxDrop::Refused)), (1, 1));
        assert_eq!(b.recv(2).iter().map(|p| p.len()).collect::<Vec<_>>(), [60, 1514]);
        // A new MTU is noticed, up to the size of a chunk.
        ip("link set sl-b mtu 3000");
        ip("link set sl-a mtu 3000");
        let report = a.send([frame(1, 1515), frame(2, 3014), frame(3, 3015), frame(4, 5000)]);
        assert_eq!((report.sent_packets, report.dropped(TxDrop::TooLarge)), (2, 2));
        assert_eq!(b.recv(2).iter().map(|p| p.len()).collect::<Vec<_>>(), [1515, 3014]);
        b.send([frame(5, 3014)]);
        assert_eq!(a.recv(1)[0].data(), frame(5, 3014).data());
    });
}

#[test]
fn what_is_not_fetched_is_counted() {
    each_mode(|mut a, mut b, _| {
        let mut sent = 0;
        for _ in 0..50 {
            sent += b.send((0..32).map(|i| frame(i, 100))).sent_packets;
            std::thread::sleep(Duration::from_millis(1));
        }
        let (begun, mut got, mut lost) = (Instant::now(), 0, 0);
        while got + lost < sent && begun.elapsed() < LIMIT {
            got += a.recv_for(10).iter().filter(|p| p.len() == 100).count() as u64;
            lost = a.rx.counters().kernel_drops;
        }
        assert_eq!((got + lost, got), (sent, 1024));
        // The ring works on.
        b.send([frame(7, 100)]);
        assert_eq!(a.recv(1).len(), 1);
    });
}

#[test]
fn a_device_that_goes_down_comes_back() {
    each_mode(|mut a, mut b, _| {
        ip("link set sl-a down");
        // The first batch enters the ring before the kernel reports that.
        a.send([frame(1, 60)]);
        let report = a.send([frame(2, 60), frame(3, 60)]);
        assert_eq!((report.sent_packets, report.dropped(TxDrop::PortDown)), (0, 2));
        ip("link set sl-a up");
        wait_up("sl-a");
        wait_up("sl-b");
        b.recv_for(20);
        assert_eq!(a.send([frame(4, 60)]).sent_packets, 1);
        assert_eq!(b.recv_where(1, |p| p.data() == frame(4, 60).data()).len(), 1);
        b.send([frame(5, 60)]);
        assert_eq!(a.recv(1)[0].data(), frame(5, 60).data());
    });
}

#[test]
fn a_device_that_disappears_is_an_error_and_counted_drops() {
    each_mode(|mut a, _b, _| {
        ip("link del sl-a");
        let start = Instant::now();
        let error = loop {
            match a.rx.recv(&mut a.pool, &mut PacketBatch::new(), 32) {
                Ok(_) => assert!(start.elapsed() < LIMIT),
                Err(e) => break e,
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
        a.send([frame(1, 60)]);
        assert_eq!(a.send([frame(2, 60)]).dropped(TxDrop::PortDown), 1);
    });
}

#[test]
fn the_program_goes_with_the_port_and_its_queues() {
    each_mode(|a, mut b, options| {
        assert!(has_program("sl-a"));
        let second = Port::open_afxdp("sl-a", &options).err().unwrap().to_string();
        assert!(second.contains("sl-a") && second.contains("in use"), "{second}");
        let End { port, rx, tx, .. } = a;
        drop(port);
        assert!(has_program("sl-a"), "somebody receives");
        drop(rx);
        // A process being started by another test may hold descriptors until its exec.
        assert!(program_detached("sl-a"));
        drop(tx);
        let mut again = End::of(Port::open_afxdp("sl-a", &options).unwrap().0);
        wait_up("sl-b");
        b.send([frame(5, 60)]);
        assert_eq!(again.recv(1)[0].data(), frame(5, 60).data());
    });
}

/// Not a test: the process killed by [`the_program_goes_with_a_killed_process`].
#[test]
#[ignore = "run by another test"]
fn holds_a_port() {
    if netdev::link::link_info("sl-a").is_err() {
        println!("SKIP: holds_a_port: not in a namespace of another test");
        return;
    }
    let (port, _) = Port::open_afxdp("sl-a", &options(XdpMode::Generic)).unwrap();
    std::thread::sleep(Duration::from_secs(30));
    drop(port);
}

#[test]
fn the_program_goes_with_a_killed_process() {
    in_netns(|| {
        veth_of(1);
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "--ignored", "afxdp::holds_a_port"]).stdout(Stdio::null());
        // SAFETY: one system call between fork and exec: the child does not outlive a failing test.
        unsafe {
            child.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            })
        };
        let mut child = child.spawn().unwrap();
        let start = Instant::now();
        while !has_program("sl-a") {
            assert!(start.elapsed() < LIMIT, "the child attaches nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(program_detached("sl-a"));
    });
}

#[test]
fn best_effort_takes_what_works_and_says_why() {
    in_netns(|| {
        veth_of(2);
        let (port, info) = Port::open_afxdp("sl-a", &AfxdpPort::default()).unwrap();
        assert_eq!(info.mode, XdpMode::Native, "a veth has no zero-copy");
        assert!(info.notes[0].contains("native-with-zerocopy"), "{info:?}");
        assert!(info.notes[1].contains("2 receive queues, the port 1"), "{info:?}");
        drop(port);
        let zerocopy = Port::open_afxdp("sl-b", &options(XdpMode::NativeWithZerocopy)).err().unwrap();
        assert!(zerocopy.to_string().contains("xdp-mode native-with-zerocopy"), "{zerocopy}");
        let many = AfxdpPort { n_rxq: 3, ..AfxdpPort::default() };
        let many = Port::open_afxdp("sl-b", &many).err().unwrap().to_string();
        assert!(many.contains("no queue 2") && many.contains("generic"), "{many}");
        let none = Port::open_afxdp("sl-none", &AfxdpPort::default()).err().unwrap();
        assert!(
            none.kind() == std::io::ErrorKind::NotFound && none.to_string().contains("sl-none"),
            "{none}"
        );
        // A device whose driver lacks XDP.
        ip("link add sl-br type bridge");
        ip("link set sl-br up");
        let (_port, info) = Port::open_afxdp("sl-br", &AfxdpPort::default()).unwrap();
        assert_eq!((info.mode, info.notes.len()), (XdpMode::Generic, 2), "{info:?}");
        ip("tuntap add dev sl-tun mode tun");
        let tun = Port::open_afxdp("sl-tun", &AfxdpPort::default()).err().unwrap().to_string();
        assert!(tun.contains("no Ethernet device"), "{tun}");
    });
}

#[test]
fn each_queue_of_the_device_is_received_by_its_own() {
    in_netns(|| {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            veth_of(2);
            let two = |mode| AfxdpPort { n_rxq: 2, ..options(mode) };
            let (mut a, _) = Port::open_afxdp("sl-a", &two(mode)).unwrap();
            let (mut b, info) = Port::open_afxdp("sl-b", &two(mode)).unwrap();
            assert_eq!((a.rx.len(), b.rx.len(), info.notes.len()), (2, 2, 1), "{info:?}");
            wait_up("sl-a");
            wait_up("sl-b");
            // Transmit queues alternate. A veth delivers to the queue of the same number in native mode; in
            // generic mode the number is lost and reads 0.
            let mut pool = PacketPool::new();
            for queue in [0, 1, 0] {
                let mut batch: PacketBatch = [frame(40 + queue as u8, 60)].into_iter().collect();
                let mut tx = a.tx().unwrap();
                assert_eq!(tx.send(&mut batch, &mut pool).sent_packets, 1);
                let at = if mode == XdpMode::Native { queue } else { 0 };
                assert!(wait(b.rx[at].as_ref(), 1000), "{mode}: queue {queue}");
                let mut got = PacketBatch::new();
                assert_eq!(b.rx[at].recv(&mut pool, &mut got, 32).unwrap(), 1);
                assert_eq!(got.packets()[0].data(), frame(40 + queue as u8, 60).data());
                assert!(!wait(b.rx[1 - at].as_ref(), 0));
            }
            a.rx.clear();
            ip("link del sl-a");
        }
    });
}
