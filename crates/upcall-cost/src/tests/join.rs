//! Matching by id, by packet, by key, by order; and cases that must not match.

use upcall_events::Stage;

use super::scenario::{analysed, gathered};
use crate::join::{Joined, join};

/// The upcalls, each as its stages with their times; `?` marks ambiguous ones.
fn traces(text: &str) -> Vec<String> {
    let mut gathered = gathered(text);
    let Joined { traces, .. } = join(&mut gathered, &mut |_| {});
    let shown = traces.iter().map(|trace| {
        let stages = Stage::ALL.iter().filter_map(|stage| Some((stage, trace.event(*stage)?)));
        let stages: Vec<String> = stages
            .map(|(stage, event)| format!("{} {}", stage.name(), gathered.events[event].time_ns))
            .collect();
        format!("{}{}", if trace.ambiguous { "?" } else { "" }, stages.join(", "))
    });
    shown.collect()
}

/// Name of a case, its events, its upcalls.
type Case = (&'static str, &'static str, &'static [&'static str]);

fn check(cases: &[Case]) {
    for (what, text, expected) in cases {
        assert_eq!(traces(text), *expected, "{what}");
    }
}

#[test]
fn events_join_by_id_packet_and_port() {
    check(&[
        (
            "ids, events in any order of records",
            "30 received id=1 thread=5\n10 miss id=1 packet=A\n20 miss id=2 packet=A\n40 received id=2 thread=5",
            &["miss 10, received 30", "miss 20, received 40"],
        ),
        (
            "other threads report stages out of order",
            "10 enqueued id=1\n11 miss id=1\n12 received id=1 thread=5\n13 put-done id=1\n14 put-sent id=1 thread=5\n\
             15 executed id=1\n16 execute-sent id=1 thread=5",
            &["miss 11, enqueued 10, received 12, put-sent 14, execute-sent 16, put-done 13, executed 15"],
        ),
        (
            "a miss without an id joins what has one by its packet",
            "10 miss packet=A\n11 miss packet=B\n20 received id=1 thread=5 packet=B\n21 received id=2 thread=5 packet=A\n\
             30 translated id=2 thread=5",
            &["miss 10, received 21, translated 30", "miss 11, received 20"],
        ),
        (
            "the kernel's miss matches a received upcall by packet and port, and the execute matches by packet and thread",
            "10 miss packet=A port=1\n11 miss packet=A port=2\n20 enqueued id=1 packet=A port=2 thread=5\n\
             21 enqueued id=2 packet=A port=1 thread=5\n30 received id=1 packet=A port=2 thread=5\n\
             40 execute-sent id=1 packet=A thread=5\n50 executed packet=A thread=5",
            &["miss 10, enqueued 21", "miss 11, enqueued 20, received 30, execute-sent 40, executed 50"],
        ),
        (
            "a packet reported twice by the kernel before a handler reads the first is ambiguous",
            "10 miss packet=A port=1\n11 miss packet=A port=1\n20 enqueued id=1 packet=A port=1 thread=5\n\
             21 enqueued id=2 packet=A port=1 thread=5\n30 received id=1 thread=5 packet=A\n31 received id=2 thread=5 packet=A",
            &["?miss 10, enqueued 20, received 30", "?miss 11, enqueued 21, received 31"],
        ),
        (
            "an id takes precedence over a packet",
            "10 miss packet=A\n11 enqueued id=1\n20 received id=1 thread=5 packet=A",
            &["miss 10", "enqueued 11, received 20"],
        ),
        (
            "the same packet again, after the first is done",
            "10 miss packet=A\n20 received thread=5 packet=A\n30 execute-sent thread=5 packet=A\n40 miss packet=A\n\
             50 received thread=5 packet=A\n60 execute-sent thread=5 packet=A",
            &["miss 10, received 20, execute-sent 30", "miss 40, received 50, execute-sent 60"],
        ),
        (
            "the same packet twice at a time is not guessed",
            "10 miss packet=A\n11 miss packet=A\n20 received thread=5 packet=A\n21 received thread=5 packet=A",
            &["?miss 10, received 20", "?miss 11, received 21"],
        ),
        (
            "unless it came by different ports",
            "10 miss packet=A port=1\n11 miss packet=A port=2\n20 received thread=5 packet=A port=2\n\
             21 received thread=5 packet=A port=1",
            &["miss 10, received 21", "miss 11, received 20"],
        ),
        (
            "or is of another length",
            "10 miss packet=A\n11 miss packet=A bytes=99\n20 received thread=5 packet=A bytes=99",
            &["miss 10", "miss 11, received 20"],
        ),
    ]);
}

