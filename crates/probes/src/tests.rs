use super::ring::{self, Details};
use super::server::{EventSocket, parse_request};
use super::*;
use dpif::DropCause;
use flow::FlowKey;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sync::{Mutex, MutexGuard, lock};
use testkit::{TempDir, wait_for};
use upcall_events::{Decoder, Event, Record};

const LIMIT: Duration = Duration::from_secs(20);
/// The ring is one per process: tests with a listener run one at a time.
static TURN: Mutex<()> = Mutex::new(());
/// Marks the upcalls of these tests: other tests of this process report events as well.
const MARK: u64 = 0xfeed_0000_0000_0000;

struct Rig {
    socket: Option<EventSocket>,
    path: PathBuf,
    _dir: TempDir,
    _turn: MutexGuard<'static, ()>,
}

fn rig() -> Rig {
    let turn = lock(&TURN);
    let dir = TempDir::new("events").unwrap();
    let path = dir.path().join("s");
    Rig { socket: Some(EventSocket::open(&path).unwrap()), path, _dir: dir, _turn: turn }
}

/// A listener's end.
struct Listener {
    stream: UnixStream,
    decoder: Decoder,
}

/// Connects and asks; returns once the ring is on.
fn listen(path: &Path, request: &str) -> Listener {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    wait_for(LIMIT, "the ring", ring::is_on).unwrap();
    Listener { stream, decoder: Decoder::new() }
}

impl Listener {
    /// Records until `done` or the end of the stream.
    fn records(&mut self, mut done: impl FnMut(&Record) -> bool) -> Vec<Record> {
        let (mut out, mut buf) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            while let Some(record) = self.decoder.next().unwrap() {
                let over = done(&record);
                out.push(record);
                if over {
                    return out;
                }
            }
            let n = self.stream.read(&mut buf).unwrap();
            if n == 0 {
                return out;
            }
            self.decoder.push(&buf[..n]);
        }
    }
}

fn about(upcall: u64) -> About {
    About { upcall: MARK | upcall, why: Why::Miss, port: 3, bytes: 100 }
}

/// The events of these tests.
fn ours(records: &[Record]) -> Vec<&Event> {
    let events = records.iter().filter_map(|r| if let Record::Event(e) = r { Some(e) } else { None });
    events.filter(|e| e.upcall & MARK == MARK).collect()
}

#[test]
fn requests_are_read_or_refused_with_the_reason() {
    let check = |line: &str, expected: Result<(usize, usize, u16), &str>| {
        let read = parse_request(line).map(|w| (w.packet_bytes, w.key_bytes, w.stages));
        assert_eq!(read, expected.map_err(str::to_string), "{line}");
    };
    check("snap=64 key=32 stages=all", Ok((64, 32, 0x7fe)));
    check("stages=miss,on-wire", Ok((0, 0, 1 << 1 | 1 << 10)));
    check("snap=99999999 stages=miss", Ok((16384, 0, 2)));
    check("stages=none", Ok((0, 0, 0)));
    check("snap=64", Err("stages are missing, as in stages=all"));
    check("snap=-1 stages=all", Err("snap: `-1` is not a number of bytes"));
    check("hello", Err("`hello`: expected NAME=VALUE, as in snap=64"));
    check("size=3", Err("`size`: there are snap, key, stages, drops and samples"));
    check("snap=64 drops=10", Ok((64, 0, 0)));
    check("snap=64 samples=all", Ok((64, 0, 0)));
    check("samples=3", Err("samples: `3` is not all"));
    check("drops=0", Err("drops: `0` is not a number from 1 to 100000"));
    let unknown = "stages: `lunch` is none; there are all, none, miss, enqueued, refused, received, translated, put-sent, \
                   execute-sent, put-done, executed, on-wire";
    check("stages=miss,lunch", Err(unknown));
}

