//! Parsing of the daemons' output.

use crate::guard::pages_to_restore;
use crate::lab::{Passed, new_fault};
use crate::pmdstats::{
    Count, PmdStats, PortCounts, all_drops, counts_of_port, datapath_drops, full_rings, lost_lookups,
};

/// As the stock daemon prints it, with two threads.
const STATS: &str = "\
main thread:
  packets received: 7
  emc hits: 5
pmd thread numa_id 0 core_id 1:
  packets received: 1000
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  phwol hits: 1
  mfex opt hits: 0
  simple match hits: 9
  emc hits: 90
  smc hits: 100
  megaflow hits: 700
  avg. subtable lookups per megaflow hit: 2.50
  miss with success upcall: 60
  miss with failed upcall: 40
  avg. packets per output batch: 32.00
  idle cycles: 500 (0.25%)
  processing cycles: 200000 (99.75%)
  avg cycles per packet: 200.50 (200500/1000)
  avg processing cycles per packet: 200.00 (200000/1000)
pmd thread numa_id 0 core_id 2:
  packets received: 100
  smc hits: 0
  megaflow hits: 100
  avg. subtable lookups per megaflow hit: 1.00
  miss with success upcall: 0
";

#[test]
fn counters_of_forwarding_threads_are_read_and_summed() {
    let stats = PmdStats::parse(STATS).unwrap();
    let expected = PmdStats {
        received: 1100,
        cache_hits: 200,
        megaflow_hits: 800,
        subtable_lookups: 1850.0,
        upcalls: 60,
        upcalls_failed: 40,
        busy_cycles: 200_000,
    };
    assert_eq!(stats, expected);
    assert_eq!(stats.lookups_per_hit(), Some(1850.0 / 800.0));
    let earlier = PmdStats { received: 1000, megaflow_hits: 800, subtable_lookups: 1850.0, ..expected };
    let between = stats.since(&earlier);
    assert_eq!((between.received, between.busy_cycles), (100, 0));
    assert_eq!((between.lookups_per_hit(), between.cycles_per_packet()), (None, None));
    assert!(PmdStats::parse("main thread:\n  packets received: 7\n").is_err());
    assert!(PmdStats::parse("").is_err());
}

#[test]
fn ports_drops_and_losses_are_read() {
    let ports = "OFPST_PORT reply (xid=0x2): 3 ports\n  port LOCAL: rx pkts=1, bytes=2, drop=0\n           tx pkts=9, bytes=8\n\
                 \x20 port  1: rx pkts=5, bytes=6, drop=0, errs=0, frame=?, over=?, crc=?\n           tx pkts=0, bytes=0, drop=0\n\
                 \x20 port  100: rx pkts=0, bytes=0, drop=3, errs=0\n           tx pkts=17, bytes=1088, drop=0, errs=0, coll=?\n";
    let counts = |received: (u64, u64), sent: (u64, u64)| {
        let [received, sent] = [received, sent].map(|(packets, bytes)| Count { packets, bytes });
        Some(PortCounts { received, sent })
    };
    assert_eq!(counts_of_port(ports, 100), counts((0, 0), (17, 1088)));
    assert_eq!(counts_of_port(ports, 1), counts((5, 6), (0, 0)));
    assert_eq!(counts_of_port(ports, 10), None);
    let coverage = "Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash=aa922dac:\n\
                    datapath_drop_meter        0.0/sec     0.050/sec        0.0008/sec   total: 3\n\
                    flow_extract               0.0/sec     0.150/sec        0.0025/sec   total: 9\n\
                    datapath_drop_upcall_error   0.8/sec     0.067/sec        0.0011/sec   total: 4\n\
                    datapath_drop_rx_ring_full  37.4/sec     9.150/sec        0.1525/sec   total: 1084\n\
                    7 events never hit\n";
    assert_eq!((datapath_drops(coverage), full_rings(coverage)), (1091, 1084));
    let show = "netdev@ovs-netdev:\n  lookups: hit:14 missed:9 lost:5\n  flows: 1\n";
    assert_eq!(lost_lookups(show), 5);
    let status = r#"{"datapaths":[{"drops":{"explicit":96,"meter":1}},{"drops":{}}],"bridges":[{"drops":{"meter":1}}]}"#;
    assert_eq!(all_drops(status).unwrap(), 97);
    assert!(all_drops("{}").is_err() && all_drops("no").is_err());
}

