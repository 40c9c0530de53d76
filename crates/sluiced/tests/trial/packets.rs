//! Random packets: flows as text, and frames as bytes, complete, tagged, fragmented, truncated or with false header fields.

use crate::connections;
use crate::rules::{ip, ip6, l4_port, mac, vlan};
use crate::special::label;
use sim::Rng;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Ports of `br0` that have devices.
const PORTS: [u8; 6] = [1, 2, 3, 4, 5, 6];

/// The arguments of `ofproto/trace` for one packet.
pub(crate) fn trace_arguments(rng: &mut Rng) -> Vec<String> {
    let mut words = if rng.one_in(3) { connections::next_states(rng) } else { Vec::new() };
    words.push("br0".to_string());
    match rng.below(4) {
        0 => words.push(flow(rng)),
        1 => words.extend([flow(rng), "-generate".to_string()]),
        _ => {
            words.push(format!("in_port={}", rng.pick(&PORTS)));
            let frame = frame(rng);
            words.push(frame.iter().fold(String::new(), |mut hex, b| {
                let _ = write!(hex, "{b:02x}");
                hex
            }));
        }
    }
    words
}

/// A flow in the syntax of `ofproto/trace`.
fn flow(rng: &mut Rng) -> String {
    let mut text = format!("in_port={},dl_src={},dl_dst={}", rng.pick(&PORTS), mac(rng), mac(rng));
    if rng.one_in(3) {
        let _ = write!(text, ",dl_vlan={},dl_vlan_pcp={}", vlan(rng), rng.below(3));
    }
    if rng.one_in(6) {
        let _ = write!(text, ",metadata=0x{:x},reg0={}", rng.below(4), rng.below(4));
    }
    let kind = *rng.pick(&[
        "tcp", "udp", "icmp", "sctp", "ip", "arp", "rarp", "tcp6", "udp6", "icmp6", "ipv6", "", "mpls", "nsh",
    ]);
    match kind {
        "tcp" | "udp" | "icmp" | "sctp" | "ip" => {
            let _ = write!(text, ",{kind},nw_src={},nw_dst={}", ip(rng), ip(rng));
            let _ = write!(text, ",nw_ttl={},nw_tos={}", rng.pick(&[0, 1, 2, 64]), rng.pick(&[0, 32, 252]));
            if rng.one_in(4) {
                let _ = write!(text, ",ip_frag={}", rng.pick(&["first", "later"]));
            }
        }
        "tcp6" | "udp6" | "icmp6" | "ipv6" => {
            let _ = write!(text, ",{kind},ipv6_src={},ipv6_dst={}", ip6(rng), ip6(rng));
            let _ = write!(text, ",nw_ttl={}", rng.pick(&[0, 1, 2, 64]));
            if rng.one_in(4) {
                let _ = write!(text, ",ip_frag={}", rng.pick(&["first", "later"]));
            }
        }
        "arp" | "rarp" => {
            let _ = write!(text, ",{kind},arp_op={},arp_spa={},arp_tpa={}", rng.below(4), ip(rng), ip(rng));
            let _ = write!(text, ",arp_sha={},arp_tha={}", mac(rng), mac(rng));
        }
        "mpls" => {
            let _ = write!(text, ",mpls,mpls_label={},mpls_tc={}", label(rng), rng.below(3));
            let _ = write!(text, ",mpls_ttl={},mpls_bos={}", rng.pick(&[0, 1, 2, 64]), rng.below(2));
        }
        "nsh" => {
            let _ = write!(text, ",dl_type=0x894f,nsh_flags={},nsh_ttl={}", rng.below(2), rng.pick(&[1, 63]));
            let _ =
                write!(text, ",nsh_mdtype=1,nsh_np={},nsh_spi=0x{:x}", rng.pick(&[1, 2, 3]), rng.range(1, 3));
            let _ = write!(text, ",nsh_si={},nsh_c1={}", rng.pick(&[1, 255]), rng.below(4));
        }
        _ => text += ",dl_type=0x1234",
    }
    if rng.one_in(6) {
        text.push(',');
        text += &connections::tracked(rng, kind);
    }
    match kind {
        "ip" | "ipv6" => {
            let _ = write!(text, ",nw_proto={}", rng.pick(&[0, 2, 47, 58]));
        }
        "tcp" | "udp" | "sctp" | "tcp6" | "udp6" => {
            let name = kind.trim_end_matches('6');
            let _ = write!(text, ",{name}_src={},{name}_dst={}", l4_port(rng), l4_port(rng));
        }
        "icmp" => {
            let _ = write!(text, ",icmp_type={},icmp_code={}", rng.pick(&[0, 3, 8]), rng.below(3));
        }
        "icmp6" => {
            let icmp_type = rng.pick(&[1, 128, 135, 135, 136]);
            let _ = write!(text, ",icmpv6_type={icmp_type},icmpv6_code=0");
            if *icmp_type == 135 {
                let _ = write!(text, ",nd_target={},nd_sll={}", ip6(rng), mac(rng));
                let _ = write!(text, ",nd_reserved={},nd_options_type={}", rng.below(2), rng.below(3));
            }
        }
        _ => {}
    }
    text
}

