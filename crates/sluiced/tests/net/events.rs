//! Events of first packets: the daemon's probes, and its event socket with real traffic.

use crate::helpers::{LIMIT, PYTHON, SLUICED, on_kernel, ping_all, require_userspace, spec, switch, vsctl};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Instant;
use testkit::{Cmd, Daemon, Netns, Topology, patience, require_netns, require_programs, wait_for};
use upcall_cost::bpf::Bpf;
use upcall_cost::{Capture, Polled, Source};
use upcall_events::{Decoder, Event, Record, Stage, Why};

/// The stages of the first packet of a flow.
const WAY: [Stage; 8] = [
    Stage::Miss,
    Stage::Enqueued,
    Stage::Received,
    Stage::Translated,
    Stage::PutSent,
    Stage::ExecuteSent,
    Stage::Executed,
    Stage::OnWire,
];

/// The stages of [`WAY`] reported by the datapath: the kernel executes packets within the sender's call, and reports no events.
fn way() -> Vec<Stage> {
    WAY.into_iter().filter(|stage| !(on_kernel() && *stage == Stage::Executed)).collect()
}

/// A client of a daemon's event socket.
struct Listener {
    stream: UnixStream,
    decoder: Decoder,
    seen: Vec<Record>,
    ended: bool,
}

fn connect(daemon: &Daemon) -> UnixStream {
    let path = daemon.rundir().join(&format!("sluiced.{}.events", daemon.pid()));
    UnixStream::connect(path).unwrap()
}

/// Connects; returns once the daemon sends events.
fn listen(daemon: &Daemon, request: &str) -> Listener {
    let mut stream = connect(daemon);
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(LIMIT / 100)).unwrap();
    let mut listener = Listener { stream, decoder: Decoder::new(), seen: Vec::new(), ended: false };
    listener.wait("the beginning", |seen| !seen.is_empty());
    listener
}

impl Listener {
    /// Reads until `done` holds for the records so far.
    fn wait(&mut self, what: &str, done: impl Fn(&[Record]) -> bool) {
        let begun = Instant::now();
        while !done(&self.seen) {
            assert!(!self.ended && begun.elapsed() < patience(LIMIT), "waited for {what}: {:#?}", self.seen);
            self.read();
        }
    }

    /// Reads to the end of the stream.
    fn rest(mut self) -> Vec<Record> {
        let begun = Instant::now();
        while !self.ended {
            assert!(begun.elapsed() < patience(LIMIT), "the stream does not end");
            self.read();
        }
        self.seen
    }

    fn read(&mut self) {
        let mut buf = [0; 1 << 16];
        match self.stream.read(&mut buf) {
            Ok(0) => self.ended = true,
            Ok(n) => self.decoder.push(&buf[..n]),
            // A read with a timeout is interrupted, not restarted.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) => {}
            Err(e) => panic!("{e}"),
        }
        while let Some(record) = self.decoder.next().unwrap() {
            self.seen.push(record);
        }
    }
}

fn events(records: &[Record]) -> Vec<&Event> {
    records.iter().filter_map(|r| if let Record::Event(e) = r { Some(e) } else { None }).collect()
}

/// The complete event sequences of misses, in the order of their times.
fn whole_ways(records: &[Record]) -> Vec<Vec<&Event>> {
    let mut by_upcall: BTreeMap<u64, Vec<&Event>> = BTreeMap::new();
    for event in events(records) {
        by_upcall.entry(event.upcall).or_default().push(event);
    }
    let whole = |events: &Vec<&Event>| {
        let stages: BTreeSet<Stage> = events.iter().map(|e| e.stage).collect();
        events[0].upcall != 0 && way().iter().chain([&Stage::PutDone]).all(|s| stages.contains(s))
    };
    let mut ways: Vec<_> = by_upcall.into_values().filter(whole).collect();
    ways.iter_mut().for_each(|events| events.sort_by_key(|e| (e.time_ns, e.stage)));
    ways
}

