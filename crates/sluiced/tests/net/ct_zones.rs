//! States, marks and translations of packets that pass one or several zones, beside Debian's switch: the same packets must leave
//! both alike. Commands about the connections, in stopped time.

use std::net::SocketAddrV4;

use testkit::{require_netns, require_programs, wait_for};

use crate::ct_beside::{Side, hex};
use crate::ct_hostile::{ACK, FIN, RST, SYN, tcp};
use crate::helpers::{LIMIT, appctl, appctl_output, vsctl};

/// Writes the state, the translation and the mark of a packet into its TOS, ECN and TTL, and sends it on.
pub(crate) fn shown() -> String {
    [(1, 2), (2, 1)]
        .map(|(from, to)| {
            format!(
                "table=9,in_port={from},{{ip}} actions=move:NXM_NX_CT_STATE[0..5]->NXM_OF_IP_TOS[2..7],\
                 move:NXM_NX_CT_STATE[6..7]->NXM_NX_IP_ECN[],move:NXM_NX_CT_MARK[0..7]->NXM_NX_IP_TTL[],{to}\n"
            )
        })
        .concat()
}

/// Packets through rules that end in table 9.
struct Case {
    name: &'static str,
    /// `{ip}` is the family; `{c}`, `{s}`, `{t}` and `{v}` are the client, the server, and other addresses of both.
    rules: &'static str,
    /// Commands before the packets.
    before: &'static [&'static str],
    /// Packets: direction (`>` from the client), source, source port, destination, destination port.
    packets: &'static [&'static str],
}

/// A connection from the client to the server, and its replies.
const PLAIN: &[&str] = &["> c 5 s 6", "< s 6 c 5", "> c 5 s 6", "< s 6 c 5"];
/// Packets with the client behind another address.
const SNAT: &[&str] = &["> c 5 s 6", "< s 6 t 5", "> c 5 s 6", "< s 6 t 5"];
/// Packets to another address of the server.
const DNAT: &[&str] = &["> c 5 v 6", "< s 6 c 5", "> c 5 v 6", "< s 6 c 5"];

