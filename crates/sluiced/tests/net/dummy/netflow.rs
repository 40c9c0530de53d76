//! NetFlow: records as recorded from OVS 3.5.

use super::exports::{collector, next};
use super::{FROM_5_TO_7, Lab};
use crate::helpers::{LIMIT, vsctl};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use testkit::{require_netns, require_programs, wait_for};

/// A record of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Record {
    input: u16,
    output: u16,
    dst: [u8; 4],
    packets: u32,
    bytes: u32,
    first_ms: u32,
    last_ms: u32,
    tcp_flags: u8,
    protocol: u8,
    tos: u8,
}

fn records(datagram: &[u8]) -> Vec<Record> {
    assert_eq!(datagram[..2], [0, 5]);
    assert_eq!(datagram.len(), 24 + 48 * usize::from(datagram[3]));
    let read = |record: &[u8]| {
        let number = |at: usize| u32::from_be_bytes(record[at..at + 4].try_into().unwrap());
        Record {
            input: (number(12) >> 16) as u16,
            output: number(12) as u16,
            dst: record[4..8].try_into().unwrap(),
            packets: number(16),
            bytes: number(20),
            first_ms: number(24),
            last_ms: number(28),
            tcp_flags: record[37],
            protocol: record[38],
            tos: record[39],
        }
    };
    datagram[24..].chunks(48).map(read).collect()
}

/// Receives that many records.
fn receive(socket: &UdpSocket, count: usize) -> Vec<Record> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(records(&next(socket, |_| true)));
    }
    all.sort_unstable();
    assert_eq!(all.len(), count, "{all:?}");
    all
}

fn tcp(flags: &str) -> String {
    let ip = "ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0x35,ttl=64,frag=no)";
    format!("in_port(1),{FROM_5_TO_7},eth_type(0x0800),{ip},tcp(src=8,dst=9),tcp_flags({flags}) --len 118")
}

/// Rules for a packet of each port, and the output in the record.
const RULES: [(u16, &str, u16); 14] = [
    // A mirror copies what port 2 sends.
    (1, "group:1", 15),
    (2, "group:2", 1),
    // The packets of a recirculation count before it.
    (3, "ct(table=1)", 65533),
    (4, "controller", 65533),
    (5, "FLOOD,output:2", 65535),
    (6, "output:2,FLOOD", 65535),
    (7, "normal,output:2", 65535),
    (8, "local", 65534),
    (9, "output:20,output:3", 65534),
    (10, "output:7,output:7", 65534),
    (11, "clone(output:7)", 7),
    (12, "clone(output:7),output:8", 65534),
    (13, "set_field:10.9.9.9->ip_dst,in_port", 13),
    (14, "resubmit(,2),output:4", 4),
];

fn add_ports(lab: &Lab) {
    let port = |n: u16| format!("-- add-port br0 p{n} -- set Interface p{n} type=dummy ofport_request={n} ");
    let ports: String = [3, 4, 5, 6].into_iter().chain(8..=15).map(port).collect();
    vsctl(&lab.daemon, &format!("{ports} -- set Interface p7 ofport_request=7 -- set Port p7 tag=0"));
    let other = "add-br br1 -- set Bridge br1 datapath_type=dummy fail_mode=secure \
         -- add-port br1 q5 -- set Interface q5 type=dummy ofport_request=5 \
         -- add-port br1 q6 -- set Interface q6 type=dummy ofport_request=6 \
         -- add-port br0 pa -- set Interface pa type=patch options:peer=pb ofport_request=20 \
         -- add-port br1 pb -- set Interface pb type=patch options:peer=pa ofport_request=21";
    vsctl(&lab.daemon, other);
    let mirror = "--id=@p get Port p15 -- --id=@q get Port p2 \
         -- --id=@m create Mirror name=m select_dst_port=@q output_port=@p -- set Bridge br0 mirrors=@m";
    vsctl(&lab.daemon, &format!("-- {mirror}"));
    lab.ofctl(&["add-flow", "br1", "actions=5,6"]);
}