#[test]
fn dropped_packets_reach_a_listener_that_wants_them() {
    let mut rig = rig();
    assert_eq!(drops_wanted(), None);
    let mut stream = listen(&rig.path, "snap=4 key=8 drops=10\n");
    assert_eq!(drops_wanted(), Some(DropSampling { packet_bytes: 4, per_second: 10 }));
    let packet = |packet: &[u8]| DroppedPacket {
        cause: DropCause::Datapath(dpif::DropReason::Meter),
        port: DpPort(77_003),
        bytes: 90,
        packet: packet.to_vec(),
        key: Some(Box::default()),
    };
    dropped([packet(&[1, 2]), packet(&[3])], 7);
    // More than wait for a slow listener.
    dropped((0..3000).map(|_| packet(&[4])), 0);
    drop(rig.socket.take());
    assert_eq!(drops_wanted(), None);
    let (mut packets, mut unsampled) = (Vec::new(), 0);
    for record in stream.records(|record| *record == Record::End) {
        match record {
            Record::Dropped(dropped) => packets.push(dropped),
            Record::Unsampled { packets } => unsampled += packets,
            _ => {}
        }
    }
    assert_eq!(packets.len() as u64 + unsampled, 3009);
    let first = &packets[0];
    assert_eq!((&*first.reason, &*first.kernel, first.port), ("meter", "OVS_DROP_METER", 77_003));
    assert_eq!((&first.packet[..], first.key.len(), first.packet_bytes), (&[1, 2][..], 8, 90));
}

#[test]
fn sampled_packets_reach_a_reader_and_lost_ones_are_counted() {
    let mut rig = rig();
    assert_eq!(samples_wanted(), None);
    let mut stream = listen(&rig.path, "snap=4 samples=all\n");
    assert_eq!((samples_wanted(), drops_wanted()), (Some(4), None));
    let packet = |n: u32| SampledPacket {
        group: n,
        cookie: [0, 0, 0, 1, 0, 0, 0, 2].into(),
        probability: 9,
        in_port: DpPort(77_004),
        bytes: 90,
        packet: vec![1, 2],
    };
    sampled(vec![packet(5), packet(6)], 7);
    // More than the queue, the backlog and the socket hold while nobody reads.
    sampled((0..200_000).map(packet).collect(), 0);
    let (mut packets, mut lost) = (Vec::new(), 0);
    while packets.len() as u64 + lost < 200_009 {
        let last = |record: &Record| matches!(record, Record::Sampled(_) | Record::SamplesLost { .. });
        for record in stream.records(last) {
            match record {
                Record::Sampled(sampled) => packets.push(sampled),
                Record::SamplesLost { packets } => lost += packets,
                _ => {}
            }
        }
    }
    assert_eq!(packets.len() as u64 + lost, 200_009);
    drop(rig.socket.take());
    assert_eq!(samples_wanted(), None);
    assert!(lost > 7, "{lost}");
    let first = &packets[0];
    assert_eq!((first.group, first.probability, first.port, first.packet_bytes), (5, 9, 77_004, 90));
    assert_eq!((&first.packet[..], &first.cookie[..]), (&[1, 2][..], &[0, 0, 0, 1, 0, 0, 0, 2][..]));
}

#[test]
fn a_listener_gets_events_in_order_and_the_end() {
    let mut rig = rig();
    assert_eq!(std::fs::metadata(&rig.path).unwrap().permissions().mode() & 0o777, 0o600);
    port_added("netdev@x", DpPort(77_001), "before");
    let mut stream = listen(&rig.path, "snap=4 key=8 stages=miss,received,on-wire\n");
    let key = FlowKey::default();
    let details = || Details { packet: &[1, 2, 3, 4, 5], key: Some(&key), batch: 9, ..Details::default() };
    for (upcall, stage) in
        [(1, Stage::Miss), (1, Stage::Received), (1, Stage::Translated), (1, Stage::OnWire)]
    {
        ring::report(stage, about(upcall), details());
    }
    std::thread::spawn(move || ring::report(Stage::Miss, about(2), Details::default())).join().unwrap();
    port_added("netdev@x", DpPort(77_002), "during");
    port_removed("netdev@x", DpPort(77_001));
    let mut waiting = BTreeSet::from([(77_001, false), (77_002, true)]);
    let mut first = stream.records(|r| {
        match r {
            Record::Port { number, .. } if *number == 77_002 => waiting.remove(&(77_002, true)),
            Record::PortGone { number } => waiting.remove(&(*number, false)),
            _ => false,
        };
        waiting.is_empty()
    });
    rig.socket = None;
    first.extend(stream.records(|_| false));
    assert!(!rig.path.exists());
    port_removed("netdev@x", DpPort(77_002));

    let pid = std::process::id();
    assert!(
        matches!(&first[0], Record::Start { pid: p, source, .. } if *p == pid && source == "ring"),
        "{first:?}"
    );
    assert_eq!(first[first.len() - 1], Record::End);
    let events = ours(&first);
    let told: Vec<_> = events.iter().map(|e| (e.upcall ^ MARK, e.stage)).collect();
    let of = |upcall| told.iter().filter(|(u, _)| *u == upcall).map(|(_, s)| *s).collect::<Vec<_>>();
    assert_eq!(of(1), [Stage::Miss, Stage::Received, Stage::OnWire], "translated was not asked for");
    assert_eq!(of(2), [Stage::Miss]);
    let event = events.iter().find(|e| e.upcall == MARK | 1).unwrap();
    assert_eq!(
        (&event.packet[..], event.key.len(), event.packet_bytes, event.port),
        (&[1, 2, 3, 4][..], 8, 100, 3)
    );
    assert_eq!(event.thread, sys::thread::id());
    let place = |what: &dyn Fn(&Record) -> bool| first.iter().position(what);
    let thread = place(&|r| matches!(r, Record::Thread { thread, .. } if *thread == event.thread));
    assert!(thread.unwrap() < place(&|r| matches!(r, Record::Event(e) if e == *event)).unwrap());
    let before = place(&|r| matches!(r, Record::Port { number: 77_001, name } if name == "before"));
    assert!(before.unwrap() < place(&|r| matches!(r, Record::PortGone { number: 77_001 })).unwrap());
    let cost = first.iter().rev().find_map(|r| match r {
        Record::Overhead { events, .. } => Some(*events),
        _ => None,
    });
    assert!(cost.unwrap() >= 4, "{first:?}");
}