const CASES: [Case; 25] = [
    Case {
        name: "new until the reply",
        rules: "{ip} actions=ct(commit,zone=3,table=9)",
        before: &[],
        packets: &["> c 5 s 6", "> c 5 s 6", "> c 5 s 6", "> c 5 s 6", "< s 6 c 5", "> c 5 s 6"],
    },
    Case {
        name: "translated, new until the reply",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),table=9)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: &["> c 5 s 6", "> c 5 s 6", "> c 5 s 6", "< s 6 t 5", "> c 5 s 6", "< s 6 t 5"],
    },
    Case {
        name: "a translated packet comes into its zone a third time",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),table=1)
                {ip},in_port=2 actions=ct(zone=3,nat,table=1)
                table=1,{ip} actions=ct(zone=3,nat,table=2)
                table=2,{ip} actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: &["> c 5 s 6", "> c 5 s 6", "> c 5 s 6", "< s 6 t 5", "> c 5 s 6", "< s 6 t 5"],
    },
    Case {
        name: "another mark and another translation by the reply",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),exec(set_field:1->ct_mark),table=9)
                {ip},in_port=2 actions=ct(commit,zone=3,nat(src={v}),exec(set_field:9->ct_mark),table=9)",
        before: &[],
        packets: SNAT,
    },
    Case {
        name: "another translation after that of the destination",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(dst={s}),table=1)
                {ip},in_port=2 actions=ct(zone=3,nat,table=1)
                table=1,{ip} actions=ct(commit,zone=3,nat(src={t}),table=9)",
        before: &[],
        packets: DNAT,
    },
    Case {
        name: "force by the reply, after a look at it",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,exec(set_field:1->ct_mark),table=9)
                {ip},in_port=2 actions=ct(zone=3,table=1)
                table=1,{ip} actions=ct(commit,force,zone=3,exec(set_field:2->ct_mark),table=9)",
        before: &[],
        packets: &["> c 5 s 6", "< s 6 c 5", "> c 5 s 6", "< s 6 c 5", "> c 5 s 6"],
    },
    Case {
        name: "a translated packet comes into its zone again",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),table=1)
                {ip},in_port=2 actions=ct(zone=3,nat,table=1)
                table=1,{ip} actions=ct(zone=3,table=9)",
        before: &[],
        packets: SNAT,
    },
    Case {
        name: "the same, with its translation asked for again",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),table=1)
                {ip},in_port=2 actions=ct(zone=3,nat,table=1)
                table=1,{ip} actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: SNAT,
    },
    Case {
        name: "a translated destination comes into its zone again",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(dst={s}),table=1)
                {ip},in_port=2 actions=ct(zone=3,nat,table=1)
                table=1,{ip} actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: DNAT,
    },
    Case {
        name: "another zone begins without a state",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),exec(set_field:7->ct_mark),table=1)
                {ip},in_port=2 actions=ct(zone=3,nat,table=1)
                table=1,{ip} actions=ct(zone=4,table=9)",
        before: &[],
        packets: SNAT,
    },
    Case {
        name: "one zone translates the source, another one the destination",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(dst={s}),table=1)
                {ip},in_port=2 actions=ct(zone=4,nat,table=2)
                table=1,{ip} actions=ct(commit,zone=4,nat(src={t}),table=9)
                table=2,{ip} actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: &["> c 5 v 6", "< s 6 t 5", "> c 5 v 6", "< s 6 t 5"],
    },
    Case {
        name: "a reply that is committed by force turns the connection round",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,table=9)
                {ip},in_port=2 actions=ct(commit,force,zone=3,table=9)",
        before: &[],
        packets: &["> c 5 s 6", "< s 6 c 5", "> c 5 s 6", "< s 6 c 5", "> c 5 s 6"],
    },
    Case {
        name: "force in the original direction changes nothing",
        rules: "{ip},in_port=1 actions=ct(commit,force,zone=3,table=9)
                {ip},in_port=2 actions=ct(zone=3,table=9)",
        before: &[],
        packets: PLAIN,
    },
    Case {
        name: "marks and labels by their masks",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,exec(load:5->NXM_NX_CT_MARK[0..3],load:7->NXM_NX_CT_LABEL[64..67]),table=9)
                {ip},in_port=2 actions=ct(commit,zone=3,exec(set_field:0x60/0xf0->ct_mark,set_field:0x1/0x3->ct_label),table=9)",
        before: &[],
        packets: PLAIN,
    },
    Case {
        name: "a mark without a commit is lost",
        rules: "{ip} actions=ct(zone=3,table=9)",
        before: &[],
        packets: PLAIN,
    },
    Case {
        name: "a zone from a field",
        rules: "{ip} actions=load:77->NXM_NX_REG3[8..23],ct(commit,zone=NXM_NX_REG3[8..23],table=9)",
        before: &[],
        packets: PLAIN,
    },
    Case {
        name: "cleared",
        rules: "{ip} actions=ct(commit,zone=3,exec(set_field:9->ct_mark),table=1)
                table=1,{ip} actions=ct_clear,resubmit(,9)",
        before: &[],
        packets: PLAIN,
    },
    Case {
        name: "random",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}:5-5,random),table=9)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: SNAT,
    },
    Case {
        name: "hash, with another port",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}:7000,hash),table=9)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: &["> c 5 s 6", "< s 6 t 7000", "> c 5 s 6"],
    },
    Case {
        name: "persistent, of the destination",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(dst={s}:60,persistent),table=9)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: &["> c 5 v 6", "< s 60 c 5", "> c 5 v 6"],
    },
    Case {
        name: "no free port: new, not committed, not translated",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}:7000),table=9)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)",
        before: &[],
        packets: &["> c 5 s 6", "> c 8 s 6", "> c 8 s 6", "< s 6 t 7000", "> c 5 s 6", "> c 8 s 9"],
    },
    Case {
        name: "a zone at its limit",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),table=9)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)",
        before: &["dpctl/ct-set-limits zone=3,limit=1"],
        packets: &["> c 5 s 6", "> c 8 s 6", "> c 8 s 6", "< s 6 t 5", "> c 5 s 6", "< s 6 t 8"],
    },
    Case {
        name: "a full table",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,nat(src={t}),table=9)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)",
        before: &["dpctl/ct-set-maxconns 1"],
        packets: &["> c 5 s 6", "> c 8 s 6", "< s 6 t 5", "> c 5 s 6", "< s 6 t 8"],
    },
    Case {
        name: "translated once, by the first commit",
        rules: "{ip},in_port=1 actions=ct(commit,zone=3,table=1)
                {ip},in_port=2 actions=ct(zone=3,nat,table=9)
                table=1,{ip} actions=ct(commit,zone=3,nat(src={t}),table=9)",
        before: &[],
        packets: PLAIN,
    },
    Case {
        name: "port 0 is invalid",
        rules: "{ip} actions=ct(commit,zone=3,table=9)",
        before: &[],
        packets: &["> c 0 s 6", "< s 6 c 0"],
    },
];

