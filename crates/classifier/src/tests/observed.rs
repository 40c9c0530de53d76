//! Bits that a lookup adds to the wildcards: a table observed from Open vSwitch 3.1 by `ofproto/trace` on its dummy
//! datapath.
//!
//! The comparison excludes bits decided by translation: fields that it always examines (input port, EtherType and so
//! on) or never puts in a megaflow (registers, metadata), and the high bytes of ICMP's type and code. It also
//! excludes an untagged packet's VLAN bits: the trace does not print them.

use super::plain::Plain;
use super::text::{parse_match, parse_rule};
use flow::Mask;
use flow::fields::FieldId;

struct Case {
    prefixes: &'static [FieldId],
    /// Rules in the order in which they were added; `-` before one removes it.
    rules: &'static [&'static str],
    packets: &'static [Packet],
}

/// Packet, priority of its matching rule, match of its megaflow.
type Packet = (&'static str, Option<i32>, &'static str);

fn comparable(mask: &Mask, packet: &str) -> Mask {
    let mut out = *mask;
    let f = &mut out.0;
    (f.in_port, f.recirc_id, f.packet_type, f.dl_type, f.nw_frag) = (0, 0, 0, 0, 0);
    (f.metadata, f.regs) = (0, [0; 32]);
    if !packet.contains("vlan") {
        f.vlans = Default::default();
    }
    if packet.contains("icmp") {
        (f.tp_src, f.tp_dst) = (f.tp_src & 0xff, f.tp_dst & 0xff);
    }
    out
}

fn build(prefixes: &[FieldId], rules: &[&str]) -> Plain<i32> {
    let mut classifier = Plain::new(1);
    classifier.set_prefix_fields(prefixes);
    for rule in rules {
        if let Some(rule) = rule.strip_prefix('-') {
            let (m, priority) = parse_rule(rule);
            assert!(classifier.remove(&m.into(), priority).is_some());
        } else {
            let (m, priority) = parse_rule(rule);
            classifier.insert(&m.into(), priority, priority);
        }
    }
    classifier
}

fn check(classifier: &Plain<i32>, rules: &[&str], (packet, winner, megaflow): Packet) {
    let mut wc = Mask::none();
    let found = classifier.lookup(parse_match(packet).flow(), Some(&mut wc)).copied();
    assert_eq!(found, winner, "{packet} of {rules:?}");
    let expect = comparable(parse_match(megaflow).mask(), packet);
    assert_eq!(comparable(&wc, packet), expect, "{packet} of {rules:?}");
}

#[test]
fn masks_are_those_of_open_vswitch() {
    for case in CASES {
        let classifier = build(case.prefixes, case.rules);
        case.packets.iter().for_each(|packet| check(&classifier, case.rules, *packet));
    }
}

#[test]
fn masks_of_random_rules_are_those_of_open_vswitch() {
    let mut rules = Vec::new();
    let mut classifier = Plain::new(1);
    let mut packets = 0;
    for line in include_str!("observed_random.txt").lines().filter(|line| !line.starts_with('#')) {
        if let Some(list) = line.strip_prefix("rules ") {
            rules = list.split(" ; ").collect();
            classifier = build(&[FieldId::IpDst, FieldId::IpSrc], &rules);
            continue;
        }
        let (packet, result) = line.trim().split_once(" => ").expect("packet => result");
        let (winner, megaflow) = result.split_once(' ').unwrap_or((result, ""));
        check(&classifier, &rules, (packet, winner.parse().ok(), megaflow));
        packets += 1;
    }
    assert_eq!(packets, 240);
}

