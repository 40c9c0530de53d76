//! `upcall-cost` on the daemon's events with real traffic.

use crate::helpers::{LIMIT, ping_all, switch};
use std::time::Instant;
use testkit::{Daemon, require_netns, require_programs};
use upcall_cost::gather::Gathered;
use upcall_cost::ring::Ring;
use upcall_cost::{Analysed, Capture, Polled, Source, analyse};
use upcall_events::{Record, Stage};

/// Connects to the event ring of a daemon, found by its run directory.
fn ring(daemon: &Daemon) -> Ring {
    let run_dir = daemon.rundir().path().to_path_buf();
    Ring::open(&Capture {
        pid: None,
        run_dir,
        packet_bytes: 128,
        key_bytes: 0,
        buffer_pages: 1,
        debug: false,
    })
    .unwrap()
}

/// Gathers until `done` or the end of the stream; returns the note of the end.
fn gather(
    source: &mut Ring,
    gathered: &mut Gathered,
    done: impl Fn(&Gathered) -> bool,
) -> Option<Option<String>> {
    let begun = Instant::now();
    while !done(gathered) {
        match source.next(LIMIT / 100).unwrap() {
            Polled::Record(record) => gathered.take(&record),
            Polled::Nothing => {}
            Polled::End { note } => return Some(note),
        }
        assert!(begun.elapsed() < LIMIT, "the events do not come");
    }
    None
}

/// The number of events of a stage.
fn count(gathered: &Gathered, stage: Stage) -> usize {
    gathered.events.iter().filter(|event| event.stage == stage).count()
}

#[test]
fn first_packets_are_gathered_matched_and_measured() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let (net, daemon) = switch(2);
    let (mut source, mut gathered) = (ring(&daemon), Gathered::default());
    // The stream has begun once it names its origin.
    gather(&mut source, &mut gathered, |gathered| gathered.origin.is_some());
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 3);
    gather(&mut source, &mut gathered, |gathered| count(gathered, Stage::OnWire) >= 4);
    let pid = daemon.pid();
    daemon.stop().unwrap();
    assert_eq!(gather(&mut source, &mut gathered, |_| false), Some(None), "it ended in good order");

    let Analysed { report, joined, gathered } = analyse("test", gathered, Vec::new(), &mut |_| {});
    assert!(report.origin.as_ref().is_some_and(|origin| origin.pid == pid && origin.source == "ring"));
    assert_eq!((report.upcalls.ambiguous, gathered.lost_all()), (0, 0), "{:?}", report.notes);
    assert!(report.upcalls.matched >= 4, "{:?}", report.events);
    for events in report.events.iter().filter(|events| events.stage > Stage::Enqueued) {
        assert_eq!(events.usable, events.total, "{events:?}");
    }
    let whole = joined.traces.iter().filter(|way| way.events() == 9);
    assert!(whole.count() >= 4, "from the miss to the wire, with put and put done");
    let names = net.ports();
    assert!(report.ports.iter().all(|port| names.contains(&port.name.as_str())), "{:?}", report.ports);
    assert!(report.threads.iter().all(|thread| thread.name.starts_with("handler")), "{:?}", report.threads);
    // The total is never less than its parts.
    let [to_handler, to_datapath, overhead, total] = &report.main[..] else { panic!("four figures") };
    assert!(total.summary.count >= 4);
    assert!(total.summary.min >= to_handler.summary.min + to_datapath.summary.min);
    assert!(total.summary.mean >= overhead.summary.mean);
}

#[test]
fn a_daemon_killed_while_traced_leaves_its_events() {
    require_netns!();
    require_programs!("ovs-vsctl");
    let (net, daemon) = switch(2);
    let (mut source, mut gathered) = (ring(&daemon), Gathered::default());
    gather(&mut source, &mut gathered, |gathered| gathered.origin.is_some());
    ping_all(&net.hosts[0].netns, net.hosts[1].ipv4.into(), 1);
    gather(&mut source, &mut gathered, |gathered| count(gathered, Stage::Executed) >= 1);
    daemon.crash().unwrap();
    let note = gather(&mut source, &mut gathered, |_| false).flatten().expect("it did not end in good order");
    assert!(note.contains("the switch ended or died while it was traced"), "{note}");
    let analysed = analyse("test", gathered, vec![note], &mut |_| {});
    assert!(analysed.report.upcalls.matched >= 1);
    // The stream has no end record, so a recording of it reports a missing end.
    assert!(source.next(LIMIT / 100).is_ok_and(|reported| reported != Polled::Record(Record::End)));
}
