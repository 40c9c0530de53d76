//! Effects of actions on packets, compared byte by byte on the wire, including checksums.

use testkit::{Pings, require_netns, require_programs, wait_for};

use crate::helpers::{answered, pings};

use super::frames::{HOST_2, IP, IP_DST, IP_SRC, Ip, arp, eth, ip6, source, tagged};
use super::{LIMIT, Lab, VERSIONS, number_after, received, send, wait_text};

/// Flows that turn a frame into another, or drop it.
struct Case {
    /// Flows; `@` is the frame's source; the test adds `in_port` and `priority`.
    rules: &'static str,
    sent: String,
    arrives: Option<String>,
    /// Whether the rules need 1.1's instructions or actions.
    new: bool,
}

fn case(rules: &'static str, sent: String, arrives: impl Into<Option<String>>) -> Case {
    Case { rules, sent, arrives: arrives.into(), new: false }
}

fn new(rules: &'static str, sent: String, arrives: impl Into<Option<String>>) -> Case {
    Case { new: true, ..case(rules, sent, arrives) }
}

/// A frame to host 2, with the source prefix of all cases; [`run`] numbers it.
fn frame(rest: &str) -> String {
    eth(HOST_2, &source(0), rest)
}

/// The frame with a tag. Pushing a tag lengthens a frame, popping one shortens it.
fn with_tag(tci: u16, rest: &str) -> String {
    tagged(HOST_2, &source(0), tci, rest)
}

/// Runs the cases concurrently: each frame has a unique source, which identifies it.
fn run(lab: &Lab, version: &str, cases: &[Case]) {
    let cases: Vec<(u8, &Case)> =
        (1..).zip(cases).filter(|(_, c)| !c.new || version != "OpenFlow10").collect();
    let number = |n: u8, frame: &str| frame.replacen(&source(0), &source(n), 1);
    let mut rules = String::new();
    for (n, c) in &cases {
        let mac = format!("dl_src=02:aa:00:00:00:{n:02x}");
        rules += &c.rules.replace('@', &mac);
        rules += "\n";
    }
    // A last frame in each round; frames of the slow path and recirculated ones may come after it.
    rules += "priority=1,dl_type=0x88b6,actions=2\n";
    lab.rules(version, &rules);
    let end = frame("88b6");
    let mut frames: Vec<String> = cases.iter().map(|(n, c)| number(*n, &c.sent)).collect();
    frames.push(end.clone());
    for round in ["first", "later"] {
        let capture = lab.watch(2);
        send(lab.host(1), &frames);
        capture.wait_for("88b6", LIMIT).unwrap();
        let all = 1 + cases.iter().filter(|(_, c)| c.arrives.is_some()).count();
        let _compared_below = wait_for(LIMIT, "all frames", || received(&capture.lines()).len() >= all);
        let seen = received(&capture.stop().unwrap());
        for (n, c) in &cases {
            let from: Vec<&String> = seen.iter().filter(|f| f[12..24] == source(*n)).collect();
            let expected: Vec<String> = c.arrives.iter().map(|f| number(*n, f)).collect();
            let trace = || lab.appctl("dpctl/dump-flows");
            // Padding follows the packet: a tag moves its end.
            let bare = |f: &String| f.trim_end_matches('0').to_string();
            assert!(
                from.iter().map(|f| bare(f)).eq(expected.iter().map(bare)),
                "{version}, {round} packet, {}\n     sent {}\nreceived {from:?}\nexpected {expected:?}\n{}",
                c.rules,
                c.sent,
                trace()
            );
        }
    }
}

