use super::*;
use flow::{Flow, VlanTag};

/// Bytes of a text of hexadecimal digits.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn interface(index: u32, name: &str) -> Interface {
    Interface { index, name: name.into(), ..Interface::default() }
}

fn tcp() -> Flow {
    Flow {
        dl_src: [0x50, 0x54, 0, 0, 0, 9],
        dl_dst: [0x50, 0x54, 0, 0, 0, 10],
        dl_type: 0x0800,
        vlans: [VlanTag { tpid: 0x8100, tci: 0x1009 }, VlanTag::default()],
        nw_src: 0xc0a8_0002,
        nw_dst: 0xc0a8_0001,
        nw_proto: 6,
        nw_tos: 4,
        nw_ttl: 64,
        tp_src: 53,
        tp_dst: 99,
        tcp_flags: 0x12,
        ..Flow::default()
    }
}

fn record<'a>(flow: &'a Flow, interfaces: &'a [Interface; 2]) -> Record<'a> {
    Record {
        flow,
        frame_bytes: 58,
        packets: 1,
        domain: 123,
        point: 456,
        direction: Direction::Egress,
        ingress: Some(&interfaces[0]),
        egress: Some(&interfaces[1]),
        tunnel: None,
        is_dropped: true,
    }
}

fn settings(virtual_id: Option<&str>) -> Settings {
    Settings {
        exporter_id: 6,
        template_interval_s: 600,
        stats_interval_s: 600,
        virtual_id: virtual_id.map(str::to_string),
        ..Settings::default()
    }
}

/// The first messages of OVS 3.5 for one TCP packet that leaves with a tag.
#[test]
fn messages_have_the_bytes_of_stock_switches() {
    let statistics = "000a00206b0b18a9000000010000000001ce0010000000060000000000000000";
    let options = "000a00226b0b18a900000002000000000003001201ce000200010090000400a70008";
    let data = "000a014c6b0b18a9000000020000007b0155013c000001c80150540000000950540000000a080012000003eb00000000 \
        027033000000000000000000027031000009000900044006010004c0a80002c0a800010035006303766d370005999800 \
        059998000000000000000100000000000000010000000000000001000000000000000100000000000000000000000000 \
        000000000000000000000000000000000000010000000000000000000000000000000000000000000000000000000000 \
        00003a000000000000003a02000000000000002800000000000000280000000000000028000000000000002800000000 \
        000006400000000000000640000000000000002800000000000000280000000000000000000000000000000000000000 \
        0000000100000000000000000000000000000000000000000000000000000000000000010000000000000000";
    let (flow, interfaces) = (tcp(), [interface(0x3eb, "p3"), interface(0, "p1")]);
    let mut exporter = Exporter::new(settings(Some("vm7")));
    let mut sent = Vec::new();
    // 0.367 s before the second of the message.
    let export_s = 0x6b0b_18a9u64;
    exporter.sample(&record(&flow, &interfaces), export_s * US_PER_S - 0x5_9998, &mut sent);
    assert_eq!(sent[0], bytes(statistics));
    assert_eq!(sent[sent.len() - 2], bytes(options));
    assert_eq!(sent[sent.len() - 1], bytes(data));
    let stats = Stats { total_flows: 1, packets: 1, ipv4_packets: 1, ..Stats::default() };
    assert_eq!(exporter.stats(), stats);
}

/// Lengths of the messages of templates of OVS 3.5.
#[test]
fn templates_fill_messages_as_those_of_stock_switches() {
    let with_id = [
        1264, 1304, 1144, 1160, 1188, 1028, 1260, 1164, 1036, 1076, 1060, 1300, 1204, 1212, 1044, 1060, 1280,
        1296, 34,
    ];
    let without_id = [
        1208, 1264, 1104, 1120, 1148, 1284, 1124, 1140, 1156, 1156, 1036, 1180, 1220, 1220, 1076, 1184, 1200,
        556, 34,
    ];
    for (id, lengths) in [(Some("vm7"), &with_id[..]), (None, &without_id)] {
        let (flow, interfaces) = (tcp(), [interface(0, "p3"), interface(0, "p1")]);
        let mut exporter = Exporter::new(settings(id));
        let mut sent = Vec::new();
        exporter.sample(&record(&flow, &interfaces), 1, &mut sent);
        let templates: Vec<usize> = sent[1..sent.len() - 1].iter().map(Vec::len).collect();
        assert_eq!(templates, lengths);
    }
}