#[test]
fn netflow_has_the_records_of_ovs() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    add_ports(&lab);
    let (socket, address) = collector(&lab);
    let row = format!("create NetFlow targets=\"{address}\" active_timeout=1000");
    vsctl(&lab.daemon, &format!("-- --id=@n {row} -- set Bridge br0 netflow=@n"));
    lab.ofctl(&["del-flows", "br0"]);
    for (group, buckets) in [(1, "bucket=actions=1,bucket=actions=2"), (2, "bucket=actions=1")] {
        lab.ofctl(&["-OOpenFlow13", "add-group", "br0", &format!("group_id={group},type=all,{buckets}")]);
    }
    for (port, actions, _) in RULES {
        lab.ofctl(&["-OOpenFlow15", "add-flow", "br0", &format!("in_port={port},tcp,actions={actions}")]);
    }
    lab.ofctl(&["add-flow", "br0", "table=1,tcp,actions=output:1,output:2"]);
    lab.ofctl(&["add-flow", "br0", "table=2,actions=drop"]);
    let trace =
        lab.appctl("ofproto/trace br0 in_port=8,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=5,tp_dst=6");
    let mask = "eth,tcp,in_port=8,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=0,nw_frag=no,tp_src=5,tp_dst=6\n";
    assert!(trace.contains(mask), "{trace}");
    for flags in ["0x002", "0x010", "0x010", "0x011"] {
        for (port, ..) in RULES {
            lab.receive(&format!("p{port}"), &tcp(flags));
        }
        lab.appctl("time/warp 1000 500");
    }
    lab.appctl("time/warp 12000 500");
    let got = receive(&socket, RULES.len());
    let wanted = RULES.map(|(input, _, output)| Record {
        input,
        output,
        dst: if input == 13 { [10, 9, 9, 9] } else { [10, 0, 0, 2] },
        packets: 4,
        bytes: 4 * 118,
        first_ms: 0,
        last_ms: 3000,
        tcp_flags: 0x13,
        protocol: 6,
        tos: 0x34,
    });
    assert_eq!(got, wanted);
    // A packet of a controller.
    let frame = "505400000007505400000005080045000028000000004006";
    lab.ofctl(&["packet-out", "br0", &format!("in_port=1 packet={frame} actions=output:2")]);
    let sent = receive(&socket, 1)[0];
    assert_eq!((sent.input, sent.packets, sent.bytes), (1, 1, 24));
}

/// Flows of the datapath that differ in Ethernet addresses count for one flow, which has records as time passes.
#[test]
fn netflow_joins_flows_of_the_datapath() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new();
    let (socket, address) = collector(&lab);
    let row = format!("create NetFlow targets=\"{address}\" active_timeout=3 engine_id=1 engine_type=2");
    vsctl(&lab.daemon, &format!("-- --id=@n {row} -- set Bridge br0 netflow=@n"));
    lab.ofctl(&["del-flows", "br0"]);
    lab.ofctl(&["add-flow", "br0", "in_port=1,actions=2"]);
    lab.ofctl(&["add-flow", "br0", "priority=40000,in_port=1,dl_src=50:54:00:00:00:06,actions=2"]);
    let (mut sent, mut got) = (0, 0);
    let mut sums = BTreeMap::new();
    for part in 0..2 {
        for _ in 0..4 {
            for source in ["05", "06"] {
                lab.receive("p1", &tcp("0x010").replace("00:05,", &format!("00:{source},")));
                sent += 1;
            }
            lab.appctl("time/warp 1000 500");
        }
        let flows = lab.appctl("dpctl/dump-flows");
        assert_eq!(flows.matches("in_port(1)").count(), 2, "{part}: {flows}");
        while got < sent {
            // Packets since the last record.
            lab.appctl("time/warp 4000 500");
            let datagram = next(&socket, |_| true);
            assert_eq!((datagram[20], datagram[21]), (2, 1));
            for record in records(&datagram) {
                let key = (record.input, record.output, Ipv4Addr::from(record.dst));
                *sums.entry(key).or_insert(0) += record.packets;
                got += record.packets;
            }
        }
    }
    assert_eq!(sums, BTreeMap::from([((1, 2, Ipv4Addr::new(10, 0, 0, 2)), sent)]));
    // A switch without the setting has wide flows again.
    vsctl(&lab.daemon, "clear Bridge br0 netflow");
    wait_for(LIMIT, "a wide flow", || {
        let trace = lab.appctl("ofproto/trace br0 in_port=1,tcp,nw_src=10.0.0.1");
        trace.lines().any(|line| line.starts_with("Megaflow:") && !line.contains("nw_src"))
    })
    .unwrap();
}