fn header_cases() -> Vec<Case> {
    let udp = |ip: Ip<'_>| frame(&ip.udp(1000, 53));
    let plain = || udp(IP);
    let tcp = || frame(&IP.tcp(1000, 80, 2));
    let to = |dst: &str| eth(dst, &source(0), &IP.udp(1000, 53));
    vec![
        case("@,actions=2", plain(), plain()),
        case("@,actions=drop", plain(), None),
        case("@,actions=mod_dl_dst:02:00:00:00:00:09,2", plain(), to("020000000009")),
        case("@,actions=load:0x9->NXM_OF_ETH_DST[0..7],2", plain(), to("020000000009")),
        case(
            "@,actions=move:NXM_OF_ETH_SRC[0..31]->NXM_OF_ETH_DST[0..31],load:7->NXM_OF_ETH_DST[0..15],2",
            plain(),
            to("020000000007"),
        ),
        case("@,udp,actions=mod_nw_src:10.9.8.7,2", plain(), udp(Ip { src: "0a090807", ..IP })),
        case("@,udp,actions=mod_nw_dst:10.9.8.7,2", plain(), udp(Ip { dst: "0a090807", ..IP })),
        case("@,udp,actions=mod_nw_tos:184,2", plain(), udp(Ip { tos: 184, ..IP })),
        case("@,udp,actions=set_field:2->ip_ecn,2", plain(), udp(Ip { tos: 2, ..IP })),
        case("@,udp,actions=load:9->NXM_NX_IP_TTL[],2", plain(), udp(Ip { ttl: 9, ..IP })),
        case("@,udp,actions=mod_tp_src:7,mod_tp_dst:8,2", plain(), frame(&IP.udp(7, 8))),
        case(
            "@,tcp,actions=mod_tp_src:7,mod_tp_dst:8,mod_nw_src:1.2.3.4,2",
            tcp(),
            frame(&Ip { src: "01020304", ..IP }.tcp(7, 8, 2)),
        ),
        case("@,udp,actions=dec_ttl,2", plain(), udp(Ip { ttl: 63, ..IP })),
        case("@,udp,actions=dec_ttl,dec_ttl,2", plain(), udp(Ip { ttl: 62, ..IP })),
        case("@,udp,actions=dec_ttl,2", udp(Ip { ttl: 1, ..IP }), None),
        // An address through a register, and two swapped through the stack.
        case(
            "@,udp,actions=move:NXM_OF_IP_SRC[]->NXM_NX_REG0[],load:5->NXM_NX_REG0[0..7],move:NXM_NX_REG0[]->NXM_OF_IP_DST[],2",
            plain(),
            udp(Ip { dst: "0a010105", ..IP }),
        ),
        case(
            "@,udp,actions=push:NXM_OF_IP_SRC[],push:NXM_OF_IP_DST[],pop:NXM_OF_IP_SRC[],pop:NXM_OF_IP_DST[],2",
            plain(),
            udp(Ip { src: IP_DST, dst: IP_SRC, ..IP }),
        ),
        case(
            "@,arp,actions=load:2->NXM_OF_ARP_OP[],set_field:10.0.0.9->arp_spa,2",
            frame(&arp(1, "02aa00000000", "0a000001", "0a000002")),
            frame(&arp(2, "02aa00000000", "0a000009", "0a000002")),
        ),
        // An output before a change sends the unchanged packet.
        case("@,udp,actions=3,mod_nw_tos:4,2", plain(), udp(Ip { tos: 4, ..IP })),
        case("@,actions=note:01.02.03,load:2->NXM_NX_REG2[],output:NXM_NX_REG2[]", plain(), plain()),
        case("@,actions=load:2->NXM_NX_REG2[16..31],output:NXM_NX_REG2[16..31]", plain(), plain()),
        case("@,actions=in_port", plain(), None),
        case("@,actions=1", plain(), None),
        case("@,actions=debug_recirc,2", plain(), plain()),
        case(
            "@,udp,actions=mod_nw_tos:8,debug_recirc,load:2->NXM_NX_REG0[],output:NXM_NX_REG0[]",
            plain(),
            udp(Ip { tos: 8, ..IP }),
        ),
        case("@,actions=debug_slow,2", plain(), plain()),
        case(
            "@,udp6,actions=set_field:2001:db8::2->ipv6_dst,set_field:64->nw_ttl,2",
            frame(&ip6(17, "03e80035000c000061626364")),
            frame(&ip6(17, "03e80035000c000061626364")),
        ),
    ]
}

/// Paths that depend on the packet's length or on ports, and actions that forward nothing.
fn path_cases() -> Vec<Case> {
    let udp = |ip: Ip<'_>| frame(&ip.udp(1000, 53));
    let plain = || udp(IP);
    vec![
        // The frame has 60 bytes.
        case(
            "@,udp,actions=check_pkt_larger(59)->NXM_NX_REG0[1],move:NXM_NX_REG0[0..5]->NXM_OF_IP_TOS[2..7],2",
            plain(),
            udp(Ip { tos: 8, ..IP }),
        ),
        case(
            "@,udp,actions=check_pkt_larger(60)->NXM_NX_REG0[1],move:NXM_NX_REG0[0..5]->NXM_OF_IP_TOS[2..7],2",
            plain(),
            plain(),
        ),
        case(
            "@,udp,actions=check_pkt_larger(59)->NXM_NX_REG0[0],debug_recirc,load:2->NXM_NX_REG0[1..31],output:NXM_NX_REG0[1..16]",
            plain(),
            plain(),
        ),
        case("@,actions=bundle(eth_src,0,active_backup,ofport,members:9,2)", plain(), plain()),
        case(
            "@,actions=bundle_load(symmetric_l4,0,hrw,ofport,NXM_NX_REG0[3..18],members:9,2),output:NXM_NX_REG0[3..18]",
            plain(),
            plain(),
        ),
        case("@,actions=sample(probability=65535,collector_set_id=1),2", plain(), plain()),
    ]
}