const CASES: &[Case] = &[
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,dl_dst=00:00:00:00:00:01,tcp,tp_dst=80", "1"],
        packets: &[(
            "in_port=1,dl_dst=00:00:00:00:00:02,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1000,tp_dst=80",
            Some(1),
            "ip,dl_dst=00:00:00:00:00:02",
        )],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ip,nw_dst=10.1.0.0/16", "10,ip,nw_dst=10.2.3.0/24"],
        packets: &[
            ("in_port=1,tcp,nw_dst=10.1.2.3", Some(10), "ip,nw_dst=10.1.0.0/16"),
            ("in_port=1,tcp,nw_dst=10.2.4.3", None, "ip,nw_dst=10.2.4.0/22"),
            ("in_port=1,tcp,nw_dst=10.2.3.3", Some(10), "ip,nw_dst=10.2.3.0/24"),
            ("in_port=1,tcp,nw_dst=192.168.0.1", None, "ip,nw_dst=128.0.0.0/1"),
            ("in_port=1,tcp,nw_dst=10.3.0.1", None, "ip,nw_dst=10.3.0.0/16"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["20,ip,nw_dst=10.2.3.4", "10,ip,nw_dst=10.0.0.0/8"],
        packets: &[
            ("in_port=1,tcp,nw_dst=10.2.3.4", Some(20), "ip,nw_dst=10.2.3.4"),
            ("in_port=1,tcp,nw_dst=10.2.3.5", Some(10), "ip,nw_dst=10.2.3.5"),
            ("in_port=1,tcp,nw_dst=10.128.0.1", Some(10), "ip,nw_dst=10.128.0.0/9"),
            ("in_port=1,tcp,nw_dst=11.0.0.0", None, "ip,nw_dst=11.0.0.0/8"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,tcp,tp_dst=80", "10,tcp,tp_dst=443"],
        packets: &[
            ("in_port=1,tcp,tp_src=5,tp_dst=80", Some(10), "tcp,tp_dst=80"),
            ("in_port=1,tcp,tp_src=5,tp_dst=81", None, "tcp,tp_dst=81"),
            ("in_port=1,tcp,tp_src=5,tp_dst=8080", None, "tcp,tp_dst=0x1000/0xf000"),
            ("in_port=1,tcp,tp_src=5,tp_dst=442", None, "tcp,tp_dst=442"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,tcp,tp_src=1000,tp_dst=80", "10,tcp,tp_src=1001,tp_dst=443"],
        packets: &[
            ("in_port=1,tcp,tp_src=1000,tp_dst=80", Some(10), "tcp,tp_src=1000,tp_dst=80"),
            ("in_port=1,tcp,tp_src=1000,tp_dst=443", None, "tcp,tp_src=1000,tp_dst=0x100/0xff00"),
            ("in_port=1,tcp,tp_src=2000,tp_dst=80", None, "tcp,tp_src=0x400/0xfc00"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,tcp,nw_tos=32,tcp_flags=+syn", "1"],
        packets: &[
            ("in_port=1,tcp,nw_tos=64,tcp_flags=syn", Some(1), "tcp,nw_tos=64"),
            ("in_port=1,tcp,nw_tos=32,tcp_flags=ack", Some(1), "tcp,nw_tos=32,tcp_flags=-syn"),
            ("in_port=1,tcp,nw_tos=32,tcp_flags=syn", Some(10), "tcp,nw_tos=32,tcp_flags=+syn"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,tcp,nw_tos=32,tp_dst=80", "1"],
        packets: &[
            ("in_port=1,tcp,nw_tos=64,tp_dst=80", Some(1), "tcp,nw_tos=64"),
            ("in_port=1,tcp,nw_tos=32,tp_dst=81", Some(1), "tcp,nw_tos=32,tp_dst=81"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,tcp,nw_tos=32,tcp_flags=+syn,tp_dst=80", "10,tcp,nw_tos=0,tcp_flags=-syn,tp_dst=99"],
        packets: &[
            ("in_port=1,tcp,nw_tos=64,tcp_flags=syn,tp_dst=80", None, "tcp,nw_tos=64"),
            (
                "in_port=1,tcp,nw_tos=32,tcp_flags=ack,tp_dst=81",
                None,
                "tcp,nw_tos=32,tp_dst=81,tcp_flags=-syn",
            ),
            (
                "in_port=1,tcp,nw_tos=32,tcp_flags=syn,tp_dst=81",
                None,
                "tcp,nw_tos=32,tp_dst=81,tcp_flags=+syn",
            ),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "30,dl_src=00:00:00:00:00:01",
            "20,ip,nw_src=10.0.0.0/8",
            "10,tcp,tp_dst=80",
            "5,dl_dst=00:00:00:00:00:05",
        ],
        packets: &[
            (
                "in_port=1,dl_src=00:00:00:00:00:01,tcp,nw_src=10.0.0.1,tp_dst=80",
                Some(30),
                "ip,dl_src=00:00:00:00:00:01",
            ),
            (
                "in_port=1,dl_src=00:00:00:00:00:02,tcp,nw_src=10.0.0.1,tp_dst=80",
                Some(20),
                "ip,dl_src=00:00:00:00:00:02,nw_src=10.0.0.0/8",
            ),
            (
                "in_port=1,dl_src=00:00:00:00:00:02,tcp,nw_src=11.0.0.1,tp_dst=80",
                Some(10),
                "tcp,dl_src=00:00:00:00:00:02,nw_src=11.0.0.0/8,tp_dst=80",
            ),
            (
                "in_port=1,dl_src=00:00:00:00:00:02,tcp,nw_src=12.0.0.1,tp_dst=22",
                None,
                "tcp,dl_src=00:00:00:00:00:02,dl_dst=00:00:00:00:00:00,nw_src=12.0.0.0/6,tp_dst=0x0/0xffc0",
            ),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ip,nw_dst=10.0.0.1/255.0.0.255", "5,ip,nw_dst=10.0.0.0/8"],
        packets: &[
            ("in_port=1,tcp,nw_dst=10.5.5.1", Some(10), "ip,nw_dst=10.0.0.1/255.0.0.255"),
            ("in_port=1,tcp,nw_dst=10.5.5.2", Some(5), "ip,nw_dst=10.0.0.2/255.0.0.255"),
            ("in_port=1,tcp,nw_dst=11.5.5.1", None, "ip,nw_dst=11.0.0.1/255.0.0.255"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "10,ip,nw_src=1.0.0.0/8,nw_dst=10.0.0.0/8",
            "9,ip,nw_src=2.0.0.0/8,nw_dst=11.0.0.0/8",
            "8,ip,nw_src=3.0.0.0/16",
        ],
        packets: &[
            (
                "in_port=1,tcp,nw_src=1.1.1.1,nw_dst=10.0.0.1",
                Some(10),
                "ip,nw_src=1.0.0.0/8,nw_dst=10.0.0.0/8",
            ),
            ("in_port=1,tcp,nw_src=1.1.1.1,nw_dst=11.0.0.1", None, "ip,nw_src=1.0.0.0/8,nw_dst=11.0.0.0/8"),
            ("in_port=1,tcp,nw_src=9.1.1.1,nw_dst=11.0.0.1", None, "ip,nw_src=8.0.0.0/5"),
            (
                "in_port=1,tcp,nw_src=3.0.1.1,nw_dst=77.0.0.1",
                Some(8),
                "ip,nw_src=3.0.0.0/16,nw_dst=64.0.0.0/2",
            ),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,arp,arp_tpa=10.0.0.1", "9,ip,nw_dst=10.0.0.2"],
        packets: &[
            ("in_port=1,arp,arp_tpa=10.0.0.1", Some(10), "arp,arp_tpa=10.0.0.1"),
            ("in_port=1,arp,arp_tpa=10.0.0.9", None, "arp,arp_tpa=10.0.0.9"),
            ("in_port=1,tcp,nw_dst=10.0.0.1", None, "ip,nw_dst=10.0.0.1"),
            ("in_port=1,tcp,nw_dst=10.0.1.1", None, "ip,nw_dst=10.0.1.0/24"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,in_port=2,dl_src=00:00:00:00:00:01", "9,dl_vlan=10", "1"],
        packets: &[
            ("in_port=1,dl_src=00:00:00:00:00:01", Some(1), ""),
            ("in_port=2,dl_src=00:00:00:00:00:02", Some(1), "dl_src=00:00:00:00:00:02"),
            ("in_port=2,dl_src=00:00:00:00:00:01", Some(10), "dl_src=00:00:00:00:00:01"),
            ("in_port=3,dl_vlan=10", Some(9), "dl_vlan=10"),
            ("in_port=3,dl_vlan=11", Some(1), "dl_vlan=11"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ipv6,ipv6_dst=2001:db8::/32", "9,ipv6,ipv6_dst=2001:db9:1::1"],
        packets: &[
            ("in_port=1,tcp6,ipv6_dst=2001:db8::1", Some(10), "ipv6,ipv6_dst=2001:db8::/32"),
            ("in_port=1,tcp6,ipv6_dst=2001:db9:1::2", None, "ipv6,ipv6_dst=2001:db9:1::2"),
            ("in_port=1,tcp6,ipv6_dst=3001:db9:1::2", None, "ipv6,ipv6_dst=3001:db9:1::2"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,dl_src=00:00:00:00:00:01", "10,dl_dst=00:00:00:00:00:05"],
        packets: &[
            (
                "in_port=1,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:05",
                Some(10),
                "dl_src=00:00:00:00:00:01",
            ),
            (
                "in_port=1,dl_src=00:00:00:00:00:02,dl_dst=00:00:00:00:00:05",
                Some(10),
                "dl_src=00:00:00:00:00:02,dl_dst=00:00:00:00:00:05",
            ),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,dl_src=00:00:00:00:00:01", "20,dl_dst=00:00:00:00:00:05", "20,dl_src=00:00:00:00:00:09"],
        packets: &[(
            "in_port=1,dl_src=00:00:00:00:00:09,dl_dst=00:00:00:00:00:05",
            Some(20),
            "dl_dst=00:00:00:00:00:05",
        )],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["20,dl_src=00:00:00:00:00:01", "10,dl_dst=00:00:00:00:00:05", "20,dl_dst=00:00:00:00:00:09"],
        packets: &[(
            "in_port=1,dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:09",
            Some(20),
            "dl_src=00:00:00:00:00:01",
        )],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,metadata=5,ip,nw_dst=10.0.0.1", "9,reg0=1,dl_dst=00:00:00:00:00:05", "1"],
        packets: &[("in_port=1,tcp,nw_dst=10.0.0.1", Some(1), "ip")],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ip,nw_dst=10.0.0.0/8", "9,tcp,nw_dst=10.0.0.0/24,tp_dst=80", "8,ip,nw_dst=10.0.0.0/16"],
        packets: &[
            ("in_port=1,tcp,nw_dst=10.0.0.7,tp_dst=80", Some(10), "ip,nw_dst=10.0.0.0/8"),
            ("in_port=1,tcp,nw_dst=10.0.1.7,tp_dst=80", Some(10), "ip,nw_dst=10.0.0.0/8"),
            ("in_port=1,tcp,nw_dst=10.1.1.7,tp_dst=80", Some(10), "ip,nw_dst=10.0.0.0/8"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,udp,tp_dst=0x1000/0xf000", "9,udp,tp_src=0x8000/0xff00"],
        packets: &[
            ("in_port=1,udp,udp_src=5,udp_dst=4097", Some(10), "udp,tp_dst=0x1000/0xf000"),
            ("in_port=1,udp,udp_src=5,udp_dst=0x3000", None, "udp,tp_src=0x0/0x8000,tp_dst=0x2000/0xe000"),
            (
                "in_port=1,udp,udp_src=0x8011,udp_dst=0xf000",
                Some(9),
                "udp,tp_src=0x8000/0xff00,tp_dst=0x8000/0x8000",
            ),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,tcp,tcp_flags=+syn,tp_dst=80", "10,tcp,tcp_flags=-syn,tp_dst=99"],
        packets: &[
            ("in_port=1,tcp,tcp_flags=ack,tp_dst=8080", None, "tcp,tp_dst=0x1000/0xf000,tcp_flags=-syn"),
            ("in_port=1,tcp,tcp_flags=syn,tp_dst=8080", None, "tcp,tp_dst=0x1000/0xf000,tcp_flags=+syn"),
            ("in_port=1,tcp,tcp_flags=syn,tp_dst=99", None, "tcp,tp_dst=99,tcp_flags=+syn"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,tcp,nw_dst=10.0.0.1,tp_dst=80", "10,tcp,nw_dst=10.0.0.2,tp_dst=443"],
        packets: &[
            ("in_port=1,tcp,nw_dst=10.0.0.1,tp_dst=443", None, "tcp,nw_dst=10.0.0.1,tp_dst=443"),
            ("in_port=1,tcp,nw_dst=10.0.0.1,tp_dst=8080", None, "tcp,nw_dst=10.0.0.1,tp_dst=0x1000/0xf000"),
            ("in_port=1,tcp,nw_dst=10.0.0.9,tp_dst=80", None, "ip,nw_dst=10.0.0.8/29"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,arp,arp_op=1,arp_sha=00:00:00:00:00:01", "1"],
        packets: &[
            ("in_port=1,arp,arp_op=2,arp_sha=00:00:00:00:00:02", Some(1), "arp,arp_op=2"),
            (
                "in_port=1,arp,arp_op=1,arp_sha=00:00:00:00:00:02",
                Some(1),
                "arp,arp_op=1,arp_sha=00:00:00:00:00:02",
            ),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "10,icmp6,icmpv6_type=135,nd_target=2001:db8::1",
            "10,icmp6,icmpv6_type=135,nd_target=2001:db8::2",
            "1",
        ],
        packets: &[
            (
                "in_port=1,icmp6,icmpv6_type=135,nd_target=2001:db8::9",
                Some(1),
                "icmp6,icmp_type=0x87/0xff,nd_target=2001:db8::9",
            ),
            ("in_port=1,icmp6,icmpv6_type=128", Some(1), "icmp6,icmp_type=0x80/0xfc,nd_target=::"),
            ("in_port=1,tcp6", Some(1), "tcp6"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ct_state=+trk+est,ip,ct_nw_src=10.0.0.1,dl_src=00:00:00:00:00:01,nw_tos=32", "1"],
        packets: &[(
            "in_port=1,ct_state=trk|est,tcp,dl_src=00:00:00:00:00:02,ct_nw_src=10.0.0.2",
            Some(1),
            "ct_state=+est+trk,ip,dl_src=00:00:00:00:00:02",
        )],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "30,dl_src=00:00:00:00:00:01",
            "20,dl_dst=00:00:00:00:00:05",
            "20,dl_src=00:00:00:00:00:09",
            "-30,dl_src=00:00:00:00:00:01",
        ],
        packets: &[(
            "in_port=1,dl_src=00:00:00:00:00:09,dl_dst=00:00:00:00:00:05",
            Some(20),
            "dl_src=00:00:00:00:00:09",
        )],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "40,ip,nw_dst=10.1.2.3",
            "30,ip,nw_dst=10.0.0.0/8",
            "30,ip,nw_dst=11.0.0.0/8,nw_tos=32",
            "20,ip,nw_dst=12.0.0.0/16,nw_tos=4",
        ],
        packets: &[
            ("in_port=1,tcp,nw_dst=12.0.0.1,nw_tos=32", None, "ip,nw_dst=12.0.0.0/16,nw_tos=32"),
            ("in_port=1,tcp,nw_dst=12.1.0.1,nw_tos=4", None, "ip,nw_dst=12.1.0.0/16"),
            ("in_port=1,tcp,nw_dst=10.1.2.4,nw_tos=4", Some(30), "ip,nw_dst=10.1.2.4/30"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "40,ip,nw_dst=10.1.2.0/24,nw_tos=32",
            "30,ip,nw_dst=10.1.0.0/16,nw_tos=4",
            "20,ip,nw_dst=10.1.2.3,nw_tos=8",
        ],
        packets: &[
            ("in_port=1,tcp,nw_dst=10.1.2.3,nw_tos=32", Some(40), "ip,nw_dst=10.1.2.0/24,nw_tos=32"),
            ("in_port=1,tcp,nw_dst=10.1.2.99,nw_tos=4", Some(30), "ip,nw_dst=10.1.2.0/24,nw_tos=4"),
            ("in_port=1,tcp,nw_dst=10.1.2.2,nw_tos=4", Some(30), "ip,nw_dst=10.1.2.0/24,nw_tos=4"),
            ("in_port=1,tcp,nw_dst=10.1.2.2,nw_tos=0", None, "ip,nw_dst=10.1.2.2,nw_tos=0"),
            ("in_port=1,tcp,nw_dst=10.1.3.2,nw_tos=0", None, "ip,nw_dst=10.1.3.0/24,nw_tos=0"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "10,in_port=1,nw_src=10.0.0.0/8,ip",
            "10,in_port=2,ip,nw_src=11.0.0.0/8",
            "5,ip,nw_src=10.0.0.0/24",
        ],
        packets: &[
            ("in_port=1,tcp,nw_src=11.0.0.1", None, "ip,nw_src=11.0.0.0/8"),
            ("in_port=3,tcp,nw_src=10.0.0.1", Some(5), "ip,nw_src=10.0.0.0/24"),
            ("in_port=3,tcp,nw_src=10.0.1.1", None, "ip,nw_src=10.0.1.0/24"),
            ("in_port=2,tcp,nw_src=11.0.1.1", Some(10), "ip,nw_src=11.0.0.0/8"),
            ("in_port=3,tcp,nw_src=11.0.1.1", None, "ip,nw_src=11.0.0.0/8"),
        ],
    },
    Case {
        prefixes: &[FieldId::Ipv6Dst],
        rules: &[
            "10,ipv6,ipv6_dst=2001:db8::/32",
            "9,ipv6,ipv6_dst=2001:db9:1::1",
            "9,ipv6,ipv6_dst=2001:db8:1::/64,nw_tos=32",
        ],
        packets: &[
            ("in_port=1,tcp6,ipv6_dst=2001:db8::1", Some(10), "ipv6,ipv6_dst=2001:db8::/32"),
            ("in_port=1,tcp6,ipv6_dst=2001:db9:1::2", None, "ipv6,ipv6_dst=2001:db9:1::2/127"),
            ("in_port=1,tcp6,ipv6_dst=3001:db9:1::2", None, "ipv6,ipv6_dst=3000::/4"),
            ("in_port=1,tcp6,ipv6_dst=2001:db9:2::2", None, "ipv6,ipv6_dst=2001:db9:2::/47"),
            ("in_port=1,tcp6,ipv6_dst=2001:db9:1:0:1::2", None, "ipv6,ipv6_dst=2001:db9:1:0:1::/80"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ip,nw_dst=0.0.0.0/1", "9,ip,nw_dst=128.0.0.0/2,nw_tos=4"],
        packets: &[
            ("in_port=1,tcp,nw_dst=1.0.0.0", Some(10), "ip,nw_dst=0.0.0.0/1"),
            ("in_port=1,tcp,nw_dst=129.0.0.0", None, "ip,nw_dst=128.0.0.0/2,nw_tos=0"),
            ("in_port=1,tcp,nw_dst=200.0.0.0", None, "ip,nw_dst=192.0.0.0/2"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,icmp,icmp_type=8,icmp_code=0", "9,icmp,icmp_type=0"],
        packets: &[
            (
                "in_port=1,icmp,icmp_type=8,icmp_code=0",
                Some(10),
                "icmp,icmp_type=0x8/0xff,icmp_code=0x0/0xff",
            ),
            ("in_port=1,icmp,icmp_type=0", Some(9), "icmp,icmp_type=0x0/0xff"),
            ("in_port=1,icmp,icmp_type=3,icmp_code=1", None, "icmp,icmp_type=0x2/0xfe"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00", "5,dl_dst=00:00:00:00:00:07,ip"],
        packets: &[
            (
                "in_port=1,dl_dst=01:00:00:00:00:05,tcp",
                Some(10),
                "ip,dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
            ),
            ("in_port=1,dl_dst=00:00:00:00:00:07,tcp", Some(5), "ip,dl_dst=00:00:00:00:00:07"),
            ("in_port=1,dl_dst=00:00:00:00:00:08,tcp", None, "ip,dl_dst=00:00:00:00:00:08"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["9,dl_vlan=10", "1"],
        packets: &[
            ("in_port=1,tcp", Some(1), "ip"),
            ("in_port=1,dl_src=00:00:00:00:00:01", Some(1), ""),
            ("in_port=3,tcp,dl_vlan=10", Some(9), "ip,dl_vlan=10"),
            ("in_port=3,tcp,dl_vlan=11,dl_vlan_pcp=3", Some(1), "ip,dl_vlan=11"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["9,vlan_tci=0x1000/0x1000", "1"],
        packets: &[
            ("in_port=1,tcp", Some(1), "ip"),
            ("in_port=3,tcp,dl_vlan=10", Some(9), "ip,vlan_tci=0x1000/0x1000"),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ct_state=+trk+est,ct_nw_proto=6,tcp,ct_tp_dst=80,nw_tos=32", "1"],
        packets: &[
            (
                "in_port=1,ct_state=trk|est,tcp,ct_nw_proto=6,ct_tp_dst=81,nw_tos=64",
                Some(1),
                "ct_state=+est+trk,ct_nw_proto=6,tcp,nw_tos=64",
            ),
            (
                "in_port=1,ct_state=trk|est,tcp,ct_nw_proto=6,ct_tp_dst=81,nw_tos=32",
                Some(1),
                "ct_state=+est+trk,ct_nw_proto=6,ct_tp_dst=81,tcp,nw_tos=32",
            ),
            (
                "in_port=1,ct_state=trk|est,tcp,ct_nw_proto=17,ct_tp_dst=81,nw_tos=32",
                Some(1),
                "ct_state=+est+trk,ct_nw_proto=17,ip",
            ),
        ],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &["10,ct_state=+trk+est,ip,ct_nw_src=10.0.0.1,dl_src=00:00:00:00:00:01,tcp,tp_dst=80", "1"],
        packets: &[(
            "in_port=1,ct_state=trk|est,tcp,dl_src=00:00:00:00:00:01,ct_nw_src=10.0.0.2,tp_dst=81",
            Some(1),
            "ct_state=+est+trk,ct_nw_src=10.0.0.2,tcp,dl_src=00:00:00:00:00:01",
        )],
    },
    Case {
        prefixes: &[FieldId::IpDst, FieldId::IpSrc],
        rules: &[
            "100,tcp,nw_src=10.0.0.0/24,nw_dst=10.0.1.0/24,tp_dst=22",
            "90,tcp,nw_src=10.0.0.0/16",
            "80,ip,nw_dst=10.0.1.0/24",
        ],
        packets: &[
            (
                "in_port=1,tcp,nw_src=10.0.0.5,nw_dst=10.0.1.9,tp_dst=23",
                Some(90),
                "tcp,nw_src=10.0.0.0/24,nw_dst=10.0.1.0/24,tp_dst=23",
            ),
            ("in_port=1,tcp,nw_src=10.0.9.5,nw_dst=10.0.1.9,tp_dst=22", Some(90), "tcp,nw_src=10.0.8.0/21"),
            (
                "in_port=1,udp,nw_src=10.0.0.5,nw_dst=10.0.1.9,udp_dst=22",
                Some(80),
                "udp,nw_src=10.0.0.0/24,nw_dst=10.0.1.0/24",
            ),
        ],
    },
];