#[test]
fn events_join_by_thread_and_order() {
    check(&[
        (
            "events of a handler belong to its batch",
            "10 miss packet=A port=1\n11 miss packet=A port=2\n20 received thread=5 packet=A port=1\n\
             21 received thread=6 packet=A port=2\n30 execute-sent thread=6 packet=A\n31 execute-sent thread=5 packet=A",
            &["miss 10, received 20, execute-sent 31", "miss 11, received 21, execute-sent 30"],
        ),
        (
            "an upcall that got no execute at an earlier turn does not take that of a later one",
            "10 miss packet=A\n20 received thread=5 packet=A key=a\n25 put-sent thread=5 key=a\n40 miss packet=A\n\
             50 received thread=5 packet=A key=a\n60 execute-sent thread=5 packet=A",
            &["miss 10, received 20, put-sent 25", "miss 40, received 50, execute-sent 60"],
        ),
        (
            "bare puts and executes join by their order on the thread",
            "10 received thread=5 packet=A\n11 received thread=5 packet=B\n20 put-sent thread=5\n\
             21 execute-sent thread=5 packet=A\n22 put-sent thread=5\n23 execute-sent thread=5 packet=B\n\
             30 executed thread=5\n31 executed thread=5",
            &[
                "received 10, put-sent 20, execute-sent 21, executed 30",
                "received 11, put-sent 22, execute-sent 23, executed 31",
            ],
        ),
        (
            "not if one is missing",
            "10 received thread=5 packet=A\n11 received thread=5 packet=B\n21 execute-sent thread=5 packet=A\n\
             23 execute-sent thread=5 packet=B\n30 executed thread=5\n40 received thread=5 packet=C",
            &["received 10, execute-sent 21", "received 11, execute-sent 23", "received 40"],
        ),
        (
            "and not if events were lost",
            "lost executed 1\n10 received thread=5 packet=A\n21 execute-sent thread=5 packet=A\n30 executed thread=5",
            &["received 10, execute-sent 21"],
        ),
        (
            "too late is another upcall",
            "10 miss packet=A\n2000000000 received thread=5 packet=A",
            &["miss 10", "received 2000000000"],
        ),
        (
            "a refused one is not received",
            "10 miss packet=A\n11 refused packet=A\n12 miss packet=A\n20 received thread=5 packet=A",
            &["miss 10, refused 11", "miss 12, received 20"],
        ),
        ("an execute without an upcall is unmatched", "10 executed packet=A", &["executed 10"]),
    ]);
}

#[test]
fn packets_cut_at_different_lengths_are_compared_by_what_all_have() {
    let cut = |text: &str| {
        let mut gathered = gathered("");
        for mut record in super::scenario::records(text) {
            if let upcall_events::Record::Event(event) = &mut record
                && event.stage == Stage::Received
            {
                event.packet.truncate(37);
            }
            gathered.take(&record);
        }
        let joined = join(&mut gathered, &mut |_| {});
        joined.traces.iter().map(|trace| (trace.events(), trace.ambiguous)).collect::<Vec<_>>()
    };
    let text = "10 miss packet=Along\n11 miss packet=Blong\n20 received thread=5 packet=Blong";
    assert_eq!(cut(text), [(1, false), (2, false)]);
    // The remaining bytes are equal.
    let text = "10 miss packet=A1\n11 miss packet=A2\n20 received thread=5 packet=A1";
    assert_eq!(cut(text), [(2, true), (1, true)]);
}

#[test]
fn a_checksum_that_is_still_to_come_keeps_nothing_apart() {
    let frame = |checksum: [u8; 2], last: u8| {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x81, 0, 0, 7, 8, 0];
        frame.extend_from_slice(&[0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend_from_slice(&[0, 7, 0, 9, 0, 9, checksum[0], checksum[1], last]);
        frame
    };
    let joined = |received: Vec<u8>| {
        let mut gathered = gathered("");
        for (stage, packet) in
            [("10 miss packet=A", frame([1, 2], 0)), ("20 received thread=5 packet=A", received)]
        {
            for mut record in super::scenario::records(stage) {
                if let upcall_events::Record::Event(event) = &mut record {
                    (event.packet, event.packet_bytes) = (packet.clone(), packet.len() as u32);
                }
                gathered.take(&record);
            }
        }
        join(&mut gathered, &mut |_| {}).traces.len()
    };
    assert_eq!([joined(frame([3, 4], 0)), joined(frame([1, 2], 9))], [1, 2]);
}

#[test]
fn a_flood_of_one_packet_is_bounded_and_reported() {
    let flood: String = (0..20_000).map(|time| format!("{time} miss packet=A\n")).collect();
    let report = analysed(&(flood + "lost miss 1000000\n20001 received thread=5 packet=A\n")).report;
    assert_eq!(report.upcalls.matched, 0);
    assert_eq!(report.upcalls.ambiguous, 20_000);
    assert_eq!(report.ports[0].not_received, 19_999);
    assert!(report.notes[0].starts_with("1000000 EVENTS WERE LOST (1000000 miss)"));
}

#[test]
fn ports_come_and_go() {
    let text = "
        10 miss id=1 port=3 packet=A\n 20 received id=1 thread=5 port=3\n port 3 veth3
        30 miss id=2 port=3 packet=B\n 40 received id=2 thread=5 port=3\n gone 3
        50 miss id=3 port=3 packet=C\n 60 received id=3 thread=5 port=3\n gone 3\n port 3 veth9
        70 miss id=4 port=3 packet=D\n 80 received id=4 thread=5 port=3\n gone 3\n port 3 veth3
        90 miss id=5 port=3 packet=E\n 95 received id=5 thread=5 port=3";
    let report = analysed(text).report;
    let ports: Vec<(&str, u64)> =
        report.ports.iter().map(|port| (port.name.as_str(), port.upcalls)).collect();
    // The first upcall came before the name; the third between two names.
    assert_eq!(ports, [("veth3", 3), ("port 3", 1), ("veth9", 1)]);
}
