//! Dummy ports by their two sides: the queues and the control.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use packet::{GsoKind, Offload, Packet, PacketBatch, PacketPool, checksum};

use super::stream::{Framer, StreamError, frame as framed};
use super::*;
use crate::port::{Port, RxQueue, TxDrop, TxReport};

/// Default options.
fn plain() -> DummyPort {
    DummyPort::new("dummy")
}

struct Rig {
    port: Port,
    tx: Box<dyn TxQueue>,
    dummy: Dummy,
    pool: PacketPool,
}

impl Rig {
    fn new(options: &DummyPort) -> Rig {
        Rig::with(options, None, None)
    }

    fn with(options: &DummyPort, mac: Option<[u8; 6]>, mtu: Option<u32>) -> Rig {
        let (port, dummy) = Port::open_dummy("d0", options, mac, mtu).unwrap();
        Rig { tx: port.tx().unwrap(), port, dummy, pool: PacketPool::new() }
    }

    fn recv(&mut self, qid: usize, most: usize) -> Vec<Vec<u8>> {
        let mut batch = PacketBatch::new();
        let got = self.port.rx[qid].recv(&mut self.pool, &mut batch, most).unwrap();
        assert_eq!(got, batch.len());
        batch.packets().iter().map(|p| p.data().to_vec()).collect()
    }

    fn send(&mut self, frames: impl IntoIterator<Item = Packet>) -> TxReport {
        let mut batch: PacketBatch = frames.into_iter().collect();
        let report = self.tx.send(&mut batch, &mut self.pool);
        assert!(batch.is_empty());
        report
    }
}