fn vlan_cases() -> Vec<Case> {
    let body = IP.udp(1000, 53);
    let plain = || frame(&body);
    vec![
        case("@,actions=mod_vlan_vid:7,2", plain(), with_tag(7, &body)),
        case("@,actions=mod_vlan_vid:7,mod_vlan_pcp:5,2", plain(), with_tag(0xa007, &body)),
        case("@,dl_vlan=7,actions=mod_vlan_vid:9,2", with_tag(0x6007, &body), with_tag(0x6009, &body)),
        case("@,dl_vlan=7,actions=strip_vlan,2", with_tag(0x6007, &body), plain()),
        case("@,actions=load:0x1005->NXM_OF_VLAN_TCI[],2", plain(), with_tag(5, &body)),
        case("@,dl_vlan=7,actions=load:0->NXM_OF_VLAN_TCI[],2", with_tag(7, &body), plain()),
        case(
            "@,dl_vlan=7,udp,actions=mod_nw_tos:4,2",
            with_tag(7, &body),
            with_tag(7, &Ip { tos: 4, ..IP }.udp(1000, 53)),
        ),
        new(
            "@,actions=push_vlan:0x8100,set_field:4103->vlan_vid,set_field:3->vlan_pcp,2",
            plain(),
            with_tag(0x6007, &body),
        ),
        new("@,vlan_tci=0x1000/0x1000,actions=pop_vlan,2", with_tag(7, &body), plain()),
    ]
}

fn table_cases() -> Vec<Case> {
    let udp = |ip: Ip<'_>| frame(&ip.udp(1000, 53));
    let plain = || udp(IP);
    vec![
        case(
            "@,actions=load:0x77->NXM_NX_REG1[],resubmit(,1)\ntable=1,reg1=0x77,@,udp,actions=mod_nw_tos:4,resubmit(,2)\ntable=2,@,udp,nw_tos=4,actions=2",
            plain(),
            udp(Ip { tos: 4, ..IP }),
        ),
        // A resubmit with another input port, and actions after a resubmit.
        case(
            "@,in_port=1,actions=resubmit(3,),2\n@,in_port=3,actions=load:1->NXM_NX_REG0[]",
            plain(),
            plain(),
        ),
        case("@,actions=resubmit(,3),2\ntable=3,@,actions=exit", plain(), None),
        case(
            "@,actions=resubmit(,4),2\ntable=4,@,udp,actions=mod_nw_tos:4",
            plain(),
            udp(Ip { tos: 4, ..IP }),
        ),
        // A table without a matching flow.
        case("@,actions=resubmit(,5),2", plain(), plain()),
        // Endless resubmits: the packet is dropped, and the switch continues.
        case("@,actions=2,resubmit(,6)\ntable=6,@,actions=resubmit(,6),resubmit(,6)", plain(), None),
        new(
            "@,actions=write_metadata:0x1200000034,goto_table:7\ntable=7,@,metadata=0x1200000034,actions=2",
            plain(),
            plain(),
        ),
        new(
            "@,actions=write_metadata:0xff/0xf0,goto_table:8\ntable=8,@,metadata=0xf0,actions=goto_table:9\ntable=9,@,actions=2",
            plain(),
            plain(),
        ),
        new("@,actions=goto_table:250\ntable=250,@,actions=write_actions(output:2)", plain(), plain()),
        // The action set runs at the end, in its specified order, with the last action of a type.
        new(
            "@,udp,actions=write_actions(output:2,set_field:10.0.0.9->ip_dst),goto_table:10\ntable=10,@,udp,actions=write_actions(set_field:10.0.0.8->ip_dst)",
            plain(),
            udp(Ip { dst: "0a000008", ..IP }),
        ),
        new(
            "@,actions=write_actions(output:2),goto_table:11\ntable=11,@,actions=clear_actions",
            plain(),
            None,
        ),
        new(
            "@,actions=write_actions(output:2),goto_table:12\ntable=12,@,actions=clear_actions,write_actions(output:3)",
            plain(),
            None,
        ),
        // A miss ends the pipeline; only the action set runs.
        new("@,actions=write_actions(output:2),goto_table:13", plain(), plain()),
    ]
}