#[test]
fn events_of_a_first_packet_share_one_id() {
    require_userspace!("all stages of a first packet");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (net, daemon) = switch(2);
    let mut listener = listen(&daemon, "snap=64 key=64 stages=all\n");
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
    listener.wait("a whole way", |seen| !whole_ways(seen).is_empty());
    let pid = daemon.pid();
    daemon.stop().unwrap();
    let records = listener.rest();
    assert!(matches!(&records[0], Record::Start { pid: p, source, .. } if *p == pid && source == "ring"));
    assert_eq!(records.last(), Some(&Record::End));
    assert!(records.iter().any(
        |r| matches!(r, Record::Overhead { events, spent_ns } if *events > 0 && *spent_ns < 1_000_000_000)
    ));
    assert!(!records.iter().any(|r| matches!(r, Record::Lost { .. })), "{records:#?}");

    check_ways(&records, &net);
}

/// Checks the invariants of complete upcalls that hold for every source.
fn check_ways(records: &[Record], net: &Topology) {
    let named = |kind: &dyn Fn(&Record) -> Option<(u32, String)>| -> BTreeMap<u32, String> {
        records.iter().filter_map(kind).collect()
    };
    let ports =
        named(&|r| if let Record::Port { number, name } = r { Some((*number, name.clone())) } else { None });
    let threads = named(&|r| {
        if let Record::Thread { thread, name } = r { Some((*thread, name.clone())) } else { None }
    });
    for way in whole_ways(records) {
        let stages: Vec<Stage> = way.iter().map(|e| e.stage).filter(|s| *s != Stage::PutDone).collect();
        assert_eq!(stages, self::way(), "{way:#?}");
        let of = |stage| *way.iter().find(|e| e.stage == stage).unwrap();
        let (miss, received, put_done) = (of(Stage::Miss), of(Stage::Received), of(Stage::PutDone));
        assert!(of(Stage::PutSent).time_ns <= put_done.time_ns);
        assert_eq!((miss.why, received.why), (Why::Miss, Why::Miss));
        assert!(net.ports().contains(&ports[&miss.port].as_str()), "{ports:?}");
        // Handlers read the kernel's misses.
        let misses = if on_kernel() { "handler" } else { "pmd-" };
        assert!(threads[&miss.thread].starts_with(misses), "{threads:?}");
        assert!(threads[&received.thread].starts_with("handler"), "{threads:?}");
        assert!((1..=64).contains(&received.batch), "{received:?}");
        assert!(!received.key.is_empty() && received.key.len() <= 64);
        assert_eq!(miss.packet.len() as u32, miss.packet_bytes.min(64));
        let last = if on_kernel() { Stage::ExecuteSent } else { Stage::Executed };
        assert_eq!(miss.packet, of(last).packet, "the packet is the same all the way");
    }
}

/// Traces a daemon by eBPF; `None` if eBPF is unavailable.
fn trace(daemon: &Daemon, buffer_pages: usize) -> Option<Bpf> {
    let capture = Capture {
        pid: Some(daemon.pid()),
        run_dir: daemon.rundir().path().to_path_buf(),
        packet_bytes: 64,
        key_bytes: 64,
        buffer_pages,
        debug: false,
    };
    let refused = |why: &anyhow::Error| {
        let why = format!("{why:#}");
        assert!(why.contains("eBPF is not available"), "{why}");
        testkit::skip(std::thread::current().name().unwrap_or_default(), &why);
    };
    upcall_cost::bpf::open(&capture).inspect_err(refused).ok()
}