/// Addresses by family and letter.
fn address(letter: &str, is_v6: bool) -> String {
    let number = match letter {
        "c" => "1",
        "s" => "2",
        "t" => "9",
        "v" => "99",
        other => panic!("{other}"),
    };
    format!("{}{number}", if is_v6 { "fd00::" } else { "10.0.0." })
}

/// The flow of a packet of a case.
pub(crate) fn case_flow(packet: &str, is_v6: bool) -> (usize, String) {
    let words: Vec<&str> = packet.split(' ').collect();
    let [direction, src, from, dst, to] = words[..] else { panic!("{packet}") };
    let port = if direction == ">" { 1 } else { 2 };
    let (src, dst) = (address(src, is_v6), address(dst, is_v6));
    let ip = match is_v6 {
        false => format!("eth_type(0x0800),ipv4(src={src},dst={dst},proto=17,tos=0,ttl=64,frag=no)"),
        true => {
            format!("eth_type(0x86dd),ipv6(src={src},dst={dst},label=0,proto=17,tclass=0,hlimit=64,frag=no)")
        }
    };
    let ethernet = "eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02)";
    (port, format!("in_port({port}),{ethernet},{ip},udp(src={from},dst={to})"))
}

/// Each packet leaves alike in state, translation, mark and bytes, and leaves the same connections.
#[test]
fn packets_through_zones_are_as_with_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    let mut different = Vec::new();
    for case in &CASES {
        for is_v6 in [false, true] {
            let [ours, stock] = sides.each_ref().map(|side| {
                for line in ["flush-conntrack", "ct-del-limits zone=3", "ct-set-maxconns 3000000"] {
                    appctl(&side.daemon, &format!("dpctl/{line}"));
                }
                let mut rules = format!("{}\n{}", case.rules, shown());
                rules = rules.replace("{ip}", if is_v6 { "ipv6" } else { "ip" });
                for letter in ["c", "s", "t", "v"] {
                    let plain = address(letter, is_v6);
                    let (with_port, bracketed) = (format!("{{{letter}}}:"), format!("[{plain}]:"));
                    if is_v6 {
                        rules = rules.replace(&with_port, &bracketed);
                    }
                    rules = rules.replace(&format!("{{{letter}}}"), &plain);
                }
                side.rules(&rules);
                for command in case.before {
                    appctl(&side.daemon, command);
                }
                let pass = |packet: &&str| {
                    let (port, flow) = case_flow(packet, is_v6);
                    side.pass(port, &flow)
                };
                let passed: Vec<_> = case.packets.iter().map(pass).collect();
                (passed, side.tracked())
            });
            if ours != stock {
                different.push(format!("{}, v6: {is_v6}:\n{ours:#?}\n{stock:#?}", case.name));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// A commit with `nat` alone translates nothing. (Open vSwitch 3.1 then expects replies from address 0 and port 0, and finds no
/// connection for the real ones.)
#[test]
fn a_commit_without_a_range_translates_nothing() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let side = Side::new(false);
    let rules = "udp,in_port=1 actions=ct(commit,zone=3,nat,table=9)
                 udp,in_port=2 actions=ct(zone=3,nat,table=9)\n";
    side.rules(&format!("{rules}{}", shown().replace("{ip}", "ip")));
    let states: Vec<u8> = PLAIN
        .iter()
        .map(|packet| {
            let (port, flow) = case_flow(packet, false);
            u8::from_str_radix(&side.pass(port, &flow)[30..32], 16).unwrap() >> 2
        })
        .collect();
    // +new+trk; +est+rpl+trk; +est+trk; +est+rpl+trk.
    assert_eq!(states, [0x21, 0x2a, 0x22, 0x2a]);
    let line = "udp,orig=(src=10.0.0.1,dst=10.0.0.2,sport=5,dport=6),reply=(src=10.0.0.2,dst=10.0.0.1,sport=6,dport=5),zone=3";
    assert_eq!(side.tracked(), [line]);
}

/// `nat(src=0.0.0.0)` changes a source port only where the reply tuple is taken: here by a connection to the same server
/// through its other address.
#[test]
fn a_zero_address_resolves_collisions_only() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let states = Side::both().map(|side| {
        side.rules(
            "ip,in_port=1,nw_dst=10.0.0.99 actions=ct(commit,zone=3,nat(dst=10.0.0.2),table=9)
             ip,in_port=1,nw_dst=10.0.0.2 actions=ct(commit,zone=3,nat(src=0.0.0.0),table=9)
             ip,in_port=2 actions=ct(zone=3,nat,table=9)
             table=9,in_port=1 actions=2
             table=9,in_port=2 actions=1",
        );
        let pass = |packet: &str| {
            let (port, flow) = case_flow(packet, false);
            let frame = side.pass(port, &flow);
            // Source and destination address; ports.
            let number = |at: usize| u16::from_str_radix(&frame[at..at + 4], 16).unwrap();
            (frame[52..60].to_string(), number(68), frame[60..68].to_string(), number(72))
        };
        let (client, server, other) = ("0a000001", "0a000002", "0a000063");
        let is = |src: &str, from: u16, dst: &str, to: u16| (src.to_string(), from, dst.to_string(), to);
        // Without a collision nothing changes.
        assert_eq!(pass("> c 1000 s 80"), is(client, 1000, server, 80));
        assert_eq!(pass("< s 80 c 1000"), is(server, 80, client, 1000));
        assert_eq!(pass("> c 2000 v 80"), is(client, 2000, server, 80));
        let (src, port, dst, to) = pass("> c 2000 s 80");
        assert_eq!((src.as_str(), dst.as_str(), to), (client, server, 80));
        assert!(port != 2000 && port >= 1024, "{port}");
        // Replies belong to either.
        assert_eq!(pass("< s 80 c 2000"), is(other, 80, client, 2000));
        assert_eq!(pass(&format!("< s 80 c {port}")), is(server, 80, client, 2000));
        side.tracked().join("\n").replace(&port.to_string(), "chosen")
    });
    assert_eq!(states[0], states[1]);
}

/// A segment between the client's port and port 80 of the server: port of the switch, frame.
fn segment(client: u16, reply: bool, flags: u8, seq: u32, ack: u32, payload: &[u8]) -> (usize, String) {
    let (c, s) =
        (SocketAddrV4::new([10, 0, 0, 1].into(), client), SocketAddrV4::new([10, 0, 0, 2].into(), 80));
    let (from, to) = if reply { (s, c) } else { (c, s) };
    (1 + usize::from(reply), hex(&tcp(from, to, seq, ack, flags, payload)))
}

/// Packets of all protocols, in zones 5 (UDP), 6 (TCP) and 7 (ICMP): connections in all stages.
fn traffic() -> Vec<(usize, String)> {
    let mut all: Vec<_> = ["> c 5 s 6", "> c 7 s 6", "< s 6 c 7", "> c 8 s 9", "> c 8 s 9"]
        .iter()
        .map(|packet| case_flow(packet, false))
        .chain([case_flow("> c 5 s 6", true)])
        .collect();
    let opened = |port: u16| {
        [
            segment(port, false, SYN, 100, 0, &[]),
            segment(port, true, SYN | ACK, 500, 101, &[]),
            segment(port, false, ACK, 101, 501, b"x"),
        ]
    };
    all.push(segment(1000, false, SYN, 100, 0, &[]));
    all.extend(opened(1001)[..2].iter().cloned());
    (1002..=1005).for_each(|port| all.extend(opened(port)));
    // One side closes; both; a reset.
    all.push(segment(1003, false, FIN | ACK, 102, 501, &[]));
    all.push(segment(1004, false, FIN | ACK, 102, 501, &[]));
    all.push(segment(1004, true, FIN | ACK, 501, 103, &[]));
    all.push(segment(1005, true, RST | ACK, 501, 102, &[]));
    // In mid-stream.
    all.push(segment(1006, false, ACK, 7000, 8000, b"more"));
    all.push(segment(1006, true, ACK, 8000, 7004, b"more"));
    // Pings are new until a reply.
    let (there, back) = ((1, "src=10.0.0.1,dst=10.0.0.2", 8), (2, "src=10.0.0.2,dst=10.0.0.1", 0));
    for (port, addresses, kind) in [there, there, back, there] {
        all.push((
            port,
            format!(
                "in_port({port}),eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02),eth_type(0x0800),\
                 ipv4({addresses},proto=1,tos=0,ttl=64,frag=no),icmp(type={kind},code=0)"
            ),
        ));
    }
    all
}

/// Output of a command, with its lines in order.
pub(crate) fn said(side: &Side, line: &str) -> String {
    let out = appctl_output(&side.daemon, line);
    // Names of programs and sockets differ.
    let errors = out.stderr.lines().next().unwrap_or_default();
    let mut lines: Vec<&str> = out.stdout.lines().collect();
    lines.sort_unstable();
    format!("{}\n{errors}", lines.join("\n"))
}

/// Lists with timeouts, statistics, and deletions by their selections.
#[test]
fn commands_about_connections_are_those_of_open_vswitch() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool");
    let sides = Side::both();
    for side in &sides {
        let rules = "udp actions=ct(commit,zone=5,exec(set_field:5->ct_mark),table=9)
                     udp6 actions=ct(commit,zone=5,exec(set_field:6->ct_mark),table=9)
                     tcp actions=ct(commit,zone=6,exec(set_field:0x77->ct_label),table=9)
                     icmp actions=ct(commit,zone=7,table=9)\n";
        let both = ["ip", "ipv6"].map(|ip| shown().replace("{ip}", ip)).concat();
        side.rules(&format!("{rules}{both}"));
        appctl(&side.daemon, "time/stop");
    }
    let same = |line: &str| {
        let [ours, stock] = sides.each_ref().map(|side| said(side, line));
        assert_eq!(ours, stock, "{line}");
        ours
    };
    // Open vSwitch counts the connections of a zone from the time that its limit is set.
    same("dpctl/ct-set-limits zone=5,limit=100 zone=6,limit=100 zone=7,limit=100");
    let passed = sides
        .each_ref()
        .map(|side| traffic().iter().map(|(port, packet)| side.pass(*port, packet)).collect::<Vec<_>>());
    assert_eq!(passed[0], passed[1]);
    let lists = [
        "dpctl/dump-conntrack",
        "dpctl/dump-conntrack -s",
        "dpctl/dump-conntrack -m -s",
        "dpctl/dump-conntrack zone=6",
    ];
    for line in lists {
        same(line);
    }
    let all = same("dpctl/dump-conntrack -s");
    assert_eq!(all.trim().lines().count(), 12, "{all}");
    for line in [
        "dpctl/ct-stats-show",
        "dpctl/ct-stats-show -m",
        "dpctl/ct-stats-show zone=5",
        "dpctl/ct-get-nconns",
        "dpctl/ct-get-maxconns",
        "dpctl/ct-get-tcp-seq-chk",
        "dpctl/ct-get-limits",
        "dpctl/ct-get-limits zone=5,6,7",
        "dpctl/ct-del-limits zone=5",
        "dpctl/ct-get-limits",
        "dpctl/ipf-get-status",
    ] {
        same(line);
    }
    // Beyond its window a segment is invalid, unless numbers are not checked.
    let beyond = segment(1002, false, ACK, 900_000_102, 501, b"x");
    let states = ["enable", "disable", "enable"].map(|what| {
        same(&format!("dpctl/ct-{what}-tcp-seq-chk"));
        let [ours, stock] = sides.each_ref().map(|side| side.pass(beyond.0, &beyond.1));
        assert_eq!(ours, stock, "{what}");
        // The bits of its state, in the TOS.
        u8::from_str_radix(&ours[30..32], 16).unwrap() >> 2
    });
    // +inv+trk; +est+trk; +inv+trk.
    assert_eq!(states, [0x30, 0x22, 0x30]);
    for line in [
        // By the original tuple; there is none; by that of the reply.
        "dpctl/flush-conntrack zone=5 ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=5,ct_tp_dst=6",
        "dpctl/flush-conntrack zone=5 ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=5,ct_tp_dst=6",
        "dpctl/flush-conntrack zone=5 ct_ipv6_src=fd00::1,ct_ipv6_dst=fd00::2,ct_nw_proto=17,ct_tp_src=5,ct_tp_dst=6",
        "dpctl/flush-conntrack zone=6 ct_nw_proto=6,ct_tp_src=1004",
        "dpctl/flush-conntrack zone=7 ct_nw_proto=1,icmp_type=8",
        "dpctl/flush-conntrack zone=4",
        "dpctl/flush-conntrack ct_nw_proto=6,ct_tp_dst=80",
        "dpctl/flush-conntrack",
    ] {
        same(line);
        same("dpctl/dump-conntrack");
        same("dpctl/ct-get-nconns");
    }
}

