//! Control packets of FTP and TFTP through `ct(alg=…)`, frame by frame. Expectations for IPv4 are answers of Open vSwitch
//! 3.1 to the same packets, with two differences: a repeated message keeps its sequence number, and packets are never too
//! large for their buffer.

use super::*;
use flow::ct_state;
use packet::checksum::{checksum, fold, pseudo, sum};
use std::net::{IpAddr, SocketAddr};

const ACK: u8 = 16;
const PSH: u8 = 8;
const SYN: u8 = 2;

/// A frame of `FROM>TO FLAGS SEQ ACK LINE`, with flags of `SAP`, or `U` for UDP.
fn frame(text: &str) -> Vec<u8> {
    let mut words = text.splitn(5, ' ');
    let (from, to) = words.next().and_then(|ends| ends.split_once('>')).unwrap();
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let flags = words.next().unwrap();
    let [seq, ack]: [u32; 2] = std::array::from_fn(|_| words.next().unwrap().parse().unwrap());
    let line = words.next().map(|line| format!("{line}\r\n")).unwrap_or_default();
    let proto = if flags == "U" { 17 } else { 6 };
    let mut l4 = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    if proto == 17 {
        l4.extend([0, 8 + line.len() as u8, 0, 0]);
    } else {
        let bits = [('S', SYN), ('A', ACK), ('P', PSH)];
        let flags = bits.iter().filter(|(c, _)| flags.contains(*c)).map(|(_, bit)| bit).sum();
        l4.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
        l4.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    }
    l4.extend(line.bytes());
    let at = if proto == 17 { 6 } else { 16 };
    let addresses = [octets(from.ip()), octets(to.ip())];
    let sum = !fold(sum(&l4, pseudo(&addresses[0], &addresses[1], proto, l4.len())));
    l4[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let mut ip = match from {
        SocketAddr::V4(_) => vec![0x45, 0, 0, 20 + l4.len() as u8, 0, 1, 0, 0, 64, proto, 0, 0],
        SocketAddr::V6(_) => vec![0x60, 0, 0, 0, 0, l4.len() as u8, proto, 64],
    };
    ip.extend(addresses.concat());
    if from.is_ipv4() {
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    ip.extend(l4);
    frames::eth(if from.is_ipv4() { 0x0800 } else { 0x86dd }, &ip)
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// `FROM>TO SEQ ACK LINE` of a frame with right lengths and checksums.
fn text(frame: &[u8]) -> String {
    let key = key_of(1, frame);
    let b = &key.base;
    let (src, dst): (IpAddr, IpAddr) = match b.dl_type {
        0x0800 => (b.nw_src.to_be_bytes().into(), b.nw_dst.to_be_bytes().into()),
        _ => (key.ipv6.src.into(), key.ipv6.dst.into()),
    };
    let l4 = if src.is_ipv4() { 34 } else { 54 };
    let bytes = frame.len() - l4;
    if src.is_ipv4() {
        assert_eq!(checksum(&frame[14..34]), 0);
        assert_eq!(usize::from(frame[16]) << 8 | usize::from(frame[17]), frame.len() - 14);
    } else {
        assert_eq!(usize::from(frame[18]) << 8 | usize::from(frame[19]), bytes);
    }
    let sum = sum(&frame[l4..], pseudo(&octets(src), &octets(dst), b.nw_proto, bytes));
    assert_eq!(fold(sum), 0xffff, "checksum");
    let ends = format!("{}>{}", SocketAddr::new(src, b.tp_src), SocketAddr::new(dst, b.tp_dst));
    if b.nw_proto == 17 {
        return ends;
    }
    let number = |at: usize| u32::from_be_bytes(frame[l4 + at..l4 + at + 4].try_into().unwrap());
    let line = String::from_utf8_lossy(&frame[l4 + 20..]).trim_end().to_string();
    format!("{ends} {} {} {line}", number(4), number(8)).trim_end().to_string()
}

fn state(key: &FlowKey) -> String {
    let all = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
    let set = all.iter().enumerate().filter(|(n, _)| key.base.ct_state >> n & 1 != 0).map(|(_, name)| *name);
    let tuple = if key.base.dl_type == 0x0800 { format!(" {}", key.ct.tp_dst) } else { String::new() };
    format!("{} {}{tuple}", set.collect::<Vec<_>>().join("|"), key.base.ct_mark)
}

fn nat(is_dst: bool, addr: &str) -> CtNat {
    let addresses = match addr.parse().unwrap() {
        IpAddr::V4(addr) => NatAddresses::V4(addr, addr),
        IpAddr::V6(addr) => NatAddresses::V6(addr, addr),
    };
    let addresses = Some(addresses);
    CtNat::New(NatRange { is_dst, addresses, ports: None, persistent: false, hash: false, random: false })
}

/// Packets through one switch. Packets of clients (`C `) commit with helper and translation and mark 5, those of servers
/// (`S `) with mark 9. Each row: a packet, what is sent, and state, mark, and (IPv4) original destination port.
#[track_caller]
fn check(helper: &str, nat: CtNat, rows: &[(&str, &str, &str)]) {
    let mut rig = Rig::new();
    let all_bits = |value| Some(Masked { value, mask: u32::MAX });
    let commit = CtAction { commit: CtCommit::Yes, zone: 1, ..CtAction::default() };
    let helper = dpif::HelperName::new(helper);
    let client = CtAction { helper, nat, mark: all_bits(5), ..commit.clone() };
    let back = if nat == CtNat::No { CtNat::No } else { CtNat::Known };
    let server = CtAction { nat: back, mark: all_bits(9), ..commit };
    for ((packet, sent, expect), id) in rows.iter().zip(1..) {
        let (action, packet) = match packet.strip_prefix("C ") {
            Some(packet) => (&client, packet),
            None => (&server, packet.strip_prefix("S ").unwrap()),
        };
        let frame = frame(packet);
        let actions = vec![
            DpAction::Ct(Box::new(action.clone())),
            out(2),
            DpAction::Recirc(dpif::actions::Recirc(flow::RecircId(id))),
        ];
        rig.execute(Packet::from_slice(&frame), key_of(1, &frame), actions, None);
        let (_, frame) = rig.sent().pop().unwrap();
        assert_eq!(text(&frame), *sent, "{packet}");
        let upcall = rig.io.upcalls.pop().unwrap();
        assert!(upcall.key.base.ct_state & ct_state::TRK != 0);
        assert_eq!(state(&upcall.key), *expect, "{packet}");
    }
}

/// The client is behind 99.111.222.133.
const TRANSLATED_SOURCE: &[(&str, &str, &str)] = &[
    ("C 10.0.0.1:1000>10.0.0.2:21 S 100 0", "99.111.222.133:1000>10.0.0.2:21 100 0", "new|trk|snat 5 21"),
    (
        "S 10.0.0.2:21>99.111.222.133:1000 SA 500 101",
        "10.0.0.2:21>10.0.0.1:1000 500 101",
        "est|rpl|trk|dnat 9 21",
    ),
    ("C 10.0.0.1:1000>10.0.0.2:21 A 101 501", "99.111.222.133:1000>10.0.0.2:21 101 501", "est|trk|snat 5 21"),
    (
        "C 10.0.0.1:1000>10.0.0.2:21 PA 101 501 PORT 10,0,0,1,4,5",
        "99.111.222.133:1000>10.0.0.2:21 101 501 PORT 99,111,222,133,4,5",
        "est|trk|snat 5 21",
    ),
    // Again: its acknowledgement was lost.
    (
        "C 10.0.0.1:1000>10.0.0.2:21 PA 101 501 PORT 10,0,0,1,4,5",
        "99.111.222.133:1000>10.0.0.2:21 101 501 PORT 99,111,222,133,4,5",
        "est|trk|snat 5 21",
    ),
    (
        "S 10.0.0.2:21>99.111.222.133:1000 A 501 126",
        "10.0.0.2:21>10.0.0.1:1000 501 120",
        "est|rpl|trk|dnat 9 21",
    ),
    (
        "C 10.0.0.1:1000>10.0.0.2:21 PA 120 501 LIST",
        "99.111.222.133:1000>10.0.0.2:21 126 501 LIST",
        "est|trk|snat 5 21",
    ),
    // The data connection has the parent's mark of that moment and its original tuple.
    (
        "S 10.0.0.2:20>99.111.222.133:1029 S 9000 0",
        "10.0.0.2:20>10.0.0.1:1029 9000 0",
        "new|rel|trk|dnat 5 21",
    ),
    (
        "C 10.0.0.1:1029>10.0.0.2:20 SA 7000 9001",
        "99.111.222.133:1029>10.0.0.2:20 7000 9001",
        "est|rel|rpl|trk|snat 5 21",
    ),
    (
        "S 10.0.0.2:20>99.111.222.133:1029 A 9001 7001",
        "10.0.0.2:20>10.0.0.1:1029 9001 7001",
        "est|rel|trk|dnat 5 21",
    ),
    // Its contents announce nothing, although the rule names the helper.
    (
        "C 10.0.0.1:1029>10.0.0.2:20 PA 7001 9001 PORT 1",
        "99.111.222.133:1029>10.0.0.2:20 7001 9001 PORT 1",
        "est|rel|rpl|trk|snat 5 21",
    ),
    (
        "S 10.0.0.2:21>99.111.222.133:1000 PA 501 132 227 Entering Passive Mode (10,0,0,2,8,1).",
        "10.0.0.2:21>10.0.0.1:1000 501 126 227 Entering Passive Mode (10,0,0,2,8,1).",
        "est|rpl|trk|dnat 9 21",
    ),
    (
        "C 10.0.0.1:1003>10.0.0.2:2049 S 9000 0",
        "99.111.222.133:1003>10.0.0.2:2049 9000 0",
        "new|rel|trk|snat 9 21",
    ),
    (
        "S 10.0.0.2:2049>99.111.222.133:1003 SA 5000 9001",
        "10.0.0.2:2049>10.0.0.1:1003 5000 9001",
        "est|rel|rpl|trk|dnat 9 21",
    ),
    // Another port: not expected.
    (
        "C 10.0.0.1:1003>10.0.0.2:2050 S 9000 0",
        "99.111.222.133:1003>10.0.0.2:2050 9000 0",
        "new|trk|snat 5 2050",
    ),
    // The address of another host, and a wrong message.
    (
        "C 10.0.0.1:1000>10.0.0.2:21 PA 126 538 PORT 1,2,3,4,5,6",
        "99.111.222.133:1000>10.0.0.2:21 126 538 PORT 1,2,3,4,5,6",
        "est|inv|trk|snat 5 21",
    ),
    (
        "C 10.0.0.1:1000>10.0.0.2:21 PA 126 538 PORT 1,2,3",
        "99.111.222.133:1000>10.0.0.2:21 126 538 PORT 1,2,3",
        "est|inv|trk|snat 5 21",
    ),
];

#[test]
fn ftp_with_a_translated_source() {
    check("ftp", nat(false, "99.111.222.133"), TRANSLATED_SOURCE);
}

#[test]
fn ftp_with_a_translated_destination() {
    const ROWS: &[(&str, &str, &str)] = &[
        ("C 10.0.0.1:1000>10.0.0.2:21 S 100 0", "10.0.0.1:1000>20.0.0.111:21 100 0", "new|trk|dnat 5 21"),
        (
            "S 20.0.0.111:21>10.0.0.1:1000 SA 500 101",
            "10.0.0.2:21>10.0.0.1:1000 500 101",
            "est|rpl|trk|snat 9 21",
        ),
        (
            "C 10.0.0.1:1000>10.0.0.2:21 PA 101 501 PORT 10,0,0,1,4,5",
            "10.0.0.1:1000>20.0.0.111:21 101 501 PORT 10,0,0,1,4,5",
            "est|trk|dnat 5 21",
        ),
        (
            "S 20.0.0.111:20>10.0.0.1:1029 S 9000 0",
            "10.0.0.2:20>10.0.0.1:1029 9000 0",
            "new|rel|trk|snat 5 21",
        ),
        (
            "C 10.0.0.1:1029>10.0.0.2:20 SA 7000 9001",
            "10.0.0.1:1029>20.0.0.111:20 7000 9001",
            "est|rel|rpl|trk|dnat 5 21",
        ),
        (
            "S 20.0.0.111:21>10.0.0.1:1000 PA 501 120 227 Entering Passive Mode (20,0,0,111,8,1).",
            "10.0.0.2:21>10.0.0.1:1000 501 120 227 Entering Passive Mode (10,0,0,2,8,1).",
            "est|rpl|trk|snat 9 21",
        ),
        ("C 10.0.0.1:1000>10.0.0.2:21 A 120 544", "10.0.0.1:1000>20.0.0.111:21 120 546", "est|trk|dnat 5 21"),
        (
            "S 20.0.0.111:21>10.0.0.1:1000 PA 546 120 150 Here",
            "10.0.0.2:21>10.0.0.1:1000 544 120 150 Here",
            "est|rpl|trk|snat 9 21",
        ),
        (
            "C 10.0.0.1:1003>10.0.0.2:2049 S 9000 0",
            "10.0.0.1:1003>20.0.0.111:2049 9000 0",
            "new|rel|trk|dnat 9 21",
        ),
    ];
    check("ftp", nat(true, "20.0.0.111"), ROWS);
}

#[test]
fn ftp_over_ipv6() {
    const ROWS: &[(&str, &str, &str)] = &[
        ("C [fd00::1]:1000>[fd00::2]:21 S 100 0", "[fd99::1:2:3]:1000>[fd00::2]:21 100 0", "new|trk|snat 5"),
        (
            "S [fd00::2]:21>[fd99::1:2:3]:1000 SA 500 101",
            "[fd00::2]:21>[fd00::1]:1000 500 101",
            "est|rpl|trk|dnat 9",
        ),
        (
            "C [fd00::1]:1000>[fd00::2]:21 PA 101 501 EPRT |2|fd00::1|1029|",
            "[fd99::1:2:3]:1000>[fd00::2]:21 101 501 EPRT |2|fd99::1:2:3|1029|",
            "est|trk|snat 5",
        ),
        (
            "S [fd00::2]:21>[fd99::1:2:3]:1000 A 501 129",
            "[fd00::2]:21>[fd00::1]:1000 501 125",
            "est|rpl|trk|dnat 9",
        ),
        (
            "S [fd00::2]:20>[fd99::1:2:3]:1029 S 9000 0",
            "[fd00::2]:20>[fd00::1]:1029 9000 0",
            "new|rel|trk|dnat 5",
        ),
        (
            "S [fd00::2]:21>[fd99::1:2:3]:1000 PA 501 129 229 Entering Extended Passive Mode (|||2049|)",
            "[fd00::2]:21>[fd00::1]:1000 501 125 229 Entering Extended Passive Mode (|||2049|)",
            "est|rpl|trk|dnat 9",
        ),
        (
            "C [fd00::1]:1003>[fd00::2]:2049 S 9000 0",
            "[fd99::1:2:3]:1003>[fd00::2]:2049 9000 0",
            "new|rel|trk|snat 9",
        ),
        (
            "C [fd00::1]:1000>[fd00::2]:21 PA 125 549 EPRT |1|fd00::1|5|",
            "[fd99::1:2:3]:1000>[fd00::2]:21 125 549 EPRT |1|fd00::1|5|",
            "est|inv|trk|snat 5",
        ),
    ];
    check("ftp", nat(false, "fd99::1:2:3"), ROWS);
}

#[test]
fn ftp_without_translation_and_without_helper() {
    let rows = |related: &'static str, mark: &'static str, port: &'static str, inv: &'static str| {
        [
            ("C 10.0.0.1:1000>10.0.0.2:21 S 100 0".to_string(), "new|trk 5 21".to_string()),
            ("S 10.0.0.2:21>10.0.0.1:1000 SA 500 101".into(), "est|rpl|trk 9 21".into()),
            ("C 10.0.0.1:1000>10.0.0.2:21 PA 101 501 PORT 10,0,0,1,4,5".into(), "est|trk 5 21".into()),
            ("S 10.0.0.2:20>10.0.0.1:1029 S 9000 0".into(), format!("new{related}|trk {mark} {port}")),
            ("C 10.0.0.1:1000>10.0.0.2:21 PA 120 501 PORT 10,0,0".into(), format!("est{inv}|trk 5 21")),
        ]
    };
    for (helper, rows) in [("ftp", rows("|rel", "5", "21", "|inv")), ("", rows("", "9", "1029", ""))] {
        let unchanged = |packet: &str| {
            let mut words: Vec<&str> = packet[2..].split(' ').collect();
            words.remove(1);
            words.join(" ")
        };
        let rows: Vec<_> = rows.iter().map(|(packet, state)| (packet, unchanged(packet), state)).collect();
        let rows: Vec<_> = rows.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
        check(helper, CtNat::No, &rows);
    }
}

#[test]
fn tftp_with_a_translated_source() {
    const ROWS: &[(&str, &str, &str)] = &[
        ("C 10.0.0.1:3000>10.0.0.2:69 U 0 0 get", "1.1.1.1:3000>10.0.0.2:69", "new|trk|snat 5 69"),
        ("S 10.0.0.2:4000>1.1.1.1:3000 U 0 0 data", "10.0.0.2:4000>10.0.0.1:3000", "new|rel|trk|dnat 5 69"),
        (
            "C 10.0.0.1:3000>10.0.0.2:4000 U 0 0 ack",
            "1.1.1.1:3000>10.0.0.2:4000",
            "est|rel|rpl|trk|snat 5 69",
        ),
        ("S 10.0.0.2:4000>1.1.1.1:3000 U 0 0 data", "10.0.0.2:4000>10.0.0.1:3000", "est|rel|trk|dnat 5 69"),
    ];
    check("tftp", nat(false, "1.1.1.1"), ROWS);
}