#[test]
fn packets_of_a_flow_are_one_record_until_its_timeout() {
    let mut settings = settings(None);
    (settings.active_timeout_s, settings.max_flows) = (2, 2);
    let mut exporter = Exporter::new(settings);
    let (mut flow, interfaces) = (tcp(), [interface(0, "p3"), interface(0, "p1")]);
    let mut sent = Vec::new();
    for n in 0..5 {
        exporter.sample(&record(&flow, &interfaces), n * 100_000, &mut sent);
    }
    assert_eq!((exporter.due_us(), sent.len()), (Some(2_000_000), 0));
    exporter.run(1_999_999, &mut sent);
    assert_eq!(sent.len(), 0);
    exporter.run(2_000_000, &mut sent);
    assert_eq!((exporter.due_us(), exporter.stats().total_flows), (None, 1));
    let last = sent.pop().unwrap();
    // packetDeltaCount follows the key of 58 + 7 bytes, two times and two counters.
    let counts = last.windows(8).filter(|w| **w == 5u64.to_be_bytes()).count();
    assert!(counts >= 2, "{last:?}");
    sent.clear();
    // The cache has two flows at most: the oldest goes.
    for port in 1..=4 {
        flow.tp_src = port;
        exporter.sample(&record(&flow, &interfaces), 3_000_000, &mut sent);
    }
    assert_eq!((sent.len(), exporter.stats().current_flows), (2, 2));
    exporter.end(3_000_000, &mut sent);
    assert_eq!((sent.len(), exporter.stats().current_flows), (4, 0));
}

/// Each record of a kind has exactly the fields of its template.
#[test]
fn records_have_the_length_of_their_template() {
    let interfaces = [interface(7, "eth0"), interface(8, "a longer name")];
    for kind in template::Kind::all() {
        let mut flow = Flow { dl_type: 0x1234, ..Flow::default() };
        if kind.has_vlan {
            flow.vlans[0].tci = 0x1007;
        }
        flow.dl_type = if kind.is_ipv4() {
            0x0800
        } else if kind.is_ipv6() {
            0x86dd
        } else {
            0x1234
        };
        flow.nw_proto = match kind.l4 {
            template::L4::Other => 99,
            template::L4::Tcp => 6,
            template::L4::Udp => 17,
            template::L4::Sctp => 132,
            template::L4::Icmp => {
                if kind.is_ipv4() {
                    1
                } else {
                    58
                }
            }
        };
        let tunnel = Tunnel {
            kind: 1,
            protocol: 17,
            src: 1,
            dst: 2,
            src_port: 3,
            dst_port: 4789,
            key: 5,
            key_bytes: 3,
        };
        let record = Record {
            direction: if kind.is_egress { Direction::Egress } else { Direction::Ingress },
            tunnel: kind.has_tunnel.then_some(tunnel),
            ..record(&flow, &interfaces)
        };
        let mut exporter = Exporter::new(settings(Some("x")));
        let mut sent = Vec::new();
        exporter.sample(&record, 1, &mut sent);
        let data = sent.pop().unwrap();
        assert_eq!(data[16..18], kind.id().to_be_bytes());
        let mut at = 20;
        for (_, bytes) in kind.parts(true).flat_map(|(fields, _)| fields) {
            at += if *bytes == u16::MAX { 1 + usize::from(data[at]) } else { usize::from(*bytes) };
        }
        assert_eq!(at, data.len(), "{kind:?}");
    }
}

#[test]
fn corpus_of_sampled_frame() {
    testkit::replay_corpus(
        concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/sampled_frame"),
        crate::fuzz::sampled_frame,
    );
}
