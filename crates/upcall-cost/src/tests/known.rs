//! The recording of a known scenario, `corpus/recording/known`, and its statistics computed by hand.

use upcall_events::Stage;

use super::scenario::{analysed, bytes};
use crate::report::{Events, Share};
use crate::stats::Summary;

/// Four upcalls that join (two of one batch by their ids, one alone, one by packet, key and order as with a
/// stock switch), one refused, and two with the same packet at the same time.
pub(super) const KNOWN: &str = "
start sluiced_0.1.0 ring
port 1 veth1
port 2 veth2
thread 10 pmd-c00
thread 11 handler1
thread 12 handler2
1000 miss id=a port=1 packet=A
1200 enqueued id=a port=1
2000 miss id=b port=1 packet=B
2300 enqueued id=b port=1
4000 received id=a thread=11 port=1 batch=2
4100 received id=b thread=11 port=1 batch=2
9000 translated id=a thread=11
9500 translated id=b thread=11
10000 put-sent id=a thread=11
10100 put-sent id=b thread=11
10500 execute-sent id=a thread=11
10600 execute-sent id=b thread=11
12000 put-done id=a
12100 put-done id=b
13000 executed id=a
13100 executed id=b
14000 on-wire id=a
14100 on-wire id=b
20000 miss id=c port=2 packet=C
20100 enqueued id=c port=2
20900 received id=c thread=12 port=2 batch=1
22900 translated id=c thread=12
23000 put-sent id=c thread=12
23200 execute-sent id=c thread=12
23900 put-done id=c
24200 executed id=c
24300 on-wire id=c
30000 miss id=d port=2 packet=D
30100 refused id=d port=2
40000 miss port=1 packet=E why=action
40100 miss port=1 packet=E why=action
41000 received thread=11 port=1 packet=E why=action
41200 received thread=11 port=1 packet=E why=action
50000 miss port=2 packet=F
51000 received thread=12 port=2 packet=F key=f
52000 put-sent thread=12 key=f
53000 execute-sent thread=12 packet=F
54000 executed thread=12
lost miss 2
overhead 38 7600
end
";

/// count, min, max, mean, variance, SD, median, p90 of values in nanoseconds.
fn check(what: &str, summary: &Summary, expected: (usize, u64, u64, f64, f64, f64, f64, u64)) {
    let (count, min, max, mean, variance, sd, median, p90) = expected;
    assert_eq!((summary.count, summary.min, summary.max), (count, min, max), "{what}");
    assert_eq!((summary.mean, summary.variance, summary.median), (mean, variance, median), "{what}");
    assert!((summary.sd - sd).abs() < 0.001, "{what}: SD {}", summary.sd);
    assert_eq!(summary.percentiles[0], p90, "{what}");
}

#[test]
fn the_recording_equals_its_text() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/recording/known");
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        std::fs::write(path, bytes(KNOWN)).unwrap();
    }
    assert!(std::fs::read(path).unwrap() == bytes(KNOWN), "UPDATE_CORPUS=1 writes it anew");
}