/// Reads records of a source until `done`, or its end.
fn reported(source: &mut Bpf, what: &str, done: impl Fn(&[Record]) -> bool) -> (Vec<Record>, Option<Polled>) {
    let (begun, mut seen) = (Instant::now(), Vec::new());
    loop {
        match source.next(LIMIT / 100).unwrap() {
            Polled::Record(record) => seen.push(record),
            Polled::Nothing => {}
            end => return (seen, Some(end)),
        }
        if done(&seen) {
            return (seen, None);
        }
        assert!(begun.elapsed() < patience(LIMIT), "waited for {what}: {seen:#?}");
    }
}

#[test]
fn ebpf_events_of_a_first_packet_share_one_id() {
    require_userspace!("all stages of a first packet");
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (net, daemon) = switch(2);
    let Some(mut source) = trace(&daemon, 256) else { return };
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
    let costs =
        |r: &Record| matches!(r, Record::Overhead { events, spent_ns } if *events > 0 && *spent_ns > 0);
    let (mut records, _) = reported(&mut source, "a whole way and its cost", |seen| {
        !whole_ways(seen).is_empty() && seen.iter().any(costs)
    });
    assert!(
        matches!(&records[0], Record::Start { pid, source, .. } if *pid == daemon.pid() && source == "bpf")
    );
    daemon.stop().unwrap();
    let (rest, end) = reported(&mut source, "the end", |_| false);
    records.extend(rest);
    assert_eq!(end, Some(Polled::End { note: None }), "a good end");
    check_ways(&records, &net);
}

#[test]
fn losses_by_a_crash_or_a_small_buffer_are_reported() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (net, daemon) = switch(2);
    // Room for a dozen packets with their keys.
    let Some(mut source) = trace(&daemon, 1) else { return };
    // Each destination is a separate flow; meanwhile nothing reads the buffer.
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 1);
    for flow in 1..20 {
        let (port, to) = (format!("{}", 1000 + flow), net.hosts[1].ipv4.to_string());
        net.hosts[0].netns.run(PYTHON, &["-c", SEND_UDP, &to, &port]).unwrap();
    }
    daemon.crash().unwrap();
    let (records, end) = reported(&mut source, "the end", |_| false);
    let Some(Polled::End { note: Some(note) }) = end else { panic!("{end:?}") };
    assert!(note.contains("ended while it was traced"), "{note}");
    let lost = |r: &Record| if let Record::Lost { events, .. } = r { *events } else { 0 };
    let lost: u64 = records.iter().map(lost).sum();
    let reported = events(&records).len() as u64;
    let counted = records
        .iter()
        .rev()
        .find_map(|r| if let Record::Overhead { events, .. } = r { Some(*events) } else { None });
    assert!(lost > 0 && reported > 0, "{reported} reported, {lost} lost");
    assert_eq!(counted, Some(reported + lost));
}

const SEND_UDP: &str = "\
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], int(sys.argv[2])))
";

#[test]
fn port_changes_are_reported_to_one_listener_at_a_time() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (net, daemon) = switch(2);
    let mut listener = listen(&daemon, "stages=all\n");
    let mut line = String::new();
    BufReader::new(connect(&daemon)).read_line(&mut line).unwrap();
    assert!(line.starts_with("error: another program listens"), "{line}");

    let port = net.ports()[1].to_string();
    let number_of = |seen: &[Record]| {
        let of = |r: &Record| match r {
            Record::Port { number, name } if *name == port => Some(*number),
            _ => None,
        };
        seen.iter().filter_map(of).next_back()
    };
    let number = number_of(&listener.seen).expect("the stream begins with ports");
    vsctl(&daemon, &format!("del-port br0 {port}"));
    let gone = |seen: &[Record]| seen.contains(&Record::PortGone { number });
    listener.wait("the port to go", gone);
    listener.seen.clear();
    vsctl(&daemon, &format!("add-port br0 {port}"));
    listener.wait("the port to come", |seen| number_of(seen).is_some());

    // Disconnecting frees the slot; no file is left.
    drop(listener);
    let reconnected = || {
        let mut stream = connect(&daemon);
        let mut first = [0];
        // One that is refused may be closed before it asks.
        let asked = stream.write_all(b"stages=all\n").and_then(|()| stream.read_exact(&mut first));
        asked.is_ok() && first == [0x89]
    };
    wait_for(LIMIT, "room for the next listener", reconnected).unwrap();
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 1);
}