/// Marks, labels and reply tuples select connections (as in Open vSwitch 3.5).
#[test]
fn connections_end_by_mark_and_labels() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let side = Side::new(false);
    let daemon = &side.daemon;
    side.rules(&format!(
        "udp,tp_src=5 actions=ct(commit,zone=5,exec(set_field:5->ct_mark,set_field:0x30->ct_label),table=9)
         udp,tp_src=7 actions=ct(commit,zone=5,exec(set_field:4->ct_mark),table=9)
         udp,tp_src=8 actions=ct(commit,zone=7,alg=tftp,nat(src=10.0.0.9),table=9)
         {}",
        shown().replace("{ip}", "ip")
    ));
    appctl(daemon, "time/stop");
    let begin = || {
        for packet in ["> c 5 s 6", "> c 7 s 6", "> c 8 s 69"] {
            let (port, flow) = case_flow(packet, false);
            side.pass(port, &flow);
        }
    };
    let ports = || {
        let all = side.tracked();
        let port =
            |line: &String| line.split("sport=").nth(1).and_then(|l| l.split(',').next()?.parse().ok());
        let mut ports: Vec<u16> = all.iter().filter_map(port).collect();
        ports.sort_unstable();
        ports
    };
    for (selection, left) in [
        ("mark=5", vec![7, 8]),
        ("mark=4/4", vec![8]),
        ("mark=1/3", vec![7, 8]),
        ("labels=0x30", vec![7, 8]),
        ("labels=0x10/0x10", vec![7, 8]),
        ("zone=5 mark=4/5", vec![5, 8]),
        ("zone=7 mark=4/4", vec![5, 7, 8]),
        // The reply goes to the translated address.
        ("ct_nw_proto=17 ct_nw_dst=10.0.0.9", vec![5, 7]),
        ("ct_nw_dst=10.0.0.2,ct_nw_proto=17 ct_nw_src=10.0.0.2,ct_nw_proto=17,ct_tp_dst=7", vec![5, 8]),
    ] {
        begin();
        assert_eq!(ports(), [5, 7, 8]);
        appctl(daemon, &format!("dpctl/flush-conntrack {selection}"));
        assert_eq!(ports(), left, "{selection}");
    }
    // Helpers announce: the server answers from any port.
    begin();
    let expected = appctl(daemon, "dpctl/dump-conntrack-exp zone=7");
    assert_eq!(
        expected,
        "udp,orig=(src=10.0.0.2,dst=10.0.0.9,sport=0,dport=8),zone=7,\
         parent=(src=10.0.0.1,dst=10.0.0.2,sport=8,dport=69)\n"
    );
    assert_eq!(appctl(daemon, "dpctl/dump-conntrack-exp zone=5"), "");
}