/// By hand, with A, B, C, F the four joined and handled upcalls (nanoseconds):
///
/// | | A | B | C | F | mean | variance | median |
/// | --- | --- | --- | --- | --- | --- | --- | --- |
/// | received − miss | 3000 | 2100 | 900 | 1000 | 7000/4 = 1750 | (1250² + 350² + 850² + 750²)/4 = 742500 | (1000+2100)/2 = 1550 |
/// | executed − execute sent | 2500 | 2500 | 1000 | 1000 | 1750 | 4·750²/4 = 562500 | (1000+2500)/2 = 1750 |
/// | put sent − received (the lookup) | 6000 | 6000 | 2100 | 1000 | | | |
/// | executed − miss (the total) | 12000 | 11100 | 4200 | 4000 | 31300/4 = 7825 | (4175² + 3275² + 3625² + 3825²)/4 = 13981875 | (4200+11100)/2 = 7650 |
/// | total − lookup | 6000 | 5100 | 2100 | 3000 | 16200/4 = 4050 | (1950² + 1050² + 1950² + 1050²)/4 = 2452500 | (3000+5100)/2 = 4050 |
#[test]
fn statistics_are_those_computed_by_hand() {
    let report = analysed(KNOWN).report;
    let of = |key: &str| {
        let all = report.main.iter().chain(&report.stages);
        all.into_iter()
            .find(|measured| measured.metric.key == key)
            .map(|measured| measured.summary.clone())
            .unwrap()
    };
    check("to handler", &of("datapath_to_handler"), (4, 900, 3000, 1750.0, 742_500.0, 861.684, 1550.0, 3000));
    check("to datapath", &of("execute_to_datapath"), (4, 1000, 2500, 1750.0, 562_500.0, 750.0, 1750.0, 2500));
    check("overhead", &of("overhead"), (4, 2100, 6000, 4050.0, 2_452_500.0, 1566.046, 4050.0, 6000));
    check("total", &of("total"), (4, 4000, 12000, 7825.0, 13_981_875.0, 3739.235, 7650.0, 12000));

    // A, B, C: 200, 300, 100; 2800, 1800, 800; 5000, 5400, 2000; 1000, 600, 100; 1500, 1100, 300; 2000, 2000, 900.
    check("queued", &of("miss_to_enqueued"), (3, 100, 300, 200.0, 20_000.0 / 3.0, 81.650, 200.0, 300));
    check(
        "waited",
        &of("enqueued_to_received"),
        (3, 800, 2800, 1800.0, 2_000_000.0 / 3.0, 816.497, 1800.0, 2800),
    );
    assert_eq!(of("received_to_translated").median, 5000.0);
    assert_eq!(of("translated_to_put_sent").median, 600.0);
    assert_eq!(of("translated_to_execute_sent").median, 1100.0);
    assert_eq!(of("put_sent_to_put_done").median, 2000.0);
    // 1000, 1000, 100; and the whole way 13000, 12100, 4300.
    assert_eq!((of("executed_to_on_wire").mean, of("executed_to_on_wire").median), (700.0, 1000.0));
    assert_eq!((of("miss_to_on_wire").mean, of("miss_to_on_wire").median), (9800.0, 12100.0));
    // Also F's path as far as reported: 4000.
    assert_eq!((report.packet_path.count, report.packet_path.mean), (4, 8350.0));
}

#[test]
fn events_upcalls_and_batches_are_counted() {
    let report = analysed(KNOWN).report;
    let of = |stage: Stage, usable, total, lost| Events { stage, usable, total, lost };
    let expected = [
        of(Stage::Miss, 5, 7, 2),
        of(Stage::Enqueued, 3, 3, 0),
        of(Stage::Refused, 1, 1, 0),
        of(Stage::Received, 4, 6, 0),
        of(Stage::Translated, 3, 3, 0),
        of(Stage::PutSent, 4, 4, 0),
        of(Stage::ExecuteSent, 4, 4, 0),
        of(Stage::PutDone, 3, 3, 0),
        of(Stage::Executed, 4, 4, 0),
        of(Stage::OnWire, 3, 3, 0),
    ];
    assert_eq!(report.events, expected);
    let upcalls = report.upcalls;
    assert_eq!((upcalls.matched, upcalls.ambiguous, upcalls.single), (5, 2, 0));
    assert_eq!((upcalls.missed, upcalls.action), (5, 0));
    // A and B have a batch of two, C one of one; E and E came in one turn, F alone.
    assert_eq!(report.turns, [0, 2, 2]);
    assert_eq!((report.span_ns, report.overhead), (53_000, Some((38, 7600))));
    assert!(report.notes[0].starts_with("2 EVENTS WERE LOST (2 miss)"), "{:?}", report.notes);
    assert!(report.notes[1].starts_with("2 upcalls are left out"), "{:?}", report.notes);
}

#[test]
fn ports_and_threads_have_their_shares() {
    let report = analysed(KNOWN).report;
    let shares = |shares: &[Share]| -> Vec<(String, u64, u64, f64)> {
        shares
            .iter()
            .map(|share| (share.name.clone(), share.upcalls, share.refused, share.wait.mean))
            .collect()
    };
    // veth1: A, B, E, E; veth2: C, D, F. Waits: (3000 + 2100)/2 and (900 + 1000)/2.
    assert_eq!(shares(&report.ports), [("veth1".into(), 4, 0, 2550.0), ("veth2".into(), 3, 1, 950.0)]);
    assert_eq!(
        shares(&report.threads),
        [("handler1".into(), 4, 0, 2550.0), ("handler2".into(), 2, 0, 950.0)]
    );
    // (4 + 3)²/2(4² + 3²), (2550 + 950)²/2(2550² + 950²), (4 + 2)²/2(4² + 2²).
    let near =
        |index: Option<f64>, expected: f64| assert!((index.unwrap() - expected).abs() < 1e-9, "{index:?}");
    near(report.port_fairness.counts, 0.98);
    near(report.port_fairness.delays, 12_250_000.0 / 14_810_000.0);
    near(report.thread_fairness.counts, 0.9);
}