#[test]
fn headers_are_rewritten_with_their_checksums() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(3);
    for version in VERSIONS {
        run(&lab, version, &header_cases());
    }
}

#[test]
fn packets_go_by_their_length_and_to_live_ports() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(3);
    for version in VERSIONS {
        run(&lab, version, &path_cases());
    }
}

#[test]
fn tags_are_set_pushed_and_stripped() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(3);
    for version in VERSIONS {
        run(&lab, version, &vlan_cases());
    }
}

#[test]
fn packets_traverse_tables() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(3);
    for version in VERSIONS {
        run(&lab, version, &table_cases());
    }
}

#[test]
fn reserved_ports_reach_their_hosts() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(3);
    lab.net.switch.up("br0").unwrap();
    let rule = |n: u8, port: &str| format!("dl_src=02:aa:00:00:00:{n:02x},actions={port}\n");
    let ports = ["in_port", "flood", "all", "local", "NORMAL", "1", "2,3", "resubmit(,1)"];
    let mut rules: String = (1..).zip(ports).map(|(n, p)| rule(n, p)).collect();
    rules += "dl_src=02:aa:00:00:00:20,actions=all,in_port\n";
    let local =
        testkit::Capture::start(&lab.net.switch, "br0", "ether[6:2] = 0x02aa", &["-xx", "-Q", "in"]).unwrap();
    let hosts = [1, 2, 3].map(|n| lab.watch(n));
    lab.rules("OpenFlow10", &rules);
    let frame = |n: u8| eth("ffffffffffff", &source(n), "88b5");
    let numbers = [1, 2, 3, 4, 5, 6, 7, 8, 0x20];
    send(lab.host(1), &numbers.map(frame));
    let [one, two, three] = hosts;
    let expected: [(testkit::Capture, &[u8]); 4] = [
        (one, &[1, 0x20]),
        (two, &[2, 3, 5, 7, 0x20]),
        (three, &[2, 3, 5, 7, 0x20]),
        (local, &[2, 3, 4, 5, 0x20]),
    ];
    // Each is the first of its flow: these may be reordered.
    let sorted = |lines: &[String]| {
        let mut frames = received(lines);
        frames.sort();
        frames
    };
    for (capture, numbers) in &expected {
        wait_for(LIMIT, "all frames", || received(&capture.lines()).len() >= numbers.len()).unwrap();
    }
    for (capture, numbers) in expected {
        let expected: Vec<String> = numbers.iter().map(|n| frame(*n)).collect();
        assert_eq!(sorted(&capture.stop().unwrap()), expected);
    }
}

#[test]
fn a_slow_action_keeps_its_flow_in_userspace_and_passes() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ping");
    let lab = Lab::new(2);
    lab.rules("OpenFlow10", "in_port=1,actions=debug_slow,2\nin_port=2,actions=1");
    let (one, two) = (lab.host(1), lab.host(2));
    testkit::reachable(&one.netns, two.ipv4.into(), LIMIT).unwrap();
    let before = lab.packets("in_port=1");
    answered(pings(&one.netns, "0.05", two.ipv4.into()), 10);
    let flows = lab.appctl("dpctl/dump-flows");
    assert!(flows.contains("actions:userspace(pid=0,slow_path(action))"), "{flows}");
    wait_for(LIMIT, "ten packets", || lab.packets("in_port=1") >= before + 10).unwrap();
    // Large packets are fragmented, in both directions.
    let large = Pings::start(&one.netns, &["-s", "3000", &two.ipv4.to_string()]).unwrap();
    answered(large, 2);
}

