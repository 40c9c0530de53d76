//! Tunnels of further kinds in user space. Expectations are those of `ofproto/trace` of OVS 3.1, except where noted.

use super::native::{Native, PLAIN, UDP, config, ip, route};
use super::stories::story;
use super::*;
use crate::tunnel::{Endpoint, ErspanOptions, FlowLabel, PacketTypes, TunnelConfig, TunnelKey, TunnelKind};
use dpif::actions::format_actions;
use dpif::text::NumbersOnly;
use routing::{Hops, Route};

const ETH: &str = "eth(dst=f8:bc:12:44:34:b6,src=aa:55:aa:55:00:00,dl_type=0x0800)";
const ETH6: &str = "eth(dst=f8:bc:12:44:34:b7,src=aa:55:aa:55:00:00,dl_type=0x86dd)";

/// A push: size, type, protocol, and what follows the IP header; over IPv6 if the type is one of it.
fn push(port: u32, size: usize, kind: u32, proto: u8, rest: &str) -> String {
    let headers = match kind {
        108 => format!(
            "{ETH6},ipv6(src=2001:cafe::88,dst=2001:cafe::92,label=0,proto={proto},tclass=0x0,hlimit=64)"
        ),
        _ => format!("{ETH},ipv4(src=1.1.2.88,dst=1.1.2.92,proto={proto},tos=0,ttl=64,frag=0x4000)"),
    };
    format!("tnl_push(tnl_port({port}),header(size={size},type={kind},{headers},{rest}),out_port(100)),11,12")
}

/// A push of VXLAN with these fields.
fn vxlan([tos, ttl, fragment, csum]: [&str; 4]) -> String {
    let ip = format!("ipv4(src=1.1.2.88,dst=1.1.2.92,proto=17,tos={tos},ttl={ttl},frag={fragment})");
    let udp = format!("udp(src=0,dst=4789,csum={csum}),vxlan(flags=0x8000000,vni=0x5)");
    format!("tnl_push(tnl_port(4789),header(size=50,type=4,{ETH},{ip},{udp}),out_port(100)),11,12")
}

#[test]
fn options_decide_on_outer_headers() {
    let plain = config(TunnelKind::Vxlan, "1.1.2.92", TunnelKey::Value(5));
    let inherits = TunnelConfig { tos: None, ttl: None, dont_fragment: false, csum: true, ..plain.clone() };
    let packets = [
        "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=40,nw_ecn=2,nw_ttl=17",
        "in_port=1,udp,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_tos=40,nw_ecn=3,nw_ttl=1",
        "in_port=1,arp,arp_op=1",
    ];
    let arp = "recirc_id=0,eth,arp,in_port=1";
    for (config, expected) in [
        (
            plain.clone(),
            [["0x2", "64", "0x4000", "0x0"], ["0x2", "64", "0x4000", "0x0"], ["0", "64", "0x4000", "0x0"]],
        ),
        (
            TunnelConfig { tos: Some(0x20), ..plain.clone() },
            [
                ["0x22", "64", "0x4000", "0x0"],
                ["0x22", "64", "0x4000", "0x0"],
                ["0x20", "64", "0x4000", "0x0"],
            ],
        ),
        (
            TunnelConfig { ttl: Some(9), ..plain.clone() },
            [["0x2", "9", "0x4000", "0x0"], ["0x2", "9", "0x4000", "0x0"], ["0", "9", "0x4000", "0x0"]],
        ),
        (
            inherits.clone(),
            [["0x2a", "17", "0x0", "0xffff"], ["0x2a", "1", "0x0", "0xffff"], ["0", "64", "0x0", "0xffff"]],
        ),
    ] {
        let native = Native::with(&[(20, 4789, config.clone())]).rules("actions=20");
        for (packet, fields) in packets.into_iter().zip(expected) {
            let ecn = if packet.contains("nw_ecn=2") { 2 } else { 3 };
            let tos = if config.tos.is_none() { "nw_tos=40," } else { "" };
            let ttl = match (config.ttl, ecn) {
                (Some(_), _) => "",
                (None, 2) => ",nw_ttl=17",
                (None, _) => ",nw_ttl=1",
            };
            let of_ip = format!("recirc_id=0,eth,ip,in_port=1,{tos}nw_ecn={ecn}{ttl},nw_frag=no");
            native.check(packet, &vxlan(fields), if packet.contains("arp") { arp } else { &of_ip });
        }
    }
}

