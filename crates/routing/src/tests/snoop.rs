//! Announced neighbours, and the examined bits.

use super::ip;
use crate::snoop;
use flow::{Flow, Mask};
use std::net::Ipv6Addr;

const ARP: u16 = 0x0806;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

fn arp(nw_proto: u8, nw_src: u32, nw_dst: u32, arp_sha: [u8; 6]) -> Flow {
    Flow { dl_type: ARP, nw_proto, nw_src, nw_dst, arp_sha, ..Flow::default() }
}

fn advertisement() -> Flow {
    let target: Ipv6Addr = "2001:cafe::92".parse().unwrap();
    Flow {
        dl_type: 0x86dd,
        nw_proto: 58,
        tp_src: 136,
        arp_tha: MAC,
        nd_target: target.octets(),
        ..Flow::default()
    }
}

#[test]
fn replies_gratuitous_arp_and_advertisements_announce_neighbours() {
    let addresses = ["nw_src", "nw_dst"];
    let icmp = ["nw_proto", "tp_dst", "tp_src"];
    let whole = ["nw_proto", "tp_dst", "tp_src", "arp_tha", "ipv6_src", "ipv6_dst", "nd_target"];
    for (what, flow, expected, examined) in [
        ("a reply", arp(2, 1, 2, MAC), Some("0.0.0.1"), vec!["nw_src", "nw_dst", "nw_proto", "arp_sha"]),
        ("a request", arp(1, 1, 2, MAC), None, [&addresses[..], &["nw_proto"]].concat()),
        ("gratuitous", arp(1, 1, 1, MAC), Some("0.0.0.1"), [&addresses[..], &["arp_sha"]].concat()),
        ("no sender", arp(1, 1, 1, [0; 6]), None, [&addresses[..], &["arp_sha"]].concat()),
        ("an advertisement", advertisement(), Some("2001:cafe::92"), whole.to_vec()),
        ("no address", Flow { arp_tha: [0; 6], ..advertisement() }, None, whole[..4].to_vec()),
        ("a solicitation", Flow { tp_src: 135, ..advertisement() }, None, icmp.to_vec()),
        ("another code", Flow { tp_dst: 1, ..advertisement() }, None, icmp[..2].to_vec()),
        ("TCP", Flow { nw_proto: 6, ..advertisement() }, None, icmp[..1].to_vec()),
        ("IPv4", Flow { dl_type: 0x0800, ..advertisement() }, None, vec![]),
    ] {
        let mut mask = Mask::none();
        let found = snoop(&flow, &mut mask);
        assert_eq!(found.map(|s| (s.ip, s.mac.0)), expected.map(|e| (ip(e), MAC)), "{what}");
        let m = &mask.0;
        let bits = [
            ("nw_src", m.nw_src == u32::MAX),
            ("nw_dst", m.nw_dst == u32::MAX),
            ("nw_proto", m.nw_proto == u8::MAX),
            ("tp_dst", m.tp_dst == u16::MAX),
            ("tp_src", m.tp_src == u16::MAX),
            ("arp_sha", m.arp_sha == [0xff; 6]),
            ("arp_tha", m.arp_tha == [0xff; 6]),
            ("ipv6_src", m.ipv6_src == [0xff; 16]),
            ("ipv6_dst", m.ipv6_dst == [0xff; 16]),
            ("nd_target", m.nd_target == [0xff; 16]),
        ];
        for (name, is_examined) in bits {
            assert_eq!(is_examined, examined.contains(&name), "{what}: {name}");
        }
        // Every packet that agrees in these bits announces the same.
        let masked = flow.masked(&mask);
        let masked = Flow { dl_type: flow.dl_type, ..masked };
        assert_eq!(snoop(&masked, &mut Mask::none()), found, "{what}");
    }
}