fn mac_bytes(text: &str) -> Vec<u8> {
    text.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect()
}

/// A frame.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = mac_bytes(mac(rng));
    frame.extend(mac_bytes(mac(rng)));
    let tags = if rng.one_in(3) { rng.range(1, 3) } else { 0 };
    for _ in 0..tags {
        let tpid: u16 = *rng.pick(&[0x8100, 0x8100, 0x88a8]);
        frame.extend(tpid.to_be_bytes());
        let tci = vlan(rng) | (rng.below(8) as u16) << 13 | if rng.one_in(6) { 0x1000 } else { 0 };
        frame.extend(tci.to_be_bytes());
    }
    match rng.below(13) {
        0..=4 => ipv4(rng, &mut frame),
        11 => mpls(rng, &mut frame),
        5..=8 => ipv6(rng, &mut frame),
        9 => arp(rng, &mut frame),
        10 => {
            // A length: IEEE 802.3, with and without a SNAP header.
            let snap = rng.one_in(2);
            frame.extend([0, 46]);
            frame.extend(if snap { [0xaa, 0xaa, 3, 0, 0, 0, 8, 0] } else { [0x42, 0x42, 3, 0, 0, 0, 0, 0] });
            frame.resize(60, 0);
        }
        _ => {
            frame.extend(*rng.pick(&[[0x12, 0x34], [0x88, 0xcc], [0x05, 0xff], [0x06, 0x00]]));
            frame.resize(60, 0);
        }
    }
    if rng.one_in(10) {
        let kept = rng.range(14, frame.len() as u64) as usize;
        frame.truncate(kept);
    }
    frame
}