/// A mark selects among routes by command, and rules of the next bridge see it. OVS leaves it on later outputs.
#[test]
fn a_mark_of_egress_selects_a_route_and_stays_on_the_packet() {
    let marked = |egress_pkt_mark| TunnelConfig {
        egress_pkt_mark,
        ..config(TunnelKind::Vxlan, "5.5.5.5", TunnelKey::Value(5))
    };
    let native = |mark, actions: &str| {
        let mut native = Native::with(&[(20, 4789, marked(mark))]).rules(&format!("actions={actions}"));
        let route = Route { mark: 7, hops: Hops::one("b", Some(ip("1.1.2.92"))), ..route(("5.5.5.0", 24)) };
        native.state.routes.add_user(&route, ip("5.5.5.0")).expect("a route");
        native.rig.backer.set_native(native.state.clone(), None);
        let b = native.rig.b;
        Native {
            rig: native.rig.rules(b, "priority=9,in_port=LOCAL,pkt_mark=7,actions=mod_nw_tos:32,1"),
            ..native
        }
    };
    let push = vxlan(["0", "64", "0x4000", "0x0"]).replace("dst=1.1.2.92", "dst=5.5.5.5");
    let push = push.replace("11,12", "set(ipv4(tos=0x20/0xfc)),11");
    let megaflow = format!("pkt_mark=0,{PLAIN}");
    for (mark, actions, expected) in [
        (Some(7), "20", format!("set(skb_mark(0x7)),{push}")),
        (Some(7), "20,2", format!("clone(set(skb_mark(0x7)),{push}),2")),
        (Some(7), "load:7->NXM_NX_PKT_MARK[],20", format!("set(skb_mark(0x7)),{push}")),
        (None, "load:7->NXM_NX_PKT_MARK[],20", format!("set(skb_mark(0x7)),{push}")),
        (Some(8), "20", "drop".to_string()),
        (None, "20", "drop".to_string()),
    ] {
        native(mark, actions).check(UDP, &expected, &megaflow);
    }
}

fn erspan(kind: TunnelKind, key: TunnelKey, options: ErspanOptions) -> TunnelConfig {
    let remote = if kind == TunnelKind::Erspan { "1.1.2.92" } else { "2001:cafe::92" };
    let mut config = config(kind, remote, key);
    config.of_kind.erspan = options;
    config
}

#[test]
fn erspan_headers_have_the_fields_of_options_or_of_rules() {
    let fixed = ErspanOptions { ver: Some(1), idx: Some(3), ..ErspanOptions::default() };
    let second = ErspanOptions { ver: Some(2), dir: Some(1), hwid: Some(7), ..ErspanOptions::default() };
    let of_rules = ErspanOptions { ver: None, idx: Some(9), dir: None, hwid: None };
    let key = TunnelKey::Value(1);
    let native = |actions: &str| {
        let tunnels = [
            (20, 30, erspan(TunnelKind::Erspan, key, fixed)),
            (21, 30, erspan(TunnelKind::Erspan, TunnelKey::Value(2), second)),
            (22, 30, erspan(TunnelKind::Erspan, TunnelKey::Flow, of_rules)),
            (23, 31, erspan(TunnelKind::Ip6erspan, key, second)),
            (24, 30, erspan(TunnelKind::Erspan, TunnelKey::Value(5), ErspanOptions::default())),
        ];
        Native::with(&tunnels).rules(&format!("actions={actions}"))
    };
    for (actions, expected) in [
        ("20", push(30, 50, 107, 47, "erspan(ver=1,sid=0x1,idx=0x3)")),
        ("21", push(30, 54, 107, 47, "erspan(ver=2,sid=0x2,dir=1,hwid=0x7)")),
        ("23", push(31, 74, 108, 47, "erspan(ver=2,sid=0x1,dir=1,hwid=0x7)")),
        (
            "set_field:5->tun_id,set_field:1->tun_erspan_ver,set_field:0x1234->tun_erspan_idx,22",
            push(30, 50, 107, 47, "erspan(ver=1,sid=0x5,idx=0x1234)"),
        ),
        (
            "set_field:0x3ff->tun_id,set_field:2->tun_erspan_ver,set_field:1->tun_erspan_dir,set_field:0x15->tun_erspan_hwid,22",
            push(30, 54, 107, 47, "erspan(ver=2,sid=0x3ff,dir=1,hwid=0x15)"),
        ),
        // A session id of 11 bits, another version, none at all.
        ("set_field:0x400->tun_id,set_field:1->tun_erspan_ver,22,2", "2".to_string()),
        ("set_field:5->tun_erspan_ver,22,2", "2".to_string()),
        ("24,2", "2".to_string()),
    ] {
        native(actions).check(UDP, &expected, PLAIN);
    }
    let told = story(&native("24").rig, UDP, false);
    assert_eq!(told.last().map(String::as_str), Some("     >> native tunnel header build failed"));
}

