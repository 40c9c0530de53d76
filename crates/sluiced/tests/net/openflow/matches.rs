//! Every family of fields: the packets that a flow counts, in each version, for first and later packets of a megaflow.

use testkit::{require_netns, require_programs};

use super::frames::{HOST_2, IP, Ip, advertisement, arp, eth, ip6, solicitation, source, tagged};
use super::{Lab, VERSIONS, send};

/// The frames, by name.
fn frames() -> Vec<(&'static str, String)> {
    let from = |n: u8, rest: &str| eth(HOST_2, &source(n), rest);
    let target = "20010db80000000000000000000000ff";
    vec![
        ("arp", from(1, &arp(1, &source(1), "0a010101", "0a010102"))),
        ("reply", from(1, &arp(2, &source(1), "0a010102", "0a010101"))),
        ("udp", from(2, &IP.udp(1000, 53))),
        ("udp2", from(2, &Ip { src: "0a020101", tos: 0xb9, ttl: 1, ..IP }.udp(1000, 54))),
        ("syn", from(3, &IP.tcp(1000, 80, 0x02))),
        ("synack", from(3, &IP.tcp(80, 1000, 0x12))),
        ("ping", from(4, &IP.icmp(8, 0))),
        ("unreach", from(4, &IP.icmp(3, 1))),
        ("first", from(5, &Ip { frag: 0x2000, ..IP }.udp(1000, 53))),
        ("later", from(5, &Ip { frag: 0x0003, ..IP }.packet(17, "03e80035000c0000"))),
        ("ip6udp", from(6, &ip6(17, "03e80035000c000061626364"))),
        ("nd", from(7, &solicitation(target, &source(7)))),
        ("vlan", tagged(HOST_2, &source(8), 0x600a, &IP.udp(1000, 53))),
        ("vlan11", tagged(HOST_2, &source(8), 0x000b, &IP.udp(1000, 53))),
        ("multi", eth("01005e000001", &source(9), "88b5")),
        ("sctp", from(10, &IP.packet(132, "03e8003500000001aabbccdd"))),
        ("na", from(11, &advertisement(target, &source(11)))),
        ("first6", from(12, &ip6(44, "110000010000000903e80035000c000061626364"))),
        ("later6", from(12, &ip6(44, "110000190000000903e80035000c000061626364"))),
    ]
}

/// Matches, and the matching frames. In the default fragment mode, fragments have no ports.
const CASES: [(&str, &str); 54] = [
    ("in_port=1", "*"),
    ("in_port=2", ""),
    ("dl_src=02:aa:00:00:00:02", "udp udp2"),
    ("dl_dst=01:00:00:00:00:00/01:00:00:00:00:00", "multi"),
    ("dl_type=0x88b5", "multi"),
    ("arp", "arp reply"),
    ("arp,arp_op=1", "arp"),
    ("arp,arp_spa=10.1.1.2", "reply"),
    ("arp,arp_tpa=10.1.1.0/30,arp_sha=02:aa:00:00:00:01", "arp reply"),
    ("arp,arp_tha=00:00:00:00:00:00", "arp reply"),
    ("arp,arp_tha=02:aa:00:00:00:01", ""),
    ("ip", "udp udp2 syn synack ping unreach first later vlan vlan11 sctp"),
    ("ip,nw_src=10.2.0.0/16", "udp2"),
    ("ip,nw_dst=192.168.0.3", ""),
    ("ip,nw_tos=184", "udp2"),
    ("ip,nw_ecn=1", "udp2"),
    ("ip,nw_ttl=1", "udp2"),
    ("ip,nw_frag=no", "udp udp2 syn synack ping unreach vlan vlan11 sctp"),
    ("ip,ip_frag=not_later", "udp udp2 syn synack ping unreach first vlan vlan11 sctp"),
    ("ip,nw_frag=first", "first"),
    ("ip,nw_frag=later", "later"),
    ("ip,nw_frag=yes", "first later"),
    ("udp", "udp udp2 first later vlan vlan11"),
    ("udp,tp_dst=53", "udp vlan vlan11"),
    ("udp,tp_dst=0x34/0xfffe", "udp vlan vlan11"),
    ("udp,tp_dst=0x36/0xfffe", "udp2"),
    ("tcp,tcp_flags=+syn-ack", "syn"),
    ("tcp,tcp_flags=0x10/0x10", "synack"),
    ("tcp,tp_src=80", "synack"),
    ("sctp", "sctp"),
    ("sctp,tp_dst=53,tp_src=1000", "sctp"),
    ("sctp,tp_dst=54", ""),
    ("icmp,icmp_type=8", "ping"),
    ("icmp,icmp_type=3,icmp_code=1", "unreach"),
    ("ipv6", "ip6udp nd na first6 later6"),
    ("udp6,tp_dst=53", "ip6udp"),
    ("ipv6,nw_frag=first", "first6"),
    ("ipv6,nw_frag=later,nw_proto=44", "later6"),
    ("ipv6,ipv6_src=2001:db8::/32,ipv6_dst=2001:db8::2,ipv6_label=0xa", "ip6udp nd na first6 later6"),
    ("icmp6,icmp_type=135,icmp_code=0,nd_target=2001:db8::ff", "nd"),
    ("icmp6,icmp_type=135,icmp_code=0,nd_sll=02:aa:00:00:00:07", "nd"),
    ("icmp6,icmp_type=136,icmp_code=0,nd_target=2001:db8::ff", "na"),
    ("icmp6,icmp_type=136,icmp_code=0,nd_tll=02:aa:00:00:00:0b", "na"),
    ("vlan_tci=0x1000/0x1000", "vlan vlan11"),
    ("dl_vlan=10", "vlan"),
    (
        "dl_vlan=0xffff",
        "arp reply udp udp2 syn synack ping unreach first later ip6udp nd multi sctp na first6 later6",
    ),
    ("dl_vlan_pcp=3", "vlan"),
    ("metadata=0x1234567800000000/0xffffffff00000000", "*"),
    ("reg3=0x5/0xf,reg4=0", "*"),
    ("xreg1=0x500000000,reg5=1", ""),
    ("xxreg0=0x25/0xffffffff", "*"),
    ("xxreg1=0x1", ""),
    ("pkt_mark=0x47", "*"),
    ("pkt_mark=0x7/0xf", "*"),
];