/// Up to four labels, the last at the bottom or not, and what may be a header of IPv4.
fn mpls(rng: &mut Rng, frame: &mut Vec<u8>) {
    frame.extend([0x88, 0x47]);
    let labels = rng.range(1, 4);
    for n in 1..=labels {
        let bottom = u64::from(n == labels && !rng.one_in(5));
        let entry = label(rng) << 12 | rng.below(3) << 9 | bottom << 8 | *rng.pick(&[0, 1, 64]);
        frame.extend((entry as u32).to_be_bytes());
    }
    frame.extend([0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.resize(frame.len() + 20, 0);
}

/// The payload of a protocol above IP: a possibly truncated header, and some bytes.
fn l4(rng: &mut Rng, proto: u8) -> Vec<u8> {
    let ports = [l4_port(rng).to_be_bytes(), l4_port(rng).to_be_bytes()].concat();
    let mut bytes = match proto {
        6 => {
            let mut tcp = ports;
            tcp.extend([0, 0, 0, 1, 0, 0, 0, 2]);
            tcp.extend([
                if rng.one_in(10) { 0x40 } else { 0x50 },
                *rng.pick(&[2, 0x12, 0x10, 0x11]),
                0,
                9,
                0,
                0,
                0,
                0,
            ]);
            tcp
        }
        17 => [ports, vec![0, 16, *rng.pick(&[0, 7]), 0]].concat(),
        132 => [ports, vec![0; 8]].concat(),
        1 => vec![*rng.pick(&[0, 3, 8]), rng.below(3) as u8, 0, 0, 0, 1, 0, 1],
        58 => icmp6(rng),
        2 => vec![*rng.pick(&[0x11, 0x16, 0x17]), 0, 0, 0, 224, 0, 0, 1],
        _ => vec![0; 8],
    };
    bytes.resize(bytes.len() + rng.below(12) as usize, 0x5a);
    if rng.one_in(10) {
        bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
    }
    bytes
}

/// ICMPv6, including neighbour discovery with options.
fn icmp6(rng: &mut Rng) -> Vec<u8> {
    let kind = *rng.pick(&[1, 128, 135, 136]);
    let mut bytes = vec![kind, if rng.one_in(8) { 1 } else { 0 }, 0, 0, 0, 0, 0, 0];
    if kind >= 135 {
        bytes.extend(ip6(rng).parse::<Ipv6Addr>().unwrap().octets());
        for _ in 0..rng.below(3) {
            bytes.extend([*rng.pick(&[1, 2, 3]), *rng.pick(&[1, 1, 1, 0, 2])]);
            bytes.extend(mac_bytes(mac(rng)));
        }
    }
    bytes
}

fn ipv4(rng: &mut Rng, frame: &mut Vec<u8>) {
    frame.extend([8, 0]);
    let proto = *rng.pick(&[6, 17, 1, 132, 2, 0, 47, 58]);
    let payload = l4(rng, proto);
    let options = if rng.one_in(6) { 4 } else { 0 };
    let mut ihl = 5 + options / 4;
    if rng.one_in(20) {
        ihl = *rng.pick(&[4, 15]);
    }
    let mut len = (20 + options + payload.len()) as u16;
    if rng.one_in(15) {
        len = *rng.pick(&[0, 19, len + 1, len - 1]);
    }
    // Don't-fragment, more-fragments, and an offset.
    let frag: u16 = *rng.pick(&[0, 0, 0, 0x4000, 0x2000, 0x2001, 0x0001, 0x00ff]);
    let version = if rng.one_in(30) { 0x60 } else { 0x40 };
    frame.extend([version | ihl as u8, *rng.pick(&[0, 32, 1, 255])]);
    frame.extend(len.to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(frag.to_be_bytes());
    frame.extend([*rng.pick(&[0, 1, 2, 64]), proto, 0, 0]);
    frame.extend(ip(rng).parse::<Ipv4Addr>().unwrap().octets());
    frame.extend(ip(rng).parse::<Ipv4Addr>().unwrap().octets());
    frame.resize(frame.len() + options, 1);
    frame.extend(payload);
}

fn ipv6(rng: &mut Rng, frame: &mut Vec<u8>) {
    frame.extend([0x86, 0xdd]);
    let proto = *rng.pick(&[6, 17, 58, 58, 132, 59, 0x99]);
    let payload = l4(rng, proto);
    let mut chain: Vec<(u8, Vec<u8>)> = Vec::new();
    for _ in 0..if rng.one_in(3) { rng.range(1, 2) } else { 0 } {
        let kind = *rng.pick(&[0, 60, 43, 44, 44, 51]);
        let body = match kind {
            44 => {
                let offset: u16 = *rng.pick(&[0, 1, 8, 9, 0x100]);
                let [high, low] = offset.to_be_bytes();
                vec![0, high, low, 0, 0, 0, 7]
            }
            51 => [vec![1, 0, 0], vec![0; 8]].concat(),
            _ => vec![0, 1, 4, 0, 0, 0, 0],
        };
        chain.push((kind, body));
    }
    let mut upper = Vec::new();
    for (at, (_, body)) in chain.iter().enumerate() {
        upper.push(chain.get(at + 1).map_or(proto, |(kind, _)| *kind));
        upper.extend(body);
    }
    upper.extend(payload);
    let first = chain.first().map_or(proto, |(kind, _)| *kind);
    let mut len = upper.len() as u16;
    if rng.one_in(15) {
        len = *rng.pick(&[0, len + 1, len.saturating_sub(1)]);
    }
    let label: u32 = *rng.pick(&[0, 1, 0xfffff]);
    frame.extend((0x6000_0000 | (rng.pick(&[0u32, 32, 255]) << 20) | label).to_be_bytes());
    frame.extend(len.to_be_bytes());
    frame.extend([first, *rng.pick(&[0, 1, 2, 64])]);
    frame.extend(ip6(rng).parse::<Ipv6Addr>().unwrap().octets());
    frame.extend(ip6(rng).parse::<Ipv6Addr>().unwrap().octets());
    frame.extend(upper);
}

fn arp(rng: &mut Rng, frame: &mut Vec<u8>) {
    frame.extend(*rng.pick(&[[8, 6], [8, 6], [0x80, 0x35]]));
    frame.extend([0, if rng.one_in(10) { 6 } else { 1 }, 8, 0, 6, 4]);
    frame.extend([if rng.one_in(12) { 1 } else { 0 }, rng.below(5) as u8]);
    frame.extend(mac_bytes(mac(rng)));
    frame.extend(ip(rng).parse::<Ipv4Addr>().unwrap().octets());
    frame.extend(mac_bytes(mac(rng)));
    frame.extend(ip(rng).parse::<Ipv4Addr>().unwrap().octets());
    if rng.one_in(2) {
        frame.resize(60, 0);
    }
}