#[test]
fn a_second_listener_is_refused_until_the_first_is_gone() {
    let rig = rig();
    let first = listen(&rig.path, "stages=all\n");
    let mut line = String::new();
    BufReader::new(UnixStream::connect(&rig.path).unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("error: another program listens"), "{line}");
    drop(first);
    wait_for(LIMIT, "the ring to be off", || !ring::is_on()).unwrap();
    drop(listen(&rig.path, "stages=all\n"));
}

#[test]
fn who_connects_and_leaves_keeps_nobody_out() {
    let rig = rig();
    for _ in 0..50 {
        drop(UnixStream::connect(&rig.path).unwrap());
        let mut stream = UnixStream::connect(&rig.path).unwrap();
        stream.write_all(b"stages=all\n").unwrap();
        let mut first = [0];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(first, [0x89]);
    }
}

#[test]
fn a_bad_request_is_answered_and_ends() {
    let rig = rig();
    for request in ["stages=lunch\n".to_string(), "x".repeat(256)] {
        let mut stream = UnixStream::connect(&rig.path).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("error: "), "{answer}");
        assert!(!ring::is_on());
    }
}

#[test]
fn a_listener_that_does_not_read_loses_events_which_are_counted_and_bounds_memory() {
    let mut rig = rig();
    let mut stream = listen(&rig.path, "snap=2000 key=0 stages=all\n");
    let packet = [7; 2000];
    let told = 60_000;
    // More than socket, backlog and queue hold together; it never blocks, or this test would not end.
    for n in 0..told {
        ring::report(Stage::Miss, about(n), Details { packet: &packet, ..Details::default() });
    }
    let reader = std::thread::spawn(move || {
        let all = stream.records(|r| *r == Record::End);
        let lost: u64 = all
            .iter()
            .map(|r| if let Record::Lost { stage: Stage::Miss, events } = r { *events } else { 0 })
            .sum();
        (ours(&all).len() as u64, lost, all.last() == Some(&Record::End))
    });
    wait_for(LIMIT, "the listener to read on", || ring::reporters().iter().all(|t| t.is_empty())).unwrap();
    rig.socket = None;
    let (came, lost, ended) = reader.join().unwrap();
    assert!(ended && lost > 0 && came > 0, "{came} came, {lost} lost");
    // Other tests of this process may lose some of theirs.
    assert!(came + lost >= told && came < told, "{came} came, {lost} lost of {told}");
}

#[test]
fn sessions_do_not_see_each_others_events() {
    let rig = rig();
    let stream = listen(&rig.path, "stages=all\n");
    ring::report(Stage::Miss, about(1), Details::default());
    drop(stream);
    wait_for(LIMIT, "the ring to be off", || !ring::is_on()).unwrap();
    ring::report(Stage::Miss, about(2), Details::default());
    let mut stream = listen(&rig.path, "stages=all\n");
    ring::report(Stage::Miss, about(3), Details::default());
    let all = stream.records(|r| matches!(r, Record::Event(e) if e.upcall & MARK == MARK));
    assert_eq!(ours(&all).iter().map(|e| e.upcall ^ MARK).collect::<Vec<_>>(), [3]);
}