#[test]
fn a_killed_daemon_leaves_a_valid_stream() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let (net, daemon) = switch(2);
    let mut listener = listen(&daemon, "snap=32 stages=miss,received\n");
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 2);
    let received = |seen: &[Record]| events(seen).iter().any(|e| e.stage == Stage::Received);
    listener.wait("a received upcall", received);
    daemon.crash().unwrap();
    let records = listener.rest();
    assert!(!records.contains(&Record::End));
    assert!(events(&records).iter().all(|e| matches!(e.stage, Stage::Miss | Stage::Received)));
}

#[test]
fn the_event_socket_is_removed_at_exit() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-appctl");
    let netns = Netns::new("ev").unwrap();
    let daemon = spec(&netns).start().unwrap();
    let path = daemon.rundir().join(&format!("sluiced.{}.events", daemon.pid()));
    wait_for(LIMIT, "the event socket", || path.exists()).unwrap();
    let _kept = daemon.rundir().clone();
    daemon.stop().unwrap();
    assert!(!path.exists());
}

/// Probe → its arguments: provider, name, how many.
const PROBES: [(&str, &str, usize); 21] = [
    ("dpif_netlink_operate__", "op_flow_del", 2),
    ("dpif_netlink_operate__", "op_flow_execute", 4),
    ("dpif_netlink_operate__", "op_flow_get", 2),
    ("dpif_netlink_operate__", "op_flow_put", 4),
    ("dpif_recv", "recv_upcall", 6),
    ("main", "poll_block", 0),
    ("main", "run_start", 0),
    ("revalidate_ukey__", "entry", 5),
    ("revalidate_ukey__", "exit", 3),
    ("sluice", "upcall_enqueued", 6),
    ("sluice", "upcall_executed", 4),
    ("sluice", "upcall_execute_sent", 4),
    ("sluice", "upcall_miss", 5),
    ("sluice", "upcall_on_wire", 3),
    ("sluice", "upcall_put_done", 3),
    ("sluice", "upcall_put_sent", 2),
    ("sluice", "upcall_received", 8),
    ("sluice", "upcall_refused", 6),
    ("sluice", "upcall_translated", 5),
    ("udpif_revalidator", "start_dump", 2),
    ("udpif_revalidator", "sweep_done", 3),
];

#[test]
fn the_daemon_has_all_documented_probes() {
    require_programs!("readelf");
    // The linker's removal of probes is visible only in the binary.
    let notes = Cmd::new("readelf").args(["-n", "-W", SLUICED]).run().unwrap().stdout;
    let mut found = BTreeSet::new();
    for note in notes.split("Provider: ").skip(1) {
        let field = |name: &str| {
            let rest = note.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {note}"));
            rest.split([',', '\n']).next().unwrap().trim().to_string()
        };
        let address = |name: &str| u64::from_str_radix(field(name).trim_start_matches("0x"), 16).unwrap();
        for place in ["Location:", "Base:", "Semaphore:"] {
            assert!(address(place) != 0, "{note}");
        }
        let arguments = field("Arguments:").split_whitespace().count();
        assert!(
            found.insert((note.lines().next().unwrap().to_string(), field("Name:"), arguments)),
            "twice: {note}"
        );
    }
    let expected: BTreeSet<_> = PROBES.iter().map(|(p, n, a)| (p.to_string(), n.to_string(), *a)).collect();
    assert_eq!(found, expected);
    let page = include_str!("../../../../docs/probes.md");
    for (provider, name, _) in PROBES {
        assert!(page.contains(&format!("`{provider}:{name}`")), "docs/probes.md lacks {provider}:{name}");
    }
}