/// A timeout policy of the database is in force for connections of its zone from their next packet on.
#[test]
fn connections_end_by_the_policy_of_their_zone() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let side = Side::new(false);
    let daemon = &side.daemon;
    side.rules(&format!("udp actions=ct(commit,zone=5,table=9)\n{}", shown().replace("{ip}", "ip")));
    appctl(daemon, "time/stop");
    let begin = || {
        for packet in ["> c 5 s 6", "> c 7 s 6"] {
            let (port, flow) = case_flow(packet, false);
            side.pass(port, &flow);
        }
    };
    vsctl(daemon, "--id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:dummy=@d");
    vsctl(daemon, "add-zone-tp dummy zone=5 udp_first=3 udp_single=7");
    let timeouts = || {
        let shown = appctl(daemon, "dpctl/dump-conntrack -s zone=5");
        let timeout =
            |line: &str| line.split("timeout=").nth(1).and_then(|l| l.split([',', ' ']).next()?.parse().ok());
        shown.lines().filter_map(timeout).collect::<Vec<u32>>()
    };
    appctl(daemon, "dpctl/flush-conntrack");
    wait_for(LIMIT, "the policy", || {
        appctl(daemon, "dpctl/flush-conntrack");
        begin();
        timeouts() == [3, 3]
    })
    .unwrap_or_else(|why| panic!("{why:#}: {}", appctl(daemon, "dpctl/dump-conntrack -s")));
    appctl(daemon, "time/warp 2000");
    begin();
    assert_eq!(timeouts(), [7, 7]);
    appctl(daemon, "time/warp 7000");
    assert_eq!(side.tracked(), [""; 0]);
    vsctl(daemon, "del-zone-tp dummy zone=5");
    wait_for(LIMIT, "the usual timeouts", || {
        appctl(daemon, "dpctl/flush-conntrack");
        begin();
        timeouts() == [60, 60]
    })
    .unwrap();
}
