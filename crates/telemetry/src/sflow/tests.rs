use super::*;

/// Bytes of a text of hexadecimal digits.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn agent(header_bytes: usize) -> Agent {
    let agent = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Agent::new(Settings { agent, sub_id: 0, sampling: 1, header_bytes }, 0)
}

/// A UDP packet of OVS's dummies, with or without the tag of VLAN 7 and priority 3.
fn frame(is_tagged: bool) -> Vec<u8> {
    let mut frame = bytes("50540000000a505400000009");
    if is_tagged {
        frame.extend(bytes("81006007"));
    }
    frame.extend(bytes("08004504005c000000004011f939c0a80002c0a80001003500630048996e"));
    frame.extend(0..64);
    frame
}

/// A datagram of OVS 3.5: two packets, the totals, the counters of a dummy.
#[test]
fn a_datagram_has_the_bytes_of_stock_switches() {
    let wanted = "00000005000000017f0000010000000000000001000003e80000000400000001000000bc00000001020003e800000001 \
        0000000100000000000003eb8000000100000002000003e9000000100000000000000000000000090000000000000001 \
        0000007c000000010000006e000000040000006a50540000000a50540000000908004504005c000000004011f939c0a8 \
        0002c0a80001003500630048996e000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021 \
        22232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f000000000001000000c000000002020003e8 \
        000000010000000200000000000000008000000100000002000003e90000001000000007000000030000000700000003 \
        00000001000000800000000100000072000000040000006e50540000000a5054000000098100600708004504005c0000 \
        00004011f939c0a80002c0a80001003500630048996e000102030405060708090a0b0c0d0e0f10111213141516171819 \
        1a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f0000000000020000005c \
        00000001020003e8000000020000089b000000280000003f000000330000000001371000000000000000000000000000 \
        0000000000000000000000000000089f00000018000000000000000200000000ffffffff00000002ffffffff00000002 \
        000000cc00000001000003eb000000040000000200000034ffffffffffffffffffffffffffffffffffffffffffffffff \
        ffffffffffffffffffffffffffffffffffffffffffffffffffffffff000003ec0000000c00001eb12142ec4a00000003 \
        000003ed0000000800000002703300000000000100000058000003eb000000060000000005f5e1000000000000000003 \
        000000000000006a00000001ffffffffffffffffffffffffffffffffffffffff000000000000000000000000ffffffff \
        ffffffffffffffffffffffff00000000";
    let (mut agent, mut sent) = (agent(128), Vec::new());
    let (plain, tagged) = (frame(false), frame(true));
    let sample = |frame: &[u8]| frame.len() as u32;
    let first = FlowSample {
        frame: &plain,
        frame_bytes: sample(&plain),
        input: 0x3eb,
        output: 0x8000_0001,
        dst_tci: 0x1009,
        ..FlowSample::default()
    };
    let second = FlowSample {
        frame: &tagged,
        frame_bytes: sample(&tagged),
        input: 0,
        output: 0x8000_0001,
        src_tci: 0x7007,
        dst_tci: 0x7007,
        ..FlowSample::default()
    };
    agent.flow(&first, 900, &mut sent);
    agent.flow(&second, 900, &mut sent);
    let u = u32::MAX;
    let totals = Totals { datapath: [0, 2, 0, u, 2, u], cpu_ms: [0x3f, 0x33], memory_bytes: 0x0137_1000 };
    agent.totals(&totals, 1000, &mut sent);
    let unknown = u64::MAX;
    let port = PortCounters {
        ifindex: 0x3eb,
        speed_bps: 100_000_000,
        direction: 0,
        status: 3,
        received: [0x6a, 1, unknown, unknown, unknown, unknown],
        sent: [0, 0, unknown, unknown, unknown, unknown],
        ethernet: [unknown; 3],
        name: "p3".into(),
        datapath_id: 0x1eb1_2142_ec4a,
        of_port: 3,
        lacp: None,
    };
    agent.port(&port, 1000, &mut sent);
    agent.flush(1000, &mut sent);
    assert_eq!(sent, [bytes(wanted)]);
}

/// A packet of OVS 3.5 that leaves with a label.
#[test]
fn labels_follow_the_header() {
    let wanted = "00000005000000017f0000010000000000000001000000000000000100000001000000ac00000001020003e800000001 \
        000000010000000000000000000003eb00000003000003e9000000100000000000000000000000000000000000000001 \
        00000050000000010000006e000000040000004050540000000a50540000000908004504005c000000004011f939c0a8 \
        0002c0a80001003500630048996e000102030405060708090a0b0c0d0e0f101112131415000003ee0000001400000001 \
        00000000000000000000000100007340";
    let (mut agent, mut sent) = (agent(64), Vec::new());
    let plain = frame(false);
    let sample = FlowSample {
        frame: &plain,
        frame_bytes: plain.len() as u32,
        output: 0x3eb,
        mpls_out: &[0x7240],
        ..FlowSample::default()
    };
    agent.flow(&sample, 0, &mut sent);
    agent.flush(0, &mut sent);
    assert_eq!(sent, [bytes(wanted)]);
}

#[test]
fn full_datagrams_are_sent_at_once() {
    let (mut agent, mut sent) = (agent(1 << 20), Vec::new());
    let frame = vec![7; 9000];
    let tunnel = Some(Tunnel { vni: 5, ..Tunnel::default() });
    let sample = FlowSample { frame: &frame, tunnel_in: tunnel, tunnel_out: tunnel, ..FlowSample::default() };
    (0..10).for_each(|_| agent.flow(&sample, 0, &mut sent));
    agent.flush(0, &mut sent);
    assert_eq!(sent.len(), 10);
    assert!(sent.iter().all(|d| d.len() <= DATAGRAM_MAX_BYTES), "{:?}", sent.iter().map(Vec::len));
    agent.flush(0, &mut sent);
    assert_eq!(sent.len(), 10);
}