#[test]
fn every_field_matches_its_frames() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "python3");
    let lab = Lab::new(2);
    let frames = frames();
    for version in VERSIONS {
        // Every packet traverses all tables; it leaves unchanged at the end.
        let mut rules = String::from(
            "table=0,actions=set_field:0x1234567887654321->metadata,load:0x25->NXM_NX_REG3[],load:0x47->NXM_NX_PKT_MARK[],resubmit(,60)",
        );
        for n in 1..=CASES.len() {
            rules += &format!(",resubmit(,{n})");
        }
        rules += ",output:2\n";
        for (n, (matching, _)) in (1..).zip(CASES) {
            rules += &format!("table={n},cookie={n},{matching},actions=note:01\n");
        }
        lab.rules(version, &rules);
        let all: Vec<String> = frames.iter().map(|(_, f)| f.clone()).collect();
        // The first packet of each flow is translated; later ones hit the megaflow.
        send(lab.host(1), &all);
        lab.wait_packets("table=0", all.len() as u64);
        send(lab.host(1), &all);
        lab.wait_packets("table=0", 2 * all.len() as u64);
        let mut wrong = String::new();
        for (n, (matching, names)) in (1_u64..).zip(CASES) {
            let has = |name: &str| names == "*" || names.split(' ').any(|m| m == name);
            let expected = 2 * frames.iter().filter(|(name, _)| has(name)).count() as u64;
            let counted = lab.packets(&format!("table={n}"));
            if counted != expected {
                wrong += &format!("{matching}: {counted}, not {expected} ({names})\n");
            }
        }
        assert!(wrong.is_empty(), "{version}:\n{wrong}\n{}", lab.appctl("dpctl/dump-flows"));
    }
}

#[test]
fn a_match_without_its_prerequisite_is_refused() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(1);
    // A flow-mod of OpenFlow 1.3 that matches tcp_dst alone: no stock tool sends one.
    let script = "\
import socket, struct, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(5)
def recv():
    head = b''
    while len(head) < 8: head += s.recv(8 - len(head))
    body = b''
    length = struct.unpack('!H', head[2:4])[0]
    while len(body) < length - 8: body += s.recv(length - 8 - len(body))
    return head, body
s.send(struct.pack('!BBHI', 4, 0, 8, 1)); recv()
match = struct.pack('!HHHBBH', 1, 10, 0x8000, 14 << 1, 2, 80) + bytes(6)
fm = struct.pack('!QQBBHHHIIIHH', 0, 0, 0, 0, 0, 0, 1, 0xffffffff, 0xffffffff, 0xffffffff, 0, 0) + match
s.send(struct.pack('!BBHI', 4, 14, 8 + len(fm), 7) + fm)
head, body = recv()
print(head[1], struct.unpack('!I', head[4:8])[0], *struct.unpack('!HH', body[:4]))
";
    let socket = lab.daemon.rundir().join("br0.mgmt");
    let out = testkit::Cmd::new("/usr/bin/python3").args(["-c", script]).arg(socket).run().unwrap();
    // OFPT_ERROR to message 7: OFPET_BAD_MATCH, OFPBMC_BAD_PREREQ.
    assert_eq!(out.stdout.trim(), "1 7 4 9");
    assert!(lab.dump("OpenFlow13").is_empty());
}