fn typed(kind: TunnelKind, key: u64, packet_types: PacketTypes, gpe: bool) -> TunnelConfig {
    let mut config = config(kind, "1.1.2.92", TunnelKey::Value(key));
    (config.of_kind.packet_types, config.of_kind.gpe) = (packet_types, gpe);
    config.dst_port = if gpe { 4790 } else { config.dst_port };
    config
}

/// Tunnels: 25 (GRE, `legacy_l3`), 26 (GRE, `ptap`), 27 (VXLAN-GPE, `ptap`), 28 (VXLAN-GPE, `legacy_l3`), 29 (VXLAN-GPE),
/// 30 (GTP-U), 31 (VXLAN, `ptap`).
fn typed_tunnels(rules: &str) -> Native {
    let (bare, any) = (PacketTypes::Bare, PacketTypes::Any);
    let tunnels = [
        (25, 13, typed(TunnelKind::Gre, 2, bare, false)),
        (26, 13, typed(TunnelKind::Gre, 3, any, false)),
        (27, 4790, typed(TunnelKind::Vxlan, 5, any, true)),
        (28, 4790, typed(TunnelKind::Vxlan, 6, bare, true)),
        (29, 4790, typed(TunnelKind::Vxlan, 7, PacketTypes::Frames, true)),
        (30, 2152, typed(TunnelKind::Gtpu, 0x12_3456, bare, false)),
        (31, 4789, typed(TunnelKind::Vxlan, 8, any, false)),
    ];
    Native::with(&tunnels).rules(rules)
}

#[test]
fn tunnels_of_bare_packets_pop_ethernet() {
    let gre = |proto: &str, key: u32| {
        push(13, 42, 3, 47, &format!("gre((flags=0x2000,proto={proto}),key=0x{key:x})"))
    };
    let gpe = |protocol: u8, vni: u32| {
        let flags = 0xc00_0000 + u32::from(protocol);
        push(4790, 50, 4, 17, &format!("udp(src=0,dst=4790,csum=0x0),vxlan(flags=0x{flags:x},vni=0x{vni:x})"))
    };
    let gtpu =
        push(2152, 50, 110, 17, "udp(src=0,dst=2152,csum=0x0),gtpu(flags=0x30,msgtype=255,teid=0x123456)");
    let nsh = "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0)";
    for (actions, expected, examines_ecn) in [
        ("25", format!("pop_eth,{}", gre("0x800", 2)), true),
        ("26", gre("0x6558", 3), true),
        ("27", gpe(3, 5), true),
        ("28", format!("pop_eth,{}", gpe(1, 6)), true),
        ("29", gpe(3, 7), true),
        ("30", format!("pop_eth,{gtpu}"), true),
        ("decap(),25", format!("pop_eth,{}", gre("0x800", 2)), true),
        ("decap(),26", format!("pop_eth,{}", gre("0x800", 3)), true),
        ("decap(),27", format!("pop_eth,{}", gpe(1, 5)), true),
        ("decap(),30", format!("pop_eth,{gtpu}"), true),
        (
            "decap(),29,encap(ethernet),3",
            "pop_eth,push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),3".into(),
            false,
        ),
        ("encap(nsh),26", format!("{nsh},{}", gre("0x894f", 3)), false),
        ("encap(nsh),27", format!("{nsh},{}", gpe(4, 5)), false),
        // OVS aborts where something follows such an output.
        ("25,2", format!("clone(pop_eth,{}),2", gre("0x800", 2)), true),
        ("output(port=25,max_len=100),2", format!("clone(trunc(86),pop_eth,{}),2", gre("0x800", 2)), true),
        // OVS pops Ethernet, and pushes nothing.
        (
            "decap(),31,encap(ethernet),3",
            "pop_eth,push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),3".into(),
            true,
        ),
    ] {
        let examined = if examines_ecn { PLAIN.to_string() } else { PLAIN.replace("nw_ecn=0,", "") };
        typed_tunnels(&format!("actions={actions}")).check(UDP, &expected, &examined);
    }
    let arp = "in_port=1,arp,arp_op=1,dl_src=02:00:00:00:00:01";
    for (output, expected) in [
        (25, format!("pop_eth,{}", gre("0x806", 2))),
        (27, gpe(3, 5)),
        (28, "drop".into()),
        // OVS sends it, which receivers drop.
        (30, "drop".into()),
    ] {
        let native = typed_tunnels(&format!("actions={output}"));
        native.check(arp, &expected, "recirc_id=0,eth,arp,in_port=1");
    }
    // A tag has no place there.
    let native = typed_tunnels("actions=25,26");
    native.check(&format!("{UDP},dl_vlan=5"), &gre("0x6558", 3), PLAIN);
}