#[test]
fn rules_learn_addresses() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3", "tcpdump");
    let lab = Lab::new(3);
    // A learning switch of flows: table 10 holds learned addresses, register 0 the output port.
    let learn = "learn(table=10,idle_timeout=60,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
                 load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15])";
    for version in VERSIONS {
        let rules = format!(
            "table=0,actions={learn},resubmit(,10),resubmit(,2)\ntable=10,priority=0,actions=load:0->NXM_NX_REG0[0..15]\n\
             table=2,reg0=0,actions=flood\ntable=2,priority=1,actions=output:NXM_NX_REG0[0..15]\n"
        );
        lab.rules(version, &rules);
        let (two, three) = (lab.watch(2), lab.watch(3));
        let (a, b) = (source(1), source(2));
        // Unknown addresses are flooded. The reply and later packets go to the learned port.
        send(lab.host(1), &[eth(&b, &a, "88b5")]);
        two.wait_for("88b5", LIMIT).unwrap();
        three.wait_for("88b5", LIMIT).unwrap();
        // A megaflow of earlier flows may exist for the reply.
        lab.appctl("revalidator/wait");
        send(lab.host(2), &[eth(&a, &b, "88b5")]);
        wait_for(LIMIT, "two learned rules", || {
            lab.dump(version)
                .iter()
                .filter(|l| l.contains("table=10, ") && l.contains("dl_dst=02:aa"))
                .count()
                == 2
        })
        .unwrap();
        // The megaflow that floods follows the learned rule.
        lab.appctl("revalidator/wait");
        send(lab.host(1), &[eth(&b, &a, "88b5ff")]);
        two.wait_for("88b5 ff", LIMIT).unwrap();
        send(lab.host(1), &[eth("ffffffffffff", &a, "88b5ee")]);
        three.wait_for("88b5 ee", LIMIT).unwrap();
        let seen = received(&three.stop().unwrap());
        assert_eq!(seen, [eth(&b, &a, "88b5"), eth("ffffffffffff", &a, "88b5ee")], "{version}");
        drop(two);
        let learned = lab.dump(version).into_iter().find(|l| l.contains("dl_dst=02:aa:00:00:00:02")).unwrap();
        assert!(
            learned.contains("vlan_tci=0x0000/0x0fff") && learned.contains("0x2->NXM_NX_REG0[0..15]"),
            "{learned}"
        );
    }
}

#[test]
fn learning_keeps_to_its_limit() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    // `limit` counts flows with the same cookie; result_dst receives whether the flow exists.
    let rules = "actions=learn(table=1,cookie=0x99,limit=2,result_dst=NXM_NX_REG0[0],delete_learned,NXM_OF_ETH_SRC[]),resubmit(,5)\n\
                 table=5,cookie=5,reg0=1,actions=2\ntable=5,cookie=6,reg0=0,actions=drop";
    for version in VERSIONS {
        lab.rules(version, rules);
        for n in 1..=4 {
            send(lab.host(1), &[eth(HOST_2, &source(n), "88b5")]);
            lab.wait_packets("table=5", n.into());
        }
        assert_eq!(lab.dump(version).iter().filter(|l| l.contains("cookie=0x99, table=1")).count(), 2);
        lab.wait_packets("cookie=5/-1,table=5", 2);
        lab.wait_packets("cookie=6/-1,table=5", 2);
        // Deleting the learning flow deletes learned flows.
        lab.ofctl("del-flows br0 table=0");
        assert_eq!(lab.dump(version).len(), 2, "{:?}", lab.dump(version));
    }
}

#[test]
fn an_expired_ttl_is_sent_to_the_controller() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "python3");
    let lab = Lab::new(2);
    lab.rules("OpenFlow10", "cookie=0x42,ip,actions=dec_ttl,2");
    // Packets with expired TTL go to controllers that enabled them.
    let deaf = lab.monitor("monitor br0 65534");
    let monitor = lab.monitor("monitor br0 65534 invalid_ttl");
    send(lab.host(1), &[eth(HOST_2, &source(1), &Ip { ttl: 1, ..IP }.udp(1000, 53))]);
    wait_text(&monitor, "via invalid_ttl");
    assert!(monitor.stderr().contains("nw_ttl=1"), "{}", monitor.stderr());
    assert!(!deaf.stderr().contains("invalid_ttl)"), "{}", deaf.stderr());
    lab.wait_packets("cookie=0x42/-1", 1);
}