fn readable(queue: &dyn RxQueue) -> bool {
    let mut fd = libc::pollfd { fd: queue.fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, alive through the call.
    unsafe { libc::poll(&mut fd, 1, 0) == 1 }
}

fn bytes(tag: u8, len: usize) -> Vec<u8> {
    let mut f = vec![tag; len];
    f[12..14].copy_from_slice(&[0x88, 0xb5]);
    f
}

fn packet(tag: u8, len: usize) -> Packet {
    Packet::from_slice(&bytes(tag, len))
}

/// A directory deleted after the test.
struct Dir(PathBuf);

impl Dir {
    fn new(test: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("sluice-netdev-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The frames of a little-endian capture file, parsed independently.
fn captured(path: &Path) -> Vec<Vec<u8>> {
    let all = std::fs::read(path).unwrap();
    assert_eq!(all[..8], [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]);
    assert_eq!(all[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0xee, 5, 0, 0, 1, 0, 0, 0]);
    let mut rest = &all[24..];
    let mut frames = Vec::new();
    while let Some((head, more)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        assert_eq!(head[8..12], head[12..16]);
        frames.push(more[..len].to_vec());
        rest = &more[len..];
    }
    assert!(rest.is_empty());
    frames
}

fn arp_request(target: [u8; 4]) -> Vec<u8> {
    let mut f = vec![0xff; 6];
    f.extend([2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    f.extend([2, 0, 0, 0, 0, 9, 10, 0, 0, 9, 0, 0, 0, 0, 0, 0]);
    f.extend(target);
    f
}

#[test]
fn frames_come_out_in_order_and_make_the_descriptor_readable() {
    let mut rig = Rig::new(&DummyPort { n_rxq: 3, ..plain() });
    assert_eq!((rig.port.rx.len(), rig.dummy.n_rxq(), rig.port.name()), (3, 3, "d0"));
    for i in 0..40 {
        rig.dummy.receive(1, &bytes(i, 60)).unwrap();
    }
    rig.dummy.receive(2, &bytes(99, 14)).unwrap();
    assert_eq!([0, 1, 2].map(|q| readable(rig.port.rx[q].as_ref())), [false, true, true]);
    assert_eq!(rig.recv(0, 32).len(), 0);
    assert_eq!(rig.recv(1, 5), (0..5).map(|i| bytes(i, 60)).collect::<Vec<_>>());
    assert_eq!(rig.recv(1, 32), (5..37).map(|i| bytes(i, 60)).collect::<Vec<_>>());
    assert!(readable(rig.port.rx[1].as_ref()));
    assert_eq!(rig.recv(1, 1000).len(), 3);
    assert!(!readable(rig.port.rx[1].as_ref()));
    assert_eq!(rig.recv(2, 32), [bytes(99, 14)]);
    let stats = rig.dummy.stats();
    assert_eq!(stats.rx, QueueStats { packets: 41, bytes: 2414 });
    assert_eq!(stats.rx_queues.iter().map(|q| q.packets).collect::<Vec<_>>(), [0, 40, 1]);
}

#[test]
fn bad_frames_and_queues_are_refused_and_a_full_queue_counts() {
    let mut rig = Rig::new(&plain());
    let name = || "d0".to_owned();
    assert_eq!(rig.dummy.receive(0, &[0; 13]), Err(DummyError::TooShort { name: name(), bytes: 13 }));
    assert_eq!(rig.dummy.receive(0, &[0; 65536]), Err(DummyError::TooLong { name: name(), bytes: 65536 }));
    assert_eq!(rig.dummy.receive(1, &[0; 60]), Err(DummyError::NoQueue { name: name(), qid: 1, queues: 1 }));
    assert!(!readable(rig.port.rx[0].as_ref()));
    rig.dummy.receive(0, &bytes(1, 65535)).unwrap();
    for _ in 1..MAX_QUEUED {
        rig.dummy.receive(0, &[0; 60]).unwrap();
    }
    assert_eq!(rig.dummy.receive(0, &[0; 60]), Err(DummyError::Full { name: name(), qid: 0 }));
    assert_eq!((rig.dummy.room(0), rig.dummy.room(7)), (0, 0));
    assert_eq!(rig.port.rx[0].counters().kernel_drops, 1);
    assert_eq!(rig.dummy.stats().rx_dropped, 1);
    assert_eq!(rig.recv(0, 1)[0], bytes(1, 65535));
    assert_eq!(rig.dummy.room(0), 1);
}

#[test]
fn sent_frames_reach_tap_and_counters_unless_they_are_too_long() {
    let mut rig = Rig::with(&plain(), None, Some(100));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    let own = rig.dummy.clone();
    rig.dummy.set_tap(Some(Box::new(move |f| {
        // A tap may inject frames: two dummies wired to each other.
        own.receive(0, f).unwrap();
        sink.lock().unwrap().push(f.len());
    })));
    let mut tagged = packet(1, 114);
    tagged.insert(12, 4);
    tagged.data_mut()[12..14].copy_from_slice(&[0x81, 0]);
    let mut tagged_long = packet(1, 115);
    tagged_long.insert(12, 4);
    tagged_long.data_mut()[12..14].copy_from_slice(&[0x88, 0xa8]);
    let report =
        rig.send([packet(1, 114), packet(2, 115), tagged, tagged_long, Packet::from_slice(&[1; 13])]);
    assert_eq!((report.sent_packets, report.sent_bytes), (2, 114 + 118));
    assert_eq!((report.dropped(TxDrop::TooLarge), report.dropped(TxDrop::Refused)), (2, 1));
    assert_eq!(*heard.lock().unwrap(), [114, 118]);
    assert_eq!(rig.recv(0, 32).len(), 2);
    let stats = rig.dummy.stats();
    assert_eq!((stats.tx, stats.tx_dropped), (QueueStats { packets: 2, bytes: 232 }, 3));
    rig.dummy.set_mtu(1500).unwrap();
    rig.dummy.set_tap(None);
    assert_eq!(rig.send([packet(1, 1514)]).sent_packets, 1);
    assert_eq!(heard.lock().unwrap().len(), 2);
}

#[test]
fn large_segments_are_cut_and_checksums_filled() {
    let mut rig = Rig::new(&plain());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = heard.clone();
    rig.dummy.set_tap(Some(Box::new(move |f| sink.lock().unwrap().push(f.to_vec()))));
    let mut f = vec![2; 12];
    f.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    f.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    f.extend((0..4000).map(|i| i as u8));
    let total = (f.len() - 14) as u16;
    f[16..18].copy_from_slice(&total.to_be_bytes());
    let mut p = Packet::from_slice(&f);
    p.offload = Offload {
        needs_csum: true,
        csum_start: 34,
        csum_offset: 16,
        gso: GsoKind::Tcp4,
        gso_size: 1400,
        hdr_len: 54,
        ..Offload::NONE
    };
    let report = rig.send([p]);
    assert_eq!((report.sent_packets, report.generated_packets, report.dropped_packets()), (3, 2, 0));
    let heard = heard.lock().unwrap();
    assert_eq!(heard.iter().map(Vec::len).collect::<Vec<_>>(), [1454, 1454, 1254]);
    for d in heard.iter() {
        let sum = checksum::pseudo(&d[26..30], &d[30..34], 6, d.len() - 34);
        assert_eq!(checksum::fold(checksum::sum(&d[34..], sum)), 0xffff);
    }
}

#[test]
fn arp_for_the_own_address_is_answered() {
    let mut rig = Rig::with(&plain(), Some([2, 0, 0, 0, 0, 7]), None);
    let request = || Packet::from_slice(&arp_request([10, 0, 0, 7]));
    rig.send([request()]);
    assert_eq!(rig.recv(0, 32).len(), 0, "no address, no answer");
    let addresses = [(IpAddr::from([10, 0, 0, 6]), 24), (IpAddr::from([10, 0, 0, 7]), 24)];
    addresses.iter().for_each(|(ip, len)| rig.dummy.add_address(*ip, *len).unwrap());
    let mut tagged = request();
    tagged.insert(12, 4);
    tagged.data_mut()[12..16].copy_from_slice(&[0x81, 0, 0, 5]);
    let mut expected = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
    expected.extend([2, 0, 0, 0, 0, 7, 10, 0, 0, 7, 2, 0, 0, 0, 0, 9, 10, 0, 0, 9]);
    assert_eq!(rig.send([request(), tagged]).sent_packets, 2);
    assert_eq!(rig.recv(0, 32), [expected.clone(), expected]);
    // Not for us, a reply, truncated, another hardware type: no reply.
    let changed = |at: usize, value: u8| {
        let mut p = request();
        p.data_mut()[at] = value;
        p
    };
    let mut short = request();
    short.set_len(41);
    let others = [changed(41, 8), changed(21, 2), changed(15, 6), changed(18, 5), changed(13, 0), short];
    assert_eq!(rig.send(others).sent_packets, 6);
    assert_eq!(rig.recv(0, 32).len(), 0);
    assert_eq!(rig.dummy.addresses(), addresses);
}

#[test]
fn captures_hold_what_came_and_went_and_are_continued() {
    let dir = Dir::new("captures");
    let both = DummyPort { pcap: Some(dir.file("both")), rxq_pcap: Some(dir.file("not-used")), ..plain() };
    for round in 0..2 {
        let mut rig = Rig::new(&both);
        rig.dummy.add_address(IpAddr::from([10, 0, 0, 7]), 32).unwrap();
        rig.dummy.receive(0, &bytes(1, 60)).unwrap();
        rig.send([packet(2, 70), packet(3, 1600), Packet::from_slice(&arp_request([10, 0, 0, 7]))]);
        let all = captured(&dir.file("both"));
        assert_eq!(all.len(), 4 * (round + 1));
        assert_eq!((&all[0], &all[1]), (&bytes(1, 60), &bytes(2, 70)));
        assert_eq!((all[2][21], all[3][21]), (2, 1), "answer and request");
        assert_eq!(rig.dummy.stats().capture_errors, 0);
    }
    assert!(!dir.file("not-used").exists());
    let apart = DummyCaptures { pcap: None, rxq_pcap: Some(dir.file("rx")), tx_pcap: Some(dir.file("tx")) };
    let mut rig = Rig::new(&plain());
    rig.dummy.set_captures(&apart).unwrap();
    rig.dummy.receive(0, &bytes(1, 60)).unwrap();
    rig.send([packet(2, 70)]);
    assert_eq!(captured(&dir.file("rx")), [bytes(1, 60)]);
    assert_eq!(captured(&dir.file("tx")), [bytes(2, 70)]);
    // A removed file begins again once it is opened anew; another one goes on.
    std::fs::remove_file(dir.file("tx")).unwrap();
    rig.dummy.reopen_captures().unwrap();
    rig.dummy.receive(0, &bytes(3, 60)).unwrap();
    rig.send([packet(4, 70)]);
    assert_eq!(captured(&dir.file("rx")), [bytes(1, 60), bytes(3, 60)]);
    assert_eq!(captured(&dir.file("tx")), [bytes(4, 70)]);
}

#[test]
fn files_that_are_no_captures_are_left_alone() {
    let dir = Dir::new("no-captures");
    let swapped = [&[0xa1, 0xb2, 0xc3, 0xd4, 0, 2, 0, 4][..], &[0; 15], &[1]].concat();
    let cases: [(&str, &[u8], &str); 3] = [
        ("text", b"something that matters", "no pcap file"),
        ("ng", &[0x0a, 0x0d, 0x0d, 0x0a, 0, 0, 0, 28, 0, 0], "pcapng"),
        ("swapped", &swapped, "another byte order"),
    ];
    for (name, content, why) in cases {
        let path = dir.file(name);
        std::fs::write(&path, content).unwrap();
        let options = DummyPort { tx_pcap: Some(path.clone()), ..plain() };
        let error = Port::open_dummy("d0", &options, None, None).err().unwrap().to_string();
        assert!(error.contains(why) && error.contains(name), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    let captures = DummyCaptures { tx_pcap: Some(dir.file("no/where")), ..DummyCaptures::default() };
    let error = Rig::new(&plain()).dummy.set_captures(&captures).unwrap_err();
    assert!(error.kind() == io::ErrorKind::NotFound && error.to_string().contains("no/where"), "{error}");
}

#[test]
fn properties_are_read_and_set() {
    let options = DummyPort { numa_id: 1, ifindex: Some(77), ..plain() };
    let (first, second) = (Rig::new(&options), Rig::new(&options));
    let d = first.dummy.clone();
    assert_eq!((d.n_rxq(), d.mtu(), d.admin_up(), d.ifindex(), d.numa_id()), (1, 1500, true, 77, 1));
    assert_eq!((first.port.ifindex(), first.port.exists(), d.n_txq()), (77, None, 1));
    assert_eq!(d.mac()[..4], [0xaa, 0x55, 0xaa, 0x55]);
    assert_ne!(d.mac(), second.dummy.mac());
    let count = d.change_count();
    d.set_mtu(1500).unwrap();
    d.set_admin_up(true);
    assert_eq!(d.change_count(), count, "nothing has changed");
    d.set_admin_up(false);
    d.set_mac([2; 6]);
    d.set_ifindex(5);
    let address = (IpAddr::from(Ipv6Addr::LOCALHOST), 0);
    for _ in 0..2 {
        d.add_address(address.0, address.1).unwrap();
    }
    assert_eq!(d.change_count(), count + 4);
    assert_eq!((d.admin_up(), d.mac(), d.ifindex()), (false, [2; 6], 5));
    assert_eq!(d.addresses(), [address]);
    for n in 1..MAX_ADDRESSES as u8 {
        d.add_address(IpAddr::from([10, 0, 0, n]), 24).unwrap();
    }
    let most = DummyError::TooManyAddresses { name: "d0".to_owned() };
    assert_eq!(d.add_address(IpAddr::from([10, 0, 1, 0]), 24), Err(most));
    for mtu in [67, 65536, u32::MAX] {
        assert_eq!(d.set_mtu(mtu), Err(DummyError::BadMtu { name: "d0".to_owned(), mtu }));
        assert!(Port::open_dummy("d1", &options, None, Some(mtu)).is_err());
    }
    // Down for the administrator, it carries frames all the same.
    let mut rig = first;
    d.receive(0, &bytes(1, 60)).unwrap();
    assert_eq!((rig.recv(0, 32).len(), rig.send([packet(1, 60)]).sent_packets), (1, 1));
    let most = Rig::new(&DummyPort { n_rxq: 0, ..options });
    assert_eq!(most.port.rx.len(), 1);
}

#[test]
fn frames_on_a_stream_are_found_however_it_is_cut() {
    let frames = [bytes(1, 14), bytes(2, 60), bytes(3, 65535), bytes(4, 1514)];
    let mut wire = Vec::new();
    for f in &frames {
        framed(f, &mut wire).unwrap();
    }
    assert_eq!(wire[..3], [0, 14, 1]);
    for cut in [1, 2, 3, 15, 16, 17, 1000, 65536, 200_000] {
        let mut framer = Framer::new();
        let mut found = Vec::new();
        for mut piece in wire.chunks(cut) {
            while !piece.is_empty() {
                let taken = framer.push(piece);
                assert!(taken > 0);
                piece = &piece[taken..];
                while let Some(f) = framer.next_frame().unwrap() {
                    found.push(f.to_vec());
                }
            }
        }
        assert_eq!(found, frames, "cut {cut}");
        assert_eq!(framer.room(), 65537);
    }
}

#[test]
fn a_stream_that_lost_its_place_ends() {
    let mut framer = Framer::new();
    let mut wire = Vec::new();
    framed(&bytes(1, 20), &mut wire).unwrap();
    wire.extend([0, 13, 1, 2, 3]);
    assert_eq!(framer.push(&wire), wire.len());
    assert_eq!(framer.next_frame().unwrap(), Some(&bytes(1, 20)[..]));
    for _ in 0..2 {
        assert_eq!(framer.next_frame(), Err(StreamError::TooShort(13)));
    }
    let mut out = vec![7];
    assert_eq!(framed(&[0; 65536], &mut out), Err(StreamError::TooLong(65536)));
    assert_eq!(framed(&[0; 13], &mut out), Err(StreamError::TooShort(13)));
    assert_eq!(out, [7]);
    // A caller that takes no frames runs out of room.
    let mut framer = Framer::new();
    assert_eq!(framer.push(&vec![0xff; 1 << 20]), 65537);
    assert_eq!(framer.push(&[0; 10]), 0);
}

#[test]
fn received_frames_get_the_mark_of_the_classifier() {
    let mut rig = Rig::new(&plain());
    rig.dummy.set_marker(Some(Arc::new(|frame: &[u8]| u32::from(frame[0]))));
    rig.dummy.receive(0, &[7; 60]).unwrap();
    rig.dummy.set_marker(None);
    rig.dummy.receive(0, &[7; 60]).unwrap();
    let mut batch = PacketBatch::new();
    rig.port.rx[0].recv(&mut rig.pool, &mut batch, 32).unwrap();
    let marks: Vec<u32> = batch.packets_mut().iter_mut().map(Packet::take_mark).collect();
    assert_eq!(marks, [7, 0]);
}