#[test]
fn received_bare_packets_have_the_form_of_their_tunnel() {
    let from = |port: u32, key: u64| {
        format!(
            "in_port={port},packet_type=(1,0x800),tun_id={key},tun_src=1.1.2.92,tun_dst=1.1.2.88,tun_ttl=64,nw_src=10.0.0.1,nw_dst=10.0.0.2,nw_proto=17,nw_ttl=64"
        )
    };
    let eth = "push_eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00)";
    let given = "push_eth(src=00:00:00:00:00:00,dst=02:00:00:00:00:09)";
    for (port, key, actions, expected) in [
        (25, 2, "2", format!("{eth},2")),
        (25, 2, "mod_dl_dst:02:00:00:00:00:09,2", format!("{given},2")),
        (30, 0x12_3456, "2,3", format!("{eth},2,3")),
        (26, 3, "2", "drop".to_string()),
        (26, 3, "encap(ethernet),2", format!("{eth},2")),
    ] {
        let native = typed_tunnels(&format!("actions={actions}"));
        let t = native.rig.translate(&Rig::flow(&from(port, key)), false);
        assert_eq!(format_actions(&t.actions, &NumbersOnly), expected, "{port}: {actions}");
    }
    // Rules see a frame from a tunnel of `legacy_l3` alone.
    for (port, key, expected) in [(25, 2, format!("{eth},2")), (26, 3, "drop".to_string())] {
        let native = typed_tunnels("priority=40000,ip,nw_dst=10.0.0.2,actions=2");
        let t = native.rig.translate(&Rig::flow(&from(port, key)), false);
        assert_eq!(format_actions(&t.actions, &NumbersOnly), expected, "{port}");
    }
}

#[test]
fn floods_spare_tunnels_of_bare_packets() {
    let native = typed_tunnels("actions=2");
    let view = native.rig.backer.view();
    let ports = &view.bridge(native.rig.a).unwrap().ports;
    let floodable = |n: u32| ports.port(OfPort(n)).unwrap().is_floodable();
    let numbers = [2, 25, 26, 27, 28, 29, 30, 31];
    assert_eq!(numbers.map(floodable), [true, false, true, true, false, true, false, true]);
}

