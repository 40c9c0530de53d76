use super::*;
use std::net::Ipv4Addr;

const SETTINGS: Settings =
    Settings { engine_type: 2, engine_id: 1, add_id_to_interface: false, active_timeout_ms: Some(10_000) };

fn key(in_port: u16) -> Key {
    let address = |last| Ipv4Addr::new(10, 0, 0, last).into();
    Key { in_port, src: address(1), dst: address(2), tos: 0x35, protocol: 6, src_port: 8, dst_port: 9 }
}

fn seen(packets: u64, used_ms: u64) -> Seen {
    Seen { packets, bytes: packets * 100, tcp_flags: 2, used_ms }
}

fn run(exporter: &mut Exporter, now_ms: u64) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    exporter.run(now_ms, 1_700_000_000_123, &mut sent);
    sent
}

/// The number of that many bytes at that place of a datagram's record.
fn field(datagram: &[u8], record: usize, at: usize, bytes: usize) -> u64 {
    let at = 24 + record * 48 + at;
    datagram[at..at + bytes].iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

/// Output, packets, start, end.
fn short(datagram: &[u8], record: usize) -> [u64; 4] {
    [(14, 2), (16, 4), (24, 4), (28, 4)].map(|(at, bytes)| field(datagram, record, at, bytes))
}

/// A record that OVS 3.5 sent for two packets from port 2 to ports 1 and 3; only times of the header differ.
#[test]
fn a_record_has_the_bytes_of_ovs() {
    let mut exporter = Exporter::new(SETTINGS, 5000);
    exporter.count(&key(2), output::SEVERAL, &Seen { packets: 1, bytes: 54, tcp_flags: 2, used_ms: 5000 });
    exporter.count(&key(2), output::SEVERAL, &Seen { packets: 1, bytes: 118, tcp_flags: 16, used_ms: 5000 });
    exporter.end_flow(&key(2));
    let header =
        [0, 5, 0, 1, 0, 0, 0x2a, 0xf8, 0x65, 0x53, 0xf1, 0, 7, 0x54, 0xd4, 0xc0, 0, 0, 0, 0, 2, 1, 0, 0];
    let mut wanted = header.to_vec();
    wanted.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0, 0, 2, 0xff, 0xfe, 0, 0, 0, 2, 0, 0, 0, 172]);
    wanted.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 9, 0, 18, 6, 52, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(run(&mut exporter, 16_000), [wanted]);
}

/// The times are those of OVS 3.5 with packets each second: records at 4 s and 8 s; the first packet stays the start.
#[test]
fn records_come_by_timeout_change_of_output_and_end() {
    let settings = Settings { active_timeout_ms: Some(3000), ..SETTINGS };
    let mut exporter = Exporter::new(settings, 0);
    for second in 0..7u64 {
        assert_eq!(run(&mut exporter, second * 1000).len(), usize::from(second == 4), "{second}");
        exporter.count(&key(1), 2, &seen(1, second * 1000));
    }
    let datagram = run(&mut exporter, 7000);
    assert_eq!(short(&datagram[0], 0), [2, 3, 0, 6000]);
    exporter.count(&key(1), 2, &seen(1, 7000));
    exporter.count(&key(1), 3, &seen(1, 7500));
    let datagram = run(&mut exporter, 7500);
    assert_eq!(short(&datagram[0], 0), [2, 1, 0, 7000]);
    exporter.end_flow(&key(1));
    exporter.end_flow(&key(1));
    let datagram = run(&mut exporter, 7600);
    assert_eq!((datagram.len(), short(&datagram[0], 0)), (1, [3, 1, 7500, 7500]));
}