#[test]
fn a_stream_adds_up_or_is_complained_about() {
    let sent = |packets, bytes| Count { packets, bytes };
    // Received; sent; dropped; bytes of a frame, if counted; expected fault.
    let cases = [
        (100, sent(100, 6400), 0, Some(64), None),
        (100, sent(90, 5760), 10, Some(64), None),
        (100, sent(90, 5760), 9, Some(64), Some("10 of 100 packets lost, 9 explained")),
        (100, sent(101, 6464), 5, Some(64), Some("100 packets received, but 101 sent")),
        (100, sent(100, 6399), 0, Some(64), Some("6399 bytes in 100 frames")),
        (100, sent(100, 11_400), 0, Some(114), None),
        (100, sent(100, 0), 0, None, None),
        (0, sent(0, 0), 0, Some(64), Some("nothing was received")),
    ];
    for (received, sent, dropped, frame_bytes, expected) in cases {
        let got = Passed { received, sent: vec![(sent, frame_bytes)], dropped }.fault();
        let as_expected = match (&got, expected) {
            (None, None) => true,
            (Some(got), Some(part)) => got.contains(part),
            _ => false,
        };
        assert!(as_expected, "{received} {sent:?} {dropped}: {got:?}");
    }
}

#[test]
fn streams_of_two_directions_have_alike_counts() {
    let sent = |packets, bytes| Count { packets, bytes };
    let of = |[a, b]: [u64; 2], dropped, more_bytes| {
        let sent = vec![(sent(a, a * 114), Some(114)), (sent(b, b * 64 + more_bytes), Some(64))];
        Passed { received: 100, sent, dropped }.fault()
    };
    assert_eq!(of([40, 60], 0, 0), None);
    assert_eq!(of([30, 60], 10, 0), None);
    assert!(of([10, 90], 0, 0).unwrap().contains("[10, 90]"));
    assert!(of([60, 50], 0, 0).unwrap().contains("110 sent"));
    assert!(of([50, 50], 0, 1).unwrap().contains("3201 bytes in 50 frames of 64"));
}

#[test]
fn connections_that_stay_new_are_a_fault() {
    let flows = |new: u64, established: u64| {
        format!(
            "NXST_FLOW reply (xid=0x4):\n cookie=0x0, duration=1.2s, table=0, n_packets=999, n_bytes=9, priority=9,udp actions=ct(table=1)\n \
             cookie=0x0, duration=1.2s, table=1, n_packets={new}, n_bytes=64, ct_state=+new+trk,udp actions=ct(commit),output:1\n \
             cookie=0x0, duration=1.2s, table=1, n_packets={established}, n_bytes=64, ct_state=+est+trk,udp actions=output:1\n"
        )
    };
    for (new, established, wrong) in [(0, 1, false), (250, 1000, false), (251, 1000, true), (0, 0, true)] {
        assert_eq!(new_fault(&flows(new, established)).is_some(), wrong, "{new} {established}");
    }
    assert!(new_fault("").is_some());
}

#[test]
fn the_guard_restores_the_last_value_sent() {
    let cases = [
        ("", None),
        ("hugepages 12\n", Some(12)),
        ("hugepages 12\nhugepages -\n", None),
        ("hugepages 1x\n", None),
    ];
    for (told, expected) in cases {
        assert_eq!(pages_to_restore(told), expected, "{told:?}");
    }
}