/// OVS 3.1 lacks segment routing: texts are those of 3.5's documentation, bytes those of RFC 8754.
#[test]
fn segments_are_pushed() {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().expect(text);
    let tunnel = |segments: &[&str], flow_label| {
        let mut config = config(TunnelKind::Srv6, "2001:cafe::92", TunnelKey::None);
        config.of_kind.packet_types = PacketTypes::Bare;
        config.of_kind.srv6.segments = segments.iter().map(|text| address(text)).collect();
        config.of_kind.srv6.flow_label = flow_label;
        config
    };
    let mut of_rules = tunnel(&["2001:cafe::92", "2001:db8::1"], FlowLabel::Zero);
    of_rules.remote = Endpoint::Flow;
    let native = |rules: &str| {
        let tunnels = [
            (20, 30, tunnel(&[], FlowLabel::Copy)),
            (21, 30, tunnel(&["2001:cafe::92", "2001:db8::1"], FlowLabel::Zero)),
            (22, 30, of_rules.clone()),
            (23, 30, tunnel(&[], FlowLabel::Compute)),
        ];
        Native::with(&tunnels).rules(rules)
    };
    let push = |size: usize, label: u32, rest: &str| {
        format!(
            "pop_eth,tnl_push(tnl_port(30),header(size={size},type=112,{ETH6},ipv6(src=2001:cafe::88,dst=2001:cafe::92,label={label},proto=43,tclass=0x0,hlimit=64),srv6({rest})),out_port(100)),11,12"
        )
    };
    let one = "segments_left=0,segs(2001:cafe::92)";
    let two = "segments_left=1,segs(2001:cafe::92,2001:db8::1)";
    native("actions=20").check(UDP, &push(78, 0, one), PLAIN);
    native("actions=21").check(UDP, &push(94, 0, two), PLAIN);
    native("actions=set_field:2001:cafe::92->tun_ipv6_dst,22").check(UDP, &push(94, 0, two), PLAIN);
    // The way would begin elsewhere.
    native("actions=set_field:2001:cafe::93->tun_ipv6_dst,22,2").check(UDP, "2", PLAIN);
    let ip6 = "in_port=1,udp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,ipv6_label=0x1234,nw_ttl=64";
    let plain = "recirc_id=0,eth,ipv6,in_port=1,ipv6_label=0x01234,nw_ecn=0,nw_frag=no";
    native("actions=20").check(ip6, &push(78, 0x1234, one), plain);
    let native = native("actions=23");
    let labels = ["10.0.0.2", "10.0.0.3"].map(|dst| {
        let t = native.rig.translate(&Rig::flow(&UDP.replace("10.0.0.2", dst)), false);
        assert_eq!((t.wc.0.nw_src, t.wc.0.nw_dst), (u32::MAX, u32::MAX));
        let text = format_actions(&t.actions, &NumbersOnly);
        text.split("label=").nth(1).and_then(|rest| rest.split(',').next().map(String::from))
    });
    assert!(labels[0].is_some() && labels[0] != labels[1], "{labels:?}");
}

/// Rules of the next bridge see the protocol behind extension headers, and count whole frames. Protocols and lengths are
/// those of OVS 3.5, but it counts an Ethernet header that was popped, too.
#[test]
fn rules_of_the_next_bridge_see_protocol_and_length() {
    let value = TunnelKey::Value(5);
    let bare = |kind, remote, key| {
        let mut config = config(kind, remote, key);
        config.of_kind.packet_types = PacketTypes::Bare;
        config
    };
    let second = ErspanOptions { ver: Some(2), dir: Some(1), hwid: Some(7), ..ErspanOptions::default() };
    let ip6 = "in_port=1,udp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,nw_ttl=64";
    let [v4, v6] = ["1.1.2.92", "2001:cafe::92"];
    for (config, packet, fields, bytes) in [
        (config(TunnelKind::Vxlan, v4, value), UDP, "udp,tp_dst=4789", 100 + 50),
        (config(TunnelKind::Vxlan, v6, value), UDP, "udp6,tp_dst=4789", 100 + 70),
        (config(TunnelKind::Geneve, v4, value), UDP, "udp,tp_dst=6081", 100 + 50),
        (config(TunnelKind::Gre, v4, value), UDP, "ip,nw_proto=47", 100 + 42),
        (bare(TunnelKind::Gre, v4, TunnelKey::None), UDP, "ip,nw_proto=47", 100 - 14 + 38),
        (erspan(TunnelKind::Ip6erspan, value, second), UDP, "ipv6,nw_proto=47", 100 + 74),
        (bare(TunnelKind::Gtpu, v4, value), UDP, "udp,tp_dst=2152", 100 - 14 + 50),
        (bare(TunnelKind::Srv6, v6, TunnelKey::None), UDP, "ipv6,nw_proto=4", 100 - 14 + 78),
        (bare(TunnelKind::Srv6, v6, TunnelKey::None), ip6, "ipv6,nw_proto=41", 100 - 14 + 78),
    ] {
        let native = Native::with(&[(20, 30, config)]).rules("actions=20,2");
        let (a, b) = (native.rig.a, native.rig.b);
        let rig = native.rig.rules(b, &format!("priority=9,{fields},actions=1"));
        let t = rig.translate(&Rig::flow(packet), false);
        t.cache.replay(&seen(3, 300, 1000), &mut rig.backer.effect_host());
        let view = rig.backer.view();
        let counts = |bridge, priority| {
            let rules = &view.bridge(bridge).expect("made above").tables;
            rules.iter().find(|rule| rule.priority == priority).map(|rule| rule.stats.counts())
        };
        assert_eq!(counts(b, 9), Some((3, 3 * bytes)), "{fields} {packet}");
        assert_eq!(counts(a, 32768), Some((3, 300)), "{fields} {packet}");
    }
}