#[test]
fn idle_flows_are_forgotten() {
    let mut exporter = Exporter::new(SETTINGS, 0);
    exporter.count(&key(1), 2, &seen(3, 0));
    exporter.count(&key(2), 2, &seen(0, 0));
    assert_eq!((exporter.flows(), run(&mut exporter, 10_000).len()), (1, 0));
    assert_eq!((run(&mut exporter, 11_000).len(), exporter.flows()), (1, 1));
    assert_eq!((run(&mut exporter, 31_000).len(), exporter.flows()), (0, 0));
    let settings = Settings { active_timeout_ms: None, ..SETTINGS };
    exporter.configure(settings);
    exporter.count(&key(1), 2, &seen(3, 31_000));
    assert_eq!(run(&mut exporter, 9_000_000).len(), 0);
    exporter.end();
    assert_eq!((run(&mut exporter, 9_000_000).len(), exporter.flows()), (1, 0));
}

#[test]
fn datagrams_have_up_to_30_records_and_number_them() {
    let mut exporter = Exporter::new(SETTINGS, 0);
    for in_port in 0..70 {
        exporter.count(&key(in_port), 2, &seen(1, 0));
    }
    exporter.end();
    let sent = run(&mut exporter, 1);
    let shape = |d: &Vec<u8>| (d[3], d[19], d.len());
    assert_eq!(sent.iter().map(shape).collect::<Vec<_>>(), [(30, 0, 1464), (30, 30, 1464), (10, 60, 504)]);
}

#[test]
fn icmp_and_interfaces_have_their_forms() {
    let settings = Settings { engine_id: 129, add_id_to_interface: true, ..SETTINGS };
    let mut exporter = Exporter::new(settings, 0);
    let icmp = Key { protocol: 1, src_port: 8, dst_port: 3, ..key(0xfffe) };
    exporter.count(&icmp, output::DROP, &seen(1, 0));
    exporter.end();
    let datagram = &run(&mut exporter, 0)[0];
    let numbers = [(12, 2), (14, 2), (32, 2), (34, 2)].map(|(at, bytes)| field(datagram, 0, at, bytes));
    assert_eq!(numbers, [1022, 1021, 0, 2051]);
}

#[test]
fn large_counters_are_split() {
    let mut exporter = Exporter::new(SETTINGS, 0);
    let bytes = 3 * u64::from(u32::MAX) - 1;
    exporter.count(&key(1), 2, &Seen { packets: 10, bytes, tcp_flags: 0, used_ms: 0 });
    exporter.count(&key(2), 2, &Seen { packets: u64::MAX, bytes: u64::MAX, tcp_flags: 0, used_ms: 0 });
    exporter.end_flow(&key(1));
    let datagram = &run(&mut exporter, 0)[0];
    let sum = |at| (0..3).map(|n| field(datagram, n, at, 4)).sum::<u64>();
    assert_eq!((datagram[3], sum(16), sum(20)), (3, 10, bytes));
    exporter.end();
    assert_eq!(run(&mut exporter, 0).iter().map(|d| u64::from(d[3])).sum::<u64>(), PARTS_MAX);
}

#[test]
fn flows_and_records_have_a_limit() {
    let mut exporter = Exporter::new(SETTINGS, 0);
    let of = |n: usize| Key { src: n as u32, ..key(1) };
    (0..FLOWS_MAX).for_each(|n| exporter.count(&of(n), 2, &seen(1, 0)));
    exporter.count(&of(FLOWS_MAX), 2, &seen(7, 0));
    assert_eq!(exporter.flows(), FLOWS_MAX);
    let datagram = run(&mut exporter, 0);
    assert_eq!((datagram.len(), short(&datagram[0], 0)[1]), (1, 7));
    exporter.end();
    exporter.count(&key(1), 2, &seen(1, 0));
    exporter.end();
    assert_eq!((exporter.lost(), exporter.flows()), (1, 0));
}

/// As OVS 3.5 calls its datapath of dummies.
#[test]
fn engines_are_those_of_stock_switches() {
    assert_eq!(engine_of("ovs-dummy"), (204, 62));
    assert_eq!(engine_of("ovs-netdev"), (47, 209));
}