#[test]
fn patch_ports_join_bridges_in_one_flow() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl", "python3", "tcpdump");
    let lab = Lab::new(2);
    let two = &lab.host(2).port;
    lab.vsctl(&format!(
        "del-port br0 {two} -- add-br br1 -- set bridge br1 fail_mode=secure \
         -- add-port br1 {two} -- set interface {two} ofport_request=2 \
         -- add-port br0 pa -- set interface pa type=patch options:peer=pb ofport_request=9 \
         -- add-port br1 pb -- set interface pb type=patch options:peer=pa ofport_request=8"
    ));
    lab.rules("OpenFlow10", "in_port=1,udp,actions=mod_nw_tos:4,output:9");
    lab.ofctl("add-flow br1 cookie=7,in_port=8,udp,nw_tos=4,actions=mod_nw_tos:8,output:2");
    let capture = lab.watch(2);
    let sent = eth(HOST_2, &source(1), &IP.udp(1000, 53));
    send(lab.host(1), &[sent.clone(), sent.clone(), sent]);
    lab.wait_packets("in_port=1", 3);
    wait_for(LIMIT, "the rule of the second bridge", || {
        number_after(&lab.ofctl("dump-aggregate br1 cookie=7/-1"), "packet_count=") == 3
    })
    .unwrap();
    let expected = eth(HOST_2, &source(1), &Ip { tos: 8, ..IP }.udp(1000, 53));
    wait_for(LIMIT, "three frames", || received(&capture.lines()).len() == 3).unwrap();
    assert!(received(&capture.stop().unwrap()).iter().all(|f| *f == expected));
    // One megaflow through both bridges; the patch ports count it.
    let flows = lab.appctl("dpctl/dump-flows");
    let udp: Vec<&str> = flows.lines().filter(|l| l.contains("proto=17")).collect();
    assert!(udp.len() == 1 && udp[0].contains("tos=0x8"), "{flows}");
    assert_eq!(number_after(&lab.ofctl("dump-ports br0 9"), "tx pkts="), 3);
    assert_eq!(number_after(&lab.ofctl("dump-ports br1 8"), "rx pkts="), 3);
}

#[test]
fn controller_actions_keep_all_arguments() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(1);
    for version in VERSIONS {
        let text = "ip actions=controller(max_len=100,id=1,userdata=01.02),\
                    controller(reason=invalid_ttl,max_len=64,id=2,userdata=ff,meter_id=7),controller(pause)";
        lab.rules(version, &text.replace(" actions", ",actions"));
        assert_eq!(lab.dump(version), [text]);
    }
}

#[test]
fn each_bridge_has_meters_of_its_own() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl", "ovs-appctl");
    let lab = Lab::new(1);
    lab.vsctl("add-br br1 -- set bridge br1 fail_mode=secure");
    let add = |bridge: &str| {
        lab.ofctl(&format!("-O OpenFlow13 add-meter {bridge} meter=1,pktps,bands=type=drop,rate=100"));
        lab.ofctl(&format!("-O OpenFlow13 add-flow {bridge} actions=meter:1,local"));
        let reported = lab.appctl(&format!("ofproto/trace {bridge} in_port=1"));
        reported.lines().last().unwrap_or_default().to_string()
    };
    assert!(add("br0").contains("meter(0)"));
    assert!(add("br1").contains("meter(1)"));
    // Removing a bridge removes its meters and frees their ids.
    lab.vsctl("del-br br0 -- add-br br2");
    assert!(add("br2").contains("meter(0)"));
}

/// Packets of a member that goes down move to the others, and come back with it.
#[test]
fn a_bundle_follows_the_links() {
    require_netns!();
    require_programs!("ovs-vsctl", "ovs-ofctl");
    let lab = Lab::new(3);
    let sent = frame(&IP.udp(1000, 53));
    lab.rules("OpenFlow10", "in_port=1,actions=bundle(eth_src,0,active_backup,ofport,members:2,3)");
    let port = lab.net.ports()[1].to_string();
    for (state, receiver) in [("up", 2), ("down", 3), ("up", 2)] {
        lab.net.switch.run("ip", &["link", "set", &port, state]).unwrap();
        let expected = format!("Datapath actions: {}", number_of(&lab, receiver));
        let trace = || lab.appctl("ofproto/trace br0 in_port=1,udp");
        wait_for(LIMIT, &expected, || trace().lines().any(|l| l == expected)).unwrap();
        lab.appctl("revalidator/wait");
        let capture = lab.watch(receiver);
        send(lab.host(1), std::slice::from_ref(&sent));
        capture.wait_for("0800", LIMIT).unwrap();
        let seen = received(&capture.stop().unwrap());
        assert!(seen.contains(&sent), "{state}: {seen:?}");
    }
}

/// The datapath's number of the port of a host.
fn number_of(lab: &Lab, host: usize) -> u64 {
    let port = lab.net.ports()[host - 1].to_string();
    number_after(&lab.appctl("dpif/show"), &format!("{port} {host}/"))
}
